/* A server that cannot create one of its threads does not start. */
#include "unit/serve/harness.h"

#include "fakes/fake_threads.h"

static void a_server_without_its_thread_does_not_start(void **state)
{
    struct harness *h = *state;
    hearth_error error = {0};
    struct serve_options options = {.limits = &h->limits};
    static const char *const tasks[] = {"reads the bodies of requests", "makes answers", "makes answers",
                                        "sends traces", "loads the models"};
    fake_set("server.listen", "127.0.0.1:0");
    fake_set("server.otlp_endpoint", "http://127.0.0.1:1");
    for (int i = 0; i < 5; i++) {
        fake_threads_fail(2 + i); /* the first is the fake library's */
        assert_int_equal(serve_run(NULL, &options, &error), HEARTH_NO_MEMORY);
        assert_contains(error.message, "cannot start the thread that ");
        assert_contains(error.message, tasks[i]);
    }
    fake_threads_fail(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_server_without_its_thread_does_not_start, harness_setup, harness_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
