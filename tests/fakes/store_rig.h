/* A store in a folder of its own under /tmp or (ram, ram_file) /dev/shm, and one user of it: what the tests of the
 * store have in common. */
#ifndef FAKES_STORE_RIG_H
#define FAKES_STORE_RIG_H

#include "fakes/fake_user.h"
#include "fakes/patient.h"

struct rig {
    struct store_params params; /* may be changed before rig_start() */
    char root[64];
    char paths[STORE_TIERS][96];
    struct store *store;
    struct fake_user user;
    const char *salt;
};

/* Saves go to the tier, the only one that is on; stride 16, plenty of room; a user of rows that appends. */
void rig_init(struct rig *rig, enum store_tier tier);
void rig_start(struct rig *rig); /* opens the store, and waits for its folders */
void rig_stop(struct rig *rig);  /* closes it */
void rig_release(struct rig *rig);
void rig_lose_folder(struct rig *rig, enum store_tier tier); /* somebody removes it */

/* A second tier. */
void rig_add_tier(struct rig *rig, enum store_tier tier, uint64_t quota);

/* One event: rows of [from, n), and the state at n where the user has one. Returns the last ticket. */
uint64_t rig_save_from(struct rig *rig, const int32_t *tokens, int32_t from, int32_t n);

/* Saves what is not covered yet, and waits. */
void rig_keep(struct rig *rig, const int32_t *tokens, int32_t n);
void rig_wait(struct rig *rig, uint64_t ticket);

struct store_hit *rig_find(struct rig *rig, const int32_t *tokens, int32_t n);

/* Finds when the parent that the query names is there, is not coming, or the query's deadline has passed. */
struct store_hit *rig_find_after_parent(struct rig *rig, const struct store_query *query);
int32_t rig_found(struct rig *rig, const int32_t *tokens, int32_t n);
int32_t rig_covered(struct rig *rig, const int32_t *tokens, int32_t n);

/* Finds, fetches all of it, and checks every byte. Returns how many tokens came back: all that were found, unless
 * something was lost. -1: a wrong one. Counted as the request's lookup. */
int32_t rig_restore(struct rig *rig, const int32_t *tokens, int32_t n);
int32_t rig_take_all(struct rig *rig, struct store_hit *hit, const int32_t *tokens, bool *lost);

struct store_tier_status rig_status(struct rig *rig);

/* Sum of the sizes of the files in the tier's folder (not in "quarantine", nor the index file), and how many there are.
 */
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
