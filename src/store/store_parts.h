/* What the files of the store share: store.c (life, users, numbers), tier.c (one tier: its state, its room),
 * supervisor.c (the thread that opens a tier, looks through it, and gets it back), watchdog.c (what does not answer),
 * saver.c and write.c (saves), buffers.c (memory for them), hit.c (lookups), fetcher.c and image.c (reading).
 *
 * One mutex guards all that changes here, and is never held during I/O, hashing, or a user's functions. Order of locks:
 * it, then an index's own. What an index holds is the index's; of an entry, `user` alone is guarded by this mutex. */
#ifndef STORE_STORE_PARTS_H
#define STORE_STORE_PARTS_H

#include "store/backend.h"
#include "store/index.h"
#include "store/read_cost.h"
#include "store/store.h"

#include <pthread.h>
#include <stdatomic.h>

#define LOG_GROUP "store"

enum { FETCHERS = 2, POOLED_BUFFERS = 16 };

/* ---- A slab in memory ---- */

/* Of an entry that hits use. Guarded by the mutex, but for the bytes, which do not change once it is there. */
struct image {
    enum { IMAGE_ABSENT, IMAGE_LOADING, IMAGE_THERE, IMAGE_LOST } state;
    int users; /* parts of hits, and the fetcher that reads it */
    struct slab_bytes *bytes;
    const void *payload;
    size_t size;        /* of the payload */
    struct image *next; /* among those to be freed when the mutex has been given back */
};

struct image *image_use(struct entry *entry);
void image_drop(struct entry *entry, struct image *image, struct image **garbage);
void images_free(struct image *first);
void image_free(void *image); /* free_user of an index */

/* ---- Saves ---- */

struct job {
    struct job *next;
    uint64_t ticket;
    const struct store_user *user; /* NULL: it has left, and its codec may not be called any more; guarded */
    struct store_codec codec;
    struct identity identity;
    enum slab_kind kind;
    enum slab_reason reason;
    struct tokens tokens; /* [0, to) */
    int32_t from, to;
    void *raw;
    size_t size;
    bool last;
    bool retried;
};

struct tier;

/* Carries it out, on the tier's saver. False: the backend is gone, and it is worth another try when that is back. */
bool job_write(struct store *store, struct tier *tier, const struct job *job);

/* ---- Tiers ---- */

/* A thread of a tier, while it is in a call of the backend. */
struct worker {
    int64_t since, limit; /* CLOCK_MONOTONIC, ns: when it began, when it counts as hung; since 0: in none */
};

struct saver {
    struct worker worker;
    pthread_cond_t work;
    struct job *first, **end;
    struct job *current;
    bool ended;
    uint64_t last_ticket, done;        /* saves are finished in the order of their tickets */
    uint64_t backlog;                  /* bytes of queued saves and the current one */
    const struct store_user **waiting; /* for the next save that ends */
    size_t n_waiting, waiting_cap;
};

/* That a slab was used: to be written to the backend, in the order of the uses. */
struct note {
    struct slab_name name; /* holds on to nothing: it is no loss where the slab goes meanwhile */
    uint32_t hits;
    int64_t used_ms;
};

enum { NOTES = 256 };

struct fetcher {
    struct worker workers[FETCHERS];
    size_t n_workers;
    pthread_cond_t work;
    struct note notes[NOTES]; /* a ring, from `first_note` on: the oldest goes when it is full */
    size_t first_note, n_notes;
    bool noting;            /* a worker writes one: the next waits for it, so that none overtakes another */
    struct store_hit *hits; /* that fetch, the one served longest ago first */
    uint64_t ahead_bytes;   /* of slabs that hits want and have not taken */
};

struct found {
    struct slab_name name;
    struct found *next;
};

enum tier_state {
    TIER_OFF,     /* it has no quota */
    TIER_OPENING, /* for the first time: saves are queued */
    TIER_OPEN,    /* lookups find what is known of it, also while it is looked through */
    TIER_SHARED,  /* another process has it: lookups find what that had stored, nothing is saved; tried again */
    TIER_LOST     /* it could not be opened, or was lost: tried again */
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
    struct read_cost price; /* of reading; guarded */
    pthread_cond_t attend;  /* the supervisor has something to do */
    /* Written with the mutex; lookups read them without. */
    _Atomic enum tier_state state;
    _Atomic bool stalled; /* a call of its backend hangs: set aside until that returns */
    _Atomic bool settled; /* it has been looked through once, or could not be opened at first */
    /* Guarded by the mutex: */
    int64_t began;                          /* when it was opened for the first time */
    int64_t open_at, scan_at, take_back_at; /* what the supervisor does next, and when; CLOCK_NEVER: not at all */
    int64_t back_off;                       /* ns */
    bool puts_fail;                         /* the last one did; the saver's own */
    bool to_trim;                           /* it may hold more than its quota */
    char trouble[160];
    struct victim *damaged; /* their slabs are still there; the saver sets them aside */
    struct found *found;    /* so are those of damaged slabs that a scan found */
};

int tier_open(struct store *store, enum store_tier id, hearth_error *error); /* fails for want of a thread alone */
void tier_close(struct tier *tier);

/* Whether lookups and fetches ask it; without the mutex. And whether saves go to it; with the mutex. */
bool tier_serves(const struct tier *tier);
bool tier_takes_saves(const struct tier *tier);

/* Around every call of the backend: one that takes longer than the limit is noticed by the watchdog. */
void tier_begin_call(struct tier *tier, struct worker *worker, int64_t limit_ns);
void tier_end_call(struct tier *tier, struct worker *worker);

/* The backend is gone: it is opened again. With the mutex. */
void tier_lose(struct tier *tier, const char *why);

/* Sets aside bytes for a slab, and makes the room. 0, HEARTH_BUSY (`reserved` says why), or what the backend says. */
int tier_reserve(struct tier *tier, struct reserve *what, struct reservation **reservation, enum reserved *reserved,
                 hearth_error *error);

/* A slab of the model was stored: its name, if it has one, is to be beside it. On the saver's thread. */
void tier_note_model(struct tier *tier, const uint8_t model[SHA256_BYTES]);

/* After a slab was written beyond the quota. */
void tier_trim(struct tier *tier);

/* Sets damaged slabs aside. On the saver's thread. */
void tier_tidy(struct tier *tier);

/* The entry's slab cannot be used: it leaves; what hangs on it stays, detached. `damaged`: its bytes are still there.
 */
void tier_drop(struct tier *tier, struct entry *entry, bool damaged);

/* What went wrong, and (NULL) that it goes well again. Logged when it changes from one to the other. */
void tier_trouble(struct tier *tier, const char *message);

void *supervisor_main(void *tier);
void *saver_main(void *tier);
void *fetcher_main(void *tier);

void saver_init(struct saver *saver);
void saver_release(struct saver *saver);
void fetcher_init(struct fetcher *fetcher);
void fetcher_release(struct fetcher *fetcher);

/* With the mutex: the user is woken when a save has ended, or the tier is set aside. */
void saver_note_waiting(struct saver *saver, const struct store_user *user);

/* With the mutex: users that wait for saves of the tier are to look again; each is entered. */
size_t saver_take_waiting(struct tier *tier, const struct store_user ***users);

/* With the mutex: hits that fetch from the tier and have got nothing for too long, or (`all`) all of them, are lost;
 * returns users to wake, each entered. `next`: the earliest time at which that is to be asked again. */
size_t fetcher_give_up(struct tier *tier, int64_t now, bool all, const struct store_user ***users, int64_t *next);

/* ---- Hits ---- */

/* One slab of a fetch: the rows [from, to) of it, or the state. */
struct part {
    struct entry *entry;
    struct image *image; /* NULL before it is wanted and after it was taken */
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
    size_t n_parts, n_rows; /* all, and those that are rows */
    size_t next, ahead;     /* the next to be taken; the first that is not wanted yet */
    struct part *held;      /* the user looks at its bytes */
    enum join join;
    struct buf joined;
    bool lost, waiting, closed;
    int64_t progress_at; /* when something last came for it */
    struct store_hit *next_hit;
};

void hit_release(struct store_hit *hit);

/* ---- The store ---- */

/* Memory to copy saves out to; see buffers.c. */
struct buffers {
    size_t wanted; /* a buffer of that size should be had; 0: none */
    void *pool[POOLED_BUFFERS];
    size_t n, bytes;
};

void buffers_give_back(struct store *store, void *buffer);
void buffers_make_wanted(struct store *store); /* on the saver's thread */
void buffers_release(struct buffers *buffers);

/* What a model is called. Guarded by the mutex; once in the list it stays, and its name with it. */
struct model_name {
    uint8_t model[SHA256_BYTES];
    char name[STORE_MODEL_NAME];
    bool written[STORE_TIERS];
    struct model_name *next;
};

struct store {
    struct store_params params;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* a save was finished, a tier settled, a user was let go, a thread ended */
    struct tier tiers[STORE_TIERS];
    struct buffers buffers;
    pthread_cond_t watch; /* the watchdog's */
    int64_t watch_until;  /* it sleeps until then */
    size_t n_threads;
    _Atomic bool closing;           /* no more saves, nothing new is begun */
    int64_t close_by;               /* what is queued is still saved until then */
    bool abandoned;                 /* store_close() has returned: the last thread frees the store */
    const struct store_user **busy; /* users whose functions are running */
    size_t n_busy, busy_cap;
    struct model_name *names;
    struct store_stats stats;
};

/* What the model is called, where that is to be written in the tier, which it is only once; else NULL. */
const char *store_unwritten_name(struct store *store, const uint8_t model[SHA256_BYTES], enum store_tier tier);

void *watchdog_main(void *store);

static inline void store_lock(struct store *store)
{
    pthread_mutex_lock(&store->mutex);
}

static inline void store_unlock(struct store *store)
{
    pthread_mutex_unlock(&store->mutex);
}

static inline struct tier *save_tier(struct store *store)
{
    return &store->tiers[store->params.save_tier];
}

/* A thread of the store's own: counted until it calls store_end_thread(), the last thing it does. */
int store_begin_thread(struct store *store, void *(*main)(void *), void *ud, hearth_error *error);
void store_end_thread(struct store *store);

/* Waits for `changed`, with the mutex. False: the deadline has passed. */
bool store_wait_changed(struct store *store, int64_t deadline);

/* Marks around calls of a user's functions, with the mutex: store_remove_user() waits for them. */
void user_enter(struct store *store, const struct store_user *user);
void user_leave(struct store *store, const struct store_user *user);

/* Wakes them, without the mutex, and frees the list; each has been entered, and is let go here. */
void users_wake(struct store *store, const struct store_user **users, size_t n);

#endif
