/* JSON bodies: the size of their trees, and typed readers for those with few fields: embeddings, reranking, prompts,
 * models. A field that is null was not given; then `out` is left as it is. Errors name the field. No state; any thread.
 */
#ifndef SERVE_FIELDS_BODY_H
#define SERVE_FIELDS_BODY_H

#include "base/buf.h"
#include "hearth.h"

#include <jansson.h>
#include <stddef.h>

/* Whether `words`, with blanks between, has the word. NULL: no. */
bool words_have(const char *words, const char *word);

bool field_whole(const json_t *value, double min, double max, int64_t *out); /* also accepts 1.0 */
const char *field_string(const json_t *value); /* NULL: not a string, or one with zero bytes inside */
int field_bool(const char *name, const json_t *value, bool *out, hearth_error *error);
int field_int(const char *name, const json_t *value, double min, double max, int64_t *out, hearth_error *error);

/* NULL if the field was not given. */
json_t *body_find(const json_t *body, const char *name);

int body_text(const json_t *body, const char *name, const char **out, hearth_error *error); /* without zero bytes */
int body_bool(const json_t *body, const char *name, bool *out, hearth_error *error);
int body_int(const json_t *body, const char *name, int32_t min, int32_t *out, hearth_error *error);

/* One of the words, by its index; the list ends with NULL. */
int body_word(const json_t *body, const char *name, const char *const *words, int *out, hearth_error *error);

/* The text of "limit" in a query, from 1 to `most`; NULL: it was not given. */
int body_limit(const char *text, int most, size_t *out, hearth_error *error);

/* Reads a body to the name of a model, from "model" or else from the field `older`, and releases it. NULL with the
 * error: it names none. free() it. */
char *body_read_name(struct buf *body, const char *older, hearth_error *error);
size_t body_name_size(const void *name);

/* Upper bounds for the memory, depth and number of values of the tree that JSON text parses to. They are estimated from
 * its bytes before anything is parsed: three bytes like "{}," become 250. Validity is not checked: for text that is not
 * JSON the numbers mean nothing. */
struct json_size {
    size_t values; /* objects, lists, strings (member names too), numbers, true, false, null */
    size_t depth;  /* nesting of lists and objects */
    size_t memory; /* bytes of the tree at most, without the bytes of its strings */
};

struct json_size json_size_of_text(const char *text, size_t len);

/* Values of a parsed tree, member names too; NULL has none. */
size_t json_values_of_tree(const json_t *tree);

/* Bytes of a parsed tree at most, with those of its strings. */
size_t json_size_of_tree(const json_t *tree);

#endif
