/* A library that writes to standard error, loaded into the server with LD_PRELOAD: bodies of requests that hold LOUD
 * are read with a warning, which a terminal would act on and which looks like a line of the log; those that hold LOUD
 * DEATH with a message and the end of the process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *json_loadb(const char *text, size_t len, size_t flags, json_error_t *error)
{
    json_t *(*real)(const char *, size_t, size_t, json_error_t *) = dlsym(RTLD_NEXT, "json_loadb");
    if (memmem(text, len, "LOUD", 4) != NULL)
        fprintf(stderr, "careful\033[31m\n2026-01-01T00:00:00.000Z info  serve: forged\rbehind\n");
    if (memmem(text, len, "LOUD DEATH", 10) == NULL) return real(text, len, flags, error);
    for (int i = 0; i < 2000; i++) fprintf(stderr, "it goes down, %d\n", i); /* more than a pipe holds */
    fprintf(stderr, "last words\033[0m");
    abort();
}
