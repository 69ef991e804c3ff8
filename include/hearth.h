/* libhearth: LLM inference in process, with a KV cache that computes no prompt token twice.
 *
 * In the order of this header: make a configuration, open an instance with it, load its models, submit requests.
 *
 *     hearth_config *config = hearth_config_new();
 *     hearth_config_set(config, "models.demo.path", "models/demo.gguf", &error);
 *     hearth *instance = hearth_open(config, &error);
 *     hearth_load(instance, NULL, NULL, &error);
 *     hearth_params params = hearth_params_default();
 *     const char *said = "[{\"role\":\"user\",\"content\":\"Who are you?\"}]";
 *     params.messages = hearth_json_read(said, strlen(said), &error);
 *     hearth_request *request = hearth_submit(instance, &params, on_event, user_data, &error);
 *     hearth_wait(request, &error); // meanwhile on_event is called on another thread
 *     hearth_request_release(request);
 *     hearth_close(instance);
 *
 * examples/ has this as a whole program, and others.
 *
 * Handles are opaque; no type of another library appears here. Functions that can fail take a hearth_error, return
 * a negative hearth_code or NULL on failure and leave the error filled in. Unless said otherwise every function may
 * be called from any thread. Strings are UTF-8 and zero-terminated unless they come with a length.
 */
#ifndef HEARTH_H
#define HEARTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hearth_sampling.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HEARTH_API __attribute__((visibility("default")))
#else
#define HEARTH_API
#endif

/* ---- Errors ---- */

/* The kind of a failure, which decides what a caller can do about it. */
typedef enum hearth_code {
    HEARTH_OK = 0,
    HEARTH_INVALID = -1,     /* the caller's input is wrong: `param` names the field or key */
    HEARTH_NOT_FOUND = -2,   /* no such model, file or key */
    HEARTH_TOO_LONG = -3,    /* the prompt does not fit the context window */
    HEARTH_BUSY = -4,        /* the request waited too long for admission, or the model is in use: try again later */
    HEARTH_UNSUPPORTED = -5, /* this model or this build cannot do that */
    HEARTH_UNAVAILABLE = -6, /* the model is loading, or the instance is stopping */
    HEARTH_CANCELLED = -7,   /* cancelled by the caller */
    HEARTH_NO_MEMORY = -8,   /* memory for weights or KV cells, or a thread, is not available */
    HEARTH_IO = -9,          /* a file or socket failed */
    HEARTH_INTERNAL = -10    /* a fault of hearth or of llama.cpp */
} hearth_code;

typedef struct hearth_error {
    hearth_code code;
    char param[96];    /* the field, key or file at fault; empty if there is none */
    char message[512]; /* one line: what is wrong and what to do */
    int64_t n_prompt; /* HEARTH_TOO_LONG, where it was counted: tokens of the prompt or of the input at fault; else 0 */
    int64_t window;   /* with n_prompt: so many tokens the context window holds */
} hearth_error;

/* ---- Configuration ---- */

/* A set of configuration keys, each named by its path, e.g. "server.listen" or "models.demo.n_seq_max".
 * docs/config.md lists them. Not thread-safe while it is being changed; hearth_open() copies what it needs. */
typedef struct hearth_config hearth_config;

/* Called once for each error found in a file; `line` is 0 where the error has none. */
typedef void (*hearth_config_report)(void *ud, const char *file, int line, const char *key, const char *message);

HEARTH_API hearth_config *hearth_config_new(void);
HEARTH_API void hearth_config_free(hearth_config *config);

/* Reads a YAML file over what is set already. Reports every error it finds (report may be NULL); returns the first. */
HEARTH_API int hearth_config_load(hearth_config *config, const char *path, hearth_config_report report, void *ud,
                                  hearth_error *error);

/* Sets one key from its YAML spelling ("4", "true", "q8_0", "[a, b]"). Naming a model's key declares that model. */
HEARTH_API int hearth_config_set(hearth_config *config, const char *key, const char *value, hearth_error *error);

/* Checks all keys together: keys that exclude each other, missing paths, names of models. */
HEARTH_API int hearth_config_check(const hearth_config *config, hearth_config_report report, void *ud,
                                   hearth_error *error);

/* The value of a key as text, its default where nothing was set; NULL for an unknown key and where the value is
 * null. Lists are joined by commas. The string belongs to the configuration and lives until it is next changed. */
HEARTH_API const char *hearth_config_get(const hearth_config *config, const char *key);

/* The name of the index-th declared model; NULL past the last. */
HEARTH_API const char *hearth_config_model(const hearth_config *config, size_t index);

/* The path of the index-th key that there is, in the order of docs/config.md, with "models.*" for any model; NULL past
 * the last. Static. */
HEARTH_API const char *hearth_config_key(size_t index);

/* Removes every model but those named; an unknown name is HEARTH_NOT_FOUND and changes nothing. */
HEARTH_API int hearth_config_keep_models(hearth_config *config, const char *const *names, size_t n,
                                         hearth_error *error);

/* All keys with their values, defaults and meanings, as a YAML file that reads back to the same configuration. The
 * caller frees it. */
HEARTH_API char *hearth_config_dump(const hearth_config *config);

/* docs/config.md: a Markdown table of all keys, generated from the table that parses them. The caller frees it. */
HEARTH_API char *hearth_config_manual(void);

/* hearth.yaml(5), a manual page of the same keys. The caller frees it. */
HEARTH_API char *hearth_config_man(void);

/* GBNF of the texts that are all of what a regular expression of ECMA-262 matches, for hearth_params.grammar; backward
 * references and assertions are HEARTH_INVALID. NULL with the error, whose message says what is wrong. The
 * caller frees it. Any thread. */
HEARTH_API char *hearth_regex_grammar(const char *regex, hearth_error *error);

/* Frees the strings that functions of this header return to the caller. */
HEARTH_API void hearth_free(char *string);

/* ---- Instance ---- */

/* The models of a configuration, with their engines and KV caches. */
typedef struct hearth hearth;

/* Progress of loading a model, 0 to 1; called on the thread that loads it. Returning false aborts the load. */
typedef bool (*hearth_progress)(void *ud, const char *model, float fraction);

HEARTH_API hearth *hearth_open(const hearth_config *config, hearth_error *error);

/* Loads every model of the configuration, one after the other, on the calling thread; blocks until all are ready. Of
 * models with load: demand only the file's metadata is read. Call it once. Models loaded before a failure stay usable.
 */
HEARTH_API int hearth_load(hearth *instance, hearth_progress progress, void *ud, hearth_error *error);

/* Another process that had the folders of the cache has ended: opens them now, not when they are tried again next, and
 * waits until what is stored there is known, `timeout_ms` milliseconds at most. */
HEARTH_API void hearth_reopen_cache(hearth *instance, int64_t timeout_ms);

/* Stops admission: later submissions and requests that still wait fail with HEARTH_UNAVAILABLE at once; running ones
 * may finish within `timeout_ms` milliseconds, then they are cancelled. Returns when all have ended, but for a request
 * whose preparation does not end within a second of being told to. */
HEARTH_API void hearth_drain(hearth *instance, int64_t timeout_ms);

/* hearth_drain() with a timeout of 0, then frees everything. Every request must have been released. NULL is fine. */
HEARTH_API void hearth_close(hearth *instance);

/* ---- Models ---- */

/* The type of a model says what it is for: chat models generate text, for chats and completions; embedding models turn
 * inputs into vectors; rerank models score documents against a query. A request to a model of another type is
 * HEARTH_UNSUPPORTED; one that names no model goes to the first of its type.
 *
 * The kind of a model (dense, moe, hybrid, recurrent) decides at which positions its KV cache can be cut. */
typedef enum hearth_model_type { HEARTH_MODEL_CHAT, HEARTH_MODEL_EMBEDDING, HEARTH_MODEL_RERANK } hearth_model_type;

typedef enum hearth_model_kind {
    HEARTH_KIND_DENSE,
    HEARTH_KIND_MOE,
    HEARTH_KIND_HYBRID,
    HEARTH_KIND_RECURRENT
} hearth_model_kind;

/* How the vectors of an input's tokens are pooled: not at all, their mean, the first (cls) or the last token's, or a
 * classification head that gives a reranking score. */
typedef enum hearth_pooling {
    HEARTH_POOLING_UNSPECIFIED = -1, /* a chat model */
    HEARTH_POOLING_NONE,
    HEARTH_POOLING_MEAN,
    HEARTH_POOLING_CLS,
    HEARTH_POOLING_LAST,
    HEARTH_POOLING_RANK
} hearth_pooling;

typedef enum hearth_model_state {
    HEARTH_MODEL_UNLOADED,
    HEARTH_MODEL_LOADING,
    HEARTH_MODEL_LOADED,
    HEARTH_MODEL_UNLOADING,
    HEARTH_MODEL_FAILED, /* its last load */
    HEARTH_MODEL_REMOVED /* by hearth_remove_model(): no name leads to it any more */
} hearth_model_state;

/* As configuration and JSON write them: "chat", "dense", "mean" ("": unspecified), "loaded". Static. */
HEARTH_API const char *hearth_model_type_name(hearth_model_type type);
HEARTH_API const char *hearth_model_kind_name(hearth_model_kind kind);
HEARTH_API const char *hearth_pooling_name(hearth_pooling pooling);
HEARTH_API const char *hearth_model_state_name(hearth_model_state state);

typedef struct hearth_model_info {
    const char *name;           /* the name in the configuration */
    const char *const *aliases; /* n_aliases further names that requests may call it by */
    size_t n_aliases;
    const char *const *tags; /* n_tags words about it, for who lists models */
    size_t n_tags;
    const char *path;         /* the weights file */
    const char *architecture; /* e.g. "qwen3" */
    hearth_model_type type;
    hearth_model_kind kind;
    hearth_pooling pooling;
    const char *description;   /* llama.cpp's one-line description, with the weight type */
    uint64_t size_bytes;       /* size of the weights */
    uint64_t n_params;         /* number of weights */
    int32_t n_vocab;           /* tokens in the vocabulary */
    int32_t n_embd;            /* embedding width inside the model */
    int32_t n_embd_out;        /* width of its output vectors */
    int32_t n_layer;           /* number of layers */
    int32_t n_swa;             /* sliding attention window, tokens; 0: none */
    int32_t n_ctx_train;       /* tokens of the context that the model was trained for */
    int32_t context_window;    /* tokens that a slot, or one input of an embedding or rerank model, can have here */
    int32_t n_slots;           /* requests computed at once; contexts of an embedding or rerank model */
    bool has_chat_template;    /* of its own; false: chats are written in ChatML, for which it may not be trained */
    const char *chat_template; /* the template in use; "": not a chat model */
    const char *chat_template_caps;   /* its capabilities, as llama.cpp detects them: a JSON object of booleans */
    const char *transcription_system; /* system message of a chat that asks for a sound to be written down; "": none */
    const char *transcription_user;   /* what the user's message says there, before the sound; "": nothing */
    const char *bos_text, *eos_text;  /* texts of the BOS and EOS tokens; "": none */
    const char *weights_type;         /* llama.cpp's name of the type of most weights: "Q8_0" */
    int32_t vocab_type;               /* llama.cpp's number of the vocabulary's type */
    int64_t created;                  /* unix time in seconds of its last load; before the first, of reading its file */
    int64_t created_ms;               /* the same in milliseconds */
    bool images, sounds;              /* its messages may have: models.*.mmproj */
    bool videos;                      /* and these: it takes images, and ffmpeg is installed */
    hearth_model_state state;
    double idle_left; /* seconds after which it is unloaded if no request comes; negative: never */
} hearth_model_info;

/* Describes the index-th model, in the order of the configuration, in memory or not; false past the last that
 * hearth_load() has reached or hearth_add_model() has added. The strings live as long as the instance. A model keeps
 * its index for good: the state of one that was removed is HEARTH_MODEL_REMOVED. */
HEARTH_API bool hearth_model(const hearth *instance, size_t index, hearth_model_info *info);

/* The index of the model that a request with this name (NULL: none) goes to, or a negative code. The name may be an
 * alias or have a tag; with server.any_model_name an unknown one means server.default_model or else the only chat
 * model. */
HEARTH_API int32_t hearth_find_model(const hearth *instance, const char *name, hearth_error *error);

/* Models are loaded and unloaded while the instance runs: a request loads the model that it needs, and waits for it, at
 * most its admission_timeout. idle_unload and server.memory_budget_mb unload models that no request uses, after their
 * KV states were stored. A request keeps its model loaded until its handle is released. */

/* Asks for a model to be loaded and returns at once. HEARTH_INVALID: it is loaded. */
HEARTH_API int hearth_load_model(hearth *instance, const char *model, hearth_error *error);

/* Asks for a model to be unloaded and returns at once; a later request loads it again. HEARTH_BUSY while it has
 * requests or is being loaded, HEARTH_INVALID where it is not loaded. */
HEARTH_API int hearth_unload_model(hearth *instance, const char *model, hearth_error *error);

/* How many seconds the model stays in memory without requests, in place of idle_unload, from the end of its next
 * request until this is called again or it is unloaded; negative: always, but for memory that another model needs. */
HEARTH_API int hearth_keep_model(hearth *instance, const char *model, double seconds, hearth_error *error);

/* Waits while the model is being loaded or unloaded. Returns the error of its last load, or HEARTH_OK. */
HEARTH_API int hearth_await_model(hearth *instance, const char *model, hearth_error *error);

/* Most models that hearth_add_model() adds to one instance, those that were removed again included. */
#define HEARTH_ADDED_MODELS 256

/* Adds a model to an instance whose models are loaded: the one of that name in another configuration, which is checked
 * as by hearth_config_check(), and copied; its server and its cache do not count. It has to have load: demand; keys
 * that are not set get the values that fit the machine now. Blocks on the disk while the file's metadata is read;
 * HEARTH_INVALID where the name is taken. */
HEARTH_API int hearth_add_model(hearth *instance, const hearth_config *config, const char *model, hearth_error *error);

/* Takes a model out of the instance, unloads it if need be and returns once its memory is free. Its files stay. A model
 * of that name may be added afterwards. HEARTH_BUSY, and nothing has changed, while it has requests or is being loaded.
 */
HEARTH_API int hearth_remove_model(hearth *instance, const char *model, hearth_error *error);

/* Tokenises text. The caller frees `*tokens` with free(). Returns the number of tokens or a negative code:
 * HEARTH_UNAVAILABLE where the model is not in memory, and loads it.
 * add_special: with BOS and EOS as the model wants them; parse_special: special tokens that the text spells become
 * tokens. */
HEARTH_API int32_t hearth_tokenize(hearth *instance, const char *model, const char *text, size_t len, bool add_special,
                                   bool parse_special, int32_t **tokens, hearth_error *error);

/* HEARTH_OK if the file is a whole GGUF file: its header can be read, and no tensor ends beyond the file. Each part of
 * a split model is one. Whether llama.cpp runs such a model is not looked at. */
HEARTH_API int hearth_model_check(const char *path, hearth_error *error);

/* A report on a model file, as text or as a JSON object: `hearth model info`. The caller frees it. */
HEARTH_API char *hearth_model_report(const char *path, hearth_error *error);
HEARTH_API char *hearth_model_report_json(const char *path, hearth_error *error);

/* The memory estimate for a model of the configuration, step by step, and what llama.cpp allocates for its context:
 * `hearth model vram`. The caller frees it. */
HEARTH_API char *hearth_memory_report(const hearth_config *config, const char *model, hearth_error *error);

/* ---- What fits this machine ---- */

#define HEARTH_FIT_CHOICES 12
#define HEARTH_FIT_TYPES   3
#define HEARTH_FIT_DEVICES 16

/* A context window, a number of slots and types of KV cells, and the bytes that a model needs with them: computed from
 * its file's header, nothing is loaded. */
typedef struct hearth_fit_choice {
    int32_t context_window, n_seq_max;
    const char *cache_type_k, *cache_type_v;   /* static, or the configuration's */
    uint64_t cells_bytes;                      /* KV cells and recurrent states of all slots and spare conversations */
    uint64_t compute_bytes;                    /* compute buffers */
    uint64_t memory_bytes, gpu_bytes;          /* all that is needed in memory, and on GPUs, the weights included */
    uint64_t device_bytes[HEARTH_FIT_DEVICES]; /* of the latter, on each */
    bool fits;
} hearth_fit_choice;

/* One that takes layers: a GPU, or a device of another machine. */
typedef struct hearth_fit_device {
    char name[64];         /* CUDA0, RPC0 */
    uint64_t free, budget; /* bytes that are free, and of them for the model */
    uint64_t planned;      /* hearth_fit.planned_memory */
} hearth_fit_device;

typedef struct hearth_fit_type {
    const char *name;     /* of a type of KV cells */
    uint64_t token_bytes; /* keys and values of one token, of the layers that attend to the whole window */
} hearth_fit_type;

typedef struct hearth_fit {
    char description[128]; /* llama.cpp's line of the model */
    hearth_model_type type;
    int32_t n_layer, n_ctx_train;
    uint64_t weights_bytes, projector_bytes, draft_bytes; /* of the draft model's file */
    uint64_t memory_free, memory_budget;           /* bytes that are free, and of them for the model; 0: unknown */
    uint64_t gpu_free, gpu_budget;                 /* the same of all GPUs together; 0: there is none */
    hearth_fit_device devices[HEARTH_FIT_DEVICES]; /* of these, each */
    size_t n_devices;
    /* Where nothing fits the devices as they are to be used, how something does: layers for which there is room, -1 for
     * none; or, of a mixture of experts, layers whose experts have to stay in memory. And with several devices the
     * number of layers for each. All 0: nothing is to be changed, or nothing helps. */
    int32_t n_gpu_layers, n_cpu_moe;
    int32_t tensor_split[HEARTH_FIT_DEVICES];
    hearth_fit_choice suggested; /* what fits then; context_window 0: nothing */
    /* Bytes that llama.cpp would allocate in memory, and on each device, for the choice that is recommended or
     * suggested: weights, cells and compute buffers, planned without allocating them. 0: not planned. */
    uint64_t planned_memory;
    uint64_t read_bytes; /* weights that each token of a reply reads from memory, beside those on GPUs; 0: unknown */
    uint64_t read_rate;  /* bytes that the threads read from memory a second; 0: unknown */
    hearth_fit_type types[HEARTH_FIT_TYPES];
    hearth_fit_choice choices[HEARTH_FIT_CHOICES]; /* the best first; none for embedding and rerank models */
    size_t n_choices;
    int32_t recommended; /* index of the first that fits; -1: none */
    char reason[512];    /* why that one, or what does not fit and what to do */
} hearth_fit;

/* Says which of the choices for a model of the configuration (NULL: the first) fit the memory that is free now: all of
 * it that the system offers, within the limits of control groups, less a share for others. Keys that the configuration
 * sets are kept. hearth_load() takes the recommended values for keys that are not set, of models with 256 MiB of
 * weights or more. Models with layers on other machines are asked for there (models.*.rpc). `hearth fit`. */
HEARTH_API int hearth_fit_model(const hearth_config *config, const char *model, hearth_fit *fit, hearth_error *error);

/* A machine with so many free bytes, in place of this one. */
typedef struct hearth_fit_machine {
    uint64_t memory;                      /* 0: as much as is free */
    uint64_t devices[HEARTH_FIT_DEVICES]; /* of those that there are, in their order, then of others */
    size_t n_devices;                     /* it has so many; 0: those that there are, as they are */
} hearth_fit_machine;

/* The same for such a machine. Devices that are not there are told by name only: GPU1 is the second one. */
HEARTH_API int hearth_fit_on(const hearth_config *config, const char *model, const hearth_fit_machine *machine,
                             hearth_fit *fit, hearth_error *error);

/* ---- Requests ---- */

typedef struct hearth_bias {
    int32_t token;
    float bias;       /* added to the token's logit; -INFINITY forbids it */
    const char *text; /* instead of `token`: each token of this text; NULL: none */
} hearth_bias;

/* Bytes that the texts of a request's biases may have together. */
#define HEARTH_BIAS_BYTES 65536

/* Most tokens of a prompt that hearth_params.only_prompt returns. */
#define HEARTH_PROMPT_TOLD (1 << 18)

/* "Not given", of integers: the configuration's value is used. NAN means the same of doubles. */
#define HEARTH_UNSET INT32_MIN

/* Sampling parameters. Values that are not given come from the configuration, then from the model's file, then from
 * hearth's defaults: docs/sampling.md has the order of the samplers and every default. Values beyond the range that
 * hearth_sampling.h has are refused. */
typedef struct hearth_sampling {
#define HEARTH_NUMBER(name, ...)  double name;
#define HEARTH_INTEGER(name, ...) int32_t name;
    HEARTH_SAMPLING_TABLE(HEARTH_NUMBER, HEARTH_INTEGER) /* temperature, top_k, top_p, …: see hearth_sampling.h */
#undef HEARTH_NUMBER
#undef HEARTH_INTEGER
    int64_t seed;                    /* < 0: random */
    const char *const *dry_breakers; /* NULL: not given */
    size_t n_dry_breakers;
    const char *const *samplers; /* names, in the order in which they are applied; NULL: not given */
    size_t n_samplers;
    const hearth_bias *logit_bias;
    size_t n_logit_bias;
    bool ignore_eos; /* end-of-generation tokens do not end the reply */
    const int32_t
        *ending; /* with ignore_eos, once every value is filled in: these tokens, all of which are forbidden */
    size_t n_ending;
} hearth_sampling;

/* A LoRA adapter: its index in the configuration's models.*.lora, from 0. */
typedef struct hearth_lora {
    int32_t id;
    double scale; /* 0: without it */
} hearth_lora;

typedef enum hearth_tool_choice {
    HEARTH_TOOLS_AUTO,    /* the model decides */
    HEARTH_TOOLS_NONE,    /* the template shows the tools, no call is made */
    HEARTH_TOOLS_REQUIRED /* at least one call is made */
} hearth_tool_choice;

typedef enum hearth_continue {
    HEARTH_CONTINUE_AUTO,     /* the reply continues a last message of the assistant's */
    HEARTH_CONTINUE_NEVER,    /* such a message is a complete turn */
    HEARTH_CONTINUE_CONTENT,  /* the reply continues its content */
    HEARTH_CONTINUE_REASONING /* the reply continues its reasoning */
} hearth_continue;

/* A piece of a prompt: text, or one token. */
typedef struct hearth_part {
    const char *text; /* NULL: the token */
    size_t len;
    int32_t token;
} hearth_part;

/* For fill-in-the-middle: the text of another file that the editor has open. */
typedef struct hearth_snippet {
    const char *name, *text;
} hearth_snippet;

/* Reference-counted owner of what the parameters of several requests point at, so that the choices of one answer need
 * not copy a large prompt each. `release(ud)` is called once, on any thread, when the caller and every request
 * submitted with it have dropped their reference; until then nothing of it may change. It must return quickly. */
typedef struct hearth_shared hearth_shared;
HEARTH_API hearth_shared *hearth_shared_new(void (*release)(void *ud), void *ud);
HEARTH_API void hearth_shared_unref(hearth_shared *shared); /* by the caller, when all requests are submitted */

/* A JSON value, parsed once: of messages, tools, schemas. It does not change, and any number of requests may have it at
 * once. Numbers keep their value and digits, and members of objects their order. */
typedef struct hearth_json hearth_json;

/* Reads any JSON value; NULL with HEARTH_INVALID, which says where the text is wrong. */
HEARTH_API hearth_json *hearth_json_read(const char *text, size_t len, hearth_error *error);

/* Drops the caller's reference. A request that was submitted with it has one of its own, unless the request's
 * parameters are shared. NULL is fine. */
HEARTH_API void hearth_json_free(const hearth_json *json);

/* An image, a sound or another file of a chat's messages: its bytes, as uploaded. A content part of the messages names
 * one by its place in the list, {"type": "image_url", "media": 0}, likewise "input_audio", "input_video" and "file". A
 * part that names none, and every one for a model that takes text only, becomes a note (models.*.media). */
typedef struct hearth_medium {
    const void *bytes;
    size_t len;
    const char *field; /* what an error names, as in "messages[0].content[1].image_url.url"; NULL: its place */
    const char *fault; /* why there are no bytes: a model that takes such media refuses the request, with this message;
                          NULL: there are some */
    const char *url;   /* where they are, in place of them: fetched while the request is prepared, where
                          models.*.media_urls or models.*.media_path allows it, and else refused; NULL: they are here */
} hearth_medium;

/* How long a sound file (WAV, MP3, FLAC) is, in seconds, as its header says. HEARTH_INVALID: it is none. */
HEARTH_API int hearth_sound_seconds(const void *bytes, size_t len, double *seconds, hearth_error *error);

/* Values that a request gives although they are as if they were not given: then a preset's does not hold. */
enum { HEARTH_GIVEN_MAX_TOKENS = 1, HEARTH_GIVEN_SEED = 2, HEARTH_GIVEN_STOP = 4 };

/* One request: one prompt, one reply. The prompt is exactly one of messages, text, tokens, parts. Start
 * from hearth_params_default(), where nothing is given; hearth_submit() copies everything, unless it is shared. */
typedef struct hearth_params {
    hearth_shared *shared; /* owns what the rest points at, but for model and request_id; NULL: all is copied */

    const char *model;      /* name; NULL: server.default_model, else the first chat model */
    unsigned given;         /* HEARTH_GIVEN_… */
    const char *request_id; /* for logs and /slots; NULL: one is made */

    const hearth_json *messages; /* chat: an array of messages in OpenAI's form */
    const hearth_medium *media;  /* chat: what parts of the messages name */
    size_t n_media;
    const hearth_json *template_kwargs; /* chat: an object of arguments for the template; NULL: none */
    const hearth_json *tools;           /* chat: an array of tools in OpenAI's form; NULL: none */
    hearth_tool_choice tool_choice;
    const hearth_json *allowed_tools; /* chat: an array of the names that may be called, NULL: all; the prompt shows all
                                         tools anyway, so that it keeps its prefix */
    int parallel_tool_calls;          /* chat: several calls in one reply: 1 yes, 0 no, -1: where the template can */
    hearth_continue continue_final;
    bool no_generation_prompt; /* chat: the prompt does not end with the assistant's generation prompt */
    bool reasoning_in_text;    /* chat: reasoning is left in the content, as the model writes it */
    int32_t thinking_tokens;   /* chat: reasoning budget in tokens; -1: no limit */
    const char *thinking_end;  /* chat: text put before the end of the reasoning when its budget is spent; NULL: none */

    const char *text; /* completion: text, tokenised with BOS */
    size_t text_len;
    bool without_bos_eos; /* the text is tokenised without BOS and EOS */
    bool plain;           /* special tokens that the text spells stay text */
    const char
        *suffix; /* completion: fill-in-the-middle: the text after the reply, for models with such tokens; NULL */
    size_t suffix_len;
    const char *typed; /* with a suffix: text after the prompt that is never cut off; NULL: none */
    size_t typed_len;
    const hearth_snippet *snippets; /* with a suffix: other files of the editor */
    size_t n_snippets;
    const int32_t *tokens; /* completion: tokens, taken as they are */
    size_t n_tokens;
    const hearth_part *parts; /* completion: text and tokens, with BOS if the first is text */
    size_t n_parts;

    const char *grammar;            /* the reply must match: GBNF with a rule "root"; NULL: none */
    const hearth_json *json_schema; /* the reply must match: a JSON schema; NULL: none */

    int32_t max_tokens;      /* tokens to generate; HEARTH_UNSET: up to the end of the context window */
    int64_t max_ms;          /* the reply ends after so many milliseconds of generation, at the next line; 0: never */
    const char *const *stop; /* the reply ends before any of these strings */
    size_t n_stop;
    bool patient;      /* waits for admission without admission_timeout: for further choices of one answer */
    bool cache_prompt; /* default true; false: nothing is reused, nothing is cached */
    int32_t draft_max; /* drafted tokens that a decode call computes at most; 0: none, HEARTH_UNSET: as configured */
    const char *cache_salt; /* prompts with different salts never share KV cells or slabs; NULL or "": no salt */
    const char *parent_key; /* 64 hexadecimal digits: the slab key of the turn that this one continues. A hint: while
                               that slab is still being saved, the request waits for it. NULL: none */
    bool only_lookup;       /* cache lookup: computes nothing; result->lookup says how much of the prompt is cached */
    bool only_prompt; /* computes nothing: a PROMPT event has the prompt, of up to HEARTH_PROMPT_TOLD tokens. Takes no
                         admission permit, and the prompt may exceed the context window */
    bool keep_prompt; /* keeps the prompt for hearth_request_prompt() */
    const hearth_lora
        *lora; /* adapters; those of the model that are not named have scale 0. NULL: the default scales */
    size_t n_lora;

    hearth_sampling sampling;
    int32_t top_logprobs;     /* TEXT events have the logprobs of the token and of so many likeliest; -1: neither */
    int32_t prompt_logprobs;  /* PROMPT_LOGPROBS events have those of the prompt's tokens, and of so many likeliest in
                                 each place; -1: there are none. The prompt is computed whole then, whatever of it is
                                 cached, and kept for others as ever. With top_logprobs the token that ends the reply
                                 has a TEXT event, too. HEARTH_INVALID for a prompt with media */
    bool post_sampling_probs; /* probabilities after the samplers, in place of the model's own */
    bool progress;            /* PROGRESS events while the prompt is computed */
} hearth_params;

typedef enum hearth_finish {
    HEARTH_FINISH_STOP = 0,  /* an end-of-generation token or a stop string */
    HEARTH_FINISH_LENGTH = 1 /* max_tokens or the end of the context window */
} hearth_finish;

#define HEARTH_TIERS 4 /* of the store */

/* The name of the i-th tier, as in the configuration; NULL past the last. Static. */
HEARTH_API const char *hearth_tier_name(size_t i);

/* A cache lookup: how many leading tokens of a prompt are cached, by where they are. */
typedef struct hearth_cache_lookup {
    int32_t prompt;              /* tokens of the prompt */
    int32_t resident;            /* in KV cells, or in snapshots beside them */
    int32_t tiers[HEARTH_TIERS]; /* in each tier of the store, hearth_tier_name() */
    int32_t reusable;            /* tokens that a request would reuse; it computes the rest */
    char key[65];                /* slab key of the longest prefix found in the store; "": none */
} hearth_cache_lookup;

typedef struct hearth_result {
    hearth_finish finish;
    const char *stop_string;  /* the stop string that ended it, or NULL */
    int32_t slot;             /* the slot that computed it */
    int32_t n_prompt;         /* tokens of the prompt; at the end cache_n + prompt_n */
    int32_t cache_n;          /* prompt tokens that were cached */
    int32_t kept_n;           /* leading prompt tokens, cached or computed, that are kept for later requests */
    int32_t prompt_n;         /* prompt tokens that were computed (prefill) */
    int32_t too_short_n;      /* of these, tokens that were cached, but fewer than cache_min_tokens */
    int32_t predicted_n;      /* tokens generated, the end-of-generation token included */
    int32_t draft_n;          /* tokens that were computed as drafts: guesses at the next ones */
    int32_t draft_accepted_n; /* of these, guesses that were right */
    double queue_ms;          /* from submission to a slot */
    double restore_ms;        /* fetching KV state from the store */
    double prompt_ms;         /* from the slot to the first token */
    double predicted_ms;      /* from the first token to the last */
    double save_ms;           /* of DONE: what its end takes for the store after the last token */
    /* Stages within queue_ms, one after the other; the rest is the wait for a slot. -1: it has not ended. */
    double admission_ms;        /* until it was admitted, and its model loaded */
    double prepare_ms;          /* rendering and tokenising the prompt */
    double lookup_ms;           /* asking the store for it */
    hearth_cache_lookup lookup; /* DONE of a lookup */
} hearth_result;

/* A token's log probability (natural logarithm): 0 is certain, -INFINITY impossible. */
typedef struct hearth_logprob {
    int32_t token;
    double log;
    const char *bytes; /* of the token; may be a part of a character, and contain zero bytes */
    size_t n_bytes;
} hearth_logprob;

typedef struct hearth_logprobs {
    hearth_logprob chosen;
    int32_t rank;              /* of the chosen one among all tokens, from 1; 0: after samplers, not known */
    const hearth_logprob *top; /* the likeliest first */
    size_t n_top;
} hearth_logprobs;

typedef enum hearth_event_type {
    HEARTH_EVENT_STARTED,        /* the request has a slot: failures are rare from now on. result: cache_n, prompt_n */
    HEARTH_EVENT_PROMPT,         /* with only_prompt: text and tokens of the prompt */
    HEARTH_EVENT_PROGRESS,       /* more of the prompt was computed. result: cache_n, prompt_n (so far), prompt_ms */
    HEARTH_EVENT_TEXT,           /* a sampled token, and more text of the reply, in whole UTF-8 characters */
    HEARTH_EVENT_DONE,           /* the last event: result */
    HEARTH_EVENT_FAILED,         /* the last event: error */
    HEARTH_EVENT_PROMPT_LOGPROBS /* token and logprobs of the prompt's next token, from its second one on, before any
                                    TEXT: the first has none */
} hearth_event_type;

typedef struct hearth_event {
    hearth_event_type type;
    const char *text;      /* TEXT, PROMPT; not zero-terminated */
    size_t text_len;       /* bytes; may be 0 while a character or a stop string is still incomplete */
    int32_t token;         /* TEXT: the token sampled; -1 for text that was held back until the end. PROMPT_LOGPROBS */
    const int32_t *tokens; /* PROMPT */
    size_t n_tokens;
    const hearth_logprobs *logprobs; /* TEXT: where they were asked for; NULL with token -1. PROMPT_LOGPROBS */
    const hearth_result *result; /* all but PROMPT, PROMPT_LOGPROBS; of TEXT: the result so far; of FAILED: the stages
                                    within queue_ms alone */
    const hearth_error *error;   /* FAILED */
} hearth_event;

/* Called on a thread of the instance: must return quickly, and of this header may call only hearth_cancel().
 * Every submitted request ends with exactly one DONE or FAILED, whatever happens; after it `ud` is not used again. */
typedef void (*hearth_event_fn)(void *ud, const hearth_event *event);

typedef struct hearth_request hearth_request;

HEARTH_API hearth_params hearth_params_default(void);

/* How the index-th loaded model samples where a request says nothing; false past the last. Strings live as long as the
 * instance. */
HEARTH_API bool hearth_model_sampling(const hearth *instance, size_t index, hearth_sampling *sampling);

/* Submits a request and returns at once; its events are emitted through `on_event`. NULL where it could not be
 * submitted (unknown model, contradictory parameters): then on_event is never called. */
HEARTH_API hearth_request *hearth_submit(hearth *instance, const hearth_params *params, hearth_event_fn on_event,
                                         void *ud, hearth_error *error);

/* Cancels a request: it fails with HEARTH_CANCELLED, within one decode call if it runs. May be called at any time, also
 * after the last event, and from inside on_event. */
HEARTH_API void hearth_cancel(hearth_request *request);

/* The sampling parameters of a request with every value filled in. Valid from the STARTED event on, until the handle is
 * released. */
HEARTH_API const hearth_sampling *hearth_request_sampling(const hearth_request *request);

/* A prompt as it is computed. */
typedef struct hearth_prompt {
    const int32_t *tokens;
    size_t n_tokens;
    const char *text; /* of the tokens, special ones included; not zero-terminated, and may contain any bytes */
    size_t len;
    const size_t *ends; /* where in the text each token ends */
} hearth_prompt;

/* Valid from the STARTED event on (with only_prompt: from DONE on), until the handle is released. Empty without
 * params.keep_prompt. */
HEARTH_API hearth_prompt hearth_request_prompt(const hearth_request *request);

/* What of a chat the model does not see, one a line, as in "messages[2].content[1]"; NULL: nothing. Media that it does
 * not take, where a note replaces them, and fields of older messages whose text its chat template does not print in any
 * form; such text in the last turn or in a system message is refused. Valid from the STARTED event on (with
 * only_prompt: from DONE on), until the handle is released. */
HEARTH_API const char *hearth_request_left_out(const hearth_request *request);

/* What nothing enforces of the request's JSON schemas, one a line: keywords as docs/schemas.md names them, and parts of
 * tools' parameters that take any value, as in "find#/properties/place"; NULL: all is enforced. Valid as
 * hearth_request_left_out() is. */
HEARTH_API const char *hearth_request_unenforced(const hearth_request *request);

/* Where the prompt of a cache lookup and the most similar cached one, of the same salt and adapters, diverge. The texts
 * are those of a few tokens. */
typedef struct hearth_divergence {
    int32_t position;    /* number of leading tokens in common */
    const char *where;   /* "resident", or a tier's name; NULL: none has a token in common, and there are no texts */
    const char *limit;   /* what keeps fewer tokens from being reused: cache_min_tokens, checkpoints (the model's state
                            cannot be cut there), unfinished, or another key; NULL: nothing does */
    const char *common;  /* the last text in common */
    const char *prompt;  /* the prompt's text after the divergence; "": it ends there */
    const char *nearest; /* the other prompt's */
    int32_t message;     /* index of the chat's message at the divergence, from 0; -1: none, or it is uncertain */
    const char *role;    /* of that message; "" */
} hearth_divergence;

/* Valid from the DONE event of a lookup on, until the handle is released. */
HEARTH_API hearth_divergence hearth_request_divergence(const hearth_request *request);

/* Waits for the last event of a request; returns HEARTH_OK or the code of its failure. Not from inside on_event. */
HEARTH_API int hearth_wait(hearth_request *request, hearth_error *error);

/* Releases the handle. Does not cancel: events are emitted until the last. */
HEARTH_API void hearth_request_release(hearth_request *request);

/* ---- Presets ---- */

/* A name for a model, with a system message and sampling parameters that hold where a request says nothing else. A
 * request that names it as its model is one for that model; a chat without a system message gets the preset's. */
typedef struct hearth_preset {
    const char *name;
    const char *model;        /* the model's name */
    const char *system;       /* NULL: none */
    const char *template_;    /* a chat template in Jinja, in place of the model's; NULL: the model's */
    hearth_sampling sampling; /* its numbers and its seed count: as hearth_params_default() has them, "not given" */
    const char *const *stop;
    size_t n_stop;
    int32_t max_tokens; /* HEARTH_UNSET: not given */
} hearth_preset;

/* Adds a preset, or replaces the one of that name; requests that run keep what they began with. Everything is copied.
 * `model` may be a preset, whose values hold where this one has none. HEARTH_NOT_FOUND: there is no such model;
 * HEARTH_INVALID: a model has the name, or a value or the template is wrong; HEARTH_BUSY: there are too many. Any
 * thread. */
HEARTH_API int hearth_set_preset(hearth *instance, const hearth_preset *preset, hearth_error *error);

/* HEARTH_NOT_FOUND: there is no such preset. Any thread. */
HEARTH_API int hearth_remove_preset(hearth *instance, const char *name, hearth_error *error);

/* The preset of that name, or the i-th in the order of their names: a reference, immutable, that the caller gives back;
 * NULL: there is none. A model that was added later with its name hides it from the first. Any thread. */
HEARTH_API const hearth_preset *hearth_find_preset(const hearth *instance, const char *name);
HEARTH_API const hearth_preset *hearth_preset_at(const hearth *instance, size_t i);
HEARTH_API void hearth_release_preset(const hearth_preset *preset); /* NULL is fine */

/* ---- Adapters ---- */

typedef struct hearth_adapter {
    int32_t id;       /* its index in the configuration's models.*.lora, from 0 */
    const char *file; /* the name of its file, without the folder; lives as long as the instance */
    double scale;     /* default, for requests that name no adapters */
} hearth_adapter;

/* Fills up to `max` adapters of a model (NULL: the first); returns how many it has, or a negative code. */
HEARTH_API int32_t hearth_lora_list(const hearth *instance, const char *model, hearth_adapter *adapters, size_t max,
                                    hearth_error *error);

/* Sets the default scales, for later requests that name no adapters; adapters not named here get 0. Submitted requests
 * keep theirs. */
HEARTH_API int hearth_lora_set(hearth *instance, const char *model, const hearth_lora *lora, size_t n,
                               hearth_error *error);

/* ---- Parsing replies of chats ---- */

typedef enum hearth_delta_type {
    HEARTH_DELTA_REASONING, /* more of the reasoning: text */
    HEARTH_DELTA_CONTENT,   /* more of the content: text */
    HEARTH_DELTA_CALL,      /* a tool is called: index, id, name */
    HEARTH_DELTA_ARGUMENTS  /* more of the call's arguments, which together are one JSON text: index, text */
} hearth_delta_type;

typedef struct hearth_delta {
    hearth_delta_type type;
    const char *text; /* not zero-terminated */
    size_t len;
    size_t index;          /* of the call, from 0 */
    const char *id, *name; /* of the call */
} hearth_delta;

typedef void (*hearth_delta_fn)(void *ud, const hearth_delta *delta);

/* Parses the text of a chat's TEXT events into reasoning, content and tool calls. Used by one thread at a time, not
 * necessarily the one on which events are emitted; it may outlive the request. */
typedef struct hearth_reader hearth_reader;

/* To be called once the STARTED event was emitted, not before. NULL for completions. */
HEARTH_API hearth_reader *hearth_reader_open(hearth_request *request);
HEARTH_API void hearth_reader_close(hearth_reader *reader);

/* Parses more text and calls `each` for what it adds. A call that has begun is never withdrawn. Text that does not
 * match the model's format counts as content, so that nothing of a reply is lost. */
HEARTH_API void hearth_reader_add(hearth_reader *reader, const char *text, size_t len, hearth_delta_fn each, void *ud);

/* The reply is complete: calls `each` for text that was still undecided. */
HEARTH_API void hearth_reader_end(hearth_reader *reader, hearth_delta_fn each, void *ud);

/* Once it has ended: whether every call of the reply was closed, with arguments that are a JSON object. Where not, the
 * reply broke off within the last one, whatever the reason. */
HEARTH_API bool hearth_reader_is_whole(const hearth_reader *reader);

/* ---- Embeddings and reranking scores ---- */

/* A text, tokens that are used as they are, or both in parts: exactly one of the three. A document is a text. */
typedef struct hearth_input {
    const char *text; /* NULL: tokens or parts */
    size_t len;
    const int32_t *tokens;
    size_t n_tokens;
    const hearth_part *parts; /* with BOS and EOS around the first, if that is a text */
    size_t n_parts;
} hearth_input;

#define HEARTH_INPUTS_MAX          2048
#define HEARTH_TRUNCATE_WINDOW     (-1)
#define HEARTH_TRUNCATE_CONFIGURED (-2) /* as the model's key `truncate` says */

/* One request: inputs that become vectors; or, with a query, documents (texts) that get scores. Start from
 * hearth_embed_params_default(); hearth_embed() copies everything, unless it is lent. */
typedef struct hearth_embed_params {
    const char *model; /* name; NULL: server.default_model, else the first of the type */
    const hearth_input *inputs;
    size_t n_inputs;   /* 1 to HEARTH_INPUTS_MAX */
    const char *query; /* NULL: vectors */
    size_t query_len;
    int32_t truncate; /* inputs are truncated to so many tokens; HEARTH_TRUNCATE_WINDOW: to the model's window; 0:
                         longer ones are refused; HEARTH_TRUNCATE_CONFIGURED is the default */
    int32_t
        max_document_tokens; /* each document alone is first truncated to so many tokens, at its end; 0: it is not */
    bool truncate_left;      /* inputs lose their beginning; documents always lose their end */
    int32_t dimensions;      /* only the first so many numbers of each vector, for models trained for it; 0: all */
    int32_t norm;    /* p-norm that vectors are normalised to: 2 (default): length 1; 0: the largest absolute value
                        becomes 32760; -1: not normalised. Without pooling they never are */
    bool raw_scores; /* logits as the head gives them; else scores from 0 to 1 */
    bool lent;       /* inputs and query are not copied: they must not change until on_end is called */
} hearth_embed_params;

/* The result of one input. */
typedef struct hearth_vector {
    const float *v;    /* n_vectors x width numbers; of a document: its score */
    int32_t width;     /* numbers of a vector; 1 for scores */
    int32_t n_vectors; /* 1; with pooling `none` one per token */
    int32_t n_tokens;  /* of the input as it was computed */
} hearth_vector;

typedef struct hearth_embedded {
    const char *model; /* name of the model that computed them */
    const hearth_vector *inputs;
    size_t n_inputs;
    int64_t n_tokens; /* of all inputs */
} hearth_embedded;

/* Called exactly once for each request, on a thread that computes for the same model: it may take the time to serialise
 * the numbers, no more. One of the two is NULL: `result` lives until the handle is released, `error` until the call
 * returns. */
typedef void (*hearth_embedded_fn)(void *ud, const hearth_embedded *result, const hearth_error *error);

typedef struct hearth_embedding hearth_embedding;

HEARTH_API hearth_embed_params hearth_embed_params_default(void);

/* Submits a request and returns at once. NULL where it could not be submitted: then `on_end` is never called. A request
 * fails as a whole, and no other with it. */
HEARTH_API hearth_embedding *hearth_embed(hearth *instance, const hearth_embed_params *params,
                                          hearth_embedded_fn on_end, void *ud, hearth_error *error);

/* Cancels the request: it fails with HEARTH_CANCELLED, unless it has ended before. */
HEARTH_API void hearth_embedding_cancel(hearth_embedding *embedding);

/* Tokens that were computed for the request so far, also where it fails. */
HEARTH_API int64_t hearth_embedding_tokens(const hearth_embedding *embedding);

/* Releases the handle and the result. Does not cancel. */
HEARTH_API void hearth_embedding_release(hearth_embedding *embedding);

/* ---- Slots ---- */

typedef enum hearth_slot_state {
    HEARTH_SLOT_IDLE,
    HEARTH_SLOT_PENDING, /* its request waits for cells that another slot computes, or for an eviction */
    HEARTH_SLOT_PREFILL, /* also while rows are fetched from the store */
    HEARTH_SLOT_GENERATE
} hearth_slot_state;

HEARTH_API const char *hearth_slot_state_name(hearth_slot_state state); /* "idle", …; static */

typedef struct hearth_slot {
    int32_t id;
    int32_t seq_id;    /* the llama.cpp sequence of its running or last request; -1: none, or it was evicted */
    const char *model; /* name */
    hearth_slot_state state;
    char request_id[64]; /* empty when idle */
    int32_t cached_messages;
    int32_t cached_tokens;     /* tokens in its cells */
    int32_t n_past;            /* tokens of the running request that are in its cells */
    int32_t n_prompt;          /* tokens of the running request's prompt */
    int32_t n_predicted;       /* tokens that it has generated */
    int32_t n_remaining;       /* tokens that it may still generate; -1: idle */
    char hash[17];             /* short hash of the cached tokens; empty when there are none */
    int64_t last_used;         /* unix time, milliseconds; 0: never */
    double cost_ms, return_ms; /* as in hearth_resident, of an idle slot's last conversation */
    bool drafts;               /* calls may compute several tokens of a reply (models.*.draft) */
} hearth_slot;

/* Fills up to `max` slots over all models; returns how many there are. */
HEARTH_API size_t hearth_slots(const hearth *instance, hearth_slot *slots, size_t max);

/* ---- What is resident: conversations and other prompts in the KV cells ---- */

typedef enum hearth_resident_state {
    HEARTH_RESIDENT_RUNNING,   /* a slot computes on it */
    HEARTH_RESIDENT_IDLE,      /* kept for a request that may come */
    HEARTH_RESIDENT_SUSPENDED, /* of a preempted request, which resumes on it */
    HEARTH_RESIDENT_LEAVING    /* it is evicted once it is stored */
} hearth_resident_state;

HEARTH_API const char *hearth_resident_state_name(hearth_resident_state state); /* "running", …; static */

typedef struct hearth_resident {
    int32_t seq_id, slot_id; /* the llama.cpp sequence; the slot that computes on it, -1: none */
    const char *model;       /* name */
    hearth_resident_state state;
    bool kept;          /* by order: HEARTH_ORDER_KEEP */
    int32_t tokens;     /* in its cells */
    int32_t own_tokens; /* of them, those that count for it: what several share counts for the one that runs, else for
                           the one that was used last */
    int32_t shared_tokens; /* leading ones that another one's cells are, too */
    int32_t branch_of; /* seq_id of the one before it in the list that it shares most of them with; -1: none. So all of
                          a model's are a tree */
    int32_t branch_at; /* and how many these are */
    int32_t messages;
    int32_t media, media_tokens; /* images and sounds, or parts of them, in its cells, and how many tokens these have */
    double cost_ms;    /* by how much its cells have slowed down others since it was used last, as estimated */
    double return_ms;  /* what bringing it back from the store would take; 0: not asked yet, or it is not stored */
    char hash[17];     /* short hash of the tokens; empty while it is running */
    int64_t last_used; /* unix time, milliseconds; 0: it is running */
} hearth_resident;

/* Fills up to `max` entries over all models; returns how many there are. */
HEARTH_API size_t hearth_residents(const hearth *instance, hearth_resident *residents, size_t max);

/* What a chat model has done since the instance was opened, and what waits for it. */
typedef struct hearth_activity {
    const char *model;        /* name */
    int64_t waiting;          /* requests that wait for the model to be loaded, for admission or for a slot */
    int64_t prompt_tokens;    /* prompt tokens that were computed */
    int64_t cached_tokens;    /* prompt tokens that did not have to be */
    int64_t generated_tokens; /* tokens of replies */
} hearth_activity;

/* Fills up to `max` entries, one for each chat model, loaded or not; returns how many there are. Any thread. */
HEARTH_API size_t hearth_activities(const hearth *instance, hearth_activity *activities, size_t max);

/* What is to become of a resident conversation, in place of what its price says. An order ends with the cells: what
 * comes back from the store is not kept. */
typedef enum hearth_order {
    HEARTH_ORDER_KEEP, /* it is evicted last, where nothing else makes room, and does not leave for its cost; its next
                          turns are kept, too */
    HEARTH_ORDER_RELEASE, /* by its price, like others */
    HEARTH_ORDER_EVICT    /* it leaves the cells as soon as it is stored, or at once where nothing is stored of it */
} hearth_order;

typedef struct hearth_resident_order {
    const char *model; /* name; borrowed for the call */
    int32_t seq_id;    /* as hearth_residents() said, like the hash */
    const char *hash;  /* borrowed for the call */
    hearth_order order;
} hearth_resident_order;

/* How an order ended: `error` is NULL, or says why nothing was done: HEARTH_NOT_FOUND (`param` "hash") where the
 * sequence does not hold that conversation any more, HEARTH_BUSY where a request uses it, HEARTH_UNAVAILABLE where it
 * is to leave and cannot be stored. Valid during the call. Called on a thread of the library, which it must not hold
 * up. */
typedef void (*hearth_ordered_fn)(void *ud, const hearth_error *error);

/* Gives an order, and returns at once; `on_end` is called once, before or after that. HEARTH_NOT_FOUND (`param`
 * "model"): there is no such model, or it is not loaded; HEARTH_UNAVAILABLE: it is being loaded. Then `on_end` is not
 * called. Any thread. */
HEARTH_API int hearth_order_resident(hearth *instance, const hearth_resident_order *order, hearth_ordered_fn on_end,
                                     void *ud, hearth_error *error);

/* ---- The KV store: slabs that outlive cells, instances and crashes ---- */

typedef struct hearth_tier {
    const char *name;
    bool on;
    uint64_t entries, bytes, quota_bytes, evictions;
    char trouble[160]; /* why it is off, or the last failure; "": none */
} hearth_tier;

typedef struct hearth_cache {
    hearth_tier tiers[HEARTH_TIERS];
    /* Requests that reused stored cells: the whole prompt, what their parent_key names, or the longest prefix; and
     * misses, of which nothing was stored or resident. Requests that reused resident cells alone are in none of them.
     */
    int64_t hits_exact, hits_resume, hits_longest_prefix, misses;
    int64_t saves_cold, saves_continued, saves_finish, saves_evict, saves_shutdown;
    int64_t saves_dropped, duplicate_dropped, corrupt_files, longest_prefix_probes;
    int64_t pack_ns, load_ns; /* nanoseconds of the store's threads: packing states into slabs; reading and checking */
    int64_t written_bytes, read_bytes;
    int64_t backlog_bytes; /* of saves in progress */
    /* Of a tier on a server: how often it was asked for all blocks of a prompt, and did not answer; bytes that it was
     * given, and saves of which it did not get all blocks. */
    int64_t probes, probes_failed, uploaded_bytes, uploads_dropped;
} hearth_cache;

HEARTH_API void hearth_cache_status(const hearth *instance, hearth_cache *out);

/* A model in memory whose states are neither stored nor looked up, since the store cannot tell what they were computed
 * from. */
typedef struct hearth_unstored {
    const char *model; /* name; valid as long as the instance */
    char reason[200];
} hearth_unstored;

/* Fills up to `max` entries; returns how many there are. */
HEARTH_API size_t hearth_unstored_models(const hearth *instance, hearth_unstored *out, size_t max);

/* A stored conversation, or a branch of one: a list of tokens in a tier that no other goes on from. Of its text nothing
 * is told: the store knows neither whose it is nor under which cache_salt. */
typedef struct hearth_stored {
    const char *tier;   /* name; static */
    char key[65];       /* of its last slab, 64 digits: its name in the tier */
    char model[128];    /* name; "": of none that was loaded here, or with adapters */
    int32_t tokens;     /* that are stored */
    int32_t own_tokens; /* the last of them, in slabs that no other conversation has */
    uint64_t own_bytes; /* of those slabs: what HEARTH_STORED_DROP frees */
    int32_t resident;   /* leading tokens that an idle conversation has in the KV cells, too; 0: none has */
    bool kept;          /* by order: HEARTH_STORED_KEEP */
    int64_t last_used;  /* unix time, milliseconds */
    int64_t used;       /* orders uses, newest last: for hearth_stored_list() */
} hearth_stored;

/* Fills up to `max` conversations of all tiers, newest first; returns how many. `after`: only those behind the one with
 * its tier, key and `used`, as this function filled them; NULL: from the newest on. `total` (may be NULL): how many
 * there are in all. It looks through what is indexed, some ten milliseconds for 100,000 slabs, and waits for no disk.
 */
HEARTH_API size_t hearth_stored_list(const hearth *instance, const hearth_stored *after, hearth_stored *list,
                                     size_t max, size_t *total);

typedef enum hearth_stored_act {
    HEARTH_STORED_KEEP,    /* it is not evicted from its tier, nor what goes on from it, until it is released or the
                              instance closed. At most a quarter of a tier can be kept */
    HEARTH_STORED_RELEASE, /* it may be evicted, like others */
    HEARTH_STORED_DROP     /* its slabs are removed, but for those that another conversation has, too. What of it is in
                              KV cells stays there, and is stored again when it leaves them */
} hearth_stored_act;

typedef struct hearth_stored_order {
    const char *tier, *key; /* as hearth_stored_list() said; borrowed for the call */
    hearth_stored_act act;
} hearth_stored_order;

/* Gives an order, and returns at once; `on_end` is called once, before or after that. Its error is NULL, or says why
 * nothing was done: HEARTH_NOT_FOUND (`param` "key") where the tier has no conversation that ends there, HEARTH_BUSY
 * where a request is reading it or too much would be kept, HEARTH_UNAVAILABLE where the tier is out of service.
 * HEARTH_INVALID: there is no such tier, or the key is none; then `on_end` is not called. Any thread. */
HEARTH_API int hearth_order_stored(hearth *instance, const hearth_stored_order *order, hearth_ordered_fn on_end,
                                   void *ud, hearth_error *error);
/* ---- Cache events ----
 * What the store can give back, in blocks of tokens, for programs that send requests to the instance whose cache has
 * their prefix: docs/fleet.md. A block is named by a number that depends on its tokens, on all before them, and on the
 * model, its adapters and the salt; the same on every machine. Of a model whose state cannot be cut a block is stored
 * once a state behind it is. */

#define HEARTH_BLOCK 16 /* tokens */

typedef enum hearth_block_event_type {
    HEARTH_BLOCKS_STORED,
    HEARTH_BLOCKS_REMOVED,
    HEARTH_BLOCKS_CLEARED /* none of the model is known to be stored: those that are, follow */
} hearth_block_event_type;

/* Valid until the next call. */
typedef struct hearth_block_event {
    hearth_block_event_type type;
    const char *model;      /* its name in the configuration */
    const char *medium;     /* CPU | DISK | REMOTE: where they are stored */
    const uint64_t *blocks; /* not 0, and parents before their children; STORED: each is the parent of the next one */
    size_t n_blocks;
    /* STORED: */
    uint64_t parent;       /* of the first block; 0: it has none */
    const int32_t *tokens; /* n_blocks x HEARTH_BLOCK */
    const char *adapters;  /* those that the request named, "name" or "name:0.5+name"; NULL: the model's own */
    const char *salt;      /* NULL: none */
} hearth_block_event;

/* Follows the store, from all that is there now: one follower at a time, begun before hearth_load(). `changed` is
 * called on any thread once there is an event after hearth_next_block_event() has returned false: it must not wait, nor
 * call hearth. HEARTH_UNAVAILABLE: nothing is stored, since no tier is on or no model caches. */
HEARTH_API int hearth_follow_blocks(hearth *instance, void (*changed)(void *ud), void *ud, hearth_error *error);

/* The next event; false: there is none now. One thread at a time. However slow it is, nothing is lost and nobody waits
 * for it. */
HEARTH_API bool hearth_next_block_event(hearth *instance, hearth_block_event *event);

/* The follower has forgotten everything: what is stored comes again, CLEARED first. Same thread. */
HEARTH_API void hearth_resend_blocks(hearth *instance);

/* From then on `changed` is not called. Same thread, or after it has ended; hearth_close() does it as well. */
HEARTH_API void hearth_unfollow_blocks(hearth *instance);

/* A stored entry (slab) of the tiers ram_file and disk, as its file describes it. Strings are valid during the call. */
typedef struct hearth_kv_entry {
    const char *tier, *key, *parent;     /* keys as 64 digits; parent "": it begins at 0 */
    const char *kind;                    /* rows | state */
    const char *reason;                  /* cold | continued | evict | shutdown | finish */
    const char *model, *quant, *context; /* fingerprint of the model and of the context (64 digits), type of weights */
    const char *model_name;              /* its name on the server that stored it first; "": not recorded */
    int32_t start, end;                  /* it holds the tokens [start, end) of a prefix of `end` tokens */
    uint64_t bytes;
    uint32_t hits;
    int64_t created_ms, used_ms; /* since 1970 */
    const char *damage;          /* hearth_kv_verify(): the fault found; NULL: none */
} hearth_kv_entry;

typedef void (*hearth_kv_fn)(void *ud, const hearth_kv_entry *entry);

/* Calls `each` for every stored entry, least recently used first. Needs no instance, and does not disturb one that
 * runs.
 */
HEARTH_API int hearth_kv_list(const hearth_config *config, hearth_kv_fn each, void *ud, hearth_error *error);

/* Reads every file whole and checks it: lengths, checksums, key and parents. */
HEARTH_API int hearth_kv_verify(const hearth_config *config, hearth_kv_fn each, void *ud, hearth_error *error);

/* Everything about one entry, its tokens and regions included, as text. The caller frees it. */
HEARTH_API char *hearth_kv_show(const hearth_config *config, const char *key, hearth_error *error);

/* hearth_kv_gc() removes half-written, quarantined and damaged files, entries whose parents are gone, and the least
 * recently used beyond the quotas; it reads every file. hearth_kv_clear() removes everything. HEARTH_UNAVAILABLE where
 * an instance is using the folder. */
typedef struct hearth_kv_removed {
    uint64_t files, bytes;
    uint64_t kept; /* by hearth_kv_gc(): entries that hearth_kv_verify() names but that may be whole: they could not be
                      read now, or their parent could not, or is of a newer version */
} hearth_kv_removed;

HEARTH_API int hearth_kv_gc(const hearth_config *config, hearth_kv_removed *removed, hearth_error *error);
HEARTH_API int hearth_kv_clear(const hearth_config *config, hearth_kv_removed *removed, hearth_error *error);

/* Counters and histograms in Prometheus' text format. The caller frees it. */
HEARTH_API char *hearth_metrics(const hearth *instance);

/* hearth's version and llama.cpp's, e.g. "0.1.0"; and the CPU's features, e.g. "AVX2 AVX512". */
HEARTH_API const char *hearth_version(void);
HEARTH_API const char *hearth_llama_version(void);
HEARTH_API const char *hearth_cpu_features(void);

/* In a portable build, a line for each of llama.cpp's backends that lies beside its library: its name, and that it was
 * loaded or why not; else "". */
HEARTH_API const char *hearth_backends(void);

/* Opens the log: level is error | warn | info | debug, format is text | json; path NULL: stderr. A thread of its own
 * writes the lines, so that no caller waits for a slow stderr or disk: lines are dropped instead, and counted. At its
 * end the process waits up to a second for it. May be called again, with another path. llama.cpp's messages are among
 * the lines; what a library writes to stderr by itself is not, since stderr is the program's. */
HEARTH_API int hearth_log_open(const char *path, const char *level, const char *format, hearth_error *error);

/* Has the log's thread open the same path again, for log rotation; a failure is logged. Never waits. */
HEARTH_API void hearth_log_reopen(void);

#ifdef __cplusplus
}
#endif
#endif
