/* Every key of a model and of the store arrives where it is used: in llama.cpp's parameters, the engine's, a pool's,
 * the store's or a sampler's. The linker puts this program's __wrap_ functions in front of the real ones, so that what
 * is seen here is what the real ones got.
 *
 * The test iterates over the configuration's table, not the list here: a key without a case is a failure. */
#include "support.h"

#include "config/table.h"
#include "instance/models/loaded_model.h"
#include "llm/model_struct.h"
#include "llm/sampler.h"
#include "store/remote/remote_backend.h"

#include <unistd.h>

/* ---- What arrived ---- */

static struct seen {
    struct llama_model_params weights;
    struct llama_context_params context; /* of the last one */
    const struct llama_model *context_of;
    int n_weights, n_contexts, n_engines, n_pools, n_overrides;
    bool no_devices;
    bool cpus, pool_cpus, low; /* whether the strings are those of the cases */
    struct engine_params engine;
    struct embed_params pool;
    size_t permits; /* of admission to an engine */
    int64_t patience_ns;
    struct store_params store;
    hearth_sampling picks;
    int64_t resume_wait_ns;
    bool assumes;
    bool right_folder; /* the one that the case named */
    struct {
        bool url, prefix, user, password_file, ca_file, certificate_file, certificate_key_file, key_file;
        int64_t ttl_s, timeout_ns;
    } server; /* whether its strings are those of the cases */
} seen;

static const char *wanted_folder;

struct llama_model *__real_llama_model_load_from_file(const char *path, struct llama_model_params params);
struct llama_model *__wrap_llama_model_load_from_file(const char *path, struct llama_model_params params);
struct llama_model *__wrap_llama_model_load_from_file(const char *path, struct llama_model_params params)
{
    seen.weights = params;
    seen.n_weights++;
    seen.no_devices = params.devices != NULL && params.devices[0] == NULL;
    seen.n_overrides = 0;
    while (params.tensor_buft_overrides != NULL && params.tensor_buft_overrides[seen.n_overrides].pattern != NULL)
        seen.n_overrides++;
    return __real_llama_model_load_from_file(path, params);
}

struct llama_context *__real_llama_init_from_model(struct llama_model *model, struct llama_context_params params);
struct llama_context *__wrap_llama_init_from_model(struct llama_model *model, struct llama_context_params params);
struct llama_context *__wrap_llama_init_from_model(struct llama_model *model, struct llama_context_params params)
{
    seen.context = params;
    if (seen.n_contexts++ > 0) assert_ptr_equal(seen.context_of, model);
    seen.context_of = model;
    return __real_llama_init_from_model(model, params);
}

static bool says(const char *text, const char *what)
{
    return text != NULL && strcmp(text, what) == 0;
}

struct engine *__real_engine_open(const struct engine_params *params, hearth_error *error);
struct engine *__wrap_engine_open(const struct engine_params *params, hearth_error *error);
struct engine *__wrap_engine_open(const struct engine_params *params, hearth_error *error)
{
    seen.engine = *params;
    seen.cpus = says(params->context.threads.cpus, "0");
    seen.low = says(params->context.threads.priority, "low");
    seen.n_engines++;
    return __real_engine_open(params, error);
}

struct admission *__real_admission_open(struct clock *clock, size_t permits, int64_t timeout_ns);
struct admission *__wrap_admission_open(struct clock *clock, size_t permits, int64_t timeout_ns);
struct admission *__wrap_admission_open(struct clock *clock, size_t permits, int64_t timeout_ns)
{
    seen.permits = permits;
    seen.patience_ns = timeout_ns;
    return __real_admission_open(clock, permits, timeout_ns);
}

struct embed_pool *__real_embed_open(const struct embed_params *params, hearth_error *error);
struct embed_pool *__wrap_embed_open(const struct embed_params *params, hearth_error *error);
struct embed_pool *__wrap_embed_open(const struct embed_params *params, hearth_error *error)
{
    seen.pool = *params;
    seen.pool_cpus = says(params->context.threads.cpus, "0");
    seen.n_pools++;
    return __real_embed_open(params, error);
}

static void look_for_folder(const struct store_params *params)
{
    for (enum store_tier i = 0; i < STORE_TIERS && wanted_folder != NULL; i++)
        if (params->tiers[i].path != NULL && strcmp(params->tiers[i].path, wanted_folder) == 0)
            seen.right_folder = params->tiers[i].quota > 0;
}

struct store *__real_store_open(const struct store_params *params, hearth_error *error);
struct store *__wrap_store_open(const struct store_params *params, hearth_error *error);
struct store *__wrap_store_open(const struct store_params *params, hearth_error *error)
{
    seen.store = *params;
    look_for_folder(params);
    return __real_store_open(params, error);
}

struct backend *__real_remote_backend_open(const struct remote_params *params);
struct backend *__wrap_remote_backend_open(const struct remote_params *params);
struct backend *__wrap_remote_backend_open(const struct remote_params *params)
{
    seen.server.url = says(params->url, "unix:/nowhere");
    seen.server.prefix = says(params->prefix, "words");
    seen.server.user = says(params->user, "words");
    seen.server.password_file = says(params->password_file, "/etc/passwd");
    seen.server.ca_file = says(params->ca_file, "/etc/passwd");
    seen.server.certificate_file = says(params->certificate_file, "/etc/passwd");
    seen.server.certificate_key_file = says(params->certificate_key_file, "/etc/passwd");
    seen.server.key_file = says(params->key_file, "/etc/passwd");
    seen.server.ttl_s = params->ttl_s;
    seen.server.timeout_ns = params->timeout_ns;
    return __real_remote_backend_open(params);
}

struct llm_sampler *__real_llm_sampler_open(const struct llm_model *model, const struct llm_sampling *sampling,
                                            const struct tokens *prompt, hearth_error *error);
struct llm_sampler *__wrap_llm_sampler_open(const struct llm_model *model, const struct llm_sampling *sampling,
                                            const struct tokens *prompt, hearth_error *error);
struct llm_sampler *__wrap_llm_sampler_open(const struct llm_model *model, const struct llm_sampling *sampling,
                                            const struct tokens *prompt, hearth_error *error)
{
    seen.picks = sampling->params;
    return __real_llm_sampler_open(model, sampling, prompt, error);
}

/* ---- The keys ---- */

#define S   1000000000.0
#define MS  1000000.0
#define MIB 1048576.0

/* What the key is for. */
enum {
    CHAT = 1,    /* models for text */
    VECTORS = 2, /* models for vectors and scores */
    REPLY = 4,   /* of a model for text, once it was asked something */
    STORE = 8    /* with a tier on disk */
};

/* KEY(name, path, value, number that arrives, where, use, further keys) */
#define YARN     "rope_scaling=yarn"
#define BOTH     (CHAT | VECTORS)
#define MODEL(m) "models.*." #m
#define CACHE(c) "cache." #c
#define PICK(p)  "models.*.sampling." #p
#define TIER(t)  "cache.tiers." #t
#define SERVER   "cache.tiers.remote.url=unix:/nowhere"
#define TLS      "cache.tiers.remote.url=rediss://localhost:1"

/* clang-format off */
#define KEYS(KEY)                                                                                                      \
    KEY(window,         MODEL(context_window),        "512",     512,  seen.context.n_ctx, CHAT, NULL)                 \
    KEY(longest,        MODEL(context_window),        "512",     512,  seen.pool.context.window, VECTORS, NULL)        \
    KEY(slots,          MODEL(n_seq_max),             "3",       3,    seen.engine.n_slots, CHAT, NULL)                \
    KEY(all_cells,      MODEL(n_seq_max),             "3",       3 * 256, seen.context.n_ctx, CHAT, NULL)              \
    KEY(contexts,       MODEL(n_seq_max),             "3",       3,    seen.n_contexts, VECTORS, NULL)                 \
    KEY(spare,          MODEL(n_seq_spare),           "5",       7,    seen.context.n_seq_max, CHAT, NULL)              \
    KEY(depth,          MODEL(queue_depth),           "5",       5,    seen.permits, CHAT, NULL)                        \
    KEY(patience,       MODEL(admission_timeout),     "7.5",     7.5 * S, seen.patience_ns, CHAT, NULL)                \
    KEY(batch,          MODEL(n_batch),               "1088",    1088, seen.context.n_batch, BOTH, NULL)               \
    KEY(ubatch,         MODEL(n_ubatch),              "64",      64,   seen.context.n_ubatch, CHAT, NULL)              \
    KEY(part,           MODEL(n_ubatch),              "64",      64,   seen.context.n_ubatch, VECTORS, "pooling=last") \
    KEY(gap,            MODEL(max_decode_gap_ms),     "40",      40 * MS, seen.engine.max_token_gap_ns, CHAT, NULL)          \
    KEY(unified,        MODEL(kv_unified),            "false",   0,    seen.context.kv_unified, CHAT, NULL)            \
    KEY(deterministic,  MODEL(deterministic),         "true",    1,    seen.engine.deterministic, CHAT, NULL)          \
    KEY(type_k,         MODEL(cache_type_k),          "q8_0",    GGML_TYPE_Q8_0, seen.context.type_k, BOTH, NULL)      \
    KEY(type_v,         MODEL(cache_type_v),          "bf16",    GGML_TYPE_BF16, seen.context.type_v, BOTH, NULL)      \
    KEY(flash,          MODEL(flash_attention),       "off",     LLAMA_FLASH_ATTN_TYPE_DISABLED,                       \
        seen.context.flash_attn_type, BOTH, NULL)                                                                      \
    KEY(spc,            MODEL(system_prompt_cache),   "true",    ENGINE_CACHES_SYSTEM, seen.engine.caching, CHAT, NULL) \
    KEY(assumed,        MODEL(system_prompt_assumed), "true",    1,    seen.assumes, CHAT, "system_prompt_cache=true") \
    KEY(imc,            MODEL(incremental_cache),     "false",   ENGINE_CACHES_NOTHING, seen.engine.caching, CHAT, NULL) \
    KEY(least,          MODEL(cache_min_tokens),      "7",       7,    seen.engine.cache_min_tokens, CHAT, NULL)       \
    KEY(slot_timeout,   MODEL(cache_slot_timeout),    "1.5",     1.5 * S, seen.engine.slot_timeout_ns, CHAT, NULL)     \
    KEY(drafts,         MODEL(draft.n_max),           "5",       5,    seen.engine.draft.n_max, CHAT, NULL)             \
    KEY(sources,        MODEL(draft.sources),         "[request]", 0,  seen.engine.draft.sources[DRAFT_STORE], CHAT, NULL) \
    KEY(idle,           MODEL(idle_conversations),    "leave",   ENGINE_IDLE_LEAVES, seen.engine.idle, CHAT, NULL)         \
    KEY(preempt,        MODEL(preempt),               "fail",    1,    seen.engine.preempt_fails, CHAT, NULL)          \
    KEY(no_layers,      MODEL(n_gpu_layers),          "-1",      0,    seen.weights.n_gpu_layers, BOTH, NULL)          \
    KEY(layers,         MODEL(n_gpu_layers),          "5",       5,    seen.weights.n_gpu_layers, BOTH, NULL)          \
    KEY(device,         MODEL(n_gpu_layers),          "5",       5,    seen.engine.n_gpu_layers, CHAT, NULL)           \
    KEY(split,          MODEL(split_mode),            "row",     LLAMA_SPLIT_MODE_ROW, seen.weights.split_mode, BOTH, NULL) \
    KEY(devices,        MODEL(devices),               "[none]",  1,    seen.no_devices, BOTH, NULL)                    \
    KEY(experts,        MODEL(n_cpu_moe),             "3",       3,    seen.n_overrides, BOTH, NULL)                   \
    KEY(all_experts,    MODEL(cpu_moe),               "true",    1,    seen.n_overrides, BOTH, NULL)                   \
    KEY(tensors,        MODEL(override_tensors),      "[exps=CPU, ffn=CPU]", 2, seen.n_overrides, BOTH, NULL)          \
    KEY(load_mode,      MODEL(load_mode),             "none",    LLAMA_LOAD_MODE_NONE, seen.weights.load_mode, BOTH, NULL) \
    KEY(kqv,            MODEL(offload_kqv),           "false",   0,    seen.context.offload_kqv, BOTH, NULL)           \
    KEY(ops,            MODEL(op_offload),            "false",   0,    seen.context.op_offload, BOTH, NULL)            \
    KEY(threads,        MODEL(threads),               "3",       3,    seen.engine.context.threads.n, CHAT, NULL)         \
    KEY(cpus,           MODEL(cpus),                  "0",       1,    seen.cpus, CHAT, NULL) \
    KEY(cpus_each,      MODEL(cpus),                  "0",       1,    seen.pool_cpus, VECTORS, NULL) \
    KEY(strict,         MODEL(cpu_strict),            "true",    1,    seen.engine.context.threads.strict, CHAT, NULL) \
    KEY(priority,       MODEL(thread_priority),       "low",     1,    seen.low, CHAT, NULL) \
    KEY(threads_each,   MODEL(threads),               "3",       3,    seen.pool.context.threads.n, VECTORS, NULL)        \
    KEY(linear,         MODEL(rope_scaling),          "linear",  LLAMA_ROPE_SCALING_TYPE_LINEAR,                       \
        seen.context.rope_scaling_type, BOTH, NULL)                                                                    \
    KEY(yarn,           MODEL(rope_scaling),          "yarn",    LLAMA_ROPE_SCALING_TYPE_YARN,                         \
        seen.context.rope_scaling_type, BOTH, NULL)                                                                    \
    KEY(freq_base,      MODEL(rope_freq_base),        "50000",   50000, seen.context.rope_freq_base, BOTH, NULL)       \
    KEY(freq_scale,     MODEL(rope_freq_scale),       "0.5",     0.5,  seen.context.rope_freq_scale, BOTH, NULL)       \
    KEY(ext_factor,     MODEL(yarn_ext_factor),       "0.25",    0.25, seen.context.yarn_ext_factor, BOTH, YARN)       \
    KEY(attn_factor,    MODEL(yarn_attn_factor),      "1.5",     1.5,  seen.context.yarn_attn_factor, BOTH, YARN)      \
    KEY(beta_fast,      MODEL(yarn_beta_fast),        "16",      16,   seen.context.yarn_beta_fast, BOTH, YARN)        \
    KEY(beta_slow,      MODEL(yarn_beta_slow),        "2",       2,    seen.context.yarn_beta_slow, BOTH, YARN)        \
    KEY(orig_ctx,       MODEL(yarn_orig_ctx),         "1024",    1024, seen.context.yarn_orig_ctx, BOTH, YARN)         \
    KEY(embedding,      MODEL(embedding),             "true",    1,    seen.n_pools, CHAT, NULL)                       \
    KEY(pooling,        MODEL(pooling),               "cls",     HEARTH_POOLING_CLS, seen.pool.pooling, VECTORS, NULL)    \
    KEY(pooled,         MODEL(pooling),               "mean",    LLAMA_POOLING_TYPE_MEAN, seen.context.pooling_type,   \
        VECTORS, NULL)                                                                                                 \
    KEY(temperature,    PICK(temperature),            "0.0625",  0.0625, seen.picks.temperature, REPLY, NULL)          \
    KEY(dynatemp_range, PICK(dynatemp_range),         "0.0625",  0.0625, seen.picks.dynatemp_range, REPLY, NULL)       \
    KEY(dynatemp_exp,   PICK(dynatemp_exponent),      "0.0625",  0.0625, seen.picks.dynatemp_exponent, REPLY, NULL)    \
    KEY(top_k,          PICK(top_k),                  "11",      11,   seen.picks.top_k, REPLY, NULL)                  \
    KEY(top_p,          PICK(top_p),                  "0.0625",  0.0625, seen.picks.top_p, REPLY, NULL)                \
    KEY(min_p,          PICK(min_p),                  "0.0625",  0.0625, seen.picks.min_p, REPLY, NULL)                \
    KEY(typical_p,      PICK(typical_p),              "0.0625",  0.0625, seen.picks.typical_p, REPLY, NULL)            \
    KEY(top_n_sigma,    PICK(top_n_sigma),            "0.0625",  0.0625, seen.picks.top_n_sigma, REPLY, NULL)          \
    KEY(min_keep,       PICK(min_keep),               "11",      11,   seen.picks.min_keep, REPLY, NULL)               \
    KEY(xtc_chance,     PICK(xtc_probability),        "0.0625",  0.0625, seen.picks.xtc_probability, REPLY, NULL)      \
    KEY(xtc_threshold,  PICK(xtc_threshold),          "0.0625",  0.0625, seen.picks.xtc_threshold, REPLY, NULL)        \
    KEY(repeat,         PICK(repeat_penalty),         "0.0625",  0.0625, seen.picks.repeat_penalty, REPLY, NULL)       \
    KEY(repeat_last_n,  PICK(repeat_last_n),          "11",      11,   seen.picks.repeat_last_n, REPLY, NULL)          \
    KEY(frequency,      PICK(frequency_penalty),      "0.0625",  0.0625, seen.picks.frequency_penalty, REPLY, NULL)    \
    KEY(presence,       PICK(presence_penalty),       "0.0625",  0.0625, seen.picks.presence_penalty, REPLY, NULL)     \
    KEY(dry_multiplier, PICK(dry_multiplier),         "0.0625",  0.0625, seen.picks.dry_multiplier, REPLY, NULL)       \
    KEY(dry_base,       PICK(dry_base),               "2.0625",  2.0625, seen.picks.dry_base, REPLY, NULL)             \
    KEY(dry_allowed,    PICK(dry_allowed_length),     "11",      11,   seen.picks.dry_allowed_length, REPLY, NULL)     \
    KEY(dry_last_n,     PICK(dry_penalty_last_n),     "11",      11,   seen.picks.dry_penalty_last_n, REPLY, NULL)     \
    KEY(dry_breakers,   PICK(dry_sequence_breakers),  "[a, b]",  2,    seen.picks.n_dry_breakers, REPLY, NULL)         \
    KEY(mirostat,       PICK(mirostat),               "1",       1,    seen.picks.mirostat, REPLY, NULL)               \
    KEY(mirostat_tau,   PICK(mirostat_tau),           "0.0625",  0.0625, seen.picks.mirostat_tau, REPLY, NULL)         \
    KEY(mirostat_eta,   PICK(mirostat_eta),           "0.0625",  0.0625, seen.picks.mirostat_eta, REPLY, NULL)         \
    KEY(adaptive,       PICK(adaptive_target),        "0.0625",  0.0625, seen.picks.adaptive_target, REPLY, NULL)      \
    KEY(adaptive_decay, PICK(adaptive_decay),         "0.0625",  0.0625, seen.picks.adaptive_decay, REPLY, NULL)       \
    KEY(samplers,       PICK(samplers),               "[top_k, min_p]", 2, seen.picks.n_samplers, REPLY, NULL)         \
    KEY(seed,           PICK(seed),                   "11",      11,   seen.picks.seed, REPLY, NULL)                   \
    KEY(block,          CACHE(boundary_align_tokens), "32",      32,   seen.engine.stride, STORE, NULL)                \
    KEY(stride,         CACHE(boundary_align_tokens), "32",      32,   seen.store.stride, STORE, NULL)                 \
    KEY(continued,      CACHE(continued_interval),    "96",      96,   seen.engine.continued_interval, STORE, NULL)    \
    KEY(evict,          CACHE(evict_save_timeout_ms), "20000",   20 * S, seen.engine.evict_timeout_ns, STORE, NULL)    \
    KEY(hangs,          CACHE(evict_save_timeout_ms), "20000",   20 * S, seen.store.save_timeout_ns, STORE, NULL)      \
    KEY(parent,         CACHE(session_resume_wait_ms), "70",     70 * MS, seen.resume_wait_ns, STORE, NULL)            \
    KEY(grace,          CACHE(session_resume_wait_ms), "70",     70 * MS, seen.store.scan_grace_ns, STORE, NULL)       \
    KEY(fetch,          CACHE(fetch_timeout_ms),      "800",     800 * MS, seen.store.fetch_timeout_ns, STORE, NULL)   \
    KEY(save_tier,      CACHE(save_tier),             "ram",     STORE_RAM, seen.store.save_tier, STORE, NULL)         \
    KEY(states,         TIER(ram.quota_mb),           "48",      48 * MIB, seen.engine.snapshot_budget, STORE, NULL)      \
    KEY(ram,            TIER(ram.quota_mb),           "48",      24 * MIB, seen.store.tiers[STORE_RAM].quota, STORE,   \
        "cache.save_tier=ram")                                                                                         \
    KEY(ram_file,       TIER(ram_file.quota_mb),      "6",       6 * MIB, seen.store.tiers[STORE_RAM_FILE].quota, STORE, \
        "cache.tiers.ram_file.path=@")                                                                                 \
    KEY(ram_file_path,  TIER(ram_file.path),          "@",       1,    seen.right_folder, STORE,                       \
        "cache.tiers.ram_file.quota_mb=6")                                                                             \
    KEY(disk,           TIER(disk.quota_mb),          "12",      12 * MIB, seen.store.tiers[STORE_DISK].quota, STORE,  \
        NULL)                                                                                                          \
    KEY(disk_path,      TIER(disk.path),              "@",       1,    seen.right_folder, STORE, NULL)                   \
    KEY(remote,         TIER(remote.quota_mb),        "12",      12 * MIB, seen.store.tiers[STORE_REMOTE].quota, STORE, \
        SERVER)                                                                                                        \
    KEY(remote_url,     TIER(remote.url),             "unix:/nowhere", 1, seen.server.url, STORE, NULL)                  \
    KEY(remote_prefix,  TIER(remote.prefix),          "words",   1,    seen.server.prefix, STORE, SERVER)                \
    KEY(remote_user,    TIER(remote.user),            "words",   1,    seen.server.user, STORE, SERVER)                  \
    KEY(remote_word,    TIER(remote.password_file),   "/etc/passwd", 1,    seen.server.password_file, STORE, SERVER)         \
    KEY(remote_ca, TIER(remote.ca_file), "/etc/passwd", 1, seen.server.ca_file, STORE, TLS) \
    KEY(remote_cert,    TIER(remote.certificate_file), "/etc/passwd", 1, seen.server.certificate_file, STORE, TLS)       \
    KEY(remote_cert_key, TIER(remote.certificate_key_file), "/etc/passwd", 1, seen.server.certificate_key_file, STORE,   \
        TLS " cache.tiers.remote.certificate_file=/etc/passwd")                                                          \
    KEY(remote_key,     TIER(remote.key_file),        "/etc/passwd", 1,    seen.server.key_file, STORE, SERVER)              \
    KEY(remote_ttl,     TIER(remote.ttl),             "90",      90,   seen.server.ttl_s, STORE, SERVER)                 \
    KEY(remote_timeout, TIER(remote.timeout_ms),      "70",      70 * MS, seen.server.timeout_ns, STORE, SERVER)
/* clang-format on */

#define GETTER(name, path, value, number, where, use, more)                                                            \
    static double get_##name(void)                                                                                     \
    {                                                                                                                  \
        return (double)(where);                                                                                        \
    }
KEYS(GETTER)

#define CASE(name, path, value, number, where, use, more) {path, value, number, get_##name, use, more},
static const struct key_case {
    const char *path, *value; /* "@": a folder of the test's */
    double number;
    double (*get)(void);
    int use;
    const char *more; /* "key=value key=value": other keys that it needs */
} cases[] = {KEYS(CASE)};

#define N_CASES (sizeof cases / sizeof *cases)

/* Keys of a model that are for who loads it, or for who prepares its requests. */
static const char *const elsewhere[] = {
    "models.*.path",
    "models.*.ignore_integrity_check", /* test_integrity.c */
    "models.*.load",                   /* test_model_manager.c, as the next */
    "models.*.optional",
    "models.*.idle_unload",
    "models.*.reply_tokens", /* tests/e2e/reply_tokens.test.js */
    "models.*.truncate",     /* tests/e2e/embeddings.test.js */
    "models.*.mmproj",       /* test_media.c, as the next */
    "models.*.media_cache_mb",
    "models.*.image_megapixels", /* test_media.c, each_limit_is_a_key, as the next */
    "models.*.request_megapixels",
    "models.*.image_min_tokens",
    "models.*.image_max_tokens",
    "models.*.sound_seconds",
    "models.*.video_fps",
    "models.*.video_frames",
    "models.*.media_urls", /* media_urls.test.js, as the next */
    "models.*.media_url_hosts",
    "models.*.media_url_mb",
    "models.*.media_url_seconds",
    "models.*.media_path",
    "models.*.media_unconfined", /* media.test.js */
    "models.*.jinja_file",       /* test_instance.c, the_template_is_read_and_compiled_once */
    "models.*.chat_template_kwargs",
    "models.*.lora",             /* test_adapters.c */
    "models.*.max_prompt_bytes", /* test_prompts.c */
    "models.*.aliases",          /* test_instance.c */
    "models.*.tags",             /* native.test.js */
    "models.*.rpc",              /* rpc.test.js, as the next */
    "models.*.tensor_split",
    "models.*.main_gpu",   /* placement.test.js */
    "models.*.media",      /* openai_client.test.js, ollama.test.js */
    "models.*.draft.path", /* drafts.test.js, as the next */
    "models.*.draft.n_gpu_layers",
    "cache.tiers.remote.encrypt", /* remote.test.js */
};

/* ---- Configurations ---- */

static char *folder, *base_folder;

static void set_key(hearth_config *config, const char *path, const char *value)
{
    const char *star = strchr(path, '*');
    char *key = star == NULL ? mem_strdup(path) : mem_format("models.demo%s", star + 1);
    set(config, key, strcmp(value, "@") == 0 ? folder : value);
    free(key);
}

static void set_one_more(hearth_config *config, const char *more, size_t len)
{
    const char *is = memchr(more, '=', len);
    char *name = mem_strndup(more, (size_t)(is - more)), *value = mem_strndup(is + 1, len - (size_t)(is + 1 - more));
    char *path = strchr(name, '.') == NULL ? mem_format("models.*.%s", name) : mem_strdup(name);
    set_key(config, path, value);
    free(path);
    free(value);
    free(name);
}

static void set_more(hearth_config *config, const char *more)
{
    for (size_t len; more != NULL && *more != '\0'; more += len + (more[len] == ' ')) {
        len = strcspn(more, " ");
        set_one_more(config, more, len);
    }
}

static void ask(hearth *instance)
{
    struct caller caller;
    hearth_params params = hearth_params_default();
    params.text = "Once";
    params.text_len = 4;
    params.max_tokens = 1;
    run(&caller, instance, &params);
    if (caller.failed) fail_msg("%s", caller.error.message);
    end(instance, &caller, 1);
}

/* Loads the model, with the case's value or without, and says what arrived. */
static double arrives(const struct key_case *c, int use, bool with)
{
    hearth_config *config = DEMO("context_window", "256");
    if (use == STORE) set(config, "cache.tiers.disk.quota_mb", "8");
    if (use == STORE) set(config, "cache.tiers.disk.path", base_folder);
    if (use == VECTORS) set(config, "models.demo.embedding", "true");
    set_more(config, c->more);
    if (with) set_key(config, c->path, c->value);
    seen = (struct seen){.n_contexts = 0};
    wanted_folder = folder;
    hearth *instance = start(config);
    const struct model *model = instance->entries[0].model;
    seen.resume_wait_ns = model->resume_wait_ns;
    seen.assumes = model->system_prompt != NULL;
    assert_int_equal(seen.n_weights, 1); /* however many contexts there are */
    if (use == REPLY)
        ask(instance);
    else
        hearth_close(instance);
    return c->get();
}

static void assert_arrives(const struct key_case *c, int use)
{
    double without = arrives(c, use, false), with = arrives(c, use, true);
    if (without == c->number) fail_msg("%s: %s is what arrives without it", c->path, c->value);
    if (with != c->number) fail_msg("%s: %s arrives as %g, not as %g", c->path, c->value, with, c->number);
}

/* ---- Tests ---- */

static bool has_case(const char *path)
{
    for (size_t i = 0; i < N_CASES; i++)
        if (strcmp(cases[i].path, path) == 0) return true;
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (strcmp(elsewhere[i], path) == 0) return true;
    return false;
}

static void every_key_of_a_model_and_of_the_store_has_a_case(void **state)
{
    (void)state;
    for (size_t i = 0; i < config_n_rows; i++) {
        const char *path = config_rows[i].path;
        if (strncmp(path, "server.", 7) == 0 || has_case(path)) continue;
        fail_msg("%s: add a case that shows where it arrives", path);
    }
    for (size_t i = 0; i < N_CASES; i++) {
        const struct config_row *row = config_row_find(cases[i].path);
        if (row == NULL) fail_msg("%s: there is no such key", cases[i].path);
        assert_string_not_equal(row->default_value, cases[i].value);
    }
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) assert_non_null(config_row_find(elsewhere[i]));
}

static void every_value_arrives_where_it_is_used(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CASES; i++)
        for (int use = CHAT; use <= STORE; use *= 2)
            if (cases[i].use & use) assert_arrives(&cases[i], use);
}

/* ---- */

static int make_folders(void **state)
{
    (void)state;
    folder = mem_format("%s/unit-lib-keys-XXXXXX", getenv("HEARTH_BUILD"));
    base_folder = mem_format("%s/unit-lib-keys-XXXXXX", getenv("HEARTH_BUILD"));
    return mkdtemp(folder) == NULL || mkdtemp(base_folder) == NULL ? -1 : 0;
}

static int remove_folders(void **state)
{
    (void)state;
    char *command = mem_format("rm -r '%s' '%s'", folder, base_folder);
    int rc = system(command);
    free(command);
    free(folder);
    free(base_folder);
    return rc;
}

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_of_a_model_and_of_the_store_has_a_case),
        cmocka_unit_test(every_value_arrives_where_it_is_used),
    };
    hearth_log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, make_folders, remove_folders);
}
