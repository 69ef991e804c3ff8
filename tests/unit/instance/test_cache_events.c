/* Cache events against the indexes that they come from: a router that knows nothing but events finds exactly the blocks
 * that a lookup finds, over random saves, drops, failed reads, evictions and resends in two tiers, and of models whose
 * state can be cut or not. */
#include "base/clock.h"
#include "instance/events/cache_events.h"
#include "store/backends/backend.h"
#include "unit/store/index_helpers.h"

#include <stdio.h>

enum { SEEDS = 12, STEPS = 400, LONGEST = 200, LISTS = 400, MOST_BLOCKS = 20000, STRIDE = 8, TIERS = 2 };

/* Kinds of models: by rows; by rows and states; by states alone. */
enum { ROWS, BOTH, STATES, FAMILIES };

struct router_block {
    uint64_t number, parent;
    int32_t tokens[HEARTH_BLOCK];
    const char *model, *adapters, *salt, *medium;
};

struct list {
    int family;
    int32_t tokens[LONGEST], n;
};

static struct world {
    uint32_t random;
    struct store *store;
    struct index *indexes[TIERS];
    const char *media[TIERS];
    struct identity identities[FAMILIES];
    struct cache_events *events;
    _Atomic int woken;
    struct list lists[LISTS];
    int n_lists;
    struct router_block blocks[MOST_BLOCKS];
    size_t n_blocks, n_stored, n_removed, n_cleared, most_at_once;
    int64_t now;
} w;

static const struct identity_name names[FAMILIES] = {
    [ROWS] = {.model = "first"},
    [BOTH] = {.model = "first", .salt = "s", .by_state = true},
    [STATES] = {.model = "second", .adapters = "a:0.5+b", .by_state = true},
};

/* ---- The router ---- */

static size_t find_block(uint64_t number, const char *medium)
{
    size_t i = 0;
    while (i < w.n_blocks && (w.blocks[i].number != number || strcmp(w.blocks[i].medium, medium) != 0)) i++;
    return i;
}

static void take_stored(const hearth_block_event *event)
{
    uint64_t parent = event->parent;
    assert_true(parent == 0 || find_block(parent, event->medium) < w.n_blocks);
    for (size_t i = 0; i < event->n_blocks; i++) {
        assert_int_not_equal(event->blocks[i], 0);
        assert_int_equal(find_block(event->blocks[i], event->medium), w.n_blocks);
        assert_true(w.n_blocks < MOST_BLOCKS);
        struct router_block *block = &w.blocks[w.n_blocks++];
        *block = (struct router_block){.number = event->blocks[i],
                                       .parent = parent,
                                       .model = event->model,
                                       .adapters = event->adapters,
                                       .salt = event->salt,
                                       .medium = event->medium};
        memcpy(block->tokens, event->tokens + i * HEARTH_BLOCK, sizeof block->tokens);
        parent = event->blocks[i];
    }
    w.n_stored += event->n_blocks;
}

static void take_removed(const hearth_block_event *event)
{
    for (size_t i = 0; i < event->n_blocks; i++) {
        size_t at = find_block(event->blocks[i], event->medium);
        assert_true(at < w.n_blocks);
        assert_string_equal(w.blocks[at].model, event->model);
        w.blocks[at] = w.blocks[--w.n_blocks];
    }
    w.n_removed += event->n_blocks;
}

static void take_cleared(const hearth_block_event *event)
{
    for (size_t i = 0; i < w.n_blocks;)
        if (strcmp(w.blocks[i].model, event->model) == 0)
            w.blocks[i] = w.blocks[--w.n_blocks];
        else
            i++;
    w.n_cleared++;
}

static bool read_event(void)
{
    static void (*const take[])(const hearth_block_event *event) = {[HEARTH_BLOCKS_STORED] = take_stored,
                                                                    [HEARTH_BLOCKS_REMOVED] = take_removed,
                                                                    [HEARTH_BLOCKS_CLEARED] = take_cleared};
    hearth_block_event event;
    if (!cache_events_next(w.events, &event)) return false;
    if (event.n_blocks > w.most_at_once) w.most_at_once = event.n_blocks;
    take[event.type](&event);
    return true;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool is_child(const struct router_block *block, uint64_t parent, const int32_t *tokens, int family, int tier)
{
    const struct identity_name *name = &names[family];
    return block->parent == parent && strcmp(block->medium, w.media[tier]) == 0 &&
           memcmp(block->tokens, tokens, sizeof block->tokens) == 0 && same_text(block->model, name->model) &&
           same_text(block->adapters, name->adapters) && same_text(block->salt, name->salt);
}

/* Leading blocks of the list that the router knows. */
static int32_t blocks_known(const struct list *list, int tier)
{
    int32_t n = 0;
    for (uint64_t parent = 0; (n + 1) * HEARTH_BLOCK <= list->n; n++) {
        size_t i = 0;
        while (i < w.n_blocks && !is_child(&w.blocks[i], parent, list->tokens + n * HEARTH_BLOCK, list->family, tier))
            i++;
        if (i == w.n_blocks) break;
        parent = w.blocks[i].number;
    }
    return n;
}

/* ---- The truth ---- */

struct search {
    const struct list *list;
    int32_t longest;
};

/* Of a model whose state cannot be cut: up to a state. A router sees nothing of that within a prefix. */
static void look_at(void *ud, const struct entry *entry, const struct identity *identity)
{
    struct search *search = ud;
    const struct list *list = search->list;
    int32_t tokens[LONGEST], common = 0;
    enum slab_kind kind = list->family == ROWS ? SLAB_ROWS : SLAB_STATE;
    if (entry->kind != kind || !identity_equal(identity, &w.identities[list->family])) return;
    index_copy_tokens(entry, tokens);
    while (common < entry->end && common < list->n && tokens[common] == list->tokens[common]) common++;
    if (common > search->longest) search->longest = common;
}

static int32_t blocks_there(const struct list *list, int tier)
{
    struct search search = {.list = list};
    index_each(w.indexes[tier], look_at, &search);
    if (list->family == ROWS) {
        struct match match = find(w.indexes[tier], &w.identities[ROWS], list->tokens, list->n, STRIDE, false);
        assert_int_equal(match.n_rows, search.longest);
        index_release(w.indexes[tier], &match);
    }
    return search.longest / HEARTH_BLOCK;
}

/* Each block that the router has is one of a list that it finds. */
static void expect_nothing_else(void)
{
    static bool found[MOST_BLOCKS];
    memset(found, 0, sizeof found);
    for (int i = 0; i < w.n_lists; i++) {
        for (int tier = 0; tier < TIERS; tier++) {
            const struct list *list = &w.lists[i];
            uint64_t parent = 0;
            for (int32_t k = 0, n = blocks_known(list, tier); k < n; k++) {
                size_t at = 0;
                while (!is_child(&w.blocks[at], parent, list->tokens + k * HEARTH_BLOCK, list->family, tier)) at++;
                found[at] = true;
                parent = w.blocks[at].number;
            }
        }
    }
    for (size_t i = 0; i < w.n_blocks; i++) assert_true(found[i]);
}

static void compare(void)
{
    while (read_event()) continue;
    for (int i = 0; i < w.n_lists; i++)
        for (int tier = 0; tier < TIERS; tier++)
            assert_int_equal(blocks_known(&w.lists[i], tier), blocks_there(&w.lists[i], tier));
    expect_nothing_else();
}

/* ---- Changes ---- */

/* A beginning of an earlier list, and something new. */
static struct list *draw_list(void)
{
    struct list *list = &w.lists[w.n_lists++];
    const struct list *base = w.n_lists == 1 ? NULL : &w.lists[random_below(&w.random, (uint32_t)w.n_lists - 1)];
    *list = (struct list){.family = (int)random_below(&w.random, FAMILIES)};
    if (base != NULL && base->family == list->family) {
        list->n = (int32_t)random_below(&w.random, (uint32_t)base->n + 1);
        memcpy(list->tokens, base->tokens, (size_t)list->n * sizeof(int32_t));
    }
    int32_t more = 1 + (int32_t)random_below(&w.random, 70);
    while (more-- > 0 && list->n < LONGEST) list->tokens[list->n++] = (int32_t)random_below(&w.random, 2) - 1;
    return list;
}

static void save_part(int tier, const struct list *list, enum slab_kind kind, int32_t start)
{
    struct reserve what = reserve_of(&w.identities[list->family], list->tokens, start, list->n, 100);
    what.kind = kind;
    save(w.indexes[tier], &what, ++w.now);
}

static void save_list(int tier, const struct list *list)
{
    struct index *index = w.indexes[tier];
    struct match match = find(index, &w.identities[list->family], list->tokens, list->n - 1, STRIDE, true);
    int32_t rows = match.n_rows, state = match.n_state;
    index_release(index, &match);
    if (list->family == STATES)
        save_part(tier, list, SLAB_STATE, state);
    else
        save_part(tier, list, SLAB_ROWS, rows);
    if (list->family == BOTH && random_below(&w.random, 2) == 0) save_part(tier, list, SLAB_STATE, list->n);
}

static void drop_or_hide(int tier, const struct list *list)
{
    struct index *index = w.indexes[tier];
    struct match match = find(index, &w.identities[list->family], list->tokens, list->n, STRIDE, true);
    struct entry *entry = match.rows != NULL ? match.rows : match.state;
    if (entry != NULL && random_below(&w.random, 2) == 0)
        index_mark_unreadable(index, entry, w.now);
    else if (entry != NULL)
        delete_all(index, index_drop(index, entry));
    index_release(index, &match);
}

static void change(void)
{
    uint32_t dice = random_below(&w.random, 100);
    int tier = (int)random_below(&w.random, TIERS);
    if (dice < 40 && w.n_lists < LISTS)
        save_list(tier, draw_list());
    else if (dice < 60 && w.n_lists > 0) /* again, or in the other tier */
        save_list(tier, &w.lists[random_below(&w.random, (uint32_t)w.n_lists)]);
    else if (dice < 80 && w.n_lists > 0)
        drop_or_hide(tier, &w.lists[random_below(&w.random, (uint32_t)w.n_lists)]);
    else if (dice < 85)
        index_retry_unreadable(w.indexes[tier], w.now += clock_from_ms(5000));
    else if (dice < 86)
        delete_all(w.indexes[tier], evict_all(w.indexes[tier]));
    else if (dice < 87)
        cache_events_resend(w.events);
    else
        for (uint32_t n = random_below(&w.random, 5); n > 0 && read_event(); n--) continue;
}

/* ---- The tests ---- */

static void count_wake(void *ud)
{
    (void)ud;
    w.woken++;
}

static void begin(uint32_t seed)
{
    hearth_error error;
    memset(&w, 0, sizeof w);
    w.random = seed;
    w.now = 1;
    struct store_params params = {.stride = STRIDE,
                                  .save_tier = STORE_RAM,
                                  .backlog = 1 << 20,
                                  .save_timeout_ns = clock_from_ms(60000),
                                  .fetch_timeout_ns = clock_from_ms(60000),
                                  .files = files_machine()};
    params.tiers[STORE_RAM] = (struct store_tier_params){.quota = 4000};
    params.tiers[STORE_DISK] = (struct store_tier_params){.quota = 4000, .backend = ram_backend_open()};
    w.store = store_open(&params, &error);
    assert_non_null(w.store);
    assert_true(store_wait_ready(w.store, CLOCK_NEVER));
    static const enum store_tier tiers[TIERS] = {STORE_RAM, STORE_DISK};
    for (int i = 0; i < TIERS; i++) {
        w.indexes[i] = store_tier_index(w.store, tiers[i]);
        w.media[i] = store_tier_media[tiers[i]];
    }
    for (int i = 0; i < FAMILIES; i++) w.identities[i] = some_identity(i + 1);
    w.events = cache_events_open(w.store, count_wake, NULL);
}

static void end(void)
{
    cache_events_end(w.events);
    cache_events_name(w.events, &w.identities[0], &names[0]); /* a request may come later still */
    assert_true(store_close(w.store, clock_now(clock_monotonic()) + clock_from_ms(60000)));
    cache_events_close(w.events);
}

static void a_router_finds_the_blocks_that_a_lookup_finds(void **state)
{
    (void)state;
    size_t stored = 0, removed = 0, cleared = 0;
    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed * 2654435761u);
        for (int i = 0; i < FAMILIES; i++) cache_events_name(w.events, &w.identities[i], &names[i]);
        for (int i = 0; i < STEPS; i++) {
            change();
            if (i % 20 == 0) compare();
        }
        compare();
        stored += w.n_stored;
        removed += w.n_removed;
        cleared += w.n_cleared;
        end();
    }
    printf("    %zu blocks stored, %zu removed, %zu times cleared\n", stored, removed, cleared);
    assert_true(stored > 5000 && removed > 1000 && cleared > 100);
}

/* Nothing is said of an identity that nobody has named; what it has is told once somebody does. */
static void what_is_stored_under_a_salt_is_told_once_a_request_brings_it(void **state)
{
    (void)state;
    begin(7);
    cache_events_name(w.events, &w.identities[ROWS], &names[ROWS]);
    for (int family = 0; family < FAMILIES; family++) {
        struct list *list = &w.lists[w.n_lists++];
        *list = (struct list){.family = family, .n = 40};
        save_list(0, list);
        if (family == BOTH) save_part(0, list, SLAB_STATE, list->n);
    }
    while (read_event()) continue;
    assert_int_equal(w.n_cleared, 1);
    assert_int_equal(w.n_blocks, 2);
    int before = w.woken;
    cache_events_name(w.events, &w.identities[ROWS], &names[ROWS]);
    assert_int_equal(w.woken, before);
    assert_false(read_event());
    cache_events_name(w.events, &w.identities[BOTH], &names[BOTH]);
    assert_true(w.woken > before);
    while (read_event()) continue;
    assert_int_equal(w.n_cleared, 1); /* the router knows the model */
    assert_int_equal(w.n_blocks, 4);
    before = w.woken;
    cache_events_name(w.events, &w.identities[STATES], &names[STATES]); /* another model: all is told again */
    assert_true(w.woken > before);
    compare();
    assert_int_equal(w.n_cleared, 3);
    assert_int_equal(w.n_blocks, 6);
    end();
}

static void the_follower_is_woken_once_for_what_it_has_not_read(void **state)
{
    (void)state;
    begin(8);
    cache_events_name(w.events, &w.identities[ROWS], &names[ROWS]);
    while (read_event()) continue;
    int before = w.woken;
    for (int i = 0; i < 3; i++) {
        struct list *list = &w.lists[w.n_lists++];
        *list = (struct list){.family = ROWS, .n = 16 * (i + 1)};
        save_list(0, list);
    }
    assert_int_equal(w.woken, before + 1);
    compare();
    delete_all(w.indexes[0], evict_all(w.indexes[0]));
    assert_int_equal(w.woken, before + 2);
    compare();
    assert_int_equal(w.n_blocks, 0);
    end();
}

/* A long entry comes in several events. */
static void an_event_has_a_bounded_number_of_blocks(void **state)
{
    (void)state;
    enum { N = 16 * 1300 };
    static int32_t tokens[N];
    begin(9);
    cache_events_name(w.events, &w.identities[ROWS], &names[ROWS]);
    for (int i = 0; i < N; i++) tokens[i] = i;
    struct reserve what = reserve_of(&w.identities[ROWS], tokens, 0, N, 100);
    save(w.indexes[0], &what, 1);
    while (read_event()) continue;
    assert_int_equal(w.n_blocks, 1300);
    assert_int_equal(w.most_at_once, 512);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_router_finds_the_blocks_that_a_lookup_finds),
        cmocka_unit_test(what_is_stored_under_a_salt_is_told_once_a_request_brings_it),
        cmocka_unit_test(the_follower_is_woken_once_for_what_it_has_not_read),
        cmocka_unit_test(an_event_has_a_bounded_number_of_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
