/* Streams one reply: see reply.h. */
#include "cli/chat/reply.h"

#include <stdio.h>

/* The reply while it is printed. */
struct view {
    const struct screen *screen;
    struct reply *reply;
    bool is_reasoning; /* dimmed text, which an empty line ends */
    bool ended;
    hearth_error error; /* code is HEARTH_OK until it fails */
};

/* Reasoning is shown on a terminal only. */
static void show_reasoning(struct view *view, const char *text, size_t len)
{
    if (!view->screen->renders) return;
    if (!view->is_reasoning) screen_style(view->screen, stdout, "2");
    view->is_reasoning = true;
    fwrite(text, 1, len, stdout);
}

static void end_reasoning(struct view *view)
{
    if (!view->is_reasoning) return;
    screen_style(view->screen, stdout, "0");
    putchar('\n');
    view->is_reasoning = false;
}

static void show_content(struct view *view, const char *text, size_t len)
{
    end_reasoning(view);
    buf_append(&view->reply->content, text, len);
    fwrite(text, 1, len, stdout);
}

static void end_reply(struct view *view, const struct reply_event *event)
{
    end_reasoning(view);
    putchar('\n');
    view->ended = true;
    view->reply->is_whole = event->type == REPLY_DONE;
    if (event->result != NULL) view->reply->result = *event->result;
    if (event->error != NULL) view->error = *event->error;
}

static void show(void *ud, const struct reply_event *event)
{
    struct view *view = ud;
    switch (event->type) {
    case REPLY_PROGRESS:
        break;
    case REPLY_REASONING:
        show_reasoning(view, event->text, event->len);
        break;
    case REPLY_CONTENT:
        show_content(view, event->text, event->len);
        break;
    case REPLY_DONE:
    case REPLY_FAILED:
        end_reply(view, event);
    }
}

int chat_reply_stream(struct backend *backend, const struct conversation *chat, int signals,
                      const struct screen *screen, struct reply *reply, hearth_error *error)
{
    struct view view = {.screen = screen, .reply = reply};
    *reply = (struct reply){0};
    if (backend->ops->ask(backend, chat, error) < 0) return error->code;
    while (!view.ended) {
        const enum signal_kind signal = backend->ops->wait(backend, signals, show, &view);
        if (signal == SIGNAL_STOP || signal == SIGNAL_END) reply->signal = signal;
        if (reply->signal != SIGNAL_NONE || ferror(stdout)) backend->ops->stop(backend);
        fflush(stdout);
    }
    if (view.error.code == HEARTH_OK || view.error.code == HEARTH_CANCELLED) return HEARTH_OK;
    *error = view.error;
    return error->code;
}

void chat_reply_release(struct reply *reply)
{
    buf_release(&reply->content);
}
