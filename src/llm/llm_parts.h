/* What the files of this folder share: handles of llama.cpp's objects, and what its log lines tell.
 *
 * Only src/llm/ includes this header, as it alone includes llama.h. */
#ifndef LLM_LLM_PARTS_H
#define LLM_LLM_PARTS_H

#include "llm/context.h"
#include "llm/model.h"

#include <llama.h>

/* ---- Listening to llama.cpp's log ---- */

/* What a model keeps: which of its layers have cells, which of these a in_swa window alone, and the recurrent states
 * of a sequence. */
struct llm_layer_memory {
    int32_t n_layer;
    bool *cells, *is_swa; /* of n_layer each */
    uint64_t state_bytes;
};

/* Facts that llama.cpp tells in its log and nowhere else in its C interface: why a call failed, and how large the
 * buffers are that it allocated. (The functions behind the sizes, llama_get_memory_breakdown() and its like, are C++
 * only; differences of free memory would count what other threads and processes do meanwhile.) The sizes are printed
 * with two decimals of a MiB, so each buffer is known to within 5 KiB. */
struct llm_log_capture {
    char reason[256];                 /* the first error line, without the name of the function; "" if there was none */
    uint64_t weights, cells, compute; /* bytes */
    bool flash_attention_refused;
    double freq_base, freq_scale;    /* of positions, as settled; 0: not told */
    struct llm_layer_memory *layers; /* to be filled in; NULL: not asked for */
    bool in_swa;                     /* layers told now have a in_swa window */
};

/* From here to llm_log_capture_end() lines that this thread logs are captured. Does not nest. */
void llm_log_capture_begin(struct llm_log_capture *captured);
void llm_log_capture_end(void);

/* While on, what this thread logs is for those who debug: the caller reports failures itself. */
void llm_log_quiet(bool on);

/* ---- A model file before llama.cpp loads it ---- */

/* Metadata of the file, with every tensor's bytes inside the file; or NULL and one line that names the file. */
struct gguf_context *llm_file_open(const char *path, hearth_error *error);
const char *llm_file_text(const struct gguf_context *file, const char *key); /* NULL: not there */
int64_t llm_file_number(const struct gguf_context *file, const char *key, int64_t otherwise);
/* The same for a key named after the architecture ("llama.block_count" is "block_count"), at an index where it is an
 * array; the number itself at every index where it is none. */
int64_t llm_file_hparam(const struct gguf_context *file, const char *key, int64_t index, int64_t otherwise);
bool llm_file_has_hparam(const struct gguf_context *file, const char *key);

/* What FILE.sha256 says of the file. */
int llm_sidecar_read(const char *path, uint8_t digest[32], hearth_error *error);

/* False: no context can be opened, and nothing is known. */
bool llm_probe(struct llama_model *handle, struct llm_layer_memory *layers);

/* ---- Parameters of a context ---- */

uint64_t llm_total_cells(const struct llm_context_params *params);
uint32_t llm_total_sequences(const struct llm_context_params *params);

int llm_translate_params(struct llama_context_params *out, const struct llm_context_params *params,
                         const struct llm_model_info *info, hearth_error *error);

/* The parts of it that say of what type cells are, and how positions turn queries and keys. */
int llm_translate_cells(struct llama_context_params *out, const struct llm_context_params *params, hearth_error *error);
int llm_translate_rope(struct llama_context_params *out, const struct llm_context_params *params,
                       const struct llm_model_info *info, hearth_error *error);

/* llama.cpp counts layers the other way round: negative is all of them, 0 none. */
int32_t llm_layers_on_gpu(int wanted);

/* Workers for one context alone, which sleep while it does not compute. NULL where so many threads cannot be had. */
struct ggml_threadpool *llm_start_threads(int n_threads, hearth_error *error);

/* Linux hands out more memory than there is, and ends the process that uses it: buffers to compute in that do not fit
 * are refused. */
int llm_check_buffers(const struct llm_log_capture *captured, hearth_error *error);

/* After a decode that failed: the next one sets its buffers up anew. Those that could not be had llama.cpp would write
 * to all the same; it sets them up when attention changes, which is what is done here, there and back. */
void llm_renew_buffers(struct llama_context *handle, bool causal);

/* What was allocated for a context, as its opening was captured to say. */
struct llm_memory llm_memory_of(const struct llm_model *model, const struct llm_log_capture *captured);

/* ---- Handles ---- */

struct llama_model *llm_model_handle(const struct llm_model *model);
uint64_t llm_model_weights(const struct llm_model *model); /* bytes in buffers */
struct llama_context *llm_context_handle(const struct llm_context *context);

/* What the context was opened with, and the trained context as the file says: llama.cpp changes its own number when
 * positions are stretched. */
const struct llama_context_params *llm_context_translated(const struct llm_context *context);
int32_t llm_context_trained(const struct llm_context *context);
bool llm_context_window_factors(const struct llm_context *context); /* as llm_model_info has it */
void llm_context_logged_rope(const struct llm_context *context, double *freq_base, double *freq_scale);

/* The sequence that is nobody's, for taking rows out and putting them in; -1: there is none, with a stream each or
 * where all that llama.cpp can have are somebody's. It is empty between calls. */
int32_t llm_scratch(const struct llm_context *context);

bool llm_is_unified(const struct llm_context *context);
bool llm_is_recurrent(const struct llm_context *context); /* in some layers or in all */

/* ---- Copies between streams ---- */

/* The part that a sequence has in copies between streams, which llm_seq_share() only orders and llm_decode() makes. */
enum llm_copying { LLM_COPIED_FROM = 1, LLM_COPIED_TO = 2 };
unsigned llm_seq_copying(const struct llm_context *context, int32_t seq);

/* ---- Special tokens ---- */

struct llm_special_tokens;

struct llm_special_tokens *llm_special_tokens_open(const struct llama_model *handle); /* texts stay the vocabulary's */
void llm_special_tokens_close(struct llm_special_tokens *specials);
bool llm_special_tokens_in(const struct llm_special_tokens *specials, const char *text, size_t len);

/* The tokens of the text that a prompt ends with, where a reply goes on with it. Some tokenizers put a space before the
 * first special token: it is none of the text and left out. */
void llm_tokenize_prefill(const struct llm_model *model, const char *text, struct tokens *out);

/* ---- Tokenising piece by piece ---- */

/* Appends the tokens of a text that is tokenised in one go: with stack enough, or on the stack of this thread. */
void llm_tokenize_whole(const struct llm_model *model, const struct llm_tokenizer_input *in, struct tokens *out);
void llm_tokenize_here(const struct llm_model *model, const struct llm_tokenizer_input *in, struct tokens *out);

/* Bytes of stack that the tokenizer takes for each character of a run; 0: it does not recurse. */
int llm_measure_recursion(const struct llm_model *model, size_t *bytes, hearth_error *error);
size_t llm_model_recursion(const struct llm_model *model);

/* HEARTH_TOO_LONG where a run would take more stack than there is. */
int llm_check_run(const struct llm_model *model, const char *text, size_t len, hearth_error *error);

struct llm_splitter;

struct llm_splitter *llm_splitter_open(const struct llm_model *model); /* which has no splitter yet */
void llm_splitter_close(struct llm_splitter *splitter);
size_t llm_splitter_longest_token(const struct llm_splitter *splitter);
const struct llm_splitter *llm_model_splitter(const struct llm_model *model);

/* Where one piece ends and the next begins: at `len` both where there is no cut after `from`. */
struct llm_split {
    size_t end, next;
};

struct llm_split llm_next_split(const struct llm_splitter *splitter, const char *text, size_t len, size_t from);

/* ---- The machine ---- */

/* Physical cores among the CPUs that this process may run on; at least 1. */
int llm_physical_cores(void);

#endif
