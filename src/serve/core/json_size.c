#include "serve/core/json_size.h"

#include <stdbool.h>
#include <string.h>

/* Bytes of one value in jansson's trees, with malloc's own and with its place in the list or object around it while
 * that is being copied into a larger one. Strings may be names of members, which take most. */
enum { OBJECT_BYTES = 256, LIST_BYTES = 160, STRING_BYTES = 128, OTHER_BYTES = 56 };

/* Behind the string whose first quote has been passed. */
static const char *skip_string(const char *at, const char *end)
{
    for (; at < end && *at != '"'; at++)
        if (*at == '\\' && at + 1 < end) at++;
    return at < end ? at + 1 : end;
}

static bool belongs_to_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '+' ||
           c == '.';
}

static void add(struct scan *scan, size_t bytes)
{
    scan->values++;
    scan->memory += bytes;
}

struct scan scan_text(const char *text, size_t len)
{
    struct scan scan = {0};
    size_t depth = 0;
    for (const char *at = text, *end = text + len; at < end;) {
        char c = *at++;
        if (c == '"') {
            add(&scan, STRING_BYTES);
            at = skip_string(at, end);
        } else if (c == '{' || c == '[') {
            add(&scan, c == '{' ? OBJECT_BYTES : LIST_BYTES);
            if (++depth > scan.depth) scan.depth = depth;
        } else if (c == '}' || c == ']') {
            depth -= depth > 0;
        } else if (belongs_to_word(c)) {
            add(&scan, OTHER_BYTES);
            while (at < end && belongs_to_word(*at)) at++;
        }
    }
    return scan;
}

size_t scan_tree(const json_t *tree)
{
    size_t bytes = 0, i;
    const char *name;
    json_t *item;
    switch (tree == NULL ? JSON_NULL : json_typeof(tree)) {
    case JSON_OBJECT:
        json_object_foreach((json_t *)tree, name, item) bytes += STRING_BYTES + strlen(name) + scan_tree(item);
        return bytes + OBJECT_BYTES;
    case JSON_ARRAY:
        json_array_foreach(tree, i, item) bytes += scan_tree(item);
        return bytes + LIST_BYTES;
    case JSON_STRING:
        return STRING_BYTES + json_string_length(tree);
    default:
        return OTHER_BYTES;
    }
}
