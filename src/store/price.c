#include "store/price.h"

/* Of what was known before, so much is left when something is measured. */
#define KEPT 0.98

/* And what was assumed weighs so much of a read. */
#define ASSUMED 0.05

/* More than so many times what was expected counts as so much, unless it comes twice. */
#define OUT_OF_THE_ORDINARY 4

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

static void scale(struct price *price, double by)
{
    price->n *= by;
    price->bytes *= by;
    price->ns *= by;
    price->bytes2 *= by;
    price->bytes_ns *= by;
}

/* What was measured, as far as it is not forgotten, and what was assumed, which never is. */
static struct price as_of(const struct price *price, int64_t now)
{
    struct price is = *price, assumed;
    double minutes = now > price->noted_at ? (double)(now - price->noted_at) / 60e9 : 0;
    price_init(&assumed);
    scale(&is, 1 / (1 + minutes));
    scale(&assumed, ASSUMED);
    is.n += assumed.n;
    is.bytes += assumed.bytes;
    is.ns += assumed.ns;
    is.bytes2 += assumed.bytes2;
    is.bytes_ns += assumed.bytes_ns;
    return is;
}

/* The straight line through what is known. Where all reads had about the same size it says nothing of a request alone:
 * then all is put down to the bytes. */
double price_of(const struct price *price, double requests, double bytes, int64_t now)
{
    struct price is = as_of(price, now);
    double spread = is.n * is.bytes2 - is.bytes * is.bytes;
    double a_byte = (is.n * is.bytes_ns - is.bytes * is.ns) / spread;
    double a_request = (is.ns - a_byte * is.bytes) / is.n;
    if (!(spread > 1e-6 * is.bytes2 * is.n) || a_byte < 0 || a_request < 0) {
        a_request = 0;
        a_byte = is.ns / is.bytes;
    }
    return requests * a_request + bytes * a_byte;
}

/* Once is put down to the machine: a disk that had to spin up, a network that paused. */
void price_note(struct price *price, uint64_t bytes, int64_t ns, int64_t now)
{
    double most = OUT_OF_THE_ORDINARY * price_of(price, 1, (double)bytes, now), took = (double)ns;
    bool slow = took > most;
    if (slow && !price->was_slow) took = most;
    price->was_slow = slow;
    scale(price, KEPT);
    add(price, (double)bytes, took);
    price->noted_at = now;
}
