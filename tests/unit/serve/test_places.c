/* What the library says of a chat is said of the client's own fields. */
#include "unit/serve/harness.h"

#include "serve/core/errors.h"

#include <stdlib.h>

static void assert_finds(const json_t *places, const char *path, const char *own)
{
    struct field_path found = places_find(places, path);
    if (strcmp(found.v, own) != 0) fail_msg("%s: %s", path, found.v);
}

static void a_field_is_found_by_its_message_part_or_tool(void **unused)
{
    (void)unused;
    json_t *places = json_loads("{\"messages\":[[\"system\",\"system[0]\",\"system[1]\"],[\"input[2]\",\"input[2]\"],"
                                "\"messages[4]\"],\"media\":[\"messages[1].content[0].source.data\"],\"tools\":["
                                "\"tools[0]\",\"tools[3].tools[1]\"]}",
                                0, NULL);
    static const char *const rows[][2] = {
        {"messages[0]", "system"},
        {"messages[0].content", "system"},
        {"messages[0].content[1].text", "system[1]"},
        {"messages[0].content[2]", "system"},
        {"messages[0].role", "system"},
        {"messages[1].content", "input[2]"},
        {"messages[1].tool_calls[0].function.arguments", "input[2]"},
        {"messages[2].tool_calls[0].function.arguments", "messages[4].tool_calls[0].function.arguments"},
        {"tools[1].function.name", "tools[3].tools[1].function.name"},
        {"messages[1].content[0].source.data", "messages[1].content[0].source.data"}, /* a medium's */
        /* What is no field of a message or a tool stays as it is. */
        {"messages[3]", "messages[3]"},
        {"messages", "messages"},
        {"messages[1", "messages[1"},
        {"stop[1]", "stop[1]"},
        {"a_field_of_a_long_name[1]", "a_field_of_a_long_name[1]"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_finds(places, rows[i][0], rows[i][1]);
        assert_finds(NULL, rows[i][0], rows[i][0]);
    }
    json_decref(places);
}

/* Each API's body with a conversation whose last text becomes the last message of the chat, and the field of that text.
 */
static const struct {
    const char *route, *body, *field;
} apis[] = {
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"wish\"}]},{\"role\":\"tool\","
     "\"tool_call_id\":\"c\",\"content\":\"b\"},{\"role\":\"user\",\"content\":\"d\"}]}",
     "messages[2].content"},
    {"/v1/messages",
     "{\"system\":\"s\",\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
     "\"b\"},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"c\"},{\"type\":\"text\","
     "\"text\":\"d\"}]}]}",
     "messages[2].content[1]"},
    {"/v1/responses",
     "{\"instructions\":\"s\",\"input\":[{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"assistant\","
     "\"content\":"
     "\"b\"},{\"role\":\"user\",\"content\":\"d\"}]}",
     "input[2]"},
    {"/api/chat", "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"d\"}]}",
     "messages[1]"},
};

static void errors_of_the_library_name_the_fields_of_all_apis(void **state)
{
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof apis / sizeof *apis; i++) {
        static const char *const last[] = {"messages[1].content", "messages[3].content", "messages[2].content",
                                           "messages[1].content"};
        char message[128];
        snprintf(message, sizeof message, "'%s' is wrong", last[i]);
        fake_fail_submit(0, HEARTH_INVALID, last[i], message);
        struct response response = ask(&client, "POST", apis[i].route, apis[i].body);
        assert_int_equal(response.status, 400);
        snprintf(message, sizeof message, "'%s' is wrong", apis[i].field);
        assert_contains(response.body.v, message);
        response_release(&response);
    }
    client_close(&client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_field_is_found_by_its_message_part_or_tool),
        cmocka_unit_test_setup_teardown(errors_of_the_library_name_the_fields_of_all_apis, harness_setup,
                                        harness_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
