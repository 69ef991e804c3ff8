/* A conversation: messages, tools, calls of tools. It is written as the text that the chat template makes of it, in
 * pieces with what each counts for the trainer, and as the JSON of OpenAI's API. One owner; one thread at a time. */
#ifndef DEMO_CONVERSATION_H
#define DEMO_CONVERSATION_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL };

struct tool_call {
    char *name, *arguments; /* the arguments are a JSON object as the template writes it: with a space after : and , */
};

enum { CALLS_MAX = 3 };

struct message {
    enum role role;
    char *content; /* "" of a message that only calls tools */
    struct tool_call calls[CALLS_MAX];
    int n_calls;
    bool foreign; /* the assistant's, but not as the model would say it: it learns to read it, not to write it */
};

struct conversation {
    struct message *messages;
    size_t n_messages;
    char **tools; /* each a JSON object as the template writes it */
    size_t n_tools;
};

void conversation_release(struct conversation *conversation);

/* The content is copied. The message is valid until the next one is added. */
struct message *conversation_add(struct conversation *conversation, enum role role, const char *content);

/* Takes all three. */
void conversation_add_call(struct message *message, char *name, char *arguments);
void conversation_add_tool(struct conversation *conversation, char *json);

/* A piece of the text. */
enum piece {
    PIECE_READ,  /* what the model reads */
    PIECE_SPOKEN /* what it writes, <|im_end|> included */
};

typedef void (*piece_fn)(void *ud, enum piece piece, const char *text, size_t len);

/* The text of the first n messages, as the template writes them, without a generation prompt. A conversation with tools
 * has a system message of its own, or one is made for them. */
void conversation_pieces(const struct conversation *conversation, size_t n, piece_fn put, void *ud);

/* What the model writes for a message of the assistant's, without <|im_end|>. */
void conversation_spoken(const struct message *message, struct buf *out);

/* JSON arrays for hearth_params: the first n messages; the tools, NULL where there are none. The caller frees them. */
char *conversation_messages_json(const struct conversation *conversation, size_t n);
char *conversation_tools_json(const struct conversation *conversation);

#endif
