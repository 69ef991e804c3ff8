/* Bringing the slabs of hits into memory, in order, some way ahead of what was taken: of each tier by fetchers of its
 * own.
 *
 * A slab is in memory once, as the image that its entry points to, for all hits that want it, and goes with the last of
 * them. A fetcher holds on to what it works at (a lease and an image, or a hit that it joins), so that whoever asked
 * may go meanwhile. Nothing of a file is believed: it is used if it is whole, and stands for exactly these tokens. */
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/store_parts.h"

#include <stdlib.h>
#include <string.h>

#define AHEAD_BYTES ((uint64_t)256 << 20)

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

/* What store_next_piece() would say. */
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

static struct fetcher *fetcher_of(const struct store_hit *hit)
{
    return &hit->store->tiers[hit->tier].fetcher;
}

/* What is joined is wanted whole. */
static void look_ahead(struct store_hit *hit)
{
    struct fetcher *fetcher = fetcher_of(hit);
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
    fetcher_of(hit)->ahead_bytes -= part->entry->size;
}

static void drop_held(struct store_hit *hit, struct image **garbage)
{
    if (hit->held == NULL) return;
    drop_part(hit, hit->held, garbage);
    hit->held = NULL;
}

/* Users of the tier's hits whose next piece has come; each is entered. */
static size_t collect_waiting(struct tier *tier, const struct store_user ***users)
{
    size_t n = 0, cap = 0;
    *users = NULL;
    for (struct store_hit *hit = tier->fetcher.hits; hit != NULL; hit = hit->next_hit) {
        if (!hit->waiting || hit->closed || next_of(hit) == STORE_PENDING) continue;
        hit->waiting = false;
        if (n == cap) {
            cap = cap == 0 ? 4 : 2 * cap;
            *users = mem_grow(*users, cap, sizeof(struct store_user *));
        }
        (*users)[n++] = hit->user;
        user_enter(tier->store, hit->user);
    }
    return n;
}

/* Nothing has come for it since `progress_at`; what is being joined comes by computing. */
size_t fetcher_give_up(struct tier *tier, int64_t now, bool all, const struct store_user ***users, int64_t *next)
{
    int64_t patience = tier->store->params.fetch_timeout_ns;
    for (struct store_hit *hit = tier->fetcher.hits; hit != NULL; hit = hit->next_hit) {
        if (!hit->waiting || hit->closed || hit->join == JOIN_RUNNING || next_of(hit) != STORE_PENDING) continue;
        int64_t until = hit->progress_at + patience;
        if (all || until <= now)
            hit->lost = true;
        else if (until < *next)
            *next = until;
    }
    return collect_waiting(tier, users);
}

/* With the mutex: the watchdog is to know of it. How often its user asks meanwhile is no progress. */
static void await_progress(struct store_hit *hit)
{
    struct store *store = hit->store;
    if (!hit->waiting) hit->progress_at = clock_now(clock_monotonic());
    hit->waiting = true;
    if (hit->progress_at + store->params.fetch_timeout_ns < store->watch_until) pthread_cond_signal(&store->watch);
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
    bool state = codec->has_state || !codec->rows;
    list_rows(hit, !codec->rows ? NULL : state ? match->state->parent : match->rows, n);
    if (!state || match->n_state != n) return;
    hit->parts[hit->n_parts++] = (struct part){.entry = match->state, .from = match->state->start, .to = n};
}

/* With the mutex: uses are counted and noted in one order. */
static void note_use(struct tier *tier, struct entry *entry)
{
    struct fetcher *fetcher = &tier->fetcher;
    int64_t now_ms = clock_unix_ms();
    if (fetcher->n_notes == NOTES) {
        fetcher->first_note = (fetcher->first_note + 1) % NOTES;
        fetcher->n_notes--;
    }
    fetcher->notes[(fetcher->first_note + fetcher->n_notes++) % NOTES] =
        (struct note){{entry->key, entry->kind}, index_touch(tier->index, entry, now_ms), now_ms};
    pthread_cond_signal(&fetcher->work);
}

void store_fetch(struct store_hit *hit, int32_t n)
{
    struct store *store = hit->store;
    hit->fetching = true;
    if (n > 0) list_parts(hit, n);
    if (hit->n_rows > 0 && !hit->user->codec.appends) hit->join = JOIN_WANTED;
    store_lock(store);
    if (hit->n_parts > 0) note_use(&store->tiers[hit->tier], hit->parts[hit->n_parts - 1].entry);
    await_progress(hit);
    hit->lost = !tier_serves(&store->tiers[hit->tier]); /* it was found before the tier was set aside */
    list_append(fetcher_of(hit), hit);
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
    list_remove(fetcher_of(hit), hit);
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

enum store_next store_next_piece(struct store_hit *hit, struct store_piece *piece)
{
    struct store *store = hit->store;
    struct image *garbage = NULL;
    store_lock(store);
    drop_held(hit, &garbage);
    if (hit->join == JOIN_TAKEN) buf_release(&hit->joined);
    look_ahead(hit);
    enum store_next next = next_of(hit);
    hit->lost = next == STORE_LOST;
    if (next == STORE_PENDING)
        await_progress(hit);
    else
        hit->waiting = false;
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
    enum { TASK_NONE, TASK_NOTE, TASK_READ, TASK_JOIN } what;
    struct tier *tier;
    struct entry *entry; /* of a read: leased */
    struct image *image;
    struct store_hit *hit; /* of a join */
    struct note note;
};

static void log_unusable(const struct tier *tier, const struct entry *entry, const char *reason)
{
    char name[2 * SHA256_BYTES + 1];
    sha256_to_hex(entry->key.v, name);
    log_event(LOG_WARN, LOG_GROUP, "a slab cannot be used", log_str("tier", store_tier_names[tier->id]),
              log_str("key", name), log_str("reason", reason));
}

/* Without the mutex: nobody else touches an image that is being loaded. */
static int read_slab(const struct task *task, struct worker *worker, struct slab *slab)
{
    struct tier *tier = task->tier;
    struct store *store = tier->store;
    hearth_error error = {0};
    const struct slab_name name = {task->entry->key, task->entry->kind};
    int64_t started = clock_now(clock_monotonic());
    tier_begin_call(tier, worker, store->params.fetch_timeout_ns);
    int result = tier->backend->get(tier->backend, &name, slab, &error);
    tier_end_call(tier, worker);
    int64_t took = clock_now(clock_monotonic()) - started;
    metric_add(&store->stats.load_ns, took);
    if (result != 0) {
        log_unusable(tier, task->entry, error.message);
        return result;
    }
    metric_add(&store->stats.read_bytes, (int64_t)slab->bytes->size);
    store_lock(store);
    read_cost_note(&tier->price, slab->bytes->size, took, started + took);
    store_unlock(store);
    return 0;
}

/* A whole slab of its name, and yet not what the index took it for. One that begins elsewhere has taken over the name,
 * and the index file had not heard of it: the index is mended. Any other is damaged, whatever its checksums say. */
static int mismatch(const struct task *task, const struct slab *slab)
{
    const struct slab_head *head = &slab->head;
    struct tier *tier = task->tier;
    bool begins_elsewhere = head->end == task->entry->end && head->start != task->entry->start;
    log_unusable(tier, task->entry, "it does not stand for the tokens that it was stored for");
    if (!begins_elsewhere) return HEARTH_INVALID;
    tier_drop(tier, task->entry, false);
    index_adopt(tier->index, head, slab_size(head), clock_unix_ms());
    return HEARTH_NOT_FOUND;
}

/* Whoever waits for it hears of it only after it has left the index: the next look does not find it again. What could
 * not be read says nothing of what it holds: it is tried again later. */
static void lose_entry(const struct task *task, int result)
{
    struct tier *tier = task->tier;
    bool damaged = result == HEARTH_INVALID || result == HEARTH_UNSUPPORTED;
    if (damaged) metric_add(&tier->store->stats.corrupt_files, 1);
    if (damaged || result == HEARTH_NOT_FOUND) {
        tier_drop(tier, task->entry, result == HEARTH_INVALID); /* what is of a newer version is left alone */
        return;
    }
    index_mark_unreadable(tier->index, task->entry, clock_now(clock_monotonic()));
    store_lock(tier->store);
    tier->take_back_at = 0;
    if (result == HEARTH_UNAVAILABLE) tier_lose(tier, "the backend is gone");
    pthread_cond_signal(&tier->attend);
    store_unlock(tier->store);
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

/* With the mutex: those that wait for it are getting on. */
static void note_progress(const struct tier *tier, const struct image *image)
{
    int64_t now = clock_now(clock_monotonic());
    for (struct store_hit *hit = tier->fetcher.hits; hit != NULL; hit = hit->next_hit)
        for (size_t i = hit->next; i < hit->ahead; i++)
            if (hit->parts[i].image == image) hit->progress_at = now;
}

static void wake_waiting(struct tier *tier)
{
    const struct store_user **users;
    store_lock(tier->store);
    size_t n = collect_waiting(tier, &users);
    store_unlock(tier->store);
    users_wake(tier->store, users, n);
}

/* The lease is given back together with the news: who has read all of it and closed its hit finds that nothing holds
 * it any more. */
static void run_read(const struct task *task, struct worker *worker)
{
    struct store *store = task->tier->store;
    struct slab slab = {0};
    struct image *garbage = NULL;
    int result = read_slab(task, worker, &slab);
    if (result == 0 && !index_matches(task->tier->index, task->entry, &slab.head)) result = mismatch(task, &slab);
    if (result != 0)
        lose_entry(task, result);
    else
        index_mark_readable(task->tier->index, task->entry);
    store_lock(store);
    fill_image(task->image, &slab, result);
    note_progress(task->tier, task->image);
    image_drop(task->entry, task->image, &garbage);
    index_unlease(task->tier->index, task->entry);
    pthread_cond_broadcast(&task->tier->fetcher.work); /* a join may be possible now */
    store_unlock(store);
    slab_release(&slab);
    images_free(garbage);
    wake_waiting(task->tier);
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

static void run_join(struct store_hit *hit)
{
    struct store *store = hit->store;
    struct tier *tier = &store->tiers[hit->tier];
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
    wake_waiting(tier);
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

static struct task task_of(struct store_hit *hit)
{
    struct task task = {.tier = &hit->store->tiers[hit->tier]};
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
    return task;
}

static struct task take_note(struct tier *tier)
{
    struct fetcher *fetcher = &tier->fetcher;
    if (fetcher->noting || fetcher->n_notes == 0) return (struct task){0};
    struct task task = {.what = TASK_NOTE, .tier = tier, .note = fetcher->notes[fetcher->first_note]};
    fetcher->first_note = (fetcher->first_note + 1) % NOTES;
    fetcher->n_notes--;
    fetcher->noting = true;
    return task;
}

/* Whoever has been served goes to the end of the line. Nobody waits for notes: they come last, but before the end. */
static struct task take_task(struct tier *tier)
{
    struct fetcher *fetcher = &tier->fetcher;
    if (tier->store->closing) return take_note(tier);
    for (struct store_hit *hit = fetcher->hits; hit != NULL; hit = hit->next_hit) {
        struct task task = task_of(hit);
        if (task.what == TASK_NONE) continue;
        list_remove(fetcher, hit);
        list_append(fetcher, hit);
        return task;
    }
    return take_note(tier);
}

static void run_note(struct tier *tier, const struct note *note, struct worker *worker)
{
    tier_begin_call(tier, worker, tier->store->params.fetch_timeout_ns);
    tier->backend->note_use(tier->backend, &note->name, note->hits, note->used_ms);
    tier_end_call(tier, worker);
    store_lock(tier->store);
    tier->fetcher.noting = false;
    store_unlock(tier->store);
}

/* With the mutex: a worker of the tier that no thread has yet. */
static struct worker *take_worker(struct fetcher *fetcher)
{
    return &fetcher->workers[fetcher->n_workers++];
}

void *fetcher_main(void *ud)
{
    struct tier *tier = ud;
    struct store *store = tier->store;
    store_lock(store);
    struct worker *worker = take_worker(&tier->fetcher);
    for (;;) {
        struct task task = take_task(tier);
        if (task.what == TASK_NONE) {
            if (store->closing) break;
            pthread_cond_wait(&tier->fetcher.work, &store->mutex);
            continue;
        }
        store_unlock(store);
        if (task.what == TASK_READ) run_read(&task, worker);
        if (task.what == TASK_JOIN) run_join(task.hit);
        if (task.what == TASK_NOTE) run_note(tier, &task.note, worker);
        store_lock(store);
    }
    store_unlock(store);
    store_end_thread(store);
    return NULL;
}

void fetcher_init(struct fetcher *fetcher)
{
    pthread_cond_init(&fetcher->work, NULL);
}

void fetcher_release(struct fetcher *fetcher)
{
    pthread_cond_destroy(&fetcher->work);
}
