/* A tier: what it keeps where, and in which state it is. Its supervisor opens and scans it (supervisor.c), its saver
 * writes, its fetchers read; conversations.c lists what it has, and takes orders about it. */
#ifndef STORE_TIER_H
#define STORE_TIER_H

#include "base/hash_table.h"
#include "store/backends/backend.h"
#include "store/backends/read_cost.h"
#include "store/fetcher.h"
#include "store/index/index.h"
#include "store/saver.h"
#include <stdatomic.h>

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
    struct hash_table removed; /* of struct removed_slab: what was removed while the tier is scanned */
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

/* Removes the tip with that key from the index, and the slabs that were only its own. On the saver's thread. */
int tier_drop_conversation(struct tier *tier, const struct slab_key *key, hearth_error *error);

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

#endif
