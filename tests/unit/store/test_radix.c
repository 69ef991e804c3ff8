/* The radix tree against a list of lists: guests with rows and without come and go anywhere. */
#include "index_helpers.h"
#include "store/radix.h"

enum { SEEDS = 40, STEPS = 400, GUESTS = 40, LONGEST = 12 };

struct visitor {
    struct guest guest;
    struct place *place; /* NULL: it is not there */
    int32_t tokens[LONGEST], n;
};

struct world {
    uint32_t random;
    struct radix radix;
    struct place *root;
    struct visitor visitors[GUESTS];
};

static int32_t draw(uint32_t *random, int32_t tokens[LONGEST])
{
    int32_t n = 1 + (int32_t)random_below(random, LONGEST);
    for (int32_t i = 0; i < n; i++) tokens[i] = (int32_t)random_below(random, 2);
    return n;
}

static int32_t in_common(const struct visitor *visitor, const int32_t *tokens, int32_t n)
{
    int32_t i = 0;
    while (i < n && i < visitor->n && visitor->tokens[i] == tokens[i]) i++;
    return i;
}

static int32_t longest(const struct world *w, const int32_t *tokens, int32_t n, bool rows)
{
    int32_t most = 0;
    for (size_t i = 0; i < GUESTS; i++) {
        const struct visitor *visitor = &w->visitors[i];
        int32_t common = in_common(visitor, tokens, n);
        if (visitor->place != NULL && (visitor->guest.rows || !rows) && common > most) most = common;
    }
    return most;
}

/* From the middle of what it shares with another, as often as from the root. */
static struct spot begin_at(struct world *w, const struct visitor *visitor)
{
    const struct visitor *other = &w->visitors[random_below(&w->random, GUESTS)];
    int32_t common = in_common(other, visitor->tokens, visitor->n);
    if (other->place == NULL || common == 0) return (struct spot){w->root, 0};
    return radix_spot(other->place, 1 + (int32_t)random_below(&w->random, (uint32_t)common));
}

static void come_or_go(struct world *w)
{
    struct visitor *visitor = &w->visitors[random_below(&w->random, GUESTS)];
    if (visitor->place != NULL) {
        radix_leave(&w->radix, visitor->place, &visitor->guest);
        visitor->place = NULL;
        return;
    }
    visitor->n = draw(&w->random, visitor->tokens);
    visitor->guest.rows = random_below(&w->random, 2) == 0;
    struct spot from = begin_at(w, visitor);
    visitor->place =
        radix_enter(&w->radix, from, visitor->tokens + from.end, (size_t)(visitor->n - from.end), &visitor->guest);
    assert_int_equal(visitor->place->end, visitor->n);
    assert_true(radix_has(visitor->place, 0, visitor->tokens));
}

/* Whether some list has these n tokens and goes on with the next ones, to its end or for LONGEST / 2 of them. */
static bool goes_on(const struct world *w, const int32_t *tokens, int32_t n, const int32_t *next, size_t n_next)
{
    for (size_t i = 0; i < GUESTS; i++) {
        const struct visitor *visitor = &w->visitors[i];
        if (visitor->place == NULL || in_common(visitor, tokens, n) < n) continue;
        size_t rest = (size_t)(visitor->n - n), most = rest < LONGEST / 2 ? rest : LONGEST / 2;
        if (n_next == most && memcmp(visitor->tokens + n, next, most * sizeof *next) == 0) return true;
    }
    return false;
}

static void look(struct world *w)
{
    int32_t next[LONGEST / 2];
    int32_t tokens[LONGEST], n = draw(&w->random, tokens);
    struct spot spot = radix_walk(&w->radix, (struct spot){w->root, 0}, tokens, (size_t)n);
    assert_int_equal(spot.end, longest(w, tokens, n, false));
    size_t n_next = radix_next(spot, next, LONGEST / 2);
    if (spot.end > 0) assert_true(goes_on(w, tokens, spot.end, next, n_next));
    struct spot rows = radix_with_rows(spot);
    assert_int_equal(rows.end, longest(w, tokens, n, true));
    if (rows.end == 0) return;
    const struct visitor *visitor = container_of(struct visitor, guest, radix_rows_of(rows));
    assert_true(visitor->guest.rows);
    assert_int_equal(in_common(visitor, tokens, rows.end), rows.end);
}

/* A place is where somebody is or where two ways part: less than twice as many as guests. */
static void expect_no_idle_places(const struct world *w)
{
    size_t n = 0;
    for (size_t i = 0; i < GUESTS; i++) n += w->visitors[i].place != NULL;
    assert_true(w->radix.edges.n <= 2 * n);
}

static void a_walk_leads_as_far_as_any_list_does(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        struct world w = {.random = seed * 2654435761u, .root = radix_open()};
        for (int i = 0; i < STEPS; i++) {
            come_or_go(&w);
            look(&w);
            expect_no_idle_places(&w);
        }
        for (size_t i = 0; i < GUESTS; i++)
            if (w.visitors[i].place != NULL) radix_leave(&w.radix, w.visitors[i].place, &w.visitors[i].guest);
        assert_int_equal(w.radix.edges.n, 0);
        assert_int_equal(w.root->n_rows, 0);
        radix_close(w.root);
        hash_release(&w.radix.edges);
    }
}

/* However many branches came and went, an edge is whole again. */
static void an_edge_that_nothing_parts_from_is_one(void **state)
{
    (void)state;
    enum { LENGTH = 1000 };
    int32_t tokens[LENGTH + 1];
    for (int32_t i = 0; i <= LENGTH; i++) tokens[i] = i;
    struct radix radix = {0};
    struct place *root = radix_open();
    struct guest stays = {.rows = true}, comes = {.rows = true};
    struct place *place = radix_enter(&radix, (struct spot){root, 0}, tokens, LENGTH, &stays);
    int32_t other = -1;
    for (int32_t i = 1; i < LENGTH; i++)
        radix_leave(&radix, radix_enter(&radix, radix_spot(place, i), &other, 1, &comes), &comes);
    assert_int_equal(radix.edges.n, 1);
    assert_int_equal(place->tokens.len, LENGTH);
    assert_true(radix_has(place, 0, tokens));
    radix_leave(&radix, place, &stays);
    radix_close(root);
    hash_release(&radix.edges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_walk_leads_as_far_as_any_list_does),
        cmocka_unit_test(an_edge_that_nothing_parts_from_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
