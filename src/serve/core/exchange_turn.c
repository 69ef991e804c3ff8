/* The turns of an exchange: submits its choices, takes their events, parses replies and writes the answer. Answering
 * threads; one has the exchange at a time. */
#include "serve/core/exchange_parts.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "serve/core/server.h"

#include <stdlib.h>
#include <string.h>

/* About so many bytes are written in a turn: few are copied at a time, and others have their turn. */
#define TURN_BYTES (64 << 10)

/* A whole answer of up to so many bytes is sent with its length; of a longer one pieces are sent as they are made. */
#define SHORT_BYTES (256 << 10)

/* ---- The end of the answer ---- */

void exchange_cancel(struct exchange *ex)
{
    for (size_t i = 0; i < ex->n; i++)
        if (ex->choices[i].request != NULL) hearth_cancel(ex->choices[i].request);
}

static void end_with(struct exchange *ex, enum exchange_end end)
{
    ex->ended = true;
    ex->news.end = end;
}

void exchange_put_no_start(void *state, size_t index, const hearth_result *result, struct buf *out)
{
    (void)state, (void)index, (void)result, (void)out;
}

void exchange_put_broken(void *state, const hearth_error *error, struct buf *out)
{
    (void)state;
    buf_puts(out, "data: ");
    errors_put(out, error, NULL);
    buf_puts(out, "\n\n");
}

static void fail(struct exchange *ex, const hearth_error *error)
{
    exchange_cancel(ex);
    if (!ex->begun) {
        ex->news.error = *error;
        end_with(ex, EXCHANGE_FAILED);
        return;
    }
    hearth_error renamed = places_rename(ex->call->places, error);
    if (ex->stream) ex->dialect->broken(ex->state, &renamed, &ex->out);
    end_with(ex, EXCHANGE_ENDED);
}

static void finish(struct exchange *ex)
{
    const struct dialect *dialect = ex->dialect;
    hearth_error error;
    if (ex->stream) {
        dialect->ended(ex->state, ex->answers, ex->n, &ex->out);
        end_with(ex, EXCHANGE_ENDED);
    } else if (dialect->check != NULL && dialect->check(ex->state, ex->answers, &error) != HEARTH_OK) {
        fail(ex, &error);
    } else if (dialect->pieces == NULL) {
        dialect->whole(ex->state, ex->answers, ex->n, &ex->out);
        end_with(ex, EXCHANGE_SHORT);
    } else {
        dialect->pieces(ex->state, ex->answers, ex->n, &ex->body);
        ex->news.has_more = pieces_take(&ex->body, SHORT_BYTES, &ex->out);
        if (ex->news.has_more)
            ex->begun = ex->news.begins = true;
        else
            end_with(ex, EXCHANGE_SHORT);
    }
}

/* ---- Events ---- */

/* Adds each line, and returns how many they are. `places`: those of the fields that the lines name, or NULL. */
static size_t add_lines(struct header_list *list, const char *lines, const json_t *places)
{
    size_t n = 0;
    for (size_t len; lines != NULL && *lines != '\0'; lines += len + (lines[len] == '\n')) {
        len = strcspn(lines, "\n");
        char *line = mem_strndup(lines, len);
        header_list_add(list, places == NULL ? line : places_find(places, line).v);
        free(line);
        n++;
    }
    return n;
}

static void note_started(struct exchange *ex, const struct outbox_event *event)
{
    struct answer *answer = &ex->answers[event->choice];
    answer->result = event->result;
    if (answer->started) return;
    answer->started = true;
    hearth_request *request = ex->choices[event->choice].request;
    ex->choices[event->choice].reader = hearth_reader_open(request);
    answer->sampling = hearth_request_sampling(request);
    answer->prompt = hearth_request_prompt(request);
    answer->divergence = hearth_request_divergence(request);
    /* Parts that the chat template does not print are named like those that no template could. */
    size_t n_lost = add_lines(&ex->news.left_out, hearth_request_left_out(request), ex->call->places);
    answer->n_left_out = ex->n_left_out + n_lost;
    add_lines(&ex->news.unenforced, hearth_request_unenforced(request), NULL);
    if (!ex->stream) return;
    /* The head is sent at the first sign of success, so that what fails before is a proper HTTP error. */
    if (!ex->begun) ex->news.begins = true;
    ex->begun = true;
    ex->dialect->started(ex->state, event->choice, &answer->result, &ex->out);
}

/* Whether the answer may hold these logprobs, too: they are far larger than what they are made from. */
static bool admit_logprobs(struct exchange *ex, const struct token_logprobs *logprobs)
{
    hearth_error error;
    ex->logprobs_bytes += token_logprobs_bytes(logprobs);
    if (ex->logprobs_bytes <= ex->server->limits.logprobs_bytes) return true;
    error_set(&error, HEARTH_TOO_LONG,
              "the logprobs of the answer take more than %zu MiB of memory: ask for fewer of them, or for a stream",
              ex->server->limits.logprobs_bytes >> 20);
    fail(ex, &error);
    return false;
}

/* A piece of a stream that is being emitted. */
struct emission {
    struct exchange *ex;
    struct exchange_piece piece;
    bool emitted; /* a delta with its token has been */
};

static void emit_delta(void *ud, const hearth_delta *delta)
{
    struct emission *emission = ud;
    struct exchange *ex = emission->ex;
    struct exchange_piece *piece = &emission->piece;
    answer_add(&ex->answers[piece->index], delta);
    piece->delta = delta;
    if (ex->stream) ex->dialect->more(ex->state, piece, &ex->out);
    piece->delta = NULL;
    piece->token = -1;
    piece->logprobs = NULL;
    emission->emitted = true;
}

static void note_text(struct exchange *ex, struct outbox_event *event)
{
    struct answer *answer = &ex->answers[event->choice];
    note_started(ex, event);
    struct emission emission = {
        .ex = ex,
        .piece = {.index = event->choice, .token = event->token, .logprobs = event->logprobs, .answer = answer}};
    if (ex->outbox.keeps_empty && event->token >= 0) tokens_push(&answer->tokens, event->token);
    /* A completion has no parser: its text is content as it is. */
    hearth_reader *reader = ex->choices[event->choice].reader;
    hearth_delta delta = {.type = HEARTH_DELTA_CONTENT, .text = event->text, .len = event->len};
    if (reader != NULL)
        hearth_reader_add(reader, event->text, event->len, emit_delta, &emission);
    else if (event->len > 0)
        emit_delta(&emission, &delta);
    if (event->token >= 0) answer_add_token(answer);
    bool counts = event->logprobs != NULL || (ex->outbox.keeps_empty && event->token >= 0);
    if (ex->stream && !emission.emitted && counts) ex->dialect->more(ex->state, &emission.piece, &ex->out);
    /* A stream has sent them, and most dialects then need them no more. */
    if (event->logprobs == NULL || (ex->stream && !ex->dialect->keeps_logprobs)) return;
    if (!admit_logprobs(ex, event->logprobs)) return;
    answer_add_logprobs(answer, event->logprobs);
    event->logprobs = NULL;
}

static void note_done(struct exchange *ex, const struct outbox_event *event)
{
    struct answer *answer = &ex->answers[event->choice];
    struct choice *choice = &ex->choices[event->choice];
    note_started(ex, event);
    struct emission emission = {.ex = ex, .piece = {.index = event->choice, .token = -1, .answer = answer}};
    if (choice->reader != NULL) hearth_reader_end(choice->reader, emit_delta, &emission);
    /* Half a call is no call that could be made: clients are told that the reply was cut off. */
    if (choice->reader != NULL && !hearth_reader_is_whole(choice->reader)) answer->result.finish = HEARTH_FINISH_LENGTH;
    if (event->len > 0) choice->stop_string = mem_strndup(event->text, event->len);
    answer->result.stop_string = choice->stop_string;
    answer->done = true;
    if (ex->stream) ex->dialect->done(ex->state, event->choice, answer, &ex->out);
    if (++ex->n_done == ex->n) finish(ex);
}

/* Counts tokens against the API key's rate limit: the prompt as soon as it starts, and the reply as it comes. So a
 * client that disconnects early is charged for the prompt. The last event has the final number. */
static void count_tokens(struct exchange *ex, const struct outbox_event *event)
{
    struct choice *choice = &ex->choices[event->choice];
    const hearth_result *r = &event->result;
    int64_t tokens = (int64_t)r->prompt_n + r->predicted_n;
    if (event->type == HEARTH_EVENT_STARTED && choice->counted < 0) choice->counted = 0;
    if (choice->counted < 0 || (tokens <= choice->counted && event->type != HEARTH_EVENT_DONE)) return;
    ex->news.tokens += tokens - choice->counted;
    choice->counted = tokens;
}

static void handle_event(struct exchange *ex, struct outbox_event *event)
{
    struct answer *answer = &ex->answers[event->choice];
    count_tokens(ex, event);
    /* Of a request that fails in a slot the last event before that says how far it came. */
    if (event->type == HEARTH_EVENT_FAILED && !answer->started) answer->result = event->result;
    if (event->type != HEARTH_EVENT_PROMPT) ex->choices[event->choice].told = true;
    if (event->type == HEARTH_EVENT_DONE || event->type == HEARTH_EVENT_FAILED) {
        ex->news.slots++;
        ex->n_running--;
    }
    if (ex->ended || ex->call == NULL || atomic_load(&ex->gone)) return;
    switch (event->type) {
    case HEARTH_EVENT_STARTED:
        note_started(ex, event);
        break;
    case HEARTH_EVENT_PROMPT:
        buf_append(&answer->text, event->text, event->len);
        break;
    case HEARTH_EVENT_PROMPT_LOGPROBS:
        if (admit_logprobs(ex, event->logprobs)) {
            answer_add_prompt_logprobs(answer, event->logprobs);
            event->logprobs = NULL;
        }
        break;
    case HEARTH_EVENT_PROGRESS:
        note_started(ex, event);
        if (ex->stream && ex->dialect->progress != NULL)
            ex->dialect->progress(ex->state, event->choice, &event->result, &ex->out);
        break;
    case HEARTH_EVENT_TEXT:
        note_text(ex, event);
        break;
    case HEARTH_EVENT_DONE:
        note_done(ex, event);
        break;
    case HEARTH_EVENT_FAILED:
        fail(ex, event->error);
        break;
    }
}

/* Runs on the library's threads. Once the outbox has the last event the exchange may be freed at any moment, unless
 * outbox_put() has woken it: then it is this thread's until it is handed over. */
static void on_event(void *ud, const hearth_event *event)
{
    struct choice *choice = ud;
    struct exchange *ex = choice->exchange;
    struct workers *workers = ex->server->workers;
    if (outbox_put(&ex->outbox, choice->index, event)) workers_do(workers, &ex->work);
}

/* ---- Submission ---- */

static int submit_choice(struct exchange *ex, hearth_error *error)
{
    struct choice *choice = &ex->choices[ex->n_running];
    hearth_params params = ex->params[ex->n_running];
    params.shared = ex->common->shared;
    params.request_id = ex->call->id;
    params.cache_salt = ex->common->salt;
    params.patient = ex->n_running > 0; /* once the first is admitted, the others may have to wait until it ends */
    *choice = (struct choice){
        .exchange = ex, .index = ex->n_running, .counted = -1, .submitted_at = clock_now(clock_monotonic())};
    choice->request = hearth_submit(ex->server->instance, &params, on_event, choice, error);
    if (choice->request == NULL) {
        choice->submitted_at = 0;
        return (int)error->code;
    }
    ex->n_running++;
    return HEARTH_OK;
}

/* The slots of what is not submitted are free again. */
static void submit(struct exchange *ex)
{
    hearth_error error;
    int rc = HEARTH_OK;
    if (ex->dialect->prepare != NULL) ex->dialect->prepare(ex->state);
    while (rc == HEARTH_OK && ex->n_running < ex->n && !atomic_load(&ex->gone)) rc = submit_choice(ex, &error);
    ex->news.slots += ex->n - ex->n_running;
    free(ex->params);
    ex->params = NULL;
    if (rc != HEARTH_OK) fail(ex, &error);
}

/* ---- A turn ---- */

void exchange_turn(void *ud)
{
    struct exchange *ex = ud;
    struct outbox_event *event;
    if (ex->params != NULL) submit(ex);
    bool is_open = ex->call != NULL && !ex->ended && !atomic_load(&ex->gone);
    if (is_open && outbox_is_overflown(&ex->outbox)) {
        hearth_error error;
        error_set(&error, HEARTH_CANCELLED, "the reply was cut off: the client reads it too slowly");
        log_event(LOG_WARN, "http", "client reads too slowly, request cancelled", log_str("request_id", ex->call->id));
        fail(ex, &error);
    }
    if (is_open && ex->wants_ping && !ex->ended) {
        if (ex->dialect->ping != NULL)
            ex->dialect->ping(ex->state, &ex->out);
        else
            buf_puts(&ex->out, ":\n\n");
    }
    ex->wants_ping = false;
    /* A long answer: its next piece. */
    if (is_open && ex->news.has_more) {
        ex->news.has_more = pieces_take(&ex->body, TURN_BYTES, &ex->out);
        if (!ex->news.has_more) end_with(ex, EXCHANGE_ENDED);
    }
    while (ex->out.len < TURN_BYTES && (event = outbox_take(&ex->outbox)) != NULL) {
        handle_event(ex, event);
        outbox_free_event(event);
    }
    struct common *common = NULL; /* the parsed request is freed once the last bytes are on their way */
    if (ex->ended && ex->n_running == 0) {
        /* All of the answer is written: its requests end before its last byte is sent, so that the client may have the
         * model unloaded at once. */
        for (size_t i = 0; i < ex->n; i++) {
            if (ex->choices[i].request != NULL) hearth_request_release(ex->choices[i].request);
            ex->choices[i].request = NULL;
        }
        common = ex->common;
        ex->common = NULL;
    }
    http_post(ex->server->http, exchange_take, ex);
    if (common != NULL) hearth_shared_unref(common->shared);
}
