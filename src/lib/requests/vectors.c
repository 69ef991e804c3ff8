/* Cuts and normalises embedding vectors, and turns logits into reranking scores: see vectors.h. */
#include "lib/requests/vectors.h"

#include <math.h>
#include <string.h>

/* norm 0 scales a vector so that its largest absolute value becomes this, as in llama-server. */
#define LARGEST 32760.0

static double largest(const float *v, int32_t width)
{
    double most = 0;
    for (int32_t i = 0; i < width; i++) most = fmax(most, fabs((double)v[i]));
    return most;
}

static double p_norm(const float *v, int32_t width, int32_t p)
{
    double sum = 0;
    for (int32_t i = 0; i < width; i++) sum += pow(fabs((double)v[i]), p);
    return pow(sum, 1.0 / p);
}

static double euclidean(const float *v, int32_t width)
{
    double sum = 0;
    for (int32_t i = 0; i < width; i++) sum += (double)v[i] * (double)v[i];
    return sqrt(sum);
}

/* A zero vector stays zero. */
static void normalise(float *v, int32_t width, int32_t norm)
{
    if (norm < 0) return;
    double size = norm == 0 ? largest(v, width) / LARGEST : norm == 2 ? euclidean(v, width) : p_norm(v, width, norm);
    double factor = size > 0 && isfinite(size) ? 1 / size : 0;
    for (int32_t i = 0; i < width; i++) v[i] = (float)(v[i] * factor);
}

int32_t vectors_shape(float *v, size_t n, int32_t width, int32_t dimensions, int32_t norm)
{
    int32_t kept = dimensions > 0 && dimensions < width ? dimensions : width;
    for (size_t i = 0; i < n; i++) {
        float *vector = v + i * (size_t)kept;
        memmove(vector, v + i * (size_t)width, (size_t)kept * sizeof *v);
        normalise(vector, kept, norm);
    }
    return kept;
}

float vectors_score(float logit)
{
    return (float)(1 / (1 + exp(-(double)logit)));
}
