/* Prompts without replies: see prompt.h. Preparing threads do the work, which may be long; an exchange brings the
 * answer. Each route is a dialect that writes its one object. */
#include "serve/prompt.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "serve/body.h"
#include "serve/convert.h"
#include "serve/errors.h"
#include "serve/exchange.h"
#include "serve/fields_readers.h"
#include "serve/member.h"
#include "serve/responses.h"

#include <stdlib.h>
#include <string.h>

/* ---- Answers ---- */

static void put_tokens(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)n; /* 1 */
    const hearth_prompt *prompt = &answers[0].prompt;
    buf_puts(out, "{\"tokens\":[");
    for (size_t i = 0; i < prompt->n_tokens; i++) buf_printf(out, "%s%d", i == 0 ? "" : ",", prompt->tokens[i]);
    buf_puts(out, "]}");
}

/* Whether the bytes say what they say also as a JSON string. */
static bool is_text(const char *bytes, size_t len)
{
    struct buf clean = {0};
    utf8_put_clean(&clean, bytes, len);
    bool same = clean.len == len && memcmp(clean.v, bytes, len) == 0;
    buf_release(&clean);
    return same;
}

/* A token may be a part of a character: then its bytes are told as numbers. */
static void put_piece(struct buf *out, const char *bytes, size_t len)
{
    if (len == 0 || is_text(bytes, len))
        utf8_put_json_string(out, len == 0 ? "" : bytes, len);
    else
        chances_put_bytes(out, &(hearth_chance){.bytes = bytes, .n_bytes = len});
}

static void put_pieces(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)n;
    const hearth_prompt *prompt = &answers[0].prompt;
    size_t from = 0;
    buf_puts(out, "{\"tokens\":[");
    for (size_t i = 0; i < prompt->n_tokens; i++) {
        buf_printf(out, "%s{\"id\":%d,\"piece\":", i == 0 ? "" : ",", prompt->tokens[i]);
        put_piece(out, prompt->text + from, prompt->ends[i] - from);
        from = prompt->ends[i];
        buf_puts(out, "}");
    }
    buf_puts(out, "]}");
}

static void put_text(struct buf *out, const char *name, const struct answer *answer)
{
    buf_puts(out, "{");
    member_put(out, name, answer->text.v, answer->text.len);
    buf_puts(out, "}");
}

static void put_content(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)n;
    put_text(out, "content", &answers[0]);
}

static void put_prompt(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)n;
    put_text(out, "prompt", &answers[0]);
}

static void put_count(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)n;
    buf_printf(out, "{\"input_tokens\":%d,\"object\":\"response.input_tokens\"}", answers[0].result.n_prompt);
}

/* What the library calls the prompt is the content of one route and the tokens of another. */
static void put_renamed(struct buf *out, const hearth_error *error, const char *name)
{
    hearth_error renamed = convert_rename(error, &(struct convert_name){"prompt", name}, 1);
    errors_put(out, &renamed, NULL);
}

static void put_content_error(struct buf *out, const hearth_error *error, const char *request_id)
{
    (void)request_id;
    put_renamed(out, error, "content");
}

static void put_tokens_error(struct buf *out, const hearth_error *error, const char *request_id)
{
    (void)request_id;
    put_renamed(out, error, "tokens");
}

static void release(void *state)
{
    (void)state; /* there is none */
}

/* Never streamed, so that the pieces of a stream are left out. */
#define DIALECT(put, put_error)                                                                                        \
    {                                                                                                                  \
        .whole = (put), .error = (put_error), .release = release                                                       \
    }

static const struct dialect tokens_dialect = DIALECT(put_tokens, put_content_error),
                            pieces_dialect = DIALECT(put_pieces, put_content_error),
                            content_dialect = DIALECT(put_content, put_tokens_error),
                            prompt_dialect = DIALECT(put_prompt, errors_put),
                            count_dialect = DIALECT(put_count, errors_put),
                            response_dialect = DIALECT(put_count, responses_put_error);

static void start(struct call *call, const struct dialect *dialect, hearth_params *params)
{
    params->only_prompt = true;
    exchange_start(call, &(struct exchange_plan){.dialect = dialect, .choices = params, .n_choices = 1});
}

/* ---- Text and tokens ---- */

struct asked {
    json_t *body;
    hearth_params params;
    struct fields_prompt prompt;
};

/* The body, its model, and the text or the tokens in its member `name`; where that is missing there are none. False:
 * the call has been answered with the error. */
static bool open_asked(struct call *call, const char *name, struct asked *asked)
{
    hearth_error error;
    size_t len;
    const char *text = http_body(call->http, &len);
    *asked = (struct asked){.body = fields_parse(text, len, &error), .params = hearth_params_default()};
    http_drop_body(call->http);
    int rc = asked->body == NULL ? HEARTH_INVALID : body_text(asked->body, "model", &asked->params.model, &error);
    const json_t *value = json_object_get(asked->body, name);
    json_t *none = json_array();
    if (rc == HEARTH_OK && !field_get_prompt(value == NULL ? none : value, &asked->prompt))
        rc = error_at(&error, HEARTH_INVALID, name, "'%s' must be a string, or a list of tokens and strings", name);
    json_decref(none);
    if (rc == HEARTH_OK) return true;
    field_release_prompt(&asked->prompt);
    json_decref(asked->body);
    call_fail(call, &error, errors_put);
    return false;
}

/* Starts, where nothing is wrong, and releases. */
static void close_asked(struct call *call, struct asked *asked, const struct dialect *dialect,
                        const hearth_error *error)
{
    hearth_params *params = &asked->params;
    const struct fields_prompt *prompt = &asked->prompt;
    params->text = prompt->text;
    params->text_len = prompt->len;
    params->tokens = prompt->tokens;
    params->n_tokens = prompt->n_tokens;
    params->parts = prompt->parts;
    params->n_parts = prompt->n_parts;
    if (error != NULL)
        call_fail(call, error, errors_put);
    else
        start(call, dialect, params);
    field_release_prompt(&asked->prompt);
    json_decref(asked->body);
}

void prompt_tokenize(struct call *call)
{
    struct asked asked;
    hearth_error error;
    bool add_special = false, parse_special = true, with_pieces = false;
    if (!open_asked(call, "content", &asked)) return;
    int rc = body_bool(asked.body, "add_special", &add_special, &error);
    if (rc == HEARTH_OK) rc = body_bool(asked.body, "parse_special", &parse_special, &error);
    if (rc == HEARTH_OK) rc = body_bool(asked.body, "with_pieces", &with_pieces, &error);
    asked.params.without_markers = !add_special;
    asked.params.plain = !parse_special;
    asked.params.keep_prompt = true;
    close_asked(call, &asked, with_pieces ? &pieces_dialect : &tokens_dialect, rc == HEARTH_OK ? NULL : &error);
}

void prompt_detokenize(struct call *call)
{
    struct asked asked;
    hearth_error error;
    if (!open_asked(call, "tokens", &asked)) return;
    int rc = asked.prompt.tokens != NULL
                 ? HEARTH_OK
                 : error_at(&error, HEARTH_INVALID, "tokens", "'tokens' must be a list of tokens");
    close_asked(call, &asked, &content_dialect, rc == HEARTH_OK ? NULL : &error);
}

/* ---- Chats ---- */

static void start_chat(struct call *call, const struct dialect *dialect)
{
    struct fields fields;
    if (!call_read_fields(call, FIELDS_CHAT, errors_put, &fields)) return;
    start(call, dialect, &fields.params);
    fields_release(&fields);
}

void prompt_apply_template(struct call *call)
{
    start_chat(call, &prompt_dialect);
}

void prompt_count(struct call *call)
{
    start_chat(call, &count_dialect);
}

void prompt_count_response(struct call *call)
{
    struct fields fields;
    if (!call_read_as_chat(call, responses_chat, responses_put_error, &fields)) return;
    start(call, &response_dialect, &fields.params);
    fields_release(&fields);
}
