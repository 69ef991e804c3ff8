/* The store of responses and conversations: owners, LRU eviction, and the counted bytes. */
#include "serve/responses/response_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct stored *opened(size_t entries, size_t bytes)
{
    return stored_open((struct stored_bounds){.entries = entries, .bytes = bytes});
}

static void add(struct stored_turn *turn, const char *id, size_t len)
{
    struct buf text = {0};
    for (size_t i = 0; i < len; i++) buf_puts(&text, "x");
    stored_turn_add(turn, id, &text);
}

/* A turn of one item. */
static struct stored_turn *turn_of(struct stored *stored, struct stored_turn *before, const char *id, size_t len)
{
    struct stored_turn *turn = stored_turn_new(stored, before);
    add(turn, id, len);
    return turn;
}

static void put(struct stored *stored, const char *owner, const char *id, struct stored_turn *turn)
{
    struct buf text = {0};
    buf_puts(&text, id);
    stored_put(stored, &(struct stored_entry){.owner = owner, .id = id, .text = &text, .turn = turn});
}

/* Stores a response that continues another one (by id; NULL: none); does nothing if that is gone. */
static void put_after(struct stored *stored, const char *before, const char *id, size_t len)
{
    struct stored_found found = {.turn = NULL};
    if (before != NULL) assert_true(stored_find(stored, NULL, before, false, &found));
    struct stored_turn *turn = turn_of(stored, found.turn, id, len);
    put(stored, NULL, id, turn);
    stored_turn_unref(stored, turn);
    stored_release(stored, &found);
}

static bool has(struct stored *stored, const char *owner, const char *id)
{
    struct stored_found found;
    bool there = stored_find(stored, owner, id, true, &found);
    if (there) assert_string_equal(found.text.v, id);
    stored_release(stored, &found);
    return there;
}

static void assert_items(struct stored *stored, const char *id, const char *expected)
{
    struct stored_found found;
    struct buf ids = {0};
    assert_true(stored_find(stored, NULL, id, false, &found));
    struct stored_item *items = stored_turn_items(found.turn);
    for (size_t i = 0; i < found.turn->all_n; i++) buf_printf(&ids, "%s ", items[i].id);
    assert_string_equal(buf_text(&ids), expected);
    buf_release(&ids);
    free(items);
    stored_release(stored, &found);
}

/* ---- Tests ---- */

static void an_owner_finds_its_own_and_nobody_elses(void **state)
{
    (void)state;
    struct stored *stored = opened(10, 1 << 20);
    put(stored, "ada", "resp_1", NULL);
    put(stored, NULL, "resp_2", NULL);
    assert_true(has(stored, "ada", "resp_1"));
    assert_false(has(stored, "bob", "resp_1"));
    assert_false(has(stored, NULL, "resp_1"));
    assert_true(has(stored, NULL, "resp_2"));
    assert_false(has(stored, "ada", "resp_2"));
    assert_false(has(stored, "ada", "resp_3"));
    assert_false(stored_remove(stored, "bob", "resp_1"));
    assert_true(stored_remove(stored, "ada", "resp_1"));
    assert_false(has(stored, "ada", "resp_1"));
    stored_close(stored);
}

static void the_least_recently_used_entry_is_evicted_first(void **state)
{
    (void)state;
    struct stored *stored = opened(3, 1 << 20);
    put(stored, NULL, "1", NULL);
    put(stored, NULL, "2", NULL);
    put(stored, NULL, "3", NULL);
    assert_true(has(stored, NULL, "1"));
    put(stored, NULL, "4", NULL);
    assert_false(has(stored, NULL, "2"));
    assert_true(has(stored, NULL, "3"));
    put(stored, NULL, "5", NULL);
    assert_false(has(stored, NULL, "1"));
    assert_int_equal(stored_size(stored).entries, 3);
    stored_close(stored);
}

static void an_entry_replaces_one_with_its_id(void **state)
{
    (void)state;
    struct stored *stored = opened(3, 1 << 20);
    put(stored, NULL, "1", NULL);
    size_t bytes = stored_size(stored).bytes;
    put(stored, NULL, "1", NULL);
    assert_int_equal(stored_size(stored).bytes, bytes);
    assert_int_equal(stored_size(stored).entries, 1);
    struct buf text = {0};
    buf_puts(&text, "another");
    assert_int_equal(stored_set_text(stored, NULL, "1", &text), STORED_CHANGED);
    assert_int_equal(stored_size(stored).bytes, bytes + strlen("another") - strlen("1"));
    buf_puts(&text, "another");
    assert_int_equal(stored_set_text(stored, NULL, "2", &text), STORED_ABSENT);
    buf_release(&text);
    stored_close(stored);
}

/* A conversation's turns are in memory once: their bytes grow by each turn, and are freed with the last entry that
 * leads to them. */
static void turns_are_counted_once_and_as_long_as_something_leads_to_them(void **state)
{
    (void)state;
    struct stored *stored = opened(10, 1 << 20);
    put_after(stored, NULL, "1", 10000);
    put_after(stored, "1", "2", 10000);
    put_after(stored, "2", "3", 10000);
    assert_items(stored, "3", "1 2 3 ");
    size_t bytes = stored_size(stored).bytes;
    assert_in_range(bytes, 30000, 32000);
    assert_true(stored_remove(stored, NULL, "1"));
    assert_true(stored_remove(stored, NULL, "2"));
    assert_items(stored, "3", "1 2 3 ");
    assert_in_range(stored_size(stored).bytes, 30000, bytes - 1);
    assert_true(stored_remove(stored, NULL, "3"));
    assert_int_equal(stored_size(stored).bytes, 0);
    stored_close(stored);
}

static void bytes_are_bounded_whatever_is_stored(void **state)
{
    (void)state;
    struct stored *stored = opened(1000, 100000);
    put_after(stored, NULL, "a", 1000);
    for (int i = 0; i < 50; i++) {
        char id[8];
        snprintf(id, sizeof id, "%d", i);
        put_after(stored, NULL, id, 7000);
        assert_true(stored_size(stored).bytes <= 100000);
        assert_true(has(stored, NULL, id));
    }
    assert_false(has(stored, NULL, "a"));
    assert_in_range(stored_size(stored).entries, 12, 14);
    struct stored_bounds before = stored_size(stored);
    put_after(stored, NULL, "huge", 100001);
    assert_false(has(stored, NULL, "huge"));
    assert_int_equal(stored_size(stored).bytes, before.bytes);
    assert_int_equal(stored_size(stored).entries, before.entries);
    stored_close(stored);
}

/* What a request holds beside an entry is not counted: nothing is evicted for the copy and the original. */
static void a_conversation_of_more_than_half_of_all_bytes_can_be_changed(void **state)
{
    (void)state;
    struct stored *stored = opened(10, 10000);
    struct stored_found held;
    put_after(stored, NULL, "other", 500);
    put_after(stored, NULL, "conv", 8000);
    size_t bytes = stored_size(stored).bytes;
    assert_true(stored_find(stored, NULL, "conv", false, &held));
    struct stored_turn *copy = turn_of(stored, NULL, "copy", 7996);
    assert_int_equal(stored_set_turn(stored, NULL, "conv", copy), STORED_CHANGED);
    stored_turn_unref(stored, copy);
    assert_items(stored, "conv", "copy ");
    assert_true(has(stored, NULL, "other"));
    assert_in_range(stored_size(stored).bytes, bytes - 20, bytes + 20);
    stored_release(stored, &held);
    assert_true(stored_remove(stored, NULL, "conv") && stored_remove(stored, NULL, "other"));
    assert_int_equal(stored_size(stored).bytes, 0);
    stored_close(stored);
}

static void what_does_not_fit_changes_nothing_and_evicts_nobody(void **state)
{
    (void)state;
    struct stored *stored = opened(10, 10000);
    struct buf text = {0};
    put_after(stored, NULL, "other", 500);
    put_after(stored, NULL, "conv", 4000);
    struct stored_bounds before = stored_size(stored);
    struct stored_turn *large = turn_of(stored, NULL, "large", 7000), *larger = turn_of(stored, NULL, "larger", 11000);
    for (size_t i = 0; i < 11000; i++) buf_puts(&text, "x");
    assert_int_equal(stored_extend(stored, NULL, "conv", large), STORED_TOO_LARGE);
    assert_int_equal(stored_set_turn(stored, NULL, "conv", larger), STORED_TOO_LARGE);
    assert_int_equal(stored_set_text(stored, NULL, "conv", &text), STORED_TOO_LARGE);
    assert_false(stored_put(stored, &(struct stored_entry){.id = "conv", .text = &text, .turn = large}));
    assert_int_equal(stored_extend(stored, NULL, "nobody", large), STORED_ABSENT);
    assert_null(large->before);
    assert_items(stored, "conv", "conv ");
    assert_true(has(stored, NULL, "conv") && has(stored, NULL, "other"));
    assert_int_equal(stored_size(stored).bytes, before.bytes);
    assert_int_equal(stored_size(stored).entries, before.entries);
    /* In place of what is there it fits, and the other one has to leave for it. */
    struct stored_turn *fitting = turn_of(stored, NULL, "b", 5300);
    assert_int_equal(stored_extend(stored, NULL, "conv", fitting), STORED_CHANGED);
    stored_turn_unref(stored, fitting);
    assert_false(has(stored, NULL, "other"));
    assert_items(stored, "conv", "conv b ");
    assert_int_equal(stored_set_turn(stored, NULL, "conv", large), STORED_CHANGED);
    stored_turn_unref(stored, large);
    stored_turn_unref(stored, larger);
    stored_close(stored);
}

/* ---- At random ---- */

enum { IDS = 12, ROUNDS = 20000, BOUND = 20000 };

static uint32_t random_state = 1;

static uint32_t below(uint32_t n)
{
    random_state = random_state * 1664525 + 1013904223;
    return (random_state >> 8) % n;
}

static void list_ids(struct stored *stored, const char *const ids[IDS], bool there[IDS])
{
    struct stored_found found;
    for (int i = 0; i < IDS; i++) { /* in a fixed order, which leaves the order of uses to the changes but for these */
        there[i] = stored_find(stored, NULL, ids[i], false, &found);
        if (there[i]) stored_release(stored, &found);
    }
}

static enum stored_change change_one(struct stored *stored, const char *id, struct stored_turn *turn)
{
    struct buf text = {0};
    enum stored_change change;
    buf_puts(&text, id);
    switch (below(4)) {
    case 0:
        change = stored_put(stored, &(struct stored_entry){.id = id, .text = &text, .turn = turn}) ? STORED_CHANGED
                                                                                                   : STORED_TOO_LARGE;
        break;
    case 1:
        change = turn->before == NULL ? stored_extend(stored, NULL, id, turn) : STORED_ABSENT;
        break;
    case 2:
        change = stored_set_turn(stored, NULL, id, turn);
        break;
    default:
        for (uint32_t i = below(BOUND / 8); i > 0; i--) buf_puts(&text, "xxxxxxxxxx");
        change = stored_set_text(stored, NULL, id, &text);
        break;
    }
    buf_release(&text);
    return change;
}

static void whatever_happens_a_change_keeps_what_it_changes_and_else_everything(void **state)
{
    (void)state;
    static const char *const ids[IDS] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"};
    struct stored *stored = opened(8, BOUND);
    struct stored_found held = {.turn = NULL};
    int outcomes[3] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t which = below(IDS);
        bool before[IDS], after[IDS];
        list_ids(stored, ids, before);
        size_t bytes = stored_size(stored).bytes;
        struct stored_turn *turn =
            turn_of(stored, below(2) == 0 ? held.turn : NULL, "x", below(below(8) == 0 ? BOUND * 3 / 2 : BOUND / 6));
        enum stored_change change = change_one(stored, ids[which], turn);
        outcomes[change]++;
        stored_turn_unref(stored, turn);
        assert_true(stored_size(stored).bytes <= BOUND && stored_size(stored).entries <= 8);
        if (change != STORED_CHANGED) assert_int_equal(stored_size(stored).bytes, bytes);
        list_ids(stored, ids, after);
        if (change == STORED_CHANGED)
            assert_true(after[which]);
        else
            assert_memory_equal(before, after, sizeof before);
        if (below(3) == 0) {
            stored_release(stored, &held);
            stored_find(stored, NULL, ids[below(IDS)], below(2) == 0, &held);
        }
    }
    for (int i = 0; i < 3; i++) assert_true(outcomes[i] > ROUNDS / 50);
    for (int i = 0; i < IDS; i++) stored_remove(stored, NULL, ids[i]);
    assert_int_equal(stored_size(stored).bytes, 0); /* whatever is held */
    stored_release(stored, &held);
    stored_close(stored);
}

static void a_turn_that_is_held_outlives_its_entry(void **state)
{
    (void)state;
    struct stored *stored = opened(10, 1 << 20);
    struct stored_found found;
    put_after(stored, NULL, "1", 10);
    assert_true(stored_find(stored, NULL, "1", false, &found));
    assert_true(stored_remove(stored, NULL, "1"));
    assert_int_equal(found.turn->items[0].len, 10);
    put_after(stored, NULL, "2", 10);
    stored_release(stored, &found);
    assert_true(has(stored, NULL, "2"));
    stored_close(stored);
}

/* Two requests at once in one conversation: both turns are in it, in the order in which they ended. */
static void a_turn_follows_what_is_the_last_one_of_a_conversation_then(void **state)
{
    (void)state;
    struct stored *stored = opened(10, 1 << 20);
    struct stored_turn *turns[] = {turn_of(stored, NULL, "b", 5), turn_of(stored, NULL, "c", 5)};
    put_after(stored, NULL, "conv", 5);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(stored_extend(stored, NULL, "conv", turns[i]), STORED_CHANGED);
        stored_turn_unref(stored, turns[i]);
    }
    assert_items(stored, "conv", "conv b c ");
    assert_int_equal(stored_size(stored).entries, 1);
    struct stored_turn *late = turn_of(stored, NULL, "d", 5);
    assert_true(stored_remove(stored, NULL, "conv"));
    assert_int_equal(stored_extend(stored, NULL, "conv", late), STORED_ABSENT);
    stored_turn_unref(stored, late);
    assert_int_equal(stored_size(stored).bytes, 0);
    stored_close(stored);
}

/* Freeing a long chain must not recurse. */
static void a_conversation_may_be_very_long(void **state)
{
    (void)state;
    struct stored *stored = opened(2, SIZE_MAX);
    struct stored_turn *turn = turn_of(stored, NULL, "0", 1);
    for (int i = 0; i < 300000; i++) {
        struct stored_turn *next = turn_of(stored, turn, "x", 1);
        put(stored, NULL, "last", next);
        stored_turn_unref(stored, turn);
        turn = next;
    }
    stored_turn_unref(stored, turn);
    assert_int_equal(stored_size(stored).entries, 1);
    stored_close(stored);
}

static void nothing_is_stored_where_nothing_may_be(void **state)
{
    (void)state;
    struct stored *stored = opened(0, 1 << 20);
    assert_false(stored_is_on(stored));
    put_after(stored, NULL, "1", 10);
    assert_false(has(stored, NULL, "1"));
    assert_int_equal(stored_size(stored).bytes, 0);
    stored_close(stored);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_owner_finds_its_own_and_nobody_elses),
        cmocka_unit_test(the_least_recently_used_entry_is_evicted_first),
        cmocka_unit_test(an_entry_replaces_one_with_its_id),
        cmocka_unit_test(turns_are_counted_once_and_as_long_as_something_leads_to_them),
        cmocka_unit_test(bytes_are_bounded_whatever_is_stored),
        cmocka_unit_test(a_conversation_of_more_than_half_of_all_bytes_can_be_changed),
        cmocka_unit_test(what_does_not_fit_changes_nothing_and_evicts_nobody),
        cmocka_unit_test(whatever_happens_a_change_keeps_what_it_changes_and_else_everything),
        cmocka_unit_test(a_turn_that_is_held_outlives_its_entry),
        cmocka_unit_test(a_turn_follows_what_is_the_last_one_of_a_conversation_then),
        cmocka_unit_test(a_conversation_may_be_very_long),
        cmocka_unit_test(nothing_is_stored_where_nothing_may_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
