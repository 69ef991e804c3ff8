/* A pthread_create() that tests can make fail. Programs named test_*thread_faults.c are linked so that every call in
 * hearth and in llama.cpp comes here (CMakeLists.txt). Calls are counted over all threads. */
#ifndef TESTS_FAKES_FAKE_THREADS_H
#define TESTS_FAKES_FAKE_THREADS_H

/* Makes the nth call from now on fail, counted from 1; 0: none. */
void fake_threads_fail(int nth);

/* Calls since then. */
int fake_threads_calls(void);

/* Lets so many more threads exist at once; -1: any number. */
void fake_threads_allow(int more);

#endif
