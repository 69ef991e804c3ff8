/* What an engine does when the files of its weights have changed: nothing that was computed or stored before is reused,
 * nothing is stored any more, and whoever is being computed is finished. */
#include "stored.h"

#include "base/file_watch.h"

/* ---- The files ---- */

static _Atomic int64_t version;

static int read_stamp(const char *path, struct file_stamp *stamp)
{
    (void)path;
    *stamp = (struct file_stamp){.inode = 1, .size = atomic_load(&version), .content_s = 5, .inode_s = 5};
    return 0;
}

static struct file_watch *open_watch(void)
{
    const char *name = "weights";
    struct file_watch_params params = {.paths = &name, .n = 1, .patience_ns = clock_from_ms(30000), .read = read_stamp};
    return file_watch_open(&params, NULL);
}

/* As whoever prepares the next request finds. */
static void change_weights(struct file_watch *watch)
{
    atomic_fetch_add(&version, 1);
    assert_int_equal(file_watch_check(watch), FILES_CHANGED);
}

/* ---- After the change ---- */

static void assert_forgets(void **state, struct shape shape, bool cuts)
{
    struct stored s = {0};
    struct client c, next, again;
    shape.watch = open_watch();
    fake_llm.cuts = cuts;
    start(&s, *state, shape);
    client_init(&c, 3, 300, 20);
    run(&s, &c);
    await_saves(&s);
    client_init(&again, 3, 300, 20);
    ask(&s, &again); /* before the change: it has found what was stored */
    if (cuts) assert_true(store_hit_tokens(again.job.hit) > 0);
    change_weights(shape.watch);
    run_alone(s.rig, &again);
    assert_int_equal(again.result.cache_n, 0);
    assert_true(client_got_right_reply(&again));
    next_turn(&next, &again, 30, 20);
    run(&s, &next);
    assert_true(next.result.cache_n > 0); /* of these weights */
    settle_down(&s);
    stop(&s);
    client_release(&c);
    client_release(&next);
    client_release(&again);
    file_watch_close(shape.watch);
}

static void nothing_from_before_a_change_is_reused(void **state)
{
    for (int cuts = 0; cuts < 2; cuts++) {
        assert_forgets(state, (struct shape){.slots = 2, .seqs = 8, .window = 2000}, cuts);
        assert_forgets(state, (struct shape){.slots = 2, .window = 2000}, cuts);
        assert_forgets(state, (struct shape){.slots = 1, .window = 2000, .deterministic = true}, cuts);
        assert_forgets(state, (struct shape){.slots = 2, .seqs = 8, .window = 2000, .continued_interval = 64}, cuts);
    }
}

static void nothing_is_stored_after_a_change(void **state)
{
    struct stored s = {0};
    struct client c, after;
    struct shape shape = {.slots = 2, .seqs = 8, .window = 2000, .continued_interval = 64, .watch = open_watch()};
    start(&s, *state, shape);
    client_init(&c, 3, 300, 20);
    run(&s, &c);
    await_stored(&s, &c);
    client_init(&after, 90, 300, 200);
    change_weights(shape.watch);
    run(&s, &after);
    settle_down(&s);
    assert_int_equal(stored_of(&s, &after), 0);
    assert_int_equal(stored_of(&s, &c), 319);
    assert_int_equal(saves(&s, SLAB_SHUTDOWN), 0);
    stop(&s);
    client_release(&c);
    client_release(&after);
    file_watch_close(shape.watch);
}

/* What was copied out before the change was noticed waits in the store's queue: it asks before it writes. */
static void what_is_queued_is_not_stored_after_a_change(void **state)
{
    struct stored s = {0};
    struct client c;
    struct shape shape = {.slots = 2, .seqs = 8, .window = 2000, .watch = open_watch()};
    start(&s, *state, shape);
    client_init(&c, 3, 300, 20);
    atomic_fetch_add(&version, 1); /* nobody has looked */
    run(&s, &c);
    settle_down(&s);
    assert_int_equal(stored_of(&s, &c), 0);
    assert_int_equal(metric_get(&store_stats(s.store)->written_bytes), 0);
    assert_true(metric_get(&store_stats(s.store)->saves_dropped) > 0);
    stop(&s);
    client_release(&c);
    file_watch_close(shape.watch);
}

/* ---- Those that are being computed ---- */

/* One that generates, one that waits for its slot, and one that was suspended for another. */
static void requests_that_have_begun_are_finished_and_leave_nothing(void **state)
{
    for (int32_t seqs = 0; seqs <= 4; seqs += 4) {
        struct stored s = {0};
        struct client suspended, runs, waits, later;
        struct rig *rig = *state;
        struct shape shape = {.slots = 1, .seqs = seqs, .window = 1000, .slot_timeout_ms = 1000, .watch = open_watch()};
        fake_llm.held = true;
        start(&s, rig, shape);
        client_init(&suspended, 0, 200, 100);
        client_init(&runs, 50, 200, 100);
        client_init(&waits, 50, 200, 10);
        ask(&s, &suspended);
        engine_submit(rig->engine, &suspended.job);
        fake_llm_step(20);
        client_await_tokens(&suspended, 5);
        ask(&s, &runs);
        engine_submit(rig->engine, &runs.job);
        fake_clock_advance(&rig->clock, 2000000000);
        fake_llm_step(20);
        client_await_tokens(&runs, 5);
        ask(&s, &waits);
        engine_submit(rig->engine, &waits.job);
        change_weights(shape.watch);
        fake_llm_step(100000);
        client_await_end(&suspended);
        client_await_end(&runs);
        client_await_end(&waits);
        assert_true(client_got_right_reply(&suspended) && client_got_right_reply(&runs));
        assert_true(client_got_right_reply(&waits));
        assert_int_equal(waits.result.cache_n, 0);
        assert_int_equal(metric_get(&engine_stats(rig->engine)->preemptions), 1);
        client_init(&later, 0, 200, 10);
        run(&s, &later);
        assert_int_equal(later.result.cache_n, 0);
        stop(&s);
        client_release(&suspended);
        client_release(&runs);
        client_release(&waits);
        client_release(&later);
        file_watch_close(shape.watch);
        fake_llm_reset(&rig->clock);
    }
}

static void system_prompts_are_forgotten_as_well(void **state)
{
    struct stored s = {0};
    struct client c[2];
    struct shape shape = {.slots = 2, .window = 1000, .caching = ENGINE_CACHES_SYSTEM, .watch = open_watch()};
    start(&s, *state, shape);
    for (int i = 0; i < 2; i++) {
        client_init(&c[i], 3, 300, 5);
        c[i].job.conversation.system_end = 200;
        ask(&s, &c[i]);
        if (i == 1) change_weights(shape.watch);
        run_alone(s.rig, &c[i]);
        assert_int_equal(c[i].result.cache_n, 0);
        assert_true(client_got_right_reply(&c[i]));
    }
    stop(&s);
    for (int i = 0; i < 2; i++) client_release(&c[i]);
    file_watch_close(shape.watch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        engine_test(nothing_from_before_a_change_is_reused),
        engine_test(nothing_is_stored_after_a_change),
        engine_test(what_is_queued_is_not_stored_after_a_change),
        engine_test(requests_that_have_begun_are_finished_and_leave_nothing),
        engine_test(system_prompts_are_forgotten_as_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
