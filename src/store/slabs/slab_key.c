/* Slab keys, identities and codes of weight types, as slab_key.h defines them. */
#include "store/slabs/slab_key.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- Keys ---- */

enum { CHUNK = 1024 };

/* Byte by byte with shifts: the same on every machine, and a plain copy where the machine is little-endian. */
static void feed_tokens(struct sha256 *hash, const int32_t *tokens, size_t n)
{
    uint8_t bytes[4 * CHUNK];
    while (n > 0) {
        size_t part = n < CHUNK ? n : CHUNK;
        for (size_t i = 0; i < part; i++) {
            uint32_t token = (uint32_t)tokens[i];
            for (size_t k = 0; k < 4; k++) bytes[4 * i + k] = (uint8_t)(token >> 8 * k);
        }
        sha256_feed(hash, bytes, 4 * part);
        tokens += part;
        n -= part;
    }
}

static struct sha256 *begin(const struct identity *identity)
{
    struct sha256 *hash = sha256_open();
    sha256_feed(hash, identity->model, sizeof identity->model);
    sha256_feed(hash, &identity->quant, sizeof identity->quant);
    sha256_feed(hash, identity->context, sizeof identity->context);
    return hash;
}

struct slab_key slab_key_of(const struct identity *identity, const int32_t *tokens, size_t n)
{
    assert(tokens != NULL || n == 0);
    struct sha256 *hash = begin(identity);
    feed_tokens(hash, tokens, n);
    struct slab_key key;
    sha256_so_far(hash, key.v);
    sha256_close(hash);
    return key;
}

void slab_keys_at_strides(const struct identity *identity, const int32_t *tokens, size_t n, size_t stride,
                          struct slab_key *out)
{
    assert(stride > 0 && (n < stride || (tokens != NULL && out != NULL)));
    struct sha256 *hash = begin(identity);
    for (size_t i = 0; i < n / stride; i++) {
        feed_tokens(hash, tokens + i * stride, stride);
        sha256_so_far(hash, out[i].v);
    }
    sha256_close(hash);
}

bool slab_key_equal(const struct slab_key *a, const struct slab_key *b)
{
    return memcmp(a->v, b->v, sizeof a->v) == 0;
}

/* ---- Identities ---- */

bool identity_equal(const struct identity *a, const struct identity *b)
{
    return memcmp(a->model, b->model, sizeof a->model) == 0 && a->quant == b->quant &&
           memcmp(a->context, b->context, sizeof a->context) == 0;
}

struct identity identity_salted(const struct identity *identity, const char *salt)
{
    struct identity salted = *identity;
    if (salt == NULL || salt[0] == '\0') return salted;
    uint8_t both[2 * SHA256_BYTES];
    memcpy(both, identity->context, SHA256_BYTES);
    sha256_of(salt, strlen(salt), both + SHA256_BYTES);
    sha256_of(both, sizeof both, salted.context);
    return salted;
}

/* The same adapter twice is ordered by scale. */
static int by_digest(const void *a, const void *b)
{
    const struct adapter *one = a, *other = b;
    int order = memcmp(one->digest, other->digest, SHA256_BYTES);
    return order != 0 ? order : (one->scale > other->scale) - (one->scale < other->scale);
}

void fingerprint_with_adapters(const uint8_t model[SHA256_BYTES], const struct adapter *adapters, size_t n,
                               uint8_t out[SHA256_BYTES])
{
    memmove(out, model, SHA256_BYTES);
    if (n == 0) return;
    struct adapter *sorted = mem_grow(NULL, n, sizeof *sorted);
    memcpy(sorted, adapters, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_digest);
    struct sha256 *hash = sha256_open();
    sha256_feed(hash, out, SHA256_BYTES);
    for (size_t i = 0; i < n; i++) {
        /* round(scale x 2^32), halves away from zero. */
        double scaled = sorted[i].scale * 4294967296.0;
        uint64_t scale = (uint64_t)(int64_t)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
        uint8_t bytes[sizeof scale];
        for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = (uint8_t)(scale >> 8 * k);
        sha256_feed(hash, sorted[i].digest, SHA256_BYTES);
        sha256_feed(hash, bytes, sizeof bytes);
    }
    sha256_so_far(hash, out);
    sha256_close(hash);
    free(sorted);
}

/* ---- Types of weights ---- */

/* The codes are part of every key: names may be added, but never get another code. */
static const char *const quant_names[] = {
    [0] = "f32",      [1] = "f16",    [2] = "q4_0",    [3] = "q4_1",     [4] = "q5_0",    [5] = "q5_1",
    [6] = "q8_0",     [7] = "q4_k_m", [8] = "q4_k_s",  [9] = "q5_k_m",   [10] = "q5_k_s", [11] = "q6_k",
    [12] = "q8_k",    [13] = "q2_k",  [14] = "q3_k_s", [15] = "q3_k_m",  [16] = "q3_k_l", [17] = "iq2_xxs",
    [18] = "iq2_xs",  [19] = "iq2_s", [20] = "iq2_m",  [21] = "iq3_xxs", [22] = "iq3_xs", [23] = "iq3_s",
    [24] = "iq3_m",   [25] = "iq1_s", [26] = "iq1_m",  [27] = "iq4_nl",  [28] = "iq4_xs", [29] = "bf16",
    [255] = "unknown"};

enum { QUANT_UNKNOWN = 255 };

uint8_t quant_code(const char *name)
{
    for (size_t code = 0; code < QUANT_UNKNOWN; code++)
        if (quant_names[code] != NULL && strcmp(quant_names[code], name) == 0) return (uint8_t)code;
    return QUANT_UNKNOWN;
}

const char *quant_name(uint8_t code)
{
    return quant_names[code];
}
