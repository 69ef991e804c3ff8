/* hearth_bench_agents: how many prompt tokens a server computes for agents whose conversations share a prefix, compared
 * with how many it needs to, and how long the agents take. Runs against hearth and llama-server. One thread. */
#include "base/clock.h"
#include "base/error.h"
#include "client.h"
#include "options.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>

enum { AGENTS_MAX = 64, COUNTS_MAX = 4 };

struct options {
    const char *url, *model, *name;
    long shared, own, main_prompt, added, reply, turns, rounds; /* tokens, but for the last two */
    bool main_agent, interleaved, json, help;
    long counts[COUNTS_MAX];
    size_t n_counts;
};

/* The prompt grows by each reply and the tokens added after it; `computed` is the part of it that the server has
 * computed, and may have in its cells. */
struct agent {
    struct tokens prompt, computed;
    struct stream *stream;
};

struct tally {
    int64_t computed, needed;
    int64_t began;           /* clock_now() of the first request */
    struct samples first_ms; /* of each request */
};

struct bench {
    const struct options *options;
    struct client *client;
    struct report *report;
    uint64_t seed; /* of the last generated tokens: each use has its own, so that only the intended prefix is shared */
    struct agent agents[AGENTS_MAX];
    size_t n_agents;
    struct tally tally;
};

/* ---- The agents ---- */

static void copy(struct tokens *to, const struct tokens *from)
{
    tokens_truncate(to, 0);
    tokens_append(to, from->v, from->len);
}

static void release_agents(struct bench *b)
{
    for (size_t i = 0; i < b->n_agents; i++) {
        client_drop(b->client, b->agents[i].stream);
        tokens_release(&b->agents[i].prompt);
        tokens_release(&b->agents[i].computed);
        b->agents[i] = (struct agent){0};
    }
    b->n_agents = 0;
}

static void create_agents(struct bench *b, size_t n)
{
    const struct options *o = b->options;
    uint64_t system_prompt = ++b->seed, sub_agents = o->main_agent ? ++b->seed : system_prompt;
    b->n_agents = n;
    for (size_t i = 0; i < n; i++) {
        bool is_main = o->main_agent && i == 0;
        long own = is_main && o->main_prompt > o->shared ? o->main_prompt - o->shared : o->own;
        client_prompt(&b->agents[i].prompt, (size_t)o->shared, is_main ? system_prompt : sub_agents);
        client_prompt(&b->agents[i].prompt, (size_t)own, ++b->seed);
    }
}

/* Prompt tokens that no agent's prompt has computed before. The last token is always computed: its logits give the
 * first token of the reply. */
static int64_t needed(const struct bench *b, const struct agent *agent)
{
    size_t computable = agent->prompt.len - 1;
    size_t longest = 0;
    for (size_t i = 0; i < b->n_agents; i++) {
        size_t common = tokens_common_prefix(&b->agents[i].computed, &agent->prompt);
        if (common > longest) longest = common;
    }
    return (int64_t)(agent->prompt.len - (longest < computable ? longest : computable));
}

/* A prompt counts as computed once it is requested: a server can let others wait for the prefix that it is computing.
 */
static int ask(struct bench *b, struct agent *agent, hearth_error *error)
{
    b->tally.needed += needed(b, agent);
    copy(&agent->computed, &agent->prompt);
    struct wish wish = {.prompt = &agent->prompt, .max_tokens = (int32_t)b->options->reply, .from_cache = true};
    agent->stream = client_stream(b->client, &wish, error);
    return agent->stream == NULL ? error->code : HEARTH_OK;
}

/* Extends the prompt for the next turn. The last token of a reply was sampled but not decoded, so it is not computed.
 */
static void extend_prompt(struct bench *b, struct agent *agent)
{
    for (long i = 0; i < b->options->reply; i++) tokens_push(&agent->prompt, CLIENT_REPLY_TOKEN);
    copy(&agent->computed, &agent->prompt);
    tokens_truncate(&agent->computed, agent->computed.len - 1);
    client_prompt(&agent->prompt, (size_t)b->options->added, ++b->seed);
}

static int await_reply(struct bench *b, struct agent *agent, hearth_error *error)
{
    int rc = client_finish(b->client, agent->stream, error);
    if (rc != HEARTH_OK) return rc;
    if (agent->stream->n_computed < 0)
        return error_set(error, HEARTH_INTERNAL, "the server does not say how many prompt tokens it computed");
    if (agent->stream->n_times != (size_t)b->options->reply)
        return error_set(error, HEARTH_INTERNAL, "a reply has %zu pieces of text, not %ld", agent->stream->n_times,
                         b->options->reply);
    b->tally.computed += agent->stream->n_computed;
    samples_add(&b->tally.first_ms, client_first_ms(agent->stream));
    client_drop(b->client, agent->stream);
    agent->stream = NULL;
    extend_prompt(b, agent);
    return HEARTH_OK;
}

/* ---- The schedules ---- */

static int take_turn(struct bench *b, size_t agent, hearth_error *error)
{
    int rc = ask(b, &b->agents[agent], error);
    return rc == HEARTH_OK ? await_reply(b, &b->agents[agent], error) : rc;
}

static int take_turns(struct bench *b, hearth_error *error)
{
    int rc = HEARTH_OK;
    for (size_t i = 0; i < b->n_agents && rc == HEARTH_OK; i++) rc = take_turn(b, i, error);
    return rc;
}

/* The first agent continues before each of the others does. */
static int interleave(struct bench *b, hearth_error *error)
{
    int rc = HEARTH_OK;
    for (size_t i = 1; i < b->n_agents && rc == HEARTH_OK; i++) {
        rc = take_turn(b, 0, error);
        if (rc == HEARTH_OK) rc = take_turn(b, i, error);
    }
    return rc;
}

static int all_at_once(struct bench *b, hearth_error *error)
{
    int rc = HEARTH_OK;
    for (size_t i = 0; i < b->n_agents && rc == HEARTH_OK; i++) rc = ask(b, &b->agents[i], error);
    for (size_t i = 0; i < b->n_agents && rc == HEARTH_OK; i++) rc = await_reply(b, &b->agents[i], error);
    return rc;
}

static const struct schedule {
    const char *name;
    int (*turn)(struct bench *b, hearth_error *error);
    bool interleaved;
} schedules[] = {{"in turn", take_turns, false}, {"at once", all_at_once, false}, {"interleaved", interleave, true}};

enum { N_SCHEDULES = sizeof schedules / sizeof schedules[0] };

/* ---- Measuring ---- */

static void describe(char *text, size_t size, const struct options *o, long count, const struct schedule *schedule)
{
    if (o->main_agent)
        snprintf(text, size, "1+%ld agents %s", count - 1, schedule->name);
    else
        snprintf(text, size, "%ld agents %s", count, schedule->name);
}

static void add_figure(struct bench *b, const char *agents, const char *what, const char *unit, double value)
{
    char name[128];
    snprintf(name, sizeof name, "%s: %s", agents, what);
    report_add(b->report, name, unit, value);
}

static void note(struct bench *b, const char *agents, int64_t ended)
{
    const struct tally *tally = &b->tally;
    add_figure(b, agents, "computed / needed", "", (double)tally->computed / (double)tally->needed);
    add_figure(b, agents, "tokens computed", "", (double)tally->computed);
    add_figure(b, agents, "time", "s", clock_to_ms(ended - tally->began) / 1e3);
    add_figure(b, agents, "median first token", "ms", samples_median(&tally->first_ms));
}

static int run_round(struct bench *b, long count, const struct schedule *schedule, hearth_error *error)
{
    int rc = HEARTH_OK;
    samples_release(&b->tally.first_ms);
    b->tally = (struct tally){.began = clock_now(clock_monotonic())};
    create_agents(b, (size_t)count);
    for (long turn = 0; turn < b->options->turns && rc == HEARTH_OK; turn++) rc = schedule->turn(b, error);
    release_agents(b);
    return rc;
}

static int measure_case(struct bench *b, long count, const struct schedule *schedule, hearth_error *error)
{
    const struct options *o = b->options;
    char agents[64];
    describe(agents, sizeof agents, o, count, schedule);
    for (long round = 0; round < o->rounds; round++) {
        int rc = run_round(b, count, schedule, error);
        if (rc != HEARTH_OK) return rc;
        note(b, agents, clock_now(clock_monotonic()));
    }
    return HEARTH_OK;
}

static int measure(struct bench *b, hearth_error *error)
{
    const struct options *o = b->options;
    int rc = HEARTH_OK;
    b->report = report_open(o->name, (size_t)(o->shared + o->own));
    for (size_t i = 0; i < o->n_counts * N_SCHEDULES && rc == HEARTH_OK; i++) {
        const struct schedule *schedule = &schedules[i % N_SCHEDULES];
        if (schedule->interleaved == o->interleaved) rc = measure_case(b, o->counts[i / N_SCHEDULES], schedule, error);
    }
    samples_release(&b->tally.first_ms);
    return rc;
}

static int run(const struct options *options)
{
    hearth_error error = {0};
    struct bench b = {.options = options};
    b.client = client_open(options->url, options->model, &error);
    if (b.client != NULL) measure(&b, &error);
    client_close(b.client);
    return report_conclude(b.report, options->json, "hearth_bench_agents", &error);
}

/* ---- Command line ---- */

static void print_help(void)
{
    puts(
        "hearth_bench_agents - prompt tokens computed for agents whose conversations begin alike, beside those needed\n"
        "\n"
        "usage: hearth_bench_agents --url URL [options] [AGENTS]...\n"
        "\n"
        "  AGENTS         so many agents; each number is measured in turn and at once (3 6 12)\n"
        "  --url URL      a running hearth or llama-server, http://127.0.0.1:8080\n"
        "  --model NAME   the model to name in requests; needed where the server has several\n"
        "  --shared N     tokens that the prompts of all agents begin with (600)\n"
        "  --own N        tokens of each agent that follow in its first prompt (300)\n"
        "  --main         the first agent begins with other tokens than the rest do\n"
        "  --main-prompt N  tokens of its first prompt, where they are more than --shared (--shared and --own)\n"
        "  --interleaved  the first agent takes a turn before each of the others does, in place of both orders\n"
        "  --reply N      tokens of a reply (20)\n"
        "  --added N      tokens that follow each reply (40)\n"
        "  --turns N      prompts of each agent (6)\n"
        "  --rounds N     measure so many times; medians are printed (1)\n"
        "  --json         print JSON, for bench/compare.mjs\n"
        "\n"
        "examples:\n"
        "  hearth_bench_agents --url http://127.0.0.1:8080\n"
        "  hearth_bench_agents --url http://127.0.0.1:8080 --main --main-prompt 20000 --shared 4000 --own 2000 5");
}

static bool read_counts(struct options *o, char **list, int n)
{
    if (n == 0) return true;
    if (n > COUNTS_MAX) return false;
    for (int i = 0; i < n; i++)
        if (!options_number(&o->counts[i], list[i]) || o->counts[i] > AGENTS_MAX) return false;
    o->n_counts = (size_t)n;
    return true;
}

static bool parse(int argc, char **argv, struct options *o)
{
    const struct option_row rows[] = {
        {"url", .text = &o->url},
        {"model", .text = &o->model},
        {"shared", .number = &o->shared},
        {"own", .number = &o->own},
        {"main", .flag = &o->main_agent},
        {"main-prompt", .number = &o->main_prompt},
        {"interleaved", .flag = &o->interleaved},
        {"reply", .number = &o->reply},
        {"added", .number = &o->added},
        {"turns", .number = &o->turns},
        {"rounds", .number = &o->rounds},
        {"name", .text = &o->name},
        {"json", .flag = &o->json},
        {"help", .flag = &o->help},
        {0},
    };
    int end = options_parse(argc, argv, rows);
    if (end < 0) return false;
    if (o->help) return true;
    if (o->url == NULL || !read_counts(o, argv + end, argc - end)) {
        fprintf(stderr, "hearth_bench_agents: give --url and at most %d numbers of up to %d agents; --help says more\n",
                COUNTS_MAX, AGENTS_MAX);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct options options = {.name = "agents",
                              .shared = 600,
                              .own = 300,
                              .added = 40,
                              .reply = 20,
                              .turns = 6,
                              .rounds = 1,
                              .counts = {3, 6, 12},
                              .n_counts = 3};
    if (!parse(argc, argv, &options)) return EXIT_BAD_USAGE;
    if (!options.help) return run(&options);
    print_help();
    return EXIT_SUCCESS;
}
