/* What the files of the store share: store.c (life, numbers), tier.c (one tier), scan.c (the start), saver.c (queue and
 * thread of saves), write.c (one save), hit.c (looking), fetcher.c (bringing slabs into memory).
 *
 * One mutex guards all that changes here, and is never held during I/O, hashing, or a user's functions. Order of locks:
 * it, then an index's own. What an index holds is the index's; of an entry, `user` alone is guarded by this mutex. */
#ifndef STORE_PRIVATE_H
#define STORE_PRIVATE_H

#include "store/folder.h"
#include "store/index.h"
#include "store/store.h"

#include <pthread.h>
#include <stdatomic.h>

#define LOG_GROUP "store"

enum { FETCHERS = 2, POOLED_BUFFERS = 16 };

/* ---- Tiers ---- */

struct tier {
    enum store_tier id;
    uint64_t quota;
    struct index *index;   /* NULL: off from the start */
    struct folder *folder; /* NULL: the tier ram */
    /* Written with the mutex and never taken back once true (ready) or false (on); read by lookups without it. */
    _Atomic bool on, ready;
    /* guarded by the mutex: */
    char trouble[160];
    struct victim *doomed,
        *damaged; /* their files are still there; the saver alone changes a folder once it is ready */
};

void tier_open(struct store *store, enum store_tier id);
void tier_close(struct tier *tier);

/* These left the index: their files are to go. */
void tier_doom(struct store *store, struct tier *tier, struct victim *victims);

/* Removes the files of what left the index. Whoever writes does this first, and writes nothing where it fails: the
 * folder would hold more than its quota, or lose later what it had just been given. */
int tier_tidy(struct store *store, struct tier *tier, hearth_error *error);

/* Sets aside bytes for a slab, and makes the room. 0, HEARTH_BUSY (`reserved` says why) or what tier_tidy() says. */
int tier_reserve(struct store *store, struct tier *tier, const struct reserve *what, struct reservation **reservation,
                 enum reserved *reserved, hearth_error *error);

/* The entry's slab cannot be used: it leaves with all that hangs on it. */
void tier_drop(struct store *store, struct tier *tier, struct entry *entry, bool damaged);

/* What went wrong, and (NULL) that it goes well again. Logged when it changes from one to the other. */
void tier_trouble(struct store *store, struct tier *tier, const char *message);

/* ---- A slab in memory ---- */

/* Of an entry that hits use; in the tier ram it is the slab, and stays as long as the entry. Guarded by the mutex, but
 * for the bytes, which do not change once it is there. */
struct image {
    enum { IMAGE_ABSENT, IMAGE_LOADING, IMAGE_THERE, IMAGE_LOST } state;
    int users; /* parts of hits, and the fetcher that reads it */
    bool stays;
    void *bytes; /* from malloc */
    const void *payload;
    size_t size;        /* of the payload */
    struct image *next; /* among those to be freed when the mutex has been given back */
};

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
};

/* Carries it out, on the saver's thread. */
void job_write(struct store *store, const struct job *job);

struct saver {
    pthread_t thread;
    pthread_cond_t work;
    struct job *first, **end;
    struct job *current;
    uint64_t last_ticket, done; /* saves are finished in the order of their tickets */
    uint64_t backlog;           /* bytes of queued saves and the current one */
    const struct store_user **refused;
    size_t n_refused, refused_cap;
    bool tidy;    /* some tier has something to remove */
    size_t spare; /* a buffer of that size is wanted in the pool; 0: none */
    void *pool[POOLED_BUFFERS];
    size_t n_pool, pool_bytes;
};

void saver_open(struct store *store);
void saver_close(struct store *store); /* finishes the queue */

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
    struct key parent_key;
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
    uint32_t hits; /* to be noted in its last slab's file; 0: nothing to note */
    struct store_hit *next_hit;
};

void hit_release(struct store_hit *hit);

struct fetcher {
    pthread_t threads[FETCHERS];
    pthread_cond_t work;
    struct store_hit *hits; /* that fetch, the one served longest ago first */
    uint64_t ahead_bytes;   /* of slabs that hits want and have not taken */
};

void fetcher_open(struct store *store);
void fetcher_close(struct store *store);

/* ---- The store ---- */

struct store {
    struct store_params params;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* a save was finished or published, a tier became ready, a user was let go */
    struct tier tiers[STORE_TIERS];
    struct saver saver;
    struct fetcher fetcher;
    pthread_t scanner;
    _Atomic bool stop_scan;
    bool closing;
    const struct store_user **busy; /* users whose functions are running */
    size_t n_busy, busy_cap;
    _Atomic uint64_t failures;
    struct store_stats stats;
};

void *scan_main(void *store);

static inline void store_lock(struct store *store)
{
    pthread_mutex_lock(&store->mutex);
}

static inline void store_unlock(struct store *store)
{
    pthread_mutex_unlock(&store->mutex);
}

/* Whether all folders have been looked through. Without the mutex. */
bool store_is_ready(const struct store *store);

/* Waits for `changed`, with the mutex. False: the deadline has passed. */
bool store_wait_changed(struct store *store, int64_t deadline);

/* Marks around calls of a user's functions, with the mutex: store_leave() waits for them. */
void user_enter(struct store *store, const struct store_user *user);
void user_leave(struct store *store, const struct store_user *user);

/* Wakes them, without the mutex; each has been entered, and is let go here. */
void users_wake(struct store *store, const struct store_user **users, size_t n);

#endif
