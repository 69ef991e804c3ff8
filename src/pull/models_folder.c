/* The models folder: see models_folder.h. A manifest is a file that somebody may have edited. Names in it that could
 * not be pulled make it unreadable, so that nothing outside the folder is served or removed by it. */
#include "pull/models_folder.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"
#include "pull/listing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Small files ---- */

#define TEXT_MOST (4 << 20) /* bytes */

int pull_make_folders(const char *path, mode_t mode)
{
    char *copy = mem_strdup(path);
    int rc = 0;
    for (char *slash = strchr(copy + 1, '/'); slash != NULL && rc == 0; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        rc = mkdir(copy, mode) == 0 || errno == EEXIST ? 0 : -1;
        *slash = '/';
    }
    if (rc == 0) rc = mkdir(copy, mode) == 0 || errno == EEXIST ? 0 : -1;
    free(copy);
    return rc;
}

/* Appends the whole text of a file. False with errno: it cannot be read; EFBIG: it is too large for one. */
static bool read_text(int folder, const char *name, struct buf *text)
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

/* Writes a file; it is whole on the disk where this is true. EFBIG: the text is too large to be read again. */
static bool write_text(int folder, const char *name, const char *text)
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

#define PREPARED_MANIFEST PULL_MANIFEST ".part"
#define LOCK_TRIES        100 /* a lock that is removed while it is awaited is looked for anew */

/* ---- Models ---- */

void pull_model_release(struct pull_model *model)
{
    for (size_t i = 0; i < model->n_files; i++) {
        free(model->files[i].name);
        free(model->files[i].etag);
    }
    free(model->files);
    free(model->name);
    free(model->reference);
    free(model->path);
    *model = (struct pull_model){0};
}

void pull_model_add_file(struct pull_model *model, const struct pull_stored *file)
{
    model->files = mem_grow(model->files, model->n_files + 1, sizeof *model->files);
    model->files[model->n_files++] = *file;
}

int64_t pull_model_bytes(const struct pull_model *model)
{
    int64_t sum = 0;
    for (size_t i = 0; i < model->n_files; i++) sum += model->files[i].size;
    return sum;
}

/* ---- Paths ---- */

char *pull_user_path(const char *variable, const char *default_folder, const char *name)
{
    const char *base = getenv(variable), *home = getenv("HOME");
    if (base != NULL && base[0] == '/') return mem_format("%s/hearth%s", base, name);
    return home != NULL && home[0] == '/' ? mem_format("%s/%s/hearth%s", home, default_folder, name) : NULL;
}

char *pull_folder_path(const char *configured)
{
    const char *own = getenv("HEARTH_MODELS");
    if (configured != NULL) return mem_strdup(configured);
    return own != NULL && own[0] != '\0' ? mem_strdup(own) : pull_user_path("XDG_DATA_HOME", ".local/share", "/models");
}

char *pull_file_path(const char *folder, const char *model, const char *file)
{
    return mem_format("%s/%s/%s", folder, model, file);
}

/* ---- Manifests ---- */

static bool read_model(const json_t *root, struct pull_model *model)
{
    const char *reference = json_string_value(json_object_get(root, "reference"));
    json_t *files = json_object_get(root, "files"), *value;
    size_t i;
    if (reference == NULL) return false;
    model->reference = mem_strdup(reference);
    model->path = mem_strdup(json_string_value(json_object_get(root, "path")));
    model->pulled_ms = json_integer_value(json_object_get(root, "pulled_ms"));
    json_array_foreach(files, i, value)
    {
        const char *name = json_string_value(json_object_get(value, "name"));
        const char *sha = json_string_value(json_object_get(value, "sha256"));
        const char *etag = json_string_value(json_object_get(value, "etag"));
        json_t *size = json_object_get(value, "size");
        uint8_t digest[SHA256_BYTES];
        if (name == NULL || pull_check_file_name(name, NULL) != HEARTH_OK) return false;
        if (sha == NULL || !sha256_from_hex(sha, digest) || !json_is_integer(size)) return false;
        struct pull_stored file = {
            .name = mem_strdup(name), .size = json_integer_value(size), .etag = mem_strdup(etag)};
        memcpy(file.sha, sha, sizeof file.sha);
        file.is_projector = json_is_true(json_object_get(value, "projector"));
        pull_model_add_file(model, &file);
    }
    return model->n_files > 0 && !model->files[0].is_projector;
}

static int read_manifest(int folder, const char *file, const char *name, struct pull_model *model, hearth_error *error)
{
    struct buf text = {0};
    *model = (struct pull_model){0};
    if (!read_text(folder, file, &text)) {
        int fault = errno;
        buf_release(&text);
        if (fault == ENOENT)
            error_set(error, HEARTH_NOT_FOUND, "model '%s' was not pulled", name);
        else
            error_set(error, HEARTH_IO, "cannot read the manifest of %s: %s", name, strerror(fault));
        return fault == ENOENT ? HEARTH_NOT_FOUND : HEARTH_IO;
    }
    json_t *root = json_loadb(buf_text(&text), text.len, 0, NULL);
    bool good = read_model(root, model);
    json_decref(root);
    buf_release(&text);
    if (good) {
        model->name = mem_strdup(name);
        return HEARTH_OK;
    }
    pull_model_release(model);
    error_set(error, HEARTH_IO, "the manifest of %s is damaged: pull it again", name);
    return HEARTH_IO;
}

int pull_place_read(const struct pull_place *place, const char *name, bool prepared, struct pull_model *model,
                    hearth_error *error)
{
    return read_manifest(place->fd, prepared ? PREPARED_MANIFEST : PULL_MANIFEST, name, model, error);
}

int pull_place_unlist(const struct pull_place *place, hearth_error *error)
{
    if ((unlinkat(place->fd, PULL_MANIFEST, 0) == 0 || errno == ENOENT) && fsync(place->fd) == 0) return HEARTH_OK;
    return error_set(error, HEARTH_IO, "cannot remove %s/" PULL_MANIFEST ": %s", place->path, strerror(errno));
}

static int not_written(const struct pull_place *place, int fault, hearth_error *error)
{
    return error_set(error, HEARTH_IO, "cannot write %s/" PULL_MANIFEST ": %s", place->path, strerror(fault));
}

int pull_place_prepare(const struct pull_place *place, const struct pull_model *model, hearth_error *error)
{
    json_t *files = json_array();
    for (size_t i = 0; i < model->n_files; i++) {
        const struct pull_stored *file = &model->files[i];
        json_t *value =
            json_pack("{s:s, s:I, s:s}", "name", file->name, "size", (json_int_t)file->size, "sha256", file->sha);
        if (file->etag != NULL) json_object_set_new(value, "etag", json_string(file->etag));
        if (file->is_projector) json_object_set_new(value, "projector", json_true());
        json_array_append_new(files, value);
    }
    json_t *root = json_pack("{s:s, s:s*, s:I, s:o}", "reference", model->reference, "path", model->path, "pulled_ms",
                             (json_int_t)model->pulled_ms, "files", files);
    char *text = json_dumps(root, JSON_INDENT(2));
    bool good = write_text(place->fd, PREPARED_MANIFEST, text);
    int fault = errno;
    free(text);
    json_decref(root);
    return good ? HEARTH_OK : not_written(place, fault, error);
}

int pull_place_list(const struct pull_place *place, hearth_error *error)
{
    bool good = renameat(place->fd, PREPARED_MANIFEST, place->fd, PULL_MANIFEST) == 0 && fsync(place->fd) == 0;
    return good ? HEARTH_OK : not_written(place, errno, error);
}

/* ---- The lock ---- */

/* Opens the folder and locks it; false with errno, EWOULDBLOCK where another process has the lock. */
static bool lock_place(struct pull_place *place)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (mkdir(place->path, 0755) != 0 && errno != EEXIST) return false;
        place->fd = open(place->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (place->fd < 0 && errno == ENOENT) continue;
        if (place->fd < 0) return false;
        place->lock = openat(place->fd, PULL_LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0644);
        if (place->lock < 0 && errno != ENOENT) return false; /* ENOENT: the folder was just removed */
        if (place->lock >= 0 && flock(place->lock, LOCK_EX | LOCK_NB) != 0) return false;
        /* A removal may have taken the file meanwhile, and then another process locks another one of that name. */
        struct stat own, named;
        if (place->lock >= 0 && fstat(place->lock, &own) == 0 &&
            fstatat(place->fd, PULL_LOCK, &named, AT_SYMLINK_NOFOLLOW) == 0 && own.st_dev == named.st_dev &&
            own.st_ino == named.st_ino)
            return true;
        pull_place_close(&(struct pull_place){.fd = place->fd, .lock = place->lock});
        place->fd = place->lock = -1;
    }
    errno = EWOULDBLOCK;
    return false;
}

int pull_place_open(const char *folder, const char *name, struct pull_place *place, hearth_error *error)
{
    *place = (struct pull_place){.fd = -1, .lock = -1};
    if (pull_make_folders(folder, 0755) != 0)
        return error_set(error, HEARTH_IO, "cannot create the models folder %s: %s", folder, strerror(errno));
    place->path = mem_format("%s/%s", folder, name);
    if (lock_place(place)) return HEARTH_OK;
    int fault = errno;
    if (fault == EWOULDBLOCK)
        error_set(error, HEARTH_BUSY, "model '%s' is being pulled or removed by another process: wait for that", name);
    else
        error_set(error, HEARTH_IO, "cannot use %s: %s", place->path, strerror(fault));
    pull_place_close(place);
    return fault == EWOULDBLOCK ? HEARTH_BUSY : HEARTH_IO;
}

void pull_place_close(struct pull_place *place)
{
    if (place->lock >= 0) close(place->lock);
    if (place->fd >= 0) close(place->fd);
    free(place->path);
    *place = (struct pull_place){.fd = -1, .lock = -1};
}

void pull_place_abandon(struct pull_place *place)
{
    if (place->lock >= 0) unlinkat(place->fd, PULL_LOCK, 0);
    if (place->lock >= 0) rmdir(place->path); /* not where something is in it */
    pull_place_close(place);
}

/* ---- All models ---- */

/* Why the files of a model are not what its manifest says; NULL: they are. */
static const char *find_fault(int folder, const struct pull_model *model)
{
    for (size_t i = 0; i < model->n_files; i++) {
        struct stat is;
        if (fstatat(folder, model->files[i].name, &is, 0) != 0 || !S_ISREG(is.st_mode))
            return "a file of it is missing";
        if (is.st_size != model->files[i].size) return "a file of it has another size than it was pulled with";
    }
    return NULL;
}

int pull_folder_list(const char *folder, const struct pull_visitor *visitor, hearth_error *error)
{
    struct dirent **names = NULL;
    int n = scandir(folder, &names, NULL, alphasort);
    if (n < 0 && errno == ENOENT) return HEARTH_OK;
    if (n < 0) return error_set(error, HEARTH_IO, "cannot read the models folder %s: %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;
        char *path = mem_format("%s/%s", folder, name);
        int fd = pull_check_model_name(name, NULL) == HEARTH_OK
                     ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                     : -1;
        if (fd >= 0) {
            struct pull_model model;
            hearth_error why;
            const char *fault = NULL;
            int rc = read_manifest(fd, PULL_MANIFEST, name, &model, &why);
            if (rc == HEARTH_OK)
                fault = find_fault(fd, &model);
            else if (rc != HEARTH_NOT_FOUND)
                fault = why.message;
            else if (faccessat(fd, PREPARED_MANIFEST, F_OK, 0) == 0) /* all of it was there once */
                fault = "its pull or its removal was interrupted: pull it again, or remove it";
            if (fault != NULL && visitor->fault != NULL) visitor->fault(visitor->ud, name, fault);
            if (rc == HEARTH_OK && fault == NULL) visitor->each(visitor->ud, &model);
            pull_model_release(&model);
            close(fd);
        }
        free(path);
        free(names[i]);
    }
    free(names);
    return HEARTH_OK;
}

/* ---- One of them ---- */

struct search {
    const char *name, *reference;
    struct pull_model found;
};

static void compare_model(void *ud, const struct pull_model *model)
{
    struct search *search = ud;
    bool by_name = search->name != NULL && strcmp(model->name, search->name) == 0;
    bool by_reference = search->reference != NULL && strcmp(model->reference, search->reference) == 0;
    if (search->found.name != NULL || !(by_name || by_reference)) return;
    search->found = (struct pull_model){.name = mem_strdup(model->name),
                                        .reference = mem_strdup(model->reference),
                                        .path = mem_strdup(model->path),
                                        .pulled_ms = model->pulled_ms};
    for (size_t i = 0; i < model->n_files; i++) {
        struct pull_stored file = model->files[i];
        file.name = mem_strdup(file.name);
        file.etag = mem_strdup(file.etag);
        pull_model_add_file(&search->found, &file);
    }
}

int pull_folder_find(const char *folder, const char *name, const char *reference, struct pull_model *model,
                     hearth_error *error)
{
    struct search search = {.name = name, .reference = reference};
    int rc = pull_folder_list(folder, &(struct pull_visitor){.each = compare_model, .ud = &search}, error);
    if (rc != HEARTH_OK) return rc;
    *model = search.found;
    return model->name != NULL ? HEARTH_OK
                               : error_set(error, HEARTH_NOT_FOUND, "%s is not in the models folder, %s",
                                           name != NULL ? name : reference, folder);
}

/* ---- Removing ---- */

/* Removes what only a pull leaves, by the ends of its names. Returns how many there were. The manifest goes last: a
 * removal that is interrupted goes on by it. */
static size_t remove_left_overs(int folder)
{
    static const char *const ends[] = {".gguf.part", ".gguf.journal"};
    size_t n = 0;
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = fd < 0 ? NULL : fdopendir(fd);
    if (names == NULL && fd >= 0) close(fd);
    if (names == NULL) return 0;
    for (struct dirent *next = readdir(names); next != NULL; next = readdir(names)) {
        size_t len = strlen(next->d_name);
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
            if (len >= strlen(ends[i]) && strcmp(next->d_name + len - strlen(ends[i]), ends[i]) == 0)
                n += unlinkat(folder, next->d_name, 0) == 0;
    }
    closedir(names);
    if (unlinkat(folder, PREPARED_MANIFEST, 0) == 0) n++;
    return n;
}

int pull_place_find(const char *folder, const char *name, struct pull_place *place, hearth_error *error)
{
    *place = (struct pull_place){.fd = -1, .lock = -1};
    int rc = pull_check_model_name(name, error);
    if (rc != HEARTH_OK) return rc;
    struct stat is;
    char *path = mem_format("%s/%s", folder, name);
    bool found = lstat(path, &is) == 0 && S_ISDIR(is.st_mode);
    free(path);
    if (found) return pull_place_open(folder, name, place, error);
    return error_set(error, HEARTH_NOT_FOUND, "%s is not in the models folder, %s", name, folder);
}

int pull_place_remove(struct pull_place *place, const char *name, hearth_error *error)
{
    struct pull_model model;
    hearth_error none;
    int rc = pull_place_read(place, name, false, &model, error);
    if (rc == HEARTH_OK) {
        /* Before its files go, so that no half of a model is ever served. The manifest is then one that was prepared.
         */
        if (renameat(place->fd, PULL_MANIFEST, place->fd, PREPARED_MANIFEST) != 0 || fsync(place->fd) != 0)
            rc = error_set(error, HEARTH_IO, "cannot remove %s/" PULL_MANIFEST ": %s", place->path, strerror(errno));
    } else if (rc == HEARTH_NOT_FOUND && pull_place_read(place, name, true, &model, &none) == HEARTH_OK) {
        rc = HEARTH_OK; /* its pull or its removal was interrupted */
    }
    for (size_t i = 0; i < model.n_files && rc == HEARTH_OK; i++)
        if (unlinkat(place->fd, model.files[i].name, 0) != 0 && errno != ENOENT)
            rc = error_set(error, HEARTH_IO, "cannot remove %s/%s: %s", place->path, model.files[i].name,
                           strerror(errno));
    if (rc == HEARTH_OK || rc == HEARTH_NOT_FOUND) {
        if (remove_left_overs(place->fd) > 0) rc = HEARTH_OK;
        pull_place_abandon(place); /* files of others stay, and the folder with them */
    }
    pull_model_release(&model);
    pull_place_close(place);
    return rc;
}

int pull_folder_remove(const char *folder, const char *name, hearth_error *error)
{
    struct pull_place place;
    int rc = pull_place_find(folder, name, &place, error);
    return rc == HEARTH_OK ? pull_place_remove(&place, name, error) : rc;
}

/* ---- Presets ---- */

#define ENDING ".preset.json"

static int fail_preset(const char *what, const char *folder, const char *name, hearth_error *error)
{
    const hearth_code code = errno == ENOENT ? HEARTH_NOT_FOUND : HEARTH_IO;
    return error_set(error, code, "cannot %s %s/%s" ENDING ": %s", what, folder, name, strerror(errno));
}

int pull_preset_write(const char *folder, const char *name, const char *json, hearth_error *error)
{
    if (pull_check_model_name(name, error) != HEARTH_OK) return (int)error->code;
    char *file = mem_format("%s" ENDING, name), *part = mem_format("%s.%ld.part", file, (long)getpid());
    int fd = pull_make_folders(folder, 0755) == 0 ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool good = fd >= 0 && write_text(fd, part, json) && renameat(fd, part, fd, file) == 0 && fsync(fd) == 0;
    int rc = good ? HEARTH_OK : fail_preset("write", folder, name, error);
    if (!good && fd >= 0) unlinkat(fd, part, 0);
    if (fd >= 0) close(fd);
    free(file);
    free(part);
    return rc;
}

char *pull_preset_read(const char *folder, const char *name, hearth_error *error)
{
    if (pull_check_model_name(name, error) != HEARTH_OK) return NULL;
    char *file = mem_format("%s" ENDING, name);
    struct buf text = {0};
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = fd >= 0 && read_text(fd, file, &text);
    if (!good) fail_preset("read", folder, name, error);
    if (fd >= 0) close(fd);
    free(file);
    if (good) return buf_take(&text);
    buf_release(&text);
    return NULL;
}

int pull_preset_remove(const char *folder, const char *name, hearth_error *error)
{
    if (pull_check_model_name(name, error) != HEARTH_OK) return (int)error->code;
    char *path = mem_format("%s/%s" ENDING, folder, name);
    int rc = unlink(path) == 0 ? HEARTH_OK : fail_preset("remove", folder, name, error);
    free(path);
    return rc;
}

static int is_preset(const struct dirent *entry)
{
    size_t len = strlen(entry->d_name), tail = strlen(ENDING);
    return entry->d_name[0] != '.' && len > tail && strcmp(entry->d_name + len - tail, ENDING) == 0;
}

int pull_presets_list(const char *folder, const struct pull_preset_visitor *visitor, hearth_error *error)
{
    struct dirent **entries;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
        n = fd < 0 ? -1 : scandir(folder, &entries, is_preset, alphasort), fault = errno;
    if (n < 0 && fd >= 0) close(fd);
    if (n < 0 && fault == ENOENT) return HEARTH_OK;
    if (n < 0) return error_set(error, HEARTH_IO, "cannot read %s: %s", folder, strerror(fault));
    for (int i = 0; i < n; i++) {
        const char *file = entries[i]->d_name;
        char *name = mem_strndup(file, strlen(file) - strlen(ENDING));
        struct buf text = {0};
        hearth_error why;
        if (pull_check_model_name(name, &why) != HEARTH_OK)
            visitor->fault(visitor->ud, name, why.message);
        else if (read_text(fd, file, &text))
            visitor->each(visitor->ud, name, buf_text(&text));
        else
            visitor->fault(visitor->ud, name, strerror(errno));
        buf_release(&text);
        free(name);
        free(entries[i]);
    }
    free(entries);
    close(fd);
    return HEARTH_OK;
}
