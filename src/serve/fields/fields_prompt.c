/* Readers of a completion's prompt (text, tokens, both mixed, or a list of these) and suffix. No state; any thread. */
#include "base/error.h"
#include "base/memory.h"
#include "serve/fields/body.h"
#include "serve/fields/fields_readers.h"

#include <stdlib.h>

/* free() the tokens even if it returns false. */
static bool get_tokens(const json_t *list, int32_t **tokens, size_t *n)
{
    size_t i;
    json_t *item;
    int64_t whole;
    *n = 0;
    *tokens = mem_grow(NULL, json_array_size(list) + 1, sizeof **tokens);
    json_array_foreach(list, i, item)
    {
        if (!field_whole(item, 0, INT32_MAX, &whole)) return false;
        (*tokens)[(*n)++] = (int32_t)whole;
    }
    return true;
}

static bool get_parts(const json_t *list, struct fields_prompt *prompt)
{
    size_t i;
    json_t *item;
    int64_t whole = 0;
    prompt->parts = mem_alloc((json_array_size(list) + 1) * sizeof *prompt->parts);
    prompt->strings = json_array();
    json_array_foreach(list, i, item)
    {
        if (!json_is_string(item) && !field_whole(item, 0, INT32_MAX, &whole)) return false;
        if (json_is_string(item)) json_array_append(prompt->strings, item);
        prompt->parts[prompt->n_parts++] =
            (hearth_part){.text = json_string_value(item), .len = json_string_length(item), .token = (int32_t)whole};
    }
    return true;
}

bool field_get_prompt(const json_t *value, struct fields_prompt *prompt)
{
    size_t i;
    json_t *item;
    bool holds_text = false;
    json_array_foreach(value, i, item) holds_text = holds_text || json_is_string(item);
    if (holds_text) return get_parts(value, prompt);
    if (json_is_array(value)) return get_tokens(value, &prompt->tokens, &prompt->n_tokens);
    if (!json_is_string(value)) return false;
    prompt->strings = json_incref((json_t *)value);
    prompt->text = json_string_value(value);
    prompt->len = json_string_length(value);
    return true;
}

void field_use_prompt(const struct fields_prompt *prompt, hearth_params *params)
{
    params->text = prompt->text;
    params->text_len = prompt->len;
    params->tokens = prompt->tokens;
    params->n_tokens = prompt->n_tokens;
    params->parts = prompt->parts;
    params->n_parts = prompt->n_parts;
}

void field_release_prompt(struct fields_prompt *prompt)
{
    json_decref(prompt->strings);
    free(prompt->tokens);
    free(prompt->parts);
}

size_t field_prompt_size(const struct fields_prompt *prompt)
{
    size_t strings = prompt->strings == NULL ? 0 : json_size_of_tree(prompt->strings);
    return strings + prompt->n_tokens * sizeof *prompt->tokens + prompt->n_parts * sizeof *prompt->parts;
}

/* The text in llama-server's object for prompts with media: {"prompt_string", "multimodal_data"}. */
const json_t *field_unwrap_prompt(const json_t *value, bool *has_media)
{
    const json_t *text = json_object_get(value, "prompt_string");
    if (text == NULL) return value;
    *has_media = *has_media || json_object_get(value, "multimodal_data") != NULL;
    return text;
}

/* A list that contains a number is one prompt; other lists are lists of prompts. */
bool field_is_one_prompt(const json_t *value)
{
    size_t i;
    json_t *item;
    json_array_foreach(value, i, item) if (json_is_number(item)) return true;
    return !json_is_array(value);
}

int field_prompt(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    bool one = field_is_one_prompt(value), has_media = false;
    size_t n = one ? 1 : json_array_size(value);
    if (n > FIELDS_CHOICES_MAX)
        return error_at(error, HEARTH_INVALID, name, "'%s' may be a list of up to %d prompts", name,
                        FIELDS_CHOICES_MAX);
    bool good = n > 0;
    fields->prompts = mem_alloc((n + 1) * sizeof *fields->prompts);
    fields->n_prompts = n;
    for (size_t i = 0; i < n && good; i++) {
        struct fields_prompt *prompt = &fields->prompts[i];
        good = field_get_prompt(field_unwrap_prompt(one ? value : json_array_get(value, i), &has_media), prompt);
        /* A list of no tokens is refused; an empty text is a prompt. */
        good = good && (prompt->tokens == NULL || prompt->n_tokens > 0);
    }
    if (has_media)
        return error_at(error, HEARTH_UNSUPPORTED, name, "'%s.multimodal_data' is not supported: send text alone",
                        name);
    if (!good)
        return error_at(error, HEARTH_INVALID, name,
                        "'%s' must be a string, a list of tokens and strings, or a list of these", name);
    return HEARTH_OK;
}

/* An empty suffix is none. */
int field_suffix(struct fields *fields, const char *name, const json_t *value, hearth_error *error)
{
    if (!json_is_string(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be a string", name);
    fields->params.suffix = json_string_length(value) > 0 ? json_string_value(value) : NULL;
    fields->params.suffix_len = json_string_length(value);
    return HEARTH_OK;
}
