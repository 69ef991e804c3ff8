/* Requests that end early: cancelled, drained, or by hearth_close(). */
#include "support.h"

/* A window that no reply fills within the time of a test. */
#define LONG_WINDOW "context_window", "16384", "rope_scaling", "linear"

/* ---- Cancelling ---- */

static void a_running_request_ends_when_cancelled_from_its_own_event(void **state)
{
    (void)state;
    hearth *instance = start(DEMO(NULL));
    struct caller callers[2];
    hearth_params params = text_params("Once", HEARTH_UNSET);
    params.sampling.ignore_eos = true;
    caller_init(&callers[0]);
    callers[0].cancel_at = 3;
    caller_submit(&callers[0], instance, &params);
    caller_await_end(&callers[0]);
    assert_true(callers[0].failed);
    assert_int_equal(callers[0].error.code, HEARTH_CANCELLED);
    assert_in_range(callers[0].n_tokens, 3, 4);
    hearth_cancel(callers[0].request); /* after the end it does nothing */
    params = chat_params(CODE_QUESTION);
    run(&callers[1], instance, &params);
    assert_says(callers[1].text.v, "QX7B2");
    hearth_cancel(callers[1].request);
    assert_false(callers[1].failed);
    end(instance, callers, 2);
}

/* Cancelled one by one, the last first, so that the preparing threads are asleep when most of them are cancelled. */
static void requests_that_wait_for_admission_end_at_once_when_cancelled(void **state)
{
    (void)state;
    enum { WAITING = 20 };
    hearth *instance = start(DEMO("queue_depth", "1"));
    struct caller callers[1 + WAITING];
    hearth_params params = chat_params(CODE_QUESTION);
    submit_holding(&callers[0], instance);
    for (int i = 1; i <= WAITING; i++) {
        caller_init(&callers[i]);
        caller_submit(&callers[i], instance, &params);
    }
    for (int i = WAITING; i > 0; i--) {
        hearth_cancel(callers[i].request);
        caller_await_end(&callers[i]); /* while the engine thread is blocked */
        assert_int_equal(callers[i].error.code, HEARTH_CANCELLED);
        assert_int_equal(callers[i].n_started, 0);
        if (i > 1) assert_false(caller_ended(&callers[i - 1]));
    }
    assert_false(caller_ended(&callers[0]));
    hearth_cancel(callers[0].request);
    caller_let_go(&callers[0]);
    caller_await_end(&callers[0]);
    end(instance, callers, 1 + WAITING);
}

static void a_request_that_waits_for_a_slot_never_starts_when_cancelled(void **state)
{
    (void)state;
    hearth *instance = start(DEMO("queue_depth", "2"));
    struct caller callers[3];
    hearth_params params = chat_params(CODE_QUESTION);
    submit_holding(&callers[0], instance);
    for (int i = 1; i < 3; i++) {
        caller_init(&callers[i]);
        caller_submit(&callers[i], instance, &params);
    }
    hearth_cancel(callers[1].request);
    hearth_cancel(callers[0].request);
    caller_let_go(&callers[0]);
    for (int i = 0; i < 3; i++) caller_await_end(&callers[i]);
    assert_int_equal(callers[1].error.code, HEARTH_CANCELLED);
    assert_int_equal(callers[1].n_started, 0);
    assert_false(callers[2].failed);
    assert_says(callers[2].text.v, "QX7B2");
    end(instance, callers, 3);
}

static void a_handle_released_early_does_not_stop_the_events(void **state)
{
    (void)state;
    hearth *instance = start(DEMO(NULL));
    struct caller caller;
    hearth_params params = chat_params(CODE_QUESTION);
    caller_init(&caller);
    caller_submit(&caller, instance, &params);
    hearth_request_release(caller.request);
    caller.request = NULL;
    caller_await_end(&caller);
    assert_false(caller.failed);
    assert_says(caller.text.v, "QX7B2");
    end(instance, &caller, 1);
}

static void an_instance_can_be_closed_while_requests_run(void **state)
{
    (void)state;
    hearth *instance = start(DEMO("n_seq_max", "2", "queue_depth", "1", LONG_WINDOW));
    struct caller callers[4];
    hearth_params params = text_params("Once", HEARTH_UNSET);
    params.sampling.ignore_eos = true;
    for (int i = 0; i < 4; i++) {
        caller_init(&callers[i]);
        caller_submit(&callers[i], instance, &params);
        if (i < 2) caller_await_tokens(&callers[i], 1);
    }
    for (int i = 0; i < 4; i++) {
        hearth_request_release(callers[i].request);
        callers[i].request = NULL;
    }
    end(instance, callers, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(callers[i].error.code, HEARTH_UNAVAILABLE);
        assert_string_equal(callers[i].error.message, "engine shutting down");
    }
}

/* ---- Draining ---- */

struct drain {
    hearth *instance;
    int64_t timeout_ms;
};

static void *drain(void *ud)
{
    const struct drain *drain = ud;
    hearth_drain(drain->instance, drain->timeout_ms);
    return NULL;
}

static void draining_fails_what_waits_lets_finish_what_runs_and_admits_no_more(void **state)
{
    (void)state;
    hearth *instance = start(DEMO("queue_depth", "1"));
    struct caller callers[4];
    hearth_params params = text_params("Once", 20);
    params.sampling.ignore_eos = true;
    caller_init(&callers[0]);
    callers[0].hold = true;
    caller_submit(&callers[0], instance, &params);
    caller_await_tokens(&callers[0], 1);
    for (int i = 1; i < 4; i++) {
        caller_init(&callers[i]);
        caller_submit(&callers[i], instance, &params);
    }
    struct drain patient = {.instance = instance, .timeout_ms = 100000};
    pthread_t thread;
    pthread_create(&thread, NULL, drain, &patient);
    for (int i = 1; i < 4; i++) caller_await_end(&callers[i]); /* while the engine thread is blocked */
    hearth_error error;
    assert_null(hearth_submit(instance, &params, caller_event, NULL, &error));
    assert_int_equal(error.code, HEARTH_UNAVAILABLE);
    assert_string_equal(error.message, "submit: engine shutting down");
    assert_false(caller_ended(&callers[0]));
    caller_let_go(&callers[0]);
    pthread_join(thread, NULL);
    assert_true(caller_ended(&callers[0])); /* when the drain returns, all have ended */
    assert_false(callers[0].failed);
    assert_int_equal(callers[0].n_tokens, 20);
    for (int i = 1; i < 4; i++) {
        assert_true(callers[i].failed);
        assert_int_equal(callers[i].error.code, HEARTH_UNAVAILABLE);
        assert_says(callers[i].error.message, "engine shutting down");
        assert_int_equal(callers[i].n_started, 0);
    }
    end(instance, callers, 4);
}

static void a_drain_without_patience_ends_what_runs(void **state)
{
    (void)state;
    hearth *instance = start(DEMO(LONG_WINDOW));
    struct caller caller;
    hearth_params params = text_params("Once", HEARTH_UNSET);
    params.sampling.ignore_eos = true;
    caller_init(&caller);
    caller_submit(&caller, instance, &params);
    caller_await_tokens(&caller, 1);
    hearth_drain(instance, 0);
    assert_true(caller_ended(&caller));
    assert_int_equal(caller.error.code, HEARTH_UNAVAILABLE);
    hearth_drain(instance, 0); /* once more is fine */
    end(instance, &caller, 1);
}

/* Shuts its gate in the event that a preparing thread emits. */
struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool reached, open;
};

static void wait_at_gate(void *ud, const hearth_event *event)
{
    struct gate *gate = ud;
    pthread_mutex_lock(&gate->mutex);
    gate->reached = true;
    pthread_cond_broadcast(&gate->changed);
    while (event->type == HEARTH_EVENT_PROMPT && !gate->open) pthread_cond_wait(&gate->changed, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
}

static void a_drain_waits_for_no_preparation_that_does_not_end(void **state)
{
    (void)state;
    hearth *instance = start(DEMO(LONG_WINDOW));
    struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false};
    struct caller caller;
    hearth_params params = text_params("Once", HEARTH_UNSET), prompt = text_params("Once", 1);
    params.sampling.ignore_eos = true;
    prompt.only_prompt = true;
    caller_init(&caller);
    caller_submit(&caller, instance, &params);
    caller_await_tokens(&caller, 1);
    hearth_error error;
    hearth_request *stuck = hearth_submit(instance, &prompt, wait_at_gate, &gate, &error);
    assert_non_null(stuck);
    pthread_mutex_lock(&gate.mutex);
    while (!gate.reached) pthread_cond_wait(&gate.changed, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
    hearth_drain(instance, 0);
    assert_true(caller_ended(&caller));
    pthread_mutex_lock(&gate.mutex);
    gate.open = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
    assert_int_equal(hearth_wait(stuck, NULL), HEARTH_CANCELLED);
    hearth_request_release(stuck);
    end(instance, &caller, 1);
}

/* ---- */

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_running_request_ends_when_cancelled_from_its_own_event),
        cmocka_unit_test(requests_that_wait_for_admission_end_at_once_when_cancelled),
        cmocka_unit_test(a_request_that_waits_for_a_slot_never_starts_when_cancelled),
        cmocka_unit_test(a_handle_released_early_does_not_stop_the_events),
        cmocka_unit_test(an_instance_can_be_closed_while_requests_run),
        cmocka_unit_test(a_drain_waits_for_no_preparation_that_does_not_end),
        cmocka_unit_test(draining_fails_what_waits_lets_finish_what_runs_and_admits_no_more),
        cmocka_unit_test(a_drain_without_patience_ends_what_runs),
    };
    hearth_log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
