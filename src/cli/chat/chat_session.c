/* A chat: its turns and its commands. See chat_session.h; the table at the end has all commands. */
#include "cli/chat/chat_session.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "cli/args.h"
#include "cli/terminal.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Prints the error and returns its code. */
static int fail(const struct chat *chat, const hearth_error *error)
{
    args_fail(chat->command, error, EXIT_FAILED);
    return error->code;
}

/* ---- Replies ---- */

struct reply {
    struct buf content; /* without its reasoning, which is no part of the next prompt */
    bool is_whole;      /* it has ended by itself, and result is valid */
    hearth_result result;
    enum signal_kind signal; /* what stopped it: SIGNAL_STOP, SIGNAL_END or SIGNAL_NONE */
};

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

static void end_progress(struct view *view)
{
    if (view->has_progress) terminal_clear_line();
    view->has_progress = false;
}

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

static void end_reasoning(struct view *view)
{
    if (!view->is_reasoning) return;
    screen_style(view->screen, stdout, "0");
    putchar('\n');
    view->is_reasoning = false;
}

static void end_reply(struct view *view, const struct reply_event *event)
{
    end_progress(view);
    end_reasoning(view);
    struct buf shown = {0};
    markdown_end(&view->markdown, &shown);
    fwrite(buf_text(&shown), 1, shown.len, stdout);
    buf_release(&shown);
    putchar('\n');
    view->ended = true;
    view->reply->is_whole = event->type == REPLY_DONE && event->result != NULL;
    if (event->result != NULL) view->reply->result = *event->result;
    if (event->error != NULL) view->error = *event->error;
}

static void show_event(void *ud, const struct reply_event *event)
{
    struct view *view = ud;
    switch (event->type) {
    case REPLY_PROGRESS: {
        /* How much of the prompt is read, and how much of that is cached, if it takes more than one call of the model.
         */
        const hearth_result *r = event->result;
        const int32_t read = r->cache_n + r->prompt_n;
        if (!isatty(STDERR_FILENO) || read >= r->n_prompt) break;
        fprintf(stderr, "\r\033[Kreading the prompt: %d of %d tokens", read, r->n_prompt);
        if (r->cache_n > 0) fprintf(stderr, ", %d of them cached", r->cache_n);
        fflush(stderr);
        view->has_progress = true;
        break;
    }
    case REPLY_REASONING:
        end_progress(view);
        if (!view->screen->renders) break; /* reasoning is shown on a terminal only */
        if (!view->is_reasoning) screen_style(view->screen, stdout, "2");
        view->is_reasoning = true;
        print(view, event->text, event->len, false);
        break;
    case REPLY_CONTENT:
        end_progress(view);
        end_reasoning(view);
        buf_append(&view->reply->content, event->text, event->len);
        print(view, event->text, event->len, true);
        break;
    case REPLY_DONE:
    case REPLY_FAILED:
        end_reply(view, event);
    }
}

/* Asks for a reply and prints it until it ends, fails, or a signal stops it. The content has the text that has come by
 * then. Returns HEARTH_OK, also where it was stopped, or the code of its failure. */
static int stream_reply(const struct chat *chat, struct reply *reply, hearth_error *error)
{
    const struct backend_ops *ops = chat->backend->ops;
    struct view view = {.screen = &chat->screen, .reply = reply};
    if (ops->ask(chat->backend, &chat->conversation, error) < 0) return error->code;
    while (!view.ended) {
        const enum signal_kind signal = ops->wait(chat->backend, chat->signals, show_event, &view);
        if (signal == SIGNAL_STOP || signal == SIGNAL_END) reply->signal = signal;
        if (signal == SIGNAL_REDRAW && chat->editor != NULL) editor_resume(chat->editor);
        if (reply->signal != SIGNAL_NONE || ferror(stdout)) ops->stop(chat->backend);
        fflush(stdout);
    }
    if (view.error.code == HEARTH_OK || view.error.code == HEARTH_CANCELLED) return HEARTH_OK;
    *error = view.error;
    return error->code;
}

/* ---- Turns ---- */

int chat_take_turn(struct chat *chat, const char *text, size_t len)
{
    struct reply reply = {0};
    hearth_error error;
    conversation_say(&chat->conversation, "user", text, len);
    const int status = stream_reply(chat, &reply, &error);
    if (status < 0) fail(chat, &error);
    if (reply.content.len > 0)
        conversation_say(&chat->conversation, "assistant", reply.content.v, reply.content.len);
    else
        conversation_take_back(&chat->conversation);
    if (reply.is_whole && reply.result.finish == HEARTH_FINISH_LENGTH)
        screen_say(&chat->screen, "cut off: it has as many tokens as it may, or the window is full");
    if (reply.is_whole) {
        chat->totals.n++;
        chat->totals.cached += reply.result.cache_n;
        chat->totals.computed += reply.result.prompt_n;
        chat->totals.generated += reply.result.predicted_n;
        chat->totals.seconds += (reply.result.queue_ms + reply.result.prompt_ms + reply.result.predicted_ms) / 1000;
        chat->totals.last = reply.result;
    }
    if (reply.is_whole && chat->shows_figures) {
        const double rate =
            reply.result.predicted_ms > 0 ? 1000.0 * (reply.result.predicted_n - 1) / reply.result.predicted_ms : 0;
        screen_style(&chat->screen, stdout, "2");
        printf("%d tokens, %d of %d prompt tokens cached, %.1f tokens/s", reply.result.predicted_n,
               reply.result.cache_n, reply.result.cache_n + reply.result.prompt_n, rate);
        screen_style(&chat->screen, stdout, "0");
        putchar('\n');
    }
    chat->ends = chat->ends || reply.signal == SIGNAL_END;
    chat->stopped = reply.signal != SIGNAL_NONE;
    buf_release(&reply.content);
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
        fail(chat, &error);
        buf_release(&bytes);
    }
    free(path);
    return status;
}

/* ---- The user's editor: $VISUAL, $EDITOR, else vi ---- */

static int edit_file(const char *path, hearth_error *error)
{
    int status = -1;
    const char *visual = getenv("VISUAL"), *editor = getenv("EDITOR"), *program = "vi";
    if (editor != NULL && editor[0] != '\0') program = editor;
    if (visual != NULL && visual[0] != '\0') program = visual;
    const pid_t child = fork();
    if (child == 0) { /* the program may have arguments, so a shell reads it */
        sigset_t none;
        char *command = mem_format("%s \"$1\"", program);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        signal(SIGPIPE, SIG_DFL);
        execl("/bin/sh", "sh", "-c", command, program, path, (char *)NULL);
        _exit(127);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (child > 0 && status == 0) return HEARTH_OK;
    return error_set(error, HEARTH_IO, "the editor (%s) has failed: nothing is changed. VISUAL and EDITOR name another",
                     program);
}

/* `text` is what the editor begins with and what it has written. It is waited for. HEARTH_IO. */
static int compose(struct buf *text, hearth_error *error)
{
    const char *folder = getenv("TMPDIR");
    char *path = mem_format("%s/hearth-chat-XXXXXX.md", folder != NULL && folder[0] != '\0' ? folder : "/tmp");
    const int fd = mkostemps(path, 3, O_CLOEXEC);
    int status = HEARTH_OK;
    if (fd < 0) {
        status = error_set(error, HEARTH_IO, "%s cannot be made: %s", path, strerror(errno));
    } else {
        const ssize_t n = write(fd, buf_text(text), text->len);
        if (close(fd) != 0 || n != (ssize_t)text->len)
            status = error_set(error, HEARTH_IO, "%s cannot be written: %s", path, strerror(errno));
    }
    if (status == HEARTH_OK) status = edit_file(path, error);
    buf_clear(text);
    if (status == HEARTH_OK) status = attachment_read(path, text, error);
    if (fd >= 0) unlink(path);
    free(path);
    return status;
}

/* ---- The conversation ---- */

static int run_clear(struct chat *chat, const char *argument)
{
    (void)argument;
    conversation_clear(&chat->conversation);
    screen_say(&chat->screen, "a new conversation%s",
               conversation_system(&chat->conversation) != NULL ? ", with the same system prompt" : "");
    return HEARTH_OK;
}

static int run_system(struct chat *chat, const char *argument)
{
    const bool removes = strcmp(argument, "-") == 0;
    if (argument[0] != '\0') conversation_set_system(&chat->conversation, removes ? NULL : argument);
    const char *now = conversation_system(&chat->conversation);
    screen_say(&chat->screen, "system prompt: %s", now != NULL ? now : "none");
    return HEARTH_OK;
}

static int run_undo(struct chat *chat, const char *argument)
{
    (void)argument;
    char *text = conversation_undo(&chat->conversation);
    if (text != NULL)
        screen_say(&chat->screen, "taken back: %.60s%s", text, strlen(text) > 60 ? " ..." : "");
    else
        screen_say(&chat->screen, "there is nothing to take back");
    free(text);
    return HEARTH_OK;
}

static int run_edit(struct chat *chat, const char *argument)
{
    (void)argument;
    struct buf text = {0};
    hearth_error error;
    if (chat->editor == NULL)
        return error_set(&error, HEARTH_UNSUPPORTED, "/edit needs a terminal"), fail(chat, &error);
    /* The text that the editor begins with: the last message of the user's. */
    struct conversation last = {.messages = json_copy(chat->conversation.messages)};
    char *said = conversation_undo(&last);
    if (said != NULL) buf_puts(&text, said);
    free(said);
    json_decref(last.messages);
    editor_lend(chat->editor);
    int status = compose(&text, &error);
    editor_resume(chat->editor);
    chat->ends = signals_drop(chat->signals) || chat->ends; /* Ctrl-C was the other program's */
    while (text.len > 0 && isspace((unsigned char)text.v[text.len - 1])) text.v[--text.len] = '\0';
    if (status < 0)
        fail(chat, &error);
    else if (text.len > 0 && !chat->ends) {
        free(conversation_reopen(&chat->conversation));
        screen_say(&chat->screen, "> %s", text.v);
        status = chat_take_turn(chat, text.v, text.len);
    }
    buf_release(&text);
    return status;
}

/* ---- Files ---- */

/* A file is replaced once the new one is whole; a device or a link is written to. False with errno. */
static bool save(const json_t *body, const char *path)
{
    struct stat is;
    const bool exists = lstat(path, &is) == 0;
    if (exists && !S_ISREG(is.st_mode)) return json_dump_file(body, path, JSON_INDENT(2)) == 0;
    char *beside = mem_format("%s.%ld", path, (long)getpid());
    const int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (file == NULL) { /* a folder of others', perhaps, with a file of one's own */
        if (fd >= 0) close(fd);
        free(beside);
        return json_dump_file(body, path, JSON_INDENT(2)) == 0;
    }
    bool good = json_dumpf(body, file, JSON_INDENT(2)) == 0 && (!exists || fchmod(fd, is.st_mode & 0777) == 0);
    good = fclose(file) == 0 && good;
    good = good && rename(beside, path) == 0;
    const int fault = errno;
    if (!good) unlink(beside);
    free(beside);
    errno = fault;
    return good;
}

static int run_save(struct chat *chat, const char *argument)
{
    hearth_error error;
    char *path = attachment_path(argument);
    json_t *body =
        json_pack("{s:s, s:o}", "model", chat_model(chat).name, "messages", conversation_export(&chat->conversation));
    int status = HEARTH_OK;
    if (!save(body, path)) {
        error_set(&error, HEARTH_IO, "%s cannot be written: %s", path, strerror(errno));
        status = fail(chat, &error);
    } else {
        screen_say(&chat->screen, "%zu messages are in %s", json_array_size(chat->conversation.messages), path);
    }
    json_decref(body);
    free(path);
    return status;
}

static int run_load(struct chat *chat, const char *argument)
{
    hearth_error error;
    char *path = attachment_path(argument);
    json_error_t fault;
    json_t *body = json_load_file(path, 0, &fault);
    const json_t *messages = json_is_object(body) ? json_object_get(body, "messages") : body;
    int status = body == NULL ? error_set(&error, HEARTH_INVALID, "%s", fault.text)
                              : conversation_import(&chat->conversation, messages, &error);
    json_decref(body);
    if (status < 0) error_prefix(&error, "%s: ", path);
    if (status < 0)
        fail(chat, &error);
    else
        screen_say(&chat->screen, "%zu messages of %s", json_array_size(chat->conversation.messages), path);
    free(path);
    return status;
}

/* ---- Models and figures ---- */

static int run_model(struct chat *chat, const char *argument)
{
    hearth_error error;
    if (argument[0] == '\0') {
        struct backend_model model;
        const char *now = chat_model(chat).name;
        for (size_t i = 0; chat->backend->ops->model(chat->backend, i, &model); i++)
            screen_say(&chat->screen, "%s %s", strcmp(model.name, now) == 0 ? "*" : " ", model.name);
        return HEARTH_OK;
    }
    if (chat->backend->ops->find(chat->backend, argument, &error) < 0) return fail(chat, &error);
    free(chat->conversation.model);
    chat->conversation.model = mem_strdup(argument);
    screen_say(&chat->screen, "%s answers", chat_model(chat).name);
    return HEARTH_OK;
}

static int run_cache(struct chat *chat, const char *argument)
{
    (void)argument;
    struct backend_cache cache = {0};
    hearth_error error;
    const int status = chat->backend->ops->cache(chat->backend, &chat->conversation, &cache, &error);
    if (cache.has_lookup) {
        struct buf tiers = {0};
        for (size_t i = 0; hearth_tier_name(i) != NULL; i++)
            if (cache.lookup.tiers[i] > 0) buf_printf(&tiers, ", %d in %s", cache.lookup.tiers[i], hearth_tier_name(i));
        screen_say(&chat->screen, "%d of %d tokens of this conversation are cached: %d in KV cells%s",
                   cache.lookup.reusable, cache.lookup.prompt, cache.lookup.resident, buf_text(&tiers));
        buf_release(&tiers);
    }
    for (const hearth_tier *tier = cache.status.tiers; tier < cache.status.tiers + HEARTH_TIERS; tier++)
        if (tier->on)
            screen_say(&chat->screen, "%s: %llu entries, %.1f of %.0f MB%s%s", tier->name,
                       (unsigned long long)tier->entries, (double)tier->bytes / 1e6, (double)tier->quota_bytes / 1e6,
                       tier->trouble[0] != '\0' ? ": " : "", tier->trouble);
    if (status == HEARTH_CANCELLED) {
        chat->stopped = true;
        chat->ends = signals_drop(chat->signals) || chat->ends;
    }
    return status < 0 ? fail(chat, &error) : HEARTH_OK;
}

static int run_stats(struct chat *chat, const char *argument)
{
    const struct chat_totals *t = &chat->totals;
    const hearth_result *last = &t->last;
    if (strcmp(argument, "on") == 0 || strcmp(argument, "off") == 0) {
        chat->shows_figures = argument[1] == 'n';
        return HEARTH_OK;
    }
    screen_say(&chat->screen,
               "last reply: first token after %.0f ms, %d prompt tokens cached, %d computed, %d generated",
               last->queue_ms + last->prompt_ms, last->cache_n, last->prompt_n, last->predicted_n);
    screen_say(&chat->screen, "%d %s in %.1f s: %lld prompt tokens cached, %lld computed, %lld generated", t->n,
               t->n == 1 ? "reply" : "replies", t->seconds, (long long)t->cached, (long long)t->computed,
               (long long)t->generated);
    return HEARTH_OK;
}

/* ---- The table ---- */

static int run_exit(struct chat *chat, const char *argument)
{
    (void)argument;
    chat->ends = true;
    return HEARTH_OK;
}

static int run_help(struct chat *chat, const char *argument);

static const struct chat_command {
    const char *name, *argument, *meaning;
    bool needs_argument, takes_lines;
    int (*run)(struct chat *chat, const char *argument);
} commands[] = {
    {"help", "", "lists these", false, false, run_help},
    {"clear", "", "begins a new conversation; the system prompt stays", false, false, run_clear},
    {"system", "[TEXT]", "shows the system prompt, or sets it; - removes it", false, true, run_system},
    {"model", "[NAME]", "lists the models, or has another one answer", false, false, run_model},
    {"image", "FILE", "attaches an image or a sound to the next message", false, false, chat_attach},
    {"save", "FILE", "writes the conversation, as a request of OpenAI's API", true, false, run_save},
    {"load", "FILE", "goes on with a saved conversation", true, false, run_load},
    {"cache", "", "how much of the conversation is cached, and what is stored", false, false, run_cache},
    {"stats", "[on|off]", "figures of the replies; whether they follow each one", false, false, run_stats},
    {"edit", "", "writes the last message anew in $EDITOR, and sends it in its place", false, false, run_edit},
    {"undo", "", "takes the last message and its reply back", false, false, run_undo},
    {"exit", "", "ends, as Ctrl-D does", false, false, run_exit},
};

#define N_COMMANDS (sizeof commands / sizeof *commands)

static int run_help(struct chat *chat, const char *argument)
{
    (void)argument;
    for (size_t i = 0; i < N_COMMANDS; i++)
        screen_say(&chat->screen, "/%s %-*s %s", commands[i].name, 16 - (int)strlen(commands[i].name),
                   commands[i].argument, commands[i].meaning);
    screen_say(&chat->screen, "A line that ends in \\ goes on in the next; Alt-Enter does the same.");
    return HEARTH_OK;
}

static int refuse_command_name(const struct chat *chat, const char *name)
{
    const char *names[N_COMMANDS];
    hearth_error error;
    for (size_t i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
    const char *nearest = nearest_name(name, names, N_COMMANDS);
    if (nearest != NULL)
        error_set(&error, HEARTH_INVALID, "unknown command /%s; did you mean /%s?", name, nearest);
    else
        error_set(&error, HEARTH_INVALID, "unknown command /%s; see /help. A blank before it makes it a message", name);
    return fail(chat, &error);
}

bool chat_take_command(struct chat *chat, const char *text, int *status)
{
    const size_t len = text[0] == '/' ? strspn(text + 1, "abcdefghijklmnopqrstuvwxyz") : 0;
    const char *argument = text + 1 + len;
    if (len == 0 || strchr(" \n", *argument) == NULL) return false;
    argument += strspn(argument, " \n");
    char *name = mem_strndup(text + 1, len);
    const struct chat_command *found = NULL;
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) found = &commands[i];
    const bool has_lines = strchr(text, '\n') != NULL, taken = found != NULL || (chat->editor != NULL && !has_lines);
    hearth_error error;
    if (taken && found == NULL) {
        *status = refuse_command_name(chat, name);
    } else if (taken && has_lines && !found->takes_lines) {
        error_set(&error, HEARTH_INVALID, "/%s takes one line; a blank before it makes it a message", name);
        *status = fail(chat, &error);
    } else if (taken && found->needs_argument && argument[0] == '\0') {
        error_set(&error, HEARTH_INVALID, "/%s %s: the file is missing", name, found->argument);
        *status = fail(chat, &error);
    } else if (taken) {
        *status = found->run(chat, argument);
    }
    free(name);
    return taken;
}
