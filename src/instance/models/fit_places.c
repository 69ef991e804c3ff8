/* Counts the bytes of a model by place, the machine's memory and each device, and divides layers among devices: see
 * fit.h. The weights of a layer are its tensors' bytes, and each layer's cells lie where the layer is. Pure functions.
 */
#include "instance/models/fit.h"

#include "instance/models/model_context.h"

#include <assert.h>
#include <limits.h>

void fit_places_of(const struct fit_model *model, const struct fit_machine *machine, struct fit_places *places)
{
    const struct config_model *config = model->config;
    assert(model->info->n_layer <= FIT_LAYERS);
    llm_assign_layers(model->info, config->n_gpu_layers, machine->devices, machine->n_devices, places->device);
    places->n_cpu_moe = config->cpu_moe ? INT32_MAX : (int32_t)config->n_cpu_moe;
}

static double experts_of(const struct llm_model_info *info, int32_t layer)
{
    return info->expert_bytes != NULL ? (double)info->expert_bytes[layer] : 0;
}

/* Bytes of a layer, or of the output, that a device takes. */
static double weights_on_device(const struct llm_model_info *info, const struct fit_places *places, int32_t layer)
{
    return (double)info->layer_bytes[layer] - (layer < places->n_cpu_moe ? experts_of(info, layer) : 0);
}

static double compute_of(const struct fit_model *model, size_t place, const hearth_fit_choice *choice)
{
    const struct fit_compute *compute = &model->compute[place];
    return compute->fixed + compute->cell * choice->context_window * (double)choice->n_seq_max;
}

/* The first device of this machine itself; n_devices: there is none. */
static size_t first_own(const struct fit_machine *machine)
{
    size_t i = 0;
    while (i < machine->n_devices && machine->devices[i].remote) i++;
    return i;
}

double fit_beside(const struct fit_model *model, const struct fit_machine *machine, size_t place)
{
    bool drafts_there = model->config->draft.n_gpu_layers >= 0;
    size_t first = first_own(machine);
    double all = 0;
    for (size_t i = 0; i < machine->n_devices; i++)
        if (!machine->devices[i].remote) all += (double)machine->devices[i].free_bytes;
    bool any = all > 0;
    if (place == 0) return (any ? 0 : model->projector) + (any && drafts_there ? 0 : model->draft);
    const struct llm_device *device = &machine->devices[place - 1];
    if (device->remote || !any) return 0;
    double part = drafts_there ? (double)device->free_bytes / all : 0;
    return (place - 1 == first ? model->projector : 0) + model->draft * part;
}

double fit_weights_in_memory(const struct fit_model *model, const struct fit_places *places)
{
    const struct llm_model_info *info = model->info;
    double sum = (double)info->embedding_bytes;
    if (model->placed != NULL) return model->placed[0];
    for (int32_t i = 0; i <= info->n_layer; i++) {
        sum += (double)info->layer_bytes[i];
        if (places->device[i] >= 0) sum -= weights_on_device(info, places, i);
    }
    if (places->device[info->n_layer] < 0) sum -= (double)info->tied_bytes; /* a copy of what is there */
    return sum;
}

void fit_count(const struct fit_model *model, const struct fit_machine *machine, const struct fit_places *places,
               const double *cells, hearth_fit_choice *choice)
{
    const struct llm_model_info *info = model->info;
    double on[LLM_DEVICES] = {0}, all_cells = 0, on_devices = 0, compute = compute_of(model, 0, choice);
    double in_memory = fit_weights_in_memory(model, places) + compute_of(model, 0, choice) +
                       fit_beside(model, machine, 0) + draft_slots_bytes(model->config, info, choice->n_seq_max);
    bool uses[LLM_DEVICES] = {false};
    for (int32_t i = 0; i <= info->n_layer; i++) {
        int8_t device = places->device[i];
        double own = i < info->n_layer ? cells[i] : 0;
        all_cells += own;
        if (device < 0 || !model->config->offload_kqv) in_memory += own;
        if (device < 0) continue;
        assert((size_t)device < machine->n_devices);
        uses[device] = true;
        if (model->placed == NULL) on[device] += weights_on_device(info, places, i);
        if (model->config->offload_kqv) on[device] += own;
    }
    for (size_t i = 0; i < machine->n_devices; i++) {
        if (model->placed != NULL) on[i] += model->placed[1 + i];
        double buffers = uses[i] ? compute_of(model, 1 + i, choice) : 0;
        on[i] += buffers + fit_beside(model, machine, 1 + i);
        compute += buffers;
        choice->device_bytes[i] = (uint64_t)on[i];
        on_devices += on[i];
    }
    choice->cells_bytes = (uint64_t)all_cells;
    choice->compute_bytes = (uint64_t)compute;
    choice->gpu_bytes = (uint64_t)on_devices;
    choice->memory_bytes = (uint64_t)in_memory;
}

bool fit_divide(const struct fit_model *model, const struct fit_machine *machine, const hearth_fit *fit,
                int32_t n_gpu_layers, const double *cells, const hearth_fit_choice *choice, struct fit_places *places)
{
    const struct llm_model_info *info = model->info;
    int32_t first = info->n_blocks + 1 - n_gpu_layers;
    size_t device = 0;
    double room = 0;
    bool opened = false;
    for (int32_t i = 0; i <= info->n_layer; i++) {
        places->device[i] = -1;
        if ((i < info->n_layer ? i : info->n_blocks) < first) continue;
        double bytes = weights_on_device(info, places, i);
        if (model->config->offload_kqv && i < info->n_layer) bytes += cells[i];
        for (; device < machine->n_devices; device++, opened = false) {
            if (!opened)
                room = (double)fit->devices[device].budget - machine->beyond[1 + device] -
                       compute_of(model, 1 + device, choice) - fit_beside(model, machine, 1 + device);
            opened = true;
            if (bytes <= room) break;
        }
        if (device == machine->n_devices) return false;
        places->device[i] = (int8_t)device;
        room -= bytes;
    }
    return true;
}

double fit_read_bytes(const struct fit_model *model, const struct fit_places *places)
{
    const struct llm_model_info *info = model->info;
    bool uses_few = info->n_expert_used > 0 && info->n_expert_used < info->n_expert;
    double sum = 0, used = uses_few ? (double)info->n_expert_used / info->n_expert : 1;
    for (int32_t i = 0; i <= info->n_layer; i++) {
        bool on_device = places->device[i] >= 0;
        if (!on_device) sum += (double)info->layer_bytes[i] - experts_of(info, i);
        if (!on_device || i < places->n_cpu_moe) sum += experts_of(info, i) * used;
    }
    return sum;
}
