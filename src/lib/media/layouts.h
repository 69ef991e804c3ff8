/* Layouts of media: of which runs of tokens and rows an image or a sound consists, which follows from its content and
 * the projector alone. They are remembered, so that a file which comes with every turn of a conversation is decoded
 * once.
 *
 * Layouts are immutable and counted: any thread. */
#ifndef LIB_MEDIA_LAYOUTS_H
#define LIB_MEDIA_LAYOUTS_H

#include "base/sha256.h"
#include "llm/projector.h"

struct layout_chunk {
    int32_t *tokens; /* text; NULL: rows */
    int32_t n, n_pos;
    bool causal;
    struct llm_place *places; /* of n rows, for a chunk that begins at position 0; NULL: positions have one dimension */
};

struct media_layout {
    _Atomic int refs;
    size_t n;
    struct layout_chunk v[];
};

/* Of a medium that was cut into chunks; the caller holds it. */
struct media_layout *layout_of(const struct llm_medium *medium, bool mrope);
void layout_release(struct media_layout *layout); /* NULL is fine */

struct layouts;

struct layouts *layouts_open(void);
void layouts_close(struct layouts *layouts); /* NULL is fine */

/* The layout of a file with this digest, which the caller then holds. NULL: it is not known. */
struct media_layout *layouts_find(struct layouts *layouts, const uint8_t digest[SHA256_BYTES]);

/* Remembers it, in the place of the one that was used least recently. */
void layouts_add(struct layouts *layouts, const uint8_t digest[SHA256_BYTES], struct media_layout *layout);

#endif
