/* Writes a GGUF file of random weights: keys and tensors from lists of rules, each tensor's numbers row by row, so that
 * memory does not limit the file's size. One thread; no state outlives file_write(). */
#include "file.h"

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
#include <unistd.h>

const struct weight_type weight_types[] = {
    {"f32", GGML_TYPE_F32, 0},
    {"f16", GGML_TYPE_F16, 1},
    {"q8_0", GGML_TYPE_Q8_0, 7},
    {0},
};

const struct weight_type *weight_type_find(const char *name)
{
    for (const struct weight_type *type = weight_types; type->name != NULL; type++) {
        if (strcmp(type->name, name) == 0) return type;
    }
    return NULL;
}

/* ---- Keys ---- */

static void put_sections(struct gguf_context *gguf, const char *name, const int64_t sizes[SIZE_COUNT])
{
    int32_t pairs = (int32_t)(sizes[SIZE_ROTARY] / 2);
    int32_t third = pairs / 3;
    int32_t sections[4] = {pairs - 2 * third, third, third, 0};
    gguf_set_arr_data(gguf, name, GGUF_TYPE_INT32, sections, 4);
}

static void put_by_layer(struct gguf_context *gguf, const char *name, const int64_t sizes[SIZE_COUNT], int64_t size)
{
    size_t n = (size_t)sizes[SIZE_LAYERS];
    uint32_t *values = mem_alloc(n * sizeof *values);
    for (size_t i = 0; i < n; i++) values[i] = arch_layer_attends(sizes, (int64_t)i) ? (uint32_t)size : 0;
    gguf_set_arr_data(gguf, name, GGUF_TYPE_UINT32, values, n);
    free(values);
}

static void put_key(struct gguf_context *gguf, const char *prefix, const struct key *key,
                    const int64_t sizes[SIZE_COUNT])
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", prefix, key->name);
    int64_t size = sizes[key->size];
    float value = (float)key->value;
    switch (key->kind) {
    case KEY_SIZE:
        gguf_set_val_u32(gguf, name, (uint32_t)size);
        break;
    case KEY_U32:
        gguf_set_val_u32(gguf, name, (uint32_t)key->value);
        break;
    case KEY_F32:
        gguf_set_val_f32(gguf, name, value);
        break;
    case KEY_BOOL:
        gguf_set_val_bool(gguf, name, key->value != 0);
        break;
    case KEY_SECTIONS:
        put_sections(gguf, name, sizes);
        break;
    case KEY_SIZE_OR_NONE:
        put_by_layer(gguf, name, sizes, size);
        break;
    case KEY_LAYERS: {
        int32_t last = (int32_t)key->value - 1;
        gguf_set_arr_data(gguf, name, GGUF_TYPE_INT32, (int32_t[]){0, last / 2, last}, 3);
        break;
    }
    case KEY_RGB:
        gguf_set_arr_data(gguf, name, GGUF_TYPE_FLOAT32, (float[]){value, value, value}, 3);
        break;
    }
}

void file_put_keys(struct gguf_context *gguf, const char *prefix, const struct key *keys,
                   const int64_t sizes[SIZE_COUNT])
{
    for (const struct key *key = keys; key->name != NULL; key++) put_key(gguf, prefix, key, sizes);
}

/* ---- Which tensors ---- */

/* One tensor of the file. */
struct tensor {
    char name[GGML_MAX_NAME];
    enum ggml_type type;
    enum fill fill;
    int n_dims;
    int64_t ne[4];
};

typedef int (*tensor_visitor)(void *ud, const struct tensor *tensor, hearth_error *error);

/* Numbers are uniform in low..high, or in the range that makes a matrix map a vector of RMS 1 to one of RMS `gain`. */
struct range {
    float low, high;
    float gain; /* 0: low and high count */
    bool typed; /* stored in the file's type, not in F32 */
    bool by_token;
    bool convolves; /* each output has inputs along all lengths but the last, not along the first alone */
    bool copies;    /* each output has the input of the same number besides */
};

/* Chosen so that greedy output wanders through the vocabulary, depends on the whole prompt, and yet is the same however
 * llama.cpp batches it. Attention over F16 cells is the one part whose rounding depends on the batch (by about 0.5 %),
 * so it adds little beside the feed-forward part. A tied embedding is small beside what the layers add, or the model
 * would repeat its last token for ever; the norm after the layers compensates. Steps and decays are those of the
 * published Mamba-2: memories of a few tokens up to a thousand. What a projector makes is as large as an embedding. */
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
    [FILL_KERNEL] = {.gain = 1.5f, .typed = true, .convolves = true},
    [FILL_PROJECTION] = {.gain = 0.15f, .typed = true},
    [FILL_FIRST_HALF] = {.gain = 0.3f, .typed = true, .copies = true},
    [FILL_ONE] = {.low = 1.0f, .high = 1.0f},
    [FILL_QUIET] = {.low = 0.05f, .high = 0.05f},
    [FILL_LOUD] = {.low = 32.0f, .high = 32.0f},
    [FILL_BIAS] = {.low = -0.1f, .high = 0.1f},
    [FILL_DECAY] = {.low = -16.0f, .high = -1.0f},
    [FILL_STEP] = {.low = -8.0f, .high = -4.0f},
};

/* Rows of a quantised matrix must be whole blocks; where they are not, F16 is used, as llama.cpp's converter does. */
static enum ggml_type storage_type(const struct weight_type *weights, const struct tensor *tensor)
{
    if (!ranges[tensor->fill].typed || tensor->n_dims == 1) return GGML_TYPE_F32;
    enum ggml_type type = (enum ggml_type)weights->ggml_type;
    return tensor->ne[0] % ggml_blck_size(type) == 0 ? type : GGML_TYPE_F16;
}

static struct tensor make_tensor(const struct contents *contents, const struct tensor_rule *rule, int64_t layer)
{
    struct tensor tensor = {.fill = rule->fill, .ne = {1, 1, 1, 1}};
    if (layer < 0) {
        snprintf(tensor.name, sizeof tensor.name, "%s", rule->name);
    } else {
        snprintf(tensor.name, sizeof tensor.name, "%s.%lld.%s", contents->blocks, (long long)layer, rule->name);
    }
    for (; tensor.n_dims < 4 && rule->ne[tensor.n_dims] != SIZE_END; tensor.n_dims++) {
        tensor.ne[tensor.n_dims] = contents->sizes[rule->ne[tensor.n_dims]];
    }
    tensor.type = storage_type(contents->type, &tensor);
    return tensor;
}

static bool part_is_in(const struct contents *contents, enum layers layers, int64_t layer)
{
    if (layer < 0 || layers == LAYERS_NONE) return layer < 0 && layers == LAYERS_NONE;
    if (layers == LAYERS_EVERY) return true;
    if (layers == LAYERS_MTP) return layer >= contents->sizes[SIZE_LAYERS];
    return arch_layer_attends(contents->sizes, layer) == (layers == LAYERS_ATTENTION);
}

/* Calls `visit` for every tensor, in the order of the file; stops at the first failure. */
static int each_tensor(const struct contents *contents, tensor_visitor visit, void *ud, hearth_error *error)
{
    for (int64_t layer = -1; layer < contents->sizes[SIZE_BLOCKS]; layer++) {
        for (const struct part *part = contents->parts; part->tensors != NULL; part++) {
            if (!part_is_in(contents, part->layers, layer)) continue;
            for (const struct tensor_rule *rule = part->tensors; rule->name != NULL; rule++) {
                struct tensor tensor = make_tensor(contents, rule, layer);
                int code = visit(ud, &tensor, error);
                if (code != 0) return code;
            }
        }
    }
    return 0;
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
    uint64_t seed;
    FILE *file;
    const int32_t *token_types; /* borrowed from the vocabulary; NULL if it has none */
    size_t alignment;
    bool hollow;
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

/* How many numbers are summed for one of the tensor's outputs. */
static int64_t inputs_of(const struct tensor *tensor, const struct range *range)
{
    int64_t inputs = tensor->ne[0];
    for (int i = 1; range->convolves && i < tensor->n_dims - 1; i++) inputs *= tensor->ne[i];
    return inputs;
}

/* A tensor_visitor; `ud` is a struct filler. */
static int fill_tensor(void *ud, const struct tensor *tensor, hearth_error *error)
{
    struct filler *filler = ud;
    const struct range *range = &ranges[tensor->fill];
    float half = range->gain * sqrtf(3.0f / (float)inputs_of(tensor, range));
    float low = range->gain > 0 ? -half : range->low, high = range->gain > 0 ? half : range->high;
    int64_t n = tensor->ne[0], rows = tensor->ne[1] * tensor->ne[2] * tensor->ne[3];
    size_t row_size = ggml_row_size(tensor->type, n), size = row_size * (size_t)rows;
    if (filler->hollow) {
        off_t padded = (off_t)(size + filler->alignment - 1) / (off_t)filler->alignment * (off_t)filler->alignment;
        if (fseeko(filler->file, padded, SEEK_CUR) == 0) return 0;
        return error_set(error, HEARTH_IO, "cannot leave room for %s: %s", tensor->name, strerror(errno));
    }
    uint64_t random = random_stream(filler->seed, tensor->name);

    filler->row = mem_grow(filler->row, (size_t)n, sizeof(float));
    filler->stored = mem_grow(filler->stored, row_size, 1);
    for (int64_t row = 0; row < rows; row++) {
        float scale = row_scale(filler, range, row);
        random_row(filler->row, n, low * scale, high * scale, &random);
        if (range->copies) filler->row[row] += 1;
        ggml_quantize_chunk(tensor->type, filler->row, filler->stored, 0, 1, n, NULL);
        fwrite(filler->stored, 1, row_size, filler->file);
    }
    for (size_t i = size; i % filler->alignment != 0; i++) fputc(0, filler->file);
    return ferror(filler->file) ? error_set(error, HEARTH_IO, "cannot write %s: %s", tensor->name, strerror(errno)) : 0;
}

/* ---- The file ---- */

static const int32_t *token_types_of(const struct gguf_context *vocab, int64_t n_tokens)
{
    int64_t id = gguf_find_key(vocab, "tokenizer.ggml.token_type");
    if (id < 0 || gguf_get_kv_type(vocab, id) != GGUF_TYPE_ARRAY) return NULL;
    if (gguf_get_arr_type(vocab, id) != GGUF_TYPE_INT32 || (int64_t)gguf_get_arr_n(vocab, id) < n_tokens) return NULL;
    return gguf_get_arr_data(vocab, id);
}

static int write_tensors(const struct contents *contents, const struct gguf_context *gguf, FILE *file,
                         hearth_error *error)
{
    struct filler filler = {.seed = contents->seed,
                            .file = file,
                            .token_types = token_types_of(gguf, contents->sizes[SIZE_VOCAB]),
                            .alignment = gguf_get_alignment(gguf),
                            .hollow = contents->hollow};
    int code = each_tensor(contents, fill_tensor, &filler, error);
    bool ends = code != 0 || !contents->hollow || (fflush(file) == 0 && ftruncate(fileno(file), ftello(file)) == 0);
    if (!ends) code = error_set(error, HEARTH_IO, "cannot end the file: %s", strerror(errno));
    free(filler.row);
    free(filler.stored);
    return code;
}

/* Writes a temporary file beside the wanted path and renames it when it is complete. */
static int write_complete(const struct contents *contents, const struct gguf_context *gguf, hearth_error *error)
{
    char *part = mem_format("%s.part", contents->path);
    FILE *file = fopen(part, "wb");
    int code = 0;
    if (file == NULL) {
        code = error_set(error, HEARTH_IO, "cannot create %s: %s", part, strerror(errno));
        goto out;
    }
    if (!gguf_write_to_file_ptr(gguf, file, true)) {
        code = error_set(error, HEARTH_IO, "cannot write %s: %s", part, strerror(errno));
    }
    if (code == 0) code = write_tensors(contents, gguf, file, error);
    if (fclose(file) != 0 && code == 0) {
        code = error_set(error, HEARTH_IO, "cannot write %s: %s", part, strerror(errno));
    }
    if (code == 0 && rename(part, contents->path) != 0) {
        code = error_set(error, HEARTH_IO, "cannot move %s into place: %s", part, strerror(errno));
    }
    if (code != 0) remove(part);
out:
    free(part);
    return code;
}

int file_write(const struct contents *contents, struct gguf_context *gguf, hearth_error *error)
{
    int code = each_tensor(contents, declare_tensor, gguf, error);
    return code == 0 ? write_complete(contents, gguf, error) : code;
}
