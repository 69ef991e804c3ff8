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

/* What follows is constant from publication on, and may be read without a lock as long as the entry is leased; `user`
 * belongs to the tier, which guards it itself. Its tokens lie in the index: see index_matches(). */
struct entry {
    struct slab_key key;
    enum slab_kind kind;
    int32_t start, end;
    struct entry *parent; /* NULL: start is 0 */
    uint64_t size;        /* bytes it takes */
    void *user;           /* the tier's: its slab in memory */
};

/* free_user: what becomes of `user` when the entry's memory goes: after the last lease of an entry that is not in the
 * index any more. Called without the mutex. */
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
    const struct slab_key
        *keys;      /* of the prefixes at multiples of the stride: n / stride of them, slab_keys_at_strides(). NULL:
                  the walk begins at the first token; the result is the same */
    bool states;    /* STATE entries are looked for too */
    int64_t now_ms; /* since 1970: what is found counts as used now. 0: the look is no use of it */
};

/* The longest-prefix walk: probes the keys from the longest down to the first that is there, and compares the stored
 * tokens one by one along its chain; then goes on from there, along the entries that hang on it, token by token, also
 * into the middle of one. The result does not depend on where the walk began: what is not at a multiple of the stride
 * is found as well. Equals a search through all entries. */
void index_find(struct index *index, const struct wanted *wanted, struct match *match);
/* Looks again, for the same tokens or more of them, from where the match ended and without the keys. The leases of what
 * was found before are given back. */
void index_find_again(struct index *index, const struct wanted *wanted, struct match *match);

/* Notes the stored list of the identity that has most of the n leading tokens in common with them, where that is more
 * than what is noted; whether it is. Leases nothing, and is no use of an entry. */
bool index_note_divergence(struct index *index, const struct identity *identity, const int32_t *tokens, int32_t n,
                           struct divergence *nearest);

/* Gives the leases back; the match is empty then. */
void index_release(struct index *index, struct match *match);

/* One more lease of an entry that is leased, and giving one back. */
void index_lease(struct index *index, struct entry *entry);
void index_unlease(struct index *index, struct entry *entry);

/* It was used, and with it all that it hangs on. O(log n). Returns its hits. */
uint32_t index_touch(struct index *index, struct entry *entry, int64_t now_ms);

/* Its slab could be read: see index_set_aside(). */
void index_was_read(struct index *index, struct entry *entry);

/* Whether a slab with that head is the entry's: same key, kind, start, end, identity and, one by one, tokens. */
bool index_matches(struct index *index, const struct entry *entry, const struct slab_head *head);

/* Whether the key is there, being written, or neither (also: known, but detached). */
enum index_has { INDEX_ABSENT, INDEX_WRITING, INDEX_THERE };
enum index_has index_has(struct index *index, const struct slab_key *key);

/* ---- Saving ---- */

struct reservation;

struct reserve {
    const struct identity *identity;
    enum slab_kind kind;
    struct slab_key key;
    struct entry *parent;  /* what it hangs on, leased by the caller; NULL where start is 0 */
    const int32_t *tokens; /* [start, end) */
    int32_t start, end;
    uint64_t size;
    bool over; /* makes no room, but sees that index_trim() could: until then the budget may be exceeded by it */
};

enum reserved {
    RESERVED,             /* it is the caller's to write, and then to publish or to cancel */
    RESERVED_PRESENT,     /* it is there already */
    RESERVED_WRITING,     /* somebody else is writing it, or is still to delete what was there */
    RESERVED_ORPHAN,      /* the parent has left, or does not have the rows before `start` */
    RESERVED_NO_ROOM,     /* larger than the budget, or everything is in use */
    RESERVED_NOT_ADMITTED /* what would have to go for it is worth more (order.c): nothing is wrong */
};

/* An entry that left the index. Its bytes count until index_deleted(). */
struct victim {
    struct slab_key key;
    enum slab_kind kind;
    struct victim *next;
};

/* Checks and sets aside the bytes; evicts what the policy says (order.c), leaves before what they hang on, never what
 * is leased or what the new entry hangs on; where it is not RESERVED, nothing. A detached entry of the same key and
 * kind does not hinder: its file is about to be replaced. The caller deletes the victims' slabs, in their order, and
 * calls index_deleted() for each, or index_spare() for one whose slab could not be deleted (and then for all that
 * follow). */
enum reserved index_reserve(struct index *index, const struct reserve *what, struct reservation **reservation,
                            struct victim **victims);
void index_deleted(struct index *index, struct victim *victim); /* frees the victim */

/* Its slab is still there: it is an entry again, found like any other (detached, where what it hangs on has left).
 * `stuck`: it is the one that could not be deleted; as one that was used just now, so that others are chosen before it.
 */
void index_spare(struct index *index, struct victim *victim, bool stuck);

/* It is there: found from now on, and with it what was detached and hangs on it. `size` may be smaller than what was
 * reserved. Returns the entry, leased. NULL: what it hangs on has left meanwhile; then it is kept detached, and `user`
 * is still the caller's. The reservation ends either way. */
struct entry *index_publish(struct index *index, struct reservation *reservation, uint64_t size, void *user,
                            int64_t now_ms);
void index_cancel(struct index *index, struct reservation *reservation);

/* ---- Detached entries ----
 * An entry whose parent is not in the index is known, counts in the bytes, and is evicted in its turn, but is not
 * found, until the parent is published or adopted. Leases of it hold on to what it was: when it is found again it is
 * another `struct entry`, without `user`. */

/* Adds what an earlier process left, in any order. A time of last use in the future is taken for now. False: unsound
 * (see is_sound()), or known already; nothing changed. */
bool index_adopt(struct index *index, const struct slab_head *head, uint64_t size, int64_t now_ms);

/* Evicts what exceeds the budget: after all were adopted, or after a slab was written with `over`. */
struct victim *index_trim(struct index *index);

/* The entry's slab is damaged or gone: it leaves the index at once, leased, detached or not; what hangs on it becomes
 * detached. Returns the victim (one), NULL: it had left already, or a slab of its key is being written. */
struct victim *index_drop(struct index *index, struct entry *entry);

/* The same by its name. */
struct victim *index_drop_named(struct index *index, const struct slab_key *key, enum slab_kind kind);

/* The entry's slab could not be read, which says nothing of what it holds: it is not found for a while (a second, twice
 * as long each time that it happens again, an hour at most), nor is what hangs on it. Nothing leaves. A slab saved
 * under its key meanwhile takes its place. `now`: CLOCK_MONOTONIC, ns. */
void index_set_aside(struct index *index, struct entry *entry, int64_t now);

/* Takes back those whose time has come. Returns when the next one's comes; INT64_MAX: there is none. */
int64_t index_take_back(struct index *index, int64_t now);

/* Everything detached, but for what was set aside, leaves: it hangs on nothing. */
struct victim *index_drop_detached(struct index *index);

/* ---- Numbers ---- */

struct index_usage {
    uint64_t bytes, budget; /* of entries, detached or not, reservations and what is still to be deleted */
    uint64_t evictions;     /* entries that made room for others */
    size_t entries, detached, reservations, leases;
};

/* Bytes of the budget that belong to what is no entry. */
void index_set_foreign(struct index *index, uint64_t bytes);

struct index_usage index_usage(struct index *index);

/* Calls `each` for every entry that is found, with its identity; the mutex is held. */
void index_each(struct index *index, void (*each)(void *ud, const struct entry *entry, const struct identity *identity),
                void *ud);

/* Within index_each(): the tokens [0, end) of the entry. */
void index_copy_tokens(const struct entry *entry, int32_t *tokens);

/* Calls `each` for every detached entry; the mutex is held. */
void index_each_detached(struct index *index, void (*each)(void *ud, const struct slab_key *key, enum slab_kind kind),
                         void *ud);

#endif
