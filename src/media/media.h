/* Decodes images, sound, video and documents to pixels, samples and text, and finds their formats and sizes before. The
 * decoders are well-kept libraries and programs; BMP alone is decoded here. Limits hold before memory or time is spent.
 * Nothing here knows of models.
 *
 * The first bytes of an upload decide what it is, never a name or a type that came with it. Pure functions; any
 * thread. */
#ifndef MEDIA_MEDIA_H
#define MEDIA_MEDIA_H

#include "base/buf.h"
#include "hearth.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum media_format {
    MEDIA_UNKNOWN,
    MEDIA_PNG,
    MEDIA_JPEG,
    MEDIA_WEBP,
    MEDIA_GIF,
    MEDIA_BMP,
    MEDIA_WAV,
    MEDIA_MP3,
    MEDIA_FLAC,
    MEDIA_VIDEO, /* MP4 and its relatives, Matroska, WebM, AVI, Ogg: read by a program of the machine */
    MEDIA_PDF    /* and so are these */
};

enum media_kind { MEDIA_NOTHING, MEDIA_IMAGE, MEDIA_AUDIO, MEDIA_FRAMES, MEDIA_DOCUMENT };

/* Whether who waits for something that takes long still wants it; called several times a second, on the thread that
 * works. Where a pointer to one is NULL, it goes on. */
struct media_stop {
    bool (*is_wanted_no_more)(void *ud);
    void *ud;
};

static inline bool media_has_to_stop(const struct media_stop *stop)
{
    return stop != NULL && stop->is_wanted_no_more(stop->ud);
}

/* Bytes of a file. */
struct media_bytes {
    const uint8_t *v;
    size_t len;
};

enum media_format media_format_of(const struct media_bytes *bytes);
enum media_kind media_kind_of(enum media_format format);
const char *media_format_name(enum media_format format); /* "PNG", …; "file of an unknown type" */

/* ---- Images ---- */

/* Pixels row by row, red, green and blue, one byte each; transparent ones as on white. */
struct media_image {
    uint32_t width, height;
    uint8_t *rgb; /* width x height x 3; free() it */
};

struct media_image_limits {
    uint32_t most_pixels; /* of width x height */
    uint32_t most_side;
};

/* The size that the header announces, without decoding. HEARTH_INVALID: it is no image, or a damaged one;
 * HEARTH_TOO_LONG: the limits forbid it. `image->rgb` is NULL. */
int media_image_measure(const struct media_bytes *bytes, const struct media_image_limits *limits,
                        struct media_image *image, hearth_error *error);

/* Decodes the image; of several frames, the first. Turned upright, where a JPEG says how. */
int media_image_decode(const struct media_bytes *bytes, const struct media_image_limits *limits,
                       struct media_image *image, hearth_error *error);

/* ---- Sound ---- */

/* One channel. */
struct media_sound {
    float *samples; /* free() it */
    size_t n;
    uint32_t rate; /* samples a second */
};

struct media_sound_limits {
    uint32_t rate;         /* that the samples are brought to */
    uint32_t most_seconds; /* of what the file holds */
};

/* How long the sound is, as its header says. HEARTH_INVALID: it is no sound, or a damaged one. */
int media_sound_measure(const struct media_bytes *bytes, double *seconds, hearth_error *error);

/* Decodes the sound, mixes its channels to one and resamples it, unless it has to stop before. Blocks for up to a
 * second for each minute of the sound. */
int media_sound_decode(const struct media_bytes *bytes, const struct media_sound_limits *limits,
                       const struct media_stop *stop, struct media_sound *sound, hearth_error *error);

/* ---- Video ---- */

/* Some of its frames, evenly spaced, the first of them at 0 s. */
struct media_video {
    struct media_image *frames;
    size_t n;
    double fps; /* of these frames */
};

struct media_video_limits {
    double fps;         /* as many a second, */
    size_t most_frames; /* unless these would be more: then every second one, every fourth, … */
    uint32_t most_side; /* of a frame: larger ones are made smaller */
    bool unconfined;    /* the program may run where the kernel cannot confine it */
};

/* Decodes the frames, one at least, unless it has to stop before. All else in the file, sound too, is left out.
 * HEARTH_UNSUPPORTED: the program that reads it is not installed, or cannot be confined. Blocks for half a minute at
 * most. */
int media_video_decode(const struct media_bytes *bytes, const struct media_video_limits *limits,
                       const struct media_stop *stop, struct media_video *video, hearth_error *error);
void media_video_release(struct media_video *video);

bool media_video_is_read(bool unconfined); /* whether that program is there, and may be run */

/* ---- Documents ---- */

struct media_document_limits {
    size_t most_bytes; /* of text */
    bool unconfined;   /* as with videos */
};

/* Appends the text of a PDF file, in UTF-8. HEARTH_UNSUPPORTED: the program that reads it is not installed, or cannot
 * be confined; HEARTH_TOO_LONG: it has more than so many bytes. Blocks for some seconds at most. */
int media_document_text(const struct media_bytes *bytes, const struct media_document_limits *limits,
                        const struct media_stop *stop, struct buf *text, hearth_error *error);

#endif
