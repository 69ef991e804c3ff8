/* The streams of a draft model, and its calls: see draft_model.h. A stream's positions are its own, from 0 on, so that
 * a long conversation does not leave the window that the model was trained for. */
#include "engine/draft_model.h"

#include "base/media_spans.h"
#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW    1024 /* tokens of a stream */
#define TAIL_PART 4    /* a stream begins with so many last tokens of a sequence; once it is full, again */
#define BATCH     512  /* tokens of a call */
#define LEAST     8    /* tokens of a stream that a call computes, however long it takes */
#define UNKNOWN   32   /* the same before it is known how long */
#define FEW       4    /* tokens that a stream lacks at most in a call for one token */
#define ROWS      64   /* hidden rows of a stream that wait to be read */
#define ENCODED   64   /* tokens of a call of a head that makes its own rows: each has logits */

struct stream {
    uint64_t owner;     /* draft_ask.owner */
    int32_t from;       /* index in the sequence of the first token that is in cells */
    struct tokens held; /* in cells */
    struct rows {       /* of a head */
        float *v;       /* those that gave the tokens [from, from + n) of the sequence */
        int32_t from, n;
        float *guess;   /* the head's own, which gave its last guess */
        int32_t n_read; /* leading tokens in cells that were read with rows of the model, and not of the head */
    } rows;
};

struct draft_model {
    struct llm_context *context;
    struct clock *clock;
    struct stream *streams;
    int32_t n_streams, window, n_batch, n_vocab, n_row, n_own;
    float *raw, *encoded; /* of a head that makes its own rows: those of the model in this call, and what it makes */
    int32_t n_raw;
    int64_t most_ns;
    size_t first;             /* whose stream comes first in the next call */
    double token_ns, step_ns; /* of a call of many tokens, each; of a call for one token; 0: not known */
    struct llm_batch_token batch[BATCH];
};

static bool never(void *ud)
{
    (void)ud;
    return false;
}

static size_t row_bytes(const struct draft_model *model)
{
    return (size_t)model->n_row * sizeof(float);
}

static size_t own_bytes(const struct draft_model *model)
{
    return (size_t)model->n_own * sizeof(float);
}

static void close_streams(struct draft_model *model)
{
    for (int32_t i = 0; i < model->n_streams; i++) {
        tokens_release(&model->streams[i].held);
        free(model->streams[i].rows.v);
        free(model->streams[i].rows.guess);
    }
    free(model->streams);
    free(model->raw);
    free(model->encoded);
}

struct llm_context_params draft_model_context(const struct llm_model_info *info, int32_t n_slots)
{
    int32_t window = info->n_ctx_train > 0 && info->n_ctx_train < WINDOW ? info->n_ctx_train : WINDOW;
    struct llm_context_params params = llm_usual_context(window, n_slots);
    params.n_cells = window * n_slots;
    params.n_batch = params.n_ubatch = BATCH;
    params.n_outputs = n_slots;
    params.unified = params.full_windows = true;
    if (info->eagle.layers.n == 0) return params;
    params.head = LLM_HEAD_EAGLE;
    params.n_batch = params.n_ubatch = params.n_outputs = ENCODED > n_slots ? ENCODED : n_slots;
    return params;
}

struct draft_model *draft_model_open(const struct draft_model_params *params, int64_t most_ns, struct clock *clock,
                                     hearth_error *error)
{
    struct llm_context_params context = params->context;
    context.abort = never;
    struct draft_model *model = mem_alloc(sizeof *model);
    *model = (struct draft_model){.context = llm_context_open(params->model, &context, error),
                                  .clock = clock,
                                  .streams = mem_alloc((size_t)context.n_seq * sizeof(struct stream)),
                                  .n_streams = context.n_seq,
                                  .window = context.window,
                                  .n_batch = context.n_batch,
                                  .n_vocab = params->n_vocab,
                                  .n_row = params->n_row,
                                  .n_own = params->n_own,
                                  .most_ns = most_ns};
    assert(context.n_batch <= BATCH);
    if (context.head == LLM_HEAD_EAGLE) {
        model->raw = mem_alloc((size_t)context.n_batch * row_bytes(model));
        model->encoded = mem_alloc((size_t)context.n_batch * own_bytes(model));
    }
    for (int32_t i = 0; i < model->n_streams && model->n_row > 0; i++) {
        struct rows *rows = &model->streams[i].rows;
        rows->v = mem_alloc((size_t)ROWS * row_bytes(model));
        rows->guess = mem_alloc(own_bytes(model));
    }
    if (model->context != NULL) return model;
    close_streams(model);
    free(model);
    return NULL;
}

void draft_model_close(struct draft_model *model)
{
    if (model == NULL) return;
    close_streams(model);
    llm_context_close(model->context);
    free(model);
}

/* ---- What a stream has of a sequence ---- */

static bool is_known(const struct draft_model *model, int32_t token)
{
    return !media_token_is_one(token) && token < model->n_vocab;
}

static void keep(struct draft_model *model, int32_t i, int32_t n)
{
    struct stream *stream = &model->streams[i];
    if (!llm_seq_cut(model->context, i, n)) {
        llm_seq_clear(model->context, i);
        n = 0;
    }
    tokens_truncate(&stream->held, (size_t)n);
}

static void begin_owner(struct draft_model *model, int32_t i, uint64_t owner)
{
    struct stream *stream = &model->streams[i];
    if (stream->owner == owner) return;
    keep(model, i, 0);
    stream->owner = owner;
    stream->rows.n = 0;
}

bool draft_model_reads_rows(const struct draft_model *model)
{
    return model->n_row > 0;
}

/* Half of the rows make room for more: a stream that has not read them begins anew with the others. */
void draft_model_keep_row(struct draft_model *model, const struct draft_row *row)
{
    struct rows *rows = &model->streams[row->stream].rows;
    size_t n = (size_t)model->n_row;
    begin_owner(model, row->stream, row->owner);
    if (row->index != rows->from + rows->n) {
        rows->from = row->index;
        rows->n = 0;
    }
    if (rows->n == ROWS) {
        memcpy(rows->v, rows->v + ROWS / 2 * n, ROWS / 2 * row_bytes(model));
        rows->from += ROWS / 2;
        rows->n = ROWS / 2;
    }
    memcpy(rows->v + (size_t)rows->n++ * n, row->row, row_bytes(model));
}

/* Where the last token's row is not known, nothing can be guessed. */
static bool has_last_row(const struct draft_model *model, const struct draft_ask *ask)
{
    const struct stream *stream = &model->streams[ask->stream];
    const struct rows *rows = &stream->rows;
    bool same = stream->owner == ask->owner && rows->from + rows->n == (int32_t)ask->tokens->len;
    return model->n_row == 0 || (same && rows->n > 0);
}

/* Cuts the stream back to the tokens of the sequence, but for the last one, whose logits are wanted. Begins anew where
 * too much is missing, or where the stream has become too long. */
static void align(struct draft_model *model, const struct draft_ask *ask)
{
    const struct tokens *tokens = ask->tokens;
    int32_t i = ask->stream;
    struct stream *stream = &model->streams[i];
    begin_owner(model, i, ask->owner);
    int32_t len = (int32_t)tokens->len, begin = len, same = 0;
    /* Leading tokens in cells that are those of the sequence. */
    int32_t held = (int32_t)stream->held.len, most = held < len - stream->from ? held : len - stream->from;
    while (same < most && stream->held.v[same] == tokens->v[stream->from + same]) same++;
    if (model->n_row > 0) {
        begin = stream->rows.from;
        if (same > stream->rows.n_read) same = stream->rows.n_read;
    } else { /* behind the last token that the draft model does not know, such as a medium's, and within the tail */
        int32_t tail = model->window / TAIL_PART, least = len > tail ? len - tail : 0;
        while (begin > least && is_known(model, tokens->v[begin - 1])) begin--;
    }
    bool fits = len - stream->from + DRAFT_MOST <= model->window;
    if (!fits || begin > stream->from + same) same = 0;
    if (same > 0 && stream->from + same == len) same--;
    keep(model, i, same);
    if (stream->held.len == 0) stream->from = begin;
}

/* ---- Calls ---- */

/* The hidden row that gave the token with that index in the sequence, as the head reads it. */
static const float *row_at(struct draft_model *model, const struct draft_ask *ask, int32_t at)
{
    const struct stream *stream = &model->streams[ask->stream];
    if (model->n_row == 0) return NULL;
    if (at >= (int32_t)ask->tokens->len) return stream->rows.guess;
    assert(at >= stream->rows.from && at < stream->rows.from + stream->rows.n);
    const float *row = stream->rows.v + (size_t)(at - stream->rows.from) * (size_t)model->n_row;
    if (model->raw == NULL) return row;
    /* decode() makes its own rows of all of the call's at once. */
    memcpy(model->raw + (size_t)model->n_raw * (size_t)model->n_row, row, row_bytes(model));
    return model->encoded + (size_t)model->n_raw++ * (size_t)model->n_own;
}

static int32_t end_of(const struct draft_model *model, const struct draft_ask *ask)
{
    return (int32_t)ask->tokens->len - model->streams[ask->stream].from + ask->n;
}

/* Adds to the batch what the stream lacks, as much as there is room for. Returns the index of the row whose logits are
 * the next token's; -1: it lacks more. */
static int32_t add_missing(struct draft_model *model, const struct draft_ask *ask, int32_t *n_tokens)
{
    struct stream *stream = &model->streams[ask->stream];
    int32_t end = end_of(model, ask), held = (int32_t)stream->held.len, len = (int32_t)ask->tokens->len;
    double fit = model->token_ns > 0 ? (double)model->most_ns / model->token_ns : UNKNOWN;
    int32_t most = (fit < LEAST ? LEAST : fit > model->n_batch ? model->n_batch : (int32_t)fit) - *n_tokens;
    int32_t n = end - held < most ? end - held : most;
    for (int32_t k = held; k < held + n; k++) {
        int32_t at = stream->from + k, token = at < len ? ask->tokens->v[at] : ask->guess[at - len];
        tokens_push(&stream->held, token);
        model->batch[(*n_tokens)++] = (struct llm_batch_token){
            .token = token, .pos = k, .seq = ask->stream, .logits = k + 1 == end, .row = row_at(model, ask, at)};
        if (ask->n == 0) stream->rows.n_read = k + 1;
    }
    return held + n == end && n > 0 ? *n_tokens - 1 : -1;
}

static void note_time(struct draft_model *model, int32_t n_tokens, size_t n_asks, int64_t ns)
{
    bool one = n_tokens <= (int32_t)n_asks * FEW;
    double *known = one ? &model->step_ns : &model->token_ns, seen = one ? (double)ns : (double)ns / n_tokens;
    *known = *known > 0 ? (*known * 3 + seen) / 4 : seen;
}

static bool decode(struct draft_model *model, int32_t n_tokens)
{
    if (n_tokens == 0) return true;
    if (model->n_raw > 0 && !llm_encode_rows(model->context, model->raw, model->n_raw, model->encoded)) return false;
    return llm_decode(model->context, model->batch, n_tokens) == LLM_DECODED;
}

bool draft_model_next(struct draft_model *model, struct draft_ask *asks, size_t n)
{
    int32_t n_tokens = 0;
    size_t n_asks = 0;
    int32_t *rows = mem_alloc((n + 1) * sizeof *rows);
    model->first++;
    model->n_raw = 0;
    for (size_t k = 0; k < n; k++) {
        size_t i = (model->first + k) % n;
        rows[i] = -1;
        if (!has_last_row(model, &asks[i])) asks[i].over = true;
        if (asks[i].over) continue;
        if (asks[i].n == 0) align(model, &asks[i]);
        rows[i] = add_missing(model, &asks[i], &n_tokens);
        asks[i].lacks = rows[i] < 0 && (int32_t)model->streams[asks[i].stream].held.len < end_of(model, &asks[i]);
        asks[i].over = rows[i] < 0 || asks[i].n == DRAFT_MOST;
        n_asks++;
    }
    int64_t began_at = clock_now(model->clock);
    bool decoded = decode(model, n_tokens);
    for (size_t i = 0; i < n && decoded; i++) {
        if (asks[i].over) continue;
        int32_t token = llm_likeliest(model->context, rows[i], &asks[i].chance);
        asks[i].over = !is_known(model, token);
        if (asks[i].over) continue;
        asks[i].guess[asks[i].n++] = token;
        if (model->n_row == 0) continue;
        memcpy(model->streams[asks[i].stream].rows.guess, llm_hidden_row(model->context, rows[i]), own_bytes(model));
    }
    if (decoded && n_tokens > 0) note_time(model, n_tokens, n_asks, clock_now(model->clock) - began_at);
    for (int32_t k = 0; k < n_tokens && !decoded; k++) keep(model, model->batch[k].seq, 0);
    for (size_t i = 0; i < n && !decoded; i++) {
        asks[i].over = true;
        asks[i].lacks = false;
    }
    free(rows);
    return decoded;
}

double draft_model_step_ns(const struct draft_model *model)
{
    return model->step_ns;
}
