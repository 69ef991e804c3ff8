/* Downloads one file of a model into its folder: in ranges, several at once, resumed where a former pull was
 * interrupted; checked by size, SHA-256 and its own header. It gets its name once all files of the model have come that
 * far. Blocks; one thread. */
#ifndef PULL_DOWNLOAD_H
#define PULL_DOWNLOAD_H

#include "base/sha256.h"
#include "hearth.h"
#include "pull/listing.h"
#include "pull/models_folder.h"
#include "pull/web.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- Journals ----
 * The journal of a file that is being downloaded: which of its pieces are on the disk. It is bound to what the file is
 * (size, SHA-256, ETag): with another binding it counts for nothing, and the file is begun anew.
 *
 *     FILE.journal: the binding's lines, then a line `done N` for each piece
 *
 * A piece is entered once its bytes are synced, so that neither a kill nor a loss of power leaves an entry without
 * them. */

#define PULL_PIECE (8 << 20) /* bytes of a piece; the last one may have fewer */

enum pull_piece { PULL_PIECE_MISSING, PULL_PIECE_ASKED, PULL_PIECE_DONE };

struct pull_journal {
    int fd;
    int64_t size;
    size_t n;      /* pieces */
    uint8_t *have; /* enum pull_piece of each */
};

struct pull_binding {
    int64_t size;
    const uint8_t *sha; /* NULL: not known */
    const char *etag;   /* NULL: none */
};

/* Whether a file with this binding can be told from another one, and resumed. */
bool pull_binding_is_firm(const struct pull_binding *binding);

/* Opens the journal in a folder, or begins a new one. `part_size`: of the file beside it; -1: there is none, or another
 * one is needed. A new one: *fresh, and nothing of that file counts. */
int pull_journal_open(struct pull_journal *journal, int folder, const char *name, const struct pull_binding *binding,
                      int64_t part_size, bool *fresh, hearth_error *error);
void pull_journal_close(struct pull_journal *journal);

/* Enters a piece, whose bytes are synced. */
int pull_journal_enter(struct pull_journal *journal, size_t piece, hearth_error *error);

/* The bytes from piece `first` on that are missing in a row, up to `most` pieces, and marks them as asked for. 0: there
 * are none; else *first is the piece. */
size_t pull_journal_take(struct pull_journal *journal, size_t most, size_t *first);

int64_t pull_journal_bytes(const struct pull_journal *journal); /* done */
int64_t pull_piece_end(const struct pull_journal *journal, size_t piece);

/* ---- Downloads ---- */

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

/* The report meanwhile, at most ten times a second. */
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
