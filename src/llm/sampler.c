/* Samples one token. First the chain takes one, unconstrained; then the grammar checks it. Only where the grammar
 * rejects it is the mask over the vocabulary computed and the chain run again. A token that the reasoning budget forces
 * comes before both. The candidates that the chain gets are a shortlist where it cannot choose any other
 * (chain.n_keep), since llama.cpp's samplers take milliseconds for a whole vocabulary. Logprobs, by log-softmax, are of
 * the model's logits or of what the sampler left over. Owned by the request, used on the thread that decodes. */
#include "llm/sampler.h"

#include "base/media_spans.h"
#include "base/memory.h"
#include "llm/chain.h"
#include "llm/constraint.h"
#include "llm/logits.h"
#include "llm/logprobs.h"
#include "llm/thinking.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_RESAMPLES = 16, /* before the mask is computed, while a lazy grammar awaits its trigger */
    SHORT_MAX = 1024,   /* tokens of a shortlist; finding more takes as long as it saves */
    GUESSED_BYTES = 256,
    SHORT_PART = 8 /* and it is at most this part of the vocabulary */
};

struct llm_sampler {
    const struct llm_model *model;
    struct chain chain;
    struct constraint *constraint; /* NULL: none */
    bool lazy;
    struct thinking *thinking;         /* NULL: no budget, and no grammar waits for the end of the reasoning */
    llama_token_data_array candidates; /* of the last token */
    llama_token_data *tokens; /* what they lie in: room for n_vocab, or for a shortlist until more are needed */
    size_t n_room;
    hearth_logprob *largest; /* room for SHORT_MAX */
    struct tokens recent;    /* the last tokens, chain.look_back of them or more */
    int32_t n_vocab;
};

/* ---- Candidates ---- */

static void reserve(struct llm_sampler *s, size_t n)
{
    if (n <= s->n_room) return;
    s->tokens = mem_grow(s->tokens, n, sizeof *s->tokens);
    s->n_room = n;
}

static void put_logits(struct llm_sampler *s, const float *logits)
{
    reserve(s, (size_t)s->n_vocab);
    for (int32_t i = 0; i < s->n_vocab; i++) s->tokens[i] = (llama_token_data){.id = i, .logit = logits[i]};
    s->candidates = (llama_token_data_array){.data = s->tokens, .size = (size_t)s->n_vocab, .selected = -1};
}

static llama_token_data *find_candidate(struct llm_sampler *s, int32_t token)
{
    for (size_t i = 0; i < s->candidates.size; i++)
        if (s->tokens[i].id == token) return &s->tokens[i];
    return NULL;
}

/* The list's tokens from that index on. */
static void add_candidates(struct llm_sampler *s, const struct tokens *list, size_t from, const float *logits)
{
    for (size_t i = from; i < list->len; i++) {
        int32_t token = list->v[i];
        if (find_candidate(s, token) == NULL)
            s->tokens[s->candidates.size++] = (llama_token_data){.id = token, .logit = logits[token]};
    }
}

static int by_id(const void *a, const void *b)
{
    const llama_token_data *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Makes the candidates a shortlist that suffices even when n_masked of them are masked. It is in the order of the
 * vocabulary, so that of equal logits the same is taken as from all. False: it would be too long. */
static bool put_shortlist(struct llm_sampler *s, const float *logits, size_t n_masked)
{
    size_t look_back = (size_t)s->chain.look_back, n_recent = s->recent.len < look_back ? s->recent.len : look_back;
    size_t n_changed = n_recent + s->chain.biased.len, n = (size_t)s->chain.n_keep + n_changed + n_masked;
    if (s->chain.n_keep == 0 || n > SHORT_MAX || n > (size_t)s->n_vocab / SHORT_PART) return false;
    if (s->largest == NULL) s->largest = mem_grow(NULL, SHORT_MAX, sizeof *s->largest);
    reserve(s, 2 * SHORT_MAX);
    n = logits_largest(logits, (size_t)s->n_vocab, s->largest, n);
    for (size_t i = 0; i < n; i++)
        s->tokens[i] = (llama_token_data){.id = s->largest[i].token, .logit = (float)s->largest[i].log};
    s->candidates = (llama_token_data_array){.data = s->tokens, .size = n, .selected = -1};
    add_candidates(s, &s->chain.biased, 0, logits);
    add_candidates(s, &s->recent, s->recent.len - n_recent, logits);
    qsort(s->tokens, s->candidates.size, sizeof *s->tokens, by_id);
    return true;
}

static void put_candidates(struct llm_sampler *s, const float *logits, const int32_t *masked, size_t n_masked)
{
    if (!put_shortlist(s, logits, n_masked)) put_logits(s, logits);
    for (size_t i = 0; i < n_masked; i++) {
        llama_token_data *candidate = find_candidate(s, masked[i]);
        if (candidate != NULL) candidate->logit = -INFINITY;
    }
}

static int32_t selected(const struct llm_sampler *s)
{
    return s->candidates.selected < 0 ? -1 : s->candidates.data[s->candidates.selected].id;
}

/* ---- Sampling ---- */

static int32_t sample_unconstrained(struct llm_sampler *s, const float *logits)
{
    int32_t forced = s->thinking == NULL ? -1 : thinking_forced(s->thinking);
    if (s->chain.plain) {
        s->candidates.size = 0;
        return forced >= 0 ? forced : logits_argmax(logits, (size_t)s->n_vocab);
    }
    if (forced >= 0) {
        put_logits(s, logits);
        for (int32_t i = 0; i < s->n_vocab; i++)
            if (i != forced) s->tokens[i].logit = -INFINITY;
        /* The chain is applied all the same: its random state advances as with any token. */
    } else {
        put_candidates(s, logits, NULL, 0);
    }
    llama_sampler_apply(s->chain.samplers, &s->candidates);
    return forced >= 0 ? forced : selected(s);
}

static int32_t sample_constrained(struct llm_sampler *s, const float *logits)
{
    put_logits(s, logits);
    const bool *allowed = constraint_allowed(s->constraint);
    for (int32_t i = 0; i < s->n_vocab; i++)
        if (!allowed[i]) s->tokens[i].logit = -INFINITY;
    llama_sampler_apply(s->chain.samplers, &s->candidates);
    int32_t token = selected(s);
    return token >= 0 && constraint_allows(s->constraint, token) ? token : -1; /* the mask may allow no token */
}

/* Samples again without the tokens that the grammar rejected. -1: MAX_RESAMPLES further ones were rejected too. */
static int32_t resample(struct llm_sampler *s, const float *logits, int32_t token)
{
    int32_t refused[MAX_RESAMPLES];
    for (size_t n = 0; n < MAX_RESAMPLES; n++) {
        refused[n] = token;
        put_candidates(s, logits, refused, n + 1);
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

/* ---- Accepting ---- */

/* Forgets the older half of them when it is not needed any more. */
static void note_recent(struct llm_sampler *s, const int32_t *tokens, size_t n)
{
    size_t look_back = (size_t)s->chain.look_back;
    if (look_back == 0) return;
    tokens_append(&s->recent, tokens, n);
    if (s->recent.len < 2 * look_back + SHORT_MAX) return;
    memmove(s->recent.v, s->recent.v + (s->recent.len - look_back), look_back * sizeof *s->recent.v);
    tokens_truncate(&s->recent, look_back);
}

int32_t llm_sample(struct llm_sampler *s, struct llm_context *context, int32_t index)
{
    assert(s != NULL && context != NULL);
    const float *logits = llm_logits(context, index);
    int32_t token = sample_unconstrained(s, logits);
    if (token >= 0 && constraint_holds(s) && !constraint_allows(s->constraint, token)) {
        token = constraint_awaits_trigger(s->constraint) ? resample(s, logits, token) : -1;
        if (token < 0) token = sample_constrained(s, logits);
    }
    if (token < 0) return -1;
    bool holds = constraint_holds(s), good = true;
    if (s->thinking != NULL) thinking_accept(s->thinking, token);
    if (holds) {
        good = constraint_accept(s->constraint, token);
    } else if (s->constraint != NULL) {
        struct tokens end = thinking_end(s->thinking); /* the tag that ended the reasoning may be a trigger */
        for (size_t i = 0; good && i < end.len; i++) good = constraint_accept(s->constraint, end.v[i]);
    }
    llama_sampler_accept(s->chain.samplers, token);
    note_recent(s, &token, 1);
    return good ? token : -1; /* where the constraint cannot follow, the reply may not go on without it */
}

int32_t llm_sampler_guess(struct llm_sampler *s, int32_t *tokens, int32_t max)
{
    struct buf text = {0}, bytes = {0};
    struct tokens guess = {0};
    if (!constraint_holds(s) || max <= 0) return 0;
    constraint_guess(s->constraint, &text, GUESSED_BYTES);
    /* The text is tokenised by itself. Vocabularies that would put a blank before it get no guess. */
    if (text.len > 0) llm_tokenize(s->model, text.v, text.len, false, false, &guess);
    for (size_t i = 0; i < guess.len; i++) llm_token_bytes(s->model, guess.v[i], false, &bytes);
    bool same = text.len > 0 && bytes.len == text.len && memcmp(bytes.v, text.v, text.len) == 0;
    int32_t n = !same ? 0 : (int32_t)guess.len < max ? (int32_t)guess.len : max;
    for (int32_t i = 0; i < n; i++) tokens[i] = guess.v[i];
    tokens_release(&guess);
    buf_release(&bytes);
    buf_release(&text);
    return n;
}

size_t llm_sampler_passes(const struct llm_sampler *s)
{
    return s->constraint == NULL ? 0 : constraint_passes(s->constraint);
}

/* ---- Life ---- */

struct llm_sampler *llm_sampler_open(const struct llm_model *model, const struct llm_sampling *sampling,
                                     const struct tokens *prompt, hearth_error *error)
{
    assert(model != NULL && sampling != NULL && prompt != NULL);
    const struct llm_thinking *thinking = &sampling->thinking;
    struct constraint *constraint = NULL;
    if (sampling->grammar.text != NULL && sampling->grammar.text[0] != '\0') {
        constraint = constraint_open(model, &sampling->grammar, error);
        if (constraint == NULL) return NULL;
    }
    struct llm_sampler *s = mem_alloc(sizeof *s);
    s->model = model;
    s->constraint = constraint;
    s->lazy = sampling->grammar.lazy;
    struct tokens text = {0}; /* the prompt's: rows of media are nothing that a sampler could repeat */
    for (size_t i = 0; i < prompt->len; i++)
        if (!media_token_is_one(prompt->v[i])) tokens_push(&text, prompt->v[i]);
    s->chain = chain_open(model, sampling, &text);
    s->n_vocab = llm_model_info(model)->n_vocab;
    if (s->chain.look_back > SHORT_MAX) s->chain.n_keep = s->chain.look_back = 0;
    size_t n_recent = text.len < (size_t)s->chain.look_back ? text.len : (size_t)s->chain.look_back;
    if (n_recent > 0) note_recent(s, text.v + (text.len - n_recent), n_recent);
    tokens_release(&text);
    /* Reasoning is tracked where it has a budget, or where a lazy grammar waits for its end. */
    bool waits = constraint != NULL && s->lazy;
    if (thinking->start != NULL && thinking->n_ends > 0 && (waits || thinking->budget >= 0))
        s->thinking = thinking_open(model, thinking);
    return s;
}

void llm_sampler_close(struct llm_sampler *s)
{
    if (s == NULL) return;
    chain_close(&s->chain);
    constraint_close(s->constraint);
    thinking_close(s->thinking);
    tokens_release(&s->recent);
    free(s->largest);
    free(s->tokens);
    free(s);
}

/* ---- Logprobs ---- */

struct llm_logprobs {
    const struct llm_model *model;
    hearth_logprob *top;
    size_t top_cap;
    struct buf bytes; /* of all tokens of the result */
    hearth_logprobs result;
};

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
    assert(chosen >= 0 && chosen < llm_model_info(c->model)->n_vocab);
    const float *logits = llm_logits(context, index);
    size_t n_vocab = (size_t)llm_model_info(c->model)->n_vocab;
    double sum = logits_log_sum(logits, n_vocab);
    size_t room = reserve_top(c, n_top), n = logits_largest(logits, n_vocab, c->top, room);
    for (size_t i = 0; i < n; i++) c->top[i].log -= sum;
    report(c, (hearth_logprob){.token = chosen, .log = (double)logits[chosen] - sum}, n);
    c->result.rank = (int32_t)logits_above(logits, n_vocab, logits[chosen]) + 1;
    return &c->result;
}

const hearth_logprobs *llm_logprobs_post_sampling(struct llm_logprobs *c, const struct llm_sampler *sampler,
                                                  int32_t chosen, int32_t n_top)
{
    assert(sampler != NULL && chosen >= 0);
    const llama_token_data_array *candidates = &sampler->candidates;
    size_t room = reserve_top(c, n_top), n = 0;
    if (sampler->chain.greedy) { /* the token had probability 1 */
        hearth_logprob certain = {.token = chosen};
        if (room > 0) c->top[0] = certain;
        return report(c, certain, room > 0 ? 1 : 0);
    }
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

struct llm_logprobs *llm_logprobs_open(const struct llm_model *model)
{
    assert(model != NULL);
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
