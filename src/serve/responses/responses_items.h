/* Reads the items of Responses, stored ones and those of the input, into the chat that is being converted. History is
 * not judged: items of tools that OpenAI's servers ran are calls with their results where these are known, and what has
 * no text is left out. No state; any thread. */
#ifndef SERVE_RESPONSES_RESPONSES_ITEMS_H
#define SERVE_RESPONSES_RESPONSES_ITEMS_H

#include "serve/fields/convert.h"

/* Reads the stored items and those of the input, if it is a list. */
int responses_read_items(struct convert *convert);

#endif
