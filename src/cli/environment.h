/* The configuration's keys in the environment: HEARTH_ and the key's path in capitals, dots as underscores, for
 * instance HEARTH_SERVER_LISTEN; a model's key has its name alone, as with --set: HEARTH_N_SEQ_MAX. They come after
 * files and before the command line. Empty variables count as not set. Main thread only. */
#ifndef CLI_ENVIRONMENT_H
#define CLI_ENVIRONMENT_H

#include "hearth.h"

/* The variable of a key ("models.*.n_seq_max"); the caller frees it. NULL: it has none (the path of a model, for which
 * there is HEARTH_MODEL). */
char *environment_variable(const char *key);

/* The file that HEARTH_CONFIG names in place of the default ones, "" for none; NULL: it is not set. */
const char *environment_config(void);

/* The model that HEARTH_MODEL names, as --model does; NULL: none. */
const char *environment_model(void);

/* Sets the keys of the server and of the cache that have a variable. A variable that no key has gets a line on stderr,
 * which names the nearest. */
int environment_apply_server(hearth_config *config, const char *command, hearth_error *error);

/* Sets those of the only model; without a model they are passed over. */
int environment_apply_model(hearth_config *config, hearth_error *error);

#endif
