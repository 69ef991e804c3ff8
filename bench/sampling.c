/* hearth_bench_sampling: what sampling costs on the engine's thread, beside the decode call of the same tick: every
 * slot generates, and samples under different parameters. In one process, without a server; one thread beside
 * llama.cpp's. */
#include "base/clock.h"
#include "base/error.h"
#include "context_params.h"
#include "llm/logprobs.h"
#include "options.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>

enum { SLOTS_MAX = 64, HISTORY = 100 }; /* tokens that the penalties look at */

/* Promised: of a tick, for 16 slots with penalties and 20 logprobs each. */
static const double max_part = 0.05;

struct options {
    const char *model;
    long slots, threads, rounds;
    bool json, help;
};

struct bench {
    const struct options *options;
    struct report *report;
    struct llm_model *model;
    struct llm_context *context;
    struct tokens prompt;
    double tick_ms; /* of the decode call alone */
};

/* ---- Parameters ---- */

static hearth_sampling greedy(void)
{
    return (hearth_sampling){.dynatemp_exponent = 1,
                             .top_p = 1,
                             .typical_p = 1,
                             .top_n_sigma = -1,
                             .repeat_penalty = 1,
                             .repeat_last_n = 64,
                             .dry_base = 1.75};
}

static hearth_sampling usual(void)
{
    hearth_sampling sampling = greedy();
    sampling.temperature = 0.8;
    sampling.top_k = 40;
    sampling.top_p = 0.95;
    sampling.min_p = 0.05;
    return sampling;
}

static hearth_sampling penalised(void)
{
    hearth_sampling sampling = usual();
    sampling.repeat_penalty = 1.1;
    sampling.presence_penalty = 0.5;
    return sampling;
}

static hearth_sampling of_all_tokens(void)
{
    hearth_sampling sampling = usual();
    sampling.top_k = 0;
    return sampling;
}

static const struct {
    const char *figure;
    hearth_sampling (*sampling)(void);
    int32_t n_logprobs; /* -1: none */
} cases[] = {
    {"greedy", greedy, -1},
    {"temperature, top-k 40, top-p, min-p", usual, -1},
    {"the same, penalties", penalised, -1},
    {"the same, penalties, 20 logprobs", penalised, 20},
    {"temperature, top-p, min-p, without top-k", of_all_tokens, -1},
};

/* ---- A tick ---- */

static double ms_since(int64_t started)
{
    return clock_to_ms(clock_now(clock_monotonic()) - started);
}

/* Each slot computes one token. */
static int decode(struct bench *b, int32_t pos, hearth_error *error)
{
    struct llm_batch_token batch[SLOTS_MAX];
    int32_t n = (int32_t)b->options->slots;
    for (int32_t i = 0; i < n; i++)
        batch[i] = (struct llm_batch_token){.token = 40 + i, .pos = pos, .seq = i, .logits = true};
    int64_t started = clock_now(clock_monotonic());
    if (llm_decode(b->context, batch, n) != LLM_DECODED)
        return error_set(error, HEARTH_INTERNAL, "the tokens cannot be computed");
    b->tick_ms = ms_since(started);
    return HEARTH_OK;
}

static double time_case(struct bench *b, size_t i)
{
    struct llm_sampling sampling = {.params = cases[i].sampling(), .window = 4096};
    struct llm_logprobs *logprobs = llm_logprobs_open(b->model);
    struct llm_sampler *samplers[SLOTS_MAX];
    for (long slot = 0; slot < b->options->slots; slot++)
        samplers[slot] = llm_sampler_open(b->model, &sampling, &b->prompt, NULL);
    int64_t started = clock_now(clock_monotonic());
    for (int32_t slot = 0; slot < (int32_t)b->options->slots; slot++) {
        int32_t token = llm_sample(samplers[slot], b->context, slot);
        if (cases[i].n_logprobs >= 0) llm_logprobs_of_model(logprobs, b->context, slot, token, cases[i].n_logprobs);
    }
    double ms = ms_since(started);
    for (long slot = 0; slot < b->options->slots; slot++) llm_sampler_close(samplers[slot]);
    llm_logprobs_close(logprobs);
    return ms;
}

static int measure(struct bench *b, hearth_error *error)
{
    double most = 0;
    for (int32_t round = 0; round < b->options->rounds; round++) {
        if (decode(b, round, error) != HEARTH_OK) return (int)error->code;
        if (round == 0) continue; /* llama.cpp reserves its buffers */
        report_add(b->report, "decode call", "ms", b->tick_ms);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            report_add(b->report, cases[i].figure, "ms", time_case(b, i));
        double part = samples_median(report_samples(b->report, cases[3].figure)) /
                      samples_median(report_samples(b->report, "decode call"));
        most = part;
    }
    report_check(b->report, most < max_part,
                 "%ld slots sample with penalties and 20 logprobs in %.1f %% of their decode call: less than %.0f %%",
                 b->options->slots, most * 100, max_part * 100);
    return HEARTH_OK;
}

/* ---- The program ---- */

static int run(struct bench *b, hearth_error *error)
{
    const struct options *o = b->options;
    struct llm_model_params params = {.path = o->model, .split_mode = "layer", .weights = true};
    struct llm_context_params context = context_params((int32_t)o->slots * 256, (int)o->slots, (int)o->threads);
    llm_init();
    b->model = llm_model_open(&params, error);
    if (b->model == NULL) return (int)error->code;
    b->context = llm_context_open(b->model, &context, error);
    if (b->context == NULL) return (int)error->code;
    for (int32_t i = 0; i < HISTORY; i++) tokens_push(&b->prompt, 40 + i * 7);
    return measure(b, error);
}

int main(int argc, char **argv)
{
    struct options o = {.slots = 16, .threads = 2, .rounds = 20};
    const struct option_row rows[] = {
        {"model", .text = &o.model},
        {"slots", .number = &o.slots},
        {"threads", .number = &o.threads},
        {"rounds", .number = &o.rounds},
        {"json", .flag = &o.json},
        {"help", .flag = &o.help},
        {0},
    };
    int end = options_parse(argc, argv, rows);
    if (o.help) {
        puts("usage: hearth_bench_sampling --model FILE [--slots 16] [--threads 2] [--rounds 20] [--json]");
        return EXIT_SUCCESS;
    }
    if (end != argc || o.model == NULL || o.slots > SLOTS_MAX) return EXIT_BAD_USAGE;
    hearth_error error = {0};
    struct bench b = {.options = &o, .report = report_open("sampling", 0)};
    run(&b, &error);
    tokens_release(&b.prompt);
    llm_context_close(b.context);
    llm_model_close(b.model);
    return report_conclude(b.report, o.json, "hearth_bench_sampling", &error);
}
