/* Files that a user attaches to a message in the terminal: by name, or by pasting a path, as terminals do with a file
 * that is dropped on them. Main thread only. */
#ifndef CLI_ATTACHMENT_H
#define CLI_ATTACHMENT_H

#include "base/buf.h"
#include "hearth.h"

/* The path that a text stands for: without white space around it, quotes, backslashes before characters, and "file://";
 * "~/" is the home folder. free() it. */
char *attachment_path(const char *text);

/* Whether a line is nothing but the path of an image or a sound that is there, by its name's ending. */
bool attachment_is_pasted(const char *line);

/* Reads the file. HEARTH_IO: it cannot be read; HEARTH_TOO_LONG: it is too large for any model. */
int attachment_read(const char *path, struct buf *bytes, hearth_error *error);

#endif
