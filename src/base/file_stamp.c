/* Stamps of files: see file_stamp.h. */
#include "base/file_stamp.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)

/* Times of files advance with the kernel's tick, of 10 ms at most; where they have no fractions, by up to two seconds.
 */
#define TICK_NS   (2 * INT64_C(10000000))
#define COARSE_NS (2 * NS_PER_S)

struct file_stamp file_stamp_of(const struct stat *st)
{
    return (struct file_stamp){.device = (int64_t)st->st_dev,
                               .inode = (int64_t)st->st_ino,
                               .size = st->st_size,
                               .content_s = st->st_mtim.tv_sec,
                               .content_ns = st->st_mtim.tv_nsec,
                               .inode_s = st->st_ctim.tv_sec,
                               .inode_ns = st->st_ctim.tv_nsec};
}

/* O_NONBLOCK: a pipe that has taken its name is not waited for. */
int file_stamp_read(const char *path, struct file_stamp *stamp)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return errno;
    int number = fstat(fd, &st) == 0 ? 0 : errno;
    close(fd);
    if (number == 0) *stamp = file_stamp_of(&st);
    return number;
}

bool file_stamp_equal(const struct file_stamp *a, const struct file_stamp *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static bool is_near(int64_t s, int64_t ns, int64_t now_ns, int64_t grain_ns)
{
    int64_t distance = now_ns - (s * NS_PER_S + ns);
    return distance < grain_ns && distance > -grain_ns;
}

bool file_stamp_is_settled(const struct file_stamp *stamp, int64_t now_ns)
{
    int64_t grain = stamp->content_ns == 0 && stamp->inode_ns == 0 ? COARSE_NS : TICK_NS;
    return !is_near(stamp->content_s, stamp->content_ns, now_ns, grain) &&
           !is_near(stamp->inode_s, stamp->inode_ns, now_ns, grain);
}
