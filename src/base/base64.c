/* Base64 by OpenSSL, in parts of 3 KiB. */
#include "base/base64.h"

#include <openssl/evp.h>

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
