/* Small files of the models folder: see text_files.h. */
#include "pull/text_files.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_MOST (4 << 20) /* bytes */

int pull_make_folders(const char *path)
{
    char *copy = mem_strdup(path);
    int rc = 0;
    for (char *slash = strchr(copy + 1, '/'); slash != NULL && rc == 0; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        rc = mkdir(copy, 0755) == 0 || errno == EEXIST ? 0 : -1;
        *slash = '/';
    }
    if (rc == 0) rc = mkdir(copy, 0755) == 0 || errno == EEXIST ? 0 : -1;
    free(copy);
    return rc;
}

bool pull_read_text(int folder, const char *name, struct buf *text)
{
    char block[1 << 14];
    ssize_t n = 0;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    while (text->len <= TEXT_MOST && (n = read(fd, block, sizeof block)) > 0) buf_append(text, block, (size_t)n);
    int fault = n < 0 ? errno : text->len > TEXT_MOST ? EFBIG : 0;
    close(fd);
    errno = fault;
    return fault == 0;
}

bool pull_write_text(int folder, const char *name, const char *text)
{
    size_t len = strlen(text), done = 0;
    ssize_t n = 0;
    if (len > TEXT_MOST) {
        errno = EFBIG;
        return false;
    }
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) return false;
    while (done < len && ((n = write(fd, text + done, len - done)) > 0 || (n < 0 && errno == EINTR)))
        done += n > 0 ? (size_t)n : 0;
    bool good = done == len && fsync(fd) == 0;
    int fault = errno;
    close(fd);
    errno = fault;
    return good;
}
