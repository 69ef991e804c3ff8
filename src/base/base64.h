/* Base64 (RFC 4648). Pure; any thread. */
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include "base/buf.h"

#include <stdint.h>

/* Appends the bytes as base64, padded, without line ends. */
void base64_put(struct buf *out, const void *bytes, size_t len);

/* The fault of a text that is to be decoded. */
enum base64_fault {
    BASE64_GOOD,
    BASE64_CHARACTER, /* one that is not of the alphabet */
    BASE64_END        /* the padding is wrong, something follows it, or characters are missing */
};

struct base64_bytes {
    uint8_t *v; /* free() it; NULL after a fault, and if the text has no bytes */
    size_t len;
    size_t wrong; /* BASE64_CHARACTER: the place of that character in the text */
};

/* Decodes a text of the standard alphabet or of the one for URLs ("-" and "_"). White space is skipped; the padding
 * may be left out as a whole. */
enum base64_fault base64_get(struct base64_bytes *bytes, const char *text, size_t len);

#endif
