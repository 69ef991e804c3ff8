/* Parts of tokenising that other files of src/llm use, and tests look into. Any thread. */
#ifndef LLM_TOKENIZER_H
#define LLM_TOKENIZER_H

#include "llm/model.h"

/* Appends the tokens of a text without splitting it, on a thread with enough stack if need be. */
void llm_tokenize_whole(const struct llm_model *model, const struct llm_tokenizer_input *in, struct tokens *out);

/* Appends the tokens of a chunk: from the cache if they are there, else as llm_tokenize_whole() does, and adds them
 * (tokenizer_cache.c). */
void llm_tokenize_chunk(const struct llm_model *model, const struct llm_tokenizer_input *in,
                        const struct llm_tokenising *how, struct tokens *out);

/* Bytes of stack that the tokenizer takes for each character of a run; 0: it does not recurse. */
int llm_measure_recursion(const struct llm_model *model, size_t *bytes, hearth_error *error);

struct llm_splitter;

struct llm_splitter *llm_splitter_open(const struct llm_model *model); /* of a model without one yet */
void llm_splitter_close(struct llm_splitter *splitter);

/* Where one chunk ends and the next begins, in bytes; both are `len` where there is no split point after `from`. */
struct llm_split {
    size_t end, next;
};

struct llm_split llm_next_split(const struct llm_splitter *splitter, const char *text, size_t len, size_t from);

#endif
