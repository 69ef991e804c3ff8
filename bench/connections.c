/* hearth_bench_connections: what idle connections cost a server: memory for each, CPU time while nothing happens, and
 * what they add to the time of a token of many streams. Looks at the server's process in /proc, which must be on this
 * machine. One thread. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "client.h"
#include "options.h"
#include "report.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { STREAMS_MAX = 256, CONNECTIONS_MAX = 20000, PROMPT = 16 };

struct options {
    const char *url, *model;
    long pid, connections, streams, reply, rounds, idle_s;
    bool json, help;
};

struct bench {
    const struct options *options;
    struct client *client;
    struct report *report;
    int *connections; /* sockets */
    size_t n_connections;
    struct stream *streams[STREAMS_MAX];
    size_t n_streams;
    uint64_t seed; /* of the last prompt */
};

/* ---- The server's process ---- */

static int fail_proc(hearth_error *error)
{
    return error_set(error, HEARTH_IO, "/proc does not say what the server uses: is --pid its process?");
}

/* Memory that the process has now, in KiB. */
static int read_memory(const struct bench *b, double *kib, hearth_error *error)
{
    char line[256];
    bool found = false;
    char *path = mem_format("/proc/%ld/status", b->options->pid);
    FILE *file = fopen(path, "r");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
        found = sscanf(line, "VmRSS: %lf", kib) == 1;
    if (file != NULL) fclose(file);
    free(path);
    return found ? HEARTH_OK : fail_proc(error);
}

/* CPU time of all its threads so far, in milliseconds. */
static int read_cpu(const struct bench *b, double *ms, hearth_error *error)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid((pid_t)b->options->pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return fail_proc(error);
    *ms = (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
    return HEARTH_OK;
}

/* ---- Idle connections ---- */

/* Two sockets a connection would fit; the server has its own limit. */
static void allow_many_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int connect_to(const char *url)
{
    int port = 0;
    const struct timeval patience = {.tv_sec = 10};
    if (sscanf(url, "http://127.0.0.1:%d", &port) != 1) return -1;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0)
        return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* One that has been used, as those that clients keep for their next request. */
static int open_connection(struct bench *b, hearth_error *error)
{
    static const char request[] = "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    char answer[1024];
    int fd = connect_to(b->options->url);
    if (fd < 0) return error_set(error, HEARTH_IO, "connection %zu cannot be made", b->n_connections + 1);
    b->connections[b->n_connections++] = fd;
    ssize_t n = send(fd, request, sizeof request - 1, 0) == sizeof request - 1 ? recv(fd, answer, sizeof answer, 0) : 0;
    if (n > 12 && !memcmp(answer, "HTTP/1.1 200", 12)) return HEARTH_OK;
    return error_set(error, HEARTH_IO, "connection %zu gets no answer", b->n_connections);
}

static int open_connections(struct bench *b, hearth_error *error)
{
    int rc = HEARTH_OK;
    b->connections = mem_grow(NULL, (size_t)b->options->connections, sizeof *b->connections);
    for (long i = 0; i < b->options->connections && rc == HEARTH_OK; i++) rc = open_connection(b, error);
    return rc;
}

static void close_connections(struct bench *b)
{
    while (b->n_connections > 0) close(b->connections[--b->n_connections]);
    free(b->connections);
    b->connections = NULL;
}

/* Whether the server still has all of them: none has been closed or has got a byte more. */
static int check_connections(const struct bench *b, hearth_error *error)
{
    char byte;
    for (size_t i = 0; i < b->n_connections; i++)
        if (recv(b->connections[i], &byte, 1, MSG_DONTWAIT | MSG_PEEK) >= 0)
            return error_set(error, HEARTH_INTERNAL, "the server has closed idle connections: nothing was measured");
    return HEARTH_OK;
}

/* ---- Streams ---- */

static void drop_all(struct bench *b)
{
    while (b->n_streams > 0) client_drop(b->client, b->streams[--b->n_streams]);
}

static int ask(struct bench *b, hearth_error *error)
{
    struct tokens prompt = {0};
    client_prompt(&prompt, PROMPT, ++b->seed);
    struct wish wish = {.prompt = &prompt, .max_tokens = (int32_t)b->options->reply};
    struct stream *stream = client_stream(b->client, &wish, error);
    tokens_release(&prompt);
    if (stream == NULL) return error->code;
    b->streams[b->n_streams++] = stream;
    return HEARTH_OK;
}

/* Microseconds for a token of all streams together, from the first request to the last token. */
static int run_streams(struct bench *b, double *token_us, hearth_error *error)
{
    int rc = HEARTH_OK;
    size_t n = 0;
    int64_t began = clock_now(clock_monotonic());
    for (long i = 0; i < b->options->streams && rc == HEARTH_OK; i++) rc = ask(b, error);
    for (size_t i = 0; i < b->n_streams && rc == HEARTH_OK; i++) {
        rc = client_finish(b->client, b->streams[i], error);
        n += b->streams[i]->n_times;
    }
    *token_us = clock_to_ms(clock_now(clock_monotonic()) - began) * 1e3 / (double)(n > 0 ? n : 1);
    drop_all(b);
    return rc;
}

/* ---- Measuring ---- */

static const char alone[] = "a token of all streams, no idle connections";
static const char beside[] = "a token of all streams, beside idle connections";

static int measure_streams(struct bench *b, const char *figure, hearth_error *error)
{
    double token_us = 0;
    int rc = HEARTH_OK;
    for (long i = 0; i < b->options->rounds && rc == HEARTH_OK; i++) {
        rc = run_streams(b, &token_us, error);
        if (rc == HEARTH_OK) report_add(b->report, figure, "us", token_us);
    }
    return rc;
}

static int measure_memory(struct bench *b, hearth_error *error)
{
    double before = 0, after = 0;
    int rc = read_memory(b, &before, error);
    if (rc == HEARTH_OK) rc = open_connections(b, error);
    if (rc == HEARTH_OK) rc = read_memory(b, &after, error);
    if (rc == HEARTH_OK)
        report_add(b->report, "memory of a connection", "KiB", (after - before) / (double)b->options->connections);
    return rc;
}

static int measure_idle(struct bench *b, hearth_error *error)
{
    double before = 0, after = 0;
    const struct timespec pause = {.tv_sec = b->options->idle_s};
    int rc = read_cpu(b, &before, error);
    nanosleep(&pause, NULL);
    if (rc == HEARTH_OK) rc = read_cpu(b, &after, error);
    if (rc == HEARTH_OK)
        report_add(b->report, "CPU while nothing happens", "%",
                   100 * (after - before) / (1e3 * (double)b->options->idle_s));
    return rc;
}

/* Connections come first, so that they find no memory that streams have left behind. The first streams are slower than
 * later ones, and count for nothing. */
static int measure(struct bench *b, hearth_error *error)
{
    double unused;
    allow_many_files();
    b->report = report_open("connections", (size_t)b->options->connections);
    int rc = measure_memory(b, error);
    if (rc == HEARTH_OK) rc = measure_idle(b, error);
    if (rc == HEARTH_OK) rc = run_streams(b, &unused, error);
    if (rc == HEARTH_OK) rc = measure_streams(b, beside, error);
    if (rc == HEARTH_OK) rc = check_connections(b, error);
    close_connections(b);
    if (rc == HEARTH_OK) rc = measure_streams(b, alone, error);
    if (rc == HEARTH_OK)
        report_add(b->report, "added to the time of a token", "us",
                   samples_median(report_samples(b->report, beside)) -
                       samples_median(report_samples(b->report, alone)));
    return rc;
}

static int run(const struct options *options)
{
    hearth_error error = {0};
    struct bench b = {.options = options};
    b.client = client_open(options->url, options->model, &error);
    if (b.client != NULL) measure(&b, &error);
    client_close(b.client);
    close_connections(&b);
    return report_conclude(b.report, options->json, "hearth_bench_connections", &error);
}

/* ---- Command line ---- */

static void print_help(void)
{
    puts("hearth_bench_connections - memory and time that idle connections cost a server\n"
         "\n"
         "usage: hearth_bench_connections --url http://127.0.0.1:PORT --pid N [options]\n"
         "\n"
         "  --url URL         a running hearth with as many slots as --streams, and server.max_connections for all\n"
         "  --pid N           its process\n"
         "  --model NAME      the model to name in requests; needed where the server has several\n"
         "  --connections N   idle ones, up to 20000 (1000)\n"
         "  --streams N       at once, up to 256 (64)\n"
         "  --reply N         tokens of each (100)\n"
         "  --idle N          seconds for which CPU time is counted (5)\n"
         "  --rounds N        measure the streams so many times; medians are printed (3)\n"
         "  --json            print JSON, for bench/compare.mjs\n"
         "\n"
         "example:\n"
         "  hearth_bench_connections --url http://127.0.0.1:8080 --pid 4711");
}

static bool parse(int argc, char **argv, struct options *o)
{
    const struct option_row rows[] = {
        {"url", .text = &o->url},
        {"pid", .number = &o->pid},
        {"model", .text = &o->model},
        {"connections", .number = &o->connections},
        {"streams", .number = &o->streams},
        {"reply", .number = &o->reply},
        {"idle", .number = &o->idle_s},
        {"rounds", .number = &o->rounds},
        {"json", .flag = &o->json},
        {"help", .flag = &o->help},
        {0},
    };
    int end = options_parse(argc, argv, rows);
    if (end < 0 || o->help) return end >= 0;
    if (end == argc && o->url != NULL && o->pid > 0 && o->streams <= STREAMS_MAX && o->connections <= CONNECTIONS_MAX)
        return true;
    fprintf(stderr,
            "hearth_bench_connections: give --url, --pid, at most %d --streams and %d --connections, and nothing but "
            "options; --help lists them\n",
            STREAMS_MAX, CONNECTIONS_MAX);
    return false;
}

int main(int argc, char **argv)
{
    struct options options = {.connections = 1000, .streams = 64, .reply = 100, .rounds = 3, .idle_s = 5};
    if (!parse(argc, argv, &options)) return EXIT_BAD_USAGE;
    if (!options.help) return run(&options);
    print_help();
    return EXIT_SUCCESS;
}
