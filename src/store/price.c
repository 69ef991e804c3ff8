#include "store/price.h"

/* Of what was known before, so much is left when something is measured. */
#define KEPT 0.98

static void add(struct price *price, double bytes, double ns)
{
    price->n += 1;
    price->bytes += bytes;
    price->ns += ns;
    price->bytes2 += bytes * bytes;
    price->bytes_ns += bytes * ns;
}

void price_init(struct price *price)
{
    *price = (struct price){0};
    add(price, 0, 100e3);
    add(price, 16e6, 16100e3);
}

void price_note(struct price *price, uint64_t bytes, int64_t ns)
{
    price->n *= KEPT;
    price->bytes *= KEPT;
    price->ns *= KEPT;
    price->bytes2 *= KEPT;
    price->bytes_ns *= KEPT;
    add(price, (double)bytes, (double)ns);
}

/* The straight line through what was measured. Where all reads had about the same size it says nothing of a request
 * alone: then all is put down to the bytes. */
double price_of(const struct price *price, double requests, double bytes)
{
    double spread = price->n * price->bytes2 - price->bytes * price->bytes;
    double a_byte = (price->n * price->bytes_ns - price->bytes * price->ns) / spread;
    double a_request = (price->ns - a_byte * price->bytes) / price->n;
    if (!(spread > 1e-6 * price->bytes2 * price->n) || a_byte < 0 || a_request < 0) {
        a_request = 0;
        a_byte = price->ns / price->bytes;
    }
    return requests * a_request + bytes * a_byte;
}
