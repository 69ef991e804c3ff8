/* Pulling and removing for requests: see work.h.
 *
 * A request may name less than the command line: no file of this machine, and of the web public addresses alone. A
 * short name may mean anything but a file: the owner of the file of short names decides there what is fetched. So may a
 * repository, whose server is the environment's HF_ENDPOINT. Only what was pulled can be removed, and nothing that the
 * configuration uses. */
#include "serve/pulls/work.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "pull/declare.h"
#include "pull/listing.h"
#include "pull/pull.h"
#include "serve/core/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- What the configuration has ---- */

static const char *get(const struct pulls_place *place, const char *model, const char *key)
{
    char *full = mem_format("models.%s.%s", model, key);
    const char *value = hearth_config_get(place->config, full);
    free(full);
    return value;
}

/* Whether somebody has configured a model of this name. */
static bool is_configured(const struct pulls_place *place, const char *name)
{
    bool is_pulled = place->is_pulled != NULL && place->is_pulled(place->ud, name);
    return !is_pulled && get(place, name, "path") != NULL;
}

static int refuse_configured(const char *name, hearth_error *error)
{
    return error_at(error, HEARTH_INVALID, "model",
                    "model '%s' is the configuration's (models.%s): requests neither replace nor remove it", name,
                    name);
}

static bool is_below(const char *path, const char *folder)
{
    char *real = path == NULL ? NULL : realpath(path, NULL), *root = realpath(folder, NULL);
    size_t len = root == NULL ? 0 : strlen(root);
    bool below = real != NULL && root != NULL && strncmp(real, root, len) == 0 && real[len] == '/';
    free(real);
    free(root);
    return below;
}

/* Whether a model that somebody has configured uses a file of this folder. */
static int check_unused(const struct pulls_place *place, const char *folder, hearth_error *error)
{
    static const char *const keys[] = {"path", "mmproj", "jinja_file"};
    const char *name;
    for (size_t i = 0; (name = hearth_config_model(place->config, i)) != NULL; i++) {
        if (!is_configured(place, name)) continue;
        const char *lora = get(place, name, "lora"), *used = lora != NULL && strstr(lora, folder) ? "lora" : NULL;
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (is_below(get(place, name, keys[k]), folder)) used = keys[k];
        if (used != NULL)
            return error_at(error, HEARTH_INVALID, "model", "models.%s.%s of the configuration is a file of it", name,
                            used);
    }
    return HEARTH_OK;
}

/* ---- Serving ---- */

static void tell(const struct pulls_work *work, enum pulls_step step)
{
    work->on_news(work->ud, &(struct pulls_news){.step = step});
}

/* The model of that name; false: none is served. */
static bool find_served(const hearth *instance, const char *name, hearth_model_info *info)
{
    for (size_t i = 0; models_next(instance, &i, info); i++)
        if (strcmp(info->name, name) == 0) return true;
    return false;
}

static int add(const struct pulls_place *place, const struct pull_model *model, hearth_error *error)
{
    char *folder = pull_folder_of(place->config, error);
    if (folder == NULL) return (int)error->code;
    hearth_config *config = hearth_config_new();
    int rc = pull_declare_on_demand(config, folder, model, error);
    if (rc == HEARTH_OK) rc = hearth_add_model(place->instance, config, model->name, error);
    hearth_config_free(config);
    free(folder);
    return rc;
}

/* Whether another model can be added: the places of removed ones are not used again. */
static int check_room(const struct pulls_place *place, hearth_error *error)
{
    hearth_model_info info;
    size_t n = 0, n_configured = 0;
    while (hearth_model(place->instance, n, &info)) n++;
    while (hearth_config_model(place->config, n_configured) != NULL) n_configured++;
    if (n < n_configured + HEARTH_ADDED_MODELS) return HEARTH_OK;
    return error_set(error, HEARTH_NO_MEMORY,
                     "its files were pulled, and the former ones are served until hearth is started anew: %d models "
                     "were added already",
                     HEARTH_ADDED_MODELS);
}

/* One that is served already is taken anew where its files are others than it was read from. */
static int serve_anew(const struct pulls_place *place, const struct pull_model *model, hearth_error *error)
{
    int rc = check_room(place, error);
    if (rc != HEARTH_OK) return rc;
    rc = hearth_remove_model(place->instance, model->name, error);
    if (rc == HEARTH_BUSY)
        error_prefix(error, "its files were pulled, and the former ones are served until it is pulled once more, which "
                            "fetches nothing: ");
    return rc == HEARTH_OK ? add(place, model, error) : rc;
}

/* With the lock of the model's folder, as removing has it, so that a served model has its files. */
static int serve(void *ud, const struct pull_model *model, hearth_error *error)
{
    const struct pulls_work *work = ud;
    hearth_model_info info;
    tell(work, PULLS_SERVING);
    if (!find_served(work->place->instance, model->name, &info)) return add(work->place, model, error);
    bool is_current = !model->changed && model->pulled_ms <= info.created_ms;
    return is_current ? HEARTH_OK : serve_anew(work->place, model, error);
}

/* ---- Pulling ---- */

static void on_progress(void *ud, const struct pull_progress *progress)
{
    const struct pulls_work *work = ud;
    struct pulls_news news = {
        .step = progress->checking ? PULLS_CHECKING : PULLS_FETCHING, .done = progress->done, .total = progress->total};
    snprintf(news.file, sizeof news.file, "%s", progress->file);
    if (progress->sha != NULL) sha256_to_hex(progress->sha, news.digest);
    work->on_news(work->ud, &news);
}

static bool is_cancelled(void *ud)
{
    const struct pulls_work *work = ud;
    return work->is_cancelled(work->ud);
}

static int accept_name(void *ud, const char *name, hearth_error *error)
{
    const struct pulls_work *work = ud;
    const char *declared = pull_find_declared(work->place->config, name);
    if (declared == NULL || !is_configured(work->place, declared)) return HEARTH_OK;
    if (strcmp(declared, name) == 0) return refuse_configured(name, error);
    return error_at(error, HEARTH_INVALID, "model",
                    "'%s' is an alias of the configuration's model '%s' (models.%s.aliases): take it out there, or run "
                    "`hearth pull --name` with another name",
                    name, declared, declared);
}

static int refuse_file(hearth_error *error)
{
    return error_at(error, HEARTH_UNSUPPORTED, "model",
                    "files of this machine are not pulled by requests: name hf:OWNER/REPO[:QUANT], a URL that ends in "
                    ".gguf, or a short name; or run `hearth pull` there");
}

static int read_reference(const char *text, struct pull_reference *reference, hearth_error *error)
{
    *reference = (struct pull_reference){0};
    if (pull_reference_is_path(text)) return refuse_file(error);
    char *names = pull_names_path();
    int rc = pull_reference_read(text, names, reference, error);
    free(names);
    return rc == HEARTH_OK && reference->kind == PULL_FILE ? refuse_file(error) : rc;
}

/* A model that was pulled by a short name has that name, unless its reference was pulled under another one. */
static char *name_for(const struct pull_reference *reference, const char *folder)
{
    struct pull_model model;
    hearth_error error;
    if (reference->short_name == NULL) return NULL;
    if (pull_folder_find(folder, NULL, reference->text, &model, &error) != HEARTH_OK)
        return mem_strdup(reference->short_name);
    char *name = mem_strdup(model.name);
    pull_model_release(&model);
    return name;
}

static int get_model(const struct pulls_work *work, const struct pull_reference *reference, const char *folder,
                     struct pull_model *model, hearth_error *error)
{
    struct pull_options options = pull_options_default();
    char *name = name_for(reference, folder);
    options.folder = folder;
    options.name = name;
    options.allow_http = work->insecure;
    options.public_only = reference->kind == PULL_URL && reference->short_name == NULL;
    options.accept = accept_name;
    options.report = on_progress;
    options.use = serve;
    options.is_cancelled = is_cancelled;
    options.ud = (void *)work;
    int rc = pull_model(reference, &options, model, error);
    free(name);
    return rc;
}

int work_pull(const struct pulls_work *work, char **name, hearth_error *error)
{
    struct pull_reference reference;
    struct pull_model model = {0};
    char *folder = pull_folder_of(work->place->config, error);
    int rc = folder == NULL ? (int)error->code : read_reference(work->subject, &reference, error);
    *name = NULL;
    if (folder == NULL) return rc;
    if (rc == HEARTH_OK) {
        tell(work, PULLS_LISTING);
        rc = get_model(work, &reference, folder, &model, error);
    }
    if (rc == HEARTH_OK) *name = mem_strdup(model.name);
    if (rc == HEARTH_OK)
        log_event(LOG_INFO, "pull", "pulled", log_str("model", model.name), log_str("reference", model.reference),
                  log_bool("changed", model.changed));
    pull_model_release(&model);
    pull_reference_release(&reference);
    free(folder);
    return rc;
}

/* ---- Removing ---- */

static bool is_in_folder(const char *folder, const char *name)
{
    char *path = mem_format("%s/%s", folder, name);
    bool found = pull_check_model_name(name, NULL) == HEARTH_OK && access(path, F_OK) == 0;
    free(path);
    return found;
}

/* The name in the models folder, where a tag ":latest" may be missing. */
static char *name_in(const char *folder, const char *name)
{
    static const char tag[] = ":latest";
    size_t len = strlen(name), tail = sizeof tag - 1;
    bool has_tag = len > tail && strcmp(name + len - tail, tag) == 0;
    return has_tag && !is_in_folder(folder, name) ? mem_strndup(name, len - tail) : mem_strdup(name);
}

static int remove_model(const struct pulls_place *place, const char *folder, const char *name, hearth_error *error)
{
    hearth_model_info info;
    struct pull_place its = {.fd = -1, .lock = -1};
    bool has_files = is_in_folder(folder, name), is_served = find_served(place->instance, name, &info);
    if (is_configured(place, name)) return refuse_configured(name, error);
    if (!has_files && !is_served) return error_at(error, HEARTH_NOT_FOUND, "model", "model '%s' not found", name);
    char *path = mem_format("%s/%s", folder, name);
    int rc = check_unused(place, path, error);
    /* While it is pulled it stays as it is: nothing is taken from the instance before the lock is had. */
    if (rc == HEARTH_OK && has_files) rc = pull_place_find(folder, name, &its, error);
    if (rc == HEARTH_OK && find_served(place->instance, name, &info))
        rc = hearth_remove_model(place->instance, name, error);
    if (rc == HEARTH_OK && has_files) rc = pull_place_remove(&its, name, error);
    pull_place_close(&its);
    free(path);
    return rc;
}

int work_remove(const struct pulls_work *work, hearth_error *error)
{
    char *folder = pull_folder_of(work->place->config, error);
    if (folder == NULL) return (int)error->code;
    char *name = name_in(folder, work->subject);
    int rc = remove_model(work->place, folder, name, error);
    if (rc == HEARTH_OK) log_event(LOG_INFO, "pull", "removed from the models folder", log_str("model", name));
    free(name);
    free(folder);
    return rc;
}
