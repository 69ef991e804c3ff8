/* hearth_bench_slots: throughput and latency of clients that all send a request at once: tokens per second of all
 * together, and how long one of them waits. To be run against servers that differ in n_seq_max. One thread. */
#include "base/clock.h"
#include "base/error.h"
#include "client.h"
#include "options.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>

enum { CLIENTS_MAX = 64 };

struct options {
    const char *url, *model, *name;
    long slots, clients, prompt, reply, rounds, adapters; /* adapters 0: none are named */
    bool json, help;
};

struct bench {
    const struct options *options;
    struct client *client;
    struct report *report;
    struct stream *streams[CLIENTS_MAX];
    size_t n_streams;
    uint64_t seed; /* of the last prompt: no two share a prefix, so that nothing is cached */
};

/* ---- The clients ---- */

static void drop_all(struct bench *b)
{
    while (b->n_streams > 0) client_drop(b->client, b->streams[--b->n_streams]);
}

static int ask(struct bench *b, hearth_error *error)
{
    struct tokens prompt = {0};
    client_prompt(&prompt, (size_t)b->options->prompt, ++b->seed);
    struct wish wish = {.prompt = &prompt, .max_tokens = (int32_t)b->options->reply};
    char lora[64];
    if (b->options->adapters > 0) {
        snprintf(lora, sizeof lora, "[{\"id\": %ld, \"scale\": 1}]", (long)b->n_streams % b->options->adapters);
        wish.lora = lora;
    }
    struct stream *stream = client_stream(b->client, &wish, error);
    tokens_release(&prompt);
    if (stream == NULL) return error->code;
    b->streams[b->n_streams++] = stream;
    return HEARTH_OK;
}

static int await_reply(struct bench *b, const struct stream *stream, hearth_error *error)
{
    int rc = client_finish(b->client, stream, error);
    if (rc != HEARTH_OK) return rc;
    if (stream->n_times != (size_t)b->options->reply)
        return error_set(error, HEARTH_INTERNAL, "a reply has %zu pieces of text, not %ld", stream->n_times,
                         b->options->reply);
    return HEARTH_OK;
}

static int all_at_once(struct bench *b, long clients, hearth_error *error)
{
    int rc = HEARTH_OK;
    for (long i = 0; i < clients && rc == HEARTH_OK; i++) rc = ask(b, error);
    for (size_t i = 0; i < b->n_streams && rc == HEARTH_OK; i++) rc = await_reply(b, b->streams[i], error);
    return rc;
}

/* ---- Measuring ---- */

static int64_t last_token(const struct stream *stream)
{
    return stream->times[stream->n_times - 1];
}

/* Milliseconds from the first request to the last token of all, and how many tokens came in that time. */
static double whole_time(const struct bench *b, size_t *n)
{
    int64_t end = 0;
    *n = 0;
    for (size_t i = 0; i < b->n_streams; i++) {
        if (last_token(b->streams[i]) > end) end = last_token(b->streams[i]);
        *n += b->streams[i]->n_times;
    }
    return clock_to_ms(end - b->streams[0]->started);
}

static void add_figure(struct bench *b, const char *what, const char *unit, double value)
{
    char name[80];
    snprintf(name, sizeof name, "%s, n_seq_max %ld", what, b->options->slots);
    report_add(b->report, name, unit, value);
}

static void add_round(struct bench *b)
{
    struct samples whole = {0}, streaming = {0}, gaps = {0};
    for (size_t i = 0; i < b->n_streams; i++) {
        const struct stream *s = b->streams[i];
        samples_add(&whole, clock_to_ms(last_token(s) - s->started));
        samples_add(&streaming, clock_to_ms(last_token(s) - s->times[0]));
        for (size_t k = 1; k < s->n_times; k++) samples_add(&gaps, clock_to_ms(s->times[k] - s->times[k - 1]));
    }
    size_t n;
    double ms = whole_time(b, &n);
    add_figure(b, "tokens a second, all clients", "/s", (double)n / (ms / 1e3));
    add_figure(b, "until all have their replies", "ms", ms);
    add_figure(b, "a request's median time", "ms", samples_median(&whole));
    add_figure(b, "of it from the first token to the last", "ms", samples_median(&streaming));
    add_figure(b, "largest inter-token gap", "ms", samples_max(&gaps));
    samples_release(&whole);
    samples_release(&streaming);
    samples_release(&gaps);
}

/* The server's first batches take longer than later ones: one request precedes the rounds. */
static int measure(struct bench *b, hearth_error *error)
{
    const struct options *o = b->options;
    b->report = report_open(o->name, (size_t)o->prompt);
    int rc = all_at_once(b, 1, error);
    for (long round = 0; round < o->rounds && rc == HEARTH_OK; round++) {
        drop_all(b);
        rc = all_at_once(b, o->clients, error);
        if (rc == HEARTH_OK) add_round(b);
    }
    return rc;
}

static int run(const struct options *options)
{
    hearth_error error = {0};
    struct bench b = {.options = options};
    b.client = client_open(options->url, options->model, &error);
    if (b.client != NULL) measure(&b, &error);
    client_close(b.client);
    return report_conclude(b.report, options->json, "hearth_bench_slots", &error);
}

/* ---- Command line ---- */

static void print_help(void)
{
    puts("hearth_bench_slots - tokens a second and the time of a request when so many clients ask at once\n"
         "\n"
         "usage: hearth_bench_slots --url URL --slots N [options]\n"
         "\n"
         "  --url URL      a running hearth or llama-server, http://127.0.0.1:8080\n"
         "  --slots N      its n_seq_max: the figures are named after it\n"
         "  --model NAME   the model to name in requests; needed where the server has several\n"
         "  --clients N    clients that ask at once, each once a round (8)\n"
         "  --prompt N     tokens of each prompt; no two begin alike (100)\n"
         "  --reply N      tokens of each reply (64)\n"
         "  --rounds N     measure so many times; medians are printed (3)\n"
         "  --adapters N   the clients ask under the server's first N adapters, in turn; else none is named\n"
         "  --name NAME    of the workload (slots)\n"
         "  --json         print JSON, for bench/compare.mjs\n"
         "\n"
         "example:\n"
         "  hearth_bench_slots --url http://127.0.0.1:8080 --slots 4");
}

static bool parse(int argc, char **argv, struct options *o)
{
    const struct option_row rows[] = {
        {"url", .text = &o->url},           {"slots", .number = &o->slots},   {"model", .text = &o->model},
        {"clients", .number = &o->clients}, {"prompt", .number = &o->prompt}, {"reply", .number = &o->reply},
        {"rounds", .number = &o->rounds},   {"name", .text = &o->name},       {"adapters", .number = &o->adapters},
        {"json", .flag = &o->json},         {"help", .flag = &o->help},       {0},
    };
    int end = options_parse(argc, argv, rows);
    if (end < 0) return false;
    if (o->help) return true;
    if (end < argc || o->url == NULL || o->slots == 0 || o->clients > CLIENTS_MAX) {
        fprintf(stderr,
                "hearth_bench_slots: give --url, --slots, at most %d --clients, and nothing but options; "
                "--help lists them\n",
                CLIENTS_MAX);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct options options = {.name = "slots", .clients = 8, .prompt = 100, .reply = 64, .rounds = 3};
    if (!parse(argc, argv, &options)) return EXIT_BAD_USAGE;
    if (!options.help) return run(&options);
    print_help();
    return EXIT_SUCCESS;
}
