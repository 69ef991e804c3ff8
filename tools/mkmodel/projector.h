/* Writes a multimodal projector with random weights for an existing model: the file beside the model with which
 * libmtmd turns images or sounds into embeddings. Encoding one takes milliseconds in the kind's own
 * sizes, and two that differ have different embeddings. The file is a function of struct projector and of the length of
 * the model's embeddings alone. */
#ifndef MKMODEL_PROJECTOR_H
#define MKMODEL_PROJECTOR_H

#include "arch.h"

/* A kind of projector, as data. */
struct projector_kind {
    const char *name;    /* --mmproj; NULL ends the table */
    const char *type;    /* clip.projector_type */
    const char *about;   /* for --help */
    const char *encoder; /* "vision" or "audio" */
    int32_t sizes[SIZE_VOCAB];
    const struct key *keys[4];
    struct part parts[12];
};

extern const struct projector_kind projector_kinds[];

/* The row of that name, or NULL. */
const struct projector_kind *projector_find(const char *name);

struct projector {
    const struct projector_kind *kind;
    const char *model_path; /* a GGUF file with a model */
    const char *out_path;   /* replaced only by a complete file */
    uint64_t seed;
    int64_t layers, embd, heads, ff; /* of the encoder; 0: the kind's own */
};

/* Fails with HEARTH_IO where the model cannot be read or the file cannot be written. */
int projector_write(const struct projector *projector, hearth_error *error);

#endif
