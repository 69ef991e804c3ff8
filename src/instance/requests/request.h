/* struct hearth_request: one request for a reply, from hearth_submit() (request.c) over its preparation (preparer.c) to
 * its last event. */
#ifndef INSTANCE_REQUESTS_REQUEST_H
#define INSTANCE_REQUESTS_REQUEST_H

#include "chat/chat.h"
#include "engine/job.h"
#include "instance/media/prompt_media.h"
#include "instance/models/loaded_model.h"
#include "instance/models/model_manager.h"
#include "instance/requests/prepare.h"

/* Two parties own a request: the caller, until hearth_request_release(), and its engine job, until the last event. Most
 * of its fields are constant after hearth_submit(). The job is passed from thread to thread (engine/job.h). A preparing
 * thread fills in the prepared part before the job reaches the engine. */
struct hearth_request {
    struct job job;
    _Atomic int refs;
    hearth_event_fn on_event;
    void *ud;
    struct lease lease;
    struct model *model; /* set once the lease is granted */
    struct clock *clock;
    hearth_params *params; /* a copy, but for all that params->shared owns */
    double *scales;        /* one for each adapter of the model; NULL: all 0 */

    uint64_t parent_ticket;  /* number of the last save that its parent may be in */
    int64_t parent_deadline; /* clock time in nanoseconds; 0: it did not wait for its parent yet */

    int64_t most_thread_time;        /* CPU nanoseconds of the preparing thread at which it gives up */
    struct chat_stop stop_rendering; /* asks for that, and whether the request is wanted */

    /* Prepared: */
    struct prompt_media *media;        /* NULL: there is none, or the model takes text only */
    const hearth_preset *preset;       /* that it names as its model; NULL: none */
    struct preset_template *template_; /* the preset's; NULL: the model's holds */
    json_t *assumed;                   /* messages with a system message before them, the preset's or an assumed one;
                                          NULL: as given */
    char *left_out;                    /* hearth_request_left_out() */
    char *unenforced;                  /* hearth_request_unenforced() */
    const struct chat_format *format;  /* of a chat's replies; NULL for a completion */
    const char **stop;                 /* stop strings of the request and of the format, which own the strings */
    struct reply_place place;          /* where its reply begins, in the model's reply book */
    struct tokens sampled;             /* its reply so far; written on the engine's thread */
    struct tokens shown;               /* special tokens whose text belongs to the reply */
    hearth_sampling sampling; /* the request's, with every value filled in; borrows lists from params and the model */
    hearth_bias *biases;      /* its biases, where some were of texts; NULL: they are those of params */
    struct kept_prompt {      /* with params->keep_prompt */
        struct tokens tokens;
        struct buf text;
        size_t *ends;
    } kept;

    struct lookup { /* a cache lookup: the engine's answer, and the words and message at the divergence */
        bool answered;
        hearth_result result;
        struct prepare_chat chat; /* as it was rendered; zeroed for a completion */
        struct buf common, prompt, nearest;
        int32_t message;
        char role[16];
    } lookup;

    pthread_mutex_t mutex; /* guards what follows, for hearth_wait() */
    pthread_cond_t over;
    bool ended;
    hearth_error outcome; /* code is HEARTH_OK where it did not fail */
};

/* How long a prompt is that does not fit. */
struct request_length {
    size_t n_tokens, window;
    size_t bytes; /* of a text that was not tokenised, and has so many tokens at least; 0: they were counted */
};

/* Refuses the prompt that `field` holds: in words by which clients of OpenAI's and of llama-server's know to shorten
 * it. Any thread. */
int request_refuse_length(const struct model_entry *entry, const char *field, const struct request_length *length,
                          hearth_error *error);

/* reply_book.c: the lists that are stored under the request's identity, for its preparation; waits for a scan that has
 * just begun. Without functions: nothing is looked for. */
struct stored_lists request_stored_lists(const hearth_request *request);

/* lookup.c: a job's on_looked_up(), called on the engine thread: hands the request back to a preparing thread. */
void lookup_answered(struct job *job, const hearth_result *result);

/* On the preparing thread: writes down the words and the message at the divergence, and ends the request. */
void lookup_finish(hearth_request *request);
void lookup_release(struct lookup *lookup);

/* A preparing thread; `ud` is its struct model. Returns when the model's admission is closed. */
void *request_prepare_loop(void *ud);

/* The same for one job that was admitted, on the thread of the slow lane. */
void request_prepare_slowly(struct job *job);

#endif
