/* The table of fields of generation requests, and their parsing. Strings are borrowed from the JSON tree, the rest
 * is allocated. No state; any thread. */
#include "serve/fields/fields_readers.h"

#include "base/error.h"
#include "base/json_text.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "serve/core/errors.h"
#include "serve/fields/body.h"
#include "serve/fields/convert.h"
#include "serve/fields/unknown.h"

#include <stdlib.h>
#include <string.h>

enum field_type { FIELD_BOOL, FIELD_INT, FIELD_INT64, FIELD_NUMBER, FIELD_STRING, FIELD_OTHER };

struct field {
    const char *name;
    int routes;
    enum field_type type;
    size_t offset;      /* of the member of struct fields */
    double min, max;    /* FIELD_INT, FIELD_NUMBER: inclusive range; FIELD_STRING: max bytes, 0: unlimited */
    field_reader *read; /* FIELD_OTHER */
};

/* ---- Readers of values ---- */

/* Reads one value. `name` is the field's name in the client's body, for errors. */
static int read_value(struct fields *fields, const struct field *field, const char *name, const json_t *value,
                      hearth_error *error)
{
    char *target = (char *)fields + field->offset;
    int64_t whole = 0;
    switch (field->type) {
    case FIELD_BOOL:
        return field_bool(name, value, (bool *)target, error);
    case FIELD_INT:
        if (field_int(name, value, field->min, field->max, &whole, error) != HEARTH_OK) return HEARTH_INVALID;
        *(int32_t *)target = (int32_t)whole;
        return HEARTH_OK;
    case FIELD_INT64:
        return field_int(name, value, field->min, field->max, (int64_t *)target, error);
    case FIELD_NUMBER: {
        double number = json_number_value(value);
        if (!json_is_number(value) || number < field->min || number > field->max)
            return error_at(error, HEARTH_INVALID, name, "'%s' must be a number from %g to %g", name, field->min,
                            field->max);
        *(double *)target = number;
        return HEARTH_OK;
    }
    case FIELD_STRING:
        if (field_string(value) == NULL)
            return error_at(error, HEARTH_INVALID, name, "'%s' must be a string without zero characters", name);
        if (field->max > 0 && (double)json_string_length(value) > field->max)
            return error_at(error, HEARTH_INVALID, name, "'%s' may have up to %.0f bytes", name, field->max);
        *(const char **)target = field_string(value);
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
    if (!field_whole(value, -1, INT32_MAX, &whole))
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a whole number, or -1 for no limit", name);
    fields->params.max_tokens = whole < 0 ? HEARTH_UNSET : (int32_t)whole;
    fields->params.given |= HEARTH_GIVEN_MAX_TOKENS;
    return HEARTH_OK;
}

/* Any whole number, as in llama-server, which takes the last 32 bits of it: here the last 63, so that its tokens are
 * the same. Below 0: a random one. */
static int read_seed(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    int64_t *seed = &fields->params.sampling.seed;
    const char *wide = json_text_wide(value);
    fields->params.given |= HEARTH_GIVEN_SEED;
    if (wide == NULL && field_whole(value, -0x1p63, 0x1p63, seed)) return HEARTH_OK;
    if (wide == NULL || wide[strspn(wide, "-0123456789")] != '\0')
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a whole number; below 0 it is a random one", name);
    uint64_t bits = 0;
    for (const char *at = wide + (wide[0] == '-'); *at != '\0'; at++) bits = 10 * bits + (uint64_t)(*at - '0');
    *seed = wide[0] == '-' ? -1 : (int64_t)(bits & INT64_MAX);
    return HEARTH_OK;
}

static int read_stream_options(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    if (!json_text_is_object(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be an object", name);
    const json_t *usage = json_object_get(value, "include_usage");
    if (usage == NULL || json_is_null(usage)) return HEARTH_OK;
    return field_bool("stream_options.include_usage", usage, &fields->include_usage, error);
}

/* An empty string stops nothing, as with llama-server: web front ends send empty form fields. */
static int read_stop(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    bool is_list = json_is_array(value);
    size_t n = is_list ? json_array_size(value) : 1, n_kept = 0;
    fields->params.given |= HEARTH_GIVEN_STOP;
    if (n > FIELDS_STOP_MAX)
        return error_at(error, HEARTH_INVALID, name, "'%s' may hold up to %d strings", name, FIELDS_STOP_MAX);
    fields->stop = mem_alloc((n + 1) * sizeof *fields->stop);
    for (size_t i = 0; i < n; i++) {
        const char *text = field_string(is_list ? json_array_get(value, i) : value);
        if (text == NULL)
            return error_at(error, HEARTH_INVALID, name, "'%s' must be a string or a list of strings", name);
        if (strlen(text) > FIELDS_STOP_BYTES)
            return error_at(error, HEARTH_INVALID, name, "a string of '%s' may have up to %d bytes", name,
                            FIELDS_STOP_BYTES);
        if (text[0] != '\0') fields->stop[n_kept++] = text;
    }
    fields->params.stop = fields->stop;
    fields->params.n_stop = n_kept;
    return HEARTH_OK;
}

/* A slab key in hexadecimal, as POST /cache/lookup and 'hearth kv' write it. */
static int read_parent_key(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    uint8_t digest[SHA256_BYTES];
    const char *text = field_string(value);
    if (text == NULL || !sha256_from_hex(text, digest))
        return error_at(error, HEARTH_INVALID, name, "'%s' must be %d lower-case hexadecimal digits", name,
                        2 * SHA256_BYTES);
    fields->params.parent_key = text;
    return HEARTH_OK;
}

static int read_options(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    (void)fields; /* read_table() reads its members */
    if (json_text_is_object(value)) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, name, "'%s' must be an object", name);
}

/* Session ids are for proxies that route requests among servers. Here the tokens alone decide what is reused, so
 * that a wrong, shared or missing id changes nothing. */
static int read_session_hint(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    (void)fields;
    const char *text = field_string(value);
    if (text == NULL || strlen(text) > FIELDS_HINT_MAX)
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a string of up to %d bytes without zero characters",
                        name, FIELDS_HINT_MAX);
    return HEARTH_OK;
}

int fields_read_lora(const json_t *value, hearth_lora **lora, size_t *n, hearth_error *error)
{
    bool good = json_is_array(value);
    size_t i;
    json_t *item;
    *n = 0;
    *lora = mem_alloc((json_array_size(value) + 1) * sizeof **lora);
    json_array_foreach(value, i, item)
    {
        int64_t id = 0;
        const json_t *scale = json_object_get(item, "scale");
        good = good && field_whole(json_object_get(item, "id"), 0, INT32_MAX, &id) && json_is_number(scale);
        (*lora)[(*n)++] = (hearth_lora){.id = (int32_t)id, .scale = json_number_value(scale)};
    }
    if (good) return HEARTH_OK;
    free(*lora);
    *lora = NULL;
    return error_at(error, HEARTH_INVALID, "lora",
                    "'lora' must be a list of adapters by number, each with a scale: [{\"id\": 0, \"scale\": 0.5}]");
}

static int read_lora(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    (void)name;
    int rc = fields_read_lora(value, &fields->lora, &fields->params.n_lora, error);
    fields->params.lora = fields->lora;
    return rc;
}

/* ---- The table ---- */

#define AT(member)    offsetof(struct fields, member)
#define PARAM(member) AT(params.member)

/* Fields that change the prompt of a chat, and so a cache lookup too. */
#define TEMPLATE (FIELDS_CHAT | FIELDS_LOOKUP)

#define SAMPLING_FIELD(type, name, default_, low, top, ...)                                                            \
    {#name, FIELDS_BOTH, type, PARAM(sampling.name), low, top, NULL},
#define SAMPLING_NUMBER(...)  SAMPLING_FIELD(FIELD_NUMBER, __VA_ARGS__)
#define SAMPLING_INTEGER(...) SAMPLING_FIELD(FIELD_INT, __VA_ARGS__)

/* Read in this order: of two names for one parameter the later one wins. Temperatures above OpenAI's maximum of 2
 * are accepted, as with llama-server. */
static const struct field table[] = {
    {"model", FIELDS_ANY, FIELD_STRING, PARAM(model), 0, 0, NULL},
    {"messages", TEMPLATE, FIELD_OTHER, 0, 0, 0, field_messages},
    {"tools", TEMPLATE, FIELD_OTHER, 0, 0, 0, field_tools},
    {"parallel_tool_calls", TEMPLATE, FIELD_OTHER, 0, 0, 0, field_parallel_tool_calls},
    {"functions", TEMPLATE, FIELD_OTHER, 0, 0, 0, field_functions},
    {"function_call", TEMPLATE, FIELD_OTHER, 0, 0, 0, field_function_call},
    {"tool_choice", TEMPLATE, FIELD_OTHER, 0, 0, 0, field_tool_choice},
    {"chat_template_kwargs", TEMPLATE, FIELD_OTHER, 0, 0, 0, field_template_kwargs},
    {"reasoning", TEMPLATE, FIELD_OTHER, 0, 0, 0, field_reasoning},
    {"thinking", TEMPLATE, FIELD_OTHER, 0, 0, 0, field_thinking},
    {"reasoning_effort", TEMPLATE, FIELD_OTHER, 0, 0, 0, field_reasoning_effort},
    {"enable_thinking", TEMPLATE, FIELD_OTHER, 0, 0, 0, field_enable_thinking},
    {"reasoning_format", TEMPLATE, FIELD_OTHER, 0, 0, 0, field_reasoning_format},
    {"reasoning_budget_tokens", FIELDS_CHAT, FIELD_INT, PARAM(thinking_tokens), -1, INT32_MAX, NULL},
    {"thinking_budget_tokens", FIELDS_CHAT, FIELD_INT, PARAM(thinking_tokens), -1, INT32_MAX, NULL},
    {"reasoning_budget_message", FIELDS_CHAT, FIELD_STRING, PARAM(thinking_end), 0, 0, NULL},
    {"continue_final_message", TEMPLATE, FIELD_OTHER, 0, 0, 0, field_continue_final},
    {"add_generation_prompt", TEMPLATE, FIELD_OTHER, 0, 0, 0, field_generation_prompt},
    {"grammar", FIELDS_ANY, FIELD_OTHER, 0, 0, 0, field_grammar},
    {"json_schema", FIELDS_ANY, FIELD_OTHER, 0, 0, 0, field_json_schema},
    {"response_format", FIELDS_ANY, FIELD_OTHER, 0, 0, 0, field_response_format},
    {"structured_outputs", FIELDS_ANY, FIELD_OTHER, 0, 0, 0, field_structured_outputs},
    {"guided_json", FIELDS_ANY, FIELD_OTHER, 0, 0, 0, field_guided_json},
    {"guided_regex", FIELDS_ANY, FIELD_OTHER, 0, 0, 0, field_guided_regex},
    {"guided_choice", FIELDS_ANY, FIELD_OTHER, 0, 0, 0, field_guided_choice},
    {"guided_grammar", FIELDS_ANY, FIELD_OTHER, 0, 0, 0, field_guided_grammar},
    {"regex", FIELDS_ANY, FIELD_OTHER, 0, 0, 0, field_guided_regex},
    {"ebnf", FIELDS_ANY, FIELD_OTHER, 0, 0, 0, field_guided_grammar},
    {"logprobs", FIELDS_CHAT, FIELD_OTHER, 0, 0, 0, field_logprobs},
    {"top_logprobs", FIELDS_CHAT, FIELD_OTHER, 0, 0, 0, field_top_logprobs},
    {"logprobs", FIELDS_COMPLETION, FIELD_INT, PARAM(top_logprobs), 0, FIELDS_PROBS_MAX, NULL},
    {"n_probs", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, field_n_probs},
    {"prompt_logprobs", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, field_prompt_logprobs},
    {"post_sampling_probs", FIELDS_BOTH, FIELD_BOOL, PARAM(post_sampling_probs), 0, 0, NULL},
    {"return_progress", FIELDS_BOTH, FIELD_BOOL, PARAM(progress), 0, 0, NULL},
    {"verbose", FIELDS_BOTH, FIELD_BOOL, AT(verbose), 0, 0, NULL},
    {"timings_per_token", FIELDS_BOTH, FIELD_BOOL, AT(timings_per_token), 0, 0, NULL},
    {"prompt", FIELDS_COMPLETION | FIELDS_LOOKUP, FIELD_OTHER, 0, 0, 0, field_prompt},
    {"suffix", FIELDS_COMPLETION | FIELDS_LOOKUP, FIELD_OTHER, 0, 0, 0, field_suffix},
    {"echo", FIELDS_COMPLETION, FIELD_BOOL, AT(echo), 0, 0, NULL},
    {"echo", FIELDS_CHAT, FIELD_BOOL, AT(repeats), 0, 0, NULL},
    {"best_of", FIELDS_BOTH, FIELD_INT, AT(best_of), 1, FIELDS_CHOICES_MAX, NULL},
    {"n_cmpl", FIELDS_BOTH, FIELD_INT, AT(n), 1, FIELDS_CHOICES_MAX, NULL},
    {"n", FIELDS_BOTH, FIELD_INT, AT(n), 1, FIELDS_CHOICES_MAX, NULL},
    {"stream", FIELDS_BOTH, FIELD_BOOL, AT(stream), 0, 0, NULL},
    {"stream_options", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, read_stream_options},
    {"options", FIELDS_ANY, FIELD_OTHER, 0, 0, 0, read_options},
    {"n_predict", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, read_max_tokens},
    {"max_tokens", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, read_max_tokens},
    {"max_completion_tokens", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, read_max_tokens},
    {"stop", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, read_stop},
    {"ignore_eos", FIELDS_BOTH, FIELD_BOOL, PARAM(sampling.ignore_eos), 0, 0, NULL},
    {"cache_prompt", FIELDS_ANY, FIELD_BOOL, PARAM(cache_prompt), 0, 0, NULL},
    {"speculative.n_max", FIELDS_BOTH, FIELD_INT, PARAM(draft_max), 0, INT32_MAX, NULL},
    {"cache_salt", FIELDS_ANY, FIELD_STRING, PARAM(cache_salt), 0, FIELDS_SALT_MAX, NULL},
    {"parent_key", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, read_parent_key},
    {"lora", FIELDS_ANY, FIELD_OTHER, 0, 0, 0, read_lora},
    {"session_id", FIELDS_ANY, FIELD_OTHER, 0, 0, 0, read_session_hint},
    {"imc_id", FIELDS_ANY, FIELD_OTHER, 0, 0, 0, read_session_hint},
    {"prompt_cache_key", FIELDS_ANY, FIELD_OTHER, 0, 0, 0, read_session_hint},
    HEARTH_SAMPLING_TABLE(SAMPLING_NUMBER, SAMPLING_INTEGER){"repetition_penalty", FIELDS_BOTH, FIELD_NUMBER,
                                                             PARAM(sampling.repeat_penalty), 0.01, 100, NULL},
    {"seed", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, read_seed},
    {"dry_sequence_breakers", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, fields_read_breakers},
    {"samplers", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, fields_read_samplers},
    {"t_max_predict_ms", FIELDS_BOTH, FIELD_INT64, PARAM(max_ms), -1, 1e12, NULL},
    {"logit_bias", FIELDS_BOTH, FIELD_OTHER, 0, 0, 0, fields_read_logit_bias},
};

#define N_FIELDS (sizeof table / sizeof *table)

bool fields_knows(const char *name, int route)
{
    for (size_t i = 0; i < N_FIELDS; i++)
        if ((table[i].routes & route) != 0 && strcmp(table[i].name, name) == 0) return true;
    return false;
}

/* Members of "options", which Ollama's clients also send to OpenAI's routes: most have the field's name. */
static const char options[] = "stop seed temperature top_k top_p min_p typical_p repeat_penalty repeat_last_n "
                              "frequency_penalty presence_penalty mirostat mirostat_tau mirostat_eta";

/* The value of a field stands under its name or else in "options". */
static int read_table(struct fields *fields, int route, hearth_error *error)
{
    const json_t *all = json_object_get(fields->body, "options");
    for (size_t i = 0; i < N_FIELDS; i++) {
        const char *name = table[i].name, *option = NULL;
        if ((table[i].routes & route) == 0) continue;
        const json_t *value = body_find(fields->body, name);
        if (value == NULL && all != NULL)
            option = strcmp(name, "n_predict") == 0 ? "num_predict" : words_have(options, name) ? name : NULL;
        if (option != NULL) value = body_find(all, option);
        if (value == NULL) continue;
        struct field_path path = option == NULL ? field_path_of("%s", name) : field_path_of("options.%s", option);
        int rc = read_value(fields, &table[i], path.v, value, error);
        if (rc != HEARTH_OK) return rc;
    }
    return HEARTH_OK;
}

/* ---- Whole bodies ---- */

/* Checks what depends on several fields. */
static int check_combinations(struct fields *fields, int route, hearth_error *error)
{
    if (route == FIELDS_LOOKUP) {
        if (fields->messages != NULL && fields->prompts != NULL)
            return error_at(error, HEARTH_INVALID, "prompt", "give either 'messages' or 'prompt'");
        if (fields->n_prompts == 0)
            return error_at(error, HEARTH_INVALID, "prompt", "'messages' or 'prompt' is missing");
        if (fields->n_prompts > 1)
            return error_at(error, HEARTH_INVALID, "prompt",
                            "'prompt' may be one prompt only: look each one up by itself");
        return HEARTH_OK;
    }
    const char *prompt = route == FIELDS_CHAT ? "messages" : "prompt";
    if (fields->n_prompts == 0) return error_at(error, HEARTH_INVALID, prompt, "'%s' is missing", prompt);
    if (fields->params.grammar != NULL && fields->params.json_schema != NULL)
        return error_at(error, HEARTH_INVALID, "grammar", "give either 'grammar' or a JSON schema");
    if (fields->n_prompts * (size_t)fields->n > FIELDS_CHOICES_MAX)
        return error_at(error, HEARTH_INVALID, "n", "'n' times the number of prompts may be up to %d",
                        FIELDS_CHOICES_MAX);
    if (fields->best_of > fields->n)
        return error_at(error, HEARTH_UNSUPPORTED, "best_of",
                        "'best_of' above 'n' is not supported: ask for more choices with 'n'");
    return fields_finish_scores(fields, error);
}

/* Members whose strings the parameters borrow, and those that routes read afterwards. Prompts hold references to
 * their own strings. */
static const char borrowed[] =
    "model reasoning_budget_message grammar suffix stop options cache_salt parent_key samplers dry_sequence_breakers "
    "input_suffix input_extra response_fields return_tokens logit_bias";

/* Takes the tree over. `uploads`, taken over too: those of a converted body, which its messages name; NULL: the body is
 * as an OpenAI client sent it. */
static int take_tree(struct fields *fields, int route, json_t *body, struct uploads *uploads, hearth_error *error)
{
    *fields = (struct fields){.body = body, .params = hearth_params_default(), .n = 1, .best_of = 1};
    if (uploads != NULL) {
        fields->is_converted = true;
        fields->uploads = *uploads;
        fields->places = json_incref(json_object_get(body, FIELDS_PLACES));
        *uploads = (struct uploads){0};
    }
    int rc = read_table(fields, route, error);
    if (rc == HEARTH_OK) rc = fields_refuse_unsupported(fields->body, route, error);
    if (rc == HEARTH_OK) rc = check_combinations(fields, route, error);
    /* The list of uploads is complete only now, and stays where it is. */
    fields->params.media = fields->uploads.v;
    fields->params.n_media = fields->uploads.n;
    json_t *paths = fields->places == NULL ? NULL : json_array();
    for (size_t i = 0; paths != NULL && i < fields->uploads.n; i++)
        json_array_append_new(paths, json_string(fields->uploads.v[i].field));
    if (paths != NULL) json_object_set_new(fields->places, "media", paths);
    size_t n = json_values_of_tree(fields->messages) + json_values_of_tree(fields->tools) +
               json_values_of_tree(fields->kwargs) + json_values_of_tree(fields->schema);
    if (rc == HEARTH_OK && n > FIELDS_VALUES_MAX)
        rc = error_at(error, ERRORS_TOO_LARGE, fields->messages != NULL ? "messages" : "json_schema",
                      "messages, tools, arguments of the template and schema hold %zu JSON values: at most %d", n,
                      FIELDS_VALUES_MAX);
    /* Frees the rest of the tree, but for what the parameters refer to. */
    if (rc == HEARTH_OK) {
        json_t *kept = json_object(), *value;
        const char *name;
        json_object_foreach(fields->body, name, value) if (words_have(borrowed, name))
            json_object_set(kept, name, value);
        json_decref(fields->body);
        fields->body = kept;
    } else {
        fields_release(fields);
    }
    return rc;
}

struct fields *fields_open_converted(const struct fields_converted *converted, int route, const struct fields_api *api,
                                     hearth_error *error)
{
    struct unknown unknown = unknown_find(converted->body, route, api);
    struct fields *fields = mem_alloc(sizeof *fields);
    if (take_tree(fields, route, converted->chat, converted->uploads, error) == HEARTH_OK) {
        header_list_add_all(&fields->left_out, &converted->left_out);
        fields->api = unknown.api;
        fields->unknown = unknown.names;
        return fields;
    }
    free(unknown.names);
    free(fields);
    return NULL;
}

struct fields *fields_open_tree(json_t *tree, int route, const struct fields_api *api, hearth_error *error)
{
    struct uploads uploads = {0};
    struct fields_converted converted = {.body = tree, .uploads = api == NULL ? NULL : &uploads};
    converted.chat = api == NULL ? json_incref(tree) : api->convert(tree, &uploads, &converted.left_out, error);
    struct fields *fields = converted.chat == NULL ? NULL : fields_open_converted(&converted, route, api, error);
    uploads_release(&uploads);
    json_decref(tree);
    return fields;
}

struct fields *fields_open(struct buf *body, int route, const struct fields_api *api, hearth_error *error)
{
    json_t *tree = fields_parse_body(body, error);
    return tree == NULL ? NULL : fields_open_tree(tree, route, api, error);
}

void *fields_open_chat(struct buf *body, hearth_error *error)
{
    return fields_open(body, FIELDS_CHAT, NULL, error);
}

void *fields_open_completion(struct buf *body, hearth_error *error)
{
    return fields_open(body, FIELDS_COMPLETION, NULL, error);
}

void fields_close(void *fields)
{
    fields_release(fields);
    free(fields);
}

size_t fields_size(const void *ud)
{
    const struct fields *fields = ud;
    size_t bytes = sizeof *fields + json_size_of_tree(fields->body) + json_size_of_tree(fields->places) +
                   json_size_of_tree(fields->messages) + json_size_of_tree(fields->tools) +
                   json_size_of_tree(fields->allowed_tools) + json_size_of_tree(fields->kwargs) +
                   json_size_of_tree(fields->schema) + uploads_size(&fields->uploads);
    bytes += fields->unknown == NULL ? 0 : strlen(fields->unknown);
    bytes += fields->made_grammar == NULL ? 0 : strlen(fields->made_grammar);
    for (size_t i = 0; fields->prompts != NULL && i < fields->n_prompts; i++)
        bytes += field_prompt_size(&fields->prompts[i]);
    return bytes + fields->params.sampling.n_logit_bias * sizeof *fields->bias;
}

int fields_read(struct fields *fields, int route, const char *body, size_t len, hearth_error *error)
{
    json_t *parsed = fields_parse(body, len, error);
    return parsed == NULL ? HEARTH_INVALID : take_tree(fields, route, parsed, NULL, error);
}

void fields_release(struct fields *fields)
{
    for (size_t i = 0; fields->prompts != NULL && i < fields->n_prompts; i++) field_release_prompt(&fields->prompts[i]);
    free(fields->prompts);
    json_decref(fields->messages);
    json_decref(fields->tools);
    json_decref(fields->allowed_tools);
    json_decref(fields->schema);
    json_decref(fields->custom_tools);
    free(fields->unknown);
    hearth_free(fields->made_grammar);
    json_decref(fields->kwargs);
    json_decref(fields->places);
    free(fields->stop);
    free(fields->samplers);
    free(fields->sampler_letters);
    free(fields->dry_breakers);
    free(fields->bias);
    free(fields->lora);
    free(fields->snippets);
    uploads_release(&fields->uploads);
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
        if (prompt != NULL) field_use_prompt(prompt, &choices[i]);
        /* With one seed all choices of a prompt would be equal; consecutive seeds make them differ, reproducibly. */
        if (choices[i].sampling.seed >= 0)
            choices[i].sampling.seed =
                (int64_t)(((uint64_t)choices[i].sampling.seed + i % (size_t)fields->n) & INT64_MAX);
    }
    return choices;
}

void fields_start(struct call *call, struct fields *fields, struct exchange_plan plan)
{
    hearth_params *choices = fields_choices(fields, &plan.n_choices);
    plan.choices = choices;
    if (plan.owner == NULL) {
        plan.owner = fields;
        plan.release_owner = fields_close;
    }
    exchange_start(call, &plan);
    free(choices);
}

void fields_start_prompt(struct call *call, struct fields *fields, const struct dialect *dialect)
{
    unknown_report(call, fields);
    fields->n = 1;
    fields->params.only_prompt = true;
    fields_start(call, fields, (struct exchange_plan){.dialect = dialect});
}
