/* Writes a model file: the metadata first, then each tensor's numbers row by row, so that memory does not limit the
 * model's size. One thread; no state outlives model_write(). */
#include "write.h"

#include "base/buf.h"
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

const struct weight_type weight_types[] = {
    {"f32", GGML_TYPE_F32, 0},
    {"f16", GGML_TYPE_F16, 1},
    {"q8_0", GGML_TYPE_Q8_0, 7},
    {0},
};

/* One tensor of the file. */
struct tensor {
    char name[GGML_MAX_NAME];
    enum ggml_type type;
    enum fill fill;
    int n_dims;
    int64_t ne[4];
};

typedef int (*tensor_visitor)(void *ud, const struct tensor *tensor, hearth_error *error);

/* ---- Which tensors ---- */

/* Numbers are uniform in low..high, or in the range that makes a matrix map a vector of RMS 1 to one of RMS `gain`. */
struct range {
    float low, high;
    float gain; /* 0: low and high count */
    bool typed; /* stored in the file's type, not in F32 */
    bool by_token;
};

/* Chosen so that greedy output wanders through the vocabulary, depends on the whole prompt, and yet is the same however
 * llama.cpp batches it. Attention over F16 cells is the one part whose rounding depends on the batch (by about 0.5 %),
 * so it adds little beside the feed-forward part. A tied embedding is small beside what the layers add, or the model
 * would repeat its last token for ever; the norm after the layers compensates. Steps and decays are those of the
 * published Mamba-2: memories of a few tokens up to a thousand. */
static const struct range ranges[] = {
    [FILL_MATRIX] = {.gain = 1.5f, .typed = true},
    [FILL_QK] = {.gain = 1.0f, .typed = true},
    [FILL_ATTENTION] = {.gain = 0.25f, .typed = true},
    [FILL_ROUTER] = {.gain = 2.0f},
    [FILL_EMBEDDING] = {.low = -0.4f, .high = 0.4f, .typed = true, .by_token = true},
    [FILL_TIED_EMBEDDING] = {.gain = 0.12f, .typed = true, .by_token = true},
    [FILL_OUTPUT] = {.gain = 4.0f, .typed = true, .by_token = true},
    [FILL_POSITION] = {.low = -0.1f, .high = 0.1f},
    [FILL_CONV] = {.gain = 1.5f},
    [FILL_ONE] = {.low = 1.0f, .high = 1.0f},
    [FILL_QUIET] = {.low = 0.05f, .high = 0.05f},
    [FILL_LOUD] = {.low = 32.0f, .high = 32.0f},
    [FILL_BIAS] = {.low = -0.1f, .high = 0.1f},
    [FILL_DECAY] = {.low = -16.0f, .high = -1.0f},
    [FILL_STEP] = {.low = -8.0f, .high = -4.0f},
};

/* Rows of a quantised matrix must be whole blocks; where they are not, F16 is used, as llama.cpp's converter does. */
static enum ggml_type storage_type(const struct model *model, const struct tensor *tensor)
{
    if (!ranges[tensor->fill].typed || tensor->n_dims == 1) return GGML_TYPE_F32;
    enum ggml_type type = (enum ggml_type)model->type->ggml_type;
    return tensor->ne[0] % ggml_blck_size(type) == 0 ? type : GGML_TYPE_F16;
}

static struct tensor make_tensor(const struct model *model, const struct tensor_rule *rule, int64_t layer)
{
    struct tensor tensor = {.fill = rule->fill, .ne = {1, 1, 1, 1}};
    if (layer < 0) {
        snprintf(tensor.name, sizeof tensor.name, "%s", rule->name);
    } else {
        snprintf(tensor.name, sizeof tensor.name, "blk.%lld.%s", (long long)layer, rule->name);
    }
    for (; tensor.n_dims < 4 && rule->ne[tensor.n_dims] != SIZE_END; tensor.n_dims++) {
        tensor.ne[tensor.n_dims] = model->sizes[rule->ne[tensor.n_dims]];
    }
    tensor.type = storage_type(model, &tensor);
    return tensor;
}

static bool part_is_in(const struct model *model, enum layers layers, int64_t layer)
{
    if (layer < 0 || layers == LAYERS_NONE) return layer < 0 && layers == LAYERS_NONE;
    if (layers == LAYERS_EVERY) return true;
    return arch_layer_attends(model->sizes, layer) == (layers == LAYERS_ATTENTION);
}

/* Calls `visit` for every tensor, in the order of the file; stops at the first failure. */
static int each_tensor(const struct model *model, tensor_visitor visit, void *ud, hearth_error *error)
{
    for (int64_t layer = -1; layer < model->sizes[SIZE_LAYERS]; layer++) {
        for (const struct part *part = model->arch->parts; part->tensors != NULL; part++) {
            if (!part_is_in(model, part->layers, layer)) continue;
            for (const struct tensor_rule *rule = part->tensors; rule->name != NULL; rule++) {
                struct tensor tensor = make_tensor(model, rule, layer);
                int code = visit(ud, &tensor, error);
                if (code != 0) return code;
            }
        }
    }
    return 0;
}

/* ---- Metadata ---- */

static bool starts_with(const char *text, const char *prefix)
{
    return !strncmp(text, prefix, strlen(prefix));
}

static void remove_keys(struct gguf_context *gguf, const char *prefix, bool with_prefix)
{
    for (int64_t i = gguf_get_n_kv(gguf) - 1; i >= 0; i--) {
        const char *name = gguf_get_key(gguf, i);
        if (starts_with(name, prefix) != with_prefix) continue;
        char *copy = mem_strdup(name); /* removing the key frees its own text */
        gguf_remove_key(gguf, copy);
        free(copy);
    }
}

/* The tokenizer.* keys of the vocabulary's file; gguf_free() them. */
static int open_vocab(struct model *model, struct gguf_context **vocab, hearth_error *error)
{
    FILE *file = fopen(model->vocab_path, "rb");
    if (file == NULL) {
        return error_set(error, HEARTH_NOT_FOUND, "cannot open the vocabulary %s: %s; give --vocab a GGUF file",
                         model->vocab_path, strerror(errno));
    }
    *vocab = gguf_init_from_file_ptr(file, (struct gguf_init_params){.no_alloc = true});
    fclose(file);
    int64_t tokens = *vocab == NULL ? -1 : gguf_find_key(*vocab, "tokenizer.ggml.tokens");
    if (tokens < 0 || gguf_get_kv_type(*vocab, tokens) != GGUF_TYPE_ARRAY) {
        gguf_free(*vocab);
        return error_set(error, HEARTH_IO, "%s is not a GGUF file with a tokenizer: give --vocab another file",
                         model->vocab_path);
    }
    model->sizes[SIZE_VOCAB] = (int64_t)gguf_get_arr_n(*vocab, tokens);
    remove_keys(*vocab, "tokenizer.", false);
    return 0;
}

static int put_template(struct gguf_context *gguf, const char *path, hearth_error *error)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return error_set(error, HEARTH_NOT_FOUND, "cannot open the chat template %s: %s", path, strerror(errno));
    }
    struct buf text = {0};
    char block[4096];
    size_t n;
    while ((n = fread(block, 1, sizeof block, file)) > 0) buf_append(&text, block, n);
    bool failed = ferror(file) != 0;
    fclose(file);
    if (!failed && text.len > 0) {
        remove_keys(gguf, "tokenizer.chat_template", true); /* its variants for tools are removed too */
        gguf_set_val_str(gguf, "tokenizer.chat_template", text.v);
    }
    int code = failed || text.len == 0 ? error_set(error, HEARTH_IO, "cannot read a chat template from %s", path) : 0;
    buf_release(&text);
    return code;
}

static void put_sections(struct gguf_context *gguf, const char *name, const struct model *model)
{
    int32_t pairs = (int32_t)(model->sizes[SIZE_ROTARY] / 2);
    int32_t third = pairs / 3;
    int32_t sections[4] = {pairs - 2 * third, third, third, 0};
    gguf_set_arr_data(gguf, name, GGUF_TYPE_INT32, sections, 4);
}

static void put_by_layer(struct gguf_context *gguf, const char *name, const struct model *model, int64_t size)
{
    size_t n = (size_t)model->sizes[SIZE_LAYERS];
    uint32_t *values = mem_alloc(n * sizeof *values);
    for (size_t i = 0; i < n; i++) values[i] = arch_layer_attends(model->sizes, (int64_t)i) ? (uint32_t)size : 0;
    gguf_set_arr_data(gguf, name, GGUF_TYPE_UINT32, values, n);
    free(values);
}

static void put_key(struct gguf_context *gguf, const struct model *model, const struct key *key)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", model->arch->gguf, key->name);
    int64_t size = model->sizes[key->size];
    switch (key->kind) {
    case KEY_SIZE:
        gguf_set_val_u32(gguf, name, (uint32_t)size);
        break;
    case KEY_U32:
        gguf_set_val_u32(gguf, name, (uint32_t)key->value);
        break;
    case KEY_F32:
        gguf_set_val_f32(gguf, name, (float)key->value);
        break;
    case KEY_BOOL:
        gguf_set_val_bool(gguf, name, key->value != 0);
        break;
    case KEY_SECTIONS:
        put_sections(gguf, name, model);
        break;
    case KEY_SIZE_OR_NONE:
        put_by_layer(gguf, name, model, size);
        break;
    }
}

static int put_metadata(struct gguf_context *gguf, const struct model *model, const struct gguf_context *vocab,
                        hearth_error *error)
{
    const struct arch *arch = model->arch;
    char *name = mem_format("hearth test %s", arch->name);
    gguf_set_val_str(gguf, "general.architecture", arch->gguf);
    gguf_set_val_str(gguf, "general.type", "model");
    gguf_set_val_str(gguf, "general.name", name);
    gguf_set_val_u32(gguf, "general.file_type", model->type->ftype);
    free(name);
    for (const struct key *const *keys = arch->keys; *keys != NULL; keys++) {
        for (const struct key *key = *keys; key->name != NULL; key++) put_key(gguf, model, key);
    }
    if (model->pooling >= 0) put_key(gguf, model, &(struct key){"pooling_type", KEY_U32, SIZE_END, model->pooling});
    if (arch->rope_base > 0) {
        put_key(gguf, model, &(struct key){"rope.freq_base", KEY_F32, SIZE_END, arch->rope_base});
    }
    gguf_set_kv(gguf, vocab);
    if (arch->sizes[SIZE_TOKEN_TYPES] > 0) {
        /* Named like the tokenizer's keys, but a size of a tensor of the model. */
        gguf_set_val_u32(gguf, "tokenizer.ggml.token_type_count", (uint32_t)model->sizes[SIZE_TOKEN_TYPES]);
    }
    return model->template_path == NULL ? 0 : put_template(gguf, model->template_path, error);
}

/* A tensor_visitor; `ud` is the gguf_context. */
static int declare_tensor(void *ud, const struct tensor *tensor, hearth_error *error)
{
    (void)error;
    struct ggml_context *ggml =
        ggml_init((struct ggml_init_params){.mem_size = 2 * ggml_tensor_overhead(), .no_alloc = true});
    struct ggml_tensor *shape = ggml_new_tensor(ggml, tensor->type, tensor->n_dims, tensor->ne);
    ggml_set_name(shape, tensor->name);
    gguf_add_tensor(ud, shape); /* copies the shape */
    ggml_free(ggml);
    return 0;
}

/* ---- Numbers ---- */

/* Fills in the tensors, one after the other. */
struct filler {
    const struct model *model;
    FILE *file;
    const int32_t *token_types; /* borrowed from the vocabulary; NULL if it has none */
    size_t alignment;
    float *row;
    void *stored; /* the row in the tensor's type */
};

/* Control tokens get small logits: greedy output is text and ends only where the caller ends it. They keep their
 * directions, so each still has its own effect in a prompt. */
static float row_scale(const struct filler *filler, const struct range *range, int64_t row)
{
    const int32_t normal = 1, user_defined = 4, byte = 6; /* llama_token_type */
    if (!range->by_token || filler->token_types == NULL) return 1.0f;
    int32_t type = filler->token_types[row];
    return type == normal || type == user_defined || type == byte ? 1.0f : 0.1f;
}

/* A tensor_visitor; `ud` is a struct filler. */
static int fill_tensor(void *ud, const struct tensor *tensor, hearth_error *error)
{
    struct filler *filler = ud;
    const struct range *range = &ranges[tensor->fill];
    float half = range->gain * sqrtf(3.0f / (float)tensor->ne[0]);
    float low = range->gain > 0 ? -half : range->low, high = range->gain > 0 ? half : range->high;
    int64_t n = tensor->ne[0], rows = tensor->ne[1] * tensor->ne[2] * tensor->ne[3];
    size_t row_size = ggml_row_size(tensor->type, n);
    uint64_t random = random_stream(filler->model->seed, tensor->name);

    filler->row = mem_grow(filler->row, (size_t)n, sizeof(float));
    filler->stored = mem_grow(filler->stored, row_size, 1);
    for (int64_t row = 0; row < rows; row++) {
        float scale = row_scale(filler, range, row);
        random_row(filler->row, n, low * scale, high * scale, &random);
        ggml_quantize_chunk(tensor->type, filler->row, filler->stored, 0, 1, n, NULL);
        fwrite(filler->stored, 1, row_size, filler->file);
    }
    size_t size = row_size * (size_t)rows;
    for (size_t i = size; i % filler->alignment != 0; i++) fputc(0, filler->file);
    return ferror(filler->file) ? error_set(error, HEARTH_IO, "cannot write the model: %s", strerror(errno)) : 0;
}

/* ---- The file ---- */

static const int32_t *token_types_of(const struct gguf_context *vocab, int64_t n_tokens)
{
    int64_t id = gguf_find_key(vocab, "tokenizer.ggml.token_type");
    if (id < 0 || gguf_get_kv_type(vocab, id) != GGUF_TYPE_ARRAY) return NULL;
    if (gguf_get_arr_type(vocab, id) != GGUF_TYPE_INT32 || (int64_t)gguf_get_arr_n(vocab, id) < n_tokens) return NULL;
    return gguf_get_arr_data(vocab, id);
}

static int write_tensors(const struct model *model, const struct gguf_context *gguf, FILE *file, hearth_error *error)
{
    struct filler filler = {.model = model,
                            .file = file,
                            .token_types = token_types_of(gguf, model->sizes[SIZE_VOCAB]),
                            .alignment = gguf_get_alignment(gguf)};
    int code = each_tensor(model, fill_tensor, &filler, error);
    free(filler.row);
    free(filler.stored);
    return code;
}

/* Writes a temporary file beside the wanted path and renames it when it is complete. */
static int write_file(const struct model *model, const struct gguf_context *gguf, hearth_error *error)
{
    char *part = mem_format("%s.part", model->out_path);
    FILE *file = fopen(part, "wb");
    int code = 0;
    if (file == NULL) {
        code = error_set(error, HEARTH_IO, "cannot create %s: %s", part, strerror(errno));
        goto out;
    }
    if (!gguf_write_to_file_ptr(gguf, file, true)) {
        code = error_set(error, HEARTH_IO, "cannot write %s: %s", part, strerror(errno));
    }
    if (code == 0) code = write_tensors(model, gguf, file, error);
    if (fclose(file) != 0 && code == 0) {
        code = error_set(error, HEARTH_IO, "cannot write %s: %s", part, strerror(errno));
    }
    if (code == 0 && rename(part, model->out_path) != 0) {
        code = error_set(error, HEARTH_IO, "cannot move %s into place: %s", part, strerror(errno));
    }
    if (code != 0) remove(part);
out:
    free(part);
    return code;
}

int model_write(struct model *model, hearth_error *error)
{
    struct gguf_context *vocab = NULL;
    int code = open_vocab(model, &vocab, error);
    if (code != 0) return code;
    struct gguf_context *gguf = gguf_init_empty();
    code = arch_resolve(model->arch, model->sizes, error);
    if (code == 0) code = put_metadata(gguf, model, vocab, error);
    if (code == 0) code = each_tensor(model, declare_tensor, gguf, error);
    if (code == 0) code = write_file(model, gguf, error);
    gguf_free(gguf);
    gguf_free(vocab);
    return code;
}
