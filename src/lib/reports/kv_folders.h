/* What the commands on stored entries have in common: the folders of a configuration and what lies in them, without an
 * instance. Each belongs to the thread that opened it. */
#ifndef LIB_REPORTS_KV_FOLDERS_H
#define LIB_REPORTS_KV_FOLDERS_H

#include "config/config.h"
#include "store/folder.h"
#include "store/store.h"

#define KV_FOLDERS STORE_TIERS

struct kv_folder {
    const char *tier;
    uint64_t quota;        /* bytes; 0: the tier is off */
    struct folder *folder; /* NULL: there is none, or the tier is in memory */
};

/* Opens the folders there are: to read, so that whoever uses them is not disturbed, or for this process alone
 * (HEARTH_UNAVAILABLE where a server has one). None is made. A tier that is off is left out where it cannot be had. */
int kv_open(struct kv_folder folders[KV_FOLDERS], const hearth_config *config, bool to_read, hearth_error *error);
void kv_close(struct kv_folder folders[KV_FOLDERS]);

enum kv_fault {
    KV_WHOLE,
    KV_DAMAGED,  /* proved by its bytes: of no use */
    KV_DETACHED, /* what it hangs on is not there */
    KV_UNREAD    /* it could not be read, which says nothing of it */
};

struct kv_slab {
    const char *tier;
    struct slab_head head; /* of a file that cannot be read no more than key and kind */
    uint64_t size;
    enum kv_fault fault; /* as far as was looked; */
    char *damage;        /* what of it, for people; NULL: it is whole */
    bool gone;           /* removed meanwhile, by whoever uses the folder */
};

/* What a server called a model of which it stored something. */
struct kv_model {
    uint8_t model[SHA256_BYTES];
    char name[STORE_MODEL_NAME]; /* "": that is not known */
};

/* Zeroed: none. */
struct kv_slabs {
    struct kv_slab *v;
    size_t n, cap;
    struct kv_model *models; /* of all slabs */
    size_t n_models;
    const char *tier; /* of the folder that is being looked through */
    bool unknown; /* of some slabs it is not known what they hold: they could not be read, or are of a newer version */
};

/* Adds what lies in the folder: what others hang on comes before them. */
int kv_look(struct kv_slabs *slabs, const struct kv_folder *folder, hearth_error *error);

/* The same, each checked (kv_check.c): slow, as fast as the disk. */
int kv_check(struct kv_slabs *slabs, const struct kv_folder *folder, hearth_error *error);

/* "": it is not known. */
const char *kv_model_name(const struct kv_slabs *slabs, const uint8_t model[SHA256_BYTES]);

void kv_slabs_move(struct kv_slabs *to, struct kv_slabs *from);
void kv_slabs_release(struct kv_slabs *slabs);

#endif
