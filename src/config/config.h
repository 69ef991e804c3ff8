/* The configuration: one table (table.c) lists every key with its type, default, range and meaning; parsing, checking,
 * dumping and docs/config.md all use it. Keys are addressed by path ("models.demo.n_seq_max"); kebab-case is read like
 * snake_case; an unknown key is an error that names the most similar known one.
 *
 * Belongs to one thread until it is handed to hearth_open(), which copies what it needs. */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "hearth.h"
#include "store/tier_table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values of keys with choices, in the order in which table.c lists them. */
enum config_switch { CONFIG_AUTO, CONFIG_TRUE, CONFIG_FALSE };
enum config_load { CONFIG_LOAD_START, CONFIG_LOAD_DEMAND };
enum config_idle { CONFIG_IDLE_AUTO, CONFIG_IDLE_STAY, CONFIG_IDLE_LEAVE };
enum config_preempt { CONFIG_PREEMPT_PARK, CONFIG_PREEMPT_FAIL };
enum config_metrics { CONFIG_METRICS_HEARTH, CONFIG_METRICS_VLLM };
enum config_media { CONFIG_MEDIA_NOTE, CONFIG_MEDIA_REFUSE };

struct config_strings {
    char **v;
    size_t len;
};

struct config_loras {
    struct config_lora {
        char *path;
        double scale;
    } * v;
    size_t len;
};

/* Where a key's value comes from, and its text. */
struct config_note {
    char *text; /* the value as hearth_config_get() returns it; NULL for null */
    bool set;   /* by a file or by hearth_config_set(): not a default */
    int file;   /* which of the files that were read set it, counted from 1; 0: none */
    int line;   /* in that file */
};

struct config_server {
    struct config_strings listen;                        /* host:port, [v6]:port or unix:PATH */
    bool ollama;                                         /* listen on ollama_listen as well */
    char *ollama_listen;                                 /* as `listen` */
    char *api_keys_file, *tls_cert, *tls_key, *log_file; /* NULL: none */
    char *log_level, *log_format;
    bool insecure_logging;
    enum config_switch isolate_keys;
    struct config_strings allowed_origins, allowed_hosts;
    char *socket_mode;   /* octal */
    char *socket_group;  /* NULL: the process's own */
    char *handover;      /* NULL: none */
    char *default_model; /* NULL: none */
    bool any_model_name;
    char *models_path; /* NULL: that of the user */
    bool serve_pulled;
    int64_t max_body_bytes;
    int64_t max_connections;
    int64_t responses_max, responses_max_mb;
    int64_t stream_tokens;
    double drain_timeout, first_request_timeout; /* seconds */
    int64_t memory_budget_mb;
    char *numa; /* none | distribute | isolate | numactl */
    enum config_metrics metrics_names;
    char *kv_events, *kv_events_replay; /* tcp://HOST:PORT; NULL: off */
    char *kv_events_address;            /* NULL: the first of `listen` */
    char *otlp_endpoint;                /* NULL: no traces */
};

/* Of a tier on a server. */
struct config_server_tier {
    char *url; /* NULL: the tier is off */
    char *prefix;
    double ttl; /* seconds; 0: none */
    int64_t timeout_ms;
    char *user, *password_file, *ca_file, *certificate_file, *certificate_key_file, *key_file; /* NULL: none */
    bool encrypt;
};

struct config_tier {
    int64_t quota_mb;
    char *path; /* NULL: the tier has no folder */
    struct config_server_tier server;
};

struct config_cache {
    int64_t boundary_align_tokens, continued_interval, evict_save_timeout_ms, session_resume_wait_ms;
    int64_t fetch_timeout_ms;
    char *save_tier; /* the name of a tier */
    struct config_tier tiers[STORE_TIERS];
};

struct config_model {
    char *name; /* the key under models: */
    struct config_strings aliases;
    struct config_strings tags;
    char *path, *mmproj, *jinja_file; /* NULL: none */
    char *chat_template_kwargs;       /* JSON object */
    bool ignore_integrity_check;
    enum config_load load;
    bool optional;
    double idle_unload; /* seconds; 0: never */
    int64_t context_window, n_seq_max, n_seq_spare, queue_depth, max_prompt_bytes;
    int64_t n_batch, n_ubatch, max_decode_gap_ms;
    double admission_timeout; /* seconds */
    enum config_switch kv_unified;
    bool deterministic;
    char *cache_type_k, *cache_type_v, *flash_attention; /* auto | f16 …; auto | on | off */
    bool system_prompt_cache, system_prompt_assumed, incremental_cache;
    int64_t cache_min_tokens;
    double cache_slot_timeout; /* seconds */
    enum config_preempt preempt;
    enum config_idle idle_conversations;
    struct {
        struct config_strings sources; /* auto, or names of sources */
        int64_t n_max, n_gpu_layers;
        char *path; /* of a draft model; NULL: none */
    } draft;
    enum config_media media;
    int64_t n_gpu_layers, media_cache_mb;
    int64_t image_megapixels, image_min_tokens, image_max_tokens, request_megapixels, sound_seconds, video_frames;
    double video_fps;
    bool media_urls, media_unconfined;
    struct config_strings media_url_hosts;
    int64_t media_url_mb;
    double media_url_seconds;
    char *media_path;                        /* NULL: none */
    char *split_mode;                        /* none | layer | row */
    struct config_strings rpc, tensor_split; /* the latter are numbers */
    struct config_strings devices, override_tensors;
    int64_t main_gpu, n_cpu_moe;
    bool cpu_moe;
    char *load_mode; /* auto | none | mmap | mlock | mmap+mlock | dio */
    bool offload_kqv, op_offload;
    bool reply_tokens;
    int64_t threads;
    char *cpus;            /* as "0-7,16"; NULL: all */
    char *thread_priority; /* low | normal | medium | high | realtime */
    bool cpu_strict;
    char *rope_scaling;                     /* none | linear | yarn */
    double rope_freq_base, rope_freq_scale; /* NAN: not set, likewise yarn_* */
    double yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow;
    int64_t yarn_orig_ctx; /* 0: the model's */
    enum config_switch embedding;
    char *pooling; /* auto | none | mean | cls | last | rank */
    bool truncate;
    struct config_loras lora;
    struct {
#define SAMPLING_NUMBER(name, ...)  double name;
#define SAMPLING_INTEGER(name, ...) int64_t name;
        HEARTH_SAMPLING_TABLE(SAMPLING_NUMBER, SAMPLING_INTEGER)
#undef SAMPLING_NUMBER
#undef SAMPLING_INTEGER
        int64_t seed; /* -1: random */
        struct config_strings dry_sequence_breakers, samplers;
    } sampling;
    struct config_note *notes; /* one a row of the table */
};

struct hearth_config {
    struct config_server server;
    struct config_cache cache;
    struct config_model *models;
    size_t n_models;
    struct config_note *notes;   /* one for each row of the table; those of models.* are unused */
    struct config_strings files; /* those read so far */
};

/* A copy that shares nothing with the original; hearth_config_free() it. */
struct hearth_config *config_copy(const struct hearth_config *config);

/* The model with that name, or NULL; with a NULL name the first one. Valid until the configuration is changed. */
const struct config_model *config_find_model(const struct hearth_config *config, const char *name);

/* The model with that name or alias, also where ":latest" follows; NULL: none. */
const struct config_model *config_resolve_model(const struct hearth_config *config, const char *name);

/* Whether a key ("models.*.n_batch", with the model's notes) was set, rather than left at its default. */
bool config_is_set(const struct config_note *notes, const char *pattern);

/* Other defaults for the size of a model's context than the table's. */
struct config_context {
    int64_t context_window, n_seq_max;
    const char *cache_type_k, *cache_type_v;
};

/* Replaces the values that were not set; they count as defaults still. */
void config_set_context(struct config_model *model, const struct config_context *defaults);

#endif
