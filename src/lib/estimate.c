/* How much memory a model will take, before anything is allocated.
 *
 * The arithmetic is that of the manual everybody uses:
 *     row       = head_count_kv x (key_length + value_length) x bytes per element
 *     sequence  = context_window x layers x row
 *     cells     = n_seq_max x sequence
 *     total     = weights + cells
 * with the layers that keep no cells (recurrent ones) left out, heads counted layer by layer, and quantised elements
 * with their block scales (q8_0: 34 bytes for 32). Sliding windows keep less, so this is an upper bound for them. */
#include "lib/instance.h"

#include "base/error.h"

struct estimate estimate_memory(const struct config_model *config, const struct llm_model_info *info, int32_t window)
{
    struct estimate e = {.element_k = llm_type_bytes(config->cache_type_k),
                         .element_v = llm_type_bytes(config->cache_type_v),
                         .weights = (double)info->size_bytes};
    double head = info->n_embd_head_k * e.element_k + info->n_embd_head_v * e.element_v;
    for (int32_t layer = 0; layer < info->n_layer; layer++) {
        if (info->n_head_kv[layer] == 0) continue;
        if (e.attention_layers++ == 0) e.row = info->n_head_kv[layer] * head;
        e.sequence += (double)window * info->n_head_kv[layer] * head;
    }
    e.cells = e.sequence * (double)config->n_seq_max;
    e.total = e.weights + e.cells;
    return e;
}

int estimate_check(const struct config_model *config, const struct llm_model_info *info, int32_t window,
                   hearth_error *error)
{
    const double gib = 1024.0 * 1024 * 1024;
    bool on_gpu = llm_has_gpu() && config->offload_kqv && config->n_gpu_layers >= 0;
    double free_bytes = (double)llm_free_memory(on_gpu);
    struct estimate e = estimate_memory(config, info, window);
    if (free_bytes == 0 || e.cells <= free_bytes) return HEARTH_OK;
    return error_at(error, HEARTH_NO_MEMORY, "context_window",
                    "models.%s does not fit: %d slots x %d tokens need %.2f GiB for their cells, %.2f GiB is free %s; "
                    "lower n_seq_max or context_window, or set cache_type_k and cache_type_v to q8_0",
                    config->name, (int)config->n_seq_max, window, e.cells / gib, free_bytes / gib,
                    on_gpu ? "on the GPU" : "in memory");
}
