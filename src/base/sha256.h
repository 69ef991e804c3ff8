/* SHA-256 (FIPS 180-4), by OpenSSL. A running one can be finished as often as one likes: each time for what was fed so
 * far. Not thread-safe; each belongs to one thread. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32

struct sha256;

struct sha256 *sha256_open(void);
void sha256_close(struct sha256 *hash);
void sha256_feed(struct sha256 *hash, const void *bytes, size_t size);
void sha256_so_far(const struct sha256 *hash, uint8_t digest[SHA256_BYTES]); /* goes on afterwards */

/* Of one run of bytes. */
void sha256_of(const void *bytes, size_t size, uint8_t digest[SHA256_BYTES]);

/* Takes the same time wherever two digests differ. */
bool sha256_equal(const uint8_t a[SHA256_BYTES], const uint8_t b[SHA256_BYTES]);

/* 64 lower-case hexadecimal digits and a zero; and back. */
void sha256_to_hex(const uint8_t digest[SHA256_BYTES], char text[2 * SHA256_BYTES + 1]);
bool sha256_from_hex(const char *text, uint8_t digest[SHA256_BYTES]); /* false: text is not 64 of them */

#endif
