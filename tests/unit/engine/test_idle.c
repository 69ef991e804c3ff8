/* Idle conversations leave the cells when they have cost others as much as bringing them back would, and come back from
 * the store. The store is the real one; the model is not, and takes its time on a clock of its own. */
#include "stored.h"

enum { MASKED_NS = 50, PROMPT = 1000, CONVERSATIONS = 8 };

static const struct shape priced = {.slots = 2, .seqs = 16, .window = 9000, .idle = ENGINE_IDLE_PRICED};

static int64_t left(const struct stored *s)
{
    return metric_get(&s->rig->engine->stats->idle_evictions);
}

static int32_t idle_cells(const struct stored *s)
{
    int32_t n = 0;
    engine_drain(s->rig->engine, CLOCK_NEVER);
    for (size_t i = 0; i < s->rig->engine->n_seqs; i++) n += s->rig->engine->seqs[i].n_cells;
    return n;
}

static void take_time(double masked_ns)
{
    fake_llm.call_ns = 2000000;
    fake_llm.token_ns = 200000;
    fake_llm.masked_ns = masked_ns;
}

static void run_and_save(struct stored *s, struct client *client)
{
    run(s, client);
    await_stored(s, client);
}

/* One conversation after the other, each stored before the next one begins. */
static void converse(struct stored *s, struct client *clients, int n, int32_t max_tokens)
{
    for (int i = 0; i < n; i++) {
        client_init(&clients[i], 11 * i, PROMPT, max_tokens);
        run_and_save(s, &clients[i]);
    }
}

static void release(struct client *clients, int n)
{
    for (int i = 0; i < n; i++) client_release(&clients[i]);
}

static void conversations_that_slow_others_down_leave_and_come_back_from_the_store(void **state)
{
    struct stored s = {0};
    struct client clients[CONVERSATIONS], back;
    take_time(MASKED_NS);
    start(&s, *state, priced);
    converse(&s, clients, CONVERSATIONS, 30);
    assert_in_range(left(&s), CONVERSATIONS - 3, CONVERSATIONS);
    next_turn(&back, &clients[0], 40, 20);
    run(&s, &back);
    assert_true(back.result.cache_n >= PROMPT);
    assert_true(fake_llm.rows_loaded >= PROMPT);
    stop(&s);
    release(clients, CONVERSATIONS);
    client_release(&back);
}

/* The prompt that is to be computed is known: what it would pay for cells is charged before its first token. */
static void they_leave_before_a_prompt_that_would_pay_for_them(void **state)
{
    struct stored s = {0};
    struct client clients[CONVERSATIONS], cold;
    struct rig *rig = *state;
    take_time(MASKED_NS);
    start(&s, rig, priced);
    converse(&s, clients, CONVERSATIONS, 30);
    client_init(&cold, 150, 600, 1);
    int64_t before = clock_now(&rig->clock.clock);
    run(&s, &cold);
    double took = (double)(clock_now(&rig->clock.clock) - before), alone = 2 * 2000000.0 + 600 * 200000.0;
    assert_true(took < 1.2 * alone);
    stop(&s);
    release(clients, CONVERSATIONS);
    client_release(&cold);
}

/* What other threads see of them: the first one waited while the second one was computed, and has cost it time. */
static void what_is_resident_tells_what_it_costs(void **state)
{
    struct stored s = {0};
    struct client clients[2];
    hearth_resident residents[16];
    take_time(MASKED_NS / 1000);
    start(&s, *state, priced);
    converse(&s, clients, 1, 30);
    assert_int_equal(engine_residents(s.rig->engine, residents, 16), 1);
    assert_int_equal(residents[0].state, HEARTH_RESIDENT_IDLE);
    assert_int_equal(residents[0].slot_id, -1);
    assert_int_equal(residents[0].tokens, PROMPT + 30 - 1); /* nothing needed the last token's cell */
    assert_int_equal(residents[0].own_tokens, residents[0].tokens);
    assert_true(residents[0].cost_ms == 0 && residents[0].last_used > 0 && residents[0].hash[0] != '\0');
    client_init(&clients[1], 9, PROMPT, 30);
    run(&s, &clients[1]);
    assert_int_equal(engine_residents(s.rig->engine, residents, 16), 2);
    assert_true(residents[0].cost_ms > 0);
    stop(&s);
    release(clients, 2);
}

static void where_masked_cells_cost_nothing_they_stay(void **state)
{
    struct stored s = {0};
    struct client clients[CONVERSATIONS];
    take_time(0);
    start(&s, *state, priced);
    converse(&s, clients, CONVERSATIONS, 30);
    assert_int_equal(left(&s), 0);
    assert_true(idle_cells(&s) >= CONVERSATIONS * PROMPT);
    stop(&s);
    release(clients, CONVERSATIONS);
}

static void a_conversation_with_nobody_beside_it_stays(void **state)
{
    struct stored s = {0};
    struct client turns[10];
    take_time(MASKED_NS);
    start(&s, *state, priced);
    converse(&s, turns, 1, 30);
    for (int i = 1; i < 10; i++) {
        next_turn(&turns[i], &turns[i - 1], 100, 30);
        run(&s, &turns[i]);
        assert_int_equal(turns[i].result.prompt_n, 101); /* and the last token of the reply before */
    }
    assert_int_equal(left(&s), 0);
    assert_int_equal(fake_llm.rows_loaded, 0);
    stop(&s);
    release(turns, 10);
}

static void what_is_not_stored_stays(void **state)
{
    struct stored s = {0};
    struct client clients[CONVERSATIONS];
    struct rig *rig = *state;
    take_time(MASKED_NS);
    s.rig = rig;
    open_engine(rig, priced);
    for (int i = 0; i < CONVERSATIONS; i++) {
        client_init(&clients[i], 11 * i, PROMPT, 30);
        run_alone(rig, &clients[i]);
    }
    assert_int_equal(left(&s), 0);
    assert_true(idle_cells(&s) >= CONVERSATIONS * PROMPT);
    release(clients, CONVERSATIONS);
}

/* A store that can hold little more than the cells would soon lose what left them. It holds three conversations here,
 * and more of them are in the cells before their cost is known. */
static void beside_a_small_store_they_stay(void **state)
{
    enum { MANY = 15 };
    struct stored s = {0};
    struct client clients[MANY];
    struct store_params params = {
        .stride = STRIDE, .save_tier = STORE_RAM, .backlog = 64 << 20, LONG_TIMEOUTS, .files = files_machine()};
    take_time(MASKED_NS);
    params.tiers[STORE_RAM].quota = 40000;
    s.store = store_open(&params, NULL);
    start(&s, *state, priced);
    converse(&s, clients, MANY, 1);
    assert_int_equal(left(&s), 0);
    stop(&s);
    release(clients, MANY);
}

/* ---- Once it is known what masked cells cost ---- */

/* Conversations whose cells teach that, and leave; and one that returns, which takes its time. */
static void learn(struct stored *s)
{
    enum { N = 4 };
    struct client clients[N], back;
    fake_llm.load_ns = 100000;
    converse(s, clients, N, 30);
    next_turn(&back, &clients[0], 2000, 30);
    run(s, &back);
    assert_true(fake_llm.rows_loaded >= PROMPT);
    release(clients, N);
    client_release(&back);
}

static void take_turn(struct stored *s, struct client *turn, const struct client *last, int32_t n, int32_t max_tokens)
{
    next_turn(turn, last, n, max_tokens);
    run_and_save(s, turn);
}

static void a_long_reply_pays_for_them_as_well(void **state)
{
    struct stored s = {0};
    struct client idle, streams;
    take_time(MASKED_NS);
    start(&s, *state, priced);
    learn(&s);
    converse(&s, &idle, 1, 10);
    int64_t before = left(&s);
    client_init(&streams, 100, 10, 1);
    run(&s, &streams);
    client_release(&streams);
    assert_int_equal(left(&s), before);
    client_init(&streams, 120, 10, 1000);
    run(&s, &streams);
    assert_true(left(&s) > before);
    stop(&s);
    client_release(&idle);
    client_release(&streams);
}

static void two_conversations_in_short_turns_stay(void **state)
{
    enum { TURNS = 12 };
    struct stored s = {0};
    struct client turns[2][TURNS];
    take_time(MASKED_NS);
    start(&s, *state, priced);
    learn(&s);
    for (int who = 0; who < 2; who++) {
        client_init(&turns[who][0], 40 * who, PROMPT, 5);
        run_and_save(&s, &turns[who][0]);
    }
    take_turn(&s, &turns[0][1], &turns[0][0], 5, 5); /* the second prompt made the first conversation leave */
    take_turn(&s, &turns[1][1], &turns[1][0], 5, 5);
    int64_t before = left(&s);
    for (int i = 2; i < TURNS; i++)
        for (int who = 0; who < 2; who++) take_turn(&s, &turns[who][i], &turns[who][i - 1], 5, 5);
    assert_int_equal(left(&s), before);
    stop(&s);
    release(turns[0], TURNS);
    release(turns[1], TURNS);
}

/* ---- Shared cells ---- */

/* Shared cells are charged once: to the one that runs, else to the one that was used last. */
static void shared_cells_are_charged_once(void **state)
{
    struct stored s = {0};
    struct client first, second, third;
    struct rig *rig = *state;
    take_time(0);
    start(&s, rig, priced);
    client_init(&first, 0, PROMPT, 6);
    run(&s, &first);
    client_init(&second, 0, 800, 21);
    tokens_push(&second.job.prompt, 188);
    run(&s, &second);
    assert_int_equal(second.result.cache_n, 800);
    client_init(&third, 100, 10, 1);
    run(&s, &third);
    engine_drain(rig->engine, CLOCK_NEVER);
    const struct seq *seqs = rig->engine->seqs;
    assert_int_equal(seqs[0].n_cells, PROMPT + 5);
    assert_int_equal(seqs[0].idle.cells, 200 + 5);
    assert_int_equal(seqs[1].idle.cells, 801 + 20);
    stop(&s);
    client_release(&first);
    client_release(&second);
    client_release(&third);
}

/* The prefix that a running request shares costs nothing, and stays when the idle conversation leaves. */
static void what_a_running_request_shares_stays(void **state)
{
    struct stored s = {0};
    struct client first, second;
    struct shape shape = priced;
    take_time(MASKED_NS);
    shape.idle = ENGINE_IDLE_LEAVES;
    start(&s, *state, shape);
    client_init(&first, 5, PROMPT, 30);
    run_and_save(&s, &first);
    client_init(&second, 5, 800, 30);
    for (int i = 0; i < 50; i++) tokens_push(&second.job.prompt, 100);
    run(&s, &second);
    assert_int_equal(second.result.cache_n, 800);
    assert_int_equal(left(&s), 1);
    assert_int_equal(fake_llm.rows_loaded, 0);
    stop(&s);
    client_release(&first);
    client_release(&second);
}

static void they_stay_or_leave_at_once_where_that_is_asked_for(void **state)
{
    static const struct {
        enum engine_idle idle;
        int64_t left;
    } table[] = {{ENGINE_IDLE_STAYS, 0}, {ENGINE_IDLE_LEAVES, CONVERSATIONS - 1}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct stored s = {0};
        struct client clients[CONVERSATIONS];
        struct shape shape = priced;
        shape.idle = table[i].idle;
        take_time(i == 0 ? MASKED_NS : 0);
        start(&s, *state, shape);
        converse(&s, clients, CONVERSATIONS, 30);
        assert_int_equal(left(&s), table[i].left);
        stop(&s);
        release(clients, CONVERSATIONS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        engine_test(conversations_that_slow_others_down_leave_and_come_back_from_the_store),
        engine_test(they_leave_before_a_prompt_that_would_pay_for_them),
        engine_test(what_is_resident_tells_what_it_costs),
        engine_test(where_masked_cells_cost_nothing_they_stay),
        engine_test(a_conversation_with_nobody_beside_it_stays),
        engine_test(what_is_not_stored_stays),
        engine_test(beside_a_small_store_they_stay),
        engine_test(a_long_reply_pays_for_them_as_well),
        engine_test(two_conversations_in_short_turns_stay),
        engine_test(shared_cells_are_charged_once),
        engine_test(what_a_running_request_shares_stays),
        engine_test(they_stay_or_leave_at_once_where_that_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
