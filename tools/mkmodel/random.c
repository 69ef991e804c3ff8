#include "random.h"

/* splitmix64 (public domain, Sebastiano Vigna): good enough for weights and the same everywhere. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t random_stream(uint64_t seed, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *name != '\0'; name++) hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
    hash ^= next_random(&seed);
    return next_random(&hash);
}

void random_row(float *row, int64_t n, float low, float high, uint64_t *stream)
{
    for (int64_t i = 0; i < n; i++) {
        float unit = (float)(next_random(stream) >> 40) * 0x1p-24f;
        row[i] = low + (high - low) * unit;
    }
}
