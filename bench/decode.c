/* hearth_bench_decode: the time of a token while so many streams generate at once, with prompts that have nothing in
 * common and with prompts that share a prefix. Only the time in which all of them generate counts: prefill is
 * hearth_bench_prefill's. Runs against hearth and llama-server. One thread. */
#include "base/clock.h"
#include "base/error.h"
#include "client.h"
#include "options.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>

enum { STREAMS_MAX = 64, COUNTS_MAX = 8 };

struct options {
    const char *url, *model;
    long own, shared, reply; /* tokens */
    bool json, help;
    long counts[COUNTS_MAX];
    size_t n_counts;
};

struct bench {
    const struct options *options;
    struct client *client;
    struct report *report;
    struct stream *streams[STREAMS_MAX];
    size_t n_streams;
    uint64_t seed; /* of the last generated tokens */
};

/* ---- The streams ---- */

static void drop_all(struct bench *b)
{
    while (b->n_streams > 0) client_drop(b->client, b->streams[--b->n_streams]);
}

/* One prompt a seed, behind the tokens of `prefix`; 0: with nothing in common with another one. */
static int ask(struct bench *b, uint64_t prefix, uint64_t seed, long reply, hearth_error *error)
{
    struct tokens prompt = {0};
    if (prefix != 0) client_prompt(&prompt, (size_t)b->options->shared, prefix);
    client_prompt(&prompt, (size_t)b->options->own, seed);
    struct wish wish = {.prompt = &prompt, .max_tokens = (int32_t)reply, .from_cache = true};
    struct stream *stream = client_stream(b->client, &wish, error);
    tokens_release(&prompt);
    if (stream == NULL) return error->code;
    b->streams[b->n_streams++] = stream;
    return HEARTH_OK;
}

static int finish_all(struct bench *b, hearth_error *error)
{
    int rc = HEARTH_OK;
    for (size_t i = 0; i < b->n_streams && rc == HEARTH_OK; i++) rc = client_finish(b->client, b->streams[i], error);
    return rc;
}

/* One after the other, for a token each: when all ask again, their prompts are cached, and they begin together. */
static int prepare(struct bench *b, long count, uint64_t prefix, uint64_t seed, hearth_error *error)
{
    int rc = HEARTH_OK;
    for (long i = 0; i < count && rc == HEARTH_OK; i++) {
        rc = ask(b, prefix, seed + (uint64_t)i, 1, error);
        if (rc == HEARTH_OK) rc = finish_all(b, error);
        drop_all(b);
    }
    return rc;
}

/* ---- Measuring ---- */

/* Milliseconds for a token of all streams together, from the moment at which the last stream has its first token to the
 * first one's last token; less than 0: they were never all at it. */
static double token_ms(const struct bench *b)
{
    int64_t from = INT64_MIN, to = INT64_MAX;
    size_t n = 0;
    for (size_t i = 0; i < b->n_streams; i++) {
        const struct stream *s = b->streams[i];
        if (s->times[0] > from) from = s->times[0];
        if (s->times[s->n_times - 1] < to) to = s->times[s->n_times - 1];
    }
    for (size_t i = 0; i < b->n_streams; i++)
        for (size_t j = 0; j < b->streams[i]->n_times; j++)
            n += b->streams[i]->times[j] > from && b->streams[i]->times[j] <= to;
    return n > 0 ? clock_to_ms(to - from) / (double)n : -1;
}

static int check_replies(const struct bench *b, hearth_error *error)
{
    for (size_t i = 0; i < b->n_streams; i++)
        if (b->streams[i]->n_times != (size_t)b->options->reply)
            return error_set(error, HEARTH_INTERNAL, "a reply has %zu pieces of text, not %ld", b->streams[i]->n_times,
                             b->options->reply);
    if (token_ms(b) < 0) return error_set(error, HEARTH_INTERNAL, "the streams never generated all at once");
    return HEARTH_OK;
}

static int measure_case(struct bench *b, long count, uint64_t prefix, hearth_error *error)
{
    char figure[64];
    uint64_t seed = b->seed + 1;
    b->seed += (uint64_t)count;
    snprintf(figure, sizeof figure, "a token, %ld %s %s", count, count == 1 ? "stream" : "streams",
             prefix != 0 ? "sharing a prefix" : "with nothing in common");
    int rc = prepare(b, count, prefix, seed, error);
    for (long i = 0; i < count && rc == HEARTH_OK; i++)
        rc = ask(b, prefix, seed + (uint64_t)i, b->options->reply, error);
    if (rc == HEARTH_OK) rc = finish_all(b, error);
    if (rc == HEARTH_OK) rc = check_replies(b, error);
    if (rc == HEARTH_OK) report_add(b->report, figure, "ms", token_ms(b));
    drop_all(b);
    return rc;
}

static int measure(struct bench *b, hearth_error *error)
{
    const struct options *o = b->options;
    uint64_t prefix = ++b->seed;
    int rc = HEARTH_OK;
    b->report = report_open("decode", (size_t)o->shared);
    for (size_t i = 0; i < 2 * o->n_counts && rc == HEARTH_OK; i++)
        rc = measure_case(b, o->counts[i / 2], i % 2 ? prefix : 0, error);
    return rc;
}

static int run(const struct options *options)
{
    hearth_error error = {0};
    struct bench b = {.options = options};
    b.client = client_open(options->url, options->model, &error);
    if (b.client != NULL) measure(&b, &error);
    client_close(b.client);
    return report_conclude(b.report, options->json, "hearth_bench_decode", &error);
}

/* ---- Command line ---- */

static void print_help(void)
{
    puts("hearth_bench_decode - the time of a token while so many streams generate at once\n"
         "\n"
         "usage: hearth_bench_decode --url URL [options] [STREAMS]...\n"
         "\n"
         "  STREAMS        so many at once, each number with prompts of their own and with a shared prefix (1 2 4 8 "
         "16)\n"
         "  --url URL      a running hearth or llama-server with as many slots, http://127.0.0.1:8080\n"
         "  --model NAME   the model to name in requests; needed where the server has several\n"
         "  --shared N     tokens of the shared prefix (2000)\n"
         "  --own N        tokens of each prompt that no other has (128)\n"
         "  --reply N      tokens of each reply (96)\n"
         "  --json         print JSON, for bench/compare.mjs\n"
         "\n"
         "example:\n"
         "  hearth_bench_decode --url http://127.0.0.1:8080 1 4 16");
}

static bool read_counts(struct options *o, char **list, int n)
{
    if (n == 0) return true;
    if (n > COUNTS_MAX) return false;
    for (int i = 0; i < n; i++)
        if (!options_number(&o->counts[i], list[i]) || o->counts[i] > STREAMS_MAX) return false;
    o->n_counts = (size_t)n;
    return true;
}

static bool parse(int argc, char **argv, struct options *o)
{
    const struct option_row rows[] = {
        {"url", .text = &o->url},         {"model", .text = &o->model},
        {"shared", .number = &o->shared}, {"own", .number = &o->own},
        {"reply", .number = &o->reply},   {"json", .flag = &o->json},
        {"help", .flag = &o->help},       {0},
    };
    int end = options_parse(argc, argv, rows);
    if (end < 0 || o->help) return end >= 0;
    if (o->url != NULL && read_counts(o, argv + end, argc - end)) return true;
    fprintf(stderr, "hearth_bench_decode: give --url and at most %d numbers of up to %d streams; --help says more\n",
            COUNTS_MAX, STREAMS_MAX);
    return false;
}

int main(int argc, char **argv)
{
    struct options options = {.shared = 2000, .own = 128, .reply = 96, .counts = {1, 2, 4, 8, 16}, .n_counts = 5};
    if (!parse(argc, argv, &options)) return EXIT_BAD_USAGE;
    if (!options.help) return run(&options);
    print_help();
    return EXIT_SUCCESS;
}
