/* Numbers of blocks, and how many entries of a tier have each: see blocks.h.
 *
 * The number of a block is the beginning of SHA-256 over the one before it and its tokens; before the first one there
 * is the identity's. So it names a whole prefix, and is the same in every process that stores it. */
#include "lib/events/blocks.h"

#include "base/memory.h"
#include "base/sha256.h"

#include <stdlib.h>

struct block {
    struct hash_link link; /* its hash is the number */
    uint32_t n;            /* entries that have it */
};

/* ---- Numbers ---- */

static uint64_t number_after(uint64_t before, const int32_t *tokens)
{
    uint8_t bytes[sizeof before + HEARTH_BLOCK * sizeof(uint32_t)], digest[SHA256_BYTES], *out = bytes;
    for (size_t k = 0; k < sizeof before; k++) *out++ = (uint8_t)(before >> 8 * k);
    for (size_t i = 0; i < HEARTH_BLOCK; i++)
        for (size_t k = 0; k < sizeof(uint32_t); k++) *out++ = (uint8_t)((uint32_t)tokens[i] >> 8 * k);
    sha256_of(bytes, sizeof bytes, digest);
    uint64_t number = 0;
    for (size_t k = 0; k < sizeof number; k++) number = number << 8 | digest[k];
    return number == 0 ? 1 : number; /* routers take 0 for none */
}

/* The number at that place of the entry's prefix: its own, or that of an ancestor, which has all before its start. */
static uint64_t number_at(const struct blocks_of_entry *entry, int32_t place)
{
    while (place < entry->first) entry = entry->parent;
    return entry->numbers[place - entry->first];
}

/* A block that ends before the entry's start is one of its parent's. */
static uint64_t number_of(const struct blocks_of_entry *entry, const struct index_news *news, int32_t place)
{
    if ((place + 1) * HEARTH_BLOCK <= news->start) return number_at(entry->parent, place);
    uint64_t before = place == 0 ? entry->known->seed : number_at(entry, place - 1);
    return number_after(before, news->tokens.v + (place * HEARTH_BLOCK - news->from));
}

static void fill(struct blocks_of_entry *entry, const struct index_news *news)
{
    entry->parent = (const struct blocks_of_entry *)(const void *)news->parent;
    entry->known = news->name;
    entry->counts = !entry->known->name.by_state || news->kind == SLAB_STATE;
    entry->first = news->from / HEARTH_BLOCK;
    entry->n = news->end / HEARTH_BLOCK - entry->first;
    entry->numbers = mem_grow(NULL, (size_t)entry->n + 1, sizeof *entry->numbers);
    for (int32_t i = 0; i < entry->n; i++) entry->numbers[i] = number_of(entry, news, entry->first + i);
}

/* ---- Counting ---- */

static struct block *find(const struct blocks *blocks, uint64_t number)
{
    struct hash_link *link = hash_first(&blocks->table, number);
    return link == NULL ? NULL : container_of(struct block, link, link);
}

/* Whether the block was not there. */
static bool add(struct blocks *blocks, uint64_t number)
{
    struct block *block = find(blocks, number);
    if (block == NULL) {
        block = mem_alloc(sizeof *block);
        hash_add(&blocks->table, &block->link, number);
    }
    return block->n++ == 0;
}

/* Whether the block is gone. */
static bool subtract(struct blocks *blocks, uint64_t number)
{
    struct block *block = find(blocks, number);
    if (--block->n > 0) return false;
    hash_remove(&blocks->table, &block->link);
    free(block);
    return true;
}

/* ---- Entries ---- */

static void begin(struct blocks *blocks, const struct blocks_of_entry *entry)
{
    blocks->known = entry->known;
    blocks->n = 0;
    if (entry->n <= blocks->cap) return;
    blocks->cap = entry->n;
    blocks->numbers = mem_grow(blocks->numbers, (size_t)blocks->cap, sizeof *blocks->numbers);
    blocks->changed = mem_grow(blocks->changed, (size_t)blocks->cap, sizeof *blocks->changed);
}

void blocks_enter(struct blocks *blocks, const struct index_news *news)
{
    struct blocks_of_entry *entry = (struct blocks_of_entry *)(void *)news->followed;
    if (!news->was_told) fill(entry, news);
    begin(blocks, entry);
    blocks->first = entry->first;
    blocks->parent = entry->first == 0 ? 0 : number_at(entry->parent, entry->first - 1);
    for (int32_t i = 0; i < entry->n && entry->counts; i++) {
        blocks->numbers[i] = entry->numbers[i];
        blocks->changed[i] = add(blocks, entry->numbers[i]);
        blocks->n++;
    }
}

/* Only those that went are listed: nothing depends on their places. */
void blocks_leave(struct blocks *blocks, const struct blocks_of_entry *entry)
{
    begin(blocks, entry);
    for (int32_t i = 0; i < entry->n && entry->counts; i++) {
        if (!subtract(blocks, entry->numbers[i])) continue;
        blocks->numbers[blocks->n] = entry->numbers[i];
        blocks->changed[blocks->n++] = true;
    }
}

void blocks_release_entry(struct index_followed *followed)
{
    struct blocks_of_entry *entry = (struct blocks_of_entry *)(void *)followed;
    free(entry->numbers);
    free(entry);
}

/* ---- The table ---- */

void blocks_clear(struct blocks *blocks)
{
    struct hash_link *link;
    for (size_t bucket = 0; (link = hash_any(&blocks->table, &bucket)) != NULL;) {
        hash_remove(&blocks->table, link);
        free(container_of(struct block, link, link));
    }
    blocks->n = 0;
}

void blocks_release(struct blocks *blocks)
{
    blocks_clear(blocks);
    hash_release(&blocks->table);
    free(blocks->numbers);
    free(blocks->changed);
    *blocks = (struct blocks){.n = 0};
}
