/* Finds out how much memory a model needs: for a token and for a sequence, by opening the smallest possible context,
 * and for compute buffers, by having llama.cpp plan them. Model files name these sizes differently in each
 * architecture, or leave them to llama.cpp's code, and no function of its C interface returns them. No state; any
 * thread. */
#include "base/memory.h"
#include "llm/llm_parts.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of the checkpoint of an empty sequence, in this order (llm/state_layout.h):
 *
 *     header 8 | with a sliding window: an empty window 8 | with recurrent layers: 12, then for each state an entry of
 * 12
 *
 * The last 4 bytes of an entry are the size of its state. */
enum { HEADER = 8, EMPTY_WINDOW = 8, BEFORE_ENTRIES = 12, ENTRY = 12, SIZE_IN_ENTRY = 4 };

static uint64_t sum_states(struct llama_context *context, bool has_window)
{
    const llama_state_seq_flags flags = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
    size_t size = llama_state_seq_get_size_ext(context, 0, flags), at = HEADER + BEFORE_ENTRIES;
    uint8_t *bytes = mem_alloc(size + 1);
    uint64_t sum = 0, of_one;
    if (has_window) at += EMPTY_WINDOW;
    bool known = llama_state_seq_get_data_ext(context, bytes, size, 0, flags) == size && at < size;
    for (known = known && (size - at) % ENTRY == 0; known && at < size; at += ENTRY) {
        memcpy(&of_one, bytes + at + SIZE_IN_ENTRY, sizeof of_one);
        sum += of_one;
    }
    free(bytes);
    return sum;
}

bool llm_probe(struct llama_model *handle, struct llm_layer_memory *layers)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = params.n_seq_max = 1;
    params.kv_unified = true;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.no_perf = true;
    struct llm_log_capture captured;
    llm_log_capture_begin(&captured);
    captured.layers = layers;
    struct llama_context *context = llama_init_from_model(handle, params);
    llm_log_capture_end();
    if (context == NULL) return false;
    bool recurrent = llama_model_is_recurrent(handle) || llama_model_is_hybrid(handle);
    if (recurrent) layers->state_bytes = sum_states(context, llama_model_n_swa(handle) > 0);
    llama_free(context);
    return true;
}

/* Of a model without weights llama.cpp computes the sizes of buffers, and logs them, without allocating them. */
bool llm_plan_compute(const struct llm_model *model, const struct llm_context_params *params, uint64_t *bytes)
{
    struct llama_context_params translated;
    hearth_error error;
    if (llm_translate_params(&translated, params, llm_model_info(model), &error) < 0) return false;
    struct llm_log_capture captured;
    llm_log_capture_begin(&captured);
    struct llama_context *context = llama_init_from_model(llm_model_handle(model), translated);
    llm_log_capture_end();
    if (context == NULL) return false;
    llama_free(context);
    *bytes = captured.compute;
    return true;
}
