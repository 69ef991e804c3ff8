/* The token-exact KV store: prefixes of token lists and the state of each (KV rows, recurrent/SWA state), in several
 * tiers, which outlive any crash. It knows tokens and bytes; not models, slots, sessions or requests.
 *
 * Tiers are independent: each has its own budget, LRU order, threads and failures. A save goes to the one configured
 * tier and never moves; whole blocks of it also go to a tier on a server, when there is time. A lookup finds the
 * longest prefix of all tiers. A tier that fails or hangs goes out of service alone, and returns by itself.
 *
 * The functions here may be called from any thread and never wait for I/O, unless they say so. A saved prefix is found
 * from the moment it is published. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/metrics.h"
#include "store/slabs/slab.h"
#include "store/slabs/slab_key.h"
#include "store/tier_table.h"

struct store;

extern const char *const store_tier_names[STORE_TIERS];
extern const char *const store_tier_media[STORE_TIERS]; /* what routers call them */

/* In a folder slabs are files, which outlive the process. */
enum store_tier_kind store_tier_kind(enum store_tier tier);

struct backend;
struct remote_params;

struct store_tier_params {
    uint64_t quota;                     /* bytes; 0: off */
    const char *path;                   /* of a tier in a folder */
    const struct remote_params *server; /* of a tier on a server (remote_backend.h) */
    int64_t probe_timeout_ns;           /* and how long store_probe() waits for it */
    struct backend *backend;            /* used in place of the tier's own, and closed by the store; NULL: its own */
};

struct store_params {
    int32_t stride; /* tokens: size of a block, distance of the keys that lookups probe */
    enum store_tier save_tier;
    struct store_tier_params tiers[STORE_TIERS];
    uint64_t backlog;         /* most bytes of queued saves */
    int64_t save_timeout_ns;  /* a tier whose write takes longer goes out of service */
    int64_t fetch_timeout_ns; /* so does one whose read takes longer; and a fetch that gets nothing for so long is given
                                 up */
    int64_t scan_grace_ns;    /* lookups wait for the first scan until so long after the start */
    struct files *files;
};

/* Returns at once: threads open and scan the tiers. One that cannot be opened is retried from time to time and logged,
 * which is never an error. NULL: its threads cannot be started. */
struct store *store_open(const struct store_params *params, hearth_error *error);

/* Finishes queued saves first, until the deadline (CLOCK_MONOTONIC, ns). The caller has closed every hit and removed
 * every user. False: a tier still hangs in a call, and its memory is freed when that returns. */
bool store_close(struct store *store, int64_t deadline);

/* Waits until every tier was scanned or could not be opened, or the deadline (CLOCK_MONOTONIC, ns). */
bool store_wait_ready(struct store *store, int64_t deadline);

/* Another process that owned folders has ended, or is about to: opens them as soon as it has, and scans them. False:
 * the deadline (CLOCK_MONOTONIC, ns) has passed first. */
bool store_reopen(struct store *store, int64_t deadline);

/* ---- Users ---- */

/* The payload of a slab, and the range of it that is to be used. */
struct store_piece {
    enum slab_kind kind;
    const void *bytes;
    size_t size;
    int32_t from, to; /* tokens whose rows are to be used; of a STATE piece, `to` is its position */
};

/* Splits and joins a user's state. Pure functions, called on the store's threads. */
struct store_codec {
    const void *ud;
    bool rows;      /* there are KV rows */
    bool has_state; /* there is recurrent/SWA state: a prefix can be reused only up to a STATE entry */
    bool appends;   /* pieces can be loaded one after the other; else they are joined first */
    /* Cuts payload and regions of the rows [from, to), or of the recurrent/SWA state at `to`, out of what the user
     * copied. */
    bool (*cut)(const void *ud, enum slab_kind kind, const void *raw, size_t size, int32_t from, int32_t to,
                struct buf *payload, struct slab_region **regions, size_t *n_regions);
    /* Joins payloads to one block of bytes. */
    bool (*join)(const void *ud, const struct store_piece *pieces, size_t n, struct buf *joined);
};

struct store_user {
    struct identity identity; /* of its saves and lookups, where they give no other */
    struct store_codec codec;
    void (*wake)(void *ud); /* something it waits for has come: a piece, room for saves, the end of saves; any thread */
    /* Whether what it has copied out until now may be stored. The thread of a tier asks before each save is written,
     * and may wait for it for a moment. NULL: it may. */
    bool (*may_store)(void *ud);
    void *ud;
};

/* A model's name, for listings: written beside its first slab in each tier with files. Copied. */
#define STORE_MODEL_NAME 128 /* bytes of it that are kept, with the terminating zero */
void store_name_model(struct store *store, const uint8_t model[SHA256_BYTES], const char *name);

/* Removes a user, whose hits are closed: none of its functions runs or is called any more. Waits for those that run,
 * never for I/O of the store's. Its queued saves that are not being written are dropped: store_wait() before that,
 * where it matters.
 */
void store_remove_user(struct store *store, const struct store_user *user);

/* ---- Known digests ---- */

/* A small file for the loader of models (docs/format.md). It is beside the slabs of the last tier in the table that has
 * a folder and is on. The store reads it when it opens that tier, and writes it, but does not interpret it.
 *
 * store_digests() appends its bytes, at most 64 KiB. It waits until the tier was opened, or the deadline
 * (CLOCK_MONOTONIC, ns; 0: not at all). Nothing is appended where there is no file or no such tier, or the tier is not
 * open. store_keep_digests() replaces the file, on the tier's saver, unless another process owns the folder; one thread
 * at a time calls it. */
void store_digests(struct store *store, int64_t deadline, struct buf *out);
void store_keep_digests(struct store *store, const struct buf *digests);

/* ---- Lookups ---- */

/* The result of a lookup. Holds pins: the slabs it found stay as long as it does. Belongs to one thread at a time. */
struct store_hit;

struct store_query {
    const struct store_user *user;
    const struct identity *identity; /* copied. NULL: the user's */
    const int32_t *tokens;
    int32_t n;                         /* how many of them may be reused */
    const struct slab_key *parent_key; /* a hint, or NULL */
    int64_t deadline;    /* until when a scan that has just begun is waited for (CLOCK_MONOTONIC, ns); 0: not at all */
    int64_t probe_until; /* until when store_probe() waits, if that is before the server's time-outs; 0: these alone */
};

/* Whether the parent that the query names may be among the saves that were queued at the first such call, which has a
 * ticket of 0. True: the waiter (of which only wake() is called) is woken when a save ends, and asks again with the
 * same ticket. False for a key that nobody is saving, and for a tier that hangs. */
bool store_parent_is_coming(struct store *store, const struct store_query *query, const struct store_user *waiter,
                            uint64_t *ticket);

/* Looks up the query in every tier. Never NULL: a hit may have found nothing. Counts nothing yet. */
struct store_hit *store_find(struct store *store, const struct store_query *query);

/* Asks the tier on a server what it has of the query, where the other tiers lack a block of it: store_find() finds that
 * afterwards. Waits for the answers, up to three, for the server's time-out each; a server that did not answer within
 * that is not asked until it does again. Not for the threads of engines and HTTP. */
void store_probe(struct store *store, const struct store_query *query);

/* Looks up these tokens (the same, or more of them) again, to find what was saved meanwhile. Cheap if nothing was. Not
 * once it fetches. */
void store_find_again(struct store_hit *hit, const int32_t *tokens, int32_t n);
void store_hit_close(struct store_hit *hit); /* NULL is fine; ends its fetch */

int32_t store_hit_tokens(const struct store_hit *hit);  /* leading tokens that can be reused */
int32_t store_hit_covered(const struct store_hit *hit); /* leading tokens whose rows are in the tier of saves already */
enum store_tier store_hit_tier(const struct store_hit *hit);

/* Chooses the tier from which the hit is fetched where several have some of the query. It is the one that costs least
 * to read, together with computing what it lacks, at token_ns each. 0: unknown, and the longest prefix is taken. Not
 * once it fetches. */
void store_choose_tier(struct store_hit *hit, double token_ns);

/* The reusable tokens of one tier; and the key of what was found there (false: nothing), for reports. */
int32_t store_hit_tokens_in(const struct store_hit *hit, enum store_tier tier);
bool store_hit_key(const struct store_hit *hit, enum store_tier tier, struct slab_key *key);

/* Leading tokens in common with the stored list that has most, reusable or not; `tier`: where, if there are any. */
int32_t store_hit_common(const struct store_hit *hit, enum store_tier *tier);

/* Notes the divergence from the stored list that has most tokens in common with the query's, if that is more than what
 * is noted; `tier`: where it is. Returns whether it is. Counts as no use, and changes no counter. */
bool store_note_divergence(struct store *store, const struct store_query *query, struct divergence *divergence,
                           enum store_tier *tier);

/* How many of the query's tokens the longest beginning of a stored list has, whether its rows can be reused or not.
 * store_ways_on() looks at the lists that begin with all of the query's tokens. For each way in which they go on, it
 * appends the next tokens, as far as its lists have them in common, to one of the `max` lists. It returns how many
 * ways. Both count as no use; neither asks a server or waits for a scan, as store_find() does: store_wait_scan(). */
int32_t store_common(struct store *store, const struct store_query *query);
size_t store_ways_on(struct store *store, const struct store_query *query, struct tokens *ways, size_t max);
void store_wait_scan(struct store *store, int64_t deadline);

/* Predicts how long it takes to fetch the tokens [from, to) of the hit, in ns, from recent reads of its tier. */
double store_hit_read_ns(const struct store_hit *hit, int32_t from, int32_t to);

/* Updates the counters of hits and misses, once a request. `used`: tokens that were reused from the hit; 0: none. */
void store_hit_count(struct store_hit *hit, int32_t used);

/* ---- Fetching ---- */

/* Begins to read the first n tokens (at most store_hit_tokens()) into memory, in order, up to 256 MiB ahead of what was
 * consumed. Two hits that fetch the same slab read it once. */
void store_fetch(struct store_hit *hit, int32_t n);
bool store_is_fetching(const struct store_hit *hit);

/* The rows of the first n tokens are not needed any more: slabs with no other rows are neither read nor returned. */
void store_skip(struct store_hit *hit, int32_t n);

enum store_next {
    STORE_PIECE,   /* `piece` is the next one, valid until the next call */
    STORE_PENDING, /* not loaded yet: the user will be woken */
    STORE_END,     /* there are no more */
    STORE_LOST     /* damaged, gone or given up, with all that follow: earlier pieces are good */
};

/* Returns the next piece, in order: rows from the first token on (in one piece, where they cannot be appended), then
 * the recurrent/SWA state. */
enum store_next store_next_piece(struct store_hit *hit, struct store_piece *piece);

/* ---- Saving ---- */

/* KV rows, or recurrent/SWA state, that the user has copied out. */
struct store_save {
    const struct store_user *user;
    const struct identity *identity; /* copied. NULL: the user's */
    enum slab_kind kind;
    enum slab_reason reason;
    const int32_t *tokens; /* [0, to): copied */
    int32_t from, to;      /* rows of these tokens; of a STATE, `to` is its position */
    void *raw;             /* from store_buffer(); owned by the store from the call on, whatever is returned */
    size_t size;
    bool last;        /* the last save of its event (cold, finish …), which is counted */
    bool synchronous; /* may exceed the backlog: its caller waits for it */
};

/* Memory to copy a save out to, from malloc or a pool. NULL: there is none. A caller that does not save it frees it. */
void *store_buffer(struct store *store, size_t size);

/* Announces store_buffer() calls of that size. */
void store_expect(struct store *store, size_t size);

/* Queues a save. Returns a ticket for store_wait(). 0: the backlog is full (the user is woken when there is room again)
 * or the tier is off; then nothing is saved, and saves_dropped is counted. Stored tokens are not written again. */
uint64_t store_save(struct store *store, const struct store_save *save);

/* Whether the tier of saves accepts saves; if not, nothing should be copied out. */
bool store_is_on(struct store *store);

/* Whether a save of `size` bytes would be queued now. If not, the user is woken when there is room again, or the tier
 * of saves is back. */
bool store_has_room(struct store *store, const struct store_user *user, size_t size);

/* Whether every save up to the ticket is durable or has failed. False: the user is woken when a save ends. */
bool store_is_done(struct store *store, const struct store_user *user, uint64_t ticket);

/* Waits until every save up to the ticket is durable or has failed, or the deadline (CLOCK_MONOTONIC, ns). False: the
 * deadline. */
bool store_wait(struct store *store, uint64_t ticket, int64_t deadline);

/* Waits until a server has got its part of the saves so far, or the deadline (CLOCK_MONOTONIC, ns). All such waits
 * together take no longer than was allowed once: only a process that ends waits for a server. 0 until then. */
void store_allow_upload_wait(struct store *store, int64_t ns);
void store_wait_for_uploads(struct store *store, int64_t deadline);

/* Leading tokens whose rows are in the tier of saves now, as store_hit_covered(): compares tokens with the index and
 * hashes none, in some microseconds. */
int32_t store_covered(struct store *store, const struct store_query *query);

/* The position from which on the rows of the query behind `from` should be saved. A server gets whole blocks alone. So
 * where it lacks the block in whose middle `from` is, and the query has all of it or ends with a state, it is that
 * block's beginning. As cheap. */
int32_t store_block_start(struct store *store, const struct store_query *query, int32_t from);

/* Whether the recurrent/SWA state after exactly query->n tokens is stored, with its rows. As cheap. */
bool store_has_state(struct store *store, const struct store_query *query);

/* Predicts how long it takes to fetch the last n_tokens of the query from the tier of saves, in ns, from its recent
 * reads. Negative: not all of the query is stored there. As cheap. */
double store_read_back_ns(struct store *store, const struct store_query *query, int32_t n_tokens);

/* Bytes that the tier of saves may hold. */
uint64_t store_save_quota(const struct store *store);

/* Counts a save that its user dropped before it was queued. */
void store_count_dropped(struct store *store);

/* How many leading tokens of the query the tier of saves has now, and the key of the slab with the last of them. As
 * cheap. */
int32_t store_covered_key(struct store *store, const struct store_query *query, struct slab_key *key);

/* ---- Stored conversations ---- */

/* A conversation that is stored in a tier, or a branch of one: a list of tokens which no other goes on from. */
struct store_conversation {
    enum store_tier tier;
    struct slab_key key;          /* of its last slab: a name that no other in the tier has */
    char model[STORE_MODEL_NAME]; /* "": of no model that store_name_model() was called for */
    int32_t tokens;
    int32_t own_tokens; /* the last of them, in slabs that no other conversation has */
    uint64_t own_bytes; /* of those slabs */
    int32_t marked;     /* leading tokens that the marks say somebody has; 0: none */
    bool kept;
    int64_t used;    /* orders uses, newest last */
    int64_t used_ms; /* since 1970 */
};

struct store_page {
    const struct store_conversation *after; /* only those behind it (tier, key, used); NULL: from the newest on */
    const struct stored_mark *marks;        /* from store_covered_key() */
    size_t n_marks;
};

/* Fills up to `max` conversations of all tiers, newest first; returns how many. `total`: of all. It looks at every
 * entry of the indexes, at some hundreds at a time, and reads nothing. */
size_t store_conversations(struct store *store, const struct store_page *page, struct store_conversation *out,
                           size_t max, size_t *total);

enum store_order {
    STORE_KEEP,    /* it is not evicted, nor what goes on from it; at most a quarter of the quota can be kept */
    STORE_RELEASE, /* it may be evicted again */
    STORE_DROP     /* those of its slabs that no other conversation has are removed */
};

struct store_ordered {
    enum store_tier tier;
    struct slab_key key;
    enum store_order order;
    /* Called once, on any thread, before store_order() returns or later: `error` is NULL, or says why nothing was done.
     */
    void (*done)(void *ud, const hearth_error *error);
    void *ud;
};

/* The tier's saver removes what is dropped; the rest happens at once. A tier on a server refuses all orders. */
void store_order(struct store *store, const struct store_ordered *ordered);

/* Ends all orders that wait, and refuses those that come: none calls done() any more. */
void store_end_orders(struct store *store);
/* ---- Following ---- */

/* The index of a tier, for one who follows what it holds (store/index/index.h, Following) until the store is closed;
 * NULL: the tier is off. */
struct index;
struct index *store_tier_index(struct store *store, enum store_tier tier);

/* ---- Numbers ---- */

struct store_stats {
    metric_value hits_exact, hits_resume, hits_longest_prefix, misses;
    metric_value saves[SLAB_FINISH + 1]; /* by reason */
    metric_value saves_dropped, duplicate_dropped, corrupt_files, longest_prefix_probes;
    metric_value pack_ns, load_ns; /* time of the store's threads: cutting and encoding; reading and checking */
    metric_value written_bytes, read_bytes, backlog_bytes;
    metric_value probes, probes_failed;           /* of servers, with all keys of a prompt at once */
    metric_value uploaded_bytes, uploads_dropped; /* to servers; saves of which they did not get all blocks */
};

const struct store_stats *store_stats(const struct store *store);

struct store_tier_status {
    uint64_t entries, bytes, quota, evictions;
    bool on;
    char trouble[160]; /* why it is off, or the last failure; "": none */
};

void store_tier_status(struct store *store, enum store_tier tier, struct store_tier_status *out);

#endif
