/* Computes the fingerprint of a model, SHA-256 over every byte of its files, and verifies the files against their
 * sidecars FILE.sha256. Finds the signs by which files that were hashed before are recognised (stamp and spots), and
 * the name of the quantisation. A model split into several files is hashed as their concatenation. No state; any
 * thread. */
#include "llm/model_identity.h"

#include "base/error.h"
#include "base/file_watch.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/sha256.h"
#include "llm/gguf_file.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <llama.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Sidecars ---- */

bool llm_file_has_sidecar(const char *path)
{
    char *sidecar = mem_format("%s.sha256", path);
    bool there = access(sidecar, F_OK) == 0;
    free(sidecar);
    return there;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* "DIGEST  NAME", "DIGEST *NAME" or the digest alone; without its end of line. */
static bool is_line_for(char *line, const char *name, uint8_t digest[SHA256_BYTES])
{
    enum { DIGITS = 2 * SHA256_BYTES };
    line[strcspn(line, "\r\n")] = '\0';
    if (strlen(line) < DIGITS) return false;
    char *rest = line + DIGITS;
    if (*rest != '\0') *rest++ = '\0';
    for (char *c = line; *c != '\0'; c++) *c = (char)tolower((unsigned char)*c);
    rest += strspn(rest, " *");
    return (*rest == '\0' || strcmp(base_name(rest), name) == 0) && sha256_from_hex(line, digest);
}

/* Reads the digest of the file from FILE.sha256. */
static int read_sidecar(const char *path, uint8_t digest[SHA256_BYTES], hearth_error *error)
{
    char *sidecar = mem_format("%s.sha256", path), line[4096];
    FILE *file = fopen(sidecar, "re");
    bool found = false;
    int code = HEARTH_OK;
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
        found = is_line_for(line, base_name(path), digest);
    if (file == NULL)
        code = error_at(error, HEARTH_IO, sidecar, "cannot read %s: %s", sidecar, strerror(errno));
    else if (!found)
        code = error_at(error, HEARTH_INVALID, sidecar,
                        "%s has no SHA-256 digest of %s: write it with sha256sum, or remove the file", sidecar,
                        base_name(path));
    if (file != NULL) fclose(file);
    free(sidecar);
    return code;
}

/* ---- Content ---- */

/* Bytes between two checks of `stop`. */
enum { CHUNK = 1 << 20 };

static int cannot_read(const char *path, hearth_error *error)
{
    return error_at(error, errno == ENOENT ? HEARTH_NOT_FOUND : HEARTH_IO, path, "cannot read the model %s: %s", path,
                    strerror(errno));
}

/* The files that are hashed, one after the other. */
struct feeding {
    const struct llm_reading *how;
    struct sha256 *all, *own; /* own: of the file that is verified now; else NULL */
    uint8_t *chunk;
};

static int feed_bytes(const struct feeding *feeding, int fd, const char *path, hearth_error *error)
{
    const _Atomic bool *stop = feeding->how->stop;
    for (;;) {
        if (stop != NULL && atomic_load(stop)) return error_at(error, HEARTH_CANCELLED, path, "stopped");
        ssize_t n = read(fd, feeding->chunk, CHUNK);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return cannot_read(path, error);
        if (n == 0) return HEARTH_OK;
        sha256_feed(feeding->all, feeding->chunk, (size_t)n);
        if (feeding->own != NULL) sha256_feed(feeding->own, feeding->chunk, (size_t)n);
    }
}

static int feed_file(const struct feeding *feeding, const char *path, hearth_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return cannot_read(path, error);
    os_expect_reading(fd);
    int code = feed_bytes(feeding, fd, path, error);
    close(fd);
    return code;
}

/* Counts the files of the model and finds the common prefix of their names; a single file may have any name. */
static int count_parts(const char *path, char prefix[PATH_MAX], int32_t *n, hearth_error *error)
{
    *n = 1;
    struct gguf_context *file = llm_file_open(path, error);
    if (file == NULL) return (int)error->code;
    int64_t count = llm_file_number(file, "split.count", 1), at = llm_file_number(file, "split.no", 0);
    gguf_free(file);
    if (count <= 1 || count > UINT16_MAX) return HEARTH_OK;
    *n = (int32_t)count;
    if (llama_split_prefix(prefix, PATH_MAX, path, (int32_t)at, *n) > 0) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, path,
                    "%s is part %lld of a model in %lld files, but not named so: give it back its name", path,
                    (long long)at + 1, (long long)count);
}

int llm_file_each_part(const char *path, int (*each)(void *ud, const struct llm_part *part, hearth_error *error),
                       void *ud, hearth_error *error)
{
    assert(path != NULL && each != NULL);
    char prefix[PATH_MAX], name[PATH_MAX];
    int32_t n;
    int code = count_parts(path, prefix, &n, error);
    for (int32_t i = 0; i < n && code == HEARTH_OK; i++) {
        if (n > 1) llama_split_path(name, sizeof name, prefix, i, n);
        code = each(ud, &(struct llm_part){n > 1 ? name : path, n}, error);
    }
    return code;
}

static int cannot_look(const char *path, hearth_error *error)
{
    return error_at(error, HEARTH_IO, path, "cannot look at %s: %s", path, strerror(errno));
}

static void feed_stamp(struct sha256 *hash, const struct stat *st)
{
    struct file_stamp stamp = file_stamp_of(st);
    sha256_feed(hash, &stamp, sizeof stamp);
}

static int stamp_file(void *ud, const struct llm_part *part, hearth_error *error)
{
    struct stat st;
    if (stat(part->path, &st) != 0) return cannot_look(part->path, error);
    feed_stamp(ud, &st);
    return HEARTH_OK;
}

int llm_file_stamp(const char *path, uint8_t stamp[32], hearth_error *error)
{
    struct sha256 *hash = sha256_open();
    int code = llm_file_each_part(path, stamp_file, hash, error);
    sha256_so_far(hash, stamp);
    sha256_close(hash);
    return code;
}

static int feed_part(void *ud, const struct llm_part *part, hearth_error *error)
{
    struct feeding *feeding = ud;
    const char *path = part->path;
    uint8_t got[SHA256_BYTES], wanted[SHA256_BYTES];
    if (!feeding->how->verify || !llm_file_has_sidecar(path)) return feed_file(feeding, path, error);
    int code = read_sidecar(path, wanted, error);
    if (code != HEARTH_OK) return code;
    feeding->own = sha256_open();
    code = feed_file(feeding, path, error);
    sha256_so_far(feeding->own, got);
    sha256_close(feeding->own);
    feeding->own = NULL;
    if (code != HEARTH_OK || memcmp(got, wanted, SHA256_BYTES) == 0) return code;
    char is[2 * SHA256_BYTES + 1], should[2 * SHA256_BYTES + 1];
    sha256_to_hex(got, is);
    sha256_to_hex(wanted, should);
    return error_at(error, HEARTH_INVALID, path,
                    "%s is damaged or another file: its SHA-256 begins with %.16s, that in %s.sha256 with %.16s; copy "
                    "it again, or set ignore_integrity_check",
                    path, is, path, should);
}

int llm_file_fingerprint(const char *path, const struct llm_reading *how, uint8_t digest[32], hearth_error *error)
{
    assert(how != NULL && digest != NULL);
    hearth_error unwanted;
    struct feeding feeding = {.how = how, .all = sha256_open(), .chunk = mem_alloc(CHUNK)};
    int code = llm_file_each_part(path, feed_part, &feeding, error != NULL ? error : &unwanted);
    if (code == HEARTH_OK) sha256_so_far(feeding.all, digest);
    sha256_close(feeding.all);
    free(feeding.chunk);
    return code;
}

bool llm_file_matches_sidecar(const char *path, const uint8_t digest[32])
{
    uint8_t wanted[SHA256_BYTES];
    hearth_error unwanted;
    return read_sidecar(path, wanted, &unwanted) == HEARTH_OK && sha256_equal(wanted, digest);
}

/* ---- Signs ---- */

/* Spots of a model, whose files have as many each, but two at least: their first and last bytes. */
enum { SPOTS = 64, SPOT_BYTES = 64 << 10 };

struct look {
    struct sha256 *stamp, *spots;
    int64_t changed_s;
    uint8_t *bytes; /* SPOT_BYTES */
};

static int feed_spot(const struct look *look, int fd, uint64_t at, const char *path, hearth_error *error)
{
    size_t done = 0;
    while (done < SPOT_BYTES) {
        ssize_t n = pread(fd, look->bytes + done, SPOT_BYTES - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return cannot_read(path, error);
        if (n == 0) break;
        done += (size_t)n;
    }
    sha256_feed(look->spots, look->bytes, done);
    return HEARTH_OK;
}

static int look_at_open(struct look *look, int fd, const struct llm_part *part, hearth_error *error)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return cannot_look(part->path, error);
    feed_stamp(look->stamp, &st);
    int64_t content_s = os_time_of_content(&st).tv_sec, inode_s = os_time_of_inode(&st).tv_sec;
    if (content_s > look->changed_s) look->changed_s = content_s;
    if (inode_s > look->changed_s) look->changed_s = inode_s;
    uint64_t size = (uint64_t)st.st_size, n = SPOTS / part->n > 2 ? (uint64_t)(SPOTS / part->n) : 2;
    int code = HEARTH_OK;
    for (uint64_t i = 0; i < n && code == HEARTH_OK; i++) {
        /* Spots follow each other without gaps in a file that they cover. */
        uint64_t at = size <= n * SPOT_BYTES ? i * SPOT_BYTES : (size - SPOT_BYTES) * i / (n - 1);
        code = feed_spot(look, fd, at, part->path, error);
    }
    return code;
}

/* The stamp is that of the open file, whose spots are read. (A network file system asks its server when a file is
 * opened.) */
static int look_at_part(void *ud, const struct llm_part *part, hearth_error *error)
{
    int fd = open(part->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return cannot_read(part->path, error);
    int code = look_at_open(ud, fd, part, error);
    close(fd);
    return code;
}

int llm_file_signs(const char *path, struct llm_file_signs *signs, hearth_error *error)
{
    assert(signs != NULL);
    struct look look = {.stamp = sha256_open(), .spots = sha256_open(), .bytes = mem_alloc(SPOT_BYTES)};
    int code = llm_file_each_part(path, look_at_part, &look, error);
    sha256_so_far(look.stamp, signs->stamp);
    sha256_so_far(look.spots, signs->spots);
    signs->changed_s = look.changed_s;
    sha256_close(look.stamp);
    sha256_close(look.spots);
    free(look.bytes);
    return code;
}

/* ---- Type of the weights ---- */

/* Some of llama.cpp's types are mixtures that differ in a few tensors only and have the name of the type they share. */
static const struct {
    enum llama_ftype type;
    const char *name;
} quants[] = {
    {LLAMA_FTYPE_ALL_F32, "f32"},
    {LLAMA_FTYPE_MOSTLY_F16, "f16"},
    {LLAMA_FTYPE_MOSTLY_BF16, "bf16"},
    {LLAMA_FTYPE_MOSTLY_Q4_0, "q4_0"},
    {LLAMA_FTYPE_MOSTLY_Q4_1, "q4_1"},
    {LLAMA_FTYPE_MOSTLY_Q5_0, "q5_0"},
    {LLAMA_FTYPE_MOSTLY_Q5_1, "q5_1"},
    {LLAMA_FTYPE_MOSTLY_Q8_0, "q8_0"},
    {LLAMA_FTYPE_MOSTLY_Q2_K, "q2_k"},
    {LLAMA_FTYPE_MOSTLY_Q2_K_S, "q2_k"},
    {LLAMA_FTYPE_MOSTLY_Q3_K_S, "q3_k_s"},
    {LLAMA_FTYPE_MOSTLY_Q3_K_M, "q3_k_m"},
    {LLAMA_FTYPE_MOSTLY_Q3_K_L, "q3_k_l"},
    {LLAMA_FTYPE_MOSTLY_Q4_K_M, "q4_k_m"},
    {LLAMA_FTYPE_MOSTLY_Q4_K_S, "q4_k_s"},
    {LLAMA_FTYPE_MOSTLY_Q5_K_M, "q5_k_m"},
    {LLAMA_FTYPE_MOSTLY_Q5_K_S, "q5_k_s"},
    {LLAMA_FTYPE_MOSTLY_Q6_K, "q6_k"},
    {LLAMA_FTYPE_MOSTLY_IQ2_XXS, "iq2_xxs"},
    {LLAMA_FTYPE_MOSTLY_IQ2_XS, "iq2_xs"},
    {LLAMA_FTYPE_MOSTLY_IQ2_S, "iq2_s"},
    {LLAMA_FTYPE_MOSTLY_IQ2_M, "iq2_m"},
    {LLAMA_FTYPE_MOSTLY_IQ3_XXS, "iq3_xxs"},
    {LLAMA_FTYPE_MOSTLY_IQ3_XS, "iq3_xs"},
    {LLAMA_FTYPE_MOSTLY_IQ3_S, "iq3_s"},
    {LLAMA_FTYPE_MOSTLY_IQ3_M, "iq3_m"},
    {LLAMA_FTYPE_MOSTLY_IQ1_S, "iq1_s"},
    {LLAMA_FTYPE_MOSTLY_IQ1_M, "iq1_m"},
    {LLAMA_FTYPE_MOSTLY_IQ4_NL, "iq4_nl"},
    {LLAMA_FTYPE_MOSTLY_IQ4_XS, "iq4_xs"},
};

const char *llm_file_quant(const char *path)
{
    hearth_error error;
    struct gguf_context *file = llm_file_open(path, &error);
    if (file == NULL) return "unknown";
    int64_t type = llm_file_number(file, "general.file_type", -1);
    gguf_free(file);
    for (size_t i = 0; i < sizeof quants / sizeof *quants; i++)
        if ((int64_t)quants[i].type == type) return quants[i].name;
    return "unknown";
}
