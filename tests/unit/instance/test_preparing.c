/* Preparations that are given up: the table of jobs. */
#include "fakes/cmocka_all.h"

#include "base/thread.h"
#include "instance/requests/preparing.h"

#define SECOND 1000000000LL

static void what_is_being_prepared_is_cancelled_and_what_was_is_not(void **state)
{
    (void)state;
    struct preparing *all = preparing_open(2);
    struct job jobs[4] = {{.id = ""}};
    preparing_begin(all, &jobs[0]);
    preparing_begin(all, &jobs[1]);
    preparing_end(all, &jobs[0]);
    preparing_begin(all, &jobs[2]);
    preparing_stop(all);
    assert_false(job_is_cancelled(&jobs[0]));
    assert_true(job_is_cancelled(&jobs[1]));
    assert_true(job_is_cancelled(&jobs[2]));
    assert_false(preparing_wait(all, 1));
    preparing_end(all, &jobs[1]);
    preparing_begin(all, &jobs[3]); /* it comes later */
    assert_true(job_is_cancelled(&jobs[3]));
    preparing_end(all, &jobs[2]);
    preparing_end(all, &jobs[3]);
    assert_true(preparing_wait(all, 1));
    preparing_close(all);
}

struct preparation {
    struct preparing *all;
    struct job job;
};

static void *end_it(void *ud)
{
    struct preparation *p = ud;
    preparing_end(p->all, &p->job);
    return NULL;
}

static void the_wait_ends_with_the_last_preparation(void **state)
{
    (void)state;
    struct preparation p = {.all = preparing_open(1)};
    pthread_t thread;
    preparing_begin(p.all, &p.job);
    assert_int_equal(pthread_create(&thread, NULL, end_it, &p), 0);
    assert_true(preparing_wait(p.all, 60 * SECOND));
    pthread_join(thread, NULL);
    preparing_close(p.all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_being_prepared_is_cancelled_and_what_was_is_not),
        cmocka_unit_test(the_wait_ends_with_the_last_preparation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
