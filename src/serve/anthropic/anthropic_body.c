/* Converts bodies of Anthropic's Messages to OpenAI chats. Tools that only Anthropic's servers run are left out; fields
 * about caching and billing (cache_control, metadata, service_tier, …) are ignored, since caching
 * needs no marks here. No state; any thread. */
#include "serve/anthropic/anthropic.h"

#include "base/log.h"
#include "serve/anthropic/anthropic_blocks.h"
#include "serve/fields/fields_readers.h"

#include <stdlib.h>
#include <string.h>

/* Anthropic requires max_tokens; this is llama-server's default for requests without it. */
#define MAX_TOKENS 4096

/* "thread" asks for the messages before to be kept here: SDKs that send it send them all once it is refused. */
static const char *const refused[] = {"container", "mcp_servers", "thread", NULL};

/* ---- Messages ---- */

static const char *role_of(const json_t *message)
{
    static const char *const roles[] = {"user", "assistant", "system"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (convert_is(json_object_get(message, "role"), roles[i])) return roles[i];
    return NULL;
}

/* Consecutive messages of one role are one turn, as with Anthropic. */
static int read_message(struct convert *convert, const json_t *message, struct field_path at)
{
    const char *role = role_of(message);
    const json_t *content = json_object_get(message, "content");
    size_t i;
    json_t *item;
    int rc = HEARTH_OK;
    if (role == NULL)
        return convert_fault(convert, field_path_of("%s.role", at.v), "must be \"user\" or \"assistant\"");
    convert->at = at;
    if (json_is_string(content)) convert_add_text(convert, role, content);
    if (!json_is_string(content) && !json_is_array(content))
        return convert_fault(convert, field_path_of("%s.content", at.v), "must be a string or a list of blocks");
    json_array_foreach(content, i, item)
    {
        struct anthropic_block block = {.role = role, .json = item, .at = field_path_of("%s.content[%zu]", at.v, i)};
        convert->at = block.at;
        if (rc == HEARTH_OK) rc = anthropic_read_block(convert, &block);
    }
    return rc;
}

static int read_messages(struct convert *convert)
{
    const json_t *messages = json_object_get(convert->body, "messages");
    size_t i;
    json_t *message;
    int rc = HEARTH_OK;
    if (!json_is_array(messages))
        return convert_fault(convert, field_path_of("messages"), "must be a list of messages");
    /* No message at all is a user who says nothing, whom every template prints: llama-server answers it, too. */
    if (json_array_size(messages) == 0) {
        json_t *nothing = json_string("");
        convert_add_text(convert, "user", nothing);
        json_decref(nothing);
    }
    const size_t asked_from = convert_asked_from(messages);
    json_array_foreach(messages, i, message) anthropic_find_lost_calls(convert, json_object_get(message, "content"));
    json_array_foreach(messages, i, message)
    {
        convert->asks = i >= asked_from;
        if (rc == HEARTH_OK) rc = read_message(convert, message, field_path_of("messages[%zu]", i));
    }
    return rc;
}

/* ---- The system prompt ---- */

#define BILLING "x-anthropic-billing-header:"

/* Skips the billing line, "BILLING name=value; …", with which a coding agent begins its system prompt. Its values
 * change with every request, so that no cached prefix after it could be reused, and a model has no use for it.
 * Returns the beginning of the rest. */
static const char *after_billing(const char *text)
{
    static const char name_bytes[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    if (strncmp(text, BILLING, strlen(BILLING)) != 0) return text;
    const char *at = text + strlen(BILLING);
    for (const char *value; value = at + strspn(at, " "), value += strspn(value, name_bytes), *value == '=';) {
        at = value + strcspn(value, ";\n");
        at += *at == ';';
    }
    at += strspn(at, " ");
    return at + (*at == '\n');
}

static int read_system(struct convert *convert)
{
    json_t *texts = json_array();
    size_t i;
    json_t *text;
    convert->asks = true;
    convert->at = field_path_of("system");
    int rc = anthropic_collect_texts(convert, json_object_get(convert->body, "system"), field_path_of("system"), texts);
    json_array_foreach(texts, i, text)
    {
        const char *whole = json_string_value(text), *rest = whole == NULL ? NULL : after_billing(whole);
        if (rest == whole) { /* also if it is a media part */
            convert_add_text(convert, "system", text);
            continue;
        }
        log_event(LOG_DEBUG, "serve", "left out a billing header", log_int("bytes", rest - whole));
        size_t len = json_string_length(text) - (size_t)(rest - whole);
        if (len == 0) continue;
        json_t *left = json_stringn(rest, len);
        convert_add_text(convert, "system", left);
        json_decref(left);
    }
    json_decref(texts);
    return rc;
}

/* ---- Tools ---- */

static int read_tool(struct convert *convert, const json_t *tool, struct field_path at)
{
    const json_t *type = json_object_get(tool, "type");
    if (type != NULL && !json_is_null(type) && !json_is_string(type)) return convert_bad_type(convert, tool, at);
    if (json_is_string(type) && !convert_is(type, "custom")) return convert_leave_out(convert, at);
    if (convert_string(convert, tool, at, "name") == NULL) return HEARTH_INVALID;
    if (convert_object(convert, tool, at, "input_schema") == NULL) return HEARTH_INVALID;
    convert->at = at;
    convert_add_tool(convert, tool, "input_schema");
    return HEARTH_OK;
}

static int read_tools(struct convert *convert)
{
    const json_t *tools = json_object_get(convert->body, "tools");
    size_t i;
    json_t *tool;
    int rc = HEARTH_OK;
    if (tools != NULL && !json_is_array(tools) && !json_is_null(tools))
        return convert_fault(convert, field_path_of("tools"), "must be a list of tools");
    json_array_foreach(tools, i, tool) if (rc == HEARTH_OK) rc =
        read_tool(convert, tool, field_path_of("tools[%zu]", i));
    return rc;
}

static bool has_tool(const struct convert *convert, const char *name)
{
    size_t i;
    json_t *tool;
    json_array_foreach(
        json_object_get(convert->chat, "tools"), i,
        tool) if (convert_is(json_object_get(json_object_get(tool, "function"), "name"), name)) return true;
    return false;
}

/* Whether the choice is among tools of which the only one, or the named one, was left out. */
static bool chooses_what_was_left_out(const struct convert *convert, const json_t *name)
{
    const json_t *tools = json_object_get(convert->body, "tools");
    size_t i;
    json_t *tool;
    if (name == NULL) return json_array_size(tools) > 0 && json_object_get(convert->chat, "tools") == NULL;
    json_array_foreach(
        tools, i, tool) if (convert_is(json_object_get(tool, "name"),
                                       json_string_value(name))) return !has_tool(convert, json_string_value(name));
    return false;
}

static int read_tool_choice(struct convert *convert)
{
    enum { AUTO, ANY, NONE };
    static const char *const same[][2] = {
        [AUTO] = {"auto", "auto"}, [ANY] = {"any", "required"}, [NONE] = {"none", "none"}};
    const json_t *choice = json_object_get(convert->body, "tool_choice");
    const json_t *type = json_object_get(choice, "type");
    struct field_path at = field_path_of("tool_choice");
    if (choice == NULL || json_is_null(choice)) return HEARTH_OK;
    if (json_is_true(json_object_get(choice, "disable_parallel_tool_use")))
        convert_set(convert, "parallel_tool_calls", json_false());
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        if (!convert_is(type, same[i][0])) continue;
        if (i == ANY && chooses_what_was_left_out(convert, NULL)) return HEARTH_OK;
        convert_set(convert, "tool_choice", json_string(same[i][1]));
        return HEARTH_OK;
    }
    if (!convert_is(type, "tool"))
        return convert_fault(convert, field_path_of("tool_choice.type"),
                             "must be \"auto\", \"any\", \"tool\" or \"none\"");
    const json_t *name = convert_string(convert, choice, at, "name");
    if (name == NULL) return HEARTH_INVALID;
    if (!chooses_what_was_left_out(convert, name)) convert_choose_tool(convert, name);
    return HEARTH_OK;
}

/* ---- Limits, reasoning and output format ---- */

static int read_max_tokens(struct convert *convert)
{
    const json_t *value = json_object_get(convert->body, "max_tokens");
    int64_t n = MAX_TOKENS;
    if (value != NULL && !json_is_null(value) && !field_whole(value, 1, INT32_MAX, &n))
        return convert_fault(convert, field_path_of("max_tokens"), "must be a whole number of at least 1");
    convert_set(convert, "max_tokens", json_integer(n));
    return HEARTH_OK;
}

static int read_stops(struct convert *convert)
{
    const json_t *stops = json_object_get(convert->body, "stop_sequences");
    size_t i;
    json_t *item;
    bool good = json_is_array(stops) && json_array_size(stops) <= FIELDS_STOP_MAX;
    if (stops == NULL || json_is_null(stops)) return HEARTH_OK;
    json_array_foreach(stops, i, item) good = good && field_string(item) != NULL && json_string_length(item) > 0;
    if (!good)
        return convert_fault(convert, field_path_of("stop_sequences"),
                             "must be a list of up to 16 strings, none empty");
    convert_set(convert, "stop", json_incref((json_t *)stops));
    return HEARTH_OK;
}

/* Without the field the template decides; "adaptive" is reasoning without a budget. */
static int read_thinking_budget(struct convert *convert)
{
    const json_t *thinking = json_object_get(convert->body, "thinking");
    const json_t *type = json_object_get(thinking, "type");
    int64_t n;
    if (thinking == NULL || json_is_null(thinking)) return HEARTH_OK;
    if (!convert_is(type, "enabled") && !convert_is(type, "disabled") && !convert_is(type, "adaptive"))
        return convert_fault(convert, field_path_of("thinking.type"),
                             "must be \"enabled\", \"disabled\" or \"adaptive\"");
    convert_set(convert, "enable_thinking", json_boolean(!convert_is(type, "disabled")));
    if (!convert_is(type, "enabled")) return HEARTH_OK;
    if (!field_whole(json_object_get(thinking, "budget_tokens"), 1, INT32_MAX, &n))
        return convert_fault(convert, field_path_of("thinking.budget_tokens"), "must be a whole number of at least 1");
    convert_set(convert, "thinking_budget_tokens", json_integer(n));
    return HEARTH_OK;
}

static int read_output_config(struct convert *convert)
{
    const json_t *config = json_object_get(convert->body, "output_config");
    const json_t *effort = json_object_get(config, "effort"), *format = json_object_get(config, "format");
    if (effort != NULL && !json_is_null(effort)) {
        if (convert_string(convert, config, field_path_of("output_config"), "effort") == NULL) return HEARTH_INVALID;
        convert_set(convert, "reasoning_effort", json_incref((json_t *)effort));
    }
    if (format == NULL || json_is_null(format)) return HEARTH_OK;
    struct field_path at = field_path_of("output_config.format");
    if (!convert_is(json_object_get(format, "type"), "json_schema")) return convert_bad_type(convert, format, at);
    const json_t *schema = convert_object(convert, format, at, "schema");
    if (schema == NULL) return HEARTH_INVALID;
    convert_set(convert, "json_schema", json_incref((json_t *)schema));
    return HEARTH_OK;
}

json_t *anthropic_chat(const json_t *body, struct uploads *uploads, struct header_list *left_out, hearth_error *error)
{
    static int (*const readers[])(struct convert *) = {read_system,          read_messages,     read_tools,
                                                       read_tool_choice,     read_max_tokens,   read_stops,
                                                       read_thinking_budget, read_output_config};
    struct convert convert;
    convert_open(&convert, body, uploads, left_out, error);
    int rc = convert_refuse(&convert, refused);
    for (size_t i = 0; i < sizeof readers / sizeof *readers && rc == HEARTH_OK; i++) rc = readers[i](&convert);
    return convert_close(&convert, rc);
}

/* ---- The API ---- */

static const char *const known[] = {"messages",
                                    "system",
                                    "max_tokens",
                                    "stop_sequences",
                                    "thinking",
                                    "tools",
                                    "tool_choice",
                                    "metadata",
                                    "service_tier",
                                    "container",
                                    "mcp_servers",
                                    "context_management",
                                    "output_config",
                                    "cache_control",
                                    "inference_geo",
                                    "speed",
                                    "keep_alive",
                                    "thread",
                                    NULL};

const struct fields_api anthropic_api = {
    .name = "messages", .convert = anthropic_chat, .known = known, .has_table = true};
