/* Calls of llama.cpp that C cannot make: its exceptions are caught here, hidden rows and its book of cells are read. No
 * state; the thread of the context. */
#include "llm/shim.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <llama-ext.h>
#include <llama-kv-cache.h>
#include <regex>

extern "C" llama_context *llm_context_handle(const llm_context *context); /* as in context_struct.h, which is C alone */

/* ---- Exceptions ---- */

int32_t llm_guarded_run(llama_context *context, llama_batch batch, bool encodes, char *fault, size_t size)
{
    try {
        return (encodes ? llama_encode : llama_decode)(context, batch);
    } catch (const std::exception &exception) {
        std::snprintf(fault, size, "%s", exception.what());
    } catch (...) {
        std::snprintf(fault, size, "an exception of no known kind");
    }
    return LLM_THREW;
}

bool llm_is_pattern(const char *pattern, char *fault, size_t size)
{
    try {
        std::regex compiled(pattern);
        return true;
    } catch (const std::exception &exception) {
        std::snprintf(fault, size, "%s", exception.what());
    }
    return false;
}

/* ---- Memory ---- */

size_t llm_list_buffers(const llama_context *context, llm_buffers *buffers, size_t max)
{
    size_t n = 0;
    for (const auto &[type, bytes] : llama_get_memory_breakdown(context)) {
        if (n < max) buffers[n] = {type, bytes.model, bytes.context, bytes.compute};
        n++;
    }
    return n;
}

/* ---- Hidden rows ---- */

void llm_keep_hidden_rows(llama_context *context, bool all)
{
    llama_set_embeddings_nextn(context, true, !all);
}

const float *llm_hidden_row_of(llama_context *context, int32_t index)
{
    return llama_get_embeddings_nextn_ith(context, index);
}

const float *llm_encoded_rows(llama_context *context)
{
    return llama_get_embeddings_nextn(context);
}

void llm_keep_layer_inputs(llama_context *context, int32_t layer)
{
    llama_set_embeddings_layer_inp(context, static_cast<uint32_t>(layer), true);
}

const float *llm_layer_inputs(llama_context *context, int32_t layer)
{
    return llama_get_embeddings_layer_inp(context, static_cast<uint32_t>(layer));
}

int32_t llm_target_layers(const llama_model *model, const int32_t **layers)
{
    *layers = llama_model_target_layer_ids(model);
    return static_cast<int32_t>(llama_model_target_layer_ids_n(model));
}

/* ---- The book of cells ---- */

/* llama.cpp's C interface does not tell which cell of a unified KV cache holds what; this reaches the classes behind
 * it, of the pinned version, and only reads. Only a plain KV cache has such a book: attention in all layers, without
 * sliding windows. In a unified cache all sequences have the cells of one stream. */
static const llama_kv_cells *cells_of(llama_context *context)
{
    const auto *cache = dynamic_cast<const llama_kv_cache *>(llama_get_memory(context));
    return cache == nullptr || cache->get_n_stream() != 1 ? nullptr : &cache->get_cells(0);
}

bool llm_cells_map(llm_context *context, llm_cell_map *out)
{
    const llama_kv_cells *cells = cells_of(llm_context_handle(context));
    *out = {};
    if (cells == nullptr) return false;
    *out = {static_cast<int32_t>(cells->get_used()), static_cast<int32_t>(cells->used_max_p1())};
    return true;
}

int32_t llm_cells_above(llm_context *context, int32_t cell)
{
    const llama_kv_cells *cells = cells_of(llm_context_handle(context));
    int32_t n = 0;
    if (cells == nullptr) return 0;
    for (uint32_t i = static_cast<uint32_t>(cell); i < cells->used_max_p1(); i++) n += !cells->is_empty(i);
    return n;
}

llm_positions llm_book_positions_above(llama_context *context, int32_t seq, int32_t cell)
{
    const llama_kv_cells *cells = cells_of(context);
    llm_positions positions = {};
    if (cells == nullptr) return positions;
    for (uint32_t i = static_cast<uint32_t>(cell); i < cells->used_max_p1(); i++) {
        if (!cells->seq_has(i, seq)) continue;
        int32_t pos = cells->pos_get(i);
        positions.from = positions.to == 0 ? pos : std::min(positions.from, pos);
        positions.to = std::max(positions.to, pos + 1);
    }
    return positions;
}
