/* Stored conversations: which they are, in which order, what one has for itself, what dropping one leaves, and what is
 * kept by order. */
#include "index_texts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

/* ---- Helpers ---- */

static size_t list_after(struct index *index, const struct tip_place *after, struct tip *tips, size_t max)
{
    size_t total;
    return index_tips(index, &(struct tip_query){.after = after}, tips, max, &total);
}

/* The tip of a text, which there must be. */
static struct tip tip_of(struct index *index, const char *text)
{
    struct tip tips[16];
    struct slab_key key = key_of_text(text);
    size_t n = list_after(index, NULL, tips, 16);
    for (size_t i = 0; i < n; i++)
        if (slab_key_equal(&tips[i].place.key, &key)) return tips[i];
    fail_msg("'%s' is no tip", text);
    return tips[0];
}

static void expect_tips(struct index *index, const char *const *texts, size_t n)
{
    struct tip tips[16];
    size_t total;
    assert_int_equal(index_tips(index, &(struct tip_query){0}, tips, 16, &total), n);
    assert_int_equal(total, n);
    for (size_t i = 0; i < n; i++) {
        struct slab_key key = key_of_text(texts[i]);
        if (!slab_key_equal(&tips[i].place.key, &key)) fail_msg("the %zu. is not '%s'", i + 1, texts[i]);
    }
}

#define EXPECT_TIPS(index, ...)                                                                                        \
    do {                                                                                                               \
        const char *const texts[] = {__VA_ARGS__};                                                                     \
        expect_tips(index, texts, sizeof texts / sizeof *texts);                                                       \
    } while (0)

static enum tip_order keep(struct index *index, const char *text)
{
    struct slab_key key = key_of_text(text);
    return index_keep_tip(index, &key);
}

static enum tip_order release(struct index *index, const char *text)
{
    struct slab_key key = key_of_text(text);
    return index_release_tip(index, &key);
}

/* `n`: how many slabs it removed. */
static enum tip_order drop(struct index *index, const char *text, size_t *n)
{
    struct victim *victims;
    struct slab_key key = key_of_text(text);
    enum tip_order result = index_drop_tip(index, &key, &victims);
    *n = delete_all(index, victims);
    return result;
}

/* Two conversations with a system prompt in common: "system" of 10 bytes, 100 and 1000 of their own. */
static struct index *open_two(void)
{
    struct index *index = open_index(10000);
    put(index, 0, "system", 10);
    put(index, 6, "systemone", 100);
    put(index, 6, "systemtwo", 1000);
    return index;
}

/* ---- Listing ---- */

static void a_conversation_is_what_no_other_goes_on_from(void **state)
{
    (void)state;
    struct index *index = open_two();
    put_kind(index, SLAB_STATE, 9, "systemtwo", 5);
    put_kind(index, SLAB_STATE, 6, "system", 7);
    EXPECT_TIPS(index, "systemtwo", "systemone");
    put(index, 9, "systemone, on", 20);
    EXPECT_TIPS(index, "systemone, on", "systemtwo");
    put(index, 11, "systemone, up", 20); /* goes on from the middle of the other's last slab */
    EXPECT_TIPS(index, "systemone, up", "systemtwo");
    close_quiet(index);
}

static void each_has_what_no_other_has(void **state)
{
    (void)state;
    struct index *index = open_two();
    put_kind(index, SLAB_STATE, 9, "systemtwo", 5);
    struct tip one = tip_of(index, "systemone"), two = tip_of(index, "systemtwo");
    assert_int_equal(one.end, 9);
    assert_int_equal(one.own_tokens, 3);
    assert_int_equal(one.own_bytes, 100);
    assert_int_equal(two.own_bytes, 1005);
    assert_memory_equal(one.model, mine.model, sizeof one.model);
    size_t n;
    assert_int_equal(drop(index, "systemone", &n), TIP_ORDERED);
    assert_int_equal(tip_of(index, "systemtwo").own_bytes, 1015);
    assert_int_equal(tip_of(index, "systemtwo").own_tokens, 9);
    close_quiet(index);
}

static void pages_follow_each_other_newest_first(void **state)
{
    (void)state;
    enum { N = 1000, PAGE = 7 };
    struct index *index = open_index(1000000);
    struct tip tips[PAGE];
    for (int i = 0; i < N; i++) {
        char text[16];
        snprintf(text, sizeof text, "%04d", i);
        put(index, 0, text, 10);
    }
    size_t n, all = 0, total;
    struct tip_place last, *after = NULL;
    while (n = index_tips(index, &(struct tip_query){.after = after}, tips, PAGE, &total), n > 0) {
        assert_int_equal(total, N);
        for (size_t i = 0; i < n; i++, all++) {
            char text[16];
            snprintf(text, sizeof text, "%04zu", N - 1 - all);
            struct slab_key key = key_of_text(text);
            assert_true(slab_key_equal(&key, &tips[i].place.key));
        }
        last = tips[n - 1].place;
        after = &last;
    }
    assert_int_equal(all, N);
    struct tip_query again = {.after = after, .inclusive = true};
    assert_int_equal(index_tips(index, &again, tips, PAGE, &total), 1);
    close_quiet(index);
}

static void what_was_used_comes_first(void **state)
{
    (void)state;
    struct index *index = open_two();
    touch(index, "systemone", 5000);
    EXPECT_TIPS(index, "systemone", "systemtwo");
    assert_int_equal(tip_of(index, "systemone").used_ms, 5000);
    close_quiet(index);
}

static void marks_are_found_on_the_way(void **state)
{
    (void)state;
    struct index *index = open_two();
    struct stored_mark marks[] = {{key_of_text("system"), 4}, {key_of_text("systemtwo"), 8}};
    struct tip_query query = {.marks = marks, .n_marks = 2};
    struct tip tips[4];
    size_t total;
    assert_int_equal(index_tips(index, &query, tips, 4, &total), 2);
    assert_int_equal(tips[0].marked, 8);
    assert_int_equal(tips[1].marked, 4);
    close_quiet(index);
}

struct mover {
    struct index *index;
    _Atomic bool enough;
};

/* The newest one goes on, and is the tip again, over and over. */
static void *move(void *ud)
{
    struct mover *mover = ud;
    struct slab_key key = key_of_text("last, on");
    while (!atomic_load(&mover->enough)) {
        put(mover->index, 4, "last, on", 10);
        delete_all(mover->index, index_drop_named(mover->index, &key, SLAB_ROWS));
    }
    return NULL;
}

static void a_page_is_whole_though_one_of_it_goes_on_meanwhile(void **state)
{
    (void)state;
    enum { N = 20000, PAGE = 4, PAGES = 3000 };
    struct index *index = open_index(1000000);
    struct tip tips[PAGE];
    pthread_t thread;
    for (int i = 0; i < N; i++) {
        char text[16];
        snprintf(text, sizeof text, "%05d", i);
        put(index, 0, text, 10);
    }
    put(index, 0, "last", 10);
    struct mover mover = {.index = index};
    assert_int_equal(pthread_create(&thread, NULL, move, &mover), 0);
    size_t n = PAGE;
    for (int i = 0; i < PAGES && n == PAGE; i++) n = list_after(index, NULL, tips, PAGE);
    atomic_store(&mover.enough, true);
    pthread_join(thread, NULL);
    assert_int_equal(n, PAGE);
    close_quiet(index);
}

/* ---- Dropping ---- */

static void what_another_has_too_stays(void **state)
{
    (void)state;
    struct index *index = open_two();
    put_kind(index, SLAB_STATE, 9, "systemone", 5);
    put(index, 9, "systemone, on", 20);
    size_t n;
    assert_int_equal(drop(index, "systemone", &n), TIP_GONE);
    assert_int_equal(drop(index, "systemone, on", &n), TIP_ORDERED);
    assert_int_equal(n, 3);
    expect_rows(index, "systemone, on", 6);
    expect_rows(index, "systemtwo", 9);
    assert_int_equal(index_usage(index).bytes, 1010);
    assert_int_equal(drop(index, "systemtwo", &n), TIP_ORDERED);
    assert_int_equal(n, 2);
    assert_int_equal(index_usage(index).bytes, 0);
    assert_int_equal(drop(index, "systemtwo", &n), TIP_GONE);
    close_quiet(index);
}

static void victims_come_children_first(void **state)
{
    (void)state;
    struct index *index = open_two();
    put_kind(index, SLAB_STATE, 9, "systemtwo", 5);
    put_kind(index, SLAB_STATE, 6, "system", 5);
    size_t n;
    assert_int_equal(drop(index, "systemone", &n), TIP_ORDERED);
    struct victim *victims;
    struct slab_key key = key_of_text("systemtwo"), first = key_of_text("system");
    assert_int_equal(index_drop_tip(index, &key, &victims), TIP_ORDERED);
    assert_true(victims->kind == SLAB_STATE && slab_key_equal(&victims->key, &key));
    assert_true(victims->next->kind == SLAB_ROWS && slab_key_equal(&victims->next->key, &key));
    assert_true(victims->next->next->kind == SLAB_STATE && slab_key_equal(&victims->next->next->key, &first));
    assert_int_equal(delete_all(index, victims), 4);
    close_quiet(index);
}

static void what_is_read_is_not_dropped(void **state)
{
    (void)state;
    static const char *const read[] = {"systemtwo", "systemt"}; /* the second ends in the middle of its last slab */
    for (size_t i = 0; i < 2; i++) {
        struct index *index = open_two();
        struct entry *entry = pin(index, read[i]);
        size_t n;
        assert_int_equal(keep(index, "systemtwo"), TIP_ORDERED);
        assert_int_equal(drop(index, "systemtwo", &n), TIP_IN_USE);
        assert_int_equal(n, 0);
        assert_true(tip_of(index, "systemtwo").kept);
        assert_int_equal(drop(index, "systemone", &n), TIP_ORDERED);
        index_unpin(index, entry);
        assert_int_equal(drop(index, "systemtwo", &n), TIP_ORDERED);
        assert_int_equal(n, 2);
        close_quiet(index);
    }
}

/* ---- Keeping ---- */

/* Saves others of 100 bytes each, as much as the budget twice over. */
static void press(struct index *index, uint64_t budget)
{
    char text[16];
    for (uint64_t i = 0; i < 2 * budget / 100; i++) {
        snprintf(text, sizeof text, "x%04d", (int)i);
        assert_int_equal(put(index, 0, text, 100), RESERVED);
    }
}

static void what_is_kept_survives_the_pressure_and_what_is_released_does_not(void **state)
{
    (void)state;
    struct index *index = open_index(1000);
    put(index, 0, "keep", 50);
    put(index, 4, "keepthis", 100);
    put_kind(index, SLAB_STATE, 8, "keepthis", 20);
    put(index, 4, "keepnot", 100);
    assert_int_equal(keep(index, "keepthis"), TIP_ORDERED);
    press(index, 1000);
    expect_state(index, "keepthis", 8, 8);
    expect_rows(index, "keepnot", 4);
    assert_true(tip_of(index, "keepthis").kept);
    assert_int_equal(release(index, "keepthis"), TIP_ORDERED);
    press(index, 1000);
    expect_rows(index, "keepthis", 0);
    assert_int_equal(release(index, "keepthis"), TIP_GONE);
    close_quiet(index);
}

static void what_is_kept_has_a_quarter_of_the_budget_at_most(void **state)
{
    (void)state;
    struct index *index = open_index(1000);
    put(index, 0, "one", 200);
    put(index, 0, "two", 60);
    put(index, 3, "two", 60);
    assert_int_equal(keep(index, "one"), TIP_ORDERED);
    assert_int_equal(keep(index, "one"), TIP_ORDERED);
    assert_int_equal(keep(index, "two"), TIP_NO_ROOM);
    assert_false(tip_of(index, "two").kept);
    press(index, 1000);
    expect_rows(index, "one", 3);
    assert_int_equal(release(index, "one"), TIP_ORDERED);
    put(index, 0, "two", 60);
    assert_int_equal(keep(index, "two"), TIP_ORDERED);
    close_quiet(index);
}

/* It is fresh, and its identity would have more than its share with it: then the other one's, which is above the share
 * of what is left, would be protected, and the new one be refused or evict its own identity's. */
static void what_is_kept_counts_for_no_identity(void **state)
{
    (void)state;
    static const char *const others[] = {"a", "b", "c", "d", "e"};
    struct index *index = open_index(1000);
    struct identity own = mine;
    put(index, 0, "kept", 250);
    assert_int_equal(keep(index, "kept"), TIP_ORDERED);
    put(index, 0, "used", 250);
    touch(index, "used", 2000);
    mine = some_identity(1);
    for (size_t i = 0; i < 5; i++) {
        put(index, 0, others[i], 100);
        touch(index, others[i], 3000);
    }
    mine = own;
    assert_int_equal(put(index, 0, "new", 150), RESERVED);
    expect_rows(index, "new", 3);
    expect_rows(index, "used", 4);
    expect_rows(index, "kept", 4);
    close_quiet(index);
}

static void what_goes_on_from_a_kept_one_is_kept(void **state)
{
    (void)state;
    struct index *index = open_index(1000);
    put(index, 0, "kept", 50);
    put_kind(index, SLAB_STATE, 4, "kept", 10);
    assert_int_equal(keep(index, "kept"), TIP_ORDERED);
    put(index, 4, "kept, and on", 50);
    assert_true(tip_of(index, "kept, and on").kept);
    put_kind(index, SLAB_STATE, 12, "kept, and on", 10);
    put(index, 12, "kept, and on, too far", 200);
    assert_true(tip_of(index, "kept, and on, too far").kept);
    press(index, 1000);
    expect_state(index, "kept, and on, too far", 12, 12);
    assert_int_equal(release(index, "kept, and on"), TIP_ORDERED);
    press(index, 1000);
    expect_rows(index, "kept, and on", 0);
    close_quiet(index);
}

static void an_order_ends_with_its_slab(void **state)
{
    (void)state;
    static const enum slab_kind kinds[] = {SLAB_ROWS, SLAB_STATE};
    for (size_t i = 0; i < 2; i++) {
        struct index *index = open_index(1000);
        put(index, 0, "kept", 200);
        put_kind(index, SLAB_STATE, 4, "kept", 10);
        assert_int_equal(keep(index, "kept"), TIP_ORDERED);
        struct slab_key key = key_of_text("kept");
        assert_int_equal(delete_all(index, index_drop_named(index, &key, kinds[i])), 1);
        put(index, 0, "other", 200);
        if (kinds[i] == SLAB_ROWS) assert_int_equal(keep(index, "other"), TIP_ORDERED);
        if (kinds[i] == SLAB_STATE) assert_int_equal(release(index, "kept"), TIP_ORDERED);
        press(index, 1000);
        expect_rows(index, "kept", 0);
        close_quiet(index);
    }
}

static void a_kept_one_is_dropped_by_order(void **state)
{
    (void)state;
    struct index *index = open_two();
    size_t n;
    assert_int_equal(keep(index, "systemone"), TIP_ORDERED);
    assert_int_equal(drop(index, "systemone", &n), TIP_ORDERED);
    assert_int_equal(n, 1);
    EXPECT_TIPS(index, "systemtwo");
    close_quiet(index);
}

/* The order stays where what goes on from it has no room: two go on from there. */
static void an_order_that_another_lives_on_outlasts_a_drop(void **state)
{
    (void)state;
    struct index *index = open_index(1000);
    size_t n;
    put(index, 0, "kept", 200);
    put_kind(index, SLAB_STATE, 4, "kept", 10);
    assert_int_equal(keep(index, "kept"), TIP_ORDERED);
    put(index, 4, "kept one", 100);
    put(index, 4, "kept two", 100);
    assert_true(tip_of(index, "kept one").kept && tip_of(index, "kept two").kept);
    assert_int_equal(drop(index, "kept one", &n), TIP_ORDERED);
    assert_int_equal(n, 1);
    assert_true(tip_of(index, "kept two").kept);

    struct entry *entry = pin(index, "kept two");
    assert_int_equal(drop(index, "kept two", &n), TIP_IN_USE);
    assert_true(tip_of(index, "kept two").kept);
    index_unpin(index, entry);
    press(index, 1000);
    expect_state(index, "kept two", 4, 4);

    put(index, 4, "kept two", 100);
    assert_int_equal(drop(index, "kept two", &n), TIP_ORDERED);
    assert_int_equal(n, 3);
    assert_int_equal(index->kept_bytes, 0);
    close_quiet(index);
}

static void an_index_is_closed_with_what_is_kept(void **state)
{
    (void)state;
    struct index *index = open_two();
    put_kind(index, SLAB_STATE, 9, "systemone", 5);
    assert_int_equal(keep(index, "systemone"), TIP_ORDERED);
    assert_int_equal(keep(index, "systemtwo"), TIP_ORDERED);
    close_quiet(index);
}

/* ---- Random cases ---- */

/* Random saves, orders and evictions: the bytes that remain are those of the entries, and nothing kept is evicted. */
static void random_orders_leave_the_counts_right(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        uint32_t random = seed;
        struct index *index = open_index(2000);
        for (int step = 0; step < 400; step++) {
            char text[16] = "";
            int32_t n = 1 + (int32_t)random_below(&random, 6);
            for (int32_t i = 0; i < n; i++) text[i] = (char)('a' + random_below(&random, 2));
            size_t removed;
            switch (random_below(&random, 6)) {
            case 0:
                keep(index, text);
                break;
            case 1:
                release(index, text);
                break;
            case 2:
                drop(index, text, &removed);
                break;
            case 3:
                put_kind(index, SLAB_STATE, n, text, 30);
                break;
            default:
                put(index, n - 1, text, 50 + random_below(&random, 100));
                break;
            }
            assert_true(index->kept_bytes <= index->budget / 4);
        }
        struct tip tips[64];
        size_t total, n = index_tips(index, &(struct tip_query){0}, tips, 64, &total), removed;
        assert_int_equal(n, total);
        for (size_t i = 0; i < n; i++) {
            struct slab_key key = tips[i].place.key;
            struct victim *victims;
            if (seed % 2 == 0) index_release_tip(index, &key);
            assert_int_equal(index_drop_tip(index, &key, &victims), TIP_ORDERED);
            uint64_t before = index_usage(index).bytes;
            removed = delete_all(index, victims);
            assert_true(removed > 0);
            if (i == 0) assert_int_equal(before - index_usage(index).bytes, tips[i].own_bytes);
        }
        assert_int_equal(index_usage(index).bytes, 0);
        assert_int_equal(index->kept_bytes, 0);
        close_quiet(index);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_is_what_no_other_goes_on_from),
        cmocka_unit_test(each_has_what_no_other_has),
        cmocka_unit_test(pages_follow_each_other_newest_first),
        cmocka_unit_test(a_page_is_whole_though_one_of_it_goes_on_meanwhile),
        cmocka_unit_test(what_was_used_comes_first),
        cmocka_unit_test(marks_are_found_on_the_way),
        cmocka_unit_test(what_another_has_too_stays),
        cmocka_unit_test(victims_come_children_first),
        cmocka_unit_test(what_is_read_is_not_dropped),
        cmocka_unit_test(what_is_kept_survives_the_pressure_and_what_is_released_does_not),
        cmocka_unit_test(what_is_kept_has_a_quarter_of_the_budget_at_most),
        cmocka_unit_test(what_is_kept_counts_for_no_identity),
        cmocka_unit_test(what_goes_on_from_a_kept_one_is_kept),
        cmocka_unit_test(an_order_ends_with_its_slab),
        cmocka_unit_test(a_kept_one_is_dropped_by_order),
        cmocka_unit_test(an_order_that_another_lives_on_outlasts_a_drop),
        cmocka_unit_test(an_index_is_closed_with_what_is_kept),
        cmocka_unit_test(random_orders_leave_the_counts_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
