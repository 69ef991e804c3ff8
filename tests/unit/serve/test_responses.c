/* OpenAI's Responses: conversion of bodies, the exact bytes of answers, and the routes. */
#include "json_trees.h"
#include "serve/responses/responses.h"

#include "base/error.h"

#include "unit/serve/dialect_rig.h"
#include "unit/serve/harness.h"

#define WITH(more) "{\"input\":\"Hi\"," more "}"

static const hearth_result result = {.cache_n = 8, .prompt_n = 2, .predicted_n = 5};

/* ---- Bodies ---- */

static void input_becomes_the_messages_of_a_chat(void **unused)
{
    (void)unused;
#define CHAT(messages) "{\"continue_final_message\":false,\"messages\":[" messages "]}"
#define USER(text)     "{\"role\":\"user\",\"content\":\"" text "\"}"
    static const char *const rows[][2] = {
        {"{\"input\":\"Hi\"}", CHAT(USER("Hi"))},
        {"{\"input\":[{\"role\":\"user\",\"content\":\"Hi\"}]}", CHAT(USER("Hi"))},
        /* Instructions and developer messages become one system prompt; user messages stay separate. */
        {"{\"instructions\":\"a\",\"input\":[{\"role\":\"developer\",\"content\":\"b\"},"
         "{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"c\"}]}," USER(
             "d") "]}",
         CHAT("{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
              "{\"type\":\"text\",\"text\":\"b\"}]}," USER("c") "," USER("d"))},
        /* The items of one turn become one message, which a tool's result ends. */
        {"{\"input\":[" USER("c") ",{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[],\"content\":["
                                  "{\"type\":\"reasoning_text\",\"text\":\"Hm.\"}],\"encrypted_content\":\"zz\"},"
                                  "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
                                  "\"text\":\"Wait\",\"annotations\":[]}]},{\"type\":\"function_call\",\"call_id\":"
                                  "\"c1\",\"name\":\"get\",\"arguments\":\"{}\"},{\"type\":\"function_call\","
                                  "\"call_id\":\"c2\",\"name\":\"put\",\"arguments\":\"{}\"},{\"type\":"
                                  "\"function_call_output\",\"call_id\":\"c1\",\"output\":\"12\"},{\"type\":"
                                  "\"function_call_output\",\"call_id\":\"c2\",\"output\":[{\"type\":\"input_text\","
                                  "\"text\":\"ok\"}]},{\"type\":\"message\",\"role\":\"assistant\",\"content\":"
                                  "[{\"type\":\"refusal\",\"refusal\":\"No.\"}]}]}",
         CHAT(USER("c") ",{\"role\":\"assistant\",\"content\":\"Wait\",\"reasoning_content\":\"Hm.\",\"tool_calls\":["
                        "{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"get\",\"arguments\":\"{}\"}},"
                        "{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"put\",\"arguments\":\"{}\"}}]},"
                        "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"12\"},"
                        "{\"role\":\"tool\",\"tool_call_id\":\"c2\",\"content\":\"ok\"},"
                        "{\"role\":\"assistant\",\"content\":\"No.\"}")},
        /* Calls of custom and namespaced tools, and items of tools that OpenAI's servers ran. */
        {"{\"input\":[" USER(
             "c") ",{\"type\":\"web_search_call\",\"status\":\"completed\"},{\"type\":\"function_call\","
                  "\"call_id\":\"c1\",\"namespace\":\"agents\",\"name\":\"spawn\",\"arguments\":"
                  "\"{}\"},{\"type\":\"custom_tool_call\",\"call_id\":\"c2\",\"name\":\"patch\","
                  "\"input\":\"a \\\"b\\\"\"},{\"type\":\"custom_tool_call_output\",\"call_id\":\"c2\","
                  "\"output\":\"ok\"}]}",
         CHAT(
             USER("c") ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":["
                       "{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"agents__spawn\",\"arguments\":"
                       "\"{}\"}},{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"patch\",\"arguments\":"
                       "\"{\\\"input\\\":\\\"a \\\\\\\"b\\\\\\\"\\\"}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c2\","
                       "\"content\":\"ok\"}")},
        /* The summary is used if the reasoning itself is missing. */
        {"{\"input\":[{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"Hm.\"}]},"
         "{\"role\":\"assistant\",\"content\":\"a\"}]}",
         CHAT("{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"Hm.\"}")},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_converts(responses_chat, rows[i][0], rows[i][1]);
}

/* Tools of a coding agent: a function, one in a namespace, a custom tool, and one that OpenAI's servers run. */
#define AGENT_TOOLS                                                                                                    \
    "{\"type\":\"function\",\"name\":\"run\",\"parameters\":{\"x\":1}},{\"type\":\"namespace\",\"name\":\"agents\","   \
    "\"description\":\"d\",\"tools\":[{\"type\":\"function\",\"name\":\"spawn\",\"description\":\"s\"}]},"             \
    "{\"type\":\"custom\",\"name\":\"patch\",\"description\":\"p\",\"format\":{\"type\":\"grammar\",\"syntax\":"       \
    "\"lark\","                                                                                                        \
    "\"definition\":\"start: x\"}},{\"type\":\"web_search\",\"external_web_access\":false}"
#define RUN_TOOL   "{\"type\":\"function\",\"function\":{\"name\":\"run\",\"parameters\":{\"x\":1}}}"
#define SPAWN_TOOL "{\"type\":\"function\",\"function\":{\"name\":\"agents__spawn\",\"description\":\"s\"}}"
#define PATCH_TOOL                                                                                                     \
    "{\"type\":\"function\",\"function\":{\"name\":\"patch\",\"description\":\"p\\n\\nThe input must match this lark " \
    "grammar:\\nstart: x\",\"parameters\":{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}},"      \
    "\"required\":[\"input\"],\"additionalProperties\":false}}}"

static void fields_become_those_of_a_chat(void **unused)
{
    (void)unused;
    static const char *const rows[][2] = {
        {WITH("\"max_output_tokens\":7,\"temperature\":0.5,\"min_p\":0.1,\"parallel_tool_calls\":false"),
         "{\"max_tokens\":7,\"temperature\":0.5,\"min_p\":0.1,\"parallel_tool_calls\":false}"},
        {WITH("\"max_tokens\":7,\"n\":3,\"logprobs\":true,\"stop\":\"a\",\"reasoning_effort\":\"low\""),
         "{\"max_tokens\":null,\"n\":null,\"logprobs\":null,\"stop\":null,\"reasoning_effort\":null}"},
        {WITH("\"tools\":[{\"type\":\"function\",\"name\":\"a\",\"description\":\"b\",\"parameters\":{\"x\":1},"
              "\"strict\":true},{\"type\":\"function\",\"name\":\"c\",\"parameters\":null}]"),
         "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"description\":\"b\",\"parameters\":"
         "{\"x\":1},\"strict\":true}},{\"type\":\"function\",\"function\":{\"name\":\"c\"}}]}"},
        {WITH("\"tools\":[" AGENT_TOOLS "]"), "{\"tools\":[" RUN_TOOL "," SPAWN_TOOL "," PATCH_TOOL "]}"},
        {WITH("\"tools\":[{\"type\":\"web_search\"},{\"type\":\"image_generation\"}]"), "{\"tools\":null}"},
        {WITH("\"tools\":[" AGENT_TOOLS
              "],\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":["
              "{\"type\":\"custom\",\"name\":\"patch\"},{\"type\":\"function\",\"name\":\"other\"}]}"),
         "{\"tools\":[" RUN_TOOL "," SPAWN_TOOL "," PATCH_TOOL "],\"tool_choice\":{\"type\":\"allowed_tools\","
         "\"allowed_tools\":{\"mode\":\"required\",\"tools\":[" PATCH_TOOL "]}}}"},
        {WITH("\"tools\":[" AGENT_TOOLS
              "],\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":["
              "{\"type\":\"web_search\"},{\"type\":\"function\",\"name\":\"other\"}]}"),
         "{\"tool_choice\":\"none\"}"},
        {WITH("\"tools\":[" AGENT_TOOLS "],\"tool_choice\":{\"type\":\"function\",\"namespace\":\"agents\",\"name\":"
              "\"spawn\"}"),
         "{\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"agents__spawn\"}}}"},
        {WITH("\"tool_choice\":{\"type\":\"web_search\"}"), "{\"tool_choice\":null}"},
        {WITH("\"tool_choice\":\"required\""), "{\"tool_choice\":\"required\"}"},
        {WITH("\"tool_choice\":{\"type\":\"function\",\"name\":\"a\"}"),
         "{\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"a\"}}}"},
        {WITH("\"text\":{\"format\":{\"type\":\"text\"},\"verbosity\":\"low\"}"), "{\"response_format\":null}"},
        {WITH("\"text\":{\"format\":{\"type\":\"json_object\"}}"), "{\"response_format\":{\"type\":\"json_object\"}}"},
        {WITH("\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"strict\":true,\"schema\":{\"a\":1}}}"),
         "{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"a\":1}}}}"},
        {WITH("\"reasoning\":{\"effort\":\"high\",\"summary\":\"auto\"}"), "{\"reasoning_effort\":\"high\"}"},
        {WITH("\"reasoning\":{\"effort\":null}"), "{\"reasoning_effort\":null}"},
        {WITH("\"include\":[\"reasoning.encrypted_content\"]"), "{\"logprobs\":null}"},
        {WITH("\"include\":[\"message.output_text.logprobs\"]"), "{\"logprobs\":true,\"top_logprobs\":null}"},
        {WITH("\"top_logprobs\":2"), "{\"logprobs\":true,\"top_logprobs\":2}"},
        {WITH("\"continue_final_message\":true"), "{\"continue_final_message\":true}"},
        {WITH("\"store\":true,\"truncation\":\"auto\",\"user\":\"u\",\"max_tool_calls\":3,\"background\":false,"
              "\"previous_response_id\":null,\"metadata\":{\"a\":\"b\"}"),
         "{}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_converts(responses_chat, rows[i][0], rows[i][1]);
}

static void history_is_not_judged(void **unused)
{
    (void)unused;
    /* An item, the messages that it becomes, and what is left out. */
    static const char *const rows[][3] = {
        {"{\"type\":\"local_shell_call\",\"id\":\"i\",\"call_id\":\"c\",\"action\":{\"type\":\"exec\",\"command\":["
         "\"ls\"],\"env\":{}}}",
         "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
         "\"name\":\"local_shell\",\"arguments\":\"{\\\"type\\\":\\\"exec\\\",\\\"command\\\":[\\\"ls\\\"],\\\"env\\\":"
         "{}}\"}}]},",
         ""},
        {"{\"type\":\"shell_call\",\"call_id\":\"c\",\"action\":{\"commands\":[\"ls\"]}}",
         "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
         "\"name\":\"shell\",\"arguments\":\"{\\\"commands\\\":[\\\"ls\\\"]}\"}}]},",
         ""},
        {"{\"type\":\"shell_call_output\",\"call_id\":\"c\",\"output\":[{\"stdout\":\"a\",\"stderr\":\"b\",\"outcome\":"
         "{\"type\":\"exit\",\"exit_code\":2}},{\"stdout\":\"\",\"stderr\":\"\",\"outcome\":{\"type\":\"timeout\"}}]}",
         "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"a\\nb\\nexit_code: 2\"},", "input[0].output[1]"},
        {"{\"type\":\"apply_patch_call\",\"call_id\":\"c\",\"operation\":{\"type\":\"delete_file\",\"path\":\"p\"},"
         "\"status\":\"completed\"}",
         "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
         "\"name\":\"apply_patch\",\"arguments\":\"{\\\"type\\\":\\\"delete_file\\\",\\\"path\\\":\\\"p\\\"}\"}}]},",
         ""},
        {"{\"type\":\"apply_patch_call_output\",\"call_id\":\"c\",\"status\":\"failed\",\"output\":\"no file\"}",
         "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"no file\"},", ""},
        {"{\"type\":\"apply_patch_call_output\",\"call_id\":\"c\",\"status\":\"completed\"}",
         "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"completed\"},", ""},
        {"{\"type\":\"computer_call\",\"call_id\":\"c\",\"actions\":[{\"type\":\"click\",\"x\":1,\"y\":2}]}",
         "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
         "\"name\":\"computer\",\"arguments\":\"{\\\"actions\\\":[{\\\"type\\\":\\\"click\\\",\\\"x\\\":1,\\\"y\\\":2}]"
         "}\"}}]},",
         ""},
        {"{\"type\":\"tool_search_call\",\"call_id\":\"c\",\"arguments\":{\"query\":\"q\"}}",
         "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
         "\"name\":\"tool_search\",\"arguments\":\"{\\\"query\\\":\\\"q\\\"}\"}}]},",
         ""},
        {"{\"type\":\"tool_search_output\",\"call_id\":\"c\",\"tools\":[{\"type\":\"function\",\"name\":\"act\"}]}",
         "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"[{\\\"type\\\":\\\"function\\\",\\\"name\\\":"
         "\\\"act\\\"}]\"},",
         ""},
        {"{\"type\":\"program\",\"id\":\"i\",\"call_id\":\"c\",\"code\":\"x = 1\",\"fingerprint\":\"f\"}",
         "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
         "\"name\":\"program\",\"arguments\":\"{\\\"code\\\":\\\"x = 1\\\"}\"}}]},",
         ""},
        {"{\"type\":\"program_output\",\"id\":\"j\",\"call_id\":\"c\",\"result\":\"1\",\"status\":\"completed\"}",
         "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"1\"},", ""},
        {"{\"type\":\"code_interpreter_call\",\"id\":\"c\",\"code\":\"1+1\",\"outputs\":[{\"type\":\"logs\",\"logs\":"
         "\"2\"}],\"status\":\"completed\"}",
         "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
         "\"name\":\"code_interpreter\",\"arguments\":\"{\\\"code\\\":\\\"1+1\\\"}\"}}]},{\"role\":\"tool\",\"tool_"
         "call_id\":\"c\",\"content\":\"2\"},",
         ""},
        {"{\"type\":\"code_interpreter_call\",\"id\":\"c\",\"code\":\"1+1\",\"outputs\":null,\"status\":\"completed\"}",
         "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
         "\"name\":\"code_interpreter\",\"arguments\":\"{\\\"code\\\":\\\"1+1\\\"}\"}}]},{\"role\":\"tool\",\"tool_"
         "call_id\":\"c\",\"content\":\"completed\"},",
         ""},
        {"{\"type\":\"mcp_call\",\"id\":\"c\",\"name\":\"get\",\"server_label\":\"s\",\"arguments\":\"{'a'\","
         "\"output\":\"b\"}",
         "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
         "\"name\":\"get\",\"arguments\":\"{'a'\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"b\"},",
         ""},
        {"{\"type\":\"mcp_call\",\"id\":\"c\",\"name\":\"get\",\"server_label\":\"s\",\"arguments\":\"{}\",\"error\":"
         "\"lost\"}",
         "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
         "\"name\":\"get\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"lost\"},",
         ""},
        {"{\"type\":\"file_search_call\",\"id\":\"c\",\"queries\":[\"q\"],\"results\":[{\"filename\":\"f\",\"text\":"
         "\"t\",\"score\":0.5}]}",
         "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
         "\"name\":\"file_search\",\"arguments\":\"{\\\"queries\\\":[\\\"q\\\"]}\"}}]},{\"role\":\"tool\",\"tool_call_"
         "id\":\"c\",\"content\":\"f\\nt\"},",
         ""},
        {"{\"type\":\"web_search_call\",\"id\":\"c\",\"action\":{\"type\":\"search\",\"query\":\"q\",\"sources\":[{"
         "\"type\":\"url\",\"url\":\"u\"}]}}",
         "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
         "\"name\":\"web_search\",\"arguments\":\"{\\\"type\\\":\\\"search\\\",\\\"query\\\":\\\"q\\\"}\"}}]},{"
         "\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"u\"},",
         ""},
        {"{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"get\",\"arguments\":\"not json\"}",
         "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
         "\"name\":\"get\",\"arguments\":\"not json\"}}]},",
         ""},
        {"{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"get\",\"arguments\":{\"a\":1}}",
         "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
         "\"name\":\"get\",\"arguments\":\"{\\\"a\\\":1}\"}}]},",
         ""},
        {"{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":[{\"type\":\"output_text\",\"text\":\"a\"},{"
         "\"type\":\"find\",\"title\":\"b\"}]}",
         "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
         "\"text\":\"b\"}]},",
         ""},
        {"{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":{\"content\":\"a\",\"success\":true}}",
         "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"a\"},", ""},
        {"{\"type\":\"compaction\",\"summary\":\"so far\"}", "{\"role\":\"assistant\",\"content\":\"so far\"},", ""},
        {"{\"role\":\"assistant\",\"content\":[{\"type\":\"song\",\"text\":\"la\"}]}",
         "{\"role\":\"assistant\",\"content\":\"la\"},", ""},
        {"{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"x\"}", "", "input[0]"},
        {"{\"type\":\"compaction\",\"encrypted_content\":\"x\"}", "", "input[0]"},
        {"{\"type\":\"compaction_trigger\"}", "", "input[0]"},
        {"{\"type\":\"local_shell_call\",\"id\":\"i\",\"call_id\":\"c\",\"status\":\"completed\"}", "", "input[0]"},
        {"{\"type\":\"apply_patch_call\",\"id\":\"i\",\"call_id\":\"c\"}", "", "input[0]"},
        {"{\"type\":\"web_search_call\",\"id\":\"i\",\"action\":{\"type\":\"search\",\"query\":\"q\"}}", "",
         "input[0]"},
        {"{\"type\":\"image_generation_call\",\"id\":\"i\",\"result\":\"iVBORw0K\"}", "", "input[0]"},
        {"{\"type\":\"mcp_list_tools\",\"id\":\"i\",\"server_label\":\"s\",\"tools\":[]}", "", "input[0]"},
        {"{\"type\":\"mcp_approval_request\",\"id\":\"i\",\"name\":\"n\",\"arguments\":\"{}\",\"server_label\":\"s\"}",
         "", "input[0]"},
        {"{\"type\":\"additional_tools\",\"role\":\"developer\",\"tools\":[]}", "", "input[0]"},
        {"{\"type\":\"telepathy_call\"}", "", "input[0]"},
        {"{\"type\":\"ghost_snapshot\",\"ghost_commit\":{\"id\":\"x\"}}", "", "input[0]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf body = {0}, expected = {0};
        buf_printf(&body, "{\"input\":[%s," USER("?") "]}", rows[i][0]);
        buf_printf(&expected, "{\"messages\":[%s" USER("?") "]}", rows[i][1]);
        assert_converts_but(responses_chat, body.v, expected.v, rows[i][2]);
        buf_release(&body);
        buf_release(&expected);
    }
}

static void a_call_is_left_out_with_its_result(void **unused)
{
    (void)unused;
    static const char *const pairs[][2] = {
        {"{\"type\":\"wish_call\",\"call_id\":\"c\"}",
         "{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"a\"}"},
        {"{\"type\":\"local_shell_call\",\"id\":\"i\",\"call_id\":\"c\"}",
         "{\"type\":\"local_shell_call_output\",\"id\":\"i\",\"output\":\"a\"}"},
        {"{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"get\",\"arguments\":\"{}\"}",
         "{\"type\":\"gift\",\"call_id\":\"c\"}"},
        {"{\"type\":\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"get\",\"input\":\"\"}",
         "{\"type\":\"gift\",\"call_id\":\"c\"}"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct buf body = {0};
        buf_printf(&body, "{\"input\":[%s,%s," USER("?") "]}", pairs[i][0], pairs[i][1]);
        assert_converts_but(responses_chat, body.v, "{\"messages\":[" USER("?") "]}", "input[0], input[1]");
        buf_release(&body);
    }
}

static void a_result_that_names_the_item_of_its_call_goes_with_it(void **unused)
{
    (void)unused;
    assert_converts_but(
        responses_chat,
        "{\"input\":[{\"type\":\"local_shell_call\",\"id\":\"i\",\"call_id\":\"c\",\"action\":{}},"
        "{\"type\":\"local_shell_call_output\",\"id\":\"i\",\"output\":\"a\"}]}",
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":"
        "\"function\",\"function\":{\"name\":\"local_shell\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\","
        "\"tool_call_id\":\"c\",\"content\":\"a\"}]}",
        "");
}

static void what_cannot_be_is_refused_by_the_clients_own_names(void **unused)
{
    (void)unused;
#define ITEM(item) "{\"input\":[{\"role\":\"user\",\"content\":\"a\"}," item "]}"
    static const struct rig_refusal rows[] = {
        {"{}", HEARTH_INVALID, "input"},
        {"{\"input\":[]}", HEARTH_INVALID, "input"},
        {"{\"input\":5}", HEARTH_INVALID, "input"},
        {ITEM("5"), HEARTH_INVALID, "input[1].type"},
        {ITEM("{\"role\":\"tool\",\"content\":\"a\"}"), HEARTH_INVALID, "input[1].role"},
        {ITEM("{\"role\":\"user\"}"), HEARTH_INVALID, "input[1].content"},
        {ITEM("{\"role\":\"user\",\"content\":[{\"type\":\"input_smell\"}]}"), HEARTH_UNSUPPORTED,
         "input[1].content[0].type"},
        {ITEM("{\"role\":\"user\",\"content\":[{\"type\":\"input_text\"}]}"), HEARTH_INVALID,
         "input[1].content[0].text"},
        {ITEM("{\"type\":\"item_reference\",\"id\":\"msg_1\"}"), HEARTH_INVALID, "input[1]"},
        {ITEM("{\"type\":\"custom_tool_call\",\"call_id\":\"a\",\"name\":\"b\"}"), HEARTH_INVALID, "input[1].input"},
        {ITEM("{\"type\":\"function_call\",\"name\":\"a\",\"arguments\":\"{}\"}"), HEARTH_INVALID, "input[1].call_id"},
        {ITEM("{\"type\":\"function_call\",\"call_id\":\"a\",\"arguments\":\"{}\"}"), HEARTH_INVALID, "input[1].name"},
        {ITEM("{\"type\":\"function_call\",\"call_id\":\"a\",\"name\":\"b\"}"), HEARTH_INVALID, "input[1].arguments"},
        {ITEM("{\"type\":\"function_call_output\",\"output\":\"\"}"), HEARTH_INVALID, "input[1].call_id"},
        {ITEM("{\"type\":\"function_call_output\",\"call_id\":\"a\"}"), HEARTH_INVALID, "input[1].output"},
        {WITH("\"instructions\":[]"), HEARTH_INVALID, "instructions"},
        {WITH("\"tools\":{}"), HEARTH_INVALID, "tools"},
        {WITH("\"tools\":[{\"name\":\"a\"}]"), HEARTH_INVALID, "tools[0].type"},
        {WITH("\"tools\":[{\"type\":\"custom\"}]"), HEARTH_INVALID, "tools[0].name"},
        {WITH("\"tools\":[{\"type\":\"namespace\",\"tools\":[]}]"), HEARTH_INVALID, "tools[0].name"},
        {WITH("\"tools\":[{\"type\":\"namespace\",\"name\":\"a\",\"tools\":5}]"), HEARTH_INVALID, "tools[0].tools"},
        {WITH("\"tools\":[{\"type\":\"namespace\",\"name\":\"a\",\"tools\":[{\"type\":\"function\"}]}]"),
         HEARTH_INVALID, "tools[0].tools[0].name"},
        {WITH("\"tools\":[{\"type\":\"function\"}]"), HEARTH_INVALID, "tools[0].name"},
        {WITH("\"tools\":[{\"type\":\"function\",\"name\":\"a\",\"parameters\":5}]"), HEARTH_INVALID,
         "tools[0].parameters"},
        {WITH("\"tool_choice\":{\"type\":\"allowed_tools\"}"), HEARTH_INVALID, "tool_choice.tools"},
        {WITH("\"tool_choice\":{\"type\":\"allowed_tools\",\"tools\":[]}"), HEARTH_INVALID, "tool_choice.mode"},
        {WITH("\"tool_choice\":{\"type\":\"function\"}"), HEARTH_INVALID, "tool_choice.name"},
        {WITH("\"max_output_tokens\":0"), HEARTH_INVALID, "max_output_tokens"},
        {WITH("\"text\":{\"format\":{\"type\":\"grammar\"}}"), HEARTH_UNSUPPORTED, "text.format.type"},
        {WITH("\"text\":{\"format\":{\"type\":\"json_schema\"}}"), HEARTH_INVALID, "text.format.schema"},
        {WITH("\"reasoning\":{\"effort\":5}"), HEARTH_INVALID, "reasoning.effort"},
        {WITH("\"background\":true"), HEARTH_UNSUPPORTED, "background"},
        {WITH("\"prompt\":{\"id\":\"p\"}"), HEARTH_UNSUPPORTED, "prompt"},
    };
    assert_refused(responses_chat, rows, sizeof rows / sizeof *rows);
}

/* ---- Answers ---- */

#define ECHO                                                                                                           \
    ",\"instructions\":null,\"max_output_tokens\":null,\"max_tool_calls\":null,\"metadata\":{},"                       \
    "\"parallel_tool_calls\":true,\"previous_response_id\":null,\"reasoning\":{\"effort\":null,\"summary\":null},"     \
    "\"service_tier\":\"default\",\"store\":false,\"temperature\":null,\"text\":{\"format\":{\"type\":\"text\"}},"     \
    "\"tool_choice\":\"auto\",\"tools\":[],\"top_logprobs\":0,\"top_p\":null,\"truncation\":\"disabled\","             \
    "\"background\":false,\"conversation\":null}"
#define RESPONSE(status, error, details, output, usage)                                                                \
    "{\"id\":\"resp_abc\",\"object\":\"response\",\"created_at\":1700000000,\"status\":\"" status                      \
    "\",\"error\":" error ",\"incomplete_details\":" details ",\"model\":\"demo\",\"output\":[" output                 \
    "],\"usage\":" usage ECHO
#define USAGE(reasoning)                                                                                               \
    "{\"input_tokens\":10,\"input_tokens_details\":{\"cached_tokens\":8},\"output_tokens\":5,"                         \
    "\"output_tokens_details\":{\"reasoning_tokens\":" reasoning "},\"total_tokens\":15}"
#define EVENT(name, number, members)                                                                                   \
    "event: response." name "\ndata: {\"type\":\"response." name "\",\"sequence_number\":" number "," members "}\n\n"

#define TIMINGS                                                                                                        \
    "\"timings\":{\"cache_n\":8,\"prompt_n\":2,\"prompt_ms\":0.000,\"prompt_per_token_ms\":0.000,"                     \
    "\"prompt_per_second\":0.000,\"predicted_n\":5,\"predicted_ms\":0.000,\"predicted_per_token_ms\":0.000,"           \
    "\"predicted_per_second\":0.000,\"queue_ms\":0.000,\"restore_ms\":0.000}"
#define ENDED(name, number, response) EVENT(name, number, "\"response\":" response "," TIMINGS)

#define REASONING(content, status)                                                                                     \
    "{\"id\":\"rs_abc_0\",\"type\":\"reasoning\",\"summary\":[],\"content\":[" content "],\"status\":\"" status "\"}"
#define THOUGHT(text) "{\"type\":\"reasoning_text\",\"text\":\"" text "\"}"
#define MESSAGE(id, content, status)                                                                                   \
    "{\"id\":\"" id "\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[" content "],\"status\":\"" status    \
    "\"}"
#define TEXT(text) "{\"type\":\"output_text\",\"text\":\"" text "\",\"annotations\":[],\"logprobs\":[]}"
#define CALL(id, arguments, status)                                                                                    \
    "{\"id\":\"" id "\",\"type\":\"function_call\",\"call_id\":\"call_1\",\"name\":\"get\",\"arguments\":\"" arguments \
    "\",\"status\":\"" status "\"}"
#define INDEX         "\"content_index\":0,"
#define AT(id, index) "\"item_id\":\"" id "\",\"output_index\":" index ","

static struct rig open_rig(const char *body)
{
    json_t *given = rig_json(body);
    const struct responses_names names = {"demo", "abc", 1700000000,
                                          json_is_true(json_object_get(given, "timings_per_token"))};
    struct buf echo = {0};
    responses_put_echo(&echo, given);
    struct responses_tools *tools = responses_tools_open(given);
    struct rig rig = {.dialect = &responses_dialect, .state = responses_state(&names, &echo, &tools)};
    json_decref(given);
    return rig;
}

static void a_stream_begins_with_an_empty_response(void **unused)
{
    (void)unused;
    struct rig rig = open_rig("{}");
    responses_dialect.started(rig.state, 0, &result, &rig.out);
    rig_expect(&rig, EVENT("created", "0", "\"response\":" RESPONSE("in_progress", "null", "null", "", "null")));
    rig_expect(&rig, EVENT("in_progress", "1", "\"response\":" RESPONSE("in_progress", "null", "null", "", "null")));
    rig_close(&rig);
}

static void progress_and_timings_come_beside_the_response_where_they_are_wanted(void **unused)
{
    (void)unused;
    struct rig rig = open_rig("{\"timings_per_token\":true}");
    responses_dialect.progress(rig.state, 0, &result, &rig.out);
    rig_expect(&rig,
               EVENT("in_progress", "0",
                     "\"response\":" RESPONSE(
                         "in_progress", "null", "null", "",
                         "null") "," TIMINGS
                                 ",\"prompt_progress\":{\"total\":0,\"cache\":8,\"processed\":10,\"time_ms\":0}"));
    rig.answer.result = result;
    rig_content(&rig, "Yes");
    assert_contains(rig.out.v, "\"delta\":\"Yes\",\"logprobs\":[]," TIMINGS "}");
    rig_skip(&rig);
    rig_close(&rig);
}

static void reasoning_is_an_item_that_begins_grows_and_ends(void **unused)
{
    (void)unused;
    struct rig rig = open_rig("{}");
    rig_reasoning(&rig, "H");
    rig_expect(&rig, EVENT("output_item.added", "0", "\"output_index\":0,\"item\":" REASONING("", "in_progress")));
    rig_expect(&rig, EVENT("content_part.added", "1", AT("rs_abc_0", "0") INDEX "\"part\":" THOUGHT("")));
    rig_expect(&rig, EVENT("reasoning_text.delta", "2", AT("rs_abc_0", "0") INDEX "\"delta\":\"H\""));
    rig_reasoning(&rig, "m");
    rig_expect(&rig, EVENT("reasoning_text.delta", "3", AT("rs_abc_0", "0") INDEX "\"delta\":\"m\""));
    rig_end(&rig, result);
#define HM REASONING(THOUGHT("Hm"), "completed")
    rig_expect(&rig, EVENT("reasoning_text.done", "4", AT("rs_abc_0", "0") INDEX "\"text\":\"Hm\""));
    rig_expect(&rig, EVENT("content_part.done", "5", AT("rs_abc_0", "0") INDEX "\"part\":" THOUGHT("Hm")));
    rig_expect(&rig, EVENT("output_item.done", "6", "\"output_index\":0,\"item\":" HM));
    rig_expect(&rig, ENDED("completed", "7", RESPONSE("completed", "null", "null", HM, USAGE("2"))));
    rig_close(&rig);
}

static void text_is_an_item_and_ends_the_one_before(void **unused)
{
    (void)unused;
    struct rig rig = open_rig("{}");
    rig_reasoning(&rig, "Hm");
    rig_skip(&rig);
    rig_content(&rig, "");
    rig_content(&rig, "Yes");
    rig_expect(&rig, EVENT("reasoning_text.done", "3", AT("rs_abc_0", "0") INDEX "\"text\":\"Hm\""));
    rig_expect(&rig, EVENT("content_part.done", "4", AT("rs_abc_0", "0") INDEX "\"part\":" THOUGHT("Hm")));
    rig_expect(&rig, EVENT("output_item.done", "5", "\"output_index\":0,\"item\":" HM));
    rig_expect(&rig,
               EVENT("output_item.added", "6", "\"output_index\":1,\"item\":" MESSAGE("msg_abc_1", "", "in_progress")));
    rig_expect(&rig, EVENT("content_part.added", "7", AT("msg_abc_1", "1") INDEX "\"part\":" TEXT("")));
    rig_expect(&rig, EVENT("output_text.delta", "8", AT("msg_abc_1", "1") INDEX "\"delta\":\"Yes\",\"logprobs\":[]"));
    rig_end(&rig, result);
#define YES MESSAGE("msg_abc_1", TEXT("Yes"), "completed")
    rig_expect(&rig, EVENT("output_text.done", "9", AT("msg_abc_1", "1") INDEX "\"text\":\"Yes\",\"logprobs\":[]"));
    rig_expect(&rig, EVENT("content_part.done", "10", AT("msg_abc_1", "1") INDEX "\"part\":" TEXT("Yes")));
    rig_expect(&rig, EVENT("output_item.done", "11", "\"output_index\":1,\"item\":" YES));
    rig_expect(&rig, ENDED("completed", "12", RESPONSE("completed", "null", "null", HM "," YES, USAGE("2"))));
    rig_close(&rig);
}

static void each_call_is_an_item(void **unused)
{
    (void)unused;
    struct rig rig = open_rig("{}");
    rig_call(&rig, "get", "{}");
    rig_expect(&rig,
               EVENT("output_item.added", "0", "\"output_index\":0,\"item\":" CALL("fc_abc_0", "", "in_progress")));
    rig_expect(&rig, EVENT("function_call_arguments.delta", "1", AT("fc_abc_0", "0") "\"delta\":\"{}\""));
    rig_call(&rig, "get", "");
#define FIRST  CALL("fc_abc_0", "{}", "completed")
#define SECOND CALL("fc_abc_1", "", "completed")
    rig_expect(&rig,
               EVENT("function_call_arguments.done", "2", AT("fc_abc_0", "0") "\"name\":\"get\",\"arguments\":\"{}\""));
    rig_expect(&rig, EVENT("output_item.done", "3", "\"output_index\":0,\"item\":" FIRST));
    rig_expect(&rig,
               EVENT("output_item.added", "4", "\"output_index\":1,\"item\":" CALL("fc_abc_1", "", "in_progress")));
    rig_end(&rig, result);
    rig_expect(&rig,
               EVENT("function_call_arguments.done", "5", AT("fc_abc_1", "1") "\"name\":\"get\",\"arguments\":\"\""));
    rig_expect(&rig, EVENT("output_item.done", "6", "\"output_index\":1,\"item\":" SECOND));
    rig_expect(&rig, ENDED("completed", "7", RESPONSE("completed", "null", "null", FIRST "," SECOND, USAGE("0"))));
    rig_close(&rig);
}

#define SPAWNED(arguments, status)                                                                                     \
    "{\"id\":\"fc_abc_0\",\"type\":\"function_call\",\"call_id\":\"call_1\",\"name\":\"spawn\",\"namespace\":"         \
    "\"agents\","                                                                                                      \
    "\"arguments\":\"" arguments "\",\"status\":\"" status "\"}"
#define PATCHED(input, status)                                                                                         \
    "{\"id\":\"ctc_abc_1\",\"type\":\"custom_tool_call\",\"call_id\":\"call_1\",\"name\":\"patch\",\"input\":\"" input \
    "\",\"status\":\"" status "\"}"

static void calls_come_back_in_the_words_of_the_clients_tools(void **unused)
{
    (void)unused;
    struct rig rig = open_rig("{\"tools\":[" AGENT_TOOLS "]}");
    rig_call(&rig, "agents__spawn", "{}");
    rig_expect(&rig, EVENT("output_item.added", "0", "\"output_index\":0,\"item\":" SPAWNED("", "in_progress")));
    rig_expect(&rig, EVENT("function_call_arguments.delta", "1", AT("fc_abc_0", "0") "\"delta\":\"{}\""));
    rig_call(&rig, "patch", "{\"input\": \"a\\n\\\"b\\\"\"}");
    rig_expect(&rig, EVENT("function_call_arguments.done", "2",
                           AT("fc_abc_0", "0") "\"name\":\"spawn\",\"namespace\":\"agents\",\"arguments\":\"{}\""));
    rig_expect(&rig, EVENT("output_item.done", "3", "\"output_index\":0,\"item\":" SPAWNED("{}", "completed")));
    rig_expect(&rig, EVENT("output_item.added", "4", "\"output_index\":1,\"item\":" PATCHED("", "in_progress")));
    rig_end(&rig, result);
#define INPUT "a\\n\\\"b\\\""
    rig_expect(&rig, EVENT("custom_tool_call_input.delta", "5", AT("ctc_abc_1", "1") "\"delta\":\"" INPUT "\""));
    rig_expect(&rig, EVENT("custom_tool_call_input.done", "6", AT("ctc_abc_1", "1") "\"input\":\"" INPUT "\""));
    rig_expect(&rig, EVENT("output_item.done", "7", "\"output_index\":1,\"item\":" PATCHED(INPUT, "completed")));
    rig_skip(&rig);
    responses_dialect.whole(rig.state, &rig.answer, 1, &rig.out);
    assert_contains(rig.out.v, "\"output\":[" SPAWNED("{}", "completed") "," PATCHED(INPUT, "completed") "]");
    rig_skip(&rig);
    rig_close(&rig);
}

#define CUT        MESSAGE("msg_abc_0", TEXT("Yes"), "incomplete")
#define INCOMPLETE RESPONSE("incomplete", "null", "{\"reason\":\"max_output_tokens\"}", CUT, USAGE("0"))

static void an_answer_that_was_cut_off_is_incomplete(void **unused)
{
    (void)unused;
    struct rig rig = open_rig("{}");
    hearth_result cut = result;
    cut.finish = HEARTH_FINISH_LENGTH;
    rig_content(&rig, "Yes");
    rig_skip(&rig);
    rig_end(&rig, cut);
    rig_expect(&rig, EVENT("output_text.done", "3", AT("msg_abc_0", "0") INDEX "\"text\":\"Yes\",\"logprobs\":[]"));
    rig_expect(&rig, EVENT("content_part.done", "4", AT("msg_abc_0", "0") INDEX "\"part\":" TEXT("Yes")));
    rig_expect(&rig, EVENT("output_item.done", "5", "\"output_index\":0,\"item\":" CUT));
    rig_expect(&rig, ENDED("incomplete", "6", INCOMPLETE));
    responses_dialect.whole(rig.state, &rig.answer, 1, &rig.out);
    rig_expect(&rig, INCOMPLETE);
    rig_close(&rig);
}

#define FAILURE "{\"code\":\"server_error\",\"message\":\"decode failed\"}"

static void a_stream_that_breaks_off_has_failed_with_what_there_was(void **unused)
{
    (void)unused;
    struct rig rig = open_rig("{}");
    hearth_error error = {.code = HEARTH_INTERNAL, .message = "decode failed"};
    responses_dialect.broken(rig.state, &error, &rig.out);
    rig_expect(&rig, EVENT("failed", "0", "\"response\":" RESPONSE("failed", FAILURE, "null", "", "null")));
    rig_content(&rig, "Yes");
    rig_skip(&rig);
    responses_dialect.broken(rig.state, &error, &rig.out);
    rig_expect(&rig, EVENT("failed", "4", "\"response\":" RESPONSE("failed", FAILURE, "null", CUT, "null")));
    rig_close(&rig);
}

/* Codex repeats what failed by a server's fault, and nothing else. */
static void a_failure_says_whose_fault_it_is(void **unused)
{
    (void)unused;
    static const struct {
        hearth_code code;
        const char *says;
    } rows[] = {{HEARTH_TOO_LONG, "\"code\":\"context_length_exceeded\""},
                {HEARTH_INVALID, "\"code\":\"invalid_prompt\""},
                {HEARTH_UNSUPPORTED, "\"code\":\"invalid_prompt\""},
                {HEARTH_UNAVAILABLE, "\"code\":\"server_error\""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig rig = open_rig("{}");
        hearth_error error = {.code = rows[i].code, .message = "it failed"};
        responses_dialect.broken(rig.state, &error, &rig.out);
        assert_contains(rig.out.v, rows[i].says);
        rig_skip(&rig);
        rig_close(&rig);
    }
}

static void a_quiet_stream_has_events_once_it_has_begun(void **unused)
{
    (void)unused;
    struct rig rig = open_rig("{}");
    responses_dialect.ping(rig.state, &rig.out);
    rig_expect(&rig, ":\n\n");
    responses_dialect.started(rig.state, 0, &result, &rig.out);
    rig_skip(&rig);
    rig_content(&rig, "Yes");
    rig_skip(&rig);
    responses_dialect.ping(rig.state, &rig.out);
    rig_expect(&rig, EVENT("in_progress", "5", "\"response\":" RESPONSE("in_progress", "null", "null", "", "null")));
    rig_close(&rig);
}

static void a_response_repeats_what_was_asked(void **unused)
{
    (void)unused;
    struct rig rig = open_rig("{\"instructions\":\"a\",\"temperature\":0.1,\"tools\":[{\"type\":\"function\"}],"
                              "\"metadata\":{\"k\":\"v\"},\"store\":true,\"truncation\":\"auto\",\"top_p\":null,"
                              "\"tool_choice\":\"none\"}");
    responses_dialect.whole(rig.state, &rig.answer, 1, &rig.out);
    assert_contains(rig.out.v, "\"instructions\":\"a\",");
    assert_contains(rig.out.v, "\"metadata\":{\"k\":\"v\"},");
    assert_contains(rig.out.v, "\"store\":true,\"temperature\":0.1,");
    assert_contains(rig.out.v, "\"tool_choice\":\"none\",\"tools\":[{\"type\":\"function\"}],");
    assert_contains(rig.out.v, "\"top_p\":null,\"truncation\":\"disabled\",");
    json_decref(rig_json(rig.out.v));
    rig_skip(&rig);
    rig_close(&rig);
}

/* ---- Routes ---- */

static void a_request_reaches_the_library_and_is_answered(void **state)
{
    static const char *const texts[] = {"~rHm", "Hel", "lo"};
    static const char *const paths[] = {"/v1/responses", "/responses"};
    static const struct fake_script script = {.texts = texts, .n_texts = 3, .result = {.cache_n = 8, .prompt_n = 2}};
    struct client client = harness_start(*state);
    fake_play(&script);
    for (size_t i = 0; i < 2; i++) {
        struct response response = ask(&client, "POST", paths[i],
                                       "{\"model\":\"demo\",\"instructions\":\"Be brief.\",\"input\":\"Hi\","
                                       "\"max_output_tokens\":5}");
        assert_int_equal(response.status, 200);
        assert_contains(response.body.v, "\"text\":\"Hello\",\"annotations\":[],\"logprobs\":[]");
        assert_contains(response.body.v, "\"reasoning_tokens\":1");
        assert_contains(response.body.v, "\"max_output_tokens\":5,");
        const hearth_params *params = fake_wait(i);
        assert_int_equal(params->max_tokens, 5);
        assert_int_equal(params->continue_final, HEARTH_CONTINUE_NEVER);
        assert_string_equal(text_of_json(params->messages), "[{\"role\":\"system\",\"content\":\"Be brief.\"},"
                                                            "{\"role\":\"user\",\"content\":\"Hi\"}]");
        response_release(&response);
    }
    client_close(&client);
}

#define LOGPROB(text)                                                                                                  \
    "{\"token\":\"" text "\",\"logprob\":-0.5,\"bytes\":[%s],\"top_logprobs\":[{\"token\":\"" text                     \
    "\",\"logprob\":-0.5,\"bytes\":[%s]}]}"

/* The last delta has the logprobs of the token before it too, which added no text of its own. */
static void logprobs_come_with_the_text_of_their_tokens(void **state)
{
    struct client client = harness_start(*state);
    client_send(&client, "POST", "/v1/responses", "",
                WITH("\"stream\":true,\"include\":[\"message.output_text.logprobs\"],\"top_logprobs\":1"));
    assert_int_equal(fake_wait(0)->top_logprobs, 1);
    fake_started(0);
    fake_text(0, "~rH");
    fake_text(0, "a");
    fake_text(0, "");
    fake_text(0, "b");
    fake_done(0, &result);
    struct response response = client_read(&client, true);
    struct buf a = {0}, b = {0}, all = {0};
    buf_printf(&a, LOGPROB("a"), "97", "97");
    buf_printf(&b, LOGPROB("") "," LOGPROB("b"), "", "", "98", "98");
    buf_printf(&all, "\"text\":\"ab\",\"logprobs\":[%s,%s]}\n", a.v, b.v);
    assert_contains(response.body.v, all.v);
    buf_clear(&all);
    buf_printf(&all, "\"delta\":\"a\",\"logprobs\":[%s]}\n", a.v);
    assert_contains(response.body.v, all.v);
    buf_clear(&all);
    buf_printf(&all, "\"delta\":\"b\",\"logprobs\":[%s]}\n", b.v);
    assert_contains(response.body.v, all.v);
    assert_contains(response.body.v, "\"reasoning_tokens\":1}");
    buf_release(&a);
    buf_release(&b);
    buf_release(&all);
    response_release(&response);
    client_close(&client);
}

static void errors_have_openais_form_and_the_clients_names(void **state)
{
    static const struct {
        const char *body;
        int status;
        const char *expected;
    } rows[] = {
        {"not json", 400, "\"param\":null"},
        {WITH("\"max_output_tokens\":-1"), 400, "\"param\":\"max_output_tokens\""},
        {WITH("\"temperature\":\"hot\""), 400, "\"param\":\"temperature\""},
        {WITH("\"top_logprobs\":101"), 400, "\"param\":\"top_logprobs\""},
        {WITH("\"tool_choice\":\"some\""), 400, "\"param\":\"tool_choice\""},
        {WITH("\"previous_response_id\":\"resp_r\""), 400, "\"code\":\"previous_response_not_found\""},
        {WITH("\"previous_response_id\":5"), 400, "\"param\":\"previous_response_id\""},
        {WITH("\"conversation\":{\"id\":\"conv_r\"}"), 400, "\"param\":\"conversation\""},
        {WITH("\"store\":\"yes\""), 400, "\"param\":\"store\""},
        {WITH("\"background\":true"), 400, "\"code\":\"not_supported\""},
        {WITH("\"model\":\"other\""), 404, "\"param\":\"model\""},
    };
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct response response = ask(&client, "POST", "/v1/responses", rows[i].body);
        assert_int_equal(response.status, rows[i].status);
        assert_contains(response.body.v, "{\"error\":{\"message\":");
        assert_contains(response.body.v, rows[i].expected);
        response_release(&response);
    }
    assert_int_equal(fake_submitted(), 0);
    client_close(&client);
}

/* The library's "messages" are "input" in Responses. */
static void errors_of_messages_name_the_input(void **unused)
{
    (void)unused;
    static const char *const rows[][3] = {
        {"messages", "\"param\":\"input\"", "\"'input' is so\""},
        {"messages[2].content", "\"param\":\"input\"", "\"'input' is so\""},
        {"json_schema", "\"param\":\"text.format.schema\"", "\"'text.format.schema' is so\""},
        {"tools[0]", "\"param\":\"tools[0]\"", "\"'tools[0]' is so\""},
        {"tools[10].function.name", "\"param\":\"tools[10].name\"", "\"'tools[10].name' is so\""},
        {"", "\"param\":null", "\"'' is so\""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf out = {0};
        hearth_error error;
        error_at(&error, HEARTH_TOO_LONG, rows[i][0], "'%s' is so", rows[i][0]);
        responses_dialect.error(&out, &error, "req-1");
        assert_contains(out.v, rows[i][1]);
        assert_contains(out.v, rows[i][2]);
        buf_release(&out);
    }
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(input_becomes_the_messages_of_a_chat),
        cmocka_unit_test(fields_become_those_of_a_chat),
        cmocka_unit_test(history_is_not_judged),
        cmocka_unit_test(a_call_is_left_out_with_its_result),
        cmocka_unit_test(a_result_that_names_the_item_of_its_call_goes_with_it),
        cmocka_unit_test(what_cannot_be_is_refused_by_the_clients_own_names),
        cmocka_unit_test(a_stream_begins_with_an_empty_response),
        cmocka_unit_test(progress_and_timings_come_beside_the_response_where_they_are_wanted),
        cmocka_unit_test(reasoning_is_an_item_that_begins_grows_and_ends),
        cmocka_unit_test(text_is_an_item_and_ends_the_one_before),
        cmocka_unit_test(each_call_is_an_item),
        cmocka_unit_test(calls_come_back_in_the_words_of_the_clients_tools),
        cmocka_unit_test(an_answer_that_was_cut_off_is_incomplete),
        cmocka_unit_test(a_stream_that_breaks_off_has_failed_with_what_there_was),
        cmocka_unit_test(a_failure_says_whose_fault_it_is),
        cmocka_unit_test(a_quiet_stream_has_events_once_it_has_begun),
        cmocka_unit_test(a_response_repeats_what_was_asked),
        cmocka_unit_test(errors_of_messages_name_the_input),
        ROW(a_request_reaches_the_library_and_is_answered),
        ROW(logprobs_come_with_the_text_of_their_tokens),
        ROW(errors_have_openais_form_and_the_clients_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
