/* Batches of documents for the trainer: conversations of the corpus as tokens, with what each token counts. What a
 * batch holds depends on seed, stage and number alone, not on who asks for it. Any thread. */
#ifndef DEMO_DOCUMENTS_H
#define DEMO_DOCUMENTS_H

#include "batch.h"
#include "tokenizer.h"

struct documents {
    const struct tokenizer *tokenizer;
    uint64_t seed;
};

/* What batches are made of. */
struct mix {
    int longest; /* tokens of a document */
    int room;    /* tokens of a batch */
    int drills;  /* of 100 documents so many are corpus_drill()'s */
};

/* Fills the batch with whole documents. */
void documents_fill(const struct documents *documents, uint64_t number, const struct mix *mix, struct batch *batch);

/* Adds one conversation to the batch, as a document. */
struct conversation;
void documents_add(const struct tokenizer *tokenizer, const struct conversation *conversation, struct batch *batch);

#endif
