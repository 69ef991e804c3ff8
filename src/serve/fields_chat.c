/* Fields of chats that reach the template: messages, tools, and how the model is to think. No state; any thread. */
#include "base/error.h"
#include "serve/fields_readers.h"

#include <string.h>

/* ---- Messages and tools ---- */

/* Of a part that is no text only the type is of use: no model here takes images. Their bytes, megabytes each, would
 * count as text of the prompt. */
static void drop_data(json_t *part)
{
    const char *type = field_string(json_object_get(part, "type"));
    if (type == NULL || strcmp(type, "text") == 0 || strcmp(type, "refusal") == 0) return;
    json_t *kept = json_incref(json_object_get(part, "type"));
    json_object_clear(part);
    json_object_set_new(part, "type", kept);
}

int field_messages(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    size_t i, k;
    json_t *message, *part;
    if (!json_is_array(value) || json_array_size(value) == 0)
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a list of at least one message", name);
    json_array_foreach(value, i, message)
    {
        json_array_foreach(json_object_get(message, "content"), k, part) drop_data(part);
    }
    fields->messages = fields_dump(value);
    fields->params.messages_json = fields->messages;
    fields->n_prompts = 1;
    return HEARTH_OK;
}

int field_tools(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    if (!json_is_array(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be a list of tools", name);
    if (json_array_size(value) == 0) return HEARTH_OK;
    fields->tools = fields_dump(value);
    fields->params.tools_json = fields->tools;
    return HEARTH_OK;
}

static int choose_by_name(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    const json_t *function = json_object_get(value, "function");
    const char *type = field_string(json_object_get(value, "type"));
    const char *tool = field_string(json_object_get(function != NULL ? function : value, "name"));
    if (type != NULL && strcmp(type, "function") != 0)
        return error_at(error, HEARTH_UNSUPPORTED, "tool_choice.type",
                        "'%s' of type \"%s\" is not supported: give \"auto\", \"none\", \"required\" or a function",
                        name, type);
    if (tool == NULL || tool[0] == '\0')
        return error_at(error, HEARTH_INVALID, "tool_choice.function.name",
                        "'%s' must name its function: {\"type\":\"function\",\"function\":{\"name\":…}}", name);
    fields->params.tool_choice = HEARTH_TOOLS_REQUIRED;
    fields->params.tool_name = tool;
    return HEARTH_OK;
}

int field_tool_choice(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    static const struct {
        const char *text;
        hearth_tool_choice choice;
    } choices[] = {{"auto", HEARTH_TOOLS_AUTO}, {"none", HEARTH_TOOLS_NONE}, {"required", HEARTH_TOOLS_REQUIRED}};
    if (json_is_object(value)) return choose_by_name(fields, name, value, error);
    for (size_t i = 0; json_is_string(value) && i < sizeof choices / sizeof *choices; i++) {
        if (strcmp(json_string_value(value), choices[i].text) != 0) continue;
        fields->params.tool_choice = choices[i].choice;
        return HEARTH_OK;
    }
    return error_at(error, HEARTH_INVALID, name, "'%s' must be \"auto\", \"none\", \"required\" or a function", name);
}

int field_parallel_tool_calls(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    if (!json_is_boolean(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be true or false", name);
    fields->params.parallel_tool_calls = json_is_true(value);
    return HEARTH_OK;
}

/* ---- Arguments of the template ---- */

static void add_kwarg(struct fields *fields, const char *name, json_t *value)
{
    if (fields->kwargs == NULL) fields->kwargs = json_object();
    json_object_set_new(fields->kwargs, name, value);
}

int field_template_kwargs(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    if (!json_is_object(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be an object", name);
    if (fields->kwargs == NULL) fields->kwargs = json_object();
    json_object_update(fields->kwargs, (json_t *)value);
    return HEARTH_OK;
}

/* "none" is the one effort that every template knows how to spend. */
int field_reasoning_effort(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    const char *effort = field_string(value);
    if (effort == NULL || effort[0] == '\0')
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a word such as \"none\", \"low\" or \"high\"", name);
    if (strcmp(effort, "none") == 0)
        add_kwarg(fields, "enable_thinking", json_false());
    else
        add_kwarg(fields, name, json_string(effort));
    return HEARTH_OK;
}

int field_enable_thinking(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    if (!json_is_boolean(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be true or false", name);
    add_kwarg(fields, name, json_boolean(json_is_true(value)));
    return HEARTH_OK;
}

int field_reasoning_format(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    static const char *const apart[] = {"auto", "deepseek", "deepseek-legacy"};
    const char *format = field_string(value);
    fields->params.reasoning_in_text = format != NULL && strcmp(format, "none") == 0;
    bool known = fields->params.reasoning_in_text;
    for (size_t i = 0; format != NULL && i < sizeof apart / sizeof *apart; i++)
        known = known || strcmp(format, apart[i]) == 0;
    if (known) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, name, "'%s' must be \"auto\", \"deepseek\" or \"none\"", name);
}

/* ---- How the prompt ends ---- */

int field_continue_final(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
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

int field_cue(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    if (!json_is_boolean(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be true or false", name);
    fields->params.without_cue = json_is_false(value);
    return HEARTH_OK;
}
