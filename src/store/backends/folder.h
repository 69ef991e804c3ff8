/* A folder of slabs: the tiers disk and ram_file. One file a slab, named by its key and kind ("<64 hex>.rows",
 * "<64 hex>.state"). Beside them are temporary files while they are written, names of models, the index file "index",
 * the file "digests", and a folder "quarantine".
 *
 * A file becomes visible whole or not at all: it is written under a temporary name, synced, linked to its name, the
 * folder synced, and the file read back (docs/durability.md). The functions may be called from several threads, for
 * different slabs; the index sees to it that one thread writes a slab. */
#ifndef STORE_BACKENDS_FOLDER_H
#define STORE_BACKENDS_FOLDER_H

#include "base/buf.h"
#include "base/files.h"
#include "store/slabs/slab.h"

struct folder;

/* Takes the lock of the folder. NULL, HEARTH_UNAVAILABLE: another process has it. Removes temporary files of earlier
 * processes. */
struct folder *folder_open(struct files *files, const char *path, hearth_error *error);

/* Without the lock: only folder_scan() and folder_read() may be called. */
struct folder *folder_open_read_only(struct files *files, const char *path, hearth_error *error);
bool folder_is_read_only(const struct folder *folder);
void folder_close(struct folder *folder);

/* 0, or a negative hearth_code. HEARTH_NOT_FOUND: no such file. HEARTH_INVALID: it is damaged, or not the slab that its
 * name says. HEARTH_UNSUPPORTED: it is of a newer version, and must be left alone. HEARTH_NO_MEMORY, HEARTH_IO: it
 * cannot be read now. The message for a damaged payload names the region. */
int folder_read(struct folder *folder, const struct slab_key *key, enum slab_kind kind, struct slab *slab,
                hearth_error *error);

/* Writes and publishes a slab. 0: it is stored durably; a whole file of the same key, start and size that existed is
 * kept. A file of that name that is damaged, cut short or another slab is replaced; one of a newer
 * version is left alone, and the slab is not stored (HEARTH_UNSUPPORTED). HEARTH_UNAVAILABLE: the folder itself is
 * gone. Any other failure is HEARTH_IO, and nothing new is visible. */
int folder_publish(struct folder *folder, struct slab_head *head, const void *payload, hearth_error *error);

/* Writes a model's name to a file "<64 hex>.name" beside its slabs, for listings. Failures are ignored; a name that
 * cannot be read counts as none (false). */
void folder_name_model(struct folder *folder, const uint8_t model[SHA256_BYTES], const char *name);
bool folder_model_name(struct folder *folder, const uint8_t model[SHA256_BYTES], char *name, size_t size);

/* Removes the names of models that have no slabs any more. */
void folder_prune_models(struct folder *folder, bool (*is_there)(void *ud, const uint8_t model[SHA256_BYTES]),
                         void *ud);

/* The bytes of the file "digests" (docs/format.md). HEARTH_NOT_FOUND: there is none; a longer one than that is not
 * read. It is replaced as a whole and not synced: its reader checks it. */
#define FOLDER_DIGESTS_BYTES (64 << 10)
int folder_read_digests(struct folder *folder, struct buf *out, hearth_error *error);
int folder_write_digests(struct folder *folder, const struct buf *digests, hearth_error *error);

/* Whether the slab's file exists; true also where that cannot be found out. */
bool folder_has(struct folder *folder, const struct slab_key *key, enum slab_kind kind);

/* Rewrites hits and time of last use in place, without a sync. */
void folder_note_use(struct folder *folder, const struct slab_key *key, enum slab_kind kind, uint32_t hits,
                     int64_t used_ms);

/* 0 also where it did not exist. */
int folder_remove(struct folder *folder, const struct slab_key *key, enum slab_kind kind, hearth_error *error);

/* Moves a file that cannot be used to "quarantine", which keeps only the newest few. */
void folder_quarantine(struct folder *folder, const struct slab_key *key, enum slab_kind kind);

/* Empties the quarantine. `removed`: its files, and other useless files removed since folder_open(). */
struct folder_removed {
    uint64_t files, bytes;
};
void folder_tidy(struct folder *folder, struct folder_removed *removed);

/* Calls `each` for every slab: from the index file if the folder keeps one and it has the slab, else by reading the
 * slab's front, several at a time. Callbacks run one at a time; `each` may take the head over by zeroing it, and `size`
 * is the file's. A file that is proved not to be the slab of its name is quarantined (only reported, where the folder
 * was opened read-only) and counted. Files of other programs and slabs of newer versions are left alone, and so is what
 * cannot be read now. */
struct folder_scan {
    void (*each)(void *ud, struct slab_head *head, uint64_t size);
    void (*unusable)(void *ud, const struct slab_key *key, enum slab_kind kind,
                     const hearth_error *error); /* may be NULL */
    void *ud;
    bool leaves_damaged;                            /* damaged files are not quarantined: `unusable` sees to them */
    _Atomic bool *stop;                             /* ends it early; may be NULL */
    size_t n_slabs, n_damaged, n_foreign, n_unread; /* out: as above */
    uint64_t foreign_bytes;                         /* out: of slabs of newer versions */
};
int folder_scan(struct folder *folder, struct folder_scan *scan, hearth_error *error);

/* Keeps an index file (folder_parts.h) from now on: called before the first scan. */
void folder_keep_index_file(struct folder *folder);

/* Most of the index file does not count any more: a scan would write it anew. */
bool folder_wants_scan(struct folder *folder);

#endif
