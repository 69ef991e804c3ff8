#include "fakes/fake_llm.h"

#include "base/error.h"
#include "base/memory.h"
#include "llm/adapter.h"
#include "llm/cell_map.h"
#include "llm/model_identity.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct fake_llm fake_llm;

static _Atomic int allowed; /* decode calls that may pass the gate */
static _Atomic int at_gate;

/* A sequence: its tokens, and the cells that hold them. Sequences may share cells. */
struct fake_seq {
    struct tokens tokens, cells;
    size_t longest;                     /* most cells it had since it was empty */
    size_t before_call, longest_before; /* its cells, and the most it had, before its last call */
    bool copied_from, copied_to;        /* by a copy between streams that the next decode makes */
    bool lacks_checkpoint;              /* has KV rows without their checkpoint */
};

struct llm_context {
    struct llm_context_params params;
    bool of_draft_model;
    struct fake_seq *seqs;
    const struct media_spans **media;     /* of each sequence */
    struct tokens owners;                 /* of each cell up to the highest one in use: how many sequences hold it */
    int32_t n_used;                       /* cells with an owner */
    int32_t lowest_free;                  /* no cell below it is free */
    int32_t threads;                      /* that compute */
    int32_t adapted;                      /* what the adapters add to every token */
    bool switched;                        /* since the last call */
    int32_t next_tokens[4096];            /* next token for each token of the last call */
    float rows[4096][FAKE_ROW];           /* and its hidden row: the hash of all tokens up to it */
    float layers[FAKE_LAYERS * FAKE_ROW]; /* the inputs of layers that stand for it */
};

struct llm_sampler {
    int32_t drawn, last;
    bool ignore_eos;
};

void fake_llm_reset(struct fake_clock *clock)
{
    fake_llm = (struct fake_llm){.cuts = true, .n_cells = INT32_MAX, .clock = clock, .poison = -1, .newline = -1};
    allowed = 0;
    at_gate = 0;
}

void fake_llm_step(int n)
{
    atomic_fetch_add(&allowed, n);
}

void fake_llm_await_call(void)
{
    while (atomic_load(&at_gate) == 0) sched_yield();
}

static void put_row(float row[FAKE_ROW], uint64_t hash)
{
    for (int i = 0; i < FAKE_ROW; i++) row[i] = (float)(hash >> 16 * i & 0xffff);
}

/* As tokens_short_hash() goes on from the tokens that the row stands for. */
static uint64_t hash_behind(const float row[FAKE_ROW], int32_t token)
{
    uint64_t hash = 0;
    for (int i = 0; i < FAKE_ROW; i++) hash |= (uint64_t)row[i] << 16 * i;
    return (hash ^ (uint32_t)token) * 0x100000001b3u;
}

static int32_t token_of_hash(uint64_t hash)
{
    return (int32_t)(hash % (uint64_t)(fake_llm.alphabet > 0 ? fake_llm.alphabet : FAKE_VOCAB - 1));
}

static int32_t next_token(const int32_t *tokens, size_t len)
{
    struct tokens list = {.v = (int32_t *)(uintptr_t)tokens, .len = len};
    return token_of_hash(tokens_short_hash(&list));
}

void fake_llm_reply(const int32_t *prompt, size_t len, int32_t *reply, size_t n)
{
    fake_llm_reply_under(0, prompt, len, reply, n);
}

void fake_llm_reply_under(int32_t adapted, const int32_t *prompt, size_t len, int32_t *reply, size_t n)
{
    struct tokens all = {0};
    for (size_t i = 0; i < len; i++) tokens_push(&all, prompt[i] + adapted);
    for (size_t i = 0; i < n; i++) {
        reply[i] = next_token(all.v, all.len);
        tokens_push(&all, reply[i] + adapted);
    }
    tokens_release(&all);
}

/* ---- src/llm/context.h ---- */

struct llm_context *llm_context_open(struct llm_model *model, const struct llm_context_params *params,
                                     hearth_error *error)
{
    (void)error;
    struct llm_context *c = mem_alloc(sizeof *c);
    c->of_draft_model = model != NULL;
    c->params = *params;
    c->seqs = mem_alloc((size_t)params->n_seq * sizeof *c->seqs);
    c->media = mem_alloc((size_t)params->n_seq * sizeof(struct media_spans *));
    fake_llm.contexts++;
    return c;
}

void llm_context_close(struct llm_context *c)
{
    for (int32_t i = 0; i < c->params.n_seq; i++) {
        tokens_release(&c->seqs[i].tokens);
        tokens_release(&c->seqs[i].cells);
    }
    tokens_release(&c->owners);
    free(c->seqs);
    free(c->media);
    free(c);
}

bool llm_on_devices(const struct llm_context *c)
{
    (void)c;
    return false;
}

int32_t llm_copies_from(const struct llm_context *c)
{
    (void)c;
    return fake_llm.copies_from;
}

void llm_begin_computing(const struct llm_context *c)
{
    (void)c;
}

int32_t llm_threads(const struct llm_context *c)
{
    (void)c;
    return fake_llm.threads > 0 ? fake_llm.threads : 1;
}

void llm_set_threads(struct llm_context *c, int32_t n)
{
    c->threads = n;
}

static int32_t take_lowest(struct llm_context *c)
{
    while (c->lowest_free < (int32_t)c->owners.len && c->owners.v[c->lowest_free] > 0) c->lowest_free++;
    if (c->lowest_free == (int32_t)c->owners.len) tokens_push(&c->owners, 0);
    return c->lowest_free;
}

static bool is_free(const struct llm_context *c, int32_t cell)
{
    return cell >= (int32_t)c->owners.len || c->owners.v[cell] == 0;
}

static int32_t free_block(const struct llm_context *c)
{
    for (int32_t first = 0;; first += fake_llm.block_cells) {
        int32_t n = 0;
        while (n < fake_llm.block_cells && is_free(c, first + n)) n++;
        if (n == fake_llm.block_cells) return first;
    }
}

/* The cell behind the sequence's last one, or the first one of a block that is free. */
static int32_t take_behind(struct llm_context *c, const struct fake_seq *seq)
{
    int32_t cell = seq->cells.len > 0 ? seq->cells.v[seq->cells.len - 1] + 1 : 0;
    if (cell % fake_llm.block_cells == 0 || !is_free(c, cell)) cell = free_block(c);
    while ((int32_t)c->owners.len <= cell) tokens_push(&c->owners, 0);
    return cell;
}

static void give_up(struct llm_context *c, int32_t cell)
{
    if (--c->owners.v[cell] > 0) return;
    c->n_used--;
    if (cell < c->lowest_free) c->lowest_free = cell;
    while (c->owners.len > 0 && c->owners.v[c->owners.len - 1] == 0) c->owners.len--;
}

static void hold(struct llm_context *c, struct fake_seq *seq, int32_t token, int32_t cell)
{
    if (cell < 0) cell = take_lowest(c);
    c->n_used += c->owners.v[cell]++ == 0;
    tokens_push(&seq->tokens, token);
    tokens_push(&seq->cells, cell);
    if (seq->cells.len > seq->longest) seq->longest = seq->cells.len;
}

static void let_go(struct llm_context *c, struct fake_seq *seq, size_t keep)
{
    for (size_t i = keep; i < seq->cells.len; i++) give_up(c, seq->cells.v[i]);
    tokens_truncate(&seq->tokens, keep);
    tokens_truncate(&seq->cells, keep);
    if (keep == 0) seq->longest = 0;
    if (keep == 0) seq->lacks_checkpoint = false;
}

static bool pass_gate(struct llm_context *c)
{
    if (!fake_llm.held) return !c->params.abort(c->params.ud);
    atomic_store(&at_gate, 1);
    bool aborted = false;
    while (!aborted) {
        int n = atomic_load(&allowed);
        if (n > 0 && atomic_compare_exchange_strong(&allowed, &n, n - 1)) break;
        aborted = c->params.abort(c->params.ud);
        sched_yield();
    }
    atomic_store(&at_gate, 0);
    return !aborted;
}

static void note_call(struct llm_context *c, const struct llm_batch_token *tokens, int32_t n_tokens)
{
    int32_t seqs = 0, logits = 0;
    for (int32_t i = 0; i < n_tokens; i++) seqs += i == 0 || tokens[i].seq != tokens[i - 1].seq;
    for (int32_t i = 0; i < n_tokens; i++) logits += tokens[i].logits;
    if (logits > fake_llm.max_logits) fake_llm.max_logits = logits;
    if (fake_llm.calls < 4096) fake_llm.batch_tokens[fake_llm.calls] = n_tokens;
    fake_llm.calls++;
    if (n_tokens > fake_llm.max_tokens) fake_llm.max_tokens = n_tokens;
    if (seqs > fake_llm.max_seqs) fake_llm.max_seqs = seqs;
    memcpy(fake_llm.last_batch, tokens, (size_t)n_tokens * sizeof *tokens);
    fake_llm.last_n = n_tokens;
    fake_llm.last_threads = c->threads;
    int64_t switching = c->switched ? fake_llm.switch_ns : 0;
    c->switched = false;
    if (fake_llm.clock == NULL) return;
    double masked = 0;
    int32_t free = (int32_t)c->owners.len - c->n_used,
            top = (int32_t)c->owners.len + (n_tokens > free ? n_tokens - free : 0);
    for (int32_t i = 0; i < n_tokens; i++) masked += top - (tokens[i].pos + 1);
    fake_clock_advance(fake_llm.clock, switching + fake_llm.call_ns + n_tokens * fake_llm.token_ns +
                                           (n_tokens < 8 ? n_tokens : 8) * fake_llm.few_ns +
                                           (n_tokens >= fake_llm.copies_from ? fake_llm.copy_ns : 0) +
                                           c->threads * fake_llm.thread_ns + (int64_t)(masked * fake_llm.masked_ns));
}

/* After a call that broke off, its sequences are empty where they cannot be cut. */
static void lose_uncuttable(struct llm_context *c, const struct llm_batch_token *tokens, int32_t n_tokens)
{
    if (fake_llm.torn_tokens == 0 || fake_llm.cuts || fake_llm.cuts_back > 0) return;
    for (int32_t i = 0; i < n_tokens; i++) let_go(c, &c->seqs[tokens[i].seq], 0);
}

/* What an abort in the middle of a call leaves behind. */
static void tear(struct llm_context *c, const struct llm_batch_token *tokens, int32_t n_tokens)
{
    int32_t n = fake_llm.torn_tokens < n_tokens ? fake_llm.torn_tokens : n_tokens;
    if (n <= 0 || c->n_used + n_tokens > fake_llm.n_cells) return;
    for (int32_t i = 0; i < n; i++) hold(c, &c->seqs[tokens[i].seq], tokens[i].token + c->adapted, -1);
    lose_uncuttable(c, tokens, n_tokens);
}

static void make_copies(struct llm_context *c)
{
    for (int32_t i = 0; i < c->params.n_seq; i++) c->seqs[i].copied_from = c->seqs[i].copied_to = false;
}

/* Adapters change what cells hold, and with it every reply that comes of them. */
int32_t fake_llm_adapted(const double *scales, size_t n)
{
    double sum = 0, each = 2000; /* half of this is more than any token */
    for (size_t i = 0; i < n && scales != NULL; i++, each *= 10) sum += each * scales[i];
    return (int32_t)sum;
}

void llm_adapt(struct llm_context *c, const struct llm_adapters *adapters)
{
    int32_t adapted = fake_llm_adapted(adapters->scales, adapters->n);
    fake_llm.switches += adapted != c->adapted;
    c->switched = c->switched || adapted != c->adapted;
    c->adapted = adapted;
}

static bool is_head(const struct llm_context *c)
{
    return c->params.head != LLM_HEAD_NONE;
}

static enum llm_decoded decode_draft(struct llm_context *c, const struct llm_batch_token *tokens, int32_t n_tokens)
{
    fake_llm.draft_calls++;
    fake_llm.draft_tokens += n_tokens;
    if (fake_llm.clock != NULL) fake_clock_advance(fake_llm.clock, fake_llm.draft_ns);
    for (int32_t i = 0; i < n_tokens; i++) {
        struct fake_seq *seq = &c->seqs[tokens[i].seq];
        if (fake_llm.draft_fails || tokens[i].pos >= c->params.window) return LLM_FAILED;
        if (tokens[i].pos != (int32_t)seq->tokens.len) abort();                           /* a caller's fault */
        if (fake_llm.draft_vocab > 0 && tokens[i].token >= fake_llm.draft_vocab) abort(); /* likewise */
        if (is_head(c) != (tokens[i].row != NULL)) abort();                               /* likewise */
        hold(c, seq, tokens[i].token, -1);
        uint64_t hash = is_head(c) ? hash_behind(tokens[i].row, tokens[i].token) : tokens_short_hash(&seq->tokens);
        c->next_tokens[i] = tokens[i].logits ? token_of_hash(hash) : -1;
        put_row(c->rows[i], hash);
    }
    return LLM_DECODED;
}

const float *llm_hidden_row(struct llm_context *c, int32_t index)
{
    if (!is_head(c) && !c->params.hidden_rows) abort(); /* they are not kept */
    if (c->next_tokens[index] < 0) abort();             /* the token has none */
    if (c->params.hidden_layers.n == 0) return c->rows[index];
    for (int i = 0; i < FAKE_LAYERS * FAKE_ROW; i++) c->layers[i] = c->rows[index][i % FAKE_ROW] + (float)i;
    return c->layers;
}

/* Of the inputs of all layers the row that they are of: whatever else it is given shows in what is guessed. */
bool llm_encode_rows(struct llm_context *c, const float *rows, int32_t n, float *encoded)
{
    if (c->params.head != LLM_HEAD_EAGLE || n < 1 || n > c->params.n_batch) abort(); /* a caller's fault */
    fake_llm.encoded_rows += n;
    if (fake_llm.encode_fails) return false;
    for (int32_t k = 0; k < n; k++)
        for (int i = 0; i < FAKE_LAYERS * FAKE_ROW; i++) {
            float value = rows[k * FAKE_LAYERS * FAKE_ROW + i] - (float)i, *out = &encoded[k * FAKE_ROW + i % FAKE_ROW];
            *out = i < FAKE_ROW || *out == value ? value : 0;
        }
    return true;
}

int32_t llm_likeliest(struct llm_context *c, int32_t index, float *chance)
{
    if (c->next_tokens[index] < 0) abort(); /* the token has no logits */
    *chance = fake_llm.draft_chance > 0 ? fake_llm.draft_chance : 0.9F;
    return (c->next_tokens[index] + fake_llm.draft_wrong) % (FAKE_VOCAB - 1);
}

enum llm_decoded llm_decode(struct llm_context *c, const struct llm_batch_token *tokens, int32_t n_tokens)
{
    if (c->of_draft_model) return decode_draft(c, tokens, n_tokens);
    if (fake_llm.on_call != NULL) fake_llm.on_call(fake_llm.ud);
    if (!pass_gate(c)) {
        tear(c, tokens, n_tokens);
        return LLM_ABORTED;
    }
    note_call(c, tokens, n_tokens);
    fake_llm.no_room += c->n_used + n_tokens > fake_llm.n_cells;
    if (c->n_used + n_tokens > fake_llm.n_cells) return LLM_NO_CELLS;
    bool in_blocks = fake_llm.block_cells > 0 && tokens[0].seq != tokens[n_tokens - 1].seq;
    for (int32_t i = 0; i < n_tokens; i++) {
        struct fake_seq *seq = &c->seqs[tokens[i].seq];
        if (tokens[i].token == fake_llm.poison) {
            lose_uncuttable(c, tokens, n_tokens);
            return LLM_FAILED; /* tokens computed before it stay, as with the real one */
        }
        fake_llm.beyond += tokens[i].pos >= c->params.window;
        if (tokens[i].pos != (int32_t)seq->tokens.len || tokens[i].pos >= c->params.window) return LLM_REFUSED;
        if (i == 0 || tokens[i].seq != tokens[i - 1].seq) {
            seq->before_call = seq->tokens.len;
            seq->longest_before = seq->longest;
        }
        hold(c, seq, tokens[i].token + c->adapted, in_blocks ? take_behind(c, seq) : -1);
        c->next_tokens[i] = -1;
        if (!tokens[i].logits) continue;
        uint64_t hash = tokens_short_hash(&seq->tokens);
        c->next_tokens[i] = token_of_hash(hash);
        put_row(c->rows[i], hash);
    }
    make_copies(c);
    return LLM_DECODED;
}

void llm_seq_set_media(struct llm_context *c, int32_t seq, const struct media_spans *media)
{
    c->media[seq] = media;
}

/* The rows of a call must lie within one medium of the sequence, and be all of it where they see each other. */
static void check_rows(const struct llm_context *c, const struct llm_media_rows *rows)
{
    const struct media_span *span = media_spans_at(c->media[rows->seq], rows->from);
    bool good = span != NULL && rows->from + rows->n <= span->at + span->n && rows->causal == span->causal;
    if (!good || (!span->causal && rows->n != span->n)) abort(); /* a caller's fault */
}

enum llm_decoded llm_decode_rows(struct llm_context *c, const struct llm_media_rows *rows)
{
    struct llm_batch_token *tokens = mem_alloc((size_t)rows->n * sizeof *tokens);
    check_rows(c, rows);
    for (int32_t i = 0; i < rows->n; i++) {
        tokens[i] = (struct llm_batch_token){.token = fake_llm_token_of_row(rows->rows + (size_t)i * FAKE_WIDTH),
                                             .pos = rows->from + i,
                                             .seq = rows->seq,
                                             .logits = rows->logits && i + 1 == rows->n};
    }
    enum llm_decoded decoded = llm_decode(c, tokens, rows->n);
    fake_llm.rows_computed += decoded == LLM_DECODED ? rows->n : 0;
    free(tokens);
    return decoded;
}

void fake_llm_row_of_token(int32_t token, float row[FAKE_WIDTH])
{
    row[0] = (float)((uint32_t)token >> 16);
    row[1] = (float)((uint32_t)token & 0xffff);
}

int32_t fake_llm_token_of_row(const float row[FAKE_WIDTH])
{
    return (int32_t)((uint32_t)row[0] << 16 | (uint32_t)row[1]);
}

bool llm_cuts_after_call(const struct llm_context *c)
{
    (void)c;
    return fake_llm.cuts || fake_llm.cuts_back > 0;
}

bool llm_cuts_anywhere(const struct llm_context *c)
{
    (void)c;
    return fake_llm.cuts;
}

bool llm_has_window(const struct llm_context *c)
{
    (void)c;
    return false;
}

bool llm_one_seq_a_call(const struct llm_context *c)
{
    (void)c;
    return false;
}

/* The rows of the last call but the first leave a window as it was. */
static bool cuts_last_call(const struct llm_context *c, int32_t seq, int32_t from)
{
    const struct fake_seq *s = &c->seqs[seq];
    return fake_llm.cuts_back > 0 && s->before_call > 0 && from > (int32_t)s->before_call;
}

bool llm_seq_can_cut(struct llm_context *c, int32_t seq, int32_t from)
{
    return fake_llm.cuts || c->of_draft_model || from <= 0 || from >= llm_seq_end(c, seq) ||
           from >= (int32_t)c->seqs[seq].longest - fake_llm.cuts_back || cuts_last_call(c, seq, from);
}

bool llm_seq_cut(struct llm_context *c, int32_t seq, int32_t from)
{
    if (!llm_seq_can_cut(c, seq, from)) return false;
    if (from >= llm_seq_end(c, seq)) return true;
    struct fake_seq *s = &c->seqs[seq];
    bool last = cuts_last_call(c, seq, from);
    let_go(c, s, (size_t)from);
    if (last) s->longest = s->longest_before > (size_t)from ? s->longest_before : (size_t)from;
    return true;
}

void llm_seq_clear(struct llm_context *c, int32_t seq)
{
    let_go(c, &c->seqs[seq], 0);
}

int32_t llm_seq_end(struct llm_context *c, int32_t seq)
{
    const struct fake_seq *s = &c->seqs[seq];
    return s->lacks_checkpoint || s->tokens.len == 0 ? 0 : (int32_t)s->tokens.len + fake_llm.stray_cells;
}

bool llm_seq_share(struct llm_context *c, int32_t from, int32_t to, int32_t n)
{
    if (from == to || n > llm_seq_end(c, from)) abort(); /* a caller's fault */
    llm_seq_clear(c, to);
    if (n <= 0 || (n != llm_seq_end(c, from) && !fake_llm.cuts)) return false;
    for (int32_t i = 0; i < n; i++) hold(c, &c->seqs[to], c->seqs[from].tokens.v[i], c->seqs[from].cells.v[i]);
    c->seqs[to].longest = c->seqs[from].longest;
    if (!c->params.unified) c->seqs[from].copied_from = c->seqs[to].copied_to = true;
    fake_llm.shares++;
    return true;
}

/* A saved state; its tokens follow in a whole snapshot. */
struct fake_state {
    enum llm_state what;
    int32_t n;
    uint64_t hash; /* of the tokens */
};

static uint64_t hash_of(const struct tokens *tokens, int32_t n)
{
    return tokens_short_hash(&(struct tokens){.v = tokens->v, .len = (size_t)n});
}

size_t llm_seq_state_size(struct llm_context *c, int32_t seq, enum llm_state what)
{
    const struct fake_seq *s = &c->seqs[seq];
    if (s->tokens.len == 0 || s->copied_to || (what == LLM_STATE_CHECKPOINT && fake_llm.cuts)) return 0;
    return sizeof(struct fake_state) + (what == LLM_STATE_SNAPSHOT ? s->tokens.len * sizeof(int32_t) : 0);
}

size_t llm_seq_save(struct llm_context *c, int32_t seq, enum llm_state what, void *bytes, size_t size)
{
    const struct tokens *tokens = &c->seqs[seq].tokens;
    size_t needed = llm_seq_state_size(c, seq, what);
    if (fake_llm.save_fails || needed == 0 || needed > size) return 0;
    struct fake_state state = {.what = what, .n = (int32_t)tokens->len, .hash = hash_of(tokens, (int32_t)tokens->len)};
    memcpy(bytes, &state, sizeof state);
    memcpy((char *)bytes + sizeof state, tokens->v, needed - sizeof state);
    if (fake_llm.clock != NULL) fake_clock_advance(fake_llm.clock, fake_llm.state_ns);
    fake_llm.saves++;
    return needed;
}

/* False: these bytes are no such state, or it cannot be loaded now. */
static bool read_state(struct fake_state *state, const struct fake_seq *seq, const void *bytes, size_t size)
{
    if (fake_llm.load_fails || seq->copied_from || seq->copied_to || size < sizeof *state) return false;
    memcpy(state, bytes, sizeof *state);
    size_t n_tokens = state->what == LLM_STATE_SNAPSHOT ? (size_t)state->n : 0;
    return size == sizeof *state + n_tokens * sizeof(int32_t);
}

/* A window that was loaded begins with what its end needs: no cell can be cut. */
static void end_at(struct fake_seq *seq, int32_t n)
{
    seq->longest = (size_t)(n + fake_llm.cuts_back);
}

/* Whether a checkpoint finds room: where several sequences share cells of a window, it does not at first. */
static bool has_room_for_moving(void)
{
    if (fake_llm.checkpoints_refused == 0) return true;
    fake_llm.checkpoints_refused--;
    fake_llm.no_room++;
    return false;
}

enum llm_loaded llm_seq_load(struct llm_context *c, int32_t seq, const void *bytes, size_t size, int32_t n)
{
    struct fake_state state;
    struct fake_seq *s = &c->seqs[seq];
    llm_seq_clear(c, seq);
    if (!read_state(&state, s, bytes, size) || state.what != LLM_STATE_SNAPSHOT || state.n != n) return LLM_BAD_STATE;
    fake_llm.no_room += c->n_used + n > fake_llm.n_cells;
    if (c->n_used + n > fake_llm.n_cells) return LLM_NO_ROOM;
    for (int32_t i = 0; i < n; i++) {
        int32_t token;
        memcpy(&token, (const char *)bytes + sizeof state + (size_t)i * sizeof token, sizeof token);
        hold(c, s, token, -1);
    }
    end_at(s, n);
    if (fake_llm.clock != NULL) fake_clock_advance(fake_llm.clock, fake_llm.load_ns);
    fake_llm.loads++;
    return LLM_LOADED;
}

enum llm_loaded llm_seq_rewind(struct llm_context *c, int32_t seq, const void *bytes, size_t size, int32_t n)
{
    struct fake_state state;
    struct fake_seq *s = &c->seqs[seq];
    bool read = read_state(&state, s, bytes, size) && state.what == LLM_STATE_CHECKPOINT && state.n == n;
    if (!read || n > llm_seq_end(c, seq)) {
        llm_seq_clear(c, seq);
        return LLM_BAD_STATE;
    }
    if (!has_room_for_moving()) {
        llm_seq_clear(c, seq);
        return LLM_NO_ROOM;
    }
    if (state.hash != hash_of(&s->tokens, n)) abort(); /* it completes other cells: a caller's fault */
    let_go(c, s, (size_t)n);
    end_at(s, n);
    if (fake_llm.clock != NULL) fake_clock_advance(fake_llm.clock, fake_llm.state_ns);
    fake_llm.rewinds++;
    return LLM_LOADED;
}

/* ---- src/llm/state_slices.h ---- */

/* Raw bytes and slices alike: where the rows begin and end, then one token for each row. */
struct fake_rows {
    int32_t from, to;
    int32_t tokens[];
};

struct llm_state_format {
    bool has_checkpoints, appends;
};

struct llm_state_format *llm_state_format_open(struct llm_context *c, hearth_error *error)
{
    if (fake_llm.no_format) {
        error_set(error, HEARTH_UNSUPPORTED, "this memory cannot be taken apart");
        return NULL;
    }
    struct llm_state_format *format = mem_alloc(sizeof *format);
    *format = (struct llm_state_format){.has_checkpoints = !fake_llm.cuts, .appends = c->params.unified};
    return format;
}

void llm_state_format_close(struct llm_state_format *format)
{
    free(format);
}

bool llm_state_format_has_rows(const struct llm_state_format *format)
{
    (void)format;
    return true;
}

bool llm_state_format_has_checkpoints(const struct llm_state_format *format)
{
    return format->has_checkpoints;
}

bool llm_state_format_appends(const struct llm_state_format *format)
{
    return format->appends;
}

uint64_t llm_state_format_row_bytes(const struct llm_state_format *format)
{
    (void)format;
    return sizeof(int32_t);
}

static size_t rows_size(int32_t n)
{
    return sizeof(struct fake_rows) + (size_t)n * sizeof(int32_t);
}

size_t llm_rows_size(struct llm_context *c, const struct llm_state_format *format, int32_t seq, int32_t from,
                     int32_t to)
{
    const struct fake_seq *s = &c->seqs[seq];
    if (s->lacks_checkpoint || to > (int32_t)s->tokens.len) abort(); /* a caller's fault */
    if (s->copied_to) return 0;
    return rows_size(format->appends ? to - from : (int32_t)s->tokens.len);
}

static void write_rows(struct fake_rows *rows, const int32_t *tokens, int32_t from, int32_t to)
{
    rows->from = from;
    rows->to = to;
    memcpy(rows->tokens, tokens + from, (size_t)(to - from) * sizeof *tokens);
}

size_t llm_rows_save(struct llm_context *c, const struct llm_state_format *format, int32_t seq, int32_t from,
                     int32_t to, void *raw, size_t size)
{
    size_t needed = llm_rows_size(c, format, seq, from, to);
    if (needed == 0 || needed > size) return 0;
    bool part = format->appends;
    write_rows(raw, c->seqs[seq].tokens.v, part ? from : 0, part ? to : (int32_t)c->seqs[seq].tokens.len);
    fake_llm.rows_saved += to - from;
    if (fake_llm.save_ns > 0) fake_clock_advance(fake_llm.clock, (to - from) * fake_llm.save_ns);
    return needed;
}

static void add_region(struct llm_regions *regions, char what, uint32_t rows, uint64_t size)
{
    regions->v = mem_alloc(sizeof *regions->v);
    regions->v[0] = (struct llm_region){.what = what, .rows = rows, .row_bytes = size / rows, .size = size};
    regions->len = 1;
}

size_t llm_checkpoint_save(struct llm_context *c, const struct llm_state_format *format, int32_t seq, void *bytes,
                           size_t size)
{
    (void)format;
    return llm_seq_save(c, seq, LLM_STATE_CHECKPOINT, bytes, size);
}

bool llm_cut_rows(const struct llm_state_format *format, const void *raw, size_t size, int32_t from, int32_t to,
                  struct buf *piece, struct llm_regions *regions)
{
    (void)format;
    const struct fake_rows *all = raw;
    if (size < sizeof *all || from < all->from || to > all->to) return false;
    struct fake_rows *cut = mem_alloc(rows_size(to - from));
    write_rows(cut, all->tokens - all->from, from, to);
    buf_append(piece, cut, rows_size(to - from));
    free(cut);
    add_region(regions, 'K', (uint32_t)(to - from), (uint64_t)(to - from) * sizeof(int32_t));
    regions->v[0].offset = sizeof *all;
    return true;
}

bool llm_cut_checkpoint(const struct llm_state_format *format, const void *raw, size_t size, int32_t n,
                        struct buf *piece, struct llm_regions *regions)
{
    (void)format;
    const struct fake_state *state = raw;
    if (size != sizeof *state || state->n != n) return false;
    buf_append(piece, raw, size);
    add_region(regions, 'M', 1, size);
    return true;
}

bool llm_join_rows(const struct llm_state_format *format, const struct llm_state_slice *pieces, size_t n,
                   struct buf *joined)
{
    (void)format;
    struct fake_rows head = {.from = 0, .to = pieces[n - 1].to};
    buf_append(joined, &head, sizeof head);
    for (size_t i = 0; i < n; i++) {
        const struct fake_rows *rows = pieces[i].bytes;
        if (pieces[i].from < rows->from || pieces[i].to > rows->to) return false;
        size_t len = (size_t)(pieces[i].to - pieces[i].from);
        buf_append(joined, rows->tokens + (pieces[i].from - rows->from), len * sizeof(int32_t));
    }
    return true;
}

static bool has_room_for(const struct llm_context *c, int32_t n)
{
    return !fake_llm.load_fails && c->n_used + n <= fake_llm.n_cells;
}

static void add_rows(struct llm_context *c, struct fake_seq *seq, const struct llm_state_format *format,
                     const struct llm_state_slice *piece)
{
    const struct fake_rows *rows = piece->bytes;
    for (int32_t pos = piece->from; pos < piece->to; pos++) hold(c, seq, rows->tokens[pos - rows->from], -1);
    seq->lacks_checkpoint = format->has_checkpoints;
    fake_llm.rows_loaded += piece->to - piece->from;
    if (fake_llm.clock != NULL) fake_clock_advance(fake_llm.clock, fake_llm.load_ns);
}

enum llm_loaded llm_rows_load(struct llm_context *c, const struct llm_state_format *format, int32_t seq,
                              const struct llm_state_slice *piece)
{
    struct fake_seq *s = &c->seqs[seq];
    if (!format->appends || piece->from != (int32_t)s->tokens.len) abort(); /* a caller's fault */
    if (fake_llm.load_fails) return LLM_BAD_STATE;
    if (!has_room_for(c, piece->to - piece->from)) return LLM_NO_ROOM;
    add_rows(c, s, format, piece);
    return LLM_LOADED;
}

bool llm_rows_load_all(struct llm_context *c, const struct llm_state_format *format, int32_t seq, const void *joined,
                       size_t size, int32_t n)
{
    struct fake_seq *s = &c->seqs[seq];
    if (format->appends || s->copied_from || s->copied_to) return false;
    let_go(c, s, 0);
    if (!has_room_for(c, n)) return false;
    add_rows(c, s, format, &(struct llm_state_slice){.bytes = joined, .size = size, .to = n});
    return true;
}

/* ---- src/llm/cell_map.h ---- */

bool llm_cells_map(struct llm_context *c, struct llm_cell_map *out)
{
    *out = (struct llm_cell_map){.used = c->n_used, .top = (int32_t)c->owners.len};
    return c->params.unified && fake_llm.cuts;
}

int32_t llm_cells_above(struct llm_context *c, int32_t cell)
{
    int32_t n = 0;
    for (size_t i = (size_t)cell; i < c->owners.len; i++) n += c->owners.v[i] > 0;
    return n;
}

struct llm_positions llm_seq_above(struct llm_context *c, int32_t seq, int32_t cell)
{
    struct llm_positions positions = {0};
    const struct tokens *cells = &c->seqs[seq].cells;
    for (size_t i = 0; i < cells->len; i++) {
        if (cells->v[i] < cell) continue;
        if (positions.to == 0) positions.from = (int32_t)i;
        positions.to = (int32_t)i + 1;
    }
    return positions;
}

bool llm_rows_move(struct llm_context *c, const struct llm_state_format *format, int32_t seq, int32_t from, int32_t to)
{
    struct fake_seq *s = &c->seqs[seq];
    if (!format->appends || from >= to || to > (int32_t)s->cells.len) abort(); /* a caller's fault */
    for (int32_t i = from; i < to; i++) {
        if (c->owners.v[s->cells.v[i]] != 1) abort(); /* a moved row would be a copy */
        give_up(c, s->cells.v[i]);
    }
    for (int32_t i = from; i < to; i++) c->owners.v[s->cells.v[i] = take_lowest(c)] = 1;
    c->n_used += to - from;
    fake_llm.rows_moved += to - from;
    if (fake_llm.clock != NULL) fake_clock_advance(fake_llm.clock, (to - from) * fake_llm.move_ns);
    if (!fake_llm.move_fails) return true;
    let_go(c, s, (size_t)from);
    return false;
}

enum llm_loaded llm_checkpoint_load(struct llm_context *c, const struct llm_state_format *format, int32_t seq,
                                    const void *piece, size_t size, int32_t n)
{
    struct fake_seq *s = &c->seqs[seq];
    struct fake_state state;
    if (!format->has_checkpoints || n != (int32_t)s->tokens.len || size != sizeof state) abort(); /* a caller's fault */
    memcpy(&state, piece, sizeof state);
    if (fake_llm.load_fails || state.hash != hash_of(&s->tokens, n)) {
        let_go(c, s, 0);
        return LLM_BAD_STATE;
    }
    if (!has_room_for_moving()) return LLM_NO_ROOM;
    s->lacks_checkpoint = false;
    end_at(s, n);
    return LLM_LOADED;
}

void llm_context_describe(const struct llm_context *c, struct buf *out)
{
    (void)c;
    buf_puts(out, "fake\n");
}

/* ---- For tests ---- */

const struct tokens *fake_llm_cells(const struct llm_context *c, int32_t seq)
{
    return &c->seqs[seq].tokens;
}

bool fake_llm_cells_add_up(const struct llm_context *c)
{
    char *seen = mem_alloc(c->owners.len + 1);
    int32_t n = 0;
    for (int32_t s = 0; s < c->params.n_seq; s++) {
        const struct tokens *cells = &c->seqs[s].cells;
        for (size_t i = 0; i < cells->len; i++) {
            n += !seen[cells->v[i]];
            seen[cells->v[i]] = 1;
        }
    }
    free(seen);
    return n == c->n_used;
}

int32_t fake_llm_cells_in_common(const struct llm_context *c, int32_t a, int32_t b)
{
    return (int32_t)tokens_common_prefix(&c->seqs[a].cells, &c->seqs[b].cells);
}

/* ---- src/llm/model.h ---- */

const char *llm_build(void)
{
    return "fake";
}

const char *llm_cpu_features(void)
{
    return "none";
}

void llm_describe_gpus(struct buf *out)
{
    (void)out;
}

void llm_token_bytes(const struct llm_model *model, int32_t token, bool special, struct buf *out)
{
    (void)model;
    char text = (char)((special ? 'A' : 'a') + token % 26);
    if (token == fake_llm.newline) text = '\n';
    buf_append(out, &text, 1);
}

bool llm_token_ends_generation(const struct llm_model *model, int32_t token)
{
    (void)model;
    return token == FAKE_END;
}

/* ---- src/llm/sampler.h ---- */

struct llm_sampler *llm_sampler_open(const struct llm_model *model, const struct llm_sampling *sampling,
                                     const struct tokens *prompt, hearth_error *error)
{
    (void)model;
    (void)prompt;
    (void)error;
    struct llm_sampler *s = mem_alloc(sizeof *s);
    s->ignore_eos = sampling->params.ignore_eos;
    return s;
}

void llm_sampler_close(struct llm_sampler *s)
{
    free(s);
}

int32_t llm_sampler_guess(struct llm_sampler *s, int32_t *tokens, int32_t max)
{
    (void)s;
    (void)tokens;
    (void)max;
    return 0;
}

int32_t llm_sample(struct llm_sampler *s, struct llm_context *c, int32_t index)
{
    s->drawn++;
    if (fake_llm.sample_ns > 0 && s->ignore_eos) fake_clock_advance(fake_llm.clock, fake_llm.sample_ns);
    if (fake_llm.fail_after > 0 && s->drawn > fake_llm.fail_after) return -1;
    if (fake_llm.end_after > 0 && s->drawn > fake_llm.end_after && !s->ignore_eos) return FAKE_END;
    return s->last = c->next_tokens[index];
}

/* ---- src/llm/logprobs.h ---- */

/* The likeliest token has probability e^-1 by the model, others less; the sampled one e^-2 post-sampling; the i-th
 * other one a further factor e^-i. */
struct llm_logprobs {
    hearth_logprob top[FAKE_VOCAB];
    hearth_logprobs result;
};

struct llm_logprobs *llm_logprobs_open(const struct llm_model *model)
{
    (void)model;
    return mem_alloc(sizeof(struct llm_logprobs));
}

void llm_logprobs_close(struct llm_logprobs *logprobs)
{
    free(logprobs);
}

static const hearth_logprobs *fill_logprobs(struct llm_logprobs *logprobs, int32_t chosen, int32_t n_top, double log)
{
    for (int32_t i = 0; i < n_top; i++)
        logprobs->top[i] =
            (hearth_logprob){.token = (chosen + i) % FAKE_VOCAB, .log = log - i, .bytes = "x", .n_bytes = 1};
    logprobs->result = (hearth_logprobs){.chosen = {.token = chosen, .log = log, .bytes = "x", .n_bytes = 1},
                                         .top = logprobs->top,
                                         .n_top = (size_t)n_top};
    return &logprobs->result;
}

static double logprob_of(int32_t likeliest, int32_t token)
{
    return -1 - 1e-3 * (((token - likeliest) % FAKE_VOCAB + FAKE_VOCAB) % FAKE_VOCAB);
}

const hearth_logprobs *llm_logprobs_of_model(struct llm_logprobs *logprobs, struct llm_context *c, int32_t index,
                                             int32_t chosen, int32_t n_top)
{
    if (c->next_tokens[index] < 0) abort(); /* the token has no logits */
    if (fake_llm.score_ns > 0) fake_clock_advance(fake_llm.clock, fake_llm.score_ns);
    return fill_logprobs(logprobs, chosen, n_top, logprob_of(c->next_tokens[index], chosen));
}

double fake_llm_logprob(int32_t adapted, const int32_t *tokens, size_t len, int32_t next)
{
    int32_t likeliest;
    fake_llm_reply_under(adapted, tokens, len, &likeliest, 1);
    return logprob_of(likeliest, next);
}

const hearth_logprobs *llm_logprobs_post_sampling(struct llm_logprobs *logprobs, const struct llm_sampler *sampler,
                                                  int32_t chosen, int32_t n_top)
{
    if (sampler->last != chosen) abort(); /* it did not sample that */
    return fill_logprobs(logprobs, chosen, n_top, -2);
}
