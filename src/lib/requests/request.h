/* A request from inside: what request.c makes and admit.c makes ready. */
#ifndef LIB_REQUESTS_REQUEST_H
#define LIB_REQUESTS_REQUEST_H

#include "chat/chat.h"
#include "engine/job.h"
#include "lib/models/loaded_model.h"
#include "lib/models/model_manager.h"
#include "lib/requests/prepare.h"
#include "store/slab_key.h"

/* Two parties hold on to it: the caller, until hearth_request_release(), and its job, until the last event. Its fields
 * are constant but for the job, which belongs to whoever has it (engine/job.h), and what is made ready by the preparing
 * thread before the job reaches the engine. */
struct hearth_request {
    struct job job;
    _Atomic int refs;
    hearth_event_fn on_event;
    void *ud;
    struct lease lease;
    struct model *model; /* once the lease is ready */
    struct clock *clock;
    hearth_params *params; /* a copy; what is shared belongs to its owner */
    double *scales;        /* of the model's adapters */

    uint64_t parent_ticket; /* of the saves that its parent may be among */
    int64_t parent_deadline;

    /* Made ready: */
    char *assumed;                    /* messages with the system message that they lack; NULL: they are as given */
    const struct chat_format *format; /* of a chat */
    const char **stop;                /* what the request says and what the format adds; the strings are theirs */
    struct tokens shown;
    hearth_sampling picks; /* the parameters' sampling with everything given; it borrows from them and the model */
    struct kept_prompt {   /* with params->keep_prompt */
        struct tokens tokens;
        struct buf text;
        size_t *ends;
    } kept;

    struct lookup { /* what is made of a lookup's answer when the engine has given it */
        bool answered;
        hearth_result result;
        struct prepare_chat chat; /* as it was rendered; zeroed: it is no chat */
        struct buf common, prompt, nearest;
        int32_t message;
        char role[16];
    } lookup;

    pthread_mutex_t mutex; /* guards the rest, for hearth_wait(): */
    pthread_cond_t over;
    bool ended;
    hearth_error outcome; /* code is HEARTH_OK where it did not fail */
};

/* lookup.c: a job's on_looked_up(): a preparing thread goes on with it. */
void lookup_answered(struct job *job, const hearth_result *result);

/* There: says where the divergence is, in words, and ends the request. */
void lookup_finish(hearth_request *request);
void lookup_release(struct lookup *lookup);

/* The loop of a preparing thread; `ud` is a struct model. */
void *request_prepare_loop(void *ud);

#endif
