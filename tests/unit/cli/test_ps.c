/* The tables of hearth ps: what they say, and that they fit 80 columns. */
#include "base/utf8.h"
#include "cli/ps_command.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char metrics[] = "# HELP hearth_admission_waiting Requests that wait for admission.\n"
                              "hearth_admission_waiting{model=\"demo\"} 3\n"
                              "hearth_admission_waiting{model=\"demo two\"} 9\n"
                              "hearth_admission_waiting{model=\"a\\\"b\\\\c\"} 5\n"
                              "hearth_requests_waiting{model=\"demo\"} 4\n";

static void waiting_requests_are_those_of_the_model(void **state)
{
    (void)state;
    assert_int_equal(ps_waiting(metrics, "demo"), 7);
    assert_int_equal(ps_waiting(metrics, "demo two"), 9);
    assert_int_equal(ps_waiting(metrics, "a\"b\\c"), 5);
    assert_int_equal(ps_waiting(metrics, "dem"), 0);
    assert_int_equal(ps_waiting(metrics, ""), 0);
    assert_int_equal(ps_waiting("", "demo"), 0);
}

static char *show(const char *health, const char *models, const char *slots, const char *tiers)
{
    struct buf out = {0};
    const char *const texts[] = {health, models, slots, tiers};
    json_t *json[4];
    for (size_t i = 0; i < 4; i++) assert_non_null(json[i] = json_loads(texts[i], 0, NULL));
    ps_put(&out, &(struct ps_facts){"http://127.0.0.1:8080", json[0], json[1], json[2], json[3], metrics});
    for (size_t i = 0; i < 4; i++) json_decref(json[i]);
    return buf_take(&out);
}

static void a_server_at_work_is_shown(void **state)
{
    (void)state;
    char *shown =
        show("{\"status\":\"ok\"}",
             "[{\"id\":\"demo\",\"status\":{\"value\":\"loaded\"},\"type\":\"chat\",\"context_window\":2048,"
             "\"meta\":{\"slots\":2}}]",
             "[{\"id\":0,\"model\":\"demo\",\"state\":\"generate\",\"n_prompt_tokens\":47,\"cached_tokens\":32,"
             "\"next_token\":[{\"n_decoded\":12}]},"
             "{\"id\":1,\"model\":\"demo\",\"state\":\"idle\",\"cached_tokens\":9}]",
             "{\"ram\":{\"on\":true,\"entries\":3,\"bytes\":1234567,\"quota_bytes\":2000000000,\"evictions\":1},"
             "\"disk\":{\"on\":false,\"trouble\":\"no space\\u001b\"}}");
    assert_string_equal(shown, "http://127.0.0.1:8080: ok\n"
                               "\n"
                               "model                       state      type         window  slots  busy  waiting\n"
                               "demo                        loaded     chat           2048      2     1        7\n"
                               "\n"
                               "slot  model                       state        prompt    cached  generated\n"
                               "   0  demo                        generate         47        32         12\n"
                               "   1  demo                        idle              -         9          -\n"
                               "\n"
                               "tier       entries        used       quota   evicted\n"
                               "ram              3      1.2 MB      2.0 GB         1\n"
                               "disk           off\n"
                               "  no space\\u001b\n");
    free(shown);
}

static void long_names_are_cut_to_80_columns(void **state)
{
    (void)state;
    char *shown = show("{\"status\":\"loading model\",\"progress\":0.456,\"model\":\"big\"}",
                       "[{\"id\":\"\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
                       "bcdefghijklmnopqrst\",\"status\":{\"value\":\"unloading\"},\"type\":\"embedding\","
                       "\"context_window\":10485760,\"meta\":{\"slots\":10000}},{\"id\":\"\\u001b[2J\"},{},7]",
                       "[]", "{}");
    assert_non_null(strstr(shown, "http://127.0.0.1:8080: loading model big, 46 %\n"));
    assert_non_null(strstr(shown, "\n\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
                                  "bcdefghijklmn...  unloading  embedding"));
    assert_non_null(strstr(shown, "\n\\u001b[2J  "));
    assert_null(strchr(shown, '\033'));
    for (const char *line = shown; *line != '\0'; line += strcspn(line, "\n") + 1)
        assert_true(utf8_count(line, strcspn(line, "\n")) <= 80);
    free(shown);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(waiting_requests_are_those_of_the_model),
                                       cmocka_unit_test(a_server_at_work_is_shown),
                                       cmocka_unit_test(long_names_are_cut_to_80_columns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
