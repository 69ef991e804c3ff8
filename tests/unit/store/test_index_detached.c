/* Entries that are known and not found: unreadable for a while, detached, victims that could not be deleted; and what
 * happens when their key is written again. */
#include "base/clock.h"
#include "index_texts.h"

#include <stdio.h>

static int64_t at_ms(int64_t ms)
{
    return clock_from_ms(ms);
}

/* ---- Unreadable ---- */

static void mark_unreadable(struct index *index, const char *text, int64_t now)
{
    struct entry *entry = pin(index, text);
    index_mark_unreadable(index, entry, now);
    index_mark_unreadable(index, entry, now + at_ms(500)); /* another reader of the same entry fails as well */
    index_unpin(index, entry);
}

static void what_could_not_be_read_returns_with_its_descendants(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 10);
    put(index, 3, "abcdef", 10);
    put(index, 6, "abcdefghi", 10);
    struct entry *entry = pin(index, "abcdef");
    index_mark_unreadable(index, entry, 0);
    index_unpin(index, entry);
    expect_rows(index, "abcdefghi", 3);
    assert_int_equal(has(index, "abcdef"), INDEX_ABSENT);
    struct index_usage usage = index_usage(index);
    assert_int_equal(usage.detached, 2);
    assert_int_equal(usage.bytes, 30);
    assert_int_equal(index_retry_unreadable(index, at_ms(999)), at_ms(1000));
    expect_rows(index, "abcdefghi", 3);
    assert_int_equal(index_retry_unreadable(index, at_ms(1000)), INT64_MAX);
    expect_rows(index, "abcdefghi", 9);
    assert_int_equal(index_usage(index).detached, 0);
    close_quiet(index);
}

static void it_takes_twice_as_long_each_time_and_an_hour_at_most(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 10);
    int64_t now = 0, wait_ms = 1000;
    for (int i = 0; i < 300; i++) {
        struct entry *entry = pin(index, "abc");
        index_mark_unreadable(index, entry, now);
        index_unpin(index, entry);
        assert_int_equal(index_retry_unreadable(index, now), now + at_ms(wait_ms));
        now += at_ms(wait_ms);
        assert_int_equal(index_retry_unreadable(index, now), INT64_MAX);
        wait_ms = 2 * wait_ms < 3600000 ? 2 * wait_ms : 3600000;
    }
    touch(index, "abc", 1);
    struct entry *entry = pin(index, "abc");
    index_mark_readable(index, entry);
    index_mark_unreadable(index, entry, now);
    index_unpin(index, entry);
    assert_int_equal(index_retry_unreadable(index, now), now + at_ms(1000));
    close_quiet(index);
}

static void two_that_fail_to_read_the_same_at_once_count_once(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 10);
    mark_unreadable(index, "abc", 0);
    assert_int_equal(index_retry_unreadable(index, 0), at_ms(1000));
    assert_int_equal(index_retry_unreadable(index, at_ms(1000)), INT64_MAX);
    expect_rows(index, "abc", 3);
    close_quiet(index);
}

static void descendants_of_an_unreadable_entry_wait_for_it(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 10);
    put(index, 3, "abcdef", 10);
    struct entry *leaf = pin(index, "abcdef"), *root = leaf->parent;
    index_mark_unreadable(index, root, at_ms(5000));
    index_mark_unreadable(index, leaf, 0);
    index_unpin(index, leaf);
    assert_int_equal(index_retry_unreadable(index, at_ms(2000)), at_ms(6000));
    assert_int_equal(index_usage(index).detached, 2);
    assert_int_equal(index_retry_unreadable(index, at_ms(6000)), INT64_MAX);
    expect_rows(index, "abcdef", 6);
    close_quiet(index);
}

static void each_unreadable_entry_waits_its_own_time(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 10);
    put(index, 3, "abcdef", 10);
    struct entry *leaf = pin(index, "abcdef"), *root = leaf->parent;
    index_mark_unreadable(index, leaf, at_ms(5000));
    index_mark_unreadable(index, root, 0);
    index_unpin(index, leaf);
    assert_int_equal(index_retry_unreadable(index, at_ms(2000)), at_ms(6000));
    expect_rows(index, "abcdef", 3);
    assert_int_equal(index_retry_unreadable(index, at_ms(6000)), INT64_MAX);
    expect_rows(index, "abcdef", 6);
    close_quiet(index);
}

/* ---- The key is written again ---- */

static void a_slab_saved_under_its_key_replaces_it(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 10);
    put(index, 3, "abcdef", 10);
    mark_unreadable(index, "abc", 0);
    struct reservation *reservation = begin(index, 0, "abc", 30);
    assert_int_equal(index_usage(index).bytes, 50); /* both files may exist */
    assert_int_equal(has(index, "abc"), INDEX_WRITING);
    assert_int_equal(index_retry_unreadable(index, at_ms(9000)), INT64_MAX); /* not while its file is being replaced */
    expect_rows(index, "abc", 0);
    index_unpin(index, index_publish(index, reservation, 30, NULL, 1));
    expect_rows(index, "abcdef", 6);
    struct index_usage usage = index_usage(index);
    assert_int_equal(usage.bytes, 40);
    assert_int_equal(usage.entries, 2);
    assert_int_equal(usage.detached, 0);
    close_quiet(index);
}

static void what_was_there_stays_when_the_save_is_cancelled(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 10);
    mark_unreadable(index, "abc", 0);
    struct reservation *reservation = begin(index, 0, "abc", 30);
    index_retry_unreadable(index, at_ms(9000));
    index_cancel(index, reservation);
    expect_rows(index, "abc", 3);
    assert_int_equal(index_usage(index).bytes, 10);
    mark_unreadable(index, "abc", 0);
    index_cancel(index, begin(index, 0, "abc", 30));
    expect_rows(index, "abc", 0);
    index_retry_unreadable(index, at_ms(9000));
    expect_rows(index, "abc", 3);
    close_quiet(index);
}

static void what_is_about_to_be_replaced_does_not_come_back_with_its_parent(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 10);
    put(index, 3, "abcdef", 10);
    mark_unreadable(index, "abcdef", 0);
    struct reservation *reservation = begin(index, 3, "abcdef", 20);
    index_retry_unreadable(index, at_ms(9000));
    mark_unreadable(index, "abc", at_ms(9000));
    index_retry_unreadable(index, at_ms(99000));
    expect_rows(index, "abcdef", 3);
    assert_int_equal(index_usage(index).detached, 1);
    index_unpin(index, index_publish(index, reservation, 20, NULL, 1));
    expect_rows(index, "abcdef", 6);
    assert_int_equal(index_usage(index).bytes, 30);
    assert_int_equal(index_usage(index).detached, 0);
    close_quiet(index);
}

/* Its parent was saved again as one that starts later, after the start of this one. */
static void what_does_not_fit_stays_detached(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abcdef", 10);
    put(index, 2, "abXY", 10);
    struct entry *entry = pin(index, "abcdef");
    delete_all(index, index_drop(index, entry));
    index_unpin(index, entry);
    put(index, 0, "abc", 10);
    put(index, 3, "abcdef", 10);
    expect_rows(index, "abXY", 2);
    assert_int_equal(index_usage(index).detached, 1);
    close_quiet(index);
}

static void what_is_about_to_be_replaced_is_not_evicted(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 30);
    mark_unreadable(index, "abc", 0);
    struct reservation *reservation = begin(index, 0, "abc", 30);
    assert_int_equal(put(index, 0, "x", 50), RESERVED_NO_ROOM); /* its file would be deleted after it was written */
    assert_null(evict_all(index));
    assert_null(index_drop_detached(index));
    index_cancel(index, reservation);
    assert_int_equal(put(index, 0, "x", 80), RESERVED);
    assert_int_equal(index_usage(index).detached, 0);
    close_quiet(index);
}

/* ---- Victims that could not be deleted ---- */

static void a_victim_that_could_not_be_deleted_is_indexed_again(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 40);
    put(index, 3, "abcdef", 40);
    struct spelled s;
    spelled(&s, SLAB_ROWS, 0, "x", 90);
    struct reservation *reservation;
    struct victim *victims;
    assert_int_equal(reserve(index, &s.what, &reservation, &victims), RESERVED);
    struct victim *second = victims->next;
    assert_null(second->next);
    index_reinstate(index, victims, false); /* the leaf, before its parent */
    expect_rows(index, "abcdef", 0);
    assert_int_equal(index_usage(index).detached, 1);
    index_reinstate(index, second, false);
    expect_rows(index, "abcdef", 6);
    index_cancel(index, reservation);
    struct index_usage usage = index_usage(index);
    assert_int_equal(usage.bytes, 80);
    assert_int_equal(usage.entries, 2);
    assert_int_equal(put(index, 0, "y", 100), RESERVED);
    close_quiet(index);
}

static void a_reinstated_victim_keeps_its_time_of_use(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "a", 40);
    put(index, 0, "b", 40);
    struct spelled s;
    spelled(&s, SLAB_ROWS, 0, "c", 40);
    struct reservation *reservation;
    struct victim *victims;
    assert_int_equal(reserve(index, &s.what, &reservation, &victims), RESERVED);
    index_cancel(index, reservation);
    index_reinstate(index, victims, false);
    assert_int_equal(put(index, 0, "c", 40), RESERVED);
    assert_int_equal(has(index, "a"), INDEX_ABSENT);
    assert_int_equal(has(index, "b"), INDEX_THERE);
    close_quiet(index);
}

/* ---- Detached entries are evicted in LRU order ---- */

static void detached_entries_are_evicted_in_lru_order(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 20);
    put(index, 3, "abcdef", 20);
    put(index, 6, "abcdefghi", 20);
    put(index, 0, "x", 20);
    struct entry *root = pin(index, "abc");
    delete_all(index, index_drop(index, root));
    index_unpin(index, root);
    touch(index, "x", 2);
    assert_int_equal(put(index, 0, "y", 60), RESERVED);
    struct index_usage usage = index_usage(index);
    assert_int_equal(usage.detached, 1);
    assert_int_equal(usage.bytes, 100);
    put(index, 0, "abc", 20); /* the last entry of the chain was evicted before the first */
    expect_rows(index, "abcdefghi", 3);
    assert_int_equal(index_usage(index).detached, 0);
    close_quiet(index);
}

static void what_is_detached_and_pinned_is_not_evicted(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 20);
    put(index, 3, "abcdef", 60);
    struct entry *leaf = pin(index, "abcdef");
    delete_all(index, index_drop(index, leaf->parent));
    assert_int_equal(put(index, 0, "x", 50), RESERVED_NO_ROOM);
    index_unpin(index, leaf);
    assert_int_equal(put(index, 0, "x", 50), RESERVED);
    close_quiet(index);
}

static void a_use_of_a_detached_entry_counts(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 10);
    put(index, 3, "abcdef", 40);
    put(index, 0, "x", 50);
    struct entry *leaf = pin(index, "abcdef");
    delete_all(index, index_drop(index, leaf->parent));
    assert_int_equal(index_touch(index, leaf, 2000), 1);
    index_unpin(index, leaf);
    assert_int_equal(put(index, 0, "y", 20), RESERVED);
    assert_int_equal(has(index, "x"), INDEX_ABSENT);
    put(index, 0, "abc", 10);
    leaf = pin(index, "abcdef");
    assert_int_equal(index_touch(index, leaf, 2001), 2);
    index_unpin(index, leaf);
    close_quiet(index);
}

/* ---- Entries without a parent ---- */

static void only_what_has_no_parent_is_dropped(void **state)
{
    (void)state;
    struct index *index = open_index(1000);
    put(index, 0, "abc", 10);
    put(index, 3, "abcdef", 10);
    put(index, 6, "abcdefghi", 10);
    mark_unreadable(index, "abc", 0);
    adopt(index, SLAB_ROWS, "nowhere", 7, "nowhere!", 10, 1);
    adopt(index, SLAB_ROWS, "nowhere!", 8, "nowhere!!", 10, 1);
    adopt(index, SLAB_ROWS, "soon", 4, "soon!", 10, 1);
    adopt(index, SLAB_ROWS, "soon!", 5, "soon!!", 10, 1);
    struct reservation *soon = begin(index, 0, "soon", 10);
    assert_int_equal(index_usage(index).detached, 7);
    assert_int_equal(delete_all(index, index_drop_detached(index)), 2);
    index_unpin(index, index_publish(index, soon, 10, NULL, 1));
    expect_rows(index, "soon!!", 6);
    index_retry_unreadable(index, INT64_MAX);
    expect_rows(index, "abcdefghi", 9);
    assert_int_equal(index_usage(index).detached, 0);
    close_quiet(index);
}

static void note_detached(void *ud, const struct slab_key *key, enum slab_kind kind)
{
    struct slab_key expected = key_of_text("abcdef");
    assert_true(slab_key_equal(key, &expected));
    *(int *)ud += (int)kind;
}

static void detached_entries_are_shown_and_no_others(void **state)
{
    (void)state;
    struct index *index = open_index(1000);
    put(index, 0, "x", 10);
    adopt(index, SLAB_ROWS, "abc", 3, "abcdef", 10, 1);
    adopt(index, SLAB_STATE, "abcdef", 6, "abcdef", 10, 1);
    int kinds = 0;
    index_each_detached(index, note_detached, &kinds);
    assert_int_equal(kinds, SLAB_ROWS + SLAB_STATE);
    close_quiet(index);
}

/* ---- Whether a slab matches an entry ---- */

static bool stands_for(struct index *index, const struct entry *entry, int32_t start, const char *text)
{
    int32_t tokens[TEXT], end = spell(text, tokens);
    struct slab_head head = {.kind = SLAB_ROWS, .identity = mine, .key = entry->key, .start = start, .end = end};
    head.tokens = (struct tokens){.v = tokens + start, .len = (size_t)(end - start)};
    return index_matches(index, entry, &head);
}

static void a_slab_is_compared_token_by_token_wherever_the_entry_is(void **state)
{
    (void)state;
    struct index *index = open_index(1000);
    put(index, 0, "abc", 10);
    put(index, 2, "abdefg", 10);
    put(index, 4, "abdeX", 10); /* splits its edge */
    struct entry *leaf = pin(index, "abdefg");
    for (int i = 0; i < 3; i++) {
        assert_true(stands_for(index, leaf, 2, "abdefg"));
        assert_true(stands_for(index, leaf, 2, "??defg"));
        assert_false(stands_for(index, leaf, 2, "abXefg"));
        assert_false(stands_for(index, leaf, 2, "abdefX"));
        assert_false(stands_for(index, leaf, 1, "abdefg"));
        assert_false(stands_for(index, leaf, 2, "abdef"));
        struct identity plain = mine;
        mine = identity_salted(&plain, "alice");
        assert_false(stands_for(index, leaf, 2, "abdefg"));
        mine = plain;
        if (i == 0) mark_unreadable(index, "abc", 0); /* detached, then indexed again as another struct */
        if (i == 1) index_retry_unreadable(index, INT64_MAX);
    }
    assert_false(item_of(leaf)->state == ITEM_FOUND);
    index_unpin(index, leaf);
    leaf = pin(index, "abdefg");
    delete_all(index, index_drop(index, leaf));
    assert_false(stands_for(index, leaf, 2, "abdefg"));
    index_unpin(index, leaf);
    close_quiet(index);
}

/* ---- Beyond the budget ---- */

static void what_is_saved_over_the_budget_is_made_good_by_a_trim(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "a", 60);
    struct spelled s;
    spelled(&s, SLAB_ROWS, 0, "b", 70);
    s.what.over = true;
    struct reservation *reservation;
    struct victim *victims;
    assert_int_equal(reserve(index, &s.what, &reservation, &victims), RESERVED);
    assert_null(victims);
    assert_int_equal(index_usage(index).bytes, 130);
    assert_int_equal(has(index, "a"), INDEX_THERE);
    index_unpin(index, index_publish(index, reservation, 70, NULL, 2000));
    victims = index_trim(index);
    assert_null(index_trim(index)); /* the victims so far are enough */
    assert_int_equal(delete_all(index, victims), 1);
    assert_int_equal(has(index, "a"), INDEX_ABSENT);
    assert_int_equal(index_usage(index).bytes, 70);
    assert_int_equal(index_usage(index).evictions, 1);
    spelled(&s, SLAB_ROWS, 0, "c", 101);
    s.what.over = true;
    assert_int_equal(reserve(index, &s.what, &reservation, &victims), RESERVED_NO_ROOM);
    struct entry *entry = pin(index, "b");
    spelled(&s, SLAB_ROWS, 0, "c", 31);
    s.what.over = true;
    assert_int_equal(reserve(index, &s.what, &reservation, &victims), RESERVED_NO_ROOM); /* a trim could not */
    index_unpin(index, entry);
    close_quiet(index);
}

/* Reservations that ended before their victims were deleted. */
static void a_trim_within_the_budget_evicts_nothing(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    for (int how = 0; how < 4; how++) {
        bool spared = (how & 1) != 0, cancelled_first = (how & 2) != 0;
        put(index, 0, "a", 60);
        put(index, 0, "b", 40);
        struct spelled s;
        spelled(&s, SLAB_ROWS, 0, "c", 50);
        struct reservation *reservation;
        struct victim *victims;
        assert_int_equal(reserve(index, &s.what, &reservation, &victims), RESERVED);
        assert_null(index_trim(index));
        if (cancelled_first) index_cancel(index, reservation);
        if (spared)
            index_reinstate(index, victims, false);
        else
            delete_all(index, victims);
        if (!cancelled_first && spared) index_cancel(index, reservation);
        if (!cancelled_first && !spared) index_unpin(index, index_publish(index, reservation, 45, NULL, 1));
        assert_true(index_usage(index).bytes <= 100);
        assert_null(index_trim(index));
        delete_all(index, evict_all(index));
        assert_int_equal(index_usage(index).bytes, 0);
    }
    close_quiet(index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_could_not_be_read_returns_with_its_descendants),
        cmocka_unit_test(it_takes_twice_as_long_each_time_and_an_hour_at_most),
        cmocka_unit_test(two_that_fail_to_read_the_same_at_once_count_once),
        cmocka_unit_test(descendants_of_an_unreadable_entry_wait_for_it),
        cmocka_unit_test(each_unreadable_entry_waits_its_own_time),
        cmocka_unit_test(a_slab_saved_under_its_key_replaces_it),
        cmocka_unit_test(what_was_there_stays_when_the_save_is_cancelled),
        cmocka_unit_test(what_is_about_to_be_replaced_does_not_come_back_with_its_parent),
        cmocka_unit_test(what_does_not_fit_stays_detached),
        cmocka_unit_test(what_is_about_to_be_replaced_is_not_evicted),
        cmocka_unit_test(a_victim_that_could_not_be_deleted_is_indexed_again),
        cmocka_unit_test(a_reinstated_victim_keeps_its_time_of_use),
        cmocka_unit_test(detached_entries_are_evicted_in_lru_order),
        cmocka_unit_test(what_is_detached_and_pinned_is_not_evicted),
        cmocka_unit_test(a_use_of_a_detached_entry_counts),
        cmocka_unit_test(only_what_has_no_parent_is_dropped),
        cmocka_unit_test(detached_entries_are_shown_and_no_others),
        cmocka_unit_test(a_slab_is_compared_token_by_token_wherever_the_entry_is),
        cmocka_unit_test(what_is_saved_over_the_budget_is_made_good_by_a_trim),
        cmocka_unit_test(a_trim_within_the_budget_evicts_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
