/* The hash table against a list while it grows and shrinks: what a hash finds, and that a walk visits every item once.
 */
#include "base/hash_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>

enum { ITEMS = 3000, STEPS = 60000, HASHES = 2000 };

struct item {
    struct hash_link link;
    uint64_t hash;
    bool there, seen;
};

static struct item items[ITEMS];

static uint32_t random_below(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525U + 1013904223U;
    return (uint32_t)(((uint64_t)(*state >> 8) * n) >> 24);
}

/* However many items share a hash, hash_first() and hash_next() visit each of them. */
static void expect_found(const struct hash_table *table, uint64_t hash)
{
    size_t expected = 0, found = 0;
    for (size_t i = 0; i < ITEMS; i++) expected += items[i].there && items[i].hash == hash;
    for (struct hash_link *link = hash_first(table, hash); link != NULL; link = hash_next(link), found++)
        assert_true(container_of(struct item, link, link)->there);
    assert_int_equal(found, expected);
}

static void expect_all(const struct hash_table *table)
{
    struct hash_link *link;
    for (size_t i = 0; i < ITEMS; i++) items[i].seen = false;
    for (size_t bucket = 0; (link = hash_any(table, &bucket)) != NULL; bucket++) {
        for (; link != NULL; link = link->next) {
            struct item *item = container_of(struct item, link, link);
            assert_false(item->seen);
            item->seen = true;
        }
    }
    for (size_t i = 0; i < ITEMS; i++) assert_int_equal(items[i].seen, items[i].there);
}

static void what_is_there_is_found_and_nothing_else(void **state)
{
    (void)state;
    struct hash_table table = {0};
    uint32_t random = 11;
    assert_null(hash_first(&table, 1));
    for (int step = 0; step < STEPS; step++) {
        struct item *item = &items[random_below(&random, ITEMS)];
        if (item->there) {
            hash_remove(&table, &item->link);
        } else {
            item->hash = random_below(&random, HASHES) * UINT64_C(0x100000001);
            hash_add(&table, &item->link, item->hash);
        }
        item->there = !item->there;
        if (step % 16 == 0) expect_found(&table, item->hash);
        if (step % 1024 == 0) expect_all(&table);
    }
    assert_true(table.n <= table.n_buckets);
    hash_release(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_there_is_found_and_nothing_else)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
