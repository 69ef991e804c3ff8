/* The index by example: lookups, reservations, and that its size costs no time. */
#include "index_texts.h"
#include "store/index/index_parts.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LONG = 9000 };

/* ---- Lookups ---- */

static void the_longest_aligned_entry_wins_and_without_it_the_next(void **state)
{
    (void)state;
    static int32_t tokens[LONG];
    for (int32_t i = 0; i < LONG; i++) tokens[i] = i;
    struct identity identity = some_identity(1);
    struct index *index = index_open(2048, 1000, count_freed);
    static const int32_t ends[] = {2048, 4096, 8192};
    for (size_t i = 0; i < 3; i++) {
        struct reserve what = reserve_of(&identity, tokens, i == 0 ? 0 : ends[i - 1], ends[i], 10);
        assert_int_equal(save(index, &what, 0), RESERVED);
    }
    static const int32_t expected[] = {8192, 4096, 2048, 0};
    static const uint32_t probes[] = {1, 3, 4, 0}; /* no probe for an identity without entries */
    for (size_t i = 0; i < 4; i++) {
        struct match match = find(index, &identity, tokens, LONG, 2048, false);
        assert_int_equal(match.n_rows, expected[i]);
        assert_int_equal(match.probes, probes[i]);
        assert_int_equal(verified(index, match.rows, tokens, match.n_rows), match.n_rows);
        if (match.rows != NULL) assert_int_equal(delete_all(index, index_drop(index, match.rows)), 1);
        index_release(index, &match);
    }
    close_quiet(index);
}

static void there_are_never_more_probes_than_strides(void **state)
{
    (void)state;
    struct index *index = open_index(1000);
    put(index, 0, "ab", 1);
    for (int32_t n = 0; n < 40; n++) {
        char text[TEXT] = {0};
        memset(text, 'x', (size_t)n);
        struct match match = look(index, text, false);
        assert_int_equal(match.probes, n / STRIDE);
        index_release(index, &match);
    }
    close_quiet(index);
}

static void a_match_goes_on_beyond_the_strides_and_into_the_middle(void **state)
{
    (void)state;
    struct index *index = open_index(1000);
    assert_int_equal(put(index, 0, "abcdefghij", 1), RESERVED);
    assert_int_equal(put(index, 10, "abcdefghijklm", 1), RESERVED);
    assert_int_equal(put(index, 3, "abcXYZ", 1), RESERVED);
    expect_rows(index, "", 0);
    expect_rows(index, "b", 0);
    expect_rows(index, "a", 1);
    expect_rows(index, "abcd", 4);
    expect_rows(index, "abcdefghij", 10);
    expect_rows(index, "abcdefghijk", 11);
    expect_rows(index, "abcdefghijkX", 11);
    expect_rows(index, "abcdefghijklm", 13);
    expect_rows(index, "abcdefghijklmn", 13);
    expect_rows(index, "abcX", 4);
    expect_rows(index, "abcXYZ!", 6);
    expect_rows(index, "abcXYZ", 6);
    expect_rows(index, "abcY", 3);
    close_quiet(index);
}

/* Two saves at once with a common prefix: the shorter ends at a stride, where a key leads to it; the longer does not.
 */
static void what_is_stored_twice_is_found_at_its_longest(void **state)
{
    (void)state;
    struct index *index = open_index(1000);
    put(index, 0, "abcd", 1);
    put(index, 4, "abcdefgh", 1);
    put(index, 2, "abcdefghijk", 1);
    put(index, 0, "abcdefghijkl?", 1);
    expect_rows(index, "abcdefgh", 8);
    expect_rows(index, "abcdefghijk", 11);
    expect_rows(index, "abcdefghijkl!", 12);
    close_quiet(index);
}

static void the_entry_of_a_match_has_the_rows_before_its_end(void **state)
{
    (void)state;
    struct index *index = open_index(1000);
    put(index, 0, "abcdef", 1);
    put(index, 3, "abcXYZ", 1);
    struct match match = look(index, "abc", false); /* the branch starts only after it */
    assert_int_equal(match.rows->start, 0);
    index_release(index, &match);
    close_quiet(index);
}

static void identities_share_nothing(void **state)
{
    (void)state;
    struct index *index = open_index(1000);
    put(index, 0, "abcdefgh", 1);
    struct identity plain = mine;
    mine = identity_salted(&plain, "alice");
    expect_rows(index, "abcdefgh", 0);
    assert_int_equal(put(index, 4, "abcdefghij", 1), RESERVED_ORPHAN);
    assert_int_equal(put(index, 0, "abcd", 1), RESERVED);
    expect_rows(index, "abcdefgh", 4);
    mine = plain;
    expect_rows(index, "abcdefgh", 8);
    close_quiet(index);
}

static void a_key_that_lies_is_no_match(void **state)
{
    (void)state;
    struct index *index = open_index(1000);
    struct spelled s;
    spelled(&s, SLAB_ROWS, 0, "abcdefgh", 1);
    s.what.key = key_of_text("abcdEFGH");
    assert_int_equal(save(index, &s.what, 0), RESERVED);
    expect_rows(index, "abcdEFGH", 4);
    expect_rows(index, "abcdefgh", 8);
    struct identity other = identity_salted(&mine, "alice");
    spelled(&s, SLAB_ROWS, 0, "wxyz", 1);
    s.what.identity = &other;
    assert_int_equal(save(index, &s.what, 0), RESERVED);
    expect_rows(index, "wxyz", 0); /* another list's, though the key is equal */
    close_quiet(index);
}

static void a_state_matches_to_its_end_or_not_at_all(void **state)
{
    (void)state;
    struct index *index = open_index(1000);
    assert_int_equal(put_kind(index, SLAB_STATE, 5, "abcde", 1), RESERVED_ORPHAN);
    put(index, 0, "abcdefghij", 1);
    assert_int_equal(put_kind(index, SLAB_STATE, 5, "abcde", 1), RESERVED);
    assert_int_equal(put_kind(index, SLAB_STATE, 10, "abcdefghij", 1), RESERVED);
    expect_state(index, "abcd", 4, 0);
    expect_state(index, "abcde", 5, 5);
    expect_state(index, "abcdefghi", 9, 5);
    expect_state(index, "abcdefghij", 10, 10);
    expect_state(index, "abcdefghijkl", 10, 10);
    expect_rows(index, "abcde", 5);
    close_quiet(index);
}

static void states_without_rows_cover_the_tokens_since_the_last(void **state)
{
    (void)state;
    struct index *index = open_index(1000);
    assert_int_equal(put_kind(index, SLAB_STATE, 0, "abcde", 1), RESERVED);
    assert_int_equal(put_kind(index, SLAB_STATE, 3, "abcXY", 1), RESERVED_ORPHAN); /* there is no STATE at 3 */
    assert_int_equal(put_kind(index, SLAB_STATE, 5, "abcdefgh", 1), RESERVED);
    assert_int_equal(put(index, 5, "abcdef", 1), RESERVED_ORPHAN);
    expect_state(index, "abcd", 0, 0);
    expect_state(index, "abcdefg", 0, 5);
    expect_state(index, "abcdefgh", 0, 8);
    close_quiet(index);
}

static void a_second_lookup_finds_what_was_saved_meanwhile(void **state)
{
    (void)state;
    struct index *index = open_index(1000);
    put(index, 0, "abcdef", 1);
    int32_t tokens[TEXT], n = spell("abcdefghijkl", tokens);
    struct match match = look(index, "abcdefghijkl", true);
    assert_int_equal(match.n_rows, 6);
    put(index, 6, "abcdefghi", 1);
    put_kind(index, SLAB_STATE, 8, "abcdefgh", 1);
    struct index_lookup lookup = {.identity = &mine, .tokens = tokens, .n = n, .states = true};
    index_find_again(index, &lookup, &match);
    assert_int_equal(match.n_rows, 9);
    assert_int_equal(match.n_state, 8);
    assert_int_equal(match.probes, 0);
    assert_int_equal(index_usage(index).pins, 2);
    struct entry *rows = match.rows;
    while (rows->parent != NULL) rows = rows->parent;
    assert_int_equal(delete_all(index, index_drop(index, rows)), 1); /* the others are detached */
    index_find_again(index, &lookup, &match);
    assert_int_equal(match.n_rows + match.n_state, 0);
    assert_int_equal(index_usage(index).pins, 0);
    put(index, 0, "ab", 1);
    index_find_again(index, &lookup, &match);
    assert_int_equal(match.n_rows, 2);
    put(index, 0, "abcdef", 1);
    index_find_again(index, &lookup, &match);
    assert_int_equal(match.n_rows, 9);
    assert_int_equal(match.n_state, 8);
    index_release(index, &match);
    close_quiet(index);
}

/* ---- Reservations ---- */

static void a_key_has_one_writer(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    struct reservation *reservation = begin(index, 0, "abc", 10);
    assert_int_equal(put(index, 0, "abc", 10), RESERVED_WRITING);
    assert_int_equal(has(index, "abc"), INDEX_WRITING);
    expect_rows(index, "abc", 0);
    assert_int_equal(put(index, 3, "abcd", 10), RESERVED_ORPHAN);
    index_cancel(index, reservation);
    assert_int_equal(has(index, "abc"), INDEX_ABSENT);
    assert_int_equal(put(index, 0, "abc", 10), RESERVED);
    assert_int_equal(put(index, 0, "abc", 10), RESERVED_PRESENT);
    close_quiet(index);
}

static enum reserved reserve_on(struct index *index, enum slab_kind kind, struct entry *parent, int32_t start,
                                const char *text)
{
    struct spelled s;
    spelled(&s, kind, start, text, 1);
    s.what.parent = parent;
    s.what.tokens += start;
    struct reservation *reservation;
    struct victim *victims;
    enum reserved result = index_reserve(index, &s.what, &reservation, &victims);
    if (result == RESERVED) index_cancel(index, reservation);
    assert_null(victims);
    return result;
}

static void a_parent_that_does_not_have_the_rows_before_is_refused(void **state)
{
    (void)state;
    struct index *index = open_index(1000);
    put(index, 0, "abc", 1);
    put(index, 3, "abcdef", 1);
    struct entry *parent = pin(index, "abcdef");
    assert_int_equal(reserve_on(index, SLAB_ROWS, parent, 4, "abcdX"), RESERVED);
    assert_int_equal(reserve_on(index, SLAB_ROWS, parent, 6, "abcdefg"), RESERVED);
    assert_int_equal(reserve_on(index, SLAB_STATE, parent, 6, "abcdef"), RESERVED);
    assert_int_equal(reserve_on(index, SLAB_ROWS, parent, 3, "abcX"), RESERVED_ORPHAN); /* its parent has those rows */
    assert_int_equal(reserve_on(index, SLAB_ROWS, parent, 7, "abcdefgh"), RESERVED_ORPHAN); /* after its end */
    assert_int_equal(reserve_on(index, SLAB_STATE, parent, 6, "abcdefg"), RESERVED_ORPHAN); /* its parent is no STATE */
    assert_int_equal(reserve_on(index, SLAB_ROWS, NULL, 6, "abcdefg"), RESERVED_ORPHAN);
    struct identity plain = mine;
    mine = identity_salted(&plain, "alice");
    assert_int_equal(reserve_on(index, SLAB_ROWS, parent, 6, "abcdefg"), RESERVED_ORPHAN); /* another identity's */
    put(index, 0, "x", 1);
    assert_int_equal(reserve_on(index, SLAB_ROWS, parent, 6, "abcdefg"), RESERVED_ORPHAN);
    mine = plain;
    delete_all(index, index_drop(index, parent));
    assert_int_equal(reserve_on(index, SLAB_ROWS, parent, 6, "abcdefg"), RESERVED_ORPHAN);
    index_unpin(index, parent);
    close_quiet(index);
}

/* A slow write delays no lookup. */
static void readers_do_not_wait_for_slabs_that_are_written_or_deleted(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "old", 40);
    put(index, 0, "abcdef", 20);
    struct reservation *writing[3] = {begin(index, 6, "abcdefgh", 10), begin(index, 3, "abcX", 10),
                                      begin(index, 0, "xyz", 20)};
    struct spelled s;
    spelled(&s, SLAB_ROWS, 0, "big", 40);
    struct reservation *big;
    struct victim *victims;
    assert_int_equal(reserve(index, &s.what, &big, &victims), RESERVED);
    expect_rows(index, "abcdefgh", 6);
    expect_rows(index, "old", 0);
    delete_all(index, victims);
    index_cancel(index, big);
    for (size_t i = 0; i < 3; i++) index_cancel(index, writing[i]);
    close_quiet(index);
}

static void a_hit_is_counted(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 10);
    struct entry *entry = pin(index, "abc");
    assert_int_equal(index_touch(index, entry, 7), 1);
    assert_int_equal(index_touch(index, entry, 8), 2);
    index_unpin(index, entry);
    close_quiet(index);
}

/* ---- The rest ---- */

static void count_mine(void *ud, const struct entry *entry, const struct identity *identity)
{
    assert_true(identity_equal(identity, &mine));
    *(int32_t *)ud += entry->end;
}

static void every_entry_is_shown_with_its_identity(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 1);
    put(index, 3, "abcd", 1);
    int32_t ends = 0;
    index_each(index, count_mine, &ends);
    assert_int_equal(ends, 7);
    assert_int_equal(delete_all(index, evict_all(index)), 2);
    index_each(index, count_mine, &ends);
    assert_int_equal(ends, 7);
    close_quiet(index);
}

static void whoever_changes_an_index_without_its_mutex_is_stopped(void **state)
{
    (void)state;
    struct index *index = open_index(100);
    put(index, 0, "abc", 1);
    pid_t child = fork();
    if (child == 0) {
        fclose(stderr);
        struct hash_link *link = hash_any(&index->items, &(size_t){0});
        item_pin(index, container_of(struct item, link, link));
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    close_quiet(index);
}

/* ---- Size ---- */

enum { MANY = 100000, SIBLINGS = 500, WIDTH = 8 };

static double cpu_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

/* Each entry has up to 500 children at its end, and all of these begin alike: five times `first`, then their number. */
static int32_t path_of(int32_t i, int32_t first, int32_t tokens[TEXT])
{
    int32_t n = 0;
    if (i >= SIBLINGS) n = path_of(i / SIBLINGS - 1, first, tokens);
    for (int32_t k = 0; k < WIDTH; k++) tokens[n + k] = k < 5 ? first : i >> 8 * (k - 5) & 255;
    return n + WIDTH;
}

static void put_many(struct index *index, int32_t first)
{
    int32_t tokens[TEXT];
    for (int32_t i = 0; i < MANY; i++) {
        int32_t end = path_of(i, first, tokens);
        struct reserve what = reserve_of(&mine, tokens, end - WIDTH, end, 1);
        assert_int_equal(save(index, &what, i), RESERVED);
    }
}

/* The time of no operation may grow with the number of entries; the limit is a hundred times what it takes. */
static void a_hundred_thousand_entries_are_as_fast_as_a_few(void **state)
{
    (void)state;
    struct index *index = open_index(MANY);
    double start = cpu_us();
    put_many(index, 0);
    double saved = cpu_us();
    int32_t tokens[TEXT];
    for (int32_t i = 0; i < MANY; i++) {
        int32_t n = path_of(i, 0, tokens);
        struct match match = find(index, &mine, tokens, n, STRIDE, false);
        index_release(index, &match);
    }
    double found = cpu_us();
    put_many(index, 1); /* evicts all others */
    double evicted = cpu_us();
    assert_int_equal(index_usage(index).evictions, MANY);
    printf("    of %d: a save %.1f us, a lookup %.1f us, a save that evicts %.1f us\n", MANY, (saved - start) / MANY,
           (found - saved) / MANY, (evicted - found) / MANY);
    assert_true(evicted - start < 3 * MANY * 300.0);
    close_quiet(index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_aligned_entry_wins_and_without_it_the_next),
        cmocka_unit_test(there_are_never_more_probes_than_strides),
        cmocka_unit_test(a_match_goes_on_beyond_the_strides_and_into_the_middle),
        cmocka_unit_test(what_is_stored_twice_is_found_at_its_longest),
        cmocka_unit_test(the_entry_of_a_match_has_the_rows_before_its_end),
        cmocka_unit_test(identities_share_nothing),
        cmocka_unit_test(a_key_that_lies_is_no_match),
        cmocka_unit_test(a_state_matches_to_its_end_or_not_at_all),
        cmocka_unit_test(states_without_rows_cover_the_tokens_since_the_last),
        cmocka_unit_test(a_second_lookup_finds_what_was_saved_meanwhile),
        cmocka_unit_test(a_key_has_one_writer),
        cmocka_unit_test(a_parent_that_does_not_have_the_rows_before_is_refused),
        cmocka_unit_test(readers_do_not_wait_for_slabs_that_are_written_or_deleted),
        cmocka_unit_test(a_hit_is_counted),
        cmocka_unit_test(every_entry_is_shown_with_its_identity),
        cmocka_unit_test(whoever_changes_an_index_without_its_mutex_is_stopped),
        cmocka_unit_test(a_hundred_thousand_entries_are_as_fast_as_a_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
