/* How many leading cells each two sequences share. llama.cpp counts the owners of a cell and does not expose the count;
 * this table lets the evictor know what a cut frees without trying it. Two sequences share cells from the first on: as
 * many as one was given of the other, less what either has lost since.
 *
 * Belongs to the engine's thread. With a stream of cells for each sequence nothing is ever shared. */
#ifndef ENGINE_SHARING_H
#define ENGINE_SHARING_H

#include <stddef.h>
#include <stdint.h>

struct sharing {
    size_t n;        /* sequences */
    int32_t *common; /* n x n: leading cells that two have in common */
    int32_t *most;   /* the largest of each row: it is asked for in every round */
};

void sharing_init(struct sharing *sharing, size_t n_seqs);
void sharing_release(struct sharing *sharing);

/* `to`, which was empty, was given the first n cells of `from`. */
void sharing_add(struct sharing *sharing, int32_t from, int32_t to, int32_t n);

/* The sequence was cut back to its first n cells. */
void sharing_cut(struct sharing *sharing, int32_t seq, int32_t n);

int32_t sharing_between(const struct sharing *sharing, int32_t a, int32_t b);

/* The largest number of its leading cells that some other sequence has as well. */
int32_t sharing_most(const struct sharing *sharing, int32_t seq);

#endif
