/* Fuzzes the decoding of compressed bodies: whatever the bytes say, within the limit. */
#include "base/gzip.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MOST = 1 << 16 };
    struct buf out = {0};
    enum gzip_fault fault = gzip_decode(data, size, MOST, &out);
    if (out.len > MOST || (fault != GZIP_OK && out.len > 0)) abort();
    buf_release(&out);
    return 0;
}
