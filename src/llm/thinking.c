/* The reasoning budget as a state machine of five states, the same as llama-server's, so that replies are the same. */
#include "llm/thinking.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "llm/llm_parts.h"

#include <stdlib.h>
#include <string.h>

enum state {
    BEFORE,   /* no reasoning yet */
    COUNTING, /* within reasoning: its tokens are counted */
    BREAKING, /* the budget is used up within a UTF-8 character, whose last byte is awaited */
    FORCING,  /* message and end tag are forced */
    AFTER
};

/* Matches a stream of tokens against several tags, each a sequence of tokens. */
struct tag_matcher {
    struct tokens *sequences;
    size_t n;
    struct tokens last; /* as many as the longest sequence has */
    size_t longest;
};

struct thinking {
    const struct llm_model *model;
    struct tag_matcher start, end;
    struct tokens forced;
    int32_t budget, left;
    enum state state;
    size_t n_forced;               /* tokens of `forced` that have come */
    const struct tokens *ended_by; /* the end tag; NULL: none */
};

/* ---- Matching tags ---- */

static void add_sequence(struct tag_matcher *tag_matcher, const struct llm_model *model, const char *text)
{
    struct tokens tokens = {0};
    llm_tokenize(model, text, strlen(text), false, true, &tokens);
    if (tokens.len == 0) {
        tokens_release(&tokens);
        return;
    }
    tag_matcher->sequences = mem_grow(tag_matcher->sequences, tag_matcher->n + 1, sizeof *tag_matcher->sequences);
    tag_matcher->sequences[tag_matcher->n++] = tokens;
    if (tokens.len > tag_matcher->longest) tag_matcher->longest = tokens.len;
}

static void matcher_reset(struct tag_matcher *tag_matcher)
{
    tokens_truncate(&tag_matcher->last, 0);
}

static bool tokens_end_with(const struct tokens *tokens, const struct tokens *end)
{
    return end->len <= tokens->len &&
           memcmp(tokens->v + (tokens->len - end->len), end->v, end->len * sizeof *end->v) == 0;
}

/* The longest tag that ends with this token, or NULL. A token is part of one match only. */
static const struct tokens *matcher_match(struct tag_matcher *tag_matcher, int32_t token)
{
    const struct tokens *ended_by = NULL;
    if (tag_matcher->last.len > 0 && tag_matcher->last.len >= tag_matcher->longest) {
        tag_matcher->last.len--;
        memmove(tag_matcher->last.v, tag_matcher->last.v + 1, tag_matcher->last.len * sizeof *tag_matcher->last.v);
    }
    tokens_push(&tag_matcher->last, token);
    for (size_t i = 0; i < tag_matcher->n; i++)
        if (tokens_end_with(&tag_matcher->last, &tag_matcher->sequences[i]) &&
            (ended_by == NULL || tag_matcher->sequences[i].len > ended_by->len))
            ended_by = &tag_matcher->sequences[i];
    if (ended_by != NULL) matcher_reset(tag_matcher);
    return ended_by;
}

static void release_matcher(struct tag_matcher *tag_matcher)
{
    for (size_t i = 0; i < tag_matcher->n; i++) tokens_release(&tag_matcher->sequences[i]);
    free(tag_matcher->sequences);
    tokens_release(&tag_matcher->last);
}

/* ---- The state machine ---- */

static void force_end(struct thinking *t)
{
    t->state = t->forced.len > 0 ? FORCING : AFTER;
    t->n_forced = 0;
    matcher_reset(&t->end);
}

static void begin_reasoning(struct thinking *t)
{
    t->ended_by = NULL;
    t->left = t->budget;
    t->state = COUNTING;
    matcher_reset(&t->end);
    if (t->budget == 0) force_end(t);
}

static bool ends_a_character(const struct thinking *t, int32_t token)
{
    struct buf bytes = {0};
    llm_token_bytes(t->model, token, false, &bytes);
    bool ends = bytes.len == 0 || utf8_incomplete_tail(bytes.v, bytes.len) == 0;
    buf_release(&bytes);
    return ends;
}

static void count_token(struct thinking *t, int32_t token)
{
    t->ended_by = matcher_match(&t->end, token);
    if (t->ended_by != NULL) {
        t->state = AFTER;
        return;
    }
    if (t->state == COUNTING && (t->budget < 0 || --t->left > 0)) return;
    if (ends_a_character(t, token)) {
        force_end(t);
        return;
    }
    if (t->state == COUNTING) matcher_reset(&t->end);
    t->state = BREAKING;
}

static void follow_forced(struct thinking *t, int32_t token)
{
    const struct tokens *ended_by = matcher_match(&t->end, token);
    if (++t->n_forced < t->forced.len) return;
    t->state = AFTER;
    t->ended_by = ended_by;
}

void thinking_accept(struct thinking *t, int32_t token)
{
    if (t->state == FORCING)
        follow_forced(t, token);
    else if (thinking_is_on(t))
        count_token(t, token);
    else if (matcher_match(&t->start, token) != NULL)
        begin_reasoning(t);
}

int32_t thinking_forced(const struct thinking *t)
{
    return t->state == FORCING ? t->forced.v[t->n_forced] : -1;
}

bool thinking_is_on(const struct thinking *t)
{
    return t->state != BEFORE && t->state != AFTER;
}

struct tokens thinking_end(const struct thinking *t)
{
    return t->state == AFTER && t->ended_by != NULL ? *t->ended_by : (struct tokens){0};
}

/* ---- Life ---- */

static void build_forced_end(struct thinking *t, const struct llm_thinking *how)
{
    const char *message = how->message;
    if (message != NULL) llm_tokenize(t->model, message, strlen(message), false, true, &t->forced);
    if (t->end.n > 0) tokens_append(&t->forced, t->end.sequences[0].v, t->end.sequences[0].len);
}

/* Reasoning within the prompt does not count against the budget, and nothing can be forced into it. */
static void replay_prefill(struct thinking *t, const char *text)
{
    struct tokens prefill = {0};
    int32_t budget = t->budget;
    t->budget = -1;
    llm_tokenize_prefill(t->model, text, &prefill);
    for (size_t i = 0; i < prefill.len; i++) thinking_accept(t, prefill.v[i]);
    tokens_release(&prefill);
    t->budget = t->left = budget;
    if (budget == 0 && thinking_is_on(t)) force_end(t);
}

struct thinking *thinking_open(const struct llm_model *model, const struct llm_thinking *how)
{
    struct thinking *t = mem_alloc(sizeof *t);
    t->model = model;
    t->budget = how->budget;
    add_sequence(&t->start, model, how->start);
    for (size_t i = 0; i < how->n_ends; i++) add_sequence(&t->end, model, how->ends[i]);
    build_forced_end(t, how);
    if (how->prefill != NULL) replay_prefill(t, how->prefill);
    return t;
}

void thinking_close(struct thinking *t)
{
    if (t == NULL) return;
    release_matcher(&t->start);
    release_matcher(&t->end);
    tokens_release(&t->forced);
    free(t);
}
