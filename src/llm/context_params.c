/* Translates the parameters of a context into llama.cpp's, refuses invalid ones by name, and computes how many KV
 * cells, sequences and bytes they ask for, before anything is allocated. No state; any thread. */
#include "llm/context_params.h"

#include "base/error.h"
#include "llm/llama_log.h"
#include "llm/model_struct.h"
#include "llm/placement.h"
#include "llm/shim.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Names ---- */

static const struct {
    const char *name;
    enum ggml_type type;
} cell_types[] = {
    {"auto", GGML_TYPE_F16}, /* llama.cpp's default */
    {"f32", GGML_TYPE_F32},   {"f16", GGML_TYPE_F16},   {"bf16", GGML_TYPE_BF16},
    {"q8_0", GGML_TYPE_Q8_0}, {"q4_0", GGML_TYPE_Q4_0}, {"q4_1", GGML_TYPE_Q4_1},
    {"q5_0", GGML_TYPE_Q5_0}, {"q5_1", GGML_TYPE_Q5_1}, {"iq4_nl", GGML_TYPE_IQ4_NL},
};

static enum ggml_type find_type(const char *name)
{
    for (size_t i = 0; i < sizeof cell_types / sizeof cell_types[0]; i++)
        if (strcmp(name, cell_types[i].name) == 0) return cell_types[i].type;
    return GGML_TYPE_COUNT;
}

double llm_type_bytes(const char *name)
{
    enum ggml_type type = find_type(name);
    return type == GGML_TYPE_COUNT ? 0 : (double)ggml_type_size(type) / (double)ggml_blck_size(type);
}

static int set_type(enum ggml_type *type, const char *param, const char *name, hearth_error *error)
{
    *type = find_type(name);
    if (*type != GGML_TYPE_COUNT) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, param,
                    "unknown cell type '%s': use auto, f32, f16, bf16, q8_0, q5_1, q5_0, "
                    "q4_1, q4_0 or iq4_nl",
                    name);
}

/* ---- Sizes ---- */

/* llama.cpp pads the cells of a stream to a multiple of this; asking for less would leave a sequence with a stream of
 * its own fewer cells than its window. */
#define CELL_PADDING 256

static uint64_t padded(uint64_t cells)
{
    return (cells + CELL_PADDING - 1) / CELL_PADDING * CELL_PADDING;
}

static uint64_t total_cells(const struct llm_context_params *params)
{
    if (params->unified && params->n_cells > 0) return (uint64_t)params->n_cells;
    uint64_t window = (uint64_t)params->window;
    return (params->unified ? window : padded(window)) * (uint64_t)params->n_seq;
}

static uint32_t total_sequences(const struct llm_context_params *params)
{
    uint32_t n = (uint32_t)params->n_seq;
    return params->scratch && params->unified && n < llama_max_parallel_sequences() ? n + 1 : n;
}

static int check_sizes(const struct llm_context_params *params, hearth_error *error)
{
    const struct {
        const char *param;
        int64_t value, max;
    } sizes[] = {
        {"context_window", params->window, INT32_MAX / 2},
        {"n_seq_max", params->n_seq, (int64_t)llama_max_parallel_sequences()},
        {"n_batch", params->n_batch, INT32_MAX / 2},
        {"n_ubatch", params->n_ubatch, INT32_MAX / 2},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].max)
            return error_at(error, HEARTH_INVALID, sizes[i].param, "%s is %lld: it must be from 1 to %lld",
                            sizes[i].param, (long long)sizes[i].value, (long long)sizes[i].max);
    if (total_cells(params) > INT32_MAX)
        return error_at(error, HEARTH_INVALID, "context_window", "%d sequences of %d tokens are more cells than %d",
                        params->n_seq, params->window, INT32_MAX);
    return HEARTH_OK;
}

/* ---- Memory ---- */

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static double head_bytes(const struct llm_context_params *params, const struct llm_model_info *info)
{
    return info->n_embd_head_k * llm_type_bytes(params->type_k) + info->n_embd_head_v * llm_type_bytes(params->type_v);
}

/* Cells of a layer that attends to the whole window, and of one with a sliding window. A unified KV cache holds the
 * sliding windows of all sequences, a stream that of one; beside them there is room for the batch tokens of one
 * micro-batch. Full windows are as large as the other layers' cells. */
struct cell_counts {
    uint64_t whole, window;
};

static struct cell_counts count_cells(const struct llm_context_params *params, const struct llm_model_info *info)
{
    uint64_t all = total_cells(params), n = padded(all);
    struct cell_counts counts = {.whole = n, .window = n};
    if (params->full_windows) return counts;
    uint64_t streams = params->unified ? 1 : (uint64_t)params->n_seq;
    uint64_t windows = (uint64_t)info->n_swa * (params->unified ? total_sequences(params) : 1);
    uint64_t rows = smaller(smaller((uint64_t)params->n_ubatch, (uint64_t)params->n_batch), all);
    counts.window = streams * padded(smaller(n / streams, windows + rows));
    return counts;
}

struct llm_cells llm_cells_of(const struct llm_context_params *params, const struct llm_model_info *info)
{
    assert(params != NULL && params->n_seq > 0 && info != NULL);
    struct llm_cells cells = {.n_sequences = (int32_t)total_sequences(params)};
    struct cell_counts counts = count_cells(params, info);
    double head = head_bytes(params, info);
    if (params->head == LLM_HEAD_MTP) {
        /* It is as the other layers with attention are. */
        int32_t most = 0;
        for (int32_t i = 0; i < info->n_layer; i++)
            if (info->n_head_kv[i] > most) most = info->n_head_kv[i];
        cells.total = cells.whole = (double)counts.whole * most * head;
        return cells;
    }
    for (int32_t i = 0; i < info->n_layer; i++) {
        bool slides = info->is_swa != NULL && info->is_swa[i];
        if (slides)
            cells.windows += (double)counts.window * info->n_head_kv[i] * head;
        else
            cells.whole += (double)counts.whole * info->n_head_kv[i] * head;
    }
    cells.states = (double)info->state_bytes * cells.n_sequences;
    cells.total = cells.whole + cells.windows + cells.states;
    return cells;
}

/* Layers without cells have the states, in equal parts; where all have cells, as with both side by side, all do. */
void llm_cells_by_layer(const struct llm_context_params *params, const struct llm_model_info *info, double *bytes)
{
    struct cell_counts counts = count_cells(params, info);
    double head = head_bytes(params, info), states = (double)info->state_bytes * total_sequences(params);
    int32_t without = 0;
    for (int32_t i = 0; i < info->n_layer; i++) without += info->n_head_kv[i] == 0;
    for (int32_t i = 0; i < info->n_layer; i++) {
        bool slides = info->is_swa != NULL && info->is_swa[i];
        bytes[i] = (double)(slides ? counts.window : counts.whole) * info->n_head_kv[i] * head;
        if (without == 0 || info->n_head_kv[i] == 0) bytes[i] += states / (without > 0 ? without : info->n_layer);
    }
}

/* Linux overcommits memory, so malloc() would not refuse these cells, and the OOM killer would end the process when it
 * uses them. A GPU refuses. */
int llm_check_room(const struct llm_context_params *params, const struct llm_model_info *info, hearth_error *error)
{
    if (params->offload_kqv && llm_has_devices(info)) return HEARTH_OK;
    const double gib = 1024.0 * 1024 * 1024;
    double needed = llm_cells_of(params, info).total, available = (double)llm_free_memory(false);
    if (needed <= available) return HEARTH_OK;
    return error_set(error, HEARTH_NO_MEMORY,
                     "a context of %d sequences of %d tokens needs %.2f GiB for its cells, %.2f GiB are free: lower "
                     "context_window or n_seq_max, or take a smaller cache_type_k and cache_type_v",
                     params->n_seq, params->window, needed / gib, available / gib);
}

/* ---- Translation ---- */

static void set_if_given(float *value, double given)
{
    if (!isnan(given)) *value = (float)given;
}

static int translate_rope(struct llama_context_params *out, const struct llm_context_params *params,
                          const struct llm_model_info *info, hearth_error *error)
{
    set_if_given(&out->rope_freq_base, params->rope_freq_base);
    set_if_given(&out->yarn_ext_factor, params->yarn_ext_factor);
    set_if_given(&out->yarn_attn_factor, params->yarn_attn_factor);
    set_if_given(&out->yarn_beta_fast, params->yarn_beta_fast);
    set_if_given(&out->yarn_beta_slow, params->yarn_beta_slow);
    out->yarn_orig_ctx = (uint32_t)params->yarn_orig_ctx;
    if (strcmp(params->rope_scaling, "yarn") == 0)
        out->rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_YARN;
    else if (strcmp(params->rope_scaling, "linear") == 0)
        out->rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_LINEAR;
    else if (strcmp(params->rope_scaling, "none") == 0)
        /* No scaling of ours. The one that a model was trained with stays: without it the model would write nonsense.
         */
        out->rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED;
    else
        return error_at(error, HEARTH_INVALID, "rope_scaling", "unknown rope_scaling '%s': use none, linear or yarn",
                        params->rope_scaling);
    /* Scaling that is configured without a factor scales the trained context to the window, on top of the model's own
     * scaling. */
    bool given = params->yarn_orig_ctx > 0;
    int32_t trained = given ? params->yarn_orig_ctx : info->n_ctx_train;
    float own = given ? 1 : info->rope_freq_scale;
    bool stretched = out->rope_scaling_type != LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED && params->window > trained;
    if (stretched) out->rope_freq_scale = own * (float)trained / (float)params->window;
    set_if_given(&out->rope_freq_scale, params->rope_freq_scale);
    return HEARTH_OK;
}

/* A head is a view into quantised cells, whose elements come in blocks. Without flash attention llama.cpp does not
 * check that it is whole blocks, and reads and writes out of bounds. */
static int check_blocks(const struct llama_context_params *out, const struct llm_model_info *info, hearth_error *error)
{
    const struct {
        const char *param;
        enum ggml_type type;
        int32_t head;
    } cells[] = {{"cache_type_k", out->type_k, info->n_embd_head_k},
                 {"cache_type_v", out->type_v, info->n_embd_head_v}};
    for (size_t i = 0; i < 2 && info->has_decoder; i++)
        if (cells[i].head % ggml_blck_size(cells[i].type) != 0)
            return error_at(error, HEARTH_INVALID, cells[i].param,
                            "%s cannot be %s: the model's heads have %d elements, which are no whole blocks of %lld: "
                            "take f16",
                            cells[i].param, ggml_type_name(cells[i].type), cells[i].head,
                            (long long)ggml_blck_size(cells[i].type));
    return HEARTH_OK;
}

int llm_translate_cells(struct llama_context_params *out, const struct llm_context_params *params, hearth_error *error)
{
    int code = set_type(&out->type_k, "cache_type_k", params->type_k, error);
    if (code == 0) code = set_type(&out->type_v, "cache_type_v", params->type_v, error);
    if (code < 0) return code;
    if (strcmp(params->flash_attention, "auto") == 0)
        out->flash_attn_type = LLAMA_FLASH_ATTN_TYPE_AUTO;
    else if (strcmp(params->flash_attention, "on") == 0)
        out->flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    else if (strcmp(params->flash_attention, "off") == 0)
        out->flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    else
        return error_at(error, HEARTH_INVALID, "flash_attention", "unknown flash_attention '%s': use auto, on or off",
                        params->flash_attention);
    if (ggml_is_quantized(out->type_v) && out->flash_attn_type == LLAMA_FLASH_ATTN_TYPE_DISABLED)
        return error_at(error, HEARTH_INVALID, "cache_type_v",
                        "values of type %s need flash attention: set flash_attention to auto, or cache_type_v to f16",
                        params->type_v);
    return HEARTH_OK;
}

int llm_translate_params(struct llama_context_params *out, const struct llm_context_params *params,
                         const struct llm_model_info *info, hearth_error *error)
{
    assert(out != NULL && params != NULL && info != NULL);
    *out = llama_context_default_params();
    int code = check_sizes(params, error);
    if (code == 0) code = llm_translate_cells(out, params, error);
    if (code == 0) code = translate_rope(out, params, info, error);
    if (code == 0) code = check_blocks(out, info, error);
    if (code < 0) return code;
    out->n_ctx = (uint32_t)total_cells(params);
    out->n_batch = (uint32_t)params->n_batch;
    out->n_ubatch = (uint32_t)params->n_ubatch;
    out->n_seq_max = total_sequences(params);
    /* llama.cpp expects that each sequence may want logits at once, and ends the process where the batch is smaller. */
    uint32_t outputs = params->n_outputs > 0 ? (uint32_t)params->n_outputs : out->n_batch;
    out->n_outputs_max = outputs > out->n_seq_max ? outputs : out->n_seq_max;
    out->kv_unified = params->unified;
    /* Else layers with a sliding window keep only their newest n_swa tokens, whatever llama.cpp's default. */
    out->swa_full = params->full_windows;
    out->offload_kqv = params->offload_kqv;
    out->op_offload = params->op_offload;
    out->abort_callback = params->abort;
    out->abort_callback_data = params->ud;
    out->no_perf = true;
    if (params->head == LLM_HEAD_MTP) out->ctx_type = LLAMA_CONTEXT_TYPE_MTP;
    out->n_threads = out->n_threads_batch = llm_count_threads(&params->threads);
    return HEARTH_OK;
}

/* Of a device, or of memory, where the buffers are the machine's own. */
static struct llm_planned *planned_on(struct llm_plan *plan, ggml_backend_buffer_type_t type)
{
    ggml_backend_dev_t device = ggml_backend_buft_get_device(type);
    bool own = device == NULL || ggml_backend_buft_is_host(type) || !llm_is_gpu(device);
    const char *name = own ? "" : ggml_backend_dev_name(device);
    size_t i = 0;
    while (i < plan->n && strcmp(plan->v[i].name, name) != 0) i++;
    if (i == plan->n && i < sizeof plan->v / sizeof *plan->v)
        snprintf(plan->v[plan->n++].name, sizeof plan->v[i].name, "%s", name);
    return &plan->v[i < plan->n ? i : plan->n - 1];
}

static void describe_plan(const struct llama_context *context, struct llm_plan *plan)
{
    struct llm_buffers buffers[4 * LLM_DEVICES];
    size_t most = sizeof buffers / sizeof *buffers, n = llm_list_buffers(context, buffers, most);
    *plan = (struct llm_plan){.n = 1}; /* memory comes first, used or not */
    for (size_t i = 0; i < n && i < most; i++) {
        struct llm_planned *on = planned_on(plan, buffers[i].type);
        on->weights += buffers[i].weights;
        on->cells += buffers[i].cells;
        on->compute += buffers[i].compute;
    }
}

/* Of a model without weights llama.cpp computes the sizes of buffers without allocating them. */
bool llm_plan_memory(const struct llm_model *model, const struct llm_context_params *params, struct llm_plan *plan)
{
    assert(model != NULL && params != NULL && plan != NULL);
    struct llama_context_params translated;
    hearth_error error;
    if (llm_translate_params(&translated, params, &model->info, &error) < 0) return false;
    struct llm_log_capture captured;
    llm_log_capture_begin(&captured);
    struct llama_context *context = llama_init_from_model(model->handle, translated);
    llm_log_capture_end();
    if (context == NULL) return false;
    describe_plan(context, plan);
    llama_free(context);
    return true;
}
