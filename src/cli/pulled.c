/* Pulled models in a configuration: see pulled.h. */
#include "cli/pulled.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

char *pulled_folder(const hearth_config *config, hearth_error *error)
{
    char *folder = pull_folder_path(hearth_config_get(config, "server.models_path"));
    if (folder == NULL)
        error_at(error, HEARTH_NOT_FOUND, "server.models_path",
                 "there is no home folder for pulled models: set HEARTH_MODELS or server.models_path to a folder");
    return folder;
}

bool pulled_find(const hearth_config *config, const char *name, struct pull_model *model)
{
    hearth_error error;
    char *folder = pulled_folder(config, &error);
    bool found = folder != NULL && pull_folder_find(folder, name, NULL, model, &error) == HEARTH_OK;
    free(folder);
    return found;
}

/* ---- Declaring ---- */

static int set_key(hearth_config *config, const char *model, const char *name, const char *value, hearth_error *error)
{
    char *key = mem_format("models.%s.%s", model, name);
    int rc = hearth_config_set(config, key, value, error);
    free(key);
    return rc;
}

static int set_path(hearth_config *config, const struct pull_model *model, const char *name, const char *file,
                    hearth_error *error)
{
    struct buf quoted = {0};
    char *folder = pulled_folder(config, error);
    if (folder == NULL) return (int)error->code;
    char *path = pull_file_path(folder, model->name, file);
    utf8_put_json_string(&quoted, path, strlen(path));
    int rc = set_key(config, model->name, name, quoted.v, error);
    buf_release(&quoted);
    free(path);
    free(folder);
    return rc;
}

int pulled_declare(hearth_config *config, const struct pull_model *model, hearth_error *error)
{
    int rc = set_path(config, model, "path", model->files[0].name, error);
    for (size_t i = 0; i < model->n_files && rc == HEARTH_OK; i++)
        if (model->files[i].is_projector) rc = set_path(config, model, "mmproj", model->files[i].name, error);
    return rc;
}

static bool is_declared(const hearth_config *config, const char *name)
{
    const char *declared;
    for (size_t i = 0; (declared = hearth_config_model(config, i)) != NULL; i++)
        if (strcmp(declared, name) == 0) return true;
    return false;
}

static bool has_path(const hearth_config *config, const char *name)
{
    char *key = mem_format("models.%s.path", name);
    bool has = hearth_config_get(config, key) != NULL;
    free(key);
    return has;
}

static void leave_out(void *ud, const char *name, const char *why)
{
    (void)ud;
    log_event(LOG_WARN, "model", "left out: it was pulled, and is not whole", log_str("model", name),
              log_str("reason", why));
}

static void declare_on_demand(void *ud, const struct pull_model *model)
{
    hearth_config *config = ud;
    hearth_error error;
    bool declared = is_declared(config, model->name);
    if (declared && has_path(config, model->name)) return;
    int rc = pulled_declare(config, model, &error);
    if (rc == HEARTH_OK && !declared) rc = set_key(config, model->name, "load", "demand", &error);
    if (rc == HEARTH_OK && !declared) rc = set_key(config, model->name, "optional", "true", &error);
    if (rc != HEARTH_OK) leave_out(NULL, model->name, error.message);
}

void pulled_declare_all(hearth_config *config)
{
    hearth_error error;
    char *folder = pull_folder_path(hearth_config_get(config, "server.models_path"));
    const struct pull_visitor visitor = {.each = declare_on_demand, .fault = leave_out, .ud = config};
    if (folder != NULL && pull_folder_list(folder, &visitor, &error) != HEARTH_OK)
        log_event(LOG_WARN, "model", "pulled models are left out: the folder cannot be read",
                  log_str("reason", error.message));
    free(folder);
}
