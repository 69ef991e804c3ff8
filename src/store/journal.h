/* The index file of a folder: what stands in the fronts of its slabs, one after the other in one file, so that a start
 * reads that and the folder's names, and no slab. docs/format.md has its bytes.
 *
 * It is never the authority: what is there, the names in the folder say; what a slab holds, the slab itself says when
 * it is used. So it needs no sync, may lack anything, and may be removed: what it lacks is read from the slabs.
 *
 * The functions may be called from any thread. */
#ifndef STORE_JOURNAL_H
#define STORE_JOURNAL_H

#include "base/files.h"
#include "store/slab.h"

struct journal;

/* Of the folder that is open as `folder`; the file is made when something is added. */
struct journal *journal_open(struct files *files, int folder);
void journal_close(struct journal *journal);

/* A slab that a look through the folder found, or that was put into it. Of a name that is about to be given to another
 * slab: journal_remove() first. */
void journal_add(struct journal *journal, const struct slab_head *head, uint64_t size);
void journal_put(struct journal *journal, const struct slab_head *head, uint64_t size);
void journal_remove(struct journal *journal, const struct slab_name *name);
void journal_note_use(struct journal *journal, const struct slab_name *name, uint32_t hits, int64_t used_ms);

/* A slab's name in the folder, and whether the journal told of it. */
struct listed {
    struct slab_name name;
    bool told;
    uint64_t at; /* the journal's: where it stands, 0: nowhere */
    uint32_t hits;
    int64_t used_ms;
};

/* Sorted so, names are given to journal_tell(). */
int listed_compare(const void *a, const void *b);

/* Calls `each` for those of the names that the journal knows, and marks them. What is put until then is not noted, but
 * that nothing is known of it.
 * Where most of the file is of no use any more, or it is damaged, a new one is begun, which takes its place with
 * journal_settle(): after the slabs that it did not know have been added. */
void journal_tell(struct journal *journal, struct listed *listed, size_t n,
                  void (*each)(void *ud, struct slab_head *head, uint64_t size), void *ud);
void journal_settle(struct journal *journal);

/* It has grown so much since it was settled that it should be told and settled again. */
bool journal_is_stale(struct journal *journal);

#define JOURNAL_NAME "index"
#define JOURNAL_NEW  "index.new"

#endif
