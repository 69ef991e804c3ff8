/* Known digests: the file's text, parsed whole and written whole. What is not exactly what known_digests_add() writes
 * is refused: nobody but hearth writes it. */
#include "lib/models/known_digests.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC   "hearth digests "
#define VERSION "1\n"
#define CHECK   "sha256 "

enum {
    MOST = 64,
    HEX = 2 * SHA256_BYTES,
    FIELDS = 3,
    LINE = FIELDS * (HEX + 1),
    HEAD = sizeof MAGIC VERSION - 1,
    TAIL = sizeof CHECK - 1 + HEX + 1,
    MARGIN_S = 60
};

struct known_line {
    uint8_t stamp[SHA256_BYTES], spots[SHA256_BYTES], digest[SHA256_BYTES];
};

/* The least recently used first. */
struct known_lines {
    struct known_line v[MOST + 1];
    size_t n;
};

/* ---- Reading ---- */

/* 64 hexadecimal digits and the character after them. */
static bool read_field(const char *text, char end, uint8_t out[SHA256_BYTES])
{
    char hex[HEX + 1];
    memcpy(hex, text, HEX);
    hex[HEX] = '\0';
    return text[HEX] == end && sha256_from_hex(hex, out);
}

static bool read_line(const char *text, struct known_line *line)
{
    return read_field(text, ' ', line->stamp) && read_field(text + HEX + 1, ' ', line->spots) &&
           read_field(text + 2 * (HEX + 1), '\n', line->digest);
}

/* The last line is the digest of those before it. */
static bool is_whole(const struct buf *file)
{
    uint8_t is[SHA256_BYTES], should[SHA256_BYTES];
    const char *tail = file->v + file->len - TAIL;
    sha256_of(file->v, file->len - TAIL, is);
    return memcmp(tail, CHECK, sizeof CHECK - 1) == 0 && read_field(tail + sizeof CHECK - 1, '\n', should) &&
           sha256_equal(is, should);
}

static bool read_all(const struct buf *file, struct known_lines *lines)
{
    if (file->len < HEAD + TAIL || (file->len - HEAD - TAIL) % LINE != 0) return false;
    size_t n = (file->len - HEAD - TAIL) / LINE;
    if (n > MOST || memcmp(file->v, MAGIC VERSION, HEAD) != 0 || !is_whole(file)) return false;
    for (lines->n = 0; lines->n < n; lines->n++)
        if (!read_line(file->v + HEAD + lines->n * LINE, &lines->v[lines->n])) return false;
    return true;
}

/* Of a higher version than this, whatever else it holds. */
static bool is_newer(const struct buf *file)
{
    size_t len = sizeof MAGIC - 1;
    return file->len > len && memcmp(file->v, MAGIC, len) == 0 &&
           strtoul(file->v + len, NULL, 10) > strtoul(VERSION, NULL, 10);
}

/* ---- Writing ---- */

static void put_field(struct buf *out, const uint8_t field[SHA256_BYTES], char end)
{
    char hex[HEX + 1];
    sha256_to_hex(field, hex);
    hex[HEX] = end;
    buf_append(out, hex, HEX + 1);
}

static void write_all(struct buf *file, const struct known_lines *lines)
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

/* ---- Lines ---- */

static bool has_signs(const struct known_line *line, const struct llm_file_signs *signs)
{
    return memcmp(line->stamp, signs->stamp, SHA256_BYTES) == 0 && memcmp(line->spots, signs->spots, SHA256_BYTES) == 0;
}

/* Of one stamp only the last line is kept: where the spots differ, the other one was of a file that is gone. */
static void drop_stamp(struct known_lines *lines, const uint8_t stamp[SHA256_BYTES])
{
    size_t kept = 0;
    for (size_t i = 0; i < lines->n; i++)
        if (memcmp(lines->v[i].stamp, stamp, SHA256_BYTES) != 0) lines->v[kept++] = lines->v[i];
    lines->n = kept;
}

static void drop_first(struct known_lines *lines)
{
    memmove(lines->v, lines->v + 1, --lines->n * sizeof *lines->v);
}

bool known_digests_find(const struct buf *file, const struct llm_file_signs *signs, uint8_t digest[SHA256_BYTES])
{
    struct known_lines lines = {.n = 0};
    if (file->len == 0) return false;
    if (!read_all(file, &lines)) {
        log_event(LOG_WARN, "model", "known digests cannot be used: the weights are hashed",
                  log_str("reason", is_newer(file) ? "written by a newer version" : "damaged"));
        return false;
    }
    for (size_t i = 0; i < lines.n; i++) {
        if (!has_signs(&lines.v[i], signs)) continue;
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
    if (file->len > 0 && !read_all(file, &lines)) lines.n = 0;
    memcpy(added.stamp, signs->stamp, SHA256_BYTES);
    memcpy(added.spots, signs->spots, SHA256_BYTES);
    memcpy(added.digest, digest, SHA256_BYTES);
    if (lines.n > 0 && memcmp(&lines.v[lines.n - 1], &added, sizeof added) == 0) return false;
    drop_stamp(&lines, signs->stamp);
    lines.v[lines.n++] = added;
    if (lines.n > MOST) drop_first(&lines);
    write_all(file, &lines);
    return true;
}

bool known_digests_may_add(const struct llm_file_signs *signs, int64_t began_s)
{
    return signs->changed_s < began_s - MARGIN_S;
}
