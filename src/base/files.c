/* The machine's system calls behind struct files. Keeps no state: descriptors belong to the callers. */
#include "base/files.h"

#include "base/memory.h"
#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a signal interrupted the call, which is then repeated. */
static bool interrupted(int64_t result)
{
    return result < 0 && errno == EINTR;
}

static int outcome(int result)
{
    return result < 0 ? -errno : result;
}

static bool is_name(const char *name)
{
    return name[0] != '\0' && strchr(name, '/') == NULL;
}

static int machine_close(struct files *files, int fd)
{
    (void)files;
    int result = outcome(close(fd));
    return result == -EINTR ? 0 : result; /* Linux has closed it nevertheless */
}

static int machine_sync(struct files *files, int fd)
{
    (void)files;
    int result;
    do result = os_sync(fd);
    while (interrupted(result));
    return outcome(result);
}

/* ---- Folders ---- */

/* Without O_DIRECTORY, with which a symbolic link would give ENOTDIR instead of ELOOP; with O_NONBLOCK, since opening a
 * pipe of that name would wait. */
static int open_existing_folder(const char *path)
{
    int fd;
    do fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    while (interrupted(fd));
    if (fd < 0) return -errno;
    struct stat is;
    int result = outcome(fstat(fd, &is));
    if (result == 0 && !S_ISDIR(is.st_mode)) result = -ENOTDIR;
    if (result == 0 && is.st_uid != geteuid()) result = -EPERM;
    if (result == 0 && (is.st_mode & (S_IWGRP | S_IWOTH)) != 0) result = -EBADMSG;
    if (result == 0) return fd;
    machine_close(NULL, fd);
    return result;
}

/* Syncs the parent too: a new folder whose name a loss of power takes is lost with all that was synced in it. */
static int make_folder(const char *path)
{
    if (mkdir(path, 0700) != 0) return errno == EEXIST ? 0 : -errno;
    const char *slash = strrchr(path, '/');
    char *parent = slash == NULL   ? mem_strdup(".")
                   : slash == path ? mem_strdup("/")
                                   : mem_strndup(path, (size_t)(slash - path));
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(parent);
    if (fd < 0) return -errno;
    int result = machine_sync(NULL, fd);
    machine_close(NULL, fd);
    return result;
}

static int make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int result = make_folder(path);
        *slash = '/';
        if (result < 0) return result;
    }
    return make_folder(path);
}

static int machine_open_folder(struct files *files, const char *path)
{
    (void)files;
    char *plain = mem_strdup(path);
    size_t len = strlen(plain);
    while (len > 1 && plain[len - 1] == '/')
        plain[--len] = '\0'; /* with a slash at its end, a symbolic link would be followed */
    int result = len == 0 ? -ENOENT : open_existing_folder(plain);
    if (result == -ENOENT && len > 0) {
        result = make_folders(plain);
        if (result == 0) result = open_existing_folder(plain);
    }
    free(plain);
    return result;
}

static int machine_list(struct files *files, int folder, void (*each)(void *ud, const char *name), void *ud)
{
    (void)files;
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* a descriptor with an offset of its own */
    if (fd < 0) return -errno;
    DIR *names = fdopendir(fd);
    if (names == NULL) {
        int result = -errno;
        machine_close(NULL, fd);
        return result;
    }
    errno = 0;
    for (struct dirent *next = readdir(names); next != NULL; next = readdir(names)) {
        if (strcmp(next->d_name, ".") != 0 && strcmp(next->d_name, "..") != 0) each(ud, next->d_name);
        errno = 0;
    }
    int result = -errno;
    closedir(names);
    return result;
}

static int machine_lock(struct files *files, int folder)
{
    (void)files;
    int result;
    do result = flock(folder, LOCK_EX | LOCK_NB);
    while (interrupted(result));
    return outcome(result);
}

/* ---- Files ---- */

static int machine_open(struct files *files, int folder, const char *name, enum files_mode mode)
{
    static const int flags[] = {
        [FILES_READ] = O_RDONLY, [FILES_WRITE] = O_WRONLY, [FILES_CREATE] = O_WRONLY | O_CREAT | O_EXCL};
    (void)files;
    if (!is_name(name)) return -EINVAL;
    int fd;
    do fd = openat(folder, name, flags[mode] | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    while (interrupted(fd));
    return outcome(fd);
}

static ssize_t machine_read_at(struct files *files, int fd, void *bytes, size_t size, uint64_t offset)
{
    (void)files;
    ssize_t n;
    do n = pread(fd, bytes, size, (off_t)offset);
    while (interrupted(n));
    return n < 0 ? -errno : n;
}

static ssize_t machine_write_at(struct files *files, int fd, const void *bytes, size_t size, uint64_t offset)
{
    (void)files;
    ssize_t n;
    do n = pwrite(fd, bytes, size, (off_t)offset);
    while (interrupted(n));
    return n < 0 ? -errno : n;
}

static int64_t machine_size(struct files *files, int fd)
{
    (void)files;
    struct stat is;
    if (fstat(fd, &is) != 0) return -errno;
    return S_ISREG(is.st_mode) ? is.st_size : -EINVAL;
}

static int machine_link(struct files *files, int folder, const char *from, const char *to)
{
    (void)files;
    if (!is_name(from) || !is_name(to)) return -EINVAL;
    return outcome(linkat(folder, from, folder, to, 0));
}

static int machine_rename(struct files *files, int folder, const char *from, int to_folder, const char *to)
{
    (void)files;
    if (!is_name(from) || !is_name(to)) return -EINVAL;
    return outcome(renameat(folder, from, to_folder, to));
}

static int machine_unlink(struct files *files, int folder, const char *name)
{
    (void)files;
    if (!is_name(name)) return -EINVAL;
    return outcome(unlinkat(folder, name, 0));
}

struct files *files_machine(void)
{
    static struct files machine = {
        .open_folder = machine_open_folder,
        .open = machine_open,
        .close = machine_close,
        .read_at = machine_read_at,
        .write_at = machine_write_at,
        .size = machine_size,
        .sync = machine_sync,
        .link = machine_link,
        .rename = machine_rename,
        .unlink = machine_unlink,
        .list = machine_list,
        .lock = machine_lock,
    };
    return &machine;
}

/* ---- Whole reads and writes ---- */

int files_read_all(struct files *files, int fd, void *bytes, size_t size, uint64_t offset)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = files->read_at(files, fd, (char *)bytes + done, size - done, offset + done);
        if (n < 0) return (int)n;
        if (n == 0) return -ENODATA;
        done += (size_t)n;
    }
    return 0;
}

int files_write_all(struct files *files, int fd, const void *bytes, size_t size, uint64_t offset)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = files->write_at(files, fd, (const char *)bytes + done, size - done, offset + done);
        if (n < 0) return (int)n;
        if (n == 0) return -EIO; /* no file system returns this; without a limit it would loop for ever */
        done += (size_t)n;
    }
    return 0;
}
