/* hearth chat: a conversation in the terminal with a model in the same process.
 *
 * The main thread reads lines, prints replies and polls for events, signals and input; it owns everything but `inbox`,
 * which hearth's threads fill under its lock and announce through an eventfd. SIGINT and SIGTERM are blocked in all
 * threads and read from a signalfd, so that no signal handler interrupts anything. */
#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "cli/args.h"
#include "cli/attachment.h"
#include "cli/command.h"
#include "cli/line.h"
#include "cli/setup.h"
#include "cli/terminal.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

/* Bytes of a line at most; no model takes so many in one prompt. */
#define LINE_MOST (16u << 20)

struct inbox {
    pthread_mutex_t lock;
    struct buf text; /* generated and not yet printed */
    bool started, ended;
    hearth_result result;
    hearth_error error; /* code is HEARTH_OK where the reply is whole */
};

/* The reply that is being printed. */
struct reply {
    hearth_request *request;
    hearth_reader *reader; /* NULL until the request has started */
    struct buf content;    /* of the reply, without its reasoning */
    bool shows_reasoning;
    bool is_dim; /* the terminal is set to dim text, for reasoning */
};

struct chat {
    const char *command;
    hearth *instance;
    json_t *messages;
    struct media {
        hearth_medium *v; /* bytes are allocated */
        size_t n;         /* of the conversation */
        size_t n_said;    /* of them, those of messages: the others come with the next line */
    } media;
    struct inbox inbox;
    int arrivals; /* eventfd: something is in the inbox */
    int signals;  /* signalfd: SIGINT and SIGTERM */
    struct buf input;
    bool input_ended;
    bool too_long;           /* a line exceeded LINE_MOST: nothing more is read */
    bool asks;               /* stdin is a terminal: a prompt is shown */
    bool types;              /* stdin delivers each byte as it is typed: line.h edits the line */
    struct termios terminal; /* its former settings */
    bool shows_figures;      /* stdout is a terminal: reasoning is shown, and figures after each reply */
};

/* ---- Waiting ---- */

/* Waits for `fd` or a signal; true where a signal came. */
static bool wait_for(struct chat *chat, int fd)
{
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = chat->signals, .events = POLLIN}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR) {
    }
    if (!(fds[1].revents & POLLIN)) return false;
    struct signalfd_siginfo info;
    return read(chat->signals, &info, sizeof info) == (ssize_t)sizeof info;
}

/* ---- Input ---- */

/* False at the end of input, or on Ctrl-C. */
static bool read_more(struct chat *chat)
{
    char block[4096];
    if (chat->input_ended || wait_for(chat, STDIN_FILENO)) return false;
    const ssize_t n = read(STDIN_FILENO, block, sizeof block);
    if (n > 0) buf_append(&chat->input, block, (size_t)n);
    chat->input_ended = n == 0 || (n < 0 && errno != EINTR);
    return !chat->input_ended;
}

/* Moves the next line of a file or a pipe into `line`, without its end. False: there is none. */
static bool read_line(struct chat *chat, struct buf *line)
{
    size_t seen = 0;
    const char *newline = NULL;
    for (;;) {
        if (chat->input.len > seen) newline = memchr(chat->input.v + seen, '\n', chat->input.len - seen);
        seen = chat->input.len;
        if (newline != NULL || seen > LINE_MOST || !read_more(chat)) break;
    }
    if (newline == NULL && !chat->input_ended) return false;
    const size_t len = newline != NULL ? (size_t)(newline - chat->input.v) : chat->input.len;
    buf_append(line, chat->input.v, len);
    buf_drop_front(&chat->input, newline != NULL ? len + 1 : len);
    return newline != NULL || len > 0;
}

/* The same for a line that is typed. */
static bool type_line(struct chat *chat, struct buf *line)
{
    const cc_t *keys = chat->terminal.c_cc;
    const struct line_keys own = {(char)keys[VERASE], (char)keys[VWERASE], (char)keys[VKILL], (char)keys[VEOF]};
    enum line_state state = LINE_GOES_ON;
    struct buf echo = {0};
    while (state == LINE_GOES_ON && line->len <= LINE_MOST && (chat->input.len > 0 || read_more(chat))) {
        size_t n = 0;
        while (n < chat->input.len && state == LINE_GOES_ON) state = line_type(line, &own, chat->input.v[n++], &echo);
        buf_drop_front(&chat->input, n);
        fwrite(buf_text(&echo), 1, echo.len, stdout);
        fflush(stdout);
        buf_clear(&echo);
    }
    buf_release(&echo);
    return state == LINE_WHOLE;
}

static bool take_line(struct chat *chat, struct buf *line)
{
    buf_clear(line);
    const bool taken = chat->types ? type_line(chat, line) : read_line(chat, line);
    chat->too_long = line->len > LINE_MOST || (!taken && chat->input.len > LINE_MOST);
    return taken && !chat->too_long;
}

/* ---- One reply ---- */

/* Called on a thread of the instance. */
static void on_event(void *ud, const hearth_event *event)
{
    struct chat *chat = ud;
    struct inbox *inbox = &chat->inbox;
    pthread_mutex_lock(&inbox->lock);
    if (event->type == HEARTH_EVENT_TEXT) buf_append(&inbox->text, event->text, event->text_len);
    if (event->type == HEARTH_EVENT_DONE) inbox->result = *event->result;
    if (event->type == HEARTH_EVENT_FAILED) inbox->error = *event->error;
    if (event->type == HEARTH_EVENT_STARTED) inbox->started = true;
    inbox->ended = event->type == HEARTH_EVENT_DONE || event->type == HEARTH_EVENT_FAILED;
    eventfd_write(chat->arrivals, 1);
    pthread_mutex_unlock(&inbox->lock);
}

static void set_dim(struct reply *reply, bool dim)
{
    if (reply->is_dim != dim) fputs(dim ? "\033[2m" : "\033[0m\n", stdout);
    reply->is_dim = dim;
}

/* Reasoning is printed dimmed, on a terminal only, and is not part of the conversation's next prompt. */
static void print_delta(void *ud, const hearth_delta *delta)
{
    struct reply *reply = ud;
    const bool is_content = delta->type == HEARTH_DELTA_CONTENT;
    const bool is_shown = is_content || (delta->type == HEARTH_DELTA_REASONING && reply->shows_reasoning);
    if (!is_shown || delta->len == 0) return;
    set_dim(reply, !is_content);
    fwrite(delta->text, 1, delta->len, stdout);
    if (is_content) buf_append(&reply->content, delta->text, delta->len);
}

/* Prints the text that has arrived; true once the reply has ended. */
static bool print_arrivals(struct chat *chat, struct reply *reply)
{
    struct inbox *inbox = &chat->inbox;
    eventfd_t ignored;
    eventfd_read(chat->arrivals, &ignored);
    pthread_mutex_lock(&inbox->lock);
    struct buf text = inbox->text;
    inbox->text = (struct buf){0};
    const bool started = inbox->started, ended = inbox->ended;
    pthread_mutex_unlock(&inbox->lock);
    if (started && !reply->reader) reply->reader = hearth_reader_open(reply->request);
    if (reply->reader) hearth_reader_add(reply->reader, text.v ? text.v : "", text.len, print_delta, reply);
    if (reply->reader && ended) hearth_reader_end(reply->reader, print_delta, reply);
    if (ended) set_dim(reply, false);
    fflush(stdout);
    buf_release(&text);
    return ended;
}

static void print_figures(const hearth_result *r)
{
    const double rate = r->predicted_ms > 0 ? 1000.0 * (r->predicted_n - 1) / r->predicted_ms : 0;
    printf("\033[2m%d tokens, %d of %d prompt tokens cached, %.1f tokens/s\033[0m\n", r->predicted_n, r->cache_n,
           r->cache_n + r->prompt_n, rate);
}

/* Submits the conversation and streams the reply to stdout; `said` gets its content. Ctrl-C cancels the request; the
 * content so far stays in the conversation. */
static int stream_reply(struct chat *chat, struct buf *said, hearth_error *error)
{
    struct reply reply = {.shows_reasoning = chat->shows_figures};
    hearth_params params = hearth_params_default();
    char *messages = json_dumps(chat->messages, JSON_COMPACT);
    params.messages_json = messages;
    params.media = chat->media.v;
    params.n_media = chat->media.n;
    chat->inbox.started = chat->inbox.ended = false; /* the last event of the reply before may still wake this one */
    chat->inbox.error = (hearth_error){0};
    reply.request = hearth_submit(chat->instance, &params, on_event, chat, error);
    free(messages);
    if (!reply.request) return error->code;
    do {
        if (wait_for(chat, chat->arrivals) || ferror(stdout)) hearth_cancel(reply.request);
    } while (!print_arrivals(chat, &reply));
    hearth_reader_close(reply.reader);
    hearth_request_release(reply.request);
    *said = reply.content;
    putchar('\n');
    if (chat->inbox.error.code != HEARTH_OK && chat->inbox.error.code != HEARTH_CANCELLED) {
        *error = chat->inbox.error;
        return error->code;
    }
    if (chat->shows_figures && chat->inbox.error.code == HEARTH_OK) print_figures(&chat->inbox.result);
    return 0;
}

/* ---- The conversation ---- */

/* Appends a message. Typed or generated text may have invalid UTF-8, which JSON cannot hold: such bytes become U+FFFD.
 */
static void add_message(struct chat *chat, const char *role, const char *text, size_t len)
{
    struct buf clean = {0};
    utf8_put_clean(&clean, text, len);
    json_array_append_new(chat->messages,
                          json_pack("{s:s, s:s%}", "role", role, "content", clean.v ? clean.v : "", clean.len));
    buf_release(&clean);
}

/* ---- Attached files ---- */

static bool takes_media(const struct chat *chat)
{
    hearth_model_info info;
    return hearth_model(chat->instance, 0, &info) && (info.images || info.sounds);
}

/* The file comes with the next line. */
static int attach(struct chat *chat, const char *text)
{
    struct buf bytes = {0};
    hearth_error error;
    struct media *media = &chat->media;
    char *path = attachment_path(text);
    int status = HEARTH_OK;
    if (path[0] == '\0')
        status = error_set(&error, HEARTH_INVALID, "/image FILE: the file comes with the next line");
    else if (!takes_media(chat))
        status = error_set(&error, HEARTH_UNSUPPORTED,
                           "this model takes text only: start hearth chat with its projector, --mmproj FILE");
    else
        status = attachment_read(path, &bytes, &error);
    if (status == HEARTH_OK) {
        media->v = mem_grow(media->v, media->n + 1, sizeof *media->v);
        const size_t len = bytes.len;
        media->v[media->n++] = (hearth_medium){.bytes = buf_take(&bytes), .len = len, .field = mem_strdup(path)};
        if (chat->asks) printf("%s comes with the next line\n", path);
    } else {
        args_fail(chat->command, &error, EXIT_FAILED);
        buf_release(&bytes);
    }
    free(path);
    return status;
}

/* Takes back what was attached and not said. */
static void detach(struct chat *chat)
{
    while (chat->media.n > chat->media.n_said) {
        const hearth_medium *last = &chat->media.v[--chat->media.n];
        free((void *)last->bytes);
        free((void *)last->field);
    }
}

/* Puts the attached files before the text of the last message. */
static void say_attached(struct chat *chat)
{
    json_t *message = json_array_get(chat->messages, json_array_size(chat->messages) - 1), *parts = json_array();
    if (chat->media.n == chat->media.n_said) {
        json_decref(parts);
        return;
    }
    for (size_t i = chat->media.n_said; i < chat->media.n; i++)
        json_array_append_new(parts, json_pack("{s:s, s:I}", "type", "image_url", "media", (json_int_t)i));
    json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", json_object_get(message, "content")));
    json_object_set_new(message, "content", parts);
}

/* A turn without a reply is removed again, so that the next prompt extends a conversation that is cached. */
static int take_turn(struct chat *chat, const struct buf *line)
{
    struct buf said = {0};
    hearth_error error;
    add_message(chat, "user", line->v, line->len);
    say_attached(chat);
    const int status = stream_reply(chat, &said, &error);
    if (status < 0) args_fail(chat->command, &error, EXIT_FAILED);
    if (said.len > 0) {
        add_message(chat, "assistant", said.v, said.len);
        chat->media.n_said = chat->media.n;
    } else {
        json_array_remove(chat->messages, json_array_size(chat->messages) - 1);
        detach(chat);
    }
    buf_release(&said);
    return status;
}

static int refuse_line(const struct chat *chat)
{
    hearth_error error;
    error_set(&error, HEARTH_TOO_LONG, "a line has more than %u MiB: shorten it", LINE_MOST >> 20);
    return args_fail(chat->command, &error, EXIT_FAILED);
}

/* A failed reply ends the program where input does not come from a terminal. */
static int converse(struct chat *chat)
{
    struct buf line = {0};
    int status = 0;
    for (;;) {
        if (chat->asks) {
            printf("> ");
            fflush(stdout);
        }
        if (!take_line(chat, &line)) {
            if (chat->asks) putchar('\n');
            break;
        }
        if (strcmp(line.v, "/exit") == 0) break;
        const char *file =
            strncmp(line.v, "/image", 6) == 0 && (line.v[6] == ' ' || line.v[6] == '\0') ? line.v + 6 : NULL;
        if (file == NULL && takes_media(chat) && attachment_is_pasted(line.v)) file = line.v;
        if (file != NULL)
            status = attach(chat, file);
        else if (line.len > 0)
            status = take_turn(chat, &line);
        if ((status < 0 && !chat->asks) || ferror(stdout)) break;
    }
    buf_release(&line);
    if (chat->too_long) return refuse_line(chat);
    return status < 0 && !chat->asks ? EXIT_FAILED : EXIT_FINE;
}

static void block_signals(struct chat *chat)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    chat->signals = signalfd(-1, &set, SFD_CLOEXEC);
    chat->arrivals = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static int load_and_converse(struct chat *chat, const hearth_config *config)
{
    hearth_error error;
    chat->instance = hearth_open(config, &error);
    if (!chat->instance || hearth_load(chat->instance, terminal_progress, NULL, &error) < 0)
        return args_fail(chat->command, &error, setup_failure_status(config, &error));
    if (chat->asks)
        printf("%s: Ctrl-C stops a reply, %s/exit or Ctrl-D ends\n", hearth_config_model(config, 0),
               takes_media(chat) ? "/image FILE attaches one, " : "");
    return converse(chat);
}

static int run_chat(const char *command, const hearth_config *config, const char *system)
{
    struct chat chat = {
        .command = command,
        .messages = json_array(),
        .inbox.lock = PTHREAD_MUTEX_INITIALIZER,
        .asks = isatty(STDIN_FILENO),
        .shows_figures = isatty(STDOUT_FILENO),
    };
    hearth_log_open(NULL, hearth_config_get(config, "server.log_level"), "text", NULL);
    block_signals(&chat);
    if (system) add_message(&chat, "system", system, strlen(system));
    chat.types = chat.asks && chat.shows_figures &&
                 terminal_take_bytes(&chat.terminal); /* without a terminal there is nothing to echo to */
    const int status = load_and_converse(&chat, config);
    if (chat.types) tcsetattr(STDIN_FILENO, TCSADRAIN, &chat.terminal);
    hearth_close(chat.instance);
    chat.media.n_said = 0;
    detach(&chat);
    free(chat.media.v);
    json_decref(chat.messages);
    buf_release(&chat.inbox.text);
    buf_release(&chat.input);
    close(chat.arrivals);
    close(chat.signals);
    return status;
}

int command_chat(int argc, char **argv)
{
    const char *model = NULL, *system = NULL;
    struct setup setup = {.log_level = "error"};
    const struct args_option options[] = {
        setup_option_config(&setup),
        {"model", "PATH|NAME", "a model file, or a model of the configuration", .text = &model},
        {"mmproj", "FILE", "projection file for images or sound, of the only model", .text = &setup.mmproj},
        {"system", "TEXT", "system prompt", .text = &system},
        setup_option_set(&setup),
        setup_option_log_level(&setup),
    };
    const struct args_spec spec = {
        .command = "hearth chat",
        .about =
            "Talks to a model in the terminal, without a server. Without --config and --model: the demo model.\n"
            "Ctrl-C stops a reply; at the prompt Ctrl-C, Ctrl-D or /exit end. Input that does not come from a\n"
            "terminal is read line by line, each line a turn (16 MiB at most). Reasoning is printed on a terminal "
            "only, dimmed. /image FILE, or the path of a file that is pasted or dropped there, attaches an image or a\n"
            "sound to the next line, where the model takes them.",
        .options = options,
        .n_options = sizeof options / sizeof *options,
        .examples = "  hearth chat\n"
                    "  hearth chat --model Qwen3-8B-Q8_0.gguf --system 'Answer in one sentence.'\n"
                    "  echo 'Who are you?' | hearth chat --set models.demo.sampling.temperature=0\n",
    };
    int status;
    if (args_read(&spec, argc, argv, &status)) {
        if (model) args_append(&setup.models, model);
        hearth_config *config = setup_open(spec.command, &setup, &status);
        if (config) status = run_chat(spec.command, config, system);
        hearth_config_free(config);
    }
    setup_release(&setup);
    return status;
}
