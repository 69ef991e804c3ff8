/* The text in JSON of another service: see readable.h. */
#include "serve/fields/readable.h"

#include "base/buf.h"
#include "base/json_text.h"

#include <stdbool.h>
#include <string.h>

/* In the order in which they are written. */
static const char *const names[] = {
    "title",           "name",      "tool_name", "filename", "path",       "url",           "source",
    "description",     "text",      "data",      "content",  "stdout",     "stderr",        "logs",
    "lines",           "output",    "outputs",   "result",   "results",    "sources",       "summary",
    "tool_references", "tools",     "error",     "message",  "error_code", "error_message", "outcome",
    "return_code",     "exit_code",
};

static void put_value(struct buf *out, const char *name, const json_t *value);

/* "data" is text in a source of text alone, else base64. */
static void put_members(struct buf *out, const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *value = json_object_get(object, names[i]);
        bool is_parts = strcmp(names[i], "content") == 0 && !json_is_string(value);
        bool is_bytes = strcmp(names[i], "data") == 0 && (type == NULL || strcmp(type, "text") != 0);
        if (!is_parts && !is_bytes) put_value(out, names[i], value);
    }
}

static void put_value(struct buf *out, const char *name, const json_t *value)
{
    size_t i;
    json_t *item;
    if (json_text_is_object(value)) put_members(out, value);
    json_array_foreach(value, i, item) put_value(out, name, item);
    bool is_text = json_string_length(value) > 0, is_code = name != NULL && json_is_integer(value);
    if (out->len > 0 && (is_text || is_code)) buf_puts(out, "\n");
    if (is_text) buf_append(out, json_string_value(value), json_string_length(value));
    if (is_code) buf_printf(out, "%s: %lld", name, (long long)json_integer_value(value));
}

json_t *readable_text(const json_t *value)
{
    struct buf out = {0};
    put_value(&out, NULL, value);
    json_t *text = out.len == 0 ? NULL : json_stringn(out.v, out.len);
    buf_release(&out);
    return text;
}
