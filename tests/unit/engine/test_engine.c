/* The engine over a model without weights: the order in which requests are computed, what a failure affects, what is
 * reused. */
#include "fakes/client.h"
#include "fakes/cmocka_all.h"
#include "fakes/fake_llm.h"
#include "rig.h"

#include "base/log.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

static void a_request_gets_the_models_reply(void **state)
{
    struct rig *rig = *state;
    struct client c;
    open_engine(rig, (struct shape){.slots = 1, .window = 1000});
    client_init(&c, 5, 100, 20);
    run_alone(rig, &c);
    assert_false(c.failed);
    assert_int_equal(c.got.len, 20);
    assert_true(client_got_right_reply(&c));
    assert_int_equal(c.result.finish, HEARTH_FINISH_LENGTH);
    assert_int_equal(c.result.prompt_n, 100);
    assert_int_equal(c.result.cache_n, 0);
    assert_int_equal(c.result.predicted_n, 20);
    client_release(&c);
}

static void an_end_token_ends_the_reply_and_is_counted(void **state)
{
    struct rig *rig = *state;
    struct client c;
    fake_llm.end_after = 3;
    open_engine(rig, (struct shape){.slots = 1, .window = 1000});
    client_init(&c, 5, 10, 20);
    run_alone(rig, &c);
    assert_int_equal(c.got.len, 3);
    assert_int_equal(c.result.predicted_n, 4);
    assert_int_equal(c.result.finish, HEARTH_FINISH_STOP);
    client_release(&c);
}

static void the_reply_ends_with_the_window(void **state)
{
    struct rig *rig = *state;
    struct client c;
    open_engine(rig, (struct shape){.slots = 1, .window = 64});
    client_init(&c, 1, 63, 1000);
    run_alone(rig, &c);
    assert_int_equal(c.got.len, 1);
    assert_int_equal(c.result.finish, HEARTH_FINISH_LENGTH);
    client_release(&c);
}

static void several_requests_share_decode_calls_and_get_what_they_get_alone(void **state)
{
    struct rig *rig = *state;
    struct client c[4];
    fake_llm.held = true;
    open_engine(rig, (struct shape){.slots = 4, .window = 1000});
    for (int i = 0; i < 4; i++) client_init(&c[i], 10 * i, 50 + (size_t)i, 30);
    for (int i = 0; i < 4; i++) engine_submit(rig->engine, &c[i].job);
    fake_llm_step(1000000);
    for (int i = 0; i < 4; i++) {
        client_await_end(&c[i]);
        assert_int_equal(c[i].got.len, 30);
        assert_true(client_got_right_reply(&c[i]));
    }
    assert_true(fake_llm.max_seqs >= 3);
    assert_true(fake_llm.calls < 4 * 31);
    for (int i = 0; i < 4; i++) client_release(&c[i]);
}

static void more_requests_than_slots_all_get_served(void **state)
{
    struct rig *rig = *state;
    struct client c[20];
    open_engine(rig, (struct shape){.slots = 3, .window = 1000});
    for (int i = 0; i < 20; i++) client_init(&c[i], 7 * i, 40 + (size_t)i, 10);
    for (int i = 0; i < 20; i++) engine_submit(rig->engine, &c[i].job);
    for (int i = 0; i < 20; i++) {
        client_await_end(&c[i]);
        assert_true(client_got_right_reply(&c[i]));
        client_release(&c[i]);
    }
    assert_all_idle(rig);
}

static void a_prompt_prefix_in_an_idle_slot_is_not_computed_again(void **state)
{
    struct rig *rig = *state;
    struct client a, b;
    open_engine(rig, (struct shape){.slots = 2, .window = 1000});
    client_init(&a, 5, 100, 10);
    run_alone(rig, &a);
    client_init(&b, 5, 100, 10);
    tokens_append(&b.job.prompt, a.got.v, 9); /* the reply is in the cells too, but for its last token */
    tokens_push(&b.job.prompt, 77);
    run_alone(rig, &b);
    assert_int_equal(b.result.cache_n, 109);
    assert_int_equal(b.result.prompt_n, 1);
    assert_true(client_got_right_reply(&b));
    client_release(&a);
    client_release(&b);
}

static void the_same_prompt_again_computes_its_last_token_only(void **state)
{
    struct rig *rig = *state;
    struct client a, b;
    open_engine(rig, (struct shape){.slots = 1, .window = 1000});
    client_init(&a, 5, 100, 10);
    run_alone(rig, &a);
    client_init(&b, 5, 100, 10);
    run_alone(rig, &b);
    assert_int_equal(b.result.prompt_n, 1);
    assert_true(client_got_right_reply(&b));
    client_release(&a);
    client_release(&b);
}

static void another_conversation_takes_an_empty_slot_before_it_cuts_one(void **state)
{
    struct rig *rig = *state;
    struct client a, b, again;
    open_engine(rig, (struct shape){.slots = 2, .window = 1000});
    client_init(&a, 5, 200, 5);
    run_alone(rig, &a);
    client_init(&b, 5, 20, 5); /* shares 20 tokens of 200 */
    tokens_push(&b.job.prompt, 150);
    run_alone(rig, &b);
    assert_int_not_equal(a.result.slot, b.result.slot);
    client_init(&again, 5, 200, 5);
    run_alone(rig, &again);
    assert_int_equal(again.result.prompt_n, 1);
    client_release(&a);
    client_release(&b);
    client_release(&again);
}

static void cache_prompt_false_neither_uses_nor_leaves_anything(void **state)
{
    struct rig *rig = *state;
    struct client a, b, c;
    open_engine(rig, (struct shape){.slots = 1, .window = 1000});
    client_init(&a, 5, 100, 3);
    run_alone(rig, &a);
    client_init(&b, 5, 100, 3);
    b.job.cache_prompt = false;
    run_alone(rig, &b);
    assert_int_equal(b.result.cache_n, 0);
    client_init(&c, 5, 100, 3);
    run_alone(rig, &c);
    assert_int_equal(c.result.cache_n, 0);
    client_release(&a);
    client_release(&b);
    client_release(&c);
}

static void a_model_that_cannot_cut_goes_back_to_a_checkpoint(void **state)
{
    struct rig *rig = *state;
    struct client a, same, grown;
    fake_llm.cuts = false;
    open_engine(rig, (struct shape){.slots = 1, .window = 1000});
    client_init(&a, 5, 100, 10);
    run_alone(rig, &a);
    client_init(&same, 5, 100, 10);
    run_alone(rig, &same);
    assert_int_equal(same.result.cache_n, 84); /* 16 before the end of a prompt without messages */
    assert_true(client_got_right_reply(&same));
    client_init(&grown, 5, 100, 10);
    tokens_append(&grown.job.prompt, same.got.v, 10);
    run_alone(rig, &grown);
    assert_int_equal(grown.result.cache_n, 109);
    assert_true(client_got_right_reply(&grown));
    client_release(&a);
    client_release(&same);
    client_release(&grown);
}

static void deterministic_mode_computes_one_slot_a_call_in_fixed_pieces(void **state)
{
    struct rig *rig = *state;
    struct client a, b;
    open_engine(rig, (struct shape){.slots = 2, .window = 1000, .deterministic = true});
    client_init(&a, 5, 300, 10);
    run_alone(rig, &a);
    assert_int_equal(fake_llm.max_seqs, 1);
    int32_t expected[] = {64, 64, 64, 64, 44, 1};
    assert_memory_equal(fake_llm.batch_tokens, expected, sizeof expected);
    int32_t first_call = fake_llm.calls;
    client_init(&b, 5, 300, 1);
    run_alone(rig, &b);
    assert_int_equal(b.result.cache_n, 256);
    assert_int_equal(fake_llm.batch_tokens[first_call], 44);
    client_release(&a);
    client_release(&b);
}

static void deterministic_mode_does_not_reuse_what_was_generated(void **state)
{
    struct rig *rig = *state;
    struct client a, b;
    open_engine(rig, (struct shape){.slots = 1, .window = 1000, .deterministic = true});
    client_init(&a, 5, 60, 100); /* generated tokens fill the chunk of the prompt's end and the next */
    run_alone(rig, &a);
    client_init(&b, 5, 60, 1);
    tokens_append(&b.job.prompt, a.got.v, 99);
    run_alone(rig, &b);
    assert_int_equal(b.result.cache_n, 0);
    assert_true(client_got_right_reply(&b));
    client_release(&a);
    client_release(&b);
}

static void a_cancelled_request_ends_and_disturbs_nobody(void **state)
{
    struct rig *rig = *state;
    struct client a, b;
    fake_llm.held = true;
    open_engine(rig, (struct shape){.slots = 2, .window = 1000});
    client_init(&a, 5, 100, 500);
    client_init(&b, 50, 100, 30);
    engine_submit(rig->engine, &a.job);
    engine_submit(rig->engine, &b.job);
    fake_llm_step(10);
    client_await_tokens(&a, 5);
    atomic_store(&a.job.cancelled, true);
    engine_poke(rig->engine);
    fake_llm_step(1000);
    client_await_end(&a);
    client_await_end(&b);
    assert_true(a.failed);
    assert_int_equal(a.error.code, HEARTH_CANCELLED);
    assert_true(a.got.len < 20);
    assert_true(client_got_right_reply(&b));
    assert_int_equal(b.got.len, 30);
    client_release(&a);
    client_release(&b);
}

static void a_decode_that_nobody_wants_is_aborted(void **state)
{
    struct rig *rig = *state;
    struct client a, b;
    fake_llm.held = true;
    open_engine(rig, (struct shape){.slots = 1, .window = 5000});
    client_init(&a, 5, 400, 5);
    engine_submit(rig->engine, &a.job);
    fake_llm_await_call(); /* no call is ever let through: only an abort can end it */
    atomic_store(&a.job.cancelled, true);
    client_await_end(&a);
    assert_int_equal(a.error.code, HEARTH_CANCELLED);
    fake_llm_step(1000);
    client_init(&b, 5, 400, 5);
    run_alone(rig, &b);
    assert_true(client_got_right_reply(&b));
    client_release(&a);
    client_release(&b);
}

/* Two sequences of one cell that stop running in one round: the engine counts the cells in use anew (engine_check()).
 */
static void two_requests_that_are_cancelled_at_once_leave_the_cells_counted(void **state)
{
    struct rig *rig = *state;
    struct client first, pair[2];
    fake_llm.held = true;
    open_engine(rig, (struct shape){.slots = 3, .seqs = 3, .window = 1000});
    client_init(&first, 5, 100, 2);
    engine_submit(rig->engine, &first.job);
    fake_llm_await_call();
    for (int i = 0; i < 2; i++) {
        client_init(&pair[i], 50 + 50 * i, 1, 500);
        engine_submit(rig->engine, &pair[i].job);
    }
    fake_llm_step(2); /* the prompts of the two, and the last token of the first */
    client_await_end(&first);
    fake_llm_await_call();
    for (int i = 0; i < 2; i++) atomic_store(&pair[i].job.cancelled, true);
    for (int i = 0; i < 2; i++) client_await_end(&pair[i]); /* the call is aborted: each has its prompt's cell */
    for (int i = 0; i < 2; i++) assert_int_equal(pair[i].got.len, 1);
    fake_llm_step(1000);
    client_release(&first);
    for (int i = 0; i < 2; i++) client_release(&pair[i]);
}

static void a_request_whose_tokens_fail_fails_alone(void **state)
{
    struct rig *rig = *state;
    struct client good, bad, after;
    fake_llm.held = true;
    fake_llm.poison = 195;
    open_engine(rig, (struct shape){.slots = 2, .window = 1000});
    client_init(&good, 5, 100, 20);
    client_init(&bad, 50, 100, 20);
    bad.job.prompt.v[60] = 195;
    engine_submit(rig->engine, &good.job);
    engine_submit(rig->engine, &bad.job);
    fake_llm_step(100000);
    client_await_end(&good);
    client_await_end(&bad);
    assert_true(bad.failed);
    assert_int_equal(bad.error.code, HEARTH_INTERNAL);
    assert_false(good.failed);
    assert_int_equal(good.got.len, 20);
    assert_true(client_got_right_reply(&good));
    client_init(&after, 50, 60, 20); /* what the failed one left in its slot is right or not reused */
    run_alone(rig, &after);
    assert_true(client_got_right_reply(&after));
    client_release(&good);
    client_release(&bad);
    client_release(&after);
}

static void a_failure_that_costs_uncuttable_sequences_still_ends(void **state)
{
    struct rig *rig = *state;
    struct client good, bad;
    fake_llm.held = true;
    fake_llm.cuts = false;
    fake_llm.poison = 195;
    open_engine(rig, (struct shape){.slots = 2, .window = 1000});
    client_init(&good, 5, 100, 20);
    client_init(&bad, 50, 100, 20);
    bad.job.prompt.v[60] = 195;
    engine_submit(rig->engine, &good.job);
    engine_submit(rig->engine, &bad.job);
    fake_llm_step(100000);
    client_await_end(&good);
    client_await_end(&bad);
    assert_true(bad.failed);
    assert_true(client_got_right_reply(&good));
    client_release(&good);
    client_release(&bad);
}

static void idle_cells_are_evicted_for_a_running_request(void **state)
{
    struct rig *rig = *state;
    struct client a, b;
    fake_llm.n_cells = 150;
    open_engine(rig, (struct shape){.slots = 2, .window = 1000});
    client_init(&a, 5, 100, 5);
    run_alone(rig, &a);
    client_init(&b, 60, 100, 5);
    run_alone(rig, &b);
    assert_false(b.failed);
    assert_true(client_got_right_reply(&b));
    client_release(&a);
    client_release(&b);
}

static void a_request_out_of_room_fails_alone_with_the_reason(void **state)
{
    struct rig *rig = *state;
    struct client small, large;
    fake_llm.held = true;
    fake_llm.n_cells = 200;
    open_engine(rig, (struct shape){.slots = 2, .window = 1000});
    client_init(&small, 5, 50, 20);
    client_init(&large, 60, 300, 20);
    engine_submit(rig->engine, &small.job);
    engine_submit(rig->engine, &large.job);
    fake_llm_step(100000);
    client_await_end(&small);
    client_await_end(&large);
    assert_true(large.failed);
    assert_int_equal(large.error.code, HEARTH_TOO_LONG);
    assert_non_null(strstr(large.error.message, "context window is full"));
    assert_false(small.failed);
    assert_true(client_got_right_reply(&small));
    client_release(&small);
    client_release(&large);
}

static void a_stream_keeps_its_pace_while_a_long_prompt_comes_in(void **state)
{
    struct rig *rig = *state;
    struct client stream, prompt;
    fake_llm.held = true;
    fake_llm.token_ns = 5000000; /* 5 ms a token … */
    fake_llm.call_ns = 40000000; /* … and 40 ms a call: 512 tokens would take 2.6 s */
    open_engine(rig, (struct shape){.slots = 2, .window = 4000});
    client_init(&stream, 5, 20, 400);
    client_init(&prompt, 50, 3000, 5);
    engine_submit(rig->engine, &stream.job);
    fake_llm_step(5);
    client_await_tokens(&stream, 3);
    engine_submit(rig->engine, &prompt.job);
    fake_llm_step(100000);
    client_await_end(&prompt);
    client_await_end(&stream);
    int32_t largest = 0, calls = 0;
    for (int32_t i = 0; i < fake_llm.calls; i++) {
        if (fake_llm.batch_tokens[i] <= 2) continue;
        calls++;
        if (fake_llm.batch_tokens[i] > largest && i > 0) largest = fake_llm.batch_tokens[i];
    }
    assert_true(largest <= 42); /* 40 + 42 * 5 = 250 ms */
    assert_true(calls <= 3000 / 32 + 3);
    assert_true(client_got_right_reply(&stream));
    assert_true(client_got_right_reply(&prompt));
    client_release(&stream);
    client_release(&prompt);
}

static void with_nobody_streaming_a_prompt_takes_whole_batches(void **state)
{
    struct rig *rig = *state;
    struct client c;
    open_engine(rig, (struct shape){.slots = 1, .window = 4000});
    client_init(&c, 5, 1500, 1);
    run_alone(rig, &c);
    int32_t expected[] = {512, 512, 476};
    assert_memory_equal(fake_llm.batch_tokens, expected, sizeof expected);
    client_release(&c);
}

/* It comes while the long one's first call is computed, which is a micro-batch and not a batch of 2,048 tokens; from
 * then on calls take a quarter of a second. */
static void a_short_prompt_waits_little_for_a_long_one(void **state)
{
    struct rig *rig = *state;
    struct client big, small;
    fake_llm.held = true;
    fake_llm.token_ns = 1000000;
    open_engine(rig, (struct shape){.slots = 2, .window = 8000, .n_batch = 2048});
    client_init(&big, 5, 6000, 1);
    client_init(&small, 50, 20, 1);
    int64_t begin = clock_now(&rig->clock.clock);
    engine_submit(rig->engine, &big.job);
    fake_llm_await_call();
    engine_submit(rig->engine, &small.job);
    fake_llm_step(100000);
    client_await_end(&small);
    client_await_end(&big);
    assert_true(client_got_right_reply(&small) && client_got_right_reply(&big));
    assert_true(fake_llm.batch_tokens[0] == 512);
    assert_true(small.result.queue_ms + small.result.prompt_ms - clock_to_ms(begin) <= 512 + 250);
    client_release(&big);
    client_release(&small);
}

/* Four threads that wait for each other: each makes a call 10 ms longer. Returns how many compute at the end. */
static int32_t threads_after_a_reply(struct rig *rig, bool deterministic)
{
    struct client c;
    fake_llm.threads = 4;
    fake_llm.thread_ns = 10000000;
    open_engine(rig, (struct shape){.slots = 1, .window = 4000, .deterministic = deterministic});
    client_init(&c, 5, 20, 30);
    run_alone(rig, &c);
    assert_true(client_got_right_reply(&c));
    client_release(&c);
    assert_int_equal(metric_get(&engine_stats(rig->engine)->threads), fake_llm.last_threads);
    return fake_llm.last_threads;
}

static void threads_that_only_wait_for_each_other_are_left_out(void **state)
{
    assert_int_equal(threads_after_a_reply(*state, false), 1);
}

static void a_deterministic_engine_keeps_its_threads(void **state)
{
    assert_int_equal(threads_after_a_reply(*state, true), 4);
}

static void no_prompt_starves_another(void **state)
{
    struct rig *rig = *state;
    struct client big, small;
    fake_llm.held = true;
    open_engine(rig, (struct shape){.slots = 2, .window = 8000});
    client_init(&big, 5, 7000, 1);
    client_init(&small, 50, 600, 1);
    engine_submit(rig->engine, &big.job);
    engine_submit(rig->engine, &small.job);
    fake_llm_step(6); /* by turns: 512 tokens of the big one at most, then 256 a tick for each; alone, it needs 14 */
    client_await_end(&small);
    fake_llm_step(100000);
    client_await_end(&big);
    client_release(&big);
    client_release(&small);
}

static void draining_fails_those_that_wait_and_lets_the_others_finish(void **state)
{
    struct rig *rig = *state;
    struct client running, waiting, late;
    fake_llm.held = true;
    open_engine(rig, (struct shape){.slots = 1, .window = 1000});
    client_init(&running, 5, 50, 10);
    client_init(&waiting, 60, 50, 10);
    client_init(&late, 90, 50, 10);
    engine_submit(rig->engine, &running.job);
    fake_llm_await_call();
    engine_submit(rig->engine, &waiting.job);
    fake_llm_step(100000);
    engine_drain(rig->engine, CLOCK_NEVER);
    client_await_end(&running);
    client_await_end(&waiting);
    assert_true(running.failed || running.got.len == 10);
    assert_false(running.failed);
    engine_submit(rig->engine, &late.job);
    assert_true(late.failed);
    assert_string_equal(late.error.message, "submit: engine shutting down");
    client_release(&running);
    client_release(&waiting);
    client_release(&late);
}

static void a_drain_out_of_patience_ends_what_runs(void **state)
{
    struct rig *rig = *state;
    struct client c;
    fake_llm.held = true;
    open_engine(rig, (struct shape){.slots = 1, .window = 1000});
    client_init(&c, 5, 50, 10);
    engine_submit(rig->engine, &c.job);
    fake_llm_await_call();
    engine_drain(rig->engine, clock_now(&rig->clock.clock));
    assert_true(c.ended);
    assert_int_equal(c.error.code, HEARTH_UNAVAILABLE);
    client_release(&c);
}

static void stop_strings_end_the_reply_before_them(void **state)
{
    struct rig *rig = *state;
    struct client plain, stopped;
    open_engine(rig, (struct shape){.slots = 1, .window = 1000});
    client_init(&plain, 5, 50, 30);
    run_alone(rig, &plain);
    char stop[4] = {plain.text.v[10], plain.text.v[11], plain.text.v[12], 0};
    const char *list[] = {stop};
    char *hit = strstr(plain.text.v, stop);
    client_init(&stopped, 5, 50, 30);
    stopped.job.stop = list;
    stopped.job.n_stop = 1;
    run_alone(rig, &stopped);
    assert_int_equal(stopped.result.finish, HEARTH_FINISH_STOP);
    assert_int_equal(stopped.text.len, hit - plain.text.v);
    assert_memory_equal(stopped.text.v, plain.text.v, stopped.text.len);
    client_release(&plain);
    client_release(&stopped);
}

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        engine_test(a_request_gets_the_models_reply),
        engine_test(an_end_token_ends_the_reply_and_is_counted),
        engine_test(the_reply_ends_with_the_window),
        engine_test(several_requests_share_decode_calls_and_get_what_they_get_alone),
        engine_test(more_requests_than_slots_all_get_served),
        engine_test(a_prompt_prefix_in_an_idle_slot_is_not_computed_again),
        engine_test(the_same_prompt_again_computes_its_last_token_only),
        engine_test(another_conversation_takes_an_empty_slot_before_it_cuts_one),
        engine_test(cache_prompt_false_neither_uses_nor_leaves_anything),
        engine_test(a_model_that_cannot_cut_goes_back_to_a_checkpoint),
        engine_test(deterministic_mode_computes_one_slot_a_call_in_fixed_pieces),
        engine_test(deterministic_mode_does_not_reuse_what_was_generated),
        engine_test(a_cancelled_request_ends_and_disturbs_nobody),
        engine_test(a_decode_that_nobody_wants_is_aborted),
        engine_test(two_requests_that_are_cancelled_at_once_leave_the_cells_counted),
        engine_test(a_request_whose_tokens_fail_fails_alone),
        engine_test(a_failure_that_costs_uncuttable_sequences_still_ends),
        engine_test(idle_cells_are_evicted_for_a_running_request),
        engine_test(a_request_out_of_room_fails_alone_with_the_reason),
        engine_test(a_stream_keeps_its_pace_while_a_long_prompt_comes_in),
        engine_test(with_nobody_streaming_a_prompt_takes_whole_batches),
        engine_test(a_short_prompt_waits_little_for_a_long_one),
        engine_test(threads_that_only_wait_for_each_other_are_left_out),
        engine_test(a_deterministic_engine_keeps_its_threads),
        engine_test(no_prompt_starves_another),
        engine_test(draining_fails_those_that_wait_and_lets_the_others_finish),
        engine_test(a_drain_out_of_patience_ends_what_runs),
        engine_test(stop_strings_end_the_reply_before_them),
    };
    log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
