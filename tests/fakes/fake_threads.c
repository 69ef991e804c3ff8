#include "fakes/fake_threads.h"

#include "base/memory.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

typedef void *thread_main(void *ud);

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, thread_main *run, void *ud);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, thread_main *run, void *ud);

static _Atomic int calls, failing, alive, most = INT_MAX;

struct begun {
    thread_main *run;
    void *ud;
};

static void *run_counted(void *ud)
{
    struct begun begun = *(struct begun *)ud;
    free(ud);
    void *result = begun.run(begun.ud);
    atomic_fetch_sub(&alive, 1);
    return result;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, thread_main *run, void *ud)
{
    bool fails = atomic_fetch_add(&calls, 1) + 1 == atomic_load(&failing);
    if (fails || atomic_load(&alive) >= atomic_load(&most)) return EAGAIN;
    struct begun *begun = mem_alloc(sizeof *begun);
    *begun = (struct begun){run, ud};
    atomic_fetch_add(&alive, 1);
    return __real_pthread_create(thread, attributes, run_counted, begun);
}

void fake_threads_fail(int nth)
{
    atomic_store(&failing, nth);
    atomic_store(&calls, 0);
}

int fake_threads_calls(void)
{
    return atomic_load(&calls);
}

void fake_threads_allow(int more)
{
    atomic_store(&most, more < 0 ? INT_MAX : atomic_load(&alive) + more);
}
