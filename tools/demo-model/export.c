/* A file is put together in memory by ggml's GGUF functions, as hearth-mkmodel does for adapters, and written at
 * once. */
#include "export.h"

#include "base/error.h"
#include "base/memory.h"
#include "chat_template.h"

#include <errno.h>
#include <ggml.h>
#include <gguf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Writing ---- */

static int write_complete(const struct gguf_context *gguf, const char *path, hearth_error *error)
{
    char *part = mem_format("%s.part", path);
    bool written = gguf_write_to_file(gguf, part, false) && rename(part, path) == 0;
    int code = written ? 0 : error_set(error, HEARTH_IO, "cannot write %s: %s", path, strerror(errno));
    if (!written) remove(part);
    free(part);
    return code;
}

/* ---- The vocabulary ---- */

static void put_shape(struct gguf_context *gguf, const struct shape *shape, int n_tokens)
{
    const struct {
        const char *key;
        int32_t value;
    } sizes[] = {
        {"llama.context_length", shape->context},
        {"llama.embedding_length", shape->dim},
        {"llama.block_count", shape->layers},
        {"llama.feed_forward_length", shape->ff},
        {"llama.attention.head_count", shape->heads},
        {"llama.attention.head_count_kv", shape->heads},
        {"llama.rope.dimension_count", head_size(shape)},
        {"llama.vocab_size", n_tokens},
    };
    gguf_set_val_str(gguf, "general.architecture", "llama");
    gguf_set_val_str(gguf, "general.type", "model");
    gguf_set_val_str(gguf, "general.name", "hearth-demo");
    gguf_set_val_str(gguf, "general.license", "mit");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        gguf_set_val_u32(gguf, sizes[i].key, (uint32_t)sizes[i].value);
    gguf_set_val_f32(gguf, "llama.rope.freq_base", shape->rope_base);
    gguf_set_val_f32(gguf, "llama.attention.layer_norm_rms_epsilon", shape->epsilon);
}

static uint32_t find_token(const struct vocabulary *vocabulary, const char *text)
{
    for (int i = vocabulary->n_tokens - 1; i > 0; i--)
        if (strcmp(vocabulary->tokens[i], text) == 0) return (uint32_t)i;
    return 0;
}

static void put_tokenizer(struct gguf_context *gguf, const struct vocabulary *vocabulary)
{
    size_t n = (size_t)vocabulary->n_tokens;
    gguf_set_val_str(gguf, "tokenizer.ggml.model", "gpt2");
    gguf_set_val_str(gguf, "tokenizer.ggml.pre", "qwen2");
    gguf_set_arr_str(gguf, "tokenizer.ggml.tokens", (const char **)vocabulary->tokens, n);
    gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, vocabulary->types, n);
    gguf_set_arr_str(gguf, "tokenizer.ggml.merges", (const char **)vocabulary->merges, (size_t)vocabulary->n_merges);
    gguf_set_val_u32(gguf, "tokenizer.ggml.bos_token_id", find_token(vocabulary, "<|endoftext|>"));
    gguf_set_val_u32(gguf, "tokenizer.ggml.eos_token_id", find_token(vocabulary, "<|im_end|>"));
    gguf_set_val_u32(gguf, "tokenizer.ggml.padding_token_id", find_token(vocabulary, "<|endoftext|>"));
    gguf_set_val_bool(gguf, "tokenizer.ggml.add_bos_token", false);
    gguf_set_val_str(gguf, "tokenizer.chat_template", chat_template);
}

int export_vocabulary(const char *path, const struct vocabulary *vocabulary, const struct shape *shape,
                      hearth_error *error)
{
    struct gguf_context *gguf = gguf_init_empty();
    put_shape(gguf, shape, vocabulary->n_tokens);
    put_tokenizer(gguf, vocabulary);
    int code = write_complete(gguf, path, error);
    gguf_free(gguf);
    return code;
}

/* ---- The model ---- */

static enum ggml_type type_of(const struct export *export, const struct tensor *tensor)
{
    return export->full || tensor->kind == TENSOR_NORM ? GGML_TYPE_F32 : GGML_TYPE_Q8_0;
}

static void put_tensor(struct gguf_context *gguf, struct ggml_context *memory, const struct export *export,
                       const struct tensor *tensor)
{
    const int64_t ne[2] = {tensor->columns, tensor->rows};
    enum ggml_type type = type_of(export, tensor);
    struct ggml_tensor *out = ggml_new_tensor(memory, type, tensor->kind == TENSOR_NORM ? 1 : 2, ne);
    ggml_quantize_chunk(type, export->weights + tensor->at, out->data, 0, tensor->rows, tensor->columns, NULL);
    ggml_set_name(out, tensor->name);
    gguf_add_tensor(gguf, out);
}

static int put_tensors(struct gguf_context *gguf, const struct export *export, hearth_error *error)
{
    const struct layout *layout = export->layout;
    size_t size = layout->size * sizeof(float) + (size_t)layout->n_tensors * (ggml_tensor_overhead() + 64);
    struct ggml_context *memory = ggml_init((struct ggml_init_params){.mem_size = size});
    for (int i = 0; i < layout->n_tensors; i++) put_tensor(gguf, memory, export, &layout->tensors[i]);
    int code = write_complete(gguf, export->path, error);
    ggml_free(memory);
    return code;
}

int export_model(const struct export *export, hearth_error *error)
{
    struct gguf_context *vocabulary =
        gguf_init_from_file(export->vocabulary_path, (struct gguf_init_params){.no_alloc = true});
    if (vocabulary == NULL)
        return error_set(error, HEARTH_IO, "%s is not a GGUF file: remove it, and it is made anew",
                         export->vocabulary_path);
    struct gguf_context *gguf = gguf_init_empty();
    gguf_set_kv(gguf, vocabulary);
    gguf_set_val_u32(gguf, "general.quantization_version", 2);
    gguf_set_val_u32(gguf, "general.file_type", export->full ? 0 : 7); /* enum llama_ftype */
    int code = put_tensors(gguf, export, error);
    gguf_free(gguf);
    gguf_free(vocabulary);
    return code;
}
