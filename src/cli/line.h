/* Edits a line that is typed on a terminal, byte by byte. The kernel's own line editing keeps 4,095 bytes of a line and
 * drops the rest of pasted text: here a line may have any length, and the same keys edit it. Pure functions. */
#ifndef CLI_LINE_H
#define CLI_LINE_H

#include "base/buf.h"

/* The editing keys from the terminal's settings (stty -a). */
struct line_keys {
    char erase, word_erase, kill, end;
};

enum line_state {
    LINE_GOES_ON, /* not complete yet */
    LINE_WHOLE,   /* complete; `line` has no newline */
    LINE_NO_MORE  /* the end-of-input key on an empty line */
};

/* Processes one typed byte; `echo` gets the bytes that the terminal shows for it. */
enum line_state line_type(struct buf *line, const struct line_keys *keys, char byte, struct buf *echo);

#endif
