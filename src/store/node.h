/* What index.c, node.c, detached.c, order.c and walk.c share: an index, and the nodes and records it is made of. Nobody
 * else includes this.
 *
 * A node is an entry that is found; it lies in the radix tree, which has its tokens. A record is one that is not: it is
 * being written, detached, set aside, or a victim whose slab is still to be deleted; it has its tokens itself. An entry
 * that changes from one to the other changes its memory, so that whoever holds a lease of a node sees it unchanged:
 * whoever may still look at a node has a reference, which is the index itself as long as the node is there, every
 * lease, every node that hangs on it and every reservation that does. A node with one reference is a leaf that nobody
 * uses.
 *
 * All of it belongs to whoever holds the mutex, between index_lock() and index_unlock(). */
#ifndef STORE_NODE_H
#define STORE_NODE_H

#include "store/heap.h"
#include "store/index.h"
#include "store/radix.h"

#include <pthread.h>

/* All entries of one identity. It goes with the last of them. */
struct space {
    struct hash_link link;
    struct identity identity;
    struct place *root;
    size_t n; /* nodes and records */

    /* order.c */
    uint64_t bytes, fresh_bytes; /* of nodes and records but for victims; of those that were never used again */
    struct heap fresh, reused;   /* those that could be evicted */
    struct space *prev, *next;   /* the active ones, and the others, each in the order of their last use */
    bool active;
    uint64_t seen; /* index->written when it was used last */
};

/* What the order of eviction needs to know of a node or record. */
struct candidate {
    struct heaped heaped; /* while it could be evicted */
    bool is_record;
    bool reused;      /* since it was stored: it, or what hangs on it */
    uint8_t failures; /* times that its slab could not be read, since it could */
    uint32_t hits;
    int64_t used; /* a stamp: order_stamp(); of what once hung on it, if that was later */
};

struct node {
    struct entry entry; /* first: node_of() */
    struct candidate candidate;
    struct hash_link link; /* by key */
    bool there;
    uint32_t refs;
    struct space *space;
    struct guest guest;
    struct place *place;
    struct node *first_child, *prev, *next; /* entries that hang on it; beside it */
    struct record *record;                  /* of one that left and is leased: what it is now, NULL: nothing any more */
};

enum record_state { RECORD_WRITING, RECORD_DETACHED, RECORD_ASIDE, RECORD_LEAVING };

struct record {
    struct victim victim; /* its key and kind, in every state */
    struct candidate candidate;
    struct hash_link link; /* by key, once it is in a state */
    bool listed;
    enum record_state state;
    bool needed;         /* detached_mark_needed() */
    bool replaced;       /* a slab of the same key and kind is being written */
    struct node *leased; /* the node that it was, if somebody has a lease of it still */
    struct space *space;
    struct slab_key parent;
    int32_t start, end;
    struct packed tokens;
    uint64_t size;
    struct awaited *awaited; /* while it is detached or aside */
    struct record *prev, *next, *next_needed;
    struct heaped retry; /* while it is aside */
    int64_t retry_at;
    struct reservation *room_for; /* of a victim: what waits for its bytes, or NULL */
};

/* What the parent of some would be. It goes with the last of them. */
struct awaited {
    struct hash_link link;
    struct slab_key key;
    struct record *first;
};

struct reservation {
    struct record *record; /* NULL: the reservation is over, victims of it are still there */
    struct node *parent;   /* referenced */
    uint64_t owed;         /* bytes that its victims still take */
    size_t n_victims;
};

struct spaces {
    struct space *first, *last; /* the one used longest ago, the one used last */
};

struct index {
    pthread_mutex_t mutex;
    pthread_t owner; /* who holds the mutex, if `held` */
    bool held;

    int32_t stride;
    uint64_t quota, budget; /* what is not foreign of the quota */
    void (*free_user)(void *user);

    struct hash_table nodes, records, awaited, spaces;
    struct radix radix;
    struct heap aside;

    /* order.c */
    int64_t last_stamp;
    struct spaces active, inactive;
    size_t n_active;
    uint64_t written, fresh_bytes; /* bytes, ever; of all identities */

    /* Bytes of nodes and records, of reservations only what their victims do not take any more: on the tier there are
     * never more. `leaving`: of them, what will be free when all victims are deleted. */
    uint64_t bytes, leaving;
    uint64_t evictions;
    size_t n_detached, n_reservations, n_leases;
    struct node *dead; /* to be freed after the mutex */
    struct tokens own; /* of one entry, between two forms of it */
};

static inline struct node *node_of(const struct entry *entry)
{
    return (struct node *)(void *)entry;
}

static inline struct record *record_of(const struct victim *victim)
{
    return (struct record *)(void *)victim;
}

/* ---- node.c ---- */

void index_lock(struct index *index);
void index_unlock(struct index *index);
void index_require_held(const struct index *index); /* ends the process if the caller does not hold the mutex */

uint64_t key_hash(const struct slab_key *key);
struct node *node_find(const struct index *index, const struct slab_key *key, enum slab_kind kind);

struct space *space_find(const struct index *index, const struct identity *identity);
struct space *space_enter(struct index *index, const struct identity *identity);
void space_leave(struct index *index, struct space *space);

void node_ref(struct index *index, struct node *node);
void node_unref(struct index *index, struct node *node);
struct entry *node_lease(struct index *index, struct node *node);
void node_unlease(struct index *index, struct node *node);

/* Whether a record, or what is reserved, can hang on the node. */
bool node_fits(const struct node *parent, const struct space *space, enum slab_kind kind, int32_t start, int32_t end);

/* The record becomes a node. `parent`: NULL where it starts at 0; otherwise it fits. The record is gone. */
struct node *node_appear(struct index *index, struct record *record, struct node *parent);

/* The node leaves the tree; nothing hangs on it any more. Returns its record, in no state yet. */
struct record *node_leave(struct index *index, struct node *node);

/* Of one that is there or has a record: whether these are its tokens [start, end). */
bool node_has_tokens(const struct node *node, const int32_t *tokens);

/* Every node goes, without a record. Nothing is leased. */
void node_discard_all(struct index *index);

/* ---- detached.c ---- */

struct record *record_open(struct index *index, const struct slab_key *key, enum slab_kind kind,
                           const struct identity *identity);
void record_close(struct index *index, struct record *record); /* its bytes are the caller's to count */

/* One that is being written; one in any other state. */
struct record *record_writing(const struct index *index, const struct slab_key *key, enum slab_kind kind);
struct record *record_known(const struct index *index, const struct slab_key *key, enum slab_kind kind);

/* It can be found by its key. */
void record_list(struct index *index, struct record *record);

/* It waits for what it hangs on, until it is taken out. */
void record_detach(struct index *index, struct record *record);
void record_take_out(struct index *index, struct record *record);

/* It becomes a node, if what it hangs on is there. NULL: nothing changed. */
struct node *record_appear(struct index *index, struct record *record);

/* Sets `needed` for those that are set aside or about to be replaced, and for all that hang on these or on what is
 * being written. */
void detached_mark_needed(struct index *index);

/* What is detached and hangs on the node, directly or not, becomes nodes too; and all that hangs on it is detached.
 * Others have the mutex meanwhile; a node that is detached is leased. */
void attach_below(struct index *index, struct node *top);
void detach_below(struct index *index, struct node *node);

/* ---- order.c ---- */

/* A use now, later than any before it; and one by an earlier process. */
int64_t order_stamp(struct index *index, int64_t now_ms);
int64_t order_adopted(int64_t used_ms, int64_t now_ms);

/* Whether it can be evicted, or can no longer, after anything has changed that this depends on. */
void order_node(struct index *index, struct node *node);
void order_record(struct index *index, struct record *record);

/* The node is used: it, and so what it hangs on. */
void order_use(struct index *index, struct node *node, int64_t now_ms);
void order_reused(struct index *index, struct node *node); /* earlier */

/* Its bytes count for its identity, or no longer. */
void order_count(struct index *index, struct record *record);
void order_uncount(struct index *index, struct record *record);

void order_space_open(struct index *index, struct space *space);
void order_space_use(struct index *index, struct space *space);
void order_space_close(struct index *index, struct space *space);

/* Evicts `need` bytes for a reservation, all or nothing; NULL: for nobody, as much as can be. Leaves go before what
 * they hang on. Returns how many bytes; the victims are linked in that order. */
uint64_t order_evict(struct index *index, uint64_t need, struct reservation *room_for, struct victim **first);

/* Whether so much could be evicted for the reservation. NULL: at any cost. */
bool order_could_evict(struct index *index, uint64_t need, const struct reservation *room_for);

/* A record, in no state, becomes a victim. */
struct victim *order_retire(struct index *index, struct record *record);

#endif
