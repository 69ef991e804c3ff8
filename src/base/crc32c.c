/* CRC32C by isa-l. */
#include "base/crc32c.h"

#include <isa-l/crc.h>

/* isa-l's function leaves the complement before and after to its caller, and takes the length as an int. */
#define MOST_BYTES_A_CALL (1 << 30)

uint32_t crc32c(uint32_t crc, const void *bytes, size_t size)
{
    unsigned char *next = (unsigned char *)bytes; /* not written to; isa-l's prototype lacks the const */
    uint32_t running = ~crc;
    while (size > 0) {
        int n = size < MOST_BYTES_A_CALL ? (int)size : MOST_BYTES_A_CALL;
        running = crc32_iscsi(next, n, running);
        next += n;
        size -= (size_t)n;
    }
    return ~running;
}
