/* Eviction while the disk is slow, hangs or fails: nothing is lost that can be kept, and only those that need the room
 * wait. */
#include "disk.h"

#include "chats.h"
#include "fakes/fake_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

enum {
    MAX_GAP_MS = 2 * 250, /* twice max_decode_gap_ms */
    ONE_BLOCK = 300       /* bytes of a block's KV rows, and not of many more */
};

/* ---- Observing ---- */

/* The longest inter-token gap of a stream, in real time. */
struct stream {
    struct client client; /* first */
    int64_t last, longest;
};

static void note_gap(struct client *client)
{
    struct stream *stream = (struct stream *)client;
    int64_t now = clock_now(clock_monotonic()), gap = stream->last == 0 ? 0 : now - stream->last;
    if (gap > stream->longest) stream->longest = gap;
    stream->last = now;
}

/* From here on fake_llm_step() lets decode calls through. The engine is idle. */
static void start_stream(struct stored *s, struct stream *stream, size_t prompt, int32_t max_tokens)
{
    *stream = (struct stream){0};
    client_init(&stream->client, 120, prompt, max_tokens);
    stream->client.on_text = note_gap;
    fake_llm.held = true;
    ask(s, &stream->client);
    engine_submit(s->rig->engine, &stream->client.job);
    fake_llm_step(5);
    client_await_tokens(&stream->client, 2);
}

static void end_stream(struct stream *stream)
{
    client_await_end(&stream->client);
    assert_false(stream->client.failed);
    assert_true(client_got_right_reply(&stream->client));
    assert_true(stream->longest < clock_from_ms(MAX_GAP_MS));
    client_release(&stream->client);
}

static size_t tokens_of(struct client *client)
{
    pthread_mutex_lock(&client->mutex);
    size_t n = client->got.len;
    pthread_mutex_unlock(&client->mutex);
    return n;
}

static bool has_ended(struct client *client)
{
    pthread_mutex_lock(&client->mutex);
    bool ended = client->ended;
    pthread_mutex_unlock(&client->mutex);
    return ended;
}

/* Whether a sequence with this client's first token holds fewer cells than it had, before the store has them all:
 * checked from inside each decode call. */
static struct watch {
    struct stored *s;
    struct client *client;
    int32_t had;
    _Atomic int calls_while_leaving;
    _Atomic bool too_early;
} watch;

static void look(void *ud)
{
    (void)ud;
    const struct engine *engine = watch.s->rig->engine;
    int32_t most = 0;
    bool leaving = false;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        const struct seq *seq = &engine->seqs[i];
        leaving = leaving || seq_state_leaves(seq->state);
        bool its = seq->n_cells > 0 && seq->tokens.v[0] == watch.client->job.prompt.v[0];
        if (its && seq->n_cells > most) most = seq->n_cells;
    }
    if (leaving) atomic_fetch_add(&watch.calls_while_leaving, 1);
    if (most < watch.had && stored_of(watch.s, watch.client) < watch.had) atomic_store(&watch.too_early, true);
}

static void watch_cells_of(struct stored *s, struct client *client, int32_t had)
{
    watch.s = s;
    watch.client = client;
    watch.had = had;
    watch.calls_while_leaving = 0;
    watch.too_early = false;
    fake_llm.on_call = look;
}

/* The engine answers while a slot waits for room: its thread never blocks. */
static void assert_engine_is_awake(struct stored *s)
{
    struct client asked;
    client_init(&asked, 3, 100, 1);
    asked.job.only_lookup = true;
    run_alone(s->rig, &asked);
    client_release(&asked);
}

/* Waits until what ended before is copied out and written. */
static void await_rest(struct stored *s)
{
    assert_engine_is_awake(s); /* a round of its loop later */
    await_saves(s);
}

static void submit(struct stored *s, struct client *client, int32_t first, size_t prompt, int32_t max_tokens)
{
    client_init(client, first, prompt, max_tokens);
    ask(s, client);
    engine_submit(s->rig->engine, &client->job);
}

static void finish(struct client *client)
{
    client_await_end(client);
    assert_false(client->failed);
    assert_true(client_got_right_reply(client));
    client_release(client);
}

/* One more decode call than now: for a request that has just been submitted, one that finds no room. */
static void await_call(struct stored *s, int64_t calls)
{
    while (metric_get(&engine_stats(s->rig->engine)->decode_calls) == calls) sched_yield();
}

static int64_t calls_of(struct stored *s)
{
    return metric_get(&engine_stats(s->rig->engine)->decode_calls);
}

/* ---- Requests that wait ---- */

static void cells_are_used_again_only_when_they_are_durable(void **state)
{
    struct stored s = {.store = open_store_on_disk()};
    struct client a, b;
    fake_llm.n_cells = 1000;
    start(&s, *state, (struct shape){.slots = 1, .seqs = 4, .window = 1000});
    client_init(&a, 0, 600, 100);
    gate_close(&gated);
    run(&s, &a);
    watch_cells_of(&s, &a, 699);
    int64_t calls = calls_of(&s);
    submit(&s, &b, 50, 900, 50);
    await_call(&s, calls);
    gate_await(&gated);
    for (int i = 0; i < 100; i++) assert_engine_is_awake(&s);
    assert_int_equal(metric_get(&engine_stats(s.rig->engine)->prompt_tokens), 600);
    assert_int_equal(gated.synced, 0);
    gate_open(&gated);
    finish(&b);
    assert_false(watch.too_early);
    assert_int_equal(stored_of(&s, &a), 699);
    stop(&s);
    client_release(&a);
}

static void sequences_are_used_again_only_when_they_are_durable(void **state)
{
    for (int unified = 0; unified < 2; unified++) {
        struct stored s = {.store = open_store_on_disk()};
        struct client a, b;
        hearth_slot slot;
        start(&s, *state, (struct shape){.slots = 1, .seqs = unified ? 1 : 0, .window = 1000});
        client_init(&a, 3 * unified, 600, 100);
        gate_close(&gated);
        run(&s, &a);
        watch_cells_of(&s, &a, 699);
        submit(&s, &b, 50, 900, 50);
        gate_await(&gated);
        for (int i = 0; i < 100; i++) assert_engine_is_awake(&s);
        engine_slots(s.rig->engine, &slot, 1);
        assert_int_equal(slot.state, HEARTH_SLOT_PENDING);
        assert_int_equal(b.n_started, 0);
        gate_open(&gated);
        finish(&b);
        assert_false(watch.too_early);
        assert_int_equal(stored_of(&s, &a), 699);
        stop(&s);
        fake_llm_reset(&s.rig->clock);
        client_release(&a);
    }
}

static void what_is_fetched_waits_for_cells_and_is_fetched_once(void **state)
{
    struct stored s = {.store = open_store_on_disk()};
    struct shape shape = {.slots = 1, .seqs = 4, .window = 1000};
    struct client a, b, again;
    fake_llm.n_cells = 1000;
    start(&s, *state, shape);
    client_init(&b, 50, 900, 10);
    run(&s, &b);
    settle_down(&s);
    restart(&s, shape);
    gate_close(&gated);
    client_init(&a, 0, 600, 100);
    run(&s, &a);
    watch_cells_of(&s, &a, 699);
    submit(&s, &again, 50, 900, 5);
    gate_await(&gated);
    for (int i = 0; i < 100; i++) assert_engine_is_awake(&s);
    assert_int_equal(tokens_of(&again), 0);
    gate_open(&gated);
    client_await_end(&again);
    assert_int_equal(again.result.cache_n, 899);
    assert_int_equal(fake_llm.rows_loaded, 899);
    assert_false(watch.too_early);
    finish(&again);
    stop(&s);
    client_release(&a);
    client_release(&b);
}

static void what_is_stored_is_evicted_before_what_is_not(void **state)
{
    struct stored s = {.store = open_store_on_disk()};
    struct client old, stored, b;
    struct rig *rig = *state;
    fake_llm.n_cells = 1000;
    start(&s, rig, (struct shape){.slots = 1, .seqs = 4, .window = 1000});
    client_init(&stored, 20, 300, 10);
    run(&s, &stored);
    while (saves(&s, SLAB_FINISH) < 1) sched_yield();
    fake_clock_advance(&rig->clock, 1000);
    gate_close(&gated);
    client_init(&old, 60, 400, 10);
    run(&s, &old);
    fake_clock_advance(&rig->clock, 1000);
    struct client again;
    client_init(&again, 20, 300, 10); /* used last, but stored */
    run(&s, &again);
    watch_cells_of(&s, &old, 409);
    submit(&s, &b, 120, 450, 10);
    finish(&b);
    assert_false(watch.too_early);
    gate_open(&gated);
    stop(&s);
    client_release(&old);
    client_release(&stored);
    client_release(&again);
}

/* ---- Requests that do not wait ---- */

/* A request needs the sequence of one that cannot be stored for now. */
static void a_stream_goes_on_beside(void **state, struct store *store)
{
    struct stored s = {.store = store};
    struct client a, b;
    struct stream stream;
    start(&s, *state, (struct shape){.slots = 2, .window = 3000, .evict_timeout_ms = 3000});
    assert_true(store_wait_ready(s.store, CLOCK_NEVER));
    gate_close(&gated);
    client_init(&a, 0, 600, 100);
    run(&s, &a);
    assert_engine_is_awake(&s);
    watch_cells_of(&s, &a, 699);
    start_stream(&s, &stream, 300, 1000);
    submit(&s, &b, 50, 1100, 50);
    fake_llm_step(500);
    while (watch.calls_while_leaving < 400) sched_yield();
    assert_int_equal(b.n_started, 0);
    gate_open(&gated);
    fake_llm_step(1000000);
    finish(&b);
    assert_false(watch.too_early);
    end_stream(&stream);
    assert_int_equal(stored_of(&s, &a), 699);
    stop(&s);
    client_release(&a);
}

static void a_stream_goes_on_while_an_eviction_waits_for_a_hung_disk(void **state)
{
    a_stream_goes_on_beside(state, open_store_on_disk());
}

/* Fills the backlog: nothing more can be copied out. */
static void a_stream_goes_on_while_an_eviction_waits_for_a_full_backlog(void **state)
{
    a_stream_goes_on_beside(state, open_store(&gated.files, ONE_BLOCK));
}

/* A prompt and the reply of another both need cells, and all resident cells are unsaved. */
static void a_prompt_waits_for_cells_and_a_stream_does_not(void **state)
{
    struct stored s = {.store = open_store_on_disk()};
    struct client a, b;
    struct stream stream;
    fake_llm.n_cells = 2000;
    start(&s, *state, (struct shape){.slots = 2, .seqs = 4, .window = 2000, .evict_timeout_ms = 3000});
    client_init(&a, 0, 900, 100);
    gate_close(&gated);
    run(&s, &a);
    assert_engine_is_awake(&s);
    watch_cells_of(&s, &a, 999);
    start_stream(&s, &stream, 300, 900);
    submit(&s, &b, 50, 900, 50);
    fake_llm_step(1000000);
    end_stream(&stream);
    assert_true(watch.calls_while_leaving > 0);
    gate_open(&gated);
    finish(&b);
    await_rest(&s);
    assert_int_equal(stored_of(&s, &a), 999);
    stop(&s);
    client_release(&a);
}

/* The stream grows until only unsaved cells are left to evict. */
static void a_stream_takes_cells_that_are_copied_out_and_waits_for_no_disk(void **state)
{
    struct stored s = {.store = open_store_on_disk()};
    struct client a;
    struct stream stream;
    fake_llm.n_cells = 1100;
    start(&s, *state, (struct shape){.slots = 2, .seqs = 4, .window = 1100, .evict_timeout_ms = 3000});
    client_init(&a, 0, 600, 100);
    gate_close(&gated);
    run(&s, &a);
    assert_engine_is_awake(&s);
    start_stream(&s, &stream, 300, 500);
    fake_llm_step(1000000);
    end_stream(&stream);
    gate_open(&gated);
    settle_down(&s);
    assert_int_equal(stored_of(&s, &a), 699);
    stop(&s);
    client_release(&a);
}

/* The backlog is full: what the stream evicts is lost, and what is left is stored when there is room again. */
static void of_what_a_stream_evicts_unsaved_the_rest_is_stored(void **state)
{
    struct stored s = {.store = open_store(&gated.files, ONE_BLOCK)};
    struct client a, first;
    struct stream stream;
    fake_llm.n_cells = 1400;
    start(&s, *state, (struct shape){.slots = 2, .seqs = 4, .window = 1400});
    assert_true(store_wait_ready(s.store, CLOCK_NEVER));
    gate_close(&gated);
    client_init(&first, 70, 90, 11); /* fills the backlog */
    run(&s, &first);
    gate_await(&gated);
    client_init(&a, 0, 900, 20);
    run(&s, &a);
    assert_engine_is_awake(&s);
    start_stream(&s, &stream, 300, 200);
    fake_llm_step(1000000);
    end_stream(&stream); /* 100, 919 and 499 are more than there are: the 100 went, and 256 */
    gate_open(&gated);
    int64_t deadline = clock_now(clock_monotonic()) + clock_from_ms(20000);
    while (stored_of(&s, &a) < 663 && clock_now(clock_monotonic()) < deadline) sched_yield();
    assert_int_equal(stored_of(&s, &a), 663);
    stop(&s);
    client_release(&a);
    client_release(&first);
}

/* ---- Cancelled evictions ---- */

static void an_eviction_is_cancelled_by_the_conversations_next_turn(void **state)
{
    struct stored s = {.store = open_store_on_disk()};
    struct rig *rig = *state;
    struct client a, other, b, next;
    start(&s, rig, (struct shape){.slots = 2, .window = 1000});
    gate_close(&gated);
    client_init(&a, 0, 600, 100);
    run(&s, &a);
    fake_clock_advance(&rig->clock, 1000);
    client_init(&other, 100, 300, 20);
    run(&s, &other);
    submit(&s, &b, 50, 400, 20);
    for (int i = 0; i < 100; i++) assert_engine_is_awake(&s); /* the eviction of a is pending, for b */
    next_turn(&next, &a, 30, 20);
    run(&s, &next);
    assert_int_equal(next.result.cache_n, 699);
    assert_false(has_ended(&b));
    assert_int_equal(gated.synced, 0);
    gate_open(&gated);
    finish(&b);
    stop(&s);
    client_release(&a);
    client_release(&other);
    client_release(&next);
}

static void an_eviction_is_cancelled_by_a_request_that_shares_the_prefix(void **state)
{
    struct stored s = {.store = open_store_on_disk()};
    struct rig *rig = *state;
    struct client c[3], b, edited;
    start(&s, rig, (struct shape){.slots = 2, .seqs = 3, .window = 1000});
    gate_close(&gated);
    for (int i = 0; i < 3; i++) {
        client_init(&c[i], 30 * i, 600, 20);
        run(&s, &c[i]);
        fake_clock_advance(&rig->clock, 1000);
    }
    submit(&s, &b, 100, 400, 20);
    for (int i = 0; i < 100; i++) assert_engine_is_awake(&s); /* the eviction of the first is pending, for b */
    client_init(&edited, 0, 500, 20);
    for (int32_t i = 0; i < 50; i++) tokens_push(&edited.job.prompt, 7);
    ask(&s, &edited);
    engine_submit(rig->engine, &edited.job);
    for (int i = 0; i < 100; i++) assert_engine_is_awake(&s);
    gate_open(&gated);
    finish(&b);
    client_await_end(&edited);
    assert_int_equal(edited.result.cache_n, 500);
    assert_int_equal(fake_llm.rows_loaded, 0);
    finish(&edited);
    stop(&s);
    for (int i = 0; i < 3; i++) client_release(&c[i]);
}

/* The request that wanted the room has ended. */
static void an_eviction_that_nobody_waits_for_is_cancelled(void **state)
{
    struct stored s = {.store = open_store_on_disk()};
    struct client a, b, next;
    start(&s, *state, (struct shape){.slots = 1, .window = 1000});
    gate_close(&gated);
    client_init(&a, 0, 600, 100);
    run(&s, &a);
    submit(&s, &b, 50, 400, 20);
    for (int i = 0; i < 100; i++) assert_engine_is_awake(&s);
    atomic_store(&b.job.cancelled, true);
    engine_poke(s.rig->engine);
    client_await_end(&b);
    gate_open(&gated);
    while (saves(&s, SLAB_FINISH) + saves(&s, SLAB_EVICT) < 1) sched_yield();
    next_turn(&next, &a, 30, 20);
    run(&s, &next);
    assert_int_equal(next.result.cache_n, 699);
    assert_int_equal(fake_llm.rows_loaded, 0);
    stop(&s);
    client_release(&a);
    client_release(&b);
    client_release(&next);
}

/* ---- Missed deadlines ---- */

static void a_hung_disk_is_waited_for_once(void **state)
{
    struct stored s = {.store = open_store_on_disk()};
    struct rig *rig = *state;
    struct client a, b, c;
    start(&s, rig, (struct shape){.slots = 1, .window = 1000, .evict_timeout_ms = 5000});
    gate_close(&gated);
    client_init(&a, 0, 600, 100);
    run(&s, &a);
    submit(&s, &b, 50, 400, 20);
    fake_clock_await_waiter(&rig->clock);
    fake_clock_advance(&rig->clock, clock_from_ms(4999));
    for (int i = 0; i < 100; i++) assert_engine_is_awake(&s);
    assert_false(has_ended(&b));
    fake_clock_await_waiter(&rig->clock);
    fake_clock_advance(&rig->clock, clock_from_ms(1));
    finish(&b);
    assert_int_equal(times_said("evicted before it was stored"), 1);
    submit(&s, &c, 100, 400, 20);
    finish(&c);
    assert_int_equal(times_said("evicted before it was stored"), 2);
    gate_open(&gated);
    await_rest(&s);
    assert_int_equal(stored_of(&s, &a), 699); /* what had been copied out by then is not lost */
    gate_close(&gated);
    submit(&s, &c, 20, 400, 20);
    finish(&c);
    submit(&s, &b, 70, 400, 20); /* the disk has got past it: it is waited for again */
    gate_await(&gated);
    for (int i = 0; i < 100; i++) assert_engine_is_awake(&s);
    assert_false(has_ended(&b));
    gate_open(&gated);
    finish(&b);
    assert_int_equal(times_said("evicted before it was stored"), 2);
    stop(&s);
    client_release(&a);
}

static void what_fails_to_be_stored_is_tried_twice_and_given_up(void **state)
{
    struct fake_faults faults;
    fake_faults_init(&faults, files_machine());
    struct stored s = {.store = open_store(&faults.files, 64 << 20)};
    struct client a, b;
    start(&s, *state, (struct shape){.slots = 1, .window = 1000});
    assert_true(store_wait_ready(s.store, CLOCK_NEVER));
    fake_faults_set(&faults, (struct fake_fault){
                                 .call = FAKE_SYNC, .nth = 1, .lasting = true, .effect = FAKE_ERROR, .error = ENOSPC});
    client_init(&a, 0, 600, 100);
    run(&s, &a);
    await_rest(&s);
    int32_t copied = fake_llm.rows_saved;
    submit(&s, &b, 50, 400, 20);
    finish(&b);
    assert_int_equal(times_said("evicted before it was stored"), 1);
    await_rest(&s);
    assert_in_range(fake_llm.rows_saved - copied, 2 * 699, 2 * 699 + 2 * 420); /* and what is tried of the other */
    fake_faults_set(&faults, (struct fake_fault){0});
    stop(&s);
    client_release(&a);
}

static void a_request_that_waits_for_cells_fails_when_the_engine_ends(void **state)
{
    struct stored s = {.store = open_store_on_disk()};
    struct client a, b;
    start(&s, *state, (struct shape){.slots = 1, .window = 1000, .evict_timeout_ms = 100});
    gate_close(&gated);
    client_init(&a, 0, 600, 100);
    run(&s, &a);
    submit(&s, &b, 50, 400, 20);
    for (int i = 0; i < 100; i++) assert_engine_is_awake(&s);
    int64_t begin = clock_now(clock_monotonic());
    engine_close(s.rig->engine);
    assert_true(clock_now(clock_monotonic()) - begin < clock_from_ms(2000));
    s.rig->engine = NULL;
    client_await_end(&b);
    assert_true(b.failed);
    assert_int_equal(b.error.code, HEARTH_UNAVAILABLE);
    gate_open(&gated);
    store_close(s.store, CLOCK_NEVER);
    client_release(&a);
    client_release(&b);
}

/* ---- Only the store knows what is stored ---- */

/* All files of the folder are cut short; a read finds that out. */
static void damage_all_slabs(void)
{
    DIR *all = opendir(folder);
    assert_non_null(all);
    struct dirent *entry;
    while ((entry = readdir(all)) != NULL) {
        int fd = entry->d_name[0] == '.' ? -1 : openat(dirfd(all), entry->d_name, O_WRONLY);
        if (fd < 0) continue;
        (void)!ftruncate(fd, 100);
        close(fd);
    }
    closedir(all);
}

/* Fetches the first slab as another engine would; the store drops what it finds damaged, and with it what hangs on it.
 * What else is read ahead would be found damaged at some time later. */
static void read_first(const struct stored *s, struct client *client)
{
    struct store_query query = {.user = engine_store_user(s->rig->engine),
                                .identity = &client->job.identity,
                                .tokens = client->job.prompt.v,
                                .n = (int32_t)client->job.prompt.len};
    struct store_hit *hit = store_find(s->store, &query);
    struct store_piece piece;
    enum store_next next = STORE_PENDING;
    store_fetch(hit, STRIDE);
    while (next == STORE_PIECE || next == STORE_PENDING) {
        if (next == STORE_PENDING) sched_yield();
        next = store_next_piece(hit, &piece);
    }
    assert_int_equal(next, STORE_LOST);
    store_hit_close(hit);
}

static void run_and_damage(struct stored *s, struct client *client)
{
    client_init(client, 0, 600, 20);
    run(s, client);
    await_rest(s);
    assert_int_equal(stored_of(s, client), 619);
    damage_all_slabs();
    read_first(s, client);
    assert_int_equal(stored_of(s, client), 0);
}

static void what_was_dropped_is_stored_again(void **state, bool by_eviction)
{
    struct stored s = {.store = open_store_on_disk()};
    struct shape shape = {.slots = 1, .seqs = 4, .window = 1000};
    struct client a, b;
    fake_llm.n_cells = 1000;
    start(&s, *state, shape);
    run_and_damage(&s, &a);
    if (by_eviction) {
        submit(&s, &b, 50, 900, 20);
        finish(&b);
    } else {
        restart(&s, shape);
    }
    assert_int_equal(stored_of(&s, &a), 619);
    stop(&s);
    client_release(&a);
}

static void what_the_store_dropped_is_stored_again_at_its_eviction(void **state)
{
    what_was_dropped_is_stored_again(state, true);
}

static void what_the_store_dropped_is_stored_again_at_the_end(void **state)
{
    what_was_dropped_is_stored_again(state, false);
}

/* A reply needs the cells at once. */
static void what_the_store_dropped_is_copied_out_before_a_stream_takes_its_cells(void **state)
{
    struct stored s = {.store = open_store_on_disk()};
    struct client a;
    struct stream stream;
    fake_llm.n_cells = 1000;
    start(&s, *state, (struct shape){.slots = 2, .seqs = 4, .window = 1000});
    run_and_damage(&s, &a);
    gate_close(&gated);
    start_stream(&s, &stream, 300, 400);
    fake_llm_step(1000000);
    end_stream(&stream);
    gate_open(&gated);
    await_rest(&s);
    assert_int_equal(stored_of(&s, &a), 619);
    stop(&s);
    client_release(&a);
}

static int set_up_logged_disk(void **state)
{
    return set_up_with_log(state) == 0 ? set_up_folder() : -1;
}

static int tear_down_logged_disk(void **state)
{
    return tear_down_with_log(state) == 0 ? tear_down_folder() : -1;
}

int main(void)
{
    hearth_error error;
#define logged_disk_test(name) cmocka_unit_test_setup_teardown(name, set_up_logged_disk, tear_down_logged_disk)
    const struct CMUnitTest tests[] = {
        disk_test(cells_are_used_again_only_when_they_are_durable),
        disk_test(sequences_are_used_again_only_when_they_are_durable),
        disk_test(what_is_fetched_waits_for_cells_and_is_fetched_once),
        disk_test(what_is_stored_is_evicted_before_what_is_not),
        disk_test(a_stream_goes_on_while_an_eviction_waits_for_a_hung_disk),
        disk_test(a_stream_takes_cells_that_are_copied_out_and_waits_for_no_disk),
        disk_test(a_stream_goes_on_while_an_eviction_waits_for_a_full_backlog),
        disk_test(a_prompt_waits_for_cells_and_a_stream_does_not),
        disk_test(of_what_a_stream_evicts_unsaved_the_rest_is_stored),
        disk_test(an_eviction_is_cancelled_by_the_conversations_next_turn),
        disk_test(an_eviction_is_cancelled_by_a_request_that_shares_the_prefix),
        disk_test(an_eviction_that_nobody_waits_for_is_cancelled),
        logged_disk_test(a_hung_disk_is_waited_for_once),
        logged_disk_test(what_fails_to_be_stored_is_tried_twice_and_given_up),
        disk_test(a_request_that_waits_for_cells_fails_when_the_engine_ends),
        disk_test(what_the_store_dropped_is_stored_again_at_its_eviction),
        disk_test(what_the_store_dropped_is_stored_again_at_the_end),
        disk_test(what_the_store_dropped_is_copied_out_before_a_stream_takes_its_cells),
    };
    log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
