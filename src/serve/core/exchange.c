/* Generation requests in flight: from the submission of the choices to the last byte of the answer.
 *
 * An exchange is open until its call has been answered or the client has disconnected. Then it only waits for the last
 * event of each of its library requests, and the last of them frees it. The library's threads touch nothing but the
 * outbox; everything else belongs to the HTTP thread, so that an exchange needs no lock.
 *
 * Backpressure: while the client has not taken what was sent, events stay in the outbox; one that overflows cancels
 * the request, so that a slow client never holds up the engine thread. */
#include "serve/core/exchange.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "serve/core/outbox.h"
#include "serve/core/server.h"
#include "serve/tracing/trace.h"

#include <stdlib.h>
#include <string.h>

const struct exchange_limits exchange_limits_default = {
    .outbox_bytes = 4 << 20, .backlog_bytes = 256 << 10, .recheck_ms = 20, .ping_ms = 5000};

/* Formatted output goes to the socket in pieces of about this many bytes, to keep chunks few and memory small. */
#define PIECE_BYTES (16 << 10)

struct exchange;

/* One choice: the `ud` of its library request's events. */
struct choice {
    struct exchange *exchange;
    size_t index;
    hearth_request *request; /* NULL: never submitted */
    hearth_reader *reader;   /* parses a chat's reply into content, reasoning and tool calls */
    char *stop_string;
    int64_t counted; /* tokens counted against the API key's rate limit; -1: no slot yet */
    int64_t submitted_at;
    bool told; /* an event has come, which says in the answer's result how far it is */
};

struct exchange {
    struct call *call; /* NULL: closed */
    struct http_server *http;
    struct exchange_limits limits;
    struct ratelimit *ratelimit; /* of the API key: holds one of its slots for each running choice */
    const struct dialect *dialect;
    void *state;
    bool stream, begun; /* begun: the headers have been sent */
    bool blocked;       /* backpressure: the timer checks whether the client has taken bytes, else it sends pings */
    struct outbox outbox;
    struct event *timer; /* NULL unless streaming */
    struct buf out;      /* formatted, not sent */
    size_t n, n_running, n_done;
    size_t counted; /* bytes of the parsed request, in the sum of all bodies */
    struct choice *choices;
    struct answer *answers;
};

/* ---- Closing ---- */

static void cancel_all(struct exchange *ex)
{
    for (size_t i = 0; i < ex->n; i++)
        if (ex->choices[i].request != NULL) hearth_cancel(ex->choices[i].request);
}

/* Times of CLOCK_MONOTONIC, as the library's are. */
static void trace_choices(const struct exchange *ex)
{
    int64_t now = clock_now(clock_monotonic());
    struct trace *trace = ex->call->trace;
    struct server *server = ex->call->server;
    for (size_t i = 0; i < ex->n; i++) {
        const struct choice *choice = &ex->choices[i];
        const struct trace_progress progress = {.submitted_at = choice->submitted_at,
                                                .until = now,
                                                .result = choice->told ? &ex->answers[i].result : NULL,
                                                .done = ex->answers[i].done};
        if (choice->request == NULL) continue;
        trace_add_choice(trace, &progress);
        if (choice->told) exemplars_note(&server->exemplars, server->instance, trace, progress.result);
    }
}

static void close_exchange(struct exchange *ex)
{
    if (ex->call->trace != NULL) trace_choices(ex);
    ex->call = NULL;
    if (ex->timer != NULL) event_free(ex->timer);
    ex->timer = NULL;
    buf_release(&ex->out);
}

static void free_exchange(struct exchange *ex)
{
    for (size_t i = 0; i < ex->n; i++) {
        if (ex->choices[i].request != NULL) hearth_request_release(ex->choices[i].request);
        free(ex->choices[i].stop_string);
        hearth_reader_close(ex->choices[i].reader);
        answer_release(&ex->answers[i]);
    }
    outbox_release(&ex->outbox);
    ex->dialect->release(ex->state);
    http_recount(ex->http, ex->counted, 0);
    free(ex->choices);
    free(ex->answers);
    free(ex);
}

/* A posted wake-up that has not run yet points at the exchange, so it must run first. */
static bool is_over(struct exchange *ex)
{
    return ex->call == NULL && ex->n_running == 0 && !outbox_is_awake(&ex->outbox);
}

/* ---- Sending ---- */

static void flush_output(struct exchange *ex)
{
    if (ex->out.len == 0) return;
    http_send(ex->call->http, ex->out.v, ex->out.len);
    buf_clear(&ex->out);
}

/* Sends the headers at the first sign of success, so that what fails before is a proper HTTP error. */
static void begin_stream(struct exchange *ex)
{
    if (ex->begun) return;
    ex->begun = true;
    const char *type = ex->dialect->stream_type;
    call_begin(ex->call, type != NULL ? type : "text/event-stream");
}

static void end_stream(struct exchange *ex)
{
    struct call *call = ex->call;
    flush_output(ex);
    close_exchange(ex);
    call_end(call);
}

static void fail_exchange(struct exchange *ex, const hearth_error *error)
{
    cancel_all(ex);
    if (ex->begun) {
        hearth_error renamed = places_rename(ex->call->places, error);
        ex->dialect->broken(ex->state, &renamed, &ex->out);
        end_stream(ex);
        return;
    }
    struct call *call = ex->call;
    close_exchange(ex);
    call_fail(call, error, ex->dialect->error);
}

static void finish_exchange(struct exchange *ex)
{
    if (ex->stream) {
        ex->dialect->ended(ex->state, ex->answers, ex->n, &ex->out);
        end_stream(ex);
        return;
    }
    hearth_error error;
    if (ex->dialect->check != NULL && ex->dialect->check(ex->state, ex->answers, &error) != HEARTH_OK) {
        fail_exchange(ex, &error);
        return;
    }
    struct call *call = ex->call;
    struct buf body = {0};
    ex->dialect->whole(ex->state, ex->answers, ex->n, &body);
    const char *type = ex->dialect->whole_type;
    close_exchange(ex);
    call_reply(call, 200, type != NULL ? type : "application/json", &body);
}

/* ---- Events ---- */

/* What the chat template does not print is named like what no template could. */
static void note_left_out(struct exchange *ex, const char *lines)
{
    for (size_t len; lines != NULL && *lines != '\0'; lines += len + (lines[len] == '\n')) {
        len = strcspn(lines, "\n");
        char *path = mem_strndup(lines, len);
        call_leave_out(ex->call, path);
        free(path);
    }
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
    note_left_out(ex, hearth_request_left_out(request));
    if (!ex->stream) return;
    begin_stream(ex);
    ex->dialect->started(ex->state, event->choice, &answer->result, &ex->out);
}

static void note_prompt(struct exchange *ex, const struct outbox_event *event)
{
    buf_append(&ex->answers[event->choice].text, event->text, event->len);
}

static void note_prompt_logprobs(struct exchange *ex, struct outbox_event *event)
{
    answer_add_prompt_logprobs(&ex->answers[event->choice], event->logprobs);
    event->logprobs = NULL;
}

static void note_progress(struct exchange *ex, const struct outbox_event *event)
{
    note_started(ex, event);
    if (ex->stream && ex->dialect->progress != NULL)
        ex->dialect->progress(ex->state, event->choice, &event->result, &ex->out);
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

/* A completion has no parser: its text is content as it is. */
static void emit_text(struct emission *emission, const char *text, size_t len)
{
    hearth_reader *reader = emission->ex->choices[emission->piece.index].reader;
    hearth_delta delta = {.type = HEARTH_DELTA_CONTENT, .text = text, .len = len};
    if (reader != NULL)
        hearth_reader_add(reader, text, len, emit_delta, emission);
    else if (len > 0)
        emit_delta(emission, &delta);
}

static void note_text(struct exchange *ex, struct outbox_event *event)
{
    struct answer *answer = &ex->answers[event->choice];
    note_started(ex, event);
    struct emission emission = {
        .ex = ex,
        .piece = {.index = event->choice, .token = event->token, .logprobs = event->logprobs, .answer = answer}};
    if (ex->outbox.keeps_empty && event->token >= 0) tokens_push(&answer->tokens, event->token);
    emit_text(&emission, event->text, event->len);
    if (event->token >= 0) answer_add_token(answer);
    bool counts = event->logprobs != NULL || (ex->outbox.keeps_empty && event->token >= 0);
    if (ex->stream && !emission.emitted && counts) ex->dialect->more(ex->state, &emission.piece, &ex->out);
    if (event->logprobs != NULL) answer_add_logprobs(answer, event->logprobs);
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
    if (++ex->n_done == ex->n) finish_exchange(ex);
}

/* Counts tokens against the API key's rate limit: the prompt as soon as it starts, so that a client that disconnects
 * early is charged for it, the reply as it comes. The last event has the final number. */
static void count_tokens(struct exchange *ex, const struct outbox_event *event)
{
    struct choice *choice = &ex->choices[event->choice];
    const hearth_result *r = &event->result;
    int64_t tokens = (int64_t)r->prompt_n + r->predicted_n;
    if (event->type == HEARTH_EVENT_STARTED && choice->counted < 0) choice->counted = 0;
    if (choice->counted < 0 || (tokens <= choice->counted && event->type != HEARTH_EVENT_DONE)) return;
    ratelimit_count_tokens(ex->ratelimit, tokens - choice->counted);
    choice->counted = tokens;
}

static void note_end(struct exchange *ex)
{
    ratelimit_return_slots(ex->ratelimit, 1);
    ex->n_running--;
}

/* Of a request that fails in a slot the last event before that says how far it came. */
static void note_stage(struct exchange *ex, const struct outbox_event *event)
{
    struct answer *answer = &ex->answers[event->choice];
    if (event->type == HEARTH_EVENT_PROMPT) return;
    if (event->type == HEARTH_EVENT_FAILED && !answer->started) answer->result = event->result;
    ex->choices[event->choice].told = true;
}

static void handle_event(struct exchange *ex, struct outbox_event *event)
{
    count_tokens(ex, event);
    note_stage(ex, event);
    if (event->type == HEARTH_EVENT_DONE || event->type == HEARTH_EVENT_FAILED) note_end(ex);
    if (ex->call == NULL) return;
    switch (event->type) {
    case HEARTH_EVENT_STARTED:
        note_started(ex, event);
        break;
    case HEARTH_EVENT_PROMPT:
        note_prompt(ex, event);
        break;
    case HEARTH_EVENT_PROMPT_LOGPROBS:
        note_prompt_logprobs(ex, event);
        break;
    case HEARTH_EVENT_PROGRESS:
        note_progress(ex, event);
        break;
    case HEARTH_EVENT_TEXT:
        note_text(ex, event);
        break;
    case HEARTH_EVENT_DONE:
        note_done(ex, event);
        break;
    case HEARTH_EVENT_FAILED:
        fail_exchange(ex, event->error);
        break;
    }
}

static bool is_blocked(const struct exchange *ex)
{
    return ex->call != NULL && ex->begun && http_backlog(ex->call->http) + ex->out.len >= ex->limits.backlog_bytes;
}

static void arm_timer(struct exchange *ex)
{
    ex->blocked = is_blocked(ex);
    int ms = ex->blocked ? ex->limits.recheck_ms : ex->limits.ping_ms;
    struct timeval delay = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
    event_add(ex->timer, &delay);
}

/* Sends events from the outbox to the client until backpressure stops it, and frees the exchange when it is over. */
static void drain_outbox(struct exchange *ex)
{
    if (ex->call != NULL && outbox_is_overflown(&ex->outbox)) {
        hearth_error error;
        error_set(&error, HEARTH_CANCELLED, "the reply was cut off: the client reads it too slowly");
        log_event(LOG_WARN, "http", "client reads too slowly, request cancelled", log_str("request_id", ex->call->id));
        fail_exchange(ex, &error);
    }
    struct outbox_event *event;
    while (!is_blocked(ex) && (event = outbox_take(&ex->outbox)) != NULL) {
        handle_event(ex, event);
        outbox_free_event(event);
        if (ex->call != NULL && ex->out.len >= PIECE_BYTES) flush_output(ex);
    }
    if (ex->call != NULL) flush_output(ex);
    if (ex->call != NULL && ex->begun) arm_timer(ex);
    if (is_over(ex)) free_exchange(ex);
}

static void on_wake(void *ud)
{
    struct exchange *ex = ud;
    outbox_answer(&ex->outbox);
    drain_outbox(ex);
}

static void put_ping(struct exchange *ex)
{
    if (ex->dialect->ping != NULL)
        ex->dialect->ping(ex->state, &ex->out);
    else
        buf_puts(&ex->out, ":\n\n");
}

/* Under backpressure: sends more if the client has taken bytes. Else the stream was idle: sends a keep-alive, so
 * that no proxy drops the connection during a long prefill. */
static void on_timer(evutil_socket_t fd, short what, void *ud)
{
    (void)fd, (void)what;
    struct exchange *ex = ud;
    if (!ex->blocked) put_ping(ex);
    drain_outbox(ex);
}

static void on_gone(void *ud)
{
    struct exchange *ex = ud;
    struct call *call = ex->call;
    cancel_all(ex);
    close_exchange(ex);
    call_gone(call);
    drain_outbox(ex);
}

/* Runs on the library's threads. Once the outbox has the last event the exchange may be freed at any moment, unless
 * outbox_put() says that this call has to wake the HTTP thread: then it lives until that wake-up has run. */
static void on_event(void *ud, const hearth_event *event)
{
    struct choice *choice = ud;
    struct exchange *ex = choice->exchange;
    if (outbox_put(&ex->outbox, choice->index, event)) http_post(ex->http, on_wake, ex);
}

/* ---- Starting ---- */

static struct exchange *new_exchange(struct call *call, const struct exchange_plan *plan)
{
    struct exchange *ex = mem_alloc(sizeof *ex);
    ex->call = call;
    ex->http = call->server->http;
    ex->counted = call->counted;
    call->counted = 0;
    ex->limits = call->server->limits;
    ex->ratelimit = call->limit;
    ex->dialect = plan->dialect;
    ex->state = plan->state;
    ex->stream = plan->stream;
    ex->n = plan->n_choices;
    ex->choices = mem_alloc(ex->n * sizeof *ex->choices);
    ex->answers = mem_alloc(ex->n * sizeof *ex->answers);
    outbox_init(&ex->outbox, ex->limits.outbox_bytes, plan->tokens);
    if (ex->stream) ex->timer = event_new(http_base(ex->http), -1, 0, on_timer, ex);
    return ex;
}

/* What the library requests of an exchange share. */
struct common {
    void *owner;
    void (*release_owner)(void *owner);
    char *salt;
    hearth_shared *shared;
};

static void release_common(void *ud)
{
    struct common *common = ud;
    if (common->owner != NULL) common->release_owner(common->owner);
    free(common->salt);
    free(common);
}

static struct common *open_common(const struct call *call, const struct exchange_plan *plan)
{
    struct common *common = mem_alloc(sizeof *common);
    *common = (struct common){.owner = plan->owner,
                              .release_owner = plan->release_owner,
                              .salt = call_salt(call, plan->choices[0].cache_salt)};
    common->shared = hearth_shared_new(release_common, common);
    return common;
}

static int submit_choice(struct exchange *ex, const hearth_params *asked, const struct common *common,
                         hearth_error *error)
{
    struct call *call = ex->call;
    struct choice *choice = &ex->choices[ex->n_running];
    hearth_params params = *asked;
    params.shared = common->shared;
    params.request_id = call->id;
    params.cache_salt = common->salt;
    params.patient = ex->n_running > 0; /* once the first is admitted, the others may have to wait until it ends */
    *choice = (struct choice){
        .exchange = ex, .index = ex->n_running, .counted = -1, .submitted_at = clock_now(clock_monotonic())};
    choice->request = hearth_submit(call->server->instance, &params, on_event, choice, error);
    if (choice->request == NULL) return (int)error->code;
    ex->n_running++;
    return HEARTH_OK;
}

void exchange_start(struct call *call, const struct exchange_plan *plan)
{
    struct exchange *ex = new_exchange(call, plan);
    struct common *common = open_common(call, plan);
    hearth_error error;
    call_set_model(call, call_model(call, plan->choices[0].model));
    http_watch(call->http, on_gone, ex);
    int rc = ratelimit_take_slots(ex->ratelimit, ex->n, &error);
    const size_t n_slots = rc == HEARTH_OK ? ex->n : 0;
    while (rc == HEARTH_OK && ex->n_running < ex->n)
        rc = submit_choice(ex, &plan->choices[ex->n_running], common, &error);
    ratelimit_return_slots(ex->ratelimit, n_slots - ex->n_running);
    if (rc != HEARTH_OK) fail_exchange(ex, &error);
    hearth_shared_unref(common->shared);
    if (is_over(ex)) free_exchange(ex);
}
