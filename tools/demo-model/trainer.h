/* Trains the model, step by step: batches of documents are made, their gradients computed and added up, the weights
 * moved. Its threads are the trainer's own; everything else belongs to the thread that opened it. */
#ifndef DEMO_TRAINER_H
#define DEMO_TRAINER_H

#include "documents.h"
#include "hearth.h"
#include "model.h"
#include "optimizer.h"
#include "tokenizer.h"

#include <stdbool.h>

/* A part of the training. The rate rises over the first `warm_up` steps; where it falls, it does so in a straight line,
 * to 0 at the end. */
struct stage {
    int steps;
    struct mix mix;
    int batches; /* of a step */
    float rate;
    bool falls;
};

/* What a training is; constant while it lasts. */
struct plan {
    struct shape shape;
    const struct stage *stages;
    int n_stages, warm_up;
    uint64_t seed;
};

/* Opened in its place: it must not be copied. */
struct trainer {
    const struct plan *plan;
    struct layout layout;
    float *weights;
    struct optimizer optimizer;
    int stage, step; /* the next step to do; stage == plan->n_stages: the training is complete */
    struct trainer_parts *parts;
};

/* What a step was like. */
struct step_report {
    struct loss loss;
    int tokens;
    double cost; /* floating-point operations, by model_cost() */
};

int trainer_open(struct trainer *trainer, const struct plan *plan, const struct tokenizer *tokenizer, int threads,
                 hearth_error *error);
void trainer_close(struct trainer *trainer);

/* Does the next step and counts it. Not on a complete training. */
struct step_report trainer_step(struct trainer *trainer);

/* Floating-point operations of the steps that are left, as far as they can be known. */
double trainer_cost_left(const struct trainer *trainer);

/* The learning rate of a step. */
float trainer_rate(const struct plan *plan, int stage, int step);

#endif
