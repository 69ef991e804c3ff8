/* What reading from a tier costs on this machine, measured while it runs: so much a request, and so much a byte. */
#ifndef STORE_PRICE_H
#define STORE_PRICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sums over what was read; the last fifty or so count, and less and less with time, so that what was dear once is tried
 * again. Guarded by whoever owns it. */
struct price {
    double n, bytes, ns, bytes2, bytes_ns;
    int64_t noted_at;
    bool was_slow; /* the last one was out of the ordinary */
};

/* What is assumed before anything was measured: 0.1 ms a request, a gigabyte a second. */
void price_init(struct price *price);

/* `now`: CLOCK_MONOTONIC, ns. */
void price_note(struct price *price, uint64_t bytes, int64_t ns, int64_t now);

/* Nanoseconds. */
double price_of(const struct price *price, double requests, double bytes, int64_t now);

#endif
