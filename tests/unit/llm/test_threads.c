/* The threads that compute: how many, on which CPUs, with which priority. What they have is read from the system. */
#include "support.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 64, N = 20 };

static cpu_set_t process; /* CPUs that this one may run on */
static size_t first_cpu, last_cpu;

static void list_tasks(pid_t tasks[MOST], int *n)
{
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    *n = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.' && *n < MOST) tasks[(*n)++] = (pid_t)strtol(entry->d_name, NULL, 10);
    closedir(folder);
}

/* What a context's threads have while it is open. */
struct look {
    struct llm_model *model;
    struct llm_threads threads;
    cpu_set_t at_open, after; /* of the thread that opens it and computes: before it computes, and then */
    int n_workers;            /* threads that are new */
    cpu_set_t cpus[MOST];
    int policies[MOST], priorities[MOST];
    int policy, policy_at_open; /* of the thread that opens it and computes */
};

/* On a thread of its own, since that gets the CPUs and the priority as well. */
static void *compute(void *ud)
{
    struct look *look = ud;
    pid_t before[MOST], all[MOST];
    int n_before, n_all;
    list_tasks(before, &n_before);
    struct llm_context_params params = context_params(256, 1);
    params.threads = look->threads;
    struct llm_context *context = open_context(look->model, &params);
    sched_getaffinity(0, sizeof look->at_open, &look->at_open);
    look->policy_at_open = sched_getscheduler(0);
    llm_begin_computing(context);
    look->policy = sched_getscheduler(0);
    struct tokens tokens = prompt_of(look->model, N);
    assert_int_equal(decode_range(context, &tokens, 0, 0, N, N), LLM_DECODED);
    sched_getaffinity(0, sizeof look->after, &look->after);
    list_tasks(all, &n_all);
    for (int i = 0; i < n_all; i++) {
        bool is_new = true;
        struct sched_param param;
        for (int k = 0; k < n_before; k++) is_new = is_new && all[i] != before[k];
        if (!is_new) continue;
        /* One that has ended just now may still be listed. */
        if (sched_getaffinity(all[i], sizeof(cpu_set_t), &look->cpus[look->n_workers]) != 0) continue;
        sched_getparam(all[i], &param);
        look->policies[look->n_workers] = sched_getscheduler(all[i]);
        look->priorities[look->n_workers++] = param.sched_priority;
    }
    tokens_release(&tokens);
    llm_context_close(context);
    return NULL;
}

static void look_at(struct look *look)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, compute, look), 0);
    pthread_join(thread, NULL);
}

static bool is_cpu(const cpu_set_t *set, size_t cpu)
{
    return CPU_COUNT(set) == 1 && CPU_ISSET(cpu, set);
}

/* ---- The tests ---- */

static void threads_run_on_their_cpus(void **state)
{
    char list[32];
    snprintf(list, sizeof list, "%zu,%zu", first_cpu, last_cpu);
    struct look look = {.model = *state, .threads = {.n = 2, .cpus = list}};
    look_at(&look);
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    CPU_SET(first_cpu, &wanted);
    CPU_SET(last_cpu, &wanted);
    assert_true(CPU_EQUAL(&look.after, &wanted));
    assert_int_equal(look.n_workers, first_cpu == last_cpu ? 0 : 1);
    for (int i = 0; i < look.n_workers; i++) assert_true(CPU_EQUAL(&look.cpus[i], &wanted));
}

static void a_thread_that_opens_a_context_stays_where_it_was(void **state)
{
    char list[16];
    snprintf(list, sizeof list, "%zu", last_cpu);
    struct look look = {.model = *state, .threads = {.cpus = list}};
    look_at(&look);
    assert_true(CPU_EQUAL(&look.at_open, &process));
    assert_true(is_cpu(&look.after, last_cpu));
}

static void strictly_each_has_one(void **state)
{
    struct look look = {.model = *state, .threads = {.n = 2, .strict = true}};
    look_at(&look);
    if (first_cpu == last_cpu) {
        assert_true(is_cpu(&look.after, first_cpu));
        return;
    }
    assert_int_equal(look.n_workers, 1);
    assert_true(is_cpu(&look.cpus[0], first_cpu));
    assert_int_equal(CPU_COUNT(&look.after), 1);
    assert_false(CPU_EQUAL(&look.after, &look.cpus[0]));
}

static void without_a_list_nothing_is_set(void **state)
{
    struct look look = {.model = *state, .threads = {.n = 2}};
    look_at(&look);
    assert_true(CPU_EQUAL(&look.after, &process));
    for (int i = 0; i < look.n_workers; i++) {
        assert_true(CPU_EQUAL(&look.cpus[i], &process));
        assert_int_equal(look.policies[i], SCHED_OTHER);
    }
}

static void there_are_no_more_threads_than_cpus_in_the_list(void **state)
{
    (void)state;
    char one[16], both[32];
    snprintf(one, sizeof one, "%zu", last_cpu);
    snprintf(both, sizeof both, "%zu-%zu", first_cpu, last_cpu);
    assert_int_equal(llm_count_threads(&(struct llm_threads){.n = 64, .cpus = one}), 1);
    assert_int_equal(llm_count_threads(&(struct llm_threads){.cpus = one}), 1);
    assert_in_range(llm_count_threads(&(struct llm_threads){.n = 64, .cpus = both}), 1, CPU_COUNT(&process));
    assert_int_equal(llm_count_threads(&(struct llm_threads){.n = 1024}), CPU_COUNT(&process));
}

static void wrong_lists_are_refused_by_name(void **state)
{
    static const char *const wrong[] = {"",    "a",    "-1",  "1-",   "0-1-2", "2-1",   "0,",  ",0",
                                        "0 1", "0x1f", "512", "0--1", "+1",    "0-999", "1e1", "99999999999999999999"};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        hearth_error error = {0};
        assert_int_equal(llm_check_threads(&(struct llm_threads){.cpus = wrong[i]}, &error), HEARTH_INVALID);
        assert_string_equal(error.param, "cpus");
        assert_non_null(strstr(error.message, "as in 0-7,16"));
    }
}

static void cpus_that_are_not_there_are_named_with_those_that_are(void **state)
{
    hearth_error error = {0};
    char list[16], all[32];
    size_t absent = 0;
    (void)state;
    while (CPU_ISSET(absent, &process)) absent++;
    snprintf(list, sizeof list, "%zu", absent);
    assert_int_equal(llm_check_threads(&(struct llm_threads){.cpus = list}, &error), HEARTH_INVALID);
    assert_string_equal(error.param, "cpus");
    snprintf(all, sizeof all, "it has %zu", first_cpu);
    assert_non_null(strstr(error.message, all));
    assert_int_equal(llm_check_threads(&(struct llm_threads){0}, &error), HEARTH_OK);
}

static void low_threads_give_way(void **state)
{
    struct look look = {.model = *state, .threads = {.n = 2, .priority = "low"}};
    look_at(&look);
    assert_int_equal(look.policy_at_open, SCHED_OTHER);
    assert_int_equal(look.policy, SCHED_BATCH);
    for (int i = 0; i < look.n_workers; i++) assert_int_equal(look.policies[i], SCHED_BATCH);
}

static void *try_real_time(void *ud)
{
    *(bool *)ud = sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 80}) == 0;
    return NULL;
}

/* Where the system allows it the threads have the priority, else the error says what to do. */
static void real_time_is_had_or_refused(void **state)
{
    hearth_error error = {0};
    bool allowed = false;
    pthread_t thread;
    struct look look = {.model = *state, .threads = {.n = 2, .priority = "high"}};
    assert_int_equal(pthread_create(&thread, NULL, try_real_time, &allowed), 0);
    pthread_join(thread, NULL);
    int rc = llm_check_threads(&look.threads, &error);
    print_message("# priority high is %s here\n", allowed ? "allowed" : "refused");
    if (!allowed) {
        assert_int_equal(rc, HEARTH_INVALID);
        assert_string_equal(error.param, "thread_priority");
        assert_non_null(strstr(error.message, "LimitRTPRIO="));
        return;
    }
    assert_int_equal(rc, HEARTH_OK);
    look_at(&look);
    assert_int_equal(look.policy_at_open, SCHED_OTHER);
    assert_int_equal(look.policy, SCHED_FIFO);
    for (int i = 0; i < look.n_workers; i++) {
        assert_int_equal(look.policies[i], SCHED_FIFO);
        assert_int_equal(look.priorities[i], 80);
    }
}

static void an_unknown_priority_is_refused(void **state)
{
    hearth_error error = {0};
    (void)state;
    assert_int_equal(llm_check_threads(&(struct llm_threads){.priority = "urgent"}, &error), HEARTH_INVALID);
    assert_string_equal(error.param, "thread_priority");
    assert_non_null(strstr(error.message, "low, normal, medium, high or realtime"));
}

/* Last, since the process has decided then. */
static void a_process_decides_on_numa_once(void **state)
{
    hearth_error error = {0};
    (void)state;
    assert_int_equal(llm_use_numa("somehow", &error), HEARTH_INVALID);
    assert_string_equal(error.param, "server.numa");
    assert_int_equal(llm_use_numa("none", &error), HEARTH_OK);
    assert_int_equal(llm_use_numa("isolate", &error), HEARTH_OK);
    assert_int_equal(llm_use_numa("none", &error), HEARTH_OK);
    assert_int_equal(llm_use_numa("isolate", &error), HEARTH_OK);
    assert_int_equal(llm_use_numa("distribute", &error), HEARTH_BUSY);
    assert_non_null(strstr(error.message, "uses isolate already"));
}

static int begin(void **state)
{
    llm_init();
    sched_getaffinity(0, sizeof process, &process);
    while (!CPU_ISSET(first_cpu, &process)) first_cpu++;
    for (size_t i = first_cpu; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &process)) last_cpu = i;
    *state = open_demo();
    return 0;
}

static int end(void **state)
{
    llm_model_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_run_on_their_cpus),
        cmocka_unit_test(a_thread_that_opens_a_context_stays_where_it_was),
        cmocka_unit_test(strictly_each_has_one),
        cmocka_unit_test(without_a_list_nothing_is_set),
        cmocka_unit_test(there_are_no_more_threads_than_cpus_in_the_list),
        cmocka_unit_test(wrong_lists_are_refused_by_name),
        cmocka_unit_test(cpus_that_are_not_there_are_named_with_those_that_are),
        cmocka_unit_test(low_threads_give_way),
        cmocka_unit_test(real_time_is_had_or_refused),
        cmocka_unit_test(an_unknown_priority_is_refused),
        cmocka_unit_test(a_process_decides_on_numa_once),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
