/* Finds the token list most similar to a prompt, among those in cells, in snapshots in memory and in the store, and the
 * position where the two diverge. A cache lookup answers that. It is also logged after a request that computed most of
 * a long prompt although a similar one was cached.
 *
 * Only lists of the prompt's own scope are compared. The store's part is in the job before the engine gets it; here it
 * costs one more comparison with each sequence. Runs on the engine's thread. */
#include "engine/core.h"
#include "engine/fetch.h"
#include "engine/reuse_plan.h"

#include "base/log.h"

/* A prompt of so many tokens, most of which had to be computed, is logged. */
#define LONG_PROMPT 512

/* Tokens of each side whose words a line may hold. */
#define LOGGED_TOKENS 8

static const char resident[] = "resident";

/* Prefers cells and snapshots in memory where the store has no more in common. */
static void note_resident(const struct engine *engine, struct job *job, struct divergence *nearest)
{
    int32_t common;
    bool found = false;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        const struct seq *seq = &engine->seqs[i];
        if (seq->scope == job->scope) found = tokens_note_divergence(&job->prompt, &seq->tokens, nearest) || found;
    }
    const struct snapshot *snapshot =
        snapshots_find(engine->snapshots, job->prompt.v, (int32_t)job->prompt.len, job->scope, true, &common);
    if (snapshot != NULL) found = tokens_note_divergence(&job->prompt, &snapshot->tokens, nearest) || found;
    if (!found || nearest->common < job->nearest.divergence.common) return;
    job->nearest = (struct nearest){.divergence = *nearest, .where = resident};
}

/* Why fewer than these tokens are reused, as far as the configuration and the model decide it. */
static const char *limit_of(const struct engine *engine, const struct job *job, int32_t common)
{
    if (!job->cache_prompt) return "cache_prompt";
    if (!cache_policy_keeps(&engine->policy)) return "incremental_cache";
    if (engine->policy.keeps_system_prompts) return "system_prompt_cache";
    if (common < engine->policy.min_tokens) return "cache_min_tokens";
    if (!engine->policy.cuts_anywhere) return "checkpoints";
    return engine->deterministic ? "deterministic" : "unfinished";
}

static void note_nearest(const struct engine *engine, struct job *job, int32_t reused)
{
    struct divergence nearest = {0};
    note_resident(engine, job, &nearest);
    int32_t common = job->nearest.divergence.common, last = (int32_t)job->prompt.len - 1;
    if (reused < (common < last ? common : last)) job->nearest.limit = limit_of(engine, job, common);
}

/* ---- Lookups ---- */

void lookup_answer(struct engine *engine, struct job *job)
{
    assert_thread(&engine->owner);
    hearth_result result = {.slot = -1, .lookup = {.prompt = (int32_t)job->prompt.len}};
    job_note_stages(job, &result);
    hearth_cache_lookup *lookup = &result.lookup;
    lookup->resident = find_resident(engine, job);
    lookup->reusable = find_reusable(engine, job, lookup->resident);
    int32_t most = 0;
    for (enum store_tier i = 0; job->hit != NULL && i < STORE_TIERS; i++) {
        struct slab_key key;
        lookup->tiers[i] = store_hit_tokens_in(job->hit, i);
        if (lookup->tiers[i] <= most || !store_hit_key(job->hit, i, &key)) continue;
        most = lookup->tiers[i];
        sha256_to_hex(key.v, lookup->key);
    }
    fetch_release(job);
    note_nearest(engine, job, lookup->reusable);
    if (job->on_looked_up == NULL) {
        job_done(job, &result);
        return;
    }
    job_enter(job, JOB_OUTSIDE);
    job->on_looked_up(job, &result);
}

/* ---- The log ---- */

static bool is_large_miss(const struct job *job, int32_t n_prompt, int32_t reused)
{
    return job->cache_prompt && job->prompt_logprobs < 0 && n_prompt >= LONG_PROMPT && reused < n_prompt / 2;
}

/* The store's nearest list may have been noted before, with its tokens. */
void nearest_note(const struct engine *engine, struct job *job, const struct placement *placement)
{
    enum store_tier tier = 0;
    if (!engine->policy.keeps_conversations) return;
    if (!is_large_miss(job, (int32_t)job->prompt.len, placement->n)) return;
    int32_t common = job->hit == NULL ? 0 : store_hit_common(job->hit, &tier);
    if (common > job->nearest.divergence.common)
        job->nearest = (struct nearest){.divergence.common = common, .where = store_tier_names[tier]};
    int32_t reusable = find_reusable(engine, job, find_resident(engine, job));
    note_nearest(engine, job, reusable);
    if (placement->n < reusable)
        job->nearest.limit = "price"; /* computing is cheaper, or there is no room to reuse it */
}

static void append_words(const struct engine *engine, const int32_t *tokens, int32_t n, struct buf *out)
{
    for (int32_t i = 0; i < n; i++) llm_token_bytes(engine->model, tokens[i], true, out);
}

static void log_words(const struct engine *engine, const struct job *job)
{
    const struct divergence *divergence = &job->nearest.divergence;
    struct buf prompt = {0}, nearest = {0};
    int32_t rest = (int32_t)job->prompt.len - divergence->common;
    append_words(engine, job->prompt.v + divergence->common, rest < LOGGED_TOKENS ? rest : LOGGED_TOKENS, &prompt);
    append_words(engine, divergence->next, divergence->n_next < LOGGED_TOKENS ? divergence->n_next : LOGGED_TOKENS,
                 &nearest);
    log_event(LOG_INFO, "imc", "words where the prompt diverges", log_str("id", job->id),
              log_str("prompt", buf_text(&prompt)), log_str("nearest", buf_text(&nearest)));
    buf_release(&prompt);
    buf_release(&nearest);
}

void nearest_log(const struct engine *engine, const struct slot *slot)
{
    const struct job *job = slot->job;
    const struct nearest *nearest = &job->nearest;
    const struct run *run = slot->run;
    if (nearest->where == NULL || !is_large_miss(job, run->n_prompt, run->n_cached)) return;
    log_event(LOG_INFO, "imc", "most of the prompt was computed: nearest prompt", log_str("id", job->id),
              log_int("prompt_tokens", run->n_prompt), log_int("cached_tokens", run->n_cached),
              log_str("nearest", nearest->where), log_int("common_tokens", nearest->divergence.common),
              log_str("limit", nearest->limit == NULL ? "none" : nearest->limit));
    if (engine->logs_words) log_words(engine, job);
}
