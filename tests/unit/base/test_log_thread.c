/* The log's own thread: nobody waits for an output that is stuck, dropped lines are counted and reported, and exit, a
 * crash and a fork lose no line that could be written. Stuck outputs are pipes that nobody reads, and what ends a
 * process is tried in a child. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/log_stderr.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG_MS 10000

/* ---- Children ---- */

/* A child whose stderr is a pipe, and what it wrote. */
struct child {
    pid_t pid;
    int said;  /* read end of its stderr */
    int ready; /* gets a byte when the child is where the test waits for it */
};

static int ready_to; /* in the child: write end of `ready` */

static void say_ready(void)
{
    if (write(ready_to, "!", 1) != 1) _exit(9);
}

static void await_ready(const struct child *child)
{
    char byte;
    assert_int_equal(read(child->ready, &byte, 1), 1);
}

static void start_log(void)
{
    hearth_error error;
    if (log_open(NULL, "info", "text", &error) != HEARTH_OK || log_start(&error) != HEARTH_OK) abort();
}

/* `lives` is the body of the child, which then calls exit(). */
static struct child begin(void (*lives)(void))
{
    int said[2], ready[2];
    assert_int_equal(pipe2(said, O_CLOEXEC), 0);
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    struct child child = {.said = said[0], .ready = ready[0]};
    fflush(stdout);
    child.pid = fork();
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        ready_to = ready[1];
        dup2(said[1], STDERR_FILENO);
        close(said[0]);
        close(said[1]);
        start_log();
        lives();
        exit(0);
    }
    close(said[1]);
    close(ready[1]);
    return child;
}

/* Reads all that it writes, until the pipe is closed. */
static char *hear(struct child *child)
{
    struct buf text = {0};
    char chunk[65536];
    ssize_t n;
    while ((n = read(child->said, chunk, sizeof chunk)) > 0) buf_append(&text, chunk, (size_t)n);
    return buf_take(&text);
}

static int end(struct child *child)
{
    int status;
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    close(child->said);
    close(child->ready);
    return status;
}

/* ---- Lines ---- */

static char filler[8001];

static void log_numbered(int from, int to)
{
    memset(filler, 'x', sizeof filler - 1);
    for (int i = from; i < to; i++) log_event(LOG_INFO, "g", "line", log_int("n", i), log_str("filler", filler));
}

/* How many numbered lines there are; they must be in order from 0 on, but for gaps, which are reported where they are
 * and have `dropped` lines together. (More than one, where the thread takes a full queue late.) */
static int count_numbered(const char *text, int dropped)
{
    int next = 0, n = 0, told = 0;
    for (const char *at = text; *at != '\0'; at = strchr(at, '\n') + 1) {
        const char *number = strstr(at, "line n="), *gap = strstr(at, "log: lines dropped lines=");
        const char *end = strchr(at, '\n');
        assert_non_null(end);
        if (number != NULL && number < end) {
            assert_int_equal(atoi(number + strlen("line n=")), next);
            next++;
            n++;
        } else if (gap != NULL && gap < end) {
            int lines = atoi(gap + strlen("log: lines dropped lines="));
            next += lines;
            told += lines;
        }
    }
    assert_int_equal(told, dropped);
    return n;
}

/* ---- Tests ---- */

enum { FLOOD = 400 }; /* lines of 8 kB: three times what pipe and queue hold */

static void flood(void)
{
    log_numbered(0, FLOOD); /* nobody reads: a logging thread that waited would hang */
    int64_t dropped = log_lines_dropped();
    if (dropped <= 0 || log_flush(10)) _exit(1);
    if (write(ready_to, &dropped, sizeof dropped) != sizeof dropped) _exit(9);
    if (!log_flush(LONG_MS)) _exit(2);
    log_numbered(FLOOD, FLOOD + 3);
}

static void a_stuck_output_stops_nobody_and_dropped_lines_are_counted(void **state)
{
    (void)state;
    int64_t dropped = 0;
    struct child child = begin(flood);
    assert_int_equal(read(child.ready, &dropped, sizeof dropped), sizeof dropped);
    assert_in_range(dropped, 100, FLOOD - 100);
    char *text = hear(&child);
    assert_int_equal(end(&child), 0);
    assert_int_equal(count_numbered(text, (int)dropped), FLOOD + 3 - (int)dropped);
    free(text);
}

static void say_much_and_end(void)
{
    log_numbered(0, 50); /* more than the pipe holds */
    say_ready();
}

static void what_is_queued_at_the_end_is_written(void **state)
{
    (void)state;
    struct child child = begin(say_much_and_end);
    await_ready(&child);
    char *text = hear(&child);
    assert_int_equal(end(&child), 0);
    assert_int_equal(count_numbered(text, 0), 50);
    free(text);
}

static void the_end_waits_a_second_for_a_stuck_output(void **state)
{
    (void)state;
    struct clock *clock = clock_monotonic();
    struct child child = begin(say_much_and_end);
    await_ready(&child);
    int64_t began = clock_now(clock);
    int status;
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid); /* while nobody reads */
    double took_ms = clock_to_ms(clock_now(clock) - began);
    assert_int_equal(status, 0);
    assert_true(took_ms > 500 && took_ms < 5000);
    close(child.said);
    close(child.ready);
}

static void crash(int number)
{
    const struct rlimit no_core = {0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(number, SIG_DFL); /* cmocka has its own, and so may a sanitizer */
    log_outlive_crashes();
    log_numbered(0, 50);
    log_event(LOG_ERROR, "g", "last words");
    say_ready();
    raise(number);
}

static void abort_now(void)
{
    crash(SIGABRT);
}

static void fault_now(void)
{
    crash(SIGSEGV);
}

static void a_crash_loses_no_line(void **state)
{
    (void)state;
    static const struct {
        void (*lives)(void);
        int number;
    } cases[] = {{abort_now, SIGABRT}, {fault_now, SIGSEGV}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct child child = begin(cases[i].lives);
        await_ready(&child);
        char *text = hear(&child);
        int status = end(&child);
        assert_int_equal(count_numbered(text, 0), 50);
        assert_non_null(strstr(text, "last words"));
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), cases[i].number);
        free(text);
    }
}

/* ---- What others write to stderr ---- */

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++) n++;
    return n;
}

static void say(const char *bytes, size_t n)
{
    if (write(STDERR_FILENO, bytes, n) != (ssize_t)n) abort();
}

#define SAY(text) say(text, sizeof(text) - 1)

static void take_stderr(void)
{
    hearth_error error;
    if (log_take_stderr(&error) != HEARTH_OK) abort();
}

static void others_write(void)
{
    take_stderr();
    log_event(LOG_INFO, "g", "begun");
    SAY("one\n");
    fprintf(stderr, "in %s\n", "pieces");
    SAY("\033[31mred\n2026-01-01T00:00:00.000Z info  g: forged\r\n\n");
    SAY("a\0b\xff\xc2\x9b\n");
    for (int i = 0; i < 2500; i++) SAY("x");
    log_give_stderr();
    SAY("raw\n");
    log_event(LOG_INFO, "g", "ended");
}

static void lines_of_others_are_events_of_the_log(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "info  g: begun",
        "error stderr: a library says text=one",
        "error stderr: a library says text=\"in pieces\"",
        "error stderr: a library says text=\"\\u001b[31mred\"",
        "error stderr: a library says text=\"2026-01-01T00:00:00.000Z info  g: forged\"",
        "error stderr: a library says text=\"a?b",
    };
    struct child child = begin(others_write);
    char *text = hear(&child), *at = text;
    assert_int_equal(end(&child), 0);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        at = strstr(at, lines[i]);
        if (at == NULL) fail_msg("after that there is no %s: %s", lines[i], text);
    }
    assert_int_equal(count(text, "text=xxxx"), 3); /* 1000, 1000 and 500 of them */
    assert_non_null(strstr(text, "\nraw\n"));
    assert_non_null(strstr(text, "g: ended"));
    for (const char *c = text; *c != '\0'; c++) assert_true(*c == '\n' || (unsigned char)*c >= ' ');
    assert_null(strstr(text, "\xc2\x9b"));
    free(text);
}

static void speak_and_crash(void)
{
    const struct rlimit no_core = {0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGABRT, SIG_DFL);
    take_stderr();
    log_outlive_crashes();
    for (int i = 0; i < 5000; i++) SAY("more than a pipe holds\n");
    SAY("last \033words");
    abort();
}

static void a_crash_loses_nothing_that_others_wrote(void **state)
{
    (void)state;
    struct child child = begin(speak_and_crash);
    char *text = hear(&child);
    int status = end(&child);
    assert_int_equal(count(text, "text=\"more than a pipe holds\""), 5000);
    assert_non_null(strstr(text, "last \\u001bwords"));
    assert_null(strchr(text, '\033'));
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    free(text);
}

static void *write_for_ever(void *ud)
{
    while (true) SAY("and on\n");
    return ud;
}

/* A library that writes faster than the log can, or for ever, holds up nobody but itself, and ends nothing. */
static void exit_while_another_writes(void)
{
    pthread_t thread;
    take_stderr();
    if (pthread_create(&thread, NULL, write_for_ever, NULL) != 0) abort();
    log_event(LOG_INFO, "g", "begun");
    log_give_stderr();
    log_event(LOG_INFO, "g", "given");
}

static void it_is_given_back_while_another_thread_writes(void **state)
{
    (void)state;
    struct child child = begin(exit_while_another_writes);
    char *text = hear(&child);
    assert_int_equal(end(&child), 0);
    assert_non_null(strstr(text, "g: given"));
    free(text);
}

static void fork_and_log(void)
{
    log_numbered(0, 50); /* some lines are still queued, for the parent alone to write */
    pid_t pid = fork();
    if (pid == 0) {
        log_event(LOG_INFO, "g", "of the child");
        _exit(0); /* lines that are not written by now are lost */
    }
    say_ready();
    waitpid(pid, NULL, 0);
    log_event(LOG_INFO, "g", "of the parent");
}

static void the_child_of_a_fork_writes_its_own_lines_alone(void **state)
{
    (void)state;
    struct child child = begin(fork_and_log);
    await_ready(&child);
    char *text = hear(&child);
    assert_int_equal(end(&child), 0);
    assert_int_equal(count(text, "of the child"), 1);
    assert_int_equal(count(text, "of the parent"), 1);
    assert_int_equal(count(text, "line n="), 50);
    free(text);
}

/* ---- Files ---- */

static char *content(const char *path)
{
    struct buf text = {0};
    char chunk[4096];
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    while ((n = read(fd, chunk, sizeof chunk)) > 0) buf_append(&text, chunk, (size_t)n);
    close(fd);
    return buf_take(&text);
}

static void a_file_is_reopened_between_two_lines(void **state)
{
    (void)state;
    hearth_error error;
    char *folder = mem_format("%s/unit-log-XXXXXX", getenv("HEARTH_BUILD"));
    assert_non_null(mkdtemp(folder));
    char *path = mem_format("%s/log", folder), *moved = mem_format("%s/log.1", folder);
    assert_int_equal(log_open(path, "info", "text", &error), HEARTH_OK);
    log_event(LOG_INFO, "g", "before the thread");
    char *text = content(path); /* at once */
    assert_int_equal(count(text, "before the thread"), 1);
    free(text);
    assert_int_equal(log_start(&error), HEARTH_OK);
    log_event(LOG_INFO, "g", "before");
    assert_int_equal(rename(path, moved), 0);
    log_numbered(0, 20);
    log_reopen();
    log_event(LOG_INFO, "g", "after");
    assert_true(log_flush(LONG_MS));
    char *old = content(moved), *new = content(path);
    assert_int_equal(count(old, "g: before"), 2);
    assert_int_equal(count(old, "line n="), 20);
    assert_int_equal(count(new, "g: after"), 1);
    assert_int_equal(count(new, "\n"), 1);
    free(old);
    free(new);

    assert_int_equal(rename(path, moved), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    log_reopen(); /* cannot be opened now: the former file stays, and gets a line about it */
    log_event(LOG_INFO, "g", "still there");
    assert_true(log_flush(LONG_MS));
    old = content(moved);
    assert_int_equal(count(old, "log: not reopened, the former file stays"), 1);
    assert_int_equal(count(old, "g: still there"), 1);
    free(old);
    assert_int_equal(log_open(NULL, "error", "text", &error), HEARTH_OK);
    rmdir(path);
    unlink(moved);
    assert_int_equal(rmdir(folder), 0);
    free(folder);
    free(path);
    free(moved);
}

/* Lines that cannot be written are lost and counted, and reported as soon as writing works. */
static void lines_that_cannot_be_written_are_counted_and_reported(void **state)
{
    (void)state;
    hearth_error error;
    char *path = mem_format("%s/unit-log-%d", getenv("HEARTH_BUILD"), (int)getpid());
    assert_int_equal(log_start(&error), HEARTH_OK);
    int64_t before = log_lines_dropped();
    assert_int_equal(log_open("/dev/full", "info", "text", &error), HEARTH_OK);
    for (int i = 0; i < 7; i++) log_event(LOG_INFO, "g", "into nothing");
    assert_true(log_flush(LONG_MS));
    assert_int_equal(log_lines_dropped() - before, 7);
    assert_int_equal(log_open(path, "info", "text", &error), HEARTH_OK);
    log_event(LOG_INFO, "g", "into the file");
    assert_true(log_flush(LONG_MS));
    char *text = content(path);
    assert_int_equal(count(text, "log: lines dropped lines=7\n"), 1);
    assert_int_equal(count(text, "into the file"), 1);
    assert_int_equal(log_lines_dropped() - before, 7);
    assert_int_equal(log_open(NULL, "error", "text", &error), HEARTH_OK);
    unlink(path);
    free(path);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* Tests that fork come first: this process has no log thread yet. */
        cmocka_unit_test(a_stuck_output_stops_nobody_and_dropped_lines_are_counted),
        cmocka_unit_test(what_is_queued_at_the_end_is_written),
        cmocka_unit_test(the_end_waits_a_second_for_a_stuck_output),
        cmocka_unit_test(a_crash_loses_no_line),
        cmocka_unit_test(lines_of_others_are_events_of_the_log),
        cmocka_unit_test(a_crash_loses_nothing_that_others_wrote),
        cmocka_unit_test(it_is_given_back_while_another_thread_writes),
        cmocka_unit_test(the_child_of_a_fork_writes_its_own_lines_alone),
        cmocka_unit_test(a_file_is_reopened_between_two_lines),
        cmocka_unit_test(lines_that_cannot_be_written_are_counted_and_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
