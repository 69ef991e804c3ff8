/* Parameters of a model's llama.cpp context: see model_context.h. Pure functions; any thread. */
#include "lib/models/model_context.h"

#include "base/error.h"
#include "engine/plan.h"

#include <string.h>

/* llama.cpp's limit of sequences in one context, less the scratch sequence through which KV cells are read and written.
 */
#define MAX_SEQUENCES 255

int32_t model_window(const struct config_model *config, const struct llm_model_info *info)
{
    int32_t wanted = (int32_t)config->context_window, trained = info->n_ctx_train;
    bool stretched = info->has_decoder && strcmp(config->rope_scaling, "none") != 0;
    return trained <= 0 || stretched || wanted <= trained ? wanted : trained;
}

/* Whether llama.cpp gives each sequence a stream of cells of its own, whatever it is asked for. What hearth does in one
 * pool would be wrong there: a prefix that is shared is copied with the next decode call only, over a checkpoint that
 * has been loaded meanwhile. */
static bool has_streams_only(const struct llm_model_info *info)
{
    return strcmp(info->architecture, "deepseek4") == 0;
}

/* A unified KV cache, one pool of cells, lets sequences share a prefix, and keeps more sequences resident than there
 * are slots. Without sharing, a stream of cells for each slot is faster: by 3 % with one slot, by 9 to 13 % with four.
 * It also makes the numbers of a slot independent of the others, which deterministic mode promises. */
static bool decide_unified(const struct config_model *config, const struct llm_model_info *info)
{
    if (has_streams_only(info)) return false;
    bool shares = config->incremental_cache || config->system_prompt_cache;
    if (config->kv_unified == CONFIG_AUTO) return shares && !config->deterministic;
    return config->kv_unified == CONFIG_TRUE;
}

bool model_keeps_full_windows(const struct config_model *config, const struct llm_model_info *info)
{
    bool recurrent = info->kind == HEARTH_KIND_HYBRID || info->kind == HEARTH_KIND_RECURRENT;
    return config->deterministic && info->n_swa > 0 && !recurrent;
}

/* Whether every sequence takes memory for a recurrent state or a sliding window, used or not. */
static bool has_state_each(const struct llm_model_info *info)
{
    return info->kind == HEARTH_KIND_HYBRID || info->kind == HEARTH_KIND_RECURRENT || info->n_swa > 0;
}

static int64_t at_least(int64_t n, int64_t least)
{
    return n < least ? least : n;
}

/* The number of sequences: one for each slot, and spare ones in which conversations stay resident that no slot
 * computes. A model that does not cache conversations needs no spare ones, and with a stream per slot there can be
 * none. */
static int32_t decide_sequences(const struct config_model *config, const struct llm_model_info *info, bool unified)
{
    int64_t slots = config->n_seq_max, spare = config->n_seq_spare;
    if (!unified || !config->incremental_cache) return (int32_t)slots;
    if (spare < 0) spare = has_state_each(info) ? at_least(slots, 3) : at_least(3 * slots, 28);
    int64_t n = slots + spare < MAX_SEQUENCES ? slots + spare : MAX_SEQUENCES;
    return (int32_t)(n > slots ? n : slots);
}

/* Whether the store reads and writes KV cells of the context: a recurrent model has none. */
static bool needs_scratch(const struct config_model *config, const struct llm_model_info *info)
{
    return info->kind != HEARTH_KIND_RECURRENT && (config->incremental_cache || config->system_prompt_cache);
}

int model_context_params(const struct config_model *config, const struct llm_model_info *info,
                         struct llm_context_params *params, hearth_error *error)
{
    int32_t window = model_window(config, info);
    if (config->deterministic && config->n_batch < PREFILL_CHUNK)
        return error_at(error, HEARTH_INVALID, "n_batch",
                        "models.%s.n_batch is %lld: deterministic mode computes pieces of %d tokens and needs as many",
                        config->name, (long long)config->n_batch, PREFILL_CHUNK);
    if (has_streams_only(info) && config->kv_unified == CONFIG_TRUE)
        return error_at(error, HEARTH_INVALID, "kv_unified",
                        "models.%s.kv_unified is true: models of the architecture %s have a stream of cells for each "
                        "sequence; leave it at auto",
                        config->name, info->architecture);
    bool unified = decide_unified(config, info);
    /* With a unified cache llama.cpp 0.5.0 gives wrong logits when it splits a decode call of a model with a sliding
     * window into several micro-batches. */
    bool one_ubatch = unified && info->n_swa > 0 && config->n_batch > config->n_ubatch;
    int64_t most_tokens = one_ubatch ? config->n_ubatch : config->n_batch;
    const char *limit = one_ubatch ? "n_ubatch" : "n_batch";
    if (most_tokens < config->n_seq_max)
        return error_at(error, HEARTH_INVALID, limit, "models.%s.%s is %lld: it must be at least n_seq_max (%lld)",
                        config->name, limit, (long long)most_tokens, (long long)config->n_seq_max);
    *params = (struct llm_context_params){
        .window = window,
        .n_seq = decide_sequences(config, info, unified),
        .n_cells = window * (int32_t)config->n_seq_max,
        .n_batch = (int32_t)most_tokens,
        .n_ubatch = (int32_t)config->n_ubatch,
        .unified = unified,
        .full_windows = model_keeps_full_windows(config, info),
        .scratch = needs_scratch(config, info),
        .type_k = config->cache_type_k,
        .type_v = config->cache_type_v,
        .flash_attention = config->flash_attention,
        .offload_kqv = config->offload_kqv,
        .op_offload = config->op_offload,
        .threads = (int)config->threads,
        .rope_scaling = config->rope_scaling,
        .rope_freq_base = config->rope_freq_base,
        .rope_freq_scale = config->rope_freq_scale,
        .yarn_ext_factor = config->yarn_ext_factor,
        .yarn_attn_factor = config->yarn_attn_factor,
        .yarn_beta_fast = config->yarn_beta_fast,
        .yarn_beta_slow = config->yarn_beta_slow,
        .yarn_orig_ctx = (int32_t)config->yarn_orig_ctx,
    };
    return HEARTH_OK;
}
