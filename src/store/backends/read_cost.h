/* A cost model of reads from a tier, fitted while the server runs: nanoseconds for each request, and for each byte. A
 * linear regression over recent reads. */
#ifndef STORE_BACKENDS_READ_COST_H
#define STORE_BACKENDS_READ_COST_H

#include <stdbool.h>
#include <stdint.h>

/* The cost of a read before any was measured. */
struct read_assumed {
    double request_ns, byte_ns;
};

extern const struct read_assumed read_cost_of_disks;    /* 0.1 ms a request, 1 GB/s */
extern const struct read_assumed read_cost_of_networks; /* 1 ms a request, 1 GB/s: so that it is tried */

/* Sums over the reads. The last fifty or so count, and less and less with time, so that a tier that was slow once is
 * tried again. The owner of the struct guards it. */
struct read_cost {
    double n, bytes, ns, bytes2, bytes_ns;
    struct read_assumed assumed;
    int64_t noted_at;
    bool was_slow; /* the last read took much longer than predicted */
};

/* Begins with assumptions, or with what was measured otherwise. */
void read_cost_init(struct read_cost *cost, const struct read_assumed *assumed);

/* Adds a read that took `ns`. `now`: CLOCK_MONOTONIC, ns. */
void read_cost_note(struct read_cost *cost, uint64_t bytes, int64_t ns, int64_t now);

/* The predicted time of reads, in ns. */
double read_cost_ns(const struct read_cost *cost, double requests, double bytes, int64_t now);

#endif
