/* Anthropic's dialect: a message of content blocks, or a stream of events in which each block starts, grows and
 * stops. The exchange owns its state; answering threads, but for what begins it. */
#include "serve/anthropic/anthropic.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "serve/core/errors.h"
#include "serve/core/pieces.h"
#include "serve/fields/convert.h"
#include "serve/fields/unknown.h"

#include <stdlib.h>
#include <string.h>

struct anthropic {
    char *id, *model;
    size_t n_begun; /* parts of the answer whose block was started in the stream; the last one is open */
};

/* ---- Errors ---- */

static const struct {
    int status;
    const char *type;
} types[] = {{400, "invalid_request_error"}, {401, "authentication_error"},  {403, "permission_error"},
             {404, "not_found_error"},       {405, "invalid_request_error"}, {413, "request_too_large"},
             {415, "invalid_request_error"}, {429, "rate_limit_error"},      {503, "overloaded_error"}};

static void put_error_members(struct buf *out, const hearth_error *error)
{
    static const struct convert_name names[] = {{"tools[].function.parameters", "tools[].input_schema"},
                                                {"tools[].function", "tools[]"},
                                                {"json_schema", "output_config.format.schema"},
                                                {"stop", "stop_sequences"}};
    hearth_error renamed = convert_rename(error, names, sizeof names / sizeof *names);
    struct buf text = {0};
    const char *type = "api_error";
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].status == errors_kind(error->code)->status) type = types[i].type;
    buf_printf(out, "\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", type);
    /* Clients shorten the conversation by themselves where the message has Anthropic's own words and numbers. */
    if (error->window > 0)
        buf_printf(&text, "prompt is too long: %lld tokens > %lld maximum: ", (long long)error->n_prompt,
                   (long long)error->window);
    buf_puts(&text, renamed.message);
    errors_put_message(out, buf_text(&text));
    buf_release(&text);
    if (strcmp(error->param, "thread") == 0) /* by which SDKs know that they have to send the whole conversation */
        buf_puts(out, ",\"details\":{\"error_code\":\"thread_unsupported_request\",\"unsupported\":[\"thread\"]}");
    buf_puts(out, "}");
}

void anthropic_put_error(struct buf *out, const hearth_error *error, const char *request_id)
{
    buf_puts(out, "{");
    put_error_members(out, error);
    member_puts(out, "request_id", request_id);
    buf_puts(out, "}");
}

/* ---- Pieces ---- */

/* The three numbers of the prompt add up to its tokens: those that were cached, those that were computed and are kept,
 * and the rest. The rest is at least the one token that is always computed. At the start of a stream prompt_n may be
 * less than what is to be computed. */
static void put_tokens(struct buf *out, const hearth_result *r)
{
    int32_t rest = r->n_prompt - r->cache_n > r->prompt_n ? r->n_prompt - r->cache_n : r->prompt_n;
    int32_t created = r->kept_n > r->cache_n ? r->kept_n - r->cache_n : 0;
    buf_printf(out,
               "\"usage\":{\"input_tokens\":%d,\"cache_creation_input_tokens\":%d,\"cache_read_input_tokens\":%d,"
               "\"output_tokens\":%d",
               rest - created, created, r->cache_n, r->predicted_n);
}

static void put_usage(struct buf *out, const struct answer *answer)
{
    put_tokens(out, &answer->result);
    answer_put_left_out(out, answer);
    buf_puts(out, "}");
}

static void put_stop(struct buf *out, const struct answer *answer)
{
    const bool is_cut = answer->result.finish == HEARTH_FINISH_LENGTH;
    const char *stop = answer->result.finish == HEARTH_FINISH_STOP ? answer->result.stop_string : NULL;
    const char *reason = is_cut                               ? "max_tokens"
                         : answer->result.stop_string != NULL ? "stop_sequence"
                         : answer->n_calls > 0                ? "tool_use"
                                                              : "end_turn";
    buf_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    if (stop == NULL)
        buf_puts(out, "null");
    else
        utf8_put_json_string(out, stop, strlen(stop));
}

static void put_head(struct buf *out, const struct anthropic *state)
{
    buf_puts(out, "{");
    member_puts(out, "id", state->id);
    buf_puts(out, ",\"type\":\"message\",\"role\":\"assistant\",");
    member_puts(out, "model", state->model);
    buf_puts(out, ",\"content\":[");
}

static void put_tool_use(struct buf *out, const struct answer_call *call)
{
    buf_puts(out, "{\"type\":\"tool_use\",");
    member_puts(out, "id", call->id);
    member_puts(out, "name", call->name);
    buf_puts(out, ",\"input\":");
}

/* ---- Whole answers ---- */

static void put_block(struct buf *out, const struct answer *answer, const struct answer_part *part)
{
    switch (part->type) {
    case HEARTH_DELTA_REASONING:
        buf_puts(out, "{\"type\":\"thinking\",");
        member_put(out, "thinking", answer->reasoning.v + part->start, part->len);
        buf_puts(out, ",\"signature\":\"\"}");
        break;
    case HEARTH_DELTA_CONTENT:
        buf_puts(out, "{\"type\":\"text\",");
        member_put(out, "text", answer->text.v + part->start, part->len);
        buf_puts(out, "}");
        break;
    default:
        put_tool_use(out, &answer->calls[part->call]);
        answer_put_arguments(out, &answer->calls[part->call]);
        buf_puts(out, "}");
        break;
    }
}

static void put_whole(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)n; /* 1 */
    put_head(out, state);
    for (size_t i = 0; i < answers->n_parts; i++) {
        if (i > 0) buf_puts(out, ",");
        put_block(out, answers, &answers->parts[i]);
    }
    buf_puts(out, "],");
    put_stop(out, answers);
    buf_puts(out, ",");
    put_usage(out, answers);
    buf_puts(out, "}");
}

/* ---- Streams ---- */

#define PING "event: ping\ndata: {\"type\":\"ping\"}\n\n"

/* Begins an event and its data object; close_event() ends them. */
static void open_event(struct buf *out, const char *type)
{
    buf_printf(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void close_event(struct buf *out)
{
    buf_puts(out, "}\n\n");
}

static void put_started(void *state, size_t index, const hearth_result *result, struct buf *out)
{
    (void)index; /* 0 */
    open_event(out, "message_start");
    buf_puts(out, ",\"message\":");
    put_head(out, state);
    buf_puts(out, "],\"stop_reason\":null,\"stop_sequence\":null,");
    put_tokens(out, result);
    buf_puts(out, "}}");
    close_event(out);
    buf_puts(out, PING);
}

/* ,"index":…,"delta":{"type":…,MEMBER:TEXT} of the open block. */
static void put_delta(struct buf *out, const struct anthropic *state, const char *const names[2],
                      const hearth_delta *delta)
{
    open_event(out, "content_block_delta");
    buf_printf(out, ",\"index\":%zu,\"delta\":{\"type\":\"%s\",", state->n_begun - 1, names[0]);
    member_put(out, names[1], delta->text, delta->len);
    buf_puts(out, "}");
    close_event(out);
}

static void end_block(struct buf *out, const struct anthropic *state, const struct answer *answer)
{
    static const char *const signature[2] = {"signature_delta", "signature"};
    static const hearth_delta none = {.len = 0};
    if (state->n_begun == 0) return;
    if (answer->parts[state->n_begun - 1].type == HEARTH_DELTA_REASONING) put_delta(out, state, signature, &none);
    open_event(out, "content_block_stop");
    buf_printf(out, ",\"index\":%zu", state->n_begun - 1);
    close_event(out);
}

static void put_more(void *ud, const struct exchange_piece *piece, struct buf *out)
{
    static const char *const names[][2] = {[HEARTH_DELTA_REASONING] = {"thinking_delta", "thinking"},
                                           [HEARTH_DELTA_CONTENT] = {"text_delta", "text"},
                                           [HEARTH_DELTA_ARGUMENTS] = {"input_json_delta", "partial_json"}};
    static const char *const empty[] = {[HEARTH_DELTA_REASONING] =
                                            "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}",
                                        [HEARTH_DELTA_CONTENT] = "{\"type\":\"text\",\"text\":\"\"}"};
    struct anthropic *state = ud;
    const struct answer *answer = piece->answer;
    if (answer->n_parts > state->n_begun) {
        end_block(out, state, answer);
        const struct answer_part *part = &answer->parts[state->n_begun];
        open_event(out, "content_block_start");
        buf_printf(out, ",\"index\":%zu,\"content_block\":", state->n_begun++);
        if (part->type == HEARTH_DELTA_CALL) {
            put_tool_use(out, &answer->calls[part->call]);
            buf_puts(out, "{}}");
        } else {
            buf_puts(out, empty[part->type]);
        }
        close_event(out);
    }
    if (piece->delta != NULL && piece->delta->len > 0) put_delta(out, state, names[piece->delta->type], piece->delta);
}

static void put_ping(void *state, struct buf *out)
{
    (void)state;
    buf_puts(out, PING);
}

static void put_done(void *state, size_t index, const struct answer *answer, struct buf *out)
{
    (void)index; /* 0 */
    end_block(out, state, answer);
    open_event(out, "message_delta");
    buf_puts(out, ",\"delta\":{");
    put_stop(out, answer);
    buf_puts(out, "},");
    put_usage(out, answer);
    close_event(out);
}

static void put_ended(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)answers, (void)n;
    open_event(out, "message_stop");
    close_event(out);
}

static void put_broken(void *state, const hearth_error *error, struct buf *out)
{
    (void)state;
    buf_puts(out, "event: error\ndata: {");
    put_error_members(out, error);
    close_event(out);
}

/* ---- State ---- */

void *anthropic_state(const char *id, const char *model)
{
    struct anthropic *state = mem_alloc(sizeof *state);
    state->id = mem_format("msg_%s", id);
    state->model = mem_strdup(model);
    return state;
}

static void release(void *ud)
{
    struct anthropic *state = ud;
    free(state->id);
    free(state->model);
    free(state);
}

const struct dialect anthropic_dialect = {.started = put_started,
                                          .more = put_more,
                                          .done = put_done,
                                          .ended = put_ended,
                                          .broken = put_broken,
                                          .ping = put_ping,
                                          .whole = put_whole,
                                          .error = anthropic_put_error,
                                          .release = release};

/* ---- Counting tokens ---- */

static void put_count(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)state, (void)n;
    buf_printf(out, "{\"input_tokens\":%d}", answers->result.n_prompt);
}

/* Never streamed: the functions for streams are NULL. */
static const struct dialect count_dialect = {.whole = put_count, .error = anthropic_put_error};

/* ---- Routes ---- */

static void *read_chat(struct buf *body, hearth_error *error)
{
    return fields_open(body, FIELDS_CHAT, &anthropic_api, error);
}

static void answer(struct call *call, void *owner)
{
    struct fields *fields = owner;
    char id[25];
    unknown_report(call, fields);
    call_random_name(id, sizeof id);
    fields->n = 1;
    void *state = anthropic_state(id, call_model(call, fields->params.model));
    fields_start(call, fields,
                 (struct exchange_plan){.dialect = &anthropic_dialect, .state = state, .stream = fields->stream});
}

const struct reading_form anthropic_messages =
    READING_FORM(read_chat, fields_size, answer, fields_close, anthropic_put_error);

static void answer_count(struct call *call, void *owner)
{
    fields_start_prompt(call, owner, &count_dialect);
}

const struct reading_form anthropic_count_tokens =
    READING_FORM(read_chat, fields_size, answer_count, fields_close, anthropic_put_error);
