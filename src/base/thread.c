/* pthread_create() with a message that says which limit to raise. */
#include "base/thread.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int thread_refuse(int number, const char *task, hearth_error *error)
{
    return error_set(error, HEARTH_NO_MEMORY,
                     "cannot start the thread that %s (%s): raise the limit of threads (ulimit -u, a service's "
                     "TasksMax, a container's pids limit), or end other programs",
                     task, os_error_text(number));
}

void thread_claim(struct thread_owner *owner)
{
    assert(!owner->claimed);
    owner->id = pthread_self();
    owner->claimed = true;
}

void thread_release(struct thread_owner *owner)
{
    assert_thread(owner);
    owner->claimed = false;
}

bool thread_may_call(const struct thread_owner *owner)
{
    return !owner->claimed || pthread_equal(owner->id, pthread_self());
}

int thread_start(pthread_t *thread, void *(*main)(void *ud), void *ud, const char *task, hearth_error *error)
{
    int number = pthread_create(thread, NULL, main, ud);
    return number == 0 ? HEARTH_OK : thread_refuse(number, task, error);
}

int thread_start_quiet(pthread_t *thread, void *(*main)(void *ud), void *ud, const char *task, hearth_error *error)
{
    sigset_t all, former;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &former);
    int rc = thread_start(thread, main, ud, task, error);
    pthread_sigmask(SIG_SETMASK, &former, NULL);
    return rc;
}

static void *wait_at(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

int thread_try(int n, const char *task, hearth_error *error)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *threads = mem_alloc((size_t)n * sizeof *threads);
    int rc = HEARTH_OK, started = 0;
    pthread_mutex_lock(&gate);
    for (; started < n && rc == HEARTH_OK; started += rc == HEARTH_OK)
        rc = thread_start(&threads[started], wait_at, &gate, task, error);
    pthread_mutex_unlock(&gate);
    while (started > 0) pthread_join(threads[--started], NULL);
    free(threads);
    return rc;
}

void thread_give_way(int steps)
{
    os_give_way(steps);
}

static bool read_cpu(const char **at, size_t *cpu)
{
    char *end;
    if (!isdigit((unsigned char)**at)) return false;
    *cpu = strtoul(*at, &end, 10);
    *at = end;
    return *cpu < OS_CPUS;
}

bool thread_read_cpus(const char *text, bool *cpus)
{
    memset(cpus, 0, OS_CPUS * sizeof *cpus);
    for (const char *at = text;; at++) {
        size_t first, last;
        if (!read_cpu(&at, &first)) return false;
        last = first;
        if (*at == '-') {
            at++;
            if (!read_cpu(&at, &last) || last < first) return false;
        }
        for (size_t i = first; i <= last; i++) cpus[i] = true;
        if (*at == '\0') return true;
        if (*at != ',') return false;
    }
}
