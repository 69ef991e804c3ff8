/* The slow lane: each job once, as many at a time as it has threads; who waits when it closes is told so. */
#include "instance/requests/preparing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

enum { N = 2 * SLOW_LANE_THREADS };

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static const struct job *prepared[N];
static int n_prepared, n_failed;
static bool held;

static void prepare(struct job *job)
{
    pthread_mutex_lock(&gate);
    prepared[n_prepared++] = job;
    pthread_cond_broadcast(&changed);
    while (held) pthread_cond_wait(&changed, &gate);
    pthread_mutex_unlock(&gate);
}

static void on_event(void *ud, const hearth_event *event)
{
    (void)ud;
    n_failed += event->type == HEARTH_EVENT_FAILED && event->error->code == HEARTH_UNAVAILABLE;
}

static void on_end(struct job *job)
{
    (void)job;
}

static struct slow_lane *open_with(struct job jobs[N], bool hold)
{
    hearth_error error;
    struct slow_lane *lane = slow_lane_open(prepare, &error);
    assert_non_null(lane);
    n_prepared = n_failed = 0;
    held = hold;
    memset(jobs, 0, N * sizeof *jobs);
    for (int i = 0; i < N; i++) {
        jobs[i].on_event = on_event;
        jobs[i].on_end = on_end;
        slow_lane_add(lane, &jobs[i]);
    }
    return lane;
}

static void await_prepared(int n)
{
    pthread_mutex_lock(&gate);
    while (n_prepared < n) pthread_cond_wait(&changed, &gate);
    pthread_mutex_unlock(&gate);
}

static void each_job_is_prepared_once(void **state)
{
    (void)state;
    struct job jobs[N];
    struct slow_lane *lane = open_with(jobs, false);
    await_prepared(N);
    slow_lane_close(lane);
    for (int i = 0; i < N; i++) {
        int times = 0;
        for (int k = 0; k < N; k++) times += prepared[k] == &jobs[i];
        assert_int_equal(times, 1);
    }
    assert_int_equal(n_failed, 0);
}

static void let_go(void)
{
    pthread_mutex_lock(&gate);
    held = false;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&gate);
}

static void who_waits_at_the_end_is_told(void **state)
{
    (void)state;
    struct job jobs[N];
    struct slow_lane *lane = open_with(jobs, true);
    await_prepared(SLOW_LANE_THREADS); /* all of them hang */
    assert_int_equal(n_prepared, SLOW_LANE_THREADS);
    slow_lane_stop(lane); /* which waits for nobody */
    assert_int_equal(n_failed, N - SLOW_LANE_THREADS);
    let_go();
    slow_lane_close(lane);
    assert_int_equal(n_prepared, SLOW_LANE_THREADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_job_is_prepared_once),
                                       cmocka_unit_test(who_waits_at_the_end_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
