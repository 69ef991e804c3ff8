/* Tools of Responses, converted to functions and back: see responses.h. */
#include "serve/responses/responses.h"

#include "base/json_text.h"
#include "base/memory.h"
#include "serve/fields/body.h"
#include "serve/fields/convert.h"

#include <stdlib.h>
#include <string.h>

/* ---- Names ---- */

json_t *responses_tool_name(const json_t *space, const json_t *name)
{
    if (!json_is_string(space)) return json_incref((json_t *)name);
    return json_sprintf("%s__%s", json_string_value(space), json_string_value(name));
}

/* ---- Requests ---- */

static int read_list(struct convert *convert, const json_t *tools, const json_t *space, struct field_path at);

/* `space`: the name of the namespace around it, or NULL. */
static int read_tool(struct convert *convert, json_t *tool, const json_t *space, struct field_path at)
{
    const json_t *type = json_object_get(tool, "type"), *schema = body_find(tool, "parameters");
    const bool is_function = convert_is(type, "function"), is_space = convert_is(type, "namespace");
    if (!json_is_string(type)) return convert_bad_type(convert, tool, at);
    if (!is_function && !is_space && !convert_is(type, "custom")) return convert_leave_out(convert, at);
    const json_t *name = convert_string(convert, tool, at, "name");
    if (name == NULL) return HEARTH_INVALID;
    if (is_space) return read_list(convert, json_object_get(tool, "tools"), name, field_path_of("%.80s.tools", at.v));
    if (is_function && schema != NULL && !json_text_is_object(schema))
        return convert_fault(convert, field_path_of("%s.parameters", at.v), "must be an object");
    json_t *by_model = responses_tool_name(space, name);
    json_t *function = is_function ? json_copy(tool) : custom_tool_function(by_model, tool);
    json_object_set_new(function, "name", by_model);
    convert->at = at;
    convert_add_tool(convert, function, "parameters");
    json_decref(function);
    return HEARTH_OK;
}

static int read_list(struct convert *convert, const json_t *tools, const json_t *space, struct field_path at)
{
    size_t i;
    json_t *tool;
    int rc = HEARTH_OK;
    if (tools != NULL && !json_is_array(tools) && !json_is_null(tools))
        return convert_fault(convert, at, "must be a list of tools");
    json_array_foreach(tools, i, tool) if (rc == HEARTH_OK) rc =
        read_tool(convert, tool, space, field_path_of("%.90s[%zu]", at.v, i));
    return rc;
}

/* ---- tool_choice ---- */

static bool is_allowed(const json_t *allowed, const json_t *tool)
{
    const json_t *name = json_object_get(json_object_get(tool, "function"), "name");
    size_t i;
    json_t *one;
    json_array_foreach(allowed, i, one)
    {
        const json_t *own = json_object_get(one, "name");
        json_t *its = json_is_string(own) ? responses_tool_name(json_object_get(one, "namespace"), own) : NULL;
        bool same = json_equal(its, name);
        json_decref(its);
        if (same) return true;
    }
    return false;
}

/* Converts to a chat's allowed_tools: all tools stay in the prompt. "none" if none of the allowed tools exists. */
static int choose_among(struct convert *convert, const json_t *choice)
{
    const json_t *allowed = json_object_get(choice, "tools"), *mode = json_object_get(choice, "mode");
    if (!json_is_array(allowed))
        return convert_fault(convert, field_path_of("tool_choice.tools"), "must be a list of tools");
    if (!convert_is(mode, "auto") && !convert_is(mode, "required"))
        return convert_fault(convert, field_path_of("tool_choice.mode"), "must be \"auto\" or \"required\"");
    json_t *tools = json_array(), *tool;
    size_t i;
    json_array_foreach(json_object_get(convert->chat, "tools"), i, tool)
    {
        if (is_allowed(allowed, tool)) json_array_append(tools, tool);
    }
    if (json_array_size(tools) == 0)
        convert_set(convert, "tool_choice", json_string("none"));
    else
        convert_set(
            convert, "tool_choice",
            json_pack("{s:s, s:{s:O, s:O}}", "type", "allowed_tools", "allowed_tools", "mode", mode, "tools", tools));
    json_decref(tools);
    return HEARTH_OK;
}

int responses_read_tools(struct convert *convert)
{
    int rc = read_list(convert, json_object_get(convert->body, "tools"), NULL, field_path_of("tools"));
    if (rc != HEARTH_OK) return rc;
    /* The words of "tool_choice" are those of chats. The choice of a tool that was left out is ignored. */
    const json_t *choice = json_object_get(convert->body, "tool_choice"), *type = json_object_get(choice, "type");
    if (choice == NULL || json_is_null(choice)) return HEARTH_OK;
    if (!json_text_is_object(choice)) {
        convert_set(convert, "tool_choice", json_incref((json_t *)choice));
        return HEARTH_OK;
    }
    if (!json_is_string(type)) return convert_bad_type(convert, choice, field_path_of("tool_choice"));
    if (convert_is(type, "allowed_tools")) return choose_among(convert, choice);
    if (!convert_is(type, "function") && !convert_is(type, "custom")) return HEARTH_OK;
    const json_t *name = convert_string(convert, choice, field_path_of("tool_choice"), "name");
    if (name == NULL) return HEARTH_INVALID;
    json_t *its = responses_tool_name(json_object_get(choice, "namespace"), name);
    convert_choose_tool(convert, its);
    json_decref(its);
    return HEARTH_OK;
}

/* ---- Answers ---- */

struct responses_tools {
    struct named {
        char *by_model;
        struct responses_tool tool;
    } * v;
    size_t n;
};

static void add_tools(struct responses_tools *tools, const json_t *list, const json_t *space)
{
    size_t i;
    json_t *tool;
    json_array_foreach(list, i, tool)
    {
        const json_t *type = json_object_get(tool, "type"), *name = json_object_get(tool, "name");
        bool is_custom = convert_is(type, "custom");
        if (convert_is(type, "namespace")) add_tools(tools, json_object_get(tool, "tools"), name);
        /* Functions keep their names, but in a namespace. */
        if (!is_custom && (space == NULL || !convert_is(type, "function"))) continue;
        json_t *by_model = responses_tool_name(space, name);
        tools->v = mem_grow(tools->v, tools->n + 1, sizeof *tools->v);
        tools->v[tools->n++] = (struct named){.by_model = mem_strdup(json_string_value(by_model)),
                                              .tool = {.name = mem_strdup(json_string_value(name)),
                                                       .space = mem_strdup(json_string_value(space)),
                                                       .is_custom = is_custom}};
        json_decref(by_model);
    }
}

struct responses_tools *responses_tools_open(const json_t *body)
{
    struct responses_tools *tools = mem_alloc(sizeof *tools);
    add_tools(tools, json_object_get(body, "tools"), NULL);
    return tools;
}

void responses_tools_close(struct responses_tools *tools)
{
    if (tools == NULL) return;
    for (size_t i = 0; i < tools->n; i++) {
        free(tools->v[i].by_model);
        free(tools->v[i].tool.name);
        free(tools->v[i].tool.space);
    }
    free(tools->v);
    free(tools);
}

const struct responses_tool *responses_tools_find(const struct responses_tools *tools, const char *name)
{
    for (size_t i = 0; i < tools->n; i++)
        if (strcmp(tools->v[i].by_model, name) == 0) return &tools->v[i].tool;
    return NULL;
}
