/* Loads a model through llama.cpp and collects the facts that the rest of hearth asks for. A model owns llama.cpp's
 * handle and its own copy of the facts; it is immutable after llm_model_open(), so any thread may read it. */
#include "llm/model_struct.h"

#include "base/error.h"
#include "base/memory.h"
#include "llm/backends.h"
#include "llm/context.h"
#include "llm/dry.h"
#include "llm/gguf_file.h"
#include "llm/head.h"
#include "llm/llama_log.h"
#include "llm/placement.h"
#include "llm/rpc.h"
#include "llm/sampler.h"
#include "llm/tokenizer.h"
#include "llm/vocab.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Facts ---- */

hearth_pooling llm_pooling_of(const char *name)
{
    assert(name != NULL);
    for (int i = HEARTH_POOLING_NONE; i <= HEARTH_POOLING_RANK; i++)
        if (strcmp(hearth_pooling_name((hearth_pooling)i), name) == 0) return (hearth_pooling)i;
    return HEARTH_POOLING_UNSPECIFIED;
}

static hearth_pooling find_pooling(const struct gguf_context *file)
{
    int64_t pooling = llm_file_hparam(file, "pooling_type", 0, HEARTH_POOLING_UNSPECIFIED);
    bool known = pooling >= HEARTH_POOLING_NONE && pooling <= HEARTH_POOLING_RANK;
    return known ? (hearth_pooling)pooling : HEARTH_POOLING_UNSPECIFIED;
}

/* llama.cpp reads as many scores for an input as the file has labels. With a head of another width it would read scores
 * of other inputs, and without a head parts of embeddings. */
static int32_t count_scores(const struct llama_model *handle, const struct gguf_context *file, int32_t n_embd)
{
    static const char *const heads[] = {"cls.output.weight", "cls.weight"};
    int64_t width = 0; /* outputs of the head for an embedding of n_embd dimensions; 0: there is no head */
    for (size_t i = 0; i < sizeof heads / sizeof *heads && width == 0; i++) {
        int64_t id = gguf_find_tensor(file, heads[i]);
        if (id < 0 || n_embd <= 0) continue;
        enum ggml_type type = gguf_get_tensor_type(file, id);
        int64_t blocks = (int64_t)(gguf_get_tensor_size(file, id) / ggml_type_size(type));
        width = blocks * ggml_blck_size(type) / n_embd;
    }
    return width == (int64_t)llama_model_n_cls_out(handle) ? (int32_t)width : 0;
}

/* Finds the KV heads of each layer that has cells: all layers of a decoder, unless some are recurrent or have a sliding
 * window. Where llama.cpp cannot be probed every layer counts. */
static void find_layer_memory(struct llm_model *model, const struct gguf_context *file)
{
    struct llm_model_info *info = &model->info;
    size_t n = info->n_layer > 0 ? (size_t)info->n_layer : 0;
    info->n_head_kv = model->n_head_kv = mem_alloc((n + 1) * sizeof *model->n_head_kv);
    info->is_swa = model->is_swa = mem_alloc((n + 1) * sizeof *model->is_swa);
    bool *cells = mem_alloc((n + 1) * sizeof *cells);
    struct llm_layer_memory layers = {.n_layer = (int32_t)n, .cells = cells, .is_swa = model->is_swa};
    bool alike = info->n_swa <= 0 && info->kind != HEARTH_KIND_HYBRID && info->kind != HEARTH_KIND_RECURRENT;
    bool probed = info->has_decoder && n > 0 && !alike && llm_probe(model->handle, &layers);
    for (int32_t i = 0; i < info->n_layer; i++) {
        int64_t n_head = llm_file_hparam(file, "attention.head_count", i, 0);
        if (probed ? cells[i] : info->has_decoder)
            model->n_head_kv[i] = (int32_t)llm_file_hparam(file, "attention.head_count_kv", i, n_head);
    }
    info->state_bytes = layers.state_bytes;
    free(cells);
}

/* Adds up the tensors of one file. An output that is tied to the embedding is a copy of it. */
static void add_layer_bytes(struct llm_model *model, const struct gguf_context *file, bool mtp, bool tied)
{
    int32_t n = model->info.n_layer > 0 ? model->info.n_layer : 0;
    for (int64_t i = 0; i < gguf_get_n_tensors(file); i++) {
        const char *name = gguf_get_tensor_name(file, i);
        uint64_t bytes = gguf_get_tensor_size(file, i);
        bool in_layer = strncmp(name, "blk.", 4) == 0, embedding = strstr(name, "token_embd.") != NULL;
        long layer = in_layer ? strtol(name + 4, NULL, 10) : n;
        if (embedding) model->info.embedding_bytes += bytes;
        if (embedding || layer < 0 || (layer >= n && in_layer && !mtp)) continue;
        if (layer > n) layer = n;
        model->layer_bytes[layer] += bytes;
        if (strstr(name, "_exps.") != NULL || strstr(name, "_chexps.") != NULL) model->expert_bytes[layer] += bytes;
    }
    int64_t output = gguf_find_tensor(file, "token_embd.weight");
    if (!tied || output < 0) return;
    model->info.tied_bytes = gguf_get_tensor_size(file, output);
    model->layer_bytes[n] += model->info.tied_bytes;
}

static const char *special_token_text(const struct llama_vocab *vocab, llama_token token)
{
    const char *text = token == LLAMA_TOKEN_NULL ? NULL : llama_vocab_get_text(vocab, token);
    return text == NULL ? "" : text;
}

static void describe_vocabulary(struct llm_model *model)
{
    struct llm_model_info *info = &model->info;
    const struct llama_vocab *vocab = model->vocab;
    info->n_vocab = llama_vocab_n_tokens(vocab);
    info->vocab_type = (int32_t)llama_vocab_type(vocab);
    info->bos_text = special_token_text(vocab, llama_vocab_bos(vocab));
    info->eos_text = special_token_text(vocab, llama_vocab_eos(vocab));
    info->adds_bos = llama_vocab_get_add_bos(vocab);
    info->adds_eos = llama_vocab_get_add_eos(vocab);
    for (int32_t token = 0; token < info->n_vocab; token++) info->n_ending += llama_vocab_is_eog(vocab, token);
    info->ending = model->ending = mem_alloc((info->n_ending + 1) * sizeof *model->ending);
    for (int32_t token = 0, *next = model->ending; token < info->n_vocab; token++)
        if (llama_vocab_is_eog(vocab, token)) *next++ = token;
}

/* Names separated by semicolons; unknown ones are left out. */
static void find_samplers(struct llm_model *model, const struct gguf_context *file)
{
    const char *list = llm_file_text(file, "general.sampling.sequence");
    char *names = mem_strdup(list == NULL ? "" : list), *rest = names;
    for (char *name; (name = strsep(&rest, ";")) != NULL && model->info.n_samplers < LLM_MAX_SAMPLERS;) {
        const char *known = llm_sampler_name(name);
        if (known != NULL) model->samplers[model->info.n_samplers++] = known;
    }
    free(names);
    model->info.samplers = model->info.n_samplers > 0 ? model->samplers : NULL;
}

static void describe(struct llm_model *model, const struct gguf_context *file)
{
    const struct llama_model *handle = model->handle;
    struct llm_model_info *info = &model->info;
    const char *name = llm_file_text(file, "general.name");
    snprintf(info->architecture, sizeof info->architecture, "%s", llm_file_text(file, "general.architecture"));
    snprintf(info->name, sizeof info->name, "%s", name == NULL ? "" : name);
    llama_model_desc(handle, info->description, sizeof info->description);
    info->weights_type = llama_ftype_name(llama_model_ftype(handle));
    info->size_bytes = llama_model_size(handle);
    info->n_params = llama_model_n_params(handle);
    info->n_layer = llama_model_n_layer(handle);
    info->n_blocks = (int32_t)llm_file_hparam(file, "block_count", 0, info->n_layer);
    info->n_embd = llama_model_n_embd(handle);
    info->n_head = info->n_layer > 0 ? llama_model_n_head(handle) : 0; /* a file with a vocabulary only has no layers */
    info->n_ctx_train = llama_model_n_ctx_train(handle);
    /* LongRoPE: tensors of these names, in any part of a split model. Only the first part was read, so a split model
     * may have them. */
    info->window_factors = llm_file_number(file, "split.count", 0) > 1 ||
                           gguf_find_tensor(file, "rope_factors_long.weight") >= 0 ||
                           gguf_find_tensor(file, "rope_factors_short.weight") >= 0;
    info->rope_freq_scale = llama_model_rope_freq_scale_train(handle);
    info->n_swa = llama_model_n_swa(handle);
    info->n_expert = (int32_t)llm_file_hparam(file, "expert_count", 0, 0);
    info->n_expert_used = (int32_t)llm_file_hparam(file, "expert_used_count", 0, 0);
    info->kind = llama_model_is_hybrid(handle)      ? HEARTH_KIND_HYBRID
                 : llama_model_is_recurrent(handle) ? HEARTH_KIND_RECURRENT
                 : info->n_expert > 0               ? HEARTH_KIND_MOE
                                                    : HEARTH_KIND_DENSE;
    /* An encoder's file says that its attention is not causal; a model of encoder and decoder would need llama_encode()
     * first. */
    info->has_decoder = llama_model_has_decoder(handle) && !llama_model_has_encoder(handle) &&
                        llm_file_hparam(file, "attention.causal", 0, 1) != 0;
    info->pooling = find_pooling(file);
    info->eagle = llm_eagle_of(handle, file);
    info->n_embd_out = llama_model_n_embd_out(handle);
    info->n_scores = count_scores(handle, file, info->n_embd);
    info->chat_template = llama_model_chat_template(handle, NULL);
    info->rank_template = llama_model_chat_template(handle, "rerank");
    int64_t usual_head = info->n_head > 0 ? info->n_embd / info->n_head : 0;
    info->n_embd_head_k = (int32_t)llm_file_hparam(file, "attention.key_length", 0, usual_head);
    info->n_embd_head_v = (int32_t)llm_file_hparam(file, "attention.value_length", 0, usual_head);
    /* Multi-head latent attention reads the values out of the cells of the keys. */
    if (llm_file_has_hparam(file, "attention.key_length_mla")) info->n_embd_head_v = 0;
    find_layer_memory(model, file);
    describe_vocabulary(model);
    find_samplers(model, file);
}

/* ---- Loading ---- */

struct loading {
    const struct llm_model_params *params;
    const struct gguf_context *file;
    bool only_vocabulary; /* the file holds no tensors */
    bool mtp;             /* it is loaded with its MTP head */
    bool aborted;
    struct llm_log_capture captured;
};

static bool on_progress(float fraction, void *ud)
{
    struct loading *loading = ud;
    if (loading->params->progress != NULL && !loading->params->progress(loading->params->ud, fraction))
        loading->aborted = true;
    return !loading->aborted;
}

int32_t llm_layers_on_gpu(int wanted)
{
    if (wanted == 0) return -1;
    return wanted < 0 ? 0 : wanted;
}

static int check_contents(struct loading *loading, hearth_error *error)
{
    const char *path = loading->params->path;
    if (llm_file_text(loading->file, "general.architecture") == NULL)
        return error_at(error, HEARTH_INVALID, path, "%s names no architecture: it is not a model", path);
    /* The first part of a model in several files may hold metadata alone. */
    bool in_parts = llm_file_number(loading->file, "split.count", 0) > 1;
    loading->only_vocabulary = gguf_get_n_tensors(loading->file) == 0 && !in_parts;
    if (loading->only_vocabulary && loading->params->weights)
        return error_at(error, HEARTH_INVALID, path, "%s holds a vocabulary but no weights", path);
    return HEARTH_OK;
}

/* Architectures whose MTP head is known to work here: llama.cpp gives the hidden rows of all of its tokens, and those
 * of chosen tokens of the layers before it. */
static bool computes_mtp(const char *architecture)
{
    static const char *const known[] = {"qwen35", "qwen35moe", "glm4moe"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(architecture, known[i]) == 0) return true;
    return false;
}

/* The metadata of another part of a model in parts; NULL: it cannot be read, which the load reports. */
static struct gguf_context *open_part(const struct loading *loading, int32_t part)
{
    int32_t n_parts = (int32_t)llm_file_number(loading->file, "split.count", 0);
    char prefix[4096], path[4096];
    hearth_error ignored;
    if (llama_split_prefix(prefix, sizeof prefix, loading->params->path, 0, n_parts) <= 0) return NULL;
    llama_split_path(path, sizeof path, prefix, part, n_parts);
    return llm_file_open(path, &ignored);
}

/* Some files name the head, but were written without its tensors. Of a model in parts any may have them. */
static bool has_tensor(const struct loading *loading, const char *name)
{
    bool found = gguf_find_tensor(loading->file, name) >= 0;
    for (int32_t part = (int32_t)llm_file_number(loading->file, "split.count", 0) - 1; part > 0 && !found; part--) {
        struct gguf_context *file = open_part(loading, part);
        found = file != NULL && gguf_find_tensor(file, name) >= 0;
        if (file != NULL) gguf_free(file);
    }
    return found;
}

static void find_layer_bytes(struct llm_model *model, const struct loading *loading)
{
    size_t n = model->info.n_layer > 0 ? (size_t)model->info.n_layer : 0;
    model->layer_bytes = mem_alloc((n + 1) * sizeof *model->layer_bytes);
    model->expert_bytes = mem_alloc((n + 1) * sizeof *model->expert_bytes);
    bool tied = !has_tensor(loading, "output.weight");
    add_layer_bytes(model, loading->file, loading->mtp, tied);
    for (int32_t part = (int32_t)llm_file_number(loading->file, "split.count", 0) - 1; part > 0; part--) {
        struct gguf_context *file = open_part(loading, part);
        if (file == NULL) continue;
        add_layer_bytes(model, file, loading->mtp, tied);
        gguf_free(file);
    }
    uint64_t experts = 0;
    for (size_t i = 0; i <= n; i++) experts += model->expert_bytes[i];
    model->info.layer_bytes = model->layer_bytes;
    model->info.expert_bytes = experts > 0 ? model->expert_bytes : NULL;
}

/* llama.cpp ends the process on a head that its graph does not expect, or in a context with pooling leaves its rows
 * unwritten. So only the forms that it computes are taken. */
static bool has_mtp_head(const struct loading *loading)
{
    const struct gguf_context *file = loading->file;
    const char *architecture = llm_file_text(file, "general.architecture");
    int64_t n_layer = llm_file_hparam(file, "block_count", 0, 0),
            n_embd = llm_file_hparam(file, "embedding_length", 0, 0);
    enum hearth_pooling pooling = find_pooling(file);
    bool usual = llm_file_hparam(file, "embedding_length_out", 0, n_embd) == n_embd &&
                 (pooling == HEARTH_POOLING_UNSPECIFIED || pooling == HEARTH_POOLING_NONE);
    if (strcmp(architecture, "glm4moe") == 0)
        usual = usual && !llm_file_has_hparam(file, "rope.dimension_sections") &&
                llm_file_hparam(file, "leading_dense_block_count", 0, 0) < n_layer;
    if (!usual || !computes_mtp(architecture) || llm_file_hparam(file, "nextn_predict_layers", 0, 0) != 1) return false;
    static const char *const tensors[] = {"nextn.eh_proj", "nextn.enorm", "nextn.hnorm"};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%lld.%s.weight", (long long)n_layer - 1, tensors[i]);
        if (!has_tensor(loading, name)) return false;
    }
    return true;
}

static struct llama_model *load_model(struct loading *loading, const struct llm_placement *placement, bool mtp)
{
    struct llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = llm_layers_on_gpu(loading->params->n_gpu_layers);
    params.split_mode = placement->split_mode;
    params.main_gpu = placement->main_gpu;
    params.devices = placement->devices;
    params.tensor_split = placement->parts;
    params.tensor_buft_overrides = placement->overrides;
    params.load_mode = placement->load_mode;
    params.vocab_only = loading->only_vocabulary;
    params.no_alloc = !loading->params->weights && !loading->only_vocabulary;
    if (params.no_alloc) params.load_mode = LLAMA_LOAD_MODE_NONE; /* what is not allocated must not be mapped either */
    params.load_mtp = loading->mtp = mtp;
    params.progress_callback = on_progress;
    params.progress_callback_user_data = loading;
    llm_log_capture_begin(&loading->captured);
    struct llama_model *handle = llama_model_load_from_file(loading->params->path, params);
    llm_log_capture_end();
    return handle;
}

static int explain_load_failure(const struct loading *loading, hearth_error *error)
{
    const char *path = loading->params->path, *reason = loading->captured.reason;
    if (loading->aborted) return error_at(error, HEARTH_CANCELLED, path, "loading %s was aborted", path);
    if (loading->captured.unknown_architecture)
        return error_at(error, HEARTH_UNSUPPORTED, path,
                        "%s is of the architecture '%s', which llama.cpp %s does not know", path,
                        llm_file_text(loading->file, "general.architecture"), llm_version());
    if (loading->captured.no_memory)
        return error_at(
            error, HEARTH_NO_MEMORY, path,
            "no memory for the weights of %s (%s; %.2f GiB free): take a smaller model or a smaller weight type", path,
            reason, (double)llm_free_memory(llm_has_gpu()) / (1024.0 * 1024 * 1024));
    return error_at(error, HEARTH_UNSUPPORTED, path, "%s cannot be loaded: %s", path, reason);
}

static struct llama_model *load_with_tokenizer(struct loading *loading, hearth_error *error)
{
    const struct llm_model_params *params = loading->params;
    struct llm_placement placement;
    int rc = llm_placement_choose(&placement, params, error);
    bool mtp = params->mtp && has_mtp_head(loading);
    struct llama_model *handle = rc == HEARTH_OK ? load_model(loading, &placement, mtp) : NULL;
    if (rc == HEARTH_OK && handle == NULL && mtp && params->mtp_optional && loading->captured.no_memory)
        handle = load_model(loading, &placement, false);
    llm_placement_release(&placement);
    if (rc != HEARTH_OK) return NULL;
    if (handle == NULL) {
        explain_load_failure(loading, error);
        return NULL;
    }
    if (llama_vocab_type(llama_model_get_vocab(handle)) != LLAMA_VOCAB_TYPE_NONE) return handle;
    error_at(error, HEARTH_UNSUPPORTED, params->path, "%s has no tokenizer", params->path);
    llama_model_free(handle);
    return NULL;
}

static struct llm_model *open_file(struct loading *loading, hearth_error *error)
{
    const struct llm_model_params *params = loading->params;
    if (check_contents(loading, error) < 0) return NULL;
    /* Metadata alone is on no other machine. */
    size_t n_servers = params->weights || params->planned ? params->n_rpc : 0;
    if (llm_rpc_open(params->rpc, n_servers, error) != HEARTH_OK) return NULL;
    struct llama_model *handle = load_with_tokenizer(loading, error);
    if (handle == NULL) {
        llm_rpc_close(params->rpc, n_servers);
        return NULL;
    }
    struct llm_model *model = mem_alloc(sizeof *model);
    model->handle = handle;
    model->vocab = llama_model_get_vocab(handle);
    model->weights = loading->captured.weights;
    model->n_servers = n_servers;
    model->servers = mem_alloc((model->n_servers + 1) * sizeof *model->servers);
    for (size_t i = 0; i < model->n_servers; i++) model->servers[i] = mem_strdup(params->rpc[i]);
    describe(model, loading->file);
    find_layer_bytes(model, loading);
    model->info.remote = model->n_servers > 0;
    model->info.divided = params->n_overrides > 0 || params->n_cpu_moe > 0 || params->cpu_moe ||
                          (params->n_gpu_layers > 0 && params->n_gpu_layers <= model->info.n_layer);
    model->info.mtp = loading->mtp;
    model->special_tokens = llm_special_tokens_open(model->vocab);
    model->splitter = llm_splitter_open(model);
    model->texts = mem_alloc(sizeof *model->texts);
    pthread_mutex_init(&model->texts->mutex, NULL);
    model->dry_sets = dry_sets_open(model->vocab);
    if (llm_measure_recursion(model, &model->recursion, error) == HEARTH_OK) return model;
    llm_model_close(model);
    return NULL;
}

struct llm_model *llm_model_open(const struct llm_model_params *params, hearth_error *error)
{
    assert(params != NULL && params->path != NULL && params->split_mode != NULL);
    if (llm_check_processor(error) != HEARTH_OK) return NULL;
    struct gguf_context *file = llm_file_open(params->path, error);
    if (file == NULL) return NULL;
    struct loading loading = {.params = params, .file = file};
    struct llm_model *model = open_file(&loading, error);
    gguf_free(file);
    return model;
}

void llm_model_close(struct llm_model *model)
{
    if (model == NULL) return;
    llm_special_tokens_close(model->special_tokens);
    llm_splitter_close(model->splitter);
    dry_sets_close(model->dry_sets);
    llm_token_texts_close(model->texts->v);
    pthread_mutex_destroy(&model->texts->mutex);
    free(model->texts);
    llama_model_free(model->handle);
    llm_rpc_close((const char *const *)model->servers, model->n_servers);
    for (size_t i = 0; i < model->n_servers; i++) free(model->servers[i]);
    free(model->servers);
    free(model->n_head_kv);
    free(model->is_swa);
    free(model->layer_bytes);
    free(model->expert_bytes);
    free(model->ending);
    free(model);
}

const struct llm_model_info *llm_model_info(const struct llm_model *model)
{
    assert(model != NULL);
    return &model->info;
}

bool llm_has_devices(const struct llm_model_info *info)
{
    return info->remote || llm_has_gpu();
}

bool llm_model_number(const struct llm_model *model, const char *key, double *out)
{
    assert(model != NULL && key != NULL && out != NULL);
    char text[64], *end;
    if (llama_model_meta_val_str(model->handle, key, text, sizeof text) <= 0) return false;
    *out = strtod(text, &end);
    return end != text;
}

struct llama_model *llm_model_handle(const struct llm_model *model)
{
    return model->handle;
}
