/* The architectures that hearth-mkmodel can write, as data: sizes, metadata keys and tensors, one row each. The rows of
 * projectors (projector.c) are made of the same keys and tensors.
 *
 * A row names lengths by `enum size`; arch_resolve() turns the options, the row's defaults and the vocabulary into
 * numbers. Everything here is constant, so any thread may read it. */
#ifndef MKMODEL_ARCH_H
#define MKMODEL_ARCH_H

#include "hearth.h"

#include <stdbool.h>
#include <stdint.h>

/* Every size that a key or a tensor can have. */
enum size {
    SIZE_END, /* ends a tensor's dimensions */

    /* Set by options; in a row, the default. 0: not part of the architecture. */
    SIZE_LAYERS,
    SIZE_EMBD,
    SIZE_HEADS,
    SIZE_KV_HEADS,
    SIZE_HEAD_DIM,
    SIZE_FF, /* of one expert, where there are experts */
    SIZE_CTX,
    SIZE_EXPERTS,
    SIZE_SWA,

    /* Fixed by the row. */
    SIZE_PERIOD, /* every n-th layer attends to the whole sequence; the others are recurrent or have a sliding window */
    SIZE_ROTARY_PART, /* n: one n-th of a head is rotated */
    SIZE_KERNEL,      /* of the convolution before a recurrent layer, or over the frames of a sound */
    SIZE_STATE,       /* of a recurrent head */
    SIZE_GROUPS,      /* recurrent heads that share B and C (or K and Q) */
    SIZE_MTP,         /* 1: an MTP head follows the layers, itself one that attends */
    SIZE_TOKEN_TYPES,
    SIZE_IMAGE, /* of projectors: the width and height, in pixels, of every image, or of images in general */
    SIZE_PATCH, /* pixels of a patch, either way */
    SIZE_MERGE, /* patches that become one token, either way; of sound the frames that do */
    SIZE_MEL,   /* numbers of a frame of sound */
    SIZE_POSITIONS,
    SIZE_CHANNELS,

    /* Computed. */
    SIZE_VOCAB,
    SIZE_Q,
    SIZE_Q_GATED, /* queries and the gates of their outputs in one matrix */
    SIZE_KV,
    SIZE_EXPERTS_USED,
    SIZE_ROTARY,
    SIZE_BLOCKS, /* layers, and the MTP head */
    SIZE_EMBD_2,
    SIZE_EMBD_3,
    SIZE_SSM_HEADS,
    SIZE_INNER,
    SIZE_INNER_GROUP,
    SIZE_CONV,
    SIZE_SSM_IN,
    SIZE_MERGED, /* of what becomes one token of a medium */
    SIZE_FF_2,
    SIZE_MODEL_EMBD, /* of the model that a projector is for */
    SIZE_ONE,

    SIZE_COUNT
};

/* In a row: without the option, SIZE_HEAD_DIM is embedding / heads, and SIZE_KV_HEADS is heads. */
#define SIZE_DERIVED (-1)

/* The distribution of a tensor's random numbers; write.c has the reasons. */
enum fill {
    FILL_MATRIX,
    FILL_QK,             /* makes queries and keys */
    FILL_ATTENTION,      /* the output of attention */
    FILL_ROUTER,         /* chooses experts */
    FILL_EMBEDDING,      /* one row a token */
    FILL_TIED_EMBEDDING, /* one row a token, the output too */
    FILL_OUTPUT,         /* one row a token: the logits */
    FILL_POSITION,       /* one row a position */
    FILL_CONV,
    FILL_KERNEL,     /* a convolution over all channels; the last length counts its outputs */
    FILL_PROJECTION, /* makes what takes the place of tokens' embeddings */
    FILL_FIRST_HALF, /* gives the first half of its inputs, and a little of all of them */
    FILL_ONE,
    FILL_QUIET, /* a norm between attention and the residual stream */
    FILL_LOUD,  /* the last norm before a tied output */
    FILL_BIAS,
    FILL_DECAY, /* below 0: the decay of a recurrent state */
    FILL_STEP,  /* bias of a recurrent layer's time step */
};

struct tensor_rule {
    const char *name; /* without "blk.N." (of projectors "v.blk.N." or "a.blk.N."); NULL ends a list */
    enum size ne[4];
    enum fill fill;
};

enum layers { LAYERS_NONE, LAYERS_EVERY, LAYERS_ATTENTION, LAYERS_RECURRENT, LAYERS_MTP };

/* Tensors that belong together, and the layers that have them; LAYERS_NONE: they are outside the layers. */
struct part {
    enum layers layers;
    const struct tensor_rule *tensors; /* NULL ends a list */
};

enum key_kind {
    KEY_SIZE,         /* u32: the length `size` */
    KEY_U32,          /* u32: `value` */
    KEY_F32,          /* f32: `value` */
    KEY_BOOL,         /* bool: `value` */
    KEY_SECTIONS,     /* i32[4]: the rotated pairs of a head by kind of position (M-RoPE) */
    KEY_SIZE_OR_NONE, /* u32[layers]: the length `size` in attention layers, 0 in recurrent ones */
    KEY_LAYERS,       /* i32[3]: the first, a middle and the last layer of a model of `value` layers */
    KEY_RGB           /* f32[3]: `value` for red, green and blue */
};

struct key {
    const char *name; /* without "ARCH." (of projectors "clip.vision." or "clip.audio."); NULL ends a list */
    enum key_kind kind;
    enum size size;
    double value;
};

struct arch {
    const char *name;  /* --arch; NULL ends the table */
    const char *gguf;  /* general.architecture */
    const char *about; /* for --help */
    int32_t sizes[SIZE_VOCAB];
    bool square; /* heads x head size must be the embedding's length */
    double rope_base;
    const struct key *keys[10];
    struct part parts[13];
};

extern const struct arch arch_table[];

/* The row of that name, or NULL. */
const struct arch *arch_find(const char *name);

/* Whether `layer` of the model is one that LAYERS_ATTENTION names. */
bool arch_layer_attends(const int64_t sizes[SIZE_COUNT], int64_t layer);

/* Completes `sizes`: on entry those set by options (0: not set) and SIZE_VOCAB, on return every size. Fails with
 * HEARTH_INVALID, with the option in `param`, where llama.cpp could not load or run such a model. */
int arch_resolve(const struct arch *arch, int64_t sizes[SIZE_COUNT], hearth_error *error);

#endif
