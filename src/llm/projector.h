/* A multimodal projector (mmproj): turns images, frames of video and sounds into rows that a text model computes like
 * tokens, through llama.cpp's libmtmd, whose exceptions end here.
 *
 * A medium becomes chunks: runs of text tokens (the marks around it) and runs of rows, in the order in which the model
 * reads them. A long sound, or an image that is cut into tiles, has several runs of rows. Cutting a medium into chunks
 * needs its pixels or samples; how many rows there are, and at which positions, is known then; the rows themselves take
 * the encoder. Rows are the same for the same content under the same projector and settings, so that rows which are
 * kept need not be encoded again. */
#ifndef LLM_PROJECTOR_H
#define LLM_PROJECTOR_H

#include "hearth.h"
#include "llm/threads.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct llm_model;
struct llm_projector;
struct llm_medium;

struct llm_projector_params {
    const char *path;
    struct llm_threads threads;
    bool on_gpu;
    const char *flash_attention;    /* auto | on | off */
    int32_t min_tokens, max_tokens; /* rows of an image, where its size decides; 0: as the file says */
};

/* The media that a projector's file is for. HEARTH_INVALID: it is no projector. */
struct llm_projector_kinds {
    bool images, sounds;
};

int llm_projector_inspect(const char *path, struct llm_projector_kinds *kinds, hearth_error *error);

struct llm_projector_facts {
    bool images, sounds;
    bool mrope;           /* rows of an image have positions in two dimensions */
    uint32_t sample_rate; /* that sounds must have; 0 without */
    size_t row_floats;    /* of one row */
};

/* The projector of this model; it must be closed before it. NULL: the file is damaged, or belongs to another model. */
struct llm_projector *llm_projector_open(const struct llm_model *model, const struct llm_projector_params *params,
                                         hearth_error *error);
void llm_projector_close(struct llm_projector *projector);
const struct llm_projector_facts *llm_projector_facts_of(const struct llm_projector *projector);

/* ---- A medium: any thread ---- */

/* Pixels row by row, red, green and blue; samples of one channel at the projector's rate, two at least. Nothing is kept
 * of them but what the encoder needs. NULL: the projector does not take such media, or cannot take this one. */
struct llm_medium *llm_medium_of_image(const struct llm_projector *projector, const uint8_t *rgb, uint32_t width,
                                       uint32_t height, hearth_error *error);
struct llm_medium *llm_medium_of_sound(const struct llm_projector *projector, const float *samples, size_t n,
                                       hearth_error *error);

/* Frames of a video, `fps` of them a second. The model gets images with time stamps between them, in the form that
 * llama.cpp's helper gives them. Some projectors make one of two that follow each other. */
struct llm_frame {
    const uint8_t *rgb;
    uint32_t width, height;
};

struct llm_medium *llm_medium_of_frames(const struct llm_projector *projector, const struct llm_frame *frames, size_t n,
                                        double fps, hearth_error *error);
void llm_medium_close(struct llm_medium *medium);

struct llm_chunk {
    const int32_t *tokens; /* text; NULL: rows */
    int32_t n;             /* tokens or rows */
    int32_t n_pos;         /* positions that they take; with M-RoPE an image takes fewer than it has rows */
    bool causal; /* false: its rows see each other, and must be computed in one decode call, in one micro-batch */
};

size_t llm_medium_chunks(const struct llm_medium *medium);
struct llm_chunk llm_medium_chunk(const struct llm_medium *medium, size_t i);

/* Where a row looks from: time, and with M-RoPE the place in the image. */
struct llm_place {
    int32_t t, y, x;
};

/* The place of row `row` of a chunk that begins at position `first`; without M-RoPE first + row in each direction. */
struct llm_place llm_medium_place(const struct llm_medium *medium, size_t chunk, int32_t first, int32_t row);

/* Encodes a chunk of rows into `rows`: n x row_floats. One at a time per projector, others wait; beside decode calls.
 */
int llm_medium_encode(struct llm_projector *projector, const struct llm_medium *medium, size_t chunk, float *rows,
                      hearth_error *error);

#ifdef __cplusplus
}
#endif

#endif
