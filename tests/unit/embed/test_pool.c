/* The pool: packing, waiting for a free context, admission, cancelling and the end, over embedders that a test can hold
 * in the middle of a call. */
#include "fakes/cmocka_all.h"
#include "fakes/fake_clock.h"
#include "fakes/fake_embedder.h"

#include "base/memory.h"
#include "embed/pool.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 256, INPUTS = 64, JOBS = 300, MOST_BYTES = 3000 };

struct client {
    struct embed_job job; /* first: a job is its client */
    pthread_mutex_t *mutex;
    pthread_cond_t *changed;
    int ended, order;   /* how many had ended before it */
    hearth_error error; /* OK where it did not fail */
    bool refuse;        /* when it is prepared */
    size_t n_prepared;
};

struct rig {
    struct fake_clock clock;
    struct embed_pool *pool;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int n_ended;
    struct client clients[JOBS];
};

static struct rig rig;

static int prepare(struct embed_job *job, size_t input, hearth_error *error)
{
    struct client *client = (struct client *)job;
    if (input != client->n_prepared++) abort(); /* one after the other */
    if (!client->refuse) return HEARTH_OK;
    *error = (hearth_error){.code = HEARTH_TOO_LONG, .message = "too long"};
    return HEARTH_TOO_LONG;
}

static void on_end(struct embed_job *job, const hearth_error *error)
{
    struct client *client = (struct client *)job;
    pthread_mutex_lock(client->mutex);
    client->ended++;
    client->order = rig.n_ended++;
    if (error != NULL) client->error = *error;
    pthread_cond_broadcast(client->changed);
    pthread_mutex_unlock(client->mutex);
}

static void open_pool(int32_t n_contexts)
{
    hearth_error error;
    struct embed_params params = {.name = "m",
                                  .pooling = HEARTH_POOLING_MEAN,
                                  .n_contexts = n_contexts,
                                  .context = {.window = 128},
                                  .most_bytes = MOST_BYTES,
                                  .clock = &rig.clock.clock};
    rig.pool = embed_open(&params, &error);
    assert_non_null(rig.pool);
}

static int set_up(void **state)
{
    (void)state;
    memset(&rig, 0, sizeof rig);
    fake_clock_init(&rig.clock);
    pthread_mutex_init(&rig.mutex, NULL);
    pthread_cond_init(&rig.changed, NULL);
    fake_embedder_reset(ROWS, INPUTS);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fake_embedder_hold(false);
    embed_close(rig.pool);
    assert_int_equal(fake_embedder_open(), 0);
    for (int i = 0; i < JOBS; i++) {
        struct client *client = &rig.clients[i];
        assert_true(client->ended == (client->mutex != NULL));
        for (size_t k = 0; k < client->job.n_inputs; k++) {
            tokens_release(&client->job.inputs[k].tokens);
            free(client->job.inputs[k].vectors);
        }
        free(client->job.inputs);
    }
    fake_clock_release(&rig.clock);
    return 0;
}

/* `n` inputs of `len` tokens, of which the last is the input's number. */
static struct client *make(int i, size_t n, int len)
{
    struct client *client = &rig.clients[i];
    client->mutex = &rig.mutex;
    client->changed = &rig.changed;
    client->job = (struct embed_job){.prepare = prepare, .on_end = on_end, .n_inputs = n, .bytes = 10};
    client->job.inputs = mem_alloc(n * sizeof *client->job.inputs);
    for (size_t k = 0; k < n; k++)
        for (int t = 0; t < len; t++) tokens_push(&client->job.inputs[k].tokens, t == len - 1 ? (int32_t)k : 1);
    return client;
}

static void submit(struct client *client)
{
    assert_int_equal(embed_submit(rig.pool, &client->job), EMBED_TAKEN);
}

static void await(struct client *client)
{
    pthread_mutex_lock(&rig.mutex);
    while (client->ended == 0) pthread_cond_wait(&rig.changed, &rig.mutex);
    pthread_mutex_unlock(&rig.mutex);
}

static bool ended(struct client *client)
{
    pthread_mutex_lock(&rig.mutex);
    bool is = client->ended > 0;
    pthread_mutex_unlock(&rig.mutex);
    return is;
}

static void assert_served(struct client *client)
{
    await(client);
    if (client->error.code != HEARTH_OK) fail_msg("%s", client->error.message);
    for (size_t k = 0; k < client->job.n_inputs; k++) {
        struct embed_input *input = &client->job.inputs[k];
        assert_int_equal(input->n_vectors, 1);
        assert_int_equal((int)input->vectors[0], (int)k + (int)input->tokens.len - 1);
        assert_int_equal((int)input->vectors[1], (int)input->tokens.len);
    }
}

static void assert_failed(struct client *client, hearth_code code)
{
    await(client);
    assert_int_equal(client->error.code, code);
}

/* ---- Packing ---- */

static void sixty_four_inputs_of_one_request_need_an_eighth_of_the_calls_of_sixty_four_requests(void **state)
{
    (void)state;
    open_pool(1);
    struct client *together = make(0, 64, 4);
    submit(together);
    assert_served(together);
    int64_t calls = metric_get(&embed_stats(rig.pool)->calls);
    for (int i = 1; i <= 64; i++) { /* one after the other: each is a call */
        submit(make(i, 1, 4));
        assert_served(&rig.clients[i]);
    }
    assert_int_equal(metric_get(&embed_stats(rig.pool)->calls) - calls, 64);
    assert_true(8 * calls <= 64);
    assert_int_equal(calls, fake_embedder_calls() - 64);
}

static void requests_that_wait_together_share_a_call(void **state)
{
    (void)state;
    open_pool(1);
    fake_embedder_hold(true);
    submit(make(0, 1, 4));
    fake_embedder_wait_held(1);
    for (int i = 1; i <= 10; i++) submit(make(i, 3, 4));
    fake_embedder_hold(false);
    for (int i = 0; i <= 10; i++) assert_served(&rig.clients[i]);
    assert_int_equal(fake_embedder_calls(), 2);
    assert_int_equal(fake_embedder_call_inputs(1), 30);
}

static void a_call_takes_no_more_than_fits_it(void **state)
{
    (void)state;
    open_pool(1);
    submit(make(0, 5, 100));
    assert_served(&rig.clients[0]);
    assert_int_equal(fake_embedder_calls(), 3);
    assert_int_equal(fake_embedder_call_inputs(0), 2);
    assert_int_equal(fake_embedder_call_inputs(2), 1);
}

static void a_long_list_does_not_hold_up_a_short_one(void **state)
{
    (void)state;
    open_pool(1);
    fake_embedder_hold(true);
    submit(make(0, 640, 4));
    fake_embedder_wait_held(1);
    submit(make(1, 2, 4));
    fake_embedder_hold(false);
    assert_served(&rig.clients[1]);
    assert_served(&rig.clients[0]);
    assert_true(rig.clients[1].order < rig.clients[0].order);
    assert_int_equal(fake_embedder_calls(), 11); /* 642 inputs, no call half empty */
}

/* What of the first job had been prepared when the second one ended. */
static size_t prepared_at_end;

static void note_end(struct embed_job *job, const hearth_error *error)
{
    prepared_at_end = rig.clients[0].n_prepared;
    on_end(job, error);
}

static void a_list_is_prepared_a_call_ahead_and_no_further(void **state)
{
    (void)state;
    open_pool(1);
    fake_embedder_hold(true);
    submit(make(0, 640, 4));
    fake_embedder_wait_held(1);
    assert_in_range(rig.clients[0].n_prepared, INPUTS, 2 * INPUTS);
    make(1, 2, 4)->job.on_end = note_end;
    submit(&rig.clients[1]);
    fake_embedder_hold(false);
    assert_served(&rig.clients[1]);
    assert_served(&rig.clients[0]);
    assert_in_range(prepared_at_end, INPUTS, 5 * INPUTS);
    assert_int_equal(rig.clients[0].n_prepared, 640);
}

/* ---- Waiting for a context ---- */

static void one_request_more_than_contexts_waits_and_is_then_served(void **state)
{
    (void)state;
    open_pool(2);
    fake_embedder_hold(true);
    submit(make(0, 1, 4));
    fake_embedder_wait_held(1);
    submit(make(1, 1, 4));
    fake_embedder_wait_held(2); /* each in a context of its own, at the same time */
    submit(make(2, 1, 4));
    assert_int_equal(metric_get(&embed_stats(rig.pool)->contexts_busy), 2);
    assert_int_equal(fake_embedder_calls(), 2);
    assert_false(ended(&rig.clients[2]));
    fake_embedder_hold(false);
    for (int i = 0; i < 3; i++) assert_served(&rig.clients[i]);
    assert_int_equal(fake_embedder_calls(), 3);
}

/* ---- Admission ---- */

/* An indexer sends hundreds at once: none waits for a place, and no time passes for them. */
static void hundreds_of_requests_at_once_are_all_served_in_full_calls(void **state)
{
    (void)state;
    open_pool(1);
    fake_embedder_hold(true);
    submit(make(0, 1, 4));
    fake_embedder_wait_held(1);
    for (int i = 1; i < 3 * INPUTS; i++) submit(make(i, 1, 4));
    assert_int_equal(embed_waiting(rig.pool), 3 * INPUTS - 1);
    fake_clock_advance(&rig.clock, 3600000000000LL);
    fake_embedder_hold(false);
    for (int i = 0; i < 3 * INPUTS; i++) assert_served(&rig.clients[i]);
    assert_int_equal(fake_embedder_calls(), 1 + 3);
    assert_int_equal(embed_waiting(rig.pool), 0);
}

static void texts_that_have_no_room_are_refused_and_may_come_again(void **state)
{
    (void)state;
    open_pool(1);
    fake_embedder_hold(true);
    make(0, 1, 4)->job.bytes = 2 * (size_t)MOST_BYTES; /* alone it may have more */
    submit(&rig.clients[0]);
    fake_embedder_wait_held(1);
    struct client *other = make(1, 1, 4);
    assert_int_equal(embed_submit(rig.pool, &other->job), EMBED_FULL);
    fake_embedder_hold(false);
    assert_served(&rig.clients[0]);
    fake_embedder_hold(true);
    submit(other);
    fake_embedder_wait_held(1);
    make(2, 1, 4)->job.bytes = MOST_BYTES - 10;
    submit(&rig.clients[2]);
    struct client *last = make(3, 1, 4);
    last->job.bytes = 1;
    assert_int_equal(embed_submit(rig.pool, &last->job), EMBED_FULL);
    last->mutex = NULL; /* it was never submitted */
    fake_embedder_hold(false);
    assert_served(other);
    assert_served(&rig.clients[2]);
}

/* ---- Faults ---- */

static void an_input_that_cannot_be_computed_fails_its_request_alone(void **state)
{
    (void)state;
    open_pool(1);
    fake_embedder_hold(true);
    submit(make(0, 1, 4));
    fake_embedder_wait_held(1);
    for (int i = 1; i <= 5; i++) make(i, 2, 4);
    rig.clients[2].job.inputs[1].tokens.v[0] = FAKE_POISON;
    rig.clients[4].job.inputs[0].tokens.v[0] = FAKE_NOT_A_NUMBER;
    for (int i = 1; i <= 5; i++) submit(&rig.clients[i]);
    fake_embedder_hold(false);
    assert_failed(&rig.clients[2], HEARTH_INTERNAL);
    assert_failed(&rig.clients[4], HEARTH_INTERNAL);
    for (int i = 1; i <= 5; i += 2) assert_served(&rig.clients[i]);
    assert_int_equal(metric_get(&embed_stats(rig.pool)->jobs_failed), 2);
}

static void a_request_that_cannot_be_prepared_fails_alone(void **state)
{
    (void)state;
    open_pool(1);
    make(0, 1, 4)->refuse = true;
    submit(&rig.clients[0]);
    submit(make(1, 1, 4));
    assert_failed(&rig.clients[0], HEARTH_TOO_LONG);
    assert_string_equal(rig.clients[0].error.message, "too long");
    assert_served(&rig.clients[1]);
}

/* ---- Cancelling and the end ---- */

static void a_cancelled_request_ends_in_the_middle_of_its_call(void **state)
{
    (void)state;
    open_pool(1);
    fake_embedder_hold(true);
    submit(make(0, 100, 4));
    fake_embedder_wait_held(1);
    atomic_store(&rig.clients[0].job.cancelled, true);
    embed_poke(rig.pool);
    assert_failed(&rig.clients[0], HEARTH_CANCELLED); /* the gate is still closed */
    assert_int_equal(fake_embedder_calls(), 1);
}

static void cancelling_one_request_leaves_the_call_to_the_others_in_it(void **state)
{
    (void)state;
    open_pool(1);
    fake_embedder_hold(true);
    submit(make(0, 1, 4));
    fake_embedder_wait_held(1);
    submit(make(1, 1, 4));
    submit(make(2, 1, 4));
    fake_embedder_hold(false);
    await(&rig.clients[0]);
    atomic_store(&rig.clients[1].job.cancelled, true);
    embed_poke(rig.pool);
    await(&rig.clients[1]); /* done or cancelled, as it comes */
    assert_served(&rig.clients[2]);
}

static void draining_fails_those_that_were_not_begun_and_lets_the_others_finish(void **state)
{
    (void)state;
    open_pool(1);
    fake_embedder_hold(true);
    submit(make(0, 1, 4));
    fake_embedder_wait_held(1);
    submit(make(1, 1, 4));
    embed_stop(rig.pool);
    assert_false(ended(&rig.clients[0]));
    fake_embedder_hold(false);
    embed_drain(rig.pool, CLOCK_NEVER);
    assert_served(&rig.clients[0]);
    assert_failed(&rig.clients[1], HEARTH_UNAVAILABLE);
    struct client *after = make(2, 1, 4);
    assert_int_equal(embed_submit(rig.pool, &after->job), EMBED_STOPPED);
    after->mutex = NULL; /* it was never submitted */
}

static void at_the_deadline_what_still_runs_is_broken_off(void **state)
{
    (void)state;
    open_pool(1);
    fake_embedder_hold(true);
    submit(make(0, 1, 4));
    fake_embedder_wait_held(1);
    embed_drain(rig.pool, clock_now(&rig.clock.clock));
    assert_failed(&rig.clients[0], HEARTH_CANCELLED);
}

int main(void)
{
#define POOL_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        POOL_TEST(sixty_four_inputs_of_one_request_need_an_eighth_of_the_calls_of_sixty_four_requests),
        POOL_TEST(requests_that_wait_together_share_a_call),
        POOL_TEST(a_call_takes_no_more_than_fits_it),
        POOL_TEST(a_long_list_does_not_hold_up_a_short_one),
        POOL_TEST(a_list_is_prepared_a_call_ahead_and_no_further),
        POOL_TEST(one_request_more_than_contexts_waits_and_is_then_served),
        POOL_TEST(hundreds_of_requests_at_once_are_all_served_in_full_calls),
        POOL_TEST(texts_that_have_no_room_are_refused_and_may_come_again),
        POOL_TEST(an_input_that_cannot_be_computed_fails_its_request_alone),
        POOL_TEST(a_request_that_cannot_be_prepared_fails_alone),
        POOL_TEST(a_cancelled_request_ends_in_the_middle_of_its_call),
        POOL_TEST(cancelling_one_request_leaves_the_call_to_the_others_in_it),
        POOL_TEST(draining_fails_those_that_were_not_begun_and_lets_the_others_finish),
        POOL_TEST(at_the_deadline_what_still_runs_is_broken_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
