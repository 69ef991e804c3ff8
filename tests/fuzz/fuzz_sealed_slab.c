/* Fuzzes sealed slabs as a server might return them: a head and what follows it. Either the head is refused, or it
 * encodes to the same bytes and its parts cover the slab; and nothing is opened that was not sealed with the secret. */
#include "base/memory.h"
#include "store/slabs/sealed_slab.h"

#include <stdlib.h>
#include <string.h>

static void parts_cover(uint64_t size, uint32_t n_parts)
{
    uint64_t at = 0;
    for (uint32_t part = 0; part < n_parts; part++) {
        if (sealed_part_offset(part) != at) abort();
        at += sealed_part_size(size, part);
    }
    if (at != size) abort();
}

static void is_not_opened(const struct sealed_head *head, const uint8_t *bytes, size_t size)
{
    static const struct slab_name name = {{{1}}, SLAB_ROWS};
    if (head->size != size) return;
    for (int encrypts = 0; encrypts < 2; encrypts++) {
        struct sealed_keys keys;
        sealed_keys_init(&keys, "a secret that no fuzzer knows", 29, encrypts);
        struct sealed_name sealed = sealed_name_of(&keys, &name, 256);
        uint8_t *copy = mem_alloc(size + 1);
        memcpy(copy, bytes, size);
        if (sealed_open(&keys, &sealed, head, copy)) abort();
        free(copy);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sealed_head head;
    uint8_t again[SEALED_HEAD_BYTES];
    if (size < SEALED_HEAD_BYTES || !sealed_head_decode(data, &head)) return 0;
    sealed_head_encode(&head, again);
    if (memcmp(again, data, sizeof again) != 0) abort();
    parts_cover(head.size, head.n_parts);
    is_not_opened(&head, data + SEALED_HEAD_BYTES, size - SEALED_HEAD_BYTES);
    return 0;
}
