/* The routes of stored responses: requests that continue them, retrieving, listing and deleting. */
#include "json_trees.h"
#include "serve/responses/history.h"

#include "unit/serve/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ADA "ada-key-0123456789abcdef"
#define BOB "bob-key-0123456789abcdef"

static const char *const reply[] = {"~rHm", "Hel", "lo"};
static const struct fake_script script = {.texts = reply, .n_texts = 3, .result = {.cache_n = 8, .prompt_n = 2}};

static struct client start(struct harness *h)
{
    struct client client = harness_start(h);
    fake_play(&script);
    return client;
}

/* The id at the beginning of an answer. */
static char *id_of(const struct response *response)
{
    const char *at = strstr(response->body.v, "\"id\":\"");
    assert_non_null(at);
    at += strlen("\"id\":\"");
    return strndup(at, strcspn(at, "\""));
}

static struct response asked(struct client *client, const char *method, const char *body, const char *format,
                             const char *id)
{
    char path[200];
    snprintf(path, sizeof path, format, id);
    return ask(client, method, path, body);
}

static void assert_answer(struct client *client, const char *const request[3], const char *id, int status,
                          const char *part)
{
    struct response response = asked(client, request[0], request[2], request[1], id);
    if (response.status != status) fail_msg("%s %s: %d %s", request[0], request[1], response.status, response.body.v);
    if (part != NULL) assert_contains(response.body.v, part);
    response_release(&response);
}

#define ANSWERS(id, method, path, body, status, part)                                                                  \
    assert_answer(&client, (const char *const[]){method, path, body}, id, status, part)

/* Creates a response and returns its id. */
static char *created(struct client *client, const char *format, const char *id)
{
    char body[4000];
    snprintf(body, sizeof body, format, id);
    struct response response = ask(client, "POST", "/v1/responses", body);
    if (response.status != 200) fail_msg("%s: %s", body, response.body.v);
    char *own = id_of(&response);
    response_release(&response);
    return own;
}

#define TURN(more, text) "{\"input\":\"" text "\"" more "}"

static void a_request_continues_a_response_without_its_instructions(void **state)
{
    struct client client = start(*state);
    char *first = created(&client, TURN(",\"instructions\":\"Be brief.\"", "Hi"), NULL);
    char *second =
        created(&client, TURN(",\"previous_response_id\":\"%s\",\"instructions\":\"Be kind.\"", "Again"), first);
    assert_string_equal(text_of_json(fake_wait(1)->messages),
                        "[{\"role\":\"system\",\"content\":\"Be kind.\"},{\"role\":\"user\",\"content\":\"Hi\"},"
                        "{\"role\":\"assistant\",\"content\":\"Hello\",\"reasoning_content\":\"Hm\"},"
                        "{\"role\":\"user\",\"content\":\"Again\"}]");
    ANSWERS(second, "DELETE", "/v1/responses/%s", NULL, 200, "\"object\":\"response\",\"deleted\":true}");
    /* A response can be continued twice, and after those before it were deleted. */
    char *other = created(&client, TURN(",\"previous_response_id\":\"%s\"", "Other"), first);
    ANSWERS(first, "DELETE", "/v1/responses/%s", NULL, 200, NULL);
    free(created(&client, TURN(",\"previous_response_id\":\"%s\"", "Last"), other));
    assert_contains(text_of_json(fake_wait(3)->messages), "\"content\":\"Hi\"");
    assert_contains(text_of_json(fake_wait(3)->messages), "\"content\":\"Other\"");
    assert_null(strstr(text_of_json(fake_wait(3)->messages), "Again"));
    free(other);
    free(second);
    free(first);
    client_close(&client);
}

static void a_stored_response_is_shown_as_it_was(void **state)
{
    struct client client = start(*state);
    struct response response = ask(&client, "POST", "/v1/responses", "{\"input\":\"Hi\",\"metadata\":{\"a\":\"b\"}}");
    char *id = id_of(&response);
    assert_contains(response.body.v, "\"store\":true");
    ANSWERS(id, "GET", "/v1/responses/%s", NULL, 200, response.body.v);
    ANSWERS(id, "GET", "/responses/%s", NULL, 200, response.body.v);
    response_release(&response);
    ANSWERS(id, "GET", "/v1/responses/%s?stream=true", NULL, 400, "\"param\":\"stream\"");
    ANSWERS(id, "POST", "/v1/responses/%s/cancel", "{}", 400, "\"param\":\"background\"");
    ANSWERS(id, "DELETE", "/v1/responses/%s", NULL, 200, id);
    static const char *const gone[][3] = {{"GET", "/v1/responses/%s", NULL},
                                          {"DELETE", "/v1/responses/%s", NULL},
                                          {"GET", "/v1/responses/%s/input_items", NULL},
                                          {"POST", "/v1/responses/%s/cancel", "{}"}};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        assert_answer(&client, gone[i], id, 404, "\"code\":\"not_found\"");
    ANSWERS(id, "POST", "/v1/responses/input_tokens", "{\"input\":\"Hi\"}", 200, "input_tokens");
    free(id);
    client_close(&client);
}

static void a_stream_is_stored_when_it_is_whole(void **state)
{
    struct client client = start(*state);
    struct response response = ask(&client, "POST", "/v1/responses", "{\"input\":\"Hi\",\"stream\":true}");
    char *id = id_of(&response);
    response_release(&response);
    ANSWERS(id, "GET", "/v1/responses/%s", NULL, 200, "\"text\":\"Hello\"");
    free(id);
    /* A response that broke off is not stored. */
    static const struct fake_script failing = {
        .texts = reply, .n_texts = 2, .fail = HEARTH_INTERNAL, .message = "broken"};
    fake_play(&failing);
    response = ask(&client, "POST", "/v1/responses", "{\"input\":\"Hi\",\"stream\":true}");
    id = id_of(&response);
    response_release(&response);
    ANSWERS(id, "GET", "/v1/responses/%s", NULL, 404, NULL);
    free(id);
    client_close(&client);
}

static void what_shall_not_be_stored_is_not(void **state)
{
    struct client client = start(*state);
    char *id = created(&client, TURN(",\"store\":false", "Hi"), NULL);
    ANSWERS(id, "GET", "/v1/responses/%s", NULL, 404, NULL);
    ANSWERS(id, "POST", "/v1/responses", TURN(",\"previous_response_id\":\"resp_x\"", "Hi"), 400,
            "\"code\":\"previous_response_not_found\"");
    ANSWERS(id, "POST", "/v1/responses", TURN(",\"previous_response_id\":\"resp_x\",\"conversation\":\"conv_x\"", "Hi"),
            400, "\"param\":\"conversation\"");
    free(id);
    client_close(&client);
}

static void nothing_is_stored_where_the_configuration_says_so(void **state)
{
    fake_set("server.responses_max", "0");
    struct client client = start(*state);
    struct response response = ask(&client, "POST", "/v1/responses", "{\"input\":\"Hi\",\"store\":true}");
    char *id = id_of(&response);
    assert_contains(response.body.v, "\"store\":false");
    response_release(&response);
    ANSWERS(id, "GET", "/v1/responses/%s", NULL, 404, NULL);
    ANSWERS(id, "POST", "/v1/conversations", "", 400, "server.responses_max");
    free(id);
    client_close(&client);
}

/* ---- Items ---- */

static void the_items_of_a_prompt_are_listed_page_by_page(void **state)
{
    struct client client = start(*state);
    char *first = created(&client,
                          "{\"input\":[{\"role\":\"user\",\"content\":\"one\"},"
                          "{\"id\":\"msg_mine\",\"role\":\"user\",\"content\":\"two\"}]}",
                          NULL);
    char *second = created(&client, TURN(",\"previous_response_id\":\"%s\"", "three"), first);
    /* Newest first, with the answers of earlier turns, without its own answer. */
    struct response response = asked(&client, "GET", NULL, "/v1/responses/%s/input_items", second);
    static const char *const order[] = {"\"three\"", "\"Hello\"", "\"Hm\"", "\"two\"", "\"one\""};
    const char *at = response.body.v;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        at = strstr(at, order[i]);
        if (at == NULL) fail_msg("%s is not in its place: %s", order[i], response.body.v);
    }
    assert_true(strstr(response.body.v, "\"Hello\"") > strstr(response.body.v, "\"three\""));
    assert_contains(response.body.v, "\"content\":[{\"type\":\"input_text\",\"text\":\"two\"}]");
    assert_contains(response.body.v, "\"has_more\":false");
    response_release(&response);
#define PAGE(query, status, part) ANSWERS(second, "GET", "/v1/responses/%s/input_items?" query, NULL, status, part)
    PAGE("limit=1", 200, "\"has_more\":true");
    PAGE("limit=1&order=asc&after=msg_mine", 200, "\"summary\":[]");
    PAGE("order=asc&limit=2", 200, "\"last_id\":\"msg_mine\"");
    PAGE("limit=0", 400, "\"param\":\"limit\"");
    PAGE("limit=101", 400, "\"param\":\"limit\"");
    PAGE("limit=1x", 400, "\"param\":\"limit\"");
    PAGE("order=up", 400, "\"param\":\"order\"");
    PAGE("after=nobody", 400, "\"param\":\"after\"");
    free(second);
    free(first);
    client_close(&client);
}

/* As clients do that keep only the ids of items. */
static void references_to_items_become_the_items(void **state)
{
    struct client client = start(*state);
    struct response response = ask(&client, "POST", "/v1/responses", "{\"input\":\"Hi\"}");
    const char *at = strstr(response.body.v, "\"id\":\"msg_");
    assert_non_null(at);
    char *item = strndup(at + 6, strcspn(at + 6, "\""));
    response_release(&response);
    free(created(&client,
                 "{\"input\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"type\":\"item_reference\",\"id\":"
                 "\"%s\"},{\"role\":\"user\",\"content\":\"Again\"}]}",
                 item));
    assert_contains(text_of_json(fake_wait(1)->messages), "{\"role\":\"assistant\",\"content\":\"Hello\"}");
    ANSWERS(item, "POST", "/v1/responses", "{\"input\":[{\"type\":\"item_reference\",\"id\":\"msg_gone_0\"}]}", 400,
            "\"param\":\"input[0].id\"");
    free(item);
    client_close(&client);
}

/* ---- Bounds and owners ---- */

static void the_least_recently_used_responses_are_evicted_first(void **state)
{
    fake_set("server.responses_max", "2");
    struct client client = start(*state);
    char *ids[3];
    for (size_t i = 0; i < 3; i++) ids[i] = created(&client, "{\"input\":\"Hi\"}", NULL);
    for (size_t i = 0; i < 3; i++) {
        ANSWERS(ids[i], "GET", "/v1/responses/%s", NULL, i == 0 ? 404 : 200, NULL);
        free(ids[i]);
    }
    client_close(&client);
}

static void the_bytes_of_all_responses_are_bounded(void **state)
{
    fake_set("server.responses_max_mb", "1");
    struct client client = start(*state);
    struct buf body = {0};
    char *ids[2];
    buf_puts(&body, "{\"input\":\"");
    for (size_t i = 0; i < 70000; i++) buf_puts(&body, "0123456789");
    buf_puts(&body, "\"}");
    for (size_t i = 0; i < 2; i++) {
        struct response response = ask(&client, "POST", "/v1/responses", body.v);
        ids[i] = id_of(&response);
        response_release(&response);
    }
    for (size_t i = 0; i < 2; i++) {
        ANSWERS(ids[i], "GET", "/v1/responses/%s", NULL, i == 0 ? 404 : 200, NULL);
        free(ids[i]);
    }
    buf_release(&body);
    client_close(&client);
}

static void stored_items_of_a_request_are_bounded_as_a_body_is(void **state)
{
    fake_set("server.max_body_bytes", "2000");
    struct client client = start(*state);
    char text[1101], body[1400], *id = NULL;
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < 2; i++) {
        snprintf(body, sizeof body, "{\"input\":\"%s\"%s%s%s}", text, id == NULL ? "" : ",\"previous_response_id\":\"",
                 id == NULL ? "" : id, id == NULL ? "" : "\"");
        free(id);
        id = created(&client, "%s", body);
    }
    snprintf(body, sizeof body, "{\"input\":\"a\",\"previous_response_id\":\"%s\"}", id);
    ANSWERS(id, "POST", "/v1/responses", body, 413, "server.max_body_bytes");
    free(id);
    client_close(&client);
}

static struct response ask_as(struct client *client, const char *key, const char *const request[3])
{
    char header[100];
    snprintf(header, sizeof header, "Authorization: Bearer %s\r\n", key);
    client_send(client, request[0], request[1], header, request[2]);
    return client_read(client, true);
}

static void another_keys_responses_are_not_found(void **state)
{
    char path[] = "/tmp/hearth-keys-XXXXXX", body[200], route[200];
    int fd = mkstemp(path);
    dprintf(fd, ADA " ada\n" BOB " bob\n");
    close(fd);
    fake_set("server.api_keys_file", path);
    struct client client = start(*state);
    struct response response =
        ask_as(&client, ADA, (const char *const[]){"POST", "/v1/responses", "{\"input\":\"Hi\"}"});
    char *id = id_of(&response);
    response_release(&response);
    snprintf(body, sizeof body, "{\"input\":\"a\",\"previous_response_id\":\"%s\"}", id);
    snprintf(route, sizeof route, "/v1/responses/%s", id);
    const struct {
        const char *key, *request[3];
        int status;
    } rows[] = {{BOB, {"GET", route, NULL}, 404},
                {BOB, {"DELETE", route, NULL}, 404},
                {BOB, {"POST", "/v1/responses", body}, 400},
                {ADA, {"POST", "/v1/responses", body}, 200},
                {ADA, {"GET", route, NULL}, 200}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        response = ask_as(&client, rows[i].key, rows[i].request);
        if (response.status != rows[i].status) fail_msg("row %zu: %s", i, response.body.v);
        response_release(&response);
    }
    free(id);
    client_close(&client);
    unlink(path);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(a_request_continues_a_response_without_its_instructions),
        ROW(a_stored_response_is_shown_as_it_was),
        ROW(a_stream_is_stored_when_it_is_whole),
        ROW(what_shall_not_be_stored_is_not),
        ROW(nothing_is_stored_where_the_configuration_says_so),
        ROW(the_items_of_a_prompt_are_listed_page_by_page),
        ROW(references_to_items_become_the_items),
        ROW(the_least_recently_used_responses_are_evicted_first),
        ROW(the_bytes_of_all_responses_are_bounded),
        ROW(stored_items_of_a_request_are_bounded_as_a_body_is),
        ROW(another_keys_responses_are_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
