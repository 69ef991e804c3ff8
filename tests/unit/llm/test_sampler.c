/* The chain of samplers: what is picked from the demo model's logits after one prompt. */
#include "support.h"

#include "base/log.h"

static struct llm_model *model;
static struct llm_context *context;
static struct tokens prompt;
static int32_t row; /* with the logits after the prompt */

static struct llm_sampling greedy(void)
{
    return (struct llm_sampling){.temperature = 0, .top_p = 1, .repeat_penalty = 1, .window = 256, .repeat_last_n = -1};
}

static struct llm_sampling drawing(uint32_t seed)
{
    struct llm_sampling sampling = greedy();
    sampling.temperature = 2;
    sampling.seed = seed;
    return sampling;
}

/* Picks `n` times from the same logits; the sampler sees each choice. */
static void pick_many(const struct llm_sampling *sampling, int32_t *picks, int n)
{
    struct llm_sampler *sampler = llm_sampler_open(model, sampling, &prompt);
    for (int i = 0; i < n; i++) picks[i] = llm_sample(sampler, context, row);
    llm_sampler_close(sampler);
}

static int32_t pick(const struct llm_sampling *sampling)
{
    int32_t token;
    pick_many(sampling, &token, 1);
    return token;
}

static int32_t likeliest(void)
{
    return argmax(llm_logits(context, row), llm_model_info(model)->n_vocab);
}

static void without_temperature_the_likeliest_token_is_taken(void **state)
{
    (void)state;
    struct llm_sampling sampling = greedy();
    assert_int_equal(pick(&sampling), likeliest());
    sampling.temperature = -1;
    sampling.top_k = 5;
    assert_int_equal(pick(&sampling), likeliest());
    int32_t picks[4];
    pick_many(&sampling, picks, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(picks[i], likeliest());
}

static void the_same_seed_draws_the_same_tokens_and_another_draws_others(void **state)
{
    (void)state;
    enum { N = 32 };
    static const uint32_t seeds[] = {1, 0, UINT32_MAX};
    int32_t first[N], second[N], other[N];
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        struct llm_sampling sampling = drawing(seeds[i]), another = drawing(12345);
        pick_many(&sampling, first, N);
        pick_many(&sampling, second, N);
        pick_many(&another, other, N);
        assert_memory_equal(first, second, sizeof first);
        assert_memory_not_equal(first, other, sizeof first);
    }
}

/* How many different tokens come up. */
static int variety(const struct llm_sampling *sampling)
{
    enum { N = 300 };
    int32_t picks[N];
    int different = 0;
    pick_many(sampling, picks, N);
    for (int i = 0; i < N; i++) {
        int known = 0;
        while (known < i && picks[known] != picks[i]) known++;
        if (known == i) different++;
    }
    return different;
}

static void top_k_top_p_and_min_p_narrow_the_choice(void **state)
{
    (void)state;
    struct llm_sampling wide = drawing(1);
    wide.temperature = 20;
    assert_true(variety(&wide) > 20);
    struct llm_sampling narrow = wide;
    narrow.top_k = 3;
    assert_int_equal(variety(&narrow), 3);
    narrow = wide;
    narrow.top_p = 1e-6;
    assert_int_equal(variety(&narrow), 1);
    narrow = wide;
    narrow.min_p = 1;
    assert_int_equal(variety(&narrow), 1);
}

static void temperature_comes_after_the_filters(void **state)
{
    (void)state;
    struct llm_sampling sampling = drawing(1);
    sampling.temperature = 1;
    sampling.top_p = 0.5;
    int kept = variety(&sampling);
    sampling.temperature = 1000; /* were it first, half of the probability would be half of the vocabulary */
    assert_true(variety(&sampling) < 5 * kept + 50);
}

static void a_forbidden_token_is_never_picked_and_a_favoured_one_always(void **state)
{
    (void)state;
    struct llm_sampling sampling = greedy();
    hearth_bias forbid = {.token = likeliest(), .bias = -INFINITY};
    sampling.bias = &forbid;
    sampling.n_bias = 1;
    assert_int_not_equal(pick(&sampling), likeliest());
    hearth_bias favour = {.token = 17, .bias = 1000};
    sampling.bias = &favour;
    assert_int_equal(pick(&sampling), 17);
    sampling.temperature = 1;
    assert_int_equal(pick(&sampling), 17);
}

static void bias_of_tokens_that_do_not_exist_is_ignored(void **state)
{
    (void)state;
    struct llm_sampling sampling = greedy();
    const hearth_bias bias[] = {{.token = -1, .bias = 100}, {.token = INT32_MAX, .bias = 100}};
    sampling.bias = bias;
    sampling.n_bias = 2;
    assert_int_equal(pick(&sampling), likeliest());
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
    sampling.bias = bias;
    sampling.n_bias = n;
    assert_true(llm_token_ends_generation(model, pick(&sampling)));
    sampling.ignore_eos = true;
    assert_int_equal(pick(&sampling), likeliest());
    free(bias);
}

static void penalties_look_at_the_prompt_and_at_what_was_picked(void **state)
{
    (void)state;
    struct llm_sampling sampling = greedy();
    sampling.presence_penalty = 100;
    int32_t picks[8];
    pick_many(&sampling, picks, 8);
    for (int i = 0; i < 8; i++) {
        for (int j = 0; j < i; j++) assert_int_not_equal(picks[i], picks[j]);
        for (size_t j = 0; j < prompt.len; j++) assert_int_not_equal(picks[i], prompt.v[j]);
    }
    sampling = greedy();
    sampling.frequency_penalty = 100;
    pick_many(&sampling, picks, 2);
    assert_int_not_equal(picks[0], picks[1]);
    sampling = greedy();
    sampling.repeat_penalty = 1000;
    pick_many(&sampling, picks, 2);
    assert_int_not_equal(picks[0], picks[1]);
}

static void penalties_forget_what_lies_further_back_than_they_look(void **state)
{
    (void)state;
    /* A prompt that ends in the likeliest token, and one where it lies two tokens back. */
    struct llm_sampling sampling = greedy();
    sampling.presence_penalty = 100;
    sampling.repeat_last_n = 2;
    int32_t best = likeliest();
    int32_t others[] = {best == 20 ? 21 : 20, best == 22 ? 23 : 22};
    struct tokens kept = prompt;
    prompt = (struct tokens){0};
    tokens_push(&prompt, best);
    assert_int_not_equal(pick(&sampling), best);
    tokens_append(&prompt, others, 2);
    assert_int_equal(pick(&sampling), best);
    sampling.repeat_last_n = INT32_MAX; /* no more than the window */
    assert_int_not_equal(pick(&sampling), best);
    sampling.repeat_last_n = 0;
    tokens_push(&prompt, best);
    assert_int_equal(pick(&sampling), best);
    tokens_release(&prompt);
    prompt = kept;
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
    row = 49;
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
        cmocka_unit_test(the_same_seed_draws_the_same_tokens_and_another_draws_others),
        cmocka_unit_test(top_k_top_p_and_min_p_narrow_the_choice),
        cmocka_unit_test(temperature_comes_after_the_filters),
        cmocka_unit_test(a_forbidden_token_is_never_picked_and_a_favoured_one_always),
        cmocka_unit_test(bias_of_tokens_that_do_not_exist_is_ignored),
        cmocka_unit_test(ignore_eos_forbids_every_token_that_ends_generation),
        cmocka_unit_test(penalties_look_at_the_prompt_and_at_what_was_picked),
        cmocka_unit_test(penalties_forget_what_lies_further_back_than_they_look),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
