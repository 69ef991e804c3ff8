/* POST /v1/embeddings and llama-server's /embedding: parsing, errors, answers. */
#include "unit/serve/harness.h"

#include "serve/embeddings/embeddings.h"

#include <jansson.h>

/* ---- Reading ---- */

static struct embeddings read_body(const char *body, bool native)
{
    hearth_error error;
    struct embeddings e = {.native = native};
    if (embeddings_read(&e, body, strlen(body), &error) != HEARTH_OK) fail_msg("%s: %s", body, error.message);
    return e;
}

static void inputs_are_texts_tokens_and_lists_of_these(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        size_t n, n_tokens; /* of the last input; 0: a text */
    } rows[] = {
        {"{\"input\":\"a\"}", 1, 0},       {"{\"input\":[\"a\",\"b\\u0000c\"]}", 2, 0}, {"{\"input\":[1,2,3]}", 1, 3},
        {"{\"input\":[[1],[2,3]]}", 2, 2}, {"{\"input\":[\"a\",[4,5,6]]}", 2, 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct embeddings e = read_body(rows[i].body, false);
        assert_int_equal(e.params.n_inputs, rows[i].n);
        const hearth_input *last = &e.params.inputs[rows[i].n - 1];
        assert_int_equal(last->n_tokens, rows[i].n_tokens);
        assert_int_equal(last->text == NULL, rows[i].n_tokens > 0);
        embeddings_release(&e);
    }
}

/* As llama-server has them. */
static void an_input_may_be_tokens_and_texts_in_parts(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        size_t n, n_parts; /* of the last input */
    } rows[] = {{"{\"input\":[1,\"a\",2]}", 1, 3},
                {"{\"input\":[\"a\",7]}", 1, 2},
                {"{\"input\":[\"a\",[4,\"b\"]]}", 2, 2},
                {"{\"input\":[[1,2],[\"b\"],{\"prompt_string\":[\"c\",5,6]}]}", 3, 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct embeddings e = read_body(rows[i].body, i % 2 == 1);
        assert_int_equal(e.params.n_inputs, rows[i].n);
        const hearth_input *last = &e.params.inputs[rows[i].n - 1];
        assert_true(last->text == NULL && last->tokens == NULL);
        assert_int_equal(last->n_parts, rows[i].n_parts);
        assert_true(embeddings_size(&e) > rows[i].n_parts * sizeof(hearth_part));
        embeddings_release(&e);
    }
    hearth_error error;
    struct embeddings e = {0};
    const char *media = "{\"input\":{\"prompt_string\":\"a\",\"multimodal_data\":[\"AA==\"]}}";
    assert_int_equal(embeddings_read(&e, media, strlen(media), &error), HEARTH_UNSUPPORTED);
}

static void options_reach_the_library(void **state)
{
    (void)state;
    struct embeddings e = read_body("{\"input\":\"a\",\"model\":\"m\",\"dimensions\":8,\"encoding_format\":\"base64\","
                                    "\"truncate\":true,\"truncate_direction\":\"left\",\"user\":\"u\"}",
                                    false);
    assert_string_equal(e.params.model, "m");
    assert_int_equal(e.params.dimensions, 8);
    assert_int_equal(e.params.truncate, HEARTH_TRUNCATE_WINDOW);
    assert_true(e.params.truncate_left);
    assert_int_equal(e.params.norm, 2);
    assert_true(e.base64);
    embeddings_release(&e);
    e = read_body("{\"content\":\"a\",\"embd_normalize\":-1,\"truncate_prompt_tokens\":7,\"dimensions\":null}", true);
    assert_int_equal(e.params.norm, -1);
    assert_int_equal(e.params.truncate, 7);
    assert_int_equal(e.params.dimensions, 0);
    embeddings_release(&e);
    e = read_body("{\"input\":\"a\",\"truncate\":null}", false);
    assert_int_equal(e.params.truncate, HEARTH_TRUNCATE_CONFIGURED);
    embeddings_release(&e);
    e = read_body("{\"input\":\"a\",\"truncate\":false}", false);
    assert_int_equal(e.params.truncate, 0);
    embeddings_release(&e);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *body, *param;
    } rows[] = {
        {"{}", "input"},
        {"{\"input\":[]}", "input"},
        {"{\"input\":{}}", "input"},
        {"{\"input\":[[]]}", "input"},
        {"{\"input\":[1,\"a\",{}]}", "input"},
        {"{\"input\":[1,[2]]}", "input"},
        {"{\"input\":[\"a\",[1,-2,\"b\"]]}", "input"},
        {"{\"input\":[-1]}", "input"},
        {"{\"input\":[1.5]}", "input"},
        {"{\"input\":[\"a\",null]}", "input"},
        {"{\"content\":\"a\"}", "input"},
        {"{\"input\":\"a\",\"model\":3}", "model"},
        {"{\"input\":\"a\",\"dimensions\":0}", "dimensions"},
        {"{\"input\":\"a\",\"encoding_format\":\"hex\"}", "encoding_format"},
        {"{\"input\":\"a\",\"truncate\":1}", "truncate"},
        {"{\"input\":\"a\",\"truncate_prompt_tokens\":-2}", "truncate_prompt_tokens"},
        {"{\"input\":\"a\",\"truncate_direction\":\"up\"}", "truncate_direction"},
        {"[]", ""},
        {"{\"input\":", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hearth_error error = {0};
        struct embeddings e = {0};
        assert_int_equal(embeddings_read(&e, rows[i].body, strlen(rows[i].body), &error), HEARTH_INVALID);
        if (strcmp(error.param, rows[i].param) != 0) fail_msg("%s: '%s'", rows[i].body, error.param);
    }
}

static void more_inputs_than_the_limit_are_refused(void **state)
{
    (void)state;
    struct buf body = {0};
    buf_puts(&body, "{\"input\":[\"a\"");
    for (int i = 1; i < HEARTH_INPUTS_MAX; i++) buf_puts(&body, ",\"a\"");
    buf_puts(&body, "]}");
    struct embeddings e = read_body(body.v, false);
    assert_int_equal(e.params.n_inputs, HEARTH_INPUTS_MAX);
    embeddings_release(&e);
    body.len -= 2;
    buf_puts(&body, ",\"a\"]}");
    hearth_error error;
    assert_int_equal(embeddings_read(&e, body.v, body.len, &error), HEARTH_INVALID);
    assert_contains(error.message, "2048");
    assert_contains(error.message, "2049");
    buf_release(&body);
}

/* ---- Answers ---- */

static void openais_form_has_vectors_and_usage(void **state)
{
    struct client client = harness_start(*state);
    struct response r = ask(&client, "POST", "/v1/embeddings", "{\"input\":[\"a\",\"b\"],\"model\":\"demo\"}");
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body.v,
                        "{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,\"embedding\":[1,0."
                        "5]},{\"object\":\"embedding\",\"index\":1,\"embedding\":[2,0.5]}],\"model\":\"demo\","
                        "\"usage\":{\"prompt_tokens\":6,\"total_tokens\":6}}");
    response_release(&r);
    r = ask(&client, "POST", "/v1/embeddings", "{\"input\":\"a\",\"encoding_format\":\"base64\"}");
    assert_contains(r.body.v, "\"embedding\":\"AACAPwAAAD8=\""); /* 1.0 and 0.5, the lowest byte first */
    response_release(&r);
    client_close(&client);
}

static void llama_servers_form_has_a_list_of_vectors_an_input(void **state)
{
    struct client client = harness_start(*state);
    static const char *const paths[] = {"/embedding", "/embeddings"};
    for (size_t i = 0; i < 2; i++) {
        struct response r = ask(&client, "POST", paths[i], "{\"content\":\"a\"}");
        assert_int_equal(r.status, 200);
        assert_string_equal(r.body.v, "[{\"index\":0,\"embedding\":[[1,0.5]]}]");
        response_release(&r);
    }
    client_close(&client);
}

static void errors_have_openais_form(void **state)
{
    struct client client = harness_start(*state);
    struct response r = ask(&client, "POST", "/v1/embeddings", "{\"input\":[]}");
    assert_int_equal(r.status, 400);
    assert_contains(r.body.v, "\"param\":\"input\"");
    response_release(&r);
    r = ask(&client, "POST", "/v1/embeddings", "{\"input\":\"a\",\"model\":\"other\"}");
    assert_int_equal(r.status, 404);
    assert_contains(r.body.v, "\"code\":\"model_not_found\"");
    response_release(&r);
    client_close(&client);
}

static void what_the_library_refuses_names_the_field_that_the_client_wrote(void **state)
{
    static const char *const rows[][3] = {
        {"/v1/embeddings", "\"input\":", "\"param\":\"input\""},
        {"/embedding", "\"content\":", "\"param\":\"content\""},
        {"/embedding", "\"prompt\":", "\"param\":\"prompt\""},
        {"/rerank", "\"query\":\"q\",\"texts\":", "\"param\":\"texts\""},
        {"/v1/rerank", "\"query\":\"q\",\"documents\":", "\"param\":\"documents\""},
    };
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf body = {0};
        buf_printf(&body, "{%s[\"a\",\"%*s\"]}", rows[i][1], FAKE_LONGEST_INPUT + 1, "b");
        struct response r = ask(&client, "POST", rows[i][0], body.v);
        assert_int_equal(r.status, 400);
        assert_contains(r.body.v, rows[i][2]);
        const char *field = strrchr(rows[i][2], ':') + 2;
        char expected[64];
        snprintf(expected, sizeof expected, "\"message\":\"%.*s[1] is too long", (int)strcspn(field, "\""), field);
        assert_contains(r.body.v, expected);
        response_release(&r);
        buf_release(&body);
    }
    client_close(&client);
}

static void a_client_that_leaves_cancels(void **state)
{
    struct client client = harness_start(*state);
    fake_hold_embeddings(true);
    client_send(&client, "POST", "/v1/embeddings", "", "{\"input\":\"a\"}");
    fake_wait_embedding(0);
    client_close(&client);
    fake_wait_embedding_cancelled(0);
}

int main(void)
{
#define SERVER_TEST(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_are_texts_tokens_and_lists_of_these),
        cmocka_unit_test(an_input_may_be_tokens_and_texts_in_parts),
        cmocka_unit_test(options_reach_the_library),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(more_inputs_than_the_limit_are_refused),
        SERVER_TEST(openais_form_has_vectors_and_usage),
        SERVER_TEST(llama_servers_form_has_a_list_of_vectors_an_input),
        SERVER_TEST(errors_have_openais_form),
        SERVER_TEST(what_the_library_refuses_names_the_field_that_the_client_wrote),
        SERVER_TEST(a_client_that_leaves_cancels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
