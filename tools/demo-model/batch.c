#include "batch.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static int completed(const struct batch *batch)
{
    return batch->n_documents > 0 ? batch->starts[batch->n_documents] : 0;
}

void batch_clear(struct batch *batch)
{
    batch->n_tokens = batch->n_documents = 0;
}

void batch_release(struct batch *batch)
{
    free(batch->tokens);
    free(batch->weights);
    free(batch->starts);
    *batch = (struct batch){0};
}

static void reserve(struct batch *batch, int n)
{
    if (n <= batch->capacity) return;
    batch->capacity = n + n / 2;
    batch->tokens = mem_grow(batch->tokens, (size_t)batch->capacity, sizeof *batch->tokens);
    batch->weights = mem_grow(batch->weights, (size_t)batch->capacity, sizeof *batch->weights);
}

void batch_add(struct batch *batch, const int32_t *tokens, int n, float weight)
{
    if (n == 0) return;
    reserve(batch, batch->n_tokens + n);
    memcpy(batch->tokens + batch->n_tokens, tokens, (size_t)n * sizeof *tokens);
    for (int i = 0; i < n; i++) batch->weights[batch->n_tokens + i] = weight;
    batch->n_tokens += n;
}

void batch_end_document(struct batch *batch)
{
    batch->starts = mem_grow(batch->starts, (size_t)batch->n_documents + 2, sizeof *batch->starts);
    batch->starts[0] = 0;
    batch->starts[++batch->n_documents] = batch->n_tokens;
}

void batch_drop_document(struct batch *batch)
{
    batch->n_tokens = completed(batch);
}

int batch_pending(const struct batch *batch)
{
    return batch->n_tokens - completed(batch);
}
