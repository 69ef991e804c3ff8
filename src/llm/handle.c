/* Opens llama.cpp's context and its thread pool, refuses what memory cannot hold, and runs batches: see handle.h. */
#include "llm/handle.h"

#include "base/error.h"
#include "base/log.h"
#include "llm/model_struct.h"
#include "llm/shim.h"
#include "llm/threads.h"

#include <assert.h>

/* ---- Opening ---- */

bool llm_handle_open(struct llm_handle *out, const struct llm_model *model, const struct llama_context_params *params,
                     const struct llm_threads *threads, struct llm_log_capture *captured, hearth_error *error)
{
    assert(out != NULL && model != NULL && captured != NULL);
    llm_log_capture_begin(captured);
    *out = (struct llm_handle){.v = llama_init_from_model(model->handle, *params)};
    llm_log_capture_end();
    if (out->v == NULL) return false;
    /* Linux overcommits, and the OOM killer would end the process when it uses compute buffers that exceed the free
     * memory. */
    const double gib = 1024.0 * 1024 * 1024;
    uint64_t available = llm_free_memory(false);
    if (!llm_has_devices(&model->info) && captured->compute > available)
        error_set(error, HEARTH_NO_MEMORY,
                  "no memory for the compute buffers (%.2f GiB; %.2f GiB free): lower n_ubatch, n_batch or "
                  "context_window",
                  (double)captured->compute / gib, (double)available / gib);
    else
        out->threads = llm_start_threads(threads, params->n_threads, &out->place, error);
    if (out->threads == NULL) {
        llama_free(out->v);
        return false;
    }
    llama_attach_threadpool(out->v, out->threads, NULL);
    out->memory =
        (struct llm_memory){.weights = model->weights, .cells = captured->cells, .compute = captured->compute};
    return true;
}

void llm_handle_close(struct llm_handle *handle)
{
    llama_free(handle->v);
    llm_end_threads(handle->threads);
}

/* ---- Running ---- */

enum llm_decoded llm_handle_run(const struct llm_handle *handle, struct llama_batch batch, bool encodes, bool causal)
{
    char fault[256] = "";
    assert(batch.n_tokens > 0);
    llm_log_quiet(true);
    int32_t result = llm_guarded_run(handle->v, batch, encodes, fault, sizeof fault);
    llm_log_quiet(false);
    if (result == LLM_THREW) log_event(LOG_ERROR, "llama.cpp", "decode threw", log_str("reason", fault));
    switch (result) {
    case 0:
        return LLM_DECODED;
    case 1:
        return LLM_NO_CELLS;
    case 2:
        return LLM_ABORTED;
    case -1:
        return LLM_REFUSED;
    default:
        /* llama.cpp would write to buffers whose allocation failed; it reserves them anew when causal attention is
         * toggled, so this toggles it and back. */
        llama_set_causal_attn(handle->v, !causal);
        llama_set_causal_attn(handle->v, causal);
        return LLM_FAILED;
    }
}
