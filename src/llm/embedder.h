/* An embedder: a context that turns inputs into vectors, or with a head into scores, and keeps nothing.
 *
 * A call packs as many inputs as there is room for, each a sequence of its own; all of them are forgotten at the next.
 * Not thread-safe: an embedder belongs to one thread. Several may stand on one model's weights. */
#ifndef LLM_EMBEDDER_H
#define LLM_EMBEDDER_H

#include "llm/context.h"

struct llm_embedder;

struct llm_input {
    const int32_t *tokens;
    int32_t n; /* from 1 to the window */
};

/* Of the parameters of a context `window` is the longest input, n_batch what a call packs, but never less than one
 * input, and n_seq how many inputs a call packs; there is one pool of cells for them, as large as the call. `pooling`
 * is none of "unsaid". */
struct llm_embedder *llm_embedder_open(struct llm_model *model, const struct llm_context_params *params,
                                       enum llm_pooling pooling, hearth_error *error);
void llm_embedder_close(struct llm_embedder *embedder);

/* What the cells of one will take. */
struct llm_cells llm_embedder_cells(const struct llm_context_params *params, const struct llm_model_info *info,
                                    enum llm_pooling pooling);

int32_t llm_embedder_max_tokens(const struct llm_embedder *embedder); /* tokens of a call at most */
int32_t llm_embedder_max_inputs(const struct llm_embedder *embedder); /* inputs of a call at most */
int32_t llm_embedder_width(const struct llm_embedder *embedder);      /* numbers of a vector; 1 for scores */
struct llm_memory llm_embedder_memory(const struct llm_embedder *embedder);

/* Computes all inputs in one call. LLM_REFUSED: they are more than a call takes, or one is empty, too long, or has a
 * token that the vocabulary does not have. */
enum llm_decoded llm_embed(struct llm_embedder *embedder, const struct llm_input *inputs, int32_t n);

/* The vector of an input of the last call, valid until the next; without pooling that of its token `at`, otherwise `at`
 * is 0. */
const float *llm_embedding(struct llm_embedder *embedder, int32_t input, int32_t at);

/* Whether a model is for vectors (or scores) rather than for text, as far as its file says. */
bool llm_is_embedder(const struct llm_model *model);

/* How an input's vectors become one where nobody says: as the file says; else an encoder's by their mean, and of a
 * decoder the last, the only one that has seen all. */
enum llm_pooling llm_default_pooling(const struct llm_model *model);

#endif
