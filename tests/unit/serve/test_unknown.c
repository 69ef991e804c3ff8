/* Unknown fields of bodies, and the names under which they are reported. */
#include "fakes/cmocka_all.h"

#include "serve/anthropic/anthropic.h"
#include "serve/fields/unknown.h"
#include "serve/ollama/ollama.h"
#include "serve/responses/responses.h"

#include <stdlib.h>
#include <string.h>

static void assert_finds(const char *body, int route, const struct fields_api *api, const char *expected)
{
    json_t *json = json_loads(body, 0, NULL);
    struct unknown found = unknown_find(json, route, api);
    bool same = expected == NULL || found.names == NULL ? found.names == expected : !strcmp(found.names, expected);
    if (!same) fail_msg("%s: %s", body, found.names == NULL ? "nothing" : found.names);
    free(found.names);
    json_decref(json);
}

static void what_is_read_or_knowingly_ignored_is_known(void **state)
{
    (void)state;
    assert_finds(
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"name\":\"b\"}],\"temperature\":1,\"user\":\"u\","
        "\"keep_alive\":0,\"options\":{\"x\":1},\"modalities\":[\"text\"],\"functions\":[],\"verbose\":true}",
        FIELDS_CHAT, NULL, NULL);
    assert_finds("{\"prompt\":\"a\",\"echo\":true,\"input_extra\":[],\"id_slot\":1}", FIELDS_COMPLETION, NULL, NULL);
    assert_finds("{\"messages\":[],\"system\":\"a\",\"thinking\":{},\"top_k\":1,\"stream\":true}", FIELDS_CHAT,
                 &anthropic_api, NULL);
    assert_finds("{\"input\":\"a\",\"instructions\":\"b\",\"text\":{},\"reasoning\":{},\"cache_salt\":\"x\"}",
                 FIELDS_CHAT, &responses_api, NULL);
    assert_finds("{\"prompt\":\"a\",\"whatever\":1}", FIELDS_LOOKUP, NULL,
                 NULL); /* lookups take bodies of any API: not checked */
}

static void unknown_fields_are_named_as_the_client_names_them(void **state)
{
    (void)state;
    assert_finds("{\"messages\":[],\"temprature\":1,\"prompt\":\"a\"}", FIELDS_CHAT, NULL, "temprature, prompt");
    assert_finds("{\"prompt\":\"a\",\"messages\":[],\"reasoning\":{}}", FIELDS_COMPLETION, NULL, "messages, reasoning");
    assert_finds("{\"messages\":[{\"contents\":1,\"x\":2},{\"x\":3},5]}", FIELDS_CHAT, NULL,
                 "messages[].contents, messages[].x");
    assert_finds("{\"messages\":[],\"stop\":[\"a\"],\"n\":2}", FIELDS_CHAT, &anthropic_api, "stop, n");
    assert_finds("{\"messages\":[],\"options\":{},\"think\":true,\"temperature\":1}", FIELDS_CHAT, &ollama_chat_api,
                 "temperature");
    assert_finds("{\"prompt\":\"a\",\"raw\":true,\"n\":1}", FIELDS_COMPLETION, &ollama_generate_api, "n");
    assert_finds("{\"input\":\"a\",\"max_tokens\":2,\"messages\":[]}", FIELDS_CHAT, &responses_api,
                 "max_tokens, messages");
}

static void names_are_few_short_and_plain(void **state)
{
    (void)state;
    assert_finds("{\"messages\":[],\"a\\r\\nb\":1,\"c, d\":2,\"\xc3\xbc\":3}", FIELDS_CHAT, NULL, "a??b, c??d, ??");
    assert_finds("{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1,\"j\":1}", FIELDS_CHAT, NULL,
                 "a, b, c, d, e, f, g, h");
    char body[256], expected[65];
    snprintf(body, sizeof body, "{\"%0100d\":1}", 0);
    snprintf(expected, sizeof expected, "%064d", 0);
    assert_finds(body, FIELDS_CHAT, NULL, expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_or_knowingly_ignored_is_known),
        cmocka_unit_test(unknown_fields_are_named_as_the_client_names_them),
        cmocka_unit_test(names_are_few_short_and_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
