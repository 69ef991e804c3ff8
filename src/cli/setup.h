/* The configuration that a command line asks for: a file, models by path or name, single keys, or nothing at all,
 * which means the demo model. Main thread only. */
#ifndef CLI_SETUP_H
#define CLI_SETUP_H

#include "cli/args.h"
#include "hearth.h"

struct setup {
    const char *config;      /* file; NULL: none */
    struct args_list models; /* paths, or names of the file's models: only these are loaded */
    const char *host, *port; /* replace those of server.listen */
    const char *log_level, *log_format;
    struct args_list sets; /* KEY=VALUE, applied last */
    bool keys_only;        /* no model is needed, and what one would need is not checked */
};

/* The rows of the options that several commands share. */
static inline struct args_option setup_option_config(struct setup *s)
{
    return (struct args_option){"config", "FILE", "configuration (YAML)", .text = &s->config};
}

static inline struct args_option setup_option_set(struct setup *s)
{
    static const char meaning[] = "set a key by its path, or one of the only model's by its name";
    return (struct args_option){"set", "KEY=VALUE", meaning, .list = &s->sets};
}

static inline struct args_option setup_option_log_level(struct setup *s)
{
    return (struct args_option){"log-level", "L", "error, warn, info or debug", .text = &s->log_level};
}

/* Makes and checks the configuration. On failure prints what is wrong, every fault of a file with its line, to stderr
 * and returns NULL; the command ends with *status, which tells files that are not there from bad usage. */
hearth_config *setup_open(const char *command, const struct setup *setup, int *status);

/* With what a command ends whose instance could not be had or loaded: with that of bad usage, where the error names a
 * key of the configuration, or one of a model's by its name alone. */
int setup_failure_status(const hearth_config *config, const hearth_error *error);

void setup_release(struct setup *setup);

/* A hearth_config_report that prints "file:line: key: message" to stderr and counts in the size_t at `ud`. */
void setup_report(void *ud, const char *file, int line, const char *key, const char *message);

#endif
