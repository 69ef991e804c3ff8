/* What reading from a tier costs on this machine, measured while it runs: so much a request, and so much a byte. */
#ifndef STORE_PRICE_H
#define STORE_PRICE_H

#include <stddef.h>
#include <stdint.h>

/* Sums over what was read; the last fifty or so count. Guarded by whoever owns it. */
struct price {
    double n, bytes, ns, bytes2, bytes_ns;
};

/* What is assumed before anything was measured: 0.1 ms a request, a gigabyte a second. */
void price_init(struct price *price);

void price_note(struct price *price, uint64_t bytes, int64_t ns);

/* Nanoseconds. */
double price_of(const struct price *price, double requests, double bytes);

#endif
