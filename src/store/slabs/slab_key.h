/* Slab keys: SHA-256(model_fp || quant || ctx_params || tokens), from the cache design document. All tokens are hashed,
 * as little-endian u32, with nothing in between. The 65 bytes of fixed length before them make it unambiguous.
 *
 * A key names a prefix, with everything besides the tokens that its state depends on. Pure functions, any thread. */
#ifndef STORE_SLABS_SLAB_KEY_H
#define STORE_SLABS_SLAB_KEY_H

#include "base/sha256.h"

#include <stdbool.h>

/* A state depends on these besides the tokens. Every field is filled in: one left zero would let two models use each
 * other's rows. docs/design/reuse.md (What keeps states apart) has the places where each comes from. */
struct identity {
    uint8_t model[SHA256_BYTES];   /* fingerprint of the weights, with adapters */
    uint8_t quant;                 /* type of the weights: quant_code() */
    uint8_t context[SHA256_BYTES]; /* digest of the context's parameters, with the salt */
};

struct slab_key {
    uint8_t v[SHA256_BYTES];
};

struct slab_key slab_key_of(const struct identity *identity, const int32_t *tokens, size_t n);

/* The keys of the prefixes of stride, 2 x stride, … tokens, up to n: out[i] is that of (i + 1) x stride tokens. One
 * pass over the tokens. `out` has room for n / stride. */
void slab_keys_at_strides(const struct identity *identity, const int32_t *tokens, size_t n, size_t stride,
                          struct slab_key *out);

/* Somebody has the first n tokens of whatever prefix goes on from the one with that key, or is it. */
struct stored_mark {
    struct slab_key key;
    int32_t n;
};

bool slab_key_equal(const struct slab_key *a, const struct slab_key *b);
bool identity_equal(const struct identity *a, const struct identity *b);

/* The identity under a salt: prompts with different salts share nothing. The context's digest becomes
 * SHA-256(context || SHA-256(salt)). An empty or NULL salt changes nothing. */
struct identity identity_salted(const struct identity *identity, const char *salt);

/* The model's fingerprint with adapters: SHA-256(model_fp || for each adapter, sorted by digest: its digest ||
 * i64 little-endian round(scale x 2^32)); unchanged where there is none. */
struct adapter {
    uint8_t digest[SHA256_BYTES];
    double scale;
};

void fingerprint_with_adapters(const uint8_t model[SHA256_BYTES], const struct adapter *adapters, size_t n,
                               uint8_t out[SHA256_BYTES]);

/* The byte for a type of weights ("q8_0", "q4_k_m", …), independent of GGUF's numbers; 255, "unknown", for any other
 * name. And back: NULL for a byte of no type. */
uint8_t quant_code(const char *name);
const char *quant_name(uint8_t code);

#endif
