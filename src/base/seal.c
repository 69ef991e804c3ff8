/* HMAC and AES-GCM by OpenSSL. That OpenSSL lacks one of them, or memory for a context, ends the process, as with
 * SHA-256. */
#include "base/seal.h"

#include "base/memory.h"

#include <limits.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>

/* OpenSSL counts the bytes of one call in an int. */
#define STEP_BYTES ((size_t)1 << 30)

static void require(bool done)
{
    if (done) return;
    fputs("hearth: OpenSSL cannot compute HMAC-SHA-256 or AES-256-GCM\n", stderr);
    abort();
}

/* ---- HMAC ---- */

struct hmac {
    EVP_MAC *mac;
    EVP_MAC_CTX *context;
};

struct hmac *hmac_open(const void *key, size_t size)
{
    struct hmac *hmac = mem_alloc(sizeof *hmac);
    char digest[] = "SHA256";
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                 OSSL_PARAM_construct_end()};
    hmac->mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    require(hmac->mac != NULL);
    hmac->context = EVP_MAC_CTX_new(hmac->mac);
    require(hmac->context != NULL && EVP_MAC_init(hmac->context, key, size, params) == 1);
    return hmac;
}

void hmac_feed(struct hmac *hmac, const void *bytes, size_t size)
{
    require(EVP_MAC_update(hmac->context, bytes, size) == 1);
}

void hmac_close(struct hmac *hmac, uint8_t mac[SHA256_BYTES])
{
    size_t size;
    require(EVP_MAC_final(hmac->context, mac, &size, SHA256_BYTES) == 1 && size == SHA256_BYTES);
    EVP_MAC_CTX_free(hmac->context);
    EVP_MAC_free(hmac->mac);
    free(hmac);
}

void hmac_of(const void *key, size_t key_size, const void *bytes, size_t size, uint8_t mac[SHA256_BYTES])
{
    struct hmac *hmac = hmac_open(key, key_size);
    hmac_feed(hmac, bytes, size);
    hmac_close(hmac, mac);
}

/* ---- AES-GCM ---- */

static const uint8_t no_nonce[12];

static EVP_CIPHER_CTX *begin(const uint8_t key[SHA256_BYTES], const void *context, size_t context_size, bool encrypts)
{
    int done;
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    require(cipher != NULL && context_size <= INT_MAX &&
            EVP_CipherInit_ex(cipher, EVP_aes_256_gcm(), NULL, key, no_nonce, encrypts) == 1 &&
            EVP_CipherUpdate(cipher, NULL, &done, context, (int)context_size) == 1);
    return cipher;
}

static void convert(EVP_CIPHER_CTX *cipher, uint8_t *bytes, size_t size)
{
    int done;
    while (size > 0) {
        size_t step = size < STEP_BYTES ? size : STEP_BYTES;
        require(EVP_CipherUpdate(cipher, bytes, &done, bytes, (int)step) == 1);
        bytes += step;
        size -= step;
    }
}

void seal_encrypt(const uint8_t key[SHA256_BYTES], const void *context, size_t context_size, uint8_t *bytes,
                  size_t size, uint8_t tag[SEAL_TAG_BYTES])
{
    int done;
    EVP_CIPHER_CTX *cipher = begin(key, context, context_size, true);
    convert(cipher, bytes, size);
    require(EVP_CipherFinal_ex(cipher, bytes + size, &done) == 1 &&
            EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, SEAL_TAG_BYTES, tag) == 1);
    EVP_CIPHER_CTX_free(cipher);
}

bool seal_decrypt(const uint8_t key[SHA256_BYTES], const void *context, size_t context_size, uint8_t *bytes,
                  size_t size, const uint8_t tag[SEAL_TAG_BYTES])
{
    int done;
    EVP_CIPHER_CTX *cipher = begin(key, context, context_size, false);
    convert(cipher, bytes, size);
    require(EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, SEAL_TAG_BYTES, (void *)(uintptr_t)tag) == 1);
    bool whole = EVP_CipherFinal_ex(cipher, bytes + size, &done) == 1;
    EVP_CIPHER_CTX_free(cipher);
    return whole;
}

void seal_random(void *bytes, size_t size)
{
    require(size <= INT_MAX && RAND_bytes(bytes, (int)size) == 1);
}
