/* Taking standard error: see log_stderr.h.
 *
 * `taken` belongs to the thread that takes and gives, the lines to the reading thread. Fields that a handler of a crash
 * reads are atomic. The pipe never fills for long: nothing that the reading thread calls waits for a disk or a
 * terminal. */
#include "base/log_stderr.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE_BYTES = 1000, /* of a line of the log; a longer one becomes several */
    PAUSE_MS = 100,    /* after which a line without an end is one */
    WAIT_MS = 1000     /* for what is on its way, at the end */
};

static struct {
    bool taken;
    FILE *console;
    pthread_t reader;
    int write_end; /* a second descriptor of it: the first is 2 */
    _Atomic int read_end;
    _Atomic int console_fd;
    atomic_bool ending;
    atomic_bool reading; /* something was taken from the pipe, or is about to be, and is no event yet */
} own = {.read_end = -1, .console_fd = STDERR_FILENO};

/* ---- Lines ---- */

struct line {
    char text[LINE_BYTES + 1];
    size_t len;
};

static void end_line(struct line *line)
{
    line->text[line->len] = '\0';
    if (line->len > 0) log_event(LOG_ERROR, "stderr", "a library says", log_str("text", line->text));
    line->len = 0;
}

/* ---- The thread ---- */

static void *read_pipe(void *ud)
{
    (void)ud;
    struct line line = {.len = 0};
    char bytes[4096];
    struct pollfd one = {.fd = atomic_load(&own.read_end), .events = POLLIN};
    while (true) {
        bool ends = atomic_load(&own.ending);
        if (line.len == 0) atomic_store(&own.reading, false);
        bool is_there = poll(&one, 1, ends ? 0 : line.len > 0 ? PAUSE_MS : -1) > 0;
        atomic_store(&own.reading, true);
        ssize_t n = is_there ? read(one.fd, bytes, sizeof bytes) : 0;
        if (n > 0) {
            for (size_t i = 0; i < (size_t)n; i++) {
                if (bytes[i] == '\n' || bytes[i] == '\r' || line.len == LINE_BYTES) end_line(&line);
                if (bytes[i] != '\n' && bytes[i] != '\r') line.text[line.len++] = bytes[i] == '\0' ? '?' : bytes[i];
            }
        } else {
            end_line(&line);
            if (ends) break;
        }
    }
    atomic_store(&own.reading, false);
    return NULL;
}

/* ---- Taking and giving ---- */

FILE *log_console(void)
{
    return own.console != NULL ? own.console : stderr;
}

/* Its descriptors stay below those that a program may take by number. */
static int duplicate(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

/* A sanitizer that finds a fault ends the process at once: its report goes where it can be seen. NULL: there is none.
 */
extern void __sanitizer_set_report_fd(void *fd) __attribute__((weak)); /* NOLINT(bugprone-reserved-identifier) */

int log_take_stderr(hearth_error *error)
{
    enum { READ, WRITE, CONSOLE, SHOWN, N };
    static bool is_registered;
    int fds[N] = {-1, -1, -1, -1};
    if (own.taken) return HEARTH_OK;
    if (os_pipe(fds) == 0) fds[CONSOLE] = duplicate(STDERR_FILENO);
    if (fds[CONSOLE] >= 0) fds[SHOWN] = duplicate(STDERR_FILENO);
    FILE *console = fds[SHOWN] >= 0 ? fdopen(fds[SHOWN], "w") : NULL;
    int rc;
    if (console == NULL) {
        rc = error_set(error, HEARTH_IO, "cannot take standard error: %s", strerror(errno));
    } else {
        atomic_store(&own.read_end, fds[READ]);
        atomic_store(&own.ending, false);
        rc = thread_start_quiet(&own.reader, read_pipe, NULL, "reads standard error", error);
    }
    if (rc != HEARTH_OK) {
        for (size_t i = 0; i < N; i++)
            if (fds[i] >= 0 && (i != SHOWN || console == NULL)) close(fds[i]);
        if (console != NULL) fclose(console); /* with its descriptor */
        return rc;
    }
    setvbuf(console, NULL, _IONBF, 0);
    own.console = console;
    own.write_end = fds[WRITE];
    atomic_store(&own.console_fd, fds[CONSOLE]);
    log_use_stderr(fds[CONSOLE]);
    if (__sanitizer_set_report_fd != NULL) __sanitizer_set_report_fd((void *)(intptr_t)fds[CONSOLE]);
    dup2(own.write_end, STDERR_FILENO);
    own.taken = true;
    if (!is_registered) atexit(log_give_stderr);
    is_registered = true;
    return HEARTH_OK;
}

/* Lines that another thread writes now go where they went before. */
void log_give_stderr(void)
{
    if (!own.taken) return;
    own.taken = false;
    dup2(atomic_load(&own.console_fd), STDERR_FILENO);
    atomic_store(&own.ending, true);
    while (write(own.write_end, "\n", 1) < 0 && errno == EINTR) continue; /* so that the reader sees it */
    pthread_join(own.reader, NULL);
    int read_end = atomic_exchange(&own.read_end, -1);
    close(read_end);
    close(own.write_end);
    atomic_store(&own.console_fd, STDERR_FILENO);
    log_use_stderr(STDERR_FILENO); /* the former one stays open: the log's thread may be in a write to it */
}

/* ---- Crashes: only what a handler of signals may do ---- */

static bool is_on_its_way(void)
{
    int n = 0, fd = atomic_load(&own.read_end);
    if (log_is_busy() || atomic_load(&own.reading)) return true;
    return fd >= 0 && ioctl(fd, FIONREAD, &n) == 0 && n > 0;
}

/* Other threads keep running, so that they can log and write meanwhile. */
static void on_crash(int number)
{
    const struct timespec a_little = {.tv_nsec = 1000000};
    for (int ms = 0; ms < WAIT_MS && is_on_its_way(); ms++) nanosleep(&a_little, NULL);
    /* The rest of the pipe, where the reading thread is the one that crashed, or the log's is stuck. It is shown
     * without the log, with a space for each character that could do more than be read. */
    char bytes[512];
    int n = 0, fd = atomic_load(&own.read_end), console = atomic_load(&own.console_fd);
    while (fd >= 0 && ioctl(fd, FIONREAD, &n) == 0 && n > 0) {
        ssize_t len = read(fd, bytes, n < (int)sizeof bytes ? (size_t)n : sizeof bytes);
        for (ssize_t i = 0; i < len; i++)
            if (bytes[i] < ' ' || bytes[i] > '~') bytes[i] = ' ';
        if (len <= 0 || write(console, bytes, (size_t)len) < 0) break;
    }
    raise(number); /* delivered when this returns, to the default action */
}

void log_outlive_crashes(void)
{
    static const int numbers[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    struct sigaction former, ours = {.sa_handler = on_crash, .sa_flags = (int)SA_RESETHAND};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], NULL, &former) == 0 && former.sa_handler == SIG_DFL)
            sigaction(numbers[i], &ours, NULL);
}
