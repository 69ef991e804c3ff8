/* The table of identities.h: a hash table under a mutex of its own, which is held for a look-up alone. */
#include "lib/events/identities.h"

#include "base/hash_table.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A name takes some hundred bytes, its salt up to some thousand: this is memory for those who send a salt of their own
 * with every request. */
enum { MOST_NAMES = 16384 };

struct known {
    struct hash_link link;
    struct identity identity;
    struct identity_known known; /* the texts are its own, but for the model's */
};

struct identities {
    pthread_mutex_t mutex;
    struct hash_table table;
    char **models;
    size_t n_models;
};

struct identities *identities_open(void)
{
    struct identities *identities = mem_alloc(sizeof *identities);
    pthread_mutex_init(&identities->mutex, NULL);
    return identities;
}

void identities_close(struct identities *identities)
{
    if (identities == NULL) return;
    struct hash_link *link;
    for (size_t bucket = 0; (link = hash_any(&identities->table, &bucket)) != NULL;) {
        struct known *known = container_of(struct known, link, link);
        hash_remove(&identities->table, link);
        free((char *)known->known.name.adapters);
        free((char *)known->known.name.salt);
        free(known);
    }
    hash_release(&identities->table);
    for (size_t i = 0; i < identities->n_models; i++) free(identities->models[i]);
    free(identities->models);
    pthread_mutex_destroy(&identities->mutex);
    free(identities);
}

/* Both digests are as good as random. */
static uint64_t hash_of(const struct identity *identity)
{
    uint64_t model, context;
    memcpy(&model, identity->model, sizeof model);
    memcpy(&context, identity->context, sizeof context);
    return model ^ context;
}

static struct known *find(const struct identities *identities, const struct identity *identity)
{
    struct hash_link *link = hash_first(&identities->table, hash_of(identity));
    for (; link != NULL; link = hash_next(link)) {
        struct known *known = container_of(struct known, link, link);
        if (identity_equal(&known->identity, identity)) return known;
    }
    return NULL;
}

const struct identity_known *identities_find(struct identities *identities, const struct identity *identity)
{
    pthread_mutex_lock(&identities->mutex);
    struct known *known = find(identities, identity);
    pthread_mutex_unlock(&identities->mutex);
    return known == NULL ? NULL : &known->known;
}

const char *identities_model(struct identities *identities, size_t i)
{
    pthread_mutex_lock(&identities->mutex);
    const char *model = i < identities->n_models ? identities->models[i] : NULL;
    pthread_mutex_unlock(&identities->mutex);
    return model;
}

/* The name of the model that is kept. */
static const char *keep_model(struct identities *identities, const char *model)
{
    for (size_t i = 0; i < identities->n_models; i++)
        if (strcmp(identities->models[i], model) == 0) return identities->models[i];
    identities->models = mem_grow(identities->models, identities->n_models + 1, sizeof *identities->models);
    return identities->models[identities->n_models++] = mem_strdup(model);
}

/* The first eight bytes of the key of no tokens: the key of a prefix is made of the identity and its tokens. */
static uint64_t seed_of(const struct identity *identity)
{
    struct slab_key key = slab_key_of(identity, NULL, 0);
    uint64_t seed = 0;
    for (size_t i = 0; i < sizeof seed; i++) seed = seed << 8 | key.v[i];
    return seed;
}

static void keep(struct identities *identities, const struct identity *identity, const struct identity_name *name)
{
    struct known *known = mem_alloc(sizeof *known);
    const char *salt = name->salt != NULL && name->salt[0] != '\0' ? name->salt : NULL;
    known->identity = *identity;
    known->known.seed = seed_of(identity);
    known->known.name = (struct identity_name){.model = keep_model(identities, name->model),
                                               .adapters = mem_strdup(name->adapters),
                                               .salt = mem_strdup(salt),
                                               .by_state = name->by_state};
    hash_add(&identities->table, &known->link, hash_of(identity));
}

enum identities_added identities_add(struct identities *identities, const struct identity *identity,
                                     const struct identity_name *name)
{
    enum identities_added added = IDENTITIES_OLD;
    pthread_mutex_lock(&identities->mutex);
    if (find(identities, identity) == NULL) {
        size_t n_models = identities->n_models;
        added = identities->table.n < MOST_NAMES ? IDENTITIES_NEW : IDENTITIES_FULL;
        if (added == IDENTITIES_NEW) keep(identities, identity, name);
        if (identities->n_models > n_models) added = IDENTITIES_NEW_MODEL;
    }
    pthread_mutex_unlock(&identities->mutex);
    return added;
}
