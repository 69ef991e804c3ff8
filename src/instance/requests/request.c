/* A request for a reply, from hearth_submit() to its last event. Its parameters are checked and copied, it takes a
 * lease on its model and waits in the admission queue. A preparing thread prepares it (preparer.c), and the engine
 * computes it. And hearth_reader, which parses the text of a reply and outlives the request. */
#include "instance/requests/request.h"

#include "base/error.h"
#include "base/json_text.h"
#include "base/memory.h"
#include "base/os.h"
#include "instance/models/adapters.h"
#include "instance/models/model_names.h"
#include "instance/parameters/parameters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Life ---- */

static void unref_request(hearth_request *request)
{
    if (atomic_fetch_sub(&request->refs, 1) > 1) return;
    tokens_release(&request->job.prompt);
    tokens_release(&request->job.past);
    tokens_release(&request->shown);
    tokens_release(&request->sampled);
    store_hit_close(request->job.hit);
    llm_sampler_close(request->job.sampler);
    chat_format_unref(request->format);
    free(request->job.conversation.hashes);
    tokens_release(&request->kept.tokens);
    buf_release(&request->kept.text);
    free(request->kept.ends);
    lookup_release(&request->lookup);
    pthread_cond_destroy(&request->over);
    pthread_mutex_destroy(&request->mutex);
    prompt_media_close(request->media);
    json_decref(request->assumed);
    preset_template_unref(request->template_);
    hearth_release_preset(request->preset);
    free(request->left_out);
    free(request->unenforced);
    free(request->scales);
    free(request->stop);
    free(request->biases);
    params_free(request->params);
    lease_end(&request->lease);
    free(request);
}

/* Replies of more tokens are kept so far. */
#define KEPT_TOKENS (16 << 10)

static void forward_event(void *ud, const hearth_event *event)
{
    hearth_request *request = ud;
    bool last = event->type == HEARTH_EVENT_DONE || event->type == HEARTH_EVENT_FAILED;
    if (request->place.n_bytes > 0) {
        /* Keeps the sampled tokens for the next turn, those of a request that was cancelled, too. */
        if (event->type == HEARTH_EVENT_TEXT && event->token >= 0 && request->sampled.len < KEPT_TOKENS)
            tokens_push(&request->sampled, event->token);
        if (last) reply_book_add(request->model->reply_book, &request->place, &request->sampled);
        if (last) tokens_release(&request->sampled);
    }
    if (last) prompt_media_give_back(request->media);
    if (last) lease_drop_party(&request->lease);
    request->on_event(request->ud, event);
    if (last) {
        /* Wakes hearth_wait(). Its caller may release the handle at once: the job has a reference of its own. */
        pthread_mutex_lock(&request->mutex);
        request->ended = true;
        if (event->error != NULL) request->outcome = *event->error;
        pthread_cond_broadcast(&request->over);
        pthread_mutex_unlock(&request->mutex);
    }
}

static void job_ended(struct job *job)
{
    hearth_request *request = (hearth_request *)job;
    if (job->admitted) admission_leave(request->model->admission, job);
    unref_request(request);
}

/* ---- Parameters ---- */

static void set_id(struct job *job, const char *id)
{
    if (id == NULL) {
        uint64_t random = 0;
        os_random(&random, sizeof random);
        snprintf(job->id, sizeof job->id, "req-%016llx", (unsigned long long)random);
    } else {
        snprintf(job->id, sizeof job->id, "%s", id);
    }
}

/* Bytes of a request's texts. */
struct text_size {
    const char *field; /* the field of the longest text */
    size_t longest, all;
};

static void add_size(struct text_size *size, const char *field, size_t len)
{
    size->all += len;
    if (len <= size->longest) return;
    size->field = field;
    size->longest = len;
}

static void add_text_size(struct text_size *size, const char *field, const char *text)
{
    if (text != NULL) add_size(size, field, strlen(text));
}

static void add_json_size(struct text_size *size, const char *field, const hearth_json *json)
{
    if (json != NULL) add_size(size, field, json_text_bytes(json_text_tree(json)));
}

static struct text_size size_of_texts(const hearth_params *p)
{
    struct text_size size = {.field = "prompt"};
    add_json_size(&size, "messages", p->messages);
    add_json_size(&size, "tools", p->tools);
    add_json_size(&size, "chat_template_kwargs", p->template_kwargs);
    add_json_size(&size, "json_schema", p->json_schema);
    add_text_size(&size, "grammar", p->grammar);
    add_text_size(&size, "reasoning_budget_message", p->thinking_end);
    add_size(&size, "prompt", p->text_len);
    add_size(&size, "suffix", p->suffix_len);
    add_size(&size, "prompt", p->typed_len);
    for (size_t i = 0; i < p->n_snippets; i++) add_text_size(&size, "input_extra", p->snippets[i].text);
    for (size_t i = 0; p->parts != NULL && i < p->n_parts; i++) add_size(&size, "prompt", p->parts[i].len);
    return size;
}

int request_refuse_length(const struct model_entry *entry, const char *field, const struct request_length *length,
                          hearth_error *error)
{
    bool is_all = length->window >= (size_t)entry->facts.info.n_ctx_train;
    char *remedy = is_all ? mem_format("the model was trained for no more")
                          : mem_format("or raise models.%s.context_window", entry->config->name);
    char *bytes = length->bytes == 0 ? mem_strdup("") : mem_format(" or more, in %zu bytes", length->bytes);
    error_at(error, HEARTH_TOO_LONG, field,
             "request (%zu tokens%s) exceeds the available context size (%zu tokens). This model's maximum context "
             "length is %zu tokens, for prompt and reply: shorten the prompt%s %s",
             length->n_tokens, bytes, length->window, length->window, is_all ? ";" : "", remedy);
    error_note_length(error, length->n_tokens, length->window);
    free(bytes);
    free(remedy);
    return HEARTH_TOO_LONG;
}

/* Refuses texts and token lists that are too large before anything is computed from them. */
static int check_size(const hearth_params *p, const struct model_entry *entry, hearth_error *error)
{
    size_t window = (size_t)entry->facts.info.context_window, most = (size_t)entry->config->max_prompt_bytes;
    struct text_size size = size_of_texts(p);
    if (size.all > most)
        return error_at(error, HEARTH_TOO_LONG, size.field,
                        "'%s' has %zu bytes of the request's %zu: its text may have up to %zu "
                        "(models.%s.max_prompt_bytes)",
                        size.field, size.longest, size.all, most, entry->config->name);
    if (p->only_prompt && p->n_tokens + p->n_parts > HEARTH_PROMPT_TOLD)
        return error_at(error, HEARTH_TOO_LONG, "prompt", "the prompt has more than %d tokens: ask for it in parts",
                        HEARTH_PROMPT_TOLD);
    if (p->only_prompt || p->n_tokens <= window) return HEARTH_OK;
    return request_refuse_length(entry, "prompt", &(struct request_length){.n_tokens = p->n_tokens, .window = window},
                                 error);
}

static int check_token(int32_t token, int32_t n_vocab, hearth_error *error)
{
    if (token >= 0 && token < n_vocab) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, "prompt", "token %d is not in the vocabulary (0 to %d)", token, n_vocab - 1);
}

static int check_params(const hearth_params *p, const struct model_entry *entry, hearth_error *error)
{
    int32_t n_vocab = entry->facts.info.n_vocab;
    if ((p->messages != NULL) + (p->text != NULL) + (p->tokens != NULL) + (p->parts != NULL) != 1)
        return error_at(error, HEARTH_INVALID, "prompt", "give exactly one of messages, prompt text and prompt tokens");
    for (size_t i = 0; p->tokens != NULL && i < p->n_tokens; i++)
        if (check_token(p->tokens[i], n_vocab, error) != HEARTH_OK) return (int)error->code;
    for (size_t i = 0; p->parts != NULL && i < p->n_parts; i++)
        if (p->parts[i].text == NULL && check_token(p->parts[i].token, n_vocab, error) != HEARTH_OK)
            return (int)error->code;
    uint8_t key[SHA256_BYTES];
    if (p->parent_key != NULL && !sha256_from_hex(p->parent_key, key))
        return error_at(error, HEARTH_INVALID, "parent_key", "parent_key is not a key of 64 hexadecimal digits");
    for (size_t i = 0; i < p->n_stop; i++)
        if (p->stop[i][0] == '\0') return error_at(error, HEARTH_INVALID, "stop", "a stop string is empty");
    if (p->max_tokens < 0 && p->max_tokens != HEARTH_UNSET)
        return error_at(error, HEARTH_INVALID, "max_tokens", "max_tokens is negative: leave it out for no limit");
    int rc = sampling_check(&p->sampling, n_vocab, error);
    return rc == HEARTH_OK ? check_size(p, entry, error) : rc;
}

/* ---- Submitting ---- */

/* The lease is granted: sets the scope and identity of the request's KV states and puts the job into the admission
 * queue. They hold until its end: its cells are computed, cached and looked up under the scales that it was submitted
 * with, even where hearth_lora_set() changes the defaults. */
static int enter_admission(hearth_request *request, hearth_error *error)
{
    struct model *model = atomic_load(&request->lease.model);
    struct job *job = &request->job;
    const struct store_user *user = engine_store_user(model->engine);
    const char *salt = request->params->cache_salt;
    request->model = model;
    job->scales = request->scales;
    job->scope = adapters_scope(model->adapters, salt, request->scales);
    if (user != NULL) job->identity = adapters_identity(model->adapters, &user->identity, salt, request->scales);
    if (admission_enter(model->admission, job)) return HEARTH_OK;
    return error_set(error, HEARTH_UNAVAILABLE, "submit: engine shutting down");
}

static void on_model_ready(void *ud, const hearth_error *error)
{
    hearth_request *request = ud;
    hearth_error own;
    if (error == NULL && enter_admission(request, &own) != HEARTH_OK) error = &own;
    if (error != NULL) job_fail(&request->job, error);
}

/* Takes the preset over. */
static hearth_request *new_request(const hearth *instance, const hearth_params *p, const hearth_preset *preset,
                                   struct model_entry *entry)
{
    struct clock *clock = instance->clock;
    hearth_request *request = mem_alloc(sizeof *request);
    struct job *job = &request->job;
    request->refs = 2;
    pthread_mutex_init(&request->mutex, NULL);
    pthread_cond_init(&request->over, NULL);
    request->clock = clock;
    request->params = params_keep(p);
    tokens_append(&job->prompt, p->tokens, p->n_tokens);
    job->ignore_eos = p->sampling.ignore_eos;
    job->top_logprobs = p->top_logprobs;
    job->prompt_logprobs = p->only_lookup ? -1 : p->prompt_logprobs;
    job->post_sampling_probs = p->post_sampling_probs;
    job->progress = p->progress;
    job->max_ns = clock_from_ms(p->max_ms);
    job->cache_prompt = p->cache_prompt;
    job->draft_max = p->draft_max == HEARTH_UNSET ? -1 : p->draft_max;
    job->only_lookup = p->only_lookup;
    job->on_looked_up = lookup_answered;
    job->only_prompt = p->only_prompt;
    job->patient = p->patient;
    job->on_event = forward_event;
    job->ud = request;
    job->on_end = job_ended;
    job->submitted_at = clock_now(clock);
    set_id(job, p->request_id);
    /* The preset's other values are taken while the request is prepared. */
    request->preset = preset;
    int32_t most = p->max_tokens;
    bool is_given = most != HEARTH_UNSET || (p->given & HEARTH_GIVEN_MAX_TOKENS) != 0;
    if (!is_given && preset != NULL) most = preset->max_tokens;
    job->max_tokens = most == HEARTH_UNSET ? INT32_MAX : most;
    /* A patient request is a further choice beside another one, whose deadline holds for both. */
    int64_t timeout = clock_from_ms((int64_t)(entry->config->admission_timeout * 1e3));
    request->lease.entry = entry;
    request->lease.deadline = job->patient ? CLOCK_NEVER : job->submitted_at + timeout;
    request->lease.on_ready = on_model_ready;
    request->lease.ud = request;
    return request;
}

static int submit_request(hearth_request *request, hearth_error *error)
{
    const hearth_params *p = request->params;
    int rc = adapters_choose(request->lease.entry->adapters, p->lora, p->n_lora, &request->scales, error);
    if (rc != HEARTH_OK) return rc;
    switch (lease_take(&request->lease, error)) {
    case LEASE_READY:
        return enter_admission(request, error);
    case LEASE_WAITS:
        return HEARTH_OK;
    default:
        return (int)error->code;
    }
}

hearth_request *hearth_submit(hearth *instance, const hearth_params *params, hearth_event_fn on_event, void *ud,
                              hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    const hearth_preset *preset = params->model == NULL ? NULL : hearth_find_preset(instance, params->model);
    if (preset != NULL && !instance_knows_model(instance, preset->model)) {
        hearth_release_preset(preset);
        preset = NULL;
    }
    const char *model = preset == NULL ? params->model : preset->model;
    struct model_entry *entry = instance_pick_model(instance, model, HEARTH_MODEL_CHAT, error);
    if (entry == NULL || check_params(params, entry, error) != HEARTH_OK) {
        hearth_release_preset(preset);
        return NULL;
    }
    hearth_request *request = new_request(instance, params, preset, entry);
    request->on_event = on_event;
    request->ud = ud;
    if (submit_request(request, error) == HEARTH_OK) return request;
    request->refs = 1; /* the job never started */
    unref_request(request);
    return NULL;
}

void hearth_cancel(hearth_request *request)
{
    atomic_store(&request->job.cancelled, true);
    struct model *model = atomic_load(&request->lease.model);
    if (model == NULL) {
        lease_cancel(&request->lease);
        return;
    }
    admission_cancel(model->admission, &request->job);
    engine_poke(model->engine);
}

int hearth_wait(hearth_request *request, hearth_error *error)
{
    pthread_mutex_lock(&request->mutex);
    while (!request->ended) pthread_cond_wait(&request->over, &request->mutex);
    int code = (int)request->outcome.code;
    if (error != NULL && code != HEARTH_OK) *error = request->outcome;
    pthread_mutex_unlock(&request->mutex);
    return code;
}

const hearth_sampling *hearth_request_sampling(const hearth_request *request)
{
    return &request->sampling;
}

const char *hearth_request_left_out(const hearth_request *request)
{
    return request->left_out;
}

const char *hearth_request_unenforced(const hearth_request *request)
{
    return request->unenforced;
}

hearth_prompt hearth_request_prompt(const hearth_request *request)
{
    const struct kept_prompt *kept = &request->kept;
    return (hearth_prompt){.tokens = kept->tokens.v,
                           .n_tokens = kept->tokens.len,
                           .text = kept->text.v,
                           .len = kept->text.len,
                           .ends = kept->ends};
}

void hearth_request_release(hearth_request *request)
{
    if (request == NULL) return;
    lease_drop_party(&request->lease);
    unref_request(request);
}

/* ---- Replies ---- */

/* A hearth_reader is a chat_reader by the format that was chosen when the prompt was rendered, to which it has a
 * reference. */
hearth_reader *hearth_reader_open(hearth_request *request)
{
    return request->format == NULL ? NULL : (hearth_reader *)chat_reader_open(request->format);
}

void hearth_reader_close(hearth_reader *reader)
{
    chat_reader_close((struct chat_reader *)reader);
}

void hearth_reader_add(hearth_reader *reader, const char *text, size_t len, hearth_delta_fn each, void *ud)
{
    chat_reader_add((struct chat_reader *)reader, text, len, each, ud);
}

void hearth_reader_end(hearth_reader *reader, hearth_delta_fn each, void *ud)
{
    chat_reader_end((struct chat_reader *)reader, each, ud);
}

bool hearth_reader_is_whole(const hearth_reader *reader)
{
    return chat_reader_is_whole((const struct chat_reader *)reader);
}
