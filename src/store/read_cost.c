#include "store/read_cost.h"

/* Of what was known before, so much is left when something is measured. */
#define KEPT 0.98

/* With time it counts for less, half as much every ten minutes. */
#define HALVED_AFTER_NS ((int64_t)600 * 1000000000)

/* And what was assumed weighs so much of a read. */
#define ASSUMED 0.001

/* More than so many times what was expected counts as so much, unless it comes twice. */
#define OUT_OF_THE_ORDINARY 4

static void add(struct read_cost *price, double bytes, double ns)
{
    price->n += 1;
    price->bytes += bytes;
    price->ns += ns;
    price->bytes2 += bytes * bytes;
    price->bytes_ns += bytes * ns;
}

void read_cost_init(struct read_cost *price)
{
    *price = (struct read_cost){0};
    add(price, 0, 100e3);
    add(price, 16e6, 16100e3);
}

static void scale(struct read_cost *price, double by)
{
    price->n *= by;
    price->bytes *= by;
    price->ns *= by;
    price->bytes2 *= by;
    price->bytes_ns *= by;
}

/* What was measured, as far as it is not forgotten, and what was assumed, which never is. */
static struct read_cost as_of(const struct read_cost *price, int64_t now)
{
    struct read_cost is = *price, assumed;
    double kept = 1;
    for (int64_t age = now - price->noted_at; age > HALVED_AFTER_NS && kept > 1e-9; age -= HALVED_AFTER_NS) kept /= 2;
    read_cost_init(&assumed);
    scale(&is, kept);
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
double read_cost_ns(const struct read_cost *price, double requests, double bytes, int64_t now)
{
    struct read_cost is = as_of(price, now);
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
void read_cost_note(struct read_cost *price, uint64_t bytes, int64_t ns, int64_t now)
{
    double most = OUT_OF_THE_ORDINARY * read_cost_ns(price, 1, (double)bytes, now), took = (double)ns;
    bool slow = took > most;
    if (slow && !price->was_slow) took = most;
    price->was_slow = slow;
    scale(price, KEPT);
    add(price, (double)bytes, took);
    price->noted_at = now;
}
