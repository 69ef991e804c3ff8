/* What headers of an answer name: the list, what of a request the model does not see, what of a schema nothing
 * enforces. */
#include "unit/serve/harness.h"

#include "base/log.h"
#include "serve/core/header_list.h"

#include <stdio.h>
#include <unistd.h>

#define HEADER "X-Hearth-Left-Out"

/* ---- The list ---- */

static void a_name_is_listed_once_in_the_order_of_the_body(void **state)
{
    (void)state;
    struct header_list list = {0};
    assert_true(header_list_is_empty(&list));
    header_list_add(&list, "messages[2].content[1]");
    header_list_add(&list, "messages[2]");
    header_list_add(&list, "messages[2].content[1]");
    header_list_add(&list, "messages[2].content[11]");
    assert_string_equal(list.names, "messages[2].content[1], messages[2], messages[2].content[11]");
    assert_int_equal(list.named, 3);
    assert_int_equal(list.more, 0);
    assert_false(header_list_is_empty(&list));
}

static void a_long_list_says_how_many_more_there_are(void **state)
{
    (void)state;
    struct header_list few = {0}, long_ones = {0};
    for (int i = 0; i < 100; i++) {
        char path[128];
        snprintf(path, sizeof path, "input[%d]", i);
        header_list_add(&few, path);
        snprintf(path, sizeof path, "input[%d].%090d", i, 0);
        header_list_add(&long_ones, path);
    }
    assert_int_equal(few.named, HEADER_LIST_NAMES);
    assert_int_equal(few.more, 100 - HEADER_LIST_NAMES);
    assert_true(long_ones.named > 1 && long_ones.named < HEADER_LIST_NAMES);
    assert_int_equal(long_ones.named + long_ones.more, 100);
    assert_true(strlen(long_ones.names) < HEADER_LIST_BYTES);
}

static void what_a_header_cannot_hold_is_replaced(void **state)
{
    (void)state;
    struct header_list list = {0};
    header_list_add(&list, "a\r\nb, c \xc3\xbc\x7f");
    assert_string_equal(list.names, "a??b? c ???");
}

static void lists_are_joined_without_what_both_have(void **state)
{
    (void)state;
    struct header_list list = {0}, other = {0};
    header_list_add(&list, "input[1]");
    header_list_add_all(&list, &(struct header_list){0});
    assert_string_equal(list.names, "input[1]");
    header_list_add(&other, "input[1]");
    header_list_add(&other, "tools[0]");
    other.more = 3;
    header_list_add_all(&list, &other);
    assert_string_equal(list.names, "input[1], tools[0]");
    assert_int_equal(list.more, 3);
}

/* ---- Answers ---- */

/* A body of each API with a tool that the server does not run, and the members that open and end it. */
static const struct {
    const char *route, *body;
} apis[] = {
    {"/v1/chat/completions", "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":\"search\"}]"},
    {"/v1/messages", "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":\"web_search_2\"}]"},
    {"/v1/responses", "\"input\":\"a\",\"tools\":[{\"type\":\"web_search\"}]"},
    {"/api/chat", "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":\"web_search\"}]"},
};

static void the_answers_of_all_apis_name_it_whole_and_streamed(void **state)
{
    static const char *const texts[] = {"b"};
    static const struct fake_script script = {.texts = texts, .n_texts = 1, .result = {.prompt_n = 2}};
    struct client client = harness_start(*state);
    fake_play(&script);
    for (size_t i = 0; i < 2 * sizeof apis / sizeof *apis; i++) {
        struct buf body = {0};
        buf_printf(&body, "{\"stream\":%s,%s}", i % 2 == 0 ? "false" : "true", apis[i / 2].body);
        struct response response = ask(&client, "POST", apis[i / 2].route, body.v);
        if (response.status != 200) fail_msg("%s: %d", body.v, response.status);
        const char *named = response_header(&response, HEADER);
        if (named == NULL || strcmp(named, "tools[0]") != 0) fail_msg("%s: %s", body.v, named == NULL ? "" : named);
        response_release(&response);
        buf_release(&body);
    }
    struct response response =
        ask(&client, "POST", apis[0].route, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}");
    assert_null(response_header(&response, HEADER));
    response_release(&response);
    client_close(&client);
}

static void pages_may_read_the_header(void **state)
{
    struct client client = harness_start(*state);
    client_send(&client, "GET", "/health", "Origin: http://localhost\r\n", NULL);
    struct response response = client_read(&client, true);
    assert_contains(response_header(&response, "Access-Control-Expose-Headers"), HEADER);
    response_release(&response);
    client_close(&client);
}

static size_t count_lines(const char *path, const char *part, char *last, size_t size)
{
    char line[4096];
    size_t n = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strstr(line, part) == NULL) continue;
        snprintf(last, size, "%s", line);
        n++;
    }
    fclose(file);
    return n;
}

static void the_log_has_one_line_for_a_request(void **state)
{
    static const char *const texts[] = {"b"};
    static const struct fake_script script = {.texts = texts, .n_texts = 1, .result = {.prompt_n = 2}};
    char path[] = "/tmp/hearth-left-out-XXXXXX", line[4096] = "";
    hearth_error error;
    close(mkstemp(path));
    assert_int_equal(log_open(path, "info", "text", &error), HEARTH_OK);
    struct client client = harness_start(*state);
    fake_play(&script);
    client_send(&client, "POST", "/v1/responses", "X-Request-Id: mine-1\r\n",
                "{\"model\":\"demo\",\"input\":\"a\",\"tools\":[{\"type\":\"a\"},{\"type\":\"b\"}]}");
    struct response response = client_read(&client, true);
    response_release(&response);
    client_close(&client);
    assert_int_equal(log_open(NULL, "info", "text", &error), HEARTH_OK);
    assert_int_equal(count_lines(path, "left out", line, sizeof line), 1);
    assert_contains(line, "request_id=mine-1 model=demo paths=\"tools[0], tools[1]\" count=2");
    unlink(path);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_listed_once_in_the_order_of_the_body),
        cmocka_unit_test(a_long_list_says_how_many_more_there_are),
        cmocka_unit_test(what_a_header_cannot_hold_is_replaced),
        cmocka_unit_test(lists_are_joined_without_what_both_have),
        ROW(the_answers_of_all_apis_name_it_whole_and_streamed),
        ROW(pages_may_read_the_header),
        ROW(the_log_has_one_line_for_a_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
