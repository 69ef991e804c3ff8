/* The bytes of all tokens in one block with the offset of each token, and the tokens sorted by their bytes. */
#include "llm/token_texts.h"

#include "base/memory.h"
#include "llm/llm_parts.h"

#include <stdlib.h>
#include <string.h>

struct llm_token_texts {
    struct buf bytes;
    size_t *starts; /* n + 1 offsets into bytes */
    int32_t *tokens;
    uint32_t *shared;
    bool *hidden;
    size_t n, longest;
};

struct llm_token_text llm_token_text_of(const struct llm_token_texts *texts, int32_t token)
{
    if (token < 0 || (size_t)token >= texts->n) return (struct llm_token_text){.v = ""};
    size_t start = texts->starts[token];
    return (struct llm_token_text){.v = texts->bytes.v + start, .len = texts->starts[token + 1] - start};
}

bool llm_token_is_hidden(const struct llm_token_texts *texts, int32_t token)
{
    return token >= 0 && (size_t)token < texts->n && texts->hidden[token];
}

struct llm_token_order llm_token_texts_sorted(const struct llm_token_texts *texts)
{
    return (struct llm_token_order){
        .tokens = texts->tokens, .shared = texts->shared, .n = texts->n, .longest = texts->longest};
}

static size_t common(struct llm_token_text a, struct llm_token_text b)
{
    size_t n = 0;
    while (n < a.len && n < b.len && a.v[n] == b.v[n]) n++;
    return n;
}

static int by_bytes(const void *a, const void *b, void *texts)
{
    struct llm_token_text x = llm_token_text_of(texts, *(const int32_t *)a),
                          y = llm_token_text_of(texts, *(const int32_t *)b);
    int order = memcmp(x.v, y.v, x.len < y.len ? x.len : y.len);
    if (order != 0) return order;
    return (x.len > y.len) - (x.len < y.len);
}

static bool is_hidden(const struct llm_model *model, int32_t token)
{
    struct buf shown = {0};
    llm_token_bytes(model, token, false, &shown);
    bool hidden = shown.len == 0;
    buf_release(&shown);
    return hidden;
}

struct llm_token_texts *llm_token_texts_open(const struct llm_model *model)
{
    struct llm_token_texts *texts = mem_alloc(sizeof *texts);
    texts->n = (size_t)llm_model_info(model)->n_vocab;
    texts->starts = mem_alloc((texts->n + 1) * sizeof *texts->starts);
    texts->tokens = mem_alloc((texts->n + 1) * sizeof *texts->tokens);
    texts->shared = mem_alloc((texts->n + 1) * sizeof *texts->shared);
    texts->hidden = mem_alloc((texts->n + 1) * sizeof *texts->hidden);
    buf_append(&texts->bytes, "", 0);
    for (size_t i = 0; i < texts->n; i++) {
        llm_token_bytes(model, (int32_t)i, true, &texts->bytes);
        texts->starts[i + 1] = texts->bytes.len;
        texts->tokens[i] = (int32_t)i;
        texts->hidden[i] = is_hidden(model, (int32_t)i);
        size_t len = texts->starts[i + 1] - texts->starts[i];
        if (len > texts->longest) texts->longest = len;
    }
    if (texts->n > 0) qsort_r(texts->tokens, texts->n, sizeof *texts->tokens, by_bytes, texts);
    for (size_t i = 1; i < texts->n; i++)
        texts->shared[i] = (uint32_t)common(llm_token_text_of(texts, texts->tokens[i - 1]),
                                            llm_token_text_of(texts, texts->tokens[i]));
    return texts;
}

void llm_token_texts_close(struct llm_token_texts *texts)
{
    if (texts == NULL) return;
    buf_release(&texts->bytes);
    free(texts->starts);
    free(texts->tokens);
    free(texts->shared);
    free(texts->hidden);
    free(texts);
}
