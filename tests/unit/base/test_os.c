/* System calls by their numbers: what an error is called, files from a number on, a process that ends. */
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void an_error_has_a_text(void **state)
{
    (void)state;
    assert_string_equal(os_error_text(ENOENT), "No such file or directory");
    assert_non_null(strstr(os_error_text(98765), "98765"));
}

static void files_from_a_number_on_are_closed(void **state)
{
    (void)state;
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int low = dup2(ends[1], 100), high = dup2(ends[1], 900);
        os_close_from(101);
        _exit(low == 100 && high == 900 && fcntl(100, F_GETFD) >= 0 && fcntl(900, F_GETFD) < 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(ends[0]);
    close(ends[1]);
}

static void the_end_of_a_child_can_be_waited_for(void **state)
{
    (void)state;
    int ends[2], status;
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    int process = os_open_process(pid);
    assert_true(process >= 0);
    struct pollfd one = {.fd = process, .events = POLLIN};
    assert_int_equal(poll(&one, 1, 0), 0);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(poll(&one, 1, 10000), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(process);
    assert_int_equal(os_open_process(-1), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_has_a_text),
        cmocka_unit_test(files_from_a_number_on_are_closed),
        cmocka_unit_test(the_end_of_a_child_can_be_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
