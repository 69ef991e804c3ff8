/* Lines from a file or a pipe, of any length up to LINES_MOST. Main thread only. */
#ifndef CLI_CHAT_LINES_H
#define CLI_CHAT_LINES_H

#include "base/buf.h"
#include "hearth.h"

#include <stdbool.h>

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

#endif
