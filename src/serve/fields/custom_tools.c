/* Custom tools as functions: see custom_tools.h. */
#include "serve/fields/custom_tools.h"

#include "base/json_text.h"

#include <stdlib.h>
#include <string.h>

/* ---- Tools ---- */

/* "definition" and "syntax" stand in "format" (Responses) or in its "grammar" (chats). NULL: any text. */
static const json_t *grammar_of(const json_t *tool)
{
    const json_t *format = json_object_get(tool, "format"), *inner = json_object_get(format, "grammar");
    const json_t *grammar = inner != NULL ? inner : format;
    return json_is_string(json_object_get(grammar, "definition")) ? grammar : NULL;
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text == NULL ? "" : text;
}

static json_t *description_of(const json_t *tool, const json_t *grammar)
{
    const char *description = text_of(tool, "description");
    if (grammar == NULL) return json_string(description);
    return json_sprintf("%s%sThe input must match this %s grammar:\n%s", description,
                        description[0] == '\0' ? "" : "\n\n", text_of(grammar, "syntax"),
                        text_of(grammar, "definition"));
}

/* What a regular expression matches is all of the input; many say so themselves. */
static json_t *schema_of_input(const json_t *grammar)
{
    json_t *input = json_pack("{s:s}", "type", "string");
    if (grammar == NULL || strcmp(text_of(grammar, "syntax"), "regex") != 0) return input;
    const char *regex = text_of(grammar, "definition");
    size_t len = strlen(regex);
    bool is_anchored = len > 1 && regex[0] == '^' && regex[len - 1] == '$' && regex[len - 2] != '\\';
    json_object_set_new(input, "pattern", json_sprintf(is_anchored ? "%s" : "^(?:%s)$", regex));
    return input;
}

json_t *custom_tool_function(const json_t *name, const json_t *tool)
{
    const json_t *grammar = grammar_of(tool);
    json_t *parameters = json_pack("{s:s, s:{s:o}, s:[s], s:b}", "type", "object", "properties", "input",
                                   schema_of_input(grammar), "required", "input", "additionalProperties", 0);
    return json_pack("{s:O, s:o, s:o}", "name", name, "description", description_of(tool, grammar), "parameters",
                     parameters);
}

/* ---- Calls ---- */

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
