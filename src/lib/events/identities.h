/* What routers call the identities under which states are stored: the model's name, its adapters and the salt, which
 * an identity holds only as digests. A request makes its own known; what an earlier process stored under a salt is not
 * announced before a request brings the salt again.
 *
 * Any thread; names stay until the table is closed. */
#ifndef LIB_EVENTS_IDENTITIES_H
#define LIB_EVENTS_IDENTITIES_H

#include "store/slabs/slab_key.h"

#include <stdint.h>

struct identities;

struct identity_name {
    const char *model, *adapters, *salt; /* adapters, salt: NULL: the model's own, none */
    bool by_state;                       /* a prefix can be reused only up to a state */
};

/* A name as it is kept. */
struct identity_known {
    struct identity_name name;
    uint64_t seed; /* the number from which those of its blocks come */
};

enum identities_added { IDENTITIES_OLD, IDENTITIES_NEW, IDENTITIES_NEW_MODEL, IDENTITIES_FULL };

struct identities *identities_open(void);
void identities_close(struct identities *identities); /* NULL is fine */

/* Copies the name. OLD: the identity has one already, which stays. FULL: there are too many. */
enum identities_added identities_add(struct identities *identities, const struct identity *identity,
                                     const struct identity_name *name);

/* NULL: nobody has named it. */
const struct identity_known *identities_find(struct identities *identities, const struct identity *identity);

/* The models that were named, by the order in which they were; NULL: there are no more. */
const char *identities_model(struct identities *identities, size_t i);

#endif
