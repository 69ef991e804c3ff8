/* The admission queue and its permits: see admission.h. One mutex guards it all. */
#include "engine/admission.h"

#include "base/memory.h"

#include <stdlib.h>

struct admission {
    struct clock *clock;
    int64_t timeout;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    struct job_list waiting, postponed;
    uint64_t wakes;
    size_t permits, permits_in_use;
    bool prompt_only_running; /* a job that only wants its prompt is admitted */
    bool prompt_only_apart;   /* another one is, and was set apart */
    bool closed;
};

struct admission *admission_open(struct clock *clock, size_t permits, int64_t timeout_ns)
{
    struct admission *a = mem_alloc(sizeof *a);
    a->clock = clock;
    a->timeout = timeout_ns;
    a->permits = permits;
    pthread_mutex_init(&a->mutex, NULL);
    clock_cond_init(&a->changed);
    return a;
}

void admission_release(struct admission *a)
{
    if (a == NULL) return;
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->mutex);
    free(a);
}

bool admission_enter(struct admission *a, struct job *job)
{
    pthread_mutex_lock(&a->mutex);
    bool open = !a->closed;
    if (open) {
        job_list_append(&a->waiting, job);
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->mutex);
    return open;
}

static bool is_prompt_only(const struct job *job)
{
    return job->only_prompt;
}

static bool needs_permit(const struct job *job)
{
    return !job->only_prompt;
}

static bool is_any_job(const struct job *job)
{
    (void)job;
    return true;
}

/* Admits the first job in the queue for which there is a permit. NULL: none. */
static struct job *admit(struct admission *a)
{
    bool free_permit = a->permits_in_use < a->permits;
    if (!free_permit && a->prompt_only_running) return NULL;
    struct job *job = job_list_take_first_matching(&a->waiting, !free_permit             ? is_prompt_only
                                                                : a->prompt_only_running ? needs_permit
                                                                                         : is_any_job);
    if (job == NULL) return NULL;
    job->admitted = true;
    job->admitted_at = clock_now(a->clock);
    if (job->only_prompt)
        a->prompt_only_running = true;
    else
        a->permits_in_use++;
    return job;
}

static bool can_expire(const struct job *job)
{
    return !job->patient;
}

/* When the next job expires. All have the same time-out, so it is the first one that is not patient. */
static int64_t next_expiry(const struct admission *a)
{
    const struct job *job = a->waiting.first;
    while (job != NULL && job->patient) job = job->next;
    return job == NULL ? CLOCK_NEVER : job->submitted_at + a->timeout;
}

static int64_t next_deadline(const struct admission *a)
{
    int64_t next = next_expiry(a);
    for (const struct job *job = a->postponed.first; job != NULL; job = job->next)
        if (job->postponed_until < next) next = job->postponed_until;
    return next;
}

/* A postponed job that is due: woken, cancelled or past its deadline. */
static struct job *take_due(struct admission *a)
{
    int64_t now = clock_now(a->clock);
    struct job_list kept = {0};
    struct job *job, *due = NULL;
    while ((job = job_list_take_first(&a->postponed)) != NULL) {
        bool is_due = job_is_cancelled(job) || job->postponed_after != a->wakes || now >= job->postponed_until;
        if (is_due && due == NULL)
            due = job;
        else
            job_list_append(&kept, job);
    }
    a->postponed = kept;
    return due;
}

/* Whether some job has a verdict now, and which. */
static bool decide(struct admission *a, enum admission_verdict *verdict, struct job **job)
{
    if ((*job = take_due(a)) != NULL) {
        *verdict = job_is_cancelled(*job) ? ADMISSION_CANCELLED : ADMISSION_DUE;
    } else if ((*job = job_list_take_first_matching(&a->waiting, job_is_cancelled)) != NULL) {
        *verdict = ADMISSION_CANCELLED;
    } else if ((*job = admit(a)) != NULL) {
        *verdict = ADMISSION_ADMITTED;
    } else if (a->waiting.first == NULL) {
        *verdict = ADMISSION_CLOSED;
        return a->closed;
    } else if (clock_now(a->clock) >= next_expiry(a)) {
        *verdict = ADMISSION_EXPIRED;
        *job = job_list_take_first_matching(&a->waiting, can_expire);
    } else {
        return false;
    }
    return true;
}

enum admission_verdict admission_next(struct admission *a, struct job **job)
{
    enum admission_verdict verdict;
    pthread_mutex_lock(&a->mutex);
    while (!decide(a, &verdict, job)) a->clock->wait(a->clock, &a->changed, &a->mutex, next_deadline(a));
    pthread_mutex_unlock(&a->mutex);
    return verdict;
}

uint64_t admission_wakes(struct admission *a)
{
    pthread_mutex_lock(&a->mutex);
    uint64_t n = a->wakes;
    pthread_mutex_unlock(&a->mutex);
    return n;
}

bool admission_postpone(struct admission *a, struct job *job, int64_t deadline, uint64_t seen)
{
    pthread_mutex_lock(&a->mutex);
    bool open = !a->closed;
    if (open) {
        job->postponed_until = deadline;
        job->postponed_after = seen;
        job_list_append(&a->postponed, job);
        pthread_cond_broadcast(&a->changed); /* a thread that waits recomputes its deadline */
    }
    pthread_mutex_unlock(&a->mutex);
    return open;
}

void admission_wake(struct admission *a)
{
    pthread_mutex_lock(&a->mutex);
    a->wakes++;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->mutex);
}

void admission_set_apart(struct admission *a, struct job *job)
{
    pthread_mutex_lock(&a->mutex);
    if (job->only_prompt && !a->prompt_only_apart) {
        job->apart = a->prompt_only_apart = true;
        a->prompt_only_running = false;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->mutex);
}

void admission_leave(struct admission *a, const struct job *job)
{
    pthread_mutex_lock(&a->mutex);
    if (job->apart)
        a->prompt_only_apart = false;
    else if (job->only_prompt)
        a->prompt_only_running = false;
    else
        a->permits_in_use--;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->mutex);
}

void admission_poke(struct admission *a)
{
    pthread_mutex_lock(&a->mutex);
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->mutex);
}

struct job_list admission_close(struct admission *a)
{
    pthread_mutex_lock(&a->mutex);
    struct job_list left = a->waiting;
    struct job *job;
    while ((job = job_list_take_first(&a->postponed)) != NULL) job_list_append(&left, job);
    a->waiting = (struct job_list){0};
    a->closed = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->mutex);
    return left;
}

size_t admission_waiting(struct admission *a)
{
    pthread_mutex_lock(&a->mutex);
    size_t len = a->waiting.len;
    pthread_mutex_unlock(&a->mutex);
    return len;
}
