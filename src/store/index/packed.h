/* Packed token lists, for those kept long: 3 bytes a token where all of them fit, as those of every known vocabulary
 * do, else
 * 4. Plain values without sharing: whoever has one releases it. */
#ifndef STORE_INDEX_PACKED_H
#define STORE_INDEX_PACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed: no tokens. */
struct packed {
    uint8_t *v;
    uint32_t len;
    uint32_t width; /* bytes a token */
};

struct packed packed_of(const int32_t *tokens, size_t n);
void packed_release(struct packed *packed);

int32_t packed_at(const struct packed *packed, size_t i);
void packed_copy(const struct packed *packed, size_t from, size_t n, int32_t *tokens);

/* How many of the n tokens equal those of the list from `from` on, until the first that differs. */
size_t packed_common(const struct packed *packed, size_t from, const int32_t *tokens, size_t n);

/* Keeps only the tokens [from, to). */
void packed_cut(struct packed *packed, size_t from, size_t to);

#endif
