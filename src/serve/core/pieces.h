/* How bodies are written: members of JSON objects as text, without a tree (pure functions, any thread).
 *
 * And a body that is made while it is sent: text, and within it long lists. Their elements are written only when their
 * turn comes, so that never much of it is in memory. It belongs to one thread at a time. */
#ifndef SERVE_CORE_PIECES_H
#define SERVE_CORE_PIECES_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* Elements with commas between them, without brackets. */
struct pieces_list {
    const void *items; /* borrowed: they outlive the body */
    size_t n;
    void (*put)(const void *items, size_t i, struct buf *out);
    size_t at; /* offset in the text; pieces_put_list() sets it */
};

struct pieces {
    struct buf text; /* writers of what is short append to it */
    struct pieces_list *lists;
    size_t n_lists;
    size_t sent, list, item; /* how far it was taken: bytes of the text, lists, elements of the next one */
};

/* Puts a list behind the text that there is. */
void pieces_put_list(struct pieces *pieces, struct pieces_list list);

/* Moves the next bytes, about `enough`, to `out`. False: that was the end. */
bool pieces_take(struct pieces *pieces, size_t enough, struct buf *out);

/* Moves all that is left to `out`, and releases the rest. */
void pieces_put_all(struct pieces *pieces, struct buf *out);

void pieces_release(struct pieces *pieces);

/* "name":"text", with a comma before it where the object has begun. `text` may be NULL if `len` is 0. */
void member_put(struct buf *out, const char *name, const char *text, size_t len);

/* The same for a zero-terminated text. */
void member_puts(struct buf *out, const char *name, const char *text);

#endif
