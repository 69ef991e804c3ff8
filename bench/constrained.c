/* hearth_bench_constrained: what an output constraint and the reading of tool calls cost: a reply that a JSON schema of
 * 30 fields allows, and a reply of plain text in a chat that has tools. To be run with a model whose tokens take next
 * to no time, so that the server's own work is what is measured. Runs against hearth and llama-server. One thread. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "client.h"
#include "options.h"
#include "report.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS = 30, LETTERS = 20, TOOLS = 4, SCHEMA_TOKENS = 2000 };

struct options {
    const char *url, *model;
    long reply, rounds;
    bool json, help;
};

struct bench {
    const struct options *options;
    struct client *client;
    struct report *report;
    uint64_t seed; /* of the last question: no two are the same */
};

/* ---- Requests ---- */

/* Text of a length that is given, so that replies are as long on every server. The model always proposes the same
 * letter: it fits within texts, as most of what a trained model proposes does, and nowhere between them. */
static json_t *field_schema(void)
{
    return json_pack("{s:s, s:i, s:i}", "type", "string", "minLength", LETTERS, "maxLength", LETTERS);
}

static json_t *object_schema(int n_fields)
{
    json_t *properties = json_object(), *required = json_array();
    for (int i = 0; i < n_fields; i++) {
        char name[16];
        snprintf(name, sizeof name, "field_%02d", i);
        json_object_set_new(properties, name, field_schema());
        json_array_append_new(required, json_string(name));
    }
    return json_pack("{s:s, s:o, s:o, s:b}", "type", "object", "properties", properties, "required", required,
                     "additionalProperties", 0);
}

static json_t *make_tools(void)
{
    json_t *tools = json_array();
    for (int i = 0; i < TOOLS; i++) {
        char name[16];
        snprintf(name, sizeof name, "tool_%d", i);
        json_array_append_new(tools, json_pack("{s:s, s:{s:s, s:s, s:o}}", "type", "function", "function", "name", name,
                                               "description", "Does it.", "parameters", object_schema(4)));
    }
    return tools;
}

static json_t *make_chat(struct bench *b, long max_tokens)
{
    struct buf words = {0};
    char reply_token[16];
    snprintf(reply_token, sizeof reply_token, "%d", CLIENT_REPLY_TOKEN);
    client_words(&words, 20, ++b->seed);
    json_t *chat = json_pack("{s:b, s:i, s:I, s:{s:i}, s:[{s:s, s:s}]}", "stream", 1, "temperature", 0, "max_tokens",
                             (json_int_t)max_tokens, "logit_bias", reply_token, 100, "messages", "role", "user",
                             "content", buf_text(&words));
    if (b->options->model != NULL) json_object_set_new(chat, "model", json_string(b->options->model));
    buf_release(&words);
    return chat;
}

static json_t *ask_for_schema(struct bench *b)
{
    json_t *chat = make_chat(b, SCHEMA_TOKENS);
    json_object_set_new(chat, "response_format",
                        json_pack("{s:s, s:{s:s, s:o}}", "type", "json_schema", "json_schema", "name", "it", "schema",
                                  object_schema(FIELDS)));
    return chat;
}

static json_t *ask_beside_tools(struct bench *b)
{
    json_t *chat = make_chat(b, b->options->reply);
    json_object_set_new(chat, "tools", make_tools());
    json_object_set_new(chat, "ignore_eos", json_true());
    return chat;
}

/* ---- Checking that the reply is what was meant to be measured ---- */

static int check_schema(const struct bench *b, const struct stream *stream, hearth_error *error)
{
    (void)b;
    json_t *reply = json_loads(buf_text(&stream->text), 0, NULL);
    size_t n = json_object_size(reply);
    json_decref(reply);
    if (n == FIELDS) return HEARTH_OK;
    return error_set(error, HEARTH_INTERNAL, "the reply is no object of %d fields: %.200s", FIELDS,
                     buf_text(&stream->text));
}

static int check_length(const struct bench *b, const struct stream *stream, hearth_error *error)
{
    if (stream->text.len == (size_t)b->options->reply) return HEARTH_OK;
    return error_set(error, HEARTH_INTERNAL, "the reply has %zu letters, not %ld", stream->text.len, b->options->reply);
}

/* ---- Measuring ---- */

static const struct task {
    json_t *(*ask)(struct bench *b);
    int (*check)(const struct bench *b, const struct stream *stream, hearth_error *error);
    const char *whole, *first, *letter;
} tasks[] = {
    {ask_for_schema, check_schema, "a schema of 30 fields: time", "a schema of 30 fields: first token",
     "a schema of 30 fields: letters of the reply"},
    {ask_beside_tools, check_length, "tools and a long reply: time", "tools and a long reply: first token",
     "tools and a long reply: letters of the reply"},
};

enum { N_TASKS = sizeof tasks / sizeof tasks[0] };

static void note(struct bench *b, const struct task *task, const struct stream *stream)
{
    report_add(b->report, task->whole, "ms", clock_to_ms(stream->times[stream->n_times - 1] - stream->started));
    report_add(b->report, task->first, "ms", client_first_ms(stream));
    report_add(b->report, task->letter, "", (double)stream->text.len);
}

static int measure_task(struct bench *b, const struct task *task, hearth_error *error)
{
    json_t *chat = task->ask(b);
    char *body = json_dumps(chat, JSON_COMPACT);
    json_decref(chat);
    struct stream *stream =
        client_stream(b->client, &(struct wish){.route = "/v1/chat/completions", .body = body}, error);
    free(body);
    if (stream == NULL) return error->code;
    int rc = client_finish(b->client, stream, error);
    if (rc == HEARTH_OK) rc = task->check(b, stream, error);
    if (rc == HEARTH_OK) note(b, task, stream);
    client_drop(b->client, stream);
    return rc;
}

static int run_round(struct bench *b, hearth_error *error)
{
    int rc = HEARTH_OK;
    for (size_t i = 0; i < N_TASKS && rc == HEARTH_OK; i++) rc = measure_task(b, &tasks[i], error);
    return rc;
}

/* The server's first request takes longer than later ones: the shorter task precedes the rounds. */
static int measure(struct bench *b, hearth_error *error)
{
    b->report = report_open("constrained", 0);
    int rc = measure_task(b, &tasks[N_TASKS - 1], error);
    report_close(b->report);
    b->report = report_open("constrained", 0);
    for (long i = 0; i < b->options->rounds && rc == HEARTH_OK; i++) rc = run_round(b, error);
    return rc;
}

static int run(const struct options *options)
{
    hearth_error error = {0};
    struct bench b = {.options = options};
    b.client = client_open(options->url, options->model, &error);
    if (b.client != NULL) measure(&b, &error);
    client_close(b.client);
    return report_conclude(b.report, options->json, "hearth_bench_constrained", &error);
}

/* ---- Command line ---- */

static void print_help(void)
{
    puts("hearth_bench_constrained - what a JSON schema costs, and tools beside a long reply\n"
         "\n"
         "usage: hearth_bench_constrained --url URL [options]\n"
         "\n"
         "  --url URL      a running hearth or llama-server, http://127.0.0.1:8080\n"
         "  --model NAME   the model to name in requests; needed where the server has several\n"
         "  --reply N      tokens of the reply beside tools (1000)\n"
         "  --rounds N     measure so many times; medians are printed (3)\n"
         "  --json         print JSON, for bench/compare.mjs\n"
         "\n"
         "example:\n"
         "  hearth_bench_constrained --url http://127.0.0.1:8080");
}

static bool parse(int argc, char **argv, struct options *o)
{
    const struct option_row rows[] = {
        {"url", .text = &o->url},
        {"model", .text = &o->model},
        {"reply", .number = &o->reply},
        {"rounds", .number = &o->rounds},
        {"json", .flag = &o->json},
        {"help", .flag = &o->help},
        {0},
    };
    int end = options_parse(argc, argv, rows);
    if (end < 0 || o->help) return end >= 0;
    if (end == argc && o->url != NULL) return true;
    fputs("hearth_bench_constrained: give --url and nothing but options; --help lists them\n", stderr);
    return false;
}

int main(int argc, char **argv)
{
    struct options options = {.reply = 1000, .rounds = 3};
    if (!parse(argc, argv, &options)) return EXIT_BAD_USAGE;
    if (!options.help) return run(&options);
    print_help();
    return EXIT_SUCCESS;
}
