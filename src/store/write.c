/* One save: what of it is not stored yet is cut into slabs, each is written and then found.
 *
 * Slabs end at absolute multiples of the stride, whoever saves them and wherever they begin, so that two conversations
 * that go the same way have the same slabs; a tail ends where the save ends. An event counts as saved when its last
 * save is stored or was so already: since each hangs on those before it, all of them are then. */
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/private.h"

#include <stdlib.h>
#include <string.h>

enum outcome { STORED, DUPLICATE, FAILED };

struct writing {
    struct store *store;
    struct tier *tier;
    const struct job *job;
    struct key *keys;   /* at the multiples of the stride */
    struct match match; /* what was there */
    struct entry *last; /* published, leased */
    struct buf payload; /* of one slab after the other */
};

/* ---- What is there ---- */

static size_t n_keys(const struct writing *writing)
{
    return writing->job->tokens.len / (size_t)writing->store->params.stride;
}

static void look(struct writing *writing)
{
    const struct job *job = writing->job;
    writing->keys = mem_alloc((n_keys(writing) + 1) * sizeof *writing->keys);
    keys_at_strides(&job->identity, job->tokens.v, job->tokens.len, (size_t)writing->store->params.stride,
                    writing->keys);
    struct wanted wanted = {.identity = &job->identity,
                            .tokens = job->tokens.v,
                            .n = job->to,
                            .keys = writing->keys,
                            .states = job->kind == SLAB_STATE};
    index_find(writing->tier->index, &wanted, &writing->match);
}

static struct key key_at(const struct writing *writing, int32_t end)
{
    int32_t stride = writing->store->params.stride;
    if (end % stride == 0) return writing->keys[end / stride - 1];
    return key_of(&writing->job->identity, writing->job->tokens.v, (size_t)end);
}

/* ---- One slab ---- */

/* A user that has left is not called any more. */
static bool cut(struct writing *writing, struct slab_head *head)
{
    struct store *store = writing->store;
    const struct job *job = writing->job;
    store_lock(store);
    const struct store_user *user = job->user;
    if (user != NULL) user_enter(store, user);
    store_unlock(store);
    if (user == NULL) return false;

    int64_t started = clock_now(clock_monotonic());
    int32_t from = head->kind == SLAB_ROWS ? head->start : job->to;
    buf_clear(&writing->payload);
    bool done = job->codec.cut(job->codec.ud, head->kind, job->raw, job->size, from, head->end, &writing->payload,
                               &head->regions, &head->n_regions);
    metric_add(&store->stats.pack_ns, clock_now(clock_monotonic()) - started);
    head->payload_size = writing->payload.len;
    store_lock(store);
    user_leave(store, user);
    store_unlock(store);
    if (!done)
        log_event(LOG_ERROR, LOG_GROUP, "a state could not be cut", log_int("from", from), log_int("to", job->to));
    return done;
}

static struct slab_head head_of(const struct writing *writing, int32_t start, int32_t end)
{
    const struct job *job = writing->job;
    struct slab_head head = {.kind = job->kind,
                             .reason = job->reason,
                             .identity = job->identity,
                             .key = key_at(writing, end),
                             .start = start,
                             .end = end,
                             .created_ms = clock_unix_ms()};
    head.used_ms = head.created_ms;
    tokens_append(&head.tokens, job->tokens.v + start, (size_t)(end - start));
    return head;
}

/* The tier ram: the payload is the slab. */
static struct image *keep(struct writing *writing)
{
    struct image *image = mem_alloc(sizeof *image);
    size_t size = writing->payload.len;
    char *bytes = buf_take(&writing->payload), *fitting = realloc(bytes, size > 0 ? size : 1);
    image->bytes = fitting != NULL ? fitting : bytes;
    image->payload = image->bytes;
    image->size = size;
    image->state = IMAGE_THERE;
    image->stays = true;
    return image;
}

/* It is there. False: what it hangs on was dropped while it was written. */
static bool announce(struct writing *writing, struct reservation *reservation, const struct slab_head *head)
{
    struct store *store = writing->store;
    struct tier *tier = writing->tier;
    uint64_t size = slab_size(head);
    struct image *image = tier->folder == NULL ? keep(writing) : NULL;
    struct entry *entry = index_publish(tier->index, reservation, size, image, head->used_ms);
    if (entry == NULL) {
        image_free(image);
        return false;
    }
    if (writing->last != NULL) index_unlease(tier->index, writing->last);
    writing->last = entry;
    metric_add(&store->stats.written_bytes, (int64_t)size);
    store_lock(store);
    pthread_cond_broadcast(&store->changed); /* somebody may wait for just this one */
    store_unlock(store);
    return true;
}

static struct entry *parent_of(const struct writing *writing)
{
    if (writing->last != NULL) return writing->last;
    return writing->job->kind == SLAB_STATE && !writing->job->codec.rows ? writing->match.state : writing->match.rows;
}

static int write_reserved(struct writing *writing, struct reservation *reservation, struct slab_head *head,
                          hearth_error *error)
{
    struct tier *tier = writing->tier;
    const struct entry *parent = parent_of(writing);
    if (head->start > 0) head->parent = parent->key;
    int result = tier->folder == NULL ? 0 : folder_publish(tier->folder, head, writing->payload.v, error);
    if (result < 0)
        index_cancel(tier->index, reservation);
    else if (!announce(writing, reservation, head))
        return error_set(error, HEARTH_BUSY, "what a slab hangs on was dropped");
    return result < 0 ? result : 0;
}

static int store_slab(struct writing *writing, struct slab_head *head, hearth_error *error)
{
    static const char *const refusals[] = {[RESERVED] = "",
                                           [RESERVED_PRESENT] = "it is there already",
                                           [RESERVED_WRITING] = "it is being written already",
                                           [RESERVED_ORPHAN] = "what it hangs on is gone",
                                           [RESERVED_NO_ROOM] =
                                               "it does not fit within the quota beside what is in use"};
    struct reserve what = {.identity = &writing->job->identity,
                           .kind = head->kind,
                           .key = head->key,
                           .parent = head->start > 0 ? parent_of(writing) : NULL,
                           .tokens = writing->job->tokens.v + head->start,
                           .start = head->start,
                           .end = head->end,
                           .size = slab_size(head)};
    struct reservation *reservation = NULL;
    enum reserved reserved = RESERVED;
    int result = tier_reserve(writing->store, writing->tier, &what, &reservation, &reserved, error);
    if (result == 0) return write_reserved(writing, reservation, head, error);
    if (result != HEARTH_BUSY) return result;
    /* That others were quicker is nothing to tell; that there is no room is. */
    hearth_code code = reserved == RESERVED_NO_ROOM ? HEARTH_UNAVAILABLE : HEARTH_BUSY;
    return error_set(error, code, "a slab of %llu bytes cannot be stored: %s", (unsigned long long)what.size,
                     refusals[reserved]);
}

/* Rows of [start, end), or the state at `end`. */
static enum outcome write_slab(struct writing *writing, int32_t start, int32_t end)
{
    hearth_error error = {0};
    struct slab_head head = head_of(writing, start, end);
    enum outcome outcome = FAILED;
    if (cut(writing, &head)) {
        int result = store_slab(writing, &head, &error);
        if (result != HEARTH_BUSY) tier_trouble(writing->store, writing->tier, result == 0 ? NULL : error.message);
        if (result == 0) outcome = STORED;
    }
    slab_head_release(&head);
    return outcome;
}

/* ---- One save ---- */

static enum outcome write_rows(struct writing *writing)
{
    const struct job *job = writing->job;
    int32_t stride = writing->store->params.stride, at = writing->match.n_rows;
    if (at >= job->to) return DUPLICATE;
    if (at < job->from) return FAILED; /* the rows between are nowhere */
    enum outcome outcome = STORED;
    while (at < job->to && outcome == STORED) {
        int32_t bound = (at / stride + 1) * stride, end = bound < job->to ? bound : job->to;
        outcome = write_slab(writing, at, end);
        at = end;
    }
    return outcome;
}

static enum outcome write_state(struct writing *writing)
{
    const struct job *job = writing->job;
    if (writing->match.n_state == job->to) return DUPLICATE;
    if (job->codec.rows && writing->match.n_rows < job->to) return FAILED; /* nothing that it could complete */
    return write_slab(writing, job->codec.rows ? job->to : writing->match.n_state, job->to);
}

static void count(struct store *store, const struct job *job, enum outcome outcome)
{
    struct store_stats *stats = &store->stats;
    if (outcome == DUPLICATE) metric_add(&stats->duplicate_dropped, 1);
    if (outcome == FAILED) {
        metric_add(&stats->saves_dropped, 1);
        atomic_fetch_add(&store->failures, 1);
    } else if (job->last) {
        metric_add(&stats->saves[job->reason], 1);
    }
}

static bool is_on(struct store *store, const struct tier *tier)
{
    store_lock(store);
    bool on = tier->on;
    store_unlock(store);
    return on;
}

void job_write(struct store *store, const struct job *job)
{
    struct writing writing = {.store = store, .tier = &store->tiers[store->params.save_tier], .job = job};
    enum outcome outcome = FAILED;
    if (is_on(store, writing.tier)) {
        look(&writing);
        outcome = job->kind == SLAB_ROWS ? write_rows(&writing) : write_state(&writing);
        if (writing.last != NULL) index_unlease(writing.tier->index, writing.last);
        index_release(writing.tier->index, &writing.match);
        buf_release(&writing.payload);
        free(writing.keys);
    }
    count(store, job, outcome);
}
