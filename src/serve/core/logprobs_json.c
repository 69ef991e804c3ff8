/* Logprobs of tokens in the APIs' JSON: see logprobs_json.h. */
#include "serve/core/logprobs_json.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <math.h>
#include <string.h>

struct token_logprobs *token_logprobs_copy(const hearth_logprobs *given)
{
    size_t n = given->n_top + 1, n_bytes = given->chosen.n_bytes;
    for (size_t i = 0; i < given->n_top; i++) n_bytes += given->top[i].n_bytes;
    struct token_logprobs *made = mem_alloc(sizeof *made + n * sizeof made->v[0] + n_bytes);
    char *bytes = (char *)&made->v[n];
    made->n = n;
    made->rank = given->rank;
    for (size_t i = 0; i < n; i++) {
        made->v[i] = i == 0 ? given->chosen : given->top[i - 1];
        if (made->v[i].n_bytes > 0) memcpy(bytes, made->v[i].bytes, made->v[i].n_bytes);
        made->v[i].bytes = bytes;
        bytes += made->v[i].n_bytes;
    }
    return made;
}

size_t token_logprobs_bytes(const struct token_logprobs *logprobs)
{
    size_t text = 8; /* of most tokens */
    return sizeof *logprobs + logprobs->n * (sizeof logprobs->v[0] + text);
}

struct token_logprobs *token_logprobs_without(int32_t token, const char *bytes, size_t n_bytes)
{
    const hearth_logprobs without = {.chosen = {.token = token, .bytes = bytes, .n_bytes = n_bytes}};
    struct token_logprobs *made = token_logprobs_copy(&without);
    made->none = true;
    return made;
}

double logprob_finite(double log)
{
    return isfinite(log) ? log : -9999;
}

void logprob_put_text(struct buf *out, const hearth_logprob *logprob)
{
    struct buf text = {0};
    utf8_put_clean(&text, logprob->bytes, logprob->n_bytes);
    utf8_put_json_string(out, text.v == NULL ? "" : text.v, text.len);
    buf_release(&text);
}

void logprob_put_bytes(struct buf *out, const hearth_logprob *logprob)
{
    buf_puts(out, "[");
    for (size_t i = 0; i < logprob->n_bytes; i++)
        buf_printf(out, "%s%u", i == 0 ? "" : ",", (unsigned)(unsigned char)logprob->bytes[i]);
    buf_puts(out, "]");
}

static void put_one(struct buf *out, const hearth_logprob *logprob)
{
    buf_puts(out, "{\"token\":");
    logprob_put_text(out, logprob);
    buf_printf(out, ",\"logprob\":%.9g,\"bytes\":", logprob_finite(logprob->log));
    logprob_put_bytes(out, logprob);
}

void token_logprobs_put_openai(struct buf *out, const struct token_logprobs *logprobs)
{
    put_one(out, &logprobs->v[0]);
    buf_puts(out, ",\"top_logprobs\":[");
    for (size_t i = 1; i < logprobs->n; i++) {
        if (i > 1) buf_puts(out, ",");
        put_one(out, &logprobs->v[i]);
        buf_puts(out, "}");
    }
    buf_puts(out, "]}");
}

static void put_openai_of(const void *items, size_t i, struct buf *out)
{
    struct token_logprobs *const *logprobs = items;
    token_logprobs_put_openai(out, logprobs[i]);
}

void token_logprobs_put_list(struct pieces *out, struct token_logprobs *const *logprobs, size_t n)
{
    buf_puts(&out->text, "[");
    pieces_put_list(out, (struct pieces_list){.items = logprobs, .n = n, .put = put_openai_of});
    buf_puts(&out->text, "]");
}

/* ---- vLLM's form ---- */

static void put_ranked(struct buf *out, const hearth_logprob *logprob, int32_t rank)
{
    buf_printf(out, "\"%d\":{\"logprob\":%.9g,\"rank\":%d,\"decoded_token\":", logprob->token,
               logprob_finite(logprob->log), rank);
    logprob_put_text(out, logprob);
    buf_puts(out, "}");
}

static void put_place_of(const void *items, size_t i, struct buf *out)
{
    const struct token_logprobs *logprobs = ((struct token_logprobs *const *)items)[i];
    buf_puts(out, "{");
    put_ranked(out, &logprobs->v[0], logprobs->rank);
    for (size_t rank = 1; rank < logprobs->n; rank++) {
        if (logprobs->v[rank].token == logprobs->v[0].token) continue;
        buf_puts(out, ",");
        put_ranked(out, &logprobs->v[rank], (int32_t)rank);
    }
    buf_puts(out, "}");
}

void prompt_logprobs_put(struct pieces *out, struct token_logprobs *const *logprobs, size_t n)
{
    buf_puts(&out->text, n == 0 ? "[null" : "[null,");
    pieces_put_list(out, (struct pieces_list){.items = logprobs, .n = n, .put = put_place_of});
    buf_puts(&out->text, "]");
}
