/* JSON bodies: see body.h. */
#include "serve/fields/body.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/json_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Simple values ---- */

/* Whole numbers written as 1.0 are accepted too: some languages have floats only. */
bool field_whole(const json_t *value, double min, double max, int64_t *out)
{
    double real = json_is_real(value) ? json_real_value(value) : 0;
    if (json_is_integer(value))
        *out = json_integer_value(value);
    else if (json_is_real(value) && real == trunc(real) && fabs(real) < 0x1p53)
        *out = (int64_t)real;
    else
        return false;
    return (double)*out >= min && (double)*out <= max;
}

const char *field_string(const json_t *value)
{
    const char *text = json_string_value(value);
    return text != NULL && strlen(text) == json_string_length(value) ? text : NULL;
}

int field_bool(const char *name, const json_t *value, bool *out, hearth_error *error)
{
    if (!json_is_boolean(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be true or false", name);
    *out = json_is_true(value);
    return HEARTH_OK;
}

int field_int(const char *name, const json_t *value, double min, double max, int64_t *out, hearth_error *error)
{
    if (field_whole(value, min, max, out)) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, name, "'%s' must be a whole number from %.0f to %.0f", name, min, max);
}

/* ---- Fields ---- */

json_t *body_find(const json_t *body, const char *name)
{
    json_t *value = json_object_get(body, name);
    return json_is_null(value) ? NULL : value;
}

int body_text(const json_t *body, const char *name, const char **out, hearth_error *error)
{
    const json_t *value = body_find(body, name);
    if (value == NULL) return HEARTH_OK;
    const char *text = field_string(value);
    if (text == NULL)
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a string without zero characters", name);
    *out = text;
    return HEARTH_OK;
}

int body_bool(const json_t *body, const char *name, bool *out, hearth_error *error)
{
    const json_t *value = body_find(body, name);
    return value == NULL ? HEARTH_OK : field_bool(name, value, out, error);
}

int body_int(const json_t *body, const char *name, int32_t min, int32_t *out, hearth_error *error)
{
    const json_t *value = body_find(body, name);
    if (value == NULL) return HEARTH_OK;
    int64_t number;
    if (!field_whole(value, min, INT32_MAX, &number))
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a whole number of at least %d", name, min);
    *out = (int32_t)number;
    return HEARTH_OK;
}

int body_word(const json_t *body, const char *name, const char *const *words, int *out, hearth_error *error)
{
    const json_t *value = body_find(body, name);
    struct buf known = {0};
    if (value == NULL) return HEARTH_OK;
    for (int i = 0; words[i] != NULL; i++) {
        if (json_is_string(value) && strcmp(json_string_value(value), words[i]) == 0) {
            buf_release(&known);
            *out = i;
            return HEARTH_OK;
        }
        buf_printf(&known, "%s%s", i == 0 ? "" : " or ", words[i]);
    }
    error_at(error, HEARTH_INVALID, name, "'%s' must be %s", name, known.v);
    buf_release(&known);
    return HEARTH_INVALID;
}

int body_limit(const char *text, int most, size_t *out, hearth_error *error)
{
    char *end;
    if (text == NULL) return HEARTH_OK;
    long n = strtol(text, &end, 10);
    if (n < 1 || n > most || *end != '\0')
        return error_at(error, HEARTH_INVALID, "limit", "'limit' must be a whole number from 1 to %d", most);
    *out = (size_t)n;
    return HEARTH_OK;
}

/* ---- The size of JSON trees ---- */

/* Bytes of one value in jansson's trees: with malloc's overhead, and with its slot in the list or object around it
 * while that is being reallocated. Strings are counted as member names, which take most. */
enum { OBJECT_BYTES = 256, LIST_BYTES = 160, STRING_BYTES = 128, OTHER_BYTES = 56 };

/* A wide number: an object, the name of its member, its digits as a string. */
enum { WIDE_BYTES = OBJECT_BYTES + 2 * STRING_BYTES };

static void add_value(struct json_size *size, size_t bytes)
{
    size->values++;
    size->memory += bytes;
}

struct json_size json_size_of_text(const char *text, size_t len)
{
    struct json_size size = {0};
    size_t depth = 0;
    struct json_piece piece;
    for (const char *at = text; json_text_next(&at, text + len, &piece);) {
        const char c = piece.text[0];
        if (c == '"') {
            add_value(&size, STRING_BYTES);
        } else if (c == '{' || c == '[') {
            add_value(&size, c == '{' ? OBJECT_BYTES : LIST_BYTES);
            if (++depth > size.depth) size.depth = depth;
        } else if (c == '}' || c == ']') {
            depth -= depth > 0;
        } else {
            add_value(&size, piece.is_wide ? WIDE_BYTES : OTHER_BYTES);
        }
    }
    return size;
}

size_t json_size_of_tree(const json_t *tree)
{
    size_t bytes = 0, i;
    const char *name;
    json_t *item;
    switch (tree == NULL ? JSON_NULL : json_typeof(tree)) {
    case JSON_OBJECT:
        json_object_foreach((json_t *)tree, name, item) bytes += STRING_BYTES + strlen(name) + json_size_of_tree(item);
        return bytes + OBJECT_BYTES;
    case JSON_ARRAY:
        json_array_foreach(tree, i, item) bytes += json_size_of_tree(item);
        return bytes + LIST_BYTES;
    case JSON_STRING:
        return STRING_BYTES + json_string_length(tree);
    default:
        return OTHER_BYTES;
    }
}

size_t json_values_of_tree(const json_t *tree)
{
    size_t n = 1, i;
    const char *name;
    json_t *item;
    if (tree == NULL) return 0;
    if (json_text_wide(tree) != NULL) return n;
    json_object_foreach((json_t *)tree, name, item) n += 1 + json_values_of_tree(item);
    json_array_foreach(tree, i, item) n += json_values_of_tree(item);
    return n;
}
