/* hearth_params: the defaults, where nothing is given, copies, hearth_shared and hearth_json. In a file of its own,
 * since tests link it beside a fake hearth.
 *
 * A copy owns all that it points at, so that the casts that remove "const" are only here. */
#include "instance/parameters/parameters.h"

#include "base/error.h"
#include "base/json_text.h"
#include "base/memory.h"

#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

hearth_params hearth_params_default(void)
{
#define NUMBER(name, ...)  .name = NAN,
#define INTEGER(name, ...) .name = HEARTH_UNSET,
    return (hearth_params){.parallel_tool_calls = -1,
                           .thinking_tokens = -1,
                           .max_tokens = HEARTH_UNSET,
                           .cache_prompt = true,
                           .draft_max = HEARTH_UNSET,
                           .top_logprobs = -1,
                           .prompt_logprobs = -1,
                           .sampling = {HEARTH_SAMPLING_TABLE(NUMBER, INTEGER).seed = -1}};
}

hearth_embed_params hearth_embed_params_default(void)
{
    return (hearth_embed_params){.norm = 2, .truncate = HEARTH_TRUNCATE_CONFIGURED};
}

/* ---- hearth_shared ---- */

struct hearth_shared {
    atomic_size_t refs;
    void (*release)(void *ud);
    void *ud;
};

hearth_shared *hearth_shared_new(void (*release)(void *ud), void *ud)
{
    hearth_shared *shared = mem_alloc(sizeof *shared);
    *shared = (hearth_shared){.refs = 1, .release = release, .ud = ud};
    return shared;
}

void hearth_shared_unref(hearth_shared *shared)
{
    if (atomic_fetch_sub(&shared->refs, 1) > 1) return;
    shared->release(shared->ud);
    free(shared);
}

/* ---- hearth_json ---- */

hearth_json *hearth_json_read(const char *text, size_t len, hearth_error *error)
{
    json_error_t fault;
    json_t *tree = json_text_read(text, len, &fault);
    if (tree == NULL)
        error_set(error, HEARTH_INVALID, "the text is not valid JSON: line %d, column %d: %s", fault.line, fault.column,
                  fault.text);
    return (hearth_json *)tree;
}

void hearth_json_free(const hearth_json *json)
{
    json_decref((json_t *)json);
}

/* ---- Copies ---- */

/* Members that are strings. */
static const size_t strings[] = {offsetof(hearth_params, model),        offsetof(hearth_params, request_id),
                                 offsetof(hearth_params, thinking_end), offsetof(hearth_params, grammar),
                                 offsetof(hearth_params, cache_salt),   offsetof(hearth_params, parent_key)};

#define N_STRINGS (sizeof strings / sizeof *strings)

static const char **string_at(hearth_params *params, size_t i)
{
    return (const char **)((char *)params + strings[i]);
}

/* Members that are JSON. */
static const hearth_json *const *json_at(const hearth_params *params, size_t i)
{
    const hearth_json *const *const all[] = {&params->messages, &params->tools, &params->template_kwargs,
                                             &params->allowed_tools, &params->json_schema};
    return i < sizeof all / sizeof *all ? all[i] : NULL;
}

/* The copy is zero-terminated, so that text may be used as a string. */
static void *copy_bytes(const void *bytes, size_t n)
{
    if (bytes == NULL) return NULL;
    char *copy = mem_alloc(n + 1);
    if (n > 0) memcpy(copy, bytes, n);
    return copy;
}

static const char **copy_list(const char *const *list, size_t n)
{
    if (list == NULL) return NULL;
    const char **copy = mem_alloc((n + 1) * sizeof *copy);
    for (size_t i = 0; i < n; i++) copy[i] = mem_strdup(list[i]);
    return copy;
}

static void free_list(const char *const *list, size_t n)
{
    for (size_t i = 0; list != NULL && i < n; i++) free((void *)list[i]);
    free((void *)list);
}

hearth_params *params_copy(const hearth_params *params)
{
    hearth_params *copy = mem_alloc(sizeof *copy);
    *copy = *params;
    copy->shared = NULL;
    for (size_t i = 0; i < N_STRINGS; i++) *string_at(copy, i) = mem_strdup(*string_at(copy, i));
    for (size_t i = 0; json_at(copy, i) != NULL; i++) json_incref((json_t *)*json_at(copy, i));
    copy->text = copy_bytes(params->text, params->text_len);
    copy->suffix = copy_bytes(params->suffix, params->suffix_len);
    copy->typed = copy_bytes(params->typed, params->typed_len);
    copy->tokens = copy_bytes(params->tokens, params->n_tokens * sizeof *params->tokens);
    copy->lora = copy_bytes(params->lora, params->n_lora * sizeof *params->lora);
    copy->stop = copy_list(params->stop, params->n_stop);
    copy->sampling.dry_breakers = copy_list(copy->sampling.dry_breakers, copy->sampling.n_dry_breakers);
    copy->sampling.samplers = copy_list(copy->sampling.samplers, copy->sampling.n_samplers);
    hearth_bias *biases = copy_bytes(copy->sampling.logit_bias, copy->sampling.n_logit_bias * sizeof *biases);
    for (size_t i = 0; i < copy->sampling.n_logit_bias; i++) biases[i].text = mem_strdup(biases[i].text);
    copy->sampling.logit_bias = biases;
    hearth_part *parts = params->parts == NULL ? NULL : mem_alloc((params->n_parts + 1) * sizeof *parts);
    for (size_t i = 0; parts != NULL && i < params->n_parts; i++) {
        parts[i] = params->parts[i];
        parts[i].text = copy_bytes(parts[i].text, parts[i].len);
    }
    copy->parts = parts;
    hearth_snippet *snippets = mem_alloc((params->n_snippets + 1) * sizeof *snippets);
    for (size_t i = 0; i < params->n_snippets; i++)
        snippets[i] = (hearth_snippet){.name = mem_strdup(params->snippets[i].name),
                                       .text = mem_strdup(params->snippets[i].text)};
    copy->snippets = snippets;
    hearth_medium *media = mem_alloc((params->n_media + 1) * sizeof *media);
    for (size_t i = 0; i < params->n_media; i++)
        media[i] = (hearth_medium){.bytes = copy_bytes(params->media[i].bytes, params->media[i].len),
                                   .len = params->media[i].len,
                                   .field = mem_strdup(params->media[i].field),
                                   .fault = mem_strdup(params->media[i].fault),
                                   .url = mem_strdup(params->media[i].url)};
    copy->media = media;
    return copy;
}

hearth_params *params_keep(const hearth_params *params)
{
    if (params->shared == NULL) return params_copy(params);
    hearth_params *kept = mem_alloc(sizeof *kept);
    *kept = *params;
    kept->model = kept->request_id = NULL;
    atomic_fetch_add(&kept->shared->refs, 1);
    return kept;
}

void params_free(hearth_params *params)
{
    if (params == NULL) return;
    if (params->shared != NULL) {
        hearth_shared_unref(params->shared);
        free(params);
        return;
    }
    for (size_t i = 0; i < N_STRINGS; i++) free((void *)*string_at(params, i));
    for (size_t i = 0; json_at(params, i) != NULL; i++) hearth_json_free(*json_at(params, i));
    for (size_t i = 0; i < params->n_snippets; i++) {
        free((void *)params->snippets[i].name);
        free((void *)params->snippets[i].text);
    }
    for (size_t i = 0; params->parts != NULL && i < params->n_parts; i++) free((void *)params->parts[i].text);
    for (size_t i = 0; i < params->n_media; i++) {
        free((void *)params->media[i].bytes);
        free((void *)params->media[i].field);
        free((void *)params->media[i].fault);
        free((void *)params->media[i].url);
    }
    const void *const blocks[] = {params->text, params->suffix, params->typed,    params->tokens,
                                  params->lora, params->parts,  params->snippets, params->media};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) free((void *)blocks[i]);
    free_list(params->stop, params->n_stop);
    free_list(params->sampling.dry_breakers, params->sampling.n_dry_breakers);
    free_list(params->sampling.samplers, params->sampling.n_samplers);
    for (size_t i = 0; i < params->sampling.n_logit_bias; i++) free((void *)params->sampling.logit_bias[i].text);
    free((void *)params->sampling.logit_bias);
    free(params);
}
