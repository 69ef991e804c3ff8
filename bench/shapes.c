/* hearth_bench_shapes: what the traffic of five coding agents costs. Bodies have the shapes that the agents were seen
 * to send, each in its API, with as many tokens in the same places; the words are made up. Each agent has a
 * conversation of three turns, and asks a question in each of two more folders. An agent that the server refuses has no
 * figures. Runs against hearth and llama-server. One thread. */
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

enum { TURNS = 3, FOLDERS = 3, REPLY = 16, SAID_MAX = 2 * TURNS };

struct options {
    const char *url, *model;
    long percent; /* of the sizes that agents have */
    bool json, help;
};

/* One agent's conversation in one folder: questions and replies in turn. */
struct talk {
    int folder;
    char *said[SAID_MAX];
    size_t n_said;
};

/* Sizes are words, about a token each. `facts_at`: the folder's facts come so far behind the beginning of the
 * instructions; 0: in a message of their own. */
struct agent {
    const char *name, *route;
    json_t *(*body)(const struct agent *agent, const struct options *o, const struct talk *talk);
    long rules, facts_at, tool_words;
    int n_tools;
};

/* ---- Words ---- */

static json_t *text_of(const struct buf *buf)
{
    return json_string(buf_text(buf));
}

static void put_words(struct buf *out, const struct options *o, long n, uint64_t seed)
{
    client_words(out, n * o->percent / 100, seed);
}

static void put_facts(struct buf *out, const struct talk *talk)
{
    buf_printf(out, "\nWorking directory: /home/otti/%d\nPlatform: linux\nToday: 2026-01-02\nFiles:", talk->folder);
    client_words(out, 40, 100 + (uint64_t)talk->folder);
    buf_puts(out, "\n");
}

static json_t *facts(const struct talk *talk)
{
    struct buf buf = {0};
    put_facts(&buf, talk);
    json_t *text = text_of(&buf);
    buf_release(&buf);
    return text;
}

/* An agent's instructions; its seed is what makes them its own. */
static json_t *rules(const struct agent *agent, const struct options *o, const struct talk *talk)
{
    struct buf buf = {0};
    uint64_t seed = (uint64_t)(agent->rules + agent->n_tools);
    put_words(&buf, o, agent->facts_at > 0 ? agent->facts_at : agent->rules, seed);
    if (agent->facts_at > 0) {
        put_facts(&buf, talk);
        put_words(&buf, o, agent->rules - agent->facts_at, seed + 1);
    }
    json_t *text = text_of(&buf);
    buf_release(&buf);
    return text;
}

/* ---- Tools ---- */

static json_t *parameters(void)
{
    return json_pack("{s:s, s:{s:{s:s}, s:{s:s}}, s:[s]}", "type", "object", "properties", "path", "type", "string",
                     "text", "type", "string", "required", "path");
}

/* {"name", "description"} and the parameters, called as the API calls them. */
static json_t *tool(const struct agent *agent, const struct options *o, int number, const char *parameters_name)
{
    struct buf buf = {0};
    char *name = mem_format("tool_%d", number);
    put_words(&buf, o, agent->tool_words, (uint64_t)number + 1);
    json_t *tool =
        json_pack("{s:s, s:o, s:o}", "name", name, "description", text_of(&buf), parameters_name, parameters());
    free(name);
    buf_release(&buf);
    return tool;
}

static void add_type(json_t *list, const char *type)
{
    json_array_append_new(list, json_pack("{s:s}", "type", type));
}

/* ---- Bodies ---- */

static const char *role_of(size_t i)
{
    return i % 2 ? "assistant" : "user";
}

/* Blocks of system text, the first of which changes with every conversation; a system message later on. */
static json_t *claude(const struct agent *agent, const struct options *o, const struct talk *talk)
{
    static const char *const stamps[FOLDERS] = {"7a9", "94d", "430"};
    char *header =
        mem_format("x-anthropic-billing-header: cc_version=2.1.197.%s; cc_entrypoint=sdk-cli;", stamps[talk->folder]);
    json_t *tools = json_array(), *messages = json_array();
    for (int i = 0; i < agent->n_tools; i++) json_array_append_new(tools, tool(agent, o, i, "input_schema"));
    json_array_append_new(messages, json_pack("{s:s, s:[{s:s, s:o}, {s:s, s:s}]}", "role", "user", "content", "type",
                                              "text", "text", facts(talk), "type", "text", "text", talk->said[0]));
    json_array_append_new(messages,
                          json_pack("{s:s, s:s}", "role", "system", "content", "Skills that you have: none."));
    for (size_t i = 1; i < talk->n_said; i++)
        json_array_append_new(messages, json_pack("{s:s, s:[{s:s, s:s}]}", "role", role_of(i), "content", "type",
                                                  "text", "text", talk->said[i]));
    json_t *body = json_pack("{s:b, s:i, s:[{s:s, s:s}, {s:s, s:s}, {s:s, s:o, s:{s:s}}], s:o, s:o, s:{s:s}, s:{s:s}}",
                             "stream", 1, "max_tokens", REPLY, "system", "type", "text", "text", header, "type", "text",
                             "text", "You are an agent for programs.", "type", "text", "text", rules(agent, o, talk),
                             "cache_control", "type", "ephemeral", "tools", tools, "messages", messages, "thinking",
                             "type", "adaptive", "metadata", "user_id", "user_1");
    free(header);
    return body;
}

static void add_item(json_t *input, const char *role, const char *type, json_t *text)
{
    json_array_append_new(input, json_pack("{s:s, s:s, s:[{s:s, s:o}]}", "type", "message", "role", role, "content",
                                           "type", type, "text", text));
}

/* Items, a developer's message, tools in a namespace, and such as only their maker's servers have. */
static json_t *codex(const struct agent *agent, const struct options *o, const struct talk *talk)
{
    json_t *tools = json_array(), *input = json_array(), *space = json_array();
    for (int i = 0; i < agent->n_tools; i++) {
        json_t *one = tool(agent, o, i, "parameters");
        json_object_set_new(one, "type", json_string("function"));
        json_array_append_new(i % 4 == 3 ? space : tools, one);
    }
    json_array_append_new(tools, json_pack("{s:s, s:s, s:s, s:o}", "type", "namespace", "name", "agents", "description",
                                           "Other agents", "tools", space));
    add_type(tools, "web_search");
    add_item(input, "developer", "input_text", json_string("Be careful."));
    add_item(input, "user", "input_text", facts(talk));
    for (size_t i = 0; i < talk->n_said; i++)
        add_item(input, role_of(i), i % 2 ? "output_text" : "input_text", json_string(talk->said[i]));
    return json_pack("{s:b, s:i, s:b, s:o, s:[s], s:s, s:{s:s}, s:b, s:s, s:o, s:o}", "stream", 1, "max_output_tokens",
                     REPLY, "store", 0, "instructions", rules(agent, o, talk), "include", "reasoning.encrypted_content",
                     "prompt_cache_key", "one", "reasoning", "summary", "auto", "parallel_tool_calls", 1, "tool_choice",
                     "auto", "tools", tools, "input", input);
}

/* Chats with tools; facts within the instructions. */
static json_t *chat(const struct agent *agent, const struct options *o, const struct talk *talk)
{
    json_t *tools = json_array(), *messages = json_array();
    for (int i = 0; i < agent->n_tools; i++)
        json_array_append_new(tools,
                              json_pack("{s:s, s:o}", "type", "function", "function", tool(agent, o, i, "parameters")));
    json_array_append_new(messages, json_pack("{s:s, s:o}", "role", "system", "content", rules(agent, o, talk)));
    for (size_t i = 0; i < talk->n_said; i++)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", role_of(i), "content", talk->said[i]));
    return json_pack("{s:b, s:i, s:o, s:s, s:{s:b}, s:o}", "stream", 1, "max_tokens", REPLY, "tools", tools,
                     "tool_choice", "auto", "stream_options", "include_usage", 1, "messages", messages);
}

static const struct agent agents[] = {
    {"Claude Code", "/v1/messages", claude, .rules = 3500, .n_tools = 24, .tool_words = 600},
    {"Codex", "/v1/responses", codex, .rules = 5000, .n_tools = 12, .tool_words = 350},
    {"opencode", "/v1/chat/completions", chat, .rules = 2500, .facts_at = 1818, .n_tools = 10, .tool_words = 430},
    {"Qwen Code", "/v1/chat/completions", chat, .rules = 6500, .facts_at = 4899, .n_tools = 15, .tool_words = 520},
    {"pi", "/v1/chat/completions", chat, .rules = 900, .facts_at = 542, .n_tools = 4, .tool_words = 100},
};

enum { N_AGENTS = sizeof agents / sizeof agents[0] };

/* ---- Conversations ---- */

struct bench {
    const struct options *options;
    struct client *client;
    struct report *report;
};

struct cost {
    int64_t computed;
    double ms;
    struct samples next_turns; /* times to first token */
};

static void say(struct talk *talk, const char *text)
{
    talk->said[talk->n_said++] = mem_strdup(text[0] != '\0' ? text : ".");
}

static void release_talk(struct talk *talk)
{
    while (talk->n_said > 0) free(talk->said[--talk->n_said]);
}

/* The caller drops the stream. NULL: failed. */
static struct stream *send_body(struct bench *b, const struct agent *agent, const struct talk *talk,
                                hearth_error *error)
{
    json_t *whole = agent->body(agent, b->options, talk);
    json_object_set_new(whole, "model", json_string(b->options->model != NULL ? b->options->model : "any"));
    json_object_set_new(whole, "temperature", json_integer(0));
    char *body = json_dumps(whole, JSON_COMPACT);
    json_decref(whole);
    struct stream *stream = client_stream(b->client, &(struct wish){.route = agent->route, .body = body}, error);
    free(body);
    if (stream == NULL || client_finish(b->client, stream, error) == HEARTH_OK) return stream;
    client_drop(b->client, stream);
    return NULL;
}

static int take_turn(struct bench *b, const struct agent *agent, struct talk *talk, struct cost *cost,
                     hearth_error *error)
{
    static const char *const questions[TURNS] = {"What is in this folder?", "Which language is it?", "Add a test."};
    say(talk, questions[talk->n_said / 2]);
    struct stream *stream = send_body(b, agent, talk, error);
    if (stream == NULL) return error->code;
    if (stream->n_times == 0 || stream->n_computed < 0) {
        error_set(error, HEARTH_INTERNAL, "%s: a reply has no text or does not say what it cost", agent->name);
    } else {
        cost->computed += stream->n_computed;
        cost->ms += clock_to_ms(stream->times[stream->n_times - 1] - stream->started);
        if (talk->n_said > 1) samples_add(&cost->next_turns, client_first_ms(stream));
        say(talk, buf_text(&stream->text));
    }
    client_drop(b->client, stream);
    return error->code;
}

static int work(struct bench *b, const struct agent *agent, struct cost *cost, hearth_error *error)
{
    int rc = HEARTH_OK;
    for (int folder = 0; folder < FOLDERS && rc == HEARTH_OK; folder++) {
        struct talk talk = {.folder = folder};
        int turns = folder == 0 ? TURNS : 1;
        for (int i = 0; i < turns && rc == HEARTH_OK; i++) rc = take_turn(b, agent, &talk, cost, error);
        release_talk(&talk);
    }
    return rc;
}

/* ---- Measuring ---- */

static void add_figure(struct bench *b, const struct agent *agent, const char *what, const char *unit, double value)
{
    char name[96];
    snprintf(name, sizeof name, "%s: %s", agent->name, what);
    report_add(b->report, name, unit, value);
}

/* A request that is refused is no reason to measure no other agent. */
static int measure_agent(struct bench *b, const struct agent *agent, hearth_error *error)
{
    struct cost cost = {0};
    int rc = work(b, agent, &cost, error);
    if (rc == HEARTH_OK) {
        add_figure(b, agent, "tokens computed", "", (double)cost.computed);
        add_figure(b, agent, "time", "s", cost.ms / 1e3);
        add_figure(b, agent, "first token of a next turn", "ms", samples_median(&cost.next_turns));
    }
    samples_release(&cost.next_turns);
    if (rc != HEARTH_INVALID) return rc;
    fprintf(stderr, "shapes: %s: %s\n", agent->name, error->message);
    *error = (hearth_error){0};
    return HEARTH_OK;
}

static int run(const struct options *options)
{
    hearth_error error = {0};
    struct bench b = {.options = options};
    int rc = HEARTH_OK;
    b.client = client_open(options->url, options->model, &error);
    b.report = report_open("shapes", 0);
    for (size_t i = 0; i < N_AGENTS && b.client != NULL && rc == HEARTH_OK; i++)
        rc = measure_agent(&b, &agents[i], &error);
    client_close(b.client);
    return report_conclude(b.report, options->json, "hearth_bench_shapes", &error);
}

/* ---- Command line ---- */

static void print_help(void)
{
    puts("hearth_bench_shapes - what the traffic of five coding agents costs\n"
         "\n"
         "usage: hearth_bench_shapes --url URL [options]\n"
         "\n"
         "  --url URL      a running hearth or llama-server with a window of 32768, http://127.0.0.1:8080\n"
         "  --model NAME   the model to name in requests; needed where the server has several\n"
         "  --percent N    of the length that instructions and tools of the agents have (100)\n"
         "  --json         print JSON, for bench/compare.mjs\n"
         "\n"
         "example:\n"
         "  hearth_bench_shapes --url http://127.0.0.1:8080 --percent 25");
}

static bool parse(int argc, char **argv, struct options *o)
{
    const struct option_row rows[] = {
        {"url", .text = &o->url},   {"model", .text = &o->model}, {"percent", .number = &o->percent},
        {"json", .flag = &o->json}, {"help", .flag = &o->help},   {0},
    };
    int end = options_parse(argc, argv, rows);
    if (end < 0 || o->help) return end >= 0;
    if (end == argc && o->url != NULL) return true;
    fputs("hearth_bench_shapes: give --url and nothing but options; --help lists them\n", stderr);
    return false;
}

int main(int argc, char **argv)
{
    struct options options = {.percent = 100};
    if (!parse(argc, argv, &options)) return EXIT_BAD_USAGE;
    if (!options.help) return run(&options);
    print_help();
    return EXIT_SUCCESS;
}
