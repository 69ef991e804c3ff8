/* OpenAI's Responses: POST /v1/responses, and the routes of stored responses. responses_body.c and responses_tools.c
 * convert bodies to OpenAI chats. The dialect in responses.c writes the items of a response, or the events of a stream.
 * history.c adds the stored items of previous responses and conversations. HTTP thread only, except the conversion. */
#ifndef SERVE_RESPONSES_RESPONSES_H
#define SERVE_RESPONSES_RESPONSES_H

#include "serve/core/call.h"
#include "serve/core/exchange.h"
#include "serve/core/reading.h"
#include "serve/fields/fields.h"
#include "serve/responses/history.h"

#include <jansson.h>

/* The routes. */
extern const struct reading_form responses_create;
void responses_retrieve(struct call *call);
void responses_delete(struct call *call);
void responses_list_items(struct call *call);
void responses_cancel(struct call *call);

/* OpenAI's form of an error; fields of the chat are renamed to those of Responses. */
void responses_put_error(struct buf *out, const hearth_error *error, const char *request_id);

/* Converts a body to an OpenAI chat: a fields_converter. */
json_t *responses_chat(const json_t *body, struct uploads *uploads, struct header_list *left_out, hearth_error *error);
extern const struct fields_api responses_api;

/* The same with the stored items `before` (NULL: none) in front of the body's. */
json_t *responses_chat_after(const json_t *before, const json_t *body, struct uploads *uploads,
                             struct header_list *left_out, hearth_error *error);

/* Parses a body together with the stored items that it continues. `history` is opened in any case, also on failure,
 * which is NULL with the error; `use` as in history_open(). Reading thread. */
struct fields *responses_open_fields(json_t *body, const struct reading_caller *caller, enum history_use use,
                                     struct history *history, hearth_error *error);

/* Appends the object that is a response's "usage". */
void responses_put_usage(struct buf *out, const struct answer *answer);

/* Appends what a response repeats of its request: the members after "usage", each with a comma before it. */
void responses_put_echo(struct buf *out, const json_t *body);

struct responses_tools;

/* For tests: the dialect and its state. Strings are copied; `echo`, of responses_put_echo(), and `tools` are taken
 * over. */
extern const struct dialect responses_dialect;

struct responses_names {
    const char *model, *id;
    int64_t created; /* unix time, seconds */
    bool timings_per_token;
};

void *responses_state(const struct responses_names *names, struct buf *echo, struct responses_tools **tools);

/* ---- Conversations (conversation_routes.c, with the routes of stored responses) ---- */

/* POST /v1/conversations and what is below it. A conversation is an id for a list of items, which requests with
 * `conversation` continue and append to; it is stored like responses (response_store.h). */
extern const struct reading_form conversations_create;
void conversations_retrieve(struct call *call);
extern const struct reading_form conversations_update;
void conversations_delete(struct call *call);
void conversations_list_items(struct call *call);
extern const struct reading_form conversations_add_items;
void conversations_show_item(struct call *call);
void conversations_delete_item(struct call *call);

/* POST /v1/responses/compact: a conversation becomes its user's messages and one item with a summary of it, which the
 * model writes. The client sends these items in place of the conversation from then on. */
extern const struct reading_form responses_compact;

/* The text that the model sees in place of a compaction item: the summary that it holds. NULL: it is none of hearth's,
 * and cannot be read. */
json_t *compaction_text(const json_t *item);

/* ---- Tools (responses_tools.c) ---- */

/* Tools of Responses that OpenAI chats lack: converts them to functions, and calls of these back to the client's form.
 *
 *     {"type": "namespace", "name": "a", "tools": [{"type": "function", "name": "b", …}]}   a__b(…)
 *     {"type": "custom", "name": "c"}                                                       c(input: string)
 *
 * Tools that OpenAI's servers would run (web_search, image_generation, …) are left out. No state but the table of
 * renamed tools; any thread. */
struct convert;

/* Converts the body's "tools" and "tool_choice" to those of the chat. */
int responses_read_tools(struct convert *convert);

/* The name of a tool as the model sees it; `space`, its namespace, may be NULL. A JSON string owned by the caller. */
json_t *responses_tool_name(const json_t *space, const json_t *name);

/* A tool as the client named it. */
struct responses_tool {
    char *name, *space; /* space: NULL: none */
    bool is_custom;
};

/* The table of a body's renamed tools. The body must have been converted without an error. */
struct responses_tools *responses_tools_open(const json_t *body);
void responses_tools_close(struct responses_tools *tools); /* NULL is fine */

/* Finds a tool by the name that the model used; NULL: a function of the same name. */
const struct responses_tool *responses_tools_find(const struct responses_tools *tools, const char *name);

#endif
