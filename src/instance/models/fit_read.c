/* Reads the machine's free memory, its devices and a model's header, has llama.cpp plan the choice, and gives a
 * configuration its defaults: see fit.h. Blocks on files and on RPC servers; any thread. */
#include "instance/models/fit.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "instance/models/model_context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB        (1024.0 * 1024)
#define PARTS_MOST 1000 /* of a model; the names of more are not looked for */
#define PLANS      6    /* of one choice after the other */

/* ---- Reading ---- */

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

/* The model as the machine has it, without its weights. If one of its devices is not there, memory computes in place of
 * all of them. */
static struct llm_model *open_planned(const struct config_model *config, const struct fit_machine *machine,
                                      hearth_error *error)
{
    float *parts, by_part[LLM_DEVICES];
    const char *names[LLM_DEVICES] = {"none"};
    bool there = machine->planned && machine->n_devices > 0;
    struct llm_model_params params = weights_params(config, &parts);
    params.planned = true;
    if (there || !machine->planned) {
        for (size_t i = 0; i < machine->n_devices; i++) by_part[i] = machine->devices[i].part;
        for (size_t i = 0; i < machine->n_devices && there; i++) names[i] = machine->devices[i].name;
        params.devices = names;
        params.n_devices = there ? machine->n_devices : 1;
        params.tensor_split = by_part;
        params.n_tensor_split = there ? machine->n_devices : 0;
        params.main_gpu = 0; /* with split_mode none the machine has that one alone */
        if (!there) params.n_rpc = params.n_overrides = 0;
    }
    struct llm_model *model = llm_model_open(&params, error);
    free(parts);
    return model;
}

/* One sequence is enough to plan compute buffers, and takes the least for recurrent states. */
static bool plan(const struct config_model *config, const struct llm_model *weights, int32_t n_cells,
                 struct llm_plan *out)
{
    struct llm_context_params params;
    hearth_error error;
    if (model_context_params(config, llm_model_info(weights), &params, &error) != HEARTH_OK) return false;
    params.n_seq = 1;
    params.window = params.n_cells = n_cells;
    return llm_plan_memory(weights, &params, out);
}

/* The place of a device of a plan among those of the machine; FIT_PLACES: none. */
static size_t place_of(const struct fit_machine *machine, const char *name)
{
    if (name[0] == '\0') return 0;
    for (size_t i = 0; i < machine->n_devices; i++)
        if (strcmp(machine->devices[i].name, name) == 0) return 1 + i;
    return FIT_PLACES;
}

/* Compute buffers grow with the cells in a line, or less steeply at first: from two points the others follow. The
 * larger one comes first, since RPC servers are asked once for each kind of tensor, whatever the number of cells. Where
 * llama.cpp plans none, the load says why. */
static void plan_compute(struct fit_model *model, const struct llm_model *weights, const struct fit_machine *machine)
{
    const int32_t few = 8192, many = 65536 * 4;
    struct llm_plan least, most;
    bool planned[FIT_PLACES] = {false};
    if (!plan(model->config, weights, many, &most) || !plan(model->config, weights, few, &least)) return;
    for (size_t i = 0; i < least.n; i++) {
        size_t place = place_of(machine, least.v[i].name), k = 0;
        while (k < most.n && strcmp(most.v[k].name, least.v[i].name) != 0) k++;
        if (place == FIT_PLACES || k == most.n) continue;
        double a = (double)least.v[i].compute, b = (double)most.v[k].compute;
        struct fit_compute *compute = &model->compute[place];
        compute->cell = b > a ? (b - a) / (many - few) : 0;
        compute->fixed = a > compute->cell * few ? a - compute->cell * few : 0;
        planned[place] = true;
    }
    /* A device that is not there would compute what memory does in its place. */
    for (size_t i = 1; i <= machine->n_devices; i++)
        if (!planned[i] && !machine->planned) model->compute[i] = model->compute[0];
}

/* Where patterns say where tensors go, llama.cpp says what that comes to. */
static bool plan_weights(const struct fit_model *model, const struct llm_model *weights,
                         const struct fit_machine *machine, double placed[FIT_PLACES])
{
    struct llm_plan planned;
    if (!plan(model->config, weights, 256, &planned)) return false;
    for (size_t i = 0; i < planned.n; i++) {
        size_t place = place_of(machine, planned.v[i].name);
        if (place < FIT_PLACES) placed[place] += (double)planned.v[i].weights;
    }
    return true;
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
                        .recommended = -1};
    for (size_t i = 0; i < machine->n_devices; i++) fit->gpu_free += machine->devices[i].free_bytes;
    snprintf(fit->description, sizeof fit->description, "%s", info->description);
}

/* ---- What llama.cpp makes of the choice ---- */

/* Whether a plan has room in the budgets. The excess over the count is noted for the next choice. */
static bool plan_has_room(const struct fit_model *model, const struct llm_plan *planned,
                          const hearth_fit_choice *choice, struct fit_machine *machine, hearth_fit *fit)
{
    bool fits = true;
    for (size_t i = 0; i < planned->n; i++) {
        const struct llm_planned *on = &planned->v[i];
        size_t place = place_of(machine, on->name);
        if (place == FIT_PLACES) continue;
        uint64_t bytes = on->weights + on->cells + on->compute;
        double counted = (double)(place == 0 ? choice->memory_bytes : choice->device_bytes[place - 1]);
        double budget = (double)(place == 0 ? fit->memory_budget : fit->devices[place - 1].budget);
        double in_all = (double)bytes + fit_beside(model, machine, place);
        if (place == 0) in_all += draft_slots_bytes(model->config, model->info, choice->n_seq_max);
        *(place == 0 ? &fit->planned_memory : &fit->devices[place - 1].planned) = bytes;
        if (in_all - counted > machine->beyond[place]) machine->beyond[place] = in_all - counted;
        fits = fits && (in_all <= budget || (place == 0 && machine->memory <= 0));
    }
    return fits;
}

/* Plans the choice that is recommended or suggested. False: it is more than was counted, and does not fit. Nothing is
 * planned on devices that are not there, nor for models with recurrent states, which would be allocated for it. */
static bool check_plan(const struct fit_model *model, const struct llm_model *as_set, struct fit_machine *machine,
                       hearth_fit *fit)
{
    const hearth_fit_choice *choice = fit->recommended >= 0 ? &fit->choices[fit->recommended] : &fit->suggested;
    if (choice->context_window == 0 || model->info->state_bytes > 0 || !machine->planned) return true;
    struct config_model config = *model->config;
    struct fit_machine placed = *machine;
    struct llm_context_params params;
    struct llm_plan planned;
    hearth_error error;
    int32_t divided = 0;
    config.context_window = choice->context_window;
    config.n_seq_max = choice->n_seq_max;
    config.cache_type_k = (char *)(uintptr_t)choice->cache_type_k;
    config.cache_type_v = (char *)(uintptr_t)choice->cache_type_v;
    if (fit->n_gpu_layers != 0) config.n_gpu_layers = fit->n_gpu_layers;
    if (fit->n_cpu_moe > 0) config.n_cpu_moe = fit->n_cpu_moe;
    for (size_t i = 0; i < fit->n_devices; i++) divided += fit->tensor_split[i];
    for (size_t i = 0; i < fit->n_devices && divided > 0; i++) placed.devices[i].part = (float)fit->tensor_split[i];
    if (model_context_params(&config, model->info, &params, &error) != HEARTH_OK) return true;
    bool moves = fit->recommended < 0; /* what is suggested lies elsewhere than the configuration says */
    struct llm_model *moved = moves ? open_planned(&config, &placed, &error) : NULL;
    const struct llm_model *weights = moves ? moved : as_set;
    bool can_plan = weights != NULL && llm_plan_memory(weights, &params, &planned);
    llm_model_close(moved);
    return !can_plan || plan_has_room(model, &planned, choice, machine, fit);
}

/* Each of so many choices took more than its budget, and the one before could not tell. */
static void give_up(hearth_fit *fit)
{
    if (fit->recommended >= 0) fit->choices[fit->recommended].fits = false;
    fit->recommended = -1;
    fit->suggested = (hearth_fit_choice){0};
    fit->n_gpu_layers = fit->n_cpu_moe = 0;
    memset(fit->tensor_split, 0, sizeof fit->tensor_split);
    snprintf(fit->reason, sizeof fit->reason,
             "llama.cpp plans more than is free for each of %d choices: set context_window and n_seq_max to less than "
             "the last of the list",
             PLANS);
}

/* ---- All of it ---- */

int fit_machine_of(const struct config_model *config, struct fit_machine *machine, hearth_error *error)
{
    float *parts;
    struct llm_model_params params = weights_params(config, &parts);
    *machine = (struct fit_machine){.memory = (double)llm_free_memory(false), .planned = true};
    int rc = llm_list_devices(&params, machine->devices, &machine->n_devices, error);
    free(parts);
    return rc;
}

void fit_imagine(struct fit_machine *machine, const hearth_fit_machine *other, const struct config_model *config)
{
    size_t there = machine->n_devices;
    bool splits = config->tensor_split.len > 0;
    if (other->memory > 0) machine->memory = (double)other->memory;
    if (other->n_devices == 0) return;
    size_t most = strcmp(config->split_mode, "none") == 0 ? 1 : LLM_DEVICES;
    machine->n_devices = other->n_devices < most ? other->n_devices : most;
    machine->planned = machine->n_devices <= there;
    for (size_t i = 0; i < machine->n_devices; i++) {
        struct llm_device *device = &machine->devices[i];
        if (!machine->planned) {
            *device = (struct llm_device){0};
            snprintf(device->name, sizeof device->name, "GPU%zu", i);
        }
        device->free_bytes = other->devices[i];
        if (!splits || !machine->planned) device->part = (float)device->free_bytes;
    }
}

int fit_read(const struct config_model *config, const struct fit_machine *machine, hearth_fit *fit, hearth_error *error)
{
    if (!machine->planned && config->override_tensors.len > 0)
        return error_at(error, HEARTH_UNSUPPORTED, "override_tensors",
                        "models.%s has override_tensors, which are counted by llama.cpp, on devices that are there",
                        config->name);
    struct llm_model *weights = open_planned(config, machine, error);
    if (weights == NULL) return (int)error->code;
    if (llm_model_info(weights)->n_layer <= 0) {
        llm_model_close(weights);
        return error_at(error, HEARTH_INVALID, config->path, "%s holds a vocabulary but no weights", config->path);
    }
    struct fit_model model = {.config = config,
                              .info = llm_model_info(weights),
                              .weights = (double)llm_model_info(weights)->size_bytes,
                              .projector = projector_bytes(config),
                              .draft = draft_bytes(config)};
    struct fit_machine left = *machine;
    double placed[FIT_PLACES] = {0};
    describe(weights, &model, machine, fit);
    if (fit->type != HEARTH_MODEL_CHAT) {
        snprintf(fit->reason, sizeof fit->reason,
                 "a model of the type %s keeps no KV cells between calls: nothing is to be chosen",
                 hearth_model_type_name(fit->type));
    } else {
        plan_compute(&model, weights, machine);
        if (config->override_tensors.len > 0 && plan_weights(&model, weights, machine, placed)) model.placed = placed;
        bool checked = false;
        for (int tries = 0; tries < PLANS && !checked; tries++) {
            fit_choose(&model, &left, fit);
            checked = check_plan(&model, weights, &left, fit);
        }
        if (!checked) give_up(fit);
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
    bool small = bytes_of_model(config->path) < FIT_SMALL;
    /* A plan on RPC servers would be remembered for the life of the process, and what is computed there be given as
     * little room. */
    bool remote = config->rpc.len > 0;
    return open && !small && config->path != NULL && !remote && config->embedding != CONFIG_TRUE;
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
    for (size_t i = 0; i < share.n_devices; i++)
        share.devices[i].free_bytes =
            (uint64_t)share_of_bytes((double)machine->devices[i].free_bytes, own, all, config->n_models);
    return share;
}

static void fit_one(const struct hearth_config *config, struct config_model *model, size_t which)
{
    hearth_fit fit = {0};
    hearth_error error;
    struct fit_machine machine;
    if (!is_open(model) || fit_machine_of(model, &machine, &error) != HEARTH_OK) return;
    machine = fit_share(config, &machine, which);
    if (fit_read(model, &machine, &fit, &error) != HEARTH_OK) return;
    if ((double)fit.weights_bytes < FIT_SMALL || fit.type != HEARTH_MODEL_CHAT) return;
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
    for (size_t i = 0; i < config->n_models; i++) fit_one(config, &config->models[i], i);
}

void fit_added(struct config_model *model, const struct hearth_config *config, size_t which)
{
    fit_one(config, model, which);
}
