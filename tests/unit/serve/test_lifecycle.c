/* The routes that load and unload models, and say whether one fits: their answers, and a model's progress. */
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

static void a_question_whether_a_model_fits_names_the_field_that_is_wrong(void **state)
{
    struct client client = harness_start(*state);
    static const struct {
        const char *body;
        int status;
        const char *says;
    } cases[] = {
        {"{}", 400, "'model' is missing"},
        {"{\"model\":7}", 400, "'model' must be"},
        {"{\"model\":\"\"}", 400, "a reference has 1 to 4096 bytes"},
        {"{\"model\":\"hf:a\"}", 400, "this names no repository"},
        {"{\"model\":\"/etc/m.gguf\"}", 400, "files of this machine are not pulled by requests"},
        {"{\"model\":\"http://10.0.0.1/m.gguf\"}", 400, "is not encrypted"},
        {"{\"model\":\"https://127.0.0.1/m.gguf\"}", 400, "has an address that is not public"},
        {"{\"model\":\"nobody\"}", 404, "nobody is not known"},
    };
    setenv("HEARTH_NAMES", "/nowhere/names", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect(&client, "POST", "/models/fit", cases[i].body, cases[i].status, cases[i].says);
        expect(&client, "POST", "/models/fit", cases[i].body, cases[i].status, "\"param\":\"model\"");
    }
    expect(&client, "GET", "/models/fit", NULL, 404, "fit");
    unsetenv("HEARTH_NAMES");
    client_close(&client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(models_are_loaded_and_unloaded_in_llama_servers_form, harness_setup,
                                        harness_teardown),
        cmocka_unit_test_setup_teardown(what_is_wrong_is_named, harness_setup, harness_teardown),
        cmocka_unit_test_setup_teardown(a_question_whether_a_model_fits_names_the_field_that_is_wrong, harness_setup,
                                        harness_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
