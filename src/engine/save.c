/* Saves cells to the store: when, and copying them out of the context. The store's threads do the rest: hashing,
 * packing, writing. Runs on the engine's thread, which waits for the store only at its end.
 *
 * Five events save cells (the save reasons of the cache design document). A prompt has been computed, whole or up to a
 * checkpoint (`cold`), or some thousand tokens have come since the last event (`continued`). A request has ended
 * (`finish`), cells are to be evicted (`evict`), or the engine ends (`shutdown`). An event names a length. The engine
 * copies out what the store lacks up to that length, a slice at a time between two ticks, so that no reply that is
 * being streamed notices.
 *
 * A system prompt that is kept outside the cells (SPC) is saved by its first event or never. So its KV rows wait for
 * room in the backlog, and its sequence keeps its cells until they were copied out.
 *
 * Only the store knows what is stored, and is asked at each event. It does not know save jobs under way yet: until
 * their ticket is done, what was copied out counts as stored.
 *
 * A checkpoint (recurrent or SWA state) is copied at the very moment of the event, since the next token changes it, and
 * is queued after its KV rows. */
#include "engine/save.h"
#include "engine/core.h"

#include "base/log.h"
#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>

/* Tokens at the end of a prompt that a `cold` save leaves out. Prompts that differ in their last words share what comes
 * before (the boundary trim of the cache design document). */
#define COLD_TRIM 32

/* Bytes copied out between two ticks at most: some 2 ms on a CPU. It is no more where no slot is busy, since a request
 * that comes meanwhile waits for them. */
#define SLICE_BYTES (16 << 20)

/* Where nothing else can run. */
#define SLICE_BYTES_ALONE (64 << 20)

/* ---- What may be stored ---- */

static bool may_be_stored(const struct engine *engine, const struct seq *seq)
{
    return engine->store != NULL && seq->scope != SCOPE_PRIVATE;
}

static bool is_stored(const struct engine *engine, const struct seq *seq)
{
    return may_be_stored(engine, seq) && store_is_on(engine->store);
}

static int32_t storable(const struct engine *engine, const struct seq *seq)
{
    int32_t exact = cache_policy_exact(&engine->policy, seq->n_cells, seq->n_exact);
    return cache_policy_worth(&engine->policy, cache_policy_whole(&engine->policy, &seq->media, exact));
}

static bool needs_checkpoints(const struct engine *engine)
{
    return llm_state_format_has_checkpoints(engine->format);
}

/* ---- Events ---- */

static void drop_event(struct saving *saving, size_t i)
{
    free(saving->events[i].checkpoint);
    saving->n_events--;
    for (; i < saving->n_events; i++) saving->events[i] = saving->events[i + 1];
}

/* Limits what is copied out to n tokens. A checkpoint beyond n is worthless without its KV rows. */
static void cut_events(struct saving *saving, int32_t n)
{
    for (size_t i = saving->n_events; i-- > 0 && saving->events[i].to > n;) {
        bool is_there = i > 0 && saving->events[i - 1].to >= n;
        if (saving->events[i].checkpoint != NULL || n <= saving->n || is_there)
            drop_event(saving, i);
        else
            saving->events[i].to = n;
    }
}

/* Copies the checkpoint out, as it is now. False: it cannot be had, and KV rows alone are worthless. */
static bool copy_checkpoint(struct engine *engine, struct seq *seq, struct save_event *event)
{
    size_t size = llm_seq_state_size(engine->context, seq->id, LLM_STATE_CHECKPOINT);
    if (size == 0) return false;
    event->checkpoint = store_buffer(engine->store, size);
    if (event->checkpoint == NULL) return false;
    event->checkpoint_size = llm_checkpoint_save(engine->context, engine->format, seq->id, event->checkpoint, size);
    if (event->checkpoint_size > 0) return true;
    free(event->checkpoint);
    return false;
}

/* ---- What the store has ---- */

struct store_query save_query(const struct engine *engine, const struct seq *seq)
{
    return (struct store_query){
        .user = engine->user, .identity = &seq->saving.identity, .tokens = seq->tokens.v, .n = seq->n_cells};
}

/* Whether all queued save jobs of the sequence have ended, successfully or not. Else the store wakes the engine. */
static bool saves_are_done(const struct engine *engine, const struct seq *seq)
{
    return store_is_done(engine->store, engine->user, seq->saving.ticket);
}

/* How many tokens of the sequence an event could save now. */
static int32_t storable_now(const struct engine *engine, const struct seq *seq)
{
    int32_t n = storable(engine, seq);
    return needs_checkpoints(engine) && n != seq->n_cells ? 0 : n;
}

/* Whether an event is dropped where too much is under way: nothing waits for it, and the next event covers the same
 * tokens. */
static bool may_be_given_up(const struct engine *engine, enum slab_reason reason)
{
    return engine->policy.keeps_conversations && (reason == SLAB_COLD || reason == SLAB_CONTINUED);
}

/* Begins an event: saves what the store lacks of the KV rows up to `to`, and the checkpoint there. */
static void begin_save(struct engine *engine, struct seq *seq, enum slab_reason reason, int32_t to)
{
    struct saving *saving = &seq->saving;
    struct save_event event = {.to = to, .reason = reason};
    if (to > storable(engine, seq) || to <= 0 || (needs_checkpoints(engine) && to != seq->n_cells)) return;
    if (saving->n_events > 0 && saving->events[saving->n_events - 1].to >= to) return;
    saving->last_end = to;
    struct store_query query = save_query(engine, seq);
    bool done = saves_are_done(engine, seq);
    int32_t covered = store_covered(engine->store, &query);
    if (done || covered > saving->n) saving->n = covered;
    bool was_lost =
        saving->n_checkpoint == to && saves_are_done(engine, seq) && !store_has_state(engine->store, &query);
    bool lacks = needs_checkpoints(engine) && (saving->n_checkpoint != to || was_lost);
    bool gives_up = may_be_given_up(engine, reason);
    if (to <= saving->n && !lacks) return;
    if (saving->n_events == SAVE_EVENTS || (gives_up && !store_has_room(engine->store, engine->user, 1))) {
        store_count_dropped(engine->store);
        return;
    }
    if (lacks && !copy_checkpoint(engine, seq, &event)) return;
    if (event.checkpoint != NULL) saving->n_checkpoint = to;
    if (saving->n_events == 0 && llm_state_format_has_rows(engine->format)) {
        query.n = to;
        saving->n = store_block_start(engine->store, &query, saving->n);
    }
    saving->events[saving->n_events++] = event;
}

/* ---- Copying out ---- */

static bool queue_save(struct engine *engine, struct seq *seq, struct store_save save)
{
    save.user = engine->user;
    save.identity = &seq->saving.identity;
    save.tokens = seq->tokens.v;
    save.synchronous = save.reason == SLAB_SHUTDOWN;
    uint64_t ticket = store_save(engine->store, &save);
    if (ticket != 0) seq->saving.ticket = engine->last_ticket = ticket;
    return ticket != 0;
}

/* Where the next slice ends: as many whole blocks of the store as fit into `bytes`, or the event's end. */
static int32_t slice_end(const struct engine *engine, int32_t from, int32_t to, size_t bytes)
{
    if (!llm_state_format_appends(engine->format)) return to; /* whole sequences are copied anyway */
    uint64_t block = llm_state_format_row_bytes(engine->format) * (uint64_t)engine->stride;
    int32_t blocks = block == 0 || bytes / block < 1 ? 1 : (int32_t)(bytes / block);
    int64_t end = ((int64_t)from / engine->stride + blocks) * engine->stride;
    return end < to ? (int32_t)end : to;
}

enum copied { COPIED, COPIED_LAST, COPY_LATER, COPY_FAILED };

/* Copies the event's next KV rows out and queues them for the store. */
static enum copied copy_rows(struct engine *engine, struct seq *seq, const struct save_event *event,
                             struct copy_turn *turn)
{
    struct saving *saving = &seq->saving;
    int64_t began_at = clock_now(engine->clock);
    int32_t to = slice_end(engine, saving->n, event->to, copy_turn_bytes(turn, began_at, engine->save_byte_ns));
    size_t size = llm_rows_size(engine->context, engine->format, seq->id, saving->n, to);
    bool evicting = event->reason == SLAB_EVICT || event->reason == SLAB_SHUTDOWN;
    if (size == 0)
        return evicting ? COPY_FAILED : COPY_LATER; /* llama.cpp copies the stream with the next decode call only */
    if (!store_has_room(engine->store, engine->user, size)) return COPY_LATER;
    void *raw = store_buffer(engine->store, size);
    if (raw == NULL) return COPY_FAILED;
    if (llm_rows_save(engine->context, engine->format, seq->id, saving->n, to, raw, size) == 0) {
        free(raw);
        return COPY_FAILED;
    }
    bool last = to == event->to && event->checkpoint == NULL;
    struct store_save save = {.kind = SLAB_ROWS,
                              .reason = event->reason,
                              .from = saving->n,
                              .to = to,
                              .raw = raw,
                              .size = size,
                              .last = last};
    if (!queue_save(engine, seq, save)) return COPY_FAILED;
    copy_turn_take(turn, size);
    int64_t took = clock_now(engine->clock) - began_at;
    engine_blend(&engine->save_byte_ns, (double)(took > 0 ? took : 1) / (double)size); /* 0 would be unknown */
    saving->n = to;
    return last ? COPIED_LAST : COPIED;
}

static enum copied queue_checkpoint(struct engine *engine, struct seq *seq, struct save_event *event)
{
    if (!store_has_room(engine->store, engine->user, event->checkpoint_size)) return COPY_LATER;
    struct store_save save = {.kind = SLAB_STATE,
                              .reason = event->reason,
                              .from = event->to,
                              .to = event->to,
                              .raw = event->checkpoint,
                              .size = event->checkpoint_size,
                              .last = true};
    event->checkpoint = NULL;
    return queue_save(engine, seq, save) ? COPIED_LAST : COPY_FAILED;
}

/* Tokens and cells must match: else a slab key would name other cells. */
static bool cells_match_tokens(struct engine *engine, const struct seq *seq, const struct save_event *event)
{
    int32_t end = llm_seq_end(engine->context, seq->id);
    bool match = end == seq->n_cells && event->to <= end && (size_t)end <= seq->tokens.len;
    if (!match) {
        log_event(LOG_ERROR, "store", "a sequence has other cells than tokens: not stored", log_int("seq", seq->id),
                  log_int("cells", end), log_int("tokens", seq->n_cells));
        store_count_dropped(engine->store);
    }
    assert(match);
    return match;
}

/* Copies out a part of the sequence's first event. */
static enum copied copy_some(struct engine *engine, struct seq *seq, struct copy_turn *turn)
{
    struct saving *saving = &seq->saving;
    struct save_event *event = &saving->events[0];
    if (!cells_match_tokens(engine, seq, event)) {
        drop_event(saving, 0);
        return COPY_FAILED;
    }
    bool rows = llm_state_format_has_rows(engine->format) && saving->n < event->to;
    if (!rows && event->checkpoint == NULL) { /* the store had it already */
        drop_event(saving, 0);
        return COPIED_LAST;
    }
    enum copied outcome = rows ? copy_rows(engine, seq, event, turn) : queue_checkpoint(engine, seq, event);
    bool given_up = outcome == COPY_LATER && may_be_given_up(engine, event->reason);
    if (given_up) store_count_dropped(engine->store);
    if (!llm_state_format_has_rows(engine->format) && outcome == COPIED_LAST) saving->n = event->to;
    if (given_up || outcome == COPIED_LAST || outcome == COPY_FAILED) drop_event(saving, 0);
    return outcome;
}

/* Returns whether anything of the sequence was copied. */
static bool copy_within(struct engine *engine, struct seq *seq, struct copy_turn *turn)
{
    bool any = false;
    while (seq->saving.n_events > 0 && !copy_turn_is_over(turn, clock_now(engine->clock))) {
        if (copy_some(engine, seq, turn) == COPY_LATER) break;
        any = true;
    }
    return any;
}

/* Saves what ended while the store was off, once it is back: the store wakes the engine for that. */
static void save_after_outage(struct engine *engine)
{
    bool was_off = engine->store_was_off;
    engine->store_was_off = !store_is_on(engine->store);
    if (engine->store_was_off) store_has_room(engine->store, engine->user, 1);
    if (engine->store_was_off || !was_off || !engine->policy.keeps_conversations) return;
    for (size_t i = 0; i < engine->n_seqs; i++)
        if (engine->seqs[i].slot == NULL && engine->seqs[i].n_cells > 0) save_finished(engine, &engine->seqs[i]);
}

/* Pending evictions come first: slots wait for them. */
bool save_step(struct engine *engine)
{
    assert_thread(&engine->owner);
    if (engine->store == NULL) return false;
    bool any = false;
    save_after_outage(engine);
    struct copy_turn turn = engine_copy_turn(engine, SLICE_BYTES, true);
    for (int evicting = 1; evicting >= 0; evicting--)
        for (size_t i = 0; i < engine->n_seqs; i++)
            if (seq_state_leaves(engine->seqs[i].state) == evicting)
                any = copy_within(engine, &engine->seqs[i], &turn) || any;
    return any;
}

/* ---- The events ---- */

void save_begin(struct engine *engine, struct seq *seq, const struct job *job)
{
    assert_thread(&engine->owner);
    struct saving *saving = &seq->saving;
    if (engine->store == NULL) return;
    saving->last_end = seq->n_cells;
    if (saving->n_checkpoint > seq->n_cells) saving->n_checkpoint = 0;
    saving->identity = job->identity;
}

void save_inherit(struct seq *seq, const struct seq *from, int32_t n)
{
    seq->saving.n = from->saving.n < n ? from->saving.n : n;
    seq->saving.ticket = from->saving.ticket;
}

void save_cut(struct seq *seq, int32_t n)
{
    struct saving *saving = &seq->saving;
    if (saving->n > n) saving->n = n;
    if (n == 0) saving->ticket = 0;
    cut_events(saving, n);
}

void save_progress(struct engine *engine, struct slot *slot, bool at_checkpoint)
{
    assert_thread(&engine->owner);
    struct seq *seq = slot->seq;
    if (!is_stored(engine, seq)) return;
    if (at_checkpoint && (needs_checkpoints(engine) || engine->policy.keeps_system_prompts))
        begin_save(engine, seq, SLAB_COLD, seq->n_cells);
    if (!engine->policy.keeps_conversations) return;
    int32_t stride = needs_checkpoints(engine) ? 1 : engine->stride;
    bool is_at_prompt_end = slot->run->n_predicted == 0 && seq->n_cells == slot->run->n_prompt;
    if (is_at_prompt_end && !needs_checkpoints(engine))
        begin_save(engine, seq, SLAB_COLD, (seq->n_cells - COLD_TRIM) / stride * stride);
    int32_t whole = storable(engine, seq) / stride * stride;
    if (whole - seq->saving.last_end >= engine->continued_interval) begin_save(engine, seq, SLAB_CONTINUED, whole);
}

void save_finished(struct engine *engine, struct seq *seq)
{
    assert_thread(&engine->owner);
    if (is_stored(engine, seq)) begin_save(engine, seq, SLAB_FINISH, storable(engine, seq));
}

void save_release(struct seq *seq)
{
    cut_events(&seq->saving, 0);
}

/* ---- Before an eviction ---- */

/* Queues all that the store lacks; of a system prompt's sequence only what was queued already. */
static void want_all(struct engine *engine, struct seq *seq, enum slab_reason reason)
{
    for (size_t i = 0; i < seq->saving.n_events; i++) seq->saving.events[i].reason = reason;
    if (engine->policy.keeps_conversations) begin_save(engine, seq, reason, storable_now(engine, seq));
}

static bool all_is_stored(const struct engine *engine, const struct seq *seq)
{
    struct store_query query = save_query(engine, seq);
    int32_t n = storable_now(engine, seq);
    if (store_covered(engine->store, &query) < n) return false;
    return n == 0 || !needs_checkpoints(engine) || store_has_state(engine->store, &query);
}

enum save_status save_status(const struct engine *engine, const struct seq *seq)
{
    bool copying = seq->saving.n_events > 0;
    if (!may_be_stored(engine, seq)) return SAVE_COMPLETE;
    if (!engine->policy.keeps_conversations)
        return copying && store_is_on(engine->store) ? SAVE_PENDING : SAVE_COMPLETE;
    if (!store_is_on(engine->store)) return all_is_stored(engine, seq) ? SAVE_COMPLETE : SAVE_MISSING;
    if (copying || !saves_are_done(engine, seq)) return SAVE_PENDING;
    return all_is_stored(engine, seq) ? SAVE_COMPLETE : SAVE_MISSING;
}

void save_before_eviction(struct engine *engine, struct seq *seq)
{
    assert_thread(&engine->owner);
    want_all(engine, seq, SLAB_EVICT);
}

bool save_flush(struct engine *engine, struct seq *seq)
{
    assert_thread(&engine->owner);
    struct copy_turn turn = {.bytes = SLICE_BYTES_ALONE, .until = CLOCK_NEVER};
    if (!is_stored(engine, seq)) return true;
    copy_within(engine, seq, &turn);
    return seq->saving.n_events == 0;
}

bool save_is_under_way(const struct engine *engine, const struct seq *seq)
{
    return seq->saving.n_events > 0 || !saves_are_done(engine, seq);
}

/* ---- The end ---- */

/* Saves what the store lacks. Where the backlog is full, waits for the store, so that memory stays bounded. Where it is
 * empty and nothing was copied, room is not what is missing, and it stops. False: some is not saved. */
static bool store_all(struct engine *engine, int64_t deadline)
{
    for (size_t i = 0; i < engine->n_seqs && store_is_on(engine->store); i++) {
        struct seq *seq = &engine->seqs[i];
        if (save_status(engine, seq) == SAVE_COMPLETE) continue;
        want_all(engine, seq, SLAB_SHUTDOWN);
        while (seq->saving.n_events > 0) {
            struct copy_turn turn = {.bytes = SLICE_BYTES_ALONE, .until = CLOCK_NEVER};
            bool idle = store_wait(engine->store, UINT64_MAX, 0);
            if (!copy_within(engine, seq, &turn) && (idle || !store_wait(engine->store, UINT64_MAX, deadline))) break;
        }
    }
    bool all = store_wait(engine->store, engine->last_ticket, store_is_on(engine->store) ? deadline : 0);
    for (size_t i = 0; i < engine->n_seqs && all; i++) all = save_status(engine, &engine->seqs[i]) == SAVE_COMPLETE;
    return all;
}

void save_all(struct engine *engine)
{
    assert_thread(&engine->owner);
    if (engine->store == NULL) return;
    /* Real time: the store's disks know no test clock. */
    int64_t deadline = clock_now(clock_monotonic()) + engine->evict_timeout_ns;
    bool all = false;
    for (int i = 0; i < SAVE_ATTEMPTS && !all; i++) all = store_all(engine, deadline);
    if (!all) log_event(LOG_WARN, "store", "shut down before all was stored", log_str("model", engine->name));
    store_wait_for_uploads(engine->store, deadline);
}

/* ---- How the store cuts and joins states; on its threads ---- */

static bool cut_slab(const void *ud, enum slab_kind kind, const void *raw, size_t size, int32_t from, int32_t to,
                     struct buf *payload, struct slab_region **regions, size_t *n_regions)
{
    const struct llm_state_format *format = ud;
    struct llm_regions parts = {0};
    bool done = kind == SLAB_ROWS ? llm_cut_rows(format, raw, size, from, to, payload, &parts)
                                  : llm_cut_checkpoint(format, raw, size, to, payload, &parts);
    if (!done) return false;
    *regions = mem_alloc((parts.len + 1) * sizeof **regions);
    *n_regions = parts.len;
    for (size_t i = 0; i < parts.len; i++)
        (*regions)[i] = (struct slab_region){.what = parts.v[i].what,
                                             .layer = parts.v[i].layer,
                                             .type = parts.v[i].type,
                                             .rows = parts.v[i].rows,
                                             .row_bytes = parts.v[i].row_bytes,
                                             .offset = parts.v[i].offset,
                                             .size = parts.v[i].size};
    free(parts.v);
    return true;
}

static bool join_slabs(const void *ud, const struct store_piece *pieces, size_t n, struct buf *joined)
{
    struct llm_state_slice *parts = mem_alloc(n * sizeof *parts);
    for (size_t i = 0; i < n; i++)
        parts[i] = (struct llm_state_slice){
            .bytes = pieces[i].bytes, .size = pieces[i].size, .from = pieces[i].from, .to = pieces[i].to};
    bool done = llm_join_rows(ud, parts, n, joined);
    free(parts);
    return done;
}

struct store_codec codec_of(const struct llm_state_format *format)
{
    return (struct store_codec){.ud = format,
                                .rows = llm_state_format_has_rows(format),
                                .has_state = llm_state_format_has_checkpoints(format),
                                .appends = llm_state_format_appends(format),
                                .cut = cut_slab,
                                .join = join_slabs};
}
