/* Stored conversations that are kept by order: their entries are not evicted, until the order ends.
 *
 * A kept entry has a reference more, so that it is no leaf that nobody uses; its ancestors have those of their
 * children. With it the last recurrent/SWA state on the way to it is kept, without which the rows would be of no use.
 * What goes on from a kept entry takes its place. Nothing of this is written down: a restart ends every order.
 *
 * What is kept counts for no identity (lru.c), and may have a quarter of the budget: so there is always room to save
 * the rest. Where what goes on from a kept entry would have more, the order stays where it is.
 *
 * Runs under the index's mutex. */
#include "base/memory.h"
#include "store/index/index_parts.h"

enum { PART_OF_BUDGET = 4 };

/* ---- An entry with its ancestors ---- */

static struct indexed *parent_of(const struct indexed *indexed)
{
    return indexed_of(indexed->entry.parent);
}

static void protect(struct index *index, struct indexed *indexed)
{
    indexed_ref(index, indexed);
    for (; indexed != NULL; indexed = parent_of(indexed)) lru_keep(index, indexed);
}

/* One that has left the tree protects nothing any more: kept_forget(). */
static void unprotect(struct index *index, struct indexed *indexed)
{
    for (struct indexed *at = indexed; indexed->there && at != NULL; at = parent_of(at)) lru_unkeep(index, at, 1);
    indexed_unref(index, indexed);
}

/* Bytes that are not kept yet. Where an entry is, its ancestors are. */
static uint64_t cost_of(const struct indexed *indexed)
{
    uint64_t bytes = 0;
    for (; indexed != NULL && indexed->candidate.n_kept == 0; indexed = parent_of(indexed))
        bytes += indexed->entry.size;
    return bytes;
}

static bool fits(const struct index *index, uint64_t bytes)
{
    uint64_t most = index->budget / PART_OF_BUDGET;
    return index->kept_bytes <= most && bytes <= most - index->kept_bytes;
}

/* ---- Orders ---- */

static void keep_state(struct index *index, struct indexed *indexed, struct indexed *state)
{
    struct indexed *former = indexed->kept_state;
    indexed->kept_state = state;
    protect(index, state);
    if (former != NULL) unprotect(index, former);
}

bool kept_begin(struct index *index, struct indexed *indexed)
{
    struct indexed *state = indexed_last_state(indexed);
    if (state == indexed) state = NULL;
    bool more = state != NULL && state->candidate.n_kept == 0; /* its ancestors are those of the entry */
    if (indexed->kept) return true;
    if (!fits(index, cost_of(indexed) + (more ? state->entry.size : 0))) return false;
    indexed->kept = true;
    protect(index, indexed);
    if (state != NULL) keep_state(index, indexed, state);
    return true;
}

static void end_one(struct index *index, struct indexed *indexed)
{
    struct indexed *state = indexed->kept_state;
    indexed->kept = false;
    indexed->kept_state = NULL;
    if (state != NULL) unprotect(index, state);
    unprotect(index, indexed);
}

void kept_end(struct index *index, struct indexed *indexed)
{
    for (; indexed != NULL; indexed = parent_of(indexed))
        if (indexed->kept) end_one(index, indexed);
}

void kept_suspend(struct index *index, struct indexed *indexed, const struct indexed *end, struct kept_orders *orders)
{
    for (; indexed != end; indexed = parent_of(indexed)) {
        if (!indexed->kept) continue;
        orders->v = mem_grow(orders->v, orders->n + 1, sizeof *orders->v);
        orders->v[orders->n++] = (struct kept_order){indexed, indexed->kept_state};
        end_one(index, indexed);
    }
}

void kept_resume(struct index *index, const struct kept_orders *orders)
{
    for (size_t i = 0; i < orders->n; i++) {
        struct indexed *indexed = orders->v[i].indexed, *state = orders->v[i].state;
        indexed->kept = true;
        protect(index, indexed);
        if (state != NULL) keep_state(index, indexed, state);
    }
}

/* ---- Entries that come and go ---- */

static void take_over(struct index *index, struct indexed *indexed, struct indexed *parent)
{
    indexed->kept = true;
    protect(index, indexed);
    indexed->kept_state = parent->kept_state;
    parent->kept_state = NULL;
    end_one(index, parent);
}

void kept_follow(struct index *index, struct indexed *indexed)
{
    struct indexed *parent = parent_of(indexed);
    if (parent == NULL || !parent->kept || !fits(index, indexed->entry.size)) return;
    if (!indexed_is_completion(indexed))
        take_over(index, indexed, parent);
    else if (parent->kept_state == NULL || parent->kept_state->entry.end < indexed->entry.end)
        keep_state(index, parent, indexed);
}

void kept_forget(struct index *index, struct indexed *indexed)
{
    if (indexed->kept) end_one(index, indexed);
    uint32_t n = indexed->candidate.n_kept; /* as the state of others */
    for (struct indexed *at = indexed; n > 0 && at != NULL; at = parent_of(at)) lru_unkeep(index, at, n);
}
