/* The index file of a folder: records of slabs that were added, removed and used, in the order in which that happened;
 * the last record of a name counts. A scan reads it twice, in windows of 1 MiB: to find the last records, and to replay
 * them; so it takes no memory but an entry for each name.
 *
 * One mutex guards all of it, also during writes: only threads of the folder's own tier wait for it. */
#include "store/backends/folder_parts.h"

#include "base/crc32c.h"
#include "base/little.h"
#include "base/memory.h"

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

struct index_file {
    struct files *files;
    int folder;
    pthread_mutex_t mutex;
    int fd;            /* open for writing; -1: nothing is recorded */
    bool is_new;       /* fd is the new file, which index_file_commit() puts in place of the old one */
    bool is_replaying; /* from its opening, and later from index_file_replay(), to index_file_commit() */
    int former;        /* the file as it was when this was opened, for the first replay: its name may go; -1: none */
    uint64_t at, base; /* where the next record goes; bytes at the last commit */
    struct buf buffer; /* records that are still to be written, while a new file is made */
    struct buf missed; /* names of slabs that were put during a replay, without a record */
};

struct index_file *index_file_open(struct files *files, int folder)
{
    struct index_file *index_file = mem_alloc(sizeof *index_file);
    *index_file = (struct index_file){.files = files, .folder = folder, .fd = -1, .is_replaying = true};
    index_file->former = files->open(files, folder, INDEX_FILE_NAME, FILES_READ);
    pthread_mutex_init(&index_file->mutex, NULL);
    return index_file;
}

static void close_file(struct index_file *index_file)
{
    if (index_file->fd >= 0) index_file->files->close(index_file->files, index_file->fd);
    index_file->fd = -1;
    buf_clear(&index_file->buffer);
}

void index_file_close(struct index_file *index_file)
{
    if (index_file == NULL) return;
    close_file(index_file);
    if (index_file->former >= 0) index_file->files->close(index_file->files, index_file->former);
    buf_release(&index_file->buffer);
    buf_release(&index_file->missed);
    pthread_mutex_destroy(&index_file->mutex);
    free(index_file);
}

/* ---- Names ---- */

static void put_name(const struct slab_name *name, uint8_t at[NAME_BYTES])
{
    memcpy(at, name->key.v, SHA256_BYTES);
    at[SHA256_BYTES] = (uint8_t)name->kind;
}

/* ---- Writing ---- */

/* The file may be wrong of a slab that was since replaced: no file is better. */
static void unlink_index(struct index_file *index_file)
{
    index_file->files->unlink(index_file->files, index_file->folder, INDEX_FILE_NAME);
}

/* After a write that failed nothing more is recorded, so that no record follows half of one. */
static void give_up(struct index_file *index_file)
{
    close_file(index_file);
    unlink_index(index_file);
}

static void flush(struct index_file *index_file)
{
    if (index_file->buffer.len == 0) return;
    int result = files_write_all(index_file->files, index_file->fd, index_file->buffer.v, index_file->buffer.len,
                                 index_file->at);
    index_file->at += index_file->buffer.len;
    buf_clear(&index_file->buffer);
    if (result < 0) give_up(index_file);
}

/* With the mutex. */
static void append(struct index_file *index_file, enum record_type type, const void *body, size_t size)
{
    uint8_t head[RECORD_BYTES] = {(uint8_t)type}, crc[CRC_BYTES];
    little_put(head + 4, size, 4);
    little_put(crc, crc32c(crc32c(0, head, sizeof head), body, size), sizeof crc);
    buf_append(&index_file->buffer, head, sizeof head);
    buf_append(&index_file->buffer, body, size);
    buf_append(&index_file->buffer, crc, sizeof crc);
    if (!index_file->is_new || index_file->buffer.len >= BUFFER_BYTES) flush(index_file);
}

static void lock_and_append(struct index_file *index_file, enum record_type type, const void *body, size_t size)
{
    pthread_mutex_lock(&index_file->mutex);
    if (index_file->fd >= 0) append(index_file, type, body, size);
    pthread_mutex_unlock(&index_file->mutex);
}

static void added_body(const struct slab_head *head, uint64_t size, struct buf *body)
{
    uint8_t bytes[8];
    little_put(bytes, size, sizeof bytes);
    buf_append(body, bytes, sizeof bytes);
    slab_encode_brief(head, body);
}

void index_file_add(struct index_file *index_file, const struct slab_head *head, uint64_t size)
{
    struct buf body = {0};
    added_body(head, size, &body);
    lock_and_append(index_file, ADDED, body.v, body.len);
    buf_release(&body);
}

void index_file_put(struct index_file *index_file, const struct slab_head *head, uint64_t size)
{
    struct buf body = {0};
    added_body(head, size, &body);
    pthread_mutex_lock(&index_file->mutex);
    if (index_file->fd >= 0 && !index_file->is_new) {
        append(index_file, ADDED, body.v, body.len);
    } else {
        uint8_t name[NAME_BYTES];
        put_name(&(struct slab_name){head->key, head->kind}, name);
        if (index_file->is_replaying) buf_append(&index_file->missed, name, sizeof name);
        unlink_index(index_file);
    }
    pthread_mutex_unlock(&index_file->mutex);
    buf_release(&body);
}

void index_file_remove(struct index_file *index_file, const struct slab_name *name)
{
    uint8_t body[NAME_BYTES];
    put_name(name, body);
    lock_and_append(index_file, REMOVED, body, sizeof body);
}

void index_file_note_use(struct index_file *index_file, const struct slab_name *name, uint32_t hits, int64_t used_ms)
{
    uint8_t body[NAME_BYTES + SLAB_USE_BYTES];
    put_name(name, body);
    slab_encode_use(hits, used_ms, body + NAME_BYTES);
    lock_and_append(index_file, USED, body, sizeof body);
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

struct index_file_record {
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

static bool next_record(struct reading *reading, struct index_file_record *record)
{
    const uint8_t *head = read_window(reading, reading->at, RECORD_BYTES);
    if (head == NULL) return false;
    size_t size = (size_t)little_get(head + 4, 4);
    if (size > MOST_BODY_BYTES) return false;
    head = read_window(reading, reading->at, RECORD_BYTES + size + CRC_BYTES);
    if (head == NULL || little_get(head + RECORD_BYTES + size, CRC_BYTES) != crc32c(0, head, RECORD_BYTES + size))
        return false;
    *record = (struct index_file_record){
        .type = (enum record_type)head[0], .at = reading->at, .body = head + RECORD_BYTES, .size = size};
    reading->at += RECORD_BYTES + size + CRC_BYTES;
    return true;
}

/* ---- Replaying ---- */

int index_file_name_compare(const void *a, const void *b)
{
    const struct slab_name *x = &((const struct index_file_name *)a)->name,
                           *y = &((const struct index_file_name *)b)->name;
    int order = memcmp(&x->key, &y->key, sizeof x->key);
    return order != 0 ? order : (x->kind > y->kind) - (x->kind < y->kind);
}

/* The one of the names that the record is of; NULL: of none. The body of an ADDED record is 8 bytes of size, then the
 * slab's front, which has the key. */
static struct index_file_name *find_name(const struct index_file_record *record, struct index_file_name *names,
                                         size_t n)
{
    struct index_file_name wanted = {0};
    if (record->type == ADDED) {
        if (record->size <= 8 || !slab_brief_name(record->body + 8, record->size - 8, &wanted.name)) return NULL;
    } else {
        if (record->size < NAME_BYTES) return NULL;
        memcpy(wanted.name.key.v, record->body, SHA256_BYTES);
        wanted.name.kind = (enum slab_kind)record->body[SHA256_BYTES];
    }
    return n == 0 ? NULL : bsearch(&wanted, names, n, sizeof *names, index_file_name_compare);
}

/* Notes the position of the last record of each name. Returns the bytes of the records that count. */
static uint64_t find_last(struct reading *reading, struct index_file_name *names, size_t n)
{
    struct index_file_record record;
    uint64_t useful = 0;
    while (next_record(reading, &record)) {
        struct index_file_name *found = find_name(&record, names, n);
        if (found == NULL) continue;
        if (record.type == ADDED && found->at == 0) useful += RECORD_BYTES + record.size + CRC_BYTES;
        if (record.type == ADDED) *found = (struct index_file_name){.name = found->name, .at = record.at};
        if (record.type == REMOVED) found->at = 0;
        if (record.type == USED && record.size >= NAME_BYTES + SLAB_USE_BYTES)
            slab_decode_use(record.body + NAME_BYTES, &found->hits, &found->used_ms);
    }
    return useful;
}

/* Of an ADDED record, whose size find_name() has checked. */
static void replay_one(struct index_file *index_file, const struct index_file_record *record,
                       struct index_file_name *name, void (*each)(void *ud, struct slab_head *head, uint64_t size),
                       void *ud)
{
    struct slab_head head;
    const uint8_t *front = record->body + 8;
    uint64_t size = little_get(record->body, 8), brief = slab_brief_bytes(front, record->size - 8);
    if (slab_decode(front, record->size - 8, brief, &head, NULL) != 0) return;
    if (name->used_ms > 0) {
        head.hits = name->hits;
        head.used_ms = name->used_ms;
    }
    name->replayed = true;
    if (index_file->is_new) index_file_add(index_file, &head, size);
    each(ud, &head, size);
    slab_head_release(&head);
}

/* Continues the file at `end`, or begins a new one. */
static void begin_writing(struct index_file *index_file, bool new_file, uint64_t end)
{
    struct files *files = index_file->files;
    pthread_mutex_lock(&index_file->mutex);
    close_file(index_file);
    if (!new_file) index_file->fd = files->open(files, index_file->folder, INDEX_FILE_NAME, FILES_WRITE);
    index_file->is_new = index_file->fd < 0;
    index_file->at = index_file->base = index_file->is_new ? 0 : end;
    if (index_file->is_new) {
        files->unlink(files, index_file->folder, INDEX_FILE_NEW);
        index_file->fd = files->open(files, index_file->folder, INDEX_FILE_NEW, FILES_CREATE);
        if (index_file->fd >= 0) buf_append(&index_file->buffer, HEADER, sizeof HEADER);
    }
    pthread_mutex_unlock(&index_file->mutex);
}

void index_file_replay(struct index_file *index_file, struct index_file_name *names, size_t n,
                       void (*each)(void *ud, struct slab_head *head, uint64_t size), void *ud)
{
    struct files *files = index_file->files;
    pthread_mutex_lock(&index_file->mutex);
    if (!index_file->is_replaying) buf_clear(&index_file->missed);
    index_file->is_replaying = true;
    pthread_mutex_unlock(&index_file->mutex);
    struct reading reading = {.files = files, .at = HEADER_BYTES, .fd = index_file->former};
    index_file->former = -1;
    if (reading.fd < 0) reading.fd = files->open(files, index_file->folder, INDEX_FILE_NAME, FILES_READ);
    const uint8_t *header = reading.fd < 0 ? NULL : read_window(&reading, 0, HEADER_BYTES);
    bool readable = header != NULL && memcmp(header, HEADER, HEADER_BYTES) == 0;
    uint64_t useful = readable ? find_last(&reading, names, n) : 0, end = reading.at;
    struct index_file_record record;
    bool damaged = readable && read_window(&reading, end, 1) != NULL && !next_record(&reading, &record);
    begin_writing(index_file, !readable || damaged || useful < end / 2, end);
    reading.at = HEADER_BYTES;
    while (readable && next_record(&reading, &record)) {
        struct index_file_name *found = record.type == ADDED ? find_name(&record, names, n) : NULL;
        if (found != NULL && found->at == record.at) replay_one(index_file, &record, found, each, ud);
    }
    if (reading.fd >= 0) files->close(files, reading.fd);
    free(reading.window);
}

void index_file_commit(struct index_file *index_file)
{
    struct files *files = index_file->files;
    pthread_mutex_lock(&index_file->mutex);
    if (index_file->is_new && index_file->fd >= 0) {
        /* Records that were replayed of slabs that were put meanwhile may be wrong. */
        for (size_t i = 0; i < index_file->missed.len; i += NAME_BYTES)
            append(index_file, REMOVED, index_file->missed.v + i, NAME_BYTES);
        buf_clear(&index_file->missed);
        flush(index_file);
        index_file->is_new = false;
        index_file->base = index_file->at;
        bool renamed = index_file->fd >= 0 && files->rename(files, index_file->folder, INDEX_FILE_NEW,
                                                            index_file->folder, INDEX_FILE_NAME) == 0;
        if (!renamed) give_up(index_file);
    }
    index_file->is_replaying = false;
    pthread_mutex_unlock(&index_file->mutex);
}

bool index_file_is_stale(struct index_file *index_file)
{
    pthread_mutex_lock(&index_file->mutex);
    bool stale = index_file->fd >= 0 && !index_file->is_new && index_file->at > 2 * index_file->base + SLACK_BYTES;
    pthread_mutex_unlock(&index_file->mutex);
    return stale;
}
