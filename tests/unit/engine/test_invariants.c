/* What engine_check() finds: one fault each is planted in an engine over the fake model, in a decode call, and the
 * process must end by the assertion that says so. An engine in which none is planted goes on. */
#include "rig.h"

#include "base/log.h"
#include "fakes/in_child.h"

#include <sched.h>
#include <unistd.h>

/* The scene: a resident conversation, a request that shares its prefix, one that waits for its medium's rows, and one
 * that waits for a slot. The first sequence is the resident one, the second the one that shares. */
enum { RESIDENT, SHARES, SHARED = 200, REPLY = 60 };

struct fault {
    const char *name; /* of the test */
    void (*plant)(struct engine *engine);
    const char *says; /* a part of the assertion */
};

/* ---- Faults ---- */

static struct seq *resident(struct engine *engine)
{
    return &engine->seqs[RESIDENT];
}

static struct slot *computing(struct engine *engine)
{
    return engine->seqs[SHARES].slot;
}

static struct slot *awaiting_rows(struct engine *engine)
{
    for (size_t i = 0; i < engine->n_slots; i++)
        if (engine->slots[i].state == SLOT_PREFILL_AWAITS_ROWS) return &engine->slots[i];
    return NULL;
}

static void count_a_cell_more(struct engine *engine)
{
    tokens_push(&resident(engine)->tokens, 1);
    resident(engine)->n_cells++;
}

static void change_a_shared_token(struct engine *engine)
{
    resident(engine)->tokens.v[10]++;
}

static void lose_a_token(struct engine *engine)
{
    resident(engine)->tokens.len--;
}

static void claim_exact_cells(struct engine *engine)
{
    resident(engine)->n_exact = resident(engine)->n_cells + 1;
}

static void name_messages_beyond_the_cells(struct engine *engine)
{
    resident(engine)->n_messages = 1;
    resident(engine)->message_tokens = resident(engine)->n_cells + 1;
}

static void leave_a_slot_idle(struct engine *engine)
{
    awaiting_rows(engine)->state = SLOT_IDLE;
}

static void forget_the_slots_sequence(struct engine *engine)
{
    awaiting_rows(engine)->seq = NULL;
}

static void take_a_sequence_for_idle(struct engine *engine)
{
    computing(engine)->seq->state = SEQ_IDLE;
}

static void take_a_sequence_for_free(struct engine *engine)
{
    resident(engine)->state = SEQ_FREE;
}

static void leave_a_sequence_pinned(struct engine *engine)
{
    resident(engine)->pinned = true;
}

static void leave_what_an_eviction_kept(struct engine *engine)
{
    resident(engine)->eviction.keep = 5;
}

static void let_a_sequence_leave_without_an_eviction(struct engine *engine)
{
    resident(engine)->state = SEQ_IDLE_LEAVES;
}

static void suspend_a_request_that_is_nowhere(struct engine *engine)
{
    static struct run nobody;
    resident(engine)->suspended = &nobody;
    resident(engine)->state = SEQ_SUSPENDED;
}

static void save_beyond_the_cells(struct engine *engine)
{
    resident(engine)->saving.events[0] = (struct save_event){.to = resident(engine)->n_cells + 1};
    resident(engine)->saving.n_events = 1;
}

static void save_a_ticket_that_nobody_gave(struct engine *engine)
{
    resident(engine)->saving.ticket = engine->last_ticket + 1;
}

static void count_a_busy_slot_more(struct engine *engine)
{
    metric_add(&engine->stats->slots_busy, 1);
}

static void count_a_slot_more_in_a_set(struct engine *engine)
{
    engine->turns.sets[0].slots++;
}

static void count_cells_that_nobody_has(struct engine *engine)
{
    engine->idle_count.used++;
}

static void lose_a_job_that_waits(struct engine *engine)
{
    engine->waiting.first = engine->waiting.last = NULL;
}

static void lose_the_way_back_in_the_queue(struct engine *engine)
{
    engine->waiting.first->previous = awaiting_rows(engine)->job;
}

static void run_a_job_that_waits(struct engine *engine)
{
    atomic_store(&engine->waiting.first->state, JOB_RUNNING);
}

static void queue_a_job_that_runs(struct engine *engine)
{
    atomic_store(&awaiting_rows(engine)->job->state, JOB_QUEUED);
}

static void await_a_prefix_while_computing(struct engine *engine)
{
    awaiting_rows(engine)->awaited = resident(engine);
}

static void await_room_that_nobody_gives(struct engine *engine)
{
    awaiting_rows(engine)->state = SLOT_PREFILL_AWAITS_ROOM;
}

static void fetch_without_a_fetch(struct engine *engine)
{
    awaiting_rows(engine)->fetching.n = 10;
}

static const struct snapshot *put_snapshot(struct engine *engine)
{
    struct snapshot snapshot = {.home = -1, .bytes = calloc(1, 8), .size = 8};
    tokens_push(&snapshot.tokens, 1);
    return snapshots_put(engine->snapshots, snapshot);
}

static void leave_a_snapshot_held(struct engine *engine)
{
    snapshots_hold(engine->snapshots, put_snapshot(engine));
}

static void leave_a_snapshot_pinned(struct engine *engine)
{
    snapshots_pin(engine->snapshots, put_snapshot(engine));
}

/* From a thread that does not own the engine. */
static void *clear(void *engine)
{
    seq_clear(engine, resident(engine));
    return NULL;
}

static void clear_from_another_thread(struct engine *engine)
{
    pthread_t thread;
    pthread_create(&thread, NULL, clear, engine);
    pthread_join(thread, NULL);
}

static const struct fault faults[] = {
    {"without_a_fault_the_engine_goes_on", NULL, NULL},
    {"a_sequence_that_counts_a_cell_more_than_it_has", count_a_cell_more, "llm_seq_end("},
    {"a_token_of_a_shared_prefix_that_differs", change_a_shared_token, "tokens_common_prefix("},
    {"a_cell_without_a_token", lose_a_token, "tokens.len"},
    {"more_exact_cells_than_there_are", claim_exact_cells, "n_exact"},
    {"messages_beyond_the_cells", name_messages_beyond_the_cells, "message_tokens"},
    {"an_idle_slot_that_has_a_request", leave_a_slot_idle, "job == NULL"},
    {"a_slot_that_computes_on_no_sequence", forget_the_slots_sequence, "seq != NULL"},
    {"an_idle_sequence_that_a_slot_computes_on", take_a_sequence_for_idle, "seq->state == SEQ_RUNNING"},
    {"a_free_sequence_that_has_cells", take_a_sequence_for_free, "SEQ_FREE"},
    {"a_sequence_that_stays_pinned", leave_a_sequence_pinned, "pinned"},
    {"an_idle_sequence_with_an_eviction", leave_what_an_eviction_kept, "eviction->keep"},
    {"a_sequence_that_leaves_without_an_eviction", let_a_sequence_leave_without_an_eviction, "eviction->attempts"},
    {"a_sequence_of_a_suspended_request_that_is_nowhere", suspend_a_request_that_is_nowhere, "suspended == in_seqs"},
    {"a_save_beyond_the_cells", save_beyond_the_cells, "saving->events[i].to"},
    {"a_save_that_was_never_queued", save_a_ticket_that_nobody_gave, "last_ticket"},
    {"a_count_of_busy_slots_that_is_wrong", count_a_busy_slot_more, "slots_busy"},
    {"a_set_of_adapters_that_counts_a_slot_more", count_a_slot_more_in_a_set, "in_sets"},
    {"cells_in_use_that_no_sequence_has", count_cells_that_nobody_has, "map.used"},
    {"a_waiting_job_that_is_lost", lose_a_job_that_waits, "list->len"},
    {"a_waiting_job_that_does_not_know_its_neighbour", lose_the_way_back_in_the_queue, "job->previous == previous"},
    {"a_running_job_in_the_queue", run_a_job_that_waits, "JOB_QUEUED"},
    {"a_queued_job_in_a_slot", queue_a_job_that_runs, "JOB_RUNNING"},
    {"a_slot_that_computes_and_awaits_a_prefix", await_a_prefix_while_computing, "awaited == NULL"},
    {"a_slot_that_awaits_room_of_nobody", await_room_that_nobody_gives, "leaves"},
    {"a_fetch_that_no_slot_awaits", fetch_without_a_fetch, "slot_is_fetching"},
    {"a_snapshot_that_stays_held", leave_a_snapshot_held, "held"},
    {"a_pinned_snapshot_of_no_request", leave_a_snapshot_pinned, "snapshots_check("},
    {"a_call_from_another_thread", clear_from_another_thread, "thread_may_call"},
};

#define N_FAULTS (sizeof faults / sizeof *faults)

/* ---- The scene ---- */

static struct {
    struct rig rig;
    const struct fault *fault;
    bool planted;
} scene;

/* On the engine's thread, in a decode call. */
static void plant_once(void *ud)
{
    struct engine *engine = ud;
    const struct slot *slot = computing(engine);
    bool generates = slot != NULL && slot->state == SLOT_GENERATES;
    if (scene.planted || !generates || awaiting_rows(engine) == NULL || engine->waiting.len != 1) return;
    scene.planted = true;
    if (scene.fault->plant != NULL) scene.fault->plant(engine);
}

static void play(const void *ud)
{
    struct client first, shares, awaits_rows, waits;
    hearth_error error;
    log_open(NULL, "error", "text", &error);
    scene.fault = ud;
    fake_clock_init(&scene.rig.clock);
    fake_llm_reset(&scene.rig.clock);
    struct engine *engine = open_engine(&scene.rig, (struct shape){.slots = 2, .seqs = 6, .window = 2000});
    client_init(&first, 0, 300, 5);
    run_alone(&scene.rig, &first);
    client_init(&awaits_rows, 60, 10, 5);
    client_add_medium(&awaits_rows.job.prompt, 1, 50);
    client_find_media(&awaits_rows);
    awaits_rows.engine = engine;
    awaits_rows.media.held = true;
    client_init(&shares, 0, SHARED, REPLY);
    for (int32_t i = 0; i < 50; i++) tokens_push(&shares.job.prompt, 7);
    client_init(&waits, 120, 100, 5);
    fake_llm.held = true;
    fake_llm.on_call = plant_once;
    fake_llm.ud = engine;
    engine_submit(engine, &shares.job);
    fake_llm_await_call();
    engine_submit(engine, &awaits_rows.job);
    engine_submit(engine, &waits.job);
    fake_llm_step(1000000);
    client_await_end(&shares);
    awaits_rows.media.held = false;
    engine_poke(engine);
    client_await_end(&awaits_rows);
    client_await_end(&waits);
    engine_close(engine);
    if (!scene.planted) _exit(1); /* the scene is another one */
}

static void a_fault_ends_the_process(void **state)
{
    const struct fault *fault = *state;
#ifdef NDEBUG
    print_message("this build has no assertions, which find faults\n");
    skip();
#endif
    struct child_end end = run_in_child(play, fault);
    bool right =
        fault->plant == NULL ? child_ended_well(&end) : child_aborted(&end) && strstr(end.said, fault->says) != NULL;
    if (!right) print_message("the child ended with status %x and said: %s\n", (unsigned)end.status, end.said);
    free(end.said);
    assert_true(right);
}

int main(void)
{
    struct CMUnitTest tests[N_FAULTS];
    for (size_t i = 0; i < N_FAULTS; i++)
        tests[i] = (struct CMUnitTest){.name = faults[i].name,
                                       .test_func = a_fault_ends_the_process,
                                       .initial_state = (void *)(uintptr_t)&faults[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
