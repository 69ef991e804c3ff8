/* llama-server's own completions: POST /completion, /completions and /infill. HTTP thread only. */
#ifndef SERVE_NATIVE_NATIVE_H
#define SERVE_NATIVE_NATIVE_H

#include "serve/core/call.h"
#include "serve/core/exchange.h"
#include "serve/core/reading.h"
#include "serve/fields/fields.h"

/* The routes. */
void native_completion(struct call *call);
void native_infill(struct call *call); /* infill_route.c */

/* Starts the exchange of a parsed completion, or answers with an error. Takes the fields over. */
void native_answer(struct call *call, const struct dialect *dialect, struct fields *fields);

/* For native_answer() and tests: the dialects, and their state, which copies what it needs. NULL with the error: a
 * field that only these routes read is invalid. */
extern const struct dialect native_dialect, native_infill_dialect;
/* The state reads the fields once more when it is prepared. */
void *native_state(const struct fields *fields, const char *model, hearth_error *error);

/* Puts the final object of a choice, for OpenAI's "__verbose"; in a stream it has no text. */
void native_put_answer(const void *state, size_t index, const struct answer *answer, struct pieces *out);

#endif
