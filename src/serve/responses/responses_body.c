/* Converts bodies of OpenAI's Responses to chats. history.c has found the stored items; responses_tools.c converts
 * tools. Fields without effect here (truncation, service_tier, …) are repeated in the response with the value that
 * holds. No state; any thread. */
#include "serve/fields/convert.h"
#include "serve/fields/fields_readers.h"
#include "serve/responses/responses.h"
#include "serve/responses/responses_tools.h"

#include <stdlib.h>

static const char *const refused[] = {"background", "prompt", NULL};

/* ---- Items ---- */

struct item {
    const json_t *json;
    struct field_path at;
};

static const struct upload_form media[] = {{"input_image", "image_url", "image_url", {"url"}},
                                           {"input_audio", "input_audio", "input_audio", {"data"}},
                                           {"input_file", "file", NULL, {"file_data", "file_url"}}};

/* Collects the texts of a string, or of a list of parts (text, or a refusal), with media parts in order. */
static int collect_texts(const struct convert *convert, const json_t *content, struct field_path at, json_t *texts)
{
    static const char *const kinds[][2] = {{"input_text", "text"},
                                           {"output_text", "text"},
                                           {"reasoning_text", "text"},
                                           {"summary_text", "text"},
                                           {"refusal", "refusal"}};
    size_t i;
    json_t *part;
    if (json_is_string(content)) json_array_append(texts, (json_t *)content);
    if (!json_is_string(content) && !json_is_array(content))
        return convert_fault(convert, at, "must be a string or a list of parts");
    json_array_foreach(content, i, part)
    {
        const json_t *type = json_object_get(part, "type"), *text = NULL;
        struct field_path path = field_path_of("%.80s[%zu]", at.v, i);
        size_t k = 0;
        const struct upload_form *form = upload_form_of(media, sizeof media / sizeof *media, type);
        if (form != NULL) {
            json_array_append_new(texts, upload_read(convert->uploads, form, part, path.v));
            continue;
        }
        while (k < sizeof kinds / sizeof *kinds && !convert_is(type, kinds[k][0])) k++;
        if (k == sizeof kinds / sizeof *kinds) return convert_bad_type(convert, part, path);
        text = convert_string(convert, part, path, kinds[k][1]);
        if (text == NULL) return HEARTH_INVALID;
        json_array_append(texts, (json_t *)text);
    }
    return HEARTH_OK;
}

/* The role in a template: "developer" becomes "system". */
static const char *role_of(const json_t *item)
{
    static const char *const roles[][2] = {
        {"user", "user"}, {"assistant", "assistant"}, {"system", "system"}, {"developer", "system"}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (convert_is(json_object_get(item, "role"), roles[i][0])) return roles[i][1];
    return NULL;
}

/* Each user message stays a message of its own; the assistant's consecutive items become one. */
static int read_message(struct convert *convert, const struct item *item)
{
    const char *role = role_of(item->json);
    size_t i;
    json_t *text, *texts = json_array();
    if (role == NULL) {
        json_decref(texts);
        return convert_fault(convert, field_path_of("%s.role", item->at.v),
                             "must be \"user\", \"assistant\", \"system\" or \"developer\"");
    }
    struct field_path at = field_path_of("%s.content", item->at.v);
    int rc = collect_texts(convert, json_object_get(item->json, "content"), at, texts);
    if (convert_is(json_object_get(item->json, "role"), "user")) convert_end_message(convert);
    json_array_foreach(texts, i, text) convert_add_text(convert, role, text);
    json_decref(texts);
    return rc;
}

static int read_call(struct convert *convert, const struct item *item)
{
    const json_t *id = convert_string(convert, item->json, item->at, "call_id");
    const json_t *name = id == NULL ? NULL : convert_string(convert, item->json, item->at, "name");
    const json_t *arguments = name == NULL ? NULL : convert_string(convert, item->json, item->at, "arguments");
    if (arguments == NULL) return HEARTH_INVALID;
    json_t *by_model = responses_tool_name(json_object_get(item->json, "namespace"), name);
    convert_add_call(convert, id, by_model, arguments);
    json_decref(by_model);
    return HEARTH_OK;
}

static int read_custom_call(struct convert *convert, const struct item *item)
{
    const json_t *id = convert_string(convert, item->json, item->at, "call_id");
    const json_t *name = id == NULL ? NULL : convert_string(convert, item->json, item->at, "name");
    const json_t *input = name == NULL ? NULL : convert_string(convert, item->json, item->at, "input");
    if (input == NULL) return HEARTH_INVALID;
    json_t *by_model = responses_tool_name(json_object_get(item->json, "namespace"), name);
    json_t *arguments = responses_custom_arguments(input);
    convert_add_call(convert, id, by_model, arguments);
    json_decref(arguments);
    json_decref(by_model);
    return HEARTH_OK;
}

static int read_call_output(struct convert *convert, const struct item *item)
{
    const json_t *id = convert_string(convert, item->json, item->at, "call_id");
    if (id == NULL) return HEARTH_INVALID;
    json_t *texts = json_array();
    struct field_path at = field_path_of("%s.output", item->at.v);
    int rc = collect_texts(convert, json_object_get(item->json, "output"), at, texts);
    if (rc == HEARTH_OK) convert_add_result(convert, id, texts);
    json_decref(texts);
    return rc;
}

/* Reads the reasoning itself, or else its summary; encrypted reasoning cannot be read. */
static int read_reasoning(struct convert *convert, const struct item *item)
{
    static const char *const members[] = {"content", "summary"};
    const size_t n_media = convert->uploads->n;
    json_t *texts = json_array(), *text;
    size_t i;
    int rc = HEARTH_OK;
    for (size_t k = 0; k < 2 && rc == HEARTH_OK && json_array_size(texts) == 0; k++)
        if (fields_asks(item->json, members[k]))
            rc = collect_texts(convert, json_object_get(item->json, members[k]),
                               field_path_of("%s.%s", item->at.v, members[k]), texts);
    if (rc == HEARTH_OK && convert->uploads->n > n_media)
        rc = convert_fault(convert, item->at, "has media in its reasoning: send text alone");
    json_array_foreach(texts, i, text) if (rc == HEARTH_OK) convert_add_reasoning(convert, text);
    json_decref(texts);
    return rc;
}

static int refuse_reference(struct convert *convert, const struct item *item)
{
    return convert_fault(convert, item->at, "refers to an item that is not stored here: send the item itself");
}

static int read_item(struct convert *convert, const json_t *json, struct field_path at)
{
    static const struct {
        const char *type;
        int (*read)(struct convert *convert, const struct item *item);
    } types[] = {{"message", read_message},
                 {"function_call", read_call},
                 {"function_call_output", read_call_output},
                 {"custom_tool_call", read_custom_call},
                 {"custom_tool_call_output", read_call_output},
                 {"reasoning", read_reasoning},
                 {"item_reference", refuse_reference}};
    static const char *const hosted[] = {
        "web_search_call", "file_search_call",     "image_generation_call", "code_interpreter_call",
        "computer_call",   "computer_call_output", "local_shell_call",      "local_shell_call_output",
        "mcp_call",        "mcp_list_tools",       "mcp_approval_request",  "mcp_approval_response",
        "compaction"};
    struct item item = {.json = json, .at = at};
    const json_t *type = json_object_get(json, "type");
    if (type == NULL && json_object_get(json, "role") != NULL) return read_message(convert, &item);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (convert_is(type, types[i].type)) return types[i].read(convert, &item);
    /* Skips items of tools that OpenAI's servers ran; the assistant's message has their result. */
    for (size_t i = 0; i < sizeof hosted / sizeof *hosted; i++)
        if (convert_is(type, hosted[i])) return HEARTH_OK;
    return convert_bad_type(convert, json, at);
}

static int read_input(struct convert *convert)
{
    const json_t *input = json_object_get(convert->body, "input");
    size_t i;
    json_t *item;
    int rc = HEARTH_OK;
    json_array_foreach(convert->before, i, item) if (rc == HEARTH_OK) rc =
        read_item(convert, item, field_path_of("previous_response_id[%zu]", i));
    if (json_is_string(input)) convert_end_message(convert);
    if (json_is_string(input)) convert_add_text(convert, "user", input);
    if (!json_is_string(input) && json_array_size(input) == 0)
        return convert_fault(convert, field_path_of("input"), "must be a string or a list of at least one item");
    json_array_foreach(input, i, item) if (rc == HEARTH_OK) rc =
        read_item(convert, item, field_path_of("input[%zu]", i));
    return rc;
}

static int read_instructions(struct convert *convert)
{
    const json_t *text = json_object_get(convert->body, "instructions");
    if (text == NULL || json_is_null(text)) return HEARTH_OK;
    if (!json_is_string(text)) return convert_fault(convert, field_path_of("instructions"), "must be a string");
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
                             struct left_out *left_out, hearth_error *error)
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

json_t *responses_chat(const json_t *body, struct uploads *uploads, struct left_out *left_out, hearth_error *error)
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
        char *text = given ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)) : NULL;
        buf_printf(out, ",\"%s\":%s", members[i].name, text != NULL ? text : members[i].value);
        free(text);
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
