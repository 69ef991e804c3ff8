/* Chooses devices by name, their parts, and buffers for tensors by pattern: see placement.h. No state. */
#include "llm/placement.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"
#include "llm/backends.h"
#include "llm/context.h"
#include "llm/rpc.h"
#include "llm/shim.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The matrices of experts, but for those that all tokens share: llama.cpp's pattern for --cpu-moe. */
#define EXPERTS "\\.ffn_(up|down|gate|gate_up)_(ch|)exps"

/* ---- Names ---- */

static int find_split_mode(const char *name, enum llama_split_mode *mode, hearth_error *error)
{
    static const char *const names[] = {"none", "layer", "row"};
    static const enum llama_split_mode modes[] = {LLAMA_SPLIT_MODE_NONE, LLAMA_SPLIT_MODE_LAYER, LLAMA_SPLIT_MODE_ROW};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *mode = modes[i];
        return HEARTH_OK;
    }
    return error_at(error, HEARTH_INVALID, "split_mode", "unknown split mode '%s': use none, layer or row", name);
}

static int find_load_mode(const char *name, enum llama_load_mode *mode, hearth_error *error)
{
    static const struct {
        const char *name;
        enum llama_load_mode mode;
    } modes[] = {{"auto", LLAMA_LOAD_MODE_AUTO},
                 {"none", LLAMA_LOAD_MODE_NONE},
                 {"mmap", LLAMA_LOAD_MODE_MMAP},
                 {"mlock", LLAMA_LOAD_MODE_MLOCK},
                 {"mmap+mlock", LLAMA_LOAD_MODE_MMAP_MLOCK},
                 {"dio", LLAMA_LOAD_MODE_DIRECT_IO}};
    for (size_t i = 0; name != NULL && i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(name, modes[i].name) != 0) continue;
        *mode = modes[i].mode;
        return HEARTH_OK;
    }
    if (name == NULL) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, "load_mode",
                    "unknown load mode '%s': use auto, none, mmap, mlock, mmap+mlock or dio", name);
}

/* ---- Devices ---- */

/* Metadata alone is on no device. */
static bool has_places(const struct llm_model_params *params)
{
    return params->weights || params->planned;
}

static size_t n_servers(const struct llm_model_params *params)
{
    return has_places(params) ? params->n_rpc : 0;
}

static size_t count(const ggml_backend_dev_t *devices)
{
    size_t n = 0;
    while (devices[n] != NULL) n++;
    return n;
}

/* Of those that llama.cpp would choose, then of all that there are. */
static ggml_backend_dev_t find_device(const char *name, const ggml_backend_dev_t *usual)
{
    for (size_t i = 0; usual[i] != NULL; i++)
        if (strcmp(ggml_backend_dev_name(usual[i]), name) == 0) return usual[i];
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        if (llm_is_gpu(device) && strcmp(ggml_backend_dev_name(device), name) == 0) return device;
    }
    return NULL;
}

static void put_names(const ggml_backend_dev_t *usual, struct buf *out)
{
    for (size_t i = 0; usual[i] != NULL; i++) {
        if (i > 0) buf_puts(out, ", ");
        buf_printf(out, "%s (%s)", ggml_backend_dev_name(usual[i]), ggml_backend_dev_description(usual[i]));
    }
    if (usual[0] == NULL) buf_puts(out, "none");
}

/* The named ones of those that there are, in the order of their names. */
static int choose_devices(struct llm_placement *out, const struct llm_model_params *params, hearth_error *error)
{
    bool lists = params->n_tensor_split > 0 || n_servers(params) > 0;
    bool nothing = params->n_devices == 1 && strcmp(params->devices[0], "none") == 0;
    if (!has_places(params) || (params->n_devices == 0 && !lists)) return HEARTH_OK;
    ggml_backend_dev_t *usual = llm_rpc_devices(params->rpc, n_servers(params));
    if (params->n_devices == 0) {
        out->devices = usual;
        return HEARTH_OK;
    }
    int rc = HEARTH_OK;
    out->devices = mem_alloc((params->n_devices + 1) * sizeof(ggml_backend_dev_t));
    for (size_t i = 0; i < params->n_devices && !nothing && rc == HEARTH_OK; i++) {
        out->devices[i] = find_device(params->devices[i], usual);
        if (out->devices[i] != NULL) continue;
        struct buf names = {0};
        put_names(usual, &names);
        rc = error_at(error, HEARTH_INVALID, "devices", "devices: there is no device %s; there are: %s",
                      params->devices[i], names.v);
        buf_release(&names);
    }
    free(usual);
    return rc;
}

static int choose_parts(struct llm_placement *out, const struct llm_model_params *params, hearth_error *error)
{
    if (!has_places(params) || params->n_tensor_split == 0) return HEARTH_OK;
    size_t n = count(out->devices), most = llama_max_devices();
    if (params->n_tensor_split != n || n > most)
        return error_at(error, HEARTH_INVALID, "tensor_split",
                        "tensor_split: %zu numbers for %zu devices: write one for each, in the order of `devices`, or "
                        "those of rpc first, then the GPUs",
                        params->n_tensor_split, n);
    out->parts = mem_alloc(most * sizeof *out->parts); /* llama.cpp reads so many */
    memcpy(out->parts, params->tensor_split, n * sizeof *out->parts);
    return HEARTH_OK;
}

/* llama.cpp has the mode still, but few of its devices can hold rows of a tensor. */
static int check_rows(const struct llm_placement *placement, const ggml_backend_dev_t *devices, hearth_error *error)
{
    ggml_backend_dev_t unable = NULL;
    if (placement->split_mode != LLAMA_SPLIT_MODE_ROW) return HEARTH_OK;
    for (size_t i = 0; devices[i] != NULL && unable == NULL; i++) {
        ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(devices[i]);
        if (ggml_backend_reg_get_proc_address(reg, "ggml_backend_split_buffer_type") == NULL) unable = devices[i];
    }
    if (unable == NULL) return HEARTH_OK;
    return error_at(
        error, HEARTH_UNSUPPORTED, "split_mode",
        "split_mode: %s (%s) cannot hold rows of a tensor in llama.cpp %s: use layer, or none for one device",
        ggml_backend_dev_name(unable), ggml_backend_dev_description(unable), llm_version());
}

static int check_devices(const struct llm_placement *placement, hearth_error *error)
{
    ggml_backend_dev_t *own = placement->devices == NULL ? llm_rpc_devices(NULL, 0) : NULL;
    const ggml_backend_dev_t *devices = placement->devices != NULL ? placement->devices : own;
    int rc = check_rows(placement, devices, error);
    if (rc == HEARTH_OK && placement->main_gpu != 0 && (size_t)placement->main_gpu >= count(devices)) {
        struct buf names = {0};
        put_names(devices, &names);
        rc = error_at(error, HEARTH_INVALID, "main_gpu", "main_gpu: %d is none of the %zu devices, counted from 0: %s",
                      placement->main_gpu, count(devices), names.v);
        buf_release(&names);
    }
    free(own);
    return rc;
}

/* ---- Tensors ---- */

static void add_override(struct llm_placement *out, char *pattern, ggml_backend_buffer_type_t buffers)
{
    size_t n = out->n_overrides++;
    out->patterns = mem_grow(out->patterns, n + 1, sizeof *out->patterns);
    out->overrides = mem_grow(out->overrides, n + 2, sizeof *out->overrides);
    out->patterns[n] = pattern;
    out->overrides[n] = (struct llama_model_tensor_buft_override){.pattern = pattern, .buft = buffers};
    out->overrides[n + 1] = (struct llama_model_tensor_buft_override){0};
}

/* Buffers have names of their own: CPU, CUDA0, RPC0[192.0.2.7:50052]. */
static ggml_backend_buffer_type_t find_buffers(const char *name, const ggml_backend_dev_t *usual, struct buf *names)
{
    size_t n_usual = count(usual), n = n_usual + ggml_backend_dev_count();
    for (size_t i = 0; i < n; i++) {
        ggml_backend_dev_t device = i < n_usual ? usual[i] : ggml_backend_dev_get(i - n_usual);
        ggml_backend_buffer_type_t buffers = ggml_backend_dev_buffer_type(device);
        if (buffers == NULL) continue;
        if (strcmp(ggml_backend_buft_name(buffers), name) == 0) return buffers;
        if (i < n_usual || !llm_is_gpu(device)) buf_printf(names, "%s ", ggml_backend_buft_name(buffers));
    }
    return NULL;
}

static int override_one(struct llm_placement *out, const char *text, const ggml_backend_dev_t *usual,
                        hearth_error *error)
{
    const char *equals = strrchr(text, '=');
    char fault[128] = "";
    if (equals == NULL || equals == text)
        return error_at(error, HEARTH_INVALID, "override_tensors",
                        "override_tensors: '%s' is not PATTERN=BUFFERS, such as exps=CPU", text);
    struct buf names = {0};
    ggml_backend_buffer_type_t buffers = find_buffers(equals + 1, usual, &names);
    char *pattern = mem_strndup(text, (size_t)(equals - text));
    int rc = HEARTH_OK;
    if (buffers == NULL)
        rc = error_at(error, HEARTH_INVALID, "override_tensors",
                      "override_tensors: no buffers have the name '%s'; there are: %s", equals + 1, names.v);
    else if (!llm_is_pattern(pattern, fault, sizeof fault))
        rc = error_at(error, HEARTH_INVALID, "override_tensors", "override_tensors: '%s' is no regular expression: %s",
                      pattern, fault);
    buf_release(&names);
    if (rc == HEARTH_OK)
        add_override(out, pattern, buffers);
    else
        free(pattern);
    return rc;
}

static int choose_overrides(struct llm_placement *out, const struct llm_model_params *params, hearth_error *error)
{
    ggml_backend_dev_t *usual = llm_rpc_devices(params->rpc, n_servers(params));
    int rc = HEARTH_OK;
    for (size_t i = 0; i < params->n_overrides && rc == HEARTH_OK; i++)
        rc = override_one(out, params->overrides[i], usual, error);
    free(usual);
    if ((params->n_cpu_moe > 0 || params->cpu_moe) && rc == HEARTH_OK) {
        ggml_backend_buffer_type_t memory = ggml_backend_dev_buffer_type(ggml_backend_reg_dev_get(llm_processor(), 0));
        for (int32_t layer = 0; layer < params->n_cpu_moe && !params->cpu_moe; layer++)
            add_override(out, mem_format("blk\\.%d" EXPERTS, layer), memory);
        if (params->cpu_moe) add_override(out, mem_strdup(EXPERTS), memory);
    }
    if (rc == HEARTH_OK && out->n_overrides >= llama_max_tensor_buft_overrides())
        rc = error_at(error, HEARTH_INVALID, "override_tensors", "%zu overrides of tensors are more than %zu",
                      out->n_overrides, llama_max_tensor_buft_overrides() - 1);
    return rc;
}

/* ---- All of it ---- */

int llm_placement_choose(struct llm_placement *out, const struct llm_model_params *params, hearth_error *error)
{
    assert(out != NULL && params != NULL && params->split_mode != NULL);
    *out = (struct llm_placement){.main_gpu = params->main_gpu, .load_mode = LLAMA_LOAD_MODE_AUTO};
    int rc = find_split_mode(params->split_mode, &out->split_mode, error);
    if (rc == HEARTH_OK) rc = find_load_mode(params->load_mode, &out->load_mode, error);
    if (rc == HEARTH_OK) rc = choose_devices(out, params, error);
    if (rc == HEARTH_OK) rc = choose_parts(out, params, error);
    if (rc == HEARTH_OK) rc = check_devices(out, error);
    if (rc == HEARTH_OK) rc = choose_overrides(out, params, error);
    return rc;
}

void llm_placement_release(struct llm_placement *placement)
{
    for (size_t i = 0; i < placement->n_overrides; i++) free(placement->patterns[i]);
    free(placement->patterns);
    free(placement->overrides);
    free(placement->devices);
    free(placement->parts);
}

/* ---- What goes where ---- */

/* A device that reports no memory has that of the machine, as llama.cpp takes it. */
static uint64_t free_memory_of(ggml_backend_dev_t device)
{
    size_t available = 0, total = 0;
    ggml_backend_dev_memory(device, &available, &total);
    return available == 0 && total == 0 ? llm_free_memory(false) : available;
}

static void describe_devices(const struct llm_placement *placement, const ggml_backend_dev_t *devices, size_t from,
                             size_t n, struct llm_device *out)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = (struct llm_device){.free_bytes = free_memory_of(devices[from + i])};
        out[i].part = placement->parts != NULL ? placement->parts[from + i] : (float)out[i].free_bytes;
        out[i].remote = strcmp(ggml_backend_reg_name(ggml_backend_dev_backend_reg(devices[from + i])), "RPC") == 0;
        snprintf(out[i].name, sizeof out[i].name, "%s", ggml_backend_dev_name(devices[from + i]));
    }
}

int llm_list_devices(const struct llm_model_params *params, struct llm_device devices[LLM_DEVICES], size_t *n,
                     hearth_error *error)
{
    assert(params != NULL && devices != NULL && n != NULL);
    struct llm_model_params planned = *params;
    struct llm_placement placement;
    planned.planned = true;
    *n = 0;
    if (llm_rpc_open(params->rpc, params->n_rpc, error) != HEARTH_OK) return (int)error->code;
    int rc = llm_placement_choose(&placement, &planned, error);
    if (rc == HEARTH_OK && params->n_gpu_layers >= 0) {
        ggml_backend_dev_t *own = placement.devices == NULL ? llm_rpc_devices(NULL, 0) : NULL;
        const ggml_backend_dev_t *all = placement.devices != NULL ? placement.devices : own;
        bool one = placement.split_mode == LLAMA_SPLIT_MODE_NONE && all[0] != NULL;
        size_t there = one ? 1 : count(all);
        *n = there < LLM_DEVICES ? there : LLM_DEVICES;
        describe_devices(&placement, all, one ? (size_t)placement.main_gpu : 0, *n, devices);
        free(own);
    }
    llm_placement_release(&placement);
    llm_rpc_close(params->rpc, params->n_rpc);
    return rc;
}

/* As llama.cpp does it, in the same arithmetic: the last layers go to the devices, each of which takes those whose
 * place among them lies in its part. */
void llm_assign_layers(const struct llm_model_info *info, int64_t n_gpu_layers, const struct llm_device *devices,
                       size_t n, int8_t *places)
{
    int64_t all = info->n_blocks + 1, taken = n_gpu_layers == 0 || n_gpu_layers > all ? all : n_gpu_layers;
    float splits[LLM_DEVICES], sum = 0;
    bool none = true;
    for (size_t i = 0; i < n; i++) none = none && devices[i].part == 0;
    for (size_t i = 0; i < n; i++) splits[i] = sum += none ? (float)devices[i].free_bytes : devices[i].part;
    for (size_t i = 0; i < n; i++) splits[i] /= sum;
    for (int32_t i = 0; i <= info->n_layer; i++) {
        int64_t layer = i == info->n_layer ? info->n_blocks : i; /* the output comes last */
        places[i] = -1;
        if (n == 0 || taken < 0 || layer < all - taken) continue;
        size_t device = 0;
        while (device + 1 < n && splits[device] <= (float)(layer - (all - taken)) / (float)taken) device++;
        places[i] = (int8_t)device;
    }
}
