/* Unknown and unsupported fields: see unknown.h. The known fields of OpenAI's and llama-server's APIs that are not in
 * the table of fields are listed here; other APIs list theirs in struct fields_api. The server owns the list of logged
 * names. */
#include "serve/fields/unknown.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "serve/core/server.h"
#include "serve/fields/body.h"
#include "serve/fields/convert.h"
#include "serve/fields/fields.h"

#include <stdlib.h>
#include <string.h>

/* Maximum number of names in the header, and bytes of each. */
enum { NAMES_MAX = 8, NAME_BYTES = 64 };

#define HEADER "X-Hearth-Unknown-Fields"

/* ---- Known fields that the table lacks: read elsewhere, refused elsewhere, or without effect here ---- */

static const char of_both[] =
    "response_fields return_tokens id_slot n_keep n_discard n_indent n_cache_reuse t_max_prompt_ms "
    "sse_ping_interval backend_sampling keep_alive grammar_lazy grammar_triggers preserved_tokens user";

static const char *const of_openai[] = {
    [FIELDS_CHAT] = "reasoning_control audio modalities web_search_options metadata store service_tier "
                    "safety_identifier prompt_cache_key prompt_cache_retention verbosity prediction",
    [FIELDS_COMPLETION] = "input_prefix input_suffix input_extra"};

/* Members of chat messages, including those of answers that clients send back. */
static const char of_message[] =
    "role content name tool_calls tool_call_id reasoning_content function_call refusal annotations audio id "
    "cache_control";

/* ---- Finding ---- */

struct found_names {
    char *v[NAMES_MAX];
    size_t n;
};

/* In the header's form: other characters than printable ASCII become "?", long names are cut. */
static void add_name(struct found_names *found, const char *prefix, const char *name)
{
    if (found->n == NAMES_MAX) return;
    struct buf text = {0};
    buf_puts(&text, prefix);
    for (size_t i = 0; name[i] != '\0' && i < NAME_BYTES; i++)
        buf_append(&text, name[i] > ' ' && name[i] < 0x7f && name[i] != ',' ? &name[i] : "?", 1);
    char *plain = buf_take(&text);
    size_t i = 0;
    while (i < found->n && strcmp(found->v[i], plain) != 0) i++;
    if (i < found->n)
        free(plain); /* found in an earlier message already */
    else
        found->v[found->n++] = plain;
}

struct unknown unknown_find(const json_t *body, int route, const struct fields_api *api)
{
    static const char *const names[] = {[FIELDS_CHAT] = "chat", [FIELDS_COMPLETION] = "completion"};
    if (route != FIELDS_CHAT && route != FIELDS_COMPLETION) return (struct unknown){0};
    struct found_names found = {0};
    const char *name;
    size_t i;
    json_t *value, *message;
    const json_t *messages = api == NULL && route == FIELDS_CHAT ? json_object_get(body, "messages") : NULL;
    json_object_foreach((json_t *)body, name, value)
    {
        bool is_listed = api != NULL ? words_have(api->known, name)
                                     : words_have(of_both, name) || words_have(of_openai[route], name);
        bool has_table = api == NULL || (api->has_table && convert_passes(name));
        if (!is_listed && !(has_table && fields_knows(name, route))) add_name(&found, "", name);
    }
    json_array_foreach(messages, i, message)
    {
        json_object_foreach(message, name, value) if (!words_have(of_message, name))
            add_name(&found, "messages[].", name);
    }
    struct buf list = {0};
    for (i = 0; i < found.n; i++) {
        buf_printf(&list, "%s%s", i > 0 ? ", " : "", found.v[i]);
        free(found.v[i]);
    }
    return (struct unknown){.api = api == NULL ? names[route] : api->name,
                            .names = found.n > 0 ? buf_take(&list) : NULL};
}

/* ---- Reporting ---- */

#define LOGGED_MAX 256 /* names that are logged; further ones are not */

struct unknown_log {
    char *v[LOGGED_MAX];
    size_t n;
};

struct unknown_log *unknown_log_open(void)
{
    return mem_alloc(sizeof(struct unknown_log));
}

void unknown_log_close(struct unknown_log *log)
{
    for (size_t i = 0; i < log->n; i++) free(log->v[i]);
    free(log);
}

void unknown_report(struct call *call, const struct fields *fields)
{
    call->left_out = fields->left_out;
    call->places = json_incref(fields->places);
    if (fields->unknown == NULL) return;
    http_set_header(call->http, HEADER, fields->unknown);
    struct unknown_log *log = call->server->unknown;
    char *names = mem_strdup(fields->unknown), *rest = names, *name;
    while ((name = strsep(&rest, ",")) != NULL) {
        name += strspn(name, " ");
        char *entry = mem_format("%s %s", fields->api, name);
        size_t i = 0;
        while (i < log->n && strcmp(log->v[i], entry) != 0) i++;
        if (log->n == LOGGED_MAX || i < log->n) {
            free(entry);
            continue;
        }
        log->v[log->n++] = entry;
        log_event(LOG_WARN, "serve", "requests have a field that nobody reads", log_str("api", fields->api),
                  log_str("field", name));
    }
    free(names);
}

/* ---- Fields that are not supported ---- */

/* Known ones that would change the reply (of a cache lookup: its prompt). A request whose value asks for something is
 * refused. */

/* Whether the value asks for something: null, false, 0, "", [] and {} do not. */
static bool is_filled(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return json_object_size(value) > 0;
    case JSON_ARRAY:
        return json_array_size(value) > 0;
    case JSON_STRING:
        return json_string_length(value) > 0;
    case JSON_INTEGER:
    case JSON_REAL:
        return json_number_value(value) != 0;
    case JSON_TRUE:
        return true;
    default:
        return false;
    }
}

bool fields_asks(const json_t *body, const char *name)
{
    const json_t *value = json_object_get(body, name);
    return value != NULL && is_filled(value);
}

static bool is_modality(const json_t *value)
{
    size_t i;
    json_t *item;
    json_array_foreach(value, i, item) if (!convert_is(item, "text")) return true;
    return is_filled(value) && !json_is_array(value);
}

static const struct unsupported_field {
    const char *name;
    int routes;
    bool (*asks)(const json_t *value);
    const char *way; /* what the error advises to do instead */
} unsupported[] = {
    {"audio", FIELDS_CHAT, is_filled, "leave it out of the request"},
    {"modalities", FIELDS_CHAT, is_modality, "leave it out of the request"},
    {"web_search_options", FIELDS_CHAT, is_filled, "leave it out of the request"},
    {"grammar_lazy", FIELDS_BOTH, is_filled, "send 'tools', whose calls get such a grammar by themselves"},
    {"grammar_triggers", FIELDS_BOTH, is_filled, "send 'tools', whose calls get such a grammar by themselves"},
};

int fields_refuse_unsupported(const json_t *body, int route, hearth_error *error)
{
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
        const struct unsupported_field *row = &unsupported[i];
        const json_t *value = json_object_get(body, row->name);
        if (value != NULL && (row->routes & route) != 0 && row->asks(value))
            return error_at(error, HEARTH_UNSUPPORTED, row->name, "'%s' is not supported here: %s", row->name,
                            row->way);
    }
    return HEARTH_OK;
}
