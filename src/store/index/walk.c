/* Lookups in one index: the longest stored prefix of a prompt. All entries of an identity lie in one radix tree, where
 * every prefix has one position. An entry found by its key lies on the path to the longest match, so the walk ends at
 * the same position wherever it began. */
#include "store/index/index_parts.h"

#include <assert.h>

/* ---- Entries at a position ---- */

static struct item *item_of_radix_entry(struct radix_entry *radix_entry)
{
    return container_of(struct item, radix_entry, radix_entry);
}

struct item *state_before(struct radix_position position)
{
    const struct radix_node *node = position.end < position.node->end ? position.node->parent : position.node;
    for (; node != NULL; node = node->parent)
        for (struct radix_entry *radix_entry = node->entries; radix_entry != NULL; radix_entry = radix_entry->next)
            if (!radix_entry->rows) return item_of_radix_entry(radix_entry);
    return NULL;
}

/* ---- The start of the walk ---- */

/* A key is a hash, so the tokens are compared as well. */
static struct radix_position longest_key(const struct index *index, const struct space *space,
                                         const struct index_lookup *lookup, uint32_t *probes)
{
    int32_t strides = lookup->keys == NULL ? 0 : lookup->n / index->stride;
    for (int32_t i = strides; i > 0; i--) {
        int32_t end = i * index->stride;
        ++*probes;
        for (enum slab_kind kind = SLAB_ROWS; kind <= SLAB_STATE; kind++) {
            const struct item *item = item_found(index, &lookup->keys[i - 1], kind);
            if (item == NULL || item->space != space || item->entry.end != end) continue;
            if (radix_matches(item->node, 0, lookup->tokens)) return (struct radix_position){item->node, end};
        }
    }
    return (struct radix_position){space->root, 0};
}

/* ---- The walk ---- */

static void fill(struct index *index, const struct index_lookup *lookup, struct radix_position position,
                 struct match *match)
{
    struct radix_position rows = radix_deepest_with_rows(position);
    if (rows.end > 0) {
        /* An entry that passes through the position may start behind it; then an ancestor has the row there. */
        struct item *item = item_of_radix_entry(radix_entry_with_rows(rows));
        while (item->entry.start >= rows.end) item = parent_of(item);
        match->rows = item_pin(index, item);
        match->n_rows = rows.end;
        /* A match of less than half of an entry counts as a use of its parent alone: many prompts begin alike and
         * diverge early. */
        if (rows.end - item->entry.start < item->entry.end - rows.end) item = parent_of(item);
        if (lookup->now_ms > 0 && item != NULL) lru_use(index, item, lookup->now_ms);
    }
    struct item *state = lookup->states ? state_before(position) : NULL;
    if (state != NULL) {
        match->state = item_pin(index, state);
        match->n_state = state->entry.end;
        if (lookup->now_ms > 0) lru_use(index, state, lookup->now_ms);
    }
}

static void walk(struct index *index, const struct index_lookup *lookup, struct radix_position from,
                 struct match *match)
{
    int32_t n = lookup->n - from.end;
    const int32_t *tokens = n > 0 ? lookup->tokens + from.end : NULL;
    fill(index, lookup, radix_walk(&index->radix, from, tokens, (size_t)n), match);
}

void index_find(struct index *index, const struct index_lookup *lookup, struct match *match)
{
    assert(lookup->n >= 0 && (lookup->tokens != NULL || lookup->n == 0));
    *match = (struct match){0};
    index_lock(index);
    struct space *space = space_find(index, lookup->identity);
    if (space != NULL) walk(index, lookup, longest_key(index, space, lookup, &match->probes), match);
    index_unlock(index);
}

void index_find_again(struct index *index, const struct index_lookup *lookup, struct match *match)
{
    struct match before = *match;
    *match = (struct match){0};
    index_lock(index);
    struct space *space = space_find(index, lookup->identity);
    struct item *rows = item_of(before.rows), *state = item_of(before.state);
    if (space != NULL) {
        /* From the end of the previous match, unless its entries have left the index. */
        struct radix_position from = {space->root, 0};
        if (rows != NULL && rows->state == ITEM_FOUND && before.n_rows <= lookup->n)
            from = radix_position_at(rows->node, before.n_rows);
        if (state != NULL && state->state == ITEM_FOUND && before.n_state <= lookup->n && before.n_state > from.end)
            from = (struct radix_position){state->node, before.n_state};
        walk(index, lookup, from, match);
    }
    if (rows != NULL) item_unpin(index, rows);
    if (state != NULL) item_unpin(index, state);
    index_unlock(index);
}

/* With the mutex: as far as these tokens are those of a stored list. False: nothing of the identity is stored. */
static bool walk_all(const struct index *index, const struct identity *identity, const int32_t *tokens, int32_t n,
                     struct radix_position *position)
{
    struct space *space = space_find(index, identity);
    if (space == NULL) return false;
    *position = radix_walk(&index->radix, (struct radix_position){space->root, 0}, tokens, (size_t)n);
    return true;
}

bool index_note_divergence(struct index *index, const struct identity *identity, const int32_t *tokens, int32_t n,
                           struct divergence *divergence)
{
    assert(n >= 0 && (tokens != NULL || n == 0));
    struct radix_position position;
    index_lock(index);
    bool nearer = walk_all(index, identity, tokens, n, &position) && position.end > divergence->common;
    if (nearer) {
        divergence->common = position.end;
        divergence->n_next = (int32_t)radix_next_tokens(position, divergence->next, DIVERGENCE_NEXT);
    }
    index_unlock(index);
    return nearer;
}

int32_t index_common(struct index *index, const struct identity *identity, const int32_t *tokens, int32_t n)
{
    assert(n >= 0 && (tokens != NULL || n == 0));
    struct radix_position position;
    index_lock(index);
    int32_t common = walk_all(index, identity, tokens, n, &position) ? position.end : 0;
    index_unlock(index);
    return common;
}

size_t index_ways_on(struct index *index, const struct identity *identity, const int32_t *tokens, int32_t n,
                     struct tokens *ways, size_t max, size_t most)
{
    assert(n >= 0 && (tokens != NULL || n == 0));
    assert(ways != NULL || max == 0);
    struct radix_position position;
    index_lock(index);
    bool known = walk_all(index, identity, tokens, n, &position) && position.end == n;
    size_t n_ways = known ? radix_ways_on(position, ways, max, most) : 0;
    index_unlock(index);
    return n_ways;
}

void index_release(struct index *index, struct match *match)
{
    index_lock(index);
    if (match->rows != NULL) item_unpin(index, item_of(match->rows));
    if (match->state != NULL) item_unpin(index, item_of(match->state));
    index_unlock(index);
    *match = (struct match){0};
}
