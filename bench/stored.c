/* hearth_bench_stored: the inter-token gaps of a stream whose cells are stored while it runs, compared with those of a
 * server that stores nothing. The two take turns, so that other load on the machine affects both. One thread. */
#include "base/clock.h"
#include "base/error.h"
#include "client.h"
#include "options.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>

static const double max_ratio = 1.1; /* promised */

static const char speed_ratio[] = "tokens a second: cells stored / not";
static const char p99_ratio[] = "99th percentile of the gaps: cells stored / not";

struct options {
    const char *url, *without, *model;
    long prompt, reply, rounds;
    bool json, help;
};

/* One of the two servers. */
struct side {
    const char *name;
    struct client *client;
    struct samples gaps, all; /* inter-token gaps of a round; of all rounds */
};

enum { WITH, WITHOUT, SIDES };

struct bench {
    const struct options *options;
    struct side sides[SIDES];
    struct report *report;
    uint64_t seed; /* of the last prompt: no two share a prefix, so that nothing is cached */
};

/* ---- Measuring ---- */

static int run_stream(struct bench *b, struct side *side, hearth_error *error)
{
    struct tokens prompt = {0};
    client_prompt(&prompt, (size_t)b->options->prompt, ++b->seed);
    struct wish wish = {.prompt = &prompt, .max_tokens = (int32_t)b->options->reply, .from_cache = true};
    struct stream *stream = client_stream(side->client, &wish, error);
    tokens_release(&prompt);
    if (stream == NULL) return error->code;
    int rc = client_finish(side->client, stream, error);
    if (rc == HEARTH_OK && stream->n_times != (size_t)b->options->reply)
        rc = error_set(error, HEARTH_INTERNAL, "a reply has %zu pieces of text, not %ld", stream->n_times,
                       b->options->reply);
    for (size_t i = 1; i < stream->n_times && rc == HEARTH_OK; i++)
        samples_add(&side->gaps, clock_to_ms(stream->times[i] - stream->times[i - 1]));
    client_drop(side->client, stream);
    return rc;
}

static int expect_saves(const struct side *side, int64_t before, hearth_error *error)
{
    if (client_counter(side->client, "saves_continued") > before) return HEARTH_OK;
    return error_set(error, HEARTH_INTERNAL, "nothing was stored while a reply ran: nothing was measured");
}

static void add_figure(struct bench *b, const char *what, const struct side *side, double ms)
{
    char name[80];
    snprintf(name, sizeof name, "%s, %s", what, side->name);
    report_add(b->report, name, "ms", ms);
}

static double mean(const struct samples *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->len; i++) sum += s->v[i];
    return sum / (double)s->len;
}

static void note(struct bench *b)
{
    const struct samples *with = &b->sides[WITH].gaps, *without = &b->sides[WITHOUT].gaps;
    report_add(b->report, speed_ratio, "", mean(without) / mean(with));
    report_add(b->report, p99_ratio, "", samples_percentile(with, 99) / samples_percentile(without, 99));
    for (int i = 0; i < SIDES; i++) {
        struct side *side = &b->sides[i];
        add_figure(b, "99th percentile", side, samples_percentile(&side->gaps, 99));
        add_figure(b, "median gap", side, samples_median(&side->gaps));
        add_figure(b, "largest gap", side, samples_max(&side->gaps));
        for (size_t j = 0; j < side->gaps.len; j++) samples_add(&side->all, side->gaps.v[j]);
        samples_release(&side->gaps);
    }
}

/* Returns when all has been stored, so that saves do not disturb the other side. */
static int measure_side(struct bench *b, struct side *side, hearth_error *error)
{
    bool stores = side == &b->sides[WITH];
    int64_t continued = client_counter(side->client, "saves_continued");
    int64_t finished = client_counter(side->client, "saves_finish");
    int rc = run_stream(b, side, error);
    if (rc == HEARTH_OK && stores) rc = client_wait_counter(side->client, "saves_finish", finished, error);
    return rc == HEARTH_OK && stores ? expect_saves(side, continued, error) : rc;
}

/* The order of the two sides changes from round to round. */
static int run_round(struct bench *b, long round, hearth_error *error)
{
    int rc = HEARTH_OK;
    for (long i = 0; i < SIDES && rc == HEARTH_OK; i++) rc = measure_side(b, &b->sides[(i + round) % SIDES], error);
    if (rc == HEARTH_OK) note(b);
    return rc;
}

static void check_promises(struct bench *b)
{
    double with = samples_percentile(&b->sides[WITH].all, 99), without = samples_percentile(&b->sides[WITHOUT].all, 99);
    report_check(b->report, with <= max_ratio * without,
                 "99th percentile of all gaps: stored %.2f ms <= %.2f x not stored %.2f ms", with, max_ratio, without);
}

/* The first round takes longer than later ones and is discarded. */
static int measure(struct bench *b, hearth_error *error)
{
    int rc = HEARTH_OK;
    b->report = report_open("stored", (size_t)b->options->prompt);
    rc = run_round(b, 0, error);
    report_close(b->report);
    b->report = report_open("stored", (size_t)b->options->prompt);
    for (int i = 0; i < SIDES; i++) samples_release(&b->sides[i].all);
    for (long i = 0; i < b->options->rounds && rc == HEARTH_OK; i++) rc = run_round(b, i, error);
    if (rc == HEARTH_OK) check_promises(b);
    return rc;
}

static int run(const struct options *o)
{
    hearth_error error = {0};
    struct bench b = {.options = o, .sides = {[WITH] = {.name = "stored"}, [WITHOUT] = {.name = "not stored"}}};
    b.sides[WITH].client = client_open(o->url, o->model, &error);
    if (b.sides[WITH].client != NULL) b.sides[WITHOUT].client = client_open(o->without, o->model, &error);
    if (b.sides[WITHOUT].client != NULL) measure(&b, &error);
    for (int i = 0; i < SIDES; i++) {
        client_close(b.sides[i].client);
        samples_release(&b.sides[i].gaps);
        samples_release(&b.sides[i].all);
    }
    return report_conclude(b.report, o->json, "hearth_bench_stored", &error);
}

/* ---- Command line ---- */

static void print_help(void)
{
    puts("hearth_bench_stored - the gaps in a stream whose cells are stored while it runs\n"
         "\n"
         "usage: hearth_bench_stored --url URL --without URL [options]\n"
         "\n"
         "  --url URL      a running hearth that stores every so many tokens (cache.continued_interval: 256)\n"
         "  --without URL  another one with the same model that stores nothing\n"
         "  --model NAME   the model to name in requests; needed where the servers have several\n"
         "  --prompt N     tokens of the prompt (1000)\n"
         "  --reply N      tokens of the reply (768)\n"
         "  --rounds N     measure so many times; medians are printed (3)\n"
         "  --json         print JSON, for bench/compare.mjs\n"
         "\n"
         "example:\n"
         "  hearth_bench_stored --url http://127.0.0.1:8080 --without http://127.0.0.1:8081");
}

static bool parse(int argc, char **argv, struct options *o)
{
    const struct option_row rows[] = {
        {"url", .text = &o->url},         {"without", .text = &o->without}, {"model", .text = &o->model},
        {"prompt", .number = &o->prompt}, {"reply", .number = &o->reply},   {"rounds", .number = &o->rounds},
        {"json", .flag = &o->json},       {"help", .flag = &o->help},       {0},
    };
    int end = options_parse(argc, argv, rows);
    if (end < 0) return false;
    if (o->help) return true;
    if (end < argc || o->url == NULL || o->without == NULL) {
        fputs("hearth_bench_stored: give --url, --without and nothing but options; --help lists them\n", stderr);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct options options = {.prompt = 1000, .reply = 768, .rounds = 3};
    if (!parse(argc, argv, &options)) return EXIT_BAD_USAGE;
    if (!options.help) return run(&options);
    print_help();
    return EXIT_SUCCESS;
}
