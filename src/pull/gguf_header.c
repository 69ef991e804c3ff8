/* Walks over the fields of a header, and keeps none of them: see gguf_header.h. The format's numbers are little-endian;
 * a string is its length and its bytes. */
#include "pull/gguf_header.h"

#include "base/little.h"

#include <stdint.h>
#include <string.h>

#define DIMENSIONS_MOST 4

enum { TYPE_STRING = 8, TYPE_ARRAY = 9 };

/* Bytes of a value of each type; 0: it has no fixed number. */
static const uint8_t type_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

#define N_TYPES (sizeof type_bytes / sizeof *type_bytes)

struct walk {
    const char *at, *end;
    bool ends;  /* the bytes do, within the header */
    bool wrong; /* no such file is read */
};

static bool goes_on(const struct walk *walk)
{
    return !walk->ends && !walk->wrong;
}

/* `n` times so many bytes. Of a walk that has ended neither this nor what follows does anything. */
static void skip(struct walk *walk, uint64_t n, uint64_t size)
{
    uint64_t left = (uint64_t)(walk->end - walk->at);
    if (!goes_on(walk)) return;
    if (n > left / size)
        walk->ends = true;
    else
        walk->at += n * size;
}

static uint64_t take_number(struct walk *walk, size_t size)
{
    const char *at = walk->at;
    skip(walk, 1, size);
    return goes_on(walk) ? little_get((const uint8_t *)at, size) : 0;
}

static void skip_string(struct walk *walk)
{
    uint64_t len = take_number(walk, 8);
    skip(walk, len, 1);
}

static void skip_value(struct walk *walk)
{
    uint64_t type = take_number(walk, 4), n = 1;
    if (type == TYPE_ARRAY) {
        type = take_number(walk, 4);
        n = take_number(walk, 8);
    }
    if (type >= N_TYPES || type == TYPE_ARRAY)
        walk->wrong = true; /* an array of arrays is not read */
    else if (type != TYPE_STRING)
        skip(walk, n, type_bytes[type]);
    for (; type == TYPE_STRING && n > 0 && goes_on(walk); n--) skip_string(walk);
}

static void skip_tensor(struct walk *walk)
{
    skip_string(walk);
    uint64_t n_dimensions = take_number(walk, 4);
    walk->wrong = walk->wrong || n_dimensions > DIMENSIONS_MOST;
    skip(walk, n_dimensions, 8);
    skip(walk, 1, 4 + 8); /* its type, and where it begins */
}

bool gguf_header_is_whole(const char *bytes, size_t len)
{
    static const char magic[] = {'G', 'G', 'U', 'F'};
    if (memcmp(bytes, magic, len < sizeof magic ? len : sizeof magic) != 0) return true;
    struct walk walk = {.at = bytes, .end = bytes + len};
    skip(&walk, 1, sizeof magic);
    uint64_t version = take_number(&walk, 4);
    walk.wrong = goes_on(&walk) && version != 2 && version != 3;
    uint64_t n_tensors = take_number(&walk, 8), n_values = take_number(&walk, 8);
    for (; n_values > 0 && goes_on(&walk); n_values--) {
        skip_string(&walk);
        skip_value(&walk);
    }
    for (; n_tensors > 0 && goes_on(&walk); n_tensors--) skip_tensor(&walk);
    return !walk.ends;
}
