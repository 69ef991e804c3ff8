/* CRC32C (Castagnoli; RFC 3720, appendix B.4), by isa-l with the processor's own instructions. "123456789" gives
 * 0xe3069283. Any thread. */
#ifndef BASE_CRC32C_H
#define BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues the CRC of the bytes before, which is 0 for none. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t size);

#endif
