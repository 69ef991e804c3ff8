/* Validation by the table of well-formed byte sequences (Unicode standard, table 3-7), and what is written for the
 * rest. */
#include "base/utf8.h"

#include <stdint.h>

#define REPLACEMENT "\xEF\xBF\xBD"

/* Length of a character with that first byte; 0: no character begins with it. */
static size_t length_by_first(unsigned char c)
{
    if (c < 0x80) return 1;
    if (c >= 0xC2 && c <= 0xDF) return 2;
    if (c >= 0xE0 && c <= 0xEF) return 3;
    if (c >= 0xF0 && c <= 0xF4) return 4;
    return 0;
}

/* The second byte has narrower limits after some first bytes: no overlong forms, no surrogates, nothing past
 * U+10FFFF (Unicode standard, table 3-7). */
static bool second_fits(unsigned char first, unsigned char second)
{
    switch (first) {
    case 0xE0:
        return second >= 0xA0 && second <= 0xBF;
    case 0xED:
        return second >= 0x80 && second <= 0x9F;
    case 0xF0:
        return second >= 0x90 && second <= 0xBF;
    case 0xF4:
        return second >= 0x80 && second <= 0x8F;
    default:
        return second >= 0x80 && second <= 0xBF;
    }
}

/* How many of the `need` bytes of the character at `text` are valid, until the first that is not. */
static size_t valid_bytes(const unsigned char *text, size_t len, size_t need)
{
    size_t n = 1;
    while (n < need && n < len && (n == 1 ? second_fits(text[0], text[1]) : (text[n] & 0xC0) == 0x80)) n++;
    return n;
}

size_t utf8_incomplete_tail(const char *text, size_t len)
{
    const unsigned char *bytes = (const unsigned char *)text;
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        size_t need = length_by_first(bytes[len - back]);
        if (need == 0) continue;
        return need > back && valid_bytes(bytes + len - back, back, need) == back ? back : 0;
    }
    return 0;
}

/* Calls `put` for each valid character, and with U+FFFD for each invalid sequence. */
static void each_character(struct buf *out, const char *text, size_t len,
                           void (*put)(struct buf *, const char *, size_t))
{
    const unsigned char *bytes = (const unsigned char *)text;
    for (size_t i = 0; i < len;) {
        size_t need = length_by_first(bytes[i]);
        if (need > 0 && i + need <= len && valid_bytes(bytes + i, len - i, need) == need) {
            put(out, text + i, need);
            i += need;
        } else {
            put(out, REPLACEMENT, 3);
            i += need > 0 ? valid_bytes(bytes + i, len - i, need) : 1;
        }
    }
}

static void put_bytes(struct buf *out, const char *text, size_t len)
{
    buf_append(out, text, len);
}

void utf8_put_clean(struct buf *out, const char *text, size_t len)
{
    each_character(out, text, len, put_bytes);
}

static void put_escaped(struct buf *out, const char *text, size_t len)
{
    static const char short_forms[] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    unsigned char c = (unsigned char)text[0];
    if (c == '"' || c == '\\')
        buf_printf(out, "\\%c", c);
    else if (c < sizeof short_forms && short_forms[c] != 0)
        buf_printf(out, "\\%c", short_forms[c]);
    else if (c < 0x20 || c == 0x7F)
        buf_printf(out, "\\u%04x", c);
    else
        buf_append(out, text, len);
}

void utf8_put_json_string(struct buf *out, const char *text, size_t len)
{
    buf_puts(out, "\"");
    each_character(out, text, len, put_escaped);
    buf_puts(out, "\"");
}

/* Control characters, line separators, and marks that change the direction of writing. */
static bool is_interpreted(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {{0x00, 0x1F},     {0x7F, 0x9F},     {0x61C, 0x61C},  {0x200E, 0x200F},
                  {0x2028, 0x202E}, {0x2066, 0x2069}, {0xFEFF, 0xFEFF}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (code >= ranges[i].first && code <= ranges[i].last) return true;
    return false;
}

static void put_shown(struct buf *out, const char *text, size_t len)
{
    uint32_t code = (unsigned char)text[0] & (len == 1 ? 0x7Fu : 0x7Fu >> len);
    for (size_t i = 1; i < len; i++) code = code << 6 | ((unsigned char)text[i] & 0x3Fu);
    if (code >= 0x7F && is_interpreted(code))
        buf_printf(out, "\\u%04x", (unsigned)code);
    else if (code < 0x20)
        put_escaped(out, text, len);
    else
        buf_append(out, text, len);
}

static void put_shown_quoted(struct buf *out, const char *text, size_t len)
{
    (text[0] == '"' || text[0] == '\\' ? put_escaped : put_shown)(out, text, len);
}

void utf8_put_visible(struct buf *out, const char *text, size_t len, bool quoted)
{
    each_character(out, text, len, quoted ? put_shown_quoted : put_shown);
}

size_t utf8_count(const char *text, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}
