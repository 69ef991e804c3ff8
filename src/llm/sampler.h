/* Samples tokens: the sampler chain of one request, with its own random state, output constraint and reasoning budget.
 *
 * With temperature <= 0 sampling is greedy: the most likely token after bias, penalties and grammar. A sampler is
 * opened on any thread, where its penalties accept the prompt's last tokens, and belongs to the thread that decodes
 * from its first use on. */
#ifndef LLM_SAMPLER_H
#define LLM_SAMPLER_H

#include "llm/context.h"

struct llm_sampler;

/* The output constraint of a reply. */
struct llm_grammar {
    const char *text;         /* GBNF with a rule "root"; NULL or "": anything */
    const char *prefill;      /* the end of the prompt, which the grammar must match first; NULL: nothing */
    bool lazy;                /* the grammar holds only from the first trigger on */
    const char *const *words; /* triggers: texts; the grammar matches from their first byte on */
    size_t n_words;
    const char *const *patterns; /* triggers: regular expressions (grammar/patterns.h) */
    size_t n_patterns;
    const int32_t *tokens; /* triggers: tokens */
    size_t n_tokens;
    const int32_t *shown; /* special tokens whose text the reply shows: the grammar matches what the client gets */
    size_t n_shown;
};

/* The tags around a reply's reasoning, and its budget. */
struct llm_thinking {
    const char *start; /* start tag; NULL: the model does not reason */
    const char *const *ends;
    size_t n_ends;
    const char *prefill; /* the end of the prompt, which may have begun the reasoning; NULL: nothing */
    const char *message; /* forced before the first of `ends` when the budget is used up; NULL: nothing */
    int32_t budget;      /* tokens; -1: no limit */
};

struct llm_sampling {
    hearth_sampling params; /* every parameter is set */
    int32_t window;         /* tokens that penalties may look back at, at most */
    struct llm_grammar grammar;
    struct llm_thinking thinking;
};

/* The canonical name of a sampler, from a spelling of it or llama-server's letter: "topk", "top-k" and "k" are "top_k".
 * The string is constant. NULL: unknown. */
const char *llm_sampler_name(const char *name);

/* The default order of samplers. */
const char *const *llm_sampler_order(size_t *n);

/* Keeps no pointer into `sampling`. NULL: the grammar is invalid. */
struct llm_sampler *llm_sampler_open(const struct llm_model *model, const struct llm_sampling *sampling,
                                     const struct tokens *prompt, hearth_error *error);
void llm_sampler_close(struct llm_sampler *sampler);

/* Samples from the logits of that batch token of the last decode, and accepts the token into penalties and grammar.
 * Negative: the grammar accepts no token. */
int32_t llm_sample(struct llm_sampler *sampler, struct llm_context *context, int32_t index);

/* Tokens that must come next, or nearly must: text that the output constraint leaves no choice in. A guess, at most
 * `max` of them; returns how many. Nothing else changes. */
int32_t llm_sampler_guess(struct llm_sampler *sampler, int32_t *tokens, int32_t max);

/* How often the grammar's mask over the whole vocabulary was computed. */
size_t llm_sampler_passes(const struct llm_sampler *sampler);

#endif
