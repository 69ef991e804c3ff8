/* What the demo model is: its shape and its training. Constant. */
#ifndef DEMO_PLAN_H
#define DEMO_PLAN_H

#include "trainer.h"

/* The plan of models/demo.gguf; the vocabulary's size is that of the tokenizer. */
struct plan plan_demo(uint64_t seed);

enum {
    PLAN_VOCABULARY = 1280,   /* tokens */
    PLAN_SAMPLE = 20000,      /* conversations that the vocabulary is made from */
    PLAN_SAMPLE_LENGTH = 700, /* characters of each, at most */
    PLAN_LEAST = 60           /* how often a word must be in them to count */
};

#endif
