/* Which cells sequences have in common: llama.cpp counts the owners of a cell and tells nobody. Two sequences share
 * cells from the first on, as many as the one was given of the other and neither has lost since; so what a cut frees is
 * known without trying.
 *
 * Belongs to the engine's thread. With a stream for each sequence nothing is ever shared. */
#ifndef ENGINE_SHARING_H
#define ENGINE_SHARING_H

#include <stddef.h>
#include <stdint.h>

struct sharing {
    size_t n;        /* sequences */
    int32_t *common; /* n x n: leading cells that two have in common */
};

void sharing_init(struct sharing *sharing, size_t n_seqs);
void sharing_release(struct sharing *sharing);

/* `to`, which was empty, was given the first n cells of `from`. */
void sharing_add(struct sharing *sharing, int32_t from, int32_t to, int32_t n);

/* The sequence has its first n cells only. */
void sharing_cut(struct sharing *sharing, int32_t seq, int32_t n);

/* How many of its leading cells some other sequence has as well. */
int32_t sharing_most(const struct sharing *sharing, int32_t seq);

#endif
