/* The index against an oracle that has only lists and searches all of them: what is found, what is detached, what is
 * evicted and in which order, how many bytes are used, what a follower is told, over random saves, branches, pins,
 * drops, failed reads, failed deletions and restarts. */
#include "base/clock.h"
#include "index_helpers.h"

#include <stdio.h>

enum { SEEDS = 30, STEPS = 170, LOOKUPS = 20, STRIDE = 4, LONGEST = 48, BUDGET = 200, LARGEST = 24, MOST = STEPS + 1 };

/* The kinds of entries of a model. */
enum family { ROWS_ALONE, ROWS_AND_STATES, STATES_ALONE, FAMILIES };

enum where { NOWHERE, THERE, DETACHED, ASIDE };

struct listed {
    enum where where;
    struct slab_key key;
    enum family family;
    enum slab_kind kind;
    int32_t tokens[LONGEST], start, end;
    uint64_t size;
    struct slab_key parent; /* its parent: its tokens are the first of these, its kind follows from this one's */
    int64_t used;           /* step of its last use, or of a former descendant's */
    bool reused;            /* it or a descendant was used since it was stored */
    int object;             /* number of its struct entry, which is another each time it is indexed */
    int failures;
    int64_t retry_at;
};

/* A pin of an entry, with its ancestors at that time. */
struct pin {
    struct entry *entry; /* NULL: none */
    int objects[LONGEST], n;
};

/* An entry that the follower was told of. */
struct told {
    struct index_followed followed;
    struct told *next;
    const struct told *parent;
    enum family family;
    enum slab_kind kind;
    int32_t tokens[LONGEST], start, end;
};

struct reader {
    uint32_t random, round;
    struct told *told;
    struct index_news news;
    bool named[FAMILIES], naming, waits, woken;
    uint64_t n_entered, n_left, n_again;
};

struct world {
    uint32_t random;
    struct reader reader;
    struct index *index;
    struct identity identities[FAMILIES];
    struct listed items[MOST];
    int n, n_objects;
    struct pin pins[MOST];
    int64_t step, now;
    uint64_t total, seen[FAMILIES]; /* bytes written since the index was opened; when an identity was used last */
    int order[FAMILIES], n_uses;    /* larger: used later */
    uint64_t written, n_evicted, n_detached, n_attached;
};

static void no_user(void *user)
{
    (void)user;
}

/* ---- The oracle ---- */

static int32_t in_common(const struct listed *item, const int32_t *tokens, int32_t n)
{
    int32_t i = 0;
    while (i < n && i < item->end && item->tokens[i] == tokens[i]) i++;
    return i;
}

static bool is_there(const struct listed *item, enum family family, enum slab_kind kind)
{
    return item->where == THERE && item->family == family && item->kind == kind;
}

static int32_t longest_rows(const struct world *w, enum family family, const int32_t *tokens, int32_t n)
{
    int32_t longest = 0;
    for (int i = 0; i < w->n; i++) {
        int32_t common = in_common(&w->items[i], tokens, n);
        if (is_there(&w->items[i], family, SLAB_ROWS) && common > longest) longest = common;
    }
    return longest;
}

static int32_t longest_state(const struct world *w, enum family family, const int32_t *tokens, int32_t n)
{
    int32_t longest = 0;
    for (int i = 0; i < w->n; i++) {
        const struct listed *item = &w->items[i];
        if (!is_there(item, family, SLAB_STATE) || in_common(item, tokens, n) < item->end) continue;
        if (item->end > longest) longest = item->end;
    }
    return longest;
}

static int item_with(const struct world *w, const struct slab_key *key, enum slab_kind kind)
{
    for (int i = 0; i < w->n; i++)
        if (w->items[i].where != NOWHERE && w->items[i].kind == kind && slab_key_equal(&w->items[i].key, key)) return i;
    return -1;
}

static enum slab_kind kind_of_parent(const struct listed *item)
{
    return item->family == STATES_ALONE ? SLAB_STATE : SLAB_ROWS;
}

/* Whether the entry could be a child of that one. */
static bool covers(const struct listed *item, const struct listed *on_it)
{
    if (item->family != on_it->family || item->kind != kind_of_parent(on_it)) return false;
    if (in_common(item, on_it->tokens, on_it->end) < on_it->start) return false;
    return on_it->family == STATES_ALONE ? item->end == on_it->start : item->start < on_it->start;
}

static bool has_parent(const struct world *w, const struct listed *item)
{
    for (int i = 0; i < w->n; i++)
        if (w->items[i].where == THERE && covers(&w->items[i], item)) return true;
    return item->start == 0;
}

/* Its parent; -1: none is indexed. */
static int listed_parent(const struct world *w, const struct listed *item)
{
    int i = item->start == 0 ? -1 : item_with(w, &item->parent, kind_of_parent(item));
    return i >= 0 && w->items[i].where == THERE && covers(&w->items[i], item) ? i : -1;
}

static uint64_t bytes_known(const struct world *w)
{
    uint64_t bytes = 0;
    for (int i = 0; i < w->n; i++)
        if (w->items[i].where != NOWHERE) bytes += w->items[i].size;
    return bytes;
}

static void hand_up(struct world *w, int i)
{
    int parent = listed_parent(w, &w->items[i]);
    if (parent >= 0 && w->items[parent].used < w->items[i].used) w->items[parent].used = w->items[i].used;
}

/* With its descendants, the last first. */
static void leave(struct world *w, int i, enum where to)
{
    for (int k = 0; k < w->n; k++)
        if (w->items[k].where == THERE && listed_parent(w, &w->items[k]) == i) leave(w, k, DETACHED);
    if (w->items[i].where == THERE) hand_up(w, i);
    if (to == DETACHED) w->n_detached++;
    w->items[i].where = to;
}

/* Indexes every detached item that has a parent. */
static void attach_all(struct world *w)
{
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < w->n; i++) {
            struct listed *item = &w->items[i];
            if (item->where != DETACHED || (item->start > 0 && listed_parent(w, item) < 0)) continue;
            item->where = THERE;
            item->object = ++w->n_objects;
            w->n_attached++;
            for (int k = i; item->reused && k >= 0; k = listed_parent(w, &w->items[k])) w->items[k].reused = true;
            again = true;
        }
    }
}

static bool is_pinned(const struct world *w, int object)
{
    for (int i = 0; i < MOST; i++)
        for (int k = 0; w->pins[i].entry != NULL && k < w->pins[i].n; k++)
            if (w->pins[i].objects[k] == object) return true;
    return false;
}

static bool is_needed(const struct world *w, int i)
{
    if (is_pinned(w, w->items[i].object)) return true;
    for (int k = 0; k < w->n; k++)
        if (w->items[k].where == THERE && listed_parent(w, &w->items[k]) == i) return true;
    return false;
}

static bool is_older(const struct listed *a, const struct listed *b)
{
    return a->used != b->used ? a->used < b->used : a->end > b->end;
}

static void see(struct world *w, enum family family)
{
    w->seen[family] = w->total;
    w->order[family] = ++w->n_uses;
}

static void use(struct world *w, int i)
{
    w->items[i].used = w->step;
    see(w, w->items[i].family);
    for (; i >= 0; i = listed_parent(w, &w->items[i])) w->items[i].reused = true;
}

/* Bytes of an identity, when it reserves. */
struct shares {
    bool exists[FAMILIES], active[FAMILIES];
    uint64_t bytes[FAMILIES], fresh[FAMILIES], all_fresh, share;
};

static struct shares shares_of(const struct world *w, const struct listed *asks, const bool existed[FAMILIES])
{
    struct shares s = {0};
    uint64_t n = 0;
    s.bytes[asks->family] = s.fresh[asks->family] = asks->size;
    for (int i = 0; i < w->n; i++) {
        const struct listed *item = &w->items[i];
        if (item->where == NOWHERE) continue;
        s.bytes[item->family] += item->size;
        if (!item->reused) s.fresh[item->family] += item->size;
    }
    for (int f = 0; f < FAMILIES; f++) {
        s.exists[f] = existed[f] || f == (int)asks->family;
        s.active[f] = s.exists[f] && w->total - w->seen[f] <= BUDGET;
        n += s.active[f];
        s.all_fresh += s.fresh[f];
    }
    s.share = BUDGET / n;
    return s;
}

/* The least recently used fresh, or reused, item; -1: none may be evicted. `keep`: two that may not. */
static int oldest(const struct world *w, int family, bool reused, const int keep[2])
{
    int found = -1;
    for (int i = 0; i < w->n; i++) {
        const struct listed *item = &w->items[i];
        if (item->where == NOWHERE || (int)item->family != family || item->reused != reused || i == keep[0] ||
            i == keep[1] || is_needed(w, i))
            continue;
        if (found < 0 || is_older(item, &w->items[found])) found = i;
    }
    return found;
}

static int next_of(const struct world *w, const struct shares *s, int family, bool own, const int keep[2])
{
    int fresh = oldest(w, family, false, keep), reused = oldest(w, family, true, keep);
    uint64_t share = s->active[family] ? s->share : 0;
    bool many = s->fresh[family] > share / 2;
    if (own ? many : s->all_fresh > BUDGET / 2) return fresh;
    if (many && fresh >= 0) return fresh;
    if (fresh < 0 || reused < 0) return fresh < 0 ? reused : fresh;
    return is_older(&w->items[fresh], &w->items[reused]) ? fresh : reused;
}

static int next_of_largest(const struct world *w, const struct shares *s, int own, uint64_t least, const int keep[2])
{
    int found = -1, largest = -1;
    for (int f = 0; f < FAMILIES; f++) {
        int next = s->active[f] && s->bytes[f] > least ? next_of(w, s, f, f == own, keep) : -1;
        if (next < 0) continue;
        bool larger = largest < 0 || s->bytes[f] > s->bytes[largest];
        if (!larger && (s->bytes[f] < s->bytes[largest] || w->order[f] > w->order[largest])) continue;
        largest = f;
        found = next;
    }
    return found;
}

/* First items of inactive identities, then of the one that is most above its share, then its own. */
static int next_to_go(const struct world *w, const struct listed *asks, const bool existed[FAMILIES], const int keep[2])
{
    struct shares s = shares_of(w, asks, existed);
    int found = -1, own = (int)asks->family;
    for (int f = 0, at = -1; f < FAMILIES; f++) {
        int next = s.exists[f] && !s.active[f] ? next_of(w, &s, f, f == own, keep) : -1;
        if (next < 0 || (at >= 0 && w->order[at] < w->order[f])) continue;
        at = f;
        found = next;
    }
    if (found >= 0) return found;
    found = next_of_largest(w, &s, own, s.share, keep);
    if (found < 0) found = next_of(w, &s, own, true, keep);
    if (found >= 0 || s.bytes[own] > s.share || s.all_fresh <= BUDGET / 2) return found;
    return next_of_largest(w, &s, own, 0, keep);
}

/* ---- Lists ---- */

/* Three different tokens: many common prefixes. */
static int32_t draw_tokens(struct world *w, enum family family, int32_t tokens[LONGEST])
{
    int32_t n = 0;
    const struct listed *base = w->n == 0 ? NULL : &w->items[random_below(&w->random, (uint32_t)w->n)];
    if (base != NULL && base->family == family && random_below(&w->random, 8) > 0) {
        n = base->end - (int32_t)random_below(&w->random, 2) * (int32_t)random_below(&w->random, (uint32_t)base->end);
        memcpy(tokens, base->tokens, (size_t)n * sizeof *tokens);
    }
    for (uint32_t more = random_below(&w->random, 14); more > 0 && n < LONGEST; more--)
        tokens[n++] = (int32_t)random_below(&w->random, 3);
    return n;
}

static enum family draw_family(struct world *w)
{
    return (enum family)random_below(&w->random, FAMILIES);
}

/* ---- Lookups ---- */

static void expect_match(const struct world *w, enum family family, const int32_t *tokens, int32_t n, bool states,
                         const struct match *match)
{
    int32_t rows = longest_rows(w, family, tokens, n), state = states ? longest_state(w, family, tokens, n) : 0;
    if (match->n_rows != rows || match->n_state != state)
        fail_msg("found %d rows and %d, not %d and %d", match->n_rows, match->n_state, rows, state);
    assert_int_equal(match->rows != NULL, rows > 0);
    assert_int_equal(match->state != NULL, state > 0);
    assert_int_equal(verified(w->index, match->rows, tokens, rows), rows);
    assert_int_equal(verified(w->index, match->state, tokens, state), state);
    if (match->state != NULL) assert_int_equal(match->state->end, state);
    if (match->rows != NULL) assert_true(match->rows->start < rows && rows <= match->rows->end);
    assert_true(match->probes <= (uint32_t)(n / STRIDE));
}

/* Of all entries, with rows or without. */
static void expect_nearest(const struct world *w, enum family family, const int32_t *tokens, int32_t n)
{
    struct divergence divergence = {0};
    int32_t most = 0;
    bool goes_on = false;
    for (int i = 0; i < w->n; i++) {
        const struct listed *item = &w->items[i];
        int32_t common = in_common(item, tokens, n);
        if (item->where == THERE && item->family == family && common > most) most = common;
    }
    assert_int_equal(index_note_divergence(w->index, &w->identities[family], tokens, n, &divergence), most > 0);
    assert_int_equal(divergence.common, most);
    for (int i = 0; i < w->n && most > 0; i++) {
        const struct listed *item = &w->items[i];
        if (item->where != THERE || item->family != family || in_common(item, tokens, n) < most) continue;
        int32_t same = most + divergence.n_next;
        goes_on = goes_on || (item->end >= same && memcmp(item->tokens + most, divergence.next,
                                                          (size_t)divergence.n_next * sizeof(int32_t)) == 0);
    }
    assert_int_equal(goes_on, most > 0);
    assert_false(index_note_divergence(w->index, &w->identities[family], tokens, n,
                                       &divergence)); /* no longer than what is noted */
    assert_int_equal(index_common(w->index, &w->identities[family], tokens, n), most);
    struct tokens ways[LONGEST] = {{0}};
    size_t n_ways = index_ways_on(w->index, &w->identities[family], tokens, most, ways, LONGEST, LONGEST);
    if (most > 0) assert_int_equal(n_ways > 0, divergence.n_next > 0);
    for (size_t i = 0; i < LONGEST; i++) tokens_release(&ways[i]);
    if (most < n) assert_int_equal(index_ways_on(w->index, &w->identities[family], tokens, n, ways, 1, 1), 0);
}

static void look(struct world *w)
{
    enum family family = draw_family(w);
    int32_t tokens[LONGEST], n = draw_tokens(w, family, tokens);
    bool states = random_below(&w->random, 2) == 0;
    int32_t first = random_below(&w->random, 3) == 0 ? (int32_t)random_below(&w->random, (uint32_t)n + 1) : n;
    struct match match = find(w->index, &w->identities[family], tokens, first, STRIDE, states);
    expect_match(w, family, tokens, first, states, &match);
    struct index_lookup all = {.identity = &w->identities[family], .tokens = tokens, .n = n, .states = states};
    index_find_again(w->index, &all, &match);
    expect_match(w, family, tokens, n, states, &match);
    index_release(w->index, &match);
    expect_nearest(w, family, tokens, n);
    index_find(w->index, &all, &match); /* without keys */
    expect_match(w, family, tokens, n, states, &match);
    index_release(w->index, &match);
}

/* ---- Saving ---- */

static void draw_item(struct world *w, struct listed *item)
{
    *item = (struct listed){.where = DETACHED, .family = draw_family(w), .kind = SLAB_ROWS};
    const struct listed *again = w->n == 0 ? NULL : &w->items[random_below(&w->random, (uint32_t)w->n)];
    if (again != NULL && random_below(&w->random, 4) == 0) { /* a list that was saved before, continued */
        *item = *again;
        item->where = DETACHED;
        item->object = item->failures = 0;
        item->reused = false;
        return;
    }
    do item->end = draw_tokens(w, item->family, item->tokens);
    while (item->end == 0);
    bool state = item->family == STATES_ALONE || (item->family == ROWS_AND_STATES && random_below(&w->random, 3) == 0);
    item->start = longest_rows(w, item->family, item->tokens, item->end - 1);
    if (random_below(&w->random, 4) == 0) item->start = (int32_t)random_below(&w->random, (uint32_t)item->end);
    if (state) {
        item->kind = SLAB_STATE;
        bool alone = item->family == STATES_ALONE;
        item->start = alone ? longest_state(w, item->family, item->tokens, item->end - 1) : item->end;
    }
    item->key = slab_key_of(&w->identities[item->family], item->tokens, (size_t)item->end);
    item->size = 1 + random_below(&w->random, LARGEST);
    if (random_below(&w->random, 40) == 0) item->size = BUDGET / 4 + random_below(&w->random, BUDGET);
}

static enum reserved expected_of(const struct world *w, const struct listed *item, int known)
{
    if (known >= 0 && w->items[known].where == THERE) return RESERVED_PRESENT;
    if (!has_parent(w, item)) return RESERVED_ORPHAN;
    return item->size > BUDGET ? RESERVED_NO_ROOM : RESERVED;
}

static void find_existing(const struct world *w, bool existing[FAMILIES])
{
    for (int f = 0; f < FAMILIES; f++) existing[f] = false;
    for (int i = 0; i < w->n; i++)
        if (w->items[i].where != NOWHERE) existing[w->items[i].family] = true;
}

/* Everything that it may evict, but for these, is not enough; everything that may be evicted at all may be. */
static enum reserved refusal_of(const struct world *w, const struct listed *item, const int keep[2])
{
    static struct world copy;
    bool existed[FAMILIES];
    copy = *w;
    find_existing(w, existed);
    for (int i; (i = next_to_go(&copy, item, existed, keep)) >= 0;) leave(&copy, i, NOWHERE);
    assert_true(bytes_known(&copy) + item->size > BUDGET);
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < copy.n; i++) {
            if (copy.items[i].where == NOWHERE || i == keep[0] || i == keep[1] || is_needed(&copy, i)) continue;
            leave(&copy, i, NOWHERE);
            again = true;
        }
    }
    return bytes_known(&copy) + item->size > BUDGET ? RESERVED_NO_ROOM : RESERVED_NOT_ADMITTED;
}

/* Exactly the oracle's victims, in its order. */
static void expect_victims(struct world *w, const struct listed *item, const int keep[2], const struct victim *victims)
{
    bool existed[FAMILIES];
    find_existing(w, existed);
    while (bytes_known(w) + item->size > BUDGET) {
        int i = next_to_go(w, item, existed, keep);
        if (i < 0 || victims == NULL) {
            fail_msg("too few have gone");
            return;
        }
        assert_true(slab_key_equal(&w->items[i].key, &victims->key) && w->items[i].kind == victims->kind);
        leave(w, i, NOWHERE);
        w->n_evicted++;
        victims = victims->next;
    }
    assert_null(victims);
}

static void expect_within_budget(const struct world *w)
{
    assert_true(index_usage(w->index).bytes <= BUDGET);
}

static int item_of_victim(struct world *w, const struct victim *victim, const struct world *before)
{
    int i = item_with(before, &victim->key, victim->kind);
    assert_true(i >= 0 && w->items[i].where == NOWHERE);
    return i;
}

/* From a random one on they cannot be deleted. Returns whether all were. */
static bool delete_some(struct world *w, struct victim *victims, const struct world *before)
{
    bool fails = random_below(&w->random, 8) == 0, failed = false;
    for (struct victim *next; victims != NULL; victims = next) {
        next = victims->next;
        int i = item_of_victim(w, victims, before);
        failed = failed || (fails && random_below(&w->random, 2) == 0);
        if (failed) {
            index_reinstate(w->index, victims, false);
            w->items[i].where = DETACHED;
            attach_all(w);
        } else {
            index_deleted(w->index, victims);
            expect_within_budget(w);
        }
    }
    return !failed;
}

static void drop_one(struct world *w, int i);

static void publish(struct world *w, struct listed *item, struct reservation *reservation, int known)
{
    int i = (int)random_below(&w->random, (uint32_t)w->n + 1);
    if (i < w->n && i != known && w->items[i].where == THERE && random_below(&w->random, 4) == 0) drop_one(w, i);
    if (random_below(&w->random, 12) == 0) {
        index_cancel(w->index, reservation);
        attach_all(w);
        return;
    }
    if (item->size > 1) item->size -= random_below(&w->random, (uint32_t)(item->size < LARGEST ? item->size : LARGEST));
    struct entry *entry = index_publish(w->index, reservation, item->size, NULL, w->step);
    w->written += item->size;
    w->total += item->size;
    item->used = w->step;
    if (known >= 0) w->items[known].where = NOWHERE;
    w->items[w->n++] = *item;
    attach_all(w);
    assert_int_equal(entry != NULL, w->items[w->n - 1].where == THERE);
    if (entry != NULL) index_unpin(w->index, entry);
}

static void save_one(struct world *w)
{
    static struct world before;
    struct listed item;
    draw_item(w, &item);
    int known = item_with(w, &item.key, item.kind);
    struct reserve what = reserve_of(&w->identities[item.family], item.tokens, item.start, item.end, item.size);
    what.kind = item.kind;
    struct entry *parent = item.start > 0 ? find_parent(w->index, &what) : NULL;
    what.parent = parent;
    what.tokens += what.start;
    struct reservation *reservation;
    struct victim *victims;
    enum reserved expected = expected_of(w, &item, known);
    enum reserved result = index_reserve(w->index, &what, &reservation, &victims);
    int keep[2] = {parent == NULL ? -1 : item_with(w, &parent->key, parent->kind), known};
    if (parent != NULL) item.parent = parent->key;
    assert_true(item.start == 0 || expected == RESERVED_ORPHAN || expected == RESERVED_PRESENT ||
                (keep[0] >= 0 && covers(&w->items[keep[0]], &item)));
    if (parent != NULL) index_unpin(w->index, parent);
    expect_within_budget(w);
    if (expected == RESERVED) see(w, item.family);
    if (result >= RESERVED_NO_ROOM && expected == RESERVED) expected = refusal_of(w, &item, keep);
    assert_int_equal(result, expected);
    if (result != RESERVED) {
        assert_null(victims);
        return;
    }
    before = *w;
    expect_victims(w, &item, keep, victims);
    if (delete_some(w, victims, &before)) {
        publish(w, &item, reservation, known);
    } else {
        index_cancel(w->index, reservation);
        attach_all(w);
    }
}

/* ---- Using, dropping, failing to read, starting again ---- */

/* The entry of an indexed item, pinned. */
static struct entry *entry_of(struct world *w, const struct listed *item)
{
    bool state = item->kind == SLAB_STATE;
    struct match match = find(w->index, &w->identities[item->family], item->tokens, item->end, STRIDE, state);
    struct entry *entry = state ? match.state : match.rows;
    assert_true(slab_key_equal(&entry->key, &item->key));
    index_pin(w->index, entry);
    index_release(w->index, &match);
    return entry;
}

static void touch_one(struct world *w, int i)
{
    struct entry *entry = entry_of(w, &w->items[i]);
    index_touch(w->index, entry, w->step);
    index_mark_readable(w->index, entry);
    index_unpin(w->index, entry);
    w->items[i].failures = 0;
    use(w, i);
}

static void pin_one(struct world *w, int i)
{
    struct pin *pin = w->pins;
    while (pin->entry != NULL) pin++;
    *pin = (struct pin){.entry = entry_of(w, &w->items[i])};
    for (; i >= 0; i = listed_parent(w, &w->items[i])) pin->objects[pin->n++] = w->items[i].object;
}

static void give_back(struct world *w, int i)
{
    if (w->pins[i].entry != NULL) index_unpin(w->index, w->pins[i].entry);
    w->pins[i].entry = NULL;
}

static void drop_one(struct world *w, int i)
{
    struct entry *entry = entry_of(w, &w->items[i]);
    struct victim *victim = index_drop(w->index, entry);
    assert_true(slab_key_equal(&victim->key, &w->items[i].key) && victim->kind == w->items[i].kind);
    assert_int_equal(delete_all(w->index, victim), 1);
    index_unpin(w->index, entry);
    leave(w, i, NOWHERE);
}

static void fail_to_read(struct world *w, int i)
{
    struct listed *item = &w->items[i];
    struct entry *entry = entry_of(w, item);
    index_mark_unreadable(w->index, entry, w->now);
    index_unpin(w->index, entry);
    leave(w, i, ASIDE);
    item->failures++;
    int64_t wait_ms = item->failures > 12 ? 3600000 : INT64_C(1000) << (item->failures - 1);
    item->retry_at = w->now + clock_from_ms(wait_ms < 3600000 ? wait_ms : 3600000);
}

static void take_back(struct world *w)
{
    int64_t next = INT64_MAX;
    w->now += clock_from_ms(random_below(&w->random, 2000));
    for (int i = 0; i < w->n; i++) {
        struct listed *item = &w->items[i];
        if (item->where != ASIDE) continue;
        if (item->retry_at <= w->now)
            item->where = DETACHED;
        else if (item->retry_at < next)
            next = item->retry_at;
    }
    attach_all(w);
    assert_int_equal(index_retry_unreadable(w->index, w->now), next);
}

static bool adopt(struct world *w, const struct listed *item)
{
    struct slab_head head = {.kind = item->kind,
                             .identity = w->identities[item->family],
                             .key = item->key,
                             .start = item->start,
                             .end = item->end,
                             .used_ms = item->used};
    if (item->start > 0) head.parent = item->parent;
    tokens_append(&head.tokens, item->tokens + item->start, (size_t)(item->end - item->start));
    head.hits = item->reused; /* a server writes hits for the entry that was used, and not for its ancestors */
    bool adopted = index_adopt(w->index, &head, item->size, w->step);
    assert_false(index_adopt(w->index, &head, item->size, w->step));
    tokens_release(&head.tokens);
    return adopted;
}

/* ---- The follower ---- */

static void wake_reader(void *ud)
{
    struct world *w = ud;
    assert_true(w->reader.waits && !w->reader.woken);
    w->reader.woken = true;
}

static void *family_named(void *ud, const struct identity *identity)
{
    struct world *w = ud;
    for (int f = 0; f < FAMILIES; f++)
        if (identity_equal(identity, &w->identities[f])) return w->reader.named[f] ? &w->identities[f] : NULL;
    fail_msg("nobody has that identity");
    return NULL;
}

static void free_told(struct index_followed *followed)
{
    free(followed);
}

static void follow(struct world *w)
{
    struct index_follower follower = {.changed = wake_reader,
                                      .name = family_named,
                                      .ud = w,
                                      .size = sizeof(struct told),
                                      .release = free_told,
                                      .block = STRIDE};
    w->reader.round = 0;
    w->reader.waits = w->reader.woken = false;
    index_follow(w->index, &follower);
}

static void unfollow(struct world *w)
{
    index_unfollow(w->index);
    w->reader.told = NULL;
}

static bool is_known(const struct reader *r, const struct told *told)
{
    for (const struct told *t = r->told; t != NULL; t = t->next)
        if (t == told) return true;
    return false;
}

/* Its parent is known, and has the tokens before it. */
static void note_entered(struct world *w, struct told *told)
{
    struct reader *r = &w->reader;
    const struct index_news *news = &r->news;
    assert_int_equal(is_known(r, told), news->was_told);
    if (!news->was_told) {
        told->next = r->told;
        r->told = told;
    }
    r->n_entered++;
    r->n_again += news->was_told;
    told->family = (enum family)((struct identity *)news->name - w->identities);
    told->kind = news->kind;
    told->start = news->start;
    told->end = news->end;
    told->parent = (const struct told *)(const void *)news->parent;
    assert_int_equal(told->parent != NULL, told->start > 0);
    if (told->parent != NULL) {
        assert_true(is_known(r, told->parent) && told->parent->followed.round == r->round);
        assert_true(told->parent->family == told->family && told->parent->end >= told->start);
        memcpy(told->tokens, told->parent->tokens, (size_t)news->from * sizeof(int32_t));
        assert_memory_equal(told->parent->tokens + news->from, news->tokens.v,
                            (size_t)(told->start - news->from) * sizeof(int32_t));
    }
    assert_int_equal(news->from, told->kind == SLAB_STATE ? 0 : told->start - told->start % STRIDE);
    assert_int_equal(news->tokens.len, told->end - news->from);
    memcpy(told->tokens + news->from, news->tokens.v, news->tokens.len * sizeof(int32_t));
}

/* Its children have left before. */
static void note_left(struct reader *r, struct told *told)
{
    assert_int_equal(r->news.was_told, told->followed.round == r->round);
    struct told **at = &r->told;
    while (*at != NULL && *at != told) at = &(*at)->next;
    assert_non_null(*at);
    *at = told->next;
    for (const struct told *t = r->told; t != NULL; t = t->next) assert_ptr_not_equal(t->parent, told);
    r->n_left++;
    free(told);
}

static bool read_one(struct world *w)
{
    struct reader *r = &w->reader;
    index_next_news(w->index, &r->news);
    bool any = r->news.type != INDEX_NO_NEWS;
    assert_true(!any || !r->waits || r->woken);
    r->waits = !any;
    r->woken = false;
    struct told *told = any ? (struct told *)(void *)r->news.followed : NULL;
    if (r->news.type == INDEX_ENTERED) note_entered(w, told);
    if (r->news.type == INDEX_LEFT) note_left(r, told);
    return any;
}

/* It knows exactly what is there of the identities that it knows. */
static void read_all(struct world *w)
{
    size_t n = 0, n_there = 0;
    while (read_one(w)) continue;
    for (const struct told *t = w->reader.told; t != NULL; t = t->next, n++)
        assert_int_equal(t->followed.round, w->reader.round);
    for (int i = 0; i < w->n; i++) {
        const struct listed *item = &w->items[i];
        if (item->where != THERE || !w->reader.named[item->family]) continue;
        size_t same = 0;
        for (const struct told *t = w->reader.told; t != NULL; t = t->next)
            same += t->family == item->family && t->kind == item->kind && t->start == item->start &&
                    t->end == item->end && memcmp(t->tokens, item->tokens, (size_t)t->end * sizeof(int32_t)) == 0;
        assert_int_equal(same, 1);
        n_there++;
    }
    assert_int_equal(n, n_there);
}

static void forget_all(struct world *w)
{
    w->reader.round++;
    index_follow_anew(w->index);
}

/* Somebody names the next identity, and says so a few steps later: entries may come in between. */
static void name_next(struct world *w)
{
    enum { EACH = STEPS / FAMILIES, LATER = 9 };
    struct reader *r = &w->reader;
    int f = (int)(w->step / EACH) % FAMILIES;
    if (w->step % EACH == 1) {
        bool any = false;
        for (int i = 0; i < w->n; i++) any = any || (w->items[i].where != NOWHERE && (int)w->items[i].family == f);
        assert_int_equal(index_has_identity(w->index, &w->identities[f]), any);
        r->named[f] = r->naming = true;
    }
    if (w->step % EACH == LATER) {
        r->naming = false;
        index_follow_again(w->index);
    }
}

/* It reads some of the news, or all, or forgets everything. */
static void read_some(struct world *w)
{
    struct reader *r = &w->reader;
    uint32_t dice = random_below(&r->random, 40);
    name_next(w);
    for (uint32_t n = dice < 20 ? random_below(&r->random, 4) : 0; n > 0 && read_one(w); n--) continue;
    if (dice == 20) forget_all(w);
    if (dice > 34 && !r->naming) read_all(w);
}

/* Adopts in random order. The oracle changes nothing, but that unreadable entries may be readable now. */
static void start_again(struct world *w)
{
    for (int i = 0; i < MOST; i++) give_back(w, i);
    unfollow(w);
    index_close(w->index);
    w->index = index_open(STRIDE, BUDGET, no_user);
    follow(w);
    bool done[MOST] = {0}, seen[FAMILIES] = {0};
    w->total = 0;
    for (bool all = false; !all;) {
        all = true;
        for (int i = 0; i < w->n; i++) {
            if (w->items[i].where == NOWHERE || done[i]) continue;
            w->items[i].failures = 0;
            done[i] = random_below(&w->random, 2) == 0;
            if (done[i]) assert_true(adopt(w, &w->items[i]));
            if (done[i] && !seen[w->items[i].family]) see(w, w->items[i].family);
            seen[w->items[i].family] = seen[w->items[i].family] || done[i];
            all = all && done[i];
        }
    }
    for (int i = 0; i < w->n; i++)
        if (w->items[i].where != NOWHERE) w->items[i].where = DETACHED;
    attach_all(w);
    assert_null(index_trim(w->index));
}

/* Items without an indexed or unreadable ancestor. */
static void drop_detached(struct world *w)
{
    size_t n = 0;
    bool needed[MOST] = {0};
    for (int round = 0; round < w->n; round++) {
        for (int i = 0; i < w->n; i++) {
            int parent = w->items[i].start == 0 ? -1 : item_with(w, &w->items[i].parent, kind_of_parent(&w->items[i]));
            needed[i] = w->items[i].where == ASIDE || (parent >= 0 && needed[parent]);
        }
    }
    for (int i = 0; i < w->n; i++) {
        if (w->items[i].where != DETACHED || needed[i] || is_pinned(w, w->items[i].object)) continue;
        w->items[i].where = NOWHERE;
        n++;
    }
    assert_int_equal(delete_all(w->index, index_drop_detached(w->index)), n);
}

/* ---- The test ---- */

static void change_one(struct world *w, int i, uint32_t dice)
{
    if (dice < 25)
        touch_one(w, i);
    else if (dice < 60)
        pin_one(w, i);
    else if (dice < 80)
        drop_one(w, i);
    else
        fail_to_read(w, i);
}

static void change(struct world *w)
{
    uint32_t dice = random_below(&w->random, 100);
    int i = w->n == 0 ? -1 : (int)random_below(&w->random, (uint32_t)w->n);
    if (dice < 64 || i < 0)
        save_one(w);
    else if (dice < 66)
        start_again(w);
    else if (dice < 76)
        give_back(w, i);
    else if (dice < 80)
        take_back(w);
    else if (dice < 81)
        drop_detached(w);
    else if (w->items[i].where == THERE)
        change_one(w, i, random_below(&w->random, 100));
}

static void expect_usage(const struct world *w)
{
    struct index_usage usage = index_usage(w->index);
    size_t n[ASIDE + 1] = {0}, pins = 0;
    for (int i = 0; i < w->n; i++) n[w->items[i].where]++;
    for (int i = 0; i < MOST; i++)
        if (w->pins[i].entry != NULL) pins++;
    assert_int_equal(usage.entries, n[THERE]);
    assert_int_equal(usage.detached, n[DETACHED] + n[ASIDE]);
    assert_int_equal(usage.pins, pins);
    assert_int_equal(usage.reservations, 0);
    assert_int_equal(usage.bytes, bytes_known(w));
}

static void run_world(struct world *w, uint32_t seed)
{
    *w = (struct world){.random = seed, .index = index_open(STRIDE, BUDGET, no_user)};
    for (int i = 0; i < FAMILIES; i++) w->identities[i] = some_identity(0x10); /* they differ in nothing but a salt */
    w->identities[1] = identity_salted(&w->identities[0], "1");
    w->identities[2] = identity_salted(&w->identities[0], "2");
    w->reader.random = seed;
    follow(w);
    for (w->step = 1; w->step <= STEPS; w->step++) {
        change(w);
        expect_usage(w);
        read_some(w);
        index_check(w->index);
        for (int i = 0; i < LOOKUPS; i++) look(w);
    }
    read_all(w);
    for (int i = 0; i < MOST; i++) give_back(w, i);
    unfollow(w);
    tokens_release(&w->reader.news.tokens);
    index_close(w->index);
}

/* SEEDS x STEPS x LOOKUPS of them are 102,000. */
static void lookups_and_evictions_are_those_of_an_oracle(void **state)
{
    (void)state;
    static struct world w;
    uint64_t written = 0, evicted = 0, detached = 0, attached = 0, entered = 0, left = 0, again = 0;
    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        run_world(&w, seed * 2654435761u);
        written += w.written;
        evicted += w.n_evicted;
        detached += w.n_detached;
        attached += w.n_attached;
        entered += w.reader.n_entered;
        left += w.reader.n_left;
        again += w.reader.n_again;
    }
    printf("    %d budgets written, %d evicted, %d detached, %d attached\n", (int)(written / BUDGET), (int)evicted,
           (int)detached, (int)attached);
    printf("    %d were told, %d of them again, %d left\n", (int)entered, (int)again, (int)left);
    assert_true(written > 10 * BUDGET && evicted > 100 && detached > 100);
    assert_true(entered > 1000 && left > 300 && again > 100);
}

/* ---- The budget, measured by the files ---- */

enum { AT_ONCE = 5, QUOTA = 10000, SLABS = 400 };

/* Slab i has the one token i; its file counts from the moment of its reservation. */
struct disk {
    struct index *index;
    struct identity identity;
    uint64_t sizes[SLABS]; /* 0: no file */
};

static void expect_disk_within_budget(const struct disk *disk)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < SLABS; i++) bytes += disk->sizes[i];
    uint64_t counted = index_usage(disk->index).bytes;
    assert_true(bytes <= counted && counted <= QUOTA);
}

static void delete_files(struct disk *disk, struct victim *victims)
{
    for (struct victim *next; victims != NULL; victims = next) {
        next = victims->next;
        for (int32_t i = 0; i < SLABS; i++) {
            struct slab_key key = slab_key_of(&disk->identity, &i, 1);
            if (slab_key_equal(&key, &victims->key)) disk->sizes[i] = 0;
        }
        expect_disk_within_budget(disk);
        index_deleted(disk->index, victims);
        expect_disk_within_budget(disk);
    }
}

static struct reservation *begin_file(struct disk *disk, int32_t i, uint64_t size)
{
    struct reserve what = reserve_of(&disk->identity, &i, 0, 1, size);
    struct reservation *reservation;
    struct victim *victims;
    enum reserved result = reserve(disk->index, &what, &reservation, &victims);
    assert_true(result == RESERVED || result == RESERVED_NO_ROOM);
    expect_disk_within_budget(disk);
    delete_files(disk, victims);
    if (result == RESERVED) disk->sizes[i] = size;
    expect_disk_within_budget(disk);
    return reservation;
}

/* Many times the budget, in slabs of all sizes, several being written at once. */
static void a_tier_never_holds_more_than_its_budget(void **state)
{
    (void)state;
    struct disk disk = {.index = index_open(STRIDE, QUOTA, no_user), .identity = some_identity(1)};
    uint32_t random = 5;
    struct reservation *writing[AT_ONCE] = {0};
    uint64_t sizes[AT_ONCE] = {0}, written = 0;
    for (int32_t i = 0; i < SLABS; i++) {
        size_t at = random_below(&random, AT_ONCE);
        if (writing[at] != NULL) index_unpin(disk.index, index_publish(disk.index, writing[at], sizes[at], NULL, i));
        sizes[at] = 1 + random_below(&random, QUOTA / 4);
        writing[at] = begin_file(&disk, i, sizes[at]);
        if (writing[at] != NULL) written += sizes[at];
    }
    assert_true(written > 10 * QUOTA);
    for (size_t k = 0; k < AT_ONCE; k++)
        if (writing[k] != NULL) index_cancel(disk.index, writing[k]);
    index_close(disk.index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lookups_and_evictions_are_those_of_an_oracle),
        cmocka_unit_test(a_tier_never_holds_more_than_its_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
