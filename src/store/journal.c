/* The index file of a folder: records of slabs that were added, removed and used, in the order in which that happened;
 * the last record of a name counts. A scan reads it twice, in windows of 1 MiB: to find the last records, and to replay
 * them; so it takes no memory but an entry for each name.
 *
 * One mutex guards all of it, also during writes: only threads of the folder's own tier wait for it. */
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
    RECORD_BYTES = 8, /* before the body: type, three zeros, the body's length */
    CRC_BYTES = 4,
    NAME_BYTES = SHA256_BYTES + 1,
    BUFFER_BYTES = 1 << 20,
    MOST_BODY_BYTES = 1 << 26 /* a longer one is no record */
};

#define SLACK_BYTES ((uint64_t)64 << 20)

static const uint8_t HEADER[HEADER_BYTES] = {'H', 'K', 'V', 'J', 1, 0, 0, 0};

enum record_type { ADDED = 'A', REMOVED = 'R', USED = 'U' };

struct journal {
    struct files *files;
    int folder;
    pthread_mutex_t mutex;
    int fd;            /* open for writing; -1: nothing is recorded */
    bool is_new;       /* fd is the new file, which journal_commit() puts in place of the old one */
    bool is_replaying; /* between journal_replay() and journal_commit() */
    uint64_t at, base; /* where the next record goes; bytes at the last commit */
    struct buf buffer; /* records that are still to be written, while a new file is made */
    struct buf missed; /* names of slabs that were put during a replay, without a record */
};

struct journal *journal_open(struct files *files, int folder)
{
    struct journal *journal = mem_alloc(sizeof *journal);
    *journal = (struct journal){.files = files, .folder = folder, .fd = -1};
    pthread_mutex_init(&journal->mutex, NULL);
    return journal;
}

static void close_file(struct journal *journal)
{
    if (journal->fd >= 0) journal->files->close(journal->files, journal->fd);
    journal->fd = -1;
    buf_clear(&journal->buffer);
}

void journal_close(struct journal *journal)
{
    if (journal == NULL) return;
    close_file(journal);
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

/* What the file says of a slab that was since replaced may be wrong: no file is better. */
static void unlink_index(struct journal *journal)
{
    journal->files->unlink(journal->files, journal->folder, JOURNAL_NAME);
}

/* After a write that failed nothing more is recorded, so that no record follows half of one. */
static void give_up(struct journal *journal)
{
    close_file(journal);
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
static void append(struct journal *journal, enum record_type type, const void *body, size_t size)
{
    uint8_t head[RECORD_BYTES] = {(uint8_t)type}, crc[CRC_BYTES];
    little_put(head + 4, size, 4);
    little_put(crc, crc32c(crc32c(0, head, sizeof head), body, size), sizeof crc);
    buf_append(&journal->buffer, head, sizeof head);
    buf_append(&journal->buffer, body, size);
    buf_append(&journal->buffer, crc, sizeof crc);
    if (!journal->is_new || journal->buffer.len >= BUFFER_BYTES) flush(journal);
}

static void lock_and_append(struct journal *journal, enum record_type type, const void *body, size_t size)
{
    pthread_mutex_lock(&journal->mutex);
    if (journal->fd >= 0) append(journal, type, body, size);
    pthread_mutex_unlock(&journal->mutex);
}

static void added_body(const struct slab_head *head, uint64_t size, struct buf *body)
{
    uint8_t bytes[8];
    little_put(bytes, size, sizeof bytes);
    buf_append(body, bytes, sizeof bytes);
    slab_encode_brief(head, body);
}

void journal_add(struct journal *journal, const struct slab_head *head, uint64_t size)
{
    struct buf body = {0};
    added_body(head, size, &body);
    lock_and_append(journal, ADDED, body.v, body.len);
    buf_release(&body);
}

/* With the mutex. */
static bool is_live(const struct journal *journal)
{
    return journal->fd >= 0 && !journal->is_new;
}

/* With the mutex. */
static void note_missed(struct journal *journal, const struct slab_head *head)
{
    uint8_t name[NAME_BYTES];
    put_name(&(struct slab_name){head->key, head->kind}, name);
    if (journal->is_replaying) buf_append(&journal->missed, name, sizeof name);
    unlink_index(journal);
}

void journal_put(struct journal *journal, const struct slab_head *head, uint64_t size)
{
    struct buf body = {0};
    added_body(head, size, &body);
    pthread_mutex_lock(&journal->mutex);
    if (is_live(journal))
        append(journal, ADDED, body.v, body.len);
    else
        note_missed(journal, head);
    pthread_mutex_unlock(&journal->mutex);
    buf_release(&body);
}

void journal_remove(struct journal *journal, const struct slab_name *name)
{
    uint8_t body[NAME_BYTES];
    put_name(name, body);
    lock_and_append(journal, REMOVED, body, sizeof body);
}

void journal_note_use(struct journal *journal, const struct slab_name *name, uint32_t hits, int64_t used_ms)
{
    uint8_t body[NAME_BYTES + SLAB_USE_BYTES];
    put_name(name, body);
    slab_encode_use(hits, used_ms, body + NAME_BYTES);
    lock_and_append(journal, USED, body, sizeof body);
}

/* ---- Reading ---- */

/* A file that is read from its beginning to its end, or to the first bytes that are no record. */
struct reading {
    struct files *files;
    int fd;
    uint64_t at; /* of the next record */
    uint8_t *window;
    size_t len, cap;
    uint64_t window_at;
};

struct journal_record {
    enum record_type type;
    uint64_t at;
    const uint8_t *body;
    size_t size;
};

/* n bytes of the file from `at` on. NULL: the file is shorter, or cannot be read. */
static const uint8_t *read_window(struct reading *reading, uint64_t at, size_t n)
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

static bool next_record(struct reading *reading, struct journal_record *record)
{
    const uint8_t *head = read_window(reading, reading->at, RECORD_BYTES);
    if (head == NULL) return false;
    size_t size = (size_t)little_get(head + 4, 4);
    if (size > MOST_BODY_BYTES) return false;
    head = read_window(reading, reading->at, RECORD_BYTES + size + CRC_BYTES);
    if (head == NULL || little_get(head + RECORD_BYTES + size, CRC_BYTES) != crc32c(0, head, RECORD_BYTES + size))
        return false;
    *record = (struct journal_record){
        .type = (enum record_type)head[0], .at = reading->at, .body = head + RECORD_BYTES, .size = size};
    reading->at += RECORD_BYTES + size + CRC_BYTES;
    return true;
}

static bool begin_reading(struct reading *reading, struct journal *journal)
{
    *reading = (struct reading){.files = journal->files, .at = HEADER_BYTES};
    reading->fd = journal->files->open(journal->files, journal->folder, JOURNAL_NAME, FILES_READ);
    if (reading->fd < 0) return false;
    const uint8_t *header = read_window(reading, 0, HEADER_BYTES);
    return header != NULL && memcmp(header, HEADER, HEADER_BYTES) == 0;
}

static void end_reading(struct reading *reading)
{
    if (reading->fd >= 0) reading->files->close(reading->files, reading->fd);
    free(reading->window);
}

/* ---- Replaying ---- */

int journal_name_compare(const void *a, const void *b)
{
    const struct slab_name *x = &((const struct journal_name *)a)->name, *y = &((const struct journal_name *)b)->name;
    int order = memcmp(&x->key, &y->key, sizeof x->key);
    return order != 0 ? order : (x->kind > y->kind) - (x->kind < y->kind);
}

static bool decode(const struct journal_record *record, struct slab_head *head, uint64_t *size)
{
    if (record->type != ADDED || record->size < 8) return false;
    const uint8_t *front = record->body + 8;
    *size = little_get(record->body, 8);
    return slab_decode(front, record->size - 8, slab_brief_bytes(front, record->size - 8), head, NULL) == 0;
}

/* The body of an ADDED record is 8 bytes of size, then the slab's front, which has the key. */
static bool record_name(const struct journal_record *record, struct slab_name *name)
{
    if (record->type != ADDED && record->size < NAME_BYTES) return false;
    if (record->type != ADDED) {
        *name = get_name(record->body);
        return true;
    }
    return record->size > 8 && slab_brief_name(record->body + 8, record->size - 8, name);
}

static void mark(const struct journal_record *record, struct journal_name *name)
{
    if (record->type == ADDED) *name = (struct journal_name){.name = name->name, .at = record->at};
    if (record->type == REMOVED) name->at = 0;
    if (record->type != USED || record->size < NAME_BYTES + SLAB_USE_BYTES) return;
    slab_decode_use(record->body + NAME_BYTES, &name->hits, &name->used_ms);
}

/* Notes the position of the last record of each name. Returns the bytes of the records that count. */
static uint64_t find_last(struct reading *reading, struct journal_name *names, size_t n)
{
    struct journal_record record;
    uint64_t useful = 0;
    while (next_record(reading, &record)) {
        struct journal_name wanted = {0};
        if (!record_name(&record, &wanted.name)) continue;
        struct journal_name *found = n == 0 ? NULL : bsearch(&wanted, names, n, sizeof *names, journal_name_compare);
        if (found == NULL) continue;
        bool first = record.type == ADDED && found->at == 0;
        mark(&record, found);
        if (first) useful += RECORD_BYTES + record.size + CRC_BYTES;
    }
    return useful;
}

static void replay_one(struct journal *journal, const struct journal_record *record, struct journal_name *name,
                       void (*each)(void *ud, struct slab_head *head, uint64_t size), void *ud)
{
    struct slab_head head;
    uint64_t size;
    if (!decode(record, &head, &size)) return;
    if (name->used_ms > 0) {
        head.hits = name->hits;
        head.used_ms = name->used_ms;
    }
    name->replayed = true;
    if (journal->is_new) journal_add(journal, &head, size);
    each(ud, &head, size);
    slab_head_release(&head);
}

static void replay_all(struct journal *journal, struct reading *reading, struct journal_name *names, size_t n,
                       void (*each)(void *ud, struct slab_head *head, uint64_t size), void *ud)
{
    struct journal_record record;
    reading->at = HEADER_BYTES;
    while (next_record(reading, &record)) {
        struct journal_name wanted = {0};
        if (record.type != ADDED || !record_name(&record, &wanted.name)) continue;
        struct journal_name *found = n == 0 ? NULL : bsearch(&wanted, names, n, sizeof *names, journal_name_compare);
        if (found != NULL && found->at == record.at) replay_one(journal, &record, found, each, ud);
    }
}

/* Continues the file at `end`, or begins a new one. */
static void begin_writing(struct journal *journal, bool new_file, uint64_t end)
{
    struct files *files = journal->files;
    pthread_mutex_lock(&journal->mutex);
    close_file(journal);
    if (!new_file) journal->fd = files->open(files, journal->folder, JOURNAL_NAME, FILES_WRITE);
    journal->is_new = journal->fd < 0;
    journal->at = journal->base = journal->is_new ? 0 : end;
    if (journal->is_new) {
        files->unlink(files, journal->folder, JOURNAL_NEW);
        journal->fd = files->open(files, journal->folder, JOURNAL_NEW, FILES_CREATE);
        if (journal->fd >= 0) buf_append(&journal->buffer, HEADER, sizeof HEADER);
    }
    pthread_mutex_unlock(&journal->mutex);
}

void journal_replay(struct journal *journal, struct journal_name *names, size_t n,
                    void (*each)(void *ud, struct slab_head *head, uint64_t size), void *ud)
{
    struct reading reading;
    pthread_mutex_lock(&journal->mutex);
    journal->is_replaying = true;
    buf_clear(&journal->missed);
    pthread_mutex_unlock(&journal->mutex);
    bool readable = begin_reading(&reading, journal);
    uint64_t useful = readable ? find_last(&reading, names, n) : 0, end = reading.at;
    struct journal_record behind;
    bool damaged = readable && read_window(&reading, end, 1) != NULL && !next_record(&reading, &behind);
    begin_writing(journal, !readable || damaged || useful < end / 2, end);
    if (readable) replay_all(journal, &reading, names, n, each, ud);
    end_reading(&reading);
}

/* With the mutex: what was replayed of slabs that were put meanwhile may be wrong. */
static void append_missed_removals(struct journal *journal)
{
    for (size_t i = 0; i < journal->missed.len; i += NAME_BYTES)
        append(journal, REMOVED, journal->missed.v + i, NAME_BYTES);
    buf_clear(&journal->missed);
}

void journal_commit(struct journal *journal)
{
    struct files *files = journal->files;
    pthread_mutex_lock(&journal->mutex);
    if (journal->is_new && journal->fd >= 0) {
        append_missed_removals(journal);
        flush(journal);
        journal->is_new = false;
        journal->base = journal->at;
        bool renamed =
            journal->fd >= 0 && files->rename(files, journal->folder, JOURNAL_NEW, journal->folder, JOURNAL_NAME) == 0;
        if (!renamed) give_up(journal);
    }
    journal->is_replaying = false;
    pthread_mutex_unlock(&journal->mutex);
}

bool journal_is_stale(struct journal *journal)
{
    pthread_mutex_lock(&journal->mutex);
    bool stale = journal->fd >= 0 && !journal->is_new && journal->at > 2 * journal->base + SLACK_BYTES;
    pthread_mutex_unlock(&journal->mutex);
    return stale;
}
