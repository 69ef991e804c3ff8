/* The cost of an index: memory for an entry, and steps of a save, as the number of entries grows. */
#include "index_helpers.h"

#include <malloc.h>
#include <stdio.h>
#include <time.h>

static struct identity mine;

static void no_user(void *user)
{
    (void)user;
}

/* ---- Memory ---- */

enum { STRIDE = 256, ENTRIES = 20000, MOST_BYTES = 1200 };

static uint64_t allocated(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

struct saving {
    struct index *index;
    struct entry *parent; /* pinned */
    int32_t at;
    size_t n;
};

static void save_block(struct saving *s, uint32_t *random)
{
    int32_t own[STRIDE];
    for (int32_t i = 0; i < STRIDE; i++) own[i] = (int32_t)random_below(random, 150000);
    struct slab_key key = slab_key_of(&mine, own, STRIDE); /* of another prefix, but as long */
    struct reserve what = {.identity = &mine, .kind = SLAB_ROWS, .key = key, .parent = s->parent, .tokens = own};
    struct reservation *reservation;
    struct victim *victims;
    what.start = s->at;
    what.end = s->at + STRIDE;
    what.size = 1000000;
    assert_int_equal(index_reserve(s->index, &what, &reservation, &victims), RESERVED);
    if (s->parent != NULL) index_unpin(s->index, s->parent);
    s->parent = index_publish(s->index, reservation, what.size, NULL, 1);
    s->at += STRIDE;
    s->n++;
}

/* Conversations of 16 to 64 blocks, every fourth with a branch of eight somewhere in it. */
static void save_conversation(struct saving *s, uint32_t *random)
{
    uint32_t n = 16 + random_below(random, 49), branch = random_below(random, 4 * n);
    struct saving side = {.index = s->index};
    for (uint32_t i = 0; i < n; i++) {
        save_block(s, random);
        if (i != branch) continue;
        side.parent = s->parent;
        side.at = s->at;
        index_pin(s->index, s->parent);
    }
    for (uint32_t i = 0; i < 8 && side.parent != NULL; i++) save_block(&side, random);
    if (side.parent != NULL) index_unpin(s->index, side.parent);
    index_unpin(s->index, s->parent);
    *s = (struct saving){.index = s->index, .n = s->n + side.n};
}

static void an_entry_of_256_tokens_takes_little_more_than_its_tokens(void **state)
{
    (void)state;
    mine = some_identity(1);
    uint64_t before = allocated();
    struct saving s = {.index = index_open(STRIDE, UINT64_MAX, no_user)};
    for (uint32_t random = 1; s.n < ENTRIES;) save_conversation(&s, &random);
    double bytes = (double)(allocated() - before) / (double)s.n;
    printf("    %zu entries of %d tokens: %.0f bytes each\n", s.n, STRIDE, bytes);
    assert_true(bytes <= MOST_BYTES);
    index_close(s.index);
}

/* ---- Time ---- */

/* Linear, many take 32 times as long as few, and some three times that where they no longer fit into the processor's
 * caches; quadratic, 1,024 times. */
enum { SHORT = 16, FEW = 500, TIMES = 32, MANY = TIMES * FEW, MOST_TIMES = 8 * TIMES, REPEATS = 5, TOUCHES = 2000 };

static double cpu_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

struct times {
    double published, touched, detached;
};

static void take_least(double *least, double us)
{
    if (*least == 0 || us < *least) *least = us;
}

/* A conversation of n slabs of a few tokens, each the child of the one before. */
static void measure(int32_t n, struct times *times)
{
    static int32_t tokens[MANY * SHORT];
    static struct slab_key keys[MANY];
    for (int32_t i = 0; i < n * SHORT; i++) tokens[i] = i % 1000;
    slab_keys_at_strides(&mine, tokens, (size_t)(n * SHORT), SHORT, keys);
    struct index *index = index_open(SHORT, UINT64_MAX, no_user);
    struct entry *last = NULL, *first = NULL;
    double start = cpu_us();
    for (int32_t i = 0; i < n; i++) {
        struct reserve what = {.identity = &mine, .kind = SLAB_ROWS, .key = keys[i], .parent = last, .size = 1};
        struct reservation *reservation;
        struct victim *victims;
        what.tokens = tokens + i * SHORT;
        what.start = i * SHORT;
        what.end = what.start + SHORT;
        assert_int_equal(index_reserve(index, &what, &reservation, &victims), RESERVED);
        if (last != NULL) index_unpin(index, last);
        last = index_publish(index, reservation, 1, NULL, i);
        if (first == NULL) first = last;
    }
    take_least(&times->published, cpu_us() - start);
    index_touch(index, last, n);
    start = cpu_us();
    for (int i = 0; i < TOUCHES; i++) index_touch(index, last, n + i);
    take_least(&times->touched, cpu_us() - start);
    start = cpu_us();
    index_mark_unreadable(index, first, 0);
    index_retry_unreadable(index, INT64_MAX);
    take_least(&times->detached, cpu_us() - start);
    assert_int_equal(index_usage(index).entries, n);
    index_unpin(index, last);
    index_close(index);
}

/* A use takes as long as before. */
static void a_slab_takes_as_long_however_long_its_conversation_is(void **state)
{
    (void)state;
    mine = some_identity(1);
    struct times few = {0}, many = {0};
    for (int i = 0; i < REPEATS; i++) {
        measure(FEW, &few);
        measure(MANY, &many);
    }
    printf("    %d slabs: published in %.0f us, touched in %.2f us, detached and attached in %.0f us\n", FEW,
           few.published, few.touched / TOUCHES, few.detached);
    printf("    %d slabs: published in %.0f us, touched in %.2f us, detached and attached in %.0f us\n", MANY,
           many.published, many.touched / TOUCHES, many.detached);
    assert_true(many.published < MOST_TIMES * few.published);
    assert_true(many.touched < 4 * few.touched);
    assert_true(many.detached < MOST_TIMES * few.detached);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_of_256_tokens_takes_little_more_than_its_tokens),
        cmocka_unit_test(a_slab_takes_as_long_however_long_its_conversation_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
