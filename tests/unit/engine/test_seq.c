/* Which cells stay resident between requests, and which requests reuse them. Token counts are exact: what is computed
 * twice, or lost, shows. */
#include "rig.h"

#include "base/log.h"

#include <stdio.h>

/* A prompt of an agent: the system prompt that all share, then its own words. */
static void agent_init(struct client *client, int agent, size_t shared, size_t own, int32_t max_tokens)
{
    client_init(client, 5, shared, max_tokens);
    for (size_t i = 0; i < own; i++) tokens_push(&client->job.prompt, (100 + 7 * agent + (int32_t)i) % 190);
    snprintf(client->job.id, sizeof client->job.id, "agent-%d", agent);
}

static int64_t computed(struct rig *rig)
{
    return metric_get(&engine_stats(rig->engine)->prompt_tokens);
}

static void twelve_agents_that_start_at_once_compute_their_system_prompt_once(void **state)
{
    struct rig *rig = *state;
    struct client c[12];
    fake_llm.held = true;
    open_engine(rig, (struct shape){.slots = 4, .seqs = 32, .window = 4000});
    for (int i = 0; i < 12; i++) agent_init(&c[i], i, 2000, 100, 5);
    for (int i = 0; i < 12; i++) engine_submit(rig->engine, &c[i].job);
    fake_llm_step(1000000);
    for (int i = 0; i < 12; i++) {
        client_await_end(&c[i]);
        assert_false(c[i].failed);
        assert_true(client_got_right_reply(&c[i]));
    }
    assert_int_equal(computed(rig), 2000 + 12 * 100);
    for (int i = 0; i < 12; i++) client_release(&c[i]);
    assert_all_idle(rig);
}

static void a_prefix_is_shared_with_a_busy_sequence(void **state)
{
    struct rig *rig = *state;
    struct client a, b;
    fake_llm.held = true;
    open_engine(rig, (struct shape){.slots = 2, .seqs = 8, .window = 4000});
    agent_init(&a, 0, 500, 50, 200);
    agent_init(&b, 1, 500, 50, 5);
    engine_submit(rig->engine, &a.job);
    fake_llm_step(10);
    client_await_tokens(&a, 3);
    engine_submit(rig->engine, &b.job);
    fake_llm_step(1000000);
    client_await_end(&b);
    client_await_end(&a);
    assert_int_equal(b.result.cache_n, 500);
    assert_true(client_got_right_reply(&a));
    assert_true(client_got_right_reply(&b));
    client_release(&a);
    client_release(&b);
}

static void more_conversations_than_slots_keep_their_cells(void **state)
{
    struct rig *rig = *state;
    struct client c[6];
    open_engine(rig, (struct shape){.slots = 2, .seqs = 16, .window = 4000});
    for (int i = 0; i < 6; i++) agent_init(&c[i], i, 300, 200, 4);
    for (int turn = 0; turn < 4; turn++) {
        int64_t before = computed(rig);
        for (int i = 0; i < 6; i++) {
            run_alone(rig, &c[i]);
            assert_true(client_got_right_reply(&c[i]));
        }
        /* The first turn computes all prompts once; later ones the last token of the reply and the new words. */
        assert_int_equal(computed(rig) - before, turn == 0 ? 300 + 6 * 200 : 6 * (1 + 20));
        for (int i = 0; i < 6; i++) {
            struct client next;
            client_init(&next, 5, 0, 4);
            tokens_append(&next.job.prompt, c[i].job.prompt.v, c[i].job.prompt.len);
            tokens_append(&next.job.prompt, c[i].got.v, c[i].got.len);
            for (int32_t k = 0; k < 20; k++) tokens_push(&next.job.prompt, (i + turn + k) % 190);
            client_release(&c[i]);
            c[i] = next;
            c[i].job.ud = &c[i];
            pthread_mutex_init(&c[i].mutex, NULL);
            pthread_cond_init(&c[i].changed, NULL);
        }
    }
    for (int i = 0; i < 6; i++) client_release(&c[i]);
}

static void an_edited_message_costs_what_follows_it_and_keeps_the_old_branch(void **state)
{
    struct rig *rig = *state;
    struct client a, edited, back;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 8, .window = 4000});
    agent_init(&a, 0, 1000, 500, 3);
    run_alone(rig, &a);
    agent_init(&edited, 1, 1000, 500, 3);
    run_alone(rig, &edited);
    assert_int_equal(edited.result.cache_n, 1000);
    agent_init(&back, 0, 1000, 500, 3);
    run_alone(rig, &back);
    assert_int_equal(back.result.prompt_n, 1);
    client_release(&a);
    client_release(&edited);
    client_release(&back);
}

static void a_full_pool_evicts_the_least_recently_used_and_nothing_that_runs(void **state)
{
    struct rig *rig = *state;
    struct client running, c[5];
    fake_llm.held = true;
    fake_llm.n_cells = 2000;
    open_engine(rig, (struct shape){.slots = 2, .seqs = 16, .window = 2000});
    client_init(&running, 60, 300, 1500);
    engine_submit(rig->engine, &running.job);
    fake_llm_step(5);
    client_await_tokens(&running, 2);
    fake_llm_step(1000000);
    for (int i = 0; i < 5; i++) {
        client_init(&c[i], 10 * i, 600, 2);
        run_alone(rig, &c[i]);
        assert_false(c[i].failed);
        assert_true(client_got_right_reply(&c[i]));
    }
    client_await_end(&running);
    assert_false(running.failed);
    assert_true(client_got_right_reply(&running));
    client_release(&running);
    for (int i = 0; i < 5; i++) client_release(&c[i]);
}

static void a_shared_prefix_outlives_the_one_that_computed_it(void **state)
{
    struct rig *rig = *state;
    struct client a, b, again;
    fake_llm.n_cells = 1300;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 8, .window = 4000});
    agent_init(&a, 0, 600, 300, 2);
    run_alone(rig, &a);
    agent_init(&b, 1, 600, 500, 2); /* needs room: a's own words have to go, the 600 they share must not */
    run_alone(rig, &b);
    assert_int_equal(b.result.cache_n, 600);
    assert_true(client_got_right_reply(&b));
    agent_init(&again, 1, 600, 500, 2);
    run_alone(rig, &again);
    assert_int_equal(again.result.prompt_n, 1);
    assert_true(client_got_right_reply(&again));
    client_release(&a);
    client_release(&b);
    client_release(&again);
}

static void one_that_waits_for_a_prefix_computes_it_when_the_other_is_cancelled(void **state)
{
    struct rig *rig = *state;
    struct client a, b, c;
    fake_llm.held = true;
    open_engine(rig, (struct shape){.slots = 3, .seqs = 8, .window = 8000});
    agent_init(&a, 0, 3000, 50, 5);
    agent_init(&b, 1, 3000, 50, 5);
    agent_init(&c, 2, 3000, 50, 5);
    engine_submit(rig->engine, &a.job);
    fake_llm_step(2);
    client_await_start(&a);
    engine_submit(rig->engine, &b.job);
    engine_submit(rig->engine, &c.job);
    fake_llm_step(1);
    client_await_start(&b);
    client_await_start(&c);
    atomic_store(&a.job.cancelled, true);
    engine_poke(rig->engine);
    client_await_end(&a);
    fake_llm_step(1000000);
    client_await_end(&b);
    client_await_end(&c);
    assert_true(client_got_right_reply(&b));
    assert_true(client_got_right_reply(&c));
    assert_true(b.result.cache_n > 0); /* what the cancelled one had computed is not lost */
    assert_true(computed(rig) < 3000 + 512 + 3 * 50);
    client_release(&a);
    client_release(&b);
    client_release(&c);
}

static void what_cannot_be_cut_has_checkpoints(void **state)
{
    struct rig *rig = *state;
    struct client a, next, other;
    fake_llm.cuts = false;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 8, .window = 4000});
    agent_init(&a, 0, 500, 100, 10);
    a.job.checkpoints[0] = 500;
    a.job.checkpoints[1] = 590;
    a.job.n_checkpoints = 2;
    run_alone(rig, &a);
    agent_init(&next, 0, 500, 90, 5); /* the reply is rewritten: only what precedes it is in common */
    tokens_push(&next.job.prompt, 3);
    run_alone(rig, &next);
    assert_int_equal(next.result.cache_n, 590);
    assert_true(client_got_right_reply(&next));
    agent_init(&other, 5, 500, 40, 5);
    run_alone(rig, &other);
    assert_int_equal(other.result.cache_n, 500);
    assert_true(client_got_right_reply(&other));
    client_release(&a);
    client_release(&next);
    client_release(&other);
}

/* Prompts of 200 tokens without messages that diverge from an earlier one so far before their end, and the turn after a
 * reply. */
static void what_cannot_be_cut_is_never_computed_from_zero(void **state)
{
    struct rig *rig = *state;
    static const struct {
        int32_t before_end, most; /* tokens computed */
    } cases[] = {{2, 16}, {10, 16}, {50, 64}, {80, 100}, {100, 100}};
    for (int unified = 0; unified < 2; unified++) {
        fake_llm_reset(&rig->clock);
        fake_llm.cuts = false;
        open_engine(rig, (struct shape){.slots = 1, .seqs = unified ? 16 : 0, .window = 4000});
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct client a, b, next;
            int32_t n = cases[i].before_end, own = (int32_t)i * 20;
            client_init(&a, own, 200, 8);
            run_alone(rig, &a);
            client_init(&next, own, 200, 8); /* continues the reply */
            tokens_append(&next.job.prompt, a.got.v, a.got.len);
            tokens_push(&next.job.prompt, 7);
            run_alone(rig, &next);
            assert_int_equal(next.result.prompt_n, 2);
            client_init(&b, own, (size_t)(200 - n), 8);
            for (int32_t k = 0; k < n; k++) tokens_push(&b.job.prompt, 60 + (k + own) % 50);
            run_alone(rig, &b);
            assert_in_range(b.result.prompt_n, n, cases[i].most);
            assert_true(client_got_right_reply(&b) && client_got_right_reply(&next));
            client_release(&a);
            client_release(&b);
            client_release(&next);
        }
        engine_close(rig->engine);
        rig->engine = NULL;
    }
}

static void the_next_prompt_begins_where_earlier_ones_diverged(void **state)
{
    struct rig *rig = *state;
    struct client c[3];
    fake_llm.cuts = false;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 16, .window = 4000});
    for (int i = 0; i < 3; i++) {
        agent_init(&c[i], i, 700, 200, 5);
        run_alone(rig, &c[i]);
        assert_true(client_got_right_reply(&c[i]));
    }
    assert_int_equal(c[1].result.cache_n, 640); /* of the 900 tokens of the first, an eighth apart */
    assert_int_equal(c[2].result.cache_n, 700);
    for (int i = 0; i < 3; i++) client_release(&c[i]);
}

static void agents_wait_for_a_checkpoint_of_what_cannot_be_cut(void **state)
{
    struct rig *rig = *state;
    struct client c[6];
    fake_llm.held = true;
    fake_llm.cuts = false;
    open_engine(rig, (struct shape){.slots = 3, .seqs = 24, .window = 4000});
    for (int i = 0; i < 6; i++) {
        agent_init(&c[i], i, 1000, 60, 5);
        c[i].job.checkpoints[0] = 1000;
        c[i].job.n_checkpoints = 1;
        engine_submit(rig->engine, &c[i].job);
    }
    fake_llm_step(1000000);
    for (int i = 0; i < 6; i++) {
        client_await_end(&c[i]);
        assert_true(client_got_right_reply(&c[i]));
    }
    assert_int_equal(computed(rig), 1000 + 6 * 60);
    for (int i = 0; i < 6; i++) client_release(&c[i]);
}

static void with_a_stream_each_a_prefix_is_copied_to_another_slot(void **state)
{
    struct rig *rig = *state;
    struct client a, b;
    fake_llm.held = true;
    open_engine(rig, (struct shape){.slots = 2, .window = 4000});
    agent_init(&a, 0, 500, 50, 100);
    agent_init(&b, 1, 500, 50, 5);
    engine_submit(rig->engine, &a.job);
    fake_llm_step(10);
    client_await_tokens(&a, 3);
    engine_submit(rig->engine, &b.job);
    fake_llm_step(1000000);
    client_await_end(&a);
    client_await_end(&b);
    assert_int_equal(b.result.cache_n, 500);
    assert_true(client_got_right_reply(&a));
    assert_true(client_got_right_reply(&b));
    client_release(&a);
    client_release(&b);
}

static void nothing_is_shared_with_a_request_that_wants_nothing_kept(void **state)
{
    struct rig *rig = *state;
    struct client secret, other;
    fake_llm.held = true;
    open_engine(rig, (struct shape){.slots = 2, .seqs = 8, .window = 4000});
    agent_init(&secret, 0, 500, 50, 100);
    secret.job.cache_prompt = false;
    agent_init(&other, 0, 500, 50, 5);
    engine_submit(rig->engine, &secret.job);
    fake_llm_step(10);
    client_await_tokens(&secret, 3);
    engine_submit(rig->engine, &other.job);
    fake_llm_step(1000000);
    client_await_end(&other);
    client_await_end(&secret);
    assert_int_equal(other.result.cache_n, 0);
    assert_true(client_got_right_reply(&secret));
    client_release(&secret);
    client_release(&other);
}

static void with_a_stream_each_the_oldest_conversation_is_evicted_and_not_the_shortest(void **state)
{
    struct rig *rig = *state;
    struct client old, young, third, again;
    open_engine(rig, (struct shape){.slots = 2, .window = 4000});
    client_init(&old, 5, 2000, 2);
    run_alone(rig, &old);
    client_init(&young, 60, 100, 2);
    run_alone(rig, &young);
    client_init(&third, 120, 100, 2);
    run_alone(rig, &third);
    client_init(&again, 60, 100, 2);
    run_alone(rig, &again);
    assert_int_equal(again.result.prompt_n, 1);
    client_release(&old);
    client_release(&young);
    client_release(&third);
    client_release(&again);
}

static void more_reuse_beats_a_tidier_source(void **state)
{
    struct rig *rig = *state;
    struct client longer, shorter, next;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 8, .window = 4000});
    client_init(&longer, 0, 1050, 1);
    for (int32_t i = 0; i < 400; i++) tokens_push(&longer.job.prompt, 7);
    run_alone(rig, &longer);
    client_init(&shorter, 0, 1000, 1); /* shares with the first, and stays beside it */
    run_alone(rig, &shorter);
    client_init(&next, 0, 1050, 1);
    tokens_push(&next.job.prompt, 9);
    run_alone(rig, &next);
    assert_int_equal(next.result.cache_n, 1050);
    client_release(&longer);
    client_release(&shorter);
    client_release(&next);
}

static void a_private_request_leaves_no_checkpoints(void **state)
{
    struct rig *rig = *state;
    struct client secret, other;
    fake_llm.cuts = false;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 8, .window = 4000});
    client_init(&secret, 0, 500, 5);
    secret.job.cache_prompt = false;
    secret.job.checkpoints[0] = 400;
    secret.job.n_checkpoints = 1;
    run_alone(rig, &secret);
    client_init(&other, 0, 500, 5);
    run_alone(rig, &other);
    assert_int_equal(other.result.cache_n, 0);
    client_release(&secret);
    client_release(&other);
}

static void a_failure_far_into_uncuttable_sequences_still_ends(void **state)
{
    struct rig *rig = *state;
    struct client good, bad;
    fake_llm.held = true;
    fake_llm.cuts = false;
    fake_llm.poison = 195;
    fake_llm.torn_tokens = 1;
    open_engine(rig, (struct shape){.slots = 2, .window = 1000});
    client_init(&good, 5, 950, 40);
    client_init(&bad, 50, 700, 20);
    bad.job.prompt.v[600] = 195;
    engine_submit(rig->engine, &good.job);
    engine_submit(rig->engine, &bad.job);
    fake_llm_step(100000000);
    client_await_end(&good);
    client_await_end(&bad);
    assert_true(bad.failed);
    assert_true(client_got_right_reply(&good));
    client_release(&good);
    client_release(&bad);
}

/* Agents with a long system prompt and few words of their own: none reuses what another one has said. */
static void short_tails_behind_a_long_prefix_are_kept(void **state)
{
    struct rig *rig = *state;
    open_engine(rig, (struct shape){.slots = 2, .seqs = 16, .window = 4000});
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < 6; i++) {
            struct client c;
            agent_init(&c, i, 2000, 100, 1);
            run_alone(rig, &c);
            client_release(&c);
        }
    }
    assert_int_equal(computed(rig), 2000 + 6 * 100 + 2 * 6);
}

/* With a stream of cells each, a copy of what is to be cut would take the stream of another conversation. */
static void an_edited_conversation_is_cut_before_another_one_is_evicted(void **state)
{
    struct rig *rig = *state;
    struct client other, first, edited, again;
    open_engine(rig, (struct shape){.slots = 2, .window = 2000});
    client_init(&other, 100, 200, 10);
    client_init(&first, 5, 200, 10);
    client_init(&edited, 5, 100, 10);
    client_init(&again, 100, 200, 10);
    for (int32_t i = 0; i < 100; i++) tokens_push(&edited.job.prompt, i * 7 % 190);
    run_alone(rig, &other);
    run_alone(rig, &first);
    run_alone(rig, &edited);
    run_alone(rig, &again);
    assert_int_equal(edited.result.cache_n, 100);
    assert_int_equal(again.result.cache_n, 199);
    client_release(&other);
    client_release(&first);
    client_release(&edited);
    client_release(&again);
}

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        engine_test(an_edited_conversation_is_cut_before_another_one_is_evicted),
        engine_test(twelve_agents_that_start_at_once_compute_their_system_prompt_once),
        engine_test(a_prefix_is_shared_with_a_busy_sequence),
        engine_test(more_conversations_than_slots_keep_their_cells),
        engine_test(an_edited_message_costs_what_follows_it_and_keeps_the_old_branch),
        engine_test(a_full_pool_evicts_the_least_recently_used_and_nothing_that_runs),
        engine_test(a_shared_prefix_outlives_the_one_that_computed_it),
        engine_test(one_that_waits_for_a_prefix_computes_it_when_the_other_is_cancelled),
        engine_test(what_cannot_be_cut_has_checkpoints),
        engine_test(what_cannot_be_cut_is_never_computed_from_zero),
        engine_test(the_next_prompt_begins_where_earlier_ones_diverged),
        engine_test(agents_wait_for_a_checkpoint_of_what_cannot_be_cut),
        engine_test(with_a_stream_each_a_prefix_is_copied_to_another_slot),
        engine_test(with_a_stream_each_the_oldest_conversation_is_evicted_and_not_the_shortest),
        engine_test(nothing_is_shared_with_a_request_that_wants_nothing_kept),
        engine_test(more_reuse_beats_a_tidier_source),
        engine_test(a_private_request_leaves_no_checkpoints),
        engine_test(a_failure_far_into_uncuttable_sequences_still_ends),
        engine_test(short_tails_behind_a_long_prefix_are_kept),
    };
    log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
