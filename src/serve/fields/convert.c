/* Conversion of other APIs' bodies to OpenAI chats: see convert.h. */
#include "serve/fields/convert.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/json_text.h"
#include "serve/fields/fields_readers.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Fields that are not copied: other APIs have fields of their own for these, or none (all have one choice only). */
static const char of_chats[] =
    "messages prompt tools tool_choice response_format n best_of logprobs n_probs top_logprobs stream_options stop "
    "n_predict max_tokens max_completion_tokens functions function_call audio modalities reasoning_effort reasoning "
    "thinking prompt_logprobs";

bool convert_passes(const char *name)
{
    return !words_have(of_chats, name);
}

void convert_open(struct convert *convert, const json_t *body, struct uploads *uploads, struct header_list *left_out,
                  hearth_error *error)
{
    *convert = (struct convert){
        .body = body, .chat = json_copy((json_t *)body), .uploads = uploads, .left_out = left_out, .error = error};
    const char *name;
    json_t *value;
    void *next;
    json_object_foreach_safe(convert->chat, next, name, value) if (!convert_passes(name))
        json_object_del(convert->chat, name);
    convert_set(convert, "messages", json_array());
    convert_set(convert, FIELDS_PLACES, json_pack("{s:[],s:[]}", "messages", "tools"));
}

json_t *convert_close(struct convert *convert, int rc)
{
    convert_end_message(convert);
    json_decref(convert->lost);
    if (rc == HEARTH_OK) return convert->chat;
    json_decref(convert->chat);
    return NULL;
}

/* ---- Errors ---- */

int convert_fault(const struct convert *convert, struct field_path at, const char *what)
{
    return error_at(convert->error, HEARTH_INVALID, at.v, "'%s' %s", at.v, what);
}

int convert_refuse(const struct convert *convert, const char *const *names)
{
    for (; *names != NULL; names++)
        if (fields_asks(convert->body, *names))
            return error_at(convert->error, HEARTH_UNSUPPORTED, *names,
                            "'%s' is not supported here: leave it out of the request", *names);
    return HEARTH_OK;
}

static struct field_path member_path(struct field_path at, const char *name)
{
    return at.v[0] == '\0' ? field_path_of("%s", name) : field_path_of("%.70s.%.24s", at.v, name);
}

const json_t *convert_string(const struct convert *convert, const json_t *object, struct field_path at,
                             const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (json_is_string(value)) return value;
    convert_fault(convert, member_path(at, name), value == NULL ? "is missing: a string" : "must be a string");
    return NULL;
}

const json_t *convert_object(const struct convert *convert, const json_t *object, struct field_path at,
                             const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (json_text_is_object(value)) return value;
    convert_fault(convert, member_path(at, name), value == NULL ? "is missing: an object" : "must be an object");
    return NULL;
}

int convert_bad_type(const struct convert *convert, const json_t *object, struct field_path at)
{
    const json_t *type = json_object_get(object, "type");
    const char *text = field_string(type);
    struct field_path member = member_path(at, "type");
    if (text == NULL) return convert_fault(convert, member, type == NULL ? "is missing" : "must be a string");
    return error_at(convert->error, HEARTH_UNSUPPORTED, member.v, "'%s' is \"%.64s\", which is not supported here",
                    member.v, text);
}

/* ---- What a chat cannot have ---- */

int convert_leave_out(const struct convert *convert, struct field_path at)
{
    header_list_add(convert->left_out, at.v);
    return HEARTH_OK;
}

int convert_unknown(const struct convert *convert, const json_t *object, struct field_path at)
{
    return convert->asks ? convert_bad_type(convert, object, at) : convert_leave_out(convert, at);
}

void convert_lose_call(struct convert *convert, const json_t *id)
{
    if (field_string(id) == NULL) return;
    if (convert->lost == NULL) convert->lost = json_object();
    json_object_set_new(convert->lost, json_string_value(id), json_true());
}

bool convert_lost_call(const struct convert *convert, const json_t *id)
{
    return field_string(id) != NULL && json_object_get(convert->lost, json_string_value(id)) != NULL;
}

size_t convert_asked_from(const json_t *messages)
{
    size_t i = json_array_size(messages);
    while (i > 0) {
        const json_t *role = json_object_get(json_array_get(messages, i - 1), "role");
        if (!convert_is(role, "user") && !convert_is(role, "system") && !convert_is(role, "developer")) break;
        i--;
    }
    return i;
}

void convert_join(json_t *texts, const json_t *more)
{
    struct buf lines = {0};
    size_t i;
    json_t *text;
    bool has_media = false;
    json_array_foreach(more, i, text) has_media = has_media || !json_is_string(text);
    json_array_foreach(more, i, text)
    {
        if (has_media) json_array_append(texts, text);
        if (i > 0) buf_puts(&lines, "\n");
        buf_append(&lines, json_string_value(text), json_string_length(text));
    }
    if (!has_media && json_array_size(more) > 0)
        json_array_append_new(texts, json_stringn(buf_text(&lines), lines.len));
    buf_release(&lines);
}

/* ---- Names ---- */

/* Bytes at the beginning of `param` that match the field's name; 0: none. */
static size_t match_field(const char *field, const char *param)
{
    const char *at = param;
    for (; *field != '\0'; field++) {
        if (*at++ != *field) return 0;
        if (*field == '[') at += strspn(at, "0123456789");
    }
    return strchr(".[", *at) != NULL ? (size_t)(at - param) : 0; /* strchr() finds the end of the string too */
}

static struct field_path client_path(const struct convert_name *name, const char *param, size_t matched)
{
    const char *brackets = strstr(name->own, "[]");
    if (brackets == NULL) return field_path_of("%s", name->own);
    const char *index = strchr(param, '[') + 1;
    return field_path_of("%.*s%.*s%s%s", (int)(brackets + 1 - name->own), name->own, (int)strspn(index, "0123456789"),
                         index, brackets + 1, param + matched);
}

hearth_error convert_rename(const hearth_error *error, const struct convert_name *names, size_t n)
{
    hearth_error renamed = *error;
    for (size_t i = 0; i < n; i++) {
        size_t matched = match_field(names[i].chat, error->param), len = strlen(error->param);
        const char *message = error->message;
        if (matched == 0) continue;
        struct field_path own = client_path(&names[i], error->param, matched);
        bool begins = message[0] == '\'' && strncmp(message + 1, error->param, len) == 0 && message[1 + len] == '\'';
        bool lists = strncmp(message, error->param, len) == 0 && message[len] == '[';
        if (begins)
            error_at(&renamed, error->code, own.v, "'%s'%s", own.v, message + len + 2);
        else if (lists)
            error_at(&renamed, error->code, own.v, "%s%s", own.v, message + len);
        else
            error_at(&renamed, error->code, own.v, "%s", message);
        error_note_length(&renamed, (size_t)error->n_prompt, (size_t)error->window);
        return renamed;
    }
    return renamed;
}

bool convert_is(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* ---- Fields ---- */

void convert_set(struct convert *convert, const char *name, json_t *value)
{
    json_object_set_new(convert->chat, name, value);
}

/* Copies a member under another name unless it is null. */
static void copy_as(json_t *to, const char *as, const json_t *from, const char *name)
{
    json_t *value = json_object_get(from, name);
    if (value != NULL && !json_is_null(value)) json_object_set(to, as, value);
}

static void add_place(struct convert *convert, const char *list, json_t *place)
{
    json_t *places = json_object_get(convert->chat, FIELDS_PLACES);
    json_array_append_new(json_object_get(places, list), place);
}

void convert_add_tool(struct convert *convert, const json_t *tool, const char *schema)
{
    json_t *function = json_object();
    copy_as(function, "name", tool, "name");
    copy_as(function, "description", tool, "description");
    copy_as(function, "parameters", tool, schema);
    copy_as(function, "strict", tool, "strict");
    add_place(convert, "tools", json_string(convert->at.v));
    json_t *tools = json_object_get(convert->chat, "tools");
    if (tools == NULL) convert_set(convert, "tools", tools = json_array());
    json_array_append_new(tools, json_pack("{s:s,s:o}", "type", "function", "function", function));
}

json_t *convert_arguments(const json_t *value)
{
    if (json_is_string(value)) return json_incref((json_t *)value);
    char *text = value == NULL || json_is_null(value) ? NULL : json_text_of(value);
    json_t *arguments = json_string(text == NULL ? "{}" : text);
    free(text);
    return arguments;
}

int convert_max_tokens(struct convert *convert, const char *name, int64_t without)
{
    const json_t *value = body_find(convert->body, name);
    int64_t n = without;
    if (value != NULL && !field_whole(value, 1, INT32_MAX, &n))
        return convert_fault(convert, field_path_of("%s", name), "must be a whole number of at least 1");
    if (n > 0) convert_set(convert, "max_tokens", json_integer(n));
    return HEARTH_OK;
}

void convert_choose_tool(struct convert *convert, const json_t *name)
{
    json_t *choice = json_pack("{s:s,s:{s:O}}", "type", "function", "function", "name", name);
    convert_set(convert, "tool_choice", choice);
}

/* ---- Messages ---- */

static void begin_message(struct convert *convert, const char *role)
{
    if (convert->role != NULL && strcmp(convert->role, role) == 0) return;
    convert_end_message(convert);
    convert->role = role;
    convert->texts = json_array();
    convert->calls = json_array();
    convert->place = json_pack("[s]", convert->at.v);
}

void convert_add_text(struct convert *convert, const char *role, const json_t *text)
{
    begin_message(convert, role);
    json_array_append(convert->texts, (json_t *)text);
    json_array_append_new(convert->place, json_string(convert->at.v));
}

void convert_add_texts(struct convert *convert, const char *role, const json_t *texts)
{
    size_t i;
    json_t *text;
    json_array_foreach(texts, i, text) convert_add_text(convert, role, text);
}

void convert_add_reasoning(struct convert *convert, const json_t *text)
{
    begin_message(convert, "assistant");
    buf_append(&convert->reasoning, json_string_value(text), json_string_length(text));
}

void convert_add_call(struct convert *convert, const json_t *id, const json_t *name, const json_t *arguments)
{
    begin_message(convert, "assistant");
    json_array_append_new(convert->calls, json_pack("{s:O,s:s,s:{s:O,s:O}}", "id", id, "type", "function", "function",
                                                    "name", name, "arguments", arguments));
}

/* A single text becomes a string, which all templates accept; several stay a list of parts. */
static json_t *content_of(const json_t *texts)
{
    size_t i;
    json_t *text, *first = json_array_get(texts, 0);
    if (first == NULL) return json_string("");
    if (json_array_size(texts) == 1 && json_is_string(first)) return json_incref(first);
    json_t *parts = json_array();
    json_array_foreach(texts, i, text)
    {
        if (json_is_string(text))
            json_array_append_new(parts, json_pack("{s:s,s:O}", "type", "text", "text", text));
        else
            json_array_append(parts, text);
    }
    return parts;
}

static void add_message(struct convert *convert, json_t *message, json_t *place)
{
    add_place(convert, "messages", place);
    json_array_append_new(json_object_get(convert->chat, "messages"), message);
}

void convert_add_result(struct convert *convert, const json_t *id, const json_t *texts)
{
    convert_end_message(convert);
    add_message(convert, json_pack("{s:s,s:O,s:o}", "role", "tool", "tool_call_id", id, "content", content_of(texts)),
                json_string(convert->at.v));
}

void convert_end_message(struct convert *convert)
{
    if (convert->role == NULL) return;
    json_t *message = json_pack("{s:s,s:o}", "role", convert->role, "content", content_of(convert->texts));
    if (convert->reasoning.len > 0)
        json_object_set_new(message, "reasoning_content", json_stringn(convert->reasoning.v, convert->reasoning.len));
    if (json_array_size(convert->calls) > 0) json_object_set(message, "tool_calls", convert->calls);
    add_message(convert, message, convert->place);
    json_decref(convert->texts);
    json_decref(convert->calls);
    buf_release(&convert->reasoning);
    convert->role = NULL;
}

/* ---- The text in JSON of another service ---- */

/* In the order in which they are written. */
static const char *const names[] = {
    "title",           "name",      "tool_name", "filename", "path",       "url",           "source",
    "description",     "text",      "data",      "content",  "stdout",     "stderr",        "logs",
    "lines",           "output",    "outputs",   "result",   "results",    "sources",       "summary",
    "tool_references", "tools",     "error",     "message",  "error_code", "error_message", "outcome",
    "return_code",     "exit_code",
};

static void put_value(struct buf *out, const char *name, const json_t *value)
{
    size_t i;
    json_t *item;
    const bool is_object = json_text_is_object(value);
    for (i = 0; is_object && i < sizeof names / sizeof *names; i++) {
        const json_t *member = json_object_get(value, names[i]);
        bool is_parts = strcmp(names[i], "content") == 0 && !json_is_string(member);
        /* It is text in a source of text alone, else base64. */
        bool is_bytes = strcmp(names[i], "data") == 0 && !convert_is(json_object_get(value, "type"), "text");
        if (!is_parts && !is_bytes) put_value(out, names[i], member);
    }
    json_array_foreach(value, i, item) put_value(out, name, item);
    bool is_text = json_string_length(value) > 0, is_code = name != NULL && json_is_integer(value);
    if (out->len > 0 && (is_text || is_code)) buf_puts(out, "\n");
    if (is_text) buf_append(out, json_string_value(value), json_string_length(value));
    if (is_code) buf_printf(out, "%s: %lld", name, (long long)json_integer_value(value));
}

json_t *readable_text(const json_t *value)
{
    struct buf out = {0};
    put_value(&out, NULL, value);
    json_t *text = out.len == 0 ? NULL : json_stringn(out.v, out.len);
    buf_release(&out);
    return text;
}
