/* Reads llama.cpp's book of cells: see cell_book.h. Only a plain KV cache has one: attention in all layers, without
 * sliding windows. No state. */
#include "llm/cell_book.h"

#include <algorithm>
#include <llama-kv-cache.h>

/* In a unified cache all sequences have the cells of one stream. */
static const llama_kv_cells *cells_of(llama_context *context)
{
    const auto *cache = dynamic_cast<const llama_kv_cache *>(llama_get_memory(context));
    return cache == nullptr || cache->get_n_stream() != 1 ? nullptr : &cache->get_cells(0);
}

bool llm_book_map(llama_context *context, llm_cell_map *out)
{
    const llama_kv_cells *cells = cells_of(context);
    *out = {};
    if (cells == nullptr) return false;
    *out = {static_cast<int32_t>(cells->get_used()), static_cast<int32_t>(cells->used_max_p1())};
    return true;
}

int32_t llm_book_above(llama_context *context, int32_t cell)
{
    const llama_kv_cells *cells = cells_of(context);
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
