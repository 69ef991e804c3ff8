/* Encodings in the store: they come back as they were, or not at all, and never later than encoding them would take. */
#include "fakes/cmocka_all.h"

#include "fakes/gated_files.h"
#include "fakes/store_rig.h"
#include "instance/media/encoder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FLOATS = 1000 };

static const uint8_t projector[SHA256_BYTES] = {1}, other_projector[SHA256_BYTES] = {2};
static const uint8_t key[SHA256_BYTES] = {3}, other_key[SHA256_BYTES] = {3, [SHA256_BYTES - 1] = 1};

static int setup(void **state)
{
    struct rig *rig = malloc(sizeof *rig);
    rig_init(rig, STORE_DISK);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_release(*state);
    free(*state);
    return 0;
}

static void fill(float rows[FLOATS], float first)
{
    for (int i = 0; i < FLOATS; i++) rows[i] = first + (float)i / 7;
}

static void close_now(struct stored_encodings *stored)
{
    stored_encodings_close(stored, CLOCK_NEVER);
}

static void store_one(struct rig *rig, float first)
{
    float rows[FLOATS];
    struct stored_encodings *stored = stored_encodings_open(
        &(struct stored_encodings_params){.store = rig->store, .projector = projector, .name = "demo (mmproj)"});
    fill(rows, first);
    stored_encodings_write(stored, key, rows, FLOATS);
    close_now(stored);
}

static void rows_come_back_under_their_key_alone(void **state)
{
    struct rig *rig = *state;
    float rows[FLOATS], expected[FLOATS];
    rig_start(rig);
    store_one(rig, 5);
    rig_stop(rig);
    rig_start(rig);
    struct stored_encodings *stored = stored_encodings_open(
        &(struct stored_encodings_params){.store = rig->store, .projector = projector, .name = "demo (mmproj)"});
    fill(expected, 5);
    assert_true(stored_encodings_read(stored, key, 0, rows, FLOATS));
    assert_memory_equal(rows, expected, sizeof rows);
    assert_false(stored_encodings_read(stored, other_key, 0, rows, FLOATS));
    assert_false(stored_encodings_read(stored, key, 0, rows, FLOATS - 1));
    close_now(stored);
    stored = stored_encodings_open(
        &(struct stored_encodings_params){.store = rig->store, .projector = other_projector, .name = "demo (mmproj)"});
    assert_false(stored_encodings_read(stored, key, 0, rows, FLOATS));
    close_now(stored);
    rig_stop(rig);
}

static void flip(void *ud, const char *path)
{
    struct stat about;
    char byte;
    int file = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(fstat(file, &about), 0);
    assert_int_equal(pread(file, &byte, 1, about.st_size / 2), 1);
    byte ^= 1;
    assert_int_equal(pwrite(file, &byte, 1, about.st_size / 2), 1);
    close(file);
    ++*(int *)ud;
}

static void a_damaged_one_is_not_used(void **state)
{
    struct rig *rig = *state;
    float rows[FLOATS];
    int n = 0;
    rig_start(rig);
    store_one(rig, 5);
    rig_each_file(rig, flip, &n);
    assert_int_equal(n, 2); /* and the file of the model's name */
    struct stored_encodings *stored = stored_encodings_open(
        &(struct stored_encodings_params){.store = rig->store, .projector = projector, .name = "demo (mmproj)"});
    assert_false(stored_encodings_read(stored, key, 0, rows, FLOATS));
    close_now(stored);
    rig_stop(rig);
}

static void what_takes_longer_to_read_than_to_encode_is_not_read(void **state)
{
    struct rig *rig = *state;
    float rows[FLOATS];
    rig_start(rig);
    store_one(rig, 5);
    struct stored_encodings *stored = stored_encodings_open(
        &(struct stored_encodings_params){.store = rig->store, .projector = projector, .name = "demo (mmproj)"});
    int64_t before = metric_get(&store_stats(rig->store)->read_bytes);
    assert_false(stored_encodings_read(stored, key, 1, rows, FLOATS));
    assert_int_equal(metric_get(&store_stats(rig->store)->read_bytes), before);
    assert_true(stored_encodings_read(stored, key, INT64_C(60) * 1000000000, rows, FLOATS));
    close_now(stored);
    rig_stop(rig);
}

/* The disk is as fast as ever, as far as anyone knows, until it hangs. */
static void a_disk_that_hangs_is_left_when_encoding_would_be_done(void **state)
{
    struct rig *rig = *state;
    float rows[FLOATS];
    struct gated_files gated;
    gated_files_init(&gated);
    gated.reads_too = true;
    rig->params.files = &gated.files;
    rig_start(rig);
    store_one(rig, 5);
    struct stored_encodings *stored = stored_encodings_open(
        &(struct stored_encodings_params){.store = rig->store, .projector = projector, .name = "demo (mmproj)"});
    gate_close(&gated);
    assert_false(stored_encodings_read(stored, key, 100000000, rows, FLOATS));
    gate_open(&gated);
    assert_true(stored_encodings_read(stored, key, INT64_C(60) * 1000000000, rows, FLOATS));
    close_now(stored);
    rig_stop(rig);
}

#define ON_DISK(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DISK(rows_come_back_under_their_key_alone),
        ON_DISK(a_damaged_one_is_not_used),
        ON_DISK(what_takes_longer_to_read_than_to_encode_is_not_read),
        ON_DISK(a_disk_that_hangs_is_left_when_encoding_would_be_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
