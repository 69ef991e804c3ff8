/* Properties and adapters of a model, in llama-server's form. Answers contain the names of files without directories,
 * so that clients learn nothing of the file system. GET routes run on an answering thread, the others on the HTTP
 * thread. No state. */
#include "serve/native/native.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "serve/core/errors.h"
#include "serve/core/pieces.h"
#include "serve/core/reading.h"
#include "serve/core/server.h"
#include "serve/fields/fields.h"
#include "serve/status/status.h"

#include <stdlib.h>
#include <string.h>

void props_show(struct call *call)
{
    hearth_model_info info;
    size_t index;
    if (!status_find_model(call, http_query(call->http, "model"), &index, &info)) return;
    struct buf body = {0};
    struct fields nothing = {.params = hearth_params_default()};
    hearth_sampling sampling = nothing.params.sampling;
    hearth_model_sampling(call->server->instance, index, &sampling);
    buf_puts(&body, "{\"default_generation_settings\":{\"params\":{");
    settings_put_sampling(&body, &sampling);
    buf_puts(&body, ",");
    settings_put_request(&body, &nothing);
    buf_printf(&body, "},\"n_ctx\":%d}", info.context_window);
    buf_printf(&body, ",\"total_slots\":%d", info.n_slots);
    member_puts(&body, "model_alias", info.name);
    member_puts(&body, "model_ftype", info.weights_type);
    const char *slash = strrchr(info.path, '/');
    member_puts(&body, "model_path", slash == NULL ? info.path : slash + 1);
    buf_printf(&body, ",\"modalities\":{\"vision\":%s,\"video\":%s,\"audio\":%s}", info.images ? "true" : "false",
               info.videos ? "true" : "false", info.sounds ? "true" : "false");
    buf_puts(&body, ",\"endpoint_slots\":true,\"endpoint_props\":false,\"endpoint_metrics\":true");
    member_puts(&body, "chat_template", info.chat_template);
    buf_printf(&body, ",\"chat_template_caps\":%s", info.chat_template_caps);
    member_puts(&body, "bos_token", info.bos_text);
    member_puts(&body, "eos_token", info.eos_text);
    /* llama-server sleeps when it has unloaded its model: the next request loads it again. */
    bool sleeps = info.state == HEARTH_MODEL_UNLOADED;
    buf_printf(&body, ",\"build_info\":\"hearth-%s\",\"is_sleeping\":%s}", hearth_version(), sleeps ? "true" : "false");
    call_reply(call, 200, "application/json", &body);
}

/* vLLM's, which lm-eval asks. */
void props_tokenizer(struct call *call)
{
    hearth_model_info info;
    size_t index;
    if (!status_find_model(call, http_query(call->http, "model"), &index, &info)) return;
    struct buf body = {0};
    buf_puts(&body, "{");
    member_puts(&body, "bos_token", info.bos_text);
    member_puts(&body, "eos_token", info.eos_text);
    member_puts(&body, "chat_template", info.chat_template);
    buf_printf(&body, ",\"model_max_length\":%d}", info.context_window);
    call_reply(call, 200, "application/json", &body);
}

void props_refuse(struct call *call)
{
    call_refuse(
        call, errors_put, HEARTH_UNSUPPORTED, "",
        "properties cannot be changed while the server runs: set them in the configuration, or in each request");
}

/* ---- LoRA adapters ---- */

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
    int rc = hearth_lora_set(call->server->instance, model_of(call), scales->v, scales->n, &error);
    release_scales(ud);
    if (rc == HEARTH_OK)
        call_reply_success(call);
    else
        call_fail(call, &error, errors_put);
}

const struct reading_form adapters_set = READING_FORM(read_scales, scales_size, set, release_scales, errors_put);
