/* pthread_create(), which a test lets fail. Programs called test_*thread_faults.c are linked so that every call in
 * hearth and in llama.cpp comes here (CMakeLists.txt). Calls are counted over all threads. */
#ifndef TESTS_FAKES_FAKE_THREADS_H
#define TESTS_FAKES_FAKE_THREADS_H

/* From now on the nth call fails, counted from 1; 0: none does. */
void fake_threads_fail(int nth);

/* How many calls there were since. */
int fake_threads_calls(void);

/* From now on so many more threads may live at once; -1: any number. */
void fake_threads_allow(int more);

#endif
