/* Converts bodies of OpenAI's Responses to chats. history.c has found the stored items; responses_items.c reads items,
 * responses_tools.c tools. Fields without effect here (truncation, service_tier, …) are repeated in the response with
 * the value that holds. No state; any thread. */
#include "base/json_text.h"
#include "serve/fields/fields_readers.h"
#include "serve/responses/responses.h"
#include "serve/responses/responses_items.h"
#include "serve/responses/responses_tools.h"

#include <stdlib.h>

static const char *const refused[] = {"background", "prompt", NULL};

/* ---- Input ---- */

static int read_input(struct convert *convert)
{
    const json_t *input = json_object_get(convert->body, "input");
    if (!json_is_string(input) && json_array_size(input) == 0)
        return convert_fault(convert, field_path_of("input"), "must be a string or a list of at least one item");
    int rc = responses_read_items(convert);
    if (rc != HEARTH_OK || !json_is_string(input)) return rc;
    convert_end_message(convert);
    convert->at = field_path_of("input");
    convert_add_text(convert, "user", input);
    return HEARTH_OK;
}

static int read_instructions(struct convert *convert)
{
    const json_t *text = json_object_get(convert->body, "instructions");
    if (text == NULL || json_is_null(text)) return HEARTH_OK;
    if (!json_is_string(text)) return convert_fault(convert, field_path_of("instructions"), "must be a string");
    convert->at = field_path_of("instructions");
    convert_add_text(convert, "system", text);
    return HEARTH_OK;
}

/* ---- Limits, reasoning and output format ---- */

static int read_max_tokens(struct convert *convert)
{
    const json_t *value = json_object_get(convert->body, "max_output_tokens");
    int64_t n;
    if (value == NULL || json_is_null(value)) return HEARTH_OK;
    if (!field_whole(value, 1, INT32_MAX, &n))
        return convert_fault(convert, field_path_of("max_output_tokens"), "must be a whole number of at least 1");
    convert_set(convert, "max_tokens", json_integer(n));
    return HEARTH_OK;
}

static int read_format(struct convert *convert)
{
    const json_t *format = json_object_get(json_object_get(convert->body, "text"), "format");
    const json_t *type = json_object_get(format, "type");
    struct field_path at = field_path_of("text.format");
    if (format == NULL || json_is_null(format) || convert_is(type, "text")) return HEARTH_OK;
    if (convert_is(type, "json_object")) {
        convert_set(convert, "response_format", json_pack("{s:s}", "type", "json_object"));
        return HEARTH_OK;
    }
    if (!convert_is(type, "json_schema")) return convert_bad_type(convert, format, at);
    const json_t *schema = convert_object(convert, format, at, "schema");
    if (schema == NULL) return HEARTH_INVALID;
    convert_set(convert, "response_format",
                json_pack("{s:s,s:{s:O}}", "type", "json_schema", "json_schema", "schema", schema));
    return HEARTH_OK;
}

static int read_reasoning_effort(struct convert *convert)
{
    const json_t *reasoning = json_object_get(convert->body, "reasoning");
    const json_t *effort = json_object_get(reasoning, "effort");
    if (effort == NULL || json_is_null(effort)) return HEARTH_OK;
    if (convert_string(convert, reasoning, field_path_of("reasoning"), "effort") == NULL) return HEARTH_INVALID;
    convert_set(convert, "reasoning_effort", json_incref((json_t *)effort));
    return HEARTH_OK;
}

static int read_logprobs(struct convert *convert)
{
    const json_t *include = json_object_get(convert->body, "include");
    json_t *item, *top = json_object_get(convert->body, "top_logprobs");
    size_t i;
    bool asks = fields_asks(convert->body, "top_logprobs");
    json_array_foreach(include, i, item) asks = asks || convert_is(item, "message.output_text.logprobs");
    if (!asks) return HEARTH_OK;
    convert_set(convert, "logprobs", json_true());
    if (top != NULL) convert_set(convert, "top_logprobs", json_incref(top));
    return HEARTH_OK;
}

/* The answer is a new item even if the last one is the assistant's, so that its turn is not continued. */
static int read_ending(struct convert *convert)
{
    if (!fields_asks(convert->body, "continue_final_message"))
        convert_set(convert, "continue_final_message", json_false());
    return HEARTH_OK;
}

json_t *responses_chat_after(const json_t *before, const json_t *body, struct uploads *uploads,
                             struct header_list *left_out, hearth_error *error)
{
    static int (*const readers[])(struct convert *) = {read_instructions, read_input,  responses_read_tools,
                                                       read_max_tokens,   read_format, read_reasoning_effort,
                                                       read_logprobs,     read_ending};
    struct convert convert;
    convert_open(&convert, body, uploads, left_out, error);
    convert.before = before;
    int rc = convert_refuse(&convert, refused);
    for (size_t i = 0; i < sizeof readers / sizeof *readers && rc == HEARTH_OK; i++) rc = readers[i](&convert);
    return convert_close(&convert, rc);
}

json_t *responses_chat(const json_t *body, struct uploads *uploads, struct header_list *left_out, hearth_error *error)
{
    return responses_chat_after(NULL, body, uploads, left_out, error);
}

/* ---- Members that repeat the request ---- */

/* The members of every response with their defaults; `fixed` ones have that value whatever the request says. */
void responses_put_echo(struct buf *out, const json_t *body)
{
    static const struct {
        const char *name, *value;
        bool fixed;
    } members[] = {{"instructions", "null", false},
                   {"max_output_tokens", "null", false},
                   {"max_tool_calls", "null", false},
                   {"metadata", "{}", false},
                   {"parallel_tool_calls", "true", false},
                   {"previous_response_id", "null", false},
                   {"reasoning", "{\"effort\":null,\"summary\":null}", false},
                   {"service_tier", "\"default\"", true},
                   {"store", "false", false},
                   {"temperature", "null", false},
                   {"text", "{\"format\":{\"type\":\"text\"}}", false},
                   {"tool_choice", "\"auto\"", false},
                   {"tools", "[]", false},
                   {"top_logprobs", "0", false},
                   {"top_p", "null", false},
                   {"truncation", "\"disabled\"", true},
                   {"background", "false", true},
                   {"conversation", "null", false}};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const json_t *value = json_object_get(body, members[i].name);
        bool given = !members[i].fixed && value != NULL && !json_is_null(value);
        buf_printf(out, ",\"%s\":", members[i].name);
        if (given)
            json_text_write(out, value);
        else
            buf_puts(out, members[i].value);
    }
}

/* ---- The API ---- */

static const char *const known[] = {"input",
                                    "instructions",
                                    "include",
                                    "max_output_tokens",
                                    "max_tool_calls",
                                    "metadata",
                                    "previous_response_id",
                                    "conversation",
                                    "background",
                                    "prompt",
                                    "prompt_cache_key",
                                    "prompt_cache_options",
                                    "prompt_cache_retention",
                                    "reasoning",
                                    "safety_identifier",
                                    "service_tier",
                                    "store",
                                    "stream_options",
                                    "text",
                                    "tools",
                                    "tool_choice",
                                    "top_logprobs",
                                    "truncation",
                                    "user",
                                    "client_metadata",
                                    "context_management",
                                    "keep_alive",
                                    NULL};

const struct fields_api responses_api = {
    .name = "responses", .convert = responses_chat, .known = known, .has_table = true};
