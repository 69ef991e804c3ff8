/* Finds texts of special tokens in a text. What a user writes must stay plain text even where it spells a special
 * token: code that tokenises a user's words checks here first, and takes the slower way only where it has to. */
#include "base/memory.h"
#include "llm/llm_parts.h"

#include <stdlib.h>
#include <string.h>

struct llm_special_tokens {
    const char **texts; /* borrowed from the vocabulary; sorted */
    size_t n;
    size_t first[257]; /* texts[first[c]] … texts[first[c + 1] - 1] begin with byte c */
};

/* Tokenising matches these in a text only with parse_special. */
static bool is_special(const struct llama_vocab *vocab, llama_token token)
{
    return (llama_vocab_get_attr(vocab, token) & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) != 0;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

struct llm_special_tokens *llm_special_tokens_open(const struct llama_model *handle)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(handle);
    struct llm_special_tokens *special_tokens = mem_alloc(sizeof *special_tokens);
    int32_t n_vocab = llama_vocab_n_tokens(vocab);
    for (llama_token token = 0; token < n_vocab; token++) {
        const char *text = llama_vocab_get_text(vocab, token);
        if (!is_special(vocab, token) || text == NULL || text[0] == '\0') continue;
        special_tokens->texts = mem_grow(special_tokens->texts, special_tokens->n + 1, sizeof *special_tokens->texts);
        special_tokens->texts[special_tokens->n++] = text;
    }
    if (special_tokens->n > 0) qsort(special_tokens->texts, special_tokens->n, sizeof *special_tokens->texts, by_bytes);
    for (size_t c = 0, i = 0; c < 256; c++) {
        special_tokens->first[c] = i;
        while (i < special_tokens->n && (unsigned char)special_tokens->texts[i][0] == c) i++;
        special_tokens->first[c + 1] = i;
    }
    return special_tokens;
}

void llm_special_tokens_close(struct llm_special_tokens *special_tokens)
{
    if (special_tokens == NULL) return;
    free(special_tokens->texts);
    free(special_tokens);
}

/* The first of texts[from] … texts[to - 1] whose byte at `depth` is at least `c`; they share the bytes before it. */
static size_t first_from(const struct llm_special_tokens *special_tokens, size_t from, size_t to, size_t depth, int c)
{
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if ((unsigned char)special_tokens->texts[middle][depth] < c)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* Narrows the list down byte by byte, since most special tokens of a vocabulary share a prefix and a text may repeat
 * that prefix. Of texts with the same prefix the one that ends there comes first. */
static bool begins_special(const struct llm_special_tokens *special_tokens, const char *text, size_t len)
{
    size_t from = special_tokens->first[(unsigned char)text[0]], to = special_tokens->first[(unsigned char)text[0] + 1];
    for (size_t depth = 1; from < to; depth++) {
        if (special_tokens->texts[from][depth] == '\0') return true;
        if (depth == len) return false;
        int c = (unsigned char)text[depth];
        from = first_from(special_tokens, from, to, depth, c);
        to = first_from(special_tokens, from, to, depth, c + 1);
    }
    return false;
}

bool llm_special_tokens_in(const struct llm_special_tokens *special_tokens, const char *text, size_t len)
{
    for (size_t at = 0; at < len; at++)
        if (begins_special(special_tokens, text + at, len - at)) return true;
    return false;
}
