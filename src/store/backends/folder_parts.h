/* What folder.c, folder_scan.c and publish.c share: the folder, names of its files, and reading one file. */
#ifndef STORE_BACKENDS_FOLDER_PARTS_H
#define STORE_BACKENDS_FOLDER_PARTS_H

#include "store/backends/folder.h"
#include "store/backends/index_file.h"

#include <pthread.h>

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

/* What a file is, by its name. */
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
