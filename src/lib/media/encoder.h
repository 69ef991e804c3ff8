/* Encodings of media: rows that a projector makes of an image or a sound. Each is computed once, however many requests
 * want it, on a thread of the encoder's, so that neither the engine nor a preparing thread waits; and kept afterwards,
 * the least recently used dropped first, so that a prompt that is computed again is not encoded again; in the store's
 * tiers as well, where there are any.
 *
 * An encoding is wanted by a key: the SHA-256 of everything that its rows depend on. Any thread. */
#ifndef LIB_MEDIA_ENCODER_H
#define LIB_MEDIA_ENCODER_H

#include "base/metrics.h"
#include "base/sha256.h"
#include "hearth.h"

#include <stdbool.h>
#include <stddef.h>

struct encoder;
struct encoding;
struct stored_encodings;

/* What is to be encoded. The encoder calls `encode` at most once, on its thread, and `release` exactly once, whether or
 * not it has. */
struct encoder_task {
    uint8_t key[SHA256_BYTES];
    size_t n_floats;
    bool secret; /* kept nowhere once nobody wants it any more */
    void *medium;
    int (*encode)(void *medium, float *rows, hearth_error *error);
    void (*release)(void *medium);
};

struct encoder_stats {
    metric_value encoded, fetched; /* encodings computed, failed ones as well; read from the store instead */
    metric_value shared;           /* wanted and found in memory, or joined */
    metric_value kept_bytes;       /* of those that nobody wants any more */
};

struct encoder_params {
    size_t budget;                   /* bytes of encodings that nobody wants any more and that are kept in memory */
    struct stored_encodings *stored; /* NULL: there is no store */
    struct encoder_stats *stats;
};

/* What the parameters name outlives it. NULL: no thread can be had. */
struct encoder *encoder_open(const struct encoder_params *params, hearth_error *error);

/* Every encoding must have been given back. */
void encoder_close(struct encoder *encoder);

/* Wants an encoding: one that is there, one that another request waits for, or a new one. `ready(ud)` is called once
 * its rows are there, or failed, on the encoder's thread, unless they are there at once; it must not call the encoder.
 */
struct encoding *encoder_want(struct encoder *encoder, const struct encoder_task *task, void (*ready)(void *ud),
                              void *ud);

/* The rows; NULL: they are not there yet, or failed. They stay as long as the encoding is wanted. */
const float *encoding_rows(const struct encoding *encoding);

/* HEARTH_OK: it has not failed, so far. */
int encoding_fault(const struct encoding *encoding, hearth_error *error);

/* Gives it back. After this `ready` is not called. */
void encoding_release(struct encoding *encoding);

#endif
