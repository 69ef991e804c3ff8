/* OpenAI's Responses: POST /v1/responses. A body becomes that of a chat (responses_body.c), an answer the items of a
 * response and the events in which they come (responses.c). Nothing is kept: a client sends the whole conversation
 * with every request. HTTP thread only. */
#ifndef SERVE_RESPONSES_H
#define SERVE_RESPONSES_H

#include "serve/call.h"
#include "serve/exchange.h"

#include <jansson.h>

/* The route. */
void responses_create(struct call *call);

/* OpenAI's form, with the names that fields have in Responses where the library speaks of those of chats. */
void responses_put_error(struct buf *out, const hearth_error *error, const char *request_id);

/* The chat that a body asks for, which is the caller's; NULL: the error is filled in. */
json_t *responses_chat(const json_t *body, hearth_error *error);

/* What a response repeats of its request: the members after "usage", each with a comma before it. */
void responses_put_echo(struct buf *out, const json_t *body);

struct responses_tools;

/* For tests: the dialect and its state. Strings are copied; `echo`, responses_put_echo()'s, and `tools` are taken over.
 */
extern const struct dialect responses_dialect;

struct responses_names {
    const char *model, *id;
    int64_t created; /* unix time, seconds */
};

void *responses_state(const struct responses_names *names, struct buf *echo, struct responses_tools **tools);

#endif
