/* Reads the configuration's keys from the environment: see environment.h. */
#include "cli/environment.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "cli/args.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX    "HEARTH_"
#define OF_MODELS "models.*."

/* Variables that are no keys. */
static const char *const others[] = {
    "HEARTH_CONFIG", "HEARTH_MODEL", "HEARTH_API_KEY", /* of clients: cli/remote.c */
    "HEARTH_MODELS", "HEARTH_NAMES",                   /* of pulling: pull/models_folder.h, pull/reference.h */
    "HEARTH_DEPS",   "HEARTH_BUILD", "HEARTH_SOURCE",  "HEARTH_LLAMA" /* of the Makefile and of tests */
};

static bool is_of_models(const char *key)
{
    return strncmp(key, OF_MODELS, strlen(OF_MODELS)) == 0;
}

char *environment_variable(const char *key)
{
    if (strcmp(key, OF_MODELS "path") == 0) return NULL;
    char *name = mem_format(PREFIX "%s", is_of_models(key) ? key + strlen(OF_MODELS) : key);
    for (char *c = name; *c != '\0'; c++) *c = *c == '.' ? '_' : (char)toupper((unsigned char)*c);
    return name;
}

const char *environment_config(void)
{
    return getenv("HEARTH_CONFIG");
}

const char *environment_model(void)
{
    const char *model = getenv("HEARTH_MODEL");
    return model != NULL && model[0] != '\0' ? model : NULL;
}

/* ---- Keys ---- */

static int set_of_model(hearth_config *config, const char *variable, const char *key, const char *value,
                        hearth_error *error)
{
    const char *model = hearth_config_model(config, 0);
    if (model == NULL) return HEARTH_OK;
    if (hearth_config_model(config, 1) != NULL)
        return error_at(error, HEARTH_INVALID, variable,
                        "%s: for one model, and there are several: write it into the configuration", variable);
    char *full = mem_format("models.%s.%s", model, key + strlen(OF_MODELS));
    int rc = hearth_config_set(config, full, value, error);
    free(full);
    return rc;
}

static int set_key(hearth_config *config, const char *variable, const char *key, const char *value, hearth_error *error)
{
    if (is_of_models(key)) return set_of_model(config, variable, key, value, error);
    return hearth_config_set(config, key, value, error);
}

static int apply_key(hearth_config *config, const char *key, hearth_error *error)
{
    char *variable = environment_variable(key);
    const char *value = variable == NULL ? NULL : getenv(variable);
    int rc = HEARTH_OK;
    if (value != NULL && value[0] != '\0') rc = set_key(config, variable, key, value, error);
    if (rc != HEARTH_OK && strncmp(error->message, PREFIX, strlen(PREFIX)) != 0) error_prefix(error, "%s: ", variable);
    free(variable);
    return rc;
}

/* ---- Unknown variables ---- */

static void list_known(struct args_list *known)
{
    const char *key;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) args_append(known, mem_strdup(others[i]));
    for (size_t i = 0; (key = hearth_config_key(i)) != NULL; i++) {
        char *variable = environment_variable(key);
        if (variable != NULL) args_append(known, variable);
    }
}

static bool is_known(const struct args_list *known, const char *name)
{
    for (size_t i = 0; i < known->len; i++)
        if (strcmp(known->v[i], name) == 0) return true;
    return false;
}

/* Not an error: a cluster sets variables of its own for a service of that name, as HEARTH_PORT. */
static void warn_of(const struct args_list *known, const char *command, const char *name)
{
    const char *nearest = nearest_name(name, known->v, known->len);
    fprintf(stderr, "%s: the environment's %s is no key of the configuration%s%s: it is ignored\n", command, name,
            nearest != NULL ? "; the nearest is " : "", nearest != NULL ? nearest : "");
}

static void warn_of_unknown(const char *command)
{
    struct args_list known = {0};
    list_known(&known);
    for (char **entry = environ; *entry != NULL; entry++) {
        if (strncmp(*entry, PREFIX, strlen(PREFIX)) != 0) continue;
        char *name = mem_strndup(*entry, strcspn(*entry, "="));
        if (!is_known(&known, name)) warn_of(&known, command, name);
        free(name);
    }
    for (size_t i = 0; i < known.len; i++) free((char *)(uintptr_t)known.v[i]);
    args_release(&known);
}

static int apply_keys(hearth_config *config, bool of_models, hearth_error *error)
{
    const char *key;
    int rc = HEARTH_OK;
    for (size_t i = 0; rc == HEARTH_OK && (key = hearth_config_key(i)) != NULL; i++)
        if (is_of_models(key) == of_models) rc = apply_key(config, key, error);
    return rc;
}

int environment_apply_server(hearth_config *config, const char *command, hearth_error *error)
{
    warn_of_unknown(command);
    return apply_keys(config, false, error);
}

int environment_apply_model(hearth_config *config, hearth_error *error)
{
    return apply_keys(config, true, error);
}
