/* hearth_bench_index SLABS...: the cost of a tier's index: memory per entry, and the time to adopt all entries at a
 * start, to look one up, to insert a long conversation of short slabs, and to detach all of it and attach it again.
 * Times are CPU times, independent of other processes. */
#include "store/index/index.h"
#include "base/memory.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct identity identity = {.model = {1}, .quant = 7, .context = {2}};

static uint32_t draw(uint64_t *random, uint32_t below)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(((*random >> 33) * below) >> 31);
}

static double cpu_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static double ms_since(double start)
{
    return cpu_ms() - start;
}

static void no_user(void *user)
{
    (void)user;
}

/* ---- Adopting at a start ---- */

enum { BLOCK = 256 };

/* A slab's key is its number: nothing here depends on its being the hash of the tokens. */
static struct slab_key key_of_number(uint64_t number)
{
    struct slab_key key = {{0}};
    uint64_t mixed = number * 0x9e3779b97f4a7c15u;
    memcpy(key.v, &mixed, sizeof mixed);
    memcpy(key.v + sizeof mixed, &number, sizeof number);
    return key;
}

struct planned {
    int32_t parent, depth; /* -1: none */
};

/* Conversations of 16 to 64 slabs; every fourth has a branch of eight. */
static struct planned *draw_slabs(int32_t n)
{
    struct planned *slabs = mem_grow(NULL, (size_t)n, sizeof *slabs);
    uint64_t random = 1;
    int32_t left = 0, from = -1;
    for (int32_t i = 0; i < n; i++) {
        bool branch = left == 0 && i > 0 && draw(&random, 4) == 0;
        if (left == 0) {
            from = branch ? i - 1 - (int32_t)draw(&random, 8) : -1;
            left = branch ? 8 : 16 + (int32_t)draw(&random, 49);
        }
        slabs[i] = (struct planned){.parent = from, .depth = from < 0 ? 0 : slabs[from].depth + 1};
        from = i;
        left--;
    }
    return slabs;
}

static void adopt(struct index *index, const struct planned *slabs, int32_t i)
{
    int32_t own[BLOCK];
    uint64_t random = (uint64_t)i;
    for (int32_t k = 0; k < BLOCK; k++) own[k] = (int32_t)draw(&random, 150000);
    struct slab_head head = {
        .kind = SLAB_ROWS, .identity = identity, .key = key_of_number((uint64_t)i), .used_ms = i + 1};
    if (slabs[i].parent >= 0) head.parent = key_of_number((uint64_t)slabs[i].parent);
    head.start = slabs[i].depth * BLOCK;
    head.end = head.start + BLOCK;
    head.tokens = (struct tokens){.v = own, .len = BLOCK};
    index_adopt(index, &head, 1 << 20, INT64_C(1) << 40);
}

static uint64_t allocated(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void look_up_some(struct index *index, const struct planned *slabs, int32_t n)
{
    enum { LOOKUPS = 2000 };
    static int32_t tokens[80 * BLOCK];
    uint64_t random = 9;
    double took = 0;
    int64_t matched = 0;
    for (int32_t k = 0; k < LOOKUPS; k++) {
        int32_t at = (int32_t)draw(&random, (uint32_t)n), depth = slabs[at].depth;
        for (int32_t i = at; i >= 0; i = slabs[i].parent) {
            uint64_t own = (uint64_t)i;
            for (int32_t j = 0; j < BLOCK; j++) tokens[slabs[i].depth * BLOCK + j] = (int32_t)draw(&own, 150000);
        }
        struct index_lookup lookup = {.identity = &identity, .tokens = tokens, .n = (depth + 1) * BLOCK, .now_ms = 1};
        struct match match;
        double start = cpu_ms();
        index_find(index, &lookup, &match);
        took += ms_since(start);
        matched += match.n_rows == lookup.n;
        index_release(index, &match);
    }
    printf(" %10.1f us%s", took * 1e3 / LOOKUPS, matched == LOOKUPS ? "" : " (not all found)");
}

/* Time of one lookup, without computing its key. */
static void look_up_keys(struct index *index, int32_t n)
{
    enum { LOOKUPS = 100000 };
    static struct slab_key keys[LOOKUPS];
    uint64_t random = 11;
    int64_t there = 0;
    for (int32_t k = 0; k < LOOKUPS; k++) keys[k] = key_of_number(draw(&random, (uint32_t)n));
    double start = cpu_ms();
    for (int32_t k = 0; k < LOOKUPS; k++) there += index_has(index, &keys[k]) == INDEX_THERE;
    printf(" %10.3f us%s\n", ms_since(start) * 1e3 / LOOKUPS, there == LOOKUPS ? "" : " (not all found)");
}

/* In random order, as a folder lists its files. */
static void start_with(int32_t n)
{
    struct planned *slabs = draw_slabs(n);
    int32_t *order = mem_grow(NULL, (size_t)n, sizeof *order);
    uint64_t random = 5;
    for (int32_t i = 0; i < n; i++) {
        int32_t k = (int32_t)draw(&random, (uint32_t)i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    uint64_t before = allocated();
    struct index *index = index_open(BLOCK, UINT64_MAX, no_user);
    double start = cpu_ms();
    double longest = 0;
    for (int32_t i = 0; i < n; i++) {
        double one = cpu_ms();
        adopt(index, slabs, order[i]);
        double took = ms_since(one);
        if (took > longest) longest = took;
    }
    double took = ms_since(start);
    printf("%10d %10.0f B %10.0f ms %10.2f ms", n, (double)(allocated() - before) / n, took, longest);
    look_up_some(index, slabs, n);
    look_up_keys(index, n);
    index_close(index);
    free(order);
    free(slabs);
}

/* ---- A long conversation ---- */

struct conversation {
    int32_t tokens, stride;
};

static void publish_all(struct index *index, const int32_t *tokens, const struct slab_key *keys, struct conversation c)
{
    struct entry *parent = NULL;
    for (int32_t at = 0; at < c.tokens; at += c.stride) {
        struct reserve what = {.identity = &identity, .kind = SLAB_ROWS, .key = keys[at / c.stride], .parent = parent};
        struct reservation *reservation;
        struct victim *victims;
        what.tokens = tokens + at;
        what.start = at;
        what.end = at + c.stride;
        what.size = 1000;
        index_reserve(index, &what, &reservation, &victims);
        if (parent != NULL) index_unpin(index, parent);
        parent = index_publish(index, reservation, what.size, NULL, at);
    }
    index_unpin(index, parent);
}

static void converse(struct conversation c)
{
    int32_t *tokens = mem_grow(NULL, (size_t)c.tokens, sizeof *tokens);
    struct slab_key *keys = mem_grow(NULL, (size_t)(c.tokens / c.stride), sizeof *keys);
    for (int32_t i = 0; i < c.tokens; i++) tokens[i] = i * 7919 % 150000;
    slab_keys_at_strides(&identity, tokens, (size_t)c.tokens, (size_t)c.stride, keys);
    struct index *index = index_open(c.stride, UINT64_MAX, no_user);
    double start = cpu_ms();
    publish_all(index, tokens, keys, c);
    double published = ms_since(start);
    struct index_lookup lookup = {.identity = &identity, .tokens = tokens, .n = c.tokens, .keys = keys, .now_ms = 1};
    struct match match;
    start = cpu_ms();
    index_find(index, &lookup, &match);
    double found = ms_since(start);
    struct entry *root = match.rows;
    while (root->parent != NULL) root = root->parent;
    start = cpu_ms();
    index_mark_unreadable(index, root, 0);
    double detached = ms_since(start);
    index_release(index, &match);
    start = cpu_ms();
    index_retry_unreadable(index, INT64_MAX);
    double attached = ms_since(start);
    printf("%10d %10d %10.2f ms %10.3f ms %10.2f ms %10.2f ms\n", c.tokens, c.stride, published, found, detached,
           attached);
    index_close(index);
    free(keys);
    free(tokens);
}

int main(int argc, char **argv)
{
    static const struct conversation conversations[] = {{32768, 16}, {65536, 16}, {131072, 16}, {131072, 256}};
    printf("%10s %12s %13s %13s %13s %13s\n", "slabs", "bytes each", "adopted", "longest one", "a lookup",
           "by its key");
    for (int i = 1; i < argc; i++) start_with((int32_t)strtol(argv[i], NULL, 10));
    printf("%10s %10s %13s %13s %13s %13s\n", "tokens", "stride", "published", "found", "detached", "attached");
    for (size_t i = 0; i < sizeof conversations / sizeof *conversations; i++) converse(conversations[i]);
    return 0;
}
