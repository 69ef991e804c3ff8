/* Ollama's API: conversion of bodies, the exact bytes of answers, the routes, and the listener of its own. */
#include "serve/ollama/ollama.h"

#include "base/error.h"

#include "unit/serve/dialect_rig.h"
#include "unit/serve/harness.h"

#include <ctype.h>

#define HI         "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
#define WITH(more) "{" HI "," more "}"

static const hearth_result result = {
    .n_prompt = 10, .cache_n = 8, .prompt_n = 2, .predicted_n = 3, .queue_ms = 0.5, .prompt_ms = 2, .predicted_ms = 10};

/* ---- Bodies ---- */

#define CALL(id, name, arguments)                                                                                      \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":\"" arguments "\"}}"

static void messages_become_those_of_a_chat(void **unused)
{
    (void)unused;
    static const char *const rows[][2] = {
        {"{" HI "}", "{" HI ",\"stream\":true,\"tools\":null,\"enable_thinking\":null,\"max_tokens\":null}"},
        {"{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"a\"},"
         "{\"role\":\"user\",\"content\":\"b\"},{\"role\":\"assistant\",\"content\":\"c\",\"thinking\":\"Hm.\"}]}",
         "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"a\"},"
         "{\"role\":\"user\",\"content\":\"b\"},{\"role\":\"assistant\",\"content\":\"c\",\"reasoning_content\":"
         "\"Hm.\"}]}"},
        /* Calls without ids get some, and results are matched to them. */
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"get\","
         "\"arguments\":{\"z\":0.1,\"a\":[1]}}},{\"function\":{\"index\":1,\"name\":\"put\",\"arguments\":{}}},"
         "{\"id\":\"own\",\"function\":{\"name\":\"get\",\"arguments\":{}}}]},"
         "{\"role\":\"tool\",\"content\":\"1\",\"tool_name\":\"put\"},{\"role\":\"tool\",\"content\":\"2\"},"
         "{\"role\":\"tool\",\"content\":\"3\",\"tool_call_id\":\"own\"},{\"role\":\"tool\",\"content\":\"4\"}]}",
         "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" CALL(
             "call_0", "get",
             "{\\\"z\\\":0.1,\\\"a\\\":[1]}") "," CALL("call_1", "put",
                                                       "{}") "," CALL("own", "get",
                                                                      "{}") "]},"
                                                                            "{\"role\":\"tool\",\"tool_call_id\":"
                                                                            "\"call_1\",\"content\":\"1\",\"name\":"
                                                                            "\"put\"},"
                                                                            "{\"role\":\"tool\",\"tool_call_id\":"
                                                                            "\"call_0\",\"content\":\"2\"},"
                                                                            "{\"role\":\"tool\",\"tool_call_id\":"
                                                                            "\"own\",\"content\":\"3\"},"
                                                                            "{\"role\":\"tool\",\"tool_call_id\":"
                                                                            "\"call\",\"content\":\"4\"}]}"},
        /* Calls without arguments, as Ollama itself writes them. */
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"get\",\"arguments\":null}},"
         "{\"function\":{\"name\":\"put\"}}]}]}",
         "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" CALL(
             "call_0", "get", "{}") "," CALL("call_1", "put", "{}") "]}]}"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[]},{\"role\":\"user\",\"content\":null,"
         "\"images\":[]}]}",
         "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\"},{\"role\":\"user\",\"content\":\"\"}]}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_converts(ollama_chat_body, rows[i][0], rows[i][1]);
}

static void options_become_fields_of_a_chat(void **unused)
{
    (void)unused;
    static const char *const rows[][2] = {
        {WITH("\"stream\":false,\"options\":{\"temperature\":0.5,\"top_k\":3,\"top_p\":0.9,\"min_p\":0.1,\"typical_p\":"
              "0.7,\"repeat_last_n\":-1,\"repeat_penalty\":1.1,\"presence_penalty\":0.2,\"frequency_penalty\":0.3,"
              "\"mirostat\":1,\"mirostat_tau\":5,\"mirostat_eta\":0.1,\"seed\":7,\"stop\":[\"x\"],\"num_predict\":9}"),
         "{\"stream\":false,\"temperature\":0.5,\"top_k\":3,\"top_p\":0.9,\"min_p\":0.1,\"typical_p\":0.7,"
         "\"repeat_last_n\":-1,\"repeat_penalty\":1.1,\"presence_penalty\":0.2,\"frequency_penalty\":0.3,"
         "\"mirostat\":1,\"mirostat_tau\":5,\"mirostat_eta\":0.1,\"seed\":7,\"stop\":[\"x\"],\"max_tokens\":9}"},
        {WITH("\"options\":{\"num_predict\":-2,\"seed\":null,\"num_ctx\":4096,\"num_gpu\":1,\"what\":{}}"),
         "{\"max_tokens\":-1,\"seed\":null,\"num_ctx\":null,\"what\":null,\"options\":null}"},
        {WITH("\"options\":{\"num_predict\":0}"), "{\"max_tokens\":-1}"},
        /* Sampling parameters outside of "options" are ignored. */
        {WITH("\"temperature\":2,\"max_tokens\":3,\"json_schema\":{},\"options\":null"),
         "{\"temperature\":null,\"max_tokens\":null,\"json_schema\":null}"},
        {WITH("\"think\":true"), "{\"enable_thinking\":true,\"reasoning_effort\":null,\"think\":null}"},
        {WITH("\"think\":false"), "{\"enable_thinking\":false,\"reasoning_effort\":null}"},
        {WITH("\"think\":\"high\""), "{\"enable_thinking\":true,\"reasoning_effort\":\"high\"}"},
        {WITH("\"think\":\"none\""), "{\"enable_thinking\":false,\"reasoning_effort\":null}"},
        {WITH("\"think\":null"), "{\"enable_thinking\":null,\"reasoning_effort\":null}"},
        {WITH("\"format\":\"json\""), "{\"response_format\":{\"type\":\"json_object\"},\"format\":null}"},
        {WITH("\"format\":{\"type\":\"object\"}"), "{\"json_schema\":{\"type\":\"object\"},\"response_format\":null}"},
        {WITH("\"format\":\"\""), "{\"json_schema\":null,\"response_format\":null}"},
        {WITH("\"logprobs\":true,\"top_logprobs\":2"), "{\"logprobs\":true,\"top_logprobs\":2}"},
        {WITH("\"logprobs\":false,\"top_logprobs\":2"), "{\"logprobs\":null,\"top_logprobs\":null}"},
        {WITH("\"tools\":[{\"type\":\"function\"}]"), "{\"tools\":[{\"type\":\"function\"}]}"},
        /* A tool without a type is a function, if it has one. */
        {WITH("\"tools\":[{\"function\":{\"name\":\"a\"}},{\"type\":\"\",\"function\":{\"name\":\"b\"}},{\"type\":null,"
              "\"function\":{}},{\"type\":\"other\",\"function\":{}},{\"name\":\"c\"},5]"),
         "{\"tools\":[{\"function\":{\"name\":\"a\"},\"type\":\"function\"},{\"type\":\"function\",\"function\":{"
         "\"name\":"
         "\"b\"}},{\"type\":\"function\",\"function\":{}},{\"type\":\"other\",\"function\":{}},{\"name\":\"c\"},5]}"},
        {WITH("\"tools\":5"), "{\"tools\":5}"},
        {WITH("\"keep_alive\":\"5m\",\"truncate\":true,\"shift\":true,\"min_keep\":3"),
         "{\"keep_alive\":null,\"truncate\":null,\"shift\":null,\"min_keep\":3}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_converts(ollama_chat_body, rows[i][0], rows[i][1]);
}

static void a_prompt_becomes_a_chat_or_a_completion(void **unused)
{
    (void)unused;
    static const char *const rows[][2] = {
        {"{\"prompt\":\"Hi\"}", "{" HI ",\"prompt\":null,\"stream\":true}"},
        {"{\"prompt\":\"Hi\",\"system\":\"Be brief.\",\"raw\":false,\"suffix\":\"\",\"template\":\"\",\"context\":[]}",
         "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"Hi\"}],"
         "\"system\":null,\"template\":null,\"context\":null}"},
        {"{\"prompt\":\"Hi\",\"raw\":true,\"options\":{\"num_predict\":3},\"logprobs\":true,\"top_logprobs\":2}",
         "{\"prompt\":\"Hi\",\"messages\":null,\"max_tokens\":3,\"raw\":null,\"logprobs\":2,\"top_logprobs\":null}"},
        {"{\"prompt\":\"def f(\",\"suffix\":\"return\"}",
         "{\"prompt\":\"def f(\",\"suffix\":\"return\",\"messages\":null}"},
        {"{\"suffix\":\"return\"}", "{\"prompt\":\"\",\"suffix\":\"return\"}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_converts(ollama_generate_body, rows[i][0], rows[i][1]);
}

static void what_cannot_be_is_refused_by_the_clients_own_names(void **unused)
{
    (void)unused;
#define MESSAGE(members) "{\"messages\":[{\"role\":\"assistant\"," members "}]}"
    static const struct rig_refusal chats[] = {
        {"{\"messages\":[{\"content\":\"a\"}]}", HEARTH_INVALID, "messages[0].role"},
        {"{\"messages\":[{\"role\":\"developer\"}]}", HEARTH_INVALID, "messages[0].role"},
        {MESSAGE("\"content\":[]"), HEARTH_INVALID, "messages[0].content"},
        {MESSAGE("\"images\":\"aGk=\""), HEARTH_INVALID, "messages[0].images"},
        {MESSAGE("\"tool_calls\":{}"), HEARTH_INVALID, "messages[0].tool_calls"},
        {MESSAGE("\"tool_calls\":[{}]"), HEARTH_INVALID, "messages[0].tool_calls[0].function"},
        {MESSAGE("\"tool_calls\":[{\"function\":{\"arguments\":{}}}]"), HEARTH_INVALID,
         "messages[0].tool_calls[0].function.name"},
        {WITH("\"options\":[]"), HEARTH_INVALID, "options"},
        {WITH("\"options\":{\"num_predict\":\"9\"}"), HEARTH_INVALID, "options.num_predict"},
        {WITH("\"think\":3"), HEARTH_INVALID, "think"},
        {WITH("\"think\":\"\""), HEARTH_INVALID, "think"},
        {WITH("\"format\":\"xml\""), HEARTH_INVALID, "format"},
        {WITH("\"logprobs\":1"), HEARTH_INVALID, "logprobs"},
        {WITH("\"top_logprobs\":-1"), HEARTH_INVALID, "top_logprobs"},
    };
    static const struct rig_refusal prompts[] = {
        {"{\"prompt\":3}", HEARTH_INVALID, "prompt"},
        {"{\"prompt\":\"a\",\"system\":3}", HEARTH_INVALID, "system"},
        {"{\"prompt\":\"a\",\"raw\":1}", HEARTH_INVALID, "raw"},
        {"{\"prompt\":\"a\",\"raw\":true,\"system\":\"b\"}", HEARTH_INVALID, "system"},
        {"{\"prompt\":\"a\",\"template\":\"{{ .Prompt }}\"}", HEARTH_INVALID, "template"},
        {"{\"prompt\":\"a\",\"context\":[1]}", HEARTH_INVALID, "context"},
        {"{\"prompt\":\"a\",\"images\":5}", HEARTH_INVALID, "images"},
        {"{\"prompt\":\"a\",\"raw\":true,\"images\":[\"aGk=\"]}", HEARTH_INVALID, "images"},
    };
    assert_refused(ollama_chat_body, chats, sizeof chats / sizeof *chats);
    assert_refused(ollama_generate_body, prompts, sizeof prompts / sizeof *prompts);
}

static void a_request_without_a_prompt_loads_or_unloads_the_model(void **unused)
{
    (void)unused;
    static const struct {
        const char *body;
        bool is_chat, about_model, unload;
    } rows[] = {
        {"{\"model\":\"m\"}", true, true, false},
        {"{\"messages\":[]}", true, true, false},
        {"{\"messages\":null,\"keep_alive\":0}", true, true, true},
        {"{\"messages\":[],\"keep_alive\":\"0s\"}", true, true, true},
        {"{\"messages\":[],\"keep_alive\":\"1s\"}", true, true, false},
        {"{\"messages\":[],\"keep_alive\":-1}", true, true, false},
        {"{\"messages\":[],\"keep_alive\":\"5m\"}", true, true, false},
        {WITH("\"keep_alive\":0"), true, false, false},
        {"{}", false, true, false},
        {"{\"prompt\":\"\",\"keep_alive\":0}", false, true, true},
        {"{\"prompt\":\"\",\"suffix\":\"a\"}", false, false, false},
        {"{\"prompt\":\"a\"}", false, false, false},
        {"{\"prompt\":\"\",\"raw\":true}", false, true, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hearth_error error = {0};
        struct ollama_request *request = ollama_read(rig_json(rows[i].body), rows[i].is_chat, &error);
        if (request == NULL) fail_msg("%s: %s", rows[i].body, error.message);
        if ((request->fields == NULL) != rows[i].about_model || request->unload != rows[i].unload)
            fail_msg("%s", rows[i].body);
        assert_true(ollama_size(request) > 0);
        ollama_close(request);
    }
}

static void a_request_keeps_what_else_it_asks_for(void **unused)
{
    (void)unused;
    hearth_error error = {0};
    struct ollama_request *request = ollama_read(
        rig_json(WITH("\"model\":\"m:7b\",\"options\":{\"num_ctx\":4096,\"temperature\":0}")), true, &error);
    assert_non_null(request);
    assert_string_equal(request->model, "m:7b");
    assert_int_equal(request->num_ctx, 4096);
    assert_true(request->fields->stream);
    assert_true(request->fields->params.sampling.temperature == 0);
    ollama_close(request);
    assert_null(ollama_read(rig_json("{\"model\":3}"), true, &error));
    assert_string_equal(error.param, "model");
    assert_null(ollama_read(rig_json(WITH("\"options\":{\"temperature\":\"hot\"}")), true, &error));
    assert_string_equal(error.param, "temperature");
    struct buf out = {0};
    ollama_put_error(&out, &error, NULL);
    assert_string_equal(out.v, "{\"error\":\"'options.temperature' must be a number from -100 to 100\"}");
    buf_release(&out);
}

/* ---- Answers ---- */

/* Replaces the times of answers: "2026-01-02T03:04:05.678Z" becomes "T". */
static void forget_times(struct buf *out)
{
    static const char name[] = "\"created_at\":\"", form[] = "dddd-dd-ddTdd:dd:dd.dddZ\"";
    struct buf plain = {0};
    for (const char *at = out->v, *end = out->v + out->len; at < end; at++) {
        buf_append(&plain, at, 1);
        if (plain.len < strlen(name) || memcmp(plain.v + plain.len - strlen(name), name, strlen(name)) != 0) continue;
        for (const char *f = form; *f != '\0'; f++) {
            at++;
            if (*f == 'd' ? !isdigit((unsigned char)*at) : *f != *at) fail_msg("no time: %s", out->v);
        }
        buf_puts(&plain, "T\"");
    }
    buf_release(out);
    *out = plain;
}

static struct rig open_rig(bool is_chat)
{
    return (struct rig){.dialect = &ollama_dialect, .state = ollama_state("demo:latest", is_chat)};
}

static void expect_all(struct rig *rig, const char *expected)
{
    forget_times(&rig->out);
    rig_expect(rig, expected);
}

#define HEAD          "{\"model\":\"demo:latest\",\"created_at\":\"T\","
#define SAYS(members) HEAD "\"message\":{\"role\":\"assistant\"," members "}"
#define LINE(members) SAYS(members) ",\"done\":false}\n"
#define CALLS(calls)  "\"content\":\"\",\"tool_calls\":[" calls "]"
#define GET(index, id)                                                                                                 \
    "{\"id\":\"call_1\",\"function\":{\"index\":" index ",\"name\":\"" id "\",\"arguments\":{\"a\":1}}}"
#define END(reason)                                                                                                    \
    ",\"done\":true,\"done_reason\":\"" reason "\",\"total_duration\":12500000,\"load_duration\":500000,"              \
    "\"prompt_eval_count\":10,\"prompt_eval_duration\":2000000,\"eval_count\":3,\"eval_duration\":10000000,"           \
    "\"timings\":{\"cache_n\":8,\"prompt_n\":2,\"prompt_ms\":2.000,\"prompt_per_token_ms\":1.000,"                     \
    "\"prompt_per_second\":1000.000,\"predicted_n\":3,\"predicted_ms\":10.000,\"predicted_per_token_ms\":5.000,"       \
    "\"predicted_per_second\":200.000,\"queue_ms\":0.500,\"restore_ms\":0.000}}"

static void a_stream_has_a_line_for_each_piece(void **unused)
{
    (void)unused;
    struct rig rig = open_rig(true);
    ollama_dialect.started(rig.state, 0, &result, &rig.out);
    rig_reasoning(&rig, "Hm");
    expect_all(&rig, LINE("\"content\":\"\",\"thinking\":\"Hm\""));
    rig_content(&rig, "");
    rig_content(&rig, "Y\n");
    expect_all(&rig, LINE("\"content\":\"Y\\n\""));
    rig_end(&rig, result);
    expect_all(&rig, SAYS("\"content\":\"\"") END("stop") "\n");
    rig_close(&rig);
}

static void a_call_is_streamed_when_it_is_complete(void **unused)
{
    (void)unused;
    struct rig rig = open_rig(true);
    rig_call(&rig, "get", "{\"a\":1}");
    assert_int_equal(rig.out.len, 0);
    rig_call(&rig, "put", "{\"a\":1}");
    expect_all(&rig, LINE(CALLS(GET("0", "get"))));
    rig_content(&rig, "So");
    expect_all(&rig, LINE(CALLS(GET("1", "put"))) LINE("\"content\":\"So\""));
    rig_call(&rig, "cut", "{\"a\":");
    rig_end(&rig, result);
    expect_all(&rig, LINE(CALLS("{\"id\":\"call_1\",\"function\":{\"index\":2,\"name\":\"cut\",\"arguments\":{}}}"))
                         SAYS("\"content\":\"\"") END("stop") "\n");
    rig_close(&rig);
}

static void a_whole_answer_is_one_object(void **unused)
{
    (void)unused;
    struct rig rig = open_rig(true);
    rig_reasoning(&rig, "Hm");
    rig_content(&rig, "Yes");
    rig_call(&rig, "get", "{\"a\":1}");
    rig_call(&rig, "put", "{\"a\":1}");
    rig_skip(&rig);
    rig.answer.result = result;
    rig.answer.result.finish = HEARTH_FINISH_LENGTH;
    ollama_dialect.whole(rig.state, &rig.answer, 1, &rig.out);
    expect_all(&rig,
               SAYS("\"content\":\"Yes\",\"thinking\":\"Hm\",\"tool_calls\":[" GET("0", "get") "," GET("1", "put") "]")
                   END("length"));
    rig_close(&rig);
}

static void generated_text_is_a_response(void **unused)
{
    (void)unused;
    struct rig rig = open_rig(false);
    rig_reasoning(&rig, "Hm");
    rig_content(&rig, "Yes");
    rig_end(&rig, result);
    expect_all(&rig, HEAD "\"response\":\"\",\"thinking\":\"Hm\",\"done\":false}\n" HEAD
                          "\"response\":\"Yes\",\"done\":false}\n" HEAD "\"response\":\"\"" END("stop") "\n");
    ollama_dialect.whole(rig.state, &rig.answer, 1, &rig.out);
    expect_all(&rig, HEAD "\"response\":\"Yes\",\"thinking\":\"Hm\"" END("stop"));
    rig_close(&rig);
}

static void a_quiet_stream_is_kept_alive_with_lines_without_text(void **unused)
{
    (void)unused;
    struct rig rig = open_rig(true);
    ollama_dialect.ping(rig.state, &rig.out);
    expect_all(&rig, LINE("\"content\":\"\""));
    rig_close(&rig);
}

static void a_stream_that_breaks_off_ends_with_an_error(void **unused)
{
    (void)unused;
    struct rig rig = open_rig(true);
    hearth_error error = {.code = HEARTH_INTERNAL, .message = "decode \"failed\""};
    ollama_dialect.broken(rig.state, &error, &rig.out);
    rig_expect(&rig, "{\"error\":\"decode \\\"failed\\\"\"}\n");
    rig_close(&rig);
}

/* ---- Routes ---- */

static void expect(struct client *client, const char *route[2], const char *body, int status, const char *says)
{
    struct response response = ask(client, route[0], route[1], body);
    if (response.status != status) fail_msg("%s %s: %d %s", route[0], route[1], response.status, response.body.v);
    assert_contains(response.body.v, says);
    response_release(&response);
}

#define ROUTE(method, path) ((const char *[]){method, path})

static void replies_are_streamed_as_lines_unless_a_client_wants_them_whole(void **state)
{
    static const char *const texts[] = {"~rHm", "Yes", "~cget", "~a{\"a\":1}"};
    static const struct fake_script script = {.texts = texts, .n_texts = 4, .result = {.n_prompt = 10}};
    struct client client = harness_start(*state);
    fake_play(&script);
    struct response r = ask(&client, "POST", "/api/chat", WITH("\"model\":\"demo\""));
    assert_int_equal(r.status, 200);
    assert_string_equal(response_header(&r, "Content-Type"), "application/x-ndjson");
    size_t n = 0;
    for (const char *at = r.body.v; (at = strchr(at, '\n')) != NULL; at++) n++;
    assert_int_equal(n, 4);
    assert_contains(r.body.v, "\"thinking\":\"Hm\"");
    assert_contains(r.body.v, "\"arguments\":{\"a\":1}}}]},\"done\":false}\n");
    response_release(&r);
    expect(&client, ROUTE("POST", "/api/generate"), "{\"prompt\":\"Hi\",\"stream\":false}", 200,
           "\"response\":\"Yes\",\"thinking\":\"Hm\"");
    client_close(&client);
}

static void tokens_have_their_logprobs(void **state)
{
    static const char *const texts[] = {"Yes"};
    static const struct fake_script script = {.texts = texts, .n_texts = 1};
    struct client client = harness_start(*state);
    fake_play(&script);
    expect(&client, ROUTE("POST", "/api/chat"), WITH("\"stream\":false,\"logprobs\":true,\"top_logprobs\":1"), 200,
           "\"logprobs\":[{\"token\":\"Yes\",\"logprob\":-0.5,\"bytes\":[89,101,115],\"top_logprobs\":[{");
    expect(&client, ROUTE("POST", "/api/chat"), WITH("\"logprobs\":true"), 200,
           "},\"logprobs\":[{\"token\":\"Yes\",\"logprob\":-0.5,\"bytes\":[89,101,115],\"top_logprobs\":[]}],\"done\"");
    client_close(&client);
}

static void a_model_is_loaded_and_unloaded_without_a_prompt(void **state)
{
    static const struct fake_script script = {.n_texts = 0};
    struct client client = harness_start(*state);
    fake_play(&script);
    expect(&client, ROUTE("POST", "/api/chat"), "{\"model\":\"demo\"}", 200,
           "\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\"done_reason\":\"load\"}");
    assert_true(fake_wait(0)->only_prompt);
    expect(&client, ROUTE("POST", "/api/generate"), "{\"model\":\"demo\",\"keep_alive\":0}", 200,
           "\"response\":\"\",\"done\":true,\"done_reason\":\"unload\"}");
    expect(&client, ROUTE("POST", "/api/generate"), "{\"model\":\"other\"}", 404, "{\"error\":\"");
    expect(&client, ROUTE("POST", "/api/generate"), "{\"model\":\"other\",\"keep_alive\":0}", 404, "{\"error\":\"");
    client_close(&client);
}

static void models_are_listed_and_shown(void **state)
{
#define DETAILS                                                                                                        \
    "\"details\":{\"parent_model\":\"\",\"format\":\"gguf\",\"family\":\"qwen3\",\"families\":[\"qwen3\"],"            \
    "\"parameter_size\":\"600.0M\",\"quantization_level\":\"Q4_K_M\"}"
#define ENTRY                                                                                                          \
    "{\"models\":[{\"name\":\"demo:latest\",\"model\":\"demo:latest\",\"modified_at\":\"2023-11-14T22:13:20.000Z\","   \
    "\"size\":1234567890123,\"digest\":\""
    struct client client = harness_start(*state);
    expect(&client, ROUTE("GET", "/api/tags"), NULL, 200, ENTRY);
    expect(&client, ROUTE("GET", "/api/tags"), NULL, 200, DETAILS "}]}");
    expect(&client, ROUTE("GET", "/api/ps"), NULL, 200, ENTRY);
    expect(&client, ROUTE("GET", "/api/ps"), NULL, 200,
           DETAILS ",\"expires_at\":\"9999-12-31T23:59:59Z\",\"size_vram\":0,\"context_length\":8192}]}");
    static const char *const shown[] = {
        "{\"modelfile\":\"\",\"parameters\":\"num_ctx                        8192\\n"
        "temperature                    0.5\\ntop_k                          40\"",
        "\"template\":\"{{ \\\"x\\\" }}\"," DETAILS,
        "\"model_info\":{\"general.architecture\":\"qwen3\",\"general.parameter_count\":"
        "600000000,\"qwen3.context_length\":8192,\"qwen3.embedding_length\":1024,"
        "\"qwen3.block_count\":28,\"qwen3.vocab_size\":151936}",
        "\"capabilities\":[\"completion\"]"};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        expect(&client, ROUTE("POST", "/api/show"), "{\"model\":\"demo:latest\"}", 200, shown[i]);
    expect(&client, ROUTE("POST", "/api/show"), "{\"name\":\"demo\"}", 200, shown[1]);
    expect(&client, ROUTE("POST", "/api/show"), "{\"model\":\"other\"}", 404, "{\"error\":\"model 'other'");
    expect(&client, ROUTE("POST", "/api/show"), "{}", 400, "'model' is missing");
    expect(&client, ROUTE("GET", "/api/version"), NULL, 200, "{\"version\":\"0.12.11\",\"hearth\":\"");
    client_close(&client);
}

static void texts_become_vectors(void **state)
{
    struct client client = harness_start(*state);
    expect(&client, ROUTE("POST", "/api/embed"), "{\"model\":\"demo\",\"input\":[\"a\",\"b\"]}", 200,
           "{\"model\":\"demo\",\"embeddings\":[[1,0.5],[2,0.5]],\"total_duration\":");
    const hearth_embed_params *params = fake_wait_embedding(0);
    assert_int_equal(params->truncate, HEARTH_TRUNCATE_WINDOW);
    assert_int_equal(params->norm, 2);
    expect(&client, ROUTE("POST", "/api/embed"), "{\"input\":\"a\",\"truncate\":false,\"dimensions\":8}", 200,
           "\"embeddings\":[[1,0.5]],\"total_duration\":");
    params = fake_wait_embedding(1);
    assert_int_equal(params->truncate, 0);
    assert_int_equal(params->dimensions, 8);
    expect(&client, ROUTE("POST", "/api/embeddings"), "{\"prompt\":\"a\"}", 200, "{\"embedding\":[1,0.5]}");
    assert_int_equal(fake_wait_embedding(2)->norm, -1);
    expect(&client, ROUTE("POST", "/api/embed"), "{\"model\":\"m\",\"input\":[]}", 200,
           "{\"model\":\"m\",\"embeddings\":[],");
    expect(&client, ROUTE("POST", "/api/embeddings"), "{\"prompt\":\"\"}", 200, "{\"embedding\":[]}");
    expect(&client, ROUTE("POST", "/api/embed"), "{\"input\":{}}", 400, "{\"error\":\"'input' must be");
    expect(&client, ROUTE("POST", "/api/embeddings"), "{\"prompt\":[\"a\"]}", 400, "{\"error\":\"'prompt' must be");
    expect(&client, ROUTE("POST", "/api/embed"), "{\"model\":\"other\",\"input\":\"a\"}", 404,
           "{\"error\":\"there is no model");
    client_close(&client);
}

static void routes_that_would_change_models_files_are_refused_with_advice(void **state)
{
    static const char *routes[][2] = {{"POST", "/api/push"}, {"POST", "/api/blobs/sha256:0"}};
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        expect(&client, routes[i], "{\"model\":\"m\"}", 400, "models.NAME.path");
    struct response response = ask(&client, "HEAD", "/api/blobs/sha256:0", NULL);
    assert_int_equal(response.status, 400);
    response_release(&response);
    expect(&client, ROUTE("GET", "/api/chat"), NULL, 405, "{\"error\":\"");
    expect(&client, ROUTE("POST", "/api/chat"), "[", 400, "{\"error\":\"the body is not valid JSON");
    client_close(&client);
}

/* What is pulled from a source is tested end to end. */
static void pulls_and_removals_are_refused_in_ollamas_form(void **state)
{
    static const struct {
        const char *route[2], *body;
        int status;
        const char *says;
    } rows[] = {
        {{"POST", "/api/pull"}, "{\"model\":\"./m.gguf\",\"stream\":false}", 400, "{\"error\":\"files of this machine"},
        {{"POST", "/api/pull"}, "{\"name\":\"/m.gguf\"}", 400, "{\"error\":\"files of this machine"},
        {{"POST", "/api/pull"}, "{\"model\":\"nobody\"}", 404, "{\"error\":\"nobody is not known"},
        {{"POST", "/api/pull"}, "{\"model\":\"hf:a\",\"insecure\":true}", 400, "{\"error\":\"this names no repository"},
        {{"POST", "/api/pull"}, "{}", 400, "{\"error\":\"'model' is missing"},
        {{"POST", "/api/pull"}, "{\"model\":\"a\",\"stream\":1}", 400, "{\"error\":\"'stream' must be"},
        {{"POST", "/api/pull"}, "{\"model\":\"a\",\"insecure\":\"\"}", 400, "{\"error\":\"'insecure' must be"},
        {{"DELETE", "/api/delete"}, "{\"model\":\"nobody\"}", 404, "{\"error\":\"model 'nobody' not found\"}"},
        {{"DELETE", "/api/delete"}, "{\"model\":\"../a\"}", 404, "{\"error\":\"model '../a' not found\"}"},
        {{"DELETE", "/api/delete"}, "{\"model\":\"demo\"}", 400, "{\"error\":\"model 'demo' is the configuration's"},
        {{"DELETE", "/api/delete"}, "{\"model\":\"\"}", 400, "{\"error\":\"'model' is missing"},
    };
    setenv("HEARTH_NAMES", "/none", 1);
    fake_set("server.models_path", "/none/models");
    fake_set("models.demo.path", "/models/demo.gguf");
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect(&client, (const char **)rows[i].route, rows[i].body, rows[i].status, rows[i].says);
    expect(&client, ROUTE("GET", "/api/pull"), NULL, 405, "{\"error\":\"");
    client_close(&client);
}

static void where_pulled_models_are_not_served_none_comes_or_goes(void **state)
{
    fake_set("server.serve_pulled", "false");
    struct client client = harness_start(*state);
    expect(&client, ROUTE("POST", "/api/pull"), "{\"model\":\"hf:a/b\"}", 400, "server.serve_pulled is false");
    expect(&client, ROUTE("DELETE", "/api/delete"), "{\"model\":\"m\"}", 400, "server.serve_pulled is false");
    client_close(&client);
}

static void its_clients_find_ollama_on_a_listener_of_their_own(void **state)
{
    struct harness *h = *state;
    fake_set("server.ollama", "true");
    fake_set("server.ollama_listen", "127.0.0.1:0");
    harness_listen(h);
    harness_await_ready(h);
    struct client client = client_open(h->port, 0); /* the last address listened on */
    expect(&client, ROUTE("GET", "/"), NULL, 200, "Ollama is running");
    expect(&client, ROUTE("GET", "/v1/models"), NULL, 200, "\"object\":\"list\"");
    client_close(&client);
    assert_int_equal(h->n_listening, 2);
}

static void hearth_is_what_else_is_running(void **state)
{
    struct client client = harness_start(*state);
    expect(&client, ROUTE("GET", "/"), NULL, 200, "hearth is running");
    expect(&client, ROUTE("GET", "/api/version"), NULL, 200, "version");
    client_close(&client);
}

#define SERVED(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_become_those_of_a_chat),
        cmocka_unit_test(options_become_fields_of_a_chat),
        cmocka_unit_test(a_prompt_becomes_a_chat_or_a_completion),
        cmocka_unit_test(what_cannot_be_is_refused_by_the_clients_own_names),
        cmocka_unit_test(a_request_without_a_prompt_loads_or_unloads_the_model),
        cmocka_unit_test(a_request_keeps_what_else_it_asks_for),
        cmocka_unit_test(a_stream_has_a_line_for_each_piece),
        cmocka_unit_test(a_call_is_streamed_when_it_is_complete),
        cmocka_unit_test(a_whole_answer_is_one_object),
        cmocka_unit_test(generated_text_is_a_response),
        cmocka_unit_test(a_quiet_stream_is_kept_alive_with_lines_without_text),
        cmocka_unit_test(a_stream_that_breaks_off_ends_with_an_error),
        SERVED(replies_are_streamed_as_lines_unless_a_client_wants_them_whole),
        SERVED(tokens_have_their_logprobs),
        SERVED(a_model_is_loaded_and_unloaded_without_a_prompt),
        SERVED(models_are_listed_and_shown),
        SERVED(texts_become_vectors),
        SERVED(routes_that_would_change_models_files_are_refused_with_advice),
        SERVED(pulls_and_removals_are_refused_in_ollamas_form),
        SERVED(where_pulled_models_are_not_served_none_comes_or_goes),
        SERVED(its_clients_find_ollama_on_a_listener_of_their_own),
        SERVED(hearth_is_what_else_is_running),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
