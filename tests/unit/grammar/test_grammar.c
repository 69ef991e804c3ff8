/* Grammars: which texts match, which grammars are refused, what following them costs. */
#include "grammar/grammar.h"

#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

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

/* What is looked at for a letter are the beginnings of alternatives, not all of their million items. */
static void a_letter_costs_no_more_where_alternatives_are_long(void **state)
{
    (void)state;
    hearth_error error = {0};
    struct buf rules = {0};
    buf_puts(&rules, "root ::= ([^ ] | \"");
    for (int i = 0; i < 500; i++) buf_puts(&rules, "Q");
    buf_puts(&rules, "\"{2000} | [A-Z] \" \")*");
    struct grammar *grammar = grammar_open(rules.v, NULL, &error);
    struct grammar_state now = {0}, next = {0};
    struct timespec began, ended;
    assert_non_null(grammar);
    grammar_start(grammar, &now);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &began);
    for (int i = 0; i < 50000; i++) {
        assert_true(grammar_accept_byte(grammar, &now, (unsigned char)"abC D"[i % 5], &next));
        grammar_copy(&now, &next);
        grammar_reset_budget(grammar);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ended);
    assert_in_range(ended.tv_sec - began.tv_sec, 0, 10); /* a minute, if all items were */
    grammar_release(&now);
    grammar_release(&next);
    grammar_close(grammar);
    buf_release(&rules);
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
        cmocka_unit_test(a_letter_costs_no_more_where_alternatives_are_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
