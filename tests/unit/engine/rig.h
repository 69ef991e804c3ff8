/* An engine over the fake model, for the tests of this folder. */
#ifndef UNIT_ENGINE_RIG_H
#define UNIT_ENGINE_RIG_H

#include "fakes/client.h"
#include "fakes/cmocka_all.h"
#include "fakes/fake_llm.h"

#include "engine/core.h"
#include "engine/engine_status.h"
#include "engine/evict.h"
#include "engine/fetch.h"
#include "engine/reuse_plan.h"
#include "engine/save.h"
#include "engine/tick.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rig {
    struct fake_clock clock;
    struct engine *engine;
};

/* A draft model: the fake tells its contexts by that. `info` says for what window it was trained. */
static inline struct draft_model_params fake_draft_model(int32_t n_slots)
{
    static char is_there;
    const struct llm_model_info info = {.n_ctx_train = 4096};
    return (struct draft_model_params){
        .model = (struct llm_model *)&is_there, .context = draft_model_context(&info, n_slots), .n_vocab = FAKE_VOCAB};
}

/* The MTP head of the model itself, or an EAGLE-3 head. */
static inline struct draft_model_params fake_head(enum llm_head head, int32_t n_slots)
{
    struct draft_model_params params = fake_draft_model(n_slots);
    const struct llm_model_info eagle = {.n_ctx_train = 4096, .eagle.layers.n = FAKE_LAYERS};
    if (head == LLM_HEAD_EAGLE) params.context = draft_model_context(&eagle, n_slots);
    params.context.head = head;
    params.n_own = FAKE_ROW;
    params.n_row = head == LLM_HEAD_EAGLE ? FAKE_LAYERS * FAKE_ROW : FAKE_ROW;
    return params;
}

struct shape {
    int32_t slots, seqs, window; /* seqs 0: as many as slots, a stream of cells each; else one pool of cells */
    int32_t n_batch;             /* 0: 512, as n_ubatch always is */
    bool deterministic;
    enum engine_caching caching; /* 0: conversations */
    bool no_caching, preempt_fails;
    enum engine_idle idle; /* 0: stays */
    int32_t cache_min_tokens;
    int64_t slot_timeout_ms;            /* 0: never */
    uint64_t snapshot_budget;           /* 0: more than enough */
    struct store *store;                /* borrowed; NULL: none */
    int32_t stride, continued_interval; /* 0: 64, never */
    int64_t evict_timeout_ms;           /* 0: a minute */
    struct draft_params draft;          /* none by default */
    struct file_watch *watch;           /* borrowed; NULL: none */
};

static inline struct engine *open_engine(struct rig *rig, struct shape shape)
{
    hearth_error error;
    struct engine_params params = {
        .name = "fake",
        .n_adapters = CLIENT_ADAPTERS,
        .n_slots = shape.slots,
        .context = {.window = shape.window,
                    .n_seq = shape.seqs > 0 ? shape.seqs : shape.slots,
                    .unified = shape.seqs > 0,
                    .n_batch = shape.n_batch > 0 ? shape.n_batch : 512,
                    .n_ubatch = 512,
                    .hidden_rows = shape.draft.model.context.head != LLM_HEAD_NONE,
                    .hidden_layers.n = shape.draft.model.context.head == LLM_HEAD_EAGLE ? FAKE_LAYERS : 0},
        .max_token_gap_ns = 250000000,
        .deterministic = shape.deterministic,
        .caching = shape.caching == ENGINE_CACHES_SYSTEM ? ENGINE_CACHES_SYSTEM
                   : shape.no_caching                    ? ENGINE_CACHES_NOTHING
                                                         : ENGINE_CACHES_CONVERSATIONS,
        .idle = shape.idle,
        .cache_min_tokens = shape.cache_min_tokens,
        .slot_timeout_ns = shape.slot_timeout_ms > 0 ? shape.slot_timeout_ms * 1000000 : INT64_MAX,
        .preempt_fails = shape.preempt_fails,
        .snapshot_budget = shape.snapshot_budget > 0 ? shape.snapshot_budget : 1 << 30,
        .store = shape.store,
        .watch = shape.watch,
        .draft = shape.draft,
        .stride = shape.stride > 0 ? shape.stride : 64,
        .continued_interval = shape.continued_interval > 0 ? shape.continued_interval : INT32_MAX,
        .evict_timeout_ns = (shape.evict_timeout_ms > 0 ? shape.evict_timeout_ms : 60000) * 1000000,
        .clock = &rig->clock.clock};
    rig->engine = engine_open(&params, &error);
    return rig->engine;
}

static inline int set_up(void **state)
{
    struct rig *rig = calloc(1, sizeof *rig);
    fake_clock_init(&rig->clock);
    fake_llm_reset(&rig->clock);
    *state = rig;
    return 0;
}

/* Whether the table of shared cells (sharing.h) agrees with the fake's cells. */
static inline bool sharing_is_right(const struct engine *engine)
{
    for (size_t a = 0; a < engine->n_seqs; a++) {
        int32_t most = 0;
        for (size_t b = 0; b < engine->n_seqs; b++) {
            int32_t common = a == b ? 0 : fake_llm_cells_in_common(engine->context, (int32_t)a, (int32_t)b);
            if (engine->policy.one_pool && common > most) most = common;
        }
        if (sharing_most(&engine->sharing, (int32_t)a) != most) return false;
    }
    return true;
}

/* NULL, or what the engine still has to do. */
static inline const char *what_is_left(struct rig *rig)
{
    struct engine *engine = rig->engine;
    hearth_slot slots[8];
    size_t n = engine_slots(engine, slots, 8);
    for (size_t i = 0; i < n; i++) {
        const struct slot *slot = &engine->slots[i];
        if (slots[i].state != HEARTH_SLOT_IDLE) return hearth_slot_state_name(slots[i].state);
        if (slot->job != NULL || slot->run != NULL || slot->seq != NULL) return "a slot holds something";
        if (slot->queue.first != NULL || slot->queue.len != 0) return "somebody waits for a slot";
    }
    for (size_t i = 0; i < engine->n_seqs; i++)
        if (engine->seqs[i].slot != NULL) return "a sequence belongs to a slot";
    if (engine->waiting.first != NULL || engine->waiting.len != 0) return "somebody waits";
    if (metric_get(&engine->stats->jobs_waiting) != 0) return "somebody is counted as waiting";
    if (metric_get(&engine->stats->slots_busy) != 0) return "a slot is counted as busy";
    if (engine->preemption.victim != NULL) return "a preemption is scheduled";
    if (snapshots_available(engine->snapshots) != snapshots_usage(engine->snapshots).budget)
        return "a snapshot is pinned";
    if (!sharing_is_right(engine)) return "the table of shared cells is wrong";
    return fake_llm_cells_add_up(engine->context) ? NULL : "cells are lost";
}

/* Checks after every test: once the engine is idle nothing is pending, and nothing is pinned or held. */
static inline int tear_down(void **state)
{
    struct rig *rig = *state;
    const char *left = NULL;
    if (rig->engine != NULL) {
        engine_drain(rig->engine, clock_now(&rig->clock.clock));
        left = what_is_left(rig);
        engine_close(rig->engine);
    }
    fake_clock_release(&rig->clock);
    free(rig);
    if (left != NULL) print_error("left behind: %s\n", left);
    return left == NULL ? 0 : -1;
}

static inline void assert_all_idle(struct rig *rig)
{
    hearth_slot slots[16];
    engine_drain(rig->engine, CLOCK_NEVER);
    size_t n = engine_slots(rig->engine, slots, 16);
    for (size_t i = 0; i < n; i++) assert_int_equal(slots[i].state, HEARTH_SLOT_IDLE);
}

/* As src/instance does: an identity for each scope. */
static inline void identify(const struct engine *engine, struct job *job)
{
    char salt[24];
    const struct store_user *user = engine_store_user(engine);
    snprintf(salt, sizeof salt, "%llu", (unsigned long long)job->scope);
    if (user != NULL) job->identity = identity_salted(&user->identity, job->scope == 0 ? NULL : salt);
}

static inline void run_alone(struct rig *rig, struct client *client)
{
    engine_submit(rig->engine, &client->job);
    client_await_end(client);
    assert_int_equal(client->n_last_events, 1);
}

#define engine_test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
