/* The index of one tier: which prefixes are stored there, in LRU order, within a budget of bytes.
 *
 * Entries form a tree. An entry is the prefix of `end` tokens that its key names. Its slab holds the KV rows of the
 * tokens [start, end) alone; those before `start` are in the slabs of its ancestors. It may start in the middle of its
 * parent's tokens, so nothing is stored twice. The next turn, a branch and an edited message each become a child where
 * they diverge from the stored tokens. A STATE entry (recurrent/SWA state, which cannot be cut) is the child of the
 * rows that it completes. Where a model has no rows at all, it covers the tokens since its parent's end.
 *
 * The index is changed under its mutex alone, for microseconds, and never during I/O (each mutator asserts it). A
 * lookup pins what it finds: the entries and their ancestors stay until index_release(). All functions may be called
 * from any thread. */
#ifndef STORE_INDEX_INDEX_H
#define STORE_INDEX_INDEX_H

#include "base/tokens.h"
#include "store/slabs/slab.h"

struct index;

/* Constant from publication on, and read without a lock while the entry is pinned; but `user` belongs to the tier,
 * which guards it itself. The tokens are in the index: see index_matches(). */
struct entry {
    struct slab_key key;
    enum slab_kind kind;
    int32_t start, end;
    struct entry *parent; /* NULL: start is 0 */
    uint64_t size;        /* bytes of its slab on the tier */
    void *user;           /* the tier's: its slab in memory */
};

/* `budget`: bytes. free_user() frees an entry's `user`, after the last pin of an entry that has left the index. It is
 * called without the mutex. */
struct index *index_open(int32_t stride, uint64_t budget, void (*free_user)(void *user));
void index_close(struct index *index);

/* ---- Lookups ---- */

/* The longest stored prefix of some tokens. */
struct match {
    struct entry *rows;  /* the last entry of the chain that has the rows of the first n_rows tokens; pinned */
    int32_t n_rows;      /* may end in the middle of that entry's tokens */
    struct entry *state; /* the STATE entry with the largest `end` that is a prefix and has its rows; pinned */
    int32_t n_state;     /* its end; 0: none */
    uint32_t probes;     /* keys that were looked up */
};

struct index_lookup {
    const struct identity *identity;
    const int32_t *tokens;
    int32_t n;
    const struct slab_key *keys; /* of the n / stride prefixes at multiples of the stride: slab_keys_at_strides(). NULL:
                                    the walk begins at the first token, with the same result */
    bool states;                 /* whether STATE entries are looked up as well */
    int64_t now_ms; /* since 1970: the entries that are found count as used now. 0: the lookup counts as no use */
};

/* The longest-prefix walk: probes the keys from the longest down to the first that is stored, and compares that entry's
 * tokens and its ancestors' one by one. From there it continues token by token, also into the middle of an entry. So it
 * finds prefixes that end at no multiple of the stride, and the result equals that of a search through all entries. */
void index_find(struct index *index, const struct index_lookup *lookup, struct match *match);
/* Looks up the same tokens, or more of them, from the end of the match on and without keys. Gives the pins of the
 * former match back. */
void index_find_again(struct index *index, const struct index_lookup *lookup, struct match *match);

/* Notes the divergence from the stored list of the identity that has most of the n tokens in common with them, if that
 * is more than what is noted. Returns whether it is. Pins nothing, and counts as no use. */
bool index_note_divergence(struct index *index, const struct identity *identity, const int32_t *tokens, int32_t n,
                           struct divergence *divergence);

/* How many of the n tokens some stored list of the identity begins with. Pins nothing, and counts as no use. */
int32_t index_common(struct index *index, const struct identity *identity, const int32_t *tokens, int32_t n);

/* Looks at the stored lists that begin with these n tokens. For each way in which they go on, appends up to `most` next
 * tokens that its lists have in common to one of the `max` lists. Returns how many ways. Pins nothing, and counts as no
 * use. */
size_t index_ways_on(struct index *index, const struct identity *identity, const int32_t *tokens, int32_t n,
                     struct tokens *ways, size_t max, size_t most);

/* Gives the pins back and empties the match. */
void index_release(struct index *index, struct match *match);

/* Adds a pin to an entry that is pinned; gives one back. */
void index_pin(struct index *index, struct entry *entry);
void index_unpin(struct index *index, struct entry *entry);

/* Counts a use of the entry, and so of its ancestors. O(log n). Returns its hits. */
uint32_t index_touch(struct index *index, struct entry *entry, int64_t now_ms);

/* The entry's slab was read: its next failure counts as the first (index_mark_unreadable()). */
void index_mark_readable(struct index *index, struct entry *entry);

/* Whether a slab with that head is the entry's: same key, kind, start, end, identity and, one by one, tokens. */
bool index_matches(struct index *index, const struct entry *entry, const struct slab_head *head);

/* Whether an entry with a pin has left for good: it was dropped or evicted, and nothing has its name now. */
bool index_has_left(struct index *index, const struct entry *entry);

/* Whether the key is indexed, being written, or neither (detached entries count as absent). */
enum index_has { INDEX_ABSENT, INDEX_WRITING, INDEX_THERE };
enum index_has index_has(struct index *index, const struct slab_key *key);

/* ---- Saving ---- */

struct reservation;

struct reserve {
    const struct identity *identity;
    enum slab_kind kind;
    struct slab_key key;
    struct entry *parent;  /* pinned by the caller; NULL where start is 0 */
    const int32_t *tokens; /* [start, end) */
    int32_t start, end;
    uint64_t size; /* bytes */
    bool over;     /* evicts nothing now, but checks that index_trim() can: the budget may be exceeded until then */
};

enum reserved {
    RESERVED,             /* the caller writes the slab, and then publishes or cancels */
    RESERVED_PRESENT,     /* it is stored already */
    RESERVED_WRITING,     /* another thread is writing it, or is still to delete the former slab of that key */
    RESERVED_ORPHAN,      /* the parent has left the index, or does not have the rows before `start` */
    RESERVED_NO_ROOM,     /* larger than the budget, or everything is in use */
    RESERVED_NOT_ADMITTED /* what would have to be evicted is worth more (lru.c): no fault */
};

/* An entry that left the index. Its bytes count until index_deleted(). */
struct victim {
    struct slab_key key;
    enum slab_kind kind;
    struct victim *next;
};

/* Reserves the bytes of a slab, and evicts what the policy says (lru.c): children before parents, never an entry that
 * is pinned or an ancestor of the new one. If the result is not RESERVED, nothing is evicted. A detached entry of the
 * same key and kind is no hindrance: its file is replaced. The caller deletes the victims' slabs, in their order, and
 * calls index_deleted() for each; or index_reinstate() for one whose slab cannot be deleted, and for all that follow
 * it. */
enum reserved index_reserve(struct index *index, const struct reserve *what, struct reservation **reservation,
                            struct victim **victims);
void index_deleted(struct index *index, struct victim *victim); /* frees the victim */

/* The victim's slab still exists: it becomes an entry again (a detached one, if its parent has left). `stuck`: this is
 * the slab that could not be deleted; it counts as used just now, so that others are evicted before it. */
void index_reinstate(struct index *index, struct victim *victim, bool stuck);

/* The slab is written: lookups find the entry from now on, and its detached descendants. `size` may be smaller than
 * what was reserved. Returns the entry, pinned. NULL: its parent has left meanwhile; then it is kept detached, and
 * `user` stays the caller's. Publishing and cancelling both end the reservation. */
struct entry *index_publish(struct index *index, struct reservation *reservation, uint64_t size, void *user,
                            int64_t now_ms);
void index_cancel(struct index *index, struct reservation *reservation);

/* ---- Detached entries ----
 * An entry whose parent is not in the index is detached. Its bytes count and it may be evicted, but no lookup finds it
 * until the parent is published or adopted. One that is pinned meanwhile is another struct entry once it is found
 * again, without `user`. */

/* Adds a slab that an earlier process left, in any order. A time of last use in the future counts as now. False: the
 * head is unsound (is_sound()) or the entry is known already; nothing changed. */
bool index_adopt(struct index *index, const struct slab_head *head, uint64_t size, int64_t now_ms);

/* Evicts what exceeds the budget: after all slabs were adopted, or after one was written with `over`. */
struct victim *index_trim(struct index *index);

/* The entry's slab is damaged or gone: removes the entry at once, pinned, detached or not, and detaches its
 * descendants. Returns the victim (one). NULL: it has left already, or a slab of its key is being written. */
struct victim *index_drop(struct index *index, struct entry *entry);

/* The same, of the entry with that key and kind. */
struct victim *index_drop_named(struct index *index, const struct slab_key *key, enum slab_kind kind);

/* The entry's slab could not be read, which says nothing of its bytes. Neither it nor its descendants are found for a
 * while (1 s, doubled at each further failure, 1 h at most). No entry leaves. A slab that is saved under its key
 * meanwhile replaces it. `now`: CLOCK_MONOTONIC, ns. */
void index_mark_unreadable(struct index *index, struct entry *entry, int64_t now);

/* Lets lookups find those again whose while is over. Returns when the next one's ends; INT64_MAX: there is none. */
int64_t index_retry_unreadable(struct index *index, int64_t now);

/* Removes every detached entry whose parent is not about to return: all but the unreadable ones and their descendants.
 */
struct victim *index_drop_detached(struct index *index);

/* ---- Conversations ----
 * A tip is an entry that no other goes on from: with its ancestors it is a stored conversation, or a branch of one. A
 * STATE entry that completes the rows of another one belongs to that, and is none. Detached entries are not found. */

/* The order of tips, newest first: that of their last use, then of their keys. */
struct tip_place {
    int64_t used;
    struct slab_key key;
};

bool tip_comes_before(const struct tip_place *a, const struct tip_place *b);

struct tip {
    struct tip_place place;
    uint8_t model[SHA256_BYTES];
    int32_t end;        /* its tokens */
    int32_t own_tokens; /* the last of them, in slabs that no other tip has */
    uint64_t own_bytes; /* of those slabs */
    int32_t marked;     /* the largest `n` of the marks that are its ancestors, or itself */
    int64_t used_ms;    /* since 1970 */
    bool kept;
};

struct tip_query {
    const struct tip_place *after; /* only those behind it; NULL: from the newest on */
    bool inclusive;                /* and the one at that place */
    const struct stored_mark *marks;
    size_t n_marks;
};

/* Fills up to `max` tips, newest first; returns how many: with fewer there are no more behind them. `total`: of all
 * tips. The mutex is released in between: entries that change meanwhile may be missing. */
size_t index_tips(struct index *index, const struct tip_query *query, struct tip *tips, size_t max, size_t *total);

enum tip_order {
    TIP_ORDERED,
    TIP_GONE,   /* there is no tip of that key, or another entry goes on from it by now */
    TIP_IN_USE, /* something of what is to be dropped is pinned */
    TIP_NO_ROOM /* what is kept would have more than its part of the budget */
};

/* A kept tip is not evicted, with its ancestors, until it is released: by index_release_tip(), when it is dropped or
 * damaged, or at the process's end. The entry that goes on from it is the kept one then. All that is kept together has
 * at most a quarter of the budget; the identities share the rest as if there were no more. */
enum tip_order index_keep_tip(struct index *index, const struct slab_key *key);
enum tip_order index_release_tip(struct index *index, const struct slab_key *key);

/* Removes the tip, and those of its ancestors that no other tip has. The caller deletes the victims' slabs, as those of
 * index_reserve(). */
enum tip_order index_drop_tip(struct index *index, const struct slab_key *key, struct victim **victims);
/* ---- Following ---- One thread may follow what lookups find: it is told of every entry that comes, after its parent,
 * and of every one that goes. Nothing is queued for it: entries are in a list in the order in which they were indexed,
 * of which it has read a part. So it may be as slow as it likes, and misses nothing. */

/* The part that a follower keeps of an entry that it knows: the beginning of a larger struct of its own, in one block
 * of memory from malloc. */
struct index_followed {
    struct index_followed *next;
    uint32_t round; /* in which the follower was told of the entry */
};

struct index_follower {
    /* Called with the mutex, when something is there to be read and the follower has seen that there was nothing: must
     * neither wait nor call the index. */
    void (*changed)(void *ud);
    /* The follower's name for the identity. NULL: it does not know it, and is not told of its entries before
     * index_follow_again(). Called with the mutex, on the follower's thread. */
    void *(*name)(void *ud, const struct identity *identity);
    void *ud;
    size_t size;                                      /* bytes of the struct in which it keeps an entry */
    void (*release)(struct index_followed *followed); /* frees one */
    int32_t block; /* tokens: those of an entry are copied from a multiple of it on */
};

enum index_news_type { INDEX_NO_NEWS, INDEX_ENTERED, INDEX_LEFT };

struct index_news {
    enum index_news_type type;
    /* Belongs to the follower, zeroed at first, and stays valid until it was told that the entry left and releases it.
     */
    struct index_followed *followed;
    bool was_told; /* LEFT: of its coming, in this round. ENTERED: in an earlier one, so `followed` is that of then */
    /* ENTERED: */
    struct index_followed *parent; /* NULL: there is none */
    void *name;
    enum slab_kind kind;
    int32_t start, end, from;
    struct tokens tokens; /* [from, end); of a STATE entry all of them. The follower's to release, used again */
};

/* The follower is copied; it begins with all that is there. */
void index_follow(struct index *index, const struct index_follower *follower);
void index_unfollow(struct index *index); /* frees all that the follower keeps of entries */

void index_next_news(struct index *index, struct index_news *news);

/* The follower has forgotten everything: it is told of all entries once more, a new round. Or just of those whose
 * identity it did not know. */
void index_follow_anew(struct index *index);
void index_follow_again(struct index *index);

/* Whether any entry has that identity. */
bool index_has_identity(struct index *index, const struct identity *identity);

/* ---- Numbers ---- */

struct index_usage {
    uint64_t bytes, budget; /* of entries, detached or not, reservations, and victims that are still to be deleted */
    uint64_t evictions;     /* entries, ever */
    size_t entries, detached, reservations, pins;
};

/* Asserts the invariants of an index, in a build with assertions. Each item is in the lists, tables and heaps that its
 * state says, and every count and sum of bytes is that of the items. Some of the calls that change an index end with it
 * by themselves. */
void index_check(struct index *index);

/* Bytes of the quota that files which are no entries take. */
void index_set_foreign(struct index *index, uint64_t bytes);

struct index_usage index_usage(struct index *index);

/* Calls `each` for every indexed entry, with its identity, under the mutex. */
void index_each(struct index *index, void (*each)(void *ud, const struct entry *entry, const struct identity *identity),
                void *ud);

/* Within index_each(): copies the tokens [0, end) of the entry. */
void index_copy_tokens(const struct entry *entry, int32_t *tokens);

/* Calls `each` for every detached entry, under the mutex. */
void index_each_detached(struct index *index, void (*each)(void *ud, const struct slab_key *key, enum slab_kind kind),
                         void *ud);

#endif
