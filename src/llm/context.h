/* A llama.cpp context: the KV cache and recurrent states of a fixed number of sequences, and llm_decode(), which
 * computes on them.
 *
 * Not thread-safe: after llm_context_open() a context belongs to one thread, the engine's, which alone may call what is
 * declared here. The abort callback is called on that thread and on llama.cpp's workers during a decode. */
#ifndef LLM_CONTEXT_H
#define LLM_CONTEXT_H

#include "base/media_spans.h"
#include "hearth.h"
#include "llm/model.h"
#include "llm/threads.h"

#include <math.h>

struct llm_context;

/* A context may compute a head in place of a whole model. It reads a token and a hidden row of the model that it was
 * trained for (llm_batch_token.row), and guesses the next token. */
enum llm_head {
    LLM_HEAD_NONE,
    LLM_HEAD_MTP,   /* in the model's own file: its rows are llm_hidden_row()'s */
    LLM_HEAD_EAGLE, /* EAGLE-3, a file of its own: its rows are llm_encode_rows()'s */
};

struct llm_context_params {
    int32_t window;    /* tokens of one sequence */
    int32_t n_seq;     /* sequences: at most 256, and 255 where a unified KV cache needs the scratch sequence */
    int32_t n_cells;   /* cells of a unified KV cache, all sequences together; 0, or a stream each: window x n_seq */
    int32_t n_batch;   /* batch tokens of one llm_decode() at most */
    int32_t n_outputs; /* of them, those whose logits are computed; 0: all */
    int32_t n_ubatch;  /* batch tokens computed together (a micro-batch) */
    bool unified;      /* a unified KV cache, one pool of cells for all sequences; else one stream of cells for each */
    bool full_windows; /* layers with a sliding window keep the cells of the whole window of the context, each at its
                          position: they can be cut anywhere, and are the same whatever was cut before */
    bool scratch; /* a unified KV cache gets one more sequence, the scratch sequence, if llama.cpp allows one more: KV
                     rows are saved and loaded through it (llm/state_slices.h). It has no cells of its own, but memory
                     for a recurrent state or a sliding window */
    enum llm_head head;
    struct llm_context *other; /* of an EAGLE head: that of its model, whose embedding and output it may use */
    bool hidden_rows;          /* llm_hidden_row() can be called */
    struct llm_layers
        hidden_layers;  /* it gives the inputs of these layers, one behind the other; none: of the output */
    const char *type_k; /* auto | f32 | f16 | bf16 | q8_0 | q4_0 … */
    const char *type_v;
    const char *flash_attention; /* auto | on | off */
    bool offload_kqv, op_offload;
    struct llm_threads threads;
    const char *rope_scaling;               /* none (the model's own scaling stays) | linear | yarn */
    double rope_freq_base, rope_freq_scale; /* NAN: the model's; with linear and yarn the scale that fits the window */
    double yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow; /* NAN: the model's */
    int32_t yarn_orig_ctx;                                                    /* 0: the model's */
    bool (*abort)(void *ud); /* true ends the running decode; called often, from several threads */
    void *ud;
};

/* Cells of f16 where the layers are, a stream for each sequence, and the model's own RoPE. */
static inline struct llm_context_params llm_usual_context(int32_t window, int32_t n_seq)
{
    return (struct llm_context_params){.window = window,
                                       .n_seq = n_seq,
                                       .n_batch = 512,
                                       .n_ubatch = 512,
                                       .type_k = "f16",
                                       .type_v = "f16",
                                       .flash_attention = "auto",
                                       .offload_kqv = true,
                                       .op_offload = true,
                                       .rope_scaling = "none",
                                       .rope_freq_base = NAN,
                                       .rope_freq_scale = NAN,
                                       .yarn_ext_factor = NAN,
                                       .yarn_attn_factor = NAN,
                                       .yarn_beta_fast = NAN,
                                       .yarn_beta_slow = NAN};
}

/* One batch token: a token at a position of a sequence. */
struct llm_batch_token {
    int32_t token, pos, seq;
    bool logits;      /* compute its logits: llm_logits() with its index in the batch */
    const float *row; /* for a head: the hidden row of the token before, n_embd_out long; else not read */
};

enum llm_decoded {
    LLM_DECODED,  /* all batch tokens are computed; their keys and values are in their cells */
    LLM_NO_CELLS, /* too few free cells; nothing was changed */
    LLM_ABORTED,  /* the abort callback returned true; any sequence may hold other cells: ask llm_seq_end() of each */
    LLM_REFUSED,  /* the batch is invalid; nothing was changed */
    LLM_FAILED    /* llama.cpp failed; sequences as with LLM_ABORTED */
};

/* Memory of an open context, as llama.cpp reported its buffers when it allocated them. */
struct llm_memory {
    uint64_t weights, cells, compute; /* bytes, over all devices */
};

struct llm_context *llm_context_open(struct llm_model *model, const struct llm_context_params *params,
                                     hearth_error *error);
void llm_context_close(struct llm_context *context);

/* Returns when the tokens are computed, on a GPU too, so that the time of a call is what it cost: their logits are read
 * next anyway. */
enum llm_decoded llm_decode(struct llm_context *context, const struct llm_batch_token *tokens, int32_t n_tokens);

/* ---- Media ---- */

/* The media among the tokens of a sequence: borrowed as long as it holds any of them; NULL: none. Positions that
 * callers give and get are indices of the token list everywhere. llama.cpp's own differ behind an image whose rows
 * share positions (M-RoPE), and are found here. Cells that are shared, loaded or moved into a sequence lie at the
 * positions that its media give. So they must be set before, and be those of the source, as far as its cells are to
 * stay. */
void llm_seq_set_media(struct llm_context *context, int32_t seq, const struct media_spans *media);

struct llm_place; /* projector.h */

/* Rows of a medium, at the indices [from, from + n) of the sequence. */
struct llm_media_rows {
    int32_t seq, from, n;
    const float *rows;              /* n of the model's input width each */
    const struct llm_place *places; /* n; of models with M-RoPE, else NULL */
    bool causal; /* false: all of them see each other, so that they are one call's, in one micro-batch */
    bool logits; /* of the last row */
};

/* As llm_decode(), of rows in place of tokens; at most n_batch, and n_ubatch where they are not causal. */
enum llm_decoded llm_decode_rows(struct llm_context *context, const struct llm_media_rows *rows);

/* The size of the thread pool, and how many of its threads compute from the next llm_decode() on (at first all). The
 * others sleep; changing the number costs nothing. */
int32_t llm_threads(const struct llm_context *context);

/* The calling thread computes from now on: it gets the CPUs and the priority for that. */
void llm_begin_computing(const struct llm_context *context);
void llm_set_threads(struct llm_context *context, int32_t n);

/* Whether a GPU, or a device of another machine, may compute its layers. Then neither the time of a decode call nor the
 * threads' CPU time says anything about the threads. */
bool llm_on_devices(const struct llm_context *context);

/* Tokens of a call from which llama.cpp copies weights that lie in the machine's memory to a GPU for it (op_offload).
 * 0: never, as where all of them or none are on the GPU. */
int32_t llm_copies_from(const struct llm_context *context);

/* The n_vocab logits of the batch token with that index in the last llm_decode(); valid until the next. */
const float *llm_logits(struct llm_context *context, int32_t index);

/* The hidden row, n_embd_out long, from which its logits were computed, or which a head gives for the token that they
 * make likeliest; or the inputs of params.hidden_layers. Valid until the next call, or the next llm_decode(). */
const float *llm_hidden_row(struct llm_context *context, int32_t index);

/* Of an EAGLE head: makes of n hidden rows of the model, one behind the other, those that it reads; n_batch at most.
 * False: the call failed. */
bool llm_encode_rows(struct llm_context *context, const float *rows, int32_t n, float *encoded);

/* The likeliest token by these logits, and its probability. */
int32_t llm_likeliest(struct llm_context *context, int32_t index, float *chance);

/* Removes the cells of positions [from, end). False: a recurrent state, or a sliding window that would be left
 * incomplete, cannot be cut there, and nothing was changed. llm_seq_clear() always can. */
bool llm_seq_cut(struct llm_context *context, int32_t seq, int32_t from);
bool llm_seq_can_cut(struct llm_context *context, int32_t seq, int32_t from); /* whether llm_seq_cut() would */
void llm_seq_clear(struct llm_context *context, int32_t seq);

/* Gives `to` the first n positions of `from` in place of what it held. In a unified KV cache nothing is copied: both
 * sequences hold the same cells, and cutting or clearing one leaves the other whole. With a stream each, the next
 * decode copies the cells. False: recurrent states and sliding windows can be shared only whole (n == llm_seq_end());
 * `to` is then empty. */
bool llm_seq_share(struct llm_context *context, int32_t from, int32_t to, int32_t n);

/* Whether sequences can be cut and shared at any position: false with recurrent states, and with sliding windows
 * that are not full. */
bool llm_cuts_anywhere(const struct llm_context *context);

/* Whether the rows of the last call of one micro-batch can be cut again, but for the first of them: false with
 * recurrent states. */
bool llm_cuts_after_call(const struct llm_context *context);

/* Whether attention is limited to a sliding window in some layers. */
bool llm_has_window(const struct llm_context *context);

/* Whether one llm_decode() may hold batch tokens of one sequence only: with recurrent states and a sliding window in a
 * unified KV cache llama.cpp 0.5.0 gives wrong logits otherwise. */
bool llm_one_seq_a_call(const struct llm_context *context);

/* One past the last position that the sequence holds; 0 for an empty sequence. */
int32_t llm_seq_end(struct llm_context *context, int32_t seq);

/* ---- Snapshots and checkpoints: states as bytes outside the context ---- */

enum llm_state {
    LLM_STATE_SNAPSHOT,  /* the whole sequence; loads into any sequence of a context of the same layout */
    LLM_STATE_CHECKPOINT /* only recurrent states and sliding windows (SWA), which cannot be cut at any position.
                            Completes the other cells of the same sequence, as long as those are still there */
};

/* Bytes that llm_seq_save() will write; 0: there is nothing to save. */
size_t llm_seq_state_size(struct llm_context *context, int32_t seq, enum llm_state what);

/* Writes the state; returns the bytes written. 0: it cannot be saved now, as after llm_seq_share() across streams,
 * whose copy only the next llm_decode() makes. */
size_t llm_seq_save(struct llm_context *context, int32_t seq, enum llm_state what, void *bytes, size_t size);

enum llm_loaded {
    LLM_LOADED,
    LLM_NO_ROOM,  /* too few free cells; only with a unified KV cache */
    LLM_BAD_STATE /* the bytes are no such state or slice, or do not belong at that position, or a copy from or to the
                     sequence is still pending */
};

/* Loads a snapshot of n tokens in place of what the sequence held. On failure the sequence is empty. */
enum llm_loaded llm_seq_load(struct llm_context *context, int32_t seq, const void *bytes, size_t size, int32_t n);

/* Rewinds the sequence to its first n tokens with the checkpoint that was saved at that position. The caller knows that
 * the tokens are the same. On failure, as where the sequence holds fewer tokens, it is empty. Its own recurrent and SWA
 * state is freed first, so cells are there unless another sequence shares that state. */
enum llm_loaded llm_seq_rewind(struct llm_context *context, int32_t seq, const void *bytes, size_t size, int32_t n);

/* Whether flash attention was chosen, as resolved from "auto". */
bool llm_flash_attention(const struct llm_context *context);
struct llm_memory llm_context_memory(const struct llm_context *context);

/* RoPE parameters of the context, with defaults resolved. */
struct llm_rope {
    char scaling[16]; /* none | linear | yarn | longrope */
    double freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow;
    uint32_t orig_ctx;
};

struct llm_rope llm_context_rope(const struct llm_context *context);

/* ---- Estimates, before anything is allocated ---- */

/* Bytes of one element of a cell type ("q8_0": 34/32); 0 for an unknown name. */
double llm_type_bytes(const char *type);

/* Bytes that llama.cpp allocates for the KV cells and recurrent states of a context. */
struct llm_cells {
    double whole;   /* cells of layers that attend to the whole context window */
    double windows; /* cells of layers with a sliding window, all sequences together */
    double states;  /* recurrent states */
    double total;
    int32_t n_sequences; /* each has a recurrent state and, in a unified KV cache, a sliding window */
};

struct llm_cells llm_cells_of(const struct llm_context_params *params, const struct llm_model_info *info);

/* The same by layer, info->n_layer entries. */
void llm_cells_by_layer(const struct llm_context_params *params, const struct llm_model_info *info, double *bytes);

/* The bytes that llama.cpp would allocate for a model and a context: first in the machine's memory, then on each device
 * that it uses. */
struct llm_plan {
    struct llm_planned {
        char name[64]; /* of the device; "" for memory */
        uint64_t weights, cells, compute;
    } v[LLM_DEVICES + 1];
    size_t n;
};

/* Plans such a context of a model that was opened without its weights. Nothing is allocated for this but recurrent
 * states. False: there can be no such context. Any thread. */
bool llm_plan_memory(const struct llm_model *model, const struct llm_context_params *params, struct llm_plan *plan);

/* Physical cores that have one of the CPUs whose place in the list is true. */
int llm_count_cores(const bool *cpus, size_t n_cpus);

/* Free bytes where the cells would be allocated: all GPUs together, or the machine's RAM. */
uint64_t llm_free_memory(bool on_gpu);
bool llm_has_gpu(void);

#endif
