/* Readers for bodies with few fields: see body.h. */
#include "serve/fields/body.h"

#include "base/buf.h"
#include "base/error.h"
#include "serve/fields/fields_readers.h"

#include <string.h>

const json_t *body_find(const json_t *body, const char *name)
{
    const json_t *value = json_object_get(body, name);
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
    if (value == NULL) return HEARTH_OK;
    if (!json_is_boolean(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be true or false", name);
    *out = json_is_true(value);
    return HEARTH_OK;
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
