/* A user of the store whose rows can be checked: each is a hash of its position, of all tokens up to it and of the
 * user's seed, so that a row of another prefix, position or user is always noticed.
 *
 * A payload holds the first halves of all its rows ("keys"), then the second halves ("values"). */
#ifndef FAKES_FAKE_USER_H
#define FAKES_FAKE_USER_H

#include "store/store.h"

#include <pthread.h>

struct fake_user {
    struct store_user user; /* passed to the store */
    uint64_t seed;          /* of its rows and its identity */
    size_t row_bytes;       /* a multiple of 16 */
    size_t state_bytes;     /* of a STATE payload; a multiple of 8 */
    pthread_mutex_t mutex;
    pthread_cond_t woken;
    uint64_t wakes;
};

/* Sets up the user with the flags of `codec` (rows, has_state, appends). */
void fake_user_init(struct fake_user *fake, uint64_t seed, struct store_codec codec);
void fake_user_release(struct fake_user *fake);

/* A copy of its rows [from, to), or its state at `to`, in memory from store_buffer(). */
void *fake_user_copy(const struct fake_user *fake, struct store *store, enum slab_kind kind, const int32_t *tokens,
                     int32_t from, int32_t to, size_t *size);

/* Whether the bytes of the piece are right for these tokens. */
bool fake_user_check(const struct fake_user *fake, const int32_t *tokens, const struct store_piece *piece);

/* How often it was woken; and waits for more than `seen`, 30 s at most; false: it was not. */
uint64_t fake_user_wakes(struct fake_user *fake);
bool fake_user_wait(struct fake_user *fake, uint64_t seen);

#endif
