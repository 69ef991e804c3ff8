/* Light markdown for a terminal, as text arrives: bold, headings, lists, code. What else a reply may contain is shown
 * as it is written, control characters as escapes, so that a model cannot drive the terminal. Pure functions. */
#ifndef CLI_CHAT_MARKDOWN_H
#define CLI_CHAT_MARKDOWN_H

#include "base/buf.h"

#include <stdbool.h>

/* {0} is one at the beginning of a text. */
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

#endif
