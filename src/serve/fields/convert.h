/* From the body of another API to the body of an OpenAI chat, which fields.h reads: one table of fields serves all.
 *
 * What both APIs call the same, and what hearth and llama-server add to every API (sampling, cache_salt, …), is taken
 * as it is; the converters of the APIs write the rest. Messages are put together from pieces, since an API may spread
 * one turn of the assistant's over several items, and OpenAI has one message with reasoning, content and calls.
 *
 * Errors name the client's own field: "messages[2].content[0].type". Any thread; the owner keeps it on the stack. */
#ifndef SERVE_FIELDS_CONVERT_H
#define SERVE_FIELDS_CONVERT_H

#include "base/buf.h"
#include "serve/fields/fields.h"

struct convert {
    const json_t *body;   /* the client's; borrowed */
    const json_t *before; /* of Responses: stored items that come before its own; borrowed, NULL: none */
    json_t *chat;         /* what is made of it */
    hearth_error *error;

    /* The message that is being put together. */
    const char *role; /* NULL: none */
    json_t *texts;    /* content, as strings and media */
    json_t *calls;
    struct buf reasoning;
};

/* The place of a field, for errors. */
struct field_path {
    char v[sizeof((hearth_error *)NULL)->param];
};

struct field_path field_path_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Begins with what the client gave, less what a chat would take for its own. */
void convert_open(struct convert *convert, const json_t *body, hearth_error *error);

/* Whether a field of chats is taken as it is. */
bool convert_passes(const char *name);

/* The finished chat, which is the caller's; or NULL where `rc` says that something failed. */
json_t *convert_close(struct convert *convert, int rc);

/* ---- Errors ---- */

int convert_fault(const struct convert *convert, struct field_path at, const char *what);
int convert_unsupported(const struct convert *convert, struct field_path at, const char *what);

/* Refuses the fields of a list, up to NULL, where they ask for something. */
int convert_refuse(const struct convert *convert, const char *const *names);

/* Members of an object at `at`: a string (also an empty one), an object; NULL: the error is filled in. */
const json_t *convert_string(const struct convert *convert, const json_t *object, struct field_path at,
                             const char *name);
const json_t *convert_object(const struct convert *convert, const json_t *object, struct field_path at,
                             const char *name);

/* The member "type" is none of those that are known, or missing. */
int convert_bad_type(const struct convert *convert, const json_t *object, struct field_path at);

/* What the library calls a field of the chat, and what the client does. "[]" is any index, and what follows the field's
 * name is then kept; else it is dropped, since the client has no such place. */
struct convert_name {
    const char *chat, *own;
};

/* The library's error in the client's words: its field, and the message where that begins with it. */
hearth_error convert_rename(const hearth_error *error, const struct convert_name *names, size_t n);

/* Whether a JSON string is this one. */
bool convert_is(const json_t *value, const char *text);

/* ---- Fields of the chat ---- */

/* Sets a field; `value` is taken over. */
void convert_set(struct convert *convert, const char *name, json_t *value);

/* A tool of OpenAI's out of members that may be missing: a description, a schema of its arguments, strict. */
void convert_add_tool(struct convert *convert, const json_t *tool, const char *schema);

/* tool_choice: the function of that name. */
void convert_choose_tool(struct convert *convert, const json_t *name);

/* ---- Messages ---- */

/* The pieces go into the message that is being put together as long as the role is the same. `text`: a string, or
 * convert_media()'s. */
void convert_add_text(struct convert *convert, const char *role, const json_t *text);
void convert_add_reasoning(struct convert *convert, const json_t *text);
void convert_add_call(struct convert *convert, const json_t *id, const json_t *name, const json_t *arguments);

/* A part of the content, in a list of texts or with convert_add_text(), that is no text: "image_url", "input_audio" or
 * "file", as chats name them. Without its data: src/chat decides what a model that takes text only gets of it, which is
 * not that. The caller's. */
json_t *convert_media(const char *type);

/* A message of its own: what a tool gave. `texts` is a list of strings and media. */
void convert_add_result(struct convert *convert, const json_t *id, const json_t *texts);

/* The message is complete. */
void convert_end_message(struct convert *convert);

#endif
