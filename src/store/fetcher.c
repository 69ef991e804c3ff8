/* Fetches: reads the slabs of hits into memory, in order and up to 256 MiB ahead of what the user consumed. Each tier
 * has fetcher threads of its own; everything here that changes is guarded by the store's mutex.
 *
 * A slab is in memory once for all hits that want it (hit.c). A fetcher holds a pin and a reference to what
 * it reads, or the hit whose rows it joins, so that the requester may leave meanwhile. No file is trusted: a slab is
 * used if it is whole and its identity and tokens equal the entry's. A hit that was closed while a fetcher joins its
 * rows is freed by that fetcher, by hit.c's hit_release(). */
#include "base/log.h"
#include "base/memory.h"
#include "store/store_struct.h"

#include <assert.h>
#include <stdlib.h>

#define READ_AHEAD_BYTES ((uint64_t)256 << 20)

/* ---- The state of a hit, with the mutex ---- */

static bool needs_join(const struct store_hit *hit)
{
    return hit->join == JOIN_WANTED || hit->join == JOIN_RUNNING;
}

static bool has_row_slab(const struct store_hit *hit, int state)
{
    size_t i = 0;
    while (i < hit->n_rows && (int)hit->parts[i].loaded->state != state) i++;
    return i < hit->n_rows;
}

/* The result of store_next_piece() now. */
static enum store_next next_piece_state(const struct store_hit *hit)
{
    if (hit->lost) return STORE_LOST;
    if (needs_join(hit)) return has_row_slab(hit, LOAD_FAILED) ? STORE_LOST : STORE_PENDING;
    if (hit->join == JOIN_DONE) return STORE_PIECE;
    if (hit->next == hit->n_parts) return STORE_END;
    const struct loaded_slab *loaded = hit->parts[hit->next].loaded;
    if (loaded == NULL) return STORE_PENDING;
    if (loaded->state == LOAD_FAILED) return STORE_LOST;
    return loaded->state == LOAD_DONE ? STORE_PIECE : STORE_PENDING;
}

static struct fetcher *fetcher_of(const struct store_hit *hit)
{
    return &hit->store->tiers[hit->tier].fetcher;
}

/* Requests slabs: the next one, as many after it as the limit allows, and all rows where they are to be joined. */
static void read_ahead(struct store_hit *hit)
{
    struct fetcher *fetcher = fetcher_of(hit);
    while (hit->requested < hit->n_parts) {
        struct part *part = &hit->parts[hit->requested];
        bool needed = hit->requested == hit->next || (needs_join(hit) && hit->requested < hit->n_rows);
        if (!needed && fetcher->read_ahead_bytes + part->entry->size > READ_AHEAD_BYTES) break;
        part->loaded = loaded_slab_ref(part->entry);
        fetcher->read_ahead_bytes += part->entry->size;
        hit->requested++;
    }
    pthread_cond_broadcast(&fetcher->work);
}

static void release_part(struct store_hit *hit, struct part *part, struct loaded_slab **garbage)
{
    if (part->loaded == NULL) return;
    loaded_slab_unref(part->entry, part->loaded, garbage);
    part->loaded = NULL;
    fetcher_of(hit)->read_ahead_bytes -= part->entry->size;
}

/* Users of the tier's hits whose next piece has come, each after user_call_begin(). */
static size_t collect_waiting_users(struct tier *tier, const struct store_user ***users)
{
    size_t n = 0, cap = 0;
    *users = NULL;
    for (struct store_hit *hit = tier->fetcher.hits; hit != NULL; hit = hit->next_hit) {
        if (!hit->waiting || hit->closed || next_piece_state(hit) == STORE_PENDING) continue;
        hit->waiting = false;
        *users = mem_room(*users, n, &cap, sizeof(struct store_user *));
        (*users)[n++] = hit->user;
        user_call_begin(tier->store, hit->user);
    }
    return n;
}

/* A hit is given up when nothing has come for it since `progress_at`; not while its rows are joined, which needs no
 * disk. */
size_t fetcher_give_up(struct tier *tier, int64_t now, bool all, const struct store_user ***users, int64_t *next)
{
    int64_t timeout = tier->store->params.fetch_timeout_ns;
    for (struct store_hit *hit = tier->fetcher.hits; hit != NULL; hit = hit->next_hit) {
        if (!hit->waiting || hit->closed || hit->join == JOIN_RUNNING || next_piece_state(hit) != STORE_PENDING)
            continue;
        int64_t until = hit->progress_at + timeout;
        if (all || until <= now)
            hit->lost = true;
        else if (until < *next)
            *next = until;
    }
    return collect_waiting_users(tier, users);
}

/* With the mutex: has the watchdog watch the hit. The time-out runs from the first of several waits without progress.
 */
static void await_progress(struct store_hit *hit)
{
    struct store *store = hit->store;
    if (!hit->waiting) hit->progress_at = clock_now(clock_monotonic());
    hit->waiting = true;
    if (hit->progress_at + store->params.fetch_timeout_ns < store->watch_until) pthread_cond_signal(&store->watch);
}

/* ---- Beginning and ending ---- */

static void hits_append(struct fetcher *fetcher, struct store_hit *hit)
{
    struct store_hit **end = &fetcher->hits;
    while (*end != NULL) end = &(*end)->next_hit;
    hit->next_hit = NULL;
    *end = hit;
}

static void hits_remove(struct fetcher *fetcher, struct store_hit *hit)
{
    struct store_hit **at = &fetcher->hits;
    while (*at != hit) at = &(*at)->next_hit;
    *at = hit->next_hit;
}

/* The rows of the first n tokens come from the chain of entries, each up to where its child starts. */
static void list_parts(struct store_hit *hit, int32_t n)
{
    const struct store_codec *codec = &hit->user->codec;
    const struct match *match = &hit->matches[hit->tier];
    bool state = codec->has_state || !codec->rows;
    struct entry *deepest = !codec->rows ? NULL : state ? match->state->parent : match->rows;
    size_t depth = 0;
    for (const struct entry *entry = deepest; entry != NULL; entry = entry->parent) depth += entry->start < n;
    hit->n_rows = hit->n_parts = depth;
    hit->parts = mem_alloc((depth + 1) * sizeof *hit->parts);
    int32_t to = n;
    for (struct entry *entry = deepest; entry != NULL; entry = entry->parent) {
        if (entry->start >= to) continue;
        hit->parts[--depth] = (struct part){.entry = entry, .from = entry->start, .to = to};
        to = entry->start;
    }
    if (state && match->n_state == n)
        hit->parts[hit->n_parts++] = (struct part){.entry = match->state, .from = match->state->start, .to = n};
}

/* With the mutex, so that uses are noted in the order in which they are counted. */
static void queue_use_note(struct tier *tier, struct entry *entry)
{
    struct fetcher *fetcher = &tier->fetcher;
    int64_t now_ms = clock_unix_ms();
    if (fetcher->n_notes == MOST_USE_NOTES) {
        fetcher->first_note = (fetcher->first_note + 1) % MOST_USE_NOTES;
        fetcher->n_notes--;
    }
    fetcher->notes[(fetcher->first_note + fetcher->n_notes++) % MOST_USE_NOTES] =
        (struct use_note){{entry->key, entry->kind}, index_touch(tier->index, entry, now_ms), now_ms};
    pthread_cond_signal(&fetcher->work);
}

void store_fetch(struct store_hit *hit, int32_t n)
{
    assert(!hit->fetching && 0 <= n && n <= hit->n);
    struct store *store = hit->store;
    hit->fetching = true;
    if (n > 0) list_parts(hit, n);
    if (hit->n_rows > 0 && !hit->user->codec.appends) hit->join = JOIN_WANTED;
    store_lock(store);
    if (hit->n_parts > 0) queue_use_note(&store->tiers[hit->tier], hit->parts[hit->n_parts - 1].entry);
    await_progress(hit);
    hit->lost = !tier_serves(&store->tiers[hit->tier]); /* the tier may have gone out of service since the lookup */
    hits_append(fetcher_of(hit), hit);
    read_ahead(hit);
    store_unlock(store);
}

void store_skip(struct store_hit *hit, int32_t n)
{
    assert(hit->fetching && n >= 0);
    struct store *store = hit->store;
    struct loaded_slab *garbage = NULL;
    store_lock(store);
    bool whole = hit->join != JOIN_NONE;
    while (!whole && hit->next < hit->n_rows && hit->parts[hit->next].to <= n)
        release_part(hit, &hit->parts[hit->next++], &garbage);
    if (hit->requested < hit->next) hit->requested = hit->next;
    read_ahead(hit);
    store_unlock(store);
    loaded_slabs_free(garbage);
}

bool store_is_fetching(const struct store_hit *hit)
{
    return hit->fetching;
}

/* With the mutex: ends the fetch of a hit that was closed. */
static void abandon(struct store_hit *hit, struct loaded_slab **garbage)
{
    hits_remove(fetcher_of(hit), hit);
    for (size_t i = 0; i < hit->n_parts; i++) release_part(hit, &hit->parts[i], garbage);
}

void store_hit_close(struct store_hit *hit)
{
    if (hit == NULL) return;
    struct store *store = hit->store;
    struct loaded_slab *garbage = NULL;
    if (hit->fetching) {
        store_lock(store);
        bool joining = hit->join == JOIN_RUNNING;
        hit->closed = true;
        if (!joining) abandon(hit, &garbage);
        store_unlock(store);
        loaded_slabs_free(garbage);
        if (joining) return; /* its fetcher frees it */
    }
    hit_release(hit);
}

/* ---- Pieces ---- */

static struct store_piece piece_of(const struct part *part, enum slab_kind kind)
{
    return (struct store_piece){
        .kind = kind, .bytes = part->loaded->payload, .size = part->loaded->size, .from = part->from, .to = part->to};
}

enum store_next store_next_piece(struct store_hit *hit, struct store_piece *piece)
{
    assert(hit->fetching && piece != NULL);
    struct store *store = hit->store;
    struct loaded_slab *garbage = NULL;
    store_lock(store);
    if (hit->held != NULL) release_part(hit, hit->held, &garbage);
    hit->held = NULL;
    if (hit->join == JOIN_TAKEN) buf_release(&hit->joined);
    read_ahead(hit);
    enum store_next next = next_piece_state(hit);
    hit->lost = next == STORE_LOST;
    if (next == STORE_PENDING)
        await_progress(hit);
    else
        hit->waiting = false;
    if (next == STORE_PIECE && hit->join == JOIN_DONE) {
        *piece = (struct store_piece){
            .kind = SLAB_ROWS, .bytes = hit->joined.v, .size = hit->joined.len, .to = hit->parts[hit->n_rows - 1].to};
        hit->join = JOIN_TAKEN;
    } else if (next == STORE_PIECE) {
        struct part *part = &hit->parts[hit->next++];
        *piece = piece_of(part, part->entry->kind);
        hit->held = part;
    }
    store_unlock(store);
    loaded_slabs_free(garbage);
    return next;
}

/* ---- Reading ---- */

struct task {
    enum { TASK_NONE, TASK_NOTE, TASK_READ, TASK_JOIN } what;
    struct tier *tier;
    struct entry *entry; /* of a read: pinned */
    struct loaded_slab *loaded;
    struct store_hit *hit; /* of a join */
    struct use_note note;
};

static void log_unusable(const struct tier *tier, const struct entry *entry, const char *reason)
{
    char name[2 * SHA256_BYTES + 1];
    sha256_to_hex(entry->key.v, name);
    log_event(LOG_WARN, LOG_GROUP, "a slab cannot be used", log_str("tier", store_tier_names[tier->id]),
              log_str("key", name), log_str("reason", reason));
}

/* Without the mutex: a slab with LOAD_RUNNING belongs to the fetcher that reads it. */
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
    read_cost_note(&tier->read_cost, slab->bytes->size, took, started + took);
    store_unlock(store);
    return 0;
}

/* The slab is whole and has the key, but does not match the entry. Where that has left the index meanwhile there is
 * nothing to compare it with. One that starts at another token has replaced the
 * former one of that key, which the index file does not know: the index is corrected. Any other is damaged, whatever
 * its checksums say. */
static int repair_mismatch(const struct task *task, const struct slab *slab)
{
    const struct slab_head *head = &slab->head;
    struct tier *tier = task->tier;
    bool begins_elsewhere = head->end == task->entry->end && head->start != task->entry->start;
    if (index_has_left(tier->index, task->entry)) return HEARTH_NOT_FOUND;
    log_unusable(tier, task->entry, "its tokens are not those of its entry");
    if (!begins_elsewhere) return HEARTH_INVALID;
    tier_drop(tier, task->entry, false);
    index_adopt(tier->index, head, slab_size(head), clock_unix_ms());
    return HEARTH_NOT_FOUND;
}

/* Whether nobody else can have put another slab in the place of one that was read after `opened_at`. */
static bool is_still_ours(struct tier *tier, int64_t opened_at)
{
    store_lock(tier->store);
    bool ours = opened_at != 0 && tier->state == TIER_OPEN && tier->opened_at == opened_at;
    store_unlock(tier->store);
    return ours;
}

/* Called before those that wait for the slab are woken, so that their next lookup does not find the entry again. A
 * failure to read says nothing of the bytes: such an entry is retried later. A damaged slab is quarantined by the
 * process that owns the tier, and one of a newer version is left alone. */
static void drop_unusable(const struct task *task, int64_t opened_at, int result)
{
    struct tier *tier = task->tier;
    bool damaged = result == HEARTH_INVALID || result == HEARTH_UNSUPPORTED;
    if (damaged) metric_add(&tier->store->stats.corrupt_files, 1);
    if (damaged || result == HEARTH_NOT_FOUND) {
        tier_drop(tier, task->entry, result == HEARTH_INVALID && is_still_ours(tier, opened_at));
        return;
    }
    index_mark_unreadable(tier->index, task->entry, clock_now(clock_monotonic()));
    store_lock(tier->store);
    tier->retry_at = 0;
    if (result == HEARTH_UNAVAILABLE) tier_mark_lost(tier, "the backend is gone");
    pthread_cond_signal(&tier->supervisor_work);
    store_unlock(tier->store);
}

static void wake_waiting(struct tier *tier)
{
    const struct store_user **users;
    store_lock(tier->store);
    size_t n = collect_waiting_users(tier, &users);
    store_unlock(tier->store);
    users_wake(tier->store, users, n);
}

/* The pin is given back under the same lock as the result is published: once the last hit of the entry is closed, no
 * pin is left. */
static void run_read(const struct task *task, struct worker *worker)
{
    struct store *store = task->tier->store;
    struct slab slab = {0};
    struct loaded_slab *loaded = task->loaded, *garbage = NULL;
    store_lock(store);
    int64_t opened_at = task->tier->state == TIER_OPEN ? task->tier->opened_at : 0;
    store_unlock(store);
    int result = read_slab(task, worker, &slab);
    if (result == 0 && !index_matches(task->tier->index, task->entry, &slab.head))
        result = repair_mismatch(task, &slab);
    if (result != 0)
        drop_unusable(task, opened_at, result);
    else
        index_mark_readable(task->tier->index, task->entry);
    store_lock(store);
    loaded->state = result == 0 ? LOAD_DONE : LOAD_FAILED;
    if (result == 0) {
        loaded->bytes = slab.bytes;
        loaded->payload = slab.payload;
        loaded->size = (size_t)slab.head.payload_size;
        slab.bytes = NULL;
    }
    /* Restarts the time-out of all hits that wait for this slab. */
    int64_t now = clock_now(clock_monotonic());
    for (struct store_hit *hit = task->tier->fetcher.hits; hit != NULL; hit = hit->next_hit)
        for (size_t i = hit->next; i < hit->requested; i++)
            if (hit->parts[i].loaded == loaded) hit->progress_at = now;
    loaded_slab_unref(task->entry, loaded, &garbage);
    index_unpin(task->tier->index, task->entry);
    pthread_cond_broadcast(&task->tier->fetcher.work); /* a join may be possible now */
    store_unlock(store);
    slab_release(&slab);
    loaded_slabs_free(garbage);
    wake_waiting(task->tier);
}

/* ---- Joining ---- */

static void run_join(struct store_hit *hit)
{
    struct store *store = hit->store;
    struct tier *tier = &store->tiers[hit->tier];
    struct loaded_slab *garbage = NULL;
    const struct store_user *user = hit->user;
    struct store_piece *pieces = mem_alloc(hit->n_rows * sizeof *pieces);
    int64_t started = clock_now(clock_monotonic());
    for (size_t i = 0; i < hit->n_rows; i++) pieces[i] = piece_of(&hit->parts[i], SLAB_ROWS);
    bool joined = user->codec.join(user->codec.ud, pieces, hit->n_rows, &hit->joined);
    metric_add(&store->stats.load_ns, clock_now(clock_monotonic()) - started);
    free(pieces);
    if (!joined) log_event(LOG_ERROR, LOG_GROUP, "slabs could not be joined", log_int("tokens", hit->n));
    store_lock(store);
    hit->join = JOIN_DONE;
    hit->lost = !joined;
    for (size_t i = 0; i < hit->n_rows; i++) release_part(hit, &hit->parts[i], &garbage);
    hit->next = hit->n_rows;
    read_ahead(hit);
    bool closed = hit->closed;
    if (closed) abandon(hit, &garbage);
    user_call_end(store, user);
    store_unlock(store);
    loaded_slabs_free(garbage);
    if (closed) hit_release(hit);
    wake_waiting(tier);
}

/* ---- The threads, with the mutex ---- */

static struct task task_of(struct store_hit *hit)
{
    struct task task = {.tier = &hit->store->tiers[hit->tier]};
    struct part *part = NULL;
    for (size_t i = hit->next; !hit->lost && part == NULL && i < hit->requested; i++)
        if (hit->parts[i].loaded->state == LOAD_NONE) part = &hit->parts[i];
    if (hit->join == JOIN_WANTED && !has_row_slab(hit, LOAD_NONE) && !has_row_slab(hit, LOAD_RUNNING) &&
        !has_row_slab(hit, LOAD_FAILED)) {
        task.what = TASK_JOIN;
        task.hit = hit;
        hit->join = JOIN_RUNNING;
        user_call_begin(hit->store, hit->user);
    } else if (part != NULL) {
        task.what = TASK_READ;
        task.entry = part->entry;
        task.loaded = loaded_slab_ref(part->entry);
        task.loaded->state = LOAD_RUNNING;
        index_pin(task.tier->index, task.entry);
    }
    return task;
}

static struct task next_note(struct tier *tier)
{
    struct fetcher *fetcher = &tier->fetcher;
    if (fetcher->noting || fetcher->n_notes == 0) return (struct task){0};
    struct task task = {.what = TASK_NOTE, .tier = tier, .note = fetcher->notes[fetcher->first_note]};
    fetcher->first_note = (fetcher->first_note + 1) % MOST_USE_NOTES;
    fetcher->n_notes--;
    fetcher->noting = true;
    return task;
}

/* Round robin over the hits: one that was served moves to the end of the list. Notes of uses come last, since nobody
 * waits for them, but are all written before the thread ends. */
static struct task next_task(struct tier *tier)
{
    struct fetcher *fetcher = &tier->fetcher;
    if (tier->store->closing) return next_note(tier);
    for (struct store_hit *hit = fetcher->hits; hit != NULL; hit = hit->next_hit) {
        struct task task = task_of(hit);
        if (task.what == TASK_NONE) continue;
        hits_remove(fetcher, hit);
        hits_append(fetcher, hit);
        return task;
    }
    return next_note(tier);
}

void *fetcher_main(void *ud)
{
    struct tier *tier = ud;
    struct store *store = tier->store;
    store_lock(store);
    struct worker *worker = &tier->fetcher.workers[tier->fetcher.n_workers++];
    for (;;) {
        struct task task = next_task(tier);
        if (task.what == TASK_NONE) {
            if (store->closing) break;
            pthread_cond_wait(&tier->fetcher.work, &store->mutex);
            continue;
        }
        store_unlock(store);
        if (task.what == TASK_READ) run_read(&task, worker);
        if (task.what == TASK_JOIN) run_join(task.hit);
        if (task.what == TASK_NOTE) {
            tier_begin_call(tier, worker, tier->store->params.fetch_timeout_ns);
            tier->backend->note_use(tier->backend, &task.note.name, task.note.hits, task.note.used_ms);
            tier_end_call(tier, worker);
            store_lock(tier->store);
            tier->fetcher.noting = false;
            store_unlock(tier->store);
        }
        store_lock(store);
    }
    store_unlock(store);
    store_end_thread(store);
    return NULL;
}
