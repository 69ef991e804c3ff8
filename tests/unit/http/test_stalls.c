/* The watchdog of the server's thread: what it counts, and what not. */
#include "http/connection.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

static int64_t cpu_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void be_busy(int64_t ns)
{
    for (int64_t began = cpu_ns(); cpu_ns() - began < ns;) continue;
}

static void wait_for(int64_t ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static int64_t count(void (*work)(int64_t ns), int64_t ns)
{
    struct stalls stalls = {0};
    stalls_enter(&stalls);
    stalls_name(&stalls, "/test");
    work(ns);
    stalls_leave(&stalls);
    assert_true(stalls.n == 0 || stalls.longest >= ns);
    return stalls.n;
}

static void work_and_waits_of_more_than_the_limit_are_stalls(void **state)
{
    (void)state;
    const int64_t most = (int64_t)STALLS_MAX_MS * 1000000;
    assert_int_equal(count(be_busy, most + 2000000), 1);
    assert_int_equal(count(wait_for, most + 2000000), 1);
    assert_int_equal(count(be_busy, 100000), 0);
}

static void one_within_another_counts_once(void **state)
{
    (void)state;
    struct stalls stalls = {0};
    stalls_enter(&stalls);
    for (int i = 0; i < 3; i++) {
        stalls_enter(&stalls);
        be_busy(3000000);
        stalls_leave(&stalls);
        assert_int_equal(stalls.n, 0);
    }
    stalls_leave(&stalls);
    assert_int_equal(stalls.n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_and_waits_of_more_than_the_limit_are_stalls),
        cmocka_unit_test(one_within_another_counts_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
