/* The inside of an index: the structs that index.c (its operations), indexed.c (tree, tables, mutex), detached.c
 * (records), lru.c (eviction order), walk.c (lookup), tips.c (conversations), kept.c (those kept by order) and follow.c
 * (a follower) share. Nobody else includes this, but for tests.
 *
 * An indexed entry is one that lookups find: it lies in the radix tree, which has its tokens. A record is an entry that
 * lookups do not find: it is being written, is detached, cannot be read for now, or is a victim whose slab is still to
 * be deleted; it has its tokens itself. An entry that changes from one to the other gets new memory, so that whoever
 * pins an indexed entry sees it unchanged. References to an indexed entry: one of the index while the entry is in the
 * tree, and one of every pin, every child, every reservation for a child and every order that keeps it. One with a
 * single reference is a leaf that nobody uses, and may be evicted.
 *
 * All of it belongs to whoever holds the mutex, between index_lock() and index_unlock(). indexed.c and lru.c call each
 * other, and so share this header: every change of a reference count changes what may be evicted, and an eviction
 * removes entries from the tree. */
#ifndef STORE_INDEX_INDEX_PARTS_H
#define STORE_INDEX_INDEX_PARTS_H

#include "store/index/heap.h"
#include "store/index/index.h"
#include "store/index/radix.h"

#include <pthread.h>

/* All entries of one identity. Freed with the last of them. */
struct space {
    struct hash_link link;
    struct identity identity;
    struct radix_node *root;
    size_t n; /* indexed entries and records */

    /* lru.c */
    uint64_t bytes, fresh_bytes; /* of all but victims; of those that were never used again */
    struct heap fresh, reused;   /* candidates for eviction */
    struct space *prev, *next;   /* in the list of active spaces or the other one, each in LRU order */
    bool active;
    uint64_t seen; /* index->written when it was used last */
};

/* What the LRU order needs to know of an indexed entry or a record. */
struct candidate {
    struct heap_link heap_link; /* in a heap while it may be evicted */
    bool is_record;
    bool reused;      /* it, or a descendant, was used since it was stored */
    uint8_t failures; /* reads of its slab that failed since the last one that did not */
    uint32_t hits;
    uint32_t n_kept; /* orders that keep it or a descendant: above 0 its bytes count for no identity */
    int64_t used;    /* lru_stamp() of its last use, or that of a former descendant if later */
};

struct indexed {
    struct entry entry; /* first: indexed_of() */
    struct candidate candidate;
    struct hash_link link; /* by key */
    bool there;            /* in the tree; false: only pins keep its memory */
    uint32_t refs;
    struct space *space;
    struct radix_entry radix_entry;
    struct radix_node *node;
    struct indexed *first_child, *prev, *next; /* children; siblings */
    struct record *record; /* of one that left the tree and is pinned: its record now, NULL: it has none any more */
    struct indexed *older, *newer;   /* in the order in which they were indexed */
    struct index_followed *followed; /* NULL: the follower does not know it */

    /* kept.c */
    bool kept;                  /* by order; then it is referenced */
    struct indexed *kept_state; /* of a kept one: the STATE entry that is kept with it, referenced; NULL: none */
};

enum record_state { RECORD_WRITING, RECORD_DETACHED, RECORD_UNREADABLE, RECORD_VICTIM };

struct record {
    struct victim victim; /* its key and kind, in every state */
    struct candidate candidate;
    struct hash_link link; /* by key, once it has a state */
    bool registered;
    enum record_state state;
    bool needed;            /* set by detached_mark_needed() */
    bool replaced;          /* a slab of the same key and kind is being written */
    struct indexed *pinned; /* the indexed entry that it was, while somebody pins that */
    struct space *space;
    struct slab_key parent;
    int32_t start, end;
    struct packed tokens;
    uint64_t size;
    struct missing_parent *missing_parent; /* while it is detached or unreadable */
    struct record *prev, *next, *next_needed;
    struct heap_link retry; /* while it is unreadable */
    int64_t retry_at;
    struct reservation *reservation; /* of a victim: the one that waits for its bytes, or NULL */
};

/* The key of a parent that is not in the index, and the records that wait for it. Freed with the last of them. */
struct missing_parent {
    struct hash_link link;
    struct slab_key key;
    struct record *first;
};

struct reservation {
    struct record *record;  /* NULL: the reservation has ended, but victims of it are still to be deleted */
    struct indexed *parent; /* referenced */
    uint64_t owed;          /* bytes that its victims still take */
    size_t n_victims;
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

    struct hash_table indexed, records, missing_parents, spaces;
    struct radix radix;
    struct heap unreadable; /* by retry_at */

    /* lru.c */
    int64_t last_stamp;
    struct spaces active, inactive;
    size_t n_active;
    uint64_t written, fresh_bytes; /* bytes published, ever; fresh bytes of all identities */
    uint64_t kept_bytes;           /* of entries that are kept by order, or have descendants that are */

    /* Bytes of indexed entries and records; of reservations only what their victims do not take any more, so that the
     * tier never holds more than this. */
    uint64_t bytes;
    uint64_t victim_bytes; /* of `bytes`: those that the deletion of all victims frees */
    uint64_t evictions;
    size_t n_detached, n_reservations, n_pins;

    /* follow.c */
    struct indexed *oldest, *newest;
    struct index_follower follower; /* changed NULL: there is none */
    struct indexed *unread;         /* the first that the follower has not read */
    struct index_followed *left, **left_end;
    uint32_t round;
    bool follower_waits;

    struct indexed *dead;  /* to be freed once the mutex is released */
    struct tokens scratch; /* tokens of one entry, on their way from one form of it to the other */
};

static inline struct indexed *indexed_of(const struct entry *entry)
{
    return (struct indexed *)(void *)entry;
}

static inline struct record *record_of(const struct victim *victim)
{
    return (struct record *)(void *)victim;
}

/* ---- indexed.c ---- */

void index_lock(struct index *index);
void index_unlock(struct index *index);
void index_require_held(const struct index *index); /* ends the process if the caller does not hold the mutex */

uint64_t key_hash(const struct slab_key *key);
struct indexed *indexed_find(const struct index *index, const struct slab_key *key, enum slab_kind kind);

/* space_enter() counts one more entry of the identity, space_leave() one less. */
struct space *space_find(const struct index *index, const struct identity *identity);
struct space *space_enter(struct index *index, const struct identity *identity);
void space_leave(struct index *index, struct space *space);

void indexed_ref(struct index *index, struct indexed *indexed);
void indexed_unref(struct index *index, struct indexed *indexed);
struct entry *indexed_pin(struct index *index, struct indexed *indexed);
void indexed_unpin(struct index *index, struct indexed *indexed);

/* Whether an entry of that kind and range can be its child. */
bool indexed_accepts_child(const struct indexed *parent, const struct space *space, enum slab_kind kind, int32_t start,
                           int32_t end);

/* Turns the record into an indexed entry, and frees it. `parent`: one that accepts it; NULL where it starts at 0. */
struct indexed *indexed_add(struct index *index, struct record *record, struct indexed *parent);

/* Whether it only completes the rows of its parent: a recurrent/SWA state at some position of them. */
static inline bool indexed_is_completion(const struct indexed *indexed)
{
    return indexed->entry.kind == SLAB_STATE && indexed->entry.start == indexed->entry.end;
}

/* Removes a leaf from the tree. Returns its record, in no state yet. */
struct record *indexed_remove(struct index *index, struct indexed *indexed);

/* Of one that is in the tree or has a record: whether these are its tokens [start, end). */
bool indexed_has_tokens(const struct indexed *indexed, const int32_t *tokens);

/* Removes every indexed entry, without records. None is pinned. */
void indexed_discard_all(struct index *index);

/* ---- detached.c ---- */

struct record *record_open(struct index *index, const struct slab_key *key, enum slab_kind kind,
                           const struct identity *identity);
void record_close(struct index *index, struct record *record); /* does not uncount its bytes */

/* The record of that name that is being written; the one in any other state. */
struct record *record_writing(const struct index *index, const struct slab_key *key, enum slab_kind kind);
struct record *record_known(const struct index *index, const struct slab_key *key, enum slab_kind kind);

/* Lets the two above find it. */
void record_register(struct index *index, struct record *record);

/* Lists it under its missing parent; and removes it from there. */
void record_detach(struct index *index, struct record *record);
void record_undetach(struct index *index, struct record *record);

/* Turns it into an indexed entry if its parent is indexed. NULL: nothing changed. */
struct indexed *record_index(struct index *index, struct record *record);

/* Sets `needed` for the records whose ancestors may still come back: those that are unreadable or about to be replaced,
 * and all descendants of these and of what is being written. Others may be dropped. */
void detached_mark_needed(struct index *index);

/* Indexes all detached descendants of an entry; detaches all of its descendants, after which it is a leaf. Both release
 * the mutex now and then. An entry whose descendants are detached must be pinned. */
void attach_below(struct index *index, struct indexed *top);
void detach_below(struct index *index, struct indexed *indexed);

/* ---- walk.c ---- */

/* The last STATE entry that is a prefix of the entry, itself included. NULL: there is none. */
struct indexed *indexed_last_state(const struct indexed *indexed);

/* ---- kept.c ---- */

/* Keeps an entry with its ancestors, and the last state on the way to it. False: together they would have more than
 * their part of the budget. */
bool kept_begin(struct index *index, struct indexed *indexed);

/* Ends every order that keeps the entry or one of its ancestors. */
void kept_end(struct index *index, struct indexed *indexed);

/* The same as far up as `end`, which is not reached, for a while: kept_resume() takes the orders up again, whatever
 * they cost, if no entry has come or gone in between. The caller frees `v`. */
struct kept_order {
    struct indexed *indexed, *state;
};
struct kept_orders {
    struct kept_order *v;
    size_t n;
};
void kept_suspend(struct index *index, struct indexed *indexed, const struct indexed *end, struct kept_orders *orders);
void kept_resume(struct index *index, const struct kept_orders *orders);

/* The entry was added below a parent: where the parent was kept, the entry is now. */
void kept_follow(struct index *index, struct indexed *indexed);

/* The entry, which has no children, is about to leave the tree: nothing is kept for its sake any more. */
void kept_forget(struct index *index, struct indexed *indexed);

/* ---- follow.c ---- */

/* After an entry was added to the tree; before one is removed. */
void follow_added(struct index *index, struct indexed *indexed);
void follow_removed(struct index *index, struct indexed *indexed);

/* ---- lru.c ---- */

/* Takes the bytes of an entry out of what its identity is counted for, n orders long, and back. */
void lru_keep(struct index *index, struct indexed *indexed);
void lru_unkeep(struct index *index, struct indexed *indexed, uint32_t n);

/* A stamp's time, in milliseconds. */
int64_t lru_stamp_ms(int64_t stamp);

/* The time of a use now, later than every one before it; and of a use that an earlier process noted. */
int64_t lru_stamp(struct index *index, int64_t now_ms);
int64_t lru_stamp_of_adopted(int64_t used_ms, int64_t now_ms);

/* Makes it a candidate for eviction, or no longer one: after every change that decides this. */
void lru_update_indexed(struct index *index, struct indexed *indexed);
void lru_update_record(struct index *index, struct record *record);

/* Counts a use of the entry, and so of its ancestors; now, or by an earlier process. */
void lru_use(struct index *index, struct indexed *indexed, int64_t now_ms);
void lru_mark_reused(struct index *index, struct indexed *indexed);

/* Adds its bytes to those of its identity, or subtracts them. */
void lru_count(struct index *index, struct record *record);
void lru_uncount(struct index *index, struct record *record);

void lru_space_open(struct index *index, struct space *space);
void lru_space_use(struct index *index, struct space *space);
void lru_space_close(struct index *index, struct space *space);

/* Evicts `need` bytes for the reservation, or nothing; without one (NULL) as many of them as can be. Children are
 * evicted before their parents, and the victims are linked in that order. Returns their bytes. */
uint64_t lru_evict(struct index *index, uint64_t need, struct reservation *reservation, struct victim **first);

/* Whether that many bytes could be evicted for the reservation; NULL: whatever they are worth. */
bool lru_could_evict(struct index *index, uint64_t need, const struct reservation *reservation);

/* Makes a victim of a record in no state. */
struct victim *lru_make_victim(struct index *index, struct record *record);

#endif
