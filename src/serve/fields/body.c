/* JSON bodies: see body.h. */
#include "serve/fields/body.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/memory.h"
#include "serve/core/errors.h"
#include "serve/fields/fields.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Simple values ---- */

bool words_have(const char *words, const char *word)
{
    const size_t len = word == NULL ? 0 : strcspn(word, " ");
    if (len == 0 || word[len] != '\0') return false;
    for (const char *at = words; (at = strstr(at, word)) != NULL; at += len)
        if ((at == words || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0')) return true;
    return false;
}

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

char *body_read_name(struct buf *body, const char *older, hearth_error *error)
{
    json_t *tree = fields_parse_body(body, error);
    const char *model = NULL;
    if (tree == NULL) return NULL;
    int rc = body_text(tree, older, &model, error);
    if (rc == HEARTH_OK) rc = body_text(tree, "model", &model, error);
    if (rc == HEARTH_OK && model == NULL)
        error_at(error, HEARTH_INVALID, "model", "'model' is missing: name the model");
    char *name = rc == HEARTH_OK ? mem_strdup(model) : NULL;
    json_decref(tree);
    return name;
}

size_t body_name_size(const void *name)
{
    return strlen(name);
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

/* ---- Parsing ---- */

static int check_json_size(const struct json_size *size, size_t len, hearth_error *error)
{
    if (size->depth > FIELDS_DEPTH_MAX)
        return error_set(error, HEARTH_INVALID, "the body has lists and objects %zu deep in each other: at most %d",
                         size->depth, FIELDS_DEPTH_MAX);
    if (size->memory <= len + FIELDS_TREE_MAX) return HEARTH_OK;
    return error_set(error, ERRORS_TOO_LARGE,
                     "the body has %zu JSON values, which would take %zu MiB of memory: send fewer at once",
                     size->values, size->memory >> 20);
}

/* The value of the four hexadecimal digits after \u; -1: there is no such escape. */
static long escape_at(const char *text, size_t len)
{
    char digits[5] = {0}, *end;
    if (len < 6 || text[0] != '\\' || text[1] != 'u') return -1;
    memcpy(digits, text + 2, 4);
    long value = strtol(digits, &end, 16);
    return end == digits + 4 ? value : -1;
}

/* JavaScript cuts texts within characters and writes the halves as escapes, which no character has: they become
 * U+FFFD. Returns NULL where there are none, and else a copy. */
static char *without_halves(const char *body, size_t len)
{
    static const char unknown[] = {'F', 'F', 'F', 'D'};
    char *copy = NULL;
    for (size_t at = 0; at + 1 < len;) {
        long first = escape_at(body + at, len - at);
        bool is_high = first >= 0xD800 && first < 0xDC00, is_low = first >= 0xDC00 && first < 0xE000;
        long second = is_high ? escape_at(body + at + 6, len - at - 6) : -1;
        bool is_pair = second >= 0xDC00 && second < 0xE000;
        if ((is_high && !is_pair) || is_low) {
            if (copy == NULL) copy = memcpy(mem_alloc(len), body, len);
            memcpy(copy + at + 2, unknown, sizeof unknown);
        }
        at += is_pair ? 12 : first >= 0 ? 6 : body[at] == '\\' ? 2 : 1;
    }
    return copy;
}

json_t *fields_parse_any(const char *body, size_t len, hearth_error *error)
{
    static const char mark[] = "\xEF\xBB\xBF"; /* of UTF-8, which programs of Windows put before texts */
    json_error_t where;
    if (len >= strlen(mark) && memcmp(body, mark, strlen(mark)) == 0) {
        body += strlen(mark);
        len -= strlen(mark);
    }
    struct json_size size = json_size_of_text(body, len);
    if (check_json_size(&size, len, error) != HEARTH_OK) return NULL;
    json_t *parsed = json_text_read(body, len, &where);
    char *mended = parsed == NULL ? without_halves(body, len) : NULL;
    if (mended != NULL) parsed = json_text_read(mended, len, &where);
    free(mended);
    if (parsed == NULL)
        error_set(error, HEARTH_INVALID, "the body is not valid JSON: line %d, column %d: %s", where.line, where.column,
                  where.text);
    return parsed;
}

json_t *fields_parse(const char *body, size_t len, hearth_error *error)
{
    json_t *parsed = fields_parse_any(body, len, error);
    if (parsed == NULL || json_text_is_object(parsed)) return parsed;
    error_set(error, HEARTH_INVALID, "the body must be a JSON object");
    json_decref(parsed);
    return NULL;
}

json_t *fields_parse_body(struct buf *body, hearth_error *error)
{
    json_t *parsed = fields_parse(buf_text(body), body->len, error);
    buf_release(body);
    return parsed;
}
