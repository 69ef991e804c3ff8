/* Starting threads, and what is said where the system gives none. No state; any thread. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include "hearth.h"

#include <pthread.h>

/* Starts `main(ud)`, to be joined or detached. `task` completes "cannot start the thread that …". HEARTH_NO_MEMORY
 * where none can be had; nothing runs then, and `thread` is undefined. */
int thread_start(pthread_t *thread, void *(*main)(void *ud), void *ud, const char *task, hearth_error *error);

/* The error of a thread that pthread_create() refused with this number, of those that are started with attributes. */
int thread_refuse(int number, const char *task, hearth_error *error);

#endif
