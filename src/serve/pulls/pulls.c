/* Pulls, removals and their followers: see pulls.h. A job's thread does the work, which blocks on network and disk. It
 * leaves news in a queue and posts to the HTTP thread, which passes them on; its end is posted last. Where a pull has
 * ended for want of followers while one was just coming, it is begun again.
 *
 * A request may name less than the command line: no file of this machine, and of the web public addresses alone. A
 * short name may mean anything but a file: the owner of the file of short names decides there what is fetched. So may a
 * repository, whose server is the environment's HF_ENDPOINT. Only what was pulled can be removed, and nothing that the
 * configuration uses. */
#include "serve/pulls/pulls.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "http/http.h"
#include "pull/declare.h"
#include "pull/listing.h"
#include "pull/pull.h"
#include "serve/core/models.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    char *subject; /* a reference; the name of a model */
    bool insecure; /* http without encryption is allowed beyond this machine */
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

static void note_news(struct job *job, const struct pulls_news *news)
{
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

/* ---- What the configuration has ---- */

static const char *get(const struct pulls_place *place, const char *model, const char *key)
{
    char *full = mem_format("models.%s.%s", model, key);
    const char *value = hearth_config_get(place->config, full);
    free(full);
    return value;
}

/* Whether somebody has configured a model of this name. */
static bool is_configured(const struct pulls_place *place, const char *name)
{
    bool is_pulled = place->is_pulled != NULL && place->is_pulled(place->ud, name);
    return !is_pulled && get(place, name, "path") != NULL;
}

static int refuse_configured(const char *name, hearth_error *error)
{
    return error_at(error, HEARTH_INVALID, "model",
                    "model '%s' is the configuration's (models.%s): requests neither replace nor remove it", name,
                    name);
}

static bool is_below(const char *path, const char *folder)
{
    char *real = path == NULL ? NULL : realpath(path, NULL), *root = realpath(folder, NULL);
    size_t len = root == NULL ? 0 : strlen(root);
    bool below = real != NULL && root != NULL && strncmp(real, root, len) == 0 && real[len] == '/';
    free(real);
    free(root);
    return below;
}

/* Whether a model that somebody has configured uses a file of this folder. */
static int check_unused(const struct pulls_place *place, const char *folder, hearth_error *error)
{
    static const char *const keys[] = {"path", "mmproj", "jinja_file", "draft.path"};
    const char *name;
    for (size_t i = 0; (name = hearth_config_model(place->config, i)) != NULL; i++) {
        if (!is_configured(place, name)) continue;
        const char *lora = get(place, name, "lora"), *used = lora != NULL && strstr(lora, folder) ? "lora" : NULL;
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (is_below(get(place, name, keys[k]), folder)) used = keys[k];
        if (used != NULL)
            return error_at(error, HEARTH_INVALID, "model", "models.%s.%s of the configuration is a file of it", name,
                            used);
    }
    return HEARTH_OK;
}

/* ---- Serving ---- */

static void tell(struct job *job, enum pulls_step step)
{
    note_news(job, &(struct pulls_news){.step = step});
}

static int add(const struct pulls_place *place, const struct pull_model *model, hearth_error *error)
{
    char *folder = pull_folder_of(place->config, error);
    if (folder == NULL) return (int)error->code;
    hearth_config *config = hearth_config_new();
    int rc = pull_declare_on_demand(config, folder, model, error);
    if (rc == HEARTH_OK) rc = hearth_add_model(place->instance, config, model->name, error);
    hearth_config_free(config);
    free(folder);
    return rc;
}

/* One that is served already is taken anew where its files are others than it was read from. */
static int serve_anew(const struct pulls_place *place, const struct pull_model *model, hearth_error *error)
{
    hearth_model_info info;
    size_t n = 0, n_configured = 0;
    while (hearth_model(place->instance, n, &info)) n++;
    while (hearth_config_model(place->config, n_configured) != NULL) n_configured++;
    /* The places of removed models are not used again. */
    if (n >= n_configured + HEARTH_ADDED_MODELS)
        return error_set(error, HEARTH_NO_MEMORY,
                         "its files were pulled, and the former ones are served until hearth is started anew: %d "
                         "models were added already",
                         HEARTH_ADDED_MODELS);
    int rc = hearth_remove_model(place->instance, model->name, error);
    if (rc == HEARTH_BUSY)
        error_prefix(error, "its files were pulled, and the former ones are served until it is pulled once more, which "
                            "fetches nothing: ");
    return rc == HEARTH_OK ? add(place, model, error) : rc;
}

/* With the lock of the model's folder, as removing has it, so that a served model has its files. */
static int serve(void *ud, const struct pull_model *model, hearth_error *error)
{
    struct job *job = ud;
    hearth_model_info info;
    tell(job, PULLS_SERVING);
    if (!models_find(job->pulls->place.instance, model->name, &info)) return add(&job->pulls->place, model, error);
    bool is_current = !model->changed && model->pulled_ms <= info.created_ms;
    return is_current ? HEARTH_OK : serve_anew(&job->pulls->place, model, error);
}

/* ---- Pulling ---- */

static void on_progress(void *ud, const struct pull_progress *progress)
{
    struct job *job = ud;
    struct pulls_news news = {
        .step = progress->checking ? PULLS_CHECKING : PULLS_FETCHING, .done = progress->done, .total = progress->total};
    snprintf(news.file, sizeof news.file, "%s", progress->file);
    if (progress->sha != NULL) sha256_to_hex(progress->sha, news.digest);
    note_news(job, &news);
}

static int accept_name(void *ud, const char *name, hearth_error *error)
{
    struct job *job = ud;
    const char *declared = pull_find_declared(job->pulls->place.config, name);
    if (declared == NULL || !is_configured(&job->pulls->place, declared)) return HEARTH_OK;
    if (strcmp(declared, name) == 0) return refuse_configured(name, error);
    return error_at(error, HEARTH_INVALID, "model",
                    "'%s' is an alias of the configuration's model '%s' (models.%s.aliases): take it out there, or run "
                    "`hearth pull --name` with another name",
                    name, declared, declared);
}

static int refuse_file(hearth_error *error)
{
    return error_at(error, HEARTH_UNSUPPORTED, "model",
                    "files of this machine are not pulled by requests: name hf:OWNER/REPO[:QUANT], a URL that ends in "
                    ".gguf, or a short name; or run `hearth pull` there");
}

int pulls_read_reference(const char *text, struct pull_reference *reference, hearth_error *error)
{
    *reference = (struct pull_reference){0};
    if (pull_reference_is_path(text)) return refuse_file(error);
    char *names = pull_names_path();
    int rc = pull_reference_read(text, names, reference, error);
    free(names);
    return rc == HEARTH_OK && reference->kind == PULL_FILE ? refuse_file(error) : rc;
}

struct pull_options pulls_options(const struct pull_reference *reference)
{
    struct pull_options options = pull_options_default();
    options.public_only = reference->kind == PULL_URL && reference->short_name == NULL;
    return options;
}

static int get_model(struct job *job, const struct pull_reference *reference, const char *folder,
                     struct pull_model *model, hearth_error *error)
{
    struct pull_options options = pulls_options(reference);
    /* A model that was pulled by a short name has that name, unless its reference was pulled under another one. */
    char *name = mem_strdup(reference->short_name);
    struct pull_model former;
    hearth_error none;
    if (name != NULL && pull_folder_find(folder, NULL, reference->text, &former, &none) == HEARTH_OK) {
        free(name);
        name = mem_strdup(former.name);
        pull_model_release(&former);
    }
    options.folder = folder;
    options.name = name;
    options.allow_http = job->insecure;
    options.accept = accept_name;
    options.report = on_progress;
    options.use = serve;
    options.is_cancelled = is_cancelled;
    options.ud = job;
    int rc = pull_model(reference, &options, model, error);
    free(name);
    return rc;
}

/* HEARTH_OK: the model was pulled and is served. */
static int pull(struct job *job, hearth_error *error)
{
    struct pull_reference reference = {0};
    struct pull_model model = {0};
    char *folder = pull_folder_of(job->pulls->place.config, error);
    if (folder == NULL) return (int)error->code;
    int rc = pulls_read_reference(job->subject, &reference, error);
    if (rc == HEARTH_OK) {
        tell(job, PULLS_LISTING);
        rc = get_model(job, &reference, folder, &model, error);
    }
    if (rc == HEARTH_OK) {
        job->model = mem_strdup(model.name);
        log_event(LOG_INFO, "pull", "pulled", log_str("model", model.name), log_str("reference", model.reference),
                  log_bool("changed", model.changed));
    }
    pull_model_release(&model);
    pull_reference_release(&reference);
    free(folder);
    return rc;
}

/* ---- Removing ---- */

static bool is_in_folder(const char *folder, const char *name)
{
    char *path = mem_format("%s/%s", folder, name);
    bool found = pull_check_model_name(name, NULL) == HEARTH_OK && access(path, F_OK) == 0;
    free(path);
    return found;
}

static int remove_model(const struct pulls_place *place, const char *folder, const char *name, hearth_error *error)
{
    hearth_model_info info;
    struct pull_place its = {.fd = -1, .lock = -1};
    bool has_files = is_in_folder(folder, name), is_served = models_find(place->instance, name, &info);
    if (is_configured(place, name)) return refuse_configured(name, error);
    if (!has_files && !is_served) return error_at(error, HEARTH_NOT_FOUND, "model", "model '%s' not found", name);
    char *path = mem_format("%s/%s", folder, name);
    int rc = check_unused(place, path, error);
    /* While it is pulled it stays as it is: nothing is taken from the instance before the lock is had. */
    if (rc == HEARTH_OK && has_files) rc = pull_place_find(folder, name, &its, error);
    if (rc == HEARTH_OK && models_find(place->instance, name, &info))
        rc = hearth_remove_model(place->instance, name, error);
    if (rc == HEARTH_OK && has_files) rc = pull_place_remove(&its, name, error);
    pull_place_close(&its);
    free(path);
    return rc;
}

/* HEARTH_OK: a pulled model is neither served nor in the models folder any more. */
static int remove_pulled(struct job *job, hearth_error *error)
{
    char *folder = pull_folder_of(job->pulls->place.config, error);
    if (folder == NULL) return (int)error->code;
    /* In the models folder a tag ":latest" may be missing. */
    static const char tag[] = ":latest";
    size_t len = strlen(job->subject), tail = sizeof tag - 1;
    bool has_tag = len > tail && strcmp(job->subject + len - tail, tag) == 0;
    char *name = mem_strndup(job->subject, has_tag && !is_in_folder(folder, job->subject) ? len - tail : len);
    int rc = remove_model(&job->pulls->place, folder, name, error);
    if (rc == HEARTH_OK) log_event(LOG_INFO, "pull", "removed from the models folder", log_str("model", name));
    free(name);
    free(folder);
    return rc;
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
             : job->removes        ? remove_pulled(job, &job->error)
                                   : pull(job, &job->error);
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
        error_set(error, HEARTH_UNAVAILABLE, "the server is stopping%s",
                  job->task.run == NULL ? ": what was fetched stays, and the next pull goes on there" : "");
    for (struct pulls_follower *f = job->followers, *next; f != NULL; f = next) {
        next = f->next;
        f->on_end(f, job->model, error->code == HEARTH_OK ? NULL : error);
    }
    free_job(job);
}

/* ---- Following ---- */

/* A removal, and work that cannot be cancelled, goes on. */
static void cancel(struct job *job)
{
    if (job->task.cancelled != NULL) atomic_store(job->task.cancelled, true);
    if (!job->removes && job->task.run == NULL) atomic_store(&job->cancelled, true);
}

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
    if (job->followers == NULL) cancel(job);
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

static int begin(struct pulls *pulls, const struct job *what, struct pulls_follower *follower, hearth_error *error)
{
    size_t n = 0;
    for (const struct job *other = pulls->jobs; other != NULL; other = other->next) n++;
    int rc =
        pulls->stopping ? error_set(error, HEARTH_UNAVAILABLE, "the server is stopping") : check_served(pulls, error);
    if (rc == HEARTH_OK && n >= MOST_JOBS)
        rc = error_set(error, HEARTH_BUSY, "%d models are being pulled or removed already: try again later",
                       (int)MOST_JOBS);
    if (rc != HEARTH_OK) {
        release_task(&what->task);
        return rc;
    }
    struct job *job = mem_alloc(sizeof *job);
    *job = (struct job){.pulls = pulls,
                        .subject = mem_strdup(what->subject),
                        .insecure = what->insecure,
                        .removes = what->removes,
                        .task = what->task};
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
        if (job->removes || job->task.run != NULL || job->insecure != insecure || strcmp(job->subject, reference) != 0)
            continue;
        follow(job, follower);
        return HEARTH_OK;
    }
    return begin(pulls, &(struct job){.subject = (char *)reference, .insecure = insecure}, follower, error);
}

int pulls_remove(struct pulls *pulls, const char *model, struct pulls_follower *follower, hearth_error *error)
{
    return begin(pulls, &(struct job){.subject = (char *)model, .removes = true}, follower, error);
}

int pulls_run(struct pulls *pulls, const struct pulls_task *task, struct pulls_follower *follower, hearth_error *error)
{
    return begin(pulls, &(struct job){.subject = "", .task = *task}, follower, error);
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
    for (struct job *job = pulls->jobs; job != NULL; job = job->next) cancel(job);
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
