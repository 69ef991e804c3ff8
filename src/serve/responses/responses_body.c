/* Converts bodies of OpenAI's Responses to chats. history.c has found the stored items; responses_tools.c reads tools.
 * Items, both stored ones and those of the input, are history and are not judged. Those of tools that OpenAI's servers
 * ran are calls, with their results where these are known. Items without text are left out. In what the user asks now,
 * a part of an unknown type is refused. Fields without effect here (truncation, service_tier, …) are repeated in the
 * response with the value that holds. No state; any thread. */
#include "base/json_text.h"
#include "serve/fields/convert.h"
#include "serve/fields/fields_readers.h"
#include "serve/responses/responses.h"

#include <string.h>

struct item {
    const json_t *json;
    struct field_path at;
    const json_t *call_ids; /* by the ids of the items that are calls */
};

/* ---- Parts ---- */

static const struct upload_form part_forms[] = {{"input_image", "image_url", "image_url", {"url"}},
                                                {"computer_screenshot", "image_url", "image_url", {"url"}},
                                                {"input_audio", "input_audio", "input_audio", {"data"}},
                                                {"input_file", "file", NULL, {"file_data", "file_url"}}};

/* Media whose bytes only another server keeps have nothing to be shown. */
static int collect_part(const struct convert *convert, const json_t *part, struct field_path at, json_t *texts)
{
    static const char texts_of[] = "input_text output_text reasoning_text summary_text";
    const json_t *type = json_object_get(part, "type");
    const struct upload_form *form = upload_form_of(part_forms, sizeof part_forms / sizeof *part_forms, type);
    const char *member = words_have(texts_of, json_string_value(type)) ? "text" : NULL;
    if (convert_is(type, "refusal")) member = "refusal";
    if (form != NULL && !convert->asks && upload_is_elsewhere(form, part)) return convert_leave_out(convert, at);
    if (form != NULL) {
        json_array_append_new(texts, upload_read(convert->uploads, form, part, at.v));
        return HEARTH_OK;
    }
    /* Neither text nor of part_forms: another server's tool found or printed it. */
    if (member == NULL) {
        json_t *text = readable_text(part);
        if (text == NULL) return convert_unknown(convert, part, at);
        json_array_append_new(texts, text);
        return HEARTH_OK;
    }
    const json_t *text = convert_string(convert, part, at, member);
    if (text == NULL) return HEARTH_INVALID;
    json_array_append(texts, (json_t *)text);
    return HEARTH_OK;
}

/* Collects the texts of a string, of a part, or of a list of parts, with media parts in order. */
static int collect_texts(const struct convert *convert, const json_t *content, struct field_path at, json_t *texts)
{
    size_t i;
    json_t *part;
    int rc = HEARTH_OK;
    if (json_is_string(content)) json_array_append(texts, (json_t *)content);
    if (json_text_is_object(content)) return collect_part(convert, content, at, texts);
    if (!json_is_string(content) && !json_is_array(content))
        return convert_fault(convert, at, "must be a string or a list of parts");
    json_array_foreach(content, i, part) if (rc == HEARTH_OK) rc =
        collect_part(convert, part, field_path_of("%.80s[%zu]", at.v, i), texts);
    return rc;
}

/* ---- Messages and reasoning ---- */

/* Each user message stays a message of its own; the assistant's consecutive items become one. */
static int read_message(struct convert *convert, const struct item *item)
{
    const char *role = field_string(json_object_get(item->json, "role"));
    if (!words_have("user assistant system developer", role))
        return convert_fault(convert, field_path_of("%s.role", item->at.v),
                             "must be \"user\", \"assistant\", \"system\" or \"developer\"");
    if (strcmp(role, "developer") == 0) role = "system"; /* that is what templates have */
    json_t *texts = json_array();
    struct field_path at = field_path_of("%s.content", item->at.v);
    int rc = collect_texts(convert, json_object_get(item->json, "content"), at, texts);
    if (convert_is(json_object_get(item->json, "role"), "user")) convert_end_message(convert);
    convert_add_texts(convert, role, texts);
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
    if (rc == HEARTH_OK && json_array_size(texts) == 0 && fields_asks(item->json, "encrypted_content"))
        rc = convert_leave_out(convert, item->at);
    json_array_foreach(texts, i, text) if (rc == HEARTH_OK) convert_add_reasoning(convert, text);
    json_decref(texts);
    return rc;
}

/* The summary of what came before; encrypted ones cannot be read. */
static int read_compaction(struct convert *convert, const struct item *item)
{
    json_t *summary = compaction_text(item->json), *text = summary != NULL ? NULL : readable_text(item->json);
    if (summary != NULL) {
        /* A summary that hearth made is told as the user would: it is no turn of the assistant's. */
        convert_end_message(convert);
        convert_add_text(convert, "user", summary);
        json_decref(summary);
        return HEARTH_OK;
    }
    if (text == NULL) return convert_leave_out(convert, item->at);
    convert_add_text(convert, "assistant", text);
    json_decref(text);
    return HEARTH_OK;
}

static int refuse_reference(struct convert *convert, const struct item *item)
{
    return convert_fault(convert, item->at, "refers to an item that is not stored here: send the item itself");
}

/* ---- Calls of the client's tools ---- */

static int read_call(struct convert *convert, const struct item *item)
{
    const bool is_custom = convert_is(json_object_get(item->json, "type"), "custom_tool_call");
    const char *member = is_custom ? "input" : "arguments";
    const json_t *id = convert_string(convert, item->json, item->at, "call_id");
    const json_t *name = id == NULL ? NULL : convert_string(convert, item->json, item->at, "name");
    const json_t *given = json_object_get(item->json, member);
    if (name == NULL) return HEARTH_INVALID;
    if (is_custom || !json_text_is_object(given)) given = convert_string(convert, item->json, item->at, member);
    if (given == NULL) return HEARTH_INVALID;
    if (convert_lost_call(convert, id)) return convert_leave_out(convert, item->at);
    json_t *arguments = is_custom ? custom_tool_arguments(given) : convert_arguments(given);
    json_t *by_model = responses_tool_name(json_object_get(item->json, "namespace"), name);
    convert_add_call(convert, id, by_model, arguments);
    json_decref(by_model);
    json_decref(arguments);
    return HEARTH_OK;
}

static int read_call_output(struct convert *convert, const struct item *item)
{
    const json_t *id = convert_string(convert, item->json, item->at, "call_id");
    if (id == NULL) return HEARTH_INVALID;
    if (convert_lost_call(convert, id)) return convert_leave_out(convert, item->at);
    json_t *texts = json_array();
    struct field_path at = field_path_of("%s.output", item->at.v);
    int rc = collect_texts(convert, json_object_get(item->json, "output"), at, texts);
    if (rc == HEARTH_OK) convert_add_result(convert, id, texts);
    json_decref(texts);
    return rc;
}

/* ---- Calls of tools that have a type of their own ---- */

/* A call is shown with the name of its tool (NULL: the item's), and with a member as its arguments. Its result is a
 * member, too, of another item or (`own`) of the same one. */
struct call_form {
    const char *type, *name, *member, *own;
    bool needs_own; /* without it the call says nothing: the assistant's message has what came of it */
};

static const struct call_form call_forms[] = {
    {"local_shell_call", "local_shell", "action", NULL, false},
    {"shell_call", "shell", "action", NULL, false},
    {"apply_patch_call", "apply_patch", "operation", NULL, false},
    {"computer_call", "computer", "actions", NULL, false},
    {"computer_call", "computer", "action", NULL, false},
    {"tool_search_call", "tool_search", "arguments", NULL, false},
    {"program", "program", "code", NULL, false},
    {"code_interpreter_call", "code_interpreter", "code", "outputs", false},
    {"mcp_call", NULL, "arguments", "output", false},
    {"file_search_call", "file_search", "queries", "results", true},
    {"web_search_call", "web_search", "action", "sources", true},
};

static const struct {
    const char *type, *member;
} result_forms[] = {
    {"local_shell_call_output", "output"}, {"shell_call_output", "output"},    {"apply_patch_call_output", "output"},
    {"apply_patch_call_output", "status"}, {"computer_call_output", "output"}, {"tool_search_output", "tools"},
    {"program_output", "result"},
};

/* The call that an item belongs to. A result may name the item of its call instead. */
static const json_t *call_of(const struct item *item)
{
    const json_t *id = json_object_get(item->json, "call_id"), *own = json_object_get(item->json, "id");
    if (field_string(id) != NULL) return id;
    const json_t *of_call = field_string(own) == NULL ? NULL : json_object_get(item->call_ids, json_string_value(own));
    return of_call != NULL ? of_call : field_string(own) != NULL ? own : NULL;
}

/* The result of a call and its failure, as its own item has them, in a list owned by the caller; NULL: none. The
 * sources of a search stand with what was searched for. */
static json_t *own_result(const json_t *item, const struct call_form *form)
{
    if (form->own == NULL) return NULL;
    json_t *result = body_find(item, form->own), *error = body_find(item, "error");
    if (result == NULL) result = body_find(body_find(item, form->member), form->own);
    if (result == NULL && error == NULL) return NULL;
    json_t *list = json_is_array(result) ? json_copy(result) : json_array();
    if (result != NULL && !json_is_array(result)) json_array_append(list, result);
    if (error != NULL) json_array_append(list, error);
    return list;
}

/* NULL: it is no such call, or has nothing to be shown. */
static const struct call_form *call_form_of(const struct item *item)
{
    for (size_t i = 0; i < sizeof call_forms / sizeof *call_forms; i++) {
        const struct call_form *form = &call_forms[i];
        bool fits = convert_is(json_object_get(item->json, "type"), form->type);
        bool named = form->name != NULL || field_string(json_object_get(item->json, "name")) != NULL;
        bool whole = fits && named && call_of(item) != NULL && body_find(item->json, form->member) != NULL;
        json_t *result = whole && form->needs_own ? own_result(item->json, form) : NULL;
        bool has_result = result != NULL;
        json_decref(result);
        if (whole && (!form->needs_own || has_result)) return form;
    }
    return NULL;
}

/* The member with what the item's tool gave; NULL: the item is no such result. */
static const char *result_member(const struct item *item)
{
    for (size_t i = 0; i < sizeof result_forms / sizeof *result_forms; i++) {
        bool fits = convert_is(json_object_get(item->json, "type"), result_forms[i].type) && call_of(item) != NULL;
        if (fits && body_find(item->json, result_forms[i].member) != NULL) return result_forms[i].member;
    }
    return NULL;
}

/* A result may be anything: text, parts, objects of its tool. Tools that were found are shown as they are declared. */
static int add_result(struct convert *convert, const struct item *item, const json_t *result, const char *member)
{
    json_t *texts = json_array(), *joined = json_array();
    json_t *shown = strcmp(member, "tools") == 0 ? convert_arguments(result) : json_incref((json_t *)result);
    int rc = HEARTH_OK;
    if (json_text_is_object(shown) || json_is_array(shown) || json_is_string(shown))
        rc = collect_texts(convert, shown, field_path_of("%s.%s", item->at.v, member), texts);
    convert_join(joined, texts);
    if (rc == HEARTH_OK) convert_add_result(convert, call_of(item), joined);
    json_decref(joined);
    json_decref(texts);
    json_decref(shown);
    return rc;
}

static int read_call_by_form(struct convert *convert, const struct item *item, const struct call_form *form)
{
    json_t *name = form->name == NULL ? json_incref(json_object_get(item->json, "name")) : json_string(form->name);
    json_t *value = json_object_get(item->json, form->member), *action = body_find(item->json, "action"), *object;
    object = json_text_is_object(value) ? json_copy(value) : json_pack("{s:O}", form->member, value);
    /* The actions of a computer call may stand in two members. */
    if (action != NULL && strcmp(form->member, "actions") == 0) json_object_set(object, "action", action);
    if (form->own != NULL) json_object_del(object, form->own);
    json_t *arguments = convert_arguments(form->name == NULL && json_is_string(value) ? value : object);
    json_decref(object);
    convert_add_call(convert, call_of(item), name, arguments);
    json_decref(arguments);
    json_decref(name);
    if (form->own == NULL) return HEARTH_OK;
    json_t *result = own_result(item->json, form);
    int rc = result != NULL ? add_result(convert, item, result, form->own)
                            : add_result(convert, item, json_object_get(item->json, "status"), "status");
    json_decref(result);
    return rc;
}

/* ---- All types ---- */

typedef int item_reader(struct convert *convert, const struct item *item);

static item_reader *reader_of(const json_t *item)
{
    static const struct {
        const char *type;
        item_reader *read;
    } types[] = {{"message", read_message},
                 {"function_call", read_call},
                 {"function_call_output", read_call_output},
                 {"custom_tool_call", read_call},
                 {"custom_tool_call_output", read_call_output},
                 {"reasoning", read_reasoning},
                 {"compaction", read_compaction},
                 {"item_reference", refuse_reference}};
    const json_t *type = json_object_get(item, "type");
    if (type == NULL && json_object_get(item, "role") != NULL) return read_message;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (convert_is(type, types[i].type)) return types[i].read;
    return NULL;
}

static int read_item(struct convert *convert, const struct item *item)
{
    item_reader *read = reader_of(item->json);
    const struct call_form *form = call_form_of(item);
    const char *member = result_member(item);
    if (read != NULL) return read(convert, item);
    if (field_string(json_object_get(item->json, "type")) == NULL)
        return convert_bad_type(convert, item->json, item->at);
    if (convert_lost_call(convert, call_of(item))) return convert_leave_out(convert, item->at);
    if (form != NULL) return read_call_by_form(convert, item, form);
    if (member != NULL) return add_result(convert, item, json_object_get(item->json, member), member);
    return convert_leave_out(convert, item->at);
}

/* Reads the stored items and those of the input, if it is a list. */
static int read_all_items(struct convert *convert)
{
    const json_t *const lists[] = {convert->before, json_object_get(convert->body, "input")};
    static const char *const fields[] = {"previous_response_id", "input"};
    size_t i;
    json_t *json, *call_ids = json_object();
    int rc = HEARTH_OK;
    /* Which items are calls. */
    for (size_t k = 0; k < 2; k++) {
        json_array_foreach(lists[k], i, json)
        {
            const json_t *id = json_object_get(json, "id"), *call = json_object_get(json, "call_id");
            if (field_string(id) != NULL && field_string(call) != NULL)
                json_object_set(call_ids, json_string_value(id), (json_t *)call);
        }
    }
    /* The calls of which the call or a result will be left out. */
    for (size_t k = 0; k < 2; k++) {
        json_array_foreach(lists[k], i, json)
        {
            struct item item = {.json = json, .call_ids = call_ids};
            bool is_shown = reader_of(json) != NULL || call_form_of(&item) != NULL || result_member(&item) != NULL;
            if (!is_shown) convert_lose_call(convert, call_of(&item));
        }
    }
    for (size_t k = 0; k < 2; k++) {
        const size_t asked_from = convert_asked_from(lists[k]);
        json_array_foreach(lists[k], i, json)
        {
            struct item item = {.json = json, .at = field_path_of("%s[%zu]", fields[k], i), .call_ids = call_ids};
            convert->at = item.at;
            convert->asks = k == 1 && i >= asked_from;
            if (rc == HEARTH_OK) rc = read_item(convert, &item);
        }
    }
    json_decref(call_ids);
    return rc;
}

static const char *const refused[] = {"background", "prompt", NULL};

/* ---- Input ---- */

static int read_input(struct convert *convert)
{
    const json_t *input = json_object_get(convert->body, "input");
    if (!json_is_string(input) && json_array_size(input) == 0)
        return convert_fault(convert, field_path_of("input"), "must be a string or a list of at least one item");
    int rc = read_all_items(convert);
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
    return convert_max_tokens(convert, "max_output_tokens", 0);
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

static const char known[] =
    "input instructions include max_output_tokens max_tool_calls metadata previous_response_id conversation "
    "background prompt prompt_cache_key prompt_cache_options prompt_cache_retention reasoning "
    "safety_identifier service_tier store stream_options text tools tool_choice top_logprobs truncation user "
    "client_metadata context_management keep_alive";

const struct fields_api responses_api = {
    .name = "responses", .convert = responses_chat, .known = known, .has_table = true};
