/* hearth_bench_ready: from the start of a server's process until it answers that it is ready, the first token and the
 * tokens of a reply, and the most memory that it has had until then. Starts and ends the server itself: its command
 * follows the options, with the word PORT in place of the port. One thread. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "client.h"
#include "options.h"
#include "report.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS    (2 * 1000 * 1000)
#define PATIENCE_S 300
#define END_S      30

struct options {
    const char *name, *log;
    char **command; /* ends with NULL */
    long prompt, reply;
    bool json, help;
};

struct bench {
    const struct options *options;
    struct client *client;
    struct report *report;
    char port[8];
    pid_t server;
};

/* ---- The server ---- */

/* One that is free now. */
static int choose_port(struct bench *b, hearth_error *error)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 &&
                 getsockname(fd, (struct sockaddr *)&address, &size) == 0;
    if (fd >= 0) close(fd);
    if (!bound) return error_set(error, HEARTH_IO, "no port is free");
    snprintf(b->port, sizeof b->port, "%d", ntohs(address.sin_port));
    return HEARTH_OK;
}

static void become_server(const struct bench *b)
{
    char **command = b->options->command;
    int log = open(b->options->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (char **word = command; *word != NULL; word++)
        if (!strcmp(*word, "PORT")) *word = (char *)b->port;
    if (log < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0) _exit(126);
    execvp(command[0], command);
    _exit(127);
}

static int start_server(struct bench *b, hearth_error *error)
{
    int rc = choose_port(b, error);
    if (rc != HEARTH_OK) return rc;
    b->server = fork();
    if (b->server == 0) become_server(b);
    if (b->server < 0) return error_set(error, HEARTH_IO, "no process can be made");
    char *url = mem_format("http://127.0.0.1:%s", b->port);
    b->client = client_open(url, NULL, error);
    free(url);
    return b->client == NULL ? error->code : HEARTH_OK;
}

/* llama-server may not end, see bench/run.sh. */
static void end_server(const struct bench *b)
{
    if (b->server <= 0) return;
    const struct timespec pause = {.tv_nsec = POLL_NS};
    int64_t deadline = clock_now(clock_monotonic()) + clock_from_ms(END_S * 1000);
    kill(b->server, SIGTERM);
    while (waitpid(b->server, NULL, WNOHANG) == 0) {
        if (clock_now(clock_monotonic()) > deadline) kill(b->server, SIGKILL);
        nanosleep(&pause, NULL);
    }
}

/* Polls, since a server does not notify anybody. */
static int await_ready(const struct bench *b, hearth_error *error)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    int64_t deadline = clock_now(clock_monotonic()) + clock_from_ms(PATIENCE_S * 1000);
    char *answer;
    while ((answer = client_get(b->client, "/health")) == NULL) {
        if (waitpid(b->server, NULL, WNOHANG) != 0 || clock_now(clock_monotonic()) > deadline)
            return error_set(error, HEARTH_IO, "the server has ended or is not ready after %d s, see %s", PATIENCE_S,
                             b->options->log);
        nanosleep(&pause, NULL);
    }
    free(answer);
    return HEARTH_OK;
}

/* ---- Measuring ---- */

static int measure_request(struct bench *b, hearth_error *error)
{
    struct tokens prompt = {0};
    client_prompt(&prompt, (size_t)b->options->prompt, 1);
    struct wish wish = {.prompt = &prompt, .max_tokens = (int32_t)b->options->reply, .from_cache = true};
    struct stream *stream = client_stream(b->client, &wish, error);
    tokens_release(&prompt);
    if (stream == NULL) return error->code;
    int rc = client_finish(b->client, stream, error);
    if (rc == HEARTH_OK && stream->n_times < 2) rc = error_set(error, HEARTH_INTERNAL, "a reply has no text");
    if (rc == HEARTH_OK) {
        report_add(b->report, "first token of the first prompt", "ms", client_first_ms(stream));
        report_add(b->report, "a token of its reply", "ms", client_token_ms(stream));
    }
    client_drop(b->client, stream);
    return rc;
}

/* Of the process so far, in MiB; the weights count where they are mapped and touched. */
static int measure_memory(struct bench *b, hearth_error *error)
{
    long kib = -1;
    char line[256];
    char *path = mem_format("/proc/%d/status", (int)b->server);
    FILE *status = fopen(path, "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (!strncmp(line, "VmHWM:", 6)) kib = strtol(line + 6, NULL, 10);
    if (status != NULL) fclose(status);
    free(path);
    if (kib < 0) return error_set(error, HEARTH_IO, "the system does not say how much memory the server has");
    report_add(b->report, "peak memory", "MiB", (double)kib / 1024);
    return HEARTH_OK;
}

static int measure(struct bench *b, hearth_error *error)
{
    b->report = report_open(b->options->name, (size_t)b->options->prompt);
    int64_t began = clock_now(clock_monotonic());
    int rc = start_server(b, error);
    if (rc == HEARTH_OK) rc = await_ready(b, error);
    if (rc != HEARTH_OK) return rc;
    report_add(b->report, "start to ready", "ms", clock_to_ms(clock_now(clock_monotonic()) - began));
    rc = measure_request(b, error);
    return rc == HEARTH_OK ? measure_memory(b, error) : rc;
}

static int run(const struct options *options)
{
    hearth_error error = {0};
    struct bench b = {.options = options};
    measure(&b, &error);
    client_close(b.client);
    end_server(&b);
    return report_conclude(b.report, options->json, "hearth_bench_ready", &error);
}

/* ---- Command line ---- */

static void print_help(void)
{
    puts("hearth_bench_ready - from a server's start until it is ready, and its peak memory\n"
         "\n"
         "usage: hearth_bench_ready [options] -- COMMAND...\n"
         "\n"
         "  COMMAND        the server's; PORT among its words is replaced by a free port of this machine\n"
         "  --log FILE     where the server's output goes (/dev/null)\n"
         "  --prompt N     tokens of the prompt that it gets when it is ready (512)\n"
         "  --reply N      tokens of the reply (32)\n"
         "  --json         print JSON, for bench/compare.mjs\n"
         "\n"
         "example:\n"
         "  hearth_bench_ready -- build/bin/hearth serve --port PORT");
}

static bool parse(int argc, char **argv, struct options *o)
{
    const struct option_row rows[] = {
        {"name", .text = &o->name},
        {"log", .text = &o->log},
        {"prompt", .number = &o->prompt},
        {"reply", .number = &o->reply},
        {"json", .flag = &o->json},
        {"help", .flag = &o->help},
        {0},
    };
    int end = options_parse(argc, argv, rows);
    if (end < 0 || o->help) return end >= 0;
    o->command = argv + end;
    if (end < argc) return true;
    fputs("hearth_bench_ready: give the server's command behind --; --help says more\n", stderr);
    return false;
}

int main(int argc, char **argv)
{
    struct options options = {.name = "ready", .log = "/dev/null", .prompt = 512, .reply = 32};
    if (!parse(argc, argv, &options)) return EXIT_BAD_USAGE;
    if (!options.help) return run(&options);
    print_help();
    return EXIT_SUCCESS;
}
