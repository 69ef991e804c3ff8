/* A job: one request in admission and the engine.
 *
 * The maker of a job fills in the first part before handing it to admission_enter(). From then on it is passed from
 * owner to owner (admission, a preparing thread, the engine) and only its owner touches it, except `cancelled`, which
 * any thread may set. The last owner calls job_done() or job_fail(), which delivers the last event and then calls
 * on_end(); after that the job is no longer theirs. */
#ifndef ENGINE_JOB_H
#define ENGINE_JOB_H

#include "base/buf.h"
#include "base/media_spans.h"
#include "base/tokens.h"
#include "engine/states.h"
#include "hearth.h"
#include "llm/sampler.h"
#include "store/slabs/slab_key.h"

#include <stdatomic.h>

#define JOB_CHECKPOINTS 8

/* The messages of a chat request, as positions and hashes. They are shown and logged, and say where checkpoints are
 * worth saving; reuse compares tokens only. All zero where a prompt has no messages. */
struct conversation {
    size_t n_messages;
    uint64_t *hashes;   /* n_messages + 1: entry i covers the first i messages and all else that the template sees */
    int32_t system_end; /* leading tokens of the prompt up to the end of its system message; 0: it has none */
    int32_t stable_end; /* likewise up to the end of all messages but the last; 0: there are fewer than two */
};

/* The media of a prompt. The maker of the job has the rows, or has them made, on another thread. The functions are
 * called on the engine's thread, wait for nothing, and may be called again for the same span. */
enum job_rows { JOB_ROWS_READY, JOB_ROWS_PENDING, JOB_ROWS_FAILED };

struct llm_place; /* llm/projector.h */

struct job_span_rows {
    const float *v;                 /* `width` of each row */
    const struct llm_place *places; /* one of each row; NULL: the model's positions have one dimension */
    size_t width;
};

struct job_media {
    struct media_spans spans;
    void *ud;
    /* All rows of a span. Pending: they are being encoded from this call on, and engine_poke() follows. */
    enum job_rows (*rows)(void *ud, size_t span, struct job_span_rows *rows, hearth_error *error);
    void (*computed)(void *ud,
                     size_t span); /* the rows are in the cells, and not needed unless they are asked for again */
};

struct store_hit;

/* The token list most similar to a prompt, of those of its scope in cells, in memory or in the store. */
struct nearest {
    struct divergence divergence;
    const char *where; /* static: "resident", or a tier's name; NULL: none has a token in common */
    const char *limit; /* static: why fewer tokens are reused than are in common; NULL: nothing limits it */
};

struct job {
    char id[64];
    hearth_event_fn on_event;
    void *ud;
    void (*on_end)(struct job *job);

    struct tokens prompt; /* empty until it has been prepared */
    struct job_media media;
    struct conversation conversation;
    struct llm_sampler *sampler; /* the run's once it has begun; NULL where nothing is to be computed */
    bool ignore_eos;             /* generation continues past tokens that would end it */
    const char *const *stop;
    size_t n_stop;
    size_t n_own_stop;    /* the last so many are the format's own: the result does not name them */
    const int32_t *shown; /* special tokens whose text belongs to the reply all the same */
    size_t n_shown;
    int32_t max_tokens;   /* may exceed what the window leaves */
    int64_t max_ns;       /* nanoseconds of generation, after which the reply ends at the next line; 0: no limit */
    int32_t top_logprobs; /* as in hearth_params, likewise the next two */
    bool post_sampling_probs, progress;
    int32_t prompt_logprobs; /* likewise */
    bool cache_prompt;
    int32_t draft_max; /* drafted tokens a call at most; -1: as configured */
    bool only_lookup;  /* a cache lookup: computes nothing, the result says how much of the prompt is cached */
    /* Of a lookup: gets the job back with the result, before its end. NULL: the lookup ends with the result. */
    void (*on_looked_up)(struct job *job, const hearth_result *result);
    bool only_prompt;         /* only renders, tokenises and emits the prompt; takes no permit */
    uint64_t scope;           /* prompts of different scopes never share cells or stored slabs */
    struct identity identity; /* likewise for the store, where there is one */
    const double *scales;     /* the scale of each of the model's adapters; NULL: none is applied */
    struct tokens past; /* what followed the prompt's last tokens, SUFFIX_MOST of them first, in a stored reply to the
                           same prompt; empty: nothing is known */
    struct store_hit *hit; /* what the store has of the prompt; NULL: the store was not asked, or is needed no more */
    struct nearest
        nearest;  /* of a lookup: first the nearest in the store, then of all; of other jobs the engine notes it */
    bool patient; /* does not expire in the admission queue */
    int32_t checkpoints[JOB_CHECKPOINTS]; /* checkpoint positions, ascending: where other prompts are likely to diverge
                                             from this one, such as ends of messages */
    size_t n_checkpoints;

    _Atomic enum job_state
        state; /* job_enter() changes it; atomic, since admission_cancel() looks at it on any thread */
    _Atomic bool cancelled;
    int64_t submitted_at;                           /* clock of the engine */
    int64_t admitted_at, prepared_at, looked_up_at; /* likewise; 0: not yet */
    bool admitted; /* by admission, which is to be notified of its end: admission_leave() */
    bool apart;    /* admission_set_apart() */

    /* Admission's own, under its mutex: */
    uint64_t turn;           /* of those that wait, the one with the lowest came first */
    int64_t postponed_until; /* the deadline */

    /* While the engine has it: */
    int64_t queued_at; /* since when it waits for a slot, not counting times when every slot computed a prompt */
    bool blocked;      /* waits at such a time */
    int32_t n_scored;  /* leading positions of the prompt whose logits gave a logprob: only these may be reused */
    struct run *run;   /* how far it came before it was suspended; NULL: it has not begun */
    const struct tokens *wanted; /* in its cells: the prompt, or what a suspended run wants */
    struct job *next, *previous; /* in the list of its owner */
};

/* A first-in, first-out list of jobs, each in one list at most; {0} is an empty one. */
struct job_list {
    struct job *first, *last;
    size_t len;
};

void job_list_append(struct job_list *list, struct job *job);
struct job *job_list_take_first(struct job_list *list);
void job_list_take(struct job_list *list, struct job *job); /* which is in it */

/* Moves every job for which `matches` holds to the end of the other list; both keep their order. */
void job_list_move_matching(struct job_list *from, struct job_list *to, bool (*matches)(const struct job *job));

/* Inserts a checkpoint position in order. Does nothing where it is one already, the array is full, or the prompt ends
 * there. */
void job_add_checkpoint(struct job *job, int32_t position);

bool job_is_cancelled(const struct job *job);

/* Notes how long the stages before the queue for a slot took. */
void job_note_stages(const struct job *job, hearth_result *result);

/* Emits the prompt's tokens and their text. */
void job_send_prompt(struct job *job, const char *text, size_t len);
/* The next text of a reply. */
struct job_text {
    const struct buf *text;
    int32_t token;                   /* -1: no token came with it */
    const hearth_logprobs *logprobs; /* NULL: not asked for */
    hearth_result result;
};

/* The logprobs of the prompt's next token. */
void job_send_prompt_logprobs(struct job *job, const hearth_logprobs *logprobs);

void job_send_started(struct job *job, const hearth_result *result);
void job_send_progress(struct job *job, const hearth_result *result);
void job_send_text(struct job *job, const struct job_text *text);
void job_done(struct job *job, const hearth_result *result);
void job_fail(struct job *job, const hearth_error *error);
void job_fail_with(struct job *job, hearth_code code, const char *message);

/* Fails every job of the list with the same code and message. */
void job_list_fail(struct job_list *list, hearth_code code, const char *message);

#endif
