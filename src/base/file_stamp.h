/* A file's stamp shows that it is still the same file. A program that writes to a file, puts another one in its place,
 * cuts it, or gives it back its former size and time, changes some of the stamp. No program can set the time of the
 * last change of the inode. No state; any thread. */
#ifndef BASE_FILE_STAMP_H
#define BASE_FILE_STAMP_H

#include <stdbool.h>
#include <stdint.h>

struct stat;

/* Seconds since 1970 and nanoseconds: when the content was last changed, and when the inode was. No padding: it may be
 * hashed and compared as bytes. */
struct file_stamp {
    int64_t device, inode, size;
    int64_t content_s, content_ns;
    int64_t inode_s, inode_ns;
};

struct file_stamp file_stamp_of(const struct stat *st);

/* Opens the file, since a network file system asks its server then; so it may wait for a disk or a network. 0, or an
 * errno. */
int file_stamp_read(const char *path, struct file_stamp *stamp);

bool file_stamp_equal(const struct file_stamp *a, const struct file_stamp *b);

/* Whether a change from now on (nanoseconds since 1970) gives the file another stamp. It does not while the clock of
 * its file system may still show the time of the last change. */
bool file_stamp_is_settled(const struct file_stamp *stamp, int64_t now_ns);

#endif
