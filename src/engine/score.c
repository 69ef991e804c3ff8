/* The logprobs of a prompt's tokens. The logits at a position say how likely the token behind it was. So a scored
 * prompt is computed with the logits of every token. Nothing of it can come from the cache but tokens that were scored
 * already, before its cells were lost. Logits become logprobs right after their decode call, of which no more than
 * PREFILL_CHUNK rows are wanted for that, of all prompts together. Runs on the engine's thread. */
#include "engine/core.h"
#include "engine/tick.h"

/* While replies are streamed, at most this part of a tick's time goes to making logprobs of logits; and so many rows
 * before it is known what one takes. */
#define SCORING_PART 4
#define FIRST_ROWS   8

bool score_wants(const struct job *job, int32_t position)
{
    return job->prompt_logprobs >= 0 && position >= job->n_scored && position + 1 < (int32_t)job->prompt.len;
}

bool score_needs(const struct job *job, const struct plan_need *need)
{
    int32_t first = need->from > job->n_scored ? need->from : job->n_scored;
    return first < need->to && score_wants(job, first);
}

int32_t score_reusable(const struct job *job, int32_t n)
{
    return score_wants(job, job->n_scored) && job->n_scored < n ? job->n_scored : n;
}

int32_t score_rows(const struct engine *engine, double ns)
{
    if (engine->score_ns <= 0) return FIRST_ROWS;
    double rows = ns / SCORING_PART / engine->score_ns;
    return rows < 1 ? 1 : rows > PREFILL_CHUNK ? PREFILL_CHUNK : (int32_t)rows;
}

void score_share(struct engine *engine, struct slot *slot, const struct plan_share *share, int32_t first_token)
{
    assert_thread(&engine->owner);
    struct job *job = slot->job;
    int64_t begin = clock_now(engine->clock);
    int32_t rows = 0;
    for (int32_t at = share->from; at < share->to; at++) {
        if (!score_wants(job, at)) continue;
        job_send_prompt_logprobs(job, llm_logprobs_of_model(engine->logprobs, engine->context,
                                                            first_token + at - share->from, job->prompt.v[at + 1],
                                                            job->prompt_logprobs));
        job->n_scored = at + 1;
        rows++;
    }
    if (rows == 0) return;
    int64_t ns = clock_now(engine->clock) - begin;
    engine->scoring_ns += ns;
    engine_blend(&engine->score_ns, (double)ns / rows);
}
