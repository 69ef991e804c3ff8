/* OpenAI's deprecated function calling: "functions", "function_call", messages of the role "function". They are
 * converted to tools; `has_functions` makes the answer use the old form too. No state; any thread. */
#include "base/error.h"
#include "base/json_text.h"
#include "serve/fields/fields_readers.h"

#include <stdio.h>
#include <string.h>

/* ---- Functions ---- */

static int check_function(const json_t *function, size_t i, hearth_error *error)
{
    char at[64];
    const char *name = field_string(json_object_get(function, "name"));
    const json_t *parameters = json_object_get(function, "parameters");
    if (name == NULL || name[0] == '\0') {
        snprintf(at, sizeof at, "functions[%zu].name", i);
        return error_at(error, HEARTH_INVALID, at, "'%s' must be a string and not empty", at);
    }
    if (parameters == NULL || json_is_null(parameters) || json_text_is_object(parameters)) return HEARTH_OK;
    snprintf(at, sizeof at, "functions[%zu].parameters", i);
    return error_at(error, HEARTH_INVALID, at, "'%s' must be an object", at);
}

/* The old form of an answer has one call only, so that parallel calls are off. */
int field_functions(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    size_t i;
    json_t *function;
    if (!json_is_array(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be a list of functions", name);
    if (json_array_size(value) == 0 || fields->tools != NULL) return HEARTH_OK;
    json_array_foreach(value, i, function) if (check_function(function, i, error) != HEARTH_OK) return (int)error->code;
    json_t *tools = json_array();
    json_array_foreach(value, i, function)
        json_array_append_new(tools, json_pack("{s:s, s:O}", "type", "function", "function", function));
    fields->tools = tools;
    fields->params.tools = json_text_public(tools);
    fields->params.parallel_tool_calls = 0;
    fields->has_functions = true;
    return HEARTH_OK;
}

/* "auto", "none" or {"name": …}: as tool_choice, but without "required". */
int field_function_call(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    bool is_word = json_is_string(value) &&
                   (strcmp(json_string_value(value), "auto") == 0 || strcmp(json_string_value(value), "none") == 0);
    const char *function = field_string(json_object_get(value, "name"));
    if (is_word || (function != NULL && function[0] != '\0')) return field_tool_choice(fields, name, value, error);
    return error_at(error, HEARTH_INVALID, name, "'%s' must be \"auto\", \"none\" or {\"name\": …}", name);
}

/* ---- Messages ---- */

/* An id for the n-th call: nine letters and digits, since some templates check that. */
static json_t *call_id(size_t n_calls)
{
    return json_sprintf("call%05zu", n_calls);
}

static bool is_result(const json_t *message)
{
    const char *role = field_string(json_object_get(message, "role"));
    return role != NULL && strcmp(role, "function") == 0;
}

static json_t *with_tool(const json_t *message, size_t *n_calls)
{
    json_t *copy = json_copy((json_t *)message);
    if (is_result(message)) {
        json_object_set_new(copy, "role", json_string("tool"));
        json_object_set_new(copy, "tool_call_id", call_id(*n_calls));
        return copy;
    }
    json_object_del(copy, "function_call");
    const json_t *others = json_object_get(message, "tool_calls");
    json_t *calls = json_is_array(others) ? json_copy((json_t *)others) : json_array();
    json_array_append_new(calls, json_pack("{s:o, s:s, s:O}", "id", call_id(++*n_calls), "type", "function", "function",
                                           json_object_get(message, "function_call")));
    json_object_set_new(copy, "tool_calls", calls);
    return copy;
}

json_t *field_with_tools(const json_t *messages)
{
    size_t i, n_calls = 0;
    json_t *message, *result = json_array();
    json_array_foreach(messages, i, message)
    {
        if (is_result(message) || json_text_is_object(json_object_get(message, "function_call")))
            json_array_append_new(result, with_tool(message, &n_calls));
        else
            json_array_append(result, message);
    }
    return result;
}
