/* What reading from a tier costs on this machine, measured while it runs: so much a request, and so much a byte. */
#ifndef STORE_READ_COST_H
#define STORE_READ_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sums over what was read; the last fifty or so count, and less and less with time, so that what was dear once is tried
 * again. Guarded by whoever owns it. */
struct read_cost {
    double n, bytes, ns, bytes2, bytes_ns;
    int64_t noted_at;
    bool was_slow; /* the last one was out of the ordinary */
};

/* What is assumed before anything was measured: 0.1 ms a request, a gigabyte a second. */
void read_cost_init(struct read_cost *price);

/* `now`: CLOCK_MONOTONIC, ns. */
void read_cost_note(struct read_cost *price, uint64_t bytes, int64_t ns, int64_t now);

/* Nanoseconds. */
double read_cost_ns(const struct read_cost *price, double requests, double bytes, int64_t now);

#endif
