/* OTLP's JSON: see otlp.h. Ids are hex, numbers of 64 bits strings, enumerations numbers. */
#include "serve/tracing/otlp.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { KIND_INTERNAL = 1, KIND_SERVER = 2 };
enum { STATUS_UNSET = 0, STATUS_ERROR = 2 };

/* A span's flags: those of its trace, whether it is known where its parent is, and whether that is another program. */
enum { FLAG_SAMPLED = 0x01, FLAG_HAS_REMOTE = 0x100, FLAG_REMOTE = 0x200 };

size_t otlp_spans(const struct trace *trace)
{
    return 1 + trace->n_stages;
}

/* ---- Attributes ---- */

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

static void put_finishes(struct buf *out, const struct trace *trace)
{
    if (trace->n_finishes == 0) return;
    begin_attribute(out, "gen_ai.response.finish_reasons");
    buf_puts(out, "{\"arrayValue\":{\"values\":[");
    for (size_t i = 0; i < trace->n_finishes; i++)
        buf_printf(out, "%s{\"stringValue\":\"%s\"}", i > 0 ? "," : "", trace->finish[i] == 's' ? "stop" : "length");
    buf_puts(out, "]}}}");
}

static void put_tokens(struct buf *out, const struct trace *trace)
{
    if (!trace->computed) return;
    put_int(out, "gen_ai.usage.input_tokens", trace->cached_n + trace->prompt_n);
    put_int(out, "gen_ai.usage.output_tokens", trace->predicted_n);
    put_int(out, "gen_ai.usage.cache_read.input_tokens", trace->cached_n);
    put_int(out, "hearth.tokens.cached", trace->cached_n);
    put_int(out, "hearth.tokens.computed", trace->prompt_n);
    put_finishes(out, trace);
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
    put_tokens(out, trace);
}

/* ---- Spans ---- */

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

/* An id that no other span has. Zero would be none. */
static void make_span_id(uint8_t id[SPAN_ID_BYTES])
{
    ssize_t got = getrandom(id, SPAN_ID_BYTES, 0);
    (void)got; /* so few bytes never fail */
    id[0] |= 1;
}

static void put_stage_span(struct buf *out, const struct trace *trace, const struct trace_stage *stage)
{
    uint8_t id[SPAN_ID_BYTES] = {0};
    make_span_id(id);
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

static void put_resource(struct buf *out, const struct otlp_resource *resource)
{
    buf_puts(out, "{\"resource\":{\"attributes\":[");
    put_text(out, "service.name", "hearth");
    put_text(out, "service.version", resource->version);
    put_text(out, "service.instance.id", resource->address);
    put_text(out, "host.name", resource->host);
    buf_puts(out, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"hearth\"},\"spans\":[");
}

void otlp_put(struct buf *out, const struct otlp_resource *resource, const struct trace *traces)
{
    buf_puts(out, "{\"resourceSpans\":[");
    put_resource(out, resource);
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
