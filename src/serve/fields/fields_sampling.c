/* Readers of list-valued sampling parameters: logit_bias, samplers, DRY sequence breakers. Strings are borrowed from
 * the JSON tree. No state; any thread. */
#include "base/error.h"
#include "base/json_text.h"
#include "base/memory.h"
#include "serve/fields/fields_readers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SAMPLERS = 32, MAX_BREAKERS = 64 };

/* ---- Lists of strings ---- */

/* NULL: not a list of up to `max` strings. */
static const char **get_strings(const json_t *value, size_t max, size_t *n)
{
    *n = json_array_size(value);
    if (!json_is_array(value) || *n > max) return NULL;
    const char **strings = mem_alloc((*n + 1) * sizeof *strings);
    bool good = true;
    for (size_t i = 0; i < *n; i++) {
        strings[i] = field_string(json_array_get(value, i));
        good = good && strings[i] != NULL;
    }
    if (good) return strings;
    free(strings);
    return NULL;
}

int fields_read_breakers(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    fields->dry_breakers = get_strings(value, MAX_BREAKERS, &fields->params.sampling.n_dry_breakers);
    fields->params.sampling.dry_breakers = fields->dry_breakers;
    if (fields->dry_breakers != NULL && json_array_size(value) > 0) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, name, "'%s' must be a list of 1 to %d strings", name, MAX_BREAKERS);
}

int fields_read_samplers(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    const char *letters = field_string(value);
    size_t *n = &fields->params.sampling.n_samplers;
    *n = letters == NULL ? 0 : strlen(letters);
    if (letters == NULL) {
        fields->samplers = get_strings(value, MAX_SAMPLERS, n);
    } else if (*n <= MAX_SAMPLERS) {
        /* llama-server's short form, "edskypmxt": each letter becomes a name of one character. */
        fields->samplers = mem_alloc((*n + 1) * sizeof *fields->samplers);
        fields->sampler_letters = mem_alloc(*n * 2 + 1);
        for (size_t i = 0; i < *n; i++) {
            fields->sampler_letters[2 * i] = letters[i];
            fields->samplers[i] = &fields->sampler_letters[2 * i];
        }
    }
    fields->params.sampling.samplers = fields->samplers;
    if (fields->samplers != NULL) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, name,
                    "'%s' must be a list of names of samplers, or a string of their letters", name);
}

/* ---- Bias ---- */

/* How much: false forbids, as in llama-server. */
static bool get_amount(const json_t *bias, float *out)
{
    const double number = json_number_value(bias);
    *out = json_is_false(bias) ? -INFINITY : (float)number;
    return json_is_false(bias) || (json_is_number(bias) && number >= -100 && number <= 100);
}

/* A token, or a text that stands for all of its tokens. */
static bool get_bias(const json_t *of, const json_t *bias, hearth_bias *out)
{
    int64_t whole = 0;
    *out = (hearth_bias){.text = field_string(of)};
    if (out->text == NULL && !field_whole(of, 0, INT32_MAX, &whole)) return false;
    out->token = (int32_t)whole;
    return get_amount(bias, &out->bias);
}

/* Keys of the object form are tokens in decimal digits, or texts. */
static bool get_bias_entry(const char *key, const json_t *bias, hearth_bias *out)
{
    const size_t sign = key[0] == '-', digits = strspn(key + sign, "0123456789");
    *out = (hearth_bias){.text = key};
    if (digits > 0 && key[sign + digits] == '\0') {
        const long long token = strtoll(key, NULL, 10);
        if (token < 0 || token > INT32_MAX) return false;
        *out = (hearth_bias){.token = (int32_t)token};
    }
    return get_amount(bias, &out->bias);
}

int fields_read_logit_bias(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    size_t n = 0, i;
    bool good = json_text_is_object(value) || json_is_array(value);
    size_t size = json_text_is_object(value) ? json_object_size(value) : json_array_size(value);
    fields->bias = mem_alloc((size + 1) * sizeof *fields->bias);
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)value, key, item) good = good && get_bias_entry(key, item, &fields->bias[n++]);
    json_array_foreach(value, i, item) good =
        good && json_array_size(item) == 2 &&
        get_bias(json_array_get(item, 0), json_array_get(item, 1), &fields->bias[n++]);
    if (!good)
        return error_at(error, HEARTH_INVALID, name,
                        "'%s' must map tokens, or texts, to numbers from -100 to 100: {\"1234\": -5} or "
                        "[[1234, -5], [\"text\", false]]",
                        name);
    fields->params.sampling.logit_bias = fields->bias;
    fields->params.sampling.n_logit_bias = n;
    return HEARTH_OK;
}
