/* Computes how many KV cells and sequences a context will have, and the bytes that llama.cpp will allocate for them,
 * before anything is allocated. Pure functions, any thread. */
#include "llm/llm_parts.h"

/* llama.cpp pads the cells of a stream to a multiple of this; asking for less would leave a sequence with a stream of
 * its own fewer cells than its window. */
#define CELL_PADDING 256

static uint64_t padded(uint64_t cells)
{
    return (cells + CELL_PADDING - 1) / CELL_PADDING * CELL_PADDING;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t llm_total_cells(const struct llm_context_params *params)
{
    if (params->unified && params->n_cells > 0) return (uint64_t)params->n_cells;
    uint64_t window = (uint64_t)params->window;
    return (params->unified ? window : padded(window)) * (uint64_t)params->n_seq;
}

uint32_t llm_total_sequences(const struct llm_context_params *params)
{
    uint32_t n = (uint32_t)params->n_seq;
    return params->scratch && params->unified && n < llama_max_parallel_sequences() ? n + 1 : n;
}

/* A unified KV cache holds the sliding windows of all sequences, a stream that of one; beside them there is room for
 * the batch tokens of one micro-batch. Full windows are as large as the other layers' cells. */
static uint64_t window_cells(const struct llm_context_params *params, const struct llm_model_info *info)
{
    uint64_t all = llm_total_cells(params), n = params->unified ? 1 : (uint64_t)params->n_seq;
    if (params->full_windows) return padded(all);
    uint64_t windows = (uint64_t)info->n_swa * (params->unified ? llm_total_sequences(params) : 1);
    uint64_t rows = smaller(smaller((uint64_t)params->n_ubatch, (uint64_t)params->n_batch), all);
    return n * padded(smaller(padded(all) / n, windows + rows));
}

struct llm_cells llm_cells_of(const struct llm_context_params *params, const struct llm_model_info *info)
{
    struct llm_cells cells = {.n_sequences = (int32_t)llm_total_sequences(params)};
    uint64_t n = padded(llm_total_cells(params)), n_in_window = window_cells(params, info);
    double head =
        info->n_embd_head_k * llm_type_bytes(params->type_k) + info->n_embd_head_v * llm_type_bytes(params->type_v);
    for (int32_t i = 0; i < info->n_layer; i++) {
        bool slides = info->is_swa != NULL && info->is_swa[i];
        if (slides)
            cells.windows += (double)n_in_window * info->n_head_kv[i] * head;
        else
            cells.whole += (double)n * info->n_head_kv[i] * head;
    }
    cells.states = (double)info->state_bytes * cells.n_sequences;
    cells.total = cells.whole + cells.windows + cells.states;
    return cells;
}
