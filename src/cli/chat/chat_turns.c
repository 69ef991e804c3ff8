/* Turns of a chat: see chat_turns.h. */
#include "cli/chat/chat_turns.h"

#include "base/error.h"
#include "cli/args.h"
#include "cli/attachment.h"
#include "cli/chat/reply_output.h"

#include <jansson.h>
#include <stdlib.h>

int chat_fail(const struct chat *chat, const hearth_error *error)
{
    args_fail(chat->command, error, EXIT_FAILED);
    return error->code;
}

/* ---- Turns ---- */

static void count(struct chat_totals *totals, const hearth_result *r)
{
    totals->n++;
    totals->cached += r->cache_n;
    totals->computed += r->prompt_n;
    totals->generated += r->predicted_n;
    totals->seconds += (r->queue_ms + r->prompt_ms + r->predicted_ms) / 1000;
    totals->last = *r;
}

static void show_figures(const struct chat *chat, const hearth_result *r)
{
    const double rate = r->predicted_ms > 0 ? 1000.0 * (r->predicted_n - 1) / r->predicted_ms : 0;
    screen_style(&chat->screen, stdout, "2");
    printf("%d tokens, %d of %d prompt tokens cached, %.1f tokens/s", r->predicted_n, r->cache_n,
           r->cache_n + r->prompt_n, rate);
    screen_style(&chat->screen, stdout, "0");
    putchar('\n');
}

int chat_take_turn(struct chat *chat, const char *text, size_t len)
{
    const struct reply_terminal terminal = {&chat->screen, chat->editor, chat->signals};
    struct reply reply;
    hearth_error error;
    conversation_say(&chat->conversation, "user", text, len);
    const int status = chat_reply_stream(chat->backend, &chat->conversation, &terminal, &reply, &error);
    if (status < 0) chat_fail(chat, &error);
    if (reply.content.len > 0)
        conversation_say(&chat->conversation, "assistant", reply.content.v, reply.content.len);
    else
        conversation_take_back(&chat->conversation);
    if (reply.is_whole && reply.result.finish == HEARTH_FINISH_LENGTH)
        screen_say(&chat->screen, "cut off: it has as many tokens as it may, or the window is full");
    if (reply.is_whole) count(&chat->totals, &reply.result);
    if (reply.is_whole && chat->shows_figures) show_figures(chat, &reply.result);
    chat->ends = chat->ends || reply.signal == SIGNAL_END;
    chat->stopped = reply.signal != SIGNAL_NONE;
    chat_reply_release(&reply);
    return status;
}

/* ---- Attached files ---- */

struct backend_model chat_model(const struct chat *chat)
{
    struct backend_model model = {.name = ""};
    hearth_error error;
    const int index = chat->backend->ops->find(chat->backend, chat->conversation.model, &error);
    if (index >= 0) chat->backend->ops->model(chat->backend, (size_t)index, &model);
    return model;
}

int chat_attach(struct chat *chat, const char *text)
{
    struct buf bytes = {0};
    hearth_error error;
    char *path = attachment_path(text);
    int status = HEARTH_OK;
    if (path[0] == '\0')
        status = error_set(&error, HEARTH_INVALID, "/image FILE: the file comes with the next line");
    else if (!chat_model(chat).takes_media)
        status = error_set(
            &error, HEARTH_UNSUPPORTED,
            "this model takes text only: images and sounds need its projector, --mmproj FILE where it is loaded");
    else
        status = attachment_read(path, &bytes, &error);
    if (status == HEARTH_OK) {
        const size_t len = bytes.len;
        conversation_attach(&chat->conversation, path, buf_take(&bytes), len);
        screen_say(&chat->screen, "%s comes with the next line", path);
    } else {
        chat_fail(chat, &error);
        buf_release(&bytes);
    }
    free(path);
    return status;
}
