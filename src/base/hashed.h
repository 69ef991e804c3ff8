/* A hash table whose links lie within what it holds: nothing is allocated for an item, and one that is found can be
 * taken out at once. Several items may have one hash; whoever looks compares the rest.
 *
 *     for (struct hashed *h = hash_first(&table, hash); h != NULL; h = hash_next(h))
 *
 * It grows by one bucket an item (linear hashing), so that nobody who adds one waits for all others to be moved.
 *
 * Belongs to whoever owns the items. A zeroed table is an empty one. */
#ifndef BASE_HASHED_H
#define BASE_HASHED_H

#include <stddef.h>
#include <stdint.h>

struct hashed {
    struct hashed *next;
    uint64_t hash;
};

struct hash_table {
    struct hashed **v;
    size_t n, n_buckets, cap;
    size_t half; /* a power of two: half < n_buckets <= 2 half */
};

/* `item`: the struct of that type whose member `link` is. */
#define hash_item(type, member, link) ((type *)(void *)((char *)(link)-offsetof(type, member)))

void hash_add(struct hash_table *table, struct hashed *item, uint64_t hash);
void hash_remove(struct hash_table *table, struct hashed *item);
struct hashed *hash_first(const struct hash_table *table, uint64_t hash);
struct hashed *hash_next(const struct hashed *item);

/* The first item of the first bucket from *bucket on that has any; the others of that bucket follow by `next`. NULL:
 * there is none. All items, of which those of the bucket may be taken out meanwhile:
 *
 *     for (size_t bucket = 0; (link = hash_any(&table, &bucket)) != NULL; bucket++) */
struct hashed *hash_any(const struct hash_table *table, size_t *bucket);

void hash_release(struct hash_table *table); /* not the items */

#endif
