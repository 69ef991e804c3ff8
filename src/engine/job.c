/* An engine job and the events that its owner emits: see job.h. */
#include "engine/job.h"

#include "base/clock.h"
#include "base/error.h"

#include <string.h>

void job_list_append(struct job_list *list, struct job *job)
{
    job->next = NULL;
    job->previous = list->last;
    *(list->last == NULL ? &list->first : &list->last->next) = job;
    list->last = job;
    list->len++;
}

void job_list_take(struct job_list *list, struct job *job)
{
    *(job->previous == NULL ? &list->first : &job->previous->next) = job->next;
    *(job->next == NULL ? &list->last : &job->next->previous) = job->previous;
    job->next = job->previous = NULL;
    list->len--;
}

struct job *job_list_take_first(struct job_list *list)
{
    struct job *job = list->first;
    if (job != NULL) job_list_take(list, job);
    return job;
}

void job_list_move_matching(struct job_list *from, struct job_list *to, bool (*matches)(const struct job *job))
{
    struct job_list kept = {0};
    struct job *job;
    while ((job = job_list_take_first(from)) != NULL) job_list_append(matches(job) ? to : &kept, job);
    *from = kept;
}

void job_add_checkpoint(struct job *job, int32_t position)
{
    size_t i = 0;
    while (i < job->n_checkpoints && job->checkpoints[i] < position) i++;
    bool there = i < job->n_checkpoints && job->checkpoints[i] == position;
    if (there || job->n_checkpoints == JOB_CHECKPOINTS || position <= 0 || position >= (int32_t)job->prompt.len) return;
    memmove(&job->checkpoints[i + 1], &job->checkpoints[i], (job->n_checkpoints - i) * sizeof *job->checkpoints);
    job->checkpoints[i] = position;
    job->n_checkpoints++;
}

bool job_is_cancelled(const struct job *job)
{
    return atomic_load_explicit(&job->cancelled, memory_order_relaxed);
}

static double stage_ms(int64_t from, int64_t to)
{
    return to == 0 ? -1 : clock_to_ms(to - from);
}

void job_note_stages(const struct job *job, hearth_result *result)
{
    result->admission_ms = stage_ms(job->submitted_at, job->admitted_at);
    result->prepare_ms = stage_ms(job->admitted_at, job->prepared_at);
    result->lookup_ms = stage_ms(job->prepared_at, job->looked_up_at);
}

static void send(struct job *job, const hearth_event *event)
{
    job->on_event(job->ud, event);
}

void job_send_prompt(struct job *job, const char *text, size_t len)
{
    job->on_event(job->ud, &(hearth_event){.type = HEARTH_EVENT_PROMPT,
                                           .text = text,
                                           .text_len = len,
                                           .tokens = job->prompt.v,
                                           .n_tokens = job->prompt.len,
                                           .token = -1});
}

void job_send_started(struct job *job, const hearth_result *result)
{
    send(job, &(hearth_event){.type = HEARTH_EVENT_STARTED, .token = -1, .result = result});
}

void job_send_progress(struct job *job, const hearth_result *result)
{
    send(job, &(hearth_event){.type = HEARTH_EVENT_PROGRESS, .token = -1, .result = result});
}

void job_send_prompt_logprobs(struct job *job, const hearth_logprobs *logprobs)
{
    send(job,
         &(hearth_event){.type = HEARTH_EVENT_PROMPT_LOGPROBS, .token = logprobs->chosen.token, .logprobs = logprobs});
}

void job_send_text(struct job *job, const struct job_text *text)
{
    send(job, &(hearth_event){.type = HEARTH_EVENT_TEXT,
                              .text = text->text->v,
                              .text_len = text->text->len,
                              .token = text->token,
                              .logprobs = text->logprobs,
                              .result = &text->result});
}

void job_done(struct job *job, const hearth_result *result)
{
    job_enter(job, JOB_ENDED);
    send(job, &(hearth_event){.type = HEARTH_EVENT_DONE, .token = -1, .result = result});
    job->on_end(job);
}

void job_fail(struct job *job, const hearth_error *error)
{
    hearth_result stages = {.slot = -1};
    job_note_stages(job, &stages);
    job_enter(job, JOB_ENDED);
    send(job, &(hearth_event){.type = HEARTH_EVENT_FAILED, .token = -1, .error = error, .result = &stages});
    job->on_end(job);
}

void job_fail_with(struct job *job, hearth_code code, const char *message)
{
    hearth_error error;
    error_set(&error, code, "%s", message);
    job_fail(job, &error);
}

void job_list_fail(struct job_list *list, hearth_code code, const char *message)
{
    struct job *job;
    while ((job = job_list_take_first(list)) != NULL) job_fail_with(job, code, message);
}
