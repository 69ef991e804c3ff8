/* A machine that gives no thread when it is asked for one: loaded into the server with LD_PRELOAD. The call of
 * pthread_create() whose number THREADS_FAIL says, counted from 1, fails. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static _Atomic int calls;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *ud)
{
    const char *nth = getenv("THREADS_FAIL");
    if (nth != NULL && atomic_fetch_add(&calls, 1) + 1 == atoi(nth)) return EAGAIN;
    return ((typeof(&pthread_create))dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, run, ud);
}
