/* Damaged and replaced files: none of their rows are restored, they are counted, and saved anew. */
#include "tiers.h"

#include "base/memory.h"
#include "store/backends/folder.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Files ---- */

static char *file_of(const struct rig *rig, const int32_t *tokens, int32_t n, const char *kind)
{
    char name[2 * SHA256_BYTES + 1];
    struct slab_key key = slab_key_of(&rig->user.user.identity, tokens, (size_t)n);
    sha256_to_hex(key.v, name);
    return mem_format("%s/%s.%s", rig->paths[rig->params.save_tier], name, kind);
}

static off_t size_of(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 ? status.st_size : -1;
}

static void flip(const char *path, off_t at)
{
    uint8_t byte;
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void copy_file(const char *from, const char *to)
{
    char bytes[8192];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ssize_t n = read(in, bytes, sizeof bytes);
    assert_true(n > 0 && n < (ssize_t)sizeof bytes);
    assert_int_equal(write(out, bytes, (size_t)n), n);
    close(in);
    close(out);
}

static int64_t corrupt_files(const struct rig *rig)
{
    return metric_get(&store_stats(rig->store)->corrupt_files);
}

/* The saver thread removes dropped slabs before the next save: once a save is done, they are removed. */
static void keep_anew(struct rig *rig, const int32_t *tokens, int32_t n)
{
    rig_keep(rig, tokens, n);
    assert_int_equal(rig_restore(rig, tokens, n), n);
}

/* ---- Damage ---- */

/* Time of last use and hits are the only bytes that may change in a file. */
static void a_flipped_byte_is_never_restored(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(1, 4);
    rig_start(rig);
    rig_keep(rig, t.v, 4);
    char *path = file_of(rig, t.v, 4, "rows");
    off_t size = size_of(path);
    int64_t harmless = 0;
    for (off_t at = 0; at < size; at++) {
        int64_t before = corrupt_files(rig);
        flip(path, at);
        int32_t restored = rig_restore(rig, t.v, 4);
        if (restored == 4 && at >= (off_t)SLAB_USE_OFFSET && at < (off_t)SLAB_USE_OFFSET + SLAB_USE_BYTES) {
            harmless++;
            continue;
        }
        assert_int_equal(restored, 0);
        assert_int_equal(corrupt_files(rig), before + 1);
        remove(path);
        keep_anew(rig, t.v, 4);
    }
    assert_in_range(harmless, 1, SLAB_USE_BYTES);
    free(path);
    tokens_release(&t);
}

/* A child is not found without its parent, and is found again with it, without being written again. */
static void what_hangs_on_a_damaged_slab_waits_for_it(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(2, 80), u = some_tokens(3, 40);
    bool lost;
    rig_start(rig);
    rig_keep(rig, t.v, 80);
    rig_keep(rig, u.v, 40);
    char *path = file_of(rig, t.v, 48, "rows");
    flip(path, size_of(path) / 2);
    struct store_hit *hit = rig_find(rig, t.v, 80);
    store_fetch(hit, 80);
    assert_int_equal(rig_take_all(rig, hit, t.v, &lost), 32);
    assert_true(lost);
    struct store_piece piece;
    assert_int_equal(store_next_piece(hit, &piece), STORE_LOST);
    store_hit_close(hit);
    assert_int_equal(corrupt_files(rig), 1);
    assert_int_equal(rig_found(rig, t.v, 80), 32);
    assert_int_equal(rig_restore(rig, u.v, 40), 40);
    off_t size = size_of(path);
    int64_t written = metric_get(&store_stats(rig->store)->written_bytes);
    rig_keep(rig, t.v, 48);
    assert_int_equal(rig_found(rig, t.v, 80), 80);
    keep_anew(rig, t.v, 80);
    assert_int_equal(metric_get(&store_stats(rig->store)->written_bytes) - written, size_of(path));
    assert_true(size == -1 || size == size_of(path));
    assert_int_equal(rig_folder_bytes(rig, NULL), rig_status(rig).bytes);
    free(path);
    tokens_release(&t);
    tokens_release(&u);
}

/* Several hits fetch the same tokens, and one of them finds the damage. */
static void others_that_read_a_damaged_slab_lose_it_too(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(4, 80);
    struct store_hit *hits[4];
    bool lost;
    rig_start(rig);
    rig_keep(rig, t.v, 80);
    char *path = file_of(rig, t.v, 48, "rows");
    flip(path, size_of(path) - 20);
    for (size_t i = 0; i < 4; i++) hits[i] = rig_find(rig, t.v, 80);
    for (size_t i = 0; i < 4; i++) store_fetch(hits[i], 80);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(rig_take_all(rig, hits[i], t.v, &lost), 32);
        assert_true(lost);
        store_hit_close(hits[i]);
    }
    keep_anew(rig, t.v, 80);
    free(path);
    tokens_release(&t);
}

static void a_joined_fetch_with_a_damaged_slab_is_lost(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(5, 80);
    rig->user.user.codec.appends = false;
    rig_start(rig);
    rig_keep(rig, t.v, 80);
    char *path = file_of(rig, t.v, 48, "rows");
    flip(path, size_of(path) - 20);
    assert_int_equal(rig_restore(rig, t.v, 80), 0);
    assert_int_equal(rig_restore(rig, t.v, 80), 32);
    free(path);
    tokens_release(&t);
}

/* A whole slab under the name of another, and one of other tokens under the right name: neither is used. */
static void a_file_of_other_tokens_is_never_restored(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(6, 16), u = some_tokens(7, 16);
    rig_start(rig);
    rig_keep(rig, t.v, 16);
    rig_keep(rig, u.v, 16);
    char *of_t = file_of(rig, t.v, 16, "rows"), *of_u = file_of(rig, u.v, 16, "rows");
    copy_file(of_t, of_u);
    assert_int_equal(rig_restore(rig, u.v, 16), 0);
    assert_int_equal(corrupt_files(rig), 1);
    assert_int_equal(rig_restore(rig, t.v, 16), 16);
    keep_anew(rig, u.v, 16);
    free(of_t);
    free(of_u);
    tokens_release(&t);
    tokens_release(&u);
}

/* Writes a slab of other tokens under the name of `as`, with right checksums and the key of `as` in it. */
static void forge(struct rig *rig, const struct tokens *of, const struct tokens *as)
{
    hearth_error error;
    struct folder *folder = folder_open_read_only(rig->params.files, rig->paths[rig->params.save_tier], &error);
    struct slab_key key = slab_key_of(&rig->user.user.identity, of->v, of->len);
    struct slab slab = {0};
    assert_int_equal(folder_read(folder, &key, SLAB_ROWS, &slab, &error), 0);
    slab.head.key = slab_key_of(&rig->user.user.identity, as->v, as->len);
    struct buf front = {0};
    uint8_t trailer[SLAB_TRAILER_BYTES];
    slab_encode(&slab.head, slab.payload, &front, trailer);
    char *path = file_of(rig, as->v, (int32_t)as->len, "rows");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fwrite(front.v, 1, front.len, file);
    fwrite(slab.payload, 1, (size_t)slab.head.payload_size, file);
    fwrite(trailer, 1, sizeof trailer, file);
    fclose(file);
    free(path);
    buf_release(&front);
    slab_release(&slab);
    folder_close(folder);
}

static void tokens_decide_where_every_checksum_and_the_key_are_right(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(6, 16), u = some_tokens(7, 16);
    rig_start(rig);
    rig_keep(rig, t.v, 16);
    rig_keep(rig, u.v, 16);
    forge(rig, &t, &u);
    assert_int_equal(rig_restore(rig, u.v, 16), 0);
    assert_int_equal(corrupt_files(rig), 1);
    keep_anew(rig, u.v, 16);
    tokens_release(&t);
    tokens_release(&u);
}

static void a_forged_file_is_found_by_no_tokens_after_a_restart(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(6, 16), u = some_tokens(7, 16);
    rig_start(rig);
    rig_keep(rig, t.v, 16);
    rig_keep(rig, u.v, 16);
    forge(rig, &t, &u);
    rig_stop(rig);
    rig_start(rig);
    assert_int_equal(rig_restore(rig, u.v, 16), 0);
    assert_int_equal(rig_restore(rig, t.v, 16), 16);
    tokens_release(&t);
    tokens_release(&u);
}

static void a_file_that_is_gone_is_lost_and_saved_anew(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(8, 64);
    rig_start(rig);
    rig_keep(rig, t.v, 64);
    char *path = file_of(rig, t.v, 32, "rows");
    assert_int_equal(remove(path), 0);
    assert_int_equal(rig_restore(rig, t.v, 64), 16);
    assert_int_equal(corrupt_files(rig), 0);
    keep_anew(rig, t.v, 64);
    free(path);
    tokens_release(&t);
}

/* Without an index file, a scan reads every slab. With one, only slabs that are fetched are read:
 * a_flipped_byte_is_never_restored. */
static void damage_that_is_found_at_the_start_is_counted(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(9, 64);
    rig_start(rig);
    rig_keep(rig, t.v, 64);
    rig_stop(rig);
    char *path = file_of(rig, t.v, 32, "rows");
    char *index = mem_format("%s/index", rig->paths[rig->params.save_tier]);
    assert_int_equal(truncate(path, size_of(path) - 1), 0);
    assert_int_equal(remove(index), 0);
    free(index);
    rig_start(rig);
    assert_int_equal(corrupt_files(rig), 1);
    assert_int_equal(rig_restore(rig, t.v, 64), 16);
    while (size_of(path) != -1) sched_yield(); /* the saver thread quarantines it some time later */
    keep_anew(rig, t.v, 64);
    free(path);
    tokens_release(&t);
}

/* The process that has the folder quarantines a damaged slab and stores it anew; the one that takes the folder over has
 * seen the damage, and leaves the new one alone. */
static void damage_that_another_process_has_mended_is_forgotten(void **state)
{
    struct rig *rig = *state, other;
    enum store_tier tier = rig->params.save_tier;
    struct tokens t = some_tokens(12, 64), u = some_tokens(13, 64);
    rig_start(rig);
    rig_keep(rig, t.v, 64);
    char *path = file_of(rig, t.v, 32, "rows");
    rig_init(&other, tier);
    other.params.tiers[tier].path = rig->paths[tier];
    rig_start(&other);
    flip(path, size_of(path) - 20);
    assert_int_equal(rig_restore(&other, t.v, 64), 16);
    assert_int_equal(rig_restore(rig, t.v, 64), 16);
    while (size_of(path) != -1) sched_yield();
    keep_anew(rig, t.v, 64);
    rig_stop(rig);
    assert_true(store_reopen(other.store, CLOCK_NEVER));
    keep_anew(&other, u.v, 64); /* by the thread that would quarantine it */
    assert_int_equal(rig_restore(&other, t.v, 64), 64);
    rig_release(&other);
    free(path);
    tokens_release(&t);
    tokens_release(&u);
}

/* ---- Files that exist already ---- */

enum standing { VALID, FLIPPED, TRUNCATED, ANOTHER, STANDINGS };

/* A file with the name of a slab that is about to be saved, which the index does not know. */
static void put_file(const char *at, const char *valid, const char *another, enum standing standing)
{
    copy_file(standing == ANOTHER ? another : valid, at);
    if (standing == FLIPPED) flip(at, size_of(at) - 20);
    if (standing == TRUNCATED) assert_int_equal(truncate(at, size_of(at) / 2), 0);
}

static void an_existing_file_is_adopted_or_replaced(void **state)
{
    struct rig *rig = *state, source;
    struct tokens t = some_tokens(10, 16), u = some_tokens(11, 16);
    rig_init(&source, rig->params.save_tier);
    rig_start(&source);
    rig_keep(&source, t.v, 16);
    rig_keep(&source, u.v, 16);
    char *valid = file_of(&source, t.v, 16, "rows"), *another = file_of(&source, u.v, 16, "rows");
    char *path = file_of(rig, t.v, 16, "rows");
    for (enum standing standing = VALID; standing < STANDINGS; standing++) {
        rig_start(rig);
        put_file(path, valid, another, standing);
        struct stat before, after;
        assert_int_equal(stat(path, &before), 0);
        keep_anew(rig, t.v, 16);
        assert_int_equal(stat(path, &after), 0);
        assert_int_equal(after.st_ino == before.st_ino, standing == VALID);
        assert_int_equal(metric_get(&store_stats(rig->store)->saves_dropped), 0);
        assert_int_equal(rig_folder_bytes(rig, NULL), rig_status(rig).bytes);
        rig_stop(rig);
        assert_int_equal(remove(path), 0);
    }
    free(valid);
    free(another);
    free(path);
    rig_release(&source);
    tokens_release(&t);
    tokens_release(&u);
}

/* ---- Reading once ---- */

/* Hits that fetch the same slab at the same time share it; a fetch after the last of them reads it again. */
static void a_slab_that_several_hold_is_read_once(void **state)
{
    struct rig *rig = *state;
    struct tokens t = some_tokens(12, 16);
    struct store_hit *hits[3];
    struct store_piece piece;
    rig_start(rig);
    rig_keep(rig, t.v, 16);
    for (size_t i = 0; i < 3; i++) {
        hits[i] = rig_find(rig, t.v, 16);
        store_fetch(hits[i], 16);
    }
    for (size_t i = 0; i < 3; i++) {
        enum store_next next;
        uint64_t seen = fake_user_wakes(&rig->user);
        while ((next = store_next_piece(hits[i], &piece)) == STORE_PENDING) {
            assert_true(fake_user_wait(&rig->user, seen));
            seen = fake_user_wakes(&rig->user);
        }
        assert_int_equal(next, STORE_PIECE);
        assert_true(fake_user_check(&rig->user, t.v, &piece));
    }
    assert_int_equal(metric_get(&store_stats(rig->store)->read_bytes), rig_status(rig).bytes);
    for (size_t i = 0; i < 3; i++) store_hit_close(hits[i]);
    assert_int_equal(rig_restore(rig, t.v, 16), 16);
    assert_int_equal(metric_get(&store_stats(rig->store)->read_bytes), 2 * rig_status(rig).bytes);
    tokens_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TIERS(a_flipped_byte_is_never_restored),
        ON_DISK(what_hangs_on_a_damaged_slab_waits_for_it),
        ON_DISK(others_that_read_a_damaged_slab_lose_it_too),
        ON_DISK(a_joined_fetch_with_a_damaged_slab_is_lost),
        ON_DISK(a_file_of_other_tokens_is_never_restored),
        ON_DISK(tokens_decide_where_every_checksum_and_the_key_are_right),
        ON_DISK(a_forged_file_is_found_by_no_tokens_after_a_restart),
        ON_DISK(a_file_that_is_gone_is_lost_and_saved_anew),
        FOLDER_TIERS(damage_that_is_found_at_the_start_is_counted),
        FOLDER_TIERS(damage_that_another_process_has_mended_is_forgotten),
        FOLDER_TIERS(an_existing_file_is_adopted_or_replaced),
        FOLDER_TIERS(a_slab_that_several_hold_is_read_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
