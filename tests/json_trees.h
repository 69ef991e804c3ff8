/* JSON of tests: trees of texts, and texts of trees. What these functions return lives as long as the process. */
#ifndef TESTS_JSON_TREES_H
#define TESTS_JSON_TREES_H

#ifdef __cplusplus
extern "C" {
#endif
#include "base/json_text.h"
#ifdef __cplusplus
}
#endif

#include <stdlib.h>
#include <string.h>

struct kept_json {
    struct kept_json *next;
    json_t *tree;
    char *text;
};

static struct kept_json *all_kept_json; /* for checkers of leaks */

static inline struct kept_json *keep_json(json_t *tree, char *text)
{
    struct kept_json *kept = (struct kept_json *)malloc(sizeof *kept);
    if (kept == NULL) abort();
    kept->next = all_kept_json;
    kept->tree = tree;
    kept->text = text;
    return all_kept_json = kept;
}

/* NULL for NULL, and for what is no JSON. */
static inline const json_t *tree_of(const char *text)
{
    return text == NULL ? NULL : keep_json(json_text_read(text, strlen(text), NULL), NULL)->tree;
}

static inline const hearth_json *json_of(const char *text)
{
    return json_text_public(tree_of(text));
}

/* NULL for NULL. */
static inline const char *text_of_json(const hearth_json *value)
{
    return value == NULL ? NULL : keep_json(NULL, json_text_of(json_text_tree(value)))->text;
}

#endif
