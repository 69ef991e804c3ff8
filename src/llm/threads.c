/* How many threads compute, on which CPUs, with which priority: see threads.h. */
#include "llm/threads.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/thread.h"
#include "llm/backends.h"
#include "llm/context.h"

#include <assert.h>
#include <llama.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CPUS OS_CPUS
_Static_assert(OS_CPUS == GGML_MAX_N_THREADS, "llama.cpp tells as many apart");

/* ---- CPUs ---- */

struct cpus {
    bool v[MOST_CPUS];
};

static int count(const struct cpus *cpus)
{
    int n = 0;
    for (size_t i = 0; i < MOST_CPUS; i++) n += cpus->v[i];
    return n;
}

/* At least one: CPUs with higher numbers are not told apart. */
static struct cpus cpus_of_process(void)
{
    struct cpus cpus;
    os_allowed_cpus(cpus.v, MOST_CPUS);
    if (count(&cpus) == 0) cpus.v[0] = true;
    return cpus;
}

/* Those that the threads may run on. */
static struct cpus cpus_of(const struct llm_threads *threads)
{
    struct cpus process = cpus_of_process(), chosen;
    if (threads->cpus == NULL || !thread_read_cpus(threads->cpus, chosen.v)) return process;
    for (size_t i = 0; i < MOST_CPUS; i++) chosen.v[i] = chosen.v[i] && process.v[i];
    return count(&chosen) > 0 ? chosen : process;
}

/* "0-3,8", as thread_read_cpus() reads it. */
static void write_cpus(const struct cpus *cpus, struct buf *out)
{
    for (size_t first = 0, next; first < MOST_CPUS; first = next) {
        next = first + 1;
        if (!cpus->v[first]) continue;
        while (next < MOST_CPUS && cpus->v[next]) next++;
        buf_printf(out, "%s%zu", out->len > 0 ? "," : "", first);
        if (next - first > 1) buf_printf(out, "-%zu", next - 1);
    }
}

/* Workers wait for each other by spinning: one without a CPU of its own delays all of them for whole time slices,
 * hundreds of times a token. */
int llm_count_threads(const struct llm_threads *threads)
{
    struct cpus cpus = cpus_of(threads);
    int most = count(&cpus), n = threads->n > 0 ? threads->n : llm_count_cores(cpus.v, MOST_CPUS);
    if (n > most) n = most;
    return n > 0 ? n : 1;
}

void llm_keep_to_cpus(const char *text)
{
    struct cpus cpus;
    if (text == NULL || !thread_read_cpus(text, cpus.v)) return;
    os_keep_to_cpus(cpus.v, MOST_CPUS);
}

static int check_cpus(const char *text, hearth_error *error)
{
    struct cpus cpus, process = cpus_of_process();
    if (!thread_read_cpus(text, cpus.v))
        return error_at(error, HEARTH_INVALID, "cpus",
                        "cpus: '%s' is no list of CPUs: write numbers below %d and ranges, as in 0-7,16", text,
                        MOST_CPUS);
    for (size_t i = 0; i < MOST_CPUS; i++) {
        if (!cpus.v[i] || process.v[i]) continue;
        struct buf all = {0};
        write_cpus(&process, &all);
        error_at(error, HEARTH_INVALID, "cpus",
                 "cpus: CPU %zu is not there, or this process may not run on it: it has %s", i, buf_text(&all));
        buf_release(&all);
        return (int)error->code;
    }
    return HEARTH_OK;
}

/* ---- Memory ---- */

enum { READ_BYTES = 64 << 20, READ_MS = 100 };

/* Memory that one thread reads again and again, while the others read theirs. */
struct reader {
    pthread_t thread;
    const char *cpus;
    uint64_t *words;
    uint64_t sum; /* so that the reading is not left out */
    double bytes_a_second;
};

static void *read_memory(void *ud)
{
    struct reader *reader = ud;
    const size_t n = READ_BYTES / sizeof *reader->words;
    llm_keep_to_cpus(reader->cpus);
    for (size_t i = 0; i < n; i++) reader->words[i] = i; /* pages of this thread's own node */
    int64_t began = clock_now(clock_monotonic()), now = began;
    double bytes = 0;
    for (; now - began < clock_from_ms(READ_MS); now = clock_now(clock_monotonic())) {
        uint64_t sums[8] = {0};
        for (size_t i = 0; i < n; i += 8)
            for (size_t k = 0; k < 8; k++) sums[k] += reader->words[i + k];
        for (size_t k = 0; k < 8; k++) reader->sum += sums[k];
        bytes += READ_BYTES;
    }
    reader->bytes_a_second = bytes * 1e9 / (double)(now - began);
    return NULL;
}

double llm_read_rate(const struct llm_threads *threads)
{
    int n = llm_count_threads(threads), started = 0;
    hearth_error error;
    double rate = 0;
    if (llm_free_memory(false) < (uint64_t)n * READ_BYTES * 2) return 0;
    struct reader *readers = mem_alloc((size_t)n * sizeof *readers);
    while (started < n) {
        struct reader *reader = &readers[started];
        *reader = (struct reader){.cpus = threads->cpus, .words = mem_alloc(READ_BYTES)};
        if (thread_start(&reader->thread, read_memory, reader, "reads memory", &error) != HEARTH_OK) break;
        started++;
    }
    if (started < n) free(readers[started].words);
    for (int i = 0; i < started; i++) {
        pthread_join(readers[i].thread, NULL);
        rate += readers[i].bytes_a_second;
        free(readers[i].words);
    }
    free(readers);
    return started == n ? rate : 0;
}

/* ---- Priority ---- */

static const struct priority {
    const char *name;
    enum ggml_sched_priority value;
    int policy, realtime; /* as ggml has them; -1: as it was */
} priorities[] = {{"low", GGML_SCHED_PRIO_LOW, OS_POLICY_LOW, 0},
                  {"normal", GGML_SCHED_PRIO_NORMAL, -1, 0},
                  {"medium", GGML_SCHED_PRIO_MEDIUM, SCHED_FIFO, 40},
                  {"high", GGML_SCHED_PRIO_HIGH, SCHED_FIFO, 80},
                  {"realtime", GGML_SCHED_PRIO_REALTIME, SCHED_FIFO, 90}};

static const struct priority *find_priority(const char *name)
{
    if (name == NULL) name = "normal";
    for (size_t i = 0; i < sizeof priorities / sizeof *priorities; i++)
        if (strcmp(name, priorities[i].name) == 0) return &priorities[i];
    return NULL;
}

static void *end_at_once(void *ud)
{
    return ud;
}

/* Whether the system lets a thread have that priority: one is started with it. */
static bool is_allowed(int realtime)
{
    const struct sched_param param = {.sched_priority = realtime};
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
    pthread_attr_setschedparam(&attributes, &param);
    bool started = pthread_create(&thread, &attributes, end_at_once, NULL) == 0;
    if (started) pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

int llm_check_threads(const struct llm_threads *threads, hearth_error *error)
{
    int rc = threads->cpus != NULL ? check_cpus(threads->cpus, error) : HEARTH_OK;
    if (rc != HEARTH_OK) return rc;
    const struct priority *priority = find_priority(threads->priority);
    if (priority == NULL)
        return error_at(error, HEARTH_INVALID, "thread_priority",
                        "thread_priority: unknown priority '%s': use low, normal, medium, high or realtime",
                        threads->priority);
    if (priority->realtime == 0 || is_allowed(priority->realtime)) return HEARTH_OK;
    return error_at(
        error, HEARTH_INVALID, "thread_priority",
        "thread_priority: this process may not have threads of priority %s: give it CAP_SYS_NICE, or a limit of %d for "
        "real-time priority (LimitRTPRIO= of systemd, ulimit -r)",
        threads->priority, priority->realtime);
}

/* ---- The pool ---- */

void llm_take_place(const struct llm_thread_place *place)
{
    const struct sched_param param = {.sched_priority = place->priority};
    if (place->has_cpus) os_keep_to_cpus(place->cpus, MOST_CPUS);
    if (place->policy >= 0) pthread_setschedparam(pthread_self(), place->policy, &param);
}

struct ggml_threadpool *llm_start_threads(const struct llm_threads *threads, int n, struct llm_thread_place *own,
                                          hearth_error *error)
{
    assert(n >= 1);
    if (llm_check_threads(threads, error) != HEARTH_OK) return NULL;
    /* ggml ends the process where it cannot start a thread. */
    if (n > 1 && thread_try(n, "computes", error) != HEARTH_OK) {
        error_prefix(error, "%d threads to compute with (models.*.threads): ", n);
        return NULL;
    }
    const struct priority *priority = find_priority(threads->priority);
    struct ggml_threadpool_params params = ggml_threadpool_params_default(n);
    struct cpus cpus = cpus_of(threads);
    /* The workers do not poll between decodes, as llama.cpp's default does for some 100 ms after each. So an idle
     * server uses no CPU, and waking them takes microseconds against the milliseconds of a decode. */
    params.poll = 0;
    params.prio = priority->value;
    params.strict_cpu = threads->strict;
    *own = (struct llm_thread_place){.has_cpus = threads->cpus != NULL || threads->strict,
                                     .policy = priority->policy,
                                     .priority = priority->realtime};
    if (own->has_cpus) {
        memcpy(params.cpumask, cpus.v, sizeof cpus.v);
        if (threads->strict) { /* the thread that computes is the last of n; ggml gives the others the CPUs before */
            int left = (n - 1) % count(&cpus);
            size_t last = 0;
            while (!cpus.v[last] || left-- > 0) last++;
            cpus = (struct cpus){0};
            cpus.v[last] = true;
        }
        memcpy(own->cpus, cpus.v, sizeof cpus.v);
    }
    /* ggml takes the thread that makes a pool for the one that computes with it. */
    struct llm_thread_place before = {.has_cpus = own->has_cpus}; /* else ggml leaves them as they are */
    struct sched_param param;
    os_allowed_cpus(before.cpus, MOST_CPUS);
    pthread_getschedparam(pthread_self(), &before.policy, &param);
    before.priority = param.sched_priority;
    struct ggml_threadpool *(*start)(struct ggml_threadpool_params *);
    bool found = llm_find_function("CPU", "ggml_threadpool_new", &start);
    assert(found && "a model was loaded"), (void)found;
    struct ggml_threadpool *pool = start(&params);
    llm_take_place(&before);
    return pool;
}

void llm_end_threads(struct ggml_threadpool *pool)
{
    void (*end)(struct ggml_threadpool *);
    if (llm_find_function("CPU", "ggml_threadpool_free", &end)) end(pool);
}

/* ---- NUMA ---- */

int llm_use_numa(const char *strategy, hearth_error *error)
{
    static const char *const names[] = {"none", "distribute", "isolate", "numactl"};
    static const enum ggml_numa_strategy strategies[] = {GGML_NUMA_STRATEGY_DISABLED, GGML_NUMA_STRATEGY_DISTRIBUTE,
                                                         GGML_NUMA_STRATEGY_ISOLATE, GGML_NUMA_STRATEGY_NUMACTL};
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static size_t decided;
    size_t i = 0, before;
    while (i < sizeof names / sizeof *names && strcmp(strategy, names[i]) != 0) i++;
    if (i == sizeof names / sizeof *names)
        return error_at(error, HEARTH_INVALID, "server.numa",
                        "server.numa: unknown strategy '%s': use none, distribute, isolate or numactl", strategy);
    if (i == 0) return HEARTH_OK;
    if (llm_check_processor(error) != HEARTH_OK) return (int)error->code;
    pthread_mutex_lock(&mutex);
    before = decided;
    if (before == 0) {
        llama_numa_init(strategies[i]);
        decided = i;
    }
    pthread_mutex_unlock(&mutex);
    if (before == 0 || before == i) return HEARTH_OK;
    return error_at(error, HEARTH_BUSY, "server.numa", "server.numa: this process uses %s already: start another one",
                    names[before]);
}
