/* Transcriptions: the form, the chat that it becomes, answers in OpenAI's formats, and the route. The parsed form is
 * the dialect's state, which the exchange owns; answering threads, but for the route. */
#include "serve/openai/openai.h"

#include "base/error.h"
#include "base/json_text.h"
#include "base/media_spans.h"
#include "base/memory.h"
#include "http/multipart.h"
#include "serve/core/errors.h"
#include "serve/core/pieces.h"
#include "serve/core/server.h"
#include "serve/fields/body.h"
#include "serve/fields/convert.h"
#include "serve/fields/unknown.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- The form ---- */

/* One table of its fields, which are all text: an empty one was not given, since web pages send that for fields that
 * were not filled in. */

#define FILE_FIELD "file"

enum format { FORMAT_JSON, FORMAT_TEXT, FORMAT_VERBOSE };

/* A parsed form. */
struct transcription {
    json_t *unknown;        /* an object with a member for each field that nobody reads */
    json_t *chat;           /* its fields that a chat has too, without messages */
    struct uploads uploads; /* the file */
    char *prompt;           /* NULL: the model's */
    char *language;         /* NULL: not named */
    double seconds;         /* of the sound */
    enum format format;
};

/* A form that is being read. */
struct form {
    struct transcription *t;
    struct multipart_bytes file; /* `v` NULL: not there yet */
    uint32_t given;              /* bits of the table's rows */
    hearth_error *error;
};

/* A field with its value. */
struct form_value {
    const char *name;
    struct multipart_bytes bytes;
    const char *why; /* it is refused */
};

/* ---- Values ---- */

/* The value as a string without zero characters; NULL with the error. */
static json_t *text_of(const struct form *form, const struct form_value *value)
{
    bool has_zero = memchr(value->bytes.v, '\0', value->bytes.len) != NULL;
    json_t *text = has_zero ? NULL : json_stringn(value->bytes.v, value->bytes.len);
    if (text == NULL)
        error_at(form->error, HEARTH_INVALID, value->name, "'%s' must be UTF-8 without zero characters", value->name);
    return text;
}

/* Sets a field of the chat; takes `json` over. */
static int set(struct form *form, const struct form_value *value, json_t *json)
{
    if (json == NULL) return (int)form->error->code;
    json_object_set_new(form->t->chat, value->name, json);
    return HEARTH_OK;
}

static int read_text(struct form *form, const struct form_value *value)
{
    return set(form, value, text_of(form, value));
}

static int read_number(struct form *form, const struct form_value *value)
{
    json_t *number = json_text_read(value->bytes.v, value->bytes.len, NULL);
    if (json_text_is_number(number)) return set(form, value, number);
    json_decref(number);
    return error_at(form->error, HEARTH_INVALID, value->name, "'%s' must be a number", value->name);
}

static bool is(const struct form_value *value, const char *word)
{
    return value->bytes.len == strlen(word) && strncasecmp(value->bytes.v, word, value->bytes.len) == 0;
}

static int read_flag(struct form *form, const struct form_value *value)
{
    bool yes = is(value, "true") || is(value, "1");
    if (yes || is(value, "false") || is(value, "0")) return set(form, value, json_boolean(yes));
    return error_at(form->error, HEARTH_INVALID, value->name, "'%s' must be true or false", value->name);
}

/* ---- Fields of transcriptions alone ---- */

/* The prompt, or the language. */
static int read_own(struct form *form, const struct form_value *value)
{
    json_t *text = text_of(form, value);
    if (text == NULL) return (int)form->error->code;
    char **own = strcmp(value->name, "prompt") == 0 ? &form->t->prompt : &form->t->language;
    *own = mem_strdup(json_string_value(text));
    json_decref(text);
    return HEARTH_OK;
}

static int read_file(struct form *form, const struct form_value *value)
{
    hearth_error reason;
    form->file = value->bytes;
    if (hearth_sound_seconds(value->bytes.v, value->bytes.len, &form->t->seconds, &reason) == HEARTH_OK)
        return HEARTH_OK;
    return error_at(form->error, reason.code, value->name, "'%s': %s", value->name, reason.message);
}

static int refuse(struct form *form, const struct form_value *value)
{
    return error_at(form->error, HEARTH_UNSUPPORTED, value->name, "'%s' %s", value->name, value->why);
}

static int read_format(struct form *form, const struct form_value *value)
{
    static const char *const formats[] = {
        [FORMAT_JSON] = "json", [FORMAT_TEXT] = "text", [FORMAT_VERBOSE] = "verbose_json"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (!is(value, formats[i])) continue;
        form->t->format = (enum format)i;
        return HEARTH_OK;
    }
    if (is(value, "srt") || is(value, "vtt")) return refuse(form, value);
    return error_at(form->error, HEARTH_INVALID, value->name, "'%s' must be json, text or verbose_json", value->name);
}

/* Segments are what is asked for by default, so that they say no more than verbose_json itself. */
static int read_granularity(struct form *form, const struct form_value *value)
{
    return is(value, "segment") ? HEARTH_OK : refuse(form, value);
}

/* How much of a sound is looked at together is the projector's business. */
static int ignore_chunking(struct form *form, const struct form_value *value)
{
    (void)form, (void)value;
    return HEARTH_OK;
}

/* ---- The table ---- */

#define NO_TIMES    "is not supported: there are no time stamps here"
#define NO_LOGPROBS "is not supported for transcriptions: leave it out"
#define NO_SPEAKERS "is not supported: speakers are not told apart here"

/* Lists, whose names end with brackets, have a part for each value; the others are there once. */
static const struct form_field {
    const char *name;
    int (*read)(struct form *form, const struct form_value *value);
    const char *why; /* for values that are refused */
} table[] = {
    {FILE_FIELD, read_file, NULL},
    {"model", read_text, NULL},
    {"prompt", read_own, NULL},
    {"language", read_own, NULL},
    {"response_format", read_format,
     "of subtitles needs time stamps, which there are none of here: ask for json, text or verbose_json"},
    {"temperature", read_number, NULL},
    {"stream", read_flag, NULL},
    {"timestamp_granularities[]", read_granularity, NO_TIMES},
    {"timestamp_granularities", read_granularity, NO_TIMES},
    {"include[]", refuse, NO_LOGPROBS},
    {"include", refuse, NO_LOGPROBS},
    {"known_speaker_names[]", refuse, NO_SPEAKERS},
    {"known_speaker_references[]", refuse, NO_SPEAKERS},
    {"chunking_strategy", ignore_chunking, NULL},
    /* of chats, llama-server's and hearth's */
    {"max_tokens", read_number, NULL},
    {"seed", read_number, NULL},
    {"top_k", read_number, NULL},
    {"top_p", read_number, NULL},
    {"min_p", read_number, NULL},
    {"repeat_penalty", read_number, NULL},
    {"cache_prompt", read_flag, NULL},
    {"cache_salt", read_text, NULL},
    {"session_id", read_text, NULL},
};

#define N_FIELDS (sizeof table / sizeof *table)
static_assert(N_FIELDS <= 32, "a bit of struct form for each row");

/* ---- Forms ---- */

static int read_value(struct form *form, struct form_value *value)
{
    for (size_t row = 0; row < N_FIELDS; row++)
        if (strcmp(table[row].name, value->name) == 0) {
            bool is_second = (form->given & UINT32_C(1) << row) != 0, is_list = strstr(value->name, "[]") != NULL;
            form->given |= UINT32_C(1) << row;
            if (is_second && !is_list)
                return error_at(form->error, HEARTH_INVALID, value->name, "'%s' is in the form twice", value->name);
            if (value->bytes.len == 0 && table[row].read != read_file) return HEARTH_OK;
            value->why = table[row].why;
            return table[row].read(form, value);
        }
    json_object_set_new_nocheck(form->t->unknown, value->name, json_null());
    return HEARTH_OK;
}

static void transcription_close(void *ud)
{
    struct transcription *t = ud;
    json_decref(t->unknown);
    json_decref(t->chat);
    uploads_release(&t->uploads);
    free(t->prompt);
    free(t->language);
    free(t);
}

static size_t transcription_size(const void *ud)
{
    const struct transcription *t = ud;
    size_t texts = (t->prompt == NULL ? 0 : strlen(t->prompt)) + (t->language == NULL ? 0 : strlen(t->language));
    return sizeof *t + json_size_of_tree(t->unknown) + json_size_of_tree(t->chat) + uploads_size(&t->uploads) + texts;
}

static void *transcription_open(struct buf *body, const struct reading_caller *caller, hearth_error *error)
{
    struct multipart parts;
    struct transcription *t = mem_alloc(sizeof *t);
    struct form form = {.t = t, .error = error};
    t->unknown = json_object();
    t->chat = json_pack("{s:f}", "temperature", 0.0); /* OpenAI's default */
    int rc = multipart_open(&parts, caller->content_type, (struct multipart_bytes){buf_text(body), body->len}, error);
    struct multipart_part part;
    while (rc == HEARTH_OK && (rc = multipart_next(&parts, &part, error)) == 1) {
        char *name = mem_strndup(part.name.v, part.name.len);
        rc = read_value(&form, &(struct form_value){.name = name, .bytes = part.value});
        free(name);
    }
    if (rc == HEARTH_OK && form.file.v != NULL) {
        /* The file moves to the beginning of the body's memory, which becomes its own: nothing else of it is needed. */
        memmove(body->v, form.file.v, form.file.len);
        uploads_take_file(&t->uploads, mem_grow(buf_take(body), form.file.len, 1), form.file.len, FILE_FIELD);
        return t;
    }
    if (rc == HEARTH_OK)
        error_at(error, HEARTH_INVALID, FILE_FIELD, "'" FILE_FIELD "' is missing: a sound, as a file of the form");
    transcription_close(t);
    return NULL;
}

/* ---- The chat ---- */

/* The chat that asks this model, NULL with the error. The parts that it is made of are moved out of the
 * transcription. */
static struct fields *transcription_ask(struct transcription *t, const hearth_model_info *model, hearth_error *error)
{
    static const struct fields_api api = {.name = "transcription", .known = ""}; /* those are left out already */
    json_t *messages = json_array(), *content = json_array();
    struct buf line = {0};
    /* The line beside the sound is llama-server's. */
    buf_puts(&line, t->prompt != NULL ? t->prompt : model->transcription_user);
    if (t->language != NULL) buf_printf(&line, " (language: %s)", t->language);
    if (line.len > 0) json_array_append_new(content, json_pack("{s:s,s:s}", "type", "text", "text", line.v));
    json_array_append_new(content, uploads_part(&t->uploads, "input_audio"));
    buf_release(&line);
    if (model->transcription_system[0] != '\0')
        json_array_append_new(messages,
                              json_pack("{s:s,s:s}", "role", "system", "content", model->transcription_system));
    json_array_append_new(messages, json_pack("{s:s,s:o}", "role", "user", "content", content));
    json_object_set_new(t->chat, "messages", messages);
    struct fields_converted converted = {.body = t->unknown, .chat = t->chat, .uploads = &t->uploads};
    t->chat = NULL;
    return fields_open_converted(&converted, FIELDS_CHAT, &api, error);
}

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

/* ---- Whole answers ---- */

static void put_json(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)n; /* 1 */
    buf_puts(out, "{");
    put_text(out, answers);
    put_usage(out, answers);
    buf_puts(out, "}");
}

/* The usage of this format is the duration; OpenAI's has segments with their times too. */
static void put_verbose(void *ud, const struct answer *answers, size_t n, struct buf *out)
{
    (void)n; /* 1 */
    const struct transcription *t = ud;
    buf_puts(out, "{\"task\":\"transcribe\",");
    member_puts(out, "language", t->language != NULL ? t->language : "unknown");
    buf_printf(out, ",\"duration\":%.3f,", t->seconds);
    put_text(out, answers);
    buf_printf(out, ",\"usage\":{\"type\":\"duration\",\"seconds\":%.3f}}", t->seconds);
}

static void put_plain(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)n; /* 1 */
    buf_append(out, answers->text.v, answers->text.len);
    buf_puts(out, "\n");
}

/* ---- The dialects ---- */

/* An error of the chat that the form became. An error about the file names its field already. */
static void put_error(struct buf *out, const hearth_error *error, const char *request_id)
{
    hearth_error renamed = convert_rename(error, &(struct convert_name){"messages", "prompt"}, 1);
    errors_put(out, &renamed, request_id);
}

#define DIALECT(put_whole_, whole_type_)                                                                               \
    {                                                                                                                  \
        .started = exchange_put_no_start, .more = put_more, .done = put_done, .ended = put_ended,                      \
        .broken = exchange_put_broken, .whole = (put_whole_), .whole_type = (whole_type_), .error = put_error,         \
        .release = transcription_close                                                                                 \
    }

static const struct dialect dialects[] = {[FORMAT_JSON] = DIALECT(put_json, NULL),
                                          [FORMAT_TEXT] = DIALECT(put_plain, "text/plain; charset=utf-8"),
                                          [FORMAT_VERBOSE] = DIALECT(put_verbose, NULL)};

/* ---- The route ---- */

static void answer(struct call *call, void *ud)
{
    struct transcription *t = ud;
    hearth_model_info model;
    hearth_error error;
    struct fields *fields = NULL;
    const char *name = json_string_value(json_object_get(t->chat, "model"));
    int32_t index = hearth_find_model(call->server->instance, name, &error);
    if (index >= 0) hearth_model(call->server->instance, (size_t)index, &model);
    if (index >= 0 && model.sounds)
        fields = transcription_ask(t, &model, &error);
    else if (index >= 0) /* in a chat a line of text would take the place of the sound */
        error_at(&error, HEARTH_UNSUPPORTED, "model",
                 "model '%s' takes no sound: name one that has a projector for it (models.*.mmproj)", model.name);
    if (fields == NULL) {
        call_fail(call, &error, put_error);
        transcription_close(t);
        return;
    }
    unknown_report(call, fields);
    fields->params.keep_prompt = true; /* to count what of it is sound */
    fields->n = 1;
    fields_start(call, fields,
                 (struct exchange_plan){.dialect = &dialects[t->format], .state = t, .stream = fields->stream});
}

const struct reading_form transcription_create =
    READING_FORM_WITH(transcription_open, transcription_size, answer, transcription_close, errors_put);
