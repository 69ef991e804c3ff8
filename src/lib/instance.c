/* An instance: its models, from loading to closing.
 *
 * The list of models is filled by the one thread that calls hearth_load(); n_loaded is raised only when a model is
 * complete, so that other threads can use those below it without a lock. */
#include "lib/instance.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/plan.h"
#include "lib/cache.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What llama.cpp can tell apart in one context, less the one through which rows are taken out and put in. */
#define MAX_SEQUENCES 255

/* ---- Finding ---- */

static void list_names(const struct hearth *instance, struct buf *out)
{
    for (size_t i = 0; i < instance->config->n_models; i++)
        buf_printf(out, "%s%s", i == 0 ? "" : ", ", instance->config->models[i].name);
}

struct model *instance_find_model(const struct hearth *instance, const char *name, hearth_error *error)
{
    size_t n = atomic_load(&instance->n_loaded);
    for (size_t i = 0; i < n; i++)
        if (name == NULL || strcmp(instance->models[i].config->name, name) == 0) return &instance->models[i];
    if (name == NULL || config_find_model(instance->config, name) != NULL) {
        error_set(error, HEARTH_UNAVAILABLE,
                  atomic_load(&instance->load_failed) ? "the model could not be loaded"
                                                      : "loading model: try again in a moment");
        return NULL;
    }
    struct buf names = {0};
    list_names(instance, &names);
    error_at(error, HEARTH_NOT_FOUND, "model", "model '%s' does not exist; there is: %s", name, names.v);
    buf_release(&names);
    return NULL;
}

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

static int open_template(struct model *model, hearth_error *error)
{
    const struct llm_model_info *info = llm_model_info(model->weights);
    char *own = NULL;
    if (model->config->jinja_file != NULL) {
        own = read_text_file(model->config->jinja_file, error);
        if (own == NULL) return HEARTH_IO;
    } else if (info->chat_template == NULL) {
        return HEARTH_OK;
    }
    struct chat_template_params params = {.source = own != NULL ? own : info->chat_template,
                                          .bos = info->bos_text,
                                          .eos = info->eos_text,
                                          .adds_bos = info->adds_bos,
                                          .adds_eos = info->adds_eos};
    model->template_ = chat_template_open(&params, error);
    free(own);
    if (model->template_ != NULL) return HEARTH_OK;
    error_prefix(error, "the chat template of %s: ",
                 model->config->jinja_file != NULL ? model->config->jinja_file : model->config->path);
    return (int)error->code;
}

/* The window that a slot gets. What the file does not say follows the model; what it says is kept or refused. */
static int decide_window(const struct config_model *config, const struct llm_model_info *info, int32_t *window,
                         hearth_error *error)
{
    *window = (int32_t)config->context_window;
    bool stretched = strcmp(config->rope_scaling, "none") != 0;
    if (*window <= info->n_ctx_train || info->n_ctx_train <= 0 || stretched) return HEARTH_OK;
    if (!config_is_set(config->notes, "models.*.context_window")) {
        *window = info->n_ctx_train;
        return HEARTH_OK;
    }
    return error_at(error, HEARTH_INVALID, "context_window",
                    "models.%s.context_window is %d, but the model was trained for %d tokens: lower it, or set "
                    "rope_scaling: yarn",
                    config->name, *window, info->n_ctx_train);
}

/* One pool of cells lets sequences share a prefix, and more of them stay than there are slots. Where nothing is ever
 * shared a stream for each slot is faster: by 3 % with one slot, by 9 to 13 % with four. It also makes every slot's
 * numbers independent of the others, which deterministic mode promises. */
static bool decide_unified(const struct config_model *config)
{
    bool shares = config->incremental_cache || config->system_prompt_cache;
    if (strcmp(config->kv_unified, "auto") == 0) return shares && !config->deterministic;
    return strcmp(config->kv_unified, "true") == 0;
}

/* Sequences are more than slots: conversations that nobody computes on stay resident. In one pool of cells a sequence
 * costs nothing by itself, but where each has a recurrent state or a sliding window of its own it does. */
static int32_t decide_sequences(const struct config_model *config, const struct llm_model_info *info, bool unified)
{
    int32_t slots = (int32_t)config->n_seq_max, n = slots;
    bool state_each = info->kind == LLM_HYBRID || info->kind == LLM_RECURRENT;
    if (unified && state_each)
        n = 4 * slots;
    else if (unified && info->n_swa > 0)
        n = 2 * slots + 2;
    else if (unified)
        n = slots + (3 * slots > 28 ? 3 * slots : 28);
    if (n <= MAX_SEQUENCES) return n;
    return slots > MAX_SEQUENCES ? slots : MAX_SEQUENCES;
}

int instance_context_params(const struct config_model *config, const struct llm_model *weights,
                            struct llm_context_params *params, hearth_error *error)
{
    int32_t window;
    int rc = decide_window(config, llm_model_info(weights), &window, error);
    if (rc != HEARTH_OK) return rc;
    if (config->deterministic && config->n_batch < PLAN_PIECE)
        return error_at(error, HEARTH_INVALID, "n_batch",
                        "models.%s.n_batch is %lld: deterministic mode computes pieces of %d tokens and needs as many",
                        config->name, (long long)config->n_batch, PLAN_PIECE);
    bool unified = decide_unified(config);
    /* In one pool llama.cpp 0.5.0 gives wrong logits when a call with a sliding window is computed in several parts. */
    bool in_one_part = unified && llm_model_info(weights)->n_swa > 0 && config->n_batch > config->n_ubatch;
    int64_t rows = in_one_part ? config->n_ubatch : config->n_batch;
    const char *limit = in_one_part ? "n_ubatch" : "n_batch";
    if (rows < config->n_seq_max)
        return error_at(error, HEARTH_INVALID, limit, "models.%s.%s is %lld: it must be at least n_seq_max (%lld)",
                        config->name, limit, (long long)rows, (long long)config->n_seq_max);
    *params = (struct llm_context_params){
        .window = window,
        .n_seq = decide_sequences(config, llm_model_info(weights), unified),
        .n_cells = window * (int32_t)config->n_seq_max,
        .n_batch = (int32_t)rows,
        .n_ubatch = (int32_t)config->n_ubatch,
        .unified = unified,
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

static enum engine_caching decide_caching(const struct config_model *config)
{
    if (config->incremental_cache) return ENGINE_CACHES_CONVERSATIONS;
    return config->system_prompt_cache ? ENGINE_CACHES_SYSTEM : ENGINE_CACHES_NOTHING;
}

/* Under what name the model's states are stored; without one they are not. */
static void name_states(struct hearth *instance, struct model *model, struct fingerprint *fingerprint,
                        struct engine_params *params)
{
    const struct config_cache *cache = &instance->config->cache;
    if (instance->store == NULL) return;
    if (!fingerprint_finish(fingerprint)) {
        log_event(LOG_WARN, "store", "off for this model", log_str("model", model->config->name),
                  log_str("reason", fingerprint->error.message));
        return;
    }
    params->store = instance->store;
    params->identity = cache_identity(model->config, fingerprint->digest);
    params->stride = (int32_t)cache->boundary_align_tokens;
    params->continued_interval = (int32_t)cache->continued_interval;
    params->evict_timeout_ns = clock_from_ms(cache->evict_save_timeout_ms);
}

static int open_engine(struct hearth *instance, struct model *model, struct fingerprint *fingerprint,
                       hearth_error *error)
{
    const struct config_model *config = model->config;
    struct engine_params params = {.name = config->name,
                                   .model = model->weights,
                                   .n_slots = (int32_t)config->n_seq_max,
                                   .max_gap_ns = clock_from_ms(config->max_decode_gap_ms),
                                   .deterministic = config->deterministic,
                                   .n_gpu_layers = (int32_t)config->n_gpu_layers,
                                   .caching = decide_caching(config),
                                   .cache_min_tokens = (int32_t)config->cache_min_tokens,
                                   .slot_timeout_ns = clock_from_ms((int64_t)(config->cache_slot_timeout * 1e3)),
                                   .preempt_fails = strcmp(config->preempt, "fail") == 0,
                                   .state_budget = cache_state_budget(instance->config),
                                   .clock = instance->clock};
    int rc = instance_context_params(config, model->weights, &params.context, error);
    if (rc == HEARTH_OK) rc = estimate_check(config, llm_model_info(model->weights), params.context.window, error);
    if (rc != HEARTH_OK) return rc;
    name_states(instance, model, fingerprint, &params);
    model->engine = engine_open(&params, error);
    return model->engine == NULL ? (int)error->code : HEARTH_OK;
}

static void start_preparers(struct model *model, struct clock *clock)
{
    const struct config_model *config = model->config;
    model->admission = admission_open(clock, (size_t)(config->n_seq_max * config->queue_depth),
                                      clock_from_ms((int64_t)(config->admission_timeout * 1e3)));
    for (int i = 0; i < MODEL_PREPARERS; i++) pthread_create(&model->preparers[i], NULL, request_prepare_loop, model);
}

static void unload(struct model *model)
{
    engine_close(model->engine);
    admission_release(model->admission);
    system_prompt_close(model->system_prompt);
    chat_template_close(model->template_);
    llm_model_close(model->weights);
    *model = (struct model){0};
}

struct progress_of_model {
    hearth_progress progress;
    void *ud;
    const char *name;
};

static bool report_progress(void *ud, float fraction)
{
    const struct progress_of_model *p = ud;
    return p->progress == NULL || p->progress(p->ud, p->name, fraction);
}

/* Keys that are read and checked but not served by this version: better refused than ignored. */
static int refuse_unserved(const struct config_model *config, hearth_error *error)
{
    const struct {
        bool set;
        const char *key;
    } unserved[] = {{config->mmproj != NULL, "mmproj"}, {config->lora.len > 0, "lora"}};
    for (size_t i = 0; i < sizeof unserved / sizeof *unserved; i++)
        if (unserved[i].set)
            return error_at(error, HEARTH_UNSUPPORTED, unserved[i].key,
                            "models.%s.%s: this version cannot serve it; remove the key", config->name,
                            unserved[i].key);
    return HEARTH_OK;
}

/* The documents behind hearth force f16 cells on hybrids; llama.cpp computes them with any type by now. */
static void advise(const struct config_model *config, const struct llm_model_info *info)
{
    bool quantised = config->cache_type_k[0] == 'q' || config->cache_type_v[0] == 'q';
    if (info->kind == LLM_HYBRID && quantised)
        log_event(LOG_WARN, "model", "hybrid models are best kept in f16 cells", log_str("model", config->name),
                  log_str("cache_type_k", config->cache_type_k), log_str("cache_type_v", config->cache_type_v));
}

static int load_parts(struct hearth *instance, struct model *model, struct fingerprint *fingerprint,
                      struct progress_of_model *progress, hearth_error *error)
{
    int64_t begin = clock_now(instance->clock);
    struct llm_model_params params = {.path = model->config->path,
                                      .n_gpu_layers = (int)model->config->n_gpu_layers,
                                      .split_mode = model->config->split_mode,
                                      .weights = true,
                                      .progress = report_progress,
                                      .ud = progress};
    model->weights = llm_model_open(&params, error);
    if (model->weights == NULL) return (int)error->code;
    const struct llm_model_info *info = llm_model_info(model->weights);
    if (!info->has_decoder)
        return error_at(error, HEARTH_UNSUPPORTED, model->config->path,
                        "%s is an encoder (%s): this version serves models that generate text", model->config->path,
                        info->architecture);
    model->store = instance->store;
    model->resume_wait_ns = clock_from_ms(instance->config->cache.session_resume_wait_ms);
    int rc = open_template(model, error);
    if (rc == HEARTH_OK) rc = open_engine(instance, model, fingerprint, error);
    if (rc != HEARTH_OK) return rc;
    if (model->config->system_prompt_cache && model->config->system_prompt_assumed)
        model->system_prompt = system_prompt_open();
    advise(model->config, info);
    start_preparers(model, instance->clock);
    model->created = (int64_t)time(NULL);
    log_event(LOG_INFO, "model", "loaded", log_str("model", model->config->name), log_str("arch", info->architecture),
              log_str("kind", llm_kind_name(info->kind)), log_int("size_bytes", (int64_t)info->size_bytes),
              log_bool("chat_template", model->template_ != NULL),
              log_num("took_ms", clock_to_ms(clock_now(instance->clock) - begin)));
    return HEARTH_OK;
}

static int load(struct hearth *instance, struct model *model, struct progress_of_model *progress, hearth_error *error)
{
    int rc = refuse_unserved(model->config, error);
    if (rc != HEARTH_OK) return rc;
    struct fingerprint fingerprint = {0};
    if (instance->store != NULL) fingerprint_start(&fingerprint, model->config->path);
    rc = load_parts(instance, model, &fingerprint, progress, error);
    fingerprint_stop(&fingerprint);
    return rc;
}

int hearth_load(hearth *instance, hearth_progress progress, void *ud, hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    for (size_t i = 0; i < instance->config->n_models; i++) {
        struct model *model = &instance->models[i];
        model->config = &instance->config->models[i];
        struct progress_of_model of = {.progress = progress, .ud = ud, .name = model->config->name};
        int rc = load(instance, model, &of, error);
        if (rc != HEARTH_OK) {
            unload(model);
            atomic_store(&instance->load_failed, true);
            return rc;
        }
        atomic_store(&instance->n_loaded, i + 1);
    }
    return HEARTH_OK;
}

/* ---- Life ---- */

hearth *hearth_open(const hearth_config *config, hearth_error *error)
{
    if (hearth_config_check(config, NULL, NULL, error) != HEARTH_OK) return NULL;
    llm_init();
    struct hearth *instance = mem_alloc(sizeof *instance);
    instance->config = config_copy(config);
    instance->clock = clock_monotonic();
    instance->models = mem_alloc((config->n_models + 1) * sizeof *instance->models);
    instance->store = cache_open(instance->config);
    return instance;
}

static void stop_admission(struct model *model)
{
    struct job_list left = admission_close(model->admission);
    job_list_fail(&left, HEARTH_UNAVAILABLE, "engine shutting down");
}

static void join_preparers(struct model *model)
{
    for (int i = 0; i < MODEL_PREPARERS; i++)
        if (model->preparers[i] != 0) pthread_join(model->preparers[i], NULL);
    memset(model->preparers, 0, sizeof model->preparers);
}

void hearth_drain(hearth *instance, int64_t timeout_ms)
{
    int64_t deadline = clock_now(instance->clock) + clock_from_ms(timeout_ms);
    size_t n = atomic_load(&instance->n_loaded);
    for (size_t i = 0; i < n; i++) stop_admission(&instance->models[i]);
    for (size_t i = 0; i < n; i++) join_preparers(&instance->models[i]);
    for (size_t i = 0; i < n; i++) engine_drain(instance->models[i].engine, deadline);
}

void hearth_close(hearth *instance)
{
    if (instance == NULL) return;
    hearth_drain(instance, 0);
    size_t n = atomic_load(&instance->n_loaded);
    for (size_t i = 0; i < n; i++) unload(&instance->models[i]);
    if (instance->store != NULL) store_close(instance->store);
    free(instance->models);
    hearth_config_free(instance->config);
    free(instance);
}

/* ---- What is there ---- */

bool hearth_model(const hearth *instance, size_t index, hearth_model_info *out)
{
    if (index >= atomic_load(&instance->n_loaded)) return false;
    const struct model *model = &instance->models[index];
    const struct llm_model_info *info = llm_model_info(model->weights);
    *out = (hearth_model_info){
        .name = model->config->name,
        .path = model->config->path,
        .architecture = info->architecture,
        .kind = llm_kind_name(info->kind),
        .description = info->description,
        .size_bytes = info->size_bytes,
        .n_params = info->n_params,
        .n_vocab = info->n_vocab,
        .n_embd = info->n_embd,
        .n_layer = info->n_layer,
        .n_swa = info->n_swa,
        .n_ctx_train = info->n_ctx_train,
        .context_window = engine_window(model->engine),
        .n_slots = (int32_t)model->config->n_seq_max,
        .has_chat_template = model->template_ != NULL,
        .created = model->created,
    };
    return true;
}

size_t hearth_slots(const hearth *instance, hearth_slot *slots, size_t max)
{
    size_t total = 0, n = atomic_load(&instance->n_loaded);
    for (size_t i = 0; i < n; i++) {
        size_t room = total < max ? max - total : 0;
        total += engine_slots(instance->models[i].engine, slots + (total < max ? total : max), room);
    }
    return total;
}

int32_t hearth_tokenize(hearth *instance, const char *model, const char *text, size_t len, bool add_special,
                        bool parse_special, int32_t **tokens, hearth_error *error)
{
    hearth_error own = {0};
    if (error == NULL) error = &own;
    struct model *found = instance_find_model(instance, model, error);
    if (found == NULL) return (int32_t)error->code;
    struct tokens list = {0};
    llm_tokenize(found->weights, text, len, add_special, parse_special, &list);
    *tokens = list.v;
    return (int32_t)list.len;
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
    return log_open(path, level, format, error);
}
