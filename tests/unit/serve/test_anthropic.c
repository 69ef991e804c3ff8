/* Anthropic's Messages: conversion of bodies, the exact bytes of answers, and the routes. */
#include "json_trees.h"
#include "serve/anthropic/anthropic.h"

#include "base/error.h"
#include "serve/core/errors.h"

#include "unit/serve/dialect_rig.h"
#include "unit/serve/harness.h"

#define HI         "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
#define WITH(more) "{" HI "," more "}"

static const hearth_result result = {.n_prompt = 10, .cache_n = 8, .prompt_n = 2, .predicted_n = 3};

/* ---- Bodies ---- */

static void messages_become_those_of_a_chat(void **unused)
{
    (void)unused;
    static const char *const rows[][2] = {
        {"{" HI "}", "{" HI ",\"max_tokens\":4096,\"tools\":null,\"enable_thinking\":null}"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Hi\","
         "\"cache_control\":{\"type\":\"ephemeral\"}}]}]}",
         "{" HI "}"},
        {"{\"system\":\"Be brief.\"," HI "}", "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},"
                                              "{\"role\":\"user\",\"content\":\"Hi\"}]}"},
        {"{\"system\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]," HI "}",
         "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
         "{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"user\",\"content\":\"Hi\"}]}"},
        /* As llama-server answers it. */
        {"{\"messages\":[]}", "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}"},
        {"{\"system\":\"Be brief.\",\"messages\":[]}",
         "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"\"}]}"},
        /* A turn of the assistant: reasoning, text, calls. */
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"Hm.\","
         "\"signature\":\"x\"},{\"type\":\"redacted_thinking\",\"data\":\"zz\"},{\"type\":\"text\",\"text\":\"Wait\"},"
         "{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"get\",\"input\":{\"z\":0.1,\"a\":[1]}}]}]}",
         "{\"messages\":[{\"role\":\"assistant\",\"content\":\"Wait\",\"reasoning_content\":\"Hm.\",\"tool_calls\":"
         "[{\"id\":\"t1\",\"type\":\"function\",\"function\":{\"name\":\"get\",\"arguments\":"
         "\"{\\\"z\\\":0.1,\\\"a\\\":[1]}\"}}]}]}"},
        /* Tool results come before the text of the same user message. */
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t1\","
         "\"content\":\"12\"},{\"type\":\"tool_result\",\"tool_use_id\":\"t2\",\"is_error\":true,\"content\":"
         "[{\"type\":\"text\",\"text\":\"none\"}]},{\"type\":\"tool_result\",\"tool_use_id\":\"t3\"},"
         "{\"type\":\"text\",\"text\":\"Well?\"}]}]}",
         "{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":\"t1\",\"content\":\"12\"},"
         "{\"role\":\"tool\",\"tool_call_id\":\"t2\",\"content\":\"none\"},"
         "{\"role\":\"tool\",\"tool_call_id\":\"t3\",\"content\":\"\"},{\"role\":\"user\",\"content\":\"Well?\"}]}"},
        /* A document of text is text, and one of blocks is these; test_uploads.c has the other ones. */
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"document\",\"source\":{\"type\":\"text\","
         "\"media_type\":\"text/plain\",\"data\":\"a\"}},{\"type\":\"document\",\"source\":{\"type\":\"content\","
         "\"content\":[{\"type\":\"text\",\"text\":\"b\"}]}},{\"type\":\"document\",\"source\":{\"type\":"
         "\"content\",\"content\":\"c\"}}]}]}",
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
         "\"text\":\"b\"},{\"type\":\"text\",\"text\":\"c\"}]}]}"},
        /* Consecutive messages of one role become one. */
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"},"
         "{\"role\":\"assistant\",\"content\":\"c\"}]}",
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
         "{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"assistant\",\"content\":\"c\"}]}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_converts(anthropic_chat, rows[i][0], rows[i][1]);
}

#define HOSTED "\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}"

static void fields_become_those_of_a_chat(void **unused)
{
    (void)unused;
    static const char *const rows[][2] = {
        {WITH("\"max_tokens\":7,\"stop_sequences\":[\"x\"],\"temperature\":0.5,\"top_k\":3,\"min_p\":0.1"),
         "{\"max_tokens\":7,\"stop\":[\"x\"],\"temperature\":0.5,\"top_k\":3,\"min_p\":0.1}"},
        {WITH("\"n\":3,\"stop\":\"y\",\"logprobs\":true,\"response_format\":{},\"tool_choice\":null"),
         "{\"n\":null,\"stop\":null,\"logprobs\":null,\"response_format\":null,\"tool_choice\":null}"},
        {WITH("\"tools\":[{\"name\":\"a\",\"description\":\"b\",\"input_schema\":{\"type\":\"object\"},"
              "\"cache_control\":{}},{\"type\":\"custom\",\"name\":\"c\",\"input_schema\":{},\"strict\":true}]"),
         "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"description\":\"b\",\"parameters\":"
         "{\"type\":\"object\"}}},{\"type\":\"function\",\"function\":{\"name\":\"c\",\"parameters\":{},"
         "\"strict\":true}}]}"},
        /* Tools that Anthropic's servers run are left out. */
        {WITH("\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"},{\"name\":\"a\","
              "\"input_schema\":{}}]"),
         "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":{}}}]}"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"server_tool_use\"},{\"type\":"
         "\"web_search_tool_result\"},{\"type\":\"text\",\"text\":\"a\"}]}]}",
         "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"}]}"},
        {WITH("\"tool_choice\":{\"type\":\"auto\"}"), "{\"tool_choice\":\"auto\",\"parallel_tool_calls\":null}"},
        {WITH("\"tool_choice\":{\"type\":\"any\",\"disable_parallel_tool_use\":true}"),
         "{\"tool_choice\":\"required\",\"parallel_tool_calls\":false}"},
        {WITH("\"tool_choice\":{\"type\":\"none\"}"), "{\"tool_choice\":\"none\"}"},
        {WITH("\"tool_choice\":{\"type\":\"tool\",\"name\":\"a\"}"),
         "{\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"a\"}}}"},
        /* A choice of one that was left out is none. */
        {WITH(HOSTED "],\"tool_choice\":{\"type\":\"tool\",\"name\":\"web_search\"}"),
         "{\"tools\":null,\"tool_choice\":null}"},
        {WITH(HOSTED "],\"tool_choice\":{\"type\":\"any\"}"), "{\"tools\":null,\"tool_choice\":null}"},
        {WITH(HOSTED ",{\"name\":\"a\",\"input_schema\":{}}],\"tool_choice\":{\"type\":\"tool\",\"name\":"
                     "\"web_search\"}"),
         "{\"tool_choice\":null}"},
        {WITH(HOSTED ",{\"name\":\"a\",\"input_schema\":{}}],\"tool_choice\":{\"type\":\"any\"}"),
         "{\"tool_choice\":\"required\"}"},
        {WITH("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":2000}"),
         "{\"enable_thinking\":true,\"thinking_budget_tokens\":2000}"},
        {WITH("\"thinking\":{\"type\":\"adaptive\"}"), "{\"enable_thinking\":true,\"thinking_budget_tokens\":null}"},
        {WITH("\"thinking\":{\"type\":\"disabled\"}"), "{\"enable_thinking\":false}"},
        {WITH("\"output_config\":{\"effort\":\"low\",\"format\":{\"type\":\"json_schema\",\"schema\":{\"a\":1}}}"),
         "{\"reasoning_effort\":\"low\",\"json_schema\":{\"a\":1}}"},
        {WITH("\"metadata\":{\"user_id\":\"u\"},\"service_tier\":\"auto\",\"container\":null,\"mcp_servers\":[]"),
         "{}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_converts(anthropic_chat, rows[i][0], rows[i][1]);
}

/* A block in a turn that is over, and what becomes of it in the chat; NULL: it is left out. */
#define CALL(name, arguments)                                                                                          \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"t\",\"type\":\"function\",\"function\":{"      \
    "\"name\":\"" name "\",\"arguments\":\"" arguments "\"}}]}"
#define RESULT(text)        "{\"role\":\"tool\",\"tool_call_id\":\"t\",\"content\":\"" text "\"}"
#define SAID(text)          "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define GAVE(type, content) "{\"type\":\"" type "_tool_result\",\"tool_use_id\":\"t\",\"content\":" content "}"

static void history_is_not_judged(void **unused)
{
    (void)unused;
    static const char *const rows[][2] = {
        /* Calls of tools that Anthropic's servers ran, and what these gave. */
        {"{\"type\":\"server_tool_use\",\"id\":\"t\",\"name\":\"web_search\",\"input\":{\"query\":\"q\"}}",
         CALL("web_search", "{\\\"query\\\":\\\"q\\\"}")},
        {"{\"type\":\"mcp_tool_use\",\"id\":\"t\",\"name\":\"get\",\"server_name\":\"s\",\"input\":{}}",
         CALL("get", "{}")},
        {"{\"type\":\"thought_tool_use\",\"id\":\"t\",\"name\":\"get\"}", CALL("get", "{}")},
        {"{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"get\",\"input\":\"{'a'\"}", CALL("get", "{'a'")},
        {"{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"get\",\"input\":null}", CALL("get", "{}")},
        {GAVE("web_search",
              "[{\"type\":\"web_search_result\",\"url\":\"u\",\"title\":\"v\",\"encrypted_content\":\"x\"},"
              "{\"type\":\"web_search_result\",\"url\":\"w\",\"title\":\"\"}]"),
         "{\"role\":\"tool\",\"tool_call_id\":\"t\",\"content\":[{\"type\":\"text\",\"text\":\"v\\nu\"},{\"type\":"
         "\"text\","
         "\"text\":\"w\"}]}"},
        {GAVE("web_search", "{\"type\":\"web_search_tool_result_error\",\"error_code\":\"max_uses_exceeded\"}"),
         RESULT("max_uses_exceeded")},
        {GAVE("web_fetch",
              "{\"type\":\"web_fetch_result\",\"url\":\"u\",\"content\":{\"type\":\"document\",\"title\":\"v\","
              "\"source\":{\"type\":\"text\",\"media_type\":\"text/plain\",\"data\":\"w\"}}}"),
         RESULT("u\\nv\\nw")},
        {GAVE("code_execution",
              "{\"type\":\"code_execution_result\",\"stdout\":\"1\\n2\",\"stderr\":\"bad\",\"return_code\":3,"
              "\"content\":[]}"),
         RESULT("1\\n2\\nbad\\nreturn_code: 3")},
        {GAVE("text_editor_code_execution",
              "{\"type\":\"text_editor_code_execution_str_replace_result\",\"lines\":[\"-a\",\"+b\"],\"old_start\":1}"),
         RESULT("-a\\n+b")},
        {GAVE("tool_search", "{\"type\":\"tool_search_tool_search_result\",\"tool_references\":[{\"type\":"
                             "\"tool_reference\",\"tool_name\":\"act\"}]}"),
         RESULT("act")},
        {GAVE("mcp", "\"a\""), RESULT("a")},
        {GAVE("mcp", "null"), RESULT("")},
        {GAVE("mcp", "[{\"type\":\"text\",\"text\":\"a\"}]"), RESULT("a")},
        {GAVE("advisor", "{\"type\":\"advisor_result\",\"text\":\"a\"}"), RESULT("a")},
        {"{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":[{\"type\":\"tool_reference\",\"tool_name\":"
         "\"act\"},{\"type\":\"search_result\",\"source\":\"s\",\"title\":\"u\",\"content\":[{\"type\":\"text\","
         "\"text\":"
         "\"v\"}]}]}",
         "{\"role\":\"tool\",\"tool_call_id\":\"t\",\"content\":[{\"type\":\"text\",\"text\":\"act\"},{\"type\":"
         "\"text\","
         "\"text\":\"u\\ns\\nv\"}]}"},
        /* Text under other names. */
        {"{\"type\":\"compaction\",\"content\":\"so far\",\"encrypted_content\":\"x\"}", SAID("so far")},
        {"{\"type\":\"search_result\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":"
         "\"b\"}],"
         "\"source\":\"s\",\"title\":\"t\"}",
         SAID("t\\ns\\na\\nb")},
        {"{\"type\":\"song\",\"text\":\"la\"}", SAID("la")},
        /* Nothing that could be shown. */
        {"{\"type\":\"redacted_thinking\",\"data\":\"x\"}", NULL},
        {"{\"type\":\"compaction\",\"content\":null}", NULL},
        {"{\"type\":\"container_upload\",\"file_id\":\"f\"}", NULL},
        {"{\"type\":\"server_tool_use\",\"id\":\"t\"}", NULL},
        {"{\"type\":\"image\",\"source\":{\"type\":\"file\",\"file_id\":\"f\"}}", NULL},
        {"{\"type\":\"made_up\",\"name\":\"x\"}", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf body = {0}, expected = {0};
        const char *became = rows[i][1];
        buf_printf(&body,
                   "{\"messages\":[{\"role\":\"assistant\",\"content\":[%s]},{\"role\":\"user\",\"content\":\"?\"}]}",
                   rows[i][0]);
        buf_printf(&expected, "{\"messages\":[%s%s{\"role\":\"user\",\"content\":\"?\"}]}",
                   became == NULL ? "" : became, became == NULL ? "" : ",");
        assert_converts_but(anthropic_chat, body.v, expected.v, became == NULL ? "messages[0].content[0]" : "");
        buf_release(&body);
        buf_release(&expected);
    }
}

static void a_call_is_left_out_with_its_result(void **unused)
{
    (void)unused;
#define TURNS(call, result)                                                                                            \
    "{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}," call                     \
    "]},{\"role\":\"user\",\"content\":[" result ",{\"type\":\"text\",\"text\":\"?\"}]}]}"
    static const char without[] = "{\"messages\":[" SAID("a") ",{\"role\":\"user\",\"content\":\"?\"}]}";
    assert_converts_but(anthropic_chat, TURNS("{\"type\":\"wish\",\"id\":\"t\"}", GAVE("mcp", "\"b\"")), without,
                        "messages[0].content[1], messages[1].content[0]");
    assert_converts_but(
        anthropic_chat,
        TURNS("{\"type\":\"mcp_tool_use\",\"id\":\"t\"}", "{\"type\":\"tool_result\",\"tool_use_id\":\"t\"}"), without,
        "messages[0].content[1], messages[1].content[0]");
    assert_converts_but(anthropic_chat,
                        "{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
                        "{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"get\",\"input\":{}},{\"type\":\"gift\","
                        "\"tool_use_id\":\"t\"}]},{\"role\":\"user\",\"content\":\"?\"}]}",
                        without, "messages[0].content[1], messages[0].content[2]");
    /* What a tool gave is not what the user asks, also in the last turn. */
    assert_converts_but(
        anthropic_chat,
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t\","
        "\"content\":[{\"type\":\"smell\"}]}]}]}",
        "{\"messages\":[" RESULT("") "]}", "messages[0].content[0].content[0]");
#undef TURNS
}

static void a_billing_header_is_left_out(void **unused)
{
    (void)unused;
#define SYSTEM(text) "{\"system\":" text "," HI "}"
#define SAYS(text)   "{\"messages\":[{\"role\":\"system\",\"content\":" text "},{\"role\":\"user\",\"content\":\"Hi\"}]}"
#define PART(text)   "{\"type\":\"text\",\"text\":\"" text "\"}"
#define SAME(text)   SYSTEM(text), SAYS(text)
#define HEADER       "x-anthropic-billing-header: cc_version=2.1.197.7a9; cc_entrypoint=sdk-cli;"
    static const char *const rows[][2] = {
        {SYSTEM("[" PART(HEADER) "," PART("You are") "]"), SAYS("\"You are\"")},
        {SYSTEM("[" PART(HEADER " cch=a5145;") "," PART("You are") "]"), SAYS("\"You are\"")},
        {SYSTEM("[" PART(HEADER "\\n") "]"), "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}"},
        {SYSTEM("\"" HEADER "\\nYou are\""), SAYS("\"You are\"")},
        {SYSTEM("\"" HEADER " cch=a5145;You = are;\""), SAYS("\"You = are;\"")},
        {SYSTEM("\"x-anthropic-billing-header: cch=a514\""), "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}"},
        /* Nothing else is touched. */
        {SAME("\"You know: " HEADER "\"")},
        {SAME("\" " HEADER "\"")},
        {SAME("\"x-anthropic-billing: cc=a5145;\"")},
        {SAME("\"\"")},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_converts(anthropic_chat, rows[i][0], rows[i][1]);
}

static void what_cannot_be_is_refused_by_the_clients_own_names(void **unused)
{
    (void)unused;
#define BLOCK(block) "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}," block "]}]}"
    static const struct rig_refusal rows[] = {
        {"{}", HEARTH_INVALID, "messages"},
        {"{\"messages\":{}}", HEARTH_INVALID, "messages"},
        {"{\"messages\":[{\"role\":\"tool\",\"content\":\"a\"}]}", HEARTH_INVALID, "messages[0].role"},
        {"{\"messages\":[{\"role\":\"user\"}]}", HEARTH_INVALID, "messages[0].content"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":5}]}", HEARTH_INVALID, "messages[0].content"},
        {BLOCK("{\"type\":\"text\"}"), HEARTH_INVALID, "messages[0].content[1].text"},
        {BLOCK("{\"text\":\"a\"}"), HEARTH_INVALID, "messages[0].content[1].type"},
        {BLOCK("{\"type\":\"smell\"}"), HEARTH_UNSUPPORTED, "messages[0].content[1].type"},
        {BLOCK("{\"type\":\"thinking\"}"), HEARTH_INVALID, "messages[0].content[1].thinking"},
        {BLOCK("{\"type\":\"tool_use\"}"), HEARTH_INVALID, "messages[0].content[1].id"},
        {BLOCK("{\"type\":\"tool_use\",\"id\":\"a\"}"), HEARTH_INVALID, "messages[0].content[1].name"},
        {BLOCK("{\"type\":\"tool_result\"}"), HEARTH_INVALID, "messages[0].content[1].tool_use_id"},
        {BLOCK("{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"content\":5}"), HEARTH_INVALID,
         "messages[0].content[1].content"},
        {WITH("\"system\":5"), HEARTH_INVALID, "system"},
        {WITH("\"system\":[{\"type\":\"smell\"}]"), HEARTH_UNSUPPORTED, "system[0].type"},
        {WITH("\"max_tokens\":0"), HEARTH_INVALID, "max_tokens"},
        {WITH("\"stop_sequences\":\"a\""), HEARTH_INVALID, "stop_sequences"},
        {WITH("\"stop_sequences\":[\"\"]"), HEARTH_INVALID, "stop_sequences"},
        {WITH("\"tools\":{}"), HEARTH_INVALID, "tools"},
        {WITH("\"tools\":[{\"type\":5}]"), HEARTH_INVALID, "tools[0].type"},
        {WITH("\"tools\":[{\"input_schema\":{}}]"), HEARTH_INVALID, "tools[0].name"},
        {WITH("\"tools\":[{\"name\":\"a\"}]"), HEARTH_INVALID, "tools[0].input_schema"},
        {WITH("\"tool_choice\":{\"type\":\"some\"}"), HEARTH_INVALID, "tool_choice.type"},
        {WITH("\"tool_choice\":\"auto\""), HEARTH_INVALID, "tool_choice.type"},
        {WITH("\"tool_choice\":{\"type\":\"tool\"}"), HEARTH_INVALID, "tool_choice.name"},
        {WITH("\"thinking\":{\"type\":\"much\"}"), HEARTH_INVALID, "thinking.type"},
        {WITH("\"thinking\":{\"type\":\"enabled\"}"), HEARTH_INVALID, "thinking.budget_tokens"},
        {WITH("\"output_config\":{\"effort\":5}"), HEARTH_INVALID, "output_config.effort"},
        {WITH("\"output_config\":{\"format\":{\"type\":\"xml\"}}"), HEARTH_UNSUPPORTED, "output_config.format.type"},
        {WITH("\"output_config\":{\"format\":{\"type\":\"json_schema\"}}"), HEARTH_INVALID,
         "output_config.format.schema"},
        {WITH("\"container\":\"c\""), HEARTH_UNSUPPORTED, "container"},
        {WITH("\"mcp_servers\":[{}]"), HEARTH_UNSUPPORTED, "mcp_servers"},
    };
    assert_refused(anthropic_chat, rows, sizeof rows / sizeof *rows);
}

/* ---- Answers ---- */

#define HEAD "{\"id\":\"msg_abc\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"demo\",\"content\":["
#define USAGE(n)                                                                                                       \
    "\"usage\":{\"input_tokens\":2,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":8,"                   \
    "\"output_tokens\":" n "}"
#define EVENT(name, members) "event: " name "\ndata: {\"type\":\"" name "\"" members "}\n\n"

static struct rig open_rig(void)
{
    return (struct rig){.dialect = &anthropic_dialect, .state = anthropic_state("abc", "demo")};
}

static void tokens_of_the_prompt_are_cached_created_or_the_rest(void **unused)
{
    (void)unused;
    static const struct {
        hearth_result result;
        const char *says;
    } rows[] = {
        {{.n_prompt = 10, .cache_n = 3, .prompt_n = 7, .kept_n = 9},
         "\"input_tokens\":1,\"cache_creation_input_tokens\":6,\"cache_read_input_tokens\":3,"},
        {{.n_prompt = 10, .cache_n = 3, .kept_n = 5}, /* more is still to be computed */
         "\"input_tokens\":5,\"cache_creation_input_tokens\":2,\"cache_read_input_tokens\":3,"},
        {{.n_prompt = 10, .cache_n = 9, .prompt_n = 1, .kept_n = 0}, /* of media, or shorter than what is kept now */
         "\"input_tokens\":1,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":9,"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig rig = open_rig();
        anthropic_dialect.started(rig.state, 0, &rows[i].result, &rig.out);
        if (strstr(rig.out.v, rows[i].says) == NULL) fail_msg("%zu: %s", i, rig.out.v);
        anthropic_dialect.release(rig.state);
        buf_release(&rig.out);
    }
}

static void a_stream_begins_with_an_empty_message(void **unused)
{
    (void)unused;
    struct rig rig = open_rig();
    hearth_result started = {.n_prompt = 10, .cache_n = 8, .kept_n = 8};
    anthropic_dialect.started(rig.state, 0, &started, &rig.out);
    rig_expect(&rig, EVENT("message_start",
                           ",\"message\":" HEAD "],\"stop_reason\":null,\"stop_sequence\":null," USAGE("0") "}"));
    rig_expect(&rig, EVENT("ping", ""));
    rig_close(&rig);
}

#define MESSAGE_DELTA(reason)                                                                                          \
    EVENT("message_delta", ",\"delta\":{\"stop_reason\":\"" reason "\",\"stop_sequence\":null}," USAGE("3"))
#define DELTA(index, delta) EVENT("content_block_delta", ",\"index\":" index ",\"delta\":{" delta "}")
#define START(index, block) EVENT("content_block_start", ",\"index\":" index ",\"content_block\":{" block "}")
#define STOP(index)         EVENT("content_block_stop", ",\"index\":" index)

static void a_stream_has_a_block_for_each_kind_of_piece(void **unused)
{
    (void)unused;
    struct rig rig = open_rig();
    rig_reasoning(&rig, "Hm");
    rig_expect(&rig, START("0", "\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\""));
    rig_expect(&rig, DELTA("0", "\"type\":\"thinking_delta\",\"thinking\":\"Hm\""));
    rig_reasoning(&rig, "m\n");
    rig_expect(&rig, DELTA("0", "\"type\":\"thinking_delta\",\"thinking\":\"m\\n\""));
    rig_content(&rig, "");
    rig_content(&rig, "Yes");
    rig_expect(&rig, DELTA("0", "\"type\":\"signature_delta\",\"signature\":\"\""));
    rig_expect(&rig, STOP("0"));
    rig_expect(&rig, START("1", "\"type\":\"text\",\"text\":\"\""));
    rig_expect(&rig, DELTA("1", "\"type\":\"text_delta\",\"text\":\"Yes\""));
    rig_call(&rig, "get", "{\"a\":1}");
    rig_expect(&rig, STOP("1"));
    rig_expect(&rig, START("2", "\"type\":\"tool_use\",\"id\":\"call_1\",\"name\":\"get\",\"input\":{}"));
    rig_expect(&rig, DELTA("2", "\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\":1}\""));
    rig_call(&rig, "put", "");
    rig_expect(&rig, STOP("2"));
    rig_expect(&rig, START("3", "\"type\":\"tool_use\",\"id\":\"call_1\",\"name\":\"put\",\"input\":{}"));
    rig_end(&rig, result);
    rig_expect(&rig, STOP("3"));
    rig_expect(&rig, MESSAGE_DELTA("tool_use"));
    rig_expect(&rig, EVENT("message_stop", ""));
    rig_close(&rig);
}

static void an_empty_stream_has_no_block(void **unused)
{
    (void)unused;
    struct rig rig = open_rig();
    rig_end(&rig, result);
    rig_expect(&rig, MESSAGE_DELTA("end_turn"));
    rig_expect(&rig, EVENT("message_stop", ""));
    rig_close(&rig);
}

static void a_stream_that_breaks_off_ends_with_an_error(void **unused)
{
    (void)unused;
    struct rig rig = open_rig();
    hearth_error error = {.code = HEARTH_INTERNAL, .message = "decode \"failed\""};
    anthropic_dialect.broken(rig.state, &error, &rig.out);
    rig_expect(&rig, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":"
                     "\"decode \\\"failed\\\"\"}}\n\n");
    rig_close(&rig);
}

static void a_whole_answer_is_a_message_of_blocks(void **unused)
{
    (void)unused;
    struct rig rig = open_rig();
    rig_reasoning(&rig, "Hm");
    rig_content(&rig, "Yes");
    rig_call(&rig, "get", "{\"a\":[1]}");
    rig_call(&rig, "cut", "{\"a\":[");
    rig_call(&rig, "list", "[1]");
    rig_call(&rig, "none", "");
    rig_skip(&rig);
    rig.answer.result = result;
    anthropic_dialect.whole(rig.state, &rig.answer, 1, &rig.out);
    rig_expect(&rig, HEAD "{\"type\":\"thinking\",\"thinking\":\"Hm\",\"signature\":\"\"},"
                          "{\"type\":\"text\",\"text\":\"Yes\"},"
                          "{\"type\":\"tool_use\",\"id\":\"call_1\",\"name\":\"get\",\"input\":{\"a\":[1]}},"
                          "{\"type\":\"tool_use\",\"id\":\"call_1\",\"name\":\"cut\",\"input\":{}},"
                          "{\"type\":\"tool_use\",\"id\":\"call_1\",\"name\":\"list\",\"input\":{}},"
                          "{\"type\":\"tool_use\",\"id\":\"call_1\",\"name\":\"none\",\"input\":{}}],"
                          "\"stop_reason\":\"tool_use\",\"stop_sequence\":null," USAGE("3") "}");
    rig_close(&rig);
}

static void the_stop_reason_is_in_the_answer(void **unused)
{
    (void)unused;
    static const struct {
        hearth_finish finish;
        const char *stop_string;
        bool calls;
        const char *expected;
    } rows[] = {
        {HEARTH_FINISH_STOP, NULL, false, "\"stop_reason\":\"end_turn\",\"stop_sequence\":null"},
        {HEARTH_FINISH_STOP, NULL, true, "\"stop_reason\":\"tool_use\",\"stop_sequence\":null"},
        {HEARTH_FINISH_STOP, "\"x", false, "\"stop_reason\":\"stop_sequence\",\"stop_sequence\":\"\\\"x\""},
        {HEARTH_FINISH_STOP, "x", true, "\"stop_reason\":\"stop_sequence\",\"stop_sequence\":\"x\""},
        {HEARTH_FINISH_LENGTH, NULL, false, "\"stop_reason\":\"max_tokens\",\"stop_sequence\":null"},
        {HEARTH_FINISH_LENGTH, NULL, true, "\"stop_reason\":\"max_tokens\",\"stop_sequence\":null"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig rig = open_rig();
        if (rows[i].calls) rig_call(&rig, "get", "{}");
        rig_skip(&rig);
        rig.answer.result = (hearth_result){.finish = rows[i].finish, .stop_string = rows[i].stop_string};
        anthropic_dialect.whole(rig.state, &rig.answer, 1, &rig.out);
        assert_contains(rig.out.v, rows[i].expected);
        rig_skip(&rig);
        rig_close(&rig);
    }
}

static void errors_have_anthropics_types(void **unused)
{
    (void)unused;
    static const struct {
        int code;
        const char *type;
    } rows[] = {{HEARTH_INVALID, "invalid_request_error"},
                {HEARTH_TOO_LONG, "invalid_request_error"},
                {HEARTH_NOT_FOUND, "not_found_error"},
                {HEARTH_BUSY, "rate_limit_error"},
                {HEARTH_UNAVAILABLE, "overloaded_error"},
                {HEARTH_UNSUPPORTED, "invalid_request_error"},
                {ERRORS_NO_KEY, "authentication_error"},
                {ERRORS_NO_GRANT, "permission_error"},
                {ERRORS_TOO_LARGE, "request_too_large"},
                {HEARTH_INTERNAL, "api_error"},
                {HEARTH_NO_MEMORY, "api_error"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf out = {0}, expected = {0};
        hearth_error error = {.code = (hearth_code)rows[i].code, .message = "it is so"};
        buf_printf(&expected,
                   "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"it is so\"},\"request_id\":\"req-1\"}",
                   rows[i].type);
        anthropic_put_error(&out, &error, "req-1");
        assert_string_equal(out.v, expected.v);
        buf_release(&out);
        buf_release(&expected);
    }
}

/* Claude Code reads both numbers. */
static void a_prompt_that_is_too_long_is_told_in_anthropics_words(void **unused)
{
    (void)unused;
    struct buf out = {0};
    hearth_error error = {.code = HEARTH_TOO_LONG, .message = "so it is", .n_prompt = 66012, .window = 65536};
    anthropic_put_error(&out, &error, "req-1");
    assert_contains(out.v, "\"message\":\"prompt is too long: 66012 tokens > 65536 maximum: so it is\"");
    buf_release(&out);
}

static void errors_of_tools_name_the_clients_fields(void **unused)
{
    (void)unused;
    static const char *const rows[][3] = {
        {"tools[12].function.parameters.properties", "'tools[12].function.parameters.properties' is bad",
         "'tools[12].input_schema.properties' is bad"},
        {"tools[0].function.name", "'tools[0].function.name' is bad", "'tools[0].name' is bad"},
        {"json_schema", "'json_schema' is bad", "'output_config.format.schema' is bad"},
        {"messages[1].content", "'messages[1].content' is bad", "'messages[1].content' is bad"},
        {"stopping", "'stopping' is bad", "'stopping' is bad"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf out = {0};
        hearth_error error;
        error_at(&error, HEARTH_INVALID, rows[i][0], "%s", rows[i][1]);
        anthropic_put_error(&out, &error, "req-1");
        assert_contains(out.v, rows[i][2]);
        buf_release(&out);
    }
}

/* ---- Routes ---- */

static void a_request_reaches_the_library_and_is_answered(void **state)
{
    static const char *const texts[] = {"~rHm", "Hello", "~cget", "~a{\"a\":1}"};
    static const struct fake_script script = {.texts = texts, .n_texts = 4, .result = {.cache_n = 8, .prompt_n = 2}};
    struct client client = harness_start(*state);
    fake_play(&script);
    client_send(&client, "POST", "/v1/messages", "anthropic-version: 2023-06-01\r\nanthropic-beta: a,b\r\n",
                WITH("\"model\":\"demo\",\"max_tokens\":5,\"stop_sequences\":[\"END\"],\"thinking\":{\"type\":"
                     "\"enabled\",\"budget_tokens\":9}"));
    struct response response = client_read(&client, true);
    assert_int_equal(response.status, 200);
    assert_memory_equal(response_header(&response, "request-id"), "req-", 4);
    assert_contains(response.body.v, "\"content\":[{\"type\":\"thinking\",\"thinking\":\"Hm\",\"signature\":\"\"},"
                                     "{\"type\":\"text\",\"text\":\"Hello\"},{\"type\":\"tool_use\",\"id\":\"call_0\","
                                     "\"name\":\"get\",\"input\":{\"a\":1}}],\"stop_reason\":\"tool_use\"");
    const hearth_params *params = fake_wait(0);
    assert_int_equal(params->max_tokens, 5);
    assert_int_equal(params->thinking_tokens, 9);
    assert_string_equal(params->stop[0], "END");
    assert_string_equal(text_of_json(params->template_kwargs), "{\"enable_thinking\":true}");
    response_release(&response);
    client_close(&client);
}

static void a_quiet_stream_is_kept_alive_with_pings(void **state)
{
    struct harness *h = *state;
    h->limits.ping_ms = 20;
    struct client client = harness_start(h);
    client_send(&client, "POST", "/v1/messages", "", WITH("\"stream\":true"));
    fake_wait(0);
    fake_started(0);
    client_await(&client, EVENT("ping", "") "\r\n");
    client_await(&client, "\r\n" EVENT("ping", "") "\r\n");
    fake_done(0, &result);
    struct response response = client_read(&client, true);
    assert_contains(response.body.v, EVENT("message_stop", ""));
    response_release(&response);
    client_close(&client);
}

static void tokens_are_counted_and_not_computed(void **state)
{
    static const char *const texts[] = {"a", "b", "c"};
    static const struct fake_script script = {.texts = texts, .n_texts = 3};
    struct client client = harness_start(*state);
    fake_play(&script);
    struct response response = ask(&client, "POST", "/v1/messages/count_tokens", "{\"model\":\"demo\"," HI "}");
    assert_int_equal(response.status, 200);
    assert_string_equal(response.body.v, "{\"input_tokens\":3}");
    assert_true(fake_wait(0)->only_prompt);
    response_release(&response);
    client_close(&client);
}

static void errors_come_in_anthropics_form_wherever_they_are_found(void **state)
{
    static const struct {
        const char *method, *path, *body;
        int status;
        const char *type;
    } rows[] = {
        {"POST", "/v1/messages", "not json", 400, "invalid_request_error"},
        {"POST", "/v1/messages", "{}", 400, "invalid_request_error"},
        {"POST", "/v1/messages", WITH("\"temperature\":\"hot\""), 400, "invalid_request_error"},
        {"POST", "/v1/messages", WITH("\"model\":\"other\""), 404, "not_found_error"},
        {"POST", "/v1/messages/count_tokens", WITH("\"model\":\"other\""), 404, "not_found_error"},
        {"POST", "/v1/messages", WITH("\"container\":\"c\""), 400, "invalid_request_error"},
        {"GET", "/v1/messages", NULL, 405, "invalid_request_error"},
        {"GET", "/v1/messages/count_tokens", NULL, 405, "invalid_request_error"},
    };
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct response response = ask(&client, rows[i].method, rows[i].path, rows[i].body);
        assert_int_equal(response.status, rows[i].status);
        assert_contains(response.body.v, "{\"type\":\"error\",\"error\":{\"type\":\"");
        assert_contains(response.body.v, rows[i].type);
        response_release(&response);
    }
    assert_int_equal(fake_submitted(), 0);
    client_close(&client);
}

static void a_request_while_the_models_load_is_overloaded(void **state)
{
    struct harness *h = *state;
    fake_hold_load(true);
    harness_listen(h);
    struct client client = client_open(h->port, 0);
    struct response response = ask(&client, "POST", "/v1/messages", "{" HI "}");
    assert_int_equal(response.status, 503);
    assert_contains(response.body.v, "\"type\":\"overloaded_error\"");
    response_release(&response);
    client_close(&client);
    fake_hold_load(false);
    harness_await_ready(h);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_become_those_of_a_chat),
        cmocka_unit_test(fields_become_those_of_a_chat),
        cmocka_unit_test(history_is_not_judged),
        cmocka_unit_test(a_call_is_left_out_with_its_result),
        cmocka_unit_test(a_billing_header_is_left_out),
        cmocka_unit_test(what_cannot_be_is_refused_by_the_clients_own_names),
        cmocka_unit_test(tokens_of_the_prompt_are_cached_created_or_the_rest),
        cmocka_unit_test(a_stream_begins_with_an_empty_message),
        cmocka_unit_test(a_stream_has_a_block_for_each_kind_of_piece),
        cmocka_unit_test(an_empty_stream_has_no_block),
        cmocka_unit_test(a_stream_that_breaks_off_ends_with_an_error),
        cmocka_unit_test(a_whole_answer_is_a_message_of_blocks),
        cmocka_unit_test(the_stop_reason_is_in_the_answer),
        cmocka_unit_test(errors_have_anthropics_types),
        cmocka_unit_test(a_prompt_that_is_too_long_is_told_in_anthropics_words),
        cmocka_unit_test(errors_of_tools_name_the_clients_fields),
        ROW(a_request_reaches_the_library_and_is_answered),
        ROW(a_quiet_stream_is_kept_alive_with_pings),
        ROW(tokens_are_counted_and_not_computed),
        ROW(errors_come_in_anthropics_form_wherever_they_are_found),
        ROW(a_request_while_the_models_load_is_overloaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
