/* Converts bodies of Anthropic's Messages to OpenAI chats. Tools that only Anthropic's servers run are left out; fields
 * about caching and billing (cache_control, metadata, service_tier, …) are ignored, since caching
 * needs no marks here. No state; any thread. */
#include "serve/anthropic/anthropic.h"

#include "base/json_text.h"
#include "base/log.h"
#include "serve/fields/convert.h"
#include "serve/fields/fields_readers.h"

#include <string.h>

/* Anthropic requires max_tokens; this is llama-server's default for requests without it. */
#define MAX_TOKENS 4096

/* "thread" asks for the messages before to be kept here: SDKs that send it send them all once it is refused. */
static const char *const refused[] = {"container", "mcp_servers", "thread", NULL};

/* ---- Blocks ---- */

/* History is not judged: blocks of tools that Anthropic's servers ran are calls with their results, what has text is
 * text, and the rest is left out. In what the user asks now, a block of an unknown type is refused. */

struct block {
    const char *role; /* of its message */
    const json_t *json;
    struct field_path at;
};

/* The signature of a thinking block is not checked: only Anthropic's servers can. */
static int read_thinking(struct convert *convert, const struct block *block)
{
    const json_t *text = convert_string(convert, block->json, block->at, "thinking");
    if (text == NULL) return HEARTH_INVALID;
    convert_add_reasoning(convert, text);
    return HEARTH_OK;
}

/* Leaves out blocks that have no text or mean nothing here: encrypted thinking, tools that come or go. */
static int skip(struct convert *convert, const struct block *block)
{
    return convert_leave_out(convert, block->at);
}

static const struct upload_form media[] = {{"image", "image_url", "source", {"data", "url"}},
                                           {"document", "file", "source", {"data", "url"}}};

static const struct upload_form *form_of(const json_t *block)
{
    return upload_form_of(media, sizeof media / sizeof *media, json_object_get(block, "type"));
}

/* Collects the texts of a string, of a block or of a list of blocks, with media parts in order. */
static int collect_texts(struct convert *convert, const json_t *content, struct field_path at, json_t *texts);

/* Collects the part of an image or a document; of a document of text, or of blocks, these. One whose bytes only another
 * server keeps has nothing to be shown. */
static int collect_source(struct convert *convert, const struct block *block, json_t *texts)
{
    const json_t *source = json_object_get(block->json, "source"), *type = json_object_get(source, "type");
    json_t *text = json_object_get(source, "data");
    bool is_document = convert_is(json_object_get(block->json, "type"), "document");
    static const char *const headings[] = {"title", "context"};
    for (size_t i = 0; is_document && i < sizeof headings / sizeof *headings; i++) {
        json_t *heading = json_object_get(block->json, headings[i]);
        if (json_string_length(heading) > 0) json_array_append(texts, heading);
    }
    if (is_document && convert_is(type, "content"))
        return collect_texts(convert, json_object_get(source, "content"),
                             field_path_of("%.80s.source.content", block->at.v), texts);
    if (is_document && convert_is(type, "text") && json_is_string(text)) {
        json_array_append(texts, text);
        return HEARTH_OK;
    }
    if (!convert->asks && upload_is_elsewhere(form_of(block->json), block->json))
        return convert_leave_out(convert, block->at);
    json_array_append_new(texts, upload_read(convert->uploads, form_of(block->json), block->json, block->at.v));
    return HEARTH_OK;
}

/* Collects the text of a block that is neither text nor media, as the results of a search or the output of a
 * program. */
static int collect_other(struct convert *convert, const struct block *block, json_t *texts)
{
    const json_t *content = json_object_get(block->json, "content");
    json_t *own = json_array(), *text = readable_text(block->json);
    bool has_content = json_is_array(content) || json_text_is_object(content);
    int rc = HEARTH_OK;
    if (text != NULL) json_array_append_new(own, text);
    if (has_content)
        rc = collect_texts(convert, content, field_path_of("%.80s.content", block->at.v), own);
    else if (text == NULL)
        rc = convert_unknown(convert, block->json, block->at);
    convert_join(texts, own);
    json_decref(own);
    return rc;
}

static int collect_block(struct convert *convert, const struct block *block, json_t *texts)
{
    if (form_of(block->json) != NULL) return collect_source(convert, block, texts);
    if (!convert_is(json_object_get(block->json, "type"), "text")) return collect_other(convert, block, texts);
    const json_t *text = convert_string(convert, block->json, block->at, "text");
    if (text == NULL) return HEARTH_INVALID;
    json_array_append(texts, (json_t *)text);
    return HEARTH_OK;
}

static int collect_texts(struct convert *convert, const json_t *content, struct field_path at, json_t *texts)
{
    size_t i;
    json_t *part;
    int rc = HEARTH_OK;
    if (json_is_string(content)) json_array_append(texts, (json_t *)content);
    if (json_text_is_object(content)) return collect_block(convert, &(struct block){.json = content, .at = at}, texts);
    if (content != NULL && !json_is_null(content) && !json_is_string(content) && !json_is_array(content))
        return convert_fault(convert, at, "must be a string or a list of blocks");
    json_array_foreach(content, i, part)
    {
        struct block block = {.json = part, .at = field_path_of("%.80s[%zu]", at.v, i)};
        if (rc == HEARTH_OK) rc = collect_block(convert, &block, texts);
    }
    return rc;
}

/* Text, media, and blocks with text of other names. */
static int read_others(struct convert *convert, const struct block *block)
{
    json_t *texts = json_array();
    int rc = collect_block(convert, block, texts);
    convert_add_texts(convert, block->role, texts);
    json_decref(texts);
    return rc;
}

static int read_tool_use(struct convert *convert, const struct block *block)
{
    const json_t *id = convert_string(convert, block->json, block->at, "id");
    const json_t *name = id == NULL ? NULL : convert_string(convert, block->json, block->at, "name");
    if (name == NULL) return HEARTH_INVALID;
    if (convert_lost_call(convert, id)) return convert_leave_out(convert, block->at);
    json_t *arguments = convert_arguments(json_object_get(block->json, "input"));
    convert_add_call(convert, id, name, arguments);
    json_decref(arguments);
    return HEARTH_OK;
}

/* is_error is ignored: templates have nothing for it, and the text says that the tool failed. The result does not count
 * as asked by the user. */
static int read_tool_result(struct convert *convert, const struct block *block)
{
    const bool asks = convert->asks;
    const json_t *id = convert_string(convert, block->json, block->at, "tool_use_id");
    if (id == NULL) return HEARTH_INVALID;
    if (convert_lost_call(convert, id)) return convert_leave_out(convert, block->at);
    json_t *texts = json_array();
    struct field_path at = field_path_of("%.80s.content", block->at.v);
    convert->asks = false;
    int rc = collect_texts(convert, json_object_get(block->json, "content"), at, texts);
    convert->asks = asks;
    if (rc == HEARTH_OK) convert_add_result(convert, id, texts);
    json_decref(texts);
    return rc;
}

typedef int block_reader(struct convert *convert, const struct block *block);

/* Calls of tools that Anthropic's servers ran (server_tool_use, web_search_tool_result, …) are calls like others. */
static const struct {
    const char *types; /* words; "*" stands for any beginning */
    block_reader *read;
} blocks[] = {{"text image document search_result compaction tool_reference", read_others},
              {"thinking", read_thinking},
              {"redacted_thinking tool_addition tool_removal mcp_tool_listing fallback", skip},
              {"tool_result", read_tool_result},
              {"*_tool_result", read_tool_result},
              {"tool_use", read_tool_use},
              {"*_tool_use", read_tool_use}};

/* Whether a member is there and a string. */
static bool has(const json_t *block, const char *name)
{
    return json_is_string(json_object_get(block, name));
}

/* NULL: the type is unknown. A block of a tool that Anthropic's servers ran is left out if it lacks what a call
 * needs. */
static block_reader *reader_of(const json_t *block)
{
    const char *type = json_string_value(json_object_get(block, "type"));
    const size_t len = type == NULL ? 0 : strlen(type);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        const bool is_others = blocks[i].types[0] == '*';
        const char *end = blocks[i].types + is_others;
        bool has_end = len > strlen(end) && strcmp(type + len - strlen(end), end) == 0;
        if (!(is_others ? has_end : words_have(end, type))) continue;
        bool is_result = blocks[i].read == read_tool_result;
        bool is_whole = is_result ? has(block, "tool_use_id") : has(block, "id") && has(block, "name");
        return is_others && !is_whole ? skip : blocks[i].read;
    }
    return NULL;
}

/* A block of another type is text if it has some under that name. */
static int read_unknown(struct convert *convert, const struct block *block)
{
    const json_t *text = json_object_get(block->json, "text");
    if (field_string(json_object_get(block->json, "type")) == NULL || json_string_length(text) == 0)
        return convert_unknown(convert, block->json, block->at);
    convert_add_text(convert, block->role, text);
    return HEARTH_OK;
}

/* ---- Messages ---- */

/* Consecutive messages of one role are one turn, as with Anthropic. */
static int read_message(struct convert *convert, const json_t *message, struct field_path at)
{
    const char *role = field_string(json_object_get(message, "role"));
    const json_t *content = json_object_get(message, "content");
    size_t i;
    json_t *item;
    int rc = HEARTH_OK;
    if (!words_have("user assistant system", role))
        return convert_fault(convert, field_path_of("%s.role", at.v), "must be \"user\" or \"assistant\"");
    convert->at = at;
    if (json_is_string(content)) convert_add_text(convert, role, content);
    if (!json_is_string(content) && !json_is_array(content))
        return convert_fault(convert, field_path_of("%s.content", at.v), "must be a string or a list of blocks");
    json_array_foreach(content, i, item)
    {
        struct block block = {.role = role, .json = item, .at = field_path_of("%s.content[%zu]", at.v, i)};
        convert->at = block.at;
        block_reader *read = reader_of(block.json);
        if (rc == HEARTH_OK) rc = (read != NULL ? read : read_unknown)(convert, &block);
    }
    return rc;
}

static int read_messages(struct convert *convert)
{
    const json_t *messages = json_object_get(convert->body, "messages");
    size_t i, k;
    json_t *message, *block;
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
    /* The calls that are left out, or whose results are, before any message is read. */
    json_array_foreach(messages, i, message) json_array_foreach(json_object_get(message, "content"), k, block)
    {
        block_reader *read = reader_of(block);
        if (read != NULL && read != skip) continue;
        convert_lose_call(convert, json_object_get(block, "id"));
        convert_lose_call(convert, json_object_get(block, "tool_use_id"));
    }
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
    int rc = collect_texts(convert, json_object_get(convert->body, "system"), field_path_of("system"), texts);
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

static int read_tools(struct convert *convert)
{
    const json_t *tools = json_object_get(convert->body, "tools");
    size_t i;
    json_t *tool;
    if (tools != NULL && !json_is_array(tools) && !json_is_null(tools))
        return convert_fault(convert, field_path_of("tools"), "must be a list of tools");
    json_array_foreach(tools, i, tool)
    {
        const json_t *type = body_find(tool, "type");
        struct field_path at = field_path_of("tools[%zu]", i);
        if (type != NULL && !json_is_string(type)) return convert_bad_type(convert, tool, at);
        if (type != NULL && !convert_is(type, "custom")) {
            convert_leave_out(convert, at);
            continue;
        }
        if (convert_string(convert, tool, at, "name") == NULL) return HEARTH_INVALID;
        if (convert_object(convert, tool, at, "input_schema") == NULL) return HEARTH_INVALID;
        convert->at = at;
        convert_add_tool(convert, tool, "input_schema");
    }
    return HEARTH_OK;
}

/* Whether the choice is among tools of which the only one, or the named one, was left out. */
static bool chooses_what_was_left_out(const struct convert *convert, const json_t *name)
{
    const json_t *tools = json_object_get(convert->body, "tools"), *kept = json_object_get(convert->chat, "tools");
    const char *its = json_string_value(name);
    size_t i;
    json_t *tool;
    bool was_given = false, is_kept = false;
    if (name == NULL) return json_array_size(tools) > 0 && kept == NULL;
    json_array_foreach(tools, i, tool) was_given = was_given || convert_is(json_object_get(tool, "name"), its);
    json_array_foreach(kept, i, tool) is_kept =
        is_kept || convert_is(json_object_get(json_object_get(tool, "function"), "name"), its);
    return was_given && !is_kept;
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
    return convert_max_tokens(convert, "max_tokens", MAX_TOKENS);
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

static const char known[] =
    "messages system max_tokens stop_sequences thinking tools tool_choice metadata service_tier container "
    "mcp_servers context_management output_config cache_control inference_geo speed keep_alive thread";

const struct fields_api anthropic_api = {
    .name = "messages", .convert = anthropic_chat, .known = known, .has_table = true};
