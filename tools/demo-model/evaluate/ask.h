/* A model file asked through libhearth, as any program could. One thread. */
#ifndef DEMO_ASK_H
#define DEMO_ASK_H

#include "corpus/conversation.h"
#include "hearth.h"

/* Loads the file; nothing of it is stored. NULL on failure. */
hearth *ask_open(const char *path, hearth_error *error);

struct asking {
    double temperature;
    int64_t seed;
};

/* The reply to the first n messages, as the model writes it: calls of tools are text. The caller frees it; NULL on
 * failure. */
char *ask_reply(hearth *instance, const struct conversation *conversation, size_t n, const struct asking *asking,
                hearth_error *error);

/* The prompt that is made of them: its text, and its tokens, `*tokens`, of which there are `*n_tokens`. The caller
 * frees both; NULL on failure. */
char *ask_prompt(hearth *instance, const struct conversation *conversation, size_t n, int32_t **tokens,
                 size_t *n_tokens, hearth_error *error);

#endif
