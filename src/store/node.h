/* What index.c, node.c, order.c and walk.c share: an index and the nodes it is made of. Nobody else includes this.
 *
 * A node is one key and kind through all its life: reserved and being written, an entry, a victim whose slab is still
 * to be deleted. Whoever may still look at it has a reference: the stage it is in, every lease, every node that hangs
 * on it, every victim that makes room for it. So an entry with one reference is one that nobody needs, and the memory
 * of one that was dropped stays until its last lease is given back, and with it what it hangs on.
 *
 * All of it belongs to whoever holds the mutex, between index_lock() and index_unlock(). */
#ifndef STORE_NODE_H
#define STORE_NODE_H

#include "store/index.h"
#include "store/radix.h"

#include <pthread.h>

enum stage { STAGE_WRITING, STAGE_THERE, STAGE_DELETING, STAGE_GONE };

/* All entries of one identity. It goes with the last of them. */
struct space {
    struct hashed link;
    struct identity identity;
    struct place *root;
    size_t n_nodes; /* being written and there */
};

struct node {
    struct entry entry; /* first: node_of() */
    enum stage stage;
    size_t refs;
    struct hashed link;  /* by key, until it is gone */
    struct space *space; /* while it is written or there */
    uint32_t hits;
    int64_t used_ms;

    /* While it is there. */
    struct guest guest;
    struct place *place;
    struct node *older, *newer;
    struct node *first_child, *prev, *next; /* entries that hang on it; beside it */
    size_t n_chosen;                        /* 0 but while victims are being chosen: those that hang on it */

    uint64_t owed; /* of a reservation: bytes that its victims still take */

    /* Of a victim. */
    struct victim victim;
    struct node *room_for; /* the reservation that waits for it, or NULL */
};

struct index {
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* a reservation ended */
    pthread_t owner;        /* who holds the mutex, if `held` */
    bool held;

    int32_t stride;
    uint64_t budget;
    void (*free_user)(void *user);

    struct hash_table nodes, spaces;
    struct radix radix;
    struct node *oldest, *newest; /* an entry is always older than what it hangs on */

    /* Bytes of entries, victims, and of reservations what their victims do not take any more: on the tier there are
     * never more. */
    uint64_t bytes;
    uint64_t evictions;
    size_t n_entries, n_reservations, n_leases;
    struct node *dead; /* to be freed after the mutex */
};

static inline struct node *node_of(const struct entry *entry)
{
    return (struct node *)(void *)entry;
}

/* ---- node.c ---- */

void index_lock(struct index *index);
void index_unlock(struct index *index);
void index_note_owner(struct index *index);         /* the caller has got the mutex by waiting on a condition */
void index_require_held(const struct index *index); /* ends the process if the caller does not hold the mutex */

/* One with that key and kind, whatever its stage. */
struct node *node_find(const struct index *index, const struct key *key, enum slab_kind kind);
struct space *space_find(const struct index *index, const struct identity *identity);

struct entry *node_lease(struct index *index, struct node *node);
void node_unlease(struct index *index, struct node *node);
void node_unref(struct index *index, struct node *node);

/* A reservation. `own`: the tokens [start, end). */
struct node *node_open(struct index *index, const struct reserve *what, const int32_t *own, struct node *parent);
void node_appear(struct index *index, struct node *node); /* it becomes an entry, the oldest */
void node_cancel(struct index *index, struct node *node);

/* The entry becomes a victim. */
void node_retire(struct index *index, struct node *node);

/* Nothing has that key any more. */
void node_forget(struct index *index, struct node *node);

/* ---- order.c ---- */

void order_add_oldest(struct index *index, struct node *node);
void order_remove(struct index *index, struct node *node);

/* The node and what it hangs on become the newest. */
void order_touch(struct index *index, struct node *node, int64_t now_ms);

/* Victims, linked in the order in which they were added. Zeroed: none. */
struct victims {
    struct node *first, *last;
};

void victims_add(struct victims *victims, struct node *node);

/* The oldest of which nobody needs any, `need` bytes or all there are, leaves first. They are only chosen. Returns
 * their bytes. */
uint64_t order_choose(struct index *index, uint64_t need, struct victims *victims);

/* Those become victims, for a reservation or (NULL) for nobody. */
struct victim *order_evict(struct index *index, const struct victims *victims, struct node *room_for);

/* ---- walk.c ---- */

/* The entry with the rows of the spot, the nearest to it on its chain. The spot has rows and is not the root. */
struct node *walk_rows(struct spot spot);

/* The STATE entry of exactly this place, or NULL. */
struct node *walk_state(const struct place *place);

#endif
