/* The dialect of OpenAI's Responses: a response of output items, or a stream of numbered events in which each item
 * is added, grows and is done. The exchange owns its state; answering threads, but for what begins
 * it. */
#include "serve/responses/responses.h"

#include "base/clock.h"
#include "base/memory.h"
#include "serve/core/answer.h"
#include "serve/core/errors.h"
#include "serve/core/pieces.h"
#include "serve/fields/convert.h"
#include "serve/fields/fields.h"
#include "serve/fields/unknown.h"

#include <stdlib.h>
#include <string.h>

struct responses {
    char *id, *model;
    int64_t created;
    struct buf echo; /* the members that repeat the request */
    struct responses_tools *tools;
    struct history history;      /* empty if nothing is stored */
    const struct answer *answer; /* the exchange's, once there is one; needed if a stream breaks off */
    size_t n_events;             /* streamed so far */
    size_t n_begun;              /* parts of the answer whose item was added; the last one is open */
    size_t n_logprobs;           /* streamed so far */
    bool timings_per_token;      /* deltas have timings, as with llama-server */
};

/* The names of the kinds of parts in events and items. The text of a call is its arguments. */
struct kind {
    const char *id_prefix;
    const char *part;   /* type of the item's only content part; NULL: it has none */
    const char *event;  /* of the events "response.….delta" and "response.….done" with its text */
    const char *member; /* the member of "….done" with the whole text */
};

static const struct kind kinds[] = {
    [HEARTH_DELTA_REASONING] = {"rs", "reasoning_text", "reasoning_text", "text"},
    [HEARTH_DELTA_CONTENT] = {"msg", "output_text", "output_text", "text"},
    [HEARTH_DELTA_CALL] = {"fc", NULL, "function_call_arguments", "arguments"},
};

static const struct kind custom_call = {"ctc", NULL, "custom_tool_call_input", "input"};

/* The client's name for the tool of a part that is a call; NULL: a function of the same name. */
static const struct responses_tool *tool_of(const struct responses *state, const struct answer *answer, size_t i)
{
    const struct answer_part *part = &answer->parts[i];
    if (part->type != HEARTH_DELTA_CALL) return NULL;
    return responses_tools_find(state->tools, answer->calls[part->call].name);
}

static bool is_custom(const struct responses *state, const struct answer *answer, size_t i)
{
    const struct responses_tool *tool = tool_of(state, answer, i);
    return tool != NULL && tool->is_custom;
}

static const struct kind *kind_of(const struct responses *state, const struct answer *answer, size_t i)
{
    return is_custom(state, answer, i) ? &custom_call : &kinds[answer->parts[i].type];
}

/* ---- Errors ---- */

void responses_put_error(struct buf *out, const hearth_error *error, const char *request_id)
{
    static const struct convert_name names[] = {{"messages", "input"},
                                                {"prompt", "input"},
                                                {"json_schema", "text.format.schema"},
                                                {"max_tokens", "max_output_tokens"},
                                                {"tools[].function", "tools[]"}};
    hearth_error renamed = convert_rename(error, names, sizeof names / sizeof *names);
    errors_put(out, &renamed, request_id);
}

/* ---- Items ---- */

static void put_text(struct buf *out, const char *member, const struct answer *answer, const struct answer_part *part)
{
    if (part->type == HEARTH_DELTA_CALL) {
        const struct buf *arguments = &answer->calls[part->call].arguments;
        member_put(out, member, arguments->v, arguments->len);
        return;
    }
    const struct buf *whole = part->type == HEARTH_DELTA_CONTENT ? &answer->text : &answer->reasoning;
    member_put(out, member, whole->v + part->start, part->len);
}

/* The logprobs of the tokens [range[0], range[1]), and of one more (NULL: none). */
static void put_logprobs(struct buf *out, const struct answer *answer, const size_t range[2],
                         const struct token_logprobs *last)
{
    buf_puts(out, ",\"logprobs\":[");
    for (size_t i = range[0]; i < range[1]; i++) {
        if (i > range[0]) buf_puts(out, ",");
        token_logprobs_put_openai(out, answer->logprobs[i]);
    }
    if (range[0] < range[1] && last != NULL) buf_puts(out, ",");
    if (last != NULL) token_logprobs_put_openai(out, last);
    buf_puts(out, "]");
}

/* The logprobs of a part's tokens: those before the first of the next part. */
static void put_part_logprobs(struct buf *out, const struct answer *answer, size_t i)
{
    size_t from = answer->parts[i].first_logprobs;
    size_t to = i + 1 < answer->n_parts ? answer->parts[i + 1].first_logprobs : answer->n_logprobs;
    put_logprobs(out, answer, (const size_t[]){from, to}, NULL);
}

static void put_id(struct buf *out, const struct responses *state, const struct answer *answer, size_t i)
{
    buf_printf(out, "%s_%s_%zu", kind_of(state, answer, i)->id_prefix, state->id, i);
}

/* `begun`: the part has just been added, without text. */
static void put_part(struct buf *out, const struct answer *answer, size_t i, bool begun)
{
    const struct answer_part *part = &answer->parts[i];
    buf_printf(out, "{\"type\":\"%s\",", kinds[part->type].part);
    if (begun)
        buf_puts(out, "\"text\":\"\"");
    else
        put_text(out, "text", answer, part);
    if (part->type == HEARTH_DELTA_CONTENT) {
        buf_puts(out, ",\"annotations\":[]");
        if (begun)
            buf_puts(out, ",\"logprobs\":[]");
        else
            put_part_logprobs(out, answer, i);
    }
    buf_puts(out, "}");
}

/* The text of a part; the input of a custom tool's call without the JSON around it. */
static void put_given(struct buf *out, const struct responses *state, const struct answer *answer, size_t i,
                      const char *member)
{
    const struct answer_part *part = &answer->parts[i];
    struct buf input = {0};
    if (!is_custom(state, answer, i)) {
        put_text(out, member, answer, part);
        return;
    }
    custom_tool_put_input(&input, &answer->calls[part->call].arguments);
    member_put(out, member, input.v == NULL ? "" : input.v, input.len);
    buf_release(&input);
}

static void put_name(struct buf *out, const struct responses *state, const struct answer *answer, size_t i)
{
    const struct responses_tool *tool = tool_of(state, answer, i);
    member_puts(out, "name", tool != NULL ? tool->name : answer->calls[answer->parts[i].call].name);
    if (tool != NULL && tool->space != NULL) member_puts(out, "namespace", tool->space);
}

static void put_item(struct buf *out, const struct responses *state, const struct answer *answer, size_t i,
                     const char *status)
{
    static const char *const openings[] = {
        [HEARTH_DELTA_REASONING] = ",\"type\":\"reasoning\",\"summary\":[],\"content\":[",
        [HEARTH_DELTA_CONTENT] = ",\"type\":\"message\",\"role\":\"assistant\",\"content\":["};
    const struct answer_part *part = &answer->parts[i];
    bool begun = strcmp(status, "in_progress") == 0;
    buf_puts(out, "{\"id\":\"");
    put_id(out, state, answer, i);
    buf_puts(out, "\"");
    if (part->type == HEARTH_DELTA_CALL) {
        const char *member = kind_of(state, answer, i)->member;
        bool custom = is_custom(state, answer, i);
        buf_printf(out, ",\"type\":\"%s\",", custom ? "custom_tool_call" : "function_call");
        member_puts(out, "call_id", answer->calls[part->call].id);
        buf_puts(out, ",");
        put_name(out, state, answer, i);
        if (begun)
            member_puts(out, member, "");
        else
            put_given(out, state, answer, i, member);
    } else {
        buf_puts(out, openings[part->type]);
        if (!begun) put_part(out, answer, i, false);
        buf_puts(out, "]");
    }
    buf_printf(out, ",\"status\":\"%s\"}", status);
}

/* The last item of an answer that was cut off is incomplete. */
static const char *item_status(const struct answer *answer, size_t i)
{
    bool cut = !answer->done || answer->result.finish == HEARTH_FINISH_LENGTH;
    return cut && i + 1 == answer->n_parts ? "incomplete" : "completed";
}

/* ---- Responses ---- */

void responses_put_usage(struct buf *out, const struct answer *answer)
{
    const hearth_result *r = &answer->result;
    int32_t prompt = r->cache_n + r->prompt_n;
    buf_printf(out,
               "{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d},\"output_tokens\":%d,"
               "\"output_tokens_details\":{\"reasoning_tokens\":%d},\"total_tokens\":%d",
               prompt, r->cache_n, r->predicted_n, answer->reasoning_n, prompt + r->predicted_n);
    answer_put_left_out(out, answer);
    buf_puts(out, "}");
}

static void put_failure(struct buf *out, const hearth_error *error)
{
    if (error == NULL) {
        buf_puts(out, "null");
        return;
    }
    /* A request that is itself at fault is not to be tried again. */
    bool is_at_fault = error->code == HEARTH_INVALID || error->code == HEARTH_UNSUPPORTED;
    const char *code = error->code == HEARTH_TOO_LONG ? "context_length_exceeded"
                       : is_at_fault                  ? "invalid_prompt"
                                                      : "server_error";
    buf_printf(out, "{\"code\":\"%s\",\"message\":", code);
    errors_put_message(out, error->message);
    buf_puts(out, "}");
}

static const char *status_of(const struct answer *answer)
{
    return answer->result.finish == HEARTH_FINISH_LENGTH ? "incomplete" : "completed";
}

/* `answer`: NULL: no output yet. `error`: why it failed, or NULL. */
static void put_response(struct buf *out, const struct responses *state, const struct answer *answer,
                         const hearth_error *error)
{
    bool ended = answer != NULL && error == NULL;
    const char *status = error != NULL ? "failed" : ended ? status_of(answer) : "in_progress";
    bool cut = strcmp(status, "incomplete") == 0;
    buf_printf(out, "{\"id\":\"resp_%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"error\":",
               state->id, (long long)state->created, status);
    put_failure(out, error);
    buf_printf(out, ",\"incomplete_details\":%s,", cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
    member_puts(out, "model", state->model);
    buf_puts(out, ",\"output\":[");
    for (size_t i = 0; answer != NULL && i < answer->n_parts; i++) {
        if (i > 0) buf_puts(out, ",");
        put_item(out, state, answer, i, item_status(answer, i));
    }
    buf_puts(out, "],\"usage\":");
    if (ended)
        responses_put_usage(out, answer);
    else
        buf_puts(out, "null");
    buf_append(out, state->echo.v, state->echo.len);
    buf_puts(out, "}");
}

/* Stores the complete response and its items. */
static void store_response(struct responses *state, const struct answer *answer)
{
    struct buf text = {0}, id = {0};
    if (state->history.turn == NULL) return;
    for (size_t i = 0; i < answer->n_parts; i++) {
        buf_clear(&id);
        put_id(&id, state, answer, i);
        put_item(&text, state, answer, i, item_status(answer, i));
        stored_turn_add(state->history.turn, id.v, &text);
    }
    buf_release(&id);
    put_response(&text, state, answer, NULL);
    history_finish(&state->history, &text);
}

static void put_whole(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)n; /* 1 */
    put_response(out, state, answers, NULL);
    store_response(state, answers);
}

/* ---- Streams ---- */

/* Begins an event and the members that all events have; close_event() ends it. */
static void open_event(struct buf *out, struct responses *state, const char *name, const char *more)
{
    buf_printf(out, "event: response.%s%s\ndata: {\"type\":\"response.%s%s\",\"sequence_number\":%zu", name, more, name,
               more, state->n_events++);
}

static void close_event(struct buf *out)
{
    buf_puts(out, "}\n\n");
}

/* Begins an event with the whole response. */
static void open_state(struct buf *out, struct responses *state, const char *name, const struct answer *answer,
                       const hearth_error *error)
{
    open_event(out, state, name, "");
    buf_puts(out, ",\"response\":");
    put_response(out, state, answer, error);
}

static void put_state(struct buf *out, struct responses *state, const char *name, const hearth_error *error)
{
    open_state(out, state, name, state->answer, error);
    close_event(out);
}

static void put_started(void *ud, size_t index, const hearth_result *result, struct buf *out)
{
    (void)index, (void)result;
    put_state(out, ud, "created", NULL);
    put_state(out, ud, "in_progress", NULL);
}

/* The beginning again, with llama-server's count of the prompt beside it. */
static void put_progress(void *ud, size_t index, const hearth_result *result, struct buf *out)
{
    (void)index;
    struct responses *state = ud;
    open_state(out, state, "in_progress", NULL, NULL);
    if (state->timings_per_token) timings_put(out, result);
    timings_put_progress(out, result);
    close_event(out);
}

static void put_item_event(struct buf *out, struct responses *state, const char *name, const char *status)
{
    size_t i = state->n_begun - 1;
    open_event(out, state, name, "");
    buf_printf(out, ",\"output_index\":%zu,\"item\":", i);
    put_item(out, state, state->answer, i, status);
    close_event(out);
}

/* Begins an event about the content of the open item. */
static const struct kind *open_content_event(struct buf *out, struct responses *state, const char *name,
                                             const char *more)
{
    size_t i = state->n_begun - 1;
    const struct kind *kind = kind_of(state, state->answer, i);
    open_event(out, state, name == NULL ? kind->event : name, more);
    buf_puts(out, ",\"item_id\":\"");
    put_id(out, state, state->answer, i);
    buf_printf(out, "\",\"output_index\":%zu,", i);
    if (kind->part != NULL) buf_puts(out, "\"content_index\":0,");
    return kind;
}

static void put_part_event(struct buf *out, struct responses *state, const char *more)
{
    open_content_event(out, state, "content_part", more);
    buf_puts(out, "\"part\":");
    put_part(out, state->answer, state->n_begun - 1, strcmp(more, ".added") == 0);
    close_event(out);
}

static void end_item(struct buf *out, struct responses *state)
{
    if (state->n_begun == 0) return;
    size_t i = state->n_begun - 1;
    const struct answer_part *part = &state->answer->parts[i];
    /* Sends the input of a custom tool's call as a single delta once it is complete: the model's arguments are JSON
     * around it. */
    if (is_custom(state, state->answer, i)) {
        open_content_event(out, state, NULL, ".delta");
        put_given(out, state, state->answer, i, "delta");
        close_event(out);
    }
    const struct kind *kind = open_content_event(out, state, NULL, ".done");
    if (kind == &kinds[HEARTH_DELTA_CALL]) put_name(out, state, state->answer, i);
    put_given(out, state, state->answer, i, kind->member);
    if (part->type == HEARTH_DELTA_CONTENT) put_part_logprobs(out, state->answer, i);
    close_event(out);
    if (kind->part != NULL) put_part_event(out, state, ".done");
    put_item_event(out, state, "output_item.done", state->answer->done ? item_status(state->answer, i) : "completed");
}

static void put_more(void *ud, const struct exchange_piece *piece, struct buf *out)
{
    struct responses *state = ud;
    const struct answer *answer = piece->answer;
    const hearth_delta *delta = piece->delta;
    state->answer = answer;
    if (answer->n_parts > state->n_begun) {
        end_item(out, state);
        const struct answer_part *part = &answer->parts[state->n_begun++];
        state->n_logprobs = part->first_logprobs;
        put_item_event(out, state, "output_item.added", "in_progress");
        if (kinds[part->type].part != NULL) put_part_event(out, state, ".added");
    }
    if (delta == NULL || delta->len == 0 || is_custom(state, answer, state->n_begun - 1)) return;
    open_content_event(out, state, NULL, ".delta");
    member_put(out, "delta", delta->text, delta->len);
    /* The logprobs of its token, and of those before it that added no text of their own. */
    if (delta->type == HEARTH_DELTA_CONTENT) {
        put_logprobs(out, answer, (const size_t[]){state->n_logprobs, answer->n_logprobs}, piece->logprobs);
        state->n_logprobs = answer->n_logprobs + (piece->logprobs != NULL);
    }
    if (state->timings_per_token) timings_put(out, &answer->result);
    close_event(out);
}

static void put_done(void *ud, size_t index, const struct answer *answer, struct buf *out)
{
    (void)index; /* 0 */
    struct responses *state = ud;
    state->answer = answer;
    end_item(out, state);
}

static void put_ended(void *ud, const struct answer *answers, size_t n, struct buf *out)
{
    (void)n; /* 1 */
    struct responses *state = ud;
    open_state(out, state, status_of(answers), state->answer, NULL);
    timings_put(out, &answers->result);
    close_event(out);
    store_response(state, answers);
}

static void put_broken(void *state, const hearth_error *error, struct buf *out)
{
    put_state(out, state, "failed", error);
}

/* Codex takes a stream for dead that brings no events, whatever comments it has. */
static void put_ping(void *ud, struct buf *out)
{
    struct responses *state = ud;
    if (state->n_events == 0) {
        buf_puts(out, ":\n\n");
        return;
    }
    open_state(out, state, "in_progress", NULL, NULL);
    close_event(out);
}

/* ---- State ---- */

void *responses_state(const struct responses_names *names, struct buf *echo, struct responses_tools **tools)
{
    struct responses *state = mem_alloc(sizeof *state);
    state->id = mem_strdup(names->id);
    state->model = mem_strdup(names->model);
    state->created = names->created;
    state->timings_per_token = names->timings_per_token;
    state->echo = *echo;
    *echo = (struct buf){0};
    state->tools = *tools;
    *tools = NULL;
    return state;
}

static void release(void *ud)
{
    struct responses *state = ud;
    free(state->id);
    free(state->model);
    buf_release(&state->echo);
    responses_tools_close(state->tools);
    history_close(&state->history);
    free(state);
}

const struct dialect responses_dialect = {.started = put_started,
                                          .progress = put_progress,
                                          .more = put_more,
                                          .done = put_done,
                                          .ended = put_ended,
                                          .broken = put_broken,
                                          .whole = put_whole,
                                          .ping = put_ping,
                                          .keeps_logprobs = true,
                                          .error = responses_put_error,
                                          .release = release};

/* ---- Route ---- */

/* A parsed request, and what its response repeats of it. */
struct request {
    struct fields *fields;
    struct buf echo;
    struct responses_tools *tools;
    struct history history;
};

static void close_request(void *ud)
{
    struct request *request = ud;
    if (request->fields != NULL) fields_close(request->fields);
    buf_release(&request->echo);
    responses_tools_close(request->tools);
    history_close(&request->history);
    free(request);
}

static size_t request_size(const void *ud)
{
    const struct request *request = ud;
    return fields_size(request->fields) + request->echo.len + history_size(&request->history);
}

struct fields *responses_open_fields(json_t *body, const struct reading_caller *caller, enum history_use use,
                                     struct history *history, hearth_error *error)
{
    json_t *before;
    struct uploads uploads = {0};
    struct fields_converted converted = {.body = body, .uploads = &uploads};
    if (history_open(history, body, caller, use, &before, error) == HEARTH_OK)
        converted.chat = responses_chat_after(before, body, &uploads, &converted.left_out, error);
    json_decref(before);
    struct fields *fields =
        converted.chat == NULL ? NULL : fields_open_converted(&converted, FIELDS_CHAT, &responses_api, error);
    uploads_release(&uploads);
    return fields;
}

static void *read_request(struct buf *body, const struct reading_caller *caller, hearth_error *error)
{
    struct request *request = mem_alloc(sizeof *request);
    json_t *given = fields_parse_body(body, error);
    if (given != NULL) request->fields = responses_open_fields(given, caller, HISTORY_STORES, &request->history, error);
    if (request->fields != NULL) {
        responses_put_echo(&request->echo, given);
        request->tools = responses_tools_open(given);
    }
    json_decref(given);
    if (request->fields != NULL) return request;
    close_request(request);
    return NULL;
}

static void answer(struct call *call, void *ud)
{
    struct request *request = ud;
    struct fields *fields = request->fields;
    unknown_report(call, fields);
    struct responses_names names = {call_model(call, fields->params.model), request->history.id, clock_unix_ms() / 1000,
                                    fields->timings_per_token};
    struct responses *state = responses_state(&names, &request->echo, &request->tools);
    state->history = request->history;
    request->history = (struct history){.stored = NULL};
    fields->n = 1;
    request->fields = NULL;
    close_request(request);
    fields_start(call, fields,
                 (struct exchange_plan){.dialect = &responses_dialect, .state = state, .stream = fields->stream});
}

const struct reading_form responses_create =
    READING_FORM_WITH(read_request, request_size, answer, close_request, responses_put_error);
