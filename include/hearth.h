/* libhearth: language models served from one process, computing no prompt token twice.
 *
 * The way through this header: make a configuration, open an instance with it, load its models, submit requests.
 *
 *     hearth_config *config = hearth_config_new();
 *     hearth_config_set(config, "models.demo.path", "models/demo.gguf", &error);
 *     hearth *instance = hearth_open(config, &error);
 *     hearth_load(instance, NULL, NULL, &error);
 *     hearth_params params = hearth_params_default();
 *     params.messages_json = "[{\"role\":\"user\",\"content\":\"Who are you?\"}]";
 *     hearth_request *request = hearth_submit(instance, &params, on_event, user_data, &error);
 *
 * Handles are opaque; no type of another library appears here. Functions that can fail take a hearth_error, return
 * a negative hearth_code or NULL on failure and leave the error filled in. Unless said otherwise every function may
 * be called from any thread. Strings are UTF-8 and zero-terminated unless a length stands beside them.
 */
#ifndef HEARTH_H
#define HEARTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HEARTH_API __attribute__((visibility("default")))
#else
#define HEARTH_API
#endif

/* ---- Errors ---- */

/* What kind of failure it was; what a caller may do about it follows from the kind. */
typedef enum hearth_code {
    HEARTH_OK = 0,
    HEARTH_INVALID = -1,     /* the caller's input is wrong: `param` names the field or key */
    HEARTH_NOT_FOUND = -2,   /* no such model, file or key */
    HEARTH_TOO_LONG = -3,    /* the prompt does not fit the context window */
    HEARTH_BUSY = -4,        /* no place became free in time: try again later */
    HEARTH_UNSUPPORTED = -5, /* this model or this build cannot do that */
    HEARTH_UNAVAILABLE = -6, /* loading or stopping */
    HEARTH_CANCELLED = -7,   /* cancelled by the caller */
    HEARTH_NO_MEMORY = -8,   /* memory for weights or cells cannot be had */
    HEARTH_IO = -9,          /* a file or socket failed */
    HEARTH_INTERNAL = -10    /* a fault of hearth or of the engine below it */
} hearth_code;

typedef struct hearth_error {
    hearth_code code;
    char param[96];    /* the field, key or file at fault; empty if there is none */
    char message[512]; /* one line: what is wrong and what to do */
} hearth_error;

/* ---- Configuration ---- */

/* A set of configuration keys, each known by its path, e.g. "server.listen" or "models.demo.n_seq_max".
 * docs/config.md lists them. Not thread-safe while it is being changed; hearth_open() copies what it needs. */
typedef struct hearth_config hearth_config;

/* Called once for each error found in a file: `line` is 0 where none is known. */
typedef void (*hearth_config_report)(void *ud, const char *file, int line, const char *key, const char *message);

HEARTH_API hearth_config *hearth_config_new(void);
HEARTH_API void hearth_config_free(hearth_config *config);

/* Reads a YAML file over what is set already. Reports every error it finds (report may be NULL); returns the first. */
HEARTH_API int hearth_config_load(hearth_config *config, const char *path, hearth_config_report report, void *ud,
                                  hearth_error *error);

/* Sets one key from its YAML spelling ("4", "true", "q8_0", "[a, b]"). Naming a model's key declares that model. */
HEARTH_API int hearth_config_set(hearth_config *config, const char *key, const char *value, hearth_error *error);

/* Checks what no single key can show: keys that exclude each other, missing paths, names of models. */
HEARTH_API int hearth_config_check(const hearth_config *config, hearth_config_report report, void *ud,
                                   hearth_error *error);

/* The value of a key as text, its default where nothing was set; NULL for an unknown key and where the value is
 * null. Lists are joined by commas. The string belongs to the configuration and lives until it is next changed. */
HEARTH_API const char *hearth_config_get(const hearth_config *config, const char *key);

/* Names of the models declared, by index; NULL past the last. */
HEARTH_API const char *hearth_config_model(const hearth_config *config, size_t index);

/* Forgets every model but those named; an unknown name is HEARTH_NOT_FOUND and changes nothing. */
HEARTH_API int hearth_config_keep_models(hearth_config *config, const char *const *names, size_t n,
                                         hearth_error *error);

/* All keys with their values, defaults and meanings, as a YAML file that reads back to the same configuration. */
HEARTH_API char *hearth_config_dump(const hearth_config *config);

/* docs/config.md: the table of all keys, generated from the same table that parses them. */
HEARTH_API char *hearth_config_manual(void);

/* Frees any string that a function of this header says is the caller's. */
HEARTH_API void hearth_free(char *string);

/* ---- Instance ---- */

/* Models with their engines and caches. */
typedef struct hearth hearth;

/* Progress of loading, 0 to 1, for the model named. Returning false aborts the load. */
typedef bool (*hearth_progress)(void *ud, const char *model, float fraction);

HEARTH_API hearth *hearth_open(const hearth_config *config, hearth_error *error);

/* Loads every model of the configuration, one after the other, on the calling thread; blocks until all are ready.
 * Call it once. Models loaded before a failure stay usable. */
HEARTH_API int hearth_load(hearth *instance, hearth_progress progress, void *ud, hearth_error *error);

/* Stops admitting: later submissions and requests still waiting fail with HEARTH_UNAVAILABLE at once; those that
 * run may finish within `timeout_ms`, then they are cancelled. Returns when all have ended. */
HEARTH_API void hearth_drain(hearth *instance, int64_t timeout_ms);

/* Drains with no patience if need be, then frees everything. Every request must have been released. NULL is fine. */
HEARTH_API void hearth_close(hearth *instance);

/* ---- Models ---- */

/* How a model keeps its state decides how its cache can be cut. The names are dense, moe, hybrid, recurrent. */
typedef struct hearth_model_info {
    const char *name;         /* the name in the configuration */
    const char *path;         /* the weights file */
    const char *architecture; /* e.g. "qwen3" */
    const char *kind;         /* dense | moe | hybrid | recurrent */
    const char *description;  /* llama.cpp's one-line description, with the weight type */
    uint64_t size_bytes;      /* size of the weights */
    uint64_t n_params;        /* number of weights */
    int32_t n_vocab;          /* tokens in the vocabulary */
    int32_t n_embd;           /* width of the model */
    int32_t n_layer;          /* number of layers */
    int32_t n_swa;            /* size of the sliding attention window; 0: none */
    int32_t n_ctx_train;      /* tokens the model was trained for */
    int32_t context_window;   /* tokens a slot can hold here */
    int32_t n_slots;          /* requests computed at once */
    bool has_chat_template;   /* chat needs one; completions do not */
    int64_t created;          /* unix time of loading */
} hearth_model_info;

/* Describes the index-th loaded model; false past the last. The strings live as long as the instance. */
HEARTH_API bool hearth_model(const hearth *instance, size_t index, hearth_model_info *info);

/* Turns text into tokens. `*tokens` is the caller's, to be freed with free(). Returns the count or a negative code.
 * add_special: begin and end markers as the model wants them; parse_special: markers in the text become tokens. */
HEARTH_API int32_t hearth_tokenize(hearth *instance, const char *model, const char *text, size_t len, bool add_special,
                                   bool parse_special, int32_t **tokens, hearth_error *error);

/* A report in text on a model file: `hearth model info`. The caller frees it. */
HEARTH_API char *hearth_model_report(const char *path, hearth_error *error);

/* The memory estimate for a model of the configuration, step by step, beside what is really allocated once its
 * context has been created: `hearth model vram`. The caller frees it. */
HEARTH_API char *hearth_memory_report(const hearth_config *config, const char *model, hearth_error *error);

/* ---- Requests ---- */

typedef struct hearth_bias {
    int32_t token;
    float bias; /* added to the token's logit; -INFINITY forbids it */
} hearth_bias;

/* "Not given": the configuration's value holds. */
#define HEARTH_UNSET INT32_MIN

/* One request: one prompt, one reply. The prompt is exactly one of messages_json, text, tokens. Start from
 * hearth_params_default(), where nothing is given; hearth_submit() copies everything. */
typedef struct hearth_params {
    const char *model;      /* name; NULL: the first of the configuration */
    const char *request_id; /* for logs and /slots; NULL: one is made */

    const char *messages_json;        /* chat: JSON array of messages in OpenAI's form */
    const char *template_kwargs_json; /* chat: JSON object handed to the template; NULL: none */
    const char *text;                 /* completion: text, tokenised with begin marker */
    size_t text_len;
    const int32_t *tokens; /* completion: tokens, taken as they are */
    size_t n_tokens;

    int32_t max_tokens;      /* tokens to generate; HEARTH_UNSET: up to the end of the context window */
    const char *const *stop; /* the reply ends before any of these strings */
    size_t n_stop;
    bool ignore_eos; /* go on past end-of-generation tokens */
    bool patient;    /* waits for a place as long as it takes, not admission_timeout: further choices of one request */
    bool cache_prompt;      /* default true; false: nothing is reused, nothing is kept */
    const char *cache_salt; /* prompts with different salts never share anything; NULL or "": the common one */
    const char *parent_key; /* 64 hexadecimal digits: what is stored of the turn that this one continues. A hint: it is
                               waited for while it is still being written. NULL: none */
    bool only_lookup;       /* compute nothing: result->warmth tells how much of the prompt is there */

    double temperature; /* NAN: not given, likewise below; <= 0: greedy */
    double top_p;
    double min_p;
    double repeat_penalty;    /* 1: off */
    double frequency_penalty; /* 0: off */
    double presence_penalty;  /* 0: off */
    int32_t top_k;            /* <= 0: off */
    int32_t repeat_last_n;    /* tokens that the penalties look at; -1: all of the context */
    int64_t seed;             /* < 0: random */
    const hearth_bias *logit_bias;
    size_t n_logit_bias;
} hearth_params;

typedef enum hearth_finish {
    HEARTH_FINISH_STOP = 0,  /* an end-of-generation token or a stop string */
    HEARTH_FINISH_LENGTH = 1 /* max_tokens or the end of the context window */
} hearth_finish;

/* How many leading tokens of a prompt need not be computed, by the place where they are. */
typedef struct hearth_warmth {
    int32_t prompt;              /* tokens of the prompt */
    int32_t resident;            /* in cells, or in memory beside them */
    int32_t ram, ram_file, disk; /* in the tiers of the store */
    char key[65];                /* of the longest entry that the store found; "" */
} hearth_warmth;

typedef struct hearth_result {
    hearth_finish finish;
    const char *stop_string; /* the stop string that ended it, or NULL */
    int32_t slot;            /* the slot that computed it */
    int32_t cache_n;         /* prompt tokens that were not computed; cache_n + prompt_n is the prompt's length */
    int32_t prompt_n;        /* prompt tokens that were */
    int32_t predicted_n;     /* tokens generated, the end-of-generation token included */
    double queue_ms;         /* from submission to a slot */
    double restore_ms;       /* fetching cached state */
    double prompt_ms;        /* from the slot to the first token */
    double predicted_ms;     /* from the first token to the last */
    hearth_warmth warmth;    /* DONE of a lookup */
} hearth_result;

typedef enum hearth_event_type {
    HEARTH_EVENT_STARTED, /* a slot took the request: from here on failures are rare. result: cache_n, prompt_n */
    HEARTH_EVENT_TEXT,    /* more of the reply: text, whole UTF-8 characters only */
    HEARTH_EVENT_DONE,    /* the end: result. Nothing follows */
    HEARTH_EVENT_FAILED   /* the end: error. Nothing follows */
} hearth_event_type;

typedef struct hearth_event {
    hearth_event_type type;
    const char *text;            /* TEXT; not zero-terminated */
    size_t text_len;             /* bytes; may be 0 while a character or a stop string is still incomplete */
    int32_t token;               /* TEXT: the token sampled; -1 for held-back text set free at the end */
    const hearth_result *result; /* STARTED, DONE */
    const hearth_error *error;   /* FAILED */
} hearth_event;

/* Called on a thread of hearth's: it must return quickly and must not call back into hearth but for hearth_cancel().
 * Every submitted request ends with exactly one DONE or FAILED, whatever happens; after it `ud` is not used again. */
typedef void (*hearth_event_fn)(void *ud, const hearth_event *event);

typedef struct hearth_request hearth_request;

HEARTH_API hearth_params hearth_params_default(void);

/* Hands a request in and returns at once; what comes of it is told through `on_event`. NULL where the request could
 * not even be handed in (unknown model, contradictory parameters): then on_event is never called. */
HEARTH_API hearth_request *hearth_submit(hearth *instance, const hearth_params *params, hearth_event_fn on_event,
                                         void *ud, hearth_error *error);

/* Asks for the end of a request: it fails with HEARTH_CANCELLED, within a tick if it runs. May come at any time,
 * also after the end, and from inside on_event. */
HEARTH_API void hearth_cancel(hearth_request *request);

/* Gives the handle back. Does not cancel: events go on until the last. */
HEARTH_API void hearth_request_release(hearth_request *request);

/* ---- What is going on ---- */

typedef struct hearth_slot {
    int32_t id;
    int32_t seq_id;      /* the sequence of cells it stands on */
    const char *model;   /* name */
    const char *state;   /* idle | pending | prefill | generate */
    char request_id[64]; /* empty when idle */
    int32_t cached_messages;
    int32_t cached_tokens; /* tokens that lie ready in its cells */
    int32_t n_past;        /* tokens of the running request that are in its cells */
    char hash[17];         /* short hash of the cached tokens; empty when there are none */
    int64_t last_used;     /* unix time, milliseconds; 0: never */
} hearth_slot;

/* Fills up to `max` slots over all models; returns how many there are. */
HEARTH_API size_t hearth_slots(const hearth *instance, hearth_slot *slots, size_t max);

/* ---- The store: what outlives cells, instances and crashes ---- */

#define HEARTH_TIERS 3 /* ram, ram_file, disk */

typedef struct hearth_tier {
    const char *name;
    bool on;
    uint64_t entries, bytes, quota_bytes, evictions;
    char trouble[160]; /* why it is off, or what failed last; "" */
} hearth_tier;

typedef struct hearth_cache {
    hearth_tier tiers[HEARTH_TIERS];
    /* Requests whose cells the store gave, by how much of the prompt it had; and those of which nothing was stored or
     * resident. Requests that went on from resident cells alone are in none of them. */
    int64_t hits_exact, hits_resume, hits_longest_prefix, misses;
    int64_t saves_cold, saves_continued, saves_finish, saves_evict, saves_shutdown;
    int64_t saves_dropped, duplicate_dropped, corrupt_files, longest_prefix_probes;
    int64_t pack_ns, load_ns; /* on the store's threads: taking states apart; reading and checking them */
    int64_t written_bytes, read_bytes;
    int64_t backlog_bytes; /* of saves under way */
} hearth_cache;

HEARTH_API void hearth_cache_status(const hearth *instance, hearth_cache *out);

/* An entry of the tiers ram_file and disk, as its file says. Strings are valid during the call. */
typedef struct hearth_kv_entry {
    const char *tier, *key, *parent;     /* keys as 64 digits; parent "": it begins at 0 */
    const char *kind;                    /* rows | state */
    const char *reason;                  /* cold | continued | evict | shutdown | finish */
    const char *model, *quant, *context; /* what it belongs to: fingerprints as 64 digits, type of the weights */
    int32_t start, end;                  /* it holds the tokens [start, end) of a prefix of `end` tokens */
    uint64_t bytes;
    uint32_t hits;
    int64_t created_ms, used_ms; /* since 1970 */
    const char *damage;          /* hearth_kv_verify(): what is wrong with it; NULL: nothing */
} hearth_kv_entry;

typedef void (*hearth_kv_fn)(void *ud, const hearth_kv_entry *entry);

/* Calls `each` for every stored entry, oldest use first. No instance is needed; one that runs is not disturbed. */
HEARTH_API int hearth_kv_list(const hearth_config *config, hearth_kv_fn each, void *ud, hearth_error *error);

/* Reads every file whole and checks it: lengths, checksums, key and parents. */
HEARTH_API int hearth_kv_verify(const hearth_config *config, hearth_kv_fn each, void *ud, hearth_error *error);

/* Everything about one entry, its tokens and regions included, as text. The caller frees it. */
HEARTH_API char *hearth_kv_show(const hearth_config *config, const char *key, hearth_error *error);

/* Removes what is of no use (half-written and quarantined files, entries whose parents are gone, what exceeds the
 * quotas), or everything. HEARTH_UNAVAILABLE where an instance is using the folder. */
typedef struct hearth_kv_removed {
    uint64_t files, bytes;
} hearth_kv_removed;

HEARTH_API int hearth_kv_gc(const hearth_config *config, hearth_kv_removed *removed, hearth_error *error);
HEARTH_API int hearth_kv_clear(const hearth_config *config, hearth_kv_removed *removed, hearth_error *error);

/* Counters and histograms in Prometheus' text format. The caller frees it. */
HEARTH_API char *hearth_metrics(const hearth *instance);

/* hearth's version and llama.cpp's, e.g. "0.1.0"; and what the CPU offers, e.g. "AVX2 AVX512". */
HEARTH_API const char *hearth_version(void);
HEARTH_API const char *hearth_llama_version(void);
HEARTH_API const char *hearth_cpu_features(void);

/* Logging: level is error | warn | info | debug, format is text | json; path NULL: stderr. Opening the same path
 * again reopens it, for log rotation. */
HEARTH_API int hearth_log_open(const char *path, const char *level, const char *format, hearth_error *error);

#ifdef __cplusplus
}
#endif
#endif
