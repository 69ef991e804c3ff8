/* Chooses context window, slots and types of KV cells by the memory that a machine has: see fit.h. No state; any
 * thread.
 *
 * The choices are a fixed list, the best first, and the first that fits is taken. So a machine has the same defaults at
 * each start, as long as about as much of its memory is free. A window that is long enough comes before slots: a
 * conversation that outgrows its window ends, one that waits for a slot does not. f16 comes before q8_0 until that
 * would make the window shorter than agents need. */
#include "instance/models/fit.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "instance/models/model_context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB (1024.0 * 1024 * 1024)
#define MIB (1024.0 * 1024)

/* Smaller models are for tests, demonstrations and drafts: they have the same defaults everywhere. */
#define SMALL_WEIGHTS (256 * MIB)

#define PARTS_MOST    1000 /* of a model; the names of more are not looked for */

struct goal {
    int32_t window, slots;
    const char *type;
};

/* More than the first is a matter of taste: it would fill large machines with cells that few conversations use. */
static const struct goal goals[] = {
    {65536, 4, "f16"}, {32768, 4, "f16"}, {32768, 2, "f16"}, {32768, 1, "f16"}, {16384, 1, "f16"}, {16384, 1, "q8_0"},
    {8192, 1, "f16"},  {8192, 1, "q8_0"}, {4096, 1, "f16"},  {4096, 1, "q8_0"}, {2048, 1, "q8_0"},
};

/* The defaults of the configuration's table. */
static const struct goal usual = {8192, 1, "f16"};

_Static_assert(sizeof goals / sizeof *goals <= HEARTH_FIT_CHOICES, "there is room for every goal");

static bool is_small(const struct fit_model *model)
{
    return model->weights < SMALL_WEIGHTS;
}

static bool sets(const struct fit_model *model, const char *key)
{
    return config_is_set(model->config->notes, key);
}

/* ---- What a choice needs ---- */

/* The layers that GPUs have, of all and the output, which counts as one: the last ones. */
static int32_t layers_on_gpu(const struct fit_model *model, const struct fit_machine *machine)
{
    int64_t layers = model->config->n_gpu_layers, all = model->info->n_layer + 1;
    if (!machine->has_gpu || layers < 0) return 0;
    return (int32_t)(layers == 0 || layers >= all ? all : layers);
}

/* Weights in memory that a token reads: all of them, but for experts that it does not pass through. */
static double bytes_a_token(const struct fit_model *model, const struct fit_machine *machine)
{
    const struct llm_model_info *info = model->info;
    int32_t layers = layers_on_gpu(model, machine), all = info->n_layer + 1;
    bool uses_few = info->n_expert_used > 0 && info->n_expert_used < info->n_expert;
    double sum = 0, used = uses_few ? (double)info->n_expert_used / info->n_expert : 1;
    for (int32_t i = 0; i < all && info->layer_bytes != NULL; i++) {
        double experts = info->expert_bytes != NULL ? (double)info->expert_bytes[i] : 0;
        bool on_gpu = i >= all - layers, keeps_experts = model->config->cpu_moe || i < model->n_cpu_moe;
        if (!on_gpu) sum += (double)info->layer_bytes[i] - experts;
        if (!on_gpu || keeps_experts) sum += experts * used;
    }
    return sum;
}

static void count_bytes(const struct fit_model *model, const struct fit_machine *machine, double cells,
                        hearth_fit_choice *choice)
{
    const struct llm_model_info *info = model->info;
    int32_t layers = layers_on_gpu(model, machine), all = info->n_layer + 1;
    /* Where it is not known how large each layer is, they are alike. */
    double weights = info->layer_bytes == NULL ? model->weights * layers / all : 0;
    for (int32_t i = all - layers; i < all && info->layer_bytes != NULL; i++) {
        bool keeps_experts = info->expert_bytes != NULL && (model->config->cpu_moe || i < model->n_cpu_moe);
        weights += (double)info->layer_bytes[i] - (keeps_experts ? (double)info->expert_bytes[i] : 0);
    }
    double share = (double)layers / all, beside = model->projector + model->draft;
    double compute = model->compute_fixed + model->compute_cell * choice->context_window * (double)choice->n_seq_max;
    double on_gpu =
        weights + share * beside + (model->config->offload_kqv ? share * cells : 0) + (share > 0 ? compute : 0);
    choice->cells_bytes = (uint64_t)cells;
    choice->compute_bytes = (uint64_t)compute;
    choice->gpu_bytes = (uint64_t)on_gpu;
    double for_drafts = draft_slots_bytes(model->config, info, choice->n_seq_max);
    double in_memory = model->weights + beside + cells + compute + for_drafts - on_gpu;
    choice->memory_bytes = in_memory > 0 ? (uint64_t)in_memory : 0; /* of which rounding may leave less than nothing */
}

/* The goal, with the keys that are set in place of its own. False: the model cannot have it. */
static bool fill_choice(const struct fit_model *model, const struct fit_machine *machine, const struct goal *goal,
                        hearth_fit_choice *choice)
{
    struct config_model config = *model->config;
    const struct llm_model_info *info = model->info;
    int32_t trained = info->n_ctx_train;
    bool sets_k = sets(model, "models.*.cache_type_k"), sets_v = sets(model, "models.*.cache_type_v");
    if (!sets(model, "models.*.context_window"))
        config.context_window = trained > 0 && trained < goal->window ? trained : goal->window;
    if (!sets(model, "models.*.n_seq_max")) config.n_seq_max = goal->slots;
    /* Quantised cells need flash attention, and heads of whole blocks of 32; the states of hybrid models, and with
     * latent attention the values, are none of them. */
    bool plain = info->kind == HEARTH_KIND_DENSE || info->kind == HEARTH_KIND_MOE;
    bool can_quantise = plain && strcmp(config.flash_attention, "off") != 0 && info->n_embd_head_k % 32 == 0 &&
                        info->n_embd_head_v % 32 == 0 && info->n_embd_head_v > 0;
    if ((!sets_k || !sets_v) && strcmp(goal->type, "f16") != 0 && !can_quantise) return false;
    if (config.context_window * config.n_seq_max > INT32_MAX) return false;
    struct llm_context_params params;
    hearth_error error;
    if (model_context_params(&config, info, &params, &error) != HEARTH_OK) return false;
    *choice = (hearth_fit_choice){.context_window = params.window,
                                  .n_seq_max = (int32_t)config.n_seq_max,
                                  .cache_type_k = sets_k ? config.cache_type_k : goal->type,
                                  .cache_type_v = sets_v ? config.cache_type_v : goal->type};
    params.type_k = choice->cache_type_k;
    params.type_v = choice->cache_type_v;
    count_bytes(model, machine, llm_cells_of(&params, info).total, choice);
    return true;
}

/* ---- Choosing ---- */

/* A part of the bytes is left to others, no less than `least`, or than half of them. */
static uint64_t budget_of(double bytes, int part, double least)
{
    if (bytes / 2 < least) least = bytes / 2;
    return (uint64_t)(bytes - (bytes / part > least ? bytes / part : least));
}

static bool are_alike(const hearth_fit_choice *a, const hearth_fit_choice *b)
{
    return a->context_window == b->context_window && a->n_seq_max == b->n_seq_max &&
           strcmp(a->cache_type_k, b->cache_type_k) == 0 && strcmp(a->cache_type_v, b->cache_type_v) == 0;
}

static void list_choices(const struct fit_model *model, const struct fit_machine *machine, hearth_fit *fit)
{
    bool only_usual = is_small(model) || machine->memory <= 0;
    size_t n = only_usual ? 1 : sizeof goals / sizeof *goals;
    for (size_t i = 0; i < n; i++) {
        hearth_fit_choice choice;
        if (!fill_choice(model, machine, only_usual ? &usual : &goals[i], &choice)) continue;
        bool in_memory = machine->memory <= 0 || choice.memory_bytes <= fit->memory_budget;
        choice.fits = in_memory && (!machine->has_gpu || choice.gpu_bytes <= fit->gpu_budget);
        size_t same = 0;
        while (same < fit->n_choices && !are_alike(&fit->choices[same], &choice)) same++;
        if (same < fit->n_choices) continue;
        if (choice.fits && fit->recommended < 0) fit->recommended = (int32_t)fit->n_choices;
        fit->choices[fit->n_choices++] = choice;
    }
}

static void list_types(const struct fit_model *model, hearth_fit *fit)
{
    const struct llm_model_info *info = model->info;
    bool full = model_keeps_full_windows(model->config, info);
    static const char *const names[HEARTH_FIT_TYPES] = {"f16", "q8_0", "q4_0"};
    for (size_t i = 0; i < HEARTH_FIT_TYPES; i++) {
        double element = llm_type_bytes(names[i]), sum = 0;
        for (int32_t layer = 0; layer < info->n_layer; layer++)
            if (full || info->is_swa == NULL || !info->is_swa[layer])
                sum += info->n_head_kv[layer] * (info->n_embd_head_k + info->n_embd_head_v) * element;
        fit->types[i] = (hearth_fit_type){.name = names[i], .token_bytes = (uint64_t)sum};
    }
}

/* ---- Reasons ---- */

#define EXPLAIN(fit, ...) snprintf((fit)->reason, sizeof(fit)->reason, __VA_ARGS__)

static void explain_recommended(const struct fit_model *model, const struct fit_machine *machine, hearth_fit *fit)
{
    const hearth_fit_choice *better = fit->recommended > 0 ? &fit->choices[fit->recommended - 1] : NULL;
    if (is_small(model))
        EXPLAIN(fit, "a small model, which has the same defaults on every machine");
    else if (machine->memory <= 0)
        EXPLAIN(fit, "it is not known how much memory is free, so these are the usual defaults");
    else if (better == NULL)
        EXPLAIN(fit, "the best of the list fits; for a longer window or more slots set context_window, n_seq_max");
    else if (machine->has_gpu && better->gpu_bytes > fit->gpu_budget)
        EXPLAIN(fit, "the first of the list that fits: the one above needs %.2f GiB on the GPU, %.2f GiB are for it",
                (double)better->gpu_bytes / GIB, (double)fit->gpu_budget / GIB);
    else
        EXPLAIN(fit, "the first of the list that fits: the one above needs %.2f GiB of memory, %.2f GiB are for it",
                (double)better->memory_bytes / GIB, (double)fit->memory_budget / GIB);
}

/* The least number of layers whose experts have to stay in memory, so that the choice fits; 0: not even all suffice. */
static int32_t experts_to_keep(const struct fit_model *model, const struct fit_machine *machine, const hearth_fit *fit,
                               hearth_fit_choice *choice)
{
    struct fit_model other = *model;
    double cells = (double)choice->cells_bytes;
    if (model->info->expert_bytes == NULL || model->config->cpu_moe) return 0;
    for (other.n_cpu_moe = model->n_cpu_moe + 1; other.n_cpu_moe <= model->info->n_layer; other.n_cpu_moe++) {
        count_bytes(&other, machine, cells, choice);
        bool in_memory = machine->memory <= 0 || choice->memory_bytes <= fit->memory_budget;
        if (in_memory && choice->gpu_bytes <= fit->gpu_budget) return other.n_cpu_moe;
    }
    return 0;
}

/* Experts go before layers: few of them are computed for a token, so that the CPU keeps up. */
static bool explain_experts(const struct fit_model *model, const struct fit_machine *machine, hearth_fit *fit)
{
    /* They make room for one slot with a window that agents need, or for the least of the list. */
    size_t at = 0;
    while (at < fit->n_choices - 1 && fit->choices[at].n_seq_max != 1) at++;
    hearth_fit_choice choice = fit->choices[at];
    fit->n_cpu_moe = experts_to_keep(model, machine, fit, &choice);
    if (fit->n_cpu_moe == 0) return false;
    EXPLAIN(fit,
            "nothing fits the GPU with all experts there: set n_cpu_moe=%d, which keeps those of %d of %d layers in "
            "memory. Then %d tokens in %d slots (%s) need %.2f GiB on the GPU, %.2f GiB are for it, and %.2f GiB of "
            "memory",
            fit->n_cpu_moe, fit->n_cpu_moe, model->info->n_layer, choice.context_window, choice.n_seq_max,
            choice.cache_type_k, (double)choice.gpu_bytes / GIB, (double)fit->gpu_budget / GIB,
            (double)choice.memory_bytes / GIB);
    return true;
}

static void explain_layers(const struct fit_model *model, hearth_fit *fit)
{
    const hearth_fit_choice *least = &fit->choices[fit->n_choices - 1];
    /* With so many layers on the GPUs the least choice has room there. */
    double cells = model->config->offload_kqv ? (double)least->cells_bytes : 0;
    double layer = (model->weights + model->projector + model->draft + cells) / (model->info->n_layer + 1);
    double room = (double)fit->gpu_budget - (double)least->compute_bytes;
    int32_t layers = room <= 0 ? 0 : (int32_t)(room / layer);
    fit->n_gpu_layers = layers > 0 ? layers : -1;
    EXPLAIN(fit,
            "nothing fits the GPU: %d tokens in %d slots need %.2f GiB there with the weights, %.2f GiB are for it; "
            "keep %s there with n_gpu_layers=%d, or take a smaller model or weight type",
            least->context_window, least->n_seq_max, (double)least->gpu_bytes / GIB, (double)fit->gpu_budget / GIB,
            fit->n_gpu_layers > 0 ? "fewer layers" : "no layers", fit->n_gpu_layers);
}

static void explain_memory(const struct fit_model *model, hearth_fit *fit)
{
    const hearth_fit_choice *least = &fit->choices[fit->n_choices - 1];
    bool is_set = sets(model, "models.*.context_window") || sets(model, "models.*.n_seq_max");
    double weights = model->weights + model->projector + model->draft;
    if (weights > (double)fit->memory_budget)
        EXPLAIN(fit,
                "the weights do not fit: they are %.2f GiB, and %.2f GiB of memory are for the model; take a smaller "
                "model or weight type, or end other programs. Served as it is, weights would be read from disk again "
                "and again",
                weights / GIB, (double)fit->memory_budget / GIB);
    else
        EXPLAIN(fit,
                "the weights fit, KV cells do not: %d tokens in %d slots need %.2f GiB of memory in all, %.2f GiB are "
                "for the model; %s, or end other programs",
                least->context_window, least->n_seq_max, (double)least->memory_bytes / GIB,
                (double)fit->memory_budget / GIB,
                is_set ? "lower context_window or n_seq_max, or leave them unset"
                       : "take a smaller model or weight type");
}

void fit_choose(const struct fit_model *model, const struct fit_machine *machine, hearth_fit *fit)
{
    fit->n_choices = 0;
    fit->recommended = -1;
    fit->n_gpu_layers = fit->n_cpu_moe = 0;
    /* Memory is also for what hearth keeps beside cells: the store's memory tier, saves in progress, encoded media. */
    fit->memory_budget = budget_of(machine->memory, 4, GIB);
    fit->gpu_budget = machine->has_gpu ? budget_of(machine->gpu, 16, GIB / 2) : 0;
    list_types(model, fit);
    list_choices(model, machine, fit);
    const hearth_fit_choice *least = fit->n_choices > 0 ? &fit->choices[fit->n_choices - 1] : NULL;
    if (least == NULL)
        EXPLAIN(fit, "no context is possible with the keys that are set: hearth config check says which is wrong");
    else if (fit->recommended >= 0)
        explain_recommended(model, machine, fit);
    else if (!machine->has_gpu || least->gpu_bytes <= fit->gpu_budget)
        explain_memory(model, fit);
    else if (!explain_experts(model, machine, fit))
        explain_layers(model, fit);
    struct fit_model placed = *model;
    if (fit->n_cpu_moe > 0) placed.n_cpu_moe = fit->n_cpu_moe;
    fit->read_bytes = (uint64_t)bytes_a_token(&placed, machine);
    fit->read_rate = (uint64_t)machine->read_rate;
}

/* ---- Reading ---- */

struct fit_machine fit_this_machine(void)
{
    bool has_gpu = llm_has_gpu();
    return (struct fit_machine){.memory = (double)llm_free_memory(false),
                                .gpu = has_gpu ? (double)llm_free_memory(true) : 0,
                                .has_gpu = has_gpu};
}

/* Of all parts, where the model is in parts, which have numbers: MODEL-00001-of-00003.gguf. */
static double bytes_of_model(const char *path)
{
    static const char ending[] = "-00001-of-00003.gguf";
    size_t len = path == NULL ? 0 : strlen(path), tail = strlen(ending);
    const char *end = len > tail ? path + len - tail : NULL;
    bool in_parts = end != NULL && end[0] == '-' && strncmp(end + strlen("-00001"), "-of-", 4) == 0;
    long n = in_parts ? strtol(end + strlen("-00001-of-"), NULL, 10) : 0;
    double sum = 0;
    if (n < 1 || n > PARTS_MOST) return file_bytes(path);
    for (long i = 1; i <= n; i++) {
        char *part = mem_format("%.*s-%05ld-of-%05ld.gguf", (int)(len - tail), path, i, n);
        sum += file_bytes(part);
        free(part);
    }
    return sum;
}

/* Compute buffers for one slot with so many cells. One sequence is enough, and takes the least for recurrent states. */
static double plan_compute(const struct fit_model *model, const struct llm_model *weights, int32_t n_cells)
{
    struct llm_context_params params;
    hearth_error error;
    uint64_t bytes = 0;
    if (model_context_params(model->config, model->info, &params, &error) != HEARTH_OK) return 0;
    params.n_seq = 1;
    params.window = params.n_cells = n_cells;
    return llm_plan_compute(weights, &params, &bytes) ? (double)bytes : 0;
}

static void describe(const struct llm_model *weights, const struct fit_model *model, const struct fit_machine *machine,
                     hearth_fit *fit)
{
    const struct llm_model_info *info = llm_model_info(weights);
    *fit = (hearth_fit){.type = embedding_decide_type(model->config, weights),
                        .n_layer = info->n_layer,
                        .n_ctx_train = info->n_ctx_train,
                        .weights_bytes = (uint64_t)model->weights,
                        .projector_bytes = (uint64_t)model->projector,
                        .draft_bytes = (uint64_t)model->draft,
                        .memory_free = (uint64_t)machine->memory,
                        .gpu_free = (uint64_t)machine->gpu,
                        .recommended = -1};
    snprintf(fit->description, sizeof fit->description, "%s", info->description);
}

int fit_read(const struct config_model *config, const struct fit_machine *machine, hearth_fit *fit, hearth_error *error)
{
    if (config->rpc.len > 0)
        return error_at(error, HEARTH_UNSUPPORTED, "rpc",
                        "models.%s has layers on other machines, whose memory is not known here: set context_window "
                        "and n_seq_max",
                        config->name);
    if (config->tensor_split.len > 0)
        return error_at(error, HEARTH_UNSUPPORTED, "tensor_split",
                        "models.%s has tensor_split, and what fits is known of models that are split by free memory: "
                        "set context_window and n_seq_max",
                        config->name);
    if (config->override_tensors.len > 0)
        return error_at(error, HEARTH_UNSUPPORTED, "override_tensors",
                        "models.%s has override_tensors, and what fits is known of whole layers and of experts "
                        "(n_cpu_moe): set context_window and n_seq_max",
                        config->name);
    struct llm_model_params params = weights_params(config);
    struct llm_model *weights = llm_model_open(&params, error);
    if (weights == NULL) return (int)error->code;
    if (llm_model_info(weights)->n_layer <= 0) {
        llm_model_close(weights);
        return error_at(error, HEARTH_INVALID, config->path, "%s holds a vocabulary but no weights", config->path);
    }
    struct fit_model model = {.config = config,
                              .info = llm_model_info(weights),
                              .weights = (double)llm_model_info(weights)->size_bytes,
                              .projector = projector_bytes(config),
                              .draft = draft_bytes(config),
                              .n_cpu_moe = (int32_t)config->n_cpu_moe};
    describe(weights, &model, machine, fit);
    if (fit->type == HEARTH_MODEL_CHAT) {
        /* Compute buffers grow with the cells in a line, or less steeply at first: from two points the others follow.
         * Where llama.cpp plans none, the load says why. */
        const int32_t few = 8192, many = goals[0].window * goals[0].slots;
        double least = plan_compute(&model, weights, few), most = plan_compute(&model, weights, many);
        model.compute_cell = most > least ? (most - least) / (many - few) : 0;
        model.compute_fixed = least > model.compute_cell * few ? least - model.compute_cell * few : 0;
        fit_choose(&model, machine, fit);
    } else {
        EXPLAIN(fit, "a model of the type %s keeps no KV cells between calls: nothing is to be chosen",
                hearth_model_type_name(fit->type));
    }
    llm_model_close(weights);
    return HEARTH_OK;
}

/* ---- Defaults ---- */

/* Whether something is left to choose. Small models are not read for it. */
static bool is_open(const struct config_model *config)
{
    static const char *const keys[] = {"models.*.context_window", "models.*.n_seq_max", "models.*.cache_type_k",
                                       "models.*.cache_type_v"};
    bool open = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) open = open || !config_is_set(config->notes, keys[i]);
    bool small = bytes_of_model(config->path) < SMALL_WEIGHTS;
    /* Memory that is not added up here. */
    bool placed = config->rpc.len > 0 || config->tensor_split.len > 0 || config->override_tensors.len > 0;
    return open && !small && config->path != NULL && !placed && config->embedding != CONFIG_TRUE;
}

static void take_defaults(struct config_model *config, const hearth_fit *fit)
{
    if (fit->recommended < 0) {
        log_event(LOG_WARN, "model", "does not fit this machine", log_str("model", config->name),
                  log_str("reason", fit->reason));
        return;
    }
    const hearth_fit_choice *choice = &fit->choices[fit->recommended];
    config_set_context(config, &(struct config_context){.context_window = choice->context_window,
                                                        .n_seq_max = choice->n_seq_max,
                                                        .cache_type_k = choice->cache_type_k,
                                                        .cache_type_v = choice->cache_type_v});
    log_event(LOG_INFO, "model", "defaults fit this machine", log_str("model", config->name),
              log_int("context_window", choice->context_window), log_int("n_seq_max", choice->n_seq_max),
              log_str("cache_type_k", choice->cache_type_k), log_str("cache_type_v", choice->cache_type_v),
              log_int("memory_bytes", (int64_t)choice->memory_bytes), log_int("gpu_bytes", (int64_t)choice->gpu_bytes));
}

/* Of one resource: the model's own files' bytes, and an equal share of what the files of all models leave. */
static double share_of_bytes(double bytes, double own, double all, size_t n_models)
{
    return bytes > all ? own + (bytes - all) / (double)n_models : bytes * own / all;
}

/* With a budget models are unloaded for each other. */
struct fit_machine fit_share(const struct hearth_config *config, const struct fit_machine *machine, size_t which)
{
    struct fit_machine share = *machine;
    double budget = (double)config->server.memory_budget_mb * MIB, own = 0, all = 0;
    if (budget > 0) {
        if (budget < share.memory) share.memory = budget;
        return share;
    }
    for (size_t i = 0; i < config->n_models; i++) {
        double bytes = bytes_of_model(config->models[i].path) + projector_bytes(&config->models[i]) +
                       draft_bytes(&config->models[i]);
        all += bytes;
        if (i == which) own = bytes;
    }
    if (all <= 0) return share; /* their load says why */
    share.memory = share_of_bytes(machine->memory, own, all, config->n_models);
    share.gpu = share_of_bytes(machine->gpu, own, all, config->n_models);
    return share;
}

static void fit_one(const struct hearth_config *config, struct config_model *model, const struct fit_machine *share)
{
    hearth_fit fit = {0};
    hearth_error error;
    if (!is_open(model) || fit_read(model, share, &fit, &error) != HEARTH_OK) return;
    if ((double)fit.weights_bytes < SMALL_WEIGHTS || fit.type != HEARTH_MODEL_CHAT) return;
    take_defaults(model, &fit);
    if (config->server.handover != NULL) {
        /* While the next process chooses, this one still has its memory, so that the choice may be another one; with
         * other types of cells nothing that is stored is found. */
        log_event(LOG_WARN, "model",
                  "server.handover: the next process may choose less: set context_window, n_seq_max, cache_type_k and "
                  "cache_type_v",
                  log_str("model", model->name));
    }
}

void fit_defaults(struct hearth_config *config)
{
    struct fit_machine machine = fit_this_machine();
    for (size_t i = 0; i < config->n_models; i++) {
        struct fit_machine share = fit_share(config, &machine, i);
        fit_one(config, &config->models[i], &share);
    }
}

void fit_added(struct config_model *model, const struct hearth_config *config, size_t which)
{
    struct fit_machine machine = fit_this_machine(), share = fit_share(config, &machine, which);
    fit_one(config, model, &share);
}
