/* The optimizer: Muon for the layers' matrices, Adam for the embedding and the norms. One tensor is updated by one
 * thread; different tensors may be updated by different threads at once. */
#ifndef DEMO_OPTIMIZER_H
#define DEMO_OPTIMIZER_H

#include "shape.h"

/* Momentum of every number, and Adam's mean square, which the matrices leave at 0. Laid out like the weights. */
struct optimizer {
    const struct layout *layout;
    float *momentum, *square;
    int steps; /* done since the state was last reset */
};

void optimizer_open(struct optimizer *optimizer, const struct layout *layout);
void optimizer_close(struct optimizer *optimizer);
void optimizer_reset(struct optimizer *optimizer);

/* Memory of one thread for optimizer_update(); free() it. */
float *optimizer_scratch(const struct layout *layout);

/* Moves one tensor's weights against `scale` times the gradient. The step is optimizer->steps, which
 * the caller counts up once all tensors are updated. */
struct update {
    float *weights;
    const float *gradient;
    float scale, rate;
};

void optimizer_update(struct optimizer *optimizer, int tensor, const struct update *update, float *scratch);

#endif
