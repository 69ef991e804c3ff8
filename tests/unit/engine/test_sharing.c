/* Which cells sequences share, against lists of cells. */
#include "engine/sharing.h"

#include "base/tokens.h"
#include "fakes/cmocka_all.h"

enum { N = 6, LONGEST = 40, OPERATIONS = 20000 };

/* Sequences as lists of cells, each cell a number of its own. */
struct oracle {
    struct sharing sharing;
    struct tokens cells[N];
    int32_t next;
    uint32_t random;
};

static int32_t below(struct oracle *oracle, int32_t n)
{
    oracle->random = oracle->random * 1664525 + 1013904223;
    return (int32_t)((oracle->random >> 8) % (uint32_t)n);
}

static void grow(struct oracle *oracle, int32_t seq)
{
    struct tokens *cells = &oracle->cells[seq];
    for (int32_t n = below(oracle, 8); n > 0 && cells->len < LONGEST; n--) tokens_push(cells, oracle->next++);
}

static void cut(struct oracle *oracle, int32_t seq)
{
    int32_t n = below(oracle, (int32_t)oracle->cells[seq].len + 1);
    tokens_truncate(&oracle->cells[seq], (size_t)n);
    sharing_cut(&oracle->sharing, seq, n);
}

static void share(struct oracle *oracle, int32_t from, int32_t to)
{
    int32_t n = below(oracle, (int32_t)oracle->cells[from].len + 1);
    if (from == to) return;
    sharing_cut(&oracle->sharing, to, 0);
    tokens_truncate(&oracle->cells[to], 0);
    tokens_append(&oracle->cells[to], oracle->cells[from].v, (size_t)n);
    sharing_add(&oracle->sharing, from, to, n);
}

static void check(const struct oracle *oracle)
{
    for (int32_t a = 0; a < N; a++) {
        size_t most = 0;
        for (int32_t b = 0; b < N; b++) {
            size_t common = a == b ? 0 : tokens_common_prefix(&oracle->cells[a], &oracle->cells[b]);
            if (common > most) most = common;
        }
        assert_int_equal(sharing_most(&oracle->sharing, a), most);
    }
}

static void twenty_thousand_random_operations_agree_with_lists_of_cells(void **unused)
{
    (void)unused;
    struct oracle oracle = {.random = 7};
    sharing_init(&oracle.sharing, N);
    for (int i = 0; i < OPERATIONS; i++) {
        int32_t seq = below(&oracle, N), what = below(&oracle, 4);
        if (what < 2)
            grow(&oracle, seq);
        else if (what == 2)
            cut(&oracle, seq);
        else
            share(&oracle, seq, below(&oracle, N));
        check(&oracle);
    }
    for (int32_t i = 0; i < N; i++) tokens_release(&oracle.cells[i]);
    sharing_release(&oracle.sharing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twenty_thousand_random_operations_agree_with_lists_of_cells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
