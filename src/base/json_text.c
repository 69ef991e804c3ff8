/* JSON text in and out of trees: see json_text.h.
 *
 * Before text is parsed, each wide number in it becomes an object: jansson has no hook for numbers, and keeps nothing
 * of their text. Text without any, which is nearly all, is parsed as it is. */
#include "base/json_text.h"

#include "base/memory.h"
#include "base/os.h"
#include "base/utf8.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READ_FLAGS (JSON_ALLOW_NUL | JSON_DECODE_ANY)

/* ---- The name of the member ---- */

static char member_name[sizeof "number:" + 32];

static void make_name(void)
{
    unsigned char random[16];
    size_t at = (size_t)snprintf(member_name, sizeof member_name, "number:");
    os_random(random, sizeof random);
    for (size_t i = 0; i < sizeof random; i++, at += 2) snprintf(member_name + at, 3, "%02x", random[i]);
}

const char *json_text_name_of_wide(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_name);
    return member_name;
}

/* ---- Numbers ---- */

static size_t count_digits(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && text[n] >= '0' && text[n] <= '9') n++;
    return n;
}

/* A number by JSON's grammar, cut where that is decided. */
struct number {
    size_t sign, whole, fraction, exponent; /* bytes: "-", digits, "." and digits, "e", sign and digits */
};

static bool is_number(const char *text, size_t len, struct number *n)
{
    *n = (struct number){.sign = len > 0 && text[0] == '-'};
    size_t at = n->sign;
    at += n->whole = count_digits(text + at, len - at);
    bool good = n->whole == 1 || (n->whole > 1 && text[n->sign] != '0');
    if (at < len && text[at] == '.') {
        n->fraction = 1 + count_digits(text + at + 1, len - at - 1);
        good = good && n->fraction > 1;
        at += n->fraction;
    }
    if (at < len && (text[at] | 0x20) == 'e') {
        size_t signs = at + 1 < len && (text[at + 1] == '-' || text[at + 1] == '+');
        size_t digits = count_digits(text + at + 1 + signs, len - at - 1 - signs);
        good = good && digits > 0;
        n->exponent = 1 + signs + digits;
        at += n->exponent;
    }
    return good && at == len;
}

static bool is_wide(const char *text, size_t len)
{
    static const char *const largest[] = {"9223372036854775807", "9223372036854775808"}; /* above and below 0 */
    const size_t most = strlen(largest[0]);
    struct number n;
    if (len < 5 || !is_number(text, len, &n)) return false; /* 1e999 */
    if (n.fraction + n.exponent == 0)
        return n.whole > most || (n.whole == most && memcmp(text + n.sign, largest[n.sign], most) > 0);
    /* A real beyond a double: only those with many digits, or an exponent of three, can be. */
    if (n.whole < 300 && n.exponent < 4) return false;
    char *copy = memcpy(mem_alloc(len + 1), text, len);
    bool is_infinite = isinf(strtod(copy, NULL));
    free(copy);
    return is_infinite;
}

/* ---- Pieces ---- */

static bool belongs_to_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '+' ||
           c == '.';
}

bool json_text_next(const char **at, const char *end, struct json_piece *piece)
{
    const char *from = *at;
    while (from < end && !belongs_to_word(*from) &&
           !(*from == '"' || *from == '{' || *from == '}' || *from == '[' || *from == ']'))
        from++;
    if (from == end) return false;
    const char *after = from + 1;
    if (*from == '"') {
        for (; after < end && *after != '"'; after++)
            if (*after == '\\' && after + 1 < end) after++;
        after = after < end ? after + 1 : end;
    }
    if (belongs_to_word(*from))
        while (after < end && belongs_to_word(*after)) after++;
    *piece = (struct json_piece){.text = from, .len = (size_t)(after - from)};
    piece->is_wide = belongs_to_word(*from) && is_wide(from, piece->len);
    *at = after;
    return true;
}

/* ---- Reading ---- */

/* The text with other text for its wide numbers: objects, or, `blank`, a number of the same length, which is there to
 * be parsed for the place of a fault. Empty: it has none. */
static struct buf without_wide(const char *text, size_t len, bool blank)
{
    struct buf copy = {0};
    struct json_piece piece;
    const char *copied = text;
    for (const char *at = text; json_text_next(&at, text + len, &piece);) {
        if (!piece.is_wide) continue;
        buf_append(&copy, copied, (size_t)(piece.text - copied));
        if (blank)
            buf_printf(&copy, "%-*d", (int)piece.len, 0);
        else
            buf_printf(&copy, "{\"%s\":\"%.*s\"}", json_text_name_of_wide(), (int)piece.len, piece.text);
        copied = at;
    }
    if (copied != text) buf_append(&copy, copied, (size_t)(text + len - copied));
    return copy;
}

json_t *json_text_read(const char *text, size_t len, json_error_t *fault)
{
    struct buf copy = without_wide(text, len, false);
    json_t *value = json_loadb(copy.len > 0 ? copy.v : text, copy.len > 0 ? copy.len : len, READ_FLAGS, fault);
    if (value == NULL && copy.len > 0 && fault != NULL) {
        struct buf blank = without_wide(text, len, true);
        json_decref(json_loadb(blank.v, blank.len, READ_FLAGS, fault));
        buf_release(&blank);
    }
    buf_release(&copy);
    return value;
}

const char *json_text_wide(const json_t *value)
{
    return json_object_size(value) == 1 ? json_string_value(json_object_get(value, json_text_name_of_wide())) : NULL;
}

bool json_text_is_object(const json_t *value)
{
    return json_is_object(value) && json_text_wide(value) == NULL;
}

bool json_text_is_number(const json_t *value)
{
    return json_is_number(value) || json_text_wide(value) != NULL;
}

/* ---- Writing ---- */

/* Whether digits before an exponent of ten read as this double. */
static bool reads_as(uint64_t digits, int exponent, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%" PRIu64 "e%d", digits, exponent);
    return strtod(text, NULL) == value;
}

/* The fewest digits of a real that is not below 0, and the exponent of the first. Decimals of up to 15 digits have a
 * double of their own, except for those near 0. Below a power of two doubles are closer to each other than above it, so
 * that the nearest decimal can be another double's where the next one above is not. */
static int find_digits(double value, char digits[24], int *exponent)
{
    char text[40], *end;
    int places = value < DBL_MIN ? 0 : 14;
    for (;; places++) {
        snprintf(text, sizeof text, "%.*e", places, value);
        *exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
        uint64_t whole = (uint64_t)(text[0] - '0');
        for (int i = 0; i < places; i++) whole = 10 * whole + (uint64_t)(text[i + 2] - '0');
        bool good = reads_as(whole, *exponent - places, value) || reads_as(++whole, *exponent - places, value);
        if (!good) continue;
        *exponent += snprintf(digits, 24, "%" PRIu64, whole) - 1 - places;
        break;
    }
    for (end = digits + strlen(digits); end > digits + 1 && end[-1] == '0';) end--;
    return (int)(end - digits);
}

static void write_real(struct buf *out, double value)
{
    static const char zeros[] = "0000000000000000";
    char digits[24];
    int exponent, n = find_digits(fabs(value), digits, &exponent);
    if (signbit(value)) buf_puts(out, "-");
    if (exponent < -4 || exponent >= 16)
        buf_printf(out, "%c%s%.*se%+03d", digits[0], n > 1 ? "." : "", n - 1, digits + 1, exponent);
    else if (exponent < 0)
        buf_printf(out, "0.%.*s%.*s", -exponent - 1, zeros, n, digits);
    else if (n <= exponent + 1)
        buf_printf(out, "%.*s%.*s.0", n, digits, exponent + 1 - n, zeros);
    else
        buf_printf(out, "%.*s.%.*s", exponent + 1, digits, n - exponent - 1, digits + exponent + 1);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void write_value(struct buf *out, const json_t *value, bool sorted)
{
    const char *wide = json_text_wide(value), *name, **names;
    json_t *member;
    size_t n = 0;
    switch (value == NULL ? JSON_NULL : json_typeof(value)) {
    case JSON_OBJECT:
        if (wide != NULL) {
            buf_puts(out, wide);
            return;
        }
        names = mem_alloc((json_object_size(value) + 1) * sizeof *names);
        json_object_foreach((json_t *)value, name, member) names[n++] = name;
        if (sorted) qsort(names, n, sizeof *names, compare_names);
        buf_puts(out, "{");
        for (size_t i = 0; i < n; i++) {
            if (i > 0) buf_puts(out, ",");
            utf8_put_json_string(out, names[i], strlen(names[i]));
            buf_puts(out, ":");
            write_value(out, json_object_get(value, names[i]), sorted);
        }
        buf_puts(out, "}");
        free(names);
        return;
    case JSON_ARRAY:
        buf_puts(out, "[");
        for (size_t i = 0; i < json_array_size(value); i++) {
            if (i > 0) buf_puts(out, ",");
            write_value(out, json_array_get(value, i), sorted);
        }
        buf_puts(out, "]");
        return;
    case JSON_STRING:
        utf8_put_json_string(out, json_string_value(value), json_string_length(value));
        return;
    case JSON_INTEGER:
        buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return;
    case JSON_REAL:
        write_real(out, json_real_value(value));
        return;
    default:
        buf_puts(out, json_is_true(value) ? "true" : json_is_false(value) ? "false" : "null");
    }
}

void json_text_write(struct buf *out, const json_t *value)
{
    write_value(out, value, false);
}

void json_text_write_sorted(struct buf *out, const json_t *value)
{
    write_value(out, value, true);
}

/* As utf8_put_json_string() writes it. */
static size_t string_bytes(const char *text, size_t len)
{
    size_t bytes = strlen("\"\"");
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)text[i];
        const bool has_letter = c == '"' || c == '\\' || (c >= '\b' && c <= '\r' && c != '\v');
        bytes += has_letter ? 2 : c < 0x20 || c == 0x7F ? strlen("\\u0000") : 1;
    }
    return bytes;
}

size_t json_text_bytes(const json_t *value)
{
    if (json_text_is_object(value)) {
        size_t bytes = json_object_size(value) == 0 ? strlen("{}") : strlen("{");
        const char *name;
        json_t *member;
        json_object_foreach((json_t *)value, name, member) bytes +=
            string_bytes(name, strlen(name)) + strlen(":,") + json_text_bytes(member);
        return bytes;
    }
    if (json_is_string(value)) return string_bytes(json_string_value(value), json_string_length(value));
    if (json_is_array(value)) {
        size_t bytes = json_array_size(value) == 0 ? strlen("[]") : strlen("[");
        for (size_t i = 0; i < json_array_size(value); i++)
            bytes += json_text_bytes(json_array_get(value, i)) + strlen(",");
        return bytes;
    }
    struct buf text = {0};
    json_text_write(&text, value);
    size_t bytes = text.len;
    buf_release(&text);
    return bytes;
}

char *json_text_of(const json_t *value)
{
    struct buf text = {0};
    json_text_write(&text, value);
    return buf_take(&text);
}
