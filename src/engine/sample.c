/* Samples the next tokens of a reply from the logits of a call, and adds them to it. Runs on the engine's thread,
 * behind a decode call that succeeded. */
#include "engine/core.h"
#include "engine/draft.h"
#include "engine/tick.h"

#include "base/error.h"

#include <string.h>

static void token_came(struct engine *engine, struct slot *slot)
{
    struct run *run = slot->run;
    if (slot->state != SLOT_GENERATES) slot_enter(slot, SLOT_GENERATES);
    run->last_token_at = clock_now(engine->clock);
    if (run->n_predicted == 0) {
        run->first_token_at = run->last_token_at;
        histogram_observe(&engine->stats->first_token, &histogram_seconds,
                          clock_to_ms(run->first_token_at - slot->job->submitted_at) / 1e3);
    }
    run->n_predicted++;
    metric_add(&engine->stats->generated_tokens, 1);
}

static const hearth_logprobs *logprobs_of(struct engine *engine, const struct slot *slot, int32_t token,
                                          int32_t batch_index)
{
    const struct job *job = slot->job;
    if (job->top_logprobs < 0) return NULL;
    if (job->post_sampling_probs)
        return llm_logprobs_post_sampling(engine->logprobs, slot->run->sampler, token, job->top_logprobs);
    return llm_logprobs_of_model(engine->logprobs, engine->context, batch_index, token, job->top_logprobs);
}

/* Adds the sampled token to the reply. */
static struct ending add_token(struct engine *engine, struct slot *slot, const struct job_text *text)
{
    struct run *run = slot->run;
    struct job *job = slot->job;
    struct buf *bytes = &engine->token_bytes;
    bool is_shown = false; /* some special tokens are part of a format that the reply is parsed by */
    for (size_t i = 0; i < job->n_shown; i++) is_shown = is_shown || job->shown[i] == text->token;
    buf_clear(bytes);
    llm_token_bytes(engine->model, text->token, is_shown, bytes);
    const char *stop = reply_add(&run->reply, bytes->v == NULL ? "" : bytes->v, bytes->len);
    struct job_text sent = *text;
    if (stop != NULL && run->reply.ready.len == 0) sent.logprobs = NULL; /* the token is not part of the reply */
    job_send_text(job, &sent);
    if (stop != NULL) return (struct ending){.how = STOPS, .finish = HEARTH_FINISH_STOP, .stop = stop};
    /* The time limit of the reply has passed, and its line has ended. */
    bool is_late = job->max_ns > 0 && run->last_token_at - run->first_token_at > job->max_ns && bytes->v != NULL &&
                   memchr(bytes->v, '\n', bytes->len) != NULL;
    if (run->n_predicted >= run->max_tokens || is_late)
        return (struct ending){.how = STOPS, .finish = HEARTH_FINISH_LENGTH};
    tokens_push(&slot->seq->tokens, text->token);
    return (struct ending){.how = GOES_ON};
}

void end_reply(struct engine *engine, struct slot *slot)
{
    const struct ending *ending = &slot->run->ending;
    hearth_error error;
    if (ending->how == STOPS) {
        finish_done(engine, slot, ending->finish, ending->stop);
    } else if (ending->how == HAS_NO_TOKEN) {
        error_at(
            &error, HEARTH_INVALID, "grammar",
            "no token of the model can go on with the reply: the grammar leaves none, or can be read in too many ways");
        finish_failed(engine, slot, &error);
    }
}

/* Sampling that takes longer than this part of the longest gap is held back, so that others have so many times as much
 * of the engine's thread. A grammar that is costly to match slows down its own reply. */
#define LONG_PART   32
#define HELD_FACTOR 3

/* Samples the next token from the logits of the batch token with that index. */
static struct ending sample(struct engine *engine, struct slot *slot, int32_t batch_index)
{
    struct run *run = slot->run;
    const struct buf nothing = {0};
    if (run->max_tokens <= 0) return (struct ending){.how = STOPS, .finish = HEARTH_FINISH_LENGTH};
    int64_t began_at = clock_now(engine->clock);
    int32_t token = llm_sample(run->sampler, engine->context, batch_index);
    int64_t now = clock_now(engine->clock);
    run->sampled_ns += now - began_at;
    bool is_long = (double)run->sampled_ns * LONG_PART > engine->tick_budget.max_ns;
    run->held_until = is_long ? now + HELD_FACTOR * run->sampled_ns : 0;
    if (token < 0) return (struct ending){.how = HAS_NO_TOKEN};
    token_came(engine, slot);
    if (llm_token_ends_generation(engine->model, token) && !slot->job->ignore_eos) {
        /* The token is no part of the reply's text, but a client that scores prompts counts tokens. */
        if (slot->job->prompt_logprobs >= 0 && slot->job->top_logprobs >= 0)
            job_send_text(slot->job, &(struct job_text){.text = &nothing,
                                                        .token = token,
                                                        .logprobs = logprobs_of(engine, slot, token, batch_index),
                                                        .result = slot_result(slot)});
        return (struct ending){.how = STOPS, .finish = HEARTH_FINISH_STOP};
    }
    struct job_text text = {.text = &run->reply.ready,
                            .token = token,
                            .logprobs = logprobs_of(engine, slot, token, batch_index),
                            .result = slot_result(slot)};
    struct ending ending = add_token(engine, slot, &text);
    if (ending.how == GOES_ON) draft_keep_row(engine, slot, batch_index);
    return ending;
}

void sample_drafted(struct engine *engine, struct slot *slot, int32_t drafted, int32_t batch_index)
{
    struct seq *seq = slot->seq;
    int32_t n = 0;
    for (;; n++) {
        slot->run->ending = sample(engine, slot, batch_index + n);
        bool right =
            slot->run->ending.how == GOES_ON && draft_note(engine, slot, n, seq->tokens.v[seq->tokens.len - 1]);
        bool dear = slot->run->held_until > 0; /* others get the thread first */
        if (!right || dear || n == drafted) break;
    }
    draft_count(engine, slot, drafted, n);
    slot->run->draft.n = 0;
    seq->n_cells += n;
    if (n < drafted) draft_cut(engine, slot, seq->n_cells);
}

void sample_one(struct engine *engine, struct slot *slot, int32_t batch_index)
{
    slot->run->ending = sample(engine, slot, batch_index);
    if (slot->run->ending.how == GOES_ON) draft_note(engine, slot, 0, slot->seq->tokens.v[slot->seq->tokens.len - 1]);
    draft_count(engine, slot, 0, 0);
    slot->run->draft.n = 0;
}
