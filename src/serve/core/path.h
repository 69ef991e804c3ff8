/* Matches request paths against route patterns, in which a parameter in braces matches any text: "/v1/models/{id}".
 * A parameter at the end of the pattern may match slashes, others end at the next slash. Pure functions; any thread. */
#ifndef SERVE_CORE_PATH_H
#define SERVE_CORE_PATH_H

#include <stdbool.h>
#include <stddef.h>

bool path_matches(const char *pattern, const char *path);

/* Of a path that matches: the value of the first parameter and all that follows it. */
const char *path_rest(const char *pattern, const char *path);

/* Of a path that matches: the value of the n-th parameter (from 0); free() it. */
char *path_part(const char *pattern, const char *path, size_t n);

#endif
