/* Unsupported fields: known ones that would change the reply (of a cache lookup: its prompt). A request whose value
 * asks for something is refused. No state; any thread. */
#include "base/error.h"
#include "serve/fields/fields.h"

#include <string.h>

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

static bool is_string(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

static bool is_modality(const json_t *value)
{
    size_t i;
    json_t *item;
    json_array_foreach(value, i, item) if (!is_string(item, "text")) return true;
    return is_filled(value) && !json_is_array(value);
}

static const struct unsupported_field {
    const char *name;
    int routes;
    bool (*asks)(const json_t *value);
} unsupported[] = {
    {"audio", FIELDS_CHAT, is_filled},
    {"modalities", FIELDS_CHAT, is_modality},
    {"web_search_options", FIELDS_CHAT, is_filled},
    {"grammar_lazy", FIELDS_BOTH, is_filled},
    {"grammar_triggers", FIELDS_BOTH, is_filled},
};

/* What the error advises to send instead. */
static const struct {
    const char *name, *way;
} ways[] = {
    {"grammar_lazy", "send 'tools', whose calls get such a grammar by themselves"},
    {"grammar_triggers", "send 'tools', whose calls get such a grammar by themselves"},
};

static const char *way_of(const char *name)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcmp(ways[i].name, name) == 0) return ways[i].way;
    return "leave it out of the request";
}

int fields_refuse_unsupported(const json_t *body, int route, hearth_error *error)
{
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
        const struct unsupported_field *row = &unsupported[i];
        const json_t *value = json_object_get(body, row->name);
        if (value != NULL && (row->routes & route) != 0 && row->asks(value))
            return error_at(error, HEARTH_UNSUPPORTED, row->name, "'%s' is not supported here: %s", row->name,
                            way_of(row->name));
    }
    return HEARTH_OK;
}
