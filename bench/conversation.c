/* hearth_bench_conversation: time to first token of a conversation that grows by as many tokens each turn, turn by
 * turn: every turn's prompt is the last one's, its reply, and something new. Runs against hearth and llama-server. One
 * thread.
 */
#include "base/error.h"
#include "client.h"
#include "options.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>

static const char first_token[] = "first token, turn by turn";
static const char computed[] = "prompt tokens computed, turn by turn";
static const char reply_token[] = "a token of the reply, turn by turn";

struct options {
    const char *url, *model;
    long turns, grows, reply;
    bool json, help;
};

struct bench {
    const struct options *options;
    struct client *client;
    struct report *report;
    uint64_t seed; /* of the last generated tokens */
};

/* ---- A turn ---- */

/* Appends what is new to the prompt, asks, and appends the reply. The caller drops the stream. NULL: failed. */
static struct stream *take_turn(struct bench *b, struct tokens *prompt, hearth_error *error)
{
    const struct options *o = b->options;
    client_prompt(prompt, (size_t)(o->grows - o->reply), ++b->seed);
    struct wish wish = {.prompt = prompt, .max_tokens = (int32_t)o->reply, .from_cache = true};
    struct stream *stream = client_stream(b->client, &wish, error);
    if (stream == NULL) return NULL;
    int rc = client_finish(b->client, stream, error);
    if (rc == HEARTH_OK && stream->n_times != (size_t)o->reply)
        rc = error_set(error, HEARTH_INTERNAL, "a reply has %zu pieces of text, not %ld", stream->n_times, o->reply);
    for (long i = 0; i < o->reply; i++) tokens_push(prompt, CLIENT_REPLY_TOKEN);
    if (rc == HEARTH_OK) return stream;
    client_drop(b->client, stream);
    return NULL;
}

static int converse(struct bench *b, long turns, hearth_error *error)
{
    struct tokens prompt = {0};
    for (long turn = 0; turn < turns && error->code == HEARTH_OK; turn++) {
        struct stream *stream = take_turn(b, &prompt, error);
        if (stream == NULL) break;
        report_add(b->report, first_token, "ms", client_first_ms(stream));
        report_add(b->report, computed, "", (double)stream->n_computed);
        report_add(b->report, reply_token, "ms", client_token_ms(stream));
        client_drop(b->client, stream);
    }
    tokens_release(&prompt);
    return error->code;
}

/* The server's first prompt takes longer than later ones: a turn of another conversation precedes all. */
static int measure(struct bench *b, hearth_error *error)
{
    const struct options *o = b->options;
    b->report = report_open("conversation", (size_t)(o->turns * o->grows));
    int rc = converse(b, 1, error);
    report_close(b->report);
    b->report = report_open("conversation", (size_t)(o->turns * o->grows));
    return rc == HEARTH_OK ? converse(b, o->turns, error) : rc;
}

static int run(const struct options *options)
{
    hearth_error error = {0};
    struct bench b = {.options = options};
    b.client = client_open(options->url, options->model, &error);
    if (b.client != NULL) measure(&b, &error);
    client_close(b.client);
    return report_conclude(b.report, options->json, "hearth_bench_conversation", &error);
}

/* ---- Command line ---- */

static void print_help(void)
{
    puts("hearth_bench_conversation - time to first token of a growing conversation, turn by turn\n"
         "\n"
         "usage: hearth_bench_conversation --url URL [options]\n"
         "\n"
         "  --url URL      a running hearth or llama-server, http://127.0.0.1:8080\n"
         "  --model NAME   the model to name in requests; needed where the server has several\n"
         "  --turns N      prompts of the conversation (20)\n"
         "  --grows N      tokens by which it grows each turn, the reply's among them (200)\n"
         "  --reply N      tokens of a reply, fewer than these (50)\n"
         "  --json         print JSON, for bench/compare.mjs\n"
         "\n"
         "example:\n"
         "  hearth_bench_conversation --url http://127.0.0.1:8080");
}

static bool parse(int argc, char **argv, struct options *o)
{
    const struct option_row rows[] = {
        {"url", .text = &o->url},       {"model", .text = &o->model},
        {"turns", .number = &o->turns}, {"grows", .number = &o->grows},
        {"reply", .number = &o->reply}, {"json", .flag = &o->json},
        {"help", .flag = &o->help},     {0},
    };
    int end = options_parse(argc, argv, rows);
    if (end < 0 || o->help) return end >= 0;
    if (end == argc && o->url != NULL && o->grows > o->reply) return true;
    fputs("hearth_bench_conversation: give --url, fewer --reply than --grows, and nothing but options; --help lists "
          "them\n",
          stderr);
    return false;
}

int main(int argc, char **argv)
{
    struct options options = {.turns = 20, .grows = 200, .reply = 50};
    if (!parse(argc, argv, &options)) return EXIT_BAD_USAGE;
    if (!options.help) return run(&options);
    print_help();
    return EXIT_SUCCESS;
}
