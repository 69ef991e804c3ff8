/* Models loaded and unloaded by hand. */
#include "serve/lifecycle.h"

#include "base/error.h"
#include "serve/body.h"
#include "serve/errors.h"
#include "serve/fields.h"
#include "serve/server.h"

typedef int act(hearth *instance, const char *model, hearth_error *error);

static int act_on(struct call *call, act *does, hearth_error *error)
{
    size_t len;
    const char *text = http_body(call->http, &len);
    json_t *body = fields_parse(text, len, error);
    if (body == NULL) return HEARTH_INVALID;
    const char *model = NULL;
    int rc = body_text(body, "model", &model, error);
    if (rc == HEARTH_OK && model == NULL)
        rc = error_at(error, HEARTH_INVALID, "model", "'model' is missing: name the model");
    if (rc == HEARTH_OK) rc = does(call->server->instance, model, error);
    json_decref(body);
    return rc;
}

static void answer(struct call *call, act *does)
{
    hearth_error error;
    struct buf body = {0};
    if (act_on(call, does, &error) != HEARTH_OK) {
        call_fail(call, &error, errors_put);
        return;
    }
    buf_puts(&body, "{\"success\":true}");
    call_reply(call, 200, "application/json", &body);
}

void lifecycle_load(struct call *call)
{
    answer(call, hearth_load_model);
}

void lifecycle_unload(struct call *call)
{
    answer(call, hearth_unload);
}
