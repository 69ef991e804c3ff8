/* The regression of read_cost.h: weighted sums, and the straight line through them. */
#include "store/backends/read_cost.h"

#include <assert.h>

/* Weight of all former reads when a new one is added. */
#define KEPT 0.98

/* The weight of measured reads halves every ten minutes. */
#define HALVED_AFTER_NS ((int64_t)600 * 1000000000)

/* Weight of the assumptions, in reads. */
#define ASSUMED 0.001

/* A read that takes longer than so many times the prediction counts as that much, unless the one before did too. */
#define OUTLIER_FACTOR 4

static void add(struct read_cost *cost, double bytes, double ns)
{
    cost->n += 1;
    cost->bytes += bytes;
    cost->ns += ns;
    cost->bytes2 += bytes * bytes;
    cost->bytes_ns += bytes * ns;
}

const struct read_assumed read_cost_of_disks = {.request_ns = 100e3, .byte_ns = 1};
const struct read_assumed read_cost_of_networks = {.request_ns = 1e6, .byte_ns = 1};

void read_cost_init(struct read_cost *cost, const struct read_assumed *assumed)
{
    *cost = (struct read_cost){.assumed = *assumed};
    add(cost, 0, assumed->request_ns);
    add(cost, 16e6, assumed->request_ns + 16e6 * assumed->byte_ns);
}

static void scale(struct read_cost *cost, double by)
{
    cost->n *= by;
    cost->bytes *= by;
    cost->ns *= by;
    cost->bytes2 *= by;
    cost->bytes_ns *= by;
}

/* Measured reads with their weight at `now`, plus the assumptions, whose weight does not change. */
static struct read_cost weighted_at(const struct read_cost *cost, int64_t now)
{
    struct read_cost is = *cost, assumed;
    double kept = 1;
    for (int64_t age = now - cost->noted_at; age > HALVED_AFTER_NS && kept > 1e-9; age -= HALVED_AFTER_NS) kept /= 2;
    read_cost_init(&assumed, &cost->assumed);
    scale(&is, kept);
    scale(&assumed, ASSUMED);
    is.n += assumed.n;
    is.bytes += assumed.bytes;
    is.ns += assumed.ns;
    is.bytes2 += assumed.bytes2;
    is.bytes_ns += assumed.bytes_ns;
    return is;
}

/* Where all reads had about the same size, the cost of a request alone cannot be told: then all of it is put down to
 * bytes. */
double read_cost_ns(const struct read_cost *cost, double requests, double bytes, int64_t now)
{
    struct read_cost is = weighted_at(cost, now);
    double spread = is.n * is.bytes2 - is.bytes * is.bytes;
    double a_byte = (is.n * is.bytes_ns - is.bytes * is.ns) / spread;
    double a_request = (is.ns - a_byte * is.bytes) / is.n;
    if (!(spread > 1e-6 * is.bytes2 * is.n) || a_byte < 0 || a_request < 0) {
        a_request = 0;
        a_byte = is.ns / is.bytes;
    }
    return requests * a_request + bytes * a_byte;
}

/* One outlier is put down to the machine: a disk that had to spin up, a network that paused. */
void read_cost_note(struct read_cost *cost, uint64_t bytes, int64_t ns, int64_t now)
{
    assert(ns >= 0);
    double most = OUTLIER_FACTOR * read_cost_ns(cost, 1, (double)bytes, now), took = (double)ns;
    bool slow = took > most;
    if (slow && !cost->was_slow) took = most;
    cost->was_slow = slow;
    scale(cost, KEPT);
    add(cost, (double)bytes, took);
    cost->noted_at = now;
}
