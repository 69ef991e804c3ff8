/* Finding. All entries of an identity lie in one radix tree of tokens, where every prefix has one spot: whatever entry
 * the keys lead to lies on the way to the longest match, and the walk ends at the same spot wherever it began. */
#include "store/node.h"

/* ---- What is at a spot ---- */

static struct node *host_of(struct guest *guest)
{
    return container_of(struct node, guest, guest);
}

/* Of those that run through, some may begin only behind the spot; what they hang on runs through it as well. */
static struct node *rows_at(struct spot spot)
{
    struct node *node = host_of(radix_rows_of(spot));
    while (node->entry.start >= spot.end) node = node_of(node->entry.parent);
    return node;
}

static struct node *state_at(const struct place *place)
{
    for (struct guest *guest = place->guests; guest != NULL; guest = guest->next)
        if (!guest->rows) return host_of(guest);
    return NULL;
}

static struct node *last_state(struct spot spot)
{
    const struct place *place = spot.end < spot.place->end ? spot.place->parent : spot.place;
    struct node *state = NULL;
    for (; place != NULL && state == NULL; place = place->parent) state = state_at(place);
    return state;
}

/* ---- Where the walk begins ---- */

/* A key is a hash: the tokens decide. */
static struct place *place_of_key(const struct index *index, const struct space *space, const struct slab_key *key,
                                  const int32_t *tokens, int32_t end)
{
    static const enum slab_kind kinds[] = {SLAB_ROWS, SLAB_STATE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct node *node = node_find(index, key, kinds[i]);
        if (node == NULL || node->space != space || node->entry.end != end) continue;
        if (radix_has(node->place, 0, tokens)) return node->place;
    }
    return NULL;
}

static struct spot longest_key(const struct index *index, const struct space *space, const struct wanted *wanted,
                               uint32_t *probes)
{
    int32_t strides = wanted->keys == NULL ? 0 : wanted->n / index->stride;
    for (int32_t i = strides; i > 0; i--) {
        int32_t end = i * index->stride;
        ++*probes;
        struct place *place = place_of_key(index, space, &wanted->keys[i - 1], wanted->tokens, end);
        if (place != NULL) return (struct spot){place, end};
    }
    return (struct spot){space->root, 0};
}

/* What was found before, unless it is gone. */
static struct spot last_match(const struct space *space, const struct wanted *wanted, const struct match *match)
{
    const struct node *rows = node_of(match->rows), *state = node_of(match->state);
    struct spot spot = {space->root, 0};
    if (rows != NULL && rows->there && match->n_rows <= wanted->n) spot = radix_spot(rows->place, match->n_rows);
    if (state != NULL && state->there && match->n_state <= wanted->n && match->n_state > spot.end)
        spot = (struct spot){state->place, match->n_state};
    return spot;
}

/* ---- The walk ---- */

/* A prompt that parts from an entry early, as most do from some that begin alike, is no use of it. */
static void use_rows(struct index *index, struct node *node, int32_t n_rows, int64_t now_ms)
{
    const struct entry *entry = &node->entry;
    if (n_rows - entry->start < entry->end - n_rows) node = node_of(entry->parent);
    if (node != NULL) order_use(index, node, now_ms);
}

static void fill(struct index *index, const struct wanted *wanted, struct spot spot, struct match *match)
{
    struct spot rows = radix_with_rows(spot);
    if (rows.end > 0) {
        match->rows = node_lease(index, rows_at(rows));
        match->n_rows = rows.end;
        if (wanted->now_ms > 0) use_rows(index, node_of(match->rows), rows.end, wanted->now_ms);
    }
    struct node *state = wanted->states ? last_state(spot) : NULL;
    if (state != NULL) {
        match->state = node_lease(index, state);
        match->n_state = state->entry.end;
        if (wanted->now_ms > 0) order_use(index, state, wanted->now_ms);
    }
}

static void walk(struct index *index, const struct wanted *wanted, struct spot from, struct match *match)
{
    int32_t n = wanted->n - from.end;
    const int32_t *tokens = n > 0 ? wanted->tokens + from.end : NULL;
    fill(index, wanted, radix_walk(&index->radix, from, tokens, (size_t)n), match);
}

void index_find(struct index *index, const struct wanted *wanted, struct match *match)
{
    *match = (struct match){0};
    index_lock(index);
    struct space *space = space_find(index, wanted->identity);
    if (space != NULL) walk(index, wanted, longest_key(index, space, wanted, &match->probes), match);
    index_unlock(index);
}

void index_find_again(struct index *index, const struct wanted *wanted, struct match *match)
{
    struct match before = *match;
    *match = (struct match){0};
    index_lock(index);
    struct space *space = space_find(index, wanted->identity);
    if (space != NULL) walk(index, wanted, last_match(space, wanted, &before), match);
    if (before.rows != NULL) node_unlease(index, node_of(before.rows));
    if (before.state != NULL) node_unlease(index, node_of(before.state));
    index_unlock(index);
}

bool index_note_divergence(struct index *index, const struct identity *identity, const int32_t *tokens, int32_t n,
                           struct divergence *nearest)
{
    bool nearer = false;
    index_lock(index);
    struct space *space = space_find(index, identity);
    if (space != NULL) {
        struct spot spot = radix_walk(&index->radix, (struct spot){space->root, 0}, tokens, (size_t)n);
        nearer = spot.end > nearest->common;
        if (nearer) {
            nearest->common = spot.end;
            nearest->n_next = (int32_t)radix_next(spot, nearest->next, DIVERGENCE_NEXT);
        }
    }
    index_unlock(index);
    return nearer;
}

void index_release(struct index *index, struct match *match)
{
    index_lock(index);
    if (match->rows != NULL) node_unlease(index, node_of(match->rows));
    if (match->state != NULL) node_unlease(index, node_of(match->state));
    index_unlock(index);
    *match = (struct match){0};
}
