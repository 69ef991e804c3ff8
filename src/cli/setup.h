/* Builds the configuration of a command: from files, the environment, and the command line, each over what came before.
 * The files are the one that --config or HEARTH_CONFIG names, else the system's and the user's, where they are there.
 * The environment names keys: HEARTH_ and the key's path in capitals, dots as underscores, for instance
 * HEARTH_SERVER_LISTEN; a model's key has its name alone, as with --set: HEARTH_N_SEQ_MAX. Empty variables count as not
 * set. The command line names models by path or name, and single keys. Without any model it is the demo model. Main
 * thread only. */
#ifndef CLI_SETUP_H
#define CLI_SETUP_H

#include "base/buf.h"
#include "cli/args.h"
#include "hearth.h"

#define SETUP_SYSTEM_FILE "/etc/hearth/hearth.yaml"

struct setup {
    const char *config;      /* file in place of the default ones; NULL: those */
    struct args_list models; /* paths, or names of models of the file or of pulled ones: only these are loaded */
    const char *mmproj;      /* projection file of the only model; NULL: none */
    const char *host, *port; /* replace those of server.listen's first address */
    const char *log_level, *log_format;
    struct args_list sets; /* KEY=VALUE, applied last */
    bool has_operand;      /* the command's operand is one more of `models` */
    bool keys_only;        /* the command needs no model: none is declared or checked */
    bool adds_pulled;      /* without `models`, those of the models folder are declared as well */
    struct buf *pulled;    /* gets the name of each of these, between line feeds; NULL: they are not wanted */
};

/* The rows of the options that several commands share. */
static inline struct args_option setup_option_config(struct setup *s)
{
    return (struct args_option){"config", "FILE", "configuration (YAML), in place of the default files",
                                .text = &s->config};
}

static inline struct args_option setup_option_set(struct setup *s)
{
    static const char meaning[] = "set a key by its path, or one of the only model's by its name";
    return (struct args_option){"set", "KEY=VALUE", meaning, .list = &s->sets};
}

static inline struct args_option setup_option_log_level(struct setup *s)
{
    return (struct args_option){.name = "log-level",
                                .value = "L",
                                .meaning = "error, warn, info or debug",
                                .text = &s->log_level,
                                .choices = "error|warn|info|debug"};
}

/* A tarball's program is started by a script, and is the loader of a C library as far as the system knows
 * (scripts/tarball.sh): HEARTH_PROGRAM names the script. main() takes that out of the environment. setup_starter() is
 * what starts this program once more: the script, or the program itself. */
void setup_take_starter(void);
const char *setup_starter(void);

/* Builds and checks the configuration. On failure prints every error (those of a file with their line) to stderr and
 * returns NULL; the command ends with *status: EXIT_FAILED for a missing file, EXIT_USAGE otherwise. */
hearth_config *setup_open(const char *command, const struct setup *setup, int *status);

/* Reads the words of a command, and runs it with the configuration that they ask for: its exit status. Releases
 * `setup`. */
int setup_run(const struct args_spec *spec, struct setup *setup, int argc, char **argv,
              int (*run)(const char *command, const hearth_config *config, void *ud), void *ud);

/* The exit status of a command whose instance could not be opened or loaded: EXIT_USAGE where the error names a
 * configuration key (a model's may lack its "models.NAME."), else EXIT_FAILED. */
int setup_failure_status(const hearth_config *config, const hearth_error *error);

void setup_release(struct setup *setup);

/* A hearth_config_report that prints "file:line: key: message" to stderr and counts in the size_t at `ud`. */
void setup_report(void *ud, const char *file, int line, const char *key, const char *message);

/* ---- The environment ---- */

/* The variable of a key ("models.*.n_seq_max"); the caller frees it. NULL: it has none (the path of a model, for which
 * there is HEARTH_MODEL). */
char *environment_variable(const char *key);

/* Sets the keys of the server and of the cache that have a variable. A variable that no key has gets a line on stderr,
 * which names the nearest. */
int environment_apply_server(hearth_config *config, const char *command, hearth_error *error);

/* Sets those of the only model; without a model they are passed over. */
int environment_apply_model(hearth_config *config, hearth_error *error);

#endif
