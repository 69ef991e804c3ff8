/* Pulled models in a configuration: see declare.h. */
#include "pull/declare.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

char *pull_folder_of(const hearth_config *config, hearth_error *error)
{
    char *folder = pull_folder_path(hearth_config_get(config, "server.models_path"));
    if (folder == NULL)
        error_at(error, HEARTH_NOT_FOUND, "server.models_path",
                 "there is no home folder for pulled models: set HEARTH_MODELS or server.models_path to a folder");
    return folder;
}

bool pull_find_named(const hearth_config *config, const char *name, struct pull_model *model)
{
    hearth_error error;
    char *folder = pull_folder_of(config, &error);
    bool found = folder != NULL && pull_folder_find(folder, name, NULL, model, &error) == HEARTH_OK;
    free(folder);
    return found;
}

/* ---- What is declared ---- */

/* Whether a list, whose words are joined by commas, has the word. */
static bool has_word(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += strspn(at, ", ");
        if (strncmp(at, word, len) == 0 && (at[len] == ',' || at[len] == '\0')) return true;
    }
    return false;
}

const char *pull_find_declared(const hearth_config *config, const char *name)
{
    const char *declared, *by_alias = NULL;
    for (size_t i = 0; (declared = hearth_config_model(config, i)) != NULL; i++) {
        if (strcmp(declared, name) == 0) return declared;
        char *key = mem_format("models.%s.aliases", declared);
        if (by_alias == NULL && has_word(hearth_config_get(config, key), name)) by_alias = declared;
        free(key);
    }
    return by_alias;
}

/* ---- Declaring ---- */

static int set_key(hearth_config *config, const char *model, const char *name, const char *value, hearth_error *error)
{
    char *key = mem_format("models.%s.%s", model, name);
    int rc = hearth_config_set(config, key, value, error);
    free(key);
    return rc;
}

int pull_declare(hearth_config *config, const char *folder, const struct pull_model *model, hearth_error *error)
{
    int rc = HEARTH_OK;
    for (size_t i = 0; i < model->n_files && rc == HEARTH_OK; i++) {
        if (i > 0 && !model->files[i].is_projector) continue; /* llama.cpp finds the other shards by the first one */
        char *path = pull_file_path(folder, model->name, model->files[i].name);
        struct buf quoted = {0};
        utf8_put_json_string(&quoted, path, strlen(path));
        rc = set_key(config, model->name, i == 0 ? "path" : "mmproj", quoted.v, error);
        buf_release(&quoted);
        free(path);
    }
    return rc;
}

int pull_declare_on_demand(hearth_config *config, const char *folder, const struct pull_model *model,
                           hearth_error *error)
{
    int rc = pull_declare(config, folder, model, error);
    if (rc == HEARTH_OK) rc = set_key(config, model->name, "load", "demand", error);
    return rc == HEARTH_OK ? set_key(config, model->name, "optional", "true", error) : rc;
}

/* ---- All of them ---- */

static void leave_out(void *ud, const char *name, const char *why)
{
    (void)ud;
    log_event(LOG_WARN, "model", "left out: it was pulled, and is not whole", log_str("model", name),
              log_str("reason", why));
}

struct declaring {
    hearth_config *config;
    const char *folder;
    void (*declared)(void *ud, const char *name);
    void *ud;
};

static void declare_found(void *ud, const struct pull_model *model)
{
    const struct declaring *d = ud;
    hearth_error error;
    const char *other = pull_find_declared(d->config, model->name);
    bool has_section = other != NULL && strcmp(other, model->name) == 0;
    char *key = mem_format("models.%s.path", model->name);
    bool has_path = has_section && hearth_config_get(d->config, key) != NULL;
    free(key);
    if (has_path) return;
    if (other != NULL && !has_section) {
        log_event(LOG_WARN, "model", "left out: it was pulled, and its name is another model's alias",
                  log_str("model", model->name), log_str("alias_of", other));
        return;
    }
    int rc = (has_section ? pull_declare : pull_declare_on_demand)(d->config, d->folder, model, &error);
    if (rc != HEARTH_OK)
        leave_out(NULL, model->name, error.message);
    else if (!has_section)
        d->declared(d->ud, model->name);
}

void pull_declare_all(hearth_config *config, void (*declared)(void *ud, const char *name), void *ud)
{
    hearth_error error;
    char *folder = pull_folder_path(hearth_config_get(config, "server.models_path"));
    struct declaring d = {config, folder, declared, ud};
    const struct pull_visitor visitor = {.each = declare_found, .fault = leave_out, .ud = &d};
    if (folder != NULL && pull_folder_list(folder, &visitor, &error) != HEARTH_OK)
        log_event(LOG_WARN, "model", "pulled models are left out: the folder cannot be read",
                  log_str("reason", error.message));
    free(folder);
}
