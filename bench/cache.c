/* hearth_bench_cache: time to first token of a chat, cold and with what the server has cached: the same chat again, its
 * next turn, the chat with another end of its question, another chat with the same system prompt. To be run against
 * servers that differ in what they cache. One thread. */
#include "base/buf.h"
#include "base/error.h"
#include "client.h"
#include "options.h"
#include "report.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { EDITED = 5 }; /* words at the end of a question */

struct options {
    const char *url, *model, *name;
    long system, user, added, rounds; /* words, but for the last */
    bool json, help;
};

struct bench {
    const struct options *options;
    struct client *client;
    struct report *report;
    uint64_t seed; /* of the last generated words: each use has its own, so that only the intended prefix is shared */
};

/* ---- Chats ---- */

static void begin_message(struct buf *out, const char *role)
{
    buf_printf(out, "%s{\"role\":\"%s\",\"content\":\"", out->len > 1 ? "," : "", role);
}

static void end_message(struct buf *out)
{
    buf_puts(out, "\"}");
}

static void put_message(struct buf *out, const char *role, long n, uint64_t seed)
{
    begin_message(out, role);
    client_words(out, n, seed);
    end_message(out);
}

/* The seeds of a round's messages. */
struct seeds {
    uint64_t system, user, reply, question;
};

static void first_turn(struct buf *out, const struct options *o, const struct seeds *seeds)
{
    buf_clear(out);
    buf_puts(out, "[");
    put_message(out, "system", o->system, seeds->system);
    put_message(out, "user", o->user, seeds->user);
}

static void next_turn(struct buf *out, const struct options *o, const struct seeds *seeds)
{
    first_turn(out, o, seeds);
    put_message(out, "assistant", o->added, seeds->reply);
    put_message(out, "user", o->added, seeds->question);
}

/* The first turn again, after its question was edited: its last words are others. */
static void edited_turn(struct buf *out, const struct options *o, const struct seeds *seeds)
{
    buf_clear(out);
    buf_puts(out, "[");
    put_message(out, "system", o->system, seeds->system);
    begin_message(out, "user");
    client_words(out, o->user - EDITED, seeds->user);
    client_words(out, EDITED, seeds->question);
    end_message(out);
}

/* A chat with the same system prompt and another message. */
static void another_chat(struct buf *out, const struct options *o, const struct seeds *seeds)
{
    first_turn(out, o, &(struct seeds){.system = seeds->system, .user = seeds->question});
}

/* ---- Measuring ---- */

static const struct ask {
    const char *name, *computed;
    void (*put)(struct buf *out, const struct options *o, const struct seeds *seeds);
} asks[] = {
    {"time to first token, cold", "tokens computed, cold", first_turn},
    {"the same again", "tokens computed, the same again", first_turn},
    {"a turn further", "tokens computed, a turn further", next_turn},
    {"the question edited", "tokens computed, the question edited", edited_turn},
    {"another chat, same system prompt", "tokens computed, another chat", another_chat},
};

enum { N_ASKS = sizeof asks / sizeof asks[0] };

/* Of a stream that is complete. */
static void note(struct bench *b, const struct ask *ask, const struct stream *stream)
{
    report_add(b->report, ask->name, "ms", client_first_ms(stream));
    report_add(b->report, ask->computed, "", (double)stream->n_computed);
    if (stream->n_cached > 0 && !isnan(stream->restore_ms))
        report_add(b->report, "of these: fetching what is cached", "ms", stream->restore_ms);
    if (!isnan(stream->queue_ms)) report_add(b->report, "rendering, tokenising, comparing", "ms", stream->queue_ms);
}

static int measure_ask(struct bench *b, const struct ask *ask, const struct seeds *seeds, hearth_error *error)
{
    struct buf messages = {0};
    ask->put(&messages, b->options, seeds);
    buf_puts(&messages, "]");
    char *text = buf_take(&messages);
    struct wish wish = {.messages = text, .max_tokens = 2, .from_cache = true};
    struct stream *stream = client_stream(b->client, &wish, error);
    free(text);
    if (stream == NULL) return error->code;
    int rc = client_finish(b->client, stream, error);
    if (rc == HEARTH_OK && (stream->n_times == 0 || stream->n_computed < 0))
        rc = error_set(error, HEARTH_INTERNAL, "a reply has no text or does not say what it cost");
    if (rc == HEARTH_OK) note(b, ask, stream);
    client_drop(b->client, stream);
    return rc;
}

static int run_round(struct bench *b, hearth_error *error)
{
    struct seeds seeds = {b->seed + 1, b->seed + 2, b->seed + 3, b->seed + 4};
    int rc = HEARTH_OK;
    b->seed += 4;
    for (size_t i = 0; i < N_ASKS && rc == HEARTH_OK; i++) rc = measure_ask(b, &asks[i], &seeds, error);
    return rc;
}

static int measure(struct bench *b, hearth_error *error)
{
    const struct options *o = b->options;
    int rc = HEARTH_OK;
    /* A warm-up: the server's first prompt takes longer than later ones. */
    b->report = report_open(o->name, 0);
    rc = run_round(b, error);
    report_close(b->report);
    b->report = report_open(o->name, (size_t)(o->system + o->user));
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
    return report_conclude(b.report, options->json, "hearth_bench_cache", &error);
}

/* ---- Command line ---- */

static void print_help(void)
{
    puts("hearth_bench_cache - time to first token of a chat, cold and with what the server keeps of it\n"
         "\n"
         "usage: hearth_bench_cache --url URL [options]\n"
         "\n"
         "  --url URL      a running hearth or llama-server, http://127.0.0.1:8080\n"
         "  --model NAME   the model to name in requests; needed where the server has several\n"
         "  --system N     words of the system prompt (1540)\n"
         "  --user N       words of the user's message, more than 5 (460)\n"
         "  --added N      words of each of the two messages that are added (30)\n"
         "  --rounds N     measure so many times; medians are printed (3)\n"
         "  --json         print JSON, for bench/compare.mjs\n"
         "\n"
         "examples:\n"
         "  hearth_bench_cache --url http://127.0.0.1:8080\n"
         "  hearth_bench_cache --url http://127.0.0.1:8080 --system 6800 --user 1600");
}

static bool parse(int argc, char **argv, struct options *o)
{
    const struct option_row rows[] = {
        {"url", .text = &o->url},         {"model", .text = &o->model},
        {"system", .number = &o->system}, {"user", .number = &o->user},
        {"added", .number = &o->added},   {"rounds", .number = &o->rounds},
        {"name", .text = &o->name},       {"json", .flag = &o->json},
        {"help", .flag = &o->help},       {0},
    };
    int end = options_parse(argc, argv, rows);
    if (end < 0) return false;
    if (o->help) return true;
    if (end < argc || o->url == NULL || o->user <= EDITED) {
        fputs("hearth_bench_cache: give --url and nothing but options; --help lists them\n", stderr);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct options options = {.name = "cache", .system = 1540, .user = 460, .added = 30, .rounds = 3};
    if (!parse(argc, argv, &options)) return EXIT_BAD_USAGE;
    if (!options.help) return run(&options);
    print_help();
    return EXIT_SUCCESS;
}
