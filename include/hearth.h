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
 *     hearth_wait(request, &error); // on_event is called meanwhile, from another thread
 *     hearth_request_release(request);
 *     hearth_close(instance);
 *
 * examples/ has this as a whole program, and others.
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
    HEARTH_NO_MEMORY = -8,   /* memory for weights or cells, or a thread, cannot be had */
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

/* Loads every model of the configuration, one after the other, on the calling thread; blocks until all are ready. Of
 * those with load: demand only the file's description is read. Call it once. Models loaded before a failure stay
 * usable. */
HEARTH_API int hearth_load(hearth *instance, hearth_progress progress, void *ud, hearth_error *error);

/* Stops admitting: later submissions and requests still waiting fail with HEARTH_UNAVAILABLE at once; those that
 * run may finish within `timeout_ms`, then they are cancelled. Returns when all have ended. */
HEARTH_API void hearth_drain(hearth *instance, int64_t timeout_ms);

/* Drains with no patience if need be, then frees everything. Every request must have been released. NULL is fine. */
HEARTH_API void hearth_close(hearth *instance);

/* ---- Models ---- */

/* What a model is for is its type: chat models write text, chats and completions alike; embedding models turn inputs
 * into vectors; rerank models judge documents by a query. A request to a model of another type is
 * HEARTH_UNSUPPORTED; one that names no model goes to the first of its type.
 *
 * How a model keeps its state decides how its cache can be cut. The names are dense, moe, hybrid, recurrent. */
typedef struct hearth_model_info {
    const char *name;         /* the name in the configuration */
    const char *path;         /* the weights file */
    const char *architecture; /* e.g. "qwen3" */
    const char *type;         /* chat | embedding | rerank */
    const char *kind;         /* dense | moe | hybrid | recurrent */
    const char *pooling; /* how an input's vectors become one: none | mean | cls | last | rank; "" of a chat model */
    const char *description;   /* llama.cpp's one-line description, with the weight type */
    uint64_t size_bytes;       /* size of the weights */
    uint64_t n_params;         /* number of weights */
    int32_t n_vocab;           /* tokens in the vocabulary */
    int32_t n_embd;            /* width of the model */
    int32_t n_embd_out;        /* width of the vectors that it gives */
    int32_t n_layer;           /* number of layers */
    int32_t n_swa;             /* size of the sliding attention window; 0: none */
    int32_t n_ctx_train;       /* tokens the model was trained for */
    int32_t context_window;    /* tokens that a slot, or one input of an embedding or rerank model, can have here */
    int32_t n_slots;           /* requests computed at once; contexts of an embedding or rerank model */
    bool has_chat_template;    /* of its own; false: chats are written in ChatML, which it may not know */
    const char *chat_template; /* the text that is used; "" of models that do not chat */
    const char *chat_template_caps;  /* what llama.cpp finds that it can, as a JSON object of true and false */
    const char *bos_text, *eos_text; /* the tokens that begin and end a text; "": none */
    const char *weights_type;        /* llama.cpp's name of the type of most weights: "Q8_0" */
    int32_t vocab_type;              /* llama.cpp's number of it */
    int64_t created;                 /* unix time of loading; before the first, of its file having been looked at */
    const char *state;               /* loaded | loading | unloading | unloaded | failed: its last load did */
} hearth_model_info;

/* Describes the index-th model that hearth_load() has come to, in memory or not; false past the last. The strings live
 * as long as the instance. */
HEARTH_API bool hearth_model(const hearth *instance, size_t index, hearth_model_info *info);

/* The index of the model that a request with this name (NULL: none) goes to, which may be an alias, have a tag, or with
 * server.any_model_name stand for the one chat model; or a negative code. */
HEARTH_API int32_t hearth_find_model(const hearth *instance, const char *name, hearth_error *error);

/* Models come and go: one that is not in memory is loaded when a request asks for it, and the request waits, no longer
 * than its model's admission_timeout. With idle_unload, and where server.memory_budget_mb is short, models leave that
 * no request has. What is resident is stored before; a request always keeps its model, until its handle is released. */

/* Asks for a model to be loaded and returns at once. HEARTH_INVALID: it is loaded. */
HEARTH_API int hearth_load_model(hearth *instance, const char *model, hearth_error *error);

/* Asks for a model to leave memory and returns at once; a later request loads it anew. HEARTH_BUSY while it has
 * requests or is being loaded, HEARTH_INVALID where it is not loaded. */
HEARTH_API int hearth_unload_model(hearth *instance, const char *model, hearth_error *error);

/* Waits while the model is on its way in or out. Returns why its last load failed, or HEARTH_OK. */
HEARTH_API int hearth_await_model(hearth *instance, const char *model, hearth_error *error);

/* Turns text into tokens. `*tokens` is the caller's, to be freed with free(). Returns the count or a negative code:
 * HEARTH_UNAVAILABLE where the model is not in memory; it is then being loaded.
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

/* Tokens of a prompt that is told: see hearth_params.only_prompt. */
#define HEARTH_PROMPT_TOLD (1 << 18)

/* "Not given": the configuration's value holds. Of numbers with a fraction NAN says the same. */
#define HEARTH_UNSET INT32_MIN

/* How tokens are picked. What is not given comes from the configuration, then from the model's file, then from
 * hearth's defaults: docs/sampling.md has the order of the samplers and every default. */
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
    bool ignore_eos; /* go on past end-of-generation tokens */
} hearth_sampling;

/* An adapter: its place in the configuration's models.*.lora, from 0. */
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
    HEARTH_CONTINUE_AUTO,     /* a last message of the assistant's is gone on with */
    HEARTH_CONTINUE_NEVER,    /* it is a turn that is over */
    HEARTH_CONTINUE_CONTENT,  /* what goes on is its content */
    HEARTH_CONTINUE_REASONING /* what goes on is its reasoning */
} hearth_continue;

/* A piece of a prompt: text, or one token. */
typedef struct hearth_part {
    const char *text; /* NULL: the token */
    size_t len;
    int32_t token;
} hearth_part;

/* A text beside the one to be filled in, of another file of the editor's. */
typedef struct hearth_snippet {
    const char *name, *text;
} hearth_snippet;

/* What the parameters of requests point at, where they share it: the choices of one answer need not copy a large prompt
 * each. It stays as it is until `release(ud)` is called: once, on any thread, when the caller and every request that
 * was submitted with it have let go. It must return quickly. */
typedef struct hearth_shared hearth_shared;
HEARTH_API hearth_shared *hearth_shared_new(void (*release)(void *ud), void *ud);
HEARTH_API void hearth_shared_unref(hearth_shared *shared); /* by the caller, when all requests are submitted */

/* One request: one prompt, one reply. The prompt is exactly one of messages_json, text, tokens, parts. Start
 * from hearth_params_default(), where nothing is given; hearth_submit() copies everything, unless it is shared. */
typedef struct hearth_params {
    hearth_shared *shared; /* owns what the rest points at, but for model and request_id; NULL: it is copied */

    const char *model;      /* name; NULL: the first of the configuration */
    const char *request_id; /* for logs and /slots; NULL: one is made */

    const char *messages_json;        /* chat: JSON array of messages in OpenAI's form */
    const char *template_kwargs_json; /* chat: JSON object handed to the template; NULL: none */
    const char *tools_json;           /* chat: JSON array of tools in OpenAI's form; NULL: none */
    hearth_tool_choice tool_choice;
    const char *allowed_tools_json; /* chat: only these are called, though the prompt shows all tools, so that it keeps
                                       its prefix: JSON array of names; NULL: any */
    int parallel_tool_calls;        /* chat: several calls in one reply: 1 yes, 0 no, -1: where the template can */
    hearth_continue continue_final;
    bool no_generation_prompt; /* chat: the prompt does not end with the words that make the assistant speak */
    bool reasoning_in_text;    /* chat: reasoning is left in the content, as the model writes it */
    int32_t thinking_tokens;   /* chat: reasoning is ended after so many; -1: no limit */
    const char *thinking_end;  /* chat: what is said then, before the end of the reasoning; NULL: nothing */

    const char *text; /* completion: text, tokenised with begin marker */
    size_t text_len;
    bool without_bos_eos; /* the text is tokenised without begin and end markers */
    bool plain;           /* special tokens that the text spells stay text */
    const char *suffix;   /* completion: what comes after the reply; for models with fill-in-the-middle tokens; NULL */
    size_t suffix_len;
    const char *typed; /* with a suffix: goes on from the prompt, and is never cut; NULL: nothing */
    size_t typed_len;
    const hearth_snippet *snippets; /* with a suffix: what else the editor has open */
    size_t n_snippets;
    const int32_t *tokens; /* completion: tokens, taken as they are */
    size_t n_tokens;
    const hearth_part *parts; /* completion: text and tokens, the begin marker before them if the first is text */
    size_t n_parts;

    const char *grammar;     /* the reply must match: GBNF with a rule "root"; NULL: none */
    const char *json_schema; /* the reply must match: a JSON schema; NULL: none */

    int32_t max_tokens;      /* tokens to generate; HEARTH_UNSET: up to the end of the context window */
    int64_t max_ms;          /* the reply ends after so many milliseconds of generation, at the next line; 0: never */
    const char *const *stop; /* the reply ends before any of these strings */
    size_t n_stop;
    bool patient; /* waits for a place as long as it takes, not admission_timeout: further choices of one request */
    bool cache_prompt;      /* default true; false: nothing is reused, nothing is kept */
    const char *cache_salt; /* prompts with different salts never share anything; NULL or "": the common one */
    const char *parent_key; /* 64 hexadecimal digits: what is stored of the turn that this one continues. A hint: it is
                               waited for while it is still being written. NULL: none */
    bool only_lookup;       /* compute nothing: result->lookup tells how much of the prompt is there */
    bool only_prompt; /* compute nothing: a PROMPT event tells the prompt, of up to HEARTH_PROMPT_TOLD tokens. It takes
                         no place, and may exceed the context window */
    bool keep_prompt; /* hearth_request_prompt() tells the prompt */
    const hearth_lora *lora; /* adapters; those of the model that are not named have scale 0. NULL: as configured */
    size_t n_lora;

    hearth_sampling sampling;
    int32_t top_logprobs; /* TEXT events tell the chosen token's logprob and those of so many likeliest; -1: neither */
    bool post_sampling_probs; /* those after the samplers, in place of the model's own */
    bool progress;            /* PROGRESS events while the prompt is computed */
} hearth_params;

typedef enum hearth_finish {
    HEARTH_FINISH_STOP = 0,  /* an end-of-generation token or a stop string */
    HEARTH_FINISH_LENGTH = 1 /* max_tokens or the end of the context window */
} hearth_finish;

#define HEARTH_TIERS 3 /* of the store */

/* The name of a tier, as the configuration has it; NULL: there are not so many. Static. */
HEARTH_API const char *hearth_tier_name(size_t i);

/* How many leading tokens of a prompt need not be computed, by the place where they are. */
typedef struct hearth_cache_lookup {
    int32_t prompt;              /* tokens of the prompt */
    int32_t resident;            /* in cells, or in memory beside them */
    int32_t tiers[HEARTH_TIERS]; /* in the tiers of the store, hearth_tier_name() */
    int32_t reusable;            /* of all these, what is worth it and can be gone on from: the rest is computed */
    char key[65];                /* of the longest entry that the store found; "" */
} hearth_cache_lookup;

typedef struct hearth_result {
    hearth_finish finish;
    const char *stop_string;    /* the stop string that ended it, or NULL */
    int32_t slot;               /* the slot that computed it */
    int32_t n_prompt;           /* tokens of the prompt: in the end cache_n + prompt_n */
    int32_t cache_n;            /* prompt tokens that were not computed */
    int32_t prompt_n;           /* prompt tokens that were */
    int32_t too_short_n;        /* of these, tokens that were there, but fewer than cache_min_tokens */
    int32_t predicted_n;        /* tokens generated, the end-of-generation token included */
    double queue_ms;            /* from submission to a slot */
    double restore_ms;          /* fetching cached state */
    double prompt_ms;           /* from the slot to the first token */
    double predicted_ms;        /* from the first token to the last */
    hearth_cache_lookup lookup; /* DONE of a lookup */
} hearth_result;

/* How likely a token was, as the natural logarithm: 0 is certain, -INFINITY is never. */
typedef struct hearth_logprob {
    int32_t token;
    double log;
    const char *bytes; /* of the token; may be part of a character, and hold zero bytes */
    size_t n_bytes;
} hearth_logprob;

typedef struct hearth_logprobs {
    hearth_logprob chosen;
    const hearth_logprob *top; /* the likeliest first */
    size_t n_top;
} hearth_logprobs;

typedef enum hearth_event_type {
    HEARTH_EVENT_STARTED,  /* a slot took the request: from here on failures are rare. result: cache_n, prompt_n */
    HEARTH_EVENT_PROMPT,   /* of a request for nothing else: text and tokens of the prompt */
    HEARTH_EVENT_PROGRESS, /* more of the prompt is there. result: cache_n, prompt_n (computed so far), prompt_ms */
    HEARTH_EVENT_TEXT,     /* a token, and more of the reply: text, whole UTF-8 characters only */
    HEARTH_EVENT_DONE,     /* the end: result. Nothing follows */
    HEARTH_EVENT_FAILED    /* the end: error. Nothing follows */
} hearth_event_type;

typedef struct hearth_event {
    hearth_event_type type;
    const char *text;      /* TEXT, PROMPT; not zero-terminated */
    size_t text_len;       /* bytes; may be 0 while a character or a stop string is still incomplete */
    int32_t token;         /* TEXT: the token sampled; -1 for held-back text set free at the end */
    const int32_t *tokens; /* PROMPT */
    size_t n_tokens;
    const hearth_logprobs *logprobs; /* TEXT: where they were asked for; NULL with token -1 */
    const hearth_result *result;     /* all but FAILED and PROMPT; of TEXT: how it stands */
    const hearth_error *error;       /* FAILED */
} hearth_event;

/* Called on a thread of hearth's: it must return quickly and must not call back into hearth but for hearth_cancel().
 * Every submitted request ends with exactly one DONE or FAILED, whatever happens; after it `ud` is not used again. */
typedef void (*hearth_event_fn)(void *ud, const hearth_event *event);

typedef struct hearth_request hearth_request;

HEARTH_API hearth_params hearth_params_default(void);

/* How the index-th loaded model samples where a request says nothing; false past the last. Strings live as long as the
 * instance. */
HEARTH_API bool hearth_model_sampling(const hearth *instance, size_t index, hearth_sampling *sampling);

/* Hands a request in and returns at once; what comes of it is told through `on_event`. NULL where the request could
 * not even be handed in (unknown model, contradictory parameters): then on_event is never called. */
HEARTH_API hearth_request *hearth_submit(hearth *instance, const hearth_params *params, hearth_event_fn on_event,
                                         void *ud, hearth_error *error);

/* Asks for the end of a request: it fails with HEARTH_CANCELLED, within a tick if it runs. May come at any time,
 * also after the end, and from inside on_event. */
HEARTH_API void hearth_cancel(hearth_request *request);

/* What a request was completed to: everything is given. From the STARTED event on, until the handle is given back. */
HEARTH_API const hearth_sampling *hearth_request_sampling(const hearth_request *request);

/* A prompt as it is computed. */
typedef struct hearth_prompt {
    const int32_t *tokens;
    size_t n_tokens;
    const char *text; /* of the tokens, markers included; not zero-terminated, and may hold any bytes */
    size_t len;
    const size_t *ends; /* where in the text each token ends */
} hearth_prompt;

/* From the STARTED event on (of a request for the prompt alone: from the DONE), until the handle is given back. Empty
 * without params.keep_prompt. */
HEARTH_API hearth_prompt hearth_request_prompt(const hearth_request *request);

/* Where the prompt of a lookup and the one most like it diverge, of all under its salt and adapters. The texts are the
 * words of a few tokens. */
typedef struct hearth_divergence {
    int32_t position;    /* leading tokens that both have */
    const char *where;   /* "resident", or a tier's name; NULL: none has a token in common, and there are no texts */
    const char *limit;   /* what keeps fewer tokens from being reused: cache_min_tokens, checkpoints (the model's state
                            cannot be cut there), unfinished, or another key; NULL: nothing does */
    const char *common;  /* what both say last */
    const char *prompt;  /* what the prompt says next; "": it ends there */
    const char *nearest; /* what the other one does */
    int32_t message;  /* the message of the chat that the place is in, from 0; -1: in none, or not known for certain */
    const char *role; /* of that message; "" */
} hearth_divergence;

/* From the DONE event of a lookup on, until the handle is given back. */
HEARTH_API hearth_divergence hearth_request_divergence(const hearth_request *request);

/* Waits for the last event of a request, and returns what it came to: HEARTH_OK, or the code of what failed. Not from
 * inside on_event. */
HEARTH_API int hearth_wait(hearth_request *request, hearth_error *error);

/* Gives the handle back. Does not cancel: events go on until the last. */
HEARTH_API void hearth_request_release(hearth_request *request);

/* ---- Adapters ---- */

typedef struct hearth_adapter {
    int32_t id;       /* its place in the configuration's models.*.lora, from 0 */
    const char *file; /* the name of its file, without the folder; lives as long as the instance */
    double scale;     /* for requests that name no adapters */
} hearth_adapter;

/* Fills up to `max` adapters of a model (NULL: the first); returns how many it has, or a negative code. */
HEARTH_API int32_t hearth_lora_list(const hearth *instance, const char *model, hearth_adapter *adapters, size_t max,
                                    hearth_error *error);

/* Sets the scales of requests to come that name no adapters; those not named here get 0. What has been submitted keeps
 * its own. */
HEARTH_API int hearth_lora_set(hearth *instance, const char *model, const hearth_lora *lora, size_t n,
                               hearth_error *error);

/* ---- Replies of chats, taken apart ---- */

typedef enum hearth_delta_type {
    HEARTH_DELTA_REASONING, /* more of the reasoning: text */
    HEARTH_DELTA_CONTENT,   /* more of the content: text */
    HEARTH_DELTA_CALL,      /* a tool is called: index, id, name */
    HEARTH_DELTA_ARGUMENTS  /* more of the call's arguments, which together are a JSON text: index, text */
} hearth_delta_type;

typedef struct hearth_delta {
    hearth_delta_type type;
    const char *text; /* not zero-terminated */
    size_t len;
    size_t index;          /* of the call, from 0 */
    const char *id, *name; /* of the call */
} hearth_delta;

typedef void (*hearth_delta_fn)(void *ud, const hearth_delta *delta);

/* Finds reasoning, content and tool calls in the text of a chat's TEXT events. Belongs to one thread at a time, which
 * need not be the one that the events come on; it may outlive the request. */
typedef struct hearth_reader hearth_reader;

/* From the STARTED event on. NULL before it, and for completions. */
HEARTH_API hearth_reader *hearth_reader_open(hearth_request *request);
HEARTH_API void hearth_reader_close(hearth_reader *reader);

/* Takes more text in, and tells what it adds. A call that has begun is never taken back. Text that does not fit the
 * model's format counts as content, so that nothing of a reply is lost. */
HEARTH_API void hearth_reader_add(hearth_reader *reader, const char *text, size_t len, hearth_delta_fn each, void *ud);

/* The reply is complete: tells what was still undecided. */
HEARTH_API void hearth_reader_end(hearth_reader *reader, hearth_delta_fn each, void *ud);

/* ---- Embeddings and ranks ---- */

/* A text, or tokens that are taken as they are: exactly one of the two. */
typedef struct hearth_input {
    const char *text; /* NULL: tokens */
    size_t len;
    const int32_t *tokens;
    size_t n_tokens;
} hearth_input;

#define HEARTH_INPUTS_MAX      2048
#define HEARTH_TRUNCATE_WINDOW (-1)

/* One request: inputs that become vectors, or with a query, documents (as texts) that get scores. Start from
 * hearth_embed_params_default(); hearth_embed() copies everything, unless it is lent. */
typedef struct hearth_embed_params {
    const char *model; /* name; NULL: the first of the type that it takes */
    const hearth_input *inputs;
    size_t n_inputs;   /* 1 to HEARTH_INPUTS_MAX */
    const char *query; /* NULL: vectors */
    size_t query_len;
    int32_t truncate; /* inputs with more tokens are shortened to so many, HEARTH_TRUNCATE_WINDOW: to what the model
                         takes; 0: they are refused */
    int32_t max_document_tokens; /* of a document, before its query is put beside it: what is more is taken off its end;
                                    0: it stays as it is */
    bool truncate_left;          /* what goes is their beginning; of documents it is always their end */
    int32_t dimensions;          /* only so many numbers of each vector, for models that were trained for it; 0: all */
    int32_t norm;    /* 2: vectors have the length 1 (default); another p above 0: in the p-norm; 0: the largest number
                        is 32760; -1: as the model gives them */
    bool raw_scores; /* as the head gives them; else from 0 to 1 */
    bool lent;       /* inputs and query are not copied: what they point at stays as it is until on_end is called */
} hearth_embed_params;

/* What became of one input. */
typedef struct hearth_vector {
    const float *v;    /* n_vectors x width numbers; of a document its score */
    int32_t width;     /* 1 for scores */
    int32_t n_vectors; /* 1; without pooling one a token */
    int32_t n_tokens;  /* of the input as it was computed */
} hearth_vector;

typedef struct hearth_embedded {
    const char *model; /* that computed them */
    const hearth_vector *inputs;
    size_t n_inputs;
    int64_t n_tokens; /* of all */
} hearth_embedded;

/* Called exactly once for each request, on a thread of hearth's that computes for the same model: it may take the time
 * for writing the numbers down. Either `result`, which lives until the handle is released, or `error`, which does
 * not. */
typedef void (*hearth_embedded_fn)(void *ud, const hearth_embedded *result, const hearth_error *error);

typedef struct hearth_embedding hearth_embedding;

HEARTH_API hearth_embed_params hearth_embed_params_default(void);

/* Hands a request in and returns at once. NULL where it could not even be handed in: then `on_end` is never called. A
 * request fails as a whole, and no other with it. */
HEARTH_API hearth_embedding *hearth_embed(hearth *instance, const hearth_embed_params *params,
                                          hearth_embedded_fn on_end, void *ud, hearth_error *error);

/* Asks for the end: the request fails with HEARTH_CANCELLED, unless it has ended before. */
HEARTH_API void hearth_embedding_cancel(hearth_embedding *embedding);

/* Gives the handle back, and the result with it. Does not cancel. */
HEARTH_API void hearth_embedding_release(hearth_embedding *embedding);

/* ---- What is going on ---- */

typedef struct hearth_slot {
    int32_t id;
    int32_t seq_id;      /* the sequence of cells it stands on, or stood on last; -1: none that is still there */
    const char *model;   /* name */
    const char *state;   /* idle | pending | prefill | generate */
    char request_id[64]; /* empty when idle */
    int32_t cached_messages;
    int32_t cached_tokens; /* tokens that lie ready in its cells */
    int32_t n_past;        /* tokens of the running request that are in its cells */
    int32_t n_prompt;      /* tokens of the running request's prompt */
    int32_t n_predicted;   /* tokens that it has generated */
    char hash[17];         /* short hash of the cached tokens; empty when there are none */
    int64_t last_used;     /* unix time, milliseconds; 0: never */
} hearth_slot;

/* Fills up to `max` slots over all models; returns how many there are. */
HEARTH_API size_t hearth_slots(const hearth *instance, hearth_slot *slots, size_t max);

/* ---- The store: what outlives cells, instances and crashes ---- */

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
    const char *model_name;              /* as the server called it that stored it first; "": that is not known */
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

/* Removes what is of no use (half-written, quarantined and damaged files, entries whose parents are gone, what exceeds
 * the quotas; every file is read for it), or everything. HEARTH_UNAVAILABLE where an instance is using the folder. */
typedef struct hearth_kv_removed {
    uint64_t files, bytes;
    uint64_t kept; /* by hearth_kv_gc(): entries that hearth_kv_verify() names and that may be whole all the same: they
                      could not be read now, or may hang on such a one or on one of a newer version */
} hearth_kv_removed;

HEARTH_API int hearth_kv_gc(const hearth_config *config, hearth_kv_removed *removed, hearth_error *error);
HEARTH_API int hearth_kv_clear(const hearth_config *config, hearth_kv_removed *removed, hearth_error *error);

/* Counters and histograms in Prometheus' text format. The caller frees it. */
HEARTH_API char *hearth_metrics(const hearth *instance);

/* hearth's version and llama.cpp's, e.g. "0.1.0"; and what the CPU offers, e.g. "AVX2 AVX512". */
HEARTH_API const char *hearth_version(void);
HEARTH_API const char *hearth_llama_version(void);
HEARTH_API const char *hearth_cpu_features(void);

/* Logging: level is error | warn | info | debug, format is text | json; path NULL: stderr. From the first call on a
 * thread writes the lines, and nobody waits for a stderr or a disk that does not take them: lines are dropped instead,
 * and counted. A process that ends gives it a second. May be called again, for another path. */
HEARTH_API int hearth_log_open(const char *path, const char *level, const char *format, hearth_error *error);

/* Opens the same path anew, soon, for log rotation; what is wrong with it is logged. Never waits. */
HEARTH_API void hearth_log_reopen(void);

#ifdef __cplusplus
}
#endif
#endif
