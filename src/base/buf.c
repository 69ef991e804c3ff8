/* The byte buffer: capacity doubles, and always has room for a terminating zero. */
#include "base/buf.h"

#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_reserve(struct buf *b, size_t more)
{
    size_t need = b->len + more + 1;
    if (need <= b->cap) return;
    size_t cap = b->cap < 64 ? 64 : b->cap;
    while (cap < need) cap *= 2;
    b->v = mem_grow(b->v, cap, 1);
    b->cap = cap;
}

void buf_append(struct buf *b, const void *bytes, size_t len)
{
    buf_reserve(b, len);
    if (len > 0) memcpy(b->v + b->len, bytes, len);
    b->len += len;
    b->v[b->len] = '\0';
}

void buf_puts(struct buf *b, const char *text)
{
    buf_append(b, text, strlen(text));
}

void buf_printf(struct buf *b, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (len > 0) {
        buf_reserve(b, (size_t)len);
        vsnprintf(b->v + b->len, (size_t)len + 1, format, again);
        b->len += (size_t)len;
    }
    va_end(again);
}

void buf_drop_front(struct buf *b, size_t len)
{
    if (len == 0) return;
    b->len -= len;
    memmove(b->v, b->v + len, b->len + 1);
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->v != NULL) b->v[0] = '\0';
}

void buf_release(struct buf *b)
{
    free(b->v);
    *b = (struct buf){0};
}

char *buf_take(struct buf *b)
{
    buf_reserve(b, 0);
    b->v[b->len] = '\0';
    char *v = b->v;
    *b = (struct buf){0};
    return v;
}

const char *buf_text(const struct buf *b)
{
    return b->v == NULL ? "" : b->v;
}
