/* Snapshots in memory: the budget, the LRU order, and lookups. The last test does random operations and compares with
 * an oracle of plain lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/memory.h"
#include "engine/snapshots.h"

#include <stdlib.h>
#include <string.h>

enum { WHOLE = -1, SCOPE = 7 };

/* ---- Making snapshots ---- */

/* The letters of `text` are the tokens. */
static struct tokens tokens_of(const char *text)
{
    struct tokens tokens = {0};
    for (; *text != '\0'; text++) tokens_push(&tokens, *text);
    return tokens;
}

static struct snapshot state_of(const char *text, size_t size, int32_t home, uint64_t scope)
{
    return (struct snapshot){
        .tokens = tokens_of(text), .home = home, .scope = scope, .bytes = mem_alloc(size), .size = size};
}

static const struct snapshot *put_at(struct snapshots *snapshots, const char *text, size_t size, int32_t home)
{
    return snapshots_put(snapshots, state_of(text, size, home, SCOPE));
}

static const struct snapshot *put(struct snapshots *snapshots, const char *text, size_t size)
{
    return put_at(snapshots, text, size, WHOLE);
}

/* ---- Lookups ---- */

static bool says(const struct snapshot *snapshot, const char *text)
{
    struct tokens tokens = tokens_of(text);
    bool same = snapshot->tokens.len == tokens.len && tokens_common_prefix(&snapshot->tokens, &tokens) == tokens.len;
    tokens_release(&tokens);
    return same;
}

static const struct snapshot *find_in(const struct snapshots *snapshots, const char *prompt, uint64_t scope, bool cuts,
                                      int32_t *common)
{
    struct tokens tokens = tokens_of(prompt);
    const struct snapshot *found = snapshots_find(snapshots, tokens.v, (int32_t)tokens.len, scope, cuts, common);
    tokens_release(&tokens);
    return found;
}

static void expect_found(const struct snapshots *snapshots, const char *prompt, bool cuts, const char *text,
                         int32_t common)
{
    int32_t n = -1;
    const struct snapshot *found = find_in(snapshots, prompt, SCOPE, cuts, &n);
    if (found == NULL || !says(found, text)) fail_msg("'%s' did not find '%s'", prompt, text);
    assert_int_equal(n, common);
}

static void expect_nothing(const struct snapshots *snapshots, const char *prompt, bool cuts)
{
    int32_t n = -1;
    assert_null(find_in(snapshots, prompt, SCOPE, cuts, &n));
    assert_int_equal(n, 0);
}

static bool holds(const struct snapshots *snapshots, const char *text)
{
    int32_t n;
    const struct snapshot *found = find_in(snapshots, text, SCOPE, false, &n);
    return found != NULL && says(found, text);
}

static const struct snapshot *find_at(const struct snapshots *snapshots, int32_t home, const char *prompt)
{
    struct tokens tokens = tokens_of(prompt);
    const struct snapshot *found = snapshots_find_checkpoint(snapshots, home, tokens.v, (int32_t)tokens.len);
    tokens_release(&tokens);
    return found;
}

static void expect_usage(const struct snapshots *snapshots, uint64_t bytes, size_t n, uint64_t evictions)
{
    struct snapshots_usage usage = snapshots_usage(snapshots);
    assert_int_equal(usage.bytes, bytes);
    assert_int_equal(usage.n, n);
    assert_int_equal(usage.evictions, evictions);
}

/* ---- The budget ---- */

static void the_least_recently_used_is_evicted(void **unused)
{
    (void)unused;
    struct snapshots *snapshots = snapshots_open(100);
    put(snapshots, "a", 40);
    const struct snapshot *b = put(snapshots, "b", 40);
    put(snapshots, "c", 20);
    expect_usage(snapshots, 100, 3, 0);
    assert_non_null(put(snapshots, "d", 10));
    assert_false(holds(snapshots, "a"));
    expect_usage(snapshots, 70, 3, 1);
    snapshots_touch(snapshots, b);
    assert_non_null(put(snapshots, "e", 50)); /* "c" is the least recently used now; evicting it is enough */
    assert_true(holds(snapshots, "b"));
    assert_false(holds(snapshots, "c"));
    expect_usage(snapshots, 100, 3, 2);
    assert_int_equal(snapshots_usage(snapshots).budget, 100);
    snapshots_close(snapshots);
}

static void finding_is_not_using(void **unused)
{
    (void)unused;
    struct snapshots *snapshots = snapshots_open(20);
    put(snapshots, "a", 10);
    put(snapshots, "b", 10);
    assert_true(holds(snapshots, "a"));
    put(snapshots, "c", 10);
    assert_false(holds(snapshots, "a"));
    assert_true(holds(snapshots, "b"));
    snapshots_close(snapshots);
}

static void a_snapshot_larger_than_the_budget_is_refused_and_evicts_nothing(void **unused)
{
    (void)unused;
    struct snapshots *snapshots = snapshots_open(100);
    assert_null(put(snapshots, "huge", 101));
    put(snapshots, "a", 60);
    put(snapshots, "b", 40);
    assert_null(put(snapshots, "huge", 101));
    assert_null(put(snapshots, "a", 101)); /* nor is the one evicted that it would replace */
    assert_true(holds(snapshots, "a"));
    expect_usage(snapshots, 100, 2, 0);
    assert_non_null(put(snapshots, "all", 100));
    expect_usage(snapshots, 100, 1, 2);
    snapshots_close(snapshots);
}

static void nothing_is_kept_without_a_budget(void **unused)
{
    (void)unused;
    struct snapshots *snapshots = snapshots_open(0);
    assert_int_equal(snapshots_available(snapshots), 0);
    assert_null(put(snapshots, "a", 1));
    expect_nothing(snapshots, "a", true);
    expect_usage(snapshots, 0, 0, 0);
    snapshots_close(snapshots);
    snapshots_close(NULL);
}

/* ---- Pins ---- */

static void what_is_pinned_stays_until_it_is_dropped(void **unused)
{
    (void)unused;
    struct snapshots *snapshots = snapshots_open(100);
    const struct snapshot *a = put(snapshots, "a", 60);
    snapshots_pin(snapshots, a);
    assert_int_equal(snapshots_available(snapshots), 40);
    put(snapshots, "b", 40);
    assert_int_equal(snapshots_available(snapshots), 40); /* "b" can be evicted */
    assert_null(put(snapshots, "c", 41));
    assert_true(holds(snapshots, "b"));
    assert_non_null(put(snapshots, "c", 30));
    assert_true(says(a, "a"));
    assert_false(holds(snapshots, "b"));
    expect_usage(snapshots, 90, 2, 1);
    snapshots_drop(snapshots, a);
    assert_false(holds(snapshots, "a"));
    assert_int_equal(snapshots_available(snapshots), 100);
    expect_usage(snapshots, 30, 1, 1); /* what is dropped was not evicted */
    snapshots_close(snapshots);
}

static void what_is_held_stays_is_found_and_is_not_replaced(void **unused)
{
    (void)unused;
    struct snapshots *snapshots = snapshots_open(100);
    const struct snapshot *a = put(snapshots, "a", 60);
    snapshots_hold(snapshots, a);
    assert_int_equal(snapshots_available(snapshots), 40);
    assert_null(put(snapshots, "b", 41));
    assert_true(holds(snapshots, "a"));
    assert_ptr_not_equal(put(snapshots, "a", 40), a);
    assert_true(says(a, "a"));
    expect_usage(snapshots, 100, 2, 0);
    snapshots_unhold(snapshots, a);
    assert_int_equal(snapshots_available(snapshots), 100);
    assert_non_null(put(snapshots, "b", 50));
    expect_usage(snapshots, 90, 2, 1); /* it was the least recently used */
    snapshots_close(snapshots);
}

/* ---- Replacing ---- */

static void the_same_tokens_home_and_scope_are_one_snapshot(void **unused)
{
    (void)unused;
    struct snapshots *snapshots = snapshots_open(100);
    put(snapshots, "ab", 50);
    struct snapshot again = state_of("ab", 30, -5, SCOPE); /* whole, whatever negative home it has */
    again.n_exact = 2;
    const struct snapshot *kept = snapshots_put(snapshots, again);
    assert_int_equal(kept->n_exact, 2);
    expect_usage(snapshots, 30, 1, 0);
    put_at(snapshots, "ab", 10, 3);
    put_at(snapshots, "ab", 10, 4);
    snapshots_put(snapshots, state_of("ab", 10, WHOLE, SCOPE + 1));
    put(snapshots, "abc", 10);
    put(snapshots, "ac", 10);
    expect_usage(snapshots, 80, 6, 0);
    snapshots_close(snapshots);
}

static void what_replaces_counts_as_used_last_and_may_use_the_room_of_the_other(void **unused)
{
    (void)unused;
    struct snapshots *snapshots = snapshots_open(100);
    put(snapshots, "a", 50);
    put(snapshots, "b", 50);
    put(snapshots, "a", 50);
    expect_usage(snapshots, 100, 2, 0);
    put(snapshots, "c", 10);
    assert_true(holds(snapshots, "a"));
    assert_false(holds(snapshots, "b"));
    snapshots_close(snapshots);
}

static void what_is_pinned_is_not_replaced(void **unused)
{
    (void)unused;
    struct snapshots *snapshots = snapshots_open(100);
    const struct snapshot *a = put(snapshots, "a", 60);
    snapshots_pin(snapshots, a);
    const struct snapshot *again = put(snapshots, "a", 30);
    assert_ptr_not_equal(again, a);
    expect_usage(snapshots, 90, 2, 0);
    assert_ptr_equal(put(snapshots, "a", 40), again); /* an equal one, which is not pinned */
    expect_usage(snapshots, 100, 2, 0);
    snapshots_drop(snapshots, a);
    expect_usage(snapshots, 40, 1, 0);
    snapshots_close(snapshots);
}

/* ---- Whole snapshots ---- */

static void what_cannot_be_cut_must_lie_within_the_prompt(void **unused)
{
    (void)unused;
    struct snapshots *snapshots = snapshots_open(100);
    put(snapshots, "ab", 10);
    put(snapshots, "abcd", 10);
    put(snapshots, "abcxyz", 10);
    expect_found(snapshots, "abcdef", false, "abcd", 4);
    expect_found(snapshots, "abcd", false, "abcd", 4);
    expect_found(snapshots, "abcx", false, "ab", 2);
    expect_found(snapshots, "abcxyzz", false, "abcxyz", 6);
    expect_nothing(snapshots, "a", false);
    expect_nothing(snapshots, "xbcd", false);
    expect_nothing(snapshots, "", false);
    snapshots_close(snapshots);
}

static void what_can_be_cut_may_be_longer_and_diverge_from_the_prompt(void **unused)
{
    (void)unused;
    struct snapshots *snapshots = snapshots_open(100);
    put(snapshots, "ab", 10);
    put(snapshots, "abcd", 10);
    put(snapshots, "abcxyz", 10);
    expect_found(snapshots, "abcx", true, "abcxyz", 4);
    expect_found(snapshots, "abcdef", true, "abcd", 4);
    expect_found(snapshots, "abcxq", true, "abcxyz", 4);
    expect_nothing(snapshots, "xab", true);
    expect_nothing(snapshots, "", true);
    snapshots_close(snapshots);
}

static void of_several_that_agree_as_far_the_smallest_is_found(void **unused)
{
    (void)unused;
    struct snapshots *snapshots = snapshots_open(100);
    put(snapshots, "abcde", 30);
    put(snapshots, "abc", 10);
    put(snapshots, "abcd", 20);
    expect_found(snapshots, "abcx", true, "abc", 3);
    expect_found(snapshots, "abcdx", true, "abcd", 4); /* though a smaller one has less in common */
    snapshots_close(snapshots);
}

static void snapshots_of_other_scopes_and_homes_are_not_found(void **unused)
{
    (void)unused;
    struct snapshots *snapshots = snapshots_open(100);
    put_at(snapshots, "abcd", 10, 0);
    snapshots_put(snapshots, state_of("abc", 10, WHOLE, SCOPE + 1));
    expect_nothing(snapshots, "abcd", true);
    expect_nothing(snapshots, "abcd", false);
    int32_t n;
    assert_true(says(find_in(snapshots, "abcd", SCOPE + 1, false, &n), "abc"));
    snapshots_close(snapshots);
}

/* ---- Checkpoints ---- */

static void the_longest_checkpoint_of_a_sequence_within_the_prompt_is_found(void **unused)
{
    (void)unused;
    struct snapshots *snapshots = snapshots_open(100);
    put_at(snapshots, "ab", 10, 2);
    put_at(snapshots, "abcd", 10, 2);
    put_at(snapshots, "abcdef", 10, 2);
    put_at(snapshots, "abcde", 10, 3);
    put(snapshots, "abcde", 10);
    assert_true(says(find_at(snapshots, 2, "abcdexx"), "abcd"));
    assert_true(says(find_at(snapshots, 3, "abcdexx"), "abcde"));
    assert_true(says(find_at(snapshots, 2, "abx"), "ab"));
    assert_null(find_at(snapshots, 2, "a"));
    assert_null(find_at(snapshots, 2, "xb"));
    assert_null(find_at(snapshots, 4, "abcdef"));
    snapshots_close(snapshots);
}

static void checkpoints_beyond_what_is_left_of_a_sequence_are_dropped(void **unused)
{
    (void)unused;
    struct snapshots *snapshots = snapshots_open(100);
    put_at(snapshots, "ab", 10, 2);
    put_at(snapshots, "abcd", 10, 2);
    snapshots_pin(snapshots, put_at(snapshots, "abcdef", 10, 2));
    put_at(snapshots, "abcdef", 10, 3);
    put(snapshots, "abcdef", 10);
    snapshots_invalidate(snapshots, 2, 4);
    assert_true(says(find_at(snapshots, 2, "abcdef"), "abcd"));
    assert_true(says(find_at(snapshots, 3, "abcdef"), "abcdef"));
    expect_usage(snapshots, 40, 4, 0);
    snapshots_invalidate(snapshots, 2, 0);
    assert_null(find_at(snapshots, 2, "abcdef"));
    assert_true(holds(snapshots, "abcdef"));
    expect_usage(snapshots, 20, 2, 0);
    snapshots_close(snapshots);
}

/* ---- Random operations ---- */

enum { MOST = 64, BUDGET = 200, N_OPERATIONS = 20000 };

/* What the oracle knows of a snapshot. The kept ones are in LRU order. */
struct record {
    char text[8];
    size_t size;
    int32_t home;
    uint64_t scope;
    bool pinned;
    const struct snapshot *snapshot;
};

struct oracle {
    struct snapshots *snapshots;
    struct record v[MOST];
    size_t n;
    uint64_t evictions;
    uint32_t random;
};

static uint32_t below(struct oracle *oracle, uint32_t n)
{
    oracle->random = oracle->random * 1664525 + 1013904223;
    return (oracle->random >> 8) % n;
}

/* Up to five letters of two, so that much is in common; as prompts too. */
static void random_text(struct oracle *oracle, char text[8], uint32_t least)
{
    uint32_t len = least + below(oracle, 6 - least);
    for (uint32_t i = 0; i < len; i++) text[i] = (char)('a' + below(oracle, 2));
    text[len] = '\0';
}

static struct record remove_record(struct oracle *oracle, size_t i)
{
    struct record record = oracle->v[i];
    oracle->n--;
    for (; i < oracle->n; i++) oracle->v[i] = oracle->v[i + 1];
    return record;
}

static uint64_t sum(const struct oracle *oracle, bool of_pinned)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < oracle->n; i++)
        if (!of_pinned || oracle->v[i].pinned) bytes += oracle->v[i].size;
    return bytes;
}

static bool oracle_put(struct oracle *oracle, struct record record)
{
    struct oracle before = *oracle;
    for (size_t i = 0; i < oracle->n; i++) {
        const struct record *other = &oracle->v[i];
        if (strcmp(other->text, record.text) != 0 || other->home != record.home || other->scope != record.scope ||
            other->pinned)
            continue;
        remove_record(oracle, i);
        break;
    }
    while (sum(oracle, false) + record.size > BUDGET) {
        size_t i = 0;
        while (i < oracle->n && oracle->v[i].pinned) i++;
        if (i == oracle->n) {
            *oracle = before;
            return false;
        }
        remove_record(oracle, i);
        oracle->evictions++;
    }
    oracle->v[oracle->n++] = record;
    return true;
}

static void random_put(struct oracle *oracle)
{
    struct record record = {.size = 1 + below(oracle, 40), .home = (int32_t)below(oracle, 3) - 1};
    if (below(oracle, 50) == 0) record.size = BUDGET + 1;
    record.scope = below(oracle, 2);
    random_text(oracle, record.text, 1);
    bool fits = oracle_put(oracle, record);
    const struct snapshot *snapshot =
        snapshots_put(oracle->snapshots, state_of(record.text, record.size, record.home, record.scope));
    assert_int_equal(snapshot != NULL, fits);
    if (fits) oracle->v[oracle->n - 1].snapshot = snapshot;
}

static void random_touch(struct oracle *oracle)
{
    if (oracle->n == 0) return;
    struct record record = remove_record(oracle, below(oracle, (uint32_t)oracle->n));
    snapshots_touch(oracle->snapshots, record.snapshot);
    oracle->v[oracle->n++] = record;
}

/* Seldom enough that something else can be evicted. */
static void random_pin(struct oracle *oracle)
{
    if (oracle->n == 0 || sum(oracle, true) > BUDGET / 2) return;
    struct record *record = &oracle->v[below(oracle, (uint32_t)oracle->n)];
    record->pinned = true;
    snapshots_pin(oracle->snapshots, record->snapshot);
}

static void random_drop(struct oracle *oracle)
{
    if (oracle->n == 0) return;
    snapshots_drop(oracle->snapshots, remove_record(oracle, below(oracle, (uint32_t)oracle->n)).snapshot);
}

static void random_forget(struct oracle *oracle)
{
    int32_t home = (int32_t)below(oracle, 2), n = (int32_t)below(oracle, 6);
    snapshots_invalidate(oracle->snapshots, home, n);
    for (size_t i = 0; i < oracle->n;) {
        if (oracle->v[i].home == home && strlen(oracle->v[i].text) > (size_t)n)
            remove_record(oracle, i);
        else
            i++;
    }
}

static size_t agreement(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] != '\0' && a[n] == b[n]) n++;
    return n;
}

/* The answer is among those with most in common, and none of these is smaller. */
static void check_find(struct oracle *oracle)
{
    char prompt[8];
    random_text(oracle, prompt, 0);
    bool cuts = below(oracle, 2) == 0;
    uint64_t scope = below(oracle, 2);
    size_t furthest = 0, smallest = SIZE_MAX;
    for (size_t i = 0; i < oracle->n; i++) {
        const struct record *record = &oracle->v[i];
        size_t agrees = agreement(record->text, prompt);
        if (record->home >= 0 || record->scope != scope || record->pinned) continue;
        if ((!cuts && agrees < strlen(record->text)) || agrees < furthest || agrees == 0) continue;
        if (agrees > furthest) smallest = SIZE_MAX;
        furthest = agrees;
        if (record->size < smallest) smallest = record->size;
    }
    int32_t common = -1;
    const struct snapshot *found = find_in(oracle->snapshots, prompt, scope, cuts, &common);
    assert_int_equal(common, furthest);
    assert_int_equal(found != NULL, furthest > 0);
    if (found == NULL) return;
    assert_int_equal(found->size, smallest);
    assert_true(found->home < 0 && found->scope == scope);
    for (int32_t i = 0; i < common; i++) assert_int_equal(found->tokens.v[i], prompt[i]);
}

static void check_find_at(struct oracle *oracle)
{
    char prompt[8];
    random_text(oracle, prompt, 0);
    int32_t home = (int32_t)below(oracle, 2);
    size_t longest = 0;
    for (size_t i = 0; i < oracle->n; i++) {
        size_t len = strlen(oracle->v[i].text);
        if (oracle->v[i].home == home && agreement(oracle->v[i].text, prompt) == len && len > longest) longest = len;
    }
    const struct snapshot *found = find_at(oracle->snapshots, home, prompt);
    assert_int_equal(found == NULL ? 0 : found->tokens.len, longest);
    assert_true(found == NULL || found->home == home);
}

static void twenty_thousand_random_operations_agree_with_the_oracle(void **unused)
{
    (void)unused;
    static void (*const operations[])(struct oracle *) = {random_put, random_put,   random_put,
                                                          random_put, random_touch, random_touch,
                                                          random_pin, random_drop,  random_forget};
    struct oracle oracle = {.snapshots = snapshots_open(BUDGET), .random = 1};
    for (int i = 0; i < N_OPERATIONS; i++) {
        operations[below(&oracle, (uint32_t)(sizeof operations / sizeof *operations))](&oracle);
        expect_usage(oracle.snapshots, sum(&oracle, false), oracle.n, oracle.evictions);
        assert_true(snapshots_usage(oracle.snapshots).bytes <= BUDGET);
        assert_int_equal(snapshots_available(oracle.snapshots), BUDGET - sum(&oracle, true));
        for (size_t k = 0; k < oracle.n; k++) assert_true(says(oracle.v[k].snapshot, oracle.v[k].text));
        check_find(&oracle);
        check_find_at(&oracle);
    }
    assert_true(oracle.evictions > 1000);
    snapshots_close(oracle.snapshots);
}

/* ---- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_recently_used_is_evicted),
        cmocka_unit_test(finding_is_not_using),
        cmocka_unit_test(a_snapshot_larger_than_the_budget_is_refused_and_evicts_nothing),
        cmocka_unit_test(nothing_is_kept_without_a_budget),
        cmocka_unit_test(what_is_pinned_stays_until_it_is_dropped),
        cmocka_unit_test(what_is_held_stays_is_found_and_is_not_replaced),
        cmocka_unit_test(the_same_tokens_home_and_scope_are_one_snapshot),
        cmocka_unit_test(what_replaces_counts_as_used_last_and_may_use_the_room_of_the_other),
        cmocka_unit_test(what_is_pinned_is_not_replaced),
        cmocka_unit_test(what_cannot_be_cut_must_lie_within_the_prompt),
        cmocka_unit_test(what_can_be_cut_may_be_longer_and_diverge_from_the_prompt),
        cmocka_unit_test(of_several_that_agree_as_far_the_smallest_is_found),
        cmocka_unit_test(snapshots_of_other_scopes_and_homes_are_not_found),
        cmocka_unit_test(the_longest_checkpoint_of_a_sequence_within_the_prompt_is_found),
        cmocka_unit_test(checkpoints_beyond_what_is_left_of_a_sequence_are_dropped),
        cmocka_unit_test(twenty_thousand_random_operations_agree_with_the_oracle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
