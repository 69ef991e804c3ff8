/* The bytes of sealed slabs, as docs/format.md lists them; little endian whatever the machine is. */
#include "store/slabs/sealed_slab.h"

#include "base/little.h"

#include <assert.h>
#include <string.h>

enum { VERSION = 2, ENCRYPTED = 1 };

/* Beside the kinds of slabs. */
enum { HINTS = 3 };

static const char MAGIC[4] = {'H', 'K', 'V', 'R'};

/* Offsets in the head. The MAC authenticates the bytes before it. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 4,
    AT_FLAGS = 5,
    AT_ZERO = 6,
    AT_PARTS = 8,
    AT_ZERO2 = 12,
    AT_SIZE = 16,
    AT_NONCE = 24,
    AT_MAC = 40
};

/* ---- Keys and names ---- */

static void derive(const void *secret, size_t size, const char *purpose, uint8_t key[SHA256_BYTES])
{
    hmac_of(secret, size, purpose, strlen(purpose), key);
}

void sealed_keys_init(struct sealed_keys *keys, const void *secret, size_t size, bool encrypts)
{
    assert(secret != NULL || size == 0);
    const void *bytes = size > 0 ? secret : "";
    derive(bytes, size, encrypts ? "hearth sealed slab 2: name, encrypted" : "hearth sealed slab 2: name", keys->name);
    derive(bytes, size, "hearth sealed slab 2: mac", keys->mac);
    derive(bytes, size, "hearth sealed slab 2: encrypt", keys->encrypt);
    keys->encrypts = encrypts;
}

static struct sealed_name make_name(const struct sealed_keys *keys, uint8_t kind, const struct slab_key *key,
                                    int32_t stride)
{
    struct sealed_name sealed;
    uint8_t bytes[3 + 4 + SHA256_BYTES] = {kind, VERSION, SLAB_VERSION};
    little_put(bytes + 3, (uint32_t)stride, 4);
    memcpy(bytes + 7, key->v, SHA256_BYTES);
    hmac_of(keys->name, sizeof keys->name, bytes, sizeof bytes, sealed.v);
    return sealed;
}

struct sealed_name sealed_name_of(const struct sealed_keys *keys, const struct slab_name *name, int32_t stride)
{
    assert(name->kind == SLAB_ROWS || name->kind == SLAB_STATE);
    assert(stride > 0);
    return make_name(keys, (uint8_t)name->kind, &name->key, stride);
}

struct sealed_name sealed_hints_name(const struct sealed_keys *keys, const struct slab_key *before, int32_t stride)
{
    return make_name(keys, HINTS, before, stride);
}

/* ---- Parts ---- */

#define FIRST_BYTES (SEALED_PART_BYTES - SEALED_HEAD_BYTES)

uint32_t sealed_parts(uint64_t size)
{
    return size <= FIRST_BYTES ? 1 : (uint32_t)(1 + (size - FIRST_BYTES + SEALED_PART_BYTES - 1) / SEALED_PART_BYTES);
}

uint64_t sealed_part_offset(uint32_t part)
{
    return part == 0 ? 0 : FIRST_BYTES + (part - 1) * SEALED_PART_BYTES;
}

uint64_t sealed_part_size(uint64_t size, uint32_t part)
{
    assert(part < sealed_parts(size));
    uint64_t left = size - sealed_part_offset(part), most = part == 0 ? FIRST_BYTES : SEALED_PART_BYTES;
    return left < most ? left : most;
}

/* ---- The head ---- */

void sealed_head_encode(const struct sealed_head *head, uint8_t bytes[SEALED_HEAD_BYTES])
{
    memset(bytes, 0, SEALED_HEAD_BYTES);
    memcpy(bytes + AT_MAGIC, MAGIC, sizeof MAGIC);
    bytes[AT_VERSION] = VERSION;
    bytes[AT_FLAGS] = head->encrypted ? ENCRYPTED : 0;
    little_put(bytes + AT_PARTS, head->n_parts, 4);
    little_put(bytes + AT_SIZE, head->size, 8);
    memcpy(bytes + AT_NONCE, head->nonce, sizeof head->nonce);
    memcpy(bytes + AT_MAC, head->mac, sizeof head->mac);
}

bool sealed_head_decode(const uint8_t bytes[SEALED_HEAD_BYTES], struct sealed_head *head)
{
    *head = (struct sealed_head){.size = little_get(bytes + AT_SIZE, 8),
                                 .n_parts = (uint32_t)little_get(bytes + AT_PARTS, 4),
                                 .encrypted = bytes[AT_FLAGS] == ENCRYPTED};
    memcpy(head->nonce, bytes + AT_NONCE, sizeof head->nonce);
    memcpy(head->mac, bytes + AT_MAC, sizeof head->mac);
    bool known =
        memcmp(bytes, MAGIC, sizeof MAGIC) == 0 && bytes[AT_VERSION] == VERSION && bytes[AT_FLAGS] <= ENCRYPTED;
    bool zero = little_get(bytes + AT_ZERO, 2) == 0 && little_get(bytes + AT_ZERO2, 4) == 0;
    return known && zero && head->size > 0 && head->size <= SEALED_MOST_BYTES &&
           head->n_parts == sealed_parts(head->size);
}

/* ---- Sealing ---- */

enum { CONTEXT_BYTES = AT_MAC + SHA256_BYTES };

/* Authenticated besides the slab are the head up to its MAC, and the name under which it is found, so that no sealed
 * slab passes for another. The key is for this slab alone, so that no nonce of AES-GCM is ever used twice with one. */
static struct seal seal_of(const struct sealed_keys *keys, const struct sealed_name *name,
                           const struct sealed_head *head, uint8_t context[CONTEXT_BYTES])
{
    struct seal seal = {.context = context, .context_size = CONTEXT_BYTES};
    uint8_t bytes[SEALED_HEAD_BYTES];
    sealed_head_encode(head, bytes);
    memcpy(context, bytes, AT_MAC);
    memcpy(context + AT_MAC, name->v, sizeof name->v);
    hmac_of(keys->encrypts ? keys->encrypt : keys->mac, SHA256_BYTES, head->nonce, sizeof head->nonce, seal.key);
    return seal;
}

bool sealed_seal(const struct sealed_keys *keys, const struct sealed_name *name, uint8_t *slab, uint64_t size,
                 struct sealed_head *head)
{
    *head = (struct sealed_head){.size = size, .n_parts = sealed_parts(size), .encrypted = keys->encrypts};
    if (size == 0 || size > SEALED_MOST_BYTES) return false;
    seal_random(head->nonce, sizeof head->nonce);
    uint8_t context[CONTEXT_BYTES];
    const struct seal seal = seal_of(keys, name, head, context);
    if (keys->encrypts)
        seal_encrypt(&seal, slab, size, head->mac);
    else
        seal_authenticate(&seal, slab, size, head->mac);
    return true;
}

/* A store that encrypts takes nothing that is not encrypted: a server could have made it, had it the MAC's key
 * alone. */
bool sealed_open(const struct sealed_keys *keys, const struct sealed_name *name, const struct sealed_head *head,
                 uint8_t *slab)
{
    assert(head->size > 0 && head->size <= SEALED_MOST_BYTES);
    uint8_t context[CONTEXT_BYTES];
    const struct seal seal = seal_of(keys, name, head, context);
    if (head->encrypted != keys->encrypts) return false;
    return head->encrypted ? seal_decrypt(&seal, slab, head->size, head->mac)
                           : seal_verify(&seal, slab, head->size, head->mac);
}
