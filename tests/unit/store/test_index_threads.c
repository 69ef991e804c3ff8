/* The index from many threads: one writer a key, and readers beside writers that save, evict and drop.
 *
 * How long a lookup takes beside eight writers is printed and not asserted: on a machine with fewer cores than threads
 * it says more about the machine. That no lookup waits for a slab to be written is shown in test_index.c. */
#include "base/clock.h"
#include "index_helpers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { STRIDE = 16, WRITERS = 8, READERS = 4, LONGEST = 256, BUDGET = 3000, SAVES = 1500, LOOKUPS = 6000 };

static struct identity mine;

static void join_all(pthread_t *threads, size_t n)
{
    for (size_t i = 0; i < n; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
}

/* ---- One writer a key ---- */

enum { CROWD = 32, ROUNDS = 40 };

struct crowd {
    struct index *index;
    pthread_barrier_t start;
    int32_t token;
    _Atomic int n[RESERVED_NOT_ADMITTED + 1];
    struct reservation *_Atomic winner;
};

static void *reserve_the_same(void *ud)
{
    struct crowd *crowd = ud;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&crowd->start);
        struct reserve what = reserve_of(&mine, &crowd->token, 0, 1, 10);
        struct reservation *reservation;
        struct victim *victims;
        enum reserved result = reserve(crowd->index, &what, &reservation, &victims);
        crowd->n[result]++;
        if (result == RESERVED) crowd->winner = reservation;
        pthread_barrier_wait(&crowd->start);
    }
    return NULL;
}

static void of_many_that_reserve_one_key_one_writes(void **state)
{
    (void)state;
    mine = some_identity(1);
    struct crowd crowd = {.index = index_open(STRIDE, 10000, free)};
    pthread_barrier_init(&crowd.start, NULL, CROWD + 1);
    pthread_t threads[CROWD];
    for (size_t i = 0; i < CROWD; i++) pthread_create(&threads[i], NULL, reserve_the_same, &crowd);
    for (int round = 0; round < ROUNDS; round++) {
        crowd.token = round;
        for (size_t i = 0; i <= RESERVED_NOT_ADMITTED; i++) crowd.n[i] = 0;
        pthread_barrier_wait(&crowd.start);
        pthread_barrier_wait(&crowd.start);
        assert_int_equal(crowd.n[RESERVED], 1);
        assert_int_equal(crowd.n[RESERVED_WRITING], CROWD - 1);
        index_cancel(crowd.index, crowd.winner);
    }
    join_all(threads, CROWD);
    pthread_barrier_destroy(&crowd.start);
    index_close(crowd.index);
}

/* ---- Readers beside writers ---- */

struct fair {
    struct index *index;
    _Atomic uint32_t seeds;
    _Atomic bool over;
    int64_t times[READERS][LOOKUPS]; /* ns */
    _Atomic size_t readers, hits;
};

static int32_t draw(uint32_t *random, int32_t tokens[LONGEST])
{
    int32_t n = 8 + (int32_t)random_below(random, LONGEST - 8);
    for (int32_t i = 0; i < n; i++) tokens[i] = i % 40 == 0 ? (int32_t)random_below(random, 2) : i;
    return n;
}

static void publish(struct fair *fair, struct reservation *reservation, uint64_t size, uint32_t *random)
{
    void *user = mem_alloc(16);
    struct entry *entry = index_publish(fair->index, reservation, size, user, *random);
    if (entry == NULL) { /* its parent was dropped */
        free(user);
        return;
    }
    if (random_below(random, 10) == 0) delete_all(fair->index, index_drop(fair->index, entry));
    if (random_below(random, 10) == 0) index_mark_unreadable(fair->index, entry, 0);
    if (random_below(random, 10) == 0) index_retry_unreadable(fair->index, INT64_MAX);
    index_unpin(fair->index, entry);
}

static void save_one(struct fair *fair, uint32_t *random)
{
    int32_t tokens[LONGEST], n = draw(random, tokens);
    struct match match = find(fair->index, &mine, tokens, n, STRIDE, false);
    struct reserve what = reserve_of(&mine, tokens, match.n_rows < n ? match.n_rows : 0, n, 10 + (uint64_t)n);
    struct reservation *reservation;
    struct victim *victims;
    enum reserved result = reserve(fair->index, &what, &reservation, &victims);
    assert_true(index_usage(fair->index).bytes <= BUDGET);
    index_release(fair->index, &match);
    delete_all(fair->index, victims);
    if (result == RESERVED) publish(fair, reservation, what.size, random);
}

static void *write_until_over(void *ud)
{
    struct fair *fair = ud;
    uint32_t random = 7919 * ++fair->seeds;
    for (int i = 0; i < SAVES || !fair->over; i++) save_one(fair, &random);
    return NULL;
}

static void *look_up(void *ud)
{
    struct fair *fair = ud;
    uint32_t random = 104729 * ++fair->seeds;
    int64_t *times = fair->times[fair->readers++];
    for (int i = 0; i < LOOKUPS; i++) {
        int32_t tokens[LONGEST], n = draw(&random, tokens);
        struct index_lookup lookup = {.identity = &mine, .tokens = tokens, .n = n};
        struct slab_key keys[LONGEST / STRIDE];
        slab_keys_at_strides(&mine, tokens, (size_t)n, STRIDE, keys);
        lookup.keys = keys;
        struct match match;
        int64_t start = clock_now(clock_monotonic());
        index_find(fair->index, &lookup, &match);
        times[i] = clock_now(clock_monotonic()) - start;
        if (match.rows == NULL) continue;
        fair->hits++;
        assert_int_equal(verified(fair->index, match.rows, tokens, match.n_rows), match.n_rows);
        index_touch(fair->index, match.rows, i);
        index_release(fair->index, &match);
    }
    return NULL;
}

static int by_time(const void *a, const void *b)
{
    const int64_t *one = a, *other = b;
    return (*one > *other) - (*one < *other);
}

static void print_times(struct fair *fair, const char *when)
{
    int64_t *all = &fair->times[0][0];
    size_t n = fair->readers * LOOKUPS;
    qsort(all, n, sizeof *all, by_time);
    int64_t median = all[n / 2], p99 = all[n * 99 / 100];
    printf("    a lookup %s: median %.1f us, p99 %.1f us\n", when, (double)median / 1e3, (double)p99 / 1e3);
}

static void read_with(struct fair *fair, size_t n)
{
    pthread_t readers[READERS];
    fair->readers = 0;
    for (size_t i = 0; i < n; i++) pthread_create(&readers[i], NULL, look_up, fair);
    join_all(readers, n);
}

/* A pinned match does not change, whatever eight writers do: it is verified token by token. */
static void readers_find_nothing_wrong_beside_eight_writers(void **state)
{
    (void)state;
    mine = some_identity(1);
    static struct fair fair;
    fair.index = index_open(STRIDE, BUDGET, free);
    uint32_t random = 3;
    for (int i = 0; i < 200; i++) save_one(&fair, &random);
    read_with(&fair, 1);
    print_times(&fair, "alone");
    pthread_t writers[WRITERS];
    for (size_t i = 0; i < WRITERS; i++) pthread_create(&writers[i], NULL, write_until_over, &fair);
    read_with(&fair, READERS);
    fair.over = true;
    join_all(writers, WRITERS);
    print_times(&fair, "beside eight writers");
    struct index_usage usage = index_usage(fair.index);
    assert_int_equal(usage.pins + usage.reservations, 0);
    assert_true(usage.bytes <= BUDGET && usage.evictions > 0 && fair.hits > 0);
    index_close(fair.index);
}

/* ---- A tree that is detached and attached ---- */

enum { DEEP = 600, TURNS = 30 };

struct tree {
    struct index *index;
    int32_t tokens[DEEP * STRIDE];
    _Atomic bool over;
    _Atomic size_t whole, part;
};

/* The last entry of a chain, and branches of the chain. */
static void grow_tree(struct tree *tree)
{
    for (int32_t i = 0; i < DEEP * STRIDE; i++) tree->tokens[i] = i;
    for (int32_t i = 0; i < DEEP; i++) {
        struct reserve what = reserve_of(&mine, tree->tokens, i * STRIDE, (i + 1) * STRIDE, 1);
        assert_int_equal(save(tree->index, &what, i), RESERVED);
        int32_t side[DEEP * STRIDE + 1];
        memcpy(side, tree->tokens, sizeof tree->tokens);
        side[(i + 1) * STRIDE] = -1;
        what = reserve_of(&mine, side, (i + 1) * STRIDE, (i + 1) * STRIDE + 1, 1);
        assert_int_equal(save(tree->index, &what, i), RESERVED);
    }
}

static struct match find_all(struct tree *tree)
{
    struct index_lookup lookup = {.identity = &mine, .tokens = tree->tokens, .n = DEEP * STRIDE, .now_ms = 1};
    struct match match;
    index_find(tree->index, &lookup, &match);
    assert_int_equal(verified(tree->index, match.rows, tree->tokens, match.n_rows), match.n_rows);
    return match;
}

static void *look_at_tree(void *ud)
{
    struct tree *tree = ud;
    while (!tree->over) {
        struct match match = find_all(tree);
        if (match.n_rows == DEEP * STRIDE)
            tree->whole++;
        else
            tree->part++;
        index_release(tree->index, &match);
    }
    return NULL;
}

static void *set_roots_aside(void *ud)
{
    struct tree *tree = ud;
    for (int i = 0; i < TURNS; i++) {
        struct match match = find_all(tree);
        struct entry *root = match.rows;
        while (root != NULL && root->parent != NULL) root = root->parent;
        if (root != NULL) index_mark_unreadable(tree->index, root, 0);
        index_retry_unreadable(tree->index, INT64_MAX);
        index_release(tree->index, &match);
    }
    return NULL;
}

/* Detaching and attaching run in steps, and several threads do both with the same entries. */
static void a_tree_that_is_detached_and_attached_is_whole_in_the_end(void **state)
{
    (void)state;
    mine = some_identity(1);
    static struct tree tree;
    tree.index = index_open(STRIDE, UINT64_MAX, free);
    grow_tree(&tree);
    pthread_t reader, writers[2];
    pthread_create(&reader, NULL, look_at_tree, &tree);
    for (size_t i = 0; i < 2; i++) pthread_create(&writers[i], NULL, set_roots_aside, &tree);
    join_all(writers, 2);
    tree.over = true;
    join_all(&reader, 1);
    index_retry_unreadable(tree.index, INT64_MAX);
    struct index_usage usage = index_usage(tree.index);
    assert_int_equal(usage.entries, 2 * DEEP);
    assert_int_equal(usage.detached + usage.pins, 0);
    assert_int_equal(usage.bytes, 2 * DEEP);
    struct match match = find_all(&tree);
    assert_int_equal(match.n_rows, DEEP * STRIDE);
    index_release(tree.index, &match);
    printf("    %zu lookups found all, %zu a part\n", (size_t)tree.whole, (size_t)tree.part);
    index_close(tree.index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_many_that_reserve_one_key_one_writes),
        cmocka_unit_test(readers_find_nothing_wrong_beside_eight_writers),
        cmocka_unit_test(a_tree_that_is_detached_and_attached_is_whole_in_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
