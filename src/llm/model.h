/* A model's weights and vocabulary. Immutable once open: any thread may ask. Only src/llm/ includes llama.h. */
#ifndef LLM_MODEL_H
#define LLM_MODEL_H

#include "base/buf.h"
#include "base/tokens.h"
#include "hearth.h"

#include <stdatomic.h>

struct llm_model;
struct llm_tokenizer_cache;

struct llm_model_params {
    const char *path;
    int n_gpu_layers;       /* layers kept on the GPU: 0 all, -1 none, N that many (not llama.cpp's numbers) */
    const char *split_mode; /* none | layer | row */
    int32_t main_gpu;       /* with none: the device that takes all, counted from 0 */
    const char *load_mode;  /* auto | none | mmap | mlock | mmap+mlock | dio; NULL: auto */
    const char *const *rpc; /* "host:port" of RPC servers, whose devices take layers as well */
    size_t n_rpc;
    const float *tensor_split;    /* which part of the model each device takes */
    size_t n_tensor_split;        /* 0: by their free memory */
    const char *const *devices;   /* names of those that take layers; "none" alone: the CPU takes all */
    size_t n_devices;             /* 0: all */
    const char *const *overrides; /* "PATTERN=BUFFERS": where tensors of such names go, the first counts */
    size_t n_overrides;
    int32_t n_cpu_moe; /* the experts of so many first layers stay in the machine's memory */
    bool cpu_moe;      /* those of all layers do */
    bool weights;      /* false: metadata and vocabulary only */
    bool planned; /* without them: devices are chosen all the same, for what would be allocated (llm_plan_memory()) */
    bool mtp;     /* the MTP head as well, if the file has one */
    bool mtp_optional;                          /* not where memory is lacking with it */
    bool (*progress)(void *ud, float fraction); /* false aborts; may be NULL */
    void *ud;
};

/* Layers of a model. */
struct llm_layers {
    int32_t n, v[3];
};

/* An EAGLE-3 head guesses the tokens of another model from the inputs of three of its layers. */
struct llm_eagle {
    struct llm_layers layers; /* n 0: the file is no such head */
    int32_t n_embd;           /* of that model */
    bool borrows;             /* it has no embedding or no output of its own, and uses that model's */
};

/* Kinds of models: dense and mixture-of-experts have KV cells alone, recurrent ones states alone, hybrids both. */
struct llm_model_info {
    char architecture[64];
    char name[128];        /* general.name; may be empty */
    char description[128]; /* llama.cpp's own line */
    hearth_model_kind kind;
    bool has_decoder; /* false: an encoder, good for embeddings only */
    bool remote;      /* devices of other machines may have layers and cells */
    bool divided;     /* some weights are to lie on devices, and others in the machine's memory */
    bool mtp;         /* an MTP head was loaded: a layer that guesses the token after the next */
    struct llm_eagle eagle;
    uint64_t size_bytes, n_params;
    const char *weights_type; /* "Q8_0" */
    int32_t vocab_type;       /* enum llama_vocab_type */
    int32_t n_vocab, n_embd, n_layer, n_head, n_ctx_train, n_swa;
    int32_t n_blocks;                /* layers of the file, those of MTP heads included */
    int32_t n_expert, n_expert_used; /* of a layer, and those that a token passes through */
    bool window_factors;   /* LongRoPE: RoPE has, or may have, other factors in a window beyond the original one */
    float rope_freq_scale; /* of the model's own RoPE scaling, which reaches n_ctx_train; 1: it has none */
    /* For the estimate of KV cells (llm_cells_of()), n_layer entries each. They are the KV heads of a layer, 0 where it
     * has no cells, and whether it keeps a sliding window only (NULL: no layer does). */
    const int32_t *n_head_kv;
    const bool *is_swa;
    int32_t n_embd_head_k, n_embd_head_v;
    /* Bytes of the weights, n_layer + 1 entries: of each layer, then of the output, an MTP head that was loaded
     * included. Of these the experts', which n_cpu_moe can keep in the machine's memory; NULL: there are none. */
    const uint64_t *layer_bytes, *expert_bytes;
    uint64_t embedding_bytes; /* of the token embedding, which always stays in the machine's memory */
    uint64_t tied_bytes;  /* of it in layer_bytes, where it is the output as well: a device has a copy; 0: it is not */
    uint64_t state_bytes; /* recurrent states of one sequence */
    const char *chat_template;       /* NULL if there is none */
    const char *bos_text, *eos_text; /* "" if there is none */
    bool adds_bos, adds_eos;
    hearth_pooling pooling;      /* as the file has it */
    int32_t n_embd_out;          /* dimensions of an embedding */
    int32_t n_scores;            /* outputs of the reranking head; 0: there is none */
    const char *rank_template;   /* joins query and document for reranking; NULL: separators do */
    const char *const *samplers; /* recommended by the file, in their order; NULL: none */
    size_t n_samplers;
    const int32_t *ending; /* end-of-generation tokens */
    size_t n_ending;
};

/* HEARTH_OK if the file is a whole GGUF file, of whatever architecture. */
int llm_file_check(const char *path, hearth_error *error);

/* Fails with one line naming the file: missing, truncated, not GGUF, unknown architecture, out of memory, aborted. */
struct llm_model *llm_model_open(const struct llm_model_params *params, hearth_error *error);
void llm_model_close(struct llm_model *model);
const struct llm_model_info *llm_model_info(const struct llm_model *model);

/* Whether a GPU of this machine, or a device of another one, may have its layers and cells. */
bool llm_has_devices(const struct llm_model_info *info);

/* ---- Devices ---- */

#define LLM_DEVICES 16 /* that are told apart */

/* One that takes layers: a GPU, or a device of an RPC server. */
struct llm_device {
    char name[64];       /* CUDA0, RPC0 */
    bool remote;         /* of an RPC server: nothing but layers goes there */
    uint64_t free_bytes; /* of its memory */
    float part;          /* of the layers that devices take; only the ratio counts */
};

/* The devices that take the layers of a model with these parameters, in their order. Fails as llm_model_open() does
 * where one that is named is not there. Blocks on the network (params->rpc). Any thread. */
int llm_list_devices(const struct llm_model_params *params, struct llm_device devices[LLM_DEVICES], size_t *n,
                     hearth_error *error);

/* Where llama.cpp puts each layer and the output: info->n_layer + 1 indices of devices, -1 for the machine's memory.
 * `n_gpu_layers` as llm_model_params has it. */
void llm_assign_layers(const struct llm_model_info *info, int64_t n_gpu_layers, const struct llm_device *devices,
                       size_t n, int8_t *places);

/* A number of the file's metadata. False: there is none of that name. */
bool llm_model_number(const struct llm_model *model, const char *key, double *out);
hearth_pooling llm_pooling_of(const char *name); /* HEARTH_POOLING_UNSPECIFIED for any other */

/* Whether the EAGLE-3 head can guess for the model. HEARTH_OK, or an error that says what does not fit: llama.cpp would
 * end the process. */
int llm_eagle_fits(const struct llm_model_info *head, const struct llm_model_info *model, hearth_error *error);

/* Whether tokens of one mean the same in the other, but for up to 128 at the end that one of them lacks. HEARTH_OK, or
 * an error that names the difference: the tokenizer's type, the number of tokens, or the first that differs. Any
 * thread. */
int llm_vocabularies_match(const struct llm_model *model, const struct llm_model *other, hearth_error *error);

/* Appends the tokens of the text; a long text is tokenised in chunks, with the same result. add_special: BOS and EOS as
 * the model wants them; parse_special: special tokens spelled out in the text become tokens. */
void llm_tokenize(const struct llm_model *model, const char *text, size_t len, bool add_special, bool parse_special,
                  struct tokens *out);

struct llm_tokenizer_input {
    const char *text;
    size_t len;
    bool add_special, parse_special;
};

/* The same for a text that may be long, or that others like it follow. */
struct llm_tokenising {
    const atomic_bool *stop;           /* once set, it returns between two chunks */
    struct llm_tokenizer_cache *cache; /* finds what was tokenised before (tokenizer_cache.h); NULL: none */
    const char *salt;                  /* what was tokenised under another one is not found there; NULL is "" */
};

void llm_tokenize_until(const struct llm_model *model, const struct llm_tokenizer_input *in,
                        const struct llm_tokenising *how, struct tokens *out);

/* Bytes without a split point that are tokenised at most. */
#define LLM_UNSPLITTABLE_MAX (256 << 10)

/* Whether memory and stack suffice for a text; one longer than LLM_UNSPLITTABLE_MAX must not be tokenised without this
 * check. Else HEARTH_TOO_LONG, with a message that begins with the number of bytes at fault. */
int llm_check_text(const struct llm_model *model, const char *text, size_t len, hearth_error *error);

/* Bytes of the longest token's text; SIZE_MAX where that is unknown, since blanks or words of any length may become one
 * token. */
size_t llm_longest_token(const struct llm_model *model);

/* Whether the text spells out a special token, which tokenising with parse_special would make of it. */
bool llm_contains_special_token(const struct llm_model *model, const char *text, size_t len);

/* Appends the bytes of a token, which may be part of a UTF-8 character. special: also those of control tokens. Rows of
 * media have no text. */
void llm_token_bytes(const struct llm_model *model, int32_t token, bool special, struct buf *out);

/* Whether it is a control or user-defined token, which the tokenizer finds before it splits a text into words. */
bool llm_token_is_found_first(const struct llm_model *model, int32_t token);
bool llm_token_ends_generation(const struct llm_model *model, int32_t token);

/* The fill-in-the-middle (FIM) tokens of a model; -1: it has none of that kind. */
struct llm_fim_tokens {
    int32_t prefix, suffix, middle; /* precede the text before the gap, after it, and in it */
    int32_t repository, file;       /* precede the name of a repository and of a file */
    int32_t begin;                  /* BOS; -1 also where the model adds none */
};

struct llm_fim_tokens llm_fim_tokens(const struct llm_model *model);

/* llama.cpp's version and the CPU features in use, for `hearth version`; the name of its build, which tells sources,
 * patches, options and compiler apart. Static strings. */
const char *llm_version(void);
const char *llm_cpu_features(void);

const char *llm_build(void);

/* A line for each backend of llama.cpp that lies in a file of its own: its name, and whether it was loaded or why not.
 * Those for other processors are left out. "": the backends are part of the program. */
const char *llm_backends(void);

/* Appends a line "gpu NAME" for each GPU, in llama.cpp's order: others round otherwise. */
void llm_describe_gpus(struct buf *out);

/* Starts llama.cpp's backends and routes its log lines into hearth's log (debug level; its warnings and errors as
 * such). Call once a process, before anything else here; further calls do nothing. */
void llm_init(void);

#endif
