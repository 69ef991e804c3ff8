/* Disks that fail, are full or slow: what is lost is counted, no other tier or request is affected, and the store
 * continues afterwards. */
#include "tiers.h"

#include "base/log.h"
#include "fakes/fake_files.h"
#include "fakes/gated_files.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

static int64_t in_ms(int64_t ms)
{
    return clock_now(clock_monotonic()) + clock_from_ms(ms);
}

/* ---- Failing ---- */

static size_t lines_with(const char *path, const char *text)
{
    char line[1024];
    size_t n = 0;
    FILE *file = fopen(path, "r");
    while (fgets(line, sizeof line, file) != NULL) n += strstr(line, text) != NULL;
    fclose(file);
    return n;
}

static void a_full_disk_costs_saves_and_a_line_in_the_log(void **state)
{
    struct rig *rig = *state;
    struct fake_faults faults;
    struct tokens t = some_tokens(1, 64), u = some_tokens(2, 64);
    char log[128];
    snprintf(log, sizeof log, "%s/log", rig->root);
    fake_faults_init(&faults, files_machine());
    rig->params.files = &faults.files;
    rig_start(rig);
    rig_keep(rig, t.v, 32);
    assert_int_equal(log_open(log, "info", "text", NULL), 0);

    fake_faults_set(&faults, (struct fake_fault){
                                 .call = FAKE_WRITE, .nth = 1, .lasting = true, .effect = FAKE_ERROR, .error = ENOSPC});
    for (int i = 0; i < 5; i++) rig_keep(rig, u.v, 64);
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 5);
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 5);
    assert_non_null(strstr(rig_status(rig).trouble, "No space left"));
    assert_true(rig_status(rig).on);
    assert_int_equal(rig_restore(rig, t.v, 64), 32);
    assert_int_equal(rig_found(rig, u.v, 64), 0);
    assert_int_equal(rig_folder_bytes(rig, NULL), rig_status(rig).bytes);

    fake_faults_set(&faults, (struct fake_fault){0});
    rig_keep(rig, u.v, 64);
    assert_string_equal(rig_status(rig).trouble, "");
    assert_int_equal(rig_restore(rig, u.v, 64), 64);
    assert_int_equal(log_open(NULL, "info", "text", NULL), 0);
    assert_int_equal(lines_with(log, "saves fail"), 1);
    assert_int_equal(lines_with(log, "saves succeed again"), 1);
    rig_stop(rig);
    tokens_release(&t);
    tokens_release(&u);
}

static void await_open(struct rig *rig)
{
    while (!rig_status(rig).on) sched_yield();
}

/* The save that finds the folder gone fails; the next one has a new folder. */
static void a_folder_that_was_removed_is_made_anew(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(3, 64);
    rig_start(rig);
    rig_keep(rig, t.v, 32);
    rig_lose_folder(rig, rig->params.save_tier);
    rig_keep(rig, t.v, 64);
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 1);
    await_open(rig);
    assert_int_equal(rig_restore(rig, t.v, 64), 0);
    rig_keep(rig, t.v, 64);
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 1);
    assert_int_equal(rig_restore(rig, t.v, 64), 64);
    assert_int_equal(rig_folder_bytes(rig, NULL), rig_status(rig).bytes);
    tokens_release(&t);
}

/* Saves that were queued when the folder was removed are not lost: the next folder gets them. */
static void what_was_to_be_saved_as_the_folder_went_is_in_the_new_one(void **state)
{
    enum { SAVES = 10, N = 160 };
    struct rig *rig = *state;
    rig_start(rig);
    rig_lose_folder(rig, rig->params.save_tier);
    struct tokens lists[SAVES];
    for (size_t i = 0; i < SAVES; i++) {
        lists[i] = some_tokens(50 + i, N);
        if (rig_save_from(rig, lists[i].v, 0, N) != 0) continue;
        tokens_release(&lists[i]); /* refused: the folder was gone just then */
    }
    assert_true(store_wait(rig->store, UINT64_MAX, in_ms(30000)));
    await_open(rig);
    for (size_t i = 0; i < SAVES; i++) {
        if (lists[i].len > 0) assert_int_equal(rig_restore(rig, lists[i].v, N), N);
        tokens_release(&lists[i]);
    }
}

/* One file cannot be removed: it counts as used just then, and others are evicted in its place. */
static void a_slab_that_cannot_be_removed_stops_no_saves(void **state)
{
    struct rig *rig = *state;
    struct fake_faults faults;
    char name[2 * SHA256_BYTES + 1];
    size_t stored = 0;
    fake_faults_init(&faults, files_machine());
    rig->params.files = &faults.files;
    rig->params.tiers[rig->params.save_tier].quota = 10000;
    rig_start(rig);
    for (uint64_t i = 0; i < 60; i++) {
        struct tokens t = some_tokens(200 + i, 16);
        struct slab_key key = slab_key_of(&rig->user.user.identity, t.v, 16);
        rig_keep(rig, t.v, 16);
        if (i == 0) {
            sha256_to_hex(key.v, name);
            fake_faults_set(&faults, (struct fake_fault){.call = FAKE_UNLINK,
                                                         .on = name,
                                                         .nth = 1,
                                                         .lasting = true,
                                                         .effect = FAKE_ERROR,
                                                         .error = EBADMSG});
        }
        if (i >= 40) stored += rig_found(rig, t.v, 16) == 16;
        tokens_release(&t);
    }
    assert_true(faults.struck > 0);
    assert_true(stored >= 18); /* a save whose eviction meets it fails, and the next does not */
    rig_stop(rig);
}

/* Every system call of a run fails once; whatever is found afterwards, by this process and the next, is exact. */
static void use_it(struct rig *rig, const struct tokens *t)
{
    for (int32_t n = 20; n <= 60; n += 20) {
        rig_keep(rig, t->v, n);
        assert_true(rig_restore(rig, t->v, 60) >= 0);
    }
}

static void check_and_repair(struct rig *rig, const struct tokens *t)
{
    assert_true(rig_restore(rig, t->v, 60) >= 0);
    rig_keep(rig, t->v, 60);
    assert_int_equal(rig_restore(rig, t->v, 60), 60);
    assert_true(rig_folder_bytes(rig, NULL) <= rig_status(rig).bytes);
}

static void any_call_may_fail(void **state)
{
    static const int errors[] = {EIO, ENOSPC, EROFS};
    struct rig *rig = *state;
    struct fake_faults faults;
    fake_faults_init(&faults, files_machine());
    rig->params.files = &faults.files;
    rig->user.user.codec.has_state = true;
    log_open(NULL, "error", "text", NULL);
    uint64_t nth = 0;
    do {
        struct tokens t = some_tokens(100 + nth, 60);
        nth++;
        fake_faults_set(&faults, (struct fake_fault){0});
        rig_start(rig);
        fake_faults_set(
            &faults,
            (struct fake_fault){.call = FAKE_ANY_CALL, .nth = nth, .effect = FAKE_ERROR, .error = errors[nth % 3]});
        use_it(rig, &t);
        uint64_t struck = faults.struck;
        check_and_repair(rig, &t);
        rig_stop(rig);
        assert_int_equal(faults.descriptors, 0);
        fake_faults_set(&faults, (struct fake_fault){0});
        rig_start(rig);
        assert_int_equal(rig_restore(rig, t.v, 60), 60);
        rig_stop(rig);
        rig_lose_folder(rig, rig->params.save_tier);
        tokens_release(&t);
        if (struck == 0) break;
    } while (nth < 1000);
    log_open(NULL, "info", "text", NULL);
    assert_in_range(nth, 50, 999);
}

/* Files that cannot be removed count in the quota until they are: nothing is written meanwhile. */
static void what_cannot_be_removed_still_counts(void **state)
{
    struct rig *rig = *state;
    struct fake_faults faults;
    const uint64_t quota = 20000;
    fake_faults_init(&faults, files_machine());
    rig->params.files = &faults.files;
    rig->params.tiers[rig->params.save_tier].quota = quota;
    rig_start(rig);
    for (uint64_t i = 0; i < 60; i++) {
        struct fake_fault stuck = {
            .call = FAKE_UNLINK, .nth = 1, .lasting = true, .effect = FAKE_ERROR, .error = EROFS};
        if (i == 20) fake_faults_set(&faults, stuck);
        if (i == 40) fake_faults_set(&faults, (struct fake_fault){0});
        struct tokens t = some_tokens(200 + i, 64);
        rig_keep(rig, t.v, 64);
        assert_true(rig_status(rig).bytes <= quota);
        assert_true(rig_folder_bytes(rig, NULL) <= quota);
        tokens_release(&t);
    }
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 20);
    assert_string_equal(rig_status(rig).trouble, "");
    rig_stop(rig);
}

/* ---- Slow ---- */

static struct gated_files gated;

static void start_gated(struct rig *rig)
{
    gated_files_init(&gated);
    rig->params.files = &gated.files;
    rig_start(rig);
}

static void waiting_for_a_save_waits_for_the_disk(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(10, 16);
    start_gated(rig);
    gate_close(&gated);
    uint64_t ticket = rig_save_from(rig, t.v, 0, 16);
    gate_await(&gated);
    assert_false(store_wait(rig->store, ticket, in_ms(20)));
    assert_int_equal(rig_found(rig, t.v, 16), 0);
    assert_int_equal(gated.synced, 0);
    gate_open(&gated);
    assert_true(store_wait(rig->store, ticket, in_ms(30000)));
    assert_int_equal(gated.synced, 2); /* the file, and its folder */
    assert_int_equal(rig_restore(rig, t.v, 16), 16);
    assert_true(store_wait(rig->store, 0, 0));
    rig_stop(rig);
    tokens_release(&t);
}

static void a_full_backlog_drops_what_nobody_waits_for(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(11, 1024);
    rig->params.backlog = 3000;
    start_gated(rig);
    gate_close(&gated);
    uint64_t last = 0;
    int32_t at = 0;
    for (uint64_t ticket; (ticket = rig_save_from(rig, t.v, at, at + 64)) != 0; at += 64) last = ticket;
    assert_int_equal(at, 2 * 64); /* 1040 bytes each */
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 1);
    assert_int_equal(metric_get(&store_stats(rig->store)->backlog_bytes), 2080);
    assert_false(store_has_room(rig->store, &rig->user.user, 1000));
    assert_true(store_has_room(rig->store, &rig->user.user, 900));

    size_t size;
    struct store_save save = {.user = &rig->user.user,
                              .kind = SLAB_ROWS,
                              .reason = SLAB_EVICT,
                              .tokens = t.v,
                              .from = at,
                              .to = at + 512,
                              .last = true,
                              .synchronous = true};
    save.raw = fake_user_copy(&rig->user, rig->store, SLAB_ROWS, t.v, save.from, save.to, &size);
    save.size = size;
    uint64_t ticket = store_save(rig->store, &save), seen = fake_user_wakes(&rig->user);
    assert_int_equal(ticket, last + 1);
    gate_open(&gated);
    assert_true(fake_user_wait(&rig->user, seen));
    rig_wait(rig, ticket);
    assert_true(store_has_room(rig->store, &rig->user.user, 3000));
    assert_int_equal(metric_get(&store_stats(rig->store)->backlog_bytes), 0);
    assert_int_equal(metric_get(&store_stats(rig->store)->saves[SLAB_EVICT]), 1);
    assert_int_equal(rig_restore(rig, t.v, 1024), at + 512);
    rig_stop(rig);
    tokens_release(&t);
}

static void await_set_aside(struct rig *rig)
{
    while (rig_status(rig).on) sched_yield();
}

static void what_was_queued_behind_a_write_that_hangs_is_written(void **state)
{
    enum { SAVES = 10 };
    struct rig *rig = *state;
    struct tokens lists[SAVES];
    rig->params.save_timeout_ns = clock_from_ms(50);
    start_gated(rig);
    gate_close(&gated);
    for (size_t i = 0; i < SAVES; i++) {
        lists[i] = some_tokens(60 + i, 16);
        assert_true(rig_save_from(rig, lists[i].v, 0, 16) != 0);
    }
    await_set_aside(rig);
    gate_open(&gated);
    assert_true(store_wait(rig->store, UINT64_MAX, in_ms(30000)));
    await_open(rig);
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 0);
    for (size_t i = 0; i < SAVES; i++) {
        assert_int_equal(rig_restore(rig, lists[i].v, 16), 16);
        tokens_release(&lists[i]);
    }
    rig_stop(rig);
}

/* The lookup came before the tier went out of service. The user asks again and again, as an engine does between two
 * ticks. */
static void a_fetch_that_begins_while_the_tier_hangs_is_given_up(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(70, 64), u = some_tokens(71, 64);
    struct store_piece piece;
    rig->params.fetch_timeout_ns = clock_from_ms(50);
    start_gated(rig);
    rig_keep(rig, t.v, 64);
    rig_keep(rig, u.v, 64);
    struct store_hit *first = rig_find(rig, t.v, 64), *second = rig_find(rig, u.v, 64);
    gated.reads_too = true;
    gate_close(&gated);
    store_fetch(first, 64);
    await_set_aside(rig);
    store_fetch(second, 64);
    int64_t deadline = in_ms(30000);
    enum store_next next = STORE_PENDING;
    while (next == STORE_PENDING && clock_now(clock_monotonic()) < deadline) next = store_next_piece(second, &piece);
    assert_int_equal(next, STORE_LOST);
    gate_open(&gated);
    await_open(rig);
    store_hit_close(first);
    store_hit_close(second);
    gated.reads_too = false;
    assert_int_equal(rig_restore(rig, u.v, 64), 64);
    rig_stop(rig);
    tokens_release(&t);
    tokens_release(&u);
}

/* ---- A parent that is being saved ---- */

struct asking {
    struct rig *rig;
    const struct identity *identity; /* NULL: the user's */
    struct tokens t;
    int64_t deadline;
    int32_t found;
};

static void *ask(void *ud)
{
    struct asking *asking = ud;
    struct slab_key parent = slab_key_of(&asking->rig->user.user.identity, asking->t.v, 40);
    struct store_query query = {.user = &asking->rig->user.user,
                                .identity = asking->identity,
                                .tokens = asking->t.v,
                                .n = (int32_t)asking->t.len,
                                .parent_key = &parent,
                                .deadline = asking->deadline};
    struct store_hit *hit = rig_find_after_parent(asking->rig, &query);
    asking->found = store_hit_tokens(hit);
    store_hit_count(hit, asking->found);
    store_hit_close(hit);
    return NULL;
}

static void a_parent_that_is_being_saved_is_waited_for(void **state)
{
    struct rig *rig = *state;
    struct asking asking = {.rig = rig, .t = some_tokens(12, 60)};
    pthread_t thread;
    start_gated(rig);
    gate_close(&gated);
    uint64_t ticket = rig_save_from(rig, asking.t.v, 0, 40);
    gate_await(&gated);
    asking.deadline = in_ms(20);
    ask(&asking);
    bool in_vain = asking.found == 0 && in_ms(0) >= asking.deadline;

    asking.deadline = in_ms(30000);
    pthread_create(&thread, NULL, ask, &asking);
    gate_open(&gated);
    pthread_join(thread, NULL);
    assert_true(in_vain);
    assert_true(in_ms(0) < asking.deadline); /* it was woken */
    assert_int_equal(asking.found, 40);
    assert_int_equal(metric_get(&store_stats(rig->store)->hits_resume), 1);
    assert_int_equal(metric_get(&store_stats(rig->store)->misses), 1);
    rig_wait(rig, ticket);
    asking.deadline = in_ms(30000);
    struct tokens other = some_tokens(13, 60), known = asking.t; /* no save is queued: no wait */
    asking.t = other;
    ask(&asking);
    assert_int_equal(asking.found, 0);
    rig_stop(rig);
    tokens_release(&known);
    tokens_release(&other);
}

/* Whether the lookup returns without a match, long before its deadline. */
static bool goes_on_at_once(struct asking *asking)
{
    asking->deadline = in_ms(20000);
    ask(asking);
    return asking->found == 0 && in_ms(10000) < asking->deadline;
}

/* One save is being written and another is queued: each is waited for by the requests that continue it, and by no
 * other. */
static void the_queue_of_saves_holds_up_nobody_but_who_continues_them(void **state)
{
    struct rig *rig = *state;
    struct tokens saved[] = {some_tokens(15, 60), some_tokens(16, 60)};
    bool waited = true, held_up = false;
    start_gated(rig);
    gate_close(&gated);
    for (int i = 0; i < 2; i++) {
        rig_save_from(rig, saved[i].v, 0, 40);
        gate_await(&gated);
    }
    for (int i = 0; i < 2; i++) {
        struct asking own = {.rig = rig, .t = saved[i], .deadline = in_ms(20)};
        ask(&own);
        waited = waited && in_ms(0) >= own.deadline;
        struct asking diverging = {.rig = rig, .t = some_tokens(15 + (uint64_t)i, 60)};
        diverging.t.v[39]++; /* the last token of the queued save */
        held_up = held_up || !goes_on_at_once(&diverging);
        tokens_release(&diverging.t);
    }
    gate_open(&gated);
    assert_true(waited);
    assert_false(held_up);
    rig_stop(rig);
    for (int i = 0; i < 2; i++) tokens_release(&saved[i]);
}

/* Or a request under one salt could notice what is being saved under another. */
static void saves_of_the_same_tokens_under_another_salt_hold_nobody_up(void **state)
{
    struct rig *rig = *state;
    struct asking asking = {.rig = rig, .t = some_tokens(17, 60)};
    struct identity salted = identity_salted(&rig->user.user.identity, "other");
    asking.identity = &salted;
    start_gated(rig);
    gate_close(&gated);
    for (int i = 0; i < 2; i++) {
        rig_save_from(rig, asking.t.v, 0, 40);
        gate_await(&gated);
    }
    bool at_once = goes_on_at_once(&asking);
    gate_open(&gated);
    assert_true(at_once);
    rig_stop(rig);
    tokens_release(&asking.t);
}

/* ---- Removing a user ---- */

static void a_user_that_left_is_not_called_any_more(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(14, 64);
    rig->params.backlog = 2000;
    start_gated(rig);
    gate_close(&gated);
    assert_true(rig_save_from(rig, t.v, 0, 32) != 0);
    gate_await(&gated);
    uint64_t queued = rig_save_from(rig, t.v, 32, 64);
    assert_true(queued != 0);
    assert_int_equal(rig_save_from(rig, t.v, 0, 64), 0);
    store_remove_user(rig->store, &rig->user.user);
    struct fake_user left = rig->user;
    memset(&rig->user, 0xdb, sizeof rig->user); /* a call of its functions would crash now */
    gate_open(&gated);
    assert_true(store_wait(rig->store, queued, in_ms(30000)));
    rig->user = left;
    assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 3); /* one was refused */
    assert_int_equal(rig_restore(rig, t.v, 64), 16);                          /* what was being written */
    rig_stop(rig);
    tokens_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TIERS(a_full_disk_costs_saves_and_a_line_in_the_log),
        FOLDER_TIERS(a_folder_that_was_removed_is_made_anew),
        ON_DISK(what_was_to_be_saved_as_the_folder_went_is_in_the_new_one),
        ON_DISK(a_slab_that_cannot_be_removed_stops_no_saves),
        ON_DISK(what_was_queued_behind_a_write_that_hangs_is_written),
        ON_DISK(a_fetch_that_begins_while_the_tier_hangs_is_given_up),
        ON_DISK(any_call_may_fail),
        FOLDER_TIERS(what_cannot_be_removed_still_counts),
        FOLDER_TIERS(waiting_for_a_save_waits_for_the_disk),
        ON_DISK(a_full_backlog_drops_what_nobody_waits_for),
        ON_DISK(a_parent_that_is_being_saved_is_waited_for),
        ON_DISK(the_queue_of_saves_holds_up_nobody_but_who_continues_them),
        ON_DISK(saves_of_the_same_tokens_under_another_salt_hold_nobody_up),
        ON_DISK(a_user_that_left_is_not_called_any_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
