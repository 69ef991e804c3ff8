/* Text to tokens, by llama.cpp, from a GGUF file with a vocabulary: the trainer sees exactly the tokens that the model
 * will be given. Encoding may be done by several threads at once. */
#ifndef DEMO_TOKENIZER_H
#define DEMO_TOKENIZER_H

#include "hearth.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct llama_model;

struct tokenizer {
    struct llama_model *model; /* its vocabulary alone */
    int32_t n_tokens;          /* in the vocabulary */
};

int tokenizer_open(struct tokenizer *tokenizer, const char *path, hearth_error *error);
void tokenizer_close(struct tokenizer *tokenizer);

/* Tokenises text in which the special tokens of chats are spelled out. `*tokens` has room for `*capacity` tokens, and
 * grows; start with NULL and 0. Returns how many tokens there are. */
int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t len, int32_t **tokens, int *capacity);

/* The text of the tokens; free() it. */
char *tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *tokens, int n);

#endif
