/* The bytes of all tokens of a vocabulary, special ones included, and the tokens sorted by them, so that a grammar
 * matches a prefix once for all tokens that share it. Immutable; any thread. */
#ifndef LLM_TOKEN_TEXTS_H
#define LLM_TOKEN_TEXTS_H

#include "llm/model.h"

struct llm_token_texts;

/* This model's, which owns them; made at the first call. */
const struct llm_token_texts *llm_model_token_texts(const struct llm_model *model);

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

struct llm_token_texts *llm_token_texts_open(const struct llm_model *model);
void llm_token_texts_close(struct llm_token_texts *texts);

#endif
