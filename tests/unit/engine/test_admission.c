/* Admission: permits, order, time-outs with a clock that the test moves. */
#include "fakes/cmocka_all.h"
#include "fakes/fake_clock.h"

#include "engine/admission.h"

#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000LL

struct rig {
    struct fake_clock clock;
    struct admission *admission;
    struct job jobs[8];
};

static struct rig the_rig;

static int set_up(void **state)
{
    memset(&the_rig, 0, sizeof the_rig);
    fake_clock_init(&the_rig.clock);
    the_rig.admission = admission_open(&the_rig.clock.clock, 2, 30 * SECOND);
    *state = &the_rig;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *rig = *state;
    admission_release(rig->admission);
    fake_clock_release(&rig->clock);
    return 0;
}

static void enter(struct rig *rig, int i)
{
    rig->jobs[i].submitted_at = clock_now(&rig->clock.clock);
    assert_true(admission_enter(rig->admission, &rig->jobs[i]));
}

static void expect(struct rig *rig, enum admission_verdict verdict, int i)
{
    struct job *job = NULL;
    assert_int_equal(admission_next(rig->admission, &job), verdict);
    if (i >= 0) assert_ptr_equal(job, &rig->jobs[i]);
}

/* A preparing thread: asks once for a verdict. */
struct asker {
    struct rig *rig;
    enum admission_verdict verdict;
    struct job *job;
    pthread_t thread;
};

static void *ask(void *ud)
{
    struct asker *asker = ud;
    asker->verdict = admission_next(asker->rig->admission, &asker->job);
    return NULL;
}

static void start_asking(struct asker *asker, struct rig *rig)
{
    *asker = (struct asker){.rig = rig};
    pthread_create(&asker->thread, NULL, ask, asker);
}

static void requests_are_admitted_in_order_while_there_are_permits(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 2; i++) enter(rig, i);
    expect(rig, ADMISSION_ADMITTED, 0);
    expect(rig, ADMISSION_ADMITTED, 1);
    assert_true(rig->jobs[0].admitted);
}

static void a_request_waits_until_a_permit_is_free(void **state)
{
    struct rig *rig = *state;
    struct asker asker;
    for (int i = 0; i < 3; i++) enter(rig, i);
    expect(rig, ADMISSION_ADMITTED, 0);
    expect(rig, ADMISSION_ADMITTED, 1);
    start_asking(&asker, rig);
    fake_clock_await_waiter(&rig->clock);
    admission_leave(rig->admission, &rig->jobs[0]);
    pthread_join(asker.thread, NULL);
    assert_int_equal(asker.verdict, ADMISSION_ADMITTED);
    assert_ptr_equal(asker.job, &rig->jobs[2]);
}

static void a_request_that_waited_too_long_expires_and_not_before(void **state)
{
    struct rig *rig = *state;
    struct asker asker;
    for (int i = 0; i < 3; i++) enter(rig, i);
    expect(rig, ADMISSION_ADMITTED, 0);
    expect(rig, ADMISSION_ADMITTED, 1);
    start_asking(&asker, rig);
    fake_clock_await_waiter(&rig->clock);
    fake_clock_advance(&rig->clock, 30 * SECOND - 1);
    fake_clock_await_waiter(&rig->clock);
    assert_int_equal(admission_waiting(rig->admission), 1);
    fake_clock_advance(&rig->clock, 1);
    pthread_join(asker.thread, NULL);
    assert_int_equal(asker.verdict, ADMISSION_EXPIRED);
    assert_ptr_equal(asker.job, &rig->jobs[2]);
    assert_false(rig->jobs[2].admitted);
}

static void a_request_whose_client_gave_up_does_not_wait_for_its_turn(void **state)
{
    struct rig *rig = *state;
    struct asker asker;
    for (int i = 0; i < 4; i++) enter(rig, i);
    expect(rig, ADMISSION_ADMITTED, 0);
    expect(rig, ADMISSION_ADMITTED, 1);
    start_asking(&asker, rig);
    fake_clock_await_waiter(&rig->clock);
    atomic_store(&rig->jobs[3].cancelled, true);
    admission_cancel(rig->admission, &rig->jobs[3]);
    pthread_join(asker.thread, NULL);
    assert_int_equal(asker.verdict, ADMISSION_CANCELLED);
    assert_ptr_equal(asker.job, &rig->jobs[3]);
    assert_int_equal(admission_waiting(rig->admission), 1);
    admission_leave(rig->admission, &rig->jobs[0]);
    expect(rig, ADMISSION_ADMITTED, 2);
}

static void closing_hands_back_those_that_wait_and_ends_the_threads(void **state)
{
    struct rig *rig = *state;
    struct asker asker;
    for (int i = 0; i < 4; i++) enter(rig, i);
    expect(rig, ADMISSION_ADMITTED, 0);
    expect(rig, ADMISSION_ADMITTED, 1);
    start_asking(&asker, rig);
    fake_clock_await_waiter(&rig->clock);
    struct job_list left = admission_close(rig->admission);
    pthread_join(asker.thread, NULL);
    assert_int_equal(asker.verdict, ADMISSION_CLOSED);
    assert_int_equal(left.len, 2);
    assert_ptr_equal(left.first, &rig->jobs[2]);
    assert_false(admission_enter(rig->admission, &rig->jobs[5]));
}

/* However many only want their prompt, a preparing thread is left for the others, and the other way round. */
static void prompts_alone_are_admitted_one_at_a_time_and_take_no_permit(void **state)
{
    struct rig *rig = *state;
    struct asker asker;
    for (int i = 0; i < 3; i++) rig->jobs[i].only_prompt = true;
    for (int i = 0; i < 6; i++) enter(rig, i);
    expect(rig, ADMISSION_ADMITTED, 0);
    expect(rig, ADMISSION_ADMITTED, 3);
    expect(rig, ADMISSION_ADMITTED, 4);
    start_asking(&asker, rig);
    fake_clock_await_waiter(&rig->clock);
    admission_leave(rig->admission, &rig->jobs[0]);
    pthread_join(asker.thread, NULL);
    assert_int_equal(asker.verdict, ADMISSION_ADMITTED);
    assert_ptr_equal(asker.job, &rig->jobs[1]);
    admission_leave(rig->admission, &rig->jobs[3]);
    expect(rig, ADMISSION_ADMITTED, 5);
    admission_leave(rig->admission, &rig->jobs[1]);
    expect(rig, ADMISSION_ADMITTED, 2);
}

/* One that is prepared elsewhere does not keep the others; two of them would. */
static void a_prompt_alone_that_is_set_apart_lets_the_next_one_come(void **state)
{
    struct rig *rig = *state;
    struct asker asker;
    for (int i = 0; i < 4; i++) rig->jobs[i].only_prompt = true;
    for (int i = 0; i < 4; i++) enter(rig, i);
    expect(rig, ADMISSION_ADMITTED, 0);
    admission_set_apart(rig->admission, &rig->jobs[0]);
    expect(rig, ADMISSION_ADMITTED, 1);
    admission_set_apart(rig->admission, &rig->jobs[1]); /* has the turn until it ends */
    start_asking(&asker, rig);
    fake_clock_await_waiter(&rig->clock);
    admission_leave(rig->admission, &rig->jobs[0]);
    admission_leave(rig->admission, &rig->jobs[1]);
    pthread_join(asker.thread, NULL);
    assert_ptr_equal(asker.job, &rig->jobs[2]);
    admission_set_apart(rig->admission, &rig->jobs[2]);
    expect(rig, ADMISSION_ADMITTED, 3);
    admission_leave(rig->admission, &rig->jobs[2]);
    admission_leave(rig->admission, &rig->jobs[3]);
}

static void the_first_request_is_admitted_first_whatever_it_asks_for(void **state)
{
    struct rig *rig = *state;
    rig->jobs[1].only_prompt = true;
    for (int i = 0; i < 3; i++) enter(rig, i);
    for (int i = 0; i < 3; i++) expect(rig, ADMISSION_ADMITTED, i);
}

/* ---- Suspended ---- */

static void let_one_in(struct rig *rig)
{
    enter(rig, 0);
    expect(rig, ADMISSION_ADMITTED, 0);
}

static void a_postponed_request_is_looked_at_again_when_others_are_woken(void **state)
{
    struct rig *rig = *state;
    struct asker asker;
    let_one_in(rig);
    int64_t deadline = clock_now(&rig->clock.clock) + SECOND;
    assert_true(admission_postpone(rig->admission, &rig->jobs[0], deadline, admission_wakes(rig->admission)));
    start_asking(&asker, rig);
    fake_clock_await_waiter(&rig->clock); /* no thread waits with it */
    admission_wake(rig->admission);
    pthread_join(asker.thread, NULL);
    assert_int_equal(asker.verdict, ADMISSION_DUE);
    assert_ptr_equal(asker.job, &rig->jobs[0]);
    assert_true(rig->jobs[0].admitted);
}

static void what_came_before_a_request_was_postponed_is_not_missed(void **state)
{
    struct rig *rig = *state;
    let_one_in(rig);
    uint64_t seen = admission_wakes(rig->admission);
    admission_wake(rig->admission);
    assert_true(admission_postpone(rig->admission, &rig->jobs[0], CLOCK_NEVER, seen));
    expect(rig, ADMISSION_DUE, 0);
}

static void a_postponed_request_is_due_at_its_deadline_and_not_before(void **state)
{
    struct rig *rig = *state;
    struct asker asker;
    let_one_in(rig);
    int64_t deadline = clock_now(&rig->clock.clock) + SECOND;
    assert_true(admission_postpone(rig->admission, &rig->jobs[0], deadline, 0));
    start_asking(&asker, rig);
    fake_clock_await_waiter(&rig->clock);
    fake_clock_advance(&rig->clock, SECOND - 1);
    fake_clock_await_waiter(&rig->clock);
    assert_null(asker.job);
    fake_clock_advance(&rig->clock, 1);
    pthread_join(asker.thread, NULL);
    assert_int_equal(asker.verdict, ADMISSION_DUE);
}

static void a_postponed_request_holds_up_nobody_and_can_be_cancelled(void **state)
{
    struct rig *rig = *state;
    let_one_in(rig);
    assert_true(admission_postpone(rig->admission, &rig->jobs[0], CLOCK_NEVER, 0));
    enter(rig, 1);
    expect(rig, ADMISSION_ADMITTED, 1);
    atomic_store(&rig->jobs[0].cancelled, true);
    admission_cancel(rig->admission, &rig->jobs[0]);
    expect(rig, ADMISSION_CANCELLED, 0);
}

static void closing_hands_back_what_is_postponed(void **state)
{
    struct rig *rig = *state;
    let_one_in(rig);
    assert_true(admission_postpone(rig->admission, &rig->jobs[0], CLOCK_NEVER, 0));
    struct job_list left = admission_close(rig->admission);
    assert_int_equal(left.len, 1);
    assert_ptr_equal(left.first, &rig->jobs[0]);
    expect(rig, ADMISSION_CLOSED, -1);
    assert_false(admission_postpone(rig->admission, &rig->jobs[0], CLOCK_NEVER, 0));
}

/* ---- Against a plain queue ---- */

enum { PLAIN_JOBS = 300, PLAIN_PERMITS = 2 };

/* One array in the order of arrival, gone through from the front each time. */
struct plain_queue {
    struct job jobs[PLAIN_JOBS];
    bool waits[PLAIN_JOBS];
    int n, in_use;
    bool prompt_runs;
    int admitted[PLAIN_PERMITS + 1], n_admitted; /* those that have not left */
};

static bool fits(const struct plain_queue *queue, const struct job *job)
{
    return job->only_prompt ? !queue->prompt_runs : queue->in_use < PLAIN_PERMITS;
}

/* The job that a verdict is due for, and which. -1: none. */
static int plain_decision(const struct plain_queue *queue, int64_t now, enum admission_verdict *verdict)
{
    for (int pass = 0; pass < 3; pass++)
        for (int i = 0; i < queue->n; i++) {
            const struct job *job = &queue->jobs[i];
            bool late = !job->patient && now >= job->submitted_at + 30 * SECOND;
            const bool holds[] = {job_is_cancelled(job), fits(queue, job), late};
            *verdict =
                (const enum admission_verdict[]){ADMISSION_CANCELLED, ADMISSION_ADMITTED, ADMISSION_EXPIRED}[pass];
            if (queue->waits[i] && holds[pass]) return i;
        }
    return -1;
}

static void plain_admit(struct plain_queue *queue, int i)
{
    queue->admitted[queue->n_admitted++] = i;
    if (queue->jobs[i].only_prompt)
        queue->prompt_runs = true;
    else
        queue->in_use++;
}

static void plain_leave(struct rig *rig, struct plain_queue *queue)
{
    if (queue->n_admitted == 0) return;
    struct job *job = &queue->jobs[queue->admitted[--queue->n_admitted]];
    if (job->only_prompt)
        queue->prompt_runs = false;
    else
        queue->in_use--;
    admission_leave(rig->admission, job);
}

static void plain_enter(struct rig *rig, struct plain_queue *queue, int kind)
{
    if (queue->n == PLAIN_JOBS) return;
    struct job *job = &queue->jobs[queue->n];
    job->only_prompt = kind % 2 == 1;
    job->patient = kind / 2 % 2 == 1;
    job->submitted_at = clock_now(&rig->clock.clock);
    queue->waits[queue->n++] = true;
    assert_true(admission_enter(rig->admission, job));
}

static void plain_cancel(struct rig *rig, struct plain_queue *queue, int i)
{
    if (queue->n == 0) return;
    struct job *job = &queue->jobs[i % queue->n];
    atomic_store(&job->cancelled, true);
    admission_cancel(rig->admission, job);
}

/* Each verdict that is due, as the plain queue has it. Which of two cancelled ones comes first does not matter. */
static void expect_plain(struct rig *rig, struct plain_queue *queue)
{
    enum admission_verdict wanted, verdict;
    for (int i; (i = plain_decision(queue, clock_now(&rig->clock.clock), &wanted)) >= 0;) {
        struct job *job = NULL;
        verdict = admission_next(rig->admission, &job);
        assert_int_equal(verdict, wanted);
        if (verdict != ADMISSION_CANCELLED) assert_ptr_equal(job, &queue->jobs[i]);
        assert_int_equal(verdict == ADMISSION_CANCELLED, job_is_cancelled(job));
        queue->waits[job - queue->jobs] = false;
        if (verdict == ADMISSION_ADMITTED) plain_admit(queue, i);
    }
}

static void any_coming_and_leaving_gives_what_a_plain_queue_gives(void **state)
{
    struct rig *rig = *state;
    struct plain_queue *queue = calloc(1, sizeof *queue);
    unsigned seed = 44;
    for (int step = 0; step < 3000; step++) {
        seed = seed * 1103515245 + 12345;
        int draw = (int)(seed >> 16 & 0x7fff);
        if (draw % 8 < 4)
            plain_enter(rig, queue, draw / 8);
        else if (draw % 8 == 4)
            plain_cancel(rig, queue, draw / 8);
        else if (draw % 8 == 5)
            fake_clock_advance(&rig->clock, draw / 8 % 7 * SECOND);
        else
            plain_leave(rig, queue);
        if (draw / 64 % 3 == 0) expect_plain(rig, queue);
    }
    expect_plain(rig, queue);
    assert_int_equal(queue->n, PLAIN_JOBS);
    free(queue);
}

/* ---- Many ---- */

/* Nanoseconds for each of `n` jobs to come and to leave, the last one first. */
static double cost_of_leaving(struct rig *rig, size_t n)
{
    struct job *jobs = calloc(n, sizeof *jobs), *job;
    int64_t from = clock_now(clock_monotonic());
    for (size_t i = 0; i < n; i++) assert_true(admission_enter(rig->admission, &jobs[i]));
    for (size_t i = n; i-- > 0;) {
        atomic_store(&jobs[i].cancelled, true);
        admission_cancel(rig->admission, &jobs[i]);
    }
    for (size_t i = 0; i < n; i++) assert_int_equal(admission_next(rig->admission, &job), ADMISSION_CANCELLED);
    double cost = (double)(clock_now(clock_monotonic()) - from) / (double)n;
    free(jobs);
    return cost;
}

static void leaving_costs_the_same_however_many_wait(void **state)
{
    double few = cost_of_leaving(*state, 1000), many = cost_of_leaving(*state, 64000);
    if (many > 16 * few) fail_msg("%.0f ns each of 1000, %.0f ns each of 64000", few, many);
}

#define admission_test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        admission_test(requests_are_admitted_in_order_while_there_are_permits),
        admission_test(a_request_waits_until_a_permit_is_free),
        admission_test(a_request_that_waited_too_long_expires_and_not_before),
        admission_test(a_request_whose_client_gave_up_does_not_wait_for_its_turn),
        admission_test(prompts_alone_are_admitted_one_at_a_time_and_take_no_permit),
        admission_test(a_prompt_alone_that_is_set_apart_lets_the_next_one_come),
        admission_test(the_first_request_is_admitted_first_whatever_it_asks_for),
        admission_test(closing_hands_back_those_that_wait_and_ends_the_threads),
        admission_test(a_postponed_request_is_looked_at_again_when_others_are_woken),
        admission_test(what_came_before_a_request_was_postponed_is_not_missed),
        admission_test(a_postponed_request_is_due_at_its_deadline_and_not_before),
        admission_test(a_postponed_request_holds_up_nobody_and_can_be_cancelled),
        admission_test(closing_hands_back_what_is_postponed),
        admission_test(any_coming_and_leaving_gives_what_a_plain_queue_gives),
        admission_test(leaving_costs_the_same_however_many_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
