/* The system calls that the store makes, as a table of functions: the machine's own, or a test's that counts calls,
 * fails them, or loses what was not synced.
 *
 * Every call returns 0 or more, or a negative errno. Names are of files in an open folder, never paths, and symbolic
 * links are not followed. All functions may be called from any thread. */
#ifndef BASE_FILES_H
#define BASE_FILES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The purpose of opening a file. */
enum files_mode {
    FILES_READ,
    FILES_WRITE, /* in place: the bytes of a header that change */
    FILES_CREATE /* fails if it exists; mode 0600 */
};

struct files {
    /* Opens a folder. It and missing parents are created with mode 0700. A symbolic link is refused (ELOOP), and so are
     * a folder of another user (EPERM) and one that others may write to (EBADMSG). */
    int (*open_folder)(struct files *files, const char *path);
    int (*open)(struct files *files, int folder, const char *name, enum files_mode mode);
    int (*close)(struct files *files, int fd);
    ssize_t (*read_at)(struct files *files, int fd, void *bytes, size_t size, uint64_t offset); /* may read less */
    ssize_t (*write_at)(struct files *files, int fd, const void *bytes, size_t size, uint64_t offset); /* the same */
    int64_t (*size)(struct files *files, int fd); /* -EINVAL: not a regular file */
    int (*sync)(struct files *files, int fd);     /* the data (and size) of a file, or the names in a folder */
    int (*link)(struct files *files, int folder, const char *from,
                const char *to); /* -EEXIST: `to` exists, nothing changed */
    int (*rename)(struct files *files, int folder, const char *from, int to_folder, const char *to); /* replaces */
    int (*unlink)(struct files *files, int folder, const char *name);
    /* Calls `each` with the name of everything in the folder but "." and "..", in no particular order. */
    int (*list)(struct files *files, int folder, void (*each)(void *ud, const char *name), void *ud);
    /* Locks the folder for this process until it is closed. -EWOULDBLOCK: another living process has the lock. */
    int (*lock)(struct files *files, int folder);
};

/* The machine's own calls; shared, never freed. */
struct files *files_machine(void);

/* Reads or writes all of the bytes. 0, or a negative errno; -ENODATA: the file ends before them. */
int files_read_all(struct files *files, int fd, void *bytes, size_t size, uint64_t offset);
int files_write_all(struct files *files, int fd, const void *bytes, size_t size, uint64_t offset);

#endif
