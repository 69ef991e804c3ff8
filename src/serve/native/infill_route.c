/* POST /infill: fill-in-the-middle as llama-server's editor clients request it. The body is parsed as a completion
 * whose prompt is the prefix. No state. */
#include "base/error.h"
#include "base/memory.h"
#include "serve/core/errors.h"
#include "serve/fields/fields_readers.h"
#include "serve/fields/unknown.h"
#include "serve/native/native.h"

#include <stdlib.h>

#define SNIPPETS_MAX 256

static int read_suffix(struct fields *fields, const json_t *value, hearth_error *error)
{
    if (!json_is_string(value))
        return error_at(error, HEARTH_INVALID, "input_suffix",
                        "'input_suffix' must be a string: the text after the part to fill in");
    fields->params.suffix = json_string_value(value);
    fields->params.suffix_len = json_string_length(value);
    return HEARTH_OK;
}

/* "prompt" is the text that the user has typed at the cursor already. */
static int read_typed(struct fields *fields, const json_t *value, hearth_error *error)
{
    if (value == NULL || json_is_null(value)) return HEARTH_OK;
    if (!json_is_string(value)) return error_at(error, HEARTH_INVALID, "prompt", "'prompt' must be a string");
    fields->params.typed = json_string_value(value);
    fields->params.typed_len = json_string_length(value);
    return HEARTH_OK;
}

static bool get_snippet(const json_t *value, hearth_snippet *snippet)
{
    const json_t *name = json_object_get(value, "filename");
    snippet->name = name == NULL || json_is_null(name) ? "tmp" : field_string(name);
    snippet->text = field_string(json_object_get(value, "text"));
    return snippet->name != NULL && snippet->text != NULL;
}

static int read_snippets(struct fields *fields, const json_t *value, hearth_error *error)
{
    size_t n = json_array_size(value), i;
    json_t *item;
    if (value == NULL || json_is_null(value)) return HEARTH_OK;
    bool good = json_is_array(value) && n <= SNIPPETS_MAX;
    if (good) fields->snippets = mem_alloc((n + 1) * sizeof *fields->snippets);
    json_array_foreach(value, i, item) good = good && get_snippet(item, &fields->snippets[i]);
    if (!good)
        return error_at(error, HEARTH_INVALID, "input_extra",
                        "'input_extra' must be a list of up to %d {\"filename\": string, \"text\": string}, without "
                        "zero characters",
                        SNIPPETS_MAX);
    fields->params.snippets = fields->snippets;
    fields->params.n_snippets = n;
    return HEARTH_OK;
}

/* Makes the prefix the prompt. */
static int put_prefix_first(json_t *body, hearth_error *error)
{
    json_t *prefix = json_object_get(body, "input_prefix");
    if (!json_is_string(prefix))
        return error_at(error, HEARTH_INVALID, "input_prefix",
                        "'input_prefix' must be a string: the text before the part to fill in");
    json_object_set(body, "prompt", prefix);
    return HEARTH_OK;
}

/* Reads the fields of /infill. `typed`, the body's own prompt, goes back into the tree, since the parameters borrow
 * it. */
static int read_infill_fields(struct fields *fields, json_t *typed, hearth_error *error)
{
    if (typed != NULL) json_object_set(fields->body, "prompt", typed);
    int rc = read_suffix(fields, json_object_get(fields->body, "input_suffix"), error);
    if (rc == HEARTH_OK) rc = read_typed(fields, typed, error);
    if (rc == HEARTH_OK) rc = read_snippets(fields, json_object_get(fields->body, "input_extra"), error);
    return rc;
}

static void *read_infill(struct buf *body, hearth_error *error)
{
    json_t *tree = fields_parse_body(body, error);
    if (tree == NULL) return NULL;
    json_t *typed = json_incref(json_object_get(tree, "prompt"));
    struct fields *fields = mem_alloc(sizeof *fields);
    struct unknown unknown = unknown_find(tree, FIELDS_COMPLETION, NULL);
    int rc = put_prefix_first(tree, error);
    if (rc != HEARTH_OK)
        json_decref(tree);
    else
        rc = fields_take(fields, FIELDS_COMPLETION, tree, NULL, error);
    if (rc == HEARTH_OK && (rc = read_infill_fields(fields, typed, error)) != HEARTH_OK) fields_release(fields);
    json_decref(typed);
    if (rc == HEARTH_OK) {
        fields->api = unknown.api;
        fields->unknown = unknown.names;
        return fields;
    }
    free(unknown.names);
    free(fields);
    return NULL;
}

static void answer_infill(struct call *call, void *fields)
{
    native_answer(call, &native_infill_dialect, fields);
}

void native_infill(struct call *call)
{
    static const struct reading_form form = {.read = read_infill,
                                             .size = fields_size,
                                             .answer = answer_infill,
                                             .release = fields_close,
                                             .put_error = errors_put};
    reading_start(call, &form);
}
