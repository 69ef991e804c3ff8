/* Documents get longer from stage to stage: copying is learnt from short ones in minutes, and then only has to reach
 * further. README.md has what each stage takes. */
#include "plan.h"

/* Heads of 64 numbers: llama.cpp can shift a quantised K cache then. 3.3 million weights, 3.6 MB as Q8_0. */
static const struct shape shape = {
    .vocabulary = PLAN_VOCABULARY,
    .dim = 256,
    .layers = 4,
    .heads = 4,
    .ff = 640,
    .context = 2048,
    .rope_base = 100000.0f,
    .epsilon = 1e-5f,
};

static const struct stage stages[] = {
    {.steps = 1200, .longest = 256, .room = 512, .batches = 8, .rate = 0.005f},
    {.steps = 1300, .longest = 640, .room = 1024, .batches = 6, .rate = 0.005f},
    {.steps = 2400, .longest = 2040, .room = 2048, .batches = 4, .rate = 0.005f, .falls = true},
};

struct plan plan_demo(uint64_t seed)
{
    return (struct plan){
        .shape = shape, .stages = stages, .n_stages = sizeof stages / sizeof *stages, .warm_up = 100, .seed = seed};
}
