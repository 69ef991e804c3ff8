/* Prepares an embedder's inputs: truncates tokens to its window, and joins query and document for reranking. No state;
 * any thread. */
#ifndef LLM_EMBEDDER_INPUT_H
#define LLM_EMBEDDER_INPUT_H

#include "llm/model.h"

/* Truncates an input to `limit` tokens at its end or, with from_left, at its beginning; the BOS and EOS tokens around
 * it stay. */
void llm_truncate_input(const struct llm_model *model, struct tokens *input, size_t limit, bool from_left);

struct llm_pair {
    const char *query, *document;
    size_t query_len, document_len;
    size_t max_document; /* tokens of the document at most, truncated at its end; 0: no limit */
};

/* Appends the input of a reranking pair in the form that the model's file defines: its rerank template, or query and
 * document with separators between. Special tokens that a user spelled out are tokenised as plain text. The document's
 * end is truncated so that all fits `limit` tokens; false, and nothing is appended, where the rest alone exceeds it. */
bool llm_join_pair(const struct llm_model *model, const struct llm_pair *pair, size_t limit, struct tokens *out);

#endif
