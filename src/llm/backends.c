/* Backends of llama.cpp, and which of them are loaded: see backends.h. llama.cpp can look for them itself, but also in
 * the working directory, and it says of none why it was left out. */
#include "llm/backends.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"
#include "llm/llama_log.h"
#include "llm/model.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* The description. The thread that loads writes it, once. */
static struct buf found;

/* ---- Files ---- */

static const char before[] = "libggml-", behind[] = ".so";

/* A backend's file: libggml-NAME.so. */
struct file {
    char *path, *name;
    int score; /* of a processor's backend, how well it uses this processor; 0: it does not run here */
};

static bool is_for_processors(const char *name)
{
    return strncmp(name, "cpu", 3) == 0 && (name[3] == '\0' || name[3] == '-');
}

static int is_backend(const struct dirent *entry)
{
    size_t len = strlen(entry->d_name), first = sizeof before - 1, last = sizeof behind - 1;
    return len > first + last && strncmp(entry->d_name, before, first) == 0 &&
           strcmp(entry->d_name + len - last, behind) == 0 && strcmp(entry->d_name, "libggml-base.so") != 0;
}

static void say(const struct file *file, const char *what, const char *why)
{
    buf_printf(&found, "backend %s: %s%s%s\n", file->name, what, why != NULL ? ": " : "", why != NULL ? why : "");
}

/* Without its path, which the loader puts before what is wrong, and may well be that of another file. */
static const char *reason(const struct file *file, const char *text)
{
    size_t len = strlen(file->path);
    if (text == NULL) return "no reason is known";
    return strncmp(text, file->path, len) == 0 && strncmp(text + len, ": ", 2) == 0 ? text + len + 2 : text;
}

/* Whether the system can load it, and how well it suits. One that does not say so suits. */
static bool try(struct file *file)
{
    void *library = dlopen(file->path, RTLD_NOW | RTLD_LOCAL);
    int (*score)(void) = NULL;
    if (library == NULL) {
        say(file, "not loaded", reason(file, dlerror()));
        return false;
    }
    void *symbol = dlsym(library, "ggml_backend_score");
    memcpy(&score, &symbol, sizeof score);
    file->score = score != NULL ? score() : 1;
    if (is_for_processors(file->name)) dlclose(library); /* others stay: their drivers may not bear to be unloaded */
    return true;
}

static void load(const struct file *file)
{
    llm_log_quiet(true);
    ggml_backend_reg_t backend = ggml_backend_load(file->path);
    llm_log_quiet(false);
    if (backend == NULL)
        say(file, "not loaded", "it is of another version of llama.cpp, or finds no device that it can use");
    else
        buf_printf(&found, "backend %s: loaded, %zu device%s\n", file->name, ggml_backend_reg_dev_count(backend),
                   ggml_backend_reg_dev_count(backend) == 1 ? "" : "s");
}

/* ---- Loading ---- */

/* The folder of llama.cpp's library; NULL: it is part of the program. */
static char *own_folder(void)
{
    Dl_info info;
    ggml_backend_reg_t (*function)(const char *) = ggml_backend_load;
    void *address;
    memcpy(&address, &function, sizeof address);
    const char *slash = dladdr(address, &info) != 0 ? strrchr(info.dli_fname, '/') : NULL;
    return slash != NULL ? mem_strndup(info.dli_fname, (size_t)(slash - info.dli_fname)) : NULL;
}

void llm_load_backends(const char *folder)
{
    char *own = folder == NULL ? own_folder() : NULL;
    if (folder == NULL) folder = own;
    struct dirent **entries = NULL;
    int n = folder != NULL ? scandir(folder, &entries, is_backend, alphasort) : 0;
    struct file best = {0};
    for (int i = 0; i < n; i++) {
        size_t len = strlen(entries[i]->d_name) - (sizeof before - 1) - (sizeof behind - 1);
        struct file file = {.path = mem_format("%s/%s", folder, entries[i]->d_name),
                            .name = mem_strndup(entries[i]->d_name + sizeof before - 1, len)};
        bool loads = try(&file);
        if (loads && !is_for_processors(file.name)) load(&file);
        if (loads && is_for_processors(file.name) && file.score > best.score) {
            struct file other = best;
            best = file;
            file = other;
        }
        free(file.path);
        free(file.name);
        free(entries[i]);
    }
    /* Last: llama.cpp asks devices in the order in which they came. */
    if (best.path != NULL) load(&best);
    free(best.path);
    free(best.name);
    free(entries);
    free(own);
}

const char *llm_backends(void)
{
    return buf_text(&found);
}

/* ---- Their functions ---- */

ggml_backend_reg_t llm_processor(void)
{
    return ggml_backend_reg_by_name("CPU");
}

int llm_check_processor(hearth_error *error)
{
    if (llm_processor() != NULL) return HEARTH_OK;
    return error_set(error, HEARTH_UNSUPPORTED,
                     "llama.cpp's backend for this processor is missing beside its library: `hearth version` says what "
                     "was found there");
}

bool llm_find_function(const char *backend, const char *name, void *function)
{
    ggml_backend_reg_t reg = ggml_backend_reg_by_name(backend);
    void *address = reg != NULL ? ggml_backend_reg_get_proc_address(reg, name) : NULL;
    memcpy(function, &address, sizeof address);
    return address != NULL;
}
