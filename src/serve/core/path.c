/* Route patterns: see path.h. */
#include "serve/core/path.h"

#include "base/memory.h"

#include <string.h>

/* Bytes at the beginning of `path` that match the parameter in braces at the beginning of `pattern`. */
static size_t part_len(const char *pattern, const char *path)
{
    bool is_last = strchr(pattern, '}')[1] == '\0';
    return is_last ? strlen(path) : strcspn(path, "/");
}

bool path_matches(const char *pattern, const char *path)
{
    for (size_t fixed; pattern[fixed = strcspn(pattern, "{")] != '\0';) {
        if (strncmp(pattern, path, fixed) != 0) return false;
        pattern += fixed;
        path += fixed;
        size_t len = part_len(pattern, path);
        if (len == 0) return false;
        pattern = strchr(pattern, '}') + 1;
        path += len;
    }
    return strcmp(pattern, path) == 0;
}

const char *path_rest(const char *pattern, const char *path)
{
    return path + strcspn(pattern, "{");
}

char *path_part(const char *pattern, const char *path, size_t n)
{
    for (;; n--) {
        size_t fixed = strcspn(pattern, "{");
        pattern += fixed;
        path += fixed;
        size_t len = part_len(pattern, path);
        if (n == 0) return mem_strndup(path, len);
        pattern = strchr(pattern, '}') + 1;
        path += len;
    }
}
