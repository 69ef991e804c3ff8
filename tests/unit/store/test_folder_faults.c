/* A folder of slabs when calls fail, when the process ends between any two calls, and when power is lost: everything
 * that can be read is whole, everything that was reported as stored is there, and the next slab can be published.
 *
 * One scenario runs again and again: a few slabs are published, one of them over a damaged file and one over a whole
 * one, used, removed, quarantined. A ledger records what each publication returned. */
#include "base/log.h"
#include "fakes/cmocka_all.h"
#include "fakes/fake_files.h"
#include "store/backends/folder.h"

#include "slabs.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLABS = 8, DAMAGED = 2, WHOLE = 3, REMOVED = 4, ASIDE = 5, LATER = 7, MOST_CALLS = 400 };

static const char *path = "/kv"; /* on the disk in memory, unless a test says otherwise */

/* What happened to each slab. */
struct ledger {
    bool tried[SLABS];
    int result[SLABS]; /* of its publication */
    bool gone[SLABS];  /* its removal was tried */
};

/* ---- The slabs ---- */

static struct made slab_number(int i)
{
    return make_slab((uint8_t)i, i % 2 == 0 ? SLAB_ROWS : SLAB_STATE, 16 * (i % 3), 2 + i);
}

static void publish_number(struct folder *folder, struct ledger *ledger, int i)
{
    struct made made = slab_number(i);
    hearth_error error;
    ledger->tried[i] = true;
    ledger->result[i] = HEARTH_IO; /* where the process ends during the call */
    ledger->result[i] = folder_publish(folder, &made.head, made.payload, &error);
    bool known = ledger->result[i] == 0 || ledger->result[i] == HEARTH_IO;
    if (!known) fail_msg("slab %d: %d, %s", i, ledger->result[i], error.message);
    made_release(&made);
}

/* Writes a file of an earlier process; `wrong`: with one byte changed. */
static void leave_file(struct files *files, int i, bool wrong)
{
    struct made made = slab_number(i);
    struct buf bytes = made_bytes(&made);
    char name[128];
    int folder = files->open_folder(files, path);
    if (wrong) bytes.v[bytes.len - 30] ^= 4;
    sha256_to_hex(made.head.key.v, name);
    strcat(name, i % 2 == 0 ? ".rows" : ".state");
    int fd = files->open(files, folder, name, FILES_CREATE);
    assert_int_equal(files_write_all(files, fd, bytes.v, bytes.len, 0), 0);
    files->close(files, fd);
    files->close(files, folder);
    buf_release(&bytes);
    made_release(&made);
}

/* ---- The scenario ---- */

static void ignore_head(void *ud, struct slab_head *head, uint64_t size)
{
    (void)ud, (void)head, (void)size;
}

static void use_read_and_remove(struct folder *folder, struct ledger *ledger)
{
    struct slab_key used = key_number(0), removed = key_number(REMOVED), aside = key_number(ASIDE);
    struct folder_scan scan = {.each = ignore_head};
    struct slab slab;
    folder_note_use(folder, &used, SLAB_ROWS, 5, 6);
    if (folder_read(folder, &used, SLAB_ROWS, &slab, NULL) == 0) slab_release(&slab);
    ledger->gone[REMOVED] = ledger->gone[ASIDE] = true;
    folder_remove(folder, &removed, SLAB_ROWS, NULL);
    folder_quarantine(folder, &aside, SLAB_STATE);
    folder_scan(folder, &scan, NULL);
}

/* False: the folder could not even be opened. */
static bool play(struct files *files, struct ledger *ledger)
{
    *ledger = (struct ledger){0};
    struct folder *folder = folder_open(files, path, NULL);
    if (folder == NULL) return false;
    for (int i = 0; i < LATER - 1; i++) publish_number(folder, ledger, i);
    use_read_and_remove(folder, ledger);
    publish_number(folder, ledger, LATER - 1);
    folder_close(folder);
    return true;
}

/* Files of an earlier process, none of them synced. */
static struct fake_disk *prepared_disk(void)
{
    struct fake_disk *disk = fake_disk_open();
    leave_file(fake_disk_files(disk), DAMAGED, true);
    leave_file(fake_disk_files(disk), WHOLE, false);
    return disk;
}

/* Calls that the scenario makes when nothing fails. */
static uint64_t calls_of(enum fake_call call)
{
    struct fake_disk *disk = prepared_disk();
    struct fake_faults faults;
    struct ledger ledger;
    fake_faults_init(&faults, fake_disk_files(disk));
    assert_true(play(&faults.files, &ledger));
    for (int i = 0; i < LATER; i++) assert_int_equal(ledger.result[i], 0);
    assert_int_equal(fake_disk_descriptors(disk), 0);
    fake_disk_close(disk);
    assert_in_range(faults.calls[call], 1, MOST_CALLS);
    return faults.calls[call];
}

/* ---- What must hold ---- */

struct survey {
    struct folder *folder;
    size_t n, whole;
    bool there[SLABS];
};

/* A slab that a scan reports is whole, and the one that was made. */
static void survey_slab(void *ud, struct slab_head *head, uint64_t size)
{
    struct survey *survey = ud;
    struct slab slab;
    survey->n++;
    assert_int_equal(size, slab_size(head));
    if (folder_read(survey->folder, &head->key, head->kind, &slab, NULL) < 0) return;
    survey->whole++;
    for (int i = 0; i < SLABS; i++) {
        struct made made = slab_number(i);
        if (memcmp(&made.head.key, &slab.head.key, sizeof made.head.key) == 0) {
            struct buf front = {0};
            uint8_t trailer[SLAB_TRAILER_BYTES];
            slab_encode(&made.head, made.payload, &front, trailer);
            assert_true(same_head(&slab.head, &made.head));
            assert_memory_equal(slab.payload, made.payload, made.head.payload_size);
            survey->there[i] = true;
            buf_release(&front);
        }
        made_release(&made);
    }
    slab_release(&slab);
}

static bool is_published(const struct ledger *ledger, int i)
{
    return ledger->tried[i] && ledger->result[i] >= 0;
}

/* Opens the folder again and reads everything; so many files may be damaged. */
static struct survey look(struct files *files, const struct ledger *ledger, size_t damaged)
{
    hearth_error error;
    struct survey survey = {.folder = folder_open(files, path, &error)};
    if (survey.folder == NULL) fail_msg("%s", error.message);
    struct folder_scan scan = {.each = survey_slab, .ud = &survey};
    assert_int_equal(folder_scan(survey.folder, &scan, NULL), 0);
    assert_in_range(survey.n - survey.whole + scan.n_damaged, 0, damaged);
    for (int i = 0; i < SLABS; i++)
        if (is_published(ledger, i) && !ledger->gone[i] && !survey.there[i])
            fail_msg("slab %d was published and is not there", i);
    return survey;
}

/* The folder works as a new one. */
static void publish_later(struct survey *survey)
{
    struct ledger ledger = {0};
    struct slab slab;
    struct made made = slab_number(LATER);
    publish_number(survey->folder, &ledger, LATER);
    assert_int_equal(ledger.result[LATER], 0);
    assert_int_equal(folder_read(survey->folder, &made.head.key, made.head.kind, &slab, NULL), 0);
    slab_release(&slab);
    made_release(&made);
    folder_close(survey->folder);
}

static bool is_temporary(const char *name)
{
    size_t len = strlen(name);
    return len > 4 && strcmp(name + len - 4, ".tmp") == 0;
}

static void count_temporary(void *ud, const char *name)
{
    *(int *)ud += is_temporary(name);
}

static int temporaries(struct files *files)
{
    int n = 0, folder = files->open_folder(files, path);
    assert_int_equal(files->list(files, folder, count_temporary, &n), 0);
    files->close(files, folder);
    return n;
}

/* ---- Calls that fail ---- */

/* The only damaged file may be the one from before, where it could not be replaced. */
static void expect_survives(struct fake_fault fault)
{
    struct fake_disk *disk = prepared_disk();
    struct files *files = fake_disk_files(disk);
    struct fake_faults faults;
    struct ledger ledger;
    fake_faults_init(&faults, files);
    fake_faults_set(&faults, fault);
    play(&faults.files, &ledger);
    assert_int_equal(faults.descriptors, 0);
    assert_int_equal(fake_disk_descriptors(disk), 0);
    if (!fault.lasting && fault.call != FAKE_ANY_CALL) assert_int_equal(temporaries(files), 0);
    if (faults.struck == 0) fail_msg("call %d was never made", (int)fault.nth);
    struct survey survey = look(files, &ledger, is_published(&ledger, DAMAGED) ? 0 : 1);
    for (int i = 0; i < SLABS && !fault.lasting; i++) /* what failed can be published again */
        if (i != WHOLE && !is_published(&ledger, i) && survey.there[i]) fail_msg("slab %d is there in secret", i);
    assert_int_equal(temporaries(files), 0);
    publish_later(&survey);
    fake_disk_close(disk);
}

static void expect_survives_each(enum fake_call call, enum fake_effect effect, int error)
{
    uint64_t n = calls_of(call);
    for (uint64_t nth = 1; nth <= n; nth++)
        expect_survives((struct fake_fault){.call = call, .nth = nth, .effect = effect, .error = error});
}

static void any_call_may_fail(void **state)
{
    (void)state;
    expect_survives_each(FAKE_ANY_CALL, FAKE_ERROR, EIO);
}

static void the_disk_may_be_full_from_any_call_on(void **state)
{
    (void)state;
    uint64_t n = calls_of(FAKE_WRITE);
    for (uint64_t nth = 1; nth <= n; nth++)
        expect_survives((struct fake_fault){.call = FAKE_WRITE, .nth = nth, .lasting = true, .error = ENOSPC});
    expect_survives_each(FAKE_WRITE, FAKE_ERROR, ENOSPC);
    expect_survives_each(FAKE_OPEN, FAKE_ERROR, ENOSPC);
}

static void everything_may_fail_from_any_call_on(void **state)
{
    (void)state;
    uint64_t n = calls_of(FAKE_ANY_CALL);
    for (uint64_t nth = 1; nth <= n; nth++)
        expect_survives((struct fake_fault){.call = FAKE_ANY_CALL, .nth = nth, .lasting = true, .error = EIO});
}

static void any_sync_may_fail(void **state)
{
    (void)state;
    expect_survives_each(FAKE_SYNC, FAKE_ERROR, EIO);
}

static void any_name_may_fail_to_be_given(void **state)
{
    (void)state;
    expect_survives_each(FAKE_LINK, FAKE_ERROR, EIO);
    expect_survives_each(FAKE_RENAME, FAKE_ERROR, EIO);
}

static void what_fails_to_be_closed_is_not_published(void **state)
{
    (void)state;
    struct fake_disk *disk = fake_disk_open();
    struct fake_faults faults;
    struct made made = slab_number(0);
    fake_faults_init(&faults, fake_disk_files(disk));
    struct folder *folder = folder_open(&faults.files, path, NULL);
    fake_faults_set(&faults, (struct fake_fault){.call = FAKE_CLOSE, .nth = 1, .error = EIO});
    assert_int_equal(folder_publish(folder, &made.head, made.payload, NULL), HEARTH_IO);
    folder_close(folder);
    made_release(&made);
    fake_disk_close(disk);
}

static void reads_and_writes_may_do_half_of_it(void **state)
{
    (void)state;
    struct fake_disk *disk = prepared_disk();
    struct fake_faults faults;
    struct ledger ledger;
    expect_survives_each(FAKE_WRITE, FAKE_SHORT, 0);
    expect_survives_each(FAKE_READ, FAKE_SHORT, 0);
    fake_faults_init(&faults, fake_disk_files(disk));
    fake_faults_set(&faults,
                    (struct fake_fault){.call = FAKE_ANY_CALL, .nth = 1, .lasting = true, .effect = FAKE_SHORT});
    assert_true(play(&faults.files, &ledger));
    for (int i = 0; i < LATER; i++) assert_true(ledger.result[i] >= 0); /* this is no failure */
    fake_disk_close(disk);
}

static void a_failure_is_reported_with_the_file_and_the_reason(void **state)
{
    (void)state;
    struct fake_disk *disk = fake_disk_open();
    struct fake_faults faults;
    struct made made = slab_number(0);
    hearth_error error;
    fake_faults_init(&faults, fake_disk_files(disk));
    struct folder *folder = folder_open(&faults.files, path, NULL);
    fake_faults_set(&faults, (struct fake_fault){.call = FAKE_WRITE, .nth = 2, .error = ENOSPC});
    assert_int_equal(folder_publish(folder, &made.head, made.payload, &error), HEARTH_IO);
    assert_int_equal(error.code, HEARTH_IO);
    assert_non_null(strstr(error.message, "/kv/"));
    assert_non_null(strstr(error.message, "No space left"));
    folder_close(folder);
    made_release(&made);
    fake_disk_close(disk);
}

static ssize_t write_otherwise(struct files *files, int fd, const void *bytes, size_t size, uint64_t offset)
{
    struct fake_faults *faults = (struct fake_faults *)files;
    uint8_t other[4096];
    assert_in_range(size, 1, sizeof other);
    memcpy(other, bytes, size);
    if (++faults->calls[FAKE_WRITE] == faults->fault.nth) other[size / 2] ^= 16;
    return faults->inner->write_at(faults->inner, fd, other, size, offset);
}

/* Publishing compares front and trailer; damage of the payload is noticed when it is read. */
static void a_disk_that_keeps_other_bytes_is_noticed(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 3; nth++) {
        struct fake_disk *disk = fake_disk_open();
        struct fake_faults faults;
        struct made made = slab_number(0);
        struct slab slab;
        fake_faults_init(&faults, fake_disk_files(disk));
        faults.files.write_at = write_otherwise;
        struct folder *folder = folder_open(&faults.files, path, NULL);
        fake_faults_set(&faults, (struct fake_fault){.call = FAKE_WRITE, .nth = nth});
        assert_int_equal(folder_publish(folder, &made.head, made.payload, NULL), nth == 2 ? 0 : HEARTH_IO);
        int expected = nth == 2 ? HEARTH_INVALID : HEARTH_NOT_FOUND;
        assert_int_equal(folder_read(folder, &made.head.key, made.head.kind, &slab, NULL), expected);
        folder_close(folder);
        assert_int_equal(faults.descriptors, 0);
        made_release(&made);
        fake_disk_close(disk);
    }
}

static struct folder *folder_in_use;

static int64_t size_and_note_use(struct files *files, int fd)
{
    struct fake_faults *faults = (struct fake_faults *)files;
    struct slab_key key = key_number(0);
    folder_note_use(folder_in_use, &key, SLAB_ROWS, 7, 8);
    return faults->inner->size(faults->inner, fd);
}

/* A fetcher notes a use of the former slab of that name, between publishing and reading back. */
static void a_use_may_be_noted_while_a_slab_is_read_back(void **state)
{
    (void)state;
    struct fake_disk *disk = fake_disk_open();
    struct fake_faults faults;
    struct made made = slab_number(0);
    struct slab slab;
    fake_faults_init(&faults, fake_disk_files(disk));
    folder_in_use = folder_open(&faults.files, path, NULL);
    faults.files.size = size_and_note_use;
    assert_int_equal(folder_publish(folder_in_use, &made.head, made.payload, NULL), 0);
    fake_faults_init(&faults, fake_disk_files(disk));
    assert_int_equal(folder_read(folder_in_use, &made.head.key, made.head.kind, &slab, NULL), 0);
    assert_int_equal(slab.head.hits, 7);
    slab_release(&slab);
    folder_close(folder_in_use);
    made_release(&made);
    fake_disk_close(disk);
}

/* ---- The process ends ---- */

static void a_process_may_end_at_any_call(void **state)
{
    (void)state;
    uint64_t n = calls_of(FAKE_ANY_CALL);
    for (uint64_t nth = 1; nth <= n; nth++) {
        struct fake_disk *disk = prepared_disk();
        struct files *files = fake_disk_files(disk);
        struct fake_faults faults;
        struct ledger ledger;
        fake_faults_init(&faults, files);
        fake_faults_set(&faults, (struct fake_fault){.call = FAKE_ANY_CALL, .nth = nth, .lasting = true, .error = EIO});
        play(&faults.files, &ledger); /* no call from the Nth on reaches the disk */
        fake_disk_end_process(disk);
        struct survey survey = look(files, &ledger, is_published(&ledger, DAMAGED) ? 0 : 1);
        assert_int_equal(temporaries(files), 0);
        publish_later(&survey);
        fake_disk_close(disk);
    }
}

/* A child runs the scenario on the machine's own files and is killed at the Nth call. Returns whether there was an Nth
 * call. */
static bool kill_at(uint64_t nth, enum fake_effect effect, struct ledger *ledger)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct fake_faults faults;
        fake_faults_init(&faults, files_machine());
        fake_faults_set(&faults, (struct fake_fault){.call = FAKE_ANY_CALL, .nth = nth, .effect = effect});
        play(&faults.files, ledger);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) assert_int_equal(WTERMSIG(status), SIGKILL);
    return WIFSIGNALED(status);
}

/* On a file system in memory: power is not lost, and syncs of a disk are slow. */
static bool survives_kill(uint64_t nth, enum fake_effect effect, struct ledger *ledger)
{
    char folder[] = "/dev/shm/hearth-faults-XXXXXX", command[64];
    assert_non_null(mkdtemp(folder));
    path = folder;
    *ledger = (struct ledger){0};
    leave_file(files_machine(), DAMAGED, true);
    leave_file(files_machine(), WHOLE, false);
    bool killed = kill_at(nth, effect, ledger);
    struct survey survey = look(files_machine(), ledger, is_published(ledger, DAMAGED) ? 0 : 1);
    assert_int_equal(temporaries(files_machine()), 0);
    publish_later(&survey);
    path = "/kv";
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0); /* NOLINT: in a folder of its own */
    return killed;
}

static void a_process_may_be_killed_before_and_after_any_call(void **state)
{
    (void)state;
    struct ledger *ledger = mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(ledger != MAP_FAILED);
    uint64_t n = calls_of(FAKE_ANY_CALL);
    for (uint64_t nth = 1; nth <= n; nth++) {
        assert_true(survives_kill(nth, FAKE_KILL_BEFORE, ledger));
        if (nth % 8 == 0)
            assert_true(survives_kill(nth, FAKE_KILL_AFTER, ledger)); /* nearly the same as before call n + 1 */
    }
    assert_true(survives_kill(n, FAKE_KILL_AFTER, ledger));
    assert_false(survives_kill(n + 1, FAKE_KILL_BEFORE, ledger));
    munmap(ledger, sizeof *ledger);
}

/* ---- Power is lost ---- */

/* Files that were damaged, or never synced, before the folder was opened, and have not been published since. */
static size_t promised_by_nobody(const struct ledger *ledger)
{
    return (is_published(ledger, DAMAGED) ? 0 : 1U) + (is_published(ledger, WHOLE) ? 0 : 1U);
}

static void lose_power_at(uint64_t nth, uint64_t seed)
{
    struct fake_disk *disk = prepared_disk();
    struct files *files = fake_disk_files(disk);
    struct fake_faults faults;
    struct ledger ledger;
    fake_faults_init(&faults, files);
    fake_faults_set(&faults, (struct fake_fault){.call = FAKE_ANY_CALL, .nth = nth, .lasting = true, .error = EIO});
    play(&faults.files, &ledger);
    fake_disk_lose_power(disk, seed);
    struct survey survey = look(files, &ledger, promised_by_nobody(&ledger));
    publish_later(&survey);
    ledger.tried[LATER] = true;
    ledger.result[LATER] = 0;
    fake_disk_lose_power(disk, seed + 1);
    survey = look(files, &ledger, promised_by_nobody(&ledger));
    folder_close(survey.folder);
    fake_disk_close(disk);
}

static void after_a_loss_of_power_what_was_published_is_there_and_all_is_whole(void **state)
{
    (void)state;
    uint64_t n = calls_of(FAKE_ANY_CALL);
    for (uint64_t nth = 1; nth <= n + 1; nth++)
        for (uint64_t seed = 0; seed < 40; seed++) lose_power_at(nth, nth * 1000 + seed);
}

/* ---- The disk in memory, by itself ---- */

/* Writes "new" over the synced "old", beside a name that was never synced. What is read after the power was lost. */
static bool what_is_left(uint64_t seed, char text[8], bool *has_name)
{
    struct fake_disk *disk = fake_disk_open();
    struct files *files = fake_disk_files(disk);
    int folder = files->open_folder(files, path), fd = files->open(files, folder, "a", FILES_CREATE);
    files_write_all(files, fd, "old", 3, 0);
    files->sync(files, fd);
    files->sync(files, folder);
    files_write_all(files, fd, "newer", 5, 0);
    files->link(files, folder, "a", "b");
    fake_disk_lose_power(disk, seed);
    assert_int_equal(files->close(files, fd), -EBADF);
    folder = files->open_folder(files, path);
    *has_name = files->open(files, folder, "b", FILES_READ) >= 0;
    fd = files->open(files, folder, "a", FILES_READ);
    assert_true(fd >= 0);
    memset(text, 0, 8);
    int64_t size = files->size(files, fd);
    assert_int_equal(files_read_all(files, fd, text, (size_t)size, 0), 0);
    assert_in_range(size, 3, 5);
    fake_disk_close(disk);
    return size == 5;
}

static void a_loss_of_power_drops_keeps_and_tears_what_was_not_synced(void **state)
{
    (void)state;
    bool kept = false, dropped = false, torn = false, zeros = false, named = false, unnamed = false;
    for (uint64_t seed = 0; seed < 200; seed++) {
        char text[8], again[8];
        bool has_name, has_again;
        bool longer = what_is_left(seed, text, &has_name);
        assert_true(what_is_left(seed, again, &has_again) == longer && has_again == has_name);
        assert_memory_equal(text, again, 8);
        kept |= strcmp(text, "newer") == 0;
        dropped |= strcmp(text, "old") == 0;
        torn |= strcmp(text, "ned") == 0 || strcmp(text, "oewer") == 0;
        zeros |= longer && memcmp(text, "old\0", 5) == 0;
        named |= has_name;
        unnamed |= !has_name;
    }
    assert_true(kept && dropped && torn && zeros && named && unnamed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(the_disk_may_be_full_from_any_call_on),
        cmocka_unit_test(everything_may_fail_from_any_call_on),
        cmocka_unit_test(any_sync_may_fail),
        cmocka_unit_test(any_name_may_fail_to_be_given),
        cmocka_unit_test(what_fails_to_be_closed_is_not_published),
        cmocka_unit_test(reads_and_writes_may_do_half_of_it),
        cmocka_unit_test(a_failure_is_reported_with_the_file_and_the_reason),
        cmocka_unit_test(a_disk_that_keeps_other_bytes_is_noticed),
        cmocka_unit_test(a_use_may_be_noted_while_a_slab_is_read_back),
        cmocka_unit_test(a_process_may_end_at_any_call),
        cmocka_unit_test(a_process_may_be_killed_before_and_after_any_call),
        cmocka_unit_test(after_a_loss_of_power_what_was_published_is_there_and_all_is_whole),
        cmocka_unit_test(a_loss_of_power_drops_keeps_and_tears_what_was_not_synced),
    };
    hearth_error error;
    if (log_open(NULL, "error", "text", &error) < 0) return 1; /* thousands of files are quarantined here */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
