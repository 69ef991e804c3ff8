/* The machine's calls, in a real folder: modes, links, locks, and files that are no regular files. */
#include "base/files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder, which is removed after the test. */
struct fixture {
    char path[64];
    struct files *files;
    int fd; /* of its subfolder "a/b" */
};

static const char *in(const struct fixture *fixture, const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", fixture->path, name);
    return path;
}

static int make_place(void **state)
{
    static struct fixture fixture;
    strcpy(fixture.path, "/tmp/hearth-files-XXXXXX");
    if (mkdtemp(fixture.path) == NULL) return -1;
    fixture.files = files_machine();
    fixture.fd = fixture.files->open_folder(fixture.files, in(&fixture, "a/b"));
    *state = &fixture;
    return fixture.fd < 0 ? -1 : 0;
}

static int remove_place(void **state)
{
    struct fixture *fixture = *state;
    char command[128];
    fixture->files->close(fixture->files, fixture->fd);
    snprintf(command, sizeof command, "rm -rf %s", fixture->path);
    return system(command); /* NOLINT: a fixed command in a folder of its own */
}

static int write_file(struct fixture *fixture, const char *name, const char *text)
{
    int fd = fixture->files->open(fixture->files, fixture->fd, name, FILES_CREATE);
    if (fd < 0) return fd;
    int result = files_write_all(fixture->files, fd, text, strlen(text), 0);
    fixture->files->close(fixture->files, fd);
    return result;
}

static mode_t mode_of(const char *path)
{
    struct stat is;
    assert_int_equal(lstat(path, &is), 0);
    return is.st_mode & 07777;
}

static int open_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) != -1;
    return n;
}

/* ---- Folders ---- */

static void missing_folders_are_made_for_their_owner_alone(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(mode_of(in(fixture, "a")), 0700);
    assert_int_equal(mode_of(in(fixture, "a/b")), 0700);
    int again = fixture->files->open_folder(fixture->files, in(fixture, "a/b///"));
    assert_true(again >= 0);
    assert_int_equal(fcntl(again, F_GETFD), FD_CLOEXEC);
    fixture->files->close(fixture->files, again);
}

static void a_folder_behind_a_link_is_refused(void **state)
{
    struct fixture *fixture = *state;
    char target[256];
    strcpy(target, in(fixture, "a/b"));
    assert_int_equal(symlink(target, in(fixture, "link")), 0);
    int before = open_descriptors();
    assert_int_equal(fixture->files->open_folder(fixture->files, in(fixture, "link")), -ELOOP);
    assert_int_equal(fixture->files->open_folder(fixture->files, in(fixture, "link/")), -ELOOP);
    assert_int_equal(open_descriptors(), before);
}

static void what_is_no_folder_is_refused(void **state)
{
    struct fixture *fixture = *state;
    int before = open_descriptors();
    assert_int_equal(mkfifo(in(fixture, "pipe"), 0600), 0);
    assert_int_equal(write_file(fixture, "file", "x"), 0);
    assert_int_equal(fixture->files->open_folder(fixture->files, in(fixture, "pipe")), -ENOTDIR);
    assert_int_equal(fixture->files->open_folder(fixture->files, in(fixture, "a/b/file")), -ENOTDIR);
    assert_int_equal(fixture->files->open_folder(fixture->files, in(fixture, "a/b/file/c")), -ENOTDIR);
    assert_int_equal(fixture->files->open_folder(fixture->files, ""), -ENOENT);
    assert_int_equal(open_descriptors(), before);
}

/* As root, a folder whose owner is changed; otherwise one of root. */
static void a_folder_of_another_user_is_refused(void **state)
{
    struct fixture *fixture = *state;
    const char *path = geteuid() == 0 ? in(fixture, "a/b") : "/";
    if (geteuid() == 0) assert_int_equal(chown(path, 65534, 65534), 0);
    assert_int_equal(fixture->files->open_folder(fixture->files, path), -EPERM);
}

static void collect(void *ud, const char *name)
{
    char *all = ud;
    size_t len = strlen(all);
    snprintf(all + len, 256 - len, "%s;", name);
}

static void everything_in_a_folder_is_listed_however_often(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(write_file(fixture, "one", ""), 0);
    assert_int_equal(mkdirat(fixture->fd, "two", 0700), 0);
    int before = open_descriptors();
    for (int i = 0; i < 2; i++) {
        char all[256] = "";
        assert_int_equal(fixture->files->list(fixture->files, fixture->fd, collect, all), 0);
        if (strcmp(all, "one;two;") != 0) assert_string_equal(all, "two;one;");
    }
    assert_int_equal(open_descriptors(), before);
    assert_true(fixture->files->list(fixture->files, -1, collect, NULL) < 0);
}

static void a_folder_is_taken_by_one_at_a_time(void **state)
{
    struct fixture *fixture = *state;
    int other = fixture->files->open_folder(fixture->files, in(fixture, "a/b"));
    assert_int_equal(fixture->files->lock(fixture->files, fixture->fd), 0);
    assert_int_equal(fixture->files->lock(fixture->files, other), -EWOULDBLOCK);
    fixture->files->close(fixture->files, fixture->fd);
    assert_int_equal(fixture->files->lock(fixture->files, other), 0);
    fixture->fd = other;
}

/* ---- Files ---- */

static void a_file_is_made_once_for_its_owner_alone(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(write_file(fixture, "file", "text"), 0);
    assert_int_equal(mode_of(in(fixture, "a/b/file")), 0600);
    assert_int_equal(write_file(fixture, "file", "other"), -EEXIST);
    int fd = fixture->files->open(fixture->files, fixture->fd, "file", FILES_READ);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fixture->files->size(fixture->files, fd), 4);
    assert_int_equal(fixture->files->sync(fixture->files, fd), 0);
    assert_int_equal(fixture->files->sync(fixture->files, fixture->fd), 0);
    assert_int_equal(fixture->files->close(fixture->files, fd), 0);
    assert_int_equal(fixture->files->close(fixture->files, fd), -EBADF);
    assert_int_equal(fixture->files->open(fixture->files, fixture->fd, "none", FILES_READ), -ENOENT);
}

static void bytes_are_changed_in_place_and_read_from_anywhere(void **state)
{
    struct fixture *fixture = *state;
    char bytes[8] = "";
    assert_int_equal(write_file(fixture, "file", "0123456789"), 0);
    int fd = fixture->files->open(fixture->files, fixture->fd, "file", FILES_WRITE);
    assert_int_equal(files_write_all(fixture->files, fd, "ab", 2, 4), 0);
    assert_true(files_read_all(fixture->files, fd, bytes, 1, 0) < 0); /* opened for writing only */
    fixture->files->close(fixture->files, fd);
    fd = fixture->files->open(fixture->files, fixture->fd, "file", FILES_READ);
    assert_int_equal(files_read_all(fixture->files, fd, bytes, 6, 3), 0);
    assert_string_equal(bytes, "3ab678");
    assert_int_equal(files_read_all(fixture->files, fd, bytes, 8, 3), -ENODATA);
    assert_true(files_write_all(fixture->files, fd, "x", 1, 0) < 0);
    fixture->files->close(fixture->files, fd);
}

static void a_link_in_a_folder_is_never_followed(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(write_file(fixture, "secret", "text"), 0);
    assert_int_equal(symlinkat("secret", fixture->fd, "link"), 0);
    assert_int_equal(symlinkat("nowhere", fixture->fd, "loose"), 0);
    assert_int_equal(fixture->files->open(fixture->files, fixture->fd, "link", FILES_READ), -ELOOP);
    assert_int_equal(fixture->files->open(fixture->files, fixture->fd, "link", FILES_WRITE), -ELOOP);
    assert_int_equal(fixture->files->open(fixture->files, fixture->fd, "loose", FILES_CREATE), -EEXIST);
}

static void a_name_is_never_a_path(void **state)
{
    struct fixture *fixture = *state;
    struct files *files = fixture->files;
    assert_int_equal(write_file(fixture, "../file", ""), -EINVAL);
    assert_int_equal(write_file(fixture, "", ""), -EINVAL);
    assert_int_equal(files->unlink(files, fixture->fd, "../b/x"), -EINVAL);
    assert_int_equal(files->link(files, fixture->fd, "x", "../x"), -EINVAL);
    assert_int_equal(files->rename(files, fixture->fd, "../x", fixture->fd, "x"), -EINVAL);
}

static void a_pipe_is_not_waited_for_and_is_no_file(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(mkfifoat(fixture->fd, "pipe", 0600), 0);
    int fd = fixture->files->open(fixture->files, fixture->fd, "pipe", FILES_READ);
    assert_true(fd >= 0);
    assert_int_equal(fixture->files->size(fixture->files, fd), -EINVAL);
    fixture->files->close(fixture->files, fd);
    assert_int_equal(fixture->files->size(fixture->files, fixture->fd), -EINVAL);
}

static void a_link_never_replaces_and_a_rename_does(void **state)
{
    struct fixture *fixture = *state;
    struct files *files = fixture->files;
    char byte = 0;
    assert_int_equal(write_file(fixture, "one", "1"), 0);
    assert_int_equal(write_file(fixture, "two", "2"), 0);
    assert_int_equal(files->link(files, fixture->fd, "one", "two"), -EEXIST);
    assert_int_equal(files->link(files, fixture->fd, "one", "three"), 0);
    assert_int_equal(files->rename(files, fixture->fd, "one", fixture->fd, "two"), 0);
    assert_int_equal(files->unlink(files, fixture->fd, "one"), -ENOENT);
    assert_int_equal(files->unlink(files, fixture->fd, "three"), 0);
    int fd = files->open(files, fixture->fd, "two", FILES_READ);
    assert_int_equal(files_read_all(files, fd, &byte, 1, 0), 0);
    assert_int_equal(byte, '1');
    files->close(files, fd);
}

/* ---- Short reads and writes ---- */

static ssize_t read_one(struct files *files, int fd, void *bytes, size_t size, uint64_t offset)
{
    (void)files;
    return pread(fd, bytes, size > 1 ? 1 : size, (off_t)offset);
}

static ssize_t write_one(struct files *files, int fd, const void *bytes, size_t size, uint64_t offset)
{
    (void)files;
    return pwrite(fd, bytes, size > 1 ? 1 : size, (off_t)offset);
}

static ssize_t write_none(struct files *files, int fd, const void *bytes, size_t size, uint64_t offset)
{
    (void)files, (void)fd, (void)bytes, (void)size, (void)offset;
    return 0;
}

static void what_is_read_and_written_in_parts_is_whole_in_the_end(void **state)
{
    struct fixture *fixture = *state;
    struct files slow = *fixture->files;
    slow.read_at = read_one;
    slow.write_at = write_one;
    fixture->files = &slow;
    char bytes[8] = "";
    assert_int_equal(write_file(fixture, "file", "1234567"), 0);
    int fd = slow.open(&slow, fixture->fd, "file", FILES_READ);
    assert_int_equal(files_read_all(&slow, fd, bytes, 7, 0), 0);
    assert_string_equal(bytes, "1234567");
    slow.close(&slow, fd);
    slow.write_at = write_none;
    assert_int_equal(write_file(fixture, "other", "1"), -EIO);
    fixture->files = files_machine();
}

#define in_a_place(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_a_place(missing_folders_are_made_for_their_owner_alone),
        in_a_place(a_folder_behind_a_link_is_refused),
        in_a_place(what_is_no_folder_is_refused),
        in_a_place(a_folder_of_another_user_is_refused),
        in_a_place(everything_in_a_folder_is_listed_however_often),
        in_a_place(a_folder_is_taken_by_one_at_a_time),
        in_a_place(a_file_is_made_once_for_its_owner_alone),
        in_a_place(bytes_are_changed_in_place_and_read_from_anywhere),
        in_a_place(a_link_in_a_folder_is_never_followed),
        in_a_place(a_name_is_never_a_path),
        in_a_place(a_pipe_is_not_waited_for_and_is_no_file),
        in_a_place(a_link_never_replaces_and_a_rename_does),
        in_a_place(what_is_read_and_written_in_parts_is_whole_in_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
