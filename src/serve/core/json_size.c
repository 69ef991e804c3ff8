/* The size of JSON trees: see json_size.h. */
#include "serve/core/json_size.h"

#include "base/json_text.h"

#include <string.h>

/* Bytes of one value in jansson's trees: with malloc's overhead, and with its slot in the list or object around it
 * while that is being reallocated. Strings are counted as member names, which take most. */
enum { OBJECT_BYTES = 256, LIST_BYTES = 160, STRING_BYTES = 128, OTHER_BYTES = 56 };

/* A wide number: an object, the name of its member, its digits as a string. */
enum { WIDE_BYTES = OBJECT_BYTES + 2 * STRING_BYTES };

static void add_value(struct json_size *size, size_t bytes)
{
    size->values++;
    size->memory += bytes;
}

struct json_size json_size_of_text(const char *text, size_t len)
{
    struct json_size size = {0};
    size_t depth = 0;
    struct json_piece piece;
    for (const char *at = text; json_text_next(&at, text + len, &piece);) {
        const char c = piece.text[0];
        if (c == '"') {
            add_value(&size, STRING_BYTES);
        } else if (c == '{' || c == '[') {
            add_value(&size, c == '{' ? OBJECT_BYTES : LIST_BYTES);
            if (++depth > size.depth) size.depth = depth;
        } else if (c == '}' || c == ']') {
            depth -= depth > 0;
        } else {
            add_value(&size, piece.is_wide ? WIDE_BYTES : OTHER_BYTES);
        }
    }
    return size;
}

size_t json_size_of_tree(const json_t *tree)
{
    size_t bytes = 0, i;
    const char *name;
    json_t *item;
    switch (tree == NULL ? JSON_NULL : json_typeof(tree)) {
    case JSON_OBJECT:
        json_object_foreach((json_t *)tree, name, item) bytes += STRING_BYTES + strlen(name) + json_size_of_tree(item);
        return bytes + OBJECT_BYTES;
    case JSON_ARRAY:
        json_array_foreach(tree, i, item) bytes += json_size_of_tree(item);
        return bytes + LIST_BYTES;
    case JSON_STRING:
        return STRING_BYTES + json_string_length(tree);
    default:
        return OTHER_BYTES;
    }
}

size_t json_values_of_tree(const json_t *tree)
{
    size_t n = 1, i;
    const char *name;
    json_t *item;
    if (tree == NULL) return 0;
    if (json_text_wide(tree) != NULL) return n;
    json_object_foreach((json_t *)tree, name, item) n += 1 + json_values_of_tree(item);
    json_array_foreach(tree, i, item) n += json_values_of_tree(item);
    return n;
}
