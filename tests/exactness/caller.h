/* Callers: they submit requests, observe them, and judge the results. Their events come on the engine's thread, between
 * two decode calls. There they look straight into the engine: at the logits that each token was sampled from and, at
 * the first token and the last, at every byte of the sequence's cells. Everything else happens on the test's thread. */
#ifndef EXACTNESS_CALLER_H
#define EXACTNESS_CALLER_H

#include "engine/core.h"
#include "instance/requests/request.h"
#include "json_trees.h"
#include "support.h"

/* AT_ONCE: nothing is computed before another request has come. STALLING: once the reply has begun, another request
 * comes and the clock jumps. UNCACHED: nothing is reused or kept. */
enum how { USUAL, AT_ONCE, STALLING, UNCACHED };

/* A request, and what was observed of it. */
struct caller {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    hearth_request *request;
    struct engine *engine;
    const struct turn *turn;
    const char *what; /* the request, for messages */
    enum how how;
    bool started, ended, failed;
    struct tokens reply;
    hearth_result result;
    hearth_error error;
    float difference;         /* the largest of any logit's, between this run and the cold run */
    bool same_bits;           /* of all logits */
    struct buf before, after; /* the sequence's state when the first token was sampled, and the last */
};

/* ---- On the engine's thread ---- */

static inline const struct slot *slot_of(const struct caller *caller)
{
    const struct engine *engine = caller->engine;
    for (size_t i = 0; i < engine->n_slots; i++) {
        const hearth_request *request = (const hearth_request *)engine->slots[i].job; /* a job is its request */
        if (request != NULL && request->ud == caller) return &engine->slots[i];
    }
    abort();
}

/* The logits that the slot's token was sampled from: those of the last token before it, which may have been drafted. */
static inline const float *logits_of(const struct engine *engine, const struct slot *slot)
{
    int32_t row = 0;
    while (engine->batch[row].seq != slot->seq->id || engine->batch[row].pos != (int32_t)slot->seq->tokens.len - 1)
        row++;
    return llm_logits(engine->context, row);
}

static inline void compare_logits(struct caller *caller, const float *warm, const float *cold, int32_t n)
{
    if (memcmp(warm, cold, (size_t)n * sizeof *warm) == 0) return;
    caller->same_bits = false;
    for (int32_t i = 0; i < n; i++) {
        float difference = fabsf(warm[i] - cold[i]);
        if (!(difference <= caller->difference)) caller->difference = difference;
    }
}

static inline void see_token(struct caller *caller, int32_t token)
{
    const struct engine *engine = caller->engine;
    const struct slot *slot = slot_of(caller);
    int32_t n_vocab = llm_model_info(engine->model)->n_vocab;
    size_t i = caller->reply.len;
    tokens_push(&caller->reply, token);
    if (i >= REPLY) return;
    compare_logits(caller, logits_of(engine, slot), caller->turn->logits + i * (size_t)n_vocab, n_vocab);
    if (i == 0) save_state(engine->context, slot->seq->id, &caller->before);
    if (i == REPLY - 1) save_state(engine->context, slot->seq->id, &caller->after);
}

static inline bool has_come(const struct engine *engine)
{
    return engine->inbox.first != NULL || engine->waiting.first != NULL;
}

/* Waits until another request comes; or, with `once`, has come and gone: the first that ends is that one. */
static inline void await_other(struct engine *engine, bool once)
{
    pthread_mutex_lock(&engine->mutex);
    while (!has_come(engine) && !(once && metric_get(&engine->stats->requests_done) > 0))
        pthread_cond_wait(&engine->mail, &engine->mutex);
    pthread_mutex_unlock(&engine->mutex);
}

/* What is done without the lock, so that the test can continue meanwhile. */
static inline void dawdle(struct engine *engine, enum how how, const hearth_event *event, size_t n_reply)
{
    if (how == AT_ONCE && event->type == HEARTH_EVENT_STARTED) await_other(engine, false);
    if (how != STALLING || event->type != HEARTH_EVENT_TEXT || n_reply <= 4) return;
    await_other(engine, true);
    atomic_fetch_add(&fast_clock.ahead, clock_from_ms(60000)); /* longer than any time-out */
}

static inline void caller_event(void *ud, const hearth_event *event)
{
    struct caller *caller = ud;
    struct engine *engine = caller->engine;
    pthread_mutex_lock(&caller->mutex);
    if (event->type == HEARTH_EVENT_TEXT && event->token >= 0) see_token(caller, event->token);
    if (event->type == HEARTH_EVENT_DONE) caller->result = *event->result;
    if (event->type == HEARTH_EVENT_FAILED) caller->error = *event->error;
    caller->failed = event->type == HEARTH_EVENT_FAILED;
    caller->ended = event->type == HEARTH_EVENT_DONE || event->type == HEARTH_EVENT_FAILED;
    caller->started = true;
    enum how how = caller->how;
    size_t n_reply = caller->reply.len;
    pthread_cond_broadcast(&caller->changed);
    pthread_mutex_unlock(&caller->mutex);
    dawdle(engine, how, event, n_reply);
}

/* ---- Submitting ---- */

static inline void caller_submit(struct caller *caller, hearth *instance, const struct turn *turn, const char *what,
                                 enum how how)
{
    *caller = (struct caller){
        .engine = instance->entries[0].model->engine, .turn = turn, .what = what, .how = how, .same_bits = true};
    pthread_mutex_init(&caller->mutex, NULL);
    pthread_cond_init(&caller->changed, NULL);
    hearth_params params = hearth_params_default();
    char *messages = NULL;
    if (turn->n_messages > 0) {
        messages = mem_format("%s]", turn->messages.v);
        params.messages = json_of(messages);
    } else {
        params.tokens = turn->prompt.v;
        params.n_tokens = turn->prompt.len;
    }
    params.sampling.temperature = 0;
    params.sampling.ignore_eos = true;
    params.max_tokens = REPLY;
    params.cache_prompt = how != UNCACHED;
    params.lora = turn->lora;
    params.n_lora = turn->n_lora;
    hearth_error error;
    caller->request = hearth_submit(instance, &params, caller_event, caller, &error);
    free(messages);
    if (caller->request == NULL) fail_msg("%s: %s", what, error.message);
}

/* Waits until the request has its slot. */
static inline void caller_await_start(struct caller *caller)
{
    pthread_mutex_lock(&caller->mutex);
    while (!caller->started) pthread_cond_wait(&caller->changed, &caller->mutex);
    pthread_mutex_unlock(&caller->mutex);
}

/* Waits for the request's end; what was observed is then in the caller. */
static inline void caller_await(struct caller *caller)
{
    pthread_mutex_lock(&caller->mutex);
    while (!caller->ended) pthread_cond_wait(&caller->changed, &caller->mutex);
    pthread_mutex_unlock(&caller->mutex);
    hearth_request_release(caller->request);
}

/* The result stays valid. */
static inline void caller_release(struct caller *caller)
{
    pthread_mutex_destroy(&caller->mutex);
    pthread_cond_destroy(&caller->changed);
    tokens_release(&caller->reply);
    buf_release(&caller->before);
    buf_release(&caller->after);
}

/* ---- Judging ---- */

/* A request that has ended, and its cells as they were. */
struct witness {
    const struct turn *turn;
    struct image before, after;
};

enum { WITNESSES = 32 };

/* An instance and all requests that were submitted to it. Of a store's blocks each has the bytes that one request
 * computed, and two requests that begin alike store what they have in common once: with `mixes` the cells that are
 * reused may be of several requests, each of which begins with all tokens up to there. */
struct stage {
    const struct oracle *oracle;
    hearth *instance;
    bool mixes;
    size_t n_witnesses;
    struct witness witnesses[WITNESSES];
};

static inline void expect_reply(const struct oracle *oracle, const struct caller *caller)
{
    const struct turn *turn = caller->turn;
    const hearth_result *result = &caller->result;
    if (caller->failed) fail_msg("%s: %s", caller->what, caller->error.message);
    assert_int_equal(result->cache_n + result->prompt_n, turn->prompt.len);
    size_t same = tokens_common_prefix(&caller->reply, &turn->reply);
    if (same < REPLY || caller->reply.len != REPLY)
        fail_msg("%s: token %zu of %zu is wrong (%d of %zu prompt tokens reused)", caller->what, same,
                 caller->reply.len, result->cache_n, turn->prompt.len);
    bool right = oracle->layout == DETERMINISTIC ? caller->same_bits : caller->difference <= oracle->arch->bound;
    if (!right)
        fail_msg("%s: logits differ by %g from a cold run (%d of %zu prompt tokens reused)", caller->what,
                 (double)caller->difference, result->cache_n, turn->prompt.len);
}

static inline void expect_image(const char *what, const struct image *warm, const struct image *cold, const char *when)
{
    if (!image_holds_the_same(warm, cold)) fail_msg("%s: other positions than in a cold run %s", what, when);
    int32_t differs = image_differs(warm, cold, 0, WINDOW);
    if (differs >= 0) fail_msg("%s: the cell at %d has other bytes than in a cold run %s", what, differs, when);
}

static inline void expect_cells(const struct oracle *oracle, const struct caller *caller, struct witness *witness)
{
    const struct turn *turn = witness->turn = caller->turn;
    image_of_state(&witness->before, oracle->arch->sections, oracle->arch->coordinates, &caller->before);
    image_of_state(&witness->after, oracle->arch->sections, oracle->arch->coordinates, &caller->after);
    if (oracle->layout == DETERMINISTIC) {
        expect_image(caller->what, &witness->before, &turn->before, "at the first token");
        expect_image(caller->what, &witness->after, &turn->after, "at the last token");
    }
    int32_t changed = image_differs(&witness->before, &witness->after, 0, (int32_t)turn->prompt.len - 1);
    if (changed >= 0) fail_msg("%s: the cell at %d changed while the reply was made", caller->what, changed);
}

/* Tokens of the prompt whose cells the witness had. */
static inline int32_t common_with(const struct turn *turn, const struct tokens *prompt)
{
    struct tokens held = {0};
    tokens_append(&held, turn->prompt.v, turn->prompt.len);
    tokens_append(&held, turn->reply.v, REPLY - 1);
    int32_t n = (int32_t)tokens_common_prefix(&held, prompt);
    tokens_release(&held);
    return n;
}

/* How far from `from` on another request had the same bytes in its cells, at most up to `reused`. */
static inline int32_t same_as_another(const struct stage *stage, const struct witness *witness, int32_t from,
                                      int32_t reused)
{
    int32_t furthest = from;
    for (size_t i = 0; i < stage->n_witnesses; i++) {
        const struct witness *other = &stage->witnesses[i];
        int32_t common = common_with(other->turn, &witness->turn->prompt), end = common < reused ? common : reused;
        if (other == witness || end <= from || (end < reused && !stage->mixes)) continue;
        int32_t differs = image_differs(&witness->before, &other->after, from, end);
        if (differs >= 0) end = differs;
        if (end > furthest) furthest = end;
    }
    return furthest;
}

/* What was reused has the bytes that it had in the cells of another request that begins with it. */
static inline void expect_bytes_of_another(const struct stage *stage, const struct witness *witness,
                                           const struct caller *caller)
{
    int32_t reused = caller->result.cache_n, same = 0, before;
    do {
        before = same;
        same = same_as_another(stage, witness, same, reused);
    } while (stage->mixes && same > before && same < reused);
    if (same < reused)
        fail_msg("%s: the cell at %d, of %d reused, has other bytes than it was computed with", caller->what, same,
                 reused);
}

/* Waits until all these have ended, and checks everything about them. */
static inline void judge(struct stage *stage, struct caller *callers, size_t n)
{
    assert_true(stage->n_witnesses + n <= WITNESSES);
    struct witness *witnesses = &stage->witnesses[stage->n_witnesses];
    for (size_t i = 0; i < n; i++) caller_await(&callers[i]);
    for (size_t i = 0; i < n; i++) expect_reply(stage->oracle, &callers[i]);
    for (size_t i = 0; i < n; i++) expect_cells(stage->oracle, &callers[i], &witnesses[i]);
    stage->n_witnesses += n;
    for (size_t i = 0; i < n; i++) expect_bytes_of_another(stage, &witnesses[i], &callers[i]);
    for (size_t i = 0; i < n; i++) caller_release(&callers[i]);
}

static inline void expect_reused(const struct caller *caller, int32_t least, int32_t most)
{
    int32_t reused = caller->result.cache_n;
    if (reused < least || reused > most)
        fail_msg("%s: %d of %zu prompt tokens were reused, not %d to %d", caller->what, reused,
                 caller->turn->prompt.len, least, most);
}

#endif
