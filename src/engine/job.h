/* One request on its way through admission and the engine.
 *
 * Whoever makes a job fills in the first part before handing it to admission_enter(); from then on it is passed from
 * owner to owner (admission, a preparing thread, the engine) and only its owner touches it, except `cancelled`,
 * which anybody may set. The last owner calls job_done() or job_fail(), which delivers the last event and then
 * calls on_end(); after that the job is no longer theirs. */
#ifndef ENGINE_JOB_H
#define ENGINE_JOB_H

#include "base/buf.h"
#include "base/tokens.h"
#include "hearth.h"
#include "llm/sampler.h"
#include "store/slab_key.h"

#include <stdatomic.h>

#define JOB_CHECKPOINTS 8

/* What a chat request says of its messages. It is shown and logged, and tells where states are worth keeping; what is
 * reused is decided by tokens alone. All zero where a prompt has no messages. */
struct conversation {
    size_t n_messages;
    uint64_t *hashes;   /* n_messages + 1 of them: of the first i messages and of all else that the template sees */
    int32_t system_end; /* leading tokens of the prompt that stand for its system message; 0: it has none */
    int32_t stable_end; /* the same for all messages but the last; 0: there are fewer than two */
};

struct store_hit;

/* The token list most like a prompt, of those of its scope that lie in cells, in memory or in the store. */
struct nearest {
    struct divergence divergence;
    const char *where; /* static: "resident", or a tier's name; NULL: none has a token in common */
    const char *limit; /* static: what keeps fewer tokens from being reused than are in common; NULL: nothing does */
};

struct job {
    char id[64];
    hearth_event_fn on_event;
    void *ud;
    void (*on_end)(struct job *job);

    struct tokens prompt; /* empty until it has been prepared */
    struct conversation conversation;
    struct llm_sampler *sampler; /* the run's once it has begun; NULL where nothing is to be computed */
    bool ignore_eos;             /* goes on past tokens that end generation */
    const char *const *stop;
    size_t n_stop;
    const int32_t *shown; /* special tokens whose text belongs to the reply all the same */
    size_t n_shown;
    int32_t max_tokens;   /* may exceed what the window leaves */
    int64_t max_ns;       /* of generation: then the reply ends at the next line; 0: no limit */
    int32_t top_logprobs; /* as in hearth_params, likewise the next two */
    bool post_sampling_probs, progress;
    bool cache_prompt;
    bool only_lookup; /* nothing is computed: the result says what is there of the prompt */
    /* Of a lookup: gets the job back with what was found, before its end. NULL: that is its end. */
    void (*on_looked_up)(struct job *job, const hearth_result *result);
    bool only_prompt;         /* nothing at all is done but to tell the prompt; takes no place */
    uint64_t scope;           /* prompts of different scopes never share anything */
    struct identity identity; /* the same for the store, where there is one */
    const double *scales;     /* what each of the model's adapters counts for; NULL: none takes part */
    struct store_hit *hit;    /* what the store has of the prompt; NULL: it was not asked, or is needed no more */
    struct nearest nearest;   /* of a lookup: the store's, then of all; of others the engine notes it */
    bool patient;             /* does not expire at the door */
    int32_t checkpoints[JOB_CHECKPOINTS]; /* where other prompts are likely to part from this one: ends of messages,
                                             ascending */
    size_t n_checkpoints;

    _Atomic bool cancelled;
    int64_t submitted_at; /* clock of the engine */
    bool admitted;        /* by admission, which wants to know when it is over */

    /* While it is parked there: until when, and how often others had been resumed before. */
    int64_t suspended_until;
    uint64_t suspended_after;

    /* While the engine has it: */
    int64_t queued_at; /* since when it waits for a slot, not counting times when every slot computed a prompt */
    bool blocked;      /* waits at such a time */
    struct run *run;   /* how far it came before it made way for another; NULL: it has not begun */
    struct job *next;  /* in the list of its owner */
};

/* A first-in, first-out list of jobs; {0} is an empty one. */
struct job_list {
    struct job *first, *last;
    size_t len;
};

void job_list_append(struct job_list *list, struct job *job);
struct job *job_list_take_first(struct job_list *list);

/* Takes out every job for which `matches` holds and returns them as a list; both keep their order. */
struct job_list job_list_take_matching(struct job_list *list, bool (*matches)(const struct job *job));

/* Takes out the first job for which `matches` holds; NULL if there is none. */
struct job *job_list_take_first_matching(struct job_list *list, bool (*matches)(const struct job *job));

/* Adds a position in its place. Nothing happens where it is one already, or there is no room, or the prompt ends there.
 */
void job_add_checkpoint(struct job *job, int32_t position);

bool job_is_cancelled(const struct job *job);

/* The prompt's tokens, and this text of them. */
void job_send_prompt(struct job *job, const char *text, size_t len);
/* More of a reply. */
struct job_text {
    const struct buf *text;
    int32_t token;                   /* -1: none came with it */
    const hearth_logprobs *logprobs; /* NULL: not asked for */
    hearth_result result;
};

void job_send_started(struct job *job, const hearth_result *result);
void job_send_progress(struct job *job, const hearth_result *result);
void job_send_text(struct job *job, const struct job_text *text);
void job_done(struct job *job, const hearth_result *result);
void job_fail(struct job *job, const hearth_error *error);
void job_fail_with(struct job *job, hearth_code code, const char *message);

/* Fails every job of the list with the same words. */
void job_list_fail(struct job_list *list, hearth_code code, const char *message);

#endif
