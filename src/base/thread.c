#include "base/thread.h"

#include "base/error.h"

#include <string.h>

int thread_start(pthread_t *thread, void *(*main)(void *ud), void *ud, const char *task, hearth_error *error)
{
    int number = pthread_create(thread, NULL, main, ud);
    if (number == 0) return HEARTH_OK;
    return error_set(
        error, HEARTH_NO_MEMORY,
        "cannot start the thread that %s (%s): raise the limit of threads (ulimit -u, a service's TasksMax, "
        "a container's pids limit), or end other programs",
        task, strerrordesc_np(number));
}
