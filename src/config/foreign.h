/* The keys that correspond to options of llama-server and vLLM and settings of Ollama, for the error message of an
 * unknown key. Constant data; any thread. */
#ifndef CONFIG_FOREIGN_H
#define CONFIG_FOREIGN_H

#include <stddef.h>

/* The path of the key ("models.*.n_seq_max") that corresponds to an option of theirs; NULL: there is none. `name` is in
 * any case, with underscores, without leading dashes. */
const char *foreign_key(const char *name, size_t len);

#endif
