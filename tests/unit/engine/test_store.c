/* What is saved to the store, when, and what is restored: token counts are exact, and a wrong cell is a wrong reply.
 * The store is the real one; the model is not. */
#include "stored.h"

static const struct shape one_pool = {.slots = 2, .seqs = 8, .window = 9000};

/* ---- Saving ---- */

static void a_prompt_is_stored_up_to_the_last_block_that_ends_32_tokens_before_its_end(void **state)
{
    static const struct {
        size_t prompt;
        int32_t stored;
        int events;
    } table[] = {{95, 0, 0}, {96, 64, 1}, {159, 64, 1}, {160, 128, 1}, {1000, 960, 1}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct stored s = {0};
        struct client c;
        struct rig *rig = *state;
        fake_llm.held = true;
        start(&s, rig, one_pool);
        client_init(&c, (int32_t)i, table[i].prompt, 50);
        ask(&s, &c);
        engine_submit(rig->engine, &c.job);
        fake_llm_step(10);
        client_await_tokens(&c, 5); /* it is still being generated */
        await_saves(&s);
        assert_int_equal(stored_of(&s, &c), table[i].stored);
        assert_int_equal(saves(&s, SLAB_COLD), table[i].events);
        fake_llm_step(1000);
        client_await_end(&c);
        stop(&s);
        client_release(&c);
        fake_llm_reset(&rig->clock);
    }
}

static void a_growing_reply_is_stored_at_intervals(void **state)
{
    struct stored s = {0};
    struct client c;
    struct shape shape = one_pool;
    shape.continued_interval = 100; /* two blocks */
    start(&s, *state, shape);
    client_init(&c, 3, 160, 3 * 128 + 40);
    run(&s, &c);
    settle_down(&s);
    assert_int_equal(saves(&s, SLAB_COLD), 1);      /* 128 */
    assert_int_equal(saves(&s, SLAB_CONTINUED), 3); /* 256, 384, 512 */
    assert_int_equal(saves(&s, SLAB_FINISH), 1);
    stop(&s);
    client_release(&c);
}

static void a_long_prompt_is_stored_while_it_is_computed(void **state)
{
    struct stored s = {0};
    struct client c;
    struct shape shape = one_pool;
    struct rig *rig = *state;
    shape.continued_interval = 1024;
    fake_llm.held = true;
    start(&s, rig, shape);
    client_init(&c, 3, 5000, 1);
    ask(&s, &c);
    engine_submit(rig->engine, &c.job);
    fake_llm_step(4); /* of 512 tokens each */
    while (saves(&s, SLAB_CONTINUED) < 1) sched_yield();
    assert_true(stored_of(&s, &c) >= 1024);
    assert_int_equal(saves(&s, SLAB_COLD), 0);
    fake_llm_step(1000);
    client_await_end(&c);
    settle_down(&s);
    assert_int_equal(saves(&s, SLAB_CONTINUED), 4); /* 1024, 2048, 3072, 4096 */
    stop(&s);
    client_release(&c);
}

static void a_finished_request_is_stored_with_its_reply(void **state)
{
    struct stored s = {0};
    struct client c, next;
    start(&s, *state, one_pool);
    client_init(&c, 3, 100, 30);
    run(&s, &c);
    settle_down(&s);
    assert_int_equal(stored_of(&s, &c), 129); /* the last token was never computed */
    assert_int_equal(saves(&s, SLAB_FINISH), 1);
    restart(&s, one_pool);
    next_turn(&next, &c, 10, 5);
    run(&s, &next);
    assert_int_equal(next.result.cache_n, 129);
    assert_int_equal(next.result.prompt_n, 11);
    stop(&s);
    client_release(&c);
    client_release(&next);
}

static void a_chat_is_continued_from_the_store(void **state)
{
    struct stored s = {0};
    struct client c, next;
    uint64_t hashes[] = {1, 2, 3, 4};
    start(&s, *state, one_pool);
    client_init(&c, 3, 300, 30);
    run(&s, &c);
    settle_down(&s);
    restart(&s, one_pool);
    next_turn(&next, &c, 40, 5);
    next.job.conversation = (struct conversation){.n_messages = 3, .hashes = hashes, .stable_end = 340};
    run(&s, &next);
    assert_int_equal(next.result.cache_n, 329);
    stop(&s);
    client_release(&c);
    client_release(&next);
}

static void a_cancelled_request_leaves_what_it_has_computed(void **state)
{
    struct stored s = {0};
    struct client c;
    struct rig *rig = *state;
    fake_llm.held = true;
    start(&s, rig, one_pool);
    client_init(&c, 3, 100, 1000);
    ask(&s, &c);
    engine_submit(rig->engine, &c.job);
    fake_llm_step(20);
    client_await_tokens(&c, 10);
    atomic_store(&c.job.cancelled, true);
    engine_poke(rig->engine);
    client_await_end(&c);
    settle_down(&s);
    assert_true(stored_of(&s, &c) >= 109);
    stop(&s);
    client_release(&c);
}

static void nothing_is_stored_of_a_request_that_wants_no_cache(void **state)
{
    struct stored s = {0};
    struct client c;
    start(&s, *state, one_pool);
    client_init(&c, 3, 300, 30);
    c.job.cache_prompt = false;
    run(&s, &c);
    settle_down(&s);
    assert_int_equal(stored_of(&s, &c), 0);
    stop(&s);
    client_release(&c);
}

static void what_is_larger_than_all_that_may_be_under_way_is_stored(void **state)
{
    for (int unified = 0; unified < 2; unified++) {
        struct store_params params = {
            .stride = STRIDE, .save_tier = STORE_RAM, .backlog = 64, LONG_TIMEOUTS, .files = files_machine()};
        struct client c;
        params.tiers[STORE_RAM].quota = 1 << 30;
        struct stored s = {.store = store_open(&params, NULL)};
        start(&s, *state, (struct shape){.slots = 1, .seqs = unified ? 4 : 0, .window = 1000});
        client_init(&c, 3, 300, 20);
        run(&s, &c);
        while (saves(&s, SLAB_FINISH) < 1) sched_yield();
        assert_int_equal(stored_of(&s, &c), 319);
        stop(&s);
        client_release(&c);
    }
}

static void a_turn_stores_only_what_is_new(void **state)
{
    struct stored s = {0};
    struct client turns[20];
    start(&s, *state, one_pool);
    for (int i = 0; i < 20; i++) {
        if (i == 0)
            client_init(&turns[i], 3, 500, 20);
        else
            next_turn(&turns[i], &turns[i - 1], 30, 20);
        run(&s, &turns[i]);
    }
    settle_down(&s);
    int32_t tokens = stored_of(&s, &turns[19]);
    assert_int_equal(tokens, 500 + 19 * 50 + 19);
    assert_int_equal(fake_llm.rows_saved, tokens);
    stop(&s);
    for (int i = 0; i < 20; i++) client_release(&turns[i]);
}

/* ---- Evicting ---- */

static void what_is_evicted_is_stored_and_comes_back(void **state)
{
    struct stored s = {0};
    struct client c[6];
    struct shape shape = {.slots = 1, .seqs = 3, .window = 1000};
    start(&s, *state, shape);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 6; i++) {
            if (round > 0) client_release(&c[i]);
            client_init(&c[i], 10 * i, 400, 20);
            run(&s, &c[i]);
            assert_int_equal(c[i].result.cache_n, round == 0 ? 0 : 399);
        }
    assert_int_equal(metric_get(&engine_stats(s.rig->engine)->prompt_tokens), 6 * 400 + 2 * 6);
    stop(&s);
    for (int i = 0; i < 6; i++) client_release(&c[i]);
}

static void evicted_cells_are_stored_first(void **state)
{
    struct stored s = {0};
    struct client a, b;
    struct shape shape = {.slots = 1, .seqs = 4, .window = 1000};
    fake_llm.n_cells = 1000;
    start(&s, *state, shape);
    client_init(&a, 0, 600, 100);
    client_init(&b, 50, 800, 100);
    run(&s, &a);
    run(&s, &b);
    settle_down(&s);
    assert_int_equal(stored_of(&s, &a), 699);
    stop(&s);
    client_release(&a);
    client_release(&b);
}

/* ---- State layouts, KV layouts, modes ---- */

static void conversation_over_restarts(void **state, struct shape shape, int32_t least_cached)
{
    struct stored s = {0};
    struct client turns[6];
    start(&s, *state, shape);
    for (int i = 0; i < 6; i++) {
        if (i == 0)
            client_init(&turns[i], 3, 300, 20);
        else
            next_turn(&turns[i], &turns[i - 1], 30, 20);
        run(&s, &turns[i]);
        if (i > 0) assert_true(turns[i].result.cache_n >= least_cached + (i - 1) * 50);
        settle_down(&s);
        restart(&s, shape);
    }
    stop(&s);
    for (int i = 0; i < 6; i++) client_release(&turns[i]);
}

static void a_conversation_goes_on_over_restarts_in_one_pool(void **state)
{
    conversation_over_restarts(state, one_pool, 319);
}

static void a_conversation_goes_on_over_restarts_with_a_stream_each(void **state)
{
    conversation_over_restarts(state, (struct shape){.slots = 3, .window = 1000}, 319);
}

static void what_cannot_be_cut_goes_on_over_restarts_in_one_pool(void **state)
{
    fake_llm.cuts = false;
    conversation_over_restarts(state, one_pool, 319);
}

static void what_cannot_be_cut_goes_on_over_restarts_with_a_stream_each(void **state)
{
    fake_llm.cuts = false;
    conversation_over_restarts(state, (struct shape){.slots = 3, .window = 1000}, 319);
}

static void deterministic_runs_store_whole_chunks(void **state)
{
    struct stored s = {0};
    struct client c, again;
    struct shape shape = {.slots = 2, .window = 1000, .deterministic = true};
    start(&s, *state, shape);
    client_init(&c, 3, 300, 50);
    run(&s, &c);
    settle_down(&s);
    assert_int_equal(stored_of(&s, &c), 256);
    restart(&s, shape);
    client_init(&again, 3, 300, 5);
    run(&s, &again);
    assert_int_equal(again.result.cache_n, 256);
    stop(&s);
    client_release(&c);
    client_release(&again);
}

static void different_scopes_share_nothing(void **state)
{
    struct stored s = {0};
    struct client c[3];
    const uint64_t scopes[] = {1, 2, 1};
    start(&s, *state, one_pool);
    for (int i = 0; i < 3; i++) {
        client_init(&c[i], 3, 300, 20);
        c[i].job.scope = scopes[i];
        run(&s, &c[i]);
        settle_down(&s);
        assert_int_equal(c[i].result.cache_n, i < 2 ? 0 : 299);
        restart(&s, one_pool);
    }
    stop(&s);
    for (int i = 0; i < 3; i++) client_release(&c[i]);
}

static void a_state_that_cannot_be_split_is_served_without_the_store(void **state)
{
    struct stored s = {0};
    struct client c;
    fake_llm.no_format = true;
    start(&s, *state, one_pool);
    assert_null(engine_store_user(s.rig->engine));
    client_init(&c, 3, 300, 20);
    run(&s, &c);
    stop(&s);
    client_release(&c);
}

static void system_prompts_outlive_a_restart(void **state)
{
    for (int i = 0; i < 3; i++) {
        struct stored s = {0};
        struct client c, again, third;
        struct shape shape = {.slots = 2, .seqs = i == 0 ? 0 : 8, .window = 2000, .caching = ENGINE_CACHES_SYSTEM};
        fake_llm.cuts = i != 2;
        start(&s, *state, shape);
        client_init(&c, 3, 500, 20);
        c.job.conversation.system_end = 300;
        run(&s, &c);
        settle_down(&s);
        assert_int_equal(saves(&s, SLAB_COLD), 1);
        restart(&s, shape);
        client_init(&again, 3, 300, 20);
        for (int32_t n = 0; n < 50; n++) tokens_push(&again.job.prompt, 100 + n);
        again.job.conversation.system_end = 300;
        run(&s, &again);
        assert_int_equal(again.result.cache_n, 300);
        int64_t read = metric_get(&store_stats(s.store)->read_bytes);
        client_init(&third, 3, 300, 20);
        for (int32_t n = 0; n < 50; n++) tokens_push(&third.job.prompt, 50 + n);
        third.job.conversation.system_end = 300;
        run(&s, &third);
        assert_int_equal(third.result.cache_n, 300);
        assert_int_equal(metric_get(&store_stats(s.store)->read_bytes), read); /* it is in memory by then */
        stop(&s);
        client_release(&c);
        client_release(&again);
        client_release(&third);
    }
}

/* A suspended request loses its cells to others, and finds them in the store. */
static void a_suspended_request_resumes_from_the_store(void **state)
{
    struct stored s = {0};
    struct client a, b;
    struct rig *rig = *state;
    struct shape shape = {
        .slots = 1, .seqs = 4, .window = 1000, .slot_timeout_ms = 1000, .snapshot_budget = 1 /* nothing fits */};
    fake_llm.n_cells = 1000;
    fake_llm.held = true;
    start(&s, rig, shape);
    client_init(&a, 0, 500, 200);
    client_init(&b, 50, 900, 50);
    ask(&s, &a);
    engine_submit(rig->engine, &a.job);
    fake_llm_step(50);
    client_await_tokens(&a, 20);
    ask(&s, &b);
    engine_submit(rig->engine, &b.job);
    fake_clock_advance(&rig->clock, 2000000000);
    fake_llm_step(100000);
    client_await_end(&b);
    client_await_end(&a);
    assert_true(client_got_right_reply(&a) && client_got_right_reply(&b));
    assert_int_equal(metric_get(&engine_stats(rig->engine)->preemptions), 1);
    assert_int_equal(metric_get(&engine_stats(rig->engine)->prompt_tokens), 500 + 900);
    stop(&s);
    client_release(&a);
    client_release(&b);
}

/* ---- Failures ---- */

static void what_cannot_be_loaded_is_computed(void **state)
{
    struct stored s = {0};
    struct client c, again;
    start(&s, *state, one_pool);
    client_init(&c, 3, 300, 20);
    run(&s, &c);
    settle_down(&s);
    restart(&s, one_pool);
    fake_llm.load_fails = true;
    client_init(&again, 3, 300, 20);
    run(&s, &again);
    assert_int_equal(again.result.cache_n, 0);
    stop(&s);
    client_release(&c);
    client_release(&again);
}

static void a_request_that_is_cancelled_while_it_is_fetched_leaves_nothing_behind(void **state)
{
    struct stored s = {0};
    struct client c, again;
    struct rig *rig = *state;
    start(&s, rig, one_pool);
    client_init(&c, 3, 3000, 20);
    run(&s, &c);
    settle_down(&s);
    restart(&s, one_pool);
    client_init(&again, 3, 3000, 20);
    ask(&s, &again);
    atomic_store(&again.job.cancelled, true);
    engine_submit(rig->engine, &again.job);
    client_await_end(&again);
    assert_true(again.failed);
    engine_drain(rig->engine, CLOCK_NEVER);
    stop(&s);
    client_release(&c);
    client_release(&again);
}

static void two_requests_for_the_same_prefix_fetch_it_once(void **state)
{
    struct stored s = {0};
    struct client c, again[2];
    struct rig *rig = *state;
    start(&s, rig, one_pool);
    client_init(&c, 3, 3000, 20);
    run(&s, &c);
    settle_down(&s);
    restart(&s, one_pool);
    fake_llm.rows_loaded = 0;
    for (int i = 0; i < 2; i++) {
        client_init(&again[i], 3, 3000, 20);
        tokens_push(&again[i].job.prompt, 50 + i);
        ask(&s, &again[i]);
        engine_submit(rig->engine, &again[i].job);
    }
    for (int i = 0; i < 2; i++) {
        client_await_end(&again[i]);
        assert_true(client_got_right_reply(&again[i]));
        assert_int_equal(again[i].result.cache_n, 3000);
    }
    assert_int_equal(fake_llm.rows_loaded, 3000);
    stop(&s);
    client_release(&c);
    for (int i = 0; i < 2; i++) client_release(&again[i]);
}

/* The system prompt of agents is in the cells once, also when it comes from the store. */
static void what_is_fetched_shares_what_is_resident(void **state)
{
    struct stored s = {0};
    struct client c[3];
    start(&s, *state, one_pool);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) {
            client_init(&c[i], 3, 2000, 20);
            for (int32_t k = 0; k < 200; k++) tokens_push(&c[i].job.prompt, (k * 5 + 11 * i + 1) % 190);
            fake_llm.rows_loaded = 0;
            run(&s, &c[i]);
            if (round == 1) assert_int_equal(c[i].result.cache_n, 2199);
            if (round == 1) assert_int_equal(fake_llm.rows_loaded, i == 0 ? 2199 : 199);
            client_release(&c[i]);
        }
        settle_down(&s);
        restart(&s, one_pool);
    }
    stop(&s);
}

/* ---- Lookups ---- */

static void poke(struct client *client)
{
    engine_poke(client->engine); /* as hearth_cancel() does */
}

static void whoever_is_answered_may_cancel(void **state)
{
    struct stored s = {0};
    struct client c;
    start(&s, *state, one_pool);
    client_init(&c, 3, 300, 20);
    c.job.only_lookup = true;
    c.engine = s.rig->engine;
    c.on_done = poke;
    ask(&s, &c);
    run_alone(s.rig, &c);
    assert_int_equal(c.result.lookup.prompt, 300);
    stop(&s);
    client_release(&c);
}

static void a_lookup_says_what_is_where_and_computes_nothing(void **state)
{
    struct stored s = {0};
    struct client c, asked;
    struct rig *rig = *state;
    start(&s, rig, one_pool);
    client_init(&c, 3, 300, 20);
    run(&s, &c);
    while (saves(&s, SLAB_FINISH) < 1) sched_yield();
    int32_t calls = fake_llm.calls;
    for (int i = 0; i < 2; i++) {
        next_turn(&asked, &c, 10, 5);
        asked.job.only_lookup = true;
        ask(&s, &asked);
        run_alone(rig, &asked);
        assert_int_equal(asked.result.lookup.prompt, 330);
        assert_int_equal(asked.result.lookup.resident, i == 0 ? 319 : 0);
        assert_int_equal(asked.result.lookup.tiers[STORE_RAM], 319);
        assert_int_equal(asked.result.lookup.tiers[STORE_DISK], 0);
        assert_int_equal(strlen(asked.result.lookup.key), 64);
        client_release(&asked);
        if (i == 0) restart(&s, one_pool);
    }
    assert_int_equal(fake_llm.calls, calls);
    stop(&s);
    client_release(&c);
}

/* Where the list of stored conversations finds what of them is resident. */
static void an_idle_sequence_tells_where_it_ends_in_the_store(void **state)
{
    struct stored s = {0};
    struct client c, turn;
    struct stored_mark mark;
    struct store_conversation found;
    size_t total;
    start(&s, *state, one_pool);
    assert_int_equal(engine_stored(s.rig->engine, NULL, 0), 0);
    client_init(&c, 3, 300, 20);
    run(&s, &c);
    for (int32_t cells = 319;; cells = 333) {
        while (engine_stored(s.rig->engine, &mark, 1) != 1 || mark.n != cells) sched_yield();
        struct store_page page = {.marks = &mark, .n_marks = 1};
        assert_int_equal(store_conversations(s.store, &page, &found, 1, &total), 1);
        assert_int_equal(total, 1);
        assert_int_equal(found.tokens, cells);
        assert_int_equal(found.marked, cells);
        if (cells == 333) break;
        next_turn(&turn, &c, 9, 5);
        run(&s, &turn);
    }
    restart(&s, one_pool);
    assert_int_equal(engine_stored(s.rig->engine, &mark, 1), 0);
    stop(&s);
    client_release(&c);
    client_release(&turn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        engine_test(a_prompt_is_stored_up_to_the_last_block_that_ends_32_tokens_before_its_end),
        engine_test(a_growing_reply_is_stored_at_intervals),
        engine_test(a_long_prompt_is_stored_while_it_is_computed),
        engine_test(a_finished_request_is_stored_with_its_reply),
        engine_test(a_chat_is_continued_from_the_store),
        engine_test(a_cancelled_request_leaves_what_it_has_computed),
        engine_test(nothing_is_stored_of_a_request_that_wants_no_cache),
        engine_test(what_is_larger_than_all_that_may_be_under_way_is_stored),
        engine_test(a_turn_stores_only_what_is_new),
        engine_test(what_is_evicted_is_stored_and_comes_back),
        engine_test(evicted_cells_are_stored_first),
        engine_test(a_conversation_goes_on_over_restarts_in_one_pool),
        engine_test(a_conversation_goes_on_over_restarts_with_a_stream_each),
        engine_test(what_cannot_be_cut_goes_on_over_restarts_in_one_pool),
        engine_test(what_cannot_be_cut_goes_on_over_restarts_with_a_stream_each),
        engine_test(deterministic_runs_store_whole_chunks),
        engine_test(different_scopes_share_nothing),
        engine_test(a_state_that_cannot_be_split_is_served_without_the_store),
        engine_test(system_prompts_outlive_a_restart),
        engine_test(a_suspended_request_resumes_from_the_store),
        engine_test(what_cannot_be_loaded_is_computed),
        engine_test(a_request_that_is_cancelled_while_it_is_fetched_leaves_nothing_behind),
        engine_test(two_requests_for_the_same_prefix_fetch_it_once),
        engine_test(what_is_fetched_shares_what_is_resident),
        engine_test(whoever_is_answered_may_cancel),
        engine_test(a_lookup_says_what_is_where_and_computes_nothing),
        engine_test(an_idle_sequence_tells_where_it_ends_in_the_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
