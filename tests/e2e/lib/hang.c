/* A disk that hangs: loaded into the server with LD_PRELOAD. As long as the file HANG_WHILE exists, every call on files
 * below the folder HANG_FOLDER waits. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static bool is_below(int fd)
{
    char link[64], path[4096];
    const char *folder = getenv("HANG_FOLDER");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0 || folder == NULL) return false;
    path[n] = '\0';
    return strncmp(path, folder, strlen(folder)) == 0;
}

/* The condition is another program's: it can only be polled. */
static void wait_while_it_hangs(void)
{
    const char *while_there = getenv("HANG_WHILE");
    const struct timespec a_little = {.tv_nsec = 5000000};
    while (while_there != NULL && access(while_there, F_OK) == 0) nanosleep(&a_little, NULL);
}

static void pass(int fd)
{
    if (is_below(fd)) wait_while_it_hangs();
}

static void wait_for(const char *path)
{
    const char *folder = getenv("HANG_FOLDER");
    if (folder != NULL && strncmp(path, folder, strlen(folder)) == 0) wait_while_it_hangs();
}

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

ssize_t pread(int fd, void *bytes, size_t size, off_t at)
{
    pass(fd);
    return REAL(pread)(fd, bytes, size, at);
}

ssize_t pread64(int fd, void *bytes, size_t size, off64_t at)
{
    pass(fd);
    return REAL(pread64)(fd, bytes, size, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at)
{
    pass(fd);
    return REAL(pwrite)(fd, bytes, size, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at)
{
    pass(fd);
    return REAL(pwrite64)(fd, bytes, size, at);
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    pass(fd);
    return REAL(write)(fd, bytes, size);
}

int fdatasync(int fd)
{
    pass(fd);
    return REAL(fdatasync)(fd);
}

int fsync(int fd)
{
    pass(fd);
    return REAL(fsync)(fd);
}

int unlinkat(int folder, const char *name, int flags)
{
    pass(folder);
    return REAL(unlinkat)(folder, name, flags);
}

static int mode_of(int flags, va_list rest)
{
    return (flags & O_CREAT) != 0 ? va_arg(rest, int) : 0;
}

/* A log is opened by its path. */
int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int mode = mode_of(flags, rest);
    va_end(rest);
    wait_for(path);
    return REAL(open)(path, flags, mode);
}

int openat(int folder, const char *name, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int mode = mode_of(flags, rest);
    va_end(rest);
    pass(folder);
    return REAL(openat)(folder, name, flags, mode);
}

int openat64(int folder, const char *name, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int mode = mode_of(flags, rest);
    va_end(rest);
    pass(folder);
    return REAL(openat64)(folder, name, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    wait_for(path);
    return REAL(fopen)(path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    wait_for(path);
    return REAL(fopen64)(path, mode);
}
