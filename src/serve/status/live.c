/* Streams of reports: see status.h. While there are watchers a timer runs, or a report is being made on an answering
 * thread: it walks slots, models and tiers. The HTTP thread owns everything else. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "serve/core/errors.h"
#include "serve/core/keys.h"
#include "serve/core/server.h"
#include "serve/status/status.h"

#include <stdlib.h>
#include <string.h>

enum {
    PERIOD_MS = 260,     /* between two reports: four a second at most, also by a clock of coarse steps */
    HEARTBEAT_MS = 3000, /* a watcher hears as often at least, so that it and proxies know that the server is there */
    MOST_WATCHERS = 64   /* bounds what is sent in a period */
};

/* A stream that is open. */
struct watcher {
    struct watcher *next;
    struct live *live;
    struct call *call;
    uint64_t seen; /* the number of the report that was sent last */
    int64_t sent_at;
};

struct live {
    const hearth *instance;
    struct http_server *http;
    struct workers *workers;
    struct work work; /* makes a report */
    struct buf made;  /* while `making` the answering thread's, or on its way back */
    bool making;
    bool closed; /* whoever comes back frees it */
    struct event *timer;
    struct watcher *watchers;
    size_t n_watchers;
    bool stopped;
    struct buf report; /* an event, as it is sent */
    uint64_t number;   /* of the report: one that says the same as the one before has the same number */
};

static void take_report(void *ud);

/* On an answering thread. */
static void make_report(void *ud)
{
    struct live *live = ud;
    struct buf *now = &live->made;
    buf_puts(now, "data: {\"slots\":");
    status_put_slots(now, live->instance);
    buf_puts(now, ",\"cache\":");
    cache_put_status(now, live->instance);
    buf_puts(now, ",\"models\":");
    /* Counters, so that what happens between two reports is not missed. */
    size_t max = hearth_activities(live->instance, NULL, 0);
    hearth_activity *activities = mem_alloc((max + 1) * sizeof *activities);
    size_t n = hearth_activities(live->instance, activities, max);
    buf_puts(now, "[");
    for (size_t i = 0; i < n && i < max; i++) {
        if (i > 0) buf_puts(now, ",");
        buf_puts(now, "{\"model\":");
        utf8_put_json_string(now, activities[i].model, strlen(activities[i].model));
        buf_printf(now, ",\"waiting\":%lld,\"prompt_tokens\":%lld,\"cached_tokens\":%lld,\"generated_tokens\":%lld}",
                   (long long)activities[i].waiting, (long long)activities[i].prompt_tokens,
                   (long long)activities[i].cached_tokens, (long long)activities[i].generated_tokens);
    }
    buf_puts(now, "]");
    free(activities);
    buf_puts(now, "}\n\n");
    http_post(live->http, take_report, live);
}

static void start_report(struct live *live)
{
    if (live->making) return;
    live->making = true;
    workers_do(live->workers, &live->work);
}

static void on_timer(evutil_socket_t fd, short what, void *ud)
{
    (void)fd, (void)what;
    start_report(ud);
}

static void free_live(struct live *live)
{
    buf_release(&live->made);
    buf_release(&live->report);
    free(live);
}

/* The report is there. */
static void take_report(void *ud)
{
    struct live *live = ud;
    int64_t now = clock_now(clock_monotonic());
    if (live->closed) {
        free_live(live);
        return;
    }
    http_name(live->http, "/live");
    live->making = false;
    struct buf made = live->made;
    live->made = (struct buf){0};
    bool same = made.len == live->report.len && memcmp(made.v, live->report.v, made.len) == 0;
    buf_release(same ? &made : &live->report);
    if (!same) {
        live->report = made;
        live->number++;
    }
    for (struct watcher *w = live->watchers; w != NULL; w = w->next) {
        bool is_due = w->seen != live->number || now - w->sent_at >= clock_from_ms(HEARTBEAT_MS);
        if (!is_due || http_backlog(w->call->http) > 0) continue;
        http_send(w->call->http, live->report.v, live->report.len);
        w->seen = live->number;
        w->sent_at = now;
    }
    /* Counted from now, not from when the last report was due: reports that were held up do not come in a burst. */
    if (live->n_watchers > 0) {
        struct timeval period = {.tv_usec = PERIOD_MS * 1000};
        event_base_update_cache_time(event_get_base(live->timer));
        event_add(live->timer, &period);
    }
}

static void on_gone(void *ud)
{
    struct watcher *watcher = ud;
    struct live *live = watcher->live;
    struct call *call = watcher->call;
    struct watcher **link = &live->watchers;
    while (*link != watcher) link = &(*link)->next;
    *link = watcher->next;
    free(watcher);
    if (--live->n_watchers == 0) event_del(live->timer);
    call_gone(call);
}

void live_stream(struct call *call)
{
    struct live *live = call->server->live;
    hearth_error error = {0};
    if (!call_may(call, KEYS_CACHE))
        error_set(&error, ERRORS_NO_GRANT, "this API key lacks the grant 'cache' that this route needs");
    else if (live->stopped)
        error_set(&error, HEARTH_UNAVAILABLE, "the server is stopping: ask again on another connection");
    else if (live->n_watchers >= MOST_WATCHERS)
        error_set(&error, HEARTH_UNAVAILABLE, "%d clients watch already: end one of them, or ask GET /slots",
                  (int)MOST_WATCHERS);
    if ((int)error.code != HEARTH_OK) {
        call_fail(call, &error, errors_put);
        return;
    }
    call_begin(call, "text/event-stream");
    if (strcmp(call->method, "HEAD") == 0) {
        call_end(call);
        return;
    }
    struct watcher *watcher = mem_alloc(sizeof *watcher);
    *watcher = (struct watcher){.next = live->watchers, .live = live, .call = call};
    live->watchers = watcher;
    http_watch(call->http, on_gone, watcher);
    if (live->n_watchers++ == 0) start_report(live); /* else the next report is the first for it */
}

void live_end_all(struct live *live)
{
    struct watcher *ended = live->watchers, *next;
    live->watchers = NULL;
    live->n_watchers = 0;
    event_del(live->timer);
    for (; ended != NULL; ended = next) {
        struct call *call = ended->call;
        next = ended->next;
        free(ended);
        call_end(call);
    }
}

void live_stop(struct live *live)
{
    live->stopped = true;
    live_end_all(live);
}

struct live *live_open(const hearth *instance, struct http_server *http, struct workers *workers)
{
    struct live *live = mem_alloc(sizeof *live);
    live->instance = instance;
    live->http = http;
    live->workers = workers;
    live->work = (struct work){.lane = WORK_ROUTE, .run = make_report, .ud = live};
    live->timer = event_new(http_base(http), -1, 0, on_timer, live);
    return live;
}

void live_close(struct live *live)
{
    if (live == NULL) return;
    live_end_all(live);
    event_free(live->timer);
    live->closed = true;
    if (!live->making) free_live(live);
}
