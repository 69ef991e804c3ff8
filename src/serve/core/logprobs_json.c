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
    for (size_t i = 0; i < n; i++) {
        made->v[i] = i == 0 ? given->chosen : given->top[i - 1];
        if (made->v[i].n_bytes > 0) memcpy(bytes, made->v[i].bytes, made->v[i].n_bytes);
        made->v[i].bytes = bytes;
        bytes += made->v[i].n_bytes;
    }
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
