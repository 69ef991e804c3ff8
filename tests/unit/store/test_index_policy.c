/* The eviction policy at scale: prompts that come once beside prompts that are used often, and identities beside each
 * other. */
#include "index_helpers.h"

#include <stdio.h>

enum { STRIDE = 4, LONGEST = 4000, SIZE = 10, BUDGET = 1000 };

static struct identity mine;
static int64_t now = 1000000;

static void no_user(void *user)
{
    (void)user;
}

static struct index *open_index(void)
{
    mine = some_identity(1);
    return index_open(STRIDE, BUDGET, no_user);
}

/* A prompt of n blocks of a stride, told apart by `id`. */
static int32_t prompt(int32_t id, int32_t n, int32_t tokens[LONGEST])
{
    for (int32_t i = 0; i < n * STRIDE; i++) tokens[i] = i == 0 ? id : i;
    return n * STRIDE;
}

static int32_t found(struct index *index, int32_t id, int32_t n, int64_t now_ms)
{
    static int32_t tokens[LONGEST];
    struct index_lookup lookup = {.identity = &mine, .tokens = tokens, .n = prompt(id, n, tokens), .now_ms = now_ms};
    struct match match;
    index_find(index, &lookup, &match);
    int32_t blocks = match.n_rows / STRIDE;
    index_release(index, &match);
    return blocks;
}

static enum reserved last_result; /* of ask() */

/* Looks up the prompt and stores the rest, as far as there is room, as a server does. Returns the blocks that are
 * stored then. */
static int32_t ask(struct index *index, int32_t id, int32_t n)
{
    static int32_t tokens[LONGEST];
    prompt(id, n, tokens);
    int32_t at = found(index, id, n, ++now);
    for (enum reserved result = RESERVED; at < n && result == RESERVED; at += result == RESERVED) {
        struct reserve what = reserve_of(&mine, tokens, at * STRIDE, (at + 1) * STRIDE, SIZE);
        last_result = result = save(index, &what, ++now);
        assert_true(index_usage(index).bytes <= BUDGET);
    }
    return at;
}

/* ---- Prompts that come once ---- */

static void a_prefix_used_a_thousand_times_survives_prompts_of_any_length(void **state)
{
    (void)state;
    struct index *index = open_index();
    assert_int_equal(ask(index, 1, 10), 10);
    for (int i = 0; i < 1000; i++) ask(index, 1, 10);
    assert_int_equal(ask(index, 2, 96), 90);
    assert_int_equal(found(index, 1, 10, 0), 10);
    assert_int_equal(ask(index, 3, 200), 90);
    assert_int_equal(last_result, RESERVED_NOT_ADMITTED);
    assert_int_equal(found(index, 1, 10, 0), 10);
    index_close(index);
}

/* It gets half of the budget, from the least recently used. */
static void what_a_prompt_that_comes_once_takes_from_the_others_is_bounded(void **state)
{
    (void)state;
    struct index *index = open_index();
    for (int round = 0; round < 2; round++)
        for (int32_t id = 1; id <= 20; id++) assert_int_equal(ask(index, id, 5), 5);
    assert_int_equal(ask(index, 100, 200), 50);
    for (int32_t id = 1; id <= 20; id++) assert_int_equal(found(index, id, 5, 0), id <= 10 ? 0 : 5);
    assert_int_equal(ask(index, 101, 200), 50);
    assert_int_equal(found(index, 100, 200, 0), 0);
    assert_int_equal(found(index, 20, 5, 0), 5);
    index_close(index);
}

static void what_is_used_again_gets_its_room(void **state)
{
    (void)state;
    struct index *index = open_index();
    for (int round = 0; round < 2; round++)
        for (int32_t id = 1; id <= 20; id++) ask(index, id, 5);
    assert_int_equal(ask(index, 100, 90), 50);
    assert_int_equal(ask(index, 100, 90), 90);
    index_close(index);
}

/* ---- Lookups ---- */

static void a_lookup_is_a_use_where_it_says_so(void **state)
{
    (void)state;
    struct index *index = open_index();
    for (int32_t id = 1; id <= 10; id++) ask(index, id, 10);
    assert_int_equal(found(index, 1, 10, ++now), 10);
    assert_int_equal(found(index, 2, 10, 0), 10);
    ask(index, 100, 10);
    assert_int_equal(found(index, 1, 10, 0), 10);
    assert_int_equal(found(index, 2, 10, 0), 0);
    index_close(index);
}

/* Most prompts begin with the same token. */
static void a_prompt_that_diverges_early_is_no_use(void **state)
{
    (void)state;
    struct index *index = open_index();
    int32_t tokens[LONGEST];
    for (int32_t id = 1; id <= 10; id++) {
        prompt(0, 25, tokens);
        tokens[1] = id;
        struct reserve what = reserve_of(&mine, tokens, 0, 100, 100);
        assert_int_equal(save(index, &what, ++now), RESERVED);
    }
    struct index_lookup lookup = {.identity = &mine, .tokens = tokens, .n = 49, .now_ms = ++now};
    struct match match;
    tokens[1] = 1;
    index_find(index, &lookup, &match); /* less than half of the first entry */
    assert_int_equal(match.n_rows, 49);
    index_release(index, &match);
    tokens[1] = 2;
    lookup.n = 50;
    lookup.now_ms = ++now;
    index_find(index, &lookup, &match); /* half of the second entry */
    index_release(index, &match);
    prompt(100, 50, tokens);
    struct reserve what = reserve_of(&mine, tokens, 0, 200, 200);
    assert_int_equal(save(index, &what, ++now), RESERVED);
    for (int32_t id = 1; id <= 10; id++) {
        prompt(0, 25, tokens);
        tokens[1] = id;
        lookup = (struct index_lookup){.identity = &mine, .tokens = tokens, .n = 100};
        index_find(index, &lookup, &match);
        assert_int_equal(match.n_rows, id == 1 || id == 3 ? 1 : 100);
        index_release(index, &match);
    }
    index_close(index);
}

static void adopt_block(struct index *index, const int32_t *tokens, int32_t i, uint64_t size, uint32_t hits)
{
    struct slab_head head = {.kind = SLAB_ROWS, .identity = mine, .hits = hits, .used_ms = 1};
    head.start = i * STRIDE;
    head.end = head.start + STRIDE;
    head.key = slab_key_of(&mine, tokens, (size_t)head.end);
    if (i > 0) head.parent = slab_key_of(&mine, tokens, (size_t)head.start);
    head.tokens = (struct tokens){.v = (int32_t *)(uintptr_t)tokens + head.start, .len = STRIDE};
    assert_true(index_adopt(index, &head, size, now));
}

/* Of a chain that was used, only the last slab's file has hits. */
static void what_was_used_before_a_restart_was_used_with_its_ancestors(void **state)
{
    (void)state;
    for (int reversed = 0; reversed < 2; reversed++) {
        struct index *index = open_index();
        int32_t tokens[LONGEST];
        prompt(1, 9, tokens);
        for (int32_t i = 0; i < 9; i++) {
            int32_t at = reversed ? 8 - i : i;
            adopt_block(index, tokens, at, 90, at == 8 ? 3 : 0);
        }
        assert_int_equal(ask(index, 100, 200), 55); /* 190 bytes are free, and four entries of 90 may be evicted */
        index_close(index);
    }
}

/* ---- Identities ---- */

static struct identity tenant(const char *salt)
{
    struct identity plain = some_identity(1);
    return identity_salted(&plain, salt);
}

static void one_tenant_cannot_evict_what_another_uses(void **state)
{
    (void)state;
    struct index *index = open_index();
    mine = tenant("quiet");
    for (int32_t id = 1; id <= 8; id++) ask(index, id, 5);
    for (int32_t round = 0; round < 100; round++) {
        mine = tenant("loud");
        ask(index, 100 + round / 2, 10); /* each twice */
        if (round % 20 > 0) continue;
        mine = tenant("quiet");
        assert_int_equal(found(index, 1, 5, ++now), 5);
    }
    mine = tenant("quiet");
    for (int32_t id = 1; id <= 8; id++) assert_int_equal(found(index, id, 5, 0), 5);
    mine = tenant("loud");
    int32_t blocks = 0;
    for (int32_t id = 100; id < 150; id++) blocks += found(index, id, 10, 0);
    assert_true(blocks >= 59); /* and it has what the other does not use */
    index_close(index);
}

/* Another identity has so much there that all fresh entries are less than half of the budget. */
static void a_prompt_that_comes_once_leaves_the_better_half_of_a_share(void **state)
{
    (void)state;
    struct index *index = open_index();
    mine = tenant("other");
    for (int round = 0; round < 2; round++) ask(index, 1, 50);
    mine = tenant("own");
    for (int round = 0; round < 2; round++)
        for (int32_t id = 1; id <= 10; id++) ask(index, id, 5);
    assert_int_equal(ask(index, 100, 200), 25);
    for (int32_t id = 1; id <= 10; id++) assert_int_equal(found(index, id, 5, 0), id <= 5 ? 0 : 5);
    mine = tenant("other");
    assert_int_equal(found(index, 1, 50, 0), 50);
    index_close(index);
}

static void a_tenant_takes_back_its_share(void **state)
{
    (void)state;
    struct index *index = open_index();
    mine = tenant("loud");
    for (int round = 0; round < 2; round++)
        for (int32_t id = 1; id <= 10; id++) ask(index, id, 10);
    mine = tenant("late");
    for (int32_t id = 1; id <= 20; id++) ask(index, id, 5);
    int32_t blocks = 0;
    for (int32_t id = 1; id <= 20; id++) blocks += found(index, id, 5, 0);
    assert_int_equal(blocks, 50);
    mine = tenant("loud");
    for (int32_t id = 1; id <= 10; id++) assert_int_equal(found(index, id, 10, 0), id <= 5 ? 0 : 10);
    index_close(index);
}

static void a_tenant_that_has_gone_holds_nothing(void **state)
{
    (void)state;
    struct index *index = open_index();
    mine = tenant("gone");
    for (int round = 0; round < 2; round++)
        for (int32_t id = 1; id <= 4; id++) ask(index, id, 10);
    mine = tenant("loud");
    for (int32_t id = 1; id <= 15; id++)
        for (int round = 0; round < 2; round++) ask(index, id, 10);
    int32_t blocks = 0;
    for (int32_t id = 1; id <= 15; id++) blocks += found(index, id, 10, 0);
    assert_int_equal(blocks, 100);
    mine = tenant("gone");
    for (int32_t id = 1; id <= 4; id++) assert_int_equal(found(index, id, 10, 0), 0);
    index_close(index);
}

/* A random salt for every prompt makes an identity of each. */
static void identities_that_come_once_evict_each_other(void **state)
{
    (void)state;
    struct index *index = open_index();
    mine = tenant("steady");
    for (int round = 0; round < 2; round++)
        for (int32_t id = 1; id <= 8; id++) ask(index, id, 10);
    for (int32_t round = 0; round < 600; round++) {
        char salt[16];
        snprintf(salt, sizeof salt, "%d", round);
        mine = tenant(salt);
        ask(index, 1, 5);
    }
    assert_int_equal(found(index, 1, 5, 0), 5);
    mine = tenant("steady");
    int32_t blocks = 0;
    for (int32_t id = 1; id <= 8; id++) blocks += found(index, id, 10, 0);
    assert_int_equal(blocks, 50);
    index_close(index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefix_used_a_thousand_times_survives_prompts_of_any_length),
        cmocka_unit_test(what_a_prompt_that_comes_once_takes_from_the_others_is_bounded),
        cmocka_unit_test(what_is_used_again_gets_its_room),
        cmocka_unit_test(a_lookup_is_a_use_where_it_says_so),
        cmocka_unit_test(a_prompt_that_diverges_early_is_no_use),
        cmocka_unit_test(what_was_used_before_a_restart_was_used_with_its_ancestors),
        cmocka_unit_test(one_tenant_cannot_evict_what_another_uses),
        cmocka_unit_test(a_prompt_that_comes_once_leaves_the_better_half_of_a_share),
        cmocka_unit_test(a_tenant_takes_back_its_share),
        cmocka_unit_test(a_tenant_that_has_gone_holds_nothing),
        cmocka_unit_test(identities_that_come_once_evict_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
