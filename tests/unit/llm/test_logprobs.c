/* Logprobs of the demo model after one prompt against a naive softmax. */
#include "demo_context.h"

#include "llm/logprobs.h"

static struct llm_sampler *sampler_with(const hearth_sampling *params)
{
    return llm_sampler_open(model, &(struct llm_sampling){.params = *params, .window = 256}, &prompt, NULL);
}

static hearth_sampling random_sampling(void)
{
    return (hearth_sampling){.temperature = 1, .top_p = 1, .typical_p = 1, .repeat_penalty = 1, .seed = 3};
}

static void logprobs_of_the_model_are_a_softmax_of_its_logits(void **state)
{
    (void)state;
    size_t n_vocab = (size_t)llm_model_info(model)->n_vocab;
    hearth_sampling params = random_sampling();
    hearth_bias bias = {.token = 40, .bias = 1000}; /* the bias decides, not the model */
    params.logit_bias = &bias;
    params.n_logit_bias = 1;
    struct llm_sampler *sampler = sampler_with(&params);
    int32_t chosen = llm_sample(sampler, context, 0);
    struct llm_logprobs *logprobs = llm_logprobs_open(model);
    const hearth_logprobs *told = llm_logprobs_of_model(logprobs, context, 0, chosen, 5);
    const float *logits = llm_logits(context, 0);
    double sum = 0;
    for (size_t i = 0; i < n_vocab; i++) sum += exp((double)logits[i]);
    assert_int_equal(chosen, 40);
    assert_int_equal(told->chosen.token, 40);
    assert_true(fabs(told->chosen.log - ((double)logits[40] - log(sum))) < 1e-9);
    assert_int_equal(told->n_top, 5);
    assert_int_equal(told->top[0].token, argmax(logits, (int32_t)n_vocab));
    for (size_t i = 0; i < 5; i++) {
        struct buf bytes = {0};
        llm_token_bytes(model, told->top[i].token, true, &bytes);
        assert_int_equal(told->top[i].n_bytes, bytes.len);
        assert_memory_equal(told->top[i].bytes, bytes.v, bytes.len);
        assert_true(told->top[i].log <= 0 && (i == 0 || told->top[i].log <= told->top[i - 1].log));
        buf_release(&bytes);
    }
    told = llm_logprobs_of_model(logprobs, context, 0, chosen, INT32_MAX); /* no more than there are tokens */
    assert_int_equal(told->n_top, n_vocab);
    assert_true(told->rank >= 1 && told->top[told->rank - 1].log == told->chosen.log);
    assert_true(told->rank == 1 || told->top[told->rank - 2].log > told->chosen.log);
    double all = 0;
    for (size_t i = 0; i < n_vocab; i++) all += exp(told->top[i].log);
    assert_true(fabs(all - 1) < 1e-9);
    assert_int_equal(llm_logprobs_of_model(logprobs, context, 0, chosen, 0)->n_top, 0);
    llm_logprobs_close(logprobs);
    llm_sampler_close(sampler);
}

static void post_sampling_only_the_remaining_candidates_have_a_logprob(void **state)
{
    (void)state;
    struct llm_logprobs *logprobs = llm_logprobs_open(model);
    hearth_sampling params = random_sampling();
    params.top_k = 4;
    struct llm_sampler *sampler = sampler_with(&params);
    int32_t chosen = llm_sample(sampler, context, 0);
    const hearth_logprobs *told = llm_logprobs_post_sampling(logprobs, sampler, chosen, 10);
    double sum = 0, of_chosen = 0;
    assert_int_equal(told->n_top, 4);
    for (size_t i = 0; i < 4; i++) {
        sum += exp(told->top[i].log);
        if (told->top[i].token == chosen) of_chosen = told->top[i].log;
    }
    assert_true(fabs(sum - 1) < 1e-5);
    assert_true(told->chosen.log == of_chosen);
    llm_sampler_close(sampler);

    params.temperature = 0; /* greedy: the token is certain */
    sampler = sampler_with(&params);
    chosen = llm_sample(sampler, context, 0);
    told = llm_logprobs_post_sampling(logprobs, sampler, chosen, 10);
    assert_true(told->n_top == 1 && told->top[0].token == chosen && told->chosen.log == 0);
    llm_sampler_close(sampler);
    llm_logprobs_close(logprobs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logprobs_of_the_model_are_a_softmax_of_its_logits),
        cmocka_unit_test(post_sampling_only_the_remaining_candidates_have_a_logprob),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
