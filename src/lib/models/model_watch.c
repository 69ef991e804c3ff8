/* Which files of a model are watched: see model_watch.h. */
#include "lib/models/model_watch.h"

#include "base/clock.h"
#include "base/memory.h"
#include "llm/model_identity.h"

#include <stdlib.h>

/* How long somebody who asks waits for a look at the files. */
#define PATIENCE_MS 1000

struct paths {
    char **v;
    size_t n;
};

static void add_path(struct paths *paths, const char *path)
{
    paths->v = mem_grow(paths->v, paths->n + 1, sizeof(char *));
    paths->v[paths->n++] = mem_strdup(path);
}

static int add_part(void *ud, const struct llm_part *part, hearth_error *error)
{
    (void)error;
    add_path(ud, part->path);
    return HEARTH_OK;
}

static struct paths paths_of(const struct config_model *config)
{
    struct paths paths = {0};
    hearth_error told_later;
    if (llm_file_each_part(config->path, add_part, &paths, &told_later) != HEARTH_OK && paths.n == 0)
        add_path(&paths, config->path);
    for (size_t i = 0; i < config->lora.len; i++) add_path(&paths, config->lora.v[i].path);
    if (config->mmproj != NULL) add_path(&paths, config->mmproj);
    return paths;
}

struct file_watch *model_watch_open(const struct config_model *config, void (*report)(void *ud, const char *reason),
                                    void *ud, hearth_error *error)
{
    struct paths paths = paths_of(config);
    struct file_watch_params params = {.paths = (const char *const *)paths.v,
                                       .n = paths.n,
                                       .patience_ns = clock_from_ms(PATIENCE_MS),
                                       .report = report,
                                       .ud = ud};
    struct file_watch *watch = file_watch_open(&params, error);
    for (size_t i = 0; i < paths.n; i++) free(paths.v[i]);
    free(paths.v);
    return watch;
}
