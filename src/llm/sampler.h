/* Picks tokens: a chain of samplers for one request, with its own random state, a grammar and a budget of reasoning.
 *
 * With temperature <= 0 the most likely token after bias, penalties and grammar is taken. A sampler is opened on any
 * thread, replaying the prompt's end, and belongs to the thread that decodes from its first use on. */
#ifndef LLM_SAMPLER_H
#define LLM_SAMPLER_H

#include "llm/context.h"

struct llm_sampler;

/* What a reply must match. */
struct llm_grammar {
    const char *text;         /* GBNF with a rule "root"; NULL or "": anything */
    const char *prefill;      /* what the prompt has said already of what must match; NULL: nothing */
    bool lazy;                /* holds only from the first trigger on */
    const char *const *words; /* triggers: texts; what must match begins with them */
    size_t n_words;
    const char *const *patterns; /* triggers: regular expressions (grammar/patterns.h) */
    size_t n_patterns;
    const int32_t *tokens; /* triggers: tokens */
    size_t n_tokens;
};

/* How a reply's reasoning is marked, and how long it may be. */
struct llm_thinking {
    const char *start; /* NULL: there is none */
    const char *const *ends;
    size_t n_ends;
    const char *prefill; /* the end of the prompt: it may have begun the reasoning; NULL: nothing */
    const char *message; /* said before the first of `ends` when the budget is used up; NULL: nothing */
    int32_t budget;      /* tokens; -1: no limit */
};

struct llm_sampling {
    hearth_sampling params; /* everything is given */
    int32_t window;        /* tokens that penalties can look back at */
    struct llm_grammar grammar;
    struct llm_thinking thinking;
};

/* The name of the sampler that this name, or one letter of llama-server's, means: "topk", "top-k" and "k" are "top_k".
 * The string is constant. NULL: there is none. */
const char *llm_sampler_name(const char *name);

/* The order of the samplers where none is given. */
const char *const *llm_sampler_order(size_t *n);

/* The penalties start with the prompt's last tokens. Nothing of `sampling` is kept. NULL: the grammar has a fault. */
struct llm_sampler *llm_sampler_open(const struct llm_model *model, const struct llm_sampling *sampling,
                                     const struct tokens *prompt, hearth_error *error);
void llm_sampler_close(struct llm_sampler *sampler);

/* Picks from the logits of that row of the last decode, and remembers the choice for the penalties. Negative: no token
 * fits the grammar. */
int32_t llm_sample(struct llm_sampler *sampler, struct llm_context *context, int32_t row);

/* How often the whole vocabulary was gone through for the grammar. */
size_t llm_sampler_passes(const struct llm_sampler *sampler);

#endif
