/* Documents as tokens, several of them one after the other, so that small ones make large matrix products. */
#ifndef DEMO_BATCH_H
#define DEMO_BATCH_H

#include <stddef.h>
#include <stdint.h>

/* Token i is predicted from the tokens of its document before it; weights[i] is what that counts in the loss. The first
 * token of a document is predicted by none. One owner; batch_release() frees it, and {0} is an empty one. */
struct batch {
    int32_t *tokens;
    float *weights;
    int n_tokens, capacity;
    int *starts; /* where each document begins; starts[n_documents] is n_tokens */
    int n_documents;
};

void batch_clear(struct batch *batch); /* keeps the memory */
void batch_release(struct batch *batch);

/* Adds tokens to the document at the end, which batch_end_document() completes. */
void batch_add(struct batch *batch, const int32_t *tokens, int n, float weight);
void batch_end_document(struct batch *batch);

/* Drops the tokens of the document that was not completed. */
void batch_drop_document(struct batch *batch);

/* How long that document is. */
int batch_pending(const struct batch *batch);

#endif
