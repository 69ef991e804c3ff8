/* The fixture of the store's tests: a store in a folder of its own under /tmp or (ram, ram_file) /dev/shm, and one user
 * of it. */
#ifndef FAKES_STORE_RIG_H
#define FAKES_STORE_RIG_H

#include "fakes/fake_user.h"
#include "fakes/long_timeouts.h"

struct rig {
    struct store_params params; /* may be changed before rig_start() */
    char root[64];
    char paths[STORE_TIERS][96];
    struct store *store;
    struct fake_user user;
    const char *salt;
};

/* One tier, to which saves go; stride 16, a quota that is never reached; a user with rows that can be appended. */
void rig_init(struct rig *rig, enum store_tier tier);
void rig_start(struct rig *rig); /* opens the store, and waits until it is scanned */
void rig_stop(struct rig *rig);  /* closes it */
void rig_release(struct rig *rig);
void rig_lose_folder(struct rig *rig, enum store_tier tier); /* removes it */

/* Adds a second tier. */
void rig_add_tier(struct rig *rig, enum store_tier tier, uint64_t quota);

/* Saves one event: rows [from, n), and the state at n if the codec has states. Returns the last ticket. */
uint64_t rig_save_from(struct rig *rig, const int32_t *tokens, int32_t from, int32_t n);

/* Saves what is not stored yet, and waits. */
void rig_keep(struct rig *rig, const int32_t *tokens, int32_t n);
void rig_wait(struct rig *rig, uint64_t ticket);

struct store_hit *rig_find(struct rig *rig, const int32_t *tokens, int32_t n);

/* Looks up once the parent that the query names is stored or not coming, or the deadline has passed. */
struct store_hit *rig_find_after_parent(struct rig *rig, const struct store_query *query);
int32_t rig_found(struct rig *rig, const int32_t *tokens, int32_t n);
int32_t rig_covered(struct rig *rig, const int32_t *tokens, int32_t n);

/* Looks up, fetches everything found, and checks every byte. Returns how many tokens were fetched: all that were found,
 * unless something was lost; -1: a byte was wrong. Counted as the lookup of a request. */
int32_t rig_restore(struct rig *rig, const int32_t *tokens, int32_t n);
int32_t rig_take_all(struct rig *rig, struct store_hit *hit, const int32_t *tokens, bool *lost);

struct store_tier_status rig_status(struct rig *rig);

/* Sum of the sizes of the files in the tier's folder (without "quarantine" and the index file), and their number. */
uint64_t rig_folder_bytes(const struct rig *rig, size_t *files);

/* Calls `each` with the path of every slab file of the tier's folder. */
void rig_each_file(const struct rig *rig, void (*each)(void *ud, const char *path), void *ud);

/* ---- Tokens ---- */

struct dice {
    uint64_t state;
};

uint64_t dice_roll(struct dice *dice, uint64_t sides);
struct tokens some_tokens(uint64_t seed, size_t n);
void dice_tokens(struct dice *dice, struct tokens *tokens, size_t n, int32_t kinds); /* appends */

#endif
