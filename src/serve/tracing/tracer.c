/* The queue of traces and the sender's thread: see tracer.h. The mutex guards the queue alone, and nobody holds it
 * while anything is sent. libcurl's handles belong to the sender; other threads only wake it. */
#include "serve/tracing/tracer.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "base/os.h"
#include "base/thread.h"

#include <curl/curl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_GROUP "tracing"

/* A batch has so many spans, or a trace more than that; it is sent once it has them, or after gather_ms. */
#define BATCH_SPANS 512

#define ATTEMPTS    4          /* to send a batch */
#define PAUSE_MOST  30         /* seconds between two, whatever the collector asks for */
#define NICE        5          /* as the publisher's: replies come first */
#define ANSWER_MOST (16 << 10) /* bytes of an answer that are looked at */

struct tracer {
    char *url;
    struct otlp_resource resource;
    char *host, *address;
    struct tracer_pace pace;
    pthread_t thread;
    bool started;
    metric_value sent, dropped; /* spans */
    _Atomic int64_t flush_by;   /* all must be over then; 0: it is not being closed */

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    struct trace *first, **last;
    size_t n_queued;     /* spans */
    int64_t gathered_at; /* when the batch is to be sent that the first trace begins */

    /* The sender's: */
    CURLM *multi; /* other threads wake it */
    CURL *curl;
    struct curl_slist *headers;
    struct buf body, answer;
    int64_t asked_ms; /* the pause that the last answer asked for */
    bool failing;     /* the last batch was dropped, and the log says so */
    bool rejecting;   /* likewise of some of its spans */
};

static int64_t now(void)
{
    return clock_now(clock_monotonic());
}

static bool is_closing(const struct tracer *t)
{
    return atomic_load(&t->flush_by) != 0;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- Traces ---- */

struct trace *tracer_begin(struct tracer *t, const char *traceparent)
{
    struct traceparent parent;
    if (t == NULL) return NULL;
    struct trace *trace = mem_alloc(sizeof *trace);
    struct traceparent *self = &trace->self;
    os_random(self, sizeof *self);
    self->trace[0] |= 1;
    self->span[0] |= 1; /* neither may be zero */
    self->sampled = true;
    trace->has_parent = traceparent_parse(traceparent, &parent);
    trace->unix_ns = clock_unix_ns() - now();
    if (!trace->has_parent) return trace;
    memcpy(self->trace, parent.trace, sizeof self->trace);
    memcpy(trace->parent, parent.span, sizeof trace->parent);
    self->sampled = parent.sampled;
    return trace;
}

void tracer_end(struct tracer *t, struct trace *trace)
{
    if (t == NULL || trace == NULL) return;
    if (!trace->self.sampled) {
        trace_free(trace);
        return;
    }
    size_t n = otlp_spans(trace);
    pthread_mutex_lock(&t->mutex);
    bool fits = t->n_queued + n <= t->pace.most_queued;
    bool was_empty = t->first == NULL, was_full = t->n_queued >= BATCH_SPANS;
    if (fits) {
        *t->last = trace;
        t->last = &trace->next;
        t->n_queued += n;
        if (was_empty) t->gathered_at = now() + clock_from_ms(t->pace.gather_ms);
        /* The sender sleeps until a batch is due: the first trace wakes it, and the one that makes it full. */
        if (was_empty || (!was_full && t->n_queued >= BATCH_SPANS)) pthread_cond_signal(&t->changed);
    }
    pthread_mutex_unlock(&t->mutex);
    if (fits) return;
    metric_add(&t->dropped, (int64_t)n);
    trace_free(trace);
}

int64_t tracer_sent(const struct tracer *t)
{
    return t == NULL ? 0 : metric_get(&t->sent);
}

int64_t tracer_dropped(const struct tracer *t)
{
    return t == NULL ? 0 : metric_get(&t->dropped);
}

/* ---- Sending ---- */

enum sent { SENT, SENT_AGAIN, SENT_NEVER };

/* An answer that is longer is cut, and then says nothing. */
static size_t keep_answer(char *bytes, size_t size, size_t n, void *ud)
{
    struct tracer *t = ud;
    if (t->answer.len + size * n <= ANSWER_MOST) buf_append(&t->answer, bytes, size * n);
    return size * n;
}

/* One attempt. `fault` gets what was wrong. */
static enum sent post(struct tracer *t, char fault[CURL_ERROR_SIZE])
{
    long status = 0;
    curl_off_t asked_s = 0;
    buf_clear(&t->answer);
    curl_easy_setopt(t->curl, CURLOPT_POSTFIELDS, t->body.v);
    curl_easy_setopt(t->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->body.len);
    /* Performs the request until it has ended or its deadline has passed. tracer_close() wakes it. */
    const int64_t usually = now() + clock_from_ms(t->pace.send_ms);
    int running = 1, n;
    curl_multi_add_handle(t->multi, t->curl);
    while (curl_multi_perform(t->multi, &running) == CURLM_OK && running > 0) {
        int64_t flush_by = atomic_load(&t->flush_by);
        int64_t left = (flush_by == 0 ? usually : earlier(usually, flush_by)) - now();
        if (left <= 0) break;
        curl_multi_poll(t->multi, NULL, 0, (int)clock_to_ms(left) + 1, NULL);
    }
    CURLMsg *message = curl_multi_info_read(t->multi, &n);
    CURLcode code = message != NULL && message->msg == CURLMSG_DONE ? message->data.result : CURLE_OPERATION_TIMEDOUT;
    curl_multi_remove_handle(t->multi, t->curl);
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(t->curl, CURLINFO_RETRY_AFTER, &asked_s);
    t->asked_ms = asked_s < PAUSE_MOST ? asked_s * 1000 : PAUSE_MOST * 1000;
    if (code != CURLE_OK) {
        snprintf(fault, CURL_ERROR_SIZE, "%s", curl_easy_strerror(code));
        return SENT_AGAIN;
    }
    snprintf(fault, CURL_ERROR_SIZE, "the collector answered %ld", status);
    if (status >= 200 && status <= 299) return SENT;
    return status == 429 || (status >= 502 && status <= 504) ? SENT_AGAIN : SENT_NEVER; /* by the standard */
}

/* Waits before the next attempt. False: the tracer is being closed. */
static bool pause_sending(struct tracer *t, int attempt)
{
    int64_t ms = t->pace.pause_ms << attempt, most = PAUSE_MOST * 1000;
    if (ms < t->asked_ms) ms = t->asked_ms;
    int64_t until = now() + clock_from_ms(earlier(ms, most));
    pthread_mutex_lock(&t->mutex);
    while (!is_closing(t) && now() < until) clock_monotonic()->wait(clock_monotonic(), &t->changed, &t->mutex, until);
    pthread_mutex_unlock(&t->mutex);
    return !is_closing(t);
}

/* How many of the batch's n spans a collector that took it did not take, as its answer says. */
static int64_t count_rejected(struct tracer *t, size_t n)
{
    json_t *answer = json_text_read(buf_text(&t->answer), t->answer.len, NULL);
    json_t *partial = json_object_get(answer, "partialSuccess"), *count = json_object_get(partial, "rejectedSpans");
    const char *text = json_string_value(count), *why = json_string_value(json_object_get(partial, "errorMessage"));
    int64_t rejected = text != NULL ? strtoll(text, NULL, 10) : json_integer_value(count);
    if (rejected < 0) rejected = 0;
    if (rejected > (int64_t)n) rejected = (int64_t)n;
    if (rejected > 0 && !t->rejecting)
        log_event(LOG_WARN, LOG_GROUP, "the collector rejects spans", log_str("url", t->url),
                  log_int("spans", rejected), log_str("error", why != NULL ? why : ""));
    t->rejecting = rejected > 0;
    json_decref(answer);
    return rejected;
}

/* While the collector is away each batch is tried once: the queue has had its patience. */
static void send_batch(struct tracer *t, const struct trace *batch, size_t n)
{
    char fault[CURL_ERROR_SIZE];
    buf_clear(&t->body);
    otlp_put(&t->body, &t->resource, batch);
    int attempt = 0;
    enum sent sent = post(t, fault);
    while (sent == SENT_AGAIN && ++attempt < ATTEMPTS && !t->failing && pause_sending(t, attempt - 1))
        sent = post(t, fault);
    if (sent != SENT && t->failing) pause_sending(t, ATTEMPTS);
    int64_t lost = sent == SENT ? count_rejected(t, n) : (int64_t)n;
    metric_add(&t->sent, (int64_t)n - lost);
    metric_add(&t->dropped, lost);
    bool fails = sent != SENT;
    if (fails && !t->failing)
        log_event(LOG_WARN, LOG_GROUP, "spans cannot be sent, they are dropped", log_str("url", t->url),
                  log_str("error", fault));
    if (!fails && t->failing) log_event(LOG_INFO, LOG_GROUP, "spans are sent again", log_str("url", t->url));
    t->failing = fails;
}

/* ---- The thread ---- */

/* Waits for the next batch, and takes it out of the queue. NULL: the tracer is being closed, and nothing is left. */
static struct trace *next_batch(struct tracer *t, size_t *n)
{
    pthread_mutex_lock(&t->mutex);
    while (!is_closing(t) && (t->first == NULL || (t->n_queued < BATCH_SPANS && now() < t->gathered_at)))
        clock_monotonic()->wait(clock_monotonic(), &t->changed, &t->mutex,
                                t->first == NULL ? CLOCK_NEVER : t->gathered_at);
    struct trace *batch = t->first, **end = &batch;
    if (batch != NULL) {
        for (*n = 0; *end != NULL && *n < BATCH_SPANS; end = &(*end)->next) *n += otlp_spans(*end);
        t->first = *end;
        *end = NULL;
        if (t->first == NULL) t->last = &t->first;
        t->n_queued -= *n;
        t->gathered_at = now() + clock_from_ms(t->pace.gather_ms);
    }
    pthread_mutex_unlock(&t->mutex);
    return batch;
}

static void *sender_main(void *ud)
{
    struct tracer *t = ud;
    struct trace *batch;
    size_t n;
    thread_give_way(NICE);
    while ((batch = next_batch(t, &n)) != NULL) {
        int64_t flush_by = atomic_load(&t->flush_by);
        if (flush_by != 0 && now() >= flush_by) /* at the end what does not get out in time is dropped */
            metric_add(&t->dropped, (int64_t)n);
        else
            send_batch(t, batch, n);
        for (struct trace *next; batch != NULL; batch = next) {
            next = batch->next;
            trace_free(batch);
        }
    }
    return NULL;
}

/* ---- Opening and closing ---- */

static void open_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int start(struct tracer *t, hearth_error *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_curl);
    t->multi = curl_multi_init();
    t->curl = curl_easy_init();
    if (t->multi == NULL || t->curl == NULL)
        return error_at(error, HEARTH_NO_MEMORY, "server.otlp_endpoint",
                        "server.otlp_endpoint: libcurl cannot be started: leave the key out");
    /* Neither the environment nor a user's files have a say: no proxy, no credentials. Nothing waits for a name server
     * once it is too late. */
    t->headers = curl_slist_append(NULL, "Content-Type: application/json");
    t->headers = curl_slist_append(t->headers, "Expect:"); /* no answer is waited for before the body is sent */
    curl_easy_setopt(t->curl, CURLOPT_URL, t->url);
    curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, t->headers);
    curl_easy_setopt(t->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(t->curl, CURLOPT_PROXY, "");
    curl_easy_setopt(t->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(t->curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(t->curl, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(t->curl, CURLOPT_USERAGENT, "hearth");
    curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, keep_answer);
    curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, t);
    int rc = thread_start(&t->thread, sender_main, t, "sends traces", error);
    t->started = rc == HEARTH_OK;
    return rc;
}

struct tracer *tracer_open(const struct tracer_params *params, hearth_error *error)
{
    struct tracer *t = mem_alloc(sizeof *t);
    const struct tracer_pace *wanted = &params->pace;
    size_t len = strlen(params->endpoint);
    while (len > 0 && params->endpoint[len - 1] == '/') len--;
    t->url = mem_format("%.*s/v1/traces", (int)len, params->endpoint);
    t->host = mem_strdup(params->resource.host);
    t->address = mem_strdup(params->resource.address);
    t->resource = (struct otlp_resource){params->resource.version, t->host, t->address};
    t->pace = (struct tracer_pace){.gather_ms = wanted->gather_ms != 0 ? wanted->gather_ms : 1000,
                                   .send_ms = wanted->send_ms != 0 ? wanted->send_ms : 10000,
                                   .pause_ms = wanted->pause_ms != 0 ? wanted->pause_ms : 1000,
                                   .flush_ms = wanted->flush_ms != 0 ? wanted->flush_ms : 2000,
                                   .most_queued = wanted->most_queued != 0 ? wanted->most_queued : 16384};
    t->last = &t->first;
    pthread_mutex_init(&t->mutex, NULL);
    clock_cond_init(&t->changed);
    if (start(t, error) == HEARTH_OK) return t;
    tracer_close(t);
    return NULL;
}

void tracer_close(struct tracer *t)
{
    if (t == NULL) return;
    if (t->started) {
        pthread_mutex_lock(&t->mutex);
        atomic_store(&t->flush_by, now() + clock_from_ms(t->pace.flush_ms));
        pthread_cond_signal(&t->changed);
        pthread_mutex_unlock(&t->mutex);
        curl_multi_wakeup(t->multi);
        pthread_join(t->thread, NULL);
    }
    curl_easy_cleanup(t->curl);
    curl_multi_cleanup(t->multi);
    curl_slist_free_all(t->headers);
    buf_release(&t->body);
    buf_release(&t->answer);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->mutex);
    free(t->url);
    free(t->host);
    free(t->address);
    free(t);
}
