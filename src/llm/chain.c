/* Builds llama.cpp's sampler chain from a request's sampling parameters: one table of samplers with their names, their
 * effect on greedy sampling and their constructors. No state; any thread. */
#include "llm/chain.h"

#include "base/memory.h"
#include "llm/dry.h"
#include "llm/model_struct.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The arguments of the constructors. */
struct build {
    const struct llm_model *model;
    const struct llama_vocab *vocab;
    const hearth_sampling *params;
    int32_t window;
    uint32_t seed; /* of every random sampler */
};

/* llama.cpp allocates as many tokens as a penalty looks back at, so a request's number is limited to the window. */
static int32_t look_back(const struct build *build, int32_t n)
{
    return n < 0 || n > build->window ? build->window : n;
}

static size_t min_keep(const struct build *build)
{
    return build->params->min_keep > 0 ? (size_t)build->params->min_keep : 0;
}

/* ---- Constructors; NULL: with these parameters the sampler does nothing ---- */

static struct llama_sampler *penalties(const struct build *build)
{
    const hearth_sampling *p = build->params;
    int32_t last_n = look_back(build, p->repeat_last_n);
    if (last_n == 0 || (p->repeat_penalty == 1 && p->frequency_penalty == 0 && p->presence_penalty == 0)) return NULL;
    return llama_sampler_init_penalties(llama_vocab_n_tokens(build->vocab), last_n, (float)p->repeat_penalty,
                                        (float)p->frequency_penalty, (float)p->presence_penalty);
}

static bool uses_dry(const struct build *build)
{
    const hearth_sampling *p = build->params;
    return p->dry_multiplier != 0 && p->dry_base >= 1 && look_back(build, p->dry_penalty_last_n) != 0;
}

static struct llama_sampler *dry(const struct build *build)
{
    const hearth_sampling *p = build->params;
    if (!uses_dry(build)) return NULL;
    struct dry_params params = {.multiplier = (float)p->dry_multiplier,
                                .base = (float)p->dry_base,
                                .allowed_length = p->dry_allowed_length,
                                .last_n = look_back(build, p->dry_penalty_last_n)};
    return dry_open(&params, dry_breakers_of(build->model->dry_sets, p->dry_breakers, p->n_dry_breakers));
}

static struct llama_sampler *top_n_sigma(const struct build *build)
{
    return build->params->top_n_sigma > 0 ? llama_sampler_init_top_n_sigma((float)build->params->top_n_sigma) : NULL;
}

static struct llama_sampler *top_k(const struct build *build)
{
    return build->params->top_k > 0 ? llama_sampler_init_top_k(build->params->top_k) : NULL;
}

static struct llama_sampler *typical(const struct build *build)
{
    double p = build->params->typical_p;
    return p < 1 ? llama_sampler_init_typical((float)p, min_keep(build)) : NULL;
}

static struct llama_sampler *top_p(const struct build *build)
{
    double p = build->params->top_p;
    return p < 1 ? llama_sampler_init_top_p((float)p, min_keep(build)) : NULL;
}

static struct llama_sampler *min_p(const struct build *build)
{
    double p = build->params->min_p;
    return p > 0 ? llama_sampler_init_min_p((float)p, min_keep(build)) : NULL;
}

static struct llama_sampler *xtc(const struct build *build)
{
    const hearth_sampling *p = build->params;
    if (p->xtc_probability <= 0 || p->xtc_threshold > 0.5) return NULL;
    return llama_sampler_init_xtc((float)p->xtc_probability, (float)p->xtc_threshold, min_keep(build), build->seed);
}

static struct llama_sampler *temperature(const struct build *build)
{
    const hearth_sampling *p = build->params;
    if (p->temperature == 1 && p->dynatemp_range <= 0) return NULL;
    return llama_sampler_init_temp_ext((float)p->temperature, (float)p->dynatemp_range, (float)p->dynatemp_exponent);
}

/* Needs an EOT or EOS token, which it takes where it rejects all others. */
static struct llama_sampler *infill(const struct build *build)
{
    bool has_end =
        llama_vocab_eot(build->vocab) != LLAMA_TOKEN_NULL || llama_vocab_eos(build->vocab) != LLAMA_TOKEN_NULL;
    return has_end ? llama_sampler_init_infill(build->vocab) : NULL;
}

/* How a sampler affects the most likely token, the only one that counts in greedy sampling. */
enum sampler_kind {
    MAY_CHANGE_ARGMAX, /* may make another token the most likely */
    KEEPS_ARGMAX,      /* removes only other tokens */
    MAY_DROP_ARGMAX,
    IS_TEMPERATURE,
    SELECTS_TOKEN /* ends the chain in place of random sampling */
};

static const struct sampler {
    const char *name;
    char letter;
    enum sampler_kind sampler_kind;
    struct llama_sampler *(*open)(const struct build *build);
    const char *aliases[2];
} samplers[] = {
    {"penalties", 'e', MAY_CHANGE_ARGMAX, penalties, {NULL}},
    {"dry", 'd', MAY_CHANGE_ARGMAX, dry, {NULL}},
    {"top_n_sigma", 's', KEEPS_ARGMAX, top_n_sigma, {NULL}},
    {"top_k", 'k', KEEPS_ARGMAX, top_k, {NULL}},
    {"typ_p", 'y', MAY_DROP_ARGMAX, typical, {"typ", "typical_p"}},
    {"top_p", 'p', KEEPS_ARGMAX, top_p, {"nucleus", NULL}},
    {"min_p", 'm', KEEPS_ARGMAX, min_p, {NULL}},
    {"xtc", 'x', MAY_DROP_ARGMAX, xtc, {NULL}},
    {"temperature", 't', IS_TEMPERATURE, temperature, {"temp", NULL}},
    {"infill", 'i', MAY_DROP_ARGMAX, infill, {NULL}},
    {"adaptive_p", 'a', SELECTS_TOKEN, NULL, {NULL}},
};

#define N_SAMPLERS (sizeof samplers / sizeof *samplers)

/* ---- Names ---- */

/* Whether the names are equal, ignoring case, '-' for '_', and missing '_'. */
static bool is_spelling(const char *name, const char *known)
{
    while (*name != '\0') {
        char c = (char)tolower((unsigned char)*name == '-' ? '_' : (unsigned char)*name);
        if (*known == '_' && c != '_') known++;
        if (c != *known) return false;
        name++;
        known++;
    }
    return *known == '\0';
}

static const struct sampler *find_sampler(const char *name)
{
    for (size_t i = 0; i < N_SAMPLERS; i++) {
        const struct sampler *s = &samplers[i];
        if ((name[0] == s->letter && name[1] == '\0') || is_spelling(name, s->name)) return s;
        for (size_t j = 0; j < 2 && s->aliases[j] != NULL; j++)
            if (is_spelling(name, s->aliases[j])) return s;
    }
    return NULL;
}

const char *llm_sampler_name(const char *name)
{
    assert(name != NULL);
    const struct sampler *sampler = find_sampler(name);
    return sampler == NULL ? NULL : sampler->name;
}

const char *const *llm_sampler_order(size_t *n)
{
    static const char *const order[] = {"penalties", "dry",   "top_n_sigma", "top_k",      "typ_p",
                                        "top_p",     "min_p", "xtc",         "temperature"};
    *n = sizeof order / sizeof *order;
    return order;
}

/* ---- Bias ---- */

struct bias_list {
    llama_logit_bias *v;
    size_t len, cap;
};

static void add_bias(struct bias_list *list, int32_t token, float bias)
{
    list->v = mem_room(list->v, list->len, &list->cap, sizeof *list->v);
    list->v[list->len++] = (llama_logit_bias){.token = token, .bias = bias};
}

static int by_token(const void *a, const void *b)
{
    const llama_logit_bias *x = a, *y = b;
    return (x->token > y->token) - (x->token < y->token);
}

static struct llama_sampler *bias(const struct build *build, struct tokens *biased)
{
    struct bias_list list = {0};
    struct llama_sampler *sampler = NULL;
    int32_t n_vocab = llama_vocab_n_tokens(build->vocab), n_suppressed = 0;
    for (size_t i = 0; i < build->params->n_logit_bias; i++) {
        const hearth_bias *one = &build->params->logit_bias[i];
        if (one->token >= 0 && one->token < n_vocab) add_bias(&list, one->token, one->bias);
    }
    const llama_token *suppressed = llama_vocab_get_suppress_tokens(build->vocab, &n_suppressed); /* by the file */
    for (int32_t i = 0; i < n_suppressed; i++) add_bias(&list, suppressed[i], -INFINITY);
    for (int32_t token = 0; build->params->ignore_eos && token < n_vocab; token++)
        if (llama_vocab_is_eog(build->vocab, token)) add_bias(&list, token, -INFINITY);
    /* The biases of one token become one: llama.cpp applies the second only where the candidates are the whole
     * vocabulary. */
    size_t n = 0;
    if (list.len > 0) qsort(list.v, list.len, sizeof *list.v, by_token);
    for (size_t i = 0; i < list.len; i++) {
        if (n > 0 && list.v[n - 1].token == list.v[i].token)
            list.v[n - 1].bias += list.v[i].bias;
        else
            list.v[n++] = list.v[i];
    }
    list.len = n;
    if (list.len > 0) sampler = llama_sampler_init_logit_bias(n_vocab, (int32_t)list.len, list.v);
    for (size_t i = 0; i < list.len; i++) tokens_push(biased, list.v[i].token);
    free(list.v);
    return sampler;
}

/* ---- The chain ---- */

static void add_sampler(struct llama_sampler *chain, struct llama_sampler *sampler)
{
    if (sampler != NULL) llama_sampler_chain_add(chain, sampler);
}

/* Candidates that infill gets at most. It compares the text of each with that of each other one: a whole vocabulary
 * would stop the engine's thread for a minute. 256 take some 2 ms. */
#define INFILL_CANDIDATES 256

/* Adds the samplers in order. Those after temperature 0, which leaves one token, would have no effect. */
static void add_samplers(struct llama_sampler *chain, const struct build *build, bool greedy)
{
    const hearth_sampling *p = build->params;
    bool adaptive = false, over = false;
    for (size_t i = 0; i < p->n_samplers; i++) {
        const struct sampler *sampler = find_sampler(p->samplers[i]);
        if (sampler == NULL) continue;
        adaptive = adaptive || sampler->sampler_kind == SELECTS_TOKEN;
        over = over || (greedy && sampler->sampler_kind == IS_TEMPERATURE);
        if (sampler->open == NULL || over || (greedy && sampler->sampler_kind != MAY_CHANGE_ARGMAX)) continue;
        struct llama_sampler *made = sampler->open(build);
        if (made != NULL && sampler->open == infill) add_sampler(chain, llama_sampler_init_top_k(INFILL_CANDIDATES));
        add_sampler(chain, made);
    }
    if (greedy)
        add_sampler(chain, llama_sampler_init_greedy());
    else if (adaptive)
        add_sampler(chain,
                    llama_sampler_init_adaptive_p((float)p->adaptive_target, (float)p->adaptive_decay, build->seed));
    else
        add_sampler(chain, llama_sampler_init_dist(build->seed));
}

/* DRY is not made for that: its breakers are looked for in all tokens. */
static bool is_active(const struct sampler *sampler, const struct build *build)
{
    if (sampler->open == dry) return uses_dry(build);
    struct llama_sampler *made = sampler->open == NULL ? NULL : sampler->open(build);
    if (made != NULL) llama_sampler_free(made);
    return made != NULL;
}

/* Whether the whole chain only takes the most likely token after the penalties. Temperature 0 takes the most likely
 * token that the samplers before it leave, so those must neither remove that token nor come before a penalty. */
static bool is_greedy(const struct build *build)
{
    const hearth_sampling *p = build->params;
    if (p->temperature > 0 || p->dynatemp_range > 0 || p->mirostat != 0) return false;
    bool cut = false, over = false;
    for (size_t i = 0; i < p->n_samplers; i++) {
        const struct sampler *sampler = find_sampler(p->samplers[i]);
        if (sampler == NULL) continue;
        if (sampler->sampler_kind == IS_TEMPERATURE) over = true;
        if (sampler->sampler_kind == SELECTS_TOKEN) return false;
        if (over && strcmp(sampler->name, "infill") != 0) continue;
        if (sampler->sampler_kind == IS_TEMPERATURE || !is_active(sampler, build)) continue;
        if (sampler->sampler_kind == MAY_DROP_ARGMAX || (sampler->sampler_kind == MAY_CHANGE_ARGMAX && cut))
            return false;
        cut = cut || sampler->sampler_kind == KEEPS_ARGMAX;
    }
    return over;
}

/* See chain.n_keep. */
static int32_t n_kept(const struct build *build, bool greedy, int32_t *look_back_at)
{
    const hearth_sampling *p = build->params;
    *look_back_at = 0;
    if (p->mirostat != 0) return 0;
    for (size_t i = 0; i < p->n_samplers; i++) {
        const struct sampler *sampler = find_sampler(p->samplers[i]);
        if (sampler == NULL || (greedy && sampler->sampler_kind != MAY_CHANGE_ARGMAX) || !is_active(sampler, build))
            continue;
        if (sampler->open == top_k) return p->top_k;
        if (sampler->open != penalties) return 0;
        *look_back_at = look_back(build, p->repeat_last_n);
    }
    return greedy ? 1 : 0;
}

struct chain chain_open(const struct llm_model *model, const struct llm_sampling *sampling, const struct tokens *prompt)
{
    assert(model != NULL && sampling->window > 0);
    hearth_sampling complete = sampling->params;
    if (complete.samplers == NULL) complete.samplers = llm_sampler_order(&complete.n_samplers);
    struct build build = {.model = model,
                          .vocab = model->vocab,
                          .params = &complete,
                          .window = sampling->window,
                          .seed = (uint32_t)complete.seed};
    if (build.seed == LLAMA_DEFAULT_SEED) build.seed--; /* which llama.cpp reserves for "random" */
    struct chain chain = {.greedy = is_greedy(&build)};
    struct llama_sampler_chain_params params = {.no_perf = true};
    chain.samplers = llama_sampler_chain_init(params);
    add_sampler(chain.samplers, bias(&build, &chain.biased));
    chain.n_keep = n_kept(&build, chain.greedy, &chain.look_back);
    if (complete.mirostat == 0) {
        add_samplers(chain.samplers, &build, chain.greedy);
    } else {
        float tau = (float)complete.mirostat_tau, eta = (float)complete.mirostat_eta;
        int32_t n_vocab = llama_vocab_n_tokens(build.vocab);
        add_sampler(chain.samplers, llama_sampler_init_temp((float)complete.temperature));
        add_sampler(chain.samplers, complete.mirostat == 1
                                        ? llama_sampler_init_mirostat(n_vocab, build.seed, tau, eta, 100)
                                        : llama_sampler_init_mirostat_v2(build.seed, tau, eta));
    }
    chain.plain = chain.greedy && llama_sampler_chain_n(chain.samplers) == 1;
    int32_t back = look_back(&build, complete.repeat_last_n), dry_back = look_back(&build, complete.dry_penalty_last_n);
    size_t n = (size_t)(back > dry_back ? back : dry_back);
    for (size_t i = prompt->len > n ? prompt->len - n : 0; i < prompt->len; i++)
        llama_sampler_accept(chain.samplers, prompt->v[i]);
    return chain;
}

void chain_close(struct chain *chain)
{
    llama_sampler_free(chain->samplers);
    tokens_release(&chain->biased);
}
