/* Paths of requests against the patterns of routes, in which words in braces stand for any text: "/v1/models/{id}". The
 * last one may hold slashes, each of the others ends with one. Pure functions; any thread. */
#ifndef SERVE_CORE_PATH_H
#define SERVE_CORE_PATH_H

#include <stdbool.h>
#include <stddef.h>

bool path_matches(const char *pattern, const char *path);

/* What a path that matches has in the place of the first braces, and all that follows. */
const char *path_rest(const char *pattern, const char *path);

/* What a path that matches has in the place of the n-th word in braces; free() it. */
char *path_part(const char *pattern, const char *path, size_t n);

#endif
