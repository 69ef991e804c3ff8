/* What folder.c and publish.c share. */
#ifndef STORE_FOLDER_PARTS_H
#define STORE_FOLDER_PARTS_H

#include "store/folder.h"
#include "store/journal.h"

#include <pthread.h>

/* Nothing here is kept of the files themselves: what lies in the folder is known to the index alone. */
struct folder {
    struct files *files;
    char *path;
    int fd;
    bool to_read;                  /* opened without taking it */
    _Atomic uint64_t n_temporary;  /* numbers for names of temporary files */
    pthread_mutex_t quarantine;    /* one at a time finds a number there and trims it */
    struct folder_removed removed; /* under it, too, but while the folder is being opened */
    struct journal *journal;       /* NULL: none is kept */
};

/* What a name in a folder stands for. */
enum folder_sort { SORT_SLAB, SORT_TEMPORARY, SORT_OWN, SORT_STRANGE };

/* Of a slab or a temporary file also its name as a slab. */
enum folder_sort folder_sort_of(const char *file, struct slab_name *name);

#define FOLDER_NAME_BYTES 112 /* of the longest: a temporary file's */

void folder_file_name(const struct slab_key *key, enum slab_kind kind, char name[FOLDER_NAME_BYTES]);
void folder_temporary_name(struct folder *folder, const struct slab_key *key, enum slab_kind kind,
                           char name[FOLDER_NAME_BYTES]);

/* Says what could not be done with which file; code is a negative errno. Returns the hearth_code that stands for it. */
int folder_refuse(const struct folder *folder, const char *name, const char *deed, int code, hearth_error *error);

/* The folder's own look at a file: its front, decoded, and what is needed to read on. */
struct folder_file {
    int fd;
    uint64_t size;
    uint8_t *front; /* from malloc */
    size_t front_size;
    struct slab_head head;
};

/* 0, or as folder_read(); folder_file_close() only where it is 0. */
int folder_file_open(struct folder *folder, const struct slab_key *key, enum slab_kind kind, struct folder_file *file,
                     hearth_error *error);
void folder_file_close(struct folder *folder, struct folder_file *file);

/* Reads and checks the rest; the file's head moves to the slab where it is 0. */
int folder_file_read(struct folder *folder, struct folder_file *file, struct slab *slab, hearth_error *error);

#endif
