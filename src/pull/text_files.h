/* Small files of the models folder, and folders for them. All leave errno where they fail. Any thread. */
#ifndef PULL_TEXT_FILES_H
#define PULL_TEXT_FILES_H

#include "base/buf.h"

#include <stdbool.h>

/* The folder, and those that it lies in; 0, or -1. */
int pull_make_folders(const char *path);

/* Appends the whole text of a file. False: it cannot be read; EFBIG: it is too large for one. */
bool pull_read_text(int folder, const char *name, struct buf *text);

/* Writes a file; it is whole on the disk where this is true. EFBIG: the text is too large to be read again. */
bool pull_write_text(int folder, const char *name, const char *text);

#endif
