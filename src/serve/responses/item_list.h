/* Paged lists of stored items, and the answers for missing and deleted ones, in OpenAI's form. No state; HTTP thread
 * only. */
#ifndef SERVE_RESPONSES_ITEM_LIST_H
#define SERVE_RESPONSES_ITEM_LIST_H

#include "serve/core/call.h"
#include "serve/responses/response_store.h"

/* Answers with a page of the first `n` items of a turn (NULL: none) and the turns before it; the query says which:
 * ?limit=20 (1 to 100), ?order=desc (newest first) or asc, ?after=ID. */
void item_list_reply(struct call *call, const struct stored_turn *turn, size_t n);

/* Writes a list of `n` items. */
void item_list_put(struct buf *out, const struct stored_item *items, size_t n, bool has_more);

/* Answers with 404 in OpenAI's form. `what`: "response". */
void item_list_miss(struct call *call, const char *what, const char *id);

/* Answers that the object of that id is deleted. `object`: "conversation.deleted". */
void item_list_deleted(struct call *call, const char *object, const char *id);

#endif
