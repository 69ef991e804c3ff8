/* Where a tier keeps its slabs: memory, a folder, one day a server. A tier (store_parts.h) decides what is stored
 * and what is evicted, by its index; its backend only holds the bytes.
 *
 *     open ─▶ scan ─▶ put, get, remove, has, note_use … ─▶ close
 *
 * One contract for all (tests/unit/store/test_backend.c). Functions return 0 or a negative hearth_code, with a message:
 *
 *     HEARTH_NOT_FOUND    there is no such slab
 *     HEARTH_INVALID      it is damaged, or another slab than its name says: proved by its bytes
 *     HEARTH_UNSUPPORTED  it is of a newer version of hearth, and to be left alone
 *     HEARTH_UNAVAILABLE  the backend itself is gone (its folder was removed): it has to be opened again
 *     HEARTH_NO_MEMORY, HEARTH_IO  it could not be done now, which says nothing of the slab
 *
 * Threads: a tier's saver calls put(), remove(), set_aside(), name_model(); its fetchers get() and note_use(); its
 * supervisor open(), scan() and has(). All of them may be under way at once, for different slabs. Each may take as long
 * as a disk or a network likes, and may hang: nobody waits for one on a thread that serves requests. */
#ifndef STORE_BACKEND_H
#define STORE_BACKEND_H

#include "base/files.h"
#include "store/slab.h"

/* What scan() tells of each slab. `head` may be taken over by zeroing it; its regions may be missing. */
struct backend_scan {
    void (*each)(void *ud, struct slab_head *head, uint64_t size);
    /* Of a damaged one, which is the caller's to set aside. NULL: the backend sets it aside itself. */
    void (*bad)(void *ud, const struct slab_name *name);
    void *ud;
    _Atomic bool *stop;         /* ends it early */
    size_t n_slabs, n_bad;      /* out: told of; damaged */
    size_t n_foreign, n_unread; /* out: not hearth's, or of a newer version; that could not be read now */
    uint64_t foreign_bytes;     /* out: of slabs of a newer version, which take of the quota */
};

struct backend {
    /* Gets hold of the place, makes it if need be. Again after it was lost. HEARTH_BUSY, with a message: another
     * process has it, and it can be read; nothing but get(), has() and scan() does anything until a later open()
     * returns 0. */
    int (*open)(struct backend *backend, hearth_error *error);

    /* Stores a slab, whole or not at all; 0: it is there, as durable as the place is. What stands there under its name
     * is adopted if it is the same slab, replaced otherwise. The payload may be taken (left empty). */
    int (*put)(struct backend *backend, struct slab_head *head, struct buf *payload, hearth_error *error);

    /* A whole slab, checked. */
    int (*get)(struct backend *backend, const struct slab_name *name, struct slab *slab, hearth_error *error);

    /* 0 also where it was not there. */
    int (*remove)(struct backend *backend, const struct slab_name *name, hearth_error *error);

    /* It is damaged: out of the way, for people to look at; or removed. */
    void (*set_aside)(struct backend *backend, const struct slab_name *name);

    /* Which of them are there. What cannot be told counts as there. */
    int (*has)(struct backend *backend, const struct slab_name *names, size_t n, bool *there, hearth_error *error);

    /* Of this model there are slabs, and people call it so. Failures cost people a name. NULL: nobody can look. */
    void (*name_model)(struct backend *backend, const uint8_t model[SHA256_BYTES], const char *name);

    /* It was used. Failures cost the order of last use after a restart, and nothing else. */
    void (*note_use)(struct backend *backend, const struct slab_name *name, uint32_t hits, int64_t used_ms);

    /* Tells of all that earlier processes left. What could not be read (n_unread) is tried again by the next scan,
     * which tells of all again. */
    int (*scan)(struct backend *backend, struct backend_scan *scan, hearth_error *error);

    /* Whether a scan is worth its while, for the sake of later ones. NULL: never. */
    bool (*wants_scan)(struct backend *backend);

    void (*close)(struct backend *backend); /* frees it */
};

/* Memory of this process. */
struct backend *ram_backend_open(void);

/* A folder, which open() takes for this process. */
struct backend *folder_backend_open(struct files *files, const char *path);

#endif
