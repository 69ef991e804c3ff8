/* Reading the bodies of requests: every field, its wrong types and its ranges, and what is refused. */
#include "serve/fields.h"

#include "base/buf.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KEY  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define CHAT "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"

static int read_body(struct fields *fields, int route, const char *body, hearth_error *error)
{
    *error = (hearth_error){0};
    return fields_read(fields, route, body, strlen(body), error);
}

/* Reads a request that has `member` beside its prompt. */
static int read_with(struct fields *fields, int route, const char *member, hearth_error *error)
{
    struct buf body = {0};
    buf_printf(&body, "{%s,%s}", member, route == FIELDS_CHAT ? CHAT : "\"prompt\":\"Hi\"");
    int rc = read_body(fields, route, body.v, error);
    buf_release(&body);
    return rc;
}

static void assert_refused(int route, const char *member, int code, const char *param)
{
    struct fields fields;
    hearth_error error;
    int rc = read_with(&fields, route, member, &error);
    if (rc == HEARTH_OK) fields_release(&fields);
    if (rc != code || strcmp(error.param, param) != 0 || error.message[0] == '\0')
        fail_msg("%s: code %d, param '%s', message '%s'", member, rc, error.param, error.message);
}

static void nothing_given_leaves_all_to_the_configuration(void **state)
{
    (void)state;
    struct fields fields;
    hearth_error error;
    assert_int_equal(read_body(&fields, FIELDS_CHAT, "{" CHAT "}", &error), 0);
    hearth_params none = hearth_params_default();
    assert_string_equal(fields.params.messages_json, "[{\"role\":\"user\",\"content\":\"Hi\"}]");
    assert_null(fields.params.model);
    assert_true(isnan(fields.params.temperature));
    assert_int_equal(fields.params.max_tokens, none.max_tokens);
    assert_int_equal(fields.params.top_k, none.top_k);
    assert_true(fields.params.seed < 0);
    assert_true(fields.params.cache_prompt);
    assert_false(fields.stream);
    assert_int_equal(fields.n, 1);
    fields_release(&fields);
}

static void every_field_reaches_its_place(void **state)
{
    (void)state;
    struct fields fields;
    hearth_error error;
    const char *member =
        "\"model\":\"demo\",\"stream\":true,\"stream_options\":{\"include_usage\":true},\"n\":3,\"seed\":7,"
        "\"temperature\":0.5,\"top_p\":0.6,\"top_k\":5,\"min_p\":0.1,\"frequency_penalty\":-1.5,"
        "\"presence_penalty\":2,\"repeat_penalty\":1.1,\"repeat_last_n\":-1,\"logit_bias\":{\"12\":-100,\"7\":1.5},"
        "\"stop\":[\"a\",\"b\"],\"max_tokens\":9,\"ignore_eos\":true,\"cache_prompt\":false,"
        "\"chat_template_kwargs\":{\"enable_thinking\":false}";
    assert_int_equal(read_with(&fields, FIELDS_CHAT, member, &error), 0);
    const hearth_params *p = &fields.params;
    assert_string_equal(p->model, "demo");
    assert_true(fields.stream && fields.include_usage && p->ignore_eos && !p->cache_prompt);
    assert_int_equal(fields.n, 3);
    assert_int_equal(p->seed, 7);
    assert_true(p->temperature == 0.5 && p->top_p == 0.6 && p->min_p == 0.1);
    assert_true(p->frequency_penalty == -1.5 && p->presence_penalty == 2 && p->repeat_penalty == 1.1);
    assert_int_equal(p->top_k, 5);
    assert_int_equal(p->repeat_last_n, -1);
    assert_int_equal(p->n_logit_bias, 2);
    assert_true(p->logit_bias[0].token == 12 && p->logit_bias[0].bias == -100);
    assert_true(p->logit_bias[1].token == 7 && p->logit_bias[1].bias == 1.5);
    assert_int_equal(p->n_stop, 2);
    assert_string_equal(p->stop[1], "b");
    assert_int_equal(p->max_tokens, 9);
    assert_string_equal(p->template_kwargs_json, "{\"enable_thinking\":false}");
    fields_release(&fields);
}

static void null_means_not_given(void **state)
{
    (void)state;
    static const char *const names[] = {"model",
                                        "stream",
                                        "stream_options",
                                        "n",
                                        "seed",
                                        "temperature",
                                        "top_p",
                                        "top_k",
                                        "min_p",
                                        "logit_bias",
                                        "stop",
                                        "max_tokens",
                                        "ignore_eos",
                                        "cache_prompt",
                                        "cache_salt",
                                        "parent_key",
                                        "session_id",
                                        "imc_id",
                                        "chat_template_kwargs",
                                        "tools",
                                        "tool_choice",
                                        "response_format",
                                        "logprobs",
                                        "best_of",
                                        "repeat_last_n",
                                        "grammar",
                                        "modalities"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct fields fields;
        hearth_error error;
        char member[64];
        snprintf(member, sizeof member, "\"%s\":null", names[i]);
        if (read_with(&fields, FIELDS_CHAT, member, &error) != 0) fail_msg("%s: %s", names[i], error.message);
        assert_true(fields.params.cache_prompt);
        fields_release(&fields);
    }
}

static void a_wrong_type_or_range_is_refused_by_the_name_of_its_field(void **state)
{
    (void)state;
    static const struct {
        const char *param, *values[8];
    } wrong[] = {
        {"model", {"1", "[]", "\"a\\u0000b\""}},
        {"stream", {"1", "\"true\"", "[]"}},
        {"stream_options", {"true", "[]", "\"x\""}},
        {"n", {"0", "129", "-1", "1.5", "\"2\"", "true"}},
        {"best_of", {"0", "\"x\""}},
        {"seed", {"1.5", "\"1\"", "{}", "1e300"}},
        {"temperature", {"-0.1", "100.1", "\"1\"", "[]", "true"}},
        {"top_p", {"-0.1", "1.1", "\"1\""}},
        {"min_p", {"-0.1", "1.1", "\"1\""}},
        {"top_k", {"-2", "3000000000", "0.5", "\"1\""}},
        {"frequency_penalty", {"-2.1", "2.1", "\"1\""}},
        {"presence_penalty", {"-2.1", "2.1", "\"1\""}},
        {"repeat_penalty", {"0", "-1", "\"1\""}},
        {"repeat_last_n", {"-2", "2000000", "\"1\""}},
        {"logit_bias",
         {"5", "{\"x\":1}", "{\"-1\":1}", "{\"1\":101}", "{\"99999999999\":1}", "[[1]]", "[[1,true]]", "[[1.5,1]]"}},
        {"stop",
         {"5", "\"\"", "[\"a\",\"\"]", "[1]", "\"a\\u0000\"",
          "[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"0\",\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\"]"}},
        {"max_tokens", {"-2", "1.5", "\"5\"", "3000000000"}},
        {"max_completion_tokens", {"-2", "[]"}},
        {"n_predict", {"-2", "[]"}},
        {"ignore_eos", {"1", "\"x\""}},
        {"cache_prompt", {"1", "\"x\""}},
        {"cache_salt", {"1", "{}"}},
        {"parent_key", {"1", "{}", "\"\"", "\"0123\"", "\"" KEY "0\"", "\"g" KEY "\"", "\"\\u0000\""}},
        {"session_id", {"1", "{}", "true", "\"a\\u0000b\""}},
        {"imc_id", {"1", "[]", "\"a\\u0000b\""}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (size_t v = 0; v < 8 && wrong[i].values[v] != NULL; v++)
            for (int route = FIELDS_CHAT; route <= FIELDS_COMPLETION; route++) {
                char member[256];
                snprintf(member, sizeof member, "\"%s\":%s", wrong[i].param, wrong[i].values[v]);
                assert_refused(route, member, HEARTH_INVALID, wrong[i].param);
            }
    assert_refused(FIELDS_CHAT, "\"stream_options\":{\"include_usage\":1}", HEARTH_INVALID,
                   "stream_options.include_usage");
    assert_refused(FIELDS_CHAT, "\"chat_template_kwargs\":[]", HEARTH_INVALID, "chat_template_kwargs");
    assert_refused(FIELDS_COMPLETION, "\"echo\":\"x\"", HEARTH_INVALID, "echo");
}

static void the_ends_of_every_range_are_taken(void **state)
{
    (void)state;
    static const char *const members[] = {"\"n\":1",
                                          "\"n\":128",
                                          "\"n\":2.0",
                                          "\"temperature\":0",
                                          "\"temperature\":2",
                                          "\"temperature\":100",
                                          "\"top_p\":0",
                                          "\"top_p\":1",
                                          "\"top_k\":-1",
                                          "\"top_k\":2147483647",
                                          "\"min_p\":1",
                                          "\"frequency_penalty\":-2",
                                          "\"presence_penalty\":2",
                                          "\"max_tokens\":0",
                                          "\"seed\":-1",
                                          "\"seed\":9223372036854775807",
                                          "\"stop\":[]",
                                          "\"logit_bias\":{}",
                                          "\"logit_bias\":[]",
                                          "\"repeat_last_n\":0",
                                          "\"model\":\"\"",
                                          "\"best_of\":1",
                                          "\"stream_options\":{}"};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        struct fields fields;
        hearth_error error;
        if (read_with(&fields, FIELDS_COMPLETION, members[i], &error) != 0)
            fail_msg("%s: %s", members[i], error.message);
        fields_release(&fields);
    }
}

static void what_is_not_built_is_refused_only_where_it_is_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *param;
        int route;
        const char *asks, *does_not;
    } rows[] = {
        {"tools", FIELDS_CHAT, "[{\"type\":\"function\"}]", "[]"},
        {"tool_choice", FIELDS_CHAT, "\"required\"", "\"auto\""},
        {"tool_choice", FIELDS_CHAT, "{\"type\":\"function\"}", "\"none\""},
        {"functions", FIELDS_CHAT, "[{}]", "[]"},
        {"response_format", FIELDS_CHAT, "{\"type\":\"json_object\"}", "{\"type\":\"text\"}"},
        {"response_format", FIELDS_CHAT, "\"json\"", "null"},
        {"logprobs", FIELDS_CHAT, "true", "false"},
        {"logprobs", FIELDS_COMPLETION, "0", "null"},
        {"top_logprobs", FIELDS_CHAT, "5", "0"},
        {"grammar", FIELDS_BOTH, "\"root ::= x\"", "\"\""},
        {"json_schema", FIELDS_BOTH, "{\"type\":\"object\"}", "null"},
        {"suffix", FIELDS_COMPLETION, "\"x\"", "\"\""},
        {"best_of", FIELDS_COMPLETION, "2", "1"},
        {"audio", FIELDS_CHAT, "{\"voice\":\"x\"}", "null"},
        {"modalities", FIELDS_CHAT, "[\"text\",\"audio\"]", "[\"text\"]"},
        {"lora", FIELDS_BOTH, "[{\"id\":0}]", "[]"},
        {"dry_multiplier", FIELDS_BOTH, "0.8", "0"},
        {"xtc_probability", FIELDS_BOTH, "0.1", "0.0"},
        {"mirostat", FIELDS_BOTH, "2", "0"},
        {"typical_p", FIELDS_BOTH, "0.9", "1.0"},
        {"top_n_sigma", FIELDS_BOTH, "1", "-1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int route = FIELDS_CHAT; route <= FIELDS_COMPLETION; route++) {
            struct fields fields;
            hearth_error error;
            char member[128];
            if ((rows[i].route & route) == 0) continue;
            snprintf(member, sizeof member, "\"%s\":%s", rows[i].param, rows[i].asks);
            assert_refused(route, member, HEARTH_UNSUPPORTED, rows[i].param);
            snprintf(member, sizeof member, "\"%s\":%s", rows[i].param, rows[i].does_not);
            if (read_with(&fields, route, member, &error) != 0) fail_msg("%s: %s", member, error.message);
            fields_release(&fields);
        }
}

static void fields_nobody_knows_are_skipped(void **state)
{
    (void)state;
    struct fields fields;
    hearth_error error;
    const char *member = "\"user\":\"u\",\"metadata\":{\"a\":1},\"store\":true,\"service_tier\":\"auto\",\"xyz\":[1]";
    assert_int_equal(read_with(&fields, FIELDS_CHAT, member, &error), 0);
    fields_release(&fields);
}

static void a_body_that_is_no_request_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *body, *param;
        int route;
    } rows[] = {
        {"", "", FIELDS_CHAT},
        {"{", "", FIELDS_CHAT},
        {"[]", "", FIELDS_CHAT},
        {"{} x", "", FIELDS_CHAT},
        {"{\"a\":\"\xff\"}", "", FIELDS_CHAT},
        {"{}", "messages", FIELDS_CHAT},
        {"{\"messages\":null}", "messages", FIELDS_CHAT},
        {"{\"messages\":[]}", "messages", FIELDS_CHAT},
        {"{\"messages\":\"Hi\"}", "messages", FIELDS_CHAT},
        {"{\"prompt\":\"Hi\"}", "messages", FIELDS_CHAT},
        {"{}", "prompt", FIELDS_COMPLETION},
        {"{\"prompt\":5}", "prompt", FIELDS_COMPLETION},
        {"{\"prompt\":{}}", "prompt", FIELDS_COMPLETION},
        {"{\"prompt\":[]}", "prompt", FIELDS_COMPLETION},
        {"{\"prompt\":[[]]}", "prompt", FIELDS_COMPLETION},
        {"{\"prompt\":[1,\"a\"]}", "prompt", FIELDS_COMPLETION},
        {"{\"prompt\":[\"a\",1]}", "prompt", FIELDS_COMPLETION},
        {"{\"prompt\":[-1]}", "prompt", FIELDS_COMPLETION},
        {"{\"prompt\":[1.5]}", "prompt", FIELDS_COMPLETION},
        {"{\"prompt\":[[1],[2,null]]}", "prompt", FIELDS_COMPLETION},
        {"{\"prompt\":[\"a\",\"b\"],\"n\":65}", "n", FIELDS_COMPLETION},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fields fields;
        hearth_error error;
        int rc = read_body(&fields, rows[i].route, rows[i].body, &error);
        if (rc != HEARTH_INVALID || strcmp(error.param, rows[i].param) != 0)
            fail_msg("%s: code %d, param '%s'", rows[i].body, rc, error.param);
    }
}

static void a_prompt_may_be_text_tokens_or_a_list_of_these(void **state)
{
    (void)state;
    struct fields fields;
    hearth_error error;
    assert_int_equal(read_body(&fields, FIELDS_COMPLETION, "{\"prompt\":\"a\\u0000b\"}", &error), 0);
    assert_int_equal(fields.n_prompts, 1);
    assert_int_equal(fields.prompts[0].len, 3);
    assert_memory_equal(fields.prompts[0].text, "a\0b", 3);
    fields_release(&fields);

    assert_int_equal(read_body(&fields, FIELDS_COMPLETION, "{\"prompt\":[5,6,7]}", &error), 0);
    assert_int_equal(fields.n_prompts, 1);
    assert_int_equal(fields.prompts[0].n_tokens, 3);
    assert_int_equal(fields.prompts[0].tokens[2], 7);
    fields_release(&fields);

    assert_int_equal(read_body(&fields, FIELDS_COMPLETION, "{\"prompt\":[\"a\",[1,2]],\"n\":2,\"seed\":10}", &error),
                     0);
    size_t n;
    hearth_params *choices = fields_choices(&fields, &n);
    assert_int_equal(n, 4);
    assert_string_equal(choices[1].text, "a");
    assert_null(choices[1].tokens);
    assert_null(choices[2].text);
    assert_int_equal(choices[3].n_tokens, 2);
    assert_int_equal(choices[3].tokens[1], 2);
    /* Each choice of a prompt has its own seed, so that they differ. */
    assert_int_equal(choices[0].seed, 10);
    assert_int_equal(choices[1].seed, 11);
    assert_int_equal(choices[2].seed, 10);
    free(choices);
    fields_release(&fields);
}

static void a_salt_is_handed_on(void **state)
{
    (void)state;
    struct fields fields;
    hearth_error error;
    assert_int_equal(read_with(&fields, FIELDS_CHAT, "\"cache_salt\":\"s\"", &error), 0);
    assert_string_equal(fields.params.cache_salt, "s");
    fields_release(&fields);
}

static void a_parent_key_is_handed_on(void **state)
{
    (void)state;
    struct fields fields;
    hearth_error error;
    assert_int_equal(read_with(&fields, FIELDS_CHAT, "\"parent_key\":\"" KEY "\"", &error), 0);
    assert_string_equal(fields.params.parent_key, KEY);
    fields_release(&fields);
    char wrong[] = "\"parent_key\":\"" KEY "\"";
    wrong[sizeof wrong - 3] = 'g';
    assert_refused(FIELDS_CHAT, wrong, HEARTH_INVALID, "parent_key");
}

static void the_id_of_a_session_is_taken_up_to_its_length(void **state)
{
    (void)state;
    static const char *const names[] = {"session_id", "imc_id"};
    static const int routes[] = {FIELDS_CHAT, FIELDS_COMPLETION};
    for (size_t i = 0; i < 4; i++) {
        struct fields fields;
        hearth_error error;
        char member[FIELDS_HINT_MAX + 32];
        snprintf(member, sizeof member, "\"%s\":\"%0*d\"", names[i % 2], FIELDS_HINT_MAX, 0);
        assert_int_equal(read_with(&fields, routes[i / 2], member, &error), 0);
        fields_release(&fields);
        snprintf(member, sizeof member, "\"%s\":\"%0*d\"", names[i % 2], FIELDS_HINT_MAX + 1, 0);
        assert_refused(routes[i / 2], member, HEARTH_INVALID, names[i % 2]);
    }
}

static void a_lookup_is_of_one_prompt(void **state)
{
    (void)state;
    static const struct {
        const char *body, *param;
        int code;
    } wrong[] = {
        {"{}", "prompt", HEARTH_INVALID},
        {"{\"prompt\":[\"a\",\"b\"]}", "prompt", HEARTH_INVALID},
        {"{\"prompt\":\"a\"," CHAT "}", "prompt", HEARTH_INVALID},
        {"{\"prompt\":{}}", "prompt", HEARTH_INVALID},
        {"{\"messages\":[]}", "messages", HEARTH_INVALID},
        {"{\"cache_salt\":5,\"prompt\":\"a\"}", "cache_salt", HEARTH_INVALID},
        {"{\"tools\":[{}]," CHAT "}", "tools", HEARTH_UNSUPPORTED},
        {"{\"suffix\":\"x\",\"prompt\":\"a\"}", "suffix", HEARTH_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct fields fields;
        hearth_error error;
        int rc = read_body(&fields, FIELDS_LOOKUP, wrong[i].body, &error);
        if (rc != wrong[i].code || strcmp(error.param, wrong[i].param) != 0)
            fail_msg("%s: code %d, param '%s'", wrong[i].body, rc, error.param);
    }
}

static void a_lookup_takes_whatever_prompt_a_reply_is_asked_for_with(void **state)
{
    (void)state;
    /* What only says how to reply is skipped, so that the body of the request itself can be sent. */
    static const char *const bodies[] = {
        "{\"n\":4,\"stream\":true,\"grammar\":\"x\",\"cache_salt\":\"s\"," CHAT "}",
        "{\"prompt\":\"a\",\"cache_salt\":\"s\"}",
        "{\"prompt\":[5,6],\"cache_salt\":\"s\"}",
        "{\"prompt\":[[5,6]],\"cache_salt\":\"s\"}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct fields fields;
        hearth_error error;
        size_t n;
        if (read_body(&fields, FIELDS_LOOKUP, bodies[i], &error) != 0) fail_msg("%s: %s", bodies[i], error.message);
        hearth_params *choices = fields_choices(&fields, &n);
        assert_int_equal(n, 1);
        assert_int_equal((choices->messages_json != NULL) + (choices->text != NULL) + (choices->tokens != NULL), 1);
        assert_string_equal(choices->cache_salt, "s");
        assert_false(fields.stream);
        free(choices);
        fields_release(&fields);
    }
}

static void of_two_names_for_the_length_the_newer_one_holds(void **state)
{
    (void)state;
    struct fields fields;
    hearth_error error;
    const char *member = "\"max_completion_tokens\":3,\"max_tokens\":5,\"n_predict\":7";
    assert_int_equal(read_with(&fields, FIELDS_CHAT, member, &error), 0);
    assert_int_equal(fields.params.max_tokens, 3);
    fields_release(&fields);
    assert_int_equal(read_with(&fields, FIELDS_CHAT, "\"n_predict\":-1", &error), 0);
    assert_int_equal(fields.params.max_tokens, HEARTH_UNSET);
    fields_release(&fields);
}

static void a_bias_may_be_given_in_the_form_of_llama_server(void **state)
{
    (void)state;
    struct fields fields;
    hearth_error error;
    assert_int_equal(read_with(&fields, FIELDS_CHAT, "\"logit_bias\":[[5,false],[6,-2.5]]", &error), 0);
    assert_int_equal(fields.params.n_logit_bias, 2);
    assert_true(isinf(fields.params.logit_bias[0].bias) && fields.params.logit_bias[0].bias < 0);
    assert_true(fields.params.logit_bias[1].token == 6 && fields.params.logit_bias[1].bias == -2.5F);
    fields_release(&fields);
}

static void echoing_tokens_is_refused(void **state)
{
    (void)state;
    struct fields fields;
    hearth_error error;
    assert_int_equal(read_body(&fields, FIELDS_COMPLETION, "{\"prompt\":[1,2],\"echo\":true}", &error),
                     HEARTH_UNSUPPORTED);
    assert_string_equal(error.param, "echo");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_given_leaves_all_to_the_configuration),
        cmocka_unit_test(every_field_reaches_its_place),
        cmocka_unit_test(null_means_not_given),
        cmocka_unit_test(a_wrong_type_or_range_is_refused_by_the_name_of_its_field),
        cmocka_unit_test(the_ends_of_every_range_are_taken),
        cmocka_unit_test(what_is_not_built_is_refused_only_where_it_is_asked_for),
        cmocka_unit_test(fields_nobody_knows_are_skipped),
        cmocka_unit_test(a_body_that_is_no_request_is_refused),
        cmocka_unit_test(a_prompt_may_be_text_tokens_or_a_list_of_these),
        cmocka_unit_test(a_salt_is_handed_on),
        cmocka_unit_test(a_parent_key_is_handed_on),
        cmocka_unit_test(the_id_of_a_session_is_taken_up_to_its_length),
        cmocka_unit_test(a_lookup_is_of_one_prompt),
        cmocka_unit_test(a_lookup_takes_whatever_prompt_a_reply_is_asked_for_with),
        cmocka_unit_test(of_two_names_for_the_length_the_newer_one_holds),
        cmocka_unit_test(a_bias_may_be_given_in_the_form_of_llama_server),
        cmocka_unit_test(echoing_tokens_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
