/* An embedder: a llama.cpp context that computes embeddings or, with a classification head, reranking scores.
 *
 * One call computes a batch of inputs, each as a sequence of its own; the next call discards their cells.
 * Not thread-safe: an embedder belongs to one thread. Several embedders can share one model's weights. */
#ifndef LLM_EMBEDDER_H
#define LLM_EMBEDDER_H

#include "llm/context.h"

struct llm_embedder;

struct llm_input {
    const int32_t *tokens;
    int32_t n; /* tokens, from 1 to the window */
};

/* Of the context's parameters, `window` is the longest input in tokens, n_batch the tokens of a call (raised to one
 * whole input) and n_seq the inputs of a call. The KV cache is unified and as large as one call. `pooling` is not
 * HEARTH_POOLING_UNSPECIFIED. */
struct llm_embedder *llm_embedder_open(struct llm_model *model, const struct llm_context_params *params,
                                       hearth_pooling pooling, hearth_error *error);
void llm_embedder_close(struct llm_embedder *embedder);

/* Estimate of an embedder's cells before it is opened. */
struct llm_cells llm_embedder_cells(const struct llm_context_params *params, const struct llm_model_info *info,
                                    hearth_pooling pooling);

void llm_embedder_begin_computing(const struct llm_embedder *embedder); /* as llm_begin_computing() */
int32_t llm_embedder_max_tokens(const struct llm_embedder *embedder);   /* tokens of a call at most */
int32_t llm_embedder_max_inputs(const struct llm_embedder *embedder);   /* inputs of a call at most */
int32_t llm_embedder_width(const struct llm_embedder *embedder);        /* dimensions of an embedding; 1 for scores */
struct llm_memory llm_embedder_memory(const struct llm_embedder *embedder);

/* Computes all inputs in one call. LLM_REFUSED: they exceed the limits of a call, or one is empty, too long, or has a
 * token that is not in the vocabulary. */
enum llm_decoded llm_embed(struct llm_embedder *embedder, const struct llm_input *inputs, int32_t n);

/* The embedding of an input of the last call, valid until the next; without pooling that of its token `at`, otherwise
 * `at` is 0. */
const float *llm_embedding(struct llm_embedder *embedder, int32_t input, int32_t at);

/* Whether the model's file says that it is for embeddings or reranking rather than for generating text. */
bool llm_is_embedder(const struct llm_model *model);

/* The pooling where the configuration names none: the file's; else mean for an encoder, and last for a decoder, whose
 * last token alone has attended to all others. */
hearth_pooling llm_default_pooling(const struct llm_model *model);

/* ---- Inputs: no state; any thread ---- */

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
