/* hearth chat, and the part of hearth run that is the same. It holds a conversation, in the terminal or with each line
 * of a pipe or a file as a message, or answers one question that is an argument. The model is in this process or on a
 * server. Main thread only; events of other threads come through the backend (cli/chat/chat_backend.h). */
#include "cli/chat_command.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"
#include "cli/args.h"
#include "cli/chat/chat_session.h"
#include "cli/chat/conversation.h"
#include "cli/chat/input.h"
#include "cli/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- One question ---- */

/* The argument, and what is piped in after it. */
static int answer_once(struct chat *chat, const char *prompt)
{
    struct lines lines = {.fd = STDIN_FILENO, .signals = chat->signals};
    struct buf piped = {0}, question = {0};
    hearth_error error;
    int status = isatty(STDIN_FILENO) ? HEARTH_OK : lines_read_all(&lines, &piped, &error);
    chat->ends = lines.stopped;
    buf_puts(&question, prompt);
    if (piped.len > 0) buf_printf(&question, "%s", question.len > 0 ? "\n\n" : "");
    buf_append(&question, piped.v, piped.len);
    buf_release(&piped);
    lines_release(&lines);
    if (status < 0)
        args_fail(chat->command, &error, EXIT_FAILED);
    else if (!chat->ends)
        status = chat_take_turn(chat, question.v, question.len);
    buf_release(&question);
    return status < 0 ? EXIT_FAILED : chat->stopped || chat->ends ? EXIT_INTERRUPTED : EXIT_FINE;
}

/* ---- A conversation ---- */

/* One message, or a command. Returns the code of its failure, which was printed. */
static int take_message(struct chat *chat, const struct buf *message)
{
    int status = HEARTH_OK;
    const char *text = buf_text(message);
    if (chat_take_command(chat, text, &status)) return status;
    if (chat_model(chat).takes_media && attachment_is_pasted(text)) return chat_attach(chat, text);
    return message->len > 0 ? chat_take_turn(chat, text, message->len) : HEARTH_OK;
}

/* Each line of a pipe or a file is a message; a reply that fails or is stopped ends the program. */
static int answer_lines(struct chat *chat)
{
    struct lines lines = {.fd = STDIN_FILENO, .signals = chat->signals};
    struct buf line = {0};
    hearth_error error;
    int status = HEARTH_OK, got = 0;
    while (status == HEARTH_OK && !chat->stopped && !chat->ends && !ferror(stdout) &&
           (got = lines_read(&lines, &line, &error)) > 0)
        status = take_message(chat, &line);
    if (got < 0) status = args_fail(chat->command, &error, HEARTH_TOO_LONG);
    const bool stopped = chat->stopped || lines.stopped;
    buf_release(&line);
    lines_release(&lines);
    return stopped ? EXIT_INTERRUPTED : status < 0 ? EXIT_FAILED : EXIT_FINE;
}

/* ---- The command ---- */

/* Seconds that a server may be silent. hearth sends something every 5 seconds once a request has a slot. */
#define SILENCE_DEFAULT "300"
#define SILENCE_MOST    86400

static int converse(struct chat *chat, const struct chat_options *options)
{
    if (options->prompt != NULL) return answer_once(chat, options->prompt);
    chat->shows_figures = chat->screen.renders;
    if (chat->editor == NULL) return answer_lines(chat);
    const struct backend_model model = chat_model(chat);
    screen_say(&chat->screen, "%s: Ctrl-C stops a reply, %s/help lists commands, /exit or Ctrl-D ends", model.name,
               model.takes_media ? "/image FILE attaches one, " : "");
    /* Ctrl-C on an empty line ends the program when it comes twice: once it may have been meant for the reply before.
     */
    struct buf message = {0};
    enum editor_end last = EDITOR_MESSAGE, end = EDITOR_MESSAGE;
    while (!chat->ends && !ferror(stdout)) {
        last = end;
        end = editor_read(chat->editor, &message);
        if (end == EDITOR_MESSAGE) take_message(chat, &message);
        if (end == EDITOR_NO_MORE || (end == EDITOR_EMPTY && last == EDITOR_EMPTY)) break;
        if (end == EDITOR_EMPTY) screen_say(&chat->screen, "Ctrl-C again, Ctrl-D or /exit ends");
    }
    buf_release(&message);
    return EXIT_FINE;
}

int chat_command_run(const char *command, const hearth_config *config, const struct chat_options *options)
{
    if (config != NULL) hearth_log_open(NULL, hearth_config_get(config, "server.log_level"), "text", NULL);
    int status = EXIT_FAILED;
    struct chat chat = {.command = command, .screen = screen_find(), .signals = signals_open()};
    conversation_init(&chat.conversation);
    if (options->system != NULL)
        conversation_say(&chat.conversation, "system", options->system, strlen(options->system));
    if (options->server != NULL) chat.conversation.model = mem_strdup(options->model);
    /* A conversation on the terminal, if there is one to type on and to show it. The editor is opened before loading:
     * else typing would be echoed meanwhile. */
    const bool types = options->prompt == NULL && isatty(STDIN_FILENO) && chat.screen.file != NULL;
    chat.editor = types ? editor_open(chat.screen.file, chat.signals, !options->no_history) : NULL;
    if (options->server == NULL) {
        chat.backend = local_open(command, config, chat.signals, &status);
    } else {
        const struct server_options server = {.url = options->server,
                                              .model = options->model,
                                              .silence_s = strtol(options->timeout, NULL, 10),
                                              .signals = chat.signals};
        chat.backend = server_open(command, &server, &status);
    }
    if (chat.backend != NULL) status = converse(&chat, options);
    editor_close(chat.editor);
    if (chat.backend != NULL) chat.backend->ops->close(chat.backend);
    conversation_release(&chat.conversation);
    close(chat.signals);
    return status;
}

static int run_local(const char *command, struct setup *setup, const struct chat_options *options)
{
    int status;
    if (options->model != NULL) args_append(&setup->models, options->model);
    hearth_config *config = setup_open(command, setup, &status);
    if (config != NULL) status = chat_command_run(command, config, options);
    hearth_config_free(config);
    return status;
}

/* The options of the other kind of chat mean nothing in this one. */
static int check_options(const struct setup *setup, const struct chat_options *options, hearth_error *error)
{
    const struct {
        const char *name;
        bool given;
    } local[] = {{"config", setup->config != NULL}, {"mmproj", setup->mmproj != NULL}, {"set", setup->sets.len > 0}};
    char *end;
    const long seconds = strtol(options->timeout, &end, 10);
    for (size_t i = 0; options->server != NULL && i < sizeof local / sizeof *local; i++)
        if (local[i].given)
            return error_at(error, HEARTH_INVALID, local[i].name,
                            "--%s is for a model in this process: with --server, the server has its own settings",
                            local[i].name);
    if (*end == '\0' && seconds >= 1 && seconds <= SILENCE_MOST) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, "timeout", "--timeout %s: write seconds, 1 to %d", options->timeout,
                    SILENCE_MOST);
}

int command_chat(int argc, char **argv)
{
    struct chat_options chat = {.timeout = SILENCE_DEFAULT};
    struct setup setup = {.log_level = "error"};
    const struct args_option options[] = {
        setup_option_config(&setup),
        {"model", "PATH|NAME", "a file, a configured or pulled model, or one of the server", .text = &chat.model},
        {"server", "URL", "talk to a model of this server, in place of one in this process", .text = &chat.server},
        {"timeout", "S", "seconds that the server may be silent (" SILENCE_DEFAULT ")", .text = &chat.timeout},
        {"mmproj", "FILE", "projection file for images or sound, of the only model", .text = &setup.mmproj},
        {"system", "TEXT", "system prompt", .text = &chat.system},
        {"no-history", NULL, "what is typed is not kept for the next time", .flag = &chat.no_history},
        setup_option_set(&setup),
        setup_option_log_level(&setup),
    };
    const struct args_spec spec = {
        .command = "hearth chat",
        .about =
            "Talks to a model, without a server. Without --config and --model: the demo model. With --server URL it\n"
            "talks to a model of a running hearth, or of another server of OpenAI's API; HEARTH_API_KEY is its key.\n"
            "A server that sends nothing for --timeout seconds has failed.\n\n"
            "With PROMPT it answers that and ends; what is piped in comes after it, as a part of the same message.\n"
            "Otherwise input that does not come from a terminal is read line by line, each line a message (16 MiB at\n"
            "most). Replies that do not go to a terminal are the model's words alone, without reasoning.\n\n"
            "On a terminal lines are edited, with a history (~/.local/state/hearth/chat_history). A line that ends in\n"
            "a backslash goes on in the next, as does Alt-Enter; what is pasted is one message. Ctrl-C clears a line\n"
            "and stops a reply; twice, Ctrl-D or /exit end. Replies are shown with light markdown, unless NO_COLOR is\n"
            "set. /help lists the commands: another model or system prompt, files, saving and loading. The path of an\n"
            "image or a sound that is pasted or dropped there is attached to the next message, as with /image FILE,\n"
            "where the model takes them.",
        ARGS_OPTIONS(options),
        .operand = "PROMPT",
        .operand_value = &chat.prompt,
        .operand_is_optional = true,
        .examples = "  hearth chat\n"
                    "  hearth chat --model Qwen3-8B-Q8_0.gguf --system 'Answer in one sentence.'\n"
                    "  hearth chat 'Who are you?' --set models.demo.sampling.temperature=0\n"
                    "  hearth chat --server http://127.0.0.1:8080\n"
                    "  git diff | hearth chat 'Write a commit message for this.' > message\n",
    };
    int status;
    hearth_error error;
    if (args_read(&spec, argc, argv, &status)) {
        if (check_options(&setup, &chat, &error) < 0)
            status = args_fail(spec.command, &error, EXIT_USAGE);
        else
            status = chat.server != NULL ? chat_command_run(spec.command, NULL, &chat)
                                         : run_local(spec.command, &setup, &chat);
    }
    setup_release(&setup);
    return status;
}
