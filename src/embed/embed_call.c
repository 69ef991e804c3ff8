/* Computes one call of one embedding context: from the inputs that a worker was assigned to their vectors. Runs on the
 * worker's thread, which alone touches these inputs meanwhile. */
#include "embed/embed_parts.h"

#include "base/log.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool all_finite(const float *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(v[i])) return false;
    return true;
}

/* Copies the vectors of one of the call's inputs. */
static bool keep(struct worker *worker, int32_t index, struct embed_input *input)
{
    size_t width = (size_t)worker->pool->width;
    input->n_vectors = worker->pool->pooling == HEARTH_POOLING_NONE ? (int32_t)input->tokens.len : 1;
    input->vectors = mem_grow(NULL, (size_t)input->n_vectors * width, sizeof *input->vectors);
    for (int32_t at = 0; at < input->n_vectors; at++) {
        const float *v = llm_embedding(worker->embedder, index, at);
        if (v == NULL || !all_finite(v, width)) return false;
        memcpy(input->vectors + (size_t)at * width, v, width * sizeof *v);
    }
    return true;
}

static enum llm_decoded call(struct worker *worker, int32_t from, int32_t n)
{
    struct embed_stats *stats = worker->pool->stats;
    enum llm_decoded decoded = llm_embed(worker->embedder, worker->batch + from, n);
    metric_add(&stats->calls, 1);
    if (decoded != LLM_DECODED) return decoded;
    for (int32_t i = 0; i < n; i++) {
        struct call_input *call_input = &worker->call[from + i];
        metric_add(&stats->inputs, 1);
        metric_add(&stats->tokens, worker->batch[from + i].n);
        atomic_fetch_add(&call_input->job->n_computed, worker->batch[from + i].n);
        if (keep(worker, i, call_input->input)) continue;
        free(call_input->input->vectors);
        call_input->input->vectors = NULL;
    }
    return decoded;
}

/* A call that fails is repeated for each of its inputs, so that one which cannot be computed fails no other. */
void embed_compute(struct worker *worker)
{
    enum llm_decoded decoded = call(worker, 0, worker->n);
    if (decoded == LLM_DECODED || decoded == LLM_ABORTED || worker->n == 1) return;
    log_event(LOG_WARN, "embed", "a call failed: its inputs are computed one by one",
              log_str("model", worker->pool->name), log_int("inputs", worker->n));
    for (int32_t i = 0; i < worker->n && !atomic_load(&worker->abort); i++) call(worker, i, 1);
}
