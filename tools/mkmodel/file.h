/* Writes a GGUF file of random weights from the rules of arch.h: what models and projectors have in common.
 *
 * The file is a function of the metadata and of struct contents alone: the same of both, the same bytes. */
#ifndef MKMODEL_FILE_H
#define MKMODEL_FILE_H

#include "arch.h"

struct gguf_context;

/* The type of matrices; vectors and tensors that llama.cpp requires in F32 stay F32. */
struct weight_type {
    const char *name; /* --type; NULL ends the table */
    int ggml_type;    /* enum ggml_type */
    uint32_t ftype;   /* enum llama_ftype, for general.file_type */
};

extern const struct weight_type weight_types[];

/* The type of that name, or NULL. */
const struct weight_type *weight_type_find(const char *name);

/* Which tensors a file has, and their numbers. Everything is borrowed. */
struct contents {
    const struct part *parts;
    const int64_t *sizes; /* SIZE_COUNT of them, complete */
    const char *blocks;   /* a tensor of layer N is named BLOCKS.N.NAME */
    const struct weight_type *type;
    uint64_t seed;
    bool hollow;      /* the numbers are left out: a hole, as long as they are */
    const char *path; /* replaced only by a complete file */
};

/* Adds the keys as PREFIX.NAME to `gguf`. */
void file_put_keys(struct gguf_context *gguf, const char *prefix, const struct key *keys,
                   const int64_t sizes[SIZE_COUNT]);

/* Writes the metadata in `gguf`, to which the tensors' descriptions are added, and the tensors. Where it has the types
 * of SIZE_VOCAB tokens, control tokens get small logits. Fails with HEARTH_IO. */
int file_write(const struct contents *contents, struct gguf_context *gguf, hearth_error *error);

#endif
