/* Pseudo-random numbers that are the same on every machine: a stream for each tensor, seeded by the seed and the
 * tensor's name, so that one layer more or less does not change the others. Pure functions. */
#ifndef MKMODEL_RANDOM_H
#define MKMODEL_RANDOM_H

#include <stdint.h>

uint64_t random_stream(uint64_t seed, const char *name);

/* n uniform numbers in low..high; advances the stream. */
void random_row(float *row, int64_t n, float low, float high, uint64_t *stream);

#endif
