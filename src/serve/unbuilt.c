/* Fields that are known, change the reply (of a lookup: what is looked up) and are not built: a request that really
 * asks for one is refused. A row goes away when its feature comes. No state; any thread. */
#include "base/error.h"
#include "serve/fields.h"

#include <string.h>

/* Anything but nothing: null, false, 0, "", [] and {} ask for nothing. */
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

/* A completion's "logprobs": 0 still asks for those of the tokens chosen. */
static bool is_number(const json_t *value)
{
    return json_is_number(value) || json_is_true(value);
}

static bool is_positive(const json_t *value)
{
    return json_number_value(value) > 0;
}

static bool is_not_one(const json_t *value)
{
    return json_is_number(value) && json_number_value(value) != 1;
}

static bool is_string(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

static bool is_tool_choice(const json_t *value)
{
    return is_filled(value) && !is_string(value, "none") && !is_string(value, "auto");
}

static bool is_format(const json_t *value)
{
    return is_filled(value) && !is_string(json_object_get(value, "type"), "text");
}

static bool is_modality(const json_t *value)
{
    size_t i;
    json_t *item;
    json_array_foreach(value, i, item) if (!is_string(item, "text")) return true;
    return is_filled(value) && !json_is_array(value);
}

static const struct unbuilt {
    const char *name;
    int routes;
    bool (*asks)(const json_t *value);
} unbuilt[] = {
    {"tools", FIELDS_CHAT | FIELDS_LOOKUP, is_filled},
    {"tool_choice", FIELDS_CHAT | FIELDS_LOOKUP, is_tool_choice},
    {"functions", FIELDS_CHAT | FIELDS_LOOKUP, is_filled},
    {"function_call", FIELDS_CHAT | FIELDS_LOOKUP, is_tool_choice},
    {"response_format", FIELDS_BOTH, is_format},
    {"grammar", FIELDS_BOTH, is_filled},
    {"json_schema", FIELDS_BOTH, is_filled},
    {"logprobs", FIELDS_CHAT, is_filled},
    {"logprobs", FIELDS_COMPLETION, is_number},
    {"top_logprobs", FIELDS_CHAT, is_filled},
    {"n_probs", FIELDS_BOTH, is_filled},
    {"audio", FIELDS_CHAT, is_filled},
    {"modalities", FIELDS_CHAT, is_modality},
    {"web_search_options", FIELDS_CHAT, is_filled},
    {"continue_final_message", FIELDS_CHAT | FIELDS_LOOKUP, is_filled},
    {"suffix", FIELDS_COMPLETION | FIELDS_LOOKUP, is_filled},
    {"lora", FIELDS_ANY, is_filled},
    {"samplers", FIELDS_BOTH, is_filled},
    {"dry_multiplier", FIELDS_BOTH, is_filled},
    {"xtc_probability", FIELDS_BOTH, is_filled},
    {"mirostat", FIELDS_BOTH, is_filled},
    {"dynatemp_range", FIELDS_BOTH, is_filled},
    {"typical_p", FIELDS_BOTH, is_not_one},
    {"top_n_sigma", FIELDS_BOTH, is_positive},
};

int fields_refuse_unbuilt(const json_t *body, int route, hearth_error *error)
{
    for (size_t i = 0; i < sizeof unbuilt / sizeof *unbuilt; i++) {
        const struct unbuilt *row = &unbuilt[i];
        const json_t *value = json_object_get(body, row->name);
        if (value != NULL && (row->routes & route) != 0 && row->asks(value))
            return error_at(error, HEARTH_UNSUPPORTED, row->name,
                            "'%s' is not supported here yet: leave it out of the request", row->name);
    }
    return HEARTH_OK;
}
