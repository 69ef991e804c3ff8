/* The routes of LoRA adapters. Answers contain the file's name without its directory, so that clients learn nothing
 * of the file system. HTTP thread; the list on an answering thread; no state. */
#include "serve/native/lora_adapters.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "serve/core/errors.h"
#include "serve/core/reading.h"
#include "serve/core/server.h"
#include "serve/fields/fields.h"

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

struct scales {
    hearth_lora *v;
    size_t n;
};

static void release_scales(void *ud)
{
    struct scales *scales = ud;
    free(scales->v);
    free(scales);
}

static void *read_scales(struct buf *body, hearth_error *error)
{
    json_t *list = fields_parse_any(buf_text(body), body->len, error);
    struct scales *scales = mem_alloc(sizeof *scales);
    int rc = fields_read_lora(list, &scales->v, &scales->n, error);
    json_decref(list);
    if (rc == HEARTH_OK) return scales;
    release_scales(scales);
    return NULL;
}

static size_t scales_size(const void *ud)
{
    const struct scales *scales = ud;
    return scales->n * sizeof *scales->v;
}

static void set(struct call *call, void *ud)
{
    const struct scales *scales = ud;
    hearth_error error;
    struct buf body = {0};
    int rc = hearth_lora_set(call->server->instance, model_of(call), scales->v, scales->n, &error);
    release_scales(ud);
    if (rc != HEARTH_OK) {
        call_fail(call, &error, errors_put);
        return;
    }
    buf_puts(&body, "{\"success\":true}");
    call_reply(call, 200, "application/json", &body);
}

void adapters_set(struct call *call)
{
    static const struct reading_form form = {
        .read = read_scales, .size = scales_size, .answer = set, .release = release_scales, .put_error = errors_put};
    reading_start(call, &form);
}
