/* Chooses context window, slots and types of KV cells by the memory that a machine has: see fit.h. No state; any
 * thread.
 *
 * The choices are a fixed list, the best first, and the first that fits is taken. So a machine has the same defaults at
 * each start, as long as about as much of its memory is free. A window that is long enough comes before slots: a
 * conversation that outgrows its window ends, one that waits for a slot does not. f16 comes before q8_0 until that
 * would make the window shorter than agents need. */
#include "instance/models/fit.h"

#include "base/buf.h"
#include "instance/models/model_context.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define GIB (1024.0 * 1024 * 1024)

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
    return model->weights < FIT_SMALL;
}

static bool sets(const struct fit_model *model, const char *key)
{
    return config_is_set(model->config->notes, key);
}

/* ---- What a choice needs ---- */

/* A context of that size and those types. False: the model cannot have it. */
static bool context_of(const struct fit_model *model, const hearth_fit_choice *choice,
                       struct llm_context_params *params)
{
    struct config_model config = *model->config;
    hearth_error error;
    config.context_window = choice->context_window;
    config.n_seq_max = choice->n_seq_max;
    if (config.context_window * config.n_seq_max > INT32_MAX) return false;
    if (model_context_params(&config, model->info, params, &error) != HEARTH_OK) return false;
    params->type_k = choice->cache_type_k;
    params->type_v = choice->cache_type_v;
    return true;
}

/* The choice with other places for the model's parts. */
static void count_again(const struct fit_model *model, const struct fit_machine *machine,
                        const struct fit_places *places, hearth_fit_choice *choice)
{
    struct llm_context_params params;
    double cells[FIT_LAYERS];
    if (!context_of(model, choice, &params)) return; /* it could be had when it was listed */
    llm_cells_by_layer(&params, model->info, cells);
    fit_count(model, machine, places, cells, choice);
}

/* The goal, with the keys that are set in place of its own. False: the model cannot have it. */
static bool fill_choice(const struct fit_model *model, const struct fit_machine *machine, const struct goal *goal,
                        hearth_fit_choice *choice)
{
    const struct config_model *config = model->config;
    const struct llm_model_info *info = model->info;
    int32_t trained = info->n_ctx_train;
    bool sets_k = sets(model, "models.*.cache_type_k"), sets_v = sets(model, "models.*.cache_type_v");
    int64_t window = trained > 0 && trained < goal->window ? trained : goal->window;
    if (sets(model, "models.*.context_window")) window = config->context_window;
    /* Quantised cells need flash attention, and heads of whole blocks of 32; the states of hybrid models, and with
     * latent attention the values, are none of them. */
    bool plain = info->kind == HEARTH_KIND_DENSE || info->kind == HEARTH_KIND_MOE;
    bool can_quantise = plain && strcmp(config->flash_attention, "off") != 0 && info->n_embd_head_k % 32 == 0 &&
                        info->n_embd_head_v % 32 == 0 && info->n_embd_head_v > 0;
    if ((!sets_k || !sets_v) && strcmp(goal->type, "f16") != 0 && !can_quantise) return false;
    *choice =
        (hearth_fit_choice){.context_window = (int32_t)window,
                            .n_seq_max = sets(model, "models.*.n_seq_max") ? (int32_t)config->n_seq_max : goal->slots,
                            .cache_type_k = sets_k ? config->cache_type_k : goal->type,
                            .cache_type_v = sets_v ? config->cache_type_v : goal->type};
    struct llm_context_params params;
    struct fit_places places;
    if (!context_of(model, choice, &params)) return false;
    choice->context_window = params.window;
    fit_places_of(model, machine, &places);
    count_again(model, machine, &places, choice);
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

static bool has_room(const struct fit_machine *machine, const hearth_fit *fit, const hearth_fit_choice *choice)
{
    for (size_t i = 0; i < machine->n_devices; i++)
        if ((double)choice->device_bytes[i] + machine->beyond[1 + i] > (double)fit->devices[i].budget) return false;
    return machine->memory <= 0 || (double)choice->memory_bytes + machine->beyond[0] <= (double)fit->memory_budget;
}

static void list_choices(const struct fit_model *model, const struct fit_machine *machine, hearth_fit *fit)
{
    bool only_usual = is_small(model) || machine->memory <= 0;
    size_t n = only_usual ? 1 : sizeof goals / sizeof *goals;
    for (size_t i = 0; i < n; i++) {
        hearth_fit_choice choice;
        if (!fill_choice(model, machine, only_usual ? &usual : &goals[i], &choice)) continue;
        choice.fits = has_room(machine, fit, &choice);
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

/* Bytes that a choice needs on a device, by what was counted and what plans had beyond that. */
static double needed_on(const struct fit_machine *machine, const hearth_fit_choice *choice, size_t device)
{
    return (double)choice->device_bytes[device] + machine->beyond[1 + device];
}

/* The device on which the choice has the least room, or has most too little. */
static size_t tightest(const struct fit_machine *machine, const hearth_fit *fit, const hearth_fit_choice *choice)
{
    size_t worst = 0;
    double least = INFINITY;
    for (size_t i = 0; i < machine->n_devices; i++) {
        double room = (double)fit->devices[i].budget - needed_on(machine, choice, i);
        if (room < least) {
            least = room;
            worst = i;
        }
    }
    return worst;
}

static void explain_recommended(const struct fit_model *model, const struct fit_machine *machine, hearth_fit *fit)
{
    const hearth_fit_choice *better = fit->recommended > 0 ? &fit->choices[fit->recommended - 1] : NULL;
    size_t device = better != NULL && machine->n_devices > 0 ? tightest(machine, fit, better) : 0;
    if (is_small(model))
        EXPLAIN(fit, "a small model, which has the same defaults on every machine");
    else if (machine->memory <= 0)
        EXPLAIN(fit, "it is not known how much memory is free, so these are the usual defaults");
    else if (better == NULL)
        EXPLAIN(fit, "the best of the list fits; for a longer window or more slots set context_window, n_seq_max");
    else if (machine->n_devices > 0 && needed_on(machine, better, device) > (double)fit->devices[device].budget)
        EXPLAIN(fit, "the first of the list that fits: the one above needs %.2f GiB on %s, %.2f GiB are for it",
                needed_on(machine, better, device) / GIB, fit->devices[device].name,
                (double)fit->devices[device].budget / GIB);
    else
        EXPLAIN(fit, "the first of the list that fits: the one above needs %.2f GiB of memory, %.2f GiB are for it",
                ((double)better->memory_bytes + machine->beyond[0]) / GIB, (double)fit->memory_budget / GIB);
}

/* ---- Other places ---- */

/* A choice that does not fit as the model is to be placed, and places with which it does. */
struct way {
    hearth_fit_choice choice;
    struct fit_places places;
    bool divided; /* the layers are divided among the devices anew: tensor_split */
};

/* The last n_gpu_layers on devices: as the configuration divides them, or else as they find room. */
static bool try_places(const struct fit_model *model, const struct fit_machine *machine, const hearth_fit *fit,
                       int32_t n_gpu_layers, struct way *way)
{
    struct fit_places *places = &way->places;
    struct llm_context_params params;
    double cells[FIT_LAYERS];
    llm_assign_layers(model->info, n_gpu_layers, machine->devices, machine->n_devices, places->device);
    way->divided = false;
    count_again(model, machine, places, &way->choice);
    if (has_room(machine, fit, &way->choice)) return true;
    bool may_divide = machine->n_devices > 1 && !sets(model, "models.*.tensor_split") &&
                      strcmp(model->config->split_mode, "layer") == 0;
    if (!may_divide || !context_of(model, &way->choice, &params)) return false;
    llm_cells_by_layer(&params, model->info, cells);
    if (!fit_divide(model, machine, fit, n_gpu_layers, cells, &way->choice, places)) return false;
    way->divided = true;
    fit_count(model, machine, places, cells, &way->choice);
    return has_room(machine, fit, &way->choice);
}

static int32_t layers_on_devices(const struct fit_model *model)
{
    int64_t layers = model->config->n_gpu_layers, all = model->info->n_blocks + 1;
    return (int32_t)(layers == 0 || layers > all ? all : layers);
}

/* The layers for each device, as tensor_split has them. */
static void note_division(const struct fit_machine *machine, const struct fit_model *model, const struct way *way,
                          hearth_fit *fit, struct buf *keys)
{
    if (!way->divided) return;
    for (int32_t i = 0; i <= model->info->n_layer; i++)
        if (way->places.device[i] >= 0) fit->tensor_split[way->places.device[i]]++;
    /* MTP heads come before the output. */
    int8_t last = way->places.device[model->info->n_layer];
    if (last >= 0) fit->tensor_split[last] += model->info->n_blocks - model->info->n_layer;
    buf_puts(keys, buf_text(keys)[0] != '\0' ? " and tensor_split=[" : "tensor_split=[");
    for (size_t i = 0; i < machine->n_devices; i++) buf_printf(keys, "%s%d", i > 0 ? "," : "", fit->tensor_split[i]);
    buf_puts(keys, "]");
}

static void explain_way(const struct fit_model *model, const struct fit_machine *machine, const struct way *way,
                        const char *without, hearth_fit *fit, struct buf *keys)
{
    note_division(machine, model, way, fit, keys);
    EXPLAIN(fit,
            "nothing fits %s: set %s. Then %d tokens in %d slots (%s) need %.2f GiB on the GPU, %.2f GiB are for it, "
            "and %.2f GiB of memory",
            without, buf_text(keys), way->choice.context_window, way->choice.n_seq_max, way->choice.cache_type_k,
            (double)way->choice.gpu_bytes / GIB, (double)fit->gpu_budget / GIB, (double)way->choice.memory_bytes / GIB);
    fit->suggested = way->choice;
}

/* Layers are divided otherwise, for the best choice of a single slot with which that helps. */
static bool explain_division(const struct fit_model *model, const struct fit_machine *machine, size_t at, size_t end,
                             hearth_fit *fit)
{
    struct way way;
    fit_places_of(model, machine, &way.places);
    for (; at < end && machine->n_devices > 1; at++) {
        way.choice = fit->choices[at];
        if (!try_places(model, machine, fit, layers_on_devices(model), &way)) continue;
        struct buf keys = {0};
        explain_way(model, machine, &way, "the GPUs as the layers are divided", fit, &keys);
        buf_release(&keys);
        return true;
    }
    return false;
}

/* Experts go before layers: few of them are computed for a token, so that the CPU keeps up. The window comes before the
 * number of experts that stay on the GPU. */
static bool explain_experts(const struct fit_model *model, const struct fit_machine *machine, size_t at,
                            hearth_fit *fit)
{
    struct way way;
    fit_places_of(model, machine, &way.places);
    int32_t kept = way.places.n_cpu_moe, n = kept, most = model->info->expert_bytes != NULL ? model->info->n_layer : 0;
    for (bool found = false; !found; n++) {
        if (n >= most) {
            if (kept >= most || ++at == fit->n_choices) return false;
            n = kept;
        }
        way.choice = fit->choices[at];
        way.places.n_cpu_moe = n + 1;
        found = try_places(model, machine, fit, layers_on_devices(model), &way);
    }
    struct buf keys = {0};
    fit->n_cpu_moe = n;
    buf_printf(&keys, "n_cpu_moe=%d, which keeps those of %d of %d layers in memory", n, n, model->info->n_layer);
    explain_way(model, machine, &way, "the GPU with all experts there", fit, &keys);
    buf_release(&keys);
    return true;
}

/* Fewer layers on devices, or none, for the least choice. */
static void explain_layers(const struct fit_model *model, const struct fit_machine *machine, hearth_fit *fit)
{
    const hearth_fit_choice *least = &fit->choices[fit->n_choices - 1];
    struct way way;
    struct buf keys = {0};
    fit_places_of(model, machine, &way.places);
    int32_t layers = model->placed == NULL ? layers_on_devices(model) - 1 : 0; /* where all are there, nothing fits */
    bool fits = false;
    for (; layers >= 0 && !fits; layers -= !fits) {
        way.choice = *least;
        fits = try_places(model, machine, fit, layers > 0 ? layers : -1, &way);
    }
    if (fits) {
        fit->n_gpu_layers = layers > 0 ? layers : -1;
        fit->suggested = way.choice;
        buf_printf(&keys, "n_gpu_layers=%d", fit->n_gpu_layers);
        note_division(machine, model, &way, fit, &keys);
        EXPLAIN(fit,
                "nothing fits the GPU: %d tokens in %d slots need %.2f GiB there with the weights, %.2f GiB are for "
                "it; keep %s there with %s, or take a smaller model or weight type",
                least->context_window, least->n_seq_max, (double)least->gpu_bytes / GIB, (double)fit->gpu_budget / GIB,
                layers > 0 ? "fewer layers" : "no layers", buf_text(&keys));
    } else
        EXPLAIN(fit,
                "nothing fits, however it is divided: the weights are %.2f GiB, and %.2f GiB of memory and %.2f GiB on "
                "the GPU are for the model; take a smaller model or weight type, or end other programs",
                (model->weights + model->projector + model->draft) / GIB, (double)fit->memory_budget / GIB,
                (double)fit->gpu_budget / GIB);
    buf_release(&keys);
}

/* Nothing fits the devices: finds keys with which something does, first of all one slot with a window that agents
 * need. */
static void explain_devices(const struct fit_model *model, const struct fit_machine *machine, hearth_fit *fit)
{
    size_t at = 0;
    while (at < fit->n_choices && fit->choices[at].n_seq_max != 1) at++;
    if (at == fit->n_choices) at = 0;    /* their number is set */
    bool placed = model->placed != NULL; /* by patterns, which say where everything goes */
    bool has_experts = model->info->expert_bytes != NULL;
    if (!placed && explain_division(model, machine, at, has_experts ? at + 1 : fit->n_choices, fit)) return;
    if (!placed && explain_experts(model, machine, at, fit)) return;
    if (!placed && explain_division(model, machine, at + 1, fit->n_choices, fit)) return;
    explain_layers(model, machine, fit);
}

static void explain_memory(const struct fit_model *model, const struct fit_machine *machine, hearth_fit *fit)
{
    const hearth_fit_choice *least = &fit->choices[fit->n_choices - 1];
    bool is_set = sets(model, "models.*.context_window") || sets(model, "models.*.n_seq_max");
    struct fit_places places;
    fit_places_of(model, machine, &places);
    double weights = fit_weights_in_memory(model, &places) + fit_beside(model, machine, 0);
    if (weights > (double)fit->memory_budget)
        EXPLAIN(fit,
                "the weights do not fit: those in memory are %.2f GiB, and %.2f GiB of memory are for the model; take "
                "a smaller "
                "model or weight type, or end other programs. Served as it is, weights would be read from disk again "
                "and again",
                weights / GIB, (double)fit->memory_budget / GIB);
    else
        EXPLAIN(fit,
                "the weights fit, KV cells do not: %d tokens in %d slots need %.2f GiB of memory in all, %.2f GiB are "
                "for the model; %s, or end other programs",
                least->context_window, least->n_seq_max, ((double)least->memory_bytes + machine->beyond[0]) / GIB,
                (double)fit->memory_budget / GIB,
                is_set ? "lower context_window or n_seq_max, or leave them unset"
                       : "take a smaller model or weight type");
}

static void find_budgets(const struct fit_machine *machine, hearth_fit *fit)
{
    /* Memory is also for what hearth keeps beside cells: the store's memory tier, saves in progress, encoded media. */
    fit->memory_budget = budget_of(machine->memory, 4, GIB);
    fit->n_devices = machine->n_devices;
    fit->gpu_free = fit->gpu_budget = 0;
    for (size_t i = 0; i < machine->n_devices; i++) {
        hearth_fit_device *device = &fit->devices[i];
        uint64_t bytes = machine->devices[i].free_bytes;
        *device = (hearth_fit_device){.free = bytes, .budget = budget_of((double)bytes, 16, GIB / 2)};
        snprintf(device->name, sizeof device->name, "%s", machine->devices[i].name);
        fit->gpu_free += device->free;
        fit->gpu_budget += device->budget;
    }
}

static bool has_room_on_devices(const struct fit_machine *machine, const hearth_fit *fit,
                                const hearth_fit_choice *choice)
{
    struct fit_machine alone = *machine;
    alone.memory = 0;
    return has_room(&alone, fit, choice);
}

void fit_choose(const struct fit_model *model, const struct fit_machine *machine, hearth_fit *fit)
{
    fit->n_choices = 0;
    fit->recommended = -1;
    fit->n_gpu_layers = fit->n_cpu_moe = 0;
    memset(fit->tensor_split, 0, sizeof fit->tensor_split);
    fit->suggested = (hearth_fit_choice){0};
    fit->planned_memory = 0;
    find_budgets(machine, fit);
    list_types(model, fit);
    list_choices(model, machine, fit);
    const hearth_fit_choice *least = fit->n_choices > 0 ? &fit->choices[fit->n_choices - 1] : NULL;
    if (least == NULL)
        EXPLAIN(fit, "no context is possible with the keys that are set: hearth config check says which is wrong");
    else if (fit->recommended >= 0)
        explain_recommended(model, machine, fit);
    else if (has_room_on_devices(machine, fit, least))
        explain_memory(model, machine, fit);
    else
        explain_devices(model, machine, fit);
    struct fit_places places;
    fit_places_of(model, machine, &places);
    if (fit->n_cpu_moe > places.n_cpu_moe) places.n_cpu_moe = fit->n_cpu_moe;
    if (fit->n_gpu_layers != 0)
        llm_assign_layers(model->info, fit->n_gpu_layers, machine->devices, machine->n_devices, places.device);
    fit->read_bytes = model->placed == NULL ? (uint64_t)fit_read_bytes(model, &places) : 0;
    fit->read_rate = (uint64_t)machine->read_rate;
}
