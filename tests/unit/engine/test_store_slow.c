/* The store's disk is slow, or fails: who waits for it, and who does not. */
#include "disk.h"

#include "fakes/fake_files.h"

#include <errno.h>
#include <time.h>

/* ---- Who waits ---- */

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

static bool all_busy(struct engine *engine)
{
    hearth_slot slots[2];
    engine_slots(engine, slots, 2);
    return strcmp(slots[0].state, "idle") != 0 && strcmp(slots[1].state, "idle") != 0;
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
        /* Which of the reads came first depends on the threads; what came before it is used. */
        if (i == 0) assert_true(again[i].result.cache_n < 2999);
        if (i == 1) assert_int_equal(again[i].result.cache_n, 2999);
        client_release(&again[i]);
    }
    stop(&s);
    client_release(&c);
}

/* ---- Prices ---- */

/* Every read takes 5 ms. */
static ssize_t read_slowly(struct files *files, int fd, void *bytes, size_t size, uint64_t offset)
{
    (void)files;
    const struct timespec slow = {.tv_nsec = 5000000};
    nanosleep(&slow, NULL);
    return files_machine()->read_at(files_machine(), fd, bytes, size, offset);
}

/* How much of the prompt was fetched, by an engine that takes so long for a row. */
static int32_t fetched_at(struct stored *s, struct client *of, double row_ns)
{
    struct client again;
    restart(s, (struct shape){.slots = 1, .seqs = 4, .window = 1000});
    s->rig->engine->pace.row_ns[0] = s->rig->engine->pace.row_ns[1] = row_ns;
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
        disk_test(nothing_turns_while_all_wait_for_the_store),
        disk_test(what_failed_to_be_stored_is_stored_at_the_end),
        disk_test(one_failed_read_costs_one_request_what_it_would_have_had),
        disk_test(what_is_dearer_to_fetch_than_to_compute_is_computed),
        disk_test(the_end_waits_for_the_disk_and_gives_up_at_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
