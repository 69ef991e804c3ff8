/* One tier: an index that says what is stored, a backend that holds the slabs, and the threads that alone call the
 * backend: a saver, fetchers, a supervisor. A backend that fails or hangs puts its own tier out of service and no
 * other.
 *
 * Only the saver changes what the backend holds. So the slab of an entry that left the index is never removed after its
 * key was written anew. */
#include "base/log.h"
#include "base/memory.h"
#include "store/remote/remote_backend.h"
#include "store/store_struct.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The table of tiers ---- */

#define NAME(ID, name, ...) [STORE_##ID] = #name,

const char *const store_tier_names[STORE_TIERS] = {STORE_TIER_TABLE(NAME, NAME, NAME)};

#define MEDIUM(ID, name, medium, ...) [STORE_##ID] = medium,

const char *const store_tier_media[STORE_TIERS] = {STORE_TIER_TABLE(MEDIUM, MEDIUM, MEDIUM)};

enum store_tier_kind store_tier_kind(enum store_tier tier)
{
#define IN_MEMORY(ID, ...) [STORE_##ID] = STORE_MEMORY,
#define IN_FOLDER(ID, ...) [STORE_##ID] = STORE_FOLDER,
#define ON_SERVER(ID, ...) [STORE_##ID] = STORE_SERVER,
    static const enum store_tier_kind kinds[STORE_TIERS] = {STORE_TIER_TABLE(IN_MEMORY, IN_FOLDER, ON_SERVER)};
    assert(tier < STORE_TIERS);
    return kinds[tier];
}

static struct backend *backend_for(const struct store *store, enum store_tier id)
{
    const struct store_tier_params *params = &store->params.tiers[id];
    if (params->backend != NULL) return params->backend;
    switch (store_tier_kind(id)) {
    case STORE_FOLDER:
        return folder_backend_open(store->params.files, params->path);
    case STORE_SERVER:
        assert(params->server != NULL && params->server->stride == store->params.stride);
        return remote_backend_open(params->server);
    case STORE_MEMORY:
        break;
    }
    return ram_backend_open();
}

/* ---- Life ---- */

int tier_open(struct store *store, enum store_tier id, hearth_error *error)
{
    struct tier *tier = &store->tiers[id];
    tier->store = store;
    tier->id = id;
    tier->quota = store->params.tiers[id].quota;
    tier->settled = true;
    read_cost_init(&tier->read_cost,
                   store_tier_kind(id) == STORE_SERVER ? &read_cost_of_networks : &read_cost_of_disks);
    if (tier->quota == 0) return HEARTH_OK;
    tier->backend = backend_for(store, id);
    tier->index = index_open(store->params.stride, tier->quota, loaded_slab_free);
    tier->began = clock_now(clock_monotonic());
    tier->scan_at = tier->retry_at = CLOCK_NEVER;
    tier->drops_end = &tier->drops;
    tier->upload_back_off = UPLOAD_BACK_OFF_FIRST_NS;
    clock_cond_init(&tier->supervisor_work);
    tier->saver.end = &tier->saver.first;
    clock_cond_init(&tier->saver.work);
    pthread_cond_init(&tier->fetcher.work, NULL);
    tier->settled = false;
    tier->state = TIER_OPENING; /* last: other tiers' threads may look at it from now on */
    int rc = store_begin_thread(store, saver_main, tier, error);
    if (rc != HEARTH_OK) tier->saver.ended = true; /* store_close() must not wait for it */
    if (rc == HEARTH_OK) rc = store_begin_thread(store, supervisor_main, tier, error);
    for (int i = 0; i < FETCHERS && rc == HEARTH_OK; i++) rc = store_begin_thread(store, fetcher_main, tier, error);
    return rc;
}

void tier_forget_damaged(struct tier *tier, struct victim *victims, struct damaged_slab *found)
{
    for (struct victim *next; victims != NULL; victims = next) {
        next = victims->next;
        index_deleted(tier->index, victims);
    }
    for (struct damaged_slab *next; found != NULL; found = next) {
        next = found->next;
        free(found);
    }
}

void tier_close(struct tier *tier)
{
    if (tier->quota == 0) return;
    tier_forget_damaged(tier, tier->damaged, tier->scan_damaged);
    hash_release(&tier->removed);
    buf_release(&tier->digests);
    index_close(tier->index);
    tier->backend->close(tier->backend);
    free(tier->saver.waiters);
    pthread_cond_destroy(&tier->saver.work);
    pthread_cond_destroy(&tier->fetcher.work);
    pthread_cond_destroy(&tier->supervisor_work);
}

bool tier_serves(const struct tier *tier)
{
    enum tier_state state = tier->state;
    return (state == TIER_OPENING || state == TIER_OPEN || state == TIER_SHARED) && !tier->stalled;
}

bool tier_takes_saves(const struct tier *tier)
{
    return tier_serves(tier) && tier->state != TIER_SHARED && !tier->store->closing;
}

bool tier_is_shared(const struct tier *tier)
{
    return tier->backend != NULL && tier->backend->probe != NULL;
}

struct tier *shared_tier(struct store *store)
{
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        struct tier *tier = &store->tiers[i];
        if (tier_is_shared(tier) && tier->state == TIER_OPEN && !tier->stalled) return tier;
    }
    return NULL;
}

struct tier *upload_tier(struct store *store)
{
    for (enum store_tier i = 0; i < STORE_TIERS; i++)
        if (tier_is_shared(&store->tiers[i]) && tier_takes_saves(&store->tiers[i])) return &store->tiers[i];
    return NULL;
}

/* ---- Calls of the backend ---- */

void tier_begin_call(struct tier *tier, struct worker *worker, int64_t limit_ns)
{
    struct store *store = tier->store;
    int64_t now = clock_now(clock_monotonic());
    store_lock(store);
    *worker = (struct worker){.since = now, .limit = now + limit_ns};
    if (worker->limit < store->watch_until) pthread_cond_signal(&store->watch);
    store_unlock(store);
}

/* Lets the watchdog see that a call which hung has returned. */
void tier_end_call(struct tier *tier, struct worker *worker)
{
    struct store *store = tier->store;
    store_lock(store);
    *worker = (struct worker){0};
    if (tier->stalled) pthread_cond_signal(&store->watch);
    store_unlock(store);
}

/* A server that serves so long before it is lost is opened again at once. */
#define STEADY_NS ((int64_t)60000000000)

void tier_mark_lost(struct tier *tier, const char *why)
{
    if (tier->state != TIER_OPEN && tier->state != TIER_SHARED) return;
    tier->state = TIER_LOST;
    tier->open_at = 0;
    /* A server that greets well and fails what it is asked then would cost every request a time-out. From the second
     * loss on it is left alone for a second, then twice as long each time. */
    if (tier_is_shared(tier)) {
        int64_t now = clock_now(clock_monotonic()), after = now - tier->opened_at < STEADY_NS ? tier->reopen_after : 0;
        tier->reopen_after = after == 0                       ? BACK_OFF_FIRST_NS
                             : 2 * after < OPEN_RETRY_MOST_NS ? 2 * after
                                                              : OPEN_RETRY_MOST_NS;
        if (after != 0) tier->open_at = now + after;
    }
    snprintf(tier->trouble, sizeof tier->trouble, "%.159s", why);
    pthread_cond_signal(&tier->supervisor_work);
}

void tier_lose(struct tier *tier, const char *why)
{
    store_lock(tier->store);
    bool was = tier->state == TIER_LOST;
    tier_mark_lost(tier, why);
    store_unlock(tier->store);
    if (!was)
        log_event(LOG_WARN, LOG_GROUP, "a tier was lost", log_str("tier", store_tier_names[tier->id]),
                  log_str("reason", why));
}

/* ---- Removing ---- */

static struct slab_name victim_name(const struct victim *victim)
{
    return (struct slab_name){victim->key, victim->kind};
}

static uint64_t hash_of(const struct slab_name *name)
{
    uint64_t hash;
    memcpy(&hash, name->key.v, sizeof hash);
    return hash;
}

bool tier_was_removed(const struct tier *tier, const struct slab_name *name)
{
    for (struct hash_link *link = hash_first(&tier->removed, hash_of(name)); link != NULL; link = hash_next(link)) {
        const struct removed_slab *removed = container_of(struct removed_slab, link, link);
        if (removed->name.kind == name->kind && slab_key_equal(&removed->name.key, &name->key)) return true;
    }
    return false;
}

static void note_removed(struct tier *tier, const struct slab_name *name)
{
    if (tier_was_removed(tier, name)) return;
    struct removed_slab *removed = mem_alloc(sizeof *removed);
    removed->name = *name;
    hash_add(&tier->removed, &removed->link, hash_of(name));
}

void tier_begin_scan(struct tier *tier)
{
    store_lock(tier->store);
    tier->scanning = true;
    if (tier->is_removing) note_removed(tier, &tier->removing);
    store_unlock(tier->store);
}

void tier_end_scan(struct tier *tier)
{
    struct hash_link *link;
    store_lock(tier->store);
    tier->scanning = false;
    for (size_t bucket = 0; (link = hash_any(&tier->removed, &bucket)) != NULL;) {
        struct removed_slab *removed = container_of(struct removed_slab, link, link);
        hash_remove(&tier->removed, link);
        free(removed);
    }
    store_unlock(tier->store);
}

/* Before its slab goes, and while the index still knows it; and once it does not any more. */
static void begin_removal(struct tier *tier, const struct slab_name *name)
{
    store_lock(tier->store);
    tier->removing = *name;
    tier->is_removing = true;
    if (tier->scanning) note_removed(tier, name);
    store_unlock(tier->store);
}

static void end_removal(struct tier *tier)
{
    store_lock(tier->store);
    tier->is_removing = false;
    store_unlock(tier->store);
}

int tier_remove(struct tier *tier, struct victim *victim, hearth_error *error)
{
    int result = 0;
    for (struct victim *next; victim != NULL; victim = next) {
        next = victim->next;
        struct slab_name name = victim_name(victim);
        bool others = result != 0;
        begin_removal(tier, &name);
        if (!others) {
            tier_begin_call(tier, &tier->saver.worker, tier->store->params.save_timeout_ns);
            result = tier->backend->remove(tier->backend, &name, error);
            tier_end_call(tier, &tier->saver.worker);
        }
        if (result == 0)
            index_deleted(tier->index, victim);
        else
            index_reinstate(tier->index, victim, !others);
        end_removal(tier);
    }
    return result;
}

static void quarantine(struct tier *tier, const struct slab_name *name)
{
    tier_begin_call(tier, &tier->saver.worker, tier->store->params.save_timeout_ns);
    tier->backend->quarantine(tier->backend, name);
    tier_end_call(tier, &tier->saver.worker);
}

void tier_quarantine_damaged(struct tier *tier)
{
    store_lock(tier->store);
    struct victim *victim = tier->damaged;
    struct damaged_slab *found = tier->scan_damaged;
    tier->damaged = NULL;
    tier->scan_damaged = NULL;
    store_unlock(tier->store);
    /* A slab that was replaced by a good one meanwhile stays. Slabs that are noted and not in the index are not adopted
     * any more. */
    for (struct damaged_slab *next; found != NULL; found = next) {
        next = found->next;
        begin_removal(tier, &found->name);
        if (index_has(tier->index, &found->name.key) == INDEX_ABSENT) quarantine(tier, &found->name);
        end_removal(tier);
        free(found);
    }
    for (struct victim *next; victim != NULL; victim = next) {
        next = victim->next;
        struct slab_name name = victim_name(victim);
        begin_removal(tier, &name);
        quarantine(tier, &name);
        index_deleted(tier->index, victim);
        end_removal(tier);
    }
}

/* Where the last slab could not be written, the next one is written first and others are evicted afterwards. Else each
 * attempt on a failing disk would evict, until nothing was left. Since there is one saver, a key that is "being
 * written" is one that was dropped and whose file is still to be quarantined. */
int tier_reserve(struct tier *tier, struct reserve *what, struct reservation **reservation, enum reserved *reserved,
                 hearth_error *error)
{
    struct victim *victims;
    what->over = tier->puts_fail;
    *reserved = index_reserve(tier->index, what, reservation, &victims);
    if (*reserved == RESERVED_WRITING) {
        tier_quarantine_damaged(tier);
        *reserved = index_reserve(tier->index, what, reservation, &victims);
    }
    int result = tier_remove(tier, victims, error);
    if (*reserved != RESERVED) return HEARTH_BUSY;
    if (result != 0) index_cancel(tier->index, *reservation);
    return result;
}

void tier_trim(struct tier *tier)
{
    hearth_error error = {0};
    if (tier_remove(tier, index_trim(tier->index), &error) != 0) tier_report_trouble(tier, error.message);
}

void tier_drop(struct tier *tier, struct entry *entry, bool damaged)
{
    struct victim *victim = index_drop(tier->index, entry);
    if (victim == NULL) return;
    if (!damaged) {
        index_deleted(tier->index, victim);
        return;
    }
    store_lock(tier->store);
    victim->next = tier->damaged;
    tier->damaged = victim;
    pthread_cond_signal(&tier->saver.work);
    store_unlock(tier->store);
}

/* ---- Known digests ---- */

/* By the parameters alone: the supervisor of one tier asks while the next ones are being opened. */
struct tier *tier_of_digests(struct store *store)
{
    struct tier *last = NULL;
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        const struct store_tier_params *params = &store->params.tiers[i];
        if (params->quota == 0) continue;
        bool outlives =
            params->backend != NULL ? params->backend->read_digests != NULL : store_tier_kind(i) == STORE_FOLDER;
        if (outlives) last = &store->tiers[i];
    }
    return last;
}

/* Called again for each attempt to own a folder of another process's: a fault is logged the first time. */
void tier_read_digests(struct tier *tier, struct buf *digests)
{
    hearth_error error = {0};
    if (tier != tier_of_digests(tier->store)) return;
    tier_begin_call(tier, &tier->supervisor, tier->store->params.save_timeout_ns);
    int result = tier->backend->read_digests(tier->backend, digests, &error);
    tier_end_call(tier, &tier->supervisor);
    if (result != 0 && result != HEARTH_NOT_FOUND && tier->state == TIER_OPENING)
        log_event(LOG_WARN, LOG_GROUP, "known digests cannot be read", log_str("reason", error.message));
}

void tier_write_digests(struct tier *tier)
{
    hearth_error error = {0};
    struct buf digests = {0};
    store_lock(tier->store);
    tier->digests_changed = false;
    buf_append(&digests, tier->digests.v, tier->digests.len);
    store_unlock(tier->store);
    tier_begin_call(tier, &tier->saver.worker, tier->store->params.save_timeout_ns);
    int result = tier->backend->write_digests(tier->backend, &digests, &error);
    tier_end_call(tier, &tier->saver.worker);
    if (result != 0)
        log_event(LOG_WARN, LOG_GROUP, "known digests cannot be written", log_str("reason", error.message));
    buf_release(&digests);
}

/* ---- Trouble ---- */

void tier_report_trouble(struct tier *tier, const char *message)
{
    struct store *store = tier->store;
    store_lock(store);
    bool was = tier->trouble[0] != '\0';
    snprintf(tier->trouble, sizeof tier->trouble, "%.159s", message == NULL ? "" : message);
    store_unlock(store);
    if (!was && message != NULL)
        log_event(LOG_WARN, LOG_GROUP, "saves fail", log_str("tier", store_tier_names[tier->id]),
                  log_str("reason", message));
    if (was && message == NULL)
        log_event(LOG_INFO, LOG_GROUP, "saves succeed again", log_str("tier", store_tier_names[tier->id]));
}

/* ---- What always holds ---- */

#ifndef NDEBUG

/* Tickets are given and finished in one order, so those of the queue follow each other. The cells that the current job
 * was copied from may be freed already. Returns how many jobs wait. */
static size_t check_queue(const struct saver *saver)
{
    uint64_t ticket = saver->done + (saver->current != NULL), bytes = 0;
    size_t n = 0;
    for (const struct save_job *job = saver->first; job != NULL; job = job->next, n++) {
        ticket++;
        assert(job->ticket == ticket && job->raw->refs > 0);
        bytes += job->raw->size;
    }
    assert(ticket == saver->last_ticket && *saver->end == NULL);
    assert(saver->current == NULL ? saver->backlog == bytes : saver->backlog >= bytes);
    assert(saver->n_waiters <= saver->waiters_cap);
    return n;
}

/* Returns the bytes of its parts that are in memory, or requested. */
static uint64_t check_hit(const struct tier *tier, const struct store_hit *hit)
{
    uint64_t bytes = 0;
    assert(hit->fetching && hit->store == tier->store && hit->tier == tier->id);
    assert(hit->next <= hit->requested && hit->requested <= hit->n_parts && hit->n_rows <= hit->n_parts);
    for (size_t i = 0; i < hit->n_parts; i++) {
        const struct part *part = &hit->parts[i];
        bool wanted = part == hit->held || (hit->next <= i && i < hit->requested);
        assert((part->loaded != NULL) == wanted);
        if (!wanted) continue;
        assert(part->loaded->refs > 0 && part->entry->user == part->loaded);
        bytes += part->entry->size;
    }
    return bytes;
}

static size_t check_fetcher(const struct tier *tier)
{
    const struct fetcher *fetcher = &tier->fetcher;
    uint64_t bytes = 0;
    size_t n = 0;
    for (const struct store_hit *hit = fetcher->hits; hit != NULL; hit = hit->next_hit) {
        bytes += check_hit(tier, hit);
        n += 1 + hit->n_parts;
    }
    assert(bytes == fetcher->read_ahead_bytes);
    assert(fetcher->n_workers <= FETCHERS);
    assert(fetcher->first_note < MOST_USE_NOTES && fetcher->n_notes <= MOST_USE_NOTES);
    return n;
}

size_t tier_check(const struct tier *tier)
{
    assert(tier->quota > 0 && tier->index != NULL && tier->backend != NULL);
    assert(*tier->drops_end == NULL);
    assert(tier->scanning || tier->removed.n == 0);
    return check_queue(&tier->saver) + check_fetcher(tier);
}

void store_check_some(struct store *store)
{
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        struct tier *tier = &store->tiers[i];
        if (tier->state == TIER_OFF || tier->until_check-- > 0) continue;
        tier->until_check = tier_check(tier);
    }
}

#endif
