/* The bytes of a slab, as docs/format.md lists them; little endian whatever the machine is. */
#include "store/slabs/slab.h"

#include "base/crc32c.h"
#include "base/error.h"
#include "base/little.h"
#include "base/memory.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_REGIONS = 65536, REGION_BYTES = 40, CRC_BYTES = 4 };

static const char MAGIC[4] = {'H', 'K', 'V', 'S'};

/* Offsets of the fields in the front. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 4,
    AT_KIND = 5,
    AT_REASON = 6,
    AT_QUANT = 7,
    AT_START = 8,
    AT_END = 12,
    AT_REGIONS = 16,
    AT_HITS = 20,
    AT_USED = 24,
    AT_CREATED = 32,
    AT_PAYLOAD = 40,
    AT_MODEL = SLAB_HEADER_BYTES,
    AT_CONTEXT = AT_MODEL + SHA256_BYTES,
    AT_KEY = AT_CONTEXT + SHA256_BYTES,
    AT_PARENT = AT_KEY + SHA256_BYTES,
    AT_TOKENS = AT_PARENT + SHA256_BYTES
};

const uint64_t SLAB_USE_OFFSET = AT_HITS;

static const struct slab_key no_key;

const char *slab_reason_name(enum slab_reason reason)
{
    static const char *const names[] = {[SLAB_COLD] = "cold",
                                        [SLAB_CONTINUED] = "continued",
                                        [SLAB_EVICT] = "evict",
                                        [SLAB_SHUTDOWN] = "shutdown",
                                        [SLAB_FINISH] = "finish"};
    assert(reason >= SLAB_COLD && reason <= SLAB_FINISH);
    return names[reason];
}

void slab_head_release(struct slab_head *head)
{
    tokens_release(&head->tokens);
    free(head->regions);
    *head = (struct slab_head){0};
}

/* ---- In memory ---- */

struct slab_bytes *slab_bytes_open(uint8_t *v, size_t size)
{
    struct slab_bytes *bytes = mem_alloc(sizeof *bytes);
    *bytes = (struct slab_bytes){.v = v, .size = size, .refs = 1};
    return bytes;
}

struct slab_bytes *slab_bytes_ref(struct slab_bytes *bytes)
{
    assert(atomic_load(&bytes->refs) > 0);
    atomic_fetch_add(&bytes->refs, 1);
    return bytes;
}

void slab_bytes_unref(struct slab_bytes *bytes)
{
    if (bytes == NULL || atomic_fetch_sub(&bytes->refs, 1) > 1) return;
    free(bytes->v);
    free(bytes);
}

void slab_release(struct slab *slab)
{
    slab_head_release(&slab->head);
    slab_bytes_unref(slab->bytes);
    *slab = (struct slab){0};
}

/* ---- Numbers ---- */

static uint32_t get32(const uint8_t *at)
{
    return (uint32_t)little_get(at, 4);
}

/* n_tokens has 31 bits and n_regions 17 at most: no overflow. */
static size_t front_size(size_t n_tokens, size_t n_regions)
{
    return AT_TOKENS + n_tokens * sizeof(int32_t) + n_regions * REGION_BYTES + CRC_BYTES;
}

uint64_t slab_size(const struct slab_head *head)
{
    return front_size(head->tokens.len, head->n_regions) + head->payload_size + SLAB_TRAILER_BYTES;
}

/* CRC of the front without the bytes that change in place, and without itself. */
static uint32_t front_crc(const uint8_t *front, size_t size)
{
    uint32_t crc = crc32c(0, front, AT_HITS);
    return crc32c(crc, front + AT_HITS + SLAB_USE_BYTES, size - AT_HITS - SLAB_USE_BYTES - CRC_BYTES);
}

/* ---- Writing ---- */

static void put_header(const struct slab_head *head, uint8_t *at)
{
    memcpy(at + AT_MAGIC, MAGIC, sizeof MAGIC);
    at[AT_VERSION] = SLAB_VERSION;
    at[AT_KIND] = (uint8_t)head->kind;
    at[AT_REASON] = (uint8_t)head->reason;
    at[AT_QUANT] = head->identity.quant;
    little_put(at + AT_START, (uint32_t)head->start, 4);
    little_put(at + AT_END, (uint32_t)head->end, 4);
    little_put(at + AT_REGIONS, head->n_regions, 4);
    slab_encode_use(head->hits, head->used_ms, at + SLAB_USE_OFFSET);
    little_put(at + AT_CREATED, (uint64_t)head->created_ms, 8);
    little_put(at + AT_PAYLOAD, head->payload_size, 8);
}

void slab_encode_use(uint32_t hits, int64_t used_ms, uint8_t bytes[SLAB_USE_BYTES])
{
    little_put(bytes, hits, 4);
    little_put(bytes + AT_USED - AT_HITS, (uint64_t)used_ms, 8);
}

/* Covers the CRC of the front too, so that a front and a trailer of different slabs never match. */
static uint32_t trailer_crc(const uint8_t *front, size_t size, const uint8_t *trailer)
{
    return crc32c(crc32c(0, front + size - CRC_BYTES, CRC_BYTES), trailer, SLAB_TRAILER_BYTES - CRC_BYTES);
}

/* Everything before the region table. Returns where the table begins. */
static uint8_t *put_front(const struct slab_head *head, uint8_t *bytes)
{
    uint8_t *at = bytes + AT_TOKENS;
    put_header(head, bytes);
    memcpy(bytes + AT_MODEL, head->identity.model, SHA256_BYTES);
    memcpy(bytes + AT_CONTEXT, head->identity.context, SHA256_BYTES);
    memcpy(bytes + AT_KEY, head->key.v, SHA256_BYTES);
    memcpy(bytes + AT_PARENT, head->parent.v, SHA256_BYTES);
    for (size_t i = 0; i < head->tokens.len; i++, at += 4) little_put(at, (uint32_t)head->tokens.v[i], 4);
    return at;
}

void slab_encode_brief(const struct slab_head *head, struct buf *front)
{
    assert(head->start <= head->end && head->tokens.len == (size_t)(head->end - head->start));
    struct slab_head brief = *head;
    brief.n_regions = 0;
    size_t size = front_size(brief.tokens.len, 0);
    uint8_t *bytes = mem_alloc(size), *at = put_front(&brief, bytes);
    little_put(at, front_crc(bytes, size), CRC_BYTES);
    buf_append(front, bytes, size);
    free(bytes);
}

void slab_encode(struct slab_head *head, const void *payload, struct buf *front, uint8_t trailer[SLAB_TRAILER_BYTES])
{
    assert(head->start <= head->end && head->tokens.len == (size_t)(head->end - head->start));
    assert(payload != NULL || head->payload_size == 0);
    size_t size = front_size(head->tokens.len, head->n_regions);
    uint8_t *bytes = mem_alloc(size), *at = put_front(head, bytes);
    for (size_t i = 0; i < head->n_regions; i++, at += REGION_BYTES) {
        struct slab_region *region = &head->regions[i];
        assert(region->offset <= head->payload_size && region->size <= head->payload_size - region->offset);
        region->crc = crc32c(0, (const uint8_t *)payload + region->offset, region->size);
        at[0] = (uint8_t)region->what;
        at[1] = 0;
        little_put(at + 2, region->layer, 2);
        little_put(at + 4, region->type, 2);
        little_put(at + 6, 0, 2);
        little_put(at + 8, region->rows, 4);
        little_put(at + 12, region->crc, 4);
        little_put(at + 16, region->row_bytes, 8);
        little_put(at + 24, region->offset, 8);
        little_put(at + 32, region->size, 8);
    }
    little_put(at, front_crc(bytes, size), CRC_BYTES);
    little_put(trailer, crc32c(0, payload, head->payload_size), 4);
    little_put(trailer + 4, slab_size(head), 8);
    little_put(trailer + 12, trailer_crc(bytes, size, trailer), CRC_BYTES);
    buf_clear(front);
    buf_append(front, bytes, size);
    free(bytes);
}

/* ---- Reading ---- */

size_t slab_front_size(const void *header)
{
    const uint8_t *at = header;
    uint32_t start = get32(at + AT_START), end = get32(at + AT_END), n_regions = get32(at + AT_REGIONS);
    bool known = memcmp(at, MAGIC, sizeof MAGIC) == 0 && at[AT_VERSION] == SLAB_VERSION;
    if (!known || end > INT32_MAX || start > end || n_regions > MOST_REGIONS) return 0;
    return front_size(end - start, n_regions);
}

bool slab_is_newer(const void *header)
{
    const uint8_t *at = header;
    return memcmp(at, MAGIC, sizeof MAGIC) == 0 && at[AT_VERSION] > SLAB_VERSION;
}

/* May wrap around for a nonsensical header, which slab_decode() refuses. */
uint64_t slab_brief_bytes(const void *front, size_t size)
{
    return size < SLAB_HEADER_BYTES ? 0
                                    : size + little_get((const uint8_t *)front + AT_PAYLOAD, 8) + SLAB_TRAILER_BYTES;
}

bool slab_brief_name(const void *front, size_t size, struct slab_name *name)
{
    const uint8_t *at = front;
    if (size < AT_TOKENS) return false;
    name->kind = (enum slab_kind)at[AT_KIND];
    memcpy(name->key.v, at + AT_KEY, SHA256_BYTES);
    return true;
}

void slab_decode_use(const uint8_t bytes[SLAB_USE_BYTES], uint32_t *hits, int64_t *used_ms)
{
    *hits = get32(bytes);
    *used_ms = (int64_t)little_get(bytes + AT_USED - AT_HITS, 8);
}

/* The fault of a region whose predecessor ends at `*end`; NULL: none. */
static const char *region_fault(const struct slab_head *head, const struct slab_region *region, uint64_t *end)
{
    bool is_row = region->what == 'K' || region->what == 'V' || region->what == 'v';
    if (region->what == '\0' || strchr("KVvRSM", region->what) == NULL) return "a region of an unknown sort";
    uint64_t size;
    if (region->what != 'M' && (__builtin_mul_overflow(region->row_bytes, region->rows, &size) || size != region->size))
        return "a region whose size is not that of its rows";
    if (head->kind == SLAB_ROWS && is_row && region->rows != head->tokens.len)
        return "a region that has not one row a token";
    if (region->offset < *end) return "regions that overlap or are out of order";
    if (region->offset > head->payload_size || region->size > head->payload_size - region->offset)
        return "a region beyond the payload's end";
    *end = region->offset + region->size;
    return NULL;
}

static const char *fields_fault(const struct slab_head *head)
{
    if (head->kind != SLAB_ROWS && head->kind != SLAB_STATE) return "an unknown kind";
    if (head->reason < SLAB_COLD || head->reason > SLAB_FINISH) return "an unknown reason";
    if (head->end == 0 || (head->kind == SLAB_ROWS && head->start == head->end)) return "no tokens";
    if (head->payload_size == 0) return "no payload";
    bool has_parent = memcmp(&head->parent, &no_key, sizeof no_key) != 0;
    if (has_parent != (head->start > 0)) return "a parent where none can be, or none where one must be";
    return NULL;
}

/* Checks the lengths before anything is read by them. */
static const char *size_fault(const uint8_t *front, size_t size, uint64_t slab_bytes)
{
    if (size < SLAB_HEADER_BYTES) return "an end within the header";
    if (slab_is_newer(front)) return "a version of the format that this program does not know";
    size_t expected = slab_front_size(front);
    if (expected == 0) return "no header of a slab";
    if (size != expected) return "a front of another length than its header says";
    uint64_t payload = little_get(front + AT_PAYLOAD, 8), whole;
    if (__builtin_add_overflow(payload, size + SLAB_TRAILER_BYTES, &whole) || whole != slab_bytes)
        return "another size than its header says";
    if (get32(front + size - CRC_BYTES) != front_crc(front, size)) return "a damaged front";
    return NULL;
}

static void get_head(const uint8_t *front, struct slab_head *head)
{
    *head = (struct slab_head){
        .kind = (enum slab_kind)front[AT_KIND],
        .reason = (enum slab_reason)front[AT_REASON],
        .identity.quant = front[AT_QUANT],
        .start = (int32_t)get32(front + AT_START),
        .end = (int32_t)get32(front + AT_END),
        .n_regions = get32(front + AT_REGIONS),
        .hits = get32(front + AT_HITS),
        .used_ms = (int64_t)little_get(front + AT_USED, 8),
        .created_ms = (int64_t)little_get(front + AT_CREATED, 8),
        .payload_size = little_get(front + AT_PAYLOAD, 8),
    };
    memcpy(head->identity.model, front + AT_MODEL, SHA256_BYTES);
    memcpy(head->identity.context, front + AT_CONTEXT, SHA256_BYTES);
    memcpy(head->key.v, front + AT_KEY, SHA256_BYTES);
    memcpy(head->parent.v, front + AT_PARENT, SHA256_BYTES);
    const uint8_t *at = front + AT_TOKENS;
    size_t n = (size_t)(head->end - head->start);
    head->tokens = (struct tokens){.v = mem_alloc((n > 0 ? n : 1) * sizeof(int32_t)), .len = n, .cap = n};
    for (size_t i = 0; i < n; i++, at += 4) head->tokens.v[i] = (int32_t)get32(at);
    head->regions = mem_alloc((head->n_regions > 0 ? head->n_regions : 1) * sizeof *head->regions);
    for (size_t i = 0; i < head->n_regions; i++, at += REGION_BYTES)
        head->regions[i] = (struct slab_region){
            .what = (char)at[0],
            .layer = (uint16_t)little_get(at + 2, 2),
            .type = (uint16_t)little_get(at + 4, 2),
            .rows = get32(at + 8),
            .crc = get32(at + 12),
            .row_bytes = little_get(at + 16, 8),
            .offset = little_get(at + 24, 8),
            .size = little_get(at + 32, 8),
        };
}

int slab_decode(const void *front, size_t size, uint64_t slab_bytes, struct slab_head *head, hearth_error *error)
{
    const uint8_t *bytes = front;
    const char *fault = size_fault(bytes, size, slab_bytes);
    if (fault == NULL) {
        get_head(bytes, head);
        fault = fields_fault(head);
        const uint8_t *table = bytes + AT_TOKENS + head->tokens.len * sizeof(int32_t);
        uint64_t end = 0;
        for (size_t i = 0; fault == NULL && i < head->n_regions; i++, table += REGION_BYTES) {
            bool reserved = table[1] != 0 || little_get(table + 6, 2) != 0;
            fault =
                reserved ? "a region whose reserved bytes are not zero" : region_fault(head, &head->regions[i], &end);
        }
        if (fault != NULL) slab_head_release(head);
    }
    return fault == NULL ? 0 : error_set(error, HEARTH_INVALID, "not a slab that can be used: %s", fault);
}

int slab_check(const struct slab_head *head, const void *front, size_t size, const void *payload,
               const uint8_t trailer[SLAB_TRAILER_BYTES], hearth_error *error)
{
    assert(size == front_size(head->tokens.len, head->n_regions));
    const char *fault = NULL;
    if (get32(trailer + 12) != trailer_crc(front, size, trailer) || little_get(trailer + 4, 8) != slab_size(head))
        fault = "a damaged trailer";
    else if (get32(trailer) != crc32c(0, payload, head->payload_size))
        fault = "a damaged payload";
    return fault == NULL ? 0 : error_set(error, HEARTH_INVALID, "not a slab that can be used: %s", fault);
}

const char *slab_damaged_region(const struct slab_head *head, const void *payload, char text[64])
{
    static const struct {
        char what;
        const char *name;
    } names[] = {{'K', "keys"},
                 {'V', "values"},
                 {'v', "values"},
                 {'R', "recurrent state (r)"},
                 {'S', "recurrent state (s)"},
                 {'M', "recurrent or SWA state"}};
    for (size_t i = 0; i < head->n_regions; i++) {
        const struct slab_region *region = &head->regions[i];
        if (crc32c(0, (const uint8_t *)payload + region->offset, region->size) == region->crc) continue;
        size_t k = 0;
        while (names[k].what != region->what) k++;
        snprintf(text, 64, "%s of layer %u", names[k].name, (unsigned)region->layer);
        return text;
    }
    return NULL;
}
