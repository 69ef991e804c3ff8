/* Saves: what users copied out, in the queue of a tier's saver thread, and the memory that they are copied to. */
#ifndef STORE_SAVER_H
#define STORE_SAVER_H

#include "store/store.h"
#include "store/watchdog.h"
#include <pthread.h>

enum { POOLED_BUFFERS = 16 };

/* How long a server that refused a slab gets no other; doubled each time. */
#define UPLOAD_BACK_OFF_FIRST_NS ((int64_t)1000000000)

/* What a user copied out, for all tiers that it is saved to. */
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

struct tier;

/* Writes what of it is not stored yet, on the tier's saver thread. False: the backend is gone, and the job should be
 * retried once it is back. */
bool save_job_write(struct store *store, struct tier *tier, const struct save_job *job);

void saver_init(struct saver *saver);
void saver_release(struct saver *saver);
void *saver_main(void *tier);

/* With the mutex: whether the store closes, and no job may begin any more. */
bool saver_is_over(const struct tier *tier);

/* With the mutex: has the user woken when a save ends or the tier goes out of service. */
void saver_add_waiter(struct saver *saver, const struct store_user *user);

/* With the mutex: moves the list of waiting users out, each after user_call_begin(), for users_wake(). */
size_t saver_collect_waiters(struct tier *tier, const struct store_user ***users);

/* With the mutex: frees what the last job of it has left. */
void raw_bytes_unref(struct store *store, struct raw_bytes *raw);

/* ---- Memory for saves ---- */

/* A pool of memory that saves are copied out to. */
struct buffers {
    size_t wanted; /* bytes of a buffer that the saver should add; 0: none */
    void *pool[POOLED_BUFFERS];
    size_t n, bytes;
};

void buffers_give_back(struct store *store, void *buffer);
void buffers_make_wanted(struct store *store); /* on the saver's thread */
void buffers_release(struct buffers *buffers);

#endif
