/* Generation requests in flight, from the HTTP thread's side: they begin here, what their turns have written is sent
 * from here, and here they end.
 *
 * An exchange is open until its call has been answered or the client has disconnected. Then it only waits for the last
 * event of each of its library requests, and with the last of them it is freed.
 *
 * Backpressure: while the client has not taken what was sent, the exchange has no turn and events stay in the outbox.
 * An outbox that overflows cancels the request, so that a slow client never holds up the engine thread. */
#include "serve/core/exchange_parts.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "serve/core/server.h"
#include "serve/tracing/trace.h"

#include <stdlib.h>
#include <string.h>

/* Ms between two looks at a blocked exchange. */
#define LOOK_MS 250

const struct exchange_limits exchange_limits_default = {.outbox_bytes = 4 << 20,
                                                        .backlog_bytes = 256 << 10,
                                                        .logprobs_bytes = 64 << 20,
                                                        .stream_tokens = 1,
                                                        .ping_ms = 5000};

/* Bytes that are sent at a time. */
#define SEND_BYTES (64 << 10)

/* ---- Closing ---- */

/* Times of CLOCK_MONOTONIC, as the library's are. */
static void trace_choices(const struct exchange *ex)
{
    int64_t now = clock_now(clock_monotonic());
    struct trace *trace = ex->call->trace;
    struct server *server = ex->server;
    for (size_t i = 0; i < ex->n; i++) {
        const struct choice *choice = &ex->choices[i];
        const struct trace_progress progress = {.submitted_at = choice->submitted_at,
                                                .until = now,
                                                .result = choice->told ? &ex->answers[i].result : NULL,
                                                .done = ex->answers[i].done};
        if (choice->submitted_at == 0) continue;
        trace_add_choice(trace, &progress);
        if (choice->told) exemplars_note(&server->exemplars, server->instance, trace, progress.result);
    }
}

/* Returns the call, to be ended. */
static struct call *close_exchange(struct exchange *ex)
{
    struct call *call = ex->call;
    if (call->trace != NULL) trace_choices(ex);
    ex->call = NULL;
    if (ex->timer != NULL) event_free(ex->timer);
    ex->timer = NULL;
    buf_release(&ex->out);
    pieces_release(&ex->body);
    return call;
}

/* On an answering thread: a large request takes its time. */
static void free_exchange(void *ud)
{
    struct exchange *ex = ud;
    for (size_t i = 0; i < ex->n; i++) {
        if (ex->choices[i].request != NULL) hearth_request_release(ex->choices[i].request);
        free(ex->choices[i].stop_string);
        hearth_reader_close(ex->choices[i].reader);
        answer_release(&ex->answers[i]);
    }
    if (ex->common != NULL) hearth_shared_unref(ex->common->shared);
    outbox_release(&ex->outbox);
    if (ex->dialect->release != NULL) ex->dialect->release(ex->state);
    free(ex->choices);
    free(ex->answers);
    free(ex);
}

/* ---- Sending ---- */

static bool client_is_slow(const struct exchange *ex)
{
    return http_backlog(ex->call->http) >= ex->server->limits.backlog_bytes;
}

/* Sends as much of the output as the client keeps up with, and not much at a time: the bytes are copied. False: there
 * is a rest. */
static bool send_output(struct exchange *ex)
{
    while (ex->sent < ex->out.len && !client_is_slow(ex)) {
        size_t left = ex->out.len - ex->sent, piece = left < SEND_BYTES ? left : SEND_BYTES;
        http_send(ex->call->http, ex->out.v + ex->sent, piece);
        ex->sent += piece;
        ex->has_sent = true;
    }
    if (ex->sent < ex->out.len) return false;
    buf_clear(&ex->out);
    ex->sent = 0;
    return true;
}

/* Takes the output over. */
static void end_answer(struct exchange *ex)
{
    const char *type = ex->dialect->whole_type;
    struct buf body = ex->out;
    struct call *call;
    switch (ex->news.end) {
    case EXCHANGE_GOES_ON:
        break;
    case EXCHANGE_ENDED:
        call_end(close_exchange(ex));
        break;
    case EXCHANGE_SHORT:
        ex->out = (struct buf){0};
        call_reply(close_exchange(ex), 200, type != NULL ? type : "application/json", &body);
        break;
    case EXCHANGE_FAILED:
        call = close_exchange(ex);
        call_fail(call, &ex->news.error, ex->dialect->error);
        break;
    }
}

/* Rate limits count also what comes after the end of the answer. */
static void take_news(struct exchange *ex)
{
    struct exchange_news *news = &ex->news;
    if (news->tokens != 0) ratelimit_count_tokens(ex->ratelimit, news->tokens);
    if (news->slots > 0) ratelimit_return_slots(ex->ratelimit, news->slots);
    news->tokens = 0;
    news->slots = 0;
    if (ex->call == NULL) return;
    if (atomic_load(&ex->gone)) {
        exchange_cancel(ex);
        call_gone(close_exchange(ex));
        return;
    }
    header_list_add_all(&ex->call->left_out, &news->left_out);
    header_list_add_all(&ex->call->unenforced, &news->unenforced);
    news->left_out = news->unenforced = (struct header_list){.named = 0};
    if (news->begins) {
        const struct dialect *dialect = ex->dialect;
        if (ex->stream)
            call_begin(ex->call, dialect->stream_type != NULL ? dialect->stream_type : "text/event-stream");
        else
            call_begin_whole(ex->call, dialect->whole_type != NULL ? dialect->whole_type : "application/json");
    }
    news->begins = false;
    if (news->end != EXCHANGE_SHORT && !send_output(ex)) return;
    end_answer(ex);
    news->end = EXCHANGE_GOES_ON;
}

/* While it is blocked nobody else looks whether the outbox has overflown. */
static void arm_timer(struct exchange *ex)
{
    ex->has_sent = false;
    int ms = ex->blocked && LOOK_MS < ex->server->limits.ping_ms ? LOOK_MS : ex->server->limits.ping_ms;
    struct timeval delay = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
    if (ex->timer != NULL && ex->begun) event_add(ex->timer, &delay);
}

/* Passes the exchange on, or lets it sleep until the next event. */
static void pass_on(struct exchange *ex)
{
    ex->blocked = ex->call != NULL && ex->begun && client_is_slow(ex);
    /* Tokens that are not sent, of reasoning that is hidden or of a custom tool's input, keep no connection alive. */
    if (ex->blocked || ex->has_sent || (ex->timer != NULL && !event_pending(ex->timer, EV_TIMEOUT, NULL)))
        arm_timer(ex);
    if (ex->blocked) return;
    if (ex->call == NULL && ex->n_running == 0) {
        http_recount(ex->server->http, ex->counted, 0);
        ex->server->further_choices -= ex->further;
        ex->work.run = free_exchange;
        workers_do(ex->server->workers, &ex->work);
    } else if ((ex->call != NULL && (ex->news.has_more || ex->wants_ping)) || !outbox_sleep(&ex->outbox)) {
        workers_do(ex->server->workers, &ex->work);
    }
}

void exchange_take(void *ud)
{
    struct exchange *ex = ud;
    if (ex->call != NULL) http_name(ex->server->http, ex->call->route);
    take_news(ex);
    pass_on(ex);
}

/* ---- What comes from the client's side ---- */

/* The client has taken bytes. */
static void on_drained(void *ud)
{
    struct exchange *ex = ud;
    if (ex->blocked) exchange_take(ex);
}

/* A client that reads too slowly is cut off in a turn. The stream was idle: sends a keep-alive, so that no proxy drops
 * the connection during a long prefill. A client that does not take what was sent gets none. */
static void on_timer(evutil_socket_t fd, short what, void *ud)
{
    (void)fd, (void)what;
    struct exchange *ex = ud;
    struct http_server *http = ex->server->http;
    http_enter(http);
    if (ex->blocked && !ex->ended && outbox_is_overflown(&ex->outbox)) {
        ex->blocked = false;
        workers_do(ex->server->workers, &ex->work);
    } else if (ex->blocked || !outbox_wake(&ex->outbox)) {
        arm_timer(ex);
    } else {
        ex->wants_ping = true;
        pass_on(ex);
    }
    http_leave(http);
}

static void on_gone(void *ud)
{
    struct exchange *ex = ud;
    atomic_store(&ex->gone, true);
    if (ex->timer != NULL) event_del(ex->timer);
    /* While it sleeps or is blocked the exchange is the HTTP thread's, and now awake. Else it will come. */
    bool blocked = ex->blocked;
    ex->blocked = false;
    if (blocked || outbox_wake(&ex->outbox)) exchange_take(ex);
}

/* ---- Starting ---- */

static struct exchange *new_exchange(struct call *call, const struct exchange_plan *plan)
{
    struct exchange *ex = mem_alloc(sizeof *ex);
    ex->call = call;
    ex->server = call->server;
    ex->counted = call->counted;
    call->counted = 0;
    ex->ratelimit = call->limit;
    ex->dialect = plan->dialect;
    ex->state = plan->state;
    ex->stream = plan->stream;
    ex->n_left_out = call->left_out.named + call->left_out.more;
    ex->n = plan->n_choices;
    ex->choices = mem_alloc(ex->n * sizeof *ex->choices);
    ex->answers = mem_alloc(ex->n * sizeof *ex->answers);
    ex->params = mem_alloc(ex->n * sizeof *ex->params);
    memcpy(ex->params, plan->choices, ex->n * sizeof *ex->params);
    ex->work = (struct work){.run = exchange_turn, .ud = ex};
    const struct exchange_limits *limits = &ex->server->limits;
    outbox_init(&ex->outbox, limits->outbox_bytes, ex->stream ? limits->stream_tokens : 1, plan->tokens);
    outbox_wake(&ex->outbox);
    if (ex->stream) ex->timer = event_new(http_base(ex->server->http), -1, 0, on_timer, ex);
    return ex;
}

static void release_common(void *ud)
{
    struct common *common = ud;
    if (common->owner != NULL) common->release_owner(common->owner);
    free(common->salt);
    free(common);
}

static void unref_shared(void *ud)
{
    hearth_shared_unref(ud);
}

/* A request with many choices is as much as many connections. */
static int take_choices(struct exchange *ex, hearth_error *error)
{
    struct server *server = ex->server;
    const size_t most = server->max_further_choices, further = ex->n - 1;
    if (further > 0 && most > 0 && server->further_choices + further > most)
        return error_at(error, HEARTH_BUSY, "n",
                        "the request asks for %zu choices, and requests that are under way have %zu of at most %zu "
                        "(server.max_connections): try again when others have ended, or ask for fewer",
                        ex->n, server->further_choices, most);
    int rc = ratelimit_take_slots(ex->ratelimit, ex->n, error);
    if (rc != HEARTH_OK) return rc;
    ex->further = further;
    server->further_choices += further;
    return HEARTH_OK;
}

void exchange_start(struct call *call, const struct exchange_plan *plan)
{
    struct exchange *ex = new_exchange(call, plan);
    struct common *common = mem_alloc(sizeof *common);
    *common = (struct common){.owner = plan->owner,
                              .release_owner = plan->release_owner,
                              .salt = call_salt(call, plan->choices[0].cache_salt)};
    common->shared = hearth_shared_new(release_common, common);
    ex->common = common;
    call_set_model(call, call_model(call, plan->choices[0].model));
    http_watch(call->http, on_gone, ex);
    http_on_drained(call->http, on_drained);
    if (take_choices(ex, &ex->news.error) == HEARTH_OK) {
        workers_do(ex->server->workers, &ex->work);
        return;
    }
    ex->news.end = EXCHANGE_FAILED;
    free(ex->params);
    ex->params = NULL;
    workers_release(ex->server->workers, unref_shared, ex->common->shared);
    ex->common = NULL;
    exchange_take(ex);
}
