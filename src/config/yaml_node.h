/* A YAML text as a tree of nodes that know their lines. A node owns what is below it; any thread. */
#ifndef CONFIG_YAML_NODE_H
#define CONFIG_YAML_NODE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

struct node {
    enum { NODE_SCALAR, NODE_LIST, NODE_MAP } kind;
    int line;       /* counted from 1 */
    char *text;     /* scalar; may hold zero bytes */
    size_t len;     /* bytes of text */
    bool plain;     /* scalar without quotes: may be null, a bool or a number */
    struct node *v; /* items; of a map: key, value, key, value … */
    size_t n;       /* how many, keys and values counted each */
};

/* Reads one document; an empty one gives a null scalar. Fails on what is no YAML, on aliases and tags (which hearth
 * does not read), and on anything deeper, longer or larger than a configuration can be; then `why` (empty before)
 * says so and `line` says where. Call node_release() in either case. */
bool node_parse(struct node *root, const char *text, size_t len, struct buf *why, int *line);
void node_release(struct node *node);

/* null, ~ or nothing at all, without quotes. */
bool node_is_null(const struct node *node);

#endif
