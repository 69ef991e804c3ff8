/* A YAML text as a tree of nodes with line numbers. A node owns its children; any thread. */
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

/* Parses one document; an empty one is a null scalar. False: the text is not YAML, has aliases or tags (which hearth
 * does not support), or is deeper, longer or larger than a configuration may be. Then `why` (empty before) names the
 * fault and `line` its line. node_release() in either case. */
bool node_parse(struct node *root, const char *text, size_t len, struct buf *why, int *line);
void node_release(struct node *node);

/* Whether it is null, ~ or empty, without quotes. */
bool node_is_null(const struct node *node);

#endif
