/* The header of W3C Trace Context: see traceparent.h. */
#include "serve/tracing/traceparent.h"

#include <stdio.h>
#include <string.h>

/* version "-" trace-id "-" parent-id "-" trace-flags */
enum { VERSION_AT = 0, TRACE_AT = 3, SPAN_AT = 36, FLAGS_AT = 53, LENGTH = 55 };

enum { FLAG_SAMPLED = 1 };

static int digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; /* capitals are against the standard */
}

static bool read_hex(const char *text, size_t n, uint8_t *bytes)
{
    for (size_t i = 0; i < n; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool is_zero(const uint8_t *bytes, size_t n)
{
    static const uint8_t zeros[TRACE_ID_BYTES];
    return memcmp(bytes, zeros, n) == 0;
}

/* Later versions may go on behind another dash; of this one nothing follows. */
static bool ends_well(uint8_t version, const char *text)
{
    return text[LENGTH] == '\0' || (version > 0 && text[LENGTH] == '-');
}

bool traceparent_parse(const char *text, struct traceparent *parent)
{
    uint8_t version, flags;
    if (text == NULL || strlen(text) < LENGTH) return false;
    if (text[TRACE_AT - 1] != '-' || text[SPAN_AT - 1] != '-' || text[FLAGS_AT - 1] != '-') return false;
    if (!read_hex(text + VERSION_AT, 1, &version) || version == 0xff || !ends_well(version, text)) return false;
    if (!read_hex(text + TRACE_AT, TRACE_ID_BYTES, parent->trace) || is_zero(parent->trace, TRACE_ID_BYTES))
        return false;
    if (!read_hex(text + SPAN_AT, SPAN_ID_BYTES, parent->span) || is_zero(parent->span, SPAN_ID_BYTES)) return false;
    if (!read_hex(text + FLAGS_AT, 1, &flags)) return false;
    parent->sampled = (flags & FLAG_SAMPLED) != 0;
    return true;
}

void trace_put_hex(const uint8_t *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

void traceparent_format(const struct traceparent *parent, char out[TRACEPARENT_SIZE])
{
    char trace[2 * TRACE_ID_BYTES + 1], span[2 * SPAN_ID_BYTES + 1];
    trace_put_hex(parent->trace, TRACE_ID_BYTES, trace);
    trace_put_hex(parent->span, SPAN_ID_BYTES, span);
    snprintf(out, TRACEPARENT_SIZE, "00-%s-%s-%02x", trace, span, parent->sampled ? FLAG_SAMPLED : 0);
}
