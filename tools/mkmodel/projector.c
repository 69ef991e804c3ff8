/* The table of projectors: the metadata and tensors that llama.cpp v0.5.0's libmtmd requires of each, and tiny sizes.
 * Between them they have what a cache must tell apart: a number of tokens that is fixed or depends on the medium, rows
 * of two dimensions (M-RoPE), attention that is not causal, several chunks of one medium. One thread; no state outlives
 * projector_write(). */
#include "projector.h"

#include "base/error.h"
#include "base/memory.h"
#include "file.h"

#include <gguf.h>
#include <stdlib.h>
#include <string.h>

/* ---- Keys ---- */

static const struct key encoder_keys[] = {
    {"embedding_length", KEY_SIZE, SIZE_EMBD, 0},
    {"feed_forward_length", KEY_SIZE, SIZE_FF, 0},
    {"block_count", KEY_SIZE, SIZE_LAYERS, 0},
    {"projection_dim", KEY_SIZE, SIZE_MODEL_EMBD, 0},
    {"attention.head_count", KEY_SIZE, SIZE_HEADS, 0},
    {"attention.layer_norm_epsilon", KEY_F32, SIZE_END, 1e-6},
    {0},
};

static const struct key image_keys[] = {
    {"image_size", KEY_SIZE, SIZE_IMAGE, 0},
    {"patch_size", KEY_SIZE, SIZE_PATCH, 0},
    {"image_mean", KEY_RGB, SIZE_END, 0.5},
    {"image_std", KEY_RGB, SIZE_END, 0.5},
    {0},
};

static const struct key sound_keys[] = {{"num_mel_bins", KEY_SIZE, SIZE_MEL, 0}, {0}};

static const struct key qwen2vl_keys[] = {{"spatial_merge_size", KEY_SIZE, SIZE_MERGE, 0}, {0}};

static const struct key gemma3_keys[] = {{"projector.scale_factor", KEY_SIZE, SIZE_MERGE, 0}, {0}};

static const struct key whisper_keys[] = {{"projector.stack_factor", KEY_SIZE, SIZE_MERGE, 0}, {0}};

/* ---- Tensors ---- */

static const struct tensor_rule patches[] = {
    {"v.patch_embd.weight", {SIZE_PATCH, SIZE_PATCH, SIZE_CHANNELS, SIZE_EMBD}, FILL_KERNEL},
    {0},
};

static const struct tensor_rule image_positions[] = {
    {"v.position_embd.weight", {SIZE_EMBD, SIZE_POSITIONS}, FILL_POSITION},
    {0},
};

static const struct tensor_rule image_norm[] = {
    {"v.post_ln.weight", {SIZE_EMBD}, FILL_ONE},
    {"v.post_ln.bias", {SIZE_EMBD}, FILL_BIAS},
    {0},
};

static const struct tensor_rule attention[] = {
    {"ln1.weight", {SIZE_EMBD}, FILL_ONE},
    {"ln1.bias", {SIZE_EMBD}, FILL_BIAS},
    {"attn_q.weight", {SIZE_EMBD, SIZE_EMBD}, FILL_QK},
    {"attn_q.bias", {SIZE_EMBD}, FILL_BIAS},
    {"attn_k.weight", {SIZE_EMBD, SIZE_EMBD}, FILL_QK},
    {"attn_v.weight", {SIZE_EMBD, SIZE_EMBD}, FILL_MATRIX},
    {"attn_v.bias", {SIZE_EMBD}, FILL_BIAS},
    {"attn_out.weight", {SIZE_EMBD, SIZE_EMBD}, FILL_MATRIX},
    {"attn_out.bias", {SIZE_EMBD}, FILL_BIAS},
    {0},
};

/* Images have it, sounds must not. */
static const struct tensor_rule key_bias[] = {{"attn_k.bias", {SIZE_EMBD}, FILL_BIAS}, {0}};

static const struct tensor_rule ffn[] = {
    {"ln2.weight", {SIZE_EMBD}, FILL_ONE},
    {"ln2.bias", {SIZE_EMBD}, FILL_BIAS},
    {"ffn_up.weight", {SIZE_EMBD, SIZE_FF}, FILL_MATRIX},
    {"ffn_up.bias", {SIZE_FF}, FILL_BIAS},
    {"ffn_down.weight", {SIZE_FF, SIZE_EMBD}, FILL_MATRIX},
    {"ffn_down.bias", {SIZE_EMBD}, FILL_BIAS},
    {0},
};

static const struct tensor_rule llava[] = {
    {"v.class_embd", {SIZE_EMBD}, FILL_POSITION}, {"v.pre_ln.weight", {SIZE_EMBD}, FILL_ONE},
    {"v.pre_ln.bias", {SIZE_EMBD}, FILL_BIAS},    {"mm.0.weight", {SIZE_EMBD, SIZE_FF}, FILL_MATRIX},
    {"mm.0.bias", {SIZE_FF}, FILL_BIAS},          {"mm.2.weight", {SIZE_FF, SIZE_MODEL_EMBD}, FILL_PROJECTION},
    {"mm.2.bias", {SIZE_MODEL_EMBD}, FILL_BIAS},  {0},
};

/* The second kernel is for the other of two frames of a video; a still image is both. */
static const struct tensor_rule qwen2vl[] = {
    {"v.patch_embd.weight.1", {SIZE_PATCH, SIZE_PATCH, SIZE_CHANNELS, SIZE_EMBD}, FILL_KERNEL},
    {"mm.0.weight", {SIZE_MERGED, SIZE_MERGED}, FILL_MATRIX},
    {"mm.0.bias", {SIZE_MERGED}, FILL_BIAS},
    {"mm.2.weight", {SIZE_MERGED, SIZE_MODEL_EMBD}, FILL_PROJECTION},
    {"mm.2.bias", {SIZE_MODEL_EMBD}, FILL_BIAS},
    {0},
};

/* The projection is stored transposed. */
static const struct tensor_rule gemma3[] = {
    {"v.patch_embd.bias", {SIZE_EMBD}, FILL_BIAS},
    {"mm.soft_emb_norm.weight", {SIZE_EMBD}, FILL_ONE},
    {"mm.input_projection.weight", {SIZE_MODEL_EMBD, SIZE_EMBD}, FILL_PROJECTION},
    {0},
};

static const struct tensor_rule audio[] = {
    {"mm.a.input_projection.weight", {SIZE_MEL, SIZE_MODEL_EMBD}, FILL_PROJECTION},
    {0},
};

static const struct tensor_rule whisper[] = {
    {"a.conv1d.1.weight", {SIZE_KERNEL, SIZE_MEL, SIZE_EMBD}, FILL_KERNEL},
    {"a.conv1d.1.bias", {SIZE_ONE, SIZE_EMBD}, FILL_BIAS},
    {"a.conv1d.2.weight", {SIZE_KERNEL, SIZE_EMBD, SIZE_EMBD}, FILL_KERNEL},
    {"a.conv1d.2.bias", {SIZE_ONE, SIZE_EMBD}, FILL_BIAS},
    {"a.position_embd.weight", {SIZE_EMBD, SIZE_POSITIONS}, FILL_POSITION},
    {"a.post_ln.weight", {SIZE_EMBD}, FILL_ONE},
    {"a.post_ln.bias", {SIZE_EMBD}, FILL_BIAS},
    {"mm.a.norm_pre.weight", {SIZE_MERGED}, FILL_ONE},
    {"mm.a.mlp.1.weight", {SIZE_MERGED, SIZE_FF_2}, FILL_MATRIX},
    {"mm.a.norm_mid.weight", {SIZE_FF}, FILL_ONE},
    {"mm.a.mlp.2.weight", {SIZE_FF, SIZE_MODEL_EMBD}, FILL_PROJECTION},
    {0},
};

/* ---- Projectors ---- */

/* The feed-forward part must not be as long as the embedding, or libmtmd takes its matrices for swapped ones. Of the
 * last of llava's layers nothing is computed. */
#define ENCODER(layers)                                                                                                \
    [SIZE_LAYERS] = (layers), [SIZE_EMBD] = 32, [SIZE_HEADS] = 2, [SIZE_FF] = 64, [SIZE_CHANNELS] = 3

const struct projector_kind projector_kinds[] = {
    {.name = "llava",
     .type = "mlp",
     .about = "images of 16 tokens, whatever their size",
     .encoder = "vision",
     .sizes = {ENCODER(2), [SIZE_IMAGE] = 56, [SIZE_PATCH] = 14, [SIZE_POSITIONS] = 16 + 1}, /* and the class */
     .keys = {encoder_keys, image_keys},
     .parts = {{LAYERS_NONE, patches},
               {LAYERS_NONE, image_positions},
               {LAYERS_NONE, llava},
               {LAYERS_EVERY, attention},
               {LAYERS_EVERY, key_bias},
               {LAYERS_EVERY, ffn}}},
    {.name = "qwen2vl",
     .type = "qwen2vl_merger",
     .about = "images of a token for 28 x 28 pixels, 8 to 4096; with M-RoPE for an --arch qwen2vl or qwen35",
     .encoder = "vision",
     .sizes = {ENCODER(1), [SIZE_IMAGE] = 56, [SIZE_PATCH] = 14, [SIZE_MERGE] = 2},
     .keys = {encoder_keys, image_keys, qwen2vl_keys},
     .parts = {{LAYERS_NONE, patches},
               {LAYERS_NONE, image_norm},
               {LAYERS_NONE, qwen2vl},
               {LAYERS_EVERY, attention},
               {LAYERS_EVERY, key_bias},
               {LAYERS_EVERY, ffn}}},
    {.name = "gemma3",
     .type = "gemma3",
     .about = "images of 16 tokens, whatever their size, which attend to each other both ways",
     .encoder = "vision",
     .sizes = {ENCODER(1), [SIZE_IMAGE] = 112, [SIZE_PATCH] = 14, [SIZE_MERGE] = 2, [SIZE_POSITIONS] = 64},
     .keys = {encoder_keys, image_keys, gemma3_keys},
     .parts = {{LAYERS_NONE, patches},
               {LAYERS_NONE, image_positions},
               {LAYERS_NONE, image_norm},
               {LAYERS_NONE, gemma3},
               {LAYERS_EVERY, attention},
               {LAYERS_EVERY, key_bias},
               {LAYERS_EVERY, ffn}}},
    {.name = "audio",
     .type = "gemma4ua",
     .about = "sound of 25 tokens a second, without an encoder",
     .encoder = "audio",
     .sizes = {ENCODER(0), [SIZE_MEL] = 640},
     .keys = {encoder_keys, sound_keys},
     .parts = {{LAYERS_NONE, audio}}},
    {.name = "whisper",
     .type = "ultravox",
     .about = "sound in chunks of 30 seconds, padded, of 50 tokens each; some 100 ms a chunk",
     .encoder = "audio",
     /* libmtmd ends the process where the merged frames do not divide the positions. */
     .sizes = {ENCODER(1), [SIZE_MEL] = 16, [SIZE_KERNEL] = 3, [SIZE_POSITIONS] = 1500, [SIZE_MERGE] = 30},
     .keys = {encoder_keys, sound_keys, whisper_keys},
     .parts = {{LAYERS_NONE, whisper}, {LAYERS_EVERY, attention}, {LAYERS_EVERY, ffn}}},
    {0},
};

const struct projector_kind *projector_find(const char *name)
{
    for (const struct projector_kind *kind = projector_kinds; kind->name != NULL; kind++) {
        if (strcmp(kind->name, name) == 0) return kind;
    }
    return NULL;
}

/* ---- Writing ---- */

/* The length of the embeddings of a GGUF file's model; 0 where it is none. */
static int64_t embd_of(const char *path)
{
    struct gguf_context *model = gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = true});
    if (model == NULL) return 0;
    int64_t embd = 0, id = gguf_find_key(model, "general.architecture");
    if (id >= 0 && gguf_get_kv_type(model, id) == GGUF_TYPE_STRING) {
        char *key = mem_format("%s.embedding_length", gguf_get_val_str(model, id));
        id = gguf_find_key(model, key);
        if (id >= 0 && gguf_get_kv_type(model, id) == GGUF_TYPE_UINT32) embd = gguf_get_val_u32(model, id);
        free(key);
    }
    gguf_free(model);
    return embd;
}

static void resolve(const struct projector *projector, int64_t sizes[SIZE_COUNT])
{
    const int64_t given[SIZE_VOCAB] = {[SIZE_LAYERS] = projector->layers,
                                       [SIZE_EMBD] = projector->embd,
                                       [SIZE_HEADS] = projector->heads,
                                       [SIZE_FF] = projector->ff};
    for (int i = 0; i < SIZE_VOCAB; i++) sizes[i] = given[i] > 0 ? given[i] : projector->kind->sizes[i];
    bool patched = sizes[SIZE_PATCH] > 0;
    int64_t merged = patched ? sizes[SIZE_MERGE] * sizes[SIZE_MERGE] : sizes[SIZE_MERGE];
    sizes[SIZE_MERGED] = merged * sizes[SIZE_EMBD];
    sizes[SIZE_FF_2] = 2 * sizes[SIZE_FF];
    sizes[SIZE_ONE] = 1;
    sizes[SIZE_BLOCKS] = sizes[SIZE_LAYERS];
}

static void put_metadata(struct gguf_context *gguf, const struct projector_kind *kind, const struct weight_type *type,
                         const int64_t sizes[SIZE_COUNT])
{
    char *name = mem_format("hearth test %s projector", kind->name);
    char *has_encoder = mem_format("clip.has_%s_encoder", kind->encoder);
    char *prefix = mem_format("clip.%s", kind->encoder);
    gguf_set_val_str(gguf, "general.architecture", "clip");
    gguf_set_val_str(gguf, "general.type", "mmproj");
    gguf_set_val_str(gguf, "general.name", name);
    gguf_set_val_u32(gguf, "general.file_type", type->ftype);
    gguf_set_val_str(gguf, "clip.projector_type", kind->type);
    gguf_set_val_bool(gguf, "clip.use_gelu", true);
    gguf_set_val_bool(gguf, has_encoder, true);
    for (const struct key *const *keys = kind->keys; *keys != NULL; keys++) file_put_keys(gguf, prefix, *keys, sizes);
    free(name);
    free(has_encoder);
    free(prefix);
}

/* Matrices are in F16, as in published files: llama.cpp's one-dimensional convolutions take no F32. */
int projector_write(const struct projector *projector, hearth_error *error)
{
    const struct weight_type *type = weight_type_find("f16");
    int64_t sizes[SIZE_COUNT] = {[SIZE_MODEL_EMBD] = embd_of(projector->model_path)};
    if (sizes[SIZE_MODEL_EMBD] == 0) {
        return error_set(error, HEARTH_IO, "%s is not a GGUF file with a model: give --for another file",
                         projector->model_path);
    }
    resolve(projector, sizes);
    struct gguf_context *gguf = gguf_init_empty();
    put_metadata(gguf, projector->kind, type, sizes);
    const struct contents contents = {
        .parts = projector->kind->parts,
        .sizes = sizes,
        .blocks = strcmp(projector->kind->encoder, "vision") == 0 ? "v.blk" : "a.blk",
        .type = type,
        .seed = projector->seed,
        .path = projector->out_path,
    };
    int code = file_write(&contents, gguf, error);
    gguf_free(gguf);
    return code;
}
