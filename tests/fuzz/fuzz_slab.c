/* Fuzzes slabs: the input is refused with a message of one line, or decoded, and then encodes to the same bytes. */
#include "base/crc32c.h"
#include "base/memory.h"
#include "store/slabs/slab.h"

#include <stdlib.h>
#include <string.h>

static void put32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (8 * i));
}

/* A fuzzer does not guess CRCs: for one half of the inputs the CRC of the front, and then the trailer, are
 * corrected. */
static void seal(uint8_t *bytes, size_t front, size_t size)
{
    uint8_t *trailer = bytes + size - SLAB_TRAILER_BYTES;
    size_t after_use = SLAB_USE_OFFSET + SLAB_USE_BYTES;
    put32(bytes + front - 4, crc32c(crc32c(0, bytes, SLAB_USE_OFFSET), bytes + after_use, front - 4 - after_use));
    if (size < front + SLAB_TRAILER_BYTES) return;
    put32(trailer, crc32c(0, bytes + front, size - front - SLAB_TRAILER_BYTES));
    put32(trailer + 4, (uint32_t)size);
    put32(trailer + 8, 0);
    put32(trailer + 12, crc32c(crc32c(0, bytes + front - 4, 4), trailer, 12));
}

/* Only a slab that was decoded in spite of wrong CRCs of its regions may encode to other bytes. */
static void writes_back(struct slab_head *head, const uint8_t *bytes, size_t front, size_t size)
{
    struct buf again = {0};
    uint8_t trailer[SLAB_TRAILER_BYTES];
    char text[64];
    bool whole = slab_damaged_region(head, bytes + front, text) == NULL;
    slab_encode(head, bytes + front, &again, trailer);
    if (again.len != front || slab_size(head) != size) abort();
    if (whole && memcmp(again.v, bytes, front) != 0) abort();
    if (whole && memcmp(trailer, bytes + size - sizeof trailer, sizeof trailer) != 0) abort();
    buf_release(&again);
}

static void read_slab(const uint8_t *bytes, size_t front, size_t size)
{
    struct slab_head head;
    hearth_error error;
    int result = slab_decode(bytes, front, size, &head, &error);
    if (result == 0) {
        if (slab_check(&head, bytes, front, bytes + front, bytes + size - SLAB_TRAILER_BYTES, &error) == 0)
            writes_back(&head, bytes, front, size);
        slab_head_release(&head);
    } else if (error.message[0] == '\0' || strchr(error.message, '\n') != NULL) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 + SLAB_HEADER_BYTES) return 0;
    uint8_t *bytes = mem_alloc(--size);
    memcpy(bytes, data + 1, size);
    size_t front = slab_front_size(bytes);
    if (front != 0 && front <= size) {
        if (data[0] % 2 == 1) seal(bytes, front, size);
        read_slab(bytes, front, size);
    }
    free(bytes);
    return 0;
}
