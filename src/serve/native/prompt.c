/* Prompts without a generation: see native.h. Each route starts an exchange with `only_prompt`, so that the model's
 * preparing threads do the work, which may be long; a dialect writes its object. HTTP thread only, except parsing. */
#include "serve/native/native.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "serve/core/errors.h"
#include "serve/core/exchange.h"
#include "serve/core/pieces.h"
#include "serve/core/reading.h"
#include "serve/fields/body.h"
#include "serve/fields/convert.h"
#include "serve/fields/fields_readers.h"
#include "serve/responses/responses.h"
#include "serve/status/status.h"

#include <stdlib.h>
#include <string.h>

/* ---- Answers ---- */

static void put_tokens(const hearth_prompt *prompt, struct buf *out)
{
    buf_puts(out, "\"tokens\":[");
    for (size_t i = 0; i < prompt->n_tokens; i++) buf_printf(out, "%s%d", i == 0 ? "" : ",", prompt->tokens[i]);
    buf_puts(out, "]}");
}

static void put_tokenized(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)n; /* 1 */
    buf_puts(out, "{");
    put_tokens(&answers[0].prompt, out);
}

/* vLLM's form. */
static void put_counted(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)n;
    buf_printf(out, "{\"count\":%zu,", answers[0].prompt.n_tokens);
    put_tokens(&answers[0].prompt, out);
}

/* A token that is part of a character is written as a list of its bytes. */
static void put_piece(struct buf *out, const char *bytes, size_t len)
{
    size_t n = 0;
    while (n < len && bytes[n] >= ' ' && bytes[n] <= '~' && bytes[n] != '"' && bytes[n] != '\\') n++;
    /* A JSON string holds the bytes of nearly all tokens as they are, and there may be many thousands. */
    if (n == len) {
        buf_puts(out, "\"");
        buf_append(out, bytes, len);
        buf_puts(out, "\"");
        return;
    }
    struct buf clean = {0}; /* the same bytes where they are valid UTF-8, which a JSON string can hold */
    utf8_put_clean(&clean, bytes, len);
    if (clean.len == len && memcmp(clean.v, bytes, len) == 0)
        utf8_put_json_string(out, bytes, len);
    else
        logprob_put_bytes(out, &(hearth_logprob){.bytes = bytes, .n_bytes = len});
    buf_release(&clean);
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

/* Under llama-server's name and under vLLM's. */
static void put_content(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)n;
    const struct buf *text = &answers[0].text;
    buf_puts(out, "{");
    member_put(out, "content", text->v, text->len);
    member_put(out, "prompt", text->v, text->len);
    buf_puts(out, "}");
}

static void put_prompt(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)n;
    buf_puts(out, "{");
    member_put(out, "prompt", answers[0].text.v, answers[0].text.len);
    buf_puts(out, "}");
}

/* Routers take tokens without a sign. That of a medium's row, which is negative here, is the same number of 32 bits in
 * cache events. */
static void put_token_ids(struct buf *out, const hearth_prompt *prompt)
{
    buf_puts(out, "{\"token_ids\":[");
    for (size_t i = 0; i < prompt->n_tokens; i++)
        buf_printf(out, "%s%u", i == 0 ? "" : ",", (unsigned)(uint32_t)prompt->tokens[i]);
    buf_puts(out, "]}");
}

static void put_rendered(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)n;
    put_token_ids(out, &answers[0].prompt);
}

/* vLLM's form of completions: a list, also for one prompt. */
static void put_rendered_list(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state;
    for (size_t i = 0; i < n; i++) {
        buf_puts(out, i == 0 ? "[" : ",");
        put_token_ids(out, &answers[i].prompt);
    }
    buf_puts(out, "]");
}

static void put_count(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)n;
    buf_printf(out, "{\"input_tokens\":%d,\"object\":\"response.input_tokens\"}", answers[0].result.n_prompt);
}

/* The library's "prompt" is "content" in one route and "tokens" in another. */
static void put_content_error(struct buf *out, const hearth_error *error, const char *request_id)
{
    hearth_error renamed = convert_rename(error, &(struct convert_name){"prompt", "content"}, 1);
    errors_put(out, &renamed, request_id);
}

static void put_tokens_error(struct buf *out, const hearth_error *error, const char *request_id)
{
    hearth_error renamed = convert_rename(error, &(struct convert_name){"prompt", "tokens"}, 1);
    errors_put(out, &renamed, request_id);
}

/* Never streamed: the functions for streams are NULL. */
static const struct dialect tokens_dialect = {.whole = put_tokenized, .error = put_content_error},
                            counted_dialect = {.whole = put_counted, .error = errors_put},
                            pieces_dialect = {.whole = put_pieces, .error = put_content_error},
                            content_dialect = {.whole = put_content, .error = put_tokens_error},
                            prompt_dialect = {.whole = put_prompt, .error = errors_put},
                            count_dialect = {.whole = put_count, .error = errors_put},
                            render_dialect = {.whole = put_rendered, .error = errors_put},
                            render_list_dialect = {.whole = put_rendered_list, .error = errors_put},
                            response_dialect = {.whole = put_count, .error = responses_put_error};

/* ---- Text and tokens ---- */

struct prompt_request {
    json_t *model; /* NULL: none was named */
    hearth_params params;
    struct fields_prompt prompt;
    bool with_pieces;
    bool is_vllms; /* its text is "prompt" */
};

static void close_request(void *ud)
{
    struct prompt_request *request = ud;
    field_release_prompt(&request->prompt);
    json_decref(request->model);
    free(request);
}

static size_t request_size(const void *ud)
{
    const struct prompt_request *request = ud;
    return sizeof *request + field_prompt_size(&request->prompt);
}

/* Reads text or tokens from the member `name`; missing: none. */
static int read_prompt(struct prompt_request *request, const json_t *body, const char *name, hearth_error *error)
{
    const json_t *value = json_object_get(body, name);
    json_t *none = json_array();
    bool good = field_get_prompt(value == NULL ? none : value, &request->prompt);
    json_decref(none);
    field_use_prompt(&request->prompt, &request->params);
    if (good) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, name, "'%s' must be a string, or a list of tokens and strings", name);
}

/* llama-server's form has "content", vLLM's "prompt". */
static int read_text(struct prompt_request *request, const json_t *body, hearth_error *error)
{
    bool has_content = json_object_get(body, "content") != NULL, parse_special = true;
    request->is_vllms = !has_content && json_object_get(body, "prompt") != NULL;
    bool add_special = request->is_vllms;
    if (!has_content && json_object_get(body, "messages") != NULL)
        return error_at(error, HEARTH_INVALID, "messages",
                        "'messages' are tokenised by POST /v1/chat/completions/render: give 'content' here");
    int rc = read_prompt(request, body, request->is_vllms ? "prompt" : "content", error);
    if (rc == HEARTH_OK) rc = body_bool(body, "add_special_tokens", &add_special, error);
    if (rc == HEARTH_OK) rc = body_bool(body, "add_special", &add_special, error);
    if (rc == HEARTH_OK) rc = body_bool(body, "parse_special", &parse_special, error);
    if (rc == HEARTH_OK) rc = body_bool(body, "with_pieces", &request->with_pieces, error);
    request->params.without_bos_eos = !add_special;
    request->params.plain = !parse_special;
    request->params.keep_prompt = true;
    return rc;
}

static int read_tokens(struct prompt_request *request, const json_t *body, hearth_error *error)
{
    int rc = read_prompt(request, body, "tokens", error);
    if (rc != HEARTH_OK || request->prompt.tokens != NULL) return rc;
    return error_at(error, HEARTH_INVALID, "tokens", "'tokens' must be a list of tokens");
}

static void *open_request(struct buf *text, int (*read)(struct prompt_request *, const json_t *, hearth_error *),
                          hearth_error *error)
{
    json_t *body = fields_parse_body(text, error);
    if (body == NULL) return NULL;
    struct prompt_request *request = mem_alloc(sizeof *request);
    request->params = hearth_params_default();
    request->model = json_incref(json_object_get(body, "model"));
    int rc = body_text(body, "model", &request->params.model, error);
    if (rc == HEARTH_OK) rc = read(request, body, error);
    json_decref(body);
    if (rc == HEARTH_OK) return request;
    close_request(request);
    return NULL;
}

static void *open_text(struct buf *body, hearth_error *error)
{
    return open_request(body, read_text, error);
}

static void *open_tokens(struct buf *body, hearth_error *error)
{
    return open_request(body, read_tokens, error);
}

static void start(struct call *call, const struct dialect *dialect, struct prompt_request *request)
{
    request->params.only_prompt = true;
    exchange_start(call, &(struct exchange_plan){.dialect = dialect,
                                                 .choices = &request->params,
                                                 .n_choices = 1,
                                                 .owner = request,
                                                 .release_owner = close_request});
}

static void answer_tokenize(struct call *call, void *ud)
{
    const struct prompt_request *request = ud;
    const struct dialect *dialect = request->with_pieces ? &pieces_dialect
                                    : request->is_vllms  ? &counted_dialect
                                                         : &tokens_dialect;
    start(call, dialect, ud);
}

const struct reading_form prompt_tokenize =
    READING_FORM(open_text, request_size, answer_tokenize, close_request, errors_put);

static void answer_detokenize(struct call *call, void *ud)
{
    start(call, &content_dialect, ud);
}

const struct reading_form prompt_detokenize =
    READING_FORM(open_tokens, request_size, answer_detokenize, close_request, errors_put);

/* ---- Chats ---- */

static void answer_apply_template(struct call *call, void *fields)
{
    fields_start_prompt(call, fields, &prompt_dialect);
}

static void answer_count(struct call *call, void *fields)
{
    fields_start_prompt(call, fields, &count_dialect);
}

static void answer_count_response(struct call *call, void *fields)
{
    fields_start_prompt(call, fields, &response_dialect);
}

static void answer_render(struct call *call, void *ud)
{
    struct fields *fields = ud;
    fields->params.keep_prompt = true;
    fields_start_prompt(call, fields, &render_dialect);
}

#define TEMPLATE_FORM(how) READING_FORM(how, fields_size, answer_apply_template, fields_close, errors_put)

void prompt_apply_template(struct call *call)
{
    static const struct any_api_form forms[] = {{"chat", TEMPLATE_FORM(fields_open_chat)},
                                                {"messages", TEMPLATE_FORM(any_api_messages)},
                                                {"responses", TEMPLATE_FORM(any_api_responses)},
                                                {"ollama", TEMPLATE_FORM(any_api_ollama)}};
    any_api_start(call, forms, sizeof forms / sizeof *forms);
}

const struct reading_form prompt_count =
    READING_FORM(fields_open_chat, fields_size, answer_count, fields_close, errors_put);

const struct reading_form prompt_render_chat =
    READING_FORM(fields_open_chat, fields_size, answer_render, fields_close, errors_put);

static void *open_response(struct buf *body, const struct reading_caller *caller, hearth_error *error)
{
    struct history history = {.stored = NULL};
    json_t *given = fields_parse_body(body, error);
    struct fields *fields =
        given == NULL ? NULL : responses_open_fields(given, caller, HISTORY_COUNTS, &history, error);
    history_close(&history);
    json_decref(given);
    return fields;
}

const struct reading_form prompt_count_response =
    READING_FORM_WITH(open_response, fields_size, answer_count_response, fields_close, responses_put_error);

/* ---- Completions ---- */

/* One choice for each prompt, however many answers a completion would have. */
static void answer_render_completion(struct call *call, void *ud)
{
    struct fields *fields = ud;
    fields->params.keep_prompt = true;
    fields_start_prompt(call, fields, &render_list_dialect);
}

const struct reading_form prompt_render_completion =
    READING_FORM(fields_open_completion, fields_size, answer_render_completion, fields_close, errors_put);
