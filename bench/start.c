/* Start time and memory of a store with many slabs: `start N…` writes N small slabs (256 tokens, in conversations of
 * 32) and an index file to a folder of its own, and opens a store on it three times: with that index file; without one,
 * which reads the head of each slab; and with the index file that this wrote. Page caches are dropped before each,
 * where that is permitted.
 *
 * No server, no model. The folder is made in --folder (/tmp) and removed. */
#include "base/clock.h"
#include "base/memory.h"
#include "store/backends/folder_parts.h"
#include "store/store.h"

#include <fcntl.h>
#include <ftw.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 256, CHAIN = 32, ROW_BYTES = 1 };

#define A_MINUTE_NS 60000000000

/* ---- The slabs ---- */

static void die(const char *what)
{
    fprintf(stderr, "start: %s\n", what);
    exit(1);
}

/* Writes the file in place, without the fsyncs that make a save durable, which would take hours here. */
static void write_slab(int folder, struct slab_head *head, const uint8_t *payload)
{
    struct buf bytes = {0};
    uint8_t trailer[SLAB_TRAILER_BYTES];
    char name[2 * SHA256_BYTES + 6];
    sha256_to_hex(head->key.v, name);
    strcat(name, ".rows");
    slab_encode(head, payload, &bytes, trailer);
    buf_append(&bytes, payload, (size_t)head->payload_size);
    buf_append(&bytes, trailer, sizeof trailer);
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || write(fd, bytes.v, bytes.len) != (ssize_t)bytes.len) die("a slab could not be written");
    close(fd);
    buf_release(&bytes);
}

static void ignore(void *ud, struct slab_head *head, uint64_t size)
{
    (void)ud;
    (void)head;
    (void)size;
}

static void write_conversation(int folder, struct index_file *index_file, size_t number, size_t n)
{
    const struct identity identity = {.quant = 1};
    uint8_t payload[BLOCK * ROW_BYTES] = {1};
    struct slab_region region = {.what = 'K', .rows = BLOCK, .row_bytes = ROW_BYTES, .size = sizeof payload};
    struct slab_key keys[CHAIN];
    int32_t tokens[BLOCK * CHAIN];
    for (size_t i = 0; i < BLOCK * CHAIN; i++) tokens[i] = (int32_t)((number * 31 + i * 7) % 50000);
    tokens[0] = (int32_t)number;
    slab_keys_at_strides(&identity, tokens, BLOCK * CHAIN, BLOCK, keys);
    for (size_t i = 0; i < n; i++) {
        struct slab_head head = {.kind = SLAB_ROWS,
                                 .reason = SLAB_FINISH,
                                 .identity = identity,
                                 .key = keys[i],
                                 .start = (int32_t)(i * BLOCK),
                                 .end = (int32_t)((i + 1) * BLOCK),
                                 .tokens = {.v = tokens + i * BLOCK, .len = BLOCK},
                                 .regions = &region,
                                 .n_regions = 1,
                                 .payload_size = sizeof payload,
                                 .created_ms = 1,
                                 .used_ms = 1};
        if (i > 0) head.parent = keys[i - 1];
        write_slab(folder, &head, payload);
        index_file_add(index_file, &head, slab_size(&head));
    }
}

static void write_slabs(const char *path, size_t n)
{
    int folder = open(path, O_RDONLY | O_DIRECTORY);
    struct index_file *index_file = index_file_open(files_machine(), folder);
    index_file_replay(index_file, NULL, 0, ignore, NULL);
    for (size_t i = 0; i < n; i += CHAIN)
        write_conversation(folder, index_file, i / CHAIN, n - i < CHAIN ? n - i : CHAIN);
    index_file_commit(index_file);
    index_file_close(index_file);
    close(folder);
    sync();
}

/* ---- One start ---- */

static bool drop_caches(void)
{
    int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);
    bool dropped = fd >= 0 && write(fd, "3", 1) == 1;
    if (fd >= 0) close(fd);
    return dropped;
}

static size_t in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void measure(const char *path, size_t n, const char *how)
{
    struct store_params params = {.stride = BLOCK,
                                  .save_tier = STORE_DISK,
                                  .backlog = 1 << 20,
                                  .save_timeout_ns = A_MINUTE_NS,
                                  .fetch_timeout_ns = A_MINUTE_NS,
                                  .files = files_machine()};
    params.tiers[STORE_DISK] = (struct store_tier_params){.quota = UINT64_MAX / 4, .path = path};
    bool cold = drop_caches();
    size_t before = in_use();
    int64_t began = clock_now(clock_monotonic());
    struct store *store = store_open(&params, NULL);
    if (!store_wait_ready(store, CLOCK_NEVER)) die("never ready");
    double seconds = clock_to_ms(clock_now(clock_monotonic()) - began) / 1000;
    struct store_tier_status status;
    store_tier_status(store, STORE_DISK, &status);
    printf("| %zu | %s | %s | %.2f | %.0f |\n", n, how, cold ? "cold" : "warm", seconds,
           (double)(in_use() - before) / (double)n);
    fflush(stdout);
    if (status.entries != n) die("not all were found");
    store_close(store, CLOCK_NEVER);
}

/* ---- All of them ---- */

static int remove_one(const char *path, const struct stat *status, int what, struct FTW *walk)
{
    (void)status;
    (void)what;
    (void)walk;
    return remove(path);
}

int main(int argc, char **argv)
{
    const char *root = "/tmp";
    printf("| slabs | index file | page cache | seconds until all are known | bytes of memory a slab |\n"
           "| ---: | --- | --- | ---: | ---: |\n");
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--folder") == 0 && i + 1 < argc) {
            root = argv[++i];
            continue;
        }
        size_t n = strtoul(argv[i], NULL, 10);
        char *path = mem_format("%s/hearth-start-XXXXXX", root);
        if (n == 0 || mkdtemp(path) == NULL) die("usage: start [--folder DIR] N...");
        write_slabs(path, n);
        char *index = mem_format("%s/%s", path, INDEX_FILE_NAME);
        measure(path, n, "as saves wrote it");
        remove(index);
        measure(path, n, "none");
        measure(path, n, "as that start wrote it");
        free(index);
        nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
        free(path);
    }
    return 0;
}
