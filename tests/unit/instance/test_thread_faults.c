/* Threads that cannot be started: whichever of an instance's threads it is, the start, the load or the request fails
 * with a line that says what to do; nothing hangs, and the next attempt works. */
#include "support.h"

#include "fakes/fake_threads.h"

#include <unistd.h>

static char *folder, *bert;

static int make_things(void **state)
{
    (void)state;
    folder = mem_format("%s/unit-lib-XXXXXX", getenv("HEARTH_BUILD"));
    assert_non_null(mkdtemp(folder));
    bert = mem_format("%s/bert.gguf", folder);
    char *command = mem_format("'%s/bin/hearth-mkmodel' --arch bert --vocab bert-bge -o '%s' >/dev/null",
                               getenv("HEARTH_BUILD"), bert);
    assert_int_equal(system(command), 0);
    free(command);
    return 0;
}

static int remove_things(void **state)
{
    (void)state;
    char *command = mem_format("rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
    free(command);
    free(folder);
    free(bert);
    return 0;
}

static void assert_no_thread(const hearth_error *error)
{
    assert_int_equal(error->code, HEARTH_NO_MEMORY);
    assert_says(error->message, "cannot start the thread that ");
    assert_says(error->message, "raise the limit of threads");
    assert_null(strchr(error->message, '\n'));
}

/* A chat model, an embedding model, and a store with all its tiers. */
static hearth_config *everything(void)
{
    hearth_config *config = DEMO("n_seq_max", "2");
    char *disk = mem_format("%s/disk", folder), *ram_file = mem_format("%s/ram_file", folder);
    set(config, "models.bert.path", bert);
    set(config, "models.bert.threads", "1");
    set(config, "models.bert.n_seq_max", "2");
    set(config, "cache.tiers.disk.quota_mb", "64");
    set(config, "cache.tiers.disk.path", disk);
    set(config, "cache.tiers.ram_file.quota_mb", "64");
    set(config, "cache.tiers.ram_file.path", ram_file);
    set(config, "cache.save_tier", "ram");
    free(disk);
    free(ram_file);
    return config;
}

/* Whether it was opened and loaded; closes it. */
static bool comes_up(const hearth_config *config, hearth_error *error)
{
    hearth *instance = hearth_open(config, error);
    bool up = instance != NULL && hearth_load(instance, NULL, NULL, error) == HEARTH_OK;
    hearth_close(instance);
    return up;
}

/* Runs first: once it is started, the log's thread stays. */
static void a_log_without_its_thread_is_not_opened(void **state)
{
    (void)state;
    hearth_error error = {0};
    fake_threads_fail(1);
    assert_int_equal(hearth_log_open(NULL, "error", "text", &error), HEARTH_NO_MEMORY);
    assert_no_thread(&error);
    fake_threads_fail(0);
    assert_int_equal(hearth_log_open(NULL, "error", "text", &error), HEARTH_OK);
}

static void every_thread_of_the_start_is_needed(void **state)
{
    (void)state;
    hearth_config *config = everything();
    hearth_error error;
    int nth = 0;
    do {
        fake_threads_fail(++nth);
        error = (hearth_error){0};
        if (!comes_up(config, &error)) assert_no_thread(&error);
    } while (error.code != HEARTH_OK);
    assert_int_equal(fake_threads_calls(), nth - 1);
    assert_true(nth > 20); /* of the store, its three tiers, the models, and the manager */
    fake_threads_fail(0);
    hearth_config_free(config);
}

/* Loads with one more thread each time, until it succeeds. Returns how often the missing thread was llama.cpp's. */
static int missed_by_llama(const hearth_config *config)
{
    hearth_error error;
    int more = -1, missed = 0;
    do {
        fake_threads_allow(++more);
        error = (hearth_error){0};
        if (!comes_up(config, &error)) assert_no_thread(&error);
        missed += strstr(error.message, " threads to compute with (models.*.threads): ") != NULL;
    } while (error.code != HEARTH_OK);
    fake_threads_allow(-1);
    return missed;
}

/* llama.cpp would end the process where it lacks a thread. It gets no more than there are processors. Which thread is
 * the first to be missing depends on whether short-lived threads of the start still run: it may take a few rounds until
 * it is one of llama.cpp's. */
static void threads_that_compute_are_had_or_the_load_fails(void **state)
{
    (void)state;
    hearth_config *config = DEMO("threads", "5");
    bool missed = sysconf(_SC_NPROCESSORS_ONLN) == 1;
    for (int round = 0; round < 20 && !missed; round++) missed = missed_by_llama(config) > 0;
    assert_true(missed);
    hearth_config_free(config);
}

static void nothing_is_left_waiting_where_the_model_manager_has_no_threads(void **state)
{
    (void)state;
    struct caller caller;
    hearth_error error = {0};
    hearth_config *config = DEMO("load", "demand");
    hearth_params params = text_params("Once upon a time", 3);
    bool failed;
    int nth = 0;
    do {
        hearth *instance = hearth_open(config, &error);
        assert_non_null(instance);
        fake_threads_fail(++nth);
        failed = hearth_load(instance, NULL, NULL, &error) != HEARTH_OK;
        if (failed) {
            assert_no_thread(&error);
            caller_init(&caller);
            assert_null(hearth_submit(instance, &params, caller_event, &caller, &error));
            assert_int_equal(error.code, HEARTH_UNAVAILABLE);
        }
        hearth_close(instance);
    } while (failed);
    assert_true(nth > 2); /* two of them are the model manager's, the others look at the model's tokenizer */
    fake_threads_fail(0);
    hearth_config_free(config);
}

static void assert_served(hearth *instance, struct caller *caller)
{
    hearth_params params = text_params("Once upon a time", 3);
    run(caller, instance, &params);
    if (caller->failed) fail_msg("%s", caller->error.message);
}

static void let_go(struct caller *caller)
{
    hearth_request_release(caller->request);
    buf_release(&caller->text);
    caller->request = NULL;
}

/* Waits until it has no lease. */
static void unload(hearth *instance)
{
    hearth_error error;
    while (hearth_unload_model(instance, "demo", &error) == HEARTH_BUSY) continue;
    assert_int_equal(hearth_await_model(instance, "demo", &error), HEARTH_OK);
}

static void a_later_load_fails_its_requests_and_the_next_one_works(void **state)
{
    (void)state;
    struct caller caller;
    hearth_params params = text_params("Once upon a time", 3);
    hearth *instance = start(DEMO("load", "demand"));
    int nth = 0;
    bool failed;
    do {
        fake_threads_fail(++nth);
        run(&caller, instance, &params);
        failed = caller.failed;
        if (failed) assert_says(caller.error.message, "model 'demo' could not be loaded: ");
        if (failed) assert_no_thread(&caller.error);
        let_go(&caller);
        fake_threads_fail(0);
        if (failed) {
            assert_served(instance, &caller);
            let_go(&caller);
        }
        unload(instance);
    } while (failed);
    assert_true(nth > 3); /* the engine's, and those that prepare */
    hearth_close(instance);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_log_without_its_thread_is_not_opened),
        cmocka_unit_test(every_thread_of_the_start_is_needed),
        cmocka_unit_test(threads_that_compute_are_had_or_the_load_fails),
        cmocka_unit_test(nothing_is_left_waiting_where_the_model_manager_has_no_threads),
        cmocka_unit_test(a_later_load_fails_its_requests_and_the_next_one_works),
    };
    return cmocka_run_group_tests(tests, make_things, remove_things);
}
