/* Builds the vocabulary: 256 bytes, merges of neighbours that are frequent in a sample of the corpus (byte-pair
 * encoding), and the special tokens of chats.
 *
 * Names and codes must be cut the same wherever they stand, which makes copying them easy to learn. So rare words make
 * no merges, no merge joins a space or a quotation mark with a capital letter, and none holds a byte of a character
 * beyond ASCII. One thread. */
#ifndef DEMO_VOCABULARY_H
#define DEMO_VOCABULARY_H

#include "hearth.h"

#include <stddef.h>
#include <stdint.h>

/* Tokens as in a GGUF file of llama.cpp's type "gpt2". */
struct vocabulary {
    char **tokens;  /* spelled with a letter for each byte */
    int32_t *types; /* enum llama_token_type */
    int n_tokens;
    char **merges; /* "LEFT RIGHT", the most important first */
    int n_merges;
};

/* Counts words. */
struct sample;

struct sample *sample_open(void);
void sample_close(struct sample *sample);

/* Counts the words of a text, cut as llama.cpp's pre-tokenizer "qwen2" cuts them. */
void sample_add(struct sample *sample, const char *text, size_t len);

/* Makes a vocabulary of `size` tokens, or fewer where the sample has no more pairs, from words that were seen at least
 * `least` times. */
void vocabulary_make(struct vocabulary *vocabulary, const struct sample *sample, int size, size_t least);
void vocabulary_release(struct vocabulary *vocabulary);

#endif
