/* The fake libhearth: see fake_hearth.h. One mutex guards everything; events are emitted without it, one at a time for
 * each request (its mutex `emitting`). */
#include "fakes/fake_hearth.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"
#include "instance/parameters/parameters.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_REQUESTS   4096
#define MAX_SETTINGS   16
#define MAX_EMBEDDINGS 64

struct hearth {
    int unused;
};

struct hearth_request {
    hearth_params *params; /* a copy */
    hearth_event_fn on_event;
    void *ud;
    pthread_mutex_t emitting;
    bool ended, cancelled, released;
    struct {
        int32_t tokens[64];
        size_t ends[64], n;
        struct buf text;
    } prompt; /* with keep_prompt */
};

/* Input i gets the vector {i + 1, 0.5}, of 3 tokens; document i a score of FAKE_SCORES. */
struct hearth_embedding {
    hearth_embed_params params; /* its numbers; model and query are only compared with NULL */
    hearth_embedded_fn on_end;
    void *ud;
    bool begun, ended, cancelled, released;
    float (*numbers)[2];
    hearth_vector *vectors;
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    size_t n_embeddings;
    hearth_embedding *embeddings[MAX_EMBEDDINGS];
    bool hold_embeddings;
    hearth instance;
    bool drained, log_reopened, hold_load, stop, sounds;
    float progress; /* < 0: none to report */
    pthread_t player;
    size_t n, n_played, n_unloads;
    hearth_request *requests[MAX_REQUESTS];
    const struct fake_script *script;
    hearth_error load_error, submit_error;
    size_t submit_error_nth;
    size_t n_settings;
    const char *keys[MAX_SETTINGS], *values[MAX_SETTINGS];
    size_t n_reports, n_residents, n_stored;
    int32_t resident_tokens, n_predicted;
    bool restless, hold_orders;
    struct {
        hearth_ordered_fn on_end;
        void *ud;
    } held_order;
    char last_order[64];
    struct {
        const hearth_block_event *v;
        size_t n, taken, resends;
        bool fails;
        void (*changed)(void *ud);
        void *ud;
    } blocks;
} fake = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void lock(void)
{
    pthread_mutex_lock(&fake.mutex);
}

static void unlock(void)
{
    pthread_mutex_unlock(&fake.mutex);
}

static void change(void)
{
    pthread_cond_broadcast(&fake.changed);
    unlock();
}

static void wait_for_change(void)
{
    pthread_cond_wait(&fake.changed, &fake.mutex);
}

/* ---- Events ---- */

static bool emit(hearth_request *request, const hearth_event *event)
{
    bool last = event->type == HEARTH_EVENT_DONE || event->type == HEARTH_EVENT_FAILED;
    pthread_mutex_lock(&request->emitting);
    bool emitted = !request->ended;
    if (emitted) request->on_event(request->ud, event);
    if (last && emitted) {
        lock();
        request->ended = true;
        change();
    }
    pthread_mutex_unlock(&request->emitting);
    return emitted;
}

static bool emit_failed(hearth_request *request, hearth_code code, const char *message)
{
    hearth_error error;
    error_set(&error, code, "%s", message);
    hearth_event event = {.type = HEARTH_EVENT_FAILED, .error = &error};
    return emit(request, &event);
}

static bool emit_text(hearth_request *request, const char *text, size_t len)
{
    hearth_logprob logprob = {.token = 1, .log = -0.5, .bytes = text, .n_bytes = len};
    const hearth_logprob top[] = {/* and two parts of characters */
                                  logprob,
                                  {.token = 2, .log = -1.5F, .bytes = "\xc3", .n_bytes = 1},
                                  {.token = 3, .log = -2.5F, .bytes = "\xe2", .n_bytes = 1}};
    int32_t wanted = request->params->top_logprobs;
    hearth_logprobs logprobs = {.chosen = logprob,
                                .top = top,
                                .n_top = wanted > 3   ? 3
                                         : wanted > 0 ? (size_t)wanted
                                                      : 0};
    hearth_event event = {.type = HEARTH_EVENT_TEXT, .text = text, .text_len = len, .token = 1};
    if (request->params->top_logprobs >= 0) event.logprobs = &logprobs;
    return emit(request, &event);
}

/* The prompt of a request with only_prompt: the script's texts, and as many tokens, 1, 2, 3 … */
static void emit_prompt(hearth_request *request, const struct fake_script *script)
{
    int32_t *tokens = request->prompt.tokens;
    struct buf text = {0};
    for (size_t i = 0; i < script->n_texts; i++) {
        buf_puts(&text, script->texts[i]);
        tokens[i] = (int32_t)i + 1;
        request->prompt.ends[i] = text.len;
    }
    request->prompt.n = script->n_texts;
    buf_append(&request->prompt.text, text.v, text.len);
    hearth_event event = {.type = HEARTH_EVENT_PROMPT,
                          .text = text.v,
                          .text_len = text.len,
                          .tokens = tokens,
                          .n_tokens = script->n_texts,
                          .token = -1};
    emit(request, &event);
    hearth_result result = {.slot = -1, .n_prompt = (int32_t)script->n_texts};
    emit(request, &(hearth_event){.type = HEARTH_EVENT_DONE, .result = &result});
    buf_release(&text);
}

static void play(hearth_request *request, const struct fake_script *script)
{
    hearth_event started = {.type = HEARTH_EVENT_STARTED, .result = &script->result};
    hearth_event done = {.type = HEARTH_EVENT_DONE, .result = &script->result};
    if (script->fail != HEARTH_OK && script->fail_before_started) {
        emit_failed(request, script->fail, script->message);
        return;
    }
    if (request->params->only_prompt) {
        emit_prompt(request, script);
        return;
    }
    if (!request->params->only_lookup) emit(request, &started);
    for (size_t i = 0; i < script->n_texts; i++) emit_text(request, script->texts[i], strlen(script->texts[i]));
    if (script->fail != HEARTH_OK)
        emit_failed(request, script->fail, script->message);
    else
        emit(request, &done);
}

static hearth_request *next_cancelled(void)
{
    for (size_t i = 0; i < fake.n; i++)
        if (fake.requests[i]->cancelled && !fake.requests[i]->ended) return fake.requests[i];
    return NULL;
}

static hearth_embedding *next_embedding(void)
{
    for (size_t i = 0; i < fake.n_embeddings; i++) {
        hearth_embedding *embedding = fake.embeddings[i];
        if (!embedding->begun && (embedding->cancelled || !fake.hold_embeddings)) return embedding;
    }
    return NULL;
}

static void end_embedding(hearth_embedding *embedding)
{
    static const float scores[] = FAKE_SCORES;
    hearth_error error;
    const hearth_embed_params *p = &embedding->params;
    hearth_embedded result = {.model = "demo", .inputs = embedding->vectors, .n_inputs = p->n_inputs};
    for (size_t i = 0; i < p->n_inputs; i++) {
        bool rank = p->query != NULL;
        embedding->numbers[i][0] = rank ? scores[i % (sizeof scores / sizeof *scores)] : (float)i + 1;
        embedding->numbers[i][1] = 0.5f;
        embedding->vectors[i] =
            (hearth_vector){.v = embedding->numbers[i], .width = rank ? 1 : 2, .n_vectors = 1, .n_tokens = 3};
        result.n_tokens += 3;
    }
    if (embedding->cancelled) error_set(&error, HEARTH_CANCELLED, "cancelled");
    embedding->on_end(embedding->ud, embedding->cancelled ? NULL : &result, embedding->cancelled ? &error : NULL);
}

/* The fake's thread. */
static void *player(void *ud)
{
    (void)ud;
    lock();
    for (;;) {
        hearth_request *cancelled = next_cancelled();
        hearth_embedding *embedding = next_embedding();
        if (embedding != NULL) {
            embedding->begun = true;
            unlock();
            end_embedding(embedding);
            lock();
            embedding->ended = true;
            pthread_cond_broadcast(&fake.changed);
        } else if (cancelled != NULL) {
            unlock();
            emit_failed(cancelled, HEARTH_CANCELLED, "cancelled");
            lock();
        } else if (fake.script != NULL && fake.n_played < fake.n) {
            hearth_request *request = fake.requests[fake.n_played++];
            const struct fake_script *script = fake.script;
            unlock();
            play(request, script);
            lock();
        } else if (fake.stop) {
            break;
        } else {
            wait_for_change();
        }
    }
    unlock();
    return NULL;
}

/* ---- Accessors of a request ---- */

const hearth_sampling *hearth_request_sampling(const hearth_request *request)
{
    return &request->params->sampling;
}

const char *hearth_request_left_out(const hearth_request *request)
{
    (void)request;
    return NULL;
}

const char *hearth_request_unenforced(const hearth_request *request)
{
    (void)request;
    return NULL;
}

/* The prompt of a request with a reply: the text that was given, without tokens. */
hearth_prompt hearth_request_prompt(const hearth_request *request)
{
    const hearth_params *p = request->params;
    if (!p->keep_prompt) return (hearth_prompt){0};
    if (!p->only_prompt) return (hearth_prompt){.text = p->text, .len = p->text_len};
    return (hearth_prompt){.tokens = request->prompt.tokens,
                           .n_tokens = request->prompt.n,
                           .text = request->prompt.text.v,
                           .len = request->prompt.text.len,
                           .ends = request->prompt.ends};
}

/* The divergence of a lookup whose prompt is "diverges". */
hearth_divergence hearth_request_divergence(const hearth_request *request)
{
    const hearth_params *p = request->params;
    if (p->text == NULL || p->text_len != 8 || memcmp(p->text, "diverges", 8) != 0) return (hearth_divergence){0};
    return (hearth_divergence){.position = 7,
                               .where = "disk",
                               .limit = "checkpoints",
                               .common = "It is",
                               .prompt = " \"Monday\"",
                               .nearest = "",
                               .message = 2,
                               .role = "user"};
}

/* ---- Readers: text that begins with a tilde is not content ---- */

struct hearth_reader {
    size_t n_calls;
    bool cut; /* arguments that end with a tilde are those of half a call */
};

hearth_reader *hearth_reader_open(hearth_request *request)
{
    return request->params->messages == NULL ? NULL : mem_alloc(sizeof(struct hearth_reader));
}

void hearth_reader_close(hearth_reader *reader)
{
    free(reader);
}

void hearth_reader_add(hearth_reader *reader, const char *text, size_t len, hearth_delta_fn each, void *ud)
{
    char kind = len >= 2 && text[0] == '~' ? text[1] : '\0';
    size_t skip = kind == '\0' ? 0 : 2;
    hearth_delta delta = {.type = HEARTH_DELTA_CONTENT, .text = text + skip, .len = len - skip};
    char id[32], *name = mem_strndup(delta.text, delta.len);
    if (kind == 'r') delta.type = HEARTH_DELTA_REASONING;
    if (kind == 'a') {
        reader->cut = delta.len > 0 && delta.text[delta.len - 1] == '~';
        if (reader->cut) delta.len--;
        delta.type = HEARTH_DELTA_ARGUMENTS;
        delta.index = reader->n_calls - 1;
    }
    if (kind == 'c') {
        snprintf(id, sizeof id, "call_%zu", reader->n_calls);
        delta = (hearth_delta){.type = HEARTH_DELTA_CALL, .index = reader->n_calls++, .id = id, .name = name};
    }
    if (kind == 'c' || delta.len > 0) each(ud, &delta);
    free(name);
}

void hearth_reader_end(hearth_reader *reader, hearth_delta_fn each, void *ud)
{
    (void)reader, (void)each, (void)ud;
}

bool hearth_reader_is_whole(const hearth_reader *reader)
{
    return !reader->cut;
}

/* ---- For tests ---- */

static void free_request(hearth_request *request)
{
    params_free(request->params);
    buf_release(&request->prompt.text);
    pthread_mutex_destroy(&request->emitting);
    free(request);
}

static void free_embedding(hearth_embedding *embedding)
{
    free(embedding->numbers);
    free(embedding->vectors);
    free(embedding);
}

void fake_reset(void)
{
    lock();
    for (size_t i = 0; i < fake.n; i++) free_request(fake.requests[i]);
    for (size_t i = 0; i < fake.n_embeddings; i++) free_embedding(fake.embeddings[i]);
    fake.n_embeddings = 0;
    fake.hold_embeddings = false;
    fake.n = fake.n_played = fake.n_settings = fake.n_unloads = fake.n_reports = 0;
    fake.n_residents = 1;
    fake.n_stored = 0;
    fake.resident_tokens = 40;
    fake.n_predicted = 3;
    fake.restless = fake.hold_orders = false;
    memset(&fake.blocks, 0, sizeof fake.blocks);
    fake.last_order[0] = '\0';
    fake.script = NULL;
    fake.hold_load = fake.drained = fake.log_reopened = fake.stop = fake.sounds = false;
    fake.progress = -1;
    fake.load_error = fake.submit_error = (hearth_error){0};
    unlock();
}

void fake_take_sounds(bool take)
{
    fake.sounds = take;
}

void fake_set(const char *key, const char *value)
{
    lock();
    fake.keys[fake.n_settings] = key;
    fake.values[fake.n_settings++] = value;
    unlock();
}

void fake_hold_load(bool hold)
{
    lock();
    fake.hold_load = hold;
    change();
}

void fake_load_progress(float fraction)
{
    lock();
    fake.progress = fraction;
    pthread_cond_broadcast(&fake.changed);
    while (fake.progress >= 0) wait_for_change();
    unlock();
}

void fake_fail_load(hearth_code code, const char *message)
{
    error_set(&fake.load_error, code, "%s", message);
}

void fake_fail_submit(size_t nth, hearth_code code, const char *param, const char *message)
{
    lock();
    fake.submit_error_nth = nth;
    error_at(&fake.submit_error, code, param, "%s", message);
    unlock();
}

void fake_wait_log_reopened(void)
{
    lock();
    while (!fake.log_reopened) wait_for_change();
    unlock();
}

void fake_wait_drained(void)
{
    lock();
    while (!fake.drained) wait_for_change();
    unlock();
}

void fake_play(const struct fake_script *script)
{
    lock();
    fake.script = script;
    fake.n_played = fake.n;
    change();
}

static hearth_request *wait_submitted(size_t i)
{
    lock();
    while (fake.n <= i) wait_for_change();
    hearth_request *request = fake.requests[i];
    unlock();
    return request;
}

const hearth_params *fake_wait(size_t i)
{
    return wait_submitted(i)->params;
}

size_t fake_submitted(void)
{
    lock();
    size_t n = fake.n;
    unlock();
    return n;
}

void fake_wait_ended(size_t i)
{
    hearth_request *request = wait_submitted(i);
    lock();
    while (!request->ended) wait_for_change();
    unlock();
}

bool fake_cancelled(size_t i)
{
    hearth_request *request = wait_submitted(i);
    lock();
    bool cancelled = request->cancelled;
    unlock();
    return cancelled;
}

void fake_wait_cancelled(size_t i)
{
    hearth_request *request = wait_submitted(i);
    lock();
    while (!request->cancelled) wait_for_change();
    unlock();
}

size_t fake_unreleased(void)
{
    lock();
    size_t n = 0;
    for (size_t i = 0; i < fake.n; i++) n += !fake.requests[i]->released;
    for (size_t i = 0; i < fake.n_embeddings; i++) n += !fake.embeddings[i]->released;
    unlock();
    return n;
}

void fake_hold_embeddings(bool hold)
{
    lock();
    fake.hold_embeddings = hold;
    change();
}

const hearth_embed_params *fake_wait_embedding(size_t i)
{
    lock();
    while (fake.n_embeddings <= i) wait_for_change();
    const hearth_embed_params *params = &fake.embeddings[i]->params;
    unlock();
    return params;
}

void fake_wait_embedding_cancelled(size_t i)
{
    lock();
    while (fake.n_embeddings <= i || !fake.embeddings[i]->cancelled) wait_for_change();
    unlock();
}

bool fake_started_with(size_t i, const hearth_result *result)
{
    hearth_event event = {.type = HEARTH_EVENT_STARTED, .result = result};
    return emit(wait_submitted(i), &event);
}

bool fake_started(size_t i)
{
    hearth_result result = {0};
    return fake_started_with(i, &result);
}

bool fake_text(size_t i, const char *text)
{
    return emit_text(wait_submitted(i), text, strlen(text));
}

bool fake_text_bytes(size_t i, const char *text, size_t len)
{
    return emit_text(wait_submitted(i), text, len);
}

bool fake_done(size_t i, const hearth_result *result)
{
    hearth_event event = {.type = HEARTH_EVENT_DONE, .result = result};
    return emit(wait_submitted(i), &event);
}

bool fake_failed(size_t i, hearth_code code, const char *message)
{
    return emit_failed(wait_submitted(i), code, message);
}

/* ---- hearth.h ---- */

const char *hearth_config_get(const hearth_config *config, const char *key)
{
    (void)config;
    const char *value = NULL;
    lock();
    for (size_t i = 0; i < fake.n_settings; i++)
        if (strcmp(fake.keys[i], key) == 0) value = fake.values[i];
    unlock();
    return value;
}

/* A configuration of one model, which is never read. */
hearth_config *hearth_config_new(void)
{
    return NULL;
}

void hearth_config_free(hearth_config *config)
{
    (void)config;
}

int hearth_config_set(hearth_config *config, const char *key, const char *value, hearth_error *error)
{
    (void)config, (void)key, (void)value, (void)error;
    return HEARTH_OK;
}

const char *hearth_config_model(const hearth_config *config, size_t index)
{
    (void)config;
    return index == 0 ? "demo" : NULL;
}

/* Every file is a model. */
int hearth_model_check(const char *path, hearth_error *error)
{
    (void)path, (void)error;
    return HEARTH_OK;
}

/* Nothing is chosen for any, and all fit. */
int hearth_fit_on(const hearth_config *config, const char *model, const hearth_fit_machine *machine, hearth_fit *fit,
                  hearth_error *error)
{
    (void)config, (void)model, (void)machine, (void)error;
    *fit = (hearth_fit){.type = HEARTH_MODEL_EMBEDDING, .recommended = -1};
    return HEARTH_OK;
}

int hearth_add_model(hearth *instance, const hearth_config *config, const char *model, hearth_error *error)
{
    (void)instance, (void)config, (void)model, (void)error;
    return HEARTH_OK;
}

int hearth_remove_model(hearth *instance, const char *model, hearth_error *error)
{
    (void)instance, (void)model, (void)error;
    return HEARTH_OK;
}

int hearth_keep_model(hearth *instance, const char *model, double seconds, hearth_error *error)
{
    (void)instance, (void)model, (void)seconds, (void)error;
    return HEARTH_OK;
}

int hearth_set_preset(hearth *instance, const hearth_preset *preset, hearth_error *error)
{
    (void)instance, (void)preset, (void)error;
    return HEARTH_OK;
}

int hearth_remove_preset(hearth *instance, const char *name, hearth_error *error)
{
    (void)instance, (void)name, (void)error;
    return HEARTH_OK;
}

/* There are no presets. */
const hearth_preset *hearth_find_preset(const hearth *instance, const char *name)
{
    (void)instance, (void)name;
    return NULL;
}

const hearth_preset *hearth_preset_at(const hearth *instance, size_t i)
{
    (void)instance, (void)i;
    return NULL;
}

void hearth_release_preset(const hearth_preset *preset)
{
    (void)preset;
}

/* The expression alone. */
char *hearth_regex_grammar(const char *regex, hearth_error *error)
{
    (void)error;
    return strdup(regex);
}

void hearth_free(char *string)
{
    free(string);
}

hearth *hearth_open(const hearth_config *config, hearth_error *error)
{
    (void)config, (void)error;
    fake.stop = false;
    pthread_create(&fake.player, NULL, player, NULL);
    return &fake.instance;
}

static struct timespec in_ms(int64_t ms)
{
    struct timespec then;
    clock_gettime(CLOCK_REALTIME, &then);
    then.tv_sec += (then.tv_nsec / 1000000 + ms) / 1000;
    then.tv_nsec = (then.tv_nsec / 1000000 + ms) % 1000 * 1000000;
    return then;
}

int hearth_load(hearth *instance, hearth_progress progress, void *ud, hearth_error *error)
{
    (void)instance;
    bool go_on = true;
    float fraction = 0;
    /* A real load calls its progress function often, and so can be aborted at any time. */
    do {
        lock();
        struct timespec soon = in_ms(1);
        if (fake.hold_load) pthread_cond_timedwait(&fake.changed, &fake.mutex, &soon);
        bool news = fake.progress >= 0;
        if (news) fraction = fake.progress;
        unlock();
        go_on = progress(ud, "demo", fraction);
        lock();
        if (news) fake.progress = -1;
        bool hold = fake.hold_load;
        change();
        if (!hold) break;
    } while (go_on);
    if (!go_on) return error_set(error, HEARTH_CANCELLED, "loading was broken off");
    if (fake.load_error.code != HEARTH_OK) *error = fake.load_error;
    return fake.load_error.code;
}

void hearth_reopen_cache(hearth *instance, int64_t timeout_ms)
{
    (void)instance, (void)timeout_ms;
}

void hearth_drain(hearth *instance, int64_t timeout_ms)
{
    (void)instance;
    struct timespec deadline = in_ms(timeout_ms);
    lock();
    fake.drained = true;
    pthread_cond_broadcast(&fake.changed);
    bool late = false;
    for (size_t i = 0; i < fake.n; i++) {
        while (!late && !fake.requests[i]->ended)
            late = pthread_cond_timedwait(&fake.changed, &fake.mutex, &deadline) != 0;
        if (!fake.requests[i]->ended) fake.requests[i]->cancelled = true;
    }
    pthread_cond_broadcast(&fake.changed);
    for (size_t i = 0; i < fake.n; i++)
        while (!fake.requests[i]->ended) wait_for_change();
    unlock();
}

void hearth_close(hearth *instance)
{
    if (instance == NULL) return;
    lock();
    fake.stop = true;
    change();
    pthread_join(fake.player, NULL);
}

bool hearth_model(const hearth *instance, size_t index, hearth_model_info *info)
{
    (void)instance;
    if (index > 0) return false;
    *info = (hearth_model_info){.name = "demo",
                                .idle_left = -1,
                                .path = "/models/demo.gguf",
                                .architecture = "qwen3",
                                .type = HEARTH_MODEL_CHAT,
                                .kind = HEARTH_KIND_DENSE,
                                .pooling = HEARTH_POOLING_UNSPECIFIED,
                                .description = "a fake",
                                .size_bytes = 1234567890123,
                                .n_params = 600000000,
                                .n_vocab = 151936,
                                .n_embd = 1024,
                                .n_embd_out = 1024,
                                .n_layer = 28,
                                .n_ctx_train = 40960,
                                .context_window = 8192,
                                .n_slots = 4,
                                .has_chat_template = true,
                                .created = 1700000000,
                                .chat_template = "{{ \"x\" }}",
                                .chat_template_caps = "{\"supports_tools\":false}",
                                .transcription_system = "",
                                .transcription_user = "Write it down:",
                                .sounds = fake.sounds,
                                .vocab_type = 2,
                                .bos_text = "<s>",
                                .eos_text = "</s>",
                                .weights_type = "Q4_K - Medium",
                                .state = fake.n_unloads > 0 ? HEARTH_MODEL_UNLOADED : HEARTH_MODEL_LOADED};
    return true;
}

/* Files that begin as WAV files do are sounds of a second and a half. */
int hearth_sound_seconds(const void *bytes, size_t len, double *seconds, hearth_error *error)
{
    *seconds = 1.5;
    if (len >= 4 && memcmp(bytes, "RIFF", 4) == 0) return HEARTH_OK;
    return error_set(error, HEARTH_INVALID, "a text is no sound");
}

int32_t hearth_find_model(const hearth *instance, const char *name, hearth_error *error)
{
    (void)instance;
    if (name == NULL || strcmp(name, "demo") == 0 || strcmp(name, "demo:latest") == 0) return 0;
    return error_at(error, HEARTH_NOT_FOUND, "model", "model '%s' does not exist", name);
}

bool hearth_model_sampling(const hearth *instance, size_t index, hearth_sampling *sampling)
{
    (void)instance;
    hearth_params nothing = hearth_params_default();
    *sampling = nothing.sampling;
    sampling->temperature = 0.5;
    sampling->top_k = 40;
    return index == 0;
}

/* Frees requests that have been played and released, so that an endless run does not exceed MAX_REQUESTS. */
static void forget_ended(void)
{
    size_t n = 0, n_before = 0;
    for (size_t i = 0; i < fake.n; i++) {
        hearth_request *request = fake.requests[i];
        bool over = i + 1 < fake.n_played && request->ended && request->released;
        n_before += !over && i < fake.n_played;
        if (over)
            free_request(request);
        else
            fake.requests[n++] = request;
    }
    fake.n = n;
    fake.n_played = n_before;
}

hearth_request *hearth_submit(hearth *instance, const hearth_params *params, hearth_event_fn on_event, void *ud,
                              hearth_error *error)
{
    (void)instance;
    lock();
    if (fake.submit_error.code != HEARTH_OK && fake.submit_error_nth == fake.n) {
        *error = fake.submit_error;
        unlock();
        return NULL;
    }
    if (params->model != NULL && strcmp(params->model, "demo") != 0) {
        error_at(error, HEARTH_NOT_FOUND, "model", "there is no model '%s'", params->model);
        unlock();
        return NULL;
    }
    if (fake.n == MAX_REQUESTS) forget_ended();
    if (fake.n == MAX_REQUESTS) abort();
    hearth_request *request = mem_alloc(sizeof *request);
    request->params = params_copy(params);
    request->on_event = on_event;
    request->ud = ud;
    pthread_mutex_init(&request->emitting, NULL);
    fake.requests[fake.n++] = request;
    change();
    return request;
}

void hearth_cancel(hearth_request *request)
{
    lock();
    request->cancelled = true;
    change();
}

void hearth_request_release(hearth_request *request)
{
    lock();
    request->released = true;
    change();
}

/* The same for embeddings. */
static void forget_ended_embeddings(void)
{
    size_t n = 0;
    for (size_t i = 0; i < fake.n_embeddings; i++) {
        hearth_embedding *embedding = fake.embeddings[i];
        if (embedding->ended && embedding->released)
            free_embedding(embedding);
        else
            fake.embeddings[n++] = embedding;
    }
    fake.n_embeddings = n;
}

hearth_embedding *hearth_embed(hearth *instance, const hearth_embed_params *params, hearth_embedded_fn on_end, void *ud,
                               hearth_error *error)
{
    (void)instance;
    if (params->model != NULL && strcmp(params->model, "demo") != 0) {
        error_at(error, HEARTH_NOT_FOUND, "model", "there is no model '%s'", params->model);
        return NULL;
    }
    for (size_t i = 0; i < params->n_inputs; i++) {
        const char *name = params->query != NULL ? "documents" : "input";
        if (params->inputs[i].len <= FAKE_LONGEST_INPUT) continue;
        error_at(error, HEARTH_TOO_LONG, name, "%s[%zu] is too long", name, i);
        return NULL;
    }
    hearth_embedding *embedding = mem_alloc(sizeof *embedding);
    embedding->params = *params;
    embedding->on_end = on_end;
    embedding->ud = ud;
    embedding->numbers = mem_alloc(params->n_inputs * sizeof *embedding->numbers);
    embedding->vectors = mem_alloc(params->n_inputs * sizeof *embedding->vectors);
    lock();
    if (fake.n_embeddings == MAX_EMBEDDINGS) forget_ended_embeddings();
    if (fake.n_embeddings == MAX_EMBEDDINGS) abort();
    fake.embeddings[fake.n_embeddings++] = embedding;
    change();
    return embedding;
}

void hearth_embedding_cancel(hearth_embedding *embedding)
{
    lock();
    embedding->cancelled = true;
    change();
}

int64_t hearth_embedding_tokens(const hearth_embedding *embedding)
{
    return 3 * (int64_t)embedding->params.n_inputs;
}

void hearth_embedding_release(hearth_embedding *embedding)
{
    if (embedding == NULL) return;
    lock();
    embedding->released = true;
    change();
}

void fake_set_residents(size_t n, int32_t tokens)
{
    lock();
    fake.n_residents = n;
    fake.resident_tokens = tokens;
    unlock();
}

void fake_set_restless(bool restless)
{
    lock();
    fake.restless = restless;
    unlock();
}

size_t fake_reports(void)
{
    lock();
    size_t n = fake.n_reports;
    unlock();
    return n;
}

void fake_wait_reports(size_t n)
{
    lock();
    while (fake.n_reports < n) wait_for_change();
    unlock();
}

size_t hearth_slots(const hearth *instance, hearth_slot *slots, size_t max)
{
    (void)instance;
    lock();
    fake.n_predicted += fake.restless;
    int32_t n_predicted = fake.n_predicted;
    unlock();
    if (max > 0)
        slots[0] = (hearth_slot){.id = 0,
                                 .seq_id = 3,
                                 .model = "demo",
                                 .state = HEARTH_SLOT_GENERATE,
                                 .request_id = "req-1",
                                 .cached_messages = 2,
                                 .cached_tokens = 40,
                                 .n_past = 45,
                                 .n_prompt = 42,
                                 .n_predicted = n_predicted,
                                 .n_remaining = 13,
                                 .hash = "0011223344556677",
                                 .last_used = 1700000000123};
    return 1;
}

size_t hearth_activities(const hearth *instance, hearth_activity *activities, size_t max)
{
    (void)instance;
    if (max > 0)
        activities[0] = (hearth_activity){
            .model = "demo", .waiting = 2, .prompt_tokens = 100, .cached_tokens = 900, .generated_tokens = 70};
    return 1;
}

size_t hearth_residents(const hearth *instance, hearth_resident *residents, size_t max)
{
    (void)instance;
    lock();
    size_t n = fake.n_residents;
    int32_t tokens = fake.resident_tokens;
    unlock();
    for (size_t i = 0; i < n && i < max; i++)
        residents[i] = (hearth_resident){.seq_id = 3,
                                         .slot_id = -1,
                                         .model = "demo",
                                         .state = HEARTH_RESIDENT_IDLE,
                                         .tokens = tokens,
                                         .own_tokens = 30,
                                         .shared_tokens = 10,
                                         .branch_of = 1,
                                         .branch_at = 10,
                                         .messages = 2,
                                         .cost_ms = 1.5,
                                         .return_ms = 20,
                                         .hash = "0123456789abcdef",
                                         .last_used = 1700000000000};
    return n;
}

/* Sequence 3 is idle and 4 is running; 5 cannot be stored. */
static int refuse_order(const hearth_resident_order *order, hearth_error *error)
{
    if (order->seq_id == 4) return error_at(error, HEARTH_BUSY, "seq_id", "sequence 4 is being computed");
    if (order->seq_id == 5) return error_set(error, HEARTH_UNAVAILABLE, "the conversation cannot be stored now");
    if (order->seq_id == 3 && strcmp(order->hash, "0123456789abcdef") == 0) return HEARTH_OK;
    return error_at(error, HEARTH_NOT_FOUND, "hash", "sequence %d does not hold it any more", order->seq_id);
}

int hearth_order_resident(hearth *instance, const hearth_resident_order *order, hearth_ordered_fn on_end, void *ud,
                          hearth_error *error)
{
    (void)instance;
    hearth_error refused;
    if (strcmp(order->model, "demo") != 0)
        return error_at(error, HEARTH_NOT_FOUND, "model", "model '%s' does not exist", order->model);
    int rc = refuse_order(order, &refused);
    lock();
    snprintf(fake.last_order, sizeof fake.last_order, "%d %d %s", (int)order->order, order->seq_id, order->hash);
    bool held = fake.hold_orders;
    if (held) {
        fake.held_order.on_end = on_end;
        fake.held_order.ud = ud;
    }
    change();
    if (!held) on_end(ud, rc == HEARTH_OK ? NULL : &refused);
    return HEARTH_OK;
}

/* Conversation i of `n_stored`, newest first, was used at 1000 - i. */
size_t hearth_stored_list(const hearth *instance, const hearth_stored *after, hearth_stored *list, size_t max,
                          size_t *total)
{
    (void)instance;
    lock();
    *total = fake.n_stored;
    unlock();
    size_t n = 0, from = after == NULL ? 0 : (size_t)(1000 - after->used + 1);
    for (size_t i = from; i < *total && n < max; i++, n++) {
        list[n] = (hearth_stored){.tier = hearth_tier_name(2),
                                  .model = "de\"mo",
                                  .tokens = 500,
                                  .own_tokens = 200,
                                  .own_bytes = 1u << 20,
                                  .resident = 300,
                                  .kept = i == 0,
                                  .last_used = 1700000000000,
                                  .used = 1000 - (int64_t)i};
        snprintf(list[n].key, sizeof list[n].key, "%064zx", i);
    }
    return n;
}

/* The key of sixty-four digits 3 is there, and 4 is being read. */
static int refuse_stored(const hearth_stored_order *order, hearth_error *error)
{
    if (order->key[0] == '4') return error_at(error, HEARTH_BUSY, "key", "a request is reading of it");
    if (order->key[0] == '5') return error_set(error, HEARTH_UNAVAILABLE, "the tier takes no orders now");
    if (order->key[0] == '3') return HEARTH_OK;
    return error_at(error, HEARTH_NOT_FOUND, "key", "no stored conversation has that key any more");
}

int hearth_order_stored(hearth *instance, const hearth_stored_order *order, hearth_ordered_fn on_end, void *ud,
                        hearth_error *error)
{
    (void)instance;
    hearth_error refused;
    if (strcmp(order->tier, hearth_tier_name(2)) != 0)
        return error_at(error, HEARTH_INVALID, "tier", "there is no tier '%s'", order->tier);
    int rc = refuse_stored(order, &refused);
    lock();
    snprintf(fake.last_order, sizeof fake.last_order, "%d %s %.4s", (int)order->act, order->tier, order->key);
    change();
    on_end(ud, rc == HEARTH_OK ? NULL : &refused);
    return HEARTH_OK;
}

void fake_set_stored(size_t n)
{
    lock();
    fake.n_stored = n;
    unlock();
}

void fake_hold_orders(void)
{
    lock();
    fake.hold_orders = true;
    unlock();
}

const char *fake_wait_order(void)
{
    lock();
    while (fake.last_order[0] == '\0') wait_for_change();
    unlock();
    return fake.last_order;
}

void fake_end_order(void)
{
    fake.held_order.on_end(fake.held_order.ud, NULL);
}

static hearth_adapter adapters[] = {{0, "fables.gguf", 1}, {1, "say \"no\".gguf", 0}};

int32_t hearth_lora_list(const hearth *instance, const char *model, hearth_adapter *out, size_t max,
                         hearth_error *error)
{
    (void)instance;
    if (model != NULL && strcmp(model, "demo") != 0)
        return error_at(error, HEARTH_NOT_FOUND, "model", "model '%s' does not exist", model);
    for (size_t i = 0; i < max && i < 2; i++) out[i] = adapters[i];
    return 2;
}

int hearth_load_model(hearth *instance, const char *model, hearth_error *error)
{
    (void)instance;
    if (strcmp(model, "demo") != 0)
        return error_at(error, HEARTH_NOT_FOUND, "model", "model '%s' does not exist", model);
    return error_at(error, HEARTH_INVALID, "model", "load: already loaded");
}

size_t fake_unloads(void)
{
    lock();
    size_t n = fake.n_unloads;
    unlock();
    return n;
}

int hearth_unload_model(hearth *instance, const char *model, hearth_error *error)
{
    (void)instance;
    if (strcmp(model, "demo") != 0)
        return error_at(error, HEARTH_NOT_FOUND, "model", "model '%s' does not exist", model);
    lock();
    size_t running = fake.n - fake.n_played;
    fake.n_unloads += running == 0;
    unlock();
    if (running == 0) return HEARTH_OK;
    return error_set(error, HEARTH_BUSY, "unload: cannot unload, too many active-streams[%zu]", running);
}

int hearth_lora_set(hearth *instance, const char *model, const hearth_lora *lora, size_t n, hearth_error *error)
{
    (void)instance;
    (void)model;
    adapters[0].scale = adapters[1].scale = 0;
    for (size_t i = 0; i < n; i++) {
        if (lora[i].id > 1) return error_at(error, HEARTH_INVALID, "lora", "there is no adapter %d", lora[i].id);
        adapters[lora[i].id].scale = lora[i].scale;
    }
    return HEARTH_OK;
}

size_t hearth_unstored_models(const hearth *instance, hearth_unstored *out, size_t max)
{
    (void)instance;
    if (max > 0) out[0] = (hearth_unstored){.model = "demo \"2\"", .reason = "/a/b.gguf was \"changed\""};
    return 1;
}

const char *hearth_tier_name(size_t i)
{
    static const char *const names[HEARTH_TIERS] = {"ram", "ram_file", "disk", "remote"};
    return i < HEARTH_TIERS ? names[i] : NULL;
}

void hearth_cache_status(const hearth *instance, hearth_cache *out)
{
    (void)instance;
    lock();
    fake.n_reports++;
    change();
    *out = (hearth_cache){
        .tiers = {{.name = "ram", .on = true, .entries = 1, .bytes = 2, .quota_bytes = 3, .evictions = 4},
                  {.name = "ram_file", .trouble = "no \"folder\""},
                  {.name = "disk", .on = true, .entries = 5, .bytes = 1234567890123, .quota_bytes = 1 << 30},
                  {.name = "remote", .on = true, .entries = 6, .bytes = 7, .quota_bytes = 8}},
        .hits_exact = 1,
        .hits_resume = 2,
        .hits_longest_prefix = 3,
        .misses = 4,
        .saves_cold = 5,
        .saves_continued = 6,
        .saves_finish = 7,
        .saves_evict = 8,
        .saves_shutdown = 9,
        .saves_dropped = 10,
        .duplicate_dropped = 11,
        .corrupt_files = 12,
        .longest_prefix_probes = 13,
        .pack_ns = 14,
        .load_ns = 9876543210123,
        .written_bytes = 15,
        .read_bytes = 16,
        .probes = 17,
        .probes_failed = 18,
        .uploaded_bytes = 19,
        .uploads_dropped = 20};
}

char *hearth_metrics(const hearth *instance)
{
    (void)instance;
    return mem_strdup("# TYPE hearth_fake gauge\nhearth_fake 1\n");
}

const char *hearth_version(void)
{
    return "0.1.0";
}

int hearth_log_open(const char *path, const char *level, const char *format, hearth_error *error)
{
    (void)path, (void)level, (void)format, (void)error;
    return HEARTH_OK;
}

void hearth_log_reopen(void)
{
    lock();
    fake.log_reopened = true;
    change();
}

/* ---- Cache events ---- */

int hearth_follow_blocks(hearth *instance, void (*changed)(void *ud), void *ud, hearth_error *error)
{
    (void)instance;
    if (fake.blocks.fails) return error_at(error, HEARTH_UNAVAILABLE, "cache", "nothing is stored");
    lock();
    fake.blocks.changed = changed;
    fake.blocks.ud = ud;
    unlock();
    return HEARTH_OK;
}

bool hearth_next_block_event(hearth *instance, hearth_block_event *event)
{
    (void)instance;
    lock();
    bool any = fake.blocks.taken < fake.blocks.n;
    if (any) *event = fake.blocks.v[fake.blocks.taken++];
    pthread_cond_broadcast(&fake.changed);
    unlock();
    return any;
}

void hearth_resend_blocks(hearth *instance)
{
    (void)instance;
    lock();
    fake.blocks.resends++;
    fake.blocks.taken = 0;
    unlock();
}

void hearth_unfollow_blocks(hearth *instance)
{
    (void)instance;
    lock();
    fake.blocks.changed = NULL;
    unlock();
}

void fake_give_block_events(const hearth_block_event *events, size_t n)
{
    lock();
    fake.blocks.v = events;
    fake.blocks.n = n;
    fake.blocks.taken = 0;
    if (fake.blocks.changed != NULL) fake.blocks.changed(fake.blocks.ud);
    unlock();
}

size_t fake_resends(void)
{
    lock();
    size_t n = fake.blocks.resends;
    unlock();
    return n;
}

void fake_fail_follow(void)
{
    fake.blocks.fails = true;
}
