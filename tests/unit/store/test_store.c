/* The store as its users see it, the same in every tier: what is saved is found, and comes back exactly. */
#include "tiers.h"

#include <string.h>

/* ---- Saves and lookups ---- */

static void what_is_saved_is_found_and_comes_back_exactly(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(1, 100);
    rig_start(rig);
    assert_int_equal(rig_restore(rig, t.v, 100), 0);
    rig_keep(rig, t.v, 100);
    for (int32_t n = 1; n <= 100; n++) assert_int_equal(rig_restore(rig, t.v, n), n);
    assert_int_equal(metric_get(&store_stats(rig->store)->saves[SLAB_FINISH]), 1);
    tokens_release(&t);
}

static void a_hit_ends_where_the_tokens_differ(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(2, 120);
    rig_start(rig);
    rig_keep(rig, t.v, 120);
    for (int32_t at = 0; at < 120; at += 7) {
        t.v[at]++;
        assert_int_equal(rig_restore(rig, t.v, 120), at);
        t.v[at]--;
    }
    tokens_release(&t);
}

static void pieces_come_in_order_and_say_what_is_wanted_of_them(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(3, 40);
    rig_start(rig);
    rig_keep(rig, t.v, 40);
    for (size_t i = 20; i < 40; i++) t.v[i]++; /* a branch in the middle of the slab of [16, 32) */
    rig_keep(rig, t.v, 40);
    struct store_hit *hit = rig_find(rig, t.v, 35);
    assert_int_equal(store_hit_tokens(hit), 35);
    assert_false(store_is_fetching(hit));
    store_fetch(hit, 35);
    assert_true(store_is_fetching(hit));
    static const int32_t bounds[] = {0, 16, 20, 32, 35};
    struct store_piece piece;
    for (size_t i = 0; i < 4; i++) {
        enum store_next next;
        for (;;) {
            uint64_t seen = fake_user_wakes(&rig->user);
            if ((next = store_next_piece(hit, &piece)) != STORE_PENDING) break;
            assert_true(fake_user_wait(&rig->user, seen));
        }
        assert_int_equal(next, STORE_PIECE);
        assert_int_equal(piece.from, bounds[i]);
        assert_int_equal(piece.to, bounds[i + 1]);
        assert_true(fake_user_check(&rig->user, t.v, &piece));
    }
    assert_int_equal(store_next_piece(hit, &piece), STORE_END);
    store_hit_close(hit);
    tokens_release(&t);
}

static void a_fetch_of_less_than_was_found_ends_there(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(4, 90);
    bool lost;
    rig_start(rig);
    rig_keep(rig, t.v, 90);
    for (int32_t n = 0; n <= 90; n += 9) {
        struct store_hit *hit = rig_find(rig, t.v, 90);
        store_fetch(hit, n);
        assert_int_equal(rig_take_all(rig, hit, t.v, &lost), n);
        assert_false(lost);
        store_hit_close(hit);
    }
    tokens_release(&t);
}

static void looking_again_sees_what_was_saved_meanwhile(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(5, 100);
    bool lost;
    rig_start(rig);
    rig_keep(rig, t.v, 30);
    struct store_hit *hit = rig_find(rig, t.v, 60);
    assert_int_equal(store_hit_tokens(hit), 30);
    rig_keep(rig, t.v, 80);
    store_find_again(hit, t.v, 60);
    assert_int_equal(store_hit_tokens(hit), 60);
    store_find_again(hit, t.v, 100);
    assert_int_equal(store_hit_tokens(hit), 80);
    assert_int_equal(store_hit_covered(hit), 80);
    store_fetch(hit, 80);
    assert_int_equal(rig_take_all(rig, hit, t.v, &lost), 80);
    store_hit_close(hit);
    tokens_release(&t);
}

/* ---- Nothing is stored twice ---- */

/* Bytes written for 20 turns, each saved at its end, against the bytes of their rows. */
static void a_conversation_is_written_once(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(6, 2000);
    rig->user.row_bytes = 4096;
    rig->params.stride = 64;
    rig_start(rig);
    for (int32_t n = 100; n <= 2000; n += 100) rig_keep(rig, t.v, n);
    double written = (double)metric_get(&store_stats(rig->store)->written_bytes);
    assert_true(written <= 1.05 * 2000 * 4096);
    assert_true(written >= 2000 * 4096);
    assert_int_equal(rig_restore(rig, t.v, 2000), 2000);
    tokens_release(&t);
}

/* A user does not know what others saved: the store does. */
static void a_shared_prompt_is_written_once(void **state)
{
    struct rig *rig = *state;
    rig->user.row_bytes = 4096;
    rig->params.stride = 64;
    rig_start(rig);
    for (int32_t agent = 0; agent < 6; agent++) {
        struct tokens t = some_tokens(7, 1000);
        for (int32_t i = 0; i < 100; i++) tokens_push(&t, agent * 1000 + i);
        rig_wait(rig, rig_save_from(rig, t.v, 0, 1000));
        rig_wait(rig, rig_save_from(rig, t.v, 0, 1100));
        assert_int_equal(rig_restore(rig, t.v, 1100), 1100);
        tokens_release(&t);
    }
    double written = (double)metric_get(&store_stats(rig->store)->written_bytes);
    assert_true(written <= 1.05 * (1000 + 6 * 100) * 4096);
    assert_int_equal(metric_get(&store_stats(rig->store)->duplicate_dropped), 5);
}

static void what_is_stored_already_is_not_written_again(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(8, 70);
    rig_start(rig);
    rig_keep(rig, t.v, 70);
    int64_t written = metric_get(&store_stats(rig->store)->written_bytes);
    rig_wait(rig, rig_save_from(rig, t.v, 0, 70));
    rig_wait(rig, rig_save_from(rig, t.v, 30, 50));
    assert_int_equal(metric_get(&store_stats(rig->store)->written_bytes), written);
    assert_int_equal(metric_get(&store_stats(rig->store)->duplicate_dropped), 2);
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 0);
    tokens_release(&t);
}

/* The user is asked once a save, after it has queued it. */
static bool allow(void *ud)
{
    int *left = ud;
    return (*left)-- > 0;
}

static void what_its_user_takes_back_is_neither_found_nor_kept(void **state)
{
    struct rig *rig = *state;
    int left = 1;
    struct store_user *user = &rig->user.user;
    *user = (struct store_user){.identity = user->identity, .codec = user->codec, .may_store = allow, .ud = &left};
    rig_start(rig);
    struct tokens tokens = some_tokens(5, 100), others = some_tokens(6, 100);
    rig_keep(rig, tokens.v, 64);
    rig_wait(rig, rig_save_from(rig, tokens.v, 64, 100));
    rig_wait(rig, rig_save_from(rig, others.v, 0, 100));
    assert_int_equal(rig_found(rig, tokens.v, 100), 64);
    assert_int_equal(rig_found(rig, others.v, 100), 0);
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 2);
    assert_int_equal(left, -2);
    tokens_release(&tokens);
    tokens_release(&others);
}

static void rows_that_hang_on_nothing_are_dropped_and_counted(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(9, 70);
    rig_start(rig);
    rig_wait(rig, rig_save_from(rig, t.v, 20, 70));
    assert_int_equal(rig_found(rig, t.v, 70), 0);
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 1);
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 1);
    assert_int_equal(metric_get(&store_stats(rig->store)->saves[SLAB_FINISH]), 0);
    rig_keep(rig, t.v, 70);
    assert_int_equal(rig_restore(rig, t.v, 70), 70);
    tokens_release(&t);
}

/* ---- Recurrent/SWA state ---- */

static void a_state_is_gone_on_from_only_where_it_was_saved(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(10, 100);
    rig->user.user.codec.has_state = true;
    rig_start(rig);
    rig_keep(rig, t.v, 40);
    rig_keep(rig, t.v, 75);
    assert_int_equal(rig_restore(rig, t.v, 39), 0);
    assert_int_equal(rig_restore(rig, t.v, 40), 40);
    assert_int_equal(rig_restore(rig, t.v, 74), 40);
    assert_int_equal(rig_restore(rig, t.v, 100), 75);
    assert_int_equal(rig_covered(rig, t.v, 74), 74);
    tokens_release(&t);
}

static void a_state_without_its_rows_is_not_kept(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(11, 60);
    size_t size;
    rig->user.user.codec.has_state = true;
    rig_start(rig);
    rig_keep(rig, t.v, 40);
    void *raw = fake_user_copy(&rig->user, rig->store, SLAB_STATE, t.v, 0, 60, &size);
    struct store_save save = {.user = &rig->user.user,
                              .kind = SLAB_STATE,
                              .reason = SLAB_COLD,
                              .tokens = t.v,
                              .to = 60,
                              .raw = raw,
                              .size = size,
                              .last = true};
    rig_wait(rig, store_save(rig->store, &save));
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 1);
    assert_int_equal(metric_get(&store_stats(rig->store)->saves[SLAB_COLD]), 0);
    assert_int_equal(rig_found(rig, t.v, 60), 40);
    tokens_release(&t);
}

static void states_without_rows_are_found_alone(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(12, 100);
    rig->user.user.codec = (struct store_codec){.ud = rig->user.user.codec.ud,
                                                .has_state = true,
                                                .cut = rig->user.user.codec.cut,
                                                .join = rig->user.user.codec.join};
    rig_start(rig);
    rig_keep(rig, t.v, 33);
    rig_keep(rig, t.v, 80);
    assert_int_equal(rig_restore(rig, t.v, 100), 80);
    assert_int_equal(rig_restore(rig, t.v, 79), 33);
    assert_int_equal(rig_restore(rig, t.v, 32), 0);
    assert_int_equal(rig_covered(rig, t.v, 79), 33);
    t.v[50]++;
    assert_int_equal(rig_restore(rig, t.v, 100), 33);
    tokens_release(&t);
}

static void pieces_that_cannot_be_appended_come_joined(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(13, 100);
    rig->user.user.codec.appends = false;
    rig->user.user.codec.has_state = true;
    rig_start(rig);
    rig_keep(rig, t.v, 50);
    for (size_t i = 20; i < 100; i++) t.v[i]++;
    rig_keep(rig, t.v, 97);
    assert_int_equal(rig_restore(rig, t.v, 100), 97);
    tokens_release(&t);
}

/* A hit that is closed at any moment leaves nothing behind. */
static void a_hit_may_be_closed_at_any_moment(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(14, 400);
    struct store_piece piece;
    rig_start(rig);
    rig_keep(rig, t.v, 400);
    for (int round = 0; round < 200; round++) {
        rig->user.user.codec.appends = round % 2 == 0;
        struct store_hit *hit = rig_find(rig, t.v, 400);
        store_fetch(hit, 400);
        for (int i = 0; i < round % 5; i++) (void)store_next_piece(hit, &piece);
        store_hit_close(hit);
    }
    rig->user.user.codec.appends = true;
    assert_int_equal(rig_restore(rig, t.v, 400), 400);
    tokens_release(&t);
}

/* ---- Identities ---- */

static void users_and_salts_never_share_anything(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(15, 60);
    rig_start(rig);
    rig_keep(rig, t.v, 60);
    rig->salt = "other";
    assert_int_equal(rig_found(rig, t.v, 60), 0);
    rig->salt = NULL;
    uint8_t *const parts[] = {rig->user.user.identity.model, &rig->user.user.identity.quant,
                              rig->user.user.identity.context};
    for (size_t i = 0; i < 3; i++) {
        (*parts[i])++;
        assert_int_equal(rig_found(rig, t.v, 60), 0);
        (*parts[i])--;
    }
    assert_int_equal(rig_restore(rig, t.v, 60), 60);
    tokens_release(&t);
}

/* ---- Counting ---- */

static void every_counted_lookup_is_a_hit_or_a_miss(void **state)
{
    struct rig *rig = *state;
    struct dice dice = {16};
    struct tokens t = some_tokens(16, 200);
    rig_start(rig);
    rig_keep(rig, t.v, 100);
    for (int i = 0; i < 100; i++) {
        t.v[dice_roll(&dice, 200)] += i % 3 == 0;
        assert_true(rig_restore(rig, t.v, 50 + (int32_t)dice_roll(&dice, 150)) >= 0);
    }
    const struct store_stats *stats = store_stats(rig->store);
    assert_int_equal(metric_get(&stats->hits_exact) + metric_get(&stats->hits_resume) +
                         metric_get(&stats->hits_longest_prefix) + metric_get(&stats->misses),
                     100);
    assert_true(metric_get(&stats->longest_prefix_probes) > 0);
    tokens_release(&t);
}

static void a_parent_key_is_a_hint(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(17, 100), other = some_tokens(18, 100);
    rig_start(rig);
    rig_keep(rig, t.v, 60);
    rig_keep(rig, other.v, 60);
    struct slab_key keys[] = {slab_key_of(&rig->user.user.identity, t.v, 60),
                              slab_key_of(&rig->user.user.identity, other.v, 60),
                              {{1, 2, 3}}};
    for (size_t i = 0; i < 3; i++) {
        struct store_query query = {.user = &rig->user.user,
                                    .tokens = t.v,
                                    .n = 100,
                                    .parent_key = &keys[i],
                                    .deadline = clock_now(clock_monotonic()) + clock_from_ms(30000)};
        struct store_hit *hit = store_find(rig->store, &query);
        assert_int_equal(store_hit_tokens(hit), 60);
        store_hit_count(hit, 60);
        store_hit_close(hit);
    }
    assert_int_equal(metric_get(&store_stats(rig->store)->hits_resume), 1);
    assert_int_equal(metric_get(&store_stats(rig->store)->hits_longest_prefix), 2);
    tokens_release(&t);
    tokens_release(&other);
}

/* ---- Against a search through lists ---- */

enum { LISTS = 60 };

/* With few different tokens, conversations branch anywhere. A lookup must find the longest common prefix with any saved
 * list; with states, the longest saved list that is a prefix. */
static int32_t expected(const struct tokens *lists, size_t n_lists, const struct tokens *t, bool has_state)
{
    size_t best = 0;
    for (size_t i = 0; i < n_lists; i++) {
        size_t common = tokens_common_prefix(&lists[i], t);
        if (has_state && common < lists[i].len) continue;
        if (common > best) best = common;
    }
    return (int32_t)best;
}

static struct tokens next_list(struct dice *dice, const struct tokens *lists, size_t n)
{
    struct tokens t = {0};
    if (n > 0) {
        const struct tokens *from = &lists[dice_roll(dice, n)];
        tokens_append(&t, from->v, dice_roll(dice, from->len + 1));
    }
    dice_tokens(dice, &t, 1 + dice_roll(dice, 60), 3);
    return t;
}

static void compare_with_lists(struct rig *rig, bool has_state, bool appends)
{
    struct dice dice = {99};
    struct tokens lists[LISTS];
    rig->user.user.codec.has_state = has_state;
    rig->user.user.codec.appends = appends;
    rig_start(rig);
    for (size_t n = 0; n < LISTS; n++) {
        lists[n] = next_list(&dice, lists, n);
        rig_keep(rig, lists[n].v, (int32_t)lists[n].len);
        for (int i = 0; i < 5; i++) {
            struct tokens asked = next_list(&dice, lists, n + 1);
            assert_int_equal(rig_restore(rig, asked.v, (int32_t)asked.len), expected(lists, n + 1, &asked, has_state));
            tokens_release(&asked);
        }
    }
    for (size_t n = 0; n < LISTS; n++) tokens_release(&lists[n]);
}

static void random_conversations_equal_a_search_through_lists(void **state)
{
    compare_with_lists(*state, false, true);
}

static void so_do_those_with_states_and_joined_rows(void **state)
{
    compare_with_lists(*state, true, false);
}

/* ---- Many at once ---- */

enum { AGENTS = 6 };

/* Each thread has a user of its own, all with the same identity: they save and find the same. */
static void *work(void *ud)
{
    struct rig *rig = ud;
    for (uint64_t round = 0; round < 30; round++) {
        struct tokens t = some_tokens(round % 6, 100 + 10 * (size_t)round);
        int32_t n = (int32_t)t.len;
        rig_keep(rig, t.v, n);
        rig->salt = rig_restore(rig, t.v, n) == n ? rig->salt : "wrong";
        tokens_release(&t);
    }
    store_remove_user(rig->store, &rig->user.user);
    return NULL;
}

static void many_users_at_once_disturb_nobody(void **state)
{
    struct rig *rig = *state;
    struct rig agents[AGENTS];
    pthread_t threads[AGENTS];
    rig_start(rig);
    for (size_t i = 0; i < AGENTS; i++) {
        agents[i] = (struct rig){.params = rig->params, .store = rig->store};
        fake_user_init(&agents[i].user, 7, (struct store_codec){.rows = true, .appends = i % 2 == 0});
        pthread_create(&threads[i], NULL, work, &agents[i]);
    }
    for (size_t i = 0; i < AGENTS; i++) {
        pthread_join(threads[i], NULL);
        assert_null(agents[i].salt);
        fake_user_release(&agents[i].user);
    }
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 0);
}

/* Its threads have not begun yet when it is closed. */
static void what_is_saved_before_the_store_is_open_is_kept(void **state)
{
    struct rig *rig = *state;
    for (uint64_t i = 0; i < 20; i++) {
        struct tokens t = some_tokens(300 + i, 64);
        rig->store = store_open(&rig->params, NULL);
        assert_true(rig_save_from(rig, t.v, 0, 64) != 0);
        assert_true(store_close(rig->store, CLOCK_NEVER));
        rig_start(rig);
        if (rig->params.save_tier != STORE_RAM) assert_int_equal(rig_restore(rig, t.v, 64), 64);
        rig_stop(rig);
        tokens_release(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TIERS(what_is_saved_is_found_and_comes_back_exactly),
        TIERS(a_hit_ends_where_the_tokens_differ),
        TIERS(pieces_come_in_order_and_say_what_is_wanted_of_them),
        TIERS(a_fetch_of_less_than_was_found_ends_there),
        TIERS(looking_again_sees_what_was_saved_meanwhile),
        TIERS(a_conversation_is_written_once),
        TIERS(a_shared_prompt_is_written_once),
        TIERS(what_is_stored_already_is_not_written_again),
        TIERS(what_its_user_takes_back_is_neither_found_nor_kept),
        TIERS(rows_that_hang_on_nothing_are_dropped_and_counted),
        TIERS(a_state_is_gone_on_from_only_where_it_was_saved),
        TIERS(a_state_without_its_rows_is_not_kept),
        TIERS(states_without_rows_are_found_alone),
        TIERS(pieces_that_cannot_be_appended_come_joined),
        TIERS(a_hit_may_be_closed_at_any_moment),
        TIERS(users_and_salts_never_share_anything),
        TIERS(every_counted_lookup_is_a_hit_or_a_miss),
        TIERS(a_parent_key_is_a_hint),
        TIERS(random_conversations_equal_a_search_through_lists),
        TIERS(so_do_those_with_states_and_joined_rows),
        TIERS(what_is_saved_before_the_store_is_open_is_kept),
        TIERS(many_users_at_once_disturb_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
