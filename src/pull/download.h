/* Downloads one file of a model into its folder: in ranges, several at once, resumed where a former pull was
 * interrupted; checked by size, SHA-256 and its own header. It gets its name once all files of the model have come that
 * far. Blocks; one thread. */
#ifndef PULL_DOWNLOAD_H
#define PULL_DOWNLOAD_H

#include "pull/listing.h"
#include "pull/models_folder.h"
#include "pull/web.h"

/* A file that is to be pulled. */
struct pull_file {
    char *name;   /* in the folder */
    char *source; /* URL, or path of a local file */
    bool is_local, is_projector;
    bool is_listed; /* size and SHA-256 are a listing's: the file has to be what that says */
    int64_t size;   /* -1: not known */
    bool has_sha;
    uint8_t sha[SHA256_BYTES];
    /* Asked of the source by pull_probe(): */
    bool has_ranges;
    char *etag;
    bool is_here; /* by pull_download(): whole and checked, under its partial name */
};

void pull_file_release(struct pull_file *file);

/* What is reported meanwhile, at most ten times a second. */
struct pull_progress {
    const char *file;
    size_t index, n_files;
    const uint8_t *sha;  /* as its source says; NULL: it does not */
    bool checking;       /* the bytes are here and are read once more for their SHA-256 */
    int64_t done, total; /* bytes of this file; total -1: not known */
    double rate;         /* bytes a second, of late; 0: not known yet */
};

/* Where and how. `report` may be NULL. */
struct pull_how {
    struct pull_web web;
    int connections;
    void (*report)(void *ud, const struct pull_progress *progress);
    void *ud;
    size_t index, n_files; /* for reports */
};

/* Asks the source for the file's size, its ETag, and whether it sends ranges. HEARTH_IO where it contradicts the size
 * that is known. */
int pull_probe(struct pull_file *file, const struct pull_how *how, hearth_error *error);

/* Bytes that are still to be fetched; -1: not known. */
int64_t pull_missing(const struct pull_file *file, const struct pull_place *place);

/* HEARTH_IO unless the disk of the folder has room for so many bytes, and some to spare. */
int pull_check_space(int folder, int64_t bytes, hearth_error *error);

/* Fetches the file under its partial name. *stored is what the manifest says of it, with strings of its own. Where the
 * file changes at its source meanwhile, it is probed and begun anew. */
int pull_download(struct pull_file *file, const struct pull_place *place, const struct pull_how *how,
                  struct pull_stored *stored, hearth_error *error);

/* Gives a file that is here its name, in place of one that has it. */
int pull_name_file(const struct pull_file *file, const struct pull_place *place, hearth_error *error);

#endif
