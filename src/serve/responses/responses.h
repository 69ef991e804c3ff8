/* OpenAI's Responses: POST /v1/responses, and the routes of those that are stored. A body becomes that of a chat
 * (responses_body.c), an answer the items of a response and the events in which they come (responses.c); what goes on
 * from earlier ones is put together by history.c. HTTP thread only. */
#ifndef SERVE_RESPONSES_RESPONSES_H
#define SERVE_RESPONSES_RESPONSES_H

#include "serve/core/call.h"
#include "serve/core/exchange.h"
#include "serve/responses/history.h"

#include <jansson.h>

/* The routes (those of stored ones: responses_stored.c). */
void responses_create(struct call *call);
void responses_retrieve(struct call *call);
void responses_delete(struct call *call);
void responses_list_items(struct call *call);
void responses_cancel(struct call *call);

/* OpenAI's form, with the names that fields have in Responses where the library speaks of those of chats. */
void responses_put_error(struct buf *out, const hearth_error *error, const char *request_id);

/* The chat that a body asks for, which is the caller's; NULL: the error is filled in. */
json_t *responses_chat(const json_t *body, hearth_error *error);
extern const struct fields_api responses_api;

/* The same of a body that follows the items of earlier turns; NULL: none. */
json_t *responses_chat_after(const json_t *before, const json_t *body, hearth_error *error);

/* What was asked for, with all that it goes on from; on the reading thread. `history` is opened, also where this fails,
 * which is NULL; `only_counted` as history_open() has it. */
struct fields *responses_open_fields(json_t *body, const struct reading_caller *caller, bool only_counted,
                                     struct history *history, hearth_error *error);

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
