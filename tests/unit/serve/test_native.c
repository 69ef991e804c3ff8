/* llama-server's native completions: the exact bytes of answers and streams, the parameters that reach the library,
 * and errors of the fields that only these routes have. */
#include "serve/native/native.h"
#include "unit/serve/dialect_rig.h"
#include "unit/serve/harness.h"

#include <jansson.h>
#include <math.h>

#define TIMINGS                                                                                                        \
    "\"timings\":{\"cache_n\":8,\"prompt_n\":2,\"prompt_ms\":4.000,\"prompt_per_token_ms\":2.000,"                     \
    "\"prompt_per_second\":500.000,\"predicted_n\":3,\"predicted_ms\":6.000,\"predicted_per_token_ms\":3.000,"         \
    "\"predicted_per_second\":333.333,\"queue_ms\":1.500,\"restore_ms\":0.250}"
#define SETTINGS(n, stream)                                                                                            \
    "\"generation_settings\":{\"seed\":7,\"temperature\":0.5,\"top_k\":40,\"ignore_eos\":false,\"logit_bias\":[],"     \
    "\"max_tokens\":" n ",\"n_predict\":" n ",\"n_keep\":0,\"n_discard\":0,\"n_probs\":0,\"stop\":[\"\\n\"],"          \
    "\"stream\":" stream ",\"timings_per_token\":false,\"post_sampling_probs\":false,\"backend_sampling\":false,"      \
    "\"grammar\":\"\",\"grammar_lazy\":false,\"grammar_triggers\":[],\"preserved_tokens\":[],"                         \
    "\"chat_format\":\"Content-only\",\"reasoning_format\":\"none\",\"reasoning_in_content\":false,"                   \
    "\"generation_prompt\":\"\",\"speculative.types\":\"none\",\"lora\":[]}"

static hearth_sampling sampling;

static int set_up(void **unused)
{
    (void)unused;
    hearth_params nothing = hearth_params_default();
    sampling = nothing.sampling;
    sampling.seed = 7;
    sampling.temperature = 0.5;
    sampling.top_k = 40;
    return 0;
}

/* A choice's response with text alone. */
static struct answer answer_with(const char *text)
{
    struct answer answer = {.result = {.finish = HEARTH_FINISH_STOP,
                                       .slot = 2,
                                       .n_prompt = 10,
                                       .cache_n = 8,
                                       .prompt_n = 2,
                                       .predicted_n = 3,
                                       .queue_ms = 1.5,
                                       .restore_ms = 0.25,
                                       .prompt_ms = 4,
                                       .predicted_ms = 6},
                            .sampling = &sampling,
                            .prompt = {.text = "<s>Hi", .len = 5}};
    buf_puts(&answer.text, text);
    return answer;
}

static void *open_state(const char *body)
{
    struct fields fields;
    hearth_error error;
    if (fields_read(&fields, FIELDS_COMPLETION, body, strlen(body), &error) != 0) fail_msg("%s", error.message);
    void *state = native_state(&fields, "demo", &error);
    if (state == NULL) fail_msg("%s", error.message);
    native_dialect.prepare(state);
    fields_release(&fields);
    return state;
}

/* The whole answer to a request whose only choice this is; it is released. */
static char *whole(const char *body, struct answer *answer)
{
    struct buf out = {0};
    void *state = open_state(body);
    rig_put_pieces(&native_dialect, state, answer, 1, &out);
    native_dialect.release(state);
    buf_release(&answer->text);
    return buf_take(&out);
}

static void a_whole_answer_has_llama_servers_members(void **unused)
{
    (void)unused;
    struct answer answer = answer_with("a\nb");
    answer.result.stop_string = "\n";
    char *text = whole("{\"prompt\":\"Hi\",\"n_predict\":9,\"stop\":[\"\\n\"]}", &answer);
    assert_string_equal(text, "{\"index\":0,\"content\":\"a\\nb\",\"tokens\":[],\"id_slot\":2,\"stop\":true,"
                              "\"model\":\"demo\",\"tokens_predicted\":3,\"tokens_evaluated\":10," SETTINGS(
                                  "9", "false") ",\"prompt\":\"<s>Hi\",\"has_new_line\":true,\"truncated\":false,"
                                                "\"stop_type\":\"word\",\"stopping_word\":\"\\n\","
                                                "\"tokens_cached\":12," TIMINGS "}");
    free(text);
}

static void the_end_is_of_a_word_of_the_length_or_of_the_models(void **unused)
{
    (void)unused;
    struct answer eos = answer_with(""), limit = answer_with("");
    limit.result.finish = HEARTH_FINISH_LENGTH;
    char *text = whole("{\"prompt\":\"Hi\"}", &eos);
    assert_contains(text, "\"has_new_line\":false,\"truncated\":false,\"stop_type\":\"eos\",\"stopping_word\":\"\"");
    free(text);
    text = whole("{\"prompt\":\"Hi\"}", &limit);
    assert_contains(text, "\"stop_type\":\"limit\",\"stopping_word\":\"\"");
    free(text);
}

static void tokens_are_returned_where_they_are_wanted(void **unused)
{
    (void)unused;
    int32_t tokens[] = {5, 6, 7};
    struct answer answer = answer_with("abc");
    answer.tokens = (struct tokens){.v = tokens, .len = 3, .cap = 3};
    char *text = whole("{\"prompt\":\"Hi\",\"return_tokens\":true}", &answer);
    assert_contains(text, "\"content\":\"abc\",\"tokens\":[5,6,7],");
    free(text);
}

static struct token_logprobs *two_logprobs(void)
{
    hearth_logprob chosen = {.token = 5, .log = log(0.5), .bytes = "a", .n_bytes = 1};
    hearth_logprob never = {.token = 6, .log = -INFINITY, .bytes = "\xff", .n_bytes = 1};
    hearth_logprob top[] = {chosen, never};
    return token_logprobs_copy(&(hearth_logprobs){.chosen = chosen, .top = top, .n_top = 2});
}

static void probabilities_are_logprobs_or_post_sampling(void **unused)
{
    (void)unused;
    struct token_logprobs *logprobs = two_logprobs();
    struct answer answer = answer_with("a");
    answer.logprobs = &logprobs;
    answer.n_logprobs = 1;
    char *text = whole("{\"prompt\":\"Hi\",\"n_probs\":2}", &answer);
    assert_contains(text, "\"completion_probabilities\":[{\"id\":5,\"token\":\"a\",\"bytes\":[97],"
                          "\"logprob\":-0.693147181,\"top_logprobs\":[{\"id\":5,\"token\":\"a\",\"bytes\":[97],"
                          "\"logprob\":-0.693147181},{\"id\":6,\"token\":\"\xef\xbf\xbd\",\"bytes\":[255],"
                          "\"logprob\":-9999}]}]}");
    free(text);
    buf_puts(&answer.text, "a");
    text = whole("{\"prompt\":\"Hi\",\"n_probs\":2,\"post_sampling_probs\":true}", &answer);
    assert_contains(text, "\"prob\":0.5,\"top_probs\":[{\"id\":5,\"token\":\"a\",\"bytes\":[97],\"prob\":0.5},"
                          "{\"id\":6,\"token\":\"\xef\xbf\xbd\",\"bytes\":[255],\"prob\":0}]}]}");
    free(text);
    logprobs->v[0].log = NAN; /* as of a model with broken weights; JSON has no NaN */
    text = whole("{\"prompt\":\"Hi\",\"n_probs\":2,\"post_sampling_probs\":true}", &answer);
    assert_contains(text, "\"prob\":0,\"top_probs\"");
    free(text);
    free(logprobs);
}

static void several_choices_are_a_list(void **unused)
{
    (void)unused;
    struct buf out = {0};
    struct answer answers[] = {answer_with("a"), answer_with("b")};
    void *state = open_state("{\"prompt\":[\"Hi\",\"Ho\"],\"response_fields\":[\"index\",\"content\"]}");
    rig_put_pieces(&native_dialect, state, answers, 2, &out);
    assert_string_equal(out.v, "[{\"index\":0,\"content\":\"a\"},{\"index\":1,\"content\":\"b\"}]");
    native_dialect.release(state);
    for (size_t i = 0; i < 2; i++) buf_release(&answers[i].text);
    buf_release(&out);
}

static void paths_select_parts_of_an_answer(void **unused)
{
    (void)unused;
    struct answer answer = answer_with("a");
    char *text =
        whole("{\"prompt\":\"Hi\",\"n_predict\":4,\"response_fields\":[\"content\",\"generation_settings/n_predict\","
              "\"content/x\",\"nothing\",\"timings/cache_n\"]}",
              &answer);
    assert_string_equal(text, "{\"content\":\"a\",\"generation_settings/n_predict\":4,\"timings/cache_n\":8}");
    free(text);
    answer = answer_with("a");
    text = whole("{\"prompt\":\"Hi\",\"response_fields\":[]}", &answer);
    assert_contains(text, "\"stop_type\"");
    free(text);
}

static void a_stream_has_each_token_and_at_the_end_all_but_its_text(void **unused)
{
    (void)unused;
    struct buf out = {0};
    struct answer answer = answer_with("abc");
    struct token_logprobs *logprobs = two_logprobs();
    hearth_delta delta = {.type = HEARTH_DELTA_CONTENT, .text = "a\"", .len = 2};
    void *state = open_state("{\"prompt\":\"Hi\",\"stream\":true,\"stop\":\"\\n\"}");
    native_dialect.started(state, 0, &answer.result, &out);
    assert_int_equal(out.len, 0);
    native_dialect.more(state, &(struct exchange_piece){.index = 1, .delta = &delta, .token = 5, .answer = &answer},
                        &out);
    assert_string_equal(out.v, "data: {\"index\":1,\"content\":\"a\\\"\",\"tokens\":[5],\"stop\":false,\"id_slot\":2,"
                               "\"tokens_predicted\":3,\"tokens_evaluated\":10}\n\n");
    buf_clear(&out);
    native_dialect.more(state, &(struct exchange_piece){.token = 6, .answer = &answer, .logprobs = logprobs}, &out);
    assert_contains(out.v, "\"content\":\"\",\"tokens\":[6],");
    assert_contains(out.v, "\"tokens_evaluated\":10,\"completion_probabilities\":[{\"id\":5,");
    buf_clear(&out);
    native_dialect.done(state, 0, &answer, &out);
    assert_string_equal(out.v, "data: {\"index\":0,\"content\":\"\",\"tokens\":[],\"id_slot\":2,\"stop\":true,"
                               "\"model\":\"demo\",\"tokens_predicted\":3,\"tokens_evaluated\":10," SETTINGS(
                                   "-1", "true") ",\"prompt\":\"<s>Hi\",\"has_new_line\":false,\"truncated\":false,"
                                                 "\"stop_type\":\"eos\",\"stopping_word\":\"\","
                                                 "\"tokens_cached\":12," TIMINGS "}\n\n");
    buf_clear(&out);
    native_dialect.ended(state, &answer, 1, &out);
    assert_int_equal(out.len, 0);
    native_dialect.release(state);
    free(logprobs);
    buf_release(&answer.text);
    buf_release(&out);
}

static void a_stream_has_progress_timings_and_errors_where_requested(void **unused)
{
    (void)unused;
    struct buf out = {0};
    struct answer answer = answer_with("");
    void *state = open_state("{\"prompt\":\"Hi\",\"stream\":true,\"timings_per_token\":true}");
    native_dialect.progress(state, 0, &answer.result, &out);
    assert_contains(out.v, "\"content\":\"\",\"tokens\":[],\"stop\":false,");
    assert_contains(out.v,
                    TIMINGS ",\"prompt_progress\":{\"total\":10,\"cache\":8,\"processed\":10,\"time_ms\":4}}\n\n");
    buf_clear(&out);
    native_dialect.more(state, &(struct exchange_piece){.token = 5, .answer = &answer}, &out);
    assert_contains(out.v, "\"tokens_evaluated\":10," TIMINGS "}\n\n");
    buf_clear(&out);
    native_dialect.broken(state, &(hearth_error){.code = HEARTH_INTERNAL, .message = "x"}, &out);
    assert_string_equal(out.v, "data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\",\"code\":"
                               "\"internal_error\",\"param\":null}}\n\n");
    native_dialect.release(state);
    buf_release(&out);
    buf_release(&answer.text);
}

static void biases_are_shown_with_the_tokens_that_ignore_eos_forbids(void **unused)
{
    (void)unused;
    static const hearth_bias biases[] = {{.token = 5, .bias = 1.5F}, {.token = 6, .bias = -INFINITY}};
    static const int32_t ending[] = {2, 9};
    hearth_sampling biased = hearth_params_default().sampling;
    struct buf out = {0};
    biased.ending = ending;
    biased.n_ending = 2;
    settings_put_sampling(&out, &biased);
    assert_contains(out.v, ",\"logit_bias\":[{\"bias\":null,\"token\":2},{\"bias\":null,\"token\":9}]");
    buf_clear(&out);
    biased.logit_bias = biases;
    biased.n_logit_bias = 2;
    biased.n_ending = 1;
    settings_put_sampling(&out, &biased);
    assert_contains(out.v, ",\"logit_bias\":[{\"bias\":1.5,\"token\":5},{\"bias\":null,\"token\":6},"
                           "{\"bias\":null,\"token\":2}]");
    buf_release(&out);
}

/* ---- Routes ---- */

static const char *const texts[] = {"ok", "\n"};
static const struct fake_script script = {.texts = texts, .n_texts = 2, .result = {.n_prompt = 3, .predicted_n = 2}};

static void both_names_answer_natively_and_v1_does_not(void **state)
{
    struct client client = harness_start(*state);
    fake_play(&script);
    static const char *const paths[] = {"/completion", "/completions", "/v1/completions"};
    for (size_t i = 0; i < 3; i++) {
        struct response response = ask(&client, "POST", paths[i], "{\"prompt\":\"Hi\",\"return_tokens\":true}");
        assert_int_equal(response.status, 200);
        assert_contains(response.body.v, i < 2 ? "\"content\":\"ok\\n\",\"tokens\":[1,1]," : "\"text\":\"ok\\n\"");
        if (i < 2) assert_contains(response.body.v, "\"prompt\":\"Hi\",\"has_new_line\":true");
        assert_int_equal(fake_wait(i)->keep_prompt, i < 2);
        response_release(&response);
    }
    client_close(&client);
}

static void tokens_are_in_the_answer_only_where_requested(void **state)
{
    struct client client = harness_start(*state);
    fake_play(&script);
    struct response response = ask(&client, "POST", "/completion", "{\"prompt\":\"Hi\",\"return_tokens\":false}");
    assert_contains(response.body.v, "\"content\":\"ok\\n\",\"tokens\":[],");
    response_release(&response);
    client_close(&client);
}

static void a_native_stream_ends_without_a_mark(void **state)
{
    struct client client = harness_start(*state);
    fake_play(&script);
    struct response response = ask(&client, "POST", "/completion", "{\"prompt\":\"Hi\",\"stream\":true}");
    assert_string_equal(response_header(&response, "Content-Type"), "text/event-stream");
    assert_contains(response.body.v, "data: {\"index\":0,\"content\":\"ok\",\"tokens\":[1],\"stop\":false");
    assert_contains(response.body.v, "\"stop\":true");
    assert_null(strstr(response.body.v, "[DONE]"));
    response_release(&response);
    client_close(&client);
}

static void errors_of_fill_in_the_middle_name_prefix_and_suffix(void **state)
{
    static const char *const rows[][3] = {
        {"suffix", "Leave the suffix out", "\"param\":\"input_suffix\""},
        {"prompt", "'prompt' is too long", "\"param\":\"input_prefix\""},
    };
    struct client client = harness_start(*state);
    for (size_t i = 0; i < 2; i++) {
        fake_fail_submit(0, HEARTH_UNSUPPORTED, rows[i][0], rows[i][1]);
        struct response response = ask(&client, "POST", "/infill", "{\"input_prefix\":\"a\",\"input_suffix\":\"b\"}");
        assert_int_equal(response.status, 400);
        assert_contains(response.body.v, rows[i][2]);
        response_release(&response);
    }
    client_close(&client);
}

static void faults_of_native_fields_name_them(void **state)
{
    static const struct {
        const char *path, *member, *param;
    } rows[] = {
        {"/completion", "\"prompt\":\"a\",\"response_fields\":\"content\"", "response_fields"},
        {"/completion", "\"prompt\":\"a\",\"response_fields\":[5]", "response_fields"},
        {"/completion", "\"prompt\":\"a\",\"return_tokens\":1", "return_tokens"},
        {"/completion", "\"prompt\":\"a\",\"n_cmpl\":0", "n_cmpl"},
        {"/completion", "\"prompt\":\"a\",\"n_probs\":-1", "n_probs"},
        {"/completion", "\"n_predict\":1", "prompt"},
        {"/infill", "\"input_suffix\":\"b\"", "input_prefix"},
        {"/infill", "\"input_prefix\":5,\"input_suffix\":\"b\"", "input_prefix"},
        {"/infill", "\"input_prefix\":\"a\"", "input_suffix"},
        {"/infill", "\"input_prefix\":\"a\",\"input_suffix\":[]", "input_suffix"},
        {"/infill", "\"input_prefix\":\"a\",\"input_suffix\":\"b\",\"prompt\":[1]", "prompt"},
        {"/infill", "\"input_prefix\":\"a\",\"input_suffix\":\"b\",\"input_extra\":{}", "input_extra"},
        {"/infill", "\"input_prefix\":\"a\",\"input_suffix\":\"b\",\"input_extra\":[{}]", "input_extra"},
        {"/infill", "\"input_prefix\":\"a\",\"input_suffix\":\"b\",\"input_extra\":[{\"filename\":\"x\"}]",
         "input_extra"},
        {"/infill", "\"input_prefix\":\"a\",\"input_suffix\":\"b\",\"input_extra\":[{\"text\":\"x\",\"filename\":5}]",
         "input_extra"},
        {"/infill", "\"input_prefix\":\"a\",\"input_suffix\":\"b\",\"temperature\":\"hot\"", "temperature"},
    };
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char body[256], expected[64];
        snprintf(body, sizeof body, "{%s}", rows[i].member);
        snprintf(expected, sizeof expected, "\"param\":\"%s\"", rows[i].param);
        struct response response = ask(&client, "POST", rows[i].path, body);
        if (response.status != 400) fail_msg("%s: %d %s", body, response.status, response.body.v);
        assert_contains(response.body.v, expected);
        response_release(&response);
    }
    struct response response = ask(&client, "POST", "/infill", "not json");
    assert_int_equal(response.status, 400);
    response_release(&response);
    assert_int_equal(fake_submitted(), 0);
    client_close(&client);
}

static void an_editors_fill_in_the_middle_reaches_the_library(void **state)
{
    struct client client = harness_start(*state);
    fake_play(&script);
    struct response response =
        ask(&client, "POST", "/infill",
            "{\"input_prefix\":\"int main\",\"input_suffix\":\"}\",\"prompt\":\"  ret\",\"n_predict\":5,"
            "\"input_extra\":[{\"filename\":\"a.h\",\"text\":\"int a;\"},{\"text\":\"int b;\"}]}");
    assert_int_equal(response.status, 200);
    assert_contains(response.body.v, "\"content\":\"ok\\n\"");
    const hearth_params *p = fake_wait(0);
    assert_string_equal(p->text, "int main");
    assert_string_equal(p->suffix, "}");
    assert_string_equal(p->typed, "  ret");
    assert_int_equal(p->max_tokens, 5);
    assert_int_equal(p->n_snippets, 2);
    assert_string_equal(p->snippets[0].name, "a.h");
    assert_string_equal(p->snippets[0].text, "int a;");
    assert_string_equal(p->snippets[1].name, "tmp");
    response_release(&response);
    response = ask(&client, "POST", "/infill", "{\"input_prefix\":\"a\",\"input_suffix\":\"\"}");
    assert_int_equal(response.status, 200);
    assert_non_null(fake_wait(1)->suffix);
    assert_null(fake_wait(1)->typed);
    response_release(&response);
    client_close(&client);
}

#define BYTES(test) cmocka_unit_test_setup(test, set_up)
#define ROW(test)   cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BYTES(a_whole_answer_has_llama_servers_members),
        BYTES(the_end_is_of_a_word_of_the_length_or_of_the_models),
        BYTES(tokens_are_returned_where_they_are_wanted),
        BYTES(probabilities_are_logprobs_or_post_sampling),
        BYTES(several_choices_are_a_list),
        BYTES(paths_select_parts_of_an_answer),
        BYTES(a_stream_has_each_token_and_at_the_end_all_but_its_text),
        BYTES(a_stream_has_progress_timings_and_errors_where_requested),
        BYTES(biases_are_shown_with_the_tokens_that_ignore_eos_forbids),
        ROW(both_names_answer_natively_and_v1_does_not),
        ROW(tokens_are_in_the_answer_only_where_requested),
        ROW(a_native_stream_ends_without_a_mark),
        ROW(errors_of_fill_in_the_middle_name_prefix_and_suffix),
        ROW(faults_of_native_fields_name_them),
        ROW(an_editors_fill_in_the_middle_reaches_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
