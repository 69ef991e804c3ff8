/* The folders of the KV store's tiers and the slabs in them, read without an instance, for hearth_kv_list(), _verify(),
 * _show(), _gc() and _clear(). They belong to the thread that opened them. */
#ifndef LIB_REPORTS_KV_FOLDERS_H
#define LIB_REPORTS_KV_FOLDERS_H

#include "config/config.h"
#include "store/backends/folder.h"
#include "store/store.h"

#define KV_FOLDERS STORE_TIERS

struct kv_folder {
    const char *tier;
    uint64_t quota;        /* bytes; 0: the tier is off */
    struct folder *folder; /* NULL: there is none, or the tier is in memory */
};

/* Opens the folders that exist; none is created. `to_read`: a server may go on using them. Otherwise this process locks
 * them (HEARTH_UNAVAILABLE where a server has one). A folder of a tier that is off is left out where opening it fails.
 */
int kv_open(struct kv_folder folders[KV_FOLDERS], const hearth_config *config, bool to_read, hearth_error *error);
void kv_close(struct kv_folder folders[KV_FOLDERS]);

enum kv_fault {
    KV_WHOLE,
    KV_DAMAGED,  /* its bytes prove it: lengths, checksums or key are wrong */
    KV_DETACHED, /* its parent is missing */
    KV_UNREAD    /* reading failed, which proves nothing about the slab */
};

struct kv_slab {
    const char *tier;
    struct slab_head head; /* of a file that could not be read only key and kind */
    uint64_t size;         /* bytes */
    enum kv_fault fault;   /* found so far; kv_look() checks the head only */
    char *damage;          /* the fault as a line of text; NULL: none was found */
    bool gone;             /* the server that uses the folder removed it meanwhile */
};

/* The name under which a server stored slabs of a model. */
struct kv_model {
    uint8_t model[SHA256_BYTES];
    char name[STORE_MODEL_NAME]; /* "": not recorded */
};

/* Zeroed: none. */
struct kv_slabs {
    struct kv_slab *v;
    size_t n, cap;
    struct kv_model *models; /* of all slabs */
    size_t n_models;
    const char *tier; /* of the folder that is being scanned */
    bool unknown;     /* the content of some slabs is unknown: they could not be read, or are of a newer version */
};

/* Adds the slabs of a folder from their heads, parents before children. */
int kv_look(struct kv_slabs *slabs, const struct kv_folder *folder, hearth_error *error);

/* The same, and reads and checks every slab whole (kv_check.c): takes as long as reading the folder from disk. */
int kv_check(struct kv_slabs *slabs, const struct kv_folder *folder, hearth_error *error);

/* The recorded name of a model; "": none. */
const char *kv_model_name(const struct kv_slabs *slabs, const uint8_t model[SHA256_BYTES]);

void kv_slabs_move(struct kv_slabs *to, struct kv_slabs *from);
void kv_slabs_release(struct kv_slabs *slabs);

#endif
