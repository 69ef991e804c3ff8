/* The routes that load and unload models: their answers, and a model's progress. */
#include "unit/serve/harness.h"

static void expect(struct client *client, const char *method, const char *path, const char *body, int status,
                   const char *says)
{
    struct response response = ask(client, method, path, body);
    assert_int_equal(response.status, status);
    if (strstr(response.body.v, says) == NULL) fail_msg("'%s' does not say '%s'", response.body.v, says);
    response_release(&response);
}

static void models_are_loaded_and_unloaded_in_llama_servers_form(void **state)
{
    struct client client = harness_start(*state);
    expect(&client, "GET", "/v1/models", NULL, 200, "\"status\":{\"value\":\"loaded\"}");
    expect(&client, "POST", "/models/unload", "{\"model\":\"demo\"}", 200, "{\"success\":true}");
    expect(&client, "POST", "/models/load", "{\"model\":\"demo\"}", 400, "load: already loaded");
    client_close(&client);
}

static void what_is_wrong_is_named(void **state)
{
    struct client client = harness_start(*state);
    expect(&client, "POST", "/models/load", "{\"model\":\"nobody\"}", 404, "model 'nobody' does not exist");
    expect(&client, "POST", "/models/unload", "{\"model\":\"nobody\"}", 404, "model 'nobody' does not exist");
    expect(&client, "POST", "/models/load", "{}", 400, "\"param\":\"model\"");
    expect(&client, "POST", "/models/unload", "{\"model\":7}", 400, "\"param\":\"model\"");
    expect(&client, "POST", "/models/unload", "[", 400, "\"error\"");
    expect(&client, "PUT", "/models/unload", NULL, 405, "method_not_allowed");
    client_close(&client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(models_are_loaded_and_unloaded_in_llama_servers_form, harness_setup,
                                        harness_teardown),
        cmocka_unit_test_setup_teardown(what_is_wrong_is_named, harness_setup, harness_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
