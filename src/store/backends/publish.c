/* Publishing a slab in a folder: whole and durable, or not at all. On the saver thread.
 *
 *     create temporary, write, sync it | link it to its name, unlink the temporary | sync the folder | read back
 *
 * The data is on the medium before a name leads to it, so after a loss of power no name leads to half a slab. The name
 * is on the medium before the slab is published, so a published slab is found again. A link, unlike a rename, fails
 * where the name is taken. It may be that of the slab which a process that ended early had published. */
#include "store/backends/folder_parts.h"

#include "base/error.h"
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

struct publication {
    struct folder *folder;
    struct slab_head *head;
    const uint8_t *payload;
    struct buf front;
    uint8_t trailer[SLAB_TRAILER_BYTES];
    char name[FOLDER_NAME_BYTES], temporary[FOLDER_NAME_BYTES];
    const char *operation; /* what is being done, for the error message */
    bool is_unwritten;     /* no temporary file could be created */
    bool is_adopted;       /* a file that had the name holds the same slab, and is kept */
    bool may_be_good;      /* the file that had the name is not proved to be damaged or another slab */
    bool is_newers;        /* the name is that of a slab of a newer version */
};

/* ---- Writing ---- */

/* After a failed sync nobody knows which bytes are on the medium, and a second sync may succeed without writing them:
 * so the file is given up. */
static int write_temporary(struct publication *p)
{
    struct files *files = p->folder->files;
    uint64_t after_front = p->front.len, after_payload = after_front + p->head->payload_size;
    p->operation = "write";
    int fd = files->open(files, p->folder->fd, p->temporary, FILES_CREATE);
    p->is_unwritten = fd < 0;
    if (fd < 0) return fd;
    int result = files_write_all(files, fd, p->front.v, p->front.len, 0);
    if (result == 0) result = files_write_all(files, fd, p->payload, (size_t)p->head->payload_size, after_front);
    if (result == 0) result = files_write_all(files, fd, p->trailer, sizeof p->trailer, after_payload);
    if (result == 0) result = files->sync(files, fd);
    int closed = files->close(files, fd); /* some file systems report a lack of space only here */
    return result < 0 ? result : closed;
}

/* ---- Where the name is taken ---- */

/* Keeps a file that holds the same slab, and syncs it, since the process that wrote it may have ended before it was
 * durable. 0: adopted; HEARTH_INVALID: it is damaged or another slab. */
static int adopt_existing(struct publication *p, struct folder_file *file)
{
    struct files *files = p->folder->files;
    const struct slab_head *want = p->head, *is = &file->head;
    struct slab slab;
    bool same = is->start == want->start && is->end == want->end && file->size == slab_size(want) &&
                memcmp(&is->parent, &want->parent, sizeof is->parent) == 0;
    if (!same) return HEARTH_INVALID;
    if (files->sync(files, file->fd) < 0) return HEARTH_IO;
    int result = folder_file_read(p->folder, file, &slab, NULL);
    if (result == 0) slab_release(&slab);
    return result;
}

/* The name is taken. 0 or -errno. */
static int replace_or_adopt(struct publication *p)
{
    struct files *files = p->folder->files;
    struct folder_file file;
    int found = folder_file_open(p->folder, &p->head->key, p->head->kind, &file, NULL); /* a hearth_code */
    p->is_newers = found == HEARTH_UNSUPPORTED;
    if (p->is_newers) return -EEXIST;
    if (found == HEARTH_OK) {
        found = adopt_existing(p, &file);
        folder_file_close(p->folder, &file);
    }
    p->may_be_good = found != HEARTH_INVALID && found != HEARTH_NOT_FOUND;
    p->is_adopted = found == HEARTH_OK;
    if (p->is_adopted) return 0;
    log_event(LOG_WARN, "store", "replacing a file that cannot be used", log_str("path", p->folder->path),
              log_str("file", p->name));
    /* The index file must not describe the former slab, should the process end just after the rename. */
    const struct slab_name name = {p->head->key, p->head->kind};
    if (p->folder->index_file != NULL) index_file_remove(p->folder->index_file, &name);
    return files->rename(files, p->folder->fd, p->temporary, p->folder->fd, p->name);
}

/* ---- Publishing ---- */

/* 0 or -errno. A temporary file that cannot be removed here is removed by the next start. */
static int link_name(struct publication *p)
{
    struct files *files = p->folder->files;
    p->operation = "publish";
    int result = files->link(files, p->folder->fd, p->temporary, p->name);
    /* For file systems without links (FAT, many network shares): since nobody else writes to the folder, checking the
     * name and then renaming is as good. */
    if (result == -EPERM || result == -EOPNOTSUPP || result == -ENOSYS || result == -EMLINK) {
        int there = files->open(files, p->folder->fd, p->name, FILES_READ);
        if (there >= 0) files->close(files, there);
        result = there != -ENOENT ? -EEXIST : files->rename(files, p->folder->fd, p->temporary, p->folder->fd, p->name);
    }
    if (result == -EEXIST) result = replace_or_adopt(p);
    files->unlink(files, p->folder->fd, p->temporary);
    return result;
}

/* Front and trailer are enough: the payload was written in between, and its CRC is checked when it is used. */
static int read_back(struct publication *p)
{
    struct files *files = p->folder->files;
    struct buf front = {0};
    uint8_t trailer[SLAB_TRAILER_BYTES];
    p->operation = "read back";
    int fd = files->open(files, p->folder->fd, p->name, FILES_READ);
    if (fd < 0) return fd;
    buf_append(&front, p->front.v, p->front.len);
    bool whole =
        files->size(files, fd) == (int64_t)slab_size(p->head) && files_read_all(files, fd, front.v, front.len, 0) == 0;
    /* Hits and time of last use may differ: a fetcher that used the former slab of that name writes them into this
     * file. */
    memcpy(front.v + SLAB_USE_OFFSET, p->front.v + SLAB_USE_OFFSET, SLAB_USE_BYTES);
    whole = whole && memcmp(front.v, p->front.v, front.len) == 0 &&
            files_read_all(files, fd, trailer, sizeof trailer, p->front.len + p->head->payload_size) == 0 &&
            memcmp(trailer, p->trailer, sizeof trailer) == 0;
    buf_release(&front);
    files->close(files, fd);
    return whole ? 0 : -EIO;
}

/* A name that a loss of power might take is removed again, since the caller counts the slab as not stored. Not where
 * the file that had the name before may have been good, and unreadable just then: the one that has it now is as good.
 */
static int make_durable(struct publication *p)
{
    struct files *files = p->folder->files;
    p->operation = "sync";
    int result = files->sync(files, p->folder->fd);
    if (result == 0 && !p->is_adopted) result = read_back(p);
    if (result < 0 && !p->may_be_good) files->unlink(files, p->folder->fd, p->name);
    return result;
}

int folder_publish(struct folder *folder, struct slab_head *head, const void *payload, hearth_error *error)
{
    assert(!folder->read_only);
    struct publication p = {.folder = folder, .head = head, .payload = payload};
    folder_file_name(&head->key, head->kind, p.name);
    folder_temporary_name(folder, &head->key, head->kind, p.temporary);
    slab_encode(head, payload, &p.front, p.trailer);
    int result = write_temporary(&p);
    if (result < 0)
        folder->files->unlink(folder->files, folder->fd, p.temporary);
    else
        result = link_name(&p);
    if (result == 0) result = make_durable(&p);
    buf_release(&p.front);
    if (result == 0 && folder->index_file != NULL) index_file_put(folder->index_file, head, slab_size(head));
    if (result == 0) return HEARTH_OK;
    if (p.is_newers)
        return error_at(error, HEARTH_UNSUPPORTED, p.name, "%s/%s was written by a newer version of hearth",
                        folder->path, p.name);
    /* Creating a file gives ENOENT only where the folder is gone. */
    bool gone = folder_error(folder, p.name, p.operation, result, error) == HEARTH_UNAVAILABLE;
    hearth_code code = gone || (result == -ENOENT && p.is_unwritten) ? HEARTH_UNAVAILABLE : HEARTH_IO;
    if (error != NULL) error->code = code;
    return (int)code;
}
