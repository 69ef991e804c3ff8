/* The routes of LoRA adapters: listing, and setting scales. */
#include "unit/serve/harness.h"

#define LIST(first, second)                                                                                            \
    "[{\"id\":0,\"path\":\"fables.gguf\",\"scale\":" first                                                             \
    "},{\"id\":1,\"path\":\"say \\\"no\\\".gguf\",\"scale\":" second "}]"

static void expect(struct client *client, const char *method, const char *path, const char *body, int status,
                   const char *says)
{
    struct response response = ask(client, method, path, body);
    assert_int_equal(response.status, status);
    if (strstr(response.body.v, says) == NULL) fail_msg("'%s' does not say '%s'", response.body.v, says);
    response_release(&response);
}

static void scales_are_listed_and_set_in_llama_servers_form(void **state)
{
    struct client client = harness_start(*state);
    expect(&client, "GET", "/lora-adapters", NULL, 200, LIST("1", "0"));
    expect(&client, "POST", "/lora-adapters", "[{\"id\":1,\"scale\":0.25}]", 200, "{\"success\":true}");
    expect(&client, "GET", "/lora-adapters?model=demo", NULL, 200, LIST("0", "0.25"));
    expect(&client, "POST", "/lora-adapters", "[]", 200, "{\"success\":true}");
    expect(&client, "GET", "/lora-adapters", NULL, 200, LIST("0", "0"));
    expect(&client, "POST", "/lora-adapters", "[{\"id\":0,\"scale\":1}]", 200, "{\"success\":true}");
    client_close(&client);
}

static void what_is_wrong_is_named(void **state)
{
    struct client client = harness_start(*state);
    expect(&client, "GET", "/lora-adapters?model=nobody", NULL, 404, "'nobody' does not exist");
    expect(&client, "POST", "/lora-adapters", "[{\"id\":2,\"scale\":1}]", 400, "\"param\":\"lora\"");
    expect(&client, "POST", "/lora-adapters", "{\"id\":0}", 400, "\"param\":\"lora\"");
    expect(&client, "POST", "/lora-adapters", "[{", 400, "\"param\":\"lora\"");
    client_close(&client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(scales_are_listed_and_set_in_llama_servers_form, harness_setup,
                                        harness_teardown),
        cmocka_unit_test_setup_teardown(what_is_wrong_is_named, harness_setup, harness_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
