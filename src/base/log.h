/* The log: one line for each event, on stderr or in a file, as text or as JSON lines.
 *
 *     log_event(LOG_INFO, "batch-engine", "started", log_int("slots", 4), log_str("model", name));
 *     2026-03-01T12:00:00.123Z info  batch-engine: started slots=4 model=demo
 *
 * `group` names the part that logs, the text is fixed (people search for it), and what varies is in fields, with the
 * unit in the field's name (took_ms, size_bytes). Prompts and replies are never logged, except words of prompts with
 * server.insecure_logging. Control characters are escaped, so that nothing a client sends can end a line or reach a
 * terminal. Any thread; a line is written whole.
 *
 * Until log_start(), the logging thread writes its lines itself. From then on a thread of the log does, and no other
 * thread waits for a stderr or a disk that is slow. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "hearth.h"

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

struct log_field {
    const char *name; /* NULL ends the list; "": this one is left out */
    enum { LOG_FIELD_INT, LOG_FIELD_NUM, LOG_FIELD_STR, LOG_FIELD_BOOL } type;
    union {
        int64_t i;
        double num;
        const char *str; /* borrowed for the call */
        bool b;
    } value;
};

static inline struct log_field log_int(const char *name, int64_t value)
{
    return (struct log_field){.name = name, .type = LOG_FIELD_INT, .value.i = value};
}

static inline struct log_field log_num(const char *name, double value)
{
    return (struct log_field){.name = name, .type = LOG_FIELD_NUM, .value.num = value};
}

static inline struct log_field log_str(const char *name, const char *value)
{
    return (struct log_field){.name = name, .type = LOG_FIELD_STR, .value.str = value};
}

static inline struct log_field log_bool(const char *name, bool value)
{
    return (struct log_field){.name = name, .type = LOG_FIELD_BOOL, .value.b = value};
}

/* In place of a field that the line does without. */
static inline struct log_field log_nothing(void)
{
    return (struct log_field){.name = ""};
}

#define log_event(level, group, ...) log_write(level, group, LOG_FIELDS_(__VA_ARGS__, (struct log_field){0}))
#define LOG_FIELDS_(text, ...)                                                                                         \
    (text), (const struct log_field[])                                                                                 \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

bool log_enabled(enum log_level level);
void log_write(enum log_level level, const char *group, const char *text, const struct log_field *fields);

/* Sets the destination; see hearth_log_open(). Lines logged before are in the former one when this returns, unless that
 * takes more than 1 s. */
int log_open(const char *path, const char *level, const char *format, hearth_error *error);

/* Starts the log's thread; harmless twice. At exit the process waits up to 1 s for queued lines. A child of fork() has
 * no such thread, and writes its own lines. */
int log_start(hearth_error *error);

/* Reopens the log's file, for log rotation: on the log's thread, which logs failures. Any thread. */
void log_reopen(void);

/* Waits until all lines logged so far are written, `ms` at most; whether they are. Any thread. */
bool log_flush(int64_t ms);

/* Whether lines are queued or being written; for a handler of signals as well. */
bool log_is_busy(void);

/* Where standard error is from now on: lines that would go there go to this descriptor. */
void log_use_stderr(int fd);

/* Lines lost so far: the queue was full, or they could not be written. */
int64_t log_lines_dropped(void);

#endif
