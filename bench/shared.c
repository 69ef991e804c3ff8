/* hearth_bench_shared: how many bytes a second go to a Redis server and come back through the store's backend for
 * shared servers, sealed, checked and cut into parts. Slabs of one size, one after the other on one connection, as a
 * saver and a fetcher send them. bench/shared.mjs compares that with redis-benchmark. One thread. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "options.h"
#include "report.h"
#include "store/remote/remote_backend.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256, ROUNDS = 5 };

struct options {
    const char *url;
    long bytes, slabs;
    bool encrypts, json, help;
};

static struct slab_key key_of(long number)
{
    struct slab_key key = {{1}};
    memcpy(key.v + 1, &number, sizeof number);
    return key;
}

static int put_one(struct backend *backend, const struct buf *payload, long number, int64_t *ns, hearth_error *error)
{
    int32_t tokens[BLOCK] = {0};
    struct slab_region region = {.what = 'K', .rows = BLOCK, .row_bytes = payload->len / BLOCK, .size = payload->len};
    struct slab_head head = {.kind = SLAB_ROWS,
                             .reason = SLAB_FINISH,
                             .identity = {.quant = 1},
                             .key = key_of(number),
                             .end = BLOCK,
                             .tokens = {.v = tokens, .len = BLOCK},
                             .regions = &region,
                             .n_regions = 1,
                             .payload_size = payload->len,
                             .created_ms = 1,
                             .used_ms = 1};
    struct buf bytes = *payload; /* this backend takes none */
    int64_t began = clock_now(clock_monotonic());
    int rc = backend->put(backend, &head, &bytes, error);
    *ns += clock_now(clock_monotonic()) - began;
    return rc;
}

static int get_one(struct backend *backend, const struct buf *payload, long number, int64_t *ns, hearth_error *error)
{
    struct slab slab = {0};
    const struct slab_name name = {key_of(number), SLAB_ROWS};
    int64_t began = clock_now(clock_monotonic());
    int rc = backend->get(backend, &name, &slab, error);
    *ns += clock_now(clock_monotonic()) - began;
    if (rc != HEARTH_OK) return rc;
    bool same = slab.head.payload_size == payload->len && memcmp(slab.payload, payload->v, payload->len) == 0;
    slab_release(&slab);
    return same ? HEARTH_OK : error_set(error, HEARTH_INTERNAL, "other bytes came back");
}

/* Adds to ns what its call of the backend took. */
typedef int each_slab(struct backend *backend, const struct buf *payload, long number, int64_t *ns,
                      hearth_error *error);

/* Each round has slabs of its own: one that is there is not written again. */
static void measure(struct backend *backend, const struct options *options, struct report *report, hearth_error *error)
{
    static const struct {
        const char *figure;
        each_slab *each;
    } ways[] = {{"put", put_one}, {"get", get_one}};
    struct buf payload = {0};
    int rc = HEARTH_OK;
    for (long i = 0; i < options->bytes; i++) buf_append(&payload, &(uint8_t){(uint8_t)(i * 2654435761u >> 24)}, 1);
    for (long round = 0; round < ROUNDS && rc == HEARTH_OK; round++) {
        for (size_t way = 0; way < sizeof ways / sizeof *ways && rc == HEARTH_OK; way++) {
            int64_t ns = 0;
            for (long i = 0; i < options->slabs && rc == HEARTH_OK; i++)
                rc = ways[way].each(backend, &payload, round * options->slabs + i, &ns, error);
            if (rc == HEARTH_OK)
                report_add(report, ways[way].figure, "MB/s",
                           (double)options->bytes * (double)options->slabs * 1e3 / (double)ns);
        }
    }
    buf_release(&payload);
}

int main(int argc, char **argv)
{
    struct options options = {.bytes = 2 << 20, .slabs = 50};
    const struct option_row rows[] = {{"url", .text = &options.url},
                                      {"bytes", .number = &options.bytes},
                                      {"slabs", .number = &options.slabs},
                                      {"json", .flag = &options.json},
                                      {"help", .flag = &options.help},
                                      {"encrypts", .flag = &options.encrypts},
                                      {0}};
    if (options_parse(argc, argv, rows) != argc || options.help || options.url == NULL || options.bytes % BLOCK != 0) {
        fprintf(stderr,
                "usage: hearth_bench_shared --url unix:PATH [--bytes N, a multiple of %d] [--slabs N] [--encrypts] "
                "[--json]\n",
                BLOCK);
        return options.help ? 0 : EXIT_BAD_USAGE;
    }
    const struct remote_params params = {.url = options.url,
                                         .prefix = "bench",
                                         .encrypts = options.encrypts,
                                         .timeout_ns = clock_from_ms(10000),
                                         .stride = BLOCK};
    hearth_error error = {0};
    struct report *report = report_open("shared", 0);
    struct backend *backend = remote_backend_open(&params);
    if (backend->open(backend, &error) == HEARTH_OK) measure(backend, &options, report, &error);
    backend->close(backend);
    return report_conclude(report, options.json, "hearth_bench_shared", &error);
}
