/* The token-exact KV store: prefixes of token lists and the state that belongs to each, in several tiers, alive after
 * any crash. It knows tokens and bytes; not models, slots, sessions or requests.
 *
 * Tiers are independent: own budget, own order of last use, own threads, own failures. A save goes to the one
 * configured tier and never moves. Whoever looks for a prefix gets the longest of all tiers. A tier that fails or hangs
 * is set aside alone, and comes back by itself.
 *
 * The functions here may be called from any thread and never wait for I/O, but for those that say so. What was saved is
 * found from the moment it is published. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/metrics.h"
#include "store/slab.h"
#include "store/slab_key.h"
#include "store/tier_table.h"

struct store;

extern const char *const store_tier_names[STORE_TIERS];

/* Its slabs are files; else they are gone with the process. */
bool store_tier_has_folder(enum store_tier tier);

struct backend;

struct store_tier_params {
    uint64_t quota;          /* bytes; 0: off */
    const char *path;        /* of a tier in a folder */
    struct backend *backend; /* in place of the tier's own; the store's from here on. NULL: its own */
};

struct store_params {
    int32_t stride; /* tokens: size of a block, stride of the walk */
    enum store_tier save_tier;
    struct store_tier_params tiers[STORE_TIERS];
    uint64_t backlog;         /* bytes of saves under way, at most */
    int64_t save_timeout_ns;  /* a tier that takes longer for a slab is set aside */
    int64_t fetch_timeout_ns; /* so is one that takes longer to read one; and a fetch to which nothing comes for so long
                                 is given up */
    int64_t scan_grace_ns;    /* lookups wait for the look through the folders until so long after the start */
    struct files *files;
};

/* Returns at once: the tiers are opened and looked through meanwhile. One that cannot be opened is tried again from
 * time to time, and the log says so: never an error. NULL where its threads cannot be started. */
struct store *store_open(const struct store_params *params, hearth_error *error);

/* Saves under way are finished first, until the deadline (CLOCK_MONOTONIC ns). Every hit has been closed, every user
 * has left. False: a tier still hangs in a call; what belongs to it is freed when that returns. */
bool store_close(struct store *store, int64_t deadline);

/* Waits until every tier has been looked through or could not be opened, or the deadline. */
bool store_wait_ready(struct store *store, int64_t deadline);

/* ---- Who uses it ---- */

/* A slab's payload, and what of it is meant. */
struct store_piece {
    enum slab_kind kind;
    const void *bytes;
    size_t size;
    int32_t from, to; /* tokens whose rows are wanted; of a STATE piece, `to` is its place */
};

/* How a user's states are taken apart and put together: pure functions, called on the store's threads. */
struct store_codec {
    const void *ud;
    bool rows;      /* states have rows */
    bool has_state; /* and a part that cannot be cut: a prefix can be gone on from only where a STATE entry stands */
    bool appends;   /* pieces load one after the other; else they are joined first */
    /* Payload and regions of the rows [from, to), or of the moving part at `to`, from what the user copied out. */
    bool (*cut)(const void *ud, enum slab_kind kind, const void *raw, size_t size, int32_t from, int32_t to,
                struct buf *payload, struct slab_region **regions, size_t *n_regions);
    /* One run of bytes from payloads. */
    bool (*join)(const void *ud, const struct store_piece *pieces, size_t n, struct buf *joined);
};

struct store_user {
    struct identity identity; /* of what it saves and looks for, where that says nothing else */
    struct store_codec codec;
    void (*wake)(void *ud); /* something that it waits for has come: bytes, room for saves, their end; any thread */
    void *ud;
};

/* What people call a model: written beside the first slab of it in each tier that outlives the process, for who lists
 * them. Copied. */
#define STORE_MODEL_NAME 128 /* bytes that are kept of it, with the zero at its end */
void store_name_model(struct store *store, const uint8_t model[SHA256_BYTES], const char *name);

/* The user goes, after its hits were closed: none of its functions runs or is called any more. Waits for those that do,
 * never for I/O. What it has queued and is not being written is dropped: store_wait() before that, where it matters. */
void store_remove_user(struct store *store, const struct store_user *user);

/* ---- Looking ---- */

/* What was found for a token list. It holds leases: what it found stays as long as it does. Belongs to one thread at a
 * time. */
struct store_hit;

struct store_query {
    const struct store_user *user;
    const struct identity *identity; /* copied. NULL: the user's */
    const int32_t *tokens;
    int32_t n;                         /* of them may be reused */
    const struct slab_key *parent_key; /* a hint, or NULL */
    int64_t deadline;                  /* a look through the folders that has just begun is waited for; 0: nothing is */
};

/* Whether the parent that the query names may be among the saves that were queued when this was asked for the first
 * time, with a ticket of 0. True: the waiter, of which only wake() is called, is woken when a save has ended, and asks
 * again with the same ticket. Some key that nobody is writing is not coming, nor is one that a disk hangs over. */
bool store_parent_is_coming(struct store *store, const struct store_query *query, const struct store_user *waiter,
                            uint64_t *ticket);

/* Never NULL: a hit may have found nothing. Counts nothing yet. */
struct store_hit *store_find(struct store *store, const struct store_query *query);

/* Looks again, for these tokens (the same, or more of them): what has been saved meanwhile. Cheap when nothing has.
 * Must not be called once it fetches. */
void store_find_again(struct store_hit *hit, const int32_t *tokens, int32_t n);
void store_hit_close(struct store_hit *hit); /* NULL is fine; ends a fetch */

int32_t store_hit_tokens(const struct store_hit *hit); /* that can be gone on from */
int32_t
store_hit_covered(const struct store_hit *hit); /* whose rows need not be saved: they are in the tier of saves */
enum store_tier store_hit_tier(const struct store_hit *hit);

/* The same for one tier; and the key of what was found there, false: nothing was. For those who ask. */
int32_t store_hit_tokens_in(const struct store_hit *hit, enum store_tier tier);
bool store_hit_key(const struct store_hit *hit, enum store_tier tier, struct slab_key *key);

/* Leading tokens that a stored list has in common with those that were looked for, whether or not they can be gone on
 * from; `tier`: where, if there are any. */
int32_t store_hit_common(const struct store_hit *hit, enum store_tier *tier);

/* Notes the stored list that has most tokens in common with the query's, where that is more than what is noted; `tier`:
 * where it is. Whether it is nearer. No use of it, and nothing is counted. */
bool store_note_divergence(struct store *store, const struct store_query *query, struct divergence *divergence,
                           enum store_tier *tier);

/* What fetching the tokens [from, to) of what was found will take, in nanoseconds, as reading from its tier took
 * lately. */
double store_hit_read_ns(const struct store_hit *hit, int32_t from, int32_t to);

/* How it went, for the counters; once a request. `used`: tokens that were taken from the hit, 0: none. */
void store_hit_count(struct store_hit *hit, int32_t used);

/* ---- Fetching ---- */

/* Begins to bring the first n tokens (at most store_hit_tokens()) into memory, in order, some way ahead of what has
 * been taken. Two that fetch the same slab read it once. */
void store_fetch(struct store_hit *hit, int32_t n);
bool store_is_fetching(const struct store_hit *hit);

/* The rows of the first n tokens are not needed any more: slabs that hold nothing else are neither read nor given. */
void store_skip(struct store_hit *hit, int32_t n);

enum store_next {
    STORE_PIECE,   /* `piece` is the next one; valid until the next call */
    STORE_PENDING, /* not there yet: the user is woken */
    STORE_END,     /* that was all */
    STORE_LOST     /* damaged or gone, with all that follows: what was taken so far is good */
};

/* The next piece, in order: rows from the first token on (all joined into one, where pieces cannot be appended), then
 * the state. */
enum store_next store_next_piece(struct store_hit *hit, struct store_piece *piece);

/* ---- Saving ---- */

/* Rows or a moving part that the user has copied out. */
struct store_save {
    const struct store_user *user;
    const struct identity *identity; /* copied. NULL: the user's */
    enum slab_kind kind;
    enum slab_reason reason;
    const int32_t *tokens; /* [0, to): copied */
    int32_t from, to;      /* rows of these tokens; of a STATE, `to` is its place */
    void *raw;             /* from store_buffer(); the store's from here on, whatever is returned */
    size_t size;
    bool last;        /* the event (cold, finish …) ends with this one: counted */
    bool synchronous; /* goes beyond the backlog if need be: its caller waits for it */
};

/* Memory to copy out to, from malloc; reused. NULL: there is none. Who does not save it frees it. */
void *store_buffer(struct store *store, size_t size);

/* Buffers of that size will be asked for. */
void store_expect(struct store *store, size_t size);

/* Queues it. Returns a ticket for store_wait(); 0: the backlog is full (the user is woken when there is room again) or
 * the tier is off, nothing is kept, and saves_dropped counts. What is stored already is not written again. */
uint64_t store_save(struct store *store, const struct store_save *save);

/* Whether the tier of saves is on: else nothing is worth copying out. */
bool store_is_on(struct store *store);

/* Whether a save of `size` bytes would be taken now. Where it would not, the user is woken when there is room again, or
 * the tier of saves is back. */
bool store_has_room(struct store *store, const struct store_user *user, size_t size);

/* Whether every save up to the ticket is durable or has failed. False: the user is woken when a save has ended. */
bool store_is_done(struct store *store, const struct store_user *user, uint64_t ticket);

/* Waits until every save up to the ticket is durable or has failed, or the deadline. True: none is under way. */
bool store_wait(struct store *store, uint64_t ticket, int64_t deadline);

/* Leading tokens whose rows are in the tier of saves, now, as store_hit_covered() says: compares the tokens with what
 * the index has, and hashes none; some microseconds. */
int32_t store_covered(struct store *store, const struct store_query *query);

/* Whether what moves is there after exactly query->n tokens, with its rows. As cheap. */
bool store_has_state(struct store *store, const struct store_query *query);

/* A save that its user gives up before it was queued. */
void store_count_dropped(struct store *store);

/* ---- Numbers ---- */

struct store_stats {
    metric_value hits_exact, hits_resume, hits_longest_prefix, misses;
    metric_value saves[SLAB_FINISH + 1]; /* by reason */
    metric_value saves_dropped, duplicate_dropped, corrupt_files, longest_prefix_probes;
    metric_value pack_ns, load_ns; /* on the store's threads: cutting and encoding; reading and checking */
    metric_value written_bytes, read_bytes, backlog_bytes;
};

const struct store_stats *store_stats(const struct store *store);

struct store_tier_status {
    uint64_t entries, bytes, quota, evictions;
    bool on;
    char trouble[160]; /* why it is off, or what went wrong last; "" */
};

void store_tier_status(struct store *store, enum store_tier tier, struct store_tier_status *out);

#endif
