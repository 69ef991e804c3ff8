#include "store/hashed.h"

#include "base/memory.h"

#include <stdlib.h>

/* Multiplied, since hashes made of addresses differ in their middle bits alone. */
static struct hashed **bucket_of(const struct hash_table *table, uint64_t hash)
{
    return &table->v[(hash * 0x9e3779b97f4a7c15u >> 32) & (table->cap - 1)];
}

static void put(struct hash_table *table, struct hashed *item)
{
    struct hashed **first = bucket_of(table, item->hash);
    item->next = *first;
    *first = item;
}

static void grow(struct hash_table *table)
{
    struct hash_table larger = {.n = table->n, .cap = table->cap == 0 ? 64 : 2 * table->cap};
    larger.v = mem_alloc(larger.cap * sizeof(struct hashed *));
    for (size_t i = 0; i < table->cap; i++) {
        for (struct hashed *item = table->v[i], *next; item != NULL; item = next) {
            next = item->next;
            put(&larger, item);
        }
    }
    free(table->v);
    *table = larger;
}

void hash_add(struct hash_table *table, struct hashed *item, uint64_t hash)
{
    if (table->n == table->cap) grow(table);
    item->hash = hash;
    put(table, item);
    table->n++;
}

void hash_remove(struct hash_table *table, struct hashed *item)
{
    struct hashed **at = bucket_of(table, item->hash);
    while (*at != item) at = &(*at)->next;
    *at = item->next;
    table->n--;
}

static struct hashed *with_hash(struct hashed *item, uint64_t hash)
{
    while (item != NULL && item->hash != hash) item = item->next;
    return item;
}

struct hashed *hash_first(const struct hash_table *table, uint64_t hash)
{
    return table->cap == 0 ? NULL : with_hash(*bucket_of(table, hash), hash);
}

struct hashed *hash_next(const struct hashed *item)
{
    return with_hash(item->next, item->hash);
}

struct hashed *hash_any(const struct hash_table *table, size_t *bucket)
{
    while (*bucket < table->cap && table->v[*bucket] == NULL) ++*bucket;
    return *bucket < table->cap ? table->v[*bucket] : NULL;
}

void hash_release(struct hash_table *table)
{
    free(table->v);
    *table = (struct hash_table){0};
}
