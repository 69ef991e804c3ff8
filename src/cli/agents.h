/* The coding agents that `hearth launch` runs: the environment variables, arguments and files that point each at a
 * server. Pure functions; main thread. */
#ifndef CLI_AGENTS_H
#define CLI_AGENTS_H

#include "base/buf.h"

#include <stdint.h>

/* The server that an agent's settings point it to. */
struct agents_server {
    const char *url;   /* without a trailing slash */
    const char *key;   /* API key; any word where the server wants none, since agents do not start without one */
    const char *model; /* the name that requests give */
    int32_t window;    /* context window, tokens */
    const char *home;  /* folder for configuration files that an agent reads */
};

/* An agent's environment and command line. Strings are owned; agents_release(). */
struct agents_settings {
    struct agents_variable {
        char *name, *value;
    } * variables;
    size_t n_variables;
    char **words; /* the program and its first arguments */
    size_t n_words;
    char *file, *content; /* path and content of a file that must be written first; NULL: none */
};

/* Tokens of the agent's first prompt; 0: not measured. -1: there is no such agent. */
int32_t agents_first_prompt(const char *agent);

/* "claude, codex, …" */
void agents_put_names(struct buf *out);

/* Fills in the settings; `agent` must be one of the names. */
void agents_configure(const char *agent, const struct agents_server *server, struct agents_settings *settings);
void agents_release(struct agents_settings *settings);

#endif
