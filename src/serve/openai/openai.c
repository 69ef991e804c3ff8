/* OpenAI's dialect: whole answers and streams of chunks. The exchange owns its state; answering
 * threads, but for what begins it.
 *
 * JSON is written as text: members have a fixed order, and a tree for each token's chunk would cost too much. */
#include "serve/openai/openai.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "serve/core/answer.h"
#include "serve/core/errors.h"
#include "serve/core/server.h"
#include "serve/fields/fields.h"
#include "serve/fields/unknown.h"
#include "serve/native/native.h"

#include <stdlib.h>
#include <string.h>

struct openai {
    const struct openai_form *form;
    const struct fields *fields;       /* the request, until it is prepared */
    struct buf chunk_head, whole_head; /* {"id":… up to "choices":[ */
    bool include_usage, timings_per_token, hides_reasoning;
    size_t n; /* choices for each prompt */
    size_t n_prompts;
    bool scores;               /* "prompt_logprobs" were requested */
    struct echo *echo;         /* what the choices begin with; NULL: nothing */
    size_t *offsets;           /* characters of each choice that were streamed */
    bool *echoed;              /* for each choice: that was streamed, or there is none */
    bool *ended;               /* for each choice: its last chunk was streamed */
    json_t *custom;            /* names of the custom tools: a list; NULL: there are none */
    size_t *inputs;            /* for each choice: the calls whose inputs were streamed, if they are custom tools' */
    void *native;              /* state of the native dialect, for "__verbose"; NULL: not requested */
    struct echo_tokens *shown; /* of each choice of a whole answer, which lists them while it is sent; NULL: not yet */
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

/* An answer that stops after tool calls has a finish_reason of its own. */
static const char *finish_name(const struct openai *openai, const struct answer *answer)
{
    bool calls = answer->n_calls > 0 && answer->result.finish == HEARTH_FINISH_STOP;
    return calls ? openai->form->calls : finish_names[answer->result.finish];
}

/* `finish`: NULL before the last chunk. */
static void put_finish(struct buf *out, const char *finish)
{
    if (finish == NULL)
        buf_puts(out, ",\"finish_reason\":null}");
    else
        buf_printf(out, ",\"finish_reason\":\"%s\"}", finish);
}

/* The sums of all choices' tokens and times. */
static hearth_result sum(const struct answer *answers, size_t n)
{
    hearth_result total = {0};
    for (size_t i = 0; i < n; i++) {
        const hearth_result *r = &answers[i].result;
        total.cache_n += r->cache_n;
        total.prompt_n += r->prompt_n;
        total.too_short_n += r->too_short_n;
        total.predicted_n += r->predicted_n;
        total.draft_n += r->draft_n;
        total.draft_accepted_n += r->draft_accepted_n;
        total.queue_ms += r->queue_ms;
        total.restore_ms += r->restore_ms;
        total.prompt_ms += r->prompt_ms;
        total.predicted_ms += r->predicted_ms;
    }
    return total;
}

/* A prompt counts once, however many choices it has; its cached tokens are those of its first choice. Reasoning
 * tokens are listed if there are any. */
static void put_usage(struct buf *out, const struct openai *openai, const struct answer *answers, size_t n)
{
    int64_t prompt = 0, cached = 0, completion = 0, reasoning = 0;
    for (size_t i = 0; i < n; i++) {
        const hearth_result *r = &answers[i].result;
        completion += r->predicted_n;
        reasoning += answers[i].reasoning_n;
        if (i % openai->n != 0) continue;
        prompt += r->cache_n + r->prompt_n;
        cached += r->cache_n;
    }
    int64_t total = prompt + completion;
    buf_printf(out,
               ",\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%lld}",
               (long long)prompt, (long long)completion, (long long)total, (long long)cached);
    if (reasoning > 0)
        buf_printf(out, ",\"completion_tokens_details\":{\"reasoning_tokens\":%lld}", (long long)reasoning);
    answer_put_left_out(out, answers);
    buf_puts(out, "}");
}

/* ---- Streams ---- */

static void open_chunk(const struct openai *openai, size_t index, struct buf *out)
{
    buf_puts(out, "data: ");
    buf_append(out, openai->chunk_head.v, openai->chunk_head.len);
    buf_printf(out, "{\"index\":%zu,", index);
}

static void begin_close(const struct openai *openai, struct buf *out)
{
    buf_puts(out, openai->include_usage ? "],\"usage\":null" : "]");
}

/* Ends a chunk after the last member of its choice. `timings`: NULL: none in this chunk. */
static void close_chunk(const struct openai *openai, const hearth_result *timings, struct buf *out)
{
    begin_close(openai, out);
    if (timings != NULL) timings_put(out, timings);
    buf_puts(out, "}\n\n");
}

/* "verbose": llama-server's native answer, of one choice or as a list of several. */
static void put_verbose(const struct openai *openai, size_t index, const struct answer *answers, size_t n,
                        struct pieces *out)
{
    if (openai->native == NULL) return;
    buf_puts(&out->text, n > 1 ? ",\"__verbose\":[" : ",\"__verbose\":");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buf_puts(&out->text, ",");
        native_put_answer(openai->native, index + i, &answers[i], out);
    }
    if (n > 1) buf_puts(&out->text, "]");
}

/* The value of "logprobs". */
static void put_tokens(const struct openai *openai, const struct echo_tokens *tokens, struct pieces *out)
{
    if (tokens->n > 0)
        openai->form->put_logprobs(out, tokens->v, tokens->n, tokens->offsets);
    else
        buf_puts(&out->text, "null");
}

/* A chunk of an echo; none where it would be empty. */
static void put_echoed(const struct openai *openai, size_t index, const hearth_delta *delta,
                       const struct echo_tokens *tokens, struct buf *out)
{
    if (delta->len == 0 && tokens->n == 0) return;
    open_chunk(openai, index, out);
    openai->form->put_delta(openai->form, out, delta, false);
    buf_puts(out, ",\"logprobs\":");
    struct pieces logprobs = {0};
    put_tokens(openai, tokens, &logprobs);
    pieces_put_all(&logprobs, out);
    put_finish(out, NULL);
    close_chunk(openai, NULL, out);
}

/* Puts the echo of the choice, unless it was streamed before. `answer`: NULL where echo_waits() says no. */
static void put_echo(const struct openai *openai, size_t index, const struct answer *answer, struct buf *out)
{
    if (openai->echoed[index]) return;
    struct buf text = {0};
    openai->echoed[index] = true;
    const struct buf *reasoning = echo_reasoning(openai->echo, index);
    echo_put_text(openai->echo, index, answer, &text);
    struct echo_tokens none = {0}, tokens = echo_tokens_of(openai->echo, answer, &text);
    const hearth_delta deltas[] = {{.type = HEARTH_DELTA_REASONING, .text = reasoning->v, .len = reasoning->len},
                                   {.type = HEARTH_DELTA_CONTENT, .text = buf_text(&text), .len = text.len}};
    put_echoed(openai, index, &deltas[0], &none, out);
    put_echoed(openai, index, &deltas[1], &tokens, out);
    openai->offsets[index] = utf8_count(buf_text(&text), text.len);
    echo_tokens_release(&tokens);
    buf_release(&text);
}

static void put_started(void *state, size_t index, const hearth_result *result, struct buf *out)
{
    (void)result;
    const struct openai *openai = state;
    /* A chunk without logprobs. */
    if (openai->form->opening != NULL) {
        open_chunk(openai, index, out);
        buf_puts(out, openai->form->opening);
        buf_puts(out, ",\"logprobs\":null");
        put_finish(out, NULL);
        close_chunk(openai, NULL, out);
    }
    if (openai->echo != NULL && !echo_waits(openai->echo, index)) put_echo(openai, index, NULL, out);
}

static void put_progress(void *state, size_t index, const hearth_result *r, struct buf *out)
{
    const struct openai *openai = state;
    open_chunk(openai, index, out);
    buf_puts(out, openai->form->empty);
    buf_puts(out, ",\"logprobs\":null");
    put_finish(out, NULL);
    begin_close(openai, out);
    if (openai->timings_per_token) timings_put(out, r);
    timings_put_progress(out, r);
    buf_puts(out, "}\n\n");
}

static bool calls_custom_tool(const struct openai *openai, const struct answer *answer, size_t call)
{
    return custom_tool_is_among(openai->custom, answer->calls[call].name);
}

/* The inputs of custom tools' calls that are complete, among the first `n` calls of the answer. The model writes them
 * as JSON: each is one chunk behind its last token. */
static void put_inputs(const struct openai *openai, size_t index, const struct answer *answer, size_t n,
                       struct buf *out)
{
    for (size_t *i = &openai->inputs[index]; *i < n; (*i)++) {
        if (!calls_custom_tool(openai, answer, *i)) continue;
        struct buf input = {0};
        custom_tool_put_input(&input, &answer->calls[*i].arguments);
        hearth_delta delta = {.type = HEARTH_DELTA_ARGUMENTS, .index = *i, .text = buf_text(&input), .len = input.len};
        open_chunk(openai, index, out);
        openai->form->put_delta(openai->form, out, &delta, true);
        buf_puts(out, ",\"logprobs\":null");
        put_finish(out, NULL);
        close_chunk(openai, NULL, out);
        buf_release(&input);
    }
}

static void put_more(void *state, const struct exchange_piece *piece, struct buf *out)
{
    const struct openai *openai = state;
    const hearth_delta *delta = piece->delta;
    /* Hidden reasoning is not streamed, and the input of a custom tool's call later. */
    bool is_hidden = delta != NULL && delta->type == HEARTH_DELTA_REASONING && openai->hides_reasoning;
    bool waits = delta != NULL && delta->type == HEARTH_DELTA_ARGUMENTS &&
                 calls_custom_tool(openai, piece->answer, delta->index);
    if (is_hidden || waits) delta = NULL;
    bool begins_call = delta != NULL && delta->type == HEARTH_DELTA_CALL;
    if (begins_call) put_inputs(openai, piece->index, piece->answer, delta->index, out);
    if (delta == NULL && piece->logprobs == NULL) return;
    put_echo(openai, piece->index, piece->answer, out);
    open_chunk(openai, piece->index, out);
    if (delta != NULL)
        openai->form->put_delta(openai->form, out, delta,
                                begins_call && calls_custom_tool(openai, piece->answer, delta->index));
    else
        buf_puts(out, openai->form->empty);
    buf_puts(out, ",\"logprobs\":");
    struct token_logprobs *logprobs = (struct token_logprobs *)piece->logprobs;
    const struct echo_tokens token = {
        .v = &logprobs, .offsets = &openai->offsets[piece->index], .n = logprobs == NULL ? 0 : 1};
    struct pieces list = {0};
    put_tokens(openai, &token, &list);
    pieces_put_all(&list, out);
    if (delta != NULL) openai->offsets[piece->index] += utf8_count(delta->text, delta->len);
    put_finish(out, NULL);
    close_chunk(openai, openai->timings_per_token ? &piece->answer->result : NULL, out);
}

/* `answer`: NULL if the choice broke off. */
static void put_done(void *state, size_t index, const struct answer *answer, struct buf *out)
{
    struct openai *openai = state;
    openai->ended[index] = true;
    if (answer != NULL) put_echo(openai, index, answer, out);
    if (answer != NULL) put_inputs(openai, index, answer, answer->n_calls, out);
    open_chunk(openai, index, out);
    /* The last chunk has no text: clients print the text of every chunk. */
    buf_puts(out, openai->form->empty);
    buf_puts(out, ",\"logprobs\":null");
    put_finish(out, answer == NULL ? "error" : finish_name(openai, answer));
    begin_close(openai, out);
    if (answer != NULL) timings_put(out, &answer->result);
    struct pieces verbose = {0};
    if (answer != NULL) put_verbose(openai, index, answer, 1, &verbose);
    pieces_put_all(&verbose, out);
    buf_puts(out, "}\n\n");
}

static void put_ended(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    const struct openai *openai = state;
    if (openai->include_usage) {
        hearth_result total = sum(answers, n);
        buf_puts(out, "data: ");
        buf_append(out, openai->chunk_head.v, openai->chunk_head.len);
        buf_puts(out, "]");
        put_usage(out, openai, answers, n);
        timings_put(out, &total);
        buf_puts(out, "}\n\n");
    }
    buf_puts(out, "data: [DONE]\n\n");
}

/* Ends each open choice with the finish_reason "error", for clients that look at choices only, then sends the error. */
static void put_broken(void *state, const hearth_error *error, struct buf *out)
{
    struct openai *openai = state;
    for (size_t i = 0; i < openai->n * openai->n_prompts; i++)
        if (!openai->ended[i]) put_done(openai, i, NULL, out);
    exchange_put_broken(NULL, error, out);
}

/* ---- Whole answers ---- */

static void put_scores(const struct answer *answer, struct pieces *out)
{
    buf_puts(&out->text, ",\"prompt_logprobs\":");
    prompt_logprobs_put(out, answer->prompt_logprobs, answer->n_prompt_logprobs);
}

static void put_whole_choice(struct openai *openai, size_t index, const struct answer *answer, struct pieces *out)
{
    struct answer shown = *answer;
    shown.text = shown.reasoning = (struct buf){0};
    const struct buf *reasoning = echo_reasoning(openai->echo, index);
    echo_put_text(openai->echo, index, answer, &shown.text);
    struct echo_tokens *tokens = &openai->shown[index];
    *tokens = echo_tokens_of(openai->echo, answer, &shown.text);
    echo_tokens_add(tokens, answer->logprobs, answer->n_logprobs);
    buf_append(&shown.text, answer->text.v, answer->text.len);
    buf_append(&shown.reasoning, reasoning->v, reasoning->len);
    if (!openai->hides_reasoning) buf_append(&shown.reasoning, answer->reasoning.v, answer->reasoning.len);
    buf_printf(&out->text, "%s{\"index\":%zu,", index == 0 ? "" : ",", index);
    openai->form->put_whole(openai->form, &out->text, &shown, openai->custom);
    buf_puts(&out->text, ",\"logprobs\":");
    put_tokens(openai, tokens, out);
    if (openai->scores && openai->form->scores_choices) put_scores(answer, out);
    put_finish(&out->text, finish_name(openai, answer));
    buf_release(&shown.text);
    buf_release(&shown.reasoning);
}

static void put_whole_answer(void *state, const struct answer *answers, size_t n, struct pieces *out)
{
    struct openai *openai = state;
    hearth_result total = sum(answers, n);
    openai->shown = mem_alloc(n * sizeof *openai->shown);
    buf_append(&out->text, openai->whole_head.v, openai->whole_head.len);
    for (size_t i = 0; i < n; i++) put_whole_choice(openai, i, &answers[i], out);
    buf_puts(&out->text, "]");
    if (openai->scores && !openai->form->scores_choices) put_scores(&answers[0], out);
    put_usage(&out->text, openai, answers, n);
    timings_put(&out->text, &total);
    put_verbose(openai, 0, answers, n, out);
    buf_puts(&out->text, "}");
}

/* ---- State ---- */

void *openai_state(const struct openai_form *form, const struct fields *fields, const struct openai_names *names,
                   hearth_error *error)
{
    void *native = fields->verbose ? native_state(fields, names->model, error) : NULL;
    if (fields->verbose && native == NULL) return NULL;
    struct openai *openai = mem_alloc(sizeof *openai);
    openai->native = native;
    openai->hides_reasoning = fields->hides_reasoning;
    openai->form = form;
    openai->include_usage = fields->include_usage;
    openai->timings_per_token = fields->timings_per_token;
    openai->n = (size_t)fields->n;
    openai->n_prompts = fields->n_prompts;
    openai->offsets = mem_alloc(openai->n * openai->n_prompts * sizeof *openai->offsets);
    openai->ended = mem_alloc(openai->n * openai->n_prompts * sizeof *openai->ended);
    openai->inputs = mem_alloc(openai->n * openai->n_prompts * sizeof *openai->inputs);
    openai->custom = json_incref(fields->custom_tools);
    put_head(&openai->chunk_head, names, form->id_prefix, form->chunk);
    put_head(&openai->whole_head, names, form->id_prefix, form->object);
    openai->fields = fields;
    openai->scores = fields->scores;
    openai->echoed = mem_alloc(openai->n * openai->n_prompts * sizeof *openai->echoed);
    return openai;
}

static void prepare(void *state)
{
    struct openai *openai = state;
    openai->echo = echo_open(openai->fields);
    for (size_t i = 0; i < openai->n * openai->n_prompts; i++) openai->echoed[i] = openai->echo == NULL;
    if (openai->native != NULL) native_dialect.prepare(openai->native);
    openai->fields = NULL;
}

static void release(void *state)
{
    struct openai *openai = state;
    for (size_t i = 0; openai->shown != NULL && i < openai->n * openai->n_prompts; i++)
        echo_tokens_release(&openai->shown[i]);
    free(openai->shown);
    echo_close(openai->echo);
    free(openai->offsets);
    free(openai->echoed);
    free(openai->ended);
    free(openai->inputs);
    json_decref(openai->custom);
    if (openai->native != NULL) native_dialect.release(openai->native);
    buf_release(&openai->chunk_head);
    buf_release(&openai->whole_head);
    free(openai);
}

const struct dialect openai_dialect = {.prepare = prepare,
                                       .started = put_started,
                                       .progress = put_progress,
                                       .more = put_more,
                                       .done = put_done,
                                       .ended = put_ended,
                                       .broken = put_broken,
                                       .pieces = put_whole_answer,
                                       .error = errors_put,
                                       .release = release};

/* ---- Starting ---- */

void openai_answer(struct call *call, const struct openai_form *form, struct fields *fields)
{
    char id[25];
    call_random_name(id, sizeof id);
    struct openai_names names = {call_model(call, fields->params.model), id, clock_unix_ms() / 1000};
    hearth_error error;
    unknown_report(call, fields);
    void *state = openai_state(form, fields, &names, &error);
    if (state == NULL) {
        workers_release(call->server->workers, fields_close, fields);
        call_fail(call, &error, errors_put);
        return;
    }
    fields->params.keep_prompt = fields->verbose || fields->echo;
    fields_start(call, fields,
                 (struct exchange_plan){.dialect = &openai_dialect, .state = state, .stream = fields->stream});
}
