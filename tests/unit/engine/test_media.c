/* Media in prompts: rows in the place of tokens, which somebody else encodes. The fake model's next token is a hash of
 * all rows and tokens: a foreign, missing or misplaced row is a wrong reply. */
#include "stored.h"

#include "base/log.h"

static const struct shape pool = {.slots = 2, .seqs = 8, .window = 4000};

/* Words, a medium, words. Keys of even and odd first tokens: media whose rows are causal and others. */
static void init(struct client *client, struct rig *rig, uint8_t key, int32_t reply)
{
    client_init(client, 5, 40, reply);
    client_add_medium(&client->job.prompt, key, 100);
    for (int32_t i = 0; i < 30; i++) tokens_push(&client->job.prompt, i * 7 % 190);
    client_find_media(client);
    client->engine = rig->engine;
}

/* What the prompt and the reply were, then a medium and words. */
static void init_next(struct client *next, const struct client *last, uint8_t key)
{
    next_turn(next, last, 10, 10);
    client_add_medium(&next->job.prompt, key, 80);
    for (int32_t i = 0; i < 20; i++) tokens_push(&next->job.prompt, i * 3 % 190);
    client_find_media(next);
    next->engine = last->engine;
}

static void expect_right(struct client *client)
{
    if (client->failed) fail_msg("%s", client->error.message);
    assert_true(client_got_right_reply(client));
    assert_int_equal(client->result.finish, HEARTH_FINISH_LENGTH);
}

/* ---- */

static bool is_causal(uint8_t key)
{
    struct tokens tokens = {0};
    client_add_medium(&tokens, key, 1);
    struct media_spans spans = client_spans_of(&tokens);
    bool causal = spans.v[0].causal;
    media_spans_release(&spans);
    tokens_release(&tokens);
    return causal;
}

static void the_next_turn_computes_no_row_again(void **state)
{
    static const struct shape shapes[] = {{.slots = 2, .seqs = 8, .window = 4000},
                                          {.slots = 2, .window = 4000},
                                          {.slots = 2, .window = 4000, .deterministic = true},
                                          {.slots = 2, .seqs = 8, .window = 4000, .n_batch = 64}};
    struct rig *rig = *state;
    bool causal = false, at_once = false;
    for (uint8_t key = 0; key < 6; key++) {
        const struct shape *shape = &shapes[key % 4];
        struct client first, second;
        fake_llm_reset(&rig->clock);
        open_engine(rig, *shape);
        init(&first, rig, key, 10);
        run_alone(rig, &first);
        expect_right(&first);
        assert_int_equal(fake_llm.rows_computed, 100);
        init_next(&second, &first, (uint8_t)(key + 1));
        run_alone(rig, &second);
        expect_right(&second);
        assert_int_equal(fake_llm.rows_computed, 180);
        assert_int_equal(second.media.asked[0], 0);
        assert_true(second.media.asked[1] > 0);
        assert_int_equal(second.media.computed[1], 1);
        assert_true(second.result.cache_n >= (shape->deterministic ? 140 : (int32_t)first.job.prompt.len + 9));
        client_release(&first);
        client_release(&second);
        causal = causal || is_causal(key);
        at_once = at_once || !is_causal(key);
        assert_all_idle(rig);
        engine_close(rig->engine);
        rig->engine = NULL;
    }
    assert_true(causal && at_once);
}

static void another_medium_begins_anew_behind_the_text(void **state)
{
    struct rig *rig = *state;
    struct client one, other;
    open_engine(rig, pool);
    init(&one, rig, 1, 10);
    init(&other, rig, 2, 10);
    run_alone(rig, &one);
    run_alone(rig, &other);
    expect_right(&other);
    assert_int_equal(other.result.cache_n, 40);
    client_release(&one);
    client_release(&other);
}

/* As tiles of a longer image or sound would. */
static void media_that_begin_alike_share_none_of_their_rows(void **state)
{
    struct rig *rig = *state;
    struct client one, other;
    open_engine(rig, pool);
    init(&one, rig, 1, 10);
    client_init(&other, 5, 40, 10);
    client_add_medium(&other.job.prompt, 1, 70);
    tokens_push(&other.job.prompt, 3);
    client_find_media(&other);
    run_alone(rig, &one);
    run_alone(rig, &other);
    expect_right(&other);
    assert_int_equal(other.result.cache_n, 40);
    client_release(&one);
    client_release(&other);
}

static void a_slot_waits_for_rows_and_others_do_not(void **state)
{
    struct rig *rig = *state;
    struct client waits, streams;
    open_engine(rig, pool);
    init(&waits, rig, 1, 10);
    waits.media.held = true;
    client_init(&streams, 100, 50, 30);
    engine_submit(rig->engine, &waits.job);
    client_await_start(&waits);
    run_alone(rig, &streams);
    expect_right(&streams);
    assert_false(waits.ended);
    assert_int_equal(fake_llm.rows_computed, 0);
    waits.media.held = false;
    engine_poke(rig->engine);
    client_await_end(&waits);
    expect_right(&waits);
    client_release(&waits);
    client_release(&streams);
}

static int32_t cells_computed(struct rig *rig)
{
    hearth_slot slots[8];
    size_t n = engine_slots(rig->engine, slots, 8);
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += slots[i].n_past;
    return sum;
}

/* The rows are asked for before the text in front of them is computed; while they are encoded the engine sleeps. */
static void rows_are_encoded_beside_the_text_before_them(void **state)
{
    struct rig *rig = *state;
    struct client client;
    open_engine(rig, pool);
    fake_llm.held = true;
    init(&client, rig, 1, 10);
    client.media.held = true;
    engine_submit(rig->engine, &client.job);
    fake_llm_await_call();
    assert_int_equal(client.media.asked[0], 1);
    fake_llm_step(1000);
    while (cells_computed(rig) < 40) sched_yield();
    for (int i = 0; i < 100; i++) engine_poke(rig->engine);
    assert_int_equal(cells_computed(rig), 40);
    client.media.held = false;
    engine_poke(rig->engine);
    client_await_end(&client);
    expect_right(&client);
    client_release(&client);
}

static void a_medium_that_cannot_be_encoded_fails_its_own_request(void **state)
{
    struct rig *rig = *state;
    struct client fails, other;
    open_engine(rig, pool);
    init(&fails, rig, 1, 10);
    fails.media.fails = true;
    init(&other, rig, 2, 10);
    engine_submit(rig->engine, &fails.job);
    run_alone(rig, &other);
    client_await_end(&fails);
    expect_right(&other);
    assert_true(fails.failed);
    assert_string_equal(fails.error.message, "the image cannot be encoded");
    client_release(&fails);
    client_release(&other);
}

static void who_waits_for_rows_can_be_cancelled(void **state)
{
    struct rig *rig = *state;
    struct client client;
    open_engine(rig, pool);
    init(&client, rig, 1, 10);
    client.media.held = true;
    engine_submit(rig->engine, &client.job);
    client_await_start(&client);
    client.job.cancelled = true;
    engine_poke(rig->engine);
    client_await_end(&client);
    assert_int_equal(client.error.code, HEARTH_CANCELLED);
    client_release(&client);
}

/* The next user of the slot has no media, and waits for none. */
static void a_slot_that_waited_serves_others(void **state)
{
    struct rig *rig = *state;
    struct client client, next;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 4, .window = 4000});
    init(&client, rig, 1, 10);
    client.media.held = true;
    engine_submit(rig->engine, &client.job);
    client_await_start(&client);
    client.job.cancelled = true;
    engine_poke(rig->engine);
    client_await_end(&client);
    client_init(&next, 100, 50, 10);
    run_alone(rig, &next);
    expect_right(&next);
    client_release(&client);
    client_release(&next);
}

/* ---- The store ---- */

static void rows_come_back_from_the_store(void **state)
{
    static const struct shape shapes[] = {{.slots = 2, .seqs = 8, .window = 4000}, {.slots = 2, .window = 4000}};
    for (size_t i = 0; i < 2; i++) {
        struct stored s = {0};
        struct client first, second;
        start(&s, *state, shapes[i]);
        init(&first, s.rig, 1, 10);
        run(&s, &first);
        settle_down(&s);
        restart(&s, shapes[i]);
        fake_llm.rows_computed = 0;
        init_next(&second, &first, 2);
        run(&s, &second);
        assert_int_equal(fake_llm.rows_computed, 80);
        assert_int_equal(second.media.asked[0], 0);
        assert_true(second.result.cache_n >= (int32_t)first.job.prompt.len);
        settle_down(&s);
        stop(&s);
        client_release(&first);
        client_release(&second);
    }
}

/* A longer medium that begins like the stored one: nothing of it is reused. */
static void what_is_stored_of_a_medium_is_used_whole_or_not(void **state)
{
    struct stored s = {0};
    struct client first, other;
    start(&s, *state, pool);
    init(&first, s.rig, 1, 10);
    run(&s, &first);
    settle_down(&s);
    restart(&s, pool);
    client_init(&other, 5, 40, 10);
    client_add_medium(&other.job.prompt, 1, 130);
    for (int32_t i = 0; i < 30; i++) tokens_push(&other.job.prompt, i);
    client_find_media(&other);
    other.engine = s.rig->engine;
    run(&s, &other);
    assert_true(other.result.cache_n <= 40);
    settle_down(&s);
    stop(&s);
    client_release(&first);
    client_release(&other);
}

/* Two media of one row each have the same token once in 2^30 times: of what follows nothing is kept, in the cells or in
 * the store, and nothing is reused. */
static void what_follows_a_medium_of_very_few_rows_is_not_reused(void **state)
{
    for (int32_t rows = 1; rows <= MEDIA_TOLD_ROWS + 1; rows++) {
        struct stored s = {0};
        struct rig *rig = *state;
        start(&s, rig, pool);
        for (int i = 0; i < 4; i++) {
            struct client c;
            int32_t all = 90 + rows + 70, stored = rows < MEDIA_TOLD_ROWS ? 90 : all + 19;
            if (i == 2) restart(&s, pool);
            client_init(&c, 5, 90, 20);
            client_add_medium(&c.job.prompt, 3, rows);
            for (int32_t k = 0; k < 70; k++) tokens_push(&c.job.prompt, k * 7 % 190);
            client_find_media(&c);
            c.engine = rig->engine;
            run(&s, &c);
            assert_int_equal(c.result.cache_n, i == 0 ? 0 : stored < all ? stored : all - 1);
            while (stored_of(&s, &c) < stored) sched_yield(); /* a save begins after the end */
            await_saves(&s);
            assert_int_equal(stored_of(&s, &c), stored);
            client_release(&c);
        }
        stop(&s);
        fake_llm_reset(&rig->clock);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        engine_test(what_follows_a_medium_of_very_few_rows_is_not_reused),
        engine_test(the_next_turn_computes_no_row_again),
        engine_test(another_medium_begins_anew_behind_the_text),
        engine_test(media_that_begin_alike_share_none_of_their_rows),
        engine_test(a_slot_waits_for_rows_and_others_do_not),
        engine_test(rows_are_encoded_beside_the_text_before_them),
        engine_test(a_medium_that_cannot_be_encoded_fails_its_own_request),
        engine_test(who_waits_for_rows_can_be_cancelled),
        engine_test(a_slot_that_waited_serves_others),
        engine_test(rows_come_back_from_the_store),
        engine_test(what_is_stored_of_a_medium_is_used_whole_or_not),
    };
    hearth_error error;
    log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
