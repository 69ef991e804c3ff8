/* Documents get longer from stage to stage: copying is learnt from short ones in minutes, and then only has to reach
 * further. What takes longest to learn is drilled after that, less and less, so that the rest is not forgotten. */
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
    {.steps = 1200, .mix = {.longest = 256, .room = 512}, .batches = 8, .rate = 0.005f},
    {.steps = 1300, .mix = {.longest = 640, .room = 1024}, .batches = 6, .rate = 0.005f},
    {.steps = 2400, .mix = {.longest = 2040, .room = 2048}, .batches = 4, .rate = 0.005f, .falls = true},
    {.steps = 1400, .mix = {.longest = 2040, .room = 2048, .drills = 70}, .batches = 4, .rate = 0.004f, .falls = true},
    {.steps = 550, .mix = {.longest = 2040, .room = 2048, .drills = 50}, .batches = 4, .rate = 0.003f, .falls = true},
    {.steps = 380, .mix = {.longest = 2040, .room = 2048, .drills = 25}, .batches = 4, .rate = 0.002f, .falls = true},
};

struct plan plan_demo(uint64_t seed)
{
    return (struct plan){
        .shape = shape, .stages = stages, .n_stages = sizeof stages / sizeof *stages, .warm_up = 100, .seed = seed};
}
