/* Packed token lists: little-endian integers of 3 or 4 bytes. */
#include "store/index/packed.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { NARROW = 3, WIDE = 4 };

static uint32_t load(const uint8_t *p, uint32_t width)
{
    uint32_t low = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
    return width == NARROW ? low : low | (uint32_t)p[3] << 24;
}

static uint32_t width_of(const int32_t *tokens, size_t n)
{
    uint32_t all = 0;
    for (size_t i = 0; i < n; i++) all |= (uint32_t)tokens[i];
    return all < (uint32_t)1 << 24 ? NARROW : WIDE;
}

struct packed packed_of(const int32_t *tokens, size_t n)
{
    struct packed packed = {.len = (uint32_t)n, .width = width_of(tokens, n)};
    if (n == 0) return packed;
    uint8_t *p = packed.v = mem_grow(NULL, n, packed.width);
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < packed.width; k++) *p++ = (uint8_t)((uint32_t)tokens[i] >> 8 * k);
    return packed;
}

void packed_release(struct packed *packed)
{
    free(packed->v);
    *packed = (struct packed){0};
}

int32_t packed_at(const struct packed *packed, size_t i)
{
    return (int32_t)load(packed->v + i * packed->width, packed->width);
}

void packed_copy(const struct packed *packed, size_t from, size_t n, int32_t *tokens)
{
    for (size_t i = 0; i < n; i++) tokens[i] = packed_at(packed, from + i);
}

size_t packed_common(const struct packed *packed, size_t from, const int32_t *tokens, size_t n)
{
    if (n == 0) return 0;
    const uint8_t *p = packed->v + from * packed->width;
    size_t i = 0;
    if (packed->width == NARROW)
        while (i < n && load(p + i * NARROW, NARROW) == (uint32_t)tokens[i]) i++;
    else
        while (i < n && load(p + i * WIDE, WIDE) == (uint32_t)tokens[i]) i++;
    return i;
}

void packed_cut(struct packed *packed, size_t from, size_t to)
{
    size_t n = to - from;
    memmove(packed->v, packed->v + from * packed->width, n * packed->width);
    packed->len = (uint32_t)n;
    packed->v = mem_grow(packed->v, n, packed->width);
}
