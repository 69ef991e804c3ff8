/* The radix tree against a list of lists: entries with rows and without are inserted and removed at random. */
#include "index_helpers.h"
#include "store/index/radix.h"

enum { SEEDS = 40, STEPS = 400, ENTRIES = 40, LONGEST = 12 };

struct list {
    struct radix_entry entry;
    struct radix_node *node; /* NULL: it is not in the tree */
    int32_t tokens[LONGEST], n;
};

struct world {
    uint32_t random;
    struct radix radix;
    struct radix_node *root;
    struct list lists[ENTRIES];
};

static int32_t draw(uint32_t *random, int32_t tokens[LONGEST])
{
    int32_t n = 1 + (int32_t)random_below(random, LONGEST);
    for (int32_t i = 0; i < n; i++) tokens[i] = (int32_t)random_below(random, 2);
    return n;
}

static int32_t in_common(const struct list *list, const int32_t *tokens, int32_t n)
{
    int32_t i = 0;
    while (i < n && i < list->n && list->tokens[i] == tokens[i]) i++;
    return i;
}

static int32_t longest(const struct world *w, const int32_t *tokens, int32_t n, bool rows)
{
    int32_t most = 0;
    for (size_t i = 0; i < ENTRIES; i++) {
        const struct list *list = &w->lists[i];
        int32_t common = in_common(list, tokens, n);
        if (list->node != NULL && (list->entry.rows || !rows) && common > most) most = common;
    }
    return most;
}

/* A start position: within the prefix that it shares with another list, or the root. */
static struct radix_position begin_at(struct world *w, const struct list *list)
{
    const struct list *other = &w->lists[random_below(&w->random, ENTRIES)];
    int32_t common = in_common(other, list->tokens, list->n);
    if (other->node == NULL || common == 0) return (struct radix_position){w->root, 0};
    return radix_position_at(other->node, 1 + (int32_t)random_below(&w->random, (uint32_t)common));
}

static void insert_or_remove(struct world *w)
{
    struct list *list = &w->lists[random_below(&w->random, ENTRIES)];
    if (list->node != NULL) {
        radix_remove(&w->radix, list->node, &list->entry);
        list->node = NULL;
        return;
    }
    list->n = draw(&w->random, list->tokens);
    list->entry.rows = random_below(&w->random, 2) == 0;
    struct radix_position from = begin_at(w, list);
    list->node = radix_insert(&w->radix, from, list->tokens + from.end, (size_t)(list->n - from.end), &list->entry);
    assert_int_equal(list->node->end, list->n);
    assert_true(radix_matches(list->node, 0, list->tokens));
}

/* Whether some list has these n tokens and continues with the next ones, to its end or for LONGEST / 2 of them. */
static bool has_next(const struct world *w, const int32_t *tokens, int32_t n, const int32_t *next, size_t n_next)
{
    for (size_t i = 0; i < ENTRIES; i++) {
        const struct list *list = &w->lists[i];
        if (list->node == NULL || in_common(list, tokens, n) < n) continue;
        size_t rest = (size_t)(list->n - n), most = rest < LONGEST / 2 ? rest : LONGEST / 2;
        if (n_next == most && memcmp(list->tokens + n, next, most * sizeof *next) == 0) return true;
    }
    return false;
}

/* Every list that goes on from there does so by one of the ways, and each way is that of some list. */
static void expect_ways_on(const struct world *w, struct radix_position position, const int32_t *tokens)
{
    struct tokens ways[2] = {{0}};
    size_t n_ways = radix_ways_on(position, ways, 2, LONGEST / 2), n = (size_t)position.end;
    bool by_way[2] = {false};
    for (size_t i = 0; i < ENTRIES; i++) {
        const struct list *list = &w->lists[i];
        if (list->node == NULL || in_common(list, tokens, position.end) < position.end || list->n == position.end)
            continue;
        size_t at = 0;
        while (at < n_ways && ways[at].v[0] != list->tokens[n]) at++;
        assert_true(at < n_ways);
        bool whole = (size_t)list->n >= n + ways[at].len;
        assert_true(whole);
        assert_memory_equal(list->tokens + n, ways[at].v, ways[at].len * sizeof *tokens);
        by_way[at] = true;
    }
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(by_way[i], i < n_ways);
        assert_true(ways[i].len <= LONGEST / 2);
        tokens_release(&ways[i]);
    }
    assert_int_equal(radix_ways_on(position, NULL, 0, LONGEST), 0);
}

static void look(struct world *w)
{
    int32_t next[LONGEST / 2];
    int32_t tokens[LONGEST], n = draw(&w->random, tokens);
    struct radix_position position = radix_walk(&w->radix, (struct radix_position){w->root, 0}, tokens, (size_t)n);
    assert_int_equal(position.end, longest(w, tokens, n, false));
    size_t n_next = radix_next_tokens(position, next, LONGEST / 2);
    if (position.end > 0) assert_true(has_next(w, tokens, position.end, next, n_next));
    expect_ways_on(w, position, tokens);
    struct radix_position rows = radix_deepest_with_rows(position);
    assert_int_equal(rows.end, longest(w, tokens, n, true));
    if (rows.end == 0) return;
    const struct list *list = container_of(struct list, entry, radix_entry_with_rows(rows));
    assert_true(list->entry.rows);
    assert_int_equal(in_common(list, tokens, rows.end), rows.end);
}

/* Each node has an entry or branches: there are less than twice as many nodes as entries. */
static void expect_no_idle_nodes(const struct world *w)
{
    size_t n = 0;
    for (size_t i = 0; i < ENTRIES; i++) n += w->lists[i].node != NULL;
    assert_true(w->radix.edges.n <= 2 * n);
}

static void a_walk_matches_as_many_tokens_as_any_list(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        struct world w = {.random = seed * 2654435761u, .root = radix_open()};
        for (int i = 0; i < STEPS; i++) {
            insert_or_remove(&w);
            look(&w);
            expect_no_idle_nodes(&w);
        }
        for (size_t i = 0; i < ENTRIES; i++)
            if (w.lists[i].node != NULL) radix_remove(&w.radix, w.lists[i].node, &w.lists[i].entry);
        assert_int_equal(w.radix.edges.n, 0);
        assert_int_equal(w.root->n_rows, 0);
        radix_close(w.root);
        hash_release(&w.radix.edges);
    }
}

/* After branches were inserted and removed, the edge is one again. */
static void an_edge_without_branches_is_one_node(void **state)
{
    (void)state;
    enum { LENGTH = 1000 };
    int32_t tokens[LENGTH + 1];
    for (int32_t i = 0; i <= LENGTH; i++) tokens[i] = i;
    struct radix radix = {0};
    struct radix_node *root = radix_open();
    struct radix_entry stays = {.rows = true}, comes = {.rows = true};
    struct radix_node *node = radix_insert(&radix, (struct radix_position){root, 0}, tokens, LENGTH, &stays);
    int32_t other = -1;
    for (int32_t i = 1; i < LENGTH; i++)
        radix_remove(&radix, radix_insert(&radix, radix_position_at(node, i), &other, 1, &comes), &comes);
    assert_int_equal(radix.edges.n, 1);
    assert_int_equal(node->tokens.len, LENGTH);
    assert_true(radix_matches(node, 0, tokens));
    radix_remove(&radix, node, &stays);
    radix_close(root);
    hash_release(&radix.edges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_walk_matches_as_many_tokens_as_any_list),
        cmocka_unit_test(an_edge_without_branches_is_one_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
