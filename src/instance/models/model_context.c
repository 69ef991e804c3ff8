/* The parameters of a model's llama.cpp contexts, and the memory that they take: see model_context.h.
 *
 * The arithmetic of the estimate is the usual one:
 *     row       = head_count_kv x (key_length + value_length) x bytes per element
 *     sequence  = context_window x layers x row
 *     cells     = n_seq_max x sequence
 *     total     = weights + cells, and the weights of the projector and the draft model where there are any
 * with heads counted layer by layer, and quantised elements with their block scales (q8_0: 34 bytes for 32). Layers
 * with a sliding window and recurrent layers keep a window or a state for each sequence instead. There may be more
 * sequences than slots: llm_cells_of() counts these as llama.cpp does. */
#include "instance/models/model_context.h"

#include "base/error.h"
#include "base/memory.h"
#include "config/text.h"
#include "engine/draft_model.h"
#include "engine/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- Weights ---- */

static bool has_drafts(const struct config_model *config)
{
    return !config->deterministic && config->draft.sources.len > 0;
}

static bool has_draft_source(const struct config_model *config, const char *name)
{
    for (size_t i = 0; i < config->draft.sources.len; i++)
        if (strcmp(config->draft.sources.v[i], name) == 0) return true;
    return false;
}

bool names_draft_model(const struct config_model *config)
{
    return has_drafts(config) && has_draft_source(config, "model");
}

bool uses_draft_model(const struct config_model *config)
{
    return names_draft_model(config) || (has_drafts(config) && has_draft_source(config, "auto"));
}

struct llm_threads model_threads(const struct config_model *config)
{
    return (struct llm_threads){.n = (int)config->threads,
                                .cpus = config->cpus,
                                .strict = config->cpu_strict,
                                .priority = config->thread_priority};
}

struct llm_context_params draft_context_params(const struct config_model *config, const struct llm_model_info *info)
{
    struct llm_context_params params = draft_model_context(info, (int32_t)config->n_seq_max);
    params.threads = model_threads(config);
    params.offload_kqv = config->offload_kqv;
    params.op_offload = config->op_offload;
    return params;
}

struct llm_model_params weights_params(const struct config_model *config, float **parts)
{
    bool embeds = config->embedding == CONFIG_TRUE;
    double number;
    *parts = mem_alloc((config->tensor_split.len + 1) * sizeof **parts);
    for (size_t i = 0; i < config->tensor_split.len; i++) /* the list was checked */
        if (text_to_number(config->tensor_split.v[i], &number)) (*parts)[i] = (float)number;
    return (struct llm_model_params){.path = config->path,
                                     .n_gpu_layers = (int)config->n_gpu_layers,
                                     .split_mode = config->split_mode,
                                     .main_gpu = (int32_t)config->main_gpu,
                                     .load_mode = config->load_mode,
                                     .rpc = (const char *const *)config->rpc.v,
                                     .n_rpc = config->rpc.len,
                                     .tensor_split = *parts,
                                     .n_tensor_split = config->tensor_split.len,
                                     .devices = (const char *const *)config->devices.v,
                                     .n_devices = config->devices.len,
                                     .overrides = (const char *const *)config->override_tensors.v,
                                     .n_overrides = config->override_tensors.len,
                                     .n_cpu_moe = (int32_t)config->n_cpu_moe,
                                     .cpu_moe = config->cpu_moe,
                                     .mtp = uses_draft_model(config) && config->draft.path == NULL && !embeds,
                                     .mtp_optional = !names_draft_model(config)};
}

struct llm_model *weights_open(const struct config_model *config, bool (*progress)(void *ud, float fraction), void *ud,
                               hearth_error *error)
{
    float *parts;
    struct llm_model_params params = weights_params(config, &parts);
    params.weights = true;
    params.progress = progress;
    params.ud = ud;
    struct llm_model *model = llm_model_open(&params, error);
    free(parts);
    return model;
}

/* A head uses tensors that may lie on any device of the model. So its own devices have to be the same, or llama.cpp
 * ends the process. */
static struct llm_model *open_beside(const struct config_model *config, hearth_error *error)
{
    float *parts;
    struct llm_model_params params = weights_params(config, &parts);
    params.path = config->draft.path;
    params.n_gpu_layers = (int)config->draft.n_gpu_layers;
    params.n_overrides = 0;
    params.n_cpu_moe = 0;
    params.cpu_moe = params.mtp = false;
    params.weights = true;
    struct llm_model *model = llm_model_open(&params, error);
    free(parts);
    return model;
}

static int check_draft(const struct config_model *config, const struct llm_model *draft,
                       const struct llm_model *weights, bool unified, hearth_error *error)
{
    const struct llm_model_info *info = llm_model_info(draft);
    bool eagle = info->eagle.layers.n > 0;
    bool recurrent = info->kind == HEARTH_KIND_RECURRENT || info->kind == HEARTH_KIND_HYBRID;
    if (llm_vocabularies_match(draft, weights, error) != HEARTH_OK) return (int)error->code;
    if (recurrent || (!info->has_decoder && !eagle))
        return error_set(error, HEARTH_UNSUPPORTED, "%s (%s) cannot draft: %s", config->draft.path, info->architecture,
                         recurrent ? "its states cannot be cut" : "it is no decoder, and no head that is known");
    if (!eagle) return HEARTH_OK;
    if (!unified)
        return error_set(error, HEARTH_UNSUPPORTED,
                         "an EAGLE-3 head needs one pool of cells: leave kv_unified at auto, with a cache, or set it");
    return llm_eagle_fits(info, llm_model_info(weights), error);
}

struct llm_model *draft_weights_open(const struct config_model *config, const struct llm_model *weights,
                                     const struct llm_context_params *context, hearth_error *error)
{
    struct llm_model_params params = {
        .path = config->draft.path, .n_gpu_layers = (int)config->draft.n_gpu_layers, .split_mode = config->split_mode};
    struct llm_model *header = llm_model_open(&params, error);
    bool borrows = header != NULL && llm_model_info(header)->eagle.borrows;
    params.weights = true;
    struct llm_model *model = header == NULL ? NULL
                              : borrows      ? open_beside(config, error)
                                             : llm_model_open(&params, error);
    llm_model_close(header);
    if (model != NULL && check_draft(config, model, weights, context->unified, error) == HEARTH_OK) return model;
    llm_model_close(model);
    error_prefix(error, "models.%s.draft.path: ", config->name);
    snprintf(error->param, sizeof error->param, "models.%s.draft.path", config->name);
    return NULL;
}

/* ---- The context of a chat model ---- */

/* llama.cpp's limit of sequences in one context, less the scratch sequence through which KV cells are read and written.
 */
#define MAX_SEQUENCES 255

int32_t model_window(const struct config_model *config, const struct llm_model_info *info)
{
    int32_t wanted = (int32_t)config->context_window, trained = info->n_ctx_train;
    bool stretched = info->has_decoder && strcmp(config->rope_scaling, "none") != 0;
    return trained <= 0 || stretched || wanted <= trained ? wanted : trained;
}

/* Whether llama.cpp gives each sequence a stream of cells of its own, whatever it is asked for. Sharing as in one pool
 * would be wrong there: a shared prefix is copied with the next decode call only, over a checkpoint that has been
 * loaded meanwhile. */
static bool has_streams_only(const struct llm_model_info *info)
{
    return strcmp(info->architecture, "deepseek4") == 0;
}

/* A unified KV cache, one pool of cells, lets sequences share a prefix, and keeps more sequences resident than there
 * are slots. Without sharing, a stream of cells for each slot is faster: by 3 % with one slot, by 9 to 13 % with four.
 * It also makes the numbers of a slot independent of the others, which deterministic mode promises. */
static bool decide_unified(const struct config_model *config, const struct llm_model_info *info)
{
    if (has_streams_only(info)) return false;
    bool shares = config->incremental_cache || config->system_prompt_cache;
    if (config->kv_unified == CONFIG_AUTO) return shares && !config->deterministic;
    return config->kv_unified == CONFIG_TRUE;
}

bool model_keeps_full_windows(const struct config_model *config, const struct llm_model_info *info)
{
    bool recurrent = info->kind == HEARTH_KIND_HYBRID || info->kind == HEARTH_KIND_RECURRENT;
    return config->deterministic && info->n_swa > 0 && !recurrent;
}

static int64_t at_least(int64_t n, int64_t least)
{
    return n < least ? least : n;
}

/* The number of sequences: one for each slot, and spare ones in which conversations stay resident that no slot
 * computes. A model that does not cache conversations needs no spare ones, and with a stream per slot there can be
 * none. */
static int32_t decide_sequences(const struct config_model *config, const struct llm_model_info *info, bool unified)
{
    int64_t slots = config->n_seq_max, spare = config->n_seq_spare;
    if (!unified || !config->incremental_cache) return (int32_t)slots;
    /* Whether every sequence takes memory for a recurrent state or a sliding window, used or not. */
    bool states = info->kind == HEARTH_KIND_HYBRID || info->kind == HEARTH_KIND_RECURRENT || info->n_swa > 0;
    if (spare < 0) spare = states ? at_least(slots, 3) : at_least(3 * slots, 28);
    int64_t n = slots + spare < MAX_SEQUENCES ? slots + spare : MAX_SEQUENCES;
    return (int32_t)(n > slots ? n : slots);
}

int model_context_params(const struct config_model *config, const struct llm_model_info *info,
                         struct llm_context_params *params, hearth_error *error)
{
    int32_t window = model_window(config, info);
    if (config->deterministic && config->n_batch < PREFILL_CHUNK)
        return error_at(error, HEARTH_INVALID, "n_batch",
                        "models.%s.n_batch is %lld: deterministic mode computes pieces of %d tokens and needs as many",
                        config->name, (long long)config->n_batch, PREFILL_CHUNK);
    if (has_streams_only(info) && config->kv_unified == CONFIG_TRUE)
        return error_at(error, HEARTH_INVALID, "kv_unified",
                        "models.%s.kv_unified is true: models of the architecture %s have a stream of cells for each "
                        "sequence; leave it at auto",
                        config->name, info->architecture);
    bool unified = decide_unified(config, info);
    /* With a unified cache llama.cpp 0.5.0 gives wrong logits when it splits a decode call of a model with a sliding
     * window into several micro-batches. */
    bool one_ubatch = unified && info->n_swa > 0 && config->n_batch > config->n_ubatch;
    int64_t most_tokens = one_ubatch ? config->n_ubatch : config->n_batch;
    const char *limit = one_ubatch ? "n_ubatch" : "n_batch";
    if (most_tokens < config->n_seq_max)
        return error_at(error, HEARTH_INVALID, limit, "models.%s.%s is %lld: it must be at least n_seq_max (%lld)",
                        config->name, limit, (long long)most_tokens, (long long)config->n_seq_max);
    *params = (struct llm_context_params){
        .window = window,
        .n_seq = decide_sequences(config, info, unified),
        .n_cells = window * (int32_t)config->n_seq_max,
        .n_batch = (int32_t)most_tokens,
        .n_ubatch = (int32_t)config->n_ubatch,
        .unified = unified,
        .full_windows = model_keeps_full_windows(config, info),
        /* Whether the store reads and writes KV cells of the context: a recurrent model has none. */
        .scratch = info->kind != HEARTH_KIND_RECURRENT && (config->incremental_cache || config->system_prompt_cache),
        .type_k = config->cache_type_k,
        .type_v = config->cache_type_v,
        .flash_attention = config->flash_attention,
        .offload_kqv = config->offload_kqv,
        .op_offload = config->op_offload,
        .threads = model_threads(config),
        .rope_scaling = config->rope_scaling,
        .rope_freq_base = config->rope_freq_base,
        .rope_freq_scale = config->rope_freq_scale,
        .yarn_ext_factor = config->yarn_ext_factor,
        .yarn_attn_factor = config->yarn_attn_factor,
        .yarn_beta_fast = config->yarn_beta_fast,
        .yarn_beta_slow = config->yarn_beta_slow,
        .yarn_orig_ctx = (int32_t)config->yarn_orig_ctx,
    };
    return HEARTH_OK;
}

/* ---- The estimate ---- */

double file_bytes(const char *path)
{
    struct stat file;
    return path != NULL && stat(path, &file) == 0 ? (double)file.st_size : 0;
}

double projector_bytes(const struct config_model *config)
{
    return file_bytes(config->mmproj);
}

double draft_bytes(const struct config_model *config)
{
    return uses_draft_model(config) ? file_bytes(config->draft.path) : 0;
}

double draft_slots_bytes(const struct config_model *config, const struct llm_model_info *info, int64_t n_slots)
{
    if (!has_drafts(config)) return 0;
    struct llm_context_params head = draft_model_context(info, (int32_t)n_slots);
    head.head = LLM_HEAD_MTP;
    return (double)n_slots * (double)info->state_bytes + (info->mtp ? llm_cells_of(&head, info).total : 0);
}

struct estimate estimate_memory(const struct config_model *config, const struct llm_context_params *context,
                                const struct llm_model_info *info)
{
    struct estimate e = {.element_k = llm_type_bytes(context->type_k),
                         .element_v = llm_type_bytes(context->type_v),
                         .cells = llm_cells_of(context, info),
                         .weights = (double)info->size_bytes,
                         .projector = projector_bytes(config),
                         .draft = draft_bytes(config) + draft_slots_bytes(config, info, config->n_seq_max)};
    double head = info->n_embd_head_k * e.element_k + info->n_embd_head_v * e.element_v;
    for (int32_t layer = 0; layer < info->n_layer; layer++) {
        double row = info->n_head_kv[layer] * head;
        bool slides = info->is_swa != NULL && info->is_swa[layer];
        if (row == 0) continue;
        if (e.attention_layers++ == 0) e.row = row;
        e.sliding_layers += slides;
        if (!slides) e.sequence += context->window * row;
    }
    e.total = e.weights + e.projector + e.draft + e.cells.total;
    return e;
}

int estimate_check(const struct config_model *config, const struct llm_context_params *context,
                   const struct llm_model_info *info, hearth_error *error)
{
    const double gib = 1024.0 * 1024 * 1024;
    bool on_gpu = llm_has_gpu() && config->offload_kqv && config->n_gpu_layers >= 0;
    double free_bytes = info->remote ? 0 : (double)llm_free_memory(on_gpu); /* 0: not known */
    struct llm_cells cells = llm_cells_of(context, info);
    if (free_bytes == 0 || cells.total + projector_bytes(config) + draft_bytes(config) <= free_bytes) return HEARTH_OK;
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

/* ---- Embedding and rerank models ---- */

/* Inputs in one decode call at most: more hardly raise the throughput. */
#define INPUTS_A_CALL 64

hearth_pooling embedding_pooling(const struct config_model *config, const struct llm_model *weights)
{
    hearth_pooling wanted = llm_pooling_of(config->pooling);
    return wanted == HEARTH_POOLING_UNSPECIFIED ? llm_default_pooling(weights) : wanted;
}

hearth_model_type embedding_decide_type(const struct config_model *config, const struct llm_model *weights)
{
    bool pools = llm_is_embedder(weights) || llm_pooling_of(config->pooling) != HEARTH_POOLING_UNSPECIFIED;
    if (config->embedding == CONFIG_AUTO ? !pools : config->embedding == CONFIG_FALSE) return HEARTH_MODEL_CHAT;
    return embedding_pooling(config, weights) == HEARTH_POOLING_RANK ? HEARTH_MODEL_RERANK : HEARTH_MODEL_EMBEDDING;
}

static void set_call_limits(const struct config_model *config, struct llm_context_params *params)
{
    params->n_batch = (int32_t)config->n_batch;
    params->n_seq = INPUTS_A_CALL;
}

int embedding_context_params(const struct config_model *config, const struct llm_model *weights,
                             struct llm_context_params *params, hearth_error *error)
{
    int rc = model_context_params(config, llm_model_info(weights), params, error);
    set_call_limits(config, params);
    return rc;
}

double embedding_bytes(const struct config_model *config, const struct llm_model *weights,
                       const struct llm_context_params *context)
{
    const struct llm_model_info *info = llm_model_info(weights);
    struct llm_context_params params = *context;
    set_call_limits(config, &params);
    double cells = llm_embedder_cells(&params, info, embedding_pooling(config, weights)).total;
    return (double)info->size_bytes + (double)config->n_seq_max * cells;
}

struct llm_embedder *embedding_open_context(const struct config_model *config, struct llm_model *weights,
                                            hearth_error *error)
{
    struct llm_context_params params;
    if (embedding_context_params(config, weights, &params, error) != HEARTH_OK) return NULL;
    return llm_embedder_open(weights, &params, embedding_pooling(config, weights), error);
}
