/* pthread_create() with a message that says which limit to raise. */
#include "base/thread.h"

#include "base/error.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

int thread_refuse(int number, const char *task, hearth_error *error)
{
    return error_set(
        error, HEARTH_NO_MEMORY,
        "cannot start the thread that %s (%s): raise the limit of threads (ulimit -u, a service's TasksMax, "
        "a container's pids limit), or end other programs",
        task, strerrordesc_np(number));
}

int thread_start(pthread_t *thread, void *(*main)(void *ud), void *ud, const char *task, hearth_error *error)
{
    int number = pthread_create(thread, NULL, main, ud);
    return number == 0 ? HEARTH_OK : thread_refuse(number, task, error);
}

void thread_give_way(int steps)
{
    setpriority(PRIO_PROCESS, (id_t)gettid(), steps); /* on Linux of this thread alone */
}
