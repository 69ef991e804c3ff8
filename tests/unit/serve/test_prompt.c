/* The routes that prepare prompts only: their calls of the library, their answers, and errors of their fields. */
#include "unit/serve/harness.h"

/* Tokens 1, 2, 3: the last two are the halves of a character. */
static const char *const texts[] = {"H\"i", "\xc3", "\xa9"};
static const struct fake_script script = {.texts = texts, .n_texts = 3};

#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"

static void each_route_answers_with_its_object(void **state)
{
    static const struct {
        const char *path, *body, *answer;
    } rows[] = {
        {"/tokenize", "{\"content\":\"Hi\"}", "{\"tokens\":[1,2,3]}"},
        {"/v1/tokenize", "{\"content\":[5,\"Hi\"],\"with_pieces\":false}", "{\"tokens\":[1,2,3]}"},
        {"/tokenize", "{\"content\":\"Hi\",\"with_pieces\":true}",
         "{\"tokens\":[{\"id\":1,\"piece\":\"H\\\"i\"},{\"id\":2,\"piece\":[195]},{\"id\":3,\"piece\":[169]}]}"},
        {"/detokenize", "{\"tokens\":[1,2,3]}", "{\"content\":\"H\\\"i\xc3\xa9\",\"prompt\":\"H\\\"i\xc3\xa9\"}"},
        {"/v1/detokenize", "{\"tokens\":[1,2,3],\"model\":\"demo\"}",
         "{\"content\":\"H\\\"i\xc3\xa9\",\"prompt\":\"H\\\"i\xc3\xa9\"}"},
        {"/apply-template", "{" MESSAGES "}", "{\"prompt\":\"H\\\"i\xc3\xa9\"}"},
        {"/v1/apply-template", "{" MESSAGES ",\"stream\":true}", "{\"prompt\":\"H\\\"i\xc3\xa9\"}"},
        {"/chat/completions/input_tokens", "{" MESSAGES "}",
         "{\"input_tokens\":3,\"object\":\"response.input_tokens\"}"},
        {"/responses/input_tokens", "{\"input\":\"Hi\"}", "{\"input_tokens\":3,\"object\":\"response.input_tokens\"}"},
        {"/v1/chat/completions/input_tokens", "{" MESSAGES "}",
         "{\"input_tokens\":3,\"object\":\"response.input_tokens\"}"},
        {"/v1/chat/completions/render", "{" MESSAGES ",\"stream\":true,\"n\":3}", "{\"token_ids\":[1,2,3]}"},
        {"/v1/completions/render", "{\"prompt\":\"Hi\",\"stream\":true,\"n\":3}", "[{\"token_ids\":[1,2,3]}]"},
    };
    struct client client = harness_start(*state);
    fake_play(&script);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct response response = ask(&client, "POST", rows[i].path, rows[i].body);
        assert_int_equal(response.status, 200);
        assert_string_equal(response.body.v, rows[i].answer);
        assert_true(fake_wait(i)->only_prompt);
        response_release(&response);
    }
    client_close(&client);
}

static void each_prompt_of_a_completion_is_rendered(void **state)
{
    struct client client = harness_start(*state);
    fake_play(&script);
    struct response response = ask(&client, "POST", "/v1/completions/render", "{\"prompt\":[[4,5,6],[4,5]],\"n\":2}");
    assert_int_equal(response.status, 200);
    assert_string_equal(response.body.v, "[{\"token_ids\":[1,2,3]},{\"token_ids\":[1,2,3]}]");
    assert_int_equal(fake_wait(0)->n_tokens, 3);
    assert_int_equal(fake_wait(1)->n_tokens, 2);
    assert_true(fake_wait(1)->only_prompt && fake_wait(1)->keep_prompt);
    assert_int_equal(fake_submitted(), 2);
    response_release(&response);
    client_close(&client);
}

static void nothing_has_no_tokens_and_no_text(void **state)
{
    static const struct fake_script empty = {.texts = NULL};
    static const char *const rows[][3] = {{"/tokenize", "{}", "{\"tokens\":[]}"},
                                          {"/tokenize", "{\"with_pieces\":true}", "{\"tokens\":[]}"},
                                          {"/detokenize", "{}", "{\"content\":\"\",\"prompt\":\"\"}"},
                                          {"/detokenize", "{\"tokens\":[]}", "{\"content\":\"\",\"prompt\":\"\"}"}};
    struct client client = harness_start(*state);
    fake_play(&empty);
    for (size_t i = 0; i < 4; i++) {
        struct response response = ask(&client, "POST", rows[i][0], rows[i][1]);
        assert_string_equal(response.body.v, rows[i][2]);
        assert_int_equal(fake_wait(i)->n_tokens, 0);
        assert_non_null(fake_wait(i)->tokens);
        response_release(&response);
    }
    client_close(&client);
}

static void bos_eos_and_special_tokens_are_as_requested(void **state)
{
    struct client client = harness_start(*state);
    fake_play(&script);
    struct response response = ask(&client, "POST", "/tokenize", "{\"content\":\"a\\u0000b\"}");
    const hearth_params *p = fake_wait(0);
    assert_true(p->without_bos_eos && !p->plain);
    assert_int_equal(p->text_len, 3);
    response_release(&response);
    response = ask(&client, "POST", "/tokenize",
                   "{\"content\":[5,\"x\"],\"add_special\":true,\"parse_special\":false,\"model\":\"demo\"}");
    p = fake_wait(1);
    assert_true(!p->without_bos_eos && p->plain);
    assert_int_equal(p->n_parts, 2);
    assert_int_equal(p->parts[0].token, 5);
    assert_string_equal(p->model, "demo");
    response_release(&response);
    client_close(&client);
}

static void faults_name_the_field(void **state)
{
    static const struct {
        const char *path, *body, *param;
        int status;
    } rows[] = {
        {"/tokenize", "{\"content\":5}", "\"content\"", 400},
        {"/tokenize", "{\"content\":[\"a\",{}]}", "\"content\"", 400},
        {"/tokenize", "{\"content\":\"a\",\"add_special\":1}", "\"add_special\"", 400},
        {"/tokenize", "{\"content\":\"a\",\"parse_special\":\"x\"}", "\"parse_special\"", 400},
        {"/tokenize", "{\"content\":\"a\",\"with_pieces\":[]}", "\"with_pieces\"", 400},
        {"/tokenize", "{\"content\":\"a\",\"model\":7}", "\"model\"", 400},
        {"/tokenize", "{\"content\":\"a\",\"model\":\"other\"}", "\"model\"", 404},
        {"/tokenize", "[]", "null", 400},
        {"/detokenize", "{\"tokens\":\"a\"}", "\"tokens\"", 400},
        {"/detokenize", "{\"tokens\":[1,\"a\"]}", "\"tokens\"", 400},
        {"/detokenize", "{\"tokens\":[-1]}", "\"tokens\"", 400},
        {"/apply-template", "{}", "\"messages\"", 400},
        {"/v1/responses/input_tokens", "{\"input\":5}", "\"input\"", 400},
        {"/chat/completions/input_tokens", "{\"messages\":5}", "\"messages\"", 400},
        {"/v1/chat/completions/render", "{}", "\"messages\"", 400},
        {"/v1/completions/render", "{\"prompt\":5}", "\"prompt\"", 400},
    };
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char expected[64];
        snprintf(expected, sizeof expected, "\"param\":%s", rows[i].param);
        struct response response = ask(&client, "POST", rows[i].path, rows[i].body);
        if (response.status != rows[i].status) fail_msg("%s: %d", rows[i].body, response.status);
        assert_contains(response.body.v, expected);
        response_release(&response);
    }
    assert_int_equal(fake_submitted(), 0);
    client_close(&client);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(each_route_answers_with_its_object),
        ROW(each_prompt_of_a_completion_is_rendered),
        ROW(nothing_has_no_tokens_and_no_text),
        ROW(bos_eos_and_special_tokens_are_as_requested),
        ROW(faults_name_the_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
