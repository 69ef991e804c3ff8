/* When cells are stored, and copying them out of the context. The store's threads do the rest: hashing, packing,
 * writing.
 *
 * Five events have cells stored (the cache design document's save reasons): a prompt has been computed (`cold`), some
 * thousand tokens have come since the last event (`continued`), a request has ended (`finish`), cells must make way
 * (`evict`), the engine ends (`shutdown`). An event names a length; what is copied out is what the store lacks up to
 * there, a slice at a time between two ticks, so that no stream notices. The last two wait until all is durable.
 *
 * What cannot be cut is copied at the very moment of the event, since the next row changes it, and follows its rows. */
#include "engine/core.h"

#include "base/log.h"
#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>

/* The end of a prompt is left out of a `cold` save: prompts that differ in a few last words share what comes before
 * (the cache design document's boundary trim). */
#define COLD_TRIM 32

/* Bytes copied out between two ticks: some 2 ms. Nobody is waiting where no slot is busy. */
#define SLICE_BYTES      (16 << 20)
#define SLICE_BYTES_IDLE (64 << 20)

/* ---- What may be stored ---- */

static bool is_stored(const struct engine *engine, const struct seq *seq)
{
    return engine->store != NULL && seq->scope != SCOPE_OF_NOBODY && store_is_on(engine->store);
}

/* Deterministic: only what any run would compute alike. */
static int32_t storable(const struct engine *engine, const struct seq *seq)
{
    int32_t n = seq->n_cells;
    if (engine->deterministic && n > seq->n_exact) n = seq->n_exact;
    return n >= engine->cache_min_tokens ? n : 0;
}

static bool moves(const struct engine *engine)
{
    return llm_format_moves(engine->format);
}

/* ---- Events ---- */

static void drop_event(struct saving *saving, size_t i)
{
    free(saving->events[i].state);
    saving->n_events--;
    for (; i < saving->n_events; i++) saving->events[i] = saving->events[i + 1];
}

static void drop_events_beyond(struct saving *saving, int32_t n)
{
    while (saving->n_events > 0 && saving->events[saving->n_events - 1].to > n)
        drop_event(saving, saving->n_events - 1);
}

/* Somebody waits for what is still to be copied out. */
static void make_urgent(struct saving *saving, enum slab_reason reason)
{
    for (size_t i = 0; i < saving->n_events; i++) saving->events[i].reason = reason;
}

/* What moves, as it is now; false: it cannot be had, and rows alone are worth nothing. */
static bool copy_moving(struct engine *engine, struct seq *seq, struct save_event *event)
{
    size_t size = llm_seq_state_size(engine->context, seq->id, LLM_STATE_MOVING);
    if (size == 0) return false;
    event->state = store_buffer(engine->store, size);
    if (event->state == NULL) return false;
    event->state_size = llm_seq_save(engine->context, seq->id, LLM_STATE_MOVING, event->state, size);
    if (event->state_size > 0) return true;
    free(event->state);
    return false;
}

static bool lacks_state(const struct engine *engine, const struct seq *seq, int32_t to)
{
    return moves(engine) && to == seq->n_cells && seq->saving.n_state != to;
}

/* Saves have failed, perhaps this sequence's: what is there has to be asked. */
static void believe_the_store(struct engine *engine, struct seq *seq)
{
    struct saving *saving = &seq->saving;
    uint64_t failures = store_failures(engine->store);
    if (failures == saving->failures) return;
    saving->failures = failures;
    saving->n_state = 0;
    saving->n = store_covered(engine->store, &(struct store_query){.user = engine->user,
                                                                   .identity = &saving->identity,
                                                                   .tokens = seq->tokens.v,
                                                                   .n = seq->n_cells});
}

/* Has the rows up to `to` stored, as far as they are not, and what moves there. Those that nobody waits for are given
 * up where too much is under way already: the next event covers what this one would have. */
static void begin(struct engine *engine, struct seq *seq, enum slab_reason reason, int32_t to)
{
    struct saving *saving = &seq->saving;
    struct save_event event = {.to = to, .reason = reason};
    int32_t most = storable(engine, seq);
    believe_the_store(engine, seq);
    if (to > most || to <= 0 || (moves(engine) && to != seq->n_cells)) return;
    bool covered = saving->n_events > 0 && saving->events[saving->n_events - 1].to >= to;
    if (covered || (to <= saving->n && !lacks_state(engine, seq, to))) return;
    bool can_wait = reason == SLAB_COLD || reason == SLAB_CONTINUED;
    saving->last_end = to;
    if (saving->n_events == SAVE_EVENTS || (can_wait && !store_has_room(engine->store, engine->user, 1))) {
        store_count_dropped(engine->store);
        return;
    }
    if (lacks_state(engine, seq, to) && !copy_moving(engine, seq, &event)) return;
    if (event.state != NULL) saving->n_state = to;
    saving->events[saving->n_events++] = event;
}

/* ---- Copying out ---- */

static bool queue(struct engine *engine, struct seq *seq, struct store_save save)
{
    save.user = engine->user;
    save.identity = &seq->saving.identity;
    save.tokens = seq->tokens.v;
    save.synchronous = save.reason == SLAB_EVICT || save.reason == SLAB_SHUTDOWN;
    uint64_t ticket = store_save(engine->store, &save);
    if (ticket != 0) seq->saving.ticket = ticket;
    return ticket != 0;
}

/* Where the next slice ends: as many whole blocks as fit, or the event's end. */
static int32_t slice_end(const struct engine *engine, int32_t from, int32_t to, size_t bytes)
{
    if (!llm_format_appends(engine->format)) return to; /* whole sequences are copied anyway */
    uint64_t block = llm_format_row_bytes(engine->format) * (uint64_t)engine->stride;
    int32_t blocks = block == 0 || bytes / block < 1 ? 1 : (int32_t)(bytes / block);
    int64_t end = ((int64_t)from / engine->stride + blocks) * engine->stride;
    return end < to ? (int32_t)end : to;
}

enum copied { COPIED, COPIED_LAST, COPY_LATER, COPY_FAILED };

/* How much may be copied out at once, and until when its saves may be waited for. */
struct copying {
    size_t budget;
    int64_t deadline;
};

/* Room for saves: who is waited for waits, so that never much more is held than for others. */
static enum copied find_room(struct engine *engine, const struct save_event *event, size_t size, int64_t deadline)
{
    bool waits = event->reason == SLAB_EVICT || event->reason == SLAB_SHUTDOWN;
    while (!store_has_room(engine->store, engine->user, size)) {
        if (!waits) return COPY_LATER;
        if (!store_wait(engine->store, UINT64_MAX, deadline)) return COPY_FAILED;
    }
    return COPIED;
}

/* Copies the next rows of the event out. */
static enum copied copy_rows(struct engine *engine, struct seq *seq, const struct save_event *event,
                             struct copying *copying)
{
    struct saving *saving = &seq->saving;
    int32_t to = slice_end(engine, saving->n, event->to, copying->budget);
    size_t size = llm_rows_size(engine->context, engine->format, seq->id, saving->n, to);
    enum copied room = size == 0 ? COPY_LATER : find_room(engine, event, size, copying->deadline);
    if (room != COPIED) return room;
    void *raw = store_buffer(engine->store, size);
    if (raw == NULL) return COPY_FAILED;
    if (llm_rows_save(engine->context, engine->format, seq->id, saving->n, to, raw, size) == 0) {
        free(raw);
        return COPY_FAILED;
    }
    bool last = to == event->to && event->state == NULL;
    struct store_save save = {.kind = SLAB_ROWS,
                              .reason = event->reason,
                              .from = saving->n,
                              .to = to,
                              .raw = raw,
                              .size = size,
                              .last = last};
    if (!queue(engine, seq, save)) return COPY_FAILED;
    copying->budget -= size < copying->budget ? size : copying->budget;
    saving->n = to;
    return last ? COPIED_LAST : COPIED;
}

static enum copied copy_state(struct engine *engine, struct seq *seq, struct save_event *event)
{
    struct store_save save = {.kind = SLAB_STATE,
                              .reason = event->reason,
                              .from = event->to,
                              .to = event->to,
                              .raw = event->state,
                              .size = event->state_size,
                              .last = true};
    event->state = NULL;
    return queue(engine, seq, save) ? COPIED_LAST : COPY_FAILED;
}

/* Tokens and cells must be those of each other: else a key would stand for other cells. */
static bool stands_for_its_tokens(struct engine *engine, const struct seq *seq, const struct save_event *event)
{
    int32_t end = llm_seq_end(engine->context, seq->id);
    bool stands = end == seq->n_cells && event->to <= end && (size_t)end <= seq->tokens.len;
    if (!stands) {
        log_event(LOG_ERROR, "store", "a sequence has other cells than tokens: not stored", log_int("seq", seq->id),
                  log_int("cells", end), log_int("tokens", seq->n_cells));
        store_count_dropped(engine->store);
    }
    assert(stands);
    return stands;
}

/* A part of the first event of the sequence. */
static enum copied copy_some(struct engine *engine, struct seq *seq, struct copying *copying)
{
    struct saving *saving = &seq->saving;
    struct save_event *event = &saving->events[0];
    if (!stands_for_its_tokens(engine, seq, event)) {
        drop_event(saving, 0);
        return COPY_FAILED;
    }
    bool rows = llm_format_has_rows(engine->format) && saving->n < event->to;
    if (!rows && event->state == NULL) { /* it was found to be stored already */
        drop_event(saving, 0);
        return COPIED_LAST;
    }
    enum copied outcome = rows ? copy_rows(engine, seq, event, copying) : copy_state(engine, seq, event);
    bool given_up = outcome == COPY_LATER && (event->reason == SLAB_COLD || event->reason == SLAB_CONTINUED);
    if (given_up) store_count_dropped(engine->store);
    if (!llm_format_has_rows(engine->format) && outcome == COPIED_LAST) saving->n = event->to;
    if (given_up || outcome == COPIED_LAST || outcome == COPY_FAILED) drop_event(saving, 0);
    return outcome;
}

static bool any_busy(const struct engine *engine)
{
    return metric_get(&engine->stats->slots_busy) > 0;
}

bool save_step(struct engine *engine)
{
    if (engine->store == NULL) return false;
    bool any = false;
    struct copying copying = {.budget = any_busy(engine) ? SLICE_BYTES : SLICE_BYTES_IDLE};
    for (size_t i = 0; i < engine->n_seqs && copying.budget > 0; i++) {
        struct seq *seq = &engine->seqs[i];
        while (seq->saving.n_events > 0 && copying.budget > 0) {
            if (copy_some(engine, seq, &copying) == COPY_LATER) break;
            any = true;
        }
    }
    return any;
}

/* Copies out all that is wanted of the sequence, now. */
static void copy_all(struct engine *engine, struct seq *seq, int64_t deadline)
{
    enum copied outcome = COPIED;
    while (seq->saving.n_events > 0 && outcome != COPY_LATER) {
        struct copying copying = {.budget = SLICE_BYTES, .deadline = deadline};
        outcome = copy_some(engine, seq, &copying);
    }
}

/* Waits until the sequence's saves are durable. A disk that let one wait end in vain is not waited for again before it
 * has got past that. */
static bool await_durable(struct engine *engine, const struct seq *seq, int64_t deadline)
{
    int64_t now = clock_now(clock_monotonic());
    if (engine->hung != 0 && !store_wait(engine->store, engine->hung, now)) deadline = now;
    bool durable = store_wait(engine->store, seq->saving.ticket, deadline);
    engine->hung = durable ? 0 : seq->saving.ticket;
    return durable;
}

/* ---- The events ---- */

void save_adopt(struct engine *engine, struct seq *seq, const struct job *job, int32_t covered)
{
    struct saving *saving = &seq->saving;
    if (engine->store == NULL) return;
    uint64_t failures = store_failures(engine->store);
    if (failures != saving->failures) saving->n_state = 0;
    if (covered > saving->n || failures != saving->failures) saving->n = covered;
    saving->failures = failures;
    saving->last_end = saving->n > seq->n_cells ? saving->n : seq->n_cells;
    if (saving->n_state > seq->n_cells) saving->n_state = 0;
    saving->identity = job->identity;
}

void save_inherit(struct seq *seq, const struct seq *from, int32_t n)
{
    seq->saving.n = from->saving.n < n ? from->saving.n : n;
    seq->saving.failures = from->saving.failures;
}

void save_cut(struct seq *seq, int32_t n)
{
    struct saving *saving = &seq->saving;
    if (saving->n > n) saving->n = n;
    drop_events_beyond(saving, n);
}

/* The prompt has just been computed whole. */
static bool is_at_prompt_end(const struct slot *slot)
{
    return slot->run->n_predicted == 0 && slot->seq->n_cells == slot->run->n_prompt;
}

void save_progress(struct engine *engine, struct slot *slot, bool at_bound)
{
    struct seq *seq = slot->seq;
    if (!is_stored(engine, seq)) return;
    if (at_bound && (moves(engine) || engine->caching == ENGINE_CACHES_SYSTEM))
        begin(engine, seq, SLAB_COLD, seq->n_cells);
    if (engine->caching != ENGINE_CACHES_CONVERSATIONS) return;
    int32_t stride = moves(engine) ? 1 : engine->stride;
    if (is_at_prompt_end(slot) && !moves(engine))
        begin(engine, seq, SLAB_COLD, (seq->n_cells - COLD_TRIM) / stride * stride);
    int32_t whole = storable(engine, seq) / stride * stride;
    if (whole - seq->saving.last_end >= engine->continued_interval) begin(engine, seq, SLAB_CONTINUED, whole);
}

void save_finished(struct engine *engine, struct seq *seq)
{
    if (is_stored(engine, seq)) begin(engine, seq, SLAB_FINISH, storable(engine, seq));
}

void save_forget(struct seq *seq)
{
    drop_events_beyond(&seq->saving, -1);
}

/* Real time: the store's disks know no other. */
static int64_t deadline_in(int64_t ns)
{
    return clock_now(clock_monotonic()) + ns;
}

void save_evicted(struct engine *engine, struct seq *seq)
{
    if (!is_stored(engine, seq) || engine->caching != ENGINE_CACHES_CONVERSATIONS) return;
    int64_t begin_at = clock_now(clock_monotonic()), deadline = deadline_in(engine->evict_timeout_ns);
    make_urgent(&seq->saving, SLAB_EVICT);
    begin(engine, seq, SLAB_EVICT, storable(engine, seq));
    copy_all(engine, seq, deadline);
    if (await_durable(engine, seq, deadline)) return;
    log_event(LOG_WARN, "store", "evicted before it was stored", log_int("seq", seq->id),
              log_int("tokens", seq->n_cells),
              log_num("waited_ms", clock_to_ms(clock_now(clock_monotonic()) - begin_at)));
}

void save_hurry(struct engine *engine, struct seq *seq)
{
    if (is_stored(engine, seq)) copy_all(engine, seq, deadline_in(0));
}

void save_all(struct engine *engine)
{
    if (engine->store == NULL || engine->caching != ENGINE_CACHES_CONVERSATIONS) return;
    int64_t deadline = deadline_in(engine->evict_timeout_ns);
    bool all = true;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        if (!is_stored(engine, seq) || seq->n_cells == 0) continue;
        make_urgent(&seq->saving, SLAB_SHUTDOWN);
        begin(engine, seq, SLAB_SHUTDOWN, storable(engine, seq));
        copy_all(engine, seq, deadline);
        all = await_durable(engine, seq, deadline) && all;
    }
    if (!all) log_event(LOG_WARN, "store", "shut down before all was stored", log_str("model", engine->name));
}
