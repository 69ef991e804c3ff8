/* Encodings in the store: the rows of a medium, kept in its tiers as the states of a space of their own, so that a
 * prompt that is computed again after a restart need not encode again. docs/format.md has their form.
 *
 * All functions are for one thread, the encoder's, which may wait; but for opening and closing, when that thread does
 * not run. */
#ifndef LIB_MEDIA_STORED_ENCODINGS_H
#define LIB_MEDIA_STORED_ENCODINGS_H

#include "base/sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file_watch;
struct store;
struct stored_encodings;

struct stored_encodings_params {
    struct store *store;
    const uint8_t *projector; /* SHA256_BYTES: the digest of all that rows depend on beside their medium */
    const char *name;         /* what listings call them */
    struct file_watch *watch; /* once these files have changed nothing is read or written; NULL: no files */
};

/* What the parameters name outlives it, but for the digest and the name. */
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

#endif
