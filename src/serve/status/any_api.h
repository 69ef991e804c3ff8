/* Bodies of any API, for routes that answer something else of a request than its reply: how much of it is cached, what
 * its prompt is. The query parameter ?as= says whose body it is. No state; reading runs on the reading thread. */
#ifndef SERVE_STATUS_ANY_API_H
#define SERVE_STATUS_ANY_API_H

#include "serve/core/reading.h"

/* How a route reads and answers bodies of one API. */
struct any_api_form {
    const char *as; /* "chat", "completion", "messages", "responses", "ollama"; "": whatever it is found to be */
    struct reading_form form;
};

/* Reads the body as `as` says, without it as the first form does. HEARTH_INVALID, param "as", for another API. HTTP
 * thread only. */
void any_api_start(struct call *call, const struct any_api_form *forms, size_t n);

/* Read a body to a struct fields; NULL with the error. Of Responses none that continues stored items: without those its
 * prompt would be another one. */
void *any_api_openai(struct buf *body, hearth_error *error);
void *any_api_messages(struct buf *body, hearth_error *error);
void *any_api_responses(struct buf *body, hearth_error *error);
void *any_api_ollama(struct buf *body, hearth_error *error);
void *any_api_detected(struct buf *body, hearth_error *error); /* by its fields; others are OpenAI's */

#endif
