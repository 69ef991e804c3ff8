/* Pasted text in a line that is typed: see pastes.h. */
#include "cli/chat/pastes.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a pasted text that is edited like typed text. */
#define SHORT_MOST 256

#define DELETE     0x7f

void pastes_clean(struct buf *out, const char *bytes, size_t len)
{
    struct buf plain = {0};
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        const bool is_end = c == '\n' || c == '\r';
        if (is_end)
            buf_append(&plain, "\n", 1);
        else if (c == '\t' || (c >= ' ' && c != DELETE))
            buf_append(&plain, &bytes[i], 1);
        if (c == '\n' && i + 1 < len && bytes[i + 1] == '\r') i++;
    }
    utf8_put_clean(out, buf_text(&plain), plain.len);
    buf_release(&plain);
}

static size_t count_lines(const struct buf *text)
{
    size_t lines = text->len > 0 && text->v[text->len - 1] != '\n';
    for (size_t i = 0; i < text->len; i++) lines += text->v[i] == '\n';
    return lines;
}

const char *pastes_add(struct pastes *pastes, const struct buf *text)
{
    const size_t lines = count_lines(text);
    if (text->len <= SHORT_MOST && memchr(buf_text(text), '\n', text->len) == NULL) return buf_text(text);
    pastes->v = mem_grow(pastes->v, pastes->n + 1, sizeof *pastes->v);
    struct paste *paste = &pastes->v[pastes->n++];
    *paste = (struct paste){.label = mem_format("[paste %zu: %zu bytes, %zu %s]", pastes->n, text->len, lines,
                                                lines == 1 ? "line" : "lines")};
    buf_append(&paste->text, buf_text(text), text->len);
    return paste->label;
}

static const struct paste *paste_at(const struct pastes *pastes, const char *text)
{
    for (size_t i = 0; i < pastes->n; i++)
        if (strncmp(text, pastes->v[i].label, strlen(pastes->v[i].label)) == 0) return &pastes->v[i];
    return NULL;
}

void pastes_expand(const struct pastes *pastes, const char *line, struct buf *out)
{
    while (*line != '\0') {
        const size_t plain = strcspn(line, "[");
        buf_append(out, line, plain);
        line += plain;
        const struct paste *paste = *line == '[' ? paste_at(pastes, line) : NULL;
        if (paste != NULL) {
            buf_append(out, paste->text.v, paste->text.len);
            line += strlen(paste->label);
        } else if (*line == '[') {
            buf_append(out, line++, 1);
        }
    }
}

void pastes_release(struct pastes *pastes)
{
    for (size_t i = 0; i < pastes->n; i++) {
        free(pastes->v[i].label);
        buf_release(&pastes->v[i].text);
    }
    free(pastes->v);
    *pastes = (struct pastes){0};
}
