/* A chain of llama.cpp's samplers for one request. Only what changes something is in it, so that a greedy request
 * costs one pass over the logits. Owned by the request, used on the thread that decodes. */
#include "llm/sampler.h"

#include "base/memory.h"
#include "llm/private.h"

#include <math.h>
#include <stdlib.h>

struct llm_sampler {
    struct llama_sampler *chain;
};

/* ---- Bias ---- */

struct bias_list {
    llama_logit_bias *v;
    size_t len, cap;
};

static void add_bias(struct bias_list *list, int32_t token, float bias)
{
    if (list->len == list->cap) {
        list->cap = list->cap == 0 ? 16 : list->cap * 2;
        list->v = mem_grow(list->v, list->cap, sizeof *list->v);
    }
    list->v[list->len++] = (llama_logit_bias){.token = token, .bias = bias};
}

static void add_forbidden(struct bias_list *list, const struct llama_vocab *vocab, bool ignore_eos)
{
    int32_t n_suppressed = 0; /* tokens that the model's file says must never be picked */
    const llama_token *suppressed = llama_vocab_get_suppress_tokens(vocab, &n_suppressed);
    for (int32_t i = 0; i < n_suppressed; i++) add_bias(list, suppressed[i], -INFINITY);
    if (!ignore_eos) return;
    for (int32_t token = 0; token < llama_vocab_n_tokens(vocab); token++)
        if (llama_vocab_is_eog(vocab, token)) add_bias(list, token, -INFINITY);
}

static void add_bias_sampler(struct llama_sampler *chain, const struct llama_vocab *vocab,
                             const struct llm_sampling *sampling)
{
    struct bias_list list = {0};
    int32_t n_vocab = llama_vocab_n_tokens(vocab);
    for (size_t i = 0; i < sampling->n_bias; i++)
        if (sampling->bias[i].token >= 0 && sampling->bias[i].token < n_vocab)
            add_bias(&list, sampling->bias[i].token, sampling->bias[i].bias);
    add_forbidden(&list, vocab, sampling->ignore_eos);
    if (list.len > 0) llama_sampler_chain_add(chain, llama_sampler_init_logit_bias(n_vocab, (int32_t)list.len, list.v));
    free(list.v);
}

/* ---- Penalties ---- */

static void add_penalties(struct llama_sampler *chain, int32_t n_vocab, const struct llm_sampling *sampling,
                          const struct tokens *prompt)
{
    /* llama.cpp allocates what it is told to look at, so a number out of a request must not go beyond the window. */
    bool all = sampling->repeat_last_n < 0 || sampling->repeat_last_n > sampling->window;
    int32_t last_n = all ? sampling->window : sampling->repeat_last_n;
    bool off = sampling->repeat_penalty == 1 && sampling->frequency_penalty == 0 && sampling->presence_penalty == 0;
    if (off || last_n <= 0) return;
    struct llama_sampler *penalties =
        llama_sampler_init_penalties(n_vocab, last_n, (float)sampling->repeat_penalty,
                                     (float)sampling->frequency_penalty, (float)sampling->presence_penalty);
    size_t first = prompt->len > (size_t)last_n ? prompt->len - (size_t)last_n : 0;
    for (size_t i = first; i < prompt->len; i++) llama_sampler_accept(penalties, prompt->v[i]);
    llama_sampler_chain_add(chain, penalties);
}

/* ---- The chain ---- */

static void add_choice(struct llama_sampler *chain, const struct llm_sampling *sampling)
{
    if (!(sampling->temperature > 0)) {
        llama_sampler_chain_add(chain, llama_sampler_init_greedy());
        return;
    }
    if (sampling->top_k > 0) llama_sampler_chain_add(chain, llama_sampler_init_top_k(sampling->top_k));
    if (sampling->top_p < 1) llama_sampler_chain_add(chain, llama_sampler_init_top_p((float)sampling->top_p, 1));
    if (sampling->min_p > 0) llama_sampler_chain_add(chain, llama_sampler_init_min_p((float)sampling->min_p, 1));
    if (sampling->temperature != 1)
        llama_sampler_chain_add(chain, llama_sampler_init_temp((float)sampling->temperature));
    /* llama.cpp takes this one number for "random". */
    uint32_t seed = sampling->seed == LLAMA_DEFAULT_SEED ? LLAMA_DEFAULT_SEED - 1 : sampling->seed;
    llama_sampler_chain_add(chain, llama_sampler_init_dist(seed));
}

struct llm_sampler *llm_sampler_open(const struct llm_model *model, const struct llm_sampling *sampling,
                                     const struct tokens *prompt)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(llm_model_handle(model));
    struct llm_sampler *sampler = mem_alloc(sizeof *sampler);
    struct llama_sampler_chain_params params = {.no_perf = true};
    sampler->chain = llama_sampler_chain_init(params);
    add_bias_sampler(sampler->chain, vocab, sampling);
    add_penalties(sampler->chain, llama_vocab_n_tokens(vocab), sampling, prompt);
    add_choice(sampler->chain, sampling);
    return sampler;
}

void llm_sampler_close(struct llm_sampler *sampler)
{
    if (sampler == NULL) return;
    llama_sampler_free(sampler->chain);
    free(sampler);
}

int32_t llm_sample(struct llm_sampler *sampler, struct llm_context *context, int32_t row)
{
    return llama_sampler_sample(sampler->chain, llm_context_handle(context), row); /* which accepts its choice */
}
