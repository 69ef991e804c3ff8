/* Bringing the slabs of hits into memory, in order, some way ahead of what was taken.
 *
 * A slab is in memory once, as the image that its entry points to, for all hits that want it, and goes with the last of
 * them. A fetcher holds on to what it works at (a lease and an image, or a hit that it joins), so that whoever asked
 * may go meanwhile. Nothing of a file is believed: it is used if it is whole, and stands for exactly these tokens. */
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/private.h"

#include <stdlib.h>
#include <string.h>

#define AHEAD_BYTES ((uint64_t)256 << 20)

/* ---- Images, with the mutex ---- */

static struct image *image_use(struct entry *entry)
{
    if (entry->user == NULL) entry->user = mem_alloc(sizeof(struct image));
    struct image *image = entry->user;
    image->users++;
    return image;
}

static void image_drop(struct entry *entry, struct image *image, struct image **garbage)
{
    if (--image->users > 0 || image->stays) return;
    entry->user = NULL;
    image->next = *garbage;
    *garbage = image;
}

/* ---- What a hit waits for, with the mutex ---- */

static bool joins(const struct store_hit *hit)
{
    return hit->join == JOIN_WANTED || hit->join == JOIN_RUNNING;
}

static bool has_row_image(const struct store_hit *hit, int state)
{
    size_t i = 0;
    while (i < hit->n_rows && (int)hit->parts[i].image->state != state) i++;
    return i < hit->n_rows;
}

/* What store_take() would say. */
static enum store_next next_of(const struct store_hit *hit)
{
    if (hit->lost) return STORE_LOST;
    if (joins(hit)) return has_row_image(hit, IMAGE_LOST) ? STORE_LOST : STORE_PENDING;
    if (hit->join == JOIN_DONE) return STORE_PIECE;
    if (hit->next == hit->n_parts) return STORE_END;
    const struct image *image = hit->parts[hit->next].image;
    if (image == NULL) return STORE_PENDING;
    if (image->state == IMAGE_LOST) return STORE_LOST;
    return image->state == IMAGE_THERE ? STORE_PIECE : STORE_PENDING;
}

/* What is joined is wanted whole. */
static void look_ahead(struct store_hit *hit)
{
    struct fetcher *fetcher = &hit->store->fetcher;
    while (hit->ahead < hit->n_parts) {
        struct part *part = &hit->parts[hit->ahead];
        bool needed = hit->ahead == hit->next || (joins(hit) && hit->ahead < hit->n_rows);
        if (!needed && fetcher->ahead_bytes + part->entry->size > AHEAD_BYTES) break;
        part->image = image_use(part->entry);
        fetcher->ahead_bytes += part->entry->size;
        hit->ahead++;
    }
    pthread_cond_broadcast(&fetcher->work);
}

static void drop_part(struct store_hit *hit, struct part *part, struct image **garbage)
{
    if (part->image == NULL) return;
    image_drop(part->entry, part->image, garbage);
    part->image = NULL;
    hit->store->fetcher.ahead_bytes -= part->entry->size;
}

static void drop_held(struct store_hit *hit, struct image **garbage)
{
    if (hit->held == NULL) return;
    drop_part(hit, hit->held, garbage);
    hit->held = NULL;
}

/* Users of hits whose next piece has come; each is entered. */
static size_t collect_waiting(struct store *store, const struct store_user ***users)
{
    size_t n = 0, cap = 0;
    *users = NULL;
    for (struct store_hit *hit = store->fetcher.hits; hit != NULL; hit = hit->next_hit) {
        if (!hit->waiting || hit->closed || next_of(hit) == STORE_PENDING) continue;
        hit->waiting = false;
        if (n == cap) {
            cap = cap == 0 ? 4 : 2 * cap;
            *users = mem_grow(*users, cap, sizeof(struct store_user *));
        }
        (*users)[n++] = hit->user;
        user_enter(store, hit->user);
    }
    return n;
}

/* ---- Beginning and ending ---- */

static void list_append(struct fetcher *fetcher, struct store_hit *hit)
{
    struct store_hit **end = &fetcher->hits;
    while (*end != NULL) end = &(*end)->next_hit;
    hit->next_hit = NULL;
    *end = hit;
}

static void list_remove(struct fetcher *fetcher, struct store_hit *hit)
{
    struct store_hit **at = &fetcher->hits;
    while (*at != hit) at = &(*at)->next_hit;
    *at = hit->next_hit;
}

/* The first n tokens' rows are those of the chain, each entry's up to where the one after it begins. */
static void list_rows(struct store_hit *hit, struct entry *deepest, int32_t n)
{
    size_t depth = 0;
    for (const struct entry *entry = deepest; entry != NULL; entry = entry->parent) depth += entry->start < n;
    hit->n_rows = hit->n_parts = depth;
    hit->parts = mem_alloc((depth + 1) * sizeof *hit->parts);
    for (struct entry *entry = deepest; entry != NULL; entry = entry->parent) {
        if (entry->start >= n) continue;
        hit->parts[--depth] = (struct part){.entry = entry, .from = entry->start, .to = n};
        n = entry->start;
    }
}

static void list_parts(struct store_hit *hit, int32_t n)
{
    const struct store_codec *codec = &hit->user->codec;
    const struct match *match = &hit->matches[hit->tier];
    bool state = codec->moves || !codec->rows;
    list_rows(hit, !codec->rows ? NULL : state ? match->state->parent : match->rows, n);
    if (!state || match->n_state != n) return;
    hit->parts[hit->n_parts++] = (struct part){.entry = match->state, .from = match->state->start, .to = n};
}

void store_fetch(struct store_hit *hit, int32_t n)
{
    struct store *store = hit->store;
    hit->fetching = true;
    if (n > 0) list_parts(hit, n);
    if (hit->n_rows > 0 && !hit->user->codec.appends) hit->join = JOIN_WANTED;
    if (hit->n_parts > 0) {
        struct tier *tier = &store->tiers[hit->tier];
        uint32_t hits = index_touch(tier->index, hit->parts[hit->n_parts - 1].entry, clock_unix_ms());
        if (tier->folder != NULL) hit->hits = hits;
    }
    store_lock(store);
    hit->waiting = true;
    list_append(&store->fetcher, hit);
    look_ahead(hit);
    store_unlock(store);
}

void store_skip(struct store_hit *hit, int32_t n)
{
    struct store *store = hit->store;
    struct image *garbage = NULL;
    store_lock(store);
    bool whole = hit->join != JOIN_NONE;
    while (!whole && hit->next < hit->n_rows && hit->parts[hit->next].to <= n)
        drop_part(hit, &hit->parts[hit->next++], &garbage);
    if (hit->ahead < hit->next) hit->ahead = hit->next;
    look_ahead(hit);
    store_unlock(store);
    images_free(garbage);
}

bool store_is_fetching(const struct store_hit *hit)
{
    return hit->fetching;
}

/* With the mutex: a hit that nobody holds any more. */
static void abandon(struct store_hit *hit, struct image **garbage)
{
    list_remove(&hit->store->fetcher, hit);
    for (size_t i = 0; i < hit->n_parts; i++) drop_part(hit, &hit->parts[i], garbage);
}

void store_hit_close(struct store_hit *hit)
{
    if (hit == NULL) return;
    struct store *store = hit->store;
    struct image *garbage = NULL;
    if (hit->fetching) {
        store_lock(store);
        bool joining = hit->join == JOIN_RUNNING;
        hit->closed = true;
        if (!joining) abandon(hit, &garbage);
        store_unlock(store);
        images_free(garbage);
        if (joining) return; /* its fetcher ends it */
    }
    hit_release(hit);
}

/* ---- Taking ---- */

static struct store_piece piece_of(const struct part *part, enum slab_kind kind)
{
    return (struct store_piece){
        .kind = kind, .bytes = part->image->payload, .size = part->image->size, .from = part->from, .to = part->to};
}

static void take_joined(struct store_hit *hit, struct store_piece *piece)
{
    *piece = (struct store_piece){
        .kind = SLAB_ROWS, .bytes = hit->joined.v, .size = hit->joined.len, .to = hit->parts[hit->n_rows - 1].to};
    hit->join = JOIN_TAKEN;
}

static void take_part(struct store_hit *hit, struct store_piece *piece)
{
    struct part *part = &hit->parts[hit->next++];
    *piece = piece_of(part, part->entry->kind);
    hit->held = part;
}

enum store_next store_take(struct store_hit *hit, struct store_piece *piece)
{
    struct store *store = hit->store;
    struct image *garbage = NULL;
    store_lock(store);
    drop_held(hit, &garbage);
    if (hit->join == JOIN_TAKEN) buf_release(&hit->joined);
    look_ahead(hit);
    enum store_next next = next_of(hit);
    hit->lost = next == STORE_LOST;
    hit->waiting = next == STORE_PENDING;
    if (next == STORE_PIECE && hit->join == JOIN_DONE)
        take_joined(hit, piece);
    else if (next == STORE_PIECE)
        take_part(hit, piece);
    store_unlock(store);
    images_free(garbage);
    return next;
}

/* ---- Reading ---- */

struct task {
    enum { TASK_NONE, TASK_NOTE, TASK_READ, TASK_JOIN } what; /* with a note where `hits` is not 0 */
    struct tier *tier;
    struct identity identity;
    struct entry *entry; /* of a read: leased */
    struct image *image;
    struct store_hit *hit; /* of a join */
    struct key key;        /* of a note, which holds on to nothing: it is no loss where the slab goes meanwhile */
    enum slab_kind kind;
    uint32_t hits;
};

/* Without the mutex: nobody else touches an image that is being loaded. */
static int read_slab(struct store *store, const struct task *task, struct slab *slab)
{
    hearth_error error = {0};
    const struct entry *entry = task->entry;
    int64_t started = clock_now(clock_monotonic());
    int result = folder_read(task->tier->folder, &entry->key, entry->kind, slab, &error);
    if (result == 0 && !index_stands_for(task->tier->index, entry, &slab->head)) {
        slab_release(slab);
        result = error_set(&error, HEARTH_INVALID, "it does not stand for the tokens that it was stored for");
    }
    metric_add(&store->stats.load_ns, clock_now(clock_monotonic()) - started);
    if (result == 0) {
        metric_add(&store->stats.read_bytes, (int64_t)slab->size);
        return 0;
    }
    char name[2 * SHA256_BYTES + 1];
    sha256_to_hex(entry->key.v, name);
    log_event(LOG_WARN, LOG_GROUP, "a slab cannot be used", log_str("tier", store_tier_names[task->tier->id]),
              log_str("key", name), log_str("reason", error.message));
    return result;
}

/* Whoever waits for it is told only after it has left the index: the next look does not find it again. Too little
 * memory, and a disk that fails for a moment, are nobody's damage: what hangs on it stays. A slab of this process that
 * claims to be of a newer version is a damaged one. */
static void drop_lost(struct store *store, const struct task *task, int result)
{
    bool damaged = result == HEARTH_INVALID || result == HEARTH_UNSUPPORTED;
    if (result == 0 || result == HEARTH_NO_MEMORY || result == HEARTH_IO) return;
    if (damaged) metric_add(&store->stats.corrupt_files, 1);
    tier_drop(store, task->tier, task->entry, damaged);
}

/* With the mutex. */
static void fill_image(struct image *image, struct slab *slab, int result)
{
    image->state = result == 0 ? IMAGE_THERE : IMAGE_LOST;
    if (result != 0) return;
    image->bytes = slab->bytes;
    image->payload = slab->payload;
    image->size = (size_t)slab->head.payload_size;
    slab->bytes = NULL;
}

static void wake_waiting(struct store *store)
{
    const struct store_user **users;
    store_lock(store);
    size_t n = collect_waiting(store, &users);
    store_unlock(store);
    users_wake(store, users, n);
    free(users);
}

/* The lease is given back together with the news: who has read all of it and closed its hit finds that nothing holds
 * it any more. */
static void run_read(struct store *store, const struct task *task)
{
    struct slab slab = {0};
    struct image *garbage = NULL;
    int result = read_slab(store, task, &slab);
    drop_lost(store, task, result);
    store_lock(store);
    fill_image(task->image, &slab, result);
    image_drop(task->entry, task->image, &garbage);
    index_unlease(task->tier->index, task->entry);
    pthread_cond_broadcast(&store->fetcher.work); /* a join may be possible now */
    store_unlock(store);
    slab_release(&slab);
    images_free(garbage);
    wake_waiting(store);
}

/* ---- Joining ---- */

static bool join(struct store_hit *hit)
{
    struct store_piece *pieces = mem_alloc(hit->n_rows * sizeof *pieces);
    int64_t started = clock_now(clock_monotonic());
    for (size_t i = 0; i < hit->n_rows; i++) pieces[i] = piece_of(&hit->parts[i], SLAB_ROWS);
    bool joined = hit->user->codec.join(hit->user->codec.ud, pieces, hit->n_rows, &hit->joined);
    metric_add(&hit->store->stats.load_ns, clock_now(clock_monotonic()) - started);
    free(pieces);
    if (!joined) log_event(LOG_ERROR, LOG_GROUP, "slabs could not be joined", log_int("tokens", hit->n));
    return joined;
}

static void run_join(struct store *store, struct store_hit *hit)
{
    struct image *garbage = NULL;
    const struct store_user *user = hit->user;
    bool joined = join(hit);
    store_lock(store);
    hit->join = JOIN_DONE;
    hit->lost = !joined;
    for (size_t i = 0; i < hit->n_rows; i++) drop_part(hit, &hit->parts[i], &garbage);
    hit->next = hit->n_rows;
    look_ahead(hit);
    bool closed = hit->closed;
    if (closed) abandon(hit, &garbage);
    user_leave(store, user);
    store_unlock(store);
    images_free(garbage);
    if (closed) hit_release(hit);
    wake_waiting(store);
}

/* ---- The threads, with the mutex ---- */

static bool can_join(const struct store_hit *hit)
{
    return hit->join == JOIN_WANTED && !has_row_image(hit, IMAGE_ABSENT) && !has_row_image(hit, IMAGE_LOADING) &&
           !has_row_image(hit, IMAGE_LOST);
}

static struct part *part_to_read(struct store_hit *hit)
{
    for (size_t i = hit->next; i < hit->ahead; i++)
        if (hit->parts[i].image->state == IMAGE_ABSENT) return &hit->parts[i];
    return NULL;
}

/* Use is noted before anything is read: the notes of hits that follow each other do so, too. */
static void add_note(struct store_hit *hit, struct task *task)
{
    if (hit->hits == 0) return;
    const struct entry *entry = hit->parts[hit->n_parts - 1].entry;
    if (task->what == TASK_NONE) task->what = TASK_NOTE;
    task->key = entry->key;
    task->kind = entry->kind;
    task->hits = hit->hits;
    hit->hits = 0;
}

static struct task task_of(struct store_hit *hit)
{
    struct task task = {.tier = &hit->store->tiers[hit->tier], .identity = hit->identity};
    struct part *part = hit->lost ? NULL : part_to_read(hit);
    if (can_join(hit)) {
        task.what = TASK_JOIN;
        task.hit = hit;
        hit->join = JOIN_RUNNING;
        user_enter(hit->store, hit->user);
    } else if (part != NULL) {
        task.what = TASK_READ;
        task.entry = part->entry;
        task.image = image_use(part->entry);
        task.image->state = IMAGE_LOADING;
        index_lease(task.tier->index, task.entry);
    }
    add_note(hit, &task);
    return task;
}

/* Whoever has been served goes to the end of the line. */
static struct task take_task(struct fetcher *fetcher)
{
    for (struct store_hit *hit = fetcher->hits; hit != NULL; hit = hit->next_hit) {
        struct task task = task_of(hit);
        if (task.what == TASK_NONE) continue;
        list_remove(fetcher, hit);
        list_append(fetcher, hit);
        return task;
    }
    return (struct task){0};
}

static void run_task(struct store *store, const struct task *task)
{
    if (task->hits != 0) folder_note_use(task->tier->folder, &task->key, task->kind, task->hits, clock_unix_ms());
    if (task->what == TASK_READ) run_read(store, task);
    if (task->what == TASK_JOIN) run_join(store, task->hit);
}

static void *run(void *ud)
{
    struct store *store = ud;
    store_lock(store);
    while (!store->closing) {
        struct task task = take_task(&store->fetcher);
        if (task.what == TASK_NONE) {
            pthread_cond_wait(&store->fetcher.work, &store->mutex);
            continue;
        }
        store_unlock(store);
        run_task(store, &task);
        store_lock(store);
    }
    store_unlock(store);
    return NULL;
}

void fetcher_open(struct store *store)
{
    pthread_cond_init(&store->fetcher.work, NULL);
    for (int i = 0; i < FETCHERS; i++) pthread_create(&store->fetcher.threads[i], NULL, run, store);
}

void fetcher_close(struct store *store)
{
    store_lock(store);
    pthread_cond_broadcast(&store->fetcher.work);
    store_unlock(store);
    for (int i = 0; i < FETCHERS; i++) pthread_join(store->fetcher.threads[i], NULL);
    pthread_cond_destroy(&store->fetcher.work);
}
