/* A folder of slab files: names, opening and locking, reading, removing, quarantine. Writing is in publish.c, scanning
 * in folder_scan.c.
 *
 * A process owns the folder by a file lock, which ends with the process. A damaged file costs its rows and nothing
 * else, so every fault here is reported, and the folder stays in use. */
#include "store/backends/folder_parts.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_QUARANTINED = 8, HEX = 2 * SHA256_BYTES };

#define QUARANTINE  "quarantine"
#define DIGESTS     "digests"
#define DIGESTS_NEW "digests.new"
static const char TEMPORARY[] = ".tmp";
static const char DIGITS[] = "0123456789", MODEL_NAME[] = ".name";

/* ---- Names ---- */

static const char *const extensions[] = {[SLAB_ROWS] = ".rows", [SLAB_STATE] = ".state"};

void folder_file_name(const struct slab_key *key, enum slab_kind kind, char name[FOLDER_NAME_BYTES])
{
    assert(kind == SLAB_ROWS || kind == SLAB_STATE);
    sha256_to_hex(key->v, name);
    snprintf(name + HEX, FOLDER_NAME_BYTES - HEX, "%s", extensions[kind]);
}

void folder_temporary_name(struct folder *folder, const struct slab_key *key, enum slab_kind kind,
                           char name[FOLDER_NAME_BYTES])
{
    folder_file_name(key, kind, name);
    size_t len = strlen(name);
    snprintf(name + len, FOLDER_NAME_BYTES - len, ".%llu%s", (unsigned long long)folder->n_temporary++, TEMPORARY);
}

enum folder_name_type folder_name_type(const char *file, struct slab_name *name)
{
    static const char *const own[] = {QUARANTINE, DIGESTS, DIGESTS_NEW, INDEX_FILE_NAME, INDEX_FILE_NEW};
    char hex[HEX + 1];
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(file, own[i]) == 0) return NAME_OWN;
    if (strlen(file) <= HEX) return NAME_FOREIGN;
    memcpy(hex, file, HEX);
    hex[HEX] = '\0';
    if (!sha256_from_hex(hex, name->key.v)) return NAME_FOREIGN;
    if (strcmp(file + HEX, MODEL_NAME) == 0) return NAME_OWN;
    for (name->kind = SLAB_ROWS; name->kind <= SLAB_STATE; name->kind++) {
        size_t len = strlen(extensions[name->kind]);
        if (strncmp(file + HEX, extensions[name->kind], len) != 0) continue;
        const char *rest = file + HEX + len;
        if (*rest == '\0') return NAME_SLAB;
        size_t digits = rest[0] == '.' ? strspn(rest + 1, DIGITS) : 0;
        if (digits > 0 && strcmp(rest + 1 + digits, TEMPORARY) == 0) return NAME_TEMPORARY;
    }
    return NAME_FOREIGN;
}

/* Names are collected before anything is done with them: a folder must not change while it is listed. */
struct file_names {
    char **v;
    size_t n, cap;
};

static void collect_name(void *ud, const char *name)
{
    struct file_names *names = ud;
    names->v = mem_room(names->v, names->n, &names->cap, sizeof(char *));
    names->v[names->n++] = mem_strdup(name);
}

static void names_release(struct file_names *names)
{
    for (size_t i = 0; i < names->n; i++) free(names->v[i]);
    free(names->v);
}

/* ---- Faults ---- */

static hearth_code code_of_errno(int code)
{
    switch (code) {
    case -ENOENT:
        return HEARTH_NOT_FOUND;
    case -ENOMEM:
        return HEARTH_NO_MEMORY;
    case -ELOOP:   /* a symbolic link */
    case -EINVAL:  /* a folder, a pipe */
    case -EISDIR:  /* the same, opened for writing */
    case -ENXIO:   /* a socket */
    case -ENODATA: /* cut short */
        return HEARTH_INVALID;
    case -ESTALE: /* the file system of the folder is gone */
    case -ENOTCONN:
    case -ENODEV:
    case -ESHUTDOWN:
        return HEARTH_UNAVAILABLE;
    default:
        return HEARTH_IO;
    }
}

int folder_error(const struct folder *folder, const char *name, const char *operation, int code, hearth_error *error)
{
    hearth_code to = code_of_errno(code);
    error_at(error, to, name, "cannot %s %s/%s: %s", operation, folder->path, name, os_error_text(-code));
    return to;
}

/* ---- Opening ---- */

static int open_error(const char *path, int code, hearth_error *error)
{
    if (code == -EWOULDBLOCK)
        return error_at(error, HEARTH_UNAVAILABLE, path,
                        "another process uses the cache folder %s: end it, or give this one a folder of its own", path);
    const char *why = code == -ELOOP     ? "it is a symbolic link"
                      : code == -EPERM   ? "it belongs to another user"
                      : code == -EBADMSG ? "others may write to it (chmod 700 makes it yours alone)"
                                         : os_error_text(-code);
    return error_at(error, HEARTH_IO, path, "cannot open the cache folder %s: %s", path, why);
}

struct folder *folder_open_read_only(struct files *files, const char *path, hearth_error *error)
{
    int fd = files->open_folder(files, path);
    if (fd < 0) {
        open_error(path, fd, error);
        return NULL;
    }
    struct folder *folder = mem_alloc(sizeof *folder);
    *folder = (struct folder){.files = files, .path = mem_strdup(path), .fd = fd, .read_only = true};
    pthread_mutex_init(&folder->quarantine, NULL);
    return folder;
}

/* Unlinks a file of no use, and counts it in `removed`. */
static int remove_counted(struct folder *folder, int fd, const char *name)
{
    struct files *files = folder->files;
    int file = files->open(files, fd, name, FILES_READ);
    int64_t size = file < 0 ? 0 : files->size(files, file);
    if (file >= 0) files->close(files, file);
    int result = files->unlink(files, fd, name);
    if (result < 0) return result;
    folder->removed.files++;
    folder->removed.bytes += size > 0 ? (uint64_t)size : 0;
    return 0;
}

/* Removes temporary files: half a slab is of no use, and its writer has ended. */
static void remove_temporary_files(struct folder *folder)
{
    struct file_names names = {0};
    struct slab_name name;
    int result = folder->files->list(folder->files, folder->fd, collect_name, &names);
    for (size_t i = 0; i < names.n; i++) {
        if (folder_name_type(names.v[i], &name) != NAME_TEMPORARY) continue;
        int unlinked = remove_counted(folder, folder->fd, names.v[i]);
        if (unlinked < 0) result = unlinked;
    }
    names_release(&names);
    if (folder->removed.files > 0)
        log_event(LOG_INFO, "store", "removed half-written files", log_str("path", folder->path),
                  log_int("files", (int64_t)folder->removed.files));
    if (result < 0)
        log_event(LOG_WARN, "store", "could not remove all half-written files", log_str("path", folder->path),
                  log_str("reason", os_error_text(-result)));
}

struct folder *folder_open(struct files *files, const char *path, hearth_error *error)
{
    struct folder *folder = folder_open_read_only(files, path, error);
    if (folder == NULL) return NULL;
    int locked = files->lock(files, folder->fd);
    if (locked < 0) {
        open_error(path, locked, error);
        folder_close(folder);
        return NULL;
    }
    folder->read_only = false;
    remove_temporary_files(folder);
    return folder;
}

bool folder_is_read_only(const struct folder *folder)
{
    return folder->read_only;
}

void folder_close(struct folder *folder)
{
    if (folder == NULL) return;
    index_file_close(folder->index_file);
    folder->files->close(folder->files, folder->fd);
    pthread_mutex_destroy(&folder->quarantine);
    free(folder->path);
    free(folder);
}

/* ---- Reading ---- */

/* Memory is allocated only after the lengths in the header were compared with the size of the file. */
static int read_front(struct folder *folder, struct folder_file *file, const char *name, hearth_error *error)
{
    uint8_t header[SLAB_HEADER_BYTES];
    int64_t size = folder->files->size(folder->files, file->fd);
    int result = size < 0 ? (int)size : files_read_all(folder->files, file->fd, header, sizeof header, 0);
    if (result < 0) return folder_error(folder, name, "read", result, error);
    file->size = (uint64_t)size;
    file->front_size = slab_front_size(header);
    if (slab_is_newer(header))
        return error_at(error, HEARTH_UNSUPPORTED, name, "%s/%s was written by a newer version of hearth", folder->path,
                        name);
    if (file->front_size == 0 || file->front_size > file->size)
        return error_at(error, HEARTH_INVALID, name, "%s/%s is not a slab, or a damaged one", folder->path, name);
    file->front = malloc(file->front_size);
    if (file->front == NULL) return folder_error(folder, name, "read", -ENOMEM, error);
    result = files_read_all(folder->files, file->fd, file->front, file->front_size, 0);
    return result < 0 ? folder_error(folder, name, "read", result, error) : 0;
}

int folder_file_open(struct folder *folder, const struct slab_key *key, enum slab_kind kind, struct folder_file *file,
                     hearth_error *error)
{
    char name[FOLDER_NAME_BYTES];
    folder_file_name(key, kind, name);
    *file = (struct folder_file){.fd = folder->files->open(folder->files, folder->fd, name, FILES_READ)};
    if (file->fd < 0) return folder_error(folder, name, "open", file->fd, error);
    int result = read_front(folder, file, name, error);
    if (result == 0) {
        result = slab_decode(file->front, file->front_size, file->size, &file->head, error);
        if (result < 0)
            error_prefix(error, "%s/%s: ", folder->path, name);
        else if (file->head.kind != kind || !slab_key_equal(&file->head.key, key))
            result = error_at(error, HEARTH_INVALID, name, "%s/%s holds another slab than its name says", folder->path,
                              name);
    }
    if (result < 0) folder_file_close(folder, file);
    return result;
}

void folder_file_close(struct folder *folder, struct folder_file *file)
{
    folder->files->close(folder->files, file->fd);
    slab_head_release(&file->head);
    free(file->front);
}

int folder_file_read(struct folder *folder, struct folder_file *file, struct slab *slab, hearth_error *error)
{
    char name[FOLDER_NAME_BYTES];
    folder_file_name(&file->head.key, file->head.kind, name);
    size_t front = file->front_size, payload = (size_t)file->head.payload_size;
    size_t size = front + payload + SLAB_TRAILER_BYTES; /* that of the file: slab_decode() checked it */
    uint8_t *bytes = malloc(size);
    if (bytes == NULL) return folder_error(folder, name, "read", -ENOMEM, error);
    memcpy(bytes, file->front, front);
    int result = files_read_all(folder->files, file->fd, bytes + front, size - front, front);
    if (result < 0) {
        result = folder_error(folder, name, "read", result, error);
    } else {
        result = slab_check(&file->head, bytes, front, bytes + front, bytes + front + payload, error);
        if (result < 0) {
            char text[64];
            const char *region = slab_damaged_region(&file->head, bytes + front, text);
            if (region != NULL)
                error_at(error, HEARTH_INVALID, name, "%s/%s: damaged: %s", folder->path, name, region);
            else
                error_prefix(error, "%s/%s: ", folder->path, name);
        }
    }
    if (result < 0) {
        free(bytes);
        return result;
    }
    *slab = (struct slab){.head = file->head, .bytes = slab_bytes_open(bytes, size), .payload = bytes + front};
    file->head = (struct slab_head){0};
    return 0;
}

int folder_read(struct folder *folder, const struct slab_key *key, enum slab_kind kind, struct slab *slab,
                hearth_error *error)
{
    struct folder_file file;
    int result = folder_file_open(folder, key, kind, &file, error);
    if (result != 0) return result;
    result = folder_file_read(folder, &file, slab, error);
    folder_file_close(folder, &file);
    return result;
}

/* ---- Using, removing ---- */

bool folder_has(struct folder *folder, const struct slab_key *key, enum slab_kind kind)
{
    char name[FOLDER_NAME_BYTES];
    folder_file_name(key, kind, name);
    int fd = folder->files->open(folder->files, folder->fd, name, FILES_READ);
    if (fd >= 0) folder->files->close(folder->files, fd);
    return fd != -ENOENT;
}

/* A failure costs only the LRU order after a restart, so it is not reported. */
void folder_note_use(struct folder *folder, const struct slab_key *key, enum slab_kind kind, uint32_t hits,
                     int64_t used_ms)
{
    assert(!folder->read_only);
    char name[FOLDER_NAME_BYTES];
    uint8_t bytes[SLAB_USE_BYTES];
    folder_file_name(key, kind, name);
    int fd = folder->files->open(folder->files, folder->fd, name, FILES_WRITE);
    if (fd < 0) return;
    slab_encode_use(hits, used_ms, bytes);
    files_write_all(folder->files, fd, bytes, sizeof bytes, SLAB_USE_OFFSET);
    folder->files->close(folder->files, fd);
    if (folder->index_file != NULL)
        index_file_note_use(folder->index_file, &(struct slab_name){*key, kind}, hits, used_ms);
}

/* Not synced: a file that a loss of power brings back is whole, and within the budget or evicted at the next start. */
int folder_remove(struct folder *folder, const struct slab_key *key, enum slab_kind kind, hearth_error *error)
{
    assert(!folder->read_only);
    char name[FOLDER_NAME_BYTES];
    folder_file_name(key, kind, name);
    int result = folder->files->unlink(folder->files, folder->fd, name);
    if (result < 0 && result != -ENOENT) return folder_error(folder, name, "remove", result, error);
    if (folder->index_file != NULL) index_file_remove(folder->index_file, &(struct slab_name){*key, kind});
    return 0;
}

/* ---- Names of models ---- */

static void file_of_model(const uint8_t model[SHA256_BYTES], char file[FOLDER_NAME_BYTES])
{
    sha256_to_hex(model, file);
    snprintf(file + HEX, FOLDER_NAME_BYTES - HEX, "%s", MODEL_NAME);
}

bool folder_model_name(struct folder *folder, const uint8_t model[SHA256_BYTES], char *name, size_t size)
{
    char file[FOLDER_NAME_BYTES];
    struct files *files = folder->files;
    file_of_model(model, file);
    int fd = files->open(files, folder->fd, file, FILES_READ);
    if (fd < 0) return false;
    int64_t len = files->size(files, fd);
    bool read = len > 0 && (uint64_t)len < size && files_read_all(files, fd, name, (size_t)len, 0) == 0;
    if (read) name[len] = '\0';
    files->close(files, fd);
    return read;
}

/* Neither synced nor written to a temporary file first: only lists of models use it. */
void folder_name_model(struct folder *folder, const uint8_t model[SHA256_BYTES], const char *name)
{
    assert(!folder->read_only && name != NULL);
    char file[FOLDER_NAME_BYTES], before[256];
    struct files *files = folder->files;
    if (folder_model_name(folder, model, before, sizeof before) && strcmp(before, name) == 0) return;
    file_of_model(model, file);
    files->unlink(files, folder->fd, file);
    int fd = files->open(files, folder->fd, file, FILES_CREATE);
    if (fd < 0) return;
    files_write_all(files, fd, name, strlen(name), 0);
    files->close(files, fd);
}

void folder_prune_models(struct folder *folder, bool (*is_there)(void *ud, const uint8_t model[SHA256_BYTES]), void *ud)
{
    assert(!folder->read_only);
    struct file_names names = {0};
    struct slab_name model;
    folder->files->list(folder->files, folder->fd, collect_name, &names);
    for (size_t i = 0; i < names.n; i++) {
        bool is_name = strlen(names.v[i]) > HEX && strcmp(names.v[i] + HEX, MODEL_NAME) == 0;
        if (is_name && folder_name_type(names.v[i], &model) == NAME_OWN && !is_there(ud, model.key.v))
            folder->files->unlink(folder->files, folder->fd, names.v[i]);
    }
    names_release(&names);
}

/* ---- Known digests ---- */

int folder_read_digests(struct folder *folder, struct buf *out, hearth_error *error)
{
    struct files *files = folder->files;
    int fd = files->open(files, folder->fd, DIGESTS, FILES_READ);
    int64_t size = fd < 0 ? fd : files->size(files, fd);
    int result = size < 0 ? (int)size : size > FOLDER_DIGESTS_BYTES ? -EFBIG : 0;
    if (result == 0) {
        char *bytes = mem_alloc((size_t)size + 1);
        result = files_read_all(files, fd, bytes, (size_t)size, 0);
        if (result == 0) buf_append(out, bytes, (size_t)size);
        free(bytes);
    }
    if (fd >= 0) files->close(files, fd);
    return result < 0 ? folder_error(folder, DIGESTS, "read", result, error) : 0;
}

int folder_write_digests(struct folder *folder, const struct buf *digests, hearth_error *error)
{
    assert(!folder->read_only && digests->len <= FOLDER_DIGESTS_BYTES);
    struct files *files = folder->files;
    files->unlink(files, folder->fd, DIGESTS_NEW); /* of a process that ended in between */
    int fd = files->open(files, folder->fd, DIGESTS_NEW, FILES_CREATE), result = fd;
    if (fd >= 0) {
        result = files_write_all(files, fd, digests->v, digests->len, 0);
        int closed = files->close(files, fd);
        if (result == 0) result = closed;
    }
    if (result == 0) result = files->rename(files, folder->fd, DIGESTS_NEW, folder->fd, DIGESTS);
    if (result == 0) return 0;
    files->unlink(files, folder->fd, DIGESTS_NEW);
    return folder_error(folder, DIGESTS, "write", result, error);
}

/* ---- Quarantine ---- */

/* Names in the quarantine are "<number>-<name>": the numbers give the order, whatever the clock says. */
static unsigned long long number_of(const char *name)
{
    return strspn(name, DIGITS) > 0 ? strtoull(name, NULL, 10) : 0;
}

static int by_number(const void *a, const void *b)
{
    unsigned long long x = number_of(*(char *const *)a), y = number_of(*(char *const *)b);
    return (x > y) - (x < y);
}

/* Removes all but the newest `most` files, and returns the next number. */
static unsigned long long trim_quarantine(struct folder *folder, int fd, size_t most)
{
    struct file_names names = {0};
    folder->files->list(folder->files, fd, collect_name, &names);
    if (names.n > 0) qsort(names.v, names.n, sizeof names.v[0], by_number);
    for (size_t i = 0; i + most < names.n; i++) remove_counted(folder, fd, names.v[i]);
    unsigned long long next = names.n > 0 ? number_of(names.v[names.n - 1]) + 1 : 1;
    names_release(&names);
    return next;
}

static int open_quarantine(struct folder *folder)
{
    char *path = mem_format("%s/%s", folder->path, QUARANTINE);
    int fd = folder->files->open_folder(folder->files, path);
    free(path);
    return fd;
}

/* A file that cannot be moved is removed: no scan may find it again. */
void folder_quarantine(struct folder *folder, const struct slab_key *key, enum slab_kind kind)
{
    assert(!folder->read_only);
    struct files *files = folder->files;
    char name[FOLDER_NAME_BYTES], to[FOLDER_NAME_BYTES + 24];
    folder_file_name(key, kind, name);
    int fd = open_quarantine(folder), result = fd;
    if (fd >= 0) {
        pthread_mutex_lock(&folder->quarantine);
        snprintf(to, sizeof to, "%llu-%s", trim_quarantine(folder, fd, MOST_QUARANTINED - 1), name);
        result = files->rename(files, folder->fd, name, fd, to);
        pthread_mutex_unlock(&folder->quarantine);
        files->close(files, fd);
    }
    if (result == -ENOENT) return;
    if (result < 0) result = files->unlink(files, folder->fd, name);
    log_event(LOG_WARN, "store", "set a damaged file aside", log_str("path", folder->path), log_str("file", name),
              log_bool("done", result == 0));
}

void folder_tidy(struct folder *folder, struct folder_removed *removed)
{
    assert(!folder->read_only);
    int fd = open_quarantine(folder);
    pthread_mutex_lock(&folder->quarantine);
    if (fd >= 0) trim_quarantine(folder, fd, 0);
    *removed = folder->removed;
    pthread_mutex_unlock(&folder->quarantine);
    if (fd >= 0) folder->files->close(folder->files, fd);
}
