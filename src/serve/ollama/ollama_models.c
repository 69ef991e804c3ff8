/* Ollama's routes that tell of models and of the server's version. Models are files as they are: routes that would make
 * others of them are refused with advice. HTTP thread or answering threads; no state. */
#include "serve/ollama/ollama.h"

#include "base/memory.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "serve/core/models.h"
#include "serve/core/pieces.h"
#include "serve/core/reading.h"
#include "serve/core/server.h"
#include "serve/fields/body.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The version of Ollama whose API this is: some clients refuse older ones. */
#define API_VERSION "0.12.11"

/* "expires_at" of a model that stays. */
#define NEVER "9999-12-31T23:59:59Z"

/* ---- Pieces ---- */

/* `parent`: the model of a preset; "" of a model. */
static void put_details(struct buf *out, const hearth_model_info *info, const char *parent)
{
    buf_puts(out, ",\"details\":{");
    member_puts(out, "parent_model", parent);
    member_puts(out, "format", "gguf");
    member_puts(out, "family", info->architecture);
    buf_puts(out, ",\"families\":[");
    utf8_put_json_string(out, info->architecture, strlen(info->architecture));
    buf_puts(out, "],\"parameter_size\":\"");
    /* "8.0B" */
    const double n = (double)info->n_params, unit = n >= 1e9 ? 1e9 : n >= 1e6 ? 1e6 : 1e3;
    if (n >= unit)
        buf_printf(out, "%.1f%c", n / unit, n >= 1e9 ? 'B' : n >= 1e6 ? 'M' : 'K');
    else
        buf_printf(out, "%.0f", n);
    buf_puts(out, "\",\"quantization_level\":\"");
    /* llama.cpp's "(guessed) all F32", "Q8_0" and "Q4_K - Medium" are "F32", "Q8_0" and "Q4_K_M". */
    const char *name = info->weights_type;
    static const char *const before[] = {"(guessed) ", "all "};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        if (strncmp(name, before[i], strlen(before[i])) == 0) name += strlen(before[i]);
    const char *size = strstr(name, " - ");
    buf_append(out, name, strcspn(name, " "));
    if (size != NULL && strchr("SML", size[3]) != NULL) buf_printf(out, "_%c", size[3]);
    buf_puts(out, "\"}");
}

static void put_modified(struct buf *out, const hearth_model_info *info)
{
    buf_puts(out, ",\"modified_at\":\"");
    ollama_put_time(out, info->created * 1000);
    buf_puts(out, "\"");
}

/* ---- Lists ---- */

void ollama_version(struct call *call)
{
    struct buf body = {0};
    buf_printf(&body, "{\"version\":\"" API_VERSION "\",\"hearth\":\"%s\"}", hearth_version());
    call_reply(call, 200, "application/json", &body);
}

/* Ollama has no reranking, so that reranking models are not listed. */
static bool is_known_kind(const hearth_model_info *info)
{
    return info->type != HEARTH_MODEL_RERANK;
}

/* Appends one to a list. */
static void put_listed(struct buf *out, const hearth_model_info *info, const char *parent,
                       void (*put_more)(struct buf *out, const hearth_model_info *))
{
    if (out->v[out->len - 1] != '[') buf_puts(out, ",");
    /* Names with a tag, as Ollama writes them; requests may leave it out. */
    char *name = mem_format("%s%s", info->name, strchr(info->name, ':') == NULL ? ":latest" : "");
    buf_puts(out, "{");
    member_puts(out, "name", name);
    member_puts(out, "model", name);
    free(name);
    put_modified(out, info);
    buf_printf(out, ",\"size\":%llu", (unsigned long long)info->size_bytes);
    /* A digest that distinguishes models of one name. It is not the file's digest. */
    uint8_t digest[SHA256_BYTES];
    char hex[2 * SHA256_BYTES + 1];
    char *text = mem_format("%s\n%s\n%llu\n%llu", info->name, info->description, (unsigned long long)info->size_bytes,
                            (unsigned long long)info->n_params);
    sha256_of(text, strlen(text), digest);
    sha256_to_hex(digest, hex);
    member_puts(out, "digest", hex);
    free(text);
    put_details(out, info, parent);
    if (put_more != NULL) put_more(out, info);
    buf_puts(out, "}");
}

void ollama_tags(struct call *call)
{
    struct buf body = {0};
    hearth_model_info info;
    const hearth_preset *preset;
    const hearth *instance = call->server->instance;
    buf_puts(&body, "{\"models\":[");
    for (size_t i = 0; models_next(instance, &i, &info); i++)
        if (is_known_kind(&info)) put_listed(&body, &info, "", NULL);
    for (size_t i = 0; models_next_preset(instance, &i, &info, &preset); i++) {
        if (is_known_kind(&info)) put_listed(&body, &info, preset->model, NULL);
        hearth_release_preset(preset);
    }
    buf_puts(&body, "]}");
    call_reply(call, 200, "application/json", &body);
}

static void put_running(struct buf *out, const hearth_model_info *info)
{
    buf_puts(out, ",\"expires_at\":\"");
    if (info->idle_left < 0)
        buf_puts(out, NEVER);
    else
        ollama_put_time(out, clock_unix_ms() + (int64_t)(info->idle_left * 1e3));
    buf_printf(out, "\",\"size_vram\":0,\"context_length\":%d", info->context_window);
}

void ollama_ps(struct call *call)
{
    struct buf body = {0};
    hearth_model_info info;
    buf_puts(&body, "{\"models\":[");
    for (size_t i = 0; models_next(call->server->instance, &i, &info); i++)
        if (is_known_kind(&info) && info.state == HEARTH_MODEL_LOADED) put_listed(&body, &info, "", put_running);
    buf_puts(&body, "]}");
    call_reply(call, 200, "application/json", &body);
}

/* ---- One model ---- */

/* The preset's number, or else the model's. */
static void put_parameter(struct buf *out, const char *name, double of_preset, double of_model)
{
    double value = isnan(of_preset) ? of_model : of_preset;
    if (isfinite(value)) buf_printf(out, "\n%-30s %g", name, value);
}

/* The default parameters, as lines of a Modelfile. `preset`: NULL: none. */
static void put_parameters(struct buf *out, const hearth *instance, size_t index, const hearth_model_info *info,
                           const hearth_preset *preset)
{
    const hearth_sampling none = hearth_params_default().sampling, *own = preset == NULL ? &none : &preset->sampling;
    hearth_sampling s = none;
    struct buf text = {0};
    hearth_model_sampling(instance, index, &s);
    int32_t top_k = own->top_k == HEARTH_UNSET ? s.top_k : own->top_k;
    buf_printf(&text, "%-30s %d", "num_ctx", info->context_window);
    if (info->type == HEARTH_MODEL_CHAT) {
        put_parameter(&text, "temperature", own->temperature, s.temperature);
        if (top_k != HEARTH_UNSET) put_parameter(&text, "top_k", top_k, top_k);
        put_parameter(&text, "top_p", own->top_p, s.top_p);
        put_parameter(&text, "min_p", own->min_p, s.min_p);
        put_parameter(&text, "repeat_penalty", own->repeat_penalty, s.repeat_penalty);
    }
    member_put(out, "parameters", text.v, text.len);
    buf_release(&text);
}

/* Words of the template show which features the model supports. */
static void put_capabilities(struct buf *out, const hearth_model_info *info)
{
    static const char *const thinking[] = {"enable_thinking", "reasoning_effort", "reasoning_content", "<think>"};
    bool is_chat = info->type == HEARTH_MODEL_CHAT, thinks = false;
    for (size_t i = 0; is_chat && i < sizeof thinking / sizeof *thinking; i++)
        thinks = thinks || strstr(info->chat_template, thinking[i]) != NULL;
    buf_printf(out, ",\"capabilities\":[\"%s\"", is_chat ? "completion" : hearth_model_type_name(info->type));
    if (info->images) buf_puts(out, ",\"vision\"");
    if (info->sounds) buf_puts(out, ",\"audio\"");
    if (is_chat && strstr(info->chat_template, "tools") != NULL) buf_puts(out, ",\"tools\"");
    if (thinks) buf_puts(out, ",\"thinking\"");
    buf_puts(out, "]");
}

static void put_number(struct buf *out, const hearth_model_info *info, const char *name, int32_t value)
{
    char *full = mem_format("%s.%s", info->architecture, name);
    buf_puts(out, ",");
    utf8_put_json_string(out, full, strlen(full));
    buf_printf(out, ":%d", value);
    free(full);
}

static void show(struct call *call, void *name)
{
    hearth_model_info info;
    hearth_error error;
    struct buf body = {0};
    const hearth *instance = call->server->instance;
    int32_t index = hearth_find_model(instance, name, &error);
    const hearth_preset *preset = hearth_find_preset(instance, name);
    free(name);
    if (index < 0 || !hearth_model(instance, (size_t)index, &info)) {
        call_fail(call, &error, ollama_put_error);
        hearth_release_preset(preset);
        return;
    }
    buf_puts(&body, "{\"modelfile\":\"\"");
    put_parameters(&body, instance, (size_t)index, &info, preset);
    bool has_own = preset != NULL && preset->template_ != NULL;
    member_puts(&body, "template", has_own ? preset->template_ : info.chat_template);
    if (preset != NULL && preset->system != NULL) member_puts(&body, "system", preset->system);
    put_details(&body, &info, preset == NULL ? "" : preset->model);
    hearth_release_preset(preset);
    /* context_length is the configured context window, not the model's maximum: clients fit their prompts to it. */
    buf_puts(&body, ",\"model_info\":{");
    member_puts(&body, "general.architecture", info.architecture);
    buf_printf(&body, ",\"general.parameter_count\":%llu", (unsigned long long)info.n_params);
    put_number(&body, &info, "context_length", info.context_window);
    put_number(&body, &info, "embedding_length", info.n_embd);
    put_number(&body, &info, "block_count", info.n_layer);
    put_number(&body, &info, "vocab_size", info.n_vocab);
    buf_puts(&body, "}");
    put_capabilities(&body, &info);
    put_modified(&body, &info);
    buf_puts(&body, "}");
    call_reply(call, 200, "application/json", &body);
}

static void *read_name(struct buf *body, hearth_error *error)
{
    return body_read_name(body, "name", error); /* the older name of "model" */
}

const struct reading_form ollama_show = READING_FORM(read_name, body_name_size, show, free, ollama_put_error);

/* ---- Refused routes ---- */

void ollama_refuse(struct call *call)
{
    call_refuse(
        call, ollama_put_error, HEARTH_INVALID, "",
        "models' files are not made or pushed by requests: POST /api/pull fetches one, POST /api/create makes a "
        "name with "
        "a system message and parameters for one, or name a GGUF file in the "
        "configuration as models.NAME.path (models.NAME.aliases gives it more names), and start hearth anew");
}
