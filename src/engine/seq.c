/* The KV cells of sequences: cutting them back, sharing prefixes, and saving snapshots and checkpoints. evict.c decides
 * what goes when there is no room. Runs on the engine's thread.
 *
 * llama.cpp counts the owners of a cell: cutting one sequence frees only cells that no other sequence has, so a shared
 * prefix lives as long as its last owner. sharing.h notes how far each two sequences share, so that the evictor knows
 * what a cut frees. */
#include "engine/core.h"
#include "engine/evict.h"
#include "engine/save.h"

#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Cutting back ---- */

int32_t seq_can_keep(const struct engine *engine, const struct seq *seq, int32_t n)
{
    if (engine->policy.cuts_anywhere || n == seq->n_cells || n <= 0) return n;
    if (!engine->policy.loads_states) return 0;
    if (llm_seq_can_cut(engine->context, seq->id, n)) return n;
    const struct snapshot *checkpoint = snapshots_find_checkpoint(engine->snapshots, seq->id, seq->tokens.v, n);
    return checkpoint == NULL ? 0 : (int32_t)checkpoint->tokens.len;
}

const struct snapshot *seq_checkpoint_at(const struct engine *engine, const struct seq *seq, int32_t n)
{
    const struct snapshot *checkpoint = snapshots_find_checkpoint(engine->snapshots, seq->id, seq->tokens.v, n);
    return checkpoint != NULL && (int32_t)checkpoint->tokens.len == n ? checkpoint : NULL;
}

/* Takes `seq`, which has the cells of `of`, back to the first n of them by loading a checkpoint. */
static enum llm_loaded rewind_to(struct engine *engine, const struct seq *seq, const struct seq *of, int32_t n)
{
    const struct snapshot *checkpoint = seq_checkpoint_at(engine, of, n);
    if (checkpoint == NULL) {
        log_event(LOG_DEBUG, "batch-engine", "imc-hybrid-no-snapshot", log_int("seq", of->id), log_int("trim_pos", n));
        return LLM_BAD_STATE;
    }
    snapshots_touch(engine->snapshots, checkpoint);
    enum llm_loaded loaded = llm_seq_rewind(engine->context, seq->id, checkpoint->bytes, checkpoint->size, n);
    bool done = loaded == LLM_LOADED;
    metric_add(&engine->stats->snapshots_restored, done);
    log_event(done ? LOG_INFO : LOG_WARN, "batch-engine", done ? "imc-hybrid-restore" : "imc-hybrid-restore-failed",
              log_int("trim_pos", n), log_int("snapshot_bytes", (int64_t)checkpoint->size),
              log_int("restored_bytes", done ? (int64_t)checkpoint->size : 0));
    return loaded;
}

void seq_clear(struct engine *engine, struct seq *seq)
{
    assert_thread(&engine->owner);
    llm_seq_clear(engine->context, seq->id);
    sharing_cut(&engine->sharing, seq->id, 0);
    seq->kept = false;
    int32_t had = seq->n_cells;
    seq->n_cells = 0;
    if (seq->state != SEQ_RUNNING) seq_settle(seq, had);
}

void seq_settle(struct seq *seq, int32_t had)
{
    enum seq_state state = seq_state_staying(seq->state);
    bool leaves = seq_state_leaves(seq->state) && seq->n_cells > seq->eviction.keep;
    if (state == SEQ_SUSPENDED && seq->n_cells < had) state = SEQ_IDLE;
    if (seq->n_cells == 0) state = SEQ_FREE;
    if (state != SEQ_SUSPENDED) seq->suspended = NULL;
    if (leaves)
        state = seq_state_leaving(state);
    else
        seq->eviction = (struct pending_eviction){0};
    if (state != seq->state) seq_enter(seq, state);
}

void seq_cut_to(struct engine *engine, struct seq *seq, int32_t n)
{
    assert_thread(&engine->owner);
    int32_t had = seq->n_cells;
    n = media_spans_whole(&seq->media, n);
    bool cut = n > 0 && (llm_seq_cut(engine->context, seq->id, n) || rewind_to(engine, seq, seq, n) == LLM_LOADED);
    if (cut && llm_seq_end(engine->context, seq->id) == n) {
        seq->n_cells = n;
        sharing_cut(&engine->sharing, seq->id, n);
    } else {
        /* Recurrent state and sliding windows cannot always be cut, and an aborted decode call may have changed them:
         * then everything is computed again. */
        seq_clear(engine, seq);
    }
    snapshots_invalidate(engine->snapshots, seq->id, seq->n_cells);
    save_cut(seq, seq->n_cells);
    if (seq->n_exact > seq->n_cells) seq->n_exact = seq->n_cells;
    if (seq->n_cells < seq->message_tokens) seq->n_messages = 0;
    if (seq->state != SEQ_RUNNING) seq_settle(seq, had);
    struct run *run = seq->slot == NULL ? NULL : seq->slot->run;
    if (run != NULL && run->n_cached > seq->n_cells) run->n_cached = seq->n_cells;
}

enum llm_loaded seq_share(struct engine *engine, const struct seq *from, struct seq *to, int32_t n)
{
    assert_thread(&engine->owner);
    int32_t all = engine->policy.cuts_anywhere ? n : from->n_cells;
    if (!llm_seq_share(engine->context, from->id, to->id, all)) return LLM_BAD_STATE;
    enum llm_loaded loaded = llm_seq_cut(engine->context, to->id, n) ? LLM_LOADED : rewind_to(engine, to, from, n);
    if (loaded == LLM_LOADED && engine->policy.one_pool) sharing_add(&engine->sharing, from->id, to->id, n);
    return loaded;
}

void seq_truncate_tokens(struct seq *seq)
{
    suffix_index_truncate(&seq->suffixes, &seq->tokens, seq->n_cells);
    tokens_truncate(&seq->tokens, (size_t)seq->n_cells);
    seq->hash = tokens_short_hash(&seq->tokens);
}

void seq_retire(struct engine *engine, struct seq *seq)
{
    assert_thread(&engine->owner);
    if (seq->state == SEQ_RUNNING) seq_enter(seq, seq->n_cells > 0 ? SEQ_IDLE : SEQ_FREE);
    seq->slot = NULL;
    seq->last_used = seq->retired_at = clock_now(engine->clock);
    seq->idle = (struct idle_account){0};
    seq->retired_at_unix_ms = clock_unix_ms();
    seq_truncate_tokens(seq);
}

void seq_verify_all(struct engine *engine)
{
    assert_thread(&engine->owner);
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        if (llm_seq_end(engine->context, seq->id) == seq->n_cells) continue;
        bool left = seq_state_leaves(seq->state);
        seq_cut_to(engine, seq, seq->n_cells);
        if (left) slots_try_again(engine, false); /* its eviction may have ended with its cells */
        if (seq->state != SEQ_RUNNING) seq_truncate_tokens(seq);
    }
}

bool seq_has_messages_of(const struct seq *seq, const struct conversation *c)
{
    return seq->n_messages > 0 && seq->n_messages < c->n_messages && c->hashes[seq->n_messages] == seq->message_hash;
}

/* ---- Snapshots and checkpoints ---- */

/* Copies the sequence's state out of the context into memory. NULL: llama.cpp has none to copy, or there is no room. */
static const struct snapshot *save_snapshot(struct engine *engine, const struct seq *seq, enum llm_state what)
{
    size_t size = llm_seq_state_size(engine->context, seq->id, what);
    if (size == 0 || size > snapshots_available(engine->snapshots)) return NULL;
    struct snapshot snapshot = {.n_exact = seq->n_exact,
                                .home = what == LLM_STATE_SNAPSHOT ? -1 : seq->id,
                                .scope = seq->scope,
                                .bytes = mem_alloc(size)};
    snapshot.size = llm_seq_save(engine->context, seq->id, what, snapshot.bytes, size);
    if (snapshot.size == 0) {
        free(snapshot.bytes);
        return NULL;
    }
    tokens_append(&snapshot.tokens, seq->tokens.v, (size_t)seq->n_cells);
    media_spans_copy(&snapshot.media, &seq->media);
    const struct snapshot *kept = snapshots_put(engine->snapshots, snapshot);
    metric_add(&engine->stats->snapshots_saved, kept != NULL);
    return kept;
}

static void save_checkpoint(struct engine *engine, const struct seq *seq)
{
    const struct snapshot *kept = snapshots_find_checkpoint(engine->snapshots, seq->id, seq->tokens.v, seq->n_cells);
    if (kept != NULL && (int32_t)kept->tokens.len == seq->n_cells) {
        snapshots_touch(engine->snapshots, kept);
        return;
    }
    size_t size = llm_seq_state_size(engine->context, seq->id, LLM_STATE_CHECKPOINT);
    if (size == 0) return; /* a copy of the stream that the next decode call makes first */
    engine->checkpoint_bytes = size;
    kept = save_snapshot(engine, seq, LLM_STATE_CHECKPOINT);
    log_event(kept != NULL ? LOG_INFO : LOG_WARN, "batch-engine",
              kept != NULL ? "imc-hybrid-snapshot" : "imc-hybrid-snapshot-failed", log_int("slot", seq->last_slot),
              log_int("seq", seq->id), log_int("cached_tokens", seq->n_cells),
              log_int("snapshot_bytes", kept == NULL ? 0 : (int64_t)kept->size),
              log_int("kv_alloc", (int64_t)snapshots_usage(engine->snapshots).bytes));
}

static void save_system_prompt(struct engine *engine, const struct seq *seq)
{
    int32_t common = 0;
    const struct snapshot *kept =
        snapshots_find(engine->snapshots, seq->tokens.v, seq->n_cells, seq->scope, false, &common);
    if (kept != NULL && common == seq->n_cells) return;
    kept = save_snapshot(engine, seq, LLM_STATE_SNAPSHOT);
    if (kept == NULL) {
        log_event(LOG_WARN, "spc", "failed to extract KV state", log_int("seq", seq->id),
                  log_int("tokens", seq->n_cells));
        return;
    }
    char hash[17];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)tokens_short_hash(&kept->tokens));
    log_event(LOG_INFO, "spc", "tokens saved (externalized)", log_int("tokens", seq->n_cells), log_str("hash", hash),
              log_int("kv_bytes", (int64_t)kept->size));
}

void seq_save_checkpoint(struct engine *engine, const struct seq *seq)
{
    assert_thread(&engine->owner);
    if (cache_policy_whole(&engine->policy, &seq->media, seq->n_cells) != seq->n_cells) return;
    if (engine->policy.keeps_system_prompts)
        save_system_prompt(engine, seq);
    else if (engine->policy.checkpoints)
        save_checkpoint(engine, seq);
}

/* A quarter of the memory for snapshots and checkpoints at most, so that other prompts keep theirs. */
int32_t seq_grid_most(const struct engine *engine, const struct job *job)
{
    if (!engine->policy.checkpoints || !job->cache_prompt) return 0;
    uint64_t room = snapshots_usage(engine->snapshots).budget / 4, bytes = engine->checkpoint_bytes;
    uint64_t most = bytes > 0 ? room / bytes : room > 0 ? INT32_MAX : 0;
    return most < INT32_MAX ? (int32_t)most : INT32_MAX;
}

const struct snapshot *seq_save_pinned(struct engine *engine, const struct seq *seq)
{
    assert_thread(&engine->owner);
    const struct snapshot *snapshot = save_snapshot(engine, seq, LLM_STATE_SNAPSHOT);
    if (snapshot != NULL) snapshots_pin(engine->snapshots, snapshot);
    return snapshot;
}
