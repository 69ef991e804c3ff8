/* Linear hashing: buckets [0, n_buckets) exist; the next one is split off whenever an item is added to a full table. */
#include "base/hash_table.h"

#include "base/memory.h"

#include <stdlib.h>

/* Multiplied, since hashes made of addresses differ only in their middle bits. Items of a bucket that does not exist
 * yet are in the bucket from which it will be split. */
static size_t index_of(const struct hash_table *table, uint64_t hash)
{
    size_t mixed = hash * 0x9e3779b97f4a7c15u >> 32, i = mixed & (2 * table->half - 1);
    return i < table->n_buckets ? i : mixed & (table->half - 1);
}

static struct hash_link **bucket_of(const struct hash_table *table, uint64_t hash)
{
    return &table->v[index_of(table, hash)];
}

/* Adds the next bucket, and moves its items there from the bucket that held them. An empty table gets its first ones.
 */
static void grow(struct hash_table *table)
{
    enum { FEWEST = 64 };
    if (table->n_buckets == table->cap) {
        table->cap = table->cap == 0 ? FEWEST : 2 * table->cap;
        table->v = mem_grow(table->v, table->cap, sizeof(struct hash_link *));
    }
    if (table->n_buckets == 0) {
        for (size_t i = 0; i < FEWEST; i++) table->v[i] = NULL;
        table->n_buckets = table->half = FEWEST;
        return;
    }
    size_t new = table->n_buckets++;
    struct hash_link **from = &table->v[new - table->half], **to = &table->v[new];
    *to = NULL;
    while (*from != NULL) {
        struct hash_link *item = *from;
        if (index_of(table, item->hash) != new) {
            from = &item->next;
            continue;
        }
        *from = item->next;
        item->next = *to;
        *to = item;
    }
    if (table->n_buckets == 2 * table->half) table->half *= 2;
}

void hash_add(struct hash_table *table, struct hash_link *item, uint64_t hash)
{
    if (table->n == table->n_buckets) grow(table);
    struct hash_link **first = bucket_of(table, hash);
    item->hash = hash;
    item->next = *first;
    *first = item;
    table->n++;
}

void hash_remove(struct hash_table *table, struct hash_link *item)
{
    struct hash_link **at = bucket_of(table, item->hash);
    while (*at != item) at = &(*at)->next;
    *at = item->next;
    table->n--;
}

static struct hash_link *with_hash(struct hash_link *item, uint64_t hash)
{
    while (item != NULL && item->hash != hash) item = item->next;
    return item;
}

struct hash_link *hash_first(const struct hash_table *table, uint64_t hash)
{
    return table->n_buckets == 0 ? NULL : with_hash(*bucket_of(table, hash), hash);
}

struct hash_link *hash_next(const struct hash_link *item)
{
    return with_hash(item->next, item->hash);
}

struct hash_link *hash_any(const struct hash_table *table, size_t *bucket)
{
    while (*bucket < table->n_buckets && table->v[*bucket] == NULL) ++*bucket;
    return *bucket < table->n_buckets ? table->v[*bucket] : NULL;
}

void hash_release(struct hash_table *table)
{
    free(table->v);
    *table = (struct hash_table){0};
}
