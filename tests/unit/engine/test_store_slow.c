/* The store's disk is slow, or fails: which requests wait for it, and which do not. */
#include "disk.h"

#include "fakes/fake_files.h"

#include <errno.h>
#include <time.h>

/* ---- Requests that wait ---- */

static void a_slow_disk_holds_up_no_stream(void **state)
{
    struct stored s = {.store = open_store_on_disk()};
    struct client a, b;
    gate_close(&gated);
    start(&s, *state, (struct shape){.slots = 2, .seqs = 8, .window = 2000, .continued_interval = 64});
    client_init(&a, 0, 500, 300);
    client_init(&b, 50, 500, 300);
    run(&s, &a);
    run(&s, &b);
    gate_await(&gated); /* the first is still being written */
    assert_int_equal(stored_of(&s, &a), 0);
    gate_open(&gated);
    settle_down(&s);
    assert_int_equal(stored_of(&s, &a), 799);
    assert_int_equal(stored_of(&s, &b), 799);
    stop(&s);
    client_release(&a);
    client_release(&b);
}

/* One limit for all that is resident, and for however often it is tried. */
static void the_end_waits_for_the_disk_and_gives_up_at_its_limit(void **state)
{
    struct stored s = {.store = open_store_on_disk()};
    struct client c[3];
    struct rig *rig = *state;
    gate_close(&gated);
    start(&s, rig, (struct shape){.slots = 1, .seqs = 4, .window = 1000, .evict_timeout_ms = 1000});
    for (int i = 0; i < 3; i++) {
        client_init(&c[i], 30 * i, 600, 100);
        run(&s, &c[i]);
    }
    int64_t begin = clock_now(clock_monotonic());
    engine_close(rig->engine);
    int64_t took = clock_now(clock_monotonic()) - begin;
    rig->engine = NULL;
    assert_true(took >= clock_from_ms(1000) && took < clock_from_ms(1800));
    gate_open(&gated);
    store_close(s.store, CLOCK_NEVER);
    for (int i = 0; i < 3; i++) client_release(&c[i]);
}

static void a_reply_that_found_no_room_is_stored_when_there_is(void **state)
{
    enum { ONE_REPLY = 600 }; /* bytes of what is copied out of one, but not of two */
    struct stored s = {.store = open_store(&gated.files, ONE_REPLY)};
    struct client c[2];
    start(&s, *state, (struct shape){.slots = 1, .seqs = 8, .window = 1000});
    assert_true(store_wait_ready(s.store, CLOCK_NEVER));
    gate_close(&gated);
    for (int i = 0; i < 2; i++) {
        client_init(&c[i], 3 + i, 90, 30);
        run(&s, &c[i]);
    }
    gate_open(&gated);
    while (saves(&s, SLAB_FINISH) < 2) sched_yield();
    stop(&s);
    for (int i = 0; i < 2; i++) client_release(&c[i]);
}

static void *close_engine(void *engine)
{
    engine_close(engine);
    return NULL;
}

static void ask_with_system_prompt(struct stored *s, struct client *client, int32_t first)
{
    client_init(client, first, 500, 20);
    client->job.conversation.system_end = 300;
    run(s, client);
}

/* Two system prompts, of which the backlog takes one while the disk stands still. The engine is idle then. */
static void fill_backlog(struct stored *s, struct rig *rig, struct shape shape, struct client *clients, int32_t first)
{
    enum { ONE_BLOCK = 300 }; /* bytes of a block's KV rows, and not of many more */
    s->store = open_store(&gated.files, ONE_BLOCK);
    start(s, rig, shape);
    assert_true(store_wait_ready(s->store, CLOCK_NEVER));
    gate_close(&gated);
    for (int i = 0; i < 2; i++) {
        ask_with_system_prompt(s, &clients[i], first + 50 * i);
        gate_await(&gated);
    }
    engine_drain(rig->engine, CLOCK_NEVER);
}

/* When the engine has ended only the store has them. */
static void system_prompts_that_wait_for_room_are_stored_before_the_end(void **state)
{
    for (int i = 0; i < 4; i++) {
        struct rig *rig = *state;
        struct stored s = {0};
        struct shape shape = {.slots = 2, .seqs = i % 2 == 0 ? 0 : 8, .window = 2000, .caching = ENGINE_CACHES_SYSTEM};
        struct client c[2], again[2];
        pthread_t closing;
        fake_llm.cuts = i < 2;
        fill_backlog(&s, rig, shape, c, 5 * i); /* the folder is that of all four */
        pthread_create(&closing, NULL, close_engine, rig->engine);
        gate_open(&gated);
        pthread_join(closing, NULL);
        start(&s, rig, shape);
        for (int k = 0; k < 2; k++) {
            ask_with_system_prompt(&s, &again[k], 5 * i + 50 * k);
            assert_int_equal(again[k].result.cache_n, 300);
            client_release(&again[k]);
            client_release(&c[k]);
        }
        assert_int_equal(metric_get(&store_stats(s.store)->saves_dropped), 0);
        stop(&s);
        fake_llm_reset(&rig->clock);
    }
}

static bool is_empty(struct engine *engine)
{
    hearth_slot slots[2];
    size_t n = engine_slots(engine, slots, 2);
    bool empty = true;
    for (size_t i = 0; i < n; i++) empty = empty && slots[i].state == HEARTH_SLOT_IDLE && slots[i].cached_tokens == 0;
    return empty;
}

/* It keeps its cells only until they are copied out. */
static void a_system_prompts_sequence_is_cleared_when_it_is_copied_out(void **state)
{
    struct stored s = {0};
    struct rig *rig = *state;
    struct client c[2];
    fill_backlog(&s, rig, (struct shape){.slots = 2, .seqs = 8, .window = 2000, .caching = ENGINE_CACHES_SYSTEM}, c, 0);
    bool was_empty = is_empty(rig->engine);
    gate_open(&gated);
    while (!is_empty(rig->engine)) sched_yield();
    assert_false(was_empty);
    stop(&s);
    for (int i = 0; i < 2; i++) client_release(&c[i]);
}

static bool all_busy(struct engine *engine)
{
    hearth_slot slots[2];
    engine_slots(engine, slots, 2);
    return slots[0].state != HEARTH_SLOT_IDLE && slots[1].state != HEARTH_SLOT_IDLE;
}

static void nothing_turns_while_all_wait_for_the_store(void **state)
{
    struct stored s = {.store = open_store_on_disk()};
    struct shape shape = {.slots = 2, .seqs = 8, .window = 4000};
    struct client c, again[2];
    start(&s, *state, shape);
    client_init(&c, 3, 3000, 20);
    run(&s, &c);
    settle_down(&s);
    restart(&s, shape);
    gated.reads_too = true;
    gate_close(&gated);
    for (int i = 0; i < 2; i++) {
        client_init(&again[i], 3, 3000, 20);
        tokens_push(&again[i].job.prompt, 50 + i);
        ask(&s, &again[i]);
        engine_submit(s.rig->engine, &again[i].job);
    }
    while (!all_busy(s.rig->engine)) sched_yield();
    gate_await(&gated);
    for (int i = 0; i < 2000; i++) sched_yield();
    assert_int_equal(metric_get(&engine_stats(s.rig->engine)->ticks), 0);
    gate_open(&gated);
    for (int i = 0; i < 2; i++) {
        client_await_end(&again[i]);
        assert_int_equal(again[i].result.cache_n, 3000);
        client_release(&again[i]);
    }
    stop(&s);
    client_release(&c);
}

/* ---- What fails ---- */

static void what_failed_to_be_stored_is_stored_at_the_end(void **state)
{
    struct fake_faults faults;
    fake_faults_init(&faults, files_machine());
    struct stored s = {.store = open_store(&faults.files, 64 << 20)};
    struct client c;
    start(&s, *state, (struct shape){.slots = 1, .seqs = 8, .window = 1000});
    assert_true(store_wait_ready(s.store, CLOCK_NEVER));
    fake_faults_set(&faults, (struct fake_fault){
                                 .call = FAKE_SYNC, .nth = 1, .lasting = true, .effect = FAKE_ERROR, .error = ENOSPC});
    client_init(&c, 3, 300, 20);
    run(&s, &c);
    settle_down(&s);
    assert_int_equal(stored_of(&s, &c), 0);
    fake_faults_set(&faults, (struct fake_fault){0}); /* there is room again */
    engine_close(s.rig->engine);
    s.rig->engine = NULL;
    assert_int_equal(saves(&s, SLAB_SHUTDOWN), 1);
    start(&s, *state, (struct shape){.slots = 1, .seqs = 8, .window = 1000});
    assert_int_equal(stored_of(&s, &c), 319);
    stop(&s);
    client_release(&c);
}

static void one_failed_read_costs_one_request_what_it_would_have_had(void **state)
{
    struct fake_faults faults;
    fake_faults_init(&faults, files_machine());
    struct stored s = {.store = open_store(&faults.files, 64 << 20)};
    struct shape shape = {.slots = 1, .seqs = 8, .window = 4000};
    struct client c, again[2];
    start(&s, *state, shape);
    client_init(&c, 3, 3000, 20);
    run(&s, &c);
    settle_down(&s);
    for (int i = 0; i < 2; i++) {
        restart(&s, shape);
        fake_faults_set(
            &faults, (struct fake_fault){.call = FAKE_READ, .nth = i == 0 ? 1 : 0, .effect = FAKE_ERROR, .error = EIO});
        client_init(&again[i], 3, 3000, 5);
        run(&s, &again[i]);
        /* The threads decide which read came first; what came before it is used. */
        if (i == 0) assert_true(again[i].result.cache_n < 2999);
        if (i == 1) assert_int_equal(again[i].result.cache_n, 2999);
        client_release(&again[i]);
    }
    stop(&s);
    client_release(&c);
}

/* ---- Costs ---- */

/* A disk of which every read takes 5 ms: the sleep is what is being tested, and waits for nothing. */
static ssize_t read_slowly(struct files *files, int fd, void *bytes, size_t size, uint64_t offset)
{
    (void)files;
    const struct timespec slow = {.tv_nsec = 5000000};
    nanosleep(&slow, NULL);
    return files_machine()->read_at(files_machine(), fd, bytes, size, offset);
}

/* How much of the prompt was fetched, by an engine that takes so long for a token. */
static int32_t fetched_at(struct stored *s, struct client *of, double token_ns)
{
    struct client again;
    restart(s, (struct shape){.slots = 1, .seqs = 4, .window = 1000});
    s->rig->engine->tick_budget.token_ns[0] = s->rig->engine->tick_budget.token_ns[1] = token_ns;
    next_turn(&again, of, 10, 5);
    run(s, &again);
    int32_t fetched = again.result.cache_n;
    client_release(&again);
    return fetched;
}

static void what_is_dearer_to_fetch_than_to_compute_is_computed(void **state)
{
    struct files slow = *files_machine();
    slow.read_at = read_slowly;
    struct stored s = {.store = open_store(&slow, 64 << 20)};
    struct client c;
    start(&s, *state, (struct shape){.slots = 1, .seqs = 4, .window = 1000});
    client_init(&c, 3, 300, 30);
    run(&s, &c);
    settle_down(&s);
    assert_int_equal(fetched_at(&s, &c, 1e9), 329); /* and now it is known how slow it is */
    assert_int_equal(fetched_at(&s, &c, 1e3), 0);
    assert_int_equal(fetched_at(&s, &c, 1e9), 339);
    stop(&s);
    client_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        disk_test(a_slow_disk_holds_up_no_stream),
        disk_test(a_reply_that_found_no_room_is_stored_when_there_is),
        disk_test(system_prompts_that_wait_for_room_are_stored_before_the_end),
        disk_test(a_system_prompts_sequence_is_cleared_when_it_is_copied_out),
        disk_test(nothing_turns_while_all_wait_for_the_store),
        disk_test(what_failed_to_be_stored_is_stored_at_the_end),
        disk_test(one_failed_read_costs_one_request_what_it_would_have_had),
        disk_test(what_is_dearer_to_fetch_than_to_compute_is_computed),
        disk_test(the_end_waits_for_the_disk_and_gives_up_at_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
