/* An instance from hearth_open() to hearth_close(): how one model is loaded and unloaded, and draining.
 *
 * The thread that calls hearth_load() fills the model entries, and later those that call hearth_add_model(), one at a
 * time; they raise n_entries only when the facts of the next entry are complete, so that other threads read the entries
 * below it without a lock. The model manager
 * (model_manager.h) decides which models are in memory; it calls model_open() and model_close(), on the thread that
 * loads. */
#include "lib/models/loaded_model.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "engine/plan.h"
#include "lib/models/fit.h"
#include "lib/models/instance_store.h"
#include "lib/models/model_manager.h"
#include "lib/parameters/sampling.h"
#include "lib/requests/request.h"
#include "lib/requests/slow_lane.h"
#include "lib/requests/system_prompt.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* llama.cpp's limit of sequences in one context, less the scratch sequence through which KV most_tokens are read and
 * written.
 */
#define MAX_SEQUENCES 255

/* Some 30 conversations of 100,000 tokens each. */
#define TOKENIZER_CACHE_BYTES ((size_t)16 << 20)

/* ---- Loading ---- */

static char *read_text_file(const char *path, hearth_error *error)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        error_at(error, HEARTH_IO, path, "cannot read %s: %s", path, strerror(errno));
        return NULL;
    }
    struct buf text = {0};
    char chunk[4096];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0) buf_append(&text, chunk, n);
    fclose(file);
    return buf_take(&text);
}

/* The template that llama.cpp, too, uses for a model without one. */
static const char chatml[] =
    "{%- for message in messages -%}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";

char *instance_template_text(const struct config_model *config, const struct llm_model *weights, hearth_error *error)
{
    if (config->jinja_file != NULL) return read_text_file(config->jinja_file, error);
    const char *own = llm_model_info(weights)->chat_template;
    return mem_strdup(own != NULL ? own : chatml);
}

static int open_template(struct model *model, hearth_error *error)
{
    const struct llm_model_info *info = llm_model_info(model->weights);
    char *text = instance_template_text(model->config, model->weights, error);
    if (text == NULL) return (int)error->code;
    struct chat_template_params params = {.source = text,
                                          .bos = info->bos_text,
                                          .eos = info->eos_text,
                                          .adds_bos = info->adds_bos,
                                          .adds_eos = info->adds_eos,
                                          .kwargs_json = model->config->chat_template_kwargs};
    model->template_ = chat_template_open(&params, error);
    free(text);
    if (model->template_ != NULL) return HEARTH_OK;
    error_prefix(error, "the chat template of %s: ",
                 model->config->jinja_file != NULL ? model->config->jinja_file : model->config->path);
    return (int)error->code;
}

/* The context window of a slot, in tokens. Beyond what it was trained for a model writes nonsense, unless RoPE scaling
 * stretches its positions. */
static int32_t decide_window(const struct config_model *config, const struct llm_model_info *info)
{
    int32_t wanted = (int32_t)config->context_window, trained = info->n_ctx_train;
    bool stretched = info->has_decoder && strcmp(config->rope_scaling, "none") != 0;
    return trained <= 0 || stretched || wanted <= trained ? wanted : trained;
}

/* A unified KV cache, one pool of cells, lets sequences share a prefix, and keeps more sequences resident than there
 * are slots. Without sharing, a stream of cells for each slot is faster: by 3 % with one slot, by 9 to 13 % with four.
 * It also makes the numbers of a slot independent of the others, which deterministic mode promises. */
static bool decide_unified(const struct config_model *config)
{
    bool shares = config->incremental_cache || config->system_prompt_cache;
    if (config->kv_unified == CONFIG_AUTO) return shares && !config->deterministic;
    return config->kv_unified == CONFIG_TRUE;
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

/* Whether the store reads and writes KV most_tokens of the context: a recurrent model has none. */
static bool needs_scratch(const struct config_model *config, const struct llm_model_info *info)
{
    return info->kind != HEARTH_KIND_RECURRENT && (config->incremental_cache || config->system_prompt_cache);
}

int instance_context_params_of(const struct config_model *config, const struct llm_model_info *info,
                               struct llm_context_params *params, hearth_error *error)
{
    int32_t window = decide_window(config, info);
    if (config->deterministic && config->n_batch < PREFILL_CHUNK)
        return error_at(error, HEARTH_INVALID, "n_batch",
                        "models.%s.n_batch is %lld: deterministic mode computes pieces of %d tokens and needs as many",
                        config->name, (long long)config->n_batch, PREFILL_CHUNK);
    bool unified = decide_unified(config);
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

int instance_context_params(const struct config_model *config, const struct llm_model *weights,
                            struct llm_context_params *params, hearth_error *error)
{
    return instance_context_params_of(config, llm_model_info(weights), params, error);
}

static enum engine_caching decide_caching(const struct config_model *config)
{
    if (config->incremental_cache) return ENGINE_CACHES_CONVERSATIONS;
    return config->system_prompt_cache ? ENGINE_CACHES_SYSTEM : ENGINE_CACHES_NOTHING;
}

static enum engine_idle decide_idle(enum config_idle idle)
{
    static const enum engine_idle kinds[] = {[CONFIG_IDLE_AUTO] = ENGINE_IDLE_PRICED,
                                             [CONFIG_IDLE_STAY] = ENGINE_IDLE_STAYS,
                                             [CONFIG_IDLE_LEAVE] = ENGINE_IDLE_LEAVES};
    return kinds[idle];
}

/* Models among which what an instance has is divided: those of the configuration, and those that were added. */
static size_t count_models(const struct hearth *instance)
{
    size_t n = instance->config->n_models, n_entries = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < n_entries; i++)
        n += instance->entries[i].own != NULL && entry_is_listed(&instance->entries[i]);
    return n;
}

/* The identity of the model's states. Where the fingerprint of the model or an adapter is missing, they are not stored.
 */
static bool identify_states(void *ud, struct identity *identity)
{
    struct model *model = ud;
    struct fingerprint *fingerprint = &model->entry->fingerprint;
    hearth_error error = fingerprint->error;
    bool known = fingerprint_finish(fingerprint);
    if (!known) error = fingerprint->error;
    if (!known || !adapters_finish(model->adapters, &error)) {
        log_event(LOG_WARN, "store", "off for this model", log_str("model", model->config->name),
                  log_str("reason", error.message));
        return false;
    }
    *identity = instance_store_identity(model->config, fingerprint->digest);
    store_name_model(model->store, fingerprint->digest, model->config->name);
    return true;
}

static void set_store(const struct hearth *instance, struct model *model, struct engine_params *params)
{
    const struct config_cache *cache = &instance->config->cache;
    params->store = instance->store;
    params->store_sharers = (int)count_models(instance);
    params->identify = identify_states;
    params->identify_ud = model;
    params->stride = (int32_t)cache->boundary_align_tokens;
    params->continued_interval = (int32_t)cache->continued_interval;
    params->evict_timeout_ns = clock_from_ms(cache->evict_save_timeout_ms);
}

/* What is stored under the identity of requests that bring neither salt nor adapters is announced from now on. */
static void name_default_identity(struct model *model)
{
    const struct store_user *user = engine_store_user(model->engine);
    double *scales = NULL;
    if (user == NULL || adapters_choose(model->adapters, NULL, 0, &scales, NULL) != HEARTH_OK) return;
    struct identity identity = adapters_identity(model->adapters, &user->identity, NULL, scales);
    struct identity_name name = {.model = model->config->name, .by_state = user->codec.has_state};
    cache_events_name(model->events, &identity, &name);
    free(scales);
}

static int open_engine(struct hearth *instance, struct model *model, hearth_error *error)
{
    const struct config_model *config = model->config;
    struct engine_params params = {.name = config->name,
                                   .model = model->weights,
                                   .adapters = adapters_handles(model->adapters),
                                   .n_adapters = adapters_count(model->adapters),
                                   .n_slots = (int32_t)config->n_seq_max,
                                   .max_token_gap_ns = clock_from_ms(config->max_decode_gap_ms),
                                   .deterministic = config->deterministic,
                                   .n_gpu_layers = (int32_t)config->n_gpu_layers,
                                   .caching = decide_caching(config),
                                   .cache_min_tokens = (int32_t)config->cache_min_tokens,
                                   .idle = decide_idle(config->idle_conversations),
                                   .slot_timeout_ns = clock_from_ms((int64_t)(config->cache_slot_timeout * 1e3)),
                                   .preempt_fails = config->preempt == CONFIG_PREEMPT_FAIL,
                                   .snapshot_budget =
                                       instance_store_state_budget(instance->config, count_models(instance)),
                                   .logs_words = model->logs_words,
                                   .clock = instance->clock,
                                   .stats = &model->entry->engine_stats};
    int rc = sampling_check_config(config, error);
    if (rc == HEARTH_OK) rc = instance_context_params(config, model->weights, &params.context, error);
    if (rc == HEARTH_OK) rc = estimate_check(config, &params.context, llm_model_info(model->weights), error);
    if (rc != HEARTH_OK) return rc;
    set_store(instance, model, &params);
    model->engine = engine_open(&params, error);
    if (model->engine == NULL) return (int)error->code;
    name_default_identity(model);
    return HEARTH_OK;
}

/* Called on a thread of the store: a save has ended that suspended requests may be waiting for. */
static void resume_suspended(void *ud)
{
    admission_resume(((struct model *)ud)->admission);
}

static int start_preparers(struct model *model, struct clock *clock, hearth_error *error)
{
    const struct config_model *config = model->config;
    model->admission = admission_open(clock, (size_t)(config->n_seq_max * config->queue_depth),
                                      clock_from_ms((int64_t)(config->admission_timeout * 1e3)));
    model->waiter = (struct store_user){.wake = resume_suspended, .ud = model};
    model->slow_lane = slow_lane_open(request_prepare_slowly, error);
    int rc = model->slow_lane == NULL ? (int)error->code : HEARTH_OK;
    for (; rc == HEARTH_OK && model->n_preparers < MODEL_PREPARERS; model->n_preparers += rc == HEARTH_OK)
        rc = thread_start(&model->preparers[model->n_preparers], request_prepare_loop, model, "prepares requests",
                          error);
    return rc;
}

static void stop_admission(struct model *model)
{
    if (model->pool != NULL) {
        embed_stop(model->pool);
        return;
    }
    struct job_list left = admission_close(model->admission);
    job_list_fail(&left, HEARTH_UNAVAILABLE, "engine shutting down");
}

static void join_preparers(struct model *model)
{
    while (model->n_preparers > 0) pthread_join(model->preparers[--model->n_preparers], NULL);
    slow_lane_close(model->slow_lane);
    model->slow_lane = NULL;
}

/* engine_close() stores what is resident. */
static void model_close(struct model *model)
{
    if (model == NULL) return;
    if (model->admission != NULL) stop_admission(model);
    join_preparers(model);
    if (model->store != NULL) store_remove_user(model->store, &model->waiter);
    engine_close(model->engine);
    embed_close(model->pool);
    admission_release(model->admission);
    system_prompt_close(model->system_prompt);
    chat_template_close(model->template_);
    llm_tokenizer_cache_close(model->tokenizer_cache);
    model_media_close(model->media);
    adapters_unload(model->adapters);
    llm_model_close(model->weights);
    free(model);
}

static bool report_progress(void *ud, float fraction)
{
    const struct model_progress *p = ud;
    return p->progress == NULL || p->progress(p->ud, p->name, fraction);
}

/* Logs warnings about settings. Hybrid models: the source documents force f16 cells on them; llama.cpp by now computes
 * them with any type. Threads: those without a CPU of their own would hold up the others. */
static void warn_about_settings(const struct config_model *config, const struct llm_model_info *info)
{
    if (config_is_set(config->notes, "models.*.context_window") && decide_window(config, info) < config->context_window)
        log_event(LOG_WARN, "model",
                  "context_window lowered to what the model was trained for: set rope_scaling for more",
                  log_str("model", config->name), log_int("context_window", config->context_window),
                  log_int("trained", info->n_ctx_train));
    double f16 = llm_type_bytes("f16");
    bool quantised = llm_type_bytes(config->cache_type_k) < f16 || llm_type_bytes(config->cache_type_v) < f16;
    if (info->kind == HEARTH_KIND_HYBRID && quantised)
        log_event(LOG_WARN, "model", "hybrid models are best kept in f16 cells", log_str("model", config->name),
                  log_str("cache_type_k", config->cache_type_k), log_str("cache_type_v", config->cache_type_v));
    if (config->threads > llm_usable_cpus())
        log_event(LOG_WARN, "model", "fewer threads than configured: there are no more CPUs",
                  log_str("model", config->name), log_int("threads", config->threads),
                  log_int("cpus", llm_usable_cpus()));
}

/* Sides that a decoded image and a frame of a video may have. */
#define MOST_IMAGE_SIDE 32768
#define MOST_FRAME_SIDE 1024

static int open_media(struct model *model, int64_t save_timeout_ms, hearth_error *error)
{
    const struct config_model *config = model->config;
    if (config->mmproj == NULL) return HEARTH_OK;
    struct model_media_params params = {
        .weights = model->weights,
        .projector = {.path = config->mmproj,
                      .threads = (int)config->threads,
                      .on_gpu = llm_has_gpu() && config->n_gpu_layers >= 0,
                      .flash_attention = config->flash_attention,
                      .min_tokens = (int32_t)config->image_min_tokens,
                      .max_tokens = (int32_t)config->image_max_tokens},
        .deterministic = config->deterministic,
        .images = {.most_pixels = (uint32_t)config->image_megapixels * 1000000, .most_side = MOST_IMAGE_SIDE},
        .videos = {.fps = config->video_fps, .most_frames = (size_t)config->video_frames, .most_side = MOST_FRAME_SIDE},
        .most_seconds = (uint32_t)config->sound_seconds,
        .budget = (size_t)config->media_cache_mb << 20,
        .store = decide_caching(config) != ENGINE_CACHES_NOTHING ? model->store : NULL,
        .save_timeout_ns = clock_from_ms(save_timeout_ms),
        .name = config->name,
        .stats = &model->entry->encoder_stats,
        .n_ubatch = (int32_t)config->n_ubatch};
    model->media = model_media_open(&params, error);
    return model->media == NULL ? (int)error->code : HEARTH_OK;
}

static int open_chat_model(struct hearth *instance, struct model *model, hearth_error *error)
{
    const struct llm_model_info *info = llm_model_info(model->weights);
    if (!info->has_decoder)
        return error_at(error, HEARTH_UNSUPPORTED, model->config->path,
                        "%s is an encoder (%s), which writes no text: leave models.%s.embedding at auto",
                        model->config->path, info->architecture, model->config->name);
    model->store = instance->store;
    model->events = instance->events;
    model->logs_words = instance->config->server.insecure_logging;
    model->resume_wait_ns = clock_from_ms(instance->config->cache.session_resume_wait_ms);
    int rc = adapters_load(model->adapters, model->weights, instance->store, error);
    if (info->chat_template == NULL && model->config->jinja_file == NULL)
        log_event(LOG_WARN, "model", "no chat template: chats are written in ChatML, unless jinja_file names another",
                  log_str("model", model->config->name));
    if (rc == HEARTH_OK) rc = open_template(model, error);
    if (rc == HEARTH_OK) rc = open_engine(instance, model, error);
    if (rc != HEARTH_OK) return rc;
    rc = open_media(model, instance->config->cache.evict_save_timeout_ms, error);
    if (rc != HEARTH_OK) return rc;
    model->tokenizer_cache = llm_tokenizer_cache_open(TOKENIZER_CACHE_BYTES, &model->entry->tokenizer_stats);
    if (model->config->system_prompt_cache && model->config->system_prompt_assumed)
        model->system_prompt = system_prompt_open();
    return start_preparers(model, instance->clock, error);
}

static int load_parts(struct hearth *instance, struct model *model, struct model_progress *progress,
                      hearth_error *error)
{
    struct fingerprint *fingerprint = &model->entry->fingerprint;
    int64_t begin = clock_now(instance->clock);
    struct llm_model_params params = {.path = model->config->path,
                                      .n_gpu_layers = (int)model->config->n_gpu_layers,
                                      .split_mode = model->config->split_mode,
                                      .rpc = (const char *const *)model->config->rpc.v,
                                      .n_rpc = model->config->rpc.len,
                                      .weights = true,
                                      .progress = report_progress,
                                      .ud = progress};
    model->weights = llm_model_open(&params, error);
    if (model->weights == NULL) return (int)error->code;
    const struct llm_model_info *info = llm_model_info(model->weights);
    /* The integrity check comes first: the file may be damaged. */
    if (fingerprint->verify && !fingerprint_finish(fingerprint)) {
        *error = fingerprint->error;
        return (int)error->code;
    }
    int rc = entry_learn(model->entry, model->weights, error);
    if (rc != HEARTH_OK) return rc;
    rc = model->entry->facts.type == HEARTH_MODEL_CHAT ? open_chat_model(instance, model, error)
                                                       : embedding_open_pool(model, instance->clock, error);
    if (rc != HEARTH_OK) return rc;
    warn_about_settings(model->config, info);
    atomic_store(&model->entry->created_ms, clock_unix_ms());
    log_event(LOG_INFO, "model", "loaded", log_str("model", model->config->name), log_str("arch", info->architecture),
              log_str("type", hearth_model_type_name(model->entry->facts.type)),
              log_str("kind", hearth_model_kind_name(info->kind)), log_int("size_bytes", (int64_t)info->size_bytes),
              log_bool("chat_template", model->entry->facts.info.has_chat_template),
              log_num("took_ms", clock_to_ms(clock_now(instance->clock) - begin)));
    return HEARTH_OK;
}

static struct model *model_open(struct hearth *instance, struct model_entry *entry, struct model_progress *progress,
                                hearth_error *error)
{
    struct fingerprint *fingerprint = &entry->fingerprint;
    bool verify = !entry->config->ignore_integrity_check && llm_file_has_sidecar(entry->config->path);
    struct model *model = mem_alloc(sizeof *model);
    *model = (struct model){.entry = entry, .config = entry->config, .adapters = entry->adapters};
    int rc = HEARTH_OK;
    struct fingerprint_source source = {.path = entry->config->path, .store = instance->store, .verify = verify};
    if (instance->store != NULL || verify) rc = fingerprint_start(fingerprint, &source, error);
    if (rc == HEARTH_OK) rc = load_parts(instance, model, progress, error);
    fingerprint_stop(fingerprint);
    if (rc == HEARTH_OK) return model;
    model_close(model);
    return NULL;
}

/* Reads the facts of a model from its file's metadata, without loading the weights. */
static int read_metadata(struct model_entry *entry, hearth_error *error)
{
    struct llm_model_params params = {.path = entry->config->path, .split_mode = entry->config->split_mode};
    struct llm_model *model = llm_model_open(&params, error);
    if (model == NULL) return (int)error->code;
    atomic_store(&entry->created_ms, clock_unix_ms());
    int rc = entry_learn(entry, model, error);
    llm_model_close(model);
    return rc;
}

static bool loads_on_demand(const struct model_entry *entry)
{
    return entry->config->load == CONFIG_LOAD_DEMAND;
}

/* Opens an entry. With server.memory_budget_mb the metadata is read before the weights, so that a model that cannot fit
 * is refused before it is loaded. */
static int open_entry(struct hearth *instance, struct model_entry *entry, hearth_error *error)
{
    int rc = HEARTH_OK;
    entry->adapters = adapters_open(entry->config, error);
    if (entry->adapters == NULL) return (int)error->code;
    bool limited = instance->config->server.memory_budget_mb > 0;
    if (limited || loads_on_demand(entry)) rc = read_metadata(entry, error);
    if (rc == HEARTH_OK && limited) rc = manager_check(instance->manager, entry, error);
    return rc;
}

/* The others of the configuration are served without it. */
static void leave_out(struct hearth *instance, struct model_entry *entry, const hearth_error *error)
{
    log_event(LOG_WARN, "model", "left out: its file cannot be read", log_str("model", entry->config->name),
              log_str("reason", error->message));
    entry_release(entry);
    memset(entry, 0, sizeof *entry);
    atomic_fetch_add(&instance->n_left_out, 1);
}

static int load_all(struct hearth *instance, hearth_progress progress, void *ud, hearth_error *error)
{
    fit_defaults(instance->config);
    for (size_t i = 0, n = 0; i < instance->config->n_models; i++) {
        struct model_entry *entry = &instance->entries[n];
        entry->config = &instance->config->models[i];
        entry->manager = instance->manager;
        int rc = open_entry(instance, entry, error);
        if (rc == HEARTH_OK && !loads_on_demand(entry))
            rc = manager_load(instance->manager, entry, progress, ud, error);
        bool may_lack = entry->config->optional && loads_on_demand(entry);
        if (rc != HEARTH_OK && !may_lack) return rc;
        if (rc != HEARTH_OK)
            leave_out(instance, entry, error);
        else
            atomic_store(&instance->n_entries, ++n);
    }
    return HEARTH_OK;
}

int hearth_load(hearth *instance, hearth_progress progress, void *ud, hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    int rc = load_all(instance, progress, ud, error);
    hearth_error late;
    int started = manager_start(instance->manager, rc == HEARTH_OK ? error : &late);
    if (rc == HEARTH_OK) rc = started;
    if (rc != HEARTH_OK) atomic_store(&instance->load_failed, true);
    return rc;
}

/* ---- Adding ---- */

/* The models that are served, and the one of `own`, as one configuration; what it points to is borrowed. */
static struct hearth_config models_with(const struct hearth *instance, const struct hearth_config *own)
{
    struct hearth_config all = *instance->config;
    size_t n = atomic_load(&instance->n_entries);
    all.models = mem_alloc((n + 1) * sizeof *all.models);
    all.n_models = 0;
    for (size_t i = 0; i < n; i++)
        if (entry_is_listed(&instance->entries[i])) all.models[all.n_models++] = *instance->entries[i].config;
    all.models[all.n_models++] = own->models[0];
    return all;
}

static void fit_to_others(const struct hearth *instance, struct hearth_config *own)
{
    struct hearth_config all = models_with(instance, own);
    fit_added(&own->models[0], &all, all.n_models - 1);
    free(all.models);
}

/* A configuration of that model alone; NULL: it has none, or not one that can be added. */
static struct hearth_config *copy_section(const struct hearth *instance, const hearth_config *config, const char *model,
                                          hearth_error *error)
{
    struct hearth_config *own = config_copy(config);
    int rc = hearth_config_keep_models(own, &model, 1, error);
    if (rc == HEARTH_OK) rc = hearth_config_check(own, NULL, NULL, error);
    if (rc == HEARTH_OK && own->models[0].load != CONFIG_LOAD_DEMAND)
        rc = error_at(error, HEARTH_INVALID, "load", "models.%s.load: only models with load: demand can be added",
                      model);
    if (rc == HEARTH_OK && instance_knows_model(instance, model))
        rc = error_at(error, HEARTH_INVALID, "model", "there is a model '%s' already", model);
    if (rc == HEARTH_OK) return own;
    hearth_config_free(own);
    return NULL;
}

/* Takes `own`. With the lock of those that add. */
static int add_entry(hearth *instance, struct hearth_config *own, hearth_error *error)
{
    size_t n = atomic_load(&instance->n_entries);
    struct model_entry *entry = &instance->entries[n];
    entry->own = own;
    entry->config = &own->models[0];
    entry->manager = instance->manager;
    int rc = n >= instance->config->n_models + HEARTH_ADDED_MODELS
                 ? error_set(error, HEARTH_NO_MEMORY, "%d models were added already: start hearth anew to add more",
                             HEARTH_ADDED_MODELS)
                 : open_entry(instance, entry, error);
    if (rc == HEARTH_OK) {
        atomic_store(&instance->n_entries, n + 1);
        log_event(LOG_INFO, "model", "added", log_str("model", entry->config->name));
        return HEARTH_OK;
    }
    entry_release(entry);
    memset(entry, 0, sizeof *entry);
    return rc;
}

int hearth_add_model(hearth *instance, const hearth_config *config, const char *model, hearth_error *error)
{
    hearth_error unread;
    if (error == NULL) error = &unread;
    pthread_mutex_lock(&instance->adding);
    struct hearth_config *own = copy_section(instance, config, model, error);
    if (own != NULL) fit_to_others(instance, own);
    int rc = own == NULL ? (int)error->code : add_entry(instance, own, error);
    pthread_mutex_unlock(&instance->adding);
    return rc;
}

/* ---- Life ---- */

hearth *hearth_open(const hearth_config *config, hearth_error *error)
{
    if (hearth_config_check(config, NULL, NULL, error) != HEARTH_OK) return NULL;
    llm_init();
    struct hearth *instance = mem_alloc(sizeof *instance);
    instance->config = config_copy(config);
    instance->clock = clock_monotonic();
    instance->entries = mem_alloc((config->n_models + HEARTH_ADDED_MODELS + 1) * sizeof *instance->entries);
    pthread_mutex_init(&instance->adding, NULL);
    instance->manager = manager_open(instance, &(struct model_loader){.open = model_open, .close = model_close});
    if (instance_store_open(instance->config, &instance->store, error) == HEARTH_OK) return instance;
    hearth_close(instance);
    return NULL;
}

static void drain_model(struct model *model, int64_t deadline)
{
    if (model->pool != NULL)
        embed_drain(model->pool, deadline);
    else
        engine_drain(model->engine, deadline);
}

/* Calls `act` for every model in memory; after manager_stop(). */
static void each_model(hearth *instance, void (*act)(struct model *model))
{
    size_t n = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < n; i++)
        if (instance->entries[i].model != NULL) act(instance->entries[i].model);
}

void hearth_drain(hearth *instance, int64_t timeout_ms)
{
    int64_t deadline = clock_now(instance->clock) + clock_from_ms(timeout_ms);
    size_t n = atomic_load(&instance->n_entries);
    if (instance->store != NULL) store_end_orders(instance->store);
    manager_stop(instance->manager);
    each_model(instance, stop_admission);
    each_model(instance, join_preparers);
    for (size_t i = 0; i < n; i++)
        if (instance->entries[i].model != NULL) drain_model(instance->entries[i].model, deadline);
}

void hearth_close(hearth *instance)
{
    if (instance == NULL) return;
    hearth_drain(instance, 0);
    each_model(instance, model_close);
    manager_close(instance->manager);
    /* One beyond the complete ones may be half open, where the load failed. */
    for (size_t i = 0; i <= atomic_load(&instance->n_entries); i++) entry_release(&instance->entries[i]);
    hearth_unfollow_blocks(instance);
    if (instance->store != NULL) {
        /* Where the store is off the disk hangs, and the engines have waited for it already. */
        int64_t patience_ms = store_is_on(instance->store) ? instance->config->cache.evict_save_timeout_ms : 1000;
        store_close(instance->store, clock_now(clock_monotonic()) + clock_from_ms(patience_ms));
    }
    cache_events_close(instance->events);
    pthread_mutex_destroy(&instance->adding);
    free(instance->entries);
    hearth_config_free(instance->config);
    free(instance);
}

/* ---- hearth.h: slots, residents, tokens, versions, log ---- */

/* Calls `list` for every engine; it returns the number of its entries, of which those of the engines before are
 * `from`. Returns all of them. */
static size_t over_engines(const hearth *instance,
                           size_t (*list)(void *ud, struct engine *engine, const char *model, size_t from), void *ud)
{
    size_t total = 0, n = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < n; i++) {
        struct model_entry *entry = &instance->entries[i];
        struct model *model = brief_lease_take(entry);
        if (model == NULL) continue;
        if (model->engine != NULL) total += list(ud, model->engine, entry->config->name, total);
        brief_lease_end(entry);
    }
    return total;
}

struct slot_list {
    hearth_slot *v;
    size_t max;
};

static size_t list_slots(void *ud, struct engine *engine, const char *model, size_t from)
{
    const struct slot_list *list = ud;
    size_t room = from < list->max ? list->max - from : 0,
           n = engine_slots(engine, room == 0 ? NULL : list->v + from, room);
    for (size_t i = 0; i < n && i < room; i++) list->v[from + i].model = model;
    return n;
}

size_t hearth_slots(const hearth *instance, hearth_slot *slots, size_t max)
{
    return over_engines(instance, list_slots, &(struct slot_list){slots, max});
}

struct resident_list {
    hearth_resident *v;
    size_t max;
};

static size_t list_residents(void *ud, struct engine *engine, const char *model, size_t from)
{
    const struct resident_list *list = ud;
    size_t room = from < list->max ? list->max - from : 0,
           n = engine_residents(engine, room == 0 ? NULL : list->v + from, room);
    for (size_t i = 0; i < n && i < room; i++) list->v[from + i].model = model;
    return n;
}

size_t hearth_residents(const hearth *instance, hearth_resident *residents, size_t max)
{
    return over_engines(instance, list_residents, &(struct resident_list){residents, max});
}

struct mark_list {
    struct stored_mark *v;
    size_t max;
};

static size_t list_marks(void *ud, struct engine *engine, const char *model, size_t from)
{
    (void)model;
    const struct mark_list *list = ud;
    size_t room = from < list->max ? list->max - from : 0;
    return engine_stored(engine, room == 0 ? NULL : list->v + from, room);
}

size_t instance_stored_marks(const hearth *instance, struct stored_mark *marks, size_t max)
{
    return over_engines(instance, list_marks, &(struct mark_list){marks, max});
}

int32_t hearth_tokenize(hearth *instance, const char *model, const char *text, size_t len, bool add_special,
                        bool parse_special, int32_t **tokens, hearth_error *error)
{
    hearth_error own = {0};
    if (error == NULL) error = &own;
    struct model_entry *entry = instance_find_model(instance, model, error);
    if (entry == NULL) return (int32_t)error->code;
    struct model *found = brief_lease_take(entry);
    if (found == NULL) {
        hearth_load_model(instance, model, NULL);
        return error_set(error, HEARTH_UNAVAILABLE, "loading model '%s': try again in a moment", entry->config->name);
    }
    struct tokens list = {0};
    int rc = llm_check_text(found->weights, text, len, error);
    if (rc == HEARTH_OK) llm_tokenize(found->weights, text, len, add_special, parse_special, &list);
    brief_lease_end(entry);
    *tokens = list.v;
    return rc == HEARTH_OK ? (int32_t)list.len : rc;
}

void hearth_free(char *string)
{
    free(string);
}

const char *hearth_version(void)
{
    return HEARTH_VERSION;
}

const char *hearth_llama_version(void)
{
    return llm_version();
}

const char *hearth_cpu_features(void)
{
    return llm_cpu_features();
}

int hearth_log_open(const char *path, const char *level, const char *format, hearth_error *error)
{
    int rc = log_open(path, level, format, error);
    return rc == HEARTH_OK ? log_start(error) : rc;
}

void hearth_log_reopen(void)
{
    log_reopen();
}
