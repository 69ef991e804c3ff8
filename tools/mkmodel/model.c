/* Gathers a model's metadata: the architecture's keys and another file's tokenizer. One thread; no state outlives
 * model_write(). */
#include "model.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <gguf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        file_put_keys(gguf, arch->gguf, *keys, model->sizes);
    }
    const struct key pooling[] = {{"pooling_type", KEY_U32, SIZE_END, model->pooling}, {0}};
    if (model->pooling >= 0) file_put_keys(gguf, arch->gguf, pooling, model->sizes);
    const struct key rope[] = {{"rope.freq_base", KEY_F32, SIZE_END, arch->rope_base}, {0}};
    if (arch->rope_base > 0) file_put_keys(gguf, arch->gguf, rope, model->sizes);
    gguf_set_kv(gguf, vocab);
    if (arch->sizes[SIZE_TOKEN_TYPES] > 0) {
        /* Named like the tokenizer's keys, but a size of a tensor of the model. */
        gguf_set_val_u32(gguf, "tokenizer.ggml.token_type_count", (uint32_t)model->sizes[SIZE_TOKEN_TYPES]);
    }
    return model->template_path == NULL ? 0 : put_template(gguf, model->template_path, error);
}

int model_write(struct model *model, hearth_error *error)
{
    struct gguf_context *vocab = NULL;
    int code = open_vocab(model, &vocab, error);
    if (code != 0) return code;
    struct gguf_context *gguf = gguf_init_empty();
    code = arch_resolve(model->arch, model->sizes, error);
    if (code == 0) code = put_metadata(gguf, model, vocab, error);
    const struct contents contents = {.parts = model->arch->parts,
                                      .hollow = model->hollow,
                                      .sizes = model->sizes,
                                      .blocks = "blk",
                                      .type = model->type,
                                      .seed = model->seed,
                                      .path = model->out_path};
    if (code == 0) code = file_write(&contents, gguf, error);
    gguf_free(gguf);
    gguf_free(vocab);
    return code;
}
