#include "base/crc32c.h"

#include <isa-l/crc.h>

/* isa-l's function keeps the complement that CRC32C begins and ends with to its caller, and takes an int as length. */
#define MOST_AT_ONCE (1 << 30)

uint32_t crc32c(uint32_t crc, const void *bytes, size_t size)
{
    unsigned char *next = (unsigned char *)bytes; /* not written to; isa-l's prototype lacks the const */
    uint32_t running = ~crc;
    while (size > 0) {
        int n = size < MOST_AT_ONCE ? (int)size : MOST_AT_ONCE;
        running = crc32_iscsi(next, n, running);
        next += n;
        size -= (size_t)n;
    }
    return ~running;
}
