/* Fields of bodies that nobody reads. They are skipped, and told: in the log, once for each name and API while the
 * server runs, and in a header of the answer, so that a user who writes "temprature" can see it. */
#ifndef SERVE_FIELDS_UNKNOWN_H
#define SERVE_FIELDS_UNKNOWN_H

#include "serve/fields/fields.h"

struct call;

struct unknown {
    const char *api; /* static; NULL: its fields are not looked at */
    char *names;     /* "a, b", fit for a header; NULL: all are known */
};

/* Looks at a body as its client sent it, and at the messages in it. Any thread; free() the names. */
struct unknown unknown_find(const json_t *body, int route, const struct fields_api *api);

/* What was logged already. */
struct unknown_log;

struct unknown_log *unknown_log_open(void);
void unknown_log_close(struct unknown_log *log);

/* Tells of the fields of a request that was read, before it is answered. HTTP thread only. */
void unknown_report(struct call *call, const struct fields *fields);

#endif
