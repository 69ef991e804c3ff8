/* The conversation of a chat: messages in OpenAI's form, and the files that came with them. Main thread only.
 *
 * A file belongs to a message by a content part that names its place in `media`, as hearth_params.media wants it. Files
 * that are attached come with the next message of the user's: by name, or by a pasted path, as terminals do with a file
 * that is dropped on them. */
#ifndef CLI_CHAT_CONVERSATION_H
#define CLI_CHAT_CONVERSATION_H

#include "base/buf.h"
#include "hearth.h"

#include <jansson.h>

/* The path that a text stands for: without white space around it, quotes, backslashes before characters, and "file://";
 * "~/" is the home folder. free() it. */
char *attachment_path(const char *text);

/* Whether a line is nothing but the path of an image or a sound that is there, by its name's ending. */
bool attachment_is_pasted(const char *line);

/* Reads the file. HEARTH_IO: it cannot be read; HEARTH_TOO_LONG: it is too large for any model. */
int attachment_read(const char *path, struct buf *bytes, hearth_error *error);

/* ---- The conversation ---- */

struct conversation {
    char *model;      /* its name; NULL: the default one */
    json_t *messages; /* an array */
    struct conversation_media {
        hearth_medium *v; /* bytes and field are allocated */
        size_t n;
        size_t n_said; /* of them, those of messages: the others come with the next one */
    } media;
};

void conversation_init(struct conversation *chat);
void conversation_release(struct conversation *chat);

/* Appends a message. Bytes that are no UTF-8, which JSON cannot hold, become U+FFFD. One of the user's has the attached
 * files before its text. */
void conversation_say(struct conversation *chat, const char *role, const char *text, size_t len);

/* Takes the last message back, and the files that came with it; those that wait for the next one stay. There must be
 * one. */
void conversation_take_back(struct conversation *chat);

/* Takes the last message of the user's back, with what came after it. Returns its text, to be freed; NULL: there is
 * none. */
char *conversation_undo(struct conversation *chat);

/* The same for another text in its place: the files that came with it wait for that. */
char *conversation_reopen(struct conversation *chat);

/* Only the system prompt stays. */
void conversation_clear(struct conversation *chat);

/* The system prompt; NULL: there is none. */
const char *conversation_system(const struct conversation *chat);
void conversation_set_system(struct conversation *chat, const char *text);

/* The messages with their files in them, as data URLs: a "messages" of OpenAI's API. To be decref'd. */
json_t *conversation_export(const struct conversation *chat);

/* Replaces the messages by such a list, of which role and content count. HEARTH_INVALID: it is none; nothing has
 * changed. */
int conversation_import(struct conversation *chat, const json_t *messages, hearth_error *error);

/* Attaches a file; takes the bytes over. */
void conversation_attach(struct conversation *chat, const char *path, char *bytes, size_t len);

#endif
