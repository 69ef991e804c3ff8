/* Little-endian integers, as files have them, whatever the byte order of the machine. */
#ifndef BASE_LITTLE_H
#define BASE_LITTLE_H

#include <stddef.h>
#include <stdint.h>

static inline void little_put(uint8_t *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static inline uint64_t little_get(const uint8_t *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

#endif
