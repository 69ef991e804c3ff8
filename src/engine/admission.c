/* The admission queue and its permits: see admission.h. One mutex guards it all, and the HTTP thread takes it: whatever
 * is done under it takes the same time however many jobs wait. So those that wait stand in a list for each kind, of
 * which only the first one matters; a job's `turn` says which came first. Postponed jobs, which are gone through, have
 * permits, so that they are few. */
#include "engine/admission.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>

/* The permits that a job takes, and whether it expires. */
enum job_kind { WORK, PATIENT_WORK, PROMPT_ONLY, PATIENT_PROMPT_ONLY, N_KINDS };

struct admission {
    struct clock *clock;
    int64_t timeout;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    struct job_list waiting[N_KINDS], postponed;
    struct job_list decided; /* cancelled, or woken: for the next thread that asks */
    uint64_t turns, wakes;
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

/* ---- Where a job stands; with the mutex held ---- */

static struct job_list *list_at(struct admission *a, const struct job *job)
{
    if (job->state == JOB_POSTPONED) return &a->postponed;
    if (job->state == JOB_DECIDED) return &a->decided;
    return &a->waiting[(job->only_prompt ? PROMPT_ONLY : WORK) + (job->patient ? 1 : 0)];
}

/* A job stands in the list that its state says. */
static void move_job(struct admission *a, struct job *job, enum job_state state)
{
    if (job->state != JOB_OUTSIDE) job_list_take(list_at(a, job), job);
    job_enter(job, state);
    if (state != JOB_OUTSIDE) job_list_append(list_at(a, job), job);
}

#ifndef NDEBUG
/* With more jobs than this in a list, looking at each would take the time that the lists are there to save. */
#define CHECKED_JOBS 64

static void check_list(struct admission *a, struct job_list *list, enum job_state state)
{
    size_t n = 0;
    for (struct job *job = list->first; job != NULL && n < CHECKED_JOBS; job = job->next, n++) {
        assert(job->state == state && list_at(a, job) == list);
        assert(job->admitted || state != JOB_POSTPONED);
        assert(!job->admitted || state != JOB_WAITING);
    }
    assert(n == list->len || n == CHECKED_JOBS);
}

#endif

static void unlock(struct admission *a)
{
#ifndef NDEBUG
    for (size_t i = 0; i < N_KINDS; i++) check_list(a, &a->waiting[i], JOB_WAITING);
    check_list(a, &a->postponed, JOB_POSTPONED);
    check_list(a, &a->decided, JOB_DECIDED);
    assert(a->permits_in_use <= a->permits);
#endif
    pthread_mutex_unlock(&a->mutex);
}

bool admission_enter(struct admission *a, struct job *job)
{
    pthread_mutex_lock(&a->mutex);
    bool open = !a->closed;
    if (open) {
        job->turn = a->turns++;
        move_job(a, job, job_is_cancelled(job) ? JOB_DECIDED : JOB_WAITING);
        pthread_cond_broadcast(&a->changed);
    }
    unlock(a);
    return open;
}

/* ---- Verdicts; with the mutex held ---- */

/* The job that came first, of two kinds. NULL: there is none. */
static struct job *first_of(const struct admission *a, enum job_kind one, enum job_kind other)
{
    struct job *first = a->waiting[one].first, *second = a->waiting[other].first;
    if (first == NULL || second == NULL) return first == NULL ? second : first;
    return first->turn < second->turn ? first : second;
}

/* Admits the first job in the queue for which there is a permit. NULL: none. */
static struct job *admit(struct admission *a)
{
    struct job *work = a->permits_in_use < a->permits ? first_of(a, WORK, PATIENT_WORK) : NULL;
    struct job *prompt = a->prompt_only_running ? NULL : first_of(a, PROMPT_ONLY, PATIENT_PROMPT_ONLY);
    struct job *job = work == NULL || (prompt != NULL && prompt->turn < work->turn) ? prompt : work;
    if (job == NULL) return NULL;
    move_job(a, job, JOB_OUTSIDE);
    job->admitted = true;
    job->admitted_at = clock_now(a->clock);
    if (job->only_prompt)
        a->prompt_only_running = true;
    else
        a->permits_in_use++;
    return job;
}

/* The job that expires next: all have the same time-out. NULL: none ever does. */
static struct job *next_to_expire(const struct admission *a)
{
    return first_of(a, WORK, PROMPT_ONLY);
}

static size_t count_waiting(const struct admission *a)
{
    size_t n = 0;
    for (size_t i = 0; i < N_KINDS; i++) n += a->waiting[i].len;
    return n;
}

/* Whether some job has a verdict now, and which. */
static bool decide(struct admission *a, enum admission_verdict *verdict, struct job **job)
{
    int64_t now = clock_now(a->clock);
    for (struct job *late = a->postponed.first, *next; late != NULL; late = next) {
        next = late->next;
        if (now >= late->postponed_until) move_job(a, late, JOB_DECIDED);
    }
    if ((*job = a->decided.first) != NULL) {
        *verdict = job_is_cancelled(*job) ? ADMISSION_CANCELLED : ADMISSION_DUE;
        move_job(a, *job, JOB_OUTSIDE);
    } else if ((*job = admit(a)) != NULL) {
        *verdict = ADMISSION_ADMITTED;
    } else if ((*job = next_to_expire(a)) != NULL && now >= (*job)->submitted_at + a->timeout) {
        *verdict = ADMISSION_EXPIRED;
        move_job(a, *job, JOB_OUTSIDE);
    } else {
        *verdict = ADMISSION_CLOSED;
        return a->closed && count_waiting(a) == 0;
    }
    return true;
}

enum admission_verdict admission_next(struct admission *a, struct job **job)
{
    enum admission_verdict verdict;
    pthread_mutex_lock(&a->mutex);
    while (!decide(a, &verdict, job)) {
        const struct job *first = next_to_expire(a);
        int64_t deadline = first == NULL ? CLOCK_NEVER : first->submitted_at + a->timeout;
        for (const struct job *postponed = a->postponed.first; postponed != NULL; postponed = postponed->next)
            if (postponed->postponed_until < deadline) deadline = postponed->postponed_until;
        a->clock->wait(a->clock, &a->changed, &a->mutex, deadline);
    }
    unlock(a);
    return verdict;
}

uint64_t admission_wakes(struct admission *a)
{
    pthread_mutex_lock(&a->mutex);
    uint64_t n = a->wakes;
    unlock(a);
    return n;
}

bool admission_postpone(struct admission *a, struct job *job, int64_t deadline, uint64_t seen)
{
    pthread_mutex_lock(&a->mutex);
    bool open = !a->closed;
    if (open) {
        job->postponed_until = deadline;
        move_job(a, job, job_is_cancelled(job) || seen != a->wakes ? JOB_DECIDED : JOB_POSTPONED);
        pthread_cond_broadcast(&a->changed); /* a thread that waits recomputes its deadline */
    }
    unlock(a);
    return open;
}

void admission_wake(struct admission *a)
{
    pthread_mutex_lock(&a->mutex);
    a->wakes++;
    while (a->postponed.first != NULL) move_job(a, a->postponed.first, JOB_DECIDED);
    pthread_cond_broadcast(&a->changed);
    unlock(a);
}

void admission_cancel(struct admission *a, struct job *job)
{
    pthread_mutex_lock(&a->mutex);
    if (job->state == JOB_WAITING || job->state == JOB_POSTPONED) {
        move_job(a, job, JOB_DECIDED);
        pthread_cond_broadcast(&a->changed);
    }
    unlock(a);
}

void admission_set_apart(struct admission *a, struct job *job)
{
    pthread_mutex_lock(&a->mutex);
    if (job->only_prompt && !a->prompt_only_apart) {
        job->apart = a->prompt_only_apart = true;
        a->prompt_only_running = false;
        pthread_cond_broadcast(&a->changed);
    }
    unlock(a);
}

void admission_leave(struct admission *a, const struct job *job)
{
    pthread_mutex_lock(&a->mutex);
    if (job->apart)
        a->prompt_only_apart = false;
    else if (job->only_prompt)
        a->prompt_only_running = false;
    else {
        assert(a->permits_in_use > 0);
        a->permits_in_use--;
    }
    pthread_cond_broadcast(&a->changed);
    unlock(a);
}

static void leave_all(struct admission *a, struct job_list *from, struct job_list *left)
{
    while (from->first != NULL) {
        struct job *job = from->first;
        move_job(a, job, JOB_OUTSIDE);
        job_list_append(left, job);
    }
}

struct job_list admission_close(struct admission *a)
{
    struct job_list left = {0};
    pthread_mutex_lock(&a->mutex);
    for (size_t i = 0; i < N_KINDS; i++) leave_all(a, &a->waiting[i], &left);
    leave_all(a, &a->postponed, &left);
    leave_all(a, &a->decided, &left);
    a->closed = true;
    pthread_cond_broadcast(&a->changed);
    unlock(a);
    return left;
}

size_t admission_waiting(struct admission *a)
{
    pthread_mutex_lock(&a->mutex);
    size_t n = count_waiting(a);
    unlock(a);
    return n;
}
