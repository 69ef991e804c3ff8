/* The library waits for a hung disk as long as its configuration says. This program's fsync() and fdatasync() replace
 * the machine's, and block as long as the test wants. */
#include "support.h"

#include "base/clock.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool closed;
static int n_waiting;

static void pass_gate(void)
{
    pthread_mutex_lock(&gate);
    n_waiting++;
    pthread_cond_broadcast(&changed);
    while (closed) pthread_cond_wait(&changed, &gate);
    n_waiting--;
    pthread_mutex_unlock(&gate);
}

int fsync(int fd)
{
    pass_gate();
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    pass_gate();
    return (int)syscall(SYS_fdatasync, fd);
}

static void set_closed(bool now)
{
    pthread_mutex_lock(&gate);
    closed = now;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&gate);
}

/* Waits until a save is blocked. */
static void await_save(void)
{
    pthread_mutex_lock(&gate);
    while (n_waiting == 0) pthread_cond_wait(&changed, &gate);
    pthread_mutex_unlock(&gate);
}

static double now_ms(void)
{
    return clock_to_ms(clock_now(clock_monotonic()));
}

/* ---- Instances ---- */

static char folder[64];

static hearth_config *slow_config(const char *key, const char *value)
{
    snprintf(folder, sizeof folder, "/tmp/hearth-slow-XXXXXX");
    assert_non_null(mkdtemp(folder));
    hearth_config *config = DEMO(NULL);
    set(config, "cache.tiers.disk.quota_mb", "64");
    set(config, "cache.tiers.disk.path", folder);
    set(config, "cache.boundary_align_tokens", "16");
    set(config, key, value);
    return config;
}

static hearth *start_with(const char *key, const char *value)
{
    return start(slow_config(key, value));
}

static void end_of(hearth *instance, struct caller *callers, size_t n)
{
    end(instance, callers, n);
    char *command = mem_format("rm -r %s", folder);
    assert_int_equal(system(command), 0);
    free(command);
}

#define STORY                                                                                                          \
    "Once upon a time there was a house near the river, and in the house there lived a cat who knew all the stories "  \
    "that the river told, and every evening it sat at the water and listened to one more of them until it fell "       \
    "asleep."

/* A request whose save is in progress when it has ended. */
static void ask_and_save(hearth *instance, struct caller *caller)
{
    hearth_params params = text_params(STORY, 4);
    params.sampling.ignore_eos = true;
    set_closed(true);
    run(caller, instance, &params);
    assert_false(caller->failed);
    await_save();
    hearth_request_release(caller->request);
    caller->request = NULL;
}

/* Waits for the condition; false: it did not hold within so many milliseconds. */
static bool comes_within(double ms, bool (*condition)(void *ud), void *ud)
{
    double last = now_ms() + ms;
    while (!condition(ud)) {
        if (now_ms() > last) return false;
        sched_yield();
    }
    return true;
}

/* ---- Keys ---- */

static bool is_unloaded(void *ud)
{
    hearth_model_info info;
    return hearth_model(ud, 0, &info) && info.state == HEARTH_MODEL_UNLOADED;
}

static void unloading_waits_for_the_disk_as_long_as_configured(void **state)
{
    (void)state;
    struct caller caller;
    hearth_error error;
    hearth *instance = start_with("cache.evict_save_timeout_ms", "1500");
    double begun = now_ms();
    ask_and_save(instance, &caller);
    while (hearth_unload_model(instance, "demo", &error) == HEARTH_BUSY)
        sched_yield();                                          /* the request still has its lease */
    bool unloaded = comes_within(15000, is_unloaded, instance); /* half of the default */
    double took = now_ms() - begun;
    set_closed(false);
    assert_true(unloaded);
    if (took < 1500) fail_msg("it waited for %.0f ms", took);
    end_of(instance, &caller, 1);
}

static bool has_ended(void *ud)
{
    return caller_ended(ud);
}

static void a_request_waits_for_its_parent_as_long_as_configured(void **state)
{
    (void)state;
    struct caller callers[2];
    hearth *instance = start_with("cache.session_resume_wait_ms", "1500");
    ask_and_save(instance, &callers[0]);
    hearth_params params = text_params(STORY, 4);
    params.parent_key = "00000000000000000000000000000000000000000000000000000000000000aa";
    double begun = now_ms();
    caller_init(&callers[1]);
    caller_submit(&callers[1], instance, &params);
    bool ended = comes_within(20000, has_ended, &callers[1]);
    double took = now_ms() - begun;
    set_closed(false);
    caller_await_end(&callers[1]);
    assert_true(ended && !callers[1].failed);
    if (took < 1500) fail_msg("it waited for %.0f ms", took);
    end_of(instance, callers, 2);
}

/* More of them than preparing threads. */
static void who_waits_for_a_parent_holds_up_nobody_else(void **state)
{
    (void)state;
    struct caller callers[5];
    hearth_config *config = slow_config("cache.session_resume_wait_ms", "20000");
    set(config, "models.demo.n_seq_max", "4");
    hearth *instance = start(config);
    ask_and_save(instance, &callers[0]);
    hearth_params waits = text_params(STORY, 4), other = text_params("The river", 4);
    waits.parent_key = "00000000000000000000000000000000000000000000000000000000000000aa";
    double begun = now_ms();
    for (int i = 1; i < 4; i++) {
        caller_init(&callers[i]);
        caller_submit(&callers[i], instance, &waits);
    }
    run(&callers[4], instance, &other);
    bool waiting = !caller_ended(&callers[1]) && !caller_ended(&callers[2]) && !caller_ended(&callers[3]);
    set_closed(false);
    for (int i = 1; i < 4; i++) caller_await_end(&callers[i]);
    double took = now_ms() - begun;
    assert_true(waiting);
    for (int i = 1; i < 5; i++) assert_false(callers[i].failed);
    if (took > 10000) fail_msg("it took %.0f ms", took);
    end_of(instance, callers, 5);
}

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unloading_waits_for_the_disk_as_long_as_configured),
        cmocka_unit_test(a_request_waits_for_its_parent_as_long_as_configured),
        cmocka_unit_test(who_waits_for_a_parent_holds_up_nobody_else),
    };
    hearth_log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
