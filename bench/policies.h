/* Traces of requests, and naive models of eviction policies that replay them: bench/evict.c. One thread. */
#ifndef BENCH_POLICIES_H
#define BENCH_POLICIES_H

#include <stdint.h>

/* Prefixes as blocks of as many tokens as a slab has: a block identifies the prefix that ends with it. A request is the
 * last block of a prompt. */
struct trace {
    int32_t *parents; /* of a block; -1: it is the first of a prompt */
    int32_t *depths;  /* blocks of the prefix */
    int32_t *requests;
    int32_t n_blocks, n_requests, cap_blocks, cap_requests;
};

int32_t trace_block(struct trace *trace, int32_t parent);
void trace_request(struct trace *trace, int32_t block);
void trace_release(struct trace *trace);

/* LRU; segmented LRU, whose protected segment has at most so many percent of the quota; W-TinyLFU with a window of 20
 * %.
 */
enum policy { POLICY_LRU, POLICY_SLRU_50, POLICY_SLRU_80, POLICY_TINYLFU, POLICIES };

extern const char *const policy_names[POLICIES];

/* Looks up each request and stores the blocks that were not found, as far as the policy admits them. A block is evicted
 * after its children, and never while the request needs it. Returns the number of blocks found. */
int64_t policy_play(enum policy policy, const struct trace *trace, int32_t quota);

#endif
