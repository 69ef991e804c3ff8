/* Texts for people: what a model file holds, and what memory it takes. */
#include "lib/instance.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* ---- hearth model info ---- */

static void put_row(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, "%-16s %s\n", name, value);
}

static void put_number(struct buf *out, const char *name, int64_t value)
{
    buf_printf(out, "%-16s %lld\n", name, (long long)value);
}

static void put_count(struct buf *out, const char *name, uint64_t value)
{
    buf_printf(out, "%-16s %llu (%.2f M)\n", name, (unsigned long long)value, (double)value / 1e6);
}

char *hearth_model_report(const char *path, hearth_error *error)
{
    llm_init();
    struct llm_model_params params = {.path = path, .split_mode = "layer"};
    struct llm_model *model = llm_model_open(&params, error);
    if (model == NULL) return NULL;
    const struct llm_model_info *info = llm_model_info(model);
    struct buf out = {0};
    put_row(&out, "file", path);
    put_row(&out, "name", info->name);
    put_row(&out, "architecture", info->architecture);
    put_row(&out, "description", info->description);
    put_row(&out, "kind", info->has_decoder ? llm_kind_name(info->kind) : "encoder");
    put_count(&out, "parameters", info->n_params);
    put_number(&out, "size_bytes", (int64_t)info->size_bytes);
    put_number(&out, "layers", info->n_layer);
    put_number(&out, "embedding", info->n_embd);
    put_number(&out, "heads", info->n_head);
    put_number(&out, "experts", info->n_expert);
    put_number(&out, "vocabulary", info->n_vocab);
    put_number(&out, "context_length", info->n_ctx_train);
    put_number(&out, "sliding_window", info->n_swa);
    put_row(&out, "chat_template", info->chat_template != NULL ? "yes" : "no");
    llm_model_close(model);
    return buf_take(&out);
}

/* ---- hearth model vram ---- */

static void put_bytes(struct buf *out, const char *name, double bytes)
{
    buf_printf(out, "  %-28s %16.0f bytes  %8.2f MiB\n", name, bytes, bytes / (1024.0 * 1024));
}

static void put_estimate(struct buf *out, const struct config_model *config, const struct llm_model_info *info,
                         int32_t window)
{
    struct estimate e = estimate_memory(config, info, window);
    buf_printf(out, "model %s: %s\n", config->name, info->description);
    buf_printf(out, "estimate\n");
    buf_printf(out, "  context_window %d, n_seq_max %lld, cache types %s/%s (%.4g and %.4g bytes an element)\n", window,
               (long long)config->n_seq_max, config->cache_type_k, config->cache_type_v, e.element_k, e.element_v);
    buf_printf(out, "  layers with cells %d of %d, key length %d, value length %d\n", e.attention_layers, info->n_layer,
               info->n_embd_head_k, info->n_embd_head_v);
    put_bytes(out, "1 a token, a layer", e.row);
    put_bytes(out, "2 a slot (window x layers)", e.sequence);
    put_bytes(out, "3 all slots", e.cells);
    put_bytes(out, "  weights", e.weights);
    put_bytes(out, "4 total", e.total);
}

static int put_allocated(struct buf *out, struct llm_model *model, const struct llm_context_params *params,
                         hearth_error *error)
{
    struct llm_context *context = llm_context_open(model, params, error);
    if (context == NULL) return (int)error->code;
    struct llm_memory memory = llm_context_memory(context);
    buf_printf(out, "allocated by llama.cpp\n");
    put_bytes(out, "weights", (double)memory.weights);
    put_bytes(out, "cells", (double)memory.cells);
    put_bytes(out, "compute buffers", (double)memory.compute);
    put_bytes(out, "total", (double)(memory.weights + memory.cells + memory.compute));
    llm_context_close(context);
    return HEARTH_OK;
}

char *hearth_memory_report(const hearth_config *config, const char *name, hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    const struct config_model *model_config = config_find_model(config, name);
    if (model_config == NULL) {
        error_at(error, HEARTH_NOT_FOUND, "model", "model '%s' is not in the configuration", name);
        return NULL;
    }
    llm_init();
    struct llm_model_params params = {.path = model_config->path,
                                      .weights = true,
                                      .n_gpu_layers = (int)model_config->n_gpu_layers,
                                      .split_mode = model_config->split_mode};
    struct llm_model *model = llm_model_open(&params, error);
    if (model == NULL) return NULL;
    struct buf out = {0};
    struct llm_context_params context;
    int rc = instance_context_params(model_config, model, &context, error);
    if (rc == HEARTH_OK) {
        const struct llm_model_info *info = llm_model_info(model);
        put_estimate(&out, model_config, info, context.window);
        rc = estimate_check(model_config, info, context.window, error);
        if (rc == HEARTH_NO_MEMORY) {
            buf_printf(&out, "not allocated: %s\n", error->message);
            rc = HEARTH_OK;
        } else if (rc == HEARTH_OK) {
            rc = put_allocated(&out, model, &context, error);
        }
    }
    llm_model_close(model);
    char *text = buf_take(&out);
    if (rc == HEARTH_OK) return text;
    free(text);
    return NULL;
}
