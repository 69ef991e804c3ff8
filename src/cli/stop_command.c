/* hearth stop: has a running server unload a model, and waits until it is out of memory. Main thread. */
#include "base/clock.h"
#include "base/error.h"
#include "base/nearest.h"
#include "cli/args.h"
#include "cli/command.h"
#include "cli/remote.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define COMMAND "hearth stop"

/* How long unloading may take, which stores what is in the cells; and how often the server is asked. */
#define PATIENCE_MS 300000
#define EVERY_MS    50

/* ---- The state of a model ---- */

static const char *name_of(const json_t *model)
{
    const char *name = json_string_value(json_object_get(model, "id"));
    return name != NULL ? name : "";
}

static int refuse_name(const json_t *models, const char *name, hearth_error *error)
{
    struct args_list names = {0};
    struct buf list = {0};
    for (size_t i = 0; i < json_array_size(models); i++) {
        args_append(&names, name_of(json_array_get(models, i)));
        buf_printf(&list, "%s%s", i > 0 ? ", " : "", names.v[i]);
    }
    const char *nearest = nearest_name(name, names.v, names.len);
    error_at(error, HEARTH_NOT_FOUND, "model", "there is no model '%s'%s%s%s; there is: %.300s", name,
             nearest != NULL ? "; did you mean '" : "", nearest != NULL ? nearest : "", nearest != NULL ? "'?" : "",
             list.len > 0 ? list.v : "none");
    buf_release(&list);
    args_release(&names);
    return HEARTH_NOT_FOUND;
}

/* Copies the model's state ("loaded") into `state`. */
static int ask_state(const struct remote *remote, const char *name, char state[32], hearth_error *error)
{
    json_t *answer = remote_ask_json(remote, "/v1/models", NULL, error);
    const json_t *models = json_object_get(answer, "data"), *found = NULL;
    if (answer == NULL) return error->code;
    for (size_t i = 0; i < json_array_size(models) && found == NULL; i++)
        if (strcmp(name_of(json_array_get(models, i)), name) == 0) found = json_array_get(models, i);
    const char *value = json_string_value(json_object_get(json_object_get(found, "status"), "value"));
    snprintf(state, 32, "%s", value != NULL ? value : "");
    const int rc = found != NULL ? HEARTH_OK : refuse_name(models, name, error);
    json_decref(answer);
    return rc;
}

/* ---- Unloading ---- */

static int ask_unload(const struct remote *remote, const char *name, hearth_error *error)
{
    json_t *body = json_pack("{s:s}", "model", name);
    json_t *answer = remote_ask_json(remote, "/models/unload", body, error);
    const int rc = answer != NULL ? HEARTH_OK : (int)error->code;
    json_decref(body);
    json_decref(answer);
    return rc;
}

/* Waits while it is being unloaded. */
static int await_end(const struct remote *remote, const char *name, char state[32], hearth_error *error)
{
    const struct timespec pause = {.tv_nsec = EVERY_MS * 1000000};
    const int64_t deadline = clock_now(clock_monotonic()) + clock_from_ms(PATIENCE_MS);
    int rc;
    while ((rc = ask_state(remote, name, state, error)) == HEARTH_OK && strcmp(state, "unloading") == 0) {
        if (clock_now(clock_monotonic()) > deadline)
            return error_set(error, HEARTH_BUSY, "%s is still being unloaded: hearth ps shows when it is done", name);
        nanosleep(&pause, NULL);
    }
    return rc;
}

static int stop_model(const struct remote *remote, const char *name, hearth_error *error)
{
    char state[32];
    int rc = ask_state(remote, name, state, error);
    if (rc == HEARTH_OK && (strcmp(state, "unloaded") == 0 || strcmp(state, "failed") == 0)) {
        printf("%s is not loaded\n", name);
        return HEARTH_OK;
    }
    if (rc == HEARTH_OK && strcmp(state, "unloading") != 0) rc = ask_unload(remote, name, error);
    if (rc == HEARTH_BUSY) error_prefix(error, "%s stays loaded while it has requests: ", name);
    if (rc == HEARTH_OK) rc = await_end(remote, name, state, error);
    if (rc == HEARTH_OK)
        printf(strcmp(state, "unloaded") == 0 ? "%s is unloaded\n" : "%s was unloaded; a request loads it again\n",
               name);
    return rc;
}

static int run_stop(const char *url, const char *name)
{
    hearth_error error;
    struct remote remote = remote_open(url);
    const int rc = stop_model(&remote, name, &error);
    remote_close(&remote);
    return rc == HEARTH_OK ? EXIT_FINE : args_fail(COMMAND, &error, EXIT_FAILED);
}

int command_stop(int argc, char **argv)
{
    const char *url = REMOTE_DEFAULT, *name = NULL;
    const struct args_option options[] = {{"server", "URL", "the server (" REMOTE_DEFAULT ")", .text = &url}};
    const struct args_spec spec = {
        .command = COMMAND,
        .about =
            "Has a running server unload a model, and waits until its memory is free. What its cells hold is stored\n"
            "first; a later request loads it again. A model that has requests is not unloaded: the exit status is 1\n"
            "then. Where the server wants an API key, set HEARTH_API_KEY to one with the grants models and admin.",
        .options = options,
        .n_options = sizeof options / sizeof *options,
        .operand = "MODEL",
        .operand_value = &name,
        .examples = "  hearth stop demo\n"
                    "  hearth stop Qwen3-8B-Q8_0 --server http://10.0.0.5:8080\n",
    };
    int status;
    return args_read(&spec, argc, argv, &status) ? run_stop(url, name) : status;
}
