/* What the exactness tests share: models of every architecture with a decoder, cold runs through src/llm as the oracle,
 * instances of libhearth, and callers that collect the tokens of a reply.
 *
 * Cells are F32 and flash attention is off, so that a warm and a cold run differ by the order of summation alone. That
 * can still turn a reply where two tokens are about equally likely. Prompts are therefore chosen by rule: random ones,
 * one after the other, until in the cold run the likeliest token leads at each step by more than `margin`, which is
 * twice what a logit may differ by (tests/unit/llm/test_share.c measures that). */
#ifndef EXACTNESS_SUPPORT_H
#define EXACTNESS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/tokens.h"
#include "base/utf8.h"
#include "hearth.h"
#include "llm/context.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW = 1024, REPLY = 32, N_ARCHS = 10 };

struct arch {
    const char *name;
    bool cuts_anywhere;
    float margin;
};

static const struct arch archs[N_ARCHS] = {
    {"llama", true, 2e-4F},   {"qwen3", true, 2e-4F},    {"qwen3moe", true, 2e-4F}, {"qwen2vl", true, 2e-4F},
    {"gemma3", false, 2e-2F}, {"gpt-oss", false, 2e-4F}, {"qwen35", false, 2e-4F},  {"falcon-h1", false, 2e-4F},
    {"lfm2", false, 2e-4F},   {"mamba2", false, 2e-4F},
};

#ifdef __SANITIZE_THREAD__
/* llama.cpp is built without the sanitizer, which therefore sees none of the barriers between its workers. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:ggml_\nrace:llama_\nrace:set_input\nrace:llm_graph\nrace:tsan_new_delete";
}
#endif

/* ---- Models ---- */

/* A model file and a context for cold runs. */
struct oracle {
    const struct arch *arch;
    char *path;
    struct llm_model *model;
    struct llm_context *context;
    int32_t n_vocab;
};

static inline const char *env(const char *name)
{
    const char *value = getenv(name);
    if (value == NULL) fail_msg("%s is not set: run the tests with ctest", name);
    return value;
}

static inline void run_command(char *command)
{
    if (system(command) != 0) fail_msg("failed: %s", command);
    free(command);
}

static inline void oracle_open(struct oracle *oracle, const struct arch *arch, const char *folder)
{
    oracle->arch = arch;
    oracle->path = mem_format("%s/%s.gguf", folder, arch->name);
    run_command(mem_format("'%s/bin/hearth-mkmodel' --arch %s --vocab '%s/models/demo.gguf' -o '%s' >/dev/null",
                           env("HEARTH_BUILD"), arch->name, env("HEARTH_SOURCE"), oracle->path));
    hearth_error error = {0};
    struct llm_model_params model = {.path = oracle->path, .split_mode = "layer", .weights = true};
    oracle->model = llm_model_open(&model, &error);
    if (oracle->model == NULL) fail_msg("%s", error.message);
    struct llm_context_params params = {.window = WINDOW,
                                        .n_seq = 1,
                                        .n_batch = 512,
                                        .n_ubatch = 512,
                                        .type_k = "f32",
                                        .type_v = "f32",
                                        .flash_attention = "off",
                                        .rope_scaling = "none",
                                        .rope_freq_base = NAN,
                                        .rope_freq_scale = NAN,
                                        .yarn_ext_factor = NAN,
                                        .yarn_attn_factor = NAN,
                                        .yarn_beta_fast = NAN,
                                        .yarn_beta_slow = NAN,
                                        .threads = 1};
    oracle->context = llm_context_open(oracle->model, &params, &error);
    if (oracle->context == NULL) fail_msg("%s", error.message);
    oracle->n_vocab = llm_model_info(oracle->model)->n_vocab;
}

static inline void oracle_close(struct oracle *oracle)
{
    llm_context_close(oracle->context);
    llm_model_close(oracle->model);
    free(oracle->path);
}

/* ---- Cold runs ---- */

static inline const float *cold_rows(struct oracle *oracle, const int32_t *tokens, int32_t n, int32_t pos)
{
    struct llm_row rows[512];
    assert_true(n <= 512);
    for (int32_t i = 0; i < n; i++)
        rows[i] = (struct llm_row){.token = tokens[i], .pos = pos + i, .logits = i == n - 1};
    assert_int_equal(llm_decode(oracle->context, rows, n), LLM_DECODED);
    return llm_logits(oracle->context, n - 1);
}

/* The likeliest token, and by how much it leads. */
static inline int32_t likeliest(const float *logits, int32_t n, float *lead)
{
    int32_t best = logits[1] > logits[0], second = !best;
    for (int32_t i = 2; i < n; i++) {
        if (logits[i] > logits[best]) {
            second = best;
            best = i;
        } else if (logits[i] > logits[second]) {
            second = i;
        }
    }
    *lead = logits[best] - logits[second];
    return best;
}

/* REPLY greedy tokens after the prompt. False: some step is too close, or ends the reply. */
static inline bool cold_reply(struct oracle *oracle, const struct tokens *prompt, struct tokens *reply)
{
    tokens_truncate(reply, 0);
    llm_seq_clear(oracle->context, 0);
    const float *logits = cold_rows(oracle, prompt->v, (int32_t)prompt->len, 0);
    while (true) {
        float lead;
        int32_t token = likeliest(logits, oracle->n_vocab, &lead);
        if (lead < oracle->arch->margin || llm_token_ends_generation(oracle->model, token)) return false;
        tokens_push(reply, token);
        if (reply->len == REPLY) return true;
        logits = cold_rows(oracle, &token, 1, (int32_t)(prompt->len + reply->len) - 1);
    }
}

/* ---- Prompts ---- */

/* A prompt and the reply of a cold run. A chat has its messages too. */
struct turn {
    struct tokens prompt, reply;
    struct buf messages; /* JSON, without the closing bracket */
    struct buf text;     /* the messages, rendered */
};

static inline void turn_release(struct turn *turn)
{
    tokens_release(&turn->prompt);
    tokens_release(&turn->reply);
    buf_release(&turn->messages);
    buf_release(&turn->text);
}

static inline uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

/* The first n tokens of `before` (which may be NULL, or have a reply to go on after), and `more` random ones. */
static inline struct turn turn_after(struct oracle *oracle, const struct turn *before, int32_t n, int32_t more,
                                     uint32_t seed)
{
    struct turn turn = {0};
    do {
        uint32_t random = seed++ * 7919;
        int32_t of_prompt = before == NULL || n < (int32_t)before->prompt.len ? n : (int32_t)before->prompt.len;
        tokens_truncate(&turn.prompt, 0);
        if (n > 0) {
            tokens_append(&turn.prompt, before->prompt.v, (size_t)of_prompt);
            tokens_append(&turn.prompt, before->reply.v, (size_t)(n - of_prompt));
        }
        for (int32_t i = 0; i < more; i++)
            tokens_push(&turn.prompt, (int32_t)(next_random(&random) % (uint32_t)oracle->n_vocab));
    } while (!cold_reply(oracle, &turn.prompt, &turn.reply));
    return turn;
}

/* ---- Instances ---- */

enum layout { UNIFIED, SPLIT };

static inline void set(hearth_config *config, const char *key, const char *value)
{
    hearth_error error;
    char *path = mem_format("models.m.%s", key);
    if (hearth_config_set(config, path, value, &error) != HEARTH_OK) fail_msg("%s", error.message);
    free(path);
}

/* Two slots; further keys: "key", "value", …, NULL. */
static inline hearth *start(const struct oracle *oracle, const char *const *more)
{
    hearth_error error;
    hearth_config *config = hearth_config_new();
    set(config, "path", oracle->path);
    set(config, "threads", "1");
    set(config, "n_seq_max", "2");
    set(config, "context_window", "1024");
    for (; *more != NULL; more += 2) set(config, more[0], more[1]);
    hearth *instance = hearth_open(config, &error);
    if (instance == NULL || hearth_load(instance, NULL, NULL, &error) != HEARTH_OK) fail_msg("%s", error.message);
    hearth_config_free(config);
    return instance;
}

static inline hearth *start_layout(const struct oracle *oracle, enum layout layout)
{
    return start(oracle, (const char *const[]){"kv_unified", layout == UNIFIED ? "true" : "false", "cache_type_k",
                                               "f32", "cache_type_v", "f32", "flash_attention", "off", NULL});
}

/* ---- Callers ---- */

struct caller {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    hearth_request *request;
    struct tokens reply;
    bool ended, failed;
    hearth_result result;
    hearth_error error;
};

static inline void caller_event(void *ud, const hearth_event *event)
{
    struct caller *caller = ud;
    pthread_mutex_lock(&caller->mutex);
    if (event->type == HEARTH_EVENT_TEXT && event->token >= 0) tokens_push(&caller->reply, event->token);
    if (event->type == HEARTH_EVENT_DONE) caller->result = *event->result;
    if (event->type == HEARTH_EVENT_FAILED) caller->error = *event->error;
    caller->failed = event->type == HEARTH_EVENT_FAILED;
    caller->ended = event->type == HEARTH_EVENT_DONE || event->type == HEARTH_EVENT_FAILED;
    pthread_cond_broadcast(&caller->changed);
    pthread_mutex_unlock(&caller->mutex);
}

static inline void caller_submit(struct caller *caller, hearth *instance, const struct turn *turn, bool cache)
{
    *caller = (struct caller){.ended = false};
    pthread_mutex_init(&caller->mutex, NULL);
    pthread_cond_init(&caller->changed, NULL);
    hearth_params params = hearth_params_default();
    char *messages = NULL;
    if (turn->messages.len > 0) {
        messages = mem_format("%s]", turn->messages.v);
        params.messages_json = messages;
    } else {
        params.tokens = turn->prompt.v;
        params.n_tokens = turn->prompt.len;
    }
    params.temperature = 0;
    params.ignore_eos = true;
    params.max_tokens = REPLY;
    params.cache_prompt = cache;
    hearth_error error;
    caller->request = hearth_submit(instance, &params, caller_event, caller, &error);
    free(messages);
    if (caller->request == NULL) fail_msg("%s", error.message);
}

/* Waits for the end; what came is then in `reply` and `result`. */
static inline void caller_await(struct caller *caller)
{
    pthread_mutex_lock(&caller->mutex);
    while (!caller->ended) pthread_cond_wait(&caller->changed, &caller->mutex);
    pthread_mutex_unlock(&caller->mutex);
    hearth_request_release(caller->request);
    if (caller->failed) fail_msg("%s", caller->error.message);
}

static inline void caller_release(struct caller *caller)
{
    pthread_mutex_destroy(&caller->mutex);
    pthread_cond_destroy(&caller->changed);
    tokens_release(&caller->reply);
}

#endif
