/* Notices that files have changed since the watch was opened. They are a model's, which are mapped while it is loaded:
 * a program that writes to them changes the results.
 *
 * Looking at a file may wait for a disk or a network, so a thread of the watch does it. A thread that asks waits for it
 * no longer than the watch's patience, and not at all while a look takes longer than that. If file_watch_check()
 * answers FILES_SAME, all results from before the call were computed from the files as they were at first. Each look
 * begins after the call, and a change cannot be undone. */
#ifndef BASE_FILE_WATCH_H
#define BASE_FILE_WATCH_H

#include "hearth.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Stamps ----
 * A file's stamp shows that it is still the same file. A program that writes to a file, puts another one in its place,
 * cuts it, or gives it back its former size and time, changes some of the stamp. No program can set the time of the
 * last change of the inode. */

struct stat;

/* Seconds since 1970 and nanoseconds: when the content was last changed, and when the inode was. No padding: it may be
 * hashed and compared as bytes. */
struct file_stamp {
    int64_t device, inode, size;
    int64_t content_s, content_ns;
    int64_t inode_s, inode_ns;
};

struct file_stamp file_stamp_of(const struct stat *st);

/* ---- Watches ---- */

struct file_watch;

struct file_watch_params {
    const char *const *paths; /* copied */
    size_t n;
    int64_t patience_ns;
    int (*read)(const char *path, struct file_stamp *stamp); /* 0, or an errno. NULL: from the file */
    /* Once, when a file was found changed: why, in a line. On the watch's thread, before any check answers so; it must
     * not call the watch, nor wait. NULL: no report. */
    void (*report)(void *ud, const char *reason);
    void *ud;
};

/* Looks at the files, which the caller's thread waits for, up to three seconds longer where they have just been changed
 * until another change would show. A file that cannot be read counts as changed once it can be. NULL: no thread can be
 * had. */
struct file_watch *file_watch_open(const struct file_watch_params *params, hearth_error *error);

/* report() is not called any more. A look that hangs is not waited for. NULL is fine. */
void file_watch_close(struct file_watch *watch);

enum file_state {
    FILES_SAME,
    FILES_CHANGED, /* some time since the watch was opened: it stays so */
    FILES_UNKNOWN  /* it cannot be told now */
};

/* Looks again. Any thread that may wait so long; not the engine's or the HTTP thread. NULL: FILES_SAME. */
enum file_state file_watch_check(struct file_watch *watch);

/* How often looks have found a file changed since the look before; or so lately changed that another change might not
 * be seen. Results computed from the files at one such count must not be mixed with those at another. Any thread; waits
 * for nothing. */
uint64_t file_watch_changes(const struct file_watch *watch);

#endif
