/* Converts simple JSON values to C. No state; any thread. */
#include "serve/fields/fields_readers.h"

#include <math.h>
#include <string.h>

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

void field_note_places(struct fields *fields, const char *name, json_t *places)
{
    if (fields->places == NULL) fields->places = json_object();
    json_object_set(fields->places, name, places);
}
