/* hearth_bench_prefill: time to first token of cold prompts of several lengths, each alone on the server. Runs against
 * hearth and llama-server. One thread. */
#include "base/error.h"
#include "client.h"
#include "options.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>

enum { LENGTHS_MAX = 8, WARM_UP = 512 };

struct options {
    const char *url, *model;
    long rounds;
    bool json, help;
    long lengths[LENGTHS_MAX];
    size_t n_lengths;
};

struct bench {
    const struct options *options;
    struct client *client;
    struct report *report;
    uint64_t seed; /* of the last prompt: no two share a prefix, so that nothing is cached */
};

static int measure_first_token(struct bench *b, long length, double *ms, hearth_error *error)
{
    struct tokens prompt = {0};
    client_prompt(&prompt, (size_t)length, ++b->seed);
    struct wish wish = {.prompt = &prompt, .max_tokens = 2, .from_cache = true};
    struct stream *stream = client_stream(b->client, &wish, error);
    tokens_release(&prompt);
    if (stream == NULL) return error->code;
    int rc = client_finish(b->client, stream, error);
    if (rc == HEARTH_OK && stream->n_times == 0) rc = error_set(error, HEARTH_INTERNAL, "a reply has no text");
    if (rc == HEARTH_OK && stream->n_cached > 0)
        rc = error_set(error, HEARTH_INTERNAL, "%lld tokens of a prompt came from a cache: nothing was measured",
                       (long long)stream->n_cached);
    if (rc == HEARTH_OK) *ms = client_first_ms(stream);
    client_drop(b->client, stream);
    return rc;
}

static int run_round(struct bench *b, hearth_error *error)
{
    const struct options *o = b->options;
    for (size_t i = 0; i < o->n_lengths; i++) {
        double ms = 0;
        char figure[64];
        int rc = measure_first_token(b, o->lengths[i], &ms, error);
        if (rc != HEARTH_OK) return rc;
        snprintf(figure, sizeof figure, "first token of a cold prompt of %ld tokens", o->lengths[i]);
        report_add(b->report, figure, "ms", ms);
    }
    return HEARTH_OK;
}

/* The server's first prompt takes longer than later ones: one precedes the rounds. */
static int measure(struct bench *b, hearth_error *error)
{
    const struct options *o = b->options;
    double unused;
    b->report = report_open("prefill", (size_t)o->lengths[o->n_lengths - 1]);
    int rc = measure_first_token(b, WARM_UP, &unused, error);
    for (long i = 0; i < o->rounds && rc == HEARTH_OK; i++) rc = run_round(b, error);
    return rc;
}

static int run(const struct options *options)
{
    hearth_error error = {0};
    struct bench b = {.options = options};
    b.client = client_open(options->url, options->model, &error);
    if (b.client != NULL) measure(&b, &error);
    client_close(b.client);
    return report_conclude(b.report, options->json, "hearth_bench_prefill", &error);
}

/* ---- Command line ---- */

static void print_help(void)
{
    puts("hearth_bench_prefill - time to first token of cold prompts\n"
         "\n"
         "usage: hearth_bench_prefill --url URL [options] [TOKENS]...\n"
         "\n"
         "  TOKENS         the prompts' lengths (512 2048 8192)\n"
         "  --url URL      a running hearth or llama-server, http://127.0.0.1:8080\n"
         "  --model NAME   the model to name in requests; needed where the server has several\n"
         "  --rounds N     measure so many times; medians are printed (1)\n"
         "  --json         print JSON, for bench/compare.mjs\n"
         "\n"
         "example:\n"
         "  hearth_bench_prefill --url http://127.0.0.1:8080 512 2048");
}

static bool read_lengths(struct options *o, char **list, int n)
{
    if (n == 0) return true;
    if (n > LENGTHS_MAX) return false;
    for (int i = 0; i < n; i++)
        if (!options_number(&o->lengths[i], list[i])) return false;
    o->n_lengths = (size_t)n;
    return true;
}

static bool parse(int argc, char **argv, struct options *o)
{
    const struct option_row rows[] = {
        {"url", .text = &o->url},   {"model", .text = &o->model}, {"rounds", .number = &o->rounds},
        {"json", .flag = &o->json}, {"help", .flag = &o->help},   {0},
    };
    int end = options_parse(argc, argv, rows);
    if (end < 0 || o->help) return end >= 0;
    if (o->url != NULL && read_lengths(o, argv + end, argc - end)) return true;
    fprintf(stderr, "hearth_bench_prefill: give --url and at most %d lengths; --help says more\n", LENGTHS_MAX);
    return false;
}

int main(int argc, char **argv)
{
    struct options options = {.rounds = 1, .lengths = {512, 2048, 8192}, .n_lengths = 3};
    if (!parse(argc, argv, &options)) return EXIT_BAD_USAGE;
    if (!options.help) return run(&options);
    print_help();
    return EXIT_SUCCESS;
}
