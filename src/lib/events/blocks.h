/* The blocks of one tier: which of them its entries have, counted, since several entries may have the same. Turns what
 * a follower is told of an index (store/index/index.h) into blocks that come and go.
 *
 * Belongs to the follower's thread. */
#ifndef LIB_EVENTS_BLOCKS_H
#define LIB_EVENTS_BLOCKS_H

#include "base/hash_table.h"
#include "hearth.h"
#include "lib/events/identities.h"
#include "store/index/index.h"

/* What the follower keeps of an entry: the numbers of the blocks that end within its tokens, of a STATE entry those of
 * all of its prefix. */
struct blocks_of_entry {
    struct index_followed followed; /* first */
    const struct blocks_of_entry *parent;
    const struct identity_known *known;
    uint64_t *numbers;
    int32_t first, n; /* the place of the first one in the prefix */
    bool counts;      /* whether the entry makes its blocks reusable */
};

struct blocks {
    struct hash_table table;
    /* The blocks of the last entry that came or left. */
    const struct identity_known *known;
    uint64_t *numbers;
    bool *changed; /* which of them came, or went, with it */
    int32_t n, cap;
    int32_t first;   /* of one that came: the place of the first block */
    uint64_t parent; /* and what comes before it; 0: nothing */
};

void blocks_enter(struct blocks *blocks, const struct index_news *news);
void blocks_leave(struct blocks *blocks, const struct blocks_of_entry *entry);
void blocks_release_entry(struct index_followed *followed);

void blocks_clear(struct blocks *blocks); /* none is there */
void blocks_release(struct blocks *blocks);

#endif
