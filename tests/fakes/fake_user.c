#include "fakes/fake_user.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { RAW_HEAD = 16, WAIT_MS = 30000 };

/* ---- Rows ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t next_hash(uint64_t hash, int32_t token)
{
    return mix(hash * 31 + (uint64_t)(uint32_t)token + 1);
}

static uint64_t hash_before(const struct fake_user *fake, const int32_t *tokens, int32_t n)
{
    uint64_t hash = mix(fake->seed);
    for (int32_t i = 0; i < n; i++) hash = next_hash(hash, tokens[i]);
    return hash;
}

static void fill(void *bytes, size_t size, uint64_t hash)
{
    for (size_t i = 0; i < size / 8; i++) {
        uint64_t word = mix(hash + i);
        memcpy((char *)bytes + 8 * i, &word, 8);
    }
}

static bool holds(const void *bytes, size_t size, uint64_t hash)
{
    for (size_t i = 0; i < size / 8; i++) {
        uint64_t word = mix(hash + i);
        if (memcmp((const char *)bytes + 8 * i, &word, 8) != 0) return false;
    }
    return true;
}

/* ---- The codec ---- */

static bool is_raw_of(const void *raw, size_t size, int32_t from, int32_t to)
{
    int32_t head[2];
    if (size < RAW_HEAD) return false;
    memcpy(head, raw, sizeof head);
    return head[0] <= from && to <= head[1];
}

static struct slab_region region_of(char what, int32_t rows, size_t row_bytes, size_t offset)
{
    return (struct slab_region){.what = what,
                                .rows = (uint32_t)rows,
                                .row_bytes = row_bytes,
                                .offset = offset,
                                .size = (size_t)rows * row_bytes};
}

static void cut_rows(const struct fake_user *fake, const char *raw, int32_t from, int32_t to, struct buf *payload,
                     struct slab_region *regions)
{
    int32_t first;
    size_t half = fake->row_bytes / 2;
    memcpy(&first, raw, sizeof first);
    for (size_t part = 0; part < 2; part++) {
        regions[part] = region_of(part == 0 ? 'K' : 'V', to - from, half, payload->len);
        for (int32_t i = from; i < to; i++)
            buf_append(payload, raw + RAW_HEAD + (size_t)(i - first) * fake->row_bytes + part * half, half);
    }
}

static bool cut(const void *ud, enum slab_kind kind, const void *raw, size_t size, int32_t from, int32_t to,
                struct buf *payload, struct slab_region **regions, size_t *n_regions)
{
    const struct fake_user *fake = ud;
    if (!is_raw_of(raw, size, from, to)) return false;
    *n_regions = kind == SLAB_ROWS ? 2 : 1;
    *regions = mem_alloc(*n_regions * sizeof **regions);
    if (kind == SLAB_ROWS) {
        cut_rows(fake, raw, from, to, payload, *regions);
    } else {
        **regions = region_of('R', 1, fake->state_bytes, 0);
        buf_append(payload, (const char *)raw + RAW_HEAD, fake->state_bytes);
    }
    return true;
}

static bool join(const void *ud, const struct store_piece *pieces, size_t n, struct buf *joined)
{
    const struct fake_user *fake = ud;
    size_t half = fake->row_bytes / 2;
    for (size_t part = 0; part < 2; part++)
        for (size_t i = 0; i < n; i++) {
            size_t wanted = (size_t)(pieces[i].to - pieces[i].from), rows = pieces[i].size / fake->row_bytes;
            buf_append(joined, (const char *)pieces[i].bytes + part * rows * half, wanted * half);
        }
    return true;
}

/* ---- The user ---- */

static void wake(void *ud)
{
    struct fake_user *fake = ud;
    pthread_mutex_lock(&fake->mutex);
    fake->wakes++;
    pthread_cond_broadcast(&fake->woken);
    pthread_mutex_unlock(&fake->mutex);
}

void fake_user_init(struct fake_user *fake, uint64_t seed, struct store_codec codec)
{
    codec.ud = fake;
    codec.cut = cut;
    codec.join = join;
    *fake = (struct fake_user){.seed = seed, .row_bytes = 16, .state_bytes = 512};
    fake->user = (struct store_user){.codec = codec, .wake = wake, .ud = fake};
    memset(&fake->user.identity, 1, sizeof fake->user.identity);
    memcpy(fake->user.identity.model, &seed, sizeof seed);
    pthread_mutex_init(&fake->mutex, NULL);
    clock_cond_init(&fake->woken);
}

void fake_user_release(struct fake_user *fake)
{
    pthread_cond_destroy(&fake->woken);
    pthread_mutex_destroy(&fake->mutex);
}

void *fake_user_copy(const struct fake_user *fake, struct store *store, enum slab_kind kind, const int32_t *tokens,
                     int32_t from, int32_t to, size_t *size)
{
    size_t rows = (size_t)(to - from);
    *size = RAW_HEAD + (kind == SLAB_ROWS ? rows * fake->row_bytes : fake->state_bytes);
    char *raw = store_buffer(store, *size);
    uint64_t hash = hash_before(fake, tokens, kind == SLAB_ROWS ? from : to);
    memcpy(raw, &from, sizeof from);
    memcpy(raw + sizeof from, &to, sizeof to);
    if (kind == SLAB_STATE) fill(raw + RAW_HEAD, fake->state_bytes, ~hash);
    for (size_t i = 0; kind == SLAB_ROWS && i < rows; i++) {
        hash = next_hash(hash, tokens[(size_t)from + i]);
        fill(raw + RAW_HEAD + i * fake->row_bytes, fake->row_bytes, hash);
    }
    return raw;
}

bool fake_user_check(const struct fake_user *fake, const int32_t *tokens, const struct store_piece *piece)
{
    const char *bytes = piece->bytes;
    size_t half = fake->row_bytes / 2, rows = piece->size / fake->row_bytes;
    if (piece->kind == SLAB_STATE)
        return piece->size == fake->state_bytes && holds(bytes, piece->size, ~hash_before(fake, tokens, piece->to));
    if (piece->size % fake->row_bytes != 0 || rows < (size_t)(piece->to - piece->from)) return false;
    uint64_t hash = hash_before(fake, tokens, piece->from);
    for (size_t i = 0; i < (size_t)(piece->to - piece->from); i++) {
        hash = next_hash(hash, tokens[(size_t)piece->from + i]);
        if (!holds(bytes + i * half, half, hash)) return false;
        if (!holds(bytes + (rows + i) * half, half, hash + half / 8)) return false;
    }
    return true;
}

uint64_t fake_user_wakes(struct fake_user *fake)
{
    pthread_mutex_lock(&fake->mutex);
    uint64_t wakes = fake->wakes;
    pthread_mutex_unlock(&fake->mutex);
    return wakes;
}

bool fake_user_wait(struct fake_user *fake, uint64_t seen)
{
    struct clock *clock = clock_monotonic();
    int64_t deadline = clock_now(clock) + clock_from_ms(WAIT_MS);
    pthread_mutex_lock(&fake->mutex);
    while (fake->wakes <= seen && clock_now(clock) < deadline) clock->wait(clock, &fake->woken, &fake->mutex, deadline);
    bool woken = fake->wakes > seen;
    pthread_mutex_unlock(&fake->mutex);
    return woken;
}
