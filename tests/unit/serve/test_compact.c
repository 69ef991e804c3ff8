/* POST /v1/responses/compact: what the model is asked, what comes back, and what it is told of the items afterwards. */
#include "json_trees.h"
#include "unit/serve/harness.h"

#include "base/memory.h"
#include "serve/responses/responses.h"

#include <jansson.h>
#include <stdlib.h>

static const char *const reply[] = {"~rLet me see.", "They want", " a boat: \"\xc3\xa9\"."};
static const struct fake_script script = {.texts = reply, .n_texts = 3, .result = {.cache_n = 8, .prompt_n = 2}};

#define SUMMARY      "They want a boat: \"\xc3\xa9\"."
#define MARK         "hearth.summary.1:"
#define USER(text)   "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ANSWER(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define CALL                                                                                                           \
    "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"look\",\"arguments\":\"{}\"},"                          \
    "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"a boat\"}"

/* The answer to a body; freed by the caller. */
static json_t *post(struct client *client, const char *path, const char *body, int status)
{
    struct response response = ask(client, "POST", path, body);
    if (response.status != status) fail_msg("%s: %d %s", body, response.status, response.body.v);
    json_t *json = json_loads(response.body.v, 0, NULL);
    assert_non_null(json);
    response_release(&response);
    return json;
}

static const char *at(const json_t *item, const char *name)
{
    const char *value = json_string_value(json_object_get(item, name));
    return value == NULL ? "" : value;
}

/* The text of a message of the chat that the library was asked for, from its end. */
static const char *asked(const hearth_params *params, size_t from_end, json_t **chat)
{
    json_decref(*chat);
    *chat = json_loads(text_of_json(params->messages), 0, NULL);
    size_t n = json_array_size(*chat);
    assert_true(from_end < n);
    return at(json_array_get(*chat, n - 1 - from_end), "content");
}

static void a_conversation_becomes_its_users_messages_and_a_summary(void **state)
{
    struct client client = harness_start(*state);
    fake_play(&script);
    json_t *chat = NULL;
    json_t *compacted =
        post(&client, "/v1/responses/compact",
             "{\"model\":\"demo\",\"instructions\":\"Be brief.\",\"stream\":true,\"input\":["
             "{\"role\":\"developer\",\"content\":\"d\"}," USER("one") "," ANSWER("two") "," CALL "," USER(
                 "three") "],\"tools\":[{\"type\":\"function\",\"name\":\"look\"}]}",
             200);
    assert_string_equal(at(compacted, "object"), "response.compaction");
    assert_int_equal(strncmp(at(compacted, "id"), "resp_", 5), 0);
    assert_true(json_is_integer(json_object_get(compacted, "created_at")));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(compacted, "usage"), "input_tokens")), 10);
    const json_t *output = json_object_get(compacted, "output");
    assert_int_equal(json_array_size(output), 3);
    for (size_t i = 0; i < 2; i++) {
        const json_t *message = json_array_get(output, i);
        const json_t *part = json_array_get(json_object_get(message, "content"), 0);
        assert_string_equal(at(message, "role"), "user");
        assert_string_equal(at(message, "type"), "message");
        assert_string_equal(at(part, "text"), i == 0 ? "one" : "three");
        assert_int_equal(strncmp(at(message, "id"), "item_", 5), 0);
    }
    const json_t *item = json_array_get(output, 2);
    assert_string_equal(at(item, "type"), "compaction");
    assert_int_equal(strncmp(at(item, "id"), "cmp_", 4), 0);
    assert_int_equal(strncmp(at(item, "encrypted_content"), MARK, strlen(MARK)), 0);
    json_t *told = compaction_text(item);
    assert_non_null(strstr(json_string_value(told), SUMMARY));
    assert_null(strstr(json_string_value(told), "Let me see"));
    json_decref(told);
    /* The wish comes last, behind the conversation as it was. */
    const hearth_params *params = fake_wait(0);
    assert_non_null(strstr(asked(params, 0, &chat), "Write a summary"));
    assert_string_equal(asked(params, 1, &chat), "three");
    assert_int_equal(params->tool_choice, HEARTH_TOOLS_NONE);
    assert_non_null(params->tools);
    json_decref(chat);
    json_decref(compacted);
    client_close(&client);
}

static void the_items_stand_for_the_conversation_afterwards(void **state)
{
    struct client client = harness_start(*state);
    fake_play(&script);
    json_t *chat = NULL;
    json_t *compacted = post(&client, "/responses/compact", "{\"input\":\"one\"}", 200);
    json_t *body = json_pack("{s:O}", "input", json_object_get(compacted, "output"));
    json_array_append_new(json_object_get(body, "input"), json_loads(USER("go on"), 0, NULL));
    char *text = json_dumps(body, 0);
    json_decref(post(&client, "/v1/responses", text, 200));
    const hearth_params *params = fake_wait(1);
    assert_string_equal(asked(params, 0, &chat), "go on");
    assert_string_equal(asked(params, 2, &chat), "one");
    assert_string_equal(asked(params, 1, &chat), "Summary of the conversation so far:\n\n" SUMMARY);
    assert_string_equal(at(json_array_get(chat, 1), "role"), "user");
    /* Compacted again, the summary is told, and has no item of its own any more. */
    json_t *again = post(&client, "/v1/responses/compact", text, 200);
    assert_int_equal(json_array_size(json_object_get(again, "output")), 3);
    assert_non_null(strstr(asked(fake_wait(2), 2, &chat), SUMMARY));
    free(text);
    json_decref(again);
    json_decref(chat);
    json_decref(body);
    json_decref(compacted);
    client_close(&client);
}

static void stored_responses_are_compacted_by_their_id(void **state)
{
    struct client client = harness_start(*state);
    fake_play(&script);
    json_t *chat = NULL, *first = post(&client, "/v1/responses", "{\"input\":\"one\"}", 200);
    json_t *body = json_pack("{s:O,s:s}", "previous_response_id", json_object_get(first, "id"), "input", "two");
    char *text = json_dumps(body, 0);
    json_t *compacted = post(&client, "/v1/responses/compact", text, 200);
    const json_t *output = json_object_get(compacted, "output");
    assert_int_equal(json_array_size(output), 3);
    assert_string_equal(asked(fake_wait(1), 3, &chat), "one");
    assert_string_equal(asked(fake_wait(1), 1, &chat), "two");
    /* It is not stored itself. */
    char *path = mem_format("/v1/responses/%s", at(compacted, "id"));
    struct response response = ask(&client, "GET", path, NULL);
    assert_int_equal(response.status, 404);
    response_release(&response);
    free(path);
    free(text);
    json_decref(body);
    json_decref(chat);
    json_decref(first);
    json_decref(compacted);
    client_close(&client);
}

/* Else nothing would be left of the conversation. */
static void what_is_no_summary_is_an_error(void **state)
{
    static const char *const blank[] = {"~rHm.", " ", "\n"};
    static const struct {
        struct fake_script script;
        int status;
        const char *says;
    } rows[] = {
        {{.texts = blank, .n_texts = 3, .result = {.finish = HEARTH_FINISH_STOP}}, 500, "no summary"},
        {{.texts = blank, .n_texts = 1, .result = {.finish = HEARTH_FINISH_LENGTH}}, 400, "context_length_exceeded"}};
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fake_play(&rows[i].script);
        struct response response = ask(&client, "POST", "/v1/responses/compact", "{\"input\":\"one\"}");
        assert_int_equal(response.status, rows[i].status);
        assert_contains(response.body.v, rows[i].says);
        response_release(&response);
    }
    static const char *const bodies[] = {"{}", "{\"input\":[]}", "{\"input\":5}", "{\"input\":null}"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        json_t *refused = post(&client, "/v1/responses/compact", bodies[i], 400);
        assert_string_equal(at(json_object_get(refused, "error"), "param"), "input");
        json_decref(refused);
    }
    client_close(&client);
}

static void only_what_hearth_made_is_read(void **state)
{
    (void)state;
    static const char *const others[] = {"gAAAAABk", MARK "*", MARK "/w==", "", "hearth.summary.2:YQ=="};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        json_t *item = json_pack("{s:s}", "encrypted_content", others[i]);
        if (compaction_text(item) != NULL) fail_msg("%s", others[i]);
        json_decref(item);
    }
    json_t *item = json_pack("{s:s}", "encrypted_content", MARK "YQ"), *told = compaction_text(item);
    assert_string_equal(json_string_value(told), "Summary of the conversation so far:\n\na");
    json_decref(told);
    json_decref(item);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_conversation_becomes_its_users_messages_and_a_summary, harness_setup,
                                        harness_teardown),
        cmocka_unit_test_setup_teardown(the_items_stand_for_the_conversation_afterwards, harness_setup,
                                        harness_teardown),
        cmocka_unit_test_setup_teardown(stored_responses_are_compacted_by_their_id, harness_setup, harness_teardown),
        cmocka_unit_test_setup_teardown(what_is_no_summary_is_an_error, harness_setup, harness_teardown),
        cmocka_unit_test(only_what_hearth_made_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
