/* Readers of vLLM's and SGLang's fields that bind a reply: "structured_outputs", the older "guided_…", "regex" and
 * "ebnf". They become a grammar or a schema. No state; any thread. */
#include "base/buf.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/memory.h"
#include "serve/fields/convert.h"
#include "serve/fields/fields_readers.h"

#include <stdlib.h>
#include <string.h>

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

static void put_quoted(struct buf *regex, const char *text)
{
    for (; *text != '\0'; text++) {
        if (strchr("\\^$.|?*+()[]{}/", *text) != NULL) buf_puts(regex, "\\");
        buf_append(regex, text, 1);
    }
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
        put_quoted(&regex, text == NULL ? "" : text);
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
    if (!json_is_boolean(value)) return error_at(error, HEARTH_INVALID, name, "'%s' must be true or false", name);
    json_t *any = json_object();
    int rc = json_is_true(value) ? field_json_schema(fields, name, any, error) : HEARTH_OK;
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
