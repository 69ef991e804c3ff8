/* Messages that are typed on a terminal, edited by libedit. Main thread only.
 *
 * The terminal gives each byte as it is typed and echoes nothing by itself, also while a reply is printed: what is
 * typed meanwhile is shown with the next prompt. Ctrl-C comes as a signal. */
#ifndef CLI_CHAT_EDITOR_H
#define CLI_CHAT_EDITOR_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdio.h>

struct editor;

enum editor_end {
    EDITOR_MESSAGE,
    EDITOR_CLEARED, /* Ctrl-C on a message that had begun: it is gone */
    EDITOR_EMPTY,   /* Ctrl-C on an empty line */
    EDITOR_NO_MORE  /* Ctrl-D on an empty line, the terminal is gone, or a signal ends the program */
};

/* `screen` is where the line is shown. NULL: standard input cannot be switched. `keeps_history`: in a file. */
struct editor *editor_open(FILE *screen, int signals, bool keeps_history);

/* Reads a message of one or more lines into `message`: a line that ends in a backslash goes on in the next one. */
enum editor_end editor_read(struct editor *editor, struct buf *message);

/* Gives the terminal to another program, and takes it back. */
void editor_lend(struct editor *editor);
void editor_resume(struct editor *editor);

/* Restores the terminal. NULL is fine. */
void editor_close(struct editor *editor);

#endif
