/* Evictions, drops, and what an earlier process left: which entries leave the index, in which order, and that pinned
 * ones stay. */
#include "index_texts.h"

/* ---- Evictions ---- */

static void the_least_recently_used_is_evicted(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "a", 40);
    put(index, 0, "b", 40);
    put(index, 0, "c", 20);
    touch(index, "a", 5);
    assert_int_equal(put(index, 0, "d", 30), RESERVED);
    assert_int_equal(has(index, "b"), INDEX_ABSENT);
    assert_int_equal(has(index, "a"), INDEX_THERE);
    struct index_usage usage = index_usage(index);
    assert_int_equal(usage.bytes, 90);
    assert_int_equal(usage.entries, 3);
    assert_int_equal(usage.evictions, 1);
    assert_int_equal(usage.budget, 100);
    close_quiet(index);
}

static void children_are_evicted_before_parents(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 40);
    put(index, 3, "abcdef", 30);
    put(index, 0, "x", 30);
    assert_int_equal(put(index, 0, "y", 30), RESERVED);
    assert_int_equal(has(index, "abcdef"), INDEX_ABSENT);
    assert_int_equal(put(index, 0, "z", 30), RESERVED);
    assert_int_equal(has(index, "abc"), INDEX_ABSENT);
    assert_int_equal(has(index, "x"), INDEX_THERE);
    close_quiet(index);
}

static void ancestors_of_a_new_entry_are_never_evicted_for_it(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 40);
    put(index, 0, "x", 40);
    assert_int_equal(put(index, 3, "abcdef", 60), RESERVED);
    assert_int_equal(has(index, "abc"), INDEX_THERE);
    assert_int_equal(has(index, "x"), INDEX_ABSENT);
    assert_int_equal(put(index, 6, "abcdefgh", 10), RESERVED_NO_ROOM);
    close_quiet(index);
}

static void what_is_pinned_stays_with_its_ancestors(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 40);
    put(index, 3, "abcdef", 40);
    struct entry *entry = pin(index, "abcdef");
    put(index, 0, "x", 20);
    assert_int_equal(put(index, 0, "y", 21), RESERVED_NO_ROOM);
    assert_int_equal(has(index, "x"), INDEX_THERE); /* nothing was evicted for a reservation that failed */
    assert_int_equal(put(index, 0, "y", 20), RESERVED);
    assert_int_equal(has(index, "abcdef"), INDEX_THERE);
    assert_int_equal(delete_all(index, evict_all(index)), 1);
    index_unpin(index, entry);
    assert_int_equal(put(index, 0, "z", 100), RESERVED);
    assert_int_equal(index_usage(index).entries, 1);
    close_quiet(index);
}

static void what_is_larger_than_the_budget_is_refused(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "a", 100);
    assert_int_equal(put(index, 0, "b", 101), RESERVED_NO_ROOM);
    assert_int_equal(put(index, 0, "b", UINT64_MAX), RESERVED_NO_ROOM);
    assert_int_equal(has(index, "a"), INDEX_THERE);
    assert_int_equal(index_usage(index).bytes, 100);
    close_quiet(index);
}

/* A victim's bytes count until it is deleted, whoever reserves meanwhile. */
static void victims_count_until_they_are_deleted(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "a", 60);
    put(index, 0, "b", 40);
    struct spelled s;
    spelled(&s, SLAB_ROWS, 0, "c", 50);
    struct reservation *reservation;
    struct victim *victims;
    assert_int_equal(index_reserve(index, &s.what, &reservation, &victims), RESERVED);
    assert_int_equal(index_usage(index).bytes, 100);
    assert_int_equal(put(index, 0, "a", 60), RESERVED_WRITING); /* its slab is still to be deleted */
    assert_int_equal(has(index, "a"), INDEX_ABSENT);
    assert_true(victims->next == NULL);
    index_deleted(index, victims);
    assert_int_equal(index_usage(index).bytes, 90);
    index_unpin(index, index_publish(index, reservation, 45, NULL, 0));
    assert_int_equal(index_usage(index).bytes, 85);
    close_quiet(index);
}

static void bytes_of_victims_that_still_exist_are_not_reserved(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "a", 100);
    struct entry *entry = pin(index, "a");
    struct victim *dropped = index_drop(index, entry);
    assert_int_equal(put(index, 0, "b", 1), RESERVED_NO_ROOM);
    delete_all(index, dropped);
    assert_int_equal(put(index, 0, "b", 100), RESERVED);
    index_unpin(index, entry);
    close_quiet(index);
}

static void a_cancelled_reservation_gives_everything_back(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "a", 60);
    struct spelled s;
    spelled(&s, SLAB_ROWS, 0, "b", 70);
    struct reservation *reservation;
    struct victim *victims;
    assert_int_equal(index_reserve(index, &s.what, &reservation, &victims), RESERVED);
    index_cancel(index, reservation); /* before its victims are deleted */
    assert_int_equal(index_usage(index).bytes, 60);
    delete_all(index, victims);
    assert_int_equal(index_usage(index).bytes, 0);
    assert_int_equal(put(index, 0, "b", 100), RESERVED);
    close_quiet(index);
}

/* ---- Drops ---- */

static void descendants_of_a_dropped_entry_are_detached_until_it_is_there_again(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 10);
    put(index, 3, "abcdef", 10);
    put_kind(index, SLAB_STATE, 5, "abcde", 10);
    put(index, 4, "abcdXYZ", 10);
    put(index, 7, "abcdXYZ!", 10);
    put(index, 2, "ab--", 10);
    struct entry *entry = pin(index, "abcdef");
    struct victim *victims = index_drop(index, entry);
    struct slab_key key = key_of_text("abcdef");
    assert_true(slab_key_equal(&victims->key, &key));
    assert_null(index_drop(index, entry)); /* of two drops, only one returns the victim */
    expect_rows(index, "abcdef", 3);
    expect_rows(index, "abcdXYZ!", 3);
    expect_rows(index, "ab--", 4);
    assert_int_equal(has(index, "abcdXYZ"), INDEX_ABSENT);
    assert_int_equal(delete_all(index, victims), 1);
    struct index_usage usage = index_usage(index);
    assert_int_equal(usage.entries, 2);
    assert_int_equal(usage.detached, 3);
    assert_int_equal(usage.bytes, 50);
    assert_int_equal(usage.evictions, 0);
    index_unpin(index, entry);
    assert_int_equal(put(index, 3, "abcdef", 10), RESERVED);
    expect_rows(index, "abcdXYZ!", 8);
    expect_state(index, "abcdef", 6, 5);
    assert_int_equal(index_usage(index).detached, 0);
    close_quiet(index);
}

/* It is the same file: its entry is dropped, indexed or not. */
static void what_is_detached_and_pinned_can_be_dropped(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 10);
    put(index, 3, "abcdef", 10);
    struct entry *leaf = pin(index, "abcdef"), *root = leaf->parent;
    delete_all(index, index_drop(index, root));
    assert_int_equal(index_usage(index).detached, 1);
    delete_all(index, index_drop(index, leaf));
    assert_int_equal(index_usage(index).detached, 0);
    assert_int_equal(index_usage(index).bytes, 0);
    index_unpin(index, leaf);
    close_quiet(index);
}

static struct entry *publish_with_user(struct index *index, int32_t start, const char *text, uint64_t size)
{
    return index_publish(index, begin(index, start, text, size), size, mem_alloc(64), 0);
}

static void memory_is_freed_with_the_last_pin_of_what_has_left(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    struct entry *root = publish_with_user(index, 0, "abc", 10), *leaf = publish_with_user(index, 3, "abcdef", 10);
    index_pin(index, leaf);
    struct victim *victims = index_drop(index, root);
    index_unpin(index, root);
    assert_int_equal(delete_all(index, victims), 1);
    index_unpin(index, leaf);
    assert_int_equal(n_freed, 0); /* the leaf is pinned, and with it all ancestors */
    assert_ptr_equal(leaf->parent, root);
    assert_memory_equal(root->user, leaf->user, 64);
    index_touch(index, leaf, 5);
    index_unpin(index, leaf);
    assert_int_equal(n_freed, 1); /* the leaf is still known */
    delete_all(index, evict_all(index));
    assert_int_equal(n_freed, 2);
    close_quiet(index);
}

/* Who pins the lost entry may still read its ancestors, from the root on. */
static void ancestors_of_a_lost_entry_stay_as_long_as_its_pin(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 60);
    put(index, 3, "abcdef", 40);
    struct entry *leaf = pin(index, "abcdef");
    delete_all(index, index_drop(index, leaf));
    assert_int_equal(put(index, 0, "x", 50), RESERVED_NO_ROOM);
    index_unpin(index, leaf);
    assert_int_equal(put(index, 0, "x", 50), RESERVED);
    close_quiet(index);
}

static void what_is_published_after_its_parent_left_is_detached(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 10);
    struct reservation *reservation = begin(index, 3, "abcdef", 20);
    struct entry *root = pin(index, "abc");
    delete_all(index, index_drop(index, root));
    index_unpin(index, root);
    assert_null(index_publish(index, reservation, 15, NULL, 0));
    struct index_usage usage = index_usage(index);
    assert_int_equal(usage.bytes, 15);
    assert_int_equal(usage.detached, 1);
    assert_int_equal(usage.reservations, 0);
    expect_rows(index, "abcdef", 0);
    put(index, 0, "abc", 10);
    expect_rows(index, "abcdef", 6);
    close_quiet(index);
}

static void memory_of_a_victim_is_freed_when_its_slab_is(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    index_unpin(index, publish_with_user(index, 0, "abc", 60));
    index_unpin(index, publish_with_user(index, 3, "abcdef", 40));
    struct reservation *reservation = begin(index, 0, "x", 100);
    assert_int_equal(n_freed, 2);
    index_cancel(index, reservation);
    index_unpin(index, publish_with_user(index, 0, "abc", 60));
    index_close(index);
    assert_int_equal(n_freed, 3);
}

/* ---- What an earlier process left ---- */

static void adopted_entries_are_found_and_keep_their_hits(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    assert_true(adopt(index, SLAB_ROWS, NULL, 0, "abcdef", 10, 5));
    assert_true(adopt_used(index, SLAB_ROWS, "abcdef", 3, "abcXYZ", 10, 5, 3));
    assert_true(adopt(index, SLAB_STATE, "abcXYZ", 5, "abcXY", 10, 5));
    assert_null(index_trim(index));
    expect_state(index, "abcXYZ", 6, 5);
    struct entry *entry = pin(index, "abcXYZ");
    assert_int_equal(index_touch(index, entry, 9), 4);
    index_unpin(index, entry);
    close_quiet(index);
}

static void what_does_not_fit_is_not_found(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    assert_true(adopt(index, SLAB_ROWS, NULL, 0, "abcdef", 10, 5));
    assert_false(adopt(index, SLAB_ROWS, NULL, 0, "abcdef", 10, 5));       /* there already */
    assert_true(adopt(index, SLAB_ROWS, "abc", 3, "abcX", 10, 5));         /* its parent is not known */
    assert_false(adopt(index, SLAB_ROWS, "abc", 3, "abcX", 10, 5));        /* known already */
    assert_true(adopt(index, SLAB_ROWS, "abcdef", 7, "abcdefghi", 10, 5)); /* starts after its parent's end */
    assert_true(adopt(index, SLAB_STATE, "abcdef", 6, "abcdefg", 10, 5));  /* its parent is no STATE */
    assert_false(adopt(index, SLAB_ROWS, "abcdef", 6, "abcdef", 10, 5));   /* no tokens */
    struct identity plain = mine;
    mine = identity_salted(&mine, "alice");
    int32_t tokens[TEXT];
    spell("abcdefg", tokens);
    struct slab_head head = {.kind = SLAB_ROWS, .identity = mine, .key = key_of_text("abcdefg"), .start = 6, .end = 7};
    head.tokens = (struct tokens){.v = tokens + 6, .len = 1};
    mine = plain;
    head.parent = key_of_text("abcdef");
    assert_true(index_adopt(index, &head, 10, NOW)); /* the parent is another identity's */
    head.key = key_of_text("abcdefh");
    head.tokens.len = 2;
    assert_false(index_adopt(index, &head, 10, NOW)); /* more tokens than it says */
    struct index_usage usage = index_usage(index);
    assert_int_equal(usage.entries, 1);
    assert_int_equal(usage.detached, 4);
    assert_int_equal(usage.bytes, 50);
    assert_int_equal(delete_all(index, index_drop_detached(index)), 4);
    expect_state(index, "abcdefg", 6, 0);
    assert_int_equal(index_usage(index).bytes, 10);
    close_quiet(index);
}

static void adopted_in_any_order_all_is_found(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    adopt(index, SLAB_STATE, "abcdefghi", 8, "abcdefgh", 10, 5);
    adopt(index, SLAB_ROWS, "abcdef", 6, "abcdefghi", 10, 5);
    adopt(index, SLAB_ROWS, "abcdef", 4, "abcdXYZ", 10, 5);
    expect_rows(index, "abcdefghi", 0);
    adopt(index, SLAB_ROWS, NULL, 0, "abc", 10, 5);
    expect_rows(index, "abcdefghi", 3);
    assert_int_equal(index_usage(index).detached, 3);
    adopt(index, SLAB_ROWS, "abc", 3, "abcdef", 10, 5);
    assert_int_equal(index_usage(index).detached, 0);
    expect_state(index, "abcdefghi", 9, 8);
    expect_rows(index, "abcdXYZ", 7);
    close_quiet(index);
}

static void a_time_in_the_future_is_taken_for_now(void **state)
{
    (void)state;
    struct index *index = open_index(60);
    adopt(index, SLAB_ROWS, NULL, 0, "future", 20, INT64_MAX);
    adopt(index, SLAB_ROWS, NULL, 0, "past", 20, NOW - 1);
    struct spelled s;
    spelled(&s, SLAB_ROWS, 0, "live", 20);
    assert_int_equal(save(index, &s.what, NOW + 1), RESERVED);
    spelled(&s, SLAB_ROWS, 0, "more", 40);
    assert_int_equal(save(index, &s.what, NOW + 2), RESERVED);
    assert_int_equal(has(index, "live"), INDEX_THERE);
    close_quiet(index);
}

static void the_order_of_use_survives_a_restart(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    adopt(index, SLAB_ROWS, NULL, 0, "abc", 20, 1); /* older than its child: a crash came in between */
    adopt(index, SLAB_ROWS, NULL, 0, "n", 20, 30);
    adopt(index, SLAB_ROWS, NULL, 0, "m", 20, 10);
    adopt(index, SLAB_ROWS, "abc", 3, "abcdef", 20, 20);
    put(index, 0, "live", 20); /* used at 1000, while the scan still runs */
    assert_null(index_trim(index));
    static const char *const order[] = {"m", "abcdef", "abc", "n", "live"};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(has(index, order[i]), INDEX_THERE);
        char next[2] = {(char)('0' + i), 0};
        assert_int_equal(put(index, 0, next, 20), RESERVED);
        assert_int_equal(has(index, order[i]), INDEX_ABSENT);
    }
    close_quiet(index);
}

static void a_chain_that_was_adopted_can_be_evicted_at_once(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    adopt(index, SLAB_ROWS, NULL, 0, "abc", 40, 1);
    adopt(index, SLAB_ROWS, "abc", 3, "abcdef", 40, 20);
    assert_null(index_trim(index));
    assert_int_equal(put(index, 0, "x", 100), RESERVED);
    close_quiet(index);
}

static void what_exceeds_a_budget_that_shrank_is_evicted_after_a_restart(void **state)
{
    (void)state;
    struct index *index = open_index(50);
    adopt(index, SLAB_ROWS, NULL, 0, "abc", 20, 9);
    adopt(index, SLAB_ROWS, "abc", 3, "abcdef", 20, 8);
    adopt(index, SLAB_ROWS, NULL, 0, "x", 20, 10);
    adopt(index, SLAB_ROWS, NULL, 0, "y", 20, 7);
    adopt(index, SLAB_ROWS, NULL, 0, "z", 20, 6);
    assert_int_equal(delete_all(index, index_trim(index)), 3);
    assert_int_equal(has(index, "abcdef"), INDEX_ABSENT);
    assert_int_equal(index_usage(index).bytes, 40);
    close_quiet(index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_recently_used_is_evicted),
        cmocka_unit_test(children_are_evicted_before_parents),
        cmocka_unit_test(ancestors_of_a_new_entry_are_never_evicted_for_it),
        cmocka_unit_test(what_is_pinned_stays_with_its_ancestors),
        cmocka_unit_test(what_is_larger_than_the_budget_is_refused),
        cmocka_unit_test(victims_count_until_they_are_deleted),
        cmocka_unit_test(bytes_of_victims_that_still_exist_are_not_reserved),
        cmocka_unit_test(a_cancelled_reservation_gives_everything_back),
        cmocka_unit_test(descendants_of_a_dropped_entry_are_detached_until_it_is_there_again),
        cmocka_unit_test(what_is_detached_and_pinned_can_be_dropped),
        cmocka_unit_test(memory_is_freed_with_the_last_pin_of_what_has_left),
        cmocka_unit_test(ancestors_of_a_lost_entry_stay_as_long_as_its_pin),
        cmocka_unit_test(what_is_published_after_its_parent_left_is_detached),
        cmocka_unit_test(memory_of_a_victim_is_freed_when_its_slab_is),
        cmocka_unit_test(adopted_entries_are_found_and_keep_their_hits),
        cmocka_unit_test(what_does_not_fit_is_not_found),
        cmocka_unit_test(adopted_in_any_order_all_is_found),
        cmocka_unit_test(a_time_in_the_future_is_taken_for_now),
        cmocka_unit_test(the_order_of_use_survives_a_restart),
        cmocka_unit_test(a_chain_that_was_adopted_can_be_evicted_at_once),
        cmocka_unit_test(what_exceeds_a_budget_that_shrank_is_evicted_after_a_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
