/* Two stores with one real redis-server between them: what one computes the other finds, whole blocks alone; parts and
 * blocks that the server evicts; bytes that somebody changed; a server that stalls, is killed or is full. */
#include "fakes/cmocka_all.h"
#include "fakes/redis_server.h"
#include "fakes/store_rig.h"
#include "store/index/index.h"
#include "store/remote/remote_backend.h"

#include "base/clock.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STRIDE = 16, TIMEOUT_MS = 300 };

static struct redis_server server;
static struct remote_params remote; /* that the rigs are started with */

static int start_server(void **state)
{
    (void)state;
    redis_server_start(&server, NULL);
    return 0;
}

static int stop_server(void **state)
{
    (void)state;
    redis_server_stop(&server);
    return 0;
}

static int reset(void **state)
{
    (void)state;
    remote = (struct remote_params){
        .url = server.url, .prefix = "test", .timeout_ns = clock_from_ms(TIMEOUT_MS), .stride = STRIDE};
    redis_server_kill(&server);
    redis_server_restart(&server);
    return 0;
}

/* ---- Stores ---- */

static int64_t soon(void)
{
    return clock_now(clock_monotonic()) + A_MINUTE_NS;
}

static void begin(struct rig *rig)
{
    rig_init(rig, STORE_DISK);
    rig->params.tiers[STORE_REMOTE] = (struct store_tier_params){
        .quota = 256 << 20, .server = &remote, .probe_timeout_ns = clock_from_ms(TIMEOUT_MS)};
}

static struct rig *started(struct rig *rig)
{
    begin(rig);
    rig_start(rig);
    return rig;
}

static struct store_query query_of(struct rig *rig, const struct tokens *tokens, int32_t n)
{
    return (struct store_query){.user = &rig->user.user, .tokens = tokens->v, .n = n};
}

/* As a process that ends, for as long as it takes. */
static void await_uploads(struct rig *rig)
{
    store_allow_upload_wait(rig->store, A_MINUTE_NS);
    store_wait_for_uploads(rig->store, soon());
}

/* As an engine saves: what is not stored yet, from the beginning of the block that a server lacks. */
static void keep(struct rig *rig, const struct tokens *tokens, int32_t n)
{
    struct store_query query = query_of(rig, tokens, n);
    int32_t from = store_covered(rig->store, &query);
    if (rig->user.user.codec.rows) from = store_block_start(rig->store, &query, from);
    rig_wait(rig, rig_save_from(rig, tokens->v, from, n));
    await_uploads(rig);
}

/* As a request looks up: how much the tier on the server has of the tokens. */
static int32_t finds(struct rig *rig, const struct tokens *tokens, int32_t n)
{
    struct store_query query = query_of(rig, tokens, n);
    store_probe(rig->store, &query);
    struct store_hit *hit = store_find(rig->store, &query);
    int32_t found = store_hit_tokens_in(hit, STORE_REMOTE);
    store_hit_close(hit);
    return found;
}

static int64_t count(const metric_value *value)
{
    return metric_get(value);
}

static struct store_tier_status status_of(struct rig *rig)
{
    struct store_tier_status status;
    store_tier_status(rig->store, STORE_REMOTE, &status);
    return status;
}

static void await_on(struct rig *rig, bool on)
{
    int64_t until = soon();
    while (status_of(rig).on != on && clock_now(clock_monotonic()) < until) sched_yield();
    assert_int_equal(status_of(rig).on, on);
}

#define ASK(...) redis_server_ask(&server, (const char *const[]){__VA_ARGS__, NULL})

/* Whether it is the value by which a store that was just started measures what reading costs: a megabyte, which is
 * removed when that is known. Slabs of these tests are smaller. */
static bool is_measured(const char *key)
{
    char *text = ASK("STRLEN", key);
    bool is = strtoul(text, NULL, 10) >= 1 << 20;
    free(text);
    return is;
}

static size_t n_keys(void)
{
    char *all = ASK("KEYS", "*"), *save = NULL;
    size_t n = 0;
    for (char *key = strtok_r(all, "\n", &save); key != NULL; key = strtok_r(NULL, "\n", &save)) n += !is_measured(key);
    free(all);
    return n;
}

/* The name of a slab that was not there before. */
static char *key_besides(const char *before)
{
    char *all = ASK("KEYS", "*"), *save = NULL;
    char *found = NULL;
    for (char *key = strtok_r(all, "\n", &save); key != NULL && found == NULL; key = strtok_r(NULL, "\n", &save))
        if (strstr(before, key) == NULL && !is_measured(key)) found = strdup(key);
    free(all);
    assert_non_null(found);
    return found;
}

static struct rig *started_with(struct rig *rig, struct store_codec codec)
{
    begin(rig);
    fake_user_release(&rig->user);
    fake_user_init(&rig->user, 7, codec);
    rig_start(rig);
    return rig;
}

/* ---- Tests ---- */

static void what_one_computed_another_finds(void **state)
{
    struct rig one, other;
    struct tokens tokens = some_tokens(1, 200);
    (void)state;
    started(&one);
    started(&other);
    assert_int_equal(finds(&other, &tokens, 200), 0);
    keep(&one, &tokens, 100);
    assert_int_equal(n_keys(), 6); /* whole blocks: 96 tokens */
    assert_int_equal(finds(&other, &tokens, 200), 96);
    assert_int_equal(rig_restore(&other, tokens.v, 200), 96);
    assert_int_equal(count(&store_stats(other.store)->hits_longest_prefix), 1);
    assert_int_equal(status_of(&other).entries, 6);
    /* What it computes behind them is stored, and goes back. */
    keep(&other, &tokens, 150);
    assert_int_equal(n_keys(), 9);
    assert_int_equal(finds(&one, &tokens, 200), 144);
    assert_int_equal(rig_restore(&one, tokens.v, 200), 144);
    tokens_release(&tokens);
    rig_release(&one);
    rig_release(&other);
}

/* A turn begins in the middle of a block, whose first rows are in the cells and on the disk: all of it goes up. */
static void turns_that_end_within_blocks_leave_no_holes(void **state)
{
    struct rig one, other;
    struct tokens tokens = some_tokens(2, 200);
    (void)state;
    started(&one);
    started(&other);
    static const int32_t turns[] = {5, 15, 16, 17, 40, 41, 79, 80, 100, 131};
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) keep(&one, &tokens, turns[i]);
    assert_int_equal(count(&store_stats(one.store)->uploads_dropped), 0);
    assert_int_equal(finds(&other, &tokens, 200), 128);
    assert_int_equal(rig_restore(&other, tokens.v, 200), 128);
    tokens_release(&tokens);
    rig_release(&one);
    rig_release(&other);
}

/* Else a machine that computes faster than a network is assumed to be would never read, and never find out. */
static void what_a_read_costs_is_known_before_one(void **state)
{
    struct rig one, other;
    struct tokens tokens = some_tokens(31, 200);
    struct read_cost assumed;
    (void)state;
    started(&one);
    started(&other);
    keep(&one, &tokens, 192);
    int64_t bytes = count(&store_stats(one.store)->uploaded_bytes);
    struct store_query query = query_of(&other, &tokens, 192);
    store_probe(other.store, &query);
    struct store_hit *hit = store_find(other.store, &query);
    assert_int_equal(store_hit_tokens(hit), 192);
    read_cost_init(&assumed, &read_cost_of_networks);
    double by_assumption = read_cost_ns(&assumed, 192 / STRIDE, (double)bytes, 0);
    double known = store_hit_read_ns(hit, 0, 192);
    assert_true(known < 0.99 * by_assumption || known > 1.01 * by_assumption);
    store_hit_close(hit);
    tokens_release(&tokens);
    rig_release(&one);
    rig_release(&other);
}

static void note_refusal(void *ud, const hearth_error *error)
{
    hearth_error *refusal = ud;
    assert_non_null(error);
    *refusal = *error;
}

/* They would change this index, and nothing on the server. */
static void orders_about_what_is_on_the_server_are_refused(void **state)
{
    static const enum store_order orders[] = {STORE_KEEP, STORE_RELEASE, STORE_DROP};
    struct rig rig;
    struct tokens tokens = some_tokens(34, 96);
    (void)state;
    started(&rig);
    keep(&rig, &tokens, 96);
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        hearth_error refusal = {0};
        struct store_ordered ordered = {.tier = STORE_REMOTE,
                                        .key = slab_key_of(&rig.user.user.identity, tokens.v, 96),
                                        .order = orders[i],
                                        .done = note_refusal,
                                        .ud = &refusal};
        store_order(rig.store, &ordered);
        assert_int_equal(refusal.code, HEARTH_INVALID);
        assert_string_equal(refusal.param, "tier");
    }
    assert_int_equal(status_of(&rig).entries, 6);
    tokens_release(&tokens);
    rig_release(&rig);
}

static void what_is_there_is_not_sent_again(void **state)
{
    struct rig one, other;
    struct tokens tokens = some_tokens(3, 200);
    (void)state;
    started(&one);
    started(&other);
    keep(&one, &tokens, 160);
    int64_t sent = count(&store_stats(one.store)->uploaded_bytes);
    assert_true(sent > 0);
    keep(&other, &tokens, 160);
    assert_int_equal(count(&store_stats(other.store)->uploaded_bytes), 0);
    assert_int_equal(count(&store_stats(other.store)->uploads_dropped), 0);
    assert_int_equal(n_keys(), 10);
    tokens_release(&tokens);
    rig_release(&one);
    rig_release(&other);
}

static void a_tier_that_has_it_all_is_asked_alone(void **state)
{
    struct rig rig;
    struct tokens tokens = some_tokens(4, 200);
    (void)state;
    started(&rig);
    keep(&rig, &tokens, 100);
    int64_t probes = count(&store_stats(rig.store)->probes);
    finds(&rig, &tokens, 111); /* the block from 96 on is not whole in the query */
    assert_int_equal(count(&store_stats(rig.store)->probes), probes);
    finds(&rig, &tokens, 112);
    assert_int_equal(count(&store_stats(rig.store)->probes), probes + 1);
    tokens_release(&tokens);
    rig_release(&rig);
}

static void users_salts_and_strides_share_nothing(void **state)
{
    struct rig one, model, salt, stride;
    struct tokens tokens = some_tokens(5, 200);
    (void)state;
    started(&one);
    keep(&one, &tokens, 100);
    begin(&model);
    fake_user_release(&model.user);
    fake_user_init(&model.user, 8, (struct store_codec){.rows = true, .appends = true});
    rig_start(&model);
    assert_int_equal(finds(&model, &tokens, 200), 0);
    started(&salt);
    struct identity salted = identity_salted(&salt.user.user.identity, "mine");
    struct store_query query = query_of(&salt, &tokens, 200);
    query.identity = &salted;
    store_probe(salt.store, &query);
    struct store_hit *hit = store_find(salt.store, &query);
    assert_int_equal(store_hit_tokens(hit), 0);
    store_hit_close(hit);
    begin(&stride);
    stride.params.stride = 2 * STRIDE;
    remote.stride = 2 * STRIDE;
    rig_start(&stride);
    assert_int_equal(finds(&stride, &tokens, 200), 0);
    tokens_release(&tokens);
    rig_release(&one);
    rig_release(&model);
    rig_release(&salt);
    rig_release(&stride);
}

/* Evicted before the lookup: the prefix is shorter, and what follows is found again once the hole was filled. */
static void a_hole_shortens_the_prefix_until_it_is_filled(void **state)
{
    struct rig one, other, third;
    struct tokens tokens = some_tokens(6, 200);
    (void)state;
    started(&one);
    started(&other);
    keep(&one, &tokens, 48);
    char *before = ASK("KEYS", "*");
    keep(&one, &tokens, 64);
    char *fourth = key_besides(before);
    keep(&one, &tokens, 128);
    assert_int_equal(finds(&other, &tokens, 200), 128);
    free(ASK("DEL", fourth));
    assert_int_equal(finds(&other, &tokens, 200), 48);
    assert_int_equal(rig_restore(&other, tokens.v, 200), 48);
    started(&third); /* computes it all */
    keep(&third, &tokens, 64);
    assert_int_equal(finds(&other, &tokens, 200), 128);
    assert_int_equal(rig_restore(&other, tokens.v, 200), 128);
    free(before);
    free(fourth);
    tokens_release(&tokens);
    rig_release(&one);
    rig_release(&other);
    rig_release(&third);
}

/* Takes what comes of all that was found; `lost`: not all of it did. */
static int32_t take(struct rig *rig, const struct tokens *tokens, const char *deleted, const char *changed, bool *lost)
{
    struct store_query query = query_of(rig, tokens, (int32_t)tokens->len);
    store_probe(rig->store, &query);
    struct store_hit *hit = store_find(rig->store, &query);
    if (deleted != NULL) free(ASK("DEL", deleted));
    if (changed != NULL) free(ASK("SETRANGE", changed, "200", "~~~~~~"));
    store_fetch(hit, store_hit_tokens(hit));
    int32_t taken = rig_take_all(rig, hit, tokens->v, lost);
    store_hit_close(hit);
    return taken;
}

/* Evicted, or changed, between lookup and fetch: the tokens before it are good, the rest is computed. */
static void what_is_lost_on_the_way_costs_itself_alone(void **state)
{
    (void)state;
    for (int changes = 0; changes < 2; changes++) {
        struct rig one, other;
        struct tokens tokens = some_tokens(7 + (uint64_t)changes, 160);
        bool lost = false;
        started(&one);
        started(&other);
        keep(&one, &tokens, 48);
        char *before = ASK("KEYS", "*");
        keep(&one, &tokens, 64);
        char *fourth = key_besides(before);
        keep(&one, &tokens, 160);
        assert_int_equal(take(&other, &tokens, changes ? NULL : fourth, changes ? fourth : NULL, &lost), 48);
        assert_true(lost);
        assert_int_equal(count(&store_stats(other.store)->corrupt_files), changes);
        await_uploads(&other);
        int64_t until = soon();
        while (finds(&other, &tokens, 160) != 48 && clock_now(clock_monotonic()) < until) sched_yield();
        assert_int_equal(finds(&other, &tokens, 160), 48); /* what was changed is gone from the server, too */
        keep(&other, &tokens, 160);
        assert_int_equal(finds(&one, &tokens, 160), 160);
        free(before);
        free(fourth);
        tokens_release(&tokens);
        rig_release(&one);
        rig_release(&other);
    }
}

static void a_server_that_stalls_costs_one_time_out(void **state)
{
    struct rig one, other;
    struct tokens tokens = some_tokens(9, 200);
    (void)state;
    started(&one);
    started(&other);
    keep(&one, &tokens, 100);
    redis_server_stall(&server, true);
    int64_t began = clock_now(clock_monotonic());
    assert_int_equal(finds(&other, &tokens, 200), 0);
    assert_true(clock_now(clock_monotonic()) - began >= clock_from_ms(TIMEOUT_MS));
    assert_false(status_of(&other).on);
    assert_non_null(strstr(status_of(&other).trouble, "does not answer"));
    int64_t probes = count(&store_stats(other.store)->probes);
    for (int i = 0; i < 100; i++) assert_int_equal(finds(&other, &tokens, 200), 0);
    assert_int_equal(count(&store_stats(other.store)->probes), probes); /* nobody waited again */
    assert_int_equal(count(&store_stats(other.store)->probes_failed), 1);
    keep(&other, &tokens, 200); /* saves go to the disk as ever */
    assert_int_equal(rig_found(&other, tokens.v, 200), 200);
    redis_server_stall(&server, false);
    await_on(&other, true);
    assert_int_equal(finds(&other, &(struct tokens){.v = tokens.v, .len = 100}, 100), 0); /* the disk has it */
    tokens_release(&tokens);
    rig_release(&one);
    rig_release(&other);
}

/* A question that does not pay for longer is given up, which says nothing of the server. */
static void who_is_in_haste_waits_no_longer_than_that(void **state)
{
    struct rig rig;
    struct tokens tokens = some_tokens(36, 100);
    (void)state;
    remote.timeout_ns = A_MINUTE_NS;
    for (int states = 0; states < 2; states++) {
        begin(&rig);
        fake_user_release(&rig.user);
        fake_user_init(&rig.user, 7, (struct store_codec){.rows = !states, .has_state = states, .appends = true});
        rig.params.tiers[STORE_REMOTE].probe_timeout_ns = A_MINUTE_NS;
        rig_start(&rig);
        redis_server_stall(&server, true);
        int64_t began = clock_now(clock_monotonic());
        struct store_query query = query_of(&rig, &tokens, 100);
        query.probe_until = began + clock_from_ms(50);
        store_probe(rig.store, &query);
        assert_true(clock_now(clock_monotonic()) - began < A_MINUTE_NS / 4);
        assert_int_equal(count(&store_stats(rig.store)->probes_failed), 1);
        assert_true(status_of(&rig).on);
        redis_server_stall(&server, false);
        rig_release(&rig);
    }
    tokens_release(&tokens);
}

/* Asking all the same would cost a connection, whose answer nobody reads. */
static void whose_time_is_over_does_not_ask(void **state)
{
    struct rig rig;
    struct tokens tokens = some_tokens(37, 100);
    (void)state;
    for (int states = 0; states < 2; states++) {
        begin(&rig);
        fake_user_release(&rig.user);
        fake_user_init(&rig.user, 7, (struct store_codec){.rows = !states, .has_state = states, .appends = true});
        rig_start(&rig);
        await_on(&rig, true);
        int64_t probes = count(&store_stats(rig.store)->probes);
        struct store_query query = query_of(&rig, &tokens, 100);
        query.probe_until = clock_now(clock_monotonic());
        store_probe(rig.store, &query);
        assert_int_equal(count(&store_stats(rig.store)->probes), probes);
        query.probe_until = 0;
        store_probe(rig.store, &query);
        assert_int_equal(count(&store_stats(rig.store)->probes), probes + 1);
        assert_true(status_of(&rig).on);
        rig_release(&rig);
    }
    tokens_release(&tokens);
}

static void a_server_that_stalls_in_a_fetch_costs_its_rest(void **state)
{
    struct rig one, other;
    struct tokens tokens = some_tokens(10, 160);
    bool lost = false;
    (void)state;
    started(&one);
    started(&other);
    keep(&one, &tokens, 160);
    struct store_query query = query_of(&other, &tokens, 160);
    store_probe(other.store, &query);
    struct store_hit *hit = store_find(other.store, &query);
    assert_int_equal(store_hit_tokens(hit), 160);
    redis_server_stall(&server, true);
    store_fetch(hit, 160);
    assert_int_equal(rig_take_all(&other, hit, tokens.v, &lost), 0);
    assert_true(lost);
    store_hit_close(hit);
    redis_server_stall(&server, false);
    await_on(&other, true);
    tokens_release(&tokens);
    rig_release(&one);
    rig_release(&other);
}

/* It greets, and refuses what is asked then. */
static void a_server_that_is_lost_again_is_left_alone_for_longer(void **state)
{
    struct rig rig;
    struct tokens tokens = some_tokens(33, 100);
    const int64_t second = 1000000000;
    (void)state;
    remote.ttl_s = 3600;
    started_with(&rig, (struct store_codec){.rows = true, .has_state = true, .appends = true});
    free(ASK("ACL", "SETUSER", "default", "-expire")); /* which reading hints needs */
    for (int64_t loss = 0, least = 0; loss < 3; loss++, least = 2 * least + (loss == 1) * second) {
        int64_t began = clock_now(clock_monotonic());
        assert_int_equal(finds(&rig, &tokens, 100), 0);
        await_on(&rig, true);
        assert_int_equal(count(&store_stats(rig.store)->probes_failed), loss + 1);
        assert_true(clock_now(clock_monotonic()) - began >= least);
    }
    tokens_release(&tokens);
    rig_release(&rig);
}

/* As by a probe which finds that the server has evicted it, or after a loss. */
static void what_leaves_the_index_while_it_is_read_is_not_damaged(void **state)
{
    struct rig one, other;
    struct tokens tokens = some_tokens(37, 160);
    bool lost = false;
    (void)state;
    remote.timeout_ns = A_MINUTE_NS;
    started(&one);
    started(&other);
    keep(&one, &tokens, 160);
    struct store_query query = query_of(&other, &tokens, 160);
    store_probe(other.store, &query);
    struct store_hit *hit = store_find(other.store, &query);
    assert_int_equal(store_hit_tokens(hit), 160);
    redis_server_stall(&server, true);
    store_fetch(hit, 160);
    struct index *index = store_tier_index(other.store, STORE_REMOTE);
    struct slab_key key = slab_key_of(&other.user.user.identity, tokens.v, STRIDE);
    struct victim *victim = index_drop_named(index, &key, SLAB_ROWS);
    if (victim != NULL) index_deleted(index, victim);
    redis_server_stall(&server, false);
    assert_int_equal(rig_take_all(&other, hit, tokens.v, &lost), 0);
    assert_true(lost);
    store_hit_close(hit);
    assert_int_equal(count(&store_stats(other.store)->corrupt_files), 0);
    tokens_release(&tokens);
    rig_release(&one);
    rig_release(&other);
}

static void uploads_that_wait_when_the_server_is_lost_are_counted(void **state)
{
    struct rig rig;
    int64_t until = soon();
    (void)state;
    remote.timeout_ns = clock_from_ms(3000);
    begin(&rig);
    rig.params.tiers[STORE_REMOTE].probe_timeout_ns = remote.timeout_ns;
    rig_start(&rig);
    redis_server_stall(&server, true);
    for (uint64_t i = 0; i < 4; i++) {
        struct tokens tokens = some_tokens(50 + i, 100);
        rig_wait(&rig, rig_save_from(&rig, tokens.v, 0, 100));
        tokens_release(&tokens);
    }
    assert_true(status_of(&rig).on);
    while (count(&store_stats(rig.store)->uploads_dropped) < 4 && clock_now(clock_monotonic()) < until) sched_yield();
    assert_int_equal(count(&store_stats(rig.store)->uploads_dropped), 4);
    redis_server_stall(&server, false);
    rig_release(&rig);
}

static void a_server_that_was_killed_comes_back_empty(void **state)
{
    struct rig one, other;
    struct tokens tokens = some_tokens(11, 200);
    (void)state;
    started(&one);
    started(&other);
    keep(&one, &tokens, 96);
    assert_int_equal(finds(&other, &tokens, 200), 96);
    redis_server_kill(&server);
    keep(&one, &tokens, 128); /* which notices that the server is gone */
    assert_int_equal(finds(&one, &tokens, 200), 0);
    assert_int_equal(rig_found(&one, tokens.v, 200), 128); /* on its disk */
    redis_server_restart(&server);
    await_on(&one, true);
    assert_int_equal(status_of(&one).entries, 0); /* it was asked what of them is there */
    finds(&other, &tokens, 200);
    await_on(&other, true);
    assert_int_equal(finds(&other, &tokens, 200), 0);
    keep(&other, &tokens, 96);
    assert_int_equal(n_keys(), 6);
    tokens_release(&tokens);
    rig_release(&one);
    rig_release(&other);
}

static void without_a_server_a_store_starts_and_finds_it_later(void **state)
{
    (void)state;
    for (int states = 0; states < 2; states++) {
        struct rig rig;
        struct tokens tokens = some_tokens(12, 100);
        redis_server_kill(&server);
        started_with(&rig, (struct store_codec){.rows = true, .has_state = states, .appends = true});
        assert_false(status_of(&rig).on);
        keep(&rig, &tokens, 48);
        assert_int_equal(rig_found(&rig, tokens.v, 100), 48);
        redis_server_restart(&server);
        await_on(&rig, true);
        keep(&rig, &tokens, 100);
        /* The blocks before were saved while it was away, and blocks and states without them would not be found. */
        assert_int_equal(n_keys(), 0);
        assert_int_equal(count(&store_stats(rig.store)->uploads_dropped), 1 + states);
        tokens_release(&tokens);
        rig_release(&rig);
    }
}

static void a_full_server_is_left_alone_for_a_while(void **state)
{
    struct rig rig;
    (void)state;
    started(&rig);
    free(ASK("CONFIG", "SET", "maxmemory", "1"));
    for (uint64_t i = 0; i < 5; i++) {
        struct tokens tokens = some_tokens(20 + i, 100);
        keep(&rig, &tokens, 100);
        tokens_release(&tokens);
    }
    assert_int_equal(count(&store_stats(rig.store)->uploads_dropped), 5);
    assert_true(status_of(&rig).on);
    assert_non_null(strstr(status_of(&rig).trouble, "OOM"));
    char *refused = ASK("INFO", "errorstats");
    if (strstr(refused, "errorstat_OOM:count=1") == NULL) fail_msg("%s", refused); /* it was offered one block */
    free(refused);
    rig_release(&rig);
}

/* It is slow to answer at the start, when the first conversation is stored already. */
static void what_is_saved_before_the_server_has_answered_goes_there_later(void **state)
{
    struct rig rig;
    struct tokens tokens = some_tokens(41, 200);
    (void)state;
    remote.timeout_ns = A_MINUTE_NS;
    begin(&rig);
    rig.params.tiers[STORE_REMOTE].probe_timeout_ns = A_MINUTE_NS;
    redis_server_stall(&server, true);
    rig.store = store_open(&rig.params, NULL);
    rig_wait(&rig, rig_save_from(&rig, tokens.v, 0, 100));
    redis_server_stall(&server, false);
    assert_true(store_wait_ready(rig.store, soon()));
    keep(&rig, &tokens, 200);
    assert_int_equal(count(&store_stats(rig.store)->uploads_dropped), 0);
    assert_int_equal(n_keys(), 12);
    tokens_release(&tokens);
    rig_release(&rig);
}

/* A queue that is full: saves go on, and what does not fit is not sent. */
static void a_slow_server_holds_up_no_save(void **state)
{
    struct rig rig;
    (void)state;
    remote.timeout_ns = A_MINUTE_NS; /* the server counts as slow, not as away */
    begin(&rig);
    rig.params.tiers[STORE_REMOTE].probe_timeout_ns = A_MINUTE_NS;
    rig.params.backlog = 10000;
    rig_start(&rig);
    await_on(&rig, true);
    redis_server_stall(&server, true);
    for (uint64_t i = 0; i < 8; i++) {
        struct tokens tokens = some_tokens(30 + i, 100);
        rig_wait(&rig, rig_save_from(&rig, tokens.v, 0, 100));
        assert_int_equal(rig_found(&rig, tokens.v, 100), 100);
        tokens_release(&tokens);
    }
    assert_int_equal(count(&store_stats(rig.store)->saves_dropped), 0);
    int64_t dropped = count(&store_stats(rig.store)->uploads_dropped);
    assert_true(dropped > 0 && dropped < 8);
    redis_server_stall(&server, false);
    await_uploads(&rig);
    assert_int_equal(n_keys(), 6 * (8 - (size_t)dropped)); /* what was queued has arrived */
    rig_release(&rig);
}

/* The disk's shorter prefix costs less than the server's longer one where computing the difference does. */
static size_t n_clients(void)
{
    char *text = ASK("CLIENT", "LIST");
    size_t n = 1; /* a line each */
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) n++;
    free(text);
    return n;
}

/* In the middle of a slab, with another save behind it, which is not even asked for any more. */
static void a_slow_server_holds_up_no_end(void **state)
{
    struct rig rig;
    struct tokens tokens = some_tokens(35, 200), more = some_tokens(38, 200);
    const int64_t second = 1000000000;
    (void)state;
    remote.timeout_ns = A_MINUTE_NS;
    begin(&rig);
    rig.params.tiers[STORE_REMOTE].probe_timeout_ns = A_MINUTE_NS;
    rig_start(&rig);
    await_on(&rig, true);
    free(ASK("CONFIG", "RESETSTAT"));
    redis_server_stall(&server, true);
    rig_wait(&rig, rig_save_from(&rig, tokens.v, 0, 200));
    rig_wait(&rig, rig_save_from(&rig, more.v, 0, 200));
    int64_t began = clock_now(clock_monotonic());
    store_wait_for_uploads(rig.store, soon()); /* as where a model is unloaded */
    assert_true(clock_now(clock_monotonic()) - began < second);
    store_allow_upload_wait(rig.store, second);
    for (int model = 0; model < 8; model++) store_wait_for_uploads(rig.store, soon());
    int64_t took = clock_now(clock_monotonic()) - began;
    assert_true(took >= second && took < 4 * second);
    store_remove_user(rig.store, &rig.user.user);
    assert_false(store_close(rig.store, soon()));
    assert_true(clock_now(clock_monotonic()) - began < 20 * second);
    rig.store = NULL;
    redis_server_stall(&server, false);
    for (int64_t until = soon(); n_clients() > 1 && clock_now(clock_monotonic()) < until;) sched_yield();
    char *asked = ASK("INFO", "commandstats");
    if (strstr(asked, "cmdstat_getrange:calls=12,") == NULL) fail_msg("%s", asked); /* for the first save's blocks */
    free(asked);
    tokens_release(&more);
    tokens_release(&tokens);
    rig_release(&rig);
}

static void the_cheaper_of_two_tiers_is_fetched_from(void **state)
{
    struct rig one, other;
    struct tokens tokens = some_tokens(40, 160);
    (void)state;
    started(&one);
    free(ASK("CONFIG", "SET", "maxmemory", "1"));
    started(&other); /* which cannot measure, and takes the server to be far away */
    free(ASK("CONFIG", "SET", "maxmemory", "0"));
    keep(&one, &tokens, 160);
    rig_wait(&other, rig_save_from(&other, tokens.v, 0, 150));
    struct store_query query = query_of(&other, &tokens, 160);
    store_probe(other.store, &query);
    struct store_hit *hit = store_find(other.store, &query);
    assert_int_equal(store_hit_tier(hit), STORE_REMOTE);
    store_choose_tier(hit, 0);
    assert_int_equal(store_hit_tier(hit), STORE_REMOTE);
    assert_int_equal(store_hit_tokens(hit), 160);
    store_choose_tier(hit, 1000); /* 1 us a token: 10 of them cost less than a request over a network */
    assert_int_equal(store_hit_tier(hit), STORE_DISK);
    assert_int_equal(store_hit_tokens(hit), 150);
    store_choose_tier(hit, 1e9);
    assert_int_equal(store_hit_tier(hit), STORE_REMOTE);
    store_hit_close(hit);
    tokens_release(&tokens);
    rig_release(&one);
    rig_release(&other);
}

/* The index forgets what is beyond its quota; the server keeps it for others. */
static void the_quota_bounds_what_is_remembered(void **state)
{
    struct rig one, other;
    struct tokens tokens = some_tokens(41, 160);
    (void)state;
    begin(&one);
    one.params.tiers[STORE_REMOTE].quota = 3000;
    rig_start(&one);
    started(&other);
    keep(&one, &tokens, 160);
    int64_t until = soon();
    while (status_of(&one).bytes > 3000 && clock_now(clock_monotonic()) < until) sched_yield();
    assert_true(status_of(&one).bytes <= 3000 && status_of(&one).entries < 10);
    assert_int_equal(n_keys(), 10);
    assert_int_equal(finds(&other, &tokens, 160), 160);
    tokens_release(&tokens);
    rig_release(&one);
    rig_release(&other);
}

/* Users whose prefixes can only be reused where there is a state: with rows beside it, or without. */
static const struct store_codec with_states[] = {
    {.rows = true, .has_state = true, .appends = true}, {.rows = true, .has_state = true}, {.has_state = true}};

static void states_are_found_wherever_they_are(void **state)
{
    static const int32_t ends[] = {5, 16, 23, 64, 71, 90};
    (void)state;
    for (size_t i = 0; i < sizeof with_states / sizeof *with_states; i++) {
        struct rig one, other;
        struct tokens tokens = some_tokens(50 + i, 200);
        started_with(&one, with_states[i]);
        started_with(&other, with_states[i]);
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
            keep(&one, &tokens, ends[k]);
            assert_int_equal(finds(&other, &tokens, 200), ends[k]);
            assert_int_equal(finds(&other, &tokens, ends[k]), ends[k]);
        }
        assert_int_equal(count(&store_stats(one.store)->uploads_dropped), 0);
        assert_int_equal(rig_restore(&other, tokens.v, 200), 90);
        assert_int_equal(finds(&other, &tokens, 89), 71);
        assert_int_equal(finds(&other, &tokens, 4), 0);
        /* The other one goes on, and the first finds that. */
        keep(&other, &tokens, 90);
        keep(&other, &tokens, 117);
        assert_int_equal(finds(&one, &tokens, 200), 117);
        assert_int_equal(rig_restore(&one, tokens.v, 200), 117);
        tokens_release(&tokens);
        rig_release(&one);
        rig_release(&other);
        free(ASK("FLUSHALL"));
    }
}

/* Other tokens in the same block: the hints name positions of both, and only what is there counts. */
static void hints_of_another_branch_mislead_nobody(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof with_states / sizeof *with_states; i++) {
        struct rig one, other;
        struct tokens tokens = some_tokens(60 + i, 100), branch = some_tokens(60 + i, 100);
        branch.v[40]++;
        started_with(&one, with_states[i]);
        started_with(&other, with_states[i]);
        keep(&one, &tokens, 38);
        keep(&one, &tokens, 45);
        assert_int_equal(finds(&other, &branch, 100), 38);
        assert_int_equal(rig_restore(&other, branch.v, 100), 38);
        assert_int_equal(finds(&other, &tokens, 100), 45);
        tokens_release(&tokens);
        tokens_release(&branch);
        rig_release(&one);
        rig_release(&other);
        free(ASK("FLUSHALL"));
    }
}

/* As an encoding of media: a few tokens, found at their end alone. */
static void what_is_smaller_than_a_block_is_found(void **state)
{
    struct rig one, other;
    (void)state;
    started_with(&one, with_states[2]);
    started_with(&other, with_states[2]);
    for (uint64_t i = 0; i < 5; i++) {
        struct tokens tokens = some_tokens(70 + i, 8);
        keep(&one, &tokens, 8);
        assert_int_equal(finds(&other, &tokens, 8), 8);
        assert_int_equal(rig_restore(&other, tokens.v, 8), 8);
        tokens_release(&tokens);
    }
    assert_int_equal(n_keys(), 6); /* their hint is the same */
    rig_release(&one);
    rig_release(&other);
}

static void an_evicted_state_or_tail_costs_its_prefix_alone(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        struct rig one, other, third;
        struct tokens tokens = some_tokens(80, 100);
        started_with(&one, with_states[0]);
        started_with(&other, with_states[0]);
        keep(&one, &tokens, 20);
        char *before = ASK("KEYS", "*");
        keep(&one, &tokens, 30); /* its tail and its state: their hints are in the list that is there */
        char *added[2] = {key_besides(before), NULL};
        char *both = malloc(strlen(before) + strlen(added[0]) + 2);
        sprintf(both, "%s %s", before, added[0]);
        added[1] = key_besides(both);
        assert_int_equal(finds(&other, &tokens, 100), 30);
        free(ASK("DEL", added[which]));
        assert_int_equal(finds(&other, &tokens, 100), 20);
        assert_int_equal(rig_restore(&other, tokens.v, 100), 20);
        started_with(&third, with_states[0]);
        keep(&third, &tokens, 30);
        assert_int_equal(finds(&other, &tokens, 100), 30);
        free(both);
        free(before);
        free(added[0]);
        free(added[1]);
        tokens_release(&tokens);
        rig_release(&one);
        rig_release(&other);
        rig_release(&third);
        free(ASK("FLUSHALL"));
    }
}

/* A block with more states than a list has room for: the latest are found. */
static void a_list_of_hints_that_is_full_begins_anew(void **state)
{
    struct remote_params params = remote;
    params.stride = 1000;
    struct slab_key before = {{9}};
    struct backend_hints hints;
    (void)state;
    struct backend *backend = remote_backend_open(&params);
    assert_int_equal(backend->open(backend, NULL), 0);
    for (uint32_t i = 1; i <= BACKEND_HINTS; i++) {
        assert_int_equal(backend->add_hint(backend, &before, i, NULL), 0);
        assert_int_equal(backend->add_hint(backend, &before, i, NULL), 0);
    }
    assert_int_equal(backend->read_hints(backend, &before, 1, &hints, CLOCK_NEVER, NULL), 0);
    assert_int_equal(hints.n, BACKEND_HINTS);
    assert_int_equal(backend->add_hint(backend, &before, 500, NULL), 0);
    assert_int_equal(backend->read_hints(backend, &before, 1, &hints, CLOCK_NEVER, NULL), 0);
    assert_int_equal(hints.n, 1);
    assert_int_equal(hints.offsets[0], 500);
    backend->close(backend);
}

/* Whatever is in the list. */
static void hints_that_are_nonsense_are_left_out(void **state)
{
    struct rig one, other;
    struct tokens tokens = some_tokens(90, 40);
    (void)state;
    started_with(&one, with_states[2]);
    started_with(&other, with_states[2]);
    keep(&one, &tokens, 8);
    char *keys = ASK("KEYS", "*"), *save = NULL;
    for (char *key = strtok_r(keys, "\n", &save); key != NULL; key = strtok_r(NULL, "\n", &save)) {
        char *size = ASK("STRLEN", key);
        if (strcmp(size, "4") == 0) free(ASK("APPEND", key, "~~~~~~~~and so on, and so forth, and more of that"));
        free(size);
    }
    assert_int_equal(finds(&other, &tokens, 40), 8);
    assert_int_equal(rig_restore(&other, tokens.v, 40), 8);
    free(keys);
    tokens_release(&tokens);
    rig_release(&one);
    rig_release(&other);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, reset)
    const struct CMUnitTest tests[] = {
        TEST(what_one_computed_another_finds),
        TEST(turns_that_end_within_blocks_leave_no_holes),
        TEST(what_a_read_costs_is_known_before_one),
        TEST(orders_about_what_is_on_the_server_are_refused),
        TEST(what_is_there_is_not_sent_again),
        TEST(a_tier_that_has_it_all_is_asked_alone),
        TEST(users_salts_and_strides_share_nothing),
        TEST(a_hole_shortens_the_prefix_until_it_is_filled),
        TEST(what_is_lost_on_the_way_costs_itself_alone),
        TEST(a_server_that_stalls_costs_one_time_out),
        TEST(who_is_in_haste_waits_no_longer_than_that),
        TEST(whose_time_is_over_does_not_ask),
        TEST(a_server_that_stalls_in_a_fetch_costs_its_rest),
        TEST(a_server_that_is_lost_again_is_left_alone_for_longer),
        TEST(what_leaves_the_index_while_it_is_read_is_not_damaged),
        TEST(uploads_that_wait_when_the_server_is_lost_are_counted),
        TEST(a_server_that_was_killed_comes_back_empty),
        TEST(without_a_server_a_store_starts_and_finds_it_later),
        TEST(a_full_server_is_left_alone_for_a_while),
        TEST(what_is_saved_before_the_server_has_answered_goes_there_later),
        TEST(a_slow_server_holds_up_no_save),
        TEST(a_slow_server_holds_up_no_end),
        TEST(the_cheaper_of_two_tiers_is_fetched_from),
        TEST(the_quota_bounds_what_is_remembered),
        TEST(states_are_found_wherever_they_are),
        TEST(hints_of_another_branch_mislead_nobody),
        TEST(what_is_smaller_than_a_block_is_found),
        TEST(an_evicted_state_or_tail_costs_its_prefix_alone),
        TEST(a_list_of_hints_that_is_full_begins_anew),
        TEST(hints_that_are_nonsense_are_left_out),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
