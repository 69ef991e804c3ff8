/* hearth_bench_restore: how fast the store restores cells, from memory and from disk, compared with llama.cpp and the
 * disk alone; and how long a block occupies the engine thread. In one process, without a server: the steps are those of
 * src/engine/save.c and fetch.c, in sequence. One thread beside the store's. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "context_params.h"
#include "engine/core.h"
#include "engine/save.h"
#include "options.h"
#include "report.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define A_MINUTE_NS 60000000000

enum {
    SOURCE = 0, /* llama.cpp's sequences */
    TARGET = 1,
    BATCH = 512,
    BLOCK = 256,             /* cache.boundary_align_tokens */
    READ_BYTES = 1 << 20,    /* as of dd bs=1M */
    BACKLOG_BYTES = 1 << 28, /* as in the server */
    PATIENCE_MS = 60 * 1000
};
static const double min_ratio = 0.8; /* promised, of the speed without the store */
static const double max_kept =
    0.02; /* part of the files still in the page cache after dropping it; with more, no figure */

static const char disk_speed[] = "restore from the disk, page cache dropped";
static const char read_speed[] = "read() of the same files, page cache dropped";
static const char disk_ratio[] = "restore from the disk / read()";
static const char memory_speed[] = "restore from memory";
static const char plain_speed[] = "llama_state_seq_set_data of the same cells";
static const char memory_ratio[] = "restore from memory / llama_state_seq_set_data";

struct options {
    const char *model, *folder;
    long tokens, threads, rounds;
    bool json, help;
};

struct bench {
    const struct options *options;
    struct report *report;
    struct llm_model *model;
    struct llm_context *context;
    struct llm_state_format *format;
    struct store_user user;
    struct store *disk, *memory;
    struct tokens tokens;
    void *state; /* the whole sequence, as llama.cpp gives it */
    size_t state_bytes;
    double computing_ms;
    struct samples holds; /* times that copying a block out occupies the engine thread */
    pthread_mutex_t mutex;
    pthread_cond_t came;
    bool has_come; /* what a hit waits for */
};

static double ms_since(int64_t started)
{
    return clock_to_ms(clock_now(clock_monotonic()) - started);
}

static int64_t deadline(void)
{
    return clock_now(clock_monotonic()) + clock_from_ms(PATIENCE_MS);
}

static int32_t n_tokens(const struct bench *b)
{
    return (int32_t)b->tokens.len;
}

/* ---- The sequence ---- */

static int compute(struct bench *b, hearth_error *error)
{
    struct llm_batch_token batch[BATCH];
    int64_t started = clock_now(clock_monotonic());
    for (int32_t from = 0, n; from < n_tokens(b); from += n) {
        n = n_tokens(b) - from < BATCH ? n_tokens(b) - from : BATCH;
        for (int32_t i = 0; i < n; i++)
            batch[i] = (struct llm_batch_token){
                .token = b->tokens.v[from + i], .pos = from + i, .seq = SOURCE, .logits = from + i + 1 == n_tokens(b)};
        if (llm_decode(b->context, batch, n) != LLM_DECODED)
            return error_set(error, HEARTH_INTERNAL, "the tokens cannot be computed");
    }
    b->computing_ms = ms_since(started);
    return HEARTH_OK;
}

static int copy_state(struct bench *b, hearth_error *error)
{
    b->state_bytes = llm_seq_state_size(b->context, SOURCE, LLM_STATE_SNAPSHOT);
    b->state = malloc(b->state_bytes + 1);
    if (b->state == NULL ||
        llm_seq_save(b->context, SOURCE, LLM_STATE_SNAPSHOT, b->state, b->state_bytes) != b->state_bytes)
        return error_set(error, HEARTH_NO_MEMORY, "the sequence's state of %zu bytes cannot be had", b->state_bytes);
    fprintf(stderr, "restore: the cells of %d tokens have %zu MB\n", n_tokens(b), b->state_bytes / 1000000);
    return HEARTH_OK;
}

/* Called on a thread of the store. */
static void wake(void *ud)
{
    struct bench *b = ud;
    pthread_mutex_lock(&b->mutex);
    b->has_come = true;
    pthread_cond_signal(&b->came);
    pthread_mutex_unlock(&b->mutex);
}

static void sleep_until_woken(struct bench *b)
{
    pthread_mutex_lock(&b->mutex);
    while (!b->has_come) pthread_cond_wait(&b->came, &b->mutex);
    b->has_come = false;
    pthread_mutex_unlock(&b->mutex);
}

static int prepare(struct bench *b, hearth_error *error)
{
    const struct llm_context_params params = context_params((int32_t)b->options->tokens, 2, (int)b->options->threads);
    const struct llm_model_params weights = {.path = b->options->model, .split_mode = "layer", .weights = true};
    llm_init();
    b->model = llm_model_open(&weights, error);
    if (b->model == NULL) return error->code;
    b->context = llm_context_open(b->model, &params, error);
    if (b->context == NULL) return error->code;
    b->format = llm_state_format_open(b->context, error);
    if (b->format == NULL) return error->code;
    if (!llm_state_format_appends(b->format) || llm_state_format_has_checkpoints(b->format))
        return error_set(error, HEARTH_UNSUPPORTED, "only rows are measured: the model must be a dense one");
    b->user = (struct store_user){
        .identity = {.model = {1}, .quant = 1, .context = {1}}, .codec = codec_of(b->format), .wake = wake, .ud = b};
    for (long i = 0; i < b->options->tokens; i++) tokens_push(&b->tokens, (int32_t)(16 + i * 7 % 240));
    int rc = compute(b, error);
    return rc == HEARTH_OK ? copy_state(b, error) : rc;
}

static void close_store(struct bench *b, struct store *store)
{
    if (store == NULL) return;
    store_remove_user(store, &b->user);
    store_close(store, CLOCK_NEVER);
}

static void release(struct bench *b)
{
    close_store(b, b->disk);
    close_store(b, b->memory);
    samples_release(&b->holds);
    free(b->state);
    tokens_release(&b->tokens);
    llm_state_format_close(b->format);
    llm_context_close(b->context);
    llm_model_close(b->model);
}

/* ---- Files ---- */

/* Calls `each` with every file of the folder; stops at a failure, a negative errno. */
static int each_file(const struct bench *b, int (*each)(void *ud, int fd), void *ud)
{
    int rc = 0;
    const struct dirent *file;
    DIR *folder = opendir(b->options->folder);
    if (folder == NULL) return -errno;
    while (rc == 0 && (file = readdir(folder)) != NULL) {
        if (strstr(file->d_name, ".rows") == NULL) continue;
        int fd = openat(dirfd(folder), file->d_name, O_RDONLY | O_CLOEXEC);
        rc = fd < 0 ? -errno : each(ud, fd);
        if (fd >= 0) close(fd);
    }
    closedir(folder);
    return rc;
}

struct pages {
    size_t all, kept;
};

static int count_kept(int fd, size_t size, struct pages *pages)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (size + page - 1) / page;
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return -errno;
    unsigned char *there = mem_alloc(n);
    int rc = mincore(map, size, there) == 0 ? 0 : -errno;
    for (size_t i = 0; i < n; i++) pages->kept += there[i] & 1;
    pages->all += n;
    free(there);
    munmap(map, size);
    return rc;
}

static int drop_file(void *ud, int fd)
{
    struct stat is;
    if (fdatasync(fd) != 0 || fstat(fd, &is) != 0) return -errno;
    int failed = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return failed != 0 ? -failed : count_kept(fd, (size_t)is.st_size, ud);
}

static int drop_page_cache(const struct bench *b, hearth_error *error)
{
    struct pages pages = {0};
    int rc = each_file(b, drop_file, &pages);
    if (rc < 0) return error_set(error, HEARTH_IO, "%s cannot be dropped: %s", b->options->folder, strerror(-rc));
    if ((double)pages.kept <= max_kept * (double)pages.all) return HEARTH_OK;
    return error_set(error, HEARTH_UNSUPPORTED, "%zu of %zu pages of %s cannot be dropped: is it on a disk?",
                     pages.kept, pages.all, b->options->folder);
}

static int read_file(void *ud, int fd)
{
    ssize_t n;
    while ((n = read(fd, ud, READ_BYTES)) > 0) {
    }
    return n < 0 ? -errno : 0;
}

static int read_files(const struct bench *b, double *ms, hearth_error *error)
{
    void *bytes = mem_alloc(READ_BYTES);
    int64_t started = clock_now(clock_monotonic());
    int rc = each_file(b, read_file, bytes);
    *ms = ms_since(started);
    free(bytes);
    return rc < 0 ? error_set(error, HEARTH_IO, "%s cannot be read: %s", b->options->folder, strerror(-rc)) : HEARTH_OK;
}

/* ---- Saving ---- */

static struct store *open_store(const struct bench *b, enum store_tier tier)
{
    struct store_params params = {.stride = BLOCK,
                                  .save_tier = tier,
                                  .backlog = BACKLOG_BYTES,
                                  .save_timeout_ns = A_MINUTE_NS,
                                  .fetch_timeout_ns = A_MINUTE_NS,
                                  .scan_grace_ns = A_MINUTE_NS,
                                  .files = files_machine()};
    params.tiers[tier].quota = 2 * b->state_bytes + (1 << 20);
    params.tiers[tier].path = tier == STORE_DISK ? b->options->folder : NULL;
    return store_open(&params, NULL);
}

/* What the engine does for one block between two ticks. */
static uint64_t save_block(struct bench *b, struct store *store, int32_t from, int32_t to)
{
    size_t size = llm_rows_size(b->context, b->format, SOURCE, from, to);
    void *raw = store_buffer(store, size);
    if (raw == NULL || llm_rows_save(b->context, b->format, SOURCE, from, to, raw, size) == 0) {
        free(raw);
        return 0;
    }
    return store_save(store, &(struct store_save){.user = &b->user,
                                                  .kind = SLAB_ROWS,
                                                  .reason = SLAB_FINISH,
                                                  .tokens = b->tokens.v,
                                                  .from = from,
                                                  .to = to,
                                                  .raw = raw,
                                                  .size = size,
                                                  .last = to == n_tokens(b),
                                                  .synchronous = true});
}

/* Returns the ticket of the last block; 0: the store refused one. */
static uint64_t save_blocks(struct bench *b, struct store *store)
{
    uint64_t ticket = 1;
    for (int32_t from = 0; from < n_tokens(b) && ticket != 0; from += BLOCK) {
        int32_t to = from + BLOCK < n_tokens(b) ? from + BLOCK : n_tokens(b);
        int64_t started = clock_now(clock_monotonic());
        ticket = save_block(b, store, from, to);
        samples_add(&b->holds, ms_since(started));
    }
    return ticket;
}

static int save(struct bench *b, struct store *store, hearth_error *error)
{
    if (!store_wait_ready(store, deadline())) return error_set(error, HEARTH_IO, "the store does not get ready");
    int64_t started = clock_now(clock_monotonic());
    uint64_t ticket = save_blocks(b, store);
    if (ticket == 0 || !store_wait(store, ticket, deadline()) || metric_get(&store_stats(store)->saves_dropped) > 0)
        return error_set(error, HEARTH_IO, "the cells cannot be stored");
    fprintf(stderr, "restore: stored in %.0f ms\n", ms_since(started));
    return HEARTH_OK;
}

/* ---- Restoring ---- */

struct restored {
    double ms, longest_ms; /* all of it; the longest time that a block took into the cells */
};

static bool load(struct bench *b, const struct store_piece *piece, struct restored *out)
{
    struct llm_state_slice rows = {.bytes = piece->bytes, .size = piece->size, .from = piece->from, .to = piece->to};
    int64_t started = clock_now(clock_monotonic());
    bool loaded = llm_rows_load(b->context, b->format, TARGET, &rows) == LLM_LOADED;
    double ms = ms_since(started);
    if (ms > out->longest_ms) out->longest_ms = ms;
    return loaded;
}

static int take_all(struct bench *b, struct store_hit *hit, struct restored *out, hearth_error *error)
{
    for (;;) {
        struct store_piece piece;
        enum store_next next = store_next_piece(hit, &piece);
        if (next == STORE_END) return HEARTH_OK;
        if (next == STORE_PENDING)
            sleep_until_woken(b);
        else if (next == STORE_LOST || !load(b, &piece, out))
            return error_set(error, HEARTH_INTERNAL, "what was stored cannot be restored");
    }
}

static int restore(struct bench *b, struct store *store, struct restored *out, hearth_error *error)
{
    *out = (struct restored){0};
    llm_seq_clear(b->context, TARGET);
    int64_t started = clock_now(clock_monotonic());
    struct store_hit *hit = store_find(
        store,
        &(struct store_query){.user = &b->user, .tokens = b->tokens.v, .n = n_tokens(b), .deadline = deadline()});
    store_fetch(hit, store_hit_tokens(hit));
    int rc = take_all(b, hit, out, error);
    out->ms = ms_since(started);
    store_hit_close(hit);
    if (rc == HEARTH_OK && llm_seq_end(b->context, TARGET) != n_tokens(b))
        rc = error_set(error, HEARTH_INTERNAL, "%d of %d tokens were restored", llm_seq_end(b->context, TARGET),
                       n_tokens(b));
    return rc;
}

/* ---- Measuring ---- */

static void add_speed(struct bench *b, const char *figure, double ms)
{
    report_add(b->report, figure, "GB/s", (double)b->state_bytes / ms / 1e6);
}

static void add_per_thousand(struct bench *b, const char *figure, double ms)
{
    report_add(b->report, figure, "ms", ms * 1000 / n_tokens(b));
}

static int load_plainly(struct bench *b, double *ms, hearth_error *error)
{
    llm_seq_clear(b->context, TARGET);
    int64_t started = clock_now(clock_monotonic());
    bool loaded = llm_seq_load(b->context, TARGET, b->state, b->state_bytes, n_tokens(b)) == LLM_LOADED;
    *ms = ms_since(started);
    return loaded ? HEARTH_OK : error_set(error, HEARTH_INTERNAL, "the whole state cannot be loaded");
}

static int measure_memory(struct bench *b, hearth_error *error)
{
    double plain = 0;
    struct restored restored;
    int rc = load_plainly(b, &plain, error);
    if (rc == HEARTH_OK) rc = restore(b, b->memory, &restored, error);
    if (rc != HEARTH_OK) return rc;
    add_speed(b, memory_speed, restored.ms);
    add_speed(b, plain_speed, plain);
    report_add(b->report, memory_ratio, "", plain / restored.ms);
    add_per_thousand(b, "restoring 1,000 tokens from memory", restored.ms);
    report_add(b->report, "longest hold of the engine's thread: a block in", "ms", restored.longest_ms);
    return HEARTH_OK;
}

/* The second of two reads of the same files gains from caches below the page cache that the first one filled: the order
 * changes from round to round. */
static int measure_disk_cold(struct bench *b, long round, hearth_error *error)
{
    double plain = 0;
    struct restored restored;
    int rc = HEARTH_OK;
    for (long i = 0; i < 2 && rc == HEARTH_OK; i++) {
        rc = drop_page_cache(b, error);
        if (rc != HEARTH_OK) return rc;
        rc = (i + round) % 2 == 0 ? read_files(b, &plain, error) : restore(b, b->disk, &restored, error);
    }
    if (rc != HEARTH_OK) return rc;
    add_speed(b, disk_speed, restored.ms);
    add_speed(b, read_speed, plain);
    report_add(b->report, disk_ratio, "", plain / restored.ms);
    add_per_thousand(b, "restoring 1,000 tokens from the disk", restored.ms);
    return HEARTH_OK;
}

static int measure_disk_warm(struct bench *b, hearth_error *error)
{
    double plain = 0;
    struct restored restored;
    int rc = read_files(b, &plain, error);
    if (rc == HEARTH_OK) rc = restore(b, b->disk, &restored, error);
    if (rc != HEARTH_OK) return rc;
    add_speed(b, "restore from the disk, in the page cache", restored.ms);
    add_speed(b, "read() of the same files, in the page cache", plain);
    return HEARTH_OK;
}

static int run_round(struct bench *b, long round, hearth_error *error)
{
    int rc = measure_disk_cold(b, round, error);
    if (rc == HEARTH_OK) rc = measure_memory(b, error);
    if (rc == HEARTH_OK) rc = measure_disk_warm(b, error);
    return rc;
}

/* The first loads take longer than later ones: their cells are allocated, and memory pages are fresh. */
static int warm_up(struct bench *b, hearth_error *error)
{
    double ms;
    struct restored restored;
    b->disk = open_store(b, STORE_DISK);
    b->memory = open_store(b, STORE_RAM);
    int rc = save(b, b->disk, error);
    if (rc == HEARTH_OK) rc = save(b, b->memory, error);
    if (rc == HEARTH_OK) rc = load_plainly(b, &ms, error);
    if (rc == HEARTH_OK) rc = restore(b, b->memory, &restored, error);
    return rc;
}

static void check_promises(struct bench *b)
{
    const char *const promised[] = {disk_ratio, memory_ratio};
    for (size_t i = 0; i < sizeof promised / sizeof promised[0]; i++) {
        double ratio = samples_median(report_samples(b->report, promised[i]));
        report_check(b->report, ratio >= min_ratio, "%s %.2f >= %.1f", promised[i], ratio, min_ratio);
    }
}

static int measure(struct bench *b, hearth_error *error)
{
    const struct options *o = b->options;
    b->report = report_open("restore", (size_t)o->tokens);
    int rc = prepare(b, error);
    if (rc == HEARTH_OK) rc = warm_up(b, error);
    for (long i = 0; i < o->rounds && rc == HEARTH_OK; i++) rc = run_round(b, i, error);
    if (rc != HEARTH_OK) return rc;
    add_per_thousand(b, "computing 1,000 tokens", b->computing_ms);
    report_add(b->report, "longest hold of the engine's thread: a block out", "ms", samples_max(&b->holds));
    report_add(b->report, "median hold of the engine's thread: a block out", "ms", samples_median(&b->holds));
    check_promises(b);
    return HEARTH_OK;
}

static int run(const struct options *options)
{
    hearth_error error = {0};
    struct bench b = {.options = options, .mutex = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER};
    measure(&b, &error);
    release(&b);
    return report_conclude(b.report, options->json, "hearth_bench_restore", &error);
}

/* ---- Command line ---- */

static void print_help(void)
{
    puts("hearth_bench_restore - how fast the store brings cells back, beside what the disk and llama.cpp alone could\n"
         "\n"
         "usage: hearth_bench_restore --model FILE --folder PATH [options]\n"
         "\n"
         "  --model FILE   a dense model; it computes the tokens once\n"
         "  --folder PATH  an empty or new folder, on the disk that is to be measured; what is stored stays there\n"
         "  --tokens N     tokens that are stored (2048)\n"
         "  --threads N    threads that compute (2)\n"
         "  --rounds N     measure so many times; medians are printed (6)\n"
         "  --json         print JSON, for bench/compare.mjs\n"
         "\n"
         "example:\n"
         "  hearth_bench_restore --model Qwen3-0.6B-Q8_0.gguf --folder /tmp/kv");
}

static bool parse(int argc, char **argv, struct options *o)
{
    const struct option_row rows[] = {
        {"model", .text = &o->model},     {"folder", .text = &o->folder},
        {"tokens", .number = &o->tokens}, {"threads", .number = &o->threads},
        {"rounds", .number = &o->rounds}, {"json", .flag = &o->json},
        {"help", .flag = &o->help},       {0},
    };
    int end = options_parse(argc, argv, rows);
    if (end < 0) return false;
    if (o->help) return true;
    if (end < argc || o->model == NULL || o->folder == NULL) {
        fputs("hearth_bench_restore: give --model, --folder and nothing but options; --help lists them\n", stderr);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct options options = {.tokens = 2048, .threads = 2, .rounds = 6};
    if (!parse(argc, argv, &options)) return EXIT_BAD_USAGE;
    if (!options.help) return run(&options);
    print_help();
    return EXIT_SUCCESS;
}
