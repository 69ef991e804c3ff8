/* What a request of the Responses API has to do with earlier ones: the items that it goes on from
 * (previous_response_id, conversation, references to items), and those that it adds to what is stored.
 *
 * It is opened on the reading thread and belongs to the request, later to its exchange, which is the HTTP thread's. */
#ifndef SERVE_RESPONSES_HISTORY_H
#define SERVE_RESPONSES_HISTORY_H

#include "serve/core/reading.h"
#include "serve/responses/stored.h"

#include <jansson.h>

#define HISTORY_ID_SIZE 25

struct history {
    struct stored *stored;
    char id[HISTORY_ID_SIZE]; /* the response's, without what it begins with */
    char *owner;
    char *conversation;         /* its id; NULL: none */
    bool is_stored;             /* the response is stored */
    size_t max_bytes;           /* of stored items that come into the prompt */
    struct stored_turn *before; /* held; NULL: the first */
    struct stored_turn *turn;   /* the items of the input, later those of the answer; NULL: nothing is stored */
};

/* What the caller's body goes on from: `*before` gets the items, or NULL; the caller's. In the body, references become
 * the items that they stand for, and "store" and "conversation" what holds here. `only_counted`: only to be counted:
 * nothing is stored. history_close() in any case. */
int history_open(struct history *history, json_t *body, const struct reading_caller *caller, bool only_counted,
                 json_t **before, hearth_error *error);
void history_close(struct history *history);

/* Bytes that it takes, beside what is stored already. */
size_t history_size(const struct history *history);

/* An item of the answer; `text` is emptied. Where nothing is stored this does nothing. */
void history_add(struct history *history, const char *id, struct buf *text);

/* The answer is whole: `response`, its JSON, is emptied. */
void history_finish(struct history *history, struct buf *response);

/* ---- Items ---- */

/* The items of a list as a turn that follows `before`: what has no id gets one with `name` in it. */
struct stored_turn *history_turn(struct stored *stored, struct stored_turn *before, const json_t *items,
                                 const char *name);

#endif
