/* Sealed slabs: slabs as a server holds them that others can write to (docs/format.md). A slab's bytes are cut into
 * parts of at most 4 MiB, each a value of its own. The first begins with a head, which says how many there are and
 * authenticates all of them together with the slab's name. The others have names that the head's nonce makes unique, so
 * that parts of two writers never mix. Pure functions, any thread. */
#ifndef STORE_SLABS_SEALED_SLAB_H
#define STORE_SLABS_SEALED_SLAB_H

#include "base/seal.h"
#include "store/slabs/slab.h"

#define SEALED_PART_BYTES  ((uint64_t)4 << 20)
#define SEALED_HEAD_BYTES  56
#define SEALED_NONCE_BYTES 16
#define SEALED_MOST_BYTES  ((uint64_t)4 << 30) /* of a slab */

/* Keys derived from one secret. Processes with different secrets never find each other's slabs, and neither do one that
 * encrypts and one that does not. */
struct sealed_keys {
    uint8_t name[SHA256_BYTES], mac[SHA256_BYTES], encrypt[SHA256_BYTES];
    bool encrypts;
};

/* Without a secret (size 0) the MAC is a checksum, and anybody can compute it. */
void sealed_keys_init(struct sealed_keys *keys, const void *secret, size_t size, bool encrypts);

/* The name of a slab on the server: a MAC of its kind, the stride and its key, which reveals none of them. The formats'
 * versions are part of it, so that hearths that cannot read each other's slabs never find them. */
struct sealed_name {
    uint8_t v[SHA256_BYTES];
};

struct sealed_name sealed_name_of(const struct sealed_keys *keys, const struct slab_name *name, int32_t stride);

/* The name of the hints (backend.h) at states in the block that follows the prefix with that key. */
struct sealed_name sealed_hints_name(const struct sealed_keys *keys, const struct slab_key *before, int32_t stride);

struct sealed_head {
    uint64_t size; /* of the slab */
    uint32_t n_parts;
    bool encrypted;
    uint8_t nonce[SEALED_NONCE_BYTES];
    uint8_t mac[SEAL_TAG_BYTES];
};

/* How many bytes of a slab of that size the part has; SEALED_HEAD_BYTES come before those of the first. And how many
 * parts there are. */
uint32_t sealed_parts(uint64_t size);
uint64_t sealed_part_size(uint64_t size, uint32_t part);
uint64_t sealed_part_offset(uint32_t part);

/* Seals the slab of `size` bytes in place, and fills in its head. False: it is too large. */
bool sealed_seal(const struct sealed_keys *keys, const struct sealed_name *name, uint8_t *slab, uint64_t size,
                 struct sealed_head *head);

void sealed_head_encode(const struct sealed_head *head, uint8_t bytes[SEALED_HEAD_BYTES]);

/* False: it is no head. */
bool sealed_head_decode(const uint8_t bytes[SEALED_HEAD_BYTES], struct sealed_head *head);

/* Whether the bytes are what was sealed under that name; decrypts them in place. False: they are not, and worthless. */
bool sealed_open(const struct sealed_keys *keys, const struct sealed_name *name, const struct sealed_head *head,
                 uint8_t *slab);

#endif
