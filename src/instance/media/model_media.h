/* The projector of a model, for images, sound and video, and the encoder that its requests share. The thread that loads
 * the model opens and closes them; in between any thread may use them. Layouts of media say of which runs of tokens and
 * rows an image or a sound consists, which follows from its content and the projector alone. They are remembered, so
 * that a file which comes with every turn of a conversation is decoded once. Reading an image is decoding it and
 * cutting it into chunks; the price of that decides which thread does it.
 *
 * Layouts are immutable and counted, one mutex guards the table of them, and prices of images are process-wide: any
 * thread. */
#ifndef INSTANCE_MEDIA_MODEL_MEDIA_H
#define INSTANCE_MEDIA_MODEL_MEDIA_H

#include "base/sha256.h"
#include "instance/media/encoder.h"
#include "llm/projector.h"
#include "media/media.h"

/* ---- Layouts ---- */

struct layout_chunk {
    int32_t *tokens; /* text; NULL: rows */
    int32_t n, n_pos;
    bool causal;
    struct llm_place *places; /* of n rows, for a chunk that begins at position 0; NULL: positions have one dimension */
};

struct media_layout {
    _Atomic int refs;
    size_t n;
    struct layout_chunk v[];
};

/* Of a medium that was cut into chunks; the caller holds it. */
struct media_layout *layout_of(const struct llm_medium *medium, bool mrope);
void layout_release(struct media_layout *layout); /* NULL is fine */

struct layouts;

/* The layout of a file with this digest, which the caller then holds. NULL: it is not known. */
struct media_layout *layouts_find(struct layouts *layouts, const uint8_t digest[SHA256_BYTES]);

/* Remembers it, in the place of the one that was used least recently. */
void layouts_add(struct layouts *layouts, const uint8_t digest[SHA256_BYTES], struct media_layout *layout);

/* ---- The media of a model ---- */

struct model_media {
    struct llm_projector *projector;
    struct stored_encodings *stored; /* NULL: there is no store */
    int64_t save_timeout_ns;
    struct encoder *encoder;
    struct layouts *layouts;
    uint8_t key[SHA256_BYTES]; /* of the projector's file and of all that its rows depend on beside the medium */
    struct media_image_limits images;
    struct media_sound_limits sounds;
    struct media_video_limits videos;
    int32_t most_at_once; /* rows of one decode call: n_ubatch */
};

struct model_media_params {
    const struct llm_model *weights;
    struct llm_projector_params projector;
    struct media_image_limits images;
    struct media_video_limits videos;
    bool deterministic;       /* the same bits, whatever was kept */
    uint32_t most_seconds;    /* of a sound */
    size_t budget;            /* bytes of encodings that are kept in memory */
    struct store *store;      /* where encodings are kept as well; NULL: nowhere */
    struct file_watch *watch; /* of the projector's file among others, opened before it was read; NULL: none */
    int64_t save_timeout_ns;
    const char *name; /* of the model, for listings of the store */
    struct encoder_stats *stats;
    int32_t n_ubatch;
};

/* NULL: the file is no projector of this model, or cannot be read. Hashes the file, which takes as long as reading it.
 */
struct model_media *model_media_open(const struct model_media_params *params, hearth_error *error);

/* Every encoding must have been given back. Waits for those that are being stored, save_timeout_ns at most. NULL is
 * fine. */
void model_media_close(struct model_media *media);

/* ---- Images ---- */

/* Pixels of an image that the model takes, as its header says; 0: it is none, or one that is refused when it is read.
 */
uint64_t image_pixels(const struct model_media *model, const struct media_bytes *bytes);

/* Nanoseconds that reading an image of so many pixels will take, by what others took. */
int64_t image_expect_ns(uint64_t pixels);

/* Large ones are read one after the other, in the order of their arrival, since each has its pixels in memory. One that
 * is wanted no more when its turn comes is not read. `stop` may be NULL. The caller closes the chunks. */
struct llm_medium *image_read(const struct model_media *model, const struct media_bytes *bytes,
                              const struct media_stop *stop, hearth_error *error);

#endif
