/* A folder of slabs: the tiers disk and ram_file. One file a slab, named by its key and kind ("<64 hex>.rows",
 * "<64 hex>.state"); beside them temporary files while they are written, names of models, and a folder "quarantine".
 *
 * A file becomes visible whole or not at all: written under a temporary name, synced, linked, the folder synced, read
 * back (docs/durability.md). The functions may be called from several threads, for different slabs; who writes which
 * is arbitrated by the index. */
#ifndef STORE_FOLDER_H
#define STORE_FOLDER_H

#include "base/files.h"
#include "store/slab.h"

struct folder;

/* HEARTH_UNAVAILABLE: another process has it. Removes what earlier processes left half written. */
struct folder *folder_open(struct files *files, const char *path, hearth_error *error);

/* Without taking it for this process: only folder_scan() and folder_read() may be called. */
struct folder *folder_open_read_only(struct files *files, const char *path, hearth_error *error);
bool folder_is_read_only(const struct folder *folder);
void folder_close(struct folder *folder);

/* A negative hearth_code: HEARTH_NOT_FOUND: no such file; HEARTH_INVALID: it is damaged, or of another key or kind than
 * its name says; HEARTH_UNSUPPORTED: it is of a newer version, and to be left alone; HEARTH_NO_MEMORY; HEARTH_IO. Of a
 * damaged payload the message names the region. */
int folder_read(struct folder *folder, const struct slab_key *key, enum slab_kind kind, struct slab *slab,
                hearth_error *error);

/* Writes and publishes. 0: it is there, durable; FOLDER_ADOPTED: a whole file of the same key, start and size was
 * there, and stays. A file that was there and is damaged, truncated or another's is replaced; one of a newer version is
 * left alone, and the slab is not stored (HEARTH_UNSUPPORTED). HEARTH_UNAVAILABLE: the folder itself is gone. Any other
 * failure is HEARTH_IO, and nothing new is visible. */
#define FOLDER_ADOPTED 1
int folder_publish(struct folder *folder, struct slab_head *head, const void *payload, hearth_error *error);

/* The model is called so: a file "<64 hex>.name" beside its slabs, for who lists them. What cannot be written or read
 * is no name. */
void folder_name_model(struct folder *folder, const uint8_t model[SHA256_BYTES], const char *name);
bool folder_model_name(struct folder *folder, const uint8_t model[SHA256_BYTES], char *name, size_t size);

/* Removes the names of models for which there is nothing any more. */
void folder_prune_models(struct folder *folder, bool (*is_there)(void *ud, const uint8_t model[SHA256_BYTES]),
                         void *ud);

/* Whether there is a file of that name; true also where that cannot be told. */
bool folder_has(struct folder *folder, const struct slab_key *key, enum slab_kind kind);

/* It was used: rewrites hits and time in place, without syncing. */
void folder_note_use(struct folder *folder, const struct slab_key *key, enum slab_kind kind, uint32_t hits,
                     int64_t used_ms);

/* 0 also where it was not there. */
int folder_remove(struct folder *folder, const struct slab_key *key, enum slab_kind kind, hearth_error *error);

/* Moves a file that cannot be used out of the way. Only the newest few stay in "quarantine". */
void folder_quarantine(struct folder *folder, const struct slab_key *key, enum slab_kind kind);

/* Removes what was set aside. `removed`: that, and everything else that was of no use and went since folder_open(). */
struct folder_removed {
    uint64_t files, bytes;
};
void folder_tidy(struct folder *folder, struct folder_removed *removed);

/* Tells of every slab: from the index file, where the folder keeps one and it knows the slab, else by reading the
 * front, several at a time. `each`, one call after the other, is given the head, which it may take over by zeroing it,
 * and the file's size. What is proved not to be a slab of its name is quarantined (only reported, when opened to read)
 * and counted; foreign names and slabs of newer versions are left alone, and so is what could not be read now. */
struct folder_scan {
    void (*each)(void *ud, struct slab_head *head, uint64_t size);
    void (*bad)(void *ud, const struct slab_key *key, enum slab_kind kind, const hearth_error *error); /* may be NULL */
    void *ud;
    bool leaves_damaged;                        /* what is damaged stays where it is: `bad` is told of it */
    _Atomic bool *stop;                         /* ends it early; may be NULL */
    size_t n_slabs, n_bad, n_foreign, n_unread; /* out: as above */
    uint64_t foreign_bytes;                     /* out: of slabs of newer versions */
};
int folder_scan(struct folder *folder, struct folder_scan *scan, hearth_error *error);

/* From now on an index file is kept (journal.h): before the first scan. */
void folder_keep_journal(struct folder *folder);

/* Most of it is of no use any more: a scan writes it anew. */
bool folder_wants_scan(struct folder *folder);

#endif
