/* Threads that compute: how many, on which CPUs, and with which priority. Every function may be called from any
 * thread. */
#ifndef LLM_THREADS_H
#define LLM_THREADS_H

#include "base/os.h"
#include "hearth.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_threadpool;

/* As models.*.threads, cpus, cpu_strict and thread_priority say. The strings live for the call only. */
struct llm_threads {
    int n;                /* at most; 0: one for each physical core. Never more than CPUs */
    const char *cpus;     /* those that they run on, as "0-7,16"; NULL: all of the process */
    bool strict;          /* each has one of the CPUs, in their order; else all of them */
    const char *priority; /* low | normal | medium | high | realtime; NULL: normal */
};

/* How many threads compute; at least 1. CPUs that llm_check_threads() would refuse count as none given. */
int llm_count_threads(const struct llm_threads *threads);

/* HEARTH_INVALID, with param cpus or thread_priority: no list of CPUs, some that this process may not run on, a
 * priority that is unknown or that the system does not allow. */
int llm_check_threads(const struct llm_threads *threads, hearth_error *error);

/* Bytes that so many threads read from memory a second, all together. Takes a tenth of a second, and 64 MiB for each;
 * 0: they cannot be had. */
double llm_read_rate(const struct llm_threads *threads);

/* The calling thread, and those that it starts from then on, run on the CPUs alone. NULL: nothing happens. */
void llm_keep_to_cpus(const char *cpus);

/* Where a thread runs, and its priority. */
struct llm_thread_place {
    bool has_cpus, cpus[OS_CPUS];
    int policy, priority; /* of sched_setscheduler(2); policy -1: as they were */
};

/* A pool of n threads: the one that computes with it, whose place is `own`, and n - 1 others, which have theirs. The
 * calling thread stays where it is. NULL with the error. */
struct ggml_threadpool *llm_start_threads(const struct llm_threads *threads, int n, struct llm_thread_place *own,
                                          hearth_error *error);

void llm_end_threads(struct ggml_threadpool *pool);

/* The calling thread goes there. */
void llm_take_place(const struct llm_thread_place *place);

/* How all models' threads and memory are spread over NUMA nodes: distribute | isolate | numactl, or none. The process
 * decides once, with the first one that is not none. HEARTH_BUSY: it has decided otherwise. Before any model is loaded.
 */
int llm_use_numa(const char *strategy, hearth_error *error);

#ifdef __cplusplus
}
#endif

#endif
