/* The store as its files see it.
 *
 * One mutex guards everything here, in tiers, savers, fetchers and hits that changes. It is never held during I/O,
 * hashing, or a user's functions. Lock order: this mutex, then an index's own. The index guards its entries, but for
 * their `user`, which this mutex guards. */
#ifndef STORE_STORE_STRUCT_H
#define STORE_STORE_STRUCT_H

#include "store/tier.h"

#define LOG_GROUP "store"

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

/* The model's name, if it is still to be written to the tier; NULL: not. Marks it as written. */
const char *store_unwritten_name(struct store *store, const uint8_t model[SHA256_BYTES], enum store_tier tier);

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
