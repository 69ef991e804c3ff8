/* Tools of Responses that a chat has no word for, as functions, and calls of them back into the client's own words.
 *
 *     {"type": "namespace", "name": "a", "tools": [{"type": "function", "name": "b", …}]}   a__b(…)
 *     {"type": "custom", "name": "c"}                                                       c(input: string)
 *
 * Tools that OpenAI's servers would run (web_search, image_generation, …) are left out: nobody runs them here. No state
 * but the table; any thread. */
#ifndef SERVE_RESPONSES_RESPONSES_TOOLS_H
#define SERVE_RESPONSES_RESPONSES_TOOLS_H

#include "serve/fields/convert.h"

/* ---- Requests ---- */

/* The tools of a body, and the choice among them, as those of the chat. Members "tools", "tool_choice". */
int responses_read_tools(struct convert *convert);

/* The name by which the model knows a tool; `space` may be NULL. A string of the caller's. */
json_t *responses_tool_name(const json_t *space, const json_t *name);

/* What a function is given that stands for a custom tool; a string of the caller's. */
json_t *responses_custom_arguments(const json_t *input);

/* ---- Answers ---- */

/* What the client calls a tool. */
struct responses_tool {
    char *name, *space; /* space: NULL: none */
    bool is_custom;
};

struct responses_tools;

/* Of the body that a client sent, which must have been read without an error. */
struct responses_tools *responses_tools_open(const json_t *body);
void responses_tools_close(struct responses_tools *tools); /* NULL is fine */

/* By the name that the model used; NULL: a function of the same name. */
const struct responses_tool *responses_tools_find(const struct responses_tools *tools, const char *name);

/* Appends the input in the arguments of a custom tool's call: as they are where they are not whole. */
void responses_put_input(struct buf *out, const struct buf *arguments);

#endif
