/* The text reports of `hearth model info` (a model file's metadata) and `hearth model vram` (its memory, estimated and
 * allocated), and what of a model fits this machine, for `hearth fit`. No instance, no state; any thread. */
#include "base/error.h"
#include "base/utf8.h"
#include "instance/models/fit.h"
#include "instance/models/loaded_model.h"
#include "instance/models/model_context.h"

#include <stdlib.h>
#include <string.h>

/* ---- hearth model info ---- */

struct info_row {
    const char *name;
    enum { INFO_TEXT, INFO_NUMBER, INFO_COUNT, INFO_FLAG } type;
    const char *text; /* of INFO_TEXT; NULL: there is no such row */
    int64_t number;
};

#define INFO_ROWS_MAX 24

struct info_rows {
    struct info_row v[INFO_ROWS_MAX];
    size_t n;
};

/* The type and the pooling that the model's file decides, where the configuration says `auto`. */
static const struct config_model automatic = {.embedding = CONFIG_AUTO, .pooling = "auto"};

/* Texts are borrowed from the model. */
static struct info_rows list_info(const char *path, const struct llm_model *model)
{
    const struct llm_model_info *info = llm_model_info(model);
    hearth_model_type type = embedding_decide_type(&automatic, model);
    bool pools = type != HEARTH_MODEL_CHAT;
    const struct info_row rows[] = {
        {"file", INFO_TEXT, path, 0},
        {"name", INFO_TEXT, info->name, 0},
        {"architecture", INFO_TEXT, info->architecture, 0},
        {"description", INFO_TEXT, info->description, 0},
        {"kind", INFO_TEXT, info->has_decoder ? hearth_model_kind_name(info->kind) : "encoder", 0},
        {"type", INFO_TEXT, hearth_model_type_name(type), 0},
        {"pooling", INFO_TEXT, pools ? hearth_pooling_name(embedding_pooling(&automatic, model)) : NULL, 0},
        {"parameters", INFO_COUNT, NULL, (int64_t)info->n_params},
        {"size_bytes", INFO_NUMBER, NULL, (int64_t)info->size_bytes},
        {"layers", INFO_NUMBER, NULL, info->n_layer},
        {"embedding", INFO_NUMBER, NULL, info->n_embd},
        {"heads", INFO_NUMBER, NULL, info->n_head},
        {"experts", INFO_NUMBER, NULL, info->n_expert},
        {"vocabulary", INFO_NUMBER, NULL, info->n_vocab},
        {"context_length", INFO_NUMBER, NULL, info->n_ctx_train},
        {"sliding_window", INFO_NUMBER, NULL, info->n_swa},
        {"chat_template", INFO_FLAG, NULL, info->chat_template != NULL},
    };
    struct info_rows list = {.n = 0};
    _Static_assert(sizeof rows / sizeof *rows <= INFO_ROWS_MAX, "there is room for every row");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].type != INFO_TEXT || rows[i].text != NULL) list.v[list.n++] = rows[i];
    return list;
}

int hearth_model_check(const char *path, hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    llm_init();
    return llm_file_check(path, error);
}

static void put_text(struct buf *out, const struct info_rows *rows)
{
    for (size_t i = 0; i < rows->n; i++) {
        const struct info_row *row = &rows->v[i];
        buf_printf(out, "%-16s ", row->name);
        if (row->type == INFO_TEXT)
            buf_puts(out, row->text);
        else if (row->type == INFO_FLAG)
            buf_puts(out, row->number != 0 ? "yes" : "no");
        else
            buf_printf(out, "%lld", (long long)row->number);
        if (row->type == INFO_COUNT) buf_printf(out, " (%.2f M)", (double)row->number / 1e6);
        buf_puts(out, "\n");
    }
}

static void put_json(struct buf *out, const struct info_rows *rows)
{
    for (size_t i = 0; i < rows->n; i++) {
        const struct info_row *row = &rows->v[i];
        buf_printf(out, "%s\n  \"%s\": ", i == 0 ? "{" : ",", row->name);
        if (row->type == INFO_TEXT)
            utf8_put_json_string(out, row->text, strlen(row->text));
        else if (row->type == INFO_FLAG)
            buf_puts(out, row->number != 0 ? "true" : "false");
        else
            buf_printf(out, "%lld", (long long)row->number);
    }
    buf_puts(out, "\n}\n");
}

static char *report_file(const char *path, void (*put)(struct buf *out, const struct info_rows *rows),
                         hearth_error *error)
{
    llm_init();
    struct llm_model_params params = {.path = path, .split_mode = "layer"};
    struct llm_model *model = llm_model_open(&params, error);
    if (model == NULL) return NULL;
    struct info_rows rows = list_info(path, model);
    struct buf out = {0};
    put(&out, &rows);
    llm_model_close(model);
    return buf_take(&out);
}

char *hearth_model_report(const char *path, hearth_error *error)
{
    return report_file(path, put_text, error);
}

char *hearth_model_report_json(const char *path, hearth_error *error)
{
    return report_file(path, put_json, error);
}

/* ---- hearth model vram ---- */

static void put_bytes(struct buf *out, const char *name, double bytes)
{
    buf_printf(out, "  %-28s %16.0f bytes  %8.2f MiB\n", name, bytes, bytes / (1024.0 * 1024));
}

static void put_estimate(struct buf *out, const struct config_model *config, const struct llm_context_params *context,
                         const struct llm_model_info *info)
{
    struct estimate e = estimate_memory(config, context, info);
    buf_printf(out, "model %s: %s\n", config->name, info->description);
    buf_printf(out, "estimate\n");
    buf_printf(out, "  context_window %d, n_seq_max %lld, cache types %s/%s (%.4g and %.4g bytes an element)\n",
               context->window, (long long)config->n_seq_max, config->cache_type_k, config->cache_type_v, e.element_k,
               e.element_v);
    buf_printf(out, "  layers with cells %d of %d, with a sliding window %d, key length %d, value length %d\n",
               e.attention_layers, info->n_layer, e.sliding_layers, info->n_embd_head_k, info->n_embd_head_v);
    put_bytes(out, "1 a token, a layer", e.row);
    put_bytes(out, "2 a slot (window x layers)", e.sequence);
    put_bytes(out, "3 all slots", e.cells.whole);
    buf_printf(out, "  sequences %d: n_seq_max, n_seq_spare%s\n", e.cells.n_sequences,
               e.cells.n_sequences > context->n_seq ? ", and one to copy through" : "");
    put_bytes(out, "  sliding windows", e.cells.windows);
    put_bytes(out, "  recurrent states", e.cells.states);
    put_bytes(out, "  weights", e.weights);
    if (e.projector > 0) put_bytes(out, "  projector", e.projector);
    if (e.draft > 0) put_bytes(out, "  for drafts", e.draft);
    put_bytes(out, "4 total", e.total);
}

static void put_memory(struct buf *out, struct llm_memory memory)
{
    buf_printf(out, "allocated by llama.cpp\n");
    put_bytes(out, "weights", (double)memory.weights);
    put_bytes(out, "cells", (double)memory.cells);
    put_bytes(out, "compute buffers", (double)memory.compute);
    put_bytes(out, "total", (double)(memory.weights + memory.cells + memory.compute));
}

static int put_allocated(struct buf *out, struct llm_model *model, const struct llm_context_params *params,
                         hearth_error *error)
{
    struct llm_context *context = llm_context_open(model, params, error);
    if (context == NULL) return (int)error->code;
    struct llm_rope rope = llm_context_rope(context);
    put_memory(out, llm_context_memory(context));
    buf_printf(out, "positions\n");
    buf_printf(out, "  scaling %s, freq_base %.9g, freq_scale %.9g, trained for %u tokens\n", rope.scaling,
               rope.freq_base, rope.freq_scale, rope.orig_ctx);
    buf_printf(out, "  yarn ext_factor %.9g, attn_factor %.9g, beta_fast %.9g, beta_slow %.9g\n", rope.ext_factor,
               rope.attn_factor, rope.beta_fast, rope.beta_slow);
    llm_context_close(context);
    return HEARTH_OK;
}

/* A chat model: the estimate, and what llama.cpp allocates for one context with all slots. */
static int report_chat(struct buf *out, const struct config_model *config, struct llm_model *model, hearth_error *error)
{
    const struct llm_model_info *info = llm_model_info(model);
    struct llm_context_params context;
    int rc = model_context_params(config, info, &context, error);
    if (rc != HEARTH_OK) return rc;
    put_estimate(out, config, &context, info);
    rc = estimate_check(config, &context, info, error);
    if (rc == HEARTH_OK) return put_allocated(out, model, &context, error);
    if (rc != HEARTH_NO_MEMORY) return rc;
    buf_printf(out, "not allocated: %s\n", error->message);
    return HEARTH_OK;
}

/* An embedding or rerank model: its contexts are alike and cache nothing, so that one is opened and multiplied. */
static int report_pool(struct buf *out, const struct config_model *config, struct llm_model *model, hearth_error *error)
{
    struct llm_embedder *embedder = embedding_open_context(config, model, error);
    if (embedder == NULL) return (int)error->code;
    struct llm_memory memory = llm_embedder_memory(embedder);
    buf_printf(out, "model %s: %s\n", config->name, llm_model_info(model)->description);
    buf_printf(out, "%s, pooling %s: %lld contexts for calls of %d tokens, nothing kept between calls\n",
               hearth_model_type_name(embedding_decide_type(config, model)),
               hearth_pooling_name(embedding_pooling(config, model)), (long long)config->n_seq_max,
               llm_embedder_max_tokens(embedder));
    memory.cells *= (uint64_t)config->n_seq_max;
    memory.compute *= (uint64_t)config->n_seq_max;
    put_memory(out, memory);
    llm_embedder_close(embedder);
    return HEARTH_OK;
}

static char *report_memory(const struct config_model *model_config, hearth_error *error)
{
    struct llm_model *model = weights_open(model_config, NULL, NULL, error);
    if (model == NULL) return NULL;
    struct buf out = {0};
    bool is_chat = embedding_decide_type(model_config, model) == HEARTH_MODEL_CHAT;
    int rc = (is_chat ? report_chat : report_pool)(&out, model_config, model, error);
    llm_model_close(model);
    char *text = buf_take(&out);
    if (rc == HEARTH_OK) return text;
    free(text);
    return NULL;
}

/* As hearth_load() would have it: with the same defaults. */
char *hearth_memory_report(const hearth_config *config, const char *name, hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    struct hearth_config *copy = config_copy(config);
    const struct config_model *model = config_find_model(copy, name);
    char *report = NULL;
    llm_init();
    if (model == NULL) {
        error_at(error, HEARTH_NOT_FOUND, "model", "model '%s' is not in the configuration", name);
    } else {
        hearth_config_keep_models(copy, (const char *const[]){model->name}, 1, NULL);
        fit_defaults(copy);
        report = report_memory(copy->models, error);
    }
    hearth_config_free(copy);
    return report;
}

/* ---- hearth fit ---- */

int hearth_fit_on(const hearth_config *config, const char *name, const hearth_fit_machine *other, hearth_fit *fit,
                  hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    const struct config_model *model = config_find_model(config, name);
    if (model == NULL || model->path == NULL)
        return error_at(error, HEARTH_NOT_FOUND, "model", "model '%s' is not in the configuration, or has no path",
                        name == NULL ? "" : name);
    llm_init();
    struct fit_machine machine;
    if (fit_machine_of(model, &machine, error) != HEARTH_OK) return (int)error->code;
    struct llm_threads threads = model_threads(model);
    bool imagined = other != NULL && (other->memory > 0 || other->n_devices > 0);
    if (imagined)
        fit_imagine(&machine, other, model);
    else
        machine.read_rate = llm_read_rate(&threads); /* of another machine it is not known */
    return fit_read(model, &machine, fit, error);
}

int hearth_fit_model(const hearth_config *config, const char *name, hearth_fit *fit, hearth_error *error)
{
    return hearth_fit_on(config, name, NULL, fit, error);
}
