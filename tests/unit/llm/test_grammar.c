/* Grammars: which texts match, which grammars are refused, how they constrain a reply. */
#include "support.h"

#include "base/log.h"
#include "grammar/grammar.h"
#include "llm/constraint.h"

#include <time.h>

static struct llm_model *model;

/* ---- Texts ---- */

enum match { NOTHING, BEGINNING, WHOLE };

static enum match match_with(struct grammar *grammar, const char *text)
{
    struct grammar_state now = {0}, next = {0};
    enum match match = BEGINNING;
    grammar_start(grammar, &now);
    for (; *text != '\0' && match != NOTHING; text++) {
        if (!grammar_accept_byte(grammar, &now, (unsigned char)*text, &next)) match = NOTHING;
        grammar_copy(&now, &next);
    }
    if (match == BEGINNING && !grammar_can_continue(grammar, &now)) match = NOTHING;
    if (match == BEGINNING && grammar_complete(&now)) match = WHOLE;
    grammar_release(&now);
    grammar_release(&next);
    return match;
}

static enum match match(const char *rules, const char *text)
{
    hearth_error error = {0};
    struct grammar *grammar = grammar_open(rules, NULL, &error);
    if (grammar == NULL) fail_msg("%s: %s", rules, error.message);
    enum match result = match_with(grammar, text);
    grammar_close(grammar);
    return result;
}

static void texts_match_as_the_rules_say(void **state)
{
    (void)state;
    static const struct {
        const char *rules, *text;
        enum match match;
    } rows[] = {
        {"root ::= (\"a\" | \"\")+ \"b\"", "aab", WHOLE},
        {"root ::= (\"a\"*)* \"b\"", "b", WHOLE},
        {"root ::= \"ab\"", "", BEGINNING},
        {"root ::= \"ab\"", "a", BEGINNING},
        {"root ::= \"ab\"", "ab", WHOLE},
        {"root ::= \"ab\"", "abc", NOTHING},
        {"root ::= \"ab\"", "b", NOTHING},
        {"root ::= \"a\" | \"b\"", "b", WHOLE},
        {"root ::=\n \"a\"\n# words\n", "a", WHOLE},
        {"root ::= (\"a\"\n | \"b\")\n", "b", WHOLE},
        {"root ::= x y # words\nx ::= \"1\"\r\ny ::= \"2\"", "12", WHOLE},
        {"root ::= [a-c1]", "b", WHOLE},
        {"root ::= [a-c1]", "d", NOTHING},
        {"root ::= [^a-c]", "d", WHOLE},
        {"root ::= [^a-c]", "b", NOTHING},
        {"root ::= [a\\]\\-]*", "]-a", WHOLE},
        {"root ::= [a-]*", "-a-", WHOLE},
        {"root ::= \"\\x41\\u00e9\\n\\\"\"", "A\xc3\xa9\n\"", WHOLE},
        {"root ::= .", "\xe2\x82\xac", WHOLE},
        {"root ::= .", "\xe2\x82", BEGINNING},
        {"root ::= .", "\x82", NOTHING},
        {"root ::= [a-z\xc3\xa9]", "\xc3", BEGINNING},
        {"root ::= [a-z]", "\xc3", NOTHING},
        {"root ::= [^\xc3\xa9]", "\xc3", BEGINNING},
        {"root ::= \"e\"", "\xc1\xa5", NOTHING},
        {"root ::= .", "\xe0\x80", NOTHING},
        {"root ::= .", "\xf0\x80", NOTHING},
        {"root ::= .", "\xed\xa0", NOTHING},
        {"root ::= .", "\xf4\x90", NOTHING},
        {"root ::= .", "\xf4\x8f\xbf\xbf", WHOLE},
        {"root ::= \"a\"?", "", WHOLE},
        {"root ::= \"a\"?", "aa", NOTHING},
        {"root ::= \"ab\"*", "ababab", WHOLE},
        {"root ::= \"a\"+", "", BEGINNING},
        {"root ::= \"a\"{2,3}", "a", BEGINNING},
        {"root ::= \"a\"{2,3}", "aaa", WHOLE},
        {"root ::= \"a\"{2,3}", "aaaa", NOTHING},
        {"root ::= \"a\"{2}", "aa", WHOLE},
        {"root ::= \"a\"{0}", "a", NOTHING},
        {"root ::= \"a\"{2,}", "aaaaaa", WHOLE},
        {"root ::= \"a\"{1,9999999999}", "aaaaaa", WHOLE},
        {"root ::= \"(\" root \")\" | \"x\"", "((x))", WHOLE},
        {"root ::= \"(\" root \")\" | \"x\"", "((x)", BEGINNING},
        {"root ::= \"\" | \"a\"", "", WHOLE},
        {"root ::= (\"a\" | \"c\"?) \"b\"", "b", WHOLE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum match got = match(rows[i].rules, rows[i].text);
        if (got != rows[i].match) fail_msg("%s against '%s': %d", rows[i].rules, rows[i].text, got);
    }
}

static int32_t no_token(const void *ud, const char *text, size_t len)
{
    (void)ud, (void)text, (void)len;
    return -1;
}

static const struct grammar_vocabulary vocabulary = {.token_of = no_token};

static void an_invalid_grammar_is_refused_with_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *rules, *words[2];
    } rows[] = {
        {"", {"'root'"}},
        {"a ::= \"b\"", {"'root'"}},
        {"root = \"b\"", {"'::='", "line 1"}},
        {"root ::= \"b", {"ends"}},
        {"root ::= [b", {"ends"}},
        {"root ::= a\n\nb ::= c\na ::= \"x\"", {"'c'", "line 3"}},
        {"root ::= (\"a\"", {"')'"}},
        {"root ::= *", {"nothing to repeat"}},
        {"root ::= \"a\"{x}", {"number"}},
        {"root ::= \"a\"{2", {"'}'"}},
        {"root ::= \"a\"{3,1}", {"{3,1}"}},
        {"root ::= \"a\"{2001}", {"2000"}},
        {"root ::= \"\\q\"", {"'\\'"}},
        {"root ::= \"\\xg0\"", {"hexadecimal"}},
        {"root ::= \"a\" ) x", {"end of the line"}},
        {"root ::= <nothing-of-the-kind>", {"token"}},
        {"root ::= !x", {"token"}},
        {"root ::= \"\xff\"", {"UTF-8"}},
        {"root ::= root \"a\" | \"b\"", {"begins with itself"}},
        {"root ::= a\na ::= b\nb ::= \"y\"? c\nc ::= a \"x\"", {"begins with itself"}},
        {"root ::= (\"x\"? root)? \"y\"", {"begins with itself"}},
        {"root ::= a \"x\"\na ::= \"b\"* c\nc ::= \"d\" | a \"e\"", {"begins with itself"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hearth_error error = {0};
        struct grammar *grammar = grammar_open(rows[i].rules, &vocabulary, &error);
        if (grammar != NULL) fail_msg("%s is taken", rows[i].rules);
        assert_int_equal(error.code, HEARTH_INVALID);
        assert_string_equal(error.param, "grammar");
        for (size_t j = 0; j < 2 && rows[i].words[j] != NULL; j++)
            if (strstr(error.message, rows[i].words[j]) == NULL) fail_msg("%s: %s", rows[i].rules, error.message);
    }
}

/* ---- Hostile grammars ---- */

/* begin, middle n times, end. */
static char *repeated(const char *begin, const char *middle, size_t n, const char *end)
{
    struct buf text = {0};
    buf_puts(&text, begin);
    for (size_t i = 0; i < n; i++) buf_printf(&text, "%s", middle);
    buf_puts(&text, end);
    return buf_take(&text);
}

static void assert_refused(char *rules)
{
    hearth_error error = {0};
    struct grammar *grammar = grammar_open(rules, NULL, &error);
    assert_null(grammar);
    assert_string_equal(error.param, "grammar");
    free(rules);
}

static void size_and_depth_are_bounded(void **state)
{
    (void)state;
    assert_refused(repeated("root ::= ", "(", 100000, "\"a\""));
    assert_refused(repeated("root ::= \"", "aaaaaaaaaa", 100, "\"{2000}"));
    assert_refused(repeated("root ::= (\"a\"{2000}", "{2000}", 1, "){2000}"));
    assert_refused(repeated("root ::= \"", "aaaaaaaaaaaaaaaa", 1 << 18, "\"")); /* more than 4 MiB */
    struct buf chain = {0}; /* rules that refer to each other, as deep as a request likes */
    buf_puts(&chain, "root ::= r0\n");
    for (int i = 0; i < 50000; i++) buf_printf(&chain, "r%d ::= r%d\n", i, i + 1);
    buf_puts(&chain, "r50000 ::= \"a\"\n");
    assert_int_equal(match(chain.v, "a"), WHOLE);
    buf_release(&chain);
}

static void a_grammar_with_endlessly_many_parses_is_refused(void **state)
{
    (void)state;
    struct buf doubling = {0}; /* each rule is twice the next, and all may be empty: 2^40 places to begin */
    buf_puts(&doubling, "root ::= r0\n");
    for (int i = 0; i < 40; i++) buf_printf(&doubling, "r%d ::= r%d r%d\n", i, i + 1, i + 1);
    buf_puts(&doubling, "r40 ::= \"a\"?\n");
    assert_refused(buf_take(&doubling));
}

static void a_text_with_endlessly_many_parses_is_stopped(void **state)
{
    (void)state;
    hearth_error error = {0};
    struct grammar *grammar = grammar_open("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"d\"", NULL, &error);
    assert_non_null(grammar);
    assert_int_equal(match_with(grammar, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), NOTHING);
    assert_true(grammar_over_budget(grammar));
    grammar_reset_budget(grammar);
    assert_int_equal(match_with(grammar, "aaadbcb"), WHOLE);
    grammar_close(grammar);
}

/* The length of a vocabulary. */
static void very_many_named_tokens_are_stopped_too(void **state)
{
    (void)state;
    hearth_error error = {0};
    struct buf rules = {0};
    buf_puts(&rules, "root ::= <[0]>");
    for (int i = 1; i < 1000; i++) buf_printf(&rules, " | <[%d]>", i);
    struct grammar *grammar = grammar_open(rules.v, NULL, &error);
    struct grammar_state now = {0}, next = {0};
    assert_non_null(grammar);
    grammar_start(grammar, &now);
    for (int32_t token = 0; token < 150000; token++) grammar_accept_token(grammar, &now, token, &next);
    assert_true(grammar_over_budget(grammar));
    grammar_release(&now);
    grammar_release(&next);
    grammar_close(grammar);
    buf_release(&rules);
}

static void a_long_text_costs_no_more_for_each_of_its_letters(void **state)
{
    (void)state;
    hearth_error error = {0};
    struct grammar *grammar = grammar_open("root ::= item*\nitem ::= \"(\" [a-z]+ \")\"", NULL, &error);
    struct grammar_state now = {0}, next = {0};
    grammar_start(grammar, &now);
    for (int i = 0; i < 300000; i++) {
        assert_true(grammar_accept_byte(grammar, &now, (unsigned char)"(abc)"[i % 5], &next));
        grammar_copy(&now, &next);
        assert_true(now.len < 5);
        grammar_reset_budget(grammar);
    }
    grammar_release(&now);
    grammar_release(&next);
    grammar_close(grammar);
}

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

static struct llm_context *context;
static struct tokens prompt;

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
    assert_int_equal(match("root ::= \"yes\" | \"no\" | [0-9]{3}", reply.v), WHOLE);
    buf_release(&reply);
    llm_sampler_close(sampler);
}

/* The most likely token begins with a trigger and continues with what may not follow it. */
static void before_its_trigger_a_lazy_grammar_resamples_a_rejected_token(void **state)
{
    (void)state;
    hearth_error error = {0};
    struct llm_sampling sampling = {.params = {.temperature = 0, .top_p = 1, .typical_p = 1, .repeat_penalty = 1},
                                    .window = 256};
    struct llm_sampler *freely = llm_sampler_open(model, &sampling, &prompt, &error);
    int32_t likeliest = llm_sample(freely, context, 0);
    struct buf text = {0};
    llm_token_bytes(model, likeliest, true, &text);
    assert_true(text.len > 1);
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

/* ---- */

static int set_up(void **state)
{
    (void)state;
    hearth_error error;
    llm_init();
    log_open(NULL, "error", "text", &error);
    model = open_demo();
    struct llm_context_params params = context_params(256, 1);
    context = open_context(model, &params);
    prompt = prompt_of(model, 50);
    return decode_range(context, &prompt, 0, 0, 50, 1) == LLM_DECODED ? 0 : -1;
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
        cmocka_unit_test(texts_match_as_the_rules_say),
        cmocka_unit_test(an_invalid_grammar_is_refused_with_its_line),
        cmocka_unit_test(size_and_depth_are_bounded),
        cmocka_unit_test(a_grammar_with_endlessly_many_parses_is_refused),
        cmocka_unit_test(a_text_with_endlessly_many_parses_is_stopped),
        cmocka_unit_test(very_many_named_tokens_are_stopped_too),
        cmocka_unit_test(a_long_text_costs_no_more_for_each_of_its_letters),
        cmocka_unit_test(the_vocabulary_mask_equals_the_check_of_each_token),
        cmocka_unit_test(an_end_is_allowed_exactly_where_the_grammar_is_complete),
        cmocka_unit_test(a_named_token_is_that_token_and_not_the_rest_of_another),
        cmocka_unit_test(the_prefill_counts),
        cmocka_unit_test(a_lazy_grammar_holds_from_its_trigger_on),
        cmocka_unit_test(a_reply_matches_and_ends),
        cmocka_unit_test(before_its_trigger_a_lazy_grammar_resamples_a_rejected_token),
        cmocka_unit_test(no_token_is_sampled_where_the_grammar_allows_none),
        cmocka_unit_test(an_accepted_token_needs_no_mask_over_the_vocabulary),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
