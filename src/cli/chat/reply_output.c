/* Streams one reply: see reply_output.h. */
#include "cli/chat/reply_output.h"

#include "cli/chat/markdown.h"
#include "cli/terminal.h"

#include <stdio.h>
#include <unistd.h>

/* The reply while it is printed. */
struct view {
    const struct screen *screen;
    struct reply *reply;
    struct markdown markdown;
    bool is_reasoning; /* dimmed text, which an empty line ends */
    bool has_progress; /* a line of stderr shows how much of the prompt was computed */
    bool ended;
    hearth_error error; /* code is HEARTH_OK until it fails */
};

/* ---- The prompt ---- */

/* A prompt that takes more than one call of the model: what is read of it, and what need not be. */
static void show_progress(struct view *view, const hearth_result *r)
{
    const int32_t read = r->cache_n + r->prompt_n;
    if (!isatty(STDERR_FILENO) || read >= r->n_prompt) return;
    fprintf(stderr, "\r\033[Kreading the prompt: %d of %d tokens", read, r->n_prompt);
    if (r->cache_n > 0) fprintf(stderr, ", %d of them cached", r->cache_n);
    fflush(stderr);
    view->has_progress = true;
}

static void end_progress(struct view *view)
{
    if (view->has_progress) terminal_clear_line();
    view->has_progress = false;
}

/* ---- The reply ---- */

/* On a terminal control characters are shown, not sent. */
static void print(struct view *view, const char *text, size_t len, bool is_markdown)
{
    struct buf shown = {0};
    if (!view->screen->renders)
        fwrite(text, 1, len, stdout);
    else if (is_markdown && view->screen->colours)
        markdown_put(&view->markdown, text, len, &shown);
    else
        markdown_put_plain(text, len, &shown);
    fwrite(buf_text(&shown), 1, shown.len, stdout);
    buf_release(&shown);
}

static void end_markdown(struct view *view)
{
    struct buf shown = {0};
    markdown_end(&view->markdown, &shown);
    fwrite(buf_text(&shown), 1, shown.len, stdout);
    buf_release(&shown);
}

/* Reasoning is shown on a terminal only. */
static void show_reasoning(struct view *view, const char *text, size_t len)
{
    if (!view->screen->renders) return;
    if (!view->is_reasoning) screen_style(view->screen, stdout, "2");
    view->is_reasoning = true;
    print(view, text, len, false);
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
    print(view, text, len, true);
}

static void end_reply(struct view *view, const struct reply_event *event)
{
    end_progress(view);
    end_reasoning(view);
    end_markdown(view);
    putchar('\n');
    view->ended = true;
    view->reply->is_whole = event->type == REPLY_DONE && event->result != NULL;
    if (event->result != NULL) view->reply->result = *event->result;
    if (event->error != NULL) view->error = *event->error;
}

static void show(void *ud, const struct reply_event *event)
{
    struct view *view = ud;
    switch (event->type) {
    case REPLY_PROGRESS:
        show_progress(view, event->result);
        break;
    case REPLY_REASONING:
        end_progress(view);
        show_reasoning(view, event->text, event->len);
        break;
    case REPLY_CONTENT:
        end_progress(view);
        show_content(view, event->text, event->len);
        break;
    case REPLY_DONE:
    case REPLY_FAILED:
        end_reply(view, event);
    }
}

int chat_reply_stream(struct backend *backend, const struct conversation *chat, const struct reply_terminal *terminal,
                      struct reply *reply, hearth_error *error)
{
    struct view view = {.screen = terminal->screen, .reply = reply};
    *reply = (struct reply){0};
    if (backend->ops->ask(backend, chat, error) < 0) return error->code;
    while (!view.ended) {
        const enum signal_kind signal = backend->ops->wait(backend, terminal->signals, show, &view);
        if (signal == SIGNAL_STOP || signal == SIGNAL_END) reply->signal = signal;
        if (signal == SIGNAL_REDRAW && terminal->editor != NULL) editor_resume(terminal->editor);
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
