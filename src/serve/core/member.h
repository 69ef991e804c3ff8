/* Members of JSON objects, for JSON that is written as text without a tree. Pure functions; any thread. */
#ifndef SERVE_CORE_MEMBER_H
#define SERVE_CORE_MEMBER_H

#include "base/buf.h"

/* "name":"text", without a comma. `text` may be NULL if `len` is 0. */
void member_put(struct buf *out, const char *name, const char *text, size_t len);

/* The same for a zero-terminated text. */
void member_puts(struct buf *out, const char *name, const char *text);

#endif
