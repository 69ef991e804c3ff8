/* Pseudo-random numbers that are the same on every machine. A struct random belongs to one thread. */
#ifndef DEMO_RANDOM_H
#define DEMO_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

struct random {
    uint64_t state;
};

/* The stream-th of a seed's streams, which have nothing to do with each other. */
struct random random_of(uint64_t seed, uint64_t stream);

uint64_t random_next(struct random *random);
int random_below(struct random *random, int n);          /* 0 to n - 1; n is at least 1 */
int random_between(struct random *random, int a, int b); /* a to b */
bool random_chance(struct random *random, int percent);
float random_normal(struct random *random); /* mean 0, deviation 1 */

#endif
