/* SHA-256 (FIPS 180-4), by OpenSSL. The digest of a running hash can be read at any time, and the hash goes on. A
 * struct sha256 belongs to one thread. */
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
void sha256_so_far(const struct sha256 *hash, uint8_t digest[SHA256_BYTES]); /* of what was fed until now */

/* The digest of one block of bytes. */
void sha256_of(const void *bytes, size_t size, uint8_t digest[SHA256_BYTES]);

/* In constant time. */
bool sha256_equal(const uint8_t a[SHA256_BYTES], const uint8_t b[SHA256_BYTES]);

/* To 64 lower-case hexadecimal digits and a zero, and back. */
void sha256_to_hex(const uint8_t digest[SHA256_BYTES], char text[2 * SHA256_BYTES + 1]);
bool sha256_from_hex(const char *text, uint8_t digest[SHA256_BYTES]); /* false: text is not 64 of them */

#endif
