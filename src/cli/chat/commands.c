/* The commands of a chat: see commands.h. The table at the end has them all. */
#include "cli/chat/commands.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "cli/attachment.h"
#include "cli/chat/compose.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* The text that the editor begins with: the last message of the user's. */
static void put_last(struct chat *chat, struct buf *text)
{
    struct conversation last = {.messages = json_copy(chat->conversation.messages)};
    char *said = conversation_undo(&last);
    if (said != NULL) buf_puts(text, said);
    free(said);
    json_decref(last.messages);
}

static int run_edit(struct chat *chat, const char *argument)
{
    (void)argument;
    struct buf text = {0};
    hearth_error error;
    if (chat->editor == NULL)
        return error_set(&error, HEARTH_UNSUPPORTED, "/edit needs a terminal"), chat_fail(chat, &error);
    put_last(chat, &text);
    editor_lend(chat->editor);
    int status = compose(&text, &error);
    editor_resume(chat->editor);
    chat->ends = signals_drop(chat->signals) || chat->ends; /* Ctrl-C was the other program's */
    while (text.len > 0 && isspace((unsigned char)text.v[text.len - 1])) text.v[--text.len] = '\0';
    if (status < 0)
        chat_fail(chat, &error);
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
        status = chat_fail(chat, &error);
    } else
        screen_say(&chat->screen, "%zu messages are in %s", json_array_size(chat->conversation.messages), path);
    json_decref(body);
    free(path);
    return status;
}

static int load(struct chat *chat, const char *path, hearth_error *error)
{
    json_error_t fault;
    json_t *body = json_load_file(path, 0, &fault);
    const json_t *messages = json_is_object(body) ? json_object_get(body, "messages") : body;
    int status = body == NULL ? error_set(error, HEARTH_INVALID, "%s", fault.text)
                              : conversation_import(&chat->conversation, messages, error);
    json_decref(body);
    if (status < 0) error_prefix(error, "%s: ", path);
    return status;
}

static int run_load(struct chat *chat, const char *argument)
{
    hearth_error error;
    char *path = attachment_path(argument);
    const int status = load(chat, path, &error);
    if (status < 0)
        chat_fail(chat, &error);
    else
        screen_say(&chat->screen, "%zu messages of %s", json_array_size(chat->conversation.messages), path);
    free(path);
    return status;
}

/* ---- Models and figures ---- */

static void list_models(struct chat *chat)
{
    struct backend_model model;
    const char *now = chat_model(chat).name;
    for (size_t i = 0; chat->backend->ops->model(chat->backend, i, &model); i++)
        screen_say(&chat->screen, "%s %s", strcmp(model.name, now) == 0 ? "*" : " ", model.name);
}

static int run_model(struct chat *chat, const char *argument)
{
    hearth_error error;
    if (argument[0] == '\0') return list_models(chat), HEARTH_OK;
    if (chat->backend->ops->find(chat->backend, argument, &error) < 0) return chat_fail(chat, &error);
    free(chat->conversation.model);
    chat->conversation.model = mem_strdup(argument);
    screen_say(&chat->screen, "%s answers", chat_model(chat).name);
    return HEARTH_OK;
}

static int run_cache(struct chat *chat, const char *argument)
{
    (void)argument;
    struct buf text = {0};
    hearth_error error;
    const int status = chat->backend->ops->cache(chat->backend, &chat->conversation, &text, &error);
    if (text.len > 0) screen_say(&chat->screen, "%.*s", (int)text.len - 1, text.v); /* it brings its last line end */
    buf_release(&text);
    if (status == HEARTH_CANCELLED) {
        chat->stopped = true;
        chat->ends = signals_drop(chat->signals) || chat->ends;
    }
    return status < 0 ? chat_fail(chat, &error) : HEARTH_OK;
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

static int refuse(const struct chat *chat, const char *name)
{
    const char *names[N_COMMANDS];
    hearth_error error;
    for (size_t i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
    const char *nearest = nearest_name(name, names, N_COMMANDS);
    if (nearest != NULL)
        error_set(&error, HEARTH_INVALID, "unknown command /%s; did you mean /%s?", name, nearest);
    else
        error_set(&error, HEARTH_INVALID, "unknown command /%s; see /help. A blank before it makes it a message", name);
    return chat_fail(chat, &error);
}

static int run(struct chat *chat, const struct chat_command *command, const char *argument, bool has_lines)
{
    hearth_error error;
    if (has_lines && !command->takes_lines) {
        error_set(&error, HEARTH_INVALID, "/%s takes one line; a blank before it makes it a message", command->name);
        return chat_fail(chat, &error);
    }
    if (!command->needs_argument || argument[0] != '\0') return command->run(chat, argument);
    error_set(&error, HEARTH_INVALID, "/%s %s: the file is missing", command->name, command->argument);
    return chat_fail(chat, &error);
}

bool commands_take(struct chat *chat, const char *text, int *status)
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
    if (taken) *status = found != NULL ? run(chat, found, argument, has_lines) : refuse(chat, name);
    free(name);
    return taken;
}
