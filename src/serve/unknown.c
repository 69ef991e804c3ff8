/* Fields that nobody reads: see unknown.h. What each API's clients may send is a list here, beside the table of fields.
 * What was logged belongs to the server. */
#include "serve/unknown.h"

#include "base/log.h"
#include "base/memory.h"
#include "serve/anthropic.h"
#include "serve/convert.h"
#include "serve/ollama.h"
#include "serve/responses.h"
#include "serve/server.h"

#include <stdlib.h>
#include <string.h>

/* Names in one header, and bytes of each that are shown. */
enum { NAMES_MAX = 8, NAME_BYTES = 64 };

#define HEADER "X-Hearth-Unknown-Fields"

/* ---- What is known beside the table of fields: read elsewhere, refused elsewhere, or without effect here ---- */

static const char *const of_both[] = {"response_fields",   "return_tokens",    "id_slot",       "n_keep",
                                      "n_discard",         "n_indent",         "n_cache_reuse", "t_max_prompt_ms",
                                      "sse_ping_interval", "backend_sampling", "keep_alive",    "grammar_lazy",
                                      "grammar_triggers",  "preserved_tokens", "user",          NULL};

static const char *const of_completions[] = {"input_prefix", "input_suffix", "input_extra", NULL};

static const char *const of_chats[] = {"reasoning_control",
                                       "audio",
                                       "modalities",
                                       "web_search_options",
                                       "metadata",
                                       "store",
                                       "service_tier",
                                       "safety_identifier",
                                       "prompt_cache_key",
                                       "prompt_cache_retention",
                                       "verbosity",
                                       "prediction",
                                       NULL};

static const char *const of_messages[] = {
    "messages",      "system",        "max_tokens",    "stop_sequences", "thinking",    "tools",
    "tool_choice",   "metadata",      "service_tier",  "container",      "mcp_servers", "context_management",
    "output_config", "cache_control", "inference_geo", "speed",          "keep_alive",  NULL};

static const char *const of_responses[] = {"input",
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

/* Nothing beside: what samplers are to do stands in the options, and is not looked for elsewhere. */
static const char *const of_ollama[] = {"model",
                                        "messages",
                                        "prompt",
                                        "suffix",
                                        "tools",
                                        "options",
                                        "keep_alive",
                                        "think",
                                        "format",
                                        "system",
                                        "template",
                                        "context",
                                        "raw",
                                        "images",
                                        "truncate",
                                        "shift",
                                        "stream",
                                        "logprobs",
                                        "top_logprobs",
                                        "user",
                                        "cache_salt",
                                        "session_id",
                                        "parent_key",
                                        "cache_prompt",
                                        "lora",
                                        "grammar",
                                        "chat_template_kwargs",
                                        NULL};

static const char *const of_none[] = {NULL};

static const struct api {
    fields_converter *convert; /* NULL: the body is read as it is */
    int routes;
    const char *name;
    const char *const *own, *const *shared;
    bool has_others; /* fields of the table beside its own */
} apis[] = {{NULL, FIELDS_CHAT, "chat", of_chats, of_both, true},
            {NULL, FIELDS_COMPLETION, "completion", of_completions, of_both, true},
            {anthropic_chat, FIELDS_CHAT, "messages", of_messages, of_none, true},
            {responses_chat, FIELDS_CHAT, "responses", of_responses, of_none, true},
            {ollama_chat_body, FIELDS_CHAT, "ollama chat", of_ollama, of_none, false},
            {ollama_generate_body, FIELDS_BOTH, "ollama generate", of_ollama, of_none, false}};

/* Members of messages of chats, also those that clients only send back. */
static const char *const of_message[] = {"role",
                                         "content",
                                         "name",
                                         "tool_calls",
                                         "tool_call_id",
                                         "reasoning_content",
                                         "function_call",
                                         "refusal",
                                         "annotations",
                                         "audio",
                                         "id",
                                         "cache_control",
                                         NULL};

static bool is_listed(const char *const *list, const char *name)
{
    for (; *list != NULL; list++)
        if (strcmp(*list, name) == 0) return true;
    return false;
}

static bool is_known(const struct api *api, const char *name)
{
    bool passes = api->has_others && (api->convert == NULL || convert_passes(name));
    return is_listed(api->own, name) || is_listed(api->shared, name) || (passes && fields_knows(name, api->routes));
}

/* ---- Finding ---- */

struct finding {
    char *v[NAMES_MAX];
    size_t n;
};

/* What a client wrote goes into a header: only its plain characters, and not all of a long name. */
static char *plain_name(const char *prefix, const char *name)
{
    struct buf plain = {0};
    buf_puts(&plain, prefix);
    for (size_t i = 0; name[i] != '\0' && i < NAME_BYTES; i++)
        buf_append(&plain, name[i] > ' ' && name[i] < 0x7f && name[i] != ',' ? &name[i] : "?", 1);
    return buf_take(&plain);
}

static void add(struct finding *finding, const char *prefix, const char *name)
{
    if (finding->n == NAMES_MAX) return;
    char *plain = plain_name(prefix, name);
    size_t i = 0;
    while (i < finding->n && strcmp(finding->v[i], plain) != 0) i++;
    if (i < finding->n)
        free(plain); /* of an earlier message */
    else
        finding->v[finding->n++] = plain;
}

/* NULL: nothing was found. */
static char *join(struct finding *finding)
{
    struct buf names = {0};
    for (size_t i = 0; i < finding->n; i++) {
        buf_printf(&names, "%s%s", i > 0 ? ", " : "", finding->v[i]);
        free(finding->v[i]);
    }
    return finding->n > 0 ? buf_take(&names) : NULL;
}

static void look_at_messages(struct finding *finding, const json_t *messages)
{
    size_t i;
    json_t *message, *value;
    const char *name;
    json_array_foreach(messages, i, message)
    {
        json_object_foreach(message, name, value) if (!is_listed(of_message, name)) add(finding, "messages[].", name);
    }
}

struct unknown unknown_find(const json_t *body, int route, fields_converter *convert)
{
    const struct api *api = NULL;
    for (size_t i = 0; i < sizeof apis / sizeof *apis; i++)
        if (apis[i].convert == convert && (apis[i].routes & route) != 0) api = &apis[i];
    if (api == NULL) return (struct unknown){0};
    struct finding finding = {0};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)body, name, value) if (!is_known(api, name)) add(&finding, "", name);
    if (api->own == of_chats) look_at_messages(&finding, json_object_get(body, "messages"));
    return (struct unknown){.api = api->name, .names = join(&finding)};
}

/* ---- Telling ---- */

static bool is_logged(const struct unknown_log *log, const char *entry)
{
    for (size_t i = 0; i < log->n; i++)
        if (strcmp(log->v[i], entry) == 0) return true;
    return false;
}

static void log_once(struct unknown_log *log, const char *api, const char *name)
{
    char *entry = mem_format("%s %s", api, name);
    if (log->n == UNKNOWN_LOGGED_MAX || is_logged(log, entry)) {
        free(entry);
        return;
    }
    log->v[log->n++] = entry;
    log_event(LOG_WARN, "serve", "requests have a field that nobody reads", log_str("api", api),
              log_str("field", name));
}

void unknown_log_release(struct unknown_log *log)
{
    while (log->n > 0) free(log->v[--log->n]);
}

void unknown_tell(struct call *call, const struct fields *fields)
{
    if (fields->unknown == NULL) return;
    http_set_header(call->http, HEADER, fields->unknown);
    char *names = mem_strdup(fields->unknown), *rest = names, *name;
    while ((name = strsep(&rest, ",")) != NULL) log_once(&call->server->unknown, fields->api, name + strspn(name, " "));
    free(names);
}
