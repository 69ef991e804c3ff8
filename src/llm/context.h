/* A context: the cells (KV cache or recurrent state) of a fixed number of sequences, and the one call that computes.
 *
 * Not thread-safe: after llm_context_open() a context belongs to one thread, the engine's, which alone may call
 * what is declared here. The abort callback is called on that thread and on llama.cpp's workers during a decode. */
#ifndef LLM_CONTEXT_H
#define LLM_CONTEXT_H

#include "hearth.h"
#include "llm/model.h"

struct llm_context;

struct llm_context_params {
    int32_t window; /* tokens of one sequence */
    int32_t n_seq;  /* sequences; up to 255 with tokens that can be stored in one pool (llm/state_slices.h), else 256 */
    int32_t n_cells;  /* in one pool: cells of all sequences together; 0, or a stream each: window x n_seq */
    int32_t n_batch;  /* tokens of one llm_decode() at most */
    int32_t n_ubatch; /* tokens computed together */
    bool unified;     /* one pool of cells for all sequences, or one stream each */
    bool scratch; /* a pool has one sequence more, nobody's, if there can be: tokens are taken out and put in through
                     it (llm/state_slices.h). It has no cells of its own, but a recurrent state or a sliding window */
    const char *type_k; /* auto | f32 | f16 | bf16 | q8_0 | q4_0 … */
    const char *type_v;
    const char *flash_attention; /* auto | on | off */
    bool offload_kqv, op_offload;
    int threads;              /* that compute at most; 0: as many as there are physical cores. Never more than CPUs */
    const char *rope_scaling; /* none (the model's own stays) | linear | yarn */
    double rope_freq_base, rope_freq_scale; /* NAN: the model's; with linear and yarn the scale that fits the window */
    double yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow; /* NAN: the model's */
    int32_t yarn_orig_ctx;                                                    /* 0: the model's */
    bool (*abort)(void *ud); /* true ends the running decode; called often, from several threads */
    void *ud;
};

/* One row of a batch: a token at a position of a sequence. */
struct llm_batch_token {
    int32_t token, pos, seq;
    bool logits; /* wanted: llm_logits() with this row's index */
};

enum llm_decoded {
    LLM_DECODED,  /* all tokens are in their cells */
    LLM_NO_CELLS, /* no room for the tokens; nothing was changed */
    LLM_ABORTED,  /* the abort callback said so; any sequence may have other cells now: ask llm_seq_end() of each */
    LLM_REFUSED,  /* the batch is invalid; nothing was changed */
    LLM_FAILED    /* a fault below; as with LLM_ABORTED */
};

/* What the cells and buffers cost, from llama.cpp itself once a context is open. */
struct llm_memory {
    uint64_t weights, cells, compute; /* bytes, over all devices */
};

struct llm_context *llm_context_open(struct llm_model *model, const struct llm_context_params *params,
                                     hearth_error *error);
void llm_context_close(struct llm_context *context);

enum llm_decoded llm_decode(struct llm_context *context, const struct llm_batch_token *tokens, int32_t n_tokens);

/* How many threads there are to compute with, and how many of them compute from the next llm_decode() on: all, until
 * something else is said. The others sleep meanwhile; changing the number costs nothing. */
int32_t llm_threads(const struct llm_context *context);
void llm_set_threads(struct llm_context *context, int32_t n);

/* n_vocab logits of the row with that index in the last llm_decode(); valid until the next. */
const float *llm_logits(struct llm_context *context, int32_t row);

/* Removes the cells of positions [from, end). False: this kind of memory cannot, nothing was changed (but see
 * llm_seq_clear(), which always can). A sliding window that would be left incomplete counts as "cannot". */
bool llm_seq_cut(struct llm_context *context, int32_t seq, int32_t from);
bool llm_seq_can_cut(struct llm_context *context, int32_t seq, int32_t from); /* whether llm_seq_cut() would */
void llm_seq_clear(struct llm_context *context, int32_t seq);

/* Gives `to` the first n cells of `from`; what `to` held is gone. In one pool of cells nothing is copied: both then
 * hold the same cells, and cutting or clearing one leaves the other whole. With a stream each, the cells are copied at
 * the next decode. False: this kind of memory can be shared only whole (n == llm_seq_end()); `to` is then empty. */
bool llm_seq_share(struct llm_context *context, int32_t from, int32_t to, int32_t n);

/* Whether the memory can be cut and shared at any length: false for recurrent states and sliding windows. */
bool llm_cuts_anywhere(const struct llm_context *context);

/* Whether attention is limited to a sliding window in some layers. */
bool llm_has_window(const struct llm_context *context);

/* Whether a call may only have tokens of one sequence: with recurrent states and a sliding window in one pool of cells
 * llama.cpp 0.5.0 gives wrong logits otherwise. */
bool llm_one_seq_a_call(const struct llm_context *context);

/* One past the last position held by the sequence; 0 for an empty one. */
int32_t llm_seq_end(struct llm_context *context, int32_t seq);

/* ---- States outside the context ---- */

enum llm_state {
    LLM_STATE_SNAPSHOT,  /* everything that the sequence holds; loads into any sequence of a context of the same layout
                          */
    LLM_STATE_CHECKPOINT /* only what moves forward and cannot be cut: recurrent states, sliding windows. Completes the
                        other cells of the same sequence, as long as those are still there */
};

/* Bytes that llm_seq_save() will write; 0: nothing to save. */
size_t llm_seq_state_size(struct llm_context *context, int32_t seq, enum llm_state what);

/* Writes the state; returns the bytes written. 0: it cannot be saved now, as after llm_seq_share() across streams,
 * whose copy is made only by the next llm_decode(). */
size_t llm_seq_save(struct llm_context *context, int32_t seq, enum llm_state what, void *bytes, size_t size);

enum llm_loaded {
    LLM_LOADED,
    LLM_NO_ROOM,  /* there are no cells for it; only in one pool */
    LLM_BAD_STATE /* the bytes are no such state or piece, or do not belong there, or a copy from or to the sequence is
                    still to be made */
};

/* Gives the sequence a whole state of n tokens in place of what it held. If that fails, it is empty. */
enum llm_loaded llm_seq_load(struct llm_context *context, int32_t seq, const void *bytes, size_t size, int32_t n);

/* Takes the sequence back to its first n tokens with the moving state that was saved there. If that fails, as it does
 * where it holds fewer, it is empty. That the tokens are the same is the caller's to know. What the sequence held of
 * what moves is given up first: there is room where no other sequence holds that. */
enum llm_loaded llm_seq_rewind(struct llm_context *context, int32_t seq, const void *bytes, size_t size, int32_t n);

/* Whether flash attention was chosen, as resolved from "auto". */
bool llm_flash_attention(const struct llm_context *context);
struct llm_memory llm_context_memory(const struct llm_context *context);

/* How positions turn queries and keys here, with everything settled that was left open. */
struct llm_rope {
    char scaling[16]; /* none | linear | yarn | longrope */
    double freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow;
    uint32_t orig_ctx;
};

struct llm_rope llm_context_rope(const struct llm_context *context);

/* ---- Estimates, before anything is allocated ---- */

/* Bytes of one element of a cell type ("q8_0": 34/32); 0 for an unknown name. */
double llm_type_bytes(const char *type);

/* Bytes that the cells and states of a context take: what llama.cpp allocates for them. */
struct llm_cells {
    double whole;   /* of layers that look at the whole window */
    double windows; /* of layers with a sliding window, which have cells for all sequences */
    double states;  /* recurrent ones */
    double total;
    int32_t n_sequences; /* each has a state, and in one pool a sliding window */
};

struct llm_cells llm_cells_of(const struct llm_context_params *params, const struct llm_model_info *info);

/* CPUs that this process may run on. */
int llm_usable_cpus(void);

/* Free memory where the cells would go: the GPU's, or the machine's for a CPU-only build. */
uint64_t llm_free_memory(bool on_gpu);
bool llm_has_gpu(void);

#endif
