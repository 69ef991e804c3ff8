/* The event queue between the library's threads and those that answer: a linked list under a mutex, which suffices
 * since events come at the rate of tokens. */
#include "serve/core/outbox.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void outbox_free_event(struct outbox_event *event)
{
    free(event->error);
    free(event->logprobs);
    free(event);
}

static size_t event_bytes(const struct outbox_event *event)
{
    size_t logprobs_bytes = event->logprobs == NULL ? 0 : token_logprobs_bytes(event->logprobs);
    return sizeof *event + event->len + 1 + logprobs_bytes;
}

/* The queue is as its counts and its end say, and where it has events that can be taken the reader is awake. */
static void unlock(struct outbox *outbox)
{
#ifndef NDEBUG
    enum { CHECKED_EVENTS = 64 }; /* in a long queue looking at each would take longer than all else */
    size_t n = 0, bytes = 0;
    struct outbox_event **end = &outbox->head;
    for (; *end != NULL && n < CHECKED_EVENTS; end = &(*end)->next, n++) bytes += event_bytes(*end);
    if (n < CHECKED_EVENTS) {
        assert(end == outbox->tail && bytes == outbox->bytes);
        assert(n == outbox->n_ready + outbox->n_waiting && outbox->n_waiting < outbox->piece);
        assert(outbox->n_ready == 0 || outbox->awake);
    }
#endif
    pthread_mutex_unlock(&outbox->mutex);
}

void outbox_init(struct outbox *outbox, size_t limit, size_t piece, bool keeps_empty)
{
    *outbox = (struct outbox){.limit = limit, .piece = piece, .keeps_empty = keeps_empty};
    pthread_mutex_init(&outbox->mutex, NULL);
    outbox->tail = &outbox->head;
}

void outbox_release(struct outbox *outbox)
{
    struct outbox_event *event;
    outbox->n_ready += outbox->n_waiting;
    outbox->n_waiting = 0;
    outbox->awake = true;
    while ((event = outbox_take(outbox)) != NULL) outbox_free_event(event);
    pthread_mutex_destroy(&outbox->mutex);
}

static struct outbox_event *copy_event(size_t choice, const hearth_event *event)
{
    const char *text = event->text;
    bool has_text = event->type == HEARTH_EVENT_TEXT || event->type == HEARTH_EVENT_PROMPT;
    size_t len = has_text ? event->text_len : 0;
    if (event->type == HEARTH_EVENT_DONE && event->result->stop_string != NULL) {
        text = event->result->stop_string;
        len = strlen(text);
    }
    struct outbox_event *made = mem_alloc(sizeof *made + len + 1);
    made->type = event->type;
    made->choice = choice;
    made->len = len;
    made->token = event->token;
    if (event->logprobs != NULL) made->logprobs = token_logprobs_copy(event->logprobs);
    if (len > 0) memcpy(made->text, text, len);
    if (event->type == HEARTH_EVENT_FAILED) {
        made->error = mem_alloc(sizeof *made->error);
        *made->error = *event->error;
    }
    if (event->result != NULL) {
        made->result = *event->result;
        made->result.stop_string = NULL;
    }
    return made;
}

bool outbox_put(struct outbox *outbox, size_t choice, const hearth_event *event)
{
    bool is_text = event->type == HEARTH_EVENT_TEXT || event->type == HEARTH_EVENT_PROGRESS ||
                   event->type == HEARTH_EVENT_PROMPT_LOGPROBS;
    bool is_empty = event->type == HEARTH_EVENT_TEXT && event->text_len == 0 && event->logprobs == NULL;
    if (is_empty && !outbox->keeps_empty) return false;
    struct outbox_event *made = copy_event(choice, event);
    pthread_mutex_lock(&outbox->mutex);
    if (is_text && outbox->bytes + event_bytes(made) > outbox->limit) outbox->overflown = true;
    if (is_text && outbox->overflown) {
        outbox_free_event(made);
    } else {
        *outbox->tail = made;
        outbox->tail = &made->next;
        outbox->bytes += event_bytes(made);
        outbox->n_waiting++;
        if (made->type != HEARTH_EVENT_TEXT || outbox->n_waiting == outbox->piece) {
            outbox->n_ready += outbox->n_waiting;
            outbox->n_waiting = 0;
        }
    }
    bool wake = !outbox->awake && (outbox->n_ready > 0 || outbox->overflown);
    outbox->awake = outbox->awake || wake;
    unlock(outbox);
    return wake;
}

struct outbox_event *outbox_take(struct outbox *outbox)
{
    pthread_mutex_lock(&outbox->mutex);
    struct outbox_event *event = outbox->n_ready > 0 ? outbox->head : NULL;
    if (event != NULL) {
        outbox->n_ready--;
        outbox->head = event->next;
        if (outbox->head == NULL) outbox->tail = &outbox->head;
        outbox->bytes -= event_bytes(event);
    }
    unlock(outbox);
    return event;
}

bool outbox_sleep(struct outbox *outbox)
{
    pthread_mutex_lock(&outbox->mutex);
    bool none = outbox->n_ready == 0;
    if (none) outbox->awake = false;
    unlock(outbox);
    return none;
}

bool outbox_wake(struct outbox *outbox)
{
    pthread_mutex_lock(&outbox->mutex);
    bool slept = !outbox->awake;
    outbox->awake = true;
    unlock(outbox);
    return slept;
}

bool outbox_is_overflown(struct outbox *outbox)
{
    pthread_mutex_lock(&outbox->mutex);
    bool is = outbox->overflown;
    unlock(outbox);
    return is;
}
