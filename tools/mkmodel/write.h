/* Writes a random-weight model of one architecture with another file's tokenizer as a GGUF file.
 *
 * The file is a function of struct model alone: same fields and same vocabulary, same bytes. */
#ifndef MKMODEL_WRITE_H
#define MKMODEL_WRITE_H

#include "arch.h"

/* The type of matrices; vectors and tensors that llama.cpp requires in F32 stay F32. */
struct weight_type {
    const char *name; /* --type; NULL ends the table */
    int ggml_type;    /* enum ggml_type */
    uint32_t ftype;   /* enum llama_ftype, for general.file_type */
};

extern const struct weight_type weight_types[];

struct model {
    const struct arch *arch;
    const struct weight_type *type;
    int64_t sizes[SIZE_COUNT]; /* those set by options; the rest is filled in */
    uint64_t seed;
    int pooling;               /* enum llama_pooling_type; -1: the architecture's own, if it has one */
    const char *vocab_path;    /* a GGUF file with a tokenizer */
    const char *template_path; /* a chat template in place of the vocabulary's own; may be NULL */
    const char *out_path;      /* replaced only by a complete file */
};

/* Fails with HEARTH_INVALID where the sizes are impossible, else with the reason why reading or writing failed. */
int model_write(struct model *model, hearth_error *error);

#endif
