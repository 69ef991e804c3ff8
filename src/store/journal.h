/* The index file of a folder: a copy of the fronts of its slabs in one file, so that a start reads that file and the
 * folder's names, and no slab. docs/format.md has its bytes.
 *
 * It is never the authority: the names in the folder say which slabs exist, and a slab itself says what it holds when
 * it is used. So the file needs no sync, may lack anything, and may be deleted: what it lacks is read from the slabs.
 *
 * The functions may be called from any thread. */
#ifndef STORE_JOURNAL_H
#define STORE_JOURNAL_H

#include "base/files.h"
#include "store/slab.h"

struct journal;

/* For the folder with that descriptor, which the caller keeps open. The file is created by the first scan. */
struct journal *journal_open(struct files *files, int folder);
void journal_close(struct journal *journal);

/* Records a slab that a scan found (add) or that was published (put). Before another slab gets the name:
 * journal_remove(). */
void journal_add(struct journal *journal, const struct slab_head *head, uint64_t size);
void journal_put(struct journal *journal, const struct slab_head *head, uint64_t size);
void journal_remove(struct journal *journal, const struct slab_name *name);
void journal_note_use(struct journal *journal, const struct slab_name *name, uint32_t hits, int64_t used_ms);

/* A slab's name in the folder, and whether the journal replayed it. */
struct journal_name {
    struct slab_name name;
    bool replayed;
    uint64_t at; /* the journal's: position of its last record, 0: none */
    uint32_t hits;
    int64_t used_ms;
};

/* The order in which journal_replay() wants the names. */
int journal_name_compare(const void *a, const void *b);

/* Calls `each` for those of the names that the journal has, and marks them. What is put until the commit is not
 * recorded, but that the journal lacks it. Where the file is damaged, or most of it does not count any more, a new one
 * is begun; journal_commit() puts it in place of the old one, after the caller has added the slabs that the old one
 * lacked. */
void journal_replay(struct journal *journal, struct journal_name *names, size_t n,
                    void (*each)(void *ud, struct slab_head *head, uint64_t size), void *ud);
void journal_commit(struct journal *journal);

/* It has grown so much since the last commit that it should be replayed and committed again. */
bool journal_is_stale(struct journal *journal);

#define JOURNAL_NAME "index"
#define JOURNAL_NEW  "index.new"

#endif
