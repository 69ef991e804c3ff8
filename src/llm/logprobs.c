/* Logprobs by log-softmax, with the bytes of their tokens: see logprobs.h. */
#include "llm/logprobs.h"

#include "base/memory.h"
#include "llm/candidates.h"
#include "llm/logits.h"

#include <math.h>
#include <stdlib.h>

struct llm_logprobs {
    const struct llm_model *model;
    hearth_logprob *top;
    size_t top_cap;
    struct buf bytes; /* of all tokens of the result */
    hearth_logprobs result;
};

/* ---- Results ---- */

static size_t reserve_top(struct llm_logprobs *c, int32_t n_top)
{
    size_t n = n_top > 0 ? (size_t)n_top : 0, n_vocab = (size_t)llm_model_info(c->model)->n_vocab;
    if (n > n_vocab) n = n_vocab;
    if (n > c->top_cap) {
        c->top = mem_grow(c->top, n, sizeof *c->top);
        c->top_cap = n;
    }
    return n;
}

static void put_bytes(struct llm_logprobs *c, hearth_logprob *logprob)
{
    size_t before = c->bytes.len;
    llm_token_bytes(c->model, logprob->token, true, &c->bytes);
    logprob->n_bytes = c->bytes.len - before;
}

/* The buffer may move while it grows, so pointers into it are set at the end. */
static void point_at_bytes(const struct llm_logprobs *c, hearth_logprob *logprob, size_t *at)
{
    logprob->bytes = c->bytes.v == NULL ? "" : c->bytes.v + *at;
    *at += logprob->n_bytes;
}

static const hearth_logprobs *report(struct llm_logprobs *c, hearth_logprob chosen, size_t n_top)
{
    size_t at = 0;
    buf_clear(&c->bytes);
    c->result = (hearth_logprobs){.chosen = chosen, .top = c->top, .n_top = n_top};
    put_bytes(c, &c->result.chosen);
    for (size_t i = 0; i < n_top; i++) put_bytes(c, &c->top[i]);
    point_at_bytes(c, &c->result.chosen, &at);
    for (size_t i = 0; i < n_top; i++) point_at_bytes(c, &c->top[i], &at);
    return &c->result;
}

const hearth_logprobs *llm_logprobs_of_model(struct llm_logprobs *c, struct llm_context *context, int32_t index,
                                             int32_t chosen, int32_t n_top)
{
    const float *logits = llm_logits(context, index);
    size_t n_vocab = (size_t)llm_model_info(c->model)->n_vocab;
    double sum = logits_log_sum(logits, n_vocab);
    size_t room = reserve_top(c, n_top), n = logits_largest(logits, n_vocab, c->top, room);
    for (size_t i = 0; i < n; i++) c->top[i].log -= sum;
    report(c, (hearth_logprob){.token = chosen, .log = (double)logits[chosen] - sum}, n);
    c->result.rank = (int32_t)logits_above(logits, n_vocab, logits[chosen]) + 1;
    return &c->result;
}

/* Greedy sampling: the token had probability 1. */
static const hearth_logprobs *report_certain(struct llm_logprobs *c, int32_t chosen, size_t n_top)
{
    hearth_logprob certain = {.token = chosen};
    if (n_top > 0) c->top[0] = certain;
    return report(c, certain, n_top > 0 ? 1 : 0);
}

const hearth_logprobs *llm_logprobs_post_sampling(struct llm_logprobs *c, const struct llm_sampler *sampler,
                                                  int32_t chosen, int32_t n_top)
{
    const llama_token_data_array *candidates = llm_sampler_candidates(sampler);
    size_t room = reserve_top(c, n_top), n = 0;
    if (candidates == NULL) return report_certain(c, chosen, room);
    hearth_logprob one = {.token = chosen, .log = -INFINITY};
    for (size_t i = 0; i < candidates->size; i++) {
        const llama_token_data *data = &candidates->data[i];
        hearth_logprob other = {.token = data->id, .log = log((double)data->p)};
        if (data->id == chosen) one = other;
        if (data->p > 0) n = logits_offer(c->top, n, room, other);
    }
    logits_sort(c->top, n);
    return report(c, one, n);
}

/* ---- Life ---- */

struct llm_logprobs *llm_logprobs_open(const struct llm_model *model)
{
    struct llm_logprobs *logprobs = mem_alloc(sizeof *logprobs);
    logprobs->model = model;
    return logprobs;
}

void llm_logprobs_close(struct llm_logprobs *logprobs)
{
    if (logprobs == NULL) return;
    free(logprobs->top);
    buf_release(&logprobs->bytes);
    free(logprobs);
}
