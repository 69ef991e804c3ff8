/* Encodings of media: each is computed once, kept within the budget, and given back in any order. */
#include "fakes/cmocka_all.h"

#include "base/error.h"
#include "base/memory.h"
#include "fakes/store_rig.h"
#include "instance/media/encoder.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { FLOATS = 8 };

/* What is encoded: its number, in every row. */
struct medium {
    int number;
    bool fails;
};

static _Atomic int encoded, released, ready, held; /* held: while it is 1, encoding waits at `gate` */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static int encode(void *ud, float *rows, hearth_error *error)
{
    const struct medium *medium = ud;
    atomic_store(&held, 1);
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    atomic_store(&held, 0);
    atomic_fetch_add(&encoded, 1);
    if (medium->fails) return error_set(error, HEARTH_INVALID, "medium %d is odd", medium->number);
    for (int i = 0; i < FLOATS; i++) rows[i] = (float)medium->number;
    return HEARTH_OK;
}

static void release(void *ud)
{
    atomic_fetch_add(&released, 1);
    free(ud);
}

static void note_ready(void *ud)
{
    (void)ud;
    atomic_fetch_add(&ready, 1);
}

static struct encoding *want_one(struct encoder *encoder, int number, bool fails, bool secret)
{
    struct medium *medium = mem_alloc(sizeof *medium);
    *medium = (struct medium){number, fails};
    struct encoder_task task = {
        .n_floats = FLOATS, .secret = secret, .medium = medium, .encode = encode, .release = release};
    memcpy(task.key, &number, sizeof number);
    return encoder_want(encoder, &task, note_ready, NULL);
}

static struct encoding *want(struct encoder *encoder, int number)
{
    return want_one(encoder, number, false, false);
}

static void await(const struct encoding *encoding)
{
    hearth_error error;
    while (encoding_rows(encoding) == NULL && encoding_fault(encoding, &error) == HEARTH_OK) sched_yield();
}

static void expect_rows(struct encoding *encoding, int number)
{
    await(encoding);
    const float *rows = encoding_rows(encoding);
    assert_non_null(rows);
    for (int i = 0; i < FLOATS; i++) assert_true(rows[i] == (float)number);
}

static struct encoder_stats stats;
static struct stored_encodings *stored; /* NULL: there is no store */

static struct encoder *open_encoder(size_t budget)
{
    atomic_store(&encoded, 0);
    atomic_store(&released, 0);
    atomic_store(&ready, 0);
    atomic_store(&held, 0);
    stats = (struct encoder_stats){0};
    const struct encoder_params params = {.budget = budget, .stored = stored, .stats = &stats};
    struct encoder *encoder = encoder_open(&params, NULL);
    assert_non_null(encoder);
    return encoder;
}

static void those_who_wait_for_one_medium_share_its_encoding(void **state)
{
    (void)state;
    enum { N = 5 };
    struct encoder *encoder = open_encoder(1 << 20);
    struct encoding *wanted[N];
    pthread_mutex_lock(&gate);
    for (int i = 0; i < N; i++) wanted[i] = want(encoder, 7);
    for (int i = 0; i < N; i++) assert_null(encoding_rows(wanted[i]));
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < N; i++) expect_rows(wanted[i], 7);
    for (int i = 0; i < N; i++) encoding_release(wanted[i]);
    assert_int_equal(encoded, 1);
    assert_int_equal(released, N);
    assert_int_equal(ready, N);
    assert_int_equal(metric_get(&stats.shared), N - 1);
    encoder_close(encoder);
}

static void what_is_kept_is_not_encoded_again_until_the_budget_is_used_up(void **state)
{
    (void)state;
    struct encoder *encoder = open_encoder(2 * FLOATS * sizeof(float));
    for (int number = 1; number <= 3; number++) {
        struct encoding *one = want(encoder, number);
        expect_rows(one, number);
        encoding_release(one);
    }
    assert_int_equal(metric_get(&stats.kept_bytes), 2 * FLOATS * sizeof(float));
    struct encoding *third = want(encoder, 3);
    expect_rows(third, 3); /* at once */
    assert_int_equal(encoded, 3);
    assert_int_equal(ready, 3);
    struct encoding *first = want(encoder, 1);
    expect_rows(first, 1);
    assert_int_equal(encoded, 4);
    encoding_release(third);
    encoding_release(first);
    encoder_close(encoder);
    assert_int_equal(released, 5);
}

static void a_failure_is_told_to_all_and_tried_again_by_the_next(void **state)
{
    (void)state;
    struct encoder *encoder = open_encoder(1 << 20);
    pthread_mutex_lock(&gate);
    struct encoding *one = want_one(encoder, 9, true, false), *other = want(encoder, 9);
    pthread_mutex_unlock(&gate);
    await(one);
    hearth_error error = {0};
    assert_int_equal(encoding_fault(one, &error), HEARTH_INVALID);
    assert_string_equal(error.message, "medium 9 is odd");
    assert_int_equal(encoding_fault(other, &error), HEARTH_INVALID);
    encoding_release(one);
    encoding_release(other);
    struct encoding *again = want(encoder, 9);
    expect_rows(again, 9);
    encoding_release(again);
    encoder_close(encoder);
}

/* Given back before it was begun, it is never encoded; while it is being encoded, it is kept. */
static void what_nobody_wants_any_more_is_not_encoded(void **state)
{
    (void)state;
    struct encoder *encoder = open_encoder(1 << 20);
    pthread_mutex_lock(&gate);
    struct encoding *running = want(encoder, 1);
    while (atomic_load(&held) == 0) sched_yield();
    struct encoding *queued = want(encoder, 2);
    encoding_release(queued);
    assert_int_equal(released, 1);
    encoding_release(running);
    pthread_mutex_unlock(&gate);
    struct encoding *last = want(encoder, 3);
    expect_rows(last, 3);
    assert_int_equal(encoded, 2);
    assert_int_equal(ready, 1);
    encoding_release(last);
    struct encoding *kept = want(encoder, 1);
    expect_rows(kept, 1);
    assert_int_equal(encoded, 2);
    encoding_release(kept);
    encoder_close(encoder);
}

static void use(struct encoder *encoder, int number, bool secret)
{
    struct encoding *one = want_one(encoder, number, false, secret);
    expect_rows(one, number);
    encoding_release(one);
}

static void a_secret_one_is_not_kept(void **state)
{
    (void)state;
    struct encoder *encoder = open_encoder(1 << 20);
    use(encoder, 1, true);
    assert_int_equal(metric_get(&stats.kept_bytes), 0);
    use(encoder, 1, true);
    assert_int_equal(encoded, 2);
    encoder_close(encoder);
}

/* A memory of nothing; a failure and a secret are not stored. */
static void what_is_stored_is_read_in_place_of_encoding(void **state)
{
    (void)state;
    static const uint8_t projector[SHA256_BYTES] = {1};
    struct rig rig;
    rig_init(&rig, STORE_DISK);
    rig_start(&rig);
    for (int round = 0; round < 2; round++) {
        stored = stored_encodings_open(
            &(struct stored_encodings_params){.store = rig.store, .projector = projector, .name = "demo (mmproj)"});
        struct encoder *encoder = open_encoder(0);
        use(encoder, 1, false);
        use(encoder, 2, true);
        struct encoding *bad = want_one(encoder, 3, true, false);
        await(bad);
        encoding_release(bad);
        assert_int_equal(metric_get(&stats.encoded), round == 0 ? 3 : 2);
        assert_int_equal(metric_get(&stats.fetched), round);
        encoder_close(encoder);
        stored_encodings_close(stored, CLOCK_NEVER);
    }
    stored = NULL;
    rig_stop(&rig);
    rig_release(&rig);
}

static void *want_often(void *ud)
{
    struct encoder *encoder = ud;
    for (int i = 0; i < 500; i++) {
        int number = i * 7 % 11;
        struct encoding *one = want(encoder, number);
        if (i % 3 != 0) expect_rows(one, number);
        encoding_release(one);
    }
    return NULL;
}

static void threads_may_want_and_give_back_at_once(void **state)
{
    (void)state;
    enum { N = 4 };
    struct encoder *encoder = open_encoder(4 * FLOATS * sizeof(float));
    pthread_t threads[N];
    for (int i = 0; i < N; i++) pthread_create(&threads[i], NULL, want_often, encoder);
    for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
    encoder_close(encoder);
    assert_int_equal(released, N * 500);
}

static _Atomic bool enough;

static void *want_in_passing(void *ud)
{
    for (; !atomic_load(&enough); sched_yield()) encoding_release(want(ud, 1));
    return NULL;
}

/* Nobody wants it when its rows are there, and then somebody does at once. Nothing is kept here, so that it is encoded
 * again and again. */
static void one_may_be_wanted_again_while_it_is_finished(void **state)
{
    (void)state;
    enum { THREADS = 2, ROUNDS = 300 };
    struct encoder *encoder = open_encoder(0);
    pthread_t threads[THREADS];
    atomic_store(&enough, false);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, want_in_passing, encoder);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&gate);
        while (!atomic_load(&held)) sched_yield();
        int before = atomic_load(&encoded);
        pthread_mutex_unlock(&gate);
        while (atomic_load(&encoded) == before) sched_yield();
    }
    atomic_store(&enough, true);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    encoder_close(encoder);
    assert_int_equal(metric_get(&stats.kept_bytes), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_who_wait_for_one_medium_share_its_encoding),
        cmocka_unit_test(what_is_kept_is_not_encoded_again_until_the_budget_is_used_up),
        cmocka_unit_test(a_failure_is_told_to_all_and_tried_again_by_the_next),
        cmocka_unit_test(what_nobody_wants_any_more_is_not_encoded),
        cmocka_unit_test(a_secret_one_is_not_kept),
        cmocka_unit_test(what_is_stored_is_read_in_place_of_encoding),
        cmocka_unit_test(threads_may_want_and_give_back_at_once),
        cmocka_unit_test(one_may_be_wanted_again_while_it_is_finished),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
