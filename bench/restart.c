/* hearth_bench_restart: time to first token of a conversation's next turn after the server was ended by TERM, or by
 * KILL, and started again, compared with that of its first turn, which was computed whole. Runs against hearth and
 * llama-server. One thread.
 *
 * It has only the server's address: the caller ends and starts the server. A line "restart TERM" or "restart KILL" on
 * stdout asks for that, a line on stdin gives the new address. */
#include "base/error.h"
#include "client.h"
#include "options.h"
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256 }; /* cache.boundary_align_tokens: an incomplete block of a prompt need not be stored */

static const char cold[] = "first token of the first turn, cold";

/* How the server is ended, and the figures of the turn after that. */
static const struct ending {
    const char *name, *first, *ratio, *computed, *fetching;
} endings[] = {
    {"TERM", "first token after TERM and a restart", "after TERM / cold", "prompt tokens computed after TERM",
     "of the first token after TERM: fetching what is stored"},
    {"KILL", "first token after KILL and a restart", "after KILL / cold", "prompt tokens computed after KILL",
     "of the first token after KILL: fetching what is stored"},
};

enum { N_ENDINGS = sizeof endings / sizeof endings[0] };

struct options {
    const char *url, *model;
    long prompt, reply, added, rounds;
    bool json, help;
};

struct bench {
    const struct options *options;
    struct client *client;
    struct report *report;
    uint64_t seed; /* of the last generated tokens */
};

/* ---- One turn ---- */

/* The measurements of a turn. */
struct turn {
    double first_ms, restore_ms;
    int64_t n_computed;
};

static int await_reply(struct bench *b, const struct stream *stream, struct turn *turn, hearth_error *error)
{
    int rc = client_finish(b->client, stream, error);
    if (rc != HEARTH_OK) return rc;
    if (stream->n_times != (size_t)b->options->reply || stream->n_computed < 0)
        return error_set(error, HEARTH_INTERNAL,
                         "a reply has %zu pieces of text, not %ld, or does not say what it cost", stream->n_times,
                         b->options->reply);
    *turn = (struct turn){
        .first_ms = client_first_ms(stream), .restore_ms = stream->restore_ms, .n_computed = stream->n_computed};
    return HEARTH_OK;
}

/* Returns when the turn's cells have been stored, where the server stores. */
static int take_turn(struct bench *b, struct tokens *prompt, struct turn *turn, hearth_error *error)
{
    struct wish wish = {.prompt = prompt, .max_tokens = (int32_t)b->options->reply, .from_cache = true};
    int64_t saves = client_counter(b->client, "saves_finish");
    struct stream *stream = client_stream(b->client, &wish, error);
    if (stream == NULL) return error->code;
    int rc = await_reply(b, stream, turn, error);
    client_drop(b->client, stream);
    for (long i = 0; i < b->options->reply; i++) tokens_push(prompt, CLIENT_REPLY_TOKEN);
    if (rc == HEARTH_OK && saves >= 0) rc = client_wait_counter(b->client, "saves_finish", saves, error);
    return rc;
}

/* ---- Between the turns ---- */

static int ask_for_restart(struct bench *b, const struct ending *ending, hearth_error *error)
{
    char url[256];
    printf("restart %s\n", ending->name);
    fflush(stdout);
    if (fgets(url, sizeof url, stdin) == NULL)
        return error_set(error, HEARTH_IO, "no line on stdin says where the server is now");
    url[strcspn(url, "\n")] = '\0';
    client_move(b->client, url);
    return HEARTH_OK;
}

/* ---- Measuring ---- */

static void note(struct bench *b, const struct ending *ending, const struct turn *first, const struct turn *next)
{
    report_add(b->report, ending->first, "ms", next->first_ms);
    report_add(b->report, ending->ratio, "", next->first_ms / first->first_ms);
    report_add(b->report, ending->computed, "", (double)next->n_computed);
    report_add(b->report, cold, "ms", first->first_ms);
    if (!isnan(next->restore_ms)) report_add(b->report, ending->fetching, "ms", next->restore_ms);
}

static int run_round(struct bench *b, const struct ending *ending, hearth_error *error)
{
    struct turn first, next;
    struct tokens prompt = {0};
    client_prompt(&prompt, (size_t)b->options->prompt, ++b->seed);
    int rc = take_turn(b, &prompt, &first, error);
    client_prompt(&prompt, (size_t)b->options->added, ++b->seed);
    if (rc == HEARTH_OK && first.n_computed < b->options->prompt)
        rc = error_set(error, HEARTH_INTERNAL, "some of a first turn came from a cache: nothing was measured");
    if (rc == HEARTH_OK) rc = ask_for_restart(b, ending, error);
    if (rc == HEARTH_OK) rc = take_turn(b, &prompt, &next, error);
    if (rc == HEARTH_OK) note(b, ending, &first, &next);
    tokens_release(&prompt);
    return rc;
}

static void check_promises(struct bench *b)
{
    long limit = BLOCK + b->options->added;
    for (size_t i = 0; i < N_ENDINGS; i++) {
        double most = samples_max(report_samples(b->report, endings[i].computed));
        report_check(b->report, most <= (double)limit, "%s, at most %.0f <= a block + what is new = %ld",
                     endings[i].computed, most, limit);
    }
}

/* The server's first prompt takes longer than later ones: a short one precedes the rounds. */
static int measure(struct bench *b, hearth_error *error)
{
    const struct options *o = b->options;
    struct turn unused;
    struct tokens prompt = {0};
    b->report = report_open("restart", (size_t)o->prompt);
    client_prompt(&prompt, BLOCK, ++b->seed);
    int rc = take_turn(b, &prompt, &unused, error);
    tokens_release(&prompt);
    for (long i = 0; i < o->rounds * N_ENDINGS && rc == HEARTH_OK; i++)
        rc = run_round(b, &endings[i % N_ENDINGS], error);
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
    return report_conclude(b.report, options->json, "hearth_bench_restart", &error);
}

/* ---- Command line ---- */

static void print_help(void)
{
    puts("hearth_bench_restart - time to first token of the next turn after the server was ended and started again\n"
         "\n"
         "usage: hearth_bench_restart --url URL [options]\n"
         "\n"
         "When it prints \"restart\" and a signal's name, send that to the server, start it again, and type its "
         "address.\n"
         "\n"
         "  --url URL      a running hearth or llama-server, http://127.0.0.1:8080\n"
         "  --model NAME   the model to name in requests; needed where the server has several\n"
         "  --prompt N     tokens of the first prompt (8192)\n"
         "  --reply N      tokens of a reply (64)\n"
         "  --added N      tokens that follow the reply (50)\n"
         "  --rounds N     measure so many times with each signal; medians are printed (1)\n"
         "  --json         print JSON, for bench/compare.mjs\n"
         "\n"
         "example:\n"
         "  hearth_bench_restart --url http://127.0.0.1:8080 --rounds 1");
}

static bool parse(int argc, char **argv, struct options *o)
{
    const struct option_row rows[] = {
        {"url", .text = &o->url},       {"model", .text = &o->model},   {"prompt", .number = &o->prompt},
        {"reply", .number = &o->reply}, {"added", .number = &o->added}, {"rounds", .number = &o->rounds},
        {"json", .flag = &o->json},     {"help", .flag = &o->help},     {0},
    };
    int end = options_parse(argc, argv, rows);
    if (end < 0) return false;
    if (o->help) return true;
    if (end < argc || o->url == NULL) {
        fputs("hearth_bench_restart: give --url and nothing but options; --help lists them\n", stderr);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct options options = {.prompt = 8192, .reply = 64, .added = 50, .rounds = 1};
    if (!parse(argc, argv, &options)) return EXIT_BAD_USAGE;
    if (!options.help) return run(&options);
    print_help();
    return EXIT_SUCCESS;
}
