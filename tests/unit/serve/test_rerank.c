/* POST /v1/rerank in the forms of Jina, Cohere and TEI. The scores are the fake's: 0.25, 0.75, 0.5, 0.75. */
#include "unit/serve/harness.h"

#include "serve/embeddings/embeddings.h"

#define DOCUMENTS "\"documents\":[\"a\",{\"text\":\"b\"},\"c\",\"d\"]"

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *body, *param;
    } rows[] = {
        {"{\"documents\":[\"a\"]}", "query"},
        {"{\"query\":3,\"documents\":[\"a\"]}", "query"},
        {"{\"query\":\"q\"}", "documents"},
        {"{\"query\":\"q\",\"documents\":[]}", "documents"},
        {"{\"query\":\"q\",\"documents\":\"a\"}", "documents"},
        {"{\"query\":\"q\",\"documents\":[\"a\",7]}", "documents"},
        {"{\"query\":\"q\",\"documents\":[{\"image\":\"a\"}]}", "documents"},
        {"{\"query\":\"q\",\"texts\":[]}", "texts"},
        {"{\"query\":\"q\",\"documents\":[\"a\"],\"top_n\":0}", "top_n"},
        {"{\"query\":\"q\",\"documents\":[\"a\"],\"max_tokens_per_doc\":0}", "max_tokens_per_doc"},
        {"{\"query\":\"q\",\"documents\":[\"a\"],\"return_documents\":1}", "return_documents"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hearth_error error = {0};
        struct rerank r = {0};
        assert_int_equal(rerank_read(&r, rows[i].body, strlen(rows[i].body), &error), HEARTH_INVALID);
        if (strcmp(error.param, rows[i].param) != 0) fail_msg("%s: '%s'", rows[i].body, error.param);
    }
}

static void every_apis_word_for_truncation_is_understood(void **state)
{
    (void)state;
    static const char *const words[] = {"\"truncate\":true", "\"truncation\":true", "\"max_tokens_per_doc\":4096"};
    for (size_t i = 0; i < 3; i++) {
        char body[128];
        struct rerank r = {0};
        hearth_error error;
        snprintf(body, sizeof body, "{\"query\":{\"text\":\"q\"},\"documents\":[\"a\"],%s}", words[i]);
        assert_int_equal(rerank_read(&r, body, strlen(body), &error), HEARTH_OK);
        assert_int_equal(r.params.truncate, HEARTH_TRUNCATE_WINDOW);
        assert_int_equal(r.params.max_document_tokens, i == 2 ? 4096 : 0);
        assert_string_equal(r.params.query, "q");
        rerank_release(&r);
    }
}

static void results_are_sorted_and_those_of_equal_scores_keep_their_order(void **state)
{
    struct client client = harness_start(*state);
    static const char *const paths[] = {"/v1/rerank", "/v1/reranking", "/v2/rerank", "/rerank", "/reranking"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct response r = ask(&client, "POST", paths[i], "{\"query\":\"q\"," DOCUMENTS "}");
        assert_int_equal(r.status, 200);
        assert_contains(r.body.v, "{\"id\":\"rerank-");
        assert_contains(r.body.v, "\"object\":\"list\",\"model\":\"demo\",\"results\":["
                                  "{\"index\":1,\"relevance_score\":0.75},{\"index\":3,\"relevance_score\":0.75},"
                                  "{\"index\":2,\"relevance_score\":0.5},{\"index\":0,\"relevance_score\":0.25}]");
        assert_contains(r.body.v, "\"usage\":{\"prompt_tokens\":12,\"total_tokens\":12}");
        assert_contains(r.body.v, "\"meta\":{\"billed_units\":{\"search_units\":1},\"tokens\":{\"input_tokens\":12}}");
        response_release(&r);
    }
    client_close(&client);
}

static void the_best_come_with_their_documents_where_asked(void **state)
{
    struct client client = harness_start(*state);
    struct response r =
        ask(&client, "POST", "/v1/rerank", "{\"query\":\"q\",\"top_n\":2,\"return_documents\":true," DOCUMENTS "}");
    assert_contains(r.body.v, "\"results\":[{\"index\":1,\"relevance_score\":0.75,\"document\":{\"text\":\"b\"}},"
                              "{\"index\":3,\"relevance_score\":0.75,\"document\":{\"text\":\"d\"}}]");
    response_release(&r);
    client_close(&client);
}

static void texts_are_answered_in_teis_form(void **state)
{
    struct client client = harness_start(*state);
    struct response r = ask(&client, "POST", "/rerank",
                            "{\"query\":\"q\",\"texts\":[\"a\",\"b\"],\"return_text\":true,\"raw_scores\":true}");
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body.v,
                        "[{\"index\":1,\"score\":0.75,\"text\":\"b\"},{\"index\":0,\"score\":0.25,\"text\":\"a\"}]");
    assert_true(fake_wait_embedding(0)->raw_scores);
    response_release(&r);
    client_close(&client);
}

int main(void)
{
#define SERVER_TEST(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(every_apis_word_for_truncation_is_understood),
        SERVER_TEST(results_are_sorted_and_those_of_equal_scores_keep_their_order),
        SERVER_TEST(the_best_come_with_their_documents_where_asked),
        SERVER_TEST(texts_are_answered_in_teis_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
