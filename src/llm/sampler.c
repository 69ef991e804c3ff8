/* Samples one token: first the chain, unconstrained; then the grammar checks the token, and only where it rejects it is
 * the mask over the vocabulary computed and the chain run again. A token that the reasoning budget forces comes before
 * both. Owned by the request, used on the thread that decodes. */
#include "llm/sampler.h"

#include "base/memory.h"
#include "llm/candidates.h"
#include "llm/chain.h"
#include "llm/constraint.h"
#include "llm/thinking.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_RESAMPLES = 16 }; /* before the mask is computed, while a lazy grammar awaits its trigger */

struct llm_sampler {
    struct chain chain;
    struct constraint *constraint; /* NULL: none */
    bool lazy;
    struct thinking *thinking; /* NULL: no budget, and no grammar waits for the end of the reasoning */
    llama_token_data *tokens;  /* n_vocab; the candidates of the last token */
    llama_token_data_array candidates;
    int32_t n_vocab;
};

/* ---- Candidates ---- */

static void put_logits(struct llm_sampler *s, const float *logits)
{
    for (int32_t i = 0; i < s->n_vocab; i++) s->tokens[i] = (llama_token_data){.id = i, .logit = logits[i]};
    s->candidates = (llama_token_data_array){.data = s->tokens, .size = (size_t)s->n_vocab, .selected = -1};
}

/* Mask all tokens but one, or but the allowed ones. */
static void keep_only(struct llm_sampler *s, int32_t token)
{
    for (int32_t i = 0; i < s->n_vocab; i++)
        if (i != token) s->tokens[i].logit = -INFINITY;
}

static void keep_allowed(struct llm_sampler *s, const bool *allowed)
{
    for (int32_t i = 0; i < s->n_vocab; i++)
        if (!allowed[i]) s->tokens[i].logit = -INFINITY;
}

static int32_t selected(const struct llm_sampler *s)
{
    return s->candidates.selected < 0 ? -1 : s->candidates.data[s->candidates.selected].id;
}

/* Eight independent maxima at a time, which the compiler vectorises: this is all that a greedy token costs. */
static float largest(const float *logits, int32_t n)
{
    float most[8];
    for (int j = 0; j < 8; j++) most[j] = -INFINITY;
    for (int32_t i = 0; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) most[j] = logits[i + j] > most[j] ? logits[i + j] : most[j];
    for (int32_t i = n / 8 * 8; i < n; i++) most[0] = logits[i] > most[0] ? logits[i] : most[0];
    for (int j = 1; j < 8; j++) most[0] = most[j] > most[0] ? most[j] : most[0];
    return most[0];
}

static int32_t argmax(const float *logits, int32_t n)
{
    float most = largest(logits, n);
    for (int32_t i = 0; i < n; i++)
        if (logits[i] == most) return i;
    return 0;
}

/* ---- Sampling ---- */

static int32_t sample_unconstrained(struct llm_sampler *s, const float *logits)
{
    int32_t forced = s->thinking == NULL ? -1 : thinking_forced(s->thinking);
    if (s->chain.plain) {
        s->candidates.size = 0;
        return forced >= 0 ? forced : argmax(logits, s->n_vocab);
    }
    put_logits(s, logits);
    if (forced >= 0)
        keep_only(s, forced); /* the chain is applied all the same: its random state advances as with any token */
    llama_sampler_apply(s->chain.samplers, &s->candidates);
    return forced >= 0 ? forced : selected(s);
}

static int32_t sample_constrained(struct llm_sampler *s, const float *logits)
{
    put_logits(s, logits);
    keep_allowed(s, constraint_allowed(s->constraint));
    llama_sampler_apply(s->chain.samplers, &s->candidates);
    int32_t token = selected(s);
    return token >= 0 && constraint_allows(s->constraint, token) ? token : -1; /* the mask may allow no token */
}

/* Samples again without the tokens that the grammar rejected. -1: MAX_RESAMPLES further ones were rejected too. */
static int32_t resample(struct llm_sampler *s, const float *logits, int32_t token)
{
    int32_t refused[MAX_RESAMPLES];
    for (int n = 0; n < MAX_RESAMPLES; n++) {
        refused[n] = token;
        put_logits(s, logits);
        for (int i = 0; i <= n; i++) s->tokens[refused[i]].logit = -INFINITY;
        llama_sampler_apply(s->chain.samplers, &s->candidates);
        token = selected(s);
        if (token < 0 || constraint_allows(s->constraint, token)) return token;
    }
    return -1;
}

/* A lazy grammar does not constrain reasoning. */
static bool constraint_holds(const struct llm_sampler *s)
{
    return s->constraint != NULL && !(s->lazy && s->thinking != NULL && thinking_is_on(s->thinking));
}

static int32_t sample_token(struct llm_sampler *s, const float *logits)
{
    int32_t token = sample_unconstrained(s, logits);
    if (token < 0 || !constraint_holds(s) || constraint_allows(s->constraint, token)) return token;
    token = constraint_awaits_trigger(s->constraint) ? resample(s, logits, token) : -1;
    return token >= 0 ? token : sample_constrained(s, logits);
}

/* ---- Accepting ---- */

/* The tag that ended the reasoning may be a trigger. */
static void accept_reasoning_end(struct llm_sampler *s)
{
    struct tokens end = thinking_end(s->thinking);
    for (size_t i = 0; i < end.len; i++) constraint_accept(s->constraint, end.v[i]);
}

static void accept_token(struct llm_sampler *s, int32_t token)
{
    bool holds = constraint_holds(s);
    if (s->thinking != NULL) thinking_accept(s->thinking, token);
    if (holds)
        constraint_accept(s->constraint, token);
    else if (s->constraint != NULL)
        accept_reasoning_end(s);
    llama_sampler_accept(s->chain.samplers, token);
}

int32_t llm_sample(struct llm_sampler *s, struct llm_context *context, int32_t index)
{
    int32_t token = sample_token(s, llm_logits(context, index));
    if (token >= 0) accept_token(s, token);
    return token;
}

const llama_token_data_array *llm_sampler_candidates(const struct llm_sampler *s)
{
    return s->chain.greedy ? NULL : &s->candidates;
}

size_t llm_sampler_passes(const struct llm_sampler *s)
{
    return s->constraint == NULL ? 0 : constraint_passes(s->constraint);
}

/* ---- Life ---- */

static bool has_grammar(const struct llm_grammar *grammar)
{
    return grammar->text != NULL && grammar->text[0] != '\0';
}

/* Reasoning is tracked where it has a budget, or where a lazy grammar waits for its end. */
static bool counts_thinking(const struct llm_sampling *sampling)
{
    const struct llm_thinking *thinking = &sampling->thinking;
    bool waits = has_grammar(&sampling->grammar) && sampling->grammar.lazy;
    return thinking->start != NULL && thinking->n_ends > 0 && (waits || thinking->budget >= 0);
}

struct llm_sampler *llm_sampler_open(const struct llm_model *model, const struct llm_sampling *sampling,
                                     const struct tokens *prompt, hearth_error *error)
{
    struct constraint *constraint = NULL;
    if (has_grammar(&sampling->grammar)) {
        constraint = constraint_open(model, &sampling->grammar, error);
        if (constraint == NULL) return NULL;
    }
    const struct llama_vocab *vocab = llama_model_get_vocab(llm_model_handle(model));
    struct llm_sampler *s = mem_alloc(sizeof *s);
    s->constraint = constraint;
    s->lazy = sampling->grammar.lazy;
    s->chain = chain_open(vocab, sampling, prompt);
    s->n_vocab = llama_vocab_n_tokens(vocab);
    if (!s->chain.plain || constraint != NULL) s->tokens = mem_grow(NULL, (size_t)s->n_vocab, sizeof *s->tokens);
    if (counts_thinking(sampling)) s->thinking = thinking_open(model, &sampling->thinking);
    return s;
}

void llm_sampler_close(struct llm_sampler *s)
{
    if (s == NULL) return;
    llama_sampler_free(s->chain.samplers);
    constraint_close(s->constraint);
    thinking_close(s->thinking);
    free(s->tokens);
    free(s);
}
