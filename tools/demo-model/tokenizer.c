#include "tokenizer.h"

#include "base/error.h"
#include "base/memory.h"

#include <llama.h>
#include <stdlib.h>

static void log_nothing(enum ggml_log_level level, const char *text, void *ud)
{
    (void)level;
    (void)text;
    (void)ud;
}

int tokenizer_open(struct tokenizer *tokenizer, const char *path, hearth_error *error)
{
    struct llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    llama_log_set(log_nothing, NULL);
    tokenizer->model = llama_model_load_from_file(path, params);
    if (tokenizer->model == NULL)
        return error_set(error, HEARTH_IO,
                         "llama.cpp does not load the vocabulary of %s: remove it, and it is made anew", path);
    tokenizer->n_tokens = llama_vocab_n_tokens(llama_model_get_vocab(tokenizer->model));
    return 0;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    llama_model_free(tokenizer->model);
    tokenizer->model = NULL;
}

int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t len, int32_t **tokens, int *capacity)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(tokenizer->model);
    int n = llama_tokenize(vocab, text, (int32_t)len, *tokens, *capacity, false, true);
    if (n >= 0) return n;
    *capacity = -n;
    *tokens = mem_grow(*tokens, (size_t)*capacity, sizeof **tokens);
    return llama_tokenize(vocab, text, (int32_t)len, *tokens, *capacity, false, true);
}

char *tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *tokens, int n)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(tokenizer->model);
    int32_t len = -llama_detokenize(vocab, tokens, n, NULL, 0, false, true);
    char *text = mem_alloc(len > 0 ? (size_t)len + 1 : 1);
    if (len > 0) llama_detokenize(vocab, tokens, n, text, len, false, true);
    return text;
}
