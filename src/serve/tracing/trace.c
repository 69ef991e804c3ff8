/* Traces: their header, from a result's durations to stages on a time line, and the spans that are sent. Pure
 * functions; see trace.h. */
#include "serve/tracing/trace.h"

#include "base/memory.h"
#include "base/os.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A span's flags: those of its trace, whether it is known where its parent is, and whether that is another program. */
enum { FLAG_SAMPLED = 0x01, FLAG_HAS_REMOTE = 0x100, FLAG_REMOTE = 0x200 };

/* ---- The header ---- */

/* version "-" trace-id "-" parent-id "-" trace-flags */
enum { VERSION_AT = 0, TRACE_AT = 3, SPAN_AT = 36, FLAGS_AT = 53, LENGTH = 55 };

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

/* An id of zeros is none. */
static bool read_id(const char *text, size_t n, uint8_t *bytes)
{
    static const uint8_t zeros[TRACE_ID_BYTES];
    return read_hex(text, n, bytes) && memcmp(bytes, zeros, n) != 0;
}

bool traceparent_parse(const char *text, struct traceparent *parent)
{
    uint8_t version, flags;
    if (text == NULL || strlen(text) < LENGTH) return false;
    if (text[TRACE_AT - 1] != '-' || text[SPAN_AT - 1] != '-' || text[FLAGS_AT - 1] != '-') return false;
    if (!read_hex(text + VERSION_AT, 1, &version) || version == 0xff) return false;
    /* Later versions may go on behind another dash; of this one nothing follows. */
    if (text[LENGTH] != '\0' && (version == 0 || text[LENGTH] != '-')) return false;
    if (!read_id(text + TRACE_AT, TRACE_ID_BYTES, parent->trace)) return false;
    if (!read_id(text + SPAN_AT, SPAN_ID_BYTES, parent->span)) return false;
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

/* ---- The trace ---- */

struct stage {
    const char *name;
    double ms;           /* negative: it has not ended, or never began */
    bool may_be_missing; /* it is no stage where it took no time */
    const char *attribute;
    int64_t value;
};

enum { N_STAGES = 8 };

static void add_stages(struct trace *trace, const struct trace_progress *progress)
{
    const hearth_result *r = progress->result;
    bool placed = r->slot >= 0, any = r->predicted_n > 0;
    /* Restoring comes first in the slot, so its time is laid there; a request that was preempted had to restore its
     * cells again later. */
    double restore = !placed ? 0 : any && r->restore_ms > r->prompt_ms ? r->prompt_ms : r->restore_ms;
    const struct stage stages[N_STAGES] = {
        {.name = "admission", .ms = r->admission_ms},
        {.name = "tokenise", .ms = r->prepare_ms},
        {.name = "lookup", .ms = r->lookup_ms},
        {.name = "queue-wait", .ms = placed ? r->queue_ms - r->admission_ms - r->prepare_ms - r->lookup_ms : -1},
        {"restore", restore, true, "hearth.tokens.cached", r->cache_n},
        {"prefill", any ? r->prompt_ms - restore : -1, false, "hearth.tokens.computed", r->prompt_n},
        {"decode", progress->done && any ? r->predicted_ms : -1, false, "gen_ai.usage.output_tokens", r->predicted_n},
        {.name = "save", .ms = progress->done ? r->save_ms : 0, .may_be_missing = true},
    };
    int64_t at = progress->submitted_at;
    if (placed) {
        trace->computed = true;
        trace->cached_n += r->cache_n;
        trace->prompt_n += r->prompt_n;
        trace->predicted_n += r->predicted_n;
        if (progress->done && trace->n_finishes < TRACE_FINISHES)
            trace->finish[trace->n_finishes++] = r->finish == HEARTH_FINISH_STOP ? 's' : 'l';
    }
    for (const struct stage *s = stages; s < stages + N_STAGES; s++) {
        bool ended = s->ms >= 0;
        if (!ended && progress->done) continue; /* it had no such stage */
        if (ended && s->may_be_missing && s->ms == 0) continue;
        int64_t to = ended ? at + (int64_t)(s->ms * 1e6) : progress->until;
        if (to > progress->until) to = progress->until;
        trace->stages[trace->n_stages++] = (struct trace_stage){.name = s->name,
                                                                .from = at,
                                                                .to = to,
                                                                .choice = trace->n_choices,
                                                                .attribute = s->attribute,
                                                                .value = s->value};
        at = to;
        if (!ended) break;
    }
}

void trace_add_choice(struct trace *trace, const struct trace_progress *progress)
{
    trace->stages = mem_grow(trace->stages, trace->n_stages + N_STAGES, sizeof *trace->stages);
    if (progress->result != NULL)
        add_stages(trace, progress);
    else
        trace->stages[trace->n_stages++] = (struct trace_stage){
            .name = "waiting", .from = progress->submitted_at, .to = progress->until, .choice = trace->n_choices};
    trace->n_choices++;
}

void trace_set_text(char out[TRACE_TEXT], const char *text)
{
    snprintf(out, TRACE_TEXT, "%s", text == NULL ? "" : text);
}

void trace_free(struct trace *trace)
{
    if (trace == NULL) return;
    free(trace->stages);
    free(trace);
}

/* ---- OTLP: ids are hex, numbers of 64 bits strings, enumerations numbers ---- */

enum { KIND_INTERNAL = 1, KIND_SERVER = 2 };
enum { STATUS_UNSET = 0, STATUS_ERROR = 2 };

size_t otlp_spans(const struct trace *trace)
{
    return 1 + trace->n_stages;
}

/* A comma is what separates members; at the beginning of a list there is none. */
static void put_comma(struct buf *out)
{
    if (out->len > 0 && out->v[out->len - 1] != '[') buf_puts(out, ",");
}

static void begin_attribute(struct buf *out, const char *key)
{
    put_comma(out);
    buf_printf(out, "{\"key\":\"%s\",\"value\":", key);
}

static void put_text(struct buf *out, const char *key, const char *text)
{
    if (text == NULL || text[0] == '\0') return;
    begin_attribute(out, key);
    buf_puts(out, "{\"stringValue\":");
    utf8_put_json_string(out, text, strlen(text));
    buf_puts(out, "}}");
}

static void put_int(struct buf *out, const char *key, int64_t value)
{
    begin_attribute(out, key);
    buf_printf(out, "{\"intValue\":\"%lld\"}}", (long long)value);
}

static bool is_failure(const struct trace *trace)
{
    return trace->status >= 500;
}

static void put_request(struct buf *out, const struct trace *trace)
{
    put_text(out, "http.request.method", trace->method);
    put_text(out, "http.route", trace->route);
    put_text(out, "url.path", trace->path);
    put_int(out, "http.response.status_code", trace->status);
    if (is_failure(trace)) {
        char status[16];
        snprintf(status, sizeof status, "%d", trace->status);
        put_text(out, "error.type", status);
    }
    put_text(out, "hearth.request_id", trace->request_id);
    if (trace->operation == NULL) return; /* no model was asked */
    put_text(out, "gen_ai.operation.name", trace->operation);
    put_text(out, "gen_ai.provider.name", "hearth");
    put_text(out, "gen_ai.request.model", trace->model);
    if (!trace->computed) return;
    put_int(out, "gen_ai.usage.input_tokens", trace->cached_n + trace->prompt_n);
    put_int(out, "gen_ai.usage.output_tokens", trace->predicted_n);
    put_int(out, "gen_ai.usage.cache_read.input_tokens", trace->cached_n);
    put_int(out, "hearth.tokens.cached", trace->cached_n);
    put_int(out, "hearth.tokens.computed", trace->prompt_n);
    if (trace->n_finishes == 0) return;
    begin_attribute(out, "gen_ai.response.finish_reasons");
    buf_puts(out, "{\"arrayValue\":{\"values\":[");
    for (size_t i = 0; i < trace->n_finishes; i++)
        buf_printf(out, "%s{\"stringValue\":\"%s\"}", i > 0 ? "," : "", trace->finish[i] == 's' ? "stop" : "length");
    buf_puts(out, "]}}}");
}

static void put_id(struct buf *out, const char *key, const uint8_t *bytes, size_t n)
{
    char hex[2 * TRACE_ID_BYTES + 1];
    trace_put_hex(bytes, n, hex);
    buf_printf(out, "\"%s\":\"%s\",", key, hex);
}

static void put_times(struct buf *out, const struct trace *trace, int64_t from, int64_t to)
{
    long long start = from + trace->unix_ns, end = to + trace->unix_ns;
    buf_printf(out, "\"startTimeUnixNano\":\"%lld\",\"endTimeUnixNano\":\"%lld\",", start, end);
}

static void put_server_span(struct buf *out, const struct trace *trace)
{
    bool remote = trace->has_parent;
    buf_puts(out, "{");
    put_id(out, "traceId", trace->self.trace, TRACE_ID_BYTES);
    put_id(out, "spanId", trace->self.span, SPAN_ID_BYTES);
    if (remote) put_id(out, "parentSpanId", trace->parent, SPAN_ID_BYTES);
    buf_printf(out, "\"name\":\"%s %s\",\"kind\":%d,\"flags\":%d,", trace->method, trace->route, KIND_SERVER,
               FLAG_SAMPLED | FLAG_HAS_REMOTE | (remote ? FLAG_REMOTE : 0));
    put_times(out, trace, trace->began_at, trace->ended_at);
    buf_puts(out, "\"attributes\":[");
    put_request(out, trace);
    buf_printf(out, "],\"status\":{\"code\":%d}}", is_failure(trace) ? STATUS_ERROR : STATUS_UNSET);
}

static void put_stage_span(struct buf *out, const struct trace *trace, const struct trace_stage *stage)
{
    uint8_t id[SPAN_ID_BYTES] = {0};
    os_random(id, SPAN_ID_BYTES);
    id[0] |= 1; /* zero would be none */
    buf_puts(out, "{");
    put_id(out, "traceId", trace->self.trace, TRACE_ID_BYTES);
    put_id(out, "spanId", id, SPAN_ID_BYTES);
    put_id(out, "parentSpanId", trace->self.span, SPAN_ID_BYTES);
    buf_printf(out, "\"name\":\"%s\",\"kind\":%d,\"flags\":%d,", stage->name, KIND_INTERNAL,
               FLAG_SAMPLED | FLAG_HAS_REMOTE);
    put_times(out, trace, stage->from, stage->to);
    buf_puts(out, "\"attributes\":[");
    if (stage->attribute != NULL) put_int(out, stage->attribute, stage->value);
    if (trace->n_choices > 1) put_int(out, "hearth.choice", (int64_t)stage->choice);
    buf_puts(out, "],\"status\":{\"code\":0}}");
}

void otlp_put(struct buf *out, const struct otlp_resource *resource, const struct trace *traces)
{
    buf_puts(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    put_text(out, "service.name", "hearth");
    put_text(out, "service.version", resource->version);
    put_text(out, "service.instance.id", resource->address);
    put_text(out, "host.name", resource->host);
    buf_puts(out, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"hearth\"},\"spans\":[");
    for (const struct trace *trace = traces; trace != NULL; trace = trace->next) {
        put_comma(out);
        put_server_span(out, trace);
        for (size_t i = 0; i < trace->n_stages; i++) {
            put_comma(out);
            put_stage_span(out, trace, &trace->stages[i]);
        }
    }
    buf_puts(out, "]}]}]}");
}
