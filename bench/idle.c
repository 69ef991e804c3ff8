/* hearth_bench_idle: what conversations that are kept cost somebody who has none: the first token of a cold prompt and
 * the tokens of its reply, before and after so many conversations have come and gone; and what it costs the oldest of
 * them to come back. One thread. */
#include "base/error.h"
#include "client.h"
#include "options.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>

enum { KEPT_MAX = 64, ADDED = 32 }; /* ADDED: new tokens of those that come back */

struct options {
    const char *url, *model;
    long conversations, length, prompt, reply, rounds;
    bool json, help;
};

struct bench {
    const struct options *options;
    struct client *client;
    struct report *report;
    struct tokens kept[KEPT_MAX]; /* what the conversations had in their cells, and their last token */
    uint64_t seed;                /* of the last prompt: no two begin alike */
};

/* ---- Requests ---- */

/* The caller drops the stream. NULL: failed. */
static struct stream *ask(struct bench *b, const struct tokens *prompt, bool from_cache, hearth_error *error)
{
    struct wish wish = {.prompt = prompt, .max_tokens = (int32_t)b->options->reply, .from_cache = from_cache};
    struct stream *stream = client_stream(b->client, &wish, error);
    if (stream == NULL || client_finish(b->client, stream, error) == HEARTH_OK) return stream;
    client_drop(b->client, stream);
    return NULL;
}

/* A prompt of somebody who has no conversation. Nothing of it is kept. */
static int ask_cold(struct bench *b, double *first_ms, double *each_ms, hearth_error *error)
{
    struct tokens prompt = {0};
    client_prompt(&prompt, (size_t)b->options->prompt, ++b->seed);
    struct stream *stream = ask(b, &prompt, false, error);
    tokens_release(&prompt);
    if (stream == NULL) return error->code;
    *first_ms = client_first_ms(stream);
    *each_ms = client_token_ms(stream);
    client_drop(b->client, stream);
    return HEARTH_OK;
}

static int converse(struct bench *b, struct tokens *kept, hearth_error *error)
{
    client_prompt(kept, (size_t)b->options->length, ++b->seed);
    struct stream *stream = ask(b, kept, true, error);
    if (stream == NULL) return error->code;
    for (size_t i = 0; i < stream->n_times; i++) tokens_push(kept, CLIENT_REPLY_TOKEN);
    client_drop(b->client, stream);
    return HEARTH_OK;
}

static int come_back(struct bench *b, struct tokens *kept, hearth_error *error)
{
    client_prompt(kept, ADDED, ++b->seed);
    struct stream *stream = ask(b, kept, true, error);
    if (stream == NULL) return error->code;
    report_add(b->report, "the oldest comes back: time to first token", "ms", client_first_ms(stream));
    report_add(b->report, "prompt tokens computed for it", "", (double)stream->n_computed);
    client_drop(b->client, stream);
    return HEARTH_OK;
}

/* ---- Measuring ---- */

static int measure_cold(struct bench *b, const char *first, const char *each, hearth_error *error)
{
    int rc = HEARTH_OK;
    double first_ms = 0, each_ms = 0;
    for (long round = 0; round < b->options->rounds && rc == HEARTH_OK; round++) {
        rc = ask_cold(b, &first_ms, &each_ms, error);
        if (rc != HEARTH_OK) break;
        report_add(b->report, first, "ms", first_ms);
        report_add(b->report, each, "ms", each_ms);
    }
    return rc;
}

/* The factor by which a figure has grown. */
static void add_growth(struct bench *b, const char *figure, const char *before, const char *after)
{
    double was = samples_median(report_samples(b->report, before)),
           is = samples_median(report_samples(b->report, after));
    report_add(b->report, figure, "", is / was);
}

/* The server's first batches take longer than later ones: one request precedes all. */
static int measure(struct bench *b, hearth_error *error)
{
    static const char *const first[] = {"first token of a cold prompt, nothing kept",
                                        "first token of a cold prompt, conversations kept"};
    static const char *const each[] = {"a token of its reply, nothing kept",
                                       "a token of its reply, conversations kept"};
    const struct options *o = b->options;
    double first_ms, each_ms;
    b->report = report_open("idle", (size_t)o->prompt);
    int rc = ask_cold(b, &first_ms, &each_ms, error);
    if (rc == HEARTH_OK) rc = measure_cold(b, first[0], each[0], error);
    for (long i = 0; i < o->conversations && rc == HEARTH_OK; i++) rc = converse(b, &b->kept[i], error);
    if (rc == HEARTH_OK) rc = measure_cold(b, first[1], each[1], error);
    if (rc != HEARTH_OK) return rc;
    add_growth(b, "first token, as a multiple", first[0], first[1]);
    add_growth(b, "a token of the reply, as a multiple", each[0], each[1]);
    for (long i = 0; i < o->rounds && i < o->conversations && rc == HEARTH_OK; i++)
        rc = come_back(b, &b->kept[i], error);
    return rc;
}

static int run(const struct options *options)
{
    hearth_error error = {0};
    struct bench b = {.options = options};
    b.client = client_open(options->url, options->model, &error);
    if (b.client != NULL) measure(&b, &error);
    client_close(b.client);
    for (size_t i = 0; i < KEPT_MAX; i++) tokens_release(&b.kept[i]);
    return report_conclude(b.report, options->json, "hearth_bench_idle", &error);
}

/* ---- Command line ---- */

static void print_help(void)
{
    puts("hearth_bench_idle - what idle conversations cost somebody else, and what it costs them to come back\n"
         "\n"
         "usage: hearth_bench_idle --url URL [options]\n"
         "\n"
         "  --url URL            a running hearth or llama-server, http://127.0.0.1:8080\n"
         "  --model NAME         the model to name in requests; needed where the server has several\n"
         "  --conversations N    conversations that come and go, up to 64 (12)\n"
         "  --length N           tokens of each (2000)\n"
         "  --prompt N           tokens of a cold prompt (600)\n"
         "  --reply N            tokens of each reply (32)\n"
         "  --rounds N           measure so many cold prompts and returns; medians are printed (3)\n"
         "  --json               print JSON, for bench/compare.mjs\n"
         "\n"
         "example:\n"
         "  hearth_bench_idle --url http://127.0.0.1:8080");
}

static bool parse(int argc, char **argv, struct options *o)
{
    const struct option_row rows[] = {
        {.name = "url", .text = &o->url},
        {.name = "model", .text = &o->model},
        {.name = "conversations", .number = &o->conversations},
        {.name = "length", .number = &o->length},
        {.name = "prompt", .number = &o->prompt},
        {.name = "reply", .number = &o->reply},
        {.name = "rounds", .number = &o->rounds},
        {.name = "json", .flag = &o->json},
        {.name = "help", .flag = &o->help},
        {0},
    };
    int first = options_parse(argc, argv, rows);
    if (first < 0 || o->help) return first >= 0;
    if (first == argc && o->url != NULL && o->conversations <= KEPT_MAX) return true;
    fprintf(stderr,
            "hearth_bench_idle: give --url, at most %d --conversations, and nothing but options; --help lists "
            "them\n",
            KEPT_MAX);
    return false;
}

int main(int argc, char **argv)
{
    struct options options = {.conversations = 12, .length = 2000, .prompt = 600, .reply = 32, .rounds = 3};
    if (!parse(argc, argv, &options)) return EXIT_BAD_USAGE;
    if (!options.help) return run(&options);
    print_help();
    return EXIT_SUCCESS;
}
