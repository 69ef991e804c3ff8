/* The index file of a folder: a copy of the fronts of its slabs in one file, so that a start reads that file and the
 * folder's names, and no slab. docs/format.md has its bytes.
 *
 * It is never the authority: the names in the folder say which slabs exist, and a slab itself says what it holds when
 * it is used. So the file needs no sync, may lack anything, and may be deleted: what it lacks is read from the slabs.
 *
 * The functions may be called from any thread. */
#ifndef STORE_BACKENDS_INDEX_FILE_H
#define STORE_BACKENDS_INDEX_FILE_H

#include "base/files.h"
#include "store/slabs/slab.h"

struct index_file;

/* For the folder with that descriptor, which the caller keeps open. The file is created by the first scan. */
struct index_file *index_file_open(struct files *files, int folder);
void index_file_close(struct index_file *index_file);

/* Records a slab that a scan found (add) or that was published (put). Before another slab gets the name:
 * index_file_remove(). */
void index_file_add(struct index_file *index_file, const struct slab_head *head, uint64_t size);
void index_file_put(struct index_file *index_file, const struct slab_head *head, uint64_t size);
void index_file_remove(struct index_file *index_file, const struct slab_name *name);
void index_file_note_use(struct index_file *index_file, const struct slab_name *name, uint32_t hits, int64_t used_ms);

/* A slab's name in the folder, and whether the index file replayed it. */
struct index_file_name {
    struct slab_name name;
    bool replayed;
    uint64_t at; /* the index file's: position of its last record, 0: none */
    uint32_t hits;
    int64_t used_ms;
};

/* The order in which index_file_replay() wants the names. */
int index_file_name_compare(const void *a, const void *b);

/* Calls `each` for those of the names that the index file has, and marks them. What is put until the commit is not
 * recorded, but that the index file lacks it. Where the file is damaged, or most of it does not count any more, a new
 * one is begun; index_file_commit() puts it in place of the old one, after the caller has added the slabs that the old
 * one lacked. */
void index_file_replay(struct index_file *index_file, struct index_file_name *names, size_t n,
                       void (*each)(void *ud, struct slab_head *head, uint64_t size), void *ud);
void index_file_commit(struct index_file *index_file);

/* It has grown so much since the last commit that it should be replayed and committed again. */
bool index_file_is_stale(struct index_file *index_file);

#define INDEX_FILE_NAME "index"
#define INDEX_FILE_NEW  "index.new"

#endif
