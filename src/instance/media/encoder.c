/* Encodings, computed once each, and kept in the store: see encoder.h.
 *
 * An item is an encoding that is wanted, or kept. It is queued until the thread takes it; an item that nobody wants any
 * more before that is dropped. One mutex guards everything but the rows, which do not change once they are there.
 *
 * To the store an encoding is the state after a prefix of eight tokens, made of its key, of a model without KV rows
 * whose fingerprint is the projector's digest. So quotas, eviction, checks and listings hold for it as for any slab.
 * The store's threads call wake_stored(); everything else of it happens on the encoder's thread. */
#include "instance/media/encoder.h"

#include "base/clock.h"
#include "base/file_watch.h"
#include "base/hash_table.h"
#include "base/log.h"
#include "base/media_spans.h"
#include "base/memory.h"
#include "base/thread.h"
#include "llm/threads.h"
#include "store/store.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- Encodings in the store ---- */

/* 30 bits of the key each. */
#define KEY_TOKENS 8

struct stored_encodings {
    struct store *store;
    struct file_watch *watch;
    struct store_user user;
    uint64_t last_save; /* its ticket; 0: none */
    pthread_mutex_t mutex;
    pthread_cond_t woken_now;
    bool woken;
};

/* ---- The codec: the payload is the rows, in one region ---- */

static bool cut_rows(const void *ud, enum slab_kind kind, const void *raw, size_t size, int32_t from, int32_t to,
                     struct buf *payload, struct slab_region **regions, size_t *n_regions)
{
    (void)ud, (void)from, (void)to;
    if (kind != SLAB_STATE) return false;
    buf_append(payload, raw, size);
    *regions = mem_alloc(sizeof **regions);
    **regions = (struct slab_region){.what = 'M', .rows = 1, .row_bytes = size, .size = size};
    *n_regions = 1;
    return true;
}

/* There are no rows to be joined. */
static bool join_rows(const void *ud, const struct store_piece *pieces, size_t n, struct buf *joined)
{
    (void)ud, (void)pieces, (void)n, (void)joined;
    return false;
}

static void wake_stored(void *ud)
{
    struct stored_encodings *stored = ud;
    pthread_mutex_lock(&stored->mutex);
    stored->woken = true;
    pthread_cond_signal(&stored->woken_now);
    pthread_mutex_unlock(&stored->mutex);
}

static bool may_store(void *ud)
{
    return file_watch_check(((struct stored_encodings *)ud)->watch) == FILES_SAME;
}

/* ---- In the store: opening ---- */

struct stored_encodings *stored_encodings_open(const struct stored_encodings_params *params)
{
    static const char space[] = "hearth encodings of media 2\n";
    struct stored_encodings *stored = mem_alloc(sizeof *stored);
    stored->store = params->store;
    stored->watch = params->watch;
    stored->user = (struct store_user){.identity.quant = quant_code("unknown"),
                                       .codec = {.has_state = true, .cut = cut_rows, .join = join_rows}};
    stored->user.wake = wake_stored;
    stored->user.may_store = may_store;
    stored->user.ud = stored;
    memcpy(stored->user.identity.model, params->projector, SHA256_BYTES);
    sha256_of(space, sizeof space - 1, stored->user.identity.context);
    pthread_mutex_init(&stored->mutex, NULL);
    clock_cond_init(&stored->woken_now);
    store_name_model(params->store, params->projector, params->name);
    return stored;
}

void stored_encodings_close(struct stored_encodings *stored, int64_t deadline)
{
    if (stored == NULL) return;
    store_wait(stored->store, stored->last_save, deadline);
    store_wait_for_uploads(stored->store, deadline);
    store_remove_user(stored->store, &stored->user);
    pthread_mutex_destroy(&stored->mutex);
    pthread_cond_destroy(&stored->woken_now);
    free(stored);
}

/* ---- In the store: reading ---- */

/* False: the deadline. */
static bool await_wake(struct stored_encodings *stored, int64_t deadline)
{
    struct clock *clock = clock_monotonic();
    pthread_mutex_lock(&stored->mutex);
    while (!stored->woken && clock_now(clock) < deadline)
        clock->wait(clock, &stored->woken_now, &stored->mutex, deadline);
    bool woken = stored->woken;
    stored->woken = false;
    pthread_mutex_unlock(&stored->mutex);
    return woken;
}

/* Waits no longer than encoding would take: whatever the tier does, the request then waits at most twice as long as
 * with the better of the two. The store gives up by itself where that is not known. */
bool stored_encodings_read(struct stored_encodings *stored, const uint8_t key[SHA256_BYTES], int64_t encode_ns,
                           float *rows, size_t n_floats)
{
    struct tokens name = {0};
    if (!may_store(stored)) return false;
    media_tokens_append(&name, key, KEY_TOKENS);
    int64_t deadline = encode_ns > 0 ? clock_now(clock_monotonic()) + encode_ns : CLOCK_NEVER;
    struct store_query query = {
        .user = &stored->user, .tokens = name.v, .n = KEY_TOKENS, .deadline = deadline, .probe_until = deadline};
    store_probe(stored->store, &query);
    struct store_hit *hit = store_find(stored->store, &query);
    bool there = store_hit_tokens(hit) == KEY_TOKENS;
    bool pays = encode_ns == 0 || store_hit_read_ns(hit, 0, KEY_TOKENS) < (double)encode_ns;
    bool read = false;
    if (there && pays) {
        struct store_piece piece;
        enum store_next next;
        store_fetch(hit, KEY_TOKENS);
        do next = store_next_piece(hit, &piece);
        while (next == STORE_PENDING && await_wake(stored, deadline));
        read = next == STORE_PIECE && piece.size == n_floats * sizeof *rows;
        if (read) memcpy(rows, piece.bytes, piece.size);
    }
    store_hit_close(hit);
    tokens_release(&name);
    return read;
}

/* ---- In the store: writing ---- */

void stored_encodings_write(struct stored_encodings *stored, const uint8_t key[SHA256_BYTES], const float *rows,
                            size_t n_floats)
{
    size_t size = n_floats * sizeof *rows;
    if (!store_has_room(stored->store, &stored->user, size)) return;
    void *copy = store_buffer(stored->store, size);
    if (copy == NULL) return;
    memcpy(copy, rows, size);
    struct tokens name = {0};
    media_tokens_append(&name, key, KEY_TOKENS);
    struct store_save save = {.user = &stored->user,
                              .kind = SLAB_STATE,
                              .reason = SLAB_COLD,
                              .tokens = name.v,
                              .to = KEY_TOKENS,
                              .raw = copy,
                              .size = size};
    uint64_t ticket = store_save(stored->store, &save);
    if (ticket != 0) stored->last_save = ticket;
    tokens_release(&name);
}

/* ---- The encoder ---- */

enum item_state { QUEUED, ENCODING, READY, FAILED };

struct item {
    struct hash_link link;
    struct encoder_task task;
    enum item_state state;
    hearth_error error;
    float *rows;
    struct encoding *wanted_by;  /* a list */
    struct item *before, *after; /* in the queue, or in the list of kept ones: oldest first */
};

/* One request's want. */
struct encoding {
    struct encoder *encoder;
    struct item *item;
    void (*ready)(void *ud);
    void *ud;
    struct encoding *next;
};

/* Items that are linked by before and after. */
struct item_list {
    struct item *first, *last;
};

struct encoder {
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* something was queued, or the encoder closes */
    pthread_cond_t called;  /* the callbacks of an item have returned */
    pthread_t thread;
    bool closing;
    const struct item *calling; /* whose callbacks are being called, without the mutex */
    struct hash_table items;
    struct item_list queue, kept;
    size_t kept_bytes;
    struct encoder_params params;
    double ns_per_float; /* of the last encoding; 0: there was none. The thread's alone */
};

/* ---- Items ---- */

static void append(struct item_list *list, struct item *item)
{
    item->before = list->last;
    item->after = NULL;
    *(list->last != NULL ? &list->last->after : &list->first) = item;
    list->last = item;
}

static void take_out(struct item_list *list, struct item *item)
{
    *(item->before != NULL ? &item->before->after : &list->first) = item->after;
    *(item->after != NULL ? &item->after->before : &list->last) = item->before;
    item->before = item->after = NULL;
}

static uint64_t hash_of(const uint8_t key[SHA256_BYTES])
{
    uint64_t hash;
    memcpy(&hash, key, sizeof hash);
    return hash;
}

static struct item *find_item(const struct encoder *encoder, const uint8_t key[SHA256_BYTES])
{
    for (struct hash_link *link = hash_first(&encoder->items, hash_of(key)); link != NULL; link = hash_next(link)) {
        struct item *item = container_of(struct item, link, link);
        if (memcmp(item->task.key, key, SHA256_BYTES) == 0) return item;
    }
    return NULL;
}

static size_t bytes_of_rows(const struct item *item)
{
    return item->task.n_floats * sizeof *item->rows;
}

static void release_medium(struct item *item)
{
    if (item->task.medium != NULL) item->task.release(item->task.medium);
    item->task.medium = NULL;
}

static void drop_item(struct encoder *encoder, struct item *item)
{
    assert(item->wanted_by == NULL);
    hash_remove(&encoder->items, &item->link);
    release_medium(item);
    free(item->rows);
    free(item);
}

/* ---- Kept ones ---- */

static void count_kept(struct encoder *encoder, int64_t bytes)
{
    encoder->kept_bytes += (size_t)bytes;
    metric_add(&encoder->params.stats->kept_bytes, bytes);
}

static void unkeep(struct encoder *encoder, struct item *item)
{
    assert(item->state == READY && item->wanted_by == NULL && encoder->kept_bytes >= bytes_of_rows(item));
    take_out(&encoder->kept, item);
    count_kept(encoder, -(int64_t)bytes_of_rows(item));
}

/* For an item that no request wants any more. */
static void keep_or_drop(struct encoder *encoder, struct item *item)
{
    if (item->state != READY || item->task.secret) {
        drop_item(encoder, item);
        return;
    }
    append(&encoder->kept, item);
    count_kept(encoder, (int64_t)bytes_of_rows(item));
    while (encoder->kept_bytes > encoder->params.budget) {
        struct item *oldest = encoder->kept.first;
        unkeep(encoder, oldest);
        drop_item(encoder, oldest);
    }
}

/* ---- The thread ---- */

/* The next two run without the mutex. */
static bool fetch_item(struct encoder *encoder, struct item *item)
{
    struct stored_encodings *stored = encoder->params.stored;
    int64_t began_at = clock_now(clock_monotonic());
    int64_t encode_ns = (int64_t)(encoder->ns_per_float * (double)item->task.n_floats);
    if (stored == NULL || item->task.secret ||
        !stored_encodings_read(stored, item->task.key, encode_ns, item->rows, item->task.n_floats))
        return false;
    metric_add(&encoder->params.stats->fetched, 1);
    log_event(LOG_INFO, "imc-media-cache", "encoding-fetched", log_int("bytes", (int64_t)bytes_of_rows(item)),
              log_num("took_ms", clock_to_ms(clock_now(clock_monotonic()) - began_at)));
    return true;
}

static int encode_item(struct encoder *encoder, struct item *item)
{
    struct stored_encodings *stored = encoder->params.stored;
    int64_t began_at = clock_now(clock_monotonic());
    int rc = item->task.encode(item->task.medium, item->rows, &item->error);
    metric_add(&encoder->params.stats->encoded, 1);
    if (rc != HEARTH_OK) return rc;
    encoder->ns_per_float = (double)(clock_now(clock_monotonic()) - began_at) / (double)(item->task.n_floats + 1);
    if (stored != NULL && !item->task.secret)
        stored_encodings_write(stored, item->task.key, item->rows, item->task.n_floats);
    return HEARTH_OK;
}

/* The projector starts threads for each encoding, as many as the model has, which inherit the priority. They have the
 * processors while no reply streams, else a quarter of them. */
#define GIVES_WAY 5

static void *run_encoder(void *ud)
{
    struct encoder *encoder = ud;
    thread_give_way(GIVES_WAY);
    llm_keep_to_cpus(encoder->params.cpus);
    pthread_mutex_lock(&encoder->mutex);
    for (;;) {
        while (encoder->queue.first == NULL && !encoder->closing) pthread_cond_wait(&encoder->changed, &encoder->mutex);
        struct item *item = encoder->queue.first;
        if (item == NULL) break;
        take_out(&encoder->queue, item);
        item->state = ENCODING;
        pthread_mutex_unlock(&encoder->mutex);
        int rc = HEARTH_NO_MEMORY;
        item->rows = malloc(bytes_of_rows(item) + 1);
        if (item->rows != NULL) rc = fetch_item(encoder, item) ? HEARTH_OK : encode_item(encoder, item);
        if (rc != HEARTH_OK) {
            item->error.code = (hearth_code)rc;
            free(item->rows);
            item->rows = NULL;
        }
        release_medium(item);
        pthread_mutex_lock(&encoder->mutex);
        item->state = item->rows != NULL ? READY : FAILED;
        struct encoding *first = item->wanted_by; /* later ones find the rows */
        if (first == NULL) {
            keep_or_drop(encoder, item); /* before anybody else can want it */
            continue;
        }
        /* Those who wait are called; the last of them keeps or drops it. Their encodings stay meanwhile:
         * encoding_release() waits for the end of it. */
        encoder->calling = item;
        pthread_mutex_unlock(&encoder->mutex);
        for (struct encoding *one = first; one != NULL; one = one->next) one->ready(one->ud);
        pthread_mutex_lock(&encoder->mutex);
        encoder->calling = NULL;
        pthread_cond_broadcast(&encoder->called);
    }
    pthread_mutex_unlock(&encoder->mutex);
    return NULL;
}

/* ---- Wanting ---- */

struct encoding *encoder_want(struct encoder *encoder, const struct encoder_task *task, void (*ready)(void *ud),
                              void *ud)
{
    struct encoding *encoding = mem_alloc(sizeof *encoding);
    *encoding = (struct encoding){.encoder = encoder, .ready = ready, .ud = ud};
    pthread_mutex_lock(&encoder->mutex);
    struct item *item = find_item(encoder, task->key);
    bool shared = item != NULL;
    if (!shared) {
        item = mem_alloc(sizeof *item);
        item->task = *task;
        hash_add(&encoder->items, &item->link, hash_of(task->key));
        append(&encoder->queue, item);
        pthread_cond_signal(&encoder->changed);
    } else if (item->wanted_by == NULL && item->state == READY) {
        unkeep(encoder, item);
    }
    metric_add(&encoder->params.stats->shared, shared);
    encoding->item = item;
    encoding->next = item->wanted_by;
    item->wanted_by = encoding;
    pthread_mutex_unlock(&encoder->mutex);
    if (shared) task->release(task->medium);
    return encoding;
}

const float *encoding_rows(const struct encoding *encoding)
{
    pthread_mutex_lock(&encoding->encoder->mutex);
    const float *rows = encoding->item->state == READY ? encoding->item->rows : NULL;
    pthread_mutex_unlock(&encoding->encoder->mutex);
    return rows;
}

int encoding_fault(const struct encoding *encoding, hearth_error *error)
{
    pthread_mutex_lock(&encoding->encoder->mutex);
    bool failed = encoding->item->state == FAILED;
    if (failed) *error = encoding->item->error;
    pthread_mutex_unlock(&encoding->encoder->mutex);
    return failed ? (int)error->code : HEARTH_OK;
}

void encoding_release(struct encoding *encoding)
{
    if (encoding == NULL) return;
    struct encoder *encoder = encoding->encoder;
    struct item *item = encoding->item;
    pthread_mutex_lock(&encoder->mutex);
    while (encoder->calling == item) pthread_cond_wait(&encoder->called, &encoder->mutex);
    struct encoding **link = &encoding->item->wanted_by;
    while (*link != encoding) link = &(*link)->next;
    *link = encoding->next;
    if (item->wanted_by == NULL && item->state != ENCODING) { /* that one is finished first */
        if (item->state == QUEUED) take_out(&encoder->queue, item);
        keep_or_drop(encoder, item);
    }
    pthread_mutex_unlock(&encoder->mutex);
    free(encoding);
}

/* ---- Life ---- */

struct encoder *encoder_open(const struct encoder_params *params, hearth_error *error)
{
    struct encoder *encoder = mem_alloc(sizeof *encoder);
    encoder->params = *params;
    pthread_mutex_init(&encoder->mutex, NULL);
    pthread_cond_init(&encoder->changed, NULL);
    pthread_cond_init(&encoder->called, NULL);
    if (thread_start(&encoder->thread, run_encoder, encoder, "encodes images and sounds", error) == HEARTH_OK)
        return encoder;
    pthread_mutex_destroy(&encoder->mutex);
    pthread_cond_destroy(&encoder->changed);
    pthread_cond_destroy(&encoder->called);
    free(encoder);
    return NULL;
}

void encoder_close(struct encoder *encoder)
{
    if (encoder == NULL) return;
    pthread_mutex_lock(&encoder->mutex);
    encoder->closing = true;
    pthread_cond_signal(&encoder->changed);
    pthread_mutex_unlock(&encoder->mutex);
    pthread_join(encoder->thread, NULL);
    while (encoder->kept.first != NULL) {
        struct item *item = encoder->kept.first;
        unkeep(encoder, item);
        drop_item(encoder, item);
    }
    assert(encoder->items.n == 0 && encoder->kept_bytes == 0); /* every encoding was given back */
    hash_release(&encoder->items);
    pthread_mutex_destroy(&encoder->mutex);
    pthread_cond_destroy(&encoder->changed);
    pthread_cond_destroy(&encoder->called);
    free(encoder);
}
