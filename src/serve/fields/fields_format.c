/* Readers of output constraint fields (grammar, JSON schema) and of logprobs. No state; any thread. */
#include "base/error.h"
#include "base/json_text.h"
#include "serve/fields/fields_readers.h"

#include <stdlib.h>
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

static int take_named_schema(struct fields *fields, const json_t *value, hearth_error *error)
{
    const json_t *wrapper = json_object_get(value, "json_schema");
    const json_t *schema = json_object_get(wrapper, "schema");
    if (!json_text_is_object(wrapper))
        return error_at(error, HEARTH_INVALID, "response_format.json_schema",
                        "'response_format.json_schema' must be an object with a \"schema\"");
    if (schema != NULL && !json_text_is_object(schema) && !json_is_null(schema))
        return error_at(error, HEARTH_INVALID, "response_format.json_schema.schema",
                        "'response_format.json_schema.schema' must be an object");
    take_schema(fields, json_is_null(schema) ? NULL : schema);
    return HEARTH_OK;
}

int field_response_format(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    const char *type = field_string(json_object_get(value, "type"));
    const json_t *schema = json_object_get(value, "schema");
    if (type != NULL && strcmp(type, "text") == 0) return HEARTH_OK;
    if (type != NULL && strcmp(type, "json_schema") == 0) return take_named_schema(fields, value, error);
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
    if (!json_is_boolean(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be true or false", name);
    fields->has_logprobs = true;
    fields->logprobs = json_is_true(value);
    if (fields->logprobs && fields->params.top_logprobs < 0) fields->params.top_logprobs = 0;
    return HEARTH_OK;
}

int field_top_logprobs(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    int64_t n;
    if (!field_whole(value, 0, FIELDS_PROBS_MAX, &n))
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a whole number from 0 to %d", name,
                        FIELDS_PROBS_MAX);
    if (n > 0 && fields->has_logprobs && !fields->logprobs)
        return error_at(error, HEARTH_INVALID, name, "'%s' needs 'logprobs' to be true", name);
    if (n > 0 || fields->logprobs) fields->params.top_logprobs = (int32_t)n;
    return HEARTH_OK;
}

/* llama-server's name; 0 is no logprobs at all. */
int field_n_probs(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    int64_t n;
    if (!field_whole(value, 0, FIELDS_PROBS_MAX, &n))
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a whole number from 0 to %d", name,
                        FIELDS_PROBS_MAX);
    if (n > 0) fields->params.top_logprobs = (int32_t)n;
    return HEARTH_OK;
}

/* ---- Logprobs of prompts ---- */

/* vLLM's. */
int field_prompt_logprobs(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    int64_t n;
    if (!field_whole(value, 0, FIELDS_SCORES_MAX, &n))
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a whole number from 0 to %d", name,
                        FIELDS_SCORES_MAX);
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
