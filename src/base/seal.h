/* Authentication and encryption of bytes that leave the process: HMAC-SHA-256 (RFC 2104) and AES-256-GCM, by OpenSSL.
 * Any thread; a struct hmac belongs to one. */
#ifndef BASE_SEAL_H
#define BASE_SEAL_H

#include "base/sha256.h"

#define SEAL_TAG_BYTES 16

struct hmac;

struct hmac *hmac_open(const void *key, size_t size);
void hmac_feed(struct hmac *hmac, const void *bytes, size_t size);
void hmac_close(struct hmac *hmac, uint8_t mac[SHA256_BYTES]); /* frees it */

/* The MAC of one block of bytes. */
void hmac_of(const void *key, size_t key_size, const void *bytes, size_t size, uint8_t mac[SHA256_BYTES]);

/* Encrypts the bytes in place, with a key that is used for nothing else: the nonce is always zero. `context` is
 * authenticated with them. */
void seal_encrypt(const uint8_t key[SHA256_BYTES], const void *context, size_t context_size, uint8_t *bytes,
                  size_t size, uint8_t tag[SEAL_TAG_BYTES]);

/* Decrypts them in place. False: bytes, context or tag are not those of that key; the bytes are worthless then. */
bool seal_decrypt(const uint8_t key[SHA256_BYTES], const void *context, size_t context_size, uint8_t *bytes,
                  size_t size, const uint8_t tag[SEAL_TAG_BYTES]);

/* Fills in bytes that nobody can guess. */
void seal_random(void *bytes, size_t size);

#endif
