/* The routes of conversations: creating, appending by responses and by request, listing, updating and deleting. */
#include "json_trees.h"
#include "unit/serve/harness.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const reply[] = {"Hel", "lo"};
static const struct fake_script script = {.texts = reply, .n_texts = 2, .result = {.cache_n = 8, .prompt_n = 2}};

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"

static struct client start(struct harness *h)
{
    struct client client = harness_start(h);
    fake_play(&script);
    return client;
}

/* Sends to a path with the conversation's id in it. */
static struct response send_to(struct client *client, const char *id, const char *const request[3])
{
    char path[200];
    snprintf(path, sizeof path, request[1], id);
    return ask(client, request[0], path, request[2]);
}

static void assert_answer(struct client *client, const char *id, const char *const request[3], int status,
                          const char *part)
{
    struct response response = send_to(client, id, request);
    if (response.status != status) fail_msg("%s %s: %d %s", request[0], request[1], response.status, response.body.v);
    if (part != NULL) assert_contains(response.body.v, part);
    response_release(&response);
}

#define ANSWERS(method, path, body, status, part)                                                                      \
    assert_answer(&client, id, (const char *const[]){method, path, body}, status, part)

static char *created(struct client *client, const char *body)
{
    struct response response = ask(client, "POST", "/v1/conversations", body);
    if (response.status != 200) fail_msg("%s: %s", body, response.body.v);
    const char *at = strstr(response.body.v, "\"id\":\"conv_");
    assert_non_null(at);
    char *id = strndup(at + 6, strcspn(at + 6, "\""));
    response_release(&response);
    return id;
}

static void a_conversation_is_made_shown_changed_and_deleted(void **state)
{
    struct client client = start(*state);
    char *id = created(&client, "{\"metadata\":{\"of\":\"test\"}}");
    ANSWERS("GET", "/v1/conversations/%s", NULL, 200, "\"object\":\"conversation\",\"created_at\":");
    ANSWERS("GET", "/v1/conversations/%s", NULL, 200, "\"metadata\":{\"of\":\"test\"}}");
    ANSWERS("GET", "/v1/conversations/%s/items", NULL, 200, "\"data\":[],\"has_more\":false,\"first_id\":null");
    ANSWERS("POST", "/v1/conversations/%s", "{\"metadata\":{\"of\":\"more\"}}", 200, "\"of\":\"more\"");
    ANSWERS("GET", "/v1/conversations/%s", NULL, 200, "\"of\":\"more\"");
    ANSWERS("DELETE", "/v1/conversations/%s", NULL, 200, "\"object\":\"conversation.deleted\",\"deleted\":true}");
    ANSWERS("GET", "/v1/conversations/%s", NULL, 404, "\"code\":\"not_found\"");
    ANSWERS("POST", "/v1/conversations/%s", "{}", 404, NULL);
    ANSWERS("POST", "/v1/conversations/%s/items", "{\"items\":[" USER("a") "]}", 404, NULL);
    ANSWERS("DELETE", "/v1/conversations/%s", NULL, 404, NULL);
    free(id);
    id = created(&client, "");
    ANSWERS("GET", "/v1/conversations/%s", NULL, 200, "\"metadata\":{}}");
    free(id);
    client_close(&client);
}

static void responses_continue_a_conversation_and_append_to_it(void **state)
{
    struct client client = start(*state);
    char *id = created(&client, "{\"items\":[{\"role\":\"developer\",\"content\":\"Be brief.\"}]}");
    char body[200];
    /* The conversation as a string and as an object; also if the response itself is not stored. */
    snprintf(body, sizeof body, "{\"input\":\"one\",\"conversation\":\"%s\"}", id);
    ANSWERS("POST", "/v1/responses", body, 200, "\"conversation\":{\"id\":\"conv_");
    snprintf(body, sizeof body, "{\"input\":\"two\",\"store\":false,\"conversation\":{\"id\":\"%s\"}}", id);
    ANSWERS("POST", "/v1/responses", body, 200, "\"store\":false");
    ANSWERS("POST", "/v1/responses", body, 200, NULL);
    assert_string_equal(text_of_json(fake_wait(2)->messages),
                        "[{\"role\":\"system\",\"content\":\"Be brief.\"}," USER(
                            "one") ",{\"role\":\"assistant\",\"content\":"
                                   "\"Hello\"}," USER("two") ",{\"role\":"
                                                             "\"assistant\","
                                                             "\"content\":"
                                                             "\"Hello\"}," USER("two") "]");
    ANSWERS("GET", "/v1/conversations/%s/items?limit=100", NULL, 200, "\"text\":\"Be brief.\"");
    free(id);
    client_close(&client);
}

static void items_are_added_shown_and_deleted_by_hand(void **state)
{
    struct client client = start(*state);
    char *id = created(&client, "{\"items\":[" USER("one") "]}"), body[200];
    ANSWERS("POST", "/v1/conversations/%s/items",
            "{\"items\":[{\"id\":\"msg_a\",\"role\":\"user\",\"content\":\"two\"}," USER("three") "]}", 200,
            "{\"object\":\"list\",\"data\":[{\"id\":\"msg_a\"");
    ANSWERS("GET", "/v1/conversations/%s/items/msg_a", NULL, 200, "\"text\":\"two\"");
    ANSWERS("GET", "/v1/conversations/%s/items/msg_b", NULL, 404, "no item 'msg_b'");
    ANSWERS("DELETE", "/v1/conversations/%s/items/msg_b", NULL, 404, NULL);
    ANSWERS("DELETE", "/v1/conversations/%s/items/msg_a", NULL, 200, "\"object\":\"conversation\"");
    ANSWERS("GET", "/v1/conversations/%s/items/msg_a", NULL, 404, NULL);
    ANSWERS("GET", "/v1/conversations/%s", NULL, 200, "\"object\":\"conversation\"");
    snprintf(body, sizeof body, "{\"input\":\"four\",\"conversation\":\"%s\"}", id);
    ANSWERS("POST", "/v1/responses", body, 200, NULL);
    assert_string_equal(text_of_json(fake_wait(0)->messages), "[" USER("one") "," USER("three") "," USER("four") "]");
    free(id);
    client_close(&client);
}

/* `{"items":[…]}` with an item of that id and so many bytes of text. The caller frees it. */
static char *items_of(const char *id, size_t n)
{
    char *body = malloc(n + 200), *at = body;
    at += sprintf(at, "{\"items\":[{\"id\":\"%s\",\"role\":\"user\",\"content\":\"", id);
    memset(at, 'x', n);
    strcpy(at + n, "\"}]}");
    return body;
}

static void a_large_conversation_is_changed_and_nothing_is_lost_for_it(void **state)
{
    fake_set("server.responses_max_mb", "1");
    struct client client = start(*state);
    char *large = items_of("msg_large", 700000), *small = items_of("msg_small", 1000),
         *more = items_of("msg_m", 500000);
    char *other = created(&client, small), *id = created(&client, large), body[200];
    ANSWERS("POST", "/v1/conversations/%s/items", small, 200, NULL);
    ANSWERS("POST", "/v1/conversations/%s/items", more, 400, "\"param\":\"items\"");
    ANSWERS("GET", "/v1/conversations/%s/items/msg_m", NULL, 404, NULL);
    ANSWERS("DELETE", "/v1/conversations/%s/items/msg_small", NULL, 200, "\"object\":\"conversation\"");
    ANSWERS("GET", "/v1/conversations/%s/items/msg_small", NULL, 404, NULL);
    ANSWERS("GET", "/v1/conversations/%s/items/msg_large", NULL, 200, NULL);
    ANSWERS("POST", "/v1/conversations/%s/items", small, 200, NULL);
    ANSWERS("DELETE", "/v1/conversations/%s/items/msg_large", NULL, 200, NULL);
    ANSWERS("GET", "/v1/conversations/%s/items/msg_small", NULL, 200, NULL);
    ANSWERS("POST", "/v1/conversations/%s/items", large, 200, NULL);
    assert_answer(&client, other, (const char *const[]){"GET", "/v1/conversations/%s/items/msg_small", NULL}, 200,
                  NULL);
    char *input = malloc(500200);
    snprintf(body, sizeof body, "\",\"conversation\":\"%s\"}", id);
    strcpy(input, "{\"input\":\"");
    memset(input + 10, 'y', 400000);
    strcpy(input + 400010, body);
    ANSWERS("POST", "/v1/responses", input, 400, "\"param\":\"conversation\"");
    ANSWERS("GET", "/v1/conversations/%s/items/msg_large", NULL, 200, NULL);
    struct response response = ask(&client, "POST", "/v1/conversations", more);
    assert_int_equal(response.status, 200);
    response_release(&response);
    char *huge = items_of("msg_huge", 1100000);
    response = ask(&client, "POST", "/v1/conversations", huge);
    assert_int_equal(response.status, 400);
    assert_contains(response.body.v, "server.responses_max_mb");
    response_release(&response);
    free(large), free(small), free(more), free(huge), free(input), free(id), free(other);
    client_close(&client);
}

static void metadata_has_a_bound(void **state)
{
    struct client client = start(*state);
    char *id = created(&client, "{}");
    for (size_t n = 65000; n <= 66000; n += 1000) {
        char *body = malloc(n + 100);
        strcpy(body, "{\"metadata\":{\"a\":\"");
        size_t begin = strlen(body);
        memset(body + begin, 'x', n);
        strcpy(body + begin + n, "\"}}");
        int status = n < 65500 ? 200 : 400;
        ANSWERS("POST", "/v1/conversations/%s", body, status, status == 400 ? "\"param\":\"metadata\"" : "xxxx");
        free(body);
    }
    ANSWERS("GET", "/v1/conversations/%s", NULL, 200, "xxxx");
    free(id);
    client_close(&client);
}

#define IMAGE(url)                                                                                                     \
    "{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":\"data:image/png;base64," url "\"}]}"

static void assert_medium(const hearth_params *params, size_t i, const char *bytes, const char *field)
{
    assert_true(i < params->n_media);
    assert_int_equal(params->media[i].len, strlen(bytes));
    assert_memory_equal(params->media[i].bytes, bytes, strlen(bytes));
    assert_string_equal(params->media[i].field, field);
}

/* Items are kept as they came, so that each response that continues them has their media again. */
static void images_of_stored_items_are_there_for_every_response(void **state)
{
    struct client client = start(*state);
    char *id = created(&client, "{\"items\":[" IMAGE("aGk=") "]}"), body[300];
    for (size_t i = 0; i < 2; i++) {
        snprintf(body, sizeof body, "{\"input\":[%s],\"conversation\":\"%s\"}", IMAGE("eW8="), id);
        ANSWERS("POST", "/v1/responses", body, 200, NULL);
        const hearth_params *params = fake_wait(i);
        assert_int_equal(params->n_media, 2 + i);
        assert_medium(params, 0, "hi", "previous_response_id[0].content[0].image_url");
        assert_medium(params, 1 + i, "yo", "input[0].content[0].image_url");
    }
    ANSWERS("GET", "/v1/conversations/%s/items?order=asc", NULL, 200, "base64,aGk=");
    ANSWERS("GET", "/v1/conversations/%s/items?order=asc", NULL, 200, "base64,eW8=");
    free(id);
    client_close(&client);
}

static void what_is_wrong_is_named(void **state)
{
    static const char *const rows[][2] = {
        {"{\"metadata\":5}", "\"param\":\"metadata\""},
        {"{\"items\":5}", "\"param\":\"items\""},
        {"{\"items\":[{\"role\":\"tool\",\"content\":\"a\"}]}", "\"param\":\"items[0].role\""},
        {"[]", "must be a JSON object"},
    };
    struct client client = start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct response response = ask(&client, "POST", "/v1/conversations", rows[i][0]);
        assert_int_equal(response.status, 400);
        assert_contains(response.body.v, rows[i][1]);
        response_release(&response);
    }
    client_close(&client);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(a_conversation_is_made_shown_changed_and_deleted),
        ROW(responses_continue_a_conversation_and_append_to_it),
        ROW(items_are_added_shown_and_deleted_by_hand),
        ROW(a_large_conversation_is_changed_and_nothing_is_lost_for_it),
        ROW(metadata_has_a_bound),
        ROW(images_of_stored_items_are_there_for_every_response),
        ROW(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
