/* Setting up a store with one fake_user, and saving and fetching with it: every byte that comes back is checked. */
#include "fakes/store_rig.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_FILES = 4096 };

/* The deadline of waits that only a fault lets pass. */
static int64_t soon(void)
{
    return clock_now(clock_monotonic()) + clock_from_ms(30000);
}

static void complain(const char *what)
{
    fprintf(stderr, "store rig: %s\n", what);
    abort();
}

/* ---- Starting and stopping ---- */

void rig_init(struct rig *rig, enum store_tier tier)
{
    *rig = (struct rig){
        .params = {.stride = 16, .save_tier = tier, .backlog = 64 << 20, LONG_TIMEOUTS, .files = files_machine()}};
    snprintf(rig->root, sizeof rig->root, "%s/hearth-store-XXXXXX", tier == STORE_DISK ? "/tmp" : "/dev/shm");
    if (mkdtemp(rig->root) == NULL) complain("no folder");
    rig_add_tier(rig, tier, 256 << 20);
    fake_user_init(&rig->user, 7, (struct store_codec){.rows = true, .appends = true});
}

void rig_add_tier(struct rig *rig, enum store_tier tier, uint64_t quota)
{
    snprintf(rig->paths[tier], sizeof rig->paths[tier], "%s/%s", rig->root, store_tier_names[tier]);
    rig->params.tiers[tier].quota = quota;
    rig->params.tiers[tier].path = rig->paths[tier];
}

void rig_start(struct rig *rig)
{
    rig->store = store_open(&rig->params, NULL);
    if (!store_wait_ready(rig->store, soon())) complain("never ready");
}

void rig_stop(struct rig *rig)
{
    store_close(rig->store, CLOCK_NEVER);
    rig->store = NULL;
}

static int remove_one(const char *path, const struct stat *status, int what, struct FTW *walk)
{
    (void)status;
    (void)what;
    (void)walk;
    return remove(path);
}

void rig_lose_folder(struct rig *rig, enum store_tier tier)
{
    nftw(rig->paths[tier], remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void rig_release(struct rig *rig)
{
    rig_stop(rig);
    nftw(rig->root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    fake_user_release(&rig->user);
}

/* ---- Saving ---- */

static uint64_t save(struct rig *rig, enum slab_kind kind, const int32_t *tokens, int32_t from, int32_t to, bool last)
{
    size_t size;
    void *raw = fake_user_copy(&rig->user, rig->store, kind, tokens, from, to, &size);
    struct identity identity = identity_salted(&rig->user.user.identity, rig->salt);
    struct store_save what = {.user = &rig->user.user,
                              .identity = &identity,
                              .kind = kind,
                              .reason = SLAB_FINISH,
                              .tokens = tokens,
                              .from = from,
                              .to = to,
                              .raw = raw,
                              .size = size,
                              .last = last};
    return store_save(rig->store, &what);
}

uint64_t rig_save_from(struct rig *rig, const int32_t *tokens, int32_t from, int32_t n)
{
    const struct store_codec *codec = &rig->user.user.codec;
    bool state = codec->has_state || !codec->rows;
    uint64_t ticket = 0;
    if (codec->rows) ticket = save(rig, SLAB_ROWS, tokens, from, n, !state);
    if (state) ticket = save(rig, SLAB_STATE, tokens, from, n, true);
    return ticket;
}

void rig_wait(struct rig *rig, uint64_t ticket)
{
    if (ticket == 0) complain("a save was refused");
    if (!store_wait(rig->store, ticket, soon())) complain("a save never ends");
}

void rig_keep(struct rig *rig, const int32_t *tokens, int32_t n)
{
    int32_t covered = rig_covered(rig, tokens, n);
    rig_wait(rig, rig_save_from(rig, tokens, covered, n));
}

/* ---- Lookups and fetches ---- */

struct store_hit *rig_find(struct rig *rig, const int32_t *tokens, int32_t n)
{
    struct identity identity = identity_salted(&rig->user.user.identity, rig->salt);
    struct store_query query = {
        .user = &rig->user.user, .identity = &identity, .tokens = tokens, .n = n, .deadline = soon()};
    return store_find(rig->store, &query);
}

/* A thread that waits for a parent. */
struct waiter {
    struct store_user user;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool woken;
};

static void wake(void *ud)
{
    struct waiter *waiter = ud;
    pthread_mutex_lock(&waiter->mutex);
    waiter->woken = true;
    pthread_cond_signal(&waiter->changed);
    pthread_mutex_unlock(&waiter->mutex);
}

static void await_wake(struct waiter *waiter, int64_t deadline)
{
    struct clock *clock = clock_monotonic();
    pthread_mutex_lock(&waiter->mutex);
    while (!waiter->woken && clock_now(clock) < deadline)
        clock->wait(clock, &waiter->changed, &waiter->mutex, deadline);
    waiter->woken = false;
    pthread_mutex_unlock(&waiter->mutex);
}

struct store_hit *rig_find_after_parent(struct rig *rig, const struct store_query *query)
{
    struct waiter waiter = {.user = {.wake = wake, .ud = &waiter}, .mutex = PTHREAD_MUTEX_INITIALIZER};
    uint64_t ticket = 0;
    clock_cond_init(&waiter.changed);
    while (clock_now(clock_monotonic()) < query->deadline &&
           store_parent_is_coming(rig->store, query, &waiter.user, &ticket))
        await_wake(&waiter, query->deadline);
    store_remove_user(rig->store, &waiter.user);
    pthread_cond_destroy(&waiter.changed);
    return store_find(rig->store, query);
}

int32_t rig_found(struct rig *rig, const int32_t *tokens, int32_t n)
{
    struct store_hit *hit = rig_find(rig, tokens, n);
    int32_t found = store_hit_tokens(hit);
    store_hit_close(hit);
    return found;
}

int32_t rig_covered(struct rig *rig, const int32_t *tokens, int32_t n)
{
    struct store_hit *hit = rig_find(rig, tokens, n);
    int32_t covered = store_hit_covered(hit);
    store_hit_close(hit);
    return covered;
}

/* Waits for the next piece, or the end. */
static enum store_next next_piece(struct rig *rig, struct store_hit *hit, struct store_piece *piece)
{
    for (;;) {
        uint64_t seen = fake_user_wakes(&rig->user);
        enum store_next next = store_next_piece(hit, piece);
        if (next != STORE_PENDING) return next;
        if (!fake_user_wait(&rig->user, seen)) complain("never woken");
    }
}

int32_t rig_take_all(struct rig *rig, struct store_hit *hit, const int32_t *tokens, bool *lost)
{
    const struct store_codec *codec = &rig->user.user.codec;
    int32_t at = 0, state = 0;
    struct store_piece piece;
    enum store_next next;
    while ((next = next_piece(rig, hit, &piece)) == STORE_PIECE) {
        if (!fake_user_check(&rig->user, tokens, &piece)) return -1;
        if (piece.kind == SLAB_ROWS && piece.from != at) return -1;
        if (piece.kind == SLAB_ROWS) at = piece.to;
        if (piece.kind == SLAB_STATE) state = piece.to;
    }
    *lost = next == STORE_LOST;
    if (codec->rows && codec->has_state) return state == at ? at : 0;
    return codec->rows ? at : state;
}

int32_t rig_restore(struct rig *rig, const int32_t *tokens, int32_t n)
{
    bool lost;
    struct store_hit *hit = rig_find(rig, tokens, n);
    int32_t found = store_hit_tokens(hit);
    store_fetch(hit, found);
    int32_t taken = rig_take_all(rig, hit, tokens, &lost);
    if (!lost && taken != found) taken = -1;
    store_hit_count(hit, taken);
    store_hit_close(hit);
    return taken;
}

/* ---- Numbers ---- */

struct store_tier_status rig_status(struct rig *rig)
{
    struct store_tier_status status;
    store_tier_status(rig->store, rig->params.save_tier, &status);
    return status;
}

void rig_each_file(const struct rig *rig, void (*each)(void *ud, const char *path), void *ud)
{
    DIR *folder = opendir(rig->paths[rig->params.save_tier]);
    if (folder == NULL) return;
    for (struct dirent *item; (item = readdir(folder)) != NULL;) {
        char path[512];
        struct stat status;
        if (strncmp(item->d_name, "index", 5) == 0) continue;
        snprintf(path, sizeof path, "%s/%s", rig->paths[rig->params.save_tier], item->d_name);
        if (stat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) each(ud, path);
    }
    closedir(folder);
}

/* A file has two names between link() and unlink(): it is counted once. */
struct sum {
    uint64_t bytes;
    size_t files;
    ino_t seen[MOST_FILES];
};

static void add_file(void *ud, const char *path)
{
    struct sum *sum = ud;
    struct stat status;
    if (stat(path, &status) != 0) return;
    for (size_t i = 0; i < sum->files; i++)
        if (sum->seen[i] == status.st_ino) return;
    if (sum->files == MOST_FILES) complain("too many files");
    sum->seen[sum->files++] = status.st_ino;
    sum->bytes += (uint64_t)status.st_size;
}

uint64_t rig_folder_bytes(const struct rig *rig, size_t *files)
{
    struct sum sum = {0};
    rig_each_file(rig, add_file, &sum);
    if (files != NULL) *files = sum.files;
    return sum.bytes;
}

/* ---- Tokens ---- */

uint64_t dice_roll(struct dice *dice, uint64_t sides)
{
    dice->state = dice->state * 6364136223846793005u + 1442695040888963407u;
    return (dice->state >> 33) % sides;
}

struct tokens some_tokens(uint64_t seed, size_t n)
{
    struct dice dice = {seed};
    struct tokens tokens = {0};
    dice_tokens(&dice, &tokens, n, 50000);
    return tokens;
}

void dice_tokens(struct dice *dice, struct tokens *tokens, size_t n, int32_t kinds)
{
    while (n-- > 0) tokens_push(tokens, (int32_t)dice_roll(dice, (uint64_t)kinds));
}
