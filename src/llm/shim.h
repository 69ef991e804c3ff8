/* Calls the parts of llama.cpp that C cannot: functions that throw, and classes behind its C interface. The thread of
 * the context. */
#ifndef LLM_SHIM_H
#define LLM_SHIM_H

#include "llm/cell_map.h"

#include <llama.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A result beside llama_decode()'s own: it threw, and any sequence may hold other cells now. */
#define LLM_THREW (-100)

/* As llama_decode() or llama_encode(); `fault`, of `size` bytes, gets the exception's message. An exception that
 * reached a C function would end the process. llama.cpp throws where it reserves its compute buffers anew, as after a
 * change of adapters, and lacks memory. */
int32_t llm_guarded_run(struct llama_context *context, struct llama_batch batch, bool encodes, char *fault,
                        size_t size);

/* Hidden rows are kept from the next decode on: of all tokens, or of those whose logits are computed. And that of one
 * of the last decode, or all of the last encode. */
void llm_keep_hidden_rows(struct llama_context *context, bool all);
const float *llm_hidden_row_of(struct llama_context *context, int32_t index);
const float *llm_encoded_rows(struct llama_context *context);

/* The same of the inputs of a layer: all of them are kept, and given, in the order of the batch. */
void llm_keep_layer_inputs(struct llama_context *context, int32_t layer);
const float *llm_layer_inputs(struct llama_context *context, int32_t layer);

/* The layers of another model that a head reads. */
int32_t llm_target_layers(const struct llama_model *model, const int32_t **layers);

/* Bytes that a context and its model take, or would take, of one kind of buffers. */
struct llm_buffers {
    ggml_backend_buffer_type_t type;
    uint64_t weights, cells, compute;
};

/* Fills in up to `max` of them, and returns how many there are. */
size_t llm_list_buffers(const struct llama_context *context, struct llm_buffers *buffers, size_t max);

/* Whether it is a regular expression as llama.cpp reads them; else `fault`, of `size` bytes, says why. */
bool llm_is_pattern(const char *pattern, char *fault, size_t size);

/* As llm_seq_above(), in llama.cpp's positions. */
struct llm_positions llm_book_positions_above(struct llama_context *context, int32_t seq, int32_t cell);

#ifdef __cplusplus
}
#endif

#endif
