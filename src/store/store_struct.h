/* The store as its files see it.
 *
 * One mutex guards everything here, in tiers, savers, fetchers and hits that changes. It is never held during I/O,
 * hashing, or a user's functions. Lock order: this mutex, then an index's own. The index guards its entries, but for
 * their `user`, which this mutex guards. */
#ifndef STORE_STORE_STRUCT_H
#define STORE_STORE_STRUCT_H

#include "base/hash_table.h"
#include "store/backends/backend.h"
#include "store/backends/read_cost.h"
#include "store/index/index.h"
#include "store/store.h"

#include <pthread.h>
#include <stdatomic.h>

#define LOG_GROUP "store"

struct store;
struct tier;

/* ---- Calls of backends ---- */

/* The current call of the backend by a thread of the tier, for the watchdog. */
struct worker {
    int64_t since, limit; /* CLOCK_MONOTONIC, ns: when the call began, when it counts as hung; since 0: no call */
};

/* Around every call of the backend: the watchdog notices one that takes longer than the limit. */
void tier_begin_call(struct tier *tier, struct worker *worker, int64_t limit_ns);
void tier_end_call(struct tier *tier, struct worker *worker);

void *watchdog_main(void *store);

/* ---- Saves: bytes that users copied out, in the queue of a tier's saver thread ---- */

enum { POOLED_BUFFERS = 16 };

/* How long a server that refused a slab gets no other; doubled each time. */
#define UPLOAD_BACK_OFF_FIRST_NS ((int64_t)1000000000)

/* Cells that a user copied out, for all tiers that they are saved to. */
struct raw_bytes {
    void *v;
    size_t size;
    int refs; /* jobs; guarded */
};

struct save_job {
    struct save_job *next;
    uint64_t ticket;
    const struct store_user *user; /* NULL: it was removed, and its codec may not be called any more; guarded */
    struct store_codec codec;
    struct identity identity;
    enum slab_kind kind;
    enum slab_reason reason;
    struct tokens tokens; /* [0, to) */
    int32_t from, to;
    struct raw_bytes *raw;
    bool last;
    bool retried;
};

struct saver {
    struct worker worker;
    pthread_cond_t work;
    struct save_job *first, **end;
    struct save_job *current;
    bool ended;
    uint64_t last_ticket, done;        /* saves are finished in the order of their tickets */
    uint64_t backlog;                  /* bytes of queued saves and the current one */
    const struct store_user **waiters; /* users to wake when a save ends */
    size_t n_waiters, waiters_cap;
};

/* Writes what of it is not stored yet, on the tier's saver thread. False: the backend is gone, and the job should be
 * retried once it is back. */
bool save_job_write(struct store *store, struct tier *tier, const struct save_job *job);

void *saver_main(void *tier);

/* With the mutex: whether the store closes, and no job may begin any more. */
bool saver_is_over(const struct tier *tier);

/* With the mutex: has the user woken when a save ends or the tier goes out of service. */
void saver_add_waiter(struct saver *saver, const struct store_user *user);

/* With the mutex: moves the list of waiting users out, each after user_call_begin(), for users_wake(). */
size_t saver_collect_waiters(struct tier *tier, const struct store_user ***users);

/* A pool of memory that saves are copied out to. */
struct buffers {
    size_t wanted; /* bytes of a buffer that the saver should add; 0: none */
    void *pool[POOLED_BUFFERS];
    size_t n, bytes;
};

/* ---- Fetches: hits, the slabs in memory that they share, and the threads that read them ---- */

enum { FETCHERS = 2 };

/* ---- Slabs in memory ---- */

/* The slab of an entry that hits use, once for all of them: the entry's `user`. Guarded by the mutex, but for the
 * bytes, which do not change once loaded. */
struct loaded_slab {
    enum { LOAD_NONE, LOAD_RUNNING, LOAD_DONE, LOAD_FAILED } state;
    int refs; /* parts of hits, and the fetcher that reads it */
    struct slab_bytes *bytes;
    const void *payload;
    size_t size;              /* of the payload */
    struct loaded_slab *next; /* in the list of those to be freed once the mutex is released */
};

/* unref() puts one without references on the list of garbage, which is freed without the mutex. */
struct loaded_slab *loaded_slab_ref(struct entry *entry);
void loaded_slab_unref(struct entry *entry, struct loaded_slab *loaded, struct loaded_slab **garbage);
void loaded_slabs_free(struct loaded_slab *first);
void loaded_slab_free(void *loaded); /* free_user of an index */

/* ---- Hits ---- */

/* One slab of a fetch: its rows [from, to), or its recurrent/SWA state. */
struct part {
    struct entry *entry;
    struct loaded_slab *loaded; /* NULL before it is requested and after it was consumed */
    int32_t from, to;
};

enum join { JOIN_NONE, JOIN_WANTED, JOIN_RUNNING, JOIN_DONE, JOIN_TAKEN };

struct store_hit {
    struct store *store;
    const struct store_user *user;
    struct identity identity;
    struct tokens tokens;
    struct slab_key parent_key;
    bool has_parent_key;
    bool searched[STORE_TIERS];
    struct match matches[STORE_TIERS];
    enum store_tier tier;
    int32_t n;
    bool fetching;
    /* guarded by the mutex once it fetches: */
    struct part *parts;
    size_t n_parts, n_rows; /* all; those of rows, which come first */
    size_t next, requested; /* the next for the user; the first that is not requested yet */
    struct part *held;      /* the user reads its bytes */
    enum join join;
    struct buf joined;
    bool lost, waiting, closed;
    int64_t progress_at; /* when a slab last came for it */
    struct store_hit *next_hit;
};

void hit_release(struct store_hit *hit);

/* ---- The threads ---- */

/* A use of a slab, to be written to the backend. Notes are written in the order of the uses. */
struct use_note {
    struct slab_name name; /* no pin: where the slab is evicted meanwhile, the note is dropped */
    uint32_t hits;
    int64_t used_ms;
};

enum { MOST_USE_NOTES = 256 };

struct fetcher {
    struct worker workers[FETCHERS];
    size_t n_workers;
    pthread_cond_t work;
    struct use_note notes[MOST_USE_NOTES]; /* a ring from `first_note` on; when full, the oldest is dropped */
    size_t first_note, n_notes;
    bool noting;               /* one is being written: the next waits, so that none overtakes another */
    struct store_hit *hits;    /* that fetch, the one served least recently first */
    uint64_t read_ahead_bytes; /* of slabs that are requested and not yet consumed */
};

void *fetcher_main(void *tier);

/* With the mutex: gives up the hits that fetch from the tier and got nothing within the time-out, or (`all`) all of
 * them. Returns users to wake, each after user_call_begin(). `next` becomes the earliest time-out of the others, if
 * that is sooner. */
size_t fetcher_give_up(struct tier *tier, int64_t now, bool all, const struct store_user ***users, int64_t *next);

/* ---- Tiers ---- */

/* After what time a tier that cannot be opened is tried again, at first and at most. */
#define BACK_OFF_FIRST_NS  ((int64_t)1000000000)
#define OPEN_RETRY_MOST_NS (60 * BACK_OFF_FIRST_NS)

/* An order to drop a conversation, on its way through the saver. */
struct drop_order {
    struct drop_order *next;
    struct store_ordered ordered;
};

struct damaged_slab {
    struct slab_name name;
    struct damaged_slab *next;
};

struct removed_slab {
    struct hash_link link;
    struct slab_name name;
};

enum tier_state {
    TIER_OFF,     /* no quota */
    TIER_OPENING, /* being opened for the first time: saves are queued */
    TIER_OPEN,    /* lookups find what is indexed, also while a scan is under way */
    TIER_SHARED,  /* another process owns it: read, not written; opening it is retried */
    TIER_LOST     /* it could not be opened, or the backend is gone; opening it is retried */
};

struct tier {
    struct store *store;
    enum store_tier id;
    uint64_t quota;
    struct index *index;     /* NULL: off */
    struct backend *backend; /* NULL: off */
    struct saver saver;
    struct fetcher fetcher;
    struct worker supervisor;
    struct read_cost read_cost;     /* guarded */
    pthread_cond_t supervisor_work; /* signalled when the supervisor has something to do */
    /* Written with the mutex; lookups read them without. */
    _Atomic enum tier_state state;
    _Atomic bool stalled; /* a call of its backend hangs: the tier is out of service until that returns */
    _Atomic bool settled; /* it was scanned once, or could not be opened at first */
    /* Guarded by the mutex: */
    int64_t began; /* when it was opened for the first time */
    int64_t open_at, scan_at,
        retry_at;       /* when the supervisor opens, scans, retries unreadable entries; CLOCK_NEVER: not at all */
    int64_t measure_at; /* when it measures what a read costs again; 0: it does not */
    int64_t back_off, scan_back_off; /* ns until it is opened, and scanned, again after the next failure */
    int64_t opened_at,
        reopen_after; /* when it last opened; ns until it is opened again after the next loss; 0: at once */
    bool puts_fail;   /* the last put() failed; the saver's own */
    int64_t uploads_at,
        upload_back_off; /* of a server: nothing is put before; ns until the next attempt. The saver's */
    bool to_trim;        /* it may hold more than its quota */
    char trouble[160];
    struct victim *damaged;            /* dropped entries whose damaged slabs the saver is to quarantine */
    struct damaged_slab *scan_damaged; /* damaged slabs that a scan found, to be quarantined as well */
    bool scanning, is_removing;
    struct slab_name removing; /* that the saver is removing; the index knows it until that is done */
    struct hash_table removed; /* of struct removed_slab: those removed while the tier is scanned */
    struct buf digests;        /* as in the backend, or as the saver is to write them */
    bool digests_changed;
    struct drop_order *drops, **drops_end; /* that wait */
    struct drop_order *dropping;           /* that the saver carries out; NULL: none, or it was ended meanwhile */
    size_t until_check;                    /* unlocks of the mutex that are left until tier_check() */
};

int tier_open(struct store *store, enum store_tier id,
              hearth_error *error); /* fails only where a thread cannot be started */
void tier_close(struct tier *tier);

/* Whether lookups and fetches use the tier (called without the mutex); whether saves are queued for it (with the
 * mutex). */
bool tier_serves(const struct tier *tier);
bool tier_takes_saves(const struct tier *tier);

/* Whether others put slabs there as well (backend.h). False where it is off. */
bool tier_is_shared(const struct tier *tier);

/* The backend is gone: has the supervisor open it again. With the mutex. */
void tier_mark_lost(struct tier *tier, const char *why);

/* The same without the mutex, with a line in the log. */
void tier_lose(struct tier *tier, const char *why);

/* Reserves bytes for a slab, and removes the victims. 0, HEARTH_BUSY (`reserved` says why), or the backend's error. */
int tier_reserve(struct tier *tier, struct reserve *what, struct reservation **reservation, enum reserved *reserved,
                 hearth_error *error);

/* A slab of the model was stored: writes the model's name beside it, once. On the saver's thread. */
void tier_write_model_name(struct tier *tier, const uint8_t model[SHA256_BYTES]);

/* The tier that keeps the known digests; NULL: none. */
struct tier *tier_of_digests(struct store *store);

/* The backend was opened: reads the known digests. On the supervisor's thread. */
void tier_read_digests(struct tier *tier, struct buf *digests);

/* Writes them. On the saver's thread. */
void tier_write_digests(struct tier *tier);

/* Removes the slabs of victims, which have left the index. A slab that cannot be removed is an entry again, and so are
 * the victims after it, which may be its parents. On the saver's thread. */
int tier_remove(struct tier *tier, struct victim *victim, hearth_error *error);

/* With the mutex: takes the next order to drop one; NULL: there is none. tier_carry_out(), without the mutex, on the
 * saver's thread, carries it out and frees it. */
struct drop_order *tier_next_drop(struct tier *tier);
void tier_carry_out(struct tier *tier, struct drop_order *drop);

/* Evicts what exceeds the quota. On the saver's thread. */
void tier_trim(struct tier *tier);

/* Quarantines damaged slabs. On the saver's thread. */
void tier_quarantine_damaged(struct tier *tier);

/* The entry's slab cannot be used: drops the entry, and detaches its descendants. `damaged`: the slab is still there.
 */
void tier_drop(struct tier *tier, struct entry *entry, bool damaged);

/* Frees these lists of slabs that were to be quarantined; their files stay where they are. */
void tier_forget_damaged(struct tier *tier, struct victim *victims, struct damaged_slab *found);

/* Around a scan, whose results may be of slabs that are removed meanwhile. */
void tier_begin_scan(struct tier *tier);
void tier_end_scan(struct tier *tier);

/* With the mutex: whether the saver has removed the slab, or is about to, since the scan that is under way has begun.
 */
bool tier_was_removed(const struct tier *tier, const struct slab_name *name);

/* Keeps the message of a save that failed; NULL: one succeeded. Logs each change between the two. */
void tier_report_trouble(struct tier *tier, const char *message);

/* A range of blocks of some tokens: [first, last), in strides. */
struct block_range {
    const struct identity *identity;
    const int32_t *tokens;
    const struct slab_key *keys; /* of the prefixes at multiples of the stride, up to `last` */
    int32_t first, last;
    int64_t until; /* what is asked of a server is not waited for longer (CLOCK_MONOTONIC, ns); 0: its time-out alone */
};

/* Asks a shared tier which of the slabs it has. Does not wait longer than the server's time-out, or `until` (as above).
 * 0, or the backend's error; then the tier is lost, unless it had less than the time-out. */
int tier_ask(struct tier *tier, const struct slab_name *names, size_t n, struct backend_probed *probed, int64_t until);

/* The same of blocks: fills in `probed`, indexes those that it has and drops the others from the index. */
int tier_probe(struct tier *tier, const struct block_range *range, struct backend_probed *probed);

/* Indexes a slab that the server has. */
void tier_adopt(struct tier *tier, const struct slab_head *head, uint64_t size);

/* The key of the prefix before the block: of no tokens before the first. `keys`: of the prefixes at strides. */
struct slab_key key_before_block(const struct block_range *range, int32_t block);

void *supervisor_main(void *tier);

/* ---- The store ---- */

/* Of each tier a saver and a supervisor beside its fetchers, and the watchdog. */
enum { STORE_THREADS = STORE_TIERS * (FETCHERS + 2) + 1 };

/* A model's name. Guarded by the mutex; entries of the list never change or leave. */
struct model_name {
    uint8_t model[SHA256_BYTES];
    char name[STORE_MODEL_NAME];
    bool written[STORE_TIERS];
    struct model_name *next;
};

struct store {
    struct store_params params;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* a save ended, a tier settled, a user's call ended, a thread ended */
    struct tier tiers[STORE_TIERS];
    struct buffers buffers;
    pthread_cond_t watch; /* wakes the watchdog */
    int64_t watch_until;  /* the watchdog sleeps until then */
    struct store_thread {
        pthread_t id;
        bool ended; /* but for what its end itself does */
    } threads[STORE_THREADS];
    size_t n_threads, n_running;
    _Atomic bool closing;           /* store_close() was called: no more saves, nothing new begins */
    int64_t close_by;               /* queued saves, but no uploads, are still written until then */
    int64_t upload_wait_ns;         /* how long store_wait_for_uploads() may still wait, in all */
    bool abandoned;                 /* store_close() has returned: the last thread frees the store */
    const struct store_user **busy; /* users whose functions are running */
    size_t n_busy, busy_cap;
    size_t n_answering; /* orders whose done() is being called */
    bool orders_ended;
    struct model_name *names;
    struct store_stats stats;
};

/* With the mutex: the model's name; NULL: not known. Valid as long as the store. */
const char *store_model_name(const struct store *store, const uint8_t model[SHA256_BYTES]);

static inline void store_lock(struct store *store)
{
    pthread_mutex_lock(&store->mutex);
}

/* With the mutex, in builds with assertions: tier_check() asserts what always holds of a tier that is on, and returns
 * how much there was to look at. Releasing the mutex does so for each, the more seldom the more there is. */
#ifdef NDEBUG
static inline void store_check_some(struct store *store)
{
    (void)store;
}
#else
size_t tier_check(const struct tier *tier);
void store_check_some(struct store *store);
#endif

static inline void store_unlock(struct store *store)
{
    store_check_some(store);
    pthread_mutex_unlock(&store->mutex);
}

/* The tier on a server that is reached; NULL: there is none now. */
struct tier *shared_tier(struct store *store);

/* That tier, or the one that is being opened for the first time, for which uploads are queued. */
struct tier *upload_tier(struct store *store);

static inline struct tier *save_tier(struct store *store)
{
    return &store->tiers[store->params.save_tier];
}

/* Starts a thread, which calls store_end_thread() last. The last thread of an abandoned store frees it. */
int store_begin_thread(struct store *store, void *(*main)(void *), void *ud, hearth_error *error);
void store_end_thread(struct store *store);

/* Waits for `changed`, with the mutex. False: the deadline (CLOCK_MONOTONIC, ns) has passed. */
bool store_wait_changed(struct store *store, int64_t deadline);

/* Around every call of a user's functions, with the mutex: store_remove_user() waits for their end. */
void user_call_begin(struct store *store, const struct store_user *user);
void user_call_end(struct store *store, const struct store_user *user);

/* Wakes the users without the mutex, ends their user_call_begin(), and frees the list. */
void users_wake(struct store *store, const struct store_user **users, size_t n);

#endif
