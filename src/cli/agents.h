/* Coding agents that `hearth launch` knows: what each needs to be told of a server. Pure functions; the main thread. */
#ifndef CLI_AGENTS_H
#define CLI_AGENTS_H

#include "base/buf.h"

#include <stdint.h>

/* The server as an agent is to see it. */
struct agents_server {
    const char *url;   /* without a slash at its end */
    const char *key;   /* some word where the server wants none: agents do not start without */
    const char *model; /* the name to ask for */
    int32_t window;    /* tokens */
    const char *home;  /* a folder for files that an agent reads */
};

/* What is set, and what is run. Strings are owned; agents_release(). */
struct agents_settings {
    struct agents_variable {
        char *name, *value;
    } * variables;
    size_t n_variables;
    char **words; /* the program and its first arguments */
    size_t n_words;
    char *file, *content; /* a file that must be there, and what it holds; NULL: none */
};

/* How many tokens the agent's first prompt takes; 0: not known. -1: there is no such agent. */
int32_t agents_first_prompt(const char *agent);

/* "claude, codex, …" */
void agents_put_names(struct buf *out);

/* The agent must be known. */
void agents_settle(const char *agent, const struct agents_server *server, struct agents_settings *settings);
void agents_release(struct agents_settings *settings);

#endif
