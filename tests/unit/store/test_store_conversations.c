/* Conversations of a store: what is listed of all tiers, and orders about one, whatever its tier is doing. */
#include "tiers.h"

#include "fakes/fake_files.h"
#include "store/backends/backend.h"
#include "store/index/index.h"

#include <sched.h>
#include <string.h>

/* ---- Helpers ---- */

struct ordering {
    pthread_mutex_t mutex;
    int ends;
    hearth_error error;
};

static void note_end(void *ud, const hearth_error *error)
{
    struct ordering *ordering = ud;
    pthread_mutex_lock(&ordering->mutex);
    ordering->ends++;
    ordering->error = error == NULL ? (hearth_error){0} : *error;
    pthread_mutex_unlock(&ordering->mutex);
}

static int ends_of(struct ordering *ordering)
{
    pthread_mutex_lock(&ordering->mutex);
    int ends = ordering->ends;
    pthread_mutex_unlock(&ordering->mutex);
    return ends;
}

static void begin(struct rig *rig, struct ordering *ordering, enum store_order order, const struct slab_key *key)
{
    *ordering = (struct ordering){.mutex = PTHREAD_MUTEX_INITIALIZER};
    store_order(rig->store,
                &(struct store_ordered){
                    .tier = rig->params.save_tier, .key = *key, .order = order, .done = note_end, .ud = ordering});
}

static int give(struct rig *rig, enum store_order order, const struct slab_key *key)
{
    struct ordering ordering;
    begin(rig, &ordering, order, key);
    while (ends_of(&ordering) == 0) sched_yield();
    assert_int_equal(ends_of(&ordering), 1);
    return (int)ordering.error.code;
}

static struct slab_key key_of(const struct rig *rig, const int32_t *tokens, size_t n)
{
    return slab_key_of(&rig->user.user.identity, tokens, n);
}

static size_t list(struct rig *rig, struct store_conversation *out, size_t max)
{
    size_t total, n = store_conversations(rig->store, &(struct store_page){0}, out, max, &total);
    assert_true(n == total || n == max);
    return n;
}

static void await_next_millisecond(void)
{
    int64_t now = clock_unix_ms();
    while (clock_unix_ms() == now) {
    }
}

/* Two conversations of 100 tokens, of which they have 64 in common. */
struct two {
    struct tokens a, b;
};

static struct two keep_two(struct rig *rig)
{
    struct two two = {some_tokens(1, 100), some_tokens(2, 100)};
    memcpy(two.b.v, two.a.v, 64 * sizeof *two.b.v);
    rig_keep(rig, two.a.v, 100);
    await_next_millisecond();
    rig_keep(rig, two.b.v, 100);
    return two;
}

static void two_release(struct two *two)
{
    tokens_release(&two->a);
    tokens_release(&two->b);
}

/* ---- Listing ---- */

static void conversations_are_listed_with_what_is_their_own(void **state)
{
    struct rig *rig = *state;
    struct store_conversation found[4];
    rig_start(rig);
    store_name_model(rig->store, rig->user.user.identity.model, "demo");
    assert_int_equal(list(rig, found, 4), 0);
    struct two two = keep_two(rig);
    struct slab_key key = key_of(rig, two.b.v, 100);
    assert_int_equal(list(rig, found, 4), 2);
    assert_true(slab_key_equal(&found[0].key, &key));
    assert_int_equal(found[0].tier, rig->params.save_tier);
    assert_string_equal(found[0].model, "demo");
    assert_int_equal(found[0].tokens, 100);
    assert_int_equal(found[0].own_tokens, 36);
    assert_true(found[0].own_bytes > 0 && found[0].own_bytes < rig_status(rig).bytes);
    assert_true(clock_unix_ms() - found[0].used_ms < 60000);
    assert_int_equal(list(rig, found, 1), 1);
    assert_true(slab_key_equal(&found[0].key, &key));
    two_release(&two);
}

static void the_same_one_in_two_tiers_is_listed_twice(void **state)
{
    struct rig *rig = *state;
    enum store_tier other = rig->params.save_tier == STORE_DISK ? STORE_RAM_FILE : STORE_DISK;
    enum store_tier first = rig->params.save_tier;
    struct tokens t = some_tokens(3, 40);
    rig_add_tier(rig, other, 1 << 20);
    if (first == STORE_RAM) rig->params.save_tier = other;
    rig_start(rig);
    rig_keep(rig, t.v, 40);
    rig_stop(rig);
    rig->params.save_tier = rig->params.save_tier == first ? other : first;
    rig_start(rig);
    rig_keep(rig, t.v, 40);
    await_next_millisecond();
    assert_int_equal(rig_found(rig, t.v, 40), 40); /* a lookup uses both at one time */
    struct store_conversation found[4];
    size_t total, n = 0;
    struct store_page page = {0};
    for (; n < 4 && store_conversations(rig->store, &page, &found[n], 1, &total) == 1; n++) page.after = &found[n];
    assert_int_equal(n, 2);
    assert_int_equal(total, 2);
    assert_int_equal(found[0].used, found[1].used);
    assert_true(found[0].tier < found[1].tier && slab_key_equal(&found[0].key, &found[1].key));
    rig->params.save_tier = first;
    tokens_release(&t);
}

/* ---- Orders ---- */

static void what_is_dropped_is_gone_and_what_another_has_stays(void **state)
{
    struct rig *rig = *state;
    rig_start(rig);
    struct two two = keep_two(rig);
    struct slab_key key = key_of(rig, two.a.v, 100);
    struct store_conversation found[4];
    assert_int_equal(list(rig, found, 4), 2);
    uint64_t before = rig_status(rig).bytes, own = found[1].own_bytes;
    assert_int_equal(give(rig, STORE_DROP, &key), HEARTH_OK);
    assert_int_equal(give(rig, STORE_DROP, &key), HEARTH_NOT_FOUND);
    assert_int_equal(rig_status(rig).bytes, before - own);
    if (rig->params.save_tier != STORE_RAM) assert_int_equal(rig_folder_bytes(rig, NULL), before - own);
    assert_int_equal(rig_restore(rig, two.a.v, 100), 64);
    assert_int_equal(rig_restore(rig, two.b.v, 100), 100);
    rig_stop(rig);
    rig_start(rig);
    bool ram = rig->params.save_tier == STORE_RAM;
    assert_int_equal(rig_restore(rig, two.a.v, 100), ram ? 0 : 64);
    assert_int_equal(rig_restore(rig, two.b.v, 100), ram ? 0 : 100);
    two_release(&two);
}

static void what_is_being_read_is_not_dropped(void **state)
{
    struct rig *rig = *state;
    rig_start(rig);
    struct two two = keep_two(rig);
    struct slab_key key = key_of(rig, two.a.v, 100);
    struct store_hit *hit = rig_find(rig, two.a.v, 100);
    store_fetch(hit, 100);
    assert_int_equal(give(rig, STORE_DROP, &key), HEARTH_BUSY);
    bool lost;
    assert_int_equal(rig_take_all(rig, hit, two.a.v, &lost), 100);
    assert_false(lost);
    store_hit_close(hit);
    assert_int_equal(give(rig, STORE_DROP, &key), HEARTH_OK);
    two_release(&two);
}

static void what_is_kept_stays_while_others_are_evicted(void **state)
{
    struct rig *rig = *state;
    struct tokens kept = some_tokens(5, 64);
    rig_start(rig);
    rig_keep(rig, kept.v, 64);
    uint64_t bytes = rig_status(rig).bytes;
    rig_stop(rig);
    rig->params.tiers[rig->params.save_tier].quota = 5 * bytes;
    rig_start(rig);
    rig_keep(rig, kept.v, 64);
    struct slab_key key = key_of(rig, kept.v, 64);
    assert_int_equal(give(rig, STORE_KEEP, &key), HEARTH_OK);
    for (uint64_t i = 0; i < 20; i++) {
        struct tokens t = some_tokens(100 + i, 64);
        rig_keep(rig, t.v, 64);
        assert_int_equal(rig_restore(rig, t.v, 64), 64);
        if (i == 5) {
            struct slab_key other = key_of(rig, t.v, 64);
            assert_int_equal(give(rig, STORE_KEEP, &other), HEARTH_BUSY);
        }
        tokens_release(&t);
    }
    assert_int_equal(rig_restore(rig, kept.v, 64), 64);
    assert_int_equal(give(rig, STORE_RELEASE, &key), HEARTH_OK);
    struct store_conversation found[8];
    for (size_t i = 0, n = list(rig, found, 8); i < n; i++) assert_false(found[i].kept);
    tokens_release(&kept);
}

static void a_tier_out_of_service_refuses(void **state)
{
    struct rig *rig = *state;
    struct slab_key none = {{0}};
    rig_start(rig);
    struct two two = keep_two(rig);
    struct ordering ordering;
    begin(rig, &ordering, STORE_KEEP, &none);
    assert_int_equal(ordering.error.code, HEARTH_NOT_FOUND);
    assert_string_equal(ordering.error.param, "key");
    struct store_ordered off = {
        .tier = rig->params.save_tier == STORE_RAM ? STORE_DISK : STORE_RAM, .done = note_end, .ud = &ordering};
    store_order(rig->store, &off);
    assert_int_equal(ordering.ends, 2);
    assert_int_equal(ordering.error.code, HEARTH_UNAVAILABLE);
    store_end_orders(rig->store);
    struct slab_key key = key_of(rig, two.a.v, 100);
    assert_int_equal(give(rig, STORE_DROP, &key), HEARTH_UNAVAILABLE);
    assert_int_equal(rig_restore(rig, two.a.v, 100), 100);
    two_release(&two);
}

/* Nobody waits for the disk but the order; and at the end not even that. */
static void orders_end_while_the_disk_hangs(void **state)
{
    struct rig *rig = *state;
    struct fake_faults faults;
    struct ordering first, second;
    fake_faults_init(&faults, files_machine());
    rig->params.files = &faults.files;
    rig_start(rig);
    struct two two = keep_two(rig);
    struct slab_key a = key_of(rig, two.a.v, 100), b = key_of(rig, two.b.v, 100);
    fake_faults_set(&faults, (struct fake_fault){.call = FAKE_UNLINK, .nth = 1, .effect = FAKE_HANG});
    begin(rig, &first, STORE_DROP, &a);
    assert_true(fake_faults_await(&faults, 1));
    begin(rig, &second, STORE_DROP, &b);
    struct store_conversation found[4];
    assert_int_equal(list(rig, found, 4), 1);
    assert_int_equal(ends_of(&first) + ends_of(&second), 0);
    store_end_orders(rig->store);
    assert_int_equal(ends_of(&first), 1);
    assert_int_equal(ends_of(&second), 1);
    assert_int_equal(second.error.code, HEARTH_UNAVAILABLE);
    fake_faults_release(&faults);
    rig_stop(rig);
    assert_int_equal(ends_of(&first), 1);
    two_release(&two);
}

/* What could not be removed is there still, and the order says why. */
static void a_slab_that_cannot_be_removed_stays(void **state)
{
    struct rig *rig = *state;
    struct fake_faults faults;
    fake_faults_init(&faults, files_machine());
    rig->params.files = &faults.files;
    rig_start(rig);
    struct two two = keep_two(rig);
    struct slab_key key = key_of(rig, two.a.v, 100);
    uint64_t bytes = rig_status(rig).bytes;
    fake_faults_set(&faults, (struct fake_fault){.call = FAKE_UNLINK, .nth = 1, .effect = FAKE_ERROR, .error = 5});
    assert_true(give(rig, STORE_DROP, &key) < 0);
    assert_int_equal(rig_status(rig).bytes, bytes);
    assert_int_equal(rig_restore(rig, two.a.v, 100), 100);
    fake_faults_release(&faults);
    assert_int_equal(give(rig, STORE_DROP, &key), HEARTH_OK);
    rig_stop(rig);
    two_release(&two);
}

/* ---- While a tier is scanned ---- */

/* A backend in memory, whose scan takes as long as the test wants: what is done meanwhile is done by its thread. */
static struct {
    struct rig *_Atomic rig;
    struct tokens tokens;
    int (*has)(struct backend *backend, const struct slab_name *names, size_t n, bool *there, hearth_error *error);
    bool stored_again;
} scanned;

static void store_one(void)
{
    rig_wait(scanned.rig, rig_save_from(scanned.rig, scanned.tokens.v, 0, 16));
}

/* What a listing from before has of it. */
static void report_one(struct backend_scan *scan)
{
    const struct identity *identity = &scanned.rig->user.user.identity;
    struct slab_head head = {.kind = SLAB_ROWS,
                             .reason = SLAB_FINISH,
                             .identity = *identity,
                             .key = slab_key_of(identity, scanned.tokens.v, 16),
                             .end = 16,
                             .payload_size = 16 * scanned.rig->user.row_bytes};
    tokens_append(&head.tokens, scanned.tokens.v, 16);
    scan->each(scan->ud, &head, 4000);
    slab_head_release(&head);
}

static int removes_and_reports(struct backend *backend, struct backend_scan *scan, hearth_error *error)
{
    (void)backend, (void)error;
    while (scanned.rig == NULL) sched_yield();
    struct slab_key key = slab_key_of(&scanned.rig->user.user.identity, scanned.tokens.v, 16);
    store_one();
    assert_int_equal(give(scanned.rig, STORE_DROP, &key), HEARTH_OK);
    report_one(scan);
    assert_int_equal(index_has(store_tier_index(scanned.rig->store, STORE_RAM), &key), INDEX_ABSENT);
    return 0;
}

static int is_overtaken_by_a_save(struct backend *backend, const struct slab_name *names, size_t n, bool *there,
                                  hearth_error *error)
{
    int result = scanned.has(backend, names, n, there, error);
    if (!scanned.stored_again) store_one();
    scanned.stored_again = true;
    return result;
}

static void what_is_removed_while_a_tier_is_scanned_stays_so_and_what_is_stored_again_stays(void **state)
{
    struct rig *rig = *state;
    struct backend *backend = ram_backend_open();
    scanned.has = backend->has;
    scanned.rig = NULL;
    scanned.stored_again = false;
    scanned.tokens = some_tokens(3, 16);
    backend->scan = removes_and_reports;
    backend->has = is_overtaken_by_a_save;
    rig->params.tiers[STORE_RAM].backend = backend;
    rig->store = store_open(&rig->params, NULL);
    scanned.rig = rig;
    assert_true(store_wait_ready(rig->store, clock_now(clock_monotonic()) + clock_from_ms(30000)));
    if (!scanned.stored_again) {
        assert_int_equal(rig_found(rig, scanned.tokens.v, 16), 0);
        store_one();
    }
    assert_int_equal(rig_restore(rig, scanned.tokens.v, 16), 16);
    tokens_release(&scanned.tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TIERS(conversations_are_listed_with_what_is_their_own),
        TIERS(the_same_one_in_two_tiers_is_listed_twice),
        TIERS(what_is_dropped_is_gone_and_what_another_has_stays),
        TIERS(what_is_being_read_is_not_dropped),
        TIERS(what_is_kept_stays_while_others_are_evicted),
        TIERS(a_tier_out_of_service_refuses),
        ON_DISK(orders_end_while_the_disk_hangs),
        ON_DISK(a_slab_that_cannot_be_removed_stays),
        TIER_TEST(what_is_removed_while_a_tier_is_scanned_stays_so_and_what_is_stored_again_stays, STORE_RAM),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
