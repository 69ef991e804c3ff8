/* Opens LoRA adapters through llama.cpp. It first checks their files for what would end the process or pass unnoticed:
 * metadata of another type, matrices that do not fit each other, activated adapters (aLoRA). */
#include "llm/adapter.h"

#include "base/error.h"
#include "base/memory.h"
#include "llm/context_struct.h"
#include "llm/gguf_file.h"
#include "llm/llama_log.h"
#include "llm/model_struct.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct llm_adapter {
    struct llama_adapter_lora *handle;
};

/* ---- Checking the file ---- */

/* An adapter's file while it is checked. */
struct adapter_file {
    const char *path;
    const struct llm_model_info *model;
    struct gguf_context *file;
};

static bool is_text(const struct gguf_context *file, const char *key, const char *text)
{
    const char *value = llm_file_text(file, key);
    return value != NULL && strcmp(value, text) == 0;
}

static int check_metadata(const struct adapter_file *adapter_file, hearth_error *error)
{
    const struct gguf_context *file = adapter_file->file;
    const char *path = adapter_file->path, *architecture = llm_file_text(file, "general.architecture");
    if (!is_text(file, "general.type", "adapter") || !is_text(file, "adapter.type", "lora"))
        return error_at(error, HEARTH_INVALID, path, "%s is not a LoRA adapter", path);
    if (architecture == NULL || strcmp(architecture, adapter_file->model->architecture) != 0)
        return error_at(error, HEARTH_INVALID, path, "%s is an adapter for models of the architecture '%s', not '%s'",
                        path, architecture == NULL ? "" : architecture, adapter_file->model->architecture);
    int64_t alpha = gguf_find_key(file, "adapter.lora.alpha");
    if (alpha >= 0 && gguf_get_kv_type(file, alpha) != GGUF_TYPE_FLOAT32)
        return error_at(error, HEARTH_INVALID, path, "%s is damaged: its adapter.lora.alpha is no number", path);
    if (gguf_find_key(file, "adapter.alora.invocation_tokens") >= 0)
        return error_at(error, HEARTH_UNSUPPORTED, path,
                        "%s is an activated adapter (aLoRA), which begins in the middle of a prompt: only plain LoRA "
                        "adapters are supported",
                        path);
    return HEARTH_OK;
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

static bool is_weight_type(enum ggml_type type)
{
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16 || ggml_is_quantized(type);
}

/* The two matrices of a pair have to agree in rank and number of experts. llama.cpp itself checks that their product
 * has the shape of the model's matrix. */
static int check_tensor(const struct adapter_file *adapter_file, int64_t a, hearth_error *error)
{
    const struct gguf_context *file = adapter_file->file;
    const char *name = gguf_get_tensor_name(file, a), *fault = "has no other half";
    if (!ends_with(name, ".lora_a")) return HEARTH_OK;
    char *other = mem_format("%.*s.lora_b", (int)(strlen(name) - strlen(".lora_a")), name);
    int64_t b = gguf_find_tensor(file, other);
    free(other);
    if (b >= 0) {
        const int64_t *of_a = gguf_get_tensor_ne(file, a), *of_b = gguf_get_tensor_ne(file, b);
        /* The first matrix of an embedding is indexed by token, so it is transposed. */
        bool embedding = ends_with(name, "token_embd.weight.lora_a");
        int64_t experts = strstr(name, "_exps.") != NULL ? adapter_file->model->n_expert : 1;
        bool typed = is_weight_type(gguf_get_tensor_type(file, a)) && is_weight_type(gguf_get_tensor_type(file, b));
        bool depths = of_a[2] == experts && of_b[2] == experts && of_a[3] == 1 && of_b[3] == 1;
        if (typed && depths && (embedding ? of_a[0] : of_a[1]) == of_b[0]) return HEARTH_OK;
        fault = "has another shape or type than it should";
    }
    return error_at(error, HEARTH_INVALID, adapter_file->path, "%s does not fit the model: its tensor %s %s",
                    adapter_file->path, name, fault);
}

/* ---- Life ---- */

struct llm_adapter *llm_adapter_open(struct llm_model *model, const char *path, hearth_error *error)
{
    assert(model != NULL && path != NULL);
    struct adapter_file adapter_file = {path, llm_model_info(model), llm_file_open(path, error)};
    if (adapter_file.file == NULL) return NULL;
    int rc = check_metadata(&adapter_file, error);
    for (int64_t i = 0; rc == HEARTH_OK && i < gguf_get_n_tensors(adapter_file.file); i++)
        rc = check_tensor(&adapter_file, i, error);
    gguf_free(adapter_file.file);
    if (rc != HEARTH_OK) return NULL;
    struct llm_log_capture captured;
    llm_log_capture_begin(&captured);
    struct llama_adapter_lora *handle = llama_adapter_lora_init(model->handle, path);
    llm_log_capture_end();
    if (handle == NULL) {
        error_at(error, HEARTH_INVALID, path, "%s cannot be loaded: %s", path, captured.reason);
        return NULL;
    }
    struct llm_adapter *adapter = mem_alloc(sizeof *adapter);
    adapter->handle = handle;
    return adapter;
}

void llm_adapter_close(struct llm_adapter *adapter)
{
    if (adapter == NULL) return;
    llama_adapter_lora_free(adapter->handle);
    free(adapter);
}

/* ---- Use ---- */

/* llama.cpp compares with the current adapters; if they differ, its next call reserves its compute buffers anew. */
void llm_adapt(struct llm_context *context, const struct llm_adapters *adapters)
{
    assert(context != NULL && (adapters->v != NULL || adapters->n == 0));
    if (adapters->n == 0) return;
    size_t n = adapters->scales == NULL ? 0 : adapters->n;
    struct llama_adapter_lora **handles = mem_alloc((n + 1) * sizeof(struct llama_adapter_lora *));
    float *scales = mem_alloc((n + 1) * sizeof *scales);
    for (size_t i = 0; i < n; i++) {
        handles[i] = adapters->v[i]->handle;
        scales[i] = (float)adapters->scales[i];
    }
    llm_log_quiet(true);
    llama_set_adapters_lora(context->handle.v, handles, n, scales);
    llm_log_quiet(false);
    free(handles);
    free(scales);
}
