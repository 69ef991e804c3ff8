/* Ollama's dialect: an object, or a stream of NDJSON lines, the last of which has counts and times. The exchange
 * owns its state; answering threads, but for what begins it. */
#include "serve/ollama/ollama.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "serve/core/answer.h"
#include "serve/core/errors.h"
#include "serve/core/pieces.h"
#include "serve/core/server.h"
#include "serve/fields/unknown.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct ollama {
    char *model;
    bool is_chat;
    size_t n_emitted; /* calls that were streamed */
};

/* ---- Pieces ---- */

void ollama_put_time(struct buf *out, int64_t unix_ms)
{
    char text[32];
    time_t when = (time_t)(unix_ms / 1000);
    struct tm tm;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", gmtime_r(&when, &tm));
    buf_printf(out, "%s.%03dZ", text, (int)(unix_ms % 1000));
}

/* The content of a piece or of a whole answer. */
struct content {
    const char *text, *thinking;
    size_t len, thinking_len;
    const struct answer_call *calls;
    size_t first_call, n_calls; /* [first_call, n_calls) of the answer's */
};

/* {"model":…,"created_at":…, the content; the object stays open. */
static void put_content(struct buf *out, const struct ollama *state, const struct content *content)
{
    buf_puts(out, "{");
    member_puts(out, "model", state->model);
    buf_puts(out, ",\"created_at\":\"");
    ollama_put_time(out, clock_unix_ms());
    buf_puts(out, state->is_chat ? "\",\"message\":{\"role\":\"assistant\"," : "\",");
    member_put(out, state->is_chat ? "content" : "response", content->text, content->len);
    if (content->thinking_len != 0) member_put(out, "thinking", content->thinking, content->thinking_len);
    for (size_t i = content->first_call; i < content->n_calls; i++) {
        buf_puts(out, i == content->first_call ? ",\"tool_calls\":[{" : ",{");
        member_puts(out, "id", content->calls[i].id);
        buf_printf(out, ",\"function\":{\"index\":%zu,", i);
        member_puts(out, "name", content->calls[i].name);
        buf_puts(out, ",\"arguments\":");
        answer_put_arguments(out, &content->calls[i]);
        buf_puts(out, i + 1 == content->n_calls ? "}}]" : "}}");
    }
    if (state->is_chat) buf_puts(out, "}");
}

static void put_logprobs(struct buf *out, struct token_logprobs *const *logprobs, size_t n)
{
    buf_puts(out, ",\"logprobs\":[");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buf_puts(out, ",");
        token_logprobs_put_openai(out, logprobs[i]);
    }
    buf_puts(out, "]");
}

static long long nanoseconds(double ms)
{
    return (long long)(ms * 1e6);
}

/* prompt_eval_count has cached tokens too, as with Ollama; the timings list them apart. load_duration is the wait
 * for the model and for a slot. */
static void put_end(struct buf *out, const hearth_result *r)
{
    buf_printf(out,
               ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%lld,\"load_duration\":%lld,"
               "\"prompt_eval_count\":%d,\"prompt_eval_duration\":%lld,\"eval_count\":%d,\"eval_duration\":%lld",
               r->finish == HEARTH_FINISH_LENGTH ? "length" : "stop",
               nanoseconds(r->queue_ms + r->prompt_ms + r->predicted_ms), nanoseconds(r->queue_ms), r->n_prompt,
               nanoseconds(r->prompt_ms), r->predicted_n, nanoseconds(r->predicted_ms));
    timings_put(out, r);
    buf_puts(out, "}");
}

/* ---- Whole answers ---- */

static void put_whole(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)n; /* 1 */
    const struct answer *answer = &answers[0];
    put_content(out, state,
                &(struct content){.text = answer->text.v,
                                  .len = answer->text.len,
                                  .thinking = answer->reasoning.v,
                                  .thinking_len = answer->reasoning.len,
                                  .calls = answer->calls,
                                  .n_calls = answer->n_calls});
    if (answer->n_logprobs > 0) put_logprobs(out, answer->logprobs, answer->n_logprobs);
    put_end(out, &answer->result);
}

/* ---- Streams ---- */

static void put_line(struct buf *out, const struct ollama *state, const struct content *content)
{
    put_content(out, state, content);
    buf_puts(out, ",\"done\":false}\n");
}

/* Streams those of the answer's first `n` calls that were not streamed yet. Ollama's arguments are an object, so
 * that a call is sent once it is complete. */
static void emit_calls(struct ollama *state, const struct answer *answer, size_t n, struct buf *out)
{
    if (n <= state->n_emitted) return;
    put_line(out, state, &(struct content){.calls = answer->calls, .first_call = state->n_emitted, .n_calls = n});
    state->n_emitted = n;
}

static void put_more(void *ud, const struct exchange_piece *piece, struct buf *out)
{
    struct ollama *state = ud;
    const hearth_delta *delta = piece->delta;
    struct token_logprobs *logprobs = (struct token_logprobs *)piece->logprobs;
    struct content content = {0};
    const struct answer *answer = piece->answer;
    /* The last call is complete when another part has begun. */
    bool in_call = answer->n_parts > 0 && answer->parts[answer->n_parts - 1].type == HEARTH_DELTA_CALL;
    emit_calls(state, answer, answer->n_calls - (in_call ? 1 : 0), out);
    if (delta != NULL && delta->type == HEARTH_DELTA_REASONING) {
        content.thinking = delta->text;
        content.thinking_len = delta->len;
    } else if (delta != NULL && delta->type == HEARTH_DELTA_CONTENT) {
        content.text = delta->text;
        content.len = delta->len;
    }
    if (content.len == 0 && content.thinking_len == 0 && logprobs == NULL) return;
    put_content(out, state, &content);
    if (logprobs != NULL) put_logprobs(out, &logprobs, 1);
    buf_puts(out, ",\"done\":false}\n");
}

static void put_done(void *state, size_t index, const struct answer *answer, struct buf *out)
{
    (void)index; /* 0 */
    emit_calls(state, answer, answer->n_calls, out);
    put_content(out, state, &(struct content){0});
    put_end(out, &answer->result);
    buf_puts(out, "\n");
}

static void put_ended(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)answers, (void)n, (void)out; /* "done":true ends the stream */
}

/* A keep-alive is a line without text: clients parse each line as an object, so that it cannot be empty. */
static void put_ping(void *state, struct buf *out)
{
    put_line(out, state, &(struct content){0});
}

void ollama_put_error(struct buf *out, const hearth_error *error, const char *request_id)
{
    (void)request_id;
    hearth_error renamed = ollama_rename(error);
    buf_puts(out, "{\"error\":");
    errors_put_message(out, renamed.message);
    buf_puts(out, "}");
}

static void put_broken(void *state, const hearth_error *error, struct buf *out)
{
    (void)state;
    ollama_put_error(out, error, NULL);
    buf_puts(out, "\n");
}

/* ---- State ---- */

void *ollama_state(const char *model, bool is_chat)
{
    struct ollama *state = mem_alloc(sizeof *state);
    state->model = mem_strdup(model);
    state->is_chat = is_chat;
    return state;
}

static void release(void *ud)
{
    struct ollama *state = ud;
    free(state->model);
    free(state);
}

const struct dialect ollama_dialect = {.started = exchange_put_no_start,
                                       .more = put_more,
                                       .done = put_done,
                                       .ended = put_ended,
                                       .broken = put_broken,
                                       .ping = put_ping,
                                       .stream_type = "application/x-ndjson",
                                       .whole = put_whole,
                                       .error = ollama_put_error,
                                       .release = release};

/* ---- Loading and unloading ---- */

static void put_only_done(struct buf *out, const struct ollama *state, const char *reason)
{
    put_content(out, state, &(struct content){0});
    buf_printf(out, ",\"done\":true,\"done_reason\":\"%s\"}", reason);
}

static void put_loaded(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)answers, (void)n;
    put_only_done(out, state, "load");
}

/* Never streamed. */
static const struct dialect load_dialect = {.whole = put_loaded, .error = ollama_put_error, .release = release};

/* Loads a model by a request for the tokens of an empty prompt, which waits for the model only. */
static void load_model(struct call *call, struct ollama_request *request)
{
    hearth_params params = hearth_params_default();
    params.model = request->model;
    params.text = "";
    params.without_bos_eos = true;
    params.only_prompt = true;
    exchange_start(call,
                   &(struct exchange_plan){.dialect = &load_dialect,
                                           .state = ollama_state(call_model(call, request->model), request->is_chat),
                                           .choices = &params,
                                           .n_choices = 1,
                                           .owner = request,
                                           .release_owner = ollama_close});
}

/* Unloads the model if the API key has the admin grant. */
static void unload_model(struct call *call, struct ollama_request *request)
{
    hearth_error error;
    struct buf body = {0};
    struct ollama *state = ollama_state(call_model(call, request->model), request->is_chat);
    hearth *instance = call->server->instance;
    hearth_model_info info;
    int32_t index = hearth_find_model(instance, request->model, &error);
    int rc = index < 0 ? index : HEARTH_OK;
    if (index >= 0 && call_may(call, KEYS_ADMIN) && hearth_model(instance, (size_t)index, &info)) {
        rc = hearth_unload_model(instance, info.name, &error);
        /* A model in use stays, which is no error, and neither is one that is not loaded. */
        if (rc == HEARTH_BUSY || rc == HEARTH_INVALID) rc = HEARTH_OK;
    }
    put_only_done(&body, state, "unload");
    release(state);
    ollama_close(request);
    if (rc == HEARTH_OK) {
        call_reply(call, 200, "application/json", &body);
        return;
    }
    buf_release(&body);
    call_fail(call, &error, ollama_put_error);
}

/* ---- Routes ---- */

/* Says that num_ctx exceeds the context window, which only the configuration sets. */
static void note_window(const struct call *call, const struct ollama_request *request)
{
    hearth_model_info info;
    hearth_error error;
    const hearth *instance = call->server->instance;
    int32_t index = request->num_ctx == 0 ? -1 : hearth_find_model(instance, request->model, &error);
    if (index < 0 || !hearth_model(instance, (size_t)index, &info) || request->num_ctx <= info.context_window) return;
    char window[16];
    snprintf(window, sizeof window, "%d", info.context_window);
    http_set_header(call->http, "X-Hearth-Context-Window", window);
    log_event(LOG_INFO, "serve", "num_ctx is above the context window, which holds", log_str("model", info.name),
              log_int("num_ctx", request->num_ctx), log_int("context_window", info.context_window));
}

static void answer(struct call *call, void *ud)
{
    struct ollama_request *request = ud;
    /* How long models stay is the administrator's to say, where there are keys. */
    hearth_error error;
    hearth *instance = call->server->instance;
    bool asks = request->has_keep && !request->unload && call_may(call, KEYS_ADMIN);
    int32_t index = asks ? hearth_find_model(instance, request->model, &error) : -1;
    hearth_model_info info;
    if (index >= 0 && hearth_model(instance, (size_t)index, &info))
        hearth_keep_model(instance, info.name, request->keep, NULL);
    note_window(call, request);
    if (request->fields != NULL) {
        struct fields *fields = request->fields;
        unknown_report(call, fields);
        fields->n = 1; /* the API has one choice */
        struct exchange_plan plan = {.dialect = &ollama_dialect,
                                     .state = ollama_state(call_model(call, request->model), request->is_chat),
                                     .stream = fields->stream,
                                     .owner = request,
                                     .release_owner = ollama_close};
        fields_start(call, fields, plan);
    } else {
        (request->unload ? unload_model : load_model)(call, request);
    }
}

static void *read_chat(struct buf *body, hearth_error *error)
{
    json_t *tree = fields_parse_body(body, error);
    return tree == NULL ? NULL : ollama_read(tree, true, error);
}

static void *read_generate(struct buf *body, hearth_error *error)
{
    json_t *tree = fields_parse_body(body, error);
    return tree == NULL ? NULL : ollama_read(tree, false, error);
}

const struct reading_form ollama_chat = READING_FORM(read_chat, ollama_size, answer, ollama_close, ollama_put_error);

const struct reading_form ollama_generate =
    READING_FORM(read_generate, ollama_size, answer, ollama_close, ollama_put_error);
