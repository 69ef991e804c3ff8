/* Commands by their words, for tests of the clients of Redis. */
#ifndef TESTS_REDIS_COMMANDS_H
#define TESTS_REDIS_COMMANDS_H

#include "store/remote/redis.h"

#include <string.h>

/* NULL after the last word. */
static inline void redis_commands_add(struct redis_batch *batch, const char *const *words)
{
    struct redis_argument arguments[8];
    size_t n = 0;
    for (; words[n] != NULL; n++) arguments[n] = (struct redis_argument){words[n], strlen(words[n])};
    redis_add(batch, arguments, n);
}

#define ADD(batch, ...) redis_commands_add(batch, (const char *const[]){__VA_ARGS__, NULL})

#endif
