/* Writes a random-weight model of one architecture with another file's tokenizer as a GGUF file.
 *
 * The file is a function of struct model alone: same fields and same vocabulary, same bytes. */
#ifndef MKMODEL_MODEL_H
#define MKMODEL_MODEL_H

#include "file.h"

struct model {
    const struct arch *arch;
    const struct weight_type *type;
    int64_t sizes[SIZE_COUNT]; /* those set by options; the rest is filled in */
    uint64_t seed;
    bool hollow;               /* contents.hollow */
    int pooling;               /* enum llama_pooling_type; -1: the architecture's own, if it has one */
    const char *vocab_path;    /* a GGUF file with a tokenizer */
    const char *template_path; /* a chat template in place of the vocabulary's own; may be NULL */
    const char *out_path;      /* replaced only by a complete file */
};

/* Fails with HEARTH_INVALID where the sizes are impossible, else with the reason why reading or writing failed. */
int model_write(struct model *model, hearth_error *error);

#endif
