/* OpenAI's answers as a dialect. Its state belongs to the exchange; HTTP thread only.
 *
 * JSON is written as text: members come in a fixed order, and a chunk for each token is worth no tree. */
#include "serve/openai.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "serve/errors.h"
#include "serve/server.h"

#include <stdlib.h>
#include <string.h>

struct openai {
    const struct openai_form *form;
    struct buf chunk_head, whole_head; /* {"id":… up to "choices":[ */
    bool include_usage;
    size_t n; /* choices for each prompt */
    size_t n_prompts;
    struct buf *echo; /* a prompt each; NULL: none */
};

static const char *const finish_names[] = {[HEARTH_FINISH_STOP] = "stop", [HEARTH_FINISH_LENGTH] = "length"};

/* ---- Pieces ---- */

static void put_head(struct buf *out, const struct openai_names *names, const char *prefix, const char *object)
{
    buf_printf(out, "{\"id\":\"%s%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", prefix, names->id, object,
               (long long)names->created);
    utf8_put_json_string(out, names->model, strlen(names->model));
    buf_printf(out, ",\"system_fingerprint\":\"hearth-%s\",\"choices\":[", hearth_version());
}

static void put_finish(struct buf *out, const hearth_result *result)
{
    buf_puts(out, ",\"logprobs\":null,\"finish_reason\":");
    if (result == NULL)
        buf_puts(out, "null}");
    else
        buf_printf(out, "\"%s\"}", finish_names[result->finish]);
}

static double per_second(int32_t n, double ms)
{
    return ms > 0 ? n * 1000.0 / ms : 0;
}

static void put_timings(struct buf *out, const hearth_result *r)
{
    buf_printf(out,
               ",\"timings\":{\"cache_n\":%d,\"prompt_n\":%d,\"prompt_ms\":%.3f,\"prompt_per_second\":%.3f,"
               "\"predicted_n\":%d,\"predicted_ms\":%.3f,\"predicted_per_second\":%.3f,\"queue_ms\":%.3f,"
               "\"restore_ms\":%.3f}",
               r->cache_n, r->prompt_n, r->prompt_ms, per_second(r->prompt_n, r->prompt_ms), r->predicted_n,
               r->predicted_ms, per_second(r->predicted_n - 1, r->predicted_ms), r->queue_ms, r->restore_ms);
}

/* The work of all choices together: tokens and times add up. */
static hearth_result sum(const struct exchange_reply *replies, size_t n)
{
    hearth_result total = {0};
    for (size_t i = 0; i < n; i++) {
        const hearth_result *r = &replies[i].result;
        total.cache_n += r->cache_n;
        total.prompt_n += r->prompt_n;
        total.predicted_n += r->predicted_n;
        total.queue_ms += r->queue_ms;
        total.restore_ms += r->restore_ms;
        total.prompt_ms += r->prompt_ms;
        total.predicted_ms += r->predicted_ms;
    }
    return total;
}

/* A prompt counts once, however many choices it has; cached is what its first choice did not compute. */
static void put_usage(struct buf *out, const struct openai *openai, const struct exchange_reply *replies, size_t n)
{
    int64_t prompt = 0, cached = 0, completion = 0;
    for (size_t i = 0; i < n; i++) {
        const hearth_result *r = &replies[i].result;
        completion += r->predicted_n;
        if (i % openai->n != 0) continue;
        prompt += r->cache_n + r->prompt_n;
        cached += r->cache_n;
    }
    int64_t total = prompt + completion;
    buf_printf(out,
               ",\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%lld}}",
               (long long)prompt, (long long)completion, (long long)total, (long long)cached);
}

/* ---- Streams ---- */

static void open_chunk(const struct openai *openai, size_t index, struct buf *out)
{
    buf_puts(out, "data: ");
    buf_append(out, openai->chunk_head.v, openai->chunk_head.len);
    buf_printf(out, "{\"index\":%zu,", index);
}

/* `result` is given for the last chunk of a choice. */
static void close_chunk(const struct openai *openai, const hearth_result *result, struct buf *out)
{
    put_finish(out, result);
    buf_puts(out, openai->include_usage ? "],\"usage\":null" : "]");
    if (result != NULL) put_timings(out, result);
    buf_puts(out, "}\n\n");
}

static void put_text(void *state, size_t index, const char *text, size_t len, struct buf *out)
{
    const struct openai *openai = state;
    open_chunk(openai, index, out);
    openai->form->put_piece(out, text, len);
    close_chunk(openai, NULL, out);
}

static void put_started(void *state, size_t index, struct buf *out)
{
    const struct openai *openai = state;
    if (openai->form->opens_with_role) {
        open_chunk(openai, index, out);
        openai->form->put_opening(out);
        close_chunk(openai, NULL, out);
    }
    if (openai->echo != NULL) {
        const struct buf *prompt = &openai->echo[index / openai->n];
        put_text(state, index, prompt->v, prompt->len, out);
    }
}

static void put_done(void *state, size_t index, const hearth_result *result, struct buf *out)
{
    const struct openai *openai = state;
    open_chunk(openai, index, out);
    openai->form->put_closing(out);
    close_chunk(openai, result, out);
}

static void put_ended(void *state, const struct exchange_reply *replies, size_t n, struct buf *out)
{
    const struct openai *openai = state;
    if (openai->include_usage) {
        hearth_result total = sum(replies, n);
        buf_puts(out, "data: ");
        buf_append(out, openai->chunk_head.v, openai->chunk_head.len);
        buf_puts(out, "]");
        put_usage(out, openai, replies, n);
        put_timings(out, &total);
        buf_puts(out, "}\n\n");
    }
    buf_puts(out, "data: [DONE]\n\n");
}

static void put_broken(void *state, const hearth_error *error, struct buf *out)
{
    (void)state;
    buf_puts(out, "data: ");
    errors_put(out, error);
    buf_puts(out, "\n\n");
}

/* ---- Whole answers ---- */

static void put_whole_choice(const struct openai *openai, size_t index, const struct exchange_reply *reply,
                             struct buf *out)
{
    struct buf text = {0};
    if (openai->echo != NULL) buf_append(&text, openai->echo[index / openai->n].v, openai->echo[index / openai->n].len);
    buf_append(&text, reply->text.v, reply->text.len);
    buf_printf(out, "%s{\"index\":%zu,", index == 0 ? "" : ",", index);
    openai->form->put_whole(out, text.v, text.len);
    put_finish(out, &reply->result);
    buf_release(&text);
}

static void put_whole(void *state, const struct exchange_reply *replies, size_t n, struct buf *out)
{
    const struct openai *openai = state;
    hearth_result total = sum(replies, n);
    buf_append(out, openai->whole_head.v, openai->whole_head.len);
    for (size_t i = 0; i < n; i++) put_whole_choice(openai, i, &replies[i], out);
    buf_puts(out, "]");
    put_usage(out, openai, replies, n);
    put_timings(out, &total);
    buf_puts(out, "}");
}

/* ---- State ---- */

void *openai_state(const struct openai_form *form, const struct fields *fields, const struct openai_names *names)
{
    struct openai *openai = mem_alloc(sizeof *openai);
    openai->form = form;
    openai->include_usage = fields->include_usage;
    openai->n = (size_t)fields->n;
    openai->n_prompts = fields->n_prompts;
    put_head(&openai->chunk_head, names, form->id_prefix, form->chunk);
    put_head(&openai->whole_head, names, form->id_prefix, form->object);
    if (fields->echo) {
        openai->echo = mem_alloc(fields->n_prompts * sizeof *openai->echo);
        for (size_t i = 0; i < fields->n_prompts; i++)
            buf_append(&openai->echo[i], fields->prompts[i].text, fields->prompts[i].len);
    }
    return openai;
}

static void release(void *state)
{
    struct openai *openai = state;
    for (size_t i = 0; openai->echo != NULL && i < openai->n_prompts; i++) buf_release(&openai->echo[i]);
    free(openai->echo);
    buf_release(&openai->chunk_head);
    buf_release(&openai->whole_head);
    free(openai);
}

const struct dialect openai_dialect = {.started = put_started,
                                       .text = put_text,
                                       .done = put_done,
                                       .ended = put_ended,
                                       .broken = put_broken,
                                       .whole = put_whole,
                                       .error = errors_put,
                                       .release = release};

/* ---- Starting ---- */

void openai_start(struct call *call, const struct openai_form *form)
{
    struct fields fields;
    if (!call_read_fields(call, form->route, errors_put, &fields)) return;
    size_t n;
    char id[25];
    call_random_name(id, sizeof id);
    struct openai_names names = {call_model(call, &fields), id, clock_unix_ms() / 1000};
    hearth_params *choices = fields_choices(&fields, &n);
    struct exchange_plan plan = {.dialect = &openai_dialect,
                                 .state = openai_state(form, &fields, &names),
                                 .stream = fields.stream,
                                 .choices = choices,
                                 .n_choices = n};
    exchange_start(call, &plan);
    free(choices);
    fields_release(&fields);
}
