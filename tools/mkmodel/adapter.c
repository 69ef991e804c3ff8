/* Writes a LoRA adapter's GGUF file: the file is small, so it is built in memory and written at once. One thread; no
 * state outlives adapter_write(). */
#include "adapter.h"

#include "base/error.h"
#include "base/memory.h"
#include "random.h"

#include <errno.h>
#include <ggml.h>
#include <gguf.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The matrices that are adapted, in every layer that has them. Each kind of model has some. */
static const char *const adapted[] = {
    "attn_q.weight",
    "attn_k.weight",
    "attn_v.weight",
    "attn_qkv.weight",
    "attn_output.weight",
    "ssm_in.weight",
    "shortconv.in_proj.weight",
    "ffn_down.weight",
};

static bool is_adapted(const char *name)
{
    static const char prefix[] = "blk.";
    if (strncmp(name, prefix, strlen(prefix)) != 0) return false;
    const char *part = name + strlen(prefix);
    part += strspn(part, "0123456789");
    for (size_t i = 0; part[0] == '.' && i < sizeof adapted / sizeof *adapted; i++)
        if (strcmp(part + 1, adapted[i]) == 0) return true;
    return false;
}

/* Fills the matrix so that it maps a vector of RMS 1 to one of RMS `gain`. */
static void add_matrix(struct gguf_context *gguf, struct ggml_context *memory, const struct lora *lora,
                       const char *name, const int64_t ne[2], float gain)
{
    struct ggml_tensor *matrix = ggml_new_tensor_2d(memory, GGML_TYPE_F32, ne[0], ne[1]);
    float half = gain * sqrtf(3.0f / (float)ne[0]);
    uint64_t stream = random_stream(lora->seed, name);
    random_row(ggml_get_data_f32(matrix), ne[0] * ne[1], -half, half, &stream);
    ggml_set_name(matrix, name);
    gguf_add_tensor(gguf, matrix);
}

static void add_pair(struct gguf_context *gguf, struct ggml_context *memory, const struct lora *lora, const char *of,
                     const int64_t *ne)
{
    char name[GGML_MAX_NAME];
    snprintf(name, sizeof name, "%s.lora_a", of);
    add_matrix(gguf, memory, lora, name, (const int64_t[]){ne[0], lora->rank}, 1.0f);
    snprintf(name, sizeof name, "%s.lora_b", of);
    add_matrix(gguf, memory, lora, name, (const int64_t[]){lora->rank, ne[1]}, 0.75f);
}

static size_t memory_for(const struct gguf_context *model, const struct lora *lora)
{
    size_t size = ggml_tensor_overhead();
    for (int64_t i = 0; i < gguf_get_n_tensors(model); i++) {
        const int64_t *ne = gguf_get_tensor_ne(model, i);
        if (is_adapted(gguf_get_tensor_name(model, i)))
            size += 2 * ggml_tensor_overhead() + (size_t)((ne[0] + ne[1]) * lora->rank) * sizeof(float) + 64;
    }
    return size;
}

/* Writes a temporary file beside the wanted path and renames it when it is complete. */
static int write_file(const struct gguf_context *gguf, const struct lora *lora, hearth_error *error)
{
    char *part = mem_format("%s.part", lora->out_path);
    bool written = gguf_write_to_file(gguf, part, false) && rename(part, lora->out_path) == 0;
    int code = written ? 0 : error_set(error, HEARTH_IO, "cannot write %s: %s", lora->out_path, strerror(errno));
    if (!written) remove(part);
    free(part);
    return code;
}

static int write_for(const struct gguf_context *model, const char *architecture, const struct lora *lora,
                     hearth_error *error)
{
    struct gguf_context *gguf = gguf_init_empty();
    struct ggml_context *memory = ggml_init((struct ggml_init_params){.mem_size = memory_for(model, lora)});
    gguf_set_val_str(gguf, "general.type", "adapter");
    gguf_set_val_str(gguf, "general.architecture", architecture);
    gguf_set_val_str(gguf, "adapter.type", "lora");
    gguf_set_val_f32(gguf, "adapter.lora.alpha", (float)lora->rank);
    for (int64_t i = 0; i < gguf_get_n_tensors(model); i++)
        if (is_adapted(gguf_get_tensor_name(model, i)))
            add_pair(gguf, memory, lora, gguf_get_tensor_name(model, i), gguf_get_tensor_ne(model, i));
    int code = gguf_get_n_tensors(gguf) > 0
                   ? write_file(gguf, lora, error)
                   : error_set(error, HEARTH_INVALID, "%s has no matrix that can be adapted", lora->model_path);
    gguf_free(gguf);
    ggml_free(memory);
    return code;
}

int adapter_write(const struct lora *lora, hearth_error *error)
{
    struct gguf_context *model = gguf_init_from_file(lora->model_path, (struct gguf_init_params){.no_alloc = true});
    int64_t key = model == NULL ? -1 : gguf_find_key(model, "general.architecture");
    int code = key >= 0 && gguf_get_kv_type(model, key) == GGUF_TYPE_STRING
                   ? write_for(model, gguf_get_val_str(model, key), lora, error)
                   : error_set(error, HEARTH_IO, "%s is not a GGUF file with a model: give --lora-for another file",
                               lora->model_path);
    gguf_free(model);
    return code;
}
