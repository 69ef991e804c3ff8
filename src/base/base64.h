/* Base64 (RFC 4648, padded, without line ends). Pure; any thread. */
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include "base/buf.h"

void base64_put(struct buf *out, const void *bytes, size_t len);

#endif
