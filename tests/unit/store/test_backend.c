/* The contract of backend.h, the same for every backend: memory, a folder (on a disk and in memory), and a server over
 * a network. And the index file of a folder: a scan reports the same with it, without it, and with any damage to it. */
#include "fakes/cmocka_all.h"
#include "fakes/fake_files.h"
#include "fakes/fake_remote.h"
#include "store/backends/folder_parts.h"

#include "slabs.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Backends ---- */

enum where { RAM, FOLDER, MEMORY_FOLDER, REMOTE, PLACES };

static const enum where fixtures[PLACES] = {RAM, FOLDER, MEMORY_FOLDER, REMOTE};

struct fixture {
    enum where where;
    char root[64], path[80];
    struct fake_faults faults;
    struct fake_server *server;
    struct backend *backend;
};

/* Without syncs: power is never lost here. */
static int no_sync(struct files *files, int fd)
{
    (void)files;
    (void)fd;
    return 0;
}

static bool is_folder(const struct fixture *fixture)
{
    return fixture->where == FOLDER || fixture->where == MEMORY_FOLDER;
}

static struct backend *backend_of(struct fixture *fixture)
{
    if (fixture->where == RAM) return ram_backend_open();
    if (fixture->where == REMOTE) return fake_remote_open(fixture->server);
    return folder_backend_open(&fixture->faults.files, fixture->path);
}

static void begin(struct fixture *fixture)
{
    hearth_error error = {0};
    fixture->backend = backend_of(fixture);
    if (fixture->backend->open(fixture->backend, &error) != 0) fail_msg("%s", error.message);
}

static void restart(struct fixture *fixture)
{
    fixture->backend->close(fixture->backend);
    begin(fixture);
}

static int make_place(void **state)
{
    static struct fixture fixture;
    static struct files unsynced;
    fixture = (struct fixture){.where = *(const enum where *)*state};
    strcpy(fixture.root,
           fixture.where == MEMORY_FOLDER ? "/dev/shm/hearth-backend-XXXXXX" : "/tmp/hearth-backend-XXXXXX");
    if (mkdtemp(fixture.root) == NULL) return -1;
    snprintf(fixture.path, sizeof fixture.path, "%s/kv", fixture.root);
    unsynced = *files_machine();
    unsynced.sync = no_sync;
    fake_faults_init(&fixture.faults, &unsynced);
    fixture.server = fake_server_open();
    begin(&fixture);
    *state = &fixture;
    return 0;
}

static int remove_place(void **state)
{
    struct fixture *fixture = *state;
    char command[128];
    fixture->backend->close(fixture->backend);
    fake_server_close(fixture->server);
    snprintf(command, sizeof command, "rm -rf %s", fixture->root);
    return system(command) != 0 || fixture->faults.descriptors != 0; /* NOLINT: in a folder of its own */
}

static const char *file_name(const struct slab_name *name)
{
    static char text[128];
    sha256_to_hex(name->key.v, text);
    strcat(text, name->kind == SLAB_ROWS ? ".rows" : ".state");
    return text;
}

static const char *file_of(const struct fixture *fixture, const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", fixture->path, name);
    return path;
}

static struct buf read_file(const char *path)
{
    struct buf bytes = {0};
    char some[4096];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    for (size_t n; (n = fread(some, 1, sizeof some, file)) > 0;) buf_append(&bytes, some, n);
    fclose(file);
    return bytes;
}

static void write_file(const char *path, const void *bytes, size_t size)
{
    unlink(path); /* some file systems write a file back at once when it is overwritten */
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

/* ---- Slabs ---- */

static struct slab_name name_of(uint8_t number, enum slab_kind kind)
{
    return (struct slab_name){key_number(number), kind};
}

static int put(struct fixture *fixture, const struct made *made)
{
    hearth_error error = {0};
    struct slab_head head = made->head;
    struct buf payload = {0};
    buf_append(&payload, made->payload, made->head.payload_size);
    int result = fixture->backend->put(fixture->backend, &head, &payload, &error);
    buf_release(&payload);
    if (result < 0) {
        assert_int_equal(result, error.code);
        assert_true(strlen(error.message) > 0);
    }
    return result;
}

static int put_number(struct fixture *fixture, uint8_t number, enum slab_kind kind)
{
    struct made made = make_slab(number, kind, 8, 3);
    int result = put(fixture, &made);
    made_release(&made);
    return result;
}

/* Compares all but the regions, which a scan need not report. */
static bool is_head_of(const struct slab_head *head, const struct slab_head *want)
{
    struct slab_head plain = *want;
    if (head->n_regions == 0) {
        plain.regions = NULL;
        plain.n_regions = 0;
    }
    return same_head(head, &plain);
}

static int get(struct fixture *fixture, const struct slab_name *name, const struct made *want)
{
    hearth_error error = {0};
    struct slab slab = {0};
    int result = fixture->backend->get(fixture->backend, name, &slab, &error);
    if (result != 0) {
        assert_int_equal(result, error.code);
        assert_true(strlen(error.message) > 0);
        assert_null(slab.bytes);
        return result;
    }
    if (want != NULL) {
        assert_true(is_head_of(&slab.head, &want->head));
        assert_memory_equal(slab.payload, want->payload, want->head.payload_size);
    }
    slab_release(&slab);
    return 0;
}

static int get_number(struct fixture *fixture, uint8_t number, enum slab_kind kind)
{
    const struct slab_name name = name_of(number, kind);
    return get(fixture, &name, NULL);
}

static int remove_number(struct fixture *fixture, uint8_t number, enum slab_kind kind)
{
    const struct slab_name name = name_of(number, kind);
    return fixture->backend->remove(fixture->backend, &name, NULL);
}

static bool has_number(struct fixture *fixture, uint8_t number, enum slab_kind kind)
{
    const struct slab_name name = name_of(number, kind);
    bool there = false;
    assert_int_equal(fixture->backend->has(fixture->backend, &name, 1, &there, NULL), 0);
    return there;
}

static void expect_slab(struct fixture *fixture, const struct made *made)
{
    const struct slab_name name = {made->head.key, made->head.kind};
    assert_int_equal(get(fixture, &name, made), 0);
}

/* ---- Scans ---- */

enum { MOST_REPORTED = 320 };

struct reported {
    struct {
        struct slab_head head;
        uint64_t size;
    } v[MOST_REPORTED];
    size_t n;
    struct backend_scan scan;
};

/* Takes every other head over, copies the rest. */
static void report(void *ud, struct slab_head *head, uint64_t size)
{
    struct reported *reported = ud;
    assert_true(reported->n < MOST_REPORTED);
    struct slab_head *copy = &reported->v[reported->n].head;
    *copy = *head;
    reported->v[reported->n].size = size;
    if (reported->n++ % 2 == 0) {
        *head = (struct slab_head){0};
        return;
    }
    copy->tokens = (struct tokens){0};
    tokens_append(&copy->tokens, head->tokens.v, head->tokens.len);
    copy->regions = NULL;
    copy->n_regions = 0;
}

static void reported_release(struct reported *reported)
{
    for (size_t i = 0; i < reported->n; i++) slab_head_release(&reported->v[i].head);
    free(reported);
}

static int by_name(const void *a, const void *b)
{
    const struct slab_head *x = a, *y = b;
    int order = memcmp(&x->key, &y->key, sizeof x->key);
    return order != 0 ? order : (x->kind > y->kind) - (x->kind < y->kind);
}

/* In the order of the names. */
static struct reported *scan_result(struct fixture *fixture, int expected)
{
    struct reported *reported = mem_alloc(sizeof *reported);
    hearth_error error = {0};
    reported->scan = (struct backend_scan){.each = report, .ud = reported, .n_damaged = 99, .n_unread = 99};
    int result = fixture->backend->scan(fixture->backend, &reported->scan, &error);
    if (result != expected) fail_msg("%d: %s", result, error.message);
    if (reported->n > 0) qsort(reported->v, reported->n, sizeof *reported->v, by_name);
    if (result == 0) assert_int_equal(reported->scan.n_slabs, reported->n);
    return reported;
}

static struct reported *scan(struct fixture *fixture)
{
    return scan_result(fixture, 0);
}

static size_t count_reported(const struct reported *reported, const struct slab_name *name)
{
    size_t n = 0;
    for (size_t i = 0; i < reported->n; i++)
        n += reported->v[i].head.kind == name->kind && slab_key_equal(&reported->v[i].head.key, &name->key);
    return n;
}

static bool reports(const struct reported *reported, uint8_t number, enum slab_kind kind)
{
    const struct slab_name name = name_of(number, kind);
    size_t n = count_reported(reported, &name);
    assert_in_range(n, 0, 1);
    return n == 1;
}

static bool scan_tells(struct fixture *fixture, uint8_t number, enum slab_kind kind)
{
    struct reported *reported = scan(fixture);
    bool found = reports(reported, number, kind);
    reported_release(reported);
    return found;
}

/* ---- Putting and getting ---- */

static void what_was_put_is_got_with_every_byte(void **state)
{
    struct fixture *fixture = *state;
    struct made made[] = {make_slab(1, SLAB_ROWS, 0, 4), make_slab(1, SLAB_STATE, 4, 0), make_slab(2, SLAB_ROWS, 8, 3),
                          make_slab(3, SLAB_STATE, 8, 5)};
    for (size_t i = 0; i < 4; i++) assert_int_equal(put(fixture, &made[i]), 0);
    for (size_t i = 0; i < 4; i++) expect_slab(fixture, &made[i]);
    for (size_t i = 0; i < 4; i++) expect_slab(fixture, &made[i]); /* get() leaves them there */
    for (size_t i = 0; i < 4; i++) made_release(&made[i]);
}

static void a_large_slab_is_got_with_every_byte(void **state)
{
    struct fixture *fixture = *state;
    struct made made = make_slab(5, SLAB_ROWS, 8, 3);
    made_region(&made.head, 'K', 7, 3, 1 << 20, 0);
    made.payload = mem_grow(made.payload, made.head.payload_size, 1);
    for (uint64_t i = 0; i < made.head.payload_size; i++) made.payload[i] = (uint8_t)(i * i >> 7);
    assert_int_equal(put(fixture, &made), 0);
    expect_slab(fixture, &made);
    made_release(&made);
}

static void what_was_not_put_is_not_found(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(put_number(fixture, 6, SLAB_ROWS), 0);
    assert_int_equal(get_number(fixture, 6, SLAB_STATE), HEARTH_NOT_FOUND);
    assert_int_equal(get_number(fixture, 7, SLAB_ROWS), HEARTH_NOT_FOUND);
}

static void the_same_slab_twice_is_one_slab(void **state)
{
    struct fixture *fixture = *state;
    struct made made = make_slab(8, SLAB_ROWS, 8, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(put(fixture, &made), 0);
    expect_slab(fixture, &made);
    if (fixture->where != RAM) assert_true(scan_tells(fixture, 8, SLAB_ROWS));
    assert_int_equal(remove_number(fixture, 8, SLAB_ROWS), 0);
    assert_int_equal(get_number(fixture, 8, SLAB_ROWS), HEARTH_NOT_FOUND);
    made_release(&made);
}

static void another_slab_under_the_same_name_replaces(void **state)
{
    struct fixture *fixture = *state;
    struct made made[] = {make_slab(9, SLAB_ROWS, 8, 3), make_slab(9, SLAB_ROWS, 7, 4), make_slab(9, SLAB_ROWS, 8, 3),
                          make_slab(9, SLAB_ROWS, 0, 11)};
    made[2].head.parent = key_number(99);
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(put(fixture, &made[i]), 0);
            expect_slab(fixture, &made[i]);
            if (fixture->where == RAM) continue;
            struct reported *reported = scan(fixture);
            assert_int_equal(reported->n, 1);
            assert_true(is_head_of(&reported->v[0].head, &made[i].head));
            assert_int_equal(reported->v[0].size, slab_size(&made[i].head));
            reported_release(reported);
        }
    for (size_t i = 0; i < 4; i++) made_release(&made[i]);
}

static void what_was_removed_is_gone_and_may_be_removed_again(void **state)
{
    struct fixture *fixture = *state;
    struct made made = make_slab(10, SLAB_ROWS, 8, 3);
    assert_int_equal(put(fixture, &made), 0);
    assert_int_equal(put_number(fixture, 10, SLAB_STATE), 0);
    assert_int_equal(remove_number(fixture, 10, SLAB_ROWS), 0);
    assert_int_equal(get_number(fixture, 10, SLAB_ROWS), HEARTH_NOT_FOUND);
    assert_false(has_number(fixture, 10, SLAB_ROWS));
    assert_int_equal(get_number(fixture, 10, SLAB_STATE), 0);
    assert_int_equal(remove_number(fixture, 10, SLAB_ROWS), 0);
    assert_int_equal(remove_number(fixture, 11, SLAB_ROWS), 0);
    if (fixture->where != RAM) {
        assert_false(scan_tells(fixture, 10, SLAB_ROWS));
        restart(fixture);
        assert_false(scan_tells(fixture, 10, SLAB_ROWS));
        assert_true(scan_tells(fixture, 10, SLAB_STATE));
    }
    assert_int_equal(put(fixture, &made), 0);
    expect_slab(fixture, &made);
    made_release(&made);
}

static void each_of_many_names_is_told_to_be_there_or_not(void **state)
{
    enum { MANY = 240 };
    struct fixture *fixture = *state;
    struct slab_name names[MANY];
    bool there[MANY + 1];
    for (int i = 0; i < MANY; i++) {
        names[i] = name_of((uint8_t)(i / 2), i % 2 == 0 ? SLAB_ROWS : SLAB_STATE);
        there[i] = i % 2 == 0;
        if (i % 3 == 0) assert_int_equal(put_number(fixture, (uint8_t)(i / 2), names[i].kind), 0);
    }
    there[MANY] = true;
    assert_int_equal(fixture->backend->has(fixture->backend, names, MANY, there, NULL), 0);
    for (int i = 0; i < MANY; i++) assert_int_equal(there[i], i % 3 == 0);
    assert_true(there[MANY]);
    assert_int_equal(fixture->backend->has(fixture->backend, NULL, 0, NULL, NULL), 0);
}

static void what_was_set_aside_is_gone(void **state)
{
    struct fixture *fixture = *state;
    const struct slab_name name = name_of(12, SLAB_ROWS), none = name_of(13, SLAB_ROWS);
    assert_int_equal(put_number(fixture, 12, SLAB_ROWS), 0);
    fixture->backend->quarantine(fixture->backend, &name);
    fixture->backend->quarantine(fixture->backend, &none);
    assert_int_equal(get(fixture, &name, NULL), HEARTH_NOT_FOUND);
    assert_false(has_number(fixture, 12, SLAB_ROWS));
    if (fixture->where != RAM) {
        restart(fixture);
        assert_false(scan_tells(fixture, 12, SLAB_ROWS));
    }
    assert_int_equal(put_number(fixture, 12, SLAB_ROWS), 0);
    assert_int_equal(get(fixture, &name, NULL), 0);
}

/* ---- Scanning ---- */

static void a_scan_tells_of_each_slab_once(void **state)
{
    enum { SLABS = 200 }; /* many enough for several readers */
    struct fixture *fixture = *state;
    for (int i = 0; i < SLABS; i++)
        assert_int_equal(put_number(fixture, (uint8_t)i, i % 3 ? SLAB_ROWS : SLAB_STATE), 0);
    for (int i = 0; i < SLABS; i += 5)
        assert_int_equal(remove_number(fixture, (uint8_t)i, i % 3 ? SLAB_ROWS : SLAB_STATE), 0);
    for (int round = 0; round < 3; round++) {
        restart(fixture);
        struct reported *reported = scan(fixture);
        if (fixture->where == RAM) assert_int_equal(reported->n, 0);
        assert_int_equal(reported->scan.n_damaged + reported->scan.n_foreign + reported->scan.n_unread, 0);
        assert_int_equal(reported->scan.foreign_bytes, 0);
        for (int i = 0; i < SLABS && fixture->where != RAM; i++) {
            assert_int_equal(reports(reported, (uint8_t)i, SLAB_ROWS), i % 3 != 0 && i % 5 != 0);
            assert_int_equal(reports(reported, (uint8_t)i, SLAB_STATE), i % 3 == 0 && i % 5 != 0);
        }
        reported_release(reported);
    }
}

static void a_scan_tells_what_each_slab_is(void **state)
{
    struct fixture *fixture = *state;
    struct made made[] = {make_slab(1, SLAB_ROWS, 0, 4), make_slab(2, SLAB_STATE, 4, 0),
                          make_slab(3, SLAB_ROWS, 8, 300), make_slab(4, SLAB_STATE, 0, 77)};
    for (size_t i = 0; i < 4; i++) assert_int_equal(put(fixture, &made[i]), 0);
    for (int round = 0; round < 3; round++) { /* without an index file, and with it */
        restart(fixture);
        struct reported *reported = scan(fixture);
        assert_int_equal(reported->n, 4);
        for (size_t i = 0; i < 4; i++)
            for (size_t k = 0; k < 4; k++) {
                if (!slab_key_equal(&reported->v[k].head.key, &made[i].head.key)) continue;
                assert_true(is_head_of(&reported->v[k].head, &made[i].head));
                assert_int_equal(reported->v[k].head.used_ms, made[i].head.used_ms);
                assert_int_equal(reported->v[k].head.hits, made[i].head.hits);
                assert_int_equal(reported->v[k].size, slab_size(&made[i].head));
            }
        reported_release(reported);
    }
    for (size_t i = 0; i < 4; i++) made_release(&made[i]);
}

static void the_last_use_is_told_by_the_next_scan(void **state)
{
    struct fixture *fixture = *state;
    const struct slab_name name = name_of(1, SLAB_ROWS), none = name_of(9, SLAB_ROWS);
    struct made made = make_slab(1, SLAB_ROWS, 8, 3);
    assert_int_equal(put(fixture, &made), 0);
    for (uint32_t i = 1; i < 4; i++) { /* with an index file from the second round on */
        fixture->backend->note_use(fixture->backend, &name, 100 + i, 7000000000 + i);
        fixture->backend->note_use(fixture->backend, &none, 1, 1);
        expect_slab(fixture, &made);
        restart(fixture);
        struct reported *reported = scan(fixture);
        assert_int_equal(reported->n, 1);
        assert_int_equal(reported->v[0].head.hits, 100 + i);
        assert_int_equal(reported->v[0].head.used_ms, 7000000000 + i);
        reported_release(reported);
    }
    made_release(&made);
}

struct stopping {
    _Atomic bool stop;
    size_t n;
};

static void stop_after_two(void *ud, struct slab_head *head, uint64_t size)
{
    struct stopping *stopping = ud;
    (void)head;
    (void)size;
    if (++stopping->n == 2) stopping->stop = true;
}

static void a_scan_can_be_stopped(void **state)
{
    struct fixture *fixture = *state;
    for (uint8_t i = 0; i < 10; i++) assert_int_equal(put_number(fixture, i, SLAB_ROWS), 0);
    struct stopping stopping = {0};
    struct backend_scan look = {.each = stop_after_two, .ud = &stopping, .stop = &stopping.stop};
    assert_int_equal(fixture->backend->scan(fixture->backend, &look, NULL), 0);
    assert_int_equal(stopping.n, 2);
    struct reported *reported = scan(fixture);
    assert_int_equal(reported->n, 10);
    reported_release(reported);
}

/* ---- Damage ---- */

static void change_byte(struct fixture *fixture, const struct slab_name *name, size_t at)
{
    if (fixture->where == REMOTE) {
        fake_server_flip(fixture->server, name, at);
        return;
    }
    struct buf bytes = read_file(file_of(fixture, file_name(name)));
    bytes.v[at] ^= 1;
    write_file(file_of(fixture, file_name(name)), bytes.v, bytes.len);
    buf_release(&bytes);
}

static void lay(struct fixture *fixture, const struct slab_name *name, const void *bytes, size_t size)
{
    if (fixture->where == REMOTE)
        fake_server_write(fixture->server, name, bytes, size);
    else
        write_file(file_of(fixture, file_name(name)), bytes, size);
}

static bool is_covered(size_t at)
{
    return at != 4 && (at < SLAB_USE_OFFSET || at >= SLAB_USE_OFFSET + SLAB_USE_BYTES);
}

static void a_slab_with_any_byte_changed_is_invalid_and_can_be_replaced(void **state)
{
    struct fixture *fixture = *state;
    struct made made = make_slab(20, SLAB_ROWS, 8, 2);
    const struct slab_name name = name_of(20, SLAB_ROWS);
    assert_int_equal(put(fixture, &made), 0);
    uint64_t size = slab_size(&made.head);
    for (size_t at = 0; at < size; at++) {
        if (!is_covered(at)) continue;
        change_byte(fixture, &name, at);
        assert_int_equal(get(fixture, &name, NULL), HEARTH_INVALID);
        assert_int_equal(put(fixture, &made), 0);
        expect_slab(fixture, &made);
    }
    made_release(&made);
}

static void a_slab_that_was_cut_is_invalid_and_can_be_replaced(void **state)
{
    struct fixture *fixture = *state;
    struct made made = make_slab(21, SLAB_STATE, 8, 2);
    const struct slab_name name = name_of(21, SLAB_STATE);
    assert_int_equal(put(fixture, &made), 0);
    struct buf bytes = made_bytes(&made);
    for (size_t len = 0; len < bytes.len; len++) {
        lay(fixture, &name, bytes.v, len);
        assert_int_equal(get(fixture, &name, NULL), HEARTH_INVALID);
    }
    assert_int_equal(put(fixture, &made), 0);
    expect_slab(fixture, &made);
    buf_release(&bytes);
    made_release(&made);
}

static void a_slab_under_anothers_name_is_invalid(void **state)
{
    struct fixture *fixture = *state;
    struct made made = make_slab(22, SLAB_ROWS, 8, 3);
    const struct slab_name name = name_of(22, SLAB_ROWS), other = name_of(23, SLAB_ROWS),
                           kind = name_of(22, SLAB_STATE);
    struct buf bytes = made_bytes(&made);
    lay(fixture, &name, bytes.v, bytes.len);
    lay(fixture, &other, bytes.v, bytes.len);
    lay(fixture, &kind, bytes.v, bytes.len);
    assert_int_equal(get(fixture, &name, &made), 0);
    assert_int_equal(get(fixture, &other, NULL), HEARTH_INVALID);
    assert_int_equal(get(fixture, &kind, NULL), HEARTH_INVALID);
    buf_release(&bytes);
    made_release(&made);
}

static void a_scan_counts_what_is_damaged_and_sets_it_aside(void **state)
{
    struct fixture *fixture = *state;
    const struct slab_name bad = name_of(1, SLAB_ROWS);
    for (uint8_t i = 0; i < 3; i++) assert_int_equal(put_number(fixture, i, SLAB_ROWS), 0);
    change_byte(fixture, &bad, 60); /* in the front */
    struct reported *reported = scan(fixture);
    assert_int_equal(reported->n, 2);
    assert_int_equal(reported->scan.n_damaged, 1);
    assert_int_equal(reported->scan.n_unread, 0);
    assert_false(reports(reported, 1, SLAB_ROWS));
    reported_release(reported);
    assert_int_equal(get(fixture, &bad, NULL), HEARTH_NOT_FOUND);
    reported = scan(fixture);
    assert_int_equal(reported->scan.n_damaged, 0); /* reported once */
    assert_int_equal(reported->n, 2);
    reported_release(reported);
}

static void a_slab_of_a_newer_version_is_left_alone_and_counted(void **state)
{
    struct fixture *fixture = *state;
    struct made made = make_slab(24, SLAB_ROWS, 8, 3);
    const struct slab_name name = name_of(24, SLAB_ROWS);
    struct buf bytes = made_bytes(&made);
    bytes.v[4] = 2;
    lay(fixture, &name, bytes.v, bytes.len);
    assert_int_equal(put_number(fixture, 25, SLAB_ROWS), 0);
    for (int round = 0; round < 3; round++) {
        struct reported *reported = scan(fixture);
        assert_int_equal(reported->n, 1);
        assert_int_equal(reported->scan.n_foreign, 1);
        assert_int_equal(reported->scan.foreign_bytes, bytes.len);
        assert_int_equal(reported->scan.n_damaged + reported->scan.n_unread, 0);
        reported_release(reported);
        assert_int_equal(get(fixture, &name, NULL), HEARTH_UNSUPPORTED);
        assert_int_equal(put(fixture, &made), HEARTH_UNSUPPORTED);
        assert_true(has_number(fixture, 24, SLAB_ROWS));
        restart(fixture);
    }
    if (is_folder(fixture)) {
        struct buf after = read_file(file_of(fixture, file_name(&name)));
        assert_int_equal(after.len, bytes.len);
        assert_memory_equal(after.v, bytes.v, bytes.len);
        buf_release(&after);
    }
    buf_release(&bytes);
    made_release(&made);
}

/* ---- Several threads ---- */

enum { THREADS = 4, EACH = 24 };

struct worker {
    struct fixture *fixture;
    pthread_t thread;
    uint8_t first;
    const char *failure;
};

static const char *work_on(struct fixture *fixture, uint8_t number)
{
    struct backend *backend = fixture->backend;
    struct made made = make_slab(number, SLAB_ROWS, 8, 3);
    const struct slab_name name = {made.head.key, SLAB_ROWS};
    struct slab_head head = made.head;
    struct slab slab = {0};
    struct buf payload = {0};
    bool there = false;
    const char *failure = NULL;
    buf_append(&payload, made.payload, made.head.payload_size);
    if (backend->put(backend, &head, &payload, NULL) != 0) failure = "put";
    backend->note_use(backend, &name, 5, 5);
    if (backend->has(backend, &name, 1, &there, NULL) != 0 || !there) failure = "has";
    if (backend->get(backend, &name, &slab, NULL) != 0)
        failure = "get";
    else if (!is_head_of(&slab.head, &made.head) || memcmp(slab.payload, made.payload, made.head.payload_size) != 0)
        failure = "another slab was got";
    if (number % 3 == 0 && backend->remove(backend, &name, NULL) != 0) failure = "remove";
    if (slab.bytes != NULL) slab_release(&slab);
    buf_release(&payload);
    made_release(&made);
    return failure;
}

static void *work(void *ud)
{
    struct worker *worker = ud;
    for (uint8_t i = 0; i < EACH && worker->failure == NULL; i++)
        worker->failure = work_on(worker->fixture, (uint8_t)(worker->first + i));
    return NULL;
}

static void work_in_threads(struct fixture *fixture)
{
    struct worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.fixture = fixture, .first = (uint8_t)(EACH * i)};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 3; i++) { /* at the same time */
        struct reported *reported = scan(fixture);
        assert_int_equal(reported->scan.n_damaged + reported->scan.n_unread, 0);
        reported_release(reported);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].failure != NULL) fail_msg("%s", workers[i].failure);
    }
}

static void threads_put_get_and_remove_at_once(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < 20; i++) assert_int_equal(put_number(fixture, (uint8_t)(200 + i), SLAB_STATE), 0);
    work_in_threads(fixture);
    for (int i = 0; i < THREADS * EACH; i++)
        assert_int_equal(get_number(fixture, (uint8_t)i, SLAB_ROWS), i % 3 == 0 ? HEARTH_NOT_FOUND : 0);
    for (int i = 0; i < 20; i++) assert_int_equal(get_number(fixture, (uint8_t)(200 + i), SLAB_STATE), 0);
    if (fixture->where == RAM) return;
    for (int round = 0; round < 2; round++) { /* also what was put into the index file during a scan */
        restart(fixture);
        struct reported *reported = scan(fixture);
        for (int i = 0; i < THREADS * EACH; i++) assert_int_equal(reports(reported, (uint8_t)i, SLAB_ROWS), i % 3 != 0);
        assert_int_equal(reported->n, THREADS * EACH * 2 / 3 + 20);
        reported_release(reported);
    }
}

/* A slab that was read stays readable when it is removed meanwhile. */
static void what_was_got_stays_when_it_is_removed(void **state)
{
    struct fixture *fixture = *state;
    struct made made = make_slab(30, SLAB_ROWS, 8, 3);
    const struct slab_name name = name_of(30, SLAB_ROWS);
    struct slab slab;
    assert_int_equal(put(fixture, &made), 0);
    assert_int_equal(fixture->backend->get(fixture->backend, &name, &slab, NULL), 0);
    assert_int_equal(fixture->backend->remove(fixture->backend, &name, NULL), 0);
    assert_true(is_head_of(&slab.head, &made.head));
    assert_memory_equal(slab.payload, made.payload, made.head.payload_size);
    slab_release(&slab);
    made_release(&made);
}

/* ---- Faults ---- */

static void fail_calls(struct fixture *fixture, enum fake_call call, const char *on, int error)
{
    fake_faults_set(
        &fixture->faults,
        (struct fake_fault){.call = call, .on = on, .nth = 1, .lasting = true, .effect = FAKE_ERROR, .error = error});
}

static void no_fault(struct fixture *fixture)
{
    fake_faults_set(&fixture->faults, (struct fake_fault){0});
}

static void what_cannot_be_done_now_says_nothing_of_the_slab(void **state)
{
    static const int errors[] = {EIO, EROFS, EACCES, EMFILE, ENFILE, ENOMEM, ENOSPC};
    static const enum fake_call calls[] = {FAKE_OPEN, FAKE_READ, FAKE_SIZE};
    struct fixture *fixture = *state;
    struct made made = make_slab(40, SLAB_ROWS, 8, 3);
    const struct slab_name name = name_of(40, SLAB_ROWS);
    assert_int_equal(put(fixture, &made), 0);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
            fail_calls(fixture, calls[k], ".rows", errors[i]);
            int result = get(fixture, &name, NULL);
            assert_true(result == HEARTH_IO || result == HEARTH_NO_MEMORY);
            struct reported *reported = scan(fixture);
            assert_int_equal(reported->scan.n_unread + reported->n, 1);
            assert_int_equal(reported->scan.n_damaged, 0);
            reported_release(reported);
            assert_true(has_number(fixture, 40, SLAB_ROWS)); /* true also where it cannot be found out */
            no_fault(fixture);
            expect_slab(fixture, &made);
            assert_true(scan_tells(fixture, 40, SLAB_ROWS));
        }
    made_release(&made);
}

static void what_a_scan_could_not_read_the_next_one_tells(void **state)
{
    struct fixture *fixture = *state;
    for (uint8_t i = 0; i < 5; i++) assert_int_equal(put_number(fixture, i, SLAB_ROWS), 0);
    const struct slab_name unread = name_of(2, SLAB_ROWS);
    char name[128];
    strcpy(name, file_name(&unread));
    fixture->backend->close(fixture->backend);
    unlink(file_of(fixture, INDEX_FILE_NAME));
    begin(fixture);
    fail_calls(fixture, FAKE_OPEN, name, EIO);
    struct reported *reported = scan(fixture);
    assert_int_equal(reported->n, 4);
    assert_int_equal(reported->scan.n_unread, 1);
    assert_false(reports(reported, 2, SLAB_ROWS));
    reported_release(reported);
    no_fault(fixture);
    reported = scan(fixture);
    assert_int_equal(reported->n, 5);
    assert_int_equal(reported->scan.n_unread, 0);
    reported_release(reported);
}

static void a_folder_that_cannot_be_listed_is_no_empty_one(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(put_number(fixture, 1, SLAB_ROWS), 0);
    fail_calls(fixture, FAKE_LIST, NULL, EIO);
    reported_release(scan_result(fixture, HEARTH_IO));
    no_fault(fixture);
    assert_true(scan_tells(fixture, 1, SLAB_ROWS));
}

static void a_put_that_fails_leaves_nothing_that_is_found(void **state)
{
    static const enum fake_call calls[] = {FAKE_OPEN, FAKE_WRITE, FAKE_SYNC, FAKE_LINK, FAKE_CLOSE};
    static const int errors[] = {EIO, ENOSPC, EROFS, EACCES, EMFILE, ENOMEM};
    struct fixture *fixture = *state;
    struct made made = make_slab(41, SLAB_ROWS, 8, 3);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (size_t k = 0; k < sizeof errors / sizeof *errors; k++) {
            fail_calls(fixture, calls[i], NULL, errors[k]);
            int result = put(fixture, &made);
            assert_true(result == HEARTH_IO || result == HEARTH_NO_MEMORY);
            no_fault(fixture);
            assert_int_equal(get_number(fixture, 41, SLAB_ROWS), HEARTH_NOT_FOUND);
            assert_false(scan_tells(fixture, 41, SLAB_ROWS));
        }
    assert_int_equal(put(fixture, &made), 0);
    expect_slab(fixture, &made);
    made_release(&made);
}

/* A read or a sync that fails once does not harm the slab. */
static void a_put_that_fails_leaves_what_was_there(void **state)
{
    static const enum fake_call calls[] = {FAKE_OPEN, FAKE_READ, FAKE_WRITE, FAKE_SYNC, FAKE_LINK, FAKE_CLOSE};
    static const int errors[] = {EIO, ENOSPC, EACCES, EMFILE, ENOMEM};
    struct fixture *fixture = *state;
    struct made made = make_slab(44, SLAB_ROWS, 8, 3);
    assert_int_equal(put(fixture, &made), 0);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (size_t k = 0; k < sizeof errors / sizeof *errors; k++)
            for (uint64_t nth = 1; nth < 6; nth++) {
                fake_faults_set(
                    &fixture->faults,
                    (struct fake_fault){
                        .call = calls[i], .nth = nth, .lasting = true, .effect = FAKE_ERROR, .error = errors[k]});
                int result = put(fixture, &made);
                assert_true(result == 0 || result == HEARTH_IO || result == HEARTH_NO_MEMORY);
                no_fault(fixture);
                expect_slab(fixture, &made);
                assert_true(scan_tells(fixture, 44, SLAB_ROWS));
            }
    made_release(&made);
}

static void what_cannot_be_removed_is_still_there(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(put_number(fixture, 42, SLAB_ROWS), 0);
    fail_calls(fixture, FAKE_UNLINK, NULL, EROFS);
    assert_int_equal(remove_number(fixture, 42, SLAB_ROWS), HEARTH_IO);
    no_fault(fixture);
    assert_int_equal(get_number(fixture, 42, SLAB_ROWS), 0);
    assert_true(has_number(fixture, 42, SLAB_ROWS));
    assert_true(scan_tells(fixture, 42, SLAB_ROWS));
}

static void a_file_system_without_links_keeps_slabs(void **state)
{
    static const int errors[] = {EPERM, EOPNOTSUPP, ENOSYS, EMLINK};
    struct fixture *fixture = *state;
    struct made made = make_slab(43, SLAB_ROWS, 8, 3), other = make_slab(43, SLAB_ROWS, 7, 4);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        fail_calls(fixture, FAKE_LINK, NULL, errors[i]);
        assert_int_equal(put(fixture, &made), 0);
        expect_slab(fixture, &made);
        assert_int_equal(put(fixture, &made), 0);
        assert_int_equal(put(fixture, &other), 0);
        expect_slab(fixture, &other);
        assert_int_equal(remove_number(fixture, 43, SLAB_ROWS), 0);
        no_fault(fixture);
    }
    made_release(&made);
    made_release(&other);
}

/* ---- Lost and opened again ---- */

static void a_backend_that_is_not_open_is_unavailable(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(put_number(fixture, 50, SLAB_ROWS), 0);
    fixture->backend->close(fixture->backend);
    fixture->backend = backend_of(fixture);
    assert_int_equal(put_number(fixture, 51, SLAB_ROWS), HEARTH_UNAVAILABLE);
    assert_int_equal(get_number(fixture, 50, SLAB_ROWS), HEARTH_UNAVAILABLE);
    assert_int_equal(remove_number(fixture, 50, SLAB_ROWS), HEARTH_UNAVAILABLE);
    reported_release(scan_result(fixture, HEARTH_UNAVAILABLE));
    assert_int_equal(fixture->backend->open(fixture->backend, NULL), 0);
    assert_int_equal(get_number(fixture, 50, SLAB_ROWS), 0);
}

static void a_removed_folder_is_made_anew_when_it_is_opened_again(void **state)
{
    struct fixture *fixture = *state;
    char command[128];
    assert_int_equal(put_number(fixture, 52, SLAB_ROWS), 0);
    reported_release(scan(fixture)); /* there is an index file now */
    snprintf(command, sizeof command, "rm -rf %s", fixture->path);
    assert_int_equal(system(command), 0); /* NOLINT: in a folder of its own */
    assert_int_equal(put_number(fixture, 53, SLAB_ROWS), HEARTH_UNAVAILABLE);
    assert_int_not_equal(get_number(fixture, 52, SLAB_ROWS), 0);
    for (int round = 0; round < 2; round++) { /* also where nothing had been lost */
        assert_int_equal(fixture->backend->open(fixture->backend, NULL), 0);
        assert_int_equal(put_number(fixture, 53, SLAB_ROWS), 0);
        assert_int_equal(get_number(fixture, 53, SLAB_ROWS), 0);
        assert_false(has_number(fixture, 52, SLAB_ROWS));
        assert_true(scan_tells(fixture, 53, SLAB_ROWS));
    }
}

static void a_server_that_went_away_is_back_when_it_is_opened_again(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(put_number(fixture, 54, SLAB_ROWS), 0);
    fake_server_set(fixture->server, (struct fake_network){.gone = true});
    assert_int_equal(get_number(fixture, 54, SLAB_ROWS), HEARTH_UNAVAILABLE);
    assert_int_equal(put_number(fixture, 55, SLAB_ROWS), HEARTH_UNAVAILABLE);
    assert_int_equal(fixture->backend->open(fixture->backend, NULL), HEARTH_UNAVAILABLE);
    fake_server_set(fixture->server, (struct fake_network){0});
    assert_int_equal(get_number(fixture, 54, SLAB_ROWS), HEARTH_UNAVAILABLE);
    assert_int_equal(fixture->backend->open(fixture->backend, NULL), 0);
    assert_int_equal(get_number(fixture, 54, SLAB_ROWS), 0);
    assert_int_equal(put_number(fixture, 55, SLAB_ROWS), 0);
}

static void a_folder_belongs_to_one_backend_at_a_time(void **state)
{
    struct fixture *fixture = *state;
    hearth_error error = {0};
    struct backend *second = backend_of(fixture);
    struct backend *first = fixture->backend;
    assert_int_equal(put_number(fixture, 56, SLAB_ROWS), 0);
    for (int i = 0; i < 2; i++) { /* and at the next attempt */
        assert_int_equal(second->open(second, &error), HEARTH_BUSY);
        assert_non_null(strstr(error.message, fixture->path));
        fixture->backend = second;
        assert_int_equal(get_number(fixture, 56, SLAB_ROWS), 0);
        assert_int_equal(put_number(fixture, 57, SLAB_ROWS), HEARTH_UNAVAILABLE);
        assert_int_equal(remove_number(fixture, 56, SLAB_ROWS), HEARTH_UNAVAILABLE);
    }
    first->close(first);
    assert_int_equal(second->open(second, &error), 0);
    assert_int_equal(get_number(fixture, 57, SLAB_ROWS), HEARTH_NOT_FOUND);
    assert_int_equal(put_number(fixture, 57, SLAB_ROWS), 0);
}

/* ---- Over a network ---- */

static void clients_of_one_server_find_what_the_others_put(void **state)
{
    struct fixture *fixture = *state;
    struct fixture other = {.where = REMOTE, .server = fixture->server};
    begin(&other);
    struct made made = make_slab(60, SLAB_ROWS, 8, 3);
    assert_int_equal(put(fixture, &made), 0);
    assert_true(has_number(&other, 60, SLAB_ROWS));
    assert_true(scan_tells(&other, 60, SLAB_ROWS));
    expect_slab(&other, &made);
    assert_int_equal(remove_number(&other, 60, SLAB_ROWS), 0);
    assert_int_equal(get_number(fixture, 60, SLAB_ROWS), HEARTH_NOT_FOUND);
    other.backend->close(other.backend);
    made_release(&made);
}

static void answers_may_come_late_and_in_any_order(void **state)
{
    struct fixture *fixture = *state;
    fake_server_set(fixture->server, (struct fake_network){.latency_ns = 2000000, .reorders = true});
    work_in_threads(fixture);
    assert_true(fake_server_overtaken(fixture->server) > 10);
    for (int i = 0; i < THREADS * EACH; i++) assert_int_equal(has_number(fixture, (uint8_t)i, SLAB_ROWS), i % 3 != 0);
}

static void requests_may_be_lost_and_asked_again(void **state)
{
    struct fixture *fixture = *state;
    fake_server_set(fixture->server, (struct fake_network){.loses_every = 3, .timeout_ns = 1000000});
    for (uint8_t i = 0; i < 60; i++) {
        struct made made = make_slab(i, SLAB_ROWS, 8, 3);
        const struct slab_name name = name_of(i, SLAB_ROWS);
        int result;
        while ((result = put(fixture, &made)) != 0) assert_int_equal(result, HEARTH_IO);
        while ((result = get(fixture, &name, &made)) != 0) assert_int_equal(result, HEARTH_IO);
        made_release(&made);
    }
    assert_true(fake_server_lost(fixture->server) >= 60);
    struct reported *reported = scan_result(fixture, 0);
    size_t unread = reported->scan.n_unread;
    assert_int_equal(reported->n + unread, 60);
    reported_release(reported);
    fake_server_set(fixture->server, (struct fake_network){0});
    reported = scan(fixture);
    assert_int_equal(reported->n, 60);
    reported_release(reported);
}

/* ---- The index file ---- */

static void close_place(struct fixture *fixture)
{
    fixture->backend->close(fixture->backend);
    fixture->backend = NULL;
}

/* What the scan of a new backend reports, and how many slab files it opens. */
static struct reported *scan_anew(struct fixture *fixture, uint64_t *opened)
{
    if (fixture->backend != NULL) close_place(fixture);
    begin(fixture);
    /* An effect that does not apply to opening: calls are counted, and nothing else. */
    fake_faults_set(
        &fixture->faults,
        (struct fake_fault){.call = FAKE_OPEN, .on = FAKE_SLABS, .nth = 1, .lasting = true, .effect = FAKE_SHORT});
    struct reported *reported = scan(fixture);
    if (opened != NULL) *opened = fixture->faults.struck;
    no_fault(fixture);
    return reported;
}

/* Regions aside: the index file has none. */
static bool same_slab(const struct slab_head *a, const struct slab_head *b)
{
    struct slab_head x = *a, y = *b;
    x.n_regions = y.n_regions = 0;
    return same_head(&x, &y);
}

static bool same_told(const struct reported *a, const struct reported *b)
{
    bool same = a->n == b->n && a->scan.n_damaged == b->scan.n_damaged && a->scan.n_foreign == b->scan.n_foreign &&
                a->scan.n_unread == b->scan.n_unread && a->scan.foreign_bytes == b->scan.foreign_bytes;
    for (size_t i = 0; same && i < a->n; i++)
        same = a->v[i].size == b->v[i].size && same_slab(&a->v[i].head, &b->v[i].head);
    return same;
}

/* Hits and times of use, which a damaged index file may lack. */
static bool same_uses(const struct reported *a, const struct reported *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = a->v[i].head.hits == b->v[i].head.hits && a->v[i].head.used_ms == b->v[i].head.used_ms;
    return same;
}

/* Slabs of both kinds, some removed and used, some before there was an index file and some after. */
static void fill_folder(struct fixture *fixture)
{
    for (uint8_t i = 0; i < 3; i++) assert_int_equal(put_number(fixture, i, SLAB_ROWS), 0);
    reported_release(scan_anew(fixture, NULL));
    for (uint8_t i = 3; i < 6; i++) assert_int_equal(put_number(fixture, i, SLAB_STATE), 0);
    assert_int_equal(remove_number(fixture, 0, SLAB_ROWS), 0);
    assert_int_equal(remove_number(fixture, 3, SLAB_STATE), 0);
    for (uint32_t i = 0; i < 3; i++) {
        const struct slab_name name = name_of(4, SLAB_STATE), rows = name_of(2, SLAB_ROWS);
        fixture->backend->note_use(fixture->backend, &name, 10 + i, 5000 + i);
        fixture->backend->note_use(fixture->backend, &rows, 20 + i, 6000 + i);
    }
}

static void replace_number(struct fixture *fixture, uint8_t number)
{
    struct made other = make_slab(number, SLAB_ROWS, 7, 4);
    assert_int_equal(put(fixture, &other), 0);
    made_release(&other);
}

/* Replaces the slab of that name by another one, and that one by the first. */
static void swap_number(struct fixture *fixture, uint8_t number)
{
    static int32_t turn;
    turn = (turn + 1) % 3;
    struct made other = make_slab(number, SLAB_ROWS, 4 + turn, 7 - turn);
    assert_int_equal(put(fixture, &other), 0);
    expect_slab(fixture, &other);
    made_release(&other);
}

static bool has_file(const struct fixture *fixture, const char *name)
{
    struct stat is;
    return lstat(file_of(fixture, name), &is) == 0;
}

/* What a scan reports without an index file: what the slabs themselves say. */
static struct reported *scan_without_index(struct fixture *fixture)
{
    if (fixture->backend != NULL) close_place(fixture);
    unlink(file_of(fixture, INDEX_FILE_NAME));
    assert_false(has_file(fixture, INDEX_FILE_NAME));
    uint64_t opened;
    struct reported *reported = scan_anew(fixture, &opened);
    assert_true(opened >= reported->n);
    return reported;
}

static void the_index_file_tells_what_the_slabs_do_and_opens_none(void **state)
{
    struct fixture *fixture = *state;
    fill_folder(fixture);
    replace_number(fixture, 1);
    uint64_t opened;
    struct reported *with = scan_anew(fixture, &opened);
    assert_int_equal(opened, 0);
    assert_int_equal(with->n, 4);
    struct reported *without = scan_without_index(fixture);
    assert_true(same_told(with, without));
    assert_true(same_uses(with, without));
    struct reported *again = scan_anew(fixture, &opened); /* from the new index file */
    assert_int_equal(opened, 0);
    assert_true(same_told(again, without));
    assert_true(same_uses(again, without));
    struct reported *twice = scan(fixture); /* by the same process */
    assert_true(same_told(twice, without));
    reported_release(with);
    reported_release(without);
    reported_release(again);
    reported_release(twice);
}

/* Whatever a test did to the index file, a scan reports the same, and the file is whole afterwards. */
static void expect_told(struct fixture *fixture, const struct buf *index, size_t at, const struct reported *want)
{
    uint64_t opened;
    if (fixture->backend != NULL) close_place(fixture);
    write_file(file_of(fixture, INDEX_FILE_NAME), index->v, index->len);
    struct reported *reported = scan_anew(fixture, NULL);
    if (!same_told(reported, want)) fail_msg("another scan, byte %zu of %zu", at, index->len);
    reported_release(reported);
    reported = scan_anew(fixture, &opened);
    if (!same_told(reported, want)) fail_msg("another second scan, byte %zu of %zu", at, index->len);
    if (opened > 0) fail_msg("%llu slabs opened again, byte %zu", (unsigned long long)opened, at);
    reported_release(reported);
}

static void an_index_file_that_was_cut_anywhere_tells_the_same(void **state)
{
    struct fixture *fixture = *state;
    fill_folder(fixture);
    close_place(fixture);
    struct buf index = read_file(file_of(fixture, INDEX_FILE_NAME));
    struct reported *want = scan_without_index(fixture);
    assert_true(index.len > 500);
    for (size_t len = 0; len < index.len; len++) {
        const struct buf cut = {.v = index.v, .len = len};
        expect_told(fixture, &cut, len, want);
    }
    reported_release(want);
    buf_release(&index);
}

static void an_index_file_with_any_byte_changed_tells_the_same(void **state)
{
    struct fixture *fixture = *state;
    fill_folder(fixture);
    close_place(fixture);
    struct buf index = read_file(file_of(fixture, INDEX_FILE_NAME));
    struct reported *want = scan_without_index(fixture);
    for (size_t at = 0; at < index.len; at++) {
        char was = index.v[at];
        index.v[at] = (char)(was ^ (1 << at % 8));
        expect_told(fixture, &index, at, want);
        index.v[at] = was;
    }
    reported_release(want);
    buf_release(&index);
}

static void an_index_file_of_something_else_tells_nothing(void **state)
{
    static const char *const contents[] = {"", "\n", "HKVJ", "this is the index of a book about caches"};
    struct fixture *fixture = *state;
    fill_folder(fixture);
    struct reported *want = scan_without_index(fixture);
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        struct buf index = {0};
        buf_puts(&index, contents[i]);
        expect_told(fixture, &index, i, want);
        buf_release(&index);
    }
    reported_release(want);
    close_place(fixture);
    unlink(file_of(fixture, INDEX_FILE_NAME));
    assert_int_equal(mkdir(file_of(fixture, INDEX_FILE_NAME), 0700), 0); /* no index file can be made */
    reported_release(scan_anew(fixture, NULL));
    assert_int_equal(put_number(fixture, 77, SLAB_ROWS), 0);
    assert_true(scan_tells(fixture, 77, SLAB_ROWS));
    assert_true(scan_tells(fixture, 1, SLAB_ROWS));
}

/* As a crash before the last records were written leaves it; or a copy that somebody restored. */
static void an_index_file_older_than_the_folder_tells_the_same(void **state)
{
    struct fixture *fixture = *state;
    fill_folder(fixture);
    close_place(fixture);
    struct buf index = read_file(file_of(fixture, INDEX_FILE_NAME));
    begin(fixture);
    reported_release(scan(fixture));
    assert_int_equal(put_number(fixture, 90, SLAB_ROWS), 0);
    assert_int_equal(put_number(fixture, 91, SLAB_STATE), 0);
    assert_int_equal(remove_number(fixture, 2, SLAB_ROWS), 0);
    assert_int_equal(remove_number(fixture, 91, SLAB_STATE), 0);
    struct reported *want = scan_without_index(fixture);
    assert_int_equal(want->n, 4);
    expect_told(fixture, &index, 0, want);
    reported_release(want);
    buf_release(&index);
}

/* An old index file reports the former slab of a name that was replaced since: get() shows the difference. */
static void what_an_old_index_file_says_of_a_replaced_slab_is_mended_by_getting_it(void **state)
{
    struct fixture *fixture = *state;
    struct made other = make_slab(2, SLAB_ROWS, 7, 4);
    const struct slab_name name = name_of(2, SLAB_ROWS);
    fill_folder(fixture);
    close_place(fixture);
    struct buf index = read_file(file_of(fixture, INDEX_FILE_NAME));
    begin(fixture);
    reported_release(scan(fixture));
    assert_int_equal(put(fixture, &other), 0);
    close_place(fixture);
    write_file(file_of(fixture, INDEX_FILE_NAME), index.v, index.len);
    struct reported *reported = scan_anew(fixture, NULL);
    assert_int_equal(count_reported(reported, &name), 1);
    assert_int_equal(get(fixture, &name, &other), 0);
    reported_release(reported);
    buf_release(&index);
    made_release(&other);
}

static void an_index_file_that_cannot_be_written_costs_the_next_start_only(void **state)
{
    static const enum fake_call calls[] = {FAKE_WRITE, FAKE_RENAME, FAKE_OPEN};
    struct fixture *fixture = *state;
    fill_folder(fixture);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        close_place(fixture);
        if (calls[i] == FAKE_RENAME) unlink(file_of(fixture, INDEX_FILE_NAME));
        begin(fixture);
        fail_calls(fixture, calls[i], INDEX_FILE_NAME, ENOSPC);
        reported_release(scan(fixture));
        swap_number(fixture, 1);
        assert_int_equal(put_number(fixture, (uint8_t)(80 + i), SLAB_ROWS), 0);
        assert_int_equal(put_number(fixture, (uint8_t)(90 + i), SLAB_ROWS), 0);
        assert_int_equal(remove_number(fixture, (uint8_t)(90 + i), SLAB_ROWS), 0);
        assert_true(fixture->faults.struck > 0);
        no_fault(fixture);
        struct reported *with = scan_anew(fixture, NULL), *without = scan_without_index(fixture);
        assert_true(same_told(with, without));
        assert_true(reports(with, (uint8_t)(80 + i), SLAB_ROWS));
        reported_release(with);
        reported_release(without);
    }
}

/* Before there is an index file to record it. */
static void what_is_replaced_before_the_first_scan_is_told_as_it_is(void **state)
{
    struct fixture *fixture = *state;
    fill_folder(fixture);
    for (int round = 0; round < 4; round++) {
        close_place(fixture);
        begin(fixture);
        swap_number(fixture, 1);
        if (round % 2 == 0) reported_release(scan(fixture)); /* else the process ends before that */
        if (round % 2 == 0) swap_number(fixture, 2);
        struct reported *with = scan_anew(fixture, NULL), *without = scan_without_index(fixture);
        assert_true(same_told(with, without));
        reported_release(with);
        reported_release(without);
    }
}

static void *scan_once(void *fixture)
{
    reported_release(scan(fixture));
    return NULL;
}

/* Three of four had been read. */
static void what_is_replaced_during_a_scan_is_told_as_it_is(void **state)
{
    struct fixture *fixture = *state;
    pthread_t thread;
    fill_folder(fixture);
    close_place(fixture);
    unlink(file_of(fixture, INDEX_FILE_NAME));
    begin(fixture);
    fake_faults_set(&fixture->faults,
                    (struct fake_fault){.call = FAKE_READ, .on = FAKE_SLABS, .nth = 7, .effect = FAKE_HANG});
    assert_int_equal(pthread_create(&thread, NULL, scan_once, fixture), 0);
    assert_true(fake_faults_await(&fixture->faults, 1));
    swap_number(fixture, 1);
    swap_number(fixture, 2);
    fake_faults_release(&fixture->faults);
    pthread_join(thread, NULL);
    assert_true(has_file(fixture, INDEX_FILE_NAME));
    struct reported *with = scan_anew(fixture, NULL), *without = scan_without_index(fixture);
    assert_int_equal(with->n, 4);
    assert_true(same_told(with, without));
    reported_release(with);
    reported_release(without);
}

static void swap_at_first(void *ud, struct slab_head *head, uint64_t size)
{
    struct fixture **fixture = ud;
    (void)head;
    (void)size;
    if (*fixture == NULL) return;
    swap_number(*fixture, 1);
    swap_number(*fixture, 2);
    *fixture = NULL;
}

/* Their records in the former file are replayed only afterwards. */
static void what_is_replaced_while_an_index_file_is_written_anew_is_told_as_it_is(void **state)
{
    struct fixture *fixture = *state, *once = fixture;
    const struct slab_name name = name_of(5, SLAB_STATE);
    fill_folder(fixture);
    for (uint32_t i = 0; i < 100; i++)
        fixture->backend->note_use(fixture->backend, &name, i, i); /* so that the file is worth a scan */
    restart(fixture);
    struct backend_scan look = {.each = swap_at_first, .ud = &once};
    assert_int_equal(fixture->backend->scan(fixture->backend, &look, NULL), 0);
    assert_true(has_file(fixture, INDEX_FILE_NAME));
    struct reported *with = scan_anew(fixture, NULL), *without = scan_without_index(fixture);
    assert_int_equal(with->n, 4);
    assert_true(same_told(with, without));
    reported_release(with);
    reported_release(without);
}

static void *swap_one(void *fixture)
{
    swap_number(fixture, 1);
    return NULL;
}

/* The process ends after a slab was replaced and before the index file records it. */
static void what_was_replaced_as_a_process_ended_is_told_as_it_is(void **state)
{
    struct fixture *fixture = *state;
    pthread_t thread;
    fill_folder(fixture);
    reported_release(scan_anew(fixture, NULL));
    fake_faults_set(&fixture->faults, (struct fake_fault){.call = FAKE_SYNC, .nth = 2, .effect = FAKE_HANG});
    assert_int_equal(pthread_create(&thread, NULL, swap_one, fixture), 0);
    assert_true(fake_faults_await(&fixture->faults, 1)); /* the sync of the folder, after that of the file */
    struct buf index = read_file(file_of(fixture, INDEX_FILE_NAME));
    fake_faults_release(&fixture->faults);
    pthread_join(thread, NULL);
    struct reported *want = scan_without_index(fixture);
    expect_told(fixture, &index, 0, want);
    reported_release(want);
    buf_release(&index);
}

/* Half a record is written, then writing works again: later records count. */
static void a_record_of_which_half_was_written_hides_none_behind_it(void **state)
{
    struct fixture *fixture = *state;
    fill_folder(fixture);
    reported_release(scan_anew(fixture, NULL));
    fake_faults_set(&fixture->faults,
                    (struct fake_fault){
                        .call = FAKE_WRITE, .on = INDEX_FILE_NAME, .nth = 1, .effect = FAKE_ERROR, .error = ENOSPC});
    const struct slab_name used = name_of(2, SLAB_ROWS);
    fixture->backend->note_use(fixture->backend, &used, 1000, 90000);
    for (uint8_t i = 0; i < 4; i++) assert_int_equal(put_number(fixture, (uint8_t)(60 + i), SLAB_ROWS), 0);
    assert_int_equal(remove_number(fixture, 60, SLAB_ROWS), 0);
    no_fault(fixture);
    struct reported *with = scan_anew(fixture, NULL), *without = scan_without_index(fixture);
    assert_int_equal(with->n, without->n);
    for (uint8_t i = 1; i < 4; i++) assert_true(reports(with, (uint8_t)(60 + i), SLAB_ROWS));
    assert_false(reports(with, 60, SLAB_ROWS));
    reported_release(with);
    reported_release(without);
}

static void an_index_file_does_not_grow_with_what_was_used(void **state)
{
    struct fixture *fixture = *state;
    fill_folder(fixture);
    reported_release(scan_anew(fixture, NULL));
    const struct slab_name name = name_of(2, SLAB_ROWS);
    struct stat before, after;
    assert_int_equal(stat(file_of(fixture, INDEX_FILE_NAME), &before), 0);
    for (uint32_t i = 0; i < 500; i++) fixture->backend->note_use(fixture->backend, &name, i, 7000 + i);
    uint64_t opened;
    struct reported *reported = scan_anew(fixture, &opened);
    assert_int_equal(opened, 0);
    assert_int_equal(reported->n, 4);
    reported_release(reported);
    assert_int_equal(stat(file_of(fixture, INDEX_FILE_NAME), &after), 0);
    assert_true(after.st_size <= before.st_size);
    struct reported *with = scan_anew(fixture, NULL), *without = scan_without_index(fixture);
    assert_true(same_told(with, without));
    assert_true(same_uses(with, without));
    reported_release(with);
    reported_release(without);
}

/* ---- main ---- */

#define IN(f, where)                                                                                                   \
    {                                                                                                                  \
#f " (" #where ")", f, make_place, remove_place, (void *)(uintptr_t)&fixtures[where]                           \
    }
#define IN_FOLDERS(f)       IN(f, FOLDER), IN(f, MEMORY_FOLDER)
#define WHAT_IT_OUTLIVES(f) IN_FOLDERS(f), IN(f, REMOTE)
#define EVERYWHERE(f)       IN(f, RAM), WHAT_IT_OUTLIVES(f)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EVERYWHERE(what_was_put_is_got_with_every_byte),
        EVERYWHERE(a_large_slab_is_got_with_every_byte),
        EVERYWHERE(what_was_not_put_is_not_found),
        EVERYWHERE(the_same_slab_twice_is_one_slab),
        EVERYWHERE(another_slab_under_the_same_name_replaces),
        EVERYWHERE(what_was_removed_is_gone_and_may_be_removed_again),
        EVERYWHERE(each_of_many_names_is_told_to_be_there_or_not),
        EVERYWHERE(what_was_set_aside_is_gone),
        EVERYWHERE(a_scan_tells_of_each_slab_once),
        WHAT_IT_OUTLIVES(a_scan_tells_what_each_slab_is),
        WHAT_IT_OUTLIVES(the_last_use_is_told_by_the_next_scan),
        WHAT_IT_OUTLIVES(a_scan_can_be_stopped),
        WHAT_IT_OUTLIVES(a_slab_with_any_byte_changed_is_invalid_and_can_be_replaced),
        WHAT_IT_OUTLIVES(a_slab_that_was_cut_is_invalid_and_can_be_replaced),
        WHAT_IT_OUTLIVES(a_slab_under_anothers_name_is_invalid),
        WHAT_IT_OUTLIVES(a_scan_counts_what_is_damaged_and_sets_it_aside),
        WHAT_IT_OUTLIVES(a_slab_of_a_newer_version_is_left_alone_and_counted),
        EVERYWHERE(threads_put_get_and_remove_at_once),
        EVERYWHERE(what_was_got_stays_when_it_is_removed),
        IN_FOLDERS(what_cannot_be_done_now_says_nothing_of_the_slab),
        IN_FOLDERS(what_a_scan_could_not_read_the_next_one_tells),
        IN_FOLDERS(a_folder_that_cannot_be_listed_is_no_empty_one),
        IN_FOLDERS(a_put_that_fails_leaves_nothing_that_is_found),
        IN_FOLDERS(a_put_that_fails_leaves_what_was_there),
        IN_FOLDERS(what_cannot_be_removed_is_still_there),
        IN_FOLDERS(a_file_system_without_links_keeps_slabs),
        WHAT_IT_OUTLIVES(a_backend_that_is_not_open_is_unavailable),
        IN_FOLDERS(a_removed_folder_is_made_anew_when_it_is_opened_again),
        IN_FOLDERS(a_folder_belongs_to_one_backend_at_a_time),
        IN(a_server_that_went_away_is_back_when_it_is_opened_again, REMOTE),
        IN(clients_of_one_server_find_what_the_others_put, REMOTE),
        IN(answers_may_come_late_and_in_any_order, REMOTE),
        IN(requests_may_be_lost_and_asked_again, REMOTE),
        IN_FOLDERS(the_index_file_tells_what_the_slabs_do_and_opens_none),
        IN(an_index_file_that_was_cut_anywhere_tells_the_same, MEMORY_FOLDER),
        IN(an_index_file_with_any_byte_changed_tells_the_same, MEMORY_FOLDER),
        IN_FOLDERS(an_index_file_of_something_else_tells_nothing),
        IN_FOLDERS(an_index_file_older_than_the_folder_tells_the_same),
        IN_FOLDERS(what_an_old_index_file_says_of_a_replaced_slab_is_mended_by_getting_it),
        IN_FOLDERS(an_index_file_that_cannot_be_written_costs_the_next_start_only),
        IN_FOLDERS(what_is_replaced_before_the_first_scan_is_told_as_it_is),
        IN_FOLDERS(what_is_replaced_during_a_scan_is_told_as_it_is),
        IN_FOLDERS(what_is_replaced_while_an_index_file_is_written_anew_is_told_as_it_is),
        IN_FOLDERS(what_was_replaced_as_a_process_ended_is_told_as_it_is),
        IN_FOLDERS(a_record_of_which_half_was_written_hides_none_behind_it),
        IN_FOLDERS(an_index_file_does_not_grow_with_what_was_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
