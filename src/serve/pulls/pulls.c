/* Jobs and their followers: see pulls.h. A job's thread leaves news in a queue and posts to the HTTP thread, which
 * passes them on; its end is posted last. Where a pull has ended for want of followers while one was just coming, it is
 * begun again. */
#include "serve/pulls/pulls.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "http/http.h"
#include "pull/declare.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_JOBS = 4,  /* at a time */
    QUIET_MS = 5000 /* news are repeated where there are no others for so long: clients give up silent servers */
};

struct pulls {
    struct pulls_place place;
    struct http_server *http;
    struct job *jobs;
    bool stopping;
};

struct job {
    struct job *next;
    struct pulls *pulls;
    struct pulls_work work;
    char *subject;
    bool removes;
    struct pulls_task task; /* run: NULL: the job pulls or removes a model */
    pthread_t thread;
    bool joined;
    struct pulls_follower *followers;
    _Atomic bool cancelled;

    pthread_mutex_t mutex; /* of the next three */
    struct pulls_news *news;
    size_t n_news; /* two for each file at most */
    bool posted;   /* the HTTP thread was asked to pass them on */

    /* Of the job's thread, and after its end of the HTTP thread: */
    struct pulls_news last;
    int64_t said_at; /* when */
    char *model;
    hearth_error error; /* its code is HEARTH_OK: it has ended well */
};

/* ---- News; on the job's thread ---- */

static void pass_on(void *ud);

static bool is_same_file(const struct pulls_news *a, const struct pulls_news *b)
{
    return a->step == b->step && strcmp(a->file, b->file) == 0;
}

/* News of the same file that has not been passed on yet is replaced. */
static void queue_news(struct job *job, const struct pulls_news *news)
{
    job->last = *news;
    job->said_at = clock_now(clock_monotonic());
    pthread_mutex_lock(&job->mutex);
    if (job->n_news == 0 || !is_same_file(&job->news[job->n_news - 1], news)) {
        job->news = mem_grow(job->news, job->n_news + 1, sizeof *job->news);
        job->n_news++;
    }
    job->news[job->n_news - 1] = *news;
    bool post = !job->posted;
    job->posted = true;
    pthread_mutex_unlock(&job->mutex);
    if (post) http_post(job->pulls->http, pass_on, job);
}

static void on_news(void *ud, const struct pulls_news *news)
{
    struct job *job = ud;
    if (!is_same_file(&job->last, news) || job->last.done != news->done || job->said_at == 0) queue_news(job, news);
}

static bool is_cancelled(void *ud)
{
    struct job *job = ud;
    bool is_quiet = clock_now(clock_monotonic()) - job->said_at >= clock_from_ms(QUIET_MS);
    struct pulls_news again = job->last;
    if (job->said_at != 0 && is_quiet) queue_news(job, &again);
    return atomic_load(&job->cancelled);
}

/* ---- Passing on; on the HTTP thread, like all that follows ---- */

static void pass_on(void *ud)
{
    struct job *job = ud;
    pthread_mutex_lock(&job->mutex);
    struct pulls_news *news = job->news;
    size_t n = job->n_news;
    job->news = NULL;
    job->n_news = 0;
    job->posted = false;
    pthread_mutex_unlock(&job->mutex);
    for (size_t i = 0; i < n; i++)
        for (struct pulls_follower *f = job->followers; f != NULL; f = f->next) f->on_news(f, &news[i]);
    free(news);
}

/* ---- Jobs ---- */

static void end_job(void *ud);

static void *run(void *ud)
{
    struct job *job = ud;
    int rc = job->task.run != NULL ? job->task.run(job->task.ud, &job->error)
             : job->removes        ? work_remove(&job->work, &job->error)
                                   : work_pull(&job->work, &job->model, &job->error);
    if (rc == HEARTH_OK) job->error = (hearth_error){0}; /* what was tried on the way may have left one */
    http_post(job->pulls->http, end_job, job);
    return NULL;
}

static int start(struct job *job, hearth_error *error)
{
    atomic_store(&job->cancelled, false);
    job->joined = false;
    job->said_at = 0;
    return thread_start(&job->thread, run, job, job->removes ? "removes a model" : "pulls a model", error);
}

static void release_task(const struct pulls_task *task)
{
    if (task->run != NULL) task->release(task->ud);
}

static void free_job(struct job *job)
{
    struct job **link = &job->pulls->jobs;
    while (*link != NULL && *link != job) link = &(*link)->next;
    if (*link != NULL) *link = job->next;
    pthread_mutex_destroy(&job->mutex);
    free(job->news);
    free(job->subject);
    free(job->model);
    release_task(&job->task);
    free(job);
}

static void join(struct job *job)
{
    if (!job->joined) pthread_join(job->thread, NULL);
    job->joined = true;
}

static void end_job(void *ud)
{
    struct job *job = ud;
    hearth_error *error = &job->error;
    join(job);
    bool was_cancelled = error->code == HEARTH_CANCELLED;
    if (was_cancelled && job->followers != NULL && !job->pulls->stopping && start(job, error) == HEARTH_OK) return;
    if (was_cancelled && job->pulls->stopping)
        error_set(error, HEARTH_UNAVAILABLE,
                  "the server is stopping: what was fetched stays, and the next pull goes on there");
    for (struct pulls_follower *f = job->followers, *next; f != NULL; f = next) {
        next = f->next;
        f->on_end(f, job->model, error->code == HEARTH_OK ? NULL : error);
    }
    free_job(job);
}

/* ---- Following ---- */

static void follow(struct job *job, struct pulls_follower *follower)
{
    follower->job = job;
    follower->next = job->followers;
    job->followers = follower;
}

void pulls_leave(struct pulls_follower *follower)
{
    struct job *job = follower->job;
    struct pulls_follower **link = &job->followers;
    while (*link != follower) link = &(*link)->next;
    *link = follower->next;
    if (job->followers == NULL && !job->removes && job->task.run == NULL) atomic_store(&job->cancelled, true);
}

static int check_served(const struct pulls *pulls, hearth_error *error)
{
    const char *serves = hearth_config_get(pulls->place.config, "server.serve_pulled");
    if (serves == NULL || strcmp(serves, "false") != 0) return HEARTH_OK;
    return error_at(error, HEARTH_UNSUPPORTED, "server.serve_pulled",
                    "server.serve_pulled is false: models are neither made, pulled nor removed by requests here");
}

char *pulls_folder(const struct pulls *pulls, hearth_error *error)
{
    return check_served(pulls, error) == HEARTH_OK ? pull_folder_of(pulls->place.config, error) : NULL;
}

static int check_begin(const struct pulls *pulls, hearth_error *error)
{
    size_t n = 0;
    for (const struct job *job = pulls->jobs; job != NULL; job = job->next) n++;
    if (pulls->stopping) return error_set(error, HEARTH_UNAVAILABLE, "the server is stopping");
    if (check_served(pulls, error) != HEARTH_OK) return (int)error->code;
    if (n >= MOST_JOBS)
        return error_set(error, HEARTH_BUSY, "%d models are being pulled or removed already: try again later",
                         (int)MOST_JOBS);
    return HEARTH_OK;
}

static int begin(struct pulls *pulls, const struct job *what, struct pulls_follower *follower, hearth_error *error)
{
    int rc = check_begin(pulls, error);
    if (rc != HEARTH_OK) {
        release_task(&what->task);
        return rc;
    }
    struct job *job = mem_alloc(sizeof *job);
    job->pulls = pulls;
    job->subject = mem_strdup(what->subject);
    job->removes = what->removes;
    job->task = what->task;
    job->work = (struct pulls_work){.place = &pulls->place,
                                    .subject = job->subject,
                                    .insecure = what->work.insecure,
                                    .on_news = on_news,
                                    .is_cancelled = is_cancelled,
                                    .ud = job};
    pthread_mutex_init(&job->mutex, NULL);
    rc = start(job, error);
    if (rc != HEARTH_OK) {
        free_job(job);
        return rc;
    }
    follow(job, follower);
    job->next = pulls->jobs;
    pulls->jobs = job;
    return HEARTH_OK;
}

int pulls_pull(struct pulls *pulls, const char *reference, bool insecure, struct pulls_follower *follower,
               hearth_error *error)
{
    for (struct job *job = pulls->jobs; job != NULL; job = job->next) {
        if (job->removes || job->task.run != NULL || job->work.insecure != insecure ||
            strcmp(job->subject, reference) != 0)
            continue;
        follow(job, follower);
        return HEARTH_OK;
    }
    const struct job what = {.subject = (char *)reference, .work.insecure = insecure};
    return begin(pulls, &what, follower, error);
}

int pulls_remove(struct pulls *pulls, const char *model, struct pulls_follower *follower, hearth_error *error)
{
    const struct job what = {.subject = (char *)model, .removes = true};
    return begin(pulls, &what, follower, error);
}

int pulls_run(struct pulls *pulls, const struct pulls_task *task, struct pulls_follower *follower, hearth_error *error)
{
    const struct job what = {.subject = "", .task = *task};
    return begin(pulls, &what, follower, error);
}

/* ---- Life ---- */

struct pulls *pulls_open(const struct pulls_place *place, struct http_server *http)
{
    struct pulls *pulls = mem_alloc(sizeof *pulls);
    pulls->place = *place;
    pulls->http = http;
    return pulls;
}

void pulls_stop(struct pulls *pulls)
{
    if (pulls == NULL) return;
    pulls->stopping = true;
    for (struct job *job = pulls->jobs; job != NULL; job = job->next) atomic_store(&job->cancelled, true);
}

void pulls_join(struct pulls *pulls)
{
    pulls_stop(pulls);
    for (struct job *job = pulls == NULL ? NULL : pulls->jobs; job != NULL; job = job->next) join(job);
}

void pulls_close(struct pulls *pulls)
{
    free(pulls);
}
