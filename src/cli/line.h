/* A line that is typed on a terminal, byte by byte. The kernel edits lines by itself, but keeps 4,095 bytes of each and
 * drops the rest of what was pasted: here a line may have any length, and the same keys edit it. Pure functions. */
#ifndef CLI_LINE_H
#define CLI_LINE_H

#include "base/buf.h"

/* As the terminal's settings have them (stty -a). */
struct line_keys {
    char erase, word_erase, kill, end;
};

enum line_state {
    LINE_GOES_ON,
    LINE_WHOLE,  /* without its end */
    LINE_NO_MORE /* the key for the end of input, on an empty line */
};

/* Takes one byte; `echo` gets what the terminal is to show for it. */
enum line_state line_type(struct buf *line, const struct line_keys *keys, char byte, struct buf *echo);

#endif
