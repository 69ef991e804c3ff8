/* Unknown fields: see unknown.h. The known fields of OpenAI's and llama-server's APIs that are not in the table of
 * fields are listed here; other APIs list theirs in struct fields_api. The server owns the list of logged names. */
#include "serve/fields/unknown.h"

#include "base/log.h"
#include "base/memory.h"
#include "serve/core/server.h"
#include "serve/fields/convert.h"

#include <stdlib.h>
#include <string.h>

/* Maximum number of names in the header, and bytes of each. */
enum { NAMES_MAX = 8, NAME_BYTES = 64 };

#define HEADER "X-Hearth-Unknown-Fields"

/* ---- Known fields that the table lacks: read elsewhere, refused elsewhere, or without effect here ---- */

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

static const char *const *const of_openai[] = {[FIELDS_CHAT] = of_chats, [FIELDS_COMPLETION] = of_completions};

/* Members of chat messages, including those of answers that clients send back. */
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

static bool is_known(const struct fields_api *api, const char *name, int route)
{
    if (api == NULL) return is_listed(of_both, name) || is_listed(of_openai[route], name) || fields_knows(name, route);
    return is_listed(api->known, name) || (api->has_table && convert_passes(name) && fields_knows(name, route));
}

/* ---- Finding ---- */

struct found_names {
    char *v[NAMES_MAX];
    size_t n;
};

/* The name for the header: other characters than printable ASCII become "?", long names are cut. */
static char *plain_name(const char *prefix, const char *name)
{
    struct buf plain = {0};
    buf_puts(&plain, prefix);
    for (size_t i = 0; name[i] != '\0' && i < NAME_BYTES; i++)
        buf_append(&plain, name[i] > ' ' && name[i] < 0x7f && name[i] != ',' ? &name[i] : "?", 1);
    return buf_take(&plain);
}

static void add_name(struct found_names *found, const char *prefix, const char *name)
{
    if (found->n == NAMES_MAX) return;
    char *plain = plain_name(prefix, name);
    size_t i = 0;
    while (i < found->n && strcmp(found->v[i], plain) != 0) i++;
    if (i < found->n)
        free(plain); /* found in an earlier message already */
    else
        found->v[found->n++] = plain;
}

/* The names with commas between; NULL: none. */
static char *join(struct found_names *found)
{
    struct buf names = {0};
    for (size_t i = 0; i < found->n; i++) {
        buf_printf(&names, "%s%s", i > 0 ? ", " : "", found->v[i]);
        free(found->v[i]);
    }
    return found->n > 0 ? buf_take(&names) : NULL;
}

static void look_at_messages(struct found_names *found, const json_t *messages)
{
    size_t i;
    json_t *message, *value;
    const char *name;
    json_array_foreach(messages, i, message)
    {
        json_object_foreach(message, name, value) if (!is_listed(of_message, name))
            add_name(found, "messages[].", name);
    }
}

struct unknown unknown_find(const json_t *body, int route, const struct fields_api *api)
{
    static const char *const names[] = {[FIELDS_CHAT] = "chat", [FIELDS_COMPLETION] = "completion"};
    if (route != FIELDS_CHAT && route != FIELDS_COMPLETION) return (struct unknown){0};
    struct found_names found = {0};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)body, name, value) if (!is_known(api, name, route)) add_name(&found, "", name);
    bool has_messages = api == NULL && route == FIELDS_CHAT;
    if (has_messages) look_at_messages(&found, json_object_get(body, "messages"));
    return (struct unknown){.api = api == NULL ? names[route] : api->name, .names = join(&found)};
}

/* ---- Reporting ---- */

#define LOGGED_MAX 256 /* names that are logged; further ones are not */

struct unknown_log {
    char *v[LOGGED_MAX];
    size_t n;
};

static bool is_logged(const struct unknown_log *log, const char *entry)
{
    for (size_t i = 0; i < log->n; i++)
        if (strcmp(log->v[i], entry) == 0) return true;
    return false;
}

static void log_once(struct unknown_log *log, const char *api, const char *name)
{
    char *entry = mem_format("%s %s", api, name);
    if (log->n == LOGGED_MAX || is_logged(log, entry)) {
        free(entry);
        return;
    }
    log->v[log->n++] = entry;
    log_event(LOG_WARN, "serve", "requests have a field that nobody reads", log_str("api", api),
              log_str("field", name));
}

struct unknown_log *unknown_log_open(void)
{
    return mem_alloc(sizeof(struct unknown_log));
}

void unknown_log_close(struct unknown_log *log)
{
    while (log->n > 0) free(log->v[--log->n]);
    free(log);
}

void unknown_report(struct call *call, const struct fields *fields)
{
    call->left_out = fields->left_out;
    call->places = json_incref(fields->places);
    if (fields->unknown == NULL) return;
    http_set_header(call->http, HEADER, fields->unknown);
    char *names = mem_strdup(fields->unknown), *rest = names, *name;
    while ((name = strsep(&rest, ",")) != NULL) log_once(call->server->unknown, fields->api, name + strspn(name, " "));
    free(names);
}
