/* Custom tools of OpenAI's APIs, whose calls have a text and no JSON: the model is given a function with that text as
 * its one argument, "input", and calls of it are told as what the client knows. No state; any thread. */
#ifndef SERVE_FIELDS_CUSTOM_TOOLS_H
#define SERVE_FIELDS_CUSTOM_TOOLS_H

#include "base/buf.h"

#include <jansson.h>
#include <stdbool.h>

/* The function, without its type; owned by the caller. `tool` has "description" and "format". What a regular expression
 * allows is enforced, as far as a schema's `pattern` is; other grammars (Lark) are words of the description. */
json_t *custom_tool_function(const json_t *name, const json_t *tool);

/* Whether a call of this name is that of a custom tool: `names` is a list of theirs, or NULL. */
bool custom_tool_is_among(const json_t *names, const char *name);

/* The arguments of a call, as text in a JSON string; owned by the caller. */
json_t *custom_tool_arguments(const json_t *input);

/* Appends the text of a call's arguments; those that were cut off, or that have another form, as they are. */
void custom_tool_put_input(struct buf *out, const struct buf *arguments);

#endif
