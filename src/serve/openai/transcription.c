/* Transcriptions: answers in OpenAI's formats, and the route. The exchange owns the dialect's state; answering
 * threads, but for the route. */
#include "serve/openai/transcription.h"

#include "base/error.h"
#include "base/media_spans.h"
#include "base/memory.h"
#include "serve/core/errors.h"
#include "serve/core/pieces.h"
#include "serve/core/server.h"
#include "serve/fields/convert.h"
#include "serve/fields/unknown.h"

#include <stdlib.h>

struct transcriber {
    char *language; /* NULL: not named */
    double seconds;
};

/* ---- Pieces ---- */

/* Both details: OpenAI's, and those that llama-server has. */
static void put_usage(struct buf *out, const struct answer *answer)
{
    const hearth_result *r = &answer->result;
    int input = r->cache_n + r->prompt_n, sound = 0;
    for (size_t i = 0; i < answer->prompt.n_tokens; i++) sound += media_token_is_one(answer->prompt.tokens[i]);
    buf_printf(out,
               ",\"usage\":{\"type\":\"tokens\",\"input_tokens\":%d,\"output_tokens\":%d,\"total_tokens\":%d,"
               "\"input_token_details\":{\"audio_tokens\":%d,\"text_tokens\":%d},"
               "\"input_tokens_details\":{\"cached_tokens\":%d}}",
               input, r->predicted_n, input + r->predicted_n, sound, input - sound, r->cache_n);
}

static void put_text(struct buf *out, const struct answer *answer)
{
    member_put(out, "text", answer->text.v, answer->text.len);
}

/* ---- Streams ---- */

static void put_started(void *state, size_t index, const hearth_result *result, struct buf *out)
{
    (void)state, (void)index, (void)result, (void)out;
}

/* Reasoning and calls are no transcript. */
static void put_more(void *state, const struct exchange_piece *piece, struct buf *out)
{
    (void)state;
    const hearth_delta *delta = piece->delta;
    if (delta == NULL || delta->type != HEARTH_DELTA_CONTENT || delta->len == 0) return;
    buf_puts(out, "data: {\"type\":\"transcript.text.delta\",");
    member_put(out, "delta", delta->text, delta->len);
    buf_puts(out, "}\n\n");
}

static void put_done(void *state, size_t index, const struct answer *answer, struct buf *out)
{
    (void)state, (void)index;
    buf_puts(out, "data: {\"type\":\"transcript.text.done\",");
    put_text(out, answer);
    put_usage(out, answer);
    buf_puts(out, "}\n\n");
}

static void put_ended(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)answers, (void)n;
    buf_puts(out, "data: [DONE]\n\n");
}

static void put_broken(void *state, const hearth_error *error, struct buf *out)
{
    (void)state;
    buf_puts(out, "data: ");
    errors_put(out, error, NULL);
    buf_puts(out, "\n\n");
}

/* ---- Whole answers ---- */

static void put_json(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)n; /* 1 */
    buf_puts(out, "{");
    put_text(out, answers);
    put_usage(out, answers);
    buf_puts(out, "}");
}

/* What is billed of this format is the duration; OpenAI's has segments with their times too. */
static void put_verbose(void *ud, const struct answer *answers, size_t n, struct buf *out)
{
    (void)n; /* 1 */
    const struct transcriber *state = ud;
    buf_puts(out, "{\"task\":\"transcribe\",");
    member_puts(out, "language", state->language != NULL ? state->language : "unknown");
    buf_printf(out, ",\"duration\":%.3f,", state->seconds);
    put_text(out, answers);
    buf_printf(out, ",\"usage\":{\"type\":\"duration\",\"seconds\":%.3f}}", state->seconds);
}

static void put_plain(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)n; /* 1 */
    buf_append(out, answers->text.v, answers->text.len);
    buf_puts(out, "\n");
}

/* ---- State ---- */

void *transcription_state(const struct transcription *transcription)
{
    struct transcriber *state = mem_alloc(sizeof *state);
    *state = (struct transcriber){.language = mem_strdup(transcription->language), .seconds = transcription->seconds};
    return state;
}

static void release(void *ud)
{
    struct transcriber *state = ud;
    free(state->language);
    free(state);
}

/* An error of the chat that the form became: what the file has too much of is named already. */
static void put_error(struct buf *out, const hearth_error *error, const char *request_id)
{
    hearth_error renamed = convert_rename(error, &(struct convert_name){"messages", "prompt"}, 1);
    errors_put(out, &renamed, request_id);
}

#define DIALECT(put_whole_, whole_type_)                                                                               \
    {                                                                                                                  \
        .started = put_started, .more = put_more, .done = put_done, .ended = put_ended, .broken = put_broken,          \
        .whole = (put_whole_), .whole_type = (whole_type_), .error = put_error, .release = release                     \
    }

const struct dialect *transcription_dialect(enum transcription_format format)
{
    static const struct dialect dialects[] = {[TRANSCRIPTION_JSON] = DIALECT(put_json, NULL),
                                              [TRANSCRIPTION_TEXT] = DIALECT(put_plain, "text/plain; charset=utf-8"),
                                              [TRANSCRIPTION_VERBOSE] = DIALECT(put_verbose, NULL)};
    return &dialects[format];
}

/* ---- The route ---- */

/* The model that the form names. In a chat a line of text would take the place of a sound that it does not take. */
static int find_model(const struct call *call, const struct transcription *t, hearth_model_info *model,
                      hearth_error *error)
{
    const char *name = json_string_value(json_object_get(t->chat, "model"));
    int32_t index = hearth_find_model(call->server->instance, name, error);
    if (index < 0) return index;
    hearth_model(call->server->instance, (size_t)index, model);
    if (model->sounds) return HEARTH_OK;
    return error_at(error, HEARTH_UNSUPPORTED, "model",
                    "model '%s' takes no sound: name one that has a projector for it (models.*.mmproj)", model->name);
}

static void start(struct call *call, const struct transcription *t, struct fields *fields)
{
    unknown_report(call, fields);
    fields->params.keep_prompt = true; /* to count what of it is sound */
    struct exchange_plan plan = {.dialect = transcription_dialect(t->format),
                                 .state = transcription_state(t),
                                 .stream = fields->stream,
                                 .choices = &fields->params,
                                 .n_choices = 1,
                                 .owner = fields,
                                 .release_owner = fields_close};
    exchange_start(call, &plan);
}

static void answer(struct call *call, void *ud)
{
    struct transcription *t = ud;
    hearth_model_info model;
    hearth_error error;
    struct fields *fields = NULL;
    if (find_model(call, t, &model, &error) == HEARTH_OK) fields = transcription_ask(t, &model, &error);
    if (fields != NULL)
        start(call, t, fields);
    else
        call_fail(call, &error, put_error);
    transcription_close(t);
}

void transcription_create(struct call *call)
{
    static const struct reading_form form = {.read_with = transcription_open,
                                             .size = transcription_size,
                                             .answer = answer,
                                             .release = transcription_close,
                                             .put_error = errors_put};
    reading_start(call, &form);
}
