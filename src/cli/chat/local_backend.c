/* A backend in this process: libhearth with the models of a configuration.
 *
 * hearth's threads fill the inbox under its lock and announce it through a descriptor; everything else is the main
 * thread's. */
#include "base/error.h"
#include "base/json_text.h"
#include "base/memory.h"
#include "base/os.h"
#include "cli/args.h"
#include "cli/chat/chat_backend.h"
#include "cli/setup.h"
#include "cli/terminal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct inbox {
    pthread_mutex_t lock;
    struct buf text; /* generated and not yet taken out */
    bool started, progressed, ended;
    hearth_result result;
    hearth_error error; /* code is HEARTH_OK where the reply is whole */
};

struct local {
    struct backend base;
    hearth *instance;
    struct inbox inbox;
    struct os_waker arrivals; /* something is in the inbox */
    hearth_request *request;
    hearth_reader *reader; /* NULL until the request has started */
};

static struct local *local_of(struct backend *backend)
{
    return (struct local *)backend;
}

/* ---- Models ---- */

static bool local_model(struct backend *backend, size_t index, struct backend_model *out)
{
    hearth_model_info info;
    if (!hearth_model(local_of(backend)->instance, index, &info)) return false;
    *out = (struct backend_model){.name = info.name, .takes_media = info.images || info.sounds};
    return true;
}

static int local_find(struct backend *backend, const char *name, hearth_error *error)
{
    return hearth_find_model(local_of(backend)->instance, name, error);
}

/* ---- Replies ---- */

/* Called on a thread of the instance. */
static void on_event(void *ud, const hearth_event *event)
{
    struct local *local = ud;
    struct inbox *inbox = &local->inbox;
    pthread_mutex_lock(&inbox->lock);
    if (event->type == HEARTH_EVENT_TEXT) buf_append(&inbox->text, event->text, event->text_len);
    if (event->type == HEARTH_EVENT_FAILED)
        inbox->error = *event->error;
    else if (event->result != NULL)
        inbox->result = *event->result;
    inbox->started = inbox->started || event->type == HEARTH_EVENT_STARTED;
    inbox->progressed = inbox->progressed || event->type == HEARTH_EVENT_PROGRESS;
    inbox->ended = event->type == HEARTH_EVENT_DONE || event->type == HEARTH_EVENT_FAILED;
    os_waker_wake(&local->arrivals);
    pthread_mutex_unlock(&inbox->lock);
}

/* Begins a request for the conversation, with its first `n_media` media. NULL, with an error. */
static hearth_request *submit_chat(struct local *local, const struct conversation *chat, size_t n_media,
                                   hearth_params params, hearth_error *error)
{
    const hearth_json *messages = json_text_public(json_deep_copy(chat->messages)); /* the conversation goes on */
    params.model = chat->model;
    params.messages = messages;
    params.media = chat->media.v;
    params.n_media = n_media;
    hearth_request *request = hearth_submit(local->instance, &params, on_event, local, error);
    hearth_json_free(messages);
    return request;
}

static int local_ask(struct backend *backend, const struct conversation *chat, hearth_error *error)
{
    struct local *local = local_of(backend);
    hearth_params params = hearth_params_default();
    params.progress = true;
    local->inbox.started = local->inbox.progressed = local->inbox.ended = false;
    local->inbox.error = (hearth_error){0};
    local->request = submit_chat(local, chat, chat->media.n, params, error);
    return local->request == NULL ? (int)error->code : HEARTH_OK;
}

static void local_stop(struct backend *backend)
{
    if (local_of(backend)->request != NULL) hearth_cancel(local_of(backend)->request);
}

struct emitter {
    reply_event_fn each;
    void *ud;
};

static void emit(const struct emitter *to, const struct reply_event *event)
{
    to->each(to->ud, event);
}

static void emit_delta(void *ud, const hearth_delta *delta)
{
    const bool is_text = delta->type == HEARTH_DELTA_CONTENT || delta->type == HEARTH_DELTA_REASONING;
    const enum reply_event_type type = delta->type == HEARTH_DELTA_CONTENT ? REPLY_CONTENT : REPLY_REASONING;
    if (is_text && delta->len > 0)
        emit(ud, &(struct reply_event){.type = type, .text = delta->text, .len = delta->len});
}

static enum signal_kind local_wait(struct backend *backend, int signals, reply_event_fn each, void *ud)
{
    struct local *local = local_of(backend);
    const enum signal_kind signal = signals_wait(signals, local->arrivals.fd);
    /* Hands over what has arrived. A wake-up may be left from the reply before: then there is nothing. */
    struct emitter *to = &(struct emitter){each, ud};
    struct inbox *inbox = &local->inbox;
    os_waker_clear(&local->arrivals);
    pthread_mutex_lock(&inbox->lock);
    struct buf text = inbox->text;
    inbox->text = (struct buf){0};
    const bool started = inbox->started, progressed = inbox->progressed, ended = inbox->ended;
    const hearth_result result = inbox->result;
    const hearth_error error = inbox->error;
    inbox->progressed = false;
    pthread_mutex_unlock(&inbox->lock);
    if (progressed) emit(to, &(struct reply_event){.type = REPLY_PROGRESS, .result = &result});
    if (started && local->reader == NULL) local->reader = hearth_reader_open(local->request);
    if (local->reader != NULL) hearth_reader_add(local->reader, buf_text(&text), text.len, emit_delta, to);
    buf_release(&text);
    if (!ended) return signal;
    if (local->reader != NULL) hearth_reader_end(local->reader, emit_delta, to);
    if (error.code == HEARTH_OK)
        emit(to, &(struct reply_event){.type = REPLY_DONE, .result = &result});
    else
        emit(to, &(struct reply_event){.type = REPLY_FAILED, .error = &error});
    hearth_reader_close(local->reader);
    hearth_request_release(local->request);
    local->reader = NULL;
    local->request = NULL;
    return signal;
}

/* ---- The cache ---- */

static int local_cache(struct backend *backend, const struct conversation *chat, struct backend_cache *out,
                       hearth_error *error)
{
    struct local *local = local_of(backend);
    int status = HEARTH_OK;
    if (json_array_size(chat->messages) > 0) {
        hearth_params params = hearth_params_default();
        params.only_lookup = true; /* and nothing is computed */
        params.continue_final = HEARTH_CONTINUE_NEVER;
        params.no_generation_prompt = true;
        hearth_request *request = submit_chat(local, chat, chat->media.n_said, params, error);
        status = request == NULL ? (int)error->code : hearth_wait(request, error);
        if (request != NULL) hearth_request_release(request);
        if (request != NULL) out->lookup = local->inbox.result.lookup;
    }
    out->has_lookup = status == HEARTH_OK && json_array_size(chat->messages) > 0;
    hearth_cache_status(local->instance, &out->status);
    return status;
}

/* ---- Opening and closing ---- */

static void local_close(struct backend *backend)
{
    struct local *local = local_of(backend);
    hearth_close(local->instance);
    buf_release(&local->inbox.text);
    os_waker_close(&local->arrivals);
    free(local);
}

/* The progress bar of loading, which Ctrl-C ends. */
static bool load_progress(void *ud, const char *model, float fraction)
{
    const enum signal_kind signal = signals_take(*(const int *)ud);
    terminal_progress(NULL, model, fraction);
    return signal != SIGNAL_STOP && signal != SIGNAL_END;
}

struct backend *local_open(const char *command, const hearth_config *config, int signals, int *status)
{
    static const struct backend_ops ops = {local_model, local_find,  local_ask,  local_wait,
                                           local_stop,  local_cache, local_close};
    struct local *local = mem_alloc(sizeof *local);
    hearth_error error;
    *local = (struct local){.base.ops = &ops, .inbox.lock = PTHREAD_MUTEX_INITIALIZER};
    if (os_waker_open(&local->arrivals) != 0)
        error_set(&error, HEARTH_IO, "no descriptor is left: %s", os_error_text(errno));
    else
        local->instance = hearth_open(config, &error);
    if (local->instance != NULL && hearth_load(local->instance, load_progress, &signals, &error) == HEARTH_OK)
        return &local->base;
    *status = args_fail(command, &error, setup_failure_status(config, &error));
    local_close(&local->base);
    return NULL;
}
