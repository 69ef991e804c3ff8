/* The history of what was typed: see input_history.h. */
#include "cli/chat/input_history.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRIES_MOST 1000
#define BYTES_MOST   4096 /* of an entry: longer ones are pasted texts, which nobody looks for here */

static char *find_folder(void)
{
    const char *base = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (base != NULL && base[0] == '/') return mem_format("%s/hearth", base);
    if (home == NULL || home[0] != '/') return NULL;
    return mem_format("%s/.local/state/hearth", home);
}

static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    mkdir(path, 0700);
}

void chat_history_open(struct history_file *file, bool kept)
{
    HistEvent event;
    char *folder = kept ? find_folder() : NULL;
    *file = (struct history_file){.list = history_init()};
    history(file->list, &event, H_SETSIZE, ENTRIES_MOST);
    history(file->list, &event, H_SETUNIQUE, 1);
    if (folder == NULL) return;
    make_folders(folder);
    file->path = mem_format("%s/chat_history", folder);
    history(file->list, &event, H_LOAD, file->path);
    free(folder);
}

/* Another file takes the place of the old one, so that no crash leaves half of it. */
static void write_file(struct history_file *file)
{
    HistEvent event;
    char *path = mem_format("%s.%ld", file->path, (long)getpid());
    FILE *out = fopen(path, "we");
    bool whole = out != NULL && fchmod(fileno(out), 0600) == 0 && history(file->list, &event, H_SAVE_FP, out) >= 0;
    if (out != NULL) whole = fclose(out) == 0 && whole;
    if (!whole || rename(path, file->path) != 0) unlink(path);
    free(path);
}

void chat_history_add(struct history_file *file, const char *text)
{
    HistEvent event;
    if (text[0] == '\0' || strlen(text) > BYTES_MOST) return;
    history(file->list, &event, H_ENTER, text);
    if (file->path != NULL) write_file(file);
}

void chat_history_close(struct history_file *file)
{
    history_end(file->list);
    free(file->path);
}
