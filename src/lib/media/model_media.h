/* What a model needs for images, sound and video: its projector, and the encoder that its requests share. Opened and
 * closed by the thread that loads the model; in between any thread may use it. */
#ifndef LIB_MEDIA_MODEL_MEDIA_H
#define LIB_MEDIA_MODEL_MEDIA_H

#include "lib/media/encoder.h"
#include "lib/media/layouts.h"
#include "lib/media/stored_encodings.h"
#include "llm/projector.h"
#include "media/media.h"

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

/* Nobody wants an encoding any more. Waits for those that are being stored, save_timeout_ns at most. NULL is fine. */
void model_media_close(struct model_media *media);

#endif
