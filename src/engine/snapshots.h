/* Snapshots and checkpoints in host memory, outside the context, found by their tokens. They are of system prompts, of
 * suspended requests, and of positions that a recurrent or SWA model can be taken back to.
 *
 * Belongs to one thread, the engine's. Holds at most `budget` bytes (the tokens, four bytes each, are not counted) and
 * evicts in LRU order, except what is pinned or held. A snapshot holds a whole sequence (home < 0) and can be loaded
 * into any. A checkpoint holds only the recurrent or SWA state that completes the KV rows of one sequence (home is its
 * id). It is worthless once those cells are gone: snapshots_invalidate(). A pointer that was returned stays valid until
 * the next snapshots_put(), snapshots_drop() or snapshots_invalidate(); of what is pinned or held, until it is dropped
 * or invalidated. */
#ifndef ENGINE_SNAPSHOTS_H
#define ENGINE_SNAPSHOTS_H

#include "base/media_spans.h"
#include "base/tokens.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct snapshots;

struct snapshot {
    struct tokens tokens;     /* of the cells it was copied from */
    struct media_spans media; /* among them */
    int32_t n_exact;          /* leading tokens that were computed in whole prefill chunks */
    int32_t home;             /* the sequence that a checkpoint completes; negative: a whole snapshot */
    uint64_t scope;           /* requests of different scopes never share a snapshot */
    void *bytes;
    size_t size;
};

struct snapshots *snapshots_open(uint64_t budget);
void snapshots_close(struct snapshots *snapshots);

/* Bytes that are free, or could be freed by eviction: the largest snapshot that fits. */
uint64_t snapshots_available(const struct snapshots *snapshots);

/* Adds the snapshot as the most recently used one and returns it. Takes over its tokens, media and bytes (from malloc).
 * Replaces one with the same tokens, home and scope, unless that is pinned or held. NULL: there is no room. Then what
 * it took over is freed, and nothing else has changed. */
const struct snapshot *snapshots_put(struct snapshots *snapshots, struct snapshot snapshot);

/* The whole snapshot with the longest prefix in common with the first `n` tokens, and the length of that prefix. With
 * `cuts` a longer snapshot is fine, since it can be cut; else it must lie within them. Of several the one with fewest
 * bytes, which loads fastest. Skips pinned ones, which belong to their owner alone. NULL: there is none, and nothing in
 * common. */
const struct snapshot *snapshots_find(const struct snapshots *snapshots, const int32_t *tokens, int32_t n,
                                      uint64_t scope, bool cuts, int32_t *common);

/* The longest checkpoint of `home` that lies within the first `n` of these tokens. NULL: there is none. */
const struct snapshot *snapshots_find_checkpoint(const struct snapshots *snapshots, int32_t home, const int32_t *tokens,
                                                 int32_t n);

/* Makes it the most recently used one. */
void snapshots_touch(struct snapshots *snapshots, const struct snapshot *snapshot);

/* A pinned snapshot stays until snapshots_drop(). */
void snapshots_pin(struct snapshots *snapshots, const struct snapshot *snapshot);
void snapshots_drop(struct snapshots *snapshots, const struct snapshot *snapshot);

/* A held snapshot is neither evicted nor replaced: the caller is about to use it. */
void snapshots_hold(struct snapshots *snapshots, const struct snapshot *snapshot);
void snapshots_unhold(struct snapshots *snapshots, const struct snapshot *snapshot);

/* The cells of the sequence from n on are gone: drops its checkpoints of more than n tokens, pinned or not. */
void snapshots_invalidate(struct snapshots *snapshots, int32_t home, int32_t n);

/* Drops all that are neither pinned nor held. */
void snapshots_forget(struct snapshots *snapshots);

struct snapshots_usage {
    uint64_t bytes, budget;
    uint64_t evictions; /* snapshots that were evicted for others */
    size_t n;
};

/* Asserts that sizes add up, and that nothing is held, as between two placements; returns how many are pinned. */
size_t snapshots_check(const struct snapshots *snapshots);

struct snapshots_usage snapshots_usage(const struct snapshots *snapshots);

#endif
