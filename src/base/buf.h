/* A growable byte buffer, kept zero-terminated so that it can be read as a string. It belongs to one thread at a time.
 *
 * struct buf b = {0} is an empty one; buf_release() empties it again. buf_take() moves the bytes out to the caller. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stddef.h>

struct buf {
    char *v; /* NULL until something is appended */
    size_t len, cap;
};

void buf_reserve(struct buf *b, size_t more); /* has room for so many more bytes, which then need no copies */
void buf_append(struct buf *b, const void *bytes, size_t len);
void buf_puts(struct buf *b, const char *text);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_drop_front(struct buf *b, size_t len);
void buf_clear(struct buf *b); /* keeps the memory */
void buf_release(struct buf *b);
char *buf_take(struct buf *b); /* never NULL; free() it */

/* The bytes as a string; "" while v is NULL. */
const char *buf_text(const struct buf *b);

#endif
