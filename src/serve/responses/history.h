/* The history of a Responses request: the stored items that it continues (previous_response_id, conversation, item
 * references), and the turn that it adds to the store.
 *
 * The reading thread opens it. The request owns it, later its exchange. */
#ifndef SERVE_RESPONSES_HISTORY_H
#define SERVE_RESPONSES_HISTORY_H

#include "serve/core/reading.h"
#include "serve/responses/response_store.h"

#include <jansson.h>

#define HISTORY_ID_SIZE 25

struct history {
    struct stored *stored;
    char id[HISTORY_ID_SIZE]; /* of the response, without the prefix "resp_" */
    char *owner;
    char *conversation;         /* id of the conversation; NULL: none */
    bool is_stored;             /* the response will be stored */
    size_t max_bytes;           /* maximum bytes of stored items in the prompt */
    struct stored_turn *before; /* the turn that is continued (a reference); NULL: none */
    struct stored_turn *turn;   /* the input's items, later also the answer's; NULL: nothing is stored */
};

/* The use of the items of a request. */
enum history_use {
    HISTORY_STORES, /* the response is stored, where the body does not say otherwise */
    HISTORY_COUNTS, /* the tokens are only counted and nothing is stored */
    HISTORY_KEEPS   /* nothing is stored, but `turn` has the items, after those before */
};

/* Finds the stored items that the body continues: `*before` gets them, owned by the caller, or NULL. In the body,
 * item references are replaced by their items, and "store" and "conversation" by the values that hold.
 * history_close() in any case. */
int history_open(struct history *history, json_t *body, const struct reading_caller *caller, enum history_use use,
                 json_t **before, hearth_error *error);
void history_close(struct history *history);

/* Bytes that it takes, without those of stored turns. */
size_t history_size(const struct history *history);

/* Stores the complete response, whose items were added to `turn`; `response`, its JSON, is emptied. */
void history_finish(struct history *history, struct buf *response);

/* ---- Items ---- */

/* Makes a turn after `before` out of a list of items; items without an id get one with `name` in it. */
struct stored_turn *history_turn(struct stored *stored, struct stored_turn *before, const json_t *items,
                                 const char *name);

#endif
