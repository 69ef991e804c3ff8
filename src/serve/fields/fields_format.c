/* Readers of output constraint fields (grammar, JSON schema) and of logprobs. No state; any thread. */
#include "base/buf.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/memory.h"
#include "serve/core/errors.h"
#include "serve/fields/fields_readers.h"

#include <string.h>

/* ---- Grammars and schemas ---- */

/* "" is no grammar: some clients send all fields they know. */
int field_grammar(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    const char *grammar = field_string(value);
    if (grammar == NULL) return error_at(error, HEARTH_INVALID, name, "'%s' must be a string: a GBNF grammar", name);
    fields->params.grammar = grammar[0] == '\0' ? NULL : grammar;
    return HEARTH_OK;
}

/* An empty schema means any object, as in llama-server. */
static void take_schema(struct fields *fields, const json_t *schema)
{
    bool any = schema == NULL || (json_text_is_object(schema) && json_object_size(schema) == 0);
    json_decref(fields->schema);
    fields->schema = any ? json_pack("{s:s}", "type", "object") : json_incref((json_t *)schema);
    fields->params.json_schema = json_text_public(fields->schema);
}

int field_json_schema(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    if (!json_text_is_object(value) && !json_is_boolean(value))
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a JSON schema: an object", name);
    take_schema(fields, value);
    return HEARTH_OK;
}

int field_response_format(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    const char *type = field_string(json_object_get(value, "type"));
    const json_t *schema = json_object_get(value, "schema");
    if (type != NULL && strcmp(type, "text") == 0) return HEARTH_OK;
    if (type != NULL && strcmp(type, "json_schema") == 0) {
        const json_t *wrapper = json_object_get(value, "json_schema"), *named = body_find(wrapper, "schema");
        if (!json_text_is_object(wrapper))
            return error_at(error, HEARTH_INVALID, "response_format.json_schema",
                            "'response_format.json_schema' must be an object with a \"schema\"");
        if (named != NULL && !json_text_is_object(named))
            return error_at(error, HEARTH_INVALID, "response_format.json_schema.schema",
                            "'response_format.json_schema.schema' must be an object");
        take_schema(fields, named);
        return HEARTH_OK;
    }
    if (type == NULL || strcmp(type, "json_object") != 0)
        return error_at(error, HEARTH_INVALID, "response_format.type",
                        "'%s.type' must be \"text\", \"json_object\" or \"json_schema\"", name);
    if (schema != NULL && !json_text_is_object(schema))
        return error_at(error, HEARTH_INVALID, "response_format.schema", "'%s.schema' must be an object", name);
    if (schema != NULL || fields->schema == NULL) take_schema(fields, schema);
    return HEARTH_OK;
}

/* ---- Logprobs of tokens ---- */

/* A chat requests logprobs with "logprobs", and the number of likeliest tokens beside the sampled one with
 * "top_logprobs". */
int field_logprobs(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    if (field_bool(name, value, &fields->logprobs, error) != HEARTH_OK) return HEARTH_INVALID;
    fields->has_logprobs = true;
    if (fields->logprobs && fields->params.top_logprobs < 0) fields->params.top_logprobs = 0;
    return HEARTH_OK;
}

int field_top_logprobs(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    int64_t n;
    if (field_int(name, value, 0, FIELDS_PROBS_MAX, &n, error) != HEARTH_OK) return HEARTH_INVALID;
    if (n > 0 && fields->has_logprobs && !fields->logprobs)
        return error_at(error, HEARTH_INVALID, name, "'%s' needs 'logprobs' to be true", name);
    if (n > 0 || fields->logprobs) fields->params.top_logprobs = (int32_t)n;
    return HEARTH_OK;
}

/* llama-server's name; 0 is no logprobs at all. */
int field_n_probs(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    int64_t n;
    if (field_int(name, value, 0, FIELDS_PROBS_MAX, &n, error) != HEARTH_OK) return HEARTH_INVALID;
    if (n > 0) fields->params.top_logprobs = (int32_t)n;
    return HEARTH_OK;
}

/* ---- Logprobs of prompts ---- */

/* vLLM's. */
int field_prompt_logprobs(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    int64_t n;
    if (field_int(name, value, 0, FIELDS_SCORES_MAX, &n, error) != HEARTH_OK) return HEARTH_INVALID;
    fields->scores = true;
    fields->params.prompt_logprobs = (int32_t)n;
    return HEARTH_OK;
}

int fields_finish_scores(struct fields *fields, hearth_error *error)
{
    if (fields->scores && fields->stream)
        return error_at(error, HEARTH_UNSUPPORTED, "prompt_logprobs",
                        "'prompt_logprobs' are not streamed: leave out 'stream'");
    /* OpenAI's completions ask for them with "echo" and "logprobs". */
    int32_t n = fields->params.top_logprobs;
    if (!fields->echo || n < 0) return HEARTH_OK;
    if (n > FIELDS_SCORES_MAX)
        return error_at(error, HEARTH_INVALID, "logprobs", "'logprobs' with 'echo' may be up to %d", FIELDS_SCORES_MAX);
    if (fields->params.suffix != NULL)
        return error_at(error, HEARTH_UNSUPPORTED, "suffix",
                        "'suffix' with 'echo' and 'logprobs' is not supported: leave one of them out");
    if (fields->scores && n != fields->params.prompt_logprobs)
        return error_at(error, HEARTH_INVALID, "prompt_logprobs",
                        "'prompt_logprobs' must be the same as 'logprobs' beside 'echo', or left out");
    fields->params.prompt_logprobs = n;
    return HEARTH_OK;
}

/* ---- Constraints by the names of vLLM and SGLang ---- */

/* "structured_outputs", the older "guided_…", "regex" and "ebnf" become a grammar or a schema. */

static void take_grammar(struct fields *fields, char *grammar)
{
    hearth_free(fields->made_grammar);
    fields->params.grammar = fields->made_grammar = grammar;
}

/* The reply is a text that the regular expression matches as a whole. */
static int take_regex(struct fields *fields, const char *name, const char *regex, hearth_error *error)
{
    hearth_error fault = {0};
    char *grammar = hearth_regex_grammar(regex, &fault);
    if (grammar == NULL) return error_at(error, HEARTH_INVALID, name, "'%s' cannot be used: %s", name, fault.message);
    take_grammar(fields, grammar);
    return HEARTH_OK;
}

int field_guided_regex(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    const char *regex = field_string(value);
    if (regex == NULL)
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a string: a regular expression", name);
    return regex[0] == '\0' ? HEARTH_OK : take_regex(fields, name, regex, error);
}

int field_guided_choice(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    struct buf regex = {0};
    json_t *choice;
    size_t i, n = json_array_size(value);
    bool fits = n > 0;
    json_array_foreach(value, i, choice)
    {
        const char *text = field_string(choice);
        fits = fits && text != NULL;
        buf_puts(&regex, i == 0 ? "(" : "|");
        for (; text != NULL && *text != '\0'; text++) {
            if (strchr("\\^$.|?*+()[]{}/", *text) != NULL) buf_puts(&regex, "\\");
            buf_append(&regex, text, 1);
        }
    }
    buf_puts(&regex, ")");
    int rc = fits ? take_regex(fields, name, buf_text(&regex), error)
                  : error_at(error, HEARTH_INVALID, name, "'%s' must be a list of strings, and not empty", name);
    buf_release(&regex);
    return rc;
}

/* The text is copied: of the body only "grammar" itself is kept. */
int field_guided_grammar(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    const char *grammar = field_string(value);
    if (grammar == NULL) return field_grammar(fields, name, value, error);
    if (grammar[0] != '\0') take_grammar(fields, mem_strdup(grammar));
    return HEARTH_OK;
}

/* A schema, or its text. */
int field_guided_json(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    json_t *parsed = json_is_string(value) ? json_text_read(json_string_value(value), json_string_length(value), NULL)
                                           : json_incref((json_t *)value);
    int rc = field_json_schema(fields, name, parsed, error);
    json_decref(parsed);
    return rc;
}

static int read_json_object(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    bool is_any = false;
    if (field_bool(name, value, &is_any, error) != HEARTH_OK) return HEARTH_INVALID;
    json_t *any = json_object();
    int rc = is_any ? field_json_schema(fields, name, any, error) : HEARTH_OK;
    json_decref(any);
    return rc;
}

static int refuse(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    (void)fields;
    (void)value;
    return error_at(error, HEARTH_UNSUPPORTED, name,
                    "'%s' is not supported: give a schema, a regular expression, choices or a grammar", name);
}

int field_structured_outputs(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    static const struct {
        const char *name;
        field_reader *read;
    } kinds[] = {{"json", field_guided_json},       {"regex", field_guided_regex},     {"choice", field_guided_choice},
                 {"grammar", field_guided_grammar}, {"json_object", read_json_object}, {"structural_tag", refuse}};
    int n = 0, rc = HEARTH_OK;
    if (!json_text_is_object(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be an object", name);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && rc == HEARTH_OK; i++) {
        const json_t *kind = json_object_get(value, kinds[i].name);
        struct field_path at = field_path_of("%s.%s", name, kinds[i].name);
        if (kind == NULL || json_is_null(kind) || json_is_false(kind)) continue;
        if (++n > 1) return error_at(error, HEARTH_INVALID, name, "'%s' must bind the reply in one way only", name);
        rc = kinds[i].read(fields, at.v, kind, error);
    }
    return rc;
}
