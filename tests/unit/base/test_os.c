/* What base/os.h promises of every system, on the one that runs the test. */
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
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

static void random_bytes_differ(void **state)
{
    (void)state;
    enum { N = 4000 }; /* more than one call of the kernel gives without a break */
    static unsigned char a[N], b[N];
    size_t equal = 0;
    os_random(a, N);
    os_random(b, N);
    for (size_t i = 0; i < N; i++) equal += a[i] == b[i];
    assert_true(equal < N / 32); /* one in 256 */
}

static void the_last_of_a_character_is_found(void **state)
{
    (void)state;
    const char *text = "a:b:c";
    assert_ptr_equal(os_find_last(text, ':', 5), text + 3);
    assert_ptr_equal(os_find_last(text, ':', 3), text + 1);
    assert_null(os_find_last(text, ':', 1));
    assert_null(os_find_last(text, ':', 0));
}

static int by_distance(const void *a, const void *b, void *from)
{
    int x = abs(*(const int *)a - *(int *)from), y = abs(*(const int *)b - *(int *)from);
    return (x > y) - (x < y);
}

static void values_are_sorted_by_something_else(void **state)
{
    (void)state;
    int values[] = {1, 9, 4, 7}, from = 8;
    os_sort(values, 4, sizeof *values, by_distance, &from);
    assert_int_equal(values[0] + values[1], 16);
    assert_int_equal(values[2], 4);
    assert_int_equal(values[3], 1);
}

static void memory_and_processors_are_counted(void **state)
{
    (void)state;
    bool cpus[OS_CPUS], only[OS_CPUS] = {false}, now[OS_CPUS];
    size_t n = 0, first = 0;
    os_allowed_cpus(cpus, OS_CPUS);
    for (size_t i = OS_CPUS; i-- > 0;) {
        if (!cpus[i]) continue;
        n++;
        first = i;
    }
    assert_true(n > 0);
    only[first] = true;
    os_keep_to_cpus(only, OS_CPUS);
    os_allowed_cpus(now, OS_CPUS);
#ifndef __APPLE__ /* which gives no choice */
    assert_memory_equal(now, only, sizeof now);
#endif
    os_keep_to_cpus(cpus, OS_CPUS);
    assert_true(os_free_memory() > 1 << 20);
    void *memory = malloc(1000);
    assert_true(os_usable_size(memory) >= 1000);
    free(memory);
    char *stack = os_map_stack(1 << 20);
    assert_ptr_not_equal(stack, MAP_FAILED);
    stack[0] = stack[(1 << 20) - 1] = 1;
    munmap(stack, 1 << 20);
}

static void a_wait_ends_at_its_deadline(void **state)
{
    (void)state;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    struct timespec now;
    os_cond_init(&cond);
    pthread_mutex_lock(&mutex);
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t begin = now.tv_sec * INT64_C(1000000000) + now.tv_nsec, end = begin;
    while (end < begin + 20000000) {
        os_cond_wait_until(&cond, &mutex, begin + 20000000);
        clock_gettime(CLOCK_MONOTONIC, &now);
        end = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    }
    os_cond_wait_until(&cond, &mutex, begin); /* which is over */
    pthread_mutex_unlock(&mutex);
    pthread_cond_destroy(&cond);
}

static void a_nameless_file_is_written_and_read(void **state)
{
    (void)state;
    char bytes[4] = "";
    int fd = os_open_nameless();
    assert_int_equal(write(fd, "abc", 3), 3);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    assert_int_equal(read(fd, bytes, sizeof bytes), 3);
    assert_string_equal(bytes, "abc");
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(os_sync(fd), 0);
    close(fd);
    assert_int_equal(os_sync(fd), -1);
}

static void nothing_is_opened_beside_a_folder(void **state)
{
    (void)state;
    char folder[] = "/tmp/hearth-os-XXXXXX", path[64], link[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    close(open(path, O_WRONLY | O_CREAT, 0600));
    assert_int_equal(symlink("/etc/passwd", link), 0);
    int fd = os_open_below(folder, "file");
    assert_true(fd >= 0);
    close(fd);
    const char *const others[] = {"link", "../../etc/passwd", "/etc/passwd", "missing"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_int_equal(os_open_below(folder, others[i]), -1);
    unlink(path);
    unlink(link);
    rmdir(folder);
}

static void a_socket_tells_who_is_there_and_that_nobody_is(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_true(os_peer_is_same_user(ends[0]));
    assert_int_equal(os_send(ends[0], "x", 1), 1);
    assert_false(os_is_hung_up(ends[0]));
    assert_int_equal(shutdown(ends[1], SHUT_WR), 0);
    assert_true(os_is_hung_up(ends[0]));
    close(ends[1]);
    errno = 0;
    assert_int_equal(os_send(ends[0], "x", 1), -1); /* without SIGPIPE, which would end the test */
    assert_int_equal(errno, EPIPE);
    close(ends[0]);
    int fd = os_socket_nonblocking(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    close(fd);
}

static bool is_readable(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, 0) == 1;
}

static void a_waker_wakes_until_it_is_cleared(void **state)
{
    (void)state;
    struct os_waker waker;
    assert_int_equal(os_waker_open(&waker), 0);
    assert_false(is_readable(waker.fd));
    for (int i = 0; i < 3; i++) os_waker_wake(&waker);
    assert_true(is_readable(waker.fd));
    os_waker_clear(&waker);
    assert_false(is_readable(waker.fd));
    os_waker_clear(&waker); /* which waits for nothing */
    os_waker_close(&waker);
    assert_int_equal(waker.fd, -1);
}

static void signals_are_taken_from_a_descriptor(void **state)
{
    (void)state;
    sigset_t set, former;
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, NULL, &former);
    int fd = os_signals_open(&set);
    assert_int_equal(os_signals_take(fd), 0);
    assert_int_equal(os_take_pending(&set), 0);
    raise(SIGWINCH);
    assert_true(is_readable(fd));
    assert_int_equal(os_signals_take(fd), SIGWINCH);
    assert_int_equal(os_signals_take(fd), 0);
    raise(SIGHUP);
    assert_int_equal(os_take_pending(&set), SIGHUP);
    assert_int_equal(os_take_pending(&set), 0);
    close(fd);
    pthread_sigmask(SIG_SETMASK, &former, NULL);
}

static void the_program_knows_its_path(void **state)
{
    (void)state;
    char path[4096];
    ssize_t len = os_program_path(path, sizeof path - 1);
    assert_true(len > 0);
    path[len] = '\0';
    assert_non_null(strstr(path, "test_os"));
    assert_int_equal(access(os_same_program(), X_OK), 0);
}

/* A pipe's ends, sockets, and descriptors that come with a message are not there for a program that a child becomes. */
static void descriptors_are_closed_on_exec(void **state)
{
    (void)state;
    int ends[2], pair[2], passed = -1;
    char byte = 'x';
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec bytes = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    assert_int_equal(os_pipe(ends), 0);
    assert_int_equal(fcntl(ends[0], F_GETFD), FD_CLOEXEC);
    assert_int_equal(fcntl(ends[1], F_GETFD), FD_CLOEXEC);
    int fd = os_socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_false(fcntl(fd, F_GETFL) & O_NONBLOCK);
    close(fd);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &ends[0], sizeof(int));
    assert_int_equal(os_send_message(pair[0], &message), 1);
    message.msg_controllen = sizeof control.bytes;
    assert_int_equal(os_receive_message(pair[1], &message), 1);
    head = CMSG_FIRSTHDR(&message);
    assert_non_null(head);
    if (head != NULL) memcpy(&passed, CMSG_DATA(head), sizeof passed);
    assert_int_equal(fcntl(passed, F_GETFD), FD_CLOEXEC);
    const int all[] = {ends[0], ends[1], pair[0], pair[1], passed};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) close(all[i]);
}

static void times_of_files_and_locales_and_mutexes(void **state)
{
    (void)state;
    struct stat status;
    int fd = os_open_nameless();
    time_t now = time(NULL);
    assert_int_equal(fstat(fd, &status), 0);
    assert_true(os_time_of_content(&status).tv_sec >= now - 2 && os_time_of_content(&status).tv_sec <= now + 2);
    assert_true(os_time_of_inode(&status).tv_sec >= now - 2 && os_time_of_inode(&status).tv_sec <= now + 2);
    os_expect_reading(fd);
    close(fd);
    struct os_locale locale;
    os_locale_enter(&locale);
    assert_true(strtod("1.5", NULL) == 1.5);
    os_locale_leave(&locale);
    pthread_mutex_t mutex;
    os_mutex_init_brief(&mutex);
    assert_int_equal(pthread_mutex_lock(&mutex), 0);
    assert_int_equal(pthread_mutex_trylock(&mutex), EBUSY);
    assert_int_equal(pthread_mutex_unlock(&mutex), 0);
    pthread_mutex_destroy(&mutex);
    os_trim_heap();
    assert_true(os_count_waits() >= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_has_a_text),
        cmocka_unit_test(files_from_a_number_on_are_closed),
        cmocka_unit_test(the_end_of_a_child_can_be_waited_for),
        cmocka_unit_test(random_bytes_differ),
        cmocka_unit_test(the_last_of_a_character_is_found),
        cmocka_unit_test(values_are_sorted_by_something_else),
        cmocka_unit_test(memory_and_processors_are_counted),
        cmocka_unit_test(a_wait_ends_at_its_deadline),
        cmocka_unit_test(a_nameless_file_is_written_and_read),
        cmocka_unit_test(nothing_is_opened_beside_a_folder),
        cmocka_unit_test(a_socket_tells_who_is_there_and_that_nobody_is),
        cmocka_unit_test(a_waker_wakes_until_it_is_cleared),
        cmocka_unit_test(signals_are_taken_from_a_descriptor),
        cmocka_unit_test(the_program_knows_its_path),
        cmocka_unit_test(descriptors_are_closed_on_exec),
        cmocka_unit_test(times_of_files_and_locales_and_mutexes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
