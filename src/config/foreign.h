/* What llama-server's and vLLM's options and Ollama's settings are called here, for those who come from there. Constant
 * data; any thread. */
#ifndef CONFIG_FOREIGN_H
#define CONFIG_FOREIGN_H

#include <stddef.h>

/* The path of the key ("models.*.n_seq_max") that an option of theirs stands for; NULL: it is none of theirs. In any
 * case, with underscores, without leading dashes. */
const char *foreign_key(const char *name, size_t len);

#endif
