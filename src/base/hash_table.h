/* A hash table with links embedded in the items: no allocation for an item, and an item is removed without a search by
 * key. Several items may have one hash; the caller compares the rest.
 *
 *     for (struct hash_link *h = hash_first(&table, hash); h != NULL; h = hash_next(h))
 *
 * It grows by one bucket an item (linear hashing), so that no insertion pays for moving all others.
 *
 * The owner of the items guards the table. A zeroed table is empty. */
#ifndef BASE_HASH_TABLE_H
#define BASE_HASH_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct hash_link {
    struct hash_link *next;
    uint64_t hash;
};

struct hash_table {
    struct hash_link **v;
    size_t n, n_buckets, cap;
    size_t half; /* a power of two: half < n_buckets <= 2 half */
};

/* The struct of that type whose member `link` points to; also for links of other kinds, as of heaps in
 * store/index/index_parts.h. */
#define container_of(type, member, link) ((type *)(void *)((char *)(link)-offsetof(type, member)))

void hash_add(struct hash_table *table, struct hash_link *item, uint64_t hash);
void hash_remove(struct hash_table *table, struct hash_link *item);
struct hash_link *hash_first(const struct hash_table *table, uint64_t hash);
struct hash_link *hash_next(const struct hash_link *item);

/* The first item of the first non-empty bucket from *bucket on; the others of that bucket follow by `next`. NULL: there
 * is none. A loop over all items, which may remove the items of the current bucket:
 *
 *     for (size_t bucket = 0; (link = hash_any(&table, &bucket)) != NULL; bucket++) */
struct hash_link *hash_any(const struct hash_table *table, size_t *bucket);

void hash_release(struct hash_table *table); /* not the items */

#endif
