/* Upper bounds for the memory, depth and number of values of the tree that JSON text parses to, estimated from its
 * bytes before anything is parsed: three bytes like "{}," become 250. Validity is not checked: for text that is not
 * JSON the numbers mean nothing. No state; any thread. */
#ifndef SERVE_CORE_JSON_SIZE_H
#define SERVE_CORE_JSON_SIZE_H

#include <jansson.h>
#include <stddef.h>

struct json_size {
    size_t values; /* objects, lists, strings (member names too), numbers, true, false, null */
    size_t depth;  /* nesting of lists and objects */
    size_t memory; /* bytes of the tree at most, without the bytes of its strings */
};

struct json_size json_size_of_text(const char *text, size_t len);

/* Values of a parsed tree, member names too; NULL has none. */
size_t json_values_of_tree(const json_t *tree);

/* Bytes of a parsed tree at most, with those of its strings. */
size_t json_size_of_tree(const json_t *tree);

#endif
