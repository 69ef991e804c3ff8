/* The index against an oracle that has nothing but lists and goes through all of them: what is found, who goes to make
 * room and in which order, how many bytes there are, over random saves, branches, leases, drops and restarts. */
#include "shelf.h"

#include <stdio.h>

enum { SEEDS = 30, STEPS = 170, LOOKUPS = 20, STRIDE = 4, LONGEST = 48, BUDGET = 400, LARGEST = 24, MOST = STEPS + 1 };

/* Which entries a model has. */
enum family { ROWS_ALONE, ROWS_AND_STATES, STATES_ALONE, FAMILIES };

struct item {
    struct key key;
    enum family family;
    enum slab_kind kind;
    int32_t tokens[LONGEST], start, end;
    uint64_t size;
    int parent;         /* -1: none */
    int64_t used, rank; /* step in which it was used last; among those of one step, the larger the later */
    bool there;
    struct entry *leased; /* or NULL */
};

struct world {
    uint32_t random;
    struct index *index;
    struct identity identities[FAMILIES];
    struct item items[MOST]; /* what one hangs on stands before it */
    int n;
    int64_t step;
    uint64_t written, n_evicted;
};

static void no_user(void *user)
{
    (void)user;
}

/* ---- The oracle ---- */

static int32_t in_common(const struct item *item, const int32_t *tokens, int32_t n)
{
    int32_t i = 0;
    while (i < n && i < item->end && item->tokens[i] == tokens[i]) i++;
    return i;
}

static bool is_there(const struct item *item, enum family family, enum slab_kind kind)
{
    return item->there && item->family == family && item->kind == kind;
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
        const struct item *item = &w->items[i];
        if (!is_there(item, family, SLAB_STATE) || in_common(item, tokens, n) < item->end) continue;
        if (item->end > longest) longest = item->end;
    }
    return longest;
}

static int item_with(const struct world *w, const struct key *key, enum slab_kind kind)
{
    for (int i = 0; i < w->n; i++)
        if (w->items[i].there && w->items[i].kind == kind && key_equal(&w->items[i].key, key)) return i;
    return -1;
}

/* Whether the entry could go on from there. */
static bool covers(const struct item *item, const struct item *on_it)
{
    if (in_common(item, on_it->tokens, on_it->end) < on_it->start) return false;
    if (on_it->family == STATES_ALONE) return item->end == on_it->start;
    return item->kind == SLAB_ROWS && item->start < on_it->start;
}

static bool has_parent(const struct world *w, const struct item *item)
{
    for (int i = 0; i < w->n; i++)
        if (w->items[i].there && w->items[i].family == item->family && covers(&w->items[i], item)) return true;
    return item->start == 0;
}

static uint64_t bytes_there(const struct world *w)
{
    uint64_t bytes = 0;
    for (int i = 0; i < w->n; i++)
        if (w->items[i].there) bytes += w->items[i].size;
    return bytes;
}

/* Leased, or something hangs on it that is there or leased. */
static void find_needed(const struct world *w, int new_parent, bool needed[MOST])
{
    for (int i = 0; i < w->n; i++) needed[i] = w->items[i].leased != NULL || i == new_parent;
    for (int i = w->n - 1; i >= 0; i--)
        if (w->items[i].parent >= 0 && (w->items[i].there || needed[i])) needed[w->items[i].parent] = true;
}

static bool is_older(const struct item *a, const struct item *b)
{
    return a->used != b->used ? a->used < b->used : a->rank < b->rank;
}

/* -1: nothing can go. */
static int next_to_go(const struct world *w, int new_parent)
{
    bool needed[MOST] = {0};
    find_needed(w, new_parent, needed);
    int oldest = -1;
    for (int i = 0; i < w->n; i++) {
        if (!w->items[i].there || needed[i]) continue;
        if (oldest < 0 || is_older(&w->items[i], &w->items[oldest])) oldest = i;
    }
    return oldest;
}

static void use(struct world *w, int i)
{
    for (int64_t rank = 0; i >= 0; i = w->items[i].parent, rank++) {
        w->items[i].used = w->step;
        w->items[i].rank = rank;
    }
}

/* ---- Lists ---- */

/* Three different tokens: much is alike. */
static int32_t draw_tokens(struct world *w, enum family family, int32_t tokens[LONGEST])
{
    int32_t n = 0;
    const struct item *base = w->n == 0 ? NULL : &w->items[random_below(&w->random, (uint32_t)w->n)];
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

/* ---- Looking ---- */

static void expect_match(const struct world *w, enum family family, const int32_t *tokens, int32_t n, bool states,
                         const struct match *match)
{
    int32_t rows = longest_rows(w, family, tokens, n), state = states ? longest_state(w, family, tokens, n) : 0;
    if (match->n_rows != rows || match->n_state != state)
        fail_msg("found %d rows and %d, not %d and %d", match->n_rows, match->n_state, rows, state);
    assert_int_equal(match->rows != NULL, rows > 0);
    assert_int_equal(match->state != NULL, state > 0);
    assert_int_equal(verified(match->rows, tokens, rows), rows);
    assert_int_equal(verified(match->state, tokens, state), state);
    if (match->state != NULL) assert_int_equal(match->state->end, state);
    if (match->rows != NULL) assert_true(match->rows->start < rows && rows <= match->rows->end);
    assert_true(match->probes <= (uint32_t)(n / STRIDE));
}

static void look(struct world *w)
{
    enum family family = draw_family(w);
    int32_t tokens[LONGEST], n = draw_tokens(w, family, tokens);
    bool states = random_below(&w->random, 2) == 0;
    int32_t first = random_below(&w->random, 3) == 0 ? (int32_t)random_below(&w->random, (uint32_t)n + 1) : n;
    struct match match = find(w->index, &w->identities[family], tokens, first, STRIDE, states);
    expect_match(w, family, tokens, first, states, &match);
    struct wanted all = {.identity = &w->identities[family], .tokens = tokens, .n = n, .states = states};
    index_find_again(w->index, &all, &match);
    expect_match(w, family, tokens, n, states, &match);
    index_release(w->index, &match);
}

/* ---- Saving ---- */

static void draw_item(struct world *w, struct item *item)
{
    *item = (struct item){.family = draw_family(w), .kind = SLAB_ROWS, .parent = -1, .there = true};
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
    item->key = key_of(&w->identities[item->family], item->tokens, (size_t)item->end);
    item->size = 1 + random_below(&w->random, LARGEST);
    if (random_below(&w->random, 40) == 0) item->size = BUDGET / 2 + random_below(&w->random, BUDGET);
}

static enum reserved expected_of(const struct world *w, const struct item *item)
{
    if (item_with(w, &item->key, item->kind) >= 0) return RESERVED_PRESENT;
    if (!has_parent(w, item)) return RESERVED_ORPHAN;
    return item->size > BUDGET ? RESERVED_NO_ROOM : RESERVED;
}

/* Exactly those that the oracle would let go, in its order. */
static void expect_victims(struct world *w, const struct item *item, const struct victim *victims)
{
    while (bytes_there(w) + item->size > BUDGET) {
        int i = next_to_go(w, item->parent);
        if (i < 0 || victims == NULL) {
            fail_msg("too few have gone");
            return;
        }
        assert_true(key_equal(&w->items[i].key, &victims->key) && w->items[i].kind == victims->kind);
        w->items[i].there = false;
        w->n_evicted++;
        victims = victims->next;
    }
    assert_null(victims);
}

/* Everything that could go for an item that hangs on nothing would not be enough. */
static void expect_no_room(const struct world *w, const struct item *item)
{
    static struct world copy;
    copy = *w;
    for (int i; (i = next_to_go(&copy, -1)) >= 0;) copy.items[i].there = false;
    if (item->start == 0) assert_true(bytes_there(&copy) + item->size > BUDGET);
}

static void publish(struct world *w, struct item *item, struct reservation *reservation)
{
    if (random_below(&w->random, 12) == 0) {
        index_cancel(w->index, reservation);
        return;
    }
    item->size -= random_below(&w->random, (uint32_t)(item->size < LARGEST ? item->size : LARGEST));
    index_unlease(w->index, index_publish(w->index, reservation, item->size, NULL, w->step));
    w->written += item->size;
    w->items[w->n] = *item;
    use(w, w->n++);
}

static void expect_within_budget(const struct world *w)
{
    assert_true(index_usage(w->index).bytes <= BUDGET);
}

static void save_one(struct world *w)
{
    struct item item;
    draw_item(w, &item);
    struct reserve what = reserve_of(&w->identities[item.family], item.tokens, item.start, item.end, item.size);
    what.kind = item.kind;
    struct reservation *reservation;
    struct victim *victims;
    enum reserved expected = expected_of(w, &item), result = index_reserve(w->index, &what, &reservation, &victims);
    expect_within_budget(w);
    if (result == RESERVED_NO_ROOM && expected == RESERVED) {
        expect_no_room(w, &item);
        expected = result;
    }
    assert_int_equal(result, expected);
    if (result != RESERVED) {
        assert_null(victims);
        return;
    }
    const struct entry *parent = index_reserved_parent(reservation);
    if (parent != NULL) item.parent = item_with(w, &parent->key, parent->kind);
    assert_true(item.start == 0 ? parent == NULL : item.parent >= 0 && covers(&w->items[item.parent], &item));
    expect_victims(w, &item, victims);
    for (struct victim *next; victims != NULL; victims = next) {
        next = victims->next;
        index_deleted(w->index, victims);
        expect_within_budget(w);
    }
    publish(w, &item, reservation);
}

/* ---- Using, dropping, starting again ---- */

/* The entry for an item, leased. */
static struct entry *entry_of(struct world *w, const struct item *item)
{
    bool state = item->kind == SLAB_STATE;
    struct match match = find(w->index, &w->identities[item->family], item->tokens, item->end, STRIDE, state);
    struct entry *entry = state ? match.state : match.rows;
    assert_true(key_equal(&entry->key, &item->key));
    index_lease(w->index, entry);
    index_release(w->index, &match);
    return entry;
}

static void touch_one(struct world *w, int i)
{
    struct entry *entry = entry_of(w, &w->items[i]);
    index_touch(w->index, entry, w->step);
    index_unlease(w->index, entry);
    use(w, i);
}

static void give_back(struct world *w, int i)
{
    if (w->items[i].leased != NULL) index_unlease(w->index, w->items[i].leased);
    w->items[i].leased = NULL;
}

static void drop_one(struct world *w, int i)
{
    struct entry *entry = entry_of(w, &w->items[i]);
    struct victim *victims = index_drop(w->index, entry);
    assert_true(key_equal(&victims->key, &w->items[i].key));
    size_t n = 0;
    bool gone[MOST] = {0};
    for (int k = i; k < w->n; k++) {
        gone[k] = k == i || (w->items[k].parent >= 0 && gone[w->items[k].parent]);
        if (gone[k] && w->items[k].there) n++;
        if (gone[k]) w->items[k].there = false;
    }
    assert_int_equal(delete_all(w->index, victims), n);
    index_unlease(w->index, entry);
}

static bool adopt(struct world *w, const struct item *item)
{
    struct slab_head head = {.kind = item->kind,
                             .identity = w->identities[item->family],
                             .key = item->key,
                             .start = item->start,
                             .end = item->end,
                             .used_ms = item->used};
    if (item->parent >= 0) head.parent = w->items[item->parent].key;
    tokens_append(&head.tokens, item->tokens + item->start, (size_t)(item->end - item->start));
    bool adopted = index_adopt(w->index, &head, item->size);
    tokens_release(&head.tokens);
    return adopted;
}

/* In any order in which what one hangs on comes first. The oracle goes on as if nothing had happened. */
static void start_again(struct world *w)
{
    for (int i = 0; i < w->n; i++) give_back(w, i);
    index_close(w->index);
    w->index = index_open(STRIDE, BUDGET, no_user);
    bool done[MOST] = {0};
    for (bool all = false; !all;) {
        all = true;
        for (int i = 0; i < w->n; i++) {
            if (!w->items[i].there || done[i]) continue;
            bool waits = w->items[i].parent >= 0 && !done[w->items[i].parent];
            if (waits || random_below(&w->random, 2) == 0) {
                all = false;
                continue;
            }
            assert_true(adopt(w, &w->items[i]));
            done[i] = true;
        }
    }
    assert_null(index_settle(w->index));
}

/* ---- The test ---- */

static void change(struct world *w)
{
    uint32_t dice = random_below(&w->random, 100);
    int i = w->n == 0 ? -1 : (int)random_below(&w->random, (uint32_t)w->n);
    if (dice < 70 || i < 0)
        save_one(w);
    else if (dice < 72)
        start_again(w);
    else if (dice < 82)
        give_back(w, i);
    else if (w->items[i].there && dice < 90)
        touch_one(w, i);
    else if (w->items[i].there && dice < 96 && w->items[i].leased == NULL)
        w->items[i].leased = entry_of(w, &w->items[i]);
    else if (w->items[i].there)
        drop_one(w, i);
}

static void expect_usage(const struct world *w)
{
    struct index_usage usage = index_usage(w->index);
    size_t n = 0, leases = 0;
    for (int i = 0; i < w->n; i++) {
        if (w->items[i].there) n++;
        if (w->items[i].leased != NULL) leases++;
    }
    assert_int_equal(usage.entries, n);
    assert_int_equal(usage.leases, leases);
    assert_int_equal(usage.reservations, 0);
    assert_int_equal(usage.bytes, bytes_there(w));
}

static void run_world(struct world *w, uint32_t seed)
{
    *w = (struct world){.random = seed, .index = index_open(STRIDE, BUDGET, no_user)};
    for (int i = 0; i < FAMILIES; i++) w->identities[i] = some_identity(0x10); /* they differ in nothing but a salt */
    w->identities[1] = identity_salted(&w->identities[0], "1");
    w->identities[2] = identity_salted(&w->identities[0], "2");
    for (w->step = 1; w->step <= STEPS; w->step++) {
        change(w);
        expect_usage(w);
        for (int i = 0; i < LOOKUPS; i++) look(w);
    }
    for (int i = 0; i < w->n; i++) give_back(w, i);
    index_close(w->index);
}

/* SEEDS x STEPS x LOOKUPS of them are 102,000. */
static void lookups_and_evictions_are_those_of_an_oracle(void **state)
{
    (void)state;
    static struct world w;
    uint64_t written = 0, evicted = 0;
    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        run_world(&w, seed * 2654435761u);
        written += w.written;
        evicted += w.n_evicted;
    }
    printf("    %d budgets written, %d evicted\n", (int)(written / BUDGET), (int)evicted);
    assert_true(written > 10 * BUDGET && evicted > 100);
}

/* ---- The budget, as a disk would show it ---- */

enum { AT_ONCE = 5, QUOTA = 10000, SLABS = 400 };

/* Slab i has the one token i; its file is there from the moment its writer may write. */
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
            struct key key = key_of(&disk->identity, &i, 1);
            if (key_equal(&key, &victims->key)) disk->sizes[i] = 0;
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
    enum reserved result = index_reserve(disk->index, &what, &reservation, &victims);
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
        if (writing[at] != NULL) index_unlease(disk.index, index_publish(disk.index, writing[at], sizes[at], NULL, i));
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
