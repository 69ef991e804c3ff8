/* Readers of chat fields that reach the template: messages, reasoning, generation prompt. No state; any thread. */
#include "base/error.h"
#include "base/json_text.h"
#include "serve/fields/convert.h"
#include "serve/fields/fields_readers.h"

#include <string.h>

/* ---- Messages ---- */

/* Content parts with media: OpenAI's, and those that others have added to them. */
static const struct upload_form media[] = {{"image_url", "image_url", "image_url", {"url"}},
                                           {"input_audio", "input_audio", "input_audio", {"data", "url"}},
                                           {"audio_url", "input_audio", "audio_url", {"url", "data"}},
                                           {"input_video", "input_video", "input_video", {"data", "url"}},
                                           {"video_url", "input_video", "video_url", {"url", "data"}},
                                           {"file", "file", "file", {"file_data", "file_url"}}};

/* The message that is being read. `asks`: it is what the user asks, or what the system prompt says. */
struct message {
    json_t *json;
    struct field_path at;
    bool asks;
    json_t *place; /* its entry in the places (serve/core/errors.h), if parts of it are left out */
};

static void leave_out(struct fields *fields, struct field_path at)
{
    header_list_add(&fields->left_out, at.v);
}

/* The part as it is handed on: text as it is; media without the data, which go to the uploads. NULL: it is left out, as
 * are media of earlier turns whose bytes only another server keeps. Owned by the caller. */
static json_t *read_part(struct fields *fields, const struct message *message, json_t *part, struct field_path at)
{
    json_t *type = json_object_get(part, "type");
    const struct upload_form *form = upload_form_of(media, sizeof media / sizeof *media, type);
    json_object_del(part, "media"); /* which medium a part names is not the client's to say */
    if (!json_is_string(type) || convert_is(type, "text") || convert_is(type, "refusal")) return json_incref(part);
    /* A part of another type: its text, if it has some. Else it is left out (NULL). If the user asks it, it is handed
     * on to be refused. Only its type is handed on, so that its other members do not count as text of the prompt. */
    if (form == NULL) {
        json_t *text = json_object_get(part, "text");
        if (json_string_length(text) > 0) return json_pack("{s:s,s:O}", "type", "text", "text", text);
        return message->asks ? json_pack("{s:O}", "type", json_object_get(part, "type")) : NULL;
    }
    return message->asks || !upload_is_elsewhere(form, part) ? upload_read(&fields->uploads, form, part, at.v) : NULL;
}

static void read_content(struct fields *fields, const struct message *message)
{
    json_t *content = json_object_get(message->json, "content"), *part, *parts = json_array();
    struct field_path at = field_path_of("%.80s.content", message->at.v);
    size_t i;
    json_array_foreach(content, i, part)
    {
        struct field_path here = field_path_of("%.80s[%zu]", at.v, i);
        json_t *read = read_part(fields, message, part, here);
        if (read == NULL) {
            leave_out(fields, here);
            continue;
        }
        json_array_append_new(parts, read);
        json_array_append_new(message->place, json_string(here.v));
    }
    bool lost_all = json_array_size(content) > 0 && json_array_size(parts) == 0;
    if (json_is_array(content))
        json_object_set_new(message->json, "content", lost_all ? json_string("") : json_incref(parts));
    json_decref(parts);
    /* The user's message that is nothing but an image in base64, as clients of other servers send it. */
    content = json_object_get(message->json, "content");
    if (!convert_is(json_object_get(message->json, "role"), "user") || !upload_is_image(content)) return;
    uploads_take(&fields->uploads, content, at.v);
    json_object_set_new(message->json, "content", json_pack("[o]", uploads_part(&fields->uploads, "image_url")));
}

/* Sets the content to what the assistant said under another name, where it has none. */
static void read_other_content(struct fields *fields, const struct message *message)
{
    json_t *content = json_object_get(message->json, "content"), *audio = json_object_get(message->json, "audio");
    json_t *refusal = json_object_get(message->json, "refusal"), *transcript = json_object_get(audio, "transcript");
    const bool refuses = json_string_length(refusal) > 0, is_silent = content == NULL || json_is_null(content);
    json_t *said = refuses ? refusal : transcript;
    if (!convert_is(json_object_get(message->json, "role"), "assistant")) return;
    if (is_silent && json_is_string(said)) json_object_set(message->json, "content", said);
    if (!is_silent && refuses) leave_out(fields, field_path_of("%.80s.refusal", message->at.v));
    if (json_text_is_object(audio) && !json_is_string(transcript))
        leave_out(fields, field_path_of("%.80s.audio", message->at.v));
}

/* The call of a custom tool as that of a function of one text. Owned by the caller; NULL: it is of another type. */
static json_t *function_call(const json_t *call)
{
    json_t *custom = json_object_get(call, "custom"), *input = json_object_get(custom, "input");
    json_t *name = json_object_get(custom, "name");
    if (!json_text_is_object(call) || json_object_get(call, "function") != NULL) return json_incref((json_t *)call);
    if (!json_is_string(name) || !json_is_string(input)) return NULL;
    json_t *function = json_pack("{s:s,s:{s:O,s:o}}", "type", "function", "function", "name", name, "arguments",
                                 custom_tool_arguments(input));
    if (json_object_get(call, "id") != NULL) json_object_set(function, "id", json_object_get(call, "id"));
    return function;
}

/* Leaves out calls of types that no template can show, and notes their ids as keys of `lost`. */
static void read_calls(struct fields *fields, const struct message *message, json_t *lost)
{
    json_t *calls = json_object_get(message->json, "tool_calls"), *call, *kept = json_array();
    size_t i;
    json_array_foreach(calls, i, call)
    {
        const char *id = field_string(json_object_get(call, "id"));
        json_t *function = function_call(call);
        if (function != NULL) json_array_append_new(kept, function);
        if (function == NULL) leave_out(fields, field_path_of("%.80s.tool_calls[%zu]", message->at.v, i));
        if (function == NULL && id != NULL) json_object_set_new(lost, id, json_true());
    }
    if (json_array_size(kept) > 0) json_object_set(message->json, "tool_calls", kept);
    if (json_array_size(kept) == 0 && json_array_size(calls) > 0) json_object_del(message->json, "tool_calls");
    json_decref(kept);
}

static bool asks(const json_t *message, size_t i, size_t asked_from)
{
    const json_t *role = json_object_get(message, "role");
    return i >= asked_from || convert_is(role, "system") || convert_is(role, "developer");
}

/* The messages as they are handed on: without the results of calls that were left out. Owned by the caller. */
static json_t *read_messages(struct fields *fields, const char *name, const json_t *messages)
{
    const size_t asked_from = convert_asked_from(messages);
    json_t *json, *kept = json_array(), *lost = json_object(), *places = json_array();
    size_t i;
    json_array_foreach(messages, i, json)
    {
        struct message message = {json, field_path_of("%s[%zu]", name, i), asks(json, i, asked_from), NULL};
        const char *call = field_string(json_object_get(json, "tool_call_id"));
        if (call != NULL && json_object_get(lost, call) != NULL) {
            leave_out(fields, message.at);
            continue;
        }
        const size_t n_parts = json_array_size(json_object_get(json, "content"));
        message.place = json_pack("[s]", message.at.v);
        read_content(fields, &message);
        read_other_content(fields, &message);
        read_calls(fields, &message, lost);
        bool is_whole = json_array_size(message.place) == n_parts + 1;
        json_array_append_new(places, is_whole ? json_string(message.at.v) : json_incref(message.place));
        json_decref(message.place);
        json_array_append(kept, json);
    }
    json_decref(lost);
    if (!header_list_is_empty(&fields->left_out)) field_note_places(fields, name, places);
    json_decref(places);
    return kept;
}

int field_messages(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    if (!json_is_array(value) || json_array_size(value) == 0)
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a list of at least one message", name);
    json_t *read = fields->is_converted ? json_incref((json_t *)value) : read_messages(fields, name, value);
    fields->messages = field_with_tools(read);
    json_decref(read);
    fields->params.messages = json_text_public(fields->messages);
    fields->n_prompts = 1;
    return HEARTH_OK;
}

/* ---- Arguments of the template ---- */

static json_t *kwargs_of(struct fields *fields)
{
    if (fields->kwargs == NULL) fields->kwargs = json_object();
    fields->params.template_kwargs = json_text_public(fields->kwargs);
    return fields->kwargs;
}

static void add_kwarg(struct fields *fields, const char *name, json_t *value)
{
    json_object_set_new(kwargs_of(fields), name, value);
}

int field_template_kwargs(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    if (!json_text_is_object(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be an object", name);
    json_object_update(kwargs_of(fields), (json_t *)value);
    return HEARTH_OK;
}

/* "none" turns reasoning off, which every template with reasoning supports; other efforts are passed to the
 * template. */
int field_reasoning_effort(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    const char *effort = field_string(value);
    if (effort == NULL || effort[0] == '\0')
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a word such as \"none\", \"low\" or \"high\"", name);
    if (strcmp(effort, "none") == 0)
        add_kwarg(fields, "enable_thinking", json_false());
    else
        add_kwarg(fields, "reasoning_effort", json_string(effort));
    return HEARTH_OK;
}

int field_enable_thinking(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    bool thinks = false;
    int rc = field_bool(name, value, &thinks, error);
    if (rc == HEARTH_OK) add_kwarg(fields, "enable_thinking", json_boolean(thinks));
    return rc;
}

static int read_budget(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    int64_t n;
    if (!field_whole(value, 0, INT32_MAX, &n))
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a whole number of at least 0", name);
    fields->params.thinking_tokens = (int32_t)n;
    return HEARTH_OK;
}

static int read_exclude(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    return field_bool(name, value, &fields->hides_reasoning, error);
}

/* OpenRouter's form. Members of other APIs' "reasoning" ("summary") are ignored. */
int field_reasoning(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    if (!json_text_is_object(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be an object", name);
    static const struct {
        const char *name, *path;
        field_reader *read;
    } members[] = {{"effort", "reasoning.effort", field_reasoning_effort},
                   {"enabled", "reasoning.enabled", field_enable_thinking},
                   {"max_tokens", "reasoning.max_tokens", read_budget},
                   {"exclude", "reasoning.exclude", read_exclude}};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const json_t *member = json_object_get(value, members[i].name);
        if (member == NULL || json_is_null(member)) continue;
        int rc = members[i].read(fields, members[i].path, member, error);
        if (rc != HEARTH_OK) return rc;
    }
    return HEARTH_OK;
}

/* Anthropic's form, which clients also send to chats, some with "auto" for "adaptive". */
int field_thinking(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    const char *type = field_string(json_object_get(value, "type"));
    const json_t *budget = body_find(value, "budget_tokens");
    if (!words_have("disabled enabled adaptive auto", type))
        return error_at(error, HEARTH_INVALID, "thinking.type",
                        "'%s.type' must be \"enabled\", \"disabled\" or \"adaptive\"", name);
    const bool thinks = strcmp(type, "disabled") != 0;
    add_kwarg(fields, "enable_thinking", json_boolean(thinks));
    if (!thinks || budget == NULL) return HEARTH_OK;
    return read_budget(fields, "thinking.budget_tokens", budget, error);
}

int field_reasoning_format(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    const char *format = field_string(value);
    fields->params.reasoning_in_text = format != NULL && strcmp(format, "none") == 0;
    if (words_have("none auto deepseek deepseek-legacy", format)) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, name, "'%s' must be \"auto\", \"deepseek\" or \"none\"", name);
}

/* ---- How the prompt ends ---- */

/* `true` asks for it as the names of parts do, which the library checks. */
static int check_last(const struct fields *fields, hearth_error *error)
{
    const json_t *messages = json_object_get(fields->body, "messages");
    size_t n = json_array_size(messages);
    const json_t *last = n == 0 ? NULL : json_array_get(messages, n - 1);
    const bool calls = json_array_size(json_object_get(last, "tool_calls")) > 0;
    if (last == NULL || (convert_is(json_object_get(last, "role"), "assistant") && !calls)) return HEARTH_OK;
    struct field_path at = field_path_of("messages[%zu].%s", n - 1, calls ? "tool_calls" : "role");
    return error_at(error, HEARTH_INVALID, at.v,
                    calls ? "'%s' must be absent to continue the message"
                          : "'%s' must be \"assistant\" to continue the message",
                    at.v);
}

int field_continue_final(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    /* llama-server wants add_generation_prompt to be false here, which goes without saying. */
    if (!json_is_false(value) && json_is_true(json_object_get(fields->body, "add_generation_prompt")))
        return error_at(error, HEARTH_INVALID, "add_generation_prompt",
                        "'add_generation_prompt' and 'continue_final_message' cannot both be set: a reply begins a new "
                        "message or continues the last one");
    if (json_is_true(value) && check_last(fields, error) != HEARTH_OK) return (int)error->code;
    const char *part = json_is_boolean(value) ? "" : field_string(value);
    if (json_is_boolean(value))
        fields->params.continue_final = json_is_true(value) ? HEARTH_CONTINUE_AUTO : HEARTH_CONTINUE_NEVER;
    else if (part != NULL && strcmp(part, "content") == 0)
        fields->params.continue_final = HEARTH_CONTINUE_CONTENT;
    else if (part != NULL && strcmp(part, "reasoning_content") == 0)
        fields->params.continue_final = HEARTH_CONTINUE_REASONING;
    else
        return error_at(error, HEARTH_INVALID, name, "'%s' must be true, false, \"content\" or \"reasoning_content\"",
                        name);
    return HEARTH_OK;
}

int field_generation_prompt(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    if (!json_is_boolean(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be true or false", name);
    /* A message that is to be continued has begun, even if it is empty. */
    const json_t *continued = json_object_get(fields->body, "continue_final_message");
    fields->params.no_generation_prompt =
        json_is_false(value) && !json_is_true(continued) && !json_is_string(continued);
    return HEARTH_OK;
}
