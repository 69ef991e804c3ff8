/* Evicting cells: an eviction is known to free cells, nothing that is about to be used is evicted, and loads evict for
 * themselves. */
#include "disk.h"

#include "chats.h"

/* A prompt that diverges from the one that begins with 0 after n tokens. */
static void branch_init(struct client *client, size_t n, size_t own, int32_t max_tokens)
{
    client_init(client, 0, n, max_tokens);
    for (size_t i = 0; i < own; i++) tokens_push(&client->job.prompt, (100 + 3 * (int32_t)i) % 190);
}

static int64_t computed(const struct rig *rig)
{
    return metric_get(&engine_stats(rig->engine)->prompt_tokens);
}

static void run_later(struct rig *rig, struct client *client)
{
    fake_clock_advance(&rig->clock, 1000);
    run_alone(rig, client);
    assert_false(client->failed);
    assert_true(client_got_right_reply(client));
}

/* ---- Evictions free cells ---- */

enum { ANCESTOR = 100000, BRANCH_AT = 99900, NEW_PROMPT = 4096 };

/* A long conversation, a second one that shares nearly all its cells, and a new prompt that finds the pool full. */
static void a_sequence_whose_cells_are_shared_is_evicted_at_once(void **state)
{
    struct rig *rig = *state;
    struct client ancestor, branch, other, again;
    fake_llm.n_cells = ANCESTOR + 1000;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 8, .window = ANCESTOR + 1000});
    client_init(&ancestor, 0, ANCESTOR, 10);
    branch_init(&branch, BRANCH_AT, 200, 10);
    client_init(&other, 60, NEW_PROMPT, 10);
    run_later(rig, &ancestor);
    run_later(rig, &branch);
    assert_int_equal(branch.result.cache_n, BRANCH_AT);
    int64_t begin = clock_now(clock_monotonic());
    run_later(rig, &other);
    double took_ms = clock_to_ms(clock_now(clock_monotonic()) - begin);
    print_message("room for %d tokens beside an ancestor of %d: %d calls found none, %d evictions, %.0f ms\n",
                  NEW_PROMPT, ANCESTOR, fake_llm.no_room, times_said("resident-cells-dropped"), took_ms);
    assert_in_range(fake_llm.no_room, 1, NEW_PROMPT / 512 + 1); /* one a tick */
    assert_in_range(times_said("resident-cells-dropped"), 1, NEW_PROMPT / 512 + 2);
    branch_init(&again, BRANCH_AT, 200, 10); /* the shared one has lost no more than the prompt needed */
    run_later(rig, &again);
    assert_in_range(again.result.cache_n, BRANCH_AT - NEW_PROMPT - 512, BRANCH_AT);
    client_release(&ancestor);
    client_release(&branch);
    client_release(&other);
    client_release(&again);
}

/* The same for a reply, which needs a cell at a time. */
static void a_reply_frees_cells_in_whole_steps(void **state)
{
    struct rig *rig = *state;
    struct client ancestor, branch, other;
    fake_llm.n_cells = 11000;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 8, .window = 11000});
    client_init(&ancestor, 0, 10000, 10);
    branch_init(&branch, 9900, 200, 10);
    client_init(&other, 60, 100, 1500);
    run_later(rig, &ancestor);
    run_later(rig, &branch);
    run_later(rig, &other);
    assert_in_range(fake_llm.no_room, 1, 5); /* 10319 of 11000 cells are taken, and the reply needs 1600 */
    client_release(&ancestor);
    client_release(&branch);
    client_release(&other);
}

/* A sequence that was evicted in part is fetched into another, which shares what is left of the first. */
static void a_sequence_whose_cells_are_all_shared_is_evicted_first(void **state)
{
    struct rig *rig = *state;
    struct stored s = {0};
    struct client a, oldest, third, next, new, again;
    fake_llm.n_cells = 1500;
    start(&s, rig, (struct shape){.slots = 1, .seqs = 4, .window = 4000});
    client_init(&a, 0, 900, 20);
    client_init(&oldest, 60, 300, 20);
    client_init(&third, 120, 500, 20);
    struct client *first[] = {&a, &oldest, &third};
    for (size_t i = 0; i < 3; i++) {
        fake_clock_advance(&rig->clock, 1000);
        run(&s, first[i]);
        await_saves(&s);
    }
    fake_llm.n_cells = INT32_MAX;
    next_turn(&next, &a, 30, 20);
    fake_clock_advance(&rig->clock, 1000);
    run(&s, &next);
    assert_int_equal(next.result.cache_n, 919);
    int32_t fetched = fake_llm.rows_loaded;
    assert_in_range(fetched, 1, 918); /* the rest is what was left of a */
    fake_clock_advance(&rig->clock, 1000);
    client_init(&new, 30, 200, 20); /* all four sequences are taken */
    run(&s, &new);
    client_init(&again, 60, 300, 20);
    run(&s, &again);
    assert_int_equal(again.result.cache_n, 299);
    assert_int_equal(fake_llm.rows_loaded, fetched);
    stop(&s);
    for (size_t i = 0; i < 3; i++) client_release(first[i]);
    client_release(&next);
    client_release(&new);
    client_release(&again);
}

/* ---- What is about to be used stays ---- */

static void submit(struct rig *rig, struct client *client)
{
    identify(rig->engine, &client->job);
    engine_submit(rig->engine, &client->job);
}

/* `late` takes the slot of `early`, which is in the middle of its reply. */
static void preempt(struct rig *rig, struct client *early, struct client *late)
{
    fake_llm.held = true;
    submit(rig, early);
    fake_llm_step(5);
    client_await_tokens(early, 2);
    submit(rig, late);
    fake_clock_advance(&rig->clock, clock_from_ms(1000));
    fake_llm_step(100000000);
}

static void await(struct client *client)
{
    client_await_end(client);
    if (client->failed) fail_msg("%s", client->error.message);
    assert_true(client_got_right_reply(client));
}

/* The only sequence is that of a suspended request: its cells become a snapshot in memory, which would evict the very
 * system prompt that is being loaded. */
static void a_snapshot_is_not_evicted_by_the_eviction_for_its_own_load(void **state)
{
    struct rig *rig = *state;
    struct chat chat = {0};
    struct asker first, second;
    struct client early;
    open_engine(rig, (struct shape){.slots = 1,
                                    .seqs = 1,
                                    .window = 2000,
                                    .caching = ENGINE_CACHES_SYSTEM,
                                    .slot_timeout_ms = 1000,
                                    .snapshot_budget = 1500});
    say(&chat, SYSTEM, 1, 300);
    say(&chat, USER, 2, 20);
    asker_init(&first, &chat, 5);
    asker_init(&second, &chat, 5);
    client_init(&early, 60, 200, 100);
    run_alone(rig, &first.client);
    assert_int_equal(metric_get(&engine_stats(rig->engine)->snapshots_saved), 1);
    preempt(rig, &early, &second.client);
    await(&second.client);
    await(&early);
    assert_int_equal(second.client.result.cache_n, 302);
    assert_int_equal(metric_get(&engine_stats(rig->engine)->preemptions), 1);
    asker_release(&first);
    asker_release(&second);
    chat_release(&chat);
    client_release(&early);
}

/* ---- Loads evict for themselves ---- */

static void a_suspended_request_gets_its_cells_back(void **state)
{
    struct rig *rig = *state;
    struct client early, late;
    fake_llm.n_cells = 1000;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 4, .window = 1000, .slot_timeout_ms = 1000});
    client_init(&early, 0, 600, 100);
    client_init(&late, 60, 500, 20);
    preempt(rig, &early, &late);
    await(&late);
    await(&early);
    assert_int_equal(metric_get(&engine_stats(rig->engine)->preemptions), 1);
    assert_int_equal(metric_get(&engine_stats(rig->engine)->snapshots_restored), 1);
    assert_int_equal(computed(rig), 600 + 500);
    client_release(&early);
    client_release(&late);
}

static void close_gate(struct client *client)
{
    (void)client;
    gate_close(&gated);
}

/* Resuming needs the cells of another sequence, which the disk does not take. */
static void a_suspended_request_waits_for_room_and_the_engine_does_not(void **state)
{
    struct rig *rig = *state;
    struct stored s = {.store = open_store_on_disk()};
    struct client early, late, asked;
    hearth_slot slot;
    fake_llm.n_cells = 1000;
    start(&s, rig, (struct shape){.slots = 1, .seqs = 4, .window = 1000, .slot_timeout_ms = 1000});
    assert_true(store_wait_ready(s.store, CLOCK_NEVER));
    client_init(&early, 0, 600, 100);
    client_init(&late, 60, 500, 20);
    late.on_text = close_gate;
    preempt(rig, &early, &late);
    await(&late);
    gate_await(&gated);
    for (int i = 0; i < 100; i++) {
        client_init(&asked, 3, 100, 1);
        asked.job.only_lookup = true;
        run_alone(rig, &asked);
        client_release(&asked);
    }
    engine_slots(rig->engine, &slot, 1);
    assert_int_equal(slot.state, HEARTH_SLOT_PENDING);
    gate_open(&gated);
    await(&early);
    assert_int_equal(metric_get(&engine_stats(rig->engine)->snapshots_restored), 1);
    assert_int_equal(computed(rig), 600 + 500);
    stop(&s);
    client_release(&early);
    client_release(&late);
}

static void a_checkpoint_gets_room_when_it_is_shared(void **state)
{
    struct rig *rig = *state;
    struct client old, a, b;
    fake_llm.cuts = false;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 8, .window = 4000});
    client_init(&old, 60, 300, 2);
    run_later(rig, &old);
    branch_init(&a, 500, 100, 10);
    a.job.checkpoints[0] = 500;
    a.job.n_checkpoints = 1;
    run_later(rig, &a);
    fake_llm.checkpoints_refused = 1;
    branch_init(&b, 500, 10, 10);
    tokens_push(&b.job.prompt, 7);
    run_later(rig, &b);
    assert_int_equal(b.result.cache_n, 500);
    assert_int_equal(fake_llm.no_room, 1);
    client_release(&old);
    client_release(&a);
    client_release(&b);
}

static void a_checkpoint_gets_room_when_it_is_fetched(void **state)
{
    struct stored s = {0};
    struct client a, old, next;
    struct shape shape = {.slots = 1, .seqs = 8, .window = 4000};
    fake_llm.cuts = false;
    start(&s, *state, shape);
    client_init(&a, 0, 600, 20);
    run(&s, &a);
    settle_down(&s);
    restart(&s, shape);
    client_init(&old, 60, 300, 2);
    run(&s, &old);
    await_saves(&s);
    fake_llm.checkpoints_refused = 1;
    next_turn(&next, &a, 30, 20);
    run(&s, &next);
    assert_int_equal(next.result.cache_n, 619);
    assert_int_equal(fake_llm.no_room, 1);
    stop(&s);
    client_release(&a);
    client_release(&old);
    client_release(&next);
}

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        logged_test(a_sequence_whose_cells_are_shared_is_evicted_at_once),
        engine_test(a_reply_frees_cells_in_whole_steps),
        engine_test(a_sequence_whose_cells_are_all_shared_is_evicted_first),
        engine_test(a_snapshot_is_not_evicted_by_the_eviction_for_its_own_load),
        engine_test(a_suspended_request_gets_its_cells_back),
        disk_test(a_suspended_request_waits_for_room_and_the_engine_does_not),
        engine_test(a_checkpoint_gets_room_when_it_is_shared),
        engine_test(a_checkpoint_gets_room_when_it_is_fetched),
    };
    log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
