/* Snapshots and checkpoints in an array in LRU order, oldest first. There are tens of them, hundreds at most, and each
 * saves many thousand tokens: a linear search costs nothing beside what a single hit saves. */
#include "engine/snapshots.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>

struct entry {
    struct snapshot snapshot;
    bool pinned, held;
};

static bool is_protected(const struct entry *entry)
{
    return entry->pinned || entry->held;
}

/* Entries are allocated one by one, so that a snapshot's address does not change while others come and go. */
struct snapshots {
    struct entry **v; /* least recently used first */
    size_t n, cap;
    uint64_t budget, bytes, evictions;
};

struct snapshots *snapshots_open(uint64_t budget)
{
    struct snapshots *snapshots = mem_alloc(sizeof *snapshots);
    snapshots->budget = budget;
    return snapshots;
}

static void release(struct snapshot *snapshot)
{
    tokens_release(&snapshot->tokens);
    media_spans_release(&snapshot->media);
    free(snapshot->bytes);
}

/* ---- LRU order ---- */

static void append(struct snapshots *snapshots, struct entry *entry)
{
    snapshots->v = mem_room(snapshots->v, snapshots->n, &snapshots->cap, sizeof(struct entry *));
    snapshots->v[snapshots->n++] = entry;
    snapshots->bytes += entry->snapshot.size;
}

static struct entry *take(struct snapshots *snapshots, size_t i)
{
    struct entry *entry = snapshots->v[i];
    snapshots->n--;
    for (size_t k = i; k < snapshots->n; k++) snapshots->v[k] = snapshots->v[k + 1];
    snapshots->bytes -= entry->snapshot.size;
    return entry;
}

static void drop(struct snapshots *snapshots, size_t i)
{
    struct entry *entry = take(snapshots, i);
    release(&entry->snapshot);
    free(entry);
}

static size_t index_of(const struct snapshots *snapshots, const struct snapshot *snapshot)
{
    size_t i = 0;
    while (&snapshots->v[i]->snapshot != snapshot) i++;
    return i;
}

void snapshots_close(struct snapshots *snapshots)
{
    if (snapshots == NULL) return;
    while (snapshots->n > 0) drop(snapshots, snapshots->n - 1);
    free(snapshots->v);
    free(snapshots);
}

/* ---- Adding, and evicting for that ---- */

uint64_t snapshots_available(const struct snapshots *snapshots)
{
    uint64_t protected_bytes = 0;
    for (size_t i = 0; i < snapshots->n; i++)
        if (is_protected(snapshots->v[i])) protected_bytes += snapshots->v[i]->snapshot.size;
    return snapshots->budget - protected_bytes;
}

/* Length of the prefix that the snapshot's tokens have in common with these. */
static size_t common_with(const struct snapshot *snapshot, const int32_t *tokens, size_t n)
{
    size_t max = snapshot->tokens.len < n ? snapshot->tokens.len : n, common = 0;
    while (common < max && snapshot->tokens.v[common] == tokens[common]) common++;
    return common;
}

static bool is_same(const struct snapshot *a, const struct snapshot *b)
{
    bool same_home = a->home < 0 ? b->home < 0 : a->home == b->home;
    return same_home && a->scope == b->scope && a->tokens.len == b->tokens.len &&
           common_with(a, b->tokens.v, b->tokens.len) == a->tokens.len;
}

/* A replaced snapshot keeps its entry's address. A pinned one belongs to its owner, who drops it: two owners of equal
 * snapshots have one each. */
const struct snapshot *snapshots_put(struct snapshots *snapshots, struct snapshot snapshot)
{
    if (snapshot.size > snapshots_available(snapshots)) {
        release(&snapshot);
        return NULL;
    }
    size_t i = 0;
    while (i < snapshots->n && (is_protected(snapshots->v[i]) || !is_same(&snapshots->v[i]->snapshot, &snapshot))) i++;
    struct entry *same = i < snapshots->n ? snapshots->v[i] : NULL;
    struct entry *entry = same != NULL ? take(snapshots, i) : mem_alloc(sizeof *entry);
    release(&entry->snapshot);
    for (i = 0; snapshots->budget - snapshots->bytes < snapshot.size;) { /* so many bytes can be freed: see above */
        if (is_protected(snapshots->v[i])) {
            i++;
        } else {
            drop(snapshots, i);
            snapshots->evictions++;
        }
    }
    entry->snapshot = snapshot;
    append(snapshots, entry);
    return &entry->snapshot;
}

void snapshots_touch(struct snapshots *snapshots, const struct snapshot *snapshot)
{
    append(snapshots, take(snapshots, index_of(snapshots, snapshot)));
}

void snapshots_pin(struct snapshots *snapshots, const struct snapshot *snapshot)
{
    snapshots->v[index_of(snapshots, snapshot)]->pinned = true;
}

void snapshots_hold(struct snapshots *snapshots, const struct snapshot *snapshot)
{
    snapshots->v[index_of(snapshots, snapshot)]->held = true;
}

void snapshots_unhold(struct snapshots *snapshots, const struct snapshot *snapshot)
{
    snapshots->v[index_of(snapshots, snapshot)]->held = false;
}

void snapshots_drop(struct snapshots *snapshots, const struct snapshot *snapshot)
{
    drop(snapshots, index_of(snapshots, snapshot));
}

void snapshots_invalidate(struct snapshots *snapshots, int32_t home, int32_t n)
{
    for (size_t i = 0; i < snapshots->n;) {
        const struct snapshot *snapshot = &snapshots->v[i]->snapshot;
        if (snapshot->home == home && snapshot->tokens.len > (size_t)n)
            drop(snapshots, i);
        else
            i++;
    }
}

void snapshots_forget(struct snapshots *snapshots)
{
    for (size_t i = 0; i < snapshots->n;) {
        if (is_protected(snapshots->v[i]))
            i++;
        else
            drop(snapshots, i);
    }
}

/* ---- Lookup ---- */

const struct snapshot *snapshots_find(const struct snapshots *snapshots, const int32_t *tokens, int32_t n,
                                      uint64_t scope, bool cuts, int32_t *common)
{
    const struct snapshot *best = NULL;
    size_t longest = 0;
    for (size_t i = 0; i < snapshots->n; i++) {
        const struct snapshot *snapshot = &snapshots->v[i]->snapshot;
        if (snapshot->home >= 0 || snapshot->scope != scope || snapshots->v[i]->pinned) continue;
        size_t prefix = common_with(snapshot, tokens, (size_t)n);
        if (prefix == 0 || (!cuts && prefix < snapshot->tokens.len)) continue;
        if (prefix < longest || (prefix == longest && snapshot->size >= best->size)) continue;
        best = snapshot;
        longest = prefix;
    }
    *common = (int32_t)longest;
    return best;
}

const struct snapshot *snapshots_find_checkpoint(const struct snapshots *snapshots, int32_t home, const int32_t *tokens,
                                                 int32_t n)
{
    const struct snapshot *best = NULL;
    for (size_t i = 0; i < snapshots->n; i++) {
        const struct snapshot *snapshot = &snapshots->v[i]->snapshot;
        if (snapshot->home != home || (best != NULL && snapshot->tokens.len <= best->tokens.len)) continue;
        size_t len = snapshot->tokens.len;
        if (len > 0 && common_with(snapshot, tokens, (size_t)n) == len) best = snapshot;
    }
    return best;
}

struct snapshots_usage snapshots_usage(const struct snapshots *snapshots)
{
    return (struct snapshots_usage){
        .bytes = snapshots->bytes, .budget = snapshots->budget, .evictions = snapshots->evictions, .n = snapshots->n};
}

size_t snapshots_check(const struct snapshots *snapshots)
{
    uint64_t bytes = 0;
    size_t pinned = 0;
    for (size_t i = 0; i < snapshots->n; i++) {
        const struct entry *entry = snapshots->v[i];
        assert(!entry->held && entry->snapshot.bytes != NULL && entry->snapshot.size > 0);
        bytes += entry->snapshot.size;
        pinned += entry->pinned;
    }
    assert(bytes == snapshots->bytes && bytes <= snapshots->budget);
    return pinned;
}
