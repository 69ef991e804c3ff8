/* An engine over the fake model with a store of its own, which outlives it. */
#ifndef UNIT_ENGINE_STORED_H
#define UNIT_ENGINE_STORED_H

#include "rig.h"

#include "base/files.h"
#include "fakes/long_timeouts.h"

#include <sched.h>

enum { STRIDE = 64 };

struct stored {
    struct rig *rig;
    struct store *store;
};

static inline struct store *open_store_in_memory(void)
{
    struct store_params params = {
        .stride = STRIDE, .save_tier = STORE_RAM, .backlog = 64 << 20, LONG_TIMEOUTS, .files = files_machine()};
    params.tiers[STORE_RAM].quota = 1 << 30;
    return store_open(&params, NULL);
}

static inline void start(struct stored *s, struct rig *rig, struct shape shape)
{
    s->rig = rig;
    if (s->store == NULL) s->store = open_store_in_memory();
    shape.store = s->store;
    shape.stride = STRIDE;
    open_engine(rig, shape);
}

/* Another engine on the same store: its cells are empty. */
static inline void restart(struct stored *s, struct shape shape)
{
    engine_close(s->rig->engine);
    start(s, s->rig, shape);
}

static inline void stop(struct stored *s)
{
    engine_close(s->rig->engine);
    s->rig->engine = NULL;
    store_close(s->store, CLOCK_NEVER);
}

/* Queries the store, as src/instance does before it submits a job to the engine. */
static inline void ask(const struct stored *s, struct client *client)
{
    const struct store_user *user = engine_store_user(s->rig->engine);
    const struct job *job = &client->job;
    identify(s->rig->engine, &client->job);
    if (user == NULL || !job->cache_prompt) return;
    bool system = s->rig->engine->policy.keeps_system_prompts;
    struct store_query query = {.user = user,
                                .identity = &job->identity,
                                .tokens = job->prompt.v,
                                .n = system ? job->conversation.system_end : (int32_t)job->prompt.len - 1};
    client->job.hit = store_find(s->store, &query);
}

static inline void run(struct stored *s, struct client *client)
{
    ask(s, client);
    run_alone(s->rig, client);
    assert_false(client->failed);
    assert_true(client_got_right_reply(client));
}

static inline void await_saves(const struct stored *s)
{
    assert_true(store_wait(s->store, UINT64_MAX, clock_now(clock_monotonic()) + 60000000000));
}

/* Closes the engine: everything that was queued is stored then. */
static inline void settle_down(struct stored *s)
{
    engine_drain(s->rig->engine, CLOCK_NEVER);
    await_saves(s);
}

static inline int64_t saves(const struct stored *s, enum slab_reason reason)
{
    return metric_get(&store_stats(s->store)->saves[reason]);
}

/* Leading tokens that the store has of the client's prompt and reply. */
static inline int32_t stored_of(const struct stored *s, struct client *client)
{
    struct tokens all = {0};
    tokens_append(&all, client->job.prompt.v, client->job.prompt.len);
    pthread_mutex_lock(&client->mutex);
    tokens_append(&all, client->got.v, client->got.len);
    pthread_mutex_unlock(&client->mutex);
    struct store_query query = {.user = engine_store_user(s->rig->engine),
                                .identity = &client->job.identity,
                                .tokens = all.v,
                                .n = (int32_t)all.len};
    struct store_hit *hit = store_find(s->store, &query);
    int32_t n = store_hit_tokens(hit);
    store_hit_close(hit);
    tokens_release(&all);
    return n;
}

/* Until all but the last token, which is in no cell, is stored, and the engine knows: a save ends some time after the
 * store can find what it wrote. */
static inline void await_stored(const struct stored *s, struct client *client)
{
    while (stored_of(s, client) < (int32_t)(client->job.prompt.len + client->got.len) - 1) sched_yield();
    await_saves(s);
}

/* The next turn: the last one's prompt and reply, and n new words. */
static inline void next_turn(struct client *next, const struct client *last, int32_t n, int32_t max_tokens)
{
    client_init(next, 0, 0, max_tokens);
    tokens_append(&next->job.prompt, last->job.prompt.v, last->job.prompt.len);
    tokens_append(&next->job.prompt, last->got.v, last->got.len);
    for (int32_t i = 0; i < n; i++) tokens_push(&next->job.prompt, (i * 7 + 3) % 190);
    next->job.cache_prompt = last->job.cache_prompt;
    next->job.scales = last->job.scales;
    next->job.scope = last->job.scope;
}

#endif
