/* Pasted text in a line that is typed. What is long or has several lines is shown as a short label, "[paste 1: 100000
 * bytes, 12 lines]", since a terminal cannot edit it; the message has the text itself. Pure functions. */
#ifndef CLI_CHAT_PASTES_H
#define CLI_CHAT_PASTES_H

#include "base/buf.h"

struct pastes {
    struct paste {
        char *label;
        struct buf text;
    } * v;
    size_t n;
};

/* Cleans pasted bytes as they come through a terminal: lines end with "\n" ("\r" and "\n" are both line ends, "\n\r" is
 * one); other control characters go; bytes that are no UTF-8 become U+FFFD. */
void pastes_clean(struct buf *out, const char *bytes, size_t len);

/* What the line is to show for a cleaned text: the text itself, where it is short, or the label under which it is kept.
 * The string lives until the next call. */
const char *pastes_add(struct pastes *pastes, const struct buf *text);

/* Appends a line with its labels replaced by what they stand for. */
void pastes_expand(const struct pastes *pastes, const char *line, struct buf *out);

void pastes_release(struct pastes *pastes);

#endif
