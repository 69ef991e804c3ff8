/* The table against a list, while it grows and shrinks: what is found by its hash, and that all are come by once. */
#include "base/hashed.h"
#include "shelf.h"

enum { ITEMS = 3000, STEPS = 60000, HASHES = 2000 };

struct item {
    struct hashed link;
    uint64_t hash;
    bool there, seen;
};

static struct item items[ITEMS];

/* Those of one hash are found one after the other, however many there are. */
static void expect_found(const struct hash_table *table, uint64_t hash)
{
    size_t expected = 0, found = 0;
    for (size_t i = 0; i < ITEMS; i++) expected += items[i].there && items[i].hash == hash;
    for (struct hashed *link = hash_first(table, hash); link != NULL; link = hash_next(link), found++)
        assert_true(hash_item(struct item, link, link)->there);
    assert_int_equal(found, expected);
}

static void expect_all(const struct hash_table *table)
{
    struct hashed *link;
    for (size_t i = 0; i < ITEMS; i++) items[i].seen = false;
    for (size_t bucket = 0; (link = hash_any(table, &bucket)) != NULL; bucket++) {
        for (; link != NULL; link = link->next) {
            struct item *item = hash_item(struct item, link, link);
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
