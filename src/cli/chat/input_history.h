/* The history of what was typed, in a file of the user's alone: $XDG_STATE_HOME/hearth/chat_history, by default in
 * ~/.local/state. Main thread only. */
#ifndef CLI_CHAT_INPUT_HISTORY_H
#define CLI_CHAT_INPUT_HISTORY_H

#include <histedit.h>
#include <stdbool.h>

struct history_file {
    History *list;
    char *path; /* NULL: it is not kept */
};

/* `kept`: it is read from the file, where there is one, and written back. Without a home folder it is not kept. */
void chat_history_open(struct history_file *file, bool kept);

/* Adds a message, and writes the file anew. Long ones are left out. What cannot be written is not kept: typing goes on.
 */
void chat_history_add(struct history_file *file, const char *text);

void chat_history_close(struct history_file *file);

#endif
