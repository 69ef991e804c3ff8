/* hearth_bench_mixed: time to first token of short requests beside long prompts: one long prompt after the other is
 * being read while short requests arrive at fixed times, whether or not the ones before them are answered. Runs against
 * hearth and llama-server. One thread. */
#include "base/clock.h"
#include "base/error.h"
#include "client.h"
#include "options.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>

enum { REQUESTS_MAX = 64, LONG_REPLY = 4 };

static const char p50[] = "first token of a short request, p50";
static const char p99[] = "first token of a short request, p99";
static const char long_first[] = "first token of a long prompt beside them";

struct options {
    const char *url, *model;
    long requests, interval_ms, prompt, reply, long_prompt;
    bool json, help;
};

struct bench {
    const struct options *options;
    struct client *client;
    struct report *report;
    struct stream *short_ones[REQUESTS_MAX], *long_one;
    size_t n_short;
    struct samples long_ms;
    uint64_t seed; /* of the last prompt: no two share a prefix, so that nothing is cached */
};

static struct stream *ask(struct bench *b, long n_prompt, long reply, hearth_error *error)
{
    struct tokens prompt = {0};
    client_prompt(&prompt, (size_t)n_prompt, ++b->seed);
    struct wish wish = {.prompt = &prompt, .max_tokens = (int32_t)reply};
    struct stream *stream = client_stream(b->client, &wish, error);
    tokens_release(&prompt);
    return stream;
}

/* ---- The long prompts ---- */

static int begin_long(struct bench *b, hearth_error *error)
{
    b->long_one = ask(b, b->options->long_prompt, LONG_REPLY, error);
    return b->long_one == NULL ? error->code : HEARTH_OK;
}

static void end_long(struct bench *b)
{
    if (b->long_one->n_times > 0) samples_add(&b->long_ms, client_first_ms(b->long_one));
    client_drop(b->client, b->long_one);
    b->long_one = NULL;
}

/* Streams until `end`, the next long prompt following each that is answered. */
static int run_until(struct bench *b, int64_t end, hearth_error *error)
{
    const int64_t step = clock_from_ms(5);
    int rc = HEARTH_OK;
    int64_t now;
    while (rc == HEARTH_OK && (now = clock_now(clock_monotonic())) < end) {
        rc = client_run_until(b->client, now + step < end ? now + step : end, error);
        if (rc != HEARTH_OK || !b->long_one->done) continue;
        end_long(b);
        rc = begin_long(b, error);
    }
    return rc;
}

/* ---- Measuring ---- */

/* The arrivals' times are fixed beforehand: a server that is slow does not get fewer requests. */
static int send_short_ones(struct bench *b, hearth_error *error)
{
    const struct options *o = b->options;
    int rc = begin_long(b, error);
    int64_t began = clock_now(clock_monotonic());
    for (long i = 0; i < o->requests && rc == HEARTH_OK; i++) {
        rc = run_until(b, began + clock_from_ms((i + 1) * o->interval_ms), error);
        if (rc != HEARTH_OK) break;
        b->short_ones[b->n_short] = ask(b, o->prompt, o->reply, error);
        if (b->short_ones[b->n_short++] == NULL) rc = error->code;
    }
    return rc;
}

static int await_all(struct bench *b, hearth_error *error)
{
    int rc = HEARTH_OK;
    for (size_t i = 0; i < b->n_short && rc == HEARTH_OK; i++) {
        rc = client_finish(b->client, b->short_ones[i], error);
        if (rc == HEARTH_OK && b->short_ones[i]->n_times == 0)
            rc = error_set(error, HEARTH_INTERNAL, "a reply has no text");
    }
    if (rc == HEARTH_OK) rc = client_finish(b->client, b->long_one, error);
    if (rc == HEARTH_OK) end_long(b);
    return rc;
}

static void note(struct bench *b)
{
    struct samples first_ms = {0};
    for (size_t i = 0; i < b->n_short; i++) samples_add(&first_ms, client_first_ms(b->short_ones[i]));
    report_add(b->report, p50, "ms", samples_percentile(&first_ms, 50));
    report_add(b->report, p99, "ms", samples_percentile(&first_ms, 99));
    report_add(b->report, long_first, "ms", samples_median(&b->long_ms));
    samples_release(&first_ms);
}

/* The server's first prompt takes longer than later ones: a short one precedes all. */
static int warm_up(struct bench *b, hearth_error *error)
{
    struct stream *stream = ask(b, b->options->prompt, b->options->reply, error);
    if (stream == NULL) return error->code;
    int rc = client_finish(b->client, stream, error);
    client_drop(b->client, stream);
    return rc;
}

static int measure(struct bench *b, hearth_error *error)
{
    b->report = report_open("mixed", (size_t)b->options->long_prompt);
    int rc = warm_up(b, error);
    if (rc == HEARTH_OK) rc = send_short_ones(b, error);
    if (rc == HEARTH_OK) rc = await_all(b, error);
    if (rc == HEARTH_OK) note(b);
    return rc;
}

static int run(const struct options *options)
{
    hearth_error error = {0};
    struct bench b = {.options = options};
    b.client = client_open(options->url, options->model, &error);
    if (b.client != NULL) measure(&b, &error);
    client_close(b.client);
    samples_release(&b.long_ms);
    return report_conclude(b.report, options->json, "hearth_bench_mixed", &error);
}

/* ---- Command line ---- */

static void print_help(void)
{
    puts("hearth_bench_mixed - time to first token of short requests beside long prompts\n"
         "\n"
         "usage: hearth_bench_mixed --url URL [options]\n"
         "\n"
         "  --url URL        a running hearth or llama-server with four slots, http://127.0.0.1:8080\n"
         "  --model NAME     the model to name in requests; needed where the server has several\n"
         "  --requests N     short requests, up to 64 (20)\n"
         "  --interval MS    milliseconds from one to the next, whether or not it is answered (500)\n"
         "  --prompt N       tokens of their prompts (32)\n"
         "  --reply N        tokens of their replies (8)\n"
         "  --long-prompt N  tokens of each long prompt; one is being read at any time (4096)\n"
         "  --json           print JSON, for bench/compare.mjs\n"
         "\n"
         "example:\n"
         "  hearth_bench_mixed --url http://127.0.0.1:8080");
}

static bool parse(int argc, char **argv, struct options *o)
{
    const struct option_row rows[] = {
        {"url", .text = &o->url},
        {"model", .text = &o->model},
        {"requests", .number = &o->requests},
        {"interval", .number = &o->interval_ms},
        {"prompt", .number = &o->prompt},
        {"reply", .number = &o->reply},
        {"long-prompt", .number = &o->long_prompt},
        {"json", .flag = &o->json},
        {"help", .flag = &o->help},
        {0},
    };
    int end = options_parse(argc, argv, rows);
    if (end < 0 || o->help) return end >= 0;
    if (end == argc && o->url != NULL && o->requests <= REQUESTS_MAX) return true;
    fprintf(stderr,
            "hearth_bench_mixed: give --url, at most %d --requests, and nothing but options; --help lists them\n",
            REQUESTS_MAX);
    return false;
}

int main(int argc, char **argv)
{
    struct options options = {.requests = 20, .interval_ms = 500, .prompt = 32, .reply = 8, .long_prompt = 4096};
    if (!parse(argc, argv, &options)) return EXIT_BAD_USAGE;
    if (!options.help) return run(&options);
    print_help();
    return EXIT_SUCCESS;
}
