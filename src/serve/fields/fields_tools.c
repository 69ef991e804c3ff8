/* Readers of the fields about a chat's tools. Custom ones become functions; those of other types, which OpenAI's
 * servers run, are left out, and so is the choice of one. No state; any thread. */
#include "base/error.h"
#include "base/json_text.h"
#include "serve/fields/convert.h"
#include "serve/fields/fields_readers.h"

#include <stdlib.h>
#include <string.h>

/* ---- Custom tools as functions ---- */

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text == NULL ? "" : text;
}

json_t *custom_tool_function(const json_t *name, const json_t *tool)
{
    /* The grammar stands in "format" (Responses) or in its "grammar" (chats). Without one it is any text. */
    const json_t *format = json_object_get(tool, "format"), *inner = json_object_get(format, "grammar");
    const json_t *grammar = inner != NULL ? inner : format;
    const char *rules = json_string_value(json_object_get(grammar, "definition")), *syntax = text_of(grammar, "syntax");
    const char *says = text_of(tool, "description");
    json_t *description = rules == NULL ? json_string(says)
                                        : json_sprintf("%s%sThe input must match this %s grammar:\n%s", says,
                                                       says[0] == '\0' ? "" : "\n\n", syntax, rules);
    json_t *input = json_pack("{s:s}", "type", "string");
    if (rules != NULL && strcmp(syntax, "regex") == 0) {
        /* The regular expression has to match the whole input; many are anchored already. */
        size_t len = strlen(rules);
        bool is_anchored = len > 1 && rules[0] == '^' && rules[len - 1] == '$' && rules[len - 2] != '\\';
        json_object_set_new(input, "pattern", json_sprintf(is_anchored ? "%s" : "^(?:%s)$", rules));
    }
    json_t *parameters = json_pack("{s:s, s:{s:o}, s:[s], s:b}", "type", "object", "properties", "input", input,
                                   "required", "input", "additionalProperties", 0);
    return json_pack("{s:O, s:o, s:o}", "name", name, "description", description, "parameters", parameters);
}

/* ---- Their calls ---- */

bool custom_tool_is_among(const json_t *names, const char *name)
{
    size_t i;
    json_t *one;
    json_array_foreach(names, i, one) if (strcmp(json_string_value(one), name) == 0) return true;
    return false;
}

json_t *custom_tool_arguments(const json_t *input)
{
    json_t *arguments = json_pack("{s:O}", "input", input);
    char *text = json_text_of(arguments);
    json_t *string = json_string(text);
    free(text);
    json_decref(arguments);
    return string;
}

void custom_tool_put_input(struct buf *out, const struct buf *arguments)
{
    json_t *json = json_text_read(buf_text(arguments), arguments->len, NULL);
    const json_t *input = json_object_get(json, "input");
    if (json_is_string(input))
        buf_append(out, json_string_value(input), json_string_length(input));
    else
        buf_append(out, arguments->v, arguments->len);
    json_decref(json);
}

/* ---- Tools ---- */

static bool is_custom(const json_t *tool)
{
    return convert_is(json_object_get(tool, "type"), "custom");
}

/* One without a type is not judged here. */
static bool is_of_another_type(const json_t *tool)
{
    const json_t *type = json_object_get(tool, "type");
    return json_is_string(type) && !convert_is(type, "function") && !is_custom(tool);
}

/* A custom tool as a function, whose name is noted; owned by the caller. NULL with the error: it has no name. */
static json_t *read_custom(struct fields *fields, const json_t *tool, struct field_path at, hearth_error *error)
{
    const json_t *custom = json_object_get(tool, "custom"), *name = json_object_get(custom, "name");
    struct field_path path = field_path_of("%.80s.custom.name", at.v);
    if (json_string_length(name) == 0) {
        error_at(error, HEARTH_INVALID, path.v, "'%s' must be the tool's name", path.v);
        return NULL;
    }
    if (fields->custom_tools == NULL) fields->custom_tools = json_array();
    json_array_append(fields->custom_tools, (json_t *)name);
    return json_pack("{s:s,s:o}", "type", "function", "function", custom_tool_function(name, custom));
}

void field_note_places(struct fields *fields, const char *name, json_t *places)
{
    if (fields->places == NULL) fields->places = json_object();
    json_object_set(fields->places, name, places);
}

int field_tools(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    if (!json_is_array(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be a list of tools", name);
    json_t *tool, *kept = json_array(), *places = json_array();
    size_t i;
    int rc = HEARTH_OK;
    json_array_foreach(value, i, tool)
    {
        struct field_path at = field_path_of("%s[%zu]", name, i);
        if (is_of_another_type(tool)) {
            header_list_add(&fields->left_out, at.v);
            continue;
        }
        json_t *function = is_custom(tool) ? read_custom(fields, tool, at, error) : json_incref(tool);
        if (function == NULL) {
            rc = (int)error->code;
            break;
        }
        json_array_append_new(kept, function);
        json_array_append_new(places, json_string(at.v));
    }
    if (json_array_size(kept) < json_array_size(value)) field_note_places(fields, name, places);
    json_decref(places);
    if (json_array_size(kept) > 0) fields->tools = json_incref(kept);
    fields->params.tools = json_text_public(fields->tools);
    json_decref(kept);
    return rc;
}

/* ---- tool_choice ---- */

/* Restricts calls to these tools; takes the list over. */
static void set_allowed_tools(struct fields *fields, json_t *names)
{
    json_decref(fields->allowed_tools);
    fields->allowed_tools = names;
    fields->params.allowed_tools = json_text_public(names);
}

/* {"type":"function","function":{"name":…}}, or the name beside the type; "custom" likewise. NULL: neither. */
static const char *name_of_tool(const json_t *tool)
{
    const json_t *function = json_object_get(tool, is_custom(tool) ? "custom" : "function");
    const char *name = field_string(json_object_get(function != NULL ? function : tool, "name"));
    return name != NULL && name[0] != '\0' ? name : NULL;
}

/* The names of the functions among these tools, in an array; NULL: not a list of tools. */
static json_t *names_of_tools(const json_t *tools)
{
    size_t i, n_others = 0;
    json_t *tool, *names = json_array();
    json_array_foreach(tools, i, tool)
    {
        const char *name = name_of_tool(tool);
        if (is_of_another_type(tool))
            n_others++;
        else if (name != NULL)
            json_array_append_new(names, json_string(name));
    }
    if (json_array_size(tools) > 0 && json_array_size(names) + n_others == json_array_size(tools)) return names;
    json_decref(names);
    return NULL;
}

/* allowed_tools restricts calls without changing the tools in the prompt: clients use it so that the prompt's prefix
 * can be reused. */
static int choose_among(struct fields *fields, const char *name, const json_t *allowed, hearth_error *error)
{
    const char *mode = field_string(json_object_get(allowed, "mode"));
    bool is_required = mode != NULL && strcmp(mode, "required") == 0;
    if (!is_required && (mode == NULL || strcmp(mode, "auto") != 0))
        return error_at(error, HEARTH_INVALID, "tool_choice.allowed_tools.mode",
                        "'%s.allowed_tools.mode' must be \"auto\" or \"required\"", name);
    json_t *names = names_of_tools(json_object_get(allowed, "tools"));
    if (names == NULL)
        return error_at(error, HEARTH_INVALID, "tool_choice.allowed_tools.tools",
                        "'%s.allowed_tools.tools' must be a list of functions: "
                        "[{\"type\":\"function\",\"function\":{\"name\":…}}]",
                        name);
    bool has_none = json_array_size(names) == 0; /* all of them were left out */
    fields->params.tool_choice = has_none ? HEARTH_TOOLS_NONE : is_required ? HEARTH_TOOLS_REQUIRED : HEARTH_TOOLS_AUTO;
    if (has_none)
        json_decref(names);
    else
        set_allowed_tools(fields, names);
    return HEARTH_OK;
}

static int choose_by_type(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    const char *type = field_string(json_object_get(value, "type"));
    if (type == NULL || strcmp(type, "function") == 0 || is_custom(value)) {
        /* A function that is named is called once, whatever parallel_tool_calls says. */
        const char *one = name_of_tool(value), *kind = is_custom(value) ? "custom" : "function";
        struct field_path path = field_path_of("tool_choice.%s.name", kind);
        if (one == NULL)
            return error_at(error, HEARTH_INVALID, path.v,
                            "'%s' must name its %s: {\"type\":\"%s\",\"%s\":{\"name\":…}}", name,
                            is_custom(value) ? "tool" : kind, kind, kind);
        fields->params.tool_choice = HEARTH_TOOLS_REQUIRED;
        fields->params.parallel_tool_calls = 0;
        set_allowed_tools(fields, json_pack("[s]", one));
        return HEARTH_OK;
    }
    if (strcmp(type, "allowed_tools") == 0)
        return choose_among(fields, name, json_object_get(value, "allowed_tools"), error);
    /* The request has a tool of this type, which was left out. */
    size_t i;
    json_t *tool;
    json_array_foreach(json_object_get(fields->body, "tools"), i, tool)
    {
        if (is_of_another_type(tool) && convert_is(json_object_get(tool, "type"), type)) return HEARTH_OK;
    }
    return error_at(error, HEARTH_UNSUPPORTED, "tool_choice.type",
                    "'%s' of type \"%s\" is not supported: give \"auto\", \"none\", \"required\", a function or "
                    "\"allowed_tools\"",
                    name, type);
}

int field_tool_choice(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    static const struct {
        const char *text;
        hearth_tool_choice choice;
    } choices[] = {{"auto", HEARTH_TOOLS_AUTO}, {"none", HEARTH_TOOLS_NONE}, {"required", HEARTH_TOOLS_REQUIRED}};
    if (json_text_is_object(value)) return choose_by_type(fields, name, value, error);
    for (size_t i = 0; json_is_string(value) && i < sizeof choices / sizeof *choices; i++) {
        if (strcmp(json_string_value(value), choices[i].text) != 0) continue;
        bool lost_all = fields->tools == NULL && json_array_size(json_object_get(fields->body, "tools")) > 0;
        if (choices[i].choice != HEARTH_TOOLS_REQUIRED || !lost_all) fields->params.tool_choice = choices[i].choice;
        return HEARTH_OK;
    }
    return error_at(error, HEARTH_INVALID, name, "'%s' must be \"auto\", \"none\", \"required\" or a function", name);
}

int field_parallel_tool_calls(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    bool is_parallel = false;
    int rc = field_bool(name, value, &is_parallel, error);
    if (rc == HEARTH_OK) fields->params.parallel_tool_calls = is_parallel;
    return rc;
}

/* ---- OpenAI's deprecated functions ---- */

/* "functions", "function_call" and messages of the role "function" are converted to tools; `has_functions` makes the
 * answer use the old form too. */

/* The old form of an answer has one call only, so that parallel calls are off. */
int field_functions(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    size_t i;
    json_t *function;
    if (!json_is_array(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be a list of functions", name);
    if (json_array_size(value) == 0 || fields->tools != NULL) return HEARTH_OK;
    json_array_foreach(value, i, function)
    {
        const char *its = field_string(json_object_get(function, "name"));
        const json_t *parameters = body_find(function, "parameters");
        struct field_path of_name = field_path_of("functions[%zu].name", i);
        struct field_path of_parameters = field_path_of("functions[%zu].parameters", i);
        if (its == NULL || its[0] == '\0')
            return error_at(error, HEARTH_INVALID, of_name.v, "'%s' must be a string and not empty", of_name.v);
        if (parameters != NULL && !json_text_is_object(parameters))
            return error_at(error, HEARTH_INVALID, of_parameters.v, "'%s' must be an object", of_parameters.v);
    }
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

/* ---- Messages with them ---- */

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
