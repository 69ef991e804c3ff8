/* The signs by which files of weights are recognised without being read whole (llm_file_signs()): what was changed, in
 * whatever way, has others. This program's fstat() and stat() can give a file any facts. */
#include "support.h"

#include "llm/model_identity.h"

#include <fcntl.h>
#include <gguf.h>
#include <sys/stat.h>

enum { SPOT = 64 << 10 };

static char *folder;

static int make_folder(void **state)
{
    (void)state;
    llm_init();
    folder = folder_open();
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    folder_remove(folder);
    return 0;
}

/* ---- Forged facts ---- */

static void (*forge)(struct stat *st);

int __real_fstat(int fd, struct stat *st);
int __real_stat(const char *path, struct stat *st);
int __wrap_fstat(int fd, struct stat *st);
int __wrap_stat(const char *path, struct stat *st);

int __wrap_fstat(int fd, struct stat *st)
{
    int rc = __real_fstat(fd, st);
    if (rc == 0 && forge != NULL) forge(st);
    return rc;
}

int __wrap_stat(const char *path, struct stat *st)
{
    int rc = __real_stat(path, st);
    if (rc == 0 && forge != NULL) forge(st);
    return rc;
}

static void other_file_system(struct stat *st)
{
    st->st_dev ^= 1;
}

static void other_inode(struct stat *st)
{
    st->st_ino ^= 1;
}

static void other_size(struct stat *st)
{
    st->st_size += 1;
}

static void other_mtime_s(struct stat *st)
{
    st->st_mtim.tv_sec -= 1;
}

static void other_mtime_ns(struct stat *st)
{
    st->st_mtim.tv_nsec ^= 1;
}

static void other_ctime_s(struct stat *st)
{
    st->st_ctim.tv_sec -= 1;
}

static void other_ctime_ns(struct stat *st)
{
    st->st_ctim.tv_nsec ^= 1;
}

/* ---- Files ---- */

/* A file of `size` bytes in all that is a GGUF file by its beginning. The caller frees the path. */
static char *make_file(const char *name, uint16_t part, uint16_t parts, size_t size)
{
    char *path = mem_format("%s/%s", folder, name);
    struct gguf_context *out = gguf_init_empty();
    gguf_set_val_u16(out, "split.no", part);
    gguf_set_val_u16(out, "split.count", parts);
    assert_true(gguf_write_to_file(out, path, false));
    gguf_free(out);
    FILE *file = fopen(path, "r+b");
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    uint32_t noise = 1;
    for (size_t at = (size_t)ftell(file); at < size; at++) {
        noise = noise * 1664525 + 1013904223;
        fputc((int)(noise >> 24), file);
    }
    assert_int_equal(fclose(file), 0);
    return path;
}

/* Waits until the file system's clock, which ticks some hundred times a second, is later than when the file was last
 * changed: known_digests_may_add() is about that. */
static void await_tick(const char *path)
{
    char *scratch = mem_format("%s/scratch", folder);
    int fd = open(scratch, O_RDWR | O_CREAT, 0600);
    struct stat file, now;
    assert_int_equal(__real_stat(path, &file), 0);
    do {
        assert_int_equal(futimens(fd, NULL), 0);
        assert_int_equal(__real_fstat(fd, &now), 0);
    } while (now.st_ctim.tv_sec == file.st_ctim.tv_sec && now.st_ctim.tv_nsec == file.st_ctim.tv_nsec);
    close(fd);
    free(scratch);
}

static void flip(const char *path, size_t at)
{
    int fd = open(path, O_RDWR);
    unsigned char byte;
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

static struct llm_file_signs signs_of(const char *path)
{
    struct llm_file_signs signs;
    hearth_error error;
    if (llm_file_signs(path, &signs, &error) != HEARTH_OK) fail_msg("%s", error.message);
    return signs;
}

static bool same_stamp(struct llm_file_signs a, struct llm_file_signs b)
{
    return memcmp(a.stamp, b.stamp, sizeof a.stamp) == 0;
}

static bool same_spots(struct llm_file_signs a, struct llm_file_signs b)
{
    return memcmp(a.spots, b.spots, sizeof a.spots) == 0;
}

/* ---- Stamps ---- */

static void every_fact_of_a_file_is_in_its_stamp(void **state)
{
    (void)state;
    static void (*const forgeries[])(struct stat *) = {other_file_system, other_inode,   other_size,    other_mtime_s,
                                                       other_mtime_ns,    other_ctime_s, other_ctime_ns};
    char *path = make_file("facts.gguf", 0, 1, 1000);
    struct llm_file_signs before = signs_of(path);
    for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++) {
        forge = forgeries[i];
        struct llm_file_signs forged = signs_of(path);
        forge = NULL;
        if (same_stamp(before, forged)) fail_msg("fact %zu", i);
        assert_true(same_spots(before, forged));
    }
    assert_true(same_stamp(before, signs_of(path)));
    free(path);
}

static void the_stamp_of_the_signs_is_the_one_that_is_compared_while_loading(void **state)
{
    (void)state;
    uint8_t stamp[32];
    hearth_error error;
    char *path = make_file("stamp.gguf", 0, 1, 1000);
    assert_int_equal(llm_file_stamp(path, stamp, &error), HEARTH_OK);
    assert_memory_equal(stamp, signs_of(path).stamp, sizeof stamp);
    free(path);
}

/* An editor that gives a file its old time back cannot give back the time at which it did that. */
static void a_file_that_was_edited_and_given_its_time_back_has_another_stamp(void **state)
{
    (void)state;
    struct stat st;
    char *path = make_file("edited.gguf", 0, 1, 8 << 20);
    struct llm_file_signs before = signs_of(path);
    assert_int_equal(__real_stat(path, &st), 0);
    await_tick(path);
    flip(path, SPOT + 1000); /* in no spot */
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){st.st_atim, st.st_mtim}, 0), 0);
    assert_true(same_spots(before, signs_of(path)));
    assert_false(same_stamp(before, signs_of(path)));
    free(path);
}

static void a_file_that_was_copied_over_or_moved_back_has_another_stamp(void **state)
{
    (void)state;
    char *path = make_file("one.gguf", 0, 1, 100000), *other = make_file("other.gguf", 0, 1, 100000);
    char *aside = mem_format("%s/aside.gguf", folder);
    char *copy = mem_format("cp -p '%s' '%s'", other, path);
    struct llm_file_signs before = signs_of(path);
    await_tick(path);
    run(copy);
    struct llm_file_signs copied = signs_of(path);
    assert_false(same_stamp(before, copied));
    await_tick(path);
    assert_int_equal(rename(path, aside), 0);
    assert_int_equal(rename(other, path), 0);
    struct llm_file_signs moved = signs_of(path);
    assert_false(same_stamp(copied, moved) || same_stamp(before, moved));
    await_tick(aside);
    assert_int_equal(rename(aside, path), 0);
    struct llm_file_signs back = signs_of(path);
    assert_false(same_stamp(moved, back) || same_stamp(copied, back));
    free(path);
    free(other);
    free(aside);
    free(copy);
}

/* ---- Spots ---- */

/* In a file whose 64 spots are 64 KiB of every 128 (and a bit): the first and last byte of the file and of each spot
 * count, those between two spots do not. */
static void the_spots_are_spread_evenly_from_the_first_byte_to_the_last(void **state)
{
    (void)state;
    const size_t step = 2 * SPOT, size = 63 * step + SPOT;
    char *path = make_file("spots.gguf", 0, 1, size);
    struct llm_file_signs before = signs_of(path);
    for (size_t i = 0; i < 64; i++) {
        const struct {
            size_t at;
            bool counts;
        } bytes[] = {{i * step + (i == 0 ? 200 : 0), true}, /* the beginning is its metadata */
                     {i * step + SPOT - 1, true},
                     {i * step + SPOT, false},
                     {(i + 1) * step - 1, false}};
        for (size_t k = 0; k < sizeof bytes / sizeof *bytes && bytes[k].at < size; k++) {
            flip(path, bytes[k].at);
            if (same_spots(before, signs_of(path)) == bytes[k].counts) fail_msg("byte %zu", bytes[k].at);
            flip(path, bytes[k].at);
        }
    }
    free(path);
}

static void of_a_small_file_every_byte_is_in_a_spot(void **state)
{
    (void)state;
    char *path = make_file("small.gguf", 0, 1, 3 * SPOT + 10);
    struct llm_file_signs before = signs_of(path);
    for (size_t at = 200; at < 3 * SPOT + 10; at += 997) {
        flip(path, at);
        assert_false(same_spots(before, signs_of(path)));
        flip(path, at);
    }
    flip(path, 3 * SPOT + 9);
    assert_false(same_spots(before, signs_of(path)));
    free(path);
}

static void every_part_of_a_split_model_has_spots_and_is_in_the_stamp(void **state)
{
    (void)state;
    enum { PARTS = 50, SIZE = 5 * SPOT };
    char *paths[PARTS];
    for (uint16_t i = 0; i < PARTS; i++) {
        char *name = mem_format("parts-%05d-of-%05d.gguf", i + 1, PARTS);
        paths[i] = make_file(name, i, PARTS, SIZE);
        free(name);
    }
    struct llm_file_signs before = signs_of(paths[0]);
    for (size_t i = 0; i < PARTS; i++) {
        await_tick(paths[i]);
        flip(paths[i], 200);
        assert_false(same_spots(before, signs_of(paths[0])));
        flip(paths[i], 200);
        flip(paths[i], SIZE - 1);
        assert_false(same_spots(before, signs_of(paths[0])));
        flip(paths[i], SIZE - 1);
        struct llm_file_signs now = signs_of(paths[0]);
        assert_true(same_spots(before, now));
        assert_false(same_stamp(before, now));
        before = now;
    }
    for (size_t i = 0; i < PARTS; i++) free(paths[i]);
}

/* ---- The time of the last change ---- */

static void the_later_of_both_times_counts(void **state)
{
    (void)state;
    struct stat st;
    char *path = make_file("times.gguf", 0, 1, 1000);
    assert_int_equal(__real_stat(path, &st), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){{.tv_sec = 1000}, {.tv_sec = 1000}}, 0), 0);
    assert_true(signs_of(path).changed_s >= st.st_ctim.tv_sec); /* that it was set back is a change */
    time_t later = st.st_ctim.tv_sec + 100000;
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){{.tv_sec = later}, {.tv_sec = later}}, 0), 0);
    assert_int_equal(signs_of(path).changed_s, later);
    free(path);
}

static void a_file_that_is_not_there_has_no_signs(void **state)
{
    (void)state;
    struct llm_file_signs signs;
    hearth_error error;
    assert_int_equal(llm_file_signs("/nowhere.gguf", &signs, &error), HEARTH_NOT_FOUND);
    char *first = make_file("lone-00001-of-00002.gguf", 0, 2, 1000);
    assert_int_equal(llm_file_signs(first, &signs, &error), HEARTH_NOT_FOUND);
    free(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fact_of_a_file_is_in_its_stamp),
        cmocka_unit_test(the_stamp_of_the_signs_is_the_one_that_is_compared_while_loading),
        cmocka_unit_test(a_file_that_was_edited_and_given_its_time_back_has_another_stamp),
        cmocka_unit_test(a_file_that_was_copied_over_or_moved_back_has_another_stamp),
        cmocka_unit_test(the_spots_are_spread_evenly_from_the_first_byte_to_the_last),
        cmocka_unit_test(of_a_small_file_every_byte_is_in_a_spot),
        cmocka_unit_test(every_part_of_a_split_model_has_spots_and_is_in_the_stamp),
        cmocka_unit_test(the_later_of_both_times_counts),
        cmocka_unit_test(a_file_that_is_not_there_has_no_signs),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
