/* The user's input: typed on a terminal and edited by libedit, pasted, or read from a file or a pipe line by line. Main
 * thread only.
 *
 * The terminal gives each byte as it is typed and echoes nothing by itself, also while a reply is printed. The next
 * prompt shows the bytes that were typed meanwhile. Ctrl-C comes as a signal. */
#ifndef CLI_CHAT_INPUT_H
#define CLI_CHAT_INPUT_H

#include "base/buf.h"
#include "hearth.h"

#include <stdbool.h>
#include <stdio.h>

/* ---- Lines of a file or a pipe ---- */

/* Bytes of a message at most, however it comes; no model takes so many in one prompt. */
#define LINES_MOST (16u << 20)

struct lines {
    int fd, signals;
    struct buf input; /* read and not yet taken */
    bool ended;       /* there is no more to read */
    bool stopped;     /* a signal ended the waiting */
};

/* Moves the next line into `line`, without its end. 1: there is one, 0: there is none, HEARTH_TOO_LONG: it exceeds
 * LINES_MOST. */
int lines_read(struct lines *lines, struct buf *line, hearth_error *error);

/* Reads everything that is left. HEARTH_TOO_LONG. */
int lines_read_all(struct lines *lines, struct buf *text, hearth_error *error);

void lines_release(struct lines *lines);

/* ---- Pasted text: pure functions ---- */

/* A pasted text that is long or has several lines is shown as a short label, "[paste 1: 100000 bytes, 12 lines]", since
 * a terminal cannot edit it. The message has the text itself. */
struct pastes {
    struct paste {
        char *label;
        struct buf text;
    } * v;
    size_t n;
};

/* Cleans pasted bytes as they come through a terminal. Lines end with "\n" ("\r" and "\n" are both line ends, "\n\r" is
 * one). Other control characters are left out, except tabs. Bytes that are no UTF-8 become U+FFFD. */
void pastes_clean(struct buf *out, const char *bytes, size_t len);

/* Returns the string that the line shows for a cleaned text: the text itself, where it is short, or the label under
 * which it is kept. The string lives until the next call. */
const char *pastes_add(struct pastes *pastes, const struct buf *text);

/* Appends a line with its labels replaced by what they stand for. */
void pastes_expand(const struct pastes *pastes, const char *line, struct buf *out);

void pastes_release(struct pastes *pastes);

/* ---- The editor ---- */

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
