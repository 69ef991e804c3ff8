/* Opens and closes the parts of one model: see load_model.h. */
#include "instance/load_model.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "instance/models/fingerprint.h"
#include "instance/models/instance_store.h"
#include "instance/models/model_context.h"
#include "instance/models/model_manager.h"
#include "instance/models/model_names.h"
#include "instance/parameters/parameters.h"
#include "instance/requests/prepare.h"
#include "instance/requests/preparing.h"
#include "instance/requests/reply_book.h"
#include "instance/requests/request.h"

#include <stdlib.h>
#include <string.h>

/* Some 30 conversations of 100,000 tokens each. */
#define TOKENIZER_CACHE_BYTES ((size_t)16 << 20)

/* Some 2 million tokens of replies. */
#define REPLY_BOOK_BYTES ((size_t)8 << 20)

/* ---- The engine and the store ---- */

static int open_template(struct model *model, hearth_error *error)
{
    char *text = model_template_text(model->config, model->weights, error);
    if (text == NULL) return (int)error->code;
    struct chat_template_params params = model_template_params(model->config, model->weights, text);
    model->template_ = chat_template_open(&params, error);
    free(text);
    model->templates = preset_templates_open();
    if (model->template_ != NULL) return HEARTH_OK;
    error_prefix(error, "the chat template of %s: ",
                 model->config->jinja_file != NULL ? model->config->jinja_file : model->config->path);
    return (int)error->code;
}

static enum engine_caching decide_caching(const struct config_model *config)
{
    if (config->incremental_cache) return ENGINE_CACHES_CONVERSATIONS;
    return config->system_prompt_cache ? ENGINE_CACHES_SYSTEM : ENGINE_CACHES_NOTHING;
}

static void note_unstored(void *ud, const char *reason)
{
    struct model_entry *entry = ud;
    log_event(LOG_WARN, "store", "off for this model", log_str("model", entry->config->name),
              log_str("reason", reason));
    manager_note_unstored(entry, reason);
}

/* The identity of the model's states. Where the fingerprint of the model or an adapter is missing, they are not stored;
 * nor where a file was changed since the watch was opened, which says so itself. */
static bool identify_states(void *ud, struct identity *identity)
{
    struct model *model = ud;
    struct fingerprint *fingerprint = &model->entry->fingerprint;
    hearth_error error = fingerprint->error;
    bool known = fingerprint_finish(fingerprint);
    if (!known) error = fingerprint->error;
    if (!known || !adapters_finish(model->adapters, &error)) {
        note_unstored(model->entry, error.message);
        return false;
    }
    enum file_state state = file_watch_check(model->watch);
    if (state == FILES_UNKNOWN) note_unstored(model->entry, "its files cannot be looked at");
    if (state != FILES_SAME) return false;
    *identity = instance_store_identity(model->config, fingerprint->digest);
    store_name_model(model->store, fingerprint->digest, model->config->name);
    return true;
}

/* From now on cache events announce states that are stored under the identity of requests with neither salt nor
 * adapters. */
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

/* HEARTH_INVALID: there is no source of that name. */
static int choose_drafts(const struct config_model *config, bool has_mtp, struct draft_params *draft,
                         hearth_error *error)
{
    static const char *const names[DRAFT_SOURCES] = {
        [DRAFT_GRAMMAR] = "grammar", [DRAFT_REQUEST] = "request", [DRAFT_STORE] = "store", [DRAFT_MODEL] = "model"};
    draft->n_max = (int32_t)config->draft.n_max;
    for (size_t i = 0; i < config->draft.sources.len; i++) {
        const char *name = config->draft.sources.v[i];
        bool all = strcmp(name, "auto") == 0, known = all;
        for (int source = 0; source < DRAFT_SOURCES; source++) {
            bool named = all || strcmp(name, names[source]) == 0;
            draft->sources[source] = draft->sources[source] || named;
            known = known || named;
        }
        bool lacks =
            strcmp(name, names[DRAFT_MODEL]) == 0 && config->draft.path == NULL && !has_mtp && !config->deterministic;
        if (known && !lacks) continue;
        if (lacks)
            error_at(error, HEARTH_INVALID, "",
                     "models.%s.draft.sources: model needs models.%s.draft.path, since the model's own file has no MTP "
                     "head that can be used",
                     config->name, config->name);
        else
            error_at(error, HEARTH_INVALID, "",
                     "models.%s.draft.sources: '%s' is none of auto, grammar, request, store, model", config->name,
                     name);
        snprintf(error->param, sizeof error->param, "models.%s.draft.sources", config->name);
        return HEARTH_INVALID;
    }
    return HEARTH_OK;
}

/* The file of a draft model or an EAGLE-3 head, or else the model's own MTP head. A head reads hidden rows of
 * `context`. */
static int open_draft_model(struct model *model, struct draft_params *draft, struct llm_context_params *context,
                            hearth_error *error)
{
    const struct config_model *config = model->config;
    const struct llm_model_info *info = llm_model_info(model->weights), *its = info;
    bool mtp = config->draft.path == NULL;
    if (!uses_draft_model(config) || (mtp && !info->mtp)) return HEARTH_OK;
    draft->model.model = model->weights;
    if (!mtp) {
        draft->model.model = model->draft_weights = draft_weights_open(config, model->weights, context, error);
        if (model->draft_weights == NULL) return (int)error->code;
        its = llm_model_info(model->draft_weights);
    }
    draft->model.n_vocab = info->n_vocab < its->n_vocab ? info->n_vocab : its->n_vocab;
    draft->model.optional = mtp && !names_draft_model(config); /* it is used because it is there */
    draft->model.context = draft_context_params(config, its);
    if (mtp) draft->model.context.head = LLM_HEAD_MTP;
    context->hidden_rows = draft->model.context.head != LLM_HEAD_NONE;
    context->hidden_layers = mtp ? context->hidden_layers : its->eagle.layers;
    draft->model.n_own = context->hidden_rows ? its->n_embd_out : 0;
    draft->model.n_row = context->hidden_layers.n > 0 ? context->hidden_layers.n * info->n_embd : draft->model.n_own;
    return HEARTH_OK;
}

static int open_engine(struct hearth *instance, struct model *model, hearth_error *error)
{
    const struct config_model *config = model->config;
    const struct config_cache *cache = &instance->config->cache;
    /* Models among which what an instance has is divided: those of the configuration, and those that were added. */
    size_t n_models = instance->config->n_models, n_entries = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < n_entries; i++)
        n_models += instance->entries[i].own != NULL && entry_is_listed(&instance->entries[i]);
    static const enum engine_idle kinds[] = {[CONFIG_IDLE_AUTO] = ENGINE_IDLE_PRICED,
                                             [CONFIG_IDLE_STAY] = ENGINE_IDLE_STAYS,
                                             [CONFIG_IDLE_LEAVE] = ENGINE_IDLE_LEAVES};
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
                                   .idle = kinds[config->idle_conversations],
                                   .slot_timeout_ns = clock_from_ms((int64_t)(config->cache_slot_timeout * 1e3)),
                                   .preempt_fails = config->preempt == CONFIG_PREEMPT_FAIL,
                                   .snapshot_budget = instance_store_state_budget(instance->config, n_models),
                                   .logs_words = model->logs_words,
                                   .store = instance->store,
                                   .store_sharers = (int)n_models,
                                   .identify = identify_states,
                                   .identify_ud = model,
                                   .watch = model->watch,
                                   .stride = (int32_t)cache->boundary_align_tokens,
                                   .continued_interval = (int32_t)cache->continued_interval,
                                   .evict_timeout_ns = clock_from_ms(cache->evict_save_timeout_ms),
                                   .clock = instance->clock,
                                   .stats = &model->entry->engine_stats};
    const struct llm_model_info *info = llm_model_info(model->weights);
    int rc = sampling_check_config(config, error);
    if (rc == HEARTH_OK) rc = choose_drafts(config, info->mtp, &params.draft, error);
    if (rc == HEARTH_OK) rc = model_context_params(config, info, &params.context, error);
    if (rc == HEARTH_OK) rc = estimate_check(config, &params.context, info, error);
    if (rc == HEARTH_OK) rc = open_draft_model(model, &params.draft, &params.context, error);
    if (rc != HEARTH_OK) return rc;
    model->engine = engine_open(&params, error);
    if (model->engine == NULL) return (int)error->code;
    name_default_identity(model);
    return HEARTH_OK;
}

/* Called on a thread of the store: a save has ended that postponed requests may be waiting for. */
static void wake_postponed(void *ud)
{
    admission_wake(((struct model *)ud)->admission);
}

/* How long a drain waits for a preparation that was told to stop. */
#define PATIENCE_NS 1000000000

static int start_preparers(struct model *model, struct clock *clock, hearth_error *error)
{
    const struct config_model *config = model->config;
    model->admission = admission_open(clock, (size_t)(config->n_seq_max * config->queue_depth),
                                      clock_from_ms((int64_t)(config->admission_timeout * 1e3)));
    model->waiter = (struct store_user){.wake = wake_postponed, .ud = model};
    model->preparing = preparing_open(MODEL_PREPARERS + SLOW_LANE_THREADS);
    model->slow_lane = slow_lane_open(request_prepare_slowly, error);
    int rc = model->slow_lane == NULL ? (int)error->code : HEARTH_OK;
    for (; rc == HEARTH_OK && model->n_preparers < MODEL_PREPARERS; model->n_preparers += rc == HEARTH_OK)
        rc = thread_start(&model->preparers[model->n_preparers], request_prepare_loop, model, "prepares requests",
                          error);
    return rc;
}

void model_stop_admission(struct model *model)
{
    if (model->pool != NULL) {
        embed_stop(model->pool);
        return;
    }
    struct job_list left = admission_close(model->admission);
    job_list_fail(&left, HEARTH_UNAVAILABLE, "engine shutting down");
    slow_lane_stop(model->slow_lane);
    if (model->preparing != NULL) preparing_stop(model->preparing);
}

/* Preparations were told to stop, and the engine takes no more jobs of theirs. They are waited for last: the engine has
 * conversations to save. */
void model_drain(struct model *model, int64_t deadline)
{
    if (model->pool != NULL) {
        embed_drain(model->pool, deadline);
        return;
    }
    engine_drain(model->engine, deadline);
    if (preparing_wait(model->preparing, PATIENCE_NS)) return;
    log_event(LOG_WARN, "serve", "a request is still being prepared, and is not waited for",
              log_str("model", model->config->name));
}

void model_close(struct model *model)
{
    if (model == NULL) return;
    if (model->admission != NULL) model_stop_admission(model);
    while (model->n_preparers > 0) pthread_join(model->preparers[--model->n_preparers], NULL);
    slow_lane_close(model->slow_lane);
    model->slow_lane = NULL;
    preparing_close(model->preparing);
    if (model->store != NULL) store_remove_user(model->store, &model->waiter);
    engine_close(model->engine);
    embed_close(model->pool);
    admission_release(model->admission);
    system_prompt_close(model->system_prompt);
    chat_template_close(model->template_);
    preset_templates_close(model->templates);
    llm_tokenizer_cache_close(model->tokenizer_cache);
    reply_book_close(model->reply_book);
    model_media_close(model->media);
    adapters_unload(model->adapters);
    llm_model_close(model->draft_weights);
    llm_model_close(model->weights);
    file_watch_close(model->watch);
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
    if (config_is_set(config->notes, "models.*.context_window") && model_window(config, info) < config->context_window)
        log_event(LOG_WARN, "model",
                  "context_window lowered to what the model was trained for: set rope_scaling for more",
                  log_str("model", config->name), log_int("context_window", config->context_window),
                  log_int("trained", info->n_ctx_train));
    double f16 = llm_type_bytes("f16");
    bool quantised = llm_type_bytes(config->cache_type_k) < f16 || llm_type_bytes(config->cache_type_v) < f16;
    if (info->kind == HEARTH_KIND_HYBRID && quantised)
        log_event(LOG_WARN, "model", "hybrid models are best kept in f16 cells", log_str("model", config->name),
                  log_str("cache_type_k", config->cache_type_k), log_str("cache_type_v", config->cache_type_v));
    struct llm_threads threads = model_threads(config);
    if (threads.n > llm_count_threads(&threads))
        log_event(LOG_WARN, "model", "fewer threads than configured: there are no more CPUs",
                  log_str("model", config->name), log_int("threads", threads.n),
                  log_int("cpus", llm_count_threads(&threads)));
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
                      .threads = model_threads(config),
                      .on_gpu = llm_has_gpu() && config->n_gpu_layers >= 0,
                      .flash_attention = config->flash_attention,
                      .min_tokens = (int32_t)config->image_min_tokens,
                      .max_tokens = (int32_t)config->image_max_tokens},
        .deterministic = config->deterministic,
        .images = {.most_pixels = (uint32_t)config->image_megapixels * 1000000, .most_side = MOST_IMAGE_SIDE},
        .videos = {.fps = config->video_fps,
                   .most_frames = (size_t)config->video_frames,
                   .most_side = MOST_FRAME_SIDE,
                   .unconfined = config->media_unconfined},
        .most_seconds = (uint32_t)config->sound_seconds,
        .budget = (size_t)config->media_cache_mb << 20,
        .store = decide_caching(config) != ENGINE_CACHES_NOTHING ? model->store : NULL,
        .watch = model->watch,
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
    /* Only conversations have replies that come back. Deterministic mode reuses none, and a text that ends with EOS is
     * none that goes on. */
    if (model->config->reply_tokens && model->config->incremental_cache && !model->config->deterministic &&
        !info->adds_eos)
        model->reply_book = reply_book_open(REPLY_BOOK_BYTES);
    model->tokenizer_cache = llm_tokenizer_cache_open(TOKENIZER_CACHE_BYTES, &model->entry->tokenizer_stats);
    if (model->config->system_prompt_cache && model->config->system_prompt_assumed)
        model->system_prompt = system_prompt_open();
    return start_preparers(model, instance->clock, error);
}

/* Texts of requests for embeddings that wait together: those of an indexer that sends ten thousand paragraphs at once.
 */
#define EMBEDDED_BYTES ((size_t)64 << 20)

static int open_pool(struct model *model, struct clock *clock, hearth_error *error)
{
    const struct config_model *config = model->config;
    struct embed_params params = {.name = config->name,
                                  .model = model->weights,
                                  .pooling = embedding_pooling(config, model->weights),
                                  .n_contexts = (int32_t)config->n_seq_max,
                                  .most_bytes = EMBEDDED_BYTES,
                                  .clock = clock,
                                  .stats = &model->entry->pool_stats};
    int rc = embedding_context_params(config, model->weights, &params.context, error);
    if (rc != HEARTH_OK) return rc;
    model->pool = embed_open(&params, error);
    if (model->pool != NULL) return HEARTH_OK;
    error_prefix(error, "models.%s: ", config->name);
    return (int)error->code;
}

static int load_parts(struct hearth *instance, struct model *model, struct model_progress *progress,
                      hearth_error *error)
{
    struct fingerprint *fingerprint = &model->entry->fingerprint;
    int64_t begin = clock_now(instance->clock);
    struct llm_threads threads = model_threads(model->config);
    if (llm_check_threads(&threads, error) != HEARTH_OK) {
        error_prefix(error, "models.%s.", model->config->name);
        return (int)error->code;
    }
    model->weights = weights_open(model->config, report_progress, progress, error);
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
                                                       : open_pool(model, instance->clock, error);
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

struct model *model_open(struct hearth *instance, struct model_entry *entry, struct model_progress *progress,
                         hearth_error *error)
{
    struct fingerprint *fingerprint = &entry->fingerprint;
    bool verify = !entry->config->ignore_integrity_check && llm_file_has_sidecar(entry->config->path);
    struct model *model = mem_alloc(sizeof *model);
    *model = (struct model){.entry = entry, .config = entry->config, .adapters = entry->adapters};
    int rc = HEARTH_OK;
    /* Before anything of the files is read. Where nothing is kept between requests nothing can be of other bytes. */
    if (entry->facts.type == HEARTH_MODEL_CHAT && decide_caching(entry->config) != ENGINE_CACHES_NOTHING) {
        manager_note_unstored(entry, "");
        model->watch = model_watch_open(entry->config, note_unstored, entry, error);
        if (model->watch == NULL) rc = (int)error->code;
    }
    struct fingerprint_source source = {.path = entry->config->path, .store = instance->store, .verify = verify};
    if (rc == HEARTH_OK && (instance->store != NULL || verify)) rc = fingerprint_start(fingerprint, &source, error);
    if (rc == HEARTH_OK) rc = load_parts(instance, model, progress, error);
    fingerprint_stop(fingerprint);
    if (rc == HEARTH_OK) return model;
    model_close(model);
    return NULL;
}
