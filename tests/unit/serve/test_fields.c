/* Parsing of request bodies: every field, wrong types, ranges, and unsupported fields. */
#include "json_trees.h"
#include "serve/fields/fields.h"

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

/* Parses a request that has `member` beside its prompt. */
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
    assert_string_equal(text_of_json(fields.params.messages), "[{\"role\":\"user\",\"content\":\"Hi\"}]");
    assert_null(fields.params.model);
    assert_true(isnan(fields.params.sampling.temperature));
    assert_int_equal(fields.params.max_tokens, none.max_tokens);
    assert_int_equal(fields.params.sampling.top_k, none.sampling.top_k);
    assert_true(fields.params.sampling.seed < 0);
    assert_true(fields.params.cache_prompt);
    assert_false(fields.stream);
    assert_int_equal(fields.n, 1);
    fields_release(&fields);
}

static void every_field_sets_its_parameter(void **state)
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
    assert_true(fields.stream && fields.include_usage && p->sampling.ignore_eos && !p->cache_prompt);
    assert_int_equal(fields.n, 3);
    assert_int_equal(p->sampling.seed, 7);
    assert_true(p->sampling.temperature == 0.5 && p->sampling.top_p == 0.6 && p->sampling.min_p == 0.1);
    assert_true(p->sampling.frequency_penalty == -1.5 && p->sampling.presence_penalty == 2 &&
                p->sampling.repeat_penalty == 1.1);
    assert_int_equal(p->sampling.top_k, 5);
    assert_int_equal(p->sampling.repeat_last_n, -1);
    assert_int_equal(p->sampling.n_logit_bias, 2);
    assert_true(p->sampling.logit_bias[0].token == 12 && p->sampling.logit_bias[0].bias == -100);
    assert_true(p->sampling.logit_bias[1].token == 7 && p->sampling.logit_bias[1].bias == 1.5);
    assert_int_equal(p->n_stop, 2);
    assert_string_equal(p->stop[1], "b");
    assert_int_equal(p->max_tokens, 9);
    assert_string_equal(text_of_json(p->template_kwargs), "{\"enable_thinking\":false}");
    fields_release(&fields);
}

static void every_field_of_a_sampler_sets_its_parameter(void **state)
{
    (void)state;
    struct fields fields;
    hearth_error error;
    const char *member =
        "\"min_keep\":1,\"typical_p\":0.2,\"top_n_sigma\":0.3,\"xtc_probability\":0.4,"
        "\"xtc_threshold\":0.5,\"dynatemp_range\":0.6,\"dynatemp_exponent\":0.7,\"dry_multiplier\":0.8,"
        "\"dry_base\":1.9,\"dry_allowed_length\":10,\"dry_penalty_last_n\":-1,\"mirostat\":2,"
        "\"mirostat_tau\":1.1,\"mirostat_eta\":1.2,\"adaptive_target\":0.15,\"adaptive_decay\":0.16,"
        "\"dry_sequence_breakers\":[\"a\",\"b\"],\"samplers\":[\"top_k\",\"xtc\"],"
        "\"grammar\":\"root ::= [a]\",\"t_max_predict_ms\":17";
    assert_int_equal(read_with(&fields, FIELDS_COMPLETION, member, &error), 0);
    const hearth_sampling *s = &fields.params.sampling;
    assert_true(s->min_keep == 1 && s->typical_p == 0.2 && s->top_n_sigma == 0.3 && s->xtc_probability == 0.4);
    assert_true(s->xtc_threshold == 0.5 && s->dynatemp_range == 0.6 && s->dynatemp_exponent == 0.7);
    assert_true(s->dry_multiplier == 0.8 && s->dry_base == 1.9 && s->dry_allowed_length == 10);
    assert_true(s->dry_penalty_last_n == -1 && s->mirostat == 2 && s->mirostat_tau == 1.1 && s->mirostat_eta == 1.2);
    assert_true(s->adaptive_target == 0.15 && s->adaptive_decay == 0.16);
    assert_int_equal(s->n_dry_breakers, 2);
    assert_string_equal(s->dry_breakers[1], "b");
    assert_int_equal(s->n_samplers, 2);
    assert_string_equal(s->samplers[1], "xtc");
    assert_string_equal(fields.params.grammar, "root ::= [a]");
    assert_int_equal(fields.params.max_ms, 17);
    fields_release(&fields);
}

static void samplers_may_be_letters_and_none(void **state)
{
    (void)state;
    struct fields fields;
    hearth_error error;
    assert_int_equal(read_with(&fields, FIELDS_CHAT, "\"samplers\":\"kt\"", &error), 0);
    assert_int_equal(fields.params.sampling.n_samplers, 2);
    assert_string_equal(fields.params.sampling.samplers[0], "k");
    assert_string_equal(fields.params.sampling.samplers[1], "t");
    fields_release(&fields);
    assert_int_equal(read_with(&fields, FIELDS_CHAT, "\"samplers\":[]", &error), 0);
    assert_non_null(fields.params.sampling.samplers);
    assert_int_equal(fields.params.sampling.n_samplers, 0);
    fields_release(&fields);
}

/* JavaScript cuts texts within characters, and writes the halves as escapes. */
static void halves_of_characters_are_replaced(void **state)
{
    (void)state;
    static const struct {
        const char *escaped, *text;
    } rows[] = {
        {"a\\ud83d", "a\uFFFD"},
        {"\\ude00b", "\uFFFDb"},
        {"\\ud83d\\ud83d\\ude00", "\uFFFD\U0001F600"},
        {"\\uD83Dx\\\\ud83d", "\uFFFDx\\ud83d"}, /* the second is no escape, but a backslash and letters */
        {"\\ud83d\\u0041", "\uFFFDA"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf body = {0};
        hearth_error error = {0};
        buf_printf(&body, "{\"a\":\"%s\"}", rows[i].escaped);
        json_t *tree = fields_parse(body.v, body.len, &error);
        if (tree == NULL) fail_msg("%s: %s", body.v, error.message);
        assert_string_equal(json_string_value(json_object_get(tree, "a")), rows[i].text);
        json_decref(tree);
        buf_release(&body);
    }
    hearth_error error = {0};
    static const char cut[] = "{\"a\":\"\\ud83", odd[] = "{\"a\":\"\\u0x1F\"}";
    assert_null(fields_parse(cut, strlen(cut), &error));
    assert_null(fields_parse(odd, strlen(odd), &error));
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
                                        "prompt_cache_key",
                                        "chat_template_kwargs",
                                        "tools",
                                        "tool_choice",
                                        "response_format",
                                        "logprobs",
                                        "best_of",
                                        "repeat_last_n",
                                        "dry_multiplier",
                                        "samplers",
                                        "dry_sequence_breakers",
                                        "t_max_predict_ms",
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
        const char *param, *values[10];
    } wrong[] = {
        {"model", {"1", "[]", "\"a\\u0000b\""}},
        {"stream", {"1", "\"true\"", "[]"}},
        {"stream_options", {"true", "[]", "\"x\""}},
        {"n", {"0", "129", "-1", "1.5", "\"2\"", "true"}},
        {"best_of", {"0", "\"x\""}},
        {"seed", {"1.5", "\"1\"", "{}", "1e300"}},
        {"temperature", {"-100.1", "100.1", "\"1\"", "[]", "true"}},
        {"top_p", {"-0.1", "1.1", "\"1\""}},
        {"min_p", {"-0.1", "1.1", "\"1\""}},
        {"top_k", {"-2", "3000000000", "0.5", "\"1\""}},
        {"frequency_penalty", {"-2.1", "2.1", "\"1\""}},
        {"presence_penalty", {"-2.1", "2.1", "\"1\""}},
        {"repeat_penalty", {"0", "-1", "\"1\""}},
        {"repetition_penalty", {"0", "-1", "\"1\""}},
        {"verbose", {"1", "\"true\""}},
        {"options", {"1", "[]", "\"x\""}},
        {"repeat_last_n", {"-2", "2000000", "\"1\""}},
        {"min_keep", {"-1", "0.5", "\"1\""}},
        {"typical_p", {"-0.1", "1.1", "\"1\""}},
        {"top_n_sigma", {"1001", "\"1\""}},
        {"xtc_probability", {"-0.1", "1.1", "true"}},
        {"xtc_threshold", {"-0.1", "1.1"}},
        {"dynatemp_range", {"-1", "[]"}},
        {"dynatemp_exponent", {"-1", "\"1\""}},
        {"dry_multiplier", {"-1", "\"1\""}},
        {"dry_base", {"0.5", "\"1\""}},
        {"dry_allowed_length", {"-1", "1.5"}},
        {"dry_penalty_last_n", {"-2", "1.5"}},
        {"dry_sequence_breakers", {"[]", "\"a\"", "[1]", "[\"a\\u0000\"]"}},
        {"mirostat", {"3", "-1", "\"1\""}},
        {"mirostat_tau", {"-1", "[]"}},
        {"mirostat_eta", {"-1", "[]"}},
        {"adaptive_target", {"1.1", "[]"}},
        {"adaptive_decay", {"1", "-0.1"}},
        {"samplers", {"5", "[1]", "{}", "[null]"}},
        {"grammar", {"5", "{}", "\"a\\u0000\""}},
        {"t_max_predict_ms", {"-2", "1.5", "\"1\"", "1e300"}},
        {"logit_bias",
         {"5", "{\"x\":true}", "{\"-1\":1}", "[[null,1]]", "{\"1\":101}", "{\"99999999999\":1}", "[[1]]", "[[1,true]]",
          "[[1.5,1]]"}},
        {"stop",
         {"5", "[1]", "\"a\\u0000\"",
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
        {"prompt_cache_key", {"1", "[]", "\"a\\u0000b\""}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (size_t v = 0; v < 10 && wrong[i].values[v] != NULL; v++)
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
                                          "\"temperature\":-1",
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

static void unsupported_fields_are_refused_only_where_they_ask_for_something(void **state)
{
    (void)state;
    static const struct {
        const char *param;
        int route;
        const char *asks, *does_not;
    } rows[] = {
        {"web_search_options", FIELDS_CHAT, "{\"a\":1}", "{}"},
        {"grammar_lazy", FIELDS_BOTH, "true", "false"},
        {"grammar_triggers", FIELDS_BOTH, "[{\"type\":0,\"value\":\"x\"}]", "[]"},
        {"best_of", FIELDS_COMPLETION, "2", "1"},
        {"audio", FIELDS_CHAT, "{\"voice\":\"x\"}", "null"},
        {"modalities", FIELDS_CHAT, "[\"text\",\"audio\"]", "[\"text\"]"},
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

static void adapters_are_a_list_of_numbers_with_scales(void **state)
{
    (void)state;
    struct fields fields;
    hearth_error error;
    assert_int_equal(
        read_with(&fields, FIELDS_COMPLETION, "\"lora\":[{\"id\":1,\"scale\":0.5},{\"id\":0,\"scale\":2}]", &error),
        HEARTH_OK);
    assert_int_equal(fields.params.n_lora, 2);
    assert_int_equal(fields.params.lora[0].id, 1);
    assert_true(fields.params.lora[0].scale == 0.5 && fields.params.lora[1].scale == 2);
    fields_release(&fields);
    /* None is not the same as not given. */
    assert_int_equal(read_with(&fields, FIELDS_CHAT, "\"lora\":[]", &error), HEARTH_OK);
    assert_true(fields.params.lora != NULL && fields.params.n_lora == 0);
    fields_release(&fields);
    assert_int_equal(read_with(&fields, FIELDS_CHAT, "\"lora\":null", &error), HEARTH_OK);
    assert_null(fields.params.lora);
    fields_release(&fields);
    static const char *const wrong[] = {"1",
                                        "{}",
                                        "[1]",
                                        "[{\"id\":0}]",
                                        "[{\"scale\":1}]",
                                        "[{\"id\":-1,\"scale\":1}]",
                                        "[{\"id\":\"a\",\"scale\":1}]",
                                        "[{\"id\":0,\"scale\":\"1\"}]"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char member[128];
        snprintf(member, sizeof member, "\"lora\":%s", wrong[i]);
        assert_refused(FIELDS_CHAT, member, HEARTH_INVALID, "lora");
    }
}

static void unknown_fields_are_ignored(void **state)
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
        {"{\"prompt\":[1,\"a\",null]}", "prompt", FIELDS_COMPLETION},
        {"{\"prompt\":[\"a\",-1]}", "prompt", FIELDS_COMPLETION},
        {"{\"prompt\":[\"a\",{}]}", "prompt", FIELDS_COMPLETION},
        {"{\"prompt\":{\"prompt_string\":5}}", "prompt", FIELDS_COMPLETION},
        {"{\"prompt\":\"a\",\"suffix\":5}", "suffix", FIELDS_COMPLETION},
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
    assert_int_equal(choices[0].sampling.seed, 10);
    assert_int_equal(choices[1].sampling.seed, 11);
    assert_int_equal(choices[2].sampling.seed, 10);
    free(choices);
    fields_release(&fields);
}

static void a_prompt_may_mix_text_and_tokens(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "{\"prompt\":[12,\"a\\u0000b\",7]}",
        "{\"prompt\":[[12,\"a\\u0000b\",7]]}",
        "{\"prompt\":{\"prompt_string\":[12,\"a\\u0000b\",7]}}",
        "{\"prompt\":[{\"prompt_string\":[12,\"a\\u0000b\",7]}]}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct fields fields;
        hearth_error error;
        size_t n;
        if (read_body(&fields, FIELDS_COMPLETION, bodies[i], &error) != 0) fail_msg("%s: %s", bodies[i], error.message);
        hearth_params *choices = fields_choices(&fields, &n);
        assert_int_equal(n, 1);
        assert_true(choices->text == NULL && choices->tokens == NULL);
        assert_int_equal(choices->n_parts, 3);
        assert_null(choices->parts[0].text);
        assert_int_equal(choices->parts[0].token, 12);
        assert_int_equal(choices->parts[1].len, 3);
        assert_memory_equal(choices->parts[1].text, "a\0b", 3);
        assert_int_equal(choices->parts[2].token, 7);
        free(choices);
        fields_release(&fields);
    }
}

static void images_in_a_prompt_are_refused(void **state)
{
    (void)state;
    struct fields fields;
    hearth_error error;
    const char *body = "{\"prompt\":{\"prompt_string\":\"a\",\"multimodal_data\":[\"x\"]}}";
    assert_int_equal(read_body(&fields, FIELDS_COMPLETION, body, &error), HEARTH_UNSUPPORTED);
    assert_string_equal(error.param, "prompt");
}

static void a_suffix_is_handed_on_unless_it_is_empty(void **state)
{
    (void)state;
    struct fields fields;
    hearth_error error;
    assert_int_equal(read_with(&fields, FIELDS_COMPLETION, "\"suffix\":\"x\\u0000\"", &error), 0);
    assert_int_equal(fields.params.suffix_len, 2);
    assert_memory_equal(fields.params.suffix, "x\0", 2);
    fields_release(&fields);
    assert_int_equal(read_with(&fields, FIELDS_COMPLETION, "\"suffix\":\"\"", &error), 0);
    assert_null(fields.params.suffix);
    fields_release(&fields);
}

static void logprobs_of_the_prompt_come_with_its_echo_or_by_themselves(void **state)
{
    (void)state;
    static const struct {
        int route;
        const char *members;
        int32_t prompt, top;
        bool scores;
    } rows[] = {{FIELDS_COMPLETION, "\"echo\":true,\"logprobs\":0", 0, 0, false},
                {FIELDS_COMPLETION, "\"echo\":true,\"logprobs\":20", 20, 20, false},
                {FIELDS_COMPLETION, "\"echo\":true", -1, -1, false},
                {FIELDS_COMPLETION, "\"echo\":false,\"logprobs\":100", -1, 100, false},
                {FIELDS_COMPLETION, "\"echo\":true,\"logprobs\":null,\"suffix\":\"x\"", -1, -1, false},
                {FIELDS_COMPLETION, "\"prompt_logprobs\":7", 7, -1, true},
                {FIELDS_COMPLETION, "\"prompt_logprobs\":null,\"stream\":true", -1, -1, false},
                {FIELDS_COMPLETION, "\"echo\":true,\"logprobs\":2,\"prompt_logprobs\":2", 2, 2, true},
                {FIELDS_COMPLETION, "\"echo\":true,\"logprobs\":2,\"stream\":true", 2, 2, false},
                {FIELDS_CHAT, "\"prompt_logprobs\":0,\"logprobs\":true", 0, 0, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fields fields;
        hearth_error error;
        if (read_with(&fields, rows[i].route, rows[i].members, &error) != 0)
            fail_msg("%s: %s", rows[i].members, error.message);
        const hearth_params *p = &fields.params;
        if (p->prompt_logprobs != rows[i].prompt || p->top_logprobs != rows[i].top || fields.scores != rows[i].scores)
            fail_msg("%s: %d, %d", rows[i].members, p->prompt_logprobs, p->top_logprobs);
        fields_release(&fields);
    }
    assert_refused(FIELDS_COMPLETION, "\"echo\":true,\"logprobs\":21", HEARTH_INVALID, "logprobs");
    assert_refused(FIELDS_COMPLETION, "\"echo\":true,\"logprobs\":1,\"suffix\":\"x\"", HEARTH_UNSUPPORTED, "suffix");
    assert_refused(FIELDS_COMPLETION, "\"echo\":true,\"logprobs\":1,\"prompt_logprobs\":2", HEARTH_INVALID,
                   "prompt_logprobs");
    assert_refused(FIELDS_COMPLETION, "\"prompt_logprobs\":-1", HEARTH_INVALID, "prompt_logprobs");
    assert_refused(FIELDS_COMPLETION, "\"prompt_logprobs\":21", HEARTH_INVALID, "prompt_logprobs");
    assert_refused(FIELDS_COMPLETION, "\"prompt_logprobs\":1,\"stream\":true", HEARTH_UNSUPPORTED, "prompt_logprobs");
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
    static const char *const names[] = {"session_id", "imc_id", "prompt_cache_key"};
    static const int routes[] = {FIELDS_CHAT, FIELDS_COMPLETION};
    for (size_t i = 0; i < 6; i++) {
        struct fields fields;
        hearth_error error;
        char member[FIELDS_HINT_MAX + 32];
        snprintf(member, sizeof member, "\"%s\":\"%0*d\"", names[i % 3], FIELDS_HINT_MAX, 0);
        assert_int_equal(read_with(&fields, routes[i / 3], member, &error), 0);
        fields_release(&fields);
        snprintf(member, sizeof member, "\"%s\":\"%0*d\"", names[i % 3], FIELDS_HINT_MAX + 1, 0);
        assert_refused(routes[i / 3], member, HEARTH_INVALID, names[i % 3]);
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
        {"{\"tools\":{}," CHAT "}", "tools", HEARTH_INVALID},
        {"{\"functions\":[{}]," CHAT "}", "functions[0].name", HEARTH_INVALID},
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
    /* A lookup ignores fields about the reply, so that clients can send the body of the request itself. */
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
        assert_int_equal((choices->messages != NULL) + (choices->text != NULL) + (choices->tokens != NULL), 1);
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

static void empty_stop_strings_stop_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *member;
        size_t n;
    } rows[] = {{"\"stop\":\"\"", 0}, {"\"stop\":[\"\"]", 0}, {"\"stop\":[\"\",\"a\",\"\"]", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fields fields;
        hearth_error error;
        assert_int_equal(read_with(&fields, FIELDS_CHAT, rows[i].member, &error), 0);
        assert_int_equal(fields.params.n_stop, rows[i].n);
        if (rows[i].n > 0) assert_string_equal(fields.params.stop[0], "a");
        fields_release(&fields);
    }
}

static void the_options_of_ollama_count_where_the_body_itself_lacks_the_field(void **state)
{
    (void)state;
    struct fields fields;
    hearth_error error;
    const char *member = "\"temperature\":0.5,\"top_k\":null,\"keep_alive\":\"5m\",\"options\":{\"temperature\":0.7,"
                         "\"top_k\":7,\"num_predict\":9,\"num_ctx\":4096,\"stop\":[\"x\"],\"seed\":3,"
                         "\"repeat_penalty\":1.5,\"min_keep\":5}";
    assert_int_equal(read_with(&fields, FIELDS_CHAT, member, &error), 0);
    const hearth_params *p = &fields.params;
    assert_true(p->sampling.temperature == 0.5 && p->sampling.repeat_penalty == 1.5);
    assert_int_equal(p->sampling.top_k, 7);
    assert_int_equal(p->max_tokens, 9);
    assert_int_equal(p->sampling.seed, 3);
    assert_int_equal(p->n_stop, 1);
    assert_string_equal(p->stop[0], "x");
    assert_int_equal(p->sampling.min_keep, HEARTH_UNSET); /* which Ollama does not have */
    fields_release(&fields);
    assert_int_equal(read_with(&fields, FIELDS_CHAT, "\"max_tokens\":4,\"options\":{\"num_predict\":9}", &error), 0);
    assert_int_equal(fields.params.max_tokens, 4);
    fields_release(&fields);
    assert_refused(FIELDS_CHAT, "\"options\":{\"temperature\":\"hot\"}", HEARTH_INVALID, "options.temperature");
    assert_refused(FIELDS_CHAT, "\"options\":{\"num_predict\":[]}", HEARTH_INVALID, "options.num_predict");
}

static void the_penalty_of_repetition_has_two_names(void **state)
{
    (void)state;
    struct fields fields;
    hearth_error error;
    assert_int_equal(read_with(&fields, FIELDS_COMPLETION, "\"repetition_penalty\":1.25", &error), 0);
    assert_true(fields.params.sampling.repeat_penalty == 1.25);
    fields_release(&fields);
}

static void a_bias_may_be_given_in_the_form_of_llama_server(void **state)
{
    (void)state;
    struct fields fields;
    hearth_error error;
    assert_int_equal(read_with(&fields, FIELDS_CHAT, "\"logit_bias\":[[5,false],[6,-2.5]]", &error), 0);
    assert_int_equal(fields.params.sampling.n_logit_bias, 2);
    assert_true(isinf(fields.params.sampling.logit_bias[0].bias) && fields.params.sampling.logit_bias[0].bias < 0);
    assert_true(fields.params.sampling.logit_bias[1].token == 6 && fields.params.sampling.logit_bias[1].bias == -2.5F);
    fields_release(&fields);
}

/* As in llama-server: in a list every string is a text, as a key every one that is no number. */
static void a_bias_may_be_of_a_text(void **state)
{
    (void)state;
    static const char *const members[] = {"\"logit_bias\":[[\" hello\",false],[\"12\",3],[7,1]]",
                                          "\"logit_bias\":{\" hello\":false,\"12x\":3,\"7\":1}"};
    for (size_t i = 0; i < 2; i++) {
        struct fields fields;
        hearth_error error;
        assert_int_equal(read_with(&fields, FIELDS_CHAT, members[i], &error), 0);
        const hearth_bias *biases = fields.params.sampling.logit_bias;
        assert_int_equal(fields.params.sampling.n_logit_bias, 3);
        assert_string_equal(biases[0].text, " hello");
        assert_true(isinf(biases[0].bias) && biases[1].bias == 3);
        assert_string_equal(biases[1].text, i == 0 ? "12" : "12x");
        assert_null(biases[2].text);
        assert_int_equal(biases[2].token, 7);
        fields_release(&fields);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_given_leaves_all_to_the_configuration),
        cmocka_unit_test(every_field_sets_its_parameter),
        cmocka_unit_test(every_field_of_a_sampler_sets_its_parameter),
        cmocka_unit_test(samplers_may_be_letters_and_none),
        cmocka_unit_test(halves_of_characters_are_replaced),
        cmocka_unit_test(null_means_not_given),
        cmocka_unit_test(a_wrong_type_or_range_is_refused_by_the_name_of_its_field),
        cmocka_unit_test(the_ends_of_every_range_are_taken),
        cmocka_unit_test(unsupported_fields_are_refused_only_where_they_ask_for_something),
        cmocka_unit_test(adapters_are_a_list_of_numbers_with_scales),
        cmocka_unit_test(unknown_fields_are_ignored),
        cmocka_unit_test(a_body_that_is_no_request_is_refused),
        cmocka_unit_test(a_prompt_may_be_text_tokens_or_a_list_of_these),
        cmocka_unit_test(a_salt_is_handed_on),
        cmocka_unit_test(a_parent_key_is_handed_on),
        cmocka_unit_test(the_id_of_a_session_is_taken_up_to_its_length),
        cmocka_unit_test(a_prompt_may_mix_text_and_tokens),
        cmocka_unit_test(images_in_a_prompt_are_refused),
        cmocka_unit_test(a_suffix_is_handed_on_unless_it_is_empty),
        cmocka_unit_test(logprobs_of_the_prompt_come_with_its_echo_or_by_themselves),
        cmocka_unit_test(a_lookup_is_of_one_prompt),
        cmocka_unit_test(a_lookup_takes_whatever_prompt_a_reply_is_asked_for_with),
        cmocka_unit_test(of_two_names_for_the_length_the_newer_one_holds),
        cmocka_unit_test(a_bias_may_be_given_in_the_form_of_llama_server),
        cmocka_unit_test(a_bias_may_be_of_a_text),
        cmocka_unit_test(empty_stop_strings_stop_nothing),
        cmocka_unit_test(the_options_of_ollama_count_where_the_body_itself_lacks_the_field),
        cmocka_unit_test(the_penalty_of_repetition_has_two_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
