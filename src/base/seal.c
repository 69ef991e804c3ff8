/* HMAC and AES-GCM by OpenSSL. That OpenSSL lacks one of them, or memory for a context, ends the process, as with
 * SHA-256. */
#include "base/seal.h"

#include "base/log_stderr.h"

#include <limits.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>

/* OpenSSL counts the bytes of one call in an int. */
#define STEP_BYTES ((size_t)1 << 30)

static void require(bool done)
{
    if (done) return;
    fputs("hearth: OpenSSL cannot compute HMAC-SHA-256 or AES-256-GCM\n", log_console());
    abort();
}

void hmac_of(const void *key, size_t key_size, const void *bytes, size_t size, uint8_t mac[SHA256_BYTES])
{
    require(key_size <= INT_MAX && HMAC(EVP_sha256(), key, (int)key_size, bytes, size, mac, NULL) != NULL);
}

/* ---- AES-GCM ---- */

static const uint8_t no_nonce[12];

/* Takes the next bytes: to `out`, encrypted or decrypted, or, where that is NULL, to authenticate them alone. */
static void take(EVP_CIPHER_CTX *cipher, uint8_t *out, const uint8_t *bytes, size_t size)
{
    int done;
    while (size > 0) {
        size_t step = size < STEP_BYTES ? size : STEP_BYTES;
        require(EVP_CipherUpdate(cipher, out, &done, bytes, (int)step) == 1);
        if (out != NULL) out += step;
        bytes += step;
        size -= step;
    }
}

static EVP_CIPHER_CTX *begin(const struct seal *seal, bool encrypts)
{
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    require(cipher != NULL && EVP_CipherInit_ex(cipher, EVP_aes_256_gcm(), NULL, seal->key, no_nonce, encrypts) == 1);
    take(cipher, NULL, seal->context, seal->context_size);
    return cipher;
}

static void give_tag(EVP_CIPHER_CTX *cipher, uint8_t tag[SEAL_TAG_BYTES])
{
    uint8_t none[1];
    int done;
    require(EVP_CipherFinal_ex(cipher, none, &done) == 1 &&
            EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, SEAL_TAG_BYTES, tag) == 1);
    EVP_CIPHER_CTX_free(cipher);
}

static bool has_tag(EVP_CIPHER_CTX *cipher, const uint8_t tag[SEAL_TAG_BYTES])
{
    uint8_t none[1];
    int done;
    require(EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, SEAL_TAG_BYTES, (void *)(uintptr_t)tag) == 1);
    bool whole = EVP_CipherFinal_ex(cipher, none, &done) == 1;
    EVP_CIPHER_CTX_free(cipher);
    return whole;
}

void seal_authenticate(const struct seal *seal, const uint8_t *bytes, size_t size, uint8_t tag[SEAL_TAG_BYTES])
{
    EVP_CIPHER_CTX *cipher = begin(seal, true);
    take(cipher, NULL, bytes, size);
    give_tag(cipher, tag);
}

bool seal_verify(const struct seal *seal, const uint8_t *bytes, size_t size, const uint8_t tag[SEAL_TAG_BYTES])
{
    EVP_CIPHER_CTX *cipher = begin(seal, false);
    take(cipher, NULL, bytes, size);
    return has_tag(cipher, tag);
}

void seal_encrypt(const struct seal *seal, uint8_t *bytes, size_t size, uint8_t tag[SEAL_TAG_BYTES])
{
    EVP_CIPHER_CTX *cipher = begin(seal, true);
    take(cipher, bytes, bytes, size);
    give_tag(cipher, tag);
}

bool seal_decrypt(const struct seal *seal, uint8_t *bytes, size_t size, const uint8_t tag[SEAL_TAG_BYTES])
{
    EVP_CIPHER_CTX *cipher = begin(seal, false);
    take(cipher, bytes, bytes, size);
    return has_tag(cipher, tag);
}

void seal_random(void *bytes, size_t size)
{
    require(size <= INT_MAX && RAND_bytes(bytes, (int)size) == 1);
}
