/* POST /v1/completions: OpenAI's form of completion choices. No state; HTTP thread only. */
#include "base/memory.h"
#include "base/utf8.h"
#include "serve/core/errors.h"
#include "serve/core/pieces.h"
#include "serve/openai/openai.h"

#include <stdlib.h>
#include <string.h>

static void put_completion_delta(const struct openai_form *form, struct buf *out, const hearth_delta *delta,
                                 bool is_custom)
{
    (void)form, (void)is_custom;
    member_put(out, "text", delta->text, delta->len);
}

static void put_completion_whole(const struct openai_form *form, struct buf *out, const struct answer *answer,
                                 const json_t *custom)
{
    (void)form, (void)custom;
    member_put(out, "text", answer->text.v, answer->text.len);
}

/* ---- Logprobs, in the older of OpenAI's two forms: four lists of the same length ---- */

static void put_token(const void *items, size_t i, struct buf *out)
{
    struct token_logprobs *const *logprobs = items;
    logprob_put_text(out, &logprobs[i]->v[0]);
}

static void put_log(const void *items, size_t i, struct buf *out)
{
    struct token_logprobs *const *logprobs = items;
    if (logprobs[i]->none)
        buf_puts(out, "null");
    else
        buf_printf(out, "%.9g", logprob_finite(logprobs[i]->v[0].log));
}

/* Members are named by text, and each name occurs once: of tokens that read alike, as parts of characters do, the
 * likeliest counts, which comes first. */
static void put_likeliest_of(struct buf *out, const struct token_logprobs *logprobs)
{
    struct buf *texts = mem_alloc(logprobs->n * sizeof *texts);
    size_t n = 0;
    buf_puts(out, "{");
    for (size_t i = 1; i < logprobs->n; i++) {
        const hearth_logprob *one = &logprobs->v[i];
        utf8_put_clean(&texts[n], one->bytes, one->n_bytes);
        const size_t len = texts[n].len;
        size_t same = 0;
        while (same < n && (texts[same].len != len || (len > 0 && memcmp(texts[same].v, texts[n].v, len) != 0))) same++;
        if (same < n) {
            buf_release(&texts[n]);
            continue;
        }
        if (n++ > 0) buf_puts(out, ",");
        logprob_put_text(out, one);
        buf_printf(out, ":%.9g", logprob_finite(one->log));
    }
    buf_puts(out, "}");
    while (n > 0) buf_release(&texts[--n]);
    free(texts);
}

static void put_likeliest(const void *items, size_t i, struct buf *out)
{
    struct token_logprobs *const *logprobs = items;
    if (logprobs[i]->none)
        buf_puts(out, "null");
    else
        put_likeliest_of(out, logprobs[i]);
}

static void put_offset(const void *items, size_t i, struct buf *out)
{
    const size_t *offsets = items;
    buf_printf(out, "%zu", offsets[i]);
}

static void put_completion_logprobs(struct pieces *out, struct token_logprobs *const *logprobs, size_t n,
                                    const size_t *offsets)
{
    buf_puts(&out->text, "{\"tokens\":[");
    pieces_put_list(out, (struct pieces_list){.items = logprobs, .n = n, .put = put_token});
    buf_puts(&out->text, "],\"token_logprobs\":[");
    pieces_put_list(out, (struct pieces_list){.items = logprobs, .n = n, .put = put_log});
    buf_puts(&out->text, "],\"top_logprobs\":[");
    pieces_put_list(out, (struct pieces_list){.items = logprobs, .n = n, .put = put_likeliest});
    buf_puts(&out->text, "],\"text_offset\":[");
    pieces_put_list(out, (struct pieces_list){.items = offsets, .n = n, .put = put_offset});
    buf_puts(&out->text, "]}");
}

const struct openai_form openai_completion_form = {.id_prefix = "cmpl-",
                                                   .object = "text_completion",
                                                   .chunk = "text_completion",
                                                   .empty = "\"text\":\"\"",
                                                   .calls = "stop", /* completions have no tools */
                                                   .put_delta = put_completion_delta,
                                                   .put_whole = put_completion_whole,
                                                   .put_logprobs = put_completion_logprobs,
                                                   .scores_choices = true};

static void answer_completion(struct call *call, void *fields)
{
    openai_answer(call, &openai_completion_form, fields);
}

const struct reading_form openai_completion =
    READING_FORM(fields_open_completion, fields_size, answer_completion, fields_close, errors_put);
