/* Estimates the memory of a model (weights, KV cells, recurrent states) before anything is allocated. No state; any
 * thread.
 *
 * The arithmetic is the usual one:
 *     row       = head_count_kv x (key_length + value_length) x bytes per element
 *     sequence  = context_window x layers x row
 *     cells     = n_seq_max x sequence
 *     total     = weights + cells, and the projector's weights where there is one
 * with heads counted layer by layer, and quantised elements with their block scales (q8_0: 34 bytes for 32). Layers
 * with a sliding window and recurrent layers keep a window or a state for each sequence instead, and there are more
 * sequences than slots: llm_cells_of() counts these as llama.cpp does. */
#include "lib/models/estimate.h"

#include "base/error.h"

#include <sys/stat.h>

static void count_layers(struct estimate *e, const struct llm_context_params *context,
                         const struct llm_model_info *info)
{
    double head = info->n_embd_head_k * e->element_k + info->n_embd_head_v * e->element_v;
    for (int32_t layer = 0; layer < info->n_layer; layer++) {
        double row = info->n_head_kv[layer] * head;
        bool slides = info->is_swa != NULL && info->is_swa[layer];
        if (row == 0) continue;
        if (e->attention_layers++ == 0) e->row = row;
        e->sliding_layers += slides;
        if (!slides) e->sequence += context->window * row;
    }
}

/* Its weights are read whole; what its encoder needs beside them depends on the image. */
static double projector_bytes(const struct config_model *config)
{
    struct stat file;
    return config->mmproj != NULL && stat(config->mmproj, &file) == 0 ? (double)file.st_size : 0;
}

struct estimate estimate_memory(const struct config_model *config, const struct llm_context_params *context,
                                const struct llm_model_info *info)
{
    struct estimate e = {.element_k = llm_type_bytes(context->type_k),
                         .element_v = llm_type_bytes(context->type_v),
                         .cells = llm_cells_of(context, info),
                         .weights = (double)info->size_bytes,
                         .projector = projector_bytes(config)};
    count_layers(&e, context, info);
    e.total = e.weights + e.projector + e.cells.total;
    return e;
}

int estimate_check(const struct config_model *config, const struct llm_context_params *context,
                   const struct llm_model_info *info, hearth_error *error)
{
    const double gib = 1024.0 * 1024 * 1024;
    bool on_gpu = llm_has_gpu() && config->offload_kqv && config->n_gpu_layers >= 0;
    double free_bytes = info->remote ? 0 : (double)llm_free_memory(on_gpu); /* 0: not known */
    struct llm_cells cells = llm_cells_of(context, info);
    if (free_bytes == 0 || cells.total + projector_bytes(config) <= free_bytes) return HEARTH_OK;
    if (!context->full_windows && cells.states + cells.windows > cells.whole)
        return error_at(
            error, HEARTH_NO_MEMORY, "n_seq_spare",
            "models.%s does not fit: %d sequences (n_seq_max %d) need %.2f GiB for their recurrent states and "
            "sliding windows, and %.2f GiB for other cells, %.2f GiB is free %s; lower n_seq_spare or "
            "n_seq_max",
            config->name, cells.n_sequences, (int)config->n_seq_max, (cells.states + cells.windows) / gib,
            cells.whole / gib, free_bytes / gib, on_gpu ? "on the GPU" : "in memory");
    return error_at(error, HEARTH_NO_MEMORY, "context_window",
                    "models.%s does not fit: %d slots x %d tokens need %.2f GiB for their cells, %.2f GiB is free %s; "
                    "lower n_seq_max or context_window, or set cache_type_k and cache_type_v to q8_0",
                    config->name, (int)config->n_seq_max, context->window, cells.total / gib, free_bytes / gib,
                    on_gpu ? "on the GPU" : "in memory");
}
