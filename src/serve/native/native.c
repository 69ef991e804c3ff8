/* The dialect of llama-server's native completions. The exchange owns its state; HTTP thread only.
 *
 * An answer is an object, or a list of one for each choice; a stream has pieces with "stop":false, and for each
 * choice a final one that has everything but the text. */
#include "serve/native/native.h"

#include "base/error.h"
#include "base/json_text.h"
#include "base/memory.h"
#include "serve/core/errors.h"
#include "serve/core/member.h"
#include "serve/core/server.h"
#include "serve/core/timings.h"
#include "serve/fields/convert.h"
#include "serve/fields/fields_readers.h"
#include "serve/fields/unknown.h"
#include "serve/native/settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct native {
    char *model;
    struct buf settings; /* the request's part of "generation_settings" */
    bool stream, return_tokens, timings_per_token;
    bool scores;        /* answers have the logprobs of prompts */
    bool post_sampling; /* answers have post-sampling probabilities in place of logprobs */
    json_t *selected;   /* "response_fields": paths of the answer's members; NULL: all */
};

/* ---- Pieces ---- */

static void put_member(struct buf *out, const char *name, const char *text, size_t len)
{
    buf_puts(out, ",");
    member_put(out, name, text, len);
}

static void put_tokens(struct buf *out, const int32_t *tokens, size_t n)
{
    buf_puts(out, ",\"tokens\":[");
    for (size_t i = 0; i < n; i++) buf_printf(out, "%s%d", i == 0 ? "" : ",", tokens[i]);
    buf_puts(out, "]");
}

static void put_logprob(struct buf *out, const hearth_logprob *logprob, bool post_sampling)
{
    buf_printf(out, "{\"id\":%d,\"token\":", logprob->token);
    logprob_put_text(out, logprob);
    buf_puts(out, ",\"bytes\":");
    logprob_put_bytes(out, logprob);
    if (post_sampling)
        buf_printf(out, ",\"prob\":%.9g", exp(logprob_finite(logprob->log)));
    else
        buf_printf(out, ",\"logprob\":%.9g", logprob_finite(logprob->log));
}

static void put_logprobs(struct buf *out, struct token_logprobs *const *logprobs, size_t n, bool post_sampling)
{
    buf_puts(out, ",\"completion_probabilities\":[");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buf_puts(out, ",");
        put_logprob(out, &logprobs[i]->v[0], post_sampling);
        buf_printf(out, ",\"%s\":[", post_sampling ? "top_probs" : "top_logprobs");
        for (size_t k = 1; k < logprobs[i]->n; k++) {
            if (k > 1) buf_puts(out, ",");
            put_logprob(out, &logprobs[i]->v[k], post_sampling);
            buf_puts(out, "}");
        }
        buf_puts(out, "]}");
    }
    buf_puts(out, "]");
}

/* ---- Final objects ---- */

static const char *stop_type(const hearth_result *result)
{
    if (result->finish == HEARTH_FINISH_LENGTH) return "limit";
    return result->stop_string != NULL ? "word" : "eos";
}

static void put_end(const struct native *native, const struct answer *answer, struct buf *out)
{
    const hearth_result *r = &answer->result;
    const char *word = r->stop_string != NULL ? r->stop_string : "";
    bool has_line = answer->text.len > 0 && memchr(answer->text.v, '\n', answer->text.len) != NULL;
    put_member(out, "prompt", answer->prompt.text, answer->prompt.len);
    buf_printf(out, ",\"has_new_line\":%s,\"truncated\":false,\"stop_type\":\"%s\"", has_line ? "true" : "false",
               stop_type(r));
    put_member(out, "stopping_word", word, strlen(word));
    /* The last generated token is not in the KV cache yet. */
    buf_printf(out, ",\"tokens_cached\":%d", r->n_prompt + (r->predicted_n > 0 ? r->predicted_n - 1 : 0));
    timings_put(out, r);
    if (!native->stream && answer->n_logprobs > 0)
        put_logprobs(out, answer->logprobs, answer->n_logprobs, native->post_sampling);
    if (native->scores) prompt_logprobs_put(out, answer->prompt_logprobs, answer->n_prompt_logprobs);
}

/* A stream has sent its text and tokens already. */
static void put_final(const struct native *native, size_t index, const struct answer *answer, struct buf *out)
{
    const hearth_result *r = &answer->result;
    size_t text = native->stream ? 0 : answer->text.len;
    size_t tokens = native->stream ? 0 : answer->tokens.len;
    buf_printf(out, "{\"index\":%zu", index);
    put_member(out, "content", answer->text.v, text);
    put_tokens(out, answer->tokens.v, tokens);
    buf_printf(out, ",\"id_slot\":%d,\"stop\":true", r->slot);
    put_member(out, "model", native->model, strlen(native->model));
    buf_printf(out, ",\"tokens_predicted\":%d,\"tokens_evaluated\":%d,\"generation_settings\":{", r->predicted_n,
               r->n_prompt);
    settings_put_sampling(out, answer->sampling);
    buf_puts(out, ",");
    buf_append(out, native->settings.v, native->settings.len);
    buf_puts(out, "}");
    put_end(native, answer, out);
    buf_puts(out, "}");
}

/* ---- "response_fields": "a/b" selects the member b of the member a, and is named "a/b" in the answer ---- */

static const json_t *follow(const json_t *from, const char *path)
{
    while (from != NULL && *path != '\0') {
        size_t len = strcspn(path, "/");
        from = json_object_getn(from, path, len);
        path += len + (path[len] == '/');
    }
    return from;
}

static void put_selected(const struct native *native, const struct buf *whole, struct buf *out)
{
    json_t *answer = json_text_read(whole->v, whole->len, NULL), *selected = json_object(), *path;
    size_t i;
    json_array_foreach(native->selected, i, path)
    {
        const json_t *found = follow(answer, json_string_value(path));
        if (found != NULL) json_object_set(selected, json_string_value(path), (json_t *)found);
    }
    json_text_write(out, selected);
    json_decref(selected);
    json_decref(answer);
}

void native_put_answer(const void *state, size_t index, const struct answer *answer, struct buf *out)
{
    const struct native *native = state;
    if (native->selected == NULL) {
        put_final(native, index, answer, out);
        return;
    }
    struct buf whole = {0};
    put_final(native, index, answer, &whole);
    put_selected(native, &whole, out);
    buf_release(&whole);
}

/* ---- The dialect ---- */

static void put_whole(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    if (n > 1) buf_puts(out, "[");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buf_puts(out, ",");
        native_put_answer(state, i, &answers[i], out);
    }
    if (n > 1) buf_puts(out, "]");
}

static void put_started(void *state, size_t index, const hearth_result *result, struct buf *out)
{
    (void)state, (void)index, (void)result, (void)out; /* a stream begins with its first piece */
}

/* Begins a piece: its text and tokens, and the counts so far. */
static void open_piece(struct buf *out, const struct exchange_piece *piece, const hearth_result *r)
{
    const hearth_delta *delta = piece->delta;
    buf_printf(out, "data: {\"index\":%zu", piece->index);
    put_member(out, "content", delta != NULL ? delta->text : NULL, delta != NULL ? delta->len : 0);
    put_tokens(out, &piece->token, piece->token >= 0);
    buf_printf(out, ",\"stop\":false,\"id_slot\":%d,\"tokens_predicted\":%d,\"tokens_evaluated\":%d", r->slot,
               r->predicted_n, r->n_prompt);
}

static void put_progress(void *state, size_t index, const hearth_result *result, struct buf *out)
{
    const struct native *native = state;
    open_piece(out, &(struct exchange_piece){.index = index, .token = -1}, result);
    if (native->timings_per_token) timings_put(out, result);
    timings_put_progress(out, result);
    buf_puts(out, "}\n\n");
}

static void put_more(void *state, const struct exchange_piece *piece, struct buf *out)
{
    const struct native *native = state;
    struct token_logprobs *logprobs = (struct token_logprobs *)piece->logprobs;
    open_piece(out, piece, &piece->answer->result);
    if (native->timings_per_token) timings_put(out, &piece->answer->result);
    if (logprobs != NULL) put_logprobs(out, &logprobs, 1, native->post_sampling);
    buf_puts(out, "}\n\n");
}

static void put_done(void *state, size_t index, const struct answer *answer, struct buf *out)
{
    buf_puts(out, "data: ");
    native_put_answer(state, index, answer, out);
    buf_puts(out, "\n\n");
}

static void put_ended(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)answers, (void)n, (void)out; /* no [DONE]: "stop":true ends the stream */
}

static void put_broken(void *state, const hearth_error *error, struct buf *out)
{
    (void)state;
    buf_puts(out, "data: ");
    errors_put(out, error, NULL);
    buf_puts(out, "\n\n");
}

static void release(void *state)
{
    struct native *native = state;
    free(native->model);
    buf_release(&native->settings);
    json_decref(native->selected);
    free(native);
}

/* The fields' names for fill-in-the-middle: prefix and suffix. */
static void put_infill_error(struct buf *out, const hearth_error *error, const char *request_id)
{
    static const struct convert_name names[] = {{"prompt", "input_prefix"}, {"suffix", "input_suffix"}};
    hearth_error renamed = convert_rename(error, names, sizeof names / sizeof *names);
    errors_put(out, &renamed, request_id);
}

#define DIALECT(put_error)                                                                                             \
    {                                                                                                                  \
        .started = put_started, .progress = put_progress, .more = put_more, .done = put_done, .ended = put_ended,      \
        .broken = put_broken, .whole = put_whole, .error = (put_error), .release = release                             \
    }

const struct dialect native_dialect = DIALECT(errors_put), native_infill_dialect = DIALECT(put_infill_error);

/* ---- Starting ---- */

/* An empty list selects everything, as in llama-server. */
static int read_response_fields(struct native *native, json_t *value, hearth_error *error)
{
    size_t i;
    json_t *path;
    if (value == NULL || json_is_null(value)) return HEARTH_OK;
    bool good = json_is_array(value);
    json_array_foreach(value, i, path) good = good && field_string(path) != NULL;
    if (!good) return error_at(error, HEARTH_INVALID, "response_fields", "'response_fields' must be a list of strings");
    if (json_array_size(value) > 0) native->selected = json_incref(value);
    return HEARTH_OK;
}

static int read_return_tokens(struct native *native, const json_t *value, hearth_error *error)
{
    if (value != NULL && !json_is_boolean(value) && !json_is_null(value))
        return error_at(error, HEARTH_INVALID, "return_tokens", "'return_tokens' must be true or false");
    native->return_tokens = json_is_true(value);
    return HEARTH_OK;
}

void *native_state(const struct fields *fields, const char *model, hearth_error *error)
{
    struct native *native = mem_alloc(sizeof *native);
    native->model = mem_strdup(model);
    native->stream = fields->stream;
    native->timings_per_token = fields->timings_per_token;
    native->scores = fields->scores;
    native->post_sampling = fields->params.post_sampling_probs;
    settings_put_request(&native->settings, fields);
    int rc = read_response_fields(native, json_object_get(fields->body, "response_fields"), error);
    if (rc == HEARTH_OK) rc = read_return_tokens(native, json_object_get(fields->body, "return_tokens"), error);
    if (rc == HEARTH_OK) return native;
    release(native);
    return NULL;
}

void native_answer(struct call *call, const struct dialect *dialect, struct fields *fields)
{
    hearth_error error;
    unknown_report(call, fields);
    struct native *native = native_state(fields, call_model(call, fields->params.model), &error);
    if (native == NULL) {
        call_fail(call, &error, errors_put);
        fields_close(fields);
        return;
    }
    size_t n;
    fields->params.keep_prompt = true;
    hearth_params *choices = fields_choices(fields, &n);
    struct exchange_plan plan = {.dialect = dialect,
                                 .state = native,
                                 .stream = fields->stream,
                                 .tokens = fields->stream || native->return_tokens,
                                 .choices = choices,
                                 .n_choices = n,
                                 .owner = fields,
                                 .release_owner = fields_close};
    exchange_start(call, &plan);
    free(choices);
}

static void answer(struct call *call, void *fields)
{
    native_answer(call, &native_dialect, fields);
}

void native_completion(struct call *call)
{
    static const struct reading_form form = {.read = fields_open_completion,
                                             .size = fields_size,
                                             .answer = answer,
                                             .release = fields_close,
                                             .put_error = errors_put};
    reading_start(call, &form);
}
