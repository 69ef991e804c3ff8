/* Watches of files (base/file_watch.h): each kind of change is seen, nothing else is, and nobody waits for a look that
 * hangs. */
#include "fakes/cmocka_all.h"

#include "base/clock.h"
#include "base/file_watch.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- A file ---- */

static char folder[32], path[64], other[64];

static void write_file(const char *to, char byte)
{
    char bytes[100];
    memset(bytes, byte, sizeof bytes);
    int fd = open(to, O_WRONLY | O_CREAT, 0644);
    assert_true(fd >= 0 && write(fd, bytes, sizeof bytes) == sizeof bytes);
    close(fd);
}

static int make_file(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/hearth-watch-XXXXXX");
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    write_file(path, 'a');
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    unlink(path);
    unlink(other);
    return rmdir(folder);
}

static void set_time_of(const char *to, const struct stat *st)
{
    const struct timespec times[] = {st->st_atim, st->st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, to, times, 0), 0);
}

/* ---- Changes ---- */

static void overwrite(const struct stat *was)
{
    (void)was;
    write_file(path, 'b');
}

static void overwrite_and_set_time(const struct stat *was)
{
    write_file(path, 'b');
    set_time_of(path, was);
}

static void overwrite_with_the_same(const struct stat *was)
{
    write_file(path, 'a');
    set_time_of(path, was);
}

static void replace(const struct stat *was)
{
    write_file(other, 'b');
    set_time_of(other, was);
    assert_int_equal(rename(other, path), 0);
}

static void cut(const struct stat *was)
{
    (void)was;
    assert_int_equal(truncate(path, 50), 0);
}

static void cut_and_restore(const struct stat *was)
{
    cut(was);
    write_file(path, 'a');
    set_time_of(path, was);
}

static void touch(const struct stat *was)
{
    (void)was;
    assert_int_equal(utimensat(AT_FDCWD, path, NULL, 0), 0);
}

static void change_mode(const struct stat *was)
{
    (void)was;
    assert_int_equal(chmod(path, 0600), 0);
}

static void move_away_and_back(const struct stat *was)
{
    (void)was;
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(rename(other, path), 0);
}

static void take_away(const struct stat *was)
{
    (void)was;
    assert_int_equal(unlink(path), 0);
}

static void put_a_pipe_there(const struct stat *was)
{
    take_away(was);
    assert_int_equal(mkfifo(path, 0644), 0);
}

static char reported[200];
static int reports;

static void note_report(void *ud, const char *reason)
{
    assert_ptr_equal(ud, reported);
    snprintf(reported, sizeof reported, "%s", reason);
    reports++;
}

static struct file_watch *watch_file(void)
{
    const char *paths[] = {folder, path};
    struct file_watch_params params = {
        .paths = paths, .n = 2, .patience_ns = clock_from_ms(30000), .report = note_report, .ud = reported};
    reports = 0;
    struct file_watch *watch = file_watch_open(&params, NULL);
    assert_non_null(watch);
    return watch;
}

static void every_change_is_seen_and_stays_seen(void **state)
{
    static void (*const changes[])(const struct stat *was) = {overwrite,
                                                              overwrite_and_set_time,
                                                              overwrite_with_the_same,
                                                              replace,
                                                              cut,
                                                              cut_and_restore,
                                                              touch,
                                                              change_mode,
                                                              move_away_and_back,
                                                              take_away,
                                                              put_a_pipe_there};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct stat was;
        make_file(state);
        struct file_watch *watch = watch_file();
        assert_int_equal(file_watch_check(watch), FILES_SAME);
        assert_int_equal(file_watch_changes(watch), 0);
        assert_int_equal(stat(path, &was), 0);
        changes[i](&was);
        assert_int_equal(file_watch_check(watch), FILES_CHANGED);
        assert_true(file_watch_changes(watch) > 0);
        assert_int_equal(reports, 1);
        assert_true(strstr(reported, " while it was in use: load the model again") != NULL);
        if (changes[i] == put_a_pipe_there) unlink(path);
        write_file(path, 'a');
        assert_int_equal(file_watch_check(watch), FILES_CHANGED);
        assert_int_equal(reports, 1);
        file_watch_close(watch);
        remove_file(state);
    }
    make_file(state);
}

static void reading_a_file_is_no_change(void **state)
{
    (void)state;
    char bytes[100];
    struct file_watch *watch = watch_file();
    int fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, bytes, sizeof bytes), sizeof bytes);
    close(fd);
    for (int i = 0; i < 100; i++) assert_int_equal(file_watch_check(watch), FILES_SAME);
    assert_int_equal(file_watch_changes(watch), 0);
    file_watch_close(watch);
    assert_int_equal(file_watch_check(NULL), FILES_SAME);
    assert_int_equal(file_watch_changes(NULL), 0);
}

/* ---- A file system of the test's ---- */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct file_stamp stamp;
    int number, looks, reading;
    bool held;
} fake = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int fake_read(const char *name, struct file_stamp *stamp)
{
    (void)name;
    pthread_mutex_lock(&fake.mutex);
    fake.looks++;
    fake.reading++;
    pthread_cond_broadcast(&fake.changed);
    while (fake.held) pthread_cond_wait(&fake.changed, &fake.mutex);
    int number = fake.number;
    if (number == 0) *stamp = fake.stamp;
    fake.reading--;
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.mutex);
    return number;
}

static void hold(bool held)
{
    pthread_mutex_lock(&fake.mutex);
    fake.held = held;
    pthread_cond_broadcast(&fake.changed);
    while (!held && fake.reading > 0) pthread_cond_wait(&fake.changed, &fake.mutex);
    pthread_mutex_unlock(&fake.mutex);
}

static void await_looks(int n)
{
    pthread_mutex_lock(&fake.mutex);
    while (fake.looks < n) pthread_cond_wait(&fake.changed, &fake.mutex);
    pthread_mutex_unlock(&fake.mutex);
}

static struct file_watch *watch_fake(int64_t patience_ms)
{
    const char *name = "file";
    struct file_watch_params params = {
        .paths = &name, .n = 1, .patience_ns = clock_from_ms(patience_ms), .read = fake_read};
    pthread_mutex_lock(&fake.mutex);
    fake.stamp = (struct file_stamp){.inode = 1, .size = 100, .content_s = 5, .content_ns = 1, .inode_s = 5};
    fake.number = fake.looks = 0;
    pthread_mutex_unlock(&fake.mutex);
    return file_watch_open(&params, NULL);
}

/* One caller waits as long as its patience; the others not at all, until the look has returned. */
static void nobody_waits_for_a_look_that_hangs_but_the_first(void **state)
{
    (void)state;
    struct file_watch *watch = watch_fake(20);
    hold(true);
    int64_t began = clock_now(clock_monotonic());
    assert_int_equal(file_watch_check(watch), FILES_UNKNOWN);
    int64_t first = clock_now(clock_monotonic()) - began;
    assert_true(first >= clock_from_ms(20));
    for (int i = 0; i < 1000; i++) assert_int_equal(file_watch_check(watch), FILES_UNKNOWN);
    assert_true(clock_now(clock_monotonic()) - began < 500 * first);
    hold(false);
    enum file_state state_now = FILES_UNKNOWN;
    while (state_now == FILES_UNKNOWN) state_now = file_watch_check(watch);
    assert_int_equal(state_now, FILES_SAME);
    file_watch_close(watch);
}

static void a_look_that_hangs_does_not_hold_up_the_end(void **state)
{
    (void)state;
    struct file_watch *watch = watch_fake(1);
    hold(true);
    assert_int_equal(file_watch_check(watch), FILES_UNKNOWN);
    await_looks(2);
    file_watch_close(watch);
    hold(false);
}

/* An answer is of a look that began after the question: a look that was under way may have seen what was before. */
static void *ask_once(void *ud)
{
    return (void *)(intptr_t)file_watch_check(ud);
}

static void a_look_that_was_under_way_answers_no_later_question(void **state)
{
    (void)state;
    pthread_t first, second;
    void *of_first, *of_second;
    struct file_watch *watch = watch_fake(30000);
    hold(true);
    pthread_create(&first, NULL, ask_once, watch);
    await_looks(2); /* one was made at the opening */
    pthread_create(&second, NULL, ask_once, watch);
    hold(false);
    pthread_join(first, &of_first);
    pthread_join(second, &of_second);
    assert_int_equal((intptr_t)of_first, FILES_SAME);
    assert_int_equal((intptr_t)of_second, FILES_SAME);
    assert_true(fake.looks >= 3);
    file_watch_close(watch);
}

/* What cannot be told now is no change; that a file is gone is one, and stays one. */
static void only_what_is_known_is_a_change(void **state)
{
    (void)state;
    static const int passing[] = {EMFILE, EIO, EACCES, EINTR, ETIMEDOUT}, gone[] = {ENOENT, ENOTDIR, ESTALE};
    struct file_watch *watch = watch_fake(30000);
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        fake.number = passing[i];
        assert_int_equal(file_watch_check(watch), FILES_UNKNOWN);
        fake.number = 0;
        assert_int_equal(file_watch_check(watch), FILES_SAME);
    }
    file_watch_close(watch);
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        watch = watch_fake(30000);
        fake.number = gone[i];
        assert_int_equal(file_watch_check(watch), FILES_CHANGED);
        fake.number = 0;
        assert_int_equal(file_watch_check(watch), FILES_CHANGED);
        file_watch_close(watch);
    }
}

/* As long as another change would leave the same stamp, each look counts as a change; then none does. */
static void a_change_right_after_a_change_cannot_hide(void **state)
{
    (void)state;
    struct file_watch *watch = watch_fake(30000);
    int64_t soon = clock_unix_ns() + INT64_C(1000000000); /* the file system's clock is ahead, and coarse */
    fake.stamp = (struct file_stamp){.inode = 1, .size = 100, .content_s = soon / 1000000000, .inode_s = 5};
    for (uint64_t i = 1; i <= 5; i++) {
        assert_int_equal(file_watch_check(watch), FILES_CHANGED);
        assert_int_equal(file_watch_changes(watch), i);
    }
    fake.stamp.content_s -= 3600;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(file_watch_check(watch), FILES_CHANGED);
        assert_int_equal(file_watch_changes(watch), 6);
    }
    file_watch_close(watch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_change_is_seen_and_stays_seen, NULL, remove_file),
        cmocka_unit_test_setup_teardown(reading_a_file_is_no_change, make_file, remove_file),
        cmocka_unit_test(nobody_waits_for_a_look_that_hangs_but_the_first),
        cmocka_unit_test(a_look_that_hangs_does_not_hold_up_the_end),
        cmocka_unit_test(a_look_that_was_under_way_answers_no_later_question),
        cmocka_unit_test(only_what_is_known_is_a_change),
        cmocka_unit_test(a_change_right_after_a_change_cannot_hide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
