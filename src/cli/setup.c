/* Builds a configuration from files, the environment and a command line: see setup.h. */
#include "cli/setup.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "base/os.h"
#include "base/utf8.h"
#include "pull/declare.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void setup_release(struct setup *setup)
{
    args_release(&setup->models);
    args_release(&setup->sets);
}

int setup_failure_status(const hearth_config *config, const hearth_error *error)
{
    const char *name = error->param, *model = hearth_config_model(config, 0); /* every model has the same keys */
    char *of_model = model == NULL ? NULL : mem_format("models.%s.%s", model, name);
    const bool is_models = of_model != NULL && hearth_config_get(config, of_model) != NULL;
    const bool is_key = name[0] != '\0' && (hearth_config_get(config, name) != NULL || is_models);
    free(of_model);
    return error->code == HEARTH_INVALID && is_key ? EXIT_USAGE : EXIT_FAILED;
}

void setup_report(void *ud, const char *file, int line, const char *key, const char *message)
{
    size_t *count = ud;
    (*count)++;
    if (file && *file) fprintf(stderr, line > 0 ? "%s:%d: " : "%s: ", file, line);
    if (key && *key) fprintf(stderr, "%s: ", key);
    fprintf(stderr, "%s\n", message);
}

/* ---- Models ---- */

static bool is_declared(const hearth_config *config, const char *name)
{
    const char *declared;
    for (size_t i = 0; (declared = hearth_config_model(config, i)); i++)
        if (strcmp(declared, name) == 0) return true;
    return false;
}

static char *name_of_file(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const size_t len = strlen(base);
    const bool gguf = len > 5 && strcmp(base + len - 5, ".gguf") == 0;
    return mem_strndup(base, gguf ? len - 5 : len);
}

/* Whether the model of that name has this file. */
static bool has_file(const hearth_config *config, const char *name, const char *path)
{
    char *key = mem_format("models.%s.path", name);
    const char *its = hearth_config_get(config, key);
    struct stat a, b;
    bool same =
        its != NULL && stat(its, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    free(key);
    return same;
}

/* Declares a model for the file, named after it without folder and .gguf; `chosen` are those of the words before. One
 * that a configuration file declares for the same file is that one. */
static int declare(hearth_config *config, const char *path, char *const *chosen, size_t n, hearth_error *error)
{
    char *name = name_of_file(path);
    int status = 0;
    struct stat info;
    bool is_taken = false;
    for (size_t i = 0; i < n; i++) is_taken = is_taken || strcmp(chosen[i], name) == 0;
    if (stat(path, &info) != 0 || access(path, R_OK) != 0) {
        status = error_at(error, HEARTH_NOT_FOUND, "model", "--model %s: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        status = error_at(error, HEARTH_NOT_FOUND, "model", "--model %s is not a file: name the GGUF file", path);
    } else if (is_declared(config, name) && (is_taken || !has_file(config, name, path))) {
        status = error_at(error, HEARTH_INVALID, "model", "--model %s: there is a model named %s already", path, name);
    } else if (!is_declared(config, name)) {
        char *key = mem_format("models.%s.path", name);
        struct buf quoted = {0};
        utf8_put_json_string(&quoted, path, strlen(path));
        status = hearth_config_set(config, key, quoted.v, error);
        buf_release(&quoted);
        free(key);
    }
    free(name);
    return status;
}

/* A word is the name of a declared model, or else the path of a file, or the name of a pulled model. Returns the
 * model's name; the caller frees it. */
static char *choose_model(hearth_config *config, const char *word, char *const *chosen, size_t n, hearth_error *error)
{
    struct pull_model model;
    if (is_declared(config, word)) return mem_strdup(word);
    if (strchr(word, '/') || access(word, F_OK) == 0)
        return declare(config, word, chosen, n, error) == 0 ? name_of_file(word) : NULL;
    if (!pull_find_named(config, word, &model)) {
        const char *first = hearth_config_model(config, 0);
        if (!first)
            error_at(error, HEARTH_NOT_FOUND, "model", "--model %s: no such file", word);
        else
            error_at(error, HEARTH_INVALID, "model",
                     "--model %s: neither a model of the configuration, as %s is, nor a file", word, first);
        return NULL;
    }
    char *folder = pull_folder_of(config, error);
    const int status = pull_declare(config, folder, &model, error);
    free(folder);
    pull_model_release(&model);
    return status == 0 ? mem_strdup(word) : NULL;
}

static int choose_models(hearth_config *config, const struct args_list *words, hearth_error *error)
{
    if (words->len == 0) return 0;
    char **names = mem_alloc(words->len * sizeof *names);
    size_t n = 0;
    while (n < words->len && (names[n] = choose_model(config, words->v[n], names, n, error))) n++;
    const int status =
        n < words->len ? (int)error->code : hearth_config_keep_models(config, (const char *const *)names, n, error);
    while (n > 0) free(names[--n]);
    free(names);
    return status;
}

/* The value of HEARTH_PROGRAM; NULL: it was not set. */
static char *starter;

void setup_take_starter(void)
{
    const char *given = getenv("HEARTH_PROGRAM");
    if (given != NULL && given[0] == '/') starter = mem_strdup(given);
    unsetenv("HEARTH_PROGRAM"); /* what this process starts may be another hearth */
}

const char *setup_starter(void)
{
    return starter != NULL ? starter : os_same_program();
}

/* Installed and built trees alike have bin/hearth beside share/hearth/models/. */
static int declare_demo(hearth_config *config, hearth_error *error)
{
    char program[PATH_MAX];
    const ssize_t len = starter != NULL ? snprintf(program, sizeof program, "%s", starter)
                                        : os_program_path(program, sizeof program - 1);
    if (len < 0 || (size_t)len >= sizeof program)
        return error_set(error, HEARTH_IO,
                         "cannot tell where the program lies, so the demo model is not found: use --model");
    program[len] = '\0';
    *strrchr(program, '/') = '\0';
    char *path = mem_format("%s/../share/hearth/models/demo.gguf", program);
    int status;
    if (access(path, R_OK) != 0)
        status =
            error_at(error, HEARTH_NOT_FOUND, "model", "the demo model is missing (%s): use --model or --config", path);
    else
        status = declare(config, path, NULL, 0, error);
    free(path);
    return status;
}

/* ---- The server's keys ---- */

/* Replaces host and port of server.listen's first address by --host and --port. */
static int set_listen(hearth_config *config, const struct setup *setup, hearth_error *error)
{
    if (!setup->host && !setup->port) return 0;
    const char *listen = hearth_config_get(config, "server.listen");
    char *first = mem_strndup(listen, strcspn(listen, ","));
    char *colon = strrchr(first, ':');
    const bool is_socket = strncmp(first, "unix:", 5) == 0 || !colon;
    if (!is_socket) *colon = '\0';
    const char *host = setup->host ? setup->host : is_socket ? "127.0.0.1" : first;
    const char *port = setup->port ? setup->port : is_socket ? "8080" : colon + 1;
    const bool bare_ipv6 = strchr(host, ':') && host[0] != '[';
    char *value = mem_format(bare_ipv6 ? "[\"[%s]:%s\"]" : "[\"%s:%s\"]", host, port);
    const int status = hearth_config_set(config, "server.listen", value, error);
    free(value);
    free(first);
    return status;
}

/* A key without a section's name belongs to the only model. */
static char *full_key(const char *only, const char *key)
{
    static const char *const sections[] = {"server.", "cache.", "models."};
    bool whole = !only;
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        whole = whole || strncmp(key, sections[i], strlen(sections[i])) == 0;
    return whole ? mem_strdup(key) : mem_format("models.%s.%s", only, key);
}

/* The keys of --set, either those of the server, which say where pulled models are, or the others. */
static int set_words(hearth_config *config, const struct setup *setup, const char *only, bool of_server,
                     hearth_error *error)
{
    int status = 0;
    for (size_t i = 0; i < setup->sets.len && status == 0; i++) {
        const char *word = setup->sets.v[i], *equals = strchr(word, '=');
        if ((strncmp(word, "server.", strlen("server.")) == 0) != of_server) continue;
        if (!equals || equals == word) return error_at(error, HEARTH_INVALID, "set", "--set %s: write KEY=VALUE", word);
        char *given = mem_strndup(word, (size_t)(equals - word));
        char *key = full_key(only, given);
        status = hearth_config_set(config, key, equals + 1, error);
        free(key);
        free(given);
    }
    return status;
}

static void note_pulled(void *ud, const char *name)
{
    struct buf *pulled = ud;
    if (pulled) buf_printf(pulled, "\n%s\n", name);
}

/* ---- Files ---- */

/* The file that the command line or the environment names; NULL: the default files. */
static const char *named_file(const struct setup *setup)
{
    return setup->config ? setup->config : getenv("HEARTH_CONFIG");
}

static int load_files(hearth_config *config, const struct setup *setup, size_t *reported, hearth_error *error)
{
    const char *named = named_file(setup);
    if (named != NULL && named[0] == '\0') return 0;
    if (named != NULL) return hearth_config_load(config, named, setup_report, reported, error);
    char *of_user = pull_user_path("XDG_CONFIG_HOME", ".config", "/hearth.yaml");
    const char *const defaults[] = {SETUP_SYSTEM_FILE, of_user};
    int status = 0;
    /* One that may not be read is an error: it may have keys that protect the server. */
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults && status == 0; i++)
        if (defaults[i] != NULL && (access(defaults[i], F_OK) == 0 || errno == EACCES))
            status = hearth_config_load(config, defaults[i], setup_report, reported, error);
    free(of_user);
    return status;
}

/* ---- The environment ---- */

extern char **environ; /* POSIX: no header declares it */

#define PREFIX    "HEARTH_"
#define OF_MODELS "models.*."

/* Variables that are no keys. */
static const char *const others[] = {
    "HEARTH_CONFIG", "HEARTH_MODEL", "HEARTH_API_KEY", /* of clients: cli/remote.c */
    "HEARTH_MODELS", "HEARTH_NAMES",                   /* of pulling: pull/models_folder.h, pull/pull.h */
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

static int apply_keys(hearth_config *config, bool of_models, hearth_error *error)
{
    const char *key;
    int rc = HEARTH_OK;
    for (size_t i = 0; rc == HEARTH_OK && (key = hearth_config_key(i)) != NULL; i++) {
        if (is_of_models(key) != of_models) continue;
        const char *model = hearth_config_model(config, 0);
        char *variable = environment_variable(key);
        const char *value = variable == NULL ? NULL : getenv(variable);
        const bool is_set = value != NULL && value[0] != '\0';
        if (is_set && !of_models) {
            rc = hearth_config_set(config, key, value, error);
        } else if (is_set && model != NULL && hearth_config_model(config, 1) != NULL) {
            rc = error_at(error, HEARTH_INVALID, variable,
                          "%s: for one model, and there are several: write it into the configuration", variable);
        } else if (is_set && model != NULL) {
            char *full = mem_format("models.%s.%s", model, key + strlen(OF_MODELS));
            rc = hearth_config_set(config, full, value, error);
            free(full);
        }
        if (rc != HEARTH_OK && strncmp(error->message, PREFIX, strlen(PREFIX)) != 0)
            error_prefix(error, "%s: ", variable);
        free(variable);
    }
    return rc;
}

int environment_apply_server(hearth_config *config, const char *command, hearth_error *error)
{
    struct args_list known = {0};
    const char *key;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) args_append(&known, mem_strdup(others[i]));
    for (size_t i = 0; (key = hearth_config_key(i)) != NULL; i++) {
        char *variable = environment_variable(key);
        if (variable != NULL) args_append(&known, variable);
    }
    for (char **entry = environ; *entry != NULL; entry++) {
        if (strncmp(*entry, PREFIX, strlen(PREFIX)) != 0) continue;
        char *name = mem_strndup(*entry, strcspn(*entry, "="));
        bool is_known = false;
        for (size_t i = 0; i < known.len; i++) is_known = is_known || strcmp(known.v[i], name) == 0;
        /* Not an error: a cluster sets variables of its own for a service of that name, as HEARTH_PORT. */
        if (!is_known) {
            const char *nearest = nearest_name(name, known.v, known.len);
            fprintf(stderr, "%s: the environment's %s is no key of the configuration%s%s: it is ignored\n", command,
                    name, nearest != NULL ? "; the nearest is " : "", nearest != NULL ? nearest : "");
        }
        free(name);
    }
    for (size_t i = 0; i < known.len; i++) free((char *)(uintptr_t)known.v[i]);
    args_release(&known);
    return apply_keys(config, false, error);
}

int environment_apply_model(hearth_config *config, hearth_error *error)
{
    return apply_keys(config, true, error);
}

/* ---- All ---- */

/* Models by the command line, else by the environment; else all of the files, or where these name no file, the demo
 * model. */
static int set_models(hearth_config *config, const struct setup *setup, hearth_error *error)
{
    const char *of_environment = getenv("HEARTH_MODEL"), *named = named_file(setup);
    const struct args_list one = {.v = &of_environment, .len = 1};
    if (setup->models.len > 0 || setup->keys_only) return choose_models(config, &setup->models, error);
    if (of_environment != NULL && of_environment[0] != '\0') return choose_models(config, &one, error);
    bool names_file = named != NULL && named[0] != '\0';
    return names_file || hearth_config_model(config, 0) != NULL ? 0 : declare_demo(config, error);
}

/* The command line comes after the environment. Keys of the server come first: they say where pulled models are. */
static int apply(hearth_config *config, const char *command, const struct setup *setup, hearth_error *error)
{
    int status = environment_apply_server(config, command, error);
    if (status == 0) status = set_listen(config, setup, error);
    if (status == 0 && setup->log_level)
        status = hearth_config_set(config, "server.log_level", setup->log_level, error);
    if (status == 0 && setup->log_format)
        status = hearth_config_set(config, "server.log_format", setup->log_format, error);
    if (status == 0) status = set_words(config, setup, NULL, true, error);
    if (status == 0) status = set_models(config, setup, error);
    if (status == 0) status = environment_apply_model(config, error);
    char *only = hearth_config_model(config, 1) ? NULL : mem_strdup(hearth_config_model(config, 0));
    if (status == 0 && setup->mmproj && !only)
        status = error_at(error, HEARTH_INVALID, "mmproj",
                          "--mmproj %s: for one model, and there are several: set models.NAME.mmproj", setup->mmproj);
    if (status == 0 && setup->mmproj) {
        char *key = full_key(only, "mmproj");
        status = hearth_config_set(config, key, setup->mmproj, error);
        free(key);
    }
    /* Pulled models come last, so that keys that are meant for the only model do not apply to them. */
    if (status == 0) {
        const bool wanted = strcmp(hearth_config_get(config, "server.serve_pulled"), "true") == 0;
        if (setup->adds_pulled && wanted && setup->models.len == 0)
            pull_declare_all(config, note_pulled, setup->pulled);
    }
    if (status == 0) status = set_words(config, setup, only, false, error);
    free(only);
    return status;
}

hearth_config *setup_open(const char *command, const struct setup *setup, int *exit_status)
{
    hearth_config *config = hearth_config_new();
    hearth_error error = {0};
    size_t reported = 0;
    int status = load_files(config, setup, &reported, &error);
    *exit_status = EXIT_USAGE;
    if (status == 0) {
        status = apply(config, command, setup, &error);
        if (status == HEARTH_NOT_FOUND) *exit_status = EXIT_FAILED;
    }
    if (status == 0 && !setup->keys_only) status = hearth_config_check(config, setup_report, &reported, &error);
    if (status == 0 && !setup->keys_only && hearth_config_model(config, 0) == NULL)
        status =
            error_at(&error, HEARTH_INVALID, "models",
                     "%s: no models are configured: add --model FILE, or put `models: {NAME: {path: FILE}}` into it",
                     named_file(setup));
    if (status == 0) return config;
    if (reported == 0) args_fail(command, &error, *exit_status);
    hearth_config_free(config);
    return NULL;
}

int setup_run(const struct args_spec *spec, struct setup *setup, int argc, char **argv,
              int (*run)(const char *command, const hearth_config *config, void *ud), void *ud)
{
    int status;
    if (args_read(spec, argc, argv, &status)) {
        if (setup->has_operand) args_append(&setup->models, *spec->operand_value);
        hearth_config *config = setup_open(spec->command, setup, &status);
        if (config != NULL) status = run(spec->command, config, ud);
        hearth_config_free(config);
    }
    setup_release(setup);
    return status;
}
