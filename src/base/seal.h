/* Authentication and encryption of bytes that leave the process: HMAC-SHA-256 (RFC 2104) for keys and names,
 * AES-256-GCM (NIST SP 800-38D) for bytes, by OpenSSL. Any thread. */
#ifndef BASE_SEAL_H
#define BASE_SEAL_H

#include "base/sha256.h"

#define SEAL_TAG_BYTES 16

void hmac_of(const void *key, size_t key_size, const void *bytes, size_t size, uint8_t mac[SHA256_BYTES]);

/* The arguments of all of these. The key seals these bytes and nothing else, since the nonce is always zero. The
 * context is authenticated with the bytes. */
struct seal {
    uint8_t key[SHA256_BYTES];
    const void *context;
    size_t context_size;
};

/* Authenticates the bytes and leaves them as they are (GMAC). */
void seal_authenticate(const struct seal *seal, const uint8_t *bytes, size_t size, uint8_t tag[SEAL_TAG_BYTES]);

/* False: bytes, context or tag are not those of that key. */
bool seal_verify(const struct seal *seal, const uint8_t *bytes, size_t size, const uint8_t tag[SEAL_TAG_BYTES]);

/* Encrypts the bytes in place, and authenticates them. */
void seal_encrypt(const struct seal *seal, uint8_t *bytes, size_t size, uint8_t tag[SEAL_TAG_BYTES]);

/* Decrypts them in place. False: as with seal_verify(); the bytes are worthless then. */
bool seal_decrypt(const struct seal *seal, uint8_t *bytes, size_t size, const uint8_t tag[SEAL_TAG_BYTES]);

/* Fills in bytes that nobody can guess. */
void seal_random(void *bytes, size_t size);

#endif
