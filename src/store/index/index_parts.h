/* The inside of an index: the structs that its files share. These are index.c (its operations), items.c (entries and
 * their states, mutex), lru.c (eviction order), walk.c (lookup), tips.c (conversations, and those kept by order),
 * follow.c (a follower) and index_check.c (invariants). Only these and tests include this.
 *
 * All of it belongs to whoever holds the mutex, between index_lock() and index_unlock(). items.c and lru.c call each
 * other, and so share this header: every change of a reference count changes what may be evicted, and an eviction
 * changes an item's state. */
#ifndef STORE_INDEX_INDEX_PARTS_H
#define STORE_INDEX_INDEX_PARTS_H

#include "store/index/index.h"
#include "store/index/radix.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Heaps ----
 * A binary heap whose items know their index in it: any item can be removed, or moved after its rank changed, in O(log
 * n). The owner of the items guards the heap. */

struct heap_link {
    uint32_t at; /* 1 + its index in the heap; 0: it is in no heap */
};

struct heap {
    bool (*before)(const struct heap_link *a, const struct heap_link *b);
    struct heap_link **v;
    uint32_t n, cap;
};

/* Adding an item that is in the heap, or removing one that is not, does nothing. */
void heap_add(struct heap *heap, struct heap_link *item);
void heap_remove(struct heap *heap, struct heap_link *item);

struct heap_link *heap_first(const struct heap *heap); /* NULL: the heap is empty */
void heap_release(struct heap *heap);                  /* not the items */

/* ---- Spaces and items ---- */

/* All entries of one identity. Freed with the last of them. */
struct space {
    struct hash_link link;
    struct identity identity;
    struct radix_node *root;
    size_t n; /* items */

    /* lru.c */
    uint64_t bytes, fresh_bytes; /* of all but victims; of those that were never used again */
    struct heap fresh, reused;   /* those that may be evicted */
    struct space *prev, *next;   /* in the list of active spaces or the other one, each in LRU order */
    bool active;
    uint64_t seen; /* index->written when it was used last */
};

/* The state of an entry, as the index sees it. item_enter() alone changes it, as its table allows. */
enum item_state {
    ITEM_NEW,        /* just opened */
    ITEM_WRITING,    /* reserved: its slab is being written */
    ITEM_FOUND,      /* lookups find it: it lies in the radix tree, as its ancestors do */
    ITEM_DETACHED,   /* its slab is there, and its parent is not found */
    ITEM_UNREADABLE, /* its slab could not be read: set aside for a while */
    ITEM_VICTIM,     /* it left, and its slab is still to be deleted */
    ITEM_GONE,       /* it left for good: only references keep its memory */
    ITEM_STATES
};

/* An entry, from its reservation or adoption until its slab is deleted and its last reference is given back.
 *
 * Its tokens are in the radix tree while it is found, else in the item itself. References to it: one of every pin, of
 * every kept order, and of every item whose `entry.parent` it is. A found one has its parent in the tree, and one being
 * written the parent at its reservation. Any other one has the parent that it had last, as long as the item itself is
 * referenced. So whoever pins an entry sees it and its ancestors unchanged; and a referenced one that is found again
 * has to become another item first. One without references is a leaf that nobody uses, and may be evicted. */
struct item {
    struct entry entry;       /* first: item_of() */
    struct hash_link link;    /* by key, but of one that is gone */
    struct space *space;      /* NULL: it is gone */
    struct item *prev, *next; /* siblings in the tree; or orphans of one parent; `next` of those to be freed */
    uint32_t refs;

    /* lru.c */
    struct heap_link evictable; /* in a heap while it may be evicted */
    uint32_t hits;
    uint32_t n_kept;  /* orders that keep it or a descendant: above 0 its bytes count for no identity */
    int64_t used;     /* lru_stamp() of its last use, or that of a former descendant if later */
    bool reused;      /* it, or a descendant, was used since it was stored */
    uint8_t failures; /* reads of its slab that failed since the last one that did not */

    uint8_t state;     /* enum item_state */
    bool kept : 1;     /* found: by order; then it is referenced */
    bool replaced : 1; /* detached or unreadable: a slab of the same key and kind is being written */

    union {
        struct { /* found */
            struct radix_entry radix_entry;
            struct radix_node *node;
            struct item *first_child;
            struct item *older, *newer;      /* in the order in which they were indexed */
            struct index_followed *followed; /* NULL: the follower does not know it */
            struct item *kept_state; /* of a kept one: the STATE entry that is kept with it, referenced; NULL: none */
        };
        struct { /* all others, but those that are gone */
            struct packed tokens;
            struct orphans *orphans; /* NULL: it starts at 0, or is new or being written */
            struct heap_link retry;  /* while it is unreadable */
            int64_t retry_at;
        };
    };
};

/* The items that are not found and whose parent has that key. Freed with the last of them. */
struct orphans {
    struct hash_link link;
    struct slab_key key;
    struct item *first;
};

struct reservation {
    struct item *item; /* NULL: the reservation has ended, but victims of it are still to be deleted */
    uint64_t owed;     /* bytes that its victims still take */
    size_t n_victims;
};

/* The victim that the caller of the index has, and what it is of. */
struct removal {
    struct victim victim; /* first: removal_of() */
    struct item *item;
    struct reservation *reservation; /* the one that waits for its bytes, or NULL */
};

struct spaces {
    struct space *first, *last; /* least and most recently used */
};

struct index {
    pthread_mutex_t mutex;
    pthread_t owner; /* who holds the mutex, if `held` */
    bool held;

    int32_t stride;
    uint64_t quota, budget; /* budget: the quota without foreign bytes */
    void (*free_user)(void *user);

    struct hash_table items, orphans, spaces;
    struct radix radix;
    struct heap unreadable; /* by retry_at */

    /* lru.c */
    int64_t last_stamp;
    struct spaces active, inactive;
    size_t n_active;
    uint64_t written, fresh_bytes; /* bytes published, ever; fresh bytes of all identities */
    uint64_t kept_bytes;           /* of entries that are kept by order, or have descendants that are */

    /* Bytes of all items; of reservations only what their victims do not take any more, so that the tier never holds
     * more than this. */
    uint64_t bytes;
    uint64_t victim_bytes; /* of `bytes`: those that the deletion of all victims frees */
    uint64_t evictions;
    size_t n_states[ITEM_STATES]; /* items in each, but new and gone ones */
    size_t n_reservations, n_pins;

    /* follow.c */
    struct item *oldest, *newest;
    struct index_follower follower; /* changed NULL: there is none */
    struct item *unread;            /* the first that the follower has not read */
    struct index_followed *left, **left_end;
    uint32_t round;
    bool follower_waits;

    size_t n_walks;        /* attach_below() and detach_below() that are under way */
    size_t since_check;    /* index_check.c */
    struct item *dead;     /* to be freed once the mutex is released */
    struct tokens scratch; /* tokens of one entry, on their way from one form of it to the other */
};

static inline struct item *item_of(const struct entry *entry)
{
    return (struct item *)(void *)entry;
}

static inline struct item *parent_of(const struct item *item)
{
    return item_of(item->entry.parent);
}

static inline struct removal *removal_of(const struct victim *victim)
{
    return (struct removal *)(void *)victim;
}

/* ---- items.c ---- */

void index_lock(struct index *index);
void index_unlock(struct index *index);
void index_require_held(const struct index *index); /* ends the process if the caller does not hold the mutex */

/* The item of that name that is found; that is being written; that is in any other state. NULL: there is none. */
struct item *item_found(const struct index *index, const struct slab_key *key, enum slab_kind kind);
struct item *item_writing(const struct index *index, const struct slab_key *key, enum slab_kind kind);
struct item *item_known(const struct index *index, const struct slab_key *key, enum slab_kind kind);

/* The one in any of these states, one bit each. */
struct item *item_in(const struct index *index, const struct slab_key *key, enum slab_kind kind, unsigned int states);

struct space *space_find(const struct index *index, const struct identity *identity);

void item_ref(struct index *index, struct item *item);
void item_unref(struct index *index, struct item *item);
struct entry *item_pin(struct index *index, struct item *item);
void item_unpin(struct index *index, struct item *item);

/* Opens a new one with the facts of a reservation. */
struct item *item_open(struct index *index, const struct reserve *what);

/* The item leaves the index for good: it is freed with its last reference. Does not uncount its bytes. */
void item_close(struct index *index, struct item *item);

/* Changes its state: within the tree, or out of it, is no matter of this. */
void item_enter(struct index *index, struct item *item, enum item_state state);

/* Detached or unreadable, and nobody is about to replace it: it may be taken away. */
static inline bool item_is_detached(const struct item *item)
{
    return item->state == ITEM_DETACHED || item->state == ITEM_UNREADABLE;
}

/* Whether it only completes the rows of its parent: a recurrent/SWA state at some position of them. */
static inline bool item_is_completion(const struct item *item)
{
    return item->entry.kind == SLAB_STATE && item->entry.start == item->entry.end;
}

/* Whether an entry of that kind and range can be the child of a found one. */
bool item_accepts_child(const struct item *parent, const struct space *space, enum slab_kind kind, int32_t start,
                        int32_t end);

/* Lets lookups find it, if they find its parent: else it is detached. Returns the found one, which may be another
 * item; NULL: it is detached. `key`: of the parent of one that is new or was being written. */
struct item *item_attach(struct index *index, struct item *item, const struct slab_key *key);

/* The same, and then all detached descendants. Releases the mutex now and then. */
void item_attach_all(struct index *index, struct item *item, const struct slab_key *key);
void attach_below(struct index *index, struct item *top); /* of a found one its detached descendants alone */

/* Detaches all descendants of an item, after which it is a leaf. Releases the mutex now and then, so that the item
 * must be referenced if it has any. */
void detach_below(struct index *index, struct item *item);

/* Takes a found one without children from the tree, or lets one in another state be what it is, and enters the state.
 */
void item_take(struct index *index, struct item *item, enum item_state state);

/* Whether an ancestor of a detached one may come back: one that is unreadable, is written or about to be replaced. */
bool item_awaits_ancestor(const struct index *index, const struct item *item);

/* Closes every item. None is pinned. */
void items_close(struct index *index);

/* ---- index_check.c ---- */

/* With the mutex: index_check(), as often as its cost allows. */
void index_check_some(struct index *index);

/* ---- walk.c ---- */

/* The last STATE entry that ends at the position, or is a prefix of it. NULL: there is none. */
struct item *state_before(struct radix_position position);

/* ---- tips.c ---- */

/* The entry was added below a parent: where the parent was kept, the entry is now. */
void kept_follow(struct index *index, struct item *item);

/* The entry, which has no children, is about to leave the tree: nothing is kept for its sake any more. */
void kept_forget(struct index *index, struct item *item);

/* ---- follow.c ---- */

/* After an entry was added to the tree; before one is removed. */
void follow_added(struct index *index, struct item *item);
void follow_removed(struct index *index, struct item *item);

/* ---- lru.c ---- */

/* Takes the bytes of an entry out of what its identity is counted for, n orders long, and back. */
void lru_keep(struct index *index, struct item *item);
void lru_unkeep(struct index *index, struct item *item, uint32_t n);

/* A stamp's time, in milliseconds. */
int64_t lru_stamp_ms(int64_t stamp);

/* The time of a use now, later than every one before it; and of a use that an earlier process noted. */
int64_t lru_stamp(struct index *index, int64_t now_ms);
int64_t lru_stamp_of_adopted(int64_t used_ms, int64_t now_ms);

/* Makes it one that may be evicted, or no longer: after every change that decides this. */
void lru_update(struct index *index, struct item *item);

/* Counts a use of the entry, and so of its ancestors; now, or by an earlier process. */
void lru_use(struct index *index, struct item *item, int64_t now_ms);
void lru_mark_reused(struct index *index, struct item *item);

/* Adds its bytes to those of its identity, or subtracts them. */
void lru_count(struct index *index, struct item *item);
void lru_uncount(struct index *index, struct item *item);

void lru_space_open(struct index *index, struct space *space);
void lru_space_use(struct index *index, struct space *space);
void lru_space_close(struct index *index, struct space *space);

/* Evicts `need` bytes for the reservation, or nothing; without one (NULL) as many of them as can be. Children are
 * evicted before their parents, and the victims are linked in that order. Returns their bytes. */
uint64_t lru_evict(struct index *index, uint64_t need, struct reservation *reservation, struct victim **first);

/* Whether that many bytes could be evicted for the reservation; NULL: whatever they are worth. */
bool lru_could_evict(struct index *index, uint64_t need, const struct reservation *reservation);

/* Makes a victim of one that is a leaf. */
struct victim *lru_make_victim(struct index *index, struct item *item, struct reservation *reservation);

#endif
