/* The index file of a folder: records of slabs that were added, removed and used, in the order in which that happened;
 * the last one of a name counts. It is read twice at a start, in large pieces: to find the last records, and to tell of
 * them; so it takes no memory but a line for each name.
 *
 * One mutex guards all of it; it is held during writes, which threads of the folder's own tier wait for alone. */
#include "store/journal.h"

#include "base/crc32c.h"
#include "base/little.h"
#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEADER_BYTES = 8,
    RECORD_BYTES = 8, /* before the body: sort, three zeros, the body's length */
    CRC_BYTES = 4,
    NAME_BYTES = SHA256_BYTES + 1,
    BUFFER_BYTES = 1 << 20,
    MOST_BODY = 1 << 26 /* longer ones are no records */
};

#define SLACK_BYTES ((uint64_t)64 << 20)

static const uint8_t HEADER[HEADER_BYTES] = {'H', 'K', 'V', 'J', 1, 0, 0, 0};

enum sort { ADDED = 'A', REMOVED = 'R', USED = 'U' };

struct journal {
    struct files *files;
    int folder;
    pthread_mutex_t mutex;
    int fd;            /* written to; -1: nothing is noted */
    bool is_new;       /* it is the file that will take the place of the other */
    bool is_telling;   /* since journal_tell(), until it is settled */
    uint64_t at, base; /* where the next record goes; how long it was when it was settled */
    struct buf buffer; /* of records that are still to be written, while many come at once */
    struct buf missed; /* names of slabs that were put while it was telling, but not noted */
};

struct journal *journal_open(struct files *files, int folder)
{
    struct journal *journal = mem_alloc(sizeof *journal);
    *journal = (struct journal){.files = files, .folder = folder, .fd = -1};
    pthread_mutex_init(&journal->mutex, NULL);
    return journal;
}

static void stop(struct journal *journal)
{
    if (journal->fd >= 0) journal->files->close(journal->files, journal->fd);
    journal->fd = -1;
    buf_clear(&journal->buffer);
}

void journal_close(struct journal *journal)
{
    if (journal == NULL) return;
    stop(journal);
    buf_release(&journal->buffer);
    buf_release(&journal->missed);
    pthread_mutex_destroy(&journal->mutex);
    free(journal);
}

/* ---- Names ---- */

static void put_name(const struct slab_name *name, uint8_t at[NAME_BYTES])
{
    memcpy(at, name->key.v, SHA256_BYTES);
    at[SHA256_BYTES] = (uint8_t)name->kind;
}

static struct slab_name get_name(const uint8_t *at)
{
    struct slab_name name = {.kind = (enum slab_kind)at[SHA256_BYTES]};
    memcpy(name.key.v, at, SHA256_BYTES);
    return name;
}

/* ---- Writing ---- */

/* What the file says of a slab that was put again since may be another slab's: better no file. */
static void unlink_index(struct journal *journal)
{
    journal->files->unlink(journal->files, journal->folder, JOURNAL_NAME);
}

/* What cannot be written is missing then: nothing more is noted, lest a record stands behind half of one. */
static void give_up(struct journal *journal)
{
    stop(journal);
    unlink_index(journal);
}

static void flush(struct journal *journal)
{
    if (journal->buffer.len == 0) return;
    int result = files_write_all(journal->files, journal->fd, journal->buffer.v, journal->buffer.len, journal->at);
    journal->at += journal->buffer.len;
    buf_clear(&journal->buffer);
    if (result < 0) give_up(journal);
}

/* With the mutex. */
static void append(struct journal *journal, enum sort sort, const void *body, size_t size)
{
    uint8_t head[RECORD_BYTES] = {(uint8_t)sort}, crc[CRC_BYTES];
    little_put(head + 4, size, 4);
    little_put(crc, crc32c(crc32c(0, head, sizeof head), body, size), sizeof crc);
    buf_append(&journal->buffer, head, sizeof head);
    buf_append(&journal->buffer, body, size);
    buf_append(&journal->buffer, crc, sizeof crc);
    if (!journal->is_new || journal->buffer.len >= BUFFER_BYTES) flush(journal);
}

static void note(struct journal *journal, enum sort sort, const void *body, size_t size)
{
    pthread_mutex_lock(&journal->mutex);
    if (journal->fd >= 0) append(journal, sort, body, size);
    pthread_mutex_unlock(&journal->mutex);
}

static void added(const struct slab_head *head, uint64_t size, struct buf *body)
{
    uint8_t bytes[8];
    little_put(bytes, size, sizeof bytes);
    buf_append(body, bytes, sizeof bytes);
    slab_encode_brief(head, body);
}

void journal_add(struct journal *journal, const struct slab_head *head, uint64_t size)
{
    struct buf body = {0};
    added(head, size, &body);
    note(journal, ADDED, body.v, body.len);
    buf_release(&body);
}

/* With the mutex. */
static bool is_live(const struct journal *journal)
{
    return journal->fd >= 0 && !journal->is_new;
}

/* With the mutex. */
static void miss(struct journal *journal, const struct slab_head *head)
{
    uint8_t name[NAME_BYTES];
    put_name(&(struct slab_name){head->key, head->kind}, name);
    if (journal->is_telling) buf_append(&journal->missed, name, sizeof name);
    unlink_index(journal);
}

void journal_put(struct journal *journal, const struct slab_head *head, uint64_t size)
{
    struct buf body = {0};
    added(head, size, &body);
    pthread_mutex_lock(&journal->mutex);
    if (is_live(journal))
        append(journal, ADDED, body.v, body.len);
    else
        miss(journal, head);
    pthread_mutex_unlock(&journal->mutex);
    buf_release(&body);
}

void journal_remove(struct journal *journal, const struct slab_name *name)
{
    uint8_t body[NAME_BYTES];
    put_name(name, body);
    note(journal, REMOVED, body, sizeof body);
}

void journal_note_use(struct journal *journal, const struct slab_name *name, uint32_t hits, int64_t used_ms)
{
    uint8_t body[NAME_BYTES + SLAB_USE_BYTES];
    put_name(name, body);
    slab_encode_use(hits, used_ms, body + NAME_BYTES);
    note(journal, USED, body, sizeof body);
}

/* ---- Reading ---- */

/* A file that is read from its beginning to its end, or to the first record that is none. */
struct reading {
    struct files *files;
    int fd;
    uint64_t at; /* of the next record */
    uint8_t *window;
    size_t len, cap;
    uint64_t window_at;
};

struct record {
    enum sort sort;
    uint64_t at;
    const uint8_t *body;
    size_t size;
};

/* n bytes of the file, from `at` on; NULL: there are not so many, or they cannot be read. */
static const uint8_t *see(struct reading *reading, uint64_t at, size_t n)
{
    if (at >= reading->window_at && at + n <= reading->window_at + reading->len)
        return reading->window + (at - reading->window_at);
    if (n > reading->cap || reading->cap == 0) {
        reading->cap = n > BUFFER_BYTES ? n : BUFFER_BYTES;
        reading->window = mem_grow(reading->window, reading->cap, 1);
    }
    reading->window_at = at;
    reading->len = 0;
    while (reading->len < reading->cap) {
        ssize_t got = reading->files->read_at(reading->files, reading->fd, reading->window + reading->len,
                                              reading->cap - reading->len, at + reading->len);
        if (got <= 0) break;
        reading->len += (size_t)got;
    }
    return reading->len >= n ? reading->window : NULL;
}

static bool next_record(struct reading *reading, struct record *record)
{
    const uint8_t *head = see(reading, reading->at, RECORD_BYTES);
    if (head == NULL) return false;
    size_t size = (size_t)little_get(head + 4, 4);
    if (size > MOST_BODY) return false;
    head = see(reading, reading->at, RECORD_BYTES + size + CRC_BYTES);
    if (head == NULL || little_get(head + RECORD_BYTES + size, CRC_BYTES) != crc32c(0, head, RECORD_BYTES + size))
        return false;
    *record = (struct record){.sort = (enum sort)head[0], .at = reading->at, .body = head + RECORD_BYTES, .size = size};
    reading->at += RECORD_BYTES + size + CRC_BYTES;
    return true;
}

static bool begin_reading(struct reading *reading, struct journal *journal)
{
    *reading = (struct reading){.files = journal->files, .at = HEADER_BYTES};
    reading->fd = journal->files->open(journal->files, journal->folder, JOURNAL_NAME, FILES_READ);
    if (reading->fd < 0) return false;
    const uint8_t *header = see(reading, 0, HEADER_BYTES);
    return header != NULL && memcmp(header, HEADER, HEADER_BYTES) == 0;
}

static void end_reading(struct reading *reading)
{
    if (reading->fd >= 0) reading->files->close(reading->files, reading->fd);
    free(reading->window);
}

/* ---- Telling ---- */

int listed_compare(const void *a, const void *b)
{
    const struct slab_name *x = &((const struct listed *)a)->name, *y = &((const struct listed *)b)->name;
    int order = memcmp(&x->key, &y->key, sizeof x->key);
    return order != 0 ? order : (x->kind > y->kind) - (x->kind < y->kind);
}

static bool decode(const struct record *record, struct slab_head *head, uint64_t *size)
{
    if (record->sort != ADDED || record->size < 8) return false;
    const uint8_t *front = record->body + 8;
    *size = little_get(record->body, 8);
    return slab_decode(front, record->size - 8, slab_brief_bytes(front, record->size - 8), head, NULL) == 0;
}

/* The name stands where the slab's front has its key: 8 bytes of size, then the front. */
static bool name_of(const struct record *record, struct slab_name *name)
{
    if (record->sort != ADDED && record->size < NAME_BYTES) return false;
    if (record->sort != ADDED) {
        *name = get_name(record->body);
        return true;
    }
    return record->size > 8 && slab_brief_name(record->body + 8, record->size - 8, name);
}

static void mark(const struct record *record, struct listed *listed)
{
    if (record->sort == ADDED) *listed = (struct listed){.name = listed->name, .at = record->at};
    if (record->sort == REMOVED) listed->at = 0;
    if (record->sort != USED || record->size < NAME_BYTES + SLAB_USE_BYTES) return;
    slab_decode_use(record->body + NAME_BYTES, &listed->hits, &listed->used_ms);
}

/* Marks where the last record of each name stands. Returns the bytes of those that count. */
static uint64_t find_last(struct reading *reading, struct listed *listed, size_t n)
{
    struct record record;
    uint64_t useful = 0;
    while (next_record(reading, &record)) {
        struct listed wanted = {0};
        if (!name_of(&record, &wanted.name)) continue;
        struct listed *found = n == 0 ? NULL : bsearch(&wanted, listed, n, sizeof *listed, listed_compare);
        if (found == NULL) continue;
        bool first = record.sort == ADDED && found->at == 0;
        mark(&record, found);
        if (first) useful += RECORD_BYTES + record.size + CRC_BYTES;
    }
    return useful;
}

static void tell_one(struct journal *journal, const struct record *record, struct listed *listed,
                     void (*each)(void *ud, struct slab_head *head, uint64_t size), void *ud)
{
    struct slab_head head;
    uint64_t size;
    if (!decode(record, &head, &size)) return;
    if (listed->used_ms > 0) {
        head.hits = listed->hits;
        head.used_ms = listed->used_ms;
    }
    listed->told = true;
    if (journal->is_new) journal_add(journal, &head, size);
    each(ud, &head, size);
    slab_head_release(&head);
}

static void tell_all(struct journal *journal, struct reading *reading, struct listed *listed, size_t n,
                     void (*each)(void *ud, struct slab_head *head, uint64_t size), void *ud)
{
    struct record record;
    reading->at = HEADER_BYTES;
    while (next_record(reading, &record)) {
        struct listed wanted = {0};
        if (record.sort != ADDED || !name_of(&record, &wanted.name)) continue;
        struct listed *found = n == 0 ? NULL : bsearch(&wanted, listed, n, sizeof *listed, listed_compare);
        if (found != NULL && found->at == record.at) tell_one(journal, &record, found, each, ud);
    }
}

/* Where the file goes on, if it is still there, or a new one. */
static void begin_writing(struct journal *journal, bool anew, uint64_t end)
{
    struct files *files = journal->files;
    pthread_mutex_lock(&journal->mutex);
    stop(journal);
    if (!anew) journal->fd = files->open(files, journal->folder, JOURNAL_NAME, FILES_WRITE);
    journal->is_new = journal->fd < 0;
    journal->at = journal->base = journal->is_new ? 0 : end;
    if (journal->is_new) {
        files->unlink(files, journal->folder, JOURNAL_NEW);
        journal->fd = files->open(files, journal->folder, JOURNAL_NEW, FILES_CREATE);
        if (journal->fd >= 0) buf_append(&journal->buffer, HEADER, sizeof HEADER);
    }
    pthread_mutex_unlock(&journal->mutex);
}

void journal_tell(struct journal *journal, struct listed *listed, size_t n,
                  void (*each)(void *ud, struct slab_head *head, uint64_t size), void *ud)
{
    struct reading reading;
    pthread_mutex_lock(&journal->mutex);
    journal->is_telling = true;
    buf_clear(&journal->missed);
    pthread_mutex_unlock(&journal->mutex);
    bool readable = begin_reading(&reading, journal);
    uint64_t useful = readable ? find_last(&reading, listed, n) : 0, end = reading.at;
    struct record behind;
    bool damaged = readable && see(&reading, end, 1) != NULL && !next_record(&reading, &behind);
    begin_writing(journal, !readable || damaged || useful < end / 2, end);
    if (readable) tell_all(journal, &reading, listed, n, each, ud);
    end_reading(&reading);
}

/* With the mutex: what was told of slabs that were put meanwhile may be others'. */
static void forget_missed(struct journal *journal)
{
    for (size_t i = 0; i < journal->missed.len; i += NAME_BYTES)
        append(journal, REMOVED, journal->missed.v + i, NAME_BYTES);
    buf_clear(&journal->missed);
}

void journal_settle(struct journal *journal)
{
    struct files *files = journal->files;
    pthread_mutex_lock(&journal->mutex);
    if (journal->is_new && journal->fd >= 0) {
        forget_missed(journal);
        flush(journal);
        journal->is_new = false;
        journal->base = journal->at;
        bool renamed =
            journal->fd >= 0 && files->rename(files, journal->folder, JOURNAL_NEW, journal->folder, JOURNAL_NAME) == 0;
        if (!renamed) give_up(journal);
    }
    journal->is_telling = false;
    pthread_mutex_unlock(&journal->mutex);
}

bool journal_is_stale(struct journal *journal)
{
    pthread_mutex_lock(&journal->mutex);
    bool stale = journal->fd >= 0 && !journal->is_new && journal->at > 2 * journal->base + SLACK_BYTES;
    pthread_mutex_unlock(&journal->mutex);
    return stale;
}
