/* GET and POST /cache/stored: pages of what the library lists, what reaches it, and the answers. */
#include "unit/serve/harness.h"

#include <jansson.h>
#include <stdio.h>

#define KEY(digit) digit digit digit digit digit digit digit digit

#define THREE      KEY("33333333")

static json_t *page(struct client *client, const char *path)
{
    struct response response = ask(client, "GET", path, NULL);
    assert_int_equal(response.status, 200);
    json_t *tree = json_loads(response.body.v, 0, NULL);
    assert_non_null(tree);
    response_release(&response);
    return tree;
}

static void a_conversation_is_told_of_without_its_text(void **state)
{
    struct client client = harness_start(*state);
    fake_set_stored(1);
    struct response response = ask(&client, "GET", "/cache/stored", NULL);
    assert_int_equal(response.status, 200);
    assert_string_equal(response.body.v,
                        "{\"total\":1,\"conversations\":[{\"model\":\"de\\\"mo\",\"tier\":\"disk\",\"key\":\""
                        "0000000000000000000000000000000000000000000000000000000000000000\",\"tokens\":500,"
                        "\"own_tokens\":200,\"own_bytes\":1048576,\"resident\":300,\"kept\":true,"
                        "\"last_used\":1700000000000}],\"next\":null}");
    response_release(&response);
    client_close(&client);
}

static void pages_lead_to_the_last(void **state)
{
    static const size_t sizes[] = {0, 1, 49, 50, 51, 237};
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char path[160] = "/cache/stored";
        size_t seen = 0, pages = 0;
        fake_set_stored(sizes[i]);
        for (bool more = true; more; pages++) {
            json_t *tree = page(&client, path);
            seen += json_array_size(json_object_get(tree, "conversations"));
            assert_int_equal(json_integer_value(json_object_get(tree, "total")), sizes[i]);
            const char *next = json_string_value(json_object_get(tree, "next"));
            more = next != NULL;
            if (more) snprintf(path, sizeof path, "/cache/stored?limit=50&after=%s", next);
            json_decref(tree);
        }
        assert_int_equal(seen, sizes[i]);
        assert_int_equal(pages, sizes[i] == 0 ? 1 : (sizes[i] + 49) / 50);
    }
    client_close(&client);
}

static void a_wrong_page_is_named(void **state)
{
    static const char *const paths[] = {"limit=0",
                                        "limit=101",
                                        "limit=",
                                        "limit=5x",
                                        "after=",
                                        "after=7",
                                        "after=7." KEY("33333333"),
                                        "after=7." THREE ".tape",
                                        "after=7.33.disk",
                                        "after=7." THREE ".disk.",
                                        "after=x." THREE ".disk"};
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char path[160];
        snprintf(path, sizeof path, "/cache/stored?%s", paths[i]);
        struct response response = ask(&client, "GET", path, NULL);
        if (response.status != 400) fail_msg("%d for %s", response.status, path);
        assert_contains(response.body.v,
                        strncmp(paths[i], "limit", 5) == 0 ? "\"param\":\"limit\"" : "\"param\":\"after\"");
        response_release(&response);
    }
    client_close(&client);
}

static void orders_reach_the_library(void **state)
{
    static const struct {
        const char *word;
        hearth_stored_act act;
    } rows[] = {{"keep", HEARTH_STORED_KEEP}, {"release", HEARTH_STORED_RELEASE}, {"drop", HEARTH_STORED_DROP}};
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char body[160], expected[64];
        snprintf(body, sizeof body, "{\"tier\":\"disk\",\"key\":\"" THREE "\",\"order\":\"%s\"}", rows[i].word);
        snprintf(expected, sizeof expected, "%d disk 3333", (int)rows[i].act);
        struct response response = ask(&client, "POST", "/cache/stored", body);
        assert_int_equal(response.status, 200);
        assert_string_equal(response.body.v, "{\"success\":true}");
        assert_string_equal(fake_wait_order(), expected);
        response_release(&response);
    }
    client_close(&client);
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *body;
        int status;
        const char *says;
    } rows[] = {
        {"{\"key\":\"" THREE "\",\"order\":\"keep\"}", 400, "\"param\":\"tier\""},
        {"{\"tier\":\"disk\",\"order\":\"keep\"}", 400, "\"param\":\"key\""},
        {"{\"tier\":7,\"key\":\"" THREE "\",\"order\":\"keep\"}", 400, "\"param\":\"tier\""},
        {"{\"tier\":\"disk\",\"key\":\"" THREE "\"}", 400, "\"param\":\"order\""},
        {"{\"tier\":\"disk\",\"key\":\"" THREE "\",\"order\":\"evict\"}", 400, "keep or release or drop"},
        {"{\"tier\":\"tape\",\"key\":\"" THREE "\",\"order\":\"drop\"}", 400, "\"param\":\"tier\""},
        {"{\"tier\":\"disk\",\"key\":\"" KEY("11111111") "\",\"order\":\"drop\"}", 404, "\"code\":\"not_found\""},
        {"{\"tier\":\"disk\",\"key\":\"" KEY("44444444") "\",\"order\":\"drop\"}", 409, "\"code\":\"in_use\""},
        {"{\"tier\":\"disk\",\"key\":\"" KEY("55555555") "\",\"order\":\"drop\"}", 503, "takes no orders"},
        {"[]", 400, "\"error\""},
    };
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct response response = ask(&client, "POST", "/cache/stored", rows[i].body);
        if (response.status != rows[i].status) fail_msg("%d for %s", response.status, rows[i].body);
        assert_contains(response.body.v, rows[i].says);
        response_release(&response);
    }
    client_close(&client);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(a_conversation_is_told_of_without_its_text),
        ROW(pages_lead_to_the_last),
        ROW(a_wrong_page_is_named),
        ROW(orders_reach_the_library),
        ROW(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
