/* A backend: where a tier keeps its slabs: memory, a folder, a server. The tier (tier.c) decides by its
 * index what is stored and what is evicted; the backend only holds the bytes.
 *
 *     open ─▶ scan ─▶ put, get, remove, has, note_use … ─▶ close
 *
 * One contract for all, and two tests of it in tests/unit/store: test_backend.c for what one process owns,
 * test_remote_backend.c for a server. Functions return 0 or a negative hearth_code, with a message:
 *
 *     HEARTH_NOT_FOUND    no such slab
 *     HEARTH_INVALID      the slab is damaged, or not the one that its name says: proved by its bytes
 *     HEARTH_UNSUPPORTED  the slab is of a newer version of hearth, and must be left alone
 *     HEARTH_UNAVAILABLE  the backend itself is gone (its folder was removed): it must be opened again
 *     HEARTH_NO_MEMORY, HEARTH_IO  the call failed now, which says nothing of the slab
 *
 * Threads: a tier's saver calls put(), remove(), quarantine(), name_model(), write_digests(), add_hint() and
 * wants_scan(). Its fetchers call get() and note_use(); its supervisor open(), measure(), scan(), has() and
 * read_digests(). Threads that prepare requests call probe() and read_hints(), and the saver calls probe(). All of
 * these may run at once, for different slabs. Each may take as long as a disk or a network does, and may hang, but for
 * probe() and read_hints(), which have a deadline. No other thread that serves requests waits for one. */
#ifndef STORE_BACKENDS_BACKEND_H
#define STORE_BACKENDS_BACKEND_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/files.h"
#include "store/backends/read_cost.h"
#include "store/slabs/slab.h"

/* A scan. `head` may be taken over by zeroing it; its regions may be missing. */
struct backend_scan {
    void (*each)(void *ud, struct slab_head *head, uint64_t size);
    /* A damaged slab, which the caller sees to. NULL: the backend quarantines it itself. */
    void (*damaged)(void *ud, const struct slab_name *name);
    void *ud;
    _Atomic bool *stop;         /* ends it early */
    size_t n_slabs, n_damaged;  /* out: slabs that `each` was called for; damaged ones */
    size_t n_foreign, n_unread; /* out: files of others or of a newer version; slabs that could not be read now */
    uint64_t foreign_bytes;     /* out: of slabs of a newer version; they count towards the quota */
};

/* The result of a probe for one slab. */
struct backend_probed {
    bool there;
    uint64_t size;
};

/* A state can be at any position, and a server has to be asked for it by its name. So beside the states of a block it
 * has hints, which say at which positions, from the block's beginning, states were put there. They may be wrong: only
 * slabs that are found there count. */
#define BACKEND_HINTS 64 /* most of a block */

struct backend_hints {
    size_t n;
    uint32_t offsets[BACKEND_HINTS]; /* any numbers */
};

struct backend {
    /* Opens the memory, folder or server, and creates it if need be; again after it was lost. HEARTH_BUSY, with a
     * message: another process owns it, and it can be read: until a later open() returns 0, only get(), has(),
     * scan() and read_digests() have an effect. */
    int (*open)(struct backend *backend, hearth_error *error);

    /* Stores a slab whole, or not at all. 0: it is stored, as durably as the backend can. A slab with its name is kept
     * if it is the same, and replaced otherwise. The payload may be taken (left empty). */
    int (*put)(struct backend *backend, struct slab_head *head, struct buf *payload, hearth_error *error);

    /* Reads and checks a whole slab. */
    int (*get)(struct backend *backend, const struct slab_name *name, struct slab *slab, hearth_error *error);

    /* 0 also where it did not exist. */
    int (*remove)(struct backend *backend, const struct slab_name *name, hearth_error *error);

    /* Moves a damaged slab out of the way, for people to look at, or removes it. */
    void (*quarantine)(struct backend *backend, const struct slab_name *name);

    /* Which of the slabs exist. Where that cannot be found out, they count as existing. */
    int (*has)(struct backend *backend, const struct slab_name *names, size_t n, bool *there, hearth_error *error);

    /* The same of a backend that others put slabs into as well, so that its index never knows all of them. With their
     * sizes, and not later than the deadline (CLOCK_MONOTONIC, ns). Failures say nothing of the slabs. NULL: this
     * process alone does. */
    int (*probe)(struct backend *backend, const struct slab_name *names, size_t n, struct backend_probed *probed,
                 int64_t deadline, hearth_error *error);

    /* The hints of the blocks that follow the n prefixes with these keys; and adds one, if it is not there. As probe().
     */
    int (*read_hints)(struct backend *backend, const struct slab_key *before, size_t n, struct backend_hints *hints,
                      int64_t deadline, hearth_error *error);
    int (*add_hint)(struct backend *backend, const struct slab_key *before, uint32_t offset, hearth_error *error);

    /* Stores the name of a model that has slabs, for listings. Failures are ignored. NULL: the backend has no listings.
     */
    void (*name_model)(struct backend *backend, const uint8_t model[SHA256_BYTES], const char *name);

    /* Reads and replaces the known digests (store_digests() in store.h). HEARTH_NOT_FOUND: there are none. NULL: the
     * backend does not outlive the process. */
    int (*read_digests)(struct backend *backend, struct buf *out, hearth_error *error);
    int (*write_digests)(struct backend *backend, const struct buf *digests, hearth_error *error);

    /* Notes a use. Failures cost the LRU order after a restart, and nothing else. */
    void (*note_use)(struct backend *backend, const struct slab_name *name, uint32_t hits, int64_t used_ms);

    /* Calls scan->each for all slabs of earlier processes. Those that could not be read (n_unread) are tried again by
     * the next scan, which reports all others again as well. */
    int (*scan)(struct backend *backend, struct backend_scan *scan, hearth_error *error);

    /* Measures what a read costs, by reading what it has put there itself: where no slab is read since that is thought
     * to be dear, nothing else shows. May fail, and then says nothing. NULL: the assumptions will do. */
    int (*measure)(struct backend *backend, struct read_assumed *measured, hearth_error *error);

    /* Whether a scan now would speed up later ones. NULL: never. */
    bool (*wants_scan)(struct backend *backend);

    void (*close)(struct backend *backend); /* frees it */
};

/* For backends that have nothing to note, and nothing of earlier processes to scan. */
void backend_note_nothing(struct backend *backend, const struct slab_name *name, uint32_t hits, int64_t used_ms);
int backend_scan_nothing(struct backend *backend, struct backend_scan *scan, hearth_error *error);

/* In the memory of this process. */
struct backend *ram_backend_open(void);

/* In a folder, which open() locks for this process. */
struct backend *folder_backend_open(struct files *files, const char *path);

#endif
