/* The body parser's queues and thread. A job belongs to the HTTP thread until it is queued and again once it is posted
 * back. In between it belongs to the reading thread, except two members: `call` stays the HTTP thread's, and the HTTP
 * thread sets `cancelled`, which the reading thread reads. */
#include "serve/core/reading.h"

#include "base/error.h"
#include "base/gzip.h"
#include "base/memory.h"
#include "base/thread.h"
#include "serve/core/errors.h"
#include "serve/core/server.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Bytes up to which a body is parsed at once on the HTTP thread, and up to which a queued one is short. */
#define READ_AT_ONCE (16 << 10)
#define SHORT_BODY   (1 << 20)

enum { LANE_SHORT, LANE_LONG, N_LANES };

struct reading_job {
    struct reading_job *next;
    struct call *call; /* NULL: the client disconnected */
    atomic_bool cancelled;
    struct http_server *http;
    const struct reading_form *form;
    const struct server *server;
    struct buf body;
    char *owner; /* owner of the call's API key */
    char *content_type;
    char *coding;   /* Content-Encoding; NULL: none */
    size_t counted; /* bytes of the body, in the sum of all bodies */
    void *request;  /* the parsed request; NULL: `error` says why not */
    size_t size;
    hearth_error error;
};

struct lane {
    struct reading_job *first, **tail;
};

struct reading {
    struct http_server *http;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t changed;
    struct lane lanes[N_LANES];
    int next_lane; /* index of the lane that is served first */
    bool closing;
};

/* ---- Back on the HTTP thread ---- */

static void on_read(void *ud)
{
    struct reading_job *job = ud;
    struct call *call = job->call;
    http_recount(job->http, job->counted, call == NULL ? 0 : job->size);
    if (call == NULL) {
        if (job->request != NULL) workers_release(job->server->workers, job->form->release, job->request);
    } else {
        http_watch(call->http, NULL, NULL);
        http_name(job->http, call->route);
        call->counted = job->size;
        if ((int)job->error.code == ERRORS_MEDIA_TYPE) http_set_header(call->http, "Accept-Encoding", "gzip");
        if (job->request != NULL && job->form->is_away)
            call_away(call, job->form->answer, job->request);
        else if (job->request != NULL)
            job->form->answer(call, job->request);
        else
            call_fail(call, &job->error, job->form->put_error);
    }
    buf_release(&job->body);
    free(job->owner);
    free(job->content_type);
    free(job->coding);
    free(job);
}

static void cancel_job(void *ud)
{
    struct reading_job *job = ud;
    struct call *call = job->call;
    job->call = NULL;
    atomic_store(&job->cancelled, true);
    call_gone(call);
}

/* ---- The reading thread ---- */

/* Decodes a body that was sent compressed; some clients do so by default with long ones. */
static int decode_body(struct reading_job *job)
{
    struct buf decoded = {0};
    if (job->coding == NULL) return HEARTH_OK;
    if (strcasecmp(job->coding, "gzip") != 0 && strcasecmp(job->coding, "x-gzip") != 0)
        return error_set(&job->error, ERRORS_MEDIA_TYPE,
                         "a body with 'Content-Encoding: %.40s' is not read here: send it as it is, or with gzip",
                         job->coding);
    enum gzip_fault fault = gzip_decode(buf_text(&job->body), job->body.len, job->server->max_body, &decoded);
    buf_release(&job->body);
    job->body = decoded;
    if (fault == GZIP_BROKEN)
        return error_set(&job->error, HEARTH_INVALID,
                         "the body is not gzip, as 'Content-Encoding' says, or is damaged or cut off");
    if (fault == GZIP_OK) return HEARTH_OK;
    return error_set(&job->error, ERRORS_TOO_LARGE,
                     "the body is too large when it is decoded: server.max_body_bytes "
                     "allows %zu bytes",
                     job->server->max_body);
}

static void read_body(struct reading_job *job)
{
    const struct reading_form *form = job->form;
    if (decode_body(job) != HEARTH_OK) return;
    struct reading_caller caller = {.content_type = job->content_type,
                                    .stored = job->server->stored,
                                    .owner = job->owner,
                                    .max_bytes = job->server->max_body};
    job->request = form->read_with != NULL ? form->read_with(&job->body, &caller, &job->error)
                                           : form->read(&job->body, &job->error);
    if (job->request != NULL) job->size = job->form->size(job->request);
    buf_release(&job->body);
}

static struct reading_job *next_job(struct reading *reading)
{
    struct lane *lane = &reading->lanes[reading->next_lane];
    if (lane->first == NULL) lane = &reading->lanes[!reading->next_lane];
    struct reading_job *job = lane->first;
    if (job == NULL) return NULL;
    lane->first = job->next;
    if (lane->first == NULL) lane->tail = &lane->first;
    reading->next_lane = lane == &reading->lanes[LANE_SHORT] ? LANE_LONG : LANE_SHORT;
    return job;
}

static void *read_bodies(void *ud)
{
    struct reading *reading = ud;
    struct reading_job *job;
    pthread_mutex_lock(&reading->mutex);
    while (true) {
        while ((job = next_job(reading)) == NULL && !reading->closing)
            pthread_cond_wait(&reading->changed, &reading->mutex);
        if (job == NULL) break;
        bool closing = reading->closing;
        pthread_mutex_unlock(&reading->mutex);
        if (closing)
            error_set(&job->error, HEARTH_UNAVAILABLE, "the server is stopping");
        else if (!atomic_load(&job->cancelled))
            read_body(job);
        http_post(job->http, on_read, job);
        pthread_mutex_lock(&reading->mutex);
    }
    pthread_mutex_unlock(&reading->mutex);
    return NULL;
}

/* ---- Opening and closing ---- */

static void free_reading(struct reading *reading)
{
    pthread_cond_destroy(&reading->changed);
    pthread_mutex_destroy(&reading->mutex);
    free(reading);
}

struct reading *reading_open(struct http_server *http, hearth_error *error)
{
    struct reading *reading = mem_alloc(sizeof *reading);
    reading->http = http;
    for (int i = 0; i < N_LANES; i++) reading->lanes[i].tail = &reading->lanes[i].first;
    pthread_mutex_init(&reading->mutex, NULL);
    pthread_cond_init(&reading->changed, NULL);
    if (thread_start(&reading->thread, read_bodies, reading, "reads the bodies of requests", error) == HEARTH_OK)
        return reading;
    free_reading(reading);
    return NULL;
}

void reading_close(struct reading *reading)
{
    if (reading == NULL) return;
    pthread_mutex_lock(&reading->mutex);
    reading->closing = true;
    pthread_cond_signal(&reading->changed);
    pthread_mutex_unlock(&reading->mutex);
    pthread_join(reading->thread, NULL);
    free_reading(reading);
}

void reading_start(struct call *call, const struct reading_form *form)
{
    struct reading *reading = call->server->reading;
    struct reading_job *job = mem_alloc(sizeof *job);
    job->call = call;
    job->http = reading->http;
    job->form = form;
    job->body = http_take_body(call->http);
    job->counted = job->body.len;
    job->server = call->server;
    job->owner = mem_strdup(call->owner);
    job->content_type = mem_strdup(http_header(call->http, "Content-Type"));
    const char *coding = http_header(call->http, "Content-Encoding");
    /* Several codings are none that is known. */
    if (coding != NULL && coding[0] != '\0' && strcasecmp(coding, "identity") != 0)
        job->coding = mem_strdup(http_count_headers(call->http, "Content-Encoding") > 1 ? "several" : coding);
    if (job->body.len > READ_AT_ONCE || form->read_with != NULL || job->coding != NULL) {
        http_watch(call->http, cancel_job, job);
        struct lane *lane = &reading->lanes[job->body.len <= SHORT_BODY ? LANE_SHORT : LANE_LONG];
        pthread_mutex_lock(&reading->mutex);
        *lane->tail = job;
        lane->tail = &job->next;
        pthread_cond_signal(&reading->changed);
        pthread_mutex_unlock(&reading->mutex);
    } else {
        read_body(job);
        on_read(job);
    }
}
