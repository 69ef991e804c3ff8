/* Loading and unloading of models by request: see lifecycle.h. */
#include "serve/status/lifecycle.h"

#include "base/error.h"
#include "base/memory.h"
#include "serve/core/errors.h"
#include "serve/core/reading.h"
#include "serve/core/server.h"
#include "serve/fields/body.h"
#include "serve/fields/fields.h"

#include <stdlib.h>
#include <string.h>

typedef int act(hearth *instance, const char *model, hearth_error *error);

/* Parses the body to the model's name. */
static void *read_name(struct buf *body, hearth_error *error)
{
    json_t *tree = fields_parse_body(body, error);
    const char *model = NULL;
    if (tree == NULL) return NULL;
    int rc = body_text(tree, "model", &model, error);
    if (rc == HEARTH_OK && model == NULL)
        error_at(error, HEARTH_INVALID, "model", "'model' is missing: name the model");
    char *name = mem_strdup(model);
    json_decref(tree);
    return name;
}

static size_t name_size(const void *name)
{
    return strlen(name);
}

static void act_on(struct call *call, act *does, char *name)
{
    hearth_error error;
    struct buf body = {0};
    int rc = does(call->server->instance, name, &error);
    free(name);
    if (rc != HEARTH_OK) {
        call_fail(call, &error, errors_put);
        return;
    }
    buf_puts(&body, "{\"success\":true}");
    call_reply(call, 200, "application/json", &body);
}

static void load(struct call *call, void *name)
{
    act_on(call, hearth_load_model, name);
}

static void unload(struct call *call, void *name)
{
    act_on(call, hearth_unload_model, name);
}

void lifecycle_load(struct call *call)
{
    static const struct reading_form form = {
        .read = read_name, .size = name_size, .answer = load, .release = free, .put_error = errors_put};
    reading_start(call, &form);
}

void lifecycle_unload(struct call *call)
{
    static const struct reading_form form = {
        .read = read_name, .size = name_size, .answer = unload, .release = free, .put_error = errors_put};
    reading_start(call, &form);
}
