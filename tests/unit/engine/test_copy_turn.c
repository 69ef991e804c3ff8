/* Copies between two ticks: within bytes and time, and a stream beside cells that are slow to copy. */
#include "stored.h"

enum { BLOCK_NS = STRIDE * 500000 }; /* of a block of the store: 32 ms */

static void bytes_and_time_end_a_turn(void **state)
{
    (void)state;
    struct copy_turn turn = {.bytes = 1000, .until = 500};
    assert_false(copy_turn_is_over(&turn, 0));
    assert_true(copy_turn_is_over(&turn, 500));
    copy_turn_take(&turn, 400);
    assert_int_equal(turn.bytes, 600);
    copy_turn_take(&turn, 601);
    assert_true(copy_turn_is_over(&turn, 0));
}

static void as_many_bytes_as_fit_into_the_time(void **state)
{
    (void)state;
    const struct copy_turn turn = {.bytes = 1000, .until = 500}, endless = {.bytes = 1000, .until = CLOCK_NEVER};
    static const struct {
        int64_t now;
        double byte_ns;
        size_t bytes;
    } rows[] = {{0, 0, 0}, {0, 0.1, 1000}, {0, 1, 500}, {400, 1, 100}, {400, 10, 10}, {499, 100, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(copy_turn_bytes(&turn, rows[i].now, rows[i].byte_ns), rows[i].bytes);
    assert_int_equal(copy_turn_bytes(&endless, 0, 1e6), 1000);
}

static int64_t last_text, longest_gap;
static struct clock *engine_clock;

/* Called on the engine's thread. */
static void note_gap(struct client *client)
{
    (void)client;
    int64_t now = clock_now(engine_clock);
    if (last_text > 0 && now - last_text > longest_gap) longest_gap = now - last_text;
    last_text = now;
}

/* A prompt of 16 blocks has come to its end, and is to be stored, while another reply is being streamed. Each tick is
 * followed by one block or none, and not by as many as 16 MiB hold. */
static void a_stream_does_not_wait_for_cells_that_are_slow_to_copy(void **state)
{
    struct stored s = {0};
    struct client stream, other;
    struct rig *rig = *state;
    fake_llm.call_ns = 1000000;
    fake_llm.save_ns = BLOCK_NS / STRIDE;
    start(&s, rig, (struct shape){.slots = 2, .seqs = 4, .window = 9000});
    engine_clock = &rig->clock.clock;
    last_text = longest_gap = 0;
    client_init(&stream, 0, 40, 2000);
    client_init(&other, 100, 16 * STRIDE, 10);
    stream.on_text = note_gap;
    stream.job.scope = other.job.scope = 0;
    engine_submit(rig->engine, &stream.job);
    client_await_tokens(&stream, 1);
    run(&s, &other);
    await_stored(&s, &other);
    atomic_store(&stream.job.cancelled, true);
    engine_poke(rig->engine);
    client_await_end(&stream);
    assert_in_range(longest_gap, BLOCK_NS, 2 * BLOCK_NS);
    stop(&s);
    client_release(&stream);
    client_release(&other);
}

static struct client *newcomer;
static struct engine *newcomers_engine;
static int64_t came_at, served_at;

/* Called on the engine's thread, like the next one. */
static void send_newcomer(struct client *client)
{
    (void)client;
    came_at = clock_now(engine_clock);
    engine_submit(newcomers_engine, &newcomer->job);
}

static void note_served(struct client *client)
{
    (void)client;
    if (served_at == 0) served_at = clock_now(engine_clock);
}

/* The only slot becomes idle with 15 blocks to be stored, and somebody comes at that moment: for him one block is
 * copied at most, and not as many as there would be time for if nobody came. */
static void who_comes_while_an_idle_engine_copies_does_not_wait_for_all_of_it(void **state)
{
    struct stored s = {0};
    struct client last, next;
    struct rig *rig = *state;
    fake_llm.call_ns = 1000000;
    fake_llm.save_ns = BLOCK_NS / STRIDE;
    start(&s, rig, (struct shape){.slots = 1, .seqs = 4, .window = 9000});
    engine_clock = &rig->clock.clock;
    newcomers_engine = rig->engine;
    newcomer = &next;
    served_at = 0;
    client_init(&last, 0, 16 * STRIDE, 1);
    client_init(&next, 100, 10, 1);
    last.on_text = send_newcomer;
    next.on_text = note_served;
    run(&s, &last);
    client_await_end(&next);
    assert_true(served_at > came_at);
    assert_in_range(served_at - came_at, 0, 2 * BLOCK_NS);
    await_stored(&s, &last);
    stop(&s);
    client_release(&last);
    client_release(&next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_and_time_end_a_turn),
        cmocka_unit_test(as_many_bytes_as_fit_into_the_time),
        engine_test(a_stream_does_not_wait_for_cells_that_are_slow_to_copy),
        engine_test(who_comes_while_an_idle_engine_copies_does_not_wait_for_all_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
