/* Journals of downloads: see download.h. */
#include "pull/download.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOURNAL_MOST (64 << 20) /* bytes of a journal: that of a larger file than disks hold */

bool pull_binding_is_firm(const struct pull_binding *binding)
{
    return binding->size > 0 && (binding->sha != NULL || binding->etag != NULL);
}

/* ---- Opening ---- */

static int fail_journal(const char *name, hearth_error *error)
{
    return error_set(error, HEARTH_IO, "cannot write %s: %s", name, strerror(errno));
}

static bool write_whole(int fd, const char *text, size_t len)
{
    ssize_t n = write(fd, text, len);
    if (n >= 0 && (size_t)n < len) errno = ENOSPC;
    return n == (ssize_t)len;
}

/* Takes up the entries where the binding is the same; whether they count. */
static bool take_up(struct pull_journal *journal, const struct buf *binding, int64_t part_size)
{
    static const char word[] = "done ";
    struct buf text = {0};
    char block[1 << 14];
    ssize_t n = 0;
    while (text.len < JOURNAL_MOST && (n = read(journal->fd, block, sizeof block)) > 0)
        buf_append(&text, block, (size_t)n);
    bool same = n == 0 && part_size == journal->size && text.len >= binding->len &&
                memcmp(buf_text(&text), binding->v, binding->len) == 0;
    if (same) {
        /* Only whole lines count: a kill may have left half of one. */
        const char *at = buf_text(&text) + binding->len;
        for (const char *end = strchr(at, '\n'); end != NULL; at = end + 1, end = strchr(at, '\n')) {
            const char *digits = strncmp(at, word, strlen(word)) == 0 ? at + strlen(word) : "";
            char *rest = NULL;
            unsigned long long piece = *digits >= '0' && *digits <= '9' ? strtoull(digits, &rest, 10) : 0;
            if (rest == end && piece < journal->n) journal->have[piece] = PULL_PIECE_DONE;
        }
    }
    /* Half a line at the end, `done 1` of `done 12`, must not become a whole one. */
    bool whole = same && buf_text(&text)[text.len - 1] == '\n';
    if (same && !whole) whole = write_whole(journal->fd, "-\n", 2);
    buf_release(&text);
    return whole;
}

int pull_journal_open(struct pull_journal *journal, int folder, const char *name, const struct pull_binding *binding,
                      int64_t part_size, bool *fresh, hearth_error *error)
{
    struct buf lines = {0};
    int rc = HEARTH_OK;
    *journal = (struct pull_journal){.size = binding->size};
    journal->n = (size_t)((binding->size + PULL_PIECE - 1) / PULL_PIECE);
    journal->have = mem_alloc(journal->n + 1);
    char hex[2 * SHA256_BYTES + 1] = "-";
    if (binding->sha != NULL) sha256_to_hex(binding->sha, hex);
    buf_printf(&lines, "hearth-pull 1\nsize %lld\npiece %d\nsha256 %s\netag %s\n", (long long)binding->size, PULL_PIECE,
               hex, binding->etag != NULL ? binding->etag : "-");
    journal->fd = openat(folder, name, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (journal->fd < 0) rc = fail_journal(name, error);
    *fresh = rc == HEARTH_OK && !(pull_binding_is_firm(binding) && take_up(journal, &lines, part_size));
    if (*fresh) {
        memset(journal->have, PULL_PIECE_MISSING, journal->n);
        if (ftruncate(journal->fd, 0) != 0 || !write_whole(journal->fd, lines.v, lines.len))
            rc = fail_journal(name, error);
    }
    buf_release(&lines);
    return rc;
}

void pull_journal_close(struct pull_journal *journal)
{
    if (journal->fd >= 0) close(journal->fd);
    free(journal->have);
    *journal = (struct pull_journal){.fd = -1};
}

/* ---- Pieces ---- */

int pull_journal_enter(struct pull_journal *journal, size_t piece, hearth_error *error)
{
    struct buf line = {0};
    buf_printf(&line, "done %zu\n", piece);
    bool good = write_whole(journal->fd, line.v, line.len);
    buf_release(&line);
    journal->have[piece] = PULL_PIECE_DONE;
    return good ? HEARTH_OK : fail_journal("the journal", error);
}

size_t pull_journal_take(struct pull_journal *journal, size_t most, size_t *first)
{
    size_t n = 0;
    for (*first = 0; *first < journal->n && journal->have[*first] != PULL_PIECE_MISSING;) ++*first;
    while (n < most && *first + n < journal->n && journal->have[*first + n] == PULL_PIECE_MISSING)
        journal->have[*first + n++] = PULL_PIECE_ASKED;
    return n;
}

int64_t pull_piece_end(const struct pull_journal *journal, size_t piece)
{
    int64_t end = ((int64_t)piece + 1) * PULL_PIECE;
    return end < journal->size ? end : journal->size;
}

int64_t pull_journal_bytes(const struct pull_journal *journal)
{
    int64_t sum = 0;
    for (size_t i = 0; i < journal->n; i++)
        if (journal->have[i] == PULL_PIECE_DONE) sum += pull_piece_end(journal, i) - (int64_t)i * PULL_PIECE;
    return sum;
}
