/* A folder of slabs on the machine's own files: writing, reading, files that exist already, and what a start finds. */
#include "fakes/cmocka_all.h"
#include "fakes/fake_files.h"
#include "store/backends/folder.h"

#include "slabs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder, which is removed after the test; no descriptor may be left open. */
struct fixture {
    char path[64];
    struct fake_faults faults; /* counts descriptors */
    struct folder *folder;
};

static const char *in(const struct fixture *fixture, const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/kv/%s", fixture->path, name);
    return path;
}

static void open_folder(struct fixture *fixture)
{
    hearth_error error;
    fixture->folder = folder_open(&fixture->faults.files, in(fixture, ""), &error);
    if (fixture->folder == NULL) fail_msg("%s", error.message);
}

static int make_place(void **state)
{
    static struct fixture fixture;
    strcpy(fixture.path, "/tmp/hearth-folder-XXXXXX");
    if (mkdtemp(fixture.path) == NULL) return -1;
    fake_faults_init(&fixture.faults, files_machine());
    open_folder(&fixture);
    *state = &fixture;
    return 0;
}

static int remove_place(void **state)
{
    struct fixture *fixture = *state;
    char command[128];
    folder_close(fixture->folder);
    snprintf(command, sizeof command, "rm -rf %s", fixture->path);
    return system(command) != 0 || fixture->faults.descriptors != 0; /* NOLINT: in a folder of its own */
}

static void restart(struct fixture *fixture)
{
    folder_close(fixture->folder);
    open_folder(fixture);
}

/* ---- Files ---- */

static const char *name_of(uint8_t number, enum slab_kind kind)
{
    static char name[128];
    struct slab_key key = key_number(number);
    sha256_to_hex(key.v, name);
    strcat(name, kind == SLAB_ROWS ? ".rows" : ".state");
    return name;
}

static bool exists(const struct fixture *fixture, const char *name)
{
    struct stat is;
    return lstat(in(fixture, name), &is) == 0;
}

static struct buf read_file(const struct fixture *fixture, const char *name)
{
    struct buf bytes = {0};
    char some[256];
    FILE *file = fopen(in(fixture, name), "rb");
    assert_non_null(file);
    for (size_t n = fread(some, 1, sizeof some, file); n > 0; n = fread(some, 1, sizeof some, file))
        buf_append(&bytes, some, n);
    fclose(file);
    return bytes;
}

static void write_file(const struct fixture *fixture, const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(in(fixture, name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

static void flip(const struct fixture *fixture, const char *name, size_t at)
{
    struct buf bytes = read_file(fixture, name);
    bytes.v[at] ^= 1;
    write_file(fixture, name, bytes.v, bytes.len);
    buf_release(&bytes);
}

static mode_t mode_of(const struct fixture *fixture, const char *name)
{
    struct stat is;
    assert_int_equal(lstat(in(fixture, name), &is), 0);
    return is.st_mode & 07777;
}

static void count_name(void *ud, const char *name)
{
    (void)name;
    (*(int *)ud)++;
}

static int n_files(struct fixture *fixture, const char *subfolder)
{
    struct files *files = files_machine();
    int n = 0, fd = files->open_folder(files, in(fixture, subfolder));
    assert_int_equal(files->list(files, fd, count_name, &n), 0);
    files->close(files, fd);
    return n;
}

/* ---- Slabs in it ---- */

static int publish(struct fixture *fixture, struct made *made)
{
    hearth_error error;
    int result = folder_publish(fixture->folder, &made->head, made->payload, &error);
    if (result == HEARTH_IO) fail_msg("%s", error.message);
    return result;
}

static int publish_number(struct fixture *fixture, uint8_t number)
{
    struct made made = make_slab(number, SLAB_ROWS, 8, 3);
    int result = publish(fixture, &made);
    made_release(&made);
    return result;
}

static int read_result(struct fixture *fixture, uint8_t number, enum slab_kind kind)
{
    struct slab slab;
    struct slab_key key = key_number(number);
    int result = folder_read(fixture->folder, &key, kind, &slab, NULL);
    if (result == 0) slab_release(&slab);
    return result;
}

static void expect_there(struct fixture *fixture, struct made *made)
{
    struct slab slab;
    hearth_error error;
    if (folder_read(fixture->folder, &made->head.key, made->head.kind, &slab, &error) < 0)
        fail_msg("%s", error.message);
    assert_true(same_head(&slab.head, &made->head));
    assert_int_equal(slab.bytes->size, slab_size(&made->head));
    assert_memory_equal(slab.payload, made->payload, made->head.payload_size);
    slab_release(&slab);
}

struct found {
    int n;
    uint64_t bytes;
    bool numbers[256];
};

static void find(void *ud, struct slab_head *head, uint64_t size)
{
    struct found *found = ud;
    found->n++;
    found->bytes += size;
    for (int i = 0; i < 256; i++) {
        struct slab_key key = key_number((uint8_t)i);
        if (memcmp(&key, &head->key, sizeof key) == 0) found->numbers[i] = true;
    }
}

static struct folder_scan scan(struct folder *folder, struct found *found)
{
    *found = (struct found){0};
    struct folder_scan scan = {.each = find, .ud = found};
    assert_int_equal(folder_scan(folder, &scan, NULL), 0);
    assert_int_equal(found->n, scan.n_slabs);
    return scan;
}

static void take_head(void *ud, struct slab_head *head, uint64_t size)
{
    (void)size;
    *(struct slab_head *)ud = *head;
    *head = (struct slab_head){0};
}

/* ---- Writing and reading ---- */

static void what_is_published_is_read_for_its_owner_alone(void **state)
{
    struct fixture *fixture = *state;
    struct made rows = make_slab(1, SLAB_ROWS, 0, 4), moving = make_slab(1, SLAB_STATE, 4, 0);
    assert_int_equal(publish(fixture, &rows), 0);
    assert_int_equal(publish(fixture, &moving), 0);
    expect_there(fixture, &rows);
    expect_there(fixture, &moving);
    assert_int_equal(mode_of(fixture, ""), 0700);
    assert_int_equal(mode_of(fixture, name_of(1, SLAB_ROWS)), 0600);
    assert_int_equal(n_files(fixture, ""), 2); /* no temporary file is left */
    made_release(&rows);
    made_release(&moving);
}

static void a_look_reads_fronts_without_the_payload(void **state)
{
    struct fixture *fixture = *state;
    struct made made = make_slab(2, SLAB_ROWS, 8, 3);
    struct slab_head head = {0};
    assert_int_equal(publish(fixture, &made), 0);
    flip(fixture, name_of(2, SLAB_ROWS), slab_size(&made.head) - 20); /* the payload's end */
    struct folder_scan scan = {.each = take_head, .ud = &head};
    assert_int_equal(folder_scan(fixture->folder, &scan, NULL), 0);
    assert_true(same_head(&head, &made.head));
    assert_int_equal(read_result(fixture, 2, SLAB_ROWS), HEARTH_INVALID);
    slab_head_release(&head);
    made_release(&made);
}

static void every_failure_to_read_has_a_code_and_names_the_file(void **state)
{
    struct fixture *fixture = *state;
    hearth_error error;
    struct slab slab;
    struct slab_key key = key_number(3);
    assert_int_equal(folder_read(fixture->folder, &key, SLAB_ROWS, &slab, &error), HEARTH_NOT_FOUND);
    assert_int_equal(publish_number(fixture, 3), 0);
    fixture->faults.fault = (struct fake_fault){.call = FAKE_READ, .nth = 1, .lasting = true, .error = EIO};
    assert_int_equal(folder_read(fixture->folder, &key, SLAB_ROWS, &slab, &error), HEARTH_IO);
    assert_non_null(strstr(error.message, name_of(3, SLAB_ROWS)));
    fake_faults_set(&fixture->faults, (struct fake_fault){0});
    write_file(fixture, name_of(4, SLAB_ROWS), "HKV", 3);
    assert_int_equal(read_result(fixture, 4, SLAB_ROWS), HEARTH_INVALID);
    write_file(fixture, name_of(5, SLAB_ROWS), "", 0);
    assert_int_equal(read_result(fixture, 5, SLAB_ROWS), HEARTH_INVALID);
    assert_int_equal(mkdir(in(fixture, name_of(6, SLAB_ROWS)), 0700), 0);
    assert_int_equal(read_result(fixture, 6, SLAB_ROWS), HEARTH_INVALID);
    assert_int_equal(mkfifo(in(fixture, name_of(7, SLAB_ROWS)), 0600), 0);
    assert_int_equal(read_result(fixture, 7, SLAB_ROWS), HEARTH_INVALID);
}

static void a_file_under_the_name_of_another_is_refused(void **state)
{
    struct fixture *fixture = *state;
    char from[256];
    assert_int_equal(publish_number(fixture, 8), 0);
    strcpy(from, in(fixture, name_of(8, SLAB_ROWS)));
    assert_int_equal(link(from, in(fixture, name_of(9, SLAB_ROWS))), 0);
    assert_int_equal(link(from, in(fixture, name_of(8, SLAB_STATE))), 0);
    assert_int_equal(read_result(fixture, 8, SLAB_ROWS), 0);
    assert_int_equal(read_result(fixture, 9, SLAB_ROWS), HEARTH_INVALID);
    assert_int_equal(read_result(fixture, 8, SLAB_STATE), HEARTH_INVALID);
}

static void a_symbolic_link_is_never_followed(void **state)
{
    struct fixture *fixture = *state;
    char target[256];
    assert_int_equal(publish_number(fixture, 10), 0);
    strcpy(target, in(fixture, "moved"));
    assert_int_equal(rename(in(fixture, name_of(10, SLAB_ROWS)), target), 0);
    assert_int_equal(symlink(target, in(fixture, name_of(10, SLAB_ROWS))), 0);
    struct slab_key key = key_number(10);
    struct buf before = read_file(fixture, "moved");
    assert_int_equal(read_result(fixture, 10, SLAB_ROWS), HEARTH_INVALID);
    folder_note_use(fixture->folder, &key, SLAB_ROWS, 77, 77);
    assert_int_equal(publish_number(fixture, 10), 0); /* replaces the link, not its target */
    assert_int_equal(read_result(fixture, 10, SLAB_ROWS), 0);
    struct buf after = read_file(fixture, "moved");
    assert_int_equal(before.len, after.len);
    assert_memory_equal(before.v, after.v, after.len);
    buf_release(&before);
    buf_release(&after);
}

static void the_use_is_noted_in_the_file(void **state)
{
    struct fixture *fixture = *state;
    struct made made = make_slab(11, SLAB_ROWS, 8, 3);
    struct slab slab;
    assert_int_equal(publish(fixture, &made), 0);
    folder_note_use(fixture->folder, &made.head.key, SLAB_ROWS, 12, 345678901234);
    expect_there(fixture, &made);
    assert_int_equal(folder_read(fixture->folder, &made.head.key, SLAB_ROWS, &slab, NULL), 0);
    assert_int_equal(slab.head.hits, 12);
    assert_int_equal(slab.head.used_ms, 345678901234);
    slab_release(&slab);
    struct slab_key none = key_number(12);
    folder_note_use(fixture->folder, &none, SLAB_ROWS, 1, 1);
    assert_false(exists(fixture, name_of(12, SLAB_ROWS)));
    made_release(&made);
}

static void what_is_removed_is_gone_and_removing_again_is_no_fault(void **state)
{
    struct fixture *fixture = *state;
    struct slab_key key = key_number(13);
    assert_int_equal(publish_number(fixture, 13), 0);
    assert_int_equal(folder_remove(fixture->folder, &key, SLAB_ROWS, NULL), 0);
    assert_int_equal(read_result(fixture, 13, SLAB_ROWS), HEARTH_NOT_FOUND);
    assert_int_equal(folder_remove(fixture->folder, &key, SLAB_ROWS, NULL), 0);
    assert_int_equal(n_files(fixture, ""), 0);
}

/* ---- Files that exist already ---- */

static void a_whole_file_that_is_there_stays(void **state)
{
    struct fixture *fixture = *state;
    struct made first = make_slab(20, SLAB_ROWS, 8, 3), second = make_slab(20, SLAB_ROWS, 8, 3);
    second.payload[3] ^= 1;
    assert_int_equal(publish(fixture, &first), 0);
    assert_int_equal(publish(fixture, &second), 0);
    expect_there(fixture, &first);
    assert_int_equal(n_files(fixture, ""), 1);
    made_release(&first);
    made_release(&second);
}

static void a_file_that_is_there_and_damaged_anywhere_is_replaced(void **state)
{
    struct fixture *fixture = *state;
    struct made made = make_slab(21, SLAB_ROWS, 8, 1);
    const char *name = name_of(21, SLAB_ROWS);
    uint64_t size = slab_size(&made.head);
    assert_int_equal(publish(fixture, &made), 0);
    for (size_t at = 0; at < size; at++) {
        if (at == 4 || (at >= SLAB_USE_OFFSET && at < SLAB_USE_OFFSET + SLAB_USE_BYTES)) continue;
        flip(fixture, name, at);
        assert_int_equal(publish(fixture, &made), 0);
        expect_there(fixture, &made);
    }
    for (uint64_t len = 0; len < size; len++) {
        assert_int_equal(truncate(in(fixture, name), (off_t)len), 0);
        assert_int_equal(publish(fixture, &made), 0);
        expect_there(fixture, &made);
    }
    assert_int_equal(n_files(fixture, ""), 1);
    made_release(&made);
}

static void another_slab_under_the_same_name_is_replaced(void **state)
{
    struct fixture *fixture = *state;
    struct made made = make_slab(22, SLAB_ROWS, 8, 3);
    struct made others[] = {make_slab(23, SLAB_ROWS, 8, 3), make_slab(22, SLAB_ROWS, 7, 4),
                            make_slab(22, SLAB_ROWS, 8, 3)};
    others[2].head.parent = key_number(99);
    for (size_t i = 0; i < 3; i++) {
        struct buf bytes = made_bytes(&others[i]);
        write_file(fixture, name_of(22, SLAB_ROWS), bytes.v, bytes.len);
        assert_int_equal(publish(fixture, &made), 0);
        expect_there(fixture, &made);
        buf_release(&bytes);
        made_release(&others[i]);
    }
    made_release(&made);
}

static void a_slab_of_a_newer_version_is_left_alone(void **state)
{
    struct fixture *fixture = *state;
    struct found found;
    struct made made = make_slab(24, SLAB_ROWS, 8, 3);
    struct buf bytes = made_bytes(&made);
    bytes.v[4] = 2;
    write_file(fixture, name_of(24, SLAB_ROWS), bytes.v, bytes.len);
    assert_int_equal(publish(fixture, &made), HEARTH_UNSUPPORTED);
    assert_int_equal(read_result(fixture, 24, SLAB_ROWS), HEARTH_UNSUPPORTED);
    restart(fixture);
    struct folder_scan seen = scan(fixture->folder, &found);
    assert_int_equal(seen.n_foreign, 1);
    assert_int_equal(seen.n_slabs + seen.n_damaged, 0);
    struct buf after = read_file(fixture, name_of(24, SLAB_ROWS));
    assert_memory_equal(bytes.v, after.v, bytes.len);
    assert_int_equal(n_files(fixture, ""), 1);
    buf_release(&bytes);
    buf_release(&after);
    made_release(&made);
}

/* ---- At a start ---- */

static void a_second_process_is_refused_and_told_which_folder(void **state)
{
    struct fixture *fixture = *state;
    hearth_error error;
    assert_null(folder_open(&fixture->faults.files, in(fixture, ""), &error));
    assert_int_equal(error.code, HEARTH_UNAVAILABLE);
    assert_non_null(strstr(error.message, fixture->path));
    struct folder *reader = folder_open_read_only(&fixture->faults.files, in(fixture, ""), &error);
    assert_non_null(reader);
    folder_close(reader);
    restart(fixture);
}

static void a_folder_that_cannot_be_had_is_named(void **state)
{
    struct fixture *fixture = *state;
    hearth_error error;
    char target[256];
    strcpy(target, in(fixture, ""));
    assert_int_equal(symlink(target, in(fixture, "link")), 0);
    write_file(fixture, "file", "", 0);
    assert_null(folder_open(&fixture->faults.files, in(fixture, "link"), &error));
    assert_int_equal(error.code, HEARTH_IO);
    assert_non_null(strstr(error.message, "symbolic link"));
    assert_null(folder_open(&fixture->faults.files, in(fixture, "file/x"), &error));
    assert_non_null(strstr(error.message, "file/x"));
}

static void what_was_left_half_written_is_removed_and_nothing_else(void **state)
{
    struct fixture *fixture = *state;
    char name[160];
    snprintf(name, sizeof name, "%s.7.tmp", name_of(30, SLAB_ROWS));
    write_file(fixture, name, "half", 4);
    write_file(fixture, "notes.tmp", "mine", 4);
    assert_int_equal(publish_number(fixture, 31), 0);
    struct folder *reader = folder_open_read_only(&fixture->faults.files, in(fixture, ""), NULL);
    folder_close(reader);
    assert_true(exists(fixture, name)); /* a read-only open removes no temporary file: it may be in use */
    restart(fixture);
    assert_false(exists(fixture, name));
    assert_true(exists(fixture, "notes.tmp"));
    assert_int_equal(read_result(fixture, 31, SLAB_ROWS), 0);
}

static void a_start_reads_fronts_alone_and_finds_all_slabs(void **state)
{
    struct fixture *fixture = *state;
    struct found found;
    uint64_t bytes = 0;
    for (uint8_t i = 0; i < 5; i++) {
        struct made made = make_slab((uint8_t)(40 + i), i % 2 == 0 ? SLAB_ROWS : SLAB_STATE, 8, 3);
        assert_int_equal(publish(fixture, &made), 0);
        bytes += slab_size(&made.head);
        made_release(&made);
    }
    struct made large = make_slab(45, SLAB_STATE, 8, 3);
    large.head.payload_size = 1 << 20;
    large.payload = mem_grow(large.payload, 1 << 20, 1);
    memset(large.payload, 7, 1 << 20);
    assert_int_equal(publish(fixture, &large), 0);
    flip(fixture, name_of(45, SLAB_STATE), 1 << 19); /* damage in the payload is noticed only by reading it */
    restart(fixture);
    fake_faults_set(&fixture->faults, (struct fake_fault){0});
    struct folder_scan seen = scan(fixture->folder, &found);
    assert_int_equal(seen.n_slabs, 6);
    assert_int_equal(seen.n_damaged + seen.n_foreign, 0);
    assert_int_equal(found.bytes, bytes + slab_size(&large.head));
    for (int i = 40; i < 46; i++) assert_true(found.numbers[i]);
    assert_true(fixture->faults.calls[FAKE_READ] <= 12); /* header and front of each */
    assert_int_equal(fixture->faults.calls[FAKE_WRITE], 0);
    assert_int_equal(read_result(fixture, 45, SLAB_STATE), HEARTH_INVALID);
    made_release(&large);
}

static void what_cannot_be_used_is_quarantined_and_foreign_files_stay(void **state)
{
    struct fixture *fixture = *state;
    struct found found;
    assert_int_equal(publish_number(fixture, 50), 0);
    assert_int_equal(publish_number(fixture, 51), 0);
    flip(fixture, name_of(51, SLAB_ROWS), 60);
    char moved[256];
    strcpy(moved, in(fixture, "x"));
    assert_int_equal(rename(in(fixture, name_of(50, SLAB_ROWS)), moved), 0);
    assert_int_equal(symlink("x", in(fixture, name_of(52, SLAB_ROWS))), 0);
    assert_int_equal(publish_number(fixture, 53), 0);
    write_file(fixture, "README", "", 0);
    struct folder *reader = folder_open_read_only(&fixture->faults.files, in(fixture, ""), NULL);
    struct folder_scan seen = scan(reader, &found);
    folder_close(reader);
    assert_int_equal(seen.n_damaged, 2);
    assert_true(exists(fixture, name_of(51, SLAB_ROWS))); /* only reported */
    seen = scan(fixture->folder, &found);
    assert_int_equal(seen.n_slabs, 1);
    assert_int_equal(seen.n_damaged, 2);
    assert_int_equal(seen.n_foreign, 2);
    assert_false(exists(fixture, name_of(51, SLAB_ROWS)));
    assert_int_equal(n_files(fixture, "quarantine"), 2);
    assert_true(exists(fixture, "x"));
    assert_true(exists(fixture, "README"));
    seen = scan(fixture->folder, &found);
    assert_int_equal(seen.n_damaged, 0); /* found once */
    assert_int_equal(seen.n_foreign, 2);
}

static void only_the_newest_stay_in_quarantine(void **state)
{
    struct fixture *fixture = *state;
    for (uint8_t i = 0; i < 20; i++) {
        struct slab_key key = key_number((uint8_t)(60 + i));
        write_file(fixture, name_of((uint8_t)(60 + i), SLAB_ROWS), "?", 1);
        if (i == 10) restart(fixture);
        folder_quarantine(fixture->folder, &key, SLAB_ROWS);
    }
    assert_int_equal(n_files(fixture, "quarantine"), 8);
    for (int i = 12; i < 20; i++) {
        char name[160];
        snprintf(name, sizeof name, "quarantine/%d-%s", i + 1, name_of((uint8_t)(60 + i), SLAB_ROWS));
        assert_true(exists(fixture, name));
    }
    struct slab_key none = key_number(90);
    folder_quarantine(fixture->folder, &none, SLAB_ROWS);
    assert_int_equal(n_files(fixture, ""), 1);
    assert_int_equal(mode_of(fixture, "quarantine"), 0700);
}

static void what_cannot_be_set_aside_is_removed(void **state)
{
    struct fixture *fixture = *state;
    struct slab_key key = key_number(91);
    write_file(fixture, name_of(91, SLAB_ROWS), "?", 1);
    write_file(fixture, "quarantine", "no folder", 9);
    folder_quarantine(fixture->folder, &key, SLAB_ROWS);
    assert_false(exists(fixture, name_of(91, SLAB_ROWS)));
}

static void stop_at_first(void *ud, struct slab_head *head, uint64_t size)
{
    (void)head, (void)size;
    *(_Atomic bool *)ud = true;
}

static void a_look_through_the_folder_can_be_stopped(void **state)
{
    struct fixture *fixture = *state;
    _Atomic bool stop = false;
    for (uint8_t i = 0; i < 3; i++) assert_int_equal(publish_number(fixture, (uint8_t)(100 + i)), 0);
    struct folder_scan stopped = {.each = stop_at_first, .ud = &stop, .stop = &stop};
    assert_int_equal(folder_scan(fixture->folder, &stopped, NULL), 0);
    assert_int_equal(stopped.n_slabs, 1);
}

static void a_head_that_was_found_may_be_taken_over(void **state)
{
    struct fixture *fixture = *state;
    struct slab_head head;
    struct made made = make_slab(110, SLAB_ROWS, 8, 3);
    assert_int_equal(publish(fixture, &made), 0);
    struct folder_scan taking = {.each = take_head, .ud = &head};
    assert_int_equal(folder_scan(fixture->folder, &taking, NULL), 0);
    assert_true(same_head(&head, &made.head));
    slab_head_release(&head);
    made_release(&made);
}

/* ---- Several threads ---- */

enum { THREADS = 4, EACH = 8 };

struct worker {
    struct fixture *fixture;
    pthread_t thread;
    uint8_t first;
};

/* Publishes, uses and reads slabs of its own; quarantines one of them. */
static void *work(void *ud)
{
    struct worker *worker = ud;
    struct folder *folder = worker->fixture->folder;
    for (uint8_t i = 0; i < EACH; i++) {
        struct made made = make_slab((uint8_t)(worker->first + i), SLAB_ROWS, 8, 3);
        struct slab slab;
        if (folder_publish(folder, &made.head, made.payload, NULL) != 0) abort();
        folder_note_use(folder, &made.head.key, SLAB_ROWS, i, i);
        if (folder_read(folder, &made.head.key, SLAB_ROWS, &slab, NULL) != 0) abort();
        if (i == 0) folder_quarantine(folder, &made.head.key, SLAB_ROWS);
        slab_release(&slab);
        made_release(&made);
    }
    return NULL;
}

static void threads_publish_and_read_their_own_slabs_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct worker workers[THREADS];
    struct found found;
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.fixture = fixture, .first = (uint8_t)(EACH * i)};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    struct folder_scan seen = scan(fixture->folder, &found); /* at the same time */
    assert_int_equal(seen.n_damaged + seen.n_foreign, 0);
    for (int i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
    seen = scan(fixture->folder, &found);
    assert_int_equal(seen.n_slabs, THREADS * (EACH - 1));
    assert_int_equal(seen.n_damaged + seen.n_foreign, 0);
    assert_int_equal(n_files(fixture, "quarantine"), THREADS);
}

#define in_a_place(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_a_place(what_is_published_is_read_for_its_owner_alone),
        in_a_place(a_look_reads_fronts_without_the_payload),
        in_a_place(every_failure_to_read_has_a_code_and_names_the_file),
        in_a_place(a_file_under_the_name_of_another_is_refused),
        in_a_place(a_symbolic_link_is_never_followed),
        in_a_place(the_use_is_noted_in_the_file),
        in_a_place(what_is_removed_is_gone_and_removing_again_is_no_fault),
        in_a_place(a_whole_file_that_is_there_stays),
        in_a_place(a_file_that_is_there_and_damaged_anywhere_is_replaced),
        in_a_place(another_slab_under_the_same_name_is_replaced),
        in_a_place(a_slab_of_a_newer_version_is_left_alone),
        in_a_place(a_second_process_is_refused_and_told_which_folder),
        in_a_place(a_folder_that_cannot_be_had_is_named),
        in_a_place(what_was_left_half_written_is_removed_and_nothing_else),
        in_a_place(a_start_reads_fronts_alone_and_finds_all_slabs),
        in_a_place(what_cannot_be_used_is_quarantined_and_foreign_files_stay),
        in_a_place(only_the_newest_stay_in_quarantine),
        in_a_place(what_cannot_be_set_aside_is_removed),
        in_a_place(a_look_through_the_folder_can_be_stopped),
        in_a_place(a_head_that_was_found_may_be_taken_over),
        in_a_place(threads_publish_and_read_their_own_slabs_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
