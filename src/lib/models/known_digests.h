/* The digests of weights that were hashed at earlier starts: reads and changes the bytes of the file "digests"
 * (docs/format.md), which the store keeps (store_digests()). A digest is found by the signs of the model's files alone,
 * and only where all of them are equal: a wrong one would load one model's states into another.
 *
 * No state of its own; any thread. */
#ifndef LIB_MODELS_KNOWN_DIGESTS_H
#define LIB_MODELS_KNOWN_DIGESTS_H

#include "base/buf.h"
#include "base/sha256.h"
#include "llm/model_identity.h"

/* Looks up the digest of the weights of files with these signs. False: it is not known. A file that cannot be used is
 * logged, and knows nothing. */
bool known_digests_find(const struct buf *file, const struct llm_file_signs *signs, uint8_t digest[SHA256_BYTES]);

/* Adds a digest, or makes a known one the last to be dropped: the file holds the 64 that were used last. A damaged file
 * is begun anew. False: nothing has changed, or the file is of a newer version and must be left alone. */
bool known_digests_add(struct buf *file, const struct llm_file_signs *signs, const uint8_t digest[SHA256_BYTES]);

/* Whether a digest may be added of files that had these signs when reading them began, in seconds since 1970. Not of
 * files that were changed less than a minute before that: a change while they are read could leave them the same time,
 * where a file system counts in seconds, and where a program writes through a mapping, whose pages have the time at
 * which they were first written to since they went to the disk, which is half a minute ago at most. */
bool known_digests_may_add(const struct llm_file_signs *signs, int64_t began_s);

#endif
