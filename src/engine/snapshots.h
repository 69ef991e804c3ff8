/* States of sequences kept in memory, outside the context, and found by their tokens: system prompts, requests that
 * made way for others, boundaries that a recurrent model can go back to.
 *
 * Belongs to one thread, the engine's. Holds states of at most `budget` bytes (their tokens, four bytes each, are not
 * counted); what was used longest ago goes first, and what is pinned never. A state is either whole (home < 0) and fits
 * any sequence, or completes the cells of one sequence (home is its id) and is worth nothing once those cells are gone:
 * snapshots_invalidate() says so. A state that was put or found stays where it is until the next snapshots_put(),
 * snapshots_drop() or snapshots_invalidate(); a pinned or held one until it is dropped or forgotten. */
#ifndef ENGINE_SNAPSHOTS_H
#define ENGINE_SNAPSHOTS_H

#include "base/tokens.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct snapshots;

struct snapshot {
    struct tokens tokens; /* what it stands for */
    int32_t n_exact;      /* leading tokens that were computed in whole pieces */
    int32_t home;         /* the sequence whose cells it completes; negative: whole */
    uint64_t scope;       /* states of different scopes never stand for each other */
    void *bytes;
    size_t size;
};

struct snapshots *snapshots_open(uint64_t budget);
void snapshots_close(struct snapshots *snapshots);

/* Bytes that are free or could be: what a state may have to be kept. */
uint64_t snapshots_available(const struct snapshots *snapshots);

/* Keeps the state, whose tokens and bytes (from malloc) it takes over, and returns it as the one used last; replaces
 * one with the same tokens, home and scope, unless that is pinned. NULL: there is no room for it, what was handed over
 * is freed, and nothing else has changed. */
const struct snapshot *snapshots_put(struct snapshots *snapshots, struct snapshot snapshot);

/* The whole state with the longest prefix in common with the first `n` tokens, and the length of that prefix. With
 * `cuts` a longer state will do, since it can be cut; else it must lie within them. Of several the one of fewest bytes,
 * which takes least time to load. NULL: there is none, and nothing in common. What is
 * pinned is its owner's alone and not found. */
const struct snapshot *snapshots_find(const struct snapshots *snapshots, const int32_t *tokens, int32_t n,
                                      uint64_t scope, bool cuts, int32_t *common);

/* The longest state that completes `home` and lies within the first `n` of these tokens. NULL: there is none. */
const struct snapshot *snapshots_find_checkpoint(const struct snapshots *snapshots, int32_t home, const int32_t *tokens,
                                                 int32_t n);

/* It was used: the others go before it. */
void snapshots_touch(struct snapshots *snapshots, const struct snapshot *snapshot);

/* A pinned state stays until snapshots_drop(). */
void snapshots_pin(struct snapshots *snapshots, const struct snapshot *snapshot);
void snapshots_drop(struct snapshots *snapshots, const struct snapshot *snapshot);

/* While a state is held it makes room for no other and is replaced by none: somebody is about to use it. */
void snapshots_hold(struct snapshots *snapshots, const struct snapshot *snapshot);
void snapshots_unhold(struct snapshots *snapshots, const struct snapshot *snapshot);

/* The cells of the sequence from n on are gone, and with them what completed more than n, pinned or not. */
void snapshots_invalidate(struct snapshots *snapshots, int32_t home, int32_t n);

struct snapshots_usage {
    uint64_t bytes, budget;
    uint64_t evictions; /* states that made room for others */
    size_t n;
};

struct snapshots_usage snapshots_usage(const struct snapshots *snapshots);

#endif
