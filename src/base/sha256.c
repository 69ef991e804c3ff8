/* SHA-256 by OpenSSL's digest contexts. A failure means that OpenSSL lacks SHA-256 or memory is gone: as with other
 * memory for control data, that ends the process. */
#include "base/sha256.h"

#include "base/log_stderr.h"
#include "base/memory.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sha256 {
    EVP_MD_CTX *running, *copy;
};

static void require(bool done)
{
    if (done) return;
    fputs("hearth: OpenSSL cannot compute SHA-256\n", log_console());
    abort();
}

struct sha256 *sha256_open(void)
{
    struct sha256 *hash = mem_alloc(sizeof *hash);
    hash->running = EVP_MD_CTX_new();
    hash->copy = EVP_MD_CTX_new();
    require(hash->running != NULL && hash->copy != NULL && EVP_DigestInit_ex(hash->running, EVP_sha256(), NULL) == 1);
    return hash;
}

void sha256_close(struct sha256 *hash)
{
    if (hash == NULL) return;
    EVP_MD_CTX_free(hash->running);
    EVP_MD_CTX_free(hash->copy);
    free(hash);
}

void sha256_feed(struct sha256 *hash, const void *bytes, size_t size)
{
    require(EVP_DigestUpdate(hash->running, bytes, size) == 1);
}

void sha256_so_far(const struct sha256 *hash, uint8_t digest[SHA256_BYTES])
{
    require(EVP_MD_CTX_copy_ex(hash->copy, hash->running) == 1 && EVP_DigestFinal_ex(hash->copy, digest, NULL) == 1);
}

void sha256_of(const void *bytes, size_t size, uint8_t digest[SHA256_BYTES])
{
    require(EVP_Digest(bytes, size, digest, NULL, EVP_sha256(), NULL) == 1);
}

bool sha256_equal(const uint8_t a[SHA256_BYTES], const uint8_t b[SHA256_BYTES])
{
    return CRYPTO_memcmp(a, b, SHA256_BYTES) == 0;
}

void sha256_to_hex(const uint8_t digest[SHA256_BYTES], char text[2 * SHA256_BYTES + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        text[2 * i] = digits[digest[i] >> 4];
        text[2 * i + 1] = digits[digest[i] & 15];
    }
    text[2 * SHA256_BYTES] = '\0';
}

static int digit_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool sha256_from_hex(const char *text, uint8_t digest[SHA256_BYTES])
{
    if (strlen(text) != 2 * SHA256_BYTES) return false;
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        int high = digit_value(text[2 * i]), low = digit_value(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        digest[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}
