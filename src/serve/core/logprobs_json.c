/* Likelihoods of tokens as the APIs write them: see logprobs_json.h. */
#include "serve/core/logprobs_json.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <math.h>
#include <string.h>

struct chances *chances_copy(const hearth_chances *given)
{
    size_t n = given->n_top + 1, n_bytes = given->chosen.n_bytes;
    for (size_t i = 0; i < given->n_top; i++) n_bytes += given->top[i].n_bytes;
    struct chances *made = mem_alloc(sizeof *made + n * sizeof made->v[0] + n_bytes);
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

double chances_finite(double log)
{
    return isfinite(log) ? log : -9999;
}

void chances_put_text(struct buf *out, const hearth_chance *chance)
{
    struct buf text = {0};
    utf8_put_clean(&text, chance->bytes, chance->n_bytes);
    utf8_put_json_string(out, text.v == NULL ? "" : text.v, text.len);
    buf_release(&text);
}

void chances_put_bytes(struct buf *out, const hearth_chance *chance)
{
    buf_puts(out, "[");
    for (size_t i = 0; i < chance->n_bytes; i++)
        buf_printf(out, "%s%u", i == 0 ? "" : ",", (unsigned)(unsigned char)chance->bytes[i]);
    buf_puts(out, "]");
}

static void put_one(struct buf *out, const hearth_chance *chance)
{
    buf_puts(out, "{\"token\":");
    chances_put_text(out, chance);
    buf_printf(out, ",\"logprob\":%.9g,\"bytes\":", chances_finite(chance->log));
    chances_put_bytes(out, chance);
}

void chances_put_openai(struct buf *out, const struct chances *chances)
{
    put_one(out, &chances->v[0]);
    buf_puts(out, ",\"top_logprobs\":[");
    for (size_t i = 1; i < chances->n; i++) {
        if (i > 1) buf_puts(out, ",");
        put_one(out, &chances->v[i]);
        buf_puts(out, "}");
    }
    buf_puts(out, "]}");
}
