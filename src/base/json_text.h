/* JSON text in and out of jansson's trees, with every number as it was written: the one place that reads and writes
 * JSON of clients, of models and of applications.
 *
 * jansson refuses integers beyond 64 bits and reals beyond a double; JSON has no such limits. Such a number is "wide":
 * in the tree it is an object with one member, whose string is the number. The member's name is random and belongs to
 * the process, so that no text from outside can have it. So no reader takes a wide number for a string or for a number
 * that it could compute with; those that take any object ask json_text_is_object() instead of json_is_object(). It is
 * written as the number that it was. Reals are written with the fewest digits that read as the same double, in the form
 * that Python's json has for them.
 *
 * No state but that name; any thread. */
#ifndef BASE_JSON_TEXT_H
#define BASE_JSON_TEXT_H

#include "base/buf.h"
#include "hearth.h"

#include <jansson.h>
#include <stdbool.h>

/* ---- Trees ---- */

/* Reads any JSON value. NULL with `fault` (which may be NULL), whose places are those in `text`. */
json_t *json_text_read(const char *text, size_t len, json_error_t *fault);

/* Writes a tree without spaces; with the members of objects in the order of their names where `sorted`. */
void json_text_write(struct buf *out, const json_t *value);
void json_text_write_sorted(struct buf *out, const json_t *value);
char *json_text_of(const json_t *value);     /* never NULL; free() it */
size_t json_text_bytes(const json_t *value); /* of that text, which is not made */

/* A hearth_json is such a tree under the name that applications know: these change the type alone. */
static inline const hearth_json *json_text_public(const json_t *tree)
{
    return (const hearth_json *)tree;
}

static inline const json_t *json_text_tree(const hearth_json *value)
{
    return (const json_t *)value;
}

/* The digits of a wide number; NULL: the value is none. */
const char *json_text_wide(const json_t *value);

/* "number:" and 32 random hexadecimal digits, the same for as long as the process lives: for other trees that carry
 * wide numbers in their own way. */
const char *json_text_name_of_wide(void);

bool json_text_is_object(const json_t *value); /* and no wide number */
bool json_text_is_number(const json_t *value); /* wide or not */

/* ---- Pieces of text ---- */

/* A piece of JSON text: a string with its quotes, one of "{}[]", or a word (a number, true, false, null). */
struct json_piece {
    const char *text;
    size_t len;
    bool is_wide; /* a number that a tree has an object for */
};

/* Finds the next piece, and moves `at` behind it. False: there is none. Whether the text is JSON is not checked. */
bool json_text_next(const char **at, const char *end, struct json_piece *piece);

#endif
