/* One table of samplers: their names, when they change something, how llama.cpp makes them. No state; any thread. */
#include "llm/chain.h"

#include "base/memory.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What the samplers are made from. */
struct plan {
    const struct llama_vocab *vocab;
    const hearth_sampling *picks;
    int32_t window;
    uint32_t seed; /* of every sampler that draws */
};

/* llama.cpp allocates what it is told to look at, so a number out of a request must not go beyond the window. */
static int32_t look_back(const struct plan *plan, int32_t n)
{
    return n < 0 || n > plan->window ? plan->window : n;
}

static size_t min_keep(const struct plan *plan)
{
    return plan->picks->min_keep > 0 ? (size_t)plan->picks->min_keep : 0;
}

/* ---- The samplers; NULL: this one changes nothing ---- */

static struct llama_sampler *penalties(const struct plan *plan)
{
    const hearth_sampling *p = plan->picks;
    int32_t last_n = look_back(plan, p->repeat_last_n);
    if (last_n == 0 || (p->repeat_penalty == 1 && p->frequency_penalty == 0 && p->presence_penalty == 0)) return NULL;
    return llama_sampler_init_penalties(llama_vocab_n_tokens(plan->vocab), last_n, (float)p->repeat_penalty,
                                        (float)p->frequency_penalty, (float)p->presence_penalty);
}

static struct llama_sampler *dry(const struct plan *plan)
{
    const hearth_sampling *p = plan->picks;
    int32_t last_n = look_back(plan, p->dry_penalty_last_n);
    if (p->dry_multiplier == 0 || p->dry_base < 1 || last_n == 0) return NULL;
    return llama_sampler_init_dry(plan->vocab, (float)p->dry_multiplier, (float)p->dry_base, p->dry_allowed_length,
                                  last_n, (const char **)(uintptr_t)p->dry_breakers, p->n_dry_breakers);
}

static struct llama_sampler *top_n_sigma(const struct plan *plan)
{
    return plan->picks->top_n_sigma > 0 ? llama_sampler_init_top_n_sigma((float)plan->picks->top_n_sigma) : NULL;
}

static struct llama_sampler *top_k(const struct plan *plan)
{
    return plan->picks->top_k > 0 ? llama_sampler_init_top_k(plan->picks->top_k) : NULL;
}

static struct llama_sampler *typical(const struct plan *plan)
{
    double p = plan->picks->typical_p;
    return p < 1 ? llama_sampler_init_typical((float)p, min_keep(plan)) : NULL;
}

static struct llama_sampler *top_p(const struct plan *plan)
{
    double p = plan->picks->top_p;
    return p < 1 ? llama_sampler_init_top_p((float)p, min_keep(plan)) : NULL;
}

static struct llama_sampler *min_p(const struct plan *plan)
{
    double p = plan->picks->min_p;
    return p > 0 ? llama_sampler_init_min_p((float)p, min_keep(plan)) : NULL;
}

static struct llama_sampler *xtc(const struct plan *plan)
{
    const hearth_sampling *p = plan->picks;
    if (p->xtc_probability <= 0 || p->xtc_threshold > 0.5) return NULL;
    return llama_sampler_init_xtc((float)p->xtc_probability, (float)p->xtc_threshold, min_keep(plan), plan->seed);
}

static struct llama_sampler *temperature(const struct plan *plan)
{
    const hearth_sampling *p = plan->picks;
    if (p->temperature == 1 && p->dynatemp_range <= 0) return NULL;
    return llama_sampler_init_temp_ext((float)p->temperature, (float)p->dynatemp_range, (float)p->dynatemp_exponent);
}

/* Needs an end of turn or of text to choose where it rejects all else. */
static struct llama_sampler *infill(const struct plan *plan)
{
    bool has_end = llama_vocab_eot(plan->vocab) != LLAMA_TOKEN_NULL || llama_vocab_eos(plan->vocab) != LLAMA_TOKEN_NULL;
    return has_end ? llama_sampler_init_infill(plan->vocab) : NULL;
}

/* `kind` says what becomes of it where only the likeliest token counts. */
enum kind {
    CHANGES_LIKELIEST, /* may make another token the likeliest */
    KEEPS_LIKELIEST,   /* only takes others away */
    MAY_TAKE_LIKELIEST,
    IS_TEMPERATURE,
    PICKS /* in place of drawing, at the end */
};

static const struct sampler {
    const char *name;
    char letter;
    enum kind kind;
    struct llama_sampler *(*open)(const struct plan *plan);
    const char *aliases[2];
} samplers[] = {
    {"penalties", 'e', CHANGES_LIKELIEST, penalties, {NULL}},
    {"dry", 'd', CHANGES_LIKELIEST, dry, {NULL}},
    {"top_n_sigma", 's', KEEPS_LIKELIEST, top_n_sigma, {NULL}},
    {"top_k", 'k', KEEPS_LIKELIEST, top_k, {NULL}},
    {"typ_p", 'y', MAY_TAKE_LIKELIEST, typical, {"typ", "typical_p"}},
    {"top_p", 'p', KEEPS_LIKELIEST, top_p, {"nucleus", NULL}},
    {"min_p", 'm', KEEPS_LIKELIEST, min_p, {NULL}},
    {"xtc", 'x', MAY_TAKE_LIKELIEST, xtc, {NULL}},
    {"temperature", 't', IS_TEMPERATURE, temperature, {"temp", NULL}},
    {"infill", 'i', MAY_TAKE_LIKELIEST, infill, {NULL}},
    {"adaptive_p", 'a', PICKS, NULL, {NULL}},
};

#define N_SAMPLERS (sizeof samplers / sizeof *samplers)

/* ---- Names ---- */

/* Equal but for upper case, '-' in place of '_', and '_' left out. */
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

static struct llama_sampler *bias(const struct plan *plan)
{
    struct bias_list list = {0};
    struct llama_sampler *sampler = NULL;
    int32_t n_vocab = llama_vocab_n_tokens(plan->vocab);
    for (size_t i = 0; i < plan->picks->n_logit_bias; i++) {
        const hearth_bias *one = &plan->picks->logit_bias[i];
        if (one->token >= 0 && one->token < n_vocab) add_bias(&list, one->token, one->bias);
    }
    add_forbidden(&list, plan->vocab, plan->picks->ignore_eos);
    if (list.len > 0) sampler = llama_sampler_init_logit_bias(n_vocab, (int32_t)list.len, list.v);
    free(list.v);
    return sampler;
}

/* ---- The chain ---- */

static bool add(struct llama_sampler *chain, struct llama_sampler *sampler)
{
    if (sampler != NULL) llama_sampler_chain_add(chain, sampler);
    return sampler != NULL;
}

static void add_mirostat(struct llama_sampler *chain, const struct plan *plan)
{
    const hearth_sampling *p = plan->picks;
    float tau = (float)p->mirostat_tau, eta = (float)p->mirostat_eta;
    add(chain, llama_sampler_init_temp((float)p->temperature));
    if (p->mirostat == 1)
        add(chain, llama_sampler_init_mirostat(llama_vocab_n_tokens(plan->vocab), plan->seed, tau, eta, 100));
    else
        add(chain, llama_sampler_init_mirostat_v2(plan->seed, tau, eta));
}

/* Adds them in order; those after temperature 0, which leaves one token, change nothing more. */
static void add_samplers(struct llama_sampler *chain, const struct plan *plan, bool greedy)
{
    const hearth_sampling *p = plan->picks;
    bool adaptive = false, over = false;
    for (size_t i = 0; i < p->n_samplers; i++) {
        const struct sampler *sampler = find_sampler(p->samplers[i]);
        if (sampler == NULL) continue;
        adaptive = adaptive || sampler->kind == PICKS;
        over = over || (greedy && sampler->kind == IS_TEMPERATURE);
        if (sampler->open != NULL && !over && (!greedy || sampler->kind == CHANGES_LIKELIEST))
            add(chain, sampler->open(plan));
    }
    if (greedy)
        add(chain, llama_sampler_init_greedy());
    else if (adaptive)
        add(chain, llama_sampler_init_adaptive_p((float)p->adaptive_target, (float)p->adaptive_decay, plan->seed));
    else
        add(chain, llama_sampler_init_dist(plan->seed));
}

static bool is_active(const struct sampler *sampler, const struct plan *plan)
{
    struct llama_sampler *made = sampler->open == NULL ? NULL : sampler->open(plan);
    if (made != NULL) llama_sampler_free(made);
    return made != NULL;
}

/* Whether all samplers together do no more than take the likeliest token after the penalties. Temperature 0 takes the
 * likeliest of what those before it leave, which must therefore neither take that away nor come before a penalty. */
static bool is_greedy(const struct plan *plan)
{
    const hearth_sampling *p = plan->picks;
    if (p->temperature > 0 || p->dynatemp_range > 0 || p->mirostat != 0) return false;
    bool cut = false, over = false;
    for (size_t i = 0; i < p->n_samplers; i++) {
        const struct sampler *sampler = find_sampler(p->samplers[i]);
        if (sampler == NULL) continue;
        if (sampler->kind == IS_TEMPERATURE) over = true;
        if (sampler->kind == PICKS) return false;
        if (over && strcmp(sampler->name, "infill") != 0) continue;
        if (sampler->kind == IS_TEMPERATURE || !is_active(sampler, plan)) continue;
        if (sampler->kind == MAY_TAKE_LIKELIEST || (sampler->kind == CHANGES_LIKELIEST && cut)) return false;
        cut = cut || sampler->kind == KEEPS_LIKELIEST;
    }
    return over;
}

static void replay(struct llama_sampler *chain, const struct plan *plan, const struct tokens *prompt)
{
    int32_t back = look_back(plan, plan->picks->repeat_last_n),
            dry_back = look_back(plan, plan->picks->dry_penalty_last_n);
    size_t n = (size_t)(back > dry_back ? back : dry_back);
    for (size_t i = prompt->len > n ? prompt->len - n : 0; i < prompt->len; i++)
        llama_sampler_accept(chain, prompt->v[i]);
}

/* llama.cpp takes one number for "random". */
static uint32_t seed_of(int64_t seed)
{
    return (uint32_t)seed == LLAMA_DEFAULT_SEED ? LLAMA_DEFAULT_SEED - 1 : (uint32_t)seed;
}

struct chain chain_open(const struct llama_vocab *vocab, const struct llm_sampling *sampling,
                        const struct tokens *prompt)
{
    hearth_sampling picks = sampling->picks;
    if (picks.samplers == NULL) picks.samplers = llm_sampler_order(&picks.n_samplers);
    struct plan plan = {.vocab = vocab, .picks = &picks, .window = sampling->window, .seed = seed_of(picks.seed)};
    struct chain chain = {.greedy = is_greedy(&plan)};
    struct llama_sampler_chain_params params = {.no_perf = true};
    chain.samplers = llama_sampler_chain_init(params);
    add(chain.samplers, bias(&plan));
    if (picks.mirostat != 0)
        add_mirostat(chain.samplers, &plan);
    else
        add_samplers(chain.samplers, &plan, chain.greedy);
    chain.plain = chain.greedy && llama_sampler_chain_n(chain.samplers) == 1;
    replay(chain.samplers, &plan, prompt);
    return chain;
}
