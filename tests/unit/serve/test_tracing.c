/* From a result's times to stages, and from a trace to OTLP's JSON. */
#include "base/memory.h"
#include "fakes/cmocka_all.h"
#include "serve/tracing/trace.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MS(n) ((int64_t)((n)*1000000))

/* A request that went through all stages, 100 ms altogether. */
static const hearth_result whole = {.finish = HEARTH_FINISH_LENGTH,
                                    .n_prompt = 30,
                                    .cache_n = 20,
                                    .prompt_n = 10,
                                    .predicted_n = 5,
                                    .queue_ms = 40,
                                    .admission_ms = 10,
                                    .prepare_ms = 5,
                                    .lookup_ms = 1,
                                    .restore_ms = 8,
                                    .prompt_ms = 30,
                                    .predicted_ms = 28,
                                    .save_ms = 2};

static struct trace *new_trace(void)
{
    struct trace *trace = mem_alloc(sizeof *trace);
    memset(trace->self.trace, 0xab, sizeof trace->self.trace);
    memset(trace->self.span, 0xcd, sizeof trace->self.span);
    trace->self.sampled = true;
    trace->method = "POST";
    trace->route = "/v1/chat/completions";
    trace->operation = "chat";
    trace->began_at = MS(1000);
    trace->ended_at = MS(1200);
    trace->unix_ns = 1700000000000000000;
    trace->status = 200;
    trace_set_text(trace->path, "/v1/chat/completions");
    return trace;
}

static void add(struct trace *trace, const hearth_result *result, bool done)
{
    trace_add_choice(
        trace, &(struct trace_progress){.submitted_at = MS(1010), .until = MS(1150), .result = result, .done = done});
}

struct expected {
    const char *name;
    double from, to; /* ms after its submission */
};

static void expect_stages(const struct trace *trace, const struct expected *expected, size_t n)
{
    assert_int_equal(trace->n_stages, n);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(trace->stages[i].name, expected[i].name);
        assert_int_equal(trace->stages[i].from, MS(1010) + MS(expected[i].from));
        assert_int_equal(trace->stages[i].to, MS(1010) + MS(expected[i].to));
    }
}

#define EXPECT(trace, ...)                                                                                             \
    do {                                                                                                               \
        const struct expected expected_[] = {__VA_ARGS__};                                                             \
        expect_stages(trace, expected_, sizeof expected_ / sizeof *expected_);                                         \
        trace_free(trace);                                                                                             \
    } while (0)

/* ---- Stages ---- */

static void stages_follow_one_another(void **state)
{
    (void)state;
    struct trace *trace = new_trace();
    add(trace, &whole, true);
    assert_int_equal(trace->cached_n, 20);
    assert_int_equal(trace->prompt_n, 10);
    assert_int_equal(trace->predicted_n, 5);
    EXPECT(trace, {"admission", 0, 10}, {"tokenise", 10, 15}, {"lookup", 15, 16}, {"queue-wait", 16, 40},
           {"restore", 40, 48}, {"prefill", 48, 70}, {"decode", 70, 98}, {"save", 98, 100});
}

static void what_took_no_time_to_restore_or_save_has_no_stage(void **state)
{
    (void)state;
    struct trace *trace = new_trace();
    hearth_result result = whole;
    result.restore_ms = result.save_ms = 0;
    add(trace, &result, true);
    EXPECT(trace, {"admission", 0, 10}, {"tokenise", 10, 15}, {"lookup", 15, 16}, {"queue-wait", 16, 40},
           {"prefill", 40, 70}, {"decode", 70, 98});
}

/* It was preempted, and its cells came back later: more than the time before its first token. */
static void restoring_is_never_longer_than_the_time_to_the_first_token(void **state)
{
    (void)state;
    struct trace *trace = new_trace();
    hearth_result result = whole;
    result.restore_ms = 50;
    add(trace, &result, true);
    assert_int_equal(trace->stages[4].to - trace->stages[4].from, MS(30));
    assert_int_equal(trace->stages[7].to, MS(1110));
    trace_free(trace);
}

static void the_stage_in_which_a_request_ends_early_lasts_until_then(void **state)
{
    (void)state;
    hearth_result waits = {.slot = -1, .admission_ms = -1, .prepare_ms = -1, .lookup_ms = -1}, prepares = waits,
                  queued = waits, prefills = whole;
    prepares.admission_ms = 10;
    queued.admission_ms = queued.prepare_ms = queued.lookup_ms = 1;
    prefills.predicted_n = 0;
    prefills.prompt_ms = prefills.predicted_ms = prefills.restore_ms = 0;
    struct trace *trace = new_trace();
    add(trace, &waits, false);
    assert_false(trace->computed);
    EXPECT(trace, {"admission", 0, 140});
    trace = new_trace();
    add(trace, &prepares, false);
    EXPECT(trace, {"admission", 0, 10}, {"tokenise", 10, 140});
    trace = new_trace();
    add(trace, &queued, false);
    EXPECT(trace, {"admission", 0, 1}, {"tokenise", 1, 2}, {"lookup", 2, 3}, {"queue-wait", 3, 140});
    trace = new_trace();
    add(trace, &prefills, false);
    assert_true(trace->computed);
    EXPECT(trace, {"admission", 0, 10}, {"tokenise", 10, 15}, {"lookup", 15, 16}, {"queue-wait", 16, 40},
           {"prefill", 40, 140});
    trace = new_trace();
    add(trace, &whole, false);
    EXPECT(trace, {"admission", 0, 10}, {"tokenise", 10, 15}, {"lookup", 15, 16}, {"queue-wait", 16, 40},
           {"restore", 40, 48}, {"prefill", 48, 70}, {"decode", 70, 140});
}

static void what_has_said_nothing_yet_has_waited(void **state)
{
    (void)state;
    struct trace *trace = new_trace();
    add(trace, NULL, false);
    assert_false(trace->computed);
    assert_int_equal(trace->n_choices, 1);
    EXPECT(trace, {"waiting", 0, 140});
}

static void a_prompt_that_is_only_rendered_has_no_slot(void **state)
{
    (void)state;
    struct trace *trace = new_trace();
    add(trace, &(hearth_result){.slot = -1, .admission_ms = 1, .prepare_ms = 2, .lookup_ms = -1}, true);
    assert_false(trace->computed);
    EXPECT(trace, {"admission", 0, 1}, {"tokenise", 1, 3});
}

/* ---- JSON ---- */

static json_t *encode(const struct trace *trace)
{
    static const struct otlp_resource resource = {"1.2.3", "box", "127.0.0.1:8080"};
    struct buf out = {0};
    otlp_put(&out, &resource, trace);
    json_error_t error;
    json_t *root = json_loadb(out.v, out.len, 0, &error);
    if (root == NULL) fail_msg("%s in %s", error.text, out.v);
    buf_release(&out);
    return root;
}

static json_t *first_of(json_t *object, const char *list)
{
    return json_array_get(json_object_get(object, list), 0);
}

static json_t *spans_of(json_t *root)
{
    return json_object_get(first_of(first_of(root, "resourceSpans"), "scopeSpans"), "spans");
}

/* The value of an attribute as text, "" where it is missing. */
static const char *attribute(json_t *span, const char *key)
{
    size_t i;
    json_t *each;
    json_array_foreach(json_object_get(span, "attributes"), i, each)
    {
        if (strcmp(json_string_value(json_object_get(each, "key")), key) != 0) continue;
        json_t *value = json_object_get(each, "value");
        json_t *text = json_object_get(value, "stringValue"), *number = json_object_get(value, "intValue");
        return json_string_value(text != NULL ? text : number);
    }
    return "";
}

static const char *member(json_t *span, const char *name)
{
    const char *text = json_string_value(json_object_get(span, name));
    return text == NULL ? "" : text;
}

static void a_trace_is_a_span_of_the_server_with_spans_below_it(void **state)
{
    (void)state;
    struct trace *trace = new_trace();
    add(trace, &whole, true);
    trace_set_text(trace->model, "demo");
    json_t *root = encode(trace), *spans = spans_of(root), *server = json_array_get(spans, 0);
    assert_int_equal(json_array_size(spans), otlp_spans(trace));
    assert_string_equal(attribute(json_object_get(first_of(root, "resourceSpans"), "resource"), "service.name"),
                        "hearth");
    assert_string_equal(attribute(json_object_get(first_of(root, "resourceSpans"), "resource"), "host.name"), "box");
    assert_string_equal(member(server, "name"), "POST /v1/chat/completions");
    assert_string_equal(member(server, "traceId"), "abababababababababababababababab");
    assert_string_equal(member(server, "spanId"), "cdcdcdcdcdcdcdcd");
    assert_null(json_object_get(server, "parentSpanId"));
    assert_string_equal(member(server, "startTimeUnixNano"), "1700000001000000000");
    assert_string_equal(member(server, "endTimeUnixNano"), "1700000001200000000");
    assert_int_equal(json_integer_value(json_object_get(server, "kind")), 2);
    assert_string_equal(attribute(server, "gen_ai.operation.name"), "chat");
    assert_string_equal(attribute(server, "gen_ai.request.model"), "demo");
    assert_string_equal(attribute(server, "gen_ai.usage.input_tokens"), "30");
    assert_string_equal(attribute(server, "gen_ai.usage.output_tokens"), "5");
    assert_string_equal(attribute(server, "hearth.tokens.cached"), "20");
    assert_string_equal(attribute(server, "hearth.tokens.computed"), "10");
    assert_string_equal(attribute(server, "http.response.status_code"), "200");
    for (size_t i = 1; i < json_array_size(spans); i++) {
        json_t *span = json_array_get(spans, i);
        assert_string_equal(member(span, "parentSpanId"), "cdcdcdcdcdcdcdcd");
        assert_string_equal(member(span, "traceId"), member(server, "traceId"));
        assert_int_equal(strlen(member(span, "spanId")), 16);
        assert_string_not_equal(member(span, "spanId"), member(json_array_get(spans, i - 1), "spanId"));
        assert_int_equal(json_integer_value(json_object_get(span, "kind")), 1);
    }
    json_decref(root);
    trace_free(trace);
}

static void a_parent_elsewhere_is_named(void **state)
{
    (void)state;
    struct trace *trace = new_trace();
    trace->has_parent = true;
    trace->operation = NULL;
    memset(trace->parent, 0x12, sizeof trace->parent);
    json_t *root = encode(trace), *server = json_array_get(spans_of(root), 0);
    assert_string_equal(member(server, "parentSpanId"), "1212121212121212");
    assert_int_equal(json_integer_value(json_object_get(server, "flags")), 0x301);
    assert_string_equal(attribute(server, "gen_ai.provider.name"), ""); /* no model was asked */
    json_decref(root);
    trace_free(trace);
}

static void an_operation_has_its_name_whether_or_not_the_request_names_a_model(void **state)
{
    (void)state;
    struct trace *trace = new_trace();
    json_t *root = encode(trace), *server = json_array_get(spans_of(root), 0);
    assert_string_equal(attribute(server, "gen_ai.operation.name"), "chat");
    assert_string_equal(attribute(server, "gen_ai.provider.name"), "hearth");
    assert_string_equal(attribute(server, "gen_ai.request.model"), "");
    json_decref(root);
    trace_free(trace);
}

static void only_failures_of_the_server_are_errors(void **state)
{
    (void)state;
    static const struct {
        int status, code;
        const char *type;
    } cases[] = {{200, 0, ""}, {429, 0, ""}, {499, 0, ""}, {500, 2, "500"}, {503, 2, "503"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trace *trace = new_trace();
        trace->status = cases[i].status;
        json_t *root = encode(trace), *server = json_array_get(spans_of(root), 0);
        json_t *code = json_object_get(json_object_get(server, "status"), "code");
        assert_int_equal(json_integer_value(code), cases[i].code);
        assert_string_equal(attribute(server, "error.type"), cases[i].type);
        json_decref(root);
        trace_free(trace);
    }
}

static void several_traces_and_choices_are_one_body(void **state)
{
    (void)state;
    struct trace *one = new_trace(), *other = new_trace();
    add(one, &whole, true);
    add(one, &whole, true);
    one->next = other;
    json_t *root = encode(one), *spans = spans_of(root);
    assert_int_equal(json_array_size(spans), 1 + 16 + 1);
    assert_string_equal(attribute(json_array_get(spans, 1), "hearth.choice"), "0");
    assert_string_equal(attribute(json_array_get(spans, 9), "hearth.choice"), "1");
    json_decref(root);
    trace_free(one);
    trace_free(other);
}

static void texts_of_clients_are_cut_and_made_whole_characters(void **state)
{
    (void)state;
    char longest[2 * TRACE_TEXT];
    struct trace *trace = new_trace();
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    trace_set_text(trace->model, longest);
    trace_set_text(trace->path, "/\xff\"\n");
    json_t *root = encode(trace), *server = json_array_get(spans_of(root), 0);
    assert_int_equal(strlen(attribute(server, "gen_ai.request.model")), TRACE_TEXT - 1);
    assert_string_equal(attribute(server, "url.path"), "/\xef\xbf\xbd\"\n");
    json_decref(root);
    trace_free(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_follow_one_another),
        cmocka_unit_test(what_took_no_time_to_restore_or_save_has_no_stage),
        cmocka_unit_test(restoring_is_never_longer_than_the_time_to_the_first_token),
        cmocka_unit_test(the_stage_in_which_a_request_ends_early_lasts_until_then),
        cmocka_unit_test(what_has_said_nothing_yet_has_waited),
        cmocka_unit_test(a_prompt_that_is_only_rendered_has_no_slot),
        cmocka_unit_test(a_trace_is_a_span_of_the_server_with_spans_below_it),
        cmocka_unit_test(a_parent_elsewhere_is_named),
        cmocka_unit_test(an_operation_has_its_name_whether_or_not_the_request_names_a_model),
        cmocka_unit_test(only_failures_of_the_server_are_errors),
        cmocka_unit_test(several_traces_and_choices_are_one_body),
        cmocka_unit_test(texts_of_clients_are_cut_and_made_whole_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
