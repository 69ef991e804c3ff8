/* The reasoning budget: when it counts, what it forces, and its effect on a lazy grammar. */
#include "demo_context.h"

#include "llm/thinking.h"

static const char *const ends[] = {"</think>", "</thought>"};

static struct llm_thinking with_budget(int32_t budget)
{
    return (struct llm_thinking){
        .start = "<think>", .ends = ends, .n_ends = 2, .message = " Enough.", .budget = budget};
}

static struct tokens tokens_of(const char *text)
{
    struct tokens tokens = {0};
    llm_tokenize(model, text, strlen(text), false, true, &tokens);
    return tokens;
}

static void accept_text(struct thinking *thinking, const char *text)
{
    struct tokens tokens = tokens_of(text);
    for (size_t i = 0; i < tokens.len; i++) thinking_accept(thinking, tokens.v[i]);
    tokens_release(&tokens);
}

/* Accepts the forced tokens, and appends their text. */
static void obey(struct thinking *thinking, struct buf *said)
{
    for (int32_t token; (token = thinking_forced(thinking)) >= 0;) {
        llm_token_bytes(model, token, true, said);
        thinking_accept(thinking, token);
    }
    buf_append(said, "", 0);
}

static void a_used_up_budget_forces_message_and_end(void **state)
{
    (void)state;
    struct llm_thinking how = with_budget(3);
    struct thinking *thinking = thinking_open(model, &how);
    struct tokens words = tokens_of("one two three four five");
    struct buf said = {0};
    accept_text(thinking, "no reasoning yet");
    assert_false(thinking_is_on(thinking));
    accept_text(thinking, "<think>");
    assert_true(thinking_is_on(thinking));
    for (int i = 0; i < 3; i++) {
        assert_true(thinking_forced(thinking) < 0);
        thinking_accept(thinking, words.v[i]);
    }
    obey(thinking, &said);
    assert_string_equal(said.v + (said.v[0] == ' ' && said.v[1] == ' '), " Enough.</think>");
    assert_false(thinking_is_on(thinking));
    accept_text(thinking, "no more");
    assert_true(thinking_forced(thinking) < 0);
    buf_release(&said);
    tokens_release(&words);
    thinking_close(thinking);
}

static void reasoning_that_ends_in_time_is_left_alone_and_a_new_one_begins_anew(void **state)
{
    (void)state;
    struct llm_thinking how = with_budget(100);
    struct thinking *thinking = thinking_open(model, &how);
    for (int round = 0; round < 3; round++) {
        accept_text(thinking, "<think>one two");
        assert_true(thinking_is_on(thinking));
        accept_text(thinking, round == 1 ? "</thought>" : "</think>");
        assert_false(thinking_is_on(thinking));
        assert_true(thinking_forced(thinking) < 0);
        struct tokens end = thinking_end(thinking), expected = tokens_of(round == 1 ? "</thought>" : "</think>");
        assert_int_equal(end.len, expected.len);
        assert_memory_equal(end.v, expected.v, end.len * sizeof *end.v);
        tokens_release(&expected);
    }
    thinking_close(thinking);
}

static void the_prompt_may_have_begun_the_reasoning(void **state)
{
    (void)state;
    struct llm_thinking how = with_budget(0);
    how.prefill = "<think>";
    struct thinking *thinking = thinking_open(model, &how);
    assert_true(thinking_forced(thinking) >= 0);
    thinking_close(thinking);
    how.budget = -1;
    thinking = thinking_open(model, &how);
    assert_true(thinking_is_on(thinking));
    for (int i = 0; i < 1000; i++) thinking_accept(thinking, prompt.v[i % 40]);
    assert_true(thinking_is_on(thinking) && thinking_forced(thinking) < 0);
    thinking_close(thinking);
}

static int32_t token_with_bytes(const char *bytes, size_t len)
{
    struct buf buf = {0};
    int32_t n = llm_model_info(model)->n_vocab, found = -1;
    for (int32_t token = 0; token < n && found < 0; token++) {
        buf_clear(&buf);
        llm_token_bytes(model, token, false, &buf);
        if (buf.len == len && memcmp(buf.v, bytes, len) == 0) found = token;
    }
    buf_release(&buf);
    return found;
}

/* A vocabulary spells a tag in many ways: by what stands before it, and with what follows it. */
static void a_tag_counts_however_it_is_spelled(void **state)
{
    (void)state;
    struct llm_thinking how = with_budget(-1);
    struct thinking *thinking = thinking_open(model, &how);
    for (const char *c = "so:<think>"; *c != '\0'; c++) thinking_accept(thinking, token_with_bytes(c, 1));
    assert_true(thinking_is_on(thinking));
    for (const char *c = "hm</thi"; *c != '\0'; c++) thinking_accept(thinking, token_with_bytes(c, 1));
    accept_text(thinking, "nk>\n\nYes");
    assert_false(thinking_is_on(thinking));
    thinking_close(thinking);
    how.prefill = "[/INST]<think>\n";
    thinking = thinking_open(model, &how);
    assert_true(thinking_is_on(thinking));
    thinking_close(thinking);
    how.prefill = "[/INST]<think>\n\n</think>\n\n";
    thinking = thinking_open(model, &how);
    assert_false(thinking_is_on(thinking));
    thinking_close(thinking);
}

static void a_utf8_character_is_completed_first(void **state)
{
    (void)state;
    int32_t first = token_with_bytes("\xe2", 1), next = token_with_bytes("\x82", 1);
    assert_true(first >= 0 && next >= 0);
    struct llm_thinking how = with_budget(1);
    struct thinking *thinking = thinking_open(model, &how);
    accept_text(thinking, "<think>");
    thinking_accept(thinking, first);
    assert_true(thinking_forced(thinking) < 0 && thinking_is_on(thinking));
    thinking_accept(thinking, next);
    assert_true(thinking_forced(thinking) >= 0);
    thinking_close(thinking);
}

/* ---- In a sampler ---- */

static struct llm_sampling sampling(void)
{
    return (struct llm_sampling){.params = {.temperature = 0, .top_p = 1, .typical_p = 1, .repeat_penalty = 1},
                                 .window = 256,
                                 .thinking = with_budget(5)};
}

static void a_sampler_samples_the_forced_tokens(void **state)
{
    (void)state;
    for (int temperature = 0; temperature < 2; temperature++) {
        struct llm_sampling how = sampling();
        struct buf reply = {0};
        how.params.temperature = temperature;
        how.thinking.prefill = "<think>";
        struct llm_sampler *sampler = llm_sampler_open(model, &how, &prompt, NULL);
        for (int i = 0; i < 40; i++) llm_token_bytes(model, llm_sample(sampler, context, 0), true, &reply);
        assert_non_null(strstr(reply.v, " Enough.</think>"));
        buf_release(&reply);
        llm_sampler_close(sampler);
    }
}

static void a_lazy_grammar_is_off_while_the_model_reasons(void **state)
{
    (void)state;
    static const char *const words[] = {"</think>"}; /* the end of the reasoning is the trigger */
    struct llm_sampling how = sampling();
    struct buf reply = {0};
    how.thinking.prefill = "<think>";
    how.grammar =
        (struct llm_grammar){.text = "root ::= \"</think>\" \"yes\"", .lazy = true, .words = words, .n_words = 1};
    struct llm_sampler *sampler = llm_sampler_open(model, &how, &prompt, NULL);
    for (int i = 0; i < 40; i++) {
        int32_t token = llm_sample(sampler, context, 0);
        assert_true(token >= 0);
        if (llm_token_ends_generation(model, token)) break;
        llm_token_bytes(model, token, true, &reply);
    }
    assert_string_equal(strstr(reply.v, "</think>"), "</think>yes");
    buf_release(&reply);
    llm_sampler_close(sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_used_up_budget_forces_message_and_end),
        cmocka_unit_test(reasoning_that_ends_in_time_is_left_alone_and_a_new_one_begins_anew),
        cmocka_unit_test(the_prompt_may_have_begun_the_reasoning),
        cmocka_unit_test(a_tag_counts_however_it_is_spelled),
        cmocka_unit_test(a_utf8_character_is_completed_first),
        cmocka_unit_test(a_sampler_samples_the_forced_tokens),
        cmocka_unit_test(a_lazy_grammar_is_off_while_the_model_reasons),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
