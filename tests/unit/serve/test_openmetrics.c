/* /metrics as OpenMetrics: when, what differs, and which exemplars it has. */
#include "base/metrics.h"
#include "fakes/cmocka_all.h"
#include "fakes/fake_hearth.h"
#include "serve/status/status.h"

#include <stdlib.h>
#include <string.h>

static void a_client_says_that_it_wants_it(void **state)
{
    (void)state;
    static const char prometheus[] =
        "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
        "text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    static const char *const wanted[] = {
        prometheus,
        "application/openmetrics-text",
        "text/plain, Application/OpenMetrics-Text ; version=1.0.0",
        "application/openmetrics-text;q=0,application/openmetrics-text;version=1.0.0;q=0.1",
    };
    static const char *const others[] = {NULL,
                                         "",
                                         "*/*",
                                         "text/plain",
                                         "application/openmetrics-text;q=0",
                                         "application/openmetrics-text; version=1.0.0; q=0.0, text/plain",
                                         "application/openmetrics-text2",
                                         "application/openmetrics",
                                         ",,"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!openmetrics_is_wanted(wanted[i])) fail_msg("%s wants it", wanted[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (openmetrics_is_wanted(others[i])) fail_msg("%s does not want it", others[i]);
}

static void expect(const char *text, const struct exemplars *exemplars, const char *expected)
{
    struct buf out = {0};
    openmetrics_put(&out, text, exemplars);
    assert_string_equal(out.v, expected);
    buf_release(&out);
}

static void families_of_counters_have_no_total_and_the_text_has_an_end(void **state)
{
    (void)state;
    const struct exemplars none = {0};
    expect("", &none, "# EOF\n");
    expect("# HELP a_total How many: a_total.\n# TYPE a_total counter\na_total 3\na_total{x=\"y z\"} 4\n"
           "# HELP g What.\n# TYPE g gauge\ng 0.5\n",
           &none,
           "# HELP a How many: a_total.\n# TYPE a counter\na_total 3\na_total{x=\"y z\"} 4\n"
           "# HELP g What.\n# TYPE g gauge\ng 0.5\n# EOF\n");
}

static void note(struct exemplars *all, const char *model, double queue_ms, double prompt_ms, uint8_t id)
{
    struct trace trace = {.self.sampled = true};
    memset(trace.self.trace, id, sizeof trace.self.trace);
    trace_set_text(trace.model, model);
    hearth_result result = {.queue_ms = queue_ms, .prompt_ms = prompt_ms, .predicted_n = 1};
    exemplars_note(all, NULL, &trace, &result);
}

#define BUCKET(metric, le) metric "_bucket{model=\"demo\",le=\"" le "\"}"

static const struct exemplar *find(const struct exemplars *all, const char *sample)
{
    return exemplars_find(all, sample, strlen(sample));
}

static void each_bucket_has_the_last_request_that_fell_into_it(void **state)
{
    (void)state;
    struct exemplars all = {0};
    note(&all, "demo", 0.5, 20, 1);
    note(&all, "demo", 30, 500000, 2);
    note(&all, "demo", 0.7, 300, 3);
    note(&all, "what a client calls it", 0.9, 301, 4); /* there is one model only */
    assert_int_equal(all.n, 5);
    assert_string_equal(find(&all, BUCKET("hearth_queue_wait_seconds", "0.001"))->trace_id,
                        "04040404040404040404040404040404");
    assert_string_equal(find(&all, BUCKET("hearth_queue_wait_seconds", "0.05"))->trace_id,
                        "02020202020202020202020202020202");
    const struct exemplar *last = find(&all, BUCKET("hearth_time_to_first_token_seconds", "+Inf"));
    assert_true(last->value == 500.03);
    assert_string_equal(find(&all, BUCKET("hearth_time_to_first_token_seconds", "0.5"))->trace_id,
                        "04040404040404040404040404040404");
    assert_null(find(&all, BUCKET("hearth_time_to_first_token_seconds", "1")));
    assert_null(find(&all, BUCKET("hearth_time_to_first_token_seconds", "0.05")));
    assert_null(find(&all, "hearth_queue_wait_seconds_bucket{model=\"demo\""));
    exemplars_release(&all);
    assert_null(find(&all, BUCKET("hearth_queue_wait_seconds", "0.001")));
}

static void what_has_no_trace_or_no_slot_leaves_none(void **state)
{
    (void)state;
    struct exemplars all = {0};
    struct trace trace = {.self.sampled = false};
    exemplars_note(&all, NULL, &trace, &(hearth_result){.queue_ms = 1, .predicted_n = 1});
    assert_int_equal(all.n, 0);
    trace.self.sampled = true;
    exemplars_note(&all, NULL, &trace, &(hearth_result){.slot = -1, .queue_ms = 1});
    assert_int_equal(all.n, 0);
    exemplars_note(&all, NULL, &trace, &(hearth_result){.queue_ms = 1});
    assert_int_equal(all.n, 1); /* it has not come to its first token */
    exemplars_release(&all);
}

static void exemplars_stand_behind_their_bucket(void **state)
{
    (void)state;
    static char sample[] = BUCKET("h", "0.5");
    struct exemplar one = {.sample = sample, .trace_id = "ab", .value = 0.25, .unix_s = 1700000000.1234};
    expect("# HELP h What.\n# TYPE h histogram\n" BUCKET("h", "0.1") " 1\n" BUCKET("h", "0.5") " 2\nh_count 2\n",
           &(struct exemplars){.v = &one, .n = 1},
           "# HELP h What.\n# TYPE h histogram\n" BUCKET("h", "0.1") " 1\n" BUCKET(
               "h", "0.5") " 2 # {trace_id=\"ab\"} 0.25 1700000000.123\nh_count 2\n# EOF\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_says_that_it_wants_it),
        cmocka_unit_test(families_of_counters_have_no_total_and_the_text_has_an_end),
        cmocka_unit_test(each_bucket_has_the_last_request_that_fell_into_it),
        cmocka_unit_test(what_has_no_trace_or_no_slot_leaves_none),
        cmocka_unit_test(exemplars_stand_behind_their_bucket),
    };
    fake_reset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
