/* The log: formatting lines, and the thread that writes them.
 *
 * With the thread, a logging thread appends its line to a queue of up to 1 MiB, under a mutex that is never held during
 * a write. The log's thread takes the whole queue and writes it. Lines that do not fit are dropped and counted, and the
 * thread logs their number as soon as it can. After one dropped line all are dropped until the queue is taken, so that
 * lines are missing in one place, where their number stands. The thread owns the descriptor: it alone writes to it,
 * replaces it and closes it. Without the thread, the logging thread writes under the mutex. */
#include "base/log.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "base/os.h"
#include "base/thread.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Some ten thousand lines. */
#define QUEUE_BYTES ((size_t)1 << 20)

/* How long the end of the process, or a change of the file, waits for queued lines. */
#define FLUSH_WAIT_MS 1000

static const char *const level_names[] = {"error", "warn", "info", "debug"};

/* A change of the descriptor, from a position in the queue on. */
struct switch_over {
    bool wanted;
    size_t at;  /* in the queue */
    int fd;     /* -1: `path` is to be opened */
    bool owned; /* the log opened it, and closes it */
    char *path; /* NULL where there is a descriptor */
};

static struct {
    _Atomic enum log_level level;
    metric_value dropped_total;
    _Atomic bool busy; /* something is queued, or being written; a crash handler reads it */

    pthread_mutex_t mutex; /* guards what follows: */
    pthread_cond_t filled, emptied;
    bool json;
    bool threaded, ending;
    struct buf queue;
    size_t dropped; /* lines, since the thread took the queue */
    struct switch_over switch_over;
    char *path; /* NULL: stderr */

    int stderr_fd; /* where standard error is: see log_use_stderr() */

    int fd; /* the log thread's, while there is one, as the next */
    bool owned;
} sink = {.mutex = PTHREAD_MUTEX_INITIALIZER, .stderr_fd = STDERR_FILENO, .fd = STDERR_FILENO, .level = LOG_INFO};

/* ---- Lines ---- */

static void put_quoted(struct buf *b, const char *str)
{
    buf_puts(b, "\"");
    utf8_put_visible(b, str, strlen(str), true);
    buf_puts(b, "\"");
}

static void put_value(struct buf *b, const struct log_field *field, bool json)
{
    switch (field->type) {
    case LOG_FIELD_INT:
        buf_printf(b, "%lld", (long long)field->value.i);
        break;
    case LOG_FIELD_NUM:
        buf_printf(b, "%.3f", field->value.num);
        break;
    case LOG_FIELD_BOOL:
        buf_puts(b, field->value.b ? "true" : "false");
        break;
    case LOG_FIELD_STR: {
        const char *str = field->value.str == NULL ? "" : field->value.str;
        size_t len = 0;
        while (str[len] > ' ' && str[len] < 0x7F && strchr("\"=\\", str[len]) == NULL) len++;
        if (!json && len > 0 && str[len] == '\0') /* a word */
            buf_puts(b, str);
        else
            put_quoted(b, str);
        break;
    }
    }
}

static void put_line(struct buf *b, enum log_level level, const char *group, const char *text,
                     const struct log_field *fields)
{
    const bool json = sink.json;
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    buf_puts(b, json ? "{\"time\":\"" : "");
    buf_printf(b, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
               tm.tm_min, tm.tm_sec, now.tv_nsec / 1000000);
    if (json) {
        buf_printf(b, "\",\"level\":\"%s\",\"group\":\"%s\",\"text\":", level_names[level], group);
        put_quoted(b, text);
    } else {
        buf_printf(b, " %-5s %s: ", level_names[level], group);
        utf8_put_visible(b, text, strlen(text), false);
    }
    for (; fields->name != NULL; fields++) {
        if (fields->name[0] == '\0') continue;
        buf_printf(b, json ? ",\"%s\":" : " %s=", fields->name);
        put_value(b, fields, json);
    }
    buf_puts(b, json ? "}\n" : "\n");
}

/* ---- Writing ---- */

/* Returns how many of the bytes were written. stderr may be non-blocking, as the parent process left it. */
static size_t write_bytes(int fd, const char *bytes, size_t len)
{
    size_t done = 0;
    while (done < len) {
        struct pollfd room = {.fd = fd, .events = POLLOUT};
        ssize_t n = write(fd, bytes + done, len - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || (errno != EINTR && (errno != EAGAIN || poll(&room, 1, -1) < 0)))
            break;
    }
    return done;
}

/* ---- The thread ---- */

/* The log thread's own data. */
struct writer {
    struct buf batch; /* what it took from the queue */
    size_t dropped;   /* after that */
    struct switch_over switch_over;
    size_t lost; /* lines that were not written, and not reported yet */
    bool torn;   /* the last line was written in part */
};

static void write_lines(struct writer *w, const char *bytes, size_t len)
{
    size_t done = write_bytes(sink.fd, bytes, len), lost = 0;
    for (size_t i = done; i < len; i++) lost += bytes[i] == '\n';
    w->lost += lost;
    metric_add(&sink.dropped_total, (int64_t)lost);
    if (done > 0) w->torn = bytes[done - 1] != '\n';
}

/* Logs how many lines were lost. That line itself is never counted. */
static void report_lost(struct writer *w)
{
    if (w->lost == 0) return;
    struct buf line = {0};
    const struct log_field fields[] = {log_int("lines", (int64_t)w->lost), {0}};
    if (w->torn) buf_puts(&line, "\n");
    pthread_mutex_lock(&sink.mutex);
    put_line(&line, LOG_WARN, "log", "lines dropped", fields);
    pthread_mutex_unlock(&sink.mutex);
    size_t done = write_bytes(sink.fd, line.v, line.len);
    if (done > 0) w->torn = done < line.len;
    if (done == line.len) w->lost = 0;
    buf_release(&line);
}

static int open_file(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void use(int fd, bool owned)
{
    if (sink.owned && sink.fd != fd) close(sink.fd);
    sink.fd = fd;
    sink.owned = owned;
}

/* Reports lines that earlier writes lost before the batch, and those that the queue dropped after it. */
static void write_batch(struct writer *w)
{
    size_t at = w->switch_over.wanted ? w->switch_over.at : 0;
    report_lost(w);
    if (w->switch_over.wanted) {
        write_lines(w, buf_text(&w->batch), at);
        bool is_open = w->switch_over.fd >= 0;
        int fd = is_open ? w->switch_over.fd : open_file(w->switch_over.path);
        if (fd >= 0) {
            use(fd, w->switch_over.owned || !is_open);
            w->torn = false;
        } else {
            log_event(LOG_ERROR, "log", "not reopened, the former file stays", log_str("path", w->switch_over.path),
                      log_str("reason", os_error_text(errno)));
        }
        free(w->switch_over.path);
    }
    write_lines(w, buf_text(&w->batch) + at, w->batch.len - at);
    w->lost += w->dropped;
    report_lost(w);
}

/* With the mutex. */
static bool has_work(void)
{
    return sink.queue.len > 0 || sink.dropped > 0 || sink.switch_over.wanted;
}

static void *write_queue(void *ud)
{
    (void)ud;
    struct writer w = {0};
    pthread_mutex_lock(&sink.mutex);
    while (has_work() || !sink.ending) {
        if (!has_work()) {
            atomic_store(&sink.busy, false);
            pthread_cond_broadcast(&sink.emptied);
            pthread_cond_wait(&sink.filled, &sink.mutex);
            continue;
        }
        struct buf empty = w.batch;
        w.batch = sink.queue;
        sink.queue = empty;
        w.dropped = sink.dropped;
        sink.dropped = 0;
        w.switch_over = sink.switch_over;
        sink.switch_over = (struct switch_over){0};
        pthread_mutex_unlock(&sink.mutex);
        write_batch(&w);
        buf_clear(&w.batch);
        pthread_mutex_lock(&sink.mutex);
    }
    sink.threaded = sink.ending = false;
    atomic_store(&sink.busy, false);
    pthread_cond_broadcast(&sink.emptied);
    pthread_mutex_unlock(&sink.mutex);
    buf_release(&w.batch);
    return NULL;
}

/* With the mutex. */
static void wake_writer(void)
{
    atomic_store(&sink.busy, true);
    pthread_cond_signal(&sink.filled);
}

/* With the mutex. */
static bool await_written(int64_t ms)
{
    struct clock *clock = clock_monotonic();
    int64_t deadline = clock_now(clock) + clock_from_ms(ms);
    while (sink.threaded && atomic_load(&sink.busy) && clock_now(clock) < deadline)
        clock->wait(clock, &sink.emptied, &sink.mutex, deadline);
    return !sink.threaded || !atomic_load(&sink.busy);
}

/* ---- Logging ---- */

bool log_enabled(enum log_level level)
{
    return level <= sink.level;
}

void log_write(enum log_level level, const char *group, const char *text, const struct log_field *fields)
{
    if (!log_enabled(level)) return;
    pthread_mutex_lock(&sink.mutex);
    if (sink.threaded) {
        size_t before = sink.queue.len;
        if (sink.dropped == 0) put_line(&sink.queue, level, group, text, fields);
        if (sink.dropped > 0 || sink.queue.len > QUEUE_BYTES) {
            sink.queue.len = before;
            sink.dropped++;
            metric_add(&sink.dropped_total, 1);
        }
        wake_writer();
    } else {
        struct buf line = {0};
        put_line(&line, level, group, text, fields);
        if (write_bytes(sink.fd, line.v, line.len) < line.len) metric_add(&sink.dropped_total, 1);
        buf_release(&line);
    }
    pthread_mutex_unlock(&sink.mutex);
}

int64_t log_lines_dropped(void)
{
    return metric_get(&sink.dropped_total);
}

/* ---- Opening ---- */

/* With the mutex. */
static void switch_to(int fd, bool owned)
{
    if (!sink.threaded) {
        use(fd, owned);
        return;
    }
    if (sink.switch_over.wanted && sink.switch_over.owned) close(sink.switch_over.fd);
    free(sink.switch_over.path);
    sink.switch_over = (struct switch_over){.wanted = true, .at = sink.queue.len, .fd = fd, .owned = owned};
    wake_writer();
    await_written(FLUSH_WAIT_MS);
}

int log_open(const char *path, const char *level, const char *format, hearth_error *error)
{
    int number = LOG_DEBUG;
    while (number >= 0 && strcmp(level, level_names[number]) != 0) number--;
    if (number < 0)
        return error_at(error, HEARTH_INVALID, "level", "unknown log level '%s': use error, warn, info or debug",
                        level);
    bool json = strcmp(format, "json") == 0;
    if (!json && strcmp(format, "text") != 0)
        return error_at(error, HEARTH_INVALID, "format", "unknown log format '%s': use text or json", format);
    int fd = path == NULL ? -1 : open_file(path);
    if (fd < 0 && path != NULL)
        return error_at(error, HEARTH_IO, path, "cannot open the log file %s: %s", path, strerror(errno));
    pthread_mutex_lock(&sink.mutex);
    if (path == NULL) fd = sink.stderr_fd;
    sink.json = json;
    sink.level = (enum log_level)number;
    free(sink.path);
    sink.path = mem_strdup(path);
    switch_to(fd, path != NULL);
    pthread_mutex_unlock(&sink.mutex);
    return HEARTH_OK;
}

void log_use_stderr(int fd)
{
    pthread_mutex_lock(&sink.mutex);
    sink.stderr_fd = fd;
    if (sink.path == NULL) switch_to(fd, false);
    pthread_mutex_unlock(&sink.mutex);
}

void log_reopen(void)
{
    pthread_mutex_lock(&sink.mutex);
    if (sink.threaded && sink.path != NULL && !sink.switch_over.wanted) {
        sink.switch_over =
            (struct switch_over){.wanted = true, .at = sink.queue.len, .fd = -1, .path = mem_strdup(sink.path)};
        wake_writer();
    }
    pthread_mutex_unlock(&sink.mutex);
}

bool log_is_busy(void)
{
    return atomic_load(&sink.busy);
}

/* ---- Starting, fork, exit ---- */

static void before_fork(void)
{
    pthread_mutex_lock(&sink.mutex);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&sink.mutex);
}

/* The parent writes what is queued. */
static void in_child(void)
{
    sink.threaded = sink.ending = false;
    sink.queue.len = sink.dropped = 0;
    free(sink.switch_over.path);
    sink.switch_over = (struct switch_over){0};
    atomic_store(&sink.busy, false);
    clock_cond_init(&sink.filled);
    clock_cond_init(&sink.emptied);
    pthread_mutex_unlock(&sink.mutex);
}

/* A log thread that is stuck in a write is left so, and lines stay queued: the exit must not hang with it. */
static void at_end(void)
{
    pthread_mutex_lock(&sink.mutex);
    if (sink.threaded) {
        sink.ending = true;
        wake_writer();
        await_written(FLUSH_WAIT_MS);
    }
    pthread_mutex_unlock(&sink.mutex);
}

static void prepare(void)
{
    clock_cond_init(&sink.filled);
    clock_cond_init(&sink.emptied);
    pthread_atfork(before_fork, after_fork, in_child);
    atexit(at_end);
}

int log_start(hearth_error *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare);
    pthread_mutex_lock(&sink.mutex);
    int rc = HEARTH_OK;
    if (!sink.threaded) {
        pthread_t thread;
        rc = thread_start_quiet(&thread, write_queue, NULL, "writes the log", error);
        if (rc == HEARTH_OK) pthread_detach(thread);
        sink.threaded = rc == HEARTH_OK;
    }
    pthread_mutex_unlock(&sink.mutex);
    return rc;
}

bool log_flush(int64_t ms)
{
    pthread_mutex_lock(&sink.mutex);
    bool written = await_written(ms);
    pthread_mutex_unlock(&sink.mutex);
    return written;
}
