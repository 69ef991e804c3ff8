/* Rows that lie above free cells are moved down when those have cost as much. The model takes its time on a clock of
 * its own, and checks every row. */
#include "stored.h"

enum { MASKED_NS = 50, PROMPT = 1000, OTHERS = 6 };

static const struct shape priced = {.slots = 2, .seqs = 16, .window = 9000, .idle = ENGINE_IDLE_PRICED};

static void take_time(int64_t move_ns)
{
    fake_llm.call_ns = 2000000;
    fake_llm.token_ns = 200000;
    fake_llm.masked_ns = MASKED_NS;
    fake_llm.move_ns = move_ns;
}

static int32_t top(const struct stored *s)
{
    struct llm_cell_map map;
    engine_drain(s->rig->engine, CLOCK_NEVER);
    llm_cells_map(s->rig->engine->context, &map);
    return map.top;
}

/* Others come, and then one whose rows lie above theirs, for which they leave: it was not known before its reply how
 * long that would be. Its next turn then tells whether it has come down. */
static void converse_above_others(struct stored *s, struct client *others, struct client *last, int32_t reply)
{
    for (int i = 0; i < OTHERS; i++) {
        client_init(&others[i], 11 * i, PROMPT, 30);
        run(s, &others[i]);
        await_stored(s, &others[i]);
    }
    client_init(last, 150, 64, reply);
    run(s, last);
    await_stored(s, last);
}

static void release(struct client *clients, int n)
{
    for (int i = 0; i < n; i++) client_release(&clients[i]);
}

static void rows_above_free_cells_come_down_and_are_the_same(void **state)
{
    struct stored s = {0};
    struct client others[OTHERS], last, next;
    take_time(1000);
    start(&s, *state, priced);
    converse_above_others(&s, others, &last, 600);
    next_turn(&next, &last, 40, 300);
    run(&s, &next); /* the reply is checked: it comes of every row */
    assert_true(fake_llm.rows_moved > 0);
    assert_int_equal(metric_get(&s.rig->engine->stats->moved_rows), fake_llm.rows_moved);
    assert_true(next.result.cache_n >= 64 + 600 - 1);
    assert_true(top(&s) < 1200);
    stop(&s);
    release(others, OTHERS);
    client_release(&last);
    client_release(&next);
}

/* Called on the engine's thread. */
static void become_dear(void *ud)
{
    (void)ud;
    if (fake_llm.shares > 0) fake_llm.masked_ns = MASKED_NS;
}

/* A moved row would be a copy: the model refuses that. Nothing leaves before they share. */
static void rows_that_running_requests_share_stay(void **state)
{
    enum { SHARED = 300 };
    struct stored s = {0};
    struct client others[OTHERS], first, second;
    take_time(0);
    fake_llm.masked_ns = 0;
    fake_llm.on_call = become_dear;
    start(&s, *state, priced);
    for (int i = 0; i < OTHERS; i++) {
        client_init(&others[i], 11 * i, PROMPT, 30);
        run(&s, &others[i]);
        await_stored(&s, &others[i]);
    }
    client_init(&first, 150, SHARED, 900);
    client_init(&second, 150, SHARED, 900);
    for (int i = 0; i < 50; i++) tokens_push(&second.job.prompt, 100);
    ask(&s, &first);
    ask(&s, &second);
    engine_submit(s.rig->engine, &first.job);
    client_await_tokens(&first, 1);
    engine_submit(s.rig->engine, &second.job);
    client_await_end(&first);
    client_await_end(&second);
    assert_true(client_got_right_reply(&first) && client_got_right_reply(&second));
    assert_int_equal(second.result.cache_n, SHARED);
    assert_true(fake_llm.rows_moved > 0);
    stop(&s);
    release(others, OTHERS);
    client_release(&first);
    client_release(&second);
}

static void where_moving_costs_more_than_it_saves_they_stay(void **state)
{
    struct stored s = {0};
    struct client others[OTHERS], last;
    take_time(1000000); /* for all of them: 600 ms, and the reply saves 180 */
    start(&s, *state, priced);
    converse_above_others(&s, others, &last, 600);
    assert_in_range(fake_llm.rows_moved, 0, 16); /* one slice, after which the price is known */
    stop(&s);
    release(others, OTHERS);
    client_release(&last);
}

/* Called on the engine's thread. Rows that were moved while all four ran; -1: they never did. */
static int32_t moved_beside;

static void see_what_moved(void *ud)
{
    const struct stored *s = ud;
    if (metric_get(&s->rig->engine->stats->slots_busy) == 4) moved_beside = fake_llm.rows_moved;
}

/* What is free between them is theirs to fill. */
static void streams_that_fill_blocks_beside_each_other_stay(void **state)
{
    enum { STREAMS = 4 };
    struct stored s = {0};
    struct client streams[STREAMS];
    take_time(1000);
    fake_llm.block_cells = LLM_CELL_BLOCK;
    fake_llm.held = true; /* until all are there */
    fake_llm.on_call = see_what_moved;
    fake_llm.ud = &s;
    moved_beside = -1;
    start(&s, *state, (struct shape){.slots = STREAMS, .seqs = 16, .window = 9000, .idle = ENGINE_IDLE_PRICED});
    for (int i = 0; i < STREAMS; i++) {
        client_init(&streams[i], 40 * i, 100, 600);
        ask(&s, &streams[i]);
        engine_submit(s.rig->engine, &streams[i].job);
    }
    fake_llm_step(1000000);
    for (int i = 0; i < STREAMS; i++) {
        client_await_end(&streams[i]);
        assert_true(client_got_right_reply(&streams[i]));
    }
    assert_int_equal(moved_beside, 0);
    stop(&s);
    release(streams, STREAMS);
}

static void rows_that_are_lost_on_the_way_are_computed_again(void **state)
{
    struct stored s = {0};
    struct client others[OTHERS], last, next;
    take_time(0);
    fake_llm.move_fails = true;
    start(&s, *state, priced);
    converse_above_others(&s, others, &last, 600); /* each reply is checked */
    next_turn(&next, &last, 40, 300);
    run(&s, &next);
    assert_true(fake_llm.rows_moved > 0);
    assert_int_equal(metric_get(&s.rig->engine->stats->moved_rows), 0);
    stop(&s);
    release(others, OTHERS);
    client_release(&last);
    client_release(&next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        engine_test(rows_above_free_cells_come_down_and_are_the_same),
        engine_test(rows_that_running_requests_share_stay),
        engine_test(where_moving_costs_more_than_it_saves_they_stay),
        engine_test(streams_that_fill_blocks_beside_each_other_stay),
        engine_test(rows_that_are_lost_on_the_way_are_computed_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
