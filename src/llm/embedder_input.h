/* Inputs as an embedder takes them: shortened to what it can hold, and query and document as one. Nothing here has
 * state; any thread. */
#ifndef LLM_EMBEDDER_INPUT_H
#define LLM_EMBEDDER_INPUT_H

#include "llm/model.h"

/* Shortens an input to `limit` tokens. What goes is its end, or with from_left its beginning; the markers that the
 * vocabulary puts around a text stay. */
void llm_truncate_input(const struct llm_model *model, struct tokens *input, size_t limit, bool from_left);

struct llm_pair {
    const char *query, *document;
    size_t query_len, document_len;
    size_t max_document; /* tokens of the document, what is more is taken off its end; 0: all of them */
};

/* Appends the one input in which the document is judged by the query, as the model's file says: in a template of its
 * own, or side by side with separators between. Special tokens that a user wrote stay text. What exceeds `limit` is
 * taken off the document's end; false, and nothing is appended, where the rest alone exceeds it. */
bool llm_join_pair(const struct llm_model *model, const struct llm_pair *pair, size_t limit, struct tokens *out);

#endif
