/* How a grammar constrains a reply, token by token. */
#include "demo_context.h"

#include "llm/constraint.h"

/* ---- Tokens ---- */

static struct constraint *hold(const struct llm_grammar *grammar)
{
    hearth_error error = {0};
    struct constraint *constraint = constraint_open(model, grammar, &error);
    if (constraint == NULL) fail_msg("%s", error.message);
    return constraint;
}

static struct tokens tokens_of(const char *text)
{
    struct tokens tokens = {0};
    llm_tokenize(model, text, strlen(text), false, true, &tokens);
    return tokens;
}

static bool accept_text(struct constraint *constraint, const char *text)
{
    struct tokens tokens = tokens_of(text);
    bool good = true;
    for (size_t i = 0; good && i < tokens.len; i++) good = constraint_accept(constraint, tokens.v[i]);
    tokens_release(&tokens);
    return good;
}

static int32_t end_token(void)
{
    int32_t token = 0;
    while (!llm_token_ends_generation(model, token)) token++;
    return token;
}

/* The mask over the vocabulary equals the check of each token. */
static void assert_same_for_all_tokens(struct constraint *constraint)
{
    int32_t n = llm_model_info(model)->n_vocab, n_allowed = 0;
    bool *copy = mem_alloc((size_t)n);
    memcpy(copy, constraint_allowed(constraint), (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        if (constraint_allows(constraint, i) != copy[i]) fail_msg("token %d: %d at once", i, copy[i]);
        n_allowed += copy[i];
    }
    assert_true(n_allowed > 0 && n_allowed < n);
    free(copy);
}

static void the_vocabulary_mask_equals_the_check_of_each_token(void **state)
{
    (void)state;
    static const char *const rules[] = {
        "root ::= \"yes\" | \"no\" | [0-9]+",     "root ::= \"\\\"\" [^\"]* \"\\\"\"",
        "root ::= [^\\x00-\\x7f]+ | \"a\" root?", "root ::= \"ab\" \"c\"*",
        "root ::= \"a\" !<[20]> | <[21]> \"b\"",
    };
    static const char *const texts[] = {"", "\"x", "a", "ab", "a"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct constraint *constraint = hold(&(struct llm_grammar){.text = rules[i]});
        assert_true(accept_text(constraint, texts[i]));
        assert_same_for_all_tokens(constraint);
        constraint_close(constraint);
    }
}

static void an_end_is_allowed_exactly_where_the_grammar_is_complete(void **state)
{
    (void)state;
    struct constraint *constraint = hold(&(struct llm_grammar){.text = "root ::= \"a\" \"b\"?"});
    assert_false(constraint_accept(constraint, end_token()));
    assert_true(accept_text(constraint, "a"));
    assert_true(constraint_allows(constraint, end_token()));
    assert_true(accept_text(constraint, "b"));
    const bool *allowed = constraint_allowed(constraint);
    for (int32_t i = 0; i < llm_model_info(model)->n_vocab; i++)
        assert_int_equal(allowed[i], llm_token_ends_generation(model, i));
    assert_true(constraint_accept(constraint, end_token()));
    assert_false(accept_text(constraint, "b")); /* what does not fit changes nothing */
    assert_true(constraint_accept(constraint, end_token()));
    constraint_close(constraint);
}

/* llama.cpp accepts a token that extends past where a named token must begin, and throws when it comes. */
static void a_named_token_is_that_token_and_not_the_rest_of_another(void **state)
{
    (void)state;
    struct tokens two = tokens_of("hello"), a = {0};
    int32_t long_token = two.v[0];
    struct buf text = {0};
    llm_token_bytes(model, long_token, true, &text);
    assert_true(text.len >= 2);
    char *rules = mem_format("root ::= \"%c\" <[%d]>", text.v[0], long_token);
    struct constraint *constraint = hold(&(struct llm_grammar){.text = rules});
    assert_false(constraint_allows(constraint, long_token));
    char first[2] = {text.v[0]};
    assert_true(accept_text(constraint, first));
    assert_true(constraint_accept(constraint, long_token));
    assert_true(constraint_accept(constraint, end_token()));
    constraint_close(constraint);
    free(rules);
    buf_release(&text);
    tokens_release(&two);
    tokens_release(&a);
}

static void the_prefill_counts(void **state)
{
    (void)state;
    struct llm_grammar grammar = {.text = "root ::= \"{\" \"a\" \"}\"", .prefill = "{a"};
    struct constraint *constraint = hold(&grammar);
    assert_true(accept_text(constraint, "}"));
    constraint_close(constraint);
    hearth_error error = {0};
    grammar.prefill = "[a";
    assert_null(constraint_open(model, &grammar, &error));
    assert_string_equal(error.param, "grammar");
}

static void a_lazy_grammar_holds_from_its_trigger_on(void **state)
{
    (void)state;
    const char *words[] = {"<call>"};
    int32_t token = 30;
    struct llm_grammar grammar = {.text = "root ::= \"<call>\" [0-9]+ \"</call>\" | <[30]> \"x\"",
                                  .lazy = true,
                                  .words = words,
                                  .n_words = 1,
                                  .tokens = &token,
                                  .n_tokens = 1};
    struct constraint *constraint = hold(&grammar);
    assert_true(accept_text(constraint, "anything at all, <ca or so. "));
    assert_true(constraint_allows(constraint, end_token()));
    assert_true(accept_text(constraint, "Now <call>1"));
    assert_false(constraint_allows(constraint, end_token()));
    assert_false(accept_text(constraint, "x"));
    assert_same_for_all_tokens(constraint);
    assert_true(accept_text(constraint, "2</call>"));
    assert_true(constraint_allows(constraint, end_token()));
    constraint_close(constraint);

    constraint = hold(&grammar);
    assert_true(accept_text(constraint, "words"));
    assert_true(constraint_accept(constraint, token));
    assert_false(accept_text(constraint, "y"));
    assert_true(accept_text(constraint, "x"));
    constraint_close(constraint);
}

/* ---- Samplers ---- */

static struct llm_sampler *sampler_with(const char *rules)
{
    hearth_error error = {0};
    struct llm_sampling sampling = {.params = {.temperature = 0, .top_p = 1, .typical_p = 1, .repeat_penalty = 1},
                                    .window = 256};
    sampling.grammar.text = rules;
    struct llm_sampler *sampler = llm_sampler_open(model, &sampling, &prompt, &error);
    if (sampler == NULL) fail_msg("%s", error.message);
    return sampler;
}

static void a_reply_matches_and_ends(void **state)
{
    (void)state;
    struct llm_sampler *sampler = sampler_with("root ::= \"yes\" | \"no\" | [0-9]{3}");
    struct buf reply = {0};
    int32_t token = llm_sample(sampler, context, 0);
    for (int i = 0; i < 5 && !llm_token_ends_generation(model, token); i++) {
        assert_true(token >= 0);
        llm_token_bytes(model, token, false, &reply);
        token = llm_sample(sampler, context, 0);
    }
    assert_true(llm_token_ends_generation(model, token));
    bool digits = reply.len == 3 && strspn(reply.v, "0123456789") == 3;
    assert_true(digits || strcmp(reply.v, "yes") == 0 || strcmp(reply.v, "no") == 0);
    buf_release(&reply);
    llm_sampler_close(sampler);
}

/* The most likely token begins with a trigger and continues with what may not follow it. */
static void before_its_trigger_a_lazy_grammar_resamples_a_rejected_token(void **state)
{
    (void)state;
    hearth_error error = {0};
    struct tokens hello = tokens_of("hello");
    const hearth_bias bias = {.token = hello.v[0], .bias = 1000};
    struct llm_sampling sampling = {
        .params = {.top_p = 1, .typical_p = 1, .repeat_penalty = 1, .logit_bias = &bias, .n_logit_bias = 1},
        .window = 256};
    struct llm_sampler *freely = llm_sampler_open(model, &sampling, &prompt, &error);
    int32_t likeliest = llm_sample(freely, context, 0);
    struct buf text = {0};
    llm_token_bytes(model, likeliest, true, &text);
    assert_true(likeliest == hello.v[0] && text.len > 1);
    char trigger[] = {text.v[0], '\0'};
    const char *words[] = {trigger};
    sampling.grammar = (struct llm_grammar){.text = "root ::= . [\\x01]", .lazy = true, .words = words, .n_words = 1};
    struct llm_sampler *sampler = llm_sampler_open(model, &sampling, &prompt, &error);
    if (sampler == NULL) fail_msg("%s", error.message);
    int32_t token = llm_sample(sampler, context, 0);
    assert_true(token >= 0 && token != likeliest);
    assert_int_equal(llm_sampler_passes(sampler), 0);
    llm_sampler_close(sampler);
    llm_sampler_close(freely);
    buf_release(&text);
    tokens_release(&hello);
}

static void no_token_is_sampled_where_the_grammar_allows_none(void **state)
{
    (void)state;
    struct llm_sampler *sampler = sampler_with("root ::= <[123456789]>");
    assert_true(llm_sample(sampler, context, 0) < 0);
    llm_sampler_close(sampler);
}

static void an_accepted_token_needs_no_mask_over_the_vocabulary(void **state)
{
    (void)state;
    struct constraint *constraint = hold(&(struct llm_grammar){.text = "root ::= .*"});
    for (int i = 0; i < 100; i++) {
        assert_true(constraint_allows(constraint, prompt.v[i % 40]));
        assert_true(constraint_accept(constraint, prompt.v[i % 40]));
    }
    assert_int_equal(constraint_passes(constraint), 0);
    constraint_allowed(constraint);
    assert_int_equal(constraint_passes(constraint), 1);
    constraint_close(constraint);
}

/* ---- Guesses ---- */

static void assert_guess(const char *rules, const char *reply, const char *guess)
{
    struct constraint *constraint = hold(&(struct llm_grammar){.text = rules});
    struct buf text = {0};
    assert_true(reply[0] == '\0' || accept_text(constraint, reply));
    constraint_guess(constraint, &text, 64);
    if (text.len != strlen(guess) || (text.len > 0 && memcmp(text.v, guess, text.len) != 0))
        fail_msg("behind '%s' comes '%.*s', not '%s'", reply, (int)text.len, text.len > 0 ? text.v : "", guess);
    buf_release(&text);
    assert_true(reply[0] == '\0' || constraint_allowed(constraint) != NULL); /* it has the state that it had */
    constraint_close(constraint);
}

static void what_leaves_no_choice_is_guessed(void **state)
{
    (void)state;
    static const char json[] =
        "root ::= \"{\" space \"\\\"name\\\"\" space \":\" space string \",\" space \"\\\"age\\\"\" space \":\" "
        "space [0-9]+ \"}\" space\n"
        "string ::= \"\\\"\" [^\"]* \"\\\"\" space\n"
        "space ::= | \" \" | \"\\n\"{1,2} [ \\t]{0,20}\n";
    assert_guess("root ::= \"yes, \" (\"no\" | \"never\")", "", "yes, n");
    assert_guess("root ::= \"ab\" | \"ac\"", "", "a");
    assert_guess("root ::= [a-z]+", "", "");
    assert_guess("root ::= \"done\"", "done", "");
    assert_guess(json, "", "{\"name\": \"");
    assert_guess(json, "{", "\"name\": \"");
    assert_guess(json, "{\"name\":\"", "");
    assert_guess(json, "{\"name\":\"Ann\"", ", \"age\":"); /* the reply has no blank behind its colons */
    assert_guess(json, "{\"name\": \"Ann\"", ", \"age\":");
    assert_guess(json, "{\"name\": \"Ann\",\n  \"age\": 7}", "");
    assert_guess(json, "{\n  ", "\"name\": \"");
    static const char list[] =
        "root ::= \"[\" space item (\",\" space item)* \"]\"\n"
        "item ::= \"{\" space \"\\\"id\\\"\" space \":\" space [0-9]+ \",\" space \"\\\"x\\\"\" space \":\" space "
        "[0-9]+ space \"}\" space\n"
        "space ::= | \" \" | \"\\n\"{1,2} [ \\t]{0,20}\n";
    assert_guess(list, "[\n  {\n    \"id\": 1,\n    \"x\": 2\n  },\n  {", "\n    \"id\":");
    assert_guess(list, "[\n  {\n    \"id\": 1,\n    \"x\": 2\n  },\n  {\n  ", "  \"id\":");
    assert_guess(list, "[{\"id\":1,\"x\":2},{", "\"id\":");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vocabulary_mask_equals_the_check_of_each_token),
        cmocka_unit_test(an_end_is_allowed_exactly_where_the_grammar_is_complete),
        cmocka_unit_test(a_named_token_is_that_token_and_not_the_rest_of_another),
        cmocka_unit_test(the_prefill_counts),
        cmocka_unit_test(a_lazy_grammar_holds_from_its_trigger_on),
        cmocka_unit_test(a_reply_matches_and_ends),
        cmocka_unit_test(before_its_trigger_a_lazy_grammar_resamples_a_rejected_token),
        cmocka_unit_test(no_token_is_sampled_where_the_grammar_allows_none),
        cmocka_unit_test(an_accepted_token_needs_no_mask_over_the_vocabulary),
        cmocka_unit_test(what_leaves_no_choice_is_guessed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
