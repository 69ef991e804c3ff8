/* The chunks of a streamed chat, in server-sent events: see reply_stream.h. */
#include "cli/chat/reply_stream.h"

#include "base/error.h"
#include "base/utf8.h"

#include <jansson.h>
#include <string.h>

/* ---- Events ---- */

static int refuse_size(const char *what, hearth_error *error)
{
    return error_set(error, HEARTH_TOO_LONG, "the server sent %s of more than %u MiB: it is no reply of a chat", what,
                     SSE_MOST >> 20);
}

static void end_event(struct sse *sse, sse_event_fn each, void *ud)
{
    if (sse->has_data) each(ud, buf_text(&sse->data), sse->data.len);
    buf_clear(&sse->data);
    sse->has_data = false;
}

/* A line without its end. */
static int take_sse_line(struct sse *sse, sse_event_fn each, void *ud, hearth_error *error)
{
    const char *line = buf_text(&sse->line);
    size_t len = sse->line.len;
    if (len > 0 && line[len - 1] == '\r') len--;
    if (len == 0) return end_event(sse, each, ud), HEARTH_OK;
    if (len < 5 || memcmp(line, "data:", 5) != 0) return HEARTH_OK; /* another field, or a comment */
    const char *value = line + 5 + (len > 5 && line[5] == ' ');
    const size_t value_len = (size_t)(line + len - value);
    if (sse->data.len + value_len > SSE_MOST) return refuse_size("an event", error);
    if (sse->has_data) buf_append(&sse->data, "\n", 1);
    buf_append(&sse->data, value, value_len);
    sse->has_data = true;
    return HEARTH_OK;
}

int sse_add(struct sse *sse, const struct buf *bytes, sse_event_fn each, void *ud, hearth_error *error)
{
    int status = HEARTH_OK;
    for (size_t at = 0; at < bytes->len && status == HEARTH_OK;) {
        const char *newline = memchr(bytes->v + at, '\n', bytes->len - at);
        const size_t piece = newline != NULL ? (size_t)(newline - (bytes->v + at)) : bytes->len - at;
        if (sse->line.len + piece > SSE_MOST) return refuse_size("a line", error);
        buf_append(&sse->line, bytes->v + at, piece);
        at += piece + (newline != NULL);
        if (newline == NULL) break;
        status = take_sse_line(sse, each, ud, error);
        buf_clear(&sse->line);
    }
    return status;
}

void sse_end(struct sse *sse, sse_event_fn each, void *ud)
{
    hearth_error ignored;
    if (sse->line.len > 0) take_sse_line(sse, each, ud, &ignored);
    buf_clear(&sse->line);
    end_event(sse, each, ud);
}

void sse_release(struct sse *sse)
{
    buf_release(&sse->line);
    buf_release(&sse->data);
    *sse = (struct sse){0};
}

/* ---- Chunks: numbers ---- */

int32_t chunks_count(const json_t *object, const char *name)
{
    const json_int_t value = json_integer_value(json_object_get(object, name));
    return value < 0 ? 0 : value > INT32_MAX ? INT32_MAX : (int32_t)value;
}

static double milliseconds(const json_t *object, const char *name)
{
    const double value = json_number_value(json_object_get(object, name));
    return value > 0 ? value : 0;
}

/* OpenAI's own. */
static void read_usage(struct chunks *chunks, const json_t *usage)
{
    hearth_result *r = &chunks->result;
    if (!json_is_object(usage) || chunks->has_timings) return;
    const int32_t prompt = chunks_count(usage, "prompt_tokens");
    const int32_t cached = chunks_count(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
    r->n_prompt = prompt;
    r->cache_n = cached < prompt ? cached : prompt;
    r->prompt_n = prompt - r->cache_n;
    r->predicted_n = chunks_count(usage, "completion_tokens");
    chunks->has_usage = true;
}

static void read_timings(struct chunks *chunks, const json_t *timings)
{
    hearth_result *r = &chunks->result;
    if (!json_is_object(timings)) return;
    r->cache_n = chunks_count(timings, "cache_n");
    r->prompt_n = chunks_count(timings, "prompt_n");
    r->predicted_n = chunks_count(timings, "predicted_n");
    r->queue_ms = milliseconds(timings, "queue_ms");
    r->prompt_ms = milliseconds(timings, "prompt_ms");
    r->predicted_ms = milliseconds(timings, "predicted_ms");
    chunks->has_usage = chunks->has_timings = true;
}

static void read_progress(struct chunks *chunks, const json_t *progress)
{
    hearth_result so_far = {0};
    if (!json_is_object(progress)) return;
    const int32_t processed = chunks_count(progress, "processed");
    so_far.n_prompt = chunks_count(progress, "total");
    so_far.cache_n = chunks_count(progress, "cache");
    so_far.prompt_n = processed > so_far.cache_n ? processed - so_far.cache_n : 0;
    chunks->to.each(chunks->to.ud, &(struct reply_event){.type = REPLY_PROGRESS, .result = &so_far});
}

/* ---- Chunks: text ---- */

static void read_text(struct chunks *chunks, const json_t *text, enum reply_event_type type)
{
    const size_t len = json_string_length(text);
    if (len > 0)
        chunks->to.each(chunks->to.ud,
                        &(struct reply_event){.type = type, .text = json_string_value(text), .len = len});
}

static void read_choice(struct chunks *chunks, const json_t *choice)
{
    const json_t *delta = json_object_get(choice, "delta");
    const json_t *reasoning = json_object_get(delta, "reasoning_content");
    if (!json_is_string(reasoning)) reasoning = json_object_get(delta, "reasoning"); /* vLLM's name */
    read_text(chunks, reasoning, REPLY_REASONING);
    read_text(chunks, json_object_get(delta, "content"), REPLY_CONTENT);
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    if (finish == NULL || strcmp(finish, "error") == 0) return;
    chunks->finished = true;
    if (strcmp(finish, "length") == 0) chunks->result.finish = HEARTH_FINISH_LENGTH;
}

/* ---- Chunks: failures ---- */

static void fail_with(struct chunks *chunks, const char *what, const char *text, size_t len)
{
    struct buf shown = {0};
    utf8_put_visible(&shown, text, len, false);
    error_set(&chunks->error, HEARTH_UNAVAILABLE, "%s: %.300s", what, buf_text(&shown));
    buf_release(&shown);
}

void chunks_read(void *ud, const char *data, size_t len)
{
    static const char last[] = "[DONE]";
    struct chunks *chunks = ud;
    if (chunks->done || chunks->error.code != HEARTH_OK) return;
    chunks->done = len == strlen(last) && memcmp(data, last, len) == 0;
    if (chunks->done) return;
    json_t *chunk = json_loadb(data, len, JSON_ALLOW_NUL, NULL);
    if (json_is_object(chunk)) {
        read_progress(chunks, json_object_get(chunk, "prompt_progress"));
        read_choice(chunks, json_array_get(json_object_get(chunk, "choices"), 0));
        read_usage(chunks, json_object_get(chunk, "usage"));
        read_timings(chunks, json_object_get(chunk, "timings"));
        const json_t *error = json_object_get(chunk, "error");
        const json_t *message = json_is_object(error) ? json_object_get(error, "message") : error;
        const char *why = json_is_string(message) ? json_string_value(message) : "it does not say why";
        if (error != NULL && !json_is_null(error))
            fail_with(chunks, "the server has ended the reply", why, strlen(why));
    } else {
        fail_with(chunks, "the server sent an event that is no JSON object: is it a server of OpenAI's API?", data,
                  len);
    }
    json_decref(chunk);
}
