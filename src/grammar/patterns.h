/* Regular expressions over a reply: the first match says where a lazy grammar begins to hold. PCRE2 does the matching,
 * since llama.cpp's formats use syntax that POSIX does not have. Belongs to one sampler. */
#ifndef GRAMMAR_PATTERNS_H
#define GRAMMAR_PATTERNS_H

#include "hearth.h"

struct patterns;

/* NULL: HEARTH_INVALID, param "grammar": one of them has a fault. */
struct patterns *patterns_open(const char *const *patterns, size_t n, hearth_error *error);
void patterns_close(struct patterns *patterns); /* NULL is fine */

/* Where in the text the first of them that occurs says that the grammar begins: at its first group that matched
 * something, or else where it matches itself. One from "^" to "$" must match all of the text. False: none occurs. */
bool patterns_find(struct patterns *patterns, const char *text, size_t len, size_t *begin);

#endif
