/* The routes of adapters. What is told of a file is its name alone: where it lies is nobody's business. */
#include "serve/adapters.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "serve/errors.h"
#include "serve/server.h"

#include <stdlib.h>
#include <string.h>

static const char *model_of(const struct call *call)
{
    return http_query(call->http, "model");
}

void adapters_list(struct call *call)
{
    hearth_error error;
    hearth *instance = call->server->instance;
    int32_t n = hearth_lora_list(instance, model_of(call), NULL, 0, &error);
    if (n < 0) {
        call_fail(call, &error, errors_put);
        return;
    }
    hearth_adapter *adapters = mem_alloc(((size_t)n + 1) * sizeof *adapters);
    hearth_lora_list(instance, model_of(call), adapters, (size_t)n, &error);
    struct buf body = {0};
    buf_puts(&body, "[");
    for (int32_t i = 0; i < n; i++) {
        buf_printf(&body, "%s{\"id\":%d,\"path\":", i > 0 ? "," : "", adapters[i].id);
        utf8_put_json_string(&body, adapters[i].file, strlen(adapters[i].file));
        buf_printf(&body, ",\"scale\":%.9g}", adapters[i].scale);
    }
    buf_puts(&body, "]");
    free(adapters);
    call_reply(call, 200, "application/json", &body);
}

static int set(struct call *call, hearth_error *error)
{
    size_t len, n;
    hearth_lora *lora;
    const char *body = http_body(call->http, &len);
    json_t *list = json_loadb(body, len, 0, NULL);
    int rc = fields_read_lora(list, &lora, &n, error);
    json_decref(list);
    if (rc == HEARTH_OK) rc = hearth_lora_set(call->server->instance, model_of(call), lora, n, error);
    free(lora);
    return rc;
}

void adapters_set(struct call *call)
{
    hearth_error error;
    struct buf body = {0};
    if (set(call, &error) != HEARTH_OK) {
        call_fail(call, &error, errors_put);
        return;
    }
    buf_puts(&body, "{\"success\":true}");
    call_reply(call, 200, "application/json", &body);
}
