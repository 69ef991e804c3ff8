/* The output of a chat. Replies go to standard output, and are decorated on a terminal only; prompts and notices go to
 * the terminal, also where the replies go into a file. Main thread only. */
#ifndef CLI_CHAT_OUTPUT_H
#define CLI_CHAT_OUTPUT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdio.h>

/* ---- Light markdown ---- */

/* Bold, headings, lists and code, as text arrives. Everything else in a reply is shown as it is written, control
 * characters as escapes, so that a model cannot drive the terminal. {0} is one at the beginning of a text. */
struct markdown {
    struct buf held; /* marks that what follows decides: the beginning of a line, or asterisks */
    bool in_line;    /* the beginning of the line is decided */
    bool in_block;   /* of code, between two lines of backticks */
    bool is_heading, is_bold, is_code;
};

/* Appends what the terminal is to show for more of the text, in whole UTF-8 characters. */
void markdown_put(struct markdown *state, const char *text, size_t len, struct buf *out);

/* The text has ended: appends what was held, ends all styles, and begins anew. */
void markdown_end(struct markdown *state, struct buf *out);

/* Appends a text without markdown: control characters other than line ends and tabs as escapes. */
void markdown_put_plain(const char *text, size_t len, struct buf *out);

/* ---- Notices ---- */

struct screen {
    FILE *file;   /* the terminal: stdout, else stderr; NULL: neither is one */
    bool renders; /* stdout is a terminal: reasoning and figures are shown beside the reply */
    bool colours; /* it shows colours, and the user wants them: https://no-color.org */
};

struct screen screen_find(void);

/* Sets bold, dim or coloured text by its SGR numbers ("1", "2"; "0" ends all), where colours are wanted. */
void screen_style(const struct screen *screen, FILE *file, const char *sgr);

/* Prints a line to the terminal, if there is one; control characters in it are shown as escapes: names and messages
 * come from files and servers. */
void screen_say(const struct screen *screen, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
