/* A disk that is nearly full: loaded with LD_PRELOAD. Every folder has as many bytes free as FREE_BYTES says. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/statvfs.h>

static int say(struct statvfs *disk)
{
    const char *free_bytes = getenv("FREE_BYTES");
    *disk = (struct statvfs){.f_frsize = 1, .f_bavail = free_bytes != NULL ? strtoull(free_bytes, NULL, 10) : 0};
    return 0;
}

int fstatvfs(int fd, struct statvfs *disk)
{
    (void)fd;
    return say(disk);
}

int fstatvfs64(int fd, struct statvfs64 *disk)
{
    (void)fd;
    return say((struct statvfs *)disk);
}
