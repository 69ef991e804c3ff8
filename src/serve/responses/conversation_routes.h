/* The routes of stored responses (declared in responses.h), and OpenAI's conversations: POST /v1/conversations and what
 * is below it. A conversation is an id for a list of items, which requests with `conversation` continue and append to;
 * it is stored like responses (response_store.h). HTTP thread only. */
#ifndef SERVE_RESPONSES_CONVERSATION_ROUTES_H
#define SERVE_RESPONSES_CONVERSATION_ROUTES_H

#include "serve/core/call.h"
#include "serve/responses/response_store.h"

void conversations_create(struct call *call);
void conversations_retrieve(struct call *call);
void conversations_update(struct call *call);
void conversations_delete(struct call *call);
void conversations_list_items(struct call *call);
void conversations_add_items(struct call *call);
void conversations_show_item(struct call *call);
void conversations_delete_item(struct call *call);

#endif
