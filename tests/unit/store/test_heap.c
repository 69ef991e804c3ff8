/* The heap against a list: which item is first, while items are added, removed and added again with another rank. */
#include "index_helpers.h"
#include "store/index/index_parts.h"

enum { ITEMS = 60, STEPS = 20000 };

struct ranked {
    struct heap_link heap_link;
    uint32_t rank;
    bool there;
};

static bool before(const struct heap_link *a, const struct heap_link *b)
{
    return container_of(const struct ranked, heap_link, a)->rank <
           container_of(const struct ranked, heap_link, b)->rank;
}

static void expect_first(const struct heap *heap, const struct ranked items[ITEMS])
{
    uint32_t least = UINT32_MAX, n = 0;
    for (size_t i = 0; i < ITEMS; i++) {
        if (!items[i].there) continue;
        n++;
        if (items[i].rank < least) least = items[i].rank;
    }
    struct heap_link *first = heap_first(heap);
    assert_int_equal(heap->n, n);
    assert_int_equal(first != NULL, n > 0);
    if (first != NULL) assert_int_equal(container_of(struct ranked, heap_link, first)->rank, least);
}

static void the_first_is_the_least_whatever_came_and_went(void **state)
{
    (void)state;
    struct heap heap = {.before = before};
    struct ranked items[ITEMS] = {0};
    uint32_t random = 3;
    for (int step = 0; step < STEPS; step++) {
        struct ranked *item = &items[random_below(&random, ITEMS)];
        if (item->there) {
            heap_remove(&heap, &item->heap_link);
            assert_int_equal(item->heap_link.at, 0);
        } else {
            item->rank = random_below(&random, 1000);
            heap_add(&heap, &item->heap_link);
            heap_add(&heap, &item->heap_link); /* it is in the heap already */
        }
        item->there = !item->there;
        expect_first(&heap, items);
    }
    heap_release(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_is_the_least_whatever_came_and_went)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
