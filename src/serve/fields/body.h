/* Typed readers for bodies with few fields: embeddings, reranking, prompts, models. A field that is null was not
 * given; then `out` is left as it is. Errors name the field. No state; any thread. */
#ifndef SERVE_FIELDS_BODY_H
#define SERVE_FIELDS_BODY_H

#include "hearth.h"

#include <jansson.h>

/* NULL if the field was not given. */
const json_t *body_find(const json_t *body, const char *name);

int body_text(const json_t *body, const char *name, const char **out, hearth_error *error); /* without zero bytes */
int body_bool(const json_t *body, const char *name, bool *out, hearth_error *error);
int body_int(const json_t *body, const char *name, int32_t min, int32_t *out, hearth_error *error);

/* One of the words, by its index; the list ends with NULL. */
int body_word(const json_t *body, const char *name, const char *const *words, int *out, hearth_error *error);

#endif
