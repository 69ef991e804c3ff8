/* Facts that llama.cpp gives only in its log: why a call failed, how large the buffers are that it allocated, and which
 * layers have which memory. docs/llama-internals.md lists the texts. Any thread; the captured facts belong to the
 * caller. */
#ifndef LLM_LLAMA_LOG_H
#define LLM_LLAMA_LOG_H

#include "hearth.h"

#include <llama.h>

/* Memory that a model's layers need: which layers have KV cells, which of these only a sliding window (SWA), and the
 * bytes of one sequence's recurrent states. */
struct llm_layer_memory {
    int32_t n_layer;
    bool *cells, *is_swa; /* of n_layer each */
    uint64_t state_bytes;
};

/* Finds the memory of the model's layers by opening a minimal context. False: that failed, and nothing was filled in.
 */
bool llm_probe(struct llama_model *handle, struct llm_layer_memory *layers);

/* Facts that llama.cpp offers nowhere else in its C interface. (The functions behind the sizes,
 * llama_get_memory_breakdown() and its like, are C++ only; differences of free memory would count what other threads
 * and processes do meanwhile.) The sizes are printed with two decimals of a MiB, so each buffer is known to within 5
 * KiB. */
struct llm_log_capture {
    char reason[256];                     /* the first error line, without the name of the function; "": none */
    bool no_memory, unknown_architecture; /* that is what the line says */
    uint64_t weights, cells, compute;     /* bytes */
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

#endif
