/* The journal of a file that is being downloaded: which of its pieces are on the disk. It is bound to what the file is
 * (size, SHA-256, ETag): with another binding it counts for nothing, and the file is begun anew.
 *
 *     FILE.journal: the binding's lines, then a line `done N` for each piece
 *
 * A piece is entered once its bytes are synced, so that neither a kill nor a loss of power leaves an entry without
 * them. Belongs to one thread. */
#ifndef PULL_JOURNAL_H
#define PULL_JOURNAL_H

#include "base/sha256.h"
#include "hearth.h"

#include <stdbool.h>
#include <stddef.h>

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

#endif
