/* Logprobs of prompts: every token's, whatever is cached and whatever happens meanwhile; how many rows of logits are
 * there at once; what it costs streams. The fake model's logprob of a token depends on all cells before it. */
#include "rig.h"

static void ask_for_scores(struct client *client, int32_t first, size_t n, int32_t max_tokens)
{
    client_init(client, first, n, max_tokens);
    client->job.prompt_logprobs = 3;
}

static void assert_scored(struct client *client)
{
    assert_false(client->failed);
    assert_int_equal(client->n_scores, client->job.prompt.len - 1);
    assert_true(client_got_right_scores(client));
    assert_true(client_got_right_reply(client));
}

/* Kinds of memory, and of engines over them. */
static const struct kind {
    const char *name;
    struct shape shape;
    bool uncuttable;
} kinds[] = {{"one pool", {.slots = 2, .seqs = 4, .window = 1000}, false},
             {"streams", {.slots = 2, .window = 1000}, false},
             {"deterministic", {.slots = 2, .seqs = 4, .window = 1000, .deterministic = true}, false},
             {"recurrent", {.slots = 2, .seqs = 4, .window = 1000}, true},
             {"system prompts", {.slots = 2, .seqs = 4, .window = 1000, .caching = ENGINE_CACHES_SYSTEM}, false},
             {"nothing cached", {.slots = 2, .seqs = 4, .window = 1000, .no_caching = true}, false}};

#define N_KINDS (sizeof kinds / sizeof *kinds)

static void every_token_of_a_prompt_has_its_logprob_whatever_is_cached(void **state)
{
    static const size_t lengths[] = {1, 2, 3, 63, 64, 65, 66, 128, 300, 900};
    struct rig *rig = *state;
    for (size_t k = 0; k < N_KINDS; k++) {
        fake_llm_reset(&rig->clock);
        fake_llm.cuts = !kinds[k].uncuttable;
        open_engine(rig, kinds[k].shape);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            for (int32_t max_tokens = 0; max_tokens < 3; max_tokens++) {
                struct client client;
                ask_for_scores(&client, 7, lengths[i], max_tokens);
                run_alone(rig, &client);
                assert_scored(&client);
                assert_int_equal(client.result.cache_n, 0);
                assert_int_equal(client.got.len, max_tokens);
                client_release(&client);
            }
        }
        engine_close(rig->engine);
        rig->engine = NULL;
    }
}

static void what_was_computed_for_logprobs_is_reused_by_others(void **state)
{
    struct rig *rig = *state;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 2, .window = 1000});
    struct client scored, next;
    ask_for_scores(&scored, 3, 400, 1);
    run_alone(rig, &scored);
    client_init(&next, 3, 401, 2);
    run_alone(rig, &next);
    assert_int_equal(next.result.cache_n, 400);
    assert_true(client_got_right_reply(&next));
    client_release(&scored);
    client_release(&next);
}

static void rows_of_logits_are_bounded_however_many_prompts_are_scored(void **state)
{
    struct rig *rig = *state;
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        open_engine(rig, (struct shape){.slots = 4, .seqs = 8, .window = 1000, .deterministic = deterministic == 1});
        fake_llm.held = true;
        struct client clients[4];
        for (int32_t i = 0; i < 4; i++) {
            ask_for_scores(&clients[i], 20 * i, 500 + (size_t)i, 2);
            engine_submit(rig->engine, &clients[i].job);
        }
        fake_llm_step(1000);
        for (size_t i = 0; i < 4; i++) {
            client_await_end(&clients[i]);
            assert_scored(&clients[i]);
            client_release(&clients[i]);
        }
        assert_in_range(fake_llm.max_logits, PREFILL_CHUNK / 2, PREFILL_CHUNK + 4);
        engine_close(rig->engine);
        rig->engine = NULL;
        fake_llm_reset(&rig->clock);
    }
}

/* A row of logits takes as long here as three tokens of a prompt: 64 at once would be twice the gap. */
struct watch {
    struct fake_clock *clock;
    int64_t last, longest;
};

static struct watch watch;

static void note_gap(struct client *client)
{
    (void)client;
    int64_t now = clock_now(&watch.clock->clock);
    if (watch.last > 0 && now - watch.last > watch.longest) watch.longest = now - watch.last;
    watch.last = now;
}

static void streams_keep_their_gap_while_a_prompt_is_scored(void **state)
{
    struct rig *rig = *state;
    fake_llm.call_ns = 10000000;
    fake_llm.token_ns = 1000000;
    fake_llm.score_ns = 8000000;
    open_engine(rig, (struct shape){.slots = 2, .seqs = 4, .window = 3000});
    watch = (struct watch){.clock = &rig->clock};
    struct client stream, scored;
    client_init(&stream, 1, 10, 400);
    stream.on_text = note_gap;
    ask_for_scores(&scored, 50, 1000, 1);
    fake_llm.held = true;
    engine_submit(rig->engine, &stream.job);
    fake_llm_step(5);
    client_await_tokens(&stream, 3);
    engine_submit(rig->engine, &scored.job);
    fake_llm_step(100000);
    client_await_end(&scored);
    client_await_end(&stream);
    assert_scored(&scored);
    assert_true(client_got_right_reply(&stream));
    assert_in_range(watch.longest, 1, 250000000);
    client_release(&stream);
    client_release(&scored);
}

/* Cells for one of the two prompts: one gives up what it has, and computes it again. */
static void a_token_is_reported_once_although_its_cells_were_lost(void **state)
{
    struct rig *rig = *state;
    fake_llm.n_cells = 700;
    open_engine(rig, (struct shape){.slots = 2, .seqs = 4, .window = 690});
    fake_llm.held = true;
    struct client clients[2];
    for (int32_t i = 0; i < 2; i++) {
        ask_for_scores(&clients[i], 60 * i, 600, 3);
        engine_submit(rig->engine, &clients[i].job);
    }
    fake_llm_step(100000);
    for (size_t i = 0; i < 2; i++) {
        client_await_end(&clients[i]);
        assert_scored(&clients[i]);
        client_release(&clients[i]);
    }
    assert_true(fake_llm.no_room > 0);
}

static void the_token_that_ends_the_reply_is_told_to_who_scores(void **state)
{
    struct rig *rig = *state;
    fake_llm.end_after = 2;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 2, .window = 100});
    for (int scores = 0; scores < 2; scores++) {
        struct client client;
        client_init(&client, 3, 10, 9);
        client.job.top_logprobs = 1;
        client.job.prompt_logprobs = scores == 1 ? 1 : -1;
        run_alone(rig, &client);
        assert_int_equal(client.result.predicted_n, 3);
        assert_int_equal(client.got.len, 2 + scores);
        assert_int_equal(client.text.len, 2);
        if (scores == 1) assert_int_equal(client.got.v[2], FAKE_END);
        client_release(&client);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        engine_test(every_token_of_a_prompt_has_its_logprob_whatever_is_cached),
        engine_test(what_was_computed_for_logprobs_is_reused_by_others),
        engine_test(rows_of_logits_are_bounded_however_many_prompts_are_scored),
        engine_test(streams_keep_their_gap_while_a_prompt_is_scored),
        engine_test(a_token_is_reported_once_although_its_cells_were_lost),
        engine_test(the_token_that_ends_the_reply_is_told_to_who_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
