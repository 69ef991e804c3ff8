/* hearth_bench_gap: the longest inter-token gap of a stream while another client sends a long prompt, and the long
 * prompt's time to first token beside the stream. Runs against hearth and llama-server. One thread. */
#include "base/clock.h"
#include "base/error.h"
#include "client.h"
#include "options.h"
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    PROBE_SMALL = 1024,   /* tokens of two prompts that measure the time of a batch token … */
    PROBE_LARGE = 4096,   /* … and how it grows with depth */
    STREAM_PROMPT = 32,   /* of the client that streams */
    STREAM_TOKENS = 4096, /* more than it gets before the long prompt is computed */
    STREAM_LEAD = 16,     /* tokens that it has when the other client sends its prompt */
    LONG_REPLY = 4,       /* tokens after the long prompt */
    TICKS = 50,           /* ticks that the long prompt should take */
    MAX_GAP_RATIO = 2,    /* promised: no gap is longer than so many times max_decode_gap_ms, … */
};
static const double max_ttft_ratio = 1.3; /* … and the first token takes at most so many times what it takes alone */

static const char gap_largest[] = "largest gap in a stream while another prompt is read";
static const char gap_median[] = "median gap";
static const char gap_p99[] = "99th percentile of the gaps";
static const char ttft_alone[] = "the prompt's time to first token, alone";
static const char ttft_beside[] = "the prompt's time to first token, beside the stream";
static const char ttft_ratio[] = "beside the stream / alone";

struct options {
    const char *url, *model;
    long prompt; /* 0: TICKS ticks */
    long context, rounds, max_decode_gap;
    bool json, help;
};

struct bench {
    const struct options *options;
    struct client *client;
    struct report *report;
    uint64_t seed; /* of the last prompt: no two share a prefix, so that nothing is cached */
};

/* ---- Measuring ---- */

static struct stream *stream(struct bench *b, size_t n_prompt, int32_t max_tokens, hearth_error *error)
{
    struct tokens prompt = {0};
    client_prompt(&prompt, n_prompt, ++b->seed);
    struct stream *s = client_stream(b->client, &(struct wish){.prompt = &prompt, .max_tokens = max_tokens}, error);
    tokens_release(&prompt);
    return s;
}

/* Time to first token of a complete stream. */
static int get_first_token(const struct stream *s, double *ms, hearth_error *error)
{
    if (s->n_times == 0) return error_set(error, HEARTH_INTERNAL, "the reply to the long prompt has no text");
    if (s->n_cached > 0)
        return error_set(error, HEARTH_INTERNAL, "%lld tokens of a prompt came from a cache: nothing was measured",
                         (long long)s->n_cached);
    *ms = clock_to_ms(s->times[0] - s->started);
    return HEARTH_OK;
}

/* Time to first token of a prompt that has the server to itself. */
static int measure_alone(struct bench *b, size_t n_prompt, double *ms, hearth_error *error)
{
    struct stream *s = stream(b, n_prompt, LONG_REPLY, error);
    if (s == NULL) return error->code;
    int rc = client_finish(b->client, s, error);
    if (rc == HEARTH_OK) rc = get_first_token(s, ms, error);
    client_drop(b->client, s);
    return rc;
}

/* The gaps of stream `a` that overlap the time from the start of `b` to its first token. */
static void collect_gaps(const struct stream *a, const struct stream *b, struct samples *gaps)
{
    for (size_t i = 1; i < a->n_times; i++)
        if (a->times[i] > b->started && a->times[i - 1] < b->times[0])
            samples_add(gaps, clock_to_ms(a->times[i] - a->times[i - 1]));
}

/* Stream `a` generates; then the long prompt `b` is sent. The measurement ends with the token of `a` after the first
 * one of `b`, which ends the last gap. */
static int run_beside(struct bench *bench, size_t n_prompt, struct stream **a, struct stream **b, hearth_error *error)
{
    struct client *client = bench->client;
    *a = stream(bench, STREAM_PROMPT, STREAM_TOKENS, error);
    if (*a == NULL) return error->code;
    int rc = client_wait(client, *a, STREAM_LEAD, error);
    if (rc != HEARTH_OK) return rc;
    *b = stream(bench, n_prompt, LONG_REPLY, error);
    if (*b == NULL) return error->code;
    rc = client_wait(client, *b, 1, error);
    if (rc == HEARTH_OK) rc = client_wait(client, *a, (*a)->n_times + 1, error);
    if (rc == HEARTH_OK) rc = client_finish(client, *b, error);
    return rc;
}

static int measure_beside(struct bench *bench, size_t n_prompt, struct samples *gaps, double *ms, hearth_error *error)
{
    struct stream *a = NULL, *b = NULL;
    int rc = run_beside(bench, n_prompt, &a, &b, error);
    if (rc == HEARTH_OK) rc = get_first_token(b, ms, error);
    if (rc == HEARTH_OK) collect_gaps(a, b, gaps);
    client_drop(bench->client, b);
    client_drop(bench->client, a);
    return rc;
}

static int run_round(struct bench *b, size_t n_prompt, hearth_error *error)
{
    double alone = 0, beside = 0;
    struct samples gaps = {0};
    int rc = measure_alone(b, n_prompt, &alone, error);
    if (rc == HEARTH_OK) rc = measure_beside(b, n_prompt, &gaps, &beside, error);
    if (rc == HEARTH_OK) {
        report_add(b->report, gap_largest, "ms", samples_max(&gaps));
        report_add(b->report, gap_median, "ms", samples_median(&gaps));
        report_add(b->report, gap_p99, "ms", samples_percentile(&gaps, 99));
        report_add(b->report, ttft_alone, "ms", alone);
        report_add(b->report, ttft_beside, "ms", beside);
        report_add(b->report, ttft_ratio, "", beside / alone);
    }
    samples_release(&gaps);
    return rc;
}

/* The shorter of two times: the server's first prompt takes longer than later ones. */
static int measure_probe(struct bench *b, size_t n_prompt, double *ms, hearth_error *error)
{
    double first = 0, second = 0;
    int rc = measure_alone(b, n_prompt, &first, error);
    if (rc == HEARTH_OK) rc = measure_alone(b, n_prompt, &second, error);
    if (rc == HEARTH_OK) *ms = first < second ? first : second;
    return rc;
}

/* The length of a prompt that takes TICKS ticks of max_decode_gap_ms when it is computed alone. Tokens take longer with
 * depth: n of them take a n + b n^2, and two probes give a and b. */
static int choose_prompt(struct bench *b, size_t *n_prompt, hearth_error *error)
{
    const struct options *o = b->options;
    double small = 0, large = 0, fit = (double)(o->context - LONG_REPLY);
    if (o->prompt > 0) { /* a warm-up is all that is needed */
        *n_prompt = (size_t)((double)o->prompt < fit ? (double)o->prompt : fit);
        return measure_alone(b, PROBE_SMALL, &small, error);
    }
    int rc = measure_probe(b, PROBE_SMALL, &small, error);
    if (rc == HEARTH_OK) rc = measure_probe(b, PROBE_LARGE, &large, error);
    if (rc != HEARTH_OK) return rc;
    double quadratic = (large / PROBE_LARGE - small / PROBE_SMALL) / (PROBE_LARGE - PROBE_SMALL);
    if (quadratic < 1e-9) quadratic = 1e-9;
    double linear = small / PROBE_SMALL - quadratic * PROBE_SMALL;
    double time = (double)(TICKS * o->max_decode_gap);
    double wanted = (sqrt(linear * linear + 4 * quadratic * time) - linear) / (2 * quadratic);
    *n_prompt = (size_t)(wanted < fit ? wanted : fit);
    fprintf(stderr, "gap: %d tokens take %.0f ms, %d take %.0f; the prompt has %zu: %d ticks of %ld ms\n", PROBE_SMALL,
            small, PROBE_LARGE, large, *n_prompt, TICKS, o->max_decode_gap);
    return HEARTH_OK;
}

static void check_promises(struct bench *b)
{
    double worst = samples_max(report_samples(b->report, gap_largest));
    double ratio = samples_median(report_samples(b->report, ttft_ratio));
    long limit = MAX_GAP_RATIO * b->options->max_decode_gap;
    report_check(b->report, worst < (double)limit,
                 "largest gap of all rounds %.0f ms < %d x max_decode_gap_ms = %ld ms", worst, MAX_GAP_RATIO, limit);
    report_check(b->report, ratio <= max_ttft_ratio, "time to first token beside / alone %.2f <= %.1f", ratio,
                 max_ttft_ratio);
}

static int measure(struct bench *b, hearth_error *error)
{
    size_t n_prompt;
    int rc = choose_prompt(b, &n_prompt, error);
    if (rc != HEARTH_OK) return rc;
    b->report = report_open("gap", n_prompt);
    for (long i = 0; i < b->options->rounds && rc == HEARTH_OK; i++) {
        fprintf(stderr, "gap: round %ld of %ld\n", i + 1, b->options->rounds);
        rc = run_round(b, n_prompt, error);
    }
    if (rc == HEARTH_OK) check_promises(b);
    return rc;
}

static int run(const struct options *options)
{
    hearth_error error = {0};
    struct bench b = {.options = options};
    b.client = client_open(options->url, options->model, &error);
    if (b.client != NULL) measure(&b, &error);
    client_close(b.client);
    return report_conclude(b.report, options->json, "hearth_bench_gap", &error);
}

/* ---- Command line ---- */

static void print_help(void)
{
    puts("hearth_bench_gap - the longest gap in a stream while another client sends a long prompt\n"
         "\n"
         "usage: hearth_bench_gap --url URL [options]\n"
         "\n"
         "  --url URL            a running hearth or llama-server with two slots or more, http://127.0.0.1:8080\n"
         "  --model NAME         the model to name in requests; needed where the server has several\n"
         "  --prompt N           tokens of the long prompt; without it, so many that reading them takes 50 ticks of\n"
         "                       --max-decode-gap, measured first\n"
         "  --context N          the server's context window, which such a prompt must fit (16384)\n"
         "  --max-decode-gap MS  hearth's max_decode_gap_ms (250)\n"
         "  --rounds N           measure so many times; medians are printed (3)\n"
         "  --json               print JSON, for bench/compare.mjs\n"
         "\n"
         "examples:\n"
         "  hearth_bench_gap --url http://127.0.0.1:8080\n"
         "  hearth_bench_gap --url http://127.0.0.1:8080 --prompt 6400 --rounds 5 --json > hearth.json");
}

static bool parse(int argc, char **argv, struct options *o)
{
    const struct option_row rows[] = {
        {"url", .text = &o->url},
        {"model", .text = &o->model},
        {"prompt", .number = &o->prompt},
        {"context", .number = &o->context},
        {"max-decode-gap", .number = &o->max_decode_gap},
        {"rounds", .number = &o->rounds},
        {"json", .flag = &o->json},
        {"help", .flag = &o->help},
        {0},
    };
    int end = options_parse(argc, argv, rows);
    if (end < 0) return false;
    if (o->help) return true;
    if (end < argc || o->url == NULL || o->context <= LONG_REPLY) {
        fputs("hearth_bench_gap: give --url and nothing but options; --help lists them\n", stderr);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct options options = {.context = 16384, .rounds = 3, .max_decode_gap = 250};
    if (!parse(argc, argv, &options)) return EXIT_BAD_USAGE;
    if (!options.help) return run(&options);
    print_help();
    return EXIT_SUCCESS;
}
