/* Base64: encoding by OpenSSL, in parts of 3 KiB; decoding by a table, since OpenSSL takes for good what was cut off.
 */
#include "base/base64.h"

#include "base/memory.h"

#include <openssl/evp.h>

#include <stdbool.h>
#include <stdlib.h>

void base64_put(struct buf *out, const void *bytes, size_t len)
{
    enum { PART = 3 * 1024 }; /* a multiple of 3: only the last part is padded */
    unsigned char text[PART / 3 * 4 + 1];
    const unsigned char *from = bytes;
    while (len > 0) {
        size_t part = len < PART ? len : PART;
        int n = EVP_EncodeBlock(text, from, (int)part);
        buf_append(out, text, (size_t)n);
        from += part;
        len -= part;
    }
}

/* ---- Decoding ---- */

/* The value of a character: its six bits, or one of these, above all of them. */
enum { BITS_END = 64, SPACE = 64, PADDING = 65, WRONG = 66 };

#define S SPACE
#define P PADDING
#define X WRONG
static const uint8_t meanings[256] = {
    /* clang-format off */
    X,  X,  X,  X,  X,  X,  X,  X,  X,  S,  S,  X,  X,  S,  X,  X,
    X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,
    S,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  62, X,  62, X,  63, /* + - / */
    52, 53, 54, 55, 56, 57, 58, 59, 60, 61, X,  X,  X,  P,  X,  X,
    X,  0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14,
    15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, X,  X,  X,  X,  63, /* _ */
    X,  26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40,
    41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, X,  X,  X,  X,  X,
    X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,
    X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,
    X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,
    X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,
    X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,
    X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,
    X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,
    X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,  X,
    /* clang-format on */
};
#undef S
#undef P
#undef X

struct decoder {
    const uint8_t *at, *end; /* of the text */
    uint8_t *out;
    uint32_t bits; /* of a group of four characters that has begun */
    int n;         /* its characters so far */
};

static void put_group(struct decoder *d, uint32_t bits)
{
    *d->out++ = (uint8_t)(bits >> 16);
    *d->out++ = (uint8_t)(bits >> 8);
    *d->out++ = (uint8_t)bits;
}

/* Decodes groups without white space, up to the first other one. */
static void decode_groups(struct decoder *d)
{
    for (; d->end - d->at >= 4; d->at += 4) {
        uint32_t a = meanings[d->at[0]], b = meanings[d->at[1]], c = meanings[d->at[2]], e = meanings[d->at[3]];
        if ((a | b | c | e) >= BITS_END) return;
        put_group(d, a << 18 | b << 12 | c << 6 | e);
    }
}

/* Decodes up to the padding or the end. */
static enum base64_fault decode_text(struct decoder *d)
{
    while (true) {
        if (d->n == 0) decode_groups(d);
        uint8_t meaning = d->at < d->end ? meanings[*d->at] : PADDING;
        if (meaning == PADDING) return BASE64_GOOD;
        if (meaning == WRONG) return BASE64_CHARACTER;
        d->at++;
        if (meaning == SPACE) continue;
        d->bits = d->bits << 6 | meaning;
        if (++d->n < 4) continue;
        put_group(d, d->bits);
        d->bits = 0;
        d->n = 0;
    }
}

/* Checks the padding, and writes the bytes of the last group. */
static enum base64_fault decode_end(struct decoder *d)
{
    int n_padding = 0;
    for (; d->at < d->end; d->at++) {
        uint8_t meaning = meanings[*d->at];
        if (meaning == WRONG) return BASE64_CHARACTER;
        if (meaning < BITS_END) return BASE64_END;
        n_padding += meaning == PADDING;
    }
    bool whole = d->n == 0 && n_padding == 0;
    bool part = d->n >= 2 && (n_padding == 0 || d->n + n_padding == 4);
    if (!whole && !part) return BASE64_END;
    uint32_t bits = d->bits << (6 * (4 - d->n) % 24);
    if (d->n >= 2) *d->out++ = (uint8_t)(bits >> 16);
    if (d->n == 3) *d->out++ = (uint8_t)(bits >> 8);
    return BASE64_GOOD;
}

enum base64_fault base64_get(struct base64_bytes *bytes, const char *text, size_t len)
{
    const uint8_t *begin = (const uint8_t *)text;
    *bytes = (struct base64_bytes){.v = len == 0 ? NULL : mem_alloc(len / 4 * 3 + 3)};
    struct decoder d = {.at = begin, .end = begin + len, .out = bytes->v};
    enum base64_fault fault = len == 0 ? BASE64_GOOD : decode_text(&d);
    if (fault == BASE64_GOOD && len > 0) fault = decode_end(&d);
    if (fault == BASE64_CHARACTER) bytes->wrong = (size_t)(d.at - begin);
    if (fault == BASE64_GOOD && d.out > bytes->v) {
        bytes->len = (size_t)(d.out - bytes->v);
        return fault;
    }
    free(bytes->v);
    bytes->v = NULL;
    return fault;
}
