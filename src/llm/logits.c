/* Passes over all logits: see logits.h. The n largest are kept in a min-heap of n, whose smallest is replaced when a
 * larger one comes. Of a block in which no logit is larger than that, only the maximum is computed. */
#include "llm/logits.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { BLOCK = 64, LANES = 8 };

/* Independent maxima, which the compiler keeps in the lanes of vectors. */
static float block_max(const float *logits)
{
    float most[LANES];
    memcpy(most, logits, sizeof most);
    for (size_t i = LANES; i < BLOCK; i += LANES)
        for (size_t j = 0; j < LANES; j++) most[j] = logits[i + j] > most[j] ? logits[i + j] : most[j];
    for (size_t j = 1; j < LANES; j++) most[0] = most[j] > most[0] ? most[j] : most[0];
    return most[0];
}

static float largest_of(const float *logits, size_t n)
{
    float most = -INFINITY;
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        float block = block_max(logits + i);
        most = block > most ? block : most;
    }
    for (; i < n; i++) most = logits[i] > most ? logits[i] : most;
    return most;
}

int32_t logits_argmax(const float *logits, size_t n)
{
    float most = largest_of(logits, n);
    for (size_t i = 0; i < n; i++)
        if (logits[i] == most) return (int32_t)i;
    return 0;
}

size_t logits_above(const float *logits, size_t n, float least)
{
    size_t above = 0;
    for (size_t i = 0; i < n; i++) above += logits[i] > least;
    return above;
}

/* ---- Log-sum-exp ---- */

/* Logits so far below the largest add nothing: e^-45 times a million tokens is 3e-14. */
#define NEGLIGIBLE 45

double logits_log_sum(const float *logits, size_t n)
{
    double most = (double)largest_of(logits, n), sum = 0;
    if (isinf(most)) return most;
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t end = n - i < BLOCK ? n : i + BLOCK;
        if (end - i == BLOCK && (double)block_max(logits + i) < most - NEGLIGIBLE) continue;
        for (size_t k = i; k < end; k++) sum += exp((double)logits[k] - most);
    }
    return most + log(sum);
}

/* ---- The largest ---- */

static bool is_less(const hearth_logprob *a, const hearth_logprob *b)
{
    return a->log < b->log || (a->log == b->log && a->token > b->token);
}

/* Restores the heap after its first element has changed. */
static void heap_sift_down(hearth_logprob *heap, size_t n)
{
    hearth_logprob moved = heap[0];
    size_t at = 0;
    for (size_t child = 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && is_less(&heap[child + 1], &heap[child])) child++;
        if (!is_less(&heap[child], &moved)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

size_t logits_offer(hearth_logprob *heap, size_t n, size_t n_top, hearth_logprob one)
{
    if (n < n_top) {
        size_t at = n;
        for (; at > 0 && is_less(&one, &heap[(at - 1) / 2]); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
        heap[at] = one;
        return n + 1;
    }
    if (n > 0 && is_less(&heap[0], &one)) {
        heap[0] = one;
        heap_sift_down(heap, n);
    }
    return n;
}

/* The smallest goes last, again and again. */
void logits_sort(hearth_logprob *heap, size_t n)
{
    while (n > 1) {
        hearth_logprob smallest = heap[0];
        heap[0] = heap[--n];
        heap_sift_down(heap, n);
        heap[n] = smallest;
    }
}

static size_t offer_range(hearth_logprob *top, size_t kept, size_t n_top, const float *logits, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (kept < n_top || (double)logits[i] > top[0].log)
            kept = logits_offer(top, kept, n_top, (hearth_logprob){.token = (int32_t)i, .log = (double)logits[i]});
    return kept;
}

size_t logits_largest(const float *logits, size_t n, hearth_logprob *top, size_t n_top)
{
    assert(logits != NULL && (top != NULL || n_top == 0));
    size_t kept = 0, i = 0;
    if (n_top == 0) return 0;
    for (; i + BLOCK <= n; i += BLOCK)
        if (kept < n_top || (double)block_max(logits + i) > top[0].log)
            kept = offer_range(top, kept, n_top, logits, i, i + BLOCK);
    kept = offer_range(top, kept, n_top, logits, i, n);
    logits_sort(top, kept);
    return kept;
}
