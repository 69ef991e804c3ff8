/* Accumulates the deltas of one choice's response: see answer.h. */
#include "serve/core/answer.h"

#include "base/json_text.h"
#include "base/memory.h"

#include <jansson.h>
#include <stdlib.h>

static void begin_part(struct answer *answer, struct answer_part part)
{
    part.first_logprobs = answer->n_parts == 0 ? 0 : answer->n_logprobs;
    answer->parts = mem_grow(answer->parts, answer->n_parts + 1, sizeof *answer->parts);
    answer->parts[answer->n_parts++] = part;
}

static void add_text(struct answer *answer, struct buf *text, const hearth_delta *delta)
{
    if (delta->len == 0) return;
    if (answer->n_parts == 0 || answer->parts[answer->n_parts - 1].type != delta->type)
        begin_part(answer, (struct answer_part){.type = delta->type, .start = text->len});
    buf_append(text, delta->text, delta->len);
    answer->parts[answer->n_parts - 1].len += delta->len;
}

void answer_add(struct answer *answer, const hearth_delta *delta)
{
    switch (delta->type) {
    case HEARTH_DELTA_REASONING:
        add_text(answer, &answer->reasoning, delta);
        break;
    case HEARTH_DELTA_CONTENT:
        add_text(answer, &answer->text, delta);
        break;
    case HEARTH_DELTA_CALL:
        begin_part(answer, (struct answer_part){.type = HEARTH_DELTA_CALL, .call = answer->n_calls});
        answer->calls = mem_grow(answer->calls, answer->n_calls + 1, sizeof *answer->calls);
        answer->calls[answer->n_calls++] =
            (struct answer_call){.id = mem_strdup(delta->id), .name = mem_strdup(delta->name)};
        break;
    case HEARTH_DELTA_ARGUMENTS:
        buf_append(&answer->calls[delta->index].arguments, delta->text, delta->len);
        break;
    }
}

void answer_add_token(struct answer *answer)
{
    if (answer->n_parts > 0 && answer->parts[answer->n_parts - 1].type == HEARTH_DELTA_REASONING) answer->reasoning_n++;
}

/* A prompt has many: the list doubles. */
static void add_logprobs(struct token_logprobs ***list, size_t *n, struct token_logprobs *logprobs)
{
    bool is_full = (*n & (*n - 1)) == 0;
    if (is_full) *list = mem_grow(*list, *n == 0 ? 1 : 2 * *n, sizeof(struct token_logprobs *));
    (*list)[(*n)++] = logprobs;
}

void answer_add_logprobs(struct answer *answer, struct token_logprobs *logprobs)
{
    add_logprobs(&answer->logprobs, &answer->n_logprobs, logprobs);
}

void answer_add_prompt_logprobs(struct answer *answer, struct token_logprobs *logprobs)
{
    add_logprobs(&answer->prompt_logprobs, &answer->n_prompt_logprobs, logprobs);
}

void answer_put_arguments(struct buf *out, const struct answer_call *call)
{
    const struct buf *text = &call->arguments;
    json_t *arguments = text->len == 0 ? NULL : json_text_read(text->v, text->len, NULL);
    if (json_text_is_object(arguments))
        buf_append(out, text->v, text->len);
    else
        buf_puts(out, "{}");
    json_decref(arguments);
}

void answer_put_left_out(struct buf *out, const struct answer *answer)
{
    if (answer->n_left_out > 0) buf_printf(out, ",\"left_out\":%zu", answer->n_left_out);
}

void answer_release(struct answer *answer)
{
    for (size_t i = 0; i < answer->n_calls; i++) {
        free(answer->calls[i].id);
        free(answer->calls[i].name);
        buf_release(&answer->calls[i].arguments);
    }
    for (size_t i = 0; i < answer->n_logprobs; i++) free(answer->logprobs[i]);
    free(answer->calls);
    free(answer->parts);
    for (size_t i = 0; i < answer->n_prompt_logprobs; i++) free(answer->prompt_logprobs[i]);
    free(answer->logprobs);
    free(answer->prompt_logprobs);
    tokens_release(&answer->tokens);
    buf_release(&answer->text);
    buf_release(&answer->reasoning);
    *answer = (struct answer){0};
}

/* ---- Timings ---- */

static double per_second(int32_t n, double ms)
{
    return ms > 0 ? n * 1000.0 / ms : 0;
}

static double per_token(int32_t n, double ms)
{
    return n > 0 ? ms / n : 0;
}

/* The first token comes with the prompt's last decode call: predicted_ms is the time of those after it. */
void timings_put(struct buf *out, const hearth_result *r)
{
    int32_t timed = r->predicted_n - 1;
    buf_printf(out,
               ",\"timings\":{\"cache_n\":%d,\"prompt_n\":%d,\"prompt_ms\":%.3f,\"prompt_per_token_ms\":%.3f,"
               "\"prompt_per_second\":%.3f,",
               r->cache_n, r->prompt_n, r->prompt_ms, per_token(r->prompt_n, r->prompt_ms),
               per_second(r->prompt_n, r->prompt_ms));
    buf_printf(out,
               "\"predicted_n\":%d,\"predicted_ms\":%.3f,\"predicted_per_token_ms\":%.3f,"
               "\"predicted_per_second\":%.3f,\"queue_ms\":%.3f,\"restore_ms\":%.3f",
               r->predicted_n, r->predicted_ms, per_token(timed, r->predicted_ms), per_second(timed, r->predicted_ms),
               r->queue_ms, r->restore_ms);
    if (r->draft_n > 0) buf_printf(out, ",\"draft_n\":%d,\"draft_n_accepted\":%d", r->draft_n, r->draft_accepted_n);
    if (r->too_short_n > 0)
        buf_printf(out, ",\"not_reused\":{\"tokens\":%d,\"reason\":\"cache_min_tokens\"}", r->too_short_n);
    buf_puts(out, "}");
}

void timings_put_progress(struct buf *out, const hearth_result *r)
{
    buf_printf(out, ",\"prompt_progress\":{\"total\":%d,\"cache\":%d,\"processed\":%d,\"time_ms\":%.0f}", r->n_prompt,
               r->cache_n, r->cache_n + r->prompt_n, r->prompt_ms);
}
