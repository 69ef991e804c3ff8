/* The file of known digests (store_digests()): kept beside the slabs, by the process that owns the folder, whatever
 * becomes of it in between. */
#include "tiers.h"

#include "base/log.h"
#include "fakes/fake_files.h"
#include "store/backends/folder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t in_ms(int64_t ms)
{
    return clock_now(clock_monotonic()) + clock_from_ms(ms);
}

/* ---- Keeping and reading ---- */

static void keep(struct rig *rig, const char *text)
{
    struct buf digests = {0};
    buf_puts(&digests, text);
    store_keep_digests(rig->store, &digests);
    buf_release(&digests);
}

static void assert_kept(struct rig *rig, const char *expected)
{
    struct buf digests = {0};
    store_digests(rig->store, in_ms(30000), &digests);
    assert_string_equal(buf_text(&digests), expected);
    buf_release(&digests);
}

/* What is queued is written before the store has closed. */
static void restart(struct rig *rig)
{
    rig_stop(rig);
    rig_start(rig);
}

static const char *path_of(const struct rig *rig, const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", rig->paths[rig->params.save_tier], name);
    return path;
}

static void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static size_t lines_with(const char *path, const char *text)
{
    char line[1024];
    size_t n = 0;
    FILE *file = fopen(path, "r");
    while (fgets(line, sizeof line, file) != NULL) n += strstr(line, text) != NULL;
    fclose(file);
    return n;
}

static void what_is_kept_is_there_at_once_and_after_a_restart(void **state)
{
    struct rig *rig = *state;
    rig_start(rig);
    assert_kept(rig, "");
    keep(rig, "one");
    assert_kept(rig, "one");
    keep(rig, "two and more");
    restart(rig);
    assert_kept(rig, "two and more");
    keep(rig, "3");
    restart(rig);
    assert_kept(rig, "3");
    assert_int_equal(access(path_of(rig, "digests.new"), F_OK), -1);
}

static void memory_alone_keeps_nothing(void **state)
{
    struct rig *rig = *state;
    rig_start(rig);
    keep(rig, "one");
    assert_kept(rig, "");
}

/* The later a tier stands in the table, the more its folder outlives. */
static void of_two_folders_the_last_has_the_file(void **state)
{
    struct rig *rig = *state;
    rig_add_tier(rig, STORE_RAM_FILE, 64 << 20);
    rig_add_tier(rig, STORE_DISK, 64 << 20);
    rig_start(rig);
    keep(rig, "one");
    restart(rig);
    assert_kept(rig, "one");
    char path[256];
    snprintf(path, sizeof path, "%s/digests", rig->paths[STORE_DISK]);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/digests", rig->paths[STORE_RAM_FILE]);
    assert_int_equal(access(path, F_OK), -1);
}

/* ---- Two processes ---- */

static void who_does_not_own_the_folder_reads_and_does_not_write(void **state)
{
    struct rig *rig = *state, second = {.params = rig->params};
    memcpy(second.paths, rig->paths, sizeof rig->paths);
    rig_start(rig);
    keep(rig, "the owner's");
    restart(rig);
    rig_start(&second);
    assert_kept(&second, "the owner's");
    keep(&second, "another's");
    assert_kept(&second, "the owner's");
    rig_stop(&second);
    restart(rig);
    assert_kept(rig, "the owner's");
}

/* ---- The folder ---- */

static void ignore_slab(void *ud, struct slab_head *head, uint64_t size)
{
    (void)ud, (void)head, (void)size;
}

/* What `kv ls`, `verify`, `gc` and `clear` see of a folder. */
static void nobody_takes_the_file_for_a_foreign_one_or_removes_it(void **state)
{
    struct rig *rig = *state;
    struct folder_removed removed;
    hearth_error error = {0};
    rig_start(rig);
    keep(rig, "one");
    rig_stop(rig);
    write_file(path_of(rig, "digests.new"), "half", 4);
    struct folder *folder = folder_open(files_machine(), rig->paths[rig->params.save_tier], &error);
    assert_non_null(folder);
    struct folder_scan scan = {.each = ignore_slab};
    assert_int_equal(folder_scan(folder, &scan, &error), 0);
    assert_int_equal(scan.n_foreign + scan.n_damaged + scan.n_unread, 0);
    folder_tidy(folder, &removed);
    assert_int_equal(removed.files, 0);
    folder_close(folder);
    rig_start(rig);
    assert_kept(rig, "one");
    keep(rig, "two"); /* also where a process ended while it wrote */
    restart(rig);
    assert_kept(rig, "two");
}

/* ---- Faults ---- */

static void what_cannot_be_read_is_as_if_it_were_not_there(void **state)
{
    struct rig *rig = *state;
    static char much[FOLDER_DIGESTS_BYTES + 1];
    const char *path;
    char log[128];
    snprintf(log, sizeof log, "%s/log", rig->root);
    rig_start(rig);
    rig_stop(rig);
    path = path_of(rig, "digests");
    assert_int_equal(log_open(log, "info", "text", NULL), 0);

    write_file(path, much, sizeof much);
    rig_start(rig);
    assert_kept(rig, "");
    rig_stop(rig);
    assert_int_equal(unlink(path), 0);

    write_file(path_of(rig, "../elsewhere"), "one", 3);
    assert_int_equal(symlink("../elsewhere", path_of(rig, "digests")), 0);
    rig_start(rig);
    assert_kept(rig, "");
    keep(rig, "two"); /* in place of the link, not in what it leads to */
    restart(rig);
    assert_kept(rig, "two");
    rig_stop(rig);
    assert_int_equal(unlink(path_of(rig, "digests")), 0);

    assert_int_equal(mkfifo(path_of(rig, "digests"), 0600), 0);
    rig_start(rig);
    assert_kept(rig, "");
    rig_stop(rig);
    assert_int_equal(unlink(path_of(rig, "digests")), 0);

    assert_int_equal(mkdir(path_of(rig, "digests"), 0700), 0);
    rig_start(rig);
    assert_kept(rig, "");
    keep(rig, "one");
    rig_stop(rig);

    assert_int_equal(log_open(NULL, "info", "text", NULL), 0);
    assert_int_equal(lines_with(log, "known digests cannot be read"), 4);
    assert_int_equal(lines_with(log, "known digests cannot be written"), 1);
    assert_int_equal(lines_with(log, "saves fail"), 0);
}

/* Whichever call of a write fails, or does half of what it should: the file is the former one or the new one. */
static void a_write_that_fails_leaves_what_was_there(void **state)
{
    static const enum fake_call calls[] = {FAKE_OPEN, FAKE_WRITE, FAKE_CLOSE, FAKE_RENAME, FAKE_UNLINK};
    struct rig *rig = *state;
    struct fake_faults faults;
    fake_faults_init(&faults, files_machine());
    rig->params.files = &faults.files;
    rig_start(rig);
    keep(rig, "the former");
    restart(rig);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fake_faults_set(
            &faults,
            (struct fake_fault){
                .call = calls[i], .on = "digests", .nth = 1, .lasting = true, .effect = FAKE_ERROR, .error = ENOSPC});
        keep(rig, "the new one");
        rig_stop(rig);
        bool struck = faults.struck > 0;
        fake_faults_set(&faults, (struct fake_fault){0});
        rig_start(rig);
        if (calls[i] == FAKE_UNLINK) { /* there was nothing to unlink */
            assert_kept(rig, "the new one");
        } else {
            assert_true(struck);
            assert_kept(rig, "the former");
        }
    }
    rig_stop(rig);
}

/* The thread that loads a model waits for no disk longer than it says. */
static void a_folder_that_hangs_is_waited_for_until_the_deadline(void **state)
{
    struct rig *rig = *state;
    struct fake_faults faults;
    struct buf digests = {0};
    rig_start(rig);
    keep(rig, "one");
    rig_stop(rig);
    fake_faults_init(&faults, files_machine());
    rig->params.files = &faults.files;
    fake_faults_set(&faults, (struct fake_fault){.call = FAKE_READ, .on = "digests", .nth = 1, .effect = FAKE_HANG});
    rig->store = store_open(&rig->params, NULL);
    assert_true(fake_faults_await(&faults, 1));
    int64_t deadline = in_ms(50);
    store_digests(rig->store, 0, &digests);
    store_digests(rig->store, deadline, &digests);
    assert_int_equal(digests.len, 0);
    assert_true(clock_now(clock_monotonic()) >= deadline);
    buf_puts(&digests, "two"); /* nobody knows yet what it would replace */
    store_keep_digests(rig->store, &digests);
    fake_faults_release(&faults);
    assert_kept(rig, "one");
    rig_stop(rig);
    buf_release(&digests);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TIERS(what_is_kept_is_there_at_once_and_after_a_restart),
        TIER_TEST(memory_alone_keeps_nothing, STORE_RAM),
        TIER_TEST(of_two_folders_the_last_has_the_file, STORE_RAM),
        FOLDER_TIERS(who_does_not_own_the_folder_reads_and_does_not_write),
        ON_DISK(nobody_takes_the_file_for_a_foreign_one_or_removes_it),
        ON_DISK(what_cannot_be_read_is_as_if_it_were_not_there),
        ON_DISK(a_write_that_fails_leaves_what_was_there),
        ON_DISK(a_folder_that_hangs_is_waited_for_until_the_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
