/* Converts Ollama's bodies to OpenAI chats and completions. No state; any thread. */
#include "serve/ollama/ollama.h"

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "serve/fields/body.h"
#include "serve/fields/convert.h"
#include "serve/fields/fields_readers.h"

#include <stdlib.h>
#include <string.h>

/* ---- Names ---- */

#define OPTIONS "options."

/* The names of the chat's fields in Ollama's API. Options are copied from "options" under these names. */
static const struct convert_name names[] = {{"temperature", OPTIONS "temperature"},
                                            {"top_k", OPTIONS "top_k"},
                                            {"top_p", OPTIONS "top_p"},
                                            {"min_p", OPTIONS "min_p"},
                                            {"typical_p", OPTIONS "typical_p"},
                                            {"repeat_last_n", OPTIONS "repeat_last_n"},
                                            {"repeat_penalty", OPTIONS "repeat_penalty"},
                                            {"presence_penalty", OPTIONS "presence_penalty"},
                                            {"frequency_penalty", OPTIONS "frequency_penalty"},
                                            {"mirostat", OPTIONS "mirostat"},
                                            {"mirostat_tau", OPTIONS "mirostat_tau"},
                                            {"mirostat_eta", OPTIONS "mirostat_eta"},
                                            {"seed", OPTIONS "seed"},
                                            {"stop", OPTIONS "stop"},
                                            {"max_tokens", OPTIONS "num_predict"},
                                            {"json_schema", "format"},
                                            {"response_format", "format"},
                                            {"enable_thinking", "think"},
                                            {"reasoning_effort", "think"}};

#define N_NAMES (sizeof names / sizeof *names)

/* Options of Ollama's model loader and of samplers that hearth lacks: without effect here. */
static const char idle_options[] =
    "num_ctx num_keep num_batch num_gpu main_gpu num_thread numa low_vram use_mmap use_mlock f16_kv "
    "logits_all vocab_only embedding_only tfs_z penalize_newline rope_frequency_base rope_frequency_scale";

/* Fields of this API alone, and n_cmpl, which it lacks: removed from the chat, so that the table of fields does not
 * read them. */
static const char *const own_fields[] = {"options", "keep_alive", "think",  "format",   "system", "template",
                                         "context", "raw",        "images", "truncate", "shift",  "n_cmpl"};

hearth_error ollama_rename(const hearth_error *error)
{
    return convert_rename(error, names, N_NAMES);
}

/* ---- Options ---- */

static int read_option(struct convert *convert, const char *name, json_t *value)
{
    const size_t len = strlen(OPTIONS);
    const char *field = NULL; /* the chat's; NULL: none */
    for (size_t i = 0; i < N_NAMES; i++)
        if (strncmp(names[i].own, OPTIONS, len) == 0 && strcmp(names[i].own + len, name) == 0) field = names[i].chat;
    if (field == NULL && !words_have(idle_options, name))
        log_event(LOG_INFO, "serve", "unknown option ignored", log_str("option", name));
    if (field == NULL || json_is_null(value)) return HEARTH_OK;
    /* -1, -2 and 0 are unlimited: up to the context window. */
    if (strcmp(name, "num_predict") == 0) {
        int64_t n;
        if (!field_whole(value, -2, INT32_MAX, &n))
            return convert_fault(convert, field_path_of(OPTIONS "num_predict"),
                                 "must be a whole number of at least -2");
        convert_set(convert, "max_tokens", json_integer(n <= 0 ? -1 : n));
        return HEARTH_OK;
    }
    convert_set(convert, field, json_incref(value));
    return HEARTH_OK;
}

/* Sampling parameters outside of "options" are ignored, as by Ollama. */
static int read_options(struct convert *convert)
{
    json_t *options = json_object_get(convert->body, "options"), *value;
    const char *name;
    int rc = HEARTH_OK;
    for (size_t i = 0; i < N_NAMES; i++) json_object_del(convert->chat, names[i].chat);
    if (options != NULL && !json_text_is_object(options) && !json_is_null(options))
        return convert_fault(convert, field_path_of("options"), "must be an object");
    json_object_foreach(options, name, value) if (rc == HEARTH_OK) rc = read_option(convert, name, value);
    return rc;
}

/* ---- Reasoning, output format, logprobs ---- */

static int read_think(struct convert *convert)
{
    const json_t *think = json_object_get(convert->body, "think");
    const char *level = field_string(think);
    if (think == NULL || json_is_null(think)) return HEARTH_OK;
    if (!json_is_boolean(think) && (level == NULL || level[0] == '\0'))
        return convert_fault(convert, field_path_of("think"),
                             "must be true, false or a level: \"low\", \"medium\", \"high\"");
    bool on = level != NULL ? strcmp(level, "none") != 0 : json_is_true(think);
    convert_set(convert, "enable_thinking", json_boolean(on));
    if (level != NULL && on) convert_set(convert, "reasoning_effort", json_string(level));
    return HEARTH_OK;
}

static int read_format(struct convert *convert)
{
    const json_t *format = json_object_get(convert->body, "format");
    bool none = format == NULL || json_is_null(format) || convert_is(format, "");
    if (none) return HEARTH_OK;
    if (convert_is(format, "json"))
        convert_set(convert, "response_format", json_pack("{s:s}", "type", "json_object"));
    else if (json_text_is_object(format))
        convert_set(convert, "json_schema", json_incref((json_t *)format));
    else
        return convert_fault(convert, field_path_of("format"), "must be \"json\" or a JSON schema");
    return HEARTH_OK;
}

/* OpenAI's chats have "logprobs" (a boolean) and "top_logprobs" (a number), its completions "logprobs" (a number). */
static int read_logprobs(struct convert *convert)
{
    const json_t *wanted = json_object_get(convert->body, "logprobs");
    const json_t *top = json_object_get(convert->body, "top_logprobs");
    int64_t n = 0;
    if (wanted != NULL && !json_is_boolean(wanted) && !json_is_null(wanted))
        return convert_fault(convert, field_path_of("logprobs"), "must be true or false");
    if (top != NULL && !json_is_null(top) && !field_whole(top, 0, FIELDS_PROBS_MAX, &n))
        return error_at(convert->error, HEARTH_INVALID, "top_logprobs",
                        "'top_logprobs' must be a whole number from 0 to %d", FIELDS_PROBS_MAX);
    if (!json_is_true(wanted)) return HEARTH_OK;
    bool is_chat = json_object_get(convert->chat, "messages") != NULL;
    convert_set(convert, "logprobs", is_chat ? json_true() : json_integer(n));
    if (is_chat) convert_set(convert, "top_logprobs", json_integer(n));
    return HEARTH_OK;
}

/* Ollama streams by default. */
static int read_stream(struct convert *convert)
{
    const json_t *stream = json_object_get(convert->body, "stream");
    if (stream == NULL || json_is_null(stream)) convert_set(convert, "stream", json_true());
    return HEARTH_OK;
}

static int drop_own_fields(struct convert *convert)
{
    for (size_t i = 0; i < sizeof own_fields / sizeof *own_fields; i++) json_object_del(convert->chat, own_fields[i]);
    return HEARTH_OK;
}

typedef int reader(struct convert *convert);

static int read_all(struct convert *convert, reader *const *readers)
{
    int rc = HEARTH_OK;
    for (; *readers != NULL && rc == HEARTH_OK; readers++) rc = (*readers)(convert);
    return rc;
}

/* ---- Messages ---- */

/* Adds an image part for each image, before the text of their message. */
static int read_images(const struct convert *convert, const json_t *object, struct field_path at, json_t *texts)
{
    const json_t *images = json_object_get(object, "images");
    size_t i;
    json_t *image;
    if (images != NULL && !json_is_null(images) && !json_is_array(images))
        return convert_fault(convert, at, "must be a list of images");
    json_array_foreach(images, i, image)
    {
        struct field_path place = field_path_of("%.80s[%zu]", at.v, i);
        uploads_take(convert->uploads, image, place.v);
        json_array_append_new(texts, uploads_part(convert->uploads, "image_url"));
    }
    return HEARTH_OK;
}

/* State of converting the messages: ids are made up for calls without one, since OpenAI's calls need ids. */
struct conversation {
    struct convert *convert;
    size_t n_calls;
    json_t *open; /* calls without a result: [[id, name], …] */
};

/* The member as a string; NULL if it is missing, null or empty. */
static const json_t *text_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_string_length(value) > 0 ? value : NULL;
}

static int read_call(struct conversation *c, const json_t *call, struct field_path at)
{
    struct field_path in_function = field_path_of("%s.function", at.v);
    const json_t *function = convert_object(c->convert, call, at, "function");
    const json_t *name = function == NULL ? NULL : convert_string(c->convert, function, in_function, "name");
    if (name == NULL) return HEARTH_INVALID;
    json_t *id = json_incref((json_t *)text_of(call, "id"));
    if (id == NULL) id = json_sprintf("call_%zu", c->n_calls);
    json_t *arguments = convert_arguments(json_object_get(function, "arguments"));
    convert_add_call(c->convert, id, name, arguments);
    json_array_append_new(c->open, json_pack("[OO]", id, name));
    c->n_calls++;
    json_decref(arguments);
    json_decref(id);
    return HEARTH_OK;
}

static int read_calls(struct conversation *c, const json_t *message, struct field_path at)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    size_t i;
    json_t *call;
    int rc = HEARTH_OK;
    if (calls != NULL && !json_is_array(calls) && !json_is_null(calls))
        return convert_fault(c->convert, field_path_of("%s.tool_calls", at.v), "must be a list of calls");
    if (json_array_size(calls) > 0) json_array_clear(c->open);
    json_array_foreach(calls, i, call) if (rc == HEARTH_OK) rc =
        read_call(c, call, field_path_of("%s.tool_calls[%zu]", at.v, i));
    return rc;
}

/* The id of the call that a result belongs to: the id in the result, else the first call without a result, of that
 * tool if the result names one. Owned by the caller. */
static json_t *call_of(struct conversation *c, const json_t *message)
{
    const json_t *named = text_of(message, "tool_call_id"), *tool = text_of(message, "tool_name");
    size_t i;
    json_t *call;
    json_array_foreach(c->open, i, call)
    {
        json_t *id = json_array_get(call, 0);
        bool fits = named != NULL ? json_equal(id, (json_t *)named)
                                  : tool == NULL || json_equal(json_array_get(call, 1), (json_t *)tool);
        if (!fits) continue;
        json_incref(id);
        json_array_remove(c->open, i);
        return id;
    }
    return named != NULL ? json_incref((json_t *)named) : json_string("call");
}

static int add_message(struct conversation *c, const json_t *message, const json_t *texts, struct field_path at)
{
    const char *role = field_string(json_object_get(message, "role"));
    const json_t *thinking = text_of(message, "thinking");
    if (!words_have("user assistant system tool", role))
        return convert_fault(c->convert, field_path_of("%s.role", at.v),
                             "must be \"system\", \"user\", \"assistant\" or \"tool\"");
    if (strcmp(role, "tool") == 0) {
        json_t *id = call_of(c, message);
        const json_t *tool = text_of(message, "tool_name");
        convert_add_result(c->convert, id, texts);
        json_t *messages = json_object_get(c->convert->chat, "messages");
        if (tool != NULL)
            json_object_set(json_array_get(messages, json_array_size(messages) - 1), "name", (json_t *)tool);
        json_decref(id);
        return HEARTH_OK;
    }
    convert_add_texts(c->convert, role, texts);
    int rc = HEARTH_OK;
    if (strcmp(role, "assistant") == 0) {
        if (thinking != NULL) convert_add_reasoning(c->convert, thinking);
        rc = read_calls(c, message, at);
    }
    convert_end_message(c->convert);
    return rc;
}

static int read_message(struct conversation *c, const json_t *message, struct field_path at)
{
    const json_t *content = json_object_get(message, "content");
    if (content != NULL && !json_is_string(content) && !json_is_null(content))
        return convert_fault(c->convert, field_path_of("%s.content", at.v), "must be a string");
    json_t *texts = json_array();
    c->convert->at = at;
    int rc = read_images(c->convert, message, field_path_of("%s.images", at.v), texts);
    json_array_append_new(texts, json_is_string(content) ? json_incref((json_t *)content) : json_string(""));
    if (rc == HEARTH_OK) rc = add_message(c, message, texts, at);
    json_decref(texts);
    return rc;
}

static int read_messages(struct convert *convert)
{
    struct conversation c = {.convert = convert, .open = json_array()};
    const json_t *messages = json_object_get(convert->body, "messages");
    size_t i;
    json_t *message;
    int rc = HEARTH_OK;
    json_array_foreach(messages, i, message) if (rc == HEARTH_OK) rc =
        read_message(&c, message, field_path_of("messages[%zu]", i));
    json_decref(c.open);
    return rc;
}

static int read_tools(struct convert *convert)
{
    json_t *tools = json_object_get(convert->body, "tools"), *tool, *typed = json_array();
    size_t i;
    /* Ollama does not look at the type of a tool. */
    json_array_foreach(tools, i, tool)
    {
        bool lacks_type = json_string_length(json_object_get(tool, "type")) == 0 &&
                          json_text_is_object(json_object_get(tool, "function"));
        json_array_append_new(typed, lacks_type ? json_copy(tool) : json_incref(tool));
        if (lacks_type) json_object_set_new(json_array_get(typed, i), "type", json_string("function"));
    }
    if (tools != NULL) convert_set(convert, "tools", json_is_array(tools) ? json_incref(typed) : json_incref(tools));
    json_decref(typed);
    return HEARTH_OK;
}

json_t *ollama_chat_body(const json_t *body, struct uploads *uploads, struct header_list *left_out, hearth_error *error)
{
    static reader *const readers[] = {read_messages, read_tools,  read_options,    read_think, read_format,
                                      read_logprobs, read_stream, drop_own_fields, NULL};
    struct convert convert;
    convert_open(&convert, body, uploads, left_out, error);
    return convert_close(&convert, read_all(&convert, readers));
}

/* ---- Generating ---- */

/* Whether the prompt goes to the model without the chat template. */
static bool completes(const json_t *body)
{
    return json_is_true(json_object_get(body, "raw")) || text_of(body, "suffix") != NULL;
}

/* Refuses a template of the request's own, and "context" (the tokens of an earlier answer). */
static int check_generate(struct convert *convert)
{
    const json_t *raw = json_object_get(convert->body, "raw");
    if (raw != NULL && !json_is_boolean(raw) && !json_is_null(raw))
        return convert_fault(convert, field_path_of("raw"), "must be true or false");
    if (fields_asks(convert->body, "template"))
        return convert_fault(convert, field_path_of("template"),
                             "is not taken from requests: send 'raw' with a whole prompt, or set "
                             "models.NAME.jinja_file");
    if (fields_asks(convert->body, "context"))
        return convert_fault(convert, field_path_of("context"),
                             "is not supported: send the conversation to POST /api/chat");
    if (completes(convert->body) && fields_asks(convert->body, "images"))
        return convert_fault(convert, field_path_of("images"), "are not supported in a prompt without messages");
    return HEARTH_OK;
}

/* The text of the member, "" if it is missing. */
static int take_text(struct convert *convert, const char *name, json_t **text)
{
    json_t *value = json_object_get(convert->body, name);
    *text = NULL;
    if (value != NULL && !json_is_string(value) && !json_is_null(value))
        return convert_fault(convert, field_path_of("%s", name), "must be a string");
    *text = json_is_string(value) ? json_incref(value) : json_string("");
    return HEARTH_OK;
}

static int read_prompt(struct convert *convert)
{
    json_t *prompt, *system = NULL, *texts = json_array();
    int rc = take_text(convert, "prompt", &prompt);
    if (rc == HEARTH_OK) rc = take_text(convert, "system", &system);
    if (rc == HEARTH_OK) rc = read_images(convert, convert->body, field_path_of("images"), texts);
    bool is_completion = completes(convert->body);
    if (rc == HEARTH_OK && is_completion && json_string_length(system) > 0) {
        rc = convert_fault(convert, field_path_of("system"), "is not supported together with 'raw' or 'suffix'");
    } else if (rc == HEARTH_OK && is_completion) { /* "suffix" has the same name */
        json_object_del(convert->chat, "messages");
        convert_set(convert, "prompt", json_incref(prompt));
    } else if (rc == HEARTH_OK) {
        convert->at = field_path_of("system");
        if (json_string_length(system) > 0) convert_add_text(convert, "system", system);
        convert->at = field_path_of("prompt");
        json_array_append(texts, prompt);
        convert_add_texts(convert, "user", texts);
        convert_end_message(convert);
    }
    json_decref(texts);
    json_decref(prompt);
    json_decref(system);
    return rc;
}

json_t *ollama_generate_body(const json_t *body, struct uploads *uploads, struct header_list *left_out,
                             hearth_error *error)
{
    static reader *const readers[] = {check_generate, read_prompt, read_options,    read_think, read_format,
                                      read_logprobs,  read_stream, drop_own_fields, NULL};
    struct convert convert;
    convert_open(&convert, body, uploads, left_out, error);
    return convert_close(&convert, read_all(&convert, readers));
}

/* ---- Requests ---- */

/* Seconds of a duration as Go writes it: "5m", "1h30m", "-1m", "0". False: it is none. */
static bool read_duration(const char *text, double *seconds)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"s", 1}, {"m", 60}, {"h", 3600}};
    const double sign = *text == '-' ? -1 : 1;
    text += *text == '-' || *text == '+';
    *seconds = 0;
    if (strcmp(text, "0") == 0) return true;
    for (bool begun = false; *text != '\0' || !begun; begun = true) {
        size_t i = 0, n = strspn(text, "0123456789.");
        char *end;
        double value = strtod(text, &end);
        if (n == 0 || end != text + n) return false;
        while (i < sizeof units / sizeof *units && strncmp(end, units[i].name, strlen(units[i].name)) != 0) i++;
        if (i == sizeof units / sizeof *units) return false;
        *seconds += sign * value * units[i].seconds;
        text = end + strlen(units[i].name);
    }
    return true;
}

static int read_names(struct ollama_request *request, const json_t *tree, hearth_error *error)
{
    const json_t *model = json_object_get(tree, "model");
    if (model != NULL && !json_is_null(model) && field_string(model) == NULL)
        return error_at(error, HEARTH_INVALID, "model", "'model' must be a string without zero characters");
    request->model = mem_strdup(field_string(model));
    if (!field_whole(json_object_get(json_object_get(tree, "options"), "num_ctx"), 1, INT32_MAX, &request->num_ctx))
        request->num_ctx = 0;
    const json_t *value = json_object_get(tree, "keep_alive");
    const char *text = field_string(value);
    if (value == NULL || json_is_null(value)) return HEARTH_OK;
    request->has_keep = true;
    request->keep = json_number_value(value);
    if (json_is_number(value) || (text != NULL && read_duration(text, &request->keep))) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, "keep_alive",
                    "'keep_alive' must be seconds or a duration with its unit: \"5m\", \"1h30m\", \"-1s\" for always");
}

/* The fields of this API. Sampling parameters are known in "options" only. */
static const char known[] =
    "model messages prompt suffix tools options keep_alive think format system template context raw images "
    "truncate shift stream logprobs top_logprobs user cache_salt session_id parent_key cache_prompt lora "
    "grammar chat_template_kwargs";

const struct fields_api ollama_chat_api = {.name = "ollama chat", .convert = ollama_chat_body, .known = known};
const struct fields_api ollama_generate_api = {
    .name = "ollama generate", .convert = ollama_generate_body, .known = known};

/* Parses the content, or finds that the request only loads or unloads the model. A completion with a suffix may have
 * an empty prompt. */
static int read_content(struct ollama_request *request, json_t *tree, hearth_error *error)
{
    bool is_completion = !request->is_chat && completes(tree);
    const json_t *content = body_find(tree, request->is_chat ? "messages" : "prompt");
    bool is_empty = content == NULL || (request->is_chat ? json_is_array(content) && json_array_size(content) == 0
                                                         : json_is_string(content) && text_of(tree, "prompt") == NULL);
    if (is_empty && !(is_completion && text_of(tree, "suffix") != NULL)) {
        request->unload = request->has_keep && request->keep == 0;
        return HEARTH_OK;
    }
    int route = is_completion ? FIELDS_COMPLETION : FIELDS_CHAT;
    const struct fields_api *api = request->is_chat ? &ollama_chat_api : &ollama_generate_api;
    request->fields = fields_open_tree(json_incref(tree), route, api, error);
    return request->fields == NULL ? (int)error->code : HEARTH_OK;
}

struct ollama_request *ollama_read(json_t *tree, bool is_chat, hearth_error *error)
{
    struct ollama_request *request = mem_alloc(sizeof *request);
    request->is_chat = is_chat;
    int rc = read_names(request, tree, error);
    if (rc == HEARTH_OK) rc = read_content(request, tree, error);
    json_decref(tree);
    if (rc == HEARTH_OK) return request;
    ollama_close(request);
    return NULL;
}

void ollama_close(void *ud)
{
    struct ollama_request *request = ud;
    if (request->fields != NULL) fields_close(request->fields);
    free(request->model);
    free(request);
}

size_t ollama_size(const void *ud)
{
    const struct ollama_request *request = ud;
    return sizeof *request + (request->fields == NULL ? 0 : fields_size(request->fields));
}
