/* Starting threads, the error where the system gives none, and lists of the CPUs that they run on. No state; any
 * thread. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include "hearth.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>

/* The thread that owns something, once it has claimed it: assert_thread() ends a build with assertions where another
 * one calls. Before the claim, and after the release, any thread may. */
struct thread_owner {
    pthread_t id;
    _Atomic bool claimed;
};

void thread_claim(struct thread_owner *owner);
void thread_release(struct thread_owner *owner);
bool thread_may_call(const struct thread_owner *owner);

#define assert_thread(owner) assert(thread_may_call(owner))

/* Starts `main(ud)`; the caller joins or detaches it. `task` completes "cannot start the thread that …".
 * HEARTH_NO_MEMORY: none could be started, and `thread` is undefined. */
int thread_start(pthread_t *thread, void *(*main)(void *ud), void *ud, const char *task, hearth_error *error);

/* The same with all signals blocked in it: other threads handle them, and SIGPIPE becomes an error of write(). */
int thread_start_quiet(pthread_t *thread, void *(*main)(void *ud), void *ud, const char *task, hearth_error *error);

/* Whether so many threads can be started at once, for libraries that end the process where they get none. */
int thread_try(int n, const char *task, hearth_error *error);

/* The same error, for a number that pthread_create() returned to a caller that starts threads with attributes. */
int thread_refuse(int number, const char *task, hearth_error *error);

/* Lowers the priority of the calling thread, and of those that it starts from then on, by so many steps of nice(2).
 * Where the system does not allow it nothing happens. */
void thread_give_way(int steps);

/* Reads numbers of CPUs and ranges with a comma between them, "0-7,16": sets those of `cpus`, OS_CPUS of them.
 * False: it is no such list, or names CPUs that are not told apart. */
bool thread_read_cpus(const char *text, bool *cpus);

#endif
