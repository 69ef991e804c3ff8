#include "random.h"

#include <math.h>

/* splitmix64 (public domain, Sebastiano Vigna) */
uint64_t random_next(struct random *random)
{
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

struct random random_of(uint64_t seed, uint64_t stream)
{
    struct random first = {seed}, second = {stream ^ 0xd1b54a32d192ed03u};
    return (struct random){random_next(&first) ^ (random_next(&second) << 1)};
}

int random_below(struct random *random, int n)
{
    return (int)((random_next(random) >> 33) % (uint64_t)n);
}

int random_between(struct random *random, int a, int b)
{
    return a + random_below(random, b - a + 1);
}

bool random_chance(struct random *random, int percent)
{
    return random_below(random, 100) < percent;
}

float random_normal(struct random *random)
{
    double u = (double)((random_next(random) >> 11) + 1) * 0x1p-53, v = (double)(random_next(random) >> 11) * 0x1p-53;
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}
