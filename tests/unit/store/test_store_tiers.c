/* Tiers: what survives a restart, quotas, and that no tier affects another. */
#include "tiers.h"

#include "fakes/fake_files.h"
#include "fakes/gated_files.h"
#include "store/backends/backend.h"
#include "store/backends/folder.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* ---- Threads ---- */

static pthread_key_t of_a_thread;
static _Atomic int n_begun, n_gone;
static bool (*cut)(const void *ud, enum slab_kind kind, const void *raw, size_t size, int32_t from, int32_t to,
                   struct buf *payload, struct slab_region **regions, size_t *n_regions);

/* As libraries free what they keep for a thread, slowly. */
static void note_end(void *value)
{
    (void)value;
    for (int i = 0; i < 1000; i++) sched_yield();
    n_gone++;
}

static bool note_begin_and_cut(const void *ud, enum slab_kind kind, const void *raw, size_t size, int32_t from,
                               int32_t to, struct buf *payload, struct slab_region **regions, size_t *n_regions)
{
    if (pthread_getspecific(of_a_thread) == NULL) n_begun++;
    pthread_setspecific(of_a_thread, &n_begun);
    return cut(ud, kind, raw, size, from, to, payload, regions, n_regions);
}

/* Else what is freed at the end of a thread could meet with what is freed at the end of the process. */
static void no_thread_outlives_a_store_that_was_closed(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(1, 50);
    assert_int_equal(pthread_key_create(&of_a_thread, note_end), 0);
    n_begun = n_gone = 0;
    cut = rig->user.user.codec.cut;
    rig->user.user.codec.cut = note_begin_and_cut;
    rig_start(rig);
    rig_keep(rig, t.v, 50);
    assert_int_equal(n_begun, 1);
    rig_stop(rig);
    assert_int_equal(n_gone, 1);
    pthread_key_delete(of_a_thread);
    tokens_release(&t);
}

/* ---- Restart ---- */

static void slabs_outlive_a_restart_where_there_are_files(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(1, 150), u = some_tokens(2, 90);
    rig->user.user.codec.has_state = true;
    rig_start(rig);
    rig_keep(rig, t.v, 100);
    rig_keep(rig, t.v, 150);
    rig_keep(rig, u.v, 90);
    struct store_tier_status before = rig_status(rig);
    rig_stop(rig);
    rig_start(rig);
    struct store_tier_status after = rig_status(rig);
    bool ram = rig->params.save_tier == STORE_RAM;
    assert_int_equal(after.entries, ram ? 0 : before.entries);
    assert_int_equal(after.bytes, ram ? 0 : before.bytes);
    assert_int_equal(rig_restore(rig, t.v, 149), ram ? 0 : 100);
    assert_int_equal(rig_restore(rig, t.v, 150), ram ? 0 : 150);
    assert_int_equal(rig_restore(rig, u.v, 90), ram ? 0 : 90);
    rig_keep(rig, t.v, 150);
    assert_int_equal(rig_restore(rig, t.v, 150), 150);
    tokens_release(&t);
    tokens_release(&u);
}

static void saves_under_way_are_finished_when_the_store_closes(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(3, 640);
    rig_start(rig);
    for (int32_t n = 64; n <= 640; n += 64) rig_save_from(rig, t.v, n - 64, n);
    rig_stop(rig);
    rig_start(rig);
    assert_int_equal(rig_restore(rig, t.v, 640), 640);
    tokens_release(&t);
}

static void what_hangs_on_nothing_waits_for_its_parent(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(4, 64);
    char name[2 * SHA256_BYTES + 1], path[256];
    rig_start(rig);
    rig_keep(rig, t.v, 64);
    rig_stop(rig);
    struct slab_key key = slab_key_of(&rig->user.user.identity, t.v, 32);
    sha256_to_hex(key.v, name);
    snprintf(path, sizeof path, "%s/%s.rows", rig->paths[rig->params.save_tier], name);
    assert_int_equal(remove(path), 0);
    rig_start(rig);
    size_t files;
    assert_int_equal(rig_restore(rig, t.v, 64), 16);
    assert_int_equal(rig_folder_bytes(rig, &files), rig_status(rig).bytes);
    assert_int_equal(files, 3);
    rig_keep(rig, t.v, 32);
    assert_int_equal(rig_restore(rig, t.v, 64), 64);
    assert_int_equal(rig_folder_bytes(rig, &files), rig_status(rig).bytes);
    assert_int_equal(files, 4);
    tokens_release(&t);
}

static void await_next_millisecond(void)
{
    int64_t now = clock_unix_ms();
    while (clock_unix_ms() == now) {
    }
}

/* According to its file. */
static uint32_t stored_hits(const struct rig *rig, const struct tokens *tokens)
{
    struct folder *folder = folder_open_read_only(files_machine(), rig->paths[rig->params.save_tier], NULL);
    struct slab_key key = slab_key_of(&rig->user.user.identity, tokens->v, tokens->len);
    struct slab slab;
    assert_int_equal(folder_read(folder, &key, SLAB_ROWS, &slab, NULL), 0);
    uint32_t hits = slab.head.hits;
    if (hits > 0) assert_true(slab.head.used_ms >= slab.head.created_ms);
    slab_release(&slab);
    folder_close(folder);
    return hits;
}

/* The most recently used stays, also in the next process. */
static void the_order_of_last_use_outlives_a_restart(void **state)
{
    struct rig *rig = *state;
    struct tokens lists[3];
    rig_start(rig);
    for (size_t i = 0; i < 3; i++) {
        lists[i] = some_tokens(10 + i, 64);
        rig_keep(rig, lists[i].v, 64);
        await_next_millisecond();
    }
    for (int i = 0; i < 3; i++) assert_int_equal(rig_restore(rig, lists[0].v, 64), 64);
    uint64_t bytes = rig_status(rig).bytes;
    rig_stop(rig);
    assert_int_equal(stored_hits(rig, &lists[0]), 3);

    rig->params.tiers[rig->params.save_tier].quota = bytes * 2 / 3;
    rig_start(rig);
    while (rig_status(rig).bytes > rig->params.tiers[rig->params.save_tier].quota) sched_yield();
    assert_int_equal(rig_restore(rig, lists[0].v, 64), 64);
    assert_int_equal(rig_restore(rig, lists[2].v, 64), 64);
    assert_int_equal(rig_restore(rig, lists[1].v, 64), 0);
    assert_int_equal(rig_folder_bytes(rig, NULL), rig_status(rig).bytes);
    for (size_t i = 0; i < 3; i++) tokens_release(&lists[i]);
}

/* One note of a use hangs; those of later uses are written after it. */
static void uses_are_noted_in_their_order(void **state)
{
    struct rig *rig = *state;
    struct fake_faults faults;
    struct tokens t = some_tokens(22, 64), u = some_tokens(23, 64);
    fake_faults_init(&faults, files_machine());
    rig->params.files = &faults.files;
    rig_start(rig);
    rig_keep(rig, t.v, 64);
    rig_keep(rig, u.v, 64);
    fake_faults_set(&faults, (struct fake_fault){.call = FAKE_WRITE, .on = FAKE_SLABS, .nth = 1, .effect = FAKE_HANG});
    assert_int_equal(rig_restore(rig, t.v, 64), 64);
    assert_true(fake_faults_await(&faults, 1));
    for (int i = 0; i < 2; i++) assert_int_equal(rig_restore(rig, t.v, 64), 64);
    assert_int_equal(rig_restore(rig, u.v, 64), 64); /* the remaining fetcher has written the notes before */
    fake_faults_release(&faults);
    rig_stop(rig);
    assert_int_equal(stored_hits(rig, &t), 3);
    assert_int_equal(stored_hits(rig, &u), 1);
    tokens_release(&t);
    tokens_release(&u);
}

/* A folder of another process: its slabs are found, and nothing is written to it until that process has ended. */
static void a_folder_that_another_has_is_read_and_then_taken_over(void **state)
{
    struct rig *rig = *state, other;
    enum store_tier tier = rig->params.save_tier;
    struct tokens t = some_tokens(20, 64), u = some_tokens(21, 64);
    rig_start(rig);
    rig_keep(rig, t.v, 64);
    uint64_t bytes = rig_folder_bytes(rig, NULL);
    rig_init(&other, tier);
    other.params.tiers[tier].path = rig->paths[tier];
    rig_start(&other);
    assert_true(rig_status(&other).on);
    assert_non_null(strstr(rig_status(&other).trouble, "another process"));
    assert_int_equal(rig_restore(&other, t.v, 64), 64);
    assert_int_equal(rig_save_from(&other, u.v, 0, 64), 0);
    assert_int_equal(rig_folder_bytes(rig, NULL), bytes);
    rig_stop(rig);
    uint64_t ticket;
    while ((ticket = rig_save_from(&other, u.v, 0, 64)) == 0)
        sched_yield(); /* the supervisor retries, ever more rarely */
    rig_wait(&other, ticket);
    assert_string_equal(rig_status(&other).trouble, "");
    assert_int_equal(rig_restore(&other, u.v, 64), 64);
    assert_int_equal(rig_restore(&other, t.v, 64), 64);
    rig_release(&other);
    tokens_release(&t);
    tokens_release(&u);
}

static void *reopen(void *store)
{
    return store_reopen(store, CLOCK_NEVER) ? store : NULL;
}

static void what_another_stored_last_is_found_once_it_has_ended(void **state)
{
    enum { TOO_EARLY_MS = 200 }; /* several attempts */
    struct rig *rig = *state, other;
    pthread_t thread;
    void *reopened;
    enum store_tier tier = rig->params.save_tier;
    struct tokens t = some_tokens(22, 64), u = some_tokens(23, 64);
    rig_start(rig);
    rig_init(&other, tier);
    other.params.tiers[tier].path = rig->paths[tier];
    rig_start(&other);
    rig_keep(rig, t.v, 64);
    assert_int_equal(rig_found(&other, t.v, 64), 0);
    assert_false(store_reopen(other.store, clock_now(clock_monotonic()) + clock_from_ms(TOO_EARLY_MS)));
    assert_non_null(strstr(rig_status(&other).trouble, "another process"));
    assert_int_equal(pthread_create(&thread, NULL, reopen, other.store), 0);
    rig_keep(rig, u.v, 64);
    rig_stop(rig);
    pthread_join(thread, &reopened);
    assert_non_null(reopened);
    assert_int_equal(rig_restore(&other, t.v, 64), 64);
    assert_int_equal(rig_restore(&other, u.v, 64), 64);
    assert_string_equal(rig_status(&other).trouble, "");
    rig_release(&other);
    tokens_release(&t);
    tokens_release(&u);
}

/* ---- Quotas ---- */

struct watch {
    struct rig *rig;
    uint64_t most;
};

static void watch_folder(void *ud)
{
    struct watch *watch = ud;
    uint64_t bytes = rig_folder_bytes(watch->rig, NULL);
    if (bytes > watch->most) watch->most = bytes;
}

/* The folder is measured after every call that changes it. */
static void a_tier_never_holds_more_than_its_quota(void **state)
{
    struct rig *rig = *state;
    struct gated_files gated;
    struct watch watch = {.rig = rig};
    const uint64_t quota = 60000;
    gated_files_init(&gated);
    gated.look = watch_folder;
    gated.ud = &watch;
    rig->params.files = &gated.files;
    rig->params.tiers[rig->params.save_tier].quota = quota;
    rig->user.row_bytes = 64;
    rig_start(rig);
    for (uint64_t i = 0; metric_get(&store_stats(rig->store)->written_bytes) < 10 * (int64_t)quota; i++) {
        struct tokens t = some_tokens(100 + i, 100 + i % 50);
        rig_keep(rig, t.v, (int32_t)t.len);
        struct store_tier_status status = rig_status(rig);
        assert_true(status.bytes <= quota);
        assert_int_equal(rig_restore(rig, t.v, (int32_t)t.len), t.len);
        if (rig->params.save_tier != STORE_RAM) assert_int_equal(rig_folder_bytes(rig, NULL), status.bytes);
        tokens_release(&t);
    }
    assert_true(watch.most <= quota);
    assert_true(rig_status(rig).evictions > 0);
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 0);
    rig_stop(rig);
}

static void the_least_recently_used_is_evicted_first(void **state)
{
    struct rig *rig = *state;
    struct tokens lists[4];
    for (size_t i = 0; i < 4; i++) lists[i] = some_tokens(20 + i, 64);
    rig_start(rig);
    for (size_t i = 0; i < 3; i++) rig_keep(rig, lists[i].v, 64);
    uint64_t bytes = rig_status(rig).bytes;
    rig_stop(rig);
    rig_lose_folder(rig, rig->params.save_tier);
    rig->params.tiers[rig->params.save_tier].quota = bytes;
    rig_start(rig);
    for (size_t i = 0; i < 3; i++) rig_keep(rig, lists[i].v, 64);
    assert_int_equal(rig_restore(rig, lists[0].v, 64), 64);
    rig_keep(rig, lists[3].v, 64);
    assert_int_equal(rig_restore(rig, lists[1].v, 64), 0);
    assert_int_equal(rig_restore(rig, lists[0].v, 64), 64);
    assert_int_equal(rig_restore(rig, lists[2].v, 64), 64);
    for (size_t i = 0; i < 4; i++) tokens_release(&lists[i]);
}

static void a_slab_larger_than_the_quota_is_refused_and_disturbs_nothing(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(30, 16), u = some_tokens(31, 16);
    rig->params.tiers[rig->params.save_tier].quota = 5000;
    rig_start(rig);
    rig_keep(rig, t.v, 16);
    rig->user.row_bytes = 512;
    rig_keep(rig, u.v, 16);
    rig->user.row_bytes = 16;
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 1);
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 1);
    assert_true(strlen(rig_status(rig).trouble) > 0);
    assert_int_equal(rig_restore(rig, u.v, 16), 0);
    assert_int_equal(rig_restore(rig, t.v, 16), 16);
    tokens_release(&t);
    tokens_release(&u);
}

/* A backend whose scan tells what was there some time ago. */
static struct {
    int (*scan)(struct backend *backend, struct backend_scan *scan, hearth_error *error);
    struct slab_head heads[16];
    uint64_t sizes[16];
    size_t n;
    _Atomic bool wanted, read, may_tell, told;
} late;

static void note_head(void *ud, struct slab_head *head, uint64_t size)
{
    (void)ud;
    late.heads[late.n] = *head;
    late.sizes[late.n++] = size;
    *head = (struct slab_head){0};
}

static int scan_late(struct backend *backend, struct backend_scan *scan, hearth_error *error)
{
    struct backend_scan notes = {.each = note_head, .stop = scan->stop};
    late.n = 0;
    int result = late.scan(backend, &notes, error);
    scan->n_slabs = notes.n_slabs;
    late.read = true;
    while (late.wanted && !late.may_tell) sched_yield();
    for (size_t i = 0; i < late.n; i++) {
        scan->each(scan->ud, &late.heads[i], late.sizes[i]);
        slab_head_release(&late.heads[i]);
    }
    late.told = true;
    return result;
}

static bool wants_scan_once(struct backend *backend)
{
    (void)backend;
    return late.wanted && !late.read;
}

static void what_was_evicted_while_the_tier_was_scanned_is_not_found_again(void **state)
{
    struct rig *rig = *state;
    enum store_tier tier = rig->params.save_tier;
    struct tokens lists[4];
    for (size_t i = 0; i < 4; i++) lists[i] = some_tokens(30 + i, 64);
    rig_start(rig);
    rig_keep(rig, lists[0].v, 64);
    uint64_t bytes = rig_status(rig).bytes;
    rig_stop(rig);
    rig_lose_folder(rig, tier);
    struct backend *backend = folder_backend_open(rig->params.files, rig->paths[tier]);
    late.scan = backend->scan;
    late.wanted = late.read = late.may_tell = late.told = false;
    backend->scan = scan_late;
    backend->wants_scan = wants_scan_once;
    rig->params.tiers[tier].backend = backend;
    rig->params.tiers[tier].quota = 2 * bytes;
    rig_start(rig);
    rig_keep(rig, lists[0].v, 64);
    late.read = late.told = false;
    late.wanted = true;
    rig_keep(rig, lists[1].v, 64);
    while (!late.read) sched_yield(); /* the scan has the first one's slabs by now */
    for (size_t i = 2; i < 4; i++) rig_keep(rig, lists[i].v, 64);
    assert_int_equal(rig_found(rig, lists[0].v, 64), 0);
    late.may_tell = true;
    while (!late.told) sched_yield();
    assert_int_equal(rig_found(rig, lists[0].v, 64), 0);
    assert_int_equal(rig_found(rig, lists[3].v, 64), 64);
    rig_stop(rig);
    rig->params.tiers[tier].backend = NULL;
    for (size_t i = 0; i < 4; i++) tokens_release(&lists[i]);
}

/* ---- Pins ---- */

/* Each is used again: fresh entries do not evict reused ones. */
static void fill(struct rig *rig, uint64_t seed)
{
    for (uint64_t i = 0; i < 30; i++) {
        struct tokens t = some_tokens(seed + i, 64);
        rig_keep(rig, t.v, 64);
        rig_restore(rig, t.v, 64);
        tokens_release(&t);
    }
}

static void what_a_reader_pins_is_not_evicted(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(40, 64);
    bool lost;
    rig->params.tiers[rig->params.save_tier].quota = 20000;
    rig_start(rig);
    rig_keep(rig, t.v, 64);
    struct store_hit *hit = rig_find(rig, t.v, 64);
    fill(rig, 1000);
    assert_true(rig_status(rig).evictions > 0);
    store_fetch(hit, 64);
    assert_int_equal(rig_take_all(rig, hit, t.v, &lost), 64);
    fill(rig, 2000);
    store_hit_close(hit);
    assert_int_equal(rig_restore(rig, t.v, 64), 64);
    fill(rig, 3000);
    assert_int_equal(rig_restore(rig, t.v, 64), 0);
    tokens_release(&t);
}

/* A hit that is closed while its slabs are being read gives its pins back. */
static void a_reader_that_left_pins_nothing(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(41, 64);
    rig->params.tiers[rig->params.save_tier].quota = 20000;
    rig_start(rig);
    rig_keep(rig, t.v, 64);
    for (int i = 0; i < 20; i++) {
        struct store_hit *hit = rig_find(rig, t.v, 64);
        store_fetch(hit, 64);
        store_hit_close(hit);
    }
    fill(rig, 1000);
    assert_int_equal(rig_restore(rig, t.v, 64), 0);
    tokens_release(&t);
}

/* After a hit that has read everything was closed, saves may evict all of it. */
static void what_was_read_may_go_at_once(void **state)
{
    struct rig *rig = *state;
    struct tokens lists[] = {some_tokens(42, 64), some_tokens(43, 64), some_tokens(44, 64)};
    rig_start(rig);
    rig_keep(rig, lists[0].v, 64);
    uint64_t bytes = rig_status(rig).bytes;
    rig_stop(rig);
    rig_lose_folder(rig, rig->params.save_tier);
    rig->params.tiers[rig->params.save_tier].quota = 2 * bytes;
    rig_start(rig);
    for (size_t i = 0; i < 200; i++) {
        rig_keep(rig, lists[i % 3].v, 64);
        assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 0);
        assert_int_equal(rig_restore(rig, lists[i % 3].v, 64), 64);
    }
    for (size_t i = 0; i < 3; i++) tokens_release(&lists[i]);
}

/* ---- Several tiers ---- */

/* Slabs that one store wrote to disk, and that the next one has beside a tier in memory. */
static void begin_with_disk_and_ram(struct rig *rig, const struct tokens *t)
{
    rig_start(rig);
    rig_keep(rig, t->v, (int32_t)t->len);
    rig_stop(rig);
    rig_add_tier(rig, STORE_RAM, 30000);
    rig->params.save_tier = STORE_RAM;
    rig_start(rig);
}

static struct store_tier_status disk_status(struct rig *rig)
{
    struct store_tier_status status;
    store_tier_status(rig->store, STORE_DISK, &status);
    return status;
}

static void pressure_in_one_tier_is_not_felt_in_another(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(50, 64);
    begin_with_disk_and_ram(rig, &t);
    struct store_tier_status before = disk_status(rig);
    fill(rig, 1000);
    fill(rig, 2000);
    struct store_tier_status after = disk_status(rig);
    assert_true(rig_status(rig).evictions > 0);
    assert_int_equal(after.evictions, 0);
    assert_int_equal(after.entries, before.entries);
    assert_int_equal(after.bytes, before.bytes);
    assert_int_equal(rig_restore(rig, t.v, 64), 64);
    tokens_release(&t);
}

static void a_slab_stays_in_the_tier_it_was_saved_to(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(51, 64);
    begin_with_disk_and_ram(rig, &t);
    for (int i = 0; i < 100; i++) assert_int_equal(rig_restore(rig, t.v, 64), 64);
    assert_int_equal(rig_status(rig).bytes, 0);
    assert_int_equal(disk_status(rig).entries, 4);
    tokens_release(&t);
}

/* A lookup prefers the longest prefix of all tiers, and of two that are equal the faster tier. Which rows need no save
 * depends on the tier of saves. */
static void the_longest_prefix_of_all_tiers_is_taken(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(52, 64);
    begin_with_disk_and_ram(rig, &t);
    rig_keep(rig, t.v, 40);
    struct store_hit *hit = rig_find(rig, t.v, 64);
    assert_int_equal(store_hit_tier(hit), STORE_DISK);
    assert_int_equal(store_hit_tokens(hit), 64);
    assert_int_equal(store_hit_covered(hit), 40);
    store_find_again(hit, t.v, 64);
    assert_int_equal(store_hit_tier(hit), STORE_DISK);
    store_hit_close(hit);
    rig_keep(rig, t.v, 64);
    hit = rig_find(rig, t.v, 64);
    assert_int_equal(store_hit_tier(hit), STORE_RAM);
    assert_int_equal(store_hit_covered(hit), 64);
    store_hit_close(hit);
    tokens_release(&t);
}

static void a_tier_that_loses_its_folder_does_not_stop_another(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(53, 64), u = some_tokens(54, 64);
    begin_with_disk_and_ram(rig, &t);
    rig_lose_folder(rig, STORE_DISK);
    rig_keep(rig, u.v, 64);
    assert_int_equal(rig_restore(rig, t.v, 64), 0);
    assert_int_equal(rig_found(rig, t.v, 64), 0);
    assert_int_equal(rig_restore(rig, u.v, 64), 64);
    rig_keep(rig, t.v, 64);
    assert_int_equal(rig_restore(rig, t.v, 64), 64);
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 0);
    tokens_release(&t);
    tokens_release(&u);
}

/* Changes the last byte of the slab that ends there. */
static void damage(struct rig *rig, const struct tokens *t, size_t end)
{
    char name[2 * SHA256_BYTES + 1], path[256];
    struct slab_key key = slab_key_of(&rig->user.user.identity, t->v, end);
    sha256_to_hex(key.v, name);
    snprintf(path, sizeof path, "%s/%s.rows", rig->paths[STORE_DISK], name);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, -1, SEEK_END);
    int last = fgetc(file);
    fseek(file, -1, SEEK_END);
    fputc(last ^ 1, file);
    fclose(file);
}

static void a_tier_that_can_neither_be_read_nor_tidied_does_not_stop_another(void **state)
{
    static const struct {
        enum fake_call call;
        int error;
    } faults_of_disks[] = {
        {FAKE_ANY_CALL, EIO}, {FAKE_OPEN, EACCES}, {FAKE_READ, EIO}, {FAKE_UNLINK, EROFS}, {FAKE_RENAME, ENOSPC}};
    struct rig *rig = *state;
    struct fake_faults faults;
    fake_faults_init(&faults, files_machine());
    rig->params.files = &faults.files;
    for (size_t i = 0; i < sizeof faults_of_disks / sizeof *faults_of_disks; i++) {
        struct tokens t = some_tokens(60 + i, 64), u = some_tokens(70 + i, 64);
        rig->params.save_tier = STORE_DISK;
        begin_with_disk_and_ram(rig, &t);
        damage(rig, &t, 32);
        fake_faults_set(&faults, (struct fake_fault){.call = faults_of_disks[i].call,
                                                     .nth = 1,
                                                     .lasting = true,
                                                     .effect = FAKE_ERROR,
                                                     .error = faults_of_disks[i].error});
        assert_in_range(rig_restore(rig, t.v, 64), 0, 16);
        rig_keep(rig, u.v, 64);
        rig_keep(rig, t.v, 64);
        assert_int_equal(rig_restore(rig, u.v, 64), 64);
        assert_int_equal(rig_restore(rig, t.v, 64), 64);
        assert_true(rig_status(rig).on);
        assert_string_equal(rig_status(rig).trouble, "");
        assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 0);
        fake_faults_set(&faults, (struct fake_fault){0});
        rig_stop(rig);
        tokens_release(&t);
        tokens_release(&u);
    }
    rig->params.files = files_machine();
    rig_start(rig);
}

/* Both folders hold the same; each listing fails once. */
static void a_tier_that_cannot_be_scanned_does_not_stop_another(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(80, 64);
    struct fake_faults faults;
    fake_faults_init(&faults, files_machine());
    rig_add_tier(rig, STORE_RAM_FILE, 30000);
    for (int i = 0; i < 2; i++) {
        rig->params.save_tier = i == 0 ? STORE_RAM_FILE : STORE_DISK;
        rig_start(rig);
        rig_keep(rig, t.v, 64);
        rig_stop(rig);
    }
    rig->params.files = &faults.files;
    uint64_t struck = 1;
    for (uint64_t nth = 1; struck > 0; nth++) {
        fake_faults_set(&faults,
                        (struct fake_fault){.call = FAKE_LIST, .nth = nth, .effect = FAKE_ERROR, .error = EIO});
        rig_start(rig);
        struck = faults.struck;
        assert_int_equal(rig_restore(rig, t.v, 64), 64);
        rig_stop(rig);
        assert_true(struck == 0 || nth < 100);
    }
    assert_true(faults.calls[FAKE_LIST] >= 2);
    rig->params.files = files_machine();
    rig_start(rig);
    tokens_release(&t);
}

static void a_tier_whose_folder_cannot_be_had_is_off(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(55, 64);
    rig_add_tier(rig, STORE_RAM_FILE, 30000);
    rig->params.tiers[STORE_DISK].path = "/dev/null/nowhere";
    rig_start(rig);
    assert_false(disk_status(rig).on);
    assert_true(strlen(disk_status(rig).trouble) > 0);
    assert_int_equal(rig_save_from(rig, t.v, 0, 64), 0);
    assert_false(store_has_room(rig->store, &rig->user.user, 1));
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 1);
    assert_int_equal(rig_restore(rig, t.v, 64), 0);
    rig_stop(rig);
    rig->params.save_tier = STORE_RAM_FILE;
    rig_start(rig);
    rig_keep(rig, t.v, 64);
    assert_int_equal(rig_restore(rig, t.v, 64), 64);
    tokens_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TIERS(no_thread_outlives_a_store_that_was_closed),
        TIERS(slabs_outlive_a_restart_where_there_are_files),
        FOLDER_TIERS(saves_under_way_are_finished_when_the_store_closes),
        FOLDER_TIERS(what_hangs_on_nothing_waits_for_its_parent),
        FOLDER_TIERS(the_order_of_last_use_outlives_a_restart),
        FOLDER_TIERS(uses_are_noted_in_their_order),
        FOLDER_TIERS(a_folder_that_another_has_is_read_and_then_taken_over),
        FOLDER_TIERS(what_another_stored_last_is_found_once_it_has_ended),
        TIERS(a_tier_never_holds_more_than_its_quota),
        TIERS(the_least_recently_used_is_evicted_first),
        TIERS(a_slab_larger_than_the_quota_is_refused_and_disturbs_nothing),
        ON_DISK(what_was_evicted_while_the_tier_was_scanned_is_not_found_again),
        TIERS(what_a_reader_pins_is_not_evicted),
        TIERS(a_reader_that_left_pins_nothing),
        TIERS(what_was_read_may_go_at_once),
        ON_DISK(pressure_in_one_tier_is_not_felt_in_another),
        ON_DISK(a_slab_stays_in_the_tier_it_was_saved_to),
        ON_DISK(the_longest_prefix_of_all_tiers_is_taken),
        ON_DISK(a_tier_that_loses_its_folder_does_not_stop_another),
        ON_DISK(a_tier_that_can_neither_be_read_nor_tidied_does_not_stop_another),
        ON_DISK(a_tier_that_cannot_be_scanned_does_not_stop_another),
        ON_DISK(a_tier_whose_folder_cannot_be_had_is_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
