/* Fingerprints of files: see fingerprint.h. The thread reads; the thread that loads the model decides whether what was
 * read still holds, and notes it. The file of known digests is parsed whole and written whole. A file that
 * known_digests_add() would not have written exactly so is refused, since only hearth writes it. */
#include "instance/models/fingerprint.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- Known digests ---- */

#define MAGIC   "hearth digests "
#define VERSION "1\n"
#define CHECK   "sha256 "

enum {
    DIGESTS_MOST = 64,
    HEX = 2 * SHA256_BYTES,
    FIELDS = 3,
    LINE_BYTES = FIELDS * (HEX + 1),
    HEAD = sizeof MAGIC VERSION - 1,
    TAIL = sizeof CHECK - 1 + HEX + 1,
    MARGIN_S = 60
};

struct known_line {
    uint8_t stamp[SHA256_BYTES], spots[SHA256_BYTES], digest[SHA256_BYTES];
};

/* The least recently used first. */
struct known_lines {
    struct known_line v[DIGESTS_MOST + 1];
    size_t n;
};

/* ---- Known digests: reading ---- */

/* 64 hexadecimal digits and the character after them. */
static bool read_field(const char *text, char end, uint8_t out[SHA256_BYTES])
{
    char hex[HEX + 1];
    memcpy(hex, text, HEX);
    hex[HEX] = '\0';
    return text[HEX] == end && sha256_from_hex(hex, out);
}

static bool read_digests(const struct buf *file, struct known_lines *lines)
{
    if (file->len < HEAD + TAIL || (file->len - HEAD - TAIL) % LINE_BYTES != 0) return false;
    size_t n = (file->len - HEAD - TAIL) / LINE_BYTES;
    if (n > DIGESTS_MOST || memcmp(file->v, MAGIC VERSION, HEAD) != 0) return false;
    /* The last line is the digest of those before it. */
    uint8_t is[SHA256_BYTES], should[SHA256_BYTES];
    const char *tail = file->v + file->len - TAIL;
    sha256_of(file->v, file->len - TAIL, is);
    if (memcmp(tail, CHECK, sizeof CHECK - 1) != 0 || !read_field(tail + sizeof CHECK - 1, '\n', should) ||
        !sha256_equal(is, should))
        return false;
    for (lines->n = 0; lines->n < n; lines->n++) {
        const char *text = file->v + HEAD + lines->n * LINE_BYTES;
        struct known_line *line = &lines->v[lines->n];
        if (!read_field(text, ' ', line->stamp) || !read_field(text + HEX + 1, ' ', line->spots) ||
            !read_field(text + 2 * (HEX + 1), '\n', line->digest))
            return false;
    }
    return true;
}

/* Of a higher version than this, whatever else it holds. */
static bool is_newer(const struct buf *file)
{
    size_t len = sizeof MAGIC - 1;
    return file->len > len && memcmp(file->v, MAGIC, len) == 0 &&
           strtoul(file->v + len, NULL, 10) > strtoul(VERSION, NULL, 10);
}

/* ---- Known digests: writing ---- */

static void put_field(struct buf *out, const uint8_t field[SHA256_BYTES], char end)
{
    char hex[HEX + 1];
    sha256_to_hex(field, hex);
    hex[HEX] = end;
    buf_append(out, hex, HEX + 1);
}

static void write_digests(struct buf *file, const struct known_lines *lines)
{
    uint8_t check[SHA256_BYTES];
    buf_clear(file);
    buf_puts(file, MAGIC VERSION);
    for (size_t i = 0; i < lines->n; i++) {
        put_field(file, lines->v[i].stamp, ' ');
        put_field(file, lines->v[i].spots, ' ');
        put_field(file, lines->v[i].digest, '\n');
    }
    sha256_of(file->v, file->len, check);
    buf_puts(file, CHECK);
    put_field(file, check, '\n');
}

/* ---- Known digests: lines ---- */

bool known_digests_find(const struct buf *file, const struct llm_file_signs *signs, uint8_t digest[SHA256_BYTES])
{
    struct known_lines lines = {.n = 0};
    if (file->len == 0) return false;
    if (!read_digests(file, &lines)) {
        log_event(LOG_WARN, "model", "known digests cannot be used: the weights are hashed",
                  log_str("reason", is_newer(file) ? "written by a newer version" : "damaged"));
        return false;
    }
    for (size_t i = 0; i < lines.n; i++) {
        if (memcmp(lines.v[i].stamp, signs->stamp, SHA256_BYTES) != 0) continue;
        if (memcmp(lines.v[i].spots, signs->spots, SHA256_BYTES) != 0) continue;
        memcpy(digest, lines.v[i].digest, SHA256_BYTES);
        return true;
    }
    return false;
}

bool known_digests_add(struct buf *file, const struct llm_file_signs *signs, const uint8_t digest[SHA256_BYTES])
{
    struct known_lines lines = {.n = 0};
    struct known_line added;
    if (file->len > 0 && is_newer(file)) return false;
    if (file->len > 0 && !read_digests(file, &lines)) lines.n = 0;
    memcpy(added.stamp, signs->stamp, SHA256_BYTES);
    memcpy(added.spots, signs->spots, SHA256_BYTES);
    memcpy(added.digest, digest, SHA256_BYTES);
    if (lines.n > 0 && memcmp(&lines.v[lines.n - 1], &added, sizeof added) == 0) return false;
    /* Of one stamp only the last line is kept: where the spots differ, the other one was of a file that is gone. */
    size_t kept = 0;
    for (size_t i = 0; i < lines.n; i++)
        if (memcmp(lines.v[i].stamp, signs->stamp, SHA256_BYTES) != 0) lines.v[kept++] = lines.v[i];
    lines.n = kept;
    lines.v[lines.n++] = added;
    if (lines.n > DIGESTS_MOST) memmove(lines.v, lines.v + 1, --lines.n * sizeof *lines.v);
    write_digests(file, &lines);
    return true;
}

bool known_digests_may_add(const struct llm_file_signs *signs, int64_t began_s)
{
    return signs->changed_s < began_s - MARGIN_S;
}

/* ---- The watch ---- */

/* How long somebody who asks waits for a look at the files. */
#define PATIENCE_MS 1000

struct paths {
    char **v;
    size_t n;
};

static void add_path(struct paths *paths, const char *path)
{
    paths->v = mem_grow(paths->v, paths->n + 1, sizeof(char *));
    paths->v[paths->n++] = mem_strdup(path);
}

static int add_part(void *ud, const struct llm_part *part, hearth_error *error)
{
    (void)error;
    add_path(ud, part->path);
    return HEARTH_OK;
}

struct file_watch *model_watch_open(const struct config_model *config, void (*report)(void *ud, const char *reason),
                                    void *ud, hearth_error *error)
{
    struct paths paths = {0};
    hearth_error told_later;
    if (llm_file_each_part(config->path, add_part, &paths, &told_later) != HEARTH_OK && paths.n == 0)
        add_path(&paths, config->path);
    for (size_t i = 0; i < config->lora.len; i++) add_path(&paths, config->lora.v[i].path);
    if (config->mmproj != NULL) add_path(&paths, config->mmproj);
    struct file_watch_params params = {.paths = (const char *const *)paths.v,
                                       .n = paths.n,
                                       .patience_ns = clock_from_ms(PATIENCE_MS),
                                       .report = report,
                                       .ud = ud};
    struct file_watch *watch = file_watch_open(&params, error);
    for (size_t i = 0; i < paths.n; i++) free(paths.v[i]);
    free(paths.v);
    return watch;
}

/* ---- The fingerprint ---- */

/* How long a cache folder on a disk that hangs may delay a load: milliseconds. */
#define DIGESTS_WAIT_MS 2000

/* ---- The fingerprint's thread ---- */

static void *compute_fingerprint(void *ud)
{
    struct fingerprint *f = ud;
    int64_t began = clock_now(clock_monotonic()), began_s = clock_unix_ms() / 1000;
    struct llm_reading how = {.stop = &f->stop, .verify = f->verify};
    hearth_error unwanted;
    bool known = false;
    f->may_note = false;
    /* Files whose signs cannot be read are hashed, which says why. */
    if (f->store != NULL && llm_file_signs(f->path, &f->signs, &unwanted) == HEARTH_OK) {
        struct buf file = {0};
        store_digests(f->store, clock_now(clock_monotonic()) + clock_from_ms(DIGESTS_WAIT_MS), &file);
        known = known_digests_find(&file, &f->signs, f->digest);
        buf_release(&file);
        /* A known digest that is not the one in a sidecar proves nothing about it: every byte is read. So it always is
         * for a model in several files, whose sidecars are of one file each. */
        known = known && (!f->verify || llm_file_matches_sidecar(f->path, f->digest));
        f->may_note = known || known_digests_may_add(&f->signs, began_s);
    }
    f->rc = known ? HEARTH_OK : llm_file_fingerprint(f->path, &how, f->digest, &f->error);
    if (f->rc == HEARTH_OK)
        log_event(LOG_INFO, "model", known ? "weights known" : "weights hashed", log_str("path", f->path),
                  log_num("took_ms", clock_to_ms(clock_now(clock_monotonic()) - began)));
    return NULL;
}

/* ---- The fingerprint, on the thread that loads ---- */

int fingerprint_start(struct fingerprint *fingerprint, const struct fingerprint_source *source, hearth_error *error)
{
    assert(!fingerprint->running);
    uint8_t former[SHA256_BYTES];
    memcpy(former, fingerprint->stamp, sizeof former);
    bool known = fingerprint->known && (fingerprint->verify || !source->verify);
    fingerprint->path = source->path;
    fingerprint->store = source->store;
    fingerprint->verify = source->verify;
    fingerprint->known = false;
    fingerprint->rc = llm_file_stamp(fingerprint->path, fingerprint->stamp, &fingerprint->error);
    if (fingerprint->rc != HEARTH_OK) return HEARTH_OK;
    fingerprint->known = known && memcmp(former, fingerprint->stamp, sizeof former) == 0;
    if (fingerprint->known) return HEARTH_OK;
    int rc = thread_start(&fingerprint->thread, compute_fingerprint, fingerprint, "reads the model's file", error);
    fingerprint->running = rc == HEARTH_OK;
    return rc;
}

bool fingerprint_finish(struct fingerprint *fingerprint)
{
    bool computed = fingerprint->running;
    if (computed) {
        pthread_join(fingerprint->thread, NULL);
        fingerprint->known = fingerprint->rc == HEARTH_OK;
    }
    fingerprint->running = false;
    if (fingerprint->known) {
        uint8_t stamp[SHA256_BYTES];
        fingerprint->known = llm_file_stamp(fingerprint->path, stamp, &fingerprint->error) == HEARTH_OK;
        if (fingerprint->known && memcmp(stamp, fingerprint->stamp, sizeof stamp) != 0) {
            error_at(&fingerprint->error, HEARTH_INVALID, fingerprint->path, "%s was changed while it was loaded",
                     fingerprint->path);
            fingerprint->known = false;
        }
    }
    /* A known digest is noted as well, since its use is its latest. */
    if (computed && fingerprint->known && fingerprint->may_note &&
        memcmp(fingerprint->signs.stamp, fingerprint->stamp, SHA256_BYTES) == 0) {
        struct buf file = {0};
        store_digests(fingerprint->store, 0, &file);
        if (known_digests_add(&file, &fingerprint->signs, fingerprint->digest))
            store_keep_digests(fingerprint->store, &file);
        buf_release(&file);
    }
    return fingerprint->known;
}

void fingerprint_stop(struct fingerprint *fingerprint)
{
    atomic_store(&fingerprint->stop, true);
    fingerprint_finish(fingerprint);
    atomic_store(&fingerprint->stop, false);
}
