/* Shared by folder.c, folder_scan.c, publish.c and index_file.c: the folder, names of its files, reading one file, and
 * the index file. Any thread. */
#ifndef STORE_BACKENDS_FOLDER_PARTS_H
#define STORE_BACKENDS_FOLDER_PARTS_H

#include "base/files.h"
#include "store/backends/folder.h"
#include "store/slabs/slab.h"

#include <pthread.h>

/* ---- The index file ----
 * A copy of the fronts of its slabs in one file, so that a start reads that file and the
 * folder's names, and no slab. docs/format.md has its bytes.
 *
 * It is never the authority: the names in the folder say which slabs exist, and a slab itself says what it holds when
 * it is used. So the file needs no sync, may lack anything, and may be deleted: the slabs say the rest. */

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

/* Calls `each` for those of the names that the index file has, and marks them. Slabs that are put until the commit are
 * not recorded, but that the index file lacks them. Where the file is damaged, or most of it does not count any more, a
 * new one is begun. After the caller has added the slabs that the old one lacked, index_file_commit() puts it in the
 * old one's place. */
void index_file_replay(struct index_file *index_file, struct index_file_name *names, size_t n,
                       void (*each)(void *ud, struct slab_head *head, uint64_t size), void *ud);
void index_file_commit(struct index_file *index_file);

/* It has grown so much since the last commit that it should be replayed and committed again. */
bool index_file_is_stale(struct index_file *index_file);

#define INDEX_FILE_NAME "index"
#define INDEX_FILE_NEW  "index.new"

/* ---- The folder ---- */

/* Keeps nothing of the single files: the index knows what is stored. */
struct folder {
    struct files *files;
    char *path;
    int fd;
    bool read_only;                /* opened without the lock */
    _Atomic uint64_t n_temporary;  /* number of the next temporary file */
    pthread_mutex_t quarantine;    /* serialises numbering and trimming in the quarantine folder */
    struct folder_removed removed; /* guarded by it as well, once the folder is open */
    struct index_file *index_file; /* NULL: none is kept */
};

/* The kind of a file, by its name. */
enum folder_name_type { NAME_SLAB, NAME_TEMPORARY, NAME_OWN, NAME_FOREIGN };

/* Fills in `name` of a slab or a temporary file. */
enum folder_name_type folder_name_type(const char *file, struct slab_name *name);

#define FOLDER_NAME_BYTES 112 /* of the longest name, that of a temporary file */

void folder_file_name(const struct slab_key *key, enum slab_kind kind, char name[FOLDER_NAME_BYTES]);
void folder_temporary_name(struct folder *folder, const struct slab_key *key, enum slab_kind kind,
                           char name[FOLDER_NAME_BYTES]);

/* The error message that an operation on a file failed; `code` is a negative errno. Returns its hearth_code. */
int folder_error(const struct folder *folder, const char *name, const char *operation, int code, hearth_error *error);

/* An open file: its front, decoded, and what is needed to read the rest. */
struct folder_file {
    int fd;
    uint64_t size;
    uint8_t *front; /* from malloc */
    size_t front_size;
    struct slab_head head;
};

/* 0, or an error as of folder_read(). folder_file_close() only after 0. */
int folder_file_open(struct folder *folder, const struct slab_key *key, enum slab_kind kind, struct folder_file *file,
                     hearth_error *error);
void folder_file_close(struct folder *folder, struct folder_file *file);

/* Reads and checks the rest. 0: the head has moved from the file to the slab. */
int folder_file_read(struct folder *folder, struct folder_file *file, struct slab *slab, hearth_error *error);

#endif
