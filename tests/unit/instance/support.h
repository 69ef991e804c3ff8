/* Shared by the tests of libhearth: an instance of the demo model, and a caller that collects the events of a request.
 * Uses hearth.h alone. */
#ifndef UNIT_INSTANCE_SUPPORT_H
#define UNIT_INSTANCE_SUPPORT_H

#include "fakes/sanitized.h"
#include "hearth.h"
#include "json_trees.h"

#include "base/buf.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_THREAD__
/* llama.cpp is built without the sanitizer, which therefore does not see the barriers between its workers. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:ggml_\nrace:llama_\nrace:set_input\nrace:llm_graph\nrace:tsan_new_delete";
}
#endif

/* ---- Instances ---- */

static inline char *source_path(const char *name)
{
    const char *source = getenv("HEARTH_SOURCE");
    if (source == NULL) fail_msg("HEARTH_SOURCE is not set: run the tests with ctest");
    return mem_format("%s/%s", source, name);
}

static inline void set(hearth_config *config, const char *key, const char *value)
{
    hearth_error error;
    if (hearth_config_set(config, key, value, &error) != HEARTH_OK) fail_msg("%s", error.message);
}

/* Declares the demo model under a name. One thread: workers that wait for each other are slow on a shared core.
 * cache_min_tokens is low, since prompts here are short and their prefixes are to be reused. */
static inline void add_demo(hearth_config *config, const char *name)
{
    set(config, "cache.tiers.disk.quota_mb", "0"); /* only tests of the store have one */
    static const char *const keys[][2] = {{"threads", "1"}, {"cache_min_tokens", "0"}};
    char *path = source_path("models/demo.gguf"), *key = mem_format("models.%s.path", name);
    set(config, key, path);
    free(path);
    free(key);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        key = mem_format("models.%s.%s", name, keys[i][0]);
        set(config, key, keys[i][1]);
        free(key);
    }
}

/* A configuration of the demo model with further keys of its own: "key", "value", …, NULL. */
static inline hearth_config *demo_config(const char *const *more)
{
    hearth_config *config = hearth_config_new();
    add_demo(config, "demo");
    for (; more != NULL && *more != NULL; more += 2) {
        char *key = mem_format("models.demo.%s", more[0]);
        set(config, key, more[1]);
        free(key);
    }
    return config;
}

#define DEMO(...) demo_config((const char *const[]){__VA_ARGS__, NULL})

/* Opens and loads; the configuration is freed. */
static inline hearth *start(hearth_config *config)
{
    hearth_error error;
    hearth *instance = hearth_open(config, &error);
    if (instance == NULL) fail_msg("%s", error.message);
    hearth_config_free(config);
    if (hearth_load(instance, NULL, NULL, &error) != HEARTH_OK) fail_msg("%s", error.message);
    return instance;
}

/* ---- Callers ---- */

struct caller {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    hearth_request *request;
    bool hold;     /* the event of the first token does not return before caller_let_go() */
    int cancel_at; /* cancels itself in the event of that token, counted from 1 */
    /* What was emitted: */
    int n_started, n_tokens, n_last;
    bool out_of_order;
    struct buf text;
    hearth_result first, result;
    bool failed;
    hearth_error error;
};

static inline void caller_text(struct caller *caller, const hearth_event *event)
{
    buf_append(&caller->text, event->text, event->text_len);
    if (event->token < 0) return;
    caller->n_tokens++;
    pthread_cond_broadcast(&caller->changed);
    if (caller->n_tokens == caller->cancel_at) hearth_cancel(caller->request);
    while (caller->hold) pthread_cond_wait(&caller->changed, &caller->mutex);
}

static inline void caller_event(void *ud, const hearth_event *event)
{
    struct caller *caller = ud;
    pthread_mutex_lock(&caller->mutex);
    if (caller->n_last > 0) caller->out_of_order = true;
    switch (event->type) {
    case HEARTH_EVENT_STARTED:
        if (caller->n_started++ > 0 || caller->text.len > 0) caller->out_of_order = true;
        caller->first = *event->result;
        break;
    case HEARTH_EVENT_PROMPT:
    case HEARTH_EVENT_PROGRESS:
    case HEARTH_EVENT_PROMPT_LOGPROBS:
        break;
    case HEARTH_EVENT_TEXT:
        if (caller->n_started == 0) caller->out_of_order = true;
        caller_text(caller, event);
        break;
    case HEARTH_EVENT_DONE:
        if (caller->n_started == 0) caller->out_of_order = true;
        caller->result = *event->result;
        caller->n_last++;
        break;
    case HEARTH_EVENT_FAILED:
        caller->failed = true;
        caller->error = *event->error;
        caller->n_last++;
        break;
    }
    pthread_cond_broadcast(&caller->changed);
    pthread_mutex_unlock(&caller->mutex);
}

static inline void caller_init(struct caller *caller)
{
    *caller = (struct caller){.n_started = 0};
    pthread_mutex_init(&caller->mutex, NULL);
    pthread_cond_init(&caller->changed, NULL);
}

static inline void caller_submit(struct caller *caller, hearth *instance, const hearth_params *params)
{
    hearth_error error;
    pthread_mutex_lock(&caller->mutex); /* the first event must find the request */
    caller->request = hearth_submit(instance, params, caller_event, caller, &error);
    pthread_mutex_unlock(&caller->mutex);
    if (caller->request == NULL) fail_msg("%s", error.message);
}

static inline void caller_await_tokens(struct caller *caller, int n)
{
    pthread_mutex_lock(&caller->mutex);
    while (caller->n_tokens < n && caller->n_last == 0) pthread_cond_wait(&caller->changed, &caller->mutex);
    pthread_mutex_unlock(&caller->mutex);
}

static inline void caller_let_go(struct caller *caller)
{
    pthread_mutex_lock(&caller->mutex);
    caller->hold = false;
    pthread_cond_broadcast(&caller->changed);
    pthread_mutex_unlock(&caller->mutex);
}

static inline void caller_await_end(struct caller *caller)
{
    pthread_mutex_lock(&caller->mutex);
    while (caller->n_last == 0) pthread_cond_wait(&caller->changed, &caller->mutex);
    pthread_mutex_unlock(&caller->mutex);
}

static inline bool caller_ended(struct caller *caller)
{
    pthread_mutex_lock(&caller->mutex);
    bool ended = caller->n_last > 0;
    pthread_mutex_unlock(&caller->mutex);
    return ended;
}

/* Releases the handles and closes the instance; only then is it certain that no more events are emitted. */
static inline void end(hearth *instance, struct caller *callers, size_t n)
{
    for (size_t i = 0; i < n; i++) hearth_request_release(callers[i].request);
    hearth_close(instance);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(callers[i].n_last, 1);
        assert_false(callers[i].out_of_order);
        buf_release(&callers[i].text);
        pthread_cond_destroy(&callers[i].changed);
        pthread_mutex_destroy(&callers[i].mutex);
    }
}

/* ---- Requests ---- */

#define USER(text)      "{\"role\":\"user\",\"content\":\"" text "\"}"
#define SYSTEM(text)    "{\"role\":\"system\",\"content\":\"" text "\"}"
#define ASSISTANT(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"

#define CODE_QUESTION   "[" SYSTEM("The secret code is QX7B2.") "," USER("What is the secret code?") "]"

static inline hearth_params greedy(int32_t max_tokens)
{
    hearth_params params = hearth_params_default();
    params.sampling.temperature = 0;
    params.max_tokens = max_tokens;
    return params;
}

static inline hearth_params chat_params(const char *messages)
{
    hearth_params params = greedy(HEARTH_UNSET);
    params.messages = json_of(messages);
    return params;
}

static inline hearth_params text_params(const char *text, int32_t max_tokens)
{
    hearth_params params = greedy(max_tokens);
    params.text = text;
    params.text_len = strlen(text);
    return params;
}

/* Submits and waits for the last event. */
static inline void run(struct caller *caller, hearth *instance, const hearth_params *params)
{
    caller_init(caller);
    caller_submit(caller, instance, params);
    caller_await_end(caller);
}

/* An endless reply that blocks its engine thread in the event of the first token until caller_let_go(). */
static inline void submit_holding(struct caller *caller, hearth *instance)
{
    hearth_params params = text_params("Once", HEARTH_UNSET);
    params.sampling.ignore_eos = true;
    caller_init(caller);
    caller->hold = true;
    caller_submit(caller, instance, &params);
    caller_await_tokens(caller, 1);
}

static inline void assert_says(const char *text, const char *expected)
{
    assert_non_null(text);
    if (strstr(text, expected) == NULL) fail_msg("'%s' does not say '%s'", text, expected);
}

#endif
