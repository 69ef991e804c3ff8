/* Logs what was found for a request and what is reused of it: which slots hold which conversations, and whether one is
 * continued, or a part of it kept. The words are those of the source documents, which their readers know.
 *
 * Decides nothing: the placement was found by comparing tokens. Hashes of messages only show people whether it is the
 * same conversation. Runs on the engine's thread. */
#include "engine/core.h"
#include "engine/engine_status.h"
#include "engine/reuse_plan.h"

#include "base/log.h"

#include <stdio.h>

/* A formatted text. */
struct text {
    char v[160];
};

/* ---- Slots ---- */

static struct text verdict(const struct engine *engine, const struct slot *slot, const struct conversation *c)
{
    struct text t;
    const struct seq *seq = slot->state == SLOT_IDLE ? slot_last_seq(engine, slot) : slot->seq;
    if (slot_state_shown(slot->state) == HEARTH_SLOT_PENDING)
        snprintf(t.v, sizeof t.v, "slot[%d] pending (build in-flight)", slot->id);
    else if (seq == NULL || seq->n_messages == 0)
        snprintf(t.v, sizeof t.v, "slot[%d] empty", slot->id);
    else if (seq->n_messages >= c->n_messages)
        snprintf(t.v, sizeof t.v, "slot[%d] skip (cached-msgs[%zu] >= total-msgs[%zu])", slot->id, seq->n_messages,
                 c->n_messages);
    else if (seq_has_messages_of(seq, c))
        snprintf(t.v, sizeof t.v, "slot[%d] MATCH (cached-msgs[%zu] tokens[%d] hash[%08x..])", slot->id,
                 seq->n_messages, seq->message_tokens, (unsigned)(seq->message_hash >> 32));
    else
        snprintf(t.v, sizeof t.v, "slot[%d] mismatch (hash[%08x..] != [%08x..])", slot->id,
                 (unsigned)(seq->message_hash >> 32), (unsigned)(c->hashes[seq->n_messages] >> 32));
    return t;
}

/* ---- What is reused ---- */

static void log_continued(const struct conversation *c, const struct placement *p)
{
    const struct seq *seq = p->source;
    bool hit = seq->n_messages == c->n_messages - 1;
    char hash[17];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)seq->message_hash);
    log_event(LOG_INFO, "imc", hit ? "cache hit" : "extending cache (deferred)", log_int("slot", seq->last_slot),
              log_int("seq", seq->id), log_int("cached-msgs", (int64_t)seq->n_messages),
              log_int("current-total-tokens-cached", seq->message_tokens),
              log_int("msgs-to-cache", (int64_t)c->n_messages - 1), log_str("hash", hash));
    log_event(LOG_INFO, "start-slot", hit ? "imc-reuse" : "imc-extend", log_int("cached_tokens", p->n));
}

/* The result of comparing tokens: n of the `had` tokens of some sequence, snapshot or stored list. */
struct found {
    int32_t slot; /* negative: in no slot's cells */
    int32_t n, had;
};

static void log_found(const struct job *job, const struct found *f)
{
    struct text t;
    snprintf(t.v, sizeof t.v, "slot[%d] common-prefix %d/%d tokens (%d%% salvageable)", f->slot, f->n, f->had,
             f->had == 0 ? 0 : (int)((int64_t)f->n * 100 / f->had));
    log_event(LOG_INFO, "imc", "no slot matched, trying token prefix match",
              log_int("total-msgs", (int64_t)job->conversation.n_messages));
    log_event(LOG_INFO, "imc", t.v);
}

static void log_salvaged(const struct job *job, const struct placement *p)
{
    const struct conversation *c = &job->conversation;
    const struct seq *seq = p->how == PLACE_FETCH ? NULL : p->source;
    int32_t beside = p->snapshot == NULL ? p->n : (int32_t)p->snapshot->tokens.len; /* in memory, or in the store */
    struct found f = {.slot = seq == NULL ? -1 : seq->last_slot, .n = p->n, .had = seq == NULL ? beside : seq->n_cells};
    log_found(job, &f);
    log_event(LOG_INFO, "imc", "token prefix match found", log_int("slot", f.slot), log_int("common-prefix", f.n),
              log_int("discarded-cached", f.had - f.n),
              log_int("new-tokens-to-decode", (int64_t)job->wanted->len - f.n),
              log_int("total-incoming", (int64_t)job->wanted->len));
    log_event(LOG_INFO, "start-slot", p->n >= c->stable_end ? "imc-trim-only" : "imc-trim-prefix",
              log_int("cached_tokens", f.had), log_int("trim_pos", f.n), log_int("new_cache_tokens", c->stable_end));
}

static void log_built_anew(const struct engine *engine, const struct job *job)
{
    /* The longest prefix that any sequence has in common with the prompt, reusable or not. */
    struct found nearest = {.slot = -1};
    int32_t end = job->conversation.stable_end;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        const struct seq *seq = &engine->seqs[i];
        int32_t n = seq->scope == job->scope ? (int32_t)tokens_common_prefix(&seq->tokens, job->wanted) : 0;
        if (n > nearest.n) nearest = (struct found){.slot = seq->last_slot, .n = n, .had = (int32_t)seq->tokens.len};
    }
    if (nearest.n > 0) log_found(job, &nearest);
    if (nearest.n > 0 && (engine->policy.cuts_anywhere || nearest.n < engine->policy.min_tokens))
        log_event(LOG_INFO, "imc", "no usable token prefix match", log_int("best-prefix", nearest.n),
                  log_int("min-required", engine->policy.min_tokens));
    else if (nearest.n > 0) /* long enough, but these cells cannot be cut there, and no checkpoint is before it */
        log_event(LOG_INFO, "start-slot", nearest.n >= end ? "imc-hybrid-trim-rebuild" : "imc-hybrid-rebuild",
                  log_int("cached_tokens", nearest.had), log_int("trim_pos", nearest.n),
                  log_int("redecode_tokens", (int64_t)job->wanted->len));
    log_event(LOG_INFO, "imc", "cache build prepared", log_int("msgs", (int64_t)job->conversation.n_messages - 1),
              log_int("tokens", end));
    log_event(LOG_INFO, "start-slot", "imc-build", log_int("tokens", end));
}

static bool log_conversation(const struct engine *engine, const struct job *job, const struct placement *p)
{
    const struct conversation *c = &job->conversation;
    if (c->stable_end == 0) return false;
    if (log_enabled(LOG_DEBUG)) {
        log_event(LOG_DEBUG, "imc", "scanning slots", log_int("total-msgs", (int64_t)c->n_messages),
                  log_int("msgs-to-cache", (int64_t)c->n_messages - 1),
                  log_int("total-slots", (int64_t)engine->n_slots));
        for (size_t i = 0; i < engine->n_slots; i++)
            log_event(LOG_DEBUG, "imc", verdict(engine, &engine->slots[i], c).v);
    }
    bool continues = p->source != NULL && p->how != PLACE_FETCH && seq_has_messages_of(p->source, c) &&
                     p->n >= p->source->message_tokens;
    if (c->stable_end < engine->policy.min_tokens)
        log_event(LOG_INFO, "imc", "skip (too short)", log_int("last-msg-index-to-cache", (int64_t)c->n_messages - 2),
                  log_int("tokens", c->stable_end), log_int("cache-min-tokens", engine->policy.min_tokens));
    else if (continues)
        log_continued(c, p);
    else if (p->how == PLACE_FRESH)
        log_built_anew(engine, job);
    else if (p->how != PLACE_WAIT)
        log_salvaged(job, p);
    return continues;
}

/* ---- Media ---- */

/* Media of the prompt that lie within its first n tokens. */
static size_t media_within(const struct job *job, int32_t n)
{
    const struct media_spans *spans = &job->media.spans;
    size_t i = 0;
    while (i < spans->len && spans->v[i].at + spans->v[i].n <= n) i++;
    return i;
}

static void log_media(const struct job *job, const struct placement *p)
{
    size_t all = job->media.spans.len, kept = media_within(job, p->n);
    const char *prepared = p->n == 0    ? "media cache build prepared"
                           : kept < all ? "media extend prepared"
                                        : "media text extend prepared";
    if (all == 0 || p->how == PLACE_WAIT) return;
    log_event(LOG_INFO, "imc", prepared, log_str("id", job->id), log_int("media", (int64_t)all),
              log_int("media-cached", (int64_t)kept), log_int("new-tokens", (int64_t)job->wanted->len - p->n));
    if (p->n == 0)
        log_event(LOG_INFO, "start-slot", "imc-media-build", log_int("media", (int64_t)all));
    else if (kept < all)
        log_event(LOG_INFO, "start-slot", "imc-media-extend", log_int("skip_text_tokens", p->n),
                  log_int("media", (int64_t)(all - kept)));
}

bool reuse_log(const struct engine *engine, const struct job *job, const struct placement *placement)
{
    if (!job->cache_prompt) return false;
    log_media(job, placement);
    if (engine->policy.keeps_conversations) return log_conversation(engine, job, placement);
    int32_t tokens = job->conversation.system_end;
    if (tokens == 0) return false;
    if (tokens < engine->policy.min_tokens)
        log_event(LOG_INFO, "spc", "cache skip (too short)", log_int("tokens", tokens),
                  log_int("min", engine->policy.min_tokens));
    else if (placement->n > 0 && placement->how != PLACE_WAIT)
        log_event(LOG_INFO, "spc", "cache hit", log_int("tokens", placement->n));
    return false;
}

void reuse_log_built(const struct slot *slot)
{
    const struct run *run = slot->run;
    int32_t total = slot->job->conversation.stable_end;
    if (run->continues && run->n_cached >= total) return; /* all of it was cached */
    if (media_within(slot->job, run->n_cached) < media_within(slot->job, total)) {
        log_event(LOG_INFO, "start-slot", run->n_cached > 0 ? "imc-media-extended" : "imc-media-built",
                  log_int("total_cached", total), log_int("skipped_text_tokens", run->n_cached));
        return;
    }
    if (run->n_cached > 0 && !run->continues)
        log_event(LOG_INFO, "start-slot", "imc-partial-rebuilt", log_int("total_cached", total),
                  log_int("salvaged_prefix", run->n_cached),
                  log_int("salvaged_pct", (int64_t)run->n_cached * 100 / total));
    else
        log_event(LOG_INFO, "start-slot", run->continues ? "imc-extended" : "imc-built",
                  log_int("total_cached", total));
}
