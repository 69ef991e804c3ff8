/* Files of presets: see preset_files.h. */
#include "pull/preset_files.h"

#include "base/error.h"
#include "base/memory.h"
#include "pull/listing.h"
#include "pull/text_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENDING ".preset.json"

static int fail(const char *what, const char *folder, const char *name, hearth_error *error)
{
    const hearth_code code = errno == ENOENT ? HEARTH_NOT_FOUND : HEARTH_IO;
    return error_set(error, code, "cannot %s %s/%s" ENDING ": %s", what, folder, name, strerror(errno));
}

static int open_folder(const char *folder)
{
    return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

int pull_preset_write(const char *folder, const char *name, const char *json, hearth_error *error)
{
    if (pull_check_model_name(name, error) != HEARTH_OK) return (int)error->code;
    char *file = mem_format("%s" ENDING, name), *part = mem_format("%s.%ld.part", file, (long)getpid());
    int fd = pull_make_folders(folder) == 0 ? open_folder(folder) : -1;
    bool good = fd >= 0 && pull_write_text(fd, part, json) && renameat(fd, part, fd, file) == 0 && fsync(fd) == 0;
    int rc = good ? HEARTH_OK : fail("write", folder, name, error);
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
    int fd = open_folder(folder);
    bool good = fd >= 0 && pull_read_text(fd, file, &text);
    if (!good) fail("read", folder, name, error);
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
    int rc = unlink(path) == 0 ? HEARTH_OK : fail("remove", folder, name, error);
    free(path);
    return rc;
}

static int is_preset(const struct dirent *entry)
{
    size_t len = strlen(entry->d_name), tail = strlen(ENDING);
    return entry->d_name[0] != '.' && len > tail && strcmp(entry->d_name + len - tail, ENDING) == 0;
}

static void visit(int folder, const char *file, const struct pull_preset_visitor *visitor)
{
    char *name = mem_strndup(file, strlen(file) - strlen(ENDING));
    struct buf text = {0};
    hearth_error error;
    if (pull_check_model_name(name, &error) != HEARTH_OK)
        visitor->fault(visitor->ud, name, error.message);
    else if (pull_read_text(folder, file, &text))
        visitor->each(visitor->ud, name, buf_text(&text));
    else
        visitor->fault(visitor->ud, name, strerror(errno));
    buf_release(&text);
    free(name);
}

int pull_presets_list(const char *folder, const struct pull_preset_visitor *visitor, hearth_error *error)
{
    struct dirent **entries;
    int fd = open_folder(folder), n = fd < 0 ? -1 : scandir(folder, &entries, is_preset, alphasort), fault = errno;
    if (n < 0 && fd >= 0) close(fd);
    if (n < 0 && fault == ENOENT) return HEARTH_OK;
    if (n < 0) return error_set(error, HEARTH_IO, "cannot read %s: %s", folder, strerror(fault));
    for (int i = 0; i < n; i++) {
        visit(fd, entries[i]->d_name, visitor);
        free(entries[i]);
    }
    free(entries);
    close(fd);
    return HEARTH_OK;
}
