/* Tools of Responses that OpenAI chats lack: converts them to functions, and calls of these back to the client's form.
 *
 *     {"type": "namespace", "name": "a", "tools": [{"type": "function", "name": "b", …}]}   a__b(…)
 *     {"type": "custom", "name": "c"}                                                       c(input: string)
 *
 * Tools that OpenAI's servers would run (web_search, image_generation, …) are left out. No state but the table of
 * renamed tools; any thread. */
#ifndef SERVE_RESPONSES_RESPONSES_TOOLS_H
#define SERVE_RESPONSES_RESPONSES_TOOLS_H

#include "serve/fields/convert.h"

/* ---- Requests ---- */

/* Converts the body's "tools" and "tool_choice" to those of the chat. */
int responses_read_tools(struct convert *convert);

/* The name of a tool as the model sees it; `space`, its namespace, may be NULL. A JSON string owned by the caller. */
json_t *responses_tool_name(const json_t *space, const json_t *name);

/* ---- Answers ---- */

/* A tool as the client named it. */
struct responses_tool {
    char *name, *space; /* space: NULL: none */
    bool is_custom;
};

struct responses_tools;

/* The table of a body's renamed tools. The body must have been converted without an error. */
struct responses_tools *responses_tools_open(const json_t *body);
void responses_tools_close(struct responses_tools *tools); /* NULL is fine */

/* Finds a tool by the name that the model used; NULL: a function of the same name. */
const struct responses_tool *responses_tools_find(const struct responses_tools *tools, const char *name);

#endif
