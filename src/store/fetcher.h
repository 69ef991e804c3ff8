/* Fetches: what hits have found, the slabs in memory that they share, and the threads that read them. */
#ifndef STORE_FETCHER_H
#define STORE_FETCHER_H

#include "store/backends/backend.h"
#include "store/index/index.h"
#include "store/store.h"
#include "store/watchdog.h"
#include <pthread.h>

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

void fetcher_init(struct fetcher *fetcher);
void fetcher_release(struct fetcher *fetcher);
void *fetcher_main(void *tier);

/* With the mutex: gives up the hits that fetch from the tier and got nothing within the time-out, or (`all`) all of
 * them. Returns users to wake, each after user_call_begin(). `next` becomes the earliest time-out of the others, if
 * that is sooner. */
size_t fetcher_give_up(struct tier *tier, int64_t now, bool all, const struct store_user ***users, int64_t *next);

#endif
