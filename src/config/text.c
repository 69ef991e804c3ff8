/* Conversions of configuration texts. Bools and numbers are read strictly, so that a mistyped one is an error and never
 * another value. No state; any thread. */
#include "config/text.h"

#include "base/os.h"
#include "base/utf8.h"
#include "config/yaml_node.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_BYTES 60

bool text_is_printable(const char *text, size_t len)
{
    /* C1 controls; line and paragraph separator; byte order mark; two non-characters. */
    static const struct {
        const char *first, *last;
    } refused[] = {{"\xc2\x80", "\xc2\x9f"},
                   {"\xe2\x80\xa8", "\xe2\x80\xa9"},
                   {"\xef\xbb\xbf", "\xef\xbb\xbf"},
                   {"\xef\xbf\xbe", "\xef\xbf\xbf"}};
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f) return false;
        for (size_t k = 0; k < sizeof refused / sizeof refused[0]; k++) {
            size_t width = strlen(refused[k].first);
            if (len - i < width) continue;
            if (memcmp(text + i, refused[k].first, width) >= 0 && memcmp(text + i, refused[k].last, width) <= 0)
                return false;
        }
    }
    struct buf clean = {0};
    utf8_put_clean(&clean, text, len);
    bool same = clean.len == len && (len == 0 || !memcmp(clean.v, text, len));
    buf_release(&clean);
    return same;
}

void text_put_shown(const char *bytes, size_t len, struct buf *out)
{
    size_t shown = len < SHOWN_BYTES ? len : SHOWN_BYTES;
    if (shown < len) shown -= utf8_incomplete_tail(bytes, shown);
    size_t start = out->len;
    buf_puts(out, ""); /* a string, even where there is nothing to show */
    utf8_put_clean(out, bytes, shown);
    for (size_t i = start; i < out->len; i++)
        if ((unsigned char)out->v[i] < 0x20 || out->v[i] == 0x7f) out->v[i] = '?';
    if (shown < len) buf_puts(out, "…");
}

bool text_to_bool(const char *text, bool *value)
{
    static const struct {
        const char *text;
        bool value;
    } spellings[] = {{"true", true}, {"false", false}, {"yes", true}, {"no", false}, {"on", true}, {"off", false}};
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        if (strcasecmp(text, spellings[i].text)) continue;
        *value = spellings[i].value;
        return true;
    }
    return false;
}

bool text_to_int(const char *text, int64_t *value)
{
    char *end;
    if (text[0] == '\0' || strspn(text, "+-0123456789") != strlen(text)) return false;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && *end == '\0' && end != text;
}

/* A program that uses the library may have set a locale with decimal commas. */
bool text_to_number(const char *text, double *value)
{
    char *end;
    if (text[0] == '\0' || strspn(text, "+-.0123456789eE") != strlen(text)) return false;
    struct os_locale locale;
    os_locale_enter(&locale);
    *value = strtod(text, &end);
    os_locale_leave(&locale);
    return *end == '\0' && end != text && isfinite(*value);
}

void text_put_number(double value, struct buf *out)
{
    char text[40];
    double again = NAN;
    struct os_locale locale;
    os_locale_enter(&locale);
    for (int digits = 15; digits <= 17 && !(again == value); digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        again = strtod(text, NULL);
    }
    os_locale_leave(&locale);
    buf_puts(out, text);
}

void text_put_yaml(const char *text, struct buf *out)
{
    static const char *const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-:~";
    bool flag;
    double number;
    size_t len = strlen(text);
    struct node node = {.kind = NODE_SCALAR, .text = (char *)(uintptr_t)text, .len = len, .plain = true};
    if (strspn(text, safe) == len && strchr("+-:~", text[0]) == NULL && text[len - 1] != ':' && !node_is_null(&node) &&
        !text_to_bool(text, &flag) && !text_to_number(text, &number))
        buf_puts(out, text);
    else
        utf8_put_json_string(out, text, len); /* which is a YAML string too */
}
