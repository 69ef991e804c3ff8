/* Scheduling: which request gets a slot, which waits for one and which is preempted, with a clock that only the test
 * moves.
 *
 * The engine is driven decode call by decode call: it stops at the beginning of each call until the test lets it
 * continue, and meanwhile the test may look at everything it has. After every test it must have come to rest by itself,
 * with no job waiting, no slot pending, and nothing pinned or held. */
#include "rig.h"

#include "base/log.h"
#include "base/memory.h"
#include "engine/core.h"

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define SECOND     INT64_C(1000000000)
#define TIMEOUT_MS 30000
#define TIMEOUT    (30 * SECOND)
#define LONG_TALK  1500 /* tokens: worth waiting for */
#define PATIENCE_S 30   /* of a test, in seconds of real time: nothing here takes one */
#define MAX_CALLS  3000

/* A request, and the hashes of its messages. */
struct asker {
    struct client client; /* first */
    uint64_t hashes[4];
    bool handed_in;
};

struct scene {
    struct rig rig; /* first */
    bool streams;   /* a stream of cells for each slot, and not one pool of cells */
    char log_path[200];
    struct asker askers[12]; /* outlive a test that failed: the engine may still use them */
    size_t n_askers;
};

/* ---- The gate before decode calls ---- */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int64_t begun, allowed; /* calls */
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void stand_at_gate(void *ud)
{
    (void)ud;
    pthread_mutex_lock(&gate.mutex);
    gate.begun++;
    pthread_cond_broadcast(&gate.changed);
    while (gate.begun > gate.allowed) pthread_cond_wait(&gate.changed, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
}

static void allow(int64_t calls)
{
    pthread_mutex_lock(&gate.mutex);
    gate.allowed = calls;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
}

static struct timespec end_of_patience(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_sec += PATIENCE_S;
    return t;
}

static void await_call(int64_t call)
{
    struct timespec end = end_of_patience(CLOCK_REALTIME);
    int rc = 0;
    pthread_mutex_lock(&gate.mutex);
    while (gate.begun < call && rc == 0) rc = pthread_cond_timedwait(&gate.changed, &gate.mutex, &end);
    pthread_mutex_unlock(&gate.mutex);
    if (rc != 0) fail_msg("the engine makes no further decode call");
}

/* Lets the stopped call continue; when this returns the engine has stopped at the next one. */
static void step(void)
{
    int64_t next = gate.begun + 1;
    allow(gate.begun);
    await_call(next);
}

/* For an engine that has stopped at a call: it will look at the request after it. */
static void hand_in(struct rig *rig, struct client *client)
{
    ((struct asker *)client)->handed_in = true;
    engine_submit(rig->engine, &client->job);
}

/* For an idle engine. */
static void hand_in_first(struct rig *rig, struct client *client)
{
    int64_t next = gate.begun + 1;
    hand_in(rig, client);
    await_call(next);
}

static void until_tokens(const struct client *client, size_t n)
{
    for (int i = 0; client->got.len < n && i < MAX_CALLS; i++) step();
    assert_true(client->got.len >= n);
}

static void until_ended(const struct client *client)
{
    for (int i = 0; !client->ended && i < MAX_CALLS; i++) step();
    assert_true(client->ended);
}

static void await_end(struct client *client)
{
    struct timespec end = end_of_patience(CLOCK_REALTIME);
    int rc = 0;
    pthread_mutex_lock(&client->mutex);
    while (!client->ended && rc == 0) rc = pthread_cond_timedwait(&client->changed, &client->mutex, &end);
    pthread_mutex_unlock(&client->mutex);
    if (rc != 0) fail_msg("request %s never ends", client->job.id);
}

static void await_rest(struct engine *engine)
{
    struct timespec end = end_of_patience(CLOCK_MONOTONIC);
    int rc = 0;
    pthread_mutex_lock(&engine->mutex);
    while (engine->busy && rc == 0) rc = pthread_cond_timedwait(&engine->drained, &engine->mutex, &end);
    pthread_mutex_unlock(&engine->mutex);
    if (rc != 0) fail_msg("the engine does not come to rest");
}

/* Lets everything run to its end. */
static void let_run(struct scene *scene)
{
    allow(INT64_MAX);
    for (size_t i = 0; i < scene->n_askers; i++)
        if (scene->askers[i].handed_in) await_end(&scene->askers[i].client);
    await_rest(scene->rig.engine);
    allow(gate.begun);
}

static void pass(struct rig *rig, int64_t ns)
{
    fake_clock_advance(&rig->clock, ns);
}

static void cancel(struct rig *rig, struct client *client)
{
    atomic_store(&client->job.cancelled, true);
    engine_poke(rig->engine);
}

/* ---- Requests ---- */

/* A prompt of n tokens; those with different first tokens have nothing in common. */
static struct client *ask(struct scene *scene, const char *id, int32_t first, size_t n, int32_t max_tokens)
{
    assert_true(scene->n_askers < 12);
    struct client *client = &scene->askers[scene->n_askers++].client;
    client_init(client, first, n, max_tokens);
    client->job.submitted_at = clock_now(&scene->rig.clock.clock);
    snprintf(client->job.id, sizeof client->job.id, "%s", id);
    return client;
}

/* A prompt that begins like the other one's, which is all but the last message of a conversation. */
static struct client *go_on(struct scene *scene, const char *id, const struct client *earlier, size_t own,
                            int32_t max_tokens)
{
    struct client *client = ask(scene, id, 0, 0, max_tokens);
    struct asker *asker = (struct asker *)client;
    tokens_append(&client->job.prompt, earlier->job.prompt.v, earlier->job.prompt.len);
    for (size_t i = 0; i < own; i++) tokens_push(&client->job.prompt, (id[0] + id[1] + 3 * (int32_t)i) % 190);
    for (size_t i = 0; i < 4; i++) asker->hashes[i] = (uint64_t)earlier->job.prompt.v[0] * 10 + i;
    client->job.conversation =
        (struct conversation){.n_messages = 3, .hashes = asker->hashes, .stable_end = (int32_t)earlier->job.prompt.len};
    return client;
}

/* The request got exactly the tokens it asked for and one STARTED event, and its counts are right. */
static void assert_served(struct client *client, int32_t max_tokens)
{
    assert_true(client->ended);
    if (client->failed) fail_msg("%s failed: %s", client->job.id, client->error.message);
    assert_int_equal(client->n_started, 1);
    assert_int_equal(client->n_last_events, 1);
    assert_int_equal(client->got.len, max_tokens);
    assert_true(client_got_right_reply(client));
    assert_int_equal(client->text.len, max_tokens);
    assert_int_equal(client->result.predicted_n, max_tokens);
    assert_int_equal(client->result.finish, HEARTH_FINISH_LENGTH);
    assert_int_equal(client->result.cache_n + client->result.prompt_n, client->job.prompt.len);
    assert_int_equal(client->result.cache_n, client->start.cache_n);
}

static void assert_failed(const struct client *client, hearth_code code, const char *message)
{
    assert_true(client->failed);
    assert_int_equal(client->n_last_events, 1);
    assert_int_equal(client->error.code, code);
    assert_string_equal(client->error.message, message);
}

static bool has_slot(const struct rig *rig, size_t slot, const struct client *client)
{
    return rig->engine->slots[slot].job == &client->job;
}

static int64_t preemptions(const struct rig *rig)
{
    return metric_get(&engine_stats(rig->engine)->preemptions);
}

/* Asserts which jobs wait in the queue, in order; NULL ends them. */
static void assert_waiting(const struct job_list *list, struct client *const *clients)
{
    const struct job *job = list->first;
    for (; *clients != NULL; clients++, job = job->next) {
        assert_non_null(job);
        assert_string_equal(job->id, (*clients)->job.id);
    }
    assert_null(job);
}

#define assert_list(list, ...) assert_waiting((list), (struct client *[]){__VA_ARGS__})

/* ---- The log ---- */

static char *read_log(const struct scene *scene)
{
    struct buf text = {0};
    char chunk[4096];
    ssize_t n;
    int fd = open(scene->log_path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    while ((n = read(fd, chunk, sizeof chunk)) > 0) buf_append(&text, chunk, (size_t)n);
    close(fd);
    return buf_take(&text);
}

/* How often the log has this text. */
static int logged(const struct scene *scene, const char *words)
{
    char *text = read_log(scene);
    int n = 0;
    for (const char *at = text; at != NULL && (at = strstr(at, words)) != NULL; at += strlen(words)) n++;
    free(text);
    return n;
}

/* ---- Before and after ---- */

static struct engine *open_driven(struct scene *scene, struct shape shape)
{
    if (shape.window == 0) shape.window = 4000;
    if (!scene->streams) shape.seqs = 16;
    fake_llm.on_call = stand_at_gate;
    return open_engine(&scene->rig, shape);
}

static int set_up_scene(void **state)
{
    const char *build = getenv("HEARTH_BUILD");
    hearth_error error;
    if (build == NULL) return -1;
    struct scene *scene = mem_alloc(sizeof *scene);
    scene->streams = *state != NULL;
    fake_clock_init(&scene->rig.clock);
    fake_llm_reset(&scene->rig.clock);
    gate.begun = gate.allowed = 0;
    snprintf(scene->log_path, sizeof scene->log_path, "%s/unit-schedule-XXXXXX", build);
    int fd = mkstemp(scene->log_path);
    if (fd < 0) return -1;
    close(fd);
    *state = scene;
    return log_open(scene->log_path, "debug", "text", &error);
}

static int tear_down_scene(void **state)
{
    struct scene *scene = *state;
    struct engine *engine = scene->rig.engine;
    hearth_error error;
    const char *left = NULL;
    allow(INT64_MAX);
    if (engine != NULL) {
        await_rest(engine);
        left = what_is_left(&scene->rig);
        engine_close(engine);
    }
    log_open(NULL, "error", "text", &error);
    for (size_t i = 0; i < scene->n_askers; i++) client_release(&scene->askers[i].client);
    fake_clock_release(&scene->rig.clock);
    unlink(scene->log_path);
    free(scene);
    if (left != NULL) print_error("left behind: %s\n", left);
    return left == NULL ? 0 : -1;
}

/* ---- Slots for waiting jobs ---- */

static void the_next_in_line_takes_whichever_slot_is_free_first(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct engine *engine = open_driven(scene, (struct shape){.slots = 2});
    struct client *a = ask(scene, "a", 0, 60, 40), *b = ask(scene, "b", 20, 60, 10), *c = ask(scene, "c", 40, 60, 5),
                  *d = ask(scene, "d", 60, 60, 60), *e = ask(scene, "e", 80, 60, 5);
    hand_in_first(rig, a);
    hand_in(rig, b);
    hand_in(rig, c);
    hand_in(rig, d);
    hand_in(rig, e);
    step();
    assert_true(has_slot(rig, 0, a) && has_slot(rig, 1, b));
    assert_list(&engine->waiting, c, d, e, NULL);
    assert_int_equal(metric_get(&engine->stats->jobs_waiting), 3);
    until_ended(b);
    assert_true(has_slot(rig, 1, c));
    assert_list(&engine->waiting, d, e, NULL);
    until_ended(c);
    assert_true(has_slot(rig, 1, d));
    until_ended(a);
    assert_true(has_slot(rig, 0, e));
    let_run(scene);
    assert_served(a, 40);
    assert_served(b, 10);
    assert_served(c, 5);
    assert_served(d, 60);
    assert_served(e, 5);
}

/* With a stream of cells each: `a` is being answered in slot 0, and slot 1 holds another conversation, `b`. */
static void open_with_two_talks(struct scene *scene, struct shape shape, struct client **a, struct client **b)
{
    shape.slots = 2;
    open_driven(scene, shape);
    *a = ask(scene, "a", 0, LONG_TALK, 100);
    *b = ask(scene, "b", 50, LONG_TALK, 2);
    hand_in_first(&scene->rig, *a);
    until_tokens(*a, 1);
    hand_in(&scene->rig, *b);
    until_ended(*b);
    assert_true(has_slot(&scene->rig, 0, *a));
    assert_int_equal((*b)->start.slot, 1);
}

static void who_waits_for_the_slot_of_its_conversation_holds_up_nobody_else(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_talks(scene, (struct shape){0}, &a, &b);
    struct client *c = go_on(scene, "c", a, 20, 5), *d = go_on(scene, "d", b, 20, 5);
    hand_in(rig, c);
    step();
    assert_list(&rig->engine->slots[0].queue, c, NULL);
    assert_null(rig->engine->waiting.first);
    assert_int_equal(rig->engine->slots[1].state, SLOT_IDLE);
    assert_int_equal(metric_get(&rig->engine->stats->jobs_waiting), 1);
    hand_in(rig, d);
    step();
    assert_true(has_slot(rig, 1, d));
    assert_list(&rig->engine->slots[0].queue, c, NULL);
    until_ended(d);
    assert_list(&rig->engine->slots[0].queue, c, NULL);
    until_ended(a);
    assert_true(has_slot(rig, 0, c));
    let_run(scene);
    assert_served(a, 100);
    assert_served(c, 5);
    assert_served(d, 5);
    assert_int_equal(c->result.cache_n, LONG_TALK);
    assert_int_equal(c->result.slot, 0);
    assert_int_equal(d->result.cache_n, LONG_TALK);
    assert_int_equal(preemptions(rig), 0);
    assert_int_equal(logged(scene, "batch-engine: job-deferred id=c slot=0\n"), 1);
}

static void who_waits_for_one_slot_gets_it_in_order_and_may_leave(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_talks(scene, (struct shape){0}, &a, &b);
    struct client *c = go_on(scene, "c", a, 20, 5), *gone = go_on(scene, "gone", a, 20, 5),
                  *d = go_on(scene, "d", a, 20, 5), *e = go_on(scene, "e", a, 20, 5);
    struct job_list *queue = &rig->engine->slots[0].queue;
    hand_in(rig, c);
    hand_in(rig, gone);
    hand_in(rig, d);
    step();
    hand_in(rig, e);
    step();
    assert_list(queue, c, gone, d, e, NULL);
    cancel(rig, gone);
    step();
    assert_failed(gone, HEARTH_CANCELLED, "request was cancelled");
    assert_int_equal(gone->n_started, 0);
    assert_list(queue, c, d, e, NULL);
    until_ended(a);
    assert_true(has_slot(rig, 0, c));
    assert_list(queue, d, e, NULL);
    until_ended(c);
    assert_true(has_slot(rig, 0, d));
    assert_list(queue, e, NULL);
    let_run(scene);
    assert_served(a, 100);
    assert_served(c, 5);
    assert_served(d, 5);
    assert_served(e, 5);
    assert_int_equal(e->result.cache_n, LONG_TALK);
    assert_int_equal(e->result.slot, 0);
}

static void a_freed_slot_is_first_of_all_for_those_who_wait_for_it(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_talks(scene, (struct shape){0}, &a, &b);
    struct client *c = go_on(scene, "c", a, 20, 5), *d = go_on(scene, "d", b, 20, 200),
                  *e = ask(scene, "e", 100, 60, 5);
    hand_in(rig, c);
    hand_in(rig, d);
    hand_in(rig, e);
    step();
    assert_list(&rig->engine->slots[0].queue, c, NULL);
    assert_list(&rig->engine->waiting, e, NULL);
    until_ended(a);
    assert_true(has_slot(rig, 0, c) && has_slot(rig, 1, d));
    assert_list(&rig->engine->waiting, e, NULL);
    until_ended(c);
    assert_true(has_slot(rig, 0, e));
    let_run(scene);
    assert_served(c, 5);
    assert_served(d, 200);
    assert_served(e, 5);
}

/* They restore the checkpoint at the end of the messages that they have in common. */
static void what_cannot_be_cut_is_waited_for_as_well(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    fake_llm.cuts = false;
    open_driven(scene, (struct shape){.slots = 2});
    struct client *a = ask(scene, "a", 0, LONG_TALK, 100), *b = ask(scene, "b", 50, LONG_TALK, 2),
                  *c = go_on(scene, "c", a, 20, 5);
    a->job.checkpoints[a->job.n_checkpoints++] = LONG_TALK - 10;
    hand_in_first(rig, a);
    until_tokens(a, 1);
    hand_in(rig, b);
    until_ended(b);
    hand_in(rig, c);
    step();
    assert_list(&rig->engine->slots[0].queue, c, NULL);
    let_run(scene);
    assert_served(a, 100);
    assert_served(c, 5);
    assert_int_equal(c->result.slot, 0);
    assert_int_equal(c->result.cache_n, LONG_TALK - 10);
}

/* Nothing wakes the engine: waiting jobs must be served when the slot is free. */
static void the_engine_does_not_go_to_sleep_while_somebody_waits_for_a_slot(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_talks(scene, (struct shape){0}, &a, &b);
    struct client *c = go_on(scene, "c", a, 20, 5), *d = go_on(scene, "d", a, 20, 5);
    hand_in(rig, c);
    hand_in(rig, d);
    step();
    assert_list(&rig->engine->slots[0].queue, c, d, NULL);
    let_run(scene);
    assert_served(c, 5);
    assert_served(d, 5);
}

static void two_requests_for_one_slot_are_both_served_without_a_third(void **state)
{
    struct scene *scene = *state;
    open_driven(scene, (struct shape){.slots = 1});
    struct client *a = ask(scene, "a", 0, 60, 5), *b = go_on(scene, "b", a, 20, 5);
    hand_in_first(&scene->rig, a);
    hand_in(&scene->rig, b);
    let_run(scene);
    assert_served(a, 5);
    assert_served(b, 5);
    assert_int_equal(b->result.cache_n, 60);
}

static void a_free_slot_takes_the_prefix_where_that_is_cheaper_than_waiting(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    open_driven(scene, (struct shape){.slots = 2});
    struct client *a = ask(scene, "a", 0, LONG_TALK, 100), *b = go_on(scene, "b", a, 20, 5);
    hand_in_first(rig, a);
    until_tokens(a, 3);
    hand_in(rig, b);
    step();
    assert_true(has_slot(rig, 1, b));
    until_ended(b);
    assert_false(a->ended);
    let_run(scene);
    assert_served(a, 100);
    assert_served(b, 5);
    assert_int_equal(b->result.cache_n, LONG_TALK);
}

static void two_that_continue_a_conversation_at_once_both_get_its_cells(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    open_driven(scene, (struct shape){.slots = 3});
    struct client *a = ask(scene, "a", 0, LONG_TALK, 5), *other = ask(scene, "other", 50, 60, 100),
                  *b = go_on(scene, "b", a, 20, 5), *c = go_on(scene, "c", a, 30, 5);
    hand_in_first(rig, a);
    let_run(scene);
    hand_in_first(rig, other);
    hand_in(rig, b); /* both are placed in the same round */
    hand_in(rig, c);
    let_run(scene);
    assert_served(b, 5);
    assert_served(c, 5);
    assert_served(other, 100);
    assert_int_equal(b->result.cache_n, LONG_TALK);
    assert_int_equal(c->result.cache_n, LONG_TALK);
}

/* ---- Preempting ---- */

/* Two requests are being answered, `a` for a second longer than `b`. */
static void open_with_two_replies(struct scene *scene, struct shape shape, struct client **a, struct client **b)
{
    shape.slots = 2;
    if (shape.slot_timeout_ms == 0) shape.slot_timeout_ms = TIMEOUT_MS;
    open_driven(scene, shape);
    *a = ask(scene, "a", 0, 200, 100);
    *b = ask(scene, "b", 50, 200, 100);
    hand_in_first(&scene->rig, *a);
    until_tokens(*a, 1);
    pass(&scene->rig, SECOND);
    hand_in(&scene->rig, *b);
    until_tokens(*b, 3);
    assert_true(has_slot(&scene->rig, 0, *a) && has_slot(&scene->rig, 1, *b));
}

/* The request has waited for so long that the engine has chosen a victim, and done no more. */
static void wait_until_decided(struct rig *rig, struct client *waiting)
{
    hand_in(rig, waiting);
    step();
    pass(rig, TIMEOUT);
    step();
}

/* Every token of the last decode call belongs to a slot, and none of it to the request. */
static void assert_no_row_of(const struct rig *rig, const struct client *client)
{
    assert_true(fake_llm.last_n > 0);
    for (int32_t i = 0; i < fake_llm.last_n; i++) {
        const struct seq *seq = &rig->engine->seqs[fake_llm.last_batch[i].seq];
        assert_non_null(seq->slot);
        assert_ptr_not_equal(seq->slot->job, &client->job);
        assert_int_equal(seq->tokens.v[fake_llm.last_batch[i].pos], fake_llm.last_batch[i].token);
    }
}

static void a_slot_is_preempted_after_the_timeout_and_not_before(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_replies(scene, (struct shape){0}, &a, &b);
    struct client *c = ask(scene, "c", 100, 60, 10);
    hand_in(rig, c);
    step();
    pass(rig, TIMEOUT - 1);
    step();
    step();
    assert_null(rig->engine->preemption.victim);
    assert_int_equal(logged(scene, "preempting-slot"), 0);
    pass(rig, 1);
    step();
    /* Decided; no slot has changed yet. */
    assert_ptr_equal(rig->engine->preemption.victim, &rig->engine->slots[0]);
    assert_true(has_slot(rig, 0, a) && has_slot(rig, 1, b));
    assert_int_equal(rig->engine->slots[0].state, SLOT_GENERATES);
    assert_list(&rig->engine->waiting, c, NULL);
    char line[300];
    snprintf(line, sizeof line,
             "batch-engine: preempting-slot slot=0 victim_id=a victim_output_tokens=%zu victim_running_ms=31000.000 "
             "queued_job_id=c queued_wait_ms=30000.000\n",
             a->got.len);
    assert_int_equal(logged(scene, line), 1);
    step();
    /* Carried out: the waiting request has the slot, and this tick has no token of the victim. */
    size_t n = a->got.len;
    assert_true(has_slot(rig, 0, c) && has_slot(rig, 1, b));
    assert_list(&rig->engine->waiting, a, NULL);
    assert_int_equal(logged(scene, "batch-engine: slot-parked slot=0 id=a"), 1);
    step();
    assert_no_row_of(rig, a);
    until_tokens(c, 2);
    assert_int_equal(a->got.len, n);
    assert_int_equal(preemptions(rig), 1);
    let_run(scene);
    assert_served(a, 100);
    assert_served(b, 100);
    assert_served(c, 10);
    assert_int_equal(preemptions(rig), 1);
    assert_int_equal(logged(scene, "preempting-slot"), 1);
}

static void a_victim_that_fails_learns_who_took_its_slot(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_replies(scene, (struct shape){.preempt_fails = true}, &a, &b);
    struct client *c = ask(scene, "c", 100, 60, 10);
    wait_until_decided(rig, c);
    assert_false(a->ended);
    size_t n = a->got.len;
    step();
    assert_true(a->ended && has_slot(rig, 0, c));
    assert_failed(a, HEARTH_BUSY, "preempted by queued request c after 30.0s wait");
    assert_true(a->got.len >= n && client_got_right_reply(a));
    assert_null(rig->engine->waiting.first);
    step();
    assert_no_row_of(rig, a);
    let_run(scene);
    assert_served(b, 100);
    assert_served(c, 10);
    assert_int_equal(logged(scene,
                            "slot-finished model=fake slot=0 seq=0 id=a how=\"preempted by queued request c after "
                            "30.0s wait\" total_prompt=200"),
                     1);
    assert_int_equal(logged(scene, "slot-finished model=fake slot=0"), 2);
}

/* Preempts the slot of `a` in the middle of its reply, for a short request; both and `b` then run to their ends. */
static void preempt_once(struct scene *scene, struct shape shape, struct client **a)
{
    struct rig *rig = &scene->rig;
    struct client *b;
    open_with_two_replies(scene, shape, a, &b);
    struct client *c = ask(scene, "c", 100, 60, 10);
    wait_until_decided(rig, c);
    for (int i = 0; !has_slot(rig, 0, c) && i < 10; i++) step(); /* a tick may have several calls */
    assert_true(has_slot(rig, 0, c));
    assert_list(&rig->engine->waiting, *a, NULL);
    let_run(scene);
    assert_int_equal(preemptions(rig), 1);
}

static void a_suspended_request_gives_the_reply_that_it_would_have_given(void **state)
{
    struct scene *scene = *state;
    struct client *a;
    preempt_once(scene, (struct shape){0}, &a);
    assert_served(a, 100);
    /* Nothing is computed again. */
    assert_int_equal(metric_get(&engine_stats(scene->rig.engine)->prompt_tokens), 200 + 200 + 60);
    assert_int_equal(metric_get(&engine_stats(scene->rig.engine)->snapshots_restored), scene->streams ? 1 : 0);
}

static void a_suspended_request_resumes_in_deterministic_mode(void **state)
{
    struct client *a;
    preempt_once(*state, (struct shape){.deterministic = true}, &a);
    assert_served(a, 100);
}

static void a_suspended_request_resumes_where_cells_cannot_be_cut(void **state)
{
    struct client *a;
    fake_llm.cuts = false;
    preempt_once(*state, (struct shape){0}, &a);
    assert_served(a, 100);
}

static void a_suspended_request_resumes_where_nothing_is_cached(void **state)
{
    struct client *a;
    preempt_once(*state, (struct shape){.no_caching = true}, &a);
    assert_served(a, 100);
}

static void a_suspended_request_computes_again_what_was_lost(void **state)
{
    struct scene *scene = *state;
    struct client *a;
    fake_llm.load_fails = true; /* with a stream of cells each */
    fake_llm.n_cells = 450;     /* in one pool: its cells have to be evicted */
    preempt_once(scene, (struct shape){0}, &a);
    assert_served(a, 100);
    assert_true(metric_get(&engine_stats(scene->rig.engine)->prompt_tokens) > 200 + 200 + 60 + 1);
}

static void a_suspended_request_ends_where_the_model_ends_it(void **state)
{
    struct client *a;
    fake_llm.end_after = 60;
    struct scene *scene = *state;
    preempt_once(scene, (struct shape){0}, &a);
    assert_false(a->failed);
    assert_int_equal(a->got.len, 60);
    assert_true(client_got_right_reply(a));
    assert_int_equal(a->result.predicted_n, 61);
    assert_int_equal(a->result.finish, HEARTH_FINISH_STOP);
}

/* Text that was held back, since a stop string may begin there, is held back again when the request resumes. */
static void a_stop_string_may_stand_on_both_sides_of_the_pause(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    static char stop[9];
    const char *const stops[] = {stop};
    int32_t reply[12];
    open_driven(scene, (struct shape){.slots = 1, .slot_timeout_ms = TIMEOUT_MS});
    struct client *a = ask(scene, "a", 0, 200, 100), *b = ask(scene, "b", 50, 60, 10);
    fake_llm_reply(a->job.prompt.v, a->job.prompt.len, reply, 12);
    for (size_t i = 0; i < 8; i++) stop[i] = (char)('a' + reply[i + 3] % 26);
    a->job.stop = stops;
    a->job.n_stop = 1;
    hand_in_first(rig, a);
    hand_in(rig, b);
    until_tokens(a, 5);
    pass(rig, TIMEOUT);
    step();
    step();
    assert_true(has_slot(rig, 0, b) && a->got.len < 11);
    let_run(scene);
    assert_served(b, 10);
    assert_int_equal(a->got.len, 11);
    assert_int_equal(a->text.len, 3);
    assert_string_equal(a->result.stop_string, stop);
    assert_int_equal(a->result.predicted_n, 11);
}

static void two_suspended_requests_resume_in_order(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_replies(scene, (struct shape){0}, &a, &b);
    struct client *c = ask(scene, "c", 100, 60, 30), *d = ask(scene, "d", 150, 60, 10);
    hand_in(rig, c);
    wait_until_decided(rig, d);
    step();
    step();
    assert_true(has_slot(rig, 0, c) && has_slot(rig, 1, d));
    assert_list(&rig->engine->waiting, a, b, NULL);
    until_ended(d);
    assert_true(has_slot(rig, 1, a));
    assert_list(&rig->engine->waiting, b, NULL);
    until_ended(c);
    assert_true(has_slot(rig, 0, b));
    let_run(scene);
    assert_served(a, 100);
    assert_served(b, 100);
    assert_served(c, 30);
    assert_served(d, 10);
    assert_int_equal(preemptions(rig), 2);
}

/* The same request twice, each suspended after the same token. */
static void two_requests_suspended_at_the_same_token_both_resume(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    open_driven(scene, (struct shape){.slots = 2, .slot_timeout_ms = TIMEOUT_MS});
    struct client *a = ask(scene, "a", 0, 200, 60), *b = ask(scene, "b", 0, 200, 60), *c = ask(scene, "c", 50, 60, 90),
                  *d = ask(scene, "d", 100, 60, 90);
    hand_in_first(rig, a);
    until_tokens(a, 10);
    pass(rig, SECOND);
    hand_in(rig, b);
    until_tokens(b, 1);
    hand_in(rig, c);
    pass(rig, SECOND);
    hand_in(rig, d);
    pass(rig, TIMEOUT - SECOND);
    step();
    step();
    assert_true(has_slot(rig, 0, c));
    size_t n = a->got.len;
    until_tokens(b, n - 2);
    pass(rig, SECOND);
    step();
    step();
    assert_true(has_slot(rig, 1, d));
    assert_int_equal(b->got.len, n);
    assert_list(&rig->engine->waiting, a, b, NULL);
    let_run(scene);
    assert_served(a, 60);
    assert_served(b, 60);
    assert_served(c, 90);
    assert_served(d, 90);
}

static void a_suspended_request_has_its_own_timeout_from_then_on(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    open_driven(scene, (struct shape){.slots = 1, .slot_timeout_ms = TIMEOUT_MS});
    struct client *a = ask(scene, "a", 0, 200, 100), *b = ask(scene, "b", 50, 60, 100);
    hand_in_first(rig, a);
    until_tokens(a, 3);
    wait_until_decided(rig, b);
    step();
    until_tokens(b, 3);
    pass(rig, TIMEOUT - 1);
    step();
    step();
    assert_true(has_slot(rig, 0, b));
    pass(rig, 1);
    step();
    step();
    assert_true(has_slot(rig, 0, a));
    let_run(scene);
    assert_served(a, 100);
    assert_served(b, 100);
}

/* ---- Choosing a victim ---- */

static void the_one_that_computes_on_the_conversation_is_preempted_for_it(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_replies(scene, (struct shape){0}, &a, &b);
    struct client *c = go_on(scene, "c", b, 20, 10);
    wait_until_decided(rig, c);
    assert_ptr_equal(rig->engine->preemption.victim, &rig->engine->slots[1]);
    step();
    assert_true(has_slot(rig, 0, a) && has_slot(rig, 1, c));
    let_run(scene);
    assert_int_equal(c->result.cache_n, 200);
    assert_served(a, 100);
    assert_served(b, 100);
    assert_served(c, 10);
}

/* Nobody can learn from the choice of the victim that another request has the same conversation. */
static void the_same_conversation_of_another_scope_decides_nothing(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_replies(scene, (struct shape){0}, &a, &b);
    struct client *c = go_on(scene, "c", b, 20, 10);
    c->job.scope = 1;
    wait_until_decided(rig, c);
    assert_ptr_equal(rig->engine->preemption.victim, &rig->engine->slots[0]);
    step();
    let_run(scene);
    assert_int_equal(c->result.cache_n, 0);
    assert_served(a, 100);
    assert_served(b, 100);
    assert_served(c, 10);
}

static void else_the_one_that_has_run_for_longest_is_preempted(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_replies(scene, (struct shape){0}, &a, &b);
    struct client *c = ask(scene, "c", 100, 60, 90), *d = ask(scene, "d", 150, 60, 10);
    wait_until_decided(rig, c);
    assert_ptr_equal(rig->engine->preemption.victim, &rig->engine->slots[0]);
    step();
    assert_true(has_slot(rig, 0, c));
    until_tokens(c, 3);
    /* The later one has run for less long, also in a slot with a smaller number. */
    hand_in(rig, d);
    step();
    pass(rig, TIMEOUT);
    step();
    assert_ptr_equal(rig->engine->preemption.victim, &rig->engine->slots[1]);
    let_run(scene);
    assert_served(a, 100);
    assert_served(b, 100);
    assert_served(c, 90);
    assert_served(d, 10);
}

/* The victim holds no more of the prompt than other slots do, but its slot is the free one then. */
static void the_freed_slot_goes_to_the_one_that_it_was_freed_for(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    open_driven(scene,
                (struct shape){.slots = 2, .window = 8000, .slot_timeout_ms = TIMEOUT_MS, .preempt_fails = true});
    struct client *a = ask(scene, "a", 0, 3000, 100), *b = ask(scene, "b", 50, 2000, 100),
                  *c = go_on(scene, "c", b, 20, 10);
    for (int32_t i = 0; i < 500; i++) tokens_push(&b->job.prompt, i % 7);
    c->job.conversation.stable_end = 2010; /* only its system prompt is that of `b` */
    hand_in_first(rig, a);
    until_tokens(a, 1);
    pass(rig, SECOND);
    hand_in(rig, b);
    until_tokens(b, 1);
    wait_until_decided(rig, c);
    step();
    assert_true(has_slot(rig, 0, c) && has_slot(rig, 1, b));
    assert_true(a->failed);
    let_run(scene);
    assert_served(b, 100);
    assert_served(c, 10);
    assert_int_equal(c->result.cache_n, 2000);
}

static void who_waits_for_one_slot_has_it_preempted_although_another_is_free(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_talks(scene, (struct shape){.slot_timeout_ms = TIMEOUT_MS}, &a, &b);
    struct client *c = go_on(scene, "c", a, 20, 5);
    hand_in(rig, c);
    step();
    pass(rig, TIMEOUT - 1);
    step();
    assert_null(rig->engine->preemption.victim);
    pass(rig, 1);
    step();
    assert_ptr_equal(rig->engine->preemption.victim, &rig->engine->slots[0]);
    assert_true(has_slot(rig, 0, a));
    step();
    assert_true(has_slot(rig, 0, c) && has_slot(rig, 1, a));
    let_run(scene);
    assert_served(a, 100);
    assert_served(c, 5);
    assert_int_equal(c->result.cache_n, LONG_TALK);
    assert_int_equal(preemptions(rig), 1);
}

static void of_two_that_have_waited_too_long_the_first_one_comes_first(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_talks(scene, (struct shape){.slot_timeout_ms = TIMEOUT_MS, .preempt_fails = true}, &a, &b);
    struct client *c = go_on(scene, "c", a, 20, 50), *d = go_on(scene, "d", b, 20, 50),
                  *e = ask(scene, "e", 100, 60, 5);
    hand_in(rig, c); /* for slot 0 */
    step();
    pass(rig, SECOND);
    hand_in(rig, d);
    until_tokens(d, 1);
    hand_in(rig, e);
    step();
    assert_list(&rig->engine->slots[0].queue, c, NULL);
    assert_list(&rig->engine->waiting, e, NULL);
    pass(rig, TIMEOUT);
    step();
    step();
    assert_true(has_slot(rig, 0, c));
    assert_failed(a, HEARTH_BUSY, "preempted by queued request c after 31.0s wait");
    step();
    assert_true(has_slot(rig, 1, e));
    let_run(scene);
    assert_failed(d, HEARTH_BUSY, "preempted by queued request e after 30.0s wait");
    assert_served(c, 50);
    assert_served(e, 5);
}

/* With a stream of cells each the victim's cells are needed: without room for a snapshot it keeps its slot. */
static void nobody_is_preempted_whose_cells_cannot_be_kept(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_replies(scene, (struct shape){.snapshot_budget = 100}, &a, &b);
    struct client *c = ask(scene, "c", 100, 60, 10);
    wait_until_decided(rig, c);
    step();
    assert_int_equal(preemptions(rig), scene->streams ? 0 : 1);
    assert_true(has_slot(rig, 0, scene->streams ? a : c));
    let_run(scene);
    assert_served(a, 100);
    assert_served(b, 100);
    assert_served(c, 10);
}

static void a_victim_that_fails_is_preempted_without_room_for_its_cells(void **state)
{
    struct scene *scene = *state;
    struct client *a, *b;
    open_with_two_replies(scene, (struct shape){.snapshot_budget = 100, .preempt_fails = true}, &a, &b);
    struct client *c = ask(scene, "c", 100, 60, 10);
    wait_until_decided(&scene->rig, c);
    let_run(scene);
    assert_failed(a, HEARTH_BUSY, "preempted by queued request c after 30.0s wait");
    assert_served(b, 100);
    assert_served(c, 10);
}

static void what_is_private_stays_so_while_it_is_suspended(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    open_driven(scene, (struct shape){.slots = 1, .slot_timeout_ms = TIMEOUT_MS});
    struct client *a = ask(scene, "a", 0, 200, 20), *b = go_on(scene, "b", a, 20, 10), *c = go_on(scene, "c", a, 30, 5);
    a->job.cache_prompt = false;
    hand_in_first(rig, a);
    until_tokens(a, 3);
    wait_until_decided(rig, b);
    step();
    assert_true(has_slot(rig, 0, b));
    assert_int_equal(b->start.cache_n, 0);
    cancel(rig, b);
    step();
    assert_true(has_slot(rig, 0, a));
    let_run(scene);
    assert_served(a, 20);
    hand_in_first(rig, c);
    let_run(scene);
    assert_served(c, 5);
    assert_int_equal(c->result.cache_n, 0);
}

static void what_is_private_is_gone_when_it_ends_while_it_is_suspended(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    open_driven(scene, (struct shape){.slots = 2, .slot_timeout_ms = TIMEOUT_MS});
    struct client *a = ask(scene, "a", 0, 200, 20), *b = ask(scene, "b", 50, 200, 100),
                  *c = ask(scene, "c", 100, 60, 5);
    a->job.cache_prompt = false;
    hand_in_first(rig, a);
    hand_in(rig, b);
    until_tokens(a, 3);
    wait_until_decided(rig, c);
    step();
    assert_true(has_slot(rig, 0, c));
    cancel(rig, a);
    step();
    assert_true(a->failed);
    for (size_t i = 0; i < rig->engine->n_seqs; i++) {
        const struct tokens *cells = fake_llm_cells(rig->engine->context, (int32_t)i);
        assert_true(cells->len == 0 || cells->v[0] != a->job.prompt.v[0]);
    }
    let_run(scene);
    assert_served(b, 100);
    assert_served(c, 5);
}

/* The next request in the slot waits for another's cells at first, so that those of the victim are not overwritten. */
static void what_is_private_lies_nowhere_but_in_its_snapshot_while_it_is_suspended(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    open_driven(scene, (struct shape){.slots = 2, .slot_timeout_ms = TIMEOUT_MS});
    struct client *a = ask(scene, "a", 0, 200, 20), *b = ask(scene, "b", 50, 2000, 5), *c = go_on(scene, "c", b, 20, 5);
    a->job.cache_prompt = false;
    hand_in_first(rig, a);
    until_tokens(a, 1);
    hand_in(rig, b);
    wait_until_decided(rig, c);
    step();
    assert_true(has_slot(rig, 0, c));
    assert_int_equal(rig->engine->slots[0].state, SLOT_AWAITS_PREFIX);
    assert_int_equal(fake_llm_cells(rig->engine->context, 0)->len, 0);
    let_run(scene);
    assert_served(a, 20);
    assert_served(b, 5);
    assert_int_equal(c->result.cache_n, 2000);
}

/* ---- No preemption without need ---- */

static void a_cancelled_request_preempts_nobody(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_replies(scene, (struct shape){0}, &a, &b);
    struct client *c = ask(scene, "c", 100, 60, 10), *d = ask(scene, "d", 150, 60, 10);
    hand_in(rig, c);
    step();
    pass(rig, TIMEOUT);
    cancel(rig, c);
    step();
    assert_failed(c, HEARTH_CANCELLED, "request was cancelled");
    assert_null(rig->engine->preemption.victim);
    /* And when it ends after the decision, but before it was carried out. */
    wait_until_decided(rig, d);
    assert_non_null(rig->engine->preemption.victim);
    cancel(rig, d);
    step();
    assert_failed(d, HEARTH_CANCELLED, "request was cancelled");
    assert_true(has_slot(rig, 0, a) && has_slot(rig, 1, b));
    let_run(scene);
    assert_served(a, 100);
    assert_served(b, 100);
    assert_int_equal(preemptions(rig), 0);
}

static void a_cancelled_request_in_a_slots_list_preempts_nobody(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_talks(scene, (struct shape){.slot_timeout_ms = TIMEOUT_MS}, &a, &b);
    struct client *c = go_on(scene, "c", a, 20, 5), *d = go_on(scene, "d", a, 20, 5);
    hand_in(rig, c);
    step();
    pass(rig, SECOND);
    hand_in(rig, d);
    step();
    pass(rig, TIMEOUT - SECOND);
    step();
    assert_non_null(rig->engine->preemption.victim);
    cancel(rig, c);
    step(); /* the next in the queue has waited for less long */
    assert_true(has_slot(rig, 0, a));
    let_run(scene);
    assert_served(a, 100);
    assert_served(d, 5);
    assert_int_equal(preemptions(rig), 0);
}

static void a_victim_that_ends_by_itself_is_no_victim(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    open_driven(scene, (struct shape){.slots = 1, .slot_timeout_ms = TIMEOUT_MS, .preempt_fails = true});
    struct client *a = ask(scene, "a", 0, 60, 6), *b = ask(scene, "b", 50, 60, 10);
    hand_in_first(rig, a);
    until_tokens(a, 4);
    wait_until_decided(rig, b); /* its last token but one, then its last */
    assert_int_equal(a->got.len, 6);
    assert_true(a->ended);
    let_run(scene);
    assert_served(a, 6);
    assert_served(b, 10);
    assert_int_equal(preemptions(rig), 0);
}

static void a_victim_that_is_cancelled_is_no_victim(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_replies(scene, (struct shape){.preempt_fails = true}, &a, &b);
    struct client *c = ask(scene, "c", 100, 60, 10);
    wait_until_decided(rig, c);
    cancel(rig, a);
    step();
    assert_failed(a, HEARTH_CANCELLED, "request was cancelled");
    assert_true(has_slot(rig, 0, c));
    let_run(scene);
    assert_served(b, 100);
    assert_served(c, 10);
    assert_int_equal(preemptions(rig), 0);
}

/* ---- How the wait is measured ---- */

static void the_wait_begins_when_the_request_is_handed_to_the_engine(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_replies(scene, (struct shape){0}, &a, &b);
    struct client *c = ask(scene, "c", 100, 60, 10);
    pass(rig, 5 * TIMEOUT); /* what came before does not count */
    hand_in(rig, c);
    pass(rig, TIMEOUT - 1); /* the decode call is not over yet */
    step();
    assert_null(rig->engine->preemption.victim);
    pass(rig, 1);
    step();
    assert_non_null(rig->engine->preemption.victim);
    let_run(scene);
    assert_served(a, 100);
    assert_served(c, 10);
}

static void time_in_which_all_slots_compute_prompts_does_not_count(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    open_driven(scene, (struct shape){.slots = 1, .slot_timeout_ms = TIMEOUT_MS});
    struct client *a = ask(scene, "a", 0, 2000, 100), *b = ask(scene, "b", 50, 60, 10),
                  *c = ask(scene, "c", 100, 60, 10);
    hand_in_first(rig, a);
    hand_in(rig, b);
    pass(rig, 10 * SECOND); /* before the engine looks at it */
    step();
    pass(rig, 15 * SECOND);
    hand_in(rig, c);
    step();
    assert_int_equal(a->got.len, 0);
    assert_int_equal(logged(scene, "imc: all slots pending, waiting for slot id=b\n"), 1);
    assert_int_equal(logged(scene, "imc: all slots pending, waiting for slot id=c\n"), 1);
    until_tokens(a, 1);
    assert_int_equal(logged(scene, "imc: slot became available, retrying id=b\n"), 1);
    assert_int_equal(logged(scene, "imc: slot became available, retrying id=c\n"), 1);
    pass(rig, TIMEOUT - 1);
    step();
    assert_null(rig->engine->preemption.victim);
    pass(rig, 1);
    step();
    assert_non_null(rig->engine->preemption.victim);
    let_run(scene);
    assert_served(a, 100);
    assert_served(b, 10);
    assert_served(c, 10);
    assert_int_equal(logged(scene, "server busy"), 0);
}

static void nor_does_it_count_for_those_who_wait_for_one_slot(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_talks(scene, (struct shape){.slot_timeout_ms = TIMEOUT_MS}, &a, &b);
    struct client *c = go_on(scene, "c", a, 1000, 50), *d = go_on(scene, "d", a, 20, 5),
                  *e = go_on(scene, "e", b, 900, 5);
    hand_in(rig, c);
    hand_in(rig, d);
    step();
    assert_list(&rig->engine->slots[0].queue, c, d, NULL);
    pass(rig, 10 * SECOND);
    until_tokens(a, 98);
    hand_in(rig, e);
    until_ended(a);
    assert_true(has_slot(rig, 0, c) && has_slot(rig, 1, e));
    assert_list(&rig->engine->slots[0].queue, d, NULL);
    pass(rig, TIMEOUT - 1);
    until_tokens(c, 1);
    pass(rig, TIMEOUT - 10 * SECOND - 1);
    step();
    assert_null(rig->engine->preemption.victim);
    pass(rig, 1);
    step();
    assert_ptr_equal(rig->engine->preemption.victim, &rig->engine->slots[0]);
    let_run(scene);
    assert_served(c, 50);
    assert_served(d, 5);
    assert_served(e, 5);
    assert_int_equal(preemptions(rig), 1);
}

/* ---- Every slot computes a prompt ---- */

/* Both slots compute long prompts, and `c` has come to wait. */
static void open_with_two_prompts(struct scene *scene, struct client **a, struct client **b, struct client **c)
{
    struct rig *rig = &scene->rig;
    open_driven(scene, (struct shape){.slots = 2, .slot_timeout_ms = TIMEOUT_MS});
    *a = ask(scene, "a", 0, 2000, 20);
    *b = ask(scene, "b", 50, 2000, 20);
    *c = ask(scene, "c", 100, 60, 10);
    hand_in_first(rig, *a);
    hand_in(rig, *b);
    step();
    hand_in(rig, *c);
    step();
    assert_int_equal(logged(scene, "imc: all slots pending, waiting for slot id=c\n"), 1);
}

static void the_server_is_busy_when_all_slots_compute_prompts_for_too_long(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b, *c;
    open_with_two_prompts(scene, &a, &b, &c);
    pass(rig, TIMEOUT - 1);
    step();
    assert_false(c->ended);
    pass(rig, 1);
    step();
    assert_true(c->ended);
    assert_failed(c, HEARTH_BUSY, "server busy processing other requests, try again shortly");
    assert_int_equal(c->n_started, 0);
    assert_int_equal(logged(scene, "imc: server busy id=c\n"), 1);
    assert_true(a->got.len == 0 && b->got.len == 0);
    let_run(scene);
    assert_served(a, 20);
    assert_served(b, 20);
    assert_int_equal(preemptions(rig), 0);
    assert_int_equal(metric_get(&engine_stats(rig->engine)->requests_failed), 1);
}

static void a_slot_that_gets_to_its_reply_in_time_is_waited_for(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b, *c;
    open_with_two_prompts(scene, &a, &b, &c);
    pass(rig, TIMEOUT - 1);
    until_tokens(a, 1);
    assert_int_equal(logged(scene, "imc: slot became available, retrying id=c\n"), 1);
    let_run(scene);
    assert_served(a, 20);
    assert_served(b, 20);
    assert_served(c, 10);
    assert_int_equal(logged(scene, "server busy"), 0);
}

static void a_slot_that_becomes_free_in_time_is_taken(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b, *c;
    open_with_two_prompts(scene, &a, &b, &c);
    pass(rig, TIMEOUT - 1);
    cancel(rig, b);
    step();
    assert_true(has_slot(rig, 1, c));
    assert_int_equal(logged(scene, "imc: slot became available, retrying id=c\n"), 1);
    let_run(scene);
    assert_served(a, 20);
    assert_served(c, 10);
    assert_int_equal(logged(scene, "server busy"), 0);
}

static void the_server_is_busy_for_those_too_who_wait_for_one_slot(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    struct client *a, *b;
    open_with_two_talks(scene, (struct shape){.slot_timeout_ms = TIMEOUT_MS}, &a, &b);
    struct client *c = go_on(scene, "c", a, 1000, 5), *d = go_on(scene, "d", a, 20, 5),
                  *e = go_on(scene, "e", b, 900, 5);
    hand_in(rig, c);
    hand_in(rig, d);
    until_tokens(a, 98);
    hand_in(rig, e);
    until_ended(a);
    assert_true(has_slot(rig, 0, c) && has_slot(rig, 1, e));
    assert_list(&rig->engine->slots[0].queue, d, NULL);
    pass(rig, TIMEOUT);
    step();
    assert_failed(d, HEARTH_BUSY, "server busy processing other requests, try again shortly");
    let_run(scene);
    assert_served(c, 5);
    assert_served(e, 5);
}

static void a_suspended_request_never_fails_because_the_server_is_busy(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    open_driven(scene, (struct shape){.slots = 1, .slot_timeout_ms = TIMEOUT_MS});
    struct client *a = ask(scene, "a", 0, 200, 20), *b = ask(scene, "b", 50, 2000, 5);
    hand_in_first(rig, a);
    until_tokens(a, 3);
    wait_until_decided(rig, b);
    step();
    assert_true(has_slot(rig, 0, b));
    pass(rig, 2 * TIMEOUT);
    step();
    assert_int_equal(b->got.len, 0);
    assert_list(&rig->engine->waiting, a, NULL);
    let_run(scene);
    assert_served(a, 20);
    assert_served(b, 5);
}

static void with_one_reply_under_way_the_server_is_not_busy(void **state)
{
    struct scene *scene = *state;
    struct rig *rig = &scene->rig;
    open_driven(scene, (struct shape){.slots = 2, .slot_timeout_ms = TIMEOUT_MS, .snapshot_budget = 100});
    struct client *a = ask(scene, "a", 0, 60, 1000), *b = ask(scene, "b", 50, 2000, 20),
                  *c = ask(scene, "c", 100, 60, 10);
    hand_in_first(rig, a);
    until_tokens(a, 1);
    hand_in(rig, b);
    hand_in(rig, c);
    step();
    pass(rig, 2 * TIMEOUT);
    step();
    step();
    assert_int_equal(b->got.len, 0);
    assert_false(c->failed);
    let_run(scene);
    assert_served(a, 1000);
    assert_served(b, 20);
    assert_served(c, 10);
    assert_int_equal(logged(scene, "all slots pending"), 0);
}

/* ---- Suspended requests that do not resume ---- */

static void park_one(struct scene *scene, struct client **a, struct client **b, struct client **c)
{
    open_with_two_replies(scene, (struct shape){0}, a, b);
    *c = ask(scene, "c", 100, 60, 10);
    wait_until_decided(&scene->rig, *c);
    step();
    assert_list(&scene->rig.engine->waiting, *a, NULL);
}

static void a_suspended_request_can_be_cancelled(void **state)
{
    struct scene *scene = *state;
    struct client *a, *b, *c;
    park_one(scene, &a, &b, &c);
    cancel(&scene->rig, a);
    step();
    assert_failed(a, HEARTH_CANCELLED, "request was cancelled");
    assert_int_equal(a->job.prompt.len, 200);
    assert_null(scene->rig.engine->waiting.first);
    let_run(scene);
    assert_served(b, 100);
    assert_served(c, 10);
}

/* Runs beside the test, since it returns only once the engine is idle. */
static void *drain(void *ud)
{
    engine_drain(ud, CLOCK_NEVER);
    return NULL;
}

static void *close_engine(void *ud)
{
    engine_close(ud);
    return NULL;
}

/* Suspends a request and then has the engine end in this way; decode calls continue once the engine knows that it is to
 * end. */
static void park_and_end(struct scene *scene, void *(*end)(void *engine), struct client **a, struct client **b)
{
    struct client *c;
    pthread_t thread;
    struct engine *engine = scene->rig.engine;
    park_one(scene, a, b, &c);
    engine = scene->rig.engine;
    pthread_create(&thread, NULL, end, engine);
    bool draining = false;
    while (!draining) {
        pthread_mutex_lock(&engine->mutex);
        draining = engine->draining && (end == drain || atomic_load(&engine->stop_now));
        pthread_mutex_unlock(&engine->mutex);
    }
    allow(INT64_MAX);
    pthread_join(thread, NULL);
    assert_int_equal((*a)->job.prompt.len, 200);
    assert_true(client_got_right_reply(*a));
    assert_int_equal((*b)->n_last_events + c->n_last_events, 2);
}

static void a_drain_waits_for_a_suspended_request(void **state)
{
    struct scene *scene = *state;
    struct client *a, *b;
    park_and_end(scene, drain, &a, &b);
    assert_served(a, 100);
    assert_served(b, 100);
}

static void a_suspended_request_does_not_outlive_the_engine(void **state)
{
    struct scene *scene = *state;
    struct client *a, *b;
    park_and_end(scene, close_engine, &a, &b);
    scene->rig.engine = NULL;
    assert_failed(a, HEARTH_UNAVAILABLE, "engine shutting down");
    assert_failed(b, HEARTH_UNAVAILABLE, "engine shutting down");
}

static bool a_stream_each = true;

#define in_a_stream_each(name)                                                                                         \
    {                                                                                                                  \
#name " (a stream each)", name, set_up_scene, tear_down_scene, &a_stream_each                                  \
    }
#define in_both(name) {#name " (one pool)", name, set_up_scene, tear_down_scene, NULL}, in_a_stream_each(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_both(the_next_in_line_takes_whichever_slot_is_free_first),
        in_a_stream_each(who_waits_for_the_slot_of_its_conversation_holds_up_nobody_else),
        in_a_stream_each(who_waits_for_one_slot_gets_it_in_order_and_may_leave),
        in_a_stream_each(a_freed_slot_is_first_of_all_for_those_who_wait_for_it),
        in_a_stream_each(what_cannot_be_cut_is_waited_for_as_well),
        in_a_stream_each(the_engine_does_not_go_to_sleep_while_somebody_waits_for_a_slot),
        in_both(two_requests_for_one_slot_are_both_served_without_a_third),
        in_both(a_free_slot_takes_the_prefix_where_that_is_cheaper_than_waiting),
        in_both(two_that_continue_a_conversation_at_once_both_get_its_cells),
        in_both(a_slot_is_preempted_after_the_timeout_and_not_before),
        in_both(a_victim_that_fails_learns_who_took_its_slot),
        in_both(a_suspended_request_gives_the_reply_that_it_would_have_given),
        in_both(a_suspended_request_resumes_in_deterministic_mode),
        in_both(a_suspended_request_resumes_where_cells_cannot_be_cut),
        in_both(a_suspended_request_resumes_where_nothing_is_cached),
        in_both(a_suspended_request_computes_again_what_was_lost),
        in_both(a_suspended_request_ends_where_the_model_ends_it),
        in_both(a_stop_string_may_stand_on_both_sides_of_the_pause),
        in_both(two_suspended_requests_resume_in_order),
        in_both(two_requests_suspended_at_the_same_token_both_resume),
        in_both(a_suspended_request_has_its_own_timeout_from_then_on),
        in_both(the_one_that_computes_on_the_conversation_is_preempted_for_it),
        in_both(the_same_conversation_of_another_scope_decides_nothing),
        in_both(else_the_one_that_has_run_for_longest_is_preempted),
        in_both(the_freed_slot_goes_to_the_one_that_it_was_freed_for),
        in_a_stream_each(who_waits_for_one_slot_has_it_preempted_although_another_is_free),
        in_a_stream_each(of_two_that_have_waited_too_long_the_first_one_comes_first),
        in_both(nobody_is_preempted_whose_cells_cannot_be_kept),
        in_both(a_victim_that_fails_is_preempted_without_room_for_its_cells),
        in_both(what_is_private_stays_so_while_it_is_suspended),
        in_a_stream_each(what_is_private_lies_nowhere_but_in_its_snapshot_while_it_is_suspended),
        in_both(what_is_private_is_gone_when_it_ends_while_it_is_suspended),
        in_both(a_cancelled_request_preempts_nobody),
        in_a_stream_each(a_cancelled_request_in_a_slots_list_preempts_nobody),
        in_both(a_victim_that_ends_by_itself_is_no_victim),
        in_both(a_victim_that_is_cancelled_is_no_victim),
        in_both(the_wait_begins_when_the_request_is_handed_to_the_engine),
        in_both(time_in_which_all_slots_compute_prompts_does_not_count),
        in_a_stream_each(nor_does_it_count_for_those_who_wait_for_one_slot),
        in_both(the_server_is_busy_when_all_slots_compute_prompts_for_too_long),
        in_both(a_slot_that_gets_to_its_reply_in_time_is_waited_for),
        in_both(a_slot_that_becomes_free_in_time_is_taken),
        in_a_stream_each(the_server_is_busy_for_those_too_who_wait_for_one_slot),
        in_both(a_suspended_request_never_fails_because_the_server_is_busy),
        in_a_stream_each(with_one_reply_under_way_the_server_is_not_busy),
        in_both(a_suspended_request_can_be_cancelled),
        in_both(a_drain_waits_for_a_suspended_request),
        in_both(a_suspended_request_does_not_outlive_the_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
