/* OpenAI's dialect: the exact bytes of answers and streams. */
#include "serve/openai/openai.h"

#include "base/error.h"
#include "serve/core/errors.h"
#include "serve/fields/convert.h"
#include "unit/serve/dialect_rig.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define CHUNK                                                                                                          \
    "data: {\"id\":\"chatcmpl-abc\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"demo\","   \
    "\"system_fingerprint\":\"hearth-0.1.0\",\"choices\":["
#define TEXT_HEAD                                                                                                      \
    "{\"id\":\"cmpl-abc\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"demo\","                   \
    "\"system_fingerprint\":\"hearth-0.1.0\",\"choices\":["
#define TIMINGS                                                                                                        \
    "\"timings\":{\"cache_n\":8,\"prompt_n\":2,\"prompt_ms\":4.000,\"prompt_per_token_ms\":2.000,"                     \
    "\"prompt_per_second\":500.000,\"predicted_n\":3,\"predicted_ms\":6.000,\"predicted_per_token_ms\":3.000,"         \
    "\"predicted_per_second\":333.333,\"queue_ms\":1.500,\"restore_ms\":0.250}"

static const hearth_result result = {.finish = HEARTH_FINISH_STOP,
                                     .cache_n = 8,
                                     .prompt_n = 2,
                                     .predicted_n = 3,
                                     .queue_ms = 1.5,
                                     .restore_ms = 0.25,
                                     .prompt_ms = 4,
                                     .predicted_ms = 6};

static const struct answer answer = {.result = {.finish = HEARTH_FINISH_STOP,
                                                .cache_n = 8,
                                                .prompt_n = 2,
                                                .predicted_n = 3,
                                                .queue_ms = 1.5,
                                                .restore_ms = 0.25,
                                                .prompt_ms = 4,
                                                .predicted_ms = 6}};

static void stream_text(void *state, const char *text, size_t len, struct buf *out)
{
    hearth_delta delta = {.type = HEARTH_DELTA_CONTENT, .text = text, .len = len};
    struct exchange_piece piece = {.delta = &delta, .token = 1, .answer = &answer};
    openai_dialect.more(state, &piece, out);
}

static void *open_state(const struct openai_form *form, const char *body)
{
    static const struct openai_names names = {"demo", "abc", 1700000000};
    struct fields fields;
    hearth_error error;
    int route = form == &openai_completion_form ? FIELDS_COMPLETION : FIELDS_CHAT;
    assert_int_equal(fields_read(&fields, route, body, strlen(body), &error), 0);
    void *state = openai_state(form, &fields, &names, &error);
    assert_non_null(state);
    openai_dialect.prepare(state);
    fields_release(&fields);
    return state;
}

static void assert_taken(struct buf *out, const char *expected)
{
    assert_string_equal(out->v, expected);
    buf_clear(out);
}

/* Every "data:" line but the last has to be JSON. */
static void assert_json(const char *text)
{
    json_error_t error;
    json_t *json = json_loads(text, 0, &error);
    if (json == NULL) fail_msg("%s: %s", error.text, text);
    json_decref(json);
}

static void a_chat_streams_in_openais_chunks(void **unused)
{
    (void)unused;
    void *state = open_state(&openai_chat_form, "{\"messages\":[{}],\"stream\":true}");
    struct buf out = {0};
    openai_dialect.started(state, 0, &result, &out);
    assert_taken(&out, CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null},\"logprobs\":null,"
                             "\"finish_reason\":null}]}\n\n");
    stream_text(state, "\"H\xc3\xa9\n", 5, &out);
    assert_taken(&out, CHUNK "{\"index\":0,\"delta\":{\"content\":\"\\\"H\xc3\xa9\\n\"},\"logprobs\":null,"
                             "\"finish_reason\":null}]}\n\n");
    openai_dialect.done(state, 0, &answer, &out);
    assert_taken(&out,
                 CHUNK "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]," TIMINGS "}\n\n");
    struct answer reply = {.result = result};
    openai_dialect.ended(state, &reply, 1, &out);
    assert_taken(&out, "data: [DONE]\n\n");
    openai_dialect.release(state);
    buf_release(&out);
}

static void a_prompt_that_was_too_short_to_be_reused_is_in_the_timings(void **unused)
{
    (void)unused;
    void *state = open_state(&openai_chat_form, "{\"messages\":[{}]}");
    struct answer reply = {.result = result};
    struct buf out = {0};
    rig_put_pieces(&openai_dialect, state, &reply, 1, &out);
    assert_null(strstr(out.v, "not_reused"));
    openai_dialect.release(state);
    buf_clear(&out);
    state = open_state(&openai_chat_form, "{\"messages\":[{}]}");
    reply.result.too_short_n = 32;
    rig_put_pieces(&openai_dialect, state, &reply, 1, &out);
    assert_json(out.v);
    assert_non_null(strstr(out.v, ",\"not_reused\":{\"tokens\":32,\"reason\":\"cache_min_tokens\"}}"));
    openai_dialect.release(state);
    buf_release(&out);
}

static void calls_come_in_the_form_of_functions_where_these_were_sent(void **unused)
{
    (void)unused;
    void *state = open_state(&openai_functions_form, "{\"messages\":[{}],\"functions\":[{\"name\":\"look\"}]}");
    static const hearth_delta deltas[] = {{.type = HEARTH_DELTA_CALL, .id = "c1", .name = "look"},
                                          {.type = HEARTH_DELTA_ARGUMENTS, .text = "{}", .len = 2}};
    struct answer reply = {.result = result};
    struct buf out = {0};
    for (size_t i = 0; i < 2; i++) {
        struct exchange_piece piece = {.delta = &deltas[i], .token = 1, .answer = &reply};
        answer_add(&reply, &deltas[i]);
        openai_dialect.more(state, &piece, &out);
    }
    assert_taken(&out, CHUNK "{\"index\":0,\"delta\":{\"function_call\":{\"name\":\"look\",\"arguments\":\"\"}},"
                             "\"logprobs\":null,\"finish_reason\":null}]}\n\n" CHUNK
                             "{\"index\":0,\"delta\":{\"function_call\":{\"arguments\":\"{}\"}},\"logprobs\":null,"
                             "\"finish_reason\":null}]}\n\n");
    rig_put_pieces(&openai_dialect, state, &reply, 1, &out);
    assert_non_null(strstr(out.v, "\"message\":{\"role\":\"assistant\",\"content\":null,\"function_call\":{\"name\":"
                                  "\"look\",\"arguments\":\"{}\"},\"refusal\":null},\"logprobs\":null,"
                                  "\"finish_reason\":\"function_call\"}"));
    assert_json(out.v);
    openai_dialect.release(state);
    answer_release(&reply);
    buf_release(&out);
}

/* The model writes JSON; the client gets the text in it, once it is whole. */
static void calls_of_custom_tools_have_an_input(void **unused)
{
    (void)unused;
    void *state = open_state(&openai_chat_form,
                             "{\"messages\":[{}],\"tools\":[{\"type\":\"custom\",\"custom\":{\"name\":\"run\"}},"
                             "{\"type\":\"function\",\"function\":{\"name\":\"look\"}}]}");
    static const hearth_delta deltas[] = {
        {.type = HEARTH_DELTA_CALL, .id = "c1", .name = "run"},
        {.type = HEARTH_DELTA_ARGUMENTS, .text = "{\"input\":", .len = 9},
        {.type = HEARTH_DELTA_ARGUMENTS, .text = " \"a\\n\"}", .len = 7},
        {.type = HEARTH_DELTA_CALL, .id = "c2", .name = "look", .index = 1},
        {.type = HEARTH_DELTA_ARGUMENTS, .text = "{}", .len = 2, .index = 1},
        {.type = HEARTH_DELTA_CALL, .id = "c3", .name = "run", .index = 2},
        {.type = HEARTH_DELTA_ARGUMENTS, .text = "{\"inp", .len = 5, .index = 2},
    };
    struct answer reply = {.result = result};
    struct buf out = {0};
    for (size_t i = 0; i < sizeof deltas / sizeof *deltas; i++) {
        struct exchange_piece piece = {.delta = &deltas[i], .token = 1, .answer = &reply};
        answer_add(&reply, &deltas[i]);
        openai_dialect.more(state, &piece, &out);
    }
#define CALL(text)                                                                                                     \
    CHUNK "{\"index\":0,\"delta\":{\"tool_calls\":[{" text "}]},\"logprobs\":null,\"finish_reason\":null}]}\n\n"
    assert_taken(&out,
                 CALL("\"index\":0,\"id\":\"c1\",\"type\":\"custom\",\"custom\":{\"name\":\"run\",\"input\":\"\"}")
                     CALL("\"index\":0,\"custom\":{\"input\":\"a\\n\"}")
                         CALL("\"index\":1,\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"look\","
                              "\"arguments\":\"\"}") CALL("\"index\":1,\"function\":{\"arguments\":\"{}\"}")
                             CALL("\"index\":2,\"id\":\"c3\",\"type\":\"custom\",\"custom\":{\"name\":\"run\","
                                  "\"input\":\"\"}"));
    openai_dialect.done(state, 0, &reply, &out);
    assert_int_equal(strncmp(out.v, CALL("\"index\":2,\"custom\":{\"input\":\"{\\\"inp\"}"),
                             strlen(CALL("\"index\":2,\"custom\":{\"input\":\"{\\\"inp\"}"))),
                     0);
#undef CALL
    buf_clear(&out);
    rig_put_pieces(&openai_dialect, state, &reply, 1, &out);
    assert_non_null(strstr(out.v,
                           "\"tool_calls\":[{\"id\":\"c1\",\"type\":\"custom\",\"custom\":{\"name\":\"run\",\"input\":"
                           "\"a\\n\"}},{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"look\","
                           "\"arguments\":\"{}\"}},{\"id\":\"c3\",\"type\":\"custom\""));
    assert_json(out.v);
    openai_dialect.release(state);
    answer_release(&reply);
    buf_release(&out);
}

static void reasoning_is_left_out_where_requested(void **unused)
{
    (void)unused;
    void *state = open_state(&openai_chat_form, "{\"messages\":[{}],\"reasoning\":{\"exclude\":true}}");
    static const hearth_delta thought = {.type = HEARTH_DELTA_REASONING, .text = "Hm", .len = 2};
    struct answer reply = {.result = result};
    struct exchange_piece piece = {.delta = &thought, .token = 1, .answer = &reply};
    struct buf out = {0};
    answer_add(&reply, &thought);
    openai_dialect.more(state, &piece, &out);
    assert_int_equal(out.len, 0);
    rig_put_pieces(&openai_dialect, state, &reply, 1, &out);
    assert_null(strstr(out.v, "Hm"));
    assert_json(out.v);
    openai_dialect.release(state);
    answer_release(&reply);
    buf_release(&out);
}

static void llama_servers_own_form_is_shown_as_well_where_asked_for(void **unused)
{
    (void)unused;
    static const hearth_sampling picks = {.seed = 7};
    void *state = open_state(&openai_chat_form, "{\"messages\":[{}],\"verbose\":true,\"stop\":[\"x\"]}");
    struct answer reply = {.result = result, .sampling = &picks, .prompt = {.text = "Hi there", .len = 8}};
    struct buf out = {0};
    rig_put_pieces(&openai_dialect, state, &reply, 1, &out);
    assert_json(out.v);
    assert_non_null(strstr(out.v, "},\"__verbose\":{\"index\":0,\"content\":"));
    assert_non_null(strstr(out.v, "\"prompt\":\"Hi there\""));
    assert_non_null(strstr(out.v, "\"generation_settings\":{\"seed\":7"));
    assert_non_null(strstr(out.v, "\"stop\":[\"x\"]"));
    buf_clear(&out);
    openai_dialect.done(state, 0, &reply, &out);
    assert_non_null(strstr(out.v, "},\"__verbose\":{\"index\":0,"));
    openai_dialect.release(state);
    buf_release(&out);
}

static void usage_comes_in_a_chunk_of_its_own_when_asked_for(void **unused)
{
    (void)unused;
    void *state = open_state(&openai_chat_form,
                             "{\"messages\":[{}],\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    struct buf out = {0};
    stream_text(state, "a", 1, &out);
    assert_taken(&out, CHUNK "{\"index\":0,\"delta\":{\"content\":\"a\"},\"logprobs\":null,"
                             "\"finish_reason\":null}],\"usage\":null}\n\n");
    struct answer reply = {.result = result};
    openai_dialect.ended(state, &reply, 1, &out);
    assert_taken(&out, CHUNK "],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":3,\"total_tokens\":13,"
                             "\"prompt_tokens_details\":{\"cached_tokens\":8}}," TIMINGS "}\n\ndata: [DONE]\n\n");
    openai_dialect.release(state);
    buf_release(&out);
}

static void a_whole_chat_is_openais_object(void **unused)
{
    (void)unused;
    void *state = open_state(&openai_chat_form, "{\"messages\":[{}]}");
    struct answer reply = {.result = result};
    struct buf out = {0};
    buf_puts(&reply.text, "Hello");
    reply.result.finish = HEARTH_FINISH_LENGTH;
    rig_put_pieces(&openai_dialect, state, &reply, 1, &out);
    assert_json(out.v);
    assert_taken(&out, "{\"id\":\"chatcmpl-abc\",\"object\":\"chat.completion\",\"created\":1700000000,"
                       "\"model\":\"demo\",\"system_fingerprint\":\"hearth-0.1.0\",\"choices\":[{\"index\":0,"
                       "\"message\":{\"role\":\"assistant\",\"content\":\"Hello\",\"refusal\":null},"
                       "\"logprobs\":null,\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":10,"
                       "\"completion_tokens\":3,\"total_tokens\":13,\"prompt_tokens_details\":{\"cached_tokens\":8}}"
                       "," TIMINGS "}");
    openai_dialect.release(state);
    buf_release(&reply.text);
    buf_release(&out);
}

static void usage_has_the_tokens_of_reasoning_where_there_are_any(void **unused)
{
    (void)unused;
    void *state = open_state(&openai_chat_form, "{\"messages\":[{}],\"n\":2}");
    struct answer replies[2] = {{.result = result, .reasoning_n = 2}, {.result = result, .reasoning_n = 1}};
    struct buf out = {0};
    rig_put_pieces(&openai_dialect, state, replies, 2, &out);
    assert_json(out.v);
    assert_non_null(strstr(out.v, "\"prompt_tokens_details\":{\"cached_tokens\":8},"
                                  "\"completion_tokens_details\":{\"reasoning_tokens\":3}}"));
    openai_dialect.release(state);
    buf_release(&out);
}

static void usage_counts_a_prompt_once_however_many_choices_it_has(void **unused)
{
    (void)unused;
    void *state = open_state(&openai_completion_form, "{\"prompt\":[\"a\",\"b\"],\"n\":2}");
    struct answer replies[4];
    struct buf out = {0};
    for (int i = 0; i < 4; i++) replies[i] = (struct answer){.result = result};
    rig_put_pieces(&openai_dialect, state, replies, 4, &out);
    assert_json(out.v);
    assert_non_null(strstr(out.v, "\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":12,\"total_tokens\":32,"
                                  "\"prompt_tokens_details\":{\"cached_tokens\":16}}"));
    assert_non_null(strstr(out.v, "\"timings\":{\"cache_n\":32,\"prompt_n\":8,"));
    assert_non_null(strstr(out.v, "},{\"index\":3,\"text\":\"\","));
    openai_dialect.release(state);
    buf_release(&out);
}

static void a_completion_streams_text_and_echoes_its_prompt(void **unused)
{
    (void)unused;
    void *state = open_state(&openai_completion_form, "{\"prompt\":[\"Once\",\"Twice\"],\"echo\":true}");
    struct buf out = {0};
    openai_dialect.started(state, 1, &result, &out);
    assert_taken(&out, "data: " TEXT_HEAD "{\"index\":1,\"text\":\"Twice\",\"logprobs\":null,\"finish_reason\":null}]}"
                       "\n\n");
    openai_dialect.done(state, 1, &answer, &out);
    assert_taken(&out, "data: " TEXT_HEAD
                       "{\"index\":1,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\"}]," TIMINGS "}\n\n");
    struct answer replies[2] = {{.result = result}, {.result = result}};
    buf_puts(&replies[0].text, " upon");
    rig_put_pieces(&openai_dialect, state, replies, 2, &out);
    assert_json(out.v);
    assert_non_null(strstr(out.v, "{\"index\":0,\"text\":\"Once upon\","));
    assert_non_null(strstr(out.v, "{\"index\":1,\"text\":\"Twice\","));
    openai_dialect.release(state);
    buf_release(&replies[0].text);
    buf_release(&out);
}

/* Of the tokens "<s>", " On" and "ce" the first and a space are not in the text that was sent. */
static void the_prompt_is_echoed_with_the_logprobs_of_its_tokens(void **unused)
{
    (void)unused;
    static const int32_t tokens[] = {1, 2, 3};
    static const size_t ends[] = {3, 6, 8};
    const hearth_logprob likeliest = {.token = 9, .log = -0.25, .bytes = "x", .n_bytes = 1};
    const hearth_logprobs scores[] = {
        {.chosen = {.token = 2, .log = -1, .bytes = " On", .n_bytes = 3}, .rank = 2, .top = &likeliest, .n_top = 1},
        {.chosen = {.token = 3, .log = -2, .bytes = "ce", .n_bytes = 2}, .rank = 7, .top = &likeliest, .n_top = 1}};
    const hearth_logprobs upon = {.chosen = {.token = 4, .log = -3, .bytes = " up", .n_bytes = 3}};
    struct answer reply = {.result = result,
                           .prompt = {.tokens = tokens, .n_tokens = 3, .text = "<s> Once", .len = 8, .ends = ends}};
    for (size_t i = 0; i < 2; i++) answer_add_prompt_logprobs(&reply, token_logprobs_copy(&scores[i]));
    answer_add_logprobs(&reply, token_logprobs_copy(&upon));
    buf_puts(&reply.text, " up");
    void *state = open_state(&openai_completion_form, "{\"prompt\":\"Once\",\"echo\":true,\"logprobs\":1}");
    struct buf out = {0};
    rig_put_pieces(&openai_dialect, state, &reply, 1, &out);
    assert_json(out.v);
    assert_non_null(strstr(out.v, "{\"index\":0,\"text\":\"Once up\",\"logprobs\":{\"tokens\":[\"<s>\",\" On\",\"ce\","
                                  "\" up\"],\"token_logprobs\":[null,-1,-2,-3],\"top_logprobs\":[null,{\"x\":-0.25},"
                                  "{\"x\":-0.25},{}],\"text_offset\":[0,0,2,4]},"));
    openai_dialect.release(state);
    buf_clear(&out);
    state = open_state(&openai_completion_form, "{\"prompt\":[1,2,3],\"echo\":true,\"prompt_logprobs\":1}");
    rig_put_pieces(&openai_dialect, state, &reply, 1, &out);
    assert_json(out.v);
    assert_non_null(strstr(out.v, "\"text\":\"<s> Once up\""));
    assert_non_null(strstr(out.v,
                           "\"prompt_logprobs\":[null,{\"2\":{\"logprob\":-1,\"rank\":2,\"decoded_token\":\" On\"},"
                           "\"9\":{\"logprob\":-0.25,\"rank\":1,\"decoded_token\":\"x\"}},{\"3\":"));
    openai_dialect.release(state);
    answer_release(&reply);
    buf_release(&out);
}

static void a_completion_without_echo_begins_with_its_first_text(void **unused)
{
    (void)unused;
    void *state = open_state(&openai_completion_form, "{\"prompt\":\"Once\"}");
    struct buf out = {0};
    openai_dialect.started(state, 0, &result, &out);
    assert_int_equal(out.len, 0);
    openai_dialect.release(state);
}

static void an_error_has_openais_form(void **unused)
{
    (void)unused;
    struct buf out = {0};
    hearth_error error = {.code = HEARTH_INVALID, .param = "stop", .message = "bad \"stop\""};
    errors_put(&out, &error, "req-1");
    assert_taken(&out, "{\"error\":{\"message\":\"bad \\\"stop\\\"\",\"type\":\"invalid_request_error\","
                       "\"code\":\"invalid_value\",\"param\":\"stop\"}}");
    buf_release(&out);
}

/* The first choice had ended before. */
static void a_stream_that_breaks_off_ends_its_choices_with_an_error(void **unused)
{
    (void)unused;
    void *state = open_state(&openai_chat_form, "{\"messages\":[{}],\"stream\":true,\"n\":3}");
    struct buf out = {0};
    hearth_error error = {.code = HEARTH_INTERNAL, .message = "x"};
    openai_dialect.started(state, 1, &result, &out);
    openai_dialect.done(state, 0, &answer, &out);
    buf_clear(&out);
    openai_dialect.broken(state, &error, &out);
    assert_taken(&out, CHUNK "{\"index\":1,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"error\"}]}\n\n" CHUNK
                             "{\"index\":2,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"error\"}]}\n\n"
                             "data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\","
                             "\"code\":\"internal_error\",\"param\":null}}\n\n");
    openai_dialect.release(state);
    buf_release(&out);
}

static void every_code_of_the_library_has_a_status(void **unused)
{
    (void)unused;
    static const struct {
        int code, status;
    } rows[] = {{HEARTH_INVALID, 400},
                {HEARTH_NOT_FOUND, 404},
                {HEARTH_TOO_LONG, 400},
                {HEARTH_BUSY, 429},
                {HEARTH_UNSUPPORTED, 400},
                {HEARTH_UNAVAILABLE, 503},
                {HEARTH_CANCELLED, 503},
                {HEARTH_NO_MEMORY, 500},
                {HEARTH_IO, 500},
                {HEARTH_INTERNAL, 500},
                {-55, 500}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(errors_kind(rows[i].code)->status, rows[i].status);
    assert_string_equal(errors_kind(HEARTH_TOO_LONG)->name, "context_length_exceeded");
}

/* Clients of OpenAI's go by the code, those of llama-server by the type and both numbers. */
static void a_prompt_that_is_too_long_is_known_to_clients_of_both(void **unused)
{
    (void)unused;
    struct buf out = {0};
    hearth_error error;
    error_at(&error, HEARTH_TOO_LONG, "messages", "it is too long");
    error_note_length(&error, 300, 256);
    hearth_error renamed = convert_rename(&error, &(struct convert_name){"messages", "input"}, 1);
    errors_put(&out, &renamed, NULL);
    assert_taken(&out,
                 "{\"error\":{\"message\":\"it is too long\",\"type\":\"exceed_context_size_error\","
                 "\"code\":\"context_length_exceeded\",\"param\":\"input\",\"n_prompt_tokens\":300,\"n_ctx\":256}}");
    error_at(&error, HEARTH_TOO_LONG, "messages", "it has too many bytes"); /* which are not counted in tokens */
    errors_put(&out, &error, NULL);
    assert_taken(&out, "{\"error\":{\"message\":\"it has too many bytes\",\"type\":\"invalid_request_error\","
                       "\"code\":\"context_length_exceeded\",\"param\":\"messages\"}}");
    buf_release(&out);
}

static void progress_is_told_without_text_and_with_timings_where_they_are_wanted(void **unused)
{
    (void)unused;
    void *state = open_state(&openai_chat_form, "{\"messages\":[{}],\"stream\":true,\"timings_per_token\":true}");
    struct buf out = {0};
    openai_dialect.progress(state, 0, &result, &out);
    assert_non_null(strstr(out.v, "\"delta\":{},\"logprobs\":null,\"finish_reason\":null}]," TIMINGS
                                  ",\"prompt_progress\":{\"total\":"));
    openai_dialect.release(state);
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat_streams_in_openais_chunks),
        cmocka_unit_test(a_prompt_that_is_too_long_is_known_to_clients_of_both),
        cmocka_unit_test(progress_is_told_without_text_and_with_timings_where_they_are_wanted),
        cmocka_unit_test(a_prompt_that_was_too_short_to_be_reused_is_in_the_timings),
        cmocka_unit_test(calls_come_in_the_form_of_functions_where_these_were_sent),
        cmocka_unit_test(calls_of_custom_tools_have_an_input),
        cmocka_unit_test(reasoning_is_left_out_where_requested),
        cmocka_unit_test(llama_servers_own_form_is_shown_as_well_where_asked_for),
        cmocka_unit_test(usage_comes_in_a_chunk_of_its_own_when_asked_for),
        cmocka_unit_test(a_whole_chat_is_openais_object),
        cmocka_unit_test(usage_has_the_tokens_of_reasoning_where_there_are_any),
        cmocka_unit_test(usage_counts_a_prompt_once_however_many_choices_it_has),
        cmocka_unit_test(a_completion_streams_text_and_echoes_its_prompt),
        cmocka_unit_test(the_prompt_is_echoed_with_the_logprobs_of_its_tokens),
        cmocka_unit_test(a_completion_without_echo_begins_with_its_first_text),
        cmocka_unit_test(an_error_has_openais_form),
        cmocka_unit_test(a_stream_that_breaks_off_ends_its_choices_with_an_error),
        cmocka_unit_test(every_code_of_the_library_has_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
