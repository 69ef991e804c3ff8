/* A request, from hearth_submit() to its last event: parameters are copied, the request waits for its place, a
 * preparing thread renders and tokenises it, the engine computes it.
 *
 * Two parties hold on to a request: the caller, until hearth_request_release(), and its job, until the last event. */
#include "lib/instance.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "chat/identity.h"
#include "lib/prepare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

struct hearth_request {
    struct job job;
    _Atomic int refs;
    struct model *model;
    struct clock *clock;
    char *messages, *kwargs, *text; /* the prompt, where it is not in job.prompt already */
    char *salt;
    struct key parent_key;
    bool has_parent_key;
    size_t text_len;
    char **stop;
    hearth_bias *bias;
};

hearth_params hearth_params_default(void)
{
    return (hearth_params){.max_tokens = HEARTH_UNSET,
                           .cache_prompt = true,
                           .temperature = NAN,
                           .top_p = NAN,
                           .min_p = NAN,
                           .repeat_penalty = NAN,
                           .frequency_penalty = NAN,
                           .presence_penalty = NAN,
                           .top_k = HEARTH_UNSET,
                           .repeat_last_n = HEARTH_UNSET,
                           .seed = -1};
}

/* ---- Life ---- */

static void unref(hearth_request *request)
{
    if (atomic_fetch_sub(&request->refs, 1) > 1) return;
    tokens_release(&request->job.prompt);
    store_hit_close(request->job.hit);
    free(request->salt);
    free(request->job.conversation.hashes);
    for (size_t i = 0; i < request->job.n_stop; i++) free(request->stop[i]);
    free(request->stop);
    free(request->bias);
    free(request->messages);
    free(request->kwargs);
    free(request->text);
    free(request);
}

static void job_ended(struct job *job)
{
    hearth_request *request = (hearth_request *)job;
    if (job->has_place) admission_leave(request->model->admission);
    unref(request);
}

/* ---- Parameters ---- */

static double given(double value, double otherwise)
{
    return isnan(value) ? otherwise : value;
}

static int32_t given_int(int32_t value, int64_t otherwise)
{
    return value == HEARTH_UNSET ? (int32_t)otherwise : value;
}

static uint32_t seed_of(int64_t seed)
{
    uint32_t random = 0;
    if (seed >= 0) return (uint32_t)seed;
    ssize_t got = getrandom(&random, sizeof random, 0);
    return got == sizeof random ? random : (uint32_t)clock_unix_ms();
}

static struct llm_sampling sampling_of(const hearth_params *p, const struct model *model)
{
    const struct config_model *c = model->config;
    return (struct llm_sampling){
        .temperature = given(p->temperature, c->sampling.temperature),
        .top_p = given(p->top_p, c->sampling.top_p),
        .min_p = given(p->min_p, c->sampling.min_p),
        .repeat_penalty = given(p->repeat_penalty, c->sampling.repeat_penalty),
        .frequency_penalty = given(p->frequency_penalty, c->sampling.frequency_penalty),
        .presence_penalty = given(p->presence_penalty, c->sampling.presence_penalty),
        .top_k = given_int(p->top_k, c->sampling.top_k),
        .repeat_last_n = given_int(p->repeat_last_n, c->sampling.repeat_last_n),
        .window = engine_window(model->engine),
        .seed = seed_of(p->seed),
        .ignore_eos = p->ignore_eos,
    };
}

static void copy_stop(hearth_request *request, const hearth_params *p)
{
    request->stop = mem_alloc((p->n_stop + 1) * sizeof *request->stop);
    for (size_t i = 0; i < p->n_stop; i++) request->stop[i] = mem_strdup(p->stop[i]);
    request->job.stop = (const char *const *)request->stop;
    request->job.n_stop = p->n_stop;
}

static void copy_bias(hearth_request *request, const hearth_params *p)
{
    if (p->n_logit_bias == 0) return;
    request->bias = mem_grow(NULL, p->n_logit_bias, sizeof *request->bias);
    memcpy(request->bias, p->logit_bias, p->n_logit_bias * sizeof *request->bias);
    request->job.sampling.bias = request->bias;
    request->job.sampling.n_bias = p->n_logit_bias;
}

static void set_id(struct job *job, const char *id)
{
    if (id == NULL) {
        uint64_t random = 0;
        ssize_t got = getrandom(&random, sizeof random, 0);
        (void)got; /* an id is a name for logs: even 0 would do */
        snprintf(job->id, sizeof job->id, "req-%016llx", (unsigned long long)random);
    } else {
        snprintf(job->id, sizeof job->id, "%s", id);
    }
}

/* Bytes of text that one token can stand for, generously. */
#define MAX_TOKEN_BYTES 512

/* A prompt that cannot fit by its size alone is refused before anybody keeps a copy of it. */
static int check_size(const hearth_params *p, const struct model *model, hearth_error *error)
{
    size_t window = (size_t)engine_window(model->engine);
    size_t text = p->messages_json != NULL ? strlen(p->messages_json) : p->text_len;
    if (p->n_tokens <= window && text / MAX_TOKEN_BYTES <= window) return HEARTH_OK;
    return error_at(error, HEARTH_TOO_LONG, p->messages_json != NULL ? "messages" : "prompt",
                    "the prompt (%zu %s) exceeds context window [%zu]", p->n_tokens > window ? p->n_tokens : text,
                    p->n_tokens > window ? "tokens" : "bytes", window);
}

static int check_params(const hearth_params *p, const struct model *model, hearth_error *error)
{
    int32_t n_vocab = llm_model_info(model->weights)->n_vocab;
    if ((p->messages_json != NULL) + (p->text != NULL) + (p->tokens != NULL) != 1)
        return error_at(error, HEARTH_INVALID, "prompt", "give exactly one of messages, prompt text and prompt tokens");
    for (size_t i = 0; p->tokens != NULL && i < p->n_tokens; i++)
        if (p->tokens[i] < 0 || p->tokens[i] >= n_vocab)
            return error_at(error, HEARTH_INVALID, "prompt", "token %d is not in the vocabulary (0 to %d)",
                            p->tokens[i], n_vocab - 1);
    for (size_t i = 0; i < p->n_logit_bias; i++)
        if (p->logit_bias[i].token < 0 || p->logit_bias[i].token >= n_vocab)
            return error_at(error, HEARTH_INVALID, "logit_bias", "token %d is not in the vocabulary (0 to %d)",
                            p->logit_bias[i].token, n_vocab - 1);
    uint8_t key[SHA256_BYTES];
    if (p->parent_key != NULL && !sha256_from_hex(p->parent_key, key))
        return error_at(error, HEARTH_INVALID, "parent_key", "parent_key is not a key of 64 hexadecimal digits");
    for (size_t i = 0; i < p->n_stop; i++)
        if (p->stop[i][0] == '\0') return error_at(error, HEARTH_INVALID, "stop", "a stop string is empty");
    if (p->max_tokens < 0 && p->max_tokens != HEARTH_UNSET)
        return error_at(error, HEARTH_INVALID, "max_tokens", "max_tokens is negative: leave it out for no limit");
    if (p->messages_json != NULL && model->template_ == NULL)
        return error_at(error, HEARTH_UNSUPPORTED, "messages",
                        "model '%s' has no chat template: use completions, or name one with models.%s.jinja_file",
                        model->config->name, model->config->name);
    return check_size(p, model, error);
}

static hearth_request *new_request(const hearth_params *p, struct model *model, struct clock *clock)
{
    hearth_request *request = mem_alloc(sizeof *request);
    request->refs = 2;
    request->model = model;
    request->clock = clock;
    request->messages = mem_strdup(p->messages_json);
    request->kwargs = mem_strdup(p->template_kwargs_json);
    if (p->text != NULL) request->text = mem_strndup(p->text, p->text_len);
    request->text_len = p->text_len;
    tokens_append(&request->job.prompt, p->tokens, p->n_tokens);
    request->job.sampling = sampling_of(p, model);
    request->job.max_tokens = p->max_tokens == HEARTH_UNSET ? INT32_MAX : p->max_tokens;
    request->job.cache_prompt = p->cache_prompt;
    request->job.scope = chat_scope(p->cache_salt);
    request->job.salt = request->salt = mem_strdup(p->cache_salt);
    request->has_parent_key = p->parent_key != NULL && sha256_from_hex(p->parent_key, request->parent_key.v);
    request->job.only_lookup = p->only_lookup;
    request->job.patient = p->patient;
    request->job.on_end = job_ended;
    request->job.submitted_at = clock_now(clock);
    set_id(&request->job, p->request_id);
    copy_stop(request, p);
    copy_bias(request, p);
    return request;
}

hearth_request *hearth_submit(hearth *instance, const hearth_params *params, hearth_event_fn on_event, void *ud,
                              hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    struct model *model = instance_find_model(instance, params->model, error);
    if (model == NULL || check_params(params, model, error) != HEARTH_OK) return NULL;
    hearth_request *request = new_request(params, model, instance->clock);
    request->job.on_event = on_event;
    request->job.ud = ud;
    if (!admission_enter(model->admission, &request->job)) {
        error_set(error, HEARTH_UNAVAILABLE, "submit: engine shutting down");
        unref(request);
        unref(request);
        return NULL;
    }
    return request;
}

void hearth_cancel(hearth_request *request)
{
    atomic_store(&request->job.cancelled, true);
    admission_poke(request->model->admission);
    engine_poke(request->model->engine);
}

void hearth_request_release(hearth_request *request)
{
    if (request != NULL) unref(request);
}

/* ---- Preparing ---- */

/* The day, as templates print it: were it the minute, every request would have a prefix of its own. */
static int64_t today(void)
{
    time_t now = time(NULL);
    return (int64_t)(now - now % 86400);
}

/* Messages without a system message get the one that all requests have in common, where that is configured. A template
 * that does not take them so gets them as they are. */
static bool assume_system_prompt(hearth_request *request, struct prepare_chat *chat)
{
    char *messages = system_prompt_assume(request->model->system_prompt, request->messages);
    if (messages == NULL) return false;
    chat->messages_json = messages;
    if (prepare_prompt(chat, &request->job.prompt, NULL) != HEARTH_OK) {
        chat->messages_json = request->messages;
        free(messages);
        return false;
    }
    free(request->messages);
    request->messages = messages;
    log_event(LOG_INFO, "spc", "cache hit (system prompt excluded on this request)", log_str("id", request->job.id));
    return true;
}

static int prompt_of_messages(hearth_request *request, struct prepare_chat *chat, hearth_error *error)
{
    /* Not from requests that share with nobody. */
    bool shares = request->job.cache_prompt && request->job.scope == 0;
    struct system_prompt *known = shares ? request->model->system_prompt : NULL;
    if (known != NULL && assume_system_prompt(request, chat)) return HEARTH_OK;
    int rc = prepare_prompt(chat, &request->job.prompt, error);
    if (rc == HEARTH_OK && known != NULL) system_prompt_learn(known, request->messages);
    return rc;
}

static int check_length(const hearth_request *request, hearth_error *error)
{
    const struct tokens *prompt = &request->job.prompt;
    int32_t window = engine_window(request->model->engine);
    if (prompt->len == 0) return error_at(error, HEARTH_INVALID, "prompt", "the prompt is empty");
    if (prompt->len >= (size_t)window)
        return error_at(error, HEARTH_TOO_LONG, request->messages != NULL ? "messages" : "prompt",
                        "input tokens [%zu] exceed context window [%d]: the window holds prompt and reply; shorten the "
                        "prompt or raise models.%s.context_window",
                        prompt->len, window, request->model->config->name);
    return HEARTH_OK;
}

/* What the configured cache will want to know. A dense model with whole conversations in its cells can be cut where
 * tokens differ, and needs no more than the end of what an edit of the last message leaves. */
static struct prepare_wishes wishes_of(const hearth_request *request)
{
    const struct config_model *config = request->model->config;
    if (!request->job.cache_prompt) return (struct prepare_wishes){.bounds = false};
    return (struct prepare_wishes){.system_end = config->system_prompt_cache,
                                   .stable_end = config->incremental_cache,
                                   .bounds = engine_wants_bounds(request->model->engine)};
}

static int prepare_chat(hearth_request *request, hearth_error *error)
{
    struct prepare_chat chat = {.weights = request->model->weights,
                                .template_ = request->model->template_,
                                .messages_json = request->messages,
                                .kwargs_json = request->kwargs,
                                .now = today()};
    struct prepare_wishes wishes = wishes_of(request);
    int rc = prompt_of_messages(request, &chat, error);
    if (rc == HEARTH_OK) rc = check_length(request, error);
    if (rc == HEARTH_OK) prepare_conversation(&chat, &wishes, &request->job);
    prepare_release(&chat);
    return rc;
}

static int prepare(hearth_request *request, hearth_error *error)
{
    if (request->messages != NULL) return prepare_chat(request, error);
    if (request->text != NULL)
        llm_tokenize(request->model->weights, request->text, request->text_len, true, true, &request->job.prompt);
    return check_length(request, error);
}

/* Asks the store for the prompt: hashing all of it is nothing for the engine's thread. */
static void look_up(hearth_request *request)
{
    struct model *model = request->model;
    struct job *job = &request->job;
    const struct store_user *user = engine_store_user(model->engine);
    if (user == NULL || !job->cache_prompt) return;
    int32_t n = model->config->incremental_cache ? (int32_t)job->prompt.len - 1 : job->conversation.system_end;
    struct store_query query = {.user = user,
                                .salt = job->salt,
                                .tokens = job->prompt.v,
                                .n = n < (int32_t)job->prompt.len ? n : (int32_t)job->prompt.len - 1,
                                .parent_key = request->has_parent_key ? &request->parent_key : NULL,
                                .deadline = clock_now(request->clock) + model->resume_wait_ns};
    job->hit = store_find(model->store, &query);
}

static void admit(hearth_request *request)
{
    hearth_error error;
    if (prepare(request, &error) != HEARTH_OK) {
        job_fail(&request->job, &error);
        return;
    }
    look_up(request);
    engine_submit(request->model->engine, &request->job);
}

void *request_prepare_loop(void *ud)
{
    struct model *model = ud;
    while (true) {
        struct job *job;
        switch (admission_next(model->admission, &job)) {
        case ADMISSION_GO:
            admit((hearth_request *)job);
            break;
        case ADMISSION_EXPIRED:
            job_fail_with(job, HEARTH_BUSY, "server busy processing other requests, try again shortly");
            break;
        case ADMISSION_CANCELLED:
            job_fail_with(job, HEARTH_CANCELLED, "request was cancelled");
            break;
        case ADMISSION_CLOSED:
            return NULL;
        }
    }
}
