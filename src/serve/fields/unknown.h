/* Unknown fields of request bodies. They are ignored, and reported so that a user who writes "temprature" can see it.
 * The log has each name once for each API while the server runs, and the answer has the header X-Hearth-Unknown-Fields.
 * Known but unsupported fields are refused: fields_refuse_unsupported(). */
#ifndef SERVE_FIELDS_UNKNOWN_H
#define SERVE_FIELDS_UNKNOWN_H

#include "serve/fields/fields.h"

struct call;

struct unknown {
    const char *api; /* static; NULL: the body was not checked */
    char *names;     /* "a, b", printable ASCII for a header; NULL: all are known */
};

/* Finds the unknown fields of a body as its client sent it, also in its messages. Any thread; free() the names. */
struct unknown unknown_find(const json_t *body, int route, const struct fields_api *api);

/* The names that were logged already. */
struct unknown_log;

struct unknown_log *unknown_log_open(void);
void unknown_log_close(struct unknown_log *log);

/* Reports the unknown fields of a parsed request, before it is answered, and hands over what was left out of it. HTTP
 * thread only. */
void unknown_report(struct call *call, const struct fields *fields);

#endif
