/* Encodings of media: rows that a projector makes of an image or a sound. Each is computed once, however many requests
 * want it, on a thread of the encoder's, so that neither the engine nor a preparing thread waits. It is kept
 * afterwards, so that a prompt that is computed again is not encoded again; the least recently used is dropped first.
 * The store's tiers, where there are any, keep it as well, as a state in a space of their own, so that it outlives a
 * restart. docs/format.md has their form.
 *
 * An encoding is wanted by a key: the SHA-256 of everything that its rows depend on. Any thread, but for what is in the
 * store: that is the encoder's, which may wait. */
#ifndef INSTANCE_MEDIA_ENCODER_H
#define INSTANCE_MEDIA_ENCODER_H

#include "base/metrics.h"
#include "base/sha256.h"
#include "hearth.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Encodings in the store ---- */

struct file_watch;
struct store;
struct stored_encodings;

struct stored_encodings_params {
    struct store *store;
    const uint8_t *projector; /* SHA256_BYTES: the digest of all that rows depend on beside their medium */
    const char *name;         /* what listings call them */
    struct file_watch *watch; /* once these files have changed nothing is read or written; NULL: no files */
};

/* The store and the watch outlive it; the digest and the name are copied. */
struct stored_encodings *stored_encodings_open(const struct stored_encodings_params *params);

/* Waits at most until the deadline (CLOCK_MONOTONIC, ns) for what is being written; drops what is not begun then. */
void stored_encodings_close(struct stored_encodings *stored, int64_t deadline);

/* Reads the rows of that key. `encode_ns`: how long encoding them would take; 0: not known. False: they are not there,
 * or take longer to read, as far as the tier's recent reads tell, or to wait for: then `rows` is undefined. */
bool stored_encodings_read(struct stored_encodings *stored, const uint8_t key[SHA256_BYTES], int64_t encode_ns,
                           float *rows, size_t n_floats);

/* Queues them to be written; they are copied. Nothing happens where the store has no room for them now. */
void stored_encodings_write(struct stored_encodings *stored, const uint8_t key[SHA256_BYTES], const float *rows,
                            size_t n_floats);

/* ---- The encoder ---- */

struct encoder;
struct encoding;

/* An encoding to be computed. The encoder calls `encode` at most once, on its thread, and `release` exactly once,
 * whether or not it has. */
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
    const char *cpus; /* that it runs on, with the threads that compute for it: llm_threads.cpus */
};

/* `stored`, `stats` and `cpus` outlive it. NULL: no thread can be had. */
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
