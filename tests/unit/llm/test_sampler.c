/* The sampler chain: which tokens it samples from the demo model's logits after one prompt. */
#include "support.h"

#include "base/log.h"
#include "llm/context_struct.h"
#include "llm/model_struct.h"

static struct llm_model *model;
static struct llm_context *context;
static struct tokens prompt;
static int32_t logits_index; /* the batch token with the logits after the prompt */

static struct llm_sampling greedy(void)
{
    return (struct llm_sampling){.params = {.temperature = 0,
                                            .dynatemp_exponent = 1,
                                            .top_p = 1,
                                            .typical_p = 1,
                                            .top_n_sigma = -1,
                                            .xtc_threshold = 0.1,
                                            .repeat_penalty = 1,
                                            .repeat_last_n = -1,
                                            .dry_base = 1.75,
                                            .dry_allowed_length = 2,
                                            .dry_penalty_last_n = -1,
                                            .mirostat_tau = 5,
                                            .mirostat_eta = 0.1,
                                            .adaptive_target = -1,
                                            .adaptive_decay = 0.9},
                                 .window = 256};
}

static struct llm_sampling random_sampling(uint32_t seed)
{
    struct llm_sampling sampling = greedy();
    sampling.params.temperature = 2;
    sampling.params.seed = seed;
    return sampling;
}

/* Samples `n` times from the same logits; the sampler accepts each token. */
static void sample_many(const struct llm_sampling *sampling, int32_t *sampled, int n)
{
    struct llm_sampler *sampler = llm_sampler_open(model, sampling, &prompt, NULL);
    for (int i = 0; i < n; i++) sampled[i] = llm_sample(sampler, context, logits_index);
    llm_sampler_close(sampler);
}

static int32_t sample_one(const struct llm_sampling *sampling)
{
    int32_t token;
    sample_many(sampling, &token, 1);
    return token;
}

static int32_t likeliest(void)
{
    return argmax(llm_logits(context, logits_index), llm_model_info(model)->n_vocab);
}

static void without_temperature_the_likeliest_token_is_taken(void **state)
{
    (void)state;
    struct llm_sampling sampling = greedy();
    assert_int_equal(sample_one(&sampling), likeliest());
    sampling.params.temperature = -1;
    sampling.params.top_k = 5;
    assert_int_equal(sample_one(&sampling), likeliest());
    int32_t sampled[4];
    sample_many(&sampling, sampled, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(sampled[i], likeliest());
}

static void the_same_seed_samples_the_same_tokens_and_another_others(void **state)
{
    (void)state;
    enum { N = 32 };
    static const uint32_t seeds[] = {1, 0, UINT32_MAX};
    int32_t first[N], second[N], other[N];
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        struct llm_sampling sampling = random_sampling(seeds[i]), another = random_sampling(12345);
        sample_many(&sampling, first, N);
        sample_many(&sampling, second, N);
        sample_many(&another, other, N);
        assert_memory_equal(first, second, sizeof first);
        assert_memory_not_equal(first, other, sizeof first);
    }
}

/* The number of different tokens that are sampled. */
static int variety(const struct llm_sampling *sampling)
{
    enum { N = 300 };
    int32_t sampled[N];
    int different = 0;
    sample_many(sampling, sampled, N);
    for (int i = 0; i < N; i++) {
        int known = 0;
        while (known < i && sampled[known] != sampled[i]) known++;
        if (known == i) different++;
    }
    return different;
}

static void top_k_top_p_and_min_p_narrow_the_choice(void **state)
{
    (void)state;
    struct llm_sampling wide = random_sampling(1);
    wide.params.temperature = 20;
    assert_true(variety(&wide) > 20);
    struct llm_sampling narrow = wide;
    narrow.params.top_k = 3;
    assert_int_equal(variety(&narrow), 3);
    narrow = wide;
    narrow.params.top_p = 1e-6;
    assert_int_equal(variety(&narrow), 1);
    narrow = wide;
    narrow.params.min_p = 1;
    assert_int_equal(variety(&narrow), 1);
}

static void temperature_comes_after_the_filters(void **state)
{
    (void)state;
    struct llm_sampling sampling = random_sampling(1);
    sampling.params.temperature = 1;
    sampling.params.top_p = 0.5;
    int kept = variety(&sampling);
    sampling.params.temperature = 1000; /* were it first, half of the probability would be half of the vocabulary */
    assert_true(variety(&sampling) < 5 * kept + 50);
}

static void a_forbidden_token_is_never_sampled_and_a_favoured_one_always(void **state)
{
    (void)state;
    struct llm_sampling sampling = greedy();
    hearth_bias forbid = {.token = likeliest(), .bias = -INFINITY};
    sampling.params.logit_bias = &forbid;
    sampling.params.n_logit_bias = 1;
    assert_int_not_equal(sample_one(&sampling), likeliest());
    hearth_bias favour = {.token = 17, .bias = 1000};
    sampling.params.logit_bias = &favour;
    assert_int_equal(sample_one(&sampling), 17);
    sampling.params.temperature = 1;
    assert_int_equal(sample_one(&sampling), 17);
}

static void bias_of_tokens_that_do_not_exist_is_ignored(void **state)
{
    (void)state;
    struct llm_sampling sampling = greedy();
    const hearth_bias bias[] = {{.token = -1, .bias = 100}, {.token = INT32_MAX, .bias = 100}};
    sampling.params.logit_bias = bias;
    sampling.params.n_logit_bias = 2;
    assert_int_equal(sample_one(&sampling), likeliest());
}

static void ignore_eos_forbids_every_token_that_ends_generation(void **state)
{
    (void)state;
    int32_t n_vocab = llm_model_info(model)->n_vocab;
    hearth_bias *bias = mem_alloc((size_t)n_vocab * sizeof *bias);
    size_t n = 0;
    for (int32_t token = 0; token < n_vocab; token++)
        if (llm_token_ends_generation(model, token)) bias[n++] = (hearth_bias){.token = token, .bias = 1000};
    assert_true(n > 0);
    struct llm_sampling sampling = greedy();
    sampling.params.logit_bias = bias;
    sampling.params.n_logit_bias = n;
    assert_true(llm_token_ends_generation(model, sample_one(&sampling)));
    sampling.params.ignore_eos = true;
    assert_int_equal(sample_one(&sampling), likeliest());
    free(bias);
}

static void penalties_apply_to_the_prompt_and_to_sampled_tokens(void **state)
{
    (void)state;
    struct llm_sampling sampling = greedy();
    sampling.params.presence_penalty = 100;
    int32_t sampled[8];
    sample_many(&sampling, sampled, 8);
    for (int i = 0; i < 8; i++) {
        for (int j = 0; j < i; j++) assert_int_not_equal(sampled[i], sampled[j]);
        for (size_t j = 0; j < prompt.len; j++) assert_int_not_equal(sampled[i], prompt.v[j]);
    }
    sampling = greedy();
    sampling.params.frequency_penalty = 100;
    sample_many(&sampling, sampled, 2);
    assert_int_not_equal(sampled[0], sampled[1]);
    sampling = greedy();
    sampling.params.repeat_penalty = 1000;
    sample_many(&sampling, sampled, 2);
    assert_int_not_equal(sampled[0], sampled[1]);
}

static void penalties_end_at_their_last_n(void **state)
{
    (void)state;
    /* A prompt that ends in the most likely token, and one where it lies two tokens back. */
    struct llm_sampling sampling = greedy();
    sampling.params.presence_penalty = 100;
    sampling.params.repeat_last_n = 2;
    int32_t best = likeliest();
    int32_t others[] = {best == 20 ? 21 : 20, best == 22 ? 23 : 22};
    struct tokens kept = prompt;
    prompt = (struct tokens){0};
    tokens_push(&prompt, best);
    assert_int_not_equal(sample_one(&sampling), best);
    tokens_append(&prompt, others, 2);
    assert_int_equal(sample_one(&sampling), best);
    sampling.params.repeat_last_n = INT32_MAX; /* no more than the window */
    assert_int_not_equal(sample_one(&sampling), best);
    sampling.params.repeat_last_n = 0;
    tokens_push(&prompt, best);
    assert_int_equal(sample_one(&sampling), best);
    tokens_release(&prompt);
    prompt = kept;
}

/* ---- Against llama.cpp's own samplers, all of them always in the chain, as llama-server has them ---- */

static void add_one(struct llama_sampler *chain, const char *name, const hearth_sampling *p)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(llm_model_handle(model));
    uint32_t seed = (uint32_t)p->seed;
    size_t keep = (size_t)p->min_keep;
    struct llama_sampler *one = NULL;
    if (strcmp(name, "penalties") == 0)
        one = llama_sampler_init_penalties(llama_vocab_n_tokens(vocab), p->repeat_last_n, (float)p->repeat_penalty,
                                           (float)p->frequency_penalty, (float)p->presence_penalty);
    if (strcmp(name, "dry") == 0)
        one =
            llama_sampler_init_dry(vocab, (float)p->dry_multiplier, (float)p->dry_base, p->dry_allowed_length,
                                   p->dry_penalty_last_n, (const char **)(uintptr_t)p->dry_breakers, p->n_dry_breakers);
    if (strcmp(name, "top_n_sigma") == 0) one = llama_sampler_init_top_n_sigma((float)p->top_n_sigma);
    if (strcmp(name, "top_k") == 0) one = llama_sampler_init_top_k(p->top_k);
    if (strcmp(name, "typ_p") == 0) one = llama_sampler_init_typical((float)p->typical_p, keep);
    if (strcmp(name, "top_p") == 0) one = llama_sampler_init_top_p((float)p->top_p, keep);
    if (strcmp(name, "min_p") == 0) one = llama_sampler_init_min_p((float)p->min_p, keep);
    if (strcmp(name, "xtc") == 0)
        one = llama_sampler_init_xtc((float)p->xtc_probability, (float)p->xtc_threshold, keep, seed);
    if (strcmp(name, "temperature") == 0)
        one = llama_sampler_init_temp_ext((float)p->temperature, (float)p->dynatemp_range, (float)p->dynatemp_exponent);
    if (strcmp(name, "infill") == 0) one = llama_sampler_init_infill(vocab);
    if (one != NULL) llama_sampler_chain_add(chain, one);
}

static void add_last(struct llama_sampler *chain, const hearth_sampling *p, bool adaptive)
{
    uint32_t seed = (uint32_t)p->seed;
    struct llama_sampler *last = llama_sampler_init_dist(seed);
    if (adaptive) {
        llama_sampler_free(last);
        last = llama_sampler_init_adaptive_p((float)p->adaptive_target, (float)p->adaptive_decay, seed);
    }
    llama_sampler_chain_add(chain, last);
}

static struct llama_sampler *whole_chain(const hearth_sampling *p)
{
    bool adaptive = false;
    size_t n = p->n_samplers;
    const char *const *names = p->samplers != NULL ? p->samplers : llm_sampler_order(&n);
    struct llama_sampler *chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    llama_logit_bias bias[8];
    for (size_t i = 0; i < p->n_logit_bias; i++)
        bias[i] = (llama_logit_bias){.token = p->logit_bias[i].token, .bias = p->logit_bias[i].bias};
    llama_sampler_chain_add(
        chain, llama_sampler_init_logit_bias(llm_model_info(model)->n_vocab, (int32_t)p->n_logit_bias, bias));
    for (size_t i = 0; p->mirostat == 0 && i < n; i++) {
        add_one(chain, names[i], p);
        adaptive = adaptive || strcmp(names[i], "adaptive_p") == 0;
    }
    if (p->mirostat > 0) llama_sampler_chain_add(chain, llama_sampler_init_temp((float)p->temperature));
    if (p->mirostat == 1)
        llama_sampler_chain_add(chain,
                                llama_sampler_init_mirostat(llm_model_info(model)->n_vocab, (uint32_t)p->seed,
                                                            (float)p->mirostat_tau, (float)p->mirostat_eta, 100));
    if (p->mirostat == 2)
        llama_sampler_chain_add(
            chain, llama_sampler_init_mirostat_v2((uint32_t)p->seed, (float)p->mirostat_tau, (float)p->mirostat_eta));
    if (p->mirostat == 0) add_last(chain, p, adaptive);
    for (size_t i = 0; i < prompt.len; i++) llama_sampler_accept(chain, prompt.v[i]);
    return chain;
}

static void assert_as_llama_server(const struct llm_sampling *sampling, const char *what)
{
    enum { N = 40 };
    int32_t sampled[N];
    sample_many(sampling, sampled, N);
    struct llama_sampler *chain = whole_chain(&sampling->params);
    for (int i = 0; i < N; i++) {
        int32_t expected = llama_sampler_sample(chain, llm_context_handle(context), logits_index);
        if (sampled[i] != expected) fail_msg("%s, token %d: %d and not %d", what, i, sampled[i], expected);
    }
    llama_sampler_free(chain);
}

static void every_sampler_samples_what_it_samples_in_llama_server(void **state)
{
    (void)state;
    static const char *const breakers[] = {"\n", ":", "\"", "*"};
    static const char *const infill[] = {"infill", "top_k", "temperature"}, *const adaptive[] = {"adaptive_p"};
    static const char *const late[] = {"temperature", "penalties", "top_k", "top_p"}, *const cold[] = {"top_k"};
    static const char *const penalty_last[] = {"top_k", "penalties", "temperature"};
    const hearth_bias biases[] = {{.token = 31, .bias = 6},
                                  {.token = likeliest(), .bias = -INFINITY},
                                  {.token = 17, .bias = 20}, /* twice: both count */
                                  {.token = 17, .bias = -14},
                                  {.token = 3, .bias = 5.5F}};
    int32_t n_vocab = llm_model_info(model)->n_vocab;
    for (int seed = 1; seed <= 2; seed++)
        for (int zero = 0; zero < 2; zero++) {
            struct llm_sampling base = random_sampling((uint32_t)seed), s;
            base.params.temperature = zero ? 0 : 1.5;
            base.params.repeat_last_n = base.params.dry_penalty_last_n = 64;
            base.params.dry_breakers = breakers;
            base.params.n_dry_breakers = 4;
#define TRY(what, ...)                                                                                                 \
    s = base;                                                                                                          \
    __VA_ARGS__;                                                                                                       \
    assert_as_llama_server(&s, what)
            TRY("nothing", (void)0);
            TRY("temperature 1", s.params.temperature = 1);
            TRY("penalties", s.params.repeat_penalty = 1.3, s.params.frequency_penalty = 0.5);
            TRY("presence", s.params.presence_penalty = 2);
            TRY("dry", s.params.dry_multiplier = 5, s.params.dry_allowed_length = 1);
            TRY("top_n_sigma", s.params.top_n_sigma = 1);
            TRY("top_k", s.params.top_k = 5);
            TRY("top_k and penalties", s.params.top_k = 5, s.params.repeat_penalty = 1.3,
                s.params.presence_penalty = 2);
            TRY("top_k and rewards", s.params.top_k = 5, s.params.frequency_penalty = -2,
                s.params.presence_penalty = -9);
            TRY("top_k and short penalties", s.params.top_k = 3, s.params.frequency_penalty = 1,
                s.params.repeat_last_n = 4);
            TRY("top_k and bias", s.params.top_k = 5, s.params.logit_bias = biases, s.params.n_logit_bias = 5);
            TRY("bias and penalties", s.params.logit_bias = biases, s.params.n_logit_bias = 5,
                s.params.repeat_penalty = 1.3);
            TRY("top_k of nearly all", s.params.top_k = n_vocab - 3, s.params.repeat_penalty = 1.3);
            TRY("top_k of more than all", s.params.top_k = n_vocab + 1, s.params.repeat_penalty = 1.3);
            TRY("typical_p", s.params.typical_p = 0.5);
            TRY("top_p", s.params.top_p = 0.5);
            TRY("min_keep", s.params.top_p = 0.01, s.params.min_keep = 4);
            TRY("min_p", s.params.min_p = 0.2);
            TRY("xtc", s.params.xtc_probability = 0.5, s.params.xtc_threshold = 0.01);
            TRY("dynatemp", s.params.dynatemp_range = 0.5, s.params.dynatemp_exponent = 2);
            TRY("mirostat 1", s.params.mirostat = 1);
            TRY("mirostat 2", s.params.mirostat = 2);
            TRY("all", s.params.repeat_penalty = 1.1, s.params.dry_multiplier = 0.8, s.params.top_n_sigma = 3,
                s.params.top_k = 40, s.params.typical_p = 0.9, s.params.top_p = 0.95, s.params.min_p = 0.05,
                s.params.xtc_probability = 0.3);
            TRY("infill", s.params.samplers = infill, s.params.n_samplers = 3);
            TRY("adaptive_p", s.params.samplers = adaptive, s.params.n_samplers = 1, s.params.adaptive_target = 0.4);
            TRY("late", s.params.samplers = late, s.params.n_samplers = 4, s.params.presence_penalty = 9,
                s.params.top_k = 3);
            TRY("penalty after top_k", s.params.samplers = penalty_last, s.params.n_samplers = 3,
                s.params.presence_penalty = 9, s.params.top_k = 2);
            TRY("no temperature", s.params.samplers = cold, s.params.n_samplers = 1, s.params.top_k = 20);
            TRY("no samplers", s.params.samplers = cold, s.params.n_samplers = 0);
#undef TRY
        }
}

static void samplers_are_known_by_all_their_names(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"top_k", "top_k"},
        {"top-k", "top_k"},
        {"topk", "top_k"},
        {"TOP_K", "top_k"},
        {"k", "top_k"},
        {"nucleus", "top_p"},
        {"temp", "temperature"},
        {"t", "temperature"},
        {"typ", "typ_p"},
        {"typical_p", "typ_p"},
        {"topnsigma", "top_n_sigma"},
        {"e", "penalties"},
        {"xtc", "xtc"},
        {"adaptive-p", "adaptive_p"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_string_equal(llm_sampler_name(names[i][0]), names[i][1]);
    assert_null(llm_sampler_name("top_kk"));
    assert_null(llm_sampler_name("to"));
    assert_null(llm_sampler_name(""));
    assert_null(llm_sampler_name("z"));
}

/* ---- */

static int set_up(void **state)
{
    (void)state;
    hearth_error error;
    llm_init();
    model = open_demo();
    struct llm_context_params params = context_params(256, 1);
    context = open_context(model, &params);
    prompt = prompt_of(model, 50);
    assert_int_equal(decode_range(context, &prompt, 0, 0, 50, 50), LLM_DECODED);
    logits_index = 49;
    return log_open(NULL, "error", "text", &error);
}

static int tear_down(void **state)
{
    (void)state;
    tokens_release(&prompt);
    llm_context_close(context);
    llm_model_close(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_temperature_the_likeliest_token_is_taken),
        cmocka_unit_test(the_same_seed_samples_the_same_tokens_and_another_others),
        cmocka_unit_test(top_k_top_p_and_min_p_narrow_the_choice),
        cmocka_unit_test(temperature_comes_after_the_filters),
        cmocka_unit_test(a_forbidden_token_is_never_sampled_and_a_favoured_one_always),
        cmocka_unit_test(bias_of_tokens_that_do_not_exist_is_ignored),
        cmocka_unit_test(ignore_eos_forbids_every_token_that_ends_generation),
        cmocka_unit_test(penalties_apply_to_the_prompt_and_to_sampled_tokens),
        cmocka_unit_test(penalties_end_at_their_last_n),
        cmocka_unit_test(every_sampler_samples_what_it_samples_in_llama_server),
        cmocka_unit_test(samplers_are_known_by_all_their_names),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
