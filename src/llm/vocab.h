/* The tokens of a model's vocabulary and their texts. Immutable; any thread. */
#ifndef LLM_VOCAB_H
#define LLM_VOCAB_H

#include "llm/model.h"

struct llama_vocab;

/* ---- Special tokens, as texts ---- */

struct llm_special_tokens;

struct llm_special_tokens *llm_special_tokens_open(const struct llama_vocab *vocab); /* borrows its texts */
void llm_special_tokens_close(struct llm_special_tokens *specials);

/* ---- The bytes of all tokens ---- */

/* Special tokens included, and the tokens sorted by their bytes, so that a grammar matches a prefix once for all tokens
 * that share it. */
struct llm_token_texts;

/* This model's, which owns them; made at the first call. */
const struct llm_token_texts *llm_model_token_texts(const struct llm_model *model);
void llm_token_texts_close(struct llm_token_texts *texts);

struct llm_token_text {
    const char *v;
    size_t len;
};

struct llm_token_text llm_token_text_of(const struct llm_token_texts *texts, int32_t token);

/* Whether the token is a special one that leaves no text in a reply, unless the reply's format wants to see it. */
bool llm_token_is_hidden(const struct llm_token_texts *texts, int32_t token);

/* The tokens sorted by their bytes, and how many leading bytes each shares with the one before it. */
struct llm_token_order {
    const int32_t *tokens;
    const uint32_t *shared;
    size_t n;
    size_t longest; /* bytes of the longest token */
};

struct llm_token_order llm_token_texts_sorted(const struct llm_token_texts *texts);

#endif
