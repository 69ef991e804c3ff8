/* Decoding of gzip (RFC 1952), by ISA-L. Pure functions; any thread. */
#ifndef BASE_GZIP_H
#define BASE_GZIP_H

#include "base/buf.h"

enum gzip_fault { GZIP_OK, GZIP_BROKEN, GZIP_TOO_LARGE };

/* Appends what `bytes` hold, one file of gzip or several in a row, to `out`, which has at most `most` bytes then. On a
 * fault `out` is empty. */
enum gzip_fault gzip_decode(const void *bytes, size_t len, size_t most, struct buf *out);

#endif
