/* Fuzzes files of API keys: the input is refused with a message of one line that contains nothing of the file, or
 * parsed, and then all its keys are found. */
#include "base/log.h"
#include "serve/core/keys.h"

#include <stdlib.h>
#include <string.h>

#define FILE_NAME "the-file"
#define LIMIT_MAX 1000000000

static void require(bool holds)
{
    if (!holds) abort();
}

/* Each first word of a line that is not a comment must be found as a key, with at least one grant. */
static void check_found(const struct keys *keys, const char *text, size_t len)
{
    char *copy = malloc(len + 1), *rest = copy, *line;
    memcpy(copy, text, len);
    copy[len] = '\0';
    while ((line = strsep(&rest, "\n")) != NULL) {
        line += strspn(line, " \t\r");
        line[strcspn(line, " \t\r")] = '\0';
        if (*line == '\0' || *line == '#') continue;
        const struct key *key = keys_find(keys, line);
        require(key != NULL && key->grants != 0 && (key->grants & ~KEYS_ALL) == 0);
        require(key->limits.requests >= 0 && key->limits.requests <= LIMIT_MAX);
        require(key->limits.tokens >= 0 && key->limits.tokens <= LIMIT_MAX);
        require(key->limits.slots >= 0 && key->limits.slots <= LIMIT_MAX);
        require(strlen(key->name) <= KEYS_NAME_MAX && strpbrk(key->name, " \n\"") == NULL);
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool quiet;
    hearth_error error = {0};
    const char *text = size == 0 ? "" : (const char *)data;
    if (!quiet) quiet = log_open("/dev/null", "error", "text", NULL) == 0;
    struct keys *keys = keys_parse(FILE_NAME, text, size, &error);
    if (keys == NULL)
        require(strncmp(error.message, FILE_NAME, sizeof FILE_NAME - 1) == 0 && strchr(error.message, '\n') == NULL);
    else
        check_found(keys, text, size);
    keys_close(keys);
    return 0;
}
