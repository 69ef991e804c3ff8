/* What JSON text will take as a tree, told from its bytes before anything is made of them: three bytes like "{},"
 * become 250. Nothing is checked here; of what is no JSON the numbers mean nothing. No state; any thread. */
#ifndef SERVE_CORE_JSON_SIZE_H
#define SERVE_CORE_JSON_SIZE_H

#include <jansson.h>
#include <stddef.h>

struct json_size {
    size_t values; /* objects, lists, strings (names of members too) and all else */
    size_t depth;  /* of lists and objects in each other */
    size_t memory; /* bytes that the tree takes beside those of its strings, at most */
};

struct json_size json_size_of_text(const char *text, size_t len);

/* Bytes that a tree takes, by the same measure, with those of its strings. */
size_t json_size_of_tree(const json_t *tree);

#endif
