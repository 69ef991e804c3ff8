/* The policy of each kind of memory and layout: one row each. A row says which flags hold, as letters. */
#include "engine/cache_policy.h"

#include "engine/plan.h"
#include "fakes/cmocka_all.h"

#include <string.h>

#define WINDOW 6400

struct row {
    const char *name;
    bool unified, cuts_anywhere, has_window, deterministic;
    enum engine_caching caching;
    const char *flags; /* l: loads states, c: checkpoints, p: shares parts, f: shares for free, q: queues for a slot */
    int32_t sharing_cost;
};

#define NOTHING       ENGINE_CACHES_NOTHING
#define SYSTEM        ENGINE_CACHES_SYSTEM
#define CONVERSATIONS ENGINE_CACHES_CONVERSATIONS

static const struct row rows[] = {
    /*                     pool   cuts   window exact */
    {"dense", true, true, false, false, CONVERSATIONS, "lpf", 0},
    {"dense, SPC", true, true, false, false, SYSTEM, "lpf", 0},
    {"dense, nothing", true, true, false, false, NOTHING, "lpf", 0},
    {"dense, exact", true, true, false, true, CONVERSATIONS, "pf", 0},
    {"dense streams", false, true, false, false, CONVERSATIONS, "lpq", WINDOW / 64},
    {"dense streams, SPC", false, true, false, false, SYSTEM, "lp", WINDOW / 64},
    {"dense streams, exact", false, true, false, true, CONVERSATIONS, "lpq", WINDOW / 64},
    {"hybrid", true, false, false, false, CONVERSATIONS, "lcp", 0},
    {"hybrid, SPC", true, false, false, false, SYSTEM, "lp", 0},
    {"hybrid, nothing", true, false, false, false, NOTHING, "lp", 0},
    {"hybrid, exact", true, false, false, true, CONVERSATIONS, "p", 0},
    {"hybrid streams", false, false, false, false, CONVERSATIONS, "lcq", WINDOW / 64},
    {"hybrid streams, exact", false, false, false, true, CONVERSATIONS, "lcq", WINDOW / 64},
    {"window", true, false, true, false, CONVERSATIONS, "lcp", 0},
    {"window streams", false, false, true, false, CONVERSATIONS, "lcq", WINDOW / 64},
    {"window streams, exact", false, false, true, true, CONVERSATIONS, "q", WINDOW / 64},
    {"full window streams, exact", false, true, true, true, CONVERSATIONS, "pq", WINDOW / 64},
};

static struct cache_policy policy_of(const struct row *row)
{
    return cache_policy_of(&(struct cache_policy_facts){.caching = row->caching,
                                                        .idle = ENGINE_IDLE_PRICED,
                                                        .min_tokens = 100,
                                                        .window = WINDOW,
                                                        .deterministic = row->deterministic,
                                                        .unified = row->unified,
                                                        .cuts_anywhere = row->cuts_anywhere,
                                                        .has_window = row->has_window});
}

static void each_kind_of_memory_has_its_policy(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cache_policy p = policy_of(&rows[i]);
        char flags[8] = "";
        if (p.loads_states) strcat(flags, "l");
        if (p.checkpoints) strcat(flags, "c");
        if (p.shares_parts) strcat(flags, "p");
        if (p.shares_for_free) strcat(flags, "f");
        if (p.queues_for_slot) strcat(flags, "q");
        if (strcmp(flags, rows[i].flags) != 0 || p.sharing_cost != rows[i].sharing_cost)
            fail_msg("%s: %s, sharing costs %d; expected %s and %d", rows[i].name, flags, p.sharing_cost, rows[i].flags,
                     rows[i].sharing_cost);
        assert_int_equal(p.keeps_conversations, rows[i].caching == CONVERSATIONS);
        assert_int_equal(p.keeps_system_prompts, rows[i].caching == SYSTEM);
        assert_int_equal(cache_policy_keeps(&p), rows[i].caching != NOTHING);
        bool costs = rows[i].unified && rows[i].caching == CONVERSATIONS && rows[i].cuts_anywhere;
        assert_int_equal(p.idle, costs ? ENGINE_IDLE_PRICED : ENGINE_IDLE_STAYS);
    }
}

/* Without a price, conversations may still be made to leave. */
static void where_cells_cannot_be_cut_idle_conversations_have_no_price(void **state)
{
    (void)state;
    struct cache_policy_facts facts = {.caching = CONVERSATIONS, .idle = ENGINE_IDLE_PRICED, .unified = true};
    assert_int_equal(cache_policy_of(&facts).idle, ENGINE_IDLE_STAYS);
    facts.idle = ENGINE_IDLE_LEAVES;
    assert_int_equal(cache_policy_of(&facts).idle, ENGINE_IDLE_LEAVES);
}

static void deterministic_reuse_ends_with_a_whole_chunk(void **state)
{
    (void)state;
    struct row row = {.unified = false, .cuts_anywhere = true, .deterministic = true, .caching = CONVERSATIONS};
    struct cache_policy p = policy_of(&row);
    const struct media_spans none = {0};
    assert_int_equal(cache_policy_whole(&p, &none, PREFILL_CHUNK - 1), 0);
    assert_int_equal(cache_policy_whole(&p, &none, 3 * PREFILL_CHUNK + 5), 3 * PREFILL_CHUNK);
    assert_int_equal(cache_policy_exact(&p, 100, 3 * PREFILL_CHUNK), 100);
    assert_int_equal(cache_policy_exact(&p, 300, 3 * PREFILL_CHUNK), 3 * PREFILL_CHUNK);
    row.deterministic = false;
    p = policy_of(&row);
    assert_int_equal(cache_policy_whole(&p, &none, 101), 101);
    assert_int_equal(cache_policy_exact(&p, 300, 0), 300);
}

static void reuse_ends_before_a_medium_or_behind_it(void **state)
{
    (void)state;
    struct media_span image = {.at = 100, .n = 60, .n_pos = 8};
    const struct media_spans media = {.v = &image, .len = 1};
    static const struct {
        int32_t n, whole, in_chunks;
    } ends[] = {{63, 63, 0},     {64, 64, 64},    {99, 99, 64},    {100, 100, 100}, {101, 100, 100},
                {159, 100, 100}, {160, 160, 160}, {191, 191, 160}, {192, 192, 192}, {300, 300, 256}};
    struct row row = {.unified = false, .cuts_anywhere = true, .caching = CONVERSATIONS};
    struct cache_policy anywhere = policy_of(&row);
    row.deterministic = true;
    struct cache_policy in_chunks = policy_of(&row);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        assert_int_equal(cache_policy_whole(&anywhere, &media, ends[i].n), ends[i].whole);
        assert_int_equal(cache_policy_whole(&in_chunks, &media, ends[i].n), ends[i].in_chunks);
    }
}

/* The tokens of very few rows have too few bits to tell them from others: what contains them is not reused. */
static void reuse_ends_before_a_medium_that_is_not_told_from_others(void **state)
{
    (void)state;
    struct row row = {.unified = true, .cuts_anywhere = true, .caching = CONVERSATIONS};
    struct cache_policy p = policy_of(&row);
    for (int32_t rows_of_it = 1; rows_of_it <= 2 * MEDIA_TOLD_ROWS; rows_of_it++) {
        struct media_span spans[] = {{.at = 100, .n = 60, .n_pos = 60},
                                     {.at = 200, .n = rows_of_it, .n_pos = rows_of_it},
                                     {.at = 300, .n = 60, .n_pos = 60}};
        const struct media_spans media = {.v = spans, .len = 3};
        int32_t most = rows_of_it < MEDIA_TOLD_ROWS ? 200 : 400;
        assert_int_equal(cache_policy_whole(&p, &media, 199), 199);
        assert_int_equal(cache_policy_whole(&p, &media, 400), most);
        assert_int_equal(cache_policy_whole(&p, &media, 310), most == 400 ? 300 : 200);
    }
}

static void too_few_tokens_are_not_worth_reusing(void **state)
{
    (void)state;
    struct cache_policy p = policy_of(&rows[0]);
    assert_int_equal(cache_policy_worth(&p, 99), 0);
    assert_int_equal(cache_policy_worth(&p, 100), 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_memory_has_its_policy),
        cmocka_unit_test(where_cells_cannot_be_cut_idle_conversations_have_no_price),
        cmocka_unit_test(deterministic_reuse_ends_with_a_whole_chunk),
        cmocka_unit_test(reuse_ends_before_a_medium_or_behind_it),
        cmocka_unit_test(reuse_ends_before_a_medium_that_is_not_told_from_others),
        cmocka_unit_test(too_few_tokens_are_not_worth_reusing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
