/* The index of one tier: which prefixes are stored there, in the order of their last use, within a budget of bytes.
 *
 * Entries form a tree. One stands for the prefix of `end` tokens whose key it has, and its slab holds the rows of
 * [start, end) alone; the rows before `start` are those of its parent and of the parent's parents. It may begin in the
 * middle of its parent's tokens, so nothing is ever stored twice: a turn's end, a branch, an edited message all hang
 * where they leave what is there. A STATE entry (what cannot be cut) hangs on the rows that it completes; where a
 * model has no rows at all, it stands for the tokens since the parent's end.
 *
 * One owner: whoever holds the index's mutex mutates it, for microseconds, and never during I/O (each mutator asserts
 * it). Found entries are leased: they and what they hang on stay until index_release(). All functions may be called
 * from any thread. */
#ifndef STORE_INDEX_H
#define STORE_INDEX_H

#include "base/tokens.h"
#include "store/slab.h"

struct index;

/* What follows is constant from publication on, and may be read without a lock as long as the entry is leased; `image`
 * and `user` belong to store.c, which guards them itself. */
struct entry {
    struct key key;
    enum slab_kind kind;
    int32_t start, end;
    struct tokens tokens; /* [start, end) */
    struct entry *parent; /* NULL: start is 0 */
    uint64_t size;        /* bytes it takes */
    void *user;           /* store.c: its slab in memory */
};

/* What becomes of `user` when the entry's memory goes: after the last lease of an entry that is not in the index any
 * more. Called without the mutex. */
struct index *index_open(int32_t stride, uint64_t budget, void (*free_user)(void *user));
void index_close(struct index *index);

/* ---- Finding ---- */

/* The longest stored prefix of some tokens. */
struct match {
    struct entry *rows; /* the deepest entry of the chain whose rows are those of the first n_rows tokens; leased */
    int32_t n_rows;     /* it may end in the middle of that entry's tokens */
    struct entry
        *state; /* the STATE entry with the longest `end` that is a prefix of the tokens and has its rows; leased */
    int32_t n_state; /* its end; 0: none */
    uint32_t probes; /* keys that were looked up */
};

struct wanted {
    const struct identity *identity;
    const int32_t *tokens;
    int32_t n;
    const struct key *keys; /* of the prefixes at multiples of the stride: n / stride of them, keys_at_strides() */
    bool states;            /* STATE entries are looked for too */
};

/* The longest-prefix walk: probes the keys from the longest down to the first that is there, and compares the stored
 * tokens one by one along its chain; then goes on from there, along the entries that hang on it, token by token, also
 * into the middle of one. The result does not depend on where the walk began: what is not at a multiple of the stride
 * is found as well. Equals a search through all entries. */
void index_find(struct index *index, const struct wanted *wanted, struct match *match);

/* Looks again, for the same tokens or more of them, from where the match ended and without the keys. The leases of what
 * was found before are given back. */
void index_find_again(struct index *index, const struct wanted *wanted, struct match *match);

/* Gives the leases back; the match is empty then. */
void index_release(struct index *index, struct match *match);

/* One more lease of an entry that is leased, and giving one back. */
void index_lease(struct index *index, struct entry *entry);
void index_unlease(struct index *index, struct entry *entry);

/* They were used: the entry and all it hangs on are the last to go, the entry first of them. hits of the entry += 1.
 * Returns its hits. */
uint32_t index_touch(struct index *index, struct entry *entry, int64_t now_ms);

/* Whether the key is there, being written, or neither. */
enum index_has { INDEX_ABSENT, INDEX_WRITING, INDEX_THERE };
enum index_has index_has(struct index *index, const struct key *key);

/* Waits while the key is being written, or anything is while it is absent, until the deadline (CLOCK_MONOTONIC,
 * nanoseconds). Returns what it is then. */
enum index_has index_wait(struct index *index, const struct key *key, int64_t deadline);

/* ---- Saving ---- */

struct reservation;

/* What is to be stored: `tokens` are all of [0, end). */
struct reserve {
    const struct identity *identity;
    enum slab_kind kind;
    struct key key;
    const int32_t *tokens;
    int32_t start, end;
    uint64_t size;
};

enum reserved {
    RESERVED,         /* it is the caller's to write, and then to publish or to cancel */
    RESERVED_PRESENT, /* it is there already */
    RESERVED_WRITING, /* somebody else is writing it, or is still to delete what was there */
    RESERVED_ORPHAN,  /* the rows before `start` are not there */
    RESERVED_NO_ROOM  /* larger than the budget, or everything is in use */
};

/* An entry that left the index to make room. Its bytes count until index_deleted(). */
struct victim {
    struct key key;
    enum slab_kind kind;
    struct victim *next;
};

/* Checks and sets aside the bytes: what was used longest ago goes, leaves before what they hang on, never what is
 * leased or what the new entry hangs on; with RESERVED_NO_ROOM, nothing. The caller deletes the victims' slabs, calls
 * index_deleted() for each, and only then writes: so the tier never holds more than its budget. */
enum reserved index_reserve(struct index *index, const struct reserve *what, struct reservation **reservation,
                            struct victim **victims);
void index_deleted(struct index *index, struct victim *victim); /* frees the victim */

/* What it hangs on, whose key goes into the slab; as long as the reservation. NULL: nothing, its start is 0. */
const struct entry *index_reserved_parent(const struct reservation *reservation);

/* It is there: found from now on. `size` may be smaller than what was reserved. Returns the entry, leased. NULL: what
 * it hangs on was dropped meanwhile; the reservation and `user` are still the caller's, who deletes the slab and
 * cancels. */
struct entry *index_publish(struct index *index, struct reservation *reservation, uint64_t size, void *user,
                            int64_t now_ms);
void index_cancel(struct index *index, struct reservation *reservation);

/* Adds what an earlier process left, whose parent (if start > 0) must have been added before. False: it has none, or is
 * there already; nothing changed. */
bool index_adopt(struct index *index, const struct slab_head *head, uint64_t size);

/* After all were adopted: the order of last use as it was (what others hang on is never older than they); what exceeds
 * the budget comes back as victims. */
struct victim *index_settle(struct index *index);

/* The entry is damaged or lost: it and all that hangs on it leave the index at once, leased or not. Victims: their
 * slabs, first itself. */
struct victim *index_drop(struct index *index, struct entry *entry);

/* Everything that is not leased leaves. */
struct victim *index_clear(struct index *index);

/* ---- Numbers ---- */

struct index_usage {
    uint64_t bytes, budget; /* of entries, reservations and what is still to be deleted */
    uint64_t evictions;     /* entries that made room for others */
    size_t entries, reservations, leases;
};

struct index_usage index_usage(struct index *index);

/* Calls `each` for every entry, with its identity; the mutex is held. */
void index_each(struct index *index, void (*each)(void *ud, const struct entry *entry, const struct identity *identity),
                void *ud);

#endif
