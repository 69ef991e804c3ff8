/* Lines are put together in memory and written with one write() under a lock, so that lines of several threads do
 * not mix and a crash loses none. */
#include "base/log.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static struct {
    pthread_mutex_t mutex;
    int fd;
    _Atomic enum log_level level;
    bool json;
} sink = {.mutex = PTHREAD_MUTEX_INITIALIZER, .fd = STDERR_FILENO, .level = LOG_INFO};

static void put_time(struct buf *b)
{
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    buf_printf(b, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
               tm.tm_min, tm.tm_sec, now.tv_nsec / 1000000);
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
        bool plain = !json && str[0] != '\0' && strpbrk(str, " \t\r\n\"=\\") == NULL;
        if (plain)
            buf_puts(b, str);
        else
            utf8_put_json_string(b, str, strlen(str));
        break;
    }
    }
}

static void put_text_line(struct buf *b, enum log_level level, const char *group, const char *text,
                          const struct log_field *fields)
{
    put_time(b);
    buf_printf(b, " %-5s %s: %s", level_names[level], group, text);
    for (; fields->name != NULL; fields++) {
        buf_printf(b, " %s=", fields->name);
        put_value(b, fields, false);
    }
    buf_puts(b, "\n");
}

static void put_json_line(struct buf *b, enum log_level level, const char *group, const char *text,
                          const struct log_field *fields)
{
    buf_puts(b, "{\"time\":\"");
    put_time(b);
    buf_printf(b, "\",\"level\":\"%s\",\"group\":\"%s\",\"text\":", level_names[level], group);
    utf8_put_json_string(b, text, strlen(text));
    for (; fields->name != NULL; fields++) {
        buf_printf(b, ",\"%s\":", fields->name);
        put_value(b, fields, true);
    }
    buf_puts(b, "}\n");
}

bool log_enabled(enum log_level level)
{
    return level <= sink.level;
}

void log_write(enum log_level level, const char *group, const char *text, const struct log_field *fields)
{
    if (!log_enabled(level)) return;
    struct buf line = {0};
    pthread_mutex_lock(&sink.mutex);
    (sink.json ? put_json_line : put_text_line)(&line, level, group, text, fields);
    ssize_t written = write(sink.fd, line.v, line.len);
    (void)written; /* a log that cannot be written has nowhere to say so */
    pthread_mutex_unlock(&sink.mutex);
    buf_release(&line);
}

static int find_level(const char *name)
{
    for (int i = 0; i < 4; i++)
        if (strcmp(name, level_names[i]) == 0) return i;
    return -1;
}

int log_open(const char *path, const char *level, const char *format, hearth_error *error)
{
    int number = find_level(level);
    if (number < 0)
        return error_at(error, HEARTH_INVALID, "level", "unknown log level '%s': use error, warn, info or debug",
                        level);
    bool json = strcmp(format, "json") == 0;
    if (!json && strcmp(format, "text") != 0)
        return error_at(error, HEARTH_INVALID, "format", "unknown log format '%s': use text or json", format);
    int fd = STDERR_FILENO;
    if (path != NULL) {
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd < 0) return error_at(error, HEARTH_IO, path, "cannot open the log file %s: %s", path, strerror(errno));
    }
    pthread_mutex_lock(&sink.mutex);
    if (sink.fd != STDERR_FILENO) close(sink.fd);
    sink.fd = fd;
    sink.json = json;
    sink.level = (enum log_level)number;
    pthread_mutex_unlock(&sink.mutex);
    return HEARTH_OK;
}
