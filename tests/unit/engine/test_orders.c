/* Orders about resident conversations: what is kept stays as long as anything else can go, what is to leave is stored
 * first, and no order meets another conversation than the one that was shown. */
#include "disk.h"

#include "chats.h"

enum { PROMPT = 300, REPLY = 10, CELLS = PROMPT + REPLY - 1 }; /* nothing needed the last token's cell */

/* ---- Giving orders ---- */

struct giver {
    struct engine_order order; /* first */
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool is_over;
};

static void note_end(struct engine_order *order)
{
    struct giver *giver = (struct giver *)order;
    pthread_mutex_lock(&giver->mutex);
    giver->is_over = true;
    pthread_cond_signal(&giver->ended);
    pthread_mutex_unlock(&giver->mutex);
}

static void begin(struct rig *rig, struct giver *giver, const hearth_resident *resident, hearth_order what)
{
    *giver = (struct giver){.order = {.seq_id = resident->seq_id, .order = what, .done = note_end}};
    snprintf(giver->order.hash, sizeof giver->order.hash, "%s", resident->hash);
    pthread_mutex_init(&giver->mutex, NULL);
    pthread_cond_init(&giver->ended, NULL);
    assert_true(engine_give_order(rig->engine, &giver->order));
}

static hearth_error end(struct giver *giver)
{
    pthread_mutex_lock(&giver->mutex);
    while (!giver->is_over) pthread_cond_wait(&giver->ended, &giver->mutex);
    pthread_mutex_unlock(&giver->mutex);
    pthread_cond_destroy(&giver->ended);
    pthread_mutex_destroy(&giver->mutex);
    return giver->order.error;
}

static int give(struct rig *rig, const hearth_resident *resident, hearth_order what)
{
    struct giver giver;
    begin(rig, &giver, resident, what);
    return (int)end(&giver).code;
}

/* The idle sequence with so many cells, once the status shows it. */
static hearth_resident await_resident(struct rig *rig, int32_t cells)
{
    hearth_resident residents[16];
    for (;;) {
        size_t n = engine_residents(rig->engine, residents, 16);
        for (size_t i = 0; i < n; i++)
            if (residents[i].tokens == cells && residents[i].state == HEARTH_RESIDENT_IDLE) return residents[i];
        sched_yield();
    }
}

static void await_none(struct rig *rig)
{
    while (engine_residents(rig->engine, NULL, 0) > 0) sched_yield();
}

/* A conversation of its own; `seed` tells it from others. */
static void converse(struct rig *rig, struct client *client, int32_t seed, size_t prompt)
{
    client_init(client, seed, prompt, REPLY);
    run_alone(rig, client);
    assert_false(client->failed);
    fake_clock_advance(&rig->clock, 1000);
}

/* ---- Keep ---- */

static int32_t cached_of_the_first_after_others(struct rig *rig, bool kept)
{
    struct client first, others[3], again;
    fake_llm.n_cells = 1000;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 8, .window = 1000});
    converse(rig, &first, 0, PROMPT);
    hearth_resident shown = await_resident(rig, CELLS);
    if (kept) assert_int_equal(give(rig, &shown, HEARTH_ORDER_KEEP), HEARTH_OK);
    assert_int_equal(await_resident(rig, CELLS).kept, kept);
    for (int32_t i = 0; i < 3; i++) converse(rig, &others[i], 30 + 11 * i, 400);
    next_turn(&again, &first, 5, 1);
    run_alone(rig, &again);
    int32_t cached = again.result.cache_n;
    for (int i = 0; i < 3; i++) client_release(&others[i]);
    client_release(&first);
    client_release(&again);
    engine_close(rig->engine);
    rig->engine = NULL;
    return cached;
}

static void what_is_kept_is_evicted_last(void **state)
{
    assert_true(cached_of_the_first_after_others(*state, false) < CELLS);
    assert_int_equal(cached_of_the_first_after_others(*state, true), CELLS);
}

/* There is nothing else to evict. */
static void what_is_kept_goes_where_nothing_else_makes_room(void **state)
{
    struct rig *rig = *state;
    struct client kept, large;
    fake_llm.n_cells = 1000;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 8, .window = 1000});
    converse(rig, &kept, 0, PROMPT);
    hearth_resident shown = await_resident(rig, CELLS);
    assert_int_equal(give(rig, &shown, HEARTH_ORDER_KEEP), HEARTH_OK);
    client_init(&large, 50, 900, REPLY);
    run_alone(rig, &large);
    assert_false(large.failed);
    assert_true(client_got_right_reply(&large));
    client_release(&kept);
    client_release(&large);
}

static void store_one(struct stored *s, struct client *client, int32_t seed)
{
    client_init(client, seed, PROMPT + (size_t)seed, REPLY);
    run(s, client);
    await_stored(s, client);
}

static void what_is_kept_does_not_leave_for_its_price_until_it_is_released(void **state)
{
    struct stored s = {0};
    struct client first, others[2];
    start(&s, *state, (struct shape){.slots = 2, .seqs = 16, .window = 9000, .idle = ENGINE_IDLE_LEAVES});
    store_one(&s, &first, 0);
    hearth_resident shown = await_resident(s.rig, CELLS);
    assert_int_equal(give(s.rig, &shown, HEARTH_ORDER_KEEP), HEARTH_OK);
    store_one(&s, &others[0], 60);
    assert_int_equal(metric_get(&s.rig->engine->stats->idle_evictions), 0);
    assert_int_equal(give(s.rig, &shown, HEARTH_ORDER_RELEASE), HEARTH_OK);
    assert_false(await_resident(s.rig, CELLS).kept);
    store_one(&s, &others[1], 90);
    assert_int_equal(metric_get(&s.rig->engine->stats->idle_evictions), 2); /* both that were idle */
    stop(&s);
    client_release(&first);
    for (int i = 0; i < 2; i++) client_release(&others[i]);
}

/* By its messages it is the same conversation, though its last reply was written anew: the order moves on with it. */
static void the_next_turn_is_kept_and_not_the_former_one(void **state)
{
    struct rig *rig = *state;
    struct chat chat = {0}, other;
    hearth_resident residents[16];
    open_engine(rig, (struct shape){.slots = 1, .seqs = 8, .window = 4000});
    say(&chat, SYSTEM, 1, 100);
    say(&chat, USER, 2, 50);
    turn(rig, &chat, REPLY);
    say(&chat, USER, 3, 50);
    other = chat_copy(&chat, chat.n);
    turn(rig, &chat, REPLY);
    assert_int_equal(engine_residents(rig->engine, residents, 16), 1);
    hearth_resident shown = residents[0];
    assert_int_equal(give(rig, &shown, HEARTH_ORDER_KEEP), HEARTH_OK);
    say(&other, USER, 9, 40); /* no reply between: another branch of the same messages */
    turn(rig, &other, REPLY);
    size_t n = engine_residents(rig->engine, residents, 16), n_kept = 0;
    for (size_t i = 0; i < n; i++) n_kept += residents[i].kept;
    assert_int_equal(n, 2);
    assert_int_equal(n_kept, 1);
    for (size_t i = 0; i < n; i++) assert_int_equal(residents[i].kept, residents[i].seq_id != shown.seq_id);
    chat_release(&chat);
    chat_release(&other);
}

/* With a stream of cells for each sequence a prompt that begins alike would take the kept one, since that loses less.
 */
static void another_prompt_does_not_take_its_cells_over(void **state)
{
    struct rig *rig = *state;
    struct client kept, large, alike;
    open_engine(rig, (struct shape){.slots = 2, .window = 2000});
    converse(rig, &kept, 0, 1000);
    converse(rig, &large, 50, 1500);
    hearth_resident shown = await_resident(rig, 1000 + REPLY - 1);
    assert_int_equal(give(rig, &shown, HEARTH_ORDER_KEEP), HEARTH_OK);
    client_init(&alike, 0, 900, REPLY);
    for (int32_t i = 0; i < 20; i++) tokens_push(&alike.job.prompt, 100 + i);
    run_alone(rig, &alike);
    assert_true(client_got_right_reply(&alike));
    hearth_resident after = await_resident(rig, 1000 + REPLY - 1);
    assert_int_equal(after.seq_id, shown.seq_id);
    assert_string_equal(after.hash, shown.hash);
    assert_true(after.kept);
    client_release(&kept);
    client_release(&large);
    client_release(&alike);
}

/* ---- Evict ---- */

static void what_is_to_leave_is_stored_and_comes_back_from_there(void **state)
{
    struct stored s = {0};
    struct client first, again;
    start(&s, *state, (struct shape){.slots = 1, .seqs = 8, .window = 4000});
    client_init(&first, 0, PROMPT, REPLY);
    run(&s, &first);
    hearth_resident shown = await_resident(s.rig, CELLS);
    assert_int_equal(give(s.rig, &shown, HEARTH_ORDER_KEEP), HEARTH_OK);
    assert_int_equal(give(s.rig, &shown, HEARTH_ORDER_EVICT), HEARTH_OK);
    await_none(s.rig);
    assert_int_equal(stored_of(&s, &first), CELLS);
    next_turn(&again, &first, 5, 1);
    run(&s, &again);
    assert_true(again.result.cache_n >= PROMPT);
    assert_true(fake_llm.rows_loaded >= PROMPT);
    assert_int_equal(give(s.rig, &shown, HEARTH_ORDER_EVICT), HEARTH_NOT_FOUND); /* it holds more by now */
    stop(&s);
    client_release(&first);
    client_release(&again);
}

/* The store's quota is smaller than the conversation. */
static void what_cannot_be_stored_stays(void **state)
{
    struct stored s = {0};
    struct client first;
    struct store_params params = {
        .stride = STRIDE, .save_tier = STORE_RAM, .backlog = 64 << 20, LONG_TIMEOUTS, .files = files_machine()};
    params.tiers[STORE_RAM].quota = 100;
    s.store = store_open(&params, NULL);
    start(&s, *state, (struct shape){.slots = 1, .seqs = 8, .window = 4000});
    client_init(&first, 0, PROMPT, REPLY);
    run(&s, &first);
    hearth_resident shown = await_resident(s.rig, CELLS);
    give(s.rig, &shown, HEARTH_ORDER_EVICT);
    assert_string_equal(await_resident(s.rig, CELLS).hash, shown.hash);
    stop(&s);
    client_release(&first);
}

/* The disk takes its time: nobody needs the room, and it leaves all the same, but not before. */
static void what_is_to_leave_leaves_once_a_slow_disk_has_it(void **state)
{
    struct stored s = {.store = open_store_on_disk()};
    struct client first;
    hearth_resident leaving[8];
    start(&s, *state, (struct shape){.slots = 1, .seqs = 8, .window = 4000});
    assert_true(store_wait_ready(s.store, CLOCK_NEVER));
    gate_close(&gated);
    client_init(&first, 0, PROMPT, REPLY);
    run(&s, &first);
    hearth_resident shown = await_resident(s.rig, CELLS);
    gate_await(&gated);
    assert_int_equal(give(s.rig, &shown, HEARTH_ORDER_EVICT), HEARTH_OK);
    assert_int_equal(engine_residents(s.rig->engine, leaving, 8), 1);
    assert_int_equal(leaving[0].state, HEARTH_RESIDENT_LEAVING);
    gate_open(&gated);
    await_none(s.rig);
    assert_int_equal(stored_of(&s, &first), CELLS);
    stop(&s);
    client_release(&first);
}

/* The store's folder cannot be made. */
static void what_a_store_that_is_off_cannot_take_stays(void **state)
{
    struct stored s = {0};
    struct client first;
    struct store_params params = {
        .stride = STRIDE, .save_tier = STORE_DISK, .backlog = 64 << 20, LONG_TIMEOUTS, .files = files_machine()};
    params.tiers[STORE_DISK].quota = 1 << 30;
    params.tiers[STORE_DISK].path = "/dev/null/folder";
    s.store = store_open(&params, NULL);
    start(&s, *state, (struct shape){.slots = 1, .seqs = 8, .window = 4000});
    client_init(&first, 0, PROMPT, REPLY);
    run_alone(s.rig, &first);
    hearth_resident shown = await_resident(s.rig, CELLS);
    while (store_is_on(s.store)) sched_yield();
    await_saves(&s);
    assert_int_equal(give(s.rig, &shown, HEARTH_ORDER_EVICT), HEARTH_UNAVAILABLE);
    assert_string_equal(await_resident(s.rig, CELLS).hash, shown.hash);
    stop(&s);
    client_release(&first);
}

static void without_a_store_it_leaves_at_once(void **state)
{
    struct rig *rig = *state;
    struct client first;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 8, .window = 4000});
    converse(rig, &first, 0, PROMPT);
    hearth_resident shown = await_resident(rig, CELLS);
    assert_int_equal(give(rig, &shown, HEARTH_ORDER_EVICT), HEARTH_OK);
    assert_int_equal(engine_residents(rig->engine, NULL, 0), 0);
    client_release(&first);
}

/* ---- Refused orders ---- */

static void an_order_meets_no_other_conversation(void **state)
{
    static const struct {
        int32_t seq_id;
        const char *hash; /* NULL: the right one */
    } rows[] = {{0, "0000000000000000"}, {0, ""}, {1, NULL}, {8, NULL}, {INT32_MAX, NULL}, {-1, NULL}};
    struct rig *rig = *state;
    struct client first;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 8, .window = 4000});
    converse(rig, &first, 0, PROMPT);
    hearth_resident shown = await_resident(rig, CELLS);
    assert_int_equal(shown.seq_id, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hearth_resident wrong = shown;
        wrong.seq_id = rows[i].seq_id;
        if (rows[i].hash != NULL) snprintf(wrong.hash, sizeof wrong.hash, "%s", rows[i].hash);
        for (hearth_order what = HEARTH_ORDER_KEEP; what <= HEARTH_ORDER_EVICT; what++)
            assert_int_equal(give(rig, &wrong, what), HEARTH_NOT_FOUND);
    }
    assert_false(await_resident(rig, CELLS).kept);
    client_release(&first);
}

static void a_running_conversation_takes_no_orders(void **state)
{
    struct rig *rig = *state;
    struct client client;
    struct giver giver;
    hearth_resident running[8];
    fake_llm.held = true;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 8, .window = 4000});
    client_init(&client, 0, PROMPT, 200);
    engine_submit(rig->engine, &client.job);
    fake_llm_step(10);
    client_await_tokens(&client, 3);
    assert_int_equal(engine_residents(rig->engine, running, 8), 1);
    begin(rig, &giver, &running[0], HEARTH_ORDER_EVICT);
    fake_llm_step(1000000);
    assert_int_equal(end(&giver).code, HEARTH_BUSY);
    client_await_end(&client);
    assert_true(client_got_right_reply(&client));
    client_release(&client);
}

static void an_engine_that_is_drained_takes_no_orders(void **state)
{
    struct rig *rig = *state;
    struct engine_order order = {.order = HEARTH_ORDER_KEEP};
    open_engine(rig, (struct shape){.slots = 1, .seqs = 8, .window = 4000});
    engine_drain(rig->engine, CLOCK_NEVER);
    assert_false(engine_give_order(rig->engine, &order));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        engine_test(what_is_kept_is_evicted_last),
        engine_test(what_is_kept_goes_where_nothing_else_makes_room),
        engine_test(what_is_kept_does_not_leave_for_its_price_until_it_is_released),
        engine_test(the_next_turn_is_kept_and_not_the_former_one),
        engine_test(another_prompt_does_not_take_its_cells_over),
        engine_test(what_is_to_leave_is_stored_and_comes_back_from_there),
        engine_test(what_cannot_be_stored_stays),
        disk_test(what_is_to_leave_leaves_once_a_slow_disk_has_it),
        engine_test(what_a_store_that_is_off_cannot_take_stays),
        engine_test(without_a_store_it_leaves_at_once),
        engine_test(an_order_meets_no_other_conversation),
        engine_test(a_running_conversation_takes_no_orders),
        engine_test(an_engine_that_is_drained_takes_no_orders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
