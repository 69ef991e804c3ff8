#include "engine/admission.h"

#include "base/memory.h"

#include <stdlib.h>

struct admission {
    struct clock *clock;
    int64_t timeout;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    struct job_list waiting;
    size_t places, taken;
    bool closed;
};

struct admission *admission_open(struct clock *clock, size_t places, int64_t timeout_ns)
{
    struct admission *a = mem_alloc(sizeof *a);
    a->clock = clock;
    a->timeout = timeout_ns;
    a->places = places;
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

static bool needs_no_place(const struct job *job)
{
    return job->only_prompt;
}

static bool is_impatient(const struct job *job)
{
    return !job->patient;
}

/* When the next job expires. Every one waits equally long at most, so the first that does not wait for ever is it. */
static int64_t next_deadline(const struct admission *a)
{
    const struct job *job = a->waiting.first;
    while (job != NULL && job->patient) job = job->next;
    return job == NULL ? CLOCK_NEVER : job->submitted_at + a->timeout;
}

/* The verdict on some job, if there is one to be given now. */
static bool decide(struct admission *a, enum admission_verdict *verdict, struct job **job)
{
    *job = job_list_take_first_matching(&a->waiting, job_is_cancelled);
    if (*job != NULL) {
        *verdict = ADMISSION_CANCELLED;
    } else if ((*job = job_list_take_first_matching(&a->waiting, needs_no_place)) != NULL) {
        *verdict = ADMISSION_GO;
    } else if (a->waiting.first == NULL) {
        *verdict = ADMISSION_CLOSED;
        return a->closed;
    } else if (a->taken < a->places) {
        *verdict = ADMISSION_GO;
        a->taken++;
        *job = job_list_take_first(&a->waiting);
        (*job)->has_place = true;
    } else if (clock_now(a->clock) >= next_deadline(a)) {
        *verdict = ADMISSION_EXPIRED;
        *job = job_list_take_first_matching(&a->waiting, is_impatient);
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

void admission_leave(struct admission *a)
{
    pthread_mutex_lock(&a->mutex);
    a->taken--;
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
