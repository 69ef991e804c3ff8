/* Encodings in the store: see stored_encodings.h.
 *
 * To the store an encoding is the state after a prefix of eight tokens, made of its key, of a model without KV rows
 * whose fingerprint is the projector's digest. So quotas, eviction, checks and listings hold for it as for any slab.
 * The store's threads call wake(); everything else happens on the encoder's thread. */
#include "lib/media/stored_encodings.h"

#include "base/clock.h"
#include "base/file_watch.h"
#include "base/media_spans.h"
#include "base/memory.h"
#include "store/store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

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

static bool cut(const void *ud, enum slab_kind kind, const void *raw, size_t size, int32_t from, int32_t to,
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
static bool join(const void *ud, const struct store_piece *pieces, size_t n, struct buf *joined)
{
    (void)ud, (void)pieces, (void)n, (void)joined;
    return false;
}

static void wake(void *ud)
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

/* ---- Opening ---- */

struct stored_encodings *stored_encodings_open(const struct stored_encodings_params *params)
{
    static const char space[] = "hearth encodings of media 2\n";
    struct stored_encodings *stored = mem_alloc(sizeof *stored);
    stored->store = params->store;
    stored->watch = params->watch;
    stored->user = (struct store_user){.identity.quant = quant_code("unknown"),
                                       .codec = {.has_state = true, .cut = cut, .join = join}};
    stored->user.wake = wake;
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

/* ---- Reading ---- */

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

static bool take_piece(struct stored_encodings *stored, struct store_hit *hit, int64_t deadline,
                       struct store_piece *piece)
{
    enum store_next next;
    while ((next = store_next_piece(hit, piece)) == STORE_PENDING)
        if (!await_wake(stored, deadline)) return false;
    return next == STORE_PIECE;
}

static bool fetch(struct stored_encodings *stored, struct store_hit *hit, int64_t deadline, float *rows,
                  size_t n_floats)
{
    struct store_piece piece;
    store_fetch(hit, KEY_TOKENS);
    bool whole = take_piece(stored, hit, deadline, &piece) && piece.size == n_floats * sizeof *rows;
    if (whole) memcpy(rows, piece.bytes, piece.size);
    return whole;
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
    bool read = there && pays && fetch(stored, hit, deadline, rows, n_floats);
    store_hit_close(hit);
    tokens_release(&name);
    return read;
}

/* ---- Writing ---- */

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
