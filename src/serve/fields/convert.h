/* Converts the body of another API (Messages, Responses, Ollama) to the body of an OpenAI chat, which fields.h reads:
 * one table of fields serves all APIs.
 *
 * Fields of the same name, and those that hearth and llama-server add to every API (sampling, cache_salt, …), are
 * copied; the APIs' converters write the rest. Messages are assembled from pieces, since an API may spread one turn of
 * the assistant over several items, while OpenAI has one message with reasoning, content and calls.
 *
 * Errors name the client's own field: "messages[2].content[0].type". Any thread; the caller keeps the struct on its
 * stack. */
#ifndef SERVE_FIELDS_CONVERT_H
#define SERVE_FIELDS_CONVERT_H

#include "base/buf.h"
#include "serve/core/errors.h"
#include "serve/fields/fields.h"

#include <jansson.h>

struct convert {
    const json_t *body;           /* the client's; borrowed */
    const json_t *before;         /* Responses: stored items that precede those of the body; borrowed, NULL: none */
    json_t *chat;                 /* the OpenAI chat that is built */
    struct uploads *uploads;      /* the media of its parts */
    struct header_list *left_out; /* what the chat will not have */
    hearth_error *error;
    bool asks;    /* what is read now is what the user asks: text of the last turn, or of the system prompt */
    json_t *lost; /* ids of calls that are left out, as keys, with their results; NULL: none */

    struct field_path at; /* what is read now, as the client names it */

    /* The message that is being assembled. */
    const char *role; /* NULL: none */
    json_t *texts;    /* content: strings and media parts */
    json_t *calls;
    struct buf reasoning;
    json_t *place; /* its entry in the places */
};

/* Begins with a copy of the client's body, without the fields that mean something else in a chat. */
void convert_open(struct convert *convert, const json_t *body, struct uploads *uploads, struct header_list *left_out,
                  hearth_error *error);

/* Whether a field of chats is copied unchanged. */
bool convert_passes(const char *name);

/* The finished chat, owned by the caller; NULL if `rc` is an error. */
json_t *convert_close(struct convert *convert, int rc);

/* ---- Errors ---- */

int convert_fault(const struct convert *convert, struct field_path at, const char *what);

/* Refuses the fields of a NULL-terminated list, unless their values ask for nothing (fields_asks()). */
int convert_refuse(const struct convert *convert, const char *const *names);

/* A member of the object at the path `at`: a string (also an empty one), an object; NULL: the error is filled in. */
const json_t *convert_string(const struct convert *convert, const json_t *object, struct field_path at,
                             const char *name);
const json_t *convert_object(const struct convert *convert, const json_t *object, struct field_path at,
                             const char *name);

/* Fails because the member "type" is unknown or missing. */
int convert_bad_type(const struct convert *convert, const json_t *object, struct field_path at);

/* ---- What a chat cannot have ---- */

/* Leaves out what is at this path: HEARTH_OK. */
int convert_leave_out(const struct convert *convert, struct field_path at);

/* The same for content of an unknown type in earlier turns. In what the user asks it is refused instead. */
int convert_unknown(const struct convert *convert, const json_t *object, struct field_path at);

/* A call and its results are left out together: notes the id of one of them, if it is one, before any of them is read;
 * whether it was noted. */
void convert_lose_call(struct convert *convert, const json_t *id);
bool convert_lost_call(const struct convert *convert, const json_t *id);

/* The index from which on a list of messages is what the user asks: after the last message that is not the user's or a
 * system message. */
size_t convert_asked_from(const json_t *messages);

/* Appends texts to a list: as one, a line for each, if there are no media among them. */
void convert_join(json_t *texts, const json_t *more);

/* ---- Names ---- */

/* A field's name in the chat, and in the client's API. "[]" matches any index, and what follows the name is kept;
 * without it that is dropped, since the client's field has no such member. */
struct convert_name {
    const char *chat, *own;
};

/* The library's error with the client's field name, also at the beginning of the message. */
hearth_error convert_rename(const hearth_error *error, const struct convert_name *names, size_t n);

/* Whether a JSON value is this string. */
bool convert_is(const json_t *value, const char *text);

/* ---- Fields of the chat ---- */

/* Sets a field; takes `value` over. */
void convert_set(struct convert *convert, const char *name, json_t *value);

/* Adds a tool, whose description, schema of its arguments (member `schema`) and strict may be missing. */
void convert_add_tool(struct convert *convert, const json_t *tool, const char *schema);

/* A value as the text of a call's arguments, a JSON string owned by the caller; without a value it is "{}". A string
 * is taken as it is: that of a call that was broken off may be no JSON. */
json_t *convert_arguments(const json_t *value);

/* Sets max_tokens to the field of that name, or else to `without`, unless that is 0. */
int convert_max_tokens(struct convert *convert, const char *name, int64_t without);

/* Sets tool_choice to the function of that name. */
void convert_choose_tool(struct convert *convert, const json_t *name);

/* ---- Messages ---- */

/* Append to the message that is being assembled; another role begins a new message. `text`: a string, or a part of
 * uploads_part(). */
void convert_add_text(struct convert *convert, const char *role, const json_t *text);
void convert_add_texts(struct convert *convert, const char *role, const json_t *texts); /* a list of these */
void convert_add_reasoning(struct convert *convert, const json_t *text);
void convert_add_call(struct convert *convert, const json_t *id, const json_t *name, const json_t *arguments);

/* Adds a tool's result, a message of its own. `texts` is a list of strings and media. */
void convert_add_result(struct convert *convert, const json_t *id, const json_t *texts);

/* Completes the message that is being assembled, if any. */
void convert_end_message(struct convert *convert);

/* ---- Other services ---- */

/* The text in JSON of a service whose forms are not read one by one, as the results and output of its own tools. It is
 * the strings and codes under the names that such services use for them, each a line, headings first. Ids, types and
 * encrypted values are no text. A JSON string owned by the caller; NULL: there is none. Lists and objects under
 * "content" are not looked at: they are content parts, which may be media. */
json_t *readable_text(const json_t *value);

#endif
