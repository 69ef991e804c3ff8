/* The table of fields and its readers. Strings are borrowed from the parsed body, the rest is allocated. */
#include "serve/fields.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/sha256.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef int field_reader(struct fields *fields, const char *name, const json_t *value, hearth_error *error);

enum field_type { FIELD_BOOL, FIELD_INT, FIELD_INT64, FIELD_NUMBER, FIELD_STRING, FIELD_OTHER };

struct field {
    const char *name;
    int routes;
    enum field_type type;
    size_t offset;      /* where the value goes in struct fields */
    double min, max;    /* FIELD_INT, FIELD_NUMBER: both allowed */
    field_reader *read; /* FIELD_OTHER */
};

/* ---- Readers of simple values ---- */

/* Whole numbers written as 1.0 are taken too: some languages have no other. */
static bool get_whole(const json_t *value, double min, double max, int64_t *out)
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

/* A string that C can hold. */
static const char *get_string(const json_t *value)
{
    const char *text = json_string_value(value);
    return text != NULL && strlen(text) == json_string_length(value) ? text : NULL;
}

static int read_simple(struct fields *fields, const struct field *field, const json_t *value, hearth_error *error)
{
    char *target = (char *)fields + field->offset;
    const char *name = field->name;
    int64_t whole = 0;
    switch (field->type) {
    case FIELD_BOOL:
        if (!json_is_boolean(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be true or false", name);
        *(bool *)target = json_is_true(value);
        return HEARTH_OK;
    case FIELD_INT:
        if (!get_whole(value, field->min, field->max, &whole))
            return error_at(error, HEARTH_INVALID, name, "'%s' must be a whole number from %.0f to %.0f", name,
                            field->min, field->max);
        *(int32_t *)target = (int32_t)whole;
        return HEARTH_OK;
    case FIELD_INT64:
        if (!get_whole(value, -INFINITY, INFINITY, &whole))
            return error_at(error, HEARTH_INVALID, name, "'%s' must be a whole number", name);
        *(int64_t *)target = whole;
        return HEARTH_OK;
    case FIELD_NUMBER: {
        double number = json_number_value(value);
        if (!json_is_number(value) || number < field->min || number > field->max)
            return error_at(error, HEARTH_INVALID, name, "'%s' must be a number from %g to %g", name, field->min,
                            field->max);
        *(double *)target = number;
        return HEARTH_OK;
    }
    case FIELD_STRING:
        if (get_string(value) == NULL)
            return error_at(error, HEARTH_INVALID, name, "'%s' must be a string without zero characters", name);
        *(const char **)target = get_string(value);
        return HEARTH_OK;
    case FIELD_OTHER:
        return field->read(fields, name, value, error);
    }
    return HEARTH_OK;
}

/* ---- Readers of structured values ---- */

static int read_max_tokens(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    int64_t whole;
    if (!get_whole(value, -1, INT32_MAX, &whole))
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a whole number, or -1 for no limit", name);
    fields->params.max_tokens = whole < 0 ? HEARTH_UNSET : (int32_t)whole;
    return HEARTH_OK;
}

static int read_stream_options(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    if (!json_is_object(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be an object", name);
    const json_t *usage = json_object_get(value, "include_usage");
    if (usage == NULL || json_is_null(usage)) return HEARTH_OK;
    if (!json_is_boolean(usage))
        return error_at(error, HEARTH_INVALID, "stream_options.include_usage",
                        "'stream_options.include_usage' must be true or false");
    fields->include_usage = json_is_true(usage);
    return HEARTH_OK;
}

static int read_messages(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    if (!json_is_array(value) || json_array_size(value) == 0)
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a list of at least one message", name);
    fields->messages = json_dumps(value, JSON_COMPACT);
    fields->params.messages_json = fields->messages;
    fields->n_prompts = 1;
    return HEARTH_OK;
}

static int read_template_kwargs(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    if (!json_is_object(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be an object", name);
    fields->template_kwargs = json_dumps(value, JSON_COMPACT);
    fields->params.template_kwargs_json = fields->template_kwargs;
    return HEARTH_OK;
}

static int read_stop(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    bool is_list = json_is_array(value);
    size_t n = is_list ? json_array_size(value) : 1;
    if (n > FIELDS_STOP_MAX)
        return error_at(error, HEARTH_INVALID, name, "'%s' may hold up to %d strings", name, FIELDS_STOP_MAX);
    fields->stop = mem_alloc((n + 1) * sizeof *fields->stop);
    for (size_t i = 0; i < n; i++) {
        const char *text = get_string(is_list ? json_array_get(value, i) : value);
        if (text == NULL || text[0] == '\0')
            return error_at(error, HEARTH_INVALID, name,
                            "'%s' must be a string or a list of strings, none of them empty", name);
        fields->stop[i] = text;
    }
    fields->params.stop = fields->stop;
    fields->params.n_stop = n;
    return HEARTH_OK;
}

static bool get_bias(const json_t *token, const json_t *bias, hearth_bias *out)
{
    int64_t whole;
    double number = json_number_value(bias);
    if (!get_whole(token, 0, INT32_MAX, &whole)) return false;
    if (!json_is_false(bias) && (!json_is_number(bias) || number < -100 || number > 100)) return false;
    out->token = (int32_t)whole;
    out->bias = json_is_false(bias) ? -INFINITY : (float)number; /* false forbids, as in llama-server */
    return true;
}

/* Keys of the object form are tokens in decimal digits. */
static bool get_bias_entry(const char *key, const json_t *bias, hearth_bias *out)
{
    char *end;
    if (key[0] < '0' || key[0] > '9' || strlen(key) > 10) return false;
    json_t *token = json_integer(strtoll(key, &end, 10));
    bool good = *end == '\0' && get_bias(token, bias, out);
    json_decref(token);
    return good;
}

static int read_logit_bias(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    size_t n = 0, i;
    bool good = json_is_object(value) || json_is_array(value);
    size_t size = json_is_object(value) ? json_object_size(value) : json_array_size(value);
    fields->bias = mem_alloc((size + 1) * sizeof *fields->bias);
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)value, key, item) good = good && get_bias_entry(key, item, &fields->bias[n++]);
    json_array_foreach(value, i, item) good =
        good && json_array_size(item) == 2 &&
        get_bias(json_array_get(item, 0), json_array_get(item, 1), &fields->bias[n++]);
    if (!good)
        return error_at(error, HEARTH_INVALID, name,
                        "'%s' must map tokens to numbers from -100 to 100: {\"1234\": -5} or [[1234, -5]]", name);
    fields->params.logit_bias = fields->bias;
    fields->params.n_logit_bias = n;
    return HEARTH_OK;
}

/* A key is written as GET /cache and the commands write it. */
static int read_parent_key(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    uint8_t digest[SHA256_BYTES];
    const char *text = get_string(value);
    if (text == NULL || !sha256_from_hex(text, digest))
        return error_at(error, HEARTH_INVALID, name, "'%s' must be %d lower-case hexadecimal digits", name,
                        2 * SHA256_BYTES);
    fields->params.parent_key = text;
    return HEARTH_OK;
}

/* Ids of sessions are for those who route requests among servers. Here tokens decide what is reused, so that an id
 * which is wrong, shared or missing changes nothing; nor do the headers that carry the same. */
static int read_session(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    (void)fields;
    const char *text = get_string(value);
    if (text == NULL || strlen(text) > FIELDS_HINT_MAX)
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a string of up to %d bytes without zero characters",
                        name, FIELDS_HINT_MAX);
    return HEARTH_OK;
}

/* ---- Prompts ---- */

static bool get_tokens(const json_t *list, struct fields_prompt *prompt)
{
    size_t i;
    json_t *item;
    int64_t whole;
    if (json_array_size(list) == 0) return false;
    prompt->tokens = mem_grow(NULL, json_array_size(list), sizeof *prompt->tokens);
    json_array_foreach(list, i, item)
    {
        if (!get_whole(item, 0, INT32_MAX, &whole)) return false;
        prompt->tokens[prompt->n_tokens++] = (int32_t)whole;
    }
    return true;
}

static bool get_prompt(const json_t *value, struct fields_prompt *prompt)
{
    if (!json_is_string(value)) return get_tokens(value, prompt);
    prompt->text = json_string_value(value);
    prompt->len = json_string_length(value);
    return true;
}

static int read_prompt(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    bool is_list = json_is_array(value) && !json_is_number(json_array_get(value, 0));
    size_t n = is_list ? json_array_size(value) : 1;
    if (n > FIELDS_CHOICES_MAX)
        return error_at(error, HEARTH_INVALID, name, "'%s' may be a list of up to %d prompts", name,
                        FIELDS_CHOICES_MAX);
    bool good = n > 0;
    fields->prompts = mem_alloc((n + 1) * sizeof *fields->prompts);
    fields->n_prompts = n;
    for (size_t i = 0; i < n && good; i++)
        good = get_prompt(is_list ? json_array_get(value, i) : value, &fields->prompts[i]);
    if (!good)
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a string, a list of tokens, or a list of these",
                        name);
    return HEARTH_OK;
}

/* ---- The table ---- */

#define AT(member)    offsetof(struct fields, member)
#define PARAM(member) AT(params.member)

/* Read in this order: of two names for the same thing the later one holds. Temperatures above OpenAI's 2 are taken,
 * as llama-server does; they mean what they say. */
static const struct field table[] = {
    {"model", FIELDS_ANY, FIELD_STRING, PARAM(model), 0, 0, NULL},
    {"messages", FIELDS_CHAT | FIELDS_LOOKUP, FIELD_OTHER, 0, 0, 0, read_messages},
    {"chat_template_kwargs", FIELDS_CHAT | FIELDS_LOOKUP, FIELD_OTHER, 0, 0, 0, read_template_kwargs},
    {"prompt", FIELDS_COMPLETION | FIELDS_LOOKUP, FIELD_OTHER, 0, 0, 0, read_prompt},
    {"echo", FIELDS_COMPLETION, FIELD_BOOL, AT(echo), 0, 0, NULL},
    {"best_of", FIELDS_BOTH, FIELD_INT, AT(best_of), 1, FIELDS_CHOICES_MAX, NULL},
    {"n", FIELDS_BOTH, FIELD_INT, AT(n), 1, FIELDS_CHOICES_MAX, NULL},
    {"stream", FIELDS_BOTH, FIELD_BOOL, AT(stream), 0, 0, NULL},
    {"stream_options", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, read_stream_options},
    {"n_predict", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, read_max_tokens},
    {"max_tokens", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, read_max_tokens},
    {"max_completion_tokens", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, read_max_tokens},
    {"stop", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, read_stop},
    {"ignore_eos", FIELDS_BOTH, FIELD_BOOL, PARAM(ignore_eos), 0, 0, NULL},
    {"cache_prompt", FIELDS_BOTH, FIELD_BOOL, PARAM(cache_prompt), 0, 0, NULL},
    {"cache_salt", FIELDS_ANY, FIELD_STRING, PARAM(cache_salt), 0, 0, NULL},
    {"parent_key", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, read_parent_key},
    {"session_id", FIELDS_ANY, FIELD_OTHER, 0, 0, 0, read_session},
    {"imc_id", FIELDS_ANY, FIELD_OTHER, 0, 0, 0, read_session},
    {"temperature", FIELDS_BOTH, FIELD_NUMBER, PARAM(temperature), 0, 100, NULL},
    {"top_p", FIELDS_BOTH, FIELD_NUMBER, PARAM(top_p), 0, 1, NULL},
    {"min_p", FIELDS_BOTH, FIELD_NUMBER, PARAM(min_p), 0, 1, NULL},
    {"repeat_penalty", FIELDS_BOTH, FIELD_NUMBER, PARAM(repeat_penalty), 0.01, 100, NULL},
    {"frequency_penalty", FIELDS_BOTH, FIELD_NUMBER, PARAM(frequency_penalty), -2, 2, NULL},
    {"presence_penalty", FIELDS_BOTH, FIELD_NUMBER, PARAM(presence_penalty), -2, 2, NULL},
    {"top_k", FIELDS_BOTH, FIELD_INT, PARAM(top_k), -1, INT32_MAX, NULL},
    {"repeat_last_n", FIELDS_BOTH, FIELD_INT, PARAM(repeat_last_n), -1, 1 << 20, NULL},
    {"seed", FIELDS_BOTH, FIELD_INT64, PARAM(seed), 0, 0, NULL},
    {"logit_bias", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, read_logit_bias},
};

static int read_table(struct fields *fields, int route, hearth_error *error)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct field *field = &table[i];
        const json_t *value = json_object_get(fields->body, field->name);
        if (value == NULL || json_is_null(value) || (field->routes & route) == 0) continue;
        int rc = read_simple(fields, field, value, error);
        if (rc != HEARTH_OK) return rc;
    }
    return HEARTH_OK;
}

/* ---- The whole ---- */

static int parse(struct fields *fields, const char *body, size_t len, hearth_error *error)
{
    json_error_t where;
    fields->body = json_loadb(body, len, JSON_ALLOW_NUL, &where);
    if (fields->body == NULL)
        return error_set(error, HEARTH_INVALID, "the body is not valid JSON: line %d, column %d: %s", where.line,
                         where.column, where.text);
    if (!json_is_object(fields->body)) return error_set(error, HEARTH_INVALID, "the body must be a JSON object");
    return HEARTH_OK;
}

static int check_lookup(const struct fields *fields, hearth_error *error)
{
    if (fields->messages != NULL && fields->prompts != NULL)
        return error_at(error, HEARTH_INVALID, "prompt", "give either 'messages' or 'prompt'");
    if (fields->n_prompts == 0) return error_at(error, HEARTH_INVALID, "prompt", "'messages' or 'prompt' is missing");
    if (fields->n_prompts > 1)
        return error_at(error, HEARTH_INVALID, "prompt", "'prompt' may be one prompt only: look each one up by itself");
    return HEARTH_OK;
}

/* What no single field can show. */
static int check(struct fields *fields, int route, hearth_error *error)
{
    if (route == FIELDS_LOOKUP) return check_lookup(fields, error);
    const char *prompt = route == FIELDS_CHAT ? "messages" : "prompt";
    if (fields->n_prompts == 0) return error_at(error, HEARTH_INVALID, prompt, "'%s' is missing", prompt);
    if (fields->n_prompts * (size_t)fields->n > FIELDS_CHOICES_MAX)
        return error_at(error, HEARTH_INVALID, "n", "'n' times the number of prompts may be up to %d",
                        FIELDS_CHOICES_MAX);
    if (fields->best_of > fields->n)
        return error_at(error, HEARTH_UNSUPPORTED, "best_of",
                        "'best_of' above 'n' is not supported: ask for more choices with 'n'");
    for (size_t i = 0; fields->echo && i < fields->n_prompts; i++)
        if (fields->prompts[i].text == NULL)
            return error_at(error, HEARTH_UNSUPPORTED, "echo", "'echo' of a prompt given as tokens is not supported");
    return HEARTH_OK;
}

int fields_read(struct fields *fields, int route, const char *body, size_t len, hearth_error *error)
{
    *fields = (struct fields){.params = hearth_params_default(), .n = 1, .best_of = 1};
    int rc = parse(fields, body, len, error);
    if (rc == HEARTH_OK) rc = read_table(fields, route, error);
    if (rc == HEARTH_OK) rc = fields_refuse_unbuilt(fields->body, route, error);
    if (rc == HEARTH_OK) rc = check(fields, route, error);
    if (rc != HEARTH_OK) fields_release(fields);
    return rc;
}

void fields_release(struct fields *fields)
{
    for (size_t i = 0; fields->prompts != NULL && i < fields->n_prompts; i++) free(fields->prompts[i].tokens);
    free(fields->prompts);
    free(fields->messages);
    free(fields->template_kwargs);
    free(fields->stop);
    free(fields->bias);
    json_decref(fields->body);
    *fields = (struct fields){0};
}

hearth_params *fields_choices(const struct fields *fields, size_t *n)
{
    *n = fields->n_prompts * (size_t)fields->n;
    hearth_params *choices = mem_alloc(*n * sizeof *choices);
    for (size_t i = 0; i < *n; i++) {
        const struct fields_prompt *prompt = fields->prompts != NULL ? &fields->prompts[i / (size_t)fields->n] : NULL;
        choices[i] = fields->params;
        if (prompt != NULL) {
            choices[i].text = prompt->text;
            choices[i].text_len = prompt->len;
            choices[i].tokens = prompt->tokens;
            choices[i].n_tokens = prompt->n_tokens;
        }
        /* With one seed all choices of a prompt would be the same; with consecutive ones they differ and repeat. */
        if (choices[i].seed >= 0)
            choices[i].seed = (int64_t)(((uint64_t)choices[i].seed + i % (size_t)fields->n) & INT64_MAX);
    }
    return choices;
}
