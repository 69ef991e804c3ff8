/* The model: forward, loss and backward over a batch of documents, one thread each. Weights are read, gradients are
 * added to; both are laid out as shape.h says. */
#ifndef DEMO_MODEL_H
#define DEMO_MODEL_H

#include "batch.h"
#include "shape.h"

/* Memory for one thread: every intermediate result that the way back needs, of up to `tokens` tokens. */
struct workspace;

struct workspace *workspace_open(const struct layout *layout, int tokens);
void workspace_close(struct workspace *workspace);

/* Sums over a batch. The model's loss is loss / weight, in nats. */
struct loss {
    double loss, weight;        /* of all tokens, weighted */
    double spoken_loss, spoken; /* of tokens with weight 1, which the assistant speaks, and how many these are */
};

/* Computes the logits of every token. `batch` has at most the workspace's tokens. */
void model_forward(struct workspace *workspace, const float *weights, const struct batch *batch);

/* vocabulary numbers for each token: valid after model_forward(), until model_loss() replaces them. */
const float *model_logits(const struct workspace *workspace);

/* Adds to the sums, and turns the logits into their gradient. */
void model_loss(struct workspace *workspace, const struct batch *batch, struct loss *loss);

/* Adds the gradient of the summed, weighted loss. After model_loss(). */
void model_backward(struct workspace *workspace, const float *weights, const struct batch *batch, float *gradient);

/* Floating-point operations of training on one token, in a document of `length` tokens. */
double model_cost(const struct layout *layout, double length);

#endif
