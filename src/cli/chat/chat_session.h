/* A chat: the backend that answers, the conversation, the screen that shows it, and the commands that a user may type.
 * Main thread only. */
#ifndef CLI_CHAT_CHAT_SESSION_H
#define CLI_CHAT_CHAT_SESSION_H

#include "cli/chat/chat_backend.h"
#include "cli/chat/conversation.h"
#include "cli/chat/input.h"
#include "cli/chat/output.h"

struct chat {
    const char *command; /* "hearth chat", for messages */
    struct backend *backend;
    struct conversation conversation;
    struct screen screen;
    struct editor *editor; /* NULL: nothing is typed */
    int signals;
    struct chat_totals { /* of the replies so far */
        int n;
        int64_t cached, computed, generated; /* tokens */
        double seconds;
        hearth_result last;
    } totals;
    bool shows_figures; /* after each reply */
    bool stopped;       /* the last reply or answer of the server, by a signal */
    bool ends;          /* /exit, or a signal that ends the program */
};

/* Says a message of the user's and streams the reply. Where there is none, the message is taken back, so that the next
 * prompt extends a conversation that is cached. Prints the error and returns its code, or HEARTH_OK, also where a
 * signal stopped the reply. */
int chat_take_turn(struct chat *chat, const char *text, size_t len);

/* The model of the conversation. */
struct backend_model chat_model(const struct chat *chat);

/* Attaches the file that a text names, to come with the next message. Prints the error and returns its code. */
int chat_attach(struct chat *chat, const char *text);

/* Runs a message of one line that is a command; false: it is none. `*status` gets the code of its failure, which was
 * printed, or HEARTH_OK. On a terminal a line that begins like a command is refused, with the nearest name. */
bool chat_take_command(struct chat *chat, const char *text, int *status);

#endif
