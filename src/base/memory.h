/* Memory for control data: these functions never return NULL. A process that cannot get a few kilobytes cannot serve
 * anybody, so it ends with a message. Memory for weights and KV cells is llama.cpp's, whose failures are errors. Any
 * thread. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stddef.h>

void *mem_alloc(size_t size);                           /* zeroed */
void *mem_grow(void *block, size_t count, size_t item); /* realloc, overflow checked */

/* A list of `len` items, of which `block` has room for *cap: the block with room for one more. */
void *mem_room(void *block, size_t len, size_t *cap, size_t item);

char *mem_strdup(const char *text); /* NULL stays NULL */
char *mem_strndup(const char *text, size_t len);
char *mem_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
