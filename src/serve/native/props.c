/* Properties of a model: see props.h. Answering threads; no state. */
#include "serve/native/props.h"

#include "base/error.h"
#include "serve/core/errors.h"
#include "serve/core/pieces.h"
#include "serve/core/server.h"
#include "serve/native/settings.h"
#include "serve/status/status.h"

#include <string.h>

static void put_string(struct buf *out, const char *name, const char *text)
{
    buf_puts(out, ",");
    member_puts(out, name, text);
}

/* The file name without its directory, so that clients learn nothing of the file system. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

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
    put_string(&body, "model_alias", info.name);
    put_string(&body, "model_ftype", info.weights_type);
    put_string(&body, "model_path", base_name(info.path));
    buf_printf(&body, ",\"modalities\":{\"vision\":%s,\"video\":%s,\"audio\":%s}", info.images ? "true" : "false",
               info.videos ? "true" : "false", info.sounds ? "true" : "false");
    buf_puts(&body, ",\"endpoint_slots\":true,\"endpoint_props\":false,\"endpoint_metrics\":true");
    put_string(&body, "chat_template", info.chat_template);
    buf_printf(&body, ",\"chat_template_caps\":%s", info.chat_template_caps);
    put_string(&body, "bos_token", info.bos_text);
    put_string(&body, "eos_token", info.eos_text);
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
    put_string(&body, "eos_token", info.eos_text);
    put_string(&body, "chat_template", info.chat_template);
    buf_printf(&body, ",\"model_max_length\":%d}", info.context_window);
    call_reply(call, 200, "application/json", &body);
}

void props_refuse(struct call *call)
{
    hearth_error error;
    error_set(&error, HEARTH_UNSUPPORTED,
              "properties cannot be changed while the server runs: set them in the configuration, or in each request");
    call_fail(call, &error, errors_put);
}
