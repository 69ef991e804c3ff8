/* Ticks beside a reply whose sampling takes long, as under a grammar that is costly to match. The model takes its time
 * on a clock of its own. */
#include "rig.h"

static void take_time(void)
{
    fake_llm.call_ns = 1000000;
    fake_llm.token_ns = 100000;
    fake_llm.sample_ns = 100000000;
}

/* Its sampling takes 100 ms. */
static void costly_init(struct client *client, int32_t first, int32_t max_tokens)
{
    client_init(client, first, 40, max_tokens);
    llm_sampler_close(client->job.sampler);
    client->job.sampler = llm_sampler_open(NULL, &(struct llm_sampling){.params = {.ignore_eos = true}}, NULL, NULL);
}

/* The clock at a reply's first and last token. Both are called on the engine's thread. */
static struct {
    struct clock *clock;
    int64_t first, last;
} seen;

static void note_first(struct client *client)
{
    (void)client;
    if (seen.first == 0) seen.first = clock_now(seen.clock);
}

static void note_last(struct client *client)
{
    (void)client;
    seen.last = clock_now(seen.clock);
}

static void await_right_reply(struct client *client)
{
    client_await_end(client);
    assert_false(client->failed);
    assert_true(client_got_right_reply(client));
    client_release(client);
}

static void costly_sampling_slows_down_its_own_reply_alone(void **state)
{
    struct rig *rig = *state;
    struct client costly, other;
    take_time();
    open_engine(rig, (struct shape){.slots = 2, .window = 2000});
    costly_init(&costly, 0, 1000);
    client_init(&other, 100, 40, 200);
    seen.clock = &rig->clock.clock;
    seen.first = 0;
    other.on_text = note_first;
    other.on_done = note_last;
    engine_submit(rig->engine, &costly.job);
    client_await_tokens(&costly, 1);
    engine_submit(rig->engine, &other.job);
    await_right_reply(&other);
    await_right_reply(&costly);
    int64_t alone = 200 * 1100000; /* it has three quarters of the time, but for the last of 100 ms */
    assert_true(seen.last - seen.first < 3 * alone);
}

static void two_of_them_do_not_wait_for_each_other(void **state)
{
    struct rig *rig = *state;
    struct client first, second;
    take_time();
    open_engine(rig, (struct shape){.slots = 2, .window = 2000});
    costly_init(&first, 0, 10);
    costly_init(&second, 100, 10);
    engine_submit(rig->engine, &first.job);
    engine_submit(rig->engine, &second.job);
    await_right_reply(&first);
    await_right_reply(&second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        engine_test(costly_sampling_slows_down_its_own_reply_alone),
        engine_test(two_of_them_do_not_wait_for_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
