/* Allocation that ends the process where it fails. */
#include "base/memory.h"

#include "base/log_stderr.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *or_end(void *block, size_t size)
{
    if (block == NULL && size > 0) {
        fprintf(log_console(), "hearth: out of memory (%zu bytes)\n", size);
        abort();
    }
    return block;
}

void *mem_alloc(size_t size)
{
    return or_end(calloc(1, size), size);
}

void *mem_grow(void *block, size_t count, size_t item)
{
    size_t size;
    if (__builtin_mul_overflow(count, item, &size)) return or_end(NULL, SIZE_MAX);
    return or_end(realloc(block, size), size);
}

char *mem_strndup(const char *text, size_t len)
{
    char *copy = mem_alloc(len + 1);
    if (len > 0) memcpy(copy, text, len);
    return copy;
}

void *mem_room(void *block, size_t len, size_t *cap, size_t item)
{
    if (len < *cap) return block;
    *cap = *cap == 0 ? 8 : 2 * *cap;
    return mem_grow(block, *cap, item);
}

char *mem_strdup(const char *text)
{
    return text == NULL ? NULL : mem_strndup(text, strlen(text));
}

char *mem_format(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int len = vasprintf(&text, format, args);
    va_end(args);
    return or_end(len < 0 ? NULL : text, 1);
}
