/* A GGUF file before llama.cpp loads it. No state; any thread. */
#ifndef LLM_GGUF_FILE_H
#define LLM_GGUF_FILE_H

#include "hearth.h"

#include <gguf.h>

/* The metadata of a GGUF file whose tensors lie within the file; or NULL and one line that names the file. The caller
 * frees it with gguf_free(). */
struct gguf_context *llm_file_open(const char *path, hearth_error *error);
const char *llm_file_text(const struct gguf_context *file, const char *key); /* NULL: not there */
int64_t llm_file_number(const struct gguf_context *file, const char *key, int64_t otherwise);

/* The same for a hyperparameter, whose key the architecture prefixes ("block_count" is "llama.block_count"). Of an
 * array it returns the element at that index, and a single number whatever the index. */
int64_t llm_file_hparam(const struct gguf_context *file, const char *key, int64_t index, int64_t otherwise);
bool llm_file_has_hparam(const struct gguf_context *file, const char *key);

#endif
