/* Numbers of clients' bodies, in every API: what reaches the template has their value and digits, what is stored and
 * answered too, and a number that a field cannot take is refused by that field's name. */
#include "json_trees.h"
#include "serve/anthropic/anthropic.h"
#include "serve/core/answer.h"
#include "serve/ollama/ollama.h"
#include "serve/responses/responses.h"

#include "base/memory.h"

#include "unit/serve/dialect_rig.h"

#include <stdio.h>

/* A number of a body, and how it goes on: as Python's json.dumps(json.loads(number)) prints it, or as it was. */
static const char *const numbers[][2] = {
    {"52.52000659", "52.52000659"},
    {"1727133797.5", "1727133797.5"},
    {"12345678.9", "12345678.9"},
    {"1e-7", "1e-07"},
    {"1.0", "1.0"},
    {"0.30000000000000004", "0.30000000000000004"},
    {"1727133797.123456", "1727133797.123456"},
    {"9007199254740993", "9007199254740993"},
    {"9223372036854775807", "9223372036854775807"},
    {"9223372036854775808", "9223372036854775808"},
    {"18446744073709551615", "18446744073709551615"},
    {"-9223372036854775809", "-9223372036854775809"},
    {"340282366920938463463374607431768211455", "340282366920938463463374607431768211455"},
    {"1e999", "1e999"},
};

enum { N_NUMBERS = sizeof numbers / sizeof *numbers };

/* `format` with the number, or its other form, wherever it has a "#". Owned by the caller. */
static char *with_number(const char *format, const char *number)
{
    struct buf text = {0};
    for (const char *hash; (hash = strchr(format, '#')) != NULL; format = hash + 1) {
        buf_append(&text, format, (size_t)(hash - format));
        buf_puts(&text, number);
    }
    buf_puts(&text, format);
    return buf_take(&text);
}

/* ---- From the body to the template ---- */

/* A body with "#" for a number, and what messages, tools, arguments of the template and schema must then contain. */
struct spot {
    const char *what;
    const struct fields_api *api; /* NULL: OpenAI's and llama-server's */
    const char *body;
    const char *messages, *tools, *kwargs, *schema;
};

#define HI       "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
#define SCHEMA   "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"integer\",\"maximum\":#,\"enum\":[#,1]}}}"
#define FUNCTION "{\"type\":\"function\",\"function\":{\"name\":\"act\",\"parameters\":" SCHEMA "}}"
#define LIMIT    "\"maximum\":#,\"enum\":[#,1]"
#define IN_TEXT  "\"arguments\":\"{\\\"lat\\\":#,\\\"of\\\":[#]}\""

static const struct spot spots[] = {
    {"a chat's tools", NULL, "{" HI ",\"tools\":[" FUNCTION "]}", .tools = LIMIT},
    {"a chat's functions", NULL, "{" HI ",\"functions\":[{\"name\":\"act\",\"parameters\":" SCHEMA "}]}",
     .tools = LIMIT},
    {"a chat's arguments, as an object", NULL,
     "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"act\",\"arguments\":{\"id\":#}}}"
     "]}]}",
     .messages = "\"arguments\":{\"id\":#}"},
    {"a chat's response_format", NULL,
     "{" HI ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":" SCHEMA "}}}",
     .schema = LIMIT},
    {"a chat's json_schema", NULL, "{" HI ",\"json_schema\":" SCHEMA "}", .schema = LIMIT},
    {"arguments of the template", NULL, "{" HI ",\"chat_template_kwargs\":{\"limit\":#}}", .kwargs = "{\"limit\":#}"},
    {"Messages' tools", &anthropic_api, "{" HI ",\"tools\":[{\"name\":\"act\",\"input_schema\":" SCHEMA "}]}",
     .tools = LIMIT},
    {"Messages' input", &anthropic_api,
     "{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"act\","
     "\"input\":{\"lat\":#,\"of\":[#]}}]}]}",
     .messages = IN_TEXT},
    {"Responses' tools", &responses_api,
     "{\"input\":\"Hi\",\"tools\":[{\"type\":\"function\",\"name\":\"act\",\"parameters\":" SCHEMA "}]}",
     .tools = LIMIT},
    {"Responses' format", &responses_api,
     "{\"input\":\"Hi\",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"a\",\"schema\":" SCHEMA "}}}",
     .schema = LIMIT},
    {"Ollama's tools", &ollama_chat_api, "{" HI ",\"tools\":[" FUNCTION "]}", .tools = LIMIT},
    {"Ollama's arguments", &ollama_chat_api,
     "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"act\","
     "\"arguments\":{\"lat\":#,\"of\":[#]}}}]}]}",
     .messages = IN_TEXT},
    {"Ollama's format", &ollama_chat_api, "{" HI ",\"format\":" SCHEMA "}", .schema = LIMIT},
};

static void assert_within(const struct spot *spot, const char *text, const char *format, const char *number)
{
    char *expected = format == NULL ? NULL : with_number(format, number);
    if (expected != NULL && (text == NULL || strstr(text, expected) == NULL))
        fail_msg("%s: %s has not %s", spot->what, text, expected);
    free(expected);
}

static void numbers_reach_the_template_with_value_and_digits(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof spots / sizeof *spots; i++) {
        for (size_t k = 0; k < N_NUMBERS; k++) {
            const struct spot *spot = &spots[i];
            hearth_error error = {0};
            struct buf body = {0};
            char *text = with_number(spot->body, numbers[k][0]);
            buf_puts(&body, text);
            struct fields *fields = fields_open(&body, FIELDS_CHAT, spot->api, &error);
            if (fields == NULL) fail_msg("%s: %s: %s", spot->what, text, error.message);
            assert_within(spot, text_of_json(fields->params.messages), spot->messages, numbers[k][1]);
            assert_within(spot, text_of_json(fields->params.tools), spot->tools, numbers[k][1]);
            assert_within(spot, text_of_json(fields->params.template_kwargs), spot->kwargs, numbers[k][1]);
            assert_within(spot, text_of_json(fields->params.json_schema), spot->schema, numbers[k][1]);
            fields_close(fields);
            free(text);
        }
    }
}

static void text_that_a_client_sends_as_arguments_is_not_touched(void **unused)
{
    (void)unused;
    hearth_error error = {0};
    struct fields fields;
    static const char body[] = "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"act\","
                               "\"arguments\":\"{\\\"a\\\": 1e2, \\\"b\\\": 00}\"}}]}]}";
    assert_int_equal(fields_read(&fields, FIELDS_CHAT, body, strlen(body), &error), HEARTH_OK);
    assert_non_null(strstr(text_of_json(fields.params.messages), "\"{\\\"a\\\": 1e2, \\\"b\\\": 00}\""));
    fields_release(&fields);
}

/* ---- From the body back to the client ---- */

static void a_response_repeats_numbers_as_they_were(void **unused)
{
    (void)unused;
    for (size_t k = 0; k < N_NUMBERS; k++) {
        char *given = with_number("{\"metadata\":{\"id\":#},\"temperature\":#}", numbers[k][0]);
        char *expected = with_number(",\"metadata\":{\"id\":#}", numbers[k][1]);
        hearth_error error;
        struct buf out = {0};
        json_t *body = fields_parse(given, strlen(given), &error);
        responses_put_echo(&out, body);
        if (strstr(out.v, expected) == NULL) fail_msg("%s has not %s", out.v, expected);
        json_decref(body);
        buf_release(&out);
        free(given);
        free(expected);
    }
}

static void a_calls_arguments_reach_the_client_as_the_model_wrote_them(void **unused)
{
    (void)unused;
    for (size_t k = 0; k < N_NUMBERS; k++) {
        struct answer_call call = {0};
        struct buf out = {0};
        char *written = with_number("{\"lat\":#,\"of\":[#]}", numbers[k][0]);
        buf_puts(&call.arguments, written);
        answer_put_arguments(&out, &call);
        assert_string_equal(out.v, written);
        buf_release(&call.arguments);
        buf_release(&out);
        free(written);
    }
}

static void only_an_object_is_the_input_of_a_call(void **unused)
{
    (void)unused;
    static const char *const others[] = {"99999999999999999999", "5", "[1]", "\"a\"", "{\"a\":", ""};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct answer_call call = {0};
        struct buf out = {0};
        buf_puts(&call.arguments, others[i]);
        answer_put_arguments(&out, &call);
        assert_string_equal(out.v, "{}");
        buf_release(&call.arguments);
        buf_release(&out);
    }
}

/* ---- Fields that take a number, and those that do not ---- */

static int read_chat(struct fields *fields, const char *members, hearth_error *error)
{
    char *body = mem_format("{" HI ",%s}", members);
    *error = (hearth_error){0};
    int rc = fields_read(fields, FIELDS_CHAT, body, strlen(body), error);
    free(body);
    return rc;
}

static void a_seed_is_any_whole_number(void **unused)
{
    (void)unused;
    static const struct {
        const char *seed;
        int64_t expected;
    } rows[] = {{"0", 0},
                {"9223372036854775807", INT64_MAX},
                {"9223372036854775808", 0},
                {"18446744073709551615", INT64_MAX},
                {"18446744073709551623", 7}, /* 2^64 + 7: the last 32 bits, which llama.cpp takes, stay */
                {"-1", -1},
                {"-9223372036854775809", -1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hearth_error error;
        struct fields fields;
        char *member = mem_format("\"seed\":%s", rows[i].seed);
        if (read_chat(&fields, member, &error) != HEARTH_OK) fail_msg("%s: %s", member, error.message);
        assert_int_equal(fields.params.sampling.seed, rows[i].expected);
        fields_release(&fields);
        free(member);
    }
}

/* A number where it fits no field; "#" is in turn an integer and a real that only JSON can hold. */
static void a_number_that_fits_no_field_is_refused_by_name(void **unused)
{
    (void)unused;
    static const char *const rows[][2] = {{"\"temperature\":#", "temperature"},
                                          {"\"top_k\":#", "top_k"},
                                          {"\"max_tokens\":#", "max_tokens"},
                                          {"\"n\":#", "n"},
                                          {"\"t_max_predict_ms\":#", "t_max_predict_ms"},
                                          {"\"logit_bias\":{\"1\":#}", "logit_bias"},
                                          {"\"logit_bias\":[[#,1]]", "logit_bias"},
                                          {"\"logit_bias\":#", "logit_bias"},
                                          {"\"lora\":[{\"id\":0,\"scale\":#}]", "lora"},
                                          {"\"model\":#", "model"},
                                          {"\"stop\":#", "stop"},
                                          {"\"stream_options\":#", "stream_options"},
                                          {"\"options\":#", "options"},
                                          {"\"chat_template_kwargs\":#", "chat_template_kwargs"},
                                          {"\"response_format\":#", "response_format.type"},
                                          {"\"json_schema\":#", "json_schema"},
                                          {"\"tool_choice\":#", "tool_choice"},
                                          {"\"thinking\":#", "thinking.type"},
                                          {"\"reasoning\":#", "reasoning"},
                                          {"\"tools\":#", "tools"}};
    static const char *const both[] = {"99999999999999999999", "1e999"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t k = 0; k < 2; k++) {
            hearth_error error;
            struct fields fields;
            char *member = with_number(rows[i][0], both[k]);
            if (read_chat(&fields, member, &error) == HEARTH_OK) fail_msg("%s is taken", member);
            if (strcmp(error.param, rows[i][1]) != 0) fail_msg("%s: '%s' %s", member, error.param, error.message);
            if (strstr(error.message, "number:") != NULL) fail_msg("%s: %s", member, error.message);
            free(member);
        }
    }
}

static void a_number_is_no_body(void **unused)
{
    (void)unused;
    hearth_error error = {0};
    assert_null(fields_parse("99999999999999999999", 20, &error));
    assert_string_equal(error.message, "the body must be a JSON object");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_reach_the_template_with_value_and_digits),
        cmocka_unit_test(text_that_a_client_sends_as_arguments_is_not_touched),
        cmocka_unit_test(a_response_repeats_numbers_as_they_were),
        cmocka_unit_test(a_calls_arguments_reach_the_client_as_the_model_wrote_them),
        cmocka_unit_test(only_an_object_is_the_input_of_a_call),
        cmocka_unit_test(a_seed_is_any_whole_number),
        cmocka_unit_test(a_number_that_fits_no_field_is_refused_by_name),
        cmocka_unit_test(a_number_is_no_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
