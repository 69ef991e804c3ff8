/* Internals shared by the files of src/llm: llama.cpp handles, log capture, GGUF metadata, tokenizer helpers.
 *
 * Only src/llm/ includes this header, as it alone includes llama.h. */
#ifndef LLM_LLM_PARTS_H
#define LLM_LLM_PARTS_H

#include "llm/context.h"
#include "llm/model.h"
#include "llm/tokenizer_cache.h"

#include <llama.h>

/* ---- Capturing llama.cpp's log ---- */

/* Memory that a model's layers need: which layers have KV cells, which of these only a sliding window (SWA), and the
 * bytes of one sequence's recurrent states. */
struct llm_layer_memory {
    int32_t n_layer;
    bool *cells, *is_swa; /* of n_layer each */
    uint64_t state_bytes;
};

/* Facts that llama.cpp logs and offers nowhere else in its C interface: why a call failed, and how large the buffers
 * are that it allocated. (The functions behind the sizes, llama_get_memory_breakdown() and its like, are C++ only;
 * differences of free memory would count what other threads and processes do meanwhile.) The sizes are printed with two
 * decimals of a MiB, so each buffer is known to within 5 KiB. */
struct llm_log_capture {
    char reason[256];                 /* the first error line, without the name of the function; "" if there was none */
    uint64_t weights, cells, compute; /* bytes */
    bool flash_attention_refused;
    double freq_base, freq_scale;    /* of RoPE, as resolved; 0: not logged */
    struct llm_layer_memory *layers; /* filled in from the log; NULL: not wanted */
    bool in_swa;                     /* the layers logged now have a sliding window */
};

/* Captures what llama.cpp logs on this thread until llm_log_capture_end(). Does not nest. */
void llm_log_capture_begin(struct llm_log_capture *captured);
void llm_log_capture_end(void);

/* While on, llama.cpp's lines on this thread are logged at debug level: the caller reports failures itself. */
void llm_log_quiet(bool on);

/* Receives llama.cpp's log, and that of its libraries that have one of their own. */
void llm_on_log(enum ggml_log_level level, const char *text, void *ud);

/* ---- A model file before llama.cpp loads it ---- */

/* The metadata of a GGUF file whose tensors lie within the file; or NULL and one line that names the file. */
struct gguf_context *llm_file_open(const char *path, hearth_error *error);
const char *llm_file_text(const struct gguf_context *file, const char *key); /* NULL: not there */
int64_t llm_file_number(const struct gguf_context *file, const char *key, int64_t otherwise);
/* The same for a hyperparameter, whose key the architecture prefixes ("block_count" is "llama.block_count"): the
 * element at an index of an array; the number itself, whatever the index, where it is no array. */
int64_t llm_file_hparam(const struct gguf_context *file, const char *key, int64_t index, int64_t otherwise);
bool llm_file_has_hparam(const struct gguf_context *file, const char *key);

/* Reads the digest of the file from FILE.sha256. */
int llm_sidecar_read(const char *path, uint8_t digest[32], hearth_error *error);

/* Finds the memory of the model's layers by opening a minimal context. False: that failed, and nothing was filled in.
 */
bool llm_probe(struct llama_model *handle, struct llm_layer_memory *layers);

/* ---- Parameters of a context ---- */

uint64_t llm_total_cells(const struct llm_context_params *params);
uint32_t llm_total_sequences(const struct llm_context_params *params);

int llm_translate_params(struct llama_context_params *out, const struct llm_context_params *params,
                         const struct llm_model_info *info, hearth_error *error);

/* Refuses cells for which there is no memory. */
int llm_check_room(const struct llm_context_params *params, const struct llm_model_info *info, hearth_error *error);

/* The parts of it for the type of cells and for RoPE. */
int llm_translate_cells(struct llama_context_params *out, const struct llm_context_params *params, hearth_error *error);
int llm_translate_rope(struct llama_context_params *out, const struct llm_context_params *params,
                       const struct llm_model_info *info, hearth_error *error);

/* llama.cpp's n_gpu_layers, where negative is all layers and 0 none, from hearth's, where 0 is all and -1 none. */
int32_t llm_layers_on_gpu(int wanted);

/* A thread pool for one context, whose workers sleep while it does not compute. NULL where the system refuses so many
 * threads. */
struct ggml_threadpool *llm_start_threads(int n_threads, hearth_error *error);

/* Refuses compute buffers that exceed the free memory: Linux overcommits, and the OOM killer would end the process when
 * it uses them. */
int llm_check_buffers(const struct llm_log_capture *captured, bool has_devices, hearth_error *error);

/* After a failed decode: makes the next one reserve its compute buffers anew. llama.cpp would write to buffers whose
 * allocation failed; it reserves them again when causal attention is toggled, so this toggles it and back. */
void llm_renew_buffers(struct llama_context *handle, bool causal);

/* The memory of a context, from the log captured while it was opened. */
struct llm_memory llm_memory_of(const struct llm_model *model, const struct llm_log_capture *captured);

/* ---- Handles ---- */

struct llama_model *llm_model_handle(const struct llm_model *model);
uint64_t llm_model_weights(const struct llm_model *model); /* bytes in buffers */
struct llama_context *llm_context_handle(const struct llm_context *context);

/* The llama.cpp parameters that the context was opened with, and the trained context in tokens as the file has it:
 * llama.cpp changes its own number when RoPE is scaled. */
const struct llama_context_params *llm_context_translated(const struct llm_context *context);
int32_t llm_context_trained(const struct llm_context *context);
bool llm_context_window_factors(const struct llm_context *context); /* llm_model_info.window_factors */
void llm_context_logged_rope(const struct llm_context *context, double *freq_base, double *freq_scale);

/* The media of a sequence, NULL: none; and llama.cpp's position of its token at that index. */
const struct media_spans *llm_seq_media(const struct llm_context *context, int32_t seq);
int32_t llm_position(const struct llm_context *context, int32_t seq, int32_t index);

/* Rows were added to the sequence, which has `end` of them now: within an image positions do not tell. 0: it has whole
 * images only. */
void llm_seq_note_end(struct llm_context *context, int32_t seq, int32_t end);

/* The scratch sequence, through which KV rows are saved and loaded; -1: there is none, with a stream each or where all
 * sequences that llama.cpp allows are in use. It is empty between calls. */
int32_t llm_scratch(const struct llm_context *context);

bool llm_is_unified(const struct llm_context *context);
bool llm_is_recurrent(const struct llm_context *context); /* in some layers or in all */

/* ---- Copies between streams ---- */

/* The role of a sequence in pending copies between streams, which llm_seq_share() requests and llm_decode() makes. */
enum llm_copying { LLM_COPIED_FROM = 1, LLM_COPIED_TO = 2 };
unsigned llm_seq_copying(const struct llm_context *context, int32_t seq);

/* ---- Special tokens ---- */

struct llm_special_tokens;

struct llm_special_tokens *
llm_special_tokens_open(const struct llama_model *handle); /* borrows the vocabulary's texts */
void llm_special_tokens_close(struct llm_special_tokens *specials);
bool llm_special_tokens_in(const struct llm_special_tokens *specials, const char *text, size_t len);

/* ---- Tokenising long texts in chunks ---- */

/* Append the tokens of a text without splitting it: on a thread with enough stack if need be, or on this thread's own
 * stack. */
void llm_tokenize_whole(const struct llm_model *model, const struct llm_tokenizer_input *in, struct tokens *out);
void llm_tokenize_here(const struct llm_model *model, const struct llm_tokenizer_input *in, struct tokens *out);

/* Bytes of stack that the tokenizer takes for each character of a run; 0: it does not recurse. */
int llm_measure_recursion(const struct llm_model *model, size_t *bytes, hearth_error *error);
size_t llm_model_recursion(const struct llm_model *model);

/* HEARTH_TOO_LONG where a run of characters would take more stack than hearth allows. */
int llm_check_run(const struct llm_model *model, const char *text, size_t len, hearth_error *error);

struct llm_splitter;

struct llm_splitter *llm_splitter_open(const struct llm_model *model); /* of a model without one yet */
void llm_splitter_close(struct llm_splitter *splitter);
size_t llm_splitter_longest_token(const struct llm_splitter *splitter);
const struct llm_splitter *llm_model_splitter(const struct llm_model *model);

/* Where one chunk ends and the next begins, in bytes; both are `len` where there is no split point after `from`. */
struct llm_split {
    size_t end, next;
};

struct llm_split llm_next_split(const struct llm_splitter *splitter, const char *text, size_t len, size_t from);

/* The same for the chunk that begins at `from`: up to 8 KiB, or up to the first split point after them. Chunks depend
 * on the text around their ends, not on what precedes them: after a change in a text they are soon the same again. */
struct llm_split llm_next_chunk(const struct llm_splitter *splitter, const char *text, size_t len, size_t from);

/* A control, unknown or user-defined token. */
bool llm_is_found_first(const struct llama_vocab *vocab, llama_token token);

/* Appends the tokens of a chunk: from the cache if they are there, else as llm_tokenize_whole() does, and adds them. */
void llm_tokenize_chunk(const struct llm_model *model, const struct llm_tokenizer_input *in,
                        const struct llm_tokenising *how, struct tokens *out);

/* ---- The machine ---- */

/* Physical cores among the CPUs that this process may run on; at least 1. */
int llm_physical_cores(void);

#endif
