/* One save job: cuts what is not stored yet into slabs, has each written, and publishes it. Runs on the saver thread of
 * the tier, which saver.c starts.
 *
 * Slabs end at absolute multiples of the stride, wherever they start, so that conversations with a common prefix have
 * common slabs. The last slab of a save ends where the save ends. An event counts as saved when its last job is stored,
 * or was already: every slab is a descendant of those before it, so all of them are then.
 *
 * A server that others use gets whole blocks alone, [k x stride, (k + 1) x stride). Their bytes do not depend on where
 * a save began, so that it does not matter who stores one. */
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/store_struct.h"

#include <stdlib.h>

enum outcome { STORED, DUPLICATE, FAILED };

struct writing {
    struct store *store;
    struct tier *tier;
    const struct save_job *job;
    struct slab_key *keys; /* of the prefixes at multiples of the stride */
    struct match match;    /* what is stored already */
    struct buf payload;    /* of the current slab */
    bool lost;             /* the backend was found to be gone */
};

/* ---- What is stored already ---- */

static void make_keys(struct writing *writing)
{
    const struct save_job *job = writing->job;
    size_t n = job->tokens.len, stride = (size_t)writing->store->params.stride;
    writing->keys = mem_alloc((n / stride + 1) * sizeof *writing->keys);
    slab_keys_at_strides(&job->identity, job->tokens.v, n, stride, writing->keys);
}

static struct slab_key key_at(const struct writing *writing, int32_t end)
{
    int32_t stride = writing->store->params.stride;
    if (end % stride == 0) return writing->keys[end / stride - 1];
    return slab_key_of(&writing->job->identity, writing->job->tokens.v, (size_t)end);
}

/* ---- One slab ---- */

/* Around a call of the user's functions. NULL: it was removed, and may not be called. */
static const struct store_user *begin_call(struct store *store, const struct save_job *job)
{
    store_lock(store);
    const struct store_user *user = job->user;
    if (user != NULL) user_call_begin(store, user);
    store_unlock(store);
    return user;
}

static void end_call(struct store *store, const struct store_user *user)
{
    store_lock(store);
    user_call_end(store, user);
    store_unlock(store);
}

/* Calls the codec. */
static bool cut_payload(struct writing *writing, struct slab_head *head)
{
    struct store *store = writing->store;
    const struct save_job *job = writing->job;
    const struct store_user *user = begin_call(store, job);
    if (user == NULL) return false;

    int64_t started = clock_now(clock_monotonic());
    int32_t from = head->kind == SLAB_ROWS ? head->start : job->to;
    buf_clear(&writing->payload);
    bool done = job->codec.cut(job->codec.ud, head->kind, job->raw->v, job->raw->size, from, head->end,
                               &writing->payload, &head->regions, &head->n_regions);
    metric_add(&store->stats.pack_ns, clock_now(clock_monotonic()) - started);
    head->payload_size = writing->payload.len;
    end_call(store, user);
    if (!done)
        log_event(LOG_ERROR, LOG_GROUP, "a state could not be cut", log_int("from", from), log_int("to", job->to));
    return done;
}

static struct slab_head head_of(const struct writing *writing, int32_t start, int32_t end)
{
    const struct save_job *job = writing->job;
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

/* Publishes the slab, and keeps its pin in place of its parent's. */
static void publish_slab(struct writing *writing, struct reservation *reservation, const struct slab_head *head)
{
    struct store *store = writing->store;
    struct match *match = &writing->match;
    uint64_t size = slab_size(head);
    struct entry *entry = index_publish(writing->tier->index, reservation, size, NULL, head->used_ms);
    if (entry != NULL) {
        struct entry **current = head->kind == SLAB_ROWS ? &match->rows : &match->state;
        if (*current != NULL) index_unpin(writing->tier->index, *current);
        *current = entry;
        *(head->kind == SLAB_ROWS ? &match->n_rows : &match->n_state) = head->end;
    }
    metric_add(&store->stats.written_bytes, (int64_t)size);
}

static int reserve_and_write(struct writing *writing, struct slab_head *head, enum reserved *reserved,
                             hearth_error *error)
{
    struct tier *tier = writing->tier;
    struct entry *parent = writing->match.rows;
    if (head->kind == SLAB_STATE && head->start < head->end) parent = writing->match.state;
    struct reserve what = {.identity = &writing->job->identity,
                           .kind = head->kind,
                           .key = head->key,
                           .parent = head->start > 0 ? parent : NULL,
                           .tokens = writing->job->tokens.v + head->start,
                           .start = head->start,
                           .end = head->end,
                           .size = slab_size(head)};
    struct reservation *reservation = NULL;
    if (what.parent != NULL) head->parent = what.parent->key;
    int result = tier_reserve(tier, &what, &reservation, reserved, error);
    if (result != 0) return result;
    tier_begin_call(tier, &tier->saver.worker, writing->store->params.save_timeout_ns);
    result = tier->backend->put(tier->backend, head, &writing->payload, error);
    tier_end_call(tier, &tier->saver.worker);
    tier->puts_fail = result < 0;
    if (result < 0) {
        index_cancel(tier->index, reservation);
        return result;
    }
    publish_slab(writing, reservation, head);
    if (what.over) tier_trim(tier);
    return 0;
}

static int store_slab(struct writing *writing, struct slab_head *head, enum reserved *reserved, hearth_error *error)
{
    static const char *const refusals[] = {
        [RESERVED] = "",
        [RESERVED_PRESENT] = "it is stored already",
        [RESERVED_WRITING] = "it is being written already",
        [RESERVED_ORPHAN] = "its parent has left the index",
        [RESERVED_NO_ROOM] = "it does not fit within the quota beside what is in use",
        [RESERVED_NOT_ADMITTED] = "the entries that would be evicted are worth more"};
    uint64_t size = slab_size(head);
    int result = reserve_and_write(writing, head, reserved, error);
    if (result != HEARTH_BUSY) return result;
    /* A lack of room is reported; that another save was quicker, or that stored entries are worth more, is not. */
    hearth_code code = *reserved == RESERVED_NO_ROOM ? HEARTH_UNAVAILABLE : HEARTH_BUSY;
    error_set(error, code, "a slab of %llu bytes cannot be stored: %s", (unsigned long long)size, refusals[*reserved]);
    return HEARTH_BUSY;
}

static void report_result(struct writing *writing, int result, const hearth_error *error)
{
    struct tier *tier = writing->tier;
    if (result == HEARTH_UNAVAILABLE) {
        writing->lost = true;
        tier_lose(tier, error->message);
    } else if (result != HEARTH_BUSY || error->code != HEARTH_BUSY) {
        tier_report_trouble(tier, result == 0 ? NULL : error->message);
    }
}

/* Writes the rows [start, end), or the recurrent/SWA state at `end`. */
static enum outcome write_slab(struct writing *writing, int32_t start, int32_t end)
{
    hearth_error error = {0};
    struct slab_head head = head_of(writing, start, end);
    enum outcome outcome = FAILED;
    if (cut_payload(writing, &head)) {
        enum reserved reserved = RESERVED;
        int result = store_slab(writing, &head, &reserved, &error);
        report_result(writing, result, &error);
        if (result == 0) outcome = STORED;
        if (result == HEARTH_BUSY && reserved == RESERVED_PRESENT) outcome = DUPLICATE;
    }
    slab_head_release(&head);
    return outcome;
}

/* ---- One save ---- */

static enum outcome write_rows(struct writing *writing)
{
    const struct save_job *job = writing->job;
    const struct match *match = &writing->match;
    int32_t stride = writing->store->params.stride;
    if (match->n_rows >= job->to) return DUPLICATE;
    if (match->n_rows < job->from) return FAILED; /* the rows in between are not stored */
    enum outcome outcome = STORED;
    while (match->n_rows < job->to && outcome == STORED) {
        int32_t at = match->n_rows, boundary = (at / stride + 1) * stride,
                end = boundary < job->to ? boundary : job->to;
        outcome = write_slab(writing, at, end);
        if (outcome == DUPLICATE) {
            /* Publishing an entry also indexes detached descendants, so that slabs still to be written may be stored by
             * now. */
            struct index_lookup lookup = {
                .identity = &job->identity, .tokens = job->tokens.v, .n = job->to, .states = job->kind == SLAB_STATE};
            index_find_again(writing->tier->index, &lookup, &writing->match);
            outcome = STORED;
        }
        if (outcome == STORED && match->n_rows <= at) outcome = FAILED; /* its parent was dropped meanwhile */
    }
    return outcome;
}

static enum outcome write_state(struct writing *writing)
{
    const struct save_job *job = writing->job;
    if (writing->match.n_state == job->to) return DUPLICATE;
    if (job->codec.rows && writing->match.n_rows < job->to)
        return FAILED; /* the rows that it completes are not stored */
    return write_slab(writing, job->codec.rows ? job->to : writing->match.n_state, job->to);
}

/* ---- To a server that others use ---- */

#define UPLOAD_BACK_OFF_MOST_NS (60 * UPLOAD_BACK_OFF_FIRST_NS)

/* Cuts the slab with that head out of the job and puts it, whether or not it is there. */
static enum outcome upload_slab(struct writing *writing, struct slab_head *head)
{
    struct tier *tier = writing->tier;
    hearth_error error = {0};
    if (!cut_payload(writing, head)) return FAILED;
    tier_begin_call(tier, &tier->saver.worker, writing->store->params.save_timeout_ns);
    int result = tier->backend->put(tier->backend, head, &writing->payload, &error);
    tier_end_call(tier, &tier->saver.worker);
    report_result(writing, result, &error);
    /* A server that refuses what it is given, since it is full, is left alone for a while. */
    int64_t after = tier->upload_back_off;
    tier->uploads_at = result == 0 ? 0 : clock_now(clock_monotonic()) + after;
    if (result == 0)
        tier->upload_back_off = UPLOAD_BACK_OFF_FIRST_NS;
    else
        tier->upload_back_off = 2 * after < UPLOAD_BACK_OFF_MOST_NS ? 2 * after : UPLOAD_BACK_OFF_MOST_NS;
    if (result != 0) return FAILED;
    tier_adopt(tier, head, slab_size(head));
    metric_add(&writing->store->stats.uploaded_bytes, (int64_t)slab_size(head));
    return STORED;
}

/* Rows that begin with a block. */
static enum outcome upload_from_block(struct writing *writing, int32_t block, int32_t end)
{
    struct slab_head head = head_of(writing, block * writing->store->params.stride, end);
    if (block > 0) head.parent = writing->keys[block - 1];
    enum outcome outcome = upload_slab(writing, &head);
    slab_head_release(&head);
    return outcome;
}

/* Puts the blocks that the server lacks, and then the rows after the last whole one, up to a state. A block whose
 * predecessor the server lacks as well would not be found: the save has come too late. */
static enum outcome upload_rows(struct writing *writing, struct block_range *range)
{
    const struct save_job *job = writing->job;
    int32_t stride = writing->store->params.stride, first = (job->from + stride - 1) / stride;
    bool tail = job->codec.has_state && job->to % stride > 0 && first <= range->last;
    if (first >= range->last && !tail) return STORED;
    range->first = first > 0 ? first - 1 : 0; /* the block before, too, which has to be there */
    struct backend_probed *probed = mem_alloc((size_t)(range->last - range->first + 1) * sizeof *probed);
    enum outcome outcome = tier_probe(writing->tier, range, probed) == 0 ? STORED : FAILED;
    for (int32_t block = first; outcome == STORED && block < range->last; block++) {
        struct backend_probed *is = &probed[block - range->first];
        if (is->there) continue;
        outcome = block > 0 && !is[-1].there ? FAILED : upload_from_block(writing, block, (block + 1) * stride);
        is->there = outcome == STORED;
    }
    bool leads = range->last == 0 || probed[range->last - 1 - range->first].there;
    free(probed);
    if (outcome != STORED || !tail) return outcome;
    if (!leads) return FAILED;
    const struct slab_name name = {key_at(writing, job->to), SLAB_ROWS};
    struct backend_probed rows;
    if (tier_ask(writing->tier, &name, 1, &rows, 0) != 0) return FAILED;
    return rows.there ? STORED : upload_from_block(writing, job->to / stride, job->to);
}

/* A state with all of its tokens, or one whose rows the server has; and the hint at it. */
static enum outcome upload_state(struct writing *writing, const struct block_range *range)
{
    const struct save_job *job = writing->job;
    struct tier *tier = writing->tier;
    int32_t stride = writing->store->params.stride, block = (job->to - 1) / stride;
    struct slab_key before = key_before_block(range, block);
    struct slab_head head = head_of(writing, job->codec.rows ? job->to : 0, job->to);
    if (job->codec.rows) head.parent = head.key;
    const struct slab_name names[] = {{head.key, SLAB_STATE}, {head.key, SLAB_ROWS}};
    struct backend_probed probed[2] = {0};
    enum outcome outcome = FAILED;
    hearth_error error = {0};
    bool known = tier_ask(tier, names, 2, probed, 0) == 0, follows = !job->codec.rows || probed[1].there;
    if (known && follows) outcome = probed[0].there ? STORED : upload_slab(writing, &head);
    if (outcome == STORED)
        report_result(writing,
                      tier->backend->add_hint(tier->backend, &before, (uint32_t)(job->to - block * stride), &error),
                      &error);
    slab_head_release(&head);
    return outcome;
}

static enum outcome upload(struct writing *writing)
{
    const struct save_job *job = writing->job;
    if (clock_now(clock_monotonic()) < writing->tier->uploads_at) return FAILED;
    make_keys(writing);
    struct block_range range = {.identity = &job->identity,
                                .tokens = job->tokens.v,
                                .keys = writing->keys,
                                .last = job->to / writing->store->params.stride};
    return job->kind == SLAB_ROWS ? upload_rows(writing, &range) : upload_state(writing, &range);
}

/* ---- Any job ---- */

/* Asks the user after the bytes were copied out and before any of them can be found: its answer holds for them. */
static bool may_store(struct store *store, const struct save_job *job)
{
    const struct store_user *user = begin_call(store, job);
    if (user == NULL) return false;
    bool may = user->may_store == NULL || user->may_store(user->ud);
    end_call(store, user);
    return may;
}

bool save_job_write(struct store *store, struct tier *tier, const struct save_job *job)
{
    struct writing writing = {.store = store, .tier = tier, .job = job};
    struct store_stats *stats = &store->stats;
    enum outcome outcome = FAILED;
    store_lock(store);
    bool can = tier->state == TIER_OPEN && !saver_is_over(tier); /* a call that hangs is of another thread */
    store_unlock(store);
    bool may = can && may_store(store, job), shared = tier_is_shared(tier);
    if (may && shared) {
        outcome = upload(&writing);
    } else if (may) {
        make_keys(&writing);
        const struct index_lookup lookup = {.identity = &job->identity,
                                            .tokens = job->tokens.v,
                                            .n = job->to,
                                            .keys = writing.keys,
                                            .states = job->kind == SLAB_STATE};
        index_find(tier->index, &lookup, &writing.match);
        outcome = job->kind == SLAB_ROWS ? write_rows(&writing) : write_state(&writing);
        index_release(tier->index, &writing.match);
    }
    buf_release(&writing.payload);
    free(writing.keys);
    if (shared) {
        if (outcome == FAILED) metric_add(&stats->uploads_dropped, 1);
        return true;
    }
    if (writing.lost && !job->retried) return false;
    if (outcome == STORED) tier_write_model_name(tier, job->identity.model);
    if (outcome == DUPLICATE) metric_add(&stats->duplicate_dropped, 1);
    if (outcome == FAILED)
        metric_add(&stats->saves_dropped, 1);
    else if (job->last)
        metric_add(&stats->saves[job->reason], 1);
    return true;
}
